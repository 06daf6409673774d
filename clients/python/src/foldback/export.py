"""Models as documents: torch.export's programs, or torch.fx's where torch.export cannot follow."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from .fx import Document, build, mark_buffers
from .hooks import refuse_hooks
from .shapes import propagate
from .tensors import child_path

_GUARDS = "_guards_fn"  # the module in which torch.export checks what it assumed of the inputs
_FLAGS = ("training", "train")  # how operators call their training flag


def from_exported_program(
    program: torch.export.ExportedProgram, *, name: str | None = None, data: bool = False, digests: bool = False
) -> Document:
    """The document of an exported program, in ATen operators. Parameters are read by get_attr; the checks of inputs are
    left out; lifted constants are buffers that a checkpoint lacks, and their bytes travel with the document."""
    root = program.module()
    constants = frozenset(program.graph_signature.inputs_to_lifted_tensor_constants.values())
    _drop_guards(root)
    for owner in constants:
        path, _, key = owner.rpartition(".")
        root.get_submodule(path)._non_persistent_buffers_set.add(key)
    return build(
        root,
        name=name,
        training=_is_training(root),
        constants=constants,
        is_traced=False,
        data=data,
        digests=digests,
    )


def from_module(
    model: torch.nn.Module, *args: Any, name: str | None = None, dynamic_shapes: Any = None, data: bool = False, **kwargs: Any
) -> Document:
    """The document of a model, called with these arguments: by torch.export, or by torch.fx if that fails. A model whose
    weights are wanted elsewhere has them in the document with `data`."""
    name = type(model).__name__ if name is None else name
    try:
        program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
        return from_exported_program(program, name=name, data=data)
    except Exception as error:
        try:
            return traced(model, *args, name=name, data=data, **kwargs)
        except Exception as other:
            raise ValueError(f"neither torch.export nor torch.fx can follow {name}: {error}; {other}") from error


def traced(model: torch.nn.Module, *args: Any, name: str | None = None, data: bool = False, **kwargs: Any) -> Document:
    """The document of a model as torch.fx traces it; without arguments it has no shapes. What torch.fx makes a buffer is
    one that a checkpoint lacks, unless the model has it in its state; the bytes of what is not the model's at all travel
    with the document."""
    refuse_hooks(model, f"the model {type(model).__name__}")
    graph = torch.fx.Tracer().trace(model)
    live = torch.fx.GraphModule(model, graph, type(model).__name__)
    known = dict(model.named_buffers(remove_duplicate=False))
    mark_buffers(live, model)
    constants = {
        child_path(path, key) for path, child in live.named_modules() for key in child._buffers if child_path(path, key) not in known
    }
    found = propagate(live, _in_order(graph, args, kwargs)) if args or kwargs else None
    return build(live, name=name, found=found, constants=frozenset(constants), data=data)


def _in_order(graph: torch.fx.Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """One value for each input of the graph."""
    inputs = list(args)
    for node in [node for node in graph.nodes if node.op == "placeholder"][len(args) :]:
        if str(node.target) in kwargs:
            inputs.append(kwargs[str(node.target)])
        elif node.args:
            inputs.append(node.args[0])
    return inputs


def _drop_guards(root: torch.fx.GraphModule) -> None:
    for node in list(root.graph.nodes):
        if node.op == "call_module" and node.target == _GUARDS:
            root.graph.erase_node(node)
    root._modules.pop(_GUARDS, None)


def _is_training(root: torch.fx.GraphModule) -> bool:
    """Whether an operator was exported as in training. The modules around them are shells, whose own flags say nothing."""
    programs = [child for child in root.modules() if isinstance(child, torch.fx.GraphModule)]
    return any(_has_flag(node) for program in programs for node in program.graph.nodes)


def _has_flag(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.name in _FLAGS:
            given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
            return given is True
    return False
