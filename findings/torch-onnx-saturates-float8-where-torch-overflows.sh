#!/bin/sh
# torch.onnx exports a cast to float8_e5m2 that saturates, where PyTorch's gives infinity.
#
# Guess:    Cast of ONNX has an attribute saturate, which is 1 unless said otherwise; the exporter writes 0 for the kinds that
#           do not saturate in PyTorch.
# Seen:     it never writes it. 61440 and infinity become infinity in PyTorch, and 57344 in the exported model, in ONNX Runtime
#           and onnx.reference alike. For float8_e4m3fn both saturate.
# Versions: torch 2.13.0, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0 (CPU)
# Changed:  docs/exporters.md.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 onnx==1.23.2 onnxruntime==1.32.0 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn


class Narrow(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype).float()


x = torch.tensor([57344.0, 61440.0, float("inf")])
for dtype in torch.float8_e5m2, torch.float8_e4m3fn:
    model = torch.onnx.export(Narrow(dtype), (x,), dynamo=True, verbose=False).model_proto
    cast = model.graph.node[0]
    inputs = {model.graph.input[0].name: x.numpy()}
    print(dtype, cast.op_type, *(attribute.name for attribute in cast.attribute), end=": ")
    print("torch", Narrow(dtype)(x).tolist(), end=" ")
    print("runtime", onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0].tolist(), end=" ")
    print("reference", ReferenceEvaluator(model).run(None, inputs)[0].tolist())
END
expect <<'END'
torch.float8_e5m2 Cast to: torch [57344.0, inf, inf] runtime [57344.0, 57344.0, 57344.0] reference [57344.0, 57344.0, 57344.0]
torch.float8_e4m3fn Cast to: torch [448.0, 448.0, 448.0] runtime [448.0, 448.0, 448.0] reference [448.0, 448.0, 448.0]
END
