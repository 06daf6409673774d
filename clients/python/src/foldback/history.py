"""What became of a live module: the runs that led to it, and its document, rows of which hold as long as nobody changes
them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
import torch.fx

from .fingerprint import Fingerprint
from .fx import Document, Row, build, constants_of, module_rows, node_row
from .infer import are_said
from .marks import MARKS
from .recipes import inputs_of
from .run import Run
from .runs import RunEdits, Runs
from .service import Problem
from .tensors import State, TensorTable, has_changed, restore, value_of

_TARGETS = (("node", "target"), ("was", "/target"), ("now", "/target"))  # where an edit of a node has them
Answer = TypeVar("Answer")
Asked = TypeVar("Asked", bound=Runs)
TYPES = [""]  # the owners, and the marks, of a run that no transformation asked for


@dataclass
class Step:
    """A run that led to the module, with what it takes to do it again in another service."""

    run: str
    kind: str  # optimize, external or reverse
    source: Document | str  # or its id, where the runs before it made it
    result: Document | None = None  # of an external one
    passes: list[Any] = field(default_factory=list)  # as sent: of optimize passes, of reverse positions
    owners: list[str] = field(default_factory=list)  # of each pass of the run the signature of the transformation
    marks: list[str] = field(default_factory=list)  # of each pass of the run its own signature
    undone: set[int] = field(default_factory=set)  # positions of passes that were taken out since
    rests: set[str] = field(default_factory=set)  # runs of the passes that were left when others were taken out
    of: int = -1  # of a reverse: the step
    name: str = ""  # of an external one
    before: tuple[Document, str, Document] | None = None  # of an external one: the source, its id, and how this client wrote it
    own: tuple[str, str] | None = None  # of an external one: the signature of the transformation here, and in the service
    marked: list[str] = field(default_factory=list)  # of an external one: the nodes that it marked
    is_reversible: bool = True
    preserves_computation: bool = True

    @staticmethod
    def of_types(run: str, source: Document | str) -> Step:
        """The run that records what the tracer did not. An undo leaves it, for it changes no program."""
        return Step(run, "optimize", source, None, ["RecordTypes"], list(TYPES), list(TYPES), undone={0})

    def is_of(self, run: str) -> bool:
        """Whether this is the id of the step's run, or of one that was made of the passes that are left of it."""
        return run == self.run or run in self.rests


@dataclass
class History:
    """The runs that led to a live module, and its document after the last one. Copies and pickles of the module have it,
    too."""

    steps: list[Step] = field(default_factory=list)
    graph: str | None = None  # the id of the module's document, if the service has it
    document: Document | None = None  # that document, if it was needed here
    seen: Document | None = None  # of the module, as this client wrote it at that time
    fingerprint: Fingerprint | None = None  # of the module at that time; a copy of the module has none
    applied: list[tuple[int, str]] = field(default_factory=list)  # runs whose edits were applied: their places among the steps
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)  # in order: by name what `meta` says
    is_typed: bool = False  # whether the document has what the service says of types
    within: Any = None  # the user's transformation that is at work
    unrecorded: str = ""  # says which transformation of the user's has no run, and why
    has_examples: bool = False  # whether it has what calls with examples say, if there are any

    def __copy__(self) -> History:
        steps = [replace(step, undone=set(step.undone), rests=set(step.rests)) for step in self.steps]
        return replace(self, steps=steps, applied=list(self.applied), nodes=dict(self.nodes))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "fingerprint": None, "within": None}

    @staticmethod
    def of(module: torch.fx.GraphModule) -> History:
        """The history of a module; the module keeps it from now on, if it had none."""
        restore(module)
        state = State.of(module)
        if state.history is None:
            state.history = History()
        state.keep_in(module)
        history: History = state.history
        return history

    def note(self, module: torch.fx.GraphModule, graph: str, look: Look | None = None, edits: Iterable[Edit] = ()) -> None:
        """The module is what this graph says, from now on until somebody changes it. `look` was before these edits."""
        table = TensorTable(module)
        seen = build(module) if look is None or are_said(module) else _seen_after(module, table, look.now, edits)
        self.graph, self.document, self.seen = graph, None, seen
        self.note_nodes(module)
        self.fingerprint = Fingerprint(module, constants_of(table))

    def asked(self, client: Asked, request: Callable[[Asked], Answer]) -> Answer:
        """What the service answers. One that does not know the module's runs learns them first."""
        try:
            return request(client)
        except Problem as problem:
            if problem.code not in ("unknown-graph", "unknown-run") or not self.steps:
                raise
            self.replay(client)
            return request(client)

    def written(self, client: Runs) -> Document | None:
        """The document of the graph that the module was."""
        if self.document is None and self.graph is not None:
            graph = self.graph
            self.document = self.asked(client, lambda client: client.graph(graph))
        return self.document

    def note_nodes(self, module: torch.fx.GraphModule) -> None:
        """A pickle has the code and no nodes."""
        self.nodes = {node.name: _kept(node) for node in module.graph.nodes}

    def note_marks(self, node: torch.fx.Node) -> None:
        """Marks that somebody set after the last call."""
        if node.name in self.nodes:
            self.nodes[node.name] = _kept(node)

    def note_applied(self, module: torch.fx.GraphModule, run: str) -> None:
        """The module is what this run made, from now on until somebody changes it."""
        self.applied.append((len(self.steps) + len(self.applied), run))
        self.document, self.graph, self.seen, self.fingerprint = None, None, build(module), None
        self.note_nodes(module)

    def settle(self, client: Runs) -> None:
        """Makes steps of the runs whose edits were applied."""
        while self.applied:
            place, run_id = self.applied[0]
            run = client.run(run_id)
            source, result = client.graph(run["source"]), client.graph(run["result"])
            self._insert(place, self._step_of(run, source, result))
            if place == len(self.steps) - 1:
                self.document, self.graph = result, run["result"]
            del self.applied[0]

    def _insert(self, place: int, made: Step) -> None:
        for step in self.steps:
            step.of += step.of >= place
        self.steps.insert(place, made)

    def _step_of(self, run: dict[str, Any], source: Document, result: Document) -> Step:
        marks = [row["signature"] for row in run["passes"]]
        if run["kind"] in ("optimize", "external"):
            sent = [{"name": row["name"], "params": row.get("params", {})} for row in run["passes"]]
            said = {"is_reversible": run["reversible"], "preserves_computation": run["preserves_computation"]}
            return Step(run["id"], run["kind"], source, result, sent, list(marks), marks, name=sent[0]["name"], **said)
        at = next((at for at, step in enumerate(self.steps) if step.is_of(run["of_run"])), -1)
        positions: list[Any] = []
        if at >= 0:
            positions = [place for place, mark in enumerate(self.steps[at].marks) if mark in marks]
            self.steps[at].undone |= set(positions)
        return Step(run["id"], "reverse", source, None, positions, of=at)

    def find(self, owner: str) -> list[tuple[int, list[int]]]:
        """The steps in which this transformation took part and was not undone, and the positions of its passes."""
        found = []
        for index, step in enumerate(self.steps):
            positions = [at for at, other in enumerate(step.owners) if other == owner and at not in step.undone]
            found += [(index, positions)] if positions else []
        return found

    def replay(self, client: Runs) -> None:
        """Does all runs again, in a service that does not know them."""
        for step in self.steps:
            if step.kind == "optimize":
                run = client.optimize(step.source, step.passes)
            elif step.kind == "external":
                assert step.result is not None
                run = client.record(
                    step.source,
                    step.result,
                    step.name,
                    reversible=step.is_reversible,
                    preserves_computation=step.preserves_computation,
                    marked=step.marked,
                )
            else:
                run = client.reverse(self.steps[step.of].run, step.passes, graph=step.source)
            step.run = run["id"]


Edit = Mapping[str, Any]


def _kept(node: torch.fx.Node) -> dict[str, Any]:
    return {key: node.meta[key] for key in ("foldback", MARKS) if key in node.meta}


# ---- runs that were applied by their edits --------------------------------------------------------------------------------


def last_step(client: Runs, module: torch.fx.GraphModule) -> tuple[Step, Document | str]:
    """The last run that led to the module and was not undone, and the module as it is now: a document, or its id."""
    history = History.of(module)
    history.settle(client)
    for step in reversed(history.steps):
        if step.kind != "reverse" and not (step.owners and step.undone >= set(range(len(step.owners)))):
            return step, look_at(module, client).sent
    raise ValueError("no run that is not undone led to this module; apply_edits(module, client.edits(run)) notes one")


def reverse_of_the_rest(
    client: Runs, step: Step, positions: list[int], document: Document | str, *, include: Iterable[str] = ()
) -> Run:
    """Where another pass of the run was taken out of a module that was trained, no stored graph is like the module. A run of
    the passes that are left makes one. Raises Problem where that does not help."""
    if step.kind != "optimize" or not step.undone or len(step.passes) != len(step.owners):
        return client.reverse(step.run, positions, graph=document, include=include)
    left = [at for at in range(len(step.passes)) if at not in step.undone]
    rest = client.optimize(step.source, [step.passes[at] for at in left])
    step.rests.add(rest["id"])
    return client.reverse(rest, [left.index(at) for at in positions], graph=document, include=include)


def reverse_live(
    client: Runs, module: torch.fx.GraphModule, passes: Sequence[Any] | None, *, include: Iterable[str] = ()
) -> Run:
    """client.reverse of a module by the last run that led to it and was not undone."""
    step, now = last_step(client, module)
    try:
        return client.reverse(step.run, passes, graph=now, include=include)
    except Problem as problem:
        if problem.code != "conflict":
            raise
        positions = _positions(step, passes)
        if not step.undone or not positions:
            raise
        return reverse_of_the_rest(client, step, positions, now, include=include)


def _positions(step: Step, passes: Sequence[Any] | None) -> list[int]:
    """Of passes of a step that are named, or given by their place; all that are left, if none are."""
    left = [at for at in range(len(step.owners)) if at not in step.undone]
    if passes is None:
        return left
    names = [one["name"] if isinstance(one, dict) else one for one in step.passes]
    wanted = [one["name"] if isinstance(one, dict) else one for one in passes]
    return [at for at in left if at in wanted or (len(names) == len(step.owners) and names[at] in wanted)]


def carried_back(module: torch.fx.GraphModule, edits: RunEdits) -> RunEdits | None:
    """The edits of the same undo, of the module as it is now: they take along what its tensors learnt. None where none do."""
    undo = edits.client.run(edits.run)
    if undo["kind"] not in ("reverse", "rollback"):
        return None
    history = History.of(module)
    history.settle(edits.client)
    step = next((step for step in history.steps if step.is_of(undo["of_run"])), None)
    if step is None:
        return None
    marks = [row["signature"] for row in undo["passes"]]
    positions = [at for at, mark in enumerate(step.marks) if mark in marks]
    try:
        return edits.client.edits(edits.client.reverse(step.run, positions, graph=look_at(module, edits.client).sent))
    except Problem:
        return None


# ---- the module's document ------------------------------------------------------------------------------------------------


class Look:
    """A module as it is. Rows that nobody changed since the last run are the service's, with recipes and shapes."""

    def __init__(self, now: Document, graph: str | None, document: Callable[[], Document]) -> None:
        self.now = now  # its document, as this client writes it
        self.graph = graph  # the id of its document, if the service has it
        self._document = document

    @property
    def document(self) -> Document:
        """The module's document. The service may be asked for rows of it."""
        return self._document()

    @property
    def sent(self) -> Document | str:
        """What tells the service of the module."""
        return self.graph or self.document


def look_at(module: torch.fx.GraphModule, client: Runs) -> Look:
    """Looks at a module: builds its document, unless nobody changed it since the last run, and takes over the service's rows
    where they hold still. Raises Problem where the service refuses to give them."""
    history = History.of(module)
    graph, seen = history.graph, history.seen
    if graph is not None and seen is not None and _is_untouched(module, history):
        return Look(seen, graph, lambda: history.written(client) or {})
    now, known = build(module), history.written(client)
    if known is None or seen is None:
        return Look(now, None, lambda: now)
    if not _is_alike(now, seen):  # a transformation of the user's that was undone leaves what was there before it
        befores = [step.before for step in reversed(history.steps) if step.before is not None]
        known, graph, seen = next((before for before in befores if _is_alike(now, before[2])), (known, graph, seen))
    made = _with_known_rows(module, now, known, seen)
    return Look(now, graph if made == known else None, lambda: made)


def _with_known_rows(module: torch.fx.GraphModule, now: Document, known: Document, seen: Document) -> Document:
    made = {**known, "nodes": [], "modules": _overlaid(known["modules"], seen["modules"], now["modules"], "path")}
    made["nodes"] = _overlaid(known["nodes"], seen["nodes"], now["nodes"], "name")
    changed = {row["name"] for row, old in zip(now["nodes"], made["nodes"], strict=True) if row is old}
    touched = {row["path"] for row, old in zip(now["modules"], made["modules"], strict=True) if row is old}
    if not are_said(module):  # what was found of nodes, before somebody changed them or what they read
        stale = _dependents(module, changed, touched) & {row["name"] for row in seen["nodes"]}
        made["nodes"] = [_without_types(row) if row["name"] in stale else row for row in made["nodes"]]
    made["tensors"] = _tensors(module, known, now)
    return made


def _is_untouched(module: torch.fx.GraphModule, history: History) -> bool:
    """Whether nobody changed the module, or trained what a pass made, since the last run."""
    if history.fingerprint is None or not history.fingerprint.is_of(module):
        return False
    state = State.of(module)
    tensors = TensorTable(module).tensors
    return not any(has_changed(row, tensors, state) for name, row in state.recipes.items() if name in tensors)


def _is_alike(one: Document, other: Document) -> bool:
    return bool(one["nodes"] == other["nodes"] and one["modules"] == other["modules"])


def _seen_after(module: torch.fx.GraphModule, table: TensorTable, before: Document, edits: Iterable[Edit]) -> Document:
    """What `build` says of nodes and modules, where no tracer recorded types: of what no edit names, what it said before."""
    names: set[str] = set()
    paths: set[str] = set()
    for edit in edits:
        if edit["edit"].endswith("_node"):
            names.add(edit["node"]["name"] if "node" in edit else edit["name"])
            paths |= _paths_in(edit)
        elif edit["edit"].endswith("_module"):
            paths.add(edit["path"])
    rows = {row["name"]: row for row in before["nodes"] if row["name"] not in names}
    nodes = [rows.get(node.name) or node_row(node) for node in module.graph.nodes]
    known = {row["path"]: row for row in before["modules"] if row["path"] not in paths and "graph" not in row}
    return {"nodes": nodes, "modules": module_rows(module, table, known=known)}


def _paths_in(edit: Edit) -> set[str]:
    """Of modules that a node calls, or from which it reads, before or after an edit."""
    targets = [edit[key].get(member) for key, member in _TARGETS if isinstance(edit.get(key), Mapping)]
    return {path for target in targets if target is not None for path in (target, target.rpartition(".")[0])}


def _overlaid(known: list[Row], seen: list[Row], now: list[Row], key: str) -> list[Row]:
    """Of each row the one that is known, if it is as it was seen then."""
    knowns, seens = {row[key]: row for row in known}, {row[key]: row for row in seen}
    return [knowns[row[key]] if row[key] in knowns and seens.get(row[key]) == row else row for row in now]


def _dependents(module: torch.fx.GraphModule, nodes: set[str], paths: set[str]) -> set[str]:
    """Nodes of which the shape may have changed, with those that these nodes and modules reach."""
    found: set[str] = set()
    for node in module.graph.nodes:
        target = str(node.target)
        calls = node.op in ("call_module", "get_attr") and any(path and (target + ".").startswith(path + ".") for path in paths)
        owner = target.rpartition(".")[0] if node.op == "get_attr" else None
        if node.name in nodes or calls or owner in paths or any(given.name in found for given in node.all_input_nodes):
            found.add(node.name)
    return found


def _without_types(row: Row) -> Row:
    return {**row, "meta": {key: item for key, item in row["meta"].items() if key not in ("shape", "dtype", "device")}}


def _tensors(module: torch.fx.GraphModule, known: Document, now: Document) -> list[Row]:
    """Recipes go on holding for what they made and nobody changed; of what changed, the values or a digest."""
    table, state = TensorTable(module), State.of(module)
    rows, current = {row["name"]: row for row in known["tensors"]}, {row["name"]: row for row in now["tensors"]}
    made: dict[str, Row] = {}
    for name, row in current.items():
        old = rows.get(name)
        if old is None or "recipe" not in old or "recipe" in row:
            same = old is not None and {**old, "data": None} == {**row, "data": None} and ("data" not in row or "data" in old)
            made[name] = old if same and old is not None and old.get("data") == row.get("data") else row
        elif {**row, "recipe": None, "data": None} != {**old, "recipe": None, "data": None}:
            made[name] = row
        else:
            made[name] = {**row, **value_of(table.tensors[name])} if has_changed(old, table.tensors, state) else old
    wanted = [name for row in made.values() for name in _read(row)]
    while wanted:
        name = wanted.pop()
        if name not in made and name in rows:
            made[name] = rows[name]
            wanted += _read(rows[name])
    order = {row["name"]: index for index, row in enumerate(known["tensors"])}
    return sorted(made.values(), key=lambda row: order.get(row["name"], len(order)))


def _read(row: Row) -> Iterator[str]:
    yield from inputs_of(row["recipe"]) if "recipe" in row else ()
