"""Graphs: stored once under the id of their content, found again, with their code, nodes and lineage."""

import hashlib
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import documents
import pytest
from conftest import of_a_file
from documents import branches, compact, counts, every_item
from test_http import is_problem

UNKNOWN = "sha256:" + "0" * 64


@of_a_file
def test_sql_names_what_a_pass_made(service):
    passes = ["MergeLinears", "FuseBiasInLinear"]
    runs = [service.post("/v1/optimize", {"graph": branches(count), "passes": passes}).json() for count in (2, 3)]
    database = sqlite3.connect(f"file:{service.data}/foldback.sqlite?mode=ro", uri=True)
    marked = """SELECT g.id, n.name FROM signatures s JOIN node_signatures n ON n.signature = s.id
        JOIN graphs g ON g.key = n.graph WHERE s.text = ? ORDER BY g.key, n.node"""
    for position in range(2):
        made = [(run["result"], name) for run in runs for name in run["passes"][position]["nodes"]]
        signature = runs[0]["passes"][position]["signature"]
        assert database.execute(marked, [signature]).fetchall() == made
        plan = " ".join(row[3] for row in database.execute("EXPLAIN QUERY PLAN " + marked, [signature]))
        assert "node_signatures_signature" in plan, plan


@pytest.mark.parametrize("name", documents.NAMES)
def test_fixture(shared, name):
    identity, structure = documents.ids(name)
    answer = shared.post("/v1/graphs", documents.document(name))
    assert answer.status in (200, 201), answer
    graph = answer.json()
    given = json.loads(documents.document(name))
    assert answer.headers["location"] == f"/v1/graphs/{identity}"
    assert (graph["id"], graph["structure"]) == (identity, structure)
    assert graph["name"] == given["name"]
    assert [graph[part] for part in ("nodes", "modules", "tensors")] == [
        len(given[part]) for part in ("nodes", "modules", "tensors")
    ]
    assert shared.post("/v1/graphs", documents.document(name)).status == 200

    stored = shared.get(f"/v1/graphs/{identity}")
    assert stored.status == 200
    assert len(stored.body) == graph["bytes"]
    assert "sha256:" + hashlib.sha256(stored.body).hexdigest() == identity
    assert shared.post("/v1/graphs", stored.body).json()["id"] == identity

    code = shared.get(f"/v1/graphs/{identity}/code")
    assert code.headers["content-type"] == "text/x-python; charset=utf-8"
    assert code.body.decode() == documents.code(name)


def test_what_many_ask_for_at_once(service):
    """One of them makes the text, and all get it, again and again, until the graph is deleted."""
    for round in range(8):
        identity = service.post("/v1/graphs", branches(100 + round)).json()["id"]
        path = f"/v1/graphs/{identity}"
        with ThreadPoolExecutor(8) as pool:
            got = [pool.submit(service.get, path + part) for part in ["", "/code"] * 12]
        documents, codes = ({answer.result().body for answer in got[part::2]} for part in range(2))
        assert ["sha256:" + hashlib.sha256(body).hexdigest() for body in documents] == [identity]
        assert len(codes) == 1 and b"def forward(" in codes.pop()
        assert service.delete(path).status == 204
        for part in ("", "/code"):
            is_problem(service.get(path + part), 404, "unknown-graph")


def test_new_and_known(service):
    first, second = service.post("/v1/graphs", branches()), service.post("/v1/graphs", branches())
    assert (first.status, second.status) == (201, 200)
    assert first.body == second.body
    assert counts(service) == (1, 0)


def test_etag_and_head(shared):
    identity = shared.post("/v1/graphs", branches()).json()["id"]
    path = f"/v1/graphs/{identity}"
    got, head = shared.get(path), shared.request("HEAD", path)
    assert got.headers["etag"] == f'"{identity}"'
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(got.body)))
    for tag in (f'"{identity}"', "*", f'"x", W/"{identity}"'):
        answer = shared.get(path, headers={"If-None-Match": tag})
        assert (answer.status, answer.body) == (304, b""), tag
    assert shared.get(path, headers={"If-None-Match": '"x"'}).status == 200
    assert shared.get(f"/v1/graphs/{UNKNOWN}", headers={"If-None-Match": f'"{UNKNOWN}"'}).status == 404
    tag = shared.get(path + "/code").headers["etag"]
    assert shared.get(path + "/code", headers={"If-None-Match": tag}).status == 304
    missing = f"/v1/graphs/{UNKNOWN}/code"
    for tag in ("*", tag.replace(identity, UNKNOWN)):
        assert shared.get(missing, headers={"If-None-Match": tag}).status == 404


def test_not_modified_has_the_headers_of_the_answer(shared):
    """A cache that is told 304 must still know that another client may want another coding."""
    path = "/v1/graphs/" + shared.post("/v1/graphs", branches(40)).json()["id"]
    for part in ("", "/code"):
        got = shared.get(path + part)
        known = shared.get(path + part, headers={"If-None-Match": got.headers["etag"]})
        assert (known.status, known.body) == (304, b"")
        for name in ("vary", "etag", "cache-control", "content-type"):
            assert known.headers[name] == got.headers[name], name
        assert got.headers["vary"] == "Accept-Encoding"


def test_unknown_graph(shared):
    for identity in (UNKNOWN, "sha256:abc", "nonsense"):
        for part in ("", "/code", "/nodes", "/lineage", "/nodes?pass=MergeLinears"):
            is_problem(shared.get(f"/v1/graphs/{identity}{part}"), 404, "unknown-graph")
        is_problem(shared.delete(f"/v1/graphs/{identity}"), 404, "unknown-graph")


def test_list(service):
    names = ["a", "b", "b", "c", "b"]
    made = [service.post("/v1/graphs", branches(2 + i, name)).json() for i, name in enumerate(names)]
    items = every_item(service, "/v1/graphs")
    assert [item["id"] for item in items] == [graph["id"] for graph in reversed(made)]
    assert {"id", "structure", "name", "nodes", "bytes", "created"} == set(items[0])
    assert [item["name"] for item in every_item(service, "/v1/graphs", [("name", "b")])] == ["b"] * 3
    one = service.get("/v1/graphs", raw_query={"structure": made[0]["structure"]}).json()
    assert [item["id"] for item in one["items"]] == [made[0]["id"]] and "next_page_token" not in one
    assert service.get("/v1/graphs?name=none").json() == {"items": []}

    token = service.get("/v1/graphs?limit=1").json()["next_page_token"]
    problem = is_problem(service.get("/v1/graphs", raw_query={"page_token": token, "name": "b"}), 422, "bad-page-token")
    assert problem["parameter"] == "page_token"
    for query in ("limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "colour=red", "page_token=x"):
        assert is_problem(service.get("/v1/graphs", raw_query=query), 422)["parameter"] in query


def test_same_structure_under_another_name(service):
    one, other = branches(2, "one"), branches(2, "other")
    other["metadata"] = {"who": "me"}
    other["tensors"][0]["digest"] = "sha256:" + "1" * 64
    first, second = service.post("/v1/graphs", one).json(), service.post("/v1/graphs", other).json()
    assert first["id"] != second["id"] and first["structure"] == second["structure"]
    assert len(every_item(service, "/v1/graphs", [("structure", first["structure"])])) == 2


def test_delete(service):
    free = service.post("/v1/graphs", branches(2, "free")).json()["id"]
    assert service.get(f"/v1/graphs/{free}/code").status == 200  # now it is decoded in memory, too
    assert service.delete(f"/v1/graphs/{free}").status == 204
    for part in ("", "/code", "/nodes"):
        is_problem(service.get(f"/v1/graphs/{free}{part}"), 404, "unknown-graph")
    is_problem(service.post("/v1/optimize", {"graph": free, "passes": ["DeepCopy"]}), 404, "unknown-graph")
    assert counts(service) == (0, 0)

    run = service.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears"]}).json()
    for identity in (run["source"], run["result"]):
        problem = is_problem(service.delete(f"/v1/graphs/{identity}"), 409, "graph-in-use")
        assert problem["runs"] == [run["id"]] and problem["total"] == 1
    assert counts(service) == (2, 1)


def test_nodes(service):
    run = service.post("/v1/optimize", {"graph": documents.branches(3), "passes": ["MergeLinears"]}).json()
    path = f"/v1/graphs/{run['result']}/nodes"
    stored = service.get(f"/v1/graphs/{run['result']}").json()["nodes"]
    everything = every_item(service, path)
    assert [item["name"] for item in everything] == [one["name"] for one in stored]
    assert [item["position"] for item in everything] == list(range(len(stored)))
    for item, one in zip(everything, stored):
        assert (item["op"], item["target"]) == (one["op"], one["target"])
        assert item.get("shape") == one["meta"].get("shape") and item.get("dtype") == one["meta"].get("dtype")
        assert item["transformations"] == one["meta"].get("transformations", [])

    signature = run["passes"][0]["signature"]
    marked = [item["name"] for item in everything if signature in item["transformations"]]
    assert marked == run["passes"][0]["nodes"] and marked
    for query in ({"signature": signature}, {"pass": "MergeLinears"}, {"pass": "MergeLinears", "signature": signature}):
        assert [item["name"] for item in service.get(path, raw_query=query).json()["items"]] == marked, query
    assert every_item(service, path, [("pass", "FuseBiasInLinear")]) == []
    assert every_item(service, path, [("signature", "0" * 32)]) == []
    getitems = every_item(service, path, [("target", "operator.getitem")], limit=1)
    assert getitems == [item for item in everything if item["target"] == "operator.getitem"] and len(getitems) >= 3
    assert [item["op"] for item in every_item(service, path, [("op", "call_module")])] == ["call_module"]

    assert is_problem(service.get(path + "?op=call"), 422, "unknown-op")["parameter"] == "op"
    assert is_problem(service.get(path + "?pass=None"), 422, "unknown-pass")["parameter"] == "pass"
    token = service.get(path + "?limit=1").json()["next_page_token"]
    for query in (f"page_token={token}&op=output", "page_token=1", "page_token="):
        assert is_problem(service.get(path, raw_query=query), 422, "bad-page-token")["parameter"] == "page_token"


def test_marks_of_a_pass_that_no_run_applied(service):
    """A document may come from another service, with marks."""
    graph = branches()
    signature = service.get("/v1/passes/MergeLinears").json()["signature"]
    graph["nodes"][1]["meta"] = {"transformations": [signature, "ab" * 16]}
    identity = service.post("/v1/graphs", graph).json()["id"]
    for query in ({"pass": "MergeLinears"}, {"signature": "ab" * 16}):
        items = service.get(f"/v1/graphs/{identity}/nodes", raw_query=query).json()["items"]
        assert [item["name"] for item in items] == ["fc0"]


def test_lineage(service):
    first = service.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears"]}).json()
    second = service.post("/v1/optimize", {"graph": first["result"], "passes": ["FuseBiasInLinear"]}).json()
    back = service.post(f"/v1/runs/{second['id']}/reverse").json()
    lineage = service.get(f"/v1/graphs/{first['result']}/lineage").json()
    assert lineage["id"] == first["result"]
    assert [run["id"] for run in lineage["made_by"]["items"]] == [back["id"], first["id"]]
    assert [run["id"] for run in lineage["used_by"]["items"]] == [second["id"]]
    short = service.get(f"/v1/graphs/{first['result']}/lineage?limit=1").json()
    assert [run["id"] for run in short["made_by"]["items"]] == [back["id"]]
    rest = service.get(short["made_by"]["next"]).json()
    assert [run["id"] for run in rest["items"]] == [first["id"]]


def test_document_spelling_does_not_matter(shared):
    graph = branches(4)
    plain = shared.post("/v1/graphs", compact(graph)).json()["id"]
    assert shared.post("/v1/graphs", json.dumps(graph, indent=3)).json()["id"] == plain
    backwards = {name: graph[name] for name in reversed(graph)}
    assert shared.post("/v1/graphs", backwards).json()["id"] == plain


def test_a_repeated_request_stores_a_deleted_graph_again(service):
    headers = {"Idempotency-Key": "k"}
    first = service.post("/v1/graphs", branches(2), headers=headers)
    assert first.status == 201
    again = service.post("/v1/graphs", branches(2), headers=headers)
    assert again.status == 201 and again.headers["idempotency-replayed"] == "true"
    path = first.headers["location"]
    assert service.delete(path).status == 204
    anew = service.post("/v1/graphs", branches(2), headers=headers)
    assert anew.status == 201 and "idempotency-replayed" not in anew.headers
    assert anew.body == first.body and service.get(path).status == 200
