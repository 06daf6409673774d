#!/bin/sh
# ReduceMax and ArgMax of ONNX Runtime see NaN only where it is first, MaxPool only where it is last, TopK and Max everywhere.
#
# Guess:    operators that take a maximum treat NaN alike, and propagate it, as NumPy, PyTorch and onnx.reference do.
# Seen:     of four numbers ReduceMax and ReduceMin give NaN only where it is the first, MaxPool only where it is the last, at
#           all levels of optimization. ArgMax gives the place of NaN only if that is the first. TopK and Max give NaN wherever
#           it is.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU, x86-64)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxruntime
from onnx import parser

BODIES = {
    "ReduceMax": "y = ReduceMax<axes = [1], keepdims = 0>(x)",
    "ReduceMin": "y = ReduceMin<axes = [1], keepdims = 0>(x)",
    "ArgMax": "i = ArgMax<axis = 1>(x) v = GatherElements<axis = 1>(x, i) y = Squeeze(v, one)",
    "MaxPool": "u = Unsqueeze(x, one) p = MaxPool<kernel_shape = [4]>(u) y = Squeeze(p, rest)",
    "TopK": "v, i = TopK<axis = 1>(x, one) y = Squeeze(v, one)",
    "Max": "a, b, c, d = Split<axis = 1>(x) v = Max(a, b, c, d) y = Squeeze(v, one)",
}
x = np.array([[np.nan, 1, 2, 0.5], [1, np.nan, 2, 0.5], [1, 2, np.nan, 0.5], [1, 2, 0.5, np.nan]], np.float32)
print("NumPy:", x.max(axis=1))
levels = onnxruntime.GraphOptimizationLevel
for name, body in BODIES.items():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[r, 4] x) => (float[s] y)'
        f" <int64[1] one = {{1}}, int64[2] rest = {{1, 2}}> {{ {body} }}"
    )
    results = []
    for level in levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        results.append(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})[0])
    print(f"{name}:", results[0], "at all levels" if np.array_equal(*results, equal_nan=True) else results[1])
END
expect <<'END'
NumPy: [nan nan nan nan]
ReduceMax: [nan  2.  2.  2.] at all levels
ReduceMin: [nan 1.  0.5 0.5] at all levels
ArgMax: [nan  2.  2.  2.] at all levels
MaxPool: [ 2.  2.  2. nan] at all levels
TopK: [nan nan nan nan] at all levels
Max: [nan nan nan nan] at all levels
END
