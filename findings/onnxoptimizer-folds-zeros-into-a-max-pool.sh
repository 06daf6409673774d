#!/bin/sh
# onnxoptimizer folds a Pad of zeros into MaxPool, whose own padding never wins: negative numbers become the maximum.
#
# Guess:    a Pad goes into a pool only if the pool pads with the same value. MaxPool's padding is minus infinity, so zeros
#           never go into it.
# Seen:     the default passes of onnxoptimizer drop the Pad and give MaxPool its pads. Where the window is negative the model
#           gives 0, and the result a negative number.
# Versions: onnxoptimizer 0.4.2, onnx 1.23.2, onnxruntime 1.32.0
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxsim==0.8.1 onnxslim==0.1.98 onnxoptimizer==0.4.2 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxoptimizer
import onnxruntime
from onnx import numpy_helper, parser


def run(model, inputs, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
model = parser.parse_model(
    HEAD + "g (float[1,1,2,2] x) => (float[1,1,2,2] y) { p = Pad(x, s) y = MaxPool<kernel_shape = [3, 3]>(p) }")
model.graph.initializer.append(numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "s"))
x = {"x": np.full((1, 1, 2, 2), -5, np.float32)}
print(*(node.op_type for node in model.graph.node), run(model, x)[0].max())
result = onnxoptimizer.optimize(model)
print(*(node.op_type for node in result.graph.node), run(result, x)[0].max())
END
expect <<'END'
Pad MaxPool 0.0
MaxPool -5.0
END
