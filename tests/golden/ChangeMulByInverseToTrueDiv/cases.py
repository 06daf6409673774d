"""ChangeMulByInverseToTrueDiv. tests/api/test_onnx_packed.py has more models, which are compared by what they compute."""
from make_cases import Graph, case

SHAPE = (2, 3)


def model(dtype="float32"):
    g = Graph()
    g.metadata = {"dialect": "onnx", "ir_version": 8, "onnx": {"opsets": {"": 17}}}
    x, y = g.input("x", SHAPE, dtype), g.input("y", SHAPE, dtype)
    inverse = g.fn("onnx.Reciprocal.v13", x, shape=SHAPE, dtype=dtype, name="inverse")
    return g, inverse, g.fn("onnx.Mul.v14", y, inverse, shape=SHAPE, dtype=dtype, name="product")


def cases():
    g, _, product = model()
    case("ChangeMulByInverseToTrueDiv", "reciprocal", g.output(product), 1)
    g, inverse, product = model()
    case("ChangeMulByInverseToTrueDiv", "an-output", g.output(product, inverse), 0)
    g, _, product = model("float64")
    case("ChangeMulByInverseToTrueDiv", "float64", g.output(product), 0)
    g = Graph()
    inverse = g.fn("torch.reciprocal", g.input("x", SHAPE), shape=SHAPE, dtype="float32", name="inverse")
    product = g.fn("torch.mul", inverse, 2.0, shape=SHAPE, dtype="float32", name="product")
    case("ChangeMulByInverseToTrueDiv", "pytorch", g.output(product), 0)
