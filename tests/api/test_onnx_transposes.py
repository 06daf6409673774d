"""MoveTransposes: what goes, what stays as it is, and that all of it computes the same and is undone."""

import pytest
from test_onnx_changed import field, part, value
from test_onnx_folds import whole
from test_onnx_formulas import model, numbers
from test_onnx_fusions import fused, weight

LAST, FIRST = "perm=[0,2,3,1]", "perm=[0,3,1,2]"
KERNEL, VECTOR = weight("k", 3, 3, 1, 1), weight("v", 3)
MOVED = {
    "activation": (f"Transpose x > t {LAST}\nRelu t > r\nTranspose r > y {FIRST}", ["Relu"]),
    "vector": (f"Transpose x > t {LAST}\nAdd t v > r\nTranspose r > y {FIRST}", ["Add"]),
    "vector-first": (f"Transpose x > t {LAST}\nSub v t > r\nTranspose r > y {FIRST}", ["Sub"]),
    "matrix": (f"Transpose x > t {LAST}\nMul t m > r\nTranspose r > y {FIRST}", ["Mul"]),
    "two-values": (f"Transpose x > t {LAST}\nRelu x > q\nTranspose q > u {LAST}\nAdd t u > s\nTranspose s > y {FIRST}",
                   ["Relu", "Add"]),
    "concat": (f"Transpose x > t {LAST}\nNeg x > q\nTranspose q > u {LAST}\nConcat t u > s axis=3\nTranspose s > y {FIRST}",
               ["Neg", "Concat"]),
    "concat-from-the-last": (f"Transpose x > t {LAST}\nConcat t t > s axis=-2\nTranspose s > y {FIRST}", ["Concat"]),
    "softmax-in-the-middle": (f"Transpose x > t {LAST}\nSoftmax t > s axis=1\nTranspose s > y {FIRST}", ["Softmax"]),
    "mean": (f"Transpose x > t {LAST}\nReduceMean t a > y keepdims=0", ["ReduceMean"]),
    "mean-that-keeps-axes": (f"Transpose x > t {LAST}\nReduceMean t b > s\nTranspose s > y {FIRST}", ["ReduceMean"]),
    "pad": (f"Transpose x > t {LAST}\nPad t p > s\nTranspose s > y {FIRST}", ["Pad"]),
    "one-row": ("Transpose x > t perm=[2,0,1,3]\nGather t i > y", ["Gather"]),
    "choice": (f"Transpose x > t {LAST}\nGreater t 0.0 > g\nWhere g t v > s\nTranspose s > y {FIRST}", ["Greater", "Where"]),
    "bounds": (f"Transpose x > t {LAST}\nClip t 0.0 0.5 > s\nTranspose s > y {FIRST}", ["Clip"]),
    "two-orders": (f"Transpose x > t {LAST}\nRelu t > r\nTranspose r > u {FIRST}\nNeg u > n\nTranspose n > w {LAST}\n"
                   f"Exp w > e\nTranspose e > y {FIRST}", ["Relu", "Neg", "Exp"]),
    "an-output-besides": (f"Transpose x > t {LAST}\nNeg x > q\nTranspose q > u {LAST}\nAdd t u > z\nTranspose z > y {FIRST}",
                          ["Neg", "Add", "Transpose"]),
    "another-reader": (f"Transpose x > t {LAST}\nRelu t > r\nTranspose r > y {FIRST}\nNeg t > z", ["Relu", "Neg", "Transpose"]),
    "towards-a-convolution": (f"Conv x k > c\nTranspose c > t {LAST}\nAdd t v > y", ["Conv", "Transpose"]),
}
WEIGHTS = [VECTOR, weight("m", 5, 3), KERNEL, whole("a", [1, -2]), whole("b", [-2]), whole("i", [1], ()),
           whole("p", [0, 1, 0, 0, 0, 0, 2, 0])]
PASSES = "MoveTransposes FoldConstants MergeViews MoveTransposes MergeViews FoldScaleIntoLinear EliminateDeadCode"


@pytest.mark.parametrize("name", MOVED)
def test_moved(shared, name):
    text, wanted = MOVED[name]
    data = model(text, 18, (2, 3, 4, 5), weights=WEIGHTS, outputs="y z" if "> z" in text else "y")
    assert fused(shared, data, PASSES)[0] == wanted


LEFT = {
    "a-softmax-along-the-last-axis": f"Transpose x > t {LAST}\nSoftmax t > s\nTranspose s > y {FIRST}",
    "a-mean-along-the-last-axis": f"Transpose x > t {LAST}\nReduceMean t l > s\nTranspose s > y {FIRST}",
    "another-order": f"Transpose x > t {LAST}\nRelu t > r\nTranspose r > y {LAST}",
    "an-output": f"Transpose x > t {LAST}\nRelu t > y",
    "axes-in-another-order": "Transpose x > t perm=[0,1,3,2]\nReduceMean t b > y keepdims=0",
    "a-vector-of-the-caller": f"Transpose x > t {LAST}\nAdd t d > r\nTranspose r > y {FIRST}",
    "several-results": f"Transpose x > t {LAST}\nSplit t > r,s axis=3 num_outputs=2\nTranspose r > y {FIRST}\nNeg s > z",
}


@pytest.mark.parametrize("name", LEFT)
def test_left(shared, name):
    text = LEFT[name]
    given = {"weights": [numbers("d", [1.0, 2.0, 3.0], (3,))], "inputs": [value("d", shape=(3,))]} if " d " in text else {}
    given.setdefault("weights", []).extend([whole("b", [1]), whole("l", [-1])])
    data = model(text, 18, (2, 3, 4, 5), outputs="y z" if "> z" in text else "y", **given)
    assert fused(shared, data, "MoveTransposes")[0] == [part(one, 4)[0].decode() for one in part(data, 7, 1)]


def test_a_softmax_of_all_axes_from_one_on(shared):
    """Before opset 13."""
    data = model(f"Transpose x > t {LAST}\nSoftmax t > s axis=3\nTranspose s > y {FIRST}", 12, (2, 3, 4, 5))
    assert fused(shared, data, "MoveTransposes")[0] == ["Transpose", "Softmax", "Transpose"]


def test_a_value_that_is_named_elsewhere_stays(shared):
    noted = field(1, "r") + field(2, field(1, "SCALE_TENSOR") + field(2, "v"))
    text = f"Transpose x > t {LAST}\nRelu t > r\nTranspose r > y {FIRST}"
    data = model(text, 18, (2, 3, 4, 5), weights=[VECTOR], annotations=[noted])
    assert fused(shared, data, "MoveTransposes")[0] == ["Transpose", "Relu", "Transpose"]


def test_many_regions(shared):
    """As Keras writes a deep network: each convolution between two transpositions."""
    lines = [f"Transpose {f'r{i - 1}' if i else 'x'} > t{i} {FIRST}\nConv t{i} k > c{i}\nTranspose c{i} > u{i} {LAST}\n"
             f"Relu u{i} > r{i}" for i in range(300)]
    data = model("\n".join(lines), 18, (2, 4, 5, 3), weights=[KERNEL], outputs="r299")
    assert fused(shared, data, "MoveTransposes MergeViews")[0].count("Transpose") == 2
