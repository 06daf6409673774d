"""What the random programs call: hooks, modules and functions that a trace must name, and calls that Python's syntax hides from
torch.fx."""

import inspect
import math
import operator

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune

__all__ = [
    "F", "Gate", "Scaled", "Two", "after_double", "after_noise", "before_shift", "call", "doubled", "for_all", "math",
    "nn", "operator",
    "parametrizations", "prune", "sharp", "stats", "torch", "without_autocast", "without_gradients",
]


def call(function, *args, **kwargs):
    """Calls a function that torch.fx cannot see through a Proxy: item assignment, += in place, torch.arange of a size."""
    if getattr(function, "__module__", None) == "math":
        function = inspect.unwrap(function)  # while torch.fx traces, it has functions of its own in that module
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    proxy = next((leaf for leaf in leaves if isinstance(leaf, torch.fx.Proxy)), None)
    return function(*args, **kwargs) if proxy is None else proxy.tracer.create_proxy("call_function", function, args, kwargs)


def without_gradients(function, *args):
    with torch.no_grad():
        return function(*args)


def without_autocast(function, *args):
    with torch.autocast(device_type="cpu", enabled=False):
        return function(*args)


def for_all(function, *sizes):
    """function(i, j, ...) for all indices, by one torch.vmap for each of them, as transformers make masks."""
    for axis in reversed(range(len(sizes))):
        function = torch.vmap(function, in_dims=tuple(0 if other == axis else None for other in range(len(sizes))))
    return function(*(torch.arange(size) for size in sizes))


def stats(norm):
    """A normalisation whose statistics and weights are those of a trained model."""
    for key, tensor in [*norm.named_buffers(), *norm.named_parameters()]:
        if tensor.is_floating_point():
            with torch.no_grad():
                tensor.uniform_(0.5, 2) if key.endswith("var") else tensor.normal_()
    return norm


def sharp(norm):
    """A normalisation that magnifies small differences, by more than a narrow weight can be multiplied with."""
    with torch.no_grad():
        stats(norm).running_mean.zero_()
        norm.running_var.mul_(1e-6)
        norm.weight.mul_(1e3)
    return norm


def before_shift(module, args):
    return (args[0] + 1, *args[1:])


def after_double(module, args, result):
    return result * 2


def after_noise(module, args, result):
    """Looks, and changes nothing."""


class Gate(nn.Module):
    """Calls one child twice, and reads another child's weight."""

    def __init__(self, width, dtype):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width, dtype=dtype), nn.Linear(width, width, dtype=dtype)
        self.register_buffer("scale", torch.rand(width, dtype=dtype) + 0.5, persistent=False)

    def forward(self, x):
        return self.inner(torch.sigmoid(self.inner(x))) * self.scale + F.linear(x, self.outer.weight)


class Two(nn.Module):
    """Gives two tensors, in a dict."""

    def __init__(self, width, dtype):
        super().__init__()
        self.left, self.right = nn.Linear(width, width, dtype=dtype), nn.Linear(width, 2, dtype=dtype)

    def forward(self, x, *, scale=1.0):
        return {"left": self.left(x) * scale, "right": self.right(x)}


class Scaled(nn.Linear):
    """A Linear by its base class only."""

    def forward(self, input):
        return super().forward(input) * 2


def doubled(x):
    return x * 2
