"""Shapes and dtypes of a program whose tracer recorded none."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from .fx import node_row
from .shapes import Meta, propagate, propagate_on_meta
from .values import dtype_name

_IDS = {"input_ids", "token_type_ids", "position_ids", "decoder_input_ids", "labels", "input"}
_OF_FIRST = {"view", "reshape", "permute", "transpose", "contiguous", "flatten", "unsqueeze", "squeeze", "expand", "getitem"}
_KEEPS_DTYPE = {"relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "dropout", "add", "sub", "mul", "truediv", "div", "matmul",
                "neg", "bmm", "layer_norm", "linear", *_OF_FIRST}  # fmt: skip

_KINDS = {"activation", "batchnorm", "dropout", "flatten", "linear", "normalization", "pooling"}


def metas_of(module: torch.fx.GraphModule) -> dict[str, Meta]:
    """By node, what is sure of its result. Of a model with a config that is what calls with two examples have in common: passes
    fold recorded sizes into the program, so one example would make it wrong for others."""
    if any(_is_said(node) for node in module.graph.nodes):
        return {}  # by whoever traced it
    first = _called(module, _example(module, 2, 7, 1))
    if first is None:
        return _dtypes(module)
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


def _is_said(node: torch.fx.Node) -> bool:
    return "shape" in node_row(node)["meta"]


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


def _dtypes(module: torch.fx.GraphModule) -> dict[str, Meta]:
    """The dtype of what is computed with weights, as far as operators keep it."""
    found: dict[str, Meta] = {}
    weighted = (torch.nn.Linear, torch.nn.Embedding, torch.nn.modules.conv._ConvNd)
    for node in module.graph.nodes:
        given = [found.get(other.name) for other in node.all_input_nodes]
        if node.op == "call_module":
            called = module.get_submodule(str(node.target))
            kind = type(called).__module__
            is_torch = kind.startswith("torch.nn.modules.")
            if is_torch and isinstance(called, weighted):
                found[node.name] = {"dtype": dtype_name(called.weight.dtype)}
                continue
            is_single = not isinstance(called, torch.nn.MultiheadAttention) and not getattr(called, "return_indices", False)
            is_same = is_torch and kind.rpartition(".")[2] in _KINDS and is_single
        else:
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
            is_same = node.op in ("call_function", "call_method") and name in _KEEPS_DTYPE and not _converts(node)
            if name in _OF_FIRST and isinstance(node.args[0] if node.args else None, torch.fx.Node):
                given = given[:1]  # whatever says the sizes
        if is_same and given and None not in given and all(one == given[0] for one in given):
            found[node.name] = dict(given[0] or {})
    return found


def _converts(node: torch.fx.Node) -> bool:
    return any(isinstance(value, (torch.dtype, complex)) for value in (*node.args, *node.kwargs.values()))
