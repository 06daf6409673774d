"""Operators of ONNX models that are spelled out, as exporters write them, and become one; and what only looks like them."""

import struct

import pytest
from test_onnx_changed import field, graph, made_of, node, number, optimize, part, tensor, value
from test_onnx_folds import integer, ints, named, unshaped, whole
from test_onnx_fusions import fused, real, weight, word

HALF = 10


def numbers(name, several, shape, dtype=1):
    raw = struct.pack(f"<{len(several)}{'e' if dtype == HALF else 'd' if dtype == 11 else 'f'}", *several)
    return b"".join(number(1, size) for size in shape) + number(2, dtype) + field(8, name) + field(9, raw)


def model(text, opset=20, shape=(2, 3, 8), dtype=1, weights=(), outputs="y", inputs=(), annotations=()):
    """Nodes of lines `Op inputs > outputs name=attribute …`; an input that is a number is a constant of its own, int64 where
    it has no point. The input is x."""
    nodes, stored = [], []
    for line in text.strip().splitlines():
        left, right = line.split(">")
        op, *given = left.split()
        gives, *options = right.split()
        for i, one in enumerate(given):
            if not one[0].isdigit() and one[0] != "-":
                continue
            given[i] = f"c{len(stored)}"
            is_real = "." in one or "e" in one
            stored.append(numbers(given[i], [float(one)], (), dtype) if is_real else whole(given[i], [int(one)]))
        attributes = []
        for one in options:
            name, said = one.split("=")
            attributes.append(ints(name, [int(each) for each in said[1:-1].split(",")]) if said[0] == "[" else
                              word(name, said) if said.isalpha() else
                              real(name, float(said)) if "." in said else integer(name, int(said)))
        nodes.append(node(op, " ".join(given), gives.replace(",", " "), *attributes))
    return made_of(graph(nodes, [named("x", shape, dtype), *inputs], [unshaped(one, dtype) for one in outputs.split()],
                         [*stored, *weights], annotations=annotations), opset=opset, ir=10)


W, B = weight("w", 8), weight("b", 8)
ACTIVATIONS = {
    "gelu": ("Div x 1.4142135 > a\nErf a > e\nAdd e 1.0 > o\nMul x o > p\nMul p 0.5 > y", ["Gelu"], 20),
    "gelu-half-first": ("Mul x 0.5 > h\nMul x 0.70710678 > a\nErf a > e\nAdd 1.0 e > o\nMul h o > y", ["Gelu"], 20),
    "gelu-tanh": ("Pow x 3.0 > c\nMul c 0.044715 > m\nAdd x m > s\nMul s 0.7978845608 > t\nTanh t > u\nAdd u 1.0 > o\n"
                  "Mul x 0.5 > h\nMul h o > y", ["Gelu"], 20),
    "swish": ("Sigmoid x > s\nMul x s > y", ["Swish"], 24),
    "mish": ("Softplus x > p\nTanh p > t\nMul x t > y", ["Mish"], 18),
    "hard-swish": ("Add x 3.0 > a\nClip a 0.0 6.0 > c\nMul x c > m\nDiv m 6.0 > y", ["HardSwish"], 14),
    "hard-swish-of-hard-sigmoid": ("HardSigmoid x > s alpha=0.166666667 beta=0.5\nMul s x > y", ["HardSwish"], 14),
    "hard-swish-of-a-relu-6": ("Add x 3.0 > a\nClip a > c min=0.0 max=6.0\nMul x c > m\nMul m 0.16666667 > y", ["Add", "Clip",
                                                                                                     "Mul", "Mul"], 10),
}
CENTRED = "ReduceMean x -1 > m\nSub x m > d\n"
NORMS = {
    "layer": (CENTRED + "Pow d 2.0 > q\nReduceMean q -1 > v\nAdd v 1e-5 > e\nSqrt e > r\nDiv d r > n\nMul n w > k\nAdd k b > y",
              ["LayerNormalization"], 18),
    "layer-of-products": (CENTRED + "Mul d d > q\nReduceMean q -1 > v\nAdd 1e-5 v > e\nSqrt e > r\nReciprocal r > i\n"
                          "Mul i d > n\nMul w n > k\nAdd b k > y", ["LayerNormalization"], 18),
    "layer-of-attributes": ("ReduceMean x > m axes=[-1]\nSub x m > d\nMul d d > q\nReduceMean q > v axes=[2]\nAdd v 1e-5 > e\n"
                            "Sqrt e > r\nDiv d r > n\nMul n w > k\nAdd k b > y", ["LayerNormalization"], 17),
    "layer-without-a-bias": (CENTRED + "Mul d d > q\nReduceMean q -1 > v\nAdd v 1e-6 > e\nSqrt e > r\nDiv d r > n\nMul n w > y",
                             ["LayerNormalization"], 18),
    "layer-without-a-weight": (CENTRED + "Mul d d > q\nReduceMean q -1 > v\nAdd v 1e-6 > e\nSqrt e > r\nDiv d r > y",
                               ["LayerNormalization"], 18),
    "root-mean-square": ("Mul x x > q\nReduceMean q -1 > v\nAdd v 1e-6 > e\nSqrt e > r\nDiv x r > n\nMul n w > y",
                         ["RMSNormalization"], 23),
    "root-mean-square-of-a-power": ("Pow x 2.0 > q\nReduceMean q -1 > v\nAdd v 1e-6 > e\nSqrt e > r\nReciprocal r > i\n"
                                    "Mul x i > n\nMul w n > y", ["RMSNormalization"], 23),
    "softmax": ("ReduceMax x -1 > m\nSub x m > d\nExp d > e\nReduceSum e -1 > s\nDiv e s > y", ["Softmax"], 18),
    "softmax-of-a-middle-axis": ("ReduceMax x > m axes=[1]\nSub x m > d\nExp d > e\nReduceSum e 1 > s\nDiv e s > y",
                                 ["Softmax"], 13),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(shared, name):
    text, wanted, opset = ACTIVATIONS[name]
    assert fused(shared, model(text, opset), "FuseActivation EliminateDeadCode")[0] == wanted


@pytest.mark.parametrize("name", NORMS)
def test_norms(shared, name):
    text, wanted, opset = NORMS[name]
    assert fused(shared, model(text, opset, weights=[W, B]), "FuseNorm EliminateDeadCode")[0] == wanted


@pytest.mark.parametrize("name, opset, needed", [("gelu", 19, 20), ("swish", 23, 24), ("mish", 17, 18), ("hard-swish", 13, 14)])
def test_activations_of_an_older_opset(shared, name, opset, needed):
    data = model(ACTIVATIONS[name][0], opset)
    left, reasons = fused(shared, data, "FuseActivation")
    assert left == [part(one, 4)[0].decode() for one in part(data, 7, 1)] and reasons == {"opset-too-old"}
    run, _ = optimize(shared, data, "FuseActivation")
    assert f"the model's opset is {opset}, and" in run["passes"][0]["refused"][0]["detail"]
    assert run["passes"][0]["refused"][0]["detail"].endswith(f"needs {needed}")


@pytest.mark.parametrize("opset", [25, 28])
def test_swish_stays_where_runtimes_have_none(shared, opset):
    """findings/onnxruntime-runs-swish-at-opset-24-alone.sh"""
    left, reasons = fused(shared, model(ACTIVATIONS["swish"][0], opset), "FuseActivation")
    assert left == ["Sigmoid", "Mul"] and reasons == {"opset-too-new"}


@pytest.mark.parametrize("name, opset", [("root-mean-square", 22), ("layer-of-attributes", 16)])
def test_norms_of_an_older_opset(shared, name, opset):
    data = model(NORMS[name][0], opset, weights=[W, B])
    left, reasons = fused(shared, data, "FuseNorm")
    assert left == [part(one, 4)[0].decode() for one in part(data, 7, 1)] and reasons == {"opset-too-old"}


LEFT = {
    "another-factor": ("FuseActivation", "Mul x 1.702 > a\nSigmoid a > s\nMul x s > y", {"another-function"}, {"opset": 24}),
    "a-slope-of-0.2": ("FuseActivation", "HardSigmoid x > s\nMul x s > y", None, {}),
    "a-part-that-is-an-output": ("FuseActivation", "Div x 1.4142135 > a\nErf a > e\nAdd e 1.0 > o\nMul x o > p\nMul p 0.5 > y",
                                 {"other-readers"}, {"outputs": "y e"}),
    "a-part-that-another-reads": ("FuseActivation", "Softplus x > p\nTanh p > t\nMul x t > y\nNeg t > z", {"other-readers"},
                                  {"outputs": "y z"}),
    "of-float64": ("FuseActivation", "Sigmoid x > s\nMul x s > y", {"dtype"}, {"opset": 24, "dtype": 11}),
    "a-weight-for-a-number": ("FuseActivation", "Div x w > a\nErf a > e\nAdd e 1.0 > o\nMul x o > p\nMul p 0.5 > y", None,
                              {"weights": [W]}),
    "another-axis": ("FuseNorm", "ReduceMean x 1 > m\nSub x m > d\nMul d d > q\nReduceMean q 1 > v\nAdd v 1e-5 > e\n"
                     "Sqrt e > r\nDiv d r > y", None, {}),
    "two-axes": ("FuseNorm", "ReduceMean x -1 > m\nSub x m > d\nMul d d > q\nReduceMean q 1 > v\nAdd v 1e-5 > e\n"
                 "Sqrt e > r\nDiv d r > y", None, {}),
    "epsilon-behind-the-root": ("FuseNorm", CENTRED + "Mul d d > q\nReduceMean q -1 > v\nSqrt v > r\nAdd r 1e-5 > e\n"
                                "Div d e > y", None, {}),
    "variance-of-a-sample": ("FuseNorm", CENTRED + "Mul d d > q\nReduceSum q -1 > s\nDiv s 7.0 > v\nAdd v 1e-5 > e\n"
                             "Sqrt e > r\nDiv d r > y", None, {}),
    "a-mean-that-is-an-output": ("FuseNorm", CENTRED + "Mul d d > q\nReduceMean q -1 > v\nAdd v 1e-5 > e\nSqrt e > r\n"
                                 "Div d r > y", {"opset-too-old"}, {"outputs": "y m"}),  # RMSNormalization of d
    "of-float64-as-well": ("FuseNorm", CENTRED + "Mul d d > q\nReduceMean q -1 > v\nAdd v 1e-5 > e\nSqrt e > r\nDiv d r > y",
                           {"dtype"}, {"dtype": 11}),
    "axes-that-go": ("FuseNorm", "ReduceMean x > m axes=[2] keepdims=0\nUnsqueeze m 2 > u\nSub x u > d\nMul d d > q\n"
                     "ReduceMean q > v axes=[2]\nAdd v 1e-5 > e\nSqrt e > r\nDiv d r > y", None, {"opset": 17}),
    "no-largest": ("FuseNorm", "Exp x > e\nReduceSum e -1 > s\nDiv e s > y", {"overflows"}, {}),
}


@pytest.mark.parametrize("name", LEFT)
def test_left(shared, name):
    passes, text, reasons, more = LEFT[name]
    data = model(text, **more)
    left, found = fused(shared, data, passes)
    assert left == [part(one, 4)[0].decode() for one in part(data, 7, 1)]
    assert reasons is None or found == reasons, found


@pytest.mark.parametrize("shape, stays", [((1, 8), True), ((3, 8), True), ((1,), True), ((2, 3, 8), True)])
def test_weights_of_another_shape_stay(shared, shape, stays):
    text = NORMS["layer-without-a-bias"][0]
    left, _ = fused(shared, model(text, weights=[weight("w", *shape)]), "FuseNorm EliminateDeadCode")
    assert left == ["LayerNormalization", "Mul"]


def test_several_axes(shared):
    text = NORMS["layer-of-attributes"][0].replace("[-1]", "[1,2]").replace("[2]", "[-2,-1]")
    left, _ = fused(shared, model(text, 17, weights=[weight("w", 3, 8), weight("b", 3, 8)]), "FuseNorm EliminateDeadCode")
    assert left == ["LayerNormalization"]


def test_half_floats(shared):
    """In float16 a norm is computed in float32 between two casts, and the weight stays a product of its own."""
    text = ("Cast x > h to=1\nReduceMean h > m axes=[-1]\nSub h m > d\nMul d d > q\nReduceMean q > v axes=[-1]\n"
            "Add v e > g\nSqrt g > r\nDiv d r > n\nCast n > t to=10\nMul t w > y")
    halves = numbers("w", [0.5 + i / 8 for i in range(8)], (8,), HALF)
    data = model(text, 17, dtype=HALF, weights=[halves, tensor("e", [1e-5], ())])
    assert fused(shared, data, "FuseNorm EliminateDeadCode")[0] == ["LayerNormalization", "Mul"]


def test_a_default_of_an_input_is_no_number(shared):
    """From IR 4 on the caller may give another."""
    text = "Div x root > a\nErf a > e\nAdd e 1.0 > o\nMul x o > p\nMul p 0.5 > y"
    data = model(text, weights=[tensor("root", [1.4142135], ())], inputs=[value("root", shape=())])
    assert fused(shared, data, "FuseActivation")[0] == ["Div", "Erf", "Add", "Mul", "Mul"]


def test_many_of_one_kind(shared):
    """The constants of each layer are its own: what is equal is compared once."""
    lines = [f"Div {f'y{i - 1}' if i else 'x'} 1.4142135 > a{i}\nErf a{i} > e{i}\nAdd e{i} 1.0 > o{i}\n"
             f"Mul {f'y{i - 1}' if i else 'x'} o{i} > p{i}\nMul p{i} 0.5 > y{i}" for i in range(600)]
    assert fused(shared, model("\n".join(lines), outputs="y599"), "FuseActivation EliminateDeadCode")[0] == ["Gelu"] * 600
