"""The service's calls for runs: passes on graphs, and their undo."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .jobs import PREFER, Job
from .run import Run
from .weights import File, GraphOrId, Weights, reading

RunOrId = Mapping[str, Any] | str


class RunEdits(list[dict[str, Any]]):
    """The edits of a run, with the run and its service: `foldback.apply_edits` asks for others where a module was trained."""

    def __init__(self, client: Runs, run: str, edits: Iterable[dict[str, Any]]) -> None:
        super().__init__(edits)
        self.client, self.run = client, run

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return list, (list(self),)  # a connection cannot be copied or pickled


class Runs(Weights):
    """The part of Client that runs passes and undoes them."""

    def optimize(
        self,
        graph: GraphOrId,
        passes: Sequence[Any],
        *,
        include: Iterable[str] = (),
        lint: str = "end",
        note: str | None = None,
        labels: Mapping[str, str] | None = None,
        weights: Sequence[File] | File = (),
        as_: str | None = None,
        prefix: str | None = None,
        validate: str | Mapping[str, Any] = "off",
        tolerance: Mapping[str, float] | None = None,
        seed: int = 0,
        assume: Mapping[str, str | int] | None = None,
    ) -> Run:
        """Runs passes on a graph. A pass is its name, {"name": …, "params": {…}}, or a list of passes. `include` puts the
        result's "graph", "code" or "edits" into the run; `note` and `labels` are kept with it. With `weights` the graph is
        bound to them first, as `bind` does; `as_` and `prefix` are those of `bind`.
        `validate`: "rewrites" compares the rewritten regions after each pass with those before, "graph" the whole outputs; a
        pass that changes what is computed is a Problem, `validation-failed`. With a `tolerance`, {"relative": 0.05} or
        {"absolute": …}, passes that are meant to change it are compared as well. Or the result is judged by its task:
        {"inputs": "sha256:…", "metric": "top1" or "cosine", "at_least": 0.99}, or "mse" or "max-relative" with "at_most".
        `assume` first records the dtypes and shapes that follow from weights, where the graph does not say them; with
        {"dtype": "float32"} inputs without a dtype are of that one, with {"rank": 2} inputs without a shape have two
        dimensions. It becomes the first pass of the run, RecordTypes."""
        options: dict[str, Any] = {"lint": lint, "include": list(include)}
        if assume is not None:
            options["assume"] = dict(assume)
        if validate != "off":
            options |= {"validate": validate, "seed": seed}
        if tolerance is not None:
            options["tolerance"] = dict(tolerance)
        body: dict[str, Any] = {"graph": graph, "passes": list(passes), "options": options}
        if note is not None:
            body["note"] = note
        if labels:
            body["labels"] = dict(labels)
        if weights:
            body |= {"weights": self._blobs(weights, True), **reading(as_, prefix)}
        return self._run(self._service.json("POST", "/v1/optimize", body))

    def run(self, run: RunOrId) -> Run:
        """The run with this id: its "passes", "source" and "result". A Problem, `unknown-run`, if there is none."""
        return self._run(self._service.json("GET", f"/v1/runs/{_id(run)}"))

    def edits(self, run: RunOrId) -> RunEdits:
        """What leads from the run's source to its result: what `foldback.apply_edits` takes."""
        return RunEdits(self, _id(run), self._service.json("GET", f"/v1/runs/{_id(run)}/edits")["edits"])

    def reverse(
        self,
        run: RunOrId,
        passes: Sequence[Any] | None = None,
        *,
        graph: GraphOrId | None = None,
        include: Iterable[str] = (),
    ) -> Run:
        """Undoes passes (all, if none are named) by the rules of the composition, on the run's result or on a graph that
        came of it."""
        body = {"passes": passes, "graph": graph, "options": {"include": list(include)} if include else None}
        return self._run(
            self._service.json(
                "POST", f"/v1/runs/{_id(run)}/reverse", {key: item for key, item in body.items() if item is not None}
            )
        )

    def rollback(self, run: RunOrId, passes: Sequence[Any] | None = None) -> Run:
        """The run's source from the store, or the source with the other passes only; whatever the passes are."""
        return self._run(self._service.json("POST", f"/v1/runs/{_id(run)}/rollback",
                                            {} if passes is None else {"passes": passes}))

    def record(
        self,
        source: GraphOrId,
        result: GraphOrId,
        name: str,
        *,
        params: Mapping[str, Any] | None = None,
        reversible: bool = True,
        preserves_computation: bool = False,
        marked: Iterable[str] = (),
        include: Iterable[str] = (),
    ) -> Run:
        """Records what a pass outside of the service did, as a run of kind "external". The name must not be that of a pass of
        the service. `marked` names nodes of the result that get the pass's signature."""
        body: dict[str, Any] = {"source": source, "result": result, "name": name, "params": dict(params or {})}
        body |= {"reversible": reversible, "preserves_computation": preserves_computation}
        body |= {"marked": list(marked)}
        answer = self._service.json("POST", "/v1/runs", body, query={"include": list(include)} if include else None)
        return self._run(answer)

    def submit(self, path: str, body: Any = None, *, key: str | None = None) -> Job:
        """Makes a job of a request that may take long: `submit("/v1/optimize", {"graph": …, "passes": […]})`. With the same
        `key` (an Idempotency-Key) it is the same job."""
        headers = PREFER | ({"Idempotency-Key": key} if key
                            else {}) | ({} if body is None else {"Content-Type": "application/json"})
        content = None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        return Job(self._service, self._service.request("POST", path, content, headers).json()["id"])

    def optimize_many(self, /, graphs: Iterable[str], passes: Sequence[Any], **rest: Any) -> Job:
        """One job that runs passes on many graphs, which the service has. `rest`: options, note, labels, as in the API. Its
        result has an item for each graph; one that fails does not stop the others."""
        return self.submit("/v1/jobs", {"graphs": list(graphs), "passes": list(passes), **rest})

    def job(self, job: str) -> Job:
        """The job with this id."""
        return Job(self._service, job)


def _id(run: RunOrId) -> str:
    return run if isinstance(run, str) else str(run["id"])
