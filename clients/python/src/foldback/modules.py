"""Modules as a document lists them, and back."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import torch
import torch.fx

from . import parametrized
from .hooks import SUFFIX, hooks_of, refuse_hooks
from .tensors import State, TensorTable, child_path, programs, walk
from .values import decode, encode, resolve

Row = dict[str, Any]


# ---- to rows --------------------------------------------------------------------------------------------------------------


def rows(
    root: torch.fx.GraphModule,
    table: TensorTable,
    *,
    training: bool | None,
    nested: Callable[[Any], list[Row]],
    known: Mapping[str, Row] | None = None,
) -> list[Row]:
    """The root, then what is called, owns a tensor or has something that get_attr reads. `training` is that of all modules,
    unless it is None: then each has its own. `nested` gives the nodes of a nested program. `known`: rows that hold still, by
    path."""
    called: set[str] = set()
    read: dict[str, dict[str, bool]] = {}  # by module the attributes, in the order of their reading
    for path, program in programs(root):
        for node in program.graph.nodes:
            if node.op == "call_module":
                called.add(child_path(path, str(node.target)))
            elif node.op == "get_attr":
                owner, _, key = child_path(path, str(node.target)).rpartition(".")
                read.setdefault(owner, {})[key] = True
    made, orders = [], State.of(root).buffers
    for path, child in walk(root):
        if known is not None and path in known:
            made.append(known[path])
            continue
        if not (path in called or path in read or child._parameters or child._buffers
                or isinstance(child, torch.fx.GraphModule)):
            continue
        row = _row(path, child, table, list(read.get(path, ())), orders.get(path, []), nested)
        if path in called:
            _say_hooks(path, child, row)
        slots = [*row["parameters"].values(), *row["buffers"].values()]  # None: a tensor that the module may have
        has_something = any(slots) or (slots and path in read) or row.keys() & {"attributes", "graph"}
        if not path or path in called or has_something:
            made.append({**row, "training": child.training if training is None else training})
    return made


def _row(
    path: str,
    module: torch.nn.Module,
    table: TensorTable,
    read: list[str],
    order: list[str],
    nested: Callable[[Any], list[Row]],
) -> Row:
    is_program = isinstance(module, torch.fx.GraphModule)
    row: Row = {"path": path, "type": "torch.nn.Module" if not path else _class_of(module)}
    row["config"] = {} if is_program else config_of(module)
    row["parameters"] = {key: table.name(tensor) for key, tensor in module._parameters.items()}
    plain = {key: vars(module)[key] for key in read if key in vars(module)}
    constants = {key: value for key, value in plain.items() if isinstance(value, torch.Tensor)}
    attributes = {key: encode(value) for key, value in plain.items() if key not in constants}
    found = {**module._buffers, **constants}
    row["buffers"] = {key: table.name(found[key]) for key in dict.fromkeys([*order, *found]) if key in found}
    missing = [key for key in row["buffers"] if key in constants or key in module._non_persistent_buffers_set]
    if missing:
        row["non_persistent"] = missing
    if attributes:
        row["attributes"] = attributes
    if path and is_program:
        row["graph"] = {"nodes": nested(module)}
    return row


def _say_hooks(path: str, module: torch.nn.Module, row: Row) -> None:
    if isinstance(module, torch.fx.GraphModule):
        refuse_hooks(module, f"the program {path}")
    row["type"] = type_of(module)
    if found := hooks_of(module):
        row["hooks"] = found
    if recipes := parametrized.recipes_of(module):
        row["config"][parametrized.KEY] = encode(recipes)


def type_of(module: torch.nn.Module) -> str:
    """The type of a module as it is called: one with hooks computes something else than its class."""
    return _class_of(module) + (SUFFIX if hooks_of(module) else "")


def _class_of(module: torch.nn.Module) -> str:
    kind, name = type(module), type(module).__name__
    if isinstance(module, torch.fx.GraphModule):
        return "torch.fx.GraphModule"
    if kind.__module__.startswith("torch.nn.modules") and getattr(torch.nn, name, None) is kind:
        return f"torch.nn.{name}"
    return re.sub(r"\.<\w+>", "", f"{kind.__module__}.{kind.__qualname__}")


def config_of(module: torch.nn.Module) -> dict[str, Any]:
    """The constructor's arguments that the module keeps under their own names, where a document has a form for them."""
    if type(module) is torch.nn.Module:
        return {}
    config: dict[str, Any] = {}
    for name in constructor_names(module):
        if name == "bias" and "bias" in module._parameters:
            config[name] = module.bias is not None
        elif name != "self" and name in vars(module):
            try:
                encoded = encode(vars(module)[name])
            except ValueError:  # a function without a name
                continue
            if not _is_opaque(encoded):
                config[name] = encoded
    return config


def constructor_names(module: torch.nn.Module) -> tuple[str, ...]:
    """The names of the parameters of its class's constructor."""
    return _parameters_of(type(module).__init__)


@functools.cache
def _parameters_of(kind: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(kind).parameters)


def _is_opaque(value: Any) -> bool:
    if isinstance(value, dict):
        return "$opaque" in value or any(map(_is_opaque, value.values()))
    return isinstance(value, list) and any(map(_is_opaque, value))


# ---- from rows ------------------------------------------------------------------------------------------------------------


def make(row: Row) -> torch.nn.Module:
    """A module of the row's type and configuration, its tensors without storage."""
    if row["type"] in ("torch.nn.Module", "torch.fx.GraphModule"):
        return torch.nn.Module()
    if row["type"].endswith(SUFFIX):
        said = "; ".join(row.get("hooks", ["hooks"]))
        raise ValueError(f"it has hooks ({said}), which no document can hold")
    config = {key: decode(value) for key, value in row.get("config", {}).items()}
    class_ = resolve(row["type"])
    if config.get("bias") is True and "bias" not in _parameters_of(class_):  # BatchNorm before PyTorch 2.13 always has one
        del config["bias"]
    with torch.device("meta"):
        made = class_(**config)
    assert isinstance(made, torch.nn.Module)
    return made


def make_or_hold(row: Row, is_called: bool) -> torch.nn.Module:
    """As make(); but a class that cannot be made from its configuration, and is never called, only holds tensors."""
    try:
        return make(row)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        if not is_called:
            return torch.nn.Module()
        what = f"module {row['path']} ({row['type']}) cannot be made from the document alone: {error}"
        raise ValueError(f"{what}. Pass the model that has it: from_document(document, module=model)") from error


def copy_of(module: torch.nn.Module) -> torch.nn.Module:
    """Another module with the same tensors and children, which can be changed alone."""
    made = type(module).__new__(type(module))
    made.__dict__.update(module.__dict__)
    for key in ("_parameters", "_buffers", "_modules"):
        made.__dict__[key] = dict(module.__dict__[key])
    made.__dict__["_non_persistent_buffers_set"] = set(module._non_persistent_buffers_set)
    return made


def fill(
    module: torch.nn.Module,
    row: Row,
    tensor: Callable[[str, bool], torch.Tensor],
    given: torch.nn.Module | None = None,
    read: Container[str] | None = None,
) -> None:
    """Gives a module the configuration, tensors, flags and attributes of its row; `tensor` has them by name and whether it
    is a parameter. What no document can hold is that of the `given` module, or left out where it is not among the attributes
    that are `read` (None: all may be)."""
    known = config_of(module)
    for key, value in row.get("config", {}).items():
        if known.get(key) != value and key in vars(module):
            setattr(module, key, decode(value))
    module._parameters.clear()
    module._buffers.clear()
    for key, name in row.get("parameters", {}).items():
        module._parameters[key] = None if name is None else as_parameter(tensor(name, True))
    plain = {key for key, value in vars(module).items() if isinstance(value, torch.Tensor)}  # was never registered
    for key, name in row.get("buffers", {}).items():
        (vars(module) if key in plain else module._buffers)[key] = None if name is None else tensor(name, False)
    module._non_persistent_buffers_set = set(row.get("non_persistent", ())) - plain
    for key, value in row.get("attributes", {}).items():
        is_opaque = _is_opaque(value)
        if given is not None and is_opaque and key in vars(given):
            module.__dict__[key] = vars(given)[key]
        elif not is_opaque or read is None or key in read:
            module.__dict__[key] = decode(value)
    module.training = row.get("training", False)


def as_parameter(tensor: torch.Tensor) -> torch.nn.Parameter:
    """The tensor as a parameter in the same memory, trained if the tensor was. A parameter is returned as it is."""
    return tensor if isinstance(tensor, torch.nn.Parameter) else torch.nn.Parameter(tensor, tensor.requires_grad)


def parents(path: str) -> Iterator[str]:
    """The paths above a path, the nearest first; without the root's."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def reach(root: torch.nn.Module, path: str) -> torch.nn.Module:
    """The module at a path; makes empty modules on the way where it must."""
    found = root
    for part in path.split(".") if path else ():
        if found._modules.get(part) is None:
            found._modules[part] = torch.nn.Module()
        found = found._modules[part]  # type: ignore[assignment]
    return found


def put(root: torch.nn.Module, path: str, module: torch.nn.Module) -> None:
    """At its path, in the place of one that is there; the way there is made of empty modules."""
    parent, _, last = path.rpartition(".")
    reach(root, parent)._modules[last] = module


def take_over(root: torch.nn.Module, made: torch.nn.Module) -> None:
    """Gives a root, which is never exchanged, what its row says."""
    for key, value in made.__dict__.items():
        if key != "_modules":
            root.__dict__[key] = value
