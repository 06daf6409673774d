#!/bin/sh
# Range of ONNX Runtime adds the step again and again, so that its thousandth number is another than start + 1000 * step.
#
# Guess:    Range gives start + i * delta, rounded once or twice, as the pseudo code of its specification does.
# Seen:     it adds delta to the number before, in float32: after 10,000 steps of 0.1 it is at 999.80 instead of 999.90, an
#           error of one whole step. onnx.reference and torch.arange are exact to a rounding.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU)
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import numpy as np
import onnxruntime
from onnx import parser
from onnx.reference import ReferenceEvaluator

TEXT = '<ir_version: 8, opset_import: ["": 17]> g (float s, float l, float d) => (float[n] y) { y = Range(s, l, d) }'
model = parser.parse_model(TEXT)
inputs = {name: np.array(value, np.float32) for name, value in {"s": 0, "l": 1000, "d": 0.1}.items()}
session = onnxruntime.InferenceSession(model.SerializeToString())
for name, found in ("runtime", session.run(None, inputs)), ("reference", ReferenceEvaluator(model).run(None, inputs)):
    print(name, len(found[0]), *(f"{number:.2f}" for number in found[0][[10, 1000, 9999]]))
total = np.cumsum(np.full(10000, 0.1, np.float32), dtype=np.float32)
print("the sum of 9999 steps", f"{total[9998]:.2f}")
END
expect <<'END'
runtime 10000 1.00 100.00 999.80
reference 10000 1.00 100.00 999.90
the sum of 9999 steps 999.80
END
