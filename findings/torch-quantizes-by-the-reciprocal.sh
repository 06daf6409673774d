#!/bin/sh
# PyTorch quantizes by multiplying with 1 / scale, where its documentation and ONNX divide: some codes differ by one.
#
# Guess:    fake_quantize_per_tensor_affine computes round(x / scale) + zero_point, as its documentation says, so that the codes
#           are those of ONNX's QuantizeLinear with the same scale.
# Seen:     it multiplies by the rounded reciprocal of the scale. Of 120 numbers halfway between two codes 38 get another code
#           at scale 0.007, and none at 0.1 or 0.5. quantized_decomposed, which exported programs call, does the same. ONNX
#           Runtime and onnx.reference divide, and agree.
# Versions: torch 2.13.0, onnxruntime 1.32.0, onnx 1.23.2 (CPU)
# Changed:  core/passes/quantize_weights.c, quantize, divides by the scale.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 onnx==1.23.2 onnxruntime==1.32.0 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxruntime
import torch
import torch.ao.quantization.fx._decomposed
from onnx import parser
from onnx.reference import ReferenceEvaluator

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x, float s, int8 z) => (int8[n] y) { y = QuantizeLinear(x, s, z) }'
model = parser.parse_model(TEXT)
session, reference = onnxruntime.InferenceSession(model.SerializeToString()), ReferenceEvaluator(model)
for scale in 0.1, 0.007, 0.5:
    scale = np.array(scale, np.float32)
    x = np.array([(code + 0.5) * scale for code in range(-60, 60)], np.float32)
    inputs = {"x": x, "s": scale, "z": np.array(0, np.int8)}
    divided = np.rint(x / scale).astype(np.int8)
    tensor, step = torch.from_numpy(x), float(scale)
    fake = torch.fake_quantize_per_tensor_affine(tensor, step, 0, -128, 127).numpy()
    codes = {
        "runtime": session.run(None, inputs)[0],
        "reference": reference.run(None, inputs)[0],
        "fake": np.rint(fake / scale).astype(np.int8),
        "decomposed": torch.ops.quantized_decomposed.quantize_per_tensor(tensor, step, 0, -128, 127, torch.int8).numpy(),
        "reciprocal": np.rint(x * (np.float32(1) / scale)).astype(np.int8),
    }
    others = (f"{name} {(code != divided).sum()}" for name, code in codes.items())
    print(f"{scale:.3f} codes other than rint(x / scale):", *others)
END
expect <<'END'
0.100 codes other than rint(x / scale): runtime 0 reference 0 fake 0 decomposed 0 reciprocal 0
0.007 codes other than rint(x / scale): runtime 0 reference 0 fake 38 decomposed 38 reciprocal 38
0.500 codes other than rint(x / scale): runtime 0 reference 0 fake 0 decomposed 0 reciprocal 0
END
