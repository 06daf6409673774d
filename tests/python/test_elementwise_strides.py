"""How what is computed element by element lies in memory: for each operator that core/operators says so of, and transposed,
expanded, sliced and mixed operands, the evaluator views in one dimension what PyTorch can view so."""

import pathlib
import re

import pytest
import torch
import torch.nn.functional as F
from test_models_evaluate import evaluate

from foldback.fx import to_document

OPERATORS = pathlib.Path(__file__).resolve().parents[2] / "core" / "operators"
ROW = re.compile(r'^FB_OP_ROW\(\w+, "([^"]+)", "([^"]+)".*ELEMENTWISE', re.M)
NAMES = [(name, [one for one in row[2].split(",") if not one.endswith("=")]) for file in sorted(OPERATORS.glob("ops_*.def"))
         for row in ROW.finditer(file.read_text()) for name in row[1].split()]
LAYOUTS = {
    "transposed": lambda x: x.t(), "rows": lambda x: x.t().contiguous(), "expanded": lambda x: x[:1].expand(5, 4).t(),
    "sliced": lambda x: x.t()[:, ::2], "sliced rows": lambda x: x.t().contiguous()[:, ::2],
}
MIXED = [("transposed",) * 3, ("rows",) * 3, ("expanded",) * 3, ("sliced",) * 3, ("transposed", "rows", "rows"),
         ("rows", "transposed", "transposed"), ("rows", "rows", "transposed"), ("sliced", "sliced rows", "sliced rows")]
# float_power casts what is expanded first, and the copies lie otherwise.
UNLIKE = {("float_power", "expanded")}


def spellings(name):
    for home in (torch, F, torch.Tensor):
        if callable(getattr(home, name, None)):
            yield home, getattr(home, name)


class Calls(torch.nn.Module):
    """Each call's result, or its transpose, as one dimension: a view that there is if it lies so."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, x, y, z):
        found = []
        for function, kinds, count, is_method, is_turned in self.calls:
            operands = [LAYOUTS[kind](value) for kind, value in zip(kinds, (x, y, z))][:count]
            if function is torch.where or function is torch.Tensor.where:
                at = 1 if is_method else 0
                operands[at] = operands[at] > 0.5
            made = getattr(operands[0], function.__name__)(*operands[1:]) if is_method else function(*operands)
            found.append((made.t() if is_turned else made).view(-1))
        return tuple(found)


@pytest.mark.parametrize("kind", ["float", "complex"])
def test_result_lies_as_in_pytorch(tmp_path, kind):
    torch.manual_seed(0)
    inputs = [torch.rand(4, 5) for _ in range(3)]
    if kind == "complex":
        inputs = [torch.complex(one, one.flip(0)) for one in inputs]
    count_of_calls, wrong = 0, []
    for name, required in NAMES:
        for home, function in spellings(name):
            if home is F and hasattr(torch, name):
                continue
            count, calls = 3 if name == "where" else len(required), []
            for kinds in sorted({kinds[:count] + ("rows",) * (3 - count) for kinds in MIXED}):
                for is_turned in (False, True):
                    call = (function, kinds, count, home is torch.Tensor, is_turned)
                    try:
                        Calls([call])(*inputs)
                    except (TypeError, RuntimeError):
                        continue
                    if (name, kinds[0]) not in UNLIKE:
                        calls.append(call)
            if not calls:
                continue
            document = to_document(torch.fx.symbolic_trace(Calls(calls)), *inputs)
            found = evaluate(document, dict(zip("xyz", inputs)), tmp_path)
            if isinstance(found, str) and found.startswith("unsupported"):  # no kernel for such numbers
                continue
            count_of_calls += len(calls)
            if isinstance(found, str):
                wrong.append((name, home.__name__, found))
    assert wrong == []
    assert count_of_calls > (100 if kind == "complex" else 400)
