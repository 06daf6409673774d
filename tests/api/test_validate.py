"""options.validate of a run: what each pass did is held against what it began with, and a run that fails is not stored."""

import base64
import json
import math
import os
import re
import struct
from pathlib import Path

import golden
import pytest
from blobs import stored as stored_blob
from conftest import is_sanitized
from documents import FIXTURES, NAMES, batch_norm_fold, branches, counts, node, ref
from test_compare import PASSES
from test_evaluate import bound
from weights_files import file_of

STRICT = {"absolute": 0, "relative": 0}
SMALL = [name for name in NAMES if name not in ("bert-base", "resnet50")]


def optimize(service, graph, passes, **options):
    return service.post("/v1/optimize", {"graph": graph, "passes": passes, "options": options})


def run_of(service, graph, passes, **options):
    answer = optimize(service, graph, passes, **options)
    assert answer.status == (200 if options.get("dry_run") else 201), answer
    return answer.json()


@pytest.mark.parametrize("mode", ["rewrites", "graph"])
@pytest.mark.parametrize("name", SMALL)
def test_every_fixture_passes_without_its_weights(shared, name, mode):
    graph = (FIXTURES / name / "graph.json").read_bytes()
    query = [("pass", one) for one in PASSES] + [("validate", mode), ("seed", 3)]
    answer = shared.post("/v1/optimize", graph, raw_query=query)
    assert answer.status == 201, answer
    run = answer.json()
    assert run["validation"] == {"mode": mode, "passes": True, "complete": True}
    for one in run["passes"]:
        assert ("validation" in one) == (one["applied"] > 0)
        if not one["applied"]:
            continue
        found = one["validation"]
        assert found["regions" if mode == "rewrites" else "outputs"] > 0 and found["not_evaluated"] == []
        assert found["max_relative"] < 1e-5
        assert found["before_against_float64"]["max_relative"] < 1e-5 and found["after_against_float64"]["max_relative"] < 1e-5
        assert one["exactness"] != "moves" or found["max_relative"] < 1e-6


@pytest.mark.parametrize("mode", ["rewrites", "graph"])
def test_with_weights(shared, mode):
    run = run_of(shared, bound(shared, "toy"), PASSES, validate=mode)
    assert run["validation"] == {"mode": mode, "passes": True, "complete": True}


def test_it_is_stored_with_the_run(service):
    run = run_of(service, branches(), ["MergeLinears"], validate="rewrites")
    stored = service.get(f"/v1/runs/{run['id']}").json()
    assert stored == run and stored["passes"][0]["validation"]["regions"] == 1
    (listed,) = service.get("/v1/runs").json()["items"]
    assert listed["validation"] == run["validation"] and "validation" not in listed["passes"][0]
    service.restart()
    assert service.get(f"/v1/runs/{run['id']}").json() == run


def test_off_is_the_default(shared):
    for options in ({}, {"validate": "off"}):
        run = run_of(shared, branches(), ["MergeLinears"], **options)
        assert "validation" not in run and "validation" not in run["passes"][0]


def test_the_result_is_the_same(shared):
    plain = run_of(shared, branches(), ["MergeLinears", "ChangeTrueDivToMulByInverse"])
    validated = run_of(shared, branches(), ["MergeLinears", "ChangeTrueDivToMulByInverse"], validate="rewrites")
    assert validated["result"] == plain["result"] and validated["signature"] == plain["signature"]


def test_a_repeated_request_is_answered_alike(shared):
    body = {"graph": branches(name="again"), "passes": ["MergeLinears"], "options": {"validate": "rewrites"}}
    first, again = (shared.post("/v1/optimize", body, headers={"Idempotency-Key": "validated"}) for _ in range(2))
    assert first.body == again.body and first.json()["validation"]["passes"]


@pytest.mark.parametrize(("mode", "numbers"), [("rewrites", "regions"), ("graph", "outputs")])
def test_a_run_that_fails_is_not_stored(service, mode, numbers):
    """A fold rounds, so it differs when nothing at all is tolerated."""
    for dry_run in (True, False):
        passes = ["MergeLinears", "FuseBatchNorm2dInConv2d"]
        answer = optimize(service, batch_norm_fold(), passes, validate=mode, tolerance=STRICT, dry_run=dry_run)
        problem = answer.json()
        assert (answer.status, problem["code"]) == (422, "validation-failed")
        assert problem["pass"] == {"name": "FuseBatchNorm2dInConv2d", "position": 1}
        assert problem["nodes"] == ["conv"] and "FuseBatchNorm2dInConv2d" in problem["detail"]
        (one,) = problem[numbers]
        assert one.get("nodes", ["conv"]) == ["conv"] and one.get("name", "output.0") == "output.0"
        assert 0 < one["max_absolute"] < 1e-4 and 0 < one["max_relative"] < 1e-5 and one["max_ulp"] >= 1
        assert counts(service) == (0, 0)
    # With what rounding explains it passes.
    assert optimize(service, batch_norm_fold(), ["FuseBatchNorm2dInConv2d"], validate=mode).status == 201


def test_what_others_read_of_a_rewritten_part_stays_and_passes(shared):
    """silu(x) is made of x and sigmoid(x), and sigmoid(x) is read by others too: it is no value of its own."""
    assert shared.post("/v1/transformations", golden.RULES["FuseSilu"]).status in (200, 201)
    graph = golden.read("rules/silu-of-one-gate-twice")
    graph["nodes"][-1]["args"] = [{"$tuple": [ref("a"), ref("b"), ref("gate")]}]
    run = run_of(shared, graph, ["FuseSilu"], validate="rewrites")
    assert run["passes"][0]["applied"] == 2
    assert run["validation"] == {"mode": "rewrites", "passes": True, "complete": True}


def test_a_tolerance_of_ones_own(shared):
    run = run_of(shared, batch_norm_fold(), ["FuseBatchNorm2dInConv2d"], validate="rewrites", tolerance={"relative": 1e-3})
    assert run["validation"]["passes"]


def test_dry_runs_are_validated(service):
    run = run_of(service, branches(), ["MergeLinears"], validate="graph", dry_run=True)
    assert run["id"] is None and run["validation"]["passes"] and counts(service) == (0, 0)


def unsupported():
    """The division's input is of a function that nobody knows."""
    graph = branches()
    for one in graph["nodes"]:
        if one["name"] == "truediv":
            one["args"] = [ref("own"), 8]
    meta = {"shape": [2, 4], "dtype": "float32"}
    graph["nodes"].insert(-2, node("own", "call_function", "my.own.function", [ref("add_1")], meta=meta))
    return graph


def test_what_is_not_rewritten_need_not_be_supported(shared):
    run = run_of(shared, unsupported(), ["MergeLinears", "ChangeTrueDivToMulByInverse"], validate="rewrites")
    assert run["validation"] == {"mode": "rewrites", "passes": True, "complete": True}


def test_what_cannot_be_evaluated_is_reported(shared):
    run = run_of(shared, unsupported(), ["MergeLinears"], validate="graph")
    assert run["validation"] == {"mode": "graph", "passes": None, "complete": False}
    found = run["passes"][0]["validation"]
    assert found["outputs"] == 0 and found["max_absolute"] is None and found["after_against_float64"]["max_ulp"] is None
    (one,) = found["not_evaluated"]
    assert one["code"] == "unsupported-operator" and one["nodes"] == ["own"] and one["detail"]


def test_without_shapes_nothing_is_shown(shared):
    graph = branches()
    for one in graph["nodes"]:
        one.pop("meta", None)
    run = run_of(shared, graph, ["MergeLinears"], validate="rewrites")
    assert run["passes"][0]["applied"] and not run["validation"]["complete"] and run["validation"]["passes"] is None
    (one,) = run["passes"][0]["validation"]["not_evaluated"]
    assert one["code"] == "missing-shape" and one["nodes"]


def test_undoing_a_validated_run(shared):
    run = run_of(shared, branches(name="undone"), ["MergeLinears", "ChangeTrueDivToMulByInverse"], validate="rewrites")
    undone = shared.post(f"/v1/runs/{run['id']}/reverse", {}).json()
    assert undone["result"] == run["source"] and undone["exact"] and "validation" not in undone


def test_limits(new_service):
    service = new_service("--evaluation-memory", "16K")
    answer = optimize(service, branches(), ["MergeLinears"], validate="graph")
    assert answer.status == 201
    big = branches(name="big")
    for one in big["nodes"]:
        if "meta" in one:
            one["meta"]["shape"] = [20000, 4]
    answer = optimize(service, big, ["MergeLinears"], validate="rewrites")
    assert (answer.status, answer.json()["code"]) == (413, "evaluation-too-large")
    assert optimize(service, big, ["MergeLinears"]).status == 201


def norms(layers=3, inputs=1024, outputs=16384):
    """Layers of LayerNorm and Linear on inputs of their own; each Linear has a weight of 64 MiB."""
    modules, tensors, nodes = [{"path": "", "type": "Model"}], [], []
    meta = {"shape": [4, inputs], "dtype": "float32"}
    for i in range(layers):
        config = {"normalized_shape": {"$tuple": [inputs]}, "eps": 1e-05, "elementwise_affine": True, "bias": False}
        modules += [
            {"path": f"norm{i}", "type": "torch.nn.LayerNorm", "config": config,
             "parameters": {"weight": f"norm{i}.weight", "bias": None}},
            {
                "path": f"fc{i}",
                "type": "torch.nn.Linear",
                "config": {"in_features": inputs, "out_features": outputs, "bias": False},
                "parameters": {"weight": f"fc{i}.weight", "bias": None},
            },
        ]
        tensors.append({"name": f"norm{i}.weight", "dtype": "float32", "shape": [inputs]})
        tensors.append({"name": f"fc{i}.weight", "dtype": "float32", "shape": [outputs, inputs]})
        nodes.append(node(f"x{i}", "placeholder", f"x{i}", meta=meta))
        nodes.append(node(f"norm{i}", "call_module", f"norm{i}", [ref(f"x{i}")], meta=meta))
        nodes.append(node(f"fc{i}", "call_module", f"fc{i}", [ref(f"norm{i}")], meta={**meta, "shape": [4, outputs]}))
    nodes.append(node("output", "output", "output", [[ref(f"fc{i}") for i in range(layers)]]))
    return {"format": "foldback.graph/1", "name": "norms", "nodes": nodes, "modules": modules, "tensors": tensors}


@pytest.mark.heavy
def test_weights_may_be_larger_than_the_memory(new_service):
    """They are drawn a part at a time; and of equal layers one is evaluated."""
    service = new_service("--evaluation-memory", "48M")
    run = run_of(service, norms(), ["FoldNormIntoLinear"], validate="rewrites")
    (one,) = run["passes"]
    assert run["validation"] == {"mode": "rewrites", "passes": True, "complete": True}
    assert (one["applied"], one["validation"]["regions"], one["validation"]["equal_regions"]) == (3, 3, 2)
    assert 0 < one["validation"]["max_relative"] < 1e-5
    alone = run_of(service, norms(layers=1), ["FoldNormIntoLinear"], validate="rewrites")["passes"][0]["validation"]
    assert alone.pop("regions") == 1 and alone == {key: one["validation"][key] for key in alone}  # the first one's numbers
    answer = optimize(service, norms(layers=1), ["FoldNormIntoLinear"], validate="graph")
    assert answer.status == 201, answer


@pytest.mark.nightly
def test_a_llama_of_eight_billion_parameters(new_service):
    """It was exported without weights: those of one matrix alone take 2 GB in float32. It must take less than 60 s of CPU."""
    service = new_service()
    graph = json.loads((FIXTURES.parent.parent / "deploy" / "llama-8b.json").read_text())
    process = Path(f"/proc/{service.process.pid}")
    run = run_of(service, graph, ["inference", "MergeLinears"], validate="rewrites")
    assert run["validation"] == {"mode": "rewrites", "passes": True, "complete": True}
    found = {one["name"]: one["validation"] for one in run["passes"] if one["applied"] and one["validation"]["regions"]}
    assert found["FoldNormIntoLinear"]["regions"] == 65 and found["FoldNormIntoLinear"]["equal_regions"] == 62
    assert found["MergeLinears"]["regions"] == 64 and found["MergeLinears"]["equal_regions"] == 62
    resident = int(re.search(r"VmHWM:\s*(\d+) kB", (process / "status").read_text())[1]) >> 10
    assert resident < 1024, f"{resident} MiB"
    used = (process / "stat").read_text().rpartition(")")[2].split()
    seconds = (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")
    assert seconds < 60 or is_sanitized(), f"{seconds} s"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"validate": "all"}, "unknown-option-value"),
        ({"validate": True}, "wrong-type"),
        ({"validate": "graph", "seed": -1}, "wrong-type"),
        ({"validate": "graph", "tolerance": {"absolute": "1"}}, "wrong-type"),
        ({"validate": "graph", "tolerance": []}, "wrong-type"),
        ({"validate": "graph", "tolerance": {"ulps": 1}}, "unknown-member"),
    ],
)
def test_bad_options(shared, options, code):
    answer = optimize(shared, branches(), ["MergeLinears"], **options)
    assert (answer.status, answer.json()["code"]) == (422, code)
    assert answer.json()["pointer"].startswith("/options/")


@pytest.mark.parametrize("query", ["validate=all", "seed=x", "seed=-1", "validate=graph&validate=graph"])
def test_bad_parameters(shared, query):
    answer = shared.post("/v1/optimize", branches(), raw_query=f"pass=MergeLinears&{query}")
    assert answer.status == 422 and answer.json()["parameter"] in ("validate", "seed")


def test_an_undo_takes_no_validation(shared):
    run = run_of(shared, branches(name="no validation"), ["MergeLinears"])
    answer = shared.post(f"/v1/runs/{run['id']}/reverse", {"options": {"validate": "graph"}})
    assert (answer.status, answer.json()["code"]) == (422, "unknown-option")


@pytest.mark.parametrize("mode", ["rewrites", "graph"])
def test_numbers_are_as_close_as_the_narrowest_dtype_that_they_went_through(shared, mode):
    """A weight in bfloat16 is rounded once where it was rounded twice: half a unit of bfloat16 apart, in a float32 sum."""
    typed = {"shape": [8], "dtype": "float16"}
    data = "YjDvuf806rKQP429MLylLw=="  # the last, times 3, lies between two numbers of bfloat16
    nodes = [
        {"name": "x", "op": "placeholder", "target": "x", "meta": {"shape": [8], "dtype": "float32"}},
        {"name": "w", "op": "get_attr", "target": "w", "meta": typed},
        {"name": "mul", "op": "call_function", "target": "operator.mul", "args": [{"$node": "w"}, 3], "meta": typed},
        {"name": "cast", "op": "call_method", "target": "bfloat16", "args": [{"$node": "mul"}],
         "meta": {"shape": [8], "dtype": "bfloat16"}},
        {"name": "add", "op": "call_function", "target": "operator.add", "args": [{"$node": "x"}, {"$node": "cast"}],
         "meta": {"shape": [8], "dtype": "float32"}},
        {"name": "output", "op": "output", "target": "output", "args": [{"$node": "add"}]},
    ]
    root = {"path": "", "type": "torch.nn.Module", "parameters": {"w": "w"}}
    graph = {"format": "foldback.graph/1", "name": "narrow", "nodes": nodes, "modules": [root],
             "tensors": [{"name": "w", **typed, "data": data}]}
    for seed in range(20):  # of the inputs, and of the weights
        run_of(shared, graph, ["FoldConstants"], validate=mode, seed=seed, include=[])


@pytest.mark.parametrize("name", SMALL)
def test_a_tolerance_compares_what_is_meant_to_change(shared, name):
    graph = json.loads((FIXTURES / name / "graph.json").read_bytes())
    (said,) = run_of(shared, graph, ["QuantizeWeights"], validate="rewrites")["passes"]
    assert [one["code"] for one in said["validation"]["not_evaluated"]] == ["not-compared"] and "each" not in said["validation"]
    run = run_of(shared, graph, ["QuantizeWeights"], validate="rewrites", tolerance={"relative": 0.03})
    (found,) = [one["validation"] for one in run["passes"]]
    assert run["validation"] == {"mode": "rewrites", "passes": True, "complete": True}
    assert len(found["each"]) == found["regions"] > 0 and found["not_evaluated"] == []
    assert max(one["max_relative"] for one in found["each"]) == found["max_relative"] < 0.03
    for one in found["each"]:
        assert one["nodes"] and 0 < one["rms_relative"] < 0.03 and 0 < one["max_relative"]
    weights = said["weight_bytes"]
    assert 0.25 < weights["after"] / weights["before"] < 0.8
    refused = optimize(shared, graph, ["QuantizeWeights"], validate="rewrites", tolerance={"relative": 1e-5})
    assert (refused.status, refused.json()["code"]) == (422, "validation-failed") and refused.json()["regions"]


def test_a_tolerance_compares_weights_in_four_bits(shared):
    """The error of every layer, the bytes, and a refusal; whose bytes come to an eighth and the scales."""
    graph = json.loads((FIXTURES / "aten-bert" / "graph.json").read_bytes())
    change = [{"name": "QuantizeWeights", "params": {"bits": 4, "group_size": 32}}]
    (said,) = run_of(shared, graph, change, validate="rewrites", tolerance={"relative": 0.3})["passes"]
    found = said["validation"]
    assert len(found["each"]) == found["regions"] == said["applied"] > 10 and found["not_evaluated"] == []
    for one in found["each"]:
        assert one["nodes"] and 0.01 < one["rms_relative"] < 0.2 and 0.01 < one["max_relative"] < 0.3
    eight = run_of(shared, graph, ["QuantizeWeights"])["passes"][0]["weight_bytes"]
    four, before = said["weight_bytes"]["after"], eight["before"]
    assert said["weight_bytes"]["before"] == before and before - four > 1.1 * (before - eight["after"])
    refused = optimize(shared, graph, change, validate="rewrites", tolerance={"relative": 0.01})
    assert (refused.status, refused.json()["code"]) == (422, "validation-failed") and refused.json()["regions"]


def test_a_tolerance_compares_the_outputs_of_what_is_meant_to_change(shared):
    graph = json.loads((FIXTURES / "bert-tiny" / "graph.json").read_bytes())
    change = [{"name": "ConvertPrecision", "params": {"to": "float16"}}]
    (found,) = [one["validation"] for one in run_of(shared, graph, change, validate="graph",
                                                    tolerance={"relative": 0.01})["passes"]]
    assert found["outputs"] > 0 and "each" not in found and 0 < found["max_relative"] < 0.01
    assert optimize(shared, graph, change, validate="graph", tolerance={"relative": 1e-6}).json()["code"] == "validation-failed"


# ---- what is meant to change the result, judged by its task ------------------------------------------------------------------


def classifier(service):
    """relu(x W), whose largest element is the class."""
    weight = struct.pack("<12f", 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0)
    graph = {
        "format": "foldback.graph/1", "modules": [{"path": "", "type": "Net", "parameters": {"w": "w"}}],
        "tensors": [{"name": "w", "dtype": "float32", "shape": [3, 4], "data": base64.b64encode(weight).decode()}],
        "nodes": [
            node("x", "placeholder", "x", meta={"shape": [5, 3], "dtype": "float32"}), node("w", "get_attr", "w"),
            node("matmul", "call_function", "torch.matmul", [ref("x"), ref("w")], meta={"shape": [5, 4], "dtype": "float32"}),
            node("relu", "call_function", "torch.relu", [ref("matmul")], meta={"shape": [5, 4], "dtype": "float32"}),
            node("output", "output", "output", [ref("relu")]),
        ],
    }
    return graph


ROWS = [3.0, 1, 2, 0, 2, 1, 1, 0, 4, -1, -2, -3, -0.5, -0.4, -0.3]  # of the last two rows relu leaves nothing
ACTIVATION = [{"name": "ReplaceActivation", "params": {"from": "relu", "to": "gelu"}}]


def task_file(service, **more):
    tensors = {"x": ("float32", [5, 3], struct.pack("<15f", *ROWS))} | more
    return stored_blob(service, file_of(tensors))


def judged(service, metric, passes=ACTIVATION, **more):
    file = more.pop("file", None) or task_file(service)
    return optimize(service, classifier(service), passes, validate={"inputs": file, "metric": metric, **more})


def test_a_run_is_judged_by_its_task(service):
    answer = judged(service, "cosine", at_least=0.9)
    assert answer.status == 201, answer
    run = answer.json()
    (one,) = run["validation"]["outputs"]
    assert 0.98 < one["value"] < 1 and one["before"] is None and one["passes"]
    assert {key: run["validation"][key] for key in ("mode", "passes", "complete", "metric", "at_least")} == {
        "mode": "task", "passes": True, "complete": True, "metric": "cosine", "at_least": 0.9}
    assert service.get(f"/v1/runs/{run['id']}").json()["validation"] == run["validation"]
    version = service.request("PUT", "/v1/models/m/versions/v1", {"run": run["id"]}).json()
    assert version["validation"] == run["validation"]
    assert service.get("/v1/models/m/versions").json()["items"] == [version]
    before = counts(service)
    answer = judged(service, "cosine", at_least=0.9999999)
    assert (answer.status, answer.json()["code"]) == (422, "validation-failed"), answer
    assert answer.json()["measured"] == [{**one, "passes": False}] and counts(service) == before


def gelu(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def test_the_measures_are_what_they_say(shared):
    relu = [max(value, 0) for value in ROWS]
    other = [gelu(value) for value in ROWS]
    assert judged(shared, "mse", at_most=1).json()["validation"]["outputs"][0]["value"] == pytest.approx(
        sum((a - b) ** 2 for a, b in zip(relu, other)) / 20, rel=1e-5)
    assert judged(shared, "max-relative", at_most=1).json()["validation"]["outputs"][0]["value"] == pytest.approx(
        max(abs(a - b) for a, b in zip(relu, other)) / 4, rel=1e-5)
    dot, square = sum(a * b for a, b in zip(relu, other)), sum(a * a for a in other) * sum(a * a for a in relu)
    assert judged(shared, "cosine", at_least=0).json()["validation"]["outputs"][0]["value"] == pytest.approx(
        dot / math.sqrt(square), rel=1e-6)


def test_labels_and_what_is_expected(shared):
    """The last two rows are all 0 before, so that their class is 0; after, it is column 3, whose weights are 0."""
    labels = ("int64", [5], struct.pack("<5q", 0, 1, 2, 0, 3))
    file = task_file(shared, **{"output.0": labels})
    (one,) = judged(shared, "top1", at_least=0.5, file=file).json()["validation"]["outputs"]
    assert (one["value"], one["before"]) == (0.8, 0.8)
    assert judged(shared, "top1", at_least=0.81, file=file).status == 422
    assert judged(shared, "top1", at_least=0.6).json()["validation"]["outputs"][0]["value"] == 0.6
    expected = ("float32", [5, 4], struct.pack("<20f", *[0.0] * 20))
    (one,) = judged(shared, "mse", at_most=9, file=task_file(shared, **{"output.0": expected})).json()["validation"]["outputs"]
    assert one["before"] == pytest.approx(sum(max(x, 0) ** 2 for x in ROWS) / 20)


def test_positions_of_a_mask_do_not_count(shared):
    file = task_file(shared, mask=("int64", [5], struct.pack("<5q", 1, 1, 1, 0, 0)))
    (one,) = judged(shared, "top1", at_least=1, mask="mask", file=file).json()["validation"]["outputs"]
    assert one["value"] == 1
    (one,) = judged(shared, "mse", at_most=1, mask="mask", file=file).json()["validation"]["outputs"]
    assert one["value"] == pytest.approx(sum((max(x, 0) - gelu(x)) ** 2 for x in ROWS[:9]) / 12, rel=1e-5)


@pytest.mark.parametrize(("numbers", "why"), [([0] * 5, "leaves nothing"), ([1] * 3, "has not the first sizes of any output")])
def test_a_mask_that_hides_all_or_fits_nothing(shared, numbers, why):
    """Nothing would have been judged, or all of it."""
    file = task_file(shared, mask=("int64", [len(numbers)], struct.pack(f"<{len(numbers)}q", *numbers)))
    answer = judged(shared, "top1", at_least=0, mask="mask", file=file)
    assert (answer.status, answer.json()["code"]) == (422, "output-mismatch") and why in answer.json()["detail"], answer


@pytest.mark.parametrize(
    ("task", "status", "code"),
    [
        ({"metric": "top1"}, 422, "wrong-type"),
        ({"metric": "top1", "at_most": 1}, 422, "wrong-type"),
        ({"metric": "mse", "at_least": 1}, 422, "wrong-type"),
        ({"metric": "f1", "at_least": 1}, 422, "unknown-option-value"),
        ({"metric": 1, "at_least": 1}, 422, "wrong-type"),
        ({"metric": "top1", "at_least": 1, "k": 5}, 422, "unknown-member"),
        ({"metric": "top1", "at_least": 1, "mask": "y"}, 422, "unknown-input"),
        ({"metric": "top1", "at_least": 1, "mask": 1}, 422, "wrong-type"),
        ({"metric": "top1", "at_least": 1, "inputs": "x"}, 422, "bad-digest"),
        ({"metric": "top1", "at_least": 1, "inputs": None}, 422, "wrong-type"),
        ({"metric": "top1", "at_least": 1, "inputs": "sha256:" + "0" * 64}, 409, "blob-missing"),
    ],
)
def test_tasks_that_say_too_little(shared, task, status, code):
    answer = optimize(shared, classifier(shared), ACTIVATION, validate={"inputs": task_file(shared), **task})
    assert (answer.status, answer.json()["code"]) == (status, code), answer


def test_files_that_do_not_fit_a_task(shared):
    x = ("float32", [5, 3], struct.pack("<15f", *ROWS))
    for more, code in (
        ({"y": x}, "unknown-input"), ({"output.1": x}, "output-mismatch"), ({"output.0": x}, "output-mismatch"),
    ):
        answer = judged(shared, "mse", at_most=1, file=task_file(shared, **more))
        assert (answer.status, answer.json()["code"]) == (422, code), answer
    file = stored_blob(shared, file_of({"output.0": x}))
    assert judged(shared, "mse", at_most=1, file=file).json()["code"] == "missing-input"


def test_each_pass_is_compared_with_the_one_before(shared):
    """The second of three is wrong, and only there; what was computed for the first is not taken for it."""
    nodes = [node("x", "placeholder", "x", meta={"shape": [4, 6], "dtype": "float32"}),
             node("half", "call_function", "operator.truediv", [ref("x"), 2.0]),
             node("seventh", "call_function", "operator.truediv", [ref("half"), 7.0]),
             node("flat", "call_method", "contiguous", [ref("seventh")], meta={"shape": [4, 6], "dtype": "float32"}),
             node("output", "output", "output", [[ref("flat")]])]
    graph = {"format": "foldback.graph/1", "modules": [{"path": "", "type": "Net"}], "tensors": [], "nodes": nodes}
    for name, number, factor in (("ByTwo", 2.0, 0.5), ("BySeven", 7.0, 0.15)):
        rule = {"name": f"Chain{name}", "exactness": "rounds",
                "pattern": {"operator": ["div", "true_divide"], "args": ["?x", number], "as": "?y"},
                "replacement": {"?y": {"operator": "mul", "args": ["?x", factor]}}}
        made = shared.post("/v1/transformations", rule)
        assert made.status in (200, 201), made
    good = optimize(shared, graph, ["RemoveNoOps", "ChainByTwo"], validate="graph")
    assert good.status == 201 and good.json()["validation"]["passes"]
    for passes in (["ChainByTwo", "ChainBySeven"], ["RemoveNoOps", "ChainBySeven", "ChainByTwo"]):
        answer = optimize(shared, graph, passes, validate="graph")
        assert answer.status == 422 and answer.json()["code"] == "validation-failed", answer
        assert "ChainBySeven" in answer.json()["detail"]
