"""A weight that is transposed before a product or a Linear, in every spelling and both dialects: `inference` leaves no
transposition, the numbers stay, and undoing gives the source back."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import foldback.export
from foldback.fx import from_document, to_document

TRANSPOSED = {
    "t": lambda w: w.t(),
    "torch.t": lambda w: torch.t(w),
    "transpose": lambda w: w.transpose(0, 1),
    "transpose from the end": lambda w: torch.transpose(w, -1, -2),
    "swapaxes": lambda w: w.swapaxes(0, 1),
    "permute": lambda w: w.permute(1, 0),
    "torch.permute": lambda w: torch.permute(w, (1, 0)),
    "T": lambda w: w.T,
    "mT": lambda w: w.mT,
    "movedim": lambda w: w.movedim(0, 1),
    "contiguous": lambda w: w.t().contiguous(),
}
READERS = {
    "mm": lambda x, w, b: torch.mm(x, w),
    "matmul": lambda x, w, b: x @ w,
    "matmul and sum": lambda x, w, b: torch.matmul(x, w) + b,
    "addmm": lambda x, w, b: torch.addmm(b, x, w),
    "linear": lambda x, w, b: F.linear(x, w, b),
    "two": lambda x, w, b: torch.relu(x @ w) + torch.tanh(x) @ w,
}
VIEWS = ("t.", "transpose.", "permute.", "numpy_T.", "mT.", "movedim.", "swapaxes.")
DIMENSIONS = [(name, rank) for name in READERS for rank in (2, 3) if rank == 2 or name not in ("mm", "addmm")]


class Net(nn.Module):
    def __init__(self, transpose, reader, is_linear):
        super().__init__()
        self.weight = nn.Parameter(torch.randn((4, 5) if is_linear else (5, 4)))
        self.bias = nn.Parameter(torch.randn(5))
        self.transpose, self.reader = transpose, reader

    def forward(self, x):
        return self.reader(x, self.transpose(self.weight), self.bias)


@pytest.mark.parametrize("dialect", ["fx", "aten"])
@pytest.mark.parametrize("reader, rank", DIMENSIONS)
def test_no_transposition_is_left(service, dialect, reader, rank):
    for name, transpose in TRANSPOSED.items():
        torch.manual_seed(rank)
        model = Net(transpose, READERS[reader], reader == "linear").double().eval()
        x = torch.randn((3, 4) if rank == 2 else (2, 3, 4), dtype=torch.float64)
        if dialect == "fx":
            document = to_document(torch.fx.symbolic_trace(model), x, data=True)
        else:
            document = foldback.export.from_exported_program(torch.export.export(model, (x,)), data=True)
        asked = {"graph": document, "passes": ["inference"], "options": {"include": ["graph"], "lint": "each"}}
        answer = service.post("/v1/optimize", asked)
        assert answer.status == 201, answer.body.decode()
        run = answer.json()
        back = service.post(f"/v1/runs/{run['id']}/rollback")
        assert back.status == 201 and back.json()["result"] == run["source"]
        left = [node["target"].removeprefix("torch.ops.aten.")
                for node in run["graph"]["nodes"] if node["op"].startswith("call")]
        assert not [target for target in left if f"{target}.".startswith(VIEWS)], (name, left)
        if reader != "two" and name != "contiguous":
            assert len(left) == 1, (name, left)
        assert torch.allclose(from_document(run["graph"])(x), model(x), rtol=1e-12, atol=1e-12), name
