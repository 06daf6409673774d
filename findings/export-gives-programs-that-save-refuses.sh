#!/bin/sh
# torch.export gives programs that run, and that torch.export.save refuses; which mode of export does so is hard to foresee.
#
# Guess:    what torch.export.export accepts and runs, with operators of PyTorch alone, can be saved. If not, strict mode, which
#           keeps more of Python's structure, is the one that fails.
# Seen:     a tensor that is indexed within a mask (create_mask, as language models have it) is saved from strict mode and not
#           from the default one, whose program has an operator flat_apply with a tree of arguments; run_decompositions mends it.
#           flex_attention is saved from neither, also decomposed. All of these programs run, and give what the model gives.
# Versions: torch 2.13.0 (CPU); 2.14.1 does the same
# Changed:  clients/python/src/foldback/comparison.py (compare): a program that cannot be saved is a difference;
#           docs/exporters.md. GPT-2, Llama and Mistral of transformers are such programs.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import io

import torch
from torch import nn
from torch.nn.attention.flex_attention import create_mask, flex_attention


class Padded(nn.Module):
    def forward(self, x, keep):
        mask = create_mask(lambda batch, head, row, column: keep[column], 1, 1, 3, 3, device="cpu")
        return x.masked_fill(~mask[0, 0], 0)


class Attention(nn.Module):
    def forward(self, x, keep):
        return flex_attention(x, x, x)


def is_saved(program):
    try:
        torch.export.save(program, io.BytesIO())
    except Exception:
        return "refused"
    return "saved"


keep = torch.tensor([True, False, True])
for model, x in (Padded(), torch.ones(3, 3)), (Attention(), torch.ones(1, 1, 16, 16)):
    for strict in False, True:
        program = torch.export.export(model, (x, keep), strict=strict)
        same = torch.equal(program.module()(x, keep), model(x, keep))
        print(type(model).__name__, "strict" if strict else "default", "runs" if same else "differs", is_saved(program),
              "decomposed", is_saved(program.run_decompositions()))
END
expect <<'END'
Padded default runs refused decomposed saved
Padded strict runs saved decomposed saved
Attention default runs refused decomposed refused
Attention strict runs refused decomposed refused
END
