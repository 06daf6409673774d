"""FuseRotation against PyTorch: halves by slices, chunk or split, either of them negated. The same bits and strides."""

import pytest
import torch

import foldback.export
from foldback.fx import from_document, to_document

HALVES = {
    "chunk": lambda x: x.chunk(2, -1),
    "chunk of a dimension": lambda x: torch.chunk(x, 2, 3),
    "split": lambda x: x.split(4, -1),
    "split by sizes": lambda x: x.split([4, 4], dim=-1),
    "slices": lambda x: (x[..., :4], x[..., 4:]),
}


class Rotary(torch.nn.Module):
    def __init__(self, halves, is_second_negated):
        super().__init__()
        self.halves, self.is_second_negated = halves, is_second_negated

    def turned(self, x):
        a, b = self.halves(x)
        return torch.cat((-b, a) if self.is_second_negated else (b, -a), -1)

    def forward(self, q, k, angles):
        cosine, sine = angles.cos(), angles.sin()
        return q * cosine + self.turned(q) * sine, k * cosine + self.turned(k) * sine


@pytest.mark.parametrize("dialect", ["fx", "aten", "core"])
@pytest.mark.parametrize("is_second_negated", [True, False])
@pytest.mark.parametrize("halves", HALVES)
def test_rotation(service, halves, is_second_negated, dialect):
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        model = Rotary(HALVES[halves], is_second_negated)
        given = [torch.randn(size, dtype=dtype) for size in ((2, 4, 16, 8), (2, 2, 16, 8), (16, 8))]
        if dialect == "fx":
            document = to_document(torch.fx.symbolic_trace(model), *given)
        else:
            program = torch.export.export(model, tuple(given))
            document = foldback.export.from_exported_program(program.run_decompositions() if dialect == "core" else program)
        answer = service.post("/v1/optimize",
                              {"graph": document, "passes": ["FuseRotation"], "options": {"include": ["graph"]}})
        run = answer.json()
        assert run["passes"][0]["applied"] == 2, run["passes"]
        for made, expected in zip(from_document(run["graph"])(*given), model(*given), strict=True):
            assert torch.equal(made, expected) and made.stride() == expected.stride()
        assert service.post(f"/v1/runs/{run['id']}/rollback").json()["result"] == run["source"]
