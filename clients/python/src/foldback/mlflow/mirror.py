"""The mirror of one model: what has moved on which side since the last time, and what follows from that."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..client import Client
from ..service import Problem

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Change", "Mirror", "register"]

GRAPH, VERSION, RUN = "foldback.graph", "foldback.version", "foldback.run"
DESCRIPTION = "MLmodel"
BASE = "foldback.alias."
ALIAS = re.compile(r"(?!latest$|v\d+$)[a-z0-9_-]{1,200}", re.IGNORECASE | re.ASCII)  # names that both sides take

Side = Literal["foldback", "mlflow"]


@dataclass(frozen=True)
class Change:
    """What `sync` did, or why it did not. `action`: "version" (made one), "alias" (moved it), "deleted", "conflict" (both sides
    had moved it: the other one's move was dropped), "unreadable" (an ONNX model of MLflow's that foldback cannot store;
    `now` says why), "unknown" (foldback does not have that version of MLflow, so the alias is not followed), "unnameable" (that
    side takes no such alias)."""

    side: Side  # that was changed, or that is in the way
    action: str
    name: str
    was: str | None = None
    now: str | None = None


def register(client: Client, registry: MlflowClient, model: str, graph: str, *, description: str | None = None) -> str:
    """Makes a version of MLflow's of a graph that foldback has, by its id; its number. `sync` makes it one of foldback's."""
    _ensure_model(registry, model)
    tags = {GRAPH: graph}
    source = f"foldback:/graphs/{graph.removeprefix('sha256:')}"
    return str(registry.create_model_version(model, source, tags=tags, description=description, await_creation_for=0).version)


def _ensure_model(registry: MlflowClient, model: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return registry.get_registered_model(model)
    except MlflowException as failure:
        if failure.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
    try:
        return registry.create_registered_model(model, description="mirrored by foldback")
    except MlflowException as failure:
        if failure.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        return registry.get_registered_model(model)


class Mirror:
    """One model on both sides. Where foldback has none yet, it is made with the first version that MLflow brings."""

    def __init__(self, client: Client, registry: MlflowClient, model: str, *, prefer: Side = "foldback") -> None:
        if prefer not in ("foldback", "mlflow"):
            raise ValueError(f"prefer is foldback or mlflow, not {prefer}")
        self.client, self.registry, self.model, self.prefer = client, registry, model, prefer
        self._changes: list[Change] = []
        self._others: set[str] = set()  # MLflow's versions that have no graph for foldback: looked at once

    def sync(self) -> list[Change]:
        """Brings both sides together; what that took. A call that fails in between may be made again. Raises LookupError for a
        model that neither side has."""
        self._changes = []
        self._find_model()
        self._number_versions()
        _ensure_model(self.registry, self.model)
        to_foldback, to_mlflow = self._mirror_versions()
        self._mirror_aliases(to_foldback, to_mlflow)
        return self._changes

    def _did(self, side: Side, action: str, name: str, was: str | None = None, now: str | None = None) -> None:
        self._changes.append(Change(side, action, name, was, now))

    def _find_model(self) -> None:
        """So that a name that is misspelt makes no model."""
        try:
            self.client.model(self.model)
        except Problem as problem:
            if problem.status != 404:
                raise
            if not self.registry.search_registered_models(f"name = '{self.model}'"):
                raise LookupError("neither foldback nor MLflow has a model of this name") from None

    # ---- versions -------------------------------------------------------------------------------------------------------

    def _number_versions(self) -> None:
        """Versions that foldback makes are numbered from now on, mostly as MLflow numbers them."""
        try:
            found = self.client.model(self.model)
        except Problem as problem:
            if problem.status != 404:
                raise
            found = {"naming": None}
        if found["naming"] != "integer":
            self.client._service.json("PUT", f"/v1/models/{self.model}", {"naming": "integer"})

    def _all_versions(self) -> list[Any]:
        found, token = [], None
        while True:
            page = self.registry.search_model_versions(f"name = '{self.model}'", max_results=1000, page_token=token)
            found += list(page)
            token = page.token
            if not token:
                return sorted(found, key=lambda version: int(version.version))

    def _mirror_versions(self) -> tuple[dict[str, str], dict[str, str]]:
        """The maps of versions, there and back: {MLflow's: foldback's} and {foldback's: MLflow's}."""
        ours = {row["version"]: row for row in self.client.versions(self.model)}
        to_foldback: dict[str, str] = {}
        to_mlflow: dict[str, str] = {}
        for theirs in self._all_versions():
            if GRAPH not in theirs.tags:
                self._take_onnx(theirs)
            name = self._bring(theirs, ours) if GRAPH in theirs.tags else None
            if name is not None:
                to_foldback[str(theirs.version)] = name
                to_mlflow.setdefault(name, str(theirs.version))
        missing = [name for name in reversed(list(ours)) if name not in to_mlflow]  # the oldest first, so that numbers agree
        self._forget_aliases_of(missing)
        for name in missing:
            number = self._send(ours[name])
            to_foldback[number], to_mlflow[name] = name, number
        return to_foldback, to_mlflow

    def _forget_aliases_of(self, missing: list[str]) -> None:
        """MLflow deletes a version's aliases with it, but nobody has moved them: they are made again with the version. Written
        before it is, so that a mirror that was killed in between does not take them for deleted."""
        theirs = self.registry.get_registered_model(self.model)
        for key, text in theirs.tags.items():
            alias = key.removeprefix(BASE)
            if key.startswith(BASE) and json.loads(text) in missing and alias not in theirs.aliases:
                self._note(alias, json.loads(text), None)

    def _bring(self, theirs: Any, ours: dict[str, Any]) -> str | None:
        """foldback's version of one of MLflow's; None: foldback does not have its graph."""
        graph, name = theirs.tags[GRAPH], theirs.tags.get(VERSION)
        if name in ours and ours[name]["graph"] == graph:
            return str(name)
        number = str(theirs.version)
        for name in dict.fromkeys(filter(None, (name, number, f"mlflow-{number}"))):
            if name in ours and ours[name]["graph"] != graph:
                continue
            if name not in ours:
                try:
                    note = theirs.description or f"version {number} of MLflow"
                    ours[name] = self.client.put_version(self.model, name, graph=graph, note=note)
                except Problem as problem:
                    if problem.code == "unknown-graph":
                        return None
                    if problem.code == "version-exists":  # somebody was quicker
                        continue
                    raise
                self._did("foldback", "version", name, None, graph)
            self.registry.set_model_version_tag(self.model, number, VERSION, name)
            return str(name)
        return None

    def _take_onnx(self, theirs: Any) -> None:
        """Stores the model of a version of the flavour `onnx`, and the files beside it. The version gets its graph as a tag."""
        from mlflow.artifacts import download_artifacts
        from mlflow.models import Model

        number = str(theirs.version)
        if number in self._others:
            return
        self._others.add(number)
        with tempfile.TemporaryDirectory() as folder:
            try:
                uri = self.registry.get_model_version_download_uri(self.model, number)
                there = {"dst_path": folder, "tracking_uri": self.registry.tracking_uri}
                said = Model.load(download_artifacts(f"{uri}/{DESCRIPTION}", **there)).flavors.get("onnx")
                if not said:
                    return
                model = Path(download_artifacts(uri, **there)) / said["data"]
            except Exception:  # each store of artifacts has its own; of what MLflow does not give, nothing is known
                return
            try:
                theirs.tags[GRAPH] = self.client.put_onnx(model, progress=False)
            except (OSError, ValueError, Problem) as failure:
                self._did("foldback", "unreadable", number, None, str(failure))
                return
        self.registry.set_model_version_tag(self.model, number, GRAPH, theirs.tags[GRAPH])

    def _send(self, row: dict[str, Any]) -> str:
        """Makes one of foldback's versions one of MLflow's; its number."""
        tags = {GRAPH: row["graph"], VERSION: row["version"]} | ({RUN: row["run"]} if row.get("run") else {})
        source = f"foldback:/models/{self.model}/versions/{row['version']}"
        made = self.registry.create_model_version(self.model, source, tags=tags, description=row.get("note"),
                                                  await_creation_for=0)
        self._did("mlflow", "version", str(made.version), None, row["version"])
        return str(made.version)

    # ---- aliases --------------------------------------------------------------------------------------------------------

    def _mirror_aliases(self, to_foldback: dict[str, str], to_mlflow: dict[str, str]) -> None:
        theirs = self.registry.get_registered_model(self.model)
        ours = {row["alias"]: row for row in self.client.aliases(self.model)}
        bases = {key.removeprefix(BASE): json.loads(text) for key, text in theirs.tags.items() if key.startswith(BASE)}
        for alias in sorted({*ours, *theirs.aliases, *(name for name, base in bases.items() if base is not None)}):
            if not ALIAS.fullmatch(alias):
                if alias in ours:
                    self._did("mlflow", "unnameable", alias, None, ours[alias]["version"])
                elif alias in theirs.aliases:
                    self._did("foldback", "unnameable", alias, None, str(theirs.aliases[alias]))
                continue
            number = theirs.aliases.get(alias)
            self._mirror(alias, ours.get(alias), None if number is None else str(number), bases.get(alias),
                         to_foldback, to_mlflow)

    def _mirror(
        self,
        alias: str,
        row: dict[str, Any] | None,
        number: str | None,
        base: str | None,
        to_foldback: dict[str, str],
        to_mlflow: dict[str, str],
    ) -> None:
        """`base` is the version, by foldback's name, that both had the last time; None: neither had the alias."""
        ours = None if row is None else str(row["version"])
        theirs = None if number is None else to_foldback.get(number)
        is_unknown = number is not None and theirs is None
        if not is_unknown and ours == theirs:
            self._note(alias, base, ours)
            return
        have_we_moved, have_they_moved = ours != base, is_unknown or theirs != base
        if is_unknown and not (have_we_moved and self.prefer == "foldback"):
            self._did("mlflow", "unknown", alias, ours, number)
            return
        do_we_lead = self.prefer == "foldback" if have_we_moved and have_they_moved else have_we_moved
        if have_we_moved and have_they_moved:
            self._did("mlflow" if do_we_lead else "foldback", "conflict", alias, number if do_we_lead else ours,
                      ours if do_we_lead else theirs)
        if do_we_lead:
            self._move_theirs(alias, number, None if ours is None else to_mlflow[ours])
            self._note(alias, base, ours)
        elif self._move_ours(alias, row, theirs, number):
            self._note(alias, base, theirs)

    def _note(self, alias: str, base: str | None, now: str | None) -> None:
        """Remembers what both have. Written last: what was done before it is found to be equal the next time."""
        if base != now:
            self.registry.set_registered_model_tag(self.model, BASE + alias, json.dumps(now))

    def _move_theirs(self, alias: str, was: str | None, now: str | None) -> None:
        if now is None:
            self.registry.delete_registered_model_alias(self.model, alias)
        else:
            self.registry.set_registered_model_alias(self.model, alias, now)
        self._did("mlflow", "alias" if now else "deleted", alias, was, now)

    def _move_ours(self, alias: str, row: dict[str, Any] | None, now: str | None, number: str | None) -> bool:
        """False: somebody has moved it meanwhile; the next time will tell."""
        was = None if row is None else row["version"]
        try:
            if now is None and row is not None:
                self.client.delete_alias(self.model, alias, if_match=row["etag"])
            elif now is not None:
                why = f"alias {alias} was set to version {number} in MLflow"
                headers = {"If-None-Match": "*"} if row is None else {"If-Match": row["etag"]}
                body = {"version": now, "who": "mlflow", "why": why}
                self.client._send("PUT", self.client._alias(self.model, alias), body, headers)
        except Problem as problem:
            if problem.status not in (404, 412):
                raise
            return False
        self._did("foldback", "alias" if now else "deleted", alias, was, now)
        return True
