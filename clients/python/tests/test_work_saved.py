"""What is not done twice, and what is noticed all the same."""

import copy
import os
import pickle

import pytest
import torch
import transformers_models
from torch import nn

import foldback
from foldback import infer, recipes, tensors
from foldback.optimization import (
    ChangeTrueDivToMulByInverse,
    FuseBatchNorm1dInLinear,
    FuseBiasInLinear,
    MergeLinears,
    compose,
    record_shapes,
)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        return torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2), -1) @ self.v(x)


@pytest.fixture(autouse=True)
def connected(service):
    foldback.connect(service.url)
    yield
    foldback.disconnect()


@pytest.fixture
def composition():
    return compose(MergeLinears(), FuseBiasInLinear())


def trace():
    torch.manual_seed(0)
    return torch.fx.symbolic_trace(Attention().eval())


class Counted:
    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


def test_an_undo_of_what_nobody_changed_reads_no_weights(composition, monkeypatch):
    live = composition(trace())
    evaluated, digested = Counted(tensors.evaluate), Counted(tensors.digest_of)
    monkeypatch.setattr(tensors, "evaluate", evaluated)
    monkeypatch.setattr(tensors, "digest_of", digested)
    composition(live, reverse=True)
    assert (evaluated.calls, digested.calls) == (0, 0)


def test_a_copy_is_compared_once(composition, monkeypatch):
    """Its tensors are others, of which nothing is known."""
    live = copy.deepcopy(composition(trace()))
    x = torch.randn(2, 3, 16)
    expected = live(x)
    torch.testing.assert_close(composition(live, reverse=True)(x), expected)


@pytest.mark.parametrize("how", ["in place", "data", "data of another", "one element", "one element of data", "step"])
def test_training_is_noticed(composition, how):
    """Also where PyTorch does not count the writing."""
    live, x = composition(trace()), torch.randn(2, 3, 16)
    weight = live.q_k_v_merged.weight if hasattr(live, "q_k_v_merged") else next(live.parameters())
    with torch.no_grad():
        if how == "in place":
            weight.mul_(1.5)
        elif how == "data":
            weight.data.mul_(1.5)
        elif how == "data of another":
            weight.data = weight.data * 1.5
        elif how == "one element of data":
            weight.data[3, 5] += 1
        elif how == "one element":
            weight[3, 5] += 1
        else:
            with torch.enable_grad():
                live(x).square().sum().backward()
            torch.optim.SGD(live.parameters(), 0.1).step()
        trained = live(x)
    torch.testing.assert_close(composition(live, reverse=True)(x), trained)
    assert live.q.weight.shape == (16, 16)


def test_a_concatenation_is_not_copied_again():
    parts = {name: torch.randn(8, 8) for name in "ab"}
    made = recipes.evaluate({"op": "concat", "args": ["a", "b"], "axis": 0}, parts.__getitem__, torch.float32,
                            torch.device("cpu"))
    assert made.is_contiguous() and torch.equal(made, torch.cat([parts["a"], parts["b"]]))
    last = {name: item.view(1, 2, 4, 8).to(memory_format=torch.channels_last) for name, item in parts.items()}
    made = recipes.evaluate({"op": "concat", "args": ["a", "b"], "axis": 0}, last.__getitem__, torch.float32,
                            torch.device("cpu"))
    assert made.is_contiguous()
    whole = recipes.evaluate({"op": "concat", "args": ["a"], "axis": 0}, parts.__getitem__, torch.float32, torch.device("cpu"))
    assert whole.data_ptr() != parts["a"].data_ptr()


ALL = sorted(transformers_models.TRACED)


@pytest.mark.parametrize("name", ALL if os.environ.get("FOLDBACK_ALL_MODELS") else ["bert", "distilbert", "resnet", "t5"])
def test_the_quick_way_finds_the_same_shapes(name, monkeypatch):
    """distilbert names a device, and so goes the other way; the result is the same. No config says
    how long wav2vec2's sound is."""
    live = transformers_models.trace(*transformers_models.make(name))
    quick = infer.metas_of(live)
    monkeypatch.setattr(infer, "propagate_on_meta", lambda *_: 1 / 0)
    assert quick == infer.metas_of(live) and (len(quick) > 10 or name == "wav2vec2")


def test_a_composition_generates_code_once(monkeypatch):
    live = trace()
    recompiled = Counted(torch.fx.GraphModule.recompile)
    monkeypatch.setattr(torch.fx.GraphModule, "recompile", lambda self: recompiled(self))
    compose(MergeLinears(), FuseBiasInLinear())(live)
    assert recompiled.calls == 1
    x = torch.randn(2, 3, 16)
    torch.testing.assert_close(live(x), trace()(x))


def test_a_pass_that_is_called_directly_leaves_code_that_runs():
    live, x = trace(), torch.randn(2, 3, 16)
    expected = live(x)
    MergeLinears().transform(live)
    assert "merged" in live.code
    torch.testing.assert_close(live(x), expected)
    ChangeTrueDivToMulByInverse().transform(live)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.of_a, self.of_b = (nn.BatchNorm1d(8) for _ in "ab")
        for child in (self.of_a, self.of_b):
            child.running_mean.normal_(), child.running_var.uniform_(1, 2)

    def forward(self, x):
        return self.of_a(self.a(x)) * self.of_b(self.b(x))


def names_of_unowned(live):
    return sorted(live.meta["foldback"].unowned), sorted(live.meta["foldback"].virtual)


def test_what_no_module_ever_owns_is_not_computed(composition):
    """The merged weight lies nowhere: the one with a bias more is made of the three."""
    model, x = Attention().eval(), torch.randn(2, 3, 16)
    live = composition(torch.fx.symbolic_trace(model))
    kept, virtual = names_of_unowned(live)
    assert kept == sorted(f"{name}.{key}" for name in "qkv" for key in ("weight", "bias"))
    assert len(virtual) == 2 and all("merged" in name for name in virtual)
    torch.testing.assert_close(live(x), model(x))
    copies = [copy.deepcopy(live), pickle.loads(pickle.dumps(live)), live]
    for one in copies:  # the second pass alone: now the merged ones are there
        FuseBiasInLinear()(one, reverse=True)
        assert "merged" in one.code and "ones" not in one.code and not names_of_unowned(one)[1]
        torch.testing.assert_close(one(x), model(x))
        MergeLinears()(one, reverse=True)
        assert torch.equal(one(x), model(x))
    assert live.q.weight is model.q.weight


def test_what_was_computed_is_made_once_and_rounded(composition):
    torch.manual_seed(0)
    model, x = Normed().eval(), torch.randn(3, 8)
    live = record_shapes(torch.fx.symbolic_trace(model), x)
    compose(FuseBatchNorm1dInLinear(), MergeLinears(), FuseBiasInLinear())(live)
    torch.testing.assert_close(live(x), model(x))
    assert "merged" in live.code and "ones" in live.code and "of_a" not in live.code


def test_training_of_what_was_made_past_another():
    """Of the second pass alone, and of both."""
    for whole in (True, False):
        live, x, fuse, merge = trace(), torch.randn(2, 3, 16), FuseBiasInLinear(), MergeLinears()
        compose(merge, fuse)(live)
        live(x).square().sum().backward()
        torch.optim.SGD(live.parameters(), 0.1).step()
        trained = live(x)
        if whole:
            compose(merge, fuse)(live, reverse=True)
        else:
            fuse(live, reverse=True)
            assert "merged" in live.code
            torch.testing.assert_close(live(x), trained)
            merge(live, reverse=True)
        torch.testing.assert_close(live(x), trained)
        assert live.q.weight.shape == (16, 16)


def test_a_document_tells_what_is_there_when_a_source_was_written_through_data(composition):
    live = composition(trace())
    live.meta["foldback"].unowned["q.weight"].data.mul_(2)
    rows = {row["name"]: row for row in foldback.fx.to_document(live, digests=True)["tensors"]}
    fused = [row for row in rows.values() if "q-k-v-merged" in row["name"]]
    assert fused and all("recipe" not in row for row in fused if row["shape"][-1] == 17)
