#!/bin/sh
# PyTorch's 4-bit product reads its scales as if they were row-major, and asks that of its two other operands alone.
#
# Guess:    _weight_int4pack_mm_for_cpu asks for operands that are contiguous ("expect A to be contiguous", "expect B …"), so
#           it asks that of the scales, too, or follows their strides.
# Seen:     scales of the same numbers in another order of memory give other products, without an error. They come as
#           (groups, outputs, 2), while a quantiser has them as (outputs, groups): a transposed view is what one would pass.
# Versions: torch 2.13.0 (CPU)
# Changed:  core/evaluator/kernels_matmul.c, kernel_int4pack_mm: refuses such scales. core/passes/quantize_weights.c,
#           put_packed_groups: the recipe makes them row-major, where a transpose in the graph would have done.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import torch

torch.manual_seed(0)
numbers = torch.randint(0, 16, (16, 64), dtype=torch.int32)
weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
x, scales = torch.randn(3, 64), torch.rand(16, 2) + 0.5
zeros = torch.zeros(16, 2)
exact = x.double() @ ((numbers.double() - 8).unflatten(1, (2, 32)) * scales.double()[..., None]).flatten(1).T
view = torch.stack([scales, zeros], -1).transpose(0, 1)
for name, given in ("view", view), ("contiguous", view.contiguous()):
    found = torch.ops.aten._weight_int4pack_mm_for_cpu(x, weight, 32, given)
    print(name, "right" if torch.allclose(found.double(), exact, rtol=1e-4, atol=1e-3) else "wrong")
for name, one, other in ("input", x.T.contiguous().T, weight), ("weight", x, weight.T.contiguous().T):
    try:
        torch.ops.aten._weight_int4pack_mm_for_cpu(one, other, 32, view.contiguous())
        print(name, "runs")
    except RuntimeError as error:
        print(name, "raises" if "to be contiguous" in str(error) else error)
END
expect <<'END'
view wrong
contiguous right
input raises
weight raises
END
