#!/bin/sh
# onnxscript's optimizer gives an input of the model another name if the model returns it, and an output if it is listed twice.
#
# Guess:    optimizer.optimize keeps names of inputs and outputs, as these are how a model is called.
# Seen:     a model that returns its input x gets the input x_orig: a caller that feeds x fails. A model that lists its output
#           twice gets y_alias_1, and one output that is equal to another keeps its name.
# Versions: onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0
# Changed:  docs/onnx.md, "Beside other tools". Passes of foldback keep names, order and types of inputs and outputs.
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxscript==0.7.2
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import onnx
from onnx import parser
from onnxscript import optimizer

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
for text in (
    "g (float[2] x) => (float[2] x, float[2] y) { y = Sin(x) }",
    "g (float[2] x) => (float[2] y, float[2] y) { y = Sin(x) }",
    "g (float[2] x) => (float[2] y, float[2] z) { y = Sin(x) z = Sin(x) }",
):
    model = parser.parse_model(HEAD + text)
    onnx.checker.check_model(model, full_check=True)
    graph = optimizer.optimize(model).graph
    print(text, "->", *(one.name for one in graph.input), "=>", *(one.name for one in graph.output))
END
expect <<'END'
g (float[2] x) => (float[2] x, float[2] y) { y = Sin(x) } -> x_orig => x y
g (float[2] x) => (float[2] y, float[2] y) { y = Sin(x) } -> x => y y_alias_1
g (float[2] x) => (float[2] y, float[2] z) { y = Sin(x) z = Sin(x) } -> x => y z
END
