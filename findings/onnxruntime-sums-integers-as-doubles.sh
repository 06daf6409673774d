#!/bin/sh
# ReduceSum, ReduceProd and Pow of ONNX Runtime compute int64 as doubles: a sum of 2**53 and 1 is 2**53.
#
# Guess:    integers are summed as integers, exact below 2**63 and wrapping above, as Add, CumSum and MatMul do beside them.
# Seen:     ReduceSum of int64 rounds to 53 bits, along every axis and at every level of optimization; ReduceProd and Pow do,
#           too. In int32 they stop at the largest number instead of wrapping. CumSum, MatMul and Add are exact, and wrap.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU, x86-64)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import numpy as np
import onnxruntime
from onnx import parser

LEVELS = onnxruntime.GraphOptimizationLevel
BIG = 2**53
LONG, INT = np.array([BIG, 1]), np.array([2**31 - 1, 1], np.int32)


def run(body, level, x):
    kind = x.dtype.name
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({kind}[n] x) => ({kind}[m] y) {{ {body} }}'
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(parser.parse_model(text).SerializeToString(), options)
    return session.run(None, {"x": x})[0].ravel().tolist()


zero, weights = "z = Constant<value = int64 {0}>()", "w = Constant<value = int64[2] {1, 1}>()"
for name, body, x, exact in (
    ("ReduceSum", "y = ReduceSum(x)", LONG, [BIG + 1]),
    ("CumSum", f"{zero} y = CumSum(x, z)", LONG, [BIG, BIG + 1]),
    ("MatMul", f"{weights} y = MatMul(x, w)", LONG, [BIG + 1]),
    ("ReduceProd", "y = ReduceProd(x)", np.full(39, 3), [3**39]),
    ("Pow", "e = Constant<value = int64 {39}>() y = Pow(x, e)", np.array([3]), [3**39]),
):
    found = {level: run(body, level, x) for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL)}
    print(name, *("exact" if value == exact else f"{value[-1] - exact[-1]:+}" for value in found.values()))
print("int32: Add", *run("y = Add(x, x)", LEVELS.ORT_DISABLE_ALL, INT[:1]),
      "ReduceSum", *run("y = ReduceSum(x)", LEVELS.ORT_DISABLE_ALL, INT))
END
expect <<'END'
ReduceSum -1 -1
CumSum exact exact
MatMul exact exact
ReduceProd -11 -11
Pow -11 -11
int32: Add -2 ReduceSum 2147483647
END
