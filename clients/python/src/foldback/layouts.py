"""Layouts from the mapping by which transformers 5 reads checkpoints of other names.

    foldback layout from-transformers llama-folder -o layout.json
    foldback layout put layout.json
    foldback layout apply NAME llama-folder -o new.safetensors

transformers' mapping has renamings and converters, each with a way back that somebody wrote by hand. A layout has rows, and its
way back is computed. `from_transformers` asks the installed transformers what `from_pretrained` would do with each tensor of a
checkpoint, and writes that down as rows.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import itertools
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checkpoints import Checkpoint

if TYPE_CHECKING:
    from .layout_plans import load, move_optimizer, run

__all__ = ["LayoutRefused", "from_transformers", "load", "move_optimizer", "run"]


def __getattr__(name: str) -> Any:
    """Loads layout_plans.py late, as it needs PyTorch."""
    if name in ("load", "move_optimizer", "run"):
        return getattr(importlib.import_module(".layout_plans", __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Path_ = str | os.PathLike[str]
Recipe = Any  # JSON: the name of a source, or an operation over recipes
ROWS_MAX = 512  # of a layout


class LayoutRefused(ValueError):
    """No layout does what transformers does with this checkpoint; the message says why."""


# ---- tensors that are being rearranged --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """A recipe over the tensors of a row, and the shape of its result."""

    recipe: Recipe
    shape: tuple[int, ...]
    every: tuple[Moved, int] | None = None  # along this axis the even elements of that come first, then the odd ones

    def slice(self, axis: int, start: int, stop: int) -> Moved:
        if (start, stop) == (0, self.shape[axis]):
            return self
        shape = (*self.shape[:axis], stop - start, *self.shape[axis + 1 :])
        if self.every and self.every[1] == axis and stop - start == self.shape[axis] // 2 and start % (stop - start) == 0:
            # One by one: only boxes of a tensor can be put back after training.
            first, source = start // (stop - start), self.every[0].recipe
            one = {"op": "slice", "axis": axis, "start": f"2 * i + {first}", "stop": f"2 * i + {first + 1}", "args": [source]}
            return Moved({"op": "concat", "axis": axis, "each": {"i": str(stop - start)}, "args": [one]}, shape)
        return Moved({"op": "slice", "axis": axis, "start": start, "stop": stop, "args": [self.recipe]}, shape)

    def reshape(self, *shape: int) -> Moved:
        if shape == self.shape:
            return self
        return Moved({"op": "reshape", "shape": list(shape), "args": [self.recipe]}, shape)

    def permute(self, *dims: int) -> Moved:
        return Moved({"op": "permute", "dims": list(dims), "args": [self.recipe]}, tuple(self.shape[dim] for dim in dims))

    def swap(self, one: int, two: int) -> Moved:
        dims = list(range(len(self.shape)))
        dims[one], dims[two] = dims[two], dims[one]
        return self.permute(*dims)

    def parts(self, sizes: Iterable[int], axis: int) -> list[Moved]:
        """One after the other along the axis."""
        made, start = [], 0
        for size in sizes:
            made.append(self.slice(axis, start, start + size))
            start += size
        return made


@dataclass(frozen=True)
class Counted:
    """Tensors that differ in a number, from `start` to before `stop`, as experts do; `shapes` are those of all from 0 on."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def shape(self) -> tuple[int, ...]:
        shapes = set(self.shapes[self.start : self.stop])
        if len(shapes) != 1:
            raise LayoutRefused(f"tensors that would be joined have the shapes {sorted(shapes)}")
        return shapes.pop()

    def joined(self, axis: int, part: Moved) -> Moved:
        each = str(self.stop) if self.start == 0 else [self.start, self.stop]
        shape = (*part.shape[:axis], part.shape[axis] * len(self), *part.shape[axis + 1 :])
        return Moved({"op": "concat", "axis": axis, "each": {"e": each}, "args": [part.recipe]}, shape)

    def stacked(self, axis: int) -> Moved:
        """Along a new axis."""
        return self.joined(axis, Moved(self.name, self.shape).reshape(*self.shape[:axis], 1, *self.shape[axis:]))

    def halves(self, count: int) -> list[Counted]:
        """As many equal ranges, and less in the last one."""
        size = -(-len(self) // count)
        places = [min(self.start + i * size, self.stop) for i in range(count + 1)]
        return [Counted(self.name, self.shapes, start, stop) for start, stop in itertools.pairwise(places)]


Tensors = dict[str, "Moved | Counted"]


def joined(parts: Sequence[Moved | Counted], axis: int) -> Moved:
    whole = [part.joined(axis, Moved(part.name, part.shape)) if isinstance(part, Counted) else part for part in parts]
    if len(whole) == 1:
        return whole[0]
    rest = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in whole}
    if len(rest) > 1:
        raise LayoutRefused(f"tensors of the shapes {[part.shape for part in whole]} cannot be joined along dimension {axis}")
    shape = list(whole[0].shape)
    shape[axis] = sum(part.shape[axis] for part in whole)
    return Moved({"op": "concat", "axis": axis, "args": [part.recipe for part in whole]}, tuple(shape))


# ---- transformers' operations, as recipes -----------------------------------------------------------------------------------


@dataclass
class Step:
    """An operation of transformers on the tensors that a converter collected, and what it may ask for."""

    op: Any
    tensors: Tensors
    sources: list[str]
    targets: list[str]
    first: str  # the full name of the first result
    model: Any
    sizes: dict[str, tuple[int, ...]]  # of the model's tensors

    def only(self) -> Moved:
        if len(self.tensors) != 1:
            raise LayoutRefused(f"{self.op!r} takes one tensor, and the checkpoint has {sorted(self.tensors)}")
        (one,) = self.tensors.values()
        return joined([one], 0) if isinstance(one, Counted) else one

    def target(self) -> str:
        return self.targets[0] if len(self.targets) == 1 else self.sources[0]


def _chunk(step: Step) -> Tensors:
    whole, axis, targets = step.only(), step.op.dim, step.targets
    if step.op.num_shards_attribute is not None:
        count = getattr(step.model.config.get_text_config(), step.op.num_shards_attribute)
        targets = [targets[0].replace("*", str(i)) for i in range(count)]
    size = -(-whole.shape[axis] // len(targets))  # torch.chunk: equal parts, and less for the last one
    sizes = [max(0, min(size, whole.shape[axis] - i * size)) for i in range(len(targets))]
    return dict(zip(targets, whole.parts(sizes, axis), strict=True))


def _split(step: Step) -> Tensors:
    whole, axis = step.only(), step.op.dim
    names = [step.first.replace(step.targets[0], target) for target in step.targets]
    return dict(zip(step.targets, whole.parts([step.sizes[name][axis] for name in names], axis), strict=True))


def _concatenate(step: Step) -> Tensors:
    return {step.targets[0]: joined([step.tensors[name] for name in step.sources if name in step.tensors], step.op.dim)}


def _merge(step: Step) -> Tensors:
    made = {}
    for name, one in step.tensors.items():
        many = one if isinstance(one, Counted) else None
        target = step.targets[0] if len(step.tensors) == 1 else name
        made[target] = (many.stacked(step.op.dim) if many
                        else one.reshape(*one.shape[: step.op.dim], 1, *one.shape[step.op.dim :]))  # type: ignore[union-attr]
    return made


def _interleave(step: Step) -> Tensors:
    one, axis = step.only(), step.op.dim
    half = one.shape[axis] // 2
    pair = (2, half) if step.op.inverse else (half, 2)
    apart = one.reshape(*one.shape[:axis], *pair, *one.shape[axis + 1 :])
    made = apart.swap(axis, axis + 1).reshape(*one.shape)
    return {step.targets[0] if len(step.targets) == 1 else step.sources[0]: made if step.op.inverse else
            replace(made, every=(one, axis))}


def _transpose(step: Step) -> Tensors:
    one = step.only()
    if step.op.check_dims and one.shape == step.sizes[step.first]:
        return {step.target(): one}
    return {step.target(): one.swap(step.op.dim0 % len(one.shape), step.op.dim1 % len(one.shape))}


def _permute_for_rope(step: Step) -> Tensors:
    config, made = step.model.config, {}
    if step.op.subconfig_key is not None:
        config = getattr(config, step.op.subconfig_key, config)
    heads = getattr(config, "num_attention_heads", 1)
    for name, one in step.tensors.items():
        target = step.targets[0] if len(step.targets) == len(step.sources) == 1 else name
        wanted = step.op.permute_layer_names
        if wanted is None or any(part in name for part in wanted):
            whole = joined([one], 0)
            half = whole.shape[0] // heads // 2
            pair = (2, half) if step.op.inverse else (half, 2)
            if len(whole.shape) <= 2:  # transformers leaves others as they are
                one = whole.reshape(heads, *pair, *whole.shape[1:]).swap(1, 2).reshape(*whole.shape)
        made[target] = one
    return made


def _flatten_kernel(step: Step) -> Tensors:
    one = step.only()
    rest = 1
    for size in one.shape[1:]:
        rest *= size
    return {step.target(): one.reshape(one.shape[0], rest)}


def _ernie_experts(step: Step) -> Tensors:
    parts: dict[str, list[Moved]] = {}
    for name in step.sources:
        many = step.tensors.get(name)
        if not isinstance(many, Counted):
            raise LayoutRefused(f"the checkpoint has no experts {name}")
        for target, half in zip(step.targets, many.halves(len(step.targets)), strict=True):
            parts.setdefault(target, []).append(half.stacked(step.op.stack_dim))
    return {target: joined(some, step.op.concat_dim) for target, some in parts.items()}


def _only_unquantised(step: Step) -> Tensors:
    if len(step.tensors) > 1:
        raise LayoutRefused(f"{', '.join(step.tensors)}: transformers computes weights from quantised ones, and a layout "
                            "moves numbers: dequantise the checkpoint first")
    return {step.targets[0]: step.only()}


def _message_queries(step: Step) -> Tensors:
    """Of each layer the query, then its key's and its value's, then that of the MLP."""
    queries, others = (joined([step.tensors[name]], 0) for name in step.sources)
    parts = []
    for layer in range(queries.shape[0] // 2):
        first = 2 * layer
        parts += [queries.slice(0, first, first + 1), others.slice(0, first, first + 2), queries.slice(0, first + 1, first + 2)]
    return {step.targets[0]: joined(parts, 0).reshape(queries.shape[0] // 2, 4, *queries.shape[1:])}


def _unpad(step: Step) -> Tensors:
    one, rows = step.only(), step.model.config.get_text_config().unpadded_vocab_size
    if rows < one.shape[0]:
        raise LayoutRefused(f"transformers drops rows {rows} to {one.shape[0] - 1} of {step.first}, the padding of the "
                            "vocabulary: they could not be put back as they were")
    return {step.targets[0]: one}


OPERATIONS: dict[str, Callable[[Step], Tensors]] = {
    "Chunk": _chunk,
    "Split": _split,
    "Concatenate": _concatenate,
    "MergeModulelist": _merge,
    "Interleave": _interleave,
    "Transpose": _transpose,
    "PermuteForRope": _permute_for_rope,
    "Conv3dToLinear": _flatten_kernel,
    "ErnieFuseAndSplitTextVisionExperts": _ernie_experts,
    "Inkling2LoopDequantizeExperts": _only_unquantised,
    "Inkling2LoopMergeMessageQueries": _message_queries,
    "Inkling2UnpadVocab": _unpad,
}


# ---- what transformers does with each tensor --------------------------------------------------------------------------------


@dataclass
class Group:
    """Tensors of the checkpoint that become tensors of the model together."""

    sources: dict[str, list[str]]  # the name in recipes -> tensors, of which there are several if they are counted
    targets: dict[str, Recipe]
    shapes: dict[str, list[int | None]] = field(default_factory=dict)

    def names(self) -> list[str]:
        return [name for names in self.sources.values() for name in names]


class _Transformers:
    """The installed transformers, as far as layouts need it."""

    def __init__(self) -> None:
        try:
            self.torch: Any = importlib.import_module("torch")
            self.all: Any = importlib.import_module("transformers")
            self.loading: Any = importlib.import_module("transformers.core_model_loading")
            self.mapping: Any = importlib.import_module("transformers.conversion_mapping")
        except ImportError as error:
            raise LayoutRefused(f"layouts from transformers need PyTorch and transformers 5: {error}") from error
        needed = {self.loading: ("WeightConverter", "WeightRenaming", "rename_source_key", "dot_natural_key",
                                 "revert_weight_conversion"),
                  self.mapping: ("get_model_conversion_mapping",)}
        for module, names in needed.items():
            for name in names:
                if not hasattr(module, name):
                    raise LayoutRefused(f"{module.__name__} of transformers {self.all.__version__} has no {name}: this needs "
                                        "5.20 or later")

    def config(self, path: Path) -> Any:
        return self.all.AutoConfig.from_pretrained(str(path))

    def model(self, config: Any) -> Any:
        """The model of a configuration, without memory for its weights."""
        with self.torch.device("meta"):
            return self._class_of(config)(copy.deepcopy(config))

    def _class_of(self, config: Any) -> Any:
        module = type(config).__module__.replace(".configuration_", ".modeling_")
        own = importlib.import_module(module) if importlib.util.find_spec(module) else None
        for name in getattr(config, "architectures", None) or []:
            known = getattr(self.all, name, None) or getattr(own, name, None)
            if known is not None:
                return known
        autos = importlib.import_module("transformers.models.auto.modeling_auto")
        for name in ("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", "MODEL_MAPPING"):
            mapping = getattr(autos, name)
            if type(config) in mapping:
                found = mapping[type(config)]
                return found[0] if isinstance(found, list | tuple) else found
        raise LayoutRefused(f"transformers {self.all.__version__} has no model of {type(config).__name__}: "
                            'name one in config.json, "architectures"')


class Mapping:
    """transformers' mapping of one model."""

    def __init__(self, model: Any, lib: _Transformers):
        self.lib, self.model = lib, model
        self.sizes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        self.meta = model.state_dict()
        self.transforms = lib.mapping.get_model_conversion_mapping(model)
        self.renamings = [one for one in self.transforms if isinstance(one, lib.loading.WeightRenaming)]
        self.converters = [one for one in self.transforms if isinstance(one, lib.loading.WeightConverter)]
        self.by_pattern = {pattern: one for one in self.converters for pattern in one.source_patterns}

    def renamed(self, name: str) -> tuple[str, str | None]:
        """Returns the name of a tensor in from_pretrained, and the pattern of the converter that takes it."""
        rename, prefix = self.lib.loading.rename_source_key, self.model.base_model_prefix
        found: tuple[str, str | None] = rename(name, self.renamings, self.converters, prefix, self.meta)
        if found[0] not in self.meta and name in self.meta:
            found = rename(name, [], [], base_model_prefix=prefix, meta_state_dict=self.meta)
        return found

    def collected(self, names: Iterable[str]) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
        """First result -> pattern -> the checkpoint's tensors in order (a renaming has no pattern: ""), and the names that the
        model does not take."""
        self._begin()
        found: dict[str, dict[str, list[str]]] = {}
        others = []
        for name in sorted(names, key=self.lib.loading.dot_natural_key):
            target, pattern = self.renamed(name)
            if target in self.meta:
                found.setdefault(target, {}).setdefault(pattern or "", []).append(name)
            else:
                others.append(name)
        return found, others

    def _begin(self) -> None:
        for one in self.transforms:
            if hasattr(one, "_active"):  # a group of renamings that the first of them starts
                one._active = None

    def converter_of(self, patterns: Iterable[str]) -> Any:
        return self.by_pattern[next(iter(patterns))]

    def results(self, first: str, tensors: Tensors) -> dict[str, Moved]:
        """Lists the tensors that a converter makes, by the model's names."""
        converter = self.converter_of(tensors)
        for op in converter.operations:
            known = OPERATIONS.get(type(op).__name__)
            if known is None or type(op).__module__ != self.lib.loading.__name__:
                raise LayoutRefused(f"{first}: no layout is known for transformers' operation {type(op).__name__}")
            tensors = known(Step(op, tensors, converter.source_patterns, converter.target_patterns, first, self.model,
                                 self.sizes))
        name = first.replace("*.", "0.")
        part = next((key for key in tensors if key in name), None)
        before, _, after = name.partition(part) if part is not None else ("", "", "")
        return {before + key + after: one if isinstance(one, Moved) else joined([one], 0) for key, one in tensors.items()}

    # -- names of a checkpoint that nobody has shown --

    def original(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the checkpoint that the mapping is for: each tensor has the name to which the whole mapping turns
        it back, if from_pretrained reads that as this tensor, or else to which a part of it does."""
        kept: dict[str, tuple[int, ...]] = {}
        covered: set[str] = set()
        candidates = [lambda: self._reverted(True), lambda: self._reverted(False), lambda: dict(self.sizes)]
        for candidate in candidates:
            shapes = candidate()
            for sources, targets in self._made(shapes):
                if covered.isdisjoint(targets):
                    covered.update(targets)
                    kept.update({name: shapes[name] for name in sources})
            if covered == set(self.sizes):
                break
        made = [target for _, targets in self._made(kept) for target in targets]
        doubtful = sorted((set(self.sizes) - set(made)) | {name for name in made if made.count(name) > 1})
        if doubtful:
            raise LayoutRefused(f"no name is known that transformers reads as {doubtful[0]}"
                                f"{f' and {len(doubtful) - 1} more' if doubtful[1:] else ''}: give the folder with the "
                                "weights, whose names are then taken")
        return kept

    def _reverted(self, has_prefixes: bool) -> dict[str, tuple[int, ...]]:
        """Lists the tensors that save_pretrained would write."""
        model, lib = self.model, self.lib
        mapping = lib.mapping.get_model_conversion_mapping(model, add_legacy=False)
        if not has_prefixes:
            mapping = [one for one in mapping if type(one).__name__ != "PrefixChange"]
        for one in mapping:
            for op in getattr(one, "operations", []):
                if getattr(op, "check_dims", False):
                    op.check_dims = False  # a checkpoint of before has it transposed
        model._weight_conversions = mapping
        try:
            return {name: tuple(tensor.shape)
                    for name, tensor in lib.loading.revert_weight_conversion(model, model.state_dict()).items()}
        finally:
            del model._weight_conversions

    def _made(self, names: Iterable[str]) -> list[tuple[list[str], list[str]]]:
        """Which tensors of a checkpoint become which of the model."""
        found, _ = self.collected(names)
        made = []
        for first, by_pattern in found.items():
            sources = [name for some in by_pattern.values() for name in some]
            targets = [first]
            if "" not in by_pattern:
                converter = self.converter_of(by_pattern)
                before, _, after = first.partition(converter.target_patterns[0])
                targets = [before + target + after for target in converter.target_patterns]
            elif len(sources) > 1:
                continue
            made.append((sources, targets))
        return made


def groups_of(mapping: Mapping, shapes: dict[str, tuple[int, ...]], is_exact: bool) -> list[Group]:
    """What from_pretrained does with a checkpoint of these tensors. `is_exact`: the shapes are those of a file."""
    groups = []
    found, _ = mapping.collected(shapes)
    for first, by_pattern in found.items():
        if list(by_pattern) == [""]:
            (name, *others) = by_pattern[""]
            if others:
                raise LayoutRefused(f"{name} and {others[0]} would both become {first}")
            groups.append(Group({"w": [name]}, {first: "w"}))
            continue
        tensors: Tensors = {}
        group = Group({}, {})
        operations = mapping.converter_of([key for key in by_pattern if key]).operations
        for i, (pattern, names) in enumerate(by_pattern.items()):
            if pattern == "":
                raise LayoutRefused(f"{names[0]} and {next(name for key, name in by_pattern.items() if key)[0]} would both "
                                    f"become {first}")
            called = f"t{i}"
            group.sources[called] = names
            sizes = tuple(shapes[name] for name in names)
            tensors[pattern] = Moved(called, sizes[0]) if len(names) == 1 else Counted(called, sizes, 0, len(names))
            if len(set(sizes)) == 1:
                group.shapes[called] = list(sizes[0])
                if len(by_pattern) > 1 and not is_exact and [type(op).__name__ for op in operations] == ["Concatenate"]:
                    group.shapes[called][operations[0].dim] = None  # in a file the parts may differ
        for name, one in mapping.results(first, tensors).items():
            if name not in mapping.sizes:
                raise LayoutRefused(f"transformers would make {name}, which the model does not have")
            if is_exact and one.shape != mapping.sizes[name]:
                raise LayoutRefused(f"{name} would have the shape {one.shape}, and the model's has {mapping.sizes[name]}")
            group.targets[name] = one.recipe
        groups.append(group)
    return groups


# ---- rows -------------------------------------------------------------------------------------------------------------------


def _numbered(names: list[str]) -> str:
    """The names of tensors that are counted from 0 on, as one pattern: experts.{e}.w1.weight."""
    if len(names) == 1:
        return names[0]
    split = [re.split(r"(\d+)", name) for name in names]
    places = [i for i in range(len(split[0])) if len({parts[i] for parts in split if i < len(parts)}) > 1]
    if len({len(parts) for parts in split}) > 1 or len(places) != 1:
        raise LayoutRefused(f"{names[0]} and {names[1]} differ in more than one number")
    (place,) = places
    if [parts[place] for parts in split] != [str(i) for i in range(len(names))]:
        raise LayoutRefused(f"{names[0]} and {len(names) - 1} more are not counted from 0 on")
    return "".join((*split[0][:place], "{e}", *split[0][place + 1 :]))


def _template(name: str) -> tuple[str, tuple[str, ...]]:
    """The name without its numbers, and these: layers.3.weight is layers.#.weight and 3."""
    parts = name.split(".")
    return ".".join("#" if part.isdigit() else part for part in parts), tuple(part for part in parts if part.isdigit())


def _filled(template: str, values: Sequence[str]) -> str:
    rest = iter(values)
    return ".".join(next(rest) if part == "#" else part for part in template.split("."))


CAPTURES = "abcdfghk"  # as many as a row may have


def _generalised(names: list[list[str]]) -> list[str] | None:
    """Patterns that fit the names of several groups, names[group][which]; None if none do. The numbers of the first name are
    captured where they differ; the other names have the same numbers, or numbers that do not differ."""
    templates = [[_template(name) for name in one] for one in names]
    firsts = [one[0][1] for one in templates]
    places = [i for i in range(len(firsts[0])) if len({values[i] for values in firsts}) > 1]
    if len(places) > len(CAPTURES) or len(set(firsts)) != len(firsts):
        return None
    captured = {tuple(values[place] for values in firsts): f"{{{letter}}}"
                for letter, place in zip(CAPTURES, places, strict=False)}
    patterns = []
    for which, (template, numbers) in enumerate(templates[0]):
        filled = []
        for i in range(len(numbers)):
            column = tuple(one[which][1][i] for one in templates)
            found = column[0] if len(set(column)) == 1 else captured.get(column)
            if found is None:
                return None
            filled.append(found)
        patterns.append(_filled(template, filled))
    return patterns


def _fits(pattern: str) -> re.Pattern[str]:
    """As the service reads patterns."""
    parts = re.split(r"(\{\w+\})", pattern)
    count, any_part = r"(?:0|[1-9]\d{0,8})", r"[^.]+"
    return re.compile("".join((count if part == "{e}" else any_part) if part.startswith("{") else re.escape(part)
                              for part in parts))


def _row(group: Group, patterns: list[str]) -> dict[str, Any]:
    """The row of a group whose names, sources before targets, have become patterns."""
    sources: dict[str, Any] = {}
    for (called, names), pattern in zip(group.sources.items(), patterns, strict=False):
        more: dict[str, Any] = {"each": {"e": str(len(names))}} if len(names) > 1 else {}
        if called in group.shapes:
            more["shape"] = group.shapes[called]
        sources[called] = {"name": pattern, **more} if more else pattern
    targets = dict(zip(patterns[len(group.sources) :], group.targets.values(), strict=True))
    return {"from": sources, "to": targets}


def rows_of(groups: list[Group], names: Iterable[str]) -> list[dict[str, Any]]:
    """The groups as rows, as few as fit them and no other tensor of the checkpoint. `names` are all that it has."""
    known = list(names)
    buckets: dict[str, list[tuple[Group, list[str]]]] = {}
    for group in groups:
        patterns = [*(_numbered(some) for some in group.sources.values()), *group.targets]
        key = json.dumps([[_template(name)[0] for name in patterns], list(group.targets.values()), group.shapes,
                          [len(some) for some in group.sources.values()]])
        buckets.setdefault(key, []).append((group, patterns))
    rows = []
    for bucket in buckets.values():
        general = _generalised([patterns for _, patterns in bucket]) if len(bucket) > 1 else None
        if general is not None:
            members = {name for group, _ in bucket for name in group.names()}
            fits = [_fits(pattern) for pattern in general[: len(bucket[0][0].sources)]]
            if {name for name in known if any(one.fullmatch(name) for one in fits)} != members:
                general = None
        rows.extend([_row(bucket[0][0], general)] if general else [_row(group, patterns) for group, patterns in bucket])
    return rows


def _is_same(group: Group) -> bool:
    return list(group.targets.items()) == [(name, "w") for name in group.names()]


def _with_companions(groups: list[Group]) -> list[Group]:
    """Returns the groups that get a row: those that move, and those that stay in a module from which another moves, since a
    layout parts such tensors only where a row says so."""
    moving = [group for group in groups if not _is_same(group)]
    staying = [group for group in groups if _is_same(group)]
    modules = {name.rpartition(".")[0] for group in moving for name in group.names()} - {""}
    grows = True
    while grows:
        beneath = [group for group in staying if any(part in modules for part in _above(group.names()[0]))]
        staying = [group for group in staying if group not in beneath]
        moving += beneath
        modules |= {group.names()[0].rpartition(".")[0] for group in beneath} - {""}
        grows = bool(beneath)
    return moving


def _above(name: str) -> Iterable[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


# ---- a configuration, and the weights beside it -----------------------------------------------------------------------------


def _weights_beside(path: Path) -> dict[str, tuple[int, ...]] | None:
    folder = path if path.is_dir() else path.parent
    if not any((folder / name).exists() for name in ("model.safetensors", "model.safetensors.index.json")):
        return None
    return {name: entry.shape for name, entry in Checkpoint(folder).entries.items()}


def from_transformers(config: Path_, *, name: str | None = None) -> dict[str, Any]:
    """The layout by which `from_pretrained` of the installed transformers reads a checkpoint.

    `config` is a config.json or a folder with one. If model.safetensors or its index is beside it, the rows are for the
    tensors of these files; otherwise for the names that the mapping turns the model's tensors back to. `name` is the layout's
    (transformers-MODEL_TYPE).

    Raises LayoutRefused, a ValueError, where transformers would compute or drop numbers, changes nothing, or is not
    installed."""
    path, lib = Path(config), _Transformers()
    if not path.exists():
        raise LayoutRefused(f"there is no {path}: give a config.json, or a folder with one")
    levels = logging.getLogger("transformers").level
    lib.all.logging.set_verbosity_error()
    try:
        read = lib.config(path)
        mapping = Mapping(lib.model(read), lib)
        shapes = _weights_beside(path)
        groups = groups_of(mapping, shapes or mapping.original(), is_exact=shapes is not None)
    finally:
        lib.all.logging.set_verbosity(levels or lib.all.logging.WARNING)
    known = [name for group in groups for name in group.names()] if shapes is None else list(shapes)
    rows = rows_of(_with_companions(groups), known)
    if not any(not _is_same(group) for group in groups):
        raise LayoutRefused(f"transformers {lib.all.__version__} reads this checkpoint as it is: there is nothing to rearrange")
    if len(rows) > ROWS_MAX:
        raise LayoutRefused(f"the layout would have {len(rows)} rows, and {ROWS_MAX} is the most")
    return {
        "name": name or f"transformers-{read.model_type}",
        "description": f"What from_pretrained of transformers {lib.all.__version__} makes of a checkpoint of "
                       f"{type(mapping.model).__name__}.",
        "rows": rows,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `foldback layout from-transformers CONFIG`, and returns 0, or 1 if it failed. Wrong usage raises SystemExit."""
    parser = argparse.ArgumentParser(
        prog="foldback layout from-transformers",
        description="Writes the layout by which from_pretrained of the installed transformers reads a checkpoint: foldback "
        "layout put stores it. If model.safetensors or its index is beside the configuration, the rows are for its tensors.",
    )
    parser.add_argument("config", metavar="CONFIG", help="a config.json, or a folder with one")
    parser.add_argument("-o", "--output", metavar="FILE", help="instead of the standard output")
    parser.add_argument("--name", help="the layout's name (default: transformers-MODEL_TYPE)")
    options = parser.parse_args(argv)
    try:
        text = json.dumps(from_transformers(options.config, name=options.name), indent=2) + "\n"
        if options.output is None:
            sys.stdout.write(text)
        else:
            Path(options.output).write_text(text, encoding="utf-8")
    except (ValueError, OSError) as error:
        print(f"foldback layout from-transformers: {error}", file=sys.stderr)
        return 1
    return 0
