{{- define "foldback.name" -}}
{{- if contains "foldback" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-foldback" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "foldback.selector" -}}
app.kubernetes.io/name: foldback
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "foldback.labels" -}}
{{ include "foldback.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "foldback.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "foldback.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where the store is: for the service, and for the commands beside it. */}}
{{- define "foldback.environment" -}}
{{- if .Values.postgresql.url }}
env:
  - {name: FOLDBACK_STORE, value: {{ .Values.postgresql.url | quote }}}
  {{- with .Values.postgresql.existingSecret }}
  - name: PGPASSWORD
    valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $.Values.postgresql.passwordKey }}}}
  {{- end }}
{{- end }}
{{- with .Values.blobs.existingSecret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{- define "foldback.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not (and .Values.postgresql.url .Values.blobs.url)) }}
{{- fail "replicas: more than one needs postgresql.url and blobs.url: otherwise one process holds the data (docs/scale.md)" }}
{{- end }}
{{- if and (or .Values.blobs.endpoint .Values.blobs.region .Values.blobs.redirect) (not .Values.blobs.url) }}
{{- fail "blobs: endpoint, region and redirect go with blobs.url" }}
{{- end }}
{{- end }}
