#!/bin/sh
# ONNX Runtime takes a big-endian array of NumPy for a little-endian one, and computes with other numbers.
#
# Guess:    InferenceSession.run converts an array of dtype ">f4" (from a FITS or netCDF file, or an old .npy) by value, as
#           every function of NumPy does, or else refuses it.
# Seen:     it takes the bytes as they are: 1.0 arrives as 4.6e-41, without a word. OrtValue.ortvalue_from_numpy does the same.
#           onnx.numpy_helper refuses the dtype.
# Versions: onnxruntime 1.32.0, onnx 1.23.2, numpy 2.4.6 (CPU, little-endian)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import numpy as np
import onnxruntime
from onnx import numpy_helper, parser

model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Neg(x) }')
session = onnxruntime.InferenceSession(model.SerializeToString())
for dtype in "<f4", ">f4":
    x = np.array([1, 2], dtype)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(x)
    print(dtype, "NumPy:", (-x).tolist(), "run:", *session.run(None, {"x": x}), "OrtValue:", value.numpy())
try:
    numpy_helper.from_array(x)
except ValueError as error:
    print(error)
END
expect <<'END'
<f4 NumPy: [-1.0, -2.0] run: [-1. -2.] OrtValue: [1. 2.]
>f4 NumPy: [-1.0, -2.0] run: [-4.6006e-41 -8.9683e-44] OrtValue: [4.6006e-41 8.9683e-44]
Unable to convert type dtype('>f4') into TensorProto element type.
END
