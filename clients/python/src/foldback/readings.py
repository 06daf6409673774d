"""Which tensor of a document each tensor of a file, or of a model, is.

A key may name two tensors: after BatchNorm was folded into a convolution, "conv.weight" is the weight that the folded one
is computed from, and the path at which a module owns the folded one. The tensors of a file are all the source's, or all
finished. The service decides in the same way when it binds (core/weights/bind_choose.c)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from .recipes import inputs_of, is_movement
from .tensors import bytes_of, child_path, digest_of
from .values import dtype_name

Row = dict[str, Any]
READINGS = ("source", "finished")
STRUCTURE = "foldback.structure"  # in the metadata of a file: the structure of the graph that it is of


class AmbiguousWeights(ValueError):
    """The tensors may be those before the passes, or those after them."""


class Owned:
    """What the modules of a document own."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.rows: dict[str, Row] = {row["name"]: row for row in document["tensors"]}
        self.owners: dict[str, list[str]] = {name: [] for name in self.rows}
        self.at: dict[str, str] = {}  # by path the tensor's name
        self.parameters: set[str] = set()
        self.demanded: set[str] = set()  # what a checkpoint has
        for row in document["modules"]:
            lacking = row.get("non_persistent", ())
            for member in ("parameters", "buffers"):
                for key, name in row.get(member, {}).items():
                    if name is not None:
                        path = child_path(row["path"], key)
                        self.owners[name].append(path)
                        self.at[path] = name
                        self.parameters |= {name} if member == "parameters" else set()
                        self.demanded |= {name} if member == "parameters" or key not in lacking else set()

    def is_made(self, name: str) -> bool:
        """By passes: it is no mere view of what modules own, as an exporter records two parameters in one memory."""
        recipe = self.rows[name].get("recipe")
        if recipe is None:
            return False
        return not is_movement(recipe) or not all(self.owners[item] for item in inputs_of(recipe))

    def is_computed(self, name: str) -> bool:
        """By passes, and more than moved: no source has it, even if the path that it is called after was tied to a tensor there."""
        recipe = self.rows[name].get("recipe")
        return recipe is not None and not is_movement(recipe)

    def leads_from(self, name: str) -> set[str]:
        """The names of all tensors that this one is made from, through recipes over recipes."""
        found: set[str] = set()
        stack = [name]
        while stack:
            recipe = self.rows[stack.pop()].get("recipe")
            new = set() if recipe is None else set(inputs_of(recipe)) - found
            found |= new
            stack += new
        return found

    def fits(self, name: str, tensor: torch.Tensor) -> bool:
        row = self.rows[name]
        return list(tensor.shape) == row["shape"] and dtype_name(tensor.dtype) == row["dtype"]


class _Files:
    """The tensors of files, or of a model, by key."""

    def __init__(self, owned: Owned, given: Mapping[str, torch.Tensor]) -> None:
        self.owned, self.given = owned, given
        aliases = {key for key in given if self._is_alias(key)}
        self.contested = [key for key in given if key not in aliases and self._is_contested(key)]
        self.known = {key for key in given if key in owned.rows or key in owned.at} - aliases
        self.aliases = aliases

    def _is_contested(self, key: str) -> bool:
        name = self.owned.at.get(key)
        if key not in self.owned.rows or name is None or name == key:
            return False
        return not self.owned.owners[key] or self.owned.is_made(name)

    def _is_alias(self, key: str) -> bool:
        """Whether the source tied it to another tensor, from which passes have made one of its own since."""
        name = self.owned.at.get(key)
        if name is None:
            return False
        has_no_other = key not in self.owned.rows or key == name
        if not (self._is_lacked_by_source(key) or (has_no_other and self.owned.is_computed(name))):
            return False
        ties = self.owned.leads_from(name) - {key}
        return any(item in self.given and _is_equal(self.given[key], self.given[item]) for item in ties)

    def _is_lacked_by_source(self, key: str) -> bool:
        return key in self.owned.rows and self.owned.is_computed(key)

    def meant(self, key: str, reading: str) -> str | None:
        at = self.owned.at.get(key)
        is_of_source = reading == "source" and key in self.contested
        if reading == "source" and (key in self.aliases or (is_of_source and self._is_lacked_by_source(key))):
            return None
        return at if at is not None and not is_of_source else key if key in self.owned.rows else None

    def assigned(self, reading: str) -> dict[str, torch.Tensor]:
        """By the name of a tensor of the document."""
        found: dict[str, torch.Tensor] = {}
        for key, tensor in self.given.items():
            name = self.meant(key, reading)
            if name is not None and (name not in found or key == name):
                found[name] = tensor
        return found

    # ---- what tells the readings apart ---------------------------------------------------------------------------------

    def only(self) -> str | None:
        """The one reading that fits; None when both do."""
        misfits = [sum(not self._fits(key, reading) for key in self.contested) for reading in READINGS]
        if misfits[0] != misfits[1]:
            return READINGS[misfits[1] < misfits[0]]
        plain = self.known - set(self.contested)
        has_source = any(key not in self.owned.at and not self.owned.owners[key] for key in plain)
        has_finished = any(key in self.owned.at and self.owned.is_made(self.owned.at[key]) for key in plain)
        if has_source != has_finished:
            return READINGS[has_finished]
        gaps = [self._has_gaps(reading) for reading in READINGS]
        if gaps[0] != gaps[1]:
            return READINGS[gaps[0]]
        same = [all(self._holds(self._named(key, reading), self.given[key]) for key in self.contested) for reading in READINGS]
        if self.contested and any(same):
            return READINGS[same[1]]
        return "source" if self.aliases else None  # the last to be asked: a weight that is scaled by 1 is the same, too

    def _fits(self, key: str, reading: str) -> bool:
        is_lacked = reading == "source" and self._is_lacked_by_source(key)
        return not is_lacked and self.owned.fits(self._named(key, reading), self.given[key])

    def _named(self, key: str, reading: str) -> str:
        return key if reading == "source" else self.owned.at[key]

    def _has_gaps(self, reading: str) -> bool:
        given = self.assigned(reading)
        seen: set[str] = set()
        stack = [name for name in self.owned.demanded if name not in given]
        while stack:
            name = stack.pop()
            row = self.owned.rows[name]
            if name in given or name in seen or "data" in row:
                continue
            if "recipe" not in row:
                return True
            seen.add(name)
            stack += inputs_of(row["recipe"])
        return False

    def _holds(self, name: str, tensor: torch.Tensor) -> bool:
        row = self.owned.rows[name]
        if "digest" in row:
            return bool(row["digest"] == digest_of(tensor))
        return "data" in row and base64.b64decode(row["data"]) == bytes_of(tensor)


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    is_alike = one.shape == other.shape and one.dtype == other.dtype and not one.is_meta and not other.is_meta
    return is_alike and bytes_of(one) == bytes_of(other)


def assign(owned: Owned, given: Mapping[str, torch.Tensor], reading: str | None, *, otherwise: str | None = None) -> dict[str, torch.Tensor]:
    """By the name of a tensor of the document, what is given for it under a key of its own. `otherwise`: the reading where
    both fit."""
    files = _Files(owned, given)
    if reading is None and not files.contested and not files.aliases:
        reading = "finished"  # no difference
    reading = reading or files.only() or otherwise
    if reading is None:
        raise AmbiguousWeights(
            f"{len(files.contested)} names, {[*files.contested, *files.aliases][0]!r} for instance, may mean the original model's weights or "
            'those of the optimised one; pass as_="source" or as_="finished"'
        )
    return files.assigned(reading)


def says_finished(document: Mapping[str, Any], metadata: Mapping[str, str] | None) -> bool:
    """Whether a file says that it holds what the modules of this document own."""
    said = (metadata or {}).get(STRUCTURE)
    return said is not None and said == structure_of(document)


def structure_of(document: Mapping[str, Any]) -> str:
    """The document's `structure`, provided that its members are in their order: as they are when the service has sent it."""
    made = {key: item for key, item in document.items() if key not in ("name", "metadata")}
    made["nodes"] = _bare_nodes(document["nodes"])
    made["modules"] = [
        {**row, "graph": {"nodes": _bare_nodes(row["graph"]["nodes"])}} if "graph" in row else row for row in document["modules"]
    ]
    unknown = ("digest", "blob", "offset", "data")
    made["tensors"] = [{key: item for key, item in row.items() if key not in unknown} for row in document["tensors"]]
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _bare_nodes(nodes: Iterable[Row]) -> list[Row]:
    return [{**row, "meta": {key: item for key, item in row["meta"].items() if key in ("shape", "dtype")}} for row in nodes]
