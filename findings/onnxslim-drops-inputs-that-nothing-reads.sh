#!/bin/sh
# onnxslim removes an input that no node reads, and a default that a caller may override becomes a constant.
#
# Guess:    inputs are how a model is called: optimisers keep them, and an initializer that is an input as well (from IR 4 on a
#           default that a caller may override) stays one.
# Seen:     onnxslim drops an input that nothing reads, so that a call with it is refused. onnxslim and onnxsim make the default
#           a constant and drop the input; onnxoptimizer and onnxscript keep both.
# Versions: onnxslim 0.1.98, onnxsim 0.8.1, onnxoptimizer 0.4.2, onnxscript 0.7.2, onnx 1.23.2
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxsim==0.8.1 onnxslim==0.1.98 onnxoptimizer==0.4.2 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnx
import onnxoptimizer
import onnxsim
import onnxslim
from onnx import numpy_helper, parser
from onnxscript import optimizer


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
TOOLS = {"onnxslim": onnxslim.slim, "onnxsim": lambda model: onnxsim.simplify(model)[0],
         "onnxoptimizer": onnxoptimizer.optimize, "onnxscript": optimizer.optimize}
unread = parser.parse_model(HEAD + "g (float[2] x, float[3] u) => (float[2] y) { y = Sin(x) }")
default = parser.parse_model(HEAD + "g (float[2] x, float[2] w) => (float[2] y) { q = Mul(w, w) y = Add(x, q) }")
default.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
for name, optimize in TOOLS.items():
    results = [optimize(onnx.ModelProto.FromString(model.SerializeToString())) for model in (unread, default)]
    print(name, *(" ".join(one.name for one in result.graph.input) for result in results), sep=" | ")
END
expect <<'END'
onnxslim | x | x
onnxsim | x u | x
onnxoptimizer | x u | x w
onnxscript | x u | x w
END
