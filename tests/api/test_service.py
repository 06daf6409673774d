"""The service about itself: where to start, health, metrics, the API's description."""

import pathlib
import re

from documents import branches

ROOT = pathlib.Path(__file__).resolve().parents[2]
DESCRIPTION = (ROOT / "openapi.yaml").read_text()


def described():
    """path -> methods, from the description; it is laid out so that this needs no YAML."""
    found, path = {}, None
    for line in DESCRIPTION.split("\ncomponents:\n")[0].split("\npaths:\n")[1].splitlines():
        if match := re.fullmatch(r"  (/\S*):", line):
            path = match[1]
            found[path] = set()
        elif match := re.fullmatch(r"    (get|post|put|patch|delete):", line):
            found[path].add(match[1].upper())
    return found


def test_index(shared):
    index = shared.get("/").json()
    assert index["name"] == "foldback" and shared.url in index["start"][0]
    for link in ("passes", "graphs", "runs", "health", "metrics", "openapi"):
        assert shared.get(index[link]).status == 200


def test_description_is_served(shared):
    answer = shared.get("/openapi.yaml")
    assert answer.headers["content-type"] == "application/yaml"
    assert answer.body.decode() == DESCRIPTION


def test_every_route_is_described(shared):
    routes = (ROOT / "server" / "routes" / "routes.c").read_text()
    table = re.findall(r'\.method = "(\w+)",\s*\.pattern = "([^"]+)"', routes)
    assert len(table) > 15
    expected = {}
    for method, path in table:
        expected.setdefault(path, set()).add(method)
    assert described() == expected


def test_described_methods_are_allowed(shared):
    for path, methods in described().items():
        answer = shared.request("OPTIONS", path.replace("{", "").replace("}", ""))
        allowed = set(answer.headers["allow"].split(", ")) - {"HEAD", "OPTIONS"}
        assert allowed == methods, path


def test_references_lead_somewhere():
    for kind, name in re.findall(r"'#/components/(\w+)/(\w+)'", DESCRIPTION):
        section = re.search(rf"\n  {kind}:\n((?:    .*\n|\n)+)", DESCRIPTION)[1]
        assert re.search(rf"^    {name}:", section, re.M), (kind, name)


def test_health(shared):
    assert shared.get("/livez").json() == {"status": "live"}
    assert shared.get("/readyz").json() == {"status": "ready"}


def test_metrics(shared):
    shared.post("/v1/optimize", branches(), raw_query="pass=MergeLinears")
    answer = shared.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    assert answer.body.endswith(b"\n")
    for line in lines:
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? -?[0-9.e+-]+', line), line
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    for prefix in ("foldback_build_info", "foldback_http_", "foldback_store_", "foldback_cache_", "foldback_pass_applied_total"):
        assert any(line.startswith(prefix) for line in lines), prefix
