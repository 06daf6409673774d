#!/bin/sh
# ONNX Runtime's basic optimization makes z / x of (1 / x) * z for integers as well, where 1 / x is mostly 0.
#
# Guess:    ORT_ENABLE_BASIC, "semantics-preserving" rewrites that keep the model in ONNX's domain, changes no integer.
# Seen:     the rewrite of a division of 1 does not ask for the dtype: with int64 7 * (1 / 2) = 0 becomes 7 / 2 = 3 from
#           ORT_ENABLE_BASIC on, so also by default.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxsim==0.8.1 onnxslim==0.1.98 onnxoptimizer==0.4.2 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxruntime
from onnx import numpy_helper, parser


def run(model, inputs, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
LEVELS = onnxruntime.GraphOptimizationLevel
for kind in np.int64, np.float32:
    word = {np.int64: "int64", np.float32: "float"}[kind]
    model = parser.parse_model(HEAD + f"g ({word}[3] x, {word}[3] z) => ({word}[3] y) {{ d = Div(one, x) y = Mul(d, z) }}")
    model.graph.initializer.append(numpy_helper.from_array(kind(1), "one"))
    inputs = {"x": np.array([2, 4, 1], kind), "z": np.array([7, 9, 5], kind)}
    for level in "ORT_DISABLE_ALL", "ORT_ENABLE_BASIC":
        print(word, level, *run(model, inputs, getattr(LEVELS, level))[0].tolist())
END
expect <<'END'
int64 ORT_DISABLE_ALL 0 0 5
int64 ORT_ENABLE_BASIC 3 2 5
float ORT_DISABLE_ALL 3.5 2.25 5.0
float ORT_ENABLE_BASIC 3.5 2.25 5.0
END
