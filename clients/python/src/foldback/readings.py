"""Which tensor of a document each tensor of a file, or of a model, is.

A key may name two tensors: after BatchNorm was folded into a convolution, "conv.weight" is the weight that the folded one
is computed from, and the path at which a module owns the folded one. The tensors of a file are all the source's, or all
finished. The service decides in the same way when it binds (core/bind/bind_choose.c)."""

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
NAMES_OF_READINGS = (*READINGS, "original")  # the source's source, where passes ran over results of passes
STRUCTURE = "foldback.structure"  # in the metadata of a file: the structure of the graph that it is of
TENSORS = "foldback.tensors"  # and by key the name of each tensor, with the hash of its recipe


class AmbiguousWeights(ValueError):
    """The tensors may be those before the passes, or those after them."""


class Owned:
    """What the modules of a document own."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.rows: dict[str, Row] = {row["name"]: row for row in document["tensors"]}
        self.owners: dict[str, list[str]] = {name: [] for name in self.rows}
        self.at: dict[str, str] = {}  # by path the tensor's name
        self.of_path: dict[str, list[str]] = {}  # and all that are called after it
        for name in self.rows:
            self.of_path.setdefault(_path_of(name), []).append(name)
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
        """By passes, and more than moved: no source has it, even if the path that it is called after was tied to a tensor
        there."""
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

    def generations(self, key: str) -> list[str]:
        """The tensors that a path has had, inputs first: fc.weight, fc.weight@1a2b3c4d, fc.weight@5e6f7a8b. Those that one
        pass made one after another are one generation: no graph has the ones between."""
        found = self.of_path.get(key, [])
        if len(found) < 2:
            return found
        depth = {name: len(self.leads_from(name)) for name in found}
        last = self.at.get(key) or max(found, key=lambda name: depth[name])
        inputs = self.leads_from(last) | {last}
        chain: list[str] = []
        for name in sorted((name for name in found if name in inputs), key=lambda name: depth[name]):
            digits = _pass_of(name)
            if chain and digits and digits == _pass_of(chain[-1]):
                chain.pop()
            chain.append(name)
        return chain

    def has_more_states_than_names(self) -> bool:
        """Whether a path has had a tensor that is neither the first nor the one that its module owns now."""
        return any(len(self.generations(key)) >= (2 if self.at.get(key) is None else 3) for key in self.of_path)

    def by_name(self, key: str) -> str | None:
        """What is called so, or else the first tensor that the path had, if no pass made it and no module owns it."""
        if key in self.rows:
            return key
        first = next((name for name in self.of_path.get(key, ()) if "recipe" not in self.rows[name]), None)
        return None if first is None or self.owners[first] else first

    def fits(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether a tensor has the shape and the dtype of the row of this name."""
        row = self.rows[name]
        return (list(tensor.shape), dtype_name(tensor.dtype)) == (row["shape"], row["dtype"])


def _path_of(name: str) -> str:
    """Without "@1a2b3c4d"."""
    path, at, digits = name.rpartition("@")
    return path if at and path and "." not in digits else name


def _pass_of(name: str) -> str:
    return name[len(_path_of(name)) :].partition("_")[0]


class _Files:
    """The tensors of files, or of a model, by key. `said`: the names of those of which a file says it."""

    def __init__(self, owned: Owned, given: Mapping[str, torch.Tensor], said: Mapping[str, str]) -> None:
        self.owned, self.given, self.said = owned, given, said
        aliases = {key for key in given if key not in said and self._is_alias(key)}
        self.contested = [key for key in given if key not in aliases and self._is_contested(key)]
        self.known = {key for key in given if owned.by_name(key) is not None or key in owned.at} - aliases
        self.aliases = aliases

    def _is_contested(self, key: str) -> bool:
        name, other = self.owned.at.get(key), self.owned.by_name(key)
        if key in self.said or other is None or name is None or name == other:
            return False
        return not self.owned.owners[other] or self.owned.is_made(name)

    def _is_alias(self, key: str) -> bool:
        """Whether the source tied it to another tensor, from which passes have made one of its own since."""
        name, other = self.owned.at.get(key), self.owned.by_name(key)
        if name is None:
            return False
        if not (self._is_lacked_by_source(key) or (other in (None, name) and self.owned.is_computed(name))):
            return False
        ties = self.owned.leads_from(name) - {key}
        return any(item in self.given and _is_equal(self.given[key], self.given[item]) for item in ties)

    def _is_lacked_by_source(self, key: str) -> bool:
        name = self.owned.by_name(key)
        return name is not None and self.owned.is_computed(name)

    def meant(self, key: str, reading: str) -> str | None:
        if key in self.said:
            return self.said[key]
        at = self.owned.at.get(key)
        is_of_source = reading == "source" and key in self.contested
        if reading == "source" and (key in self.aliases or (is_of_source and self._is_lacked_by_source(key))):
            return None
        return at if at is not None and not is_of_source else self.owned.by_name(key)

    def settled(self, reading: str, asked: str | None, *, takes_first: bool = False) -> dict[str, str]:
        """By key, the names of the tensors that are meant. Where a path has had several, not only the first and the last may
        be; where nothing tells which, `takes_first` takes the first (of a live module, which is the one that was traced)."""
        names = {}
        for key in self.given:
            name = self.meant(key, reading)
            if key not in self.said and key not in self.aliases and asked not in ("finished", "original"):
                name = self._generation(key, reading, asked, name, takes_first)
            if name is not None:
                names[key] = name
        return names

    def _generation(self, key: str, reading: str, asked: str | None, name: str | None, takes_first: bool) -> str | None:
        chain, now = self.owned.generations(key), self.owned.at.get(key)
        if len(chain) < (2 if now is None else 3):
            return name
        first, limit = self._narrowed(key, chain)
        fitting = []
        for i in range(first, limit):
            is_first = i == 0 and "recipe" not in self.owned.rows[chain[i]]
            is_now = chain[i] == now
            # A key that the finished model lacks shows a file of an earlier state, be it the first.
            is_ruled_out = is_now if reading == "source" else is_first and now is not None
            if not is_ruled_out and self.owned.fits(chain[i], self.given[key]):
                fitting.append(chain[i])
        if len(fitting) < 2:
            return fitting[0] if fitting else name
        for item in fitting:
            if self._holds(item, self.given[key]):
                return item
        if takes_first:
            return fitting[0]
        raise AmbiguousWeights(
            f"{key!r} may be {fitting[0]!r} or {fitting[1]!r}, as passes ran over results of passes; pass as_=\"original\" or "
            'as_="finished", or give the weights of this very document'
        )

    def _narrowed(self, key: str, chain: list[str]) -> tuple[int, int]:
        """Which of the chain it may be, by what else the passes read: files from before a pass have that, later ones do not."""
        first, limit = 0, len(chain)
        seen: set[str] = set()
        for i, name in enumerate(chain):
            new = (self.owned.leads_from(name) | {name}) - seen
            seen |= new
            witnesses = [item for item in new if self._is_witness(key, item)]
            is_given = [item in self.given or _path_of(item) in self.given for item in witnesses]
            if any(is_given):
                limit = min(limit, i)
            elif any("data" not in self.owned.rows[item] for item in witnesses):
                first = i
        return (first, limit) if first < limit else (0, len(chain))

    def _is_witness(self, key: str, name: str) -> bool:
        is_of_source = not self.owned.owners[name] and "recipe" not in self.owned.rows[name]
        return is_of_source and _path_of(name) != key and _path_of(name) not in self.owned.at

    def assigned(self, reading: str) -> dict[str, torch.Tensor]:
        """By the name of a tensor of the document."""
        return self.by_names({key: self.meant(key, reading) for key in self.given})

    def by_names(self, names: Mapping[str, str | None]) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        for key, name in names.items():
            if name is not None and (name not in found or key == name):
                found[name] = self.given[key]
        return found

    # ---- what tells the readings apart ---------------------------------------------------------------------------------

    def only(self) -> str | None:
        """The one reading that fits; None when both do."""
        misfits = [sum(not self._fits(key, reading) for key in self.contested) for reading in READINGS]
        if misfits[0] != misfits[1]:
            return READINGS[misfits[1] < misfits[0]]
        plain = self.known - set(self.contested)
        has_source = any(key not in self.owned.at and not self.owned.owners[str(self.owned.by_name(key))] for key in plain)
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
        return str(self.owned.by_name(key)) if reading == "source" else self.owned.at[key]

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


def assign(
    owned: Owned,
    given: Mapping[str, torch.Tensor],
    asked: str | None,
    *,
    otherwise: str | None = None,
    said: Mapping[str, str] | None = None,
) -> dict[str, torch.Tensor]:
    """By the name of a tensor of the document, what is given for it under a key of its own. `otherwise`: the reading where
    both fit. `said`: by key the names of those tensors of which a file says it."""
    files = _Files(owned, given, said or {})
    reading = "source" if asked == "original" else asked
    if reading is None and not files.contested and not files.aliases:
        reading = "finished"  # no difference
    reading = reading or files.only() or otherwise
    if reading is None:
        raise AmbiguousWeights(
            f"{len(files.contested)} names, {[*files.contested, *files.aliases][0]!r} for instance, may mean the original "
            "model's weights or "
            'those of the optimised one; pass as_="source" or as_="finished"'
        )
    return files.by_names(files.settled(reading, asked, takes_first=otherwise == "source"))


def read_said(owned: Owned, keys: Iterable[str], metadata: Mapping[str, str] | None, asked: str | None) -> dict[str, str]:
    """By key, the names of the document's tensors that a file says its own are."""
    text = (metadata or {}).get(TENSORS)
    if text is None:
        return {}
    told = json.loads(text)
    said: dict[str, str] = {}
    for key in keys:
        name, recipe = (*told.get(key, [key]), None)[:2]
        own = owned.rows.get(name, {}).get("recipe")
        if name in owned.rows and (own is None or recipe is None or recipe_id(own) == recipe):
            at = owned.at.get(key, name)
            if (asked == "finished" and at != name) or (asked == "original" and recipe is not None and own is not None):
                raise AmbiguousWeights(f"the file says that its {key!r} is {name!r} of the document, and as_ that it is "
                                       "another; leave as_ out")
            said[key] = name
        elif asked != "finished" and (key in owned.at or owned.by_name(key) is not None):
            raise AmbiguousWeights(
                f"the file says that its {key!r} is {name!r} of another graph, which this document does not have; give the "
                "document "
                'that it was written for, or pass as_="finished" if this document\'s modules own it'
            )
    return said


def recipe_id(recipe: Any) -> str:
    """The hash of a recipe, provided that its members are in their order: as they are when the service has sent it."""
    text = json.dumps(recipe, ensure_ascii=False, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def says_finished(document: Mapping[str, Any], metadata: Mapping[str, str] | None) -> bool:
    """Whether a file says that it holds what the modules of this document own."""
    said = (metadata or {}).get(STRUCTURE)
    return said is not None and said == structure_of(document)


def structure_of(document: Mapping[str, Any]) -> str:
    """The document's `structure`, provided that its members are in their order: as they are when the service has sent it."""
    made = {key: item for key, item in document.items() if key not in ("name", "metadata")}
    made["nodes"] = _bare_nodes(document["nodes"])
    made["modules"] = [
        {**row, "graph": {"nodes": _bare_nodes(row["graph"]["nodes"])}} if "graph" in row else row
        for row in document["modules"]
    ]
    unknown = ("digest", "blob", "offset", "data")
    made["tensors"] = [{key: item for key, item in row.items() if key not in unknown} for row in document["tensors"]]
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _bare_nodes(nodes: Iterable[Row]) -> list[Row]:
    return [{**row, "meta": {key: item for key, item in row["meta"].items() if key in ("shape", "dtype")}} for row in nodes]
