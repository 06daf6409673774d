#!/bin/sh
# torch.full of a float16 tensor is float32: of the fill value's dtype only the kind counts.
#
# Guess:    torch.full(size, value) with a float16 tensor as its value is float16, as torch.tensor, new_full and arithmetic
#           would have it; and torch.scalar_tensor(2), which makes a tensor of a number, is torch.tensor(2).
# Seen:     full takes the default dtype of the value's kind: float16 and float64 become float32, int8 becomes int64.
#           scalar_tensor gives float32 for an int.
# Versions: torch 2.13.0 (CPU)
# Changed:  core/evaluator/kernels_create.c (full and scalar_tensor), and their rows in core/operators, by which dtypes are
#           inferred.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import torch

for dtype in torch.float16, torch.float64, torch.int8, torch.complex128:
    print("full of", dtype, "is", torch.full((2,), torch.tensor(1, dtype=dtype)).dtype)
print("scalar_tensor(2) is", torch.scalar_tensor(2).dtype, "and tensor(2) is", torch.tensor(2).dtype)
END
expect <<'END'
full of torch.float16 is torch.float32
full of torch.float64 is torch.float32
full of torch.int8 is torch.int64
full of torch.complex128 is torch.complex64
scalar_tensor(2) is torch.float32 and tensor(2) is torch.int64
END
