"""Traps of torch.fx transformations, as peers' issue trackers have them: each model computes what plain PyTorch
computes after the passes, in a copy, in a pickle, and after the undo."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from foldback.optimization import (
    ChangeTrueDivToMulByInverse,
    FuseBatchNorm1dInLinear,
    FuseBatchNorm2dInConv2d,
    FuseBiasInLinear,
    MergeLinears,
    ReversibleTransformation,
    compose,
    record_shapes,
    rollback,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*found nothing|.*applied nowhere|.*changed nothing:UserWarning")


class Program(nn.Module):
    """Modules, and a function of them and of the input. torch.fx traces it with `function` inlined."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        return self.function(self, x)


def linears(*biases, width=8):
    return {f"fc{index}": nn.Linear(width, width, bias=bias) for index, bias in enumerate(biases)}


def norm(features, kind=nn.BatchNorm2d, **options):
    made = kind(features, **options)
    for name, low, high in (("running_mean", -1, 1), ("running_var", 0.5, 2), ("weight", 0.5, 2), ("bias", -1, 1)):
        if getattr(made, name, None) is not None:
            nn.init.uniform_(getattr(made, name), low, high)
    return made


def sharing(first, second):
    second.weight = first.weight
    return second


def dead(self, x):
    self.fc1(x).relu()
    return self.fc0(x) - self.fc2(x)


def two_norms_of_one_convolution(self, x):
    y = self.conv(x)
    return self.bn(y) + self.other(y)


ROWS, IMAGE = (5, 8), (2, 3, 9, 9)
MERGE, BIAS, DIVIDE = MergeLinears, FuseBiasInLinear, ChangeTrueDivToMulByInverse
FOLD, FOLD1 = FuseBatchNorm2dInConv2d, FuseBatchNorm1dInLinear


def three(self, x):
    return self.fc0(x) * self.fc1(x) - self.fc2(x)


def chain(self, x):
    return self.bn(self.conv(x))


def rows(self, x):
    return self.bn(self.fc(x))


# name: (the passes, how the program is made, the shape of its input)
TRAPS = {
    "no linear has a bias": ([MERGE], lambda: Program(three, **linears(False, False, False)), ROWS),
    "some linears have a bias": ([MERGE], lambda: Program(three, **linears(True, False, True)), ROWS),
    "three dimensions": ([MERGE, BIAS], lambda: Program(three, **linears(True, True, True)), (2, 5, 8)),
    "a dead branch": ([MERGE], lambda: Program(dead, **linears(True, True, True)), ROWS),
    "a linear called twice on one input": (
        [MERGE, BIAS],
        lambda: Program(lambda s, x: s.fc0(x) * s.fc0(x) + s.fc1(x), **linears(True, True)),
        ROWS,
    ),
    "a linear called on two inputs": (
        [MERGE, BIAS],
        lambda: Program(lambda s, x: s.fc0(s.fc0(x)) + s.fc1(x), **linears(True, True)),
        ROWS,
    ),
    "keyword arguments": (
        [MERGE, BIAS],
        lambda: Program(lambda s, x: s.fc0(input=x) + s.fc1(input=x), **linears(True, True)),
        ROWS,
    ),
    "one feature": ([BIAS], lambda: Program(lambda s, x: s.fc(x), fc=nn.Linear(8, 1)), ROWS),
    "one row": ([MERGE, BIAS], lambda: Program(three, **linears(True, True, True)), (1, 8)),
    "one dimension": ([MERGE, BIAS], lambda: Program(three, **linears(True, True, True)), (8,)),
    "different widths": ([MERGE], lambda: Program(lambda s, x: (s.a(x), s.b(x)), a=nn.Linear(8, 3), b=nn.Linear(8, 5)), ROWS),
    "frozen beside trainable": (
        [MERGE],
        lambda: Program(three, fc0=nn.Linear(8, 8).requires_grad_(False), fc1=nn.Linear(8, 8), fc2=nn.Linear(8, 8)),
        ROWS,
    ),
    "a write into a part": ([MERGE], lambda: Program(lambda s, x: s.fc0(x).add_(1) + s.fc1(x), **linears(True, True)), ROWS),
    "a write into the input": ([MERGE], lambda: Program(lambda s, x: s.fc0(x) + s.fc1(x.add_(1)), **linears(True, True)), ROWS),
    "a literal that is no power of two": ([DIVIDE], lambda: Program(lambda s, x: s.fc0(x) / 49, **linears(True)), ROWS),
    "a division by zero": ([DIVIDE], lambda: Program(lambda s, x: s.fc0(x).abs() / 0.0, **linears(True)), ROWS),
    "a division by infinity": ([DIVIDE], lambda: Program(lambda s, x: s.fc0(x) / float("inf"), **linears(True)), ROWS),
    "a division by a denormal": ([DIVIDE], lambda: Program(lambda s, x: s.fc0(x) / 1e-42, **linears(True)), ROWS),
    "a rounding division": (
        [DIVIDE],
        lambda: Program(lambda s, x: torch.div(s.fc0(x), 0.3, rounding_mode="floor"), **linears(True)),
        ROWS,
    ),
    "a division of integers": ([DIVIDE], lambda: Program(lambda s, x: x.to(torch.int64) / 3, **linears(True)), ROWS),
    "a number divided": ([DIVIDE], lambda: Program(lambda s, x: 3 / (s.fc0(x).abs() + 1), **linears(True)), ROWS),
    "a literal used twice": ([DIVIDE], lambda: Program(lambda s, x: s.fc0(x) / 3 + x / 3, **linears(True)), ROWS),
    "a convolution without bias": ([FOLD], lambda: Program(chain, conv=nn.Conv2d(3, 4, 3, bias=False), bn=norm(4)), IMAGE),
    "a norm without weights": ([FOLD], lambda: Program(chain, conv=nn.Conv2d(3, 4, 3), bn=norm(4, affine=False)), IMAGE),
    "groups": ([FOLD], lambda: Program(chain, conv=nn.Conv2d(3, 6, 3, groups=3, padding=1), bn=norm(6)), IMAGE),
    "a convolution read twice": (
        [FOLD],
        lambda: Program(two_norms_of_one_convolution, conv=nn.Conv2d(3, 4, 3), bn=norm(4), other=norm(4)),
        IMAGE,
    ),
    "a convolution called twice": (
        [FOLD],
        lambda: Program(lambda s, x: s.bn(s.conv(x)) + s.conv(x), conv=nn.Conv2d(3, 4, 3), bn=norm(4)),
        IMAGE,
    ),
    "a norm called twice": (
        [FOLD],
        lambda: Program(lambda s, x: s.bn(s.conv(x)) + s.bn(s.bn(s.conv(x))), conv=nn.Conv2d(3, 4, 3), bn=norm(4)),
        IMAGE,
    ),
    "a norm before a padded convolution": (
        [FOLD],
        lambda: Program(lambda s, x: s.conv(s.bn(x)), conv=nn.Conv2d(3, 4, 3, padding=1), bn=norm(3)),
        IMAGE,
    ),
    "a norm without running numbers": (
        [FOLD],
        lambda: Program(chain, conv=nn.Conv2d(3, 4, 3), bn=norm(4, track_running_stats=False)),
        IMAGE,
    ),
    "a norm after a function between": (
        [FOLD],
        lambda: Program(lambda s, x: s.bn(functional.relu(s.conv(x))), conv=nn.Conv2d(3, 4, 3), bn=norm(4)),
        IMAGE,
    ),
    "a norm of rows": ([FOLD1], lambda: Program(rows, fc=nn.Linear(8, 6), bn=norm(6, nn.BatchNorm1d)), ROWS),
    "a norm of the other axis": ([FOLD1], lambda: Program(rows, fc=nn.Linear(8, 5), bn=norm(5, nn.BatchNorm1d)), (2, 5, 8)),
}  # fmt: skip


def tied():
    first, second, third = (nn.Linear(8, 8) for _ in range(3))
    return Program(three, fc0=first, fc1=sharing(first, second), fc2=third)


def shared_convolutions():
    first = nn.Conv2d(3, 4, 3)
    other = sharing(first, nn.Conv2d(3, 4, 3))
    return Program(lambda s, x: s.bn(s.conv(x)) + s.other(x), conv=first, other=other, bn=norm(4))


def one_module_twice():
    module = nn.Linear(8, 8)
    return Program(three, fc0=module, fc1=module, fc2=nn.Linear(8, 8))


def training_norm():
    made = Program(chain, conv=nn.Conv2d(3, 4, 3), bn=norm(4))
    made.stays_in_training = True
    return made


TRAPS |= {
    "tied weights": ([MERGE, BIAS], tied, ROWS),
    "convolutions that share a weight": ([FOLD], shared_convolutions, IMAGE),
    "one module under two names": ([MERGE, BIAS], one_module_twice, ROWS),
    "a norm in training": ([FOLD], training_norm, IMAGE),
    "all passes of optimum": (
        [MERGE, BIAS, DIVIDE, FOLD, FOLD1],
        lambda: Program(lambda s, x: three(s, x) / 7, **linears(True, True, True)),
        ROWS,
    ),
}  # fmt: skip
# Where a rewrite would be wrong, or nobody knows that it is right, the program stays.
KEPT = {
    "a write into the input", "a division by zero", "a division by infinity", "a division by a denormal", "a rounding division",
    "a division of integers", "a number divided", "a convolution read twice", "a convolution called twice",
    "a norm called twice",
    "a norm before a padded convolution", "a norm without running numbers", "a norm after a function between", "a norm of rows",
    "a norm of the other axis", "a norm in training",
}  # fmt: skip
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def called(program, x):
    """On a copy: programs write into inputs, and norms in training into their numbers."""
    program, x = copy.deepcopy((program, x))
    with torch.no_grad():
        return program(x)


def prove(name, dtype):
    passes, make, shape = TRAPS[name]
    torch.manual_seed(0)
    model, x = make().eval().to(dtype), torch.randn(shape, dtype=dtype)
    model.train(hasattr(model, "stays_in_training"))
    live = torch.fx.symbolic_trace(model)
    expected = called(live, x)
    before = {key: (item, item.clone()) for key, item in live.state_dict(keep_vars=True).items()}
    torch.testing.assert_close(called(model, x), expected, rtol=0, atol=0, equal_nan=True)
    composed = compose(*(made() for made in passes))
    code, keys = live.code, live.state_dict().keys()
    composed(live)
    assert (live.code == code and live.state_dict().keys() == keys) == (name in KEPT)
    copies = [live, copy.deepcopy(live), pickle.loads(pickle.dumps(live))]
    for transformed in copies:
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(called(transformed, x), expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    undone = composed(live, reverse=True) if isinstance(composed, ReversibleTransformation) else rollback(live)
    torch.testing.assert_close(called(undone, x), expected, rtol=0, atol=0, equal_nan=True)
    after = undone.state_dict(keep_vars=True)
    assert after.keys() == before.keys()
    assert all(after[key] is item and torch.equal(item, value) for key, (item, value) in before.items())


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap(name):
    prove(name, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["some linears have a bias", "one feature", "tied weights", "a convolution without bias"])
def test_a_trap_in_another_dtype(name, dtype):
    prove(name, dtype)


@pytest.mark.parametrize(("name", "is_right"), [("a norm of rows", True), ("a norm of the other axis", False)])
def test_a_norm_of_rows_is_folded_once_the_shapes_are_known(name, is_right):
    _, make, shape = TRAPS[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    live, fold = torch.fx.symbolic_trace(model), FuseBatchNorm1dInLinear()
    fold(live)
    assert [refusal.reason for refusal in fold.run.refused] == ["unknown-shape"]
    record_shapes(live, x)
    fold(live)
    assert [row["applied"] for row in fold.run["passes"]] == [int(is_right)]
    torch.testing.assert_close(called(live, x), called(model, x), rtol=1e-4, atol=1e-5)
