"""Edits of a run, replayed on a live GraphModule.

Everything is looked up, compared and computed before anything is changed: edits that do not fit leave the module as it was.
Modules that belong to the traced model, too, are not changed but replaced by copies with the same tensors, and come back
when an edit makes them again what they were.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from . import modules
from .ancestry import Ancestry, makers_of
from .fx import (
    Document,
    Row,
    make_node,
    node_row,
    refuse_hiding_inputs,
    refuse_renamed_members,
    requires_grad_of,
    set_arguments,
    set_meta,
)
from .history import History, carried_back
from .hooks import hooks_of
from .recipes import evaluate_finite, expanded, inputs_of, is_movement, shape_of
from .runs import RunEdits
from .tensors import (
    Mark,
    State,
    TensorTable,
    can_be_marked,
    digest_of,
    format_of,
    has_changed,
    lay_out,
    module_at,
    set_data,
    sums_of,
    tensor_of,
)
from .values import annotation_of, dtype_name, nodes_in, resolve

Edit = Mapping[str, Any]


class EditError(ValueError):
    """Edits that do not fit the module."""


class LostTraining(EditError):
    """Tensors that the edits would drop have changed since they were made: `names`."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        super().__init__(
            f"these tensors have changed since they were made, and the edits would drop them: {', '.join(names)}. "
            "client.reverse(run, graph=foldback.fx.to_document(module, *inputs, digests=True)) gives edits that keep what they "
            "learnt, where the passes can be reversed; force=True drops it"
        )


def apply_edits(
    module: torch.fx.GraphModule, edits: Iterable[Edit], *, force: bool = False, recompile: bool = True
) -> torch.fx.GraphModule:
    """Does to a live GraphModule, in place, what a run did to its document; gives the module.

    `edits` are those of GET /v1/runs/{run}/edits. Recipes are evaluated here, over the tensors as they are now. What an
    edit does not touch stays the same object: parameters and their ties, devices, dtypes and flags, and the order of
    modules. Tensors that no module owns any more are kept, so that the edits of a reverse put back the very same ones.

    Edits of an undo, as `client.edits` gives them, take along what tensors learnt since the run was applied. Where that is not
    possible, edits that would drop a tensor which was trained raise LostTraining, unless `force` is set. PyTorch does not count
    writes through `.data`; they are seen all the same, but for those to a few elements of a large parameter that a pass put
    away.
    A new node says in `meta` where it is from, as PyTorch's own passes do: `from_node` has the nodes that it replaces, with the
    pass's name and signature where `edits` are those of `client.edits`; `stack_trace`, `torch_fn` and `nn_module_stack`
    are what those nodes have in common. A document has none of this.

    `recompile=False` leaves checking the graph and generating its code to the caller."""
    try:
        Replay(module, list(edits), force, makers=_makers(edits)).run()
    except LostTraining:
        again = carried_back(module, edits) if isinstance(edits, RunEdits) else None
        if again is None:
            raise
        edits = again
        Replay(module, list(edits), False).run()
    if recompile:
        module.graph.lint()
        module.recompile()
    if isinstance(edits, RunEdits):
        History.of(module).note_applied(module, edits.run)
    return module


def _makers(edits: Iterable[Edit]) -> Mapping[str, str]:
    """The passes that made new nodes; of a run that its service still knows."""
    if not isinstance(edits, RunEdits) or not any(edit["edit"] in ("insert_node", "set_node") for edit in edits):
        return {}
    return makers_of(edits.client.run(edits.run)["passes"])


class Replay:
    """Edits, and the live module that they are for. Each edit is checked before the first one changes the module."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        edits: list[Edit],
        force: bool,
        known: Document | None = None,
        makers: Mapping[str, str] | None = None,
    ) -> None:
        """`known`: the module's document as this client writes it, if it is known. `makers`: the passes that made new nodes, by
        their names."""
        self.module, self.edits, self.force = module, edits, force
        self.makers = makers or {}
        self.state = State.of(module)
        self.table = TensorTable(module)
        self.tensors: dict[str, torch.Tensor] = dict(self.table.tensors)  # by name, as they will be
        self.nodes: dict[str, torch.fx.Node] = {node.name: node for node in module.graph.nodes}
        self.known = {} if known is None else {row["name"]: row for row in known["nodes"]}
        self.rows = self._module_rows(None if known is None else known["modules"])
        self.parents = {parent for path in self.rows for parent in modules.parents(path)}
        self.values: dict[str, torch.Tensor] = {}  # by name: new values for tensors that the module has
        self.recipes: dict[str, Any] = {}  # by name: the recipes of tensors after these edits
        self.evaluated: dict[str, list[str]] = {}  # tensors that these edits made or gave new values, with what they read
        self.sums: dict[str, torch.Tensor] = {}  # of these
        self.noted: dict[str, Row | None] = {}  # by name: the rows of these tensors, None for one that has no recipe any more
        self.virtual: dict[str, Row] = dict(self.state.virtual)  # as they will be
        self.formats: dict[str, str | None] = {}  # by name: the memory format that these edits give a tensor

    def run(self) -> None:
        """Applies the edits. Raises EditError where the module is not the one that they were made from, and LostTraining where
        values that a tensor was trained to would be lost; `force` lets these go. The module is then as it was."""
        by_table: dict[str, list[Edit]] = {"node": [], "module": [], "tensor": [], "graph": []}
        for edit in self.edits:
            by_table[edit["edit"].rpartition("_")[2]].append(edit)
        node_rows = self._plan_nodes(by_table["node"])
        self._check_dtypes(by_table["tensor"])
        parameters, buffers = (self._names(by_table["module"], table) for table in ("parameters", "buffers"))
        if not self.force:
            self._check_training(by_table["tensor"])
        self._plan_tensors(by_table["tensor"], parameters, parameters | buffers)
        planned = self._plan_modules(by_table["module"])
        self._check_hooks(by_table)
        self._check_targets(
            node_rows, planned, {edit["node"]["name"] for edit in by_table["node"] if edit["edit"] == "erase_node"}
        )
        self.constants = self.state.constants | set(self.table.lacking())
        with torch.no_grad():
            for name, value in self.values.items():
                tensor = self.table.tensors[name]
                if tensor.dtype == value.dtype:
                    tensor.copy_(value)
                else:
                    set_data(tensor, value)
            self._lay_out()
        self._put_modules(by_table["module"], planned)
        self._put_nodes(by_table["node"], node_rows)
        for edit in by_table["graph"]:
            if "/name" in edit["now"]:
                self.module.__class__.__name__ = edit["now"]["/name"]
        self._keep_state()

    # ---- training -------------------------------------------------------------------------------------------------------

    def _check_dtypes(self, edits: list[Edit]) -> None:
        """A module that was converted since would come back in two dtypes: what a pass put away still has the one that it had.
        A tensor has to be what the edits found; it gets another dtype where they say how to compute it."""
        for edit in edits:
            tensor = self.table.tensors.get(edit["name"])
            if edit["edit"] != "set_tensor" or tensor is None:
                continue
            here, was, now = dtype_name(tensor.dtype), edit.get("was") or {}, edit.get("now") or {}
            found = was.get("/dtype", was.get("dtype", here))
            said = found if found != here or "/recipe" in now else now.get("/dtype", here)
            if said != here:
                raise EditError(f"tensor {edit['name']} is {here} here, and {said} in these edits; convert the module back "
                                "first")

    def _check_training(self, edits: list[Edit]) -> None:
        """A tensor whose recipe is taken away, or exchanged, has to be what that recipe makes; unless a new recipe reads it,
        so that what it learnt goes on there."""
        recipes = [
            now["recipe"] if "recipe" in now else now["/recipe"]
            for now in (edit.get("now") for edit in edits)
            if isinstance(now, Mapping) and ("recipe" in now or "/recipe" in now)
        ]
        read = {name for recipe in recipes for name in inputs_of(recipe)}
        lost = [
            edit["name"]
            for edit in edits
            if edit["edit"] == "set_tensor" and edit["name"] not in read and self._has_changed(edit["name"], edit.get("was"))
        ]
        if lost:
            raise LostTraining(lost)

    def _has_changed(self, name: str, was: Any) -> bool:
        """Whether the tensor differs from what its recipe makes. False when the recipe's inputs are not here to compare
        with."""
        if not isinstance(was, Mapping) or name not in self.tensors:
            return False
        recipe = was.get("recipe", was.get("/recipe"))
        if recipe is not None:
            dtype = {"dtype": was["dtype"]} if "dtype" in was else {}
            return has_changed({"name": name, "recipe": recipe, **dtype}, self.tensors, self.state)
        made = self.state.recipes.get(name) if _is_row(was) else None  # a document of a changed tensor has no recipe any more
        return made is not None and has_changed(made, self.tensors, self.state)

    # ---- hooks ----------------------------------------------------------------------------------------------------------

    def _check_hooks(self, by_table: Mapping[str, list[Edit]]) -> None:
        """A hook that was put on a module after its document was made is not lost without a word."""
        called = [
            str(self.nodes[edit["node"]["name"]].target)
            for edit in by_table["node"]
            if edit["edit"] == "erase_node" and edit["node"]["op"] == "call_module"
        ]
        changed = [edit["path"] for edit in by_table["module"] if edit["edit"] == "set_module"]
        for path in dict.fromkeys([*called, *changed]):
            there = module_at(self.module, path) if path else None
            found = [] if there is None else hooks_of(there)
            if found:
                raise EditError(f"module {path} has a {found[0]}, which these edits would lose; remove it first")

    # ---- tensors --------------------------------------------------------------------------------------------------------

    def _names(self, edits: list[Edit], table: str) -> set[str]:
        """Tensors that a module gets as a parameter, or as a buffer, by these edits."""
        found: set[str] = set()
        for edit in edits:
            now = edit.get("now") or {}
            whole = now.get(table) or now.get(f"/{table}") or {}
            found |= {name for name in whole.values() if name is not None}
            found |= {name for key, name in now.items() if key.startswith(f"/{table}/") and name is not None}
        return found

    def _plan_tensors(self, edits: list[Edit], parameters: set[str], owned: set[str]) -> None:
        """New tensors, and new values for old ones, evaluated over the tensors as they are."""
        rows = {edit["name"]: edit["now"] for edit in edits if edit["edit"] == "set_tensor" and _is_row(edit["now"])}
        for edit in edits:
            if edit["edit"] == "set_tensor":
                self._note_recipe(edit)
                self._note_format(edit)
                self._note_virtual(edit, rows, owned)
        for name in [name for name, row in self.virtual.items() if name in owned or not is_movement(row["recipe"])]:
            rows[name] = self.virtual.pop(name)
            self._make_tensor(name, rows, parameters)
        for edit in edits:
            name, now = edit["name"], edit.get("now")
            if edit["edit"] != "set_tensor" or name in self.virtual:
                continue
            if now is None:
                self.state.digests.pop(name, None)
                self.state.marks.pop(name, None)
                # It may come back: what was not made is kept; and what was, if these edits make nothing of it, as those of dead
                # code, so that nothing says how to make it again.
                if name in self.state.made and (rows or "recipe" in (edit.get("was") or {})):
                    self.state.made.remove(name)
                    del self.tensors[name]
            elif _is_row(now):
                self._put_tensor(name, now, rows, parameters)
            elif "/recipe" in now and name not in self.evaluated:
                self._set_values(name, self._known(name), now["/recipe"], rows, parameters)

    def _note_virtual(self, edit: Edit, rows: dict[str, Row], owned: set[str]) -> None:
        """A tensor that only recipes read, and whose own moves bits, is not computed: others are made past it."""
        name, now = edit["name"], edit.get("now")
        if name in self.virtual:
            row = self.virtual.pop(name)
            if now is None:
                return
            made = rows[name] if name in rows else _changed(row, edit["was"], now, f"tensor {name}")
            if "recipe" in made:
                self.virtual[name] = made
            else:
                self._make_tensor(name, {name: row}, set())
        elif (name in rows and name not in owned and name not in self.tensors
              and is_movement(rows[name].get("recipe", {"op": ""}))):
            _check_shape(rows[name], shape_of(self._past_virtual(rows[name]["recipe"]),
                                              lambda read: self._described(read, rows)))
            self.virtual[name] = rows[name]

    def _note_format(self, edit: Edit) -> None:
        now, was = edit.get("now") or {}, edit.get("was") or {}
        if "/memory_format" in now or "/memory_format" in was:
            self.formats[edit["name"]] = now.get("/memory_format")
        elif now.get("memory_format") is not None:
            self.formats[edit["name"]] = now["memory_format"]

    def _lay_out(self) -> None:
        """Tensors that are laid out otherwise stay what they were: that is nobody's training."""
        for name, format_ in self.formats.items():
            tensor = self.tensors.get(name)
            if tensor is None:
                continue
            marked = [marks for marks in self.state.marks.values() if name in marks and marks[name].is_of(tensor)]
            lay_out(tensor, format_)
            self.sums.pop(name, None)  # they follow the order in memory
            mark = Mark.of(tensor, None)
            for marks in marked:
                if mark is not None:
                    marks[name] = mark

    def _described(self, name: str, rows: Mapping[str, Row]) -> torch.Tensor:
        """One of the shape that it will have."""
        return torch.empty(rows[name]["shape"], device="meta") if name in rows else self._known(name)

    def _note_recipe(self, edit: Edit) -> None:
        """What a tensor is made by: to_document tells it again, as long as nobody changed the tensor."""
        name, now, was = edit["name"], edit.get("now"), edit.get("was")
        if now is not None and ("recipe" in now or "/recipe" in now):
            recipe = now["recipe"] if "recipe" in now else now["/recipe"]
            known = now if "dtype" in now else self.virtual.get(name)
            dtype = now.get("/dtype", dtype_name(self._known(name).dtype) if known is None else known["dtype"])
            self.recipes[name] = recipe
            self.noted[name] = {"name": name, "dtype": dtype, "recipe": recipe}
        elif now is None or _is_row(now) or (was is not None and "/recipe" in was):
            self.noted[name] = None

    def _put_tensor(self, name: str, row: Row, rows: Mapping[str, Row], parameters: set[str]) -> None:
        """One that was kept when its last owner went is put back: as it was, or with the bytes that its recipe gives
        now."""
        if not self._is_kept(name, rows):
            self._make_tensor(name, rows, parameters)
        elif "recipe" in row:
            self._set_values(name, self.table.tensors[name], row["recipe"], rows, parameters)

    def _is_kept(self, name: str, rows: Mapping[str, Row]) -> bool:
        """Whether a tensor that is here is the one that a row describes. Without a row, it is."""
        kept, row = self.table.tensors.get(name), rows.get(name)
        is_alike = (row is None
                    or (kept is not None and (list(kept.shape), dtype_name(kept.dtype)) == (row["shape"], row["dtype"])))
        return kept is not None and is_alike

    def _set_values(self, name: str, tensor: torch.Tensor, recipe: Any, rows: Mapping[str, Row], parameters: set[str]) -> None:
        if name not in self.values:
            if not self.force and self.state.is_touched(name, tensor):
                raise LostTraining([name])
            recipe = self._past_virtual(recipe)
            noted = self.noted.get(name)
            dtype = tensor.dtype if noted is None else getattr(torch, noted["dtype"])
            if tensor.requires_grad and dtype != tensor.dtype and not dtype.is_floating_point:
                raise EditError(f"tensor {name} is trained, and cannot become {dtype_name(dtype)}")
            made = self._evaluated(name, recipe, dtype, tensor.device, rows, parameters)
            lay_out(made, format_of(tensor))
            self._note_digest(name, recipe, made)
            self.values[name] = made

    def _note_digest(self, name: str, recipe: Any, made: torch.Tensor) -> None:
        self.evaluated[name] = inputs_of(recipe)
        if can_be_marked(made):
            self.sums[name] = sums_of(made)  # while it is in the processor's cache
        if not is_movement(recipe) and not made.is_meta:
            self.state.digests[name] = digest_of(made)

    def _make_tensor(self, name: str, rows: Mapping[str, Row], parameters: set[str]) -> torch.Tensor:
        if name in self.tensors and name not in self.table.tensors:
            return self.tensors[name]
        row = rows.get(name, {})
        if "data" in row:  # a constant, which no recipe makes
            made = tensor_of(base64.b64decode(row["data"]), getattr(torch, row["dtype"]), row["shape"]).to(self._device())
        elif "recipe" in row:
            dtype, recipe = getattr(torch, row["dtype"]), self._past_virtual(row["recipe"])
            made = self._evaluated(name, recipe, dtype, None, rows, parameters)
            _check_shape(row, list(made.shape))
            self._note_digest(name, recipe, made)
        else:
            raise EditError(f"there is no tensor {name} here, and the edits do not say how to compute it")
        requires_grad = requires_grad_of(row, name in parameters)
        self.state.made.add(name)
        self.tensors[name] = (
            torch.nn.Parameter(made, requires_grad) if name in parameters else made.requires_grad_(requires_grad)
        )
        return self.tensors[name]

    def _past_virtual(self, recipe: Any) -> Any:
        return expanded(recipe, {name: row["recipe"] for name, row in self.virtual.items()})

    def _evaluated(
        self, name: str, recipe: Any, dtype: torch.dtype, device: torch.device | None, rows: Mapping[str, Row],
        parameters: set[str]
    ) -> torch.Tensor:
        def tensor(item: str) -> torch.Tensor:
            """As it will be: one that is here may get new values by another of these edits."""
            is_made_anew = "recipe" in rows.get(item, {}) and not self._is_kept(item, rows)
            if item not in self.table.tensors or is_made_anew:
                return self._make_tensor(item, rows, parameters)
            if item in self.recipes:
                self._set_values(item, self.table.tensors[item], self.recipes[item], rows, parameters)
            return self.values.get(item, self.table.tensors[item])

        read = [tensor(name) for name in inputs_of(recipe)]
        if device is None:
            device = read[0].device if read else self._device()
        return evaluate_finite(name, recipe, tensor, dtype, device)

    def _device(self) -> torch.device:
        return next((tensor.device for tensor in self.table.owned.values()), torch.device("cpu"))

    def _known(self, name: str) -> torch.Tensor:
        if name not in self.tensors:
            raise EditError(f"there is no tensor {name} here")
        return self.tensors[name]

    # ---- modules --------------------------------------------------------------------------------------------------------

    def _module_rows(self, known: Sequence[Row] | None) -> dict[str, Row]:
        """As edits have said where they did: a live module has defaults, too, and those are not another type's."""
        if known is None:
            known = modules.rows(self.module, self.table, training=None, nested=lambda _: [])
        rows = {row["path"]: row for row in known}
        for path, (type_, config) in self.state.configs.items():
            if path in rows and rows[path]["type"] == type_:
                rows[path] = {**rows[path], "config": config}
        return rows

    def _plan_modules(self, edits: list[Edit]) -> dict[str, torch.nn.Module | None]:
        """By path the module that will be there; None for one that is taken out."""
        planned: dict[str, torch.nn.Module | None] = {}
        for edit in edits:
            if edit["edit"] != "set_module":
                continue
            path, now = edit["path"], edit["now"]
            if now is None:
                self._known_module(path)
                planned[path] = None
            elif _is_row(now):
                planned[path] = self._filled(path, now, self.state.originals.get(path))
            else:
                row = _changed(self.rows.get(path, {"path": path}), edit["was"], now, path)
                if "/non_persistent" in now:
                    here = self.rows.get(path, {}).get("non_persistent", ())
                    row["non_persistent"] = _exchanged(here, edit["was"].get("/non_persistent"), now["/non_persistent"])
                planned[path] = self._filled(path, row, self._known_module(path))
        return planned

    def _known_module(self, path: str) -> torch.nn.Module:
        found = module_at(self.module, path)
        if found is None:
            raise EditError(f"there is no module {path} here")
        return found

    def _filled(self, path: str, row: Row, given: torch.nn.Module | None) -> torch.nn.Module:
        """A module as the row says; the original one where that is as the row says."""
        if not path:
            made = torch.nn.Module()  # its members go to the root, which stays
        elif given is not None and modules.type_of(given) == row["type"]:
            made = modules.copy_of(given)
        else:
            made = modules.make(row)
        modules.fill(made, row, lambda name, _: self._known(name), given)
        original = self.state.originals.get(path, given)
        self.state.configs.pop(path, None)
        self.state.buffers.pop(path, None)
        if original is not None and _is_same(made, original):
            return original
        self.state.configs[path] = row["type"], row.get("config", {})
        self.state.buffers[path] = list(row.get("buffers", ()))
        return made

    def _put_modules(self, edits: list[Edit], planned: Mapping[str, torch.nn.Module | None]) -> None:
        orders: dict[str, _Order] = {}  # of the children of modules that get one, by path
        for edit in edits:
            path = edit["path"]
            made = self.module.get_submodule(path) if edit["edit"] == "move_module" else planned[path]
            if made is None:
                self._take_out(path)
            elif edit["edit"] == "move_module" or _is_row(edit["now"]):
                self._place(path, made, edit["before"], orders)
            elif path:
                if path not in self.state.added:
                    self.state.originals.setdefault(path, self.module.get_submodule(path))
                self._put_in_place(path, made)
            else:
                modules.take_over(self.module, made)
        for parent, order in orders.items():
            children = self.module.get_submodule(parent)._modules
            for key in order:
                if key in children:  # others were taken out behind it
                    children[key] = children.pop(key)

    def _take_out(self, path: str) -> None:
        parent, _, key = path.rpartition(".")
        children = self.module.get_submodule(parent)._modules
        self.state.orders.setdefault(parent, list(children))
        module = children[key]
        assert module is not None
        if path in self.state.added:
            self.state.added.remove(path)
        else:
            self.state.originals.setdefault(path, module)
        if path in self.parents:  # what is below stays
            children[key] = torch.nn.Module()
            children[key]._modules.update(module._modules)  # type: ignore[union-attr]
        else:
            del children[key]

    def _put_in_place(self, path: str, module: torch.nn.Module) -> None:
        """With the children of the one that is there: edits before this one may have changed them."""
        there = module_at(self.module, path)
        if there is not None and there is not module:
            children = dict(there._modules)
            module._modules.clear()
            module._modules.update(children)
        modules.put(self.module, path, module)

    def _place(self, path: str, module: torch.nn.Module, before: str | None, orders: dict[str, _Order]) -> None:
        """Puts a module at its path: where it was once, or else before the one that follows it in the document."""
        if path not in self.state.originals:
            self.state.added.add(path)
        parent, _, key = path.rpartition(".")
        self._put_in_place(path, module)
        children = self.module.get_submodule(parent)._modules
        if parent not in orders:
            orders[parent] = _Order(children, self.state.orders.get(parent, []))
        order = orders[parent]
        anchor = order.follower(key, children)
        if anchor is None and before is not None and (not parent or before.startswith(f"{parent}.")):
            anchor = before[len(parent) + 1 if parent else 0 :].split(".")[0]
        order.put(key, anchor if anchor in children else None)

    # ---- nodes ----------------------------------------------------------------------------------------------------------

    def _plan_nodes(self, edits: list[Edit]) -> dict[str, Row]:
        """By name the rows of nodes that are put in or changed."""
        rows: dict[str, Row] = {}
        reads = {name: {given.name for given in node.all_input_nodes} for name, node in self.nodes.items()}
        for edit in edits:
            kind, name = edit["edit"], edit["node"]["name"] if "node" in edit else edit["name"]
            if (name in reads) == (kind == "insert_node"):
                raise EditError(f"there is {'already a' if name in reads else 'no'} node {name} here")
            if kind in ("insert_node", "move_node") and edit["before"] is not None and edit["before"] not in reads:
                raise EditError(f"there is no node {edit['before']} here, before which {name} is to go")
            if kind == "erase_node":
                del reads[name]
            elif kind != "move_node":
                node = self.nodes.get(name)
                rows[name] = edit["node"] if node is None else self._changed_node(node, edit)
                reads[name] = set(nodes_in([rows[name]["args"], rows[name]["kwargs"]]))
        for name, given in reads.items():
            if not given <= reads.keys():
                raise EditError(f"node {name} reads {', '.join(sorted(given - reads.keys()))}, which would not be there")
        for row in rows.values():
            if row["op"] == "call_function":
                resolve(row["target"])
        self._check_names(rows)
        return rows

    def _check_names(self, rows: Mapping[str, Row]) -> None:
        """PyTorch's code may not take anything that the edits put in for something else."""
        try:
            refuse_renamed_members(rows.values())
            self._refuse_hiding_inputs(rows)
        except ValueError as error:
            raise EditError(str(error)) from None

    def _refuse_hiding_inputs(self, rows: Mapping[str, Row]) -> None:
        inputs = self.module.graph.find_nodes(op="placeholder")
        if not rows or all(str(node.target) == node.name for node in inputs):
            return
        graph, read = torch.fx.Graph(), nodes_in([[row["args"], row["kwargs"]] for row in rows.values()])
        made = {node.name: rows.get(node.name) or node_row(node) for node in inputs}
        made = {**made, **{name: {"name": name, "op": "get_attr", "target": name} for name in read if name not in made}, **rows}
        nodes = {name: make_node(graph, row) for name, row in made.items()}
        for name, row in made.items():
            set_arguments(nodes[name], row, nodes)
        refuse_hiding_inputs(graph)

    def _changed_node(self, node: torch.fx.Node, edit: Edit) -> Row:
        row = self.known.get(node.name) or node_row(node)
        return _changed(row, edit["was"], edit["now"], f"node {node.name}")

    def _check_targets(self, rows: Mapping[str, Row], planned: Mapping[str, Any], erased: set[str]) -> None:
        """No node may stay that needs a module which goes."""
        gone = {path for path, made in planned.items() if made is None}
        for name in [*self.nodes, *(name for name in rows if name not in self.nodes)]:
            node = self.nodes.get(name)
            op, target = (rows[name]["op"], rows[name]["target"]) if name in rows else (node.op, node.target)  # type: ignore[union-attr]
            path = target if op == "call_module" else str(target).rpartition(".")[0] if op == "get_attr" else None
            if path in gone and name not in erased:
                raise EditError(f"node {name} needs the module {path}, which would not be there")

    def _put_nodes(self, edits: list[Edit], rows: Mapping[str, Row]) -> None:
        """First all nodes are there and in their places, then they get their arguments, then others are erased."""
        graph, ancestry = self.module.graph, Ancestry(self.module.graph) if edits else None
        for edit in edits:
            if edit["edit"] == "insert_node":
                with graph.inserting_before(self._anchor(edit["before"])):
                    self.nodes[edit["node"]["name"]] = make_node(graph, edit["node"])
            elif edit["edit"] == "move_node":
                self._anchor(edit["before"]).prepend(self.nodes[edit["name"]])
        for edit in edits:
            if edit["edit"] == "set_node":
                self._set_node(self.nodes[edit["name"]], rows[edit["name"]], {*edit["was"], *edit["now"]})
        for name, row in rows.items():
            set_arguments(self.nodes[name], row, self.nodes)
        gone = [self.nodes.pop(edit["node"]["name"]) for edit in edits if edit["edit"] == "erase_node"]
        for node in gone:  # they may read each other
            node.args = ()
            if node.kwargs:
                node.kwargs = {}
        for node in gone:
            graph.erase_node(node)
        if ancestry is not None:
            ancestry.note(self.makers)

    def _anchor(self, before: str | None) -> torch.fx.Node:
        return self.nodes[before] if before is not None else self.module.graph._root

    def _set_node(self, node: torch.fx.Node, row: Row, members: set[str]) -> None:
        if members & {"/op", "/target"}:
            node.op = row["op"]
            node.target = resolve(row["target"]) if row["op"] == "call_function" else row["target"]
        if "/type" in members:
            node.type = None if row.get("type") is None else annotation_of(row["type"])
        set_meta(node, row["meta"])

    # ---- afterwards -----------------------------------------------------------------------------------------------------

    def _keep_state(self) -> None:
        names = {id(tensor): name for name, tensor in self.tensors.items()}
        now = TensorTable(self.module)
        self.state.names = {}
        for given, owner in now.first_owners.items():
            name = names.get(id(now.owned[given]), owner)
            if name != owner:
                self.state.names[owner] = name
        for name, row in self.noted.items():
            self.state.recipes.pop(name, None)
            if row is not None:
                self.state.recipes[name] = row
        self.state.virtual = self.virtual
        self._forget_circular()
        owned = {id(tensor) for tensor in now.owned.values()}
        for marks in self.state.marks.values():
            for name in marks.keys() & self.values.keys():  # what these edits wrote is nobody's training
                del marks[name]
        for name, read in self.evaluated.items():
            self.state.mark(name, read, self.tensors, self.sums.get(name))
        self.state.unowned = {name: tensor for name, tensor in self.tensors.items() if id(tensor) not in owned}
        self.state.constants = self.constants & self.state.unowned.keys()
        self._note_order()
        self.state.keep_in(self.module)

    def _note_order(self) -> None:
        """The places of tensors in the document's table."""
        order = _Order(self.state.table or self.table.owned, [])
        for edit in self.edits:
            is_put = edit["edit"] == "move_tensor" or (edit["edit"] == "set_tensor" and edit["now"] is not None)
            if is_put and "before" in edit:
                order.put(edit["name"], edit["before"] if edit["before"] in order.next else None)
        self.state.table = list(order)

    def _forget_circular(self) -> None:
        """A tensor that was carried back is made of what was made of it. Of recipes that read each other, the new ones hold."""
        new = {name for name, row in self.noted.items() if row is not None}
        for name in self._made_of(new) - new:
            if not new.isdisjoint(self._inputs(name)) and name in self._made_of({name}):
                del self.state.recipes[name]

    def _made_of(self, names: set[str]) -> set[str]:
        """Those with a recipe that the recipes of these read, themselves or through others."""
        found: set[str] = set()
        wanted = list(names)
        while wanted:
            read = [item for item in self._inputs(wanted.pop()) if item in self.state.recipes and item not in found]
            found.update(read)
            wanted += read
        return found

    def _inputs(self, name: str) -> list[str]:
        return inputs_of(self.state.expanded(self.state.recipes[name]["recipe"]))


class _Order:
    """Keys in an order that is changed without a look at all of them."""

    def __init__(self, keys: Iterable[str], remembered: list[str]) -> None:
        self.next: dict[str | None, str | None] = {}  # None is before the first and behind the last
        self.previous: dict[str | None, str | None] = {}
        self.remembered = remembered
        self.places = {key: index for index, key in enumerate(remembered)}
        last: str | None = None
        for key in keys:
            self.next[last], self.previous[key] = key, last
            last = key
        self.next[last], self.previous[None] = None, last

    def follower(self, key: str, present: Mapping[str, Any]) -> str | None:
        """The first one present that came after the key in the order that is remembered."""
        behind = range(self.places[key] + 1, len(self.remembered)) if key in self.places else ()
        return next((self.remembered[index] for index in behind if self.remembered[index] in present), None)

    def put(self, key: str, before: str | None) -> None:
        """Puts a key before another one; at the end, if before none. A key that stands somewhere is taken from there."""
        if key == before:
            return
        if key in self.next:
            self.next[self.previous[key]], self.previous[self.next[key]] = self.next[key], self.previous[key]
        first = self.previous[before]
        self.next[first] = self.previous[before] = key
        self.next[key], self.previous[key] = before, first

    def __iter__(self) -> Iterator[str]:
        key = self.next[None]
        while key is not None:
            yield key
            key = self.next[key]


def _check_shape(row: Row, shape: list[int]) -> None:
    if shape != row["shape"]:
        raise EditError(f"tensor {row['name']} would have the shape {shape}, not {row['shape']}")


def _is_row(now: Any) -> bool:
    """A row that is put in; otherwise members, by pointers."""
    return isinstance(now, Mapping) and not all(key.startswith("/") for key in now)


def _tensors(module: torch.nn.Module) -> list[Mapping[str, torch.Tensor | None]]:
    """Parameters, buffers, and those that were never registered."""
    return [module._parameters, module._buffers, {key: item for key, item in vars(module).items() if torch.is_tensor(item)}]


def _is_same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """The same class, the same tensors in the same order, the same configuration. A bare module computes nothing, and the
    flag of one that torch.export made is not that of the document."""
    for ours, theirs in zip(_tensors(one), _tensors(other), strict=True):
        if list(ours) != list(theirs) or any(ours[key] is not theirs[key] for key in ours):
            return False
    # Each has a class of its own
    is_program = isinstance(one, torch.fx.GraphModule) and isinstance(other, torch.fx.GraphModule)
    is_alike = one.code == other.code if is_program else type(one) is type(other)
    is_equal = is_alike and one._non_persistent_buffers_set == other._non_persistent_buffers_set
    is_in_same_mode = is_program or one.training == other.training or type(one) is torch.nn.Module
    return is_equal and is_in_same_mode and modules.config_of(one) == modules.config_of(other)


def _exchanged(here: Iterable[str], was: Iterable[str] | None, now: Iterable[str] | None) -> list[str]:
    """Names that came come, and those that went go. Of the others each stays as it is here: torch.export makes modules whose
    checkpoints have the constants that the document's lack."""
    gone, kept = set(was or ()) - set(now or ()), list(here)
    came = [name for name in now or () if name not in set(was or ()) and name not in kept]
    return [name for name in kept if name not in gone] + came


def _changed(row: Row, was: Mapping[str, Any], now: Mapping[str, Any], what: str) -> Row:
    """A copy of a row with members exchanged. Its arguments have to be what they were; the rest may be known here in other
    words."""
    made = {
        key: dict(item) if isinstance(item, dict) else list(item) if isinstance(item, list) else item
        for key, item in row.items()
    }
    for pointer in [*was, *(key for key in now if key not in was)]:
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]
        holder: Any = made
        for token in tokens[:-1]:
            holder = holder.setdefault(token, {}) if isinstance(holder, dict) else holder[int(token)]
        last: Any = tokens[-1] if isinstance(holder, dict) else int(tokens[-1])
        if (
            tokens[0] in ("op", "target", "args", "kwargs", "parameters", "buffers")
            and pointer in was
            and holder[last] != was[pointer]
        ):
            raise EditError(f"{what}: {pointer} is {holder[last]!r}, not {was[pointer]!r}")
        if pointer in now:
            holder[last] = now[pointer]
        else:
            holder.pop(last, None)
    return made
