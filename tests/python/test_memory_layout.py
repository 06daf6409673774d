"""LAYOUT(…) of core/operators: how the result of each operator is laid out in memory is what PyTorch does.

Each row is called in every spelling that takes the arguments of layout_calls.py, with inputs that are row-major, channels_last,
transposed, sliced, expanded and overlapping: all of them, the first alone, and all but the first. A row's layout must hold in
every call, and with it the numbers that row-major inputs give.

    python tests/python/test_memory_layout.py [row …]      prints which layouts hold, and a counterexample of the others"""

import importlib
import re
import sys
import warnings

import layout_calls
import make_calls
import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

HOMES = [torch.nn.functional, torch, torch.special, torch.Tensor, torch._C._nn, torch._C._fft, torch._C._linalg]
ROWS = re.compile(r'^FB_OP_ROW\((\w+), "([^"]*)"(.*)$', re.M)
REFUSED = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AttributeError, AssertionError)
# Rows without a layout, at most one of twenty, and why.
UNKNOWN = {
    "RUN_PROGRAM": "gives what its programs give",
    "RUN_IN_AUTOCAST": "gives what its program gives",
    "RUN_WITH_GRAD": "gives what its program gives",
    "FLAT_APPLY": "gives what its function gives",
    "NUMBER_MAX": "gives one of its arguments",
    "COLLECTION": "gives a container of its arguments",
    "ADD_BATCH_DIM": "gives a tensor with a hidden dimension",
    "REMOVE_BATCH_DIM": "takes a tensor with a hidden dimension",
    "GETATTR": "gives any attribute",
    "EINSUM": "a view, or a product whose axes are in the order in which it computes",
    "EMPTY_STRIDED": "has the strides that it is given",
    "AS_STRIDED": "reads memory by strides that it is given",
    "RESIZE": "takes the memory as it is, in rows",
    "INT4PACK_MM": "fails or gives other numbers where an operand is not row-major",
    "FFT_C2C": "fails or gives other numbers for overlapping inputs",
}
# Rows that are FREE though more holds of these calls: other arguments, a gradient or another device than a CPU change it.
KNOWN_OTHERWISE = {
    "RRELU", "MAX_POOL1D", "DIFF", "MULTIHEAD_ATTENTION", "RECURRENT", "RECURRENT_CELL", "TRANSFORMER_LAYER",
    "TRANSFORMER_ENCODER"
}
# Spellings whose first tensor another one decides before.
LEADS = {"Tensor.where": 1, "rsub": -1}


class Row:
    def __init__(self, name, names, rest):
        word = lambda key: (re.search(rf'\b{key}\("?([^")]*)"?\)', rest) or ["", ""])[1]
        self.name, self.names, self.flags = name, names.split(), word("FLAGS").split(" | ")
        self.overloads, self.functions = word("ATEN").split() or ["default"], word("FUNCTIONS").split()
        self.in_place = word("IN_PLACE").split()
        self.modules, self.layout = word("MODULES").split(), word("LAYOUT") or "UNKNOWN"
        self.unbatched, self.spatial, self.computes = word("UNBATCHED"), int(word("SPATIAL") or 0), word("COMPUTES")
        self.identity, self.type_of = word("IDENTITY"), word("TYPE_OF")


def rows():
    files = re.findall(r'include "core/operators/(ops_\w+\.def)"', (make_calls.OPERATORS / "ops.def").read_text())
    return [Row(*row) for file in files for row in ROWS.findall((make_calls.OPERATORS / file).read_text())
            if file != "ops_onnx.def"]  # whose values lie nowhere


# ---- inputs ------------------------------------------------------------------------------------------------------------------


def permuted(tensor, order):
    return tensor.permute(order).contiguous().permute([order.index(i) for i in range(tensor.dim())])


def sliced(tensor):
    wide = torch.stack([tensor, tensor], -1).flatten(-2)
    return wide[..., ::2]


def overlapping(tensor):
    strides, step = [], 1
    for size in reversed(tensor.shape):
        strides.insert(0, step)
        step = max(1, step * size - 1)
    return tensor.contiguous().view(-1).as_strided(tensor.shape, strides)


LAYOUTS = {
    "rows": lambda x: x,
    "channels_last": lambda x: permuted(x, [0, *range(2, x.dim()), 1]),
    "transposed": lambda x: permuted(x, [*range(x.dim() - 2), x.dim() - 1, x.dim() - 2]),
    "turned": lambda x: permuted(x, [1, 0, *range(2, x.dim())]),
    "sliced": sliced,
    "overlapping": overlapping,
    "expanded": lambda x: x[:1].expand(x.shape),
}
# Layouts of the first tensor and of the others.
MIXED = [("rows", "channels_last"), ("rows", "expanded"), ("channels_last", "rows"), ("transposed", "rows"), ("turned", "rows"),
         ("expanded", "channels_last"), ("channels_last", "expanded"), ("sliced", "turned")]


def arrangements(leaves):
    """(name, leaves) with the tensors of three dimensions or more in other layouts."""
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dim() >= 3]
    chosen = [(name, name) for name in LAYOUTS] + (MIXED if len(places) > 1 else []) if places else [("rows", "rows")]
    for first, others in chosen:
        lay_out = {place: LAYOUTS[others if i else first] for i, place in enumerate(places)}
        yield (first if first == others else f"{first} with {others}",
               [lay_out[i](leaf.contiguous()) if i in lay_out else leaf for i, leaf in enumerate(leaves)])


# ---- layouts -----------------------------------------------------------------------------------------------------------------


def shares_memory(result, tensors):
    return any(result.untyped_storage().data_ptr() == one.untyped_storage().data_ptr() for one in tensors)


def same_strides(result, strides):
    return all(a == b or size == 1 for size, a, b in zip(result.shape, result.stride(), strides, strict=True))


def is_dense(tensor):
    return torch.ops.aten.is_non_overlapping_and_dense(tensor)


def follows(result, operands):
    """Are its strides those that TensorIterator gives to a result of these operands?"""
    like = []
    for one in operands:
        missing = result.dim() - one.dim()
        pairs = list(zip(one.shape, result.shape[max(missing, 0) :], one.stride(), strict=False))
        if missing < 0 or (missing and any(a not in (1, b) for a, b, _ in pairs)):
            return False
        is_part = any(a not in (1, b) for a, b, _ in pairs)  # as glu gives: its axes are ordered so
        strides = [0] * missing + [stride if a == b or is_part else 0 for a, b, stride in pairs]
        like.append(torch.empty_strided(result.shape, strides))
    calls = {1: torch.neg, 2: torch.add, 3: torch.addcmul}
    return len(like) in calls and same_strides(result, calls[len(like)](*like).stride())


def is_channels_last(tensor):
    return tensor.dim() in (4, 5) and same_strides(tensor, permuted(tensor, [0, *range(2, tensor.dim()), 1]).stride())


def is_as_first(result, operands, given):
    if result.shape == given[0].shape and shares_memory(result, given[:1]):
        return same_strides(result, given[0].stride())
    return follows(result, given[:1])


def is_image(result, operands, given):
    images = [one for one in given if one.dim() == result.dim() in (4, 5)]
    if images and all(is_channels_last(one) for one in images):
        return is_channels_last(result)
    if all(one.is_contiguous() for one in images):
        return result.is_contiguous() and not shares_memory(result, given[1:])
    return result.is_contiguous() or is_channels_last(result)


def has_strides_of_first(result, operands, given):
    return not is_dense(given[0]) or is_as_first(result, operands, given)


def is_view(result, operands, given):
    return shares_memory(result, given)


def is_ordered_view(result, operands, given):
    return shares_memory(result, given) and (result.is_contiguous() or not given[0].is_contiguous())


def is_turned_view(result, operands, given):
    return shares_memory(result, given) and (is_dense(result) or not is_dense(given[0]))


def is_rows_of_rows(result, operands, given):
    return is_new(result, operands, given) and (result.is_contiguous() or not all(one.is_contiguous() for one in given))


def is_new(result, operands, given):
    return is_dense(result) and not shares_memory(result, given)


# Checks of each layout: of a result, its operands in the order in which their strides count, and the tensors given.
HOLD = {
    "ROWS": lambda result, operands, given: result.is_contiguous() and is_new(result, operands, given),
    "ROWS_OF_ROWS": is_rows_of_rows,
    "AS_FIRST": is_as_first,
    "AS_FIRST_WITH_GAPS": has_strides_of_first,
    "AS_ALL": lambda result, operands, given: follows(result, operands),
    "IMAGE": is_image,
    "ORDERED_VIEW": is_ordered_view,
    "TURNED_VIEW": is_turned_view,
    "VIEW": is_view,
    "MAYBE_VIEW": lambda result, operands, given: result.is_contiguous() or is_ordered_view(result, operands, given),
    "FIXED_VIEW": lambda result, operands, given: result.is_contiguous() or is_ordered_view(result, operands, given),
    "FREE_IMAGE": lambda result, operands, given: is_dense(result) or shares_memory(result, given),
    "FREE": is_new,
}
# Layouts of calls that may fail for some inputs.
MAY_FAIL = {"FIXED_VIEW", "ROWS_OF_ROWS"}


# ---- calls -------------------------------------------------------------------------------------------------------------------


def function_of(target):
    module, name = target.rsplit(".", 1)
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        found = torch
        for part in target.split(".")[1:]:
            found = getattr(found, part)
        return found


ELSEWHERE = {target for row in rows() for target in row.functions}


def spellings(row):
    """(name, function, does it write into its first argument)"""
    for home in HOMES:
        for name in row.names:
            for written in (name, f"{name}_") if "HAS_IN_PLACE" in row.flags else (name,):
                target = f"{'torch.' if isinstance(home, type) else ''}{home.__name__}.{written}"
                if callable(getattr(home, written, None)) and target not in ELSEWHERE:
                    yield target, getattr(home, written), written != name
    for name in row.names:
        for overload in row.overloads:
            for written in (name, f"{name}_") if "HAS_IN_PLACE" in row.flags else (name,):
                found = getattr(getattr(torch.ops.aten, written, None), overload, None)
                if found is not None:
                    yield f"aten.{written}.{overload}", found, written != name
    for target in row.functions + row.in_place:
        yield target, function_of(target), target in row.in_place


class Invocation:
    """A spelling with arguments, of which `leaves` are the tensors among others."""

    def __init__(self, name, function, is_in_place, args, kwargs):
        self.name, self.function, self.is_in_place = name, function, is_in_place
        self.leaves, self.form = tree_flatten((args, kwargs))

    def attempt(self, leaves):
        args, kwargs = tree_unflatten(leaves, self.form)
        torch.manual_seed(0)
        try:
            return self.function(*args, **kwargs)
        except REFUSED as error:
            return error

    def operands(self, leaves):
        """The tensors in the order in which their strides count."""
        tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
        place = next((place for name, place in LEADS.items() if name in self.name), 0)
        return [tensors.pop(place), *tensors] if len(tensors) > 1 else tensors

    def layout(self, row):
        """Of this call's result, where it is another one than its row's (fb_layout_of)."""
        first, is_volume = self.leaves[0], "max_pool3d" in self.name or "MaxPool3d" in self.name
        if "ROWS_OF_NUMBER" in row.flags and not isinstance(first, torch.Tensor):
            return "ROWS"
        images = {"ROWS": 3, "FREE": 4, "ROWS_OF_ROWS": 5 if is_volume else 0}  # stacked, they have a dimension more
        if row.unbatched and first.dim() < images[row.unbatched]:
            return row.unbatched
        if row.name == "TAKE_ALONG_DIM" and len(self.leaves) > 2:
            return "ROWS"
        return None


def calls(row, x):
    """The calls that work with row-major tensors."""
    made = [make(x) for make in layout_calls.CALLS.get(row.name, layout_calls.GENERIC)]
    for name, function, is_in_place in spellings(row):
        for i, one in enumerate(made):
            if one and is_in_place and not isinstance(one.args[0], torch.Tensor):
                continue
            call = one and Invocation(f"{name}, call {i}", function, is_in_place, one.args, one.kwargs)
            if call and tensors_of(row, call.attempt([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
                                                      for leaf in call.leaves])):
                yield call
                if row.name not in layout_calls.CALLS:
                    break
    for name in row.modules:
        one = layout_calls.MODULES.get(name, lambda x: (getattr(torch.nn, name)().eval(), (x,)))(x)
        if one is not None:
            yield Invocation(f"torch.nn.{name}", one[0], False, one[1], {})


def tensors_of(row, result):
    found = [one for one in tree_flatten(result)[0] if isinstance(one, torch.Tensor)]
    return found[:1] if "TUPLE" in row.flags else found


def same_numbers(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) if a.dtype != torch.bool else torch.equal(a, b)


class Outcome:
    """A call's results with arranged inputs, beside those of the same numbers in rows."""

    def __init__(self, row, call, leaves):
        given = [one.clone() if call.is_in_place and isinstance(one, torch.Tensor) else one for one in leaves]
        plain = [one.clone(memory_format=torch.contiguous_format) if isinstance(one, torch.Tensor) else one for one in leaves]
        self.results, self.expected = tensors_of(row, call.attempt(given)), tensors_of(row, call.attempt(plain))
        self.given, self.operands = [one for one in given if isinstance(one, torch.Tensor)], call.operands(given)

    def has_same_numbers(self):
        return all(same_numbers(a, b) for a, b in zip(self.results, self.expected, strict=True))

    def mistake(self, row, holds):
        if self.expected and not self.results:
            return "fails"
        if not any(flag.startswith(("RANDOM", "UNSET")) for flag in row.flags) and not self.has_same_numbers():
            return "other numbers"
        for result in self.results:
            if not (holds if self.given else HOLD["ROWS"])(result, self.operands, self.given):
                given = ", ".join(f"{tuple(one.shape)} with {one.stride()}" for one in self.given)
                return f"{tuple(result.shape)} with {result.stride()} of {given}"
        return None


def overlaps(tensor):
    return torch._debug_has_internal_overlap(tensor) != 0


def is_itself(result, operands, given):
    return shares_memory(result, given[:1])


def examine(row, layouts):
    """The spellings that were called and, by layout, a call that it does not hold for."""
    torch.manual_seed(0)
    against, names = {}, set()
    for x in (torch.rand(3, 4, 4) * 0.8 + 0.1, torch.rand(2, 4, 6, 6) * 0.8 + 0.1):
        for call in calls(row, x):
            names.add(call.name.split(",")[0])
            for how, arranged in arrangements(call.leaves):
                if call.is_in_place and not all(is_dense(one) for one in arranged if isinstance(one, torch.Tensor)):
                    continue
                outcome = Outcome(row, call, arranged)
                for layout in layouts:
                    if layout == "AS_FIRST_WITH_GAPS" and overlaps(outcome.given[0]):
                        continue  # copied with what overlaps, which gives other numbers
                    holding = call.layout(row) or layout
                    mistake = None if layout in against else outcome.mistake(
                        row, is_itself if call.is_in_place else HOLD[holding])
                    if mistake and (mistake != "fails" or holding not in MAY_FAIL):
                        against[layout] = f"{call.name}, {x.dim()} dimensions, {how}: {mistake}"
    return names, against


def cases():
    return [row for row in rows() if row.layout not in ("UNKNOWN", "NONE")]


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.sampled
@pytest.mark.parametrize("row", cases(), ids=lambda row: row.name)
def test_results_are_laid_out_as_the_table_says(row):
    names, against = examine(row, [row.layout])
    assert names, "no call of layout_calls.py works"
    assert not against


@pytest.mark.sampled
@pytest.mark.parametrize("row", [row for row in cases() if row.layout == "FREE"], ids=lambda row: row.name)
def test_what_is_free_is_not_known_better(row):
    known = {"ROWS", "AS_FIRST", "AS_ALL"} - examine(row, ["ROWS", "AS_FIRST", "AS_ALL"])[1].keys()
    assert not known or row.name in KNOWN_OTHERWISE


def test_what_is_not_known_has_a_reason():
    unknown = {row.name for row in rows() if row.layout == "UNKNOWN"}
    assert unknown == UNKNOWN.keys()
    assert len(unknown) <= len(rows()) / 20


def test_what_gives_numbers_has_no_layout():
    numbers = {row.name for row in rows() if "NUMBER" in row.flags}
    assert {row.name for row in rows() if row.layout == "NONE"} == numbers | {"SETITEM", "DELITEM"}


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    for row in rows():
        if (len(sys.argv) > 1 and row.name not in sys.argv[1:]) or "NUMBER" in row.flags or row.name in UNKNOWN:
            continue
        names, against = examine(row, HOLD)
        print(f"{row.name:26} {row.layout:10} {len(names):3}: {' '.join(one for one in HOLD if one not in against)}",
              flush=True)
        for layout, where in against.items() if len(sys.argv) > 1 else ():
            print(f"      not {layout}: {where}")
