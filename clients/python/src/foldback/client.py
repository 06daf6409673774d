"""The service's calls that a model's way there and back needs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import httpx

Document = dict[str, Any]
Run = dict[str, Any]
Edits = list[dict[str, Any]]
GraphOrId = Mapping[str, Any] | str  # a document, or the id of one that the service has
RunOrId = Mapping[str, Any] | str


class Problem(Exception):
    """What the service says when it does not do what it was asked (RFC 9457). `body` has all of it; `code` is stable."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self.body = status, body
        self.code: str = body.get("code", "")
        super().__init__(f"{status} {body.get('title', '')}: {body.get('detail', '')}")


class Client:
    """A service by its address, `Client("http://127.0.0.1:8080")`. `http` takes the place of a connection of its own."""

    def __init__(self, url: str, *, timeout: float = 60, http: httpx.Client | None = None) -> None:
        self._url = url.rstrip("/")
        self._http = http or httpx.Client(timeout=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # ---- graphs ---------------------------------------------------------------------------------------------------------

    def put_graph(self, document: Mapping[str, Any]) -> str:
        """Stores a document and gives its id. A document that the service has keeps the id that it has."""
        return str(self._json("POST", "/v1/graphs", document)["id"])

    def graph(self, graph: str) -> Document:
        """The document with this id."""
        return dict(self._json("GET", f"/v1/graphs/{graph}"))

    def code(self, graph: str) -> str:
        """Its forward() as Python."""
        return self._ask("GET", f"/v1/graphs/{graph}/code").text

    # ---- runs -----------------------------------------------------------------------------------------------------------

    def optimize(
        self,
        graph: GraphOrId,
        passes: Sequence[Any],
        *,
        include: Iterable[str] = (),
        lint: str = "end",
        note: str | None = None,
    ) -> Run:
        """Runs passes on a graph. A pass is its name, {"name": …, "params": {…}}, or a list of passes. `include` puts the
        result's "graph", "code" or "edits" into the run."""
        body = {"graph": graph, "passes": list(passes), "options": {"lint": lint, "include": list(include)}}
        return dict(self._json("POST", "/v1/optimize", body if note is None else {**body, "note": note}))

    def run(self, run: RunOrId) -> Run:
        return dict(self._json("GET", f"/v1/runs/{_id(run)}"))

    def edits(self, run: RunOrId) -> Edits:
        """What leads from the run's source to its result: what `foldback.apply_edits` takes."""
        return list(self._json("GET", f"/v1/runs/{_id(run)}/edits")["edits"])

    def reverse(self, run: RunOrId, passes: Sequence[Any] | None = None, *, graph: GraphOrId | None = None) -> Run:
        """Undoes passes (all, if none are named) by the rules of the composition, on the run's result or on a graph that
        came of it."""
        body = {"passes": passes, "graph": graph}
        return dict(
            self._json("POST", f"/v1/runs/{_id(run)}/reverse", {key: item for key, item in body.items() if item is not None})
        )

    def rollback(self, run: RunOrId, passes: Sequence[Any] | None = None) -> Run:
        """The run's source from the store, or the source with the other passes only; whatever the passes are."""
        return dict(self._json("POST", f"/v1/runs/{_id(run)}/rollback", {} if passes is None else {"passes": passes}))

    # ---- HTTP -----------------------------------------------------------------------------------------------------------

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        return self._ask(method, path, body).json()

    def _ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        content = None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        answer = self._http.request(method, self._url + path, content=content, headers=headers)
        if not answer.is_success:
            is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
            raise Problem(answer.status_code, answer.json() if is_problem else {"detail": answer.text})
        return answer


def _id(run: RunOrId) -> str:
    return run if isinstance(run, str) else str(run["id"])
