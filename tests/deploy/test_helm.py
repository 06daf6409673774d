"""The chart renders what Kubernetes takes, for one process and for replicas, and says the same as the plain manifests."""

import json
import os
import pathlib
import subprocess

import kubernetes_validate
import pytest
import yaml
from test_deploy import BINARY, DEPLOY, MONITORING, alerts, bytes_of, manifests, options_in, serve_default, serve_options

CHART = DEPLOY / "helm" / "foldback"
TOOLS = pathlib.Path(os.environ["FOLDBACK_HELM"]).resolve()
# Values that are not the usual ones.
REPLICAS = {
    "replicas": 3,
    "postgresql.url": "postgresql://foldback@db.example.org/foldback",
    "postgresql.existingSecret": "database",
    "blobs.url": "s3://bucket/prefix",
    "blobs.endpoint": "https://s3.example.org:9000",
    "blobs.publicEndpoint": "https://s3.example.org",
    "blobs.region": "eu-central-1",
    "blobs.redirect": True,
    "blobs.cache": "4G",
    "blobs.existingSecret": "bucket",
    "blobs.port": 9000,
}
MORE = {
    "image.repository": "registry.example.org/foldback",
    "image.tag": "1.2.3",
    "imagePullSecrets": [{"name": "registry"}],
    "options": ["--workers", "16"],
    "storage.className": "fast",
    "service.type": "LoadBalancer",
    "ingress.enabled": True,
    "ingress.className": "nginx",
    "ingress.tlsSecret": "certificate",
    "ingress.annotations": {"example.org/a": "b"},
    "networkPolicy.ingressNamespace": "ingress",
    "networkPolicy.egress": [{"ports": [{"port": 443}]}],
    "serviceMonitor.enabled": True,
    "prometheusRule.enabled": True,
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"example.org/c": "d"},
}


def helm(*words):
    return subprocess.run([TOOLS / "helm", *map(str, words)], capture_output=True, text=True,
                          env={**os.environ, "HELM_CONFIG_HOME": "/nonexistent"})


def values_file(folder, values):
    nested = {}
    for name, value in values.items():
        place = nested
        *outer, last = name.split(".")
        for one in outer:
            place = place.setdefault(one, {})
        place[last] = value
    path = folder / "values.yaml"
    path.write_text(json.dumps(nested))
    return path


def render(folder, values, release="foldback"):
    done = helm("template", release, CHART, "--values", values_file(folder, values))
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(rendered, kind):
    return [one for one in rendered if one["kind"] == kind]


def pod_of(rendered):
    return of_kind(rendered, "StatefulSet")[0]["spec"]["template"]["spec"]


ALL = [{}, REPLICAS, MORE, {**REPLICAS, **MORE}, {"firstToken": False, "networkPolicy.enabled": False}]


@pytest.mark.parametrize("values", ALL, ids=["usual", "replicas", "more", "everything", "less"])
def test_lint_and_schemas(values, tmp_path):
    done = helm("lint", "--strict", CHART, "--values", values_file(tmp_path, values))
    assert done.returncode == 0 and "[WARNING]" not in done.stdout, done.stdout
    rendered = render(tmp_path, values)
    for one in rendered:
        if one["apiVersion"].startswith("monitoring.coreos.com"):
            continue  # its schema is not Kubernetes' own
        for version in ("1.29", "1.33"):
            kubernetes_validate.validate(one, version, strict=True)
    assert len({(one["kind"], one["metadata"]["name"]) for one in rendered}) == len(rendered)


def test_a_chart_that_is_wrong_is_found(tmp_path):
    """The checks above can fail."""
    rendered = render(tmp_path, {})
    rendered[0]["spec"]["nonsense"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(rendered[0], "1.29", strict=True)


def test_the_same_as_the_plain_manifests(tmp_path):
    """With the usual values, but for labels, and the first token's script, which knows of replicas."""
    plain = {one["kind"]: one for one in manifests()}
    for one in render(tmp_path, {}):
        other = plain.pop(one["kind"])
        for each in (one, other):
            each["metadata"].pop("labels", None)
            each["spec"].pop("selector", None)
            each["spec"].pop("podSelector", None)
        if one["kind"] == "StatefulSet":
            for each in (one, other):
                each["spec"]["template"]["metadata"].pop("labels")
                pod = each["spec"]["template"]["spec"]
                pod["initContainers"][0].pop("args")
                for container in pod["initContainers"] + pod["containers"]:
                    container.pop("imagePullPolicy", None)
                    container.pop("envFrom", None)
        if one["kind"] == "Service":
            one["spec"].pop("type")
        assert one == other
    assert not plain


def test_arguments_are_options_of_the_service(tmp_path):
    for values in ALL:
        container = pod_of(render(tmp_path, values))["containers"][0]
        assert container["args"][0] == "serve" and options_in(container["args"]) <= serve_options()
        assert all(isinstance(word, str) for word in container["args"])


def test_replicas_share_a_database_and_a_bucket(tmp_path):
    rendered = render(tmp_path, REPLICAS)
    pod = pod_of(rendered)
    for container in pod["initContainers"] + pod["containers"]:
        environment = {one["name"]: one for one in container["env"]}
        assert environment["FOLDBACK_STORE"]["value"] == REPLICAS["postgresql.url"]
        assert environment["PGPASSWORD"]["valueFrom"]["secretKeyRef"] == {"name": "database", "key": "password"}
        assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    arguments = pod["containers"][0]["args"]
    given = dict(zip(arguments, arguments[1:]))
    assert given["--blobs"] == "s3://bucket/prefix" and given["--blobs-endpoint"] == "https://s3.example.org:9000"
    assert given["--blobs-redirect"] == "on" and given["--blobs-cache"] == "4G" and given["--blobs-region"] == "eu-central-1"
    assert of_kind(rendered, "PodDisruptionBudget") and of_kind(rendered, "Service")[0]["spec"]["sessionAffinity"] == "ClientIP"
    ports = {port["port"] for rule in of_kind(rendered, "NetworkPolicy")[0]["spec"]["egress"] for port in rule["ports"]}
    assert ports == {53, 5432, 9000}


def test_what_cannot_work_is_refused(tmp_path):
    for values, said in (
        ({"replicas": 2}, "more than one needs postgresql.url and blobs.url"),
        ({"replicas": 2, "postgresql.url": "postgresql://a@b/c"}, "more than one needs postgresql.url and blobs.url"),
        ({"blobs.redirect": True}, "go with blobs.url"),
        ({"postgresql.url": "postgresql://me:password@db/foldback"}, "postgresql"),
        ({"blobs.url": "https://bucket"}, "blobs"),
        ({"replica": 2}, "replica"),
        ({"options": "--workers 3"}, "options"),
    ):
        done = helm("template", "x", CHART, "--values", values_file(tmp_path, values))
        assert done.returncode and said in done.stderr, (values, done.stderr)


def test_names_follow_the_release(tmp_path):
    names = {one["metadata"]["name"] for one in render(tmp_path, {}, "production")}
    assert names == {"production-foldback"}
    service = of_kind(render(tmp_path, {}, "production"), "StatefulSet")[0]["spec"]
    assert service["selector"]["matchLabels"].items() <= service["template"]["metadata"]["labels"].items()


def test_the_operator_gets_the_same_rules(tmp_path):
    rendered = render(tmp_path, {"serviceMonitor.enabled": True, "prometheusRule.enabled": True})
    assert of_kind(rendered, "PrometheusRule")[0]["spec"] == {"groups": alerts()}
    monitor, plain = of_kind(rendered, "ServiceMonitor")[0], yaml.safe_load((MONITORING / "servicemonitor.yaml").read_text())
    assert monitor["spec"]["jobLabel"] == plain["spec"]["jobLabel"]
    assert {**plain["spec"]["endpoints"][0], **monitor["spec"]["endpoints"][0]} == plain["spec"]["endpoints"][0]
    for service in of_kind(render(tmp_path, MORE), "Service"):
        assert service["metadata"]["labels"]["app.kubernetes.io/name"] == "foldback"
        assert (service["spec"].get("type", "ClusterIP") == "ClusterIP"
                or "metrics" not in {one["name"] for one in service["spec"]["ports"]})


def test_the_memory_limit_is_that_of_the_manifests(tmp_path):
    limit = pod_of(render(tmp_path, {}))["containers"][0]["resources"]["limits"]["memory"]
    of_options = bytes_of(serve_default("--cache")) + bytes_of(serve_default("--max-body-memory"))
    assert bytes_of(limit) > of_options


def test_its_version_is_that_of_the_program():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.split()[1]
    assert chart["version"] == chart["appVersion"] == version


def test_it_can_be_packed(tmp_path):
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    names = subprocess.run(["tar", "-tzf", next(tmp_path.glob("*.tgz"))], capture_output=True, text=True).stdout.split()
    assert "foldback/alerts.yaml" in names and "foldback/values.schema.json" in names
    packed = helm("template", "x", next(tmp_path.glob("*.tgz")), "--set", "prometheusRule.enabled=true")
    assert packed.returncode == 0 and "FoldbackDown" in packed.stdout


@pytest.mark.parametrize("folder", ["deploy/kubernetes", "deploy/kubernetes/monitoring"])
def test_kustomize_renders_the_plain_manifests(folder):
    done = subprocess.run([TOOLS / "kubectl", "kustomize", DEPLOY.parent / folder], capture_output=True, text=True)
    assert done.returncode == 0 and list(yaml.safe_load_all(done.stdout)), done.stderr
