"""Values, names and annotations, as a document spells them and as Python has them."""

from __future__ import annotations

import ast
import builtins
import enum
import functools
import importlib
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx

_LARGEST_PLAIN_INT = 2**53 - 1
_TORCH_OBJECTS: tuple[tuple[type, str], ...] = (
    (torch.dtype, "$dtype"),
    (torch.layout, "$layout"),
    (torch.memory_format, "$memory_format"),
)
# The dtypes that the service knows. A document carries tensors of others with their bytes; of a result they are not recorded.
DTYPES = frozenset(
    "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu "
    "float4_e2m1fn_x2 complex32 complex64 complex128 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool".split()
)
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype's name in documents: "float32" is that of torch.float32."""
    return str(dtype).removeprefix("torch.")


# ---- names of functions and classes ---------------------------------------------------------------------------------------


def qualified_name(function: Callable[..., Any]) -> str:
    """The name by which any process finds a function or class again."""
    if isinstance(function, type):
        name = f"{function.__module__}.{function.__qualname__}"
    elif getattr(builtins, getattr(function, "__name__", ""), None) is function:
        name = f"builtins.{function.__name__}"
    else:
        name = torch.fx.node._get_qualified_name(function)
    if name.startswith("_operator."):
        name = name[1:]
    if not _DOTTED.fullmatch(name):
        raise ValueError(f"{function!r} has no name that another process could find it by: make it a function of a module")
    return name


@functools.lru_cache(maxsize=4096)
def resolve(name: str) -> Any:
    """Finds the object with a qualified name: imports the longest prefix that is a module, then reads attributes. Raises
    ValueError where this PyTorch lacks the operator, or a package that the graph calls is not installed."""
    lacks = f"there is no {name} here"
    if name.startswith("torch."):
        lacks += (f": PyTorch {torch.__version__} lacks it. Load the graph with the version that it was exported with, or"
                  " optimise again without the pass or the parameter that brought it in")
    first, *rest = name.split(".")
    found = importlib.import_module(first)
    for part in rest:
        if not hasattr(found, part) and isinstance(found, types.ModuleType):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except ImportError as error:
                raise ValueError(lacks) from error
        if not hasattr(found, part):
            raise ValueError(lacks)
        found = getattr(found, part)
    return found


# ---- values ---------------------------------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """An argument of torch.fx as the document spells it."""
    if isinstance(value, torch.fx.Node):
        return {"$node": value.name}
    if value is None or isinstance(value, bool):
        return value
    kind = type(value)  # those that are met most often, sooner than by all that follows
    if kind is tuple:
        return {"$tuple": [encode(item) for item in value]}
    if kind is str or (kind is int and abs(value) <= _LARGEST_PLAIN_INT):
        return value
    if isinstance(value, enum.Enum):
        return {"$enum": [qualified_name(type(value)), value.name]}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        value = int(value)
        return value if abs(value) <= _LARGEST_PLAIN_INT else {"$int": str(value)}
    if isinstance(value, float):
        value = float(value)
        return {"$float": repr(value)} if not math.isfinite(value) or value.is_integer() else value
    if isinstance(value, complex):
        return {"$complex": [encode(value.real), encode(value.imag)]}
    for kind, form in _TORCH_OBJECTS:
        if isinstance(value, kind):
            return {form: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    if value is ...:
        return {"$ellipsis": True}
    if isinstance(value, torch.Size):
        return {"$size": [encode(item) for item in value]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"$namedtuple": [qualified_name(type(value)), [encode(item) for item in value]]}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"$dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, slice):
        return {"$slice": [encode(value.start), encode(value.stop), encode(value.step)]}
    if callable(value) and not isinstance(value, torch.nn.Module) and hasattr(value, "__name__"):
        return {"$ref": qualified_name(value)}
    return {"$opaque": _stable_repr(value)}


def _stable_repr(value: Any) -> str:
    """A repr that is the same in every process: sets in order, no addresses."""
    if isinstance(value, torch.Tensor):
        return f"torch.Tensor(size={list(value.shape)}, dtype={dtype_name(value.dtype)})"  # as torch.fx prints one
    if isinstance(value, (set, frozenset)):
        items = ", ".join(sorted(map(_stable_repr, value)))
        return (f"{{{items}}}" if items else "set()") if isinstance(value, set) else f"frozenset({{{items}}})"
    return _ADDRESS.sub("", repr(value))


def decode(value: Any, nodes: Mapping[str, Any] | None = None) -> Any:
    """The Python object that a value of a document means; `nodes` has the nodes of torch.fx by name."""
    if isinstance(value, list):
        return [decode(item, nodes) for item in value]
    if not isinstance(value, dict):
        return value
    ((form, content),) = value.items()
    if form == "$node":
        return (nodes or {})[content]
    if form in ("$dtype", "$layout", "$memory_format"):
        return getattr(torch, content)
    if form == "$dict":
        return {decode(key, nodes): decode(item, nodes) for key, item in content}
    if form == "$namedtuple":
        return resolve(content[0])(*[decode(item, nodes) for item in content[1]])
    if form == "$enum":
        return resolve(content[0])[content[1]]
    if form in _OF_LISTS:
        return _OF_LISTS[form]([decode(item, nodes) for item in content])
    if form in _OF_TEXTS:
        return _OF_TEXTS[form](content)
    raise ValueError(f"{form} cannot be made into an object: {content!r}")


_OF_LISTS: dict[str, Callable[[list[Any]], Any]] = {
    "$tuple": tuple,
    "$size": torch.Size,
    "$slice": lambda items: slice(*items),
    "$complex": lambda items: complex(*items),
}
_OF_TEXTS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$int": int,
    "$device": torch.device,
    "$ref": resolve,
    "$ellipsis": lambda _: ...,
}


def nodes_in(value: Any) -> Iterator[str]:
    """The nodes that a value of a document names."""
    if isinstance(value, dict) and "$node" in value:
        yield value["$node"]
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from nodes_in(item)


# ---- annotations ----------------------------------------------------------------------------------------------------------


def annotation_text(annotation: Any) -> str | None:
    """An annotation as the code that torch.fx generates prints it; None where that is no annotation in a document's
    sense."""
    text = _annotation(annotation)
    return text if re.fullmatch(r"[\w.\[\]|, ]+", text) else None


def _annotation(annotation: Any) -> str:
    text = torch.fx.node._type_repr(annotation)
    if isinstance(annotation, types.UnionType) and "|" in text:
        return "|".join(map(_annotation, typing.get_args(annotation)))
    origin = getattr(annotation, "__origin__", None)
    if origin is None:
        return _global_name(annotation, text)
    if isinstance(annotation, typing._GenericAlias):  # type: ignore[attr-defined]
        origin = torch.fx.graph._origin_type_map.get(origin, origin)
    name, args = _global_name(origin, torch.fx.node._type_repr(origin)), typing.get_args(annotation)
    return f"{name}[{','.join(map(_annotation, args))}]" if args else name


def _global_name(annotation: Any, text: str) -> str:
    if torch.fx.graph._is_from_torch(annotation) and annotation is not torch.device:
        return torch.fx.node._get_qualified_name(annotation)
    return text if text == "..." else re.sub(r"[^0-9a-zA-Z_]+", "_", text)


def annotation_of(text: str) -> Any:
    """An annotation that prints as `text`. Classes of PyTorch and of Python are themselves; any other is known by its name
    only."""
    return _annotation_of(ast.parse(text, mode="eval").body)


_STRANGER = {"__module__": "builtins", "__class_getitem__": classmethod(types.GenericAlias)}


def _annotation_of(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Subscript):
        args = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        return types.GenericAlias(_annotation_of(tree.value), tuple(map(_annotation_of, args)))
    if isinstance(tree, ast.BinOp):
        return operator.or_(_annotation_of(tree.left), _annotation_of(tree.right))
    if isinstance(tree, ast.Constant):
        return tree.value
    name = ast.unparse(tree)
    if name.startswith("torch."):
        return resolve(name)
    if name == "NoneType":
        return type(None)
    known = getattr(builtins, name, None)
    return known if isinstance(known, type) else type(name, (), _STRANGER)
