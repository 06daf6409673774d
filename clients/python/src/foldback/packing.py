"""Weights in the order of memory in which oneDNN computes, for a program that is run on this CPU."""

from __future__ import annotations

import copy
from typing import Any

import torch

_MKLDNN = "torch.ops.mkldnn."
# By the operator: the place of its weight among the arguments.
_WEIGHTS = {
    f"{_MKLDNN}_convolution_pointwise.default": 1,
    f"{_MKLDNN}_convolution_pointwise.binary": 2,
    f"{_MKLDNN}_linear_pointwise.default": 1,
}


def pack(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A program that computes the same, and in which the convolutions and Linears of FusePointwise (preset `cpu`) read their
    weights in oneDNN's own order of memory, chosen for the shapes that are recorded. Its other tensors and its modules are
    those of `module`, which stays as it is: undo, save and export that one. A weight that changes later needs `pack` again.

    Raises:
        ValueError: this PyTorch or CPU lacks oneDNN in the dtype of a weight, or a weight is not in memory of the CPU.
    """
    graph, attributes = copy.deepcopy(module.graph), {}
    packed: dict[Any, str] = {}
    for node in list(graph.nodes):
        if not is_of_onednn(node):
            continue
        place = _WEIGHTS[_target(node)]
        weight = node.args[place]
        if not isinstance(weight, torch.fx.Node) or weight.op != "get_attr":
            continue
        options, size = tuple(map(_hashable, node.args[place + 2: place + 6])), _size_of(node.args[0])
        key = (weight.target, _target(node), options, size)
        if key not in packed:
            packed[key] = f"_packed_{len(packed)}"
            attributes[packed[key]] = _reordered(_read(module, str(weight.target)), node, place, size)
        with graph.inserting_before(node):
            node.update_arg(place, graph.get_attr(packed[key]))
        if not weight.users:
            graph.erase_node(weight)
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module") and node.target not in attributes:
            attributes[node.target] = _read(module, node.target)
    made = torch.fx.GraphModule(attributes, graph, type(module).__name__)
    made.training = module.training
    return made


def is_of_onednn(node: torch.fx.Node) -> bool:
    """True for a call that FusePointwise makes."""
    return _target(node) in _WEIGHTS


def _target(node: torch.fx.Node) -> str:
    return f"torch.ops.{node.target}".replace("::", ".") if isinstance(node.target, torch._ops.OpOverload) else ""


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _read(module: torch.nn.Module, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _size_of(value: Any) -> tuple[int, ...] | None:
    """The shape of what a node gives, where it is recorded in numbers."""
    if not isinstance(value, torch.fx.Node):
        return None
    known = value.meta.get("val", value.meta.get("tensor_meta"))
    shape = value.meta.get("foldback", {}).get("shape") if known is None else getattr(known, "shape", None)
    return tuple(shape) if shape is not None and all(type(one) is int for one in shape) else None


def _reordered(weight: torch.Tensor, node: torch.fx.Node, place: int, size: tuple[int, ...] | None) -> torch.Tensor:
    if weight.device.type != "cpu":
        raise ValueError(f"{node.name} is for a CPU, and its weight is on {weight.device}: move the model, or optimise it "
                         "again without FusePointwise")
    is_there = torch.backends.mkldnn.is_available() and (weight.dtype != torch.bfloat16
                                                         or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if not is_there:
        raise ValueError(f"{node.name}: PyTorch {torch.__version__} has no oneDNN for {weight.dtype} on this machine; optimise "
                         "the model again without FusePointwise")
    plain, onednn = weight.detach(), torch.ops.mkldnn
    made: torch.Tensor
    if "_linear_" in _target(node):
        rows = None if size is None else torch.Size(size[:-1]).numel()
        made = onednn._reorder_linear_weight(plain, rows)
    else:
        window = node.args[place + 2: place + 6]  # padding, stride, dilation, groups
        made = onednn._reorder_convolution_weight(plain, *window, None if size is None else list(size))
    return made
