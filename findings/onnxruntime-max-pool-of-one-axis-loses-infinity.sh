#!/bin/sh
# MaxPool over one axis and GlobalMaxPool of ONNX Runtime give -3.4e38 where all is minus infinity; over two axes it is kept.
#
# Guess:    the largest of numbers that are all minus infinity is minus infinity, over one axis as over two.
# Seen:     MaxPool over one axis and GlobalMaxPool of float32 give the lowest finite number, with padding or without. Over two
#           axes, in float64, and in ReduceMax it is minus infinity. So a row that a mask has emptied becomes finite.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU, x86-64)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import numpy as np
import onnxruntime
from onnx import parser

for name, body, rank, kind in (
    ("one axis", "MaxPool<kernel_shape = [2]>", 1, np.float32),
    ("one axis, padded", "MaxPool<kernel_shape = [2], pads = [1, 1]>", 1, np.float32),
    ("one axis of float64", "MaxPool<kernel_shape = [2]>", 1, np.float64),
    ("two axes", "MaxPool<kernel_shape = [2, 2]>", 2, np.float32),
    ("GlobalMaxPool", "GlobalMaxPool", 2, np.float32),
    ("ReduceMax", "ReduceMax<keepdims = 0>", 1, np.float32),
):
    word = {np.float32: "float", np.float64: "double"}[kind]
    sizes = ", ".join("11" + "4" * rank)
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({word}[{sizes}] x) => ({word} y) {{ y = {body}(x) }}'
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found = session.run(None, {"x": np.full((1, 1) + (4,) * rank, -np.inf, kind)})[0]
    print(name, *(f"{number:.3g}" for number in np.unique(found)))
END
expect <<'END'
one axis -3.4e+38
one axis, padded -3.4e+38
one axis of float64 -inf
two axes -inf
GlobalMaxPool -3.4e+38
ReduceMax -inf
END
