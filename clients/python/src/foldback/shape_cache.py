"""Calls of a program that are alike give results that are alike: which of them need not be made to know their shapes."""

from __future__ import annotations

import types
from collections.abc import Hashable
from typing import Any

import torch
import torch.fx

_PLAIN = (
    bool, int, float, complex, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_WRITTEN_IN_PYTHON = {"torch.functional", "torch.nn.functional", "torch._jit_internal"}
_BUILTINS = {getattr, len, min, max, sum, abs, round, int, float, bool, tuple, list, slice, isinstance}
_BOOKKEEPING = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"}


class Unlike(Exception):
    """A value is not known by what its signature would say: a symbolic size, a tensor of another layout, an object."""


class DependsOnValues(Exception):
    """A program has sizes that depend on values."""


class ShapeCache:
    """Results of calls without storage, by what the calls are given: shapes, strides, dtypes and plain values.

    A result is handed out again as the same object. So it is off (`is_on`) for a program in which a call may change the shape
    of what it is given: one of an unknown function or module, or one whose name says that it works in place."""

    def __init__(self, module: torch.fx.GraphModule, is_wanted: bool = True) -> None:
        self.is_on = is_wanted and all(_is_known(node, module) for node in module.graph.nodes)
        self._results: dict[Hashable, Any] = {}
        self._signatures: dict[int, tuple[Any, Hashable]] = {}  # with the object, whose id another may get otherwise

    def key(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any], modules: dict[str, torch.nn.Module]) -> Hashable | None:
        """None for a call that has to be made."""
        if not self.is_on or node.op not in ("call_function", "call_method", "call_module"):
            return None
        try:
            of = self._of_module(modules[str(node.target)]) if node.op == "call_module" else node.target
            return node.op, of, self._signature(node.args, env), self._signature(node.kwargs, env)
        except Unlike:
            return None

    def get(self, key: Hashable | None) -> Any:
        """The result of the first such call; None before."""
        result = self._results.get(key)
        return list(result) if type(result) is list else result

    def put(self, key: Hashable | None, result: Any) -> None:
        """Raises DependsOnValues where a size does: PyTorch notes at the tensor which symbol it has, so tensors that are alike
        must not be one. A call that gives nothing may have changed how later ones compute: the entry of autocast."""
        items = result if isinstance(result, (tuple, list)) else (result,)
        if self.is_on and any(map(_is_symbolic, items)):
            raise DependsOnValues
        if result is None:
            self._results.clear()
        elif key is not None and all(isinstance(item, torch.Tensor) for item in items):
            self._results[key] = result

    def like(self, tensor: torch.Tensor, made: Any) -> Any:
        """One tensor for all that have this one's signature: the first that `made` gives for one."""
        if not self.is_on:
            return made(tensor)
        try:
            key = "tensor", type(tensor), self._signature(tensor, {})
        except Unlike:
            return made(tensor)
        if key not in self._results:
            self._results[key] = made(tensor)
        return self._results[key]

    def _signature(self, value: Any, env: dict[torch.fx.Node, Any]) -> Hashable:
        if isinstance(value, torch.fx.Node):
            value = env[value]
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if isinstance(value, (tuple, list)):
            return kind, tuple(self._signature(item, env) for item in value)
        if isinstance(value, dict):
            return kind, tuple((name, self._signature(item, env)) for name, item in value.items())
        if kind is slice:
            return kind, self._signature((value.start, value.stop, value.step), env)
        if not isinstance(value, torch.Tensor):
            raise Unlike
        if id(value) not in self._signatures:
            self._signatures[id(value)] = value, _of_tensor(value)
        return self._signatures[id(value)][1]

    def _of_module(self, module: torch.nn.Module) -> Hashable:
        """Of a module of torch.nn: its type and all that its instance holds."""
        if id(module) not in self._signatures:
            plain = {name: item for name, item in vars(module).items() if name not in _BOOKKEEPING and item != {}}
            held = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            names = tuple(module._parameters), tuple(module._buffers), tuple(module._modules)
            key = type(module), self._signature(plain, {}), self._signature(names, {}), self._signature(held, {}),
            inner = tuple(self._of_module(child) for child in module.children())
            self._signatures[id(module)] = module, (*key, inner)
        return self._signatures[id(module)][1]


def _is_symbolic(value: Any) -> bool:
    numbers = value.shape if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) for number in numbers)


def _of_tensor(tensor: torch.Tensor) -> Hashable:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise Unlike
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().nbytes())
    if any(type(number) is not int for number in numbers):
        raise Unlike
    return numbers, tensor.dtype, tensor.device, tensor.is_conj(), tensor.is_neg(), tensor.requires_grad


def _is_known(node: torch.fx.Node, module: torch.nn.Module) -> bool:
    """True for a call that leaves the shapes of its arguments, and calls nothing that may change them."""
    if node.op == "call_module":
        return all(_is_of_torch(part) for part in module.get_submodule(str(node.target)).modules())
    if node.op == "call_method":
        return not _is_in_place(str(node.target))
    if node.op != "call_function":
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return not node.target._schema.is_mutable
    name, home = getattr(node.target, "__name__", ""), str(getattr(node.target, "__module__", None))
    if _is_in_place(name) or "out" in node.kwargs:
        return False
    if isinstance(node.target, (types.BuiltinFunctionType, types.MethodDescriptorType)):
        return home.partition(".")[0] in ("torch", "_operator", "math", "None") or node.target in _BUILTINS
    return home in _WRITTEN_IN_PYTHON or node.target in _BUILTINS


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _is_of_torch(module: torch.nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn.modules.")
