#!/bin/sh
# PyTorch's fused convolution, sum and ReLU in bfloat16 runs or fails by the strides of its input.
#
# Guess:    an operator that takes bfloat16 takes it in every memory format, as it takes float32.
# Seen:     mkldnn::_convolution_pointwise.binary in bfloat16 adds in both formats, and adds with ReLU where the input is in
#           channels_last; row by row that raises an internal assertion of PyTorch's. float32 runs in all four ways.
# Versions: torch 2.13.0 (CPU; seen with AVX-512 and its bfloat16)
# Changed:  core/passes/fuse_pointwise.c: in bfloat16 a ReLU behind a sum stays a call of its own.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import torch

binary = torch.ops.mkldnn._convolution_pointwise.binary
for dtype in torch.float32, torch.bfloat16:
    for memory_format in torch.contiguous_format, torch.channels_last:
        for relu in None, "relu":
            x, other = (torch.randn(1, 4, 6, 6, dtype=dtype).to(memory_format=memory_format) for _ in range(2))
            weight = torch.randn(4, 4, 3, 3, dtype=dtype)
            expected = torch.nn.functional.conv2d(x, weight, padding=1) + other
            try:
                found = binary(x, other, weight, None, [1, 1], [1, 1], [1, 1], 1, "add", None, relu, [], "")
            except RuntimeError as error:
                print(dtype, memory_format, relu, "raises" if "INTERNAL ASSERT" in str(error) else error)
                continue
            is_near = torch.allclose(found, expected.relu() if relu else expected, rtol=0.05, atol=0.1)
            print(dtype, memory_format, relu, "runs" if is_near else "is wrong")
END
expect <<'END'
torch.float32 torch.contiguous_format None runs
torch.float32 torch.contiguous_format relu runs
torch.float32 torch.channels_last None runs
torch.float32 torch.channels_last relu runs
torch.bfloat16 torch.contiguous_format None runs
torch.bfloat16 torch.contiguous_format relu raises
torch.bfloat16 torch.channels_last None runs
torch.bfloat16 torch.channels_last relu runs
END
