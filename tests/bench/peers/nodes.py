"""How many nodes are left: the preset "inference" on every fixture, beside the optimisers of ONNX on the same model's own
export. With
--models on the architectures of clients/python/tests instead, as torch.export writes them.

Each fixture's document is made a live program again (weights of the fixture, or random ones), and torch.export's ONNX exporter
writes that twice: plainly, and with its own optimiser, as it does when nothing is said. Every peer gets both files, and the
smaller of its two results counts. The rules of counting are in TEXT.

Exit status 1 when a fixture has more nodes left than the best peer, or gives other numbers."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import report

ROOT = pathlib.Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests" / "fixtures"
BEGIN, END = "<!-- nodes begin -->", "<!-- nodes end -->"
BEGIN_MODELS, END_MODELS = "<!-- nodes of models begin -->", "<!-- nodes of models end -->"
MODELS = ROOT / "clients" / "python" / "tests"
PEERS = ("onnxsim", "onnxoptimizer", "ONNX Runtime basic", "onnxscript")
ALLOWED = 1e-5  # of the largest output: rounding of weights, and sums in another order, in float32

TEXT = """## Nodes that are left

`make bench-nodes` runs the preset `inference` on every fixture of the tests, and the optimisers of ONNX on the same model: the
document is made a live program again, which PyTorch's exporter (`torch.onnx.export(…, dynamo=True)`) writes as ONNX twice, as
it is and with its own optimiser (the default). Of each peer's two results the smaller counts; so does the export itself, under
"export". {versions}.

What is counted:

- of a document every `call_function`, `call_method` and `call_module`; not placeholders, `get_attr` (weights, which ONNX has as
  initialisers) and the output. A `getitem` that takes one result of an operator that has several is not counted, since a node
  of ONNX has several outputs; nor is the call of a nested program, whose own calls are counted in its place. Arithmetic on
  sizes, assertions, casts and copies are counted like anything else.
- of an ONNX model every node but `Constant`, those of subgraphs too, after all functions are inlined.

Nothing makes up for operators that one side has whole and the other in parts: in ONNX a Linear on more than two dimensions is a
`MatMul` and an `Add`, `rsqrt` is two nodes, and attention is written out; a mean over a list of dimensions is one on both
sides. *Error* is that of the outputs after `inference`, computed by foldback's interpreter, against those that PyTorch gave for
the fixture when it was recorded (for bert-base and resnet50, which have no weights, against PyTorch on random weights): the
largest difference over the largest output.

"""


# ---- documents ---------------------------------------------------------------------------------------------------------------


def count_document(document: dict[str, Any]) -> int:
    programs = {row["path"]: row["graph"]["nodes"] for row in document["modules"] if "graph" in row}
    return sum(count_program(nodes, programs) for nodes in (document["nodes"], *programs.values()))


def count_program(nodes: list[dict[str, Any]], programs: dict[str, Any]) -> int:
    by_name = {node["name"]: node for node in nodes}
    return sum(is_counted(node, by_name, programs) for node in nodes)


def is_counted(node: dict[str, Any], by_name: dict[str, Any], programs: dict[str, Any]) -> bool:
    if not node["op"].startswith("call_") or runs_program(node, programs, by_name):
        return False
    return not (node["target"] == "operator.getitem" and takes_result(node, by_name))


def takes_result(node: dict[str, Any], by_name: dict[str, Any]) -> bool:
    """One tensor of those that an operator gives: itself it has no shape. (Nor have sizes, but then the item has none
    either.)"""
    read, index = node["args"]
    return isinstance(index, int) and "shape" in node["meta"] and "shape" not in by_name[read["$node"]]["meta"]


def runs_program(node: dict[str, Any], programs: dict[str, Any], by_name: dict[str, Any]) -> bool:
    read = [by_name[name] for name in names_in([node["args"], node["kwargs"]])]
    return any(one["op"] == "get_attr" and one["target"] in programs for one in read)


def names_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and "$node" in value:
        yield value["$node"]
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from names_in(item)


# ---- ONNX --------------------------------------------------------------------------------------------------------------------


def count_onnx(model: Any) -> int:
    import onnx.inliner

    return count_graph(onnx.inliner.inline_local_functions(model).graph)


def count_graph(graph: Any) -> int:
    import onnx

    inner = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return sum(node.op_type != "Constant" for node in graph.node) + sum(count_graph(one) for one in inner)


def optimised(peer: str, path: pathlib.Path) -> Any:
    import onnx

    if peer == "onnxsim":
        import onnxsim

        return onnxsim.simplify(onnx.load(path))[0]
    if peer == "onnxoptimizer":
        import onnxoptimizer

        return onnxoptimizer.optimize(onnx.load(path))
    if peer == "onnxscript":
        import onnxscript.optimizer

        return onnxscript.optimizer.optimize(onnx.load(path))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path.with_suffix(".basic.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def counts_of_peers(live: Any, arguments: tuple[Any, ...], folder: pathlib.Path,
                    kwargs: dict[str, Any] | None = None) -> dict[str, int]:
    import onnx
    import torch

    found: dict[str, int] = {}
    for is_optimised in (False, True):
        path = folder / f"{is_optimised}.onnx"
        settings = {"dynamo": True, "optimize": is_optimised, "external_data": False, "verbose": False}
        torch.onnx.export(live, arguments, str(path), kwargs=kwargs, **settings)
        counts = {"export": count_onnx(onnx.load(path))}
        for peer in PEERS:
            try:
                counts[peer] = count_onnx(optimised(peer, path))
            except Exception as error:
                print(f"{peer} fails: {str(error)[:120]}", file=sys.stderr)
        found = {name: min(count, found.get(name, count)) for name, count in counts.items()} | {
            name: count for name, count in found.items() if name not in counts
        }
    return found


# ---- one fixture -------------------------------------------------------------------------------------------------------------


def random_tensor(row: dict[str, Any]) -> Any:
    import torch

    dtype = getattr(torch, row["dtype"])
    if not dtype.is_floating_point:
        return torch.zeros(row["shape"], dtype=dtype)
    is_variance = row.get("name", "").endswith("running_var")
    return (torch.rand(row["shape"]) + 0.5 if is_variance else torch.randn(row["shape"]) * 0.05).to(dtype)


def recorded(fixture: pathlib.Path, document: dict[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Weights, inputs by placeholder, and outputs; the last is empty where none were recorded."""
    import torch
    from safetensors.torch import load_file

    torch.manual_seed(20)
    if not (fixture / "weights.safetensors").exists():
        inputs = {row["target"]: random_tensor(row["meta"]) for row in document["nodes"] if row["op"] == "placeholder"}
        return {row["name"]: random_tensor(row) for row in document["tensors"]}, inputs, {}
    values = load_file(fixture / "io.safetensors")
    outputs = {name: tensor for name, tensor in values.items() if name.startswith("output.")}
    inputs = {name.removeprefix("input."): tensor for name, tensor in values.items() if name not in outputs}
    return load_file(fixture / "weights.safetensors"), inputs, outputs


def outputs_of(live: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    import torch

    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(live(**inputs))
    return {f"output.{index}": leaf for index, leaf in enumerate(leaves)}


def error_of(build: pathlib.Path, result: pathlib.Path, weights: Any, inputs: Any, expected: dict[str, Any]) -> float:
    from safetensors.torch import load_file, save_file

    folder = result.parent
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "weights.safetensors")
    save_file(inputs, folder / "inputs.safetensors")
    given = ["--weights", folder / "weights.safetensors", result, folder / "inputs.safetensors", folder / "outputs.safetensors"]
    run([build / "tests/eval/evaluate_document", *given])
    found = load_file(folder / "outputs.safetensors")
    largest = 0.0
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            return float("inf")
        largest = max(largest, ((found[name] - tensor).abs().max() / tensor.abs().max()).item())
    return largest


def run(command: list[Any]) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stdout[-500:]}{done.stderr[-500:]}")


def measure(name: str, build: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
    import foldback.fx

    document = json.loads((FIXTURES / name / "graph.json").read_text())
    weights, inputs, outputs = recorded(FIXTURES / name, document)
    live = foldback.fx.from_document(document, weights=weights).eval()
    expected = outputs or outputs_of(live, inputs)
    result = folder / "result.json"
    source = FIXTURES / name / "graph.json"
    run([build / "foldback", "optimize", source, "--pass", "inference", "--data", folder / "data", "-o", result])
    placeholders = [row["target"] for row in document["nodes"] if row["op"] == "placeholder"]
    peers = counts_of_peers(live, tuple(inputs[name] for name in placeholders), folder)
    return {
        "before": count_document(document),
        "ours": count_document(json.loads(result.read_text())),
        **peers,
        "best": min(peers[peer] for peer in PEERS if peer in peers),
        "error": error_of(build, result, weights, inputs, expected),
    }


def draw_constants(model: Any) -> None:
    """Fresh models have biases of 0 and norms of 1, which an optimiser may leave out and training never leaves: they are drawn
    at random, as are running statistics."""
    import torch

    torch.manual_seed(20)
    buffers = {key: tensor for key, tensor in model.named_buffers() if key.endswith(("running_mean", "running_var"))}
    for tensor in [*model.parameters(), *buffers.values()]:
        first = tensor.detach().flatten()[:1]
        if tensor.is_floating_point() and first.numel() and bool((tensor == first).all()):
            with torch.no_grad():
                tensor.copy_(first + 0.3 * (torch.rand(tensor.shape) - 0.45))


def measure_model(name: str, build: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
    """The same of an architecture; the result is run by PyTorch."""
    import torch
    import transformers_models
    import vision_models

    import foldback.export
    import foldback.private

    source = vision_models if name.startswith("vision/") else transformers_models
    model, given = source.make(name.removeprefix("vision/"))
    draw_constants(model)
    program = torch.export.export(model, (), given)
    document, live = foldback.export.from_exported_program(program), program.module(check_guards=False)
    expected = outputs_of(live, given)
    run = foldback.private.client().optimize(document, ["inference"], include=["graph"])
    foldback.apply_edits(live, foldback.private.client().edits(run))
    found, error = outputs_of(live, given), 0.0
    for key, tensor in expected.items():
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            is_same = found[key].shape == tensor.shape
            error = max(error, ((found[key] - tensor).abs().max() / tensor.abs().max()).item() if is_same else float("inf"))
    peers = counts_of_peers(model, (), folder, given)
    left = count_document(run["graph"])
    return {"before": count_document(document), "ours": left, **peers,
            "best": min(peers[peer] for peer in PEERS if peer in peers), "error": error}


# ---- all together ------------------------------------------------------------------------------------------------------------


# Why a peer leaves fewer nodes of a model, and how many: printed with its row. More than that is a failure.
REASONS = {
    "vision/padded": (
        1,
        "a convolution of ONNX pads its sides by different numbers; PyTorch's pads both alike, so that a pad stays. A kernel "
        "with "
        "one more row and column of zeros would do, but makes 16 products of 9, and nan where a zero meets infinity.",
    ),
}

TEXT_MODELS = """## Nodes that are left of other models

`make bench-nodes NODES=--models` counts in the same way on the architectures of [models.md](models.md), small and with random
weights, as torch.export writes them. Biases, the weights of norms and running statistics are drawn at random as well, for
foldback and its peers alike: those of a fresh model are 0 and 1, which some peers leave out, and no trained model has them.
{versions}. *Error* is that of PyTorch's outputs after `inference`. No more nodes than the best peer are left on
{won} of {all}.

"""


def text(rows: dict[str, dict[str, Any]], is_of_models: bool = False) -> str:
    columns = ["before", "ours", "export", *PEERS, "best"]
    lines = ["| fixture | before | **after `inference`** | export | " + " | ".join([*PEERS, "best of these", "error"]) + " |"]
    lines.append("|---|" + "---:|" * (len(columns) + 1))
    for name, row in rows.items():
        cells = [f"**{row[column]}**" if column == "ours" else str(row.get(column, "fails")) for column in columns]
        lines.append(f"| {name} | " + " | ".join([*cells, f"{row['error']:.1e}"]) + " |")
    versions = report.versions(("torch", "onnx", "onnxsim", "onnxoptimizer", "onnxruntime", "onnxscript"))
    won = sum(row["ours"] <= row["best"] for row in rows.values())
    head = TEXT_MODELS.format(versions=versions, won=won, all=len(rows)) if is_of_models else TEXT.format(versions=versions)
    lost = [name for name, row in rows.items() if row["ours"] > row["best"]] if is_of_models else []
    lines += ["", *(f"- {name}: {REASONS[name][1]}" for name in lost if name in REASONS)] if lost else []
    return head + "\n".join(lines) + "\n"


def all_subjects(is_of_models: bool) -> list[str]:
    if not is_of_models:
        return sorted(path.parent.name for path in FIXTURES.glob("*/graph.json"))
    import transformers_models
    import vision_models

    return [*transformers_models.MODELS, *(f"vision/{name}" for name in vision_models.MODELS)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--write", type=pathlib.Path, help="the Markdown file whose section is written anew")
    parser.add_argument("--models", action="store_true", help="the architectures of clients/python/tests")
    parser.add_argument("subjects", nargs="*", help="fixtures, or models; all of them if none is named")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.setdefault("FOLDBACK_BINARY", str(options.build.resolve() / "foldback"))
    sys.path.append(str(MODELS))
    rows = {}
    for name in options.subjects or all_subjects(options.models):
        print(f"{name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = (measure_model if options.models else measure)(name, options.build, pathlib.Path(folder))
    print(text(rows, options.models))
    if options.write:
        report.put(options.write, text(rows, options.models), *((BEGIN_MODELS, END_MODELS) if options.models else (BEGIN, END)))
    lost = [name for name, row in rows.items()
            if row["ours"] > row["best"] + REASONS.get(name if options.models else "", (0,))[0]]
    wrong = [name for name, row in rows.items() if not row["error"] <= ALLOWED]
    for name in lost:
        print(f"{name}: more nodes are left than the best peer leaves", file=sys.stderr)
    for name in wrong:
        print(f"{name}: the outputs differ by more than rounding explains", file=sys.stderr)
    return 1 if lost or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
