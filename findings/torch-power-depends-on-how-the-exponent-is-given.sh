#!/bin/sh
# x ** 0.5 and x ** torch.tensor(0.5) differ at -inf and at -0.0.
#
# Guess:    a number and a tensor of the same number give the same power; both are C's pow.
# Seen:     a number of 0.5 or -0.5 is computed by a square root: -inf gives nan (pow: inf), and -0.0 gives -0.0 (pow: 0.0).
#           A tensor without dimensions, which arithmetic elsewhere treats as a number, is computed by pow.
# Versions: torch 2.13.0 (CPU)
# Changed:  core/evaluator/kernels_binary.c, the table `powers`: the kernel takes another loop for these numbers.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import torch

x = torch.tensor([float("-inf"), -0.0, 4.0])
print("number      ", (x**0.5).tolist(), (x**-0.5).tolist())
print("tensor of it", (x ** torch.tensor(0.5)).tolist(), (x ** torch.tensor(-0.5)).tolist())
END
expect <<'END'
number       [nan, -0.0, 2.0] [nan, -inf, 0.5]
tensor of it [inf, 0.0, 2.0] [0.0, inf, 0.5]
END
