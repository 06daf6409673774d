#!/bin/sh
# onnxsim and onnxoptimizer make one draw of two RandomUniform, and onnxslim makes constants of them.
#
# Guess:    equal nodes are joined, and nodes without inputs computed, if they always give the same values; a RandomUniform
#           without a seed does not.
# Seen:     in the results of onnxsim and onnxoptimizer the difference of two draws is 0 at every call. onnxslim computes both
#           draws once, so that every call gives the same numbers. onnxscript keeps two draws.
# Versions: onnxsim 0.8.1, onnxoptimizer 0.4.2, onnxslim 0.1.98, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxsim==0.8.1 onnxslim==0.1.98 onnxoptimizer==0.4.2 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import onnx
import onnxoptimizer
import onnxruntime
import onnxsim
import onnxslim
from onnx import parser
from onnxscript import optimizer


HEAD = '<ir_version: 8, opset_import: ["": 17]>'
TOOLS = {"the model": lambda model: model, "onnxsim": lambda model: onnxsim.simplify(model)[0],
         "onnxoptimizer": onnxoptimizer.optimize, "onnxslim": onnxslim.slim, "onnxscript": optimizer.optimize}
DRAW = "RandomUniform<shape = [4]>()"
model = parser.parse_model(HEAD + f"g () => (float[4] y, float[4] z) {{ z = {DRAW} b = {DRAW} y = Sub(z, b) }}")
for name, optimize in TOOLS.items():
    result = optimize(onnx.ModelProto.FromString(model.SerializeToString()))
    draws = sum(node.op_type == "RandomUniform" for node in result.graph.node)
    session = onnxruntime.InferenceSession(result.SerializeToString())
    (difference, first), (_, second) = session.run(None, {}), session.run(None, {})
    print(name, draws, "two draws differ" if difference.any() else "two draws are equal",
          "two calls differ" if (first != second).any() else "two calls are equal", sep=", ")
END
expect <<'END'
the model, 2, two draws differ, two calls differ
onnxsim, 1, two draws are equal, two calls differ
onnxoptimizer, 1, two draws are equal, two calls differ
onnxslim, 0, two draws differ, two calls are equal
onnxscript, 2, two draws differ, two calls differ
END
