"""The tensors of a live module, as the table that a document has of them."""

from __future__ import annotations

import base64
import copy
import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor

try:
    import numpy
except ImportError:  # PyTorch does not need it
    numpy = None  # type: ignore[assignment]

from .recipes import Expression, evaluate, expanded, inputs_of, view_of
from .values import DTYPES, dtype_name

Row = dict[str, Any]

LARGEST_VALUE = 1 << 20  # bytes of a trained tensor that travel; of a larger one its digest does


WIDTH = 509  # words of a sum; a prime, so that columns and heads that change places change the sums
BLOCK, BLOCKS = 512, 32  # elements of each block of a sample, and most of them: what a larger tensor is known by


@dataclass(frozen=True)
class Mark:
    """What tells that a tensor is still as it was. PyTorch counts writes, but for those through `.data`: these show in the
    sums, which are those of a sample for a tensor that was only read."""

    identity: int
    version: int
    address: int
    sums: torch.Tensor
    is_sampled: bool

    @staticmethod
    def of(tensor: torch.Tensor, sums: torch.Tensor | None) -> Mark | None:
        """The mark of a tensor as it is now, or None if it can have none. `sums` are those of all of it; without them the mark
        has those of `sample_of`."""
        if not can_be_marked(tensor):
            return None
        is_sampled = sums is None
        return Mark(id(tensor), tensor._version, tensor.data_ptr(), sample_of(tensor) if sums is None else sums, is_sampled)

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Whether this is the same tensor and nobody wrote to it since."""
        if (self.identity, self.version, self.address) != (id(tensor), tensor._version, tensor.data_ptr()):
            return False
        is_dense = tensor.is_contiguous() or format_of(tensor) is not None
        return is_dense and torch.equal(self.sums, sample_of(tensor) if self.is_sampled else sums_of(tensor))


def can_be_marked(tensor: torch.Tensor) -> bool:
    """True if the bytes of a tensor can be read where they are: it is contiguous or in channels_last, not sparse, lazy, fake or
    of "meta"."""
    is_plain = tensor.layout is torch.strided and not tensor.is_meta and not isinstance(tensor, FakeTensor)
    is_lazy, is_dense = tensor.is_conj() or tensor.is_neg(), tensor.is_contiguous() or format_of(tensor) is not None
    return is_plain and not is_lazy and not tensor.is_inference() and is_dense


# By the number of dimensions: a tensor's member memory_format in a document, and PyTorch's
_FORMATS = {4: ("channels_last", torch.channels_last), 5: ("channels_last_3d", torch.channels_last_3d)}


def format_of(tensor: torch.Tensor) -> str | None:
    """The tensor's memory format as a document has it: "channels_last" or "channels_last_3d", or None if it is row-major,
    or lies otherwise. A tensor may have both orders, as the weight of a convolution of 1x1 has: then its strides decide, as
    they do in PyTorch."""
    if tensor.layout is not torch.strided or tensor.dim() not in _FORMATS:
        return None
    name, format_ = _FORMATS[tensor.dim()]
    is_last = tensor.is_contiguous(memory_format=format_)
    return name if is_last and (not tensor.is_contiguous() or suggest_memory_format(tensor) is format_) else None


def lay_out(tensor: torch.Tensor, name: str | None) -> None:
    """Lays a tensor out as a document says, or row-major for None. The object stays, and so do its numbers. A name that does
    not fit its dimensions says nothing."""
    known, wanted = _FORMATS.get(tensor.dim(), (None, torch.contiguous_format))
    if name is None:
        wanted = torch.contiguous_format
    elif name != known:
        return
    if format_of(tensor) != name or not tensor.is_contiguous(memory_format=wanted):
        set_data(tensor, torch.empty_like(tensor.data, memory_format=wanted).copy_(tensor.data))


def set_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """Gives a tensor other numbers, of any dtype and order of memory. The object stays, and a tensor of inference mode stays
    one: of `data` of the other kind PyTorch would make it that kind, which cannot be trained, or has no version."""
    is_inference = tensor.is_inference()
    with torch.inference_mode(is_inference):
        tensor.data = data if data.is_inference() == is_inference else data.clone()


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in the order of memory, of a tensor that is dense."""
    if tensor.is_contiguous():
        return tensor.reshape(-1)
    return tensor.permute(0, *range(2, tensor.dim()), 1).reshape(-1)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a dense tensor, which is contiguous whatever the stride of a single element is."""
    flat = _flat(tensor)
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def sums_of(tensor: torch.Tensor) -> torch.Tensor:
    """Sums over all bytes of a dense tensor, read as whole numbers: a write to any element changes them."""
    data = _as_bytes(tensor.detach())
    whole = data.numel() // (8 * WIDTH) * (8 * WIDTH)
    if numpy is not None and data.is_cpu:  # it adds rows twice as fast, and takes words that lie anywhere
        words = data.numpy()[:whole].view(numpy.int64).reshape(-1, WIDTH)
        sums = torch.from_numpy(words.sum(0))
    elif data.storage_offset() % 8 == 0:
        sums = data[:whole].view(torch.int64).view(-1, WIDTH).sum(0)
    else:
        sums = data[:whole].view(-1, WIDTH).sum(0, dtype=torch.int64)
    return torch.cat([sums, data[whole:].to(torch.int64)])


def sample_of(tensor: torch.Tensor) -> torch.Tensor:
    """The sums of a small tensor, and of blocks all over a large one: no write to all of it, or to a column, is missed."""
    count = tensor.numel() // BLOCK
    if count <= BLOCKS:
        return sums_of(tensor)
    blocks = _flat(tensor.detach())[: count * BLOCK].view(count, BLOCK)
    return sums_of(blocks[:: -(-count // BLOCKS)].contiguous())


@dataclass
class State:
    """What a live module knows of the edits applied to it, kept in its `meta`: so a copy of the module has a copy of it."""

    names: dict[str, str] = field(default_factory=dict)  # of tensors that are not called after their first owner, by that
    unowned: dict[str, torch.Tensor] = field(default_factory=dict)  # what no module owns any more, by name
    made: set[str] = field(default_factory=set)  # tensors that edits have made, by name
    digests: dict[str, str] = field(default_factory=dict)  # of the bytes that a computation gave them, by name
    marks: dict[str, dict[str, Mark]] = field(default_factory=dict)  # of a tensor that was made, and of what it was made from
    recipes: dict[str, Row] = field(default_factory=dict)  # rows of tensors that edits gave a recipe, by name
    # Rows of those that no module ever owned, and that nobody has computed
    virtual: dict[str, Row] = field(default_factory=dict)
    originals: dict[str, torch.nn.Module] = field(default_factory=dict)  # modules as they were before the first edit, by path
    added: set[str] = field(default_factory=set)  # modules that edits have put in, by path
    configs: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)  # type and config that edits gave, by path
    orders: dict[str, list[str]] = field(default_factory=dict)  # children as they were before one was taken out, by path
    buffers: dict[str, list[str]] = field(default_factory=dict)  # in the order that edits gave, by the path of their module
    table: list[str] = field(default_factory=list)  # names of tensors in the order that edits gave
    constants: set[str] = field(default_factory=set)  # of `unowned`, those that no checkpoint has, by name
    history: Any = None  # of foldback.optimization

    def mark(self, name: str, read: list[str], tensors: Mapping[str, torch.Tensor], sums: torch.Tensor | None = None) -> None:
        """Notes that a tensor is what its recipe makes of those that it reads. `sums` are those of the tensor, if they are
        known."""
        self.marks.pop(name, None)
        if not all(item in tensors and can_be_marked(tensors[item]) for item in [name, *read]):
            return
        made = Mark.of(tensors[name], sums_of(tensors[name]) if sums is None else sums)
        marks = {item: Mark.of(tensors[item], None) for item in read} | {name: made}
        self.marks[name] = {item: mark for item, mark in marks.items() if mark is not None}

    def expanded(self, recipe: Expression) -> Expression:
        """The recipe over tensors that are here."""
        return expanded(recipe, {name: row["recipe"] for name, row in self.virtual.items()}) if self.virtual else recipe

    def is_untouched(self, name: str, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Whether nobody wrote to a tensor since it was made. False where that is not known."""
        mark = self.marks.get(name, {}).get(name)
        return mark is not None and mark.is_of(tensors[name])

    def is_touched(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether somebody wrote to a tensor since another was made of it."""
        return any(name in marks and not marks[name].is_of(tensor) for made, marks in self.marks.items() if made != name)

    @staticmethod
    def of(module: torch.nn.Module) -> State:
        """The state that a module keeps, or a new one, which `keep_in` puts there."""
        meta = getattr(module, "meta", {})
        return meta["foldback"] if "foldback" in meta else State()

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy and of a pickle, whose tensors are others."""
        return {**vars(self), "marks": {}}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        """Pickles of earlier versions have fewer members."""
        vars(self).update({**vars(State()), **kept})

    def snapshot(self) -> State:
        """A copy with the same tensors and modules, which later edits leave as it is."""
        return State(**{key: copy.copy(item) for key, item in vars(self).items()})

    def keep_in(self, module: torch.fx.GraphModule) -> None:
        """Makes this the module's state. Copies take `meta` along and no other attribute; pickles take any other along."""
        module.meta["foldback"] = self
        module.__dict__["_foldback_state"] = self
        if _keep_in_copy not in module._deepcopy_hooks:
            module._deepcopy_hooks.append(_keep_in_copy)
        _keep_in_pickles(module)


def _keep_in_copy(copied: torch.fx.GraphModule) -> None:
    copied.__dict__["_foldback_state"] = copied.meta.get("foldback")
    _keep_in_pickles(copied)


def _keep_in_pickles(module: torch.fx.GraphModule) -> None:
    """Lets a module that is read from a pickle have its state at once: a copy of it would have none otherwise. torch.fx makes
    a class for each GraphModule."""
    if "forward" in vars(type(module)):
        type(module).__reduce__ = _reduced  # type: ignore[assignment, method-assign]


def _reduced(module: torch.fx.GraphModule) -> tuple[Any, ...]:
    return _unpickled, super(type(module), module).__reduce__()


def _unpickled(function: Any, arguments: tuple[Any, ...]) -> torch.fx.GraphModule:
    made: torch.fx.GraphModule = function(*arguments)
    restore(made)
    state = State.of(made)
    state.keep_in(made)
    return made


def restore(module: torch.fx.GraphModule) -> None:
    """Gives a module that was unpickled its state, and its nodes their names and marks."""
    state = module.__dict__.get("_foldback_state")
    if state is None or "foldback" in module.meta:
        return
    module.meta["foldback"] = state
    noted = dict(state.history.nodes) if state.history is not None else {}  # pickles of earlier versions have pairs
    nodes = list(module.graph.nodes)
    if len(noted) != len(nodes):
        return
    rows = {row["name"]: row for row in (state.history.seen or {"nodes": []})["nodes"]}
    are_changed = False
    for node, (name, meta) in zip(nodes, noted.items(), strict=True):
        node.name = name
        node.meta.update(meta)
        are_changed |= _read_shape_again(node, rows.get(name, {}))
    if are_changed:
        module.recompile()


def _read_shape_again(node: torch.fx.Node, row: Mapping[str, Any]) -> bool:
    """A pickle is traced anew when it is read, and transformers' tracer makes x.size() of x.shape. A node that read the shape
    does so again."""
    read_it = row.get("target") == "builtins.getattr" and row["args"][1:] == ["shape"]
    if not (read_it and node.op == "call_method" and node.target == "size" and len(node.args) == 1):
        return False
    node.op, node.target, node.args = "call_function", getattr, (*node.args, "shape")
    return True


def child_path(path: str, key: str) -> str:
    """The path of a child: child_path("layer", "0") is "layer.0", and child_path("", "fc") is "fc"."""
    return f"{path}.{key}" if path else key


def walk(module: torch.nn.Module, path: str = "") -> list[tuple[str, torch.nn.Module]]:
    """What named_modules(remove_duplicate=False) gives, in a quarter of its time."""
    found = [(path, module)]
    for key, child in module._modules.items():
        if child is not None:
            found += walk(child, child_path(path, key))
    return found


def programs(module: torch.nn.Module) -> Iterator[tuple[str, torch.fx.GraphModule]]:
    """The program itself and those that are nested in it, by their paths."""
    for path, child in walk(module):
        if isinstance(child, torch.fx.GraphModule):
            yield path, child


def module_at(root: torch.nn.Module, path: str) -> torch.nn.Module | None:
    """The module with this path, or None."""
    found = root
    for key in path.split(".") if path else ():
        child = found._modules.get(key)
        if child is None:
            return None
        found = child
    return found


def owners(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """(owner's path and attribute, tensor, is it a parameter) in the order of registration; once for each owner."""
    for path, child in walk(module):
        for held, is_parameter in ((child._parameters, True), (child._buffers, False)):
            for key, tensor in held.items():
                if tensor is not None:
                    yield child_path(path, key), tensor, is_parameter


def plain_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """What a program reads, though it is neither a parameter nor a registered buffer: a document has a buffer for it that a
    checkpoint lacks."""
    for place, program in programs(module):
        for node in program.graph.nodes:
            if node.op == "get_attr":
                path, _, key = str(node.target).rpartition(".")
                value = vars(program.get_submodule(path)).get(key)
                if isinstance(value, torch.Tensor):
                    yield child_path(place, str(node.target)), value


def _is_lacking(module: torch.nn.Module, key: str, tensor: torch.Tensor | None) -> bool:
    """Whether a checkpoint lacks a buffer. torch.fx puts copies of buffers into bare modules, where all are persistent:
    numbers that count or mask, such as position_ids, go with the document all the same."""
    is_counting = tensor is not None and tensor.dtype in (torch.int64, torch.int32, torch.bool) and tensor.nbytes <= 1 << 20
    return key in module._non_persistent_buffers_set or (_is_copy(module) and is_counting)


def _is_copy(module: torch.nn.Module) -> bool:
    return type(module) is torch.nn.Module or isinstance(module, torch.fx.GraphModule)


def copied_buffers(root: torch.nn.Module) -> Iterator[str]:
    """The owners of buffers of which nobody can say whether a checkpoint has them: copies of torch.fx in bare modules."""
    for path, child in walk(root):
        for key, tensor in child._buffers.items() if _is_copy(child) else ():
            if tensor is not None and not _is_lacking(child, key, tensor):
                yield child_path(path, key)


def _memory(tensor: torch.Tensor) -> Any:
    """The same for tensors that lie in one memory and are alike in everything."""
    if tensor.layout is not torch.strided or tensor.is_meta or isinstance(tensor, FakeTensor) or not tensor.numel():
        return id(tensor)
    alike = (type(tensor), tensor.dtype, tensor.requires_grad, tensor.is_conj(), tensor.is_neg())
    memory = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    return *alike, *memory


class TensorTable:
    """Names for all tensors of a module. A name is that of the first owner, unless edits have brought another."""

    def __init__(self, module: torch.nn.Module, *, by_memory: bool = False) -> None:
        """`by_memory`: tensors of one memory that are alike are one. torch.export.load makes one for each name of a tied
        tensor."""
        state = State.of(module)
        self.tensors: dict[str, torch.Tensor] = dict(state.unowned)  # by name
        self.owned: dict[str, torch.Tensor] = {}  # by name, in the order of registration
        self.first_owners: dict[str, str] = {}  # by name
        self._parameters: set[str] = set()
        self._module = module
        self._names: dict[Any, str] = {}
        self._identity = _memory if by_memory else id
        for owner, tensor, is_parameter in owners(module):
            self._add(owner, tensor, is_parameter, state.names.get(owner, owner))
        for owner, tensor in plain_tensors(module):
            self._add(owner, tensor, False, state.names.get(owner, owner))

    def _add(self, owner: str, tensor: torch.Tensor, is_parameter: bool, name: str) -> None:
        name = self._names.setdefault(self._identity(tensor), name)
        self.tensors[name] = tensor
        self.owned.setdefault(name, tensor)
        self.first_owners.setdefault(name, owner)
        if is_parameter:
            self._parameters.add(name)

    def name(self, tensor: torch.Tensor | None) -> str | None:
        """The name of a tensor that the module owns, None for None. KeyError for any other tensor."""
        return None if tensor is None else self._names[self._identity(tensor)]

    def without_checkpoint(self, most: int) -> frozenset[str]:
        """Names of those that no checkpoint has, and whose bytes have to travel with the document; up to so many bytes
        together, the smallest first, with a warning that names what is left out."""
        found: list[str] = []
        left_out: list[str] = []
        size = 0
        unowned = State.of(self._module).constants & self.tensors.keys()
        for name in sorted({*self.lacking(), *unowned}, key=lambda name: self.tensors[name].nbytes):
            size += self.tensors[name].nbytes
            (found if size <= most else left_out).append(name)
        if left_out:
            warnings.warn(
                f"the buffers {', '.join(left_out)} are not persistent, and too large to travel with the document: the service "
                "has no bytes for them. Export with data=True to put them in.",
                stacklevel=4,
            )
        return frozenset(found)

    def lacking(self) -> Iterator[str]:
        """Names of those that no checkpoint has."""
        checkpoint: set[str] = set()
        for path, child in walk(self._module):
            held = [tensor for key, tensor in child._buffers.items() if not _is_lacking(child, key, tensor)]
            checkpoint |= {self._names[self._identity(tensor)]
                           for tensor in [*child._parameters.values(), *held] if tensor is not None}
        for name, tensor in self.owned.items():
            has_bytes = not tensor.is_meta and not isinstance(tensor, FakeTensor)
            if name not in checkpoint and has_bytes:
                yield name

    def rows(self, *, data: bool, digests: bool, constants: frozenset[str]) -> list[Row]:
        """`constants`: names of those that travel with the document, whatever `data` says."""
        views, overlapping = _views(self.owned)
        state = State.of(self._module)
        found: dict[str, Row] = {}
        for name, tensor in self.owned.items():
            known = self._known_row(name, state) if digests else None
            found[name] = known or self._row(name, tensor, views.get(name), data or name in constants, digests)
            if name in overlapping and "recipe" not in found[name]:
                found[name]["overlaps"] = True
        wanted = [name for row in found.values() if "recipe" in row for name in inputs_of(row["recipe"])]
        while wanted:
            name = wanted.pop()
            if name not in found:
                found[name] = (
                    state.virtual.get(name)
                    or self._known_row(name, state)
                    or self._row(name, self.tensors[name], None, data or name in constants, digests)
                )
                wanted += inputs_of(found[name]["recipe"]) if "recipe" in found[name] else []
        places = {name: place for place, name in enumerate(state.table)}
        return sorted(found.values(), key=lambda row: places.get(row["name"], len(places)))

    def _known_row(self, name: str, state: State) -> Row | None:
        """With the recipe that edits gave the tensor, as long as nobody changed what that made; with what it is now, else."""
        row = state.recipes.get(name)
        if row is None or not all(item in self.tensors for item in inputs_of(state.expanded(row["recipe"]))):
            return None
        described = self._row(name, self.tensors[name], None, False, False)
        if described["dtype"] == row["dtype"] and not has_changed(row, self.tensors, state, trusts_marks=False):
            return {**described, "recipe": row["recipe"]}
        return {**described, **value_of(self.tensors[name])}

    def _row(self, name: str, tensor: torch.Tensor, view: Expression | None, data: bool, digests: bool) -> Row:
        row: Row = {"name": name, "dtype": dtype_name(tensor.dtype), "shape": [int(size) for size in tensor.shape]}
        if tensor.requires_grad != (tensor.is_floating_point() and name in self._parameters):
            row["requires_grad"] = tensor.requires_grad
        if digests:
            row["digest"] = digest_of(tensor)
        if view is not None:
            row["recipe"] = view
        elif data:
            row["data"] = base64.b64encode(bytes_of(tensor)).decode()
        format_ = format_of(tensor)
        if view is None and format_ is not None:
            row["memory_format"] = format_
        return row


def digest_of(tensor: torch.Tensor) -> str:
    """The digest of a tensor's bytes, "sha256:" and 64 digits. Two tensors of the same bytes have the same one, whatever their
    shapes are."""
    return "sha256:" + hashlib.sha256(bytes_of(tensor)).hexdigest()


_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Row-major, little-endian."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if dtype_name(plain.dtype) not in DTYPES and plain.numel():  # PyTorch copies few of them
        plain = plain.view(_SAME_SIZE[plain.itemsize])
    dense = plain.contiguous()
    return bytes(_as_bytes(dense).numpy().data) if dense.numel() else b""


def tensor_of(data: bytes, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    """A new tensor of these bytes, row-major and little-endian as `bytes_of` gives them. ValueError if they are more or fewer
    than the shape asks for.

        >>> tensor_of(bytes_of(torch.ones(2, 3)), torch.float32, [2, 3])  # equal to torch.ones(2, 3)"""
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise ValueError(f"a {dtype} tensor of shape {shape} has {expected} bytes, not {len(data)}")
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).clone().view(dtype).reshape(shape)


def value_of(tensor: torch.Tensor) -> dict[str, str]:
    """What says of a tensor that was trained what it is now."""
    if tensor.nbytes <= LARGEST_VALUE:
        return {"data": base64.b64encode(bytes_of(tensor)).decode()}
    return {"digest": digest_of(tensor)}


def has_changed(row: Row, tensors: Mapping[str, torch.Tensor], state: State, *, trusts_marks: bool = True) -> bool:
    """Whether a tensor differs from what its recipe makes. Tensors that the recipe reads and that are not here cannot have made
    another. With `trusts_marks`, what was made and not written to since has not changed, whatever it was made from."""
    name, recipe = row["name"], state.expanded(row["recipe"])
    tensor, read = tensors[name], inputs_of(recipe)
    if tensor.is_meta or not all(item in tensors for item in read) or (trusts_marks and state.is_untouched(name, tensors)):
        return False
    if name in state.digests and state.digests[name] == digest_of(tensor):  # a matmul need not give the same bits twice
        return False
    dtype = getattr(torch, row["dtype"]) if "dtype" in row else tensor.dtype
    made = evaluate(recipe, tensors.__getitem__, dtype, tensor.device).to(tensor.dtype)
    if made.shape != tensor.shape or not _is_same(made, tensor):
        return True
    state.mark(name, read, tensors)
    return False


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """The same bits."""
    ours, theirs = (item.detach().resolve_conj().resolve_neg().contiguous() for item in (one, other))
    return not ours.numel() or torch.equal(_as_bytes(ours), _as_bytes(theirs))


# ---- views ----------------------------------------------------------------------------------------------------------------


def _views(tensors: dict[str, torch.Tensor]) -> tuple[dict[str, Expression], set[str]]:
    """The views, each as movements over the tensor that has its storage; and names of tensors that share memory otherwise."""
    shared: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided:
            raise ValueError(f"tensor {name}: a document has no place for the layout {tensor.layout}")
        if tensor.is_quantized:
            raise ValueError(f"tensor {name}: a document has no place for the scale of a quantised tensor ({tensor.dtype})")
        if tensor.numel():
            shared.setdefault(tensor.untyped_storage()._cdata, []).append(name)
    found: dict[str, Expression] = {}
    overlapping = {name for name, tensor in tensors.items() if _overlaps_itself(tensor)}
    for names in shared.values():
        if len(names) > 1:
            _find_views({name: tensors[name] for name in names}, found, overlapping)
    return found, overlapping


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Asks whether elements share memory, as in an expanded tensor; False is certain. By ascending strides, each step must
    go past all elements before it."""
    reach = 1
    for stride, size in sorted((int(stride), int(size)) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1):
        if stride < reach:
            return tensor.numel() > 0
        reach += (size - 1) * stride
    return False


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of the storage that it lies in."""
    first = int(tensor.storage_offset())
    last = first + sum((int(size) - 1) * int(stride) for size, stride in zip(tensor.shape, tensor.stride()))
    return first * tensor.element_size(), (last + 1) * tensor.element_size()


def _is_apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether no byte is in both, though they interleave, such as the halves of columns: sure where it says so. Modulo one of
    the strides both are a run of bytes."""
    first, second = ([(tensor.element_size(), 1), *_steps(tensor)] for tensor in (one, other))
    distance = _extent(other)[0] - _extent(one)[0]
    for stride in {step for _, step in first + second if step}:
        reaches = [1 + sum((size - 1) * step for size, step in steps if step % stride) for steps in (first, second)]
        if reaches[0] <= distance % stride and reaches[1] <= -distance % stride:
            return True
    return False


def _steps(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Sizes and strides, these in bytes."""
    return [(int(size), int(stride) * tensor.element_size()) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def _find_views(tensors: dict[str, torch.Tensor], found: dict[str, Expression], overlapping: set[str]) -> None:
    """Of tensors in one storage, which are views of another, and which share memory with others without being one."""
    extents = {name: _extent(tensor) for name, tensor in tensors.items()}
    bases: list[str] = []
    for name in sorted(tensors, key=lambda name: (-tensors[name].numel(), not tensors[name].is_contiguous())):
        begin, end = extents[name]
        near = [base for base in bases if extents[base][0] < end and begin < extents[base][1]]
        over = [base for base in near if not _is_apart(tensors[base], tensors[name])]
        view = _view(over[0], tensors, extents, name) if len(over) == 1 else None
        if view is not None:
            found[name] = view
            continue
        if over:
            overlapping.update(over, [name])
        bases.append(name)


def _view(base: str, tensors: dict[str, torch.Tensor], extents: dict[str, tuple[int, int]], name: str) -> Expression | None:
    whole, part = tensors[base], tensors[name]
    is_within = extents[base][0] <= extents[name][0] and extents[name][1] <= extents[base][1]
    is_alike = (whole.dtype, whole.is_conj(), whole.is_neg()) == (part.dtype, part.is_conj(), part.is_neg())
    return view_of(whole, base, part) if is_within and is_alike and whole.is_contiguous() else None
