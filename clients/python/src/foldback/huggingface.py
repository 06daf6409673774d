"""Hugging Face folders: in as a program of torch.fx, out as a folder.

`load` traces the model of a folder that `save_pretrained` wrote; `save` writes a folder again. A program that is as it was
loaded is saved for `from_pretrained`. Any other program is saved with its graph, and only `load` reads that folder:
`from_pretrained` would compute the original program with weights that were made for another.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from . import private
from .client import Client, Problem
from .files import files_of, with_shards
from .fx import build, from_document, mark_buffers
from .runs import RunOrId
from .tensors import TensorTable, digest_of, owners

__all__ = ["load", "save"]

_SOURCE = "foldback.huggingface"  # in a module's meta: where it came from, and what it was
_GRAPH = "foldback.graph.json"
_WEIGHTS = "foldback{suffix}.safetensors"
_OF_RUN = "run.safetensors"
_KEPT = {".json", ".jinja", ".md", ".model", ".txt"}  # files beside the weights, such as the tokenizer's

Path_ = str | os.PathLike[str]


def load(folder: Path_, *, input_names: Sequence[str] | None = None) -> GraphModule:
    """The model of a folder, in eval mode, as a program of torch.fx with the folder's weights and dtype.

    `input_names` are the arguments that the program takes, such as ["input_ids", "attention_mask"]; without it they are those
    of the model's `dummy_inputs`, or its main input where that is another, such as "pixel_values". A folder of `save` that
    holds a graph gives that program, whose inputs are given already.

    Raises FileNotFoundError for a folder without config.json or weights, and ValueError for custom code, pickled weights,
    weights that do not fit the model, and models that the tracer of transformers (before version 5) does not follow."""
    path = Path(folder)
    config = _config(path)
    if (path / _GRAPH).exists():
        return _rebuilt(path, config, input_names)
    model = _model(path, config)
    live = _traced(model, input_names)
    mark_buffers(live, model)
    is_known = {row["name"] for row in _document(live)[0]["tensors"] if _is_in_file(row)} <= model.state_dict().keys()
    program = _identity(live) if is_known else None  # a tensor that no checkpoint has could not go back into one
    live.meta[_SOURCE] = {"folder": str(path.resolve()), "weights": _stamps(path), "program": program}
    return live


def save(
    program: GraphModule | RunOrId,
    folder: Path_,
    *,
    source: Path_ | None = None,
    client: Client | None = None,
    max_shard_size: int | str = "5GB",
) -> None:
    """Writes a program that `load` gave, and that may have been transformed or trained since, into a new folder; or the result
    of a run, by its id or as the client gave it.

    Where program, keys, shapes and dtypes are those that were loaded (after training, or after an undo), `from_pretrained`
    reads the folder. Otherwise it holds foldback.graph.json and the weights of that graph: `load` reads it, and
    `from_pretrained` finds no weights. Configuration and tokenizer are copied. The folder appears at once when it is complete.

    Of a run, `source` is the folder of the model that it started from: weights come from the service, or from that folder if
    the service has none. `client` is the service's; without it, it is the one that `foldback.connect` or FOLDBACK_SERVER names.

    Raises FileExistsError if the folder exists and is not empty, FileNotFoundError if the folder that was loaded is gone, and
    ValueError if the module does not come from `load`, if the weights in that folder have changed since or are not those of the
    run, or if the run has no result."""
    if isinstance(program, GraphModule):
        live = program
    elif source is None:
        raise ValueError("to save a run, give the folder of its model: save(run, folder, source=…)")
    else:
        live = _of_run(client or private.client(), program, Path(source))
    origin_of = live.meta.get(_SOURCE)
    if origin_of is None:
        raise ValueError("save takes the module that foldback.huggingface.load gave, or a copy of it, or a run")
    _save(live, origin_of, folder, max_shard_size)


def _save(live: GraphModule, source: dict[str, Any], folder: Path_, max_shard_size: int | str) -> None:
    origin, to = Path(source["folder"]), Path(os.path.abspath(folder))
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise FileExistsError(f"{to} exists; give a new folder")
    _config(origin)
    to.parent.mkdir(parents=True, exist_ok=True)
    made = to.parent / f".{to.name}.{secrets.token_hex(4)}"
    made.mkdir()
    try:
        if source["program"] == _identity(live):
            _save_original(live, source, made, max_shard_size)
        else:
            _save_graph(live, made, max_shard_size)
        _copy_kept(origin, made)
        _settle(made)
        os.rename(made, to)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


# ---- in -------------------------------------------------------------------------------------------------------------------


def _config(path: Path) -> dict[str, Any]:
    """config.json, unless it asks for code that came with the model."""
    file = path / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"{path} has no config.json; give a folder that save_pretrained wrote")
    config = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError(f"{file} is not a JSON object")
    if "auto_map" in config:
        raise ValueError(f"{file} names custom code (auto_map); foldback loads classes of transformers only")
    return config


def _model(path: Path, config: dict[str, Any]) -> torch.nn.Module:
    """The model that the folder holds, with every weight of it."""
    transformers: Any = importlib.import_module("transformers")
    named = config.get("architectures") or []
    cls = getattr(transformers, str(named[0]), None) if len(named) == 1 else None
    if cls is None or not hasattr(cls, "from_pretrained"):
        config_json = path / "config.json"
        raise ValueError(f"{config_json}: architectures is {named}, not one class of transformers {transformers.__version__}")
    files = _weights_files(path)
    options = {"local_files_only": True, "use_safetensors": True, "attn_implementation": "eager", "torch_dtype": "auto"}
    try:
        model, said = cls.from_pretrained(path, output_loading_info=True, **options)
    except RuntimeError as error:
        raise ValueError(f"the weights in {path} do not fit {named[0]}: {error}") from error
    for kind, keys in said.items():
        if keys:
            raise ValueError(f"the weights in {path} do not fit {named[0]}: {kind.replace('_', ' ')}: "
                             f"{sorted(map(str, keys))[0]}")
    loaded: torch.nn.Module = model.eval()
    _check_dtypes(files, loaded)
    return loaded


def _check_dtypes(files: list[Path], model: torch.nn.Module) -> None:
    """from_pretrained casts every weight to one dtype; those that the file has in another would not go out as they came in."""
    safetensors: Any = importlib.import_module("safetensors")
    state = model.state_dict()
    for file in files:
        if file.suffix == ".json":  # the index of shards
            continue
        with safetensors.safe_open(file, "pt") as opened:
            for key in opened.keys():
                part = opened.get_slice(key)
                held = part[:0] if part.get_shape() else opened.get_tensor(key)
                if key in state and held.dtype != state[key].dtype:
                    raise ValueError(f"{file}: {key} is not {state[key].dtype} like the model; convert the weights to one "
                                     "dtype")


def _weights_files(path: Path) -> list[Path]:
    """The files that from_pretrained reads."""
    for name in ("model.safetensors", "model.safetensors.index.json"):
        if (path / name).is_file():
            files = with_shards(path / name)
            lacking = [file.name for file in files if not file.is_file()]
            if lacking:
                raise FileNotFoundError(f"{path} lacks the shard {lacking[0]}, which {name} names")
            return files
    if any(path.glob("*.bin")):
        raise ValueError(f"the weights in {path} are pickles (.bin), which can run code; save them as safetensors with "
                         "save_pretrained")
    raise FileNotFoundError(f"{path} has no model.safetensors and no model.safetensors.index.json")


def _traced(model: torch.nn.Module, input_names: Sequence[str] | None) -> GraphModule:
    try:
        tracer: Any = importlib.import_module("transformers.utils.fx")
    except ImportError as error:
        raise ValueError(
            "transformers 5 has no tracer for torch.fx. Install a version before 5 (pip install 'transformers<5'), or leave "
            "the "
            'folder to from_pretrained and use torch.compile(model, backend="foldback"), or '
            'foldback.export.from_module(model, …)'
        ) from error
    base: Any = tracer.HFTracer

    class Tracer(base):  # type: ignore[misc]
        """HFTracer replaces functions of torch while it traces, and leaves them replaced when the model raises."""

        @contextlib.contextmanager
        def patch_for_tracing(self, root: Any) -> Iterator[None]:
            patched = super().patch_for_tracing(root)
            patched.__enter__()
            try:
                yield
            finally:
                patched.__exit__(None, None, None)

    names = _inputs_of(model) if input_names is None else list(input_names)
    try:
        live: GraphModule = tracer.symbolic_trace(model, names, tracer_cls=Tracer)
    except Exception as error:
        raise ValueError(f"the tracer of transformers does not follow {type(model).__name__}: {error}") from error
    return live


def _inputs_of(model: Any) -> list[str]:
    """transformers has the inputs of a text model for any that says nothing else."""
    said: list[str] = list(model.dummy_inputs)
    return said if model.main_input_name in said else [model.main_input_name]


def _rebuilt(path: Path, config: dict[str, Any], input_names: Sequence[str] | None) -> GraphModule:
    """The program of a folder with a graph."""
    document = json.loads((path / _GRAPH).read_text(encoding="utf-8"))
    inputs = [node["target"] for node in document["nodes"] if node["op"] == "placeholder"]
    if input_names is not None and list(input_names) != inputs:
        raise ValueError(f"the graph in {path} takes {inputs}, not {list(input_names)}")
    tensors = _tensors_in(files_of(path))
    wrong = tensors.keys() ^ {row["name"] for row in document["tensors"] if _is_in_file(row)}
    if wrong:
        raise ValueError(f"the weights in {path} are not those of its {_GRAPH}: {sorted(wrong)[0]} is in one of the two only")
    live = from_document(document, weights=tensors, as_="finished")
    live.config = _configuration(config)
    live.meta[_SOURCE] = {"folder": str(path.resolve()), "weights": {}, "program": None}
    return live


def _tensors_in(files: Iterable[Path]) -> dict[str, torch.Tensor]:
    safetensors: Any = importlib.import_module("safetensors")
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        if file.suffix == ".json":  # the index of shards
            continue
        with safetensors.safe_open(file, framework="pt") as opened:
            tensors |= {key: opened.get_tensor(key) for key in opened.keys()}
    return tensors


def _configuration(config: dict[str, Any]) -> Any:
    kinds: Any = importlib.import_module("transformers").AutoConfig
    return kinds.for_model(**config) if "model_type" in config else None


def _of_run(client: Client, run: RunOrId, source: Path) -> GraphModule:
    """The program that a run made, with its weights, as if `load` had given it."""
    config, told = _config(source), client.run(run)
    if not told.get("result"):
        raise ValueError(f"the run {told['id']} has no result to save")
    document = client.graph(told["result"])
    with tempfile.TemporaryDirectory() as folder:
        try:
            live = from_document(document, weights=client.weights(told["result"], Path(folder) / _OF_RUN, progress=False))
        except Problem as problem:
            if problem.code != "bytes-missing":
                raise
            live = from_document(document, weights=_tensors_in(_weights_files(source)), as_="original")
            _check_digests(document, live, source)
    inputs = [node["target"] for node in document["nodes"] if node["op"] == "placeholder"]
    try:
        loaded = load(source, input_names=inputs).meta[_SOURCE]
    except ValueError:  # the run's program was traced otherwise
        loaded = {"folder": str(source.resolve()), "weights": {}, "program": None}
    live.config = _configuration(config)
    live.meta[_SOURCE] = loaded
    return live


def _check_digests(document: dict[str, Any], live: GraphModule, source: Path) -> None:
    table = TensorTable(live)
    for row in document["tensors"]:
        tensor = table.tensors.get(row["name"])
        if "digest" in row and tensor is not None and digest_of(tensor) != row["digest"]:
            raise ValueError(f"{row['name']} in {source} is not what the run's graph says; give the folder that the run "
                             "started from")


# ---- out ------------------------------------------------------------------------------------------------------------------


def _document(live: GraphModule) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The program on its own, without what earlier runs left, and its tensors, both by their first owners."""
    state = live.meta.pop("foldback", None)
    try:
        return build(live), TensorTable(live).owned
    finally:
        if state is not None:
            live.meta["foldback"] = state


def _is_in_file(row: dict[str, Any]) -> bool:
    """Views and what travels with a document are not in the file beside it."""
    return "recipe" not in row and "data" not in row


def _identity(live: GraphModule) -> str:
    """Tells programs apart, with the names, shapes and dtypes of their tensors, and not by the values of weights."""
    document, _ = _document(live)
    known = {
        "nodes": [{**row, "meta": {}} for row in document["nodes"]],
        "modules": [{key: item for key, item in row.items() if key != "training"} for row in document["modules"]],
        "tensors": [{key: item for key, item in row.items() if key != "requires_grad"} for row in document["tensors"]],
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _stamps(path: Path) -> dict[str, list[int]]:
    """By which a later look tells whether the weights are still the same files."""
    found = {file.name: file.stat() for file in _weights_files(path)}
    return {name: [stat.st_ino, stat.st_size, stat.st_mtime_ns] for name, stat in found.items()}


def _save_original(live: GraphModule, source: dict[str, Any], made: Path, max_shard_size: int | str) -> None:
    """As from_pretrained reads it. A program lacks weights that its outputs do not need: these come from the folder."""
    origin = Path(source["folder"])
    if _stamps(origin) != source["weights"]:
        raise ValueError(f"the weights in {origin} have changed since they were loaded")
    model: Any = _model(origin, _config(origin))
    known = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    with torch.no_grad():
        for owner, tensor, _ in owners(live):
            if owner in known:
                known[owner].copy_(tensor)
    state = {**model.state_dict(), **_unread(model, _tensors_in(_weights_files(origin)))}
    model.save_pretrained(made, state_dict=state, safe_serialization=True, max_shard_size=max_shard_size)


def _unread(model: Any, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of a file that from_pretrained leaves out without a word, such as the position_ids of old files of BERT."""
    state, prefix = model.state_dict().keys(), f"{model.base_model_prefix}."
    renamed = getattr(model, "_fix_state_dict_key_on_load", lambda key: (key, False))

    def is_read(key: str) -> bool:
        return any(name in state for name in (key, key.removeprefix(prefix), prefix + key))

    return {key: tensor for key, tensor in tensors.items() if not is_read(key) and not is_read(renamed(key)[0])}


def _save_graph(live: GraphModule, made: Path, max_shard_size: int | str) -> None:
    """As `load` reads it."""
    document, tensors = _document(live)
    hub: Any = importlib.import_module("huggingface_hub")
    held = {row["name"]: tensors[row["name"]].detach() for row in document["tensors"] if _is_in_file(row)}
    hub.save_torch_state_dict(held, made, filename_pattern=_WEIGHTS, max_shard_size=max_shard_size)
    (made / _GRAPH).write_text(json.dumps(document, allow_nan=False), encoding="utf-8")


def _copy_kept(origin: Path, made: Path) -> None:
    """Configuration, generation, tokenizer: byte for byte."""
    for file in origin.iterdir():
        if file.is_file() and file.suffix in _KEPT and not file.name.endswith(".index.json") and file.name != _GRAPH:
            shutil.copyfile(file, made / file.name)
    for name in _folders_of_modules(origin):
        shutil.copytree(origin / name, made / name)


def _folders_of_modules(origin: Path) -> list[str]:
    """Those that modules.json of sentence-transformers names, beside the model itself: pooling, for instance."""
    listed = origin / "modules.json"
    rows = json.loads(listed.read_text(encoding="utf-8")) if listed.is_file() else []
    paths = [str(row.get("path", "")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    names = [path for path in paths if os.path.normpath(path or ".") != "."]
    for name in names:
        if not (origin / name).is_dir() or not (origin / name).resolve().is_relative_to(origin.resolve()):
            raise ValueError(f"{listed} names {name!r}, which is not a folder in {origin}")
    return list(dict.fromkeys(names))


def _settle(made: Path) -> None:
    """Everything is on the disk before the folder gets its name."""
    for path in (*made.rglob("*"), made):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
