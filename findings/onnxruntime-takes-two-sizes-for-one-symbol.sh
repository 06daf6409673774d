#!/bin/sh
# ONNX Runtime accepts inputs of two sizes where the model has one symbol for both.
#
# Guess:    the same dim_param in two inputs means one size: run refuses x of 3 beside z of 2 for (float[n] x, float[n] z), as
#           it refuses a wrong number.
# Seen:     it refuses a wrong number, and accepts any sizes for a symbol. With an Add of both, sizes 3 and 1 are broadcast. An
#           output declared as float[n] comes out with the other size. A warning is logged for a wrong number in an output, none
#           for a symbol.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU)
# Changed:  docs/onnx.md, "Beside other tools". A pass of foldback that believes that equal symbols are equal sizes is right for
#           the model, and may be wrong for a call that the runtime accepts.
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import numpy as np
import onnxruntime
from onnx import parser

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
x, z = np.ones(3, np.float32), np.full(1, 5, np.float32)
for text in (
    "g (float[n] x, float[n] z) => (float[n] y) { y = Add(x, z) }",
    "g (float[n] x, float[n] z) => (float[n] y, float[n] v) { y = Neg(x) v = Neg(z) }",
    "g (float[3] x, float[3] z) => (float[3] y) { y = Add(x, z) }",
):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(parser.parse_model(HEAD + text).SerializeToString(), options)
    try:
        print(text, [result.shape for result in session.run(None, {"x": x, "z": z})])
    except Exception as error:
        print(text, "refused:", str(error).partition("ARGUMENT : ")[2][:42])
END
expect <<'END'
g (float[n] x, float[n] z) => (float[n] y) { y = Add(x, z) } [(3,)]
g (float[n] x, float[n] z) => (float[n] y, float[n] v) { y = Neg(x) v = Neg(z) } [(3,), (1,)]
g (float[3] x, float[3] z) => (float[3] y) { y = Add(x, z) } refused: Got invalid dimensions for input: z for th
END
