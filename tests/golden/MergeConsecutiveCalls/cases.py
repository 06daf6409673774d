"""MergeConsecutiveCalls. tests/api/test_onnx_consecutive.py has the models of its rules, which are compared by what they
compute."""
from make_cases import Graph, case

SHAPE = (2, 3)


def model():
    g = Graph()
    g.metadata = {"dialect": "onnx", "ir_version": 8, "onnx": {"opsets": {"": 17}}}
    return g


def call(g, op, *values, shape, name, dtype="float32", **attributes):
    return g.fn(f"onnx.{op}", *values, kwargs=attributes, shape=shape, dtype=dtype, name=name)


def cases():
    g = model()
    x, z = g.input("x", SHAPE), g.input("z", (2, 1))
    one = call(g, "Concat.v13", x, z, axis=1, shape=(2, 4), name="one")
    case("MergeConsecutiveCalls", "concat", g.output(call(g, "Concat.v13", z, one, x, axis=-1, shape=(2, 8), name="all")), 1)
    g = model()  # the first rounds
    half = call(g, "Cast.v13", g.input("x", SHAPE), to=10, shape=SHAPE, dtype="float16", name="half")
    case("MergeConsecutiveCalls", "rounded", g.output(call(g, "Cast.v13", half, to=1, shape=SHAPE, name="full")), 0)
    g = Graph()
    x = g.input("x", SHAPE)
    case("MergeConsecutiveCalls", "pytorch", g.output(g.fn("torch.cat", [g.fn("torch.cat", [x, x]), x])), 0)
