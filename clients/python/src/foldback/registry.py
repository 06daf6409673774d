"""What the service has besides graphs and weights: runs, models and their aliases, rules, tokens, the audit trail."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from .jobs import Job
from .run import Graph, Picture, Run, Version
from .service import Problem, Query, Service, events_in, problem_of

Row = dict[str, Any]


class Registry:
    """The part of Client that looks things up and names them. Lists are iterators, which fetch one page after the other."""

    _service: Service

    # ---- graphs and runs ------------------------------------------------------------------------------------------------

    def graphs(self, *, name: str | None = None, structure: str | None = None) -> Iterator[Row]:
        """The stored graphs, the newest first."""
        return self._pages("/v1/graphs", {"name": name, "structure": structure})

    def graph(self, graph: str) -> Graph:
        """The document with this id."""
        document = Graph(self._service.json("GET", f"/v1/graphs/{graph}"))
        document.draw = lambda: self.picture(graph)
        document.begins_at_original = lambda: self._begins_at_original(graph)
        return document

    def _begins_at_original(self, graph: str) -> bool:
        """Whether no graph with results of passes is between this one and the model that it was made of."""
        made_by = self.lineage(graph)["made_by"]
        if "next" in made_by or not made_by["items"] or any(run["kind"] != "optimize" for run in made_by["items"]):
            return False
        sources = {run["source"] for run in made_by["items"]}
        return not any("recipe" in row for source in sources for row in self.graph(source)["tensors"])

    def picture(
        self,
        what: Mapping[str, Any] | str,
        *,
        base: str | None = None,
        open: Iterable[str] = (),
        at: str | None = None,
        depth: int | None = None,
    ) -> Picture:
        """The SVG of a graph, or of what a run changed, which a notebook draws. With `base`, the id of another graph, it shows
        both graphs as one. `open` names modules to open, `at` a node to be seen, `depth` how many levels of modules are
        open."""
        one = what if isinstance(what, str) else str(what["id"])
        path = f"/v1/runs/{one}/layout" if one.startswith("run_") else f"/v1/graphs/{one}/layout"
        query: dict[str, Any] = {"base": base, "open": list(open), "at": at, "depth": None if depth is None else str(depth)}
        given = {name: value for name, value in query.items() if value}
        return Picture(self._service.request("GET", path, headers={"Accept": "image/svg+xml"}, query=given).text)

    def delete_graph(self, graph: str) -> None:
        """Removes a graph. A Problem, if a run, a version or an upload still needs it."""
        self._service.request("DELETE", f"/v1/graphs/{_part(graph)}")

    def nodes(
        self,
        graph: str,
        *,
        pass_: str | None = None,
        signature: str | None = None,
        op: str | None = None,
        target: str | None = None,
    ) -> Iterator[Row]:
        """A graph's nodes with their shapes and marks; with `pass_`, those that this pass marked."""
        query = {"pass": pass_, "signature": signature, "op": op, "target": target}
        return self._pages(f"/v1/graphs/{_part(graph)}/nodes", query)

    def tensors(self, graph: str) -> Iterator[Row]:
        """A graph's tensors: names, shapes, dtypes, and whether the service has their bytes."""
        return self._pages(f"/v1/graphs/{_part(graph)}/tensors", {})

    def lineage(self, graph: str, *, limit: int | None = None) -> Row:
        """The graphs and runs that a graph was made from, and those that were made from it."""
        return self._get(f"/v1/graphs/{_part(graph)}/lineage", {"limit": None if limit is None else str(limit)})

    def runs(
        self,
        *,
        source: str | None = None,
        result: str | None = None,
        of_run: str | None = None,
        kind: str | None = None,
        pass_: str | None = None,
        signature: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[Run]:
        """The runs that fit all that is given, the newest first."""
        query: dict[str, Any] = {"source": source, "result": result, "of_run": of_run, "kind": kind, "pass": pass_}
        query |= {"signature": signature, "label": [f"{key}={item}" for key, item in (labels or {}).items()] or None}
        return (self._run(row) for row in self._pages("/v1/runs", query))

    def reverse_graph(self, /, graph: Mapping[str, Any] | str, **rest: Any) -> Run:
        """Undoes the last run that made a graph, whichever that was; `rest`: passes, options, note, labels, as in the API. A
        Problem, `ambiguous-run`, where several may have: name one with `reverse`."""
        return self._run(self._service.json("POST", "/v1/reverse", {"graph": graph, **rest}))

    def pin(self, run: str, note: str | None = None) -> Row:
        """Keeps a run, and what it needs, from being collected by `gc`."""
        return dict(self._service.json("PUT", f"/v1/runs/{_part(run)}/pin", {} if note is None else {"note": note}))

    def pinned(self, run: str) -> Row:
        """The pin of a run. A Problem, if it has none."""
        return self._get(f"/v1/runs/{_part(run)}/pin")

    def unpin(self, run: str) -> None:
        """Takes the pin off a run. A Problem, `not-pinned`, if it has none."""
        self._service.request("DELETE", f"/v1/runs/{_part(run)}/pin")

    # ---- models ---------------------------------------------------------------------------------------------------------

    def models(self) -> Iterator[Row]:
        """The models, the newest first, each as `model` gives it."""
        return self._pages("/v1/models", {})

    def model(self, model: str) -> Row:
        """A model: "name", "created", and how many "versions" and "aliases" it has. A Problem, `unknown-model`, if there is
        none."""
        return self._get(f"/v1/models/{_part(model)}")

    def versions(self, model: str) -> Iterator[Version]:
        """A model's versions, the newest first."""
        return (Version(row) for row in self._pages(f"/v1/models/{_part(model)}/versions", {}))

    def version(self, model: str, version: str) -> Version:
        """A version of a model: its "graph", the "run" that made it, its "note". A Problem, `unknown-version`, if there is
        none."""
        return Version(self._get(self._version(model, version)))

    def put_version(
        self,
        model: str,
        version: str,
        *,
        graph: Mapping[str, Any] | str | None = None,
        run: str | None = None,
        note: str | None = None,
    ) -> Version:
        """Names a graph, or the result of a run, as a version of a model. It never changes afterwards."""
        body = _given({"graph": graph, "run": run, "note": note})
        return Version(self._service.json("PUT", self._version(model, version), body))

    def delete_version(self, model: str, version: str) -> None:
        """Removes a version; its graph stays. A Problem, `version-in-use`, as long as an alias names it or could be rolled back
        to it."""
        self._service.request("DELETE", self._version(model, version))

    def aliases(self, model: str) -> Iterator[Row]:
        """A model's aliases, the newest first, each as `alias` gives it."""
        return self._pages(f"/v1/models/{_part(model)}/aliases", {})

    def alias(self, model: str, alias: str) -> Row:
        """What an alias names now; "etag" is what `deploy` and `rollback_alias` take as `if_match`."""
        answer = self._service.request("GET", self._alias(model, alias))
        return {**answer.json(), "etag": answer.headers.get("ETag")}

    def deploy(
        self,
        model: str,
        alias: str,
        version: str,
        *,
        who: str | None = None,
        why: str | None = None,
        if_match: str | None = None,
    ) -> Row:
        """Points an alias at a version; creates the alias if it is new. With `if_match`, the "etag" of the alias when you
        looked, a change that somebody else made since is a Problem (412)."""
        body = _given({"version": version, "who": who, "why": why})
        return self._send("PUT", self._alias(model, alias), body, self._match(model, alias, if_match))

    def delete_alias(self, model: str, alias: str, *, if_match: str | None = None) -> None:
        """Removes an alias. With `if_match`, the "etag" of the alias when you looked, a change that somebody else made since is
        a Problem (412)."""
        etag = if_match or self.alias(model, alias)["etag"]
        self._service.request("DELETE", self._alias(model, alias), headers={"If-Match": etag})

    def history(self, model: str, alias: str) -> Iterator[Row]:
        """What an alias named, the newest first: who changed it, when and why."""
        return self._pages(f"{self._alias(model, alias)}/history", {})

    def rollback_alias(
        self, /, model: str, alias: str, version: str | None = None, *, if_match: str | None = None, **rest: Any
    ) -> Row:
        """Lets an alias name what it named before, or a version that it named once; `rest`: passes, as, who, why. Without a
        version it skips those that the alias was taken back from; `rollback_plan` says what it would do."""
        body = _given({"version": version, **rest})
        return self._send("POST", f"{self._alias(model, alias)}/rollback", body, {"If-Match": if_match} if if_match else {})

    def rollback_plan(self, model: str, alias: str) -> Row:
        """The plan of `rollback_alias` without a version: "from", "to" (None: no version is left) and the versions that it
        skips, "withdrawn"; its "etag" as `if_match` makes it that or nothing."""
        return self._get(f"{self._alias(model, alias)}/rollback")

    def alias_graph(self, model: str, alias: str) -> Graph:
        """The document that an alias names."""
        return self.graph(str(self._get(self._alias(model, alias))["graph"]))

    def alias_events(self, *, model: str | None = None, alias: str | None = None, since: int | None = None) -> Iterator[Row]:
        """Changes of aliases as they happen, without end; with `since`, those after that number first. A connection that
        breaks is made again, and no event comes twice."""
        for event in self._events(("alias",), model, alias, None if since is None else str(since)):
            yield event["data"]

    def events(
        self,
        *,
        types: Sequence[str] = ("alias", "version", "run"),
        model: str | None = None,
        alias: str | None = None,
        since: str | None = None,
    ) -> Iterator[Row]:
        """What happens, without end, each as {"id", "type", "data"}; with `since`, the id of one, what came after it first, and
        with "0" everything. `model` is of aliases and versions, `alias` of aliases. Resumes as `alias_events` does."""
        return self._events(types, model, alias, since)

    def _events(self, types: Sequence[str], model: str | None, alias: str | None, since: str | None) -> Iterator[Row]:
        query = _given({"types": ",".join(types), "model": model, "alias": alias})
        seen = since
        while True:
            headers = {"Accept": "text/event-stream"} | ({} if seen is None else {"Last-Event-ID": seen})
            try:
                with self._service.stream("/v1/events", headers, query=query) as answer:
                    if not answer.is_success:
                        answer.read()
                        raise problem_of(answer)
                    for fields in events_in(answer.iter_lines()):
                        seen = fields.get("id", seen)
                        if "data" in fields:
                            yield {"id": seen, "type": fields.get("event"), "data": json.loads(fields["data"])}
            except httpx.TransportError:
                pass
            time.sleep(1)

    # ---- passes and rules -----------------------------------------------------------------------------------------------

    def passes(self) -> Row:
        """The passes ("items") and "presets" of the service."""
        return self._get("/v1/passes")

    def pass_(self, name: str) -> Row:
        """A pass: its parameters, what it does, what it refuses."""
        return self._get(f"/v1/passes/{_part(name)}")

    def put_rule(self, rule: Mapping[str, Any]) -> Row:
        """Stores a rule (docs/rules.md), as a new version if it differs from the last one. Its name is then that of a pass."""
        return dict(self._service.json("POST", "/v1/transformations", dict(rule)))

    def rules(self) -> Iterator[Row]:
        """The newest version of each rule, the newest first."""
        return self._pages("/v1/transformations", {})

    def rule(self, name: str, version: int | None = None) -> Row:
        """The newest version of a rule, or the one that is named."""
        return self._get(f"/v1/transformations/{_part(name)}" + ("" if version is None else f"/versions/{version}"))

    def rule_versions(self, name: str) -> Iterator[Row]:
        """All versions of a rule, the newest first."""
        return self._pages(f"/v1/transformations/{_part(name)}/versions", {})

    def put_layout(self, layout: Mapping[str, Any]) -> Row:
        """Stores a layout (docs/layouts.md), as a new version if it differs from the last one. Its name is then that of a
        pass."""
        return dict(self._service.json("PUT", f"/v1/layouts/{_part(layout['name'])}", dict(layout)))

    def layouts(self) -> Iterator[Row]:
        """The layouts, those that come with the service among them."""
        return self._pages("/v1/layouts", {})

    def layout(self, name: str, version: int | None = None) -> Row:
        """The newest version of a layout, or the one that is named."""
        return self._get(f"/v1/layouts/{_part(name)}" + ("" if version is None else f"/versions/{version}"))

    def layout_versions(self, name: str) -> Iterator[Row]:
        """All versions of a layout, the newest first."""
        return self._pages(f"/v1/layouts/{_part(name)}/versions", {})

    # ---- operation ------------------------------------------------------------------------------------------------------

    def jobs(self, *, state: str | None = None) -> Iterator[Job]:
        """The jobs, the newest first: all, or those that are queued, running, succeeded, failed or cancelled."""
        return (Job(self._service, row["id"]) for row in self._pages("/v1/jobs", {"state": state}))

    def gc(self, /, **options: Any) -> Row:
        """Removes what nothing needs any more; `options`: dry_run, grace_seconds, keep_runs_days, keep_runs,
        keep_audit_days."""
        return dict(self._service.json("POST", "/v1/gc", options))

    def create_token(self, scope: str, *, name: str | None = None, expires: str | None = None) -> Row:
        """Makes a token of the scope read, write, deploy or admin. Its "token" is said this once."""
        return dict(self._service.json("POST", "/v1/tokens", _given({"scope": scope, "name": name, "expires": expires})))

    def tokens(self) -> Iterator[Row]:
        """The tokens without their secrets, the newest first, those that were revoked included."""
        return self._pages("/v1/tokens", {})

    def token(self, token: str) -> Row:
        """A token by its name, without its secret: "scope", "created", "expires", "revoked", "last_used". A Problem,
        `unknown-token`, if there is none."""
        return self._get(f"/v1/tokens/{_part(token)}")

    def revoke_token(self, token: str) -> Row:
        """From now on requests with this token are refused."""
        return dict(self._service.json("DELETE", f"/v1/tokens/{_part(token)}"))

    def audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        object: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Iterator[Row]:
        """Who did what, the newest first."""
        return self._pages("/v1/audit", {"who": who, "action": action, "object": object, "since": since, "until": until})

    def blobs(self) -> Iterator[Row]:
        """The files that the service has."""
        return self._pages("/v1/blobs", {})

    # ---- how ------------------------------------------------------------------------------------------------------------

    def _alias(self, model: str, alias: str) -> str:
        return f"/v1/models/{_part(model)}/aliases/{_part(alias)}"

    def _version(self, model: str, version: str) -> str:
        return f"/v1/models/{_part(model)}/versions/{_part(version)}"

    def _match(self, model: str, alias: str, if_match: str | None) -> dict[str, str]:
        """The service wants to know what a change is a change of: what the caller looked at, or what there is now."""
        try:
            found = if_match or self._service.request("GET", self._alias(model, alias)).headers["ETag"]
        except Problem as problem:
            if problem.status != 404:
                raise
            return {"If-None-Match": "*"}
        return {"If-Match": found}

    def _run(self, answer: dict[str, Any]) -> Run:
        run = Run(answer)
        if run.get("id"):  # a dry run was not stored
            run.draw = lambda: self.picture(run)
        return run

    def _get(self, path: str, query: Mapping[str, Any] | None = None) -> Row:
        return dict(self._service.json("GET", path, query=_given(query or {})))

    def _send(self, method: str, path: str, body: Row, headers: Mapping[str, str]) -> Row:
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        sent = {"Content-Type": "application/json", **headers}
        return dict(self._service.request(method, path, content, sent).json())

    def _pages(self, path: str, query: Mapping[str, Any]) -> Iterator[Row]:
        asked: Query = _given(query)
        while True:
            page = self._service.json("GET", path, query=asked)
            yield from page["items"]
            if "next_page_token" not in page:
                return
            asked = {**asked, "page_token": page["next_page_token"]}


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in members.items() if item is not None}


def _part(text: str) -> str:
    return quote(text, safe=":@")
