"""The service's calls for weights: files that it keeps by their digest, and graphs that are bound to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from .files import refuse_other_kinds, with_shards
from .progress import Progress
from .registry import Registry
from .transfer import DIGEST, LONG, Uploads, digest_of, download

GraphOrId = Mapping[str, Any] | str  # a document, or the id of one that the service has
File = str | PathLike[str]


class Weights(Registry):
    """The part of Client that moves weights. Files are safetensors, unless a method says otherwise."""

    _uploads: Uploads

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

    def checkpoint(self, files: Sequence[File] | File, *, name: str | None = None, progress: Progress = True) -> str:
        """Stores a graph that owns the tensors of safetensors files by their names and computes nothing, and gives its id: what
        layouts are applied to, by `optimize`. Files are given as for `bind`."""
        body = {"weights": self._blobs(files, progress)} | ({} if name is None else {"name": name})
        return str(self._service.json("POST", "/v1/checkpoints", body, timeout=LONG)["id"])

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
        query = {"weights": self._blobs(weights, progress), "strict": "true" if strict else "false", **reading(as_, prefix)}
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
        """Writes the graph's weights, or those named, as a safetensors file: recipes are evaluated on the way. Where no pass
        has changed them it is the file that was bound. `tied="each"` writes a tensor for each owner, `tied="first"` once.
        An interrupted transfer is resumed, also by a later call."""
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


def reading(as_: str | None, prefix: str | None) -> dict[str, str]:
    """The members of a request for `as_` and `prefix` of `bind`, without those that are None."""
    return {key: item for key, item in (("as", as_), ("prefix", prefix)) if item is not None}
