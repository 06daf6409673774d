#!/bin/sh
# onnxscript's optimizer joins two Clips, or a Clip and a Relu, whose bounds do not meet, and computes another bound.
#
# Guess:    two Clips become one from the larger lower bound to the smaller upper bound, unless these cross: then the second one
#           decides.
# Seen:     bounds that cross are joined as well. Clip to (-2, -1) and Relu give 0 for all numbers, and become a Clip from 0 to
#           -1, which gives -1; so do two Clips to (0, 1) and (2, 3), which give 2, and then 1.
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
X = {"x": np.array([-5, 0.5, 9], np.float32)}
BOUNDS = {"m2": -2, "m1": -1, "z": 0, "o": 1, "t": 2, "h": 3}
for body in "a = Clip(x, m2, m1) y = Relu(a)", "a = Clip(x, z, o) y = Clip(a, t, h)", "a = Clip(x, z, t) y = Clip(a, o, h)":
    model = parser.parse_model(HEAD + f"g (float[3] x) => (float[3] y) {{ {body} }}")
    for name in BOUNDS:
        if f" {name}" in body:
            model.graph.initializer.append(numpy_helper.from_array(np.float32(BOUNDS[name]), name))
    wanted, result = run(model, X)[0], optimizer.optimize(model)
    print(body, *wanted.tolist(), "->", *(node.op_type for node in result.graph.node), *run(result, X)[0].tolist())
END
expect <<'END'
a = Clip(x, m2, m1) y = Relu(a) 0.0 0.0 0.0 -> Clip -1.0 -1.0 -1.0
a = Clip(x, z, o) y = Clip(a, t, h) 2.0 2.0 2.0 -> Clip 1.0 1.0 1.0
a = Clip(x, z, t) y = Clip(a, o, h) 1.0 1.0 2.0 -> Clip 1.0 1.0 2.0
END
