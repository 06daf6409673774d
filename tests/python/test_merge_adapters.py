"""MergeAdapters against PyTorch: LoRA as PEFT computes it, and random branches; in all dialects, with undo."""

import os
import random

import pytest
import torch
import torch.nn.functional as F
from test_merge_branches import kinds, optimise
from test_parallel_convolutions import read
from torch import nn

from foldback.fx import from_document


class Lora(nn.Module):
    """As a layer of PEFT: the base is frozen, the branch is trained, and dropout does nothing in eval mode."""

    def __init__(self, inputs, outputs, rank=2, alpha=4, adapters=1, bias=True, dropout=0.1):
        super().__init__()
        self.base_layer = nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)
        self.lora_A = nn.ModuleList(nn.Linear(inputs, rank, bias=False) for _ in range(adapters))
        self.lora_B = nn.ModuleList(nn.Linear(rank, outputs, bias=False) for _ in range(adapters))
        self.lora_dropout, self.scaling = nn.Dropout(dropout), alpha / rank

    def forward(self, x):
        result = self.base_layer(x)
        for down, up in zip(self.lora_A, self.lora_B):
            result = result + up(down(self.lora_dropout(x.to(down.weight.dtype)))) * self.scaling
        return result


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = Lora(8, 12, bias=False), Lora(12, 8, adapters=2), nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x + self.down(F.gelu(self.up(x))))


@pytest.mark.parametrize("dialect", ["fx", "aten", "core"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_adapters_of_a_block_are_merged(service, dialect, dtype):
    torch.manual_seed(1)
    model, x = Block().to(dtype).eval(), torch.randn(2, 5, 8, dtype=dtype)
    if dialect == "core":  # of dropout it leaves a clone, which may be what makes the view behind it possible
        model.up.lora_dropout = model.down.lora_dropout = nn.Identity()
    run = optimise(service, read(model, x, dialect), ["inference"])
    linears = [kind for kind in kinds(run["graph"]) if "inear" in kind or kind.endswith(("addmm.default", "mm.default"))]
    assert len(linears) == 2, linears
    with torch.no_grad():
        expected, found = model.double()(x.double()), from_document(run["graph"])(x)
    limit = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=limit, atol=limit)


def test_a_merge_through_views_is_validated(service):
    """The base's views in core ATen have another value now: it is what is made of them that is compared."""
    torch.manual_seed(2)
    model, x = Lora(8, 12, bias=False, dropout=0).eval(), torch.randn(2, 5, 8)
    model.lora_dropout = nn.Identity()
    answer = service.post("/v1/optimize", {"graph": read(model, x, "core"), "passes": ["inference"],
                                           "options": {"validate": "rewrites"}})
    assert answer.status == 201, answer.body
    assert {one["name"]: one["applied"] for one in answer.json()["passes"]}["MergeAdapters"] == 1


class Branch(nn.Module):
    """A branch as `choose` draws it; it may have something that the pass must see."""

    def __init__(self, choose):
        super().__init__()
        inputs, middle, outputs = (choose.randint(1, 5) for _ in range(3))
        self.base = nn.Linear(inputs, outputs, bias=choose.random() < 0.7)
        self.down = nn.Linear(inputs, middle, bias=choose.random() < 0.3)
        self.up = nn.Linear(middle, choose.choice([outputs] * 6 + [1]), bias=choose.random() < 0.3)
        self.form = choose.choice(["plain"] * 6 + ["in place", "subtracted", "branch first", "other way", "alpha"])
        self.scales = [choose.choice([None, None, None, 2, 0.5, -1.5, 0 if choose.random() < 0.2 else 3]) for _ in range(3)]
        self.trap = choose.choice([None] * 14 + ["shared", "x written", "x written before", "middle read", "base read", "tied",
                                                "base written", "y written", "transposed", "viewed", "viewed", "broadcast"])
        if self.trap == "tied":
            self.down.weight = nn.Parameter(self.base.weight[:1].expand(middle, inputs).clone())
            self.up.weight = nn.Parameter(self.base.weight[:, :1].expand(outputs, middle).clone())
            if middle == outputs:
                self.down.weight = self.base.weight
        for parameter in self.parameters():
            parameter.requires_grad_(choose.random() < 0.5)
        self.shape = choose.choice([(3,), (2, 3), (1, 2, 3)] if self.trap != "broadcast" else [(3, 1)]) + (inputs,)

    def scaled(self, x, i):
        return x if self.scales[i] is None else x * self.scales[i] if i % 2 else self.scales[i] * x

    def forward(self, x):
        x = x.mul(1)
        more = []
        if self.trap == "transposed" and len(self.shape) > 2:
            x = x.transpose(0, 1)
        y = self.base(x)
        if self.trap == "x written before":
            x.add_(1)
        if self.trap == "base written":
            y.mul_(2)
        z = self.down(self.scaled(x.reshape(-1, self.shape[-1]) if self.trap in ("viewed", "broadcast") else x, 0))
        if self.trap == "x written":
            x.add_(1)
        if self.trap in ("middle read", "base read"):
            more = [z if self.trap == "middle read" else y]
        z = self.scaled(self.up(self.scaled(z, 1)), 2)
        if self.trap == "viewed":
            z = z.reshape(*self.shape[:-1], self.up.out_features)
        if self.form == "in place" and self.up.out_features == self.base.out_features:
            y = y.add_(z)
        elif self.form == "alpha":
            y = torch.add(y, z, alpha=2)
        elif self.form in ("subtracted", "other way"):
            y = y - z if self.form == "subtracted" else z - y
        else:
            y = z + y if self.form == "branch first" else y + z
        if self.trap == "y written":
            y.relu_()
        if self.trap == "shared":
            more = [self.down(x + 1)]
        return (y, *more)


@pytest.mark.parametrize("dialect", ["fx", "aten", "core"])
def test_random_branches_keep_their_numbers(service, dialect):
    merged, count = 0, int(os.environ.get("FOLDBACK_ADAPTERS", "10"))
    for seed in range(count):
        choose = random.Random(seed)
        torch.manual_seed(seed)
        model = Branch(choose).double().eval()
        x = torch.randn(model.shape, dtype=torch.float64)
        with torch.no_grad():
            expected = model(x)
        run = optimise(service, read(model, x, dialect), ["MergeAdapters"])
        merged += run["passes"][0]["applied"]
        with torch.no_grad():
            found = from_document(run["graph"])(x)
        for one, other in zip(found, expected):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=f"seed {seed}: {vars(model)}")
            assert one.stride() == other.stride(), seed
    assert dialect == "core" or merged > count / 5, merged


def test_what_was_trained_since_is_reversed_only_where_it_is_untrained(service):
    torch.manual_seed(2)
    model, x = Lora(6, 4, dropout=0).eval(), torch.randn(3, 6)
    model.lora_dropout = nn.Identity()
    run = optimise(service, read(model, x, "fx"), ["MergeAdapters"])
    back = service.post(f"/v1/runs/{run['id']}/reverse", {"graph": run["graph"]})
    assert back.status == 201 and back.json()["result"] == run["source"], back.body
