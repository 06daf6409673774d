"""Folded weights against exact arithmetic: random BatchNorms are folded by the service, with their weights, and every number of
the file that comes back is compared with the same formula in 300 bits. What PyTorch's own folding makes of them is measured
with the same measure and printed beside it (pytest -s)."""

import collections
import math
import random

import mpmath
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from foldback.client import Client
from foldback.fx import to_document

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
CASES = 40  # of each kind, in each dtype
LIMITS = {dtype: 0.5 + 2.0**-20 for dtype in DTYPES} | {torch.float64: 4}  # units in the last place
MANTISSA = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
LARGEST = collections.defaultdict(float)  # error by (dtype, "weight" or "bias", whose)

exact = mpmath.MPContext()
exact.prec = 300


@pytest.fixture(scope="module")
def client(service):
    with Client(service.url) as client:
        yield client
    for (dtype, name, whose), error in sorted(LARGEST.items(), key=str):
        print(f"{str(dtype):16} {name:7} {whose:9} {error:14.6f} units in the last place at most")


# ---- random modules -------------------------------------------------------------------------------------------------------


def numbers(choose, count, spread):
    """Around 1, positive and negative, of sizes some powers of two apart."""
    found = [choose.choice([-1, 1]) * (0.5 + choose.random()) * 2.0 ** choose.uniform(-spread, spread) for _ in range(count)]
    return torch.tensor(found, dtype=torch.float64)


def fill(choose, module, spread):
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(numbers(choose, tensor.numel(), spread).reshape(tensor.shape))
        for norm in module.modules():
            if not hasattr(norm, "running_var"):
                continue
            norm.running_var.abs_()
            norm.running_var[0] = choose.choice([0.0, 1e-4, 1.0, 4096.0])
            if norm.affine:  # a scale of zero, and of the other one
                norm.weight[0] = choose.choice([0.0, -0.0, -1.0, 2.0**-12])
                norm.weight[-1] *= -1


def norm_options(choose):
    return {"eps": choose.choice([1e-5, 1e-3, 1e-12, 1.0]), "affine": choose.random() < 0.8}


def convolution(choose):
    """Grouped, depthwise, dilated, with one pixel or several, with a bias or without."""
    groups = choose.choice([1, 1, 2, 3, 4])
    inputs, outputs = groups * choose.randint(1, 3), groups * choose.randint(1, 3)
    if choose.random() < 0.3:  # depthwise
        groups = inputs
        outputs = inputs * choose.randint(1, 2)
    conv = nn.Conv2d(
        inputs,
        outputs,
        (choose.randint(1, 3), choose.randint(1, 3)),
        groups=groups,
        dilation=choose.randint(1, 2),
        stride=choose.randint(1, 2),
        bias=choose.random() < 0.6,
    )
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, **norm_options(choose))), (2, inputs, 9, 9)


def linear(choose):
    inputs, outputs = choose.randint(1, 9), choose.randint(1, 9)
    layer = nn.Linear(inputs, outputs, bias=choose.random() < 0.6)
    return nn.Sequential(layer, nn.BatchNorm1d(outputs, **norm_options(choose))), (3, inputs)


def linear_behind(choose):
    """The norm first: the bias is a product of the weight with what the norm adds."""
    inputs, outputs = choose.randint(1, 12), choose.randint(1, 9)
    layer = nn.Linear(inputs, outputs, bias=choose.random() < 0.6)
    return nn.Sequential(nn.BatchNorm1d(inputs, **norm_options(choose)), layer), (3, inputs)


KINDS = {convolution: "FuseBatchNorm2dInConv2d", linear: "FuseBatchNorm1dInLinear", linear_behind: "FuseBatchNorm1dInLinear"}


# ---- exactly --------------------------------------------------------------------------------------------------------------


def exactly(tensor):
    return [exact.mpf(number) for number in tensor.double().flatten().tolist()]


def scale_and_shift(norm):
    """Of each feature, and the terms of the shift."""
    mean, variance = exactly(norm.running_mean), exactly(norm.running_var)
    gamma = exactly(norm.weight) if norm.affine else [exact.mpf(1)] * len(mean)
    beta = exactly(norm.bias) if norm.affine else [exact.mpf(0)] * len(mean)
    scale = [g / exact.sqrt(v + exact.mpf(norm.eps)) for g, v in zip(gamma, variance)]
    return scale, [(b, -m * s) for b, m, s in zip(beta, mean, scale)]


def folded(module):
    """The numbers of weight and bias, each with the magnitude whose last place counts: its own, or for a bias, which is a sum
    in which nearly all may cancel, that of the largest term."""
    norm = next(part for part in module if hasattr(part, "running_var"))
    host = next(part for part in module if part is not norm)
    scale, shift = scale_and_shift(norm)
    weight, outputs = exactly(host.weight), host.weight.shape[0]
    bias = exactly(host.bias) if host.bias is not None else [exact.mpf(0)] * outputs
    row = len(weight) // outputs
    if module[0] is norm:
        new_weight = [w * scale[i % row] for i, w in enumerate(weight)]
        terms = [[bias[o]] + [weight[o * row + i] * sum(shift[i]) for i in range(row)] for o in range(outputs)]
        products = [[abs(weight[o * row + i] * t) for i in range(row) for t in shift[i]] for o in range(outputs)]
        largest = [max([abs(bias[o]), *products[o]]) for o in range(outputs)]
    else:
        new_weight = [w * scale[i // row] for i, w in enumerate(weight)]
        terms = [[bias[o] * scale[o], *shift[o]] for o in range(outputs)]
        largest = [max(map(abs, terms[o])) for o in range(outputs)]
    sums = [sum(of_one) for of_one in terms]
    return {
        "weight": [(number, abs(number)) for number in new_weight],
        "bias": [(number, max(abs(number), most)) for number, most in zip(sums, largest)],
    }


def unit(dtype, magnitude):
    """The last place of a number of that size."""
    info = torch.finfo(dtype)
    smallest = exact.mpf(info.smallest_normal)
    exponent = exact.frexp(magnitude)[1] if magnitude > smallest else exact.frexp(smallest)[1]
    return exact.mpf(2) ** (exponent - MANTISSA[dtype])


def largest_error(tensor, expected):
    """In units of the last place; numbers too large for the dtype are left out."""
    found, dtype = tensor.double().flatten().tolist(), tensor.dtype
    assert len(found) == len(expected)
    errors = [
        float(abs(exact.mpf(number) - value) / unit(dtype, magnitude)) if math.isfinite(number) else math.inf
        for number, (value, magnitude) in zip(found, expected)
        if abs(value) < torch.finfo(dtype).max
    ]
    return max(errors, default=0)


def by_pytorch(module):
    """What PyTorch's folding gives; it folds no norm that stands first."""
    host, norm = module
    if isinstance(host, nn.modules.batchnorm._BatchNorm):
        return None
    fuse = fuse_conv_bn_weights if isinstance(host, nn.Conv2d) else fuse_linear_bn_weights
    affine = (norm.weight, norm.bias) if norm.affine else (torch.ones_like(norm.running_var),
                                                           torch.zeros_like(norm.running_mean))
    weight, bias = fuse(host.weight, host.bias, norm.running_mean, norm.running_var, norm.eps, *affine)
    return {"weight": weight.detach(), "bias": bias.detach()}


def note(*key_and_error):
    *key, error = key_and_error
    LARGEST[tuple(key)] = max(LARGEST[tuple(key)], error)


# ---- the tests ------------------------------------------------------------------------------------------------------------


def fold(client, module, shape, dtype, pass_name, folder):
    """The service's weights after the pass, and how often it applied."""
    program = torch.fx.symbolic_trace(module)
    save_file(module.state_dict(), folder / "before.safetensors")
    run = client.optimize(
        to_document(program, torch.zeros(shape, dtype=dtype)), [pass_name], weights=folder / "before.safetensors"
    )
    (outcome,) = run["passes"]
    if dtype is torch.float16 and [refused["reason"] for refused in outcome["refused"]] == ["tensor-overflows"]:
        return None  # an eps of 1e-12 beside a variance of zero
    assert outcome["applied"] == 1, outcome
    return load_file(client.weights(run["result"], folder / f"{run['id']}.safetensors"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_folds(client, kind, dtype, tmp_path):
    choose, refused = random.Random(f"{kind.__name__} {dtype}"), 0
    for _ in range(CASES):
        module, shape = kind(choose)
        module = module.to(dtype).eval()
        fill(choose, module, spread=3 if dtype is torch.float16 else 8)
        found = fold(client, module, shape, dtype, KINDS[kind], tmp_path)
        if found is None:
            refused += 1
            continue
        host = "1" if kind is linear_behind else "0"
        assert set(found) == {f"{host}.weight", f"{host}.bias"}
        expected, of_pytorch = folded(module), by_pytorch(module)
        for name, values in expected.items():
            assert found[f"{host}.{name}"].dtype == dtype
            error = largest_error(found[f"{host}.{name}"], values)
            note(dtype, name, "foldback", error)
            if of_pytorch:
                note(dtype, name, "PyTorch", largest_error(of_pytorch[name], values))
            assert error <= LIMITS[dtype], (name, module)
    assert refused < CASES // 2
