"""Undo: one pass of several, on graphs that were changed since, over runs that stand on each other."""

import base64
import copy
import itertools
import json
import struct

import pytest

import documents
from documents import COMPOSED, batch_norm_fold, branches, counts, linear, node, ref
from test_http import is_problem
from test_runs import optimize

META = {"shape": [2, 4], "dtype": "float32"}


def optimised(service, graph, passes):
    """The run, and its result as a client has it."""
    run = optimize(service, graph, passes, options={"include": ["graph"]})
    return run, run.pop("graph")


def reverse(service, run, graph=None, passes=None, **more):
    body = {"options": {"include": ["graph"]}, **more}
    if graph is not None:
        body["graph"] = graph
    if passes is not None:
        body["passes"] = passes
    return service.post(f"/v1/runs/{run['id']}/reverse", body)


def reversed_to(service, run, graph=None, passes=None):
    answer = reverse(service, run, graph, passes)
    assert answer.status == 201, answer.body
    return answer.json()


def conflicts(answer):
    problem = is_problem(answer, 409, "conflict")
    assert problem["conflicts"] and all(len(one["detail"]) > 10 for one in problem["conflicts"])
    return sorted((one["code"], one["kind"], one["name"]) for one in problem["conflicts"])


def fresh(service, graph, passes):
    """The id that a fresh run of these passes gives."""
    if passes:
        return optimize(service, graph, passes)["result"]
    return service.post("/v1/graphs", graph).json()["id"]


def find(graph, name):
    return next(one for one in graph["nodes"] if one["name"] == name)


def module(graph, path):
    return next(one for one in graph["modules"] if one["path"] == path)


def tensor(graph, name):
    return next(one for one in graph["tensors"] if one["name"] == name)


def model():
    """Three Linears on one input, and a branch of its own that no pass touches."""
    graph = branches(3)
    graph["nodes"].insert(-1, node("extra", "call_function", "torch.neg", [ref("x")], meta=META))
    return graph


# ---- one pass of several -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", documents.NAMES)
def test_every_pass_alone(shared, name):
    graph = json.loads(documents.document(name))
    run = optimize(shared, graph, COMPOSED)
    for position, pass_name in enumerate(COMPOSED):
        expected = fresh(shared, graph, [one for one in COMPOSED if one != pass_name])
        for undone in (position, pass_name):
            back = reversed_to(shared, run, passes=[undone])
            assert back["result"] == expected and back["exact"] is True
            assert back["passes"] == [run["passes"][position]]


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


def added(graph):
    output = graph["nodes"][-1]
    graph["nodes"].insert(-1, node("tail", "call_function", "torch.relu", list(output["args"]), meta=META))
    output["args"] = [ref("tail")]


def edited(graph):
    find(graph, "add_2")["kwargs"] = {"alpha": 2}


def described(graph):
    graph["name"] = "mine"
    graph["metadata"] = {"who": "me"}


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


def without_marks(graph):
    for one in graph["nodes"]:
        one["meta"].pop("transformations", None)


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


# ---- weights -----------------------------------------------------------------------------------------------------------------


def numbers(count, start):
    return struct.pack(f"<{count}f", *(start + i for i in range(count)))


def size(one):
    count = 1
    for length in one["shape"]:
        count *= length
    return count


def with_data(graph):
    graph = copy.deepcopy(graph)
    for i, one in enumerate(graph["tensors"]):
        one["data"] = base64.b64encode(numbers(size(one), 1000 * i)).decode()
    return graph


def tune(graph, name, **told):
    """The tensor has other bytes now; what it was made from goes away where nothing else needs it."""
    one = tensor(graph, name)
    del one["recipe"]
    one.update(told)
    for _ in range(3):  # what is read by what is not read
        text = json.dumps([graph["modules"], [other.get("recipe") for other in graph["tensors"]]])
        graph["tensors"] = [other for other in graph["tensors"] if json.dumps(other["name"]) in text]


def test_tuned_data_comes_back(service):
    run, graph = optimised(service, with_data(branches(3)), ["MergeLinears"])
    name = module(graph, "fc0-fc1-fc2-merged")["parameters"]["weight"]
    tune(graph, name, data=base64.b64encode(numbers(48, 7000)).decode())
    back = reversed_to(service, run, graph)
    rows = {one["name"]: one for one in back["graph"]["tensors"]}
    source = {one["name"]: one for one in with_data(branches(3))["tensors"]}
    parts = [back_module["parameters"] for back_module in back["graph"]["modules"] if back_module["path"]]
    assert len(parts) == 3
    for i, owned in enumerate(parts):
        weight = rows[owned["weight"]]
        assert weight["recipe"]["op"] == "slice"
        assert (weight["recipe"]["start"], weight["recipe"]["stop"]) == (4 * i, 4 * i + 4)
        tuned = rows[weight["recipe"]["args"][0]]
        assert base64.b64decode(tuned["data"]) == numbers(48, 7000)
        assert rows[owned["bias"]]["data"] == source[f"fc{i}.bias"]["data"]  # was not tuned


@pytest.mark.parametrize("passes", [["MergeLinears"], ["MergeLinears", "FuseBiasInLinear"]])
def test_tuned_digest_comes_back(service, passes):
    """Without any bytes: a digest says that the tensor changed."""
    run, graph = optimised(service, branches(2), passes)
    name = module(graph, "fc0-fc1-merged")["parameters"]["weight"]
    tune(graph, name, digest="sha256:" + "a" * 64)
    back = reversed_to(service, run, graph, ["MergeLinears"] if len(passes) == 1 else None)
    rows = {one["name"]: one for one in back["graph"]["tensors"]}
    for path in ("fc0", "fc1"):
        weight = rows[module(back["graph"], path)["parameters"]["weight"]]
        assert weight["recipe"], weight
        assert weight["shape"] == [4, 4]


# ---- conflicts ---------------------------------------------------------------------------------------------------------------


def new_user(graph):
    merged = next(one["name"] for one in graph["nodes"] if one["name"].endswith("merged"))
    at = graph["nodes"].index(find(graph, merged)) + 1
    graph["nodes"].insert(at, node("spy", "call_function", "torch.neg", [ref(merged)]))


def gone(graph):
    erased_node = find(graph, "add_1")
    graph["nodes"].remove(erased_node)
    find(graph, "add_2")["args"][0] = erased_node["args"][0]


def other_name(graph):
    old = next(one["name"] for one in graph["nodes"] if one["name"].endswith("merged"))
    changed = json.loads(json.dumps(graph).replace(json.dumps(old), '"together"'))
    graph.clear()
    graph.update(changed)


def path_taken(graph):
    one, tensors = linear("other")
    graph["modules"].append({**one, "path": "fc1"})
    graph["tensors"].extend(tensors)
    graph["nodes"].insert(1, node("mine", "call_module", "fc1", [ref("x")]))


def module_changed(graph):
    one = next(one for one in graph["modules"] if one["path"].endswith("merged"))
    one["training"] = True


def test_a_conflict_says_what_changed(service):
    run, graph = optimised(service, branches(2), ["MergeLinears"])
    module_changed(graph)
    problem = reverse(service, run, graph).json()
    assert [one["detail"] for one in problem["conflicts"]] == ["/training of module fc0-fc1-merged was changed since"]


def node_changed(graph):
    merged = next(one for one in graph["nodes"] if one["name"].endswith("merged"))
    graph["nodes"].insert(1, node("softer", "call_function", "torch.tanh", [ref("x")], meta=META))
    merged["args"] = [ref("softer")]


@pytest.mark.parametrize(
    "change,expected",
    [
        (new_user, ("new-users", "node", "fc0_fc1_merged")),
        (other_name, ("renamed-node", "node", "fc0_fc1_merged")),
        (path_taken, ("path-taken", "module", "fc1")),
        (module_changed, ("changed-module", "module", "fc0-fc1-merged")),
        (node_changed, ("changed-node", "node", "fc0_fc1_merged")),
    ],
)
def test_conflict(service, change, expected):
    run, graph = optimised(service, branches(2), ["MergeLinears"])
    change(graph)
    before = counts(service)
    for passes in (None, ["MergeLinears"]):
        assert expected in conflicts(reverse(service, run, graph, passes))
    if change is not other_name:  # then only the run's nodes tell where the graph is from
        assert expected in conflicts(service.post("/v1/reverse", {"graph": graph}))
    assert counts(service) == before  # nothing was done in part


def test_all_conflicts_together(service):
    run, graph = optimised(service, branches(2), ["MergeLinears"])
    for change in (new_user, path_taken, module_changed):
        change(graph)
    assert {code for code, _, _ in conflicts(reverse(service, run, graph))} >= {"new-users", "path-taken", "changed-module"}


@pytest.mark.parametrize("told", [{"digest": "sha256:" + "a" * 64}, {"data": base64.b64encode(numbers(32, 5)).decode()}])
def test_tied_weights(service, told):
    """One original is owned elsewhere too, and has not changed there."""
    source = branches(2)
    source["modules"].append({"path": "again", "type": "torch.nn.Linear",
                              "config": {"in_features": 4, "out_features": 4, "bias": False},
                              "parameters": {"weight": "fc1.weight", "bias": None}})  # fmt: skip
    source["nodes"].insert(-1, node("again", "call_module", "again", [ref("truediv")], meta=META))
    source["nodes"][-1]["args"] = [ref("again")]
    run, graph = optimised(service, source, ["MergeLinears"])
    tune(graph, module(graph, "fc0-fc1-merged")["parameters"]["weight"], **told)
    assert [(code, kind) for code, kind, _ in conflicts(reverse(service, run, graph))] == [("tied", "tensor")]


def test_constants_of_weights(service):
    """Where one Linear has no bias, zeros stand in the merged one: others there belong to nobody."""
    source = with_data(branches(2))
    source["tensors"].remove(tensor(source, "fc0.bias"))
    module(source, "fc0")["config"]["bias"], module(source, "fc0")["parameters"]["bias"] = False, None
    run, graph = optimised(service, source, ["MergeLinears"])
    name = module(graph, "fc0-fc1-merged")["parameters"]["bias"]
    for zeros, expected in ((0.0, None), (1.0, ("constant-changed", "tensor", name))):
        changed = copy.deepcopy(graph)
        tune(changed, name, data=base64.b64encode(struct.pack("<8f", *[zeros] * 4, 5, 6, 7, 8)).decode())
        answer = reverse(service, run, changed)
        if expected:
            assert conflicts(answer) == [expected]
        else:
            assert answer.status == 201, answer.body
            assert module(answer.json()["graph"], "fc0")["parameters"]["bias"] is None
    tune(graph, name, digest="sha256:" + "c" * 64)
    assert conflicts(reverse(service, run, graph)) == [("constant-changed", "tensor", name)]


def test_copies_of_weights(service):
    """One weight is in both merged ones, which were tuned apart."""
    source, second = branches(2), json.loads(json.dumps(branches(2)).replace("fc", "gc").replace('"x"', '"y"'))
    second["nodes"][0]["name"] = second["nodes"][0]["target"] = "y"
    text = json.dumps(second["nodes"]).replace("add_1", "add_2").replace('"truediv"', '"truediv_1"')
    source["nodes"] = source["nodes"][:1] + json.loads(text)[:1] + source["nodes"][1:-1] + json.loads(text)[1:]
    source["nodes"][-1]["args"] = [{"$tuple": [ref("truediv"), ref("truediv_1")]}]
    source["modules"] += second["modules"][1:]
    source["tensors"] += [one for one in second["tensors"] if one["name"] != "gc0.weight"]
    module(source, "gc0")["parameters"]["weight"] = "fc0.weight"
    run, graph = optimised(service, source, ["MergeLinears"])
    for i, path in enumerate(("fc0-fc1-merged", "gc0-gc1-merged")):
        tune(graph, module(graph, path)["parameters"]["weight"], digest="sha256:" + str(i) * 64)
    assert {(code, kind) for code, kind, _ in conflicts(reverse(service, run, graph))} == {("copies-diverged", "tensor")}


def test_computed_weights(service):
    """A folded BatchNorm cannot be reversed, and what a client tuned cannot be cut out of the folded weight."""
    run, graph = optimised(service, batch_norm_fold(), ["FuseBatchNorm2dInConv2d"])
    tune(graph, module(graph, "conv")["parameters"]["weight"], digest="sha256:" + "b" * 64)
    is_problem(reverse(service, run, graph), 409, "irreversible")


# ---- runs that stand on each other -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", documents.NAMES)
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


# ---- what is deployed ----------------------------------------------------------------------------------------------------------


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
    assert "it was changed since" in problem["detail"]


def test_deployed_and_made_by_no_run(service):
    run = optimize(service, model(), COMPOSED)
    deploy(service, {"graph": run["source"]})
    assert "no run made this graph" in is_problem(roll_back(service, "MergeLinears"), 409, "nothing-to-undo")["detail"]


def test_deployed_and_irreversible(service):
    """A rollback takes any pass out."""
    run = optimize(service, batch_norm_fold(), ["FuseBatchNorm2dInConv2d"])
    deploy(service, {"run": run["id"]})
    assert roll_back(service, "FuseBatchNorm2dInConv2d").json()["graph"] == run["source"]


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
