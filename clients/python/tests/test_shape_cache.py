"""Calls that are alike are made once to know their shapes, and nothing else is found than where each is made."""

import pytest
import torch
import transformers_models
from torch import nn

import foldback
from foldback import shape_cache, shapes


class Turns(nn.Module):
    """Changes the shape of what it is given."""

    def forward(self, x):
        return x.unsqueeze_(0)


class Leaves(torch.fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, Turns) or super().is_leaf_module(module, name)


class Twice(nn.Module):
    """Two branches of calls that are alike, of which the first is `written` to."""

    def __init__(self, written, turns=None):
        super().__init__()
        self.written, self.turns = written, turns

    def forward(self, x):
        first, second = x.exp(), x.exp()
        return self.written(self, first), first + 1, second + 1


def turned(x):
    return x.unsqueeze_(0)


torch.fx.wrap("turned")


def enters_autocast(self, x):
    context = torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, None)
    y = x @ x
    torch.amp.autocast_mode._exit_autocast(context)
    return y, x @ x


PROGRAMS = {
    "method": lambda self, x: x.unsqueeze_(0),
    "function": lambda self, x: torch.resize_as_(x, x.new_zeros(2, 4, 4)),
    "leaf": lambda self, x: self.turns(x),
    "wrapped": lambda self, x: turned(x),
    "out": lambda self, x: torch.cat([x, x], out=x.new_zeros(0)),
    "autocast": enters_autocast,
    "chunks": lambda self, x: (x.chunk(2), x.chunk(2, 1), x.chunk(2)[0] + 1),
    "types": lambda self, x: (x.to(torch.int64) * 2, x.to(torch.int64) * 2.0, x.to(torch.int64) * True),
    "dtypes": lambda self, x: (x.to(torch.float64).exp(), x.to(torch.float16).exp(), x.to(torch.float32).exp()),
    "strides": lambda self, x: (x.t().reshape(-1), x.reshape(-1), x.t().view(4, 4), x.expand(2, 4, 4).transpose(0, 1) + 1),
    "sizes that depend on values": lambda self, x: (x.nonzero(), x.exp().nonzero(), (x + 1).nonzero()),
    "numbers that depend on values": lambda self, x: (x.sum().item(), x.exp().sum().item(), x[0, 0].long().item()),
}


def found_without(monkeypatch, module, inputs):
    with monkeypatch.context() as patch:
        patch.setattr(shape_cache, "_is_known", lambda *_: False)
        return shapes.propagate(module, inputs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_in_which_results_could_be_mixed_up(name, monkeypatch):
    graph = Leaves().trace(model := Twice(PROGRAMS[name], Turns()))
    module, x = torch.fx.GraphModule(model, graph), torch.randn(4, 4)
    assert shapes.propagate(module, (x,)) == found_without(monkeypatch, module, (x,))


def test_sizes_that_depend_on_values_are_each_their_own():
    live = torch.fx.symbolic_trace(Twice(PROGRAMS["sizes that depend on values"]))
    found = shapes.propagate(live, (torch.randn(4, 4),))
    assert len({str(meta["shape"][0]) for name, meta in found.items() if name.startswith("nonzero")}) == 3


@pytest.mark.parametrize("layers", [
    [nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3, stride=2), nn.Conv2d(3, 3, 1, dilation=2)],
    [nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, affine=False), nn.Flatten(), nn.Flatten(0)],
    [nn.Linear(8, 8), nn.Linear(8, 6, bias=False), nn.Linear(6, 6), nn.Unflatten(-1, (2, 3)), nn.Flatten(-2), nn.Linear(6, 8)],
    [nn.ReLU(inplace=True), nn.ReLU(), nn.Softmax(0), nn.Softmax(1), nn.AvgPool2d(2), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)],
    [nn.Flatten(2), nn.TransformerEncoderLayer(64, 2, 8, batch_first=True), nn.TransformerEncoderLayer(64, 4, 8)],
])
def test_modules_that_differ(layers, monkeypatch):
    live, x = torch.fx.symbolic_trace(nn.Sequential(*layers).eval()), torch.randn(2, 3, 8, 8)
    assert shapes.propagate(live, (x,)) == found_without(monkeypatch, live, (x,))


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(transformers_models.MODELS))
def test_models(name, monkeypatch):
    model, inputs = transformers_models.make(name)
    live = torch.export.export(model, (), inputs, strict=False).module()
    given = list(inputs.values())
    assert shapes.propagate(live, given) == found_without(monkeypatch, live, given)


def test_a_layer_is_looked_at_once(monkeypatch):
    layer = lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
    live, made = torch.fx.symbolic_trace(nn.Sequential(*(layer() for _ in range(6)))), []
    real = torch.fx.Interpreter.run_node
    monkeypatch.setattr(torch.fx.Interpreter, "run_node", lambda self, node: made.append(node.op) or real(self, node))
    foldback.fx.to_document(live, torch.randn(2, 8))
    assert made.count("call_module") == 3
