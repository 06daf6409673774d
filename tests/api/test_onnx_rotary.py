"""FuseRotation of ONNX models: what becomes RotaryEmbedding, and what must stay."""

import math

import pytest
from test_onnx_changed import part, value
from test_onnx_folds import whole
from test_onnx_formulas import model, numbers
from test_onnx_fusions import fused

B, H, S, D = 2, 3, 4, 6
SHAPE = (B, H, S, D)
PASSES = "FuseRotation EliminateDeadCode"
ANGLES = [[row * 0.7 ** column for column in range(D // 2)] for _ in range(B) for row in range(S)]


def table(name, of, doubled, shape):
    rows = [[of(one) for one in row] * (2 if doubled else 1) for row in ANGLES]
    return numbers(name, [one for row in rows for one in row], shape)


def tables(doubled):
    size = D if doubled else D // 2
    return [table("cos", math.cos, doubled, (B, 1, S, size)), table("sin", math.sin, doubled, (B, 1, S, size))]


BOUNDS = [whole("zero", [0]), whole("half", [D // 2]), whole("far", [2**62]), whole("last", [3]), whole("one", [1]),
          whole("two", [2]), whole("sizes", [D // 2, D // 2]), whole("from", [-D // 2]), whole("minus", [-1]),
          whole("shape", [0, 0, 0, D]), whole("four", [4])]
HALVES = "Slice x zero half last > a\nSlice x half far last one > b\n"
ROTATED = HALVES + "Neg b > n\nConcat n a > r axis=-1\nMul x cos > p\nMul r sin > q\nAdd p q > y"
PARTS = "Mul a cos > ac\nMul b sin > bs\nMul b cos > bc\nMul a sin > as\nSub ac bs > f\nAdd bc as > s\n"
NEIGHBOURS = "Slice x zero far last two > a\nSlice x one far last two > b\n"
STACKED = PARTS + "Unsqueeze f four > u\nUnsqueeze s minus > v\nConcat u v > w axis=-1\nReshape w shape > y"
CACHES = ["Squeeze", "Slice", "Squeeze", "Slice", "RotaryEmbedding"]
FUSED = {  # text, what is left, whether the tables have each number twice
    "rotated": (ROTATED, CACHES, True),
    "rotated-in-another-order": (HALVES + "Neg b > n\nConcat n a > r axis=3\nMul cos x > p\nMul sin r > q\nAdd q p > y",
                                 CACHES, True),
    "split": ("Split x sizes > a,b axis=-1\nNeg b > n\nConcat n a > r axis=-1\nMul x cos > p\nMul r sin > q\nAdd p q > y",
              CACHES, True),
    "from-the-end": (ROTATED.replace("Slice x half far", "Slice x from far"), CACHES, True),
    "halves": (HALVES + PARTS + "Concat f s > y axis=-1", ["Squeeze", "Squeeze", "RotaryEmbedding"], False),
    "neighbours": (NEIGHBOURS + STACKED, ["Squeeze", "Squeeze", "RotaryEmbedding"], False),
}


def given(text, doubled, opset=23, shape=SHAPE, **more):
    return model(text, opset, shape, weights=[*BOUNDS, *(more.pop("stored", None) or tables(doubled))], **more)


@pytest.mark.parametrize("name", FUSED)
def test_fused(shared, name):
    text, wanted, doubled = FUSED[name]
    assert fused(shared, given(text, doubled), PASSES)[0] == wanted


def test_the_tables_of_each_call_are_one_after_all(shared):
    """Of several layers: EliminateCommonSubexpressions and FoldConstants leave the calls alone."""
    second = ROTATED.replace("Slice x", "Slice z").replace("Mul x", "Mul z")
    for one in ("> a", "> b", "> n", "> r", "> p", "> q"):
        second = second.replace(one, one + "2")
    second = second.replace("Neg b", "Neg b2").replace("Concat n a", "Concat n2 a2").replace("Mul r", "Mul r2").replace(
        "Add p q", "Add p2 q2")
    data = given(ROTATED.replace("> y", "> z") + "\n" + second, True)
    passes = "FuseRotation EliminateCommonSubexpressions EvaluateConstants FoldConstants EliminateDeadCode"
    assert fused(shared, data, passes)[0] == ["RotaryEmbedding"] * 2


def test_angles_that_are_computed(shared):
    """Of positions that the model is given, as transformers does it."""
    text = ("Concat t t > e axis=-1\nCos e > c3\nSin e > s3\nMul c3 1.5 > c2\nUnsqueeze c2 one > cos\nUnsqueeze s3 one > sin\n"
            + ROTATED)
    data = given(text, True, stored=[numbers("unread", [1.0], (1,))], inputs=[value("t", shape=(B, S, D // 2))])
    left, _ = fused(shared, data, PASSES)
    assert left == ["Concat", "Cos", "Sin", "Mul", "Slice", "Slice", "RotaryEmbedding"]


UNEQUAL = [table("cos", math.cos, True, (B, 1, S, D)),
           numbers("sin", [float(one) for one in range(B * S * D)], (B, 1, S, D))]
SWAPPED = "Slice x zero half last > b\nSlice x half far last one > a\n"
LEFT = {  # text, reasons, more
    "an-older-opset": (ROTATED, {"opset-too-old"}, {"opset": 22}),
    "halves-that-differ": (ROTATED, {"unknown-constant"}, {"stored": UNEQUAL}),
    "the-other-half-negated": (ROTATED.replace("Neg b", "Neg a").replace("Concat n a", "Concat b n"), None, {}),
    "turned-the-other-way": (SWAPPED + ROTATED.split("last one > b\n")[1], None, {}),
    "a-difference": (ROTATED.replace("Add p q", "Sub p q"), None, {}),
    "one-table-for-all": (ROTATED, {"shape-mismatch"}, {"stored": [
        numbers(name, ([math.cos(one) for one in range(D // 2)] * 2) * S, (1, 1, S, D)) for name in ("cos", "sin")]}),
    "by-heads": (ROTATED, {"shape-mismatch"}, {"stored": [
        numbers(name, ([math.cos(one) for one in range(D // 2)] * 2) * B * H, (B, H, 1, D)) for name in ("cos", "sin")]}),
    "read-by-others": (ROTATED, {"shared-output"}, {"outputs": "y r"}),
    "a-half-read-by-others": (ROTATED, {"shared-output"}, {"outputs": "y a"}),
    "a-third": (ROTATED.replace("Slice x zero half", "Slice x zero one"), None, {}),
    "neighbours-as-halves": (NEIGHBOURS + PARTS + "Concat f s > y axis=-1", None, {"doubled": False}),
    "halves-as-neighbours": (HALVES + STACKED, None, {"doubled": False}),
    "another-sign": (HALVES + PARTS.replace("Sub", "Add") + "Concat f s > y axis=-1", None, {"doubled": False}),
    "stacked-before": (NEIGHBOURS + STACKED.replace("Unsqueeze f four", "Unsqueeze f last").replace(
        "Unsqueeze s minus", "Unsqueeze s last").replace("Concat u v > w axis=-1", "Concat u v > w axis=3"), None,
        {"doubled": False}),
}


@pytest.mark.parametrize("name", LEFT)
def test_left(shared, name):
    text, reasons, more = LEFT[name]
    data = given(text, more.pop("doubled", True), **more)
    left, found = fused(shared, data, "FuseRotation")
    assert left == [part(one, 4)[0].decode() for one in part(data, 7, 1)]
    assert reasons is None or found == reasons, found
