"""Hooks of modules: what runs beside forward(), and stands in no program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

SUFFIX = ".Hooked"  # of the type of a module that has hooks: no pass knows what it computes

_OF_A_MODULE = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
_OF_ALL = {
    "_global_forward_pre_hooks": "forward pre-hook",
    "_global_forward_hooks": "forward hook",
    "_global_backward_pre_hooks": "backward pre-hook",
    "_global_backward_hooks": "backward hook",
}
_OF_TORCH = ("torch.export", "torch._export", "torch.fx")  # checks of inputs that torch.export puts before its programs


def hooks_of(module: torch.nn.Module) -> list[str]:
    """What runs when the module is called, beside the forward() of its class: "forward hook my.module.double"."""
    held = vars(module)
    found = [
        f"{kind} {_name(hook)}"
        for table, kind in _OF_A_MODULE.items()
        if held.get(table)
        for hook in _hooks(held[table])
        if not _name(hook).startswith(_OF_TORCH)
    ]
    if "forward" in vars(module):
        found.append(f"forward() of its own, {_name(vars(module)['forward'])}")
    return found


def global_hooks() -> list[str]:
    """What runs at every call of any module."""
    return [
        f"{kind} {_name(hook)}" for table, kind in _OF_ALL.items()
        for hook in _hooks(getattr(torch.nn.modules.module, table, None))
    ]


def refuse_hooks(module: torch.nn.Module, what: str) -> None:
    """Raises ValueError where a document would lose the hooks: of a whole program, there is no place for them."""
    found = hooks_of(module)
    if found:
        raise ValueError(f"{what} has a {found[0]}, which is no part of its program; remove it, or put it into a module")


def refuse_global_hooks() -> None:
    """Raises ValueError if PyTorch has a hook that runs at the calls of all modules: a document cannot say what it
    does."""
    found = global_hooks()
    if found:
        raise ValueError(f"there is a global {found[0]}, which runs at every call of a module; remove it before exporting")


def _hooks(table: Mapping[int, Callable[..., Any]] | None) -> list[Callable[..., Any]]:
    return list(table.values()) if table else []


def _name(hook: Callable[..., Any]) -> str:
    """The same in every process."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    hook = getattr(hook, "__func__", hook)
    named = hook if hasattr(hook, "__qualname__") else type(hook)
    return f"{named.__module__}.{named.__qualname__}"
