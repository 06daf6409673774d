"""GraphModules of torch.fx as documents (foldback.graph/1), and back."""

from __future__ import annotations

import ast
import base64
import os
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from . import modules
from .files import files_of, refuse_other_kinds
from .hooks import refuse_global_hooks, refuse_hooks
from .progress import Progress
from .readings import NAMES_OF_READINGS, AmbiguousWeights, Owned, assign, read_said, says_finished
from .recipes import evaluate_finite, inputs_of, is_view
from .shapes import Meta, meta_of, propagate
from .tensors import State, TensorTable, child_path, copied_buffers, lay_out, owners, plain_tensors, tensor_of
from .values import annotation_of, annotation_text, decode, encode, qualified_name, resolve

Document = dict[str, Any]
Row = dict[str, Any]
Path = str | os.PathLike[str]
Weights = Path | Sequence[Path] | Mapping[str, torch.Tensor]
FORMAT = "foldback.graph/1"
LARGEST_INLINE = 64 << 20  # bytes of buffers that travel with a document, together
_LIFTED = re.compile(r"(^|\.)_tensor_constant\d+$")  # how torch.fx calls a tensor that no module has


# ---- to a document --------------------------------------------------------------------------------------------------------


def to_document(
    graph_module: torch.fx.GraphModule,
    *inputs: Any,
    name: str | None = None,
    model: torch.nn.Module | None = None,
    data: bool = False,
    digests: bool = False,
    progress: Progress = True,
) -> Document:
    """The document of a GraphModule. With `inputs`, an example of its arguments, shapes and dtypes are those of a call with
    them, which is traced without being computed; without, they are what the nodes say already. Tensors are named and
    described; their bytes stay here, but for those that no checkpoint has (constants of the program, buffers that are not
    persistent), unless `data` is set; `digests` tells what they are. torch.fx forgets which buffers those are: `model`, the
    one that was traced, says it. Without it a warning names the buffers that may be either; they count as persistent.
    `progress`: with `inputs`, how many nodes have a shape; True is a bar (of tqdm, on a terminal) after two seconds, a function
    gets the nodes that are done and all."""
    if model is not None:
        refuse_hooks(model, f"the model {type(model).__name__}")
        mark_buffers(graph_module, model)
    elif "foldback" not in graph_module.meta:  # from_document knows them
        _warn_of_buffers(graph_module)
    found = propagate(graph_module, inputs, progress) if inputs else None
    return build(graph_module, name=name, found=found, data=data, digests=digests)


def build(
    root: torch.fx.GraphModule,
    *,
    name: str | None = None,
    found: Mapping[str, Meta] | None = None,
    training: bool | None = None,
    constants: frozenset[str] = frozenset(),
    is_traced: bool = True,
    data: bool = False,
    digests: bool = False,
    has_bytes: bool = True,
) -> Document:
    """`found`: shapes and dtypes by node; `training`: the flag of all modules; `constants`: owners of tensors whose bytes
    belong to the program; `is_traced`: by torch.fx, which leaves hooks out, and not by torch.export, which follows them;
    `has_bytes`: whether bytes travel where no checkpoint has them."""
    if is_traced:
        refuse_hooks(root, "the program")
        refuse_global_hooks()
    table = TensorTable(root, by_memory=not is_traced)
    nodes = [node_row(node, None if found is None else found.get(node.name, {})) for node in root.graph.nodes]
    listed = module_rows(root, table, training)
    named = _lifted(table) | {name for name, owner in table.first_owners.items() if owner in constants}
    named = named | table.without_checkpoint(LARGEST_INLINE) if has_bytes else frozenset()
    return {
        "format": FORMAT,
        "name": root._get_name() if name is None else name,
        "nodes": nodes,
        "modules": listed,
        "tensors": table.rows(data=data, digests=digests, constants=named),
        "metadata": {"producer": f"torch.fx {torch.__version__.partition('+')[0]}", **_calling(root)},
    }


def constants_of(table: TensorTable) -> list[torch.Tensor]:
    """The tensors whose bytes a document may have."""
    return [table.owned[name] for name in _lifted(table) | set(table.lacking())]


def _lifted(table: TensorTable) -> frozenset[str]:
    return frozenset(name for name, owner in table.first_owners.items() if _LIFTED.search(owner))


def module_rows(
    root: torch.fx.GraphModule, table: TensorTable, training: bool | None = None, known: Mapping[str, Row] | None = None
) -> list[Row]:
    """The rows of a document's "modules". `training` is said of every module; None lets each say its own. `known` are rows that
    still hold, by path."""
    def nested(program: torch.fx.GraphModule) -> list[Row]:
        return [node_row(node) for node in program.graph.nodes]

    return modules.rows(root, table, training=training, nested=nested, known=known)


def node_row(node: torch.fx.Node, found: Meta | None = None) -> Row:
    """The row of a node: name, op, target, arguments and, in "meta", its shape, dtype and marks. `found` is the shape, dtype
    and device of its value; without it they are those in the node's `meta`. Raises ValueError for a function that has no name
    another process could find it by, such as a lambda.

        >>> node_row(relu)  # x.relu() of a float32 tensor of 2 times 3 elements
        {"name": "relu", "op": "call_method", "target": "relu", "args": [{"$node": "x"}], "kwargs": {},
         "meta": {"shape": [2, 3], "dtype": "float32"}}"""
    target = node.target if isinstance(node.target, str) else qualified_name(node.target)
    row: Row = {"name": node.name, "op": node.op, "target": target, "args": [encode(item) for item in node.args]}
    row["kwargs"] = {key: encode(item) for key, item in node.kwargs.items()}
    kind = None if node.type is None else annotation_text(node.type)
    if kind is not None:
        row["type"] = kind
    kept = node.meta.get("foldback", {})
    if found is None:
        found = meta_of(node.meta["val"] if "val" in node.meta else node.meta.get("tensor_meta"))
        known = {key: kept[key] for key in ("shape", "dtype") if key in kept}
        found = {**found, **known} if known else found
        if known:
            found = {key: item for key, item in found.items() if key in known or key == "device"}
    if "device" in found and "device" not in kept and (kept or not _decides_device(node)):
        found = {key: item for key, item in found.items() if key != "device"}
    row["meta"] = {**{key: item for key, item in kept.items() if key not in ("shape", "dtype")}, **found}
    if node.meta.get("is_wrapped"):
        row["meta"]["is_wrapped"] = True
    return row


def _decides_device(node: torch.fx.Node) -> bool:
    """Whether a cast that names a device or a layout reads the value, or its device: where it lies is recorded then."""
    return any(user.args and user.args[0] is node and (_names_device(user) or _gives_device(user)) for user in node.users)


def _gives_device(node: torch.fx.Node) -> bool:
    """x.device, which a cast reads."""
    is_device = node.op == "call_function" and node.target is getattr and tuple(node.args[1:]) == ("device",)
    return is_device and any(_names_device(user) for user in node.users)


def _names_device(node: torch.fx.Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    is_cast = node.target == "to" if node.op == "call_method" else packet in (torch.ops.aten.to, torch.ops.aten._to_copy)
    named = (torch.device, torch.layout, str, torch.fx.Node)
    return is_cast and any(isinstance(value, named) for value in (*node.args[1:], *node.kwargs.values()))


def mark_buffers(graph_module: torch.fx.GraphModule, model: torch.nn.Module) -> None:
    """Makes those buffers of a traced module non-persistent that are so in the model; torch.fx has forgotten it. What the
    model does not have at all is the tracer's."""
    persistent = model.state_dict().keys()
    for path, child in graph_module.named_modules(remove_duplicate=False):
        lacking = {key for key in child._buffers if child_path(path, key) not in persistent}
        child._non_persistent_buffers_set |= lacking


def _warn_of_buffers(graph_module: torch.fx.GraphModule) -> None:
    unknown = [owner for owner in copied_buffers(graph_module) if not _LIFTED.search(owner)]
    if not unknown:
        return
    more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
    warnings.warn(
        f"torch.fx does not say whether checkpoints have the buffers {', '.join(unknown[:3])}{more}; they are taken to have "
        "them. "
        "Pass the model that was traced: to_document(graph_module, model=model)",
        stacklevel=3,
    )


def _calling(root: torch.fx.GraphModule) -> dict[str, Any]:
    """How nested arguments and results are made flat, where torch.export says it."""
    info = getattr(root.graph._codegen, "pytree_info", None)
    if info is None or info.out_spec is None:
        return {}
    try:
        specs = {"in_spec": pytree.treespec_dumps(info.in_spec), "out_spec": pytree.treespec_dumps(info.out_spec)}
    except NotImplementedError:  # a class of one's own that has no name in text
        return {}
    return {"arguments": list(info.orig_args), **specs}


# ---- from a document ------------------------------------------------------------------------------------------------------


def from_document(
    document: Mapping[str, Any],
    module: torch.nn.Module | None = None,
    weights: Weights | None = None,
    as_: str | None = None,
) -> torch.fx.GraphModule:
    """A GraphModule that runs what the document says.

    Tensors come from `module` (the very objects: what is trained here is trained there; the modules around them are copies,
    so that edits stay here), from `weights` (a safetensors file, an index of shards, a folder with either, a list of these,
    or a mapping, by names or owners), or from the document itself. Recipes are evaluated over these, unless what they make
    is given: a module or a file of the optimised model has the finished tensors. `as_` says whose they are, "source",
    "finished" or "original" (before the first of several runs; "source" is the same for a document that `Client.graph` gave, if
    one run made it). Without it, a file that foldback wrote says it itself, a module is the exported one, and of other weights
    that may be either, AmbiguousWeights is raised. TensorOverflows is raised where a recipe makes of finite numbers one that is
    infinite or nan, as in a dtype that is too narrow."""
    if as_ not in (None, *NAMES_OF_READINGS):
        raise ValueError(f'as_ is "source", "finished" or "original", not {as_!r}')
    source = _Source(document, module, weights, _reading_of(document, as_))
    if module is None:
        _warn_of_overlaps(document)
    called = {
        child_path(path, node["target"]) for path, nodes in _programs(document) for node in nodes if node["op"] == "call_module"
    }
    # Stored results may still have attributes that lost their last reader: passes left them once.
    read = {child_path(path, node["target"]) for path, nodes in _programs(document)
            for node in nodes if node["op"] == "get_attr"}
    root = torch.nn.Module()
    copied: set[str] = set()  # called modules of the given one; what is within them works with them (a parametrization)
    for row in document["modules"]:
        path = row["path"]
        is_needed = path in called or any(parent in copied for parent in modules.parents(path))
        given = _given_module(module, path) if is_needed else None
        is_same = given is not None and "graph" not in row and modules.type_of(given) == row["type"]
        made = modules.copy_of(given) if given is not None and is_same else modules.make_or_hold(row, path in called)
        copied |= {path} if is_same else set()
        attributes = {key for key in row.get("attributes", {}) if is_needed or child_path(path, key) in read}
        modules.fill(made, row, source.tensor, _given_module(module, path), attributes)
        if path:
            modules.put(root, path, made)
        else:
            root = made
    for row in reversed(document["modules"]):  # the innermost first
        if "graph" in row:
            program = _program(root.get_submodule(row["path"]), row["graph"]["nodes"])
            modules.put(root, row["path"], program)
    live = _program(root, document["nodes"], document.get("name") or "GraphModule", document.get("metadata", {}))
    State(names=source.names(), unowned=source.unowned()).keep_in(live)
    return live


def _warn_of_overlaps(document: Mapping[str, Any]) -> None:
    apart = [row["name"] for row in document["tensors"] if row.get("overlaps")]
    if apart:
        warnings.warn(
            f"{', '.join(apart[:3])}{f' and {len(apart) - 3} more' if len(apart) > 3 else ''} shared memory where the document "
            "was made, and do not here: training, or a write in place, changes one alone. Give the module, which has them: "
            "from_document(document, module)",
            stacklevel=3,
        )


def _programs(document: Mapping[str, Any]) -> list[tuple[str, list[Row]]]:
    nested = [(row["path"], row["graph"]["nodes"]) for row in document["modules"] if "graph" in row]
    return [("", document["nodes"]), *nested]


def _given_module(module: torch.nn.Module | None, path: str) -> torch.nn.Module | None:
    try:
        return None if module is None else module.get_submodule(path)
    except AttributeError:
        return None


def _reading_of(document: Mapping[str, Any], as_: str | None) -> str | None:
    """"source" is "original" where the service that gave the document says that no file can be of a graph between the two."""
    ask = getattr(document, "begins_at_original", None)
    if as_ != "source" or ask is None or not Owned(document).has_more_states_than_names():
        return as_
    return "original" if ask() else as_


def _dtype_of(row: Row) -> torch.dtype:
    dtype = getattr(torch, row["dtype"], None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"tensor {row['name']} is of {row['dtype']}, which PyTorch {torch.__version__} does not have")
    return dtype


class _Source:
    """Where the tensors of a document are."""

    def __init__(
        self,
        document: Mapping[str, Any],
        module: torch.nn.Module | None,
        weights: Weights | None,
        reading: str | None,
    ) -> None:
        self.owned = Owned(document)
        self.rows, self.owners, self.parameters = self.owned.rows, self.owned.owners, self.owned.parameters
        self.module = module
        self.of_module = {} if module is None else _tensors_of_module(self.owned, module, reading)
        self.of_files = {} if weights is None else _tensors_of_files(document, self.owned, weights, reading)
        self.made: dict[str, torch.Tensor] = {}

    def tensor(self, name: str, is_parameter: bool = False) -> torch.Tensor:
        if name not in self.made:
            found = self._find(name)
            if not self.owned.fits(name, found):
                raise ValueError(f"tensor {name} is {found.dtype} {list(found.shape)} here, and not what the document says")
            self.made[name] = found
            self._lay_out(name, found)
        if is_parameter and not isinstance(self.made[name], torch.nn.Parameter):
            self.made[name] = torch.nn.Parameter(self.made[name].detach(), requires_grad_of(self.rows[name], True))
        elif name not in self.parameters and not self.made[name].requires_grad and requires_grad_of(self.rows[name], False):
            self.made[name].requires_grad_(True)
        return self.made[name]

    def _lay_out(self, name: str, tensor: torch.Tensor) -> None:
        """As the document says, if the tensor does not share the memory of another one of it."""
        row = self.rows[name]
        shares = "recipe" in row and any(_share_storage(tensor, self.made[item])
                                         for item in inputs_of(row["recipe"]) if item in self.made)
        if row.get("memory_format") is not None and not shares:
            lay_out(tensor, row["memory_format"])

    def _find(self, name: str) -> torch.Tensor:
        row, dtype = self.rows[name], _dtype_of(self.rows[name])
        if "recipe" in row:
            return self._made(name, row["recipe"], dtype)
        keys = list(dict.fromkeys([name, *self.owners[name]]))
        given = self.of_module.get(name)
        if given is None:
            given = self._attribute(keys)
        if given is None:
            given = self.of_files.get(name)
        if given is None and "data" in row:
            given = tensor_of(base64.b64decode(row["data"]), dtype, row["shape"])
        if given is None:
            raise ValueError(f"there are no bytes for the tensor {name}: give the module, or weights that have one of {keys}")
        return given

    def _made(self, name: str, recipe: Any, dtype: torch.dtype) -> torch.Tensor:
        """A tensor that is given as it is finished, or else what its recipe makes."""
        is_view_of_owned = not self.owned.is_made(name)
        if not is_view_of_owned and name in self.of_module:
            return self.of_module[name]
        can_be_made = all(self._is_known(item) for item in inputs_of(recipe))
        if name in self.of_files and not (is_view_of_owned and can_be_made):
            return self.of_files[name]
        read = [self.tensor(item) for item in inputs_of(recipe)]
        if is_view_of_owned:  # two owned tensors in one memory, as they were exported
            view = self.of_module.get(name)
            if view is not None and any(_share_storage(view, item) for item in read):
                return view
        device = read[0].device if read else torch.device("cpu")
        is_view_here = is_view_of_owned and is_view(recipe)
        return evaluate_finite(name, recipe, self.tensor, dtype, device, copy=not is_view_here)

    def _is_known(self, name: str) -> bool:
        if name in self.of_module or name in self.of_files or "data" in self.rows[name]:
            return True
        recipe = self.rows[name].get("recipe")
        return recipe is not None and all(self._is_known(item) for item in inputs_of(recipe))

    def _attribute(self, keys: list[str]) -> torch.Tensor | None:
        """What the module has there without owning it: one that a hook or a property computes."""
        for key in keys:
            path, _, attribute = key.rpartition(".")
            found = getattr(_given_module(self.module, path), attribute, None)
            if isinstance(found, torch.Tensor):
                return found
        return None

    def names(self) -> dict[str, str]:
        """Those that are not called after their first owner, by that."""
        return {owners[0]: name for name, owners in self.owners.items() if owners and owners[0] != name}

    def unowned(self) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in self.made.items() if not self.owners[name]}


def _tensors_of_module(owned: Owned, module: torch.nn.Module, reading: str | None) -> dict[str, torch.Tensor]:
    """By name. A module to which edits were applied knows the names of its tensors; any other is the model that was
    exported, unless only the optimised one is like it."""
    if reading is None and "foldback" in getattr(module, "meta", {}):
        return {name: tensor for name, tensor in TensorTable(module).tensors.items() if name in owned.rows}
    given = {owner: tensor for owner, tensor, _ in owners(module)}
    given.update(plain_tensors(module))
    return assign(owned, given, reading, otherwise="source")


def _tensors_of_files(
    document: Mapping[str, Any], owned: Owned, weights: Weights, reading: str | None
) -> dict[str, torch.Tensor]:
    if isinstance(weights, Mapping):
        return assign(owned, weights, reading)
    paths = files_of(weights)
    given: dict[str, torch.Tensor] = {}
    names: dict[str, str] = {}
    said = []
    for path in paths:
        metadata, tensors = read_file(path)
        said.append(says_finished(document, metadata))
        if not said[-1]:
            names.update(read_said(owned, tensors, metadata, reading))
        twice = sorted(given.keys() & tensors.keys())
        if twice:
            raise ValueError(f"{path} and a file before it both hold {twice[0]!r}; give the files of one model")
        given.update(tensors)
    if any(said) and reading in ("source", "original"):
        raise AmbiguousWeights(f"{paths[said.index(True)]} says that it holds the finished weights of this document; leave "
                               "as_ out")
    return assign(owned, given, "finished" if said and all(said) else reading, said=names)


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, str] | None, dict[str, torch.Tensor]]:
    """A safetensors file's metadata and its tensors."""
    from safetensors import safe_open

    refuse_other_kinds(path)
    with safe_open(os.fspath(path), framework="pt") as file:
        return file.metadata(), {key: file.get_tensor(key) for key in file.keys()}


def _share_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def requires_grad_of(row: Row, is_parameter: bool) -> bool:
    """Whether the tensor of a row is trained. Where the row does not say, a parameter of floating point is, and nothing
    else."""
    default = is_parameter and _dtype_of(row).is_floating_point
    return bool(row.get("requires_grad", default))


def _program(
    root: torch.nn.Module, rows: list[Row], name: str = "GraphModule", calling: Mapping[str, Any] | None = None
) -> torch.fx.GraphModule:
    refuse_renamed_members(rows)
    graph = torch.fx.Graph()
    nodes: dict[str, torch.fx.Node] = {}
    for row in rows:
        node = make_node(graph, row)
        set_arguments(node, row, nodes)
        nodes[row["name"]] = node
    graph.lint()
    _set_calling(graph, calling or {})
    refuse_hiding_inputs(graph)
    made = torch.fx.GraphModule(root, graph, name)
    # torch.fx copies what the program reads and forgets what else there is, and that a buffer is not persistent.
    for key in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
        made.__dict__[key] = root.__dict__[key]
    return made


def refuse_hiding_inputs(graph: torch.fx.Graph) -> None:
    """PyTorch's code of a graph calls its parameters as the inputs are called, also where it says something else by that name:
    inf, torch, a builtin, a node before the line that reads the parameter."""
    renamed = {_input_name(node): node.name for node in graph.nodes if node.op == "placeholder"}
    renamed = {name: node for name, node in renamed.items() if name != node}
    if not renamed:
        return
    (program,) = (item for item in ast.parse(graph.python_code("self").src).body if isinstance(item, ast.FunctionDef))
    read, nodes = set[str](), set[str]()
    for statement in program.body:
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.Assign) and isinstance(value, ast.Name) and value.id in renamed.keys() - read:
            read.add(value.id)
            said = {item.id for item in statement.targets if isinstance(item, ast.Name)} - {renamed[value.id]}
        elif isinstance(value, ast.Call) and ast.unparse(value.func) == "fx_pytree.tree_flatten_spec":
            said = {item.arg for item in program.args.args} & {"fx_pytree"}
        else:
            names = [item for item in ast.walk(statement) if isinstance(item, ast.Name) and item.id in renamed.keys() - nodes]
            nodes |= {item.id for item in names if isinstance(item.ctx, ast.Store) and item.id in read}
            said = {item.id for item in names} - nodes
        if said:
            raise ValueError(f"PyTorch's code would take the input {min(said)!r} for what else it calls so, in "
                             f"`{ast.unparse(statement)}`; rename the input")


def refuse_renamed_members(rows: Iterable[Row]) -> None:
    """Python reads identifiers in their NFKC form, so PyTorch's code would find another module, method or argument."""
    for row in rows:
        said = [row["target"]] if row["op"] in ("call_module", "get_attr", "call_method") else []
        if row["op"] == "call_function" and row["target"] == "builtins.getattr":
            said = [item for item in row["args"][1:2] if isinstance(item, str)]
        for name in [*row.get("kwargs", ()), *(part for text in said for part in text.split("."))]:
            read = unicodedata.normalize("NFKC", name)
            if name.isidentifier() and read != name:
                raise ValueError(f"node {row['name']}: Python reads {name!a} as {read!a} in PyTorch's code; rename it")


def _input_name(node: torch.fx.Node) -> str:
    return str(node.target).lstrip("*")


def make_node(graph: torch.fx.Graph, row: Row) -> torch.fx.Node:
    """A node with a row's name, target and marks, at the graph's point of insertion; its arguments come later."""
    target = resolve(row["target"]) if row["op"] == "call_function" else row["target"]
    kind = None if row.get("type") is None else annotation_of(row["type"])
    node = graph.create_node(row["op"], target, (), {}, name=row["name"], type_expr=kind)
    if node.name != row["name"]:  # a node that is gone had it
        node.name = row["name"]
    set_meta(node, row.get("meta", {}))
    return node


def set_meta(node: torch.fx.Node, meta: Mapping[str, Any]) -> None:
    """What a document says of a node; what torch itself knows of it stays."""
    node.meta["foldback"] = {key: item for key, item in meta.items() if key != "is_wrapped"}
    if meta.get("is_wrapped"):
        node.meta["is_wrapped"] = True
    else:
        node.meta.pop("is_wrapped", None)


def set_arguments(node: torch.fx.Node, row: Row, nodes: Mapping[str, torch.fx.Node]) -> None:
    """Gives a node the arguments that its row has. `nodes` are the nodes before it, by name; KeyError where one is missing, and
    ValueError for a value that has no object here ({"$opaque": …})."""
    node.args = tuple(decode(item, nodes) for item in row.get("args", []))
    kwargs = {key: decode(item, nodes) for key, item in row.get("kwargs", {}).items()}
    if kwargs or node.kwargs:
        node.kwargs = kwargs


def _set_calling(graph: torch.fx.Graph, metadata: Mapping[str, Any]) -> None:
    """Lets the program take and give what the exported model did."""
    if not {"arguments", "in_spec", "out_spec"} <= metadata.keys():
        return
    specs = pytree.treespec_loads(metadata["in_spec"]), pytree.treespec_loads(metadata["out_spec"])
    graph.set_codegen(torch.fx.graph._PyTreeCodeGen(torch.fx.graph._PyTreeInfo(list(metadata["arguments"]), *specs)))
