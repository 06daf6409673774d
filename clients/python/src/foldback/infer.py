"""Shapes and dtypes of a program whose tracer recorded none, by calls with examples."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from .fx import Document, node_row
from .shapes import Meta, propagate, propagate_on_meta

_IDS = {"input_ids", "token_type_ids", "position_ids", "decoder_input_ids", "labels", "input"}


def are_said(module: torch.fx.GraphModule) -> bool:
    """Whether somebody recorded the types of the program's inputs: its tracer, or the user."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    return any("shape" in node_row(node)["meta"] for node in inputs or module.graph.nodes)


def metas_of(module: torch.fx.GraphModule) -> dict[str, Meta]:
    """By node, what is sure of its result, for a model with a config: what calls with two examples have in common. Passes fold
    recorded sizes into the program, so one example would make it wrong for others."""
    first = _called(module, _example(module, 2, 7, 1))
    if first is None:
        return {}
    # Images of another size, unless the model takes one size only.
    other = _called(module, _example(module, 3, 9, 2)) or _called(module, _example(module, 3, 9, 1))
    if other is None:
        return {name: _dtype_only(meta) for name, meta in first.items()}
    inputs = {node.name for node in module.graph.nodes if node.op == "placeholder"}
    return {name: _common(name, meta, other.get(name, {}), name in inputs) for name, meta in first.items()}


def _common(name: str, meta: Meta, other: Meta, is_input: bool) -> Meta:
    """A size that differs becomes a symbol: of inputs the same where the sizes are, of others one that nothing else has."""
    if meta.get("dtype") != other.get("dtype") or len(meta.get("shape", ())) != len(other.get("shape", ())):
        return _dtype_only(meta) if meta.get("dtype") == other.get("dtype") else {}
    if "shape" not in meta:
        return _dtype_only(meta)
    shape = [
        size if size == there else f"s{size}_{there}" if is_input else f"{name}_{at}"
        for at, (size, there) in enumerate(zip(meta["shape"], other["shape"], strict=True))
    ]
    return {"shape": shape, **_dtype_only(meta)}


def with_metas(document: Document, metas: dict[str, Meta]) -> Document:
    """With what was found, where a node of the document does not say it."""
    rows = [{**row, "meta": {**metas.get(row["name"], {}), **row.get("meta", {})}} for row in document["nodes"]]
    return {**document, "nodes": rows}


def _dtype_only(meta: Meta) -> Meta:
    return {key: item for key, item in meta.items() if key == "dtype"}


def _called(module: torch.fx.GraphModule, inputs: list[Any] | None) -> dict[str, Meta] | None:
    if inputs is None:
        return None
    try:
        return propagate_on_meta(module, inputs)
    except Exception:  # it is not a program for this device
        pass
    try:
        found = propagate(module, inputs)
    except Exception:  # what the model says to an example that does not suit it
        return None
    return {name: {key: item for key, item in meta.items() if key != "device"} for name, meta in found.items()}


def _example(module: torch.fx.GraphModule, batch: int, length: int, scale: int) -> list[Any] | None:
    """Arguments of a model of transformers, by their names and its config; images are `scale` times as large as it says."""
    config = getattr(module, "config", None)
    if config is None:
        return None
    made: list[Any] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            value = _argument(node, config, batch, length, scale)
            if value is None and not node.args:
                return None
            made.append(node.args[0] if value is None else value)
    return made


def _argument(node: torch.fx.Node, config: Any, batch: int, length: int, scale: int) -> torch.Tensor | None:
    name = str(node.target)
    if name in _IDS:
        return torch.zeros(batch, length, dtype=torch.int64)
    if name.endswith("attention_mask"):
        return torch.ones(batch, length, dtype=torch.int64)
    if name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 224)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        return torch.zeros(batch, getattr(vision, "num_channels", 3), height * scale, width * scale)
    if name == "inputs_embeds":
        return torch.zeros(batch, length, config.hidden_size)
    return None
