"""PackLinear. tests/api/test_onnx_packed.py has more models, which are compared by what they compute."""
from make_cases import Graph, case


def read(g, name, shape, dtype="float32"):
    g.modules[""].setdefault("buffers", {})[name] = g.tensor(name, shape, dtype)
    return g.get_attr(name, shape, dtype, name=name)


def model(readers=1):
    """Two Linears of x whose results are cut into heads; the second is read by so many."""
    g = Graph()
    g.metadata = {"dialect": "onnx", "ir_version": 8, "onnx": {"opsets": {"": 17}}}
    x, made = g.input("x", (2, 3, 4)), []
    for name in ("q", "k"):
        w, b = read(g, f"w_{name}", (4, 6)), read(g, f"b_{name}", (6,))
        product = g.fn("onnx.MatMul.v13", x, w, shape=(2, 3, 6), dtype="float32", name=f"{name}_product")
        total = g.fn("onnx.Add.v14", product, b, shape=(2, 3, 6), dtype="float32", name=f"{name}_sum")
        sizes = read(g, f"sizes_{name}", (4,), "int64")
        made.append(g.fn("onnx.Reshape.v14", total, sizes, shape=(2, 3, 3, 2), dtype="float32", name=f"{name}_heads"))
    if readers > 1:
        made.append(g.fn("onnx.Relu.v14", total, shape=(2, 3, 6), dtype="float32", name="relu"))
    return g.output(*made)


def cases():
    case("PackLinear", "two", model(), 1)
    case("PackLinear", "one-is-read-as-it-is", model(2), 0)
    g = Graph()  # PyTorch's Linears take any number of dimensions
    case("PackLinear", "pytorch", g.output(g.linear("fc", g.input("x", (2, 3, 4)), 6, 4)), 0)
