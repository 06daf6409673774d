"""Recipes: tensors as expressions over other tensors.

A recipe of movements copies bits. Any other is computed in float64 and rounded once, to nearest even, to the tensor's
dtype; to int8 also, where nan becomes 0 and what is beyond the range the nearest end of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .values import decode

Expression = str | dict[str, Any]  # a tensor's name, or an operator over expressions
_MOVEMENTS = {"concat", "slice", "reshape", "permute", "full"}
_VIEWS = {"slice", "reshape", "permute"}
_COMPUTED: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "neg": torch.neg,
    "sqrt": torch.sqrt,
    "rsqrt": lambda x: 1 / torch.sqrt(x),
    "exp": torch.exp,
    "sin": torch.sin,
    "cos": torch.cos,
    "maximum": lambda a, b: torch.where((a == 0) & (b == 0), a + b, torch.maximum(a, b)),  # -0 is less than 0
    "minimum": lambda a, b: torch.where((a == 0) & (b == 0), -(-a - b), torch.minimum(a, b)),
    "round": torch.round,
    "matmul": torch.matmul,
}


class TensorOverflows(ValueError):
    """A tensor that passes made is infinite or nan somewhere, though all that it is made of is finite."""


def inputs_of(expression: Expression) -> list[str]:
    """The tensors that a recipe reads, in the order of their reading."""
    if isinstance(expression, str):
        return [expression]
    return [name for item in expression["args"] for name in inputs_of(item)]


def expanded(expression: Expression, recipes: Mapping[str, Any]) -> Expression:
    """With the recipes of tensors that are not here in the place of their names."""
    if isinstance(expression, str):
        return expanded(recipes[expression], recipes) if expression in recipes else expression
    args = [expanded(item, recipes) for item in expression["args"]]
    is_same = all(one is other for one, other in zip(args, expression["args"], strict=True))
    return expression if is_same else {**expression, "args": args}


def is_movement(expression: Expression) -> bool:
    """Whether a recipe only moves elements, and computes none, so that nothing is rounded."""
    return isinstance(expression, str) or (expression["op"] in _MOVEMENTS and all(map(is_movement, expression["args"])))


def is_view(expression: Expression) -> bool:
    """Whether what it gives can lie in the memory of the one tensor that it reads."""
    return isinstance(expression, str) or (expression["op"] in _VIEWS and is_view(expression["args"][0]))


def evaluate(
    expression: Expression,
    tensor: Callable[[str], torch.Tensor],
    dtype: torch.dtype,
    device: torch.device,
    copy: bool = True,
) -> torch.Tensor:
    """The tensor; `tensor` gives those that the recipe reads, by name. A new one, row-major as a file holds it, unless `copy`
    is false and it can be a view."""
    with torch.no_grad():
        if not is_movement(expression):
            return round_once(_value(expression, tensor, torch.float64, device), dtype).contiguous()
        if not copy:
            return _value(expression, tensor, dtype, device)
        made = torch.empty(shape_of(expression, tensor), dtype=dtype, device=device)
        _write(made, expression, tensor)
        return made


def evaluate_finite(
    name: str,
    expression: Expression,
    tensor: Callable[[str], torch.Tensor],
    dtype: torch.dtype,
    device: torch.device,
    copy: bool = True,
) -> torch.Tensor:
    """`evaluate` for a tensor of that name that is put to use: raises TensorOverflows where a number is finite no more."""
    made = evaluate(expression, tensor, dtype, device, copy)
    if is_movement(expression) or _is_finite(made) or not all(_is_finite(tensor(item)) for item in inputs_of(expression)):
        return made
    if not all(math.isfinite(number) for number in _fillers(expression)):  # a mask's -inf
        return made
    raise TensorOverflows(
        f"{name}, which passes made of finite numbers, has some that are infinite or nan in {dtype}: run the passes on a "
        "document "
        "that has these weights (data=True), or that they are bound to, and they leave it as it was"
    )


def _is_finite(tensor: torch.Tensor) -> bool:
    return tensor.is_meta or not tensor.is_floating_point() or bool(tensor.isfinite().all())


def _fillers(expression: Expression) -> list[float]:
    if isinstance(expression, str):
        return []
    own = [float(decode(expression["value"]))] if expression["op"] == "full" else []
    return own + [number for item in expression["args"] for number in _fillers(item)]


def shape_of(expression: Expression, tensor: Callable[[str], torch.Tensor]) -> list[int]:
    """The shape that a recipe of movements gives."""
    if isinstance(expression, str):
        return list(tensor(expression).shape)
    if "shape" in expression:
        return list(expression["shape"])
    shapes = [shape_of(item, tensor) for item in expression["args"]]
    if expression["op"] == "permute":
        return [shapes[0][dim] for dim in expression["dims"]]
    axis = expression["axis"]
    if expression["op"] == "slice":
        size = expression["stop"] - expression["start"]
    else:
        size = sum(shape[axis] for shape in shapes)
    shapes[0][axis] = size
    return shapes[0]


def _write(made: torch.Tensor, expression: Expression, tensor: Callable[[str], torch.Tensor]) -> None:
    """Writes what a recipe of movements gives into a tensor of its shape. The parts of a concatenation are written at once
    where they belong, and lie nowhere else."""
    if isinstance(expression, str) or expression["op"] != "concat":
        value = _value(expression, tensor, made.dtype, made.device)
        if value.shape != made.shape:  # which copy_ might repeat
            raise ValueError(f"a part of a tensor has the shape {list(value.shape)}, not {list(made.shape)}")
        made.copy_(value)
        return
    axis, start = expression["axis"], 0
    for item in expression["args"]:
        size = shape_of(item, tensor)[axis]
        _write(made.narrow(axis, start, size), item, tensor)
        start += size


def _value(
    expression: Expression, tensor: Callable[[str], torch.Tensor], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    if isinstance(expression, str):
        return tensor(expression).detach().to(device, dtype)
    if expression["op"] == "index_select":
        source, index = expression["args"]
        values, places = _value(source, tensor, dtype, device), _value(index, tensor, torch.int64, device).flatten()
        size = values.shape[expression["axis"]]
        return values.index_select(expression["axis"], torch.where(places < 0, places + size, places))
    op, args = expression["op"], [_value(item, tensor, dtype, device) for item in expression["args"]]
    if op == "full":
        return torch.full(expression["shape"], decode(expression["value"]), dtype=dtype, device=device)
    if op == "concat":
        return torch.cat(args, expression["axis"])
    if op == "slice":
        return args[0].narrow(expression["axis"], expression["start"], expression["stop"] - expression["start"])
    if op == "reshape":
        return args[0].reshape(expression["shape"])
    if op == "permute":
        return args[0].permute(expression["dims"])
    if op == "absmax":
        return args[0].abs().amax(expression["dims"], keepdim=True) if expression["dims"] else args[0].abs()
    return _COMPUTED[op](*args)


def round_once(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float64 to a narrower dtype, to nearest even. PyTorch goes by way of float32 to the 16-bit types; here that step
    rounds to odd, which the next one cannot tell from the exact value (Boldo and Melquiond 2008)."""
    if dtype == torch.int8:
        return exact.nan_to_num(nan=0.0).round().clamp(-128, 127).to(dtype)
    if dtype not in (torch.float16, torch.bfloat16):
        return exact.to(dtype)
    narrow = exact.to(torch.float32)
    wide = narrow.to(torch.float64)
    is_too_far = wide.abs() > exact.abs()
    narrow = torch.where(is_too_far, torch.nextafter(narrow, torch.zeros_like(narrow)), narrow)
    is_inexact = (wide != exact) & ~exact.isnan()
    return (narrow.view(torch.int32) | is_inexact.to(torch.int32)).view(torch.float32).to(dtype)


# ---- views as recipes -----------------------------------------------------------------------------------------------------


def view_of(base: torch.Tensor, name: str, view: torch.Tensor) -> Expression:
    """The movement over `base`, a contiguous tensor called `name`, that gives `view`, which lies in the same storage within
    it."""
    strides = [int(stride) for stride in view.stride()]
    dims = sorted(range(view.dim()), key=lambda dim: (-strides[dim], dim))
    length, offset = base.numel(), view.storage_offset() - base.storage_offset()
    made = _columns(
        _reshape(name, list(base.shape), [1, length]),
        (1, length),
        int(offset),
        [(int(view.shape[dim]), strides[dim]) for dim in dims if view.shape[dim] != 1],
    )
    made = _reshape(made, list(base.shape) if made == name else None, [view.shape[dim] for dim in dims])
    back = sorted(range(len(dims)), key=dims.__getitem__)
    return made if back == list(range(len(dims))) else {"op": "permute", "args": [made], "dims": back}


def _reshape(expression: Expression, shape: list[int] | None, to: list[int]) -> Expression:
    if not isinstance(expression, str) and expression["op"] == "reshape":
        expression = expression["args"][0]
    elif shape == to:
        return expression
    return {"op": "reshape", "args": [expression], "shape": to}


def _slice(expression: Expression, start: int, stop: int, size: int) -> Expression:
    if (start, stop) == (0, size):
        return expression
    return {"op": "slice", "args": [expression], "axis": 1, "start": start, "stop": stop}


def _concat(parts: list[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else {"op": "concat", "args": parts, "axis": 1}


def _columns(matrix: Expression, shape: tuple[int, int], offset: int, dims: list[tuple[int, int]]) -> Expression:
    """Of each row of a matrix the elements that lie at `offset` plus sums of (size, stride), as a matrix of as many
    rows."""
    rows, length = shape
    count = math.prod(size for size, _ in dims)
    if all(stride == math.prod(size for size, _ in dims[index + 1 :]) for index, (_, stride) in enumerate(dims)):
        return _slice(matrix, offset, offset + count, length)
    (size, stride), inner = dims[0], dims[1:]
    if stride == 0:
        return _concat([_columns(matrix, shape, offset, inner)] * size)
    start, reach = offset % stride, 1 + sum((many - 1) * step for many, step in inner)
    if start + reach > stride:
        start = 0
    first = offset - start
    if reach <= stride and first + size * stride <= length:
        cut = _slice(matrix, first, first + size * stride, length)
        part = _columns(_reshape(cut, [rows, length], [rows * size, stride]), (rows * size, stride), start, inner)
        return _reshape(part, [rows, count] if size == 1 else None, [rows, count])
    # They run over each other, or the storage ends within the last of them: that one is taken alone.
    head = _columns(matrix, shape, offset, [(size - 1, stride), *inner])
    last = _columns(matrix, shape, offset + (size - 1) * stride, inner)
    return _concat([head, last])
