"""Formulas that FuseActivation takes for one operator, in both dialects: the call that replaces them gives the same numbers as
PyTorch's, also for infinities and nan, and lookalikes stay, with a reason."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import foldback.export
from foldback.fx import from_document, to_document

BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
DTYPES = list(BITS)


class Net(nn.Module):
    def __init__(self, function, **tensors):
        super().__init__()
        self.function = function
        for name, value in tensors.items():
            setattr(self, name, nn.Parameter(value) if value.is_floating_point() else value)

    def forward(self, x):
        return self.function(self, x).neg()  # exact


class Gathered(Net):
    """Its result is read element by element, and does not show how the function's lies in memory."""

    def __init__(self, function, shape, **tensors):
        index = torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1)).expand(shape).contiguous()
        super().__init__(function, index=index, **tensors)

    def forward(self, x):
        return self.function(self, x).gather(0, self.index)


def documents(net, x):
    """As torch.fx traces it, and as torch.export does: what computes it, its document, and what runs a result."""
    traced = torch.fx.symbolic_trace(net)
    yield "fx", to_document(traced, x, data=True)
    yield "aten", foldback.export.from_exported_program(torch.export.export(net, (x,)), data=True)


def optimize(service, document, name):
    answer = service.post("/v1/optimize", {"graph": document, "passes": [name],
                                           "options": {"include": ["graph"], "lint": "each"}})
    assert answer.status == 201, answer.body.decode()
    run = answer.json()
    rolled_back = service.post(f"/v1/runs/{run['id']}/reverse")
    assert rolled_back.status == 201 and rolled_back.json()["result"] == run["source"]
    return run["graph"], run["passes"][0]


def targets(graph):
    return [node["target"].split(".")[-2 if ".aten." in node["target"] else -1]
            for node in graph["nodes"] if node["op"] != "placeholder"]


def numbers(dtype, shape):
    """Of every size, and what is not finite."""
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64) * torch.logspace(-3, 2, shape[0],
                                                                 dtype=torch.float64).reshape(-1, *[1] * (len(shape) - 1))
    flat = x.view(-1)
    flat[:6] = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e3])
    return x.to(dtype)


def assert_close(actual, expected, x, dtype):
    """Up to some units in the last place of what is computed from: 1 + tanh(x) has lost the rest."""
    assert actual.dtype == expected.dtype and torch.equal(actual.isnan(), expected.isnan())
    kept = expected.isfinite()
    assert torch.equal(actual.isfinite(), kept)
    scale = torch.maximum(expected.double().abs(), x.double().abs())
    assert ((actual.double() - expected.double()).abs()[kept] <= 2.0 ** (4 - BITS[dtype]) * scale[kept]).all()


# ---- activations ------------------------------------------------------------------------------------------------------------

ROOT = math.sqrt(2 / math.pi)
ACTIVATIONS = {
    "gelu": [
        lambda _, x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0)))),
        lambda _, x: 0.5 * x * (1.0 + torch.tanh(x * ROOT * (1.0 + 0.044715 * x * x))),
        lambda _, x: x * 0.5 * (torch.tanh((x * x * x * 0.044715 + x) * ROOT) + 1),
        lambda _, x: x * torch.sigmoid(2 * ROOT * (x + 0.044715 * x**3)),
        lambda _, x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
        lambda _, x: torch.mul(x, torch.erf(x * 0.7071067811865475).add(1).mul(0.5)),
        lambda _, x: x * (0.5 * torch.erfc(-x / math.sqrt(2.0))),
    ],
    "silu": [
        lambda _, x: x * torch.sigmoid(x),
        lambda _, x: x.sigmoid().mul(x),
        lambda _, x: x / (1 + torch.exp(-x)),
        lambda _, x: x * (1 / (1 + (-x).exp())),
    ],
    "mish": [lambda _, x: x * torch.tanh(F.softplus(x)), lambda _, x: F.softplus(x).tanh() * x],
    "hardswish": [
        lambda _, x: x * F.relu6(x + 3) / 6,
        lambda _, x: x * (F.relu6(x + 3) / 6),
        lambda _, x: torch.clamp(x + 3, 0, 6) * x / 6.0,
        lambda _, x: x * F.hardtanh(x + 3, 0.0, 6.0) * (1 / 6),
        lambda _, x: x * F.hardsigmoid(x),
    ],
}
OVERFLOW = [("hardswish", 0), ("hardswish", 2), ("hardswish", 3)]  # 6 x is no float16 where x is
SPELLED = [(name, index) for name, formulas in ACTIVATIONS.items() for index in range(len(formulas))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name,index", SPELLED, ids=lambda value: str(value))
def test_activation(service, name, index, dtype):
    net, x = Net(ACTIVATIONS[name][index]), numbers(dtype, (6, 5, 8))
    if name == "gelu" and index > 3:
        x.view(-1)[0] = 1  # PyTorch's own gelu(inf) is inf or nan, as the processor has it
    for dialect, document in documents(net, x):
        result, outcome = optimize(service, document, "FuseActivation")
        if dtype == torch.float16 and (name, index) in OVERFLOW:
            assert [refused["reason"] for refused in outcome["refused"]] == ["overflows"]
            continue
        assert outcome["applied"] == 1 and not outcome["refused"], (dialect, outcome)
        assert targets(result) == [name, "neg", "output"]
        module = from_document(result)
        assert_close(module(x), net(x), x, dtype)


def shared(_, x):
    gate = torch.sigmoid(x)
    return x * gate + gate


def written(_, x):
    gate = torch.sigmoid(x)
    x.add_(1)
    return x * gate


def middle_written(_, x):
    gate = torch.sigmoid(x)
    gate.add_(1)
    return x * gate


LOOKALIKES = {
    "quick gelu": (lambda _, x: x * torch.sigmoid(1.702 * x), ["another-function"]),
    "gelu with a rough constant": (lambda _, x: 0.5 * x * (1.0 + torch.erf(x / 1.41421)), ["another-function"]),
    "gelu with another cube": (lambda _, x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.04 * x**3))), ["another-function"]),
    "silu that overflows": (lambda _, x: x * (torch.exp(x) / (1 + torch.exp(x))), ["overflows"]),
    "silu of another": (lambda _, x: x * torch.sigmoid(x + 1), []),
    "gate that others read": (shared, ["other-readers"]),
    "input written between": (written, ["input-mutated"]),
    "gate written between": (middle_written, ["other-readers"]),
    "leaky": (lambda _, x: x * torch.where(x > 0, 1.0, 0.1), []),
    "clamped far away": (lambda _, x: torch.clamp(x, -100, 100) * torch.sigmoid(x), ["overflows"]),
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_lookalike(service, name):
    function, reasons = LOOKALIKES[name]
    x = torch.randn(4, 8)
    for dialect, document in documents(Net(function), x):
        _, outcome = optimize(service, document, "FuseActivation")
        assert outcome["applied"] == 0, (dialect, outcome)
        if not (dialect == "aten" and "written" in name):  # where torch.export leaves no writes
            assert [refused["reason"] for refused in outcome["refused"]] == reasons, (dialect, outcome)


# ---- norms ------------------------------------------------------------------------------------------------------------------


def weights(size, dtype):
    torch.manual_seed(1)
    return {"w": torch.randn(size).to(dtype), "b": torch.randn(size).to(dtype)}


def llama(net, x, eps=1e-6):
    wide = x.to(torch.float32)
    variance = wide.pow(2).mean(-1, keepdim=True)
    return net.w * (wide * torch.rsqrt(variance + eps)).to(x.dtype)


def t5(net, x):
    return net.w * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6))


def gemma(net, x):
    return x / torch.sqrt(torch.mean(torch.square(x), dim=[-1], keepdim=True) + 1e-5) * (1.0 + net.w)


def rms_of_two(_, x):
    return x * (x.square().mean((-2, -1), keepdim=True) + 1e-5) ** -0.5


def layer_norm(net, x):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * net.w + net.b


def layer_norm_by_var(net, x):
    return net.b + net.w * ((x - x.mean(-1, True)) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-12))


def softmax(_, x, axis=-1):
    e = torch.exp(x - x.amax(axis, keepdim=True))
    return e / e.sum(axis, keepdim=True)


def log_softmax(_, x):
    y = x - x.amax(-1, keepdim=True)
    return y - y.exp().sum(-1, keepdim=True).log()


NORMS = {  # the functions, and what is left in their places
    "llama": (llama, ["rms_norm"]),
    "t5": (t5, ["rms_norm"]),
    "gemma": (gemma, ["rms_norm"]),
    "rms of two axes": (rms_of_two, ["rms_norm"]),
    "layer norm": (layer_norm, ["layer_norm"]),
    "layer norm by var": (layer_norm_by_var, ["layer_norm"]),
    "softmax": (softmax, ["softmax"]),
    "softmax along another axis": (lambda net, x: softmax(net, x, 1), ["softmax"]),
    "log-softmax": (log_softmax, ["log_softmax"]),
}


def rows(dtype):
    """Of every size, one of zeros, and what is not finite."""
    x = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(3)) * torch.logspace(-3, 2, 6).reshape(-1, 1, 1)
    x[0, 0, 0], x[1, 0], x[2, 0, 1] = math.nan, 0.0, math.inf
    return x.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norm(service, name, dtype):
    function, expected = NORMS[name]
    x = rows(dtype)
    net = Gathered(function, x.shape, **weights(8, dtype))
    for dialect, document in documents(net, x):
        result, outcome = optimize(service, document, "FuseNorm")
        reasons = [refused["reason"] for refused in outcome["refused"]]
        if dtype == torch.float16 and name in ("t5", "gemma", "rms of two axes", "layer norm", "layer norm by var"):
            assert reasons == ["overflows"], (dialect, outcome)  # squares of float16 numbers
            continue
        assert outcome["applied"] == 1 and not reasons, (dialect, outcome)
        left = [target for target in targets(result)
                if target in ("rms_norm", "layer_norm", "softmax", "log_softmax", "pow", "mean", "exp")]
        assert left == expected, (dialect, targets(result))
        actual, wanted = from_document(result)(x), net(x)
        assert actual.dtype == wanted.dtype and torch.equal(actual.isnan(), wanted.isnan())
        torch.testing.assert_close(actual, wanted, rtol=2.0 ** (5 - BITS[dtype]), atol=2.0 ** (5 - BITS[dtype]), equal_nan=True)
        if name == "llama":
            assert torch.equal(actual.nan_to_num(), wanted.nan_to_num())


NORMALIZED = {  # F.normalize spelled out, in torch.fx: the functions, and what of them overflows in float16
    "norm": (lambda _, x: x / x.norm(2, -1, keepdim=True).clamp_min(1e-12), False),
    "expanded": (lambda _, x: x / x.norm(2, 1, keepdim=True).clamp(min=1e-6).expand_as(x), False),
    "norm of torch": (lambda _, x: torch.div(x, torch.clamp_min(torch.norm(x, dim=-1, keepdim=True), 1e-3)), False),
    "vector_norm": (lambda _, x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1e-8), False),
    "linalg.norm": (lambda _, x: x / torch.linalg.norm(x, ord=2, dim=0, keepdim=True).clamp(1e-8), False),
    "squares": (lambda _, x: x / x.pow(2).sum(-1, keepdim=True).sqrt().clamp(min=1e-4), True),
    "bounded squares": (lambda _, x: x * torch.rsqrt((x * x).sum(-1, keepdim=True).clamp(min=1e-6)), True),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NORMALIZED)
def test_normalize(service, name, dtype):
    function, overflows = NORMALIZED[name]
    x, net = rows(dtype), Net(function)
    for dialect, document in documents(net, x):
        result, outcome = optimize(service, document, "FuseNorm")
        if dialect == "aten":  # which has no such operator
            assert outcome["applied"] == 0, outcome
            continue
        if dtype == torch.float16 and overflows:
            assert [refused["reason"] for refused in outcome["refused"]] == ["overflows"], outcome
            continue
        assert outcome["applied"] == 1 and not outcome["refused"], outcome
        assert targets(result) == ["normalize", "neg", "output"]
        actual, wanted = from_document(result)(x), net(x)
        assert actual.dtype == wanted.dtype and torch.equal(actual.isnan(), wanted.isnan())
        torch.testing.assert_close(actual, wanted, rtol=2.0 ** (4 - BITS[dtype]), atol=2.0 ** (4 - BITS[dtype]), equal_nan=True)


def turned(formula):
    def function(_, x):
        y = x.mT
        return formula(y, y.norm(2, -1, keepdim=True).clamp_min(1e-12)).mT.view(-1)

    return function


@pytest.mark.parametrize("formula", [lambda y, norm: y / norm, lambda y, norm: norm.reciprocal() * y], ids=["x / n", "n * x"])
def test_normalize_lies_like_its_input(service, formula):
    net, x = Net(turned(formula)), torch.randn(4, 5, 6)
    result, outcome = optimize(service, to_document(torch.fx.symbolic_trace(net), x, data=True), "FuseNorm")
    assert outcome["applied"] or [refused["reason"] for refused in outcome["refused"]] == ["needs-contiguous"], outcome
    torch.testing.assert_close(from_document(result)(x), net(x))


def test_a_norm_stays_where_its_order_in_memory_shows(service):
    net, x = Net(layer_norm, **weights(8, torch.float32)), torch.randn(5, 6, 8)
    for dialect, document in documents(net, x):
        result, outcome = optimize(service, document, "FuseNorm")
        turned = torch.randn(8, 6, 5).permute(2, 1, 0)
        assert [refused["reason"] for refused in outcome["refused"]] == ["needs-contiguous"], (dialect, outcome)
        assert from_document(result)(turned).stride() == net(turned).stride() != torch.empty(5, 6, 8).stride()


BOUNDS = {  # how small a norm the bound matters for, and what it is in F.normalize; None: the formula stays
    "of squares": (lambda _, x: x * torch.rsqrt((x * x).sum(-1, keepdim=True).clamp_min(1e-24)), 1e-12),
    "of the norm": (lambda _, x: x / x.norm(2, -1, keepdim=True).clamp_min(1e-14), 1e-14),
    "added": (lambda _, x: x / (x.norm(2, -1, keepdim=True) + 1e-14), None),
    "added to squares": (lambda _, x: x / ((x * x).sum(-1, keepdim=True) + 1e-24).sqrt(), None),
    "too small": (lambda _, x: x / x.norm(2, -1, keepdim=True).clamp_min(1e-20), None),
}


@pytest.mark.parametrize("size", [2, 8, 768])
@pytest.mark.parametrize("name", BOUNDS)
def test_the_bound_of_normalize(service, name, size):
    function, bound = BOUNDS[name]
    net, x = Net(function), torch.randn(24, size) * torch.logspace(-20, 0, 24).reshape(-1, 1)
    result, outcome = optimize(service, to_document(torch.fx.symbolic_trace(net), x, data=True), "FuseNorm")
    bounds = [node["kwargs"]["eps"] for node in result["nodes"] if node["target"].endswith(".normalize")]
    assert bounds == ([] if bound is None else [pytest.approx(bound, rel=1e-12)]), outcome
    torch.testing.assert_close(from_document(result)(x), net(x), rtol=1e-5, atol=0)


def test_the_norm_of_one_number_stays(service):
    net, x = Net(lambda _, x: x / (x * x).sum(-1, keepdim=True).sqrt().clamp_min(1e-12)), torch.tensor([[1e30], [2.0]])
    _, outcome = optimize(service, to_document(torch.fx.symbolic_trace(net), x, data=True), "FuseNorm")
    assert outcome["applied"] == 0, outcome


def with_readers(net, x):
    variance = x.pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(variance + 1e-6) + variance


def input_written(net, x):
    variance = x.pow(2).mean(-1, keepdim=True)
    x.add_(1)
    return x * torch.rsqrt(variance + 1e-6)


def unshifted(_, x):
    return x.exp() / x.exp().sum(-1, keepdim=True)


NO_NORMS = {
    "epsilon outside of the root": (lambda _, x: x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-3), ["another-function"]),
    "epsilon beside the norm": (lambda _, x: x / (x.norm(2, -1, keepdim=True) + 1e-3), ["another-function"]),
    "norm without bound": (lambda _, x: x / x.norm(2, -1, keepdim=True), []),
    "another norm": (lambda _, x: x / x.norm(1, -1, keepdim=True).clamp_min(1e-12), []),
    "norm bounded from above": (lambda _, x: x / x.norm(2, -1, keepdim=True).clamp(1e-12, 1.0), []),
    "norm of all": (lambda _, x: x / x.norm().clamp_min(1e-12), []),
    "epsilon in the squares": (lambda _, x: x * torch.rsqrt((x + 1e-3).pow(2).mean(-1, keepdim=True)), ["another-function"]),
    "unbiased": (lambda _, x: (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5), []),
    "unbiased deviation": (lambda _, x: (x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + 1e-5), []),
    "mean over another axis": (lambda _, x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6), []),
    "mean and variance over two axes": (lambda _, x: (x - x.mean(-1, True)) * torch.rsqrt(x.var(-2, False, True) + 1e-6), []),
    "not kept": (lambda _, x: x * torch.rsqrt(x.pow(2).mean(-1) + 1e-6), []),
    "variance that others read": (with_readers, ["other-readers"]),
    "input written between": (input_written, ["input-mutated"]),
    "of another": (lambda _, x: x * torch.rsqrt((2 * x).pow(2).mean(-1, keepdim=True) + 1e-6), []),
    "softmax that overflows": (unshifted, ["overflows"]),
    "log-softmax by logsumexp": (lambda _, x: x - x.logsumexp(-1, keepdim=True), ["overflows"]),
    "log of softmax": (lambda _, x: torch.log(softmax(_, x)), ["overflows"]),
}


@pytest.mark.parametrize("name", NO_NORMS)
def test_no_norm(service, name):
    function, reasons = NO_NORMS[name]
    x = torch.randn(8, 8, 8)
    for dialect, document in documents(Gathered(function, x.shape), x):
        _, outcome = optimize(service, document, "FuseNorm")
        if name == "log of softmax":  # whose softmax is one
            assert outcome["applied"] == 1
            continue
        assert outcome["applied"] == 0, (dialect, outcome)
        if not (dialect == "aten" and name in ("input written between", "epsilon beside the norm")):
            assert [refused["reason"] for refused in outcome["refused"]] == reasons, (dialect, outcome)


# ---- products with weights --------------------------------------------------------------------------------------------------

LINEARS = {
    "transposed": (lambda net, x: x @ net.w.t() + net.b, (5, 8), ["linear"]),
    "addend first": (lambda net, x: net.b + torch.matmul(x, net.w.transpose(0, 1)), (5, 8), ["linear"]),
    "without addend": (lambda net, x: torch.matmul(x, net.w.transpose(-2, -1)), (5, 8), ["linear"]),
    "not transposed": (lambda net, x: torch.mm(x.flatten(0, 1), net.w) + net.b, (8, 5), ["addmm"]),
    "three dimensions": (lambda net, x: torch.matmul(x, net.w) + net.b, (8, 5), ["matmul", "add"]),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", LINEARS)
def test_linear(service, name, dtype):
    function, shape, expected = LINEARS[name]
    torch.manual_seed(2)
    net, x = Net(function, w=torch.randn(shape).to(dtype), b=torch.randn(5).to(dtype)), torch.randn(6, 3, 8).to(dtype)
    for dialect, document in documents(net, x):
        result, outcome = optimize(service, document, "FuseLinear")
        left = [target for target in targets(result) if target in ("linear", "addmm", "matmul", "mm", "add")]
        assert left == expected and not outcome["refused"], (dialect, outcome, left)
        tolerance = 2.0 ** (5 - BITS[dtype])
        torch.testing.assert_close(from_document(result)(x), net(x), rtol=tolerance, atol=tolerance)


def test_many_formulas(service):
    """No more than so many different ones are compared."""

    def function(_, x):
        return sum(x * torch.sigmoid((2 + index / 100) * x) for index in range(130)) + x * torch.sigmoid(x)

    _, outcome = optimize(service, to_document(torch.fx.symbolic_trace(Net(function)), torch.randn(4), data=True),
                          "FuseActivation")
    reasons = [refused["reason"] for refused in outcome["refused"]]
    assert outcome["applied"] == 0 and reasons.count("not-compared") >= 20
