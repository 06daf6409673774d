"""FoldShapes of ONNX models: sizes in a row of one value are one Shape."""

import pytest
from test_onnx_folds import named, whole
from test_onnx_formulas import model
from test_onnx_fusions import fused

IMAGE = named("z", ["b", 3, "h", "w"])
SIZES = "Shape z > s\nGather s two > h\nGather s three > w\nUnsqueeze h 0 > hs\nUnsqueeze w 0 > ws\n"
CONSTANTS = [whole("two", [2], ()), whole("three", [3], ()), whole("zero", [0], ()), whole("two1", [2]), whole("four1", [4])]
MADE = {
    "two-sizes": SIZES + "Concat hs ws > y axis=0",
    "a-slice": "Shape z > s\nSlice s two1 four1 > y",
    "one-size": "Shape z > s\nGather s zero > b\nUnsqueeze b 0 > y",
    "through-arithmetic": "Shape z > s\nGather s two > h\nMul h 3 > t\nDiv t 3 > y",
    "of-a-result": "Relu z > r\nShape r > s\nSlice s two1 four1 > y",
}
LEFT = {
    "an-older-opset": (MADE["a-slice"], 14, ["Shape", "Slice"]),
    "another-order": (SIZES + "Concat ws hs > y axis=0", 18, ["Shape", "Shape", "Concat"]),
    "not-in-a-row": ("Shape z > s\nGather s zero > b\nGather s three > w\nUnsqueeze b 0 > bs\nUnsqueeze w 0 > ws\n"
                     "Concat bs ws > y axis=0", 18, ["Shape", "Shape", "Concat"]),
    "no-size": ("Shape z > s\nGather s two > h\nAdd h 1 > y", 18, ["Shape", "Gather", "Add"]),
}


def sizes(text, opset=18):
    text = f"Neg x > ignored\n{text.replace('> y', '> found')}\nCast found > y to=1"
    return model(text, opset, (1,), inputs=[IMAGE], weights=CONSTANTS, outputs="ignored y")


@pytest.mark.parametrize("name", MADE)
def test_one_shape(shared, name):
    left, _ = fused(shared, sizes(MADE[name]), "FoldShapes EliminateDeadCode")
    assert [one for one in left if one not in ("Neg", "Relu", "Cast")] == ["Shape"]


@pytest.mark.parametrize("name", LEFT)
def test_left(shared, name):
    text, opset, wanted = LEFT[name]
    left, _ = fused(shared, sizes(text, opset), "FoldShapes EliminateDeadCode")
    assert left[1:-1] == wanted
