#!/bin/sh
# InferenceSession.run(["a"]) computes all outputs of the model, also the one that fails.
#
# Guess:    run with a list of output names computes what those need, and nothing else: that is what the list is for, and what
#           onnx.extract_model and TensorFlow's session do.
# Seen:     the nodes behind the other outputs run as well, and if one of them fails (a Reshape that does not fit this input),
#           the call raises, at all levels of optimization, although the output asked for needs none of it.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import numpy as np
import onnxruntime
from onnx import parser

model = parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] a, float[k] b)'
    " <int64[1] seven = {7}> { a = Neg(x) b = Reshape(x, seven) }"
)
levels = onnxruntime.GraphOptimizationLevel
for level in levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for size in 7, 3:
        try:
            print(level.name, session.run(["a"], {"x": np.ones(size, np.float32)})[0].shape)
        except Exception as error:
            print(level.name, "raises about", str(error).partition("running ")[2].partition(" node")[0])
END
expect <<'END'
ORT_DISABLE_ALL (7,)
ORT_DISABLE_ALL raises about Reshape
ORT_ENABLE_ALL (7,)
ORT_ENABLE_ALL raises about Reshape
END
