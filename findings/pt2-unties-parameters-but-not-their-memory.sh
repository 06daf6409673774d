#!/bin/sh
# A tied weight comes back from a .pt2 archive as two parameters that share memory, one of which never gets a gradient.
#
# Guess:    torch.export.load gives tied weights back as one parameter under two names, as they were saved, or else as two
#           that are apart.
# Seen:     neither. They are two Parameter objects over one memory. parameters() lists both, and only the one that the
#           graph reads gets the gradient; "is" and id() say that nothing is tied, and a write to one is seen in the other.
# Versions: torch 2.13.0 (CPU)
# Changed:  clients/python/src/foldback/tensors.py, TensorTable(by_memory): the exporter tells tensors apart by their memory.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import io

import torch
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


def describe(when, program):
    module = program.module()
    module(torch.ones(1, 2)).sum().backward()
    parameters = list(module.parameters())
    memory = {parameter.data_ptr() for parameter in parameters}
    graded = [parameter.grad is not None for parameter in parameters]
    print(f"{when}: {len(parameters)} parameters in {len(memory)} memory, gradients: {graded}")


program = torch.export.export(Tied(), (torch.ones(1, 2),))
archive = io.BytesIO()
torch.export.save(program, archive)
archive.seek(0)
describe("exported", program)
describe("loaded  ", torch.export.load(archive))
END
expect <<'END'
exported: 1 parameters in 1 memory, gradients: [True]
loaded  : 2 parameters in 1 memory, gradients: [False, True]
END
