"""InlineVmap and InlinePrograms against PyTorch, on what torch.export makes of random functions; each rollback gives the same
id."""

import random

import pytest
import torch
from torch import nn
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

import foldback
import foldback.export
import foldback.private

COMPARISONS = [torch.le, torch.lt, torch.ge, torch.eq, torch.ne]
LOGIC = [torch.Tensor.__and__, torch.Tensor.__or__, torch.Tensor.__xor__]


def element(r, depth):
    """A function of one element for each of the levels, and of a table that it looks up: its steps, drawn once."""

    def number(level):
        return r.choice([
            lambda at: at[level], lambda at: at[level] + r_int, lambda at: at[level] * 2, lambda at: at[level] % 3,
            lambda at: at[level].new_full((), 2), lambda at: torch.where(at[level] > 1, at[level], at[0]),
        ])

    r_int = r.randint(0, 3)

    def truth():
        kind = r.random()
        a, b = number(r.randrange(depth)), number(r.randrange(depth))
        compare = r.choice(COMPARISONS)
        if kind < 0.2:
            i, j = r.randrange(depth), r.randrange(depth)
            return lambda at, table: table[at[i], at[j]]
        if kind < 0.3:
            return lambda at, table: at[0].new_ones((), dtype=torch.bool)
        if kind < 0.4:
            return lambda at, table: compare(a(at), 1)
        return lambda at, table: compare(a(at), b(at))

    steps = [(r.choice(LOGIC), truth()) for _ in range(r.randint(0, 3))]
    first = truth()

    def run(table, *at):
        found = first(at, table)
        for combine, step in steps:
            found = combine(found, step(at, table))
        return found

    return run


class Masks(nn.Module):
    def __init__(self, seed):
        super().__init__()
        r = random.Random(seed)
        self.sizes = [r.choice([1, 2, 3, 5]) for _ in range(r.randint(1, 4))]
        self.function = element(r, len(self.sizes))
        self.reads = r.choice(["where", "where", "sum", "where", "sum", "view", "itself"])

    def forward(self, x, table):
        function = lambda *at: self.function(table, *at)
        for level in reversed(range(len(self.sizes))):
            function = torch.vmap(function, in_dims=tuple(0 if i == level else None for i in range(len(self.sizes))))
        with TransformGetItemToIndex():
            mask = function(*(torch.arange(size) for size in self.sizes))
        if self.reads == "where":  # a product, so that nobody minds how the mask lies in memory
            return torch.where(mask, x, -1.0) @ torch.ones(self.sizes[-1], 2)
        if self.reads == "view":
            return mask.contiguous().view(-1) * 2
        return mask if self.reads == "itself" else mask.float() @ torch.ones(self.sizes[-1])


def optimise(program, passes):
    """The run, and the program's module with its edits; what the run did is validated, and a rollback gives the source's id."""
    client, document = foldback.private.client(), foldback.export.from_exported_program(program, data=True)
    run = client.optimize(document, passes, lint="each", validate="rewrites")
    assert client.rollback(run)["result"] == run["source"]
    live = program.module(check_guards=False)
    return run, foldback.apply_edits(live, client.edits(run))


def applied_by(run, name):
    return sum(one["applied"] for one in run["passes"] if one["name"] == name)


@pytest.mark.parametrize("passes", [["InlineVmap"], ["InlineVmap", "EvaluateConstants"], ["inference"]],
                         ids=lambda p: "+".join(p))
def test_random_vmaps_keep_their_numbers(passes):
    applied = 0
    for seed in range(20):
        torch.manual_seed(seed)
        model = Masks(seed).eval()
        draw = lambda: (torch.randn(model.sizes), torch.rand(5, 5) < 0.5)
        given = draw()
        run, live = optimise(torch.export.export(model, given), passes)
        applied += applied_by(run, "InlineVmap")
        for again in (given, draw()):
            expected, found = model(*again), live(*again)
            assert found.shape == expected.shape and found.dtype == expected.dtype and torch.equal(found, expected), seed
    assert applied >= 6


class Quiet(nn.Module):
    """Regions without gradients and without autocast, in each other or one after the other."""

    def __init__(self, seed):
        super().__init__()
        r = random.Random(seed)
        self.rotation = nn.Buffer(torch.randn(4), persistent=False)
        self.shapes = [r.choice(["grad", "autocast", "both", "neither"]) for _ in range(r.randint(1, 4))]
        self.ends = [r.choice(["one", "two", "input", "constant"]) for _ in self.shapes]
        self.fc = nn.Linear(4, 4)

    def region(self, x, end):
        y = (x[..., None] * self.rotation.float()).sum(-1).cos()
        return {"one": lambda: y, "two": lambda: y + x.sin(), "input": lambda: x * 1.0,
                "constant": lambda: torch.ones(2, 4)}[end]()

    def forward(self, x):
        for shape, end in zip(self.shapes, self.ends, strict=True):
            with torch.no_grad() if shape in ("grad", "both") else torch.enable_grad():
                if shape in ("autocast", "both"):
                    with torch.autocast("cpu", enabled=False):
                        y = self.region(x, end)
                else:
                    y = self.region(x, end)
            x = self.fc(x) + y
        return x


@pytest.mark.parametrize("passes", [[{"name": "InlinePrograms", "params": {"gradients": True}}], ["InlinePrograms"],
                                    ["inference"]])
def test_random_regions_keep_their_numbers(passes):
    applied = 0
    for seed in range(10):
        torch.manual_seed(seed)
        model, x = Quiet(seed).eval(), torch.randn(2, 4)
        run, live = optimise(torch.export.export(model, (x,)), passes)
        applied += applied_by(run, "InlinePrograms")
        for again in (x, torch.randn(2, 4)):
            found = live(again)
            assert torch.allclose(found, model(again), rtol=1e-5, atol=1e-6), seed
            assert passes == ["inference"] or torch.equal(found, model(again)), seed
    assert applied >= (1 if passes == ["InlinePrograms"] else 5)


def test_a_live_module_gets_its_programs_back():
    """The client takes nested programs out of a live module, and an undo puts the same objects back."""
    torch.manual_seed(0)
    model, x = Quiet(3).eval(), torch.randn(2, 4)
    model.shapes, model.ends = ["both", "grad"], ["one", "two"]
    program = torch.export.export(model, (x,))
    live = program.module(check_guards=False)
    client = foldback.private.client()
    run = client.optimize(foldback.export.from_exported_program(program),
                          [{"name": "InlinePrograms", "params": {"gradients": True}}])
    assert run["passes"][0]["applied"] == 2
    programs = lambda: [(path, id(child)) for path, child in live.named_modules() if isinstance(child, torch.fx.GraphModule)]
    expected, before = live(x), programs()
    foldback.apply_edits(live, client.edits(run))
    assert torch.equal(live(x), expected)
    assert programs() == before[:1]
    foldback.apply_edits(live, client.edits(client.reverse(run)))
    assert torch.equal(live(x), expected)
    assert programs() == before
