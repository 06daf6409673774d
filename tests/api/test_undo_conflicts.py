"""Undo on graphs whose weights were tuned, or that were changed where the run did."""

import base64
import copy
import json
import struct

import golden
import pytest
from documents import batch_norm_fold, branches, counts, linear, node, ref
from test_http import is_problem
from undo import META, conflicts, find, module, optimised, reverse, reversed_to, tensor

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
    assert [one["detail"] for one in problem["conflicts"]] == ["/training of module fc0-fc1-merged has changed since the run"]


def test_sentences_name_the_root_module(service):
    """Its path is empty. EvaluateConstants gives it a buffer."""
    graph = branches(2)
    graph["nodes"][1:1] = [node("two", "call_function", "torch.full", [[2, 4], 2.0], meta=META),
                           node("more", "call_function", "torch.add", [ref("x"), ref("two")], meta=META)]
    find(graph, "fc0")["args"] = [ref("more")]
    run, changed = optimised(service, graph, ["EvaluateConstants"])
    module(changed, "")["type"] = "Other"
    problem = is_problem(reverse(service, run, changed), 409, "conflict")
    assert [one["detail"] for one in problem["conflicts"]] == ['/type of module "" has changed since the run']


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
                              "parameters": {"weight": "fc1.weight", "bias": None}})
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


@pytest.mark.parametrize("told", [{"data": base64.b64encode(bytes(16)).decode()}, {}])
def test_a_constant_that_a_pass_made_has_other_bytes(service, told):
    """Or none at all, which nobody can compare."""
    run, graph = optimised(service, golden.read("EvaluateConstants/causal-mask"), ["EvaluateConstants"])
    (constant,) = graph["tensors"]
    reversed_to(service, run, graph)
    for key in ("data", "digest"):
        constant.pop(key, None)
    constant.update(told)
    assert conflicts(reverse(service, run, graph)) == [("constant-changed", "tensor", constant["name"])]
