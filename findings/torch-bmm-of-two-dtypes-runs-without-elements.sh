#!/bin/sh
# torch.bmm of two dtypes raises, but for products in which nothing is multiplied: these take the SECOND operand's dtype.
#
# Guess:    a product of two dtypes raises whatever the sizes are (mm and linear do); if it did not, promotion would give
#           the wider dtype.
# Seen:     where the batch, the rows or the terms of the sum are none, bmm computes, and the result is of the second
#           operand's dtype. Where there are no terms that result has elements, which are zeros.
# Versions: torch 2.13.0 (CPU)
# Changed:  core/analysis/infer.c, FB_DTYPE_RULE_ALL: the dtype of a product of two dtypes is unknown. It was taken for that of
#           the first, and ConvertPrecision went by it.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import torch


def dtype_of(function, a, b):
    try:
        made = function(a, b)
        return f"{made.dtype}, {made.numel()} elements"
    except RuntimeError:
        return "raises"


half, double = torch.float16, torch.float64
for rows, terms in (2, 2), (2, 0), (0, 2):
    a, b = torch.ones(1, rows, terms), torch.ones(1, terms, 3)
    print(f"{rows} rows, {terms} terms")
    print("  bmm of float16 and float64:", dtype_of(torch.bmm, a.to(half), b.to(double)))
    print("  bmm of float64 and float16:", dtype_of(torch.bmm, a.to(double), b.to(half)))
    print("  mm of float16 and float64: ", dtype_of(torch.mm, a[0].to(half), b[0].to(double)))
END
expect <<'END'
2 rows, 2 terms
  bmm of float16 and float64: raises
  bmm of float64 and float16: raises
  mm of float16 and float64:  raises
2 rows, 0 terms
  bmm of float16 and float64: torch.float64, 6 elements
  bmm of float64 and float16: torch.float16, 6 elements
  mm of float16 and float64:  raises
0 rows, 2 terms
  bmm of float16 and float64: torch.float64, 0 elements
  bmm of float64 and float16: torch.float16, 0 elements
  mm of float16 and float64:  raises
END
