#!/bin/sh
# ONNX Runtime does not round to half between two operators of a float16 model, also with all optimizations off.
#
# Guess:    a float16 model gives each operator's result in half: Log(Exp(12)) is inf, as Exp(12) is beyond 65504. What could
#           remove that rounding is an optimization, and ORT_DISABLE_ALL switches those off.
# Seen:     12, at every level. The CPU has no kernel in half for these, so a Cast is put before and after each, and pairs of
#           Casts between two operators are removed when the session is made, whatever the level. One more reader of the value
#           in half does not change that. onnx.reference gives inf.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU, x86-64)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxruntime
from onnx import parser
from onnx.reference import ReferenceEvaluator

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float16[n] x) => (float16[n] y) { e = Exp(x) y = Log(e) }'
model = parser.parse_model(TEXT)
x = np.array([2, 12], np.float16)
levels = onnxruntime.GraphOptimizationLevel
for level in levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_BASIC, levels.ORT_ENABLE_ALL:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    print(level.name, *session.run(None, {"x": x}))
print("reference", *ReferenceEvaluator(model).run(None, {"x": x}))
END
expect <<'END'
ORT_DISABLE_ALL [ 2. 12.]
ORT_ENABLE_BASIC [ 2. 12.]
ORT_ENABLE_ALL [ 2. 12.]
reference [ 2. inf]
END
