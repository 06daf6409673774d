"""Shapes and dtypes of a program's results, without computing them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch._subclasses import fake_tensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from .progress import Meter, Progress
from .shape_cache import DependsOnValues, ShapeCache
from .values import DTYPES, dtype_name

Meta = dict[str, Any]

# What cannot be known without the values.
_UNKNOWABLE = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedFakeTensorException,
    fake_tensor.UnsupportedOperatorException,
    GuardOnDataDependentSymNode,
)
_UNKNOWN = object()


def meta_of(value: Any) -> Meta:
    """The current shape and dtype of a result, and the device of a strided one: empty unless it is a tensor, without a dtype
    that documents cannot hold."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if not isinstance(shape, torch.Size) or not isinstance(dtype, torch.dtype):
        return {}
    sizes = [_size(item) for item in shape]
    known = {"dtype": dtype_name(dtype)} if dtype_name(dtype) in DTYPES else {}
    if getattr(value, "layout", None) is torch.strided:
        known["device"] = str(value.device)
    return {"shape": sizes, **known} if None not in sizes else known


def _size(size: Any) -> int | str | None:
    """A size as a number or as the symbol's expression; None for one that a document cannot spell."""
    if isinstance(size, int):
        return int(size)
    text = str(size)
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return text if re.fullmatch(r"[\w+*/()%\-. ,]+", text, re.ASCII) else None


class _Recorder(torch.fx.Interpreter):
    """Notes what every node gives at the moment when it is made: a later write in place does not count."""

    def __init__(
        self,
        module: torch.nn.Module,
        graph: torch.fx.Graph,
        cache: ShapeCache,
        unknowable: tuple[type[Exception], ...] = _UNKNOWABLE,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(module, graph=graph)
        self.cache = cache
        self.meter, self.done = meter, 0
        self.unknowable = unknowable
        self.found: dict[str, Meta] = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        self.done += 1
        if self.meter:
            self.meter.at(self.done)
        if any(self.env.get(given) is _UNKNOWN for given in node.all_input_nodes):
            return _UNKNOWN
        key = self.cache.key(node, self.env, self.submodules)
        result = self.cache.get(key)
        if result is None:
            try:
                result = super().run_node(node)
            except self.unknowable:
                return _UNKNOWN
            self.cache.put(key, result)
        self.found[node.name] = meta_of(result)
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A convolution with a sum has the shape of the convolution; PyTorch 2.13 does not know it without computing."""
        if str(target) == "mkldnn._convolution_pointwise.binary":
            image, _, *layer = args
            return torch.ops.mkldnn._convolution_pointwise.default(image, *layer[:6], "none", [], "")
        return super().call_function(target, args, kwargs)


def propagate(module: torch.fx.GraphModule, inputs: Sequence[Any], progress: Progress = True) -> dict[str, Meta]:
    """By node, what a call with these inputs gives: on copies without storage, so that nothing is computed and nothing
    written. PyTorch takes about half a millisecond for a call; those that are alike are made once.

    A few programs fail there and yet run (PyTorch's max_pool1d gives a view, which detach_() refuses). They are computed once,
    on whole copies, to see that they run; then what fails, and what depends on it, is left out."""
    try:
        return _propagate_without_storage(module, inputs, _UNKNOWABLE, progress)
    except Exception as error:
        try:
            with torch.random.fork_rng(), torch.no_grad():
                copy.deepcopy(module)(*copy.deepcopy(tuple(inputs)))
        except Exception:
            raise error from None
        return _propagate_without_storage(module, inputs, (Exception,), progress)


def _propagate_without_storage(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    unknowable: tuple[type[Exception], ...],
    progress: Progress,
    is_cached: bool = True,
) -> dict[str, Meta]:
    env = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True, shape_env=env, static_shapes=True)

    def to_fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        try:
            return mode.from_tensor(value, static_shapes=True)
        except RuntimeError:
            # Some views, such as view_as_complex, which it makes over again of a base that is shaped otherwise.
            return mode.from_tensor(value.detach().clone(), static_shapes=True)

    cache = ShapeCache(module, is_cached)
    meter = Meter("finding shapes", len(module.graph.nodes), progress, unit=" nodes", delay=2)
    with fake_tensor.FakeCopyMode(mode):
        recorder = _Recorder(_copied(module, cache, to_fake), module.graph, cache, unknowable, meter)
    try:
        with mode, torch.no_grad(), meter:
            recorder.run(*torch.utils._pytree.tree_map(to_fake, tuple(inputs)), enable_io_processing=False)
    except DependsOnValues:
        return _propagate_without_storage(module, inputs, unknowable, progress, is_cached=False)
    return recorder.found


def _copied(module: torch.fx.GraphModule, cache: ShapeCache, made: Callable[[torch.Tensor], torch.Tensor]) -> torch.nn.Module:
    """A copy of all that the module holds, without its program. `made` makes parameters and buffers; deepcopy would take ten
    times as long."""
    copies = {id(tensor): cache.like(tensor, made) for tensor in [*module.parameters(), *module.buffers()]}
    held = {name: item for name, item in vars(module).items() if name not in ("_graph", "meta")}
    copied = torch.nn.Module()
    vars(copied).update(copy.deepcopy(held, copies))
    return copied


def propagate_on_meta(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> dict[str, Meta]:
    """The same, mostly sooner, without devices: on the device meta, where all is written in C++. Raises what PyTorch
    raises where a program names another device, or where a result depends on values."""

    def to_meta(value: Any) -> Any:
        return value.detach().to("meta") if isinstance(value, torch.Tensor) else value

    cache = ShapeCache(module)
    recorder = _Recorder(_copied(module, cache, to_meta), module.graph, cache)
    with torch.no_grad():
        recorder.run(*torch.utils._pytree.tree_map(to_meta, tuple(inputs)), enable_io_processing=False)
    return {name: {key: item for key, item in meta.items() if key != "device"} for name, meta in recorder.found.items()}
