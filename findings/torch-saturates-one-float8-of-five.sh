#!/bin/sh
# PyTorch makes 448 of infinity in float8_e4m3fn, infinity in float8_e5m2, and NaN in the other kinds.
#
# Guess:    what is too large for float8 becomes infinity where the dtype has it (e5m2), else NaN, as in ml_dtypes, which JAX
#           and onnx use.
# Seen:     float8_e4m3fn saturates: 1e9 and even infinity become 448. e4m3fnuz and e5m2fnuz give NaN, e5m2 gives infinity, as
#           guessed. ml_dtypes gives NaN for e4m3fn.
# Versions: torch 2.13.0 (CPU), ml_dtypes 0.6.0, numpy 2.4.6
# Changed:  core/weights/dtype.c, fb_dtype_encode: what is too large is NaN in float8_e4m3fn, and so refused as
#           `tensor-overflows`, not saturated.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 ml_dtypes==0.6.0
"$python" >"$work/seen" <<'END'
import ml_dtypes
import numpy as np
import torch

numbers = [448.0, 464.0, 465.0, 1e9, float("inf"), float("-inf")]
for name in "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz":
    narrow = torch.tensor(numbers).to(getattr(torch, name)).float().tolist()
    with np.errstate(all="ignore"):
        other = np.array(numbers, np.float32).astype(getattr(ml_dtypes, name)).astype(np.float32).tolist()
    print(name, "torch", *narrow, "ml_dtypes", *other)
END
expect <<'END'
float8_e4m3fn torch 448.0 448.0 448.0 448.0 448.0 -448.0 ml_dtypes 448.0 448.0 nan nan nan nan
float8_e4m3fnuz torch nan nan nan nan nan nan ml_dtypes nan nan nan nan nan nan
float8_e5m2 torch 448.0 448.0 448.0 inf inf -inf ml_dtypes 448.0 448.0 448.0 inf inf -inf
float8_e5m2fnuz torch 448.0 448.0 448.0 nan nan nan ml_dtypes 448.0 448.0 448.0 nan nan nan
END
