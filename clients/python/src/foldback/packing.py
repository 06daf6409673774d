"""Weights in the order of memory in which operators of a CPU compute, for a program that is run on this one."""

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
_INT4 = "torch.ops.aten._convert_weight_to_int4pack_for_cpu.default"


def pack(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A program that computes the same, and in which the convolutions and Linears of FusePointwise (preset `cpu`) read their
    weights in oneDNN's own order of memory, chosen for the shapes that are recorded; and the Linears of QuantizeWeights with
    `bits` 4 and `form` "packed" theirs in the order of their operator. Its other tensors and its modules are those of
    `module`, which stays as it is: undo, save and export that one. A weight that changes later needs `pack` again. PyTorch
    does not copy (copy.deepcopy) tensors in oneDNN's order.

    Raises:
        ValueError: this PyTorch or CPU lacks oneDNN in the dtype of a weight, or a weight is not in memory of the CPU.
    """
    graph = copy.deepcopy(module.graph)
    attributes: dict[str, Any] = {}
    packed: dict[Any, str] = {}
    for node in list(graph.nodes):
        if _target(node) == _INT4:
            _pack_int4(module, node, attributes)
        if not is_of_onednn(node):
            continue
        place = _WEIGHTS[_target(node)]
        weight = node.args[place]
        if not isinstance(weight, torch.fx.Node) or weight.op != "get_attr" or _read(module, str(weight.target)).is_mkldnn:
            continue
        options, size = tuple(map(_hashable, node.args[place + 2: place + 6])), _size_of(node.args[0])
        key = (weight.target, _target(node), options, size)
        if key not in packed:
            packed[key] = _free_name(module, attributes)
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


def _free_name(module: torch.fx.GraphModule, attributes: dict[str, Any]) -> str:
    number = len(attributes)
    while f"_packed_{number}" in attributes or hasattr(module, f"_packed_{number}"):
        number += 1
    return f"_packed_{number}"


def _pack_int4(module: torch.fx.GraphModule, node: torch.fx.Node, attributes: dict[str, Any]) -> None:
    """Computes what the node gives, once, where it reads nothing but what the module has."""
    needed = {node}
    for one in reversed(list(node.graph.nodes)):
        needed |= set(one.all_input_nodes) if one in needed else set()
    nodes = [one for one in node.graph.nodes if one in needed]
    if any(one.op not in ("get_attr", "call_function", "call_method") for one in nodes):
        return
    values: dict[torch.fx.Node, Any] = {}
    for one in nodes:
        args = torch.fx.node.map_arg(one.args, values.__getitem__)
        kwargs = torch.fx.node.map_arg(one.kwargs, values.__getitem__)
        if one.op == "get_attr":
            values[one] = _on_cpu(one, _read(module, str(one.target)))
        else:
            called = one.target if callable(one.target) else getattr(torch.Tensor, one.target)
            values[one] = called(*args, **kwargs)
    name = _free_name(module, attributes)
    attributes[name] = values[node]
    with node.graph.inserting_before(node):
        node.replace_all_uses_with(node.graph.get_attr(name))
    for one in reversed(nodes):
        if not one.users:
            node.graph.erase_node(one)


def _on_cpu(node: torch.fx.Node, weight: torch.Tensor) -> torch.Tensor:
    if weight.device.type != "cpu":
        raise ValueError(f"{node.name} is for a CPU, and its weight is on {weight.device}: move the model, or optimise it "
                         "again without FusePointwise, or with the portable form of QuantizeWeights")
    return weight.detach()


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
    plain, onednn = _on_cpu(node, weight), torch.ops.mkldnn
    is_computed = weight.dtype is torch.float32 or (weight.dtype is torch.bfloat16 and onednn._is_mkldnn_bf16_supported())
    if not (torch.backends.mkldnn.is_available() and is_computed):
        raise ValueError(f"{node.name}: PyTorch {torch.__version__} has no oneDNN for {weight.dtype} on this machine; optimise "
                         "the model again without FusePointwise")
    made: torch.Tensor
    if "_linear_" in _target(node):
        rows = None if size is None else torch.Size(size[:-1]).numel()
        made = onednn._reorder_linear_weight(plain, rows)
    else:
        window = node.args[place + 2: place + 6]  # padding, stride, dilation, groups
        made = onednn._reorder_convolution_weight(plain, *window, None if size is None else list(size))
    return made
