"""What deploy/ holds is what systemd, Kubernetes, Docker and readers of a bill of materials take, and says what we promise."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BINARY = ROOT / os.environ["FOLDBACK_BINARY"]
UNIT = DEPLOY / "systemd" / "foldback.service"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def manifests():
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "foldback.yaml").read_text()))


def serve_options():
    text = subprocess.run([BINARY, "serve", "--help"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"--[a-z-]+", text))


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


def test_the_unit_is_installed_where_the_program_is(tmp_path):
    make = ["make", "-s", "install", f"BUILD={os.environ['FOLDBACK_BINARY'].rsplit('/', 1)[0]}"]
    subprocess.run([*make, f"DESTDIR={tmp_path}", "prefix=/usr"], check=True, cwd=ROOT, capture_output=True)
    assert "ExecStart=/usr/bin/foldback " in (tmp_path / "usr/lib/systemd/system/foldback.service").read_text()
    assert os.access(tmp_path / "usr/bin/foldback", os.X_OK)


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


# ---------------------------------------------------------------------------------------------------------------- Docker


def test_the_image_has_every_library_that_the_binary_names():
    """The packages of the second stage own all that the binary is linked to; theirs come with them."""
    named = re.findall(r"NEEDED\s+(\S+)", subprocess.run(["objdump", "-p", BINARY], capture_output=True, text=True).stdout)
    packages = re.search(r"run\) echo \"(.*?)\"", (DEPLOY / "install-deps.sh").read_text())[1].split()
    owned = subprocess.run(["dpkg-query", "-L", *packages, "libc6"], capture_output=True, text=True).stdout
    assert named and [name for name in named if f"/{name}\n" not in owned] == []


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
    assert {"libmicrohttpd12", "libjansson4", "libsqlite3-0", "libssl3", "libc6"} <= names
    assert all(part["hashes"] for component in bill["components"] for part in component["components"])
