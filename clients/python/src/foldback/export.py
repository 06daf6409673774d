"""Models as documents: torch.export's programs, or torch.fx's where torch.export cannot follow."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from .fx import Document, build, to_document

_GUARDS = "_guards_fn"  # the module in which torch.export checks what it assumed of the inputs
_FLAGS = ("training", "train")  # how operators call their training flag


def from_exported_program(
    program: torch.export.ExportedProgram, *, name: str | None = None, data: bool = False, digests: bool = False
) -> Document:
    """The document of an exported program, in ATen operators. Parameters are read by get_attr; the checks of inputs are left out;
    lifted constants are buffers that a checkpoint lacks, and their bytes travel with the document."""
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
        data=data,
        digests=digests,
    )


def from_module(
    model: torch.nn.Module, *args: Any, name: str | None = None, dynamic_shapes: Any = None, data: bool = False, **kwargs: Any
) -> Document:
    """The document of a model, called with these arguments: by torch.export, or by torch.fx if that fails. A model whose weights
    are wanted elsewhere has them in the document with `data`."""
    name = type(model).__name__ if name is None else name
    try:
        program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
        return from_exported_program(program, name=name, data=data)
    except Exception as error:
        try:
            return _traced(model, args, kwargs, name, data)
        except Exception as other:
            raise ValueError(f"neither torch.export nor torch.fx can follow {name}: {error}; {other}") from error


def _traced(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, data: bool) -> Document:
    graph = torch.fx.Tracer().trace(model)
    live = torch.fx.GraphModule(model, graph)
    persistent = model.state_dict().keys()
    constants = set()
    for path, child in live.named_modules():  # torch.fx makes every tensor that it reads a buffer
        for key in child._buffers:
            owner = f"{path}.{key}" if path else key
            if owner not in persistent:
                child._non_persistent_buffers_set.add(key)
            if owner not in dict(model.named_buffers(remove_duplicate=False)):
                constants.add(owner)
    inputs = list(args)
    for node in [node for node in graph.nodes if node.op == "placeholder"][len(args) :]:
        if str(node.target) in kwargs:
            inputs.append(kwargs[str(node.target)])
        elif node.args:
            inputs.append(node.args[0])
    from .shapes import propagate

    return build(live, name=name, found=propagate(live, inputs), constants=frozenset(constants), data=data)


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
