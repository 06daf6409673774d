"""Whether a live module is still the one that it was, by the objects that it consists of: no row is written for that."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx

from . import modules
from .hooks import hooks_of, refuse_global_hooks
from .tensors import Mark, can_be_marked, sums_of, walk

_IN_META = ("foldback", "val", "tensor_meta", "is_wrapped")  # what a document tells of a node's meta
_PLAIN = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.memory_format, torch.layout)


class Fingerprint:
    """A module at one moment. Whoever cannot tell that it is as it was says that it is not."""

    def __init__(self, module: torch.fx.GraphModule, constants: Iterable[torch.Tensor]) -> None:
        """`constants`: the tensors whose bytes its document has."""
        self.parts = _parts(module)
        self.constants = [
            (weakref.ref(tensor), Mark.of(tensor, sums_of(tensor)) if can_be_marked(tensor) else None) for tensor in constants
        ]

    def is_of(self, module: torch.fx.GraphModule) -> bool:
        """Whether nobody changed the module since. Raises ValueError if there is a global hook now."""
        if self.parts is None or not all(_is_as_marked(reference(), mark) for reference, mark in self.constants):
            return False
        refuse_global_hooks()
        (objects, values), now = self.parts, _parts(module)
        if now is None or len(now[0]) != len(objects) or now[1] != values:
            return False
        return all(map(operator.is_, now[0], objects))


def _is_as_marked(tensor: torch.Tensor | None, mark: Mark | None) -> bool:
    return tensor is not None and mark is not None and mark.is_of(tensor)


class _Changeable(Exception):
    """Something that can be changed in place."""


def _parts(root: torch.fx.GraphModule) -> tuple[list[Any], list[Any]] | None:
    """Objects that cannot be changed in place, and values; None if there are others. Of modules and tensors, which would stay
    in memory, there are references that do not keep them: each has one only."""
    objects: list[Any] = []
    values: list[Any] = []
    try:
        for path, child in walk(root):
            _add_module(path, child, objects, values)
            if isinstance(child, torch.fx.GraphModule):
                _add_program(child, objects, values)
    except _Changeable:
        return None
    return objects, values


def _add_module(path: str, module: torch.nn.Module, objects: list[Any], values: list[Any]) -> None:
    held = vars(module)
    if hooks_of(module) or "parametrizations" in module._modules:
        raise _Changeable
    objects += (weakref.ref(module), type(module))
    values += (path, held["training"], frozenset(module._non_persistent_buffers_set))
    for table in (module._parameters, module._buffers, module._modules):
        objects += table
        objects += [None if item is None else weakref.ref(item) for item in table.values()]
        values.append(len(table))
    values += [
        _described(tensor) for tensor in (*module._parameters.values(), *module._buffers.values()) if tensor is not None
    ]
    if type(module) is not torch.nn.Module and not isinstance(module, torch.fx.GraphModule):
        objects += [_unchangeable(held[name]) for name in modules.constructor_names(module) if name in held]


def _add_program(program: torch.fx.GraphModule, objects: list[Any], values: list[Any]) -> None:
    objects.append(program.graph._codegen)
    for node in program.graph.nodes:
        objects += [node, *members(node), *map(node.meta.get, _IN_META)]
        if node.op == "get_attr":
            path, _, key = str(node.target).rpartition(".")
            found = vars(program.get_submodule(path)).get(key)
            if isinstance(found, torch.Tensor):
                values.append(_described(found))
                objects.append(weakref.ref(found))
            else:
                objects.append(_unchangeable(found))


def members(node: torch.fx.Node) -> tuple[Any, ...]:
    """What makes a node, none of which can be changed in place."""
    return node.name, node.op, node.target, node._args, node._kwargs, node.type


def _described(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a document tells of a tensor, and which memory it has."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided or tensor.is_meta:
        raise _Changeable
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad


def _unchangeable(value: Any) -> Any:
    if isinstance(value, tuple):
        for item in value:
            _unchangeable(item)
    elif not isinstance(value, _PLAIN):
        raise _Changeable
    return value
