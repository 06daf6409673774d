"""Silent changes of exporters: one test for each row of docs/exporters.md that needs nothing but PyTorch."""

import base64
import warnings

import pytest
import torch
from torch import nn

import foldback
from foldback.export import from_exported_program, from_module, traced


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Counter(nn.Module):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Buffered(nn.Module):
    def __init__(self, tensor):
        super().__init__()
        self.register_buffer("held", tensor)

    def forward(self, x):
        return x * self.held


class Frozen(nn.Sequential):
    def forward(self, x):
        with torch.no_grad():
            return self[0](x)


def targets(document):
    return [row["target"] for row in document["nodes"]]


def recorded(document):
    return [row["meta"].get("dtype") for row in document["nodes"] if row["op"] == "call_function"]


def test_two_arguments_of_one_example():
    x, other = torch.ones(2), torch.full((2,), 5.0)
    model = Call(lambda a, b: 2 * a - b)
    alone = torch.export.export(model, (x, x)).module()
    assert torch.equal(alone(x, other), other)
    assert torch.equal(foldback.fx.from_document(from_module(model, x, x))(x, other), model(x, other))


@pytest.mark.parametrize("calls", [0, 3, 0.5])
def test_a_number_that_forward_counts_is_named(calls):
    model = Counter(calls)
    with pytest.warns(UserWarning, match="changes calls in each call"):
        document = from_module(model, torch.ones(1))
    assert model.calls == calls
    live = foldback.fx.from_document(document)
    assert [live(torch.ones(1)).item() for _ in range(2)] == [calls + 1] * 2


def test_other_models_are_not_warned_about():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_module(Counter(torch.zeros(1)), torch.ones(1))
        from_module(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), torch.ones(3, 2))
    assert not [str(one.message) for one in caught if "in each call" in str(one.message)]


def test_lazy_conjugation():
    held = torch.tensor([1 + 2j]).conj()
    document = from_module(Buffered(held), torch.ones(1, dtype=torch.complex64), data=True)
    (row,) = document["tensors"]
    assert base64.b64decode(row["data"]) == held.resolve_conj().numpy().tobytes()


def test_a_slice_comes_without_the_memory_around_it():
    data = torch.arange(100_000.0)
    document = from_module(Buffered(data[:4]), data[4:8], data=True)
    (row,) = document["tensors"]
    assert base64.b64decode(row["data"]) == data[:4].numpy().tobytes()


def test_what_is_recorded_is_not_older_than_the_weights():
    program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    program.module().double()
    assert program.graph_signature.user_inputs and recorded(from_exported_program(program)) == [None]


def test_what_nothing_finds():
    x = torch.ones(1, 2)
    model = Frozen(nn.Linear(2, 2))
    region = "torch.ops.higher_order.wrap_with_set_grad_enabled"
    assert region in targets(from_module(model, x))
    with torch.no_grad():
        assert region not in targets(from_module(model, x))
    with torch.autocast("cpu"):
        document = from_module(nn.Linear(2, 2), x)
    assert recorded(document) == ["bfloat16"]
    assert foldback.fx.from_document(document, nn.Linear(2, 2))(x).dtype == torch.float32
    document = from_module(Call(lambda x: x * 2), x)
    assert recorded(document) == ["float32"]
    assert foldback.fx.from_document(document)(x.double()).dtype == torch.float64


@pytest.mark.parametrize("is_root", [False, True])
def test_hooks(is_root):
    x, model = torch.ones(2), nn.Sequential(Call(lambda x: x + 1))
    (model if is_root else model[0]).register_forward_hook(lambda module, inputs, output: output * 10)
    assert torch.equal(foldback.fx.from_document(from_module(model, x))(x), model(x))
    assert torch.equal(torch.fx.symbolic_trace(model)(x), model(x)) != is_root
    if is_root:
        with pytest.raises(ValueError, match="forward hook"):
            traced(model)
    else:
        assert torch.equal(foldback.fx.from_document(traced(model))(x), model(x))


def test_a_negative_base():
    x, model = torch.tensor(2.0), nn.Sequential(Call(lambda x: (-2.0) ** x))
    assert torch.fx.symbolic_trace(model)(x).item() == -4
    assert foldback.fx.from_document(from_module(model, x))(x).item() == model(x).item() == 4
    document = traced(model)
    assert {"$float": "-2.0"} in next(row["args"] for row in document["nodes"] if row["op"] == "call_function")
