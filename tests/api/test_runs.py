"""Runs: found again, reversed, rolled back; and the passes."""

import json

import documents
import pytest
from documents import COMPOSED, batch_norm_fold, branches, counts, every_item
from test_http import is_problem


def optimize(service, graph, passes, **more):
    answer = service.post("/v1/optimize", {"graph": graph, "passes": passes, **more})
    assert answer.status == 201, answer
    return answer.json()


# ------------------------------------------------------------------------------------------------------------- passes


def test_passes(shared):
    items = shared.get("/v1/passes").json()["items"]
    seeds = ["MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse", "FuseBatchNorm2dInConv2d",
             "FuseBatchNorm1dInLinear", "DeepCopy", "LintAndRecompile"]
    assert [one["name"] for one in items if one["name"] in seeds] == seeds
    for one in items:
        whole = shared.get(f"/v1/passes/{one['name']}").json()
        assert whole.pop("documentation").startswith(one["name"]) and whole == one
        assert one["summary"] and one["parameters"]["type"] == "object" and len(one["signature"]) == 32
        assert one["exactness"] in ("moves", "rounds", "changes")
    assert len({one["signature"] for one in items}) == len(items)
    is_problem(shared.get("/v1/passes/Nonsense"), 404, "unknown-pass")


def test_presets_are_listed(shared):
    answer = shared.get("/v1/passes").json()
    names = [one["name"] for one in answer["items"]]
    presets = {one["name"]: one for one in answer["presets"]}
    assert {"cleanup", "inference"} <= set(presets) and not set(presets) & set(names)
    for one in presets.values():
        listed = [entry if isinstance(entry, str) else entry["name"] for entry in one["passes"]]
        assert one["summary"] and one["rounds"] == 4 and set(listed) <= set(names)
        assert shared.get(f"/v1/passes/{one['name']}").json() == one


def test_a_preset_is_the_passes_that_it_ran(service):
    graph = json.loads(documents.document("aten-bert"))
    run = optimize(service, graph, ["cleanup"])
    ran = [one["name"] for one in run["passes"]]
    cleanup = ["RemoveNoOps", "EliminateCommonSubexpressions", "EliminateDeadCode"]
    assert ran == cleanup * (len(ran) // 3) and 3 < len(ran) <= 12 and any(one["applied"] for one in run["passes"][-3:])
    listed = optimize(service, graph, ran)  # the same list, spelled out
    assert (listed["result"], listed["signature"]) == (run["result"], run["signature"])
    assert optimize(service, run["result"], ["cleanup"])["result"] == run["result"]  # nothing is left to do
    dry = service.post("/v1/optimize", {"graph": graph, "passes": [{"name": "cleanup"}], "options": {"dry_run": True}}).json()
    assert (dry["result"], dry["signature"]) == (run["result"], run["signature"])
    for verb in ("reverse", "rollback"):
        assert service.post(f"/v1/runs/{run['id']}/{verb}").json()["result"] == run["source"]
        without = service.post(f"/v1/runs/{run['id']}/{verb}", {"passes": ["RemoveNoOps"]}).json()
        assert without["exact"] and [one["name"] for one in without["passes"]] == ["RemoveNoOps"] * ran.count("RemoveNoOps")
        rest = [name for name in ran if name != "RemoveNoOps"]
        assert without["result"] == optimize(service, graph, rest)["result"] != run["result"]


def test_latency_merges_for_one_token_alone(shared):
    graph = json.loads(documents.document("aten-bert"))
    def ran(entry):
        run = shared.post("/v1/optimize", {"graph": graph, "passes": [entry], "options": {"dry_run": True}}).json()
        return {one["name"]: one["applied"] for one in run["passes"] if one["applied"]}
    assert "MergeLinears" in ran({"name": "latency", "params": {"tokens": 1}})
    for entry in ("latency", {"name": "latency"}, {"name": "latency", "params": {"tokens": 128}}):
        assert "MergeLinears" not in ran(entry) and "UnpackLinear" not in ran(entry)
    for tokens, code in (("1", "wrong-type"), (0, "bad-parameter"), (1.5, "bad-parameter")):
        answer = shared.post("/v1/optimize", {"graph": graph, "passes": [{"name": "latency", "params": {"tokens": tokens}}]})
        assert is_problem(answer, 422, code)["pointer"] == "/passes/0/params/tokens"
    more = {"name": "latency", "params": {"tokens": 1, "batch": 1}}
    is_problem(shared.post("/v1/optimize", {"graph": graph, "passes": [more]}), 422, "unknown-parameter")


def test_presets_take_no_parameters(shared):
    for entry in ({"name": "cleanup", "params": {"asserts": True}}, {"name": "cleanup", "version": 1}):
        answer = shared.post("/v1/optimize", {"graph": branches(), "passes": [entry]})
        assert is_problem(answer, 422, "unknown-parameter")["pointer"].startswith("/passes/0")
    made = {"name": "cleanup", "source": branches(), "result": branches(2)}
    is_problem(shared.post("/v1/runs", made), 422, "name-taken-by-pass")


def test_parameters_are_checked(shared):
    for params, code in (({"asserts": 1}, "wrong-type"), ({"assert": True}, "unknown-parameter")):
        answer = shared.post("/v1/optimize", {"graph": branches(), "passes": [{"name": "RemoveNoOps", "params": params}]})
        assert is_problem(answer, 422, code)["pointer"] == f"/passes/0/params/{list(params)[0]}"
    allowed = optimize(shared, branches(), [{"name": "RemoveNoOps", "params": {"asserts": True, "float_zeros": False}}])
    assert allowed["passes"][0]["params"] == {"asserts": True}  # what has its default is left out


# --------------------------------------------------------------------------------------------------------------- list


def test_list(service):
    first = optimize(service, branches(2), ["MergeLinears"], labels={"team": "a", "stage": "test"}, note="n")
    second = optimize(service, branches(3), ["MergeLinears", "FuseBiasInLinear"], labels={"team": "b"})
    third = service.post(f"/v1/runs/{first['id']}/reverse").json()
    fourth = service.post(f"/v1/runs/{second['id']}/rollback", {"passes": ["MergeLinears"], "labels": {"team": "a"}}).json()

    def found(*query):
        return [run["id"] for run in every_item(service, "/v1/runs", query, limit=1)]

    one, two, three, four = [run["id"] for run in (first, second, third, fourth)]
    merge, fuse = [shared_pass["signature"] for shared_pass in second["passes"]]
    assert found() == [four, three, two, one]
    assert found(("kind", "optimize")) == [two, one]
    assert found(("kind", "reverse")) == [three] and found(("kind", "rollback")) == [four]
    assert found(("source", first["source"])) == [one] and found(("result", first["source"])) == [three]
    assert found(("of_run", two)) == [four]
    assert found(("pass", "FuseBiasInLinear")) == [two]
    assert found(("signature", fuse)) == [two] and found(("signature", merge)) == [four, three, two, one]
    assert found(("signature", second["signature"])) == [two]
    assert found(("signature", "0" * 32)) == found(("source", "nonsense")) == found(("of_run", "nonsense")) == []
    assert found(("label", "team=a")) == [four, one] and found(("label", "team")) == [four, two, one]
    assert found(("label", "team=a"), ("label", "stage=test"), ("kind", "optimize")) == [one]

    item = service.get("/v1/runs?kind=optimize").json()["items"][1]
    assert {name: item[name] for name in item if name != "passes"} == {name: first[name] for name in first if name != "passes"}
    assert item["passes"] == [{"name": "MergeLinears", "version": 1, "signature": merge, "applied": 1, "refusals": 0}]
    for query, code, parameter in (
        ("kind=nothing", "unknown-kind", "kind"),
        ("pass=Nonsense", "unknown-pass", "pass"),
        ("label==x", "bad-label", "label"),
        ("page_token=x", "bad-page-token", "page_token"),
        ("colour=red", "unknown-parameter", "colour"),
        ("&".join(f"label=l{i}" for i in range(17)), "too-many-labels", "label"),
    ):
        assert is_problem(service.get("/v1/runs", raw_query=query), 422, code)["parameter"] == parameter


def test_unknown_run(shared):
    for run in ("run_01ARZ3NDEKTSV4RRFFQ69G5FAV", "nonsense"):
        is_problem(shared.get(f"/v1/runs/{run}"), 404, "unknown-run")
        for verb in ("reverse", "rollback"):
            is_problem(shared.post(f"/v1/runs/{run}/{verb}"), 404, "unknown-run")
            is_problem(shared.get(f"/v1/runs/{run}/{verb}"), 405)


# --------------------------------------------------------------------------------------------------- reverse, rollback


@pytest.mark.parametrize("name", documents.EACH)
def test_whole_run_returns_to_its_source(shared, name):
    identity = documents.ids(name)[0]
    run = optimize(shared, json.loads(documents.document(name)), COMPOSED)
    assert run["source"] == identity
    for verb in ("reverse", "rollback"):
        answer = shared.post(f"/v1/runs/{run['id']}/{verb}", raw_query="include=code&include=graph")
        back = answer.json()
        assert answer.status == 201 and answer.headers["location"] == f"/v1/runs/{back['id']}"
        assert (back["kind"], back["of_run"], back["source"], back["result"]) == (verb, run["id"], run["result"], identity)
        assert back["exact"] is True and back["reversible"] is False
        assert back["passes"] == run["passes"] and back["signature"] == run["signature"]
        assert back["code"] == documents.code(name)
        stored = shared.get(f"/v1/runs/{back['id']}").json()
        assert stored == {member: back[member] for member in back if member not in ("code", "graph")}


@pytest.mark.parametrize("omitted", [[0], [1], [2], [0, 1], [0, 2], [1, 2], ["MergeLinears"], ["FuseBiasInLinear", 0.0]])
@pytest.mark.parametrize("verb", ["reverse", "rollback"])
def test_some_passes(shared, omitted, verb):
    """Undoing some passes of a run gives what a fresh run without them gives."""
    graph = json.loads(documents.document("bert-tiny"))
    run = optimize(shared, graph, COMPOSED)
    undone = [i for i, name in enumerate(COMPOSED) if i in omitted or name in omitted]
    back = shared.post(f"/v1/runs/{run['id']}/{verb}", {"passes": omitted})
    assert back.status == 201, back
    fresh = optimize(shared, graph, [name for i, name in enumerate(COMPOSED) if i not in undone])
    assert back.json()["result"] == fresh["result"] != run["result"]
    assert back.json()["passes"] == [run["passes"][i] for i in undone]
    assert back.json()["exact"] is True and back.json()["lint"] == "passed"
    by_query = shared.post(f"/v1/runs/{run['id']}/{verb}", raw_query=[("pass", int(i) if i == 0 else i) for i in omitted])
    assert by_query.json()["result"] == fresh["result"]


def test_every_occurrence_of_a_name(service):
    run = optimize(service, branches(), ["DeepCopy", "MergeLinears", "DeepCopy"])
    back = service.post(f"/v1/runs/{run['id']}/reverse", {"passes": ["DeepCopy"]}).json()
    assert [one["name"] for one in back["passes"]] == ["DeepCopy"] * 2 and back["result"] == run["result"]


def test_irreversible(service):
    run = optimize(service, batch_norm_fold(), ["FuseBatchNorm2dInConv2d", "DeepCopy", "FuseBatchNorm2dInConv2d"])
    assert run["passes"][0]["applied"] == 1 and run["reversible"] is False
    before = counts(service)
    for body in (None, {"passes": ["FuseBatchNorm2dInConv2d"]}, {"passes": [2, 1]}):
        problem = is_problem(service.post(f"/v1/runs/{run['id']}/reverse", body), 409, "irreversible")
        assert problem["passes"] == ["FuseBatchNorm2dInConv2d"]
        assert problem["rollback"] == f"/v1/runs/{run['id']}/rollback"
    is_problem(service.post("/v1/reverse", {"graph": run["result"]}), 409, "irreversible")
    assert counts(service) == before
    assert service.post(f"/v1/runs/{run['id']}/reverse", {"passes": ["DeepCopy"]}).json()["result"] == run["result"]
    assert service.post(problem["rollback"]).json()["result"] == run["source"]


def test_reverse_of_a_reverse(service):
    run = optimize(service, branches(), ["MergeLinears"])
    for verb in ("reverse", "rollback"):
        back = service.post(f"/v1/runs/{run['id']}/{verb}").json()
        for again in ("reverse", "rollback"):
            problem = is_problem(service.post(f"/v1/runs/{back['id']}/{again}"), 409, "not-an-optimize-run")
            assert problem["of_run"] == run["id"]


def test_dry_run_and_labels(service):
    run = optimize(service, branches(), ["MergeLinears", "FuseBiasInLinear"])
    before = counts(service)
    path = f"/v1/runs/{run['id']}/reverse"
    dry = service.post(path, {"passes": ["MergeLinears"], "options": {"dry_run": True, "include": ["graph"]}})
    assert dry.status == 200 and dry.json()["id"] is None and dry.json()["graph"]["nodes"]
    assert counts(service) == before
    back = service.post(path, {"note": "why", "labels": {"a": "b"}}).json()
    assert (back["note"], back["labels"]) == ("why", {"a": "b"})


@pytest.mark.parametrize(
    "body,code,pointer",
    [
        ({"passes": ["ChangeTrueDivToMulByInverse"]}, "unknown-pass", "/passes/0"),
        ({"passes": ["MergeLinears", 2]}, "bad-position", "/passes/1"),
        ({"passes": [-1]}, "bad-position", "/passes/0"),
        ({"passes": [0.5]}, "bad-position", "/passes/0"),
        ({"passes": [1e300]}, "bad-position", "/passes/0"),
        ({"passes": [None]}, "wrong-type", "/passes/0"),
        ({"passes": "MergeLinears"}, "wrong-type", "/passes"),
        ({"passes": []}, "no-passes", "/passes"),
        ({"colour": 1}, "unknown-member", "/colour"),
        ({"options": {"lint": "end"}}, "unknown-option", "/options/lint"),
        ({"note": 1}, "wrong-type", "/note"),
    ],
)
def test_bad_request(shared, body, code, pointer):
    run = optimize(shared, branches(), ["MergeLinears", "FuseBiasInLinear"])
    before = counts(shared)
    for verb in ("reverse", "rollback"):
        assert is_problem(shared.post(f"/v1/runs/{run['id']}/{verb}", body), 422, code)["pointer"] == pointer
    assert is_problem(shared.post(f"/v1/runs/{run['id']}/reverse", raw_query="pass=9"), 422)["parameter"] == "pass"
    is_problem(shared.post(f"/v1/runs/{run['id']}/rollback", {"graph": run["result"]}), 422, "unknown-member")
    is_problem(shared.post(f"/v1/runs/{run['id']}/rollback", branches()), 422, "unexpected-graph")
    assert counts(shared) == before


# ------------------------------------------------------------------------------------------------- with a graph at hand


def renamed(graph, name):
    return {**graph, "name": name}


def test_reverse_with_the_graph_at_hand(service):
    graph = branches(3)
    run = optimize(service, graph, ["MergeLinears", "FuseBiasInLinear"], options={"include": ["graph"]})
    path = f"/v1/runs/{run['id']}/reverse"
    for back in (
        service.post(path, {"graph": run["result"]}),
        service.post(path, {"graph": run["graph"]}),
        service.post(path, run["graph"]),
        service.post(path, run["graph"], raw_query="pass=1"),
        service.post("/v1/reverse", {"graph": run["result"]}),
        service.post("/v1/reverse", run["graph"]),
        service.post("/v1/reverse", {"graph": run["graph"], "passes": [1]}),
        service.post("/v1/reverse", run["graph"], raw_query="pass=FuseBiasInLinear"),
    ):
        assert back.status == 201 and back.json()["of_run"] == run["id"], back
        assert back.json()["result"] == run["source"] or len(back.json()["passes"]) == 1

    before = counts(service)
    for other in (branches(4), renamed(graph, "other"), graph):
        is_problem(service.post(path, other), 409, "unrelated-graph")
        is_problem(service.post("/v1/reverse", other), 409, "unrelated-graph")
    for answer in (service.post(path, {"graph": "x"}), service.post("/v1/reverse", {"graph": "x"})):
        assert is_problem(answer, 404, "unknown-graph")["pointer"] == "/graph"
    assert is_problem(service.post("/v1/reverse", {"passes": [0]}), 422, "missing-member")["pointer"] == "/graph"
    assert counts(service) == before


def test_reverse_finds_the_run(service):
    one = optimize(service, branches(2), ["MergeLinears"])
    newest = optimize(service, branches(2), ["MergeLinears"])
    other = optimize(service, branches(3), ["MergeLinears"])
    assert service.post("/v1/reverse", {"graph": one["result"]}).json()["of_run"] == newest["id"]
    assert service.post("/v1/reverse", {"graph": other["result"]}).json()["of_run"] == other["id"]
    same = optimize(service, branches(2), ["MergeLinears", "DeepCopy"])  # the same result by another way
    assert same["result"] == one["result"]
    asked = {"graph": one["result"], "passes": ["MergeLinears"]}
    problem = is_problem(service.post("/v1/reverse", asked), 409, "ambiguous-run")
    assert problem["runs"] == [same["id"], newest["id"]]
    # As a whole it is one answer
    assert service.post("/v1/reverse", {"graph": one["result"]}).json()["result"] == one["source"]


def test_two_runs_in_a_row(service):
    first = optimize(service, branches(3), ["MergeLinears"])
    second = optimize(service, first["result"], ["FuseBiasInLinear"])
    back = service.post("/v1/reverse", {"graph": second["result"]}).json()
    assert back["of_run"] == second["id"] and back["result"] == first["result"]
    assert service.post("/v1/reverse", {"graph": back["result"]}).json()["result"] == first["source"]


# ---- a run that changed nothing ----------------------------------------------------------------------------------------------


def test_a_run_that_changed_nothing_made_nothing(service):
    """A CI job that optimises again what is optimised already must not make it ambiguous where the graph came from."""
    source = service.post("/v1/graphs", branches()).json()["id"]
    run = service.post("/v1/optimize", {"graph": source, "passes": ["MergeLinears"]}).json()
    again = service.post("/v1/optimize", {"graph": run["result"], "passes": ["MergeLinears"]}).json()
    assert again["result"] == run["result"] != source
    assert service.post("/v1/reverse", {"graph": run["result"]}).json()["result"] == source
    made_by = service.get(f"/v1/graphs/{run['result']}/lineage").json()["made_by"]["items"]
    assert [item["id"] for item in made_by] == [run["id"]]

    service.post("/v1/optimize", {"graph": source, "passes": ["DeepCopy"]})
    answer = service.post("/v1/reverse", {"graph": source})
    assert (answer.status, answer.json()["code"]) == (409, "unrelated-graph")


def test_length_of_labels_is_in_characters(service):
    """As the description says: schemas count characters."""
    key, text = "é" * 256, "€" * 1024
    run = optimize(service, branches(2), ["MergeLinears"], labels={key: text})
    assert run["labels"] == {key: text}
    assert [item["id"] for item in service.get("/v1/runs", raw_query={"label": key}).json()["items"]] == [run["id"]]
    for labels in ({key + "e": "x"}, {"x": text + "e"}, {"": "x"}):
        answer = service.post("/v1/optimize", {"graph": run["source"], "passes": ["MergeLinears"], "labels": labels})
        assert (answer.status, answer.json()["code"]) == (422, "bad-label")
    for label in (key + "e", "é" * 1000, "e" * 2000, "=x"):
        answer = service.get("/v1/runs", raw_query={"label": label})
        assert (answer.status, answer.json()["code"]) == (422, "bad-label")
