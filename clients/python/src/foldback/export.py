"""Models as documents: torch.export's programs, or torch.fx's where torch.export cannot follow."""

from __future__ import annotations

import contextlib
import copy
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from .comparison import difference, is_close, outcome, plain
from .fx import Document, build, mark_buffers
from .hooks import refuse_hooks
from .modules import reach
from .shapes import propagate
from .tensors import child_path, module_at, owners

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
    document = build(
        root,
        name=name,
        training=_is_training(root),
        constants=constants,
        is_traced=False,
        data=data,
        digests=digests,
    )
    _drop_outdated(document)
    return document


def _drop_outdated(document: Document) -> None:
    """Weights that were cast after the export: what is recorded of results is older than they are. No result has a dtype then
    that weights had."""
    dtypes = {row["name"]: row["dtype"] for row in document["tensors"]}
    owned = {child_path(row["path"], key): dtypes[name] for row in document["modules"]
             for key, name in {**row["parameters"], **row["buffers"]}.items() if name is not None}
    reads = [(row["meta"], owned[row["target"]]) for row in document["nodes"]
             if row["op"] == "get_attr" and row["target"] in owned and "dtype" in row["meta"]]
    outdated = {meta["dtype"] for meta, dtype in reads if meta["dtype"] != dtype}
    for nodes in [document["nodes"], *(row["graph"]["nodes"] for row in document["modules"] if "graph" in row)]:
        for row in nodes if outdated else ():
            if row["meta"].get("dtype") in outdated:
                del row["meta"]["dtype"]
    for meta, dtype in reads:
        meta["dtype"] = dtype


def from_module(
    model: torch.nn.Module, *args: Any, name: str | None = None, dynamic_shapes: Any = None, data: bool = False, **kwargs: Any
) -> Document:
    """The document of a model, called with these arguments: by torch.export, or by torch.fx, with a warning, if that fails. A
    model whose weights are wanted elsewhere has them in the document with `data`. The program is run beside the model, on
    copies: raises ValueError where its results, or what it leaves in buffers, are others. The model itself stays as it is."""
    name = type(model).__name__ if name is None else name
    args, kwargs = _distinct(model, args, kwargs)
    try:
        with _left_alone(model):
            program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
        document = from_exported_program(program, name=name, data=data)
        root, inputs = program.module(), (args, kwargs)
        _drop_guards(root)
    except Exception as error:
        if args or kwargs:
            said = str(error).strip().partition("\n")[0]
            warnings.warn(f"torch.export cannot follow {name}, so torch.fx traces it: {said}", stacklevel=2)
        try:
            root = _trace(model)
            inputs = (tuple(_in_order(root.graph, args, kwargs)), {})
            document = _document_of_trace(model, root, inputs[0] if args or kwargs else (), name, data)
        except Exception as other:
            raise ValueError(f"neither torch.export nor torch.fx can follow {name}: {error}; {other}") from error
    if args or kwargs:
        _check(model, (args, kwargs), root, inputs, name)
    return document


def traced(model: torch.nn.Module, *args: Any, name: str | None = None, data: bool = False, **kwargs: Any) -> Document:
    """The document of a model as torch.fx traces it; without arguments it has no shapes. What torch.fx makes a buffer is
    one that a checkpoint lacks, unless the model has it in its state; the bytes of what is not the model's at all travel
    with the document. Writes in place are recorded, also those of `+=` and its like, and those to buffers. So is every name
    that the model has for a tensor, as of a module that is registered twice; `to_document` of a traced module knows one."""
    live = _trace(model)
    return _document_of_trace(model, live, _in_order(live.graph, args, kwargs) if args or kwargs else (), name, data)


def _document_of_trace(
    model: torch.nn.Module, live: torch.fx.GraphModule, inputs: Sequence[Any], name: str | None, data: bool
) -> Document:
    known = dict(model.named_buffers(remove_duplicate=False))
    _put_other_names(live, model)
    mark_buffers(live, model)
    constants = {
        child_path(path, key) for path, child in live.named_modules()
        for key in child._buffers if child_path(path, key) not in known
    }
    found = propagate(live, inputs) if inputs else None
    return build(live, name=name, found=found, constants=frozenset(constants), data=data)


def _put_other_names(graph_module: torch.fx.GraphModule, model: torch.nn.Module) -> None:
    """Gives a traced module the other names that the model has for its tensors, as of a module that is registered twice;
    torch.fx has forgotten them, and a checkpoint may have any."""
    held = {id(tensor) for _, tensor, _ in owners(graph_module)}
    for owner, tensor, is_parameter in owners(model):
        path, _, key = owner.rpartition(".")
        if id(tensor) in held and not hasattr(module_at(graph_module, path), key):
            place = reach(graph_module, path)
            (place._parameters if is_parameter else place._buffers)[key] = tensor  # type: ignore[assignment]


# ---- tracing with torch.fx ------------------------------------------------------------------------------------------------


class _Proxy(torch.fx.Proxy):
    """torch.fx makes y = y + 5 of y += 5, which writes nowhere."""


def _in_place(name: str) -> Callable[[torch.fx.Proxy, Any], torch.fx.Proxy]:
    function = getattr(operator, name)

    def write(self: torch.fx.Proxy, other: Any) -> torch.fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return write


_AUGMENTED = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift",
              "imatmul")
for _name in _AUGMENTED:
    setattr(_Proxy, f"__{_name}__", _in_place(_name))


class _Tracer(torch.fx.Tracer):
    proxy_buffer_attributes = True  # or a write to one would be done while tracing, and be lost

    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        return _Proxy(node, self)


def _trace(model: torch.nn.Module) -> torch.fx.GraphModule:
    refuse_hooks(model, f"the model {type(model).__name__}")
    name, before = type(model).__name__, torch.get_rng_state()
    with _left_alone(model):
        # Has the constants that the tracer leaves
        made = torch.fx.GraphModule(model, _Tracer().trace(model), name)
    if not torch.equal(before, torch.get_rng_state()):
        raise ValueError(f"{name} draws random numbers where torch.fx does not see it, as torch.rand(2, 3) does: they would be "
                         "the same in each call")
    _settle_constants(made, model)
    return made


def _settle_constants(made: torch.fx.GraphModule, model: torch.nn.Module) -> None:
    """A tensor that forward makes of no input, as torch.zeros(4) does, is one for all calls after torch.fx. So a result is a
    copy of it, and a program that writes to it is refused."""
    places = {_place(tensor) for tensor in [*model.parameters(), *model.buffers(), *plain(model).values()]}
    for node in [node for node in made.graph.nodes if node.op == "get_attr"]:
        tensor = attrgetter(node.target)(made)
        if not isinstance(tensor, torch.Tensor) or _place(tensor) in {None, *places}:
            continue
        if writer := next((user for user in node.users if _writes(user, node)), None):
            raise ValueError(f"{type(model).__name__} writes by {writer} to a tensor that it makes itself, as torch.zeros(4) "
                             "does. After torch.fx this tensor is one for all calls: compute a new one instead")
        if any(user.op == "output" for user in node.users):
            with made.graph.inserting_after(node):
                copied = made.graph.call_method("clone", (node,))
            node.replace_all_uses_with(copied, lambda user: user.op == "output")
    made.recompile()


def _place(tensor: torch.Tensor) -> int | None:
    """Tells tensors of different memory apart; None for one without plain memory, such as a sparse one."""
    return None if tensor.layout is not torch.strided or isinstance(tensor, FakeTensor) else tensor.untyped_storage()._cdata


def _writes(call: torch.fx.Node, read: torch.fx.Node) -> bool:
    """By the names that PyTorch and Python have for what writes in place."""
    name = call.target if isinstance(call.target, str) else getattr(call.target, "__name__", "")
    is_named = (name.endswith("_") and not name.endswith("__")) or name.strip("_") in (*_AUGMENTED, "setitem")
    is_first = call.op != "output" and call.args[:1] == (read,)
    return call.kwargs.get("out") is read or (is_first and (is_named or call.kwargs.get("inplace") is True))


# ---- the model beside its program -----------------------------------------------------------------------------------------


def _distinct(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Each example as a tensor of its own: torch.export takes two that are one object for one input, and one that the model
    owns for that parameter."""
    seen = {id(tensor) for tensor in [*model.parameters(), *model.buffers()]} | {id(item) for item in plain(model).values()}

    def alone(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or id(value) not in seen:
            seen.add(id(value))
            return value
        return value.detach().clone().requires_grad_(value.requires_grad)

    found: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(alone, (args, kwargs))
    return found


_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


@contextlib.contextmanager
def _left_alone(model: torch.nn.Module) -> Iterator[None]:
    """Takes back what tracing leaves in a model: attributes that forward makes on a call, and writes to tensors that are not
    parameters; and the hook on all modules that PyTorch 2.9 leaves where torch.export fails: a module that assigned one of its
    buffers raised AssertionError from then on."""
    hooks = torch.nn.modules.module._global_buffer_registration_hooks
    kept = list(hooks)
    held = [(child, dict(vars(child)), {key: copy.copy(vars(child)[key]) for key in _TABLES}) for child in model.modules()]
    lists = [(item, copy.copy(item)) for _, members, _ in held for item in members.values() if type(item) in (list, dict, set)]
    tensors = [*model.buffers(), *plain(model).values()]
    values = [(tensor, _version(tensor), tensor.detach().clone()) for tensor in tensors if tensor.layout is torch.strided]
    try:
        yield
    finally:
        for left in set(hooks).difference(kept):
            del hooks[left]
        for child, members, tables in held:
            vars(child).clear()
            vars(child).update(members)
            for key, table in tables.items():
                vars(child)[key].clear()
                vars(child)[key].update(table)
        for item, was in lists:
            item.clear()
            (item.extend if isinstance(item, list) else item.update)(was)
        with torch.no_grad():
            for tensor, version, value in values:
                if version is None or tensor._version != version:
                    tensor.copy_(value)


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _check(
    model: torch.nn.Module,
    given: tuple[tuple[Any, ...], dict[str, Any]],
    program: torch.fx.GraphModule,
    inputs: tuple[tuple[Any, ...], dict[str, Any]],
    name: str,
) -> None:
    """Runs both, on copies. Both are real, or there is nothing to run."""
    held = [*model.parameters(), *model.buffers(), *tree_leaves(given)]
    if any(isinstance(item, FakeTensor) or (isinstance(item, torch.Tensor) and item.is_meta) for item in held):
        return
    try:
        wanted = outcome(model, [given], model)
    except Exception as error:
        raise ValueError(f"{name} cannot be run on the examples: {error}") from error
    try:
        found = outcome(program, [inputs], model)
    except Exception as error:
        raise ValueError(
            f"the program that PyTorch made of {name} fails on the examples, where the model does not: {error}") from error
    counts = [key for key, value in wanted.left.items() if not isinstance(value, torch.Tensor)]
    if counts:
        what = ", ".join(counts)
        warnings.warn(f"{name} changes {what} in each call; the program has what the first call gives", stacklevel=3)
    differs = difference(wanted.results, found.results)
    lost = [key for key, value in wanted.left.items()
            if key in found.left and key not in counts and not is_close(value, found.left[key])]
    if not (differs or lost) and len(wanted.inputs) == len(found.inputs):
        differs = difference(wanted.inputs, found.inputs).replace("value", "argument")
    if (differs or lost) and not difference(wanted.results, outcome(model, [given], model, seed=1).results):
        what = f"leaves another value in {lost[0]}" if lost else f"gives another result: {differs}"
        raise ValueError(
            f"the program that PyTorch made of {name} {what}. Write the model without what tracing loses, such as writes to "
            "plain "
            "attributes, then export it again"
        )


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
