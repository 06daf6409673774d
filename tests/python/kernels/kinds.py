"""Calls with arguments of the wrong kind, too many or too few: which of them PyTorch takes, for test_eval_kernels.c. See
recorder.py.

For each name of each operator of arithmetic that has a kernel, as a function of torch, a method, and each overload of ATen:
arguments that PyTorch takes are found by trying, then each is put in place of by one of another kind. Of what PyTorch refuses
nothing may be computed; what it takes is computed alike, or refused, too."""

import itertools
import pathlib
import re
import sys

import torch
from recorder import Raised, Recorder

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "python"))

import make_calls

SQUARE = torch.tensor([[0.5, 1.5, 1.0], [2.0, 0.25, 3.0], [1.0, 0.75, 0.5]])
TENSORS = [SQUARE, (SQUARE > 1).long(), SQUARE > 0.9, SQUARE[0].clone(), SQUARE.repeat(1, 2, 1, 1), SQUARE.repeat(2, 1, 1)]
VALID = {
    "T": TENSORS,
    "N": TENSORS,
    "L": [[TENSORS[0], TENSORS[0]], [TENSORS[1]]],
    "S": [2, 0.5],
    "i": [0, 1, 2],
    "I": [[0], [3, 3], [1], [0, 1], [1, 1, 3, 3]],
    "J": [[0], [1], [1, 1], [0, 1], [2, 2], [3]],
    "f": [0.5],
    "b": [False, True],
    "s": ["none"],
}
WRONG = {"number": 0.5, "int": 2, "None": None, "list": [1, 2], "text": "s", "tensor": SQUARE, "scalar tensor": torch.tensor(1)}
# Whose kernels are asked for
FILES = ("binary", "unary", "matmul", "select", "reduce", "scan", "sort", "gather", "complex", "fft")
# They draw numbers, or give what memory holds, or say where a tensor lives; getattr and item are Python's.
LEFT_OUT = {"rand", "rand_like", "randint", "randperm", "randn", "empty", "tensor", "dropout", "feature_dropout",
            "alpha_dropout", "item", "lift_fresh", "lift_fresh_copy",
            "device", "finfo", "iinfo", "type", "is_floating_point", "fft_fftfreq", "fft_rfftfreq"}
# Written in Python, which lets what is true stand for True; or with arguments in an order of its own.
LEFT_OUT_BY_PYTHON = {("torch", "norm"), ("method", "norm"), ("method", "where")}


def operators():
    """(id, names) of those that have a kernel."""
    files = "".join((ROOT / f"core/evaluator/kernels_{file}.c").read_text() for file in FILES)
    kernels = set(re.findall(r"FB_KERNEL(?:_COMPLEX|_OF_PARTS)?\((\w+),", files))
    text = "".join((ROOT / "core/operators" / f).read_text()
                   for f in re.findall(r'include "core/operators/(ops_\w+\.def)"',
                                       (ROOT / "core/operators/ops.def").read_text()))
    return [(name, names.split()) for name, names in re.findall(r'FB_OP_ROW\((\w+), "([^"]*)"', text) if name in kernels]


def spellings(name):
    """(kind, target, overload) of the ordinary overloads."""
    packet = getattr(torch.ops.aten, name, None)
    found = [getattr(packet, one) for one in packet.overloads()] if packet is not None else []
    for one in found:
        if not make_calls.is_ordinary(one) or any(make_calls.type_of(a).strip("?") == "x" and not a.has_default_value()
                                                  for a in one._schema.arguments):
            continue
        yield "aten", f"torch.ops.aten.{name}.{one._overloadname}", one
        if callable(getattr(torch, name, None)):
            yield "torch", f"torch.{name}", one
        if callable(getattr(torch.Tensor, name, None)):
            yield "method", name, one


def try_call(function, args, kwargs):
    copy = lambda v: v.clone() if isinstance(v, torch.Tensor) else [copy(i) for i in v] if isinstance(v, list) else v
    try:
        with torch.no_grad():
            return function(*[copy(a) for a in args], **{k: copy(v) for k, v in kwargs.items()})
    except Exception:
        return None


def function_of(kind, target):
    if kind == "method":
        return lambda self, *args, **kwargs: getattr(self, target)(*args, **kwargs)
    found = torch
    for part in target.split(".")[1:]:
        found = getattr(found, part)
    return found


def valid_arguments(kind, target, schema):
    """Positional ones, and keyword-only ones that must be given; None when nothing was found that fits."""
    must = [a for a in schema.arguments if not a.has_default_value()]
    choices = [VALID.get(make_calls.type_of(a).strip("?"), []) for a in must]
    function = function_of(kind, target)
    for chosen in itertools.islice(itertools.product(*choices), 400):
        args = [value for value, a in zip(chosen, must) if not a.kwarg_only]
        kwargs = {a.name: value for value, a in zip(chosen, must) if a.kwarg_only}
        if try_call(function, args, kwargs) is not None:
            return args, kwargs
    return None


def changed(schema, args, kwargs):
    """(name, args, kwargs), each with one thing wrong, or perhaps right."""
    yield "right", args, kwargs
    for i, name in itertools.product(range(len(args)), WRONG):
        yield f"{name} at {i}", [*args[:i], WRONG[name], *args[i + 1 :]], kwargs
    for key, name in itertools.product(kwargs, WRONG):
        yield f"{name} for {key}", args, {**kwargs, key: WRONG[name]}
    if args:
        yield "one less", args[:-1], kwargs
    more = [a for a in schema.arguments if a.has_default_value()]
    for name in WRONG:
        if not more or more[0].kwarg_only:
            yield f"{name} more", [*args, WRONG[name]], kwargs
    for a in more:
        for name in WRONG:
            yield f"{a.name}={name}", args, {**kwargs, a.name: WRONG[name]}
    yield "unknown keyword", args, {**kwargs, "nonsense": 1}
    positional = [a.name for a in schema.arguments if not a.kwarg_only]
    if len(args) > 1:
        yield "by name", args[:1], {**kwargs, **dict(zip(positional[1:], args[1:]))}
        yield "given twice", args, {**kwargs, positional[1]: args[1]}


def record(recorder, kind, target, title, args, kwargs):
    if "self" in kwargs or "name" in kwargs or (kind == "method" and not args):
        return
    case = recorder.start(title)
    give = lambda v: case.input(v) if isinstance(v, torch.Tensor) else [give(i) for i in v] if isinstance(v, list) else v
    args, kwargs = [give(a) for a in args], {k: give(v) for k, v in kwargs.items()}
    y = case.method(target, *args, **kwargs) if kind == "method" else case.call(target, *args, **kwargs)
    is_known = isinstance(case.last, (torch.Tensor, bool, int, float, Raised)) or (
        isinstance(case.last, (tuple, list)) and all(isinstance(i, torch.Tensor) for i in case.last)
    )
    if is_known and not (isinstance(case.last, torch.Tensor) and (case.last.is_complex() or case.last.layout != torch.strided)):
        recorder.finish(case, y, ulps=32, absolute=1e-5, optional=not isinstance(case.last, Raised))


def main(recorder):
    with torch.no_grad():
        for _, names in operators():
            for name in names:
                if name in LEFT_OUT or name.startswith("__"):
                    continue
                seen = set()
                for kind, target, one in spellings(name):
                    if (kind, name) in LEFT_OUT_BY_PYTHON:
                        continue
                    found = valid_arguments(kind, target, one._schema)
                    if found is None:
                        continue
                    for what, args, kwargs in changed(one._schema, *found):
                        key = (kind, target, str(args), str(kwargs))
                        if key in seen:
                            continue
                        seen.add(key)
                        record(recorder, kind, target,
                               f"{kind} {name} {one._overloadname} {len(seen)}, {what}".replace(", right", ": right"), args,
                               kwargs)


if __name__ == "__main__":
    recorder = Recorder("kinds")
    main(recorder)
    recorder.write()
