"""A model beside the program that an exporter made of it: what a call gives, and what it leaves behind."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import OutputKind
from torch.utils._pytree import tree_leaves, tree_map

from .tensors import child_path

Given = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Difference:
    """`when`: the call in which it shows; `what`: "result", "fails", "buffer", "parameter", "input", "gradient", "dtype" or
    "unread"; `where`: which of them; `detail`: a sentence."""

    when: str
    what: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.when}: {self.detail}"


@dataclass
class Comparison:
    """The differences that `compare` found. It is true if there are none."""

    differences: list[Difference] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # inputs that neither reads

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        return "\n".join(map(str, self.differences)) or "no difference"


def compare(
    module: torch.nn.Module,
    program: torch.export.ExportedProgram | torch.nn.Module,
    examples: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
) -> Comparison:
    """Calls a model and the program that an exporter made of it, on copies, and compares the results, and what is left in
    buffers, parameters and inputs. `examples` are the positional arguments, tensors of any shapes that both take.

    There are several calls: two after another, one with other numbers of the same shapes, with gradients, under autocast, with
    another default dtype; of an ExportedProgram also after it was saved and loaded. Numbers may differ by rounding. What a
    model draws at random is not compared. An input that the program does not read, although the model does, is a difference,
    and so is a weight of the checkpoint that nothing reads any more.

    Raises ValueError where the model itself fails on the examples, or where either has no numbers (meta and fake tensors).

        program = torch.export.export(model, (x, x))
        print(foldback.compare(model, program, (x, x)))  # other numbers: value 0 of the result is not the model's
    """
    found = Comparison()
    given = (tuple(examples), dict(kwargs or {}))
    forms = [("", _live(program))]
    if isinstance(program, torch.export.ExportedProgram):
        _compare_records(program, given, found)
        _find_unread_weights(module, program, found)
        try:
            forms.append(("saved and loaded, ", _live(_saved(program))))
        except Exception as error:
            said = str(error).strip().partition("\n")[0]
            found.differences.append(Difference("saved and loaded", "fails", "", f"torch.export.save or load fails: {said}"))
    for form, live in forms:
        for when, calls in _calls(given, seed=0):
            _compare_calls(module, live, calls, form + when, found)
    for when, mode in (("with gradients", torch.enable_grad), ("under autocast", _autocast), ("by float64", _wide)):
        _compare_mode(module, forms[0][1], given, when, mode, found)
    _find_unread_inputs(module, forms[0][1], given, found)
    return found


# ---- the calls ------------------------------------------------------------------------------------------------------------


def _calls(given: Given, seed: int) -> Iterator[tuple[str, list[Given]]]:
    yield "two calls", [given, given]
    yield "other numbers", [_varied(given, seed)]


def _varied(given: Given, seed: int) -> Given:
    """Other numbers of the same shapes: the same ones in another order, floating ones scaled. Each argument gets its own."""
    generator = torch.Generator().manual_seed(seed)

    def vary(value: Any) -> Any:
        if not _is_plain(value) or not value.numel():
            return value
        mixed = value.detach().reshape(-1)[torch.randperm(value.numel(), generator=generator)].reshape(value.shape)
        if value.is_floating_point() or value.is_complex():
            mixed = mixed * (0.5 + torch.rand(1, generator=generator).to(value.real.dtype))
        return mixed.to(value.dtype).requires_grad_(value.requires_grad)

    varied: Given = tree_map(vary, given)
    return varied


def _is_plain(value: Any) -> bool:
    is_tensor = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
    return bool(is_tensor and value.layout is torch.strided and value.device.type == "cpu")


@dataclass
class Outcome:
    """The results of calls, and the state that they left behind."""

    results: list[Any]
    left: dict[str, Any]  # by name: buffers, parameters, plain tensors that the model has, and numbers that changed
    inputs: list[Any]  # the arguments afterwards
    copied: torch.nn.Module


def outcome(module: torch.nn.Module, calls: Sequence[Given], model: torch.nn.Module, seed: int = 0,
            mode: Callable[[], contextlib.AbstractContextManager[Any]] = torch.no_grad) -> Outcome:
    """Calls a copy of the module on copies of the arguments."""
    memo: dict[int, Any] = {}
    for tensor in [*module.buffers(), *plain(module).values()]:
        memo[id(tensor)] = tensor.detach().clone()
    for parameter in module.parameters():
        memo[id(parameter)] = torch.nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
    _share_alike(module, memo)
    copied = copy.deepcopy(module, memo)
    results: list[Any] = []
    inputs: list[Any] = []
    with torch.random.fork_rng(), mode():
        torch.manual_seed(seed)
        for given in calls:
            args, kwargs = tree_map(lambda item: _copied(item), given)
            results += tree_leaves(copied(*args, **kwargs))
            inputs += tree_leaves((args, kwargs))
    numbers, names = plain(module, (int, float)), {*dict(model.named_buffers()), *plain(model)}
    changed = {key: value for key, value in plain(copied, (int, float)).items() if value != numbers.get(key, value)}
    left = {**dict(copied.named_parameters()), **dict(copied.named_buffers()), **plain(copied)}
    kept = {key: tensor for key, tensor in left.items() if key in names or isinstance(tensor, torch.nn.Parameter)}
    return Outcome(results, {**kept, **changed}, inputs, copied)


def _copied(item: Any) -> Any:
    return item.detach().clone().requires_grad_(item.requires_grad) if isinstance(item, torch.Tensor) else item


def _share_alike(module: torch.nn.Module, memo: dict[int, Any]) -> None:
    """Buffers that share memory share it in the copy as well, also in two dtypes."""
    by_memory: dict[int, list[torch.Tensor]] = {}
    for tensor in {id(one): one for one in [*module.buffers(), *plain(module).values()]}.values():
        if _is_plain(tensor) and tensor.numel():
            by_memory.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    for tensors in by_memory.values():
        if len(tensors) == 1 or any(tensor.is_conj() or tensor.is_neg() for tensor in tensors):
            continue
        storage = tensors[0].untyped_storage().clone()
        for tensor in tensors:
            alike = torch.empty(0, dtype=tensor.dtype)
            memo[id(tensor)] = alike.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def plain(module: torch.nn.Module, kinds: type | tuple[type, ...] = torch.Tensor) -> dict[str, Any]:
    """By path the tensors, or what else is asked for, in plain attributes."""
    children = list(module.named_modules())
    return {child_path(path, key): item for path, one in children
            for key, item in vars(one).items() if isinstance(item, kinds)}


def _live(program: torch.export.ExportedProgram | torch.nn.Module) -> torch.nn.Module:
    return program.module() if isinstance(program, torch.export.ExportedProgram) else program


def _saved(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


# ---- what differs -----------------------------------------------------------------------------------------------------------


def _compare_calls(module: torch.nn.Module, live: torch.nn.Module, calls: list[Given], when: str, found: Comparison) -> None:
    try:
        wanted = outcome(module, calls, module)
    except Exception as error:
        if when.endswith("other numbers"):
            return  # which the model may refuse
        raise ValueError(f"the model cannot be run on the examples: {error}") from error
    if any(isinstance(item, FakeTensor) for item in [*wanted.results, *wanted.left.values()]):
        raise ValueError("the model has a tensor without numbers (FakeTensor), which an export left in it")
    try:
        given = outcome(live, calls, module)
    except Exception as error:
        found.differences.append(Difference(when, "fails", "", f"the program fails, where the model does not: {error}"))
        return
    random = set(_places(wanted.results, outcome(module, calls, module, seed=1).results))
    for place, detail in _places(wanted.results, given.results).items():
        if place not in random:
            found.differences.append(Difference(when, "result", str(place), detail))
    parameters = dict(module.named_parameters())
    for name, value in wanted.left.items():
        if isinstance(value, torch.Tensor) and name in given.left and not is_close(value, given.left[name]) and not random:
            what = "parameter" if name in parameters else "buffer"
            found.differences.append(Difference(when, what, name, f"the program leaves another value in {name}"))
    for place, detail in _places(wanted.inputs, given.inputs).items():
        if not random:
            found.differences.append(Difference(when, "input", str(place), f"argument {place} is left with other numbers"))


def difference(wanted: list[Any], found: list[Any]) -> str:
    """Names the first results that differ; "" if none do."""
    return next(iter(_places(wanted, found).values()), "")


def _places(wanted: list[Any], found: list[Any]) -> dict[int, str]:
    if len(wanted) != len(found):
        return {-1: f"{len(found)} values instead of {len(wanted)}"}
    return {index: f"value {index} is not the model's" for index, (one, other) in enumerate(zip(wanted, found, strict=True))
            if isinstance(one, torch.Tensor) and not (isinstance(other, torch.Tensor) and is_close(one, other))}


def is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal, but for rounding."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.layout is not torch.strided or not (one.is_floating_point() or one.is_complex()):
        return one.layout is not torch.strided or torch.equal(one, other)
    wide = torch.complex128 if one.is_complex() else torch.float64
    near = torch.finfo(one.dtype).eps ** 0.5
    finite = one[one.isfinite()] if one.numel() else one
    scale = max(1.0, float(finite.detach().abs().max())) if finite.numel() else 1.0
    return torch.allclose(one.to(wide), other.to(wide), rtol=near, atol=near * scale, equal_nan=True)


# ---- modes that no input shows ---------------------------------------------------------------------------------------------


def _autocast() -> contextlib.AbstractContextManager[Any]:
    stack = contextlib.ExitStack()
    stack.enter_context(torch.no_grad())
    stack.enter_context(torch.autocast("cpu", torch.bfloat16))
    return stack


@contextlib.contextmanager
def _wide() -> Iterator[None]:
    was = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(was)


def _compare_mode(
    module: torch.nn.Module, live: torch.nn.Module, given: Given, when: str,
    mode: Callable[[], contextlib.AbstractContextManager[Any]], found: Comparison
) -> None:
    """Dtypes, and gradients: numbers differ by more than rounding there, where a compiler may cast elsewhere."""
    try:
        wanted = outcome(module, [given], module, mode=mode)
        reached = _reached(wanted)
    except Exception:
        return  # the model does not take the mode
    try:
        made = outcome(live, [given], module, mode=mode)
        learnt = _reached(made)
    except Exception as error:
        found.differences.append(Difference(when, "fails", "", f"the program fails, where the model does not: {error}"))
        return
    for index, (one, other) in enumerate(zip(wanted.results, made.results, strict=False)):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.dtype != other.dtype:
            detail = f"value {index} is {other.dtype}, and the model's {one.dtype}"
            found.differences.append(Difference(when, "dtype", str(index), detail))
    for name in sorted(reached ^ learnt):
        said = "gets a gradient, and not" if name in learnt else "gets no gradient, as it does"
        found.differences.append(Difference(when, "gradient", name, f"{name} {said} in the model"))


def _reached(done: Outcome) -> set[str]:
    """The parameters that a gradient reaches."""
    ends = [one for one in done.results if torch.is_tensor(one) and one.requires_grad]
    if ends:
        torch.autograd.backward([one.abs().sum() for one in ends])
    return {name for name, parameter in done.copied.named_parameters() if parameter.grad is not None}


def _compare_records(program: torch.export.ExportedProgram, given: Given, found: Comparison) -> None:
    """The dtypes that the program records of its weights and its results are theirs."""
    recorded = {node.name: node.meta["val"].dtype for node in program.graph.nodes
                if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor)}
    state = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        tensor, name = state.get(spec.target or ""), getattr(spec.arg, "name", "")
        if isinstance(tensor, torch.Tensor) and recorded.get(name, tensor.dtype) != tensor.dtype:
            detail = f"{spec.target} is {tensor.dtype}, and {recorded[name]} in the program"
            found.differences.append(Difference("records", "dtype", str(spec.target), detail))
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    said = [getattr(values.get(getattr(spec.arg, "name", "")), "dtype", None)
            for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    live = program.module()
    try:
        made = [getattr(one, "dtype", None) for one in outcome(live, [given], live).results]
    except Exception:
        return  # the calls say why
    for index, (one, other) in enumerate(zip(said, made, strict=False)):
        if one != other:
            detail = f"value {index} is {other}, and {one} in the program"
            found.differences.append(Difference("records", "dtype", str(index), detail))


# ---- inputs without readers ------------------------------------------------------------------------------------------------


def _find_unread_inputs(module: torch.nn.Module, live: torch.nn.Module, given: Given, found: Comparison) -> None:
    """An input that the program does not read is one that the model may read: then its results change with it."""
    if not isinstance(live, torch.fx.GraphModule):
        return
    inputs = live.graph.find_nodes(op="placeholder")
    leaves, varied = tree_leaves(given), tree_leaves(_varied(given, 1))
    for index, node in enumerate(inputs):
        if any(not _is_check(user) for user in node.users) or index >= len(leaves) or len(inputs) != len(leaves):
            continue
        places = iter(range(len(leaves)))
        changed: Given = tree_map(lambda item: varied[at] if (at := next(places)) == index else item, given)
        try:
            is_read = bool(_places(outcome(module, [given], module).results, outcome(module, [changed], module).results))
        except Exception:
            is_read = True
        if is_read:
            detail = f"the program does not read {node.target}, and the model does"
            found.differences.append(Difference("inputs", "unread", str(node.target), detail))
        else:
            found.unread.append(str(node.target))


def _is_check(node: torch.fx.Node) -> bool:
    return node.op == "call_module" and node.target == "_guards_fn"


def _find_unread_weights(module: torch.nn.Module, program: torch.export.ExportedProgram, found: Comparison) -> None:
    """A tensor that is read through a name that no checkpoint has, while the name that checkpoints have feeds nothing."""
    readers = {node.name: bool(node.users) for node in program.graph.nodes if node.op == "placeholder"}
    reads = {str(spec.target): readers.get(getattr(spec.arg, "name", ""), True) for spec in program.graph_signature.input_specs
             if spec.target}
    tensors = {**program.state_dict, **program.constants}
    saved = module.state_dict(keep_vars=True)
    for name in saved:
        others = [other for other, tensor in tensors.items() if other != name and tensor is tensors.get(name)]
        is_lost = any(reads.get(other) for other in others) and not any(other in saved and reads.get(other) for other in others)
        if name in reads and not reads[name] and is_lost:
            detail = f"nothing reads {name}, which checkpoints have, but {others[0]}, which they lack"
            found.differences.append(Difference("weights", "unread", name, detail))
