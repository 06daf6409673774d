"""PyTorch models to foldback and back.

`foldback.Client` talks to the service and needs no PyTorch. `foldback.fx`, `foldback.export` and `foldback.apply_edits` do,
and are imported when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .client import Client, Problem
from .jobs import Cancelled, Event, Job

if TYPE_CHECKING:
    from . import export, fx
    from .edits import apply_edits

__all__ = ["Cancelled", "Client", "Event", "Job", "Problem", "apply_edits", "export", "fx"]


def __getattr__(name: str) -> Any:
    if name in ("export", "fx"):
        return importlib.import_module(f"{__name__}.{name}")
    if name == "apply_edits":
        return importlib.import_module(f"{__name__}.edits").apply_edits
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
