"""Models and their versions: immutable names for graphs."""

import json

import documents
import pytest
from documents import branches, counts, every_item
from test_http import is_problem
from test_runs import optimize


def put_version(service, model, version, body=None, **options):
    if body is None:
        body = {"graph": branches(2, version)}
    return service.request("PUT", f"/v1/models/{model}/versions/{version}", body, **options)


def test_versions_of_graphs_and_runs(shared):
    graph = branches(2, "of graphs and runs")
    given = put_version(shared, "kinds", "document", {"graph": graph, "note": "as it came"})
    assert given.status == 201 and given.headers["location"] == "/v1/models/kinds/versions/document"
    document = given.json()
    assert set(document) == {"model", "version", "graph", "run", "note", "created"}
    assert (document["model"], document["version"], document["run"]) == ("kinds", "document", None)
    assert document["note"] == "as it came"
    assert shared.get(given.headers["location"]).json() == document

    by_id = put_version(shared, "kinds", "id", {"graph": document["graph"]})
    assert by_id.status == 201 and by_id.json()["graph"] == document["graph"]
    bare = put_version(shared, "kinds", "bare", graph)
    assert bare.status == 201 and bare.json()["graph"] == document["graph"]
    run = optimize(shared, document["graph"], ["MergeLinears"])
    of_run = put_version(shared, "kinds", "run", {"run": run["id"]})
    assert of_run.status == 201
    assert of_run.json()["run"] == run["id"] and of_run.json()["graph"] == run["result"]


def test_a_version_never_changes(service):
    first = put_version(service, "m", "v1", {"graph": branches(2), "note": "one"})
    again = put_version(service, "m", "v1", {"graph": first.json()["graph"], "note": "two"})
    assert again.status == 200 and again.json() == first.json() and "location" not in again.headers
    stored = counts(service)
    is_problem(put_version(service, "m", "v1", {"graph": branches(3)}), 409, "version-exists")
    assert counts(service) == stored  # the refused graph was not stored
    assert service.get("/v1/models/m/versions/v1").json() == first.json()
    assert put_version(service, "other", "v1", {"graph": branches(3)}).status == 201
    service.restart()
    assert service.get("/v1/models/m/versions/v1").json() == first.json()


def test_the_graph_of_a_version(shared):
    version = put_version(shared, "pulled", "v1", {"graph": json.loads(documents.document("bert-tiny"))}).json()
    graph = shared.get("/v1/models/pulled/versions/v1/graph")
    assert graph.body == shared.get(f"/v1/graphs/{version['graph']}").body
    assert version["graph"] == documents.ids("bert-tiny")[0]
    assert graph.headers["etag"] == f'"{version["graph"]}"'
    assert graph.headers["content-location"] == f"/v1/graphs/{version['graph']}"
    head = shared.request("HEAD", "/v1/models/pulled/versions/v1/graph")
    assert head.status == 200 and head.body == b"" and head.headers["etag"] == graph.headers["etag"]
    assert int(head.headers["content-length"]) == len(graph.body)
    known = shared.get("/v1/models/pulled/versions/v1/graph", headers={"If-None-Match": graph.headers["etag"]})
    assert known.status == 304 and known.body == b"" and known.headers["etag"] == graph.headers["etag"]


def test_lists(service):
    assert service.get(service.get("/").json()["models"]).json() == {"items": []}
    for model, versions in (("a", 5), ("b", 1), ("c", 2)):
        for i in range(versions):
            assert put_version(service, model, f"v{i}").status == 201
    service.request("PUT", "/v1/models/a/aliases/live", {"version": "v0"}, headers={"If-None-Match": "*"})
    models = every_item(service, "/v1/models", limit=1)
    assert [(one["name"], one["versions"], one["aliases"]) for one in models] == [("c", 2, 0), ("b", 1, 0), ("a", 5, 1)]
    assert service.get("/v1/models/a").json() == models[-1]
    names = [one["version"] for one in every_item(service, "/v1/models/a/versions", limit=2)]
    assert names == ["v4", "v3", "v2", "v1", "v0"]

    # a page token goes on where it was, and belongs to its list
    page = service.get("/v1/models/a/versions?limit=2").json()
    put_version(service, "a", "v5")
    rest = service.get("/v1/models/a/versions", raw_query={"page_token": page["next_page_token"]}).json()
    assert [one["version"] for one in rest["items"]] == ["v2", "v1", "v0"]
    for path in ("/v1/models/b/versions", "/v1/models", "/v1/models/a/aliases", "/v1/models/a/aliases/live/history"):
        problem = is_problem(service.get(path, raw_query={"page_token": page["next_page_token"]}), 422, "bad-page-token")
        assert problem["parameter"] == "page_token"
        assert is_problem(service.get(path + "?limit=0"), 422)["parameter"] == "limit"
        is_problem(service.get(path + "?nonsense=1"), 422, "unknown-parameter")


def test_names(shared):
    graph = branches(2, "names")
    for name in ("a", "A.b-c_9", "...", "n" * 200, "v1%2E0"):
        assert put_version(shared, "names", name, {"graph": graph}).status == 201, name
        assert put_version(shared, name, "v1", {"graph": graph}).status == 201, name
    for name in ("a%20b", "%C3%A4", "a:b", "n" * 201, "a+b", "a@b", "~"):
        assert is_problem(put_version(shared, "names", name, {"graph": graph}), 422, "bad-name")["parameter"] == "version"
        assert is_problem(put_version(shared, name, "v1", {"graph": graph}), 422, "bad-name")["parameter"] == "model"
        is_problem(shared.get(f"/v1/models/{name}"), 404, "unknown-model")
    for name in ("a%2Fb", "..", "."):
        assert 400 <= put_version(shared, "names", name, {"graph": graph}).status < 500


@pytest.mark.parametrize(
    "body, status, code, pointer",
    [
        ("{", 400, None, None),
        ("[]", 422, "wrong-type", ""),
        ("{}", 422, "missing-member", "/graph"),
        ({"note": "alone"}, 422, "missing-member", "/graph"),
        ({"graph": 7}, 422, "wrong-type", "/graph"),
        ({"graph": None}, 422, "wrong-type", "/graph"),
        ({"graph": "sha256:0"}, 404, "unknown-graph", "/graph"),
        ({"graph": "x" * 1001}, 422, "graph-too-long", "/graph"),
        ({"run": "run_0"}, 404, "unknown-run", "/run"),
        ({"run": 7}, 422, "wrong-type", "/run"),
        ({"graph": "sha256:0", "run": "run_0"}, 422, "graph-and-run", "/run"),
        ({"graph": branches(), "run": "run_0"}, 422, "graph-and-run", "/run"),
        ({"graph": branches(), "labels": {}}, 422, "unknown-member", "/labels"),
        ({"graph": branches(), "note": 7}, 422, "wrong-type", "/note"),
        ({"graph": branches(), "note": "n" * 10001}, 422, "note-too-long", "/note"),
        ({"graph": {"format": "foldback.graph/1", "nodes": 1}}, 422, None, "/graph/nodes"),
        ({"format": "foldback.graph/1", "nodes": 1}, 422, None, "/nodes"),
        ('{"graph": "a", "graph": "b"}', 400, "duplicate-member", "/graph"),
    ],
)
def test_bad_versions(shared, body, status, code, pointer):
    problem = is_problem(put_version(shared, "bad", "v1", body), status, code)
    if pointer is not None:
        assert problem.get("pointer", "") == pointer
    is_problem(shared.get("/v1/models/bad"), 404, "unknown-model")


def test_unknown(shared):
    put_version(shared, "known", "v1")
    for path in ("", "/versions", "/versions/v1", "/versions/v1/graph", "/aliases", "/aliases/a", "/aliases/a/graph"):
        is_problem(shared.get("/v1/models/unknown" + path), 404, "unknown-model")
    for path in ("/versions/v2", "/versions/v2/graph"):
        is_problem(shared.get("/v1/models/known" + path), 404, "unknown-version")
    for path in ("/aliases/a", "/aliases/a/graph", "/aliases/a/history"):
        is_problem(shared.get("/v1/models/known" + path), 404, "unknown-alias")
    is_problem(shared.delete("/v1/models/unknown/versions/v1"), 404, "unknown-model")
    is_problem(shared.delete("/v1/models/known/versions/v2"), 404, "unknown-version")
    is_problem(shared.post("/v1/models/known/aliases/a/rollback"), 404, "unknown-alias")
    assert shared.request("PATCH", "/v1/models/known/versions/v1", {}).status == 405
    is_problem(put_version(shared, "known", "v2", b""), 400, "missing-body")


def test_what_is_in_use_is_not_deleted(service):
    for i in range(4):
        assert put_version(service, "m", f"v{i}").status == 201
    graphs = [service.get(f"/v1/models/m/versions/v{i}").json()["graph"] for i in range(4)]
    put_version(service, "m", "same", {"graph": graphs[0]})
    in_use = is_problem(service.delete(f"/v1/graphs/{graphs[0]}"), 409, "graph-in-use")
    assert in_use["versions"] == ["m/same", "m/v0"] and in_use["runs"] == [] and in_use["total"] == 2

    path = "/v1/models/m/aliases/live"
    alias = service.request("PUT", path, {"version": "v1"}, headers={"If-None-Match": "*"})
    alias = service.request("PUT", path, {"version": "v2"}, headers={"If-Match": alias.headers["etag"]})
    is_problem(service.delete("/v1/models/m/versions/v2"), 409, "version-in-use")
    is_problem(service.delete("/v1/models/m/versions/v1"), 409, "version-in-use")  # could be rolled back to
    assert service.delete("/v1/models/m/versions/v3").status == 204
    is_problem(service.get("/v1/models/m/versions/v3"), 404, "unknown-version")
    assert service.delete(f"/v1/graphs/{graphs[3]}").status == 204
    assert put_version(service, "m", "v3", {"graph": branches(3)}).status == 201  # the name is free again

    assert service.delete(path, headers={"If-Match": alias.headers["etag"]}).status == 204
    assert service.delete("/v1/models/m/versions/v2").status == 204
    assert service.delete("/v1/models/m/versions/v1").status == 204
    assert service.delete(f"/v1/graphs/{graphs[2]}").status == 204
    run = optimize(service, graphs[1], ["MergeLinears"])
    put_version(service, "m", "optimised", {"run": run["id"]})
    in_use = is_problem(service.delete(f"/v1/graphs/{run['result']}"), 409, "graph-in-use")
    assert in_use["versions"] == ["m/optimised"] and in_use["runs"] == [run["id"]]
