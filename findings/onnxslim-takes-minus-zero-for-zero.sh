#!/bin/sh
# onnxslim and onnxoptimizer make one initializer of 0.0 and -0.0, so that 1 / -0.0 becomes infinity.
#
# Guess:    initializers are joined where their bytes are equal, as a name may carry any bytes.
# Seen:     they are compared as numbers: 0.0 equals -0.0. A model that divides by both gives inf - -inf = inf before, and NaN
#           afterwards. onnxsim keeps both.
# Versions: onnxslim 0.1.98, onnxoptimizer 0.4.2, onnxsim 0.8.1, onnx 1.23.2, onnxruntime 1.32.0
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxsim==0.8.1 onnxslim==0.1.98 onnxoptimizer==0.4.2 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnx
import onnxoptimizer
import onnxruntime
import onnxsim
import onnxslim
from onnx import numpy_helper, parser


def run(model, inputs, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
X = {"x": np.ones(2, np.float32)}
TOOLS = {"onnxslim": onnxslim.slim, "onnxoptimizer": onnxoptimizer.optimize,
         "onnxsim": lambda model: onnxsim.simplify(model)[0]}
model = parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { a = Div(x, p) b = Div(x, n) y = Sub(a, b) }")
for name, zero in ("p", 0.0), ("n", -0.0):
    model.graph.initializer.append(numpy_helper.from_array(np.full(2, zero, np.float32), name))
print("the model", *run(model, X)[0].tolist())
for name, optimize in TOOLS.items():
    result = optimize(onnx.ModelProto.FromString(model.SerializeToString()))
    answer = run(result, X)[0].tolist()
    print("result of", name, len(result.graph.initializer), *answer)
END
expect <<'END'
the model inf inf
result of onnxslim 1 nan nan
result of onnxoptimizer 1 nan nan
result of onnxsim 2 inf inf
END
