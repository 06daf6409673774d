"""What MLflow loads of a version that foldback made: `mlflow.pyfunc.load_model("models:/bert@champion")`.

The source of such a version is foldback:/models/MODEL/versions/VERSION, or foldback:/graphs/ID. As a plugin of MLflow's this
gives the files of such a source: the .pt2 archive of the graph, or else its document and its weights; of an ONNX model the
model and the files beside it, which MLflow's own flavour `onnx` loads. The service is
$FOLDBACK_SERVER (http://127.0.0.1:8080), and its token $FOLDBACK_TOKEN.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from mlflow.entities import FileInfo
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository

from ..client import Client
from ..service import Problem
from ..transfer import download
from .mirror import DESCRIPTION

GRAPH, ARCHIVE, WEIGHTS = "graph.json", "program.pt2", "weights.safetensors"
_SOURCE = re.compile(r"/(?:models/([^/]+)/versions/([^/]+)|graphs/([0-9a-f]{64}))")


class Artifacts(ArtifactRepository):  # type: ignore[misc]
    """The files of one version, made when they are asked for."""

    def __init__(self, artifact_uri: str, *arguments: Any, **options: Any) -> None:
        super().__init__(artifact_uri, *arguments, **options)
        parts = urlsplit(artifact_uri)
        found = _SOURCE.fullmatch(parts.path)
        if parts.netloc or not found:
            raise MlflowException.invalid_parameter_value(
                f"{artifact_uri} is neither foldback:/models/MODEL/versions/VERSION nor foldback:/graphs/ID"
            )
        self._client = Client(os.environ.get("FOLDBACK_SERVER") or "http://127.0.0.1:8080")
        model, version, graph = found.groups()
        self._graph = f"sha256:{graph}" if graph else str(self._client.version(model, version)["graph"])
        self._files: list[str] | None = None
        self._onnx: str | None = None  # the model's file

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        """The files of the version: MLflow's description, and those of an ONNX model; or else the graph, and its archive or its
        weights. Those of a folder have its name before theirs."""
        begin = f"{path.rstrip('/')}/" if path else ""
        inner = [name.removeprefix(begin) for name in self._find_files() if name.startswith(begin)]
        is_folder = {name.partition("/")[0]: "/" in name for name in inner}
        return [FileInfo(begin + name, is_it, None) for name, is_it in is_folder.items()]

    def _find_files(self) -> list[str]:
        if self._files is None:
            listed = self._ask("GET", "/archive/files")
            if listed is not None:
                said = json.loads(listed)
                self._onnx = str(said["model"])
                self._files = [DESCRIPTION, self._onnx]
                self._files += [name for name, one in said["files"].items() if one and name != self._onnx]
            else:
                self._files = [DESCRIPTION, GRAPH, WEIGHTS if self._ask("HEAD", "/archive") is None else ARCHIVE]
        return self._files

    def _ask(self, method: str, path: str) -> bytes | None:
        """None: the graph has no such archive."""
        try:
            return self._client._service.request(method, f"/v1/graphs/{self._graph}{path}").content
        except Problem as problem:
            if problem.status != 409:
                raise
            return None

    def _describe(self, file: str) -> None:
        from mlflow import pyfunc  # which would need this module, while MLflow looks for its plugins
        from mlflow.models import Model

        model = Model()
        if self._onnx is None:
            pyfunc.add_to_model(model, loader_module=__name__)
        else:
            pyfunc.add_to_model(model, loader_module="mlflow.onnx", data=self._onnx)
            model.add_flavor("onnx", data=self._onnx, providers=["CPUExecutionProvider"], onnx_session_options=None)
        model.save(file)

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        if remote_file_path not in self._find_files():
            raise MlflowException.invalid_parameter_value(f"{self.artifact_uri} has no {remote_file_path}")
        if remote_file_path == DESCRIPTION:
            self._describe(local_path)
        elif remote_file_path == self._onnx:
            self._client.archive(self._graph, local_path, progress=False)
        elif remote_file_path == GRAPH:
            document = self._client._service.request("GET", f"/v1/graphs/{self._graph}").content
            if f"sha256:{hashlib.sha256(document).hexdigest()}" != self._graph:
                raise MlflowException(f"what came is not the graph {self._graph}")
            Path(local_path).write_bytes(document)
        elif remote_file_path == ARCHIVE:
            self._client.archive(self._graph, local_path, progress=False)
        elif remote_file_path == WEIGHTS:
            self._client.weights(self._graph, local_path, progress=False)
        else:
            path = f"/v1/graphs/{self._graph}/archive/files/{quote(remote_file_path)}"
            download(self._client._service, path, {}, Path(local_path), False)

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        """Raises MlflowException: a version of foldback is never written to."""
        raise MlflowException("foldback's versions are made by foldback: put_version, or foldback.mlflow.register")

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Raises MlflowException, as `log_artifact` does."""
        self.log_artifact(local_dir, artifact_path)


def _load_pyfunc(path: str) -> Predictor:
    """What MLflow calls with the folder of the files."""
    folder = Path(path)
    document = json.loads((folder / GRAPH).read_bytes())
    dtypes = {row["target"]: row["meta"].get("dtype") for row in document["nodes"] if row["op"] == "placeholder"}
    if (folder / ARCHIVE).exists():
        return _of_archive(folder / ARCHIVE, dtypes)
    from ..fx import from_document

    live = from_document(document, weights=folder / WEIGHTS).eval()
    return Predictor(live, dtypes, lambda given: live(**given))


def _of_archive(file: Path, dtypes: Mapping[str, str | None]) -> Predictor:
    import torch
    from torch.utils import _pytree as pytree

    program = torch.export.load(file)
    # Those that are no names are numbers that it was exported for
    live, names = program.module(), program.graph_signature.user_inputs

    def call(given: Mapping[str, Any]) -> Any:
        if missing := [name for name in names if isinstance(name, str) and name not in given]:
            raise ValueError(f"the input {missing[0]} is missing")
        leaves = [given[name] if isinstance(name, str) else name for name in names]
        args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
        return live(*args, **kwargs)

    return Predictor(live, {name: dtypes.get(name) for name in names if isinstance(name, str)}, call)


class Predictor:
    """Runs a program on arrays of numpy: one, or several by position or by the inputs' names. What comes back has arrays where
    the program gives tensors."""

    def __init__(self, program: Any, inputs: Mapping[str, str | None], call: Callable[[Mapping[str, Any]], Any]) -> None:
        self.program, self._inputs, self._call = program, inputs, call

    def get_raw_model(self) -> Any:
        """The module of PyTorch that `predict` calls."""
        return self.program

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Runs the program without gradients. `model_input` is an array, a list of arrays by position, or a mapping by the
        inputs' names; each has the shape that the program takes. Raises ValueError for `params`, and for inputs that are
        missing, unknown or too many; TypeError for one whose dtype would lose values.

            >>> loaded.predict({"x": numpy.zeros((8, 16), "float32")})  # an array of 8 times 4, say"""
        import torch

        if params:
            raise ValueError("foldback's programs take no params")
        given: Mapping[str, Any]
        if isinstance(model_input, Mapping):
            given = model_input
            if unknown := given.keys() - self._inputs.keys():
                raise ValueError(f"there is no input {sorted(unknown)[0]}; the inputs are {', '.join(self._inputs)}")
        else:
            values = model_input if isinstance(model_input, (list, tuple)) else [model_input]
            if len(values) > len(self._inputs):
                raise ValueError(f"{len(values)} inputs were given; the program takes {len(self._inputs)}: "
                                 f"{', '.join(self._inputs)}")
            given = dict(zip(self._inputs, values))
        with torch.no_grad():
            return _as_arrays(self._call({name: self._tensor(name, value) for name, value in given.items()}))

    def _tensor(self, name: str, value: Any) -> Any:
        """Of the dtype that the graph records, where only the precision differs: Python's and pandas' floats are of 64 bits."""
        import numpy
        import torch

        array = value.to_numpy() if hasattr(value, "to_numpy") else value
        tensor = array if isinstance(array, torch.Tensor) else torch.from_numpy(numpy.array(array))
        wanted = getattr(torch, str(self._inputs[name]), tensor.dtype)
        if tensor.dtype == wanted:
            return tensor
        is_same_kind = (tensor.is_floating_point() == wanted.is_floating_point and wanted != torch.bool
                        and tensor.dtype != torch.bool)
        if not is_same_kind or tensor.is_complex() or wanted.is_complex:
            raise TypeError(f"the input {name} is {self._inputs[name]}, and {str(tensor.dtype).removeprefix('torch.')} was "
                            "given")
        if not wanted.is_floating_point and not torch.equal(tensor.to(wanted).to(tensor.dtype), tensor):
            raise TypeError(f"the input {name} is {self._inputs[name]}, which cannot hold what was given")
        return tensor.to(wanted)


def _as_arrays(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, Mapping):
        return {key: _as_arrays(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        made = [_as_arrays(one) for one in value]
        return tuple(made) if isinstance(value, tuple) else made
    return value
