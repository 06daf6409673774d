"""FuseAttention where the readers of the result give rows of either order of its memory, against PyTorch: numbers and strides.
FOLDBACK_ATTENTIONS=1000 tries as many random attentions."""

import os
import random

import pytest
import torch

import foldback.export
from foldback.fx import from_document, to_document

B, H, L, E = 2, 4, 6, 8
WIDTH = H * E


def heads(x):
    return x.view(x.shape[0], x.shape[1], H, -1).transpose(1, 2)


def merged(y):
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)


QUERIES = {  # of a row-major (B, L, 3 * WIDTH); the second says if the order of its memory is known
    "heads of a Linear": (lambda x: heads(x[..., :WIDTH].contiguous()), True),
    "heads of a part": (lambda x: heads(x.chunk(3, -1)[0]), True),
    "heads of a split": (lambda x: heads(x.split(WIDTH, -1)[1]), True),
    "rows": (lambda x: heads(x[..., WIDTH:2 * WIDTH]).contiguous(), True),
    "heads of columns": (lambda x: x.reshape(x.shape[0], x.shape[1], -1, H)[..., :E, :].permute(0, 3, 1, 2), False),
    "batch turned": (lambda x: heads(x[..., :WIDTH].transpose(0, 1).contiguous().transpose(0, 1)), False),
}
READERS = {  # of (B, H, L, E); the second says if they give rows of either order
    "reshape": (merged, True),
    "reshape to a matrix": (lambda y: y.transpose(1, 2).reshape(-1, y.shape[1] * y.shape[3]), True),
    "flatten": (lambda y: y.permute(0, 2, 1, 3).flatten(2), True),
    "flatten of all": (lambda y: y.flatten(), True),
    "flatten of heads": (lambda y: y.flatten(2), True),
    "cat": (lambda y: torch.cat([y, y], 2), True),
    "cat of rows": (lambda y: torch.cat([y.transpose(1, 2), y.transpose(1, 2)], 3), True),
    "cat of a column": (lambda y: torch.cat([y, y[..., :1]], 3), False),
    "sum": (lambda y: y.sum(-1), True),
    "one shown, one read": (lambda y: (merged(y), y.flatten(2).sum(-1)), True),
    "both shown": (lambda y: (merged(y), y.flatten(2)), False),
    "view": (lambda y: y.view(y.shape[0], -1), False),
    "view of rows": (lambda y: y.transpose(1, 2).contiguous().view(y.shape[0], y.shape[2], -1), True),
    "split": (lambda y: y.reshape(y.shape[0], y.shape[1], y.shape[2], 2, -1), False),
    "joined before": (lambda y: y.reshape(-1, y.shape[2], y.shape[3]), False),
    "one column": (lambda y: y[..., :1].transpose(1, 2).reshape(y.shape[0], y.shape[2], -1), False),
    "itself": (lambda y: y, False),
    "its square": (lambda y: y * y, False),
    "written": (lambda y: merged(y).add_(1), False),
    "a row": (lambda y: y[0, :, 0, 0], False),
    "a cell": (lambda y: y[0, 0, 0], False),
}


class Attention(torch.nn.Module):
    def __init__(self, query, reader):
        super().__init__()
        self.query, self.reader = query, reader
        self.project = torch.nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        qkv = self.project(x)
        k, v = heads(qkv.split(WIDTH, -1)[1]), heads(qkv.split(WIDTH, -1)[2])
        scores = torch.matmul(self.query(qkv), k.transpose(-1, -2)) * E**-0.5
        return self.reader(torch.softmax(scores, -1).matmul(v))


def applied(service, dialect, query, reader, batch=B, length=L, dtype=torch.float32):
    """How often it was applied, once the rewritten model is known to give the same, laid out in the same way."""
    torch.manual_seed(0)
    model, x = Attention(query, reader).to(dtype).eval(), torch.randn(batch, length, WIDTH, dtype=dtype)
    if dialect == "fx":
        document = to_document(torch.fx.symbolic_trace(model), x, data=True)
    else:
        program = torch.export.export(model, (x,))
        program = program.run_decompositions() if dialect == "core" else program
        document = foldback.export.from_exported_program(program, data=True)
    request = {"graph": document, "passes": ["FuseAttention"], "options": {"include": ["graph"]}}
    run = service.post("/v1/optimize", request).json()
    made, expected = from_document(run["graph"])(x), model(x)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for one, other in zip(made if isinstance(made, tuple) else (made,), expected, strict=True):
        tolerance = {torch.float32: 1e-5, torch.float64: 1e-11, torch.bfloat16: 2e-2}[dtype]
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
        assert one.stride() == other.stride() or not run["passes"][0]["applied"]
    assert service.post(f"/v1/runs/{run['id']}/rollback").json()["result"] == run["source"]
    return run["passes"][0]["applied"], [refused["reason"] for refused in run["passes"][0]["refused"]]


@pytest.mark.parametrize("dialect", ["fx", "aten"])
@pytest.mark.parametrize("reader", READERS)
def test_readers(service, reader, dialect):
    read, is_fused = READERS[reader]
    outcome = applied(service, dialect, QUERIES["heads of a Linear"][0], read)
    assert outcome[0] == is_fused and (is_fused or outcome[1]), outcome


@pytest.mark.parametrize("dialect", ["fx", "aten"])
@pytest.mark.parametrize("query", QUERIES)
def test_queries(service, query, dialect):
    of, is_known = QUERIES[query]
    assert applied(service, dialect, of, merged) == ((1, []) if is_known else (0, ["needs-contiguous"]))


def test_random(service):
    choose = random.Random(0)
    for _ in range(int(os.environ.get("FOLDBACK_ATTENTIONS", "10"))):
        query, reader = choose.choice([*QUERIES.values()])[0], choose.choice([*READERS.values()])[0]
        applied(service, choose.choice(["fx", "aten", "core"]), query, reader, choose.choice([1, 2, 3]),
                choose.choice([1, 2, 5]), choose.choice([torch.float32, torch.float64, torch.bfloat16]))
