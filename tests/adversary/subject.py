"""A random program in its dialect, as torch.fx holds it, with its document and the inputs to try."""

import contextlib
import copy
import io
import warnings

import torch
import torch.utils._pytree as pytree
from compare import Judge, call, is_same_bits, state_of

import foldback.export
import foldback.fx

SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 65504.0, 1e-7, 6e-8, -3.5, 2.5]


class Unusable(Exception):
    """PyTorch itself does not trace, export or run the program."""


class ExportError(Exception):
    """PyTorch does, and the client does not."""


def lying_like(given, values):
    """With its strides, which may decide whether PyTorch runs a program (F.linear with a weight of one dimension)."""
    return torch.empty_like(given).copy_(values)


def each(inputs, function):
    """Inputs of the same structure, each tensor by a function of it; one that is given twice stays one."""
    made = {}

    def change(given):
        if id(given) not in made:
            made[id(given)] = function(given)
        return made[id(given)]

    return pytree.tree_map(change, inputs)


def with_special(inputs, seed, values):
    generator = torch.Generator().manual_seed(seed)

    def change(given):
        if not given.is_floating_point() or not given.numel():
            return given
        chosen = torch.rand(given.shape, generator=generator) < 0.3
        picked = torch.tensor(values, dtype=given.dtype)[torch.randint(0, len(values), given.shape, generator=generator)]
        return lying_like(given, torch.where(chosen, picked, given))

    return each(inputs, change)


def with_other_strides(inputs):
    return each(inputs, lambda given: torch.stack([given, given], -1)[..., 0] if given.dim() else given)


def is_written(inputs, outcome):
    """Has a call changed one of them?"""
    return any(one.shape != other.shape or one.stride() != other.stride() or not is_same_bits(one, other)
               for one, other in zip(pytree.tree_leaves(inputs), outcome.inputs))


def has_said_strides(tensor):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.is_contiguous() or (tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()]))


@contextlib.contextmanager
def unset_memory_is_filled():
    """PyTorch fills what empty and resize_ give."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def reads_unset_memory(model, inputs, outcome):
    with unset_memory_is_filled():
        filled = call(model, inputs)
    return filled.error is not None or any(
        isinstance(one, torch.Tensor) and not (one.shape == other.shape and is_same_bits(one, other))
        for one, other in zip(outcome.leaves, filled.leaves)
    )


class Subject:
    def __init__(self, program):
        self.program = program
        warnings.simplefilter("ignore")
        try:
            model, self.make_inputs = program.load()
            self.inputs = self.make_inputs()
            before = call(model, self.inputs)
            if before.error is not None:
                raise Unusable(str(before.error))
            if reads_unset_memory(model, self.inputs, before):
                raise Unusable("it reads memory that nothing has set")
            if self.is_repeated and is_written(self.inputs, before):
                raise Unusable("it writes to inputs, of which two are one: tracers take them for two (core/analysis/alias.h)")
            self.live, self.exported = self.trace(model)
            if call(self.live, self.inputs).error is not None:
                raise Unusable("the trace does not run")
            if not all(has_said_strides(tensor) and not tensor.storage_offset() for tensor in state_of(self.live).values()):
                raise Unusable("documents do not hold where weights begin, nor other strides than channels_last")
            if any(tensor.dtype == torch.complex32 for tensor in [*state_of(self.live).values(), *vars(self.live).values()]
                   if isinstance(tensor, torch.Tensor)):
                raise Unusable("documents do not hold complex32")
        except Unusable:
            raise
        except Exception as error:
            raise Unusable(f"{type(error).__name__}: {error}") from error
        try:
            if self.exported is not None:
                self.document = foldback.export.from_exported_program(self.exported, name="Net", data=True)
            else:
                self.document = self.document_of(self.live, data=True)
        except Exception as error:
            if "shares memory with" in str(error):
                raise Unusable("documents do not hold weights that lie in each other as other dtypes") from error
            raise ExportError(f"{type(error).__name__}: {error}") from error
        # A document does not say which sizes its symbols may have: it is evaluated with some of 5 to 15.
        if self.exported is not None and any(sizes.upper < 16 for sizes in self.exported.range_constraints.values()):
            raise Unusable("it takes small sizes only")
        self.judges = {}

    def document_of(self, live, **options):
        """With the shapes and dtypes that its dialect records: of all nodes, of the inputs alone, or none."""
        dialect = self.program.dialect
        document = foldback.fx.to_document(live, *([] if dialect == "fx-shapeless" else copy.deepcopy(self.inputs)), **options)
        for row in document["nodes"] if dialect == "fx-inputs" else []:
            row["meta"] = row["meta"] if row["op"] == "placeholder" else {}
        return document

    def trace(self, model):
        dialect = self.program.dialect
        if dialect.startswith("fx"):
            return torch.fx.symbolic_trace(model), None
        dynamic = None
        if dialect == "dynamic":
            dynamic = pytree.tree_map(
                lambda given: {0: torch.export.Dim.AUTO} if given.dim() and given.shape[0] == self.program.batch else None,
                self.inputs,
            )
        with contextlib.redirect_stderr(io.StringIO()):  # what it says of programs that it cannot follow
            exported = self.export(model, dynamic)
        live = exported.module()
        foldback.export._drop_guards(live)
        live.recompile()
        return live, exported

    def export(self, model, dynamic):
        alone = pytree.tree_map(copy.deepcopy, tuple(self.inputs))  # it takes two that are one for one input
        exported = torch.export.export(model, alone, dynamic_shapes=dynamic)
        return exported.run_decompositions() if self.program.dialect == "decomposed" else exported

    @property
    def tensors(self):
        return pytree.tree_leaves(self.inputs)

    @property
    def is_repeated(self):
        """Is one tensor given twice?"""
        return len({id(tensor) for tensor in self.tensors}) < len(self.tensors)

    @property
    def is_for_any_batch(self):
        """Are its recorded shapes, if any, symbolic?"""
        if self.program.dialect == "fx-shapeless":
            return True
        if self.program.dialect != "dynamic":
            return False
        others = pytree.tree_leaves(self.make_inputs(self.program.batch + 2))
        if any(one.shape[1:] != other.shape[1:] for one, other in zip(self.tensors, others)):
            return False  # the batch is another axis of this input, which is not dynamic
        rows = [row for row in self.document["nodes"] if row["op"] == "placeholder"]
        return any(isinstance(size, str) for row in rows for size in row["meta"].get("shape", [])) and all(
            not row["meta"].get("shape")
            or isinstance(row["meta"]["shape"][0], str)
            or row["meta"]["shape"][0] != self.program.batch
            for row in rows
        )

    def variants(self):
        """By name, the inputs to try."""
        seed = self.program.seed
        made = {"traced": lambda: self.inputs}
        made["other values"] = lambda: each(
            self.inputs, lambda given: lying_like(given, torch.roll(given, 1)) if given.numel() else given)
        made["nan"] = lambda: with_special(self.inputs, seed, [float("nan")])
        made["special"] = lambda: with_special(self.inputs, seed, SPECIAL)
        made["strides"] = lambda: with_other_strides(self.inputs)
        if self.program.dialect.startswith("fx") or self.is_for_any_batch:
            made["larger batch"] = lambda: self.make_inputs(self.program.batch + 2)
            if self.program.dialect != "dynamic":
                made["batch of 1"] = lambda: self.make_inputs(1)
        return made

    def judge(self, variant):
        if variant not in self.judges:
            self.judges[variant] = Judge(self.live, self.variants()[variant]())
        return self.judges[variant]
