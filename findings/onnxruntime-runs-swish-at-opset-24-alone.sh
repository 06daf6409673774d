#!/bin/sh
# ONNX Runtime runs Swish in a model of opset 24, and says that it is not implemented in one of opset 25 or later; so also SwiGLU,
# of opset 28, which it takes apart into Swish.
#
# Guess:    an operator that has not changed since opset 24 runs in models of later opsets as well, as Gelu and Mish do.
# Seen:     "Could not find an implementation for Swish(24)" from opset 25 on; x * sigmoid(x) runs in all of them. So a rewrite of
#           the formula into the operator makes a model that does not load.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU)
# Changed:  core/pass/build.c: FuseActivation refuses Swish beyond opset 24; docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import onnxruntime
from onnx import parser

onnxruntime.set_default_logger_severity(4)
CALLS = {"Gelu": "y = Gelu(x)", "Mish": "y = Mish(x)", "formula": "s = Sigmoid(x) y = Mul(x, s)", "Swish": "y = Swish(x)",
         "SwiGLU": "y = SwiGLU(x, x)"}


def is_run(call, opset):
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g (float[2] x) => (float[2] y) {{ {call} }}'
    try:
        onnxruntime.InferenceSession(parser.parse_model(text).SerializeToString())
    except Exception as error:
        return "no: " + str(error).partition("Could not find an implementation for ")[2].partition(" ")[0]
    return "yes"


for name, call in CALLS.items():
    opsets = [28] if name == "SwiGLU" else range(24, 29)
    print(name, *(f"{opset} {is_run(call, opset)}" for opset in opsets))
END
expect <<'END'
Gelu 24 yes 25 yes 26 yes 27 yes 28 yes
Mish 24 yes 25 yes 26 yes 27 yes 28 yes
formula 24 yes 25 yes 26 yes 27 yes 28 yes
Swish 24 yes 25 no: Swish(24) 26 no: Swish(24) 27 no: Swish(24) 28 no: Swish(24)
SwiGLU 28 no: Swish(24)
END
