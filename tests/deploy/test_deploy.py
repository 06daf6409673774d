"""What deploy/ holds is what systemd, Kubernetes, Docker and readers of a bill of materials take, and says what we promise."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request

import kubernetes_validate
import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BINARY = ROOT / os.environ["FOLDBACK_BINARY"]
MONITORING = DEPLOY / "kubernetes" / "monitoring"
UNIT = DEPLOY / "systemd" / "foldback.service"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def manifests():
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "foldback.yaml").read_text()))


def serve_help():
    return subprocess.run([BINARY, "serve", "--help"], check=True, capture_output=True, text=True).stdout


def serve_options():
    return set(re.findall(r"--[a-z-]+", serve_help()))


def serve_default(name):
    return re.search(rf"^ +{name}(?: \S+)? {{2,}}.*\((\S+)\)$", serve_help(), re.M)[1]


def bytes_of(text):
    """4G, 512M, 16Gi."""
    number, unit = re.fullmatch(r"(\d+)([KMG]?)i?", text).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def options_in(words):
    return {word for word in words if word.startswith("--")}


# --------------------------------------------------------------------------------------------------------------- systemd


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_unit_exposes_little():
    """systemd's own measure: 0 is nothing, 10 everything. Up to 1.5 is what we promise."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", UNIT], capture_output=True, text=True
    )
    assert float(re.search(r"exposure level for foldback.service: ([0-9.]+)", done.stdout)[1]) <= 1.5, done.stdout


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(tmp_path):
    """With a program and a manual page that are there, it has nothing to say."""
    text = UNIT.read_text().replace("/usr/local/bin/foldback", str(BINARY))
    text = re.sub("^Documentation=.*\n", "", text, flags=re.M)
    (tmp_path / "foldback.service").write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / "foldback.service"], capture_output=True, text=True)
    assert done.returncode == 0 and "foldback.service" not in done.stderr, done.stderr


def test_the_unit_starts_the_service_with_options_that_it_has():
    command = re.search("^ExecStart=(.*)$", UNIT.read_text(), re.M)[1].split()
    assert command[:2] == ["/usr/local/bin/foldback", "serve"] and options_in(command) <= serve_options()


def unit_values(name):
    return re.findall(f"^{name}=(.*)$", UNIT.read_text(), re.M)


def test_the_unit_allows_what_the_documents_tell_to_do():
    """docs/access.md's TLS example and --metrics-listen: the ports, and files that only root may read."""
    text = (ROOT / "docs" / "access.md").read_text()
    ports = re.findall(r"--(?:metrics-)?listen \S+?:(\d+)", text) + [re.search(r"127.0.0.1:(\d+)", serve_help())[1]]
    assert {"8080", "8443", "9464"} <= set(ports)
    assert {f"tcp:{port}" for port in ports} <= set(unit_values("SocketBindAllow"))
    loaded = dict(value.split(":", 1) for value in unit_values("LoadCredential"))
    defaults = {value.split(":", 1)[0] for value in unit_values("SetCredential")}
    used = re.findall(r"/run/credentials/foldback\.service/(\S+?)[\"\s]", text)
    assert len(used) == 2 and set(used) == set(loaded), "what the document names is loaded"
    assert set(loaded) == defaults, "a file that is not there must not keep the service from starting"
    assert all(path in text for path in loaded.values())


def test_the_unit_is_installed_where_the_program_is(tmp_path):
    make = ["make", "-s", "install", f"BUILD={os.environ['FOLDBACK_BINARY'].rsplit('/', 1)[0]}"]
    subprocess.run([*make, f"DESTDIR={tmp_path}", "prefix=/usr"], check=True, cwd=ROOT, capture_output=True)
    assert "ExecStart=/usr/bin/foldback " in (tmp_path / "usr/lib/systemd/system/foldback.service").read_text()
    assert os.access(tmp_path / "usr/bin/foldback", os.X_OK)


def test_every_page_and_picture_of_the_documentation_is_installed(tmp_path):
    make = ["make", "-s", "install", f"BUILD={os.environ['FOLDBACK_BINARY'].rsplit('/', 1)[0]}"]
    subprocess.run([*make, f"DESTDIR={tmp_path}", "prefix=/usr"], check=True, cwd=ROOT, capture_output=True)
    installed = tmp_path / "usr/share/doc/foldback/docs"
    for path in (ROOT / "docs").rglob("*"):
        assert path.is_dir() or (installed / path.relative_to(ROOT / "docs")).read_bytes() == path.read_bytes(), path


# ------------------------------------------------------------------------------------------------------------ Kubernetes


def test_kubernetes_takes_the_manifests():
    assert [manifest["kind"] for manifest in manifests()] == ["StatefulSet", "Service", "NetworkPolicy"]
    for manifest in manifests():
        kubernetes_validate.validate(manifest, "1.29", strict=True)


def test_pods_are_locked_up():
    pod = manifests()[0]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False and pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["initContainers"] + pod["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]} and "memory" in container["resources"]["limits"]
    policy = manifests()[2]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"] and policy["egress"] == [] and policy["ingress"][0]["from"]


def test_the_memory_limit_fits_the_options():
    """Everything that the service may hold at once, by its options: those that the manifest gives, or their defaults."""
    service = manifests()[0]["spec"]["template"]["spec"]["containers"][0]
    given = dict(zip(service["args"], service["args"][1:]))

    def value(name):
        return given.get(name) or serve_default(name)

    of_options = bytes_of(value("--cache")) + bytes_of(value("--max-body-memory"))
    of_options += int(value("--max-evaluations")) * bytes_of(value("--evaluation-memory"))
    graphs = 2 << 30  # one of --max-nodes at work, and the process itself
    limit = bytes_of(service["resources"]["limits"]["memory"])
    assert of_options + graphs <= limit <= 2 * (of_options + graphs)


def test_prometheus_gets_the_metrics_and_nothing_else():
    """The port that needs no token is open to it, by the manifests' own words: annotations, ServiceMonitor, Service, policy."""
    workload, service, policy = manifests()
    template = workload["spec"]["template"]
    container = template["spec"]["containers"][0]
    listen = container["args"][container["args"].index("--metrics-listen") + 1]
    port = int(listen.rsplit(":", 1)[1])
    assert {"name": "metrics",
            "containerPort": port}.items() <= next(one for one in container["ports"] if one["name"] == "metrics").items()
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"}
    assert {"name": "metrics", "port": port, "targetPort": "metrics"} in service["spec"]["ports"]
    rules = {rule["ports"][0]["port"]: rule["from"] for rule in policy["spec"]["ingress"]}
    assert set(rules) == {"http", "metrics"} and all(len(rule["ports"]) == 1 for rule in policy["spec"]["ingress"])
    assert list(rules["metrics"][0]) == ["namespaceSelector"] and list(rules["http"][0]) == ["podSelector"]
    monitor = yaml.safe_load((MONITORING / "servicemonitor.yaml").read_text())
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [(one["port"], one["path"]) for one in monitor["spec"]["endpoints"]] == [("metrics", "/metrics")]
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "foldback", "the job that the alerts name"
    resources = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())["resources"]
    assert sorted(resources) == sorted(path.name for path in MONITORING.glob("*.yaml") if path.name != "kustomization.yaml")


def test_the_probes_are_routes_and_the_arguments_are_options():
    pod = manifests()[0]["spec"]["template"]["spec"]
    service = pod["containers"][0]
    described = (ROOT / "openapi.yaml").read_text()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert f"\n  {service[probe]['httpGet']['path']}:\n" in described
    assert service["args"][0] == "serve" and options_in(service["args"]) <= serve_options()


def test_the_first_token_is_made_once(tmp_path):
    """The init container's script, on a folder of ours."""
    container = manifests()[0]["spec"]["template"]["spec"]["initContainers"][0]
    assert container["command"] == ["sh", "-ec"]
    script = container["args"][0].replace("/data", str(tmp_path / "data"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "foldback").symlink_to(BINARY)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    (tmp_path / "data").mkdir()
    found = set()
    for _ in range(2):
        subprocess.run(["sh", "-ec", script], check=True, env=environment)
        found.add((tmp_path / "data" / "first-token.json").read_text())
    token = json.loads(found.pop())
    assert not found and token["scope"] == "admin" and re.fullmatch(r"fbt_[A-Za-z0-9_-]{43}", token["token"])
    assert (tmp_path / "data" / "first-token.json").stat().st_mode & 0o777 == 0o600


def test_one_image_everywhere():
    pod = manifests()[0]["spec"]["template"]["spec"]
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.split()[1]
    images = {container["image"] for container in pod["initContainers"] + pod["containers"]}
    assert images == {f"foldback:{version}"}
    kustomization = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    assert kustomization["images"] == [{"name": "foldback", "newTag": version}]


# ------------------------------------------------------------------------------------------------------------ monitoring


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """{metric: names of its labels}, of a service that has done a little of everything, as Prometheus gets them."""
    folder = tmp_path_factory.mktemp("exported")
    command = [BINARY, "serve", "--data", folder / "data", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            server, metrics = (process.stdout.readline().split()[-1] for _ in range(2))
            toy = (ROOT / "tests/fixtures/toy/graph.json").read_bytes()
            passes = "pass=MergeLinears&pass=FuseBatchNorm2dInConv2d"
            request = urllib.request.Request(f"{server}/v1/optimize?{passes}", toy, {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=600).read()
            text = ""
            while "foldback_http_requests_total{" not in text:  # a request is counted when its answer has been sent
                text = urllib.request.urlopen(metrics, timeout=600).read().decode()
        finally:
            process.terminate()
    found = {"up": {"instance", "job"}}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.M):
        found.setdefault(name, {"instance", "job"}).update(re.findall(r'(\w+)="', labels))
    (folder / "metrics").write_text(text)
    return found, folder / "metrics"


KEYWORDS = {"sum", "by", "rate", "increase", "changes", "histogram_quantile", "topk", "absent", "or", "ignoring"}


def check_expression(expression, exported):
    """Every metric and label in it is one that the service exports."""
    matchers = re.findall(r"(\w+)\{([^}]*)\}", expression)
    for metric, labels in matchers:
        assert metric in exported, (metric, expression)
        assert set(re.findall(r"(\w+)\s*[=!]~?", labels)) <= exported[metric], expression
    known = set().union(*exported.values()) | KEYWORDS
    rest = re.sub(r"\{[^}]*\}|\[[^]]*\]|[0-9.]+e?[0-9]*", " ", expression)
    assert set(re.findall(r"[a-z_]\w*", rest)) <= known | set(exported), expression
    return {metric for metric, _ in matchers}


def alerts():
    return yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())["groups"]


def test_alerts_name_what_there_is(exported):
    for rule in alerts()[0]["rules"]:
        assert check_expression(rule["expr"], exported[0]), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"} and rule["labels"]["severity"] in ("warning", "critical")
    for test in yaml.safe_load((ROOT / "tests/deploy/alerts.test.yaml").read_text())["tests"]:
        for series in test["input_series"]:
            check_expression(series["series"], exported[0])


def test_the_dashboard_names_what_there_is(exported):
    dashboard = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    shown = {metric for panel in panels for one in panel["targets"] for metric in check_expression(one["expr"], exported[0])}
    for annotation in dashboard["annotations"]["list"]:
        check_expression(annotation["expr"], exported[0])
    assert len(shown) > 25 and len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    cells = [(x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) == 23, "panels lie over one another"
    for variable in dashboard["templating"]["list"]:
        query = variable["query"]
        if variable["type"] == "query":
            assert re.search(r"label_values\((\w+)", query["query"])[1] in exported[0]


def test_the_operator_gets_the_same_alerts():
    rule = yaml.safe_load((MONITORING / "prometheusrule.yaml").read_text())
    assert rule["kind"] == "PrometheusRule" and rule["spec"] == {"groups": alerts()}


def test_each_alert_is_tested_both_ways():
    tests = {one["name"]: one for one in yaml.safe_load((ROOT / "tests/deploy/alerts.test.yaml").read_text())["tests"]}
    names = {rule["alert"] for rule in alerts()[0]["rules"]}
    fired = tests["nothing is"]["promql_expr_test"][0]["exp_samples"]
    assert {re.search('"(.*)"', one["labels"])[1] for one in fired} == names
    assert {one["alertname"] for one in tests["all is well"]["alert_rule_test"]} == names


PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed")
@pytest.mark.parametrize("words", [("check", "rules", "deploy/monitoring/alerts.yaml"),
                                   ("test", "rules", "tests/deploy/alerts.test.yaml")])
def test_promtool_agrees(words):
    done = subprocess.run([PROMTOOL, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "SUCCESS" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed")
def test_promtool_takes_the_metrics(exported):
    done = subprocess.run([PROMTOOL, "check", "metrics"], stdin=exported[1].open(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------------------------------------------------------- Docker


def test_the_image_has_every_library_that_the_binary_names():
    """The packages of the second stage own all that it loads, at once or later; theirs come with them."""
    named = [name.decode() for name in re.findall(rb"lib[\w.+-]+\.so\.\d+", BINARY.read_bytes())]
    packages = re.search(r"run\) echo \"(.*?)\"", (DEPLOY / "install-deps.sh").read_text())[1].split()
    owned = subprocess.run(["dpkg-query", "-L", *packages, "libc6"], capture_output=True, text=True).stdout
    assert "libopenblas.so.0" in named and [name for name in named if f"/{name}\n" not in owned] == []


def test_the_image_runs_as_nobody_and_is_looked_after():
    last = DOCKERFILE.rsplit("FROM ", 1)[1]
    assert re.search("^USER 65532:65532$", last, re.M) and "HEALTHCHECK" in last and "VOLUME /data" in last
    command = json.loads(re.search(r"^CMD (\[.*\])$", last, re.M)[1])
    assert command[0] == "serve" and options_in(command) <= serve_options()


# ----------------------------------------------------------------------------------------------------- bill of materials


def test_the_bill_of_materials(tmp_path):
    written = [
        subprocess.run([sys.executable, DEPLOY / "sbom.py", BINARY, "1.2.3"], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert written[0] == written[1]
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(written[0]) is None
    bill = json.loads(written[0])
    names = {component["name"] for component in bill["components"]}
    needed = {"libmicrohttpd12", "libjansson4", "libsqlite3-0", "libssl3", "libopenblas0-serial", "libcurl4", "libpq5", "libc6"}
    assert needed <= names
    assert all(part["hashes"] for component in bill["components"] for part in component["components"])
