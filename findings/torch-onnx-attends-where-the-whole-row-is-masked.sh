#!/bin/sh
# torch.onnx exports attention that gives a fully masked row the mean of all values, where PyTorch gives zeros.
#
# Guess:    scaled_dot_product_attention with a boolean mask gives 0 in a row that is masked as a whole (a padded sequence), and
#           the exported model as well: it even has IsNaN and Where behind the Softmax for that case.
# Seen:     the mask becomes -3.4e38 and not -inf. Softmax of a row of equal numbers is no NaN, so the Where never acts, and the
#           row is the mean of all values, masked as they are. ONNX Runtime and onnx.reference agree.
# Versions: torch 2.13.0, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0 (CPU)
# Changed:  docs/exporters.md. core/passes/fuse_attention.c refuses where a row might be masked as a whole.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 onnx==1.23.2 onnxruntime==1.32.0 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn


class Attention(nn.Module):
    def forward(self, x, mask):
        return nn.functional.scaled_dot_product_attention(x, x, x, mask)


x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
mask = torch.tensor([[[[False, False], [True, False]]]])
model = torch.onnx.export(Attention(), (x, mask), dynamo=True, verbose=False).model_proto
inputs = {one.name: value.numpy() for one, value in zip(model.graph.input, (x, mask))}
print(*(node.op_type for node in model.graph.node if node.op_type in ("Where", "Softmax", "IsNaN")))
print("torch    ", Attention()(x, mask).tolist())
print("runtime  ", np.round(onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0], 3).tolist())
print("reference", np.round(ReferenceEvaluator(model).run(None, inputs)[0], 3).tolist())
END
expect <<'END'
Where Softmax IsNaN Where
torch     [[[[0.0, 0.0], [1.0, 2.0]]]]
runtime   [[[[2.0, 3.0], [1.0, 2.0]]]]
reference [[[[2.0, 3.0], [1.0, 2.0]]]]
END
