"""The files of Docker Compose say what Compose takes, start foldback with options that it has, and find the files they name."""

import json
import os
import re
import subprocess

import pytest
import yaml
from compose_spec import PyCompose
from test_deploy import BINARY, DEPLOY, DOCKERFILE, alerts, options_in, serve_options

FOLDER = DEPLOY / "compose"
FILES = ["compose.yaml", "scale.yaml"]


def merged(*names):
    """As Compose does it, as far as these files need it: members of services one by one, lists and scalars replaced,
    environment and depends_on joined."""
    whole = {"services": {}, "volumes": {}}
    for name in names:
        one = yaml.safe_load((FOLDER / name).read_text())
        whole["volumes"].update(one.get("volumes", {}))
        for service, members in one["services"].items():
            there = whole["services"].setdefault(service, {})
            for member, value in members.items():
                joins = isinstance(value, dict) and isinstance(there.get(member), dict)
                there[member] = {**there[member], **value} if joins else value
    return whole


@pytest.mark.parametrize("names", [FILES[:1], FILES], ids=["one", "both"])
def test_compose_takes_it(names):
    whole = merged(*names)
    assert sorted(PyCompose.from_yaml(yaml.safe_dump(whole)).service_names()) == sorted(whole["services"])
    for service in whole["services"].values():
        assert set(service.get("depends_on", {})) <= set(whole["services"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (FOLDER / source).is_file() if source.startswith(".") else source in whole["volumes"], volume


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_valid_by_itself(name):
    PyCompose.from_yaml((FOLDER / name).read_text())


def test_compose_refuses_what_is_wrong():
    with pytest.raises(ValueError):
        PyCompose.from_yaml((FOLDER / "compose.yaml").read_text().replace("restart: unless-stopped", "restart: perhaps"))


@pytest.mark.parametrize("names", [FILES[:1], FILES], ids=["one", "both"])
def test_foldback_is_started_with_options_that_it_has(names):
    service = merged(*names)["services"]["foldback"]
    assert service["command"][0] == "serve" and options_in(service["command"]) <= serve_options()
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["volumes"] == ["data:/data"]
    assert re.search("^VOLUME /data$", DOCKERFILE, re.M)
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.split()[1]
    assert service["image"] == merged(*names)["services"]["token"]["image"] == f"foldback:{version}"


def test_nothing_is_reached_from_beyond_this_machine():
    for service in merged(*FILES)["services"].values():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))


def test_no_password_is_in_the_files():
    for name in FILES:
        for key, value in re.findall(r"(\w*(?:PASSWORD|SECRET|KEY)\w*): (.+)$", (FOLDER / name).read_text(), re.M):
            assert value.startswith("${"), key


def test_prometheus_and_grafana_find_what_they_need():
    whole = merged("compose.yaml")["services"]
    prometheus = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    job = prometheus["scrape_configs"][0]
    assert f'job="{job["job_name"]}"' in alerts()[0]["rules"][0]["expr"], "the job that the alerts name"
    host, port = job["static_configs"][0]["targets"][0].split(":")
    command = whole[host]["command"]
    assert command[command.index("--metrics-listen") + 1].endswith(f":{port}")
    mounted = {one.split(":")[1]: one.split(":")[0] for service in whole.values() for one in service["volumes"]}
    assert f"/etc/prometheus/{prometheus['rule_files'][0]}" in mounted
    source = yaml.safe_load((FOLDER / "grafana/datasources.yaml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090" and source["type"] == "prometheus"
    provider = yaml.safe_load((FOLDER / "grafana/dashboards.yaml").read_text())["providers"][0]
    assert any(place.startswith(provider["options"]["path"] + "/") and place.endswith(".json") for place in mounted)
    dashboard = json.loads((DEPLOY / "monitoring/dashboard.json").read_text())
    assert dashboard["templating"]["list"][0]["type"] == "datasource"


def test_the_first_token(tmp_path):
    """The one-shot service's script: on an empty folder, again, and while a service holds the folder."""
    script = merged("compose.yaml")["services"]["token"]["command"][0]
    script = script.replace("$$", "$").replace("/data", str(tmp_path / "data"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "foldback").symlink_to(BINARY)
    (tmp_path / "data").mkdir()
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    def run():
        subprocess.run(["sh", "-ec", script], check=True, env=environment)
        return (tmp_path / "data" / "first-token.json").read_text()

    first = run()
    assert json.loads(first)["scope"] == "admin" and run() == first
    with subprocess.Popen([BINARY, "serve", "--data", tmp_path / "data/store", "--listen", "127.0.0.1:0"],
                          stdout=subprocess.PIPE) as service:
        try:
            assert service.stdout.readline()
            assert run() == first
        finally:
            service.terminate()
