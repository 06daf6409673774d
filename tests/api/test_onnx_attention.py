"""FuseAttention of ONNX models: what becomes Attention, and what must stay."""

import pytest
from test_onnx_changed import part, value
from test_onnx_formulas import model, numbers
from test_onnx_fusions import fused

SHAPE = (2, 4, 5, 8)
KEYS, VALUES = value("k", shape=(2, 4, 6, 8)), value("v", shape=(2, 4, 6, 8))
BOOLS = value("m", 9, (2, 1, 5, 6))
TURNED = "Transpose k > t perm=[0,1,3,2]\n"
END = "Softmax d > w axis=-1\nMatMul w v > y"
OPEN = numbers("open", [0.0, -1e30, 0.0, 0.0, -1e30, 0.0] * 5, (5, 6))
FUSED = {
    "plain": (TURNED + "MatMul x t > s\nMul s 0.35 > d\n" + END, ["Attention"]),
    "divided": (TURNED + "MatMul x t > s\nDiv s 2.828 > d\n" + END, ["Attention"]),
    "queries-and-keys-scaled": (TURNED + "Mul x 0.5 > q\nMul t 0.7 > u\nMatMul q u > d\n" + END, ["Attention"]),
    "keys-as-they-are": ("MatMul x r > d\n" + END, ["Transpose", "Attention"]),
    "mask": (TURNED + "MatMul x t > s\nMul s 0.35 > a\nAdd a open > d\n" + END, ["Attention"]),
    "bools": (TURNED + "MatMul x t > a\nWhere m a -3e38 > d\n" + END, ["Where", "Attention"]),
    "bools-that-mask": (TURNED + "MatMul x t > a\nWhere m -3e38 a > d\n" + END, ["Where", "Attention"]),
    "default-axis": (TURNED + "MatMul x t > d\nSoftmax d > w\nMatMul w v > y", ["Attention"]),
}


def given(text, opset=23, shape=SHAPE, **more):
    inputs = [KEYS, VALUES, *([BOOLS] if " m " in text else []), *([value("r", shape=(2, 4, 8, 6))] if " r " in text else [])]
    inputs += more.pop("inputs", [])
    return model(text, opset, shape, inputs=inputs, weights=[OPEN], **more)


@pytest.mark.parametrize("name", FUSED)
def test_fused(shared, name):
    text, wanted = FUSED[name]
    assert fused(shared, given(text), "FuseAttention EliminateDeadCode")[0] == wanted


LEFT = {
    "an-older-opset": (FUSED["plain"][0], {"opset-too-old"}, {"opset": 22}),
    "another-axis": (TURNED + "MatMul x t > d\nSoftmax d > w axis=2\nMatMul w v > y", None, {}),
    "a-negative-scale": (TURNED + "MatMul x t > s\nMul s -0.35 > d\n" + END, {"unsupported-constant"}, {}),
    "weights-that-are-read": (FUSED["plain"][0], {"shared-output"}, {"outputs": "y w"}),
    "scores-that-are-read": (FUSED["plain"][0], {"shared-output"}, {"outputs": "y s"}),
    "one-row-of-a-mask": (TURNED + "MatMul x t > a\nAdd a row > d\n" + END, None,
                          {"inputs": [value("row", shape=(2, 1, 1, 6))]}),
    "a-mask-that-may-mask-all": (TURNED + "MatMul x t > a\nAdd a all > d\n" + END, {"masked-row"},
                                 {"inputs": [value("all", shape=(5, 6))]}),
    "masked-by-a-number-that-is-not-low": (TURNED + "MatMul x t > a\nWhere m a -3.0 > d\n" + END, {"unsupported-constant"}, {}),
    "turned-otherwise": ("Transpose k > t perm=[0,1,3,2]\nMatMul x t > s\nTranspose s > z perm=[0,1,3,2]\n"
                         "Transpose z > d perm=[0,1,3,2]\n" + END, None, {}),
}


@pytest.mark.parametrize("name", LEFT)
def test_left(shared, name):
    text, reasons, more = LEFT[name]
    data = given(text, **more)
    left, found = fused(shared, data, "FuseAttention")
    assert left == [part(one, 4)[0].decode() for one in part(data, 7, 1)]
    assert reasons is None or found == reasons, found
