"""Traps of torch.fx transformations, as peers' issue trackers have them: each model computes what plain PyTorch
computes after the passes, in a copy, in a pickle, and after the undo."""

import concurrent.futures
import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from foldback import EditError
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
}


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
}


class Scaled(nn.Linear):
    """A Linear of its own kind."""

    def forward(self, x):
        return 2 * super().forward(x)


class OfSubclasses(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc0, self.fc1 = Scaled(8, 8), Scaled(8, 8)

    def forward(self, x):
        return self.fc0(x) + self.fc1(x)


class Leaves(torch.fx.Tracer):
    """Keeps GraphModules whole."""

    def is_leaf_module(self, module, name):
        return isinstance(module, (torch.fx.GraphModule, Scaled)) or super().is_leaf_module(module, name)


def nested():
    inner = torch.fx.symbolic_trace(Program(three, **linears(True, True, True)))
    return Program(lambda s, x: s.inner(x) / 3 + s.fc0(x) * s.fc1(x), inner=inner, **linears(True, True))


def of_one_storage():
    """As optimisers lay parameters out that they update at once."""
    made = Program(three, **linears(True, True, True))
    flat = torch.randn(3 * 64)
    for at in range(3):
        made.get_submodule(f"fc{at}").weight = nn.Parameter(flat[64 * at : 64 * at + 64].view(8, 8))
    return made


def transposed():
    made = Program(three, **linears(True, True, True))
    for child in (made.fc0, made.fc1):
        child.weight = nn.Parameter(torch.randn(8, 8).t())
    return made


def parametrized(wrap):
    made = Program(three, **linears(True, True, True))
    wrap(made.fc0)
    return made


TRAPS |= {
    "a Linear of its own kind": ([MERGE, BIAS], OfSubclasses, ROWS),
    "a program in a program": ([MERGE, BIAS, DIVIDE], nested, ROWS),
    "weights of one storage": ([MERGE, BIAS], of_one_storage, ROWS),
    "transposed weights": ([MERGE, BIAS], transposed, ROWS),
    "a weight that a function reads": (
        [MERGE, BIAS],
        lambda: Program(lambda s, x: three(s, x) + x @ s.fc0.weight, **linears(True, True, True)),
        ROWS,
    ),
    "a result that is a dict": (
        [MERGE],
        lambda: Program(lambda s, x: {"a": s.fc0(x), "b": [s.fc1(x), (s.fc2(x), None)]}, **linears(True, True, True)),
        ROWS,
    ),
    "a result that is two times the same": ([MERGE],
                                            lambda: Program(lambda s, x: (s.fc0(x),) * 2 + (s.fc1(x),), **linears(True, True)),
                                            ROWS),
    "parts that are viewed": (
        [MERGE],
        lambda: Program(lambda s, x: s.fc0(x).view(5, 2, 4) + s.fc1(x).reshape(5, 2, 4), **linears(True, True)),
        ROWS,
    ),
    "a list of modules": (
        [MERGE, BIAS],
        lambda: Program(lambda s, x: sum(child(x) for child in s.all), all=nn.ModuleList(nn.Linear(8, 8) for _ in range(3))),
        ROWS,
    ),
    "a sequence": ([MERGE, BIAS], lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), ROWS),
    "no rows": ([MERGE, BIAS, DIVIDE], lambda: Program(lambda s, x: three(s, x) / 3, **linears(True, True, True)), (0, 8)),
    "a division in place": ([DIVIDE], lambda: Program(lambda s, x: s.fc0(x).div_(3), **linears(True)), ROWS),
    "a division by a tensor": ([DIVIDE], lambda: Program(lambda s, x: s.fc0(x) / s.fc1.bias, **linears(True, True)), ROWS),
    "a division by a size": ([DIVIDE], lambda: Program(lambda s, x: s.fc0(x) / x.size(0), **linears(True)), ROWS),
    "a norm after a transposed convolution": (
        [FOLD],
        lambda: Program(chain, conv=nn.ConvTranspose2d(3, 4, 3), bn=norm(4)),
        IMAGE,
    ),
    "a dilated convolution with strides": (
        [FOLD],
        lambda: Program(chain, conv=nn.Conv2d(3, 4, 3, stride=2, dilation=2, padding_mode="reflect", padding=1), bn=norm(4)),
        IMAGE,
    ),
    "a norm in training beside eval": (
        [FOLD],
        lambda: Program(lambda s, x: s.bn(s.conv(x)) + s.conv2(x), conv=nn.Conv2d(3, 4, 3), bn=norm(4),
                        conv2=nn.Conv2d(3, 4, 3)),
        IMAGE,
    ),
    "a variance of nought": ([FOLD], lambda: Program(chain, conv=nn.Conv2d(3, 4, 3), bn=norm_of_nought()), IMAGE),
}


def norm_of_nought():
    made = norm(4)
    made.running_var.zero_()
    return made


# Where a rewrite would be wrong, or nobody knows that it is right, the program stays.
KEPT = {
    "a write into a part", "a write into the input", "a division by zero", "a division by infinity", "a division by a denormal",
    "a rounding division", "a number divided", "a convolution read twice",
    "a convolution called twice",
    "a norm called twice",
    "a norm before a padded convolution", "a norm without running numbers", "a norm after a function between", "a norm of rows",
    "a norm of the other axis", "a norm in training", "a Linear of its own kind", "a division in place",
    "a division by a tensor",
    "a division by a size", "a norm after a transposed convolution",
}
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
    live = torch.fx.GraphModule(model, Leaves().trace(model))
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


@pytest.mark.parametrize(
    "wrap",
    [
        nn.utils.weight_norm,
        nn.utils.parametrizations.weight_norm,
        lambda child: nn.utils.prune.l1_unstructured(child, "weight", 0.5),
        lambda child: child.register_forward_hook(lambda module, args, result: result * 2),
    ],
    ids=["old weight norm", "parametrisation", "pruning", "hook"],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_module_that_computes_more_than_its_class_stays(wrap):
    """PyTorch copies and pickles few of these."""
    model = parametrized(wrap).eval()
    live, x, composed = torch.fx.symbolic_trace(model), torch.randn(ROWS), compose(MERGE(), BIAS())
    composed(live)
    assert type(live.fc0) is type(model.fc0) and "merged" in live.code
    torch.testing.assert_close(live(x), model(x))
    assert torch.equal(composed(live, reverse=True)(x), model(x))


# ---- what users do between a pass and its undo ------------------------------------------------------------------------------


def step(live, x):
    live(x).square().sum().backward()
    torch.optim.SGD(live.parameters(), 0.05).step()


def step_through_data(live, x):
    """As optimisers did that are older than torch.no_grad."""
    live(x).square().sum().backward()
    for parameter in live.parameters():
        parameter.data.add_(parameter.grad.data, alpha=-0.05)


def load_other_weights(live, x):
    live.load_state_dict({key: item * 1.5 for key, item in live.state_dict().items()})


def assign_other_weights(live, x):
    live.load_state_dict({key: item * 1.5 for key, item in live.state_dict().items()}, assign=True)


def replace_a_parameter(live, x):
    for child in live.modules():
        if isinstance(child, nn.Linear):
            child.weight = nn.Parameter(child.weight.detach() * 2)


def swap_columns_through_data(live, x):
    for parameter in live.parameters():
        parameter.data = parameter.data.flip(-1).contiguous()


def write_one_element(live, x):
    with torch.no_grad():
        next(live.parameters()).view(-1)[3] += 1


def wrap_in_data_parallel(live, x):
    wrapped = nn.DataParallel(live)
    step(wrapped, x)


def clip_and_freeze(live, x):
    nn.utils.clip_grad_norm_(live.parameters(), 1.0)
    live.requires_grad_(False)


def average(live, x):
    averaged = torch.optim.swa_utils.AveragedModel(live)
    averaged.update_parameters(live)
    torch.testing.assert_close(averaged(x), live(x))


def script(live, x):
    assert torch.equal(torch.jit.trace(live, x)(x), live(x))


def add_a_hook(live, x):
    seen = []
    handle = live.register_forward_hook(lambda module, args, result: seen.append(result))
    live(x)
    assert len(seen) == 1
    handle.remove()


RAISING = {"double", "frozen"}  # the parameters that come back have a dtype and a flag of their own
BETWEEN = {
    "nothing": lambda live, x: None,
    "train and eval": lambda live, x: live.train().eval(),
    "double": lambda live, x: live.double(),
    "half and back": lambda live, x: live.half().float(),
    "a step": step,
    "a step through data": step_through_data,
    "other weights loaded": load_other_weights,
    "other weights assigned": assign_other_weights,
    "other parameters": replace_a_parameter,
    "columns swapped through data": swap_columns_through_data,
    "one element": write_one_element,
    "data parallel": wrap_in_data_parallel,
    "frozen": clip_and_freeze,
    "averaged": average,
    "scripted": script,
    "a hook that came and went": add_a_hook,
    "a call": lambda live, x: live(x),
    "an interpreter": lambda live, x: torch.fx.Interpreter(live).run(x),
    "dead code eliminated": lambda live, x: (live.graph.eliminate_dead_code(), live.recompile()),
    "gradients cleared": lambda live, x: (step(live, x), live.zero_grad()),
    "shared memory": lambda live, x: live.share_memory(),
}


@pytest.mark.parametrize(
    ("passes", "kind"),
    [([MERGE], "live"), ([MERGE, DIVIDE, BIAS], "live"), ([MERGE, DIVIDE, BIAS], "copy"), ([MERGE, DIVIDE, BIAS], "pickle")],
    ids=["one pass", "three passes", "copy", "pickle"],
)
@pytest.mark.parametrize("name", BETWEEN)
def test_what_is_done_between_is_not_lost(name, passes, kind):
    """The undone program computes what the program computed before the undo; or the undo raises, and it still does."""
    torch.manual_seed(0)
    model, x = Program(lambda s, x: three(s, x) / 3, **linears(True, True, True)).eval(), torch.randn(ROWS)
    composed = compose(*(made() for made in passes))
    live = composed(torch.fx.symbolic_trace(model))
    live = {"live": lambda: live, "copy": lambda: copy.deepcopy(live),
            "pickle": lambda: pickle.loads(pickle.dumps(live))}[kind]()
    BETWEEN[name](live, x)
    x = x.double() if name == "double" else x
    expected = called(live, x)
    try:
        composed(live, reverse=True)
        assert "merged" not in live.code
    except EditError as error:
        assert name in RAISING, error
        assert "merged" in live.code
    torch.testing.assert_close(called(live, x), expected)


@pytest.mark.parametrize("train", [step, step_through_data])
def test_training_of_the_model_that_was_traced_is_not_lost(train):
    """The parameters that a merge put away are the model's, and may be trained there."""
    torch.manual_seed(0)
    model, x, composed = Program(three, **linears(True, True, True)), torch.randn(ROWS), compose(MERGE(), BIAS())
    live = composed(torch.fx.symbolic_trace(model))
    train(model, x)
    trained = {key: item.clone() for key, item in model.state_dict().items()}
    torch.testing.assert_close(called(composed(live, reverse=True), x), called(model, x))
    assert all(torch.equal(item, trained[key]) for key, item in model.state_dict().items())


@pytest.mark.parametrize("train", [step, step_through_data])
def test_training_of_both_is_a_conflict(train):
    torch.manual_seed(0)
    model, x, composed = Program(three, **linears(True, True, True)), torch.randn(ROWS), compose(MERGE(), BIAS())
    live = composed(torch.fx.symbolic_trace(model))
    train(model, x), step(live, x)
    trained = {key: item.clone() for key, item in model.state_dict().items()}
    expected = called(live, x)
    with pytest.raises(EditError, match=r"fc\d\.(weight|bias)"):
        composed(live, reverse=True)
    torch.testing.assert_close(called(live, x), expected)
    assert all(torch.equal(item, trained[key]) for key, item in model.state_dict().items())


def test_two_programs_of_one_model():
    torch.manual_seed(0)
    model, x = Program(three, **linears(True, True, True)).eval(), torch.randn(ROWS)
    first, second = (torch.fx.symbolic_trace(model) for _ in range(2))
    one, other = compose(MERGE(), BIAS()), compose(BIAS(), MERGE())
    one(first), other(second)
    for live in (first, second):
        torch.testing.assert_close(called(live, x), called(model, x))
    assert torch.equal(called(one(first, reverse=True), x), called(model, x))
    assert torch.equal(called(other(second, reverse=True), x), called(model, x))
    assert first.fc0.weight is second.fc0.weight is model.fc0.weight


def test_twice_there_and_back():
    torch.manual_seed(0)
    model, x = Program(lambda s, x: three(s, x) / 3, **linears(True, True, True)).eval(), torch.randn(ROWS)
    live, composed = torch.fx.symbolic_trace(model), compose(MERGE(), DIVIDE(), BIAS())
    code = live.code
    for _ in range(3):
        composed(live)
        torch.testing.assert_close(called(live, x), called(model, x))
        assert torch.equal(called(composed(live, reverse=True), x), called(model, x)) and live.code == code
    composed(composed(live))
    torch.testing.assert_close(called(live, x), called(model, x))
    composed(composed(live, reverse=True), reverse=True)
    assert torch.equal(called(live, x), called(model, x)) and live.code == code


def test_many_threads_at_once():
    torch.manual_seed(0)
    models = [Program(lambda s, x: three(s, x) / 3, **linears(True, True, True)).eval() for _ in range(12)]
    traced, x = [torch.fx.symbolic_trace(model) for model in models], torch.randn(ROWS)  # torch.fx traces one at a time

    def there_and_back(model, live):
        composed = compose(MERGE(), DIVIDE(), BIAS())
        torch.testing.assert_close(composed(live)(x), model(x))
        return torch.equal(composed(live, reverse=True)(x), model(x))

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(there_and_back, models, traced)) == [True] * 12


def test_inference_mode():
    torch.manual_seed(0)
    model, x, composed = Program(three, **linears(True, True, True)).eval(), torch.randn(ROWS), compose(MERGE(), BIAS())
    live = torch.fx.symbolic_trace(model)
    with torch.inference_mode():
        composed(live)
        torch.testing.assert_close(live(x), model(x))
        live.get_parameter(next(name for name, _ in live.named_parameters())).mul_(2)
        expected = live(x)
        torch.testing.assert_close(composed(live, reverse=True)(x), expected)
