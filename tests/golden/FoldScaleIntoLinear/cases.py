"""FoldScaleIntoLinear. The number in a name (trap-38-…) is that of a known failure of other optimisers."""
import base64
import struct

from make_cases import Graph, case, refusal

ATEN = "torch.ops.aten."
NAME = "FoldScaleIntoLinear"


def constant(g, name="c", shape=(3,), dtype="float32", values=None):
    """A weight; with `values` its bytes are in the document."""
    letter = {"float32": "f", "float16": "e"}.get(dtype)
    data = {"data": base64.b64encode(struct.pack(f"<{len(values)}{letter}", *values)).decode()} if values else {}
    g.tensor(f"layer.{name}", shape, dtype, **data)
    module = g.modules.setdefault("layer", {"path": "layer", "type": "torch.nn.Module", "parameters": {}})
    module["parameters"][name] = f"layer.{name}"
    return g.get_attr(f"layer.{name}", list(shape), dtype)


def fn(g, target, a, b, shape=(2, 3), dtype="float32", name=None):
    return g.fn(target, a, b, shape=shape, dtype=dtype, name=name or "y")


def after(target, value, swap=False, bias=True, out=3, dtype="float32", result=None, training=False):
    """x -- Linear -- y, where y = target(fc, value)."""
    g = Graph()
    x = g.input(dtype=dtype)
    y = g.linear("fc", x, out, bias=bias, dtype=dtype, training=training)
    if callable(value):
        value = value(g)
    a, b = (value, y) if swap else (y, value)
    return g.output(fn(g, target, a, b, (2, out), result or dtype))


def before(target, value, bias=True, dtype="float32", shape=(2, 4), of=None):
    g = Graph()
    x = g.input(shape=shape, dtype=of or dtype)
    if callable(value):
        value = value(g)
    y = fn(g, target, x, value, (2, 4), dtype)
    return g.output(g.linear("fc", y, 3, bias=bias, dtype=dtype))


def aten_linear(g, x, out=3, inputs=4, bias=True, owner="fc"):
    g.tensor(f"{owner}.weight", (out, inputs))
    if bias:
        g.tensor(f"{owner}.bias", (out,))
    g.module(owner, "torch.nn.Module", None, {"weight": f"{owner}.weight", **({"bias": f"{owner}.bias"} if bias else {})})
    reads = [g.get_attr(f"{owner}.weight", [out, inputs])] + ([g.get_attr(f"{owner}.bias", [out])] if bias else [])
    return g.fn(ATEN + "linear.default", x, *reads, shape=(2, out), dtype="float32", name="linear")


def cases():
    def fold(name, graph, applied, *refused, **more):
        case(NAME, name, graph, applied, *refused, **more)

    # ---- after

    fold("factor", after("operator.mul", 0.25), 1)
    fold("factor-first", after("operator.mul", 0.25, swap=True), 1)
    fold("factor-without-bias", after("operator.mul", 0.25, bias=False), 1)
    fold("division", after("operator.truediv", 8), 1)
    fold("addend", after("torch.add", 1.5), 1)
    fold("addend-without-bias", after("torch.add", 1, bias=False), 1)
    fold("difference", after("torch.sub", 1.5), 1)
    fold("factor-by-channel", after("operator.mul", constant), 1)
    known = lambda *values, **more: lambda g: constant(g, values=values, **more)
    fold("division-by-channel", after("operator.truediv", known(2.0, -0.5, 3.0, shape=(1, 3))), 1)
    fold("addend-by-channel", after("operator.add", constant), 1)
    fold("addend-by-channel-without-bias", after("operator.add", constant, bias=False), 1)
    fold("factor-is-a-tensor-of-one", after("operator.mul", lambda g: constant(g, shape=())), 1)
    fold("float16", after("operator.mul", 0.25, dtype="float16"), 1)
    fold("float16-division", after("operator.truediv", 8.0, dtype="float16"), 1)
    fold("float16-addend-below-half-a-step", after("operator.add", 15.5, dtype="float16"), 1)
    fold("float16-factors-in-range", after("operator.mul", lambda g: constant(g, dtype="float16", values=(0.5, -1.0, 0.0625)),
                                           dtype="float16"), 1)
    fold("one-output", after("operator.mul", lambda g: constant(g, shape=(1,)), out=1), 1)

    def aten(target, value, bias=True):
        g = Graph()
        y = aten_linear(g, g.input(), bias=bias)
        value = value(g) if callable(value) else value
        return g.output(fn(g, ATEN + target, y, value))

    fold("aten-factor", aten("mul.Tensor", 0.25), 1)
    fold("aten-division-by-channel", aten("div.Tensor", known(1.0, 4.0, -0.25)), 1)
    fold("aten-addend-without-bias", aten("add.Tensor", 1.5, bias=False), 1)
    fold("aten-addend-scalar", aten("add.Scalar", 2), 1)

    def packed(target, value):
        g = Graph()
        g.tensor("fc.weight", (4, 3))
        g.tensor("fc.bias", (3,))
        g.module("fc", "torch.nn.Module", None, {"weight": "fc.weight", "bias": "fc.bias"})
        x = g.input()
        b, w = g.get_attr("fc.bias", [3]), g.get_attr("fc.weight", [4, 3])
        y = g.fn("torch.addmm", b, x, w, shape=(2, 3), dtype="float32")
        return g.output(fn(g, target, y, value(g)))

    fold("packed-factor-by-channel", packed("operator.mul", constant), 1)
    fold("packed-addend", packed("operator.sub", lambda g: 2), 1)

    def conv(target, value, is_after=True, padding=0, **more):
        g = Graph()
        x = g.input(shape=(1, 4, 5, 5))
        value = value(g) if callable(value) else value
        size = 5 if padding else 3
        config = {"padding": (padding, padding)}
        if is_after:
            y = g.conv("conv", x, 6, config=config, **more)
            g.names[y] = ((1, 6, size, size), "float32")
            g.nodes[-1]["meta"]["shape"] = [1, 6, size, size]
            return g.output(fn(g, target, y, value, (1, 6, size, size)))
        y = fn(g, target, x, value, (1, 4, 5, 5))
        z = g.conv("conv", y, 6, config=config, **more)
        g.nodes[-1]["meta"]["shape"] = [1, 6, size, size]
        return g.output(z)

    fold("conv-factor", conv("operator.mul", 2), 1)
    fold("conv-factor-by-channel", conv("operator.mul", lambda g: constant(g, shape=(6, 1, 1))), 1)
    fold("conv-padded-addend-by-channel", conv("operator.add", lambda g: constant(g, shape=(1, 6, 1, 1)), padding=1), 1)
    fold("conv-groups-factor-before", conv("operator.mul", lambda g: constant(g, shape=(4, 1, 1)), False, 1, groups=2), 1)
    fold("conv-addend-before", conv("operator.add", lambda g: constant(g, shape=(4, 1, 1)), False, groups=2), 1)
    fold("conv-padded-addend-before", conv("operator.add", 1.0, False, 1), 0, refusal("padded", "y", "conv"))
    fold("conv-not-by-channel", conv("operator.mul", lambda g: constant(g, shape=(3,))), 0,
         refusal("shape-mismatch", "conv", "y"))

    # ---- before

    fold("factor-before", before("operator.mul", 0.25), 1)
    fold("division-before", before("operator.truediv", 8), 1)
    fold("addend-before", before("operator.add", 0.5), 1)
    fold("addend-before-without-bias", before("operator.add", lambda g: constant(g, shape=(4,)), bias=False), 1)
    fold("difference-before", before("operator.sub", lambda g: constant(g, shape=(4,))), 1)
    fold("factor-before-by-channel", before("operator.mul", lambda g: constant(g, shape=(4,))), 1)

    g = Graph()
    y = fn(g, ATEN + "mul.Tensor", g.input(), constant(g, shape=(4,)), (2, 4))
    g.output(aten_linear(g, y))
    fold("aten-factor-before", g, 1)

    fold("before-broadcasts", before("operator.mul", lambda g: constant(g, shape=(4,)), shape=(2, 1)), 0,
         refusal("shape-mismatch", "y", "fc"))
    fold("before-of-integers", before("operator.mul", 0.5, of="int64"), 0, refusal("dtype", "y", "fc"))

    g = Graph()
    x = g.input()
    y = fn(g, "operator.mul", x, 2.0, (2, 4))
    g.add_(x)
    g.output(g.linear("fc", y, 3))
    fold("input-mutated", g, 0, refusal("input-mutated", "y", "fc"))

    g = Graph()
    x = g.input()
    y = g.linear("fc", fn(g, "operator.mul", x, 2.0, (2, 4)), 3)
    g.add_(x)
    fold("input-written-later", g.output(y), 0, refusal("mutated", "y", "fc"))

    g = Graph()
    y = fn(g, "operator.mul", g.input(), 2.0, (2, 4))
    g.output(g.linear("a", y, 3), g.linear("b", y, 3))
    fold("before-two-layers", g, 0, refusal("shared-output", "y", "a"))

    g = Graph()
    y = fn(g, "operator.mul", g.input(), 2.0, (2, 4))
    g.output(g.linear("fc", y, 3), y)
    fold("trap-38-scaled-input-is-an-output", g, 0, refusal("graph-output", "y", "fc"))

    # ---- both

    g = Graph()
    y = g.linear("fc", fn(g, "operator.mul", g.input(), 2.0, (2, 4)), 3)
    g.output(fn(g, "operator.add", y, 1.0))
    fold("before-and-after", g, 2)

    g = Graph()
    y = fn(g, "operator.mul", g.linear("a", g.input(), 4), 2.0, (2, 4))
    g.output(g.linear("b", y, 3))
    fold("between-two-layers", g, 1)

    g = Graph()
    y = fn(g, "operator.mul", g.linear("fc", g.input(), 3), 2.0)
    g.output(fn(g, "operator.mul", y, 3.0))
    fold("chain", g, None, passes=[NAME, NAME], expected=[(NAME, 1, []), (NAME, 0, [refusal("already-transformed", "fc")])])

    def row(*steps, split=False, behind=lambda g, y: y):
        """fc of x, and then one constant after another."""
        g = Graph()
        y = behind(g, g.linear("fc", g.input(), 3))
        values = [y]
        for i, (target, value) in enumerate(steps):
            values.append(fn(g, target, values[-1], value(g) if callable(value) else value, g.names[y][0], name=f"y{i}"))
        return g.output(*values[-2 if split else -1:])

    def viewed(g, y):
        return g.method("view", y, 3, 2, shape=(3, 2), dtype="float32", name="v")

    mul, add = "operator.mul", "torch.add"
    fold("row", row((mul, 2.0), (add, 3.0), ("torch.sub", constant), ("operator.truediv", 4)), 1)
    fold("row-ends-at-zero", row((mul, 2.0), (mul, 0), (mul, 3.0)), 1, refusal("zero-factor", "fc", "y1"))
    fold("row-is-read-between", row((mul, 2.0), (mul, 3.0), split=True), 1, refusal("graph-output", "fc", "y1"))
    fold("row-behind-a-view", row((mul, 2.0), (mul, 3.0), behind=viewed), 1)
    fold("row-behind-a-view-has-no-addend", row((mul, 2.0), (add, 3.0), behind=viewed), 1)
    fold("row-is-long", row(*[(mul, 2.0)] * 18), 1)
    g = Graph()
    y = fn(g, mul, fn(g, mul, g.linear("fc", g.input(), 3), 2.0), 3.0, name="z")
    fold("row-between-two-layers", g.output(g.linear("other", y, 3)), 2)

    # ---- behind views and products

    def attention(aten, reads_scores=False):
        g = Graph()
        x = g.input(shape=(2, 8))
        if aten:
            q, k = aten_linear(g, x, 8, 8, owner="q"), aten_linear(g, x, 8, 8, owner="k")
        else:
            q, k = g.linear("q", x, 8), g.linear("k", x, 8)
        p = (lambda n, o: ATEN + f"{n}.{o}") if aten else (lambda n, o: f"torch.{n}")
        meta = lambda *shape: {"shape": shape, "dtype": "float32"}
        split = lambda v: g.fn(p("transpose", "int"), g.fn(p("reshape", "default"), v, [2, 2, 4], **meta(2, 2, 4)), 0, 1,
                               **meta(2, 2, 4))
        kt = g.fn(p("transpose", "int"), split(k), 1, 2, **meta(2, 4, 2))
        scores = g.fn(p("matmul", "default"), split(q), kt, name="scores", **meta(2, 2, 2))
        scaled = g.fn(p("div", "Tensor"), scores, 2.0, name="scaled", **meta(2, 2, 2))
        return g.output(*([scaled, scores] if reads_scores else [scaled]))

    fold("attention", attention(False), 1)
    fold("aten-attention", attention(True), 1)
    fold("attention-scores-are-an-output", attention(False, True), 0, refusal("graph-output", "q", "scaled"))

    g = Graph()
    q = g.linear("q", g.input(shape=(2, 4)), 4)
    size = g.method("size", q, 0)
    view = g.method("view", q, size, 2, 2, shape=(2, 2, 2), dtype="float32")
    g.output(fn(g, "operator.mul", view, 0.5, (2, 2, 2)))
    fold("its-size-is-read-too", g, 1)

    g = Graph()
    q = g.linear("q", g.input(shape=(2, 2)), 2)
    square = g.fn("torch.matmul", q, q, shape=(2, 2), dtype="float32")
    g.output(fn(g, "operator.mul", square, 0.5, (2, 2)))
    fold("not-a-product-with-itself", g, 0)

    g = Graph()
    q = g.linear("q", g.input(), 3)
    g.output(fn(g, "operator.add", g.method("view", q, 3, 2, shape=(3, 2), dtype="float32"), 0.5, (3, 2)))
    fold("not-an-addend-behind-a-view", g, 0, refusal("views-between", "q", "y"))

    g = Graph()
    g.output(fn(g, "operator.mul", g.relu(g.linear("fc", g.input(), 3)), 0.5))
    fold("not-behind-an-activation", g, 0)

    # ---- refusals

    y = lambda reason: refusal(reason, "fc", "y")
    fold("zero", after("operator.mul", 0.0), 0, y("zero-factor"))
    fold("division-by-zero", after("operator.truediv", 0), 0, y("zero-factor"))
    fold("division-by-a-weight-with-a-zero", after("operator.truediv", known(1.0, 0.0, 2.0)), 0, y("zero-factor"))
    fold("division-by-a-weight-with-a-negative-zero", after("operator.truediv", known(1.0, -0.0, 2.0)), 0, y("zero-factor"))
    fold("division-by-a-weight-without-bytes", after("operator.truediv", constant), 0, y("zero-factor"))
    fold("division-by-a-weight-that-is-subnormal", after("operator.truediv", known(1.0, 1e-39, 2.0)), 0,
         y("constant-out-of-range"))
    fold("factors-that-are-not-finite", after("operator.mul", known(1.0, float("inf"), 2.0)), 0, y("unsupported-constant"))
    fold("division-by-what-has-no-inverse", after("operator.truediv", 3e38), 0, y("constant-out-of-range"))
    half = lambda *values: known(*values, dtype="float16")
    for name, target, value in [("factor", "operator.mul", 1.5), ("small-factor", "operator.mul", 0.01),
                                ("divisor", "operator.truediv", 0.5),
                                ("large-divisor", "operator.truediv", 100.0), ("addend", "operator.add", 16.0),
                                ("factors", "operator.mul", half(0.5, 2.0, 0.25)),
                                ("addends", "operator.add", half(0.5, 100.0, 1.0)),
                                ("factors-without-bytes", "operator.mul", lambda g: constant(g, dtype="float16"))]:
        fold(f"float16-{name}", after(target, value, dtype="float16"), 0, y("constant-out-of-range"))
    fold("float16-addend-before", before("operator.add", 0.5, dtype="float16"), 0, refusal("constant-out-of-range", "y", "fc"))
    fold("inf", after("operator.mul", float("inf")), 0, y("unsupported-constant"))
    fold("nan", after("operator.add", float("nan")), 0, y("unsupported-constant"))
    fold("out-of-range", after("operator.mul", 1e5, dtype="float16"), 0, y("constant-out-of-range"))
    fold("subnormal", after("operator.mul", 1e-39), 0, y("constant-out-of-range"))
    fold("wider-constant", after("operator.mul", lambda g: constant(g, dtype="float64"), result="float64"), 0, y("dtype"))
    fold("integer-constant", after("operator.mul", lambda g: constant(g, dtype="int64")), 0, y("unsupported-dtype"))
    fold("not-by-channel", after("operator.mul", lambda g: constant(g, shape=(2, 3))), 0, y("shape-mismatch"))
    fold("more-dimensions", after("operator.mul", lambda g: constant(g, shape=(1, 1, 3))), 0, y("shape-mismatch"))
    fold("not-a-difference-from", after("operator.sub", 1.0, swap=True), 0)
    fold("not-a-division-of", after("operator.truediv", 1.0, swap=True), 0)
    fold("not-a-bool", after("operator.mul", True), 0)

    def mutated(g):
        c = constant(g)
        g.add_(c)
        return c

    fold("constant-mutated", after("operator.mul", mutated), 0, y("tensor-mutated"))

    g = Graph()
    v = g.linear("fc", g.input(), 3)
    g.output(fn(g, "operator.imul", v, 2.0))
    fold("not-in-place", g, 0)

    g = Graph()
    v = g.linear("fc", g.input(), 3)
    g.output(fn(g, "operator.mul", v, 2.0), v)
    fold("trap-38-layer-is-an-output", g, 0, y("graph-output"))

    g = Graph()
    v = g.linear("fc", g.input(), 3)
    g.output(fn(g, "operator.mul", v, 2.0), g.relu(v))
    fold("layer-read-otherwise", g, 0, y("shared-output"))

    g = Graph()
    x = g.input()
    v = g.linear("fc", x, 3)
    w = g.call("fc", x, (2, 3))
    g.output(fn(g, "operator.mul", v, 2.0), g.relu(w))
    fold("layer-called-twice", g, 0, y("shared-module"))

    g = Graph()
    v = g.linear("fc", g.input(), 3)
    w = g.get_attr("fc.weight", [3, 4])
    g.output(fn(g, "operator.mul", v, 2.0), g.relu(w))
    fold("weight-read", g, 0, y("module-read"))

    g = Graph()
    x = g.input()
    a = g.linear("fc", x, 3)
    b = g.linear("other", x, 3, weight="fc.weight")
    g.output(fn(g, "operator.mul", a, 2.0), b)
    fold("tied-weight-stays", g, 1)

    g = Graph()
    v = g.linear("fc", g.input(), 3)
    g.fn("torch._C._set_grad_enabled", False)
    g.output(fn(g, "operator.mul", v, 2.0))
    fold("mode-switched", g, 0, y("mode-switched"))
