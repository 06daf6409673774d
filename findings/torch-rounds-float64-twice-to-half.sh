#!/bin/sh
# A cast from float64 to float16 or bfloat16 rounds twice, and so is off by one in the last place.
#
# Guess:    x.to(torch.bfloat16) is the bfloat16 that is nearest to x, whatever the dtype of x: a conversion rounds once.
# Seen:     it goes by way of float32. A number a little above the middle of two neighbours is rounded to the middle first,
#           and then to the even one, which is farther away. numpy's float64 to float16 rounds once.
# Versions: torch 2.13.0 (CPU), numpy 2.4.6
# Changed:  clients/python/src/foldback/recipes.py, round_once: a folded weight is computed in float64 and rounded to odd on
#           the way.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import numpy
import torch

for dtype, digits in (torch.float16, 10), (torch.bfloat16, 7):
    above_middle = 1 + 2.0 ** -(digits + 1) + 2.0**-40  # between 1 and the next number, which is nearer
    given = torch.tensor(above_middle, dtype=torch.float64).to(dtype).item()
    print(dtype, "nearest:", 1 + 2.0**-digits, "given:", given)
print("numpy.float16", numpy.float16(numpy.float64(1 + 2.0**-11 + 2.0**-40)))
END
expect <<'END'
torch.float16 nearest: 1.0009765625 given: 1.0
torch.bfloat16 nearest: 1.0078125 given: 1.0
numpy.float16 1.001
END
