#!/bin/sh
# torch.onnx rounds the numbers in the code of a half model to half, where PyTorch computes with them in float32.
#
# Guess:    x * 1e5 of a half tensor is exported so that it gives what PyTorch gives: 100 for x = 0.001, as the number 1e5 is
#           only rounded with the result.
# Seen:     the number becomes a weight in half, which is infinite for 1e5 and 0 for 1e-8. So 0.001 * 1e5 is inf, 0 * 1e5 is
#           NaN, and a number such as 0.1 is another one.
# Versions: torch 2.13.0, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0 (CPU)
# Changed:  docs/exporters.md. In foldback's documents such a number stays a number.
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


x = torch.tensor([0.0, 0.001, 100.0]).half()
for name, function in {"x * 1e5": lambda x: x * 1e5, "x / 1e-8": lambda x: x / 1e-8, "x * 3e-8": lambda x: x * 3e-8}.items():
    exported = torch.onnx.export(Call(function), (x,), dynamo=True, verbose=False).model_proto
    session = onnxruntime.InferenceSession(exported.SerializeToString())
    (found,) = session.run(None, {exported.graph.input[0].name: x.numpy()})
    print(f"{name}: torch", *(f"{one:.3g}" for one in function(x).tolist()), "exported", *(f"{one:.3g}" for one in found))
END
expect <<'END'
x * 1e5: torch 0 100 inf exported nan inf inf
x / 1e-8: torch 0 inf inf exported nan inf inf
x * 3e-8: torch 0 0 2.98e-06 exported 0 0 5.96e-06
END
