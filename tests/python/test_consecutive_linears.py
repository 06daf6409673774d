"""MergeConsecutiveLinears against PyTorch, in both dialects: numbers, refusals, and an undo that gives the same id."""

import pytest
import torch
from torch import nn

import foldback.export
from foldback.fx import from_document, to_document


class Rows(nn.Module):
    """Linears on two dimensions as addmm and mm, with packed weights."""

    def __init__(self, sizes):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(a, b) * a**-0.5 for a, b in zip(sizes, sizes[1:]))
        self.bias = nn.Parameter(torch.randn(sizes[1]))

    def forward(self, x):
        x = torch.addmm(self.bias, x, self.weights[0])
        for weight in list(self.weights)[1:]:
            x = torch.mm(x, weight)
        return x


def chain(*sizes, bias=True):
    return nn.Sequential(*[nn.Linear(a, b, bias=bias) for a, b in zip(sizes, sizes[1:])])


def low_rank():
    return chain(16, 2, 16)


def tied():
    made = chain(8, 8, 8)
    made[1].weight = made[0].weight
    return made


MODELS = {
    "two": (lambda: chain(6, 9, 4), 1),
    "without-bias": (lambda: chain(6, 9, 4, bias=False), 1),
    "three": (lambda: chain(8, 8, 8, 8), 1),
    "four": (lambda: chain(8, 8, 8, 8, 8), 2),
    "tied": (tied, 1),
    "low-rank": (low_rank, 0),
    "rows": (lambda: Rows((6, 9, 4)), 1),
    "bottleneck-classifier": (lambda: nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.Linear(32, 5)), 1),
}


@pytest.mark.parametrize("dialect", ["fx", "aten"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_numbers_stay(service, name, dialect, dtype):
    torch.manual_seed(5)
    make, applied = MODELS[name]
    model = make().to(dtype).eval()
    x = torch.randn(3, 8 if name in ("three", "four", "tied") else 16 if name == "low-rank" else 6, dtype=dtype)
    expected = model(x)
    if dialect == "fx":
        document = to_document(torch.fx.symbolic_trace(model), x, data=True)
    else:
        program = torch.export.export(model, (x,))
        document = foldback.export.from_exported_program(program, data=True)
    asked = {"graph": document, "passes": ["MergeConsecutiveLinears"], "options": {"include": ["graph"], "lint": "each"}}
    answer = service.post("/v1/optimize", asked)
    assert answer.status == 201, answer.body.decode()
    run = answer.json()
    assert run["passes"][0]["applied"] == applied
    back = service.post(f"/v1/runs/{run['id']}/rollback")
    assert back.status == 201 and back.json()["result"] == run["source"]
    found = from_document(run["graph"])(x) if applied else expected
    close = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
    assert found.dtype == dtype and (found - expected).abs().max() <= close * expected.abs().max()
