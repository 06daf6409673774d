"""Transformations of torch.fx programs, to be used like those of optimum.fx.optimization.

    from foldback.optimization import MergeLinears, compose

Each pass of the service is a class here, with the pass's parameters as keywords. Transformations of your own are subclasses of
Transformation or ReversibleTransformation, run in this process, and can be mixed with those of the service.
"""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
from torch.fx import GraphModule, Node

from . import private
from .ancestry import makers_of
from .client import Client, Problem
from .edits import Edit, EditError, Replay, apply_edits
from .fingerprint import members
from .fx import Document, make_node, set_arguments
from .history import TYPES, Answer, History, Look, Step, look_at, reverse_of_the_rest
from .infer import are_said, metas_of, with_metas
from .marks import MARKS, marks_of, set_marks
from .run import Refusal, Run
from .shapes import propagate
from .tensors import State, module_at, restore
from .values import nodes_in

__all__ = [
    "ChangeEinsumToMatMul", "ChangeMulByInverseToTrueDiv", "ChangeTrueDivToMulByInverse", "ChannelsLast",
    "ConvertPrecision", "DeepCopy", "EliminateCommonSubexpressions", "EliminateDeadCode", "EvaluateConstants",
    "FoldConstants", "FoldNormIntoLinear", "FoldPad", "FoldScaleIntoLinear", "FoldShapes", "FuseActivation",
    "FuseAttention", "FuseBatchNorm", "FuseBatchNorm1dInLinear", "FuseBatchNorm2dInConv2d", "FuseBiasInLinear",
    "FuseLinear", "FuseNorm", "FusePointwise", "FuseRepeat", "FuseRotation", "InlinePrograms", "InlineVmap", "Irreversible",
    "LintAndRecompile", "MergeAdapters", "MergeBranches", "MergeConsecutiveCalls", "MergeConsecutiveLinears",
    "MergeConvolutions", "MergeLinears", "MergeViews", "MoveTransposes", "PackLinear", "QuantizeWeights", "RaiseOpset",
    "RecordTypes", "Refusal", "RemoveNoOps", "ReplaceActivation", "ReversibleTransformation", "Run", "Transformation",
    "UndoConflict", "UnpackLinear", "cleanup", "compose", "cpu", "inference", "latency", "record_shapes", "rollback",
    "runs",
]


class UndoConflict(EditError):
    """A pass cannot be taken out of a module that was changed since: `names` are the nodes, modules or tensors in the way."""

    def __init__(self, problem: Problem) -> None:
        conflicts = problem.body.get("conflicts", [])
        self.names = [conflict["name"] for conflict in conflicts]
        details = "; ".join(conflict["detail"] for conflict in conflicts) or str(problem)
        super().__init__(f"the pass cannot be taken out, and the module is as it was: {details}")


# ---- what users subclass --------------------------------------------------------------------------------------------------


class Irreversible(TypeError):
    """`reverse` was asked of transformations that cannot be reversed; `transformations` are those."""

    def __init__(self, transformations: Sequence[Transformation]) -> None:
        self.transformations = list(transformations)
        names = ", ".join(f"{type(one).__name__}()" for one in self.transformations)
        super().__init__(
            f"{names} cannot be reversed: what it would need is lost. foldback.optimization.rollback(graph_module) takes back "
            "every run, these as well")


class Transformation(ABC):
    """A transformation of a torch.fx graph. Subclasses implement `transform`; an instance is called with a module.

    Attributes:
        preserves_computation: whether the transformed module computes the same.
        run: what the service says of the last call, None if it had no part in it.
    """

    preserves_computation: bool = False
    run: Run | None = None

    @abstractmethod
    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Transforms the module, in place or not, and gives the transformed one."""
        raise NotImplementedError("The transform method needs to be implemented.")

    def __call__(self, graph_module: GraphModule, lint_and_recompile: bool = True, reverse: bool = False) -> GraphModule:
        """Transforms the module. `lint_and_recompile=False` leaves both to a later call. When something is raised, the graph
        and the modules are as they were. `reverse` undoes a reversible transformation; any other raises Irreversible."""
        if reverse and not isinstance(self, ReversibleTransformation):
            raise Irreversible([part for part, _ in _flat([(self, False)]) if not isinstance(part, ReversibleTransformation)])
        return _call([(self, reverse)], graph_module, lint_and_recompile)

    @property
    def signature(self) -> str:
        """Tells the class and its parameters, the same in every process. The service knows the transformation by this very
        text, one of your own and one that it lists."""
        said = {"params": self._told, "pass": self._name, "version": VERSIONS.get(self._name, 1)}
        text = json.dumps(said, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def _name(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}"[-200:]

    @property
    def _told(self) -> Mapping[str, Any]:
        """The attributes that set this one apart from others of its class, as texts; digests of long ones."""
        texts = {key: _spelled(item) for key, item in vars(self).items() if key != "run"}
        return {key: text if len(text) <= 200 else hashlib.sha256(text.encode()).hexdigest() for key, text in texts.items()}

    def mark_as_transformed(self, node: Node) -> None:
        """Marks a node as transformed by this transformation. Copies and pickles of the module keep the mark."""
        set_marks(node, marks_of(node) | {self.signature})

    def transformed(self, node: Node) -> bool:
        """Whether this transformation transformed the node."""
        return self.signature in marks_of(node)

    def get_transformed_nodes(self, graph_module: GraphModule) -> list[Node]:
        """The nodes that this transformation transformed."""
        restore(graph_module)
        return [node for node in graph_module.graph.nodes if self.transformed(node)]


class ReversibleTransformation(Transformation):
    """A transformation that can be undone. Subclasses implement `transform` and `reverse`."""

    @abstractmethod
    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Undoes what `transform` did, and gives the restored module."""
        raise NotImplementedError("The reverse transform method needs to be implemented.")

    def mark_as_restored(self, node: Node) -> None:
        """Takes the mark off a node. Raises ValueError if it has none of this transformation."""
        if self.signature not in marks_of(node):
            raise ValueError("The node was not transformed by this transformation.")
        set_marks(node, marks_of(node) - {self.signature})


def _spelled(value: Any) -> str:
    """Text by which parameters differ whenever they do: 1, 1.0 and True, -1 and -2."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{_spelled(key)}:{_spelled(item)}" for key, item in value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[{','.join(map(_spelled, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}[{','.join(sorted(map(_spelled, value)))}]"
    if isinstance(value, torch.Tensor):
        return f"Tensor[{value.dtype},{_spelled(value.tolist())}]"
    if isinstance(value, Transformation):
        return value.signature
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device)):
        return f"{type(value).__name__} {value!r}"
    name = getattr(value, "__qualname__", None)
    if name is not None:
        return f"{value.__module__}.{name}"
    if hasattr(value, "__dict__"):
        return f"{type(value).__module__}.{type(value).__qualname__}{_spelled(vars(value))}"
    return f"{type(value).__qualname__} {value!r}"


# ---- passes of the service ------------------------------------------------------------------------------------------------


DEFAULTS = {"minimum_gain": 1, "gradients": False, "exactness": "moves", "maximum_bytes": 4194304, "maximum_growth": 1048576,
            "to": 23, "masked_rows": False, "asserts": False, "detach": False, "float_zeros": False, "parameters": {},
            "keep": [], "cast_outputs": True, "bits": 8, "group_size": 128}  # of the passes' parameters


_SECOND = ("ChangeTrueDivToMulByInverse", "ConvertPrecision", "FoldNormIntoLinear", "FoldPad", "FuseBatchNorm",
           "FuseBatchNorm1dInLinear", "FuseBatchNorm2dInConv2d", "FuseRotation", "ReplaceActivation",
           "UnpackLinear")
VERSIONS = {  # of the passes that are not in their first
    **dict.fromkeys(_SECOND, 2), "ChannelsLast": 3, "FoldConstants": 3, "FuseAttention": 3, "QuantizeWeights": 4
}


def _is_default(name: str, value: Any) -> bool:
    return name in DEFAULTS and type(value) is type(DEFAULTS[name]) and value == DEFAULTS[name]


class _Listed(Transformation):
    """One that the service lists, unless it is a class of yours that inherits from that."""

    @property
    def _name(self) -> str:
        return type(self).__name__ if type(self).__module__ == __name__ else super()._name


class _Pass(_Listed):
    """A pass of the service, under the name of its class, or of the one that a user's class inherits from."""

    preserves_computation = True
    params: Mapping[str, Any] = {}
    _says_what_it_lacks = False  # refuses where it lacks a shape or a dtype, and uses none otherwise
    _is_preset = False  # several passes, how many the service says: a run of its own

    def __init__(self) -> None:
        self.params = {}

    def _set(self, **params: Any) -> None:
        """Keeps the parameters that are given and are not their defaults: a default that is spelled out is the same
        transformation."""
        self.params = {key: item for key, item in params.items() if item is not None and not _is_default(key, item)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={item!r}' for key, item in self.params.items())})"

    @property
    def _pass(self) -> str:
        return next(one.__name__ for one in type(self).__mro__ if one.__module__ == __name__)

    @property
    def _told(self) -> Mapping[str, Any]:
        return self.params if type(self).__module__ == __name__ else super()._told

    @property
    def _sent(self) -> Any:
        return {"name": self._pass, "params": dict(self.params)} if self.params else self._pass

    def transform(self, graph_module: GraphModule) -> GraphModule:
        return _recompiled(_transform_by_service(graph_module, [self]))


class _ReversiblePass(_Pass, ReversibleTransformation):
    def reverse(self, graph_module: GraphModule) -> GraphModule:
        return _recompiled(_undo(graph_module, [self]))


class MergeLinears(_ReversiblePass):
    """Merges Linears that read the same value into one, and slices its result."""

    _says_what_it_lacks = True

    def __init__(self, *, minimum_gain: int | None = None) -> None:
        self._set(minimum_gain=minimum_gain)


class MergeConvolutions(_ReversiblePass):
    """Merges convolutions that read the same value into one, and slices its result."""

    def __init__(self, *, minimum_gain: int | None = None) -> None:
        self._set(minimum_gain=minimum_gain)


class MergeBranches(_ReversiblePass):
    """Merges parallel branches whose results are added (convolutions of one value, BatchNorms of it, the value itself) into one
    convolution. Once the convolution is trained, reverse() refuses."""

    _says_what_it_lacks = True


class MergeAdapters(_ReversiblePass):
    """Merges a low-rank branch beside a Linear, as LoRA adds it, into that Linear. Once the Linear is trained, reverse()
    refuses."""

    _says_what_it_lacks = True


class FuseBiasInLinear(_ReversiblePass):
    """Makes a Linear's bias one more column of its weight, and adds a column of ones to its input."""

    _says_what_it_lacks = True


class ChangeMulByInverseToTrueDiv(_ReversiblePass):
    """Replaces a multiplication by an inverse of an ONNX model with a division; it changes no module of PyTorch."""


class ChangeTrueDivToMulByInverse(_ReversiblePass):
    """Replaces a division of a floating-point tensor by a constant with a multiplication by its inverse."""

    _says_what_it_lacks = True


class FuseBatchNorm2dInConv2d(_Pass):
    """Folds a BatchNorm2d in eval mode into the Conv2d before it."""

    _says_what_it_lacks = True


class FuseBatchNorm1dInLinear(_Pass):
    """Folds a BatchNorm1d in eval mode on 2-D input into the Linear before or after it."""

    _says_what_it_lacks = True


class FuseBatchNorm(_Pass):
    """Folds a BatchNorm in eval mode into the Linear or convolution before or after it."""

    _says_what_it_lacks = True


class FoldPad(_ReversiblePass):
    """Makes zeros around a value the padding of the convolution or average pool that reads it."""


class ChannelsLast(_ReversiblePass):
    """Lays images that go into convolutions out in channels_last, and their weights, where that saves time, with one node at
    the input."""


class FoldShapes(_ReversiblePass):
    """Replaces recorded sizes and dtypes, and arithmetic on them, with numbers."""


class FuseRotation(_ReversiblePass):
    """Rolls what rotary embeddings cut in halves, negate and put together, and negates half of the factor instead."""


class FuseRepeat(_ReversiblePass):
    """Replaces an expansion between two reshapes, such as that of grouped heads, with one `repeat_interleave`."""


class InlinePrograms(_ReversiblePass):
    """Puts the calls of a nested program that runs without gradients or autocast into the program around it. `gradients` allows
    gradients to flow through what was computed without them."""

    def __init__(self, *, gradients: bool | None = None) -> None:
        self._set(gradients=gradients)


class InlineVmap(_ReversiblePass):
    """Replaces what torch.export writes of torch.vmap, such as masks of attention, with calls that broadcast."""


class EvaluateConstants(_ReversiblePass):
    """Computes what depends on no input and no weight, such as masks and positions, and keeps it as a buffer.
    `exactness="rounds"` also computes what machines round differently, such as `exp`."""

    def __init__(self, *, exactness: str | None = None, maximum_bytes: int | None = None) -> None:
        self._set(exactness=exactness, maximum_bytes=maximum_bytes)


class FoldConstants(_Pass):
    """Replaces what depends on weights only, such as `W + s * B @ A`, with a weight."""

    def __init__(self, *, maximum_growth: int | None = None) -> None:
        self._set(maximum_growth=maximum_growth)


class FoldScaleIntoLinear(_Pass):
    """Folds a constant factor or addend before or after a Linear or convolution into its weight and bias."""


class FoldNormIntoLinear(_Pass):
    """Folds the scale and shift of a LayerNorm or RMSNorm into every Linear that follows."""


class FuseAttention(_ReversiblePass):
    """Replaces attention that is spelled out with one call of `scaled_dot_product_attention`. `masked_rows` takes masks that
    might also mask a whole row, where softmax gives nan and attention 0."""

    def __init__(self, *, masked_rows: bool | None = None) -> None:
        self._set(masked_rows=masked_rows)


class MergeConsecutiveLinears(_Pass):
    """Merges two Linears in a row into one, where that saves multiplications."""


class UnpackLinear(_ReversiblePass):
    """Replaces a packed Linear (`addmm`) between two reshapes with a Linear on any number of dimensions."""


class FuseLinear(_ReversiblePass):
    """Replaces a product with a weight, and the addend behind it, with one Linear (or `addmm`)."""


class FuseNorm(_ReversiblePass):
    """Replaces LayerNorm, RMSNorm, softmax or log-softmax that is spelled out with one call, however it is written."""


class FuseActivation(_ReversiblePass):
    """Replaces GELU, SiLU, Mish or Hardswish that is spelled out with one call, however it is written."""


class FusePointwise(_ReversiblePass):
    """Makes one call of oneDNN, for a CPU, of a convolution or Linear and the activation or sum behind it. `foldback.pack` lays
    their weights out. Such a model is not to be trained."""


class MergeViews(_ReversiblePass):
    """Merges a chain of reshapes into one, a chain of transposes into one `permute`, and `unsqueeze` into `expand`."""


class ChangeEinsumToMatMul(_ReversiblePass):
    """Changes products of matrices that ONNX models write as Einsum; it changes no module of PyTorch."""


class MergeConsecutiveCalls(_ReversiblePass):
    """Merges consecutive calls of ONNX models; it changes no module of PyTorch."""


class MoveTransposes(_ReversiblePass):
    """Takes away transpositions of ONNX models; it changes no module of PyTorch, where they are views."""


class PackLinear(_ReversiblePass):
    """Makes the rows of an ONNX value once, for all Linears that read it; it changes no module of PyTorch."""


class RaiseOpset(_ReversiblePass):
    """Writes the operators of an ONNX model in their versions of opset `to` (23); it changes no module of PyTorch."""

    def __init__(self, to: int | None = None) -> None:
        self._set(to=to)


class RemoveNoOps(_ReversiblePass):
    """Removes calls that return their input. `asserts` also removes assertions; `detach` removes detach where a gradient may
    reach it; `float_zeros` removes `x + 0` in floating point, which makes 0.0 of -0.0."""

    def __init__(self, *, asserts: bool | None = None, detach: bool | None = None, float_zeros: bool | None = None) -> None:
        self._set(asserts=asserts, detach=detach, float_zeros=float_zeros)


class EliminateCommonSubexpressions(_ReversiblePass):
    """Keeps the first of several nodes that compute the same from the same inputs."""


class EliminateDeadCode(_ReversiblePass):
    """Removes nodes that no result and no effect depends on."""


class ReplaceActivation(_ReversiblePass):
    """Replaces one activation with another. `from_` and `to` are names such as relu, gelu, silu; `parameters` are those of the
    one that comes. (`from` is a word of Python; it can be given as `**{"from": "relu"}`.)"""

    preserves_computation = False

    def __init__(
        self, from_: str | None = None, to: str | None = None, *, parameters: dict[str, Any] | None = None, **named: Any
    ) -> None:
        unknown = named.keys() - {"from"}
        if unknown:
            raise TypeError(f"ReplaceActivation has no parameter {sorted(unknown)[0]}; it has from_, to and parameters")
        self._set(**{"from": named.get("from", from_), "to": to, "parameters": parameters})


class ConvertPrecision(_Pass):
    """Computes in float16 or bfloat16 (`to`) what was float32; inputs and results keep their dtype unless `cast_outputs` is
    False.
    `keep` names modules and operators that stay in float32."""

    preserves_computation = False

    def __init__(self, to: str, *, keep: Sequence[str] | None = None, cast_outputs: bool | None = None) -> None:
        self._set(to=to, keep=None if keep is None else list(keep), cast_outputs=cast_outputs)


class QuantizeWeights(_Pass):
    """Keeps the weights of Linears and convolutions as int8, with one scale for each output channel; with `bits` 4 those
    of Linears in 4 bits, with one scale for every `group_size` inputs (128, 64 or 32). With `form` "packed", or with
    `tokens` of 8 rows or fewer, of 64 where there are half a million weights, Linears are computed from int8 in bfloat16;
    "portable" makes the weight again at every call. In 4 bits it does so unless `form` is "packed", which pays after
    `foldback.pack`. In ONNX models Linears have one scale for every `block_size` inputs (16 to 256), if that is given.
    `keep` names modules and operators that stay as they are."""

    preserves_computation = False

    def __init__(
        self, *, bits: int | None = None, block_size: int | None = None, form: str | None = None,
        group_size: int | None = None, keep: Sequence[str] | None = None, tokens: int | None = None
    ) -> None:
        self._set(bits=bits, block_size=block_size, form=form, group_size=group_size,
                  keep=None if keep is None else list(keep), tokens=tokens)


class RecordTypes(_ReversiblePass):
    """Records the dtypes and shapes that follow from weights and operators, where the graph does not say them. `dtype` is what
    inputs are taken to be whose dtype is not recorded, and `rank` how many dimensions they have where their shape is not."""

    def __init__(self, dtype: str | None = None, rank: int | None = None) -> None:
        self._set(dtype=dtype, rank=rank)


class inference(_Pass):
    """The preset that makes a trained model cheaper to run: cleans it up and folds weights together."""

    _is_preset = True


class latency(_Pass):
    """`inference` without UnpackLinear and with ChannelsLast. `tokens` is how many rows a Linear gets at once (batch times
    tokens):
    with one, it also merges Linears that read the same value."""

    _is_preset = True

    def __init__(self, tokens: int | None = None) -> None:
        self._set(tokens=tokens)


class cpu(_Pass):
    """`latency`, and then FusePointwise. `foldback.pack` lays the weights out for the CPU."""

    _is_preset = True

    def __init__(self, tokens: int | None = None) -> None:
        self._set(tokens=tokens)


class cleanup(_ReversiblePass):
    """The preset that removes what has no effect, is computed twice, or has no reader."""

    _is_preset = True


_OF_TRACERS = ("config", "class_for_deserialization", "device")  # what transformers keeps at a traced module, and copies lose


class DeepCopy(_Listed, ReversibleTransformation):
    """Gives a copy of the module with its marks and runs."""

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Gives the copy, and leaves the module as it is."""
        restore(graph_module)
        made = copy.deepcopy(graph_module)
        for name in _OF_TRACERS:
            if name in vars(graph_module) and name not in vars(made):
                setattr(made, name, getattr(graph_module, name))
        return made

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Gives a copy again: a copy has nothing to undo."""
        return self.transform(graph_module)


class LintAndRecompile(_Listed, ReversibleTransformation):
    """Checks the graph and generates its code."""

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        """Gives the same module. Raises RuntimeError, from torch.fx, if the graph is not sound."""
        graph_module.graph.lint()
        graph_module.recompile()
        return graph_module

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        """Does the same again: there is nothing to undo."""
        return self.transform(graph_module)


# ---- composition ----------------------------------------------------------------------------------------------------------


class _Composition(Transformation):
    def __init__(self, parts: Sequence[Transformation], inplace: bool) -> None:
        self.parts, self.inplace = list(parts), inplace

    @property
    def preserves_computation(self) -> bool:  # type: ignore[override]
        return all(part.preserves_computation for part in self.parts)

    def transform(self, graph_module: GraphModule) -> GraphModule:
        return _recompiled(_go(_flat([(self, False)]), graph_module, self))

    def transformed(self, node: Node) -> bool:
        return super().transformed(node) or any(part.transformed(node) for part in self.parts)


class _ReversibleComposition(_Composition, ReversibleTransformation):
    def reverse(self, graph_module: GraphModule) -> GraphModule:
        return _recompiled(_go(_flat([(self, True)]), graph_module, self))


def compose(*args: Transformation, inplace: bool = True) -> Transformation:
    """A transformation that applies these from left to right, and undoes them from right to left if all are reversible.
    `inplace=False` works on a copy and leaves the module as it is."""
    for part in args:
        if not isinstance(part, Transformation):
            raise TypeError(f"compose takes transformations, not {part!r}; write MergeLinears(), with parentheses")
    is_reversible = all(isinstance(part, ReversibleTransformation) for part in args)
    return (_ReversibleComposition if is_reversible else _Composition)(args, inplace)


Part = tuple[Transformation, bool]  # a transformation, and whether it is undone


def _flat(parts: Sequence[Part]) -> list[Part]:
    """Without compositions in compositions."""
    made: list[Part] = []
    for part, is_undone in parts:
        if isinstance(part, _Composition):
            inner = [(one, is_undone) for one in (reversed(part.parts) if is_undone else part.parts)]
            made += [] if part.inplace else [(DeepCopy(), False)]
            made += _flat(inner)
        else:
            made.append((part, is_undone))
    return made


def _groups(parts: Sequence[Part]) -> Iterator[tuple[bool, bool, list[Transformation]]]:
    """(is it of the service, is it undone, transformations) in order: neighbours that one run does."""
    group: list[Transformation] = []
    of_group = False
    for part, is_undone in parts:
        if _is_of_service(part, is_undone):
            is_alone = any(isinstance(one, _Pass) and one._is_preset for one in (part, *group))
            if group and (of_group != is_undone or is_alone):
                yield True, of_group, group
                group = []
            group, of_group = [*group, part], is_undone
        else:
            if group:
                yield True, of_group, group
                group = []
            yield False, is_undone, [part]
    if group:
        yield True, of_group, group


def _is_of_service(part: Transformation, is_undone: bool) -> bool:
    """A user's class may inherit from a pass, and do more than that in a method of its own."""
    method = getattr(type(part), "reverse" if is_undone else "transform", None)
    return method in (_Pass.transform, _ReversiblePass.reverse)


def _call(parts: list[Part], graph_module: GraphModule, lint_and_recompile: bool) -> GraphModule:
    """Does it, and puts everything back when that raises."""
    if not isinstance(graph_module, GraphModule):
        raise TypeError(f"a torch.fx.GraphModule is needed, not {type(graph_module).__name__}; torch.fx.symbolic_trace "
                        "makes one")
    restore(graph_module)
    saved = _Saved(graph_module)
    owner = parts[0][0]
    try:
        made = _go(_flat(parts), graph_module, owner)
        if lint_and_recompile:
            _recompiled(made)
    except BaseException:
        saved.put_back()
        raise
    return made


def _recompiled(graph_module: GraphModule) -> GraphModule:
    graph_module.graph.lint()
    graph_module.recompile()
    return graph_module


def _go(parts: list[Part], graph_module: GraphModule, owner: Transformation) -> GraphModule:
    owner.run = None
    is_stale = False  # the code, of which only a user's own transformation may want to see the newest
    for is_service, is_undone, group in _groups(parts):
        if is_stale and not is_service:
            graph_module.recompile()
        is_stale = is_service
        if is_service:
            passes = [part for part in group if isinstance(part, _Pass)]
            graph_module = _undo(graph_module, passes) if is_undone else _transform_by_service(graph_module, passes)
            owner.run = passes[-1].run
        elif isinstance(group[0], (DeepCopy, LintAndRecompile)):
            graph_module = _run_here(graph_module, group[0], is_undone)
        else:
            graph_module = _transform_here(graph_module, group[0], is_undone)
            owner.run = group[0].run
    history = State.of(graph_module).history
    if history is not None or any(node.meta.get(MARKS) for node in graph_module.graph.nodes):
        History.of(graph_module).note_nodes(graph_module)
    return graph_module


class _Saved:
    """A module's graph, its tree of modules and its state, to be put back."""

    def __init__(self, module: GraphModule) -> None:
        self.module, self.graph, self.codegen = module, module.graph, copy.deepcopy(module.graph._codegen)
        self.nodes = [(node, members(node), dict(node.meta)) for node in module.graph.nodes]
        self.tables = [
            (child, {key: dict(child.__dict__[key]) for key in ("_parameters", "_buffers", "_modules")})
            for child in module.modules()
        ]
        self.state = module.meta["foldback"].snapshot() if "foldback" in module.meta else None

    def put_back(self) -> None:
        for child, tables in self.tables:
            for key, table in tables.items():
                child.__dict__[key].clear()
                child.__dict__[key].update(table)
        if self.module.graph is self.graph and self._is_alike():
            for node, _, meta in self.nodes:
                node.meta = meta
        else:
            self.module.graph = self._rebuilt()
        if self.state is not None:
            self.state.keep_in(self.module)
        else:
            self.module.meta.pop("foldback", None)
            self.module.__dict__.pop("_foldback_state", None)
        self.module.recompile()

    def _is_alike(self) -> bool:
        nodes = list(self.graph.nodes)
        return len(nodes) == len(self.nodes) and all(
            node is saved and all(one is other for one, other in zip(members(node), were, strict=True))
            for node, (saved, were, _) in zip(nodes, self.nodes, strict=True)
        )

    def _rebuilt(self) -> torch.fx.Graph:
        made = torch.fx.Graph(tracer_cls=self.graph._tracer_cls)
        nodes: dict[Node, Node] = {}
        for node, (name, op, target, args, kwargs, kind), meta in self.nodes:
            args, kwargs = torch.fx.node.map_arg((args, kwargs), nodes.__getitem__)
            nodes[node] = made.create_node(op, target, args, kwargs, name, kind)
            nodes[node].meta = meta
        made._codegen = self.codegen
        return made


# ---- by the service -------------------------------------------------------------------------------------------------------


def _asked(history: History, request: Callable[[Client], Answer]) -> Answer:
    return history.asked(private.client(), request)


def _transform_by_service(graph_module: GraphModule, passes: list[_Pass]) -> GraphModule:
    _record_so_far(graph_module)
    sent = [one._sent for one in passes]
    look = look_at(graph_module, private.client())
    source, run = _optimized(graph_module, look, sent, all(one._says_what_it_lacks for one in passes))
    edits = _applied(graph_module, look, run)
    rows = run["passes"]
    owners = [passes[0].signature] * len(rows) if len(passes) == 1 else [one.signature for one in passes]
    marks = [row["signature"] for row in rows]
    history = History.of(graph_module)
    history.steps.append(Step(run["id"], "optimize", source, None, sent, owners, marks))
    _mark(graph_module, history)
    history.note(graph_module, run["result"], look, edits)
    for one in passes:
        one.run = run
        _warn_if_unapplied(one, [row for row, owner in zip(rows, owners, strict=True) if owner == one.signature])
    return graph_module


def _optimized(graph_module: GraphModule, look: Look, sent: list[Any], says_what_it_lacks: bool) -> tuple[Document | str, Run]:
    """The document as it was sent, or its id, and the run.

    Where the tracer recorded no types, the service says what follows from weights. Calls with examples find more, and take
    longer: they are made for passes that refused something, and for passes that use sizes where they find them."""
    history, source = History.of(graph_module), look.sent

    def asked(graph: Document | str, passes: list[Any], include: Sequence[str] = ()) -> Run:
        return _asked(history, lambda client: client.optimize(graph, passes, include=include))

    if look.graph is None:
        history.is_typed = history.has_examples = are_said(graph_module)
    if not history.has_examples and not says_what_it_lacks:
        source, history.has_examples = with_metas(look.document, metas_of(graph_module)), True
    if not history.is_typed:
        typed = asked(source, ["RecordTypes"])
        history.steps.append(Step.of_types(typed["id"], source))
        source, history.is_typed = typed["result"], True
    run = asked(source, sent, ["edits"])
    if run.refused and not history.has_examples:
        history.has_examples = True
        document = _asked(history, lambda client: client.graph(source)) if isinstance(source, str) else source
        more = with_metas(document, metas_of(graph_module))
        if more != document:
            return more, asked(more, sent, ["edits"])
    return source, run


def _applied(graph_module: GraphModule, look: Look, run: Run) -> list[Edit]:
    """Does the run's edits to the module. A look that found no change found no training either."""
    edits: list[Edit] = run.pop("edits")
    Replay(graph_module, edits, look.graph is not None, look.now, makers_of(run["passes"])).run()
    return edits


def _warn_if_unapplied(one: _Pass, rows: list[dict[str, Any]]) -> None:
    if any(row["applied"] for row in rows):
        return
    refused = Run(passes=rows).refused
    why = f"; {refused[0]}" if refused else ""
    more = f", and {len(refused) - 1} more in .run.refused" if len(refused) > 1 else ""
    hint = ""
    if any("shape" in one.reason or "dtype" in one.reason or "shape" in one.detail or "dtype" in one.detail for one in refused):
        hint = ". foldback.optimization.record_shapes(graph_module, *example_inputs) tells shapes and dtypes"
    warnings.warn(f"{one!r} found nothing to change{why}{more}{hint}", stacklevel=6)


def _mark(graph_module: GraphModule, history: History) -> None:
    """Gives nodes the marks of the transformations whose passes the service saw at work there."""
    owner_of = {
        mark: owner
        for step in history.steps
        for at, (mark, owner) in enumerate(zip(step.marks, step.owners, strict=True))
        if at not in step.undone
    }
    ours = {owner for step in history.steps if step.kind == "optimize" for owner in step.owners}
    restore(graph_module)
    for node in graph_module.graph.nodes:
        said = {owner_of[mark] for mark in node.meta.get("foldback", {}).get("transformations", ()) if mark in owner_of}
        marks = frozenset(node.meta.get(MARKS, frozenset()) - ours | said)
        if marks or MARKS in node.meta:
            node.meta[MARKS] = marks


def _undo(graph_module: GraphModule, passes: Sequence[_Pass]) -> GraphModule:
    """Takes passes out, those that were done last first, of every call. What was not done, or was undone, is nothing to
    undo."""
    _record_so_far(graph_module)
    history = History.of(graph_module)
    _refuse_lost_runs(graph_module, history, {one.signature for one in passes})
    found: dict[int, list[int]] = {}
    for one in passes:
        for index, positions in history.find(one.signature):
            found.setdefault(index, []).extend(at for at in positions if at not in found.get(index, []))
    for index in sorted(found, reverse=True):
        run = _take_out(graph_module, index, sorted(found[index]))
        for one in passes:
            one.run = run
    return graph_module


def _refuse_lost_runs(graph_module: GraphModule, history: History, signatures: set[str] | None = None) -> None:
    """Raises where nodes carry marks of runs that the module does not know: GraphModule(module, graph) keeps marks only."""
    known = {owner for step in history.steps for owner in step.owners}
    for node in graph_module.graph.nodes:
        lost = node.meta.get(MARKS, frozenset()) - known
        if not history.applied and (lost if signatures is None else lost & signatures):
            raise ValueError(
                f"the node {node.name} carries the mark of a transformation, and the module does not have the run that made "
                "it: "
                "undo the module that was transformed, or copy.deepcopy(module), which GraphModule(module, graph) is not"
            )


def _take_out(graph_module: GraphModule, index: int, positions: list[int]) -> Run:
    history = History.of(graph_module)
    step = history.steps[index]
    client = private.client()
    look = look_at(graph_module, client)
    revived: list[str] = []
    try:
        run = history.asked(client, lambda client: client.reverse(step.run, positions, graph=look.sent, include=["edits"]))
    except Problem as problem:
        if problem.code != "conflict":
            raise
        revived = _revive(graph_module, history.written(client))
        look = look_at(graph_module, client)
        run = _take_out_otherwise(client, step, positions, look.sent, problem)
    edits = _applied(graph_module, look, run)
    history = History.of(graph_module)
    step.undone |= set(positions)
    history.steps.append(Step(run["id"], "reverse", look.sent, None, positions, of=index))
    _mark(graph_module, history)
    history.note(graph_module, run["result"], look, edits)
    for node in reversed(list(graph_module.graph.nodes)):
        if node.name in revived and not node.users:
            graph_module.graph.erase_node(node)
    return run


def _revive(graph_module: GraphModule, document: Document | None) -> list[str]:
    """Puts back the nodes that were dropped as dead code since the last run: an undo changes them, and they are dropped
    again."""
    rows = document["nodes"] if document is not None else []
    nodes = {node.name: node for node in graph_module.graph.nodes}
    revived: list[str] = []
    for at, row in enumerate(rows):
        if (row["name"] in nodes or row["op"] == "placeholder"
            or not set(nodes_in([row["args"], row["kwargs"]])) <= nodes.keys()):
            continue
        behind = next((nodes[other["name"]] for other in rows[at + 1 :] if other["name"] in nodes), None)
        if behind is None or (row["op"] == "call_module" and module_at(graph_module, row["target"]) is None):
            continue
        with graph_module.graph.inserting_before(behind):
            made = nodes[row["name"]] = make_node(graph_module.graph, row)
        set_arguments(made, row, nodes)
        revived.append(row["name"])
    return revived


def _take_out_otherwise(client: Client, step: Step, positions: list[int], now: Document | str, problem: Problem) -> Run:
    try:
        return reverse_of_the_rest(client, step, positions, now, include=["edits"])
    except Problem:
        raise UndoConflict(problem) from problem


def rollback(graph_module: GraphModule) -> GraphModule:
    """Takes the module back to before its first run, whatever the passes were, reversible or not. Raises foldback.LostTraining
    where that would drop what a folded weight learnt. This includes runs whose edits foldback.apply_edits applied. Raises
    ValueError where the service does not know them, as foldback.connect names another one."""
    history = History.of(graph_module)
    if history.unrecorded:
        raise ValueError(history.unrecorded)
    if not history.steps and not history.applied:
        _refuse_lost_runs(graph_module, history)
        return graph_module
    client = private.client()
    _settle(history, client)
    first = next((step for step in history.steps if step.kind != "reverse"), None)
    if first is None or history.graph is None:
        return graph_module
    source, here = (_id_of(client, one) for one in (first.source, look_at(graph_module, client).sent))
    apply_edits(graph_module, history.asked(client, lambda client: client.diff(here, source)))
    state = State.of(graph_module)
    state.history = History(nodes=history.nodes)
    state.history.note_nodes(graph_module)
    for node in graph_module.graph.nodes:
        node.meta.pop(MARKS, None)
    return graph_module


def _id_of(client: Client, graph: Document | str) -> str:
    return graph if isinstance(graph, str) else client.put_graph(graph)


def _settle(history: History, client: Client) -> None:
    try:
        history.settle(client)
    except Problem as problem:
        if problem.code != "unknown-run":
            raise
        where = client._service._url
        raise ValueError(
            f"{history.applied[0][1]} is not a run of {where}; foldback.connect names the service that made it") from problem


def runs(graph_module: GraphModule) -> list[str]:
    """The ids of the runs that led to the module, in order. Copies and pickles of the module keep them."""
    return [step.run for step in History.of(graph_module).steps if step.owners != TYPES]


def record_shapes(graph_module: GraphModule, *inputs: Any) -> GraphModule:
    """Tells the passes shapes and dtypes: those of a call with `inputs`, an example of the arguments, which is traced without
    being computed. Gives the module."""
    found = propagate(graph_module, inputs)
    for node in graph_module.graph.nodes:
        known = {key: item for key, item in found.get(node.name, {}).items() if key in ("shape", "dtype")}
        node.meta["foldback"] = {**node.meta.get("foldback", {}), **known}
    return graph_module


# ---- in this process ------------------------------------------------------------------------------------------------------


def _run_here(graph_module: GraphModule, part: Transformation, is_undone: bool) -> GraphModule:
    if is_undone:
        assert isinstance(part, ReversibleTransformation)
        made = part.reverse(graph_module)
    else:
        made = part.transform(graph_module)
    if not isinstance(made, GraphModule):
        kind = "reverse" if is_undone else "transform"
        raise TypeError(f"{type(part).__name__}.{kind} has to return a GraphModule, not {type(made).__name__}")
    return made


@dataclass(frozen=True)
class _Own:
    """A transformation of the user's while it is at work."""

    part: Transformation
    is_undone: bool
    marked: list[str]  # before

    @property
    def name(self) -> str:
        return (self.part._name + (".reverse" if self.is_undone else ""))[-200:]

    def marks(self, graph_module: GraphModule) -> list[str]:
        return [node.name for node in graph_module.graph.nodes if self.part.transformed(node)]


def _transform_here(graph_module: GraphModule, part: Transformation, is_undone: bool) -> GraphModule:
    """Runs a user's transformation, and records it as an external pass. One that calls passes of the service is recorded in
    parts: what it did before each call, and after the last."""
    _record_so_far(graph_module)
    state, history = State.of(graph_module), History.of(graph_module)
    own = _Own(part, is_undone, [node.name for node in graph_module.graph.nodes if part.transformed(node)])
    outer, history.within = history.within, None
    made = graph_module
    try:
        if not history.unrecorded and _can_be_recorded(graph_module, own, _begin):
            history.within = own
        made = _run_here(graph_module, part, is_undone)
        if made is not graph_module and "foldback" not in made.meta:
            state.snapshot().keep_in(made)
        if History.of(made).within is not None:
            _can_be_recorded(made, own, _record_so_far)
    finally:
        history.within = outer
        if made is not graph_module:
            History.of(made).within = None
    return made


def _can_be_recorded(graph_module: GraphModule, own: _Own, record: Callable[[GraphModule], None]) -> bool:
    """A transformation alone works on what no document can hold as well; then nothing can be rolled back."""
    try:
        record(graph_module)
    except (ValueError, Problem) as error:
        history = History.of(graph_module)
        if history.steps or isinstance(error, Problem) and error.status != 422:
            raise
        history.unrecorded = f"{own.name} is not recorded, and the module cannot be rolled back: {error}"
        warnings.warn(history.unrecorded, stacklevel=6)
        return False
    return True


def _begin(graph_module: GraphModule) -> None:
    """Lets the service know the module as it is."""
    client = private.client()
    look = look_at(graph_module, client)
    if look.graph is None:
        history = History.of(graph_module)
        history.note(graph_module, client.put_graph(look.document))
        history.document = look.document


def _record_so_far(graph_module: GraphModule) -> None:
    """Records what the user's transformation that is at work did since the last run."""
    history, client = History.of(graph_module), private.client
    own: _Own | None = history.within
    if own is None:
        return
    now, marked = look_at(graph_module, client()), own.marks(graph_module)
    if now.graph is not None and (now.graph != history.graph or marked == own.marked):
        return
    part, known, seen, before = own.part, history.graph, history.seen, history.written(client())
    assert known is not None and before is not None
    theirs = {step.own[1] for step in history.steps if step.own is not None and step.own[0] == part.signature}
    after = {**now.document, "nodes": [_without_marks(row, theirs) for row in now.document["nodes"]]}
    is_reversible, preserves = isinstance(part, ReversibleTransformation), bool(part.preserves_computation)

    def recorded(client: Client) -> Run:
        return client.record(
            known, after, own.name, params=part._told, reversible=is_reversible, preserves_computation=preserves,
            marked=marked)

    run = history.asked(client(), recorded)
    step = Step(run["id"], "external", before, after, name=own.name, is_reversible=is_reversible,
                preserves_computation=preserves, marked=marked)
    step.own = (part.signature, run["passes"][0]["signature"])
    step.before = (before, known, seen) if seen is not None and not own.is_undone else None
    history.steps.append(step)
    history.note(graph_module, run["result"])
    history.is_typed = history.has_examples = are_said(graph_module)
    history.within = replace(own, marked=marked)
    part.run = run


def _without_marks(row: dict[str, Any], signatures: set[str]) -> dict[str, Any]:
    marks = row["meta"].get("transformations", [])
    if signatures.isdisjoint(marks):
        return row
    left = [mark for mark in marks if mark not in signatures]
    return {**row, "meta": {**{key: item for key, item in row["meta"].items() if key != "transformations"},
                            **({"transformations": left} if left else {})}}
