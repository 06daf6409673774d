"""What differs between graphs, as data."""

import json

import documents
import pytest
from documents import COMPOSED, branches, node, ref
from test_http import is_problem
from test_runs import optimize


def put(service, graph):
    return service.post("/v1/graphs", graph).json()["id"]


def diff(service, base, graph):
    answer = service.get(f"/v1/graphs/{graph}/diff", raw_query={"base": base})
    assert answer.status == 200, answer
    assert (answer.json()["base"], answer.json()["graph"]) == (base, graph)
    return answer.json()["edits"]


def test_each_kind_of_edit(shared):
    base = branches(2)
    graph = branches(2, name="other")
    graph["nodes"].insert(1, node("new", "call_function", "torch.neg", [ref("x")]))
    truediv = next(one for one in graph["nodes"] if one["name"] == "truediv")
    truediv["args"][1] = 4
    fc0, fc1 = [next(one for one in graph["nodes"] if one["name"] == name) for name in ("fc0", "fc1")]
    graph["nodes"].remove(fc0)
    graph["nodes"].insert(graph["nodes"].index(fc1) + 1, fc0)
    graph["modules"][1]["training"] = True
    graph["tensors"][0]["digest"] = "sha256:" + "a" * 64
    base, graph = put(shared, base), put(shared, graph)
    edits = diff(shared, base, graph)
    kinds = sorted(edit["edit"] for edit in edits)
    assert kinds == ["insert_node", "move_node", "set_graph", "set_module", "set_node", "set_tensor"]
    by_kind = {edit["edit"]: edit for edit in edits}
    assert by_kind["set_graph"] == {"edit": "set_graph", "was": {"/name": "branches"}, "now": {"/name": "other"}}
    assert by_kind["set_node"] == {"edit": "set_node", "name": "truediv", "was": {"/args/1": 8}, "now": {"/args/1": 4}}
    assert by_kind["insert_node"]["node"]["name"] == "new"
    assert by_kind["set_module"] == {"edit": "set_module", "path": "fc0", "was": {"/training": False},
                                     "now": {"/training": True}}
    assert by_kind["set_tensor"]["name"] == "fc0.weight" and by_kind["set_tensor"]["was"] == {}
    back = {edit["edit"]: edit for edit in diff(shared, graph, base)}
    assert back["erase_node"]["node"] == by_kind["insert_node"]["node"]
    assert back["set_node"] == {"edit": "set_node", "name": "truediv", "was": {"/args/1": 4}, "now": {"/args/1": 8}}
    assert diff(shared, base, base) == []


@pytest.mark.parametrize("name", documents.EACH)
def test_edits_of_a_run(shared, name):
    """Everywhere the same edits; the nodes that a run marked are among them, and an undo has those that lead back."""
    run = optimize(shared, json.loads(documents.document(name)), COMPOSED, options={"include": ["edits"]})
    edits = run["edits"]
    assert diff(shared, run["source"], run["result"]) == edits
    answer = shared.get(f"/v1/runs/{run['id']}/edits").json()
    assert answer == {"run": run["id"], "base": run["source"], "graph": run["result"], "edits": edits}
    assert shared.get(f"/v1/runs/{run['id']}?include=edits").json() == run
    touched = {edit.get("name") or edit["node"]["name"] for edit in edits if edit["edit"] in ("set_node", "insert_node")}
    assert {marked for one in run["passes"] for marked in one["nodes"]} <= touched
    assert bool(edits) == (run["source"] != run["result"])
    back = shared.post(f"/v1/runs/{run['id']}/reverse", raw_query="include=edits").json()
    assert diff(shared, run["result"], run["source"]) == back["edits"]


def test_include(service):
    graph = branches(2)
    query = "pass=MergeLinears&include=edits&include=graph&include=code"
    key = {"Idempotency-Key": "one"}
    dry = service.post("/v1/optimize", graph, raw_query=query + "&dry_run").json()
    first = service.post("/v1/optimize", graph, raw_query=query, headers=key)
    again = service.post("/v1/optimize", graph, raw_query=query, headers=key)
    assert first.json() == again.json() and again.headers["idempotency-replayed"] == "true"
    for member in ("edits", "graph", "code"):
        assert dry[member] == first.json()[member]
    run = f"/v1/runs/{first.json()['id']}"
    assert service.get(run + "?include=graph&include=code&include=edits").json() == first.json()
    assert "edits" not in service.get(run).json()
    problem = is_problem(service.get(run + "?include=moves"), 422, "unknown-option-value")
    assert problem["parameter"] == "include"
    same = optimize(service, graph, ["DeepCopy"], options={"include": ["edits"]})
    assert same["edits"] == []


def test_problems(shared):
    known, unknown = put(shared, branches(2)), "sha256:" + "0" * 64
    assert is_problem(shared.get(f"/v1/graphs/{known}/diff"), 422, "missing-parameter")["parameter"] == "base"
    problem = is_problem(shared.get(f"/v1/graphs/{known}/diff?base={unknown}"), 404, "unknown-graph")
    assert problem["parameter"] == "base"
    assert "parameter" not in is_problem(shared.get(f"/v1/graphs/{unknown}/diff?base={known}"), 404, "unknown-graph")
    is_problem(shared.get(f"/v1/graphs/{known}/diff?base={known}&colour=red"), 422, "unknown-parameter")
    is_problem(shared.get("/v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV/edits"), 404, "unknown-run")
