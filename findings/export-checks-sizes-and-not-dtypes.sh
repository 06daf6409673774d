#!/bin/sh
# An exported program takes any dtype for an input, computes in it, and gives results of another dtype than it declares.
#
# Guess:    module() of an exported program checks its inputs against the examples: another size raises, and so does another
#           dtype.
# Seen:     another size raises, another dtype does not: float64, int64 and complex64 go through a program of float32, also
#           after save and load, and the results have that dtype. Only where forward itself has a .to(dtype) is there an
#           assertion, and it is on the value in front of it.
# Versions: torch 2.13.0 (CPU)
# Changed:  docs/exporters.md; clients/python/tests/test_exporters.py. A pass that removes a cast to the dtype that is recorded
#           is right for the inputs that the program declares, and only for these.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import io

import torch
from torch import nn


class Scaled(nn.Module):
    def forward(self, x):
        return x * 2 + 1


class Cast(nn.Module):
    def forward(self, x):
        return x.to(torch.float32) * 2 + 1


for model in Scaled(), Cast():
    program = torch.export.export(model, (torch.ones(3),))
    archive = io.BytesIO()
    torch.export.save(program, archive)
    archive.seek(0)
    for when, module in ("exported", program.module()), ("loaded", torch.export.load(archive).module()):
        answers = []
        for x in torch.ones(4), *(torch.ones(3, dtype=dtype) for dtype in (torch.float64, torch.int64, torch.complex64)):
            try:
                answers.append(str(module(x).dtype))
            except Exception as error:
                answers.append(f"refused ({str(error).split(' ')[1]})")
        print(type(model).__name__, when, *answers)
END
expect <<'END'
Scaled exported refused (failed:) torch.float64 torch.int64 torch.complex64
Scaled loaded refused (failed:) torch.float64 torch.int64 torch.complex64
Cast exported refused (failed:) refused (dtype) refused (dtype) refused (dtype)
Cast loaded refused (failed:) refused (dtype) refused (dtype) refused (dtype)
END
