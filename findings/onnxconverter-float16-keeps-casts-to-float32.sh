#!/bin/sh
# onnxconverter-common makes half of a model around a Cast to float32, and what it gives does not load.
#
# Guess:    convert_float_to_float16 of a model that casts integers to float32 (positions, masks) makes that a Cast to float16,
#           or puts another Cast behind it.
# Seen:     the Cast still says float32, its result is declared as float16, and an Add reads it beside a float16 weight. ONNX
#           Runtime refuses the model. Nothing is said at the conversion.
# Versions: onnxconverter-common 1.16.0, onnxruntime 1.32.0, onnx 1.23.2
# Changed:  docs/onnx.md, "Beside other tools"; foldback's ConvertPrecision follows the dtype of each value instead.
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 onnxconverter-common==1.16.0
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import onnxruntime
from onnx import checker, parser
from onnxconverter_common import float16

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
TEXT = "g (int64[2] i) => (float[2] y) <float[2] w = {1, 2}> { f = Cast<to = 1>(i) y = Add(f, w) }"
model = parser.parse_model(HEAD + TEXT)
checker.check_model(model, full_check=True)
half = float16.convert_float_to_float16(model)
print("Cast to", half.graph.node[0].attribute[0].i, "declared as", half.graph.value_info[0].type.tensor_type.elem_type, end=" ")
print("weight of", half.graph.initializer[0].data_type)
try:
    onnxruntime.InferenceSession(half.SerializeToString())
except Exception as error:
    print(str(error).partition("Type Error: ")[2])
END
expect <<'END'
Cast to 1 declared as 10 weight of 10
Type (tensor(float16)) of output arg (f) of node () does not match expected type (tensor(float)).
END
