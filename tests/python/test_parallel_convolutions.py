"""MergeConvolutions against PyTorch on random nets, in both dialects: numbers, refusals, and an undo that gives the same id."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import foldback.export
from foldback.fx import from_document, to_document

READERS = (
    lambda y: y.flatten(1),
    lambda y: F.relu(y).sum(-1),
    lambda y: y.transpose(-1, -2) * 2,
    lambda y: y.mean(dim=(-1,)).view(y.shape[0], -1),
    lambda y: y.view(y.shape[0], -1).softmax(1),
    lambda y: y.reshape(-1),
    lambda y: torch.cat([y, y.clone().add_(1)], 1),
    lambda y: y.contiguous().view(-1),
)


def options(r, spatial):
    kernel = r.choice([1, 2, 3])
    padding = r.choice([0, 1, "same", "valid"]) if kernel > 1 else 0
    return {"kernel_size": kernel, "padding": padding, "dilation": r.choice([1, 2]),
            "stride": 1 if padding == "same" else r.choice([1, 2]), "padding_mode": r.choice(["zeros", "zeros", "circular"])}


class Net(nn.Module):
    """Convolutions on one value, of two kinds; some transposed, or with groups; some read as functions."""

    def __init__(self, seed):
        super().__init__()
        r = random.Random(seed)
        self.spatial = r.choice([1, 2, 3])
        conv = getattr(nn, f"Conv{self.spatial}d")
        kinds = [options(r, self.spatial), options(r, self.spatial)]
        self.convs = nn.ModuleList()
        self.as_function, self.readers = [], []
        for _ in range(r.randint(2, 6)):
            kind = r.choice(kinds + kinds[:1] * 3)
            more = {"groups": 2} if r.random() < 0.1 else {}
            self.convs.append(conv(4, 2 * r.randint(1, 4) if more else r.randint(1, 5), bias=r.random() < 0.6, **kind, **more))
            self.as_function.append(kind["padding_mode"] == "zeros" and r.random() < 0.4)
            self.readers.append(r.choice(READERS))
        self.writes = r.random() < 0.15

    def forward(self, x):
        x = torch.relu(x)
        results = []
        for i, (conv, as_function, reader) in enumerate(zip(self.convs, self.as_function, self.readers)):
            if i == 1 and self.writes:
                x.mul_(2)
            if as_function:
                function = (F.conv1d, F.conv2d, F.conv3d)[self.spatial - 1]
                y = function(x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups)
            else:
                y = conv(x)
            results.append(reader(y))
        return tuple(results)


def optimise(service, document, applied=None):
    asked = {"graph": document, "passes": ["MergeConvolutions"], "options": {"include": ["graph"], "lint": "each"}}
    answer = service.post("/v1/optimize", asked)
    assert answer.status == 201, answer.body.decode()
    run = answer.json()
    back = service.post(f"/v1/runs/{run['id']}/rollback")
    assert back.status == 201 and back.json()["result"] == run["source"]
    return run


def read(model, x, dialect):
    if dialect == "fx":
        return to_document(torch.fx.symbolic_trace(model), x, data=True)
    program = torch.export.export(model, (x,))
    return foldback.export.from_exported_program(program.run_decompositions() if dialect == "core" else program, data=True)


@pytest.mark.parametrize("dialect", ["fx", "aten", "core"])
@pytest.mark.parametrize("layout", ["contiguous", "channels-last"])
def test_random_nets_keep_their_numbers(service, dialect, layout):
    applied = 0
    for seed in range(24 if dialect == "fx" else 8):
        torch.manual_seed(seed)
        model = Net(seed).double().eval()
        x = torch.randn((2, 4) + (7,) * model.spatial, dtype=torch.float64)
        formats = {2: torch.channels_last, 3: torch.channels_last_3d}
        if layout == "channels-last" and model.spatial in formats:
            x = x.contiguous(memory_format=formats[model.spatial])
        try:
            expected = model(x.clone(memory_format=torch.preserve_format))
        except RuntimeError:
            continue  # a view that this layout has not
        run = optimise(service, read(model, x, dialect))
        applied += run["passes"][0]["applied"]
        if not run["passes"][0]["applied"]:
            continue
        found = from_document(run["graph"])(x.clone(memory_format=torch.preserve_format))
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape and torch.allclose(a, b, rtol=1e-12, atol=1e-12), seed
    assert applied >= 3


def test_the_branches_of_inception(service):
    """Three 1x1 convolutions on one value, as in GoogLeNet, and a 3x3 beside them."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.three, self.five = nn.Conv2d(6, 4, 1), nn.Conv2d(6, 3, 1), nn.Conv2d(6, 2, 1)
            self.wide = nn.Conv2d(6, 2, 3, padding=1)
            self.after = nn.Conv2d(3, 5, 3, padding=1)

        def forward(self, x):
            return torch.cat([self.one(x), self.after(F.relu(self.three(x))), self.five(x), self.wide(x)], 1)

    model, x = Block().double().eval(), torch.randn(2, 6, 8, 8, dtype=torch.float64)
    run = optimise(service, read(model, x, "fx"))
    assert run["passes"][0]["applied"] == 1
    assert [r["reason"] for r in run["passes"][0]["refused"]] == ["kernel-differs"]
    assert torch.allclose(from_document(run["graph"])(x), model(x), rtol=1e-12, atol=1e-12)
