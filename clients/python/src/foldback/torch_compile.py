"""The backend of `torch.compile(model, backend="foldback")`.

Dynamo hands parameters and buffers to a backend as inputs. Here they become attributes again, the same objects, so that the
passes see weights; afterwards they are inputs again, as every backend that comes next expects. What the passes computed from
weights (a merged or scaled weight) is one more input, which is computed anew when the weights that it was made from are
others, or have other values: one graph may serve several modules, and a model may load new weights.
"""

from __future__ import annotations

import base64
import contextlib
import keyword
import math
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.eval_frame import OptimizedModule
from torch._dynamo.exc import TorchDynamoException
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from . import private
from .ancestry import makers_of
from .client import Problem
from .edits import Edit, Replay
from .fx import Document, build
from .modules import put
from .optimization import Run
from .packing import is_of_onednn
from .recipes import evaluate_finite, inputs_of
from .shapes import meta_of
from .tensors import State, TensorTable, tensor_of

Compiled = Callable[..., Any]
Then = str | Callable[[GraphModule, list[Any]], Compiled]

TESTED = ("2.9.1", "2.13.0", "2.14.1")  # versions of PyTorch
_OPTIONS = {"check", "passes", "then"}
_STEP = re.compile(r"\._(modules|parameters|buffers)\['([^']*)'\]")
_OUTSIDE = re.compile(r"G\[|L\['self'\]\.")  # the name of a source that is no argument of the call
# Methods that change the shape of what they are called on: the shape that Dynamo notes is the one after the last of them.
_RESHAPES_ITS_INPUT = {
    "as_strided_", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_",
}
_MOST_CHANGES = 8  # of weights from call to call, before the captured graph takes over
_MOST_MODULES = 256  # that one graph keeps computed weights of


class _LeftAlone(Exception):
    """A captured graph that no pass may change: `why`."""


def _why(error: Exception) -> str:
    """The reason to leave a graph alone. Errors of Python's own come from parts of PyTorch that are different in another
    version."""
    if isinstance(error, (AttributeError, ImportError, LookupError, NameError, TypeError)):
        return f"{type(error).__name__}: {error}; {_versions()}"
    return str(error) or type(error).__name__


def _versions() -> str:
    return f"PyTorch is {torch.__version__}, and the backend is tested on {', '.join(TESTED)}"


class CompiledRun(Run):
    """A run on a graph that Dynamo captured, as the service describes it.

    Attributes:
        model: which model the graph belongs to: the name of its class, with a number from the second model of that class on.
        frame: Dynamo's id of the compilation, such as "0/1": the part of the model, and which of its recompilations.
        nodes: the number of the graph's nodes, before and after the passes.
    """

    model: str = ""
    frame: str = ""
    nodes: tuple[int, int] = (0, 0)


def backend(
    graph_module: GraphModule, inputs: list[Any], *, options: Mapping[str, Any] | None = None, **others: Any
) -> Compiled:
    """Runs passes on a graph that Dynamo captured. `options`: "passes" as in `Client.optimize`, ["inference"] unless given;
    "then" is the backend, by its name or as a function, that gets the result, none unless given; with "check" the first call of
    each graph is computed twice, by the result and as captured: True, or the distance that is allowed, relative to the largest
    magnitude of an output. Where they are further apart, a warning says so, and the graph stays as it was captured.

    The graph stays as it was captured when gradients, training mode or autocast are on, when it writes to its weights, and when
    the service cannot be reached or refuses the graph: a warning says so once for each model. Raises ValueError for options and
    passes that do not exist.
    """
    unknown = sorted((set(options or ()) - _OPTIONS) | set(others))
    if unknown:
        raise ValueError(f'backend="foldback" has no option {unknown[0]!r}; it has {", ".join(sorted(_OPTIONS))}')
    passes = _listed((options or {}).get("passes", ["inference"]))
    then = _backend_of((options or {}).get("then"))
    check = _checked((options or {}).get("check", False))
    model = _models.of(_Place.now(), graph_module)
    try:
        return _optimized(graph_module, inputs, passes, then, check, model)
    except TorchDynamoException:  # Dynamo begins anew, or leaves the frame out, because the next backend says so
        raise
    except Exception as error:  # whatever it is, the model goes on, unless the caller named what does not exist
        if isinstance(error, Problem) and str(error.body.get("pointer", "")).startswith("/passes"):
            raise ValueError(f'backend="foldback": {error.body["detail"]}') from error
        model.warn(_why(error))
    return then(graph_module, inputs)


def compiled_runs(model: torch.nn.Module | None = None) -> list[CompiledRun]:
    """The runs on graphs that `torch.compile(…, backend="foldback")` captured in this process, in their order: one for each
    part of a model between graph breaks, and for each recompilation. With `model`, only those of this model."""
    return _models.runs(getattr(model, "_orig_mod", model))


def _listed(passes: Any) -> list[Any]:
    listed = [passes] if isinstance(passes, (str, Mapping)) or not isinstance(passes, Sequence) else list(passes)
    for one in listed:
        if not isinstance(one, (str, Mapping, list, tuple)):
            raise ValueError(f'"passes" has names, {{"name": …, "params": {{…}}}} and lists of these, not {one!r}')
    return listed


def _as_it_is(graph_module: GraphModule, _: list[Any]) -> Compiled:
    return graph_module


def _backend_of(then: Then | None) -> Callable[[GraphModule, list[Any]], Compiled]:
    if then is None:
        return _as_it_is
    found: Any = lookup_backend(then) if isinstance(then, str) else then
    if not callable(found):
        raise ValueError(f'"then" is the name of a backend or a function, not {then!r}')
    return found  # type: ignore[no-any-return]


def _checked(check: Any) -> _Check | None:
    if check is False or check is None:
        return None
    if check is not True and (not isinstance(check, (int, float)) or not 0 <= check < math.inf):
        raise ValueError(f'"check" is True, or the distance that is allowed, not {check!r}')
    return _Check(None if check is True else float(check))


# ---- what is compiled -----------------------------------------------------------------------------------------------------


@dataclass
class _Place:
    """Where Dynamo is: the names of the frame that it compiles, by which sources are found, and the frame's code."""

    names: dict[str, Any]
    code: Any

    @staticmethod
    def now() -> _Place:
        try:
            from torch._dynamo.symbolic_convert import InstructionTranslator

            translator = InstructionTranslator.current_tx()
            output = translator.output
            return _Place({"L": output.local_scope, "G": output.global_scope}, output.root_tx.f_code)
        except Exception:  # another version of PyTorch
            return _Place({}, None)

    def find(self, expression: str) -> Any:
        """What a source's name means; None where it cannot be said."""
        try:
            return eval(expression, {"__builtins__": {"type": type, "len": len}}, dict(self.names))
        except Exception:
            return None


@dataclass
class _Lifted:
    """A parameter or buffer that Dynamo made an input."""

    place: int  # among the inputs
    node: Node
    tensor: torch.Tensor
    source: str  # as Python: L['self']._modules['dense']._parameters['weight']

    @property
    def root(self) -> str:
        found = _STEP.search(self.source)
        return self.source[: found.start()] if found else self.source.rpartition(".")[0]

    @property
    def owner(self) -> str:
        steps = list(_STEP.finditer(self.source))
        return self.source[: steps[-1].start()] if steps else self.root

    @property
    def path(self) -> str:
        return ".".join(key for _, key in _STEP.findall(self.source)) or self.node.name


def _source_of(node: Node) -> str | None:
    """The source of an input, as Python; None if Dynamo does not say it."""
    name = getattr(getattr(node, "_dynamo_source", None), "name", None)
    return name() if callable(name) else name  # a method in PyTorch 2.9


def _lifted(graph_module: GraphModule) -> Iterator[_Lifted]:
    for place, node in enumerate(graph_module.graph.find_nodes(op="placeholder")):
        name, tensor = _source_of(node), getattr(node.meta.get("grapharg"), "example", None)
        if name is None or not isinstance(tensor, torch.Tensor) or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            continue
        steps = list(_STEP.finditer(name))
        is_held = bool(steps) and steps[-1].end() == len(name) and steps[-1][1] != "modules"
        if is_held or (isinstance(tensor, torch.nn.Parameter) and _OUTSIDE.match(name)):
            yield _Lifted(place, node, tensor, name)


# ---- which graphs -----------------------------------------------------------------------------------------------------------


def _check_sources(captured: GraphModule, inputs: Sequence[Any], place: _Place) -> None:
    """Raises _LeftAlone unless Dynamo says what it compiles and where the weights are from."""
    if not place.names:
        raise _LeftAlone(f"Dynamo does not say what it compiles; {_versions()}")
    for node, value in zip(captured.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if isinstance(value, torch.nn.Parameter) and (_source_of(node) is None or "grapharg" not in node.meta):
            raise _LeftAlone(f"Dynamo does not say where the weight {node.name} is from; {_versions()}")


def _check_mode(lifted: Sequence[_Lifted], graph_module: GraphModule, place: _Place) -> None:
    """Raises _LeftAlone unless the graph is for inference, and its weights are not written to."""
    if torch.is_grad_enabled():
        raise _LeftAlone("gradients are on; call the model under torch.no_grad()")
    devices = {one.tensor.device.type for one in lifted} | {"cpu"}
    if any(torch.is_autocast_enabled(device) for device in devices):
        raise _LeftAlone("autocast is on; convert the model to its dtype instead")
    for one in lifted:
        owner = place.find(one.owner)
        if getattr(owner, "training", False):
            raise _LeftAlone("the model is in training mode; call model.eval()")
        if isinstance(one.tensor, FakeTensor) or one.tensor.is_meta:
            raise _LeftAlone(f"{one.path} has no values")
        if one.tensor.is_inference():
            raise _LeftAlone(f"{one.path} was made in torch.inference_mode(), where changes of a tensor cannot be noticed")
        if getattr(one.node.meta.get("example_value"), "_version", 0):
            raise _LeftAlone(f"the model writes to its weight {one.path}")
    for node in graph_module.graph.nodes:
        if node.target is torch._C._set_grad_enabled and node.args != (False,):
            raise _LeftAlone("the model turns gradients on within")


# ---- passes -----------------------------------------------------------------------------------------------------------------


def _optimized(
    captured: GraphModule, inputs: list[Any], passes: list[Any],
    then: Callable[[GraphModule, list[Any]], Compiled], check: _Check | None, model: _Model
) -> Compiled:
    place = _Place.now()
    _check_sources(captured, inputs, place)
    lifted = list(_lifted(captured))
    _check_mode(lifted, captured, place)
    with torch.inference_mode(False), torch.no_grad():
        program, paths = _with_attributes(captured, lifted)
        document = build(program, name=model.name, has_bytes=False)
        client = private.client()
        frame = str(captured.meta.get("dynamo_compile_id", ""))
        run = client.optimize(
            document, passes, include=["graph"], note=f"torch.compile of {model.name}, {frame}", labels=model.labels(frame)
        )
        result = run.pop("graph")
        _apply(program, document, list(client.edits(run)), makers_of(run["passes"]))
        if then is not _as_it_is and any(is_of_onednn(node) for node in program.graph.nodes):
            raise _LeftAlone('the backend of "then" cannot trace the calls of oneDNN that FusePointwise makes: leave "then" '
                             'out, or use the preset "latency", and let Inductor make them')
        made = _with_inputs(captured, program, lifted)
        weights = _Weights(made.computed, result, paths, lifted, inputs)
    called = then(made.module, [*inputs, *_with_fixed_sizes(weights.values(inputs))])
    compiled = _Compiled(called, weights, captured, check, model)
    noted = CompiledRun(run)
    noted.model, noted.frame, noted.nodes = model.name, frame, (len(document["nodes"]), len(result["nodes"]))
    model.runs.append(noted)
    return compiled


def _with_fixed_sizes(computed: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """As the next backend sees them. Dynamo knows no source of these inputs, so none of their sizes may become a symbol."""
    context = torch._guards.TracingContext.try_get()
    mode = None if context is None else context.fake_mode
    return list(computed) if mode is None else [mode.from_tensor(one, static_shapes=True) for one in computed]


def _with_attributes(captured: GraphModule, lifted: Sequence[_Lifted]) -> tuple[GraphModule, dict[str, int]]:
    """A copy of the graph in which what was lifted is an attribute, with the places of these among the inputs by path."""
    by_node = {one.node: one for one in lifted}
    several = len({one.root for one in lifted}) > 1
    root, graph, copies = torch.nn.Module(), torch.fx.Graph(), dict[Node, Node]()
    for node in captured.graph.nodes:  # what was no input to begin with: constants, and graphs within
        if node.op in ("get_attr", "call_module"):
            _put(root, node.target, _attribute(captured, node.target))
    paths: dict[str, int] = {}
    has_shapes = not any(node.op == "call_method" and node.target in _RESHAPES_ITS_INPUT for node in captured.graph.nodes)
    for node in captured.graph.nodes:
        one = by_node.get(node)
        if one is None:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        else:
            path = one.path if not several and _is_free(root, one.path) and _can_be_said(one.path) else one.node.name
            _put(root, path, one.tensor)
            paths[path] = one.place
            copies[node] = graph.get_attr(path)
            copies[node].meta = dict(node.meta)
        if has_shapes:
            copies[node].meta["foldback"] = meta_of(node.meta.get("example_value"))
    return GraphModule(root, graph), paths


def _attribute(root: torch.nn.Module, path: str) -> Any:
    holder, _, key = path.rpartition(".")
    return getattr(root.get_submodule(holder), key)


def _is_free(root: torch.nn.Module, path: str) -> bool:
    """Whether neither the attribute nor one that it would be within is taken."""
    found: Any = root
    for key in path.split("."):
        if not isinstance(found, torch.nn.Module):
            return False
        if not hasattr(found, key):
            return True
        found = getattr(found, key)
    return False


def _can_be_said(path: str) -> bool:
    """Says if a document can hold a path, and PyTorch's code can read it. Keys of modules may have any character but a dot."""
    return path.isprintable() and not {*path} & {*"\"'\\"} and not any(map(keyword.iskeyword, path.split(".")))


def _put(root: torch.nn.Module, path: str, value: Any) -> None:
    holder, _, key = path.rpartition(".")
    if holder and not _is_module(root, holder):
        put(root, holder, torch.nn.Module())
    module = root.get_submodule(holder)
    if isinstance(value, torch.nn.Parameter):
        module.register_parameter(key, value)
    elif isinstance(value, torch.Tensor):
        module.register_buffer(key, value)
    else:
        setattr(module, key, value)


def _is_module(root: torch.nn.Module, path: str) -> bool:
    try:
        root.get_submodule(path)
    except AttributeError:
        return False
    return True


def _apply(program: GraphModule, document: Document, edits: list[dict[str, Any]], makers: Mapping[str, str]) -> None:
    known = {row["name"] for row in document["tensors"]}
    found: list[Edit] = []
    for edit in edits:
        is_of_weight = edit["edit"] == "set_tensor" and edit["name"] in known and edit["now"] is not None
        if is_of_weight and not _is_of_memory(edit):
            raise _LeftAlone(f"a pass would change the weight {edit['name']} itself")
        if not is_of_weight:
            found.append(edit)
    Replay(program, found, False, makers=makers).run()
    program.graph.lint()
    program.recompile()


def _is_of_memory(edit: dict[str, Any]) -> bool:
    """True if the edit only changes the memory format of a weight: the compiler chooses that itself."""
    return {*(edit["was"] or {}), *edit["now"]} <= {"/memory_format"}


@dataclass
class _WithInputs:
    module: GraphModule
    computed: dict[str, torch.Tensor]  # by name, in the order of the inputs that come after the captured ones


def _with_inputs(captured: GraphModule, program: GraphModule, lifted: Sequence[_Lifted]) -> _WithInputs:
    """The program with the inputs that were captured, and one more for each tensor that the passes computed."""
    graph, copies = torch.fx.Graph(), dict[Node, Node]()
    inputs = {node.target: _copied(graph, node) for node in captured.graph.find_nodes(op="placeholder")}
    lifted_of = {id(one.tensor): inputs[one.node.target] for one in lifted}
    table, state = TensorTable(program), State.of(program)
    computed: dict[str, torch.Tensor] = {}
    extra: dict[str, Node] = {}
    for node in program.graph.nodes:
        if node.op == "call_module" and not _has_no_computed(program, node.target, lifted_of, state, table):
            raise _LeftAlone(f"a pass made the module {node.target}")
        tensor = _attribute(program, node.target) if node.op == "get_attr" else None
        if isinstance(tensor, torch.Tensor) and id(tensor) not in lifted_of:
            name = table.name(tensor)
            if name in state.made and name not in extra:
                computed[name] = tensor.detach()
                extra[name] = graph.placeholder(f"computed_{len(extra)}")  # paths make no names: 0.weight, a.b and a_b
                extra[name]._dynamo_source = None
    for node in program.graph.nodes:
        tensor = _attribute(program, node.target) if node.op == "get_attr" else None
        if node.op == "placeholder":
            copies[node] = inputs[node.target]
        elif isinstance(tensor, torch.Tensor) and (id(tensor) in lifted_of or table.name(tensor) in extra):
            copies[node] = lifted_of.get(id(tensor)) or extra[str(table.name(tensor))]
        else:
            copies[node] = _copied(graph, node, copies.__getitem__)
    made = GraphModule(program, graph)
    made.meta = {key: item for key, item in captured.meta.items() if key != "foldback"}
    for key in ("_param_name_to_source", "_source_to_user_stacks"):
        if hasattr(captured, key):
            setattr(made, key, getattr(captured, key))
    return _WithInputs(made, computed)


def _has_no_computed(
    program: GraphModule, path: str, lifted_of: Mapping[int, Node], state: State, table: TensorTable
) -> bool:
    module = program.get_submodule(path)
    held = [*module.parameters(), *module.buffers()]
    return not any(id(tensor) in lifted_of or table.name(tensor) in state.made for tensor in held)


def _copied(graph: torch.fx.Graph, node: Node, copy_of: Callable[[Node], Node] | None = None) -> Node:
    made = graph.node_copy(node, copy_of) if copy_of is not None else graph.node_copy(node)
    made.meta = {key: item for key, item in node.meta.items() if key != "foldback"}
    if hasattr(node, "_dynamo_source"):
        made._dynamo_source = node._dynamo_source
    return made


# ---- computed weights -------------------------------------------------------------------------------------------------------


SAMPLES = 256  # elements


class _Version:
    """Weights, and what tells whether they have the same values still: PyTorch's counts of writes, and for writes through
    `.data`, which are not counted, a sample of the elements. Every call looks at it, so it is taken on the CPU only, and by
    views that are made once: making one takes twice the time of the look."""

    def __init__(self, tensors: Sequence[torch.Tensor], forget: Callable[[Any], None]) -> None:
        self.noted = [(weakref.ref(tensor, forget), tensor._version, tensor.data_ptr()) for tensor in tensors]
        self.views, self.samples, self.copied = list[torch.Tensor](), list[torch.Tensor](), list[tuple[int, torch.Tensor]]()
        for place, tensor in enumerate(tensors):
            if tensor.device.type != "cpu":
                continue
            sample = _sample(tensor)
            if sample.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
                self.views.append(sample)
                self.samples.append(sample.clone())
            else:  # of a part of another tensor
                self.copied.append((place, sample))

    def is_of(self, tensors: Sequence[torch.Tensor]) -> bool:
        return (
            all(
                noted() is tensor and version == tensor._version and address == tensor.data_ptr()
                for (noted, version, address), tensor in zip(self.noted, tensors, strict=True)
            )
            and all(map(torch.equal, self.samples, self.views))
            and all(torch.equal(sample, _sample(tensors[place])) for place, sample in self.copied)
        )


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Elements all over a tensor in the order of memory, in all of its columns by turns."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    flat = tensor.detach().permute(order).reshape(-1)
    step = max(1, flat.numel() // SAMPLES)
    while any(math.gcd(step, size) > 1 for size in tensor.shape[1:]):
        step -= 1
    return flat[::step]


@dataclass
class _Computed:
    """What was computed from one set of weights."""

    version: _Version
    tensors: list[torch.Tensor]
    changes: int = 0  # of the weights, without a call in between that found them as they were


class _Weights:
    """Tensors that are computed from weights, for each set of weights that the graph is called with."""

    def __init__(
        self,
        computed: Mapping[str, torch.Tensor],
        result: Document,
        places: Mapping[str, int],
        lifted: Sequence[_Lifted],
        inputs: Sequence[Any],
    ) -> None:
        self.rows = {row["name"]: row for row in result["tensors"]}
        self.places, self.names = dict(places), list(computed)
        self.device = next((tensor.device for tensor in computed.values()), torch.device("cpu"))
        self.watched = sorted({places[name] for made in computed for name in self._read(made)})
        self.strangers = 0  # sets of weights in a row that were never seen before
        self.lock = threading.Lock()
        self.known: dict[tuple[int, ...], _Computed] = {}
        by_place = {one.place: one.tensor for one in lifted}
        if any(inputs[place] is not by_place[place] for place in self.watched):
            raise _LeftAlone("the inputs that Dynamo gives are not its weights")
        self._note([by_place[place] for place in self.watched], list(computed.values()), 0)

    def _read(self, name: str) -> Iterator[str]:
        """The weights that a computed tensor is made from."""
        if name in self.places:
            yield name
        elif "recipe" in self.rows.get(name, {}):
            for item in inputs_of(self.rows[name]["recipe"]):
                yield from self._read(item)
        elif "data" not in self.rows.get(name, {}):  # not a constant either
            raise _LeftAlone(f"the result does not say how {name} is computed")

    def _note(self, given: Sequence[torch.Tensor], made: list[torch.Tensor], changes: int) -> None:
        key = tuple(map(id, given))
        while len(self.known) >= _MOST_MODULES and key not in self.known:
            self.known.pop(next(iter(self.known)), None)
        known = weakref.ref(self)

        def forget(_: Any) -> None:
            weights = known()
            if weights is not None:
                weights.known.pop(key, None)

        self.known[key] = _Computed(_Version(given, forget), made, changes)

    def values(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """The computed tensors for these inputs. Raises _LeftAlone when the weights change with almost every call."""
        if not self.names:
            return []
        given = [inputs[place] for place in self.watched]
        found = self.known.get(tuple(map(id, given)))
        if found is not None and found.version.is_of(given):
            self.strangers = found.changes = 0
            return found.tensors
        with self.lock:
            changes = 0 if found is None else found.changes + 1
            self.strangers += found is None
            if changes > _MOST_CHANGES or self.strangers > _MOST_MODULES:
                raise _LeftAlone("its weights change with almost every call")
            made = self._compute(inputs)
            self._note(given, made, changes)
            return made

    def _compute(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        made: dict[str, torch.Tensor] = {}

        def tensor(name: str) -> torch.Tensor:
            if name in self.places:
                return inputs[self.places[name]]  # type: ignore[no-any-return]
            if name not in made:
                row, dtype = self.rows[name], getattr(torch, self.rows[name]["dtype"])
                if "data" in row:
                    made[name] = tensor_of(base64.b64decode(row["data"]), dtype, row["shape"]).to(self.device)
                else:
                    made[name] = evaluate_finite(name, row["recipe"], tensor, dtype, self.device)
            return made[name]

        with torch.inference_mode(False), torch.no_grad():
            return [tensor(name) for name in self.names]


@dataclass
class _Check:
    """Compares what the result gives with what the captured graph gives."""

    allowed: float | None  # relative to the largest magnitude; None: 256 times the dtype's eps, and at most 0.05

    def difference(self, found: Any, captured: Any) -> str:
        """Names the first output that is further apart; "" if none is."""
        ours, theirs = tree_leaves(found), tree_leaves(captured)
        if len(ours) != len(theirs):
            return f"it gives {len(ours)} values instead of {len(theirs)}"
        said = (self._of_one(one, other) for one, other in zip(ours, theirs, strict=True))
        return next((f"output {i} {why}" for i, why in enumerate(said) if why), "")

    def _of_one(self, found: Any, captured: Any) -> str:
        if not isinstance(captured, torch.Tensor) or not isinstance(found, torch.Tensor):
            return "" if type(found) is type(captured) and bool(found == captured) else f"is {found!r} instead of {captured!r}"
        if (found.shape, found.dtype) != (captured.shape, captured.dtype):
            return f"has {list(found.shape)} of {found.dtype} instead of {list(captured.shape)} of {captured.dtype}"
        if not (captured.is_floating_point() or captured.is_complex()):
            return "" if torch.equal(found, captured) else "has other elements"
        allowed = min(256 * torch.finfo(captured.dtype).eps, 0.05) if self.allowed is None else self.allowed
        wide = torch.complex128 if captured.is_complex() else torch.float64
        ours, theirs = found.detach().to(wide), captured.detach().to(wide)
        is_finite = theirs.isfinite()
        if not torch.equal(ours[~is_finite].nan_to_num(0.5), theirs[~is_finite].nan_to_num(0.5)):
            return "is infinite or not a number elsewhere"
        apart, largest = (ours - theirs)[is_finite].abs(), theirs[is_finite].abs()
        if not apart.numel() or bool(apart.max() <= allowed * largest.max()):
            return ""
        return f"is {float(apart.max()):.3g} apart, where the largest magnitude is {float(largest.max()):.3g}"


class _Compiled:
    """What Dynamo calls: the result, with computed weights, or the captured graph where these cannot be had."""

    def __init__(
        self, compiled: Compiled, weights: _Weights, captured: GraphModule, check: _Check | None, model: _Model
    ) -> None:
        self.compiled, self.captured, self.check, self.model = compiled, captured, check, model
        self.weights: _Weights | None = weights

    def __call__(self, *inputs: Any) -> Any:
        weights = self._weights(inputs)
        if weights is None:
            return self.captured(*inputs)
        if self.check is not None:
            return self._call_twice(self.check, inputs, weights)
        return self.compiled(*inputs, *weights)

    def _call_twice(self, check: _Check, inputs: Sequence[Any], weights: Sequence[torch.Tensor]) -> Any:
        """The first call: of copies of the inputs, to which a graph may write, and with the same random numbers."""
        self.check = None
        copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in inputs]
        with torch.random.fork_rng():
            found = self.compiled(*copies, *weights)
        before = torch.get_rng_state()
        captured = self.captured(*inputs)
        why = "it draws random numbers, so that nothing can be compared"
        if torch.equal(before, torch.get_rng_state()):
            why = check.difference([found, *copies], [captured, *inputs])
            if why:
                why, self.weights = f"of what the passes made, {why}", None
        if why:
            self.model.warn(why)
        return captured

    def _weights(self, inputs: Sequence[Any]) -> list[torch.Tensor] | None:
        if self.weights is None:
            return None
        try:
            return self.weights.values(inputs)
        except Exception as why:
            self.model.warn(str(why))
            self.weights = None
            return None


# ---- models -----------------------------------------------------------------------------------------------------------------


class _Model:
    """What belongs together: the graphs of one module, between its graph breaks and for its shapes."""

    def __init__(self, name: str, owner: Any) -> None:
        self.name = name
        self.owner = weakref.ref(owner) if isinstance(owner, torch.nn.Module) else lambda: owner
        self.runs: list[CompiledRun] = []
        self.said: set[str] = set()

    def labels(self, frame: str) -> dict[str, str]:
        return {"model": self.name} | ({"frame": frame} if frame else {})

    def warn(self, why: str) -> None:
        if why not in self.said:
            self.said.add(why)
            warnings.warn(f'torch.compile(backend="foldback") leaves {self.name} as it was captured: {why}', stacklevel=3)

    def has(self, module: Any) -> bool:
        owner = self.owner()
        is_within = isinstance(owner, torch.nn.Module) and any(module is child for child in owner.modules())
        return owner is not None and (owner is module or is_within)


def _compiled_module() -> torch.nn.Module | None:
    """The outermost call of a module that is given to torch.compile, among those that are under way."""
    found: torch.nn.Module | None = None
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name in ("__call__", "_wrapped_call_impl"):
            module = frame.f_locals.get("self")
            if isinstance(module, OptimizedModule):
                found = module._orig_mod
            elif isinstance(module, torch.nn.Module) and module._compiled_call_impl is not None:
                found = module
        frame = frame.f_back  # type: ignore[assignment]
    return found


class _Models:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.models: list[_Model] = []
        self.counts: dict[str, int] = {}

    def of(self, place: _Place, graph_module: GraphModule) -> _Model:
        owner = self._owner(place, graph_module)
        with self.lock:
            for model in self.models:
                if owner is not None and model.has(owner):
                    return model
            name = type(owner).__name__ if isinstance(owner, torch.nn.Module) else getattr(place.code, "co_name", "graph")
            self.counts[name] = self.counts.get(name, 0) + 1
            made = _Model(name if self.counts[name] == 1 else f"{name}-{self.counts[name]}", owner)
            self.models.append(made)
            return made

    def _owner(self, place: _Place, graph_module: GraphModule) -> Any:
        """The module that was given to torch.compile and is being called; or else the module that the first weight is within;
        without weights the module whose method it is, or the code."""
        called = _compiled_module()
        if called is not None:
            return called
        with contextlib.suppress(AttributeError, TypeError):  # another version of PyTorch, of which the warning speaks
            for one in _lifted(graph_module):
                found = place.find(one.root)
                if isinstance(found, torch.nn.Module):
                    return found
        found = place.names.get("L", {}).get("self")
        return found if isinstance(found, torch.nn.Module) else place.code

    def runs(self, owner: torch.nn.Module | None) -> list[CompiledRun]:
        with self.lock:
            return [run for model in self.models if owner is None or model.has(owner) for run in model.runs]


_models = _Models()
