"""Undo over runs that stand on each other: named or not, and of what is deployed."""

import json

import databases
import documents
import pytest
from documents import COMPOSED, batch_norm_fold, branches, ref
from test_http import is_problem
from test_runs import optimize
from undo import added, described, fresh, model, optimised, reverse, reversed_to

# ---- runs that stand on each other -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", documents.EACH)
def test_chain(shared, name):
    """Each of three runs is taken out from under the others: as if it had never been."""
    graph = json.loads(documents.document(name))
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        passes, runs, at_hand = [COMPOSED[i] for i in order], [], graph
        for pass_name in passes:
            runs.append(optimize(shared, at_hand, [pass_name]))
            at_hand = runs[-1]["result"]
        useful = [run for run in runs if run["source"] != run["result"]]
        for run in useful:
            back = reversed_to(shared, run, at_hand)
            expected = run["source"] if run is useful[-1] else useful[0]["source"]
            for other in useful:
                if other is not run and run is not useful[-1]:
                    expected = fresh(shared, expected, [other["passes"][0]["name"]])
            assert (back["result"], back["exact"], back["of_run"]) == (expected, True, run["id"])


def test_names_are_free_again_in_a_later_run(service):
    """The fold erases a node called cat; a later run of FuseBiasInLinear may call its own so, the same run may not."""
    fold = "FuseBatchNorm2dInConv2d"
    source, other = branches(2), json.loads(json.dumps(batch_norm_fold()).replace('"bn"', '"cat"').replace('"x"', '"image"'))
    for table in ("modules", "tensors"):
        source[table] += other[table][table == "modules" :]
    source["nodes"] = other["nodes"][:-1] + source["nodes"]
    source["nodes"][-1]["args"] = [{"$tuple": [ref("truediv"), ref("cat")]}]
    first = optimize(service, source, ["ChangeTrueDivToMulByInverse"])
    second = optimize(service, first["result"], [fold])
    third = optimize(service, second["result"], ["FuseBiasInLinear"])
    expected = fresh(service, fresh(service, source, [fold]), ["FuseBiasInLinear"])
    assert expected != fresh(service, source, [fold, "FuseBiasInLinear"])
    assert reversed_to(service, first, third["result"])["result"] == expected


def test_chain_that_was_changed(service):
    """The graph at hand came from the last of three runs, and was changed since."""
    runs, at_hand = [], model()
    for pass_name in COMPOSED:
        run, graph = optimised(service, at_hand, [pass_name])
        runs.append(run)
        at_hand = run["result"]
    changed_source = model()
    added(graph)
    added(changed_source)
    without_run = service.post("/v1/reverse", {"graph": graph}).json()
    assert without_run["of_run"] == runs[-1]["id"]
    named = service.post("/v1/reverse", {"graph": graph, "passes": COMPOSED[:1]}).json()
    assert (named["of_run"], named["result"]) == (runs[0]["id"], reversed_to(service, runs[0], graph)["result"])
    for i, run in enumerate(runs):
        expected = changed_source
        for name in COMPOSED[:i] + COMPOSED[i + 1 :]:
            expected = fresh(service, expected, [name])
        back = reversed_to(service, run, graph)
        assert (back["result"], back["exact"]) == (expected, False)


def test_chain_through_a_partial_undo(service):
    """optimise, take one pass out, optimise again; then the rest of the first run can still be undone."""
    first = optimize(service, model(), ["ChangeTrueDivToMulByInverse", "MergeLinears"])
    partial = reversed_to(service, first, passes=["ChangeTrueDivToMulByInverse"])
    last = optimize(service, partial["result"], ["FuseBiasInLinear"])
    back = reversed_to(service, first, last["result"])
    assert (back["result"], back["exact"]) == (fresh(service, model(), ["FuseBiasInLinear"]), True)
    assert [one["name"] for one in back["passes"]] == ["MergeLinears"]
    again = reversed_to(service, last, back["result"])
    assert (again["result"], again["exact"]) == (first["source"], True)
    is_problem(reverse(service, first, last["result"], ["ChangeTrueDivToMulByInverse"]), 422, "unknown-pass")


def test_changed_after_a_partial_undo(service):
    run = optimize(service, model(), COMPOSED)
    partial = reversed_to(service, run, passes=["MergeLinears"])
    graph, changed_source = partial["graph"], model()
    added(graph)
    added(changed_source)
    back = reversed_to(service, run, graph, ["FuseBiasInLinear"])
    assert back["result"] == fresh(service, changed_source, ["ChangeTrueDivToMulByInverse"])


def test_repetitions_hide_no_run(service):
    """A CI job optimises the same model again and again; any of its runs can be named."""
    first = optimize(service, model(), ["MergeLinears"])
    for _ in range(60):
        optimize(service, model(), ["MergeLinears"])
    last = optimize(service, first["result"], ["FuseBiasInLinear"])
    back = reversed_to(service, first, last["result"])
    assert (back["result"], back["exact"]) == (fresh(service, model(), ["FuseBiasInLinear"]), True)


def test_circle(service):
    """There and back again: every name is looked for in each run once."""
    there = optimize(service, model(), ["MergeLinears"])
    back = service.post("/v1/runs", {"source": there["result"], "result": there["source"], "name": "Unmerge"}).json()
    assert (back["source"], back["result"]) == (there["result"], there["source"])
    for graph in (there["source"], there["result"]):
        is_problem(service.post("/v1/reverse", {"graph": graph, "passes": ["DeepCopy"]}), 422, "unknown-pass")
    whole = service.post("/v1/reverse", {"graph": there["source"]}).json()
    assert (whole["of_run"], whole["result"]) == (back["id"], there["result"])
    assert reversed_to(service, back, there["source"])["result"] == there["result"]


# ---- without a run -----------------------------------------------------------------------------------------------------------


def test_reverse_undoes_the_last_run(service):
    runs, at_hand = [], model()
    for name in COMPOSED:
        runs.append(optimize(service, at_hand, [name]))
        at_hand = runs[-1]["result"]
    for run in reversed(runs):
        back = service.post("/v1/reverse", {"graph": at_hand}).json()
        assert (back["of_run"], back["result"], back["exact"]) == (run["id"], run["source"], True)
        at_hand = back["result"]
    back = service.post("/v1/reverse", {"graph": runs[-1]["result"], "passes": ["MergeLinears"]}).json()
    assert (back["of_run"], back["exact"]) == (runs[1]["id"], True)
    without = fresh(service, fresh(service, model(), COMPOSED[:1]), COMPOSED[2:])
    assert back["result"] == without
    problem = is_problem(service.post("/v1/reverse", {"graph": at_hand, "passes": ["MergeLinears"]}), 409)
    assert problem["code"] == "unrelated-graph"


def test_reverse_of_what_an_undo_left_over(service):
    run = optimize(service, model(), COMPOSED)
    partial = reversed_to(service, run, passes=["MergeLinears"])
    assert reversed_to(service, run, passes=["MergeLinears"])["result"] == partial["result"]  # twice is not ambiguous
    back = service.post("/v1/reverse", {"graph": partial["result"]}).json()
    assert (back["of_run"], back["result"], back["exact"]) == (run["id"], run["source"], True)
    assert [one["name"] for one in back["passes"]] == ["ChangeTrueDivToMulByInverse", "FuseBiasInLinear"]


def test_reverse_of_what_an_undo_left_over_of_two_runs(service):
    first = optimize(service, model(), ["DeepCopy", "ChangeTrueDivToMulByInverse", "MergeLinears"])
    last = optimize(service, first["result"], ["DeepCopy", "FuseBiasInLinear"])
    left = [reversed_to(service, first, last["result"], ["MergeLinears"])["result"] for _ in range(2)][0]
    one = service.post("/v1/reverse", {"graph": left, "passes": ["DeepCopy"]}).json()
    assert (one["of_run"], len(one["passes"])) == (last["id"], 1)  # of the last run only
    other = service.post("/v1/reverse", {"graph": left, "passes": ["ChangeTrueDivToMulByInverse"]}).json()
    assert (other["of_run"], other["result"]) == (first["id"], fresh(service, model(), ["FuseBiasInLinear"]))
    whole = service.post("/v1/reverse", {"graph": left}).json()
    assert (whole["of_run"], whole["result"]) == (last["id"], fresh(service, model(), ["ChangeTrueDivToMulByInverse"]))
    assert optimize(service, model(), ["ChangeTrueDivToMulByInverse", "FuseBiasInLinear"])["result"] == left
    problem = is_problem(service.post("/v1/reverse", {"graph": left}), 409, "ambiguous-run")  # to which graph?
    assert len(problem["runs"]) == 2


def test_the_nearest_run(service):
    """Of several runs whose marks a changed graph carries, the one is meant from whose result it differs least."""
    runs = [optimised(service, branches(count), ["MergeLinears", "ChangeTrueDivToMulByInverse"]) for count in (3, 4, 5)]
    for run, graph in runs:
        described(graph)
        assert service.post("/v1/reverse", {"graph": graph}).json()["of_run"] == run["id"]
    one, graph = optimised(service, {**model(), "metadata": {"version": 1}}, COMPOSED)
    other, _ = optimised(service, {**model(), "metadata": {"version": 2}}, COMPOSED)
    graph["metadata"] = {"version": 3}
    problem = is_problem(service.post("/v1/reverse", {"graph": graph}), 409, "ambiguous-run")
    assert problem["runs"] == [other["id"], one["id"]]
    optimize(service, {**model(), "metadata": {"version": 1}}, COMPOSED)  # a repetition: still those two
    assert len(is_problem(service.post("/v1/reverse", {"graph": graph}), 409)["runs"]) == 2


# ---- what is deployed --------------------------------------------------------------------------------------------------------


def deploy(service, body):
    service.request("PUT", "/v1/models/m/versions/v", body)
    answer = service.request("PUT", "/v1/models/m/aliases/live", {"version": "v"}, headers={"If-None-Match": "*"})
    assert answer.status == 201, answer


def roll_back(service, *passes):
    return service.post("/v1/models/m/aliases/live/rollback", {"passes": list(passes)})


@pytest.mark.parametrize("is_known", [True, False])
def test_deployed_after_further_runs(service, is_known):
    """Names reach back: to the run on which the deployed one stands, and to what undos left over."""
    first = optimize(service, model(), ["ChangeTrueDivToMulByInverse", "MergeLinears"])
    last = optimize(service, first["result"], ["FuseBiasInLinear"])
    deploy(service, {"run": last["id"]} if is_known else {"graph": last["result"]})
    assert is_problem(roll_back(service, "DeepCopy"), 422, "unknown-pass")["pointer"] == "/passes/0"
    alias = roll_back(service, "MergeLinears").json()
    assert alias["graph"] == fresh(service, fresh(service, model(), ["ChangeTrueDivToMulByInverse"]), ["FuseBiasInLinear"])
    run = service.get(f"/v1/runs/{alias['run']}").json()
    assert (run["kind"], run["of_run"], run["exact"]) == ("rollback", first["id"], True)
    is_problem(roll_back(service, "MergeLinears"), 422, "unknown-pass")
    alias = roll_back(service, "FuseBiasInLinear", "ChangeTrueDivToMulByInverse").json()
    assert alias["graph"] == first["source"]
    is_problem(roll_back(service, "MergeLinears"), 409, "nothing-to-undo")


def repeated(service, run, count):
    """Runs like that one, newer than it and with the same result."""
    names = service.sql("SELECT column_name FROM information_schema.columns WHERE table_name = 'runs'" if databases.IN_USE
                        else "SELECT name FROM pragma_table_info('runs')")
    columns = ", ".join(name for (name,) in names if name not in ("key", "id"))
    ids = ", ".join(f"('run_{number:026}')" for number in range(1, count + 1))
    service.sql(f"WITH new (new_id) AS (VALUES {ids}) INSERT INTO runs (id, {columns}) SELECT new_id, {columns} FROM new, runs "
                f"WHERE id = '{run['id']}'")


def test_deployed_after_many_runs_that_changed_nothing(service):
    """However many newer runs made the same graph, the one that made it by passes is found below another one."""
    first = optimize(service, model(), ["ChangeTrueDivToMulByInverse", "MergeLinears"])
    nothing = optimize(service, first["result"], ["DeepCopy"])
    assert nothing["source"] == nothing["result"]
    repeated(service, nothing, 1001)
    last = optimize(service, first["result"], ["FuseBiasInLinear"])
    without = fresh(service, fresh(service, model(), ["ChangeTrueDivToMulByInverse"]), ["FuseBiasInLinear"])
    assert reversed_to(service, first, last["result"], ["MergeLinears"])["result"] == without
    deploy(service, {"graph": last["result"]})
    assert roll_back(service, "MergeLinears").json()["graph"] == without


def test_deployed_itself_after_many_runs_that_changed_nothing(service):
    first = optimize(service, model(), ["ChangeTrueDivToMulByInverse", "MergeLinears"])
    repeated(service, optimize(service, first["result"], ["DeepCopy"]), 1001)
    deploy(service, {"graph": first["result"]})
    assert roll_back(service, "MergeLinears").json()["graph"] == fresh(service, model(), ["ChangeTrueDivToMulByInverse"])


def test_deployed_positions(service):
    run = optimize(service, model(), COMPOSED)
    deploy(service, {"run": run["id"]})
    assert roll_back(service, 1).json()["graph"] == fresh(service, model(), [COMPOSED[0], COMPOSED[2]])
    is_problem(roll_back(service, 1), 422, "unknown-pass")
    is_problem(roll_back(service, 3), 422, "bad-position")
    assert roll_back(service, 2).json()["graph"] == fresh(service, model(), COMPOSED[:1])


def test_deployed_after_it_was_changed(service):
    run, graph = optimised(service, model(), COMPOSED)
    added(graph)
    back = reversed_to(service, run, graph, ["MergeLinears"])
    deploy(service, {"run": back["id"]})
    problem = is_problem(roll_back(service, "FuseBiasInLinear"), 409, "nothing-to-undo")
    assert "it has changed since" in problem["detail"]


def test_deployed_and_made_by_no_run(service):
    run = optimize(service, model(), COMPOSED)
    deploy(service, {"graph": run["source"]})
    assert "no run made this graph" in is_problem(roll_back(service, "MergeLinears"), 409, "nothing-to-undo")["detail"]


def test_deployed_and_irreversible(service):
    """A rollback takes any pass out."""
    run = optimize(service, batch_norm_fold(), ["FuseBatchNorm2dInConv2d"])
    deploy(service, {"run": run["id"]})
    assert roll_back(service, "FuseBatchNorm2dInConv2d").json()["graph"] == run["source"]
