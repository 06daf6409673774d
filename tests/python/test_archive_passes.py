"""Every pass, and rules, on archives of small models, as exported and decomposed: torch.export.load accepts what comes back, it
computes the same on the example inputs and on other sizes, and a rollback gives the old file."""

import contextlib
import copy
import io
import json
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from archive_models import MODELS

BINARY = Path(__file__).parents[2] / "build/foldback"
GELU = {"name": "GeluForRelu", "pattern": {"operator": "relu", "args": ["?x"],
                                           "kwargs": {"inplace": {"optional": False}}, "as": "?y"},
        "replacement": {"?y": {"operator": "gelu", "args": ["?x"]}}, "exactness": "changes"}
TWICE = {"name": "AddForDoubling", "pattern": {"operator": "mul", "args": ["?x", 2.0], "as": "?y"},
         "replacement": {"?y": {"operator": "add", "args": ["?x", "?x"]}}, "exactness": "moves"}
CHANGING = {"GeluForRelu", "ReplaceActivation"}


def foldback(store: Path, *words: str) -> str:
    done = subprocess.run([str(BINARY), *words, "--data", str(store)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With two rules."""
    folder = tmp_path_factory.mktemp("archives")
    for rule in (GELU, TWICE):
        (folder / "rule.json").write_text(json.dumps(rule))
        foldback(folder / "data", "transformation", "put", str(folder / "rule.json"))
    return folder / "data"


def all_passes(store: Path) -> list[list[Any]]:
    """Each alone; ConvertPrecision to both dtypes; and many together."""
    names = [one["name"] for one in json.loads(foldback(store, "pass", "list", "--json"))["items"]
             if one.get("kind") != "preset"]
    params = {"ReplaceActivation": [{"from": "relu", "to": "gelu"}],
              "ConvertPrecision": [{"to": "float16"}, {"to": "bfloat16", "cast_outputs": False}]}
    lists: list[list[Any]] = [[{"name": name, "params": one}] for name in names for one in params.get(name, [{}])]
    return [*lists, ["GeluForRelu"], ["AddForDoubling"], ["inference"],
            ["inference", "MergeLinears", "UnpackLinear", "MergeViews"]]


def run(program: torch.export.ExportedProgram, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """The results, the inputs afterwards, and the buffers afterwards."""
    torch.manual_seed(0)
    args, kwargs = copy.deepcopy((args, kwargs))
    module = program.module()
    is_old = torch.__version__ < "2.10"  # it loads every parameter as trained, and lets no program write to it then
    with torch.no_grad() if is_old else contextlib.nullcontext():
        made = module(*args, **kwargs)
    return torch.utils._pytree.tree_leaves((made, args, kwargs)), dict(module.named_buffers())


def resized(program: torch.export.ExportedProgram) -> Any:
    """Inputs of other sizes; None where there are no symbols."""
    if not program.range_constraints:
        return None
    leaves, spec = torch.utils._pytree.tree_flatten(program.example_inputs)
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    made = []
    for leaf, node in zip(leaves, inputs, strict=True):
        sizes = [int(size.node.expr.subs({one: program.range_constraints[one].lower + 3
                                          for one in size.node.expr.free_symbols}))
                 if isinstance(size, torch.SymInt) else size for size in node.meta["val"].shape]
        made.append(torch.randn(sizes).to(leaf.dtype) if leaf.is_floating_point() else torch.randint(0, 5, sizes))
    assert [one.shape for one in made] != [one.shape for one in leaves]
    return torch.utils._pytree.tree_unflatten(made, spec)


def compare(found: Any, wanted: Any, names: set[str]) -> None:
    is_low = "ConvertPrecision" in names
    is_near = is_low or "QuantizeWeights" in names
    assert len(found[0]) == len(wanted[0])
    for x, y in zip(found[0], wanted[0], strict=True):
        assert is_low or x.dtype == y.dtype
        close = 0.1 if is_near else 2e-4 if y.dtype == torch.float32 else 0.05
        torch.testing.assert_close(x.float(), y.float(), rtol=0.05 if is_near else 0, atol=close)
    for name, x in found[1].items():
        if not is_near and name in wanted[1] and wanted[1][name].shape == x.shape and "norm" not in name:
            torch.testing.assert_close(x, wanted[1][name], rtol=0, atol=2e-4)


def check(store: Path, folder: Path, source: str, passes: list[Any], wanted: list[Any]) -> bool:
    """False: the passes change nothing."""
    names = {one if isinstance(one, str) else one["name"] for one in passes}
    words = [word for one in passes for word in ("--pass", one if isinstance(one, str) else json.dumps(one))]
    made = json.loads(foldback(store, "optimize", source, *words, "--json"))
    if made["result"] == made["source"]:
        return False
    foldback(store, "optimize", source, *words, "-o", str(folder / "fast.pt2"))
    foldback(store, "rollback", made["id"], "-o", str(folder / "back.pt2"))
    assert (folder / "back.pt2").read_bytes() == (folder / "model.pt2").read_bytes()
    fast = torch.export.load(folder / "fast.pt2")
    assert all(one.is_floating_point() for one in fast.parameters())  # PyTorch 2.9 loads no others
    for given, expected in wanted:
        found = run(fast, *given)
        if not names & CHANGING:
            compare(found, expected, names)
    torch.export.save(fast, io.BytesIO())
    return True


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["exported", "decomposed"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_pass(store: Path, tmp_path: Path, name: str, form: str) -> None:
    torch.manual_seed(0)
    model, args, sizes = MODELS[name]()
    for key, tensor in model.state_dict().items():
        if "norm" in key and tensor.is_floating_point():
            torch.nn.init.uniform_(tensor, 0.5, 1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, args, dynamic_shapes=sizes)
        torch.export.save(program if form == "exported" else program.run_decompositions(), tmp_path / "model.pt2")
        before = torch.export.load(tmp_path / "model.pt2")
        inputs = [before.example_inputs, resized(before)]
        wanted = [(given, run(before, *given)) for given in inputs if given]
        changed = [check(store, tmp_path, str(tmp_path / "model.pt2"), passes, wanted) for passes in all_passes(store)]
    assert sum(changed) >= (0 if name == "empty" else 2)
