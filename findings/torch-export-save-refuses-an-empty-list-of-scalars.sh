#!/bin/sh
# torch.export.save writes an empty list of integers, and refuses an empty list of scalars.
#
# Guess:    what torch.export captured, torch.export.save writes: an empty list of sizes is written, so any empty list is.
# Seen:     the schema of an archive has no empty list without a kind: a call of a CPU's fused convolution with ReLU, whose
#           `scalars` are [] as ReLU takes none, is exported and runs, and cannot be saved (SerializeError). With one number in
#           the list, which ReLU does not read, the program is saved, loads, and gives the same.
# Versions: torch 2.13.0 (CPU)
# Changed:  core/passes/fuse_pointwise.c, scalars_of: it writes one number that nothing reads in place of none.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" 2>"$work/said" <<'END'
import io

import torch


class Fused(torch.nn.Module):
    def __init__(self, scalars):
        super().__init__()
        self.scalars, self.weight = scalars, torch.nn.Parameter(torch.randn(8, 3, 3, 3))

    def forward(self, x):
        operator = torch.ops.mkldnn._convolution_pointwise
        return operator(x, self.weight, None, [1, 1], [1, 1], [1, 1], 1, "relu", self.scalars, "")


class Sum(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.sum.dim_IntList(x, [])


x = torch.randn(1, 3, 8, 8)
for name, model in ("no sizes", Sum()), ("no scalars", Fused([])), ("one scalar", Fused([0.0])):
    program, file = torch.export.export(model, (x,)), io.BytesIO()
    try:
        torch.export.save(program, file)
    except Exception as error:
        print(name, type(error).__name__, torch.equal(program.module()(x), model(x)))
        continue
    file.seek(0)
    print(name, "saved", torch.equal(torch.export.load(file).module()(x), model(x)))
END
expect <<'END'
no sizes saved True
no scalars SerializeError True
one scalar saved True
END
