#!/bin/sh
# ONNX Runtime takes models of opset 22 and later, but has no kernel for nine operators in the version that opset 22 gave them.
#
# Guess:    opset 22 only added bfloat16 to some fifty operators. A runtime that says it reads opset 26 runs each operator that it
#           ran at opset 21, for its kernels are registered for all versions from the last real change on.
# Seen:     a kernel is registered for the versions of a closed range. All operators that draw random numbers, GlobalLpPool,
#           MaxRoiPool and RoiAlign run at opset 21, and at opset 22 the session cannot be made: NOT_IMPLEMENTED. Det, which opset
#           22 changed in the same way, does run. So raising the opset of a model with onnx.version_converter, or exporting it
#           anew, takes away its runtime.
# Versions: onnxruntime 1.32.0, onnx 1.23.2 (CPU)
# Changed:  docs/onnx.md, "A later opset"; tests/onnx/hunt.py leaves these operators out where it raises a model.
. "$(dirname "$0")/setup"
python_with onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
"$python" >"$work/seen" <<'END'
import onnxruntime
from onnx import TensorProto as T
from onnx import helper

onnxruntime.set_default_logger_severity(4)
F = T.FLOAT
CALLS = {
    "Bernoulli": ([("x", F, [2, 3])], {}),
    "Det": ([("x", F, [2, 3, 3])], {}),
    "GlobalLpPool": ([("x", F, [1, 2, 4, 4])], {}),
    "MaxRoiPool": ([("x", F, [1, 2, 4, 4]), ("r", F, [1, 5])], {"pooled_shape": [2, 2]}),
    "Multinomial": ([("x", F, [2, 3])], {}),
    "RandomNormal": ([], {"shape": [2]}),
    "RandomNormalLike": ([("x", F, [2, 3])], {}),
    "RandomUniform": ([], {"shape": [2]}),
    "RandomUniformLike": ([("x", F, [2, 3])], {}),
    "RoiAlign": ([("x", F, [1, 2, 4, 4]), ("r", F, [1, 4]), ("i", T.INT64, [1])], {}),
}


def outcome(operator, opset):
    inputs, attributes = CALLS[operator]
    values = [helper.make_tensor_value_info(*one) for one in inputs]
    node = helper.make_node(operator, [one[0] for one in inputs], ["y"], **attributes)
    graph = helper.make_graph([node], "g", values, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:
        return "no kernel" if "NOT_IMPLEMENTED" in str(error) else str(error)
    return "runs"


for operator in CALLS:
    print(operator, *(outcome(operator, opset) for opset in (21, 22)), sep=": ")
END
expect <<'END'
Bernoulli: runs: no kernel
Det: runs: runs
GlobalLpPool: runs: no kernel
MaxRoiPool: runs: no kernel
Multinomial: runs: no kernel
RandomNormal: runs: no kernel
RandomNormalLike: runs: no kernel
RandomUniform: runs: no kernel
RandomUniformLike: runs: no kernel
RoiAlign: runs: no kernel
END
