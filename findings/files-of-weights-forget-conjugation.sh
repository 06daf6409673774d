#!/bin/sh
# A conjugated tensor is saved by safetensors and in a .pt2 without its conjugation, and nothing is said.
#
# Guess:    a file has the numbers that the tensor shows; torch.save, which keeps them, does it no better than the others.
# Seen:     x.conj() is a view with a bit set. safetensors and torch.export.save write the bytes below it and not the bit:
#           the sign of the imaginary part turns, and the sign of x.conj().imag, which is a float. The program is right
#           until it is loaded from its file.
# Versions: torch 2.13.0 (CPU), safetensors 0.8.0
# Changed:  clients/python/src/foldback/tensors.py: whatever leaves as bytes goes through resolve_conj() and resolve_neg()
#           first.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import io

import torch
from safetensors.torch import load, save
from torch import nn


class Phase(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("negative", torch.tensor([1 + 2j]).conj().imag)

    def forward(self, x):
        return x * self.negative


def through_memory(save, load, thing):
    file = io.BytesIO()
    save(thing, file)
    file.seek(0)
    return load(file)


def value(program):
    return program.module()(torch.ones(1)).item()


x = torch.tensor([1 + 2j]).conj()
print("conjugate:", x.item(), "torch.save:", through_memory(torch.save, torch.load, x).item(), end=" ")
print("safetensors:", load(save({"x": x}))["x"].item())
program = torch.export.export(Phase(), (torch.ones(1),))
loaded = through_memory(torch.export.save, torch.export.load, program)
print("program:", value(program), "its .pt2:", value(loaded))
END
expect <<'END'
conjugate: (1-2j) torch.save: (1-2j) safetensors: (1+2j)
program: -2.0 its .pt2: 2.0
END
