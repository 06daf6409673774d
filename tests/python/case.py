"""A case is a forward() with the modules it uses, inputs, and what the passes have to say about it.

    @case((2, 8), modules=lambda: {"fc1": Linear(8, 6), "fc2": Linear(8, 4)}, merge=(1, []))
    def merged_at_the_root(self, x):
        return self.fc1(x), self.fc2(x)

`merge=(1, [])`: MergeLinears applies once and refuses nothing. What a case does not name is not expected, but proved all the
same.
"""

import dataclasses
import zlib

import torch
from torch import nn

EXPECTED = {  # short names for what a case expects
    "attention": "FuseAttention",
    "constants": "EvaluateConstants",
    "merge": "MergeLinears",
    "bias": "FuseBiasInLinear",
    "div": "ChangeTrueDivToMulByInverse",
    "conv": "FuseBatchNorm2dInConv2d",
    "norm": "FuseBatchNorm1dInLinear",
}
COLLECTED = {}


def call(function, *args):
    """Operators that torch.fx traces through `call_function` only: item assignment, += in place."""
    flat = torch.utils._pytree.tree_leaves(args)
    tracer = next(arg for arg in flat if isinstance(arg, torch.fx.Proxy)).tracer
    return tracer.create_proxy("call_function", function, args, {})


@dataclasses.dataclass
class Case:
    name: str
    forward: object
    inputs: tuple
    modules: object
    dtype: torch.dtype
    prepare: object
    expected: dict

    def make(self):
        """The module and its inputs, the same at every call."""
        torch.manual_seed(zlib.crc32(self.name.encode()))
        module = type("Net", (nn.Module,), {"forward": self.forward})()
        for name, child in self.modules().items():
            setattr(module, name, child)
        for child in module.modules():
            if isinstance(child, nn.modules.batchnorm._BatchNorm) and child.running_mean is not None:
                child.running_mean.normal_()
                child.running_var.uniform_(0.5, 2)
            if isinstance(child, nn.modules.batchnorm._BatchNorm) and child.weight is not None:
                nn.init.uniform_(child.weight, -2, 2)
                nn.init.normal_(child.bias)
        module.to(self.dtype).eval()
        if self.prepare:
            self.prepare(module)
        return module, [torch.randn(given).to(self.dtype) if isinstance(given, tuple) else given for given in self.inputs]


def case(*inputs, modules=dict, dtype=torch.float64, prepare=None, **expected):
    """An input is a shape, a tensor or a Python value. `prepare(module)` comes last: ties, training flags, odd values."""
    assert expected.keys() <= EXPECTED.keys()

    def collect(forward):
        assert forward.__name__ not in COLLECTED, forward.__name__
        COLLECTED[forward.__name__] = Case(forward.__name__, forward, inputs, modules, dtype, prepare, expected)
        return forward

    return collect
