#!/bin/sh
# Of several nan in a window max_pool gives the index of the last; max and argmax give that of the first.
#
# Guess:    the index that max_pool returns is that of the first of equal largest values, for nan too, as torch.max and
#           argmax have it.
# Seen:     it is the first of equal numbers, and the last nan: a nan replaces whatever was found before, another nan as
#           well. So a gradient goes to another element than through max.
# Versions: torch 2.13.0 (CPU)
# Changed:  core/evaluator/kernels_pool.c, index_of_max.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import torch
import torch.nn.functional as F

nan = float("nan")
for values in [1.0, 2.0, 2.0, 0.0], [nan, 1.0, nan, 2.0]:
    x = torch.tensor([values])
    print(values, "max_pool1d:", F.max_pool1d(x, 4, return_indices=True)[1].item(), "max:", x.max(dim=1).indices.item())
END
expect <<'END'
[1.0, 2.0, 2.0, 0.0] max_pool1d: 1 max: 1
[nan, 1.0, nan, 2.0] max_pool1d: 2 max: 0
END
