"""Hooks run beside forward(), where no pass sees them: what has one is left alone, or refused by name."""

import functools
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import foldback
from foldback.edits import EditError

PASSES = ["MergeLinears", "FoldScaleIntoLinear", "FoldNormIntoLinear", "FuseBatchNorm", "RemoveNoOps",
          "FuseBiasInLinear", "inference"]


def double(module, args, output):
    return output * 2


def plus_one(module, args):
    return (args[0] + 1, *args[1:])


def backward(module, grads, outputs):
    return None


class Net(nn.Module):
    """Something for every pass: three Linears that read one value, a scale, a BatchNorm, an Identity."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Identity())
        self.norm, self.q, self.k, self.v = nn.LayerNorm(4), *(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        x = self.norm(self.block(x * 0.5))
        return self.q(x) + self.k(x) * self.v(x)


def model_with(hook):
    torch.manual_seed(0)
    model = Net().eval()
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5)
    if hook is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hook(model)
    return model.eval()


def on(path, how, hook):
    return lambda model: getattr(model.get_submodule(path), how)(hook)


HOOKED = {
    **{f"forward hook of {path}": (path, on(path, "register_forward_hook", double))
       for path in ("q", "norm", "block.0", "block.1", "block.2")},
    **{f"pre-hook of {path}": (path, on(path, "register_forward_pre_hook", plus_one))
       for path in ("q", "block.0", "block.1", "block.2")},
    "a partial": ("k", on("k", "register_forward_hook", functools.partial(double))),
    "backward hook": ("q", on("q", "register_full_backward_hook", backward)),
    "backward pre-hook": ("q", on("q", "register_full_backward_pre_hook", lambda module, grads: None)),
    "old weight_norm": ("q", lambda model: nn.utils.weight_norm(model.q)),
    "old spectral_norm": ("q", lambda model: nn.utils.spectral_norm(model.q)),
    "prune": ("q", lambda model: prune.l1_unstructured(model.q, "weight", amount=0.5)),
    "a forward of its own": ("q", lambda model: setattr(model.q, "forward",
                                                        lambda x: nn.functional.linear(x, model.q.weight) * 3)),
    "weight_norm": (None, lambda model: parametrizations.weight_norm(model.q)),
    "spectral_norm": (None, lambda model: parametrizations.spectral_norm(model.q)),
    "orthogonal": (None, lambda model: parametrizations.orthogonal(model.q)),
    "a container's": (None, on("block", "register_forward_hook", double)),
    "a container's pre-hook": (None, on("block", "register_forward_pre_hook", plus_one)),
    "none": (None, None),
}


@pytest.mark.parametrize("dialect", ["torch.fx", "torch.export"])
@pytest.mark.parametrize("case", HOOKED)
def test_what_is_hooked_computes_the_same(client, case, dialect):
    path, hook = HOOKED[case]
    model, x = model_with(hook), torch.randn(3, 4)
    expected = model(x).detach()
    if dialect == "torch.export":
        document = foldback.export.from_exported_program(torch.export.export(model, (x,)))
        assert not any("hooks" in row for row in document["modules"])
    else:
        live = torch.fx.symbolic_trace(model)
        document = foldback.fx.to_document(live, x, model=model)
        hooked = {row["path"]: row["type"] for row in document["modules"] if "hooks" in row}
        assert set(hooked) == ({path} if path else set())
        assert all(kind.endswith(".Hooked") for kind in hooked.values())
    for pass_ in PASSES:
        run = client.optimize(document, [pass_])
        result = client.graph(run["result"])
        made = foldback.fx.from_document(result, module=model)
        torch.testing.assert_close(made(x), expected, rtol=1e-4, atol=1e-4)
        if dialect == "torch.fx":
            live = torch.fx.symbolic_trace(model)
            foldback.apply_edits(live, client.edits(run))
            torch.testing.assert_close(live(x), expected, rtol=1e-4, atol=1e-4)
            foldback.apply_edits(live, client.edits(client.rollback(run)))
            torch.testing.assert_close(live(x), expected)


def test_all_passes_find_something_without_hooks(client):
    model = model_with(None)
    document = foldback.fx.to_document(torch.fx.symbolic_trace(model), torch.randn(3, 4))
    for pass_ in PASSES[:5]:
        assert client.optimize(document, [pass_])["passes"][0]["applied"], pass_


def test_a_document_cannot_make_hooks(client):
    model = model_with(on("q", "register_forward_hook", double))
    document = foldback.fx.to_document(torch.fx.symbolic_trace(model), torch.randn(3, 4), data=True)
    assert next(row for row in document["modules"] if row["path"] == "q")["hooks"] == ["forward hook test_hooks.double"]
    with pytest.raises(ValueError, match="module q .*it has hooks .*test_hooks.double.*module=model"):
        foldback.fx.from_document(document)
    assert client.graph(client.put_graph(document))["modules"] == document["modules"]


def test_hooks_of_the_whole_are_refused():
    x, model = torch.randn(3, 4), Net().eval()
    live = torch.fx.symbolic_trace(model)
    handle = live.register_forward_hook(double)
    with pytest.raises(ValueError, match="the program has a forward hook test_hooks.double"):
        foldback.fx.to_document(live, x)
    handle.remove()
    handle = model.register_forward_pre_hook(plus_one)
    for refused in (lambda: foldback.export.traced(model, x), lambda: foldback.fx.to_document(live, x, model=model)):
        with pytest.raises(ValueError, match="the model Net has a forward pre-hook test_hooks.plus_one"):
            refused()
    document = foldback.export.from_module(model, x)  # torch.export follows it
    torch.testing.assert_close(foldback.fx.from_document(document, module=model)(x), model(x))
    handle.remove()


@pytest.mark.parametrize("register", ["forward_pre_hook", "forward_hook", "full_backward_hook", "full_backward_pre_hook"])
def test_global_hooks_are_refused(register):
    live = torch.fx.symbolic_trace(Net().eval())
    handle = getattr(nn.modules.module, f"register_module_{register}")(lambda *_: None)
    try:
        with pytest.raises(ValueError, match="there is a global"):
            foldback.fx.to_document(live, torch.randn(3, 4))
    finally:
        handle.remove()


def test_a_nested_program_with_a_hook_is_refused():
    inner = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4)))
    outer = torch.fx.Graph()
    outer.output(outer.call_module("inner", (outer.placeholder("x"),)))
    live = torch.fx.GraphModule({"inner": inner}, outer)
    inner.register_forward_hook(double)
    with pytest.raises(ValueError, match="the program inner has a forward hook"):
        foldback.fx.to_document(live)


def test_a_hook_that_came_after_the_document(client):
    """Edits that would lose it are refused, and change nothing."""
    model, x = model_with(None), torch.randn(3, 4)
    for path, pass_ in (("q", "MergeLinears"), ("block.2", "RemoveNoOps"), ("block.1", "FuseBatchNorm")):
        live = torch.fx.symbolic_trace(model)
        edits = client.edits(client.optimize(foldback.fx.to_document(live, x), [pass_]))
        handle = model.get_submodule(path).register_forward_hook(double)
        code, expected = live.code, live(x)
        with pytest.raises(EditError, match=f"module {path} has a forward hook"):
            foldback.apply_edits(live, edits)
        assert live.code == code and torch.equal(live(x), expected)
        handle.remove()
        foldback.apply_edits(live, edits)
