"""Whether a module is known to be as it was: no row is written where it is, and no change is missed."""

import copy
import operator
import pickle
import weakref

import pytest
import torch
from torch import nn

import foldback.history
from foldback import optimization, private
from foldback.fx import build
from foldback.history import History, look_at


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other, self.norm = nn.Linear(4, 3), nn.Linear(4, 3), nn.LayerNorm(3)
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.register_buffer("mask", torch.ones(3, dtype=torch.int64))

    def forward(self, x):
        return self.body(self.norm(self.one(x) + self.other(x) / 4) * self.mask) + torch.tensor([2.0, 3.0, 4.0])


def transformed():
    live = torch.fx.symbolic_trace(Model().eval())
    return optimization.compose(optimization.MergeLinears(), optimization.ChangeTrueDivToMulByInverse())(live)


def node(live, target):
    return next(node for node in live.graph.nodes if target in (node.target, node.name))


def renames(live):
    node(live, "norm").name = "another"


def sets_an_equal_number(live):
    found = node(live, operator.mul)
    found.args = (found.args[0], 1) if found.args[1] == 1 else (*found.args[:1], 0.25)


def replaces_a_parameter(live):
    live.norm.weight = nn.Parameter(live.norm.weight.detach().clone())


def replaces_the_memory(live):
    live.norm.weight.data = torch.ones(4)[:3]


def hooks(live):
    live.norm.register_forward_hook(lambda *_: None)


def puts_in_a_node(live):
    with live.graph.inserting_after(node(live, "norm")):
        live.graph.call_function(torch.neg, (node(live, "norm"),))


CHANGES = {
    "a name": renames,
    "a number": sets_an_equal_number,
    "a node": puts_in_a_node,
    "an annotation": lambda live: setattr(node(live, "norm"), "type", torch.Tensor),
    "what is known of a node": lambda live: node(live, "norm").meta.update(foldback={"shape": [2, 3]}),
    "a number of a module": lambda live: setattr(live.norm, "eps", 1e-3),
    "a mode": lambda live: live.norm.train(),
    "a parameter": replaces_a_parameter,
    "a parameter's memory": replaces_the_memory,
    "requires_grad": lambda live: live.norm.weight.requires_grad_(False),
    "a module": lambda live: setattr(live.body, "1", nn.GELU()),
    "a module that goes": lambda live: delattr(live, "norm"),
    "a hook": hooks,
    "a forward() of its own": lambda live: setattr(live.norm, "forward", live.norm.forward),
    "a constant": lambda live: live.mask.mul_(2),
    "a constant, uncounted": lambda live: live.mask.data.mul_(2),
    "a constant of the program": lambda live: live._tensor_constant0.data.mul_(2),
    "persistence": lambda live: live._non_persistent_buffers_set.add("mask"),
    "a merged weight": lambda live: live.get_submodule(merged(live)).weight.data[0].mul_(2),
}


def merged(live):
    return next(node.target for node in live.graph.nodes if node.op == "call_module" and "merged" in node.name)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change):
    live = transformed()
    history = History.of(live)
    assert foldback.history._is_untouched(live, history)
    CHANGES[change](live)
    assert not foldback.history._is_untouched(live, history)


def test_no_row_is_written_of_a_module_that_is_as_it_was(monkeypatch):
    live = transformed()
    monkeypatch.setattr(foldback.history, "build", None)
    assert look_at(live, private.client()).graph == History.of(live).graph


@pytest.mark.parametrize("again", [copy.deepcopy, lambda live: pickle.loads(pickle.dumps(live))], ids=["copy", "pickle"])
def test_a_copy_is_looked_at(again):
    live = transformed()
    made = again(live)
    assert History.of(made).fingerprint is None
    assert look_at(made, private.client()).graph == History.of(live).graph


@pytest.mark.parametrize("passes", [["MergeLinears"], ["FuseBiasInLinear"], ["inference"], ["cleanup", "EvaluateConstants"]])
def test_what_is_said_of_a_module_after_a_pass(passes):
    """Rows that no edit names are taken over: they are those that would be written."""
    live = torch.fx.symbolic_trace(Model().eval())
    for name in passes:
        optimization.compose(getattr(optimization, name)())(live)
        seen, now = History.of(live).seen, build(live)
        assert (seen["nodes"], seen["modules"]) == (now["nodes"], now["modules"])


def test_a_fingerprint_keeps_nothing_in_memory():
    live = transformed()
    gone = weakref.ref(live.norm.weight)
    live.norm.weight = nn.Parameter(torch.ones(3))
    assert gone() is None
