"""FoldShapes, in both dialects."""
from make_cases import Graph, Raw, case, refusal

FLOAT = {"dtype": "float32"}
DTYPE = lambda name: Raw({"$dtype": name})


def cases():
    known_sizes()
    known_dtypes()
    numbers_in_tensors()


def fold(name, graph, applied, *refused):
    case("FoldShapes", name, graph, applied, *refused)


def asked(ask, shape=(2, 3, 4)):
    """A view of relu(x), of the sizes that `ask` computes from it."""
    g = Graph()
    x = g.relu(g.input(shape=shape))
    y = g.method("view", x, *ask(g, x), shape=(2, 12) if shape == (2, 3, 4) else None, **FLOAT)
    return g.output(g.fn("torch.tanh", y, shape=g.names[y][0], **FLOAT))


def known_sizes():
    item = lambda g, of, index: g.fn("operator.getitem", of, index)
    fold("size-and-item", asked(lambda g, x: [item(g, g.method("size", x), 0), -1]), 2)
    fold("size-of-one-dimension", asked(lambda g, x: [g.method("size", x, 0), -1]), 1)
    fold("shape-and-sum",
         asked(lambda g, x: [g.fn("operator.add", item(g, g.fn("builtins.getattr", x, "shape"), slice(None, 1)), (12,))]), 3)
    fold("product-of-sizes", asked(lambda g, x: [2, g.fn("operator.mul", g.method("size", x, 1), g.method("size", x, -1))]), 3)
    fold("quotient-of-sizes", asked(lambda g, x: [g.fn("operator.floordiv", g.method("numel", x), 12), -1]), 2)
    fold("number-of-dimensions", asked(lambda g, x: [g.fn("operator.sub", g.method("dim", x), 1), 12]), 2)
    fold("symbolic-size-stays", asked(lambda g, x: [g.method("size", x, 0), g.method("size", x, 1)], ("s0", 12)), 1)
    fold("not-of-an-unknown-shape", asked(lambda g, x: [g.method("size", x, 0), -1], None), 0)

    g = Graph()
    x = g.relu(g.input(shape=(2, 3, 4)))
    size = g.fn("torch.ops.aten.sym_size.int", x, 0, name="size")
    y = g.fn("torch.ops.aten.view.default", x, [size, -1], shape=(2, 12), **FLOAT)
    fold("aten-size", g.output(g.fn("torch.ops.aten.tanh.default", y, shape=(2, 12), **FLOAT)), 1)

    g = Graph()
    x = g.relu(g.input())
    size = g.method("size", x, 0)
    fold("not-a-result-of-the-graph", g.output(x, size), 0, refusal("graph-output", "size"))

    g = Graph()
    x = g.relu(g.input())
    fold("not-for-an-unknown-operator", g.output(g.fn("my.function", g.method("size", x))), 0,
         refusal("unknown-operator", "size"))

    g = Graph()
    x = g.relu(g.input())
    count = g.method("numel", g.method("size", x))
    fold("not-what-a-method-is-called-on", g.output(g.fn("torch.ones", count)), 0, refusal("unknown-operator", "size"))

    g = Graph()
    x = g.relu(g.input())
    size = g.method("size", x, 0)
    g.method("t_", x, shape=(4, 2), **FLOAT)
    rows = g.method("size", x, 0, name="rows")
    y = g.method("view", x, rows, -1, shape=(4, 2), **FLOAT)
    fold("not-when-the-shape-is-changed-in-place", g.output(g.fn("torch.tanh", g.fn("torch.ones", size), **FLOAT), y), 0,
         refusal("mutated", "size"), refusal("mutated", "rows"))

    g = Graph()
    x = g.relu(g.input())
    g.method("size", x, 0)
    fold("not-what-nobody-reads", g.output(g.fn("torch.tanh", x, shape=(2, 4), **FLOAT)), 0)


def known_dtypes():
    g = Graph()
    x, y = g.relu(g.input()), g.input("y", (2, 4), "int64")
    cast = g.method("to", y, g.fn("builtins.getattr", x, "dtype"), shape=(2, 4), **FLOAT)
    fold("dtype", g.output(g.fn("operator.add", x, cast, shape=(2, 4), **FLOAT)), 1)

    for limit in ("min", "max", "eps"):
        g = Graph()
        x = g.relu(g.input())
        info = g.fn("torch.finfo", g.fn("builtins.getattr", x, "dtype", name="dtype"))
        least = g.fn("builtins.getattr", info, limit, name="least")
        fold(f"limit-{limit}", g.output(g.method("clamp", x, least, shape=(2, 4), **FLOAT)), 1 if limit == "eps" else 2)

    g = Graph()
    x = g.relu(g.input())
    device = g.fn("builtins.getattr", x, "device", name="device")
    fold("not-the-device", g.output(g.fn("torch.ones", 2, 4, kwargs={"device": device}, shape=(2, 4), **FLOAT)), 0)


def numbers_in_tensors():
    def full(read, dtype="float32", fill=None):
        g = Graph()
        x = g.relu(g.input(shape=(2, 8)))
        root = g.fn("operator.pow", g.method("size", x, -1), 0.5, name="root")
        options = {"dtype": DTYPE(dtype), "device": g.fn("builtins.getattr", x, "device", name="device")}
        number = g.fn("torch.full", [], root if fill is None else fill, kwargs=options, shape=(), dtype=dtype, name="full")
        y = read(g, x, number)
        return g.output(g.fn("torch.tanh", y, shape=g.names[y][0], dtype=g.names[y][1]))

    same = {"shape": (2, 8), **FLOAT}
    divide = lambda g, x, number: g.fn("operator.truediv", x, number, **same)
    fold("divided-by-a-full-tensor", full(divide), 3)
    fold("full-of-a-literal", full(divide, fill=0.1), 2)
    choose = lambda g, x, number: g.fn("torch.where", g.fn("torch.gt", x, 0, shape=(2, 8), dtype="bool"), x, number, **same)
    fold("chosen-from-a-full-tensor", full(choose), 3)
    fold("not-a-number-of-another-dtype", full(lambda g, x, n: g.fn("operator.truediv", x, n, shape=(2, 8), **FLOAT),
                                               "float64"), 2,
         refusal("unsupported-reader", "full"))
    three = lambda target, *order: full(lambda g, x, n: g.fn(target, *[n if o == "n" else x for o in order], **same))
    for name, graph in [("maximum", three("torch.maximum", "x", "n")), ("atan2", three("torch.atan2", "n", "x")),
                        ("hypot", three("torch.hypot", "x", "n")), ("addcmul", three("torch.addcmul", "x", "x", "n")),
                        ("the-end-of-lerp", three("torch.lerp", "x", "n", "x")),
                        ("a-base-of-copysign", three("torch.copysign", "n", "x")),
                        ("a-bound-beside-a-tensor", three("torch.clamp", "x", "x", "n")),
                        ("a-method", full(lambda g, x, n: g.method("minimum", x, n, **same)))]:
        fold(f"no-number-in-{name}", graph, 2, refusal("unsupported-reader", "full"))
    for name, graph in [("the-weight-of-lerp", three("torch.lerp", "x", "x", "n")),
                        ("the-first-of-add", three("torch.add", "n", "x")),
                        ("the-base-of-pow", three("torch.pow", "n", "x")),
                        ("the-sign-of-copysign", three("torch.copysign", "x", "n")),
                        ("a-method-mul", full(lambda g, x, n: g.method("mul", x, n, **same)))]:
        fold(f"number-in-{name}", graph, 3)
    fold("not-an-attribute-of-sizes",
         asked(lambda g, x: [g.fn("builtins.getattr", g.fn("builtins.getattr", x, "shape"), "numel"), 12]),
         0, refusal("unknown-operator", "getattr"))
    fold("not-alone", full(lambda g, x, n: g.fn("operator.add", n, n, shape=(), **FLOAT)), 2,
         refusal("unsupported-reader", "full"))
    fold("not-stacked", full(lambda g, x, n: g.fn("torch.stack", [n, n], shape=(2,), **FLOAT)), 2,
         refusal("unsupported-reader", "full"))
    written = lambda g, x, n: g.method("add_", n, 1.0, shape=(), **FLOAT)
    fold("not-written", full(written), 2, refusal("mutated", "full"))
