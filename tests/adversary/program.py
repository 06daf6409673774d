"""A random program as text: lines that make modules, lines that compute, inputs and a result. Text can be run, reduced and
printed."""

import dataclasses
import re

import prelude
import torch

NAME = re.compile(r"\b[vx]\d+\b")


@dataclasses.dataclass(frozen=True)
class Program:
    seed: int
    dialect: str  # "fx", "fx-inputs", "fx-shapeless", "export", "dynamic", "decomposed"
    batch: int
    inputs: tuple  # expressions; B is the size of the first axis. Tensors, nested ones, or an earlier input once more
    init: tuple
    body: tuple
    result: str

    @property
    def names(self):
        return [f"x{index}" for index in range(len(self.inputs))]

    def source(self):
        init = "".join(f"        {line}\n" for line in self.init)
        made = "".join(f"    {name} = {text}\n" for name, text in zip(self.names, self.inputs))
        body = "".join(f"        {line}\n" for line in self.body)
        return (
            "from prelude import *\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            f"        torch.manual_seed({self.seed})\n{init}        self.training = False\n\n"
            f"    def forward(self, {', '.join(self.names)}):\n{body}        return {self.result}\n\n\n"
            f"def inputs(B={self.batch}):\n    torch.manual_seed({self.seed})\n{made}    return [{', '.join(self.names)}]\n"
        )

    def load(self):
        """The model and the function that makes its inputs."""
        space = {"__name__": "prelude"}
        exec(compile(self.source(), f"<program {self.seed}>", "exec"), space)
        space["Net"].__module__ = "adversary_program"
        return space["Net"](), space["inputs"]


def environment():
    return {name: getattr(prelude, name) for name in prelude.__all__} | {"torch": torch}
