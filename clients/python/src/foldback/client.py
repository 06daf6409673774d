"""The service's calls that a model's way there and back needs."""

from __future__ import annotations

import json
import os
import ssl
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from .files import refuse_other_kinds, with_shards
from .jobs import PREFER, Job
from .progress import Progress
from .registry import Registry
from .run import Run
from .service import Problem, Service, socket_of
from .transfer import DIGEST, LONG, Uploads, digest_of, download

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule

__all__ = ["Client", "Problem"]

Document = dict[str, Any]
Edits = list[dict[str, Any]]
GraphOrId = Mapping[str, Any] | str  # a document, or the id of one that the service has
RunOrId = Mapping[str, Any] | str
File = str | PathLike[str]


class RunEdits(list[dict[str, Any]]):
    """The edits of a run, with the run and its service: `foldback.apply_edits` asks for others where a module was trained."""

    def __init__(self, client: Client, run: str, edits: Iterable[dict[str, Any]]) -> None:
        super().__init__(edits)
        self.client, self.run = client, run

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return list, (list(self),)  # a connection cannot be copied or pickled


class Client(Registry):
    """A service by its address, `Client("http://127.0.0.1:8080")`, or `Client("unix:/run/foldback/socket")`. `token` is what it
    wants to see, unless the environment's FOLDBACK_TOKEN has it; `ca_file` holds the certificates to trust, instead of the
    usual ones. `http` takes the place of a connection of its own."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca_file: File | None = None,
        timeout: float = 60,
        http: httpx.Client | None = None,
    ) -> None:
        trusted = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
        token = token or os.environ.get("FOLDBACK_TOKEN")
        path = socket_of(url)
        if http is None:
            transport = None if path is None else httpx.HTTPTransport(uds=path)
            http = httpx.Client(timeout=timeout, verify=trusted, transport=transport)
        self._service = Service(url, http, token)
        self._uploads = Uploads(self._service)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._service.close()

    # ---- graphs ---------------------------------------------------------------------------------------------------------

    def put_graph(self, document: Mapping[str, Any]) -> str:
        """Stores a document and gives its id. A document that the service has keeps the id that it has."""
        return str(self._service.json("POST", "/v1/graphs", document)["id"])

    def put_archive(self, archive: File | ExportedProgram, *, model: str | None = None, progress: Progress = True) -> str:
        """Stores the graph of a .pt2 archive of torch.export, with its weights, and gives its id. `archive` is a file, the
        digest of one that the service has, or a program, which torch.export.save writes first. `model` chooses one of several
        programs. A large file goes in parts, as `upload` sends it."""
        if isinstance(archive, (str, PathLike)):
            is_known = isinstance(archive, str) and DIGEST.fullmatch(archive) is not None
            digest = str(archive) if is_known else self.upload(archive, progress=progress)
        else:
            digest = self._upload_program(archive, progress)
        query = {"archive": digest} | ({} if model is None else {"model": model})
        return str(self._service.json("POST", "/v1/graphs", query=query, timeout=LONG)["id"])

    def _upload_program(self, program: ExportedProgram, progress: Progress) -> str:
        import torch

        if not isinstance(program, torch.export.ExportedProgram):
            raise TypeError(f"put_archive takes a file or a program of torch.export, not {type(program).__name__}")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "program.pt2"
            torch.export.save(program, file)
            return self.upload(file, progress=progress)

    def archive(self, graph: RunOrId, file: File, *, progress: Progress = True) -> Path:
        """Writes the .pt2 archive of a graph, or of a run's result: the very file that was stored as long as the graph is what
        it says, else one that torch.export.load reads. Raises a Problem, `no-archive` or `archive-changed`, if it has no
        archive, and ValueError for a run without a result."""
        given = graph if isinstance(graph, str) else None
        if given is None or given.startswith("run_"):
            run = graph if given is None else self.run(graph)
            given = run.get("result")  # type: ignore[union-attr]
            if not isinstance(given, str):
                raise ValueError(f"the run {run.get('id') or 'that was given'} has no result, and so no archive")  # type: ignore[union-attr]
        return self._archive(f"/v1/graphs/{given}", file, progress)

    def version_archive(self, model: str, version: str, file: File, *, progress: Progress = True) -> Path:
        """Writes the .pt2 archive of a version of a model, as `archive` does."""
        return self._archive(self._version(model, version), file, progress)

    def alias_archive(self, model: str, alias: str, file: File, *, progress: Progress = True) -> Path:
        """Writes the .pt2 archive of what an alias names, as `archive` does: after a rollback the file of the old version."""
        return self._archive(self._alias(model, alias), file, progress)

    def _archive(self, owner: str, file: File, progress: Progress) -> Path:
        download(self._service, f"{owner}/archive", {}, Path(file), progress)
        return Path(file)

    def checkpoint(self, files: Sequence[File] | File, *, name: str | None = None, progress: Progress = True) -> str:
        """Stores a graph that owns the tensors of safetensors files by their names and computes nothing, and gives its id: what
        layouts are applied to, by `optimize`. Files are given as for `bind`."""
        body = {"weights": self._blobs(files, progress)} | ({} if name is None else {"name": name})
        return str(self._service.json("POST", "/v1/checkpoints", body, timeout=LONG)["id"])

    def code(self, graph: str) -> str:
        """Its forward() as Python."""
        return self._service.request("GET", f"/v1/graphs/{graph}/code").text

    def diff(self, base: str, graph: str) -> Edits:
        """The edits that lead from one stored graph to another: what `foldback.apply_edits` takes."""
        return list(self._service.json("GET", f"/v1/graphs/{graph}/diff", query={"base": base})["edits"])

    # ---- runs -----------------------------------------------------------------------------------------------------------

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
        validate: str = "off",
        tolerance: Mapping[str, float] | None = None,
        seed: int = 0,
        assume: Mapping[str, str | int] | None = None,
    ) -> Run:
        """Runs passes on a graph. A pass is its name, {"name": …, "params": {…}}, or a list of passes. `include` puts the
        result's "graph", "code" or "edits" into the run; `note` and `labels` are kept with it. With `weights` the graph is
        bound to them first, as `bind` does; `as_` and `prefix` are those of `bind`.
        `validate`: "rewrites" compares the rewritten regions after each pass with those before, "graph" the whole outputs; a
        pass that changes what is computed is a Problem, `validation-failed`. With a `tolerance`, {"relative": 0.05} or
        {"absolute": …}, passes that are meant to change it are compared as well.
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
            body |= {"weights": self._blobs(weights, True), **_how(as_, prefix)}
        return self._run(self._service.json("POST", "/v1/optimize", body))

    def run(self, run: RunOrId) -> Run:
        return self._run(self._service.json("GET", f"/v1/runs/{_id(run)}"))

    def edits(self, run: RunOrId) -> RunEdits:
        """What leads from the run's source to its result: what `foldback.apply_edits` takes."""
        return RunEdits(self, _id(run), self._service.json("GET", f"/v1/runs/{_id(run)}/edits")["edits"])

    def reverse(
        self,
        run: RunOrId | GraphModule,
        passes: Sequence[Any] | None = None,
        *,
        graph: GraphOrId | None = None,
        include: Iterable[str] = (),
    ) -> Run:
        """Undoes passes (all, if none are named) by the rules of the composition, on the run's result or on a graph that
        came of it. A live module stands for the last run that was applied to it and not undone, and for the graph that it
        is now. Raises ValueError where no such run led to the module."""
        if not isinstance(run, (str, Mapping)):
            from .history import last_step, reverse_live

            if graph is None:
                return reverse_live(self, run, passes, include=include)
            run = last_step(self, run)[0].run
        body = {"passes": passes, "graph": graph, "options": {"include": list(include)} if include else None}
        return self._run(
            self._service.json(
                "POST", f"/v1/runs/{_id(run)}/reverse", {key: item for key, item in body.items() if item is not None}
            )
        )

    def rollback(self, run: RunOrId | GraphModule, passes: Sequence[Any] | None = None) -> Run:
        """The run's source from the store, or the source with the other passes only; whatever the passes are. A live
        module stands for the last run that was applied to it and not undone."""
        if not isinstance(run, (str, Mapping)):
            from .history import last_step

            run = last_step(self, run)[0].run
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
        preserves_computation: bool = True,
        include: Iterable[str] = (),
    ) -> Run:
        """Records what a pass outside of the service did, as a run of kind "external". The name must not be that of a pass of
        the service."""
        body: dict[str, Any] = {"source": source, "result": result, "name": name, "params": dict(params or {})}
        body |= {"reversible": reversible, "preserves_computation": preserves_computation}
        answer = self._service.json("POST", "/v1/runs", body, query={"include": list(include)} if include else None)
        return self._run(answer)

    # ---- jobs -----------------------------------------------------------------------------------------------------------

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

    # ---- evaluation -----------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        graph: str,
        inputs: File | None = None,
        *,
        file: File,
        precision: str = "recorded",
        seed: int = 0,
        random_weights: bool = False,
    ) -> Path:
        """Evaluates a stored graph and writes its outputs as a safetensors file, `output.0` and so on. `inputs` is a
        safetensors file of arrays by placeholder; without it they are random, of the recorded shapes. `precision`: "float64"
        computes all of it in float64."""
        query = {"precision": precision, "seed": str(seed), "random_weights": "true" if random_weights else "false"}
        content = None if inputs is None else Path(inputs).read_bytes()
        headers = {} if inputs is None else {"Content-Type": "application/octet-stream"}
        answer = self._service.request("POST", f"/v1/graphs/{graph}/evaluate", content, headers, query=query, timeout=LONG)
        Path(file).write_bytes(answer.content)
        return Path(file)

    def compare(
        self,
        a: GraphOrId,
        b: GraphOrId,
        *,
        inputs: File | None = None,
        seed: int = 0,
        tolerance: Mapping[str, float] | None = None,
        random_weights: bool = False,
        progress: Progress = True,
    ) -> dict[str, Any]:
        """Evaluates two graphs on the same inputs: "passes", how far each of the "outputs" are apart, and the "first_node" that
        differs."""
        body: dict[str, Any] = {"a": a, "b": b, "seed": seed, "random_weights": random_weights}
        if inputs is not None:
            body["inputs"] = self._blobs(inputs, progress)[0]
        if tolerance is not None:
            body["tolerance"] = dict(tolerance)
        return dict(self._service.json("POST", "/v1/compare", body, timeout=LONG))

    # ---- weights --------------------------------------------------------------------------------------------------------

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Which of these blobs the service lacks."""
        return list(self._service.json("POST", "/v1/blobs/missing", {"digests": list(digests)})["missing"])

    def upload(self, file: File, *, progress: Progress = True) -> str:
        """Makes a file a blob of the service, unless it has it, and gives its digest. A large one goes in parts: what was cut
        off is resumed, also by a later call of this client. `progress`: True is a bar (of tqdm, on a terminal), a
        function gets the bytes done and all."""
        path = Path(file)
        digest = digest_of(path, progress)
        if self.missing([digest]):
            self._uploads.send(path, digest, progress)
        return digest

    def bind(
        self,
        graph: GraphOrId,
        weights: Sequence[File] | File,
        *,
        strict: bool = False,
        as_: str | None = None,
        prefix: str | None = None,
        progress: Progress = True,
    ) -> dict[str, Any]:
        """Stores the graph with its tensors bound to safetensors files, and gives its "id", and under "weights" how many are
        "bound" and which are "missing" or "extra"; `strict` refuses these. A file that the service lacks is uploaded; a digest
        names one that it has; a model.safetensors.index.json brings its shards along. `as_` says whose weights they are,
        "source" (before the passes), "finished" (after them) or "original" (before the first of several runs), where more than
        one would fit; `prefix`, such as "bert.", is taken off
        the names in the files, or put before them."""
        document = self.graph(graph) if isinstance(graph, str) else graph
        query = {"weights": self._blobs(weights, progress), "strict": "true" if strict else "false", **_how(as_, prefix)}
        return dict(self._service.json("POST", "/v1/graphs", document, query=query))

    def weights(
        self,
        graph: str,
        file: File,
        *,
        names: Sequence[str] | None = None,
        tied: str | None = None,
        progress: Progress = True,
    ) -> Path:
        """Writes the graph's weights, or those named, as a safetensors file: recipes are evaluated on the way. `tied="each"`
        writes a tensor for each of its owners. An interrupted transfer is resumed, also by a later call."""
        query = {"names": list(names)} if names is not None else {}
        download(
            self._service,
            f"/v1/graphs/{graph}/weights",
            query if tied is None else {**query, "tied": tied},
            Path(file),
            progress,
        )
        return Path(file)

    def download(self, digest: str, file: File, *, progress: Progress = True) -> Path:
        """Writes a blob to a file, and checks it."""
        download(self._service, f"/v1/blobs/{digest}", {}, Path(file), progress, digest)
        return Path(file)

    def materialize(self, graph: str, *, names: Sequence[str] | None = None, tied: str | None = None) -> dict[str, Any]:
        """Makes the file of `weights` a blob of the service: its digest is "blob". It stays for a day, or as long as a stored
        graph refers to it."""
        body = {"names": None if names is None else list(names), "tied": tied}
        sent = {key: item for key, item in body.items() if item is not None}
        return dict(self._service.json("POST", f"/v1/graphs/{graph}/materialize", sent, timeout=LONG))

    def _blobs(self, weights: Sequence[File] | File, progress: Progress) -> list[str]:
        given = [weights] if isinstance(weights, (str, PathLike)) else weights
        found = []
        for one in given:
            if isinstance(one, str) and DIGEST.fullmatch(one):
                found.append(one)
            else:
                paths = with_shards(Path(one))
                for path in paths:
                    refuse_other_kinds(path)
                found += [self.upload(path, progress=progress) for path in paths]
        return found


def _how(as_: str | None, prefix: str | None) -> dict[str, str]:
    return {key: item for key, item in (("as", as_), ("prefix", prefix)) if item is not None}


def _id(run: RunOrId) -> str:
    return run if isinstance(run, str) else str(run["id"])
