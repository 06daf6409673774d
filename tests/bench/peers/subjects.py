"""What is measured. A step is a method that makes everything ready and gives the work to be timed; it may leave its result for
the steps after it."""

from __future__ import annotations

import copy
import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import models

Work = Callable[[], Any]


class Optimum:
    """optimum.fx.optimization, and what PyTorch itself has for keeping the original: a copy in memory, or a file."""

    def __init__(self, model: models.Model, folder: pathlib.Path, url: str) -> None:
        import optimum.fx.optimization

        self.model, self.url, self.file = model, url, folder / "graph_module.pt"
        self.optimum = optimum.fx.optimization
        self.module, self.inputs = models.trace(model)
        self.composed: Any = None

    def composition(self, inplace: bool = True) -> Any:
        return self.optimum.compose(*(getattr(self.optimum, name)() for name in self.model.passes), inplace=inplace)

    def deepcopy(self) -> Work:
        return lambda: copy.deepcopy(self.module)

    def compose(self) -> Work:
        composition, module = self.composition(), copy.deepcopy(self.module)

        def work() -> None:
            self.composed = composition(module)

        return work

    def reverse(self) -> Work:
        composition, (module, self.composed) = self.composition(), (self.composed, None)
        if module is None:
            raise RuntimeError("there is nothing to reverse: compose failed")
        return lambda: composition(module, reverse=True)

    def compose_copy(self) -> Work:
        composition = self.composition(inplace=False)
        return lambda: composition(self.module)

    def save(self) -> Work:
        import torch

        return lambda: torch.save(self.module, self.file)

    def load(self) -> Work:
        import torch

        return lambda: torch.load(self.file, weights_only=False)

    # foldback's client, for those who have a live GraphModule and want one

    def to_document(self) -> Work:
        import foldback.fx

        return lambda: foldback.fx.to_document(self.module, *self.inputs)

    def apply_edits(self) -> Work:
        import foldback

        module = copy.deepcopy(self.module)
        document = json.loads((self.file.parent / "graph.json").read_text())
        with foldback.Client(self.url, timeout=600) as client:
            edits = client.optimize(document, self.model.passes, include=["edits"])["edits"]
        return lambda: foldback.apply_edits(module, edits)


class OnnxTool:
    """A tool for ONNX models. `tool` is a module, `model` what it takes."""

    package = ""

    def __init__(self, model: models.Model, folder: pathlib.Path, url: str) -> None:
        import importlib

        import onnx

        self.tool = importlib.import_module(self.package)
        self.folder = folder
        self.input = onnx.load(folder / "model.onnx")
        self.before = len(self.input.graph.node)
        self.result: Any = None

    def optimize(self) -> Work:
        def work() -> None:
            self.result = self.run()

        return work

    def run(self) -> Any:
        raise NotImplementedError

    def nodes(self) -> list[int]:
        return [self.before, len(self.result.graph.node)]

    def input_bytes(self) -> bytes:
        return bytes(self.input.SerializeToString(deterministic=True))


class OnnxSim(OnnxTool):
    package = "onnxsim"

    def run(self) -> Any:
        return self.tool.simplify(self.input)[0]


class OnnxOptimizer(OnnxTool):
    package = "onnxoptimizer"

    def run(self) -> Any:
        return self.tool.optimize(self.input)


class OnnxSlim(OnnxTool):
    package = "onnxslim"

    def run(self) -> Any:
        return self.tool.slim(self.input)


class OnnxScript(OnnxTool):
    package = "onnxscript.optimizer"

    def run(self) -> Any:
        return self.tool.optimize(self.input)


class OnnxRuntime(OnnxTool):
    """Its optimiser cannot be called alone: a session is made, which writes the optimised model to a file."""

    package = "onnxruntime"

    def __init__(self, model: models.Model, folder: pathlib.Path, url: str) -> None:
        super().__init__(model, folder, url)
        self.input = self.input.SerializeToString()
        self.tool.set_default_logger_severity(3)

    def run(self) -> Any:
        options = self.tool.SessionOptions()
        options.graph_optimization_level = self.tool.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(self.folder / "basic.onnx")
        return self.tool.InferenceSession(self.input, options, providers=["CPUExecutionProvider"])

    def nodes(self) -> list[int]:
        import onnx

        return [self.before, len(onnx.load(self.folder / "basic.onnx").graph.node)]

    def input_bytes(self) -> bytes:
        return bytes(self.input)


SUBJECTS: dict[str, Any] = {
    "optimum": Optimum,
    "onnxsim": OnnxSim,
    "onnxslim": OnnxSlim,
    "onnxoptimizer": OnnxOptimizer,
    "onnxscript": OnnxScript,
    "onnxruntime": OnnxRuntime,
}


def prepare(model: models.Model, folder: pathlib.Path) -> None:
    """Writes the model as a document and as ONNX."""
    import foldback.fx

    module, inputs = models.trace(model)
    (folder / "graph.json").write_text(json.dumps(foldback.fx.to_document(module, *inputs)))
    models.write_onnx(model, folder / "model.onnx")


def print_of(module: Any) -> tuple[list[str], list[tuple[str, str]]]:
    """A GraphModule's graph, in which nodes are numbered (a file that is loaded names some of them anew), and its state_dict in
    order with a digest of each tensor's bytes."""
    import torch.fx

    number = {node: index for index, node in enumerate(module.graph.nodes)}
    graph = []
    for node in module.graph.nodes:
        args = torch.fx.map_arg((node.args, node.kwargs), lambda read: f"%{number[read]}")
        target = node.target if isinstance(node.target, str) else node._pretty_print_target(node.target)
        graph.append(f"{node.op} {target} {args!r}")
    tensors = module.state_dict().items()
    return graph, [(key, hashlib.sha256(item.detach().contiguous().numpy().tobytes()).hexdigest()) for key, item in tensors]
