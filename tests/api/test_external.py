"""External passes: what a user's own code did is recorded, and undone like any other."""

import json

import pytest
from documents import COMPOSED, batch_norm_fold, branches, counts, every_item, node, ref
from test_http import is_problem
from test_runs import optimize
from undo import META, added, conflicts, find, fresh, model, module, optimised, reverse, reversed_to, without_marks


def gelu(graph):
    """A user's own pass: what is divided goes through a GELU first."""
    at = next(i for i, one in enumerate(graph["nodes"]) if one["name"] == "truediv")
    graph["nodes"].insert(at, node("gelu", "call_function", "torch.nn.functional.gelu",
                                   [graph["nodes"][at]["args"][0]], meta=META))
    graph["nodes"][at + 1]["args"][0] = ref("gelu")
    return graph


def record(service, source, result, name="AddGelu", **more):
    answer = service.post("/v1/runs", {"source": source, "result": result, "name": name, **more})
    assert answer.status == 201, answer.body
    assert answer.headers["location"] == f"/v1/runs/{answer.json()['id']}"
    return answer.json()


def test_recorded(service):
    run = record(service, model(), gelu(model()), params={"b": 1, "a": 2.0}, version=3.0, note="why", labels={"team": "a"})
    assert (run["kind"], run["exact"], run["reversible"]) == ("external", False, True)
    assert run["preserves_computation"] is False  # nobody said that it computes the same
    assert (run["note"], run["labels"], run["lint"]) == ("why", {"team": "a"}, "passed")
    assert service.get(f"/v1/runs/{run['id']}").json() == run
    (one,) = run["passes"]
    assert one.pop("signature") and run["signature"]
    assert one == {"name": "AddGelu", "version": 3, "params": {"a": 2.0, "b": 1}, "reversible": True, "exactness": "external",
                   "applied": 1, "nodes": ["gelu", "truediv"], "refused": []}
    again = record(service, run["source"], run["result"])  # by id
    assert (again["source"], again["result"], again["passes"][0]["params"]) == (run["source"], run["result"], {})
    assert again["signature"] != run["signature"]

    def found(*query):
        return [item["id"] for item in every_item(service, "/v1/runs", query)]

    assert found(("kind", "external")) == found(("pass", "AddGelu")) == [again["id"], run["id"]]
    assert found(("signature", run["signature"])) == [run["id"]]
    is_problem(service.get("/v1/runs?pass=Other"), 422, "unknown-pass")
    lineage = service.get(f"/v1/graphs/{run['result']}/lineage").json()
    assert [item["kind"] for item in lineage["made_by"]["items"]] == ["external"] * 2
    assert service.get(f"/v1/graphs/{run['result']}/nodes?pass=AddGelu").json()["items"] == []


def test_marks_of_ones_own(service):
    """A client that marks its nodes finds them again by the pass's name."""
    signature = record(service, model(), gelu(model()))["passes"][0]["signature"]
    marked = gelu(model())
    find(marked, "gelu")["meta"] = {**META, "transformations": [signature]}
    run = record(service, model(), marked)
    nodes = service.get(f"/v1/graphs/{run['result']}/nodes?pass=AddGelu").json()["items"]
    assert [one["name"] for one in nodes] == ["gelu"]
    added(marked)
    assert service.post("/v1/reverse", {"graph": marked}).json()["of_run"] == run["id"]


def test_nodes_are_marked_as_the_pass_s_own(service):
    """The service adds the signature, which a client does not know before."""
    run = record(service, model(), gelu(model()), marked=["gelu", "gelu"])
    (one,) = run["passes"]
    for query in (f"signature={one['signature']}", "pass=AddGelu"):
        nodes = service.get(f"/v1/graphs/{run['result']}/nodes?{query}").json()["items"]
        assert [(node["name"], node["transformations"]) for node in nodes] == [("gelu", [one["signature"]])]
    assert one["nodes"] == ["gelu", "truediv"]
    assert record(service, run["source"], run["source"], marked=["truediv"])["passes"][0]["nodes"] == ["truediv"]
    back = service.post(f"/v1/runs/{run['id']}/reverse", {"graph": run["result"]}).json()
    assert back["result"] == run["source"]
    for wrong, code in (("gelu", "wrong-type"), ([1], "wrong-type"), (["other"], "unknown-node")):
        body = {"source": model(), "result": gelu(model()), "name": "AddGelu", "marked": wrong}
        assert is_problem(service.post("/v1/runs", body), 422, code)["pointer"].startswith("/marked")


def test_a_node_behind_the_changed_one_is_not_named(service):
    """Its shape or dtype may be another, or forgotten; the pass changed only what it reads."""
    result = gelu(model())
    for one in result["nodes"][[one["name"] for one in result["nodes"]].index("truediv") + 1:]:
        one["meta"] = {key: item for key, item in one.get("meta", {}).items() if key not in ("shape", "dtype")}
    assert record(service, model(), result)["passes"][0]["nodes"] == ["gelu", "truediv"]


def test_include_dry_run_and_key(service):
    body = {"source": model(), "result": gelu(model()), "name": "AddGelu"}
    before = counts(service)
    dry = service.post("/v1/runs", body, raw_query="dry_run&include=edits&include=code&include=graph")
    assert dry.status == 200 and dry.json()["id"] is None and counts(service) == before
    assert [edit["edit"] for edit in dry.json()["edits"]] == ["insert_node", "set_node"]
    body["options"] = {"include": ["edits", "graph"]}
    first, again = [service.post("/v1/runs", body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert first.status == 201 and first.json() == again.json() and first.json()["edits"] == dry.json()["edits"]
    assert "gelu" in dry.json()["code"] and dry.json()["graph"] == first.json()["graph"]
    assert counts(service) == (before[0] + 2, before[1] + 1)


@pytest.mark.parametrize("verb", ["reverse", "rollback"])
def test_whole(service, verb):
    run = record(service, model(), gelu(model()))
    for body in (None, {"passes": ["AddGelu"]}, {"passes": [0]}):
        back = service.post(f"/v1/runs/{run['id']}/{verb}", body).json()
        assert (back["kind"], back["result"], back["exact"]) == (verb, run["source"], True)
        assert back["passes"] == run["passes"] and back["of_run"] == run["id"]
    is_problem(service.post(f"/v1/runs/{run['id']}/{verb}", {"passes": ["Other"]}), 422, "unknown-pass")
    is_problem(service.post(f"/v1/runs/{run['id']}/{verb}", {"passes": [1]}), 422, "bad-position")


def test_on_a_changed_graph(service):
    run = record(service, model(), gelu(model()))
    graph, source = gelu(model()), model()
    added(graph)
    added(source)
    for path in (f"/v1/runs/{run['id']}/reverse", "/v1/reverse"):
        answer = service.post(path, {"graph": graph})
        if path == "/v1/reverse":  # its nodes carry no marks
            is_problem(answer, 409, "unrelated-graph")
        else:
            assert answer.json()["result"] == fresh(service, source, [])
    is_problem(reverse(service, run, batch_norm_fold()), 409, "unrelated-graph")


def test_on_a_graph_whose_changed_node_was_changed_again(service):
    """The run put nothing in, and what it changed is no longer as it left it: a conflict names it."""
    changed = model()
    find(changed, "truediv")["target"] = "operator.mul"
    run = record(service, model(), changed)
    find(changed, "truediv")["target"] = "operator.sub"
    assert conflicts(reverse(service, run, changed)) == [("changed-node", "node", "truediv")]
    divided = find(changed, "truediv")["args"][0]
    changed["nodes"] = [one for one in changed["nodes"] if one["name"] != "truediv"]
    gone = json.loads(json.dumps(changed).replace(json.dumps(ref("truediv")), json.dumps(divided)))
    assert conflicts(reverse(service, run, gone)) == [("missing-node", "node", "truediv")]
    is_problem(reverse(service, run, model()), 409, "unrelated-graph")



def test_irreversible(service):
    assert record(service, model(), gelu(model()), preserves_computation=True)["preserves_computation"] is True
    run = record(service, model(), gelu(model()), reversible=False, preserves_computation=False)
    assert (run["reversible"], run["preserves_computation"]) == (False, False)
    problem = is_problem(service.post(f"/v1/runs/{run['id']}/reverse"), 409, "irreversible")
    assert (problem["passes"], problem["rollback"]) == (["AddGelu"], f"/v1/runs/{run['id']}/rollback")
    back = service.post(problem["rollback"]).json()
    assert (back["result"], back["preserves_computation"]) == (run["source"], False)


def test_a_run_without_change(service):
    run = record(service, model(), model())
    assert run["source"] == run["result"] and run["passes"][0]["applied"] == 0 and run["passes"][0]["nodes"] == []
    back = service.post(f"/v1/runs/{run['id']}/reverse").json()
    assert (back["result"], back["exact"]) == (run["source"], True)


# ---- in the middle -----------------------------------------------------------------------------------------------------------


def in_the_middle(service):
    """Our pass, the user's, ours."""
    first, graph = optimised(service, model(), ["MergeLinears"])
    second = record(service, first["result"], gelu(graph))
    third, graph = optimised(service, second["result"], ["ChangeTrueDivToMulByInverse"])
    return first, second, third, graph


def test_external_in_the_middle(service):
    """Whichever is taken out, the others stay; what the external pass did is merged onto what it would have found."""
    runs = in_the_middle(service)
    first, second, third, graph = runs
    end = third["result"]
    without_first = fresh(service, gelu(model()), ["ChangeTrueDivToMulByInverse"])
    without_second = fresh(service, fresh(service, model(), ["MergeLinears"]), ["ChangeTrueDivToMulByInverse"])
    assert reversed_to(service, first, end)["result"] == without_first
    assert reversed_to(service, second, end)["result"] == without_second
    assert reversed_to(service, third, end)["result"] == second["result"]
    for run in (first, second, third):
        assert reversed_to(service, run, end)["exact"] is True

    left = reversed_to(service, second, end)  # and on: what is left over of all three
    assert reversed_to(service, third, left["result"])["result"] == first["result"]
    back = reversed_to(service, first, reversed_to(service, third, left["result"])["result"])
    assert (back["result"], back["exact"]) == (first["source"], True)
    by_name = service.post("/v1/reverse", {"graph": end, "passes": ["MergeLinears", "AddGelu"]}).json()
    assert by_name["result"] == fresh(service, model(), ["ChangeTrueDivToMulByInverse"])
    assert [one["name"] for one in by_name["passes"]] == ["MergeLinears", "AddGelu"]


def test_external_in_the_middle_of_a_changed_graph(service):
    first, second, third, graph = in_the_middle(service)
    added(graph)
    source = gelu(model())
    added(source)
    assert reversed_to(service, first, graph)["result"] == fresh(service, source, ["ChangeTrueDivToMulByInverse"])
    source = model()
    added(source)
    expected = fresh(service, fresh(service, source, ["MergeLinears"]), ["ChangeTrueDivToMulByInverse"])
    assert reversed_to(service, second, graph)["result"] == expected
    without_marks(graph)
    assert reversed_to(service, third, graph)["exact"] is False


def test_external_that_needs_what_is_undone(service):
    """The user's pass works on the merged Linear: without the merge there is nothing to do it to."""
    first, graph = optimised(service, model(), ["MergeLinears"])
    find(graph, "fc0_fc1_fc2_merged")["kwargs"] = {}
    module(graph, "fc0-fc1-fc2-merged")["training"] = True
    second = record(service, first["result"], graph, name="Train")
    found = conflicts(reverse(service, first, second["result"]))
    assert ("missing-module", "module", "fc0-fc1-fc2-merged") in found
    assert reversed_to(service, second)["result"] == first["result"]


# ---- bad requests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change,code,pointer",
    [
        ({"name": None}, "wrong-type", "/name"),
        ({"name": ""}, "missing-member", "/name"),
        ({"name": "x" * 201}, "name-too-long", "/name"),
        ({"name": "MergeLinears"}, "name-taken-by-pass", "/name"),
        ({"version": 0}, "wrong-type", "/version"),
        ({"version": 1.5}, "wrong-type", "/version"),
        ({"version": "1"}, "wrong-type", "/version"),
        ({"version": 3e9}, "wrong-type", "/version"),
        ({"params": []}, "wrong-type", "/params"),
        ({"reversible": 1}, "wrong-type", "/reversible"),
        ({"preserves_computation": "yes"}, "wrong-type", "/preserves_computation"),
        ({"source": 1}, "wrong-type", "/source"),
        ({"result": None}, "wrong-type", "/result"),
        ({"result": {"format": "foldback.graph/1"}}, None, "/result"),
        ({"passes": []}, "unknown-member", "/passes"),
        ({"graph": model()}, "unknown-member", "/graph"),
        ({"options": {"lint": "end"}}, "unknown-option", "/options/lint"),
        ({"note": 1}, "wrong-type", "/note"),
    ],
)
def test_bad_request(shared, change, code, pointer):
    before = counts(shared)
    body = {"source": model(), "result": gelu(model()), "name": "AddGelu", **change}
    problem = is_problem(shared.post("/v1/runs", body), 422, code)
    assert problem["pointer"].startswith(pointer)
    assert counts(shared) == before


def test_missing_and_unknown(shared):
    body = {"source": model(), "result": gelu(model()), "name": "AddGelu"}
    for name in body:
        rest = {member: body[member] for member in body if member != name}
        assert is_problem(shared.post("/v1/runs", rest), 422, "missing-member")["pointer"] == f"/{name}"
    for name in ("source", "result"):
        unknown = {**body, name: "sha256:" + "0" * 64}
        assert is_problem(shared.post("/v1/runs", unknown), 404, "unknown-graph")["pointer"] == f"/{name}"
    is_problem(shared.post("/v1/runs", model()), 422, "unexpected-graph")
    is_problem(shared.post("/v1/runs", b""), 400)
    is_problem(shared.post("/v1/runs", body, raw_query="pass=x"), 422, "unknown-parameter")
    twice = json.dumps(body).replace('"name": "AddGelu"', '"name": "AddGelu", "source": {}')
    is_problem(shared.post("/v1/runs", twice), 400, "duplicate-member")
    bad = gelu(model())
    bad["nodes"][2]["args"] = [ref("nothing")]
    problem = is_problem(shared.post("/v1/runs", {**body, "result": bad}), 422)
    assert problem["pointer"].startswith("/result/nodes/2/args")


def test_passes_of_ours_are_not_external(service):
    for name in COMPOSED:
        body = {"source": model(), "result": gelu(model()), "name": name}
        assert is_problem(service.post("/v1/runs", body), 422, "name-taken-by-pass")["pointer"] == "/name"
    assert optimize(service, branches(2), COMPOSED)["kind"] == "optimize"
