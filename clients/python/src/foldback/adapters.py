"""LoRA adapters merged into a checkpoint, and taken out of it again.

    foldback adapter merge base adapter -o merged.safetensors
    foldback adapter unmerge merged.safetensors -o base.safetensors

A merged weight is what PEFT's `merge_and_unload()` computes, bit for bit: an adapter in float16 or bfloat16 is cast to float32,
as `PeftModel.from_pretrained` does; delta = B @ A * scaling in that dtype, scaling = lora_alpha / r, or lora_alpha / sqrt(r)
with `use_rslora`; base + delta in the wider of both dtypes, rounded once to the base's. Several adapters are added one after
the other, each sum rounded. The delta of an embedding is rounded to the base's dtype first.

Taking the product away again does not give the base back: rounding has eaten some of it. So `unmerge` needs the very base, from
the store or as a file, and computes the merge again, to see what training has changed since.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checkpoints import Checkpoint, pieces, write
from .client import Client, Problem
from .private import find_binary
from .transfer import digest_of, download

__all__ = ["MergeRefused", "merge", "unmerge"]

NOTE = "foldback.adapters"  # of a merged file's metadata
Tensor = Any

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
          "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}
NAMES = {value: key for key, value in DTYPES.items()}
# Of an adapter_config.json, which would be merged otherwise than here
OTHER_KINDS = ("use_dora", "modules_to_save", "trainable_token_indices", "layer_replication", "use_qalora", "target_parameters",
               "use_bdlora", "arrow_config", "kasa_config", "alora_invocation_tokens", "lora_bias", "monteclora_config",
               "velora_config", "megatron_config")
BASE = re.compile(r"base_model\.model\.(.+)\.base_layer\.weight")  # which PEFT saves beside adapters of embeddings
A_AND_B = re.compile(r"base_model\.model\.(.+)\.(lora_[AB])\.weight|base_model\.model\.(.+)\.(lora_embedding_[AB])")


class MergeRefused(ValueError):
    """The adapters cannot be merged, or taken out again, exactly; the message says why."""


# ---- an adapter -------------------------------------------------------------------------------------------------------------


@dataclass
class Adapter:
    """A folder as PEFT saves it."""

    path: Path
    config: dict[str, Any]
    file: Checkpoint
    modules: dict[str, dict[str, str]]  # path of a module -> "A" and "B" -> tensor
    bases: dict[str, str]  # path of a module -> its base's weight, a copy
    digest: str

    @classmethod
    def read(cls, path: Path, config: dict[str, Any] | None = None) -> Adapter:
        folder = path if path.is_dir() else path.parent
        if config is None:
            file = folder / "adapter_config.json"
            if not file.exists():
                raise MergeRefused(f"there is no {file}: an adapter is a folder as PEFT's save_pretrained leaves it")
            config = json.loads(file.read_text(encoding="utf-8"))
        weights = path / "adapter_model.safetensors" if path.is_dir() else path
        if not weights.exists():
            raise MergeRefused(f"there is no {weights}")
        opened = Checkpoint(weights)
        modules: dict[str, dict[str, str]] = {}
        bases = {found[1]: name for name in opened.entries if (found := BASE.fullmatch(name))}
        for name in opened.entries.keys() - set(bases.values()):
            found = A_AND_B.fullmatch(name)
            if found is None:
                raise MergeRefused(f"{path}: {name} is neither A nor B of a LoRA adapter, and would not be merged")
            modules.setdefault(found[1] or found[3], {})[(found[2] or found[4])[-1]] = name
        for module, pair in modules.items():
            if set(pair) != {"A", "B"}:
                raise MergeRefused(f"{path}: {module} has only one of A and B")
        return cls(path, config, opened, modules, bases, digest_of(weights))._checked()

    def _checked(self) -> Adapter:
        kind = str(self.config.get("peft_type", "LORA"))
        if kind != "LORA":
            raise MergeRefused(f"{self.path}: an adapter of the kind {kind} is not merged here")
        for name in OTHER_KINDS:
            if self.config.get(name):
                raise MergeRefused(f"{self.path}: {name} is set in adapter_config.json: that is not merged here, but by PEFT")
        if self.config.get("bias", "none") != "none":
            raise MergeRefused(f"{self.path}: it has trained biases, which are not merged here: let PEFT merge it")
        return self

    def tensor(self, name: str) -> Tensor:
        """As PEFT loads it: what is narrower than float32 becomes that."""
        one = _tensor(self.file, name)
        return one.float() if one.element_size() < 4 else one

    def is_embedding(self, module: str) -> bool:
        return "lora_embedding" in self.modules[module]["A"]

    def shape(self, module: str) -> tuple[int, int]:
        """Rows and columns of B @ A."""
        a, b = (self.file.entries[self.modules[module][one]].shape for one in "AB")
        if len(a) != 2 or len(b) != 2 or a[0] != b[1]:
            raise MergeRefused(f"{self.path}: A {a} and B {b} of {module} are not those of a Linear or an Embedding")
        return b[0], a[1]

    def scaling(self, module: str) -> float:
        rank = self.file.entries[self.modules[module]["A"]].shape[0]
        for name, stated in (("rank_pattern", self.config.get("r", 8)), ("alpha_pattern", self.config.get("lora_alpha", 8))):
            pattern = self.config.get(name) or {}
            key = next((key for key in pattern if re.match(rf"(.*\.)?({key})$", module)), None)
            value = pattern[key] if key is not None else stated
            if name == "rank_pattern" and value != rank:
                raise MergeRefused(f"{self.path}: {module} has rank {rank}, and adapter_config.json says {value}")
        return float(value / math.sqrt(rank) if self.config.get("use_rslora") else value / rank)

    def delta(self, module: str, is_transposed: bool) -> Tensor:
        """PEFT's get_delta_weight, operation by operation."""
        product = self.tensor(self.modules[module]["B"]) @ self.tensor(self.modules[module]["A"])
        return (product.T if is_transposed else product) * self.scaling(module)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MergeRefused("foldback adapter needs PyTorch: install the wheel with the extra layouts") from None


def _tensor(file: Checkpoint, name: str) -> Tensor:
    torch, entry = _torch(), file.entries[name]
    if entry.dtype not in DTYPES:
        raise MergeRefused(f"{file.path}: {name} is {entry.dtype}, and an adapter is added to floating-point weights alone")
    dtype = getattr(torch, DTYPES[entry.dtype])
    if not entry.size:
        return torch.empty(entry.shape, dtype=dtype)
    return torch.frombuffer(file.bytes(name), dtype=dtype).reshape(entry.shape)


def _content(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(_torch().uint8).numpy().tobytes()) if tensor.numel() else b""


# ---- which tensor of the base each adapter changes --------------------------------------------------------------------------


@dataclass
class Plan:
    """The products to add to each tensor of the base."""

    base: Checkpoint
    adapters: list[Adapter]
    added: dict[str, list[tuple[Adapter, str, bool]]]  # tensor -> adapter, its module, is its product transposed?
    untied: dict[str, str]  # a tensor that the base lacks -> the one that it is tied to

    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        made = {name: (entry.dtype, entry.shape) for name, entry in self.base.entries.items()}
        return made | {name: made[source] for name, source in self.untied.items()}

    def merged(self, name: str, weight: Tensor | None = None) -> Tensor:
        """The weight with its adapters, or another one in its place."""
        made = _tensor(self.base, self.untied.get(name, name)) if weight is None else weight.clone()
        for adapter, module, is_transposed in self.added[name]:
            delta = adapter.delta(module, is_transposed)
            # In place: in the wider dtype, rounded once. PEFT rounds what it adds to embeddings before.
            made += delta.to(made.dtype) if adapter.is_embedding(module) else delta
        return made

    def content(self) -> Iterator[bytes | bytearray]:
        for name in self.tensors():
            yield _content(self.merged(name)) if name in self.added else self.base.bytes(self.untied.get(name, name))


def _named(adapter: Adapter, names: set[str]) -> dict[str, str]:
    """Module -> tensor of the base. An adapter may be of the model with its head, and the file of the model without, or the
    other way round: then all names lack the same prefix, or have it more."""
    rules = [lambda module: f"{module}.weight", lambda module: f"{module.partition('.')[2]}.weight"]
    prefixes = {name.partition(".")[0] for name in names}
    rules += [lambda module, prefix=prefix: f"{prefix}.{module}.weight" for prefix in sorted(prefixes)]  # type: ignore[misc]
    fits = []
    for rule in rules:
        named = {module: rule(module) for module in adapter.modules}
        if set(named.values()) <= names and named not in fits:
            fits.append(named)
    if len(fits) != 1:
        missing = next(f"{module}.weight" for module in adapter.modules if f"{module}.weight" not in names or fits)
        raise MergeRefused(f"{adapter.path}: {'several tensors' if fits else 'no tensor'} of the base may be {missing}")
    return fits[0]


def _orientations(adapter: Adapter, named: dict[str, str], shapes: dict[str, tuple[int, ...]]) -> dict[str, bool]:
    """Which products are added transposed: those of embeddings, and of Conv1D, whose weights are (in, out)."""
    found: dict[str, bool] = {}
    squares = []
    for module, name in named.items():
        rows, columns = adapter.shape(module)
        fits = {turned for turned in (False, True) if shapes[name] == ((columns, rows) if turned else (rows, columns))}
        if adapter.is_embedding(module):
            fits &= {True}
        if not fits:
            raise MergeRefused(f"{adapter.path}: B @ A of {module} is {(rows, columns)}, and {name} is {shapes[name]}")
        found[module] = max(fits)
        if len(fits) == 2:
            squares.append(module)
    sure = {turned for module, turned in found.items() if module not in squares and not adapter.is_embedding(module)}
    stated = bool(adapter.config.get("fan_in_fan_out"))
    for module in squares:
        if sure - {stated}:
            raise MergeRefused(f"{adapter.path}: {named[module]} is square, and fan_in_fan_out = {str(stated).lower()} is not "
                               "what other weights of the adapter are: it could be either way")
        found[module] = stated
    return found


def plan(base: Checkpoint, adapters: Sequence[Adapter], untied: dict[str, str]) -> Plan:
    for name, source in untied.items():
        if name in base.entries or source not in base.entries:
            raise MergeRefused(f"--untie {name}={source}: the base must have {source}, and not {name}")
    shapes = {name: entry.shape for name, entry in base.entries.items()}
    shapes |= {name: shapes[source] for name, source in untied.items()}
    made = Plan(base, list(adapters), {}, untied)
    for adapter in adapters:
        _check_tie(base, adapter, untied)
        named = _named(adapter, set(shapes))
        turned = _orientations(adapter, named, shapes)
        for module, name in named.items():
            if module in adapter.bases:
                copy, own = _tensor(adapter.file, adapter.bases[module]), _tensor(base, untied.get(name, name))
                if copy.shape != own.shape or not bool((copy.double() == own.double()).all()):
                    raise MergeRefused(f"{adapter.path}: it brings {module} along, and that is not the base's {name}")
            if base.entries[untied.get(name, name)].dtype not in ("F64", "F32", "F16", "BF16"):
                raise MergeRefused(f"{name} is {base.entries[untied.get(name, name)].dtype}: an adapter is added to "
                                   "floating-point weights alone")
            made.added.setdefault(name, []).append((adapter, module, turned[module]))
    return made


def _check_tie(base: Checkpoint, adapter: Adapter, untied: dict[str, str]) -> None:
    """Refuses tied weights. PEFT adds to such a weight in place: an adapter of the embedding then changes the head as well."""
    heads = [module for module in adapter.modules if module.split(".")[-1] in ("lm_head", "embed_out", "decoder", "proj_out")
             and f"{module}.weight" not in base.entries and f"{module}.weight" not in untied]
    advice = ("--untie lm_head.weight=model.embed_tokens.weight, by their names, writes both; set tie_word_embeddings to false "
              "then")
    if heads:
        raise MergeRefused(f"{adapter.path}: {heads[0]} has no weight of its own in the base, so it is tied: {advice}")
    embeddings = [module for module in adapter.modules if adapter.is_embedding(module)]
    is_tied = base.config().get("tie_word_embeddings", True) and not any(
        name.endswith(("lm_head.weight", "embed_out.weight")) for name in base.entries)
    if embeddings and is_tied and not untied:
        raise MergeRefused(f"{adapter.path}: {embeddings[0]} may be tied to the head of the model, which must not change with "
                           f"it (no config.json beside the base says tie_word_embeddings is false): {advice}")


# ---- the store --------------------------------------------------------------------------------------------------------------


@dataclass
class Store:
    """The store of bases: a running service, or a data folder, for which one is started and stopped."""

    server: str | None
    data: str | None

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        if self.server:
            with Client(self.server) as client:
                yield client
            return
        with tempfile.TemporaryDirectory(prefix="foldback-") as folder:
            address = f"unix:{folder}/socket"
            environment = {key: value for key, value in os.environ.items() if key not in ("FOLDBACK_SERVER", "FOLDBACK_DATA")}
            with open(f"{folder}/log", "w+", encoding="utf-8") as log:
                process = subprocess.Popen(
                    [find_binary(), "serve", "--listen", address, "--data", self.data or ".foldback", "--access-log", "off"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
                try:
                    self._wait(process, Path(f"{folder}/log"))
                    with Client(address) as client:
                        yield client
                finally:
                    process.terminate()
                    process.wait()

    def _wait(self, process: subprocess.Popen[bytes], log: Path) -> None:
        for _ in range(3000):
            if "listening on" in log.read_text(encoding="utf-8", errors="replace"):
                return
            if process.poll() is not None:
                break
            time.sleep(0.01)
        raise MergeRefused(f"foldback serve does not start: {log.read_text(encoding='utf-8', errors='replace').strip()}")

    def keep(self, base: Checkpoint, adapters: Iterable[Adapter]) -> list[dict[str, str]]:
        """Stores the files of a merge; names and digests of the base's."""
        with self.client() as client:
            client.checkpoint(base.files, name=base.path.name, progress=False)
            for adapter in adapters:
                client.checkpoint(adapter.file.files, name=adapter.path.name, progress=False)
        return [{"name": file.name, "digest": digest_of(file)} for file in base.files]

    def fetch(self, digest: str, file: Path) -> bool:
        """False: the store does not have it."""
        with self.client() as client:
            try:
                download(client._service, f"/v1/blobs/{digest}", {}, file, False, digest)
            except Problem as problem:
                if problem.status == 404:
                    return False
                raise
        return True


# ---- merge ------------------------------------------------------------------------------------------------------------------


def merge(base: Path, adapters: Sequence[Path], output: Path, *, store: Store, untied: dict[str, str] | None = None) -> int:
    """Writes a safetensors file with the adapters added, in this order, and stores the base. Gives the number of weights that
    changed. Raises MergeRefused, a ValueError."""
    opened = [Adapter.read(path) for path in adapters]
    digests = [adapter.digest for adapter in opened]
    if len(set(digests)) < len(digests):
        raise MergeRefused("an adapter is given twice")
    made = plan(Checkpoint(base), opened, untied or {})
    files = store.keep(made.base, opened)
    note = {"base": files, "untied": made.untied,
            "adapters": [{"name": adapter.path.name, "digest": adapter.digest, "config": adapter.config} for adapter in opened]}
    write(output, made.tensors(), made.content(), {**made.base.metadata, NOTE: json.dumps(note, separators=(",", ":"))})
    return len(made.added)


# ---- and back ---------------------------------------------------------------------------------------------------------------


@dataclass
class Merge:
    """A merged file with all that it was made of."""

    file: Checkpoint
    plan: Plan
    note: dict[str, Any]
    folder: Path

    def changed(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Tensors that are not what the merge made: what it made, and what is there."""
        for name in self.plan.tensors():
            source = self.plan.untied.get(name, name)
            if name in self.plan.added:
                expected = self.plan.merged(name)
                if _content(expected) != self.file.bytes(name):
                    yield name, expected, _tensor(self.file, name)
            elif self.plan.base.bytes(source) != self.file.bytes(name):
                yield name, _tensor(self.plan.base, source), _tensor(self.file, name)


def _opened(merged: Path, base: Path | None, adapters: Sequence[Path], store: Store, folder: Path) -> Merge:
    file = Checkpoint(merged)
    text = file.metadata.get(NOTE)
    note = json.loads(text) if text else None
    if note is None and (base is None or not adapters):
        raise MergeRefused(f"{merged} does not say what it was made of (another program has written it): name --base and, in "
                           "their order, each --adapter")
    opened = []
    for i, one in enumerate(note["adapters"] if note else []):
        given = next((path for path in adapters if Adapter.read(path).digest == one["digest"]), None)
        target = folder / f"adapter_{i}.safetensors"
        if given is None and not store.fetch(one["digest"], target):
            raise MergeRefused(f"the store does not have the adapter {one['name']}: give it with --adapter")
        opened.append(Adapter.read(given or target, one["config"]))
    if note is None:
        opened = [Adapter.read(path) for path in adapters]
    found = Checkpoint(base) if base is not None else _from_store(note or {}, store, folder)
    if note is not None and base is not None and [digest_of(path) for path in found.files] != [
            one["digest"] for one in note["base"]]:
        raise MergeRefused(f"{base} is not the base that {merged} was made of")
    made = plan(found, opened, note["untied"] if note else {})
    if {name: (entry.dtype, entry.shape) for name, entry in file.entries.items()} != made.tensors():
        raise MergeRefused(f"{merged} has other tensors than the merge made")
    return Merge(file, made, note or {}, folder)


def _from_store(note: dict[str, Any], store: Store, folder: Path) -> Checkpoint:
    shards = folder / "base"
    shards.mkdir()
    for one in note["base"]:
        if not store.fetch(one["digest"], shards / one["name"]):
            raise MergeRefused(f"the store does not have the base, {one['name']}: give it with --base. Without its very bytes "
                               "it cannot be had: to subtract the adapter rounds")
    names = [one["name"] for one in note["base"]]
    if len(names) == 1:
        return Checkpoint(shards / names[0])
    index = shards / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: name for name in names}}), encoding="utf-8")
    return Checkpoint(index)


def _write_base(made: Merge, output: Path, replaced: Iterable[tuple[str, Tensor]]) -> None:
    """The files of the base, with these tensors in the place of its own."""
    files = made.plan.base.files
    if len(files) > 1 and not output.is_dir():
        raise MergeRefused(f"the base has {len(files)} files: --output must be a folder that is there")
    targets = {file: output / file.name if output.is_dir() else output for file in files}
    parts = {file: target.with_name(f".{target.name}.{os.getpid()}.part") for file, target in targets.items()}
    try:
        for file, part in parts.items():
            with open(part, "wb") as opened:
                opened.writelines(pieces(file))
        for name, tensor in replaced:
            entry = made.plan.base.entries[name]
            with open(parts[entry.file], "r+b") as opened:
                opened.seek(entry.offset)
                opened.write(_content(tensor))
        for file, target in targets.items():
            os.replace(parts[file], target)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _without_delta(made: Merge, name: str, expected: Tensor, trained: Tensor) -> tuple[Tensor, int]:
    """Returns a base that, with the adapters added, gives the trained weight. Also counts the elements that no base gives: they
    get the nearest one. An element that did not change keeps the bits of the base."""
    torch = _torch()
    base = _tensor(made.plan.base, name)
    deltas = [adapter.delta(module, turned).double() for adapter, module, turned in made.plan.added[name]]
    best = (trained.double() - sum(deltas)).to(base.dtype)
    up, down = (torch.nextafter(best, torch.full_like(best, value)) for value in (math.inf, -math.inf))
    for candidate in (up, down, base):
        best = torch.where(made.plan.merged(name, candidate) == trained, candidate, best)
    best = torch.where(expected == trained, base, best)
    return best, int((made.plan.merged(name, best) != trained).sum())


def unmerge(merged: Path, output: Path, *, store: Store, base: Path | None = None, adapters: Sequence[Path] = (),
            change: str | None = None, adapter_output: Path | None = None, rank: int | None = None,
            leave_out: str | None = None) -> dict[str, Any]:
    """Writes the base of a merged file: its very bytes, if nothing was trained. Otherwise `change` says whether the training is
    the base's or the adapter's, which goes to `adapter_output`, a new folder. `leave_out` takes only the adapter of that name
    out, and writes the merge of the others. Gives what was done. Raises MergeRefused, a ValueError."""
    with tempfile.TemporaryDirectory(prefix="foldback-", dir=output.parent) as folder:
        made = _opened(merged, base, adapters, store, Path(folder))
        changed = {name: int((one != two).sum()) for name, one, two in made.changed()}
        if leave_out is not None:
            return _leave_out(made, output, leave_out, changed)
        if not changed:
            _write_base(made, output, [])
            return {"exact": True, "trained": 0}
        if change is None:
            raise MergeRefused(f"{len(changed)} tensors are not what the merge made, {next(iter(changed))} first: say whether "
                               "the training is the base's, --change base, or the adapter's, --change adapter")
        others = [name for name in changed if name not in made.plan.base.entries]
        if others:
            raise MergeRefused(f"{others[0]} was trained, and the base does not have it: it is tied there")
        if change == "base":
            return _to_base(made, output, changed)
        return _to_adapter(made, output, changed, adapter_output, rank)


def _to_base(made: Merge, output: Path, changed: dict[str, int]) -> dict[str, Any]:
    missed = 0

    def replaced() -> Iterator[tuple[str, Tensor]]:
        nonlocal missed
        for name, expected, trained in made.changed():
            if name not in made.plan.added:
                yield name, trained
                continue
            nearest, count = _without_delta(made, name, expected, trained)
            missed += count
            yield name, nearest

    _write_base(made, output, replaced())
    return {"exact": False, "trained": len(changed), "elements_of_no_base": missed}


def _leave_out(made: Merge, output: Path, name: str, changed: dict[str, int]) -> dict[str, Any]:
    found = [adapter for adapter in made.plan.adapters if adapter.path.name == name or adapter.digest == name]
    named = [one["digest"] for one in made.note.get("adapters", []) if one["name"] == name]
    found = found or [adapter for adapter in made.plan.adapters if adapter.digest in named]
    if len(found) != 1 or len(made.plan.adapters) < 2:
        raise MergeRefused(f"--leave-out {name}: name one of the several adapters of the merge")
    if changed:
        raise MergeRefused(f"{next(iter(changed))} was trained since: take all adapters out, and merge the others again")
    rest = plan(made.plan.base, [adapter for adapter in made.plan.adapters if adapter is not found[0]], made.plan.untied)
    note = {**made.note, "adapters": [one for one in made.note["adapters"] if one["digest"] != found[0].digest]}
    metadata = {**made.plan.base.metadata, NOTE: json.dumps(note, separators=(",", ":"))}
    write(output, rest.tensors(), rest.content(), metadata)
    return {"exact": True, "trained": 0, "adapters": len(rest.adapters)}


def _to_adapter(made: Merge, output: Path, changed: dict[str, int], folder: Path | None, rank: int | None) -> dict[str, Any]:
    torch = _torch()
    if len(made.plan.adapters) != 1:
        raise MergeRefused(f"the merge is of {len(made.plan.adapters)} adapters: which of them was trained cannot be known")
    if folder is None:
        raise MergeRefused("name a folder for the trained adapter, --adapter-output DIR")
    if folder.exists():
        raise MergeRefused(f"{folder} exists; name a new folder for the trained adapter")
    others = [name for name in changed if name not in made.plan.added]
    if others:
        raise MergeRefused(f"{others[0]} was trained, and the adapter does not have it: the change is the base's")
    adapter = made.plan.adapters[0]
    tensors = {name: adapter.tensor(name) for name in adapter.file.entries}
    worst, config = 0.0, json.loads(json.dumps(adapter.config))
    for name, _, trained in made.changed():
        ((_, module, turned),) = made.plan.added[name]
        old, pair = _tensor(made.plan.base, name), adapter.modules[module]
        scaling, own = adapter.scaling(module), tensors[pair["A"]].shape[0]
        wanted = (trained.double() - old.double()) / scaling
        u, s, v = torch.linalg.svd(wanted.T if turned else wanted, full_matrices=False)
        kept = rank or own
        root = s[:kept].sqrt()
        b, a = ((u[:, :kept] * root).float(), (root[:, None] * v[:kept]).float())
        again = old + ((b @ a).T if turned else b @ a) * scaling
        error = float((again.to(trained.dtype).double() - trained.double()).abs().max())
        allowed = 4 * torch.finfo(trained.dtype).eps * float(trained.double().abs().max())
        if error > allowed:
            needed = int((s * scaling > allowed / math.sqrt(len(s))).sum())
            raise MergeRefused(f"the training of {name} is not that of an adapter of rank {kept}: merged again it would differ "
                               f"by {error:.3g}. With --rank {needed} it would be kept")
        worst = max(worst, error)
        pad = kept - b.shape[1]
        tensors[pair["A"]] = torch.nn.functional.pad(a, (0, 0, 0, pad))
        tensors[pair["B"]] = torch.nn.functional.pad(b, (0, pad))
        if kept != own:  # the scaling stays
            factor = math.sqrt(kept / own) if config.get("use_rslora") else kept / own
            alpha = scaling * (math.sqrt(own) if config.get("use_rslora") else own)
            config.setdefault("rank_pattern", {})[re.escape(module)] = kept
            config.setdefault("alpha_pattern", {})[re.escape(module)] = alpha * factor
    folder.mkdir(parents=True)
    write(folder / "adapter_model.safetensors", {name: (NAMES[str(one.dtype).split(".")[-1]], tuple(one.shape))
                                                for name, one in tensors.items()},
          (_content(one) for one in tensors.values()), {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    _write_base(made, output, [])
    return {"exact": False, "trained": len(changed), "largest_difference": worst}


# ---- the command ------------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="foldback adapter", description="merges LoRA adapters, and takes them out again")
    verbs = parser.add_subparsers(required=True, metavar="merge|unmerge", dest="verb")
    one = verbs.add_parser("merge", help="add adapters to a checkpoint, as PEFT does, bit for bit",
                           description="Adds LoRA adapters to the weights of a checkpoint, in the order given, and writes one "
                           "safetensors file. The bytes are those of PEFT's merge_and_unload(). The store keeps the base.")
    one.add_argument("base", metavar="BASE", help="a safetensors file, an index of shards, or a folder with one of these")
    one.add_argument("adapters", metavar="ADAPTER", nargs="+", help="a folder as PEFT saves it")
    one.add_argument("--untie", metavar="NAME=SOURCE", action="append", default=[],
                     help="write a tied weight as a tensor of its own: lm_head.weight=model.embed_tokens.weight")
    two = verbs.add_parser("unmerge", help="take adapters out of a merged file",
                           description="Writes the base of a merged file: its very bytes, from the store or as given. If the "
                           "file was trained since, --change says whose the training is.")
    two.add_argument("merged", metavar="MERGED", help="a file that merge wrote")
    two.add_argument("--base", metavar="BASE", help="the base, if the store does not have it")
    two.add_argument("--adapter", metavar="ADAPTER", action="append", default=[],
                     help="an adapter that the store does not have")
    two.add_argument("--change", choices=("base", "adapter"), help="whose the training since the merge is")
    two.add_argument("--adapter-output", metavar="DIR", help="with --change adapter: the trained adapter, a new folder")
    two.add_argument("--rank", type=int, help="with --change adapter: its rank (that of before)")
    two.add_argument("--leave-out", metavar="ADAPTER", help="take only this one of several adapters out")
    for verb in (one, two):
        verb.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
        verb.add_argument("--force", action="store_true", help="write over a file")
        verb.add_argument("--data", metavar="DIR", help="the data folder; also $FOLDBACK_DATA (./.foldback)")
        verb.add_argument("--server", metavar="URL", help="talk to a service instead ($FOLDBACK_SERVER)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `foldback adapter merge` or `unmerge`, and returns 0, or 1 if it failed. Wrong usage raises SystemExit."""
    options = _parser().parse_args(argv)
    output = Path(options.output)
    server = options.server or (None if options.data else os.environ.get("FOLDBACK_SERVER"))
    store = Store(server, options.data or os.environ.get("FOLDBACK_DATA"))
    try:
        if output.exists() and not output.is_dir() and not options.force:
            raise MergeRefused(f"{output} exists: --force writes over it")
        if options.verb == "merge":
            untied = dict(part.split("=", 1) for part in options.untie if "=" in part)
            if len(untied) != len(options.untie):
                raise MergeRefused("--untie takes NAME=SOURCE")
            count = merge(Path(options.base), [Path(one) for one in options.adapters], output, store=store, untied=untied)
            said: dict[str, Any] = {"weights": count}
        else:
            said = unmerge(Path(options.merged), output, store=store, base=Path(options.base) if options.base else None,
                           adapters=[Path(one) for one in options.adapter], change=options.change, rank=options.rank,
                           adapter_output=Path(options.adapter_output) if options.adapter_output else None,
                           leave_out=options.leave_out)
    except (ValueError, OSError, Problem) as error:
        print(f"foldback adapter: {error}", file=sys.stderr)
        return 1
    print(json.dumps(said))
    return 0
