#!/bin/sh
# torch.onnx exports torch.arange(0, 0.3, 0.1) with four numbers, where PyTorch has three.
#
# Guess:    the exported model has as many numbers as torch.arange gave and as torch.export recorded.
# Seen:     PyTorch counts in double: 0.3 / 0.1 is just under 3. The exporter makes a Range of float32, whose 0.3 / 0.1 is just
#           over 3, and folds it: the file holds four numbers, and the result has another shape than torch.export recorded, and
#           than the model declares.
# Versions: torch 2.13.0, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0 (CPU)
# Changed:  docs/exporters.md; core/evaluator/kernels_create.c, kernel_arange, counts in double.
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


x = torch.zeros(1)
for end, step in (0.3, 0.1), (0.4, 0.1), (0.6, 0.2), (0.7, 0.1):
    model = Call(lambda x: torch.arange(0, end, step) + x)
    exported = torch.onnx.export(model, (x,), dynamo=True, verbose=False).model_proto
    declared = [size.dim_value for size in exported.graph.output[0].type.tensor_type.shape.dim]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(exported.SerializeToString(), options)
    (found,) = session.run(None, {exported.graph.input[0].name: x.numpy()})
    print(f"arange(0, {end}, {step}): torch {list(model(x).shape)}, declared {declared}, exported {list(found.shape)}")
END
expect <<'END'
arange(0, 0.3, 0.1): torch [3], declared [3], exported [4]
arange(0, 0.4, 0.1): torch [4], declared [4], exported [4]
arange(0, 0.6, 0.2): torch [3], declared [3], exported [4]
arange(0, 0.7, 0.1): torch [7], declared [7], exported [7]
END
