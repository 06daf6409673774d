"""foldback.testing.assert_same."""

import copy

import pytest
import torch

from foldback.testing import assert_same


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return torch.relu(self.linear(x) / 3), x > 0.5


@pytest.fixture
def pair():
    torch.manual_seed(0)
    model = Net().eval()
    return model, copy.deepcopy(model)


X = torch.randn(2, 4)


def test_modules_that_are_the_same(client, pair):
    a, b = map(torch.fx.symbolic_trace, pair)
    assert assert_same(a, b, (X,), client=client)["verdict"] == "same"
    for node in b.graph.nodes:
        if node.name == "truediv":
            node.target, node.args = torch.mul, (node.args[0], 1 / 3)
    b.recompile()
    assert assert_same(a, b, (X,), client=client)["verdict"] == "evaluated"


def test_what_differs_is_told(client, pair):
    a, b = map(torch.fx.symbolic_trace, pair)
    next(node for node in b.graph.nodes if node.name == "gt").target = torch.ge
    b.recompile()
    with pytest.raises(AssertionError, match="output.1: differs; element [0-9]+ is .*seed 0, sample [0-9]") as raised:
        assert_same(a, b, (X,), client=client)
    assert "output.0" not in str(raised.value) and "the first node that differs: gt" in str(raised.value)


def test_weights_count(client, pair):
    with torch.no_grad():
        pair[1].linear.weight[0, 0] += 0.125
    a, b = (torch.export.export(model, (X,)) for model in pair)
    with pytest.raises(AssertionError, match="output.0: differs"):
        assert_same(a, b, client=client)
    assert assert_same(a, a, client=client)["verdict"] == "same"


def test_files_and_what_nothing_is_known_of(client, pair, tmp_path):
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(pair[0], (X,)), path)
    traced = torch.fx.symbolic_trace(pair[0])
    assert_same(path, traced, (X,), client=client)
    document = {"format": "foldback.graph/1", "modules": [{"path": "", "type": "Net"}], "tensors": [], "nodes": [
        {"name": "x", "op": "placeholder", "target": "x", "args": [], "meta": {"shape": [2], "dtype": "float32"}},
        {"name": "y", "op": "call_function", "target": "my.own", "args": [{"$node": "x"}]},
        {"name": "output", "op": "output", "target": "output", "args": [{"$node": "y"}]}]}
    other = copy.deepcopy(document)
    other["nodes"][1]["target"] = "my.other"
    with pytest.raises(AssertionError, match="not-evaluated, .*my"):
        assert_same(document, other, client=client)
