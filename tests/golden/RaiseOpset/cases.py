"""RaiseOpset. tests/api/test_onnx_opsets.py raises ONNX's own cases, which are compared by what they compute."""
from make_cases import Graph, case, refusal

SHAPE = (2, 3, 4)


def model(opset=11):
    g = Graph()
    g.metadata = {"dialect": "onnx", "ir_version": 8, "onnx": {"opsets": {"": opset}}}
    return g, g.input("x", SHAPE)


def call(g, operator, x, **attributes):
    return g.fn(f"onnx.{operator}", x, kwargs=attributes, shape=SHAPE, dtype="float32", name=operator.split(".")[0].lower())


def cases():
    g, x = model()
    case("RaiseOpset", "same-calls", g.output(call(g, "Relu.v6", call(g, "Tanh.v6", x))), 1)
    g, x = model()
    case("RaiseOpset", "attribute-becomes-an-input", g.output(call(g, "ReduceMean.v11", x, axes=[1, -1], keepdims=1)), 1)
    g, x = model()
    case("RaiseOpset", "last-axis", g.output(call(g, "Softmax.v11", x, axis=2)), 1)
    g, x = model()
    case("RaiseOpset", "rows", g.output(call(g, "Softmax.v11", x)), 1)
    g, x = model()
    case("RaiseOpset", "attribute-is-dropped", g.output(call(g, "Dropout.v10", x, ratio=0.25)), 1)
    g, x = model(17)
    case("RaiseOpset", "up-to-20", g.output(call(g, "ReduceMean.v13", x, axes=[1])), 1,
         passes=[{"name": "RaiseOpset", "params": {"to": 20}}])
    g, x = model()  # all or nothing
    pooled = call(g, "AveragePool.v11", call(g, "Relu.v6", x), ceil_mode=1, kernel_shape=[2])
    case("RaiseOpset", "size-differs", g.output(pooled), 0, refusal("version-differs", "averagepool"))
    g, x = model()
    case("RaiseOpset", "unknown-operator", g.output(call(g, "LayerNormalization.v11", x)), 0,
         refusal("unknown-operator", "layernormalization"))
    g, x = model(10)
    case("RaiseOpset", "opset-too-old", g.output(call(g, "Relu.v6", x)), 0, refusal("opset-too-old", "x"))
    g, x = model(23)
    case("RaiseOpset", "raised-already", g.output(call(g, "Relu.v14", x)), 0)
