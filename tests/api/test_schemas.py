"""schema/*.schema.json by themselves: they are schemas, they know every fixture, and they refuse what is none."""

import copy
import json
import pathlib
import subprocess
import sys

import golden
import jsonschema
import pytest
from conftest import Answer, description
from documents import FIXTURES, NAMES, document

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {path.name: json.loads(path.read_text()) for path in sorted((ROOT / "schema").glob("*.schema.json"))}


def validator(name):
    resolver = jsonschema.RefResolver(name, FILES[name], store=FILES)
    return jsonschema.Draft202012Validator(FILES[name], resolver=resolver)


@pytest.mark.parametrize("name", FILES)
def test_schema(name):
    jsonschema.Draft202012Validator.check_schema(FILES[name])
    assert FILES[name]["$id"] == name and FILES[name]["title"] and FILES[name]["description"]
    for example in FILES[name].get("examples", []):
        validator(name).validate(example)


def check_graph(name, document, schema):
    errors = list(schema.iter_errors(document))
    assert not errors, (name, jsonschema.exceptions.best_match(iter(errors)))


@pytest.mark.heavy
def test_every_fixture_is_a_graph():
    schema = validator("graph.schema.json")
    graphs = {name: json.loads(document(name)) for name in NAMES}
    for archive, models in json.loads((FIXTURES / "archives/documents.json").read_text()).items():
        graphs |= {f"{archive}.pt2, {model}": graph for model, graph in models.items()}
    for name, graph in graphs.items():
        check_graph(name, graph, schema)
    assert len(graphs) >= 31


@pytest.mark.nightly
def test_every_golden_case_is_a_graph(service):
    """So is what the service makes of it, and this has the id that tests/golden/<Pass>/expected.diff says."""
    for rule in golden.RULES.values():
        service.post("/v1/transformations", rule)
    schema, expected, count = validator("graph.schema.json"), golden.ids(), 0
    for name in golden.names():
        source = golden.read(name)
        check_graph(name, source, schema)
        answer = service.post("/v1/optimize?include=graph", {"graph": source, "passes": golden.read(name, "passes")}).json()
        check_graph(name, answer["graph"], schema)
        if name in expected:
            assert answer["result"] == expected[name] or (expected[name] == "unchanged"
                                                          and answer["result"] == answer["source"]), name
            count += 1
    assert count == len(expected)


def changed(value, pointer, new):
    value = copy.deepcopy(value)
    at = value
    *path, last = pointer.split("/")[1:]
    for token in path:
        at = at[int(token) if isinstance(at, list) else token]
    at[int(last) if isinstance(at, list) else last] = new
    return value


@pytest.mark.parametrize(
    ("name", "pointer", "new"),
    [
        ("graph.schema.json", "/format", "foldback.graph/2"),
        ("graph.schema.json", "/nodes/1/args/0/$node", "1x"),
        ("graph.schema.json", "/nodes/1/op", "call"),
        ("graph.schema.json", "/nodes/2/target", "out"),
        ("graph.schema.json", "/modules", []),
        ("edits.schema.json", "/0/edit", "set_weight"),
        ("edits.schema.json", "/0/was", {"args/1": 8}),
        ("edits.schema.json", "/0/now", None),
        ("run.schema.json", "/id", "run_1"),
        ("run.schema.json", "/created", "yesterday"),
        ("run.schema.json", "/passes/0/exactness", "exact"),
        ("run.schema.json", "/passes/0/nodes", "truediv"),
        ("run.schema.json", "/lint", "failed"),
        ("problem.schema.json", "/status", 200),
        ("problem.schema.json", "/type", "unknown-pass"),
        ("alias.schema.json", "/etag", "17"),
        ("alias-entry.schema.json", "/action", "move"),
        ("version.schema.json", "/version", ".."),
        ("model.schema.json", "/versions", -1),
        ("pass.schema.json", "/version", 0),
    ],
)
def test_what_is_none(name, pointer, new):
    example = FILES[name]["examples"][0]
    assert not validator(name).is_valid(changed(example, pointer, new))


ROUTES = """
const fb_route fb_a_routes[] = {
    {.method = "GET", .pattern = "/a/{id}", .handler = get, .scope = FB_SCOPE_NONE, .query = "x," "y", .is_inline = 1},
    {.method = "PUT", .pattern = "/a/{id}", .handler = put, .scope = FB_SCOPE_WRITE, .body = FB_BODY_REQUIRED, .query = ""},
    {0},
};
const fb_route fb_unused_routes[] = {{.method = "GET", .pattern = "/not/joined", .scope = FB_SCOPE_NONE}, {0}};
static const fb_route *const tables[] = {fb_a_routes};
"""


def described():
    def parameter(name, where):
        return {"name": name, "in": where, "schema": {}}

    answers = {"200": {"description": "", "content": {"application/json": {}}}}
    get = {"parameters": [parameter("x", "query"), parameter("y", "query")], "responses": answers, "security": []}
    put = {"requestBody": {"required": True}, "responses": answers, "security": [{"token": ["write"]}, {}]}
    return {"paths": {"/a/{id}": {"parameters": [parameter("id", "path")], "get": get, "put": put}}}


@pytest.mark.parametrize(
    ("pointer", "new", "complaint"),
    [
        (None, None, None),
        ("/paths", {}, "PUT /a/{id} is a route, but openapi.yaml lacks it"),
        ("/paths/~1b", {"get": {"responses": {}}}, "GET ~1b is in openapi.yaml, but is not a route"),
        ("/paths/A/parameters", [], "path parameters"),
        ("/paths/A/get/parameters", [], "query parameters"),
        ("/paths/A/get/x-any-query", True, "query parameters"),
        ("/paths/A/put/requestBody", {}, "body"),
        ("/paths/A/get/requestBody", {"required": True}, "body"),
        ("/paths/A/get/responses", {"200": {"content": {"text/plain": {}}}}, "answers"),
        ("/paths/A/put/security", [{"token": ["read"]}, {}], "scope"),
        ("/paths/A/put/security", [], "scope"),
        ("/paths/A/get/security", [{"token": ["read"]}, {}], "scope"),
    ],
)
def test_routes_are_compared_at_build_time(tmp_path, pointer, new, complaint):
    document = {"paths": {"A": described()["paths"]["/a/{id}"]}}
    document = changed(document, pointer, new) if pointer else document
    if "A" in document["paths"]:
        document["paths"]["/a/{id}"] = document["paths"].pop("A")
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    command = [sys.executable, str(ROOT / "schema" / "tools" / "check_routes.py"), str(tmp_path / "openapi.json")]
    done = subprocess.run(command, input=ROUTES, capture_output=True, text=True)
    assert bool(done.returncode) == bool(complaint), done.stderr
    assert (complaint or "") in done.stderr


@pytest.mark.parametrize("name", ["Run", "Version", "Alias", "AliasEntry", "Model", "Problem", "Pass", "StoredGraph", "Index"])
def test_answers_may_have_no_other_members(name):
    """Clients must expect more members some day; the tests of this version must not."""
    reference = {"$ref": f"#/components/schemas/{name}"}
    schema = description().document["components"]["schemas"][name]
    example = schema.get("examples", [None])[0]
    if example is not None:
        description().check_value(reference, json.dumps(example).encode(), name)
    with pytest.raises(AssertionError, match="surprise"):
        description().check_value(reference, json.dumps({**(example or {}), "surprise": 1}).encode(), name)


def test_answers_that_are_not_described():
    good = json.dumps(FILES["alias.schema.json"]["examples"][0]).encode()
    path = "/v1/models/bert/aliases/production"
    kind = {"content-type": "application/json"}

    def answer(status, headers, body):
        return Answer(status, headers.items(), body)

    description().check("GET", path, answer(200, kind, good))
    for method, target, made in [
        ("GET", path, answer(202, kind, good)),
        ("GET", path, answer(200, {"content-type": "text/plain"}, good)),
        ("GET", path, answer(200, kind, b"{}")),
        ("GET", path, answer(304, kind, good)),
        ("HEAD", path, answer(200, kind, good)),
        ("GET", "/v1/strange", answer(200, kind, good)),
        ("GET", path, answer(404, {"content-type": "application/problem+json"}, problem("unknown-graph", 404))),
        ("GET", "/v1/strange", answer(418, {"content-type": "application/problem+json"}, problem("teapot", 418))),
    ]:
        with pytest.raises(AssertionError):
            description().check(method, target, made)
    description().check_raw(b"HTTP/1.1 200 OK\r\n\r\n")


def problem(code, status):
    value = {"type": f"/problems/{code}", "title": code, "status": status, "detail": "", "code": code}
    return json.dumps(value).encode()
