#!/bin/sh
# ONNX Runtime writes running means into the initializer: each run of one session gives other numbers for the same input.
#
# Guess:    ONNX's operators are functions. BatchNormalization in training mode gives new running means as a result of its own,
#           and the initializer that it reads stays as the file has it: another node that reads it sees the file's numbers.
# Seen:     the kernel's result is the initializer's own memory. Another node reads the new means, at the latest in the next run,
#           and with every run they move further towards the batch's: the same input gives other outputs each time, until the
#           model is loaded again. Without optimisations, too.
# Versions: onnx 1.23.2, onnxruntime 1.32.0
# Changed:  tests/onnx/hunt.py, batch_norm: a norm in training mode has running means of its own.
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import numpy as np
import onnxruntime
from onnx import numpy_helper, parser

model = parser.parse_model("""<ir_version: 9, opset_import: ["": 17]> g (float[4, 1] x) => (float[1] z) {
    y, means, variances = BatchNormalization <training_mode: int = 1> (x, scale, bias, mean, variance)
    z = Identity (mean)
}""")
for name, number in ("scale", 1), ("bias", 0), ("mean", 0), ("variance", 1):
    model.graph.initializer.append(numpy_helper.from_array(np.array([number], np.float32), name))
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model.SerializeToString(), options)
for run in range(3):
    (mean,) = session.run(["z"], {"x": np.full((4, 1), 10, np.float32)})
    print("run", run, "reads a mean of", round(float(mean[0]), 3))
END
expect <<'END'
run 0 reads a mean of 0.0
run 1 reads a mean of 1.0
run 2 reads a mean of 1.9
END
