"""Undo: one pass of several, and on graphs that were changed since."""

import itertools
import json

import documents
import pytest
from documents import COMPOSED, batch_norm_fold, branches, counts
from test_http import is_problem
from test_runs import optimize
from undo import added, described, find, fresh, model, optimised, reverse, reversed_to, without_marks

# ---- one pass of several -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", documents.EACH)
def test_every_pass_alone(shared, name):
    graph = json.loads(documents.document(name))
    run = optimize(shared, graph, COMPOSED)
    for position, pass_name in enumerate(COMPOSED):
        expected = fresh(shared, graph, [one for one in COMPOSED if one != pass_name])
        for undone in (position, pass_name):
            back = reversed_to(shared, run, passes=[undone])
            assert back["result"] == expected and back["exact"] is True
            assert back["passes"] == [run["passes"][position]]


@pytest.mark.long
def test_one_pass_after_another(service):
    """What is left over of a run can be undone on the graph without the first pass, in any order, and stays exact."""
    graph = json.loads(documents.document("bert-tiny"))
    run = optimize(service, graph, COMPOSED)
    for order in itertools.permutations(range(3)):
        at_hand, left = run["result"], list(COMPOSED)
        for position in order:
            back = reversed_to(service, run, at_hand, [position])
            left.remove(COMPOSED[position])
            assert back["result"] == fresh(service, graph, left) and back["exact"] is True
            assert (back["source"], back["of_run"]) == (at_hand, run["id"])
            at_hand = back["result"]
            if left:
                problem = is_problem(reverse(service, run, at_hand, [position]), 422, "unknown-pass")
                assert problem["pointer"] == "/passes/0"
                is_problem(reverse(service, run, at_hand, [COMPOSED[position]]), 422, "unknown-pass")
        is_problem(reverse(service, run, at_hand), 409, "unrelated-graph")


# ---- graphs that were changed ------------------------------------------------------------------------------------------------


def edited(graph):
    find(graph, "add_2")["kwargs"] = {"alpha": 2}


def renamed(graph):
    changed = json.loads(json.dumps(graph).replace('"add_1"', '"total"'))
    graph.clear()
    graph.update(changed)


def reordered(graph):
    extra = find(graph, "extra")
    graph["nodes"].remove(extra)
    graph["nodes"].insert(1, extra)


def erased(graph):
    graph["nodes"].remove(find(graph, "extra"))


def of_everything(graph):
    for change in (added, edited, described, renamed, reordered):
        change(graph)


@pytest.mark.parametrize("undone", [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("change", [added, edited, described, renamed, reordered, erased, of_everything])
def test_changed_graph(service, change, undone):
    """Undoing on the changed graph gives what the changed source gives with the other passes."""
    run, graph = optimised(service, model(), COMPOSED)
    changed_source = model()
    change(graph)
    change(changed_source)
    without_run = service.post("/v1/reverse", {"graph": graph, "passes": undone}).json()
    back = reversed_to(service, run, graph, undone)
    assert back["result"] == fresh(service, changed_source, [name for i, name in enumerate(COMPOSED) if i not in undone])
    assert (back["kind"], back["of_run"], back["exact"], back["lint"]) == ("reverse", run["id"], False, "passed")
    assert back["source"] == service.post("/v1/graphs", graph).json()["id"]  # it was stored with the run
    assert service.get(f"/v1/runs/{back['id']}").json() == {name: back[name] for name in back if name != "graph"}
    assert (without_run["result"], without_run["source"]) == (back["result"], back["source"])


def test_other_formatting(service):
    """A document of the unchanged result, as another program writes it."""
    run, graph = optimised(service, model(), COMPOSED)

    def turned(value):
        if isinstance(value, list):
            return [turned(one) for one in value]
        return {key: turned(value[key]) for key in value} if isinstance(value, dict) else value

    graph = turned({key: graph[key] for key in reversed(graph)})
    graph["nodes"] = [{key: one[key] for key in reversed(one) if one[key] != {}} for one in graph["nodes"]]
    text = json.dumps(graph, indent=3)
    for path in (f"/v1/runs/{run['id']}/reverse", "/v1/reverse"):
        back = service.post(path, text).json()
        assert (back["source"], back["result"], back["exact"]) == (run["result"], run["source"], True)


def test_marks_are_lost(service):
    """A client that exports its graph anew loses the marks: the run must be named, and the nodes tell that it is related."""
    run, graph = optimised(service, model(), COMPOSED)
    without_marks(graph)
    back = reversed_to(service, run, graph)
    assert back["result"] == run["source"] and back["exact"] is True
    assert not reversed_to(service, run, graph, ["MergeLinears"])["exact"]
    is_problem(service.post("/v1/reverse", {"graph": graph}), 409, "unrelated-graph")


def test_tensors_are_renamed(service):
    """Who a tensor is, its owner decides."""
    run, graph = optimised(service, model(), ["MergeLinears"])
    for old, new, is_exact in (("merged.weight", "merged.W", True), ("fc1.weight", "second", False)):
        back = reversed_to(service, run, json.loads(json.dumps(graph).replace(old, new)))
        assert back["exact"] is is_exact
        owned = {one["path"]: one["parameters"]["weight"] for one in back["graph"]["modules"] if one["path"]}
        assert set(owned) == {"fc0", "fc1", "fc2"}
        assert {one["name"] for one in back["graph"]["tensors"]} >= set(owned.values())


def test_unrelated_graph(service):
    run, _ = optimised(service, model(), COMPOSED)
    before = counts(service)
    other = branches(2, name="other")
    for graph in (other, model(), batch_norm_fold(), run["source"]):
        is_problem(reverse(service, run, graph), 409, "unrelated-graph")
        is_problem(service.post("/v1/reverse", {"graph": graph}), 409, "unrelated-graph")
    assert counts(service) == before


def test_a_run_without_changes_on_a_changed_graph(service):
    run = optimize(service, model(), ["DeepCopy"])
    graph = model()
    added(graph)
    back = reversed_to(service, run, graph)
    assert back["result"] == service.post("/v1/graphs", graph).json()["id"]
    is_problem(reverse(service, run, batch_norm_fold()), 409, "unrelated-graph")


# ---- options -----------------------------------------------------------------------------------------------------------------


def test_dry_run_on_a_changed_graph(service):
    run, graph = optimised(service, model(), COMPOSED)
    added(graph)
    before = counts(service)
    dry = reverse(service, run, graph, options={"dry_run": True, "include": ["graph", "edits", "code"]})
    assert dry.status == 200 and counts(service) == before
    answer = dry.json()
    assert answer["id"] is None and answer["edits"] and "torch.relu" in answer["code"]
    assert answer["graph"]["nodes"][-2]["name"] == "tail"
    real = reverse(service, run, graph, options={"include": ["graph", "edits", "code"]}).json()
    for member in ("source", "result", "edits", "graph", "code", "passes"):
        assert real[member] == answer[member]


def test_idempotency_key(service):
    run, graph = optimised(service, model(), COMPOSED)
    added(graph)
    options = {"headers": {"Idempotency-Key": "once"}, "raw_query": "include=edits"}
    first, again = [service.post(f"/v1/runs/{run['id']}/reverse", {"graph": graph}, **options) for _ in range(2)]
    assert first.status == again.status == 201 and first.json() == again.json() and first.json()["edits"]
    assert again.headers["idempotency-replayed"] == "true"


def test_null_is_no_body(service):
    """What generated clients send for a body that they were not given."""
    run, _ = optimised(service, model(), COMPOSED)
    answer = service.post(f"/v1/runs/{run['id']}/rollback", b"null")
    assert answer.status == 201 and answer.json()["result"] == run["source"]
    is_problem(service.post(f"/v1/runs/{run['id']}/rollback", b"[]"), 422, "wrong-type")
    is_problem(service.post("/v1/optimize", b"null"), 422, "wrong-type")


def test_rollback_takes_no_graph(service):
    run, graph = optimised(service, model(), COMPOSED)
    is_problem(service.post(f"/v1/runs/{run['id']}/rollback", {"graph": graph}), 422, "unknown-member")


def test_after_a_restart(service):
    run, graph = optimised(service, model(), COMPOSED)
    last = optimize(service, run["result"], ["DeepCopy"])
    added(graph)
    before = [reversed_to(service, run, graph)["result"], reversed_to(service, run, last["result"], [1])["result"]]
    service.restart()
    after = [reversed_to(service, run, graph)["result"], reversed_to(service, run, last["result"], [1])["result"]]
    assert before == after
