"""MoveTransposes. tests/api/test_onnx_transposes.py has the models of its rules, which are compared by what they compute."""
from make_cases import Graph, case

FIRST, LAST = (2, 3, 4, 5), (2, 4, 5, 3)


def turn(g, x, dims, shape, name):
    return g.fn("onnx.Transpose.v13", x, kwargs={"perm": dims}, shape=shape, dtype="float32", name=name)


def model():
    g = Graph()
    g.metadata = {"dialect": "onnx", "ir_version": 8, "onnx": {"opsets": {"": 17}}}
    last = turn(g, g.input("x", FIRST), [0, 2, 3, 1], LAST, "last")
    return g, last, g.fn("onnx.Relu.v14", last, shape=LAST, dtype="float32", name="relu")


def cases():
    g, _, relu = model()
    case("MoveTransposes", "between", g.output(turn(g, relu, [0, 3, 1, 2], FIRST, "first")), 1)
    g, last, relu = model()  # as many are left
    total = g.fn("onnx.Add.v14", last, relu, shape=LAST, dtype="float32", name="total")
    case("MoveTransposes", "an-output", g.output(total), 0)
    g = Graph()  # a view, in PyTorch
    x = g.method("permute", g.input("x", FIRST), 0, 2, 3, 1, shape=LAST, dtype="float32", name="last")
    case("MoveTransposes", "pytorch", g.output(g.relu(x)), 0)
