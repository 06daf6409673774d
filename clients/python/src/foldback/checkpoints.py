"""Files of a checkpoint, read and written a tensor at a time: no file is mapped, so that memory holds one tensor."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import files_of

__all__ = ["Checkpoint", "Entry", "write"]

HEADER_MAX = 100_000_000  # bytes, as in the reference implementation
# Bits of an element
SIZES = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16,
         "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4,
         "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64}
PIECE = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A tensor of a safetensors file; `offset` is counted from the beginning of the file, and `size` is bytes."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


class Checkpoint:
    """A safetensors file, an index of shards, or a folder with one of these."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.files = files_of(self.path)
        self.entries: dict[str, Entry] = {}
        self.metadata: dict[str, str] = {}
        for file in self.files:
            entries, metadata = _header(file)
            double = sorted(entries.keys() & self.entries.keys())
            if double:
                raise ValueError(f"{file}: {double[0]} is in two files of the checkpoint")
            self.entries.update(entries)
            self.metadata.update(metadata)

    def bytes(self, name: str) -> bytearray:
        """The bytes of a tensor."""
        entry = self.entries[name]
        made = bytearray(entry.size)
        with open(entry.file, "rb") as file:
            file.seek(entry.offset)
            if file.readinto(made) != entry.size:
                raise ValueError(f"{entry.file} is shorter than it was")
        return made

    def config(self) -> dict[str, Any]:
        """Reads config.json beside it; {} without one."""
        folder = self.path if self.path.is_dir() else self.path.parent
        file = folder / "config.json"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def _header(path: Path) -> tuple[dict[str, Entry], dict[str, str]]:
    with open(path, "rb") as file:
        start, end = file.read(8), os.fstat(file.fileno()).st_size
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else HEADER_MAX + 1
        if size > HEADER_MAX or size + 8 > end:
            raise ValueError(f"{path} is not a safetensors file")
        header = json.loads(file.read(size))
    entries = {}
    for name, one in header.items():
        if name == "__metadata__":
            continue
        begin, stop = one["data_offsets"]
        shape = tuple(one["shape"])
        if one["dtype"] not in SIZES or not 0 <= begin <= stop <= end - size - 8 or (
                math.prod(shape) * SIZES[one["dtype"]] != 8 * (stop - begin)):
            raise ValueError(f"{path}: the offsets of {name} are not what its dtype and shape say")
        entries[name] = Entry(path, one["dtype"], shape, 8 + size + begin, stop - begin)
    return entries, dict(header.get("__metadata__", {}))


def write(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]], content: Iterable[bytes | bytearray | memoryview],
          metadata: Mapping[str, str]) -> None:
    """Writes a safetensors file: `tensors` are dtype and shape by name, `content` their bytes in that order, in pieces of any
    size. The file gets its name when it is whole."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * SIZES[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for piece in content:
                file.write(piece)
            if file.tell() != 8 + len(text) + at:
                raise ValueError(f"{path} would have {file.tell()} bytes, and its header says {8 + len(text) + at}")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def pieces(file: Path) -> Iterator[bytes]:
    """The bytes of a file."""
    with open(file, "rb") as opened:
        while piece := opened.read(PIECE):
            yield piece
