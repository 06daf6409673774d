"""FoldShapes, MergeViews and UnpackLinear, in both dialects."""
from make_cases import Graph, N, Raw, case, refusal

FLOAT = {"dtype": "float32"}
DTYPE = lambda name: Raw({"$dtype": name})
ALL = slice(None)


def cases():
    known_sizes()
    known_dtypes()
    numbers_in_tensors()
    reshapes()
    permutations()
    expansions()
    packed()


# ---- FoldShapes


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
    fold("shape-and-sum", asked(lambda g, x: [g.fn("operator.add", item(g, g.fn("builtins.getattr", x, "shape"), slice(None, 1)), (12,))]), 3)
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
    fold("not-for-an-unknown-operator", g.output(g.fn("my.function", g.method("size", x))), 0, refusal("unknown-operator", "size"))

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
    fold("not-a-number-of-another-dtype", full(lambda g, x, n: g.fn("operator.truediv", x, n, shape=(2, 8), **FLOAT), "float64"), 2,
         refusal("unsupported-reader", "full"))
    three = lambda target, *order: full(lambda g, x, n: g.fn(target, *[n if o == "n" else x for o in order], **same))
    for name, graph in [("maximum", three("torch.maximum", "x", "n")), ("atan2", three("torch.atan2", "n", "x")),
                        ("hypot", three("torch.hypot", "x", "n")), ("addcmul", three("torch.addcmul", "x", "x", "n")),
                        ("the-end-of-lerp", three("torch.lerp", "x", "n", "x")),
                        ("a-base-of-copysign", three("torch.copysign", "n", "x")),
                        ("a-bound-beside-a-tensor", three("torch.clamp", "x", "x", "n")),
                        ("a-method", full(lambda g, x, n: g.method("minimum", x, n, **same)))]:
        fold(f"no-number-in-{name}", graph, 2, refusal("unsupported-reader", "full"))
    for name, graph in [("the-weight-of-lerp", three("torch.lerp", "x", "x", "n")), ("the-first-of-add", three("torch.add", "n", "x")),
                        ("the-base-of-pow", three("torch.pow", "n", "x")), ("the-sign-of-copysign", three("torch.copysign", "x", "n")),
                        ("a-method-mul", full(lambda g, x, n: g.method("mul", x, n, **same)))]:
        fold(f"number-in-{name}", graph, 3)
    fold("not-an-attribute-of-sizes", asked(lambda g, x: [g.fn("builtins.getattr", g.fn("builtins.getattr", x, "shape"), "numel"), 12]),
         0, refusal("unknown-operator", "getattr"))
    fold("not-alone", full(lambda g, x, n: g.fn("operator.add", n, n, shape=(), **FLOAT)), 2, refusal("unsupported-reader", "full"))
    fold("not-stacked", full(lambda g, x, n: g.fn("torch.stack", [n, n], shape=(2,), **FLOAT)), 2,
         refusal("unsupported-reader", "full"))
    written = lambda g, x, n: g.method("add_", n, 1.0, shape=(), **FLOAT)
    fold("not-written", full(written), 2, refusal("mutated", "full"))


# ---- MergeViews


def merge(name, graph, applied, *refused):
    case("MergeViews", name, graph, applied, *refused)


def chain(*calls, shape=(2, 3, 4), end=None):
    """relu(x), then the calls, each with the shape of its result; then what reads the last one."""
    g = Graph()
    y = g.relu(g.input(shape=shape))
    for target, args, result in calls:
        make = g.fn if "." in target else g.method
        y = make(target, y, *args, shape=result, **FLOAT)
    read = end or (lambda g, y: g.fn("torch.tanh", y, shape=g.names[y][0], **FLOAT))
    return g.output(read(g, y))


def total(g, y):
    """What is read of y whatever order its elements lie in."""
    return g.fn("torch.sum", y, shape=(), **FLOAT)


def reshapes():
    merge("two-views", chain(("view", (6, 4), (6, 4)), ("view", (-1,), (24,))), 1)
    merge("three-and-more", chain(("view", (6, 4), (6, 4)), ("unsqueeze", (0,), (1, 6, 4)), ("reshape", ((12, 2),), (12, 2)),
                                  ("flatten", (), (24,))), 1)
    merge("sizes-of-unsqueeze-are-written", chain(("reshape", (6, 4), (6, 4)), ("unsqueeze", (1,), (6, 1, 4)), end=total), 1)
    merge("a-size-of-one-orders-axes", chain(("reshape", (6, 4), (6, 4)), ("unsqueeze", (1,), (6, 1, 4))), 0,
          refusal("needs-contiguous", "unsqueeze", "reshape"))
    merge("contiguous-between", chain(("transpose", (1, 2), (2, 4, 3)), ("contiguous", (), (2, 4, 3)), ("view", (2, 12), (2, 12))), 1)
    merge("aten-two-views", chain(("torch.ops.aten.view.default", ([6, 4],), (6, 4)),
                                  ("torch.ops.aten.unsqueeze.default", (0,), (1, 6, 4)),
                                  end=lambda g, y: g.fn("torch.ops.aten.sum.default", y, shape=(), **FLOAT)), 1)
    merge("symbolic-sizes-are-kept", chain(("flatten", (1,), ("s0", 12)), ("view", (-1, 3, 4), ("s0", 3, 4)), shape=("s0", 3, 4)), 1)
    merge("not-sizes-that-are-symbolic", chain(("flatten", (1,), ("s0", 12)), ("unsqueeze", (0,), (1, "s0", 12)), shape=("s0", 3, 4)),
          0, refusal("unknown-shape", "unsqueeze", "flatten"))
    merge("not-into-contiguous", chain(("flatten", (1,), (2, 12)), ("contiguous", (), (2, 12))), 0)
    merge("not-a-view-of-bits", chain(("view", (6, 4), (6, 4)), ("view", (DTYPE("float32"),), (6, 4))), 1)
    merge("not-across-a-permutation", chain(("flatten", (1,), (2, 12)), ("transpose", (0, 1), (12, 2)), ("flatten", (), (24,))), 0)

    g = Graph()
    g.module("flat", "torch.nn.Flatten", {"start_dim": 1})
    x = g.relu(g.input(shape=(2, 3, 4)))
    y = g.call("flat", g.method("unsqueeze", x, 2, shape=(2, 3, 1, 4), **FLOAT), (2, 12), "float32")
    merge("module", g.output(g.fn("torch.tanh", y, shape=(2, 12), **FLOAT)), 1)

    g = Graph()
    x = g.relu(g.input(shape=(2, 3, 4)))
    first = g.method("flatten", x, 1, shape=(2, 12), **FLOAT)
    second = g.method("flatten", first, name="second", shape=(24,), **FLOAT)
    merge("not-with-another-reader", g.output(g.fn("torch.tanh", second, shape=(24,), **FLOAT), g.fn("torch.exp", first, shape=(2, 12), **FLOAT)), 0)

    write = lambda g, y: g.fn("torch.tanh", g.add_(y), shape=g.names[y][0], **FLOAT)
    merge("not-when-written", chain(("view", (6, 4), (6, 4)), ("view", (-1,), (24,)), end=write), 0,
          refusal("mutated", "view_1", "view"))
    merge("not-a-result", chain(("transpose", (1, 2), (2, 4, 3)), ("contiguous", (), (2, 4, 3)), ("view", (2, 12), (2, 12)),
                                end=lambda g, y: y), 0, refusal("graph-output", "view", "contiguous"))
    strided = lambda g, y: g.fn("torch.tanh", g.method("as_strided", y, (2, 2), (12, 1), shape=(2, 2), **FLOAT), shape=(2, 2), **FLOAT)
    merge("not-when-strides-are-read", chain(("transpose", (1, 2), (2, 4, 3)), ("contiguous", (), (2, 4, 3)),
                                             ("view", (2, 12), (2, 12)), end=strided), 0,
          refusal("needs-contiguous", "view", "contiguous"))


def permutations():
    merge("two-transposes", chain(("transpose", (1, 2), (2, 4, 3)), ("transpose", (0, -1), (3, 4, 2))), 1)
    merge("permute-and-transpose", chain(("permute", (2, 0, 1), (4, 2, 3)), ("transpose", (0, 2), (3, 2, 4))), 1)
    merge("transposes-of-a-matrix", chain(("t", (), (4, 2)), ("transpose", (0, 1), (2, 4)), shape=(2, 4)), 1)
    merge("aten-two-transposes", chain(("torch.ops.aten.transpose.int", (1, 2), (2, 4, 3)),
                                       ("torch.ops.aten.permute.default", ([2, 1, 0],), (3, 4, 2)),
                                       end=lambda g, y: g.fn("torch.ops.aten.tanh.default", y, shape=(3, 4, 2), **FLOAT)), 1)
    merge("symbolic-transposes", chain(("transpose", (1, 2), ("s0", 4, 3)), ("transpose", (0, 1), (4, "s0", 3)), shape=("s0", 3, 4)), 1)
    write = lambda g, y: g.fn("torch.tanh", g.add_(y), shape=g.names[y][0], **FLOAT)
    merge("not-transposes-that-are-written", chain(("transpose", (1, 2), (2, 4, 3)), ("transpose", (0, 1), (4, 2, 3)), end=write), 0,
          refusal("mutated", "transpose_1", "transpose"))

    turned = [("permute", (0, 2, 1), (2, 4, 3)), ("contiguous", (), (2, 4, 3)), ("permute", (0, 2, 1), (2, 3, 4))]
    summed = lambda g, y: g.fn("torch.sum", g.method("contiguous", y, shape=g.names[y][0], **FLOAT), shape=(), **FLOAT)
    merge("a-copy-between-permutations", chain(*turned, end=summed), 1)
    merge("a-copy-between-permutations-whose-strides-are-read", chain(*turned, end=lambda g, y: summed(g, g.method(
        "view", y, -1, shape=(24,), **FLOAT))), 0, refusal("needs-contiguous", "permute_1", "contiguous", "permute"))
    merge("a-copy-behind-a-permutation", chain(*turned[:2], end=summed), 0)

    def asserted(*more):
        """An assertion about the first of two, as torch.export writes it of what is cast."""
        g = Graph()
        y = g.fn("torch.ops.aten.relu.default", g.input(shape=(2, 3, 4)), shape=(2, 3, 4), **FLOAT)
        first = g.fn("torch.ops.aten.permute.default", y, [0, 2, 1], shape=(2, 4, 3), **FLOAT)
        g.fn("torch.ops.aten._assert_tensor_metadata.default", first, *more, name="assertion", kwargs={"dtype": DTYPE("float32")})
        second = g.fn("torch.ops.aten.transpose.int", first, 0, 1, shape=(4, 2, 3), **FLOAT)
        return g.output(g.fn("torch.ops.aten.tanh.default", second, shape=(4, 2, 3), **FLOAT))

    merge("aten-asserted-between", asserted(), 1)
    merge("aten-not-whose-sizes-are-asserted", asserted([2, 4, 3]), 0)

    def read_elsewhere(which):
        g = Graph()
        y, made = g.relu(g.input(shape=(2, 3, 4))), []
        for target, args, shape in turned:
            y = g.method(target, y, *args, shape=shape, **FLOAT)
            made.append(y)
        return g.output(summed(g, y), g.fn("torch.exp", made[which], shape=(2, 4, 3), **FLOAT))

    merge("a-copy-that-is-read-elsewhere", read_elsewhere(1), 0)
    merge("a-copy-of-what-is-read-elsewhere", read_elsewhere(0), 0)


def expansions():
    """unsqueeze(0) and expand: the expand puts dimensions in front as well."""
    front = ("unsqueeze", (0,), (1, 2, 3, 4))
    merge("expanded-in-front", chain(front, ("expand", (5, -1, -1, -1), (5, 2, 3, 4))), 1)
    merge("expanded-in-front-by-sizes", chain(("view", (1, 1, 2, 3, 4), (1, 1, 2, 3, 4)), ("expand", ((5, 6, 2, -1, 4),), (5, 6, 2, 3, 4))), 1)
    merge("expanded-in-front-and-behind", chain(("unsqueeze", (0,), (1, 2, 1, 4)), ("expand", (5, -1, 3, 4), (5, 2, 3, 4)), shape=(2, 1, 4)), 1)
    merge("aten-expanded-in-front", chain(
        ("torch.ops.aten.permute.default", ([2, 0, 1],), (4, 2, 3)), ("torch.ops.aten.unsqueeze.default", (-4,), (1, 4, 2, 3)),
        ("torch.ops.aten.expand.default", ([5, -1, 2, 3],), (5, 4, 2, 3)), end=lambda g, y: g.fn("torch.ops.aten.tanh.default", y, shape=(5, 4, 2, 3), **FLOAT)), 1)
    merge("expanded-symbolic-in-front", chain(("unsqueeze", (0,), (1, "s0", 4)), ("expand", (5, -1, -1), (5, "s0", 4)), shape=("s0", 4)), 1)
    # -1 is a dimension that stays; one in the middle is new to expand
    merge("not-expanded-as-it-is", chain(("unsqueeze", (0,), (1, 2, 3, 4)), ("expand", (-1, 2, 3, 4), (1, 2, 3, 4))), 0)
    merge("not-expanded-in-the-middle", chain(("unsqueeze", (1,), (2, 1, 3, 4)), ("expand", (2, 5, 3, 4), (2, 5, 3, 4))), 0)
    merge("a-chain-before-an-expansion", chain(("flatten", (1,), (2, 12)), ("unsqueeze", (0,), (1, 2, 12)), ("expand", (5, 2, 12), (5, 2, 12)), end=total), 1)

    def as_other(of_itself):
        g = Graph()
        x, y = g.relu(g.input(shape=(3, 4))), g.input("y", shape=(2, 3, 4))
        view = g.method("unsqueeze", x, 0, shape=(1, 3, 4), **FLOAT)
        wide = g.method("expand_as", view, view if of_itself else y, shape=(1 if of_itself else 2, 3, 4), **FLOAT)
        return g.output(g.fn("torch.tanh", wide, shape=g.names[wide][0], **FLOAT))

    merge("expanded-as-another", as_other(False), 1)
    merge("not-expanded-as-itself", as_other(True), 0)
    merge("not-expanded-with-a-new-one-that-stays", chain(("unsqueeze", (0,), (1, 2, 3, 4)), ("expand", (3, -1, 2, 3, 4), (3, 1, 2, 3, 4))), 0)
    merge("expanded-by-two", chain(("unsqueeze", (0,), (1, 2, 3, 4)), ("expand", (3, 5, 2, -1, 4), (3, 5, 2, 3, 4))), 1)
    # the stride of a dimension of size 1 is that of the one behind it, which the expand may make 0
    merge("not-expanded-to-one", chain(("view", (1, 1, 2, 3, 4), (1, 1, 2, 3, 4)), ("expand", (1, 6, 2, 3, 4), (1, 6, 2, 3, 4))), 0)
    g = Graph()
    x = g.relu(g.input(shape=(3, 4)))
    wide = g.method("expand", g.method("unsqueeze", x, 0, shape=(1, 3, 4), **FLOAT), 2, -1, -1, shape=(2, 3, 4), **FLOAT)
    g.add_(x)
    merge("not-expanded-and-written", g.output(g.fn("torch.tanh", wide, shape=(2, 3, 4), **FLOAT)), 0, refusal("mutated", "expand", "unsqueeze"))

    g = Graph()
    x = g.relu(g.input(shape=(3, 4)))
    view = g.method("unsqueeze", x, 0, shape=(1, 3, 4), **FLOAT)
    wide = g.method("expand", view, 2, -1, -1, shape=(2, 3, 4), **FLOAT)
    merge("not-expanded-with-another-reader", g.output(g.fn("torch.tanh", wide, shape=(2, 3, 4), **FLOAT), g.fn("torch.exp", view, shape=(1, 3, 4), **FLOAT)), 0)


# ---- UnpackLinear


def packed():
    unpack = lambda name, graph, applied, *refused: case("UnpackLinear", name, graph, applied, *refused)

    def layer(aten=False, shape=(2, 3, 4), before=(6, 4), after=(2, 3, 5), between=None, tensor_dtype="float32", dtype=None):
        g = Graph()
        g.module("c", "torch.nn.Module", parameters={"weight": g.tensor("c.weight", [4, 5], tensor_dtype),
                                                     "bias": g.tensor("c.bias", [5], tensor_dtype)})
        known = {"dtype": dtype or tensor_dtype}
        x = g.relu(g.input(shape=shape, **known))
        bias, weight = g.get_attr("c.bias", (5,), tensor_dtype, "bias"), g.get_attr("c.weight", (4, 5), tensor_dtype, "weight")
        view = "torch.ops.aten.view.default" if aten else "view"
        sizes = (lambda *sizes: [list(sizes)]) if aten else (lambda *sizes: sizes)
        make = g.fn if aten else g.method
        flat = make(view, x, *sizes(-1, before[-1]), shape=before, name="flat", **known)
        if between:
            between(g, x, flat, weight)
        product = g.fn("torch.ops.aten.addmm.default" if aten else "torch.addmm", bias, flat, weight, name="product",
                       shape=(before[0], 5), **known)
        y = make(view, product, *sizes(*after), shape=after, name="back", **known)
        g.output(g.fn("torch.ops.aten.tanh.default" if aten else "torch.tanh", y, shape=after, **known))
        return g

    unpack("three-dimensions", layer(), 1)
    unpack("aten-three-dimensions", layer(aten=True), 1)
    unpack("four-dimensions", layer(shape=(2, 1, 3, 4), after=(2, 1, 3, 5)), 1)
    unpack("symbolic", layer(shape=("s0", 3, 4), before=("3*s0", 4), after=("s0", 3, 5)), 1)
    unpack("bfloat16", layer(tensor_dtype="bfloat16"), 1)
    unpack("dtype", layer(tensor_dtype="bfloat16", dtype="float32"), 0, refusal("dtype", "product"))
    unpack("not-back-to-other-dimensions", layer(after=(3, 2, 5)), 0, refusal("shape-mismatch", "product"))
    unpack("not-across-the-last-dimension", layer(shape=(2, 3, 2, 2), after=(2, 3, 1, 5)), 0, refusal("shape-mismatch", "product"))
    unpack("input-mutated", layer(between=lambda g, x, flat, weight: g.add_(x)), 0, refusal("input-mutated", "product"))
    unpack("weight-mutated", layer(between=lambda g, x, flat, weight: g.add_(weight)), 0, refusal("tensor-mutated", "product"))
    other = lambda g, x, flat, weight: g.fn("torch.tanh", flat, shape=(6, 4), **FLOAT)
    unpack("reshape-with-another-reader", layer(between=other), 1)

    g = layer()
    g.nodes.pop()
    del g.names["output"]
    g.output(N("tanh"), N("product"))
    unpack("not-with-another-reader", g, 0)

    g = layer()
    g.nodes.pop()
    del g.names["output"]
    g.output(N("tanh"), g.fn("torch.exp", N("weight"), shape=(4, 5), **FLOAT))
    unpack("weight-with-another-reader", g, 1)
