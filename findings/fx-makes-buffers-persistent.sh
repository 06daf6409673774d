#!/bin/sh
# A traced module asks a checkpoint for buffers that the model never saves.
#
# Guess:    torch.fx.symbolic_trace keeps the state_dict of a model in eval mode: a buffer with persistent=False is in neither.
# Seen:     what the graph reads itself is copied into bare modules, and a copied buffer is persistent. So the model's own
#           checkpoint does not load into the traced module (strictly), and copy.deepcopy keeps the error.
# Versions: torch 2.13.0 (CPU)
# Changed:  clients/python/src/foldback/fx.py, mark_buffers, makes these non-persistent again; tensors.py, copied_buffers,
#           names those of which nobody can say.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import torch
from torch import fx, nn


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inverse", torch.ones(2), persistent=False)

    def forward(self, x):
        return x * self.inverse


model = nn.Sequential(Rotary(), nn.Linear(2, 2))
traced = fx.symbolic_trace(model)
print("model: ", list(model.state_dict()))
print("traced:", list(traced.state_dict()))
try:
    traced.load_state_dict(model.state_dict())
except RuntimeError as error:
    print(*str(error).split()[-5:])
END
expect <<'END'
model:  ['1.weight', '1.bias']
traced: ['0.inverse', '1.weight', '1.bias']
Missing key(s) in state_dict: "0.inverse".
END
