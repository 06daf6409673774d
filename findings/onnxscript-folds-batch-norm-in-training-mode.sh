#!/bin/sh
# onnxscript's optimizer folds a BatchNormalization in training mode into the Conv before it, with the stored statistics.
#
# Guess:    with training_mode = 1 the statistics are those of the batch, so nothing can be folded. onnxsim, onnxslim and
#           onnxoptimizer leave it.
# Seen:     the optimizer takes the stored mean and variance, and drops the node with its outputs of running statistics where
#           nothing reads them.
# Versions: onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxsim==0.8.1 onnxslim==0.1.98 onnxoptimizer==0.4.2 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxruntime
from onnx import numpy_helper, parser
from onnxscript import optimizer


def run(model, inputs, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
BODY = "c = Conv(x, w) y, m1, v1 = BatchNormalization<training_mode = 1>(c, s, h, m, v)"
model = parser.parse_model(HEAD + f"g (float[2,1,3,3] x) => (float[2,1,3,3] y) {{ {BODY} }}")
for name, shape, number in ("w", (1, 1, 1, 1), 1), ("s", 1, 1), ("h", 1, 0), ("m", 1, 0), ("v", 1, 1):
    model.graph.initializer.append(numpy_helper.from_array(np.full(shape, number, np.float32), name))
x = {"x": np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3)}
print(*(node.op_type for node in model.graph.node), f"{run(model, x)[0].std():.3f}")
result = optimizer.optimize(model)
print(*(node.op_type for node in result.graph.node), f"{run(result, x)[0].std():.3f}")
END
expect <<'END'
Conv BatchNormalization 1.000
Conv 5.188
END
