#!/bin/sh
# OpenVINO computes int64 in 32 bits: an input wraps around, and a constant of the same value is clamped.
#
# Guess:    a compiled model with int64 inputs and outputs computes in int64, or refuses; in double, too.
# Seen:     results have dtype int64 and 32 bits of value. An input of 2^40 + 5 is 5, also if the model only returns it; a
#           constant of that value is 2147483647. 1e300 in a double model becomes 3.4e38, not inf. Hashes, ids and times in
#           nanoseconds change without a word.
# Versions: openvino 2026.4.1, onnx 1.23.2 (CPU, x86-64)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 numpy==2.4.6 openvino==2026.4.1
export work
"$python" >"$work/seen" <<'END'
import os

import numpy as np
import onnx
import openvino
from onnx import numpy_helper, parser

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
values = np.array([2**40 + 5, -(2**40) - 5, 7])
for text, x in (
    ("g (int64[3] x) => (int64[3] y) { y = Identity(x) }", values),
    ("g (int64[3] x) => (int64[3] y) <int64[1] one = {1}> { y = Sub(x, one) }", values),
    ("g (int64[3] x) => (int64[3] y) { y = Min(x, c) }", np.full(3, 2**31 - 1)),
    ("g (double[3] x) => (double[3] y) { y = Neg(x) }", np.array([1 / 3, 1e300, 2.0])),
):
    model = parser.parse_model(HEAD + text)
    if "c)" in text:
        model.graph.initializer.append(numpy_helper.from_array(values, "c"))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, os.environ["work"] + "/m.onnx")
    result = openvino.Core().compile_model(os.environ["work"] + "/m.onnx", "CPU")([x])[0]
    print(text, result.dtype, result.tolist())
END
expect <<'END'
g (int64[3] x) => (int64[3] y) { y = Identity(x) } int64 [5, -5, 7]
g (int64[3] x) => (int64[3] y) <int64[1] one = {1}> { y = Sub(x, one) } int64 [4, -6, 6]
g (int64[3] x) => (int64[3] y) { y = Min(x, c) } int64 [2147483647, -2147483648, 7]
g (double[3] x) => (double[3] y) { y = Neg(x) } float64 [-0.3333333432674408, -3.4028234663852886e+38, -2.0]
END
