"""The command line: evaluate, compare, optimize --validate."""

import json
import pathlib

import documents
import weights_files
from test_cli import TOY, foldback, optimize  # noqa: F401 (fixtures)
from test_evaluate import RELU, x_file

FOLDER = documents.FIXTURES / "toy"
WEIGHTS = FOLDER / "weights.safetensors"
IO = FOLDER / "io.safetensors"


def test_evaluate(foldback):
    foldback("bind", TOY, WEIGHTS, "-o", "bound.json")
    assert foldback("evaluate", "bound.json", "--inputs", IO, "-o", "out.safetensors").out == ""
    found = weights_files.tensors_of(foldback.path("out.safetensors").read_bytes())
    recorded = weights_files.tensors_of(IO.read_bytes())
    assert set(found) == {name for name in recorded if name.startswith("output.")}
    for name, (dtype, shape, part) in found.items():
        values = weights_files.numbers(recorded[name][2])
        largest = max(map(abs, values))
        assert (dtype, shape) == recorded[name][:2]
        assert all(abs(a - b) <= 1e-5 * largest for a, b in zip(weights_files.numbers(part), values))


def test_evaluate_on_random_inputs(foldback):
    foldback("optimize", TOY, "-p", "DeepCopy")
    refused = foldback("evaluate", TOY, "-o", "out.safetensors")
    assert refused.status == 1 and "bytes" in refused.err and not foldback.path("out.safetensors").exists()
    outputs = []
    for options in ([], ["--seed", "0"], ["--seed", "7"], ["--seed", "7", "--precision", "float64"]):
        assert foldback("evaluate", TOY, "--random-weights", "-o", "out.safetensors", *options).status == 0
        outputs.append(foldback.path("out.safetensors").read_bytes())
    assert outputs[0] == outputs[1] != outputs[2]
    kinds = [{one[0] for one in weights_files.tensors_of(file).values()} for file in outputs]
    assert kinds == [{"float32"}, {"float32"}, {"float32"}, {"float64"}]


def test_evaluate_says_where_to(foldback):
    assert foldback("evaluate", TOY).status == 2
    foldback("optimize", TOY, "-p", "DeepCopy")
    assert foldback("evaluate", TOY, "-o", "x", "--inputs", "missing.safetensors").status == 1


def test_compare(foldback):
    run = foldback("optimize", TOY, "--weights", WEIGHTS, "-p", "MergeLinears", "-p", "FuseBatchNorm2dInConv2d").json()
    for options in (["--inputs", IO], ["--seed", "5"], []):
        answer = foldback("compare", run["source"], run["id"], *options)
        found = answer.json()
        assert answer.status == 0 and found["passes"] and found["first_node"] is None and len(found["outputs"]) == 2


def test_compare_files_that_differ(foldback):
    changed = json.loads(json.dumps(RELU))
    changed["nodes"][1]["target"] = "torch.sigmoid"
    for name, graph in (("a.json", RELU), ("b.json", changed)):
        foldback.path(name).write_text(json.dumps(graph))
    answer = foldback("compare", "a.json", "b.json")
    found = json.loads(answer.out)
    assert answer.status == 1 and not found["passes"] and found["first_node"]["name"] == "relu"
    assert foldback("compare", "a.json", "b.json", "--tolerance", "1000").status == 0
    assert foldback("compare", "a.json", "b.json", "--samples", "1").status == 1
    assert foldback("compare", "a.json", "a.json").status == 0
    assert not foldback.path(".foldback").exists()  # nothing that needs a store
    foldback.path("x.safetensors").write_bytes(x_file([1] * 6))
    foldback("optimize", "a.json", "-p", "DeepCopy")
    assert foldback("compare", "a.json", "b.json", "--inputs", "x.safetensors").status == 1


def test_a_page_about_a_comparison(foldback):
    other = json.loads(json.dumps(RELU).replace("torch.relu", "torch.sigmoid"))
    for name, graph in (("a<.json", RELU), ("b.json", other)):
        foldback.path(name).write_text(json.dumps(graph))
    assert foldback("compare", "a<.json", "b.json", "--html", "page.html").status == 1
    page = foldback.path("page.html").read_text()
    assert "<h1 class=\"differs\">differs</h1>" in page and "<code>a&lt;.json</code>" in page and "seed 0, sample 0" in page
    assert "a<" not in page and "<script" not in page and "http" not in page
    alone = foldback("compare", "a<.json", "a<.json", "--html", "-")
    assert alone.status == 0 and alone.out.startswith("<!doctype html>") and alone.out.count("<h1") == 1
    assert foldback("compare", "a<.json", "a<.json", "--html", "none/page.html").status == 2


def test_compare_refuses(foldback):
    other = json.loads(pathlib.Path(TOY).read_text())
    other["name"] = "other"
    foldback.path("other.json").write_text(json.dumps(other))
    answer = foldback("compare", TOY, "other.json")
    assert answer.status == 2 and json.loads(answer.out)["outputs"][0]["reason"] == "bytes-unknown"
    assert foldback("compare", TOY, "missing.json").status == 2
    answer = foldback("compare", TOY, "other.json", "--random-weights")
    assert answer.status == 0 and answer.json()["verdict"] == "same"
    assert foldback("compare", TOY, TOY).json()["verdict"] == "same"  # one document is itself, whatever its weights are
    assert foldback("compare", TOY, TOY, "--samples", "0").status == 2
    assert foldback("compare", TOY, TOY, "--tolerance", "small").status == 2
    assert foldback("compare", TOY).status == 2
    assert foldback("compare", TOY, TOY, "--seed", "many").status == 2


def test_optimize_validated(foldback):
    for mode in ("rewrites", "graph"):
        passes = ["-p", "MergeLinears", "-p", "FuseBatchNorm2dInConv2d"]
        run = foldback("optimize", TOY, *passes, "--validate", mode, "--seed", "2").json()
        assert run["validation"] == {"mode": mode, "passes": True, "complete": True}
        assert foldback("show", run["id"]).json()["validation"] == run["validation"]
    assert foldback("optimize", TOY, "-p", "MergeLinears", "--validate", "all").status == 1
    tried = foldback("optimize", TOY, "-p", "MergeLinears", "--validate", "rewrites", "--dry-run").json()
    assert tried["id"] is None and tried["validation"]["passes"]


def test_optimize_is_judged_by_its_task(foldback):
    """The fixture's file has the inputs, and the outputs that are expected of them."""
    options = ["--weights", WEIGHTS, "-p", "QuantizeWeights", "--inputs", IO, "--json"]
    answer = foldback("optimize", TOY, *options, "--metric", "cosine", "--at-least", "0.99")
    assert answer.status == 0, answer
    validation = json.loads(answer.out)["validation"]
    assert validation["metric"] == "cosine" and 0.99 < validation["outputs"][0]["value"] < 1
    assert validation["outputs"][0]["before"] > 0.999999
    small = foldback("optimize", TOY, *options, "--metric", "mse", "--tolerance", "1e-12")
    assert small.status == 1 and "mse of output.0" in small.err, small


def test_a_tolerance_of_passes_that_are_meant_to_change_the_result(foldback):
    options = ["--weights", WEIGHTS, "-p", "QuantizeWeights", "--validate", "rewrites"]
    assert foldback("optimize", TOY, *options, "--tolerance", "0.1").status == 0
    assert foldback("optimize", TOY, *options, "--tolerance", "1e-9").status == 1


def test_options_of_a_task_that_do_not_fit(foldback):
    for options in (
        ["--metric", "top1", "--at-least", "1"], ["--inputs", IO], ["--inputs", IO, "--metric", "f1", "--at-least", "1"],
        ["--inputs", IO, "--metric", "top1"], ["--inputs", IO, "--metric", "mse", "--at-least", "1"],
        ["--inputs", IO, "--metric", "top1", "--at-least", "x"],
        ["--inputs", IO, "--metric", "top1", "--at-least", "1", "--validate", "graph"],
    ):
        answer = foldback("optimize", TOY, "-p", "DeepCopy", *options)
        assert answer.status == 2 and "--" in answer.err, (options, answer)
