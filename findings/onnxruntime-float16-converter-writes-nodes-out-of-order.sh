#!/bin/sh
# The float16 converter of ONNX Runtime puts the casts of inputs behind the nodes that read them.
#
# Guess:    convert_float_to_float16 with keep_io_types, given a model that onnx.checker takes, gives one that it takes.
# Seen:     the Cast of each input is the last node. onnx.checker refuses that, and so does what follows ONNX; ONNX Runtime runs
#           it, so nobody notices. topological_sort() of its own OnnxModel, which the converter does not call, mends it.
# Versions: onnxruntime 1.32.0, onnx 1.23.2
# Changed:  the message of bad-onnx in core/onnx/check.c, check_node; docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 sympy==1.14.0
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxruntime
from onnx import checker, parser
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { h = Abs(x) y = Sqrt(h) }')
checker.check_model(model)
half = convert_float_to_float16(model, keep_io_types=True)
print(*(node.op_type for node in half.graph.node))
print(onnxruntime.InferenceSession(half.SerializeToString()).run(None, {"x": np.array([-4, 9], np.float32)})[0])
try:
    checker.check_model(half)
except checker.ValidationError as error:
    print(str(error).partition(",")[0])
sorted_one = OnnxModel(half)
sorted_one.topological_sort()
checker.check_model(sorted_one.model)
print(*(node.op_type for node in sorted_one.model.graph.node))
END
expect <<'END'
Abs Sqrt Cast Cast
[2. 3.]
Nodes in a graph must be topologically sorted
Cast Abs Sqrt Cast
END
