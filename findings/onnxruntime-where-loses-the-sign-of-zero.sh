#!/bin/sh
# ONNX Runtime's Where makes 0.0 of a -0.0 that it chooses where the condition is true.
#
# Guess:    Where moves elements, and computes none: the bits of what it chooses stay, as with Identity, Concat or Gather.
# Seen:     in float16, float32 and float64, with and without optimisation, a -0.0 of the second input comes out as 0.0, so 1 / y
#           is inf where it is -inf. One of the third input stays. The reference implementation of ONNX keeps both.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU)
# Changed:  docs/onnx.md, "Beside other tools"; RemoveNoOps takes a Where by a constant condition away, so -0.0 stays; programs of
#           tests/onnx/hunt.py, whose bits are compared, choose among numbers without a sign.
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import numpy as np
import onnxruntime
from onnx import parser
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (bool[2] c, {0}[2] x, {0}[2] z) => ({0}[2] y) {{ y = Where(c, x, z) }}"""
for name, dtype in (("float16", np.float16), ("float", np.float32), ("double", np.float64)):
    model = parser.parse_model(MODEL.format(name))
    given = {"c": np.array([True, False]), "x": np.full(2, -0.0, dtype), "z": np.full(2, -0.0, dtype)}
    signs = [np.signbit(ReferenceEvaluator(model).run(None, given)[0]).tolist()]
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        signs.append(np.signbit(session.run(None, given)[0]).tolist())
    print(name, "signs: ONNX", signs[0], "ONNX Runtime", *signs[1:])
END
expect <<'END'
float16 signs: ONNX [True, True] ONNX Runtime [False, True] [False, True]
float signs: ONNX [True, True] ONNX Runtime [False, True] [False, True]
double signs: ONNX [True, True] ONNX Runtime [False, True] [False, True]
END
