#!/bin/sh
# onnxsim and onnxoptimizer drop an Exp before ArgMax, though numbers that overflow are equal behind it.
#
# Guess:    a monotone function before ArgMax is dropped only if it keeps different numbers different, which Exp in float32 does
#           not above 88.7.
# Seen:     Exp of 1000 and 2000 is infinity, so the first one counts; without the Exp it is the second.
# Versions: onnxsim 0.8.1, onnxoptimizer 0.4.2, onnx 1.23.2, onnxruntime 1.32.0
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxsim==0.8.1 onnxslim==0.1.98 onnxoptimizer==0.4.2 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnx
import onnxoptimizer
import onnxruntime
import onnxsim
from onnx import parser


def run(model, inputs, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
model = parser.parse_model(HEAD + "g (float[3] x) => (int64[1] y) { e = Exp(x) y = ArgMax<axis = 0>(e) }")
TOOLS = {"onnxsim": lambda model: onnxsim.simplify(model)[0], "onnxoptimizer": onnxoptimizer.optimize}
for numbers in (1000, 2000, 1), (1, 2, 0):
    x = {"x": np.array(numbers, np.float32)}
    print(*numbers, "->", *run(model, x)[0].tolist())
    for name, optimize in TOOLS.items():
        result = optimize(onnx.ModelProto.FromString(model.SerializeToString()))
        answer = run(result, x)[0].tolist()
        print("result of", name, *(node.op_type for node in result.graph.node), *answer)
END
expect <<'END'
1000 2000 1 -> 0
result of onnxsim ArgMax 1
result of onnxoptimizer ArgMax 1
1 2 0 -> 1
result of onnxsim ArgMax 1
result of onnxoptimizer ArgMax 1
END
