#!/bin/sh
# torch.export writes assertions of dtypes before casts: a program raises under autocast where its model runs.
#
# Guess:    an exported program of float32 may be called under autocast, as its model may, and gives the same bfloat16 results;
#           if a dtype is baked in, then by the casts of decompositions alone.
# Seen:     before each .to(dtype) and .float() the program asserts the dtype that the export saw. Under autocast a Linear gives
#           bfloat16, so the assertion raises. It is there without any decomposition, in both modes of export. Without a cast the
#           program runs. A model whose casts follow none that autocast changes runs as well.
# Versions: torch 2.13.0 (CPU)
# Changed:  clients/python/src/foldback/comparison.py (compare) calls a program under autocast, too; docs/exporters.md. GPT-2 and
#           T5 of transformers 4.57 are such programs.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import torch
from torch import nn


class Cast(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).to(torch.float32).softmax(-1)


class Plain(Cast):
    def forward(self, x):
        return self.linear(x).softmax(-1)


class Before(Cast):
    def forward(self, x):
        return self.linear(x.to(torch.float32))


def how(call, x):
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            return str(call(x).dtype)
    except RuntimeError as error:
        return str(error).partition("\n")[0]


x = torch.ones(2, 4)
for model in Cast(), Plain(), Before():
    for strict in False, True:
        program = torch.export.export(model.eval(), (x,), strict=strict)
        asserts = sum("_assert_tensor_metadata" in str(node.target) for node in program.graph.nodes)
        print(type(model).__name__, "strict" if strict else "default", asserts, "|", how(model, x), "|", how(program.module(), x))
END
expect <<'END'
Cast default 1 | torch.float32 | Tensor dtype mismatch! Expected: Float, Got: c10::BFloat16
Cast strict 1 | torch.float32 | Tensor dtype mismatch! Expected: Float, Got: c10::BFloat16
Plain default 0 | torch.bfloat16 | torch.bfloat16
Plain strict 0 | torch.bfloat16 | torch.bfloat16
Before default 1 | torch.bfloat16 | torch.bfloat16
Before strict 1 | torch.bfloat16 | torch.bfloat16
END
