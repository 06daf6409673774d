"""PyTorch models to foldback and back.

`foldback.Client` talks to the service and needs no PyTorch. `foldback.optimization`, `foldback.fx`, `foldback.export`,
`foldback.huggingface`, `foldback.compare`, `foldback.apply_edits` and `foldback.pack` do, and are imported when they are first
asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .asynchronous import AsyncClient
from .client import Client, Problem
from .jobs import Cancelled, Event, Job
from .private import ServiceNotStarted, connect, disconnect
from .run import Graph, Picture, Refusal, Run, Version

if TYPE_CHECKING:
    from . import export, fx, hub, huggingface, optimization
    from .comparison import Comparison, Difference, compare
    from .edits import EditError, LostTraining, apply_edits
    from .packing import pack
    from .readings import AmbiguousWeights
    from .recipes import TensorOverflows
    from .torch_compile import compiled_runs

__all__ = [
    "AmbiguousWeights", "AsyncClient", "Cancelled", "Client", "Comparison", "Difference", "EditError", "Event", "Graph", "Job",
    "LostTraining", "Picture", "Problem", "Refusal", "Run", "ServiceNotStarted", "TensorOverflows", "Version", "apply_edits",
    "compare", "compiled_runs", "connect", "disconnect", "export", "fx", "hub", "huggingface", "optimization",
    "pack",
]
_FROM = {
    "Comparison": "comparison", "Difference": "comparison", "compare": "comparison",
    "apply_edits": "edits", "EditError": "edits", "LostTraining": "edits", "AmbiguousWeights": "readings",
    "TensorOverflows": "recipes", "pack": "packing", "compiled_runs": "torch_compile",
}


def __getattr__(name: str) -> Any:
    if name in ("export", "fx", "hub", "huggingface", "optimization"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FROM:
        return getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
