"""The architectures of docs/models.md, in both dialects: what the interpreter computes is what PyTorch does.

docs/evaluated-models.md lists the operators that are missing, each refused by name; UPDATE=1 writes it anew."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.utils._pytree as pytree
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "clients/python/src"), str(ROOT / "clients/python/tests")]

import transformers_models
import vision_models

import foldback.export
import foldback.fx

TABLE = ROOT / "docs" / "evaluated-models.md"
HEAD = """# Which real models the evaluator can run

The table has the models of [models.md](models.md). The reference interpreter evaluates each of them, in the dtypes of the graph
and again in float64, and a test compares the outputs with PyTorch's. "equal" means that they differ by at most 1e-5 of the
largest value, or of 1 if all values are smaller; outputs with values beyond 10 may differ by 1e-4. "refused" names the first
operator that the interpreter does not know: it gives no result for such a model. `make test-python UPDATE=1` writes this page.

| model | dialect | nodes | evaluated |
|---|---|---:|---|
"""
IS_UPDATE = bool(os.environ.get("UPDATE"))
PROGRAM = os.environ.get("FOLDBACK_EVALUATE", str(ROOT / "build/tests/eval/evaluate_document"))
REFUSED = 3  # the program's exit status


def cases():
    found = []
    for name in transformers_models.MODELS:
        found += [(name, "torch.fx")] if name in transformers_models.TRACED else []
        found.append((name, "torch.export"))
    return found + [(f"vision/{name}", dialect) for name in vision_models.MODELS for dialect in ("torch.fx", "torch.export")]


CASES = cases()
ROWS = {}


def make(name, dialect):
    """The document, the inputs of its placeholders by name, and the tensors that PyTorch gives."""
    source = vision_models if name.startswith("vision/") else transformers_models
    model, inputs = source.make(name.removeprefix("vision/"))
    with torch.no_grad():
        expected = model(**inputs)  # before the tracer of transformers, which leaves proxies in some models
    if dialect == "torch.export":
        document = foldback.export.from_exported_program(torch.export.export(model, (), inputs), name=name, data=True)
    else:
        live = torch.fx.symbolic_trace(model) if source is vision_models else transformers_models.trace(model, inputs)
        document = foldback.fx.to_document(live, *inputs.values(), name=name, data=True)
    tensors = [item for item in pytree.tree_leaves(expected) if isinstance(item, torch.Tensor)]
    return document, inputs, tensors


def evaluate(document, inputs, folder, *options):
    """The outputs, or why there are none."""
    (folder / "graph.json").write_text(json.dumps(document))
    save_file({name: tensor.contiguous() for name, tensor in inputs.items()}, folder / "inputs.safetensors")
    files = [folder / "graph.json", folder / "inputs.safetensors", folder / "outputs.safetensors"]
    done = subprocess.run([PROGRAM, *options, *files], capture_output=True, text=True)
    assert done.returncode in (0, REFUSED), done.stdout + done.stderr
    if done.returncode == REFUSED:
        return done.stdout.strip()
    outputs = load_file(files[-1])
    return [outputs[f"output.{index}"] for index in range(len(outputs))]


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        largest = max(theirs.abs().max().item(), 1)
        allowed = max(1e-5 * largest, 1e-4 if largest > 10 else 0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=allowed)


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    if IS_UPDATE and ROWS.keys() == set(CASES):
        rest = TABLE.read_text().partition("\n## ")  # what tests/api/test_onnx_evaluate.py writes
        TABLE.write_text(HEAD + "\n".join(ROWS[case] for case in CASES) + "\n" + "".join(rest[1:]))


@pytest.mark.sampled
@pytest.mark.parametrize("name, dialect", CASES, ids=[f"{name}-{dialect}" for name, dialect in CASES])
def test_model(tmp_path, name, dialect):
    document, inputs, expected = make(name, dialect)
    said = "equal"
    for options in ([], ["--double"]):
        found = evaluate(document, inputs, tmp_path, *options)
        if isinstance(found, str):
            code, _, message = found.partition(": ")
            assert code == "unsupported-operator", found
            said = f"refused: {message}"
        else:
            assert_equal(found, expected)
    ROWS[name, dialect] = f"| {name} | {dialect} | {len(document['nodes'])} | {said} |"
    assert IS_UPDATE or ROWS[name, dialect] in TABLE.read_text().splitlines(), said
