"""Files that are taken for safetensors files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

# What a file of another kind begins with, and what it is.
_BEGINNINGS = (
    (b"\x80\x02", "a pickle"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"GGUF", "a GGUF file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
)
_ADVICE = "save the tensors with safetensors.torch.save_file"
OF_TORCH = ("a pickle", "a checkpoint of torch.save", "a TorchScript model")
SHOWN = 512  # bytes that tell


def kind_of(beginning: bytes) -> str | None:
    """What a file of another kind is, by its first bytes; None for what may be safetensors or JSON. The size of a safetensors
    header may be spelled as another kind begins: 0x280 is a pickle's "\\x80\\x02"."""
    if _is_safetensors(beginning):
        return None
    for start, kind in _BEGINNINGS:
        if beginning.startswith(start):
            return kind
    if beginning.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _kind_of_zip(beginning)
    if beginning[4:8] == b"TFL3":
        return "a TensorFlow Lite model"
    if beginning.startswith(b"\x08\x01\x12"):
        return "a saved_model.pb of TensorFlow"
    return "an ONNX model" if _is_onnx(beginning) else None


def _kind_of_zip(beginning: bytes) -> str:
    """By its first entry; the pickle of TorchScript names classes of __torch__."""
    _, _, first = beginning[30 : 30 + int.from_bytes(beginning[26:28], "little")].partition(b"/")
    if first.startswith((b"data/weights/", b"data/constants/", b"models/", b"archive_format", b"archive_version")):
        return "an archive of torch.export.save (.pt2)"
    if first.startswith((b"data/", b"code/")) or b"__torch__" in beginning:
        return "a TorchScript model"
    return "a checkpoint of torch.save" if first == b"data.pkl" else "a zip archive"


def _is_safetensors(beginning: bytes) -> bool:
    """The size of a header of 1 to 2^32 - 1 bytes, and the header."""
    return any(beginning[:4]) and beginning[4:9] == b"\x00\x00\x00\x00{"


def _is_onnx(beginning: bytes) -> bool:
    """A protobuf whose first field is the version of the format, and whose next is the producer's name or what follows it. A
    safetensors file begins with a size of eight bytes, of which the upper ones are 0."""
    return len(beginning) >= 4 and beginning[0] == 8 and 1 < beginning[1] < 32 and beginning[2] in (0x12, 0x1A, 0x3A, 0x42)


def refuse_other_kinds(path: str | os.PathLike[str]) -> None:
    """Raises ValueError for a file that is not a safetensors file, by its first bytes."""
    with open(path, "rb") as file:
        kind = kind_of(file.read(SHOWN))
    if kind in OF_TORCH:
        command = f"python -m foldback convert {os.fspath(path)} -o weights.safetensors"
        raise ValueError(f"{os.fspath(path)} is {kind}, not a safetensors file; `{command}` takes the tensors out")
    if kind is not None:
        raise ValueError(f"{os.fspath(path)} is {kind}, not a safetensors file; {_ADVICE}")


def with_shards(path: Path) -> list[Path]:
    """A model.safetensors.index.json, and the files beside it that it names; any other file is alone."""
    if not path.name.endswith(".index.json"):
        return [path]
    with open(path, encoding="utf-8") as file:
        names = json.load(file)["weight_map"].values()
    for name in names:
        if Path(name).name != name:
            raise ValueError(f"{path}: the shard {name!r} is not a file beside it")
    return [path, *(path.with_name(name) for name in dict.fromkeys(names))]


def files_of(weights: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The safetensors files of a model: of a file, an index of shards, a folder that has either, or a list of these."""
    if not isinstance(weights, (str, os.PathLike)):
        return list(dict.fromkeys(path for item in weights for path in files_of(item)))
    path = Path(weights)
    if path.is_dir():
        return files_of(_in_folder(path))
    first, *shards = with_shards(path)
    return shards or [first]


def _in_folder(folder: Path) -> Path:
    """What save_pretrained has left there: one index of shards, or one file."""
    for pattern in ("*.safetensors.index.json", "*.safetensors"):
        found = sorted(folder.glob(pattern))
        beside = [(path, path.with_name(path.name.removesuffix(".index.json"))) for path in found]
        found += [whole for path, whole in beside if whole.is_file() and whole not in with_shards(path)]  # transformers' choice
        if len(found) > 1:
            raise ValueError(f"{folder} has {found[0].name} and {found[1].name}; name the one that you mean, or list both")
        if found:
            return found[0]
    raise ValueError(f"{folder} has no .safetensors file; {_ADVICE}")
