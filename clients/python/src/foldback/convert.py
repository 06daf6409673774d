"""The tensors of files that torch.save and torch.jit.save wrote, as a safetensors file."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .files import OF_TORCH, SHOWN, kind_of

Tensors = dict[str, torch.Tensor]


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str], *, key: str | None = None) -> Tensors:
    """Writes a model's tensors, and gives them. Whatever else a checkpoint holds (steps, states of optimisers, settings) is
    left out; a tensor that is a view or not contiguous is written as what it shows, and one under two names twice. `key` names
    the part to take where several hold tensors, as "model" or "ema.model". Nothing in a pickle is run: what holds more than
    tensors and plain values is a ValueError, and so is a file that exists at `target`."""
    from safetensors.torch import save_file

    if Path(target).exists():
        raise ValueError(f"{os.fspath(target)} is there already; name another file")
    found = _tensors_of(_load(Path(source)), key, os.fspath(source))
    # A clone of each: save_file refuses what shares memory, and what is not contiguous
    save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in found.items()}, target, {"format": "pt"})
    return found


def _load(path: Path) -> Any:
    with warnings.catch_warnings(), open(path, "rb") as file:
        warnings.simplefilter("ignore")  # of old formats
        kind = kind_of(file.read(SHOWN))
        if kind == "a TorchScript model":
            return dict(torch.jit.load(str(path), map_location="cpu").state_dict())
        if kind not in OF_TORCH:
            raise ValueError(f"{path} is {kind or 'of no kind that is known'}, not a file of torch.save")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        said = (f"{path} holds more than tensors, which unpickling it would run. In a program that has its classes, and if you "
                "trust "
                "the file: torch.save(torch.load(FILE, weights_only=False).state_dict(), NEW)")
        raise ValueError(said) from error


def _tensors_of(loaded: Any, key: str | None, name: str) -> Tensors:
    if isinstance(loaded, torch.Tensor):
        return {"tensor": loaded}
    parts: dict[str, Tensors] = dict(_parts(loaded, ""))
    if key is not None:
        if key not in parts:
            raise ValueError(f"{name} has no tensors at {key!r}; it has them at {_listed(parts)}")
        return parts[key]
    if not parts:
        raise ValueError(f"{name} has no tensors with names")
    if len(parts) > 1:
        raise ValueError(f"{name} has tensors at {_listed(parts)}; name the one to take: --key")
    return next(iter(parts.values()))


def _parts(value: Any, path: str) -> Any:
    """The mappings from names to tensors, by the keys that lead there. An optimiser's state has numbers as keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        return
    tensors = {key: item for key, item in value.items() if isinstance(item, torch.Tensor)}
    if tensors:
        yield path, tensors
    for key, item in value.items():
        yield from _parts(item, f"{path}.{key}" if path else key)


def _listed(parts: Mapping[str, Tensors]) -> str:
    return ", ".join(f"{key or '(the top)'} ({len(tensors)})" for key, tensors in parts.items())
