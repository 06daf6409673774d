"""For tests of models: that a change left what a model computes as it was.

    from foldback.testing import assert_same

    def test_the_optimised_model():
        assert_same(torch.export.export(model, (x,)), torch.export.export(optimised, (x,)))
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import private
from .client import Client

if TYPE_CHECKING:
    import torch.fx
    from torch.export import ExportedProgram

    Model = torch.fx.GraphModule | ExportedProgram | Mapping[str, Any] | str | os.PathLike[str]

__all__ = ["assert_same"]


def assert_same(
    a: Model,
    b: Model,
    examples: Sequence[Any] = (),
    *,
    client: Client | None = None,
    inputs: str | os.PathLike[str] | None = None,
    seed: int = 0,
    samples: int | None = None,
    tolerance: Mapping[str, float] | None = None,
    random_weights: bool = False,
) -> dict[str, Any]:
    """Raises AssertionError unless every output of `b` is the same as that of `a`: by a proof, or on all samples. Gives the
    verdict, as `Client.compare`.

    Each is a torch.fx.GraphModule, an ExportedProgram, a document, the id of a graph, or a file: .pt2, .onnx or .json.
    `examples` are arguments of a GraphModule, whose shapes are recorded by them. What nothing is known of fails as well, and
    says why. `client` is a service's; without it, the one that `foldback.connect` or FOLDBACK_SERVER names, or one of its own.
    """
    asked = client or private.client()
    found = asked.compare(
        _graph_of(asked, a, examples), _graph_of(asked, b, examples), inputs=inputs, seed=seed, samples=samples,
        tolerance=tolerance, random_weights=random_weights, progress=False,
    )
    if not found["passes"]:
        raise AssertionError(_told(found))
    return found


def _graph_of(client: Client, model: Any, examples: Sequence[Any]) -> Any:
    if isinstance(model, Mapping):
        return dict(model)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix == ".pt2":
            return client.put_archive(path, progress=False)
        if path.suffix == ".onnx":
            return client.put_onnx(path, progress=False)
        return json.loads(path.read_bytes()) if path.suffix == ".json" else str(model)
    if hasattr(model, "graph_signature"):
        return client.put_archive(model, progress=False)
    from .fx import to_document

    return to_document(model, *examples, data=True, progress=False)


def _told(found: Mapping[str, Any]) -> str:
    """The outputs and inputs that are not the same, a line each, and the first node."""
    lines = [f"the models are not the same: {found['verdict']}"]
    for one in [*found["outputs"], *found["inputs"]]:
        if one["verdict"] not in ("differs", "not-evaluated"):
            continue
        line = f"  {one['name']}: {one['verdict']}"
        line += f", {one.get('detail') or one['reason']}" if one["reason"] else ""
        example = one.get("counterexample")
        if example and example["index"] is not None:
            line += f"; element {example['index']} is {example['a']} in a and {example['b']} in b"
        lines.append(line + (f" (seed {example['seed']}, sample {example['sample']})" if example else ""))
    if found["first_node"]:
        lines.append(f"  the first node that differs: {found['first_node']['name']}")
    if found["writes"] == "differs":
        lines.append("  they leave other values in inputs or buffers")
    return "\n".join(lines)
