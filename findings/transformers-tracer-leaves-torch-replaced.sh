#!/bin/sh
# A failed trace by transformers leaves torch.arange and its like replaced for the rest of the process.
#
# Guess:    HFTracer, which puts its own functions in the place of torch.arange, torch.ones and others while it traces, puts
#           the old ones back when the model raises, as torch.fx does with what it replaces itself.
# Seen:     it puts them back only after a trace that succeeds.
# Versions: transformers 4.57.6, torch 2.13.0 (CPU)
# Changed:  clients/python/src/foldback/huggingface.py, Tracer.patch_for_tracing.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 transformers==4.57.6
export USE_TF=0 USE_FLAX=0
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils.fx import HFTracer


class Branches(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config, follows):
        super().__init__(config)
        self.follows = follows

    def forward(self, input_ids):
        if not self.follows:
            raise NotImplementedError("not for a tracer")
        return input_ids + 1


functions = torch.arange, torch.ones, torch.full
for follows in True, False:
    try:
        HFTracer().trace(Branches(PretrainedConfig(), follows), dummy_inputs={"input_ids": torch.ones(1, 2)})
        print("traced;", end=" ")
    except NotImplementedError as error:
        print(f"{error};", end=" ")
    same = [old is new for old, new in zip(functions, (torch.arange, torch.ones, torch.full))]
    print("arange, ones and full are torch's own:", same)
END
expect <<'END'
traced; arange, ones and full are torch's own: [True, True, True]
not for a tracer; arange, ones and full are torch's own: [False, False, False]
END
