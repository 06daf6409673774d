#!/bin/sh
# onnx.save_model with external data takes the weights out of the model in memory, and the next save writes none.
#
# Guess:    onnx.save_model leaves the model that it is given as it was; save_as_external_data says how the files look.
# Seen:     the tensors of the model in memory have no bytes afterwards, only the name of the file. Saved again into another
#           folder, without external data, it becomes a file of 1 KB without weights, which refers to one that is not there:
#           neither onnx nor ONNX Runtime loads it.
# Versions: onnx 1.23.2, onnxruntime 1.32.0
# Changed:  docs/onnx.md, "Beside other tools".
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
export work
"$python" >"$work/seen" <<'END'
import os

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[4000] x) => (float[4000] y) { y = Add(x, w) }')
model.graph.initializer.append(numpy_helper.from_array(np.ones(4000, np.float32), "w"))
first, second = (os.path.join(os.environ["work"], name) for name in ("first", "second"))
for folder in first, second:
    os.mkdir(folder)
print("bytes of the weight:", len(model.graph.initializer[0].raw_data))
onnx.save_model(model, first + "/m.onnx", save_as_external_data=True, location="m.onnx.data")
print("after the save:", len(model.graph.initializer[0].raw_data))
onnx.save_model(model, second + "/m.onnx")
print("saved again:", *os.listdir(second), os.path.getsize(second + "/m.onnx") < 1000)
for what, read in ("onnx.load", onnx.load), ("ONNX Runtime", onnxruntime.InferenceSession):
    try:
        read(second + "/m.onnx")
    except Exception as error:
        print(what, "refuses it:", type(error).__name__)
END
expect <<'END'
bytes of the weight: 16000
after the save: 0
saved again: m.onnx True
onnx.load refuses it: ValidationError
ONNX Runtime refuses it: Fail
END
