"""PackLinear and ChangeMulByInverseToTrueDiv: what they make of ONNX models, and what stays."""

import pytest
from test_onnx_changed import value
from test_onnx_folds import whole
from test_onnx_formulas import model
from test_onnx_fusions import fused, weight


def linear(name, to, more=""):
    """A Linear of x, and a Reshape of what it gives."""
    return f"MatMul x {name} > m{name}\nAdd m{name} b > a{name}\nReshape a{name} {to} > {name}y {more}"


WEIGHTS = [weight("q", 8, 6), weight("k", 8, 6), weight("v", 8, 6), weight("b", 6), weight("c", 2, 3, 6),
           whole("heads", [2, -1, 3, 2]), whole("kept", [0, 0, 3, 2]), whole("flat", [-1]), whole("same", [2, -1, 6]),
           whole("wide", [0, 0, 3, -1])]
BOTH = "\nAdd qy ky > y"
PACKED = {
    "two": linear("q", "heads") + "\n" + linear("k", "heads") + BOTH,
    "sizes-that-are-copied": linear("q", "kept") + "\n" + linear("k", "wide") + BOTH,
    "no-dimension-is-zero": linear("q", "heads", "allowzero=1") + "\n" + linear("k", "heads", "allowzero=1") + BOTH,
    "one-dimension": linear("q", "flat") + "\n" + linear("k", "flat") + BOTH,
    "bias-first": (linear("q", "heads") + "\n" + linear("k", "heads") + BOTH).replace("mq b", "b mq"),
    "another-one-stays": linear("q", "heads") + "\n" + linear("k", "heads") + BOTH.replace("> y", "> z")
                         + "\nMatMul x v > w\nReshape w heads > u\nAdd z u > y",
}


@pytest.mark.parametrize("sizes", [(2, 3, 8), (2, "n", 8)], ids=["numbers", "symbol"])
@pytest.mark.parametrize("opset", [9, 13, 21])
@pytest.mark.parametrize("name", PACKED)
def test_linears_of_rows(shared, name, opset, sizes):
    if "allowzero" in PACKED[name] and opset < 14:
        pytest.skip("Reshape has no allowzero")
    data = model(PACKED[name], opset, sizes, weights=WEIGHTS)
    left, _ = fused(shared, data, "PackLinear EliminateDeadCode")
    assert sorted(left) == sorted(["Reshape", "Gemm", "Reshape", "Gemm", "Reshape", "Add",
                                   *(["MatMul", "Reshape", "Add"] if name == "another-one-stays" else [])])
    assert sorted(fused(shared, data, "inference")[0]) == sorted(left)


UNPACKED = {
    "alone": linear("q", "heads") + "\nNeg qy > y",
    "no-bias": "MatMul x q > m\nReshape m heads > o\nMatMul x k > d\nReshape d heads > e\nAdd o e > y",
    "another-reader": linear("q", "heads") + "\n" + linear("k", "heads") + BOTH + "\nNeg aq > z",
    "an-output": linear("q", "heads") + "\n" + linear("k", "heads").replace("ak", "z") + BOTH,
    "sizes-that-come-back": linear("q", "same") + "\n" + linear("k", "same") + BOTH,
    "a-matrix-of-biases": (linear("q", "heads") + "\n" + linear("k", "heads") + BOTH).replace(" b >", " c >"),
    "a-bias-of-the-caller": (linear("q", "heads") + "\n" + linear("k", "heads") + BOTH).replace(" b >", " given >"),
}


@pytest.mark.parametrize("name", UNPACKED)
def test_linears_that_stay(shared, name):
    text = UNPACKED[name]
    data = model(text, weights=WEIGHTS, outputs="y z" if "z" in text.split() else "y",
                 inputs=[value("given", 1, (6,))] if "given" in text else ())
    assert fused(shared, data, "PackLinear")[0] == [line.split()[0] for line in text.splitlines()]


@pytest.mark.parametrize("sizes", [(2, "n", 8), ("m", "n", 8), (0, 3, 8)], ids=["symbol", "symbols", "zero"])
def test_sizes_of_rows(shared, sizes):
    """Two symbols can't both be what is left, and no size may be zero."""
    data = model(PACKED["sizes-that-are-copied"], shape=sizes, weights=WEIGHTS)
    left, _ = fused(shared, data, "PackLinear EliminateDeadCode")
    assert ("Gemm" in left) == (sizes == (2, "n", 8))


DIVIDED = {
    "one": ("Div 1.0 x > i\nMul x2 i > y", 13), "reciprocal": ("Reciprocal x > i\nMul i x2 > y", 7),
    "one-of-a-dimension": ("Div ones x > i\nMul x2 i > y", 20), "a-row": ("Reciprocal row > i\nMul x i > y", 20),
    "norm": ("Mul x x > p\nReduceMean p axes > m\nAdd m 0.001 > e\nSqrt e > r\nDiv 1.0 r > i\nMul x i > n\nMul w n > y", 18)}


@pytest.mark.parametrize("dtype", [1, 10], ids=["float32", "float16"])
@pytest.mark.parametrize("name", DIVIDED)
def test_divided(shared, name, dtype):
    text, opset = DIVIDED[name]
    more = [value("x2", dtype, (2, 3, 8)), value("row", dtype, (8,))]
    weights = [weight("w", 8), weight("ones", 1, 1, least=1.0), whole("axes", [-1])]
    if dtype != 1 and ("ones" in text or "w n" in text):
        pytest.skip("weights are float32")
    data = model(text, opset, dtype=dtype, weights=weights, inputs=more)
    wanted = [line.split()[0] for line in text.splitlines()]
    at = wanted.index("Mul", wanted.index("Div" if "Div" in wanted else "Reciprocal"))
    wanted[at - 1:at + 1] = ["Div"]
    assert fused(shared, data, "ChangeMulByInverseToTrueDiv")[0] == wanted


MULTIPLIED = {
    "another-reader": "Div 1.0 x > i\nMul x2 i > y\nNeg i > z", "an-output": "Div 1.0 x > z\nMul x2 z > y",
    "a-square": "Reciprocal x > i\nMul i i > y", "two": "Div 2.0 x > i\nMul x2 i > y",
    "a-wider-one": "Div ones row > i\nMul row i > y", "a-default": "Div one x > i\nMul x2 i > y",
}


@pytest.mark.parametrize("name", MULTIPLIED)
def test_multiplied(shared, name):
    text = MULTIPLIED[name]
    more = [value("x2", 1, (2, 3, 8)), value("row", 1, (8,)), *([value("one", 1, (1,))] if name == "a-default" else [])]
    weights = [weight("ones", 1, 1, least=1.0), *([weight("one", 1, least=1.0)] if name == "a-default" else [])]
    data = model(text, weights=weights, inputs=more, outputs="y z" if "z" in text.split() else "y")
    assert fused(shared, data, "ChangeMulByInverseToTrueDiv")[0] == [line.split()[0] for line in text.splitlines()]


@pytest.mark.parametrize("dtype", [7, 11], ids=["int64", "float64"])
def test_dtypes_that_stay(shared, dtype):
    """Quotients of integers are cut; and what overflows in float64, no dtype holds."""
    one = "1.0" if dtype == 11 else "1"
    data = model(f"Div {one} x > i\nMul x2 i > y", dtype=dtype, inputs=[value("x2", dtype, (2, 3, 8))])
    assert fused(shared, data, "ChangeMulByInverseToTrueDiv")[0] == ["Div", "Mul"]
