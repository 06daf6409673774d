#!/bin/sh
# Unique of ONNX Runtime takes NaN for equal to every number: Unique of NaN, 1 and 2 is NaN alone, counted three times.
#
# Guess:    NaN differs from all numbers: the result has it once, as numpy.unique does, or once for each, as torch.unique does.
# Seen:     a NaN that comes first swallows all numbers behind it, and one behind a number is counted as one of the numbers. The
#           result depends on the order, and inverse indices name another number. onnx.reference keeps NaN.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU)
# Changed:  core/evaluator/onnx_sample.c, has_nan: foldback refuses; docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import numpy as np
import onnxruntime
from onnx import parser
from onnx.reference import ReferenceEvaluator

TEXT = ('<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[m] y, int64[n] inverse, int64[m] counts)'
        " { y, first, inverse, counts = Unique(x) }")
model = parser.parse_model(TEXT)
session = onnxruntime.InferenceSession(model.SerializeToString())
for numbers in (["nan", 1, 2], [1, 2, "nan"], [3, "nan", 1, 2]):
    x = {"x": np.array(numbers, np.float32)}
    print(*numbers, "gives", *(part.tolist() for part in session.run(None, x)))
    print("reference", *(part.tolist() for part in ReferenceEvaluator(model).run(None, x)[:1]))
END
expect <<'END'
nan 1 2 gives [nan] [0, 0, 0] [3]
reference [1.0, 2.0, nan]
1 2 nan gives [1.0, 2.0] [0, 1, 0] [2, 1]
reference [1.0, 2.0, nan]
3 nan 1 2 gives [1.0, 2.0, 3.0] [2, 2, 0, 1] [1, 1, 2]
reference [1.0, 2.0, 3.0, nan]
END
