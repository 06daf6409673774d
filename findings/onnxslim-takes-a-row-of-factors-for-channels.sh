#!/bin/sh
# onnxslim folds a factor for each column into a convolution as if it were one for each channel.
#
# Guess:    a Mul behind a Conv is folded into its weight only if the factor has one number for each output channel; a factor of
#           shape (1, 1, 1, W) has one for each column, which no weight can hold.
# Seen:     with as many columns as channels, onnxslim takes the factor for one of channels, and drops the Mul. The model still
#           passes the checker, and its numbers are others. Of shape (C, 1, 1), and where W is not C, the result is right.
# Versions: onnxslim 0.1.98, onnx 1.23.2, onnxruntime 1.32.0
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxsim==0.8.1 onnxslim==0.1.98 onnxoptimizer==0.4.2 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxruntime
import onnxslim
from onnx import numpy_helper, parser


def run(model, inputs, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
RNG = np.random.default_rng(0)


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


for columns, shape in (2, (2, 1, 1)), (2, (1, 1, 1, 2)), (3, (1, 1, 1, 3)):
    model = parser.parse_model(
        HEAD + f"g (float[1,2,4,{columns + 2}] x) => (float[1,2,2,{columns}] y) {{ c = Conv(x, w, b) y = Mul(c, f) }}")
    for name, array in ("w", numbers(2, 2, 3, 3)), ("b", numbers(2)), ("f", numbers(*shape)):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    x = {"x": numbers(1, 2, 4, columns + 2)}
    wanted, slim = run(model, x), onnxslim.slim(model)
    is_right = np.allclose(wanted[0], run(slim, x)[0], atol=1e-4)
    print(columns, "columns, factors", *shape, "->", *(node.op_type for node in slim.graph.node),
          "right" if is_right else "wrong")
END
expect <<'END'
2 columns, factors 2 1 1 -> Conv right
2 columns, factors 1 1 1 2 -> Conv wrong
3 columns, factors 1 1 1 3 -> Conv Mul right
END
