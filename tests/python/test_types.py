"""The dtypes and shapes that follow from those of the inputs are what PyTorch gives: random calls of every operator that has
rules, with tensors of all dtypes, without elements and without dimensions among them. Those that PyTorch refuses say
nothing."""

import operator
import pathlib
import random
import re

import pytest
import torch
import torch.nn.functional as F
from torch.fx.passes.shape_prop import _extract_tensor_metadata

import foldback
from foldback.fx import to_document

OPERATORS = pathlib.Path(__file__).resolve().parents[2] / "core" / "operators"
ROW = re.compile(r'^FB_OP_ROW\(\w+, "([^"]+)", "([^"]+)".*RULES\(', re.M)
NAMES = [(name, row[2]) for file in sorted(OPERATORS.glob("ops_*.def")) for row in ROW.finditer(file.read_text())
         for name in row[1].split()]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
          torch.complex128]
SHAPES = [(2, 2)] * 4 + [(), (2,), (1,), (1, 2), (2, 0), (0, 2, 2), (3, 2, 2), (1, 2, 4, 4)]
# Parameters that are no tensors.
VALUES = {
    "dim dim0 start_dim axis": [0, -1, None],
    "dim1 end_dim": [-1, 1],
    "dims": [(0, 1), (1, 0)],
    "dtype": [*DTYPES, None],
    "size sizes": [(2, 2), (-1,), 2, (4, 2)],
    "shape repeats": [(2, 2), (-1,), (1, 4)],
    "n k p groups num_groups shifts offset diagonal chunks": [1, 2, 0],
    "kernel_size output_size split_size": [1, 2, (2, 1)],
    "fill_value value alpha beta min max exponent weight": [1, 0.5, True, 2.0],
    "normalized_shape": [(2,), (2, 2)],
    "keepdim unbiased correction inplace training train hard": [True, False],
    "equation mode reduction approximate rounding_mode padding_mode reduce": [
        "none", "mean", "sum", "tanh", "floor", "trunc", "constant"],
}
VALUES = {name: values for names, values in VALUES.items() for name in names.split()}
CALLS = 1500


def tensor(choose):
    """Of integers with elements: without, PyTorch runs layers that it has for floating numbers only."""
    dtype, shape = choose.choice(FLOATS if choose.random() < 0.5 else DTYPES), choose.choice(SHAPES)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2, shape if 0 not in shape else (2, 2)).to(dtype)


def argument(choose, name):
    if name in VALUES and choose.random() < 0.85:
        return choose.choice(VALUES[name])
    if name in ("tensors", "operands"):
        return [tensor(choose), tensor(choose)]
    return choose.choice([2, 1.5, True, 1j]) if choose.random() < 0.15 else tensor(choose)


def random_call(choose):
    """A function or the name of a method, and its arguments."""
    name, parameters = choose.choice(NAMES)
    homes = [home for home in (torch, F, torch.Tensor, operator, torch.special, torch.linalg)
             if callable(getattr(home, name, None))]
    if not homes:
        return None
    home, args, kwargs = choose.choice(homes), [], {}
    for parameter in parameters.split(","):
        key = parameter.strip("=*")
        if not parameter.endswith("="):
            args.append(argument(choose, key))
        elif choose.random() < 0.4:
            kwargs[key] = argument(choose, key)
    return name if home is torch.Tensor else getattr(home, name), args, kwargs


def result_of(function, args, kwargs):
    """What PyTorch gives, if that is one tensor."""
    if function is torch._weight_norm and any(isinstance(one, torch.Tensor) and not one.numel() for one in args):
        return None  # it divides by zero, and the interpreter is gone
    args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
    try:
        found = getattr(args[0], function)(*args[1:], **kwargs) if isinstance(function, str) else function(*args, **kwargs)
    except Exception:
        return None
    return found if isinstance(found, torch.Tensor) else None


def described(value):
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def add_call(graph, function, args, kwargs):
    """The call on inputs of the graph, which come first, and before its output."""

    def placeholder(value):
        with graph.inserting_before(next(iter(graph.nodes))):
            node = graph.placeholder(f"x{len(graph.nodes)}")
        node.meta["tensor_meta"] = _extract_tensor_metadata(value)
        return node

    args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, placeholder, (tuple(args), kwargs))
    with graph.inserting_before(graph.output_node()):
        return (graph.call_method if isinstance(function, str) else graph.call_function)(function, args, kwargs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_what_follows_is_what_pytorch_gives(service, seed):
    choose = random.Random(seed)
    torch.manual_seed(seed)
    graph, calls = torch.fx.Graph(), {}
    graph.output(None)
    while len(calls) < CALLS:
        drawn = random_call(choose)
        found = drawn and result_of(*drawn)
        if found is not None:
            calls[add_call(graph, *drawn).name] = (drawn, found)
    document = to_document(torch.fx.GraphModule(torch.nn.Module(), graph))
    with foldback.Client(service.url) as client:
        run = client.optimize(document, ["RecordTypes"], include=["graph"])
    recorded = {row["name"]: row["meta"] for row in run["graph"]["nodes"]}
    wrong = []
    for name, (drawn, found) in calls.items():
        actual = {"dtype": str(found.dtype).removeprefix("torch."), "shape": list(found.shape)}
        said = {key: recorded[name][key] for key in actual if key in recorded[name]}
        if any(actual[key] != said[key] for key in said):
            function, args, kwargs = drawn
            shown = torch.utils._pytree.tree_map(described, (args, kwargs))
            wrong.append(f"{getattr(function, '__name__', function)}{shown}: {said}, and it is {actual}")
    assert not wrong, "\n".join(wrong)
    assert sum("dtype" in recorded[name] for name in calls) > 0.9 * CALLS
