#!/bin/sh
# torch.onnx exports scatter_reduce(reduce='mean') as a plain scatter: the last number wins.
#
# Guess:    ONNX's ScatterElements knows add, mul, min and max and no mean, so the exporter divides a sum by counts, or refuses.
# Seen:     it writes ScatterElements with reduction none, so the last number of each place is left. sum, prod, amin and amax
#           are right. Nothing is said. Means over the neighbours in a graph network are written so.
# Versions: torch 2.13.0, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0 (CPU)
# Changed:  docs/exporters.md.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0 onnx==1.23.2 onnxruntime==1.32.0 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import onnxruntime
import torch
from torch import nn


class Scatter(nn.Module):
    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def forward(self, x, source):
        return x.scatter_reduce(0, torch.tensor([0, 0, 1]), source, self.reduce)


inputs = torch.tensor([1.0, 2.0]), torch.tensor([4.0, 7.0, 5.0])
for reduce in "sum", "amax", "mean":
    model = torch.onnx.export(Scatter(reduce), inputs, dynamo=True, verbose=False).model_proto
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feed = {one.name: value.numpy() for one, value in zip(session.get_inputs(), inputs)}
    (scatter,) = (node for node in model.graph.node if node.op_type == "ScatterElements")
    how = {one.name: one.s.decode() for one in scatter.attribute}.get("reduction", "none")
    print(f"{reduce}: torch {Scatter(reduce)(*inputs).tolist()}, reduction {how!r}: {session.run(None, feed)[0].tolist()}")
END
expect <<'END'
sum: torch [12.0, 7.0], reduction 'add': [12.0, 7.0]
amax: torch [7.0, 5.0], reduction 'max': [7.0, 5.0]
mean: torch [4.0, 3.5], reduction 'none': [7.0, 5.0]
END
