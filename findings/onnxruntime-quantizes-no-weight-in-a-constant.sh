#!/bin/sh
# quantize_dynamic of ONNX Runtime leaves a MatMul in float32 if its weight is a Constant node or behind a Transpose.
#
# Guess:    quantize_dynamic quantizes a MatMul with a constant weight, however the file spells the constant: as an initializer,
#           as a Constant node, behind an Identity or a Transpose.
# Seen:     only an initializer that the MatMul reads itself. The other three stay as they were, without a word: a file that was
#           to be a quarter as large is as large as before. A Gemm with transB is quantized.
# Versions: onnxruntime 1.32.0, onnx 1.23.2
# Changed:  docs/onnx.md, "Beside other tools". foldback takes a Constant and an initializer for the same thing
#           (core/onnx/read.c).
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 sympy==1.14.0
export work
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import os

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32), "w")
matmul = helper.make_node("MatMul", ["x", "v"], ["y"])
ways = {
    "initializer": [helper.make_node("MatMul", ["x", "w"], ["y"])],
    "Gemm": [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
    "Constant": [helper.make_node("Constant", [], ["v"], value=weight), matmul],
    "Identity": [helper.make_node("Identity", ["w"], ["v"]), matmul],
    "Transpose": [helper.make_node("Transpose", ["w"], ["v"]), matmul],
}
source, target = (os.path.join(os.environ["work"], name) for name in ("float.onnx", "int8.onnx"))
for way, nodes in ways.items():
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 8]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight] if way != "Constant" else [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, source)
    quantize_dynamic(source, target)
    print(f"{way}:", *(node.op_type for node in onnx.load(target).graph.node))
END
expect <<'END'
initializer: DynamicQuantizeLinear Mul MatMulInteger Cast Mul
Gemm: DynamicQuantizeLinear Mul MatMulInteger Cast Mul
Constant: Constant MatMul
Identity: Identity MatMul
Transpose: Transpose MatMul
END
