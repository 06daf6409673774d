#!/bin/sh
# onnxscript's optimizer drops the addition of a number that is near 0, such as the epsilon of a norm.
#
# Guess:    x + c goes where c is 0; where c is 1e-12, as the epsilon of BERT's LayerNorm is, it stays: it keeps the quotient from
#           0 / 0 where all numbers of a row are equal.
# Seen:     the Add goes for 1e-8 and below, and stays for 1e-5. A row of equal numbers gives NaN then.
# Versions: onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0 (CPU)
# Changed:  docs/onnx.md, "Beside other tools", and the table of nodes there: models that spell out such a norm have one node more
#           of foldback for each.
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 onnxscript==0.7.2 numpy==2.4.6
"$python" -W ignore >"$work/seen" 2>"$work/warnings" <<'END'
import numpy as np
import onnxruntime
import onnxscript.optimizer
from onnx import parser

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x) => (float[2, 4] y) <float two = {2.0}, float eps = {%s}> {
  m = ReduceMean <axes = [-1]> (x)
  d = Sub(x, m)
  q = Pow(d, two)
  v = ReduceMean <axes = [-1]> (q)
  e = Add(v, eps)
  r = Sqrt(e)
  y = Div(d, r)
}"""
x = np.array([[1, 2, 3, 4], [5, 5, 5, 5]], np.float32)
for eps in ("1e-5", "1e-8", "1e-12"):
    model = parser.parse_model(TEXT % eps)
    for made in (model, onnxscript.optimizer.optimize(model)):
        y = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        print(eps, len(made.graph.node), "nodes, a row of equal numbers:", y[1])
END
expect <<'END'
1e-5 7 nodes, a row of equal numbers: [0. 0. 0. 0.]
1e-5 7 nodes, a row of equal numbers: [0. 0. 0. 0.]
1e-8 7 nodes, a row of equal numbers: [0. 0. 0. 0.]
1e-8 6 nodes, a row of equal numbers: [nan nan nan nan]
1e-12 7 nodes, a row of equal numbers: [0. 0. 0. 0.]
1e-12 6 nodes, a row of equal numbers: [nan nan nan nan]
END
