#!/bin/sh
# torch.onnx exports sum and amax of a half tensor with a result in float32.
#
# Guess:    the exported model has results of the dtypes that PyTorch gave: torch.sum of float16 is float16.
# Seen:     a Cast to float32, then ReduceSum, and no Cast back: the result is float32, and 70000 where PyTorch has inf. So is
#           that of amax. mean keeps half.
# Versions: torch 2.13.0, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0 (CPU)
# Changed:  docs/exporters.md.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 onnx==1.23.2 onnxruntime==1.32.0 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import onnxruntime
import torch
from torch import nn


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


x = torch.full((70000,), 1.0).half()
for name, function in {"sum": torch.sum, "amax(0)": lambda x: x.amax(0), "mean": torch.mean}.items():
    exported = torch.onnx.export(Call(function), (x,), dynamo=True, verbose=False).model_proto
    session = onnxruntime.InferenceSession(exported.SerializeToString())
    (found,) = session.run(None, {exported.graph.input[0].name: x.numpy()})
    nodes = [node.op_type for node in exported.graph.node]
    print(f"{name}: torch {function(x).dtype} {function(x).item()}, exported {found.dtype} {found.item():g}", *nodes)
END
expect <<'END'
sum: torch torch.float16 inf, exported float32 70000 Cast ReduceSum
amax(0): torch torch.float16 1.0, exported float32 1 Cast ReduceMax
mean: torch torch.float16 1.0, exported float16 1 ReduceMean Squeeze
END
