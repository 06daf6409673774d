#!/bin/sh
# torch.onnx exports log1p, expm1, erfc, logsigmoid and logaddexp as the formulas that they exist to avoid.
#
# Guess:    ONNX has none of these five, so the exporter spells them out in a stable way (Log1p by a division, LogSigmoid by
#           Softplus), as PyTorch's kernels do. Results agree to a few roundings.
# Seen:     Log(x + 1), Exp(x) - 1, 1 - Erf(x), Log(Sigmoid(x)), Log(Exp(x) + Exp(y)). So log1p of 1e-10 is 0, logsigmoid of
#           -200 is -inf, logaddexp of 90 and 90 is inf. softplus and logsumexp are right, as ONNX has them.
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


functions = {
    torch.log1p: 1e-10,
    torch.expm1: 1e-10,
    torch.erfc: 5.0,
    nn.functional.logsigmoid: -200.0,
    (lambda x: torch.logaddexp(x, x)): 90.0,
    nn.functional.softplus: 200.0,
    (lambda x: torch.logsumexp(x, 0)): 200.0,
}
for function, value in functions.items():
    x = torch.tensor([value])
    model = torch.onnx.export(Call(function), (x,), dynamo=True, verbose=False).model_proto
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    nodes = [node.op_type for node in model.graph.node]
    print(*nodes, f"at {value}: PyTorch {function(x).item():.6g}, exported {found.item():.6g}")
END
expect <<'END'
Add Log at 1e-10: PyTorch 1e-10, exported 0
Exp Sub at 1e-10: PyTorch 1e-10, exported 0
Erf Sub at 5.0: PyTorch 1.53746e-12, exported 0
Sigmoid Log at -200.0: PyTorch -200, exported -inf
Exp Add Log at 90.0: PyTorch 90.6931, exported inf
Softplus Greater Where at 200.0: PyTorch 200, exported 200
ReduceLogSumExp at 200.0: PyTorch 200, exported 200
END
