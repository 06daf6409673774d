"""SPATIAL(…), COMPUTES(…), IDENTITY(…), TYPE_OF(…) and some flags of core/operators are what PyTorch does.

Each row is called in every spelling with the arguments of layout_calls.py, or with those below. A row that has the fact must
show it in every call that may, and a row that hasn't must show in a call that it hasn't."""

import functools
import itertools
import math
import operator
import warnings

import pytest
import torch
from test_memory_layout import REFUSED, Invocation, calls, rows, same_numbers, shares_memory, spellings, tensors_of
from torch.utils._pytree import tree_flatten


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


def having(fact):
    return pytest.mark.parametrize("row", [row for row in rows() if fact(row)], ids=lambda row: row.name)


def is_certain(row):
    return not any(flag.startswith(("RANDOM", "UNSET", "RUNS_PROGRAMS", "EFFECT")) for flag in row.flags)


def examples():
    torch.manual_seed(0)
    return torch.rand(3, 4, 4) * 0.8 + 0.1, torch.rand(2, 4, 6, 6) * 0.8 + 0.1


@functools.cache
def made(row):
    """The calls of a row, which the tests leave as they are."""
    return [call for x in examples() for call in calls(row, x)]


def copied(leaves):
    return [one.clone() if isinstance(one, torch.Tensor) else one for one in leaves]


def attempt(function, *args):
    try:
        return function(*args)
    except (*REFUSED, OverflowError):
        return None


# ---- windows -----------------------------------------------------------------------------------------------------------------


@having(lambda row: row.spatial)
def test_windows_slide_along_the_last_dimensions(row):
    found = made(row)
    assert found
    for call in found:
        images = call.leaves[0] if call.leaves[0].dim() == row.spatial + 2 else call.leaves[0][None]
        assert images.dim() == row.spatial + 2, call.name
        assert isinstance(call.attempt([images[None, None], *call.leaves[1:]]), Exception), call.name


# ---- arithmetic --------------------------------------------------------------------------------------------------------------

PYTHON = {
    "ADD": operator.add, "SUB": operator.sub, "REVERSED_SUB": lambda a, b: b - a, "MUL": operator.mul,
    "TRUE_DIVIDE": operator.truediv, "FLOOR_DIVIDE": operator.floordiv, "REMAINDER": operator.mod, "POW": operator.pow,
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
    "AND": operator.and_, "OR": operator.or_, "XOR": operator.xor, "NOT": operator.invert, "SHIFT_LEFT": operator.lshift,
    "SHIFT_RIGHT": operator.rshift, "NEG": operator.neg, "POSITIVE": operator.pos, "ABS": operator.abs, "FLOOR": math.floor,
    "CEIL": math.ceil, "ROUND": round,
}
PAIRS = [(7, 2), (-7, 2), (7, 3), (5, 5), (2, 7), (7.5, 2.0), (-7.5, 2.0), (0.5, 0.5), (1.5, 4.0), (1.0, 1 + 1e-9)]
SINGLE = [(7,), (-7,), (0,), (2.5,), (-2.5,), (-0.75,), (0.25,)]
# Python's arithmetic that these compute as well, on real numbers, though no row says so.
ALSO = {
    "FLOAT_POWER": "POW", "NAN_TO_NUM": "POSITIVE",
}


def computed(row, numbers):
    """The results of each spelling for these numbers, as tensors and with a number in the second place."""
    tensors = [torch.tensor(one, dtype=torch.float64 if isinstance(one, float) else torch.int64) for one in numbers]
    for name, function, _ in spellings(row):
        for args in (tensors, [tensors[0], *numbers[1:]]):
            result = attempt(function, *[one.clone() if isinstance(one, torch.Tensor) else one for one in args])
            if isinstance(result, torch.Tensor):
                yield name, result.item()


def agrees(results, expected):
    return all(math.isclose(one, expected, rel_tol=1e-5) if math.isfinite(one) else False for _, one in results)


def python_arithmetic(row):
    """The operators of Python that give what the row gives for all numbers."""
    left = None
    for numbers in SINGLE + PAIRS:
        results = [(name, one) for name, one in computed(row, numbers) if not isinstance(one, complex)]
        known = {name: attempt(function, *numbers) for name, function in PYTHON.items()}
        if results:
            fitting = {name for name, one in known.items() if one is not None and agrees(results, one)}
            raising = {name for name, one in known.items() if one is None and left is not None and name in left}
            left = fitting if left is None else left & (fitting | raising)
    return left or set()


@having(lambda row: row.computes or "ELEMENTWISE" in row.flags)
def test_arithmetic_is_pythons(row):
    found = python_arithmetic(row)
    assert row.computes in found if row.computes else found <= {ALSO.get(row.name)}


# ---- identities --------------------------------------------------------------------------------------------------------------


def in_any_dtype(x, *more):
    return [(x.to(dtype), *more) for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
                                              torch.int32, torch.bool)]


def identities(x):
    """By rule: arguments with which the call gives the numbers of x; does the result share its memory; is it x itself?"""
    shape, zeros = list(x.shape), [0] * 4
    return {
        "RETURNS": ([(x,)], True, True),
        "DROPS": ([(x, 0.5, False)], True, True),
        "DETACHES": ([(x,)], True, False),
        "RESHAPES": ([(x, shape), (x, x), (x, 1, 1), (x, 0, 0, shape[0]), (x, slice(None))], True, False),
        "CASTS": ([*in_any_dtype(x), (x, x.dtype), (x, "cpu", x.dtype)], True, True),
        "CASTS_COPY": ([(x,)], False, False),
        "CASTS_LIKE": ([(x, x)], True, True),
        "MAKES_CONTIGUOUS": ([(x,)], True, True),
        "COPIES": ([(x,)], False, False),
        "ADDS": ([(x, 0)], False, False),
        "SCALES": ([(x, 1)], False, False),
        "AVERAGES": ([(x, shape[-2:]), (x, shape[-3:]), (x[0], shape[-1:])], False, False),
        "OVERWRITES": ([(torch.zeros_like(x), x)], False, False),
        "PADS": ([(x, zeros)], False, False),
        "TURNS": ([(x, list(range(x.dim()))), (x, 1, 1)], True, False),
        "JOINS": ([([x],)], False, False),
    }  # yapf: disable


@having(lambda row: row.identity)
def test_identities_give_their_input(row):
    x = torch.rand(2, 3, 4, 4) - 0.5
    candidates, shares, is_itself = identities(x)[row.identity]
    functions = [function for _, function, is_written in spellings(row) if is_written == (row.identity == "OVERWRITES")]
    functions += [getattr(torch.nn, name)().eval() for name in row.modules if row.identity in ("RETURNS", "DROPS")]
    found = 0
    for function in functions:
        for args in candidates:
            result = attempt(function, *args)
            of = args[1] if row.identity == "OVERWRITES" else args[0][0] if row.identity == "JOINS" else args[0]
            if not isinstance(result, torch.Tensor) or result.shape != of.shape or not torch.equal(result, of):
                continue
            found += result.dtype == of.dtype and shares_memory(result, [of]) == shares and (result is of or not is_itself)
    assert found


# ---- reads of a type ---------------------------------------------------------------------------------------------------------

# Rows without TYPE_OF whose first tensor's numbers do not count in these calls.
UNREAD = {
    "FILL": "all of it is replaced", "ZERO": "all of it is replaced", "COPY": "all of it is replaced",
    "NEW_TENSOR": "passes do not count on it", "LOGICAL_OR": "the second is true everywhere", "ISCLOSE": "none is close",
}


def other_numbers(tensor):
    """Some that questions ask for, and none."""
    other = tensor.clone().contiguous()
    asked = torch.tensor([0, 2, math.nan, math.inf, -3] if tensor.is_floating_point() else [0, 2])
    other.view(-1)[: len(asked)] = asked[: other.numel()].to(tensor.dtype)
    return other, torch.zeros_like(tensor)


def is_same(some, others):
    return len(some) == len(others) and all(
        same_numbers(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b
        for a, b in zip(some, others, strict=True))


def reads_type_only(call, place):
    """The result does not change with the numbers of the tensor in that place; None if there is no such tensor."""
    places = [i for i, leaf in enumerate(call.leaves) if isinstance(leaf, torch.Tensor)]
    if place >= len(places):
        return None
    results = [tree_flatten(call.attempt(copied(call.leaves)))[0]]
    for numbers in other_numbers(call.leaves[places[place]]):
        changed = copied(call.leaves)
        changed[places[place]] = numbers
        results.append(tree_flatten(call.attempt(changed))[0])
    return all(is_same(before, after) for before, after in itertools.pairwise(results))


def numbers_of(row):
    """Calls of what gives no tensor."""
    for x in examples():
        for name, function, is_in_place in spellings(row):
            for args in ((x,), (x, 1)):
                if attempt(function, *args) is not None:
                    yield Invocation(name, function, is_in_place, args, {})


@having(lambda row: row.type_of)
def test_a_type_is_all_that_is_read(row):
    found = made(row) or list(numbers_of(row))
    place = {"input": 0, "other": 1}[row.type_of]
    assert found
    assert all(reads_type_only(call, place) for call in found)


@pytest.mark.sampled
@having(lambda row: not row.type_of and is_certain(row) and row.layout not in ("UNKNOWN", "NONE"))
def test_numbers_are_read_where_the_table_does_not_deny_it(row):
    found = {reads_type_only(call, 0) for call in made(row) if not call.is_in_place} - {None}
    assert found != {True} or row.name in UNREAD


# ---- flags -------------------------------------------------------------------------------------------------------------------


@having(lambda row: "BATCHES" in row.flags)
def test_a_batch_is_treated_by_element(row):
    found = [call for call in made(row) if not call.is_in_place and isinstance(call.leaves[0], torch.Tensor)]
    assert found
    for call in found:
        one = torch.vmap(lambda x, call=call: call.attempt([x, *call.leaves[1:]]))(call.leaves[0])
        assert same_numbers(one, call.attempt(call.leaves)), call.name


def gives_parts(row, call):
    result, first = call.attempt(copied(call.leaves)), call.leaves[0]
    if not isinstance(result, (tuple, list)) or isinstance(result, torch.Size) or not isinstance(first, torch.Tensor):
        return False
    parts = tensors_of(row, result)
    joined = [attempt(torch.cat, parts, dim) for dim in range(first.dim())]
    return any(one is not None and one.shape == first.shape and torch.equal(one, first) for one in joined)


@pytest.mark.sampled
@having(lambda row: row.layout not in ("UNKNOWN", "NONE") and "TUPLE" not in row.flags)
def test_parts_are_given_where_the_table_says_so(row):
    found = [gives_parts(row, call) for call in made(row)]
    assert found and all(found) if "PARTS" in row.flags else not any(found)


@pytest.mark.sampled
@having(lambda row: "HAS_IN_PLACE" in row.flags or row.in_place)
def test_shapes_change_in_place_where_the_table_says_so(row):
    changed = False
    for call in made(row) + [Invocation(name, function, True, args, {})
                             for name, function, is_in_place in spellings(row) if is_in_place
                             for args in ((torch.rand(1, 3),), (torch.rand(1, 3), 0, 1), (torch.rand(1, 3), [3], [1]))]:
        leaves = copied(call.leaves)
        if call.is_in_place and isinstance(leaves[0], torch.Tensor):
            shape = leaves[0].shape
            call.attempt(leaves)
            changed |= leaves[0].shape != shape
    assert changed == ("RESHAPES_IN_PLACE" in row.flags)


@having(lambda row: "ASSERTS" in row.flags)
def test_assertions_give_nothing_or_fail(row):
    results = [attempt(function, *args) for name, function, _ in spellings(row)
               for args in ((True,), (torch.tensor(True),), (torch.tensor(True), "no"), (torch.rand(2),), (3,))]
    failures = [Invocation(name, function, False, args, {}).attempt(args) for name, function, _ in spellings(row)
                for args in ((False,), (False, "no"), (torch.tensor(False),), (torch.tensor(0), "no"))]
    assert all(one is None for one in results)
    assert any(isinstance(one, Exception) for one in failures)
