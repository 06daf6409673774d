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

from .beside import find_beside, find_model
from .progress import Progress
from .run import Run
from .runs import RunOrId, Runs
from .service import CONNECT, Problem, Service, socket_of
from .transfer import DIGEST, LONG, Uploads, download
from .weights import File, GraphOrId

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule

__all__ = ["Client", "Problem"]

Edits = list[dict[str, Any]]


class Client(Runs):
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
            limits = httpx.Timeout(timeout, connect=min(timeout, CONNECT))
            http = httpx.Client(timeout=limits, verify=trusted, transport=transport)
        self._service = Service(url, http, token)
        self._uploads = Uploads(self._service)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. `with Client(url) as client:` does it at the end."""
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

    def put_onnx(self, model: File, *, root: File | None = None, absent: bool = False, progress: Progress = True) -> str:
        """Stores the graph of an ONNX model, with the files beside it that have its weights, and gives its id. `model` may be
        a folder with one such file in it, as MLflow and Hugging Face have them. The files must be ordinary ones in the model's
        folder or below, or within `root` where they are links that lead out, as in a cache of Hugging Face. Raises
        FileNotFoundError for one that is missing, and with `absent` its weights are nowhere; ValueError for a folder with
        several models."""
        path = find_model(Path(model))
        files = {path.name: self.upload(path, progress=progress)}
        try:
            return self._put_files(path.name, files, False)
        except Problem as problem:
            if problem.code != "missing-files":
                raise
            names = [str(name) for name in problem.body["files"]]
        for name in names:
            file = find_beside(path, name, None if root is None else Path(root))
            if file is not None:
                files[name] = self.upload(file, progress=progress)
            elif not absent:
                raise FileNotFoundError(f"{name} is not beside {path}, which has weights in it")
        return self._put_files(path.name, files, absent)

    def _put_files(self, model: str, files: Mapping[str, str], absent: bool) -> str:
        body = json.dumps({"model": model, "files": dict(files), "absent": absent}, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/vnd.foldback.files+json"}
        return str(self._service.request("POST", "/v1/graphs", body, headers, timeout=LONG).json()["id"])

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

    def code(self, graph: str) -> str:
        """Its forward() as Python."""
        return self._service.request("GET", f"/v1/graphs/{graph}/code").text

    def diff(self, base: str, graph: str) -> Edits:
        """The edits that lead from one stored graph to another: what `foldback.apply_edits` takes."""
        return list(self._service.json("GET", f"/v1/graphs/{graph}/diff", query={"base": base})["edits"])

    # ---- live modules ---------------------------------------------------------------------------------------------------

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
        if isinstance(run, (str, Mapping)):
            return super().reverse(run, passes, graph=graph, include=include)
        from .history import last_step, reverse_live  # needs PyTorch

        if graph is None:
            return reverse_live(self, run, passes, include=include)
        return super().reverse(last_step(self, run)[0].run, passes, graph=graph, include=include)

    def rollback(self, run: RunOrId | GraphModule, passes: Sequence[Any] | None = None) -> Run:
        """The run's source from the store, or the source with the other passes only; whatever the passes are. A live
        module stands for the last run that was applied to it and not undone. Raises ValueError where no such run led to it."""
        if isinstance(run, (str, Mapping)):
            return super().rollback(run, passes)
        from .history import last_step  # needs PyTorch

        return super().rollback(last_step(self, run)[0].run, passes)

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
        samples: int | None = None,
        tolerance: Mapping[str, float] | None = None,
        random_weights: bool = False,
        keep: bool = False,
        progress: Progress = True,
    ) -> dict[str, Any]:
        """A verdict on two graphs: "passes", the "verdict" on each of the "outputs" and how far they are apart, and the
        "first_node" that differs. `samples` is how many inputs are drawn at most. With `keep` those of the first
        counterexample become a blob, which it names."""
        body = {"a": a, "b": b, **self._judging(inputs, seed, samples, tolerance, random_weights, progress)}
        if keep:
            body["keep"] = True
        return dict(self._service.json("POST", "/v1/compare", body, timeout=LONG))

    def bisect(
        self,
        run: RunOrId,
        *,
        against: GraphOrId | None = None,
        output: int | None = None,
        inputs: File | None = None,
        seed: int = 0,
        samples: int | None = None,
        tolerance: Mapping[str, float] | None = None,
        random_weights: bool = False,
        progress: Progress = True,
    ) -> dict[str, Any]:
        """Which "match" of which "pass" makes the run's result differ from its source, or from `against`; "found" is False
        where nothing does. `output` is the only one that counts. "rest" has the run without the match, as a request."""
        body = self._judging(inputs, seed, samples, tolerance, random_weights, progress)
        if against is not None:
            body["against"] = against
        if output is not None:
            body["output"] = output
        name = run if isinstance(run, str) else run["id"]
        return dict(self._service.json("POST", f"/v1/runs/{name}/bisect", body, timeout=LONG))

    def _judging(
        self,
        inputs: File | None,
        seed: int,
        samples: int | None,
        tolerance: Mapping[str, float] | None,
        random_weights: bool,
        progress: Progress,
    ) -> dict[str, Any]:
        """The members of a request for a verdict."""
        body: dict[str, Any] = {"seed": seed, "random_weights": random_weights}
        if inputs is not None:
            body["inputs"] = self._blobs(inputs, progress)[0]
        if samples is not None:
            body["samples"] = samples
        if tolerance is not None:
            body["tolerance"] = dict(tolerance)
        return body
