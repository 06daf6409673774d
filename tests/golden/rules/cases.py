"""Rules as data: those of ../rules.json. The number in a name (trap-34-…) is that of a known failure of other optimisers.
docs/rules.md shows two more, which are files here."""
from make_cases import Graph, case, refusal

SHAPE = {"shape": (2, 4), "dtype": "float32"}
SPELLINGS = {"operator": "operator.{}", "torch": "torch.{}", "aten": "torch.ops.aten.{}.Tensor"}


def cases():
    replaced_in_place()
    divisions()
    left_out()
    fused()
    several_roots()
    computed()
    spelled()
    refused()
    weights()


def rule(name, graph, applied, *refused, of, passes=None):
    case("rules", name, graph, None, passes=passes or [of], expected=[(of, applied, list(refused))])


def unary(make, shape=(2, 4), dtype="float32"):
    """relu of x, the call, tanh of it."""
    g = Graph()
    x = g.relu(g.input(shape=shape, dtype=dtype))
    y = make(g, x)
    return g.output(g.fn("torch.tanh", y, shape=g.names[y][0], dtype=g.names[y][1]))


def replaced_in_place():
    for spelling, target in SPELLINGS.items():
        g = Graph()
        x, z = g.input(), g.input("z")
        y = g.fn(target.format("mul"), x, z, name="y", **SHAPE)
        g.output(g.fn(target.format("mul"), y, 3.0, **SHAPE))
        rule(f"multiplications-to-additions-{spelling}", g, 2, of="AddInsteadOfMultiply")
    g = Graph()
    x = g.input()
    g.output(g.method("mul", x, 3.0, **SHAPE))
    rule("multiplications-to-additions-method", g, 1, of="AddInsteadOfMultiply")

    g = Graph()
    x = g.input()
    a = g.fn("operator.mul", x, 2, **SHAPE)
    b = g.fn("operator.mul", 2, a, **SHAPE)
    c = g.fn("operator.mul", b, 2.0, **SHAPE)
    g.output(g.fn("torch.mul", c, shape=(2, 4), dtype="float32", kwargs={"other": 2}))
    rule("doubles", g, 3, of="DoubleTheDoubles")

    g = Graph()
    x = g.input()
    n = g.method("size", x, 0, name="n")
    g.output(g.method("view", x, g.fn("operator.mul", n, 2, name="doubled"), 2, shape=(4, 2), dtype="float32"))
    rule("not-a-size", g, 0, refusal("python-number", "doubled"), of="DoubleTheDoubles")

    g = Graph()
    x = g.input()
    y = g.fn("operator.mul", x, 2, **SHAPE)
    g.output(y)
    rule("twice", g, 1, of="DoubleTheDoubles", passes=["DoubleTheDoubles"])


def divisions():
    def by(divisor, dtype="float32", target="operator.truediv", kwargs=None, shape=(2, 4)):
        g = Graph()
        x = g.input(shape=shape, dtype=dtype)
        return g.output(g.fn(target, x, *([] if divisor is None else [divisor]), shape=shape, dtype=dtype, name="div",
                             kwargs=kwargs))

    divide = lambda name, graph, applied, *refused: rule(f"division-{name}", graph, applied, *refused,
                                                         of="DivisionToMultiplication")
    divide("operator", by(49), 1)
    divide("torch", by(3.0, target="torch.div"), 1)
    divide("aten", by(8.0, target="torch.ops.aten.div.Tensor"), 1)
    divide("keyword", by(None, target="torch.div", kwargs={"other": 5, "rounding_mode": None}), 1)
    divide("rounding", by(4, target="torch.div", kwargs={"rounding_mode": "floor"}), 0)
    divide("by-zero", by(0), 0, refusal("division-by-zero", "div"))
    divide("integer", by(2, dtype="int64"), 0, refusal("not-floating", "div"))
    divide("denormal", by(1e-320), 0, refusal("inverse-out-of-range", "div"))
    # 0 ** -1 is a division by zero, as in Python, and not an infinity that the rest of the expression takes away again.
    inverted = lambda c: unary(lambda g, x: g.fn("operator.mul", x, c, name="y", **SHAPE))
    rule("inverse-of-inverse", inverted(4), 1, of="AddInverseOfInverse")
    rule("inverse-of-inverse-of-zero", inverted(0), 0, refusal("not-computable", "y"), of="AddInverseOfInverse")


def left_out():
    arithmetic = [("plus", "RemovePlusZero", "operator.add", 0), ("minus", "RemoveMinusZero", "torch.sub", 0),
                  ("times", "RemoveTimesOne", "torch.ops.aten.mul.Tensor", 1),
                  ("over", "RemoveOverOne", "operator.truediv", 1.0)]
    for name, of, target, neutral in arithmetic:
        rule(f"{name}-neutral", unary(lambda g, x: g.fn(target, x, neutral, **SHAPE)), 1, of=of)
        rule(f"{name}-something-else", unary(lambda g, x: g.fn(target, x, 3, **SHAPE)), 0, of=of)
    rule("one-times", unary(lambda g, x: g.fn("operator.mul", 1, x, **SHAPE)), 1, of="RemoveTimesOne")
    chain = lambda g, x: g.fn("operator.mul", g.fn("operator.mul", x, 1, **SHAPE), 1, **SHAPE)
    rule("times-one-in-a-row", unary(chain), 2, of="RemoveTimesOne")
    promoted = lambda g, x: g.fn("operator.add", x, 0.0, shape=(2, 4), dtype="float32", name="y")
    rule("not-where-the-dtype-changes", unary(promoted, dtype="int64"), 0, refusal("type-changes", "y"), of="RemovePlusZero")
    of_complex = lambda g, x: g.fn("operator.mul", x, 1, shape=(2, 4), dtype="complex64", name="y")
    rule("not-of-complex-numbers", unary(of_complex, dtype="complex64"), 0, of="RemoveTimesOne")
    unknown = lambda g, x: g.fn("operator.mul", x, 1, name="y")
    rule("not-without-a-shape", unary(unknown), 0, refusal("unknown-shape", "y"), of="RemoveTimesOne")

    g = Graph()
    x = g.relu(g.input())
    y = g.fn("operator.add", x, 0, name="y", **SHAPE)
    g.add_(x)
    g.output(g.fn("torch.tanh", y, **SHAPE))
    rule("trap-33-input-written-later", g, 0, refusal("mutated", "y"), of="RemovePlusZero")

    g = Graph()
    x = g.input()
    g.output(g.fn("operator.mul", x, 1, name="y", **SHAPE))
    rule("trap-34-output-would-alias-the-input", g, 0, refusal("graph-output", "y"), of="RemoveTimesOne")

    g = Graph()
    x = g.input()
    inner = g.fn("operator.neg", x, name="inner", **SHAPE)
    g.output(g.fn("torch.tanh", g.fn("operator.neg", inner, name="outer", **SHAPE), **SHAPE))
    rule("negated-twice", g, 1, of="NegateTwice")

    g = Graph()
    value = g.input()
    for i in range(4):
        value = g.fn("operator.neg", value, name=f"n{i}", **SHAPE)
    g.output(g.fn("torch.tanh", value, **SHAPE))
    rule("negated-four-times", g, 2, refusal("overlaps", "n2", "n1"), of="NegateTwice")


def fused():
    for spelling, sigmoid, mul in [("torch", "torch.sigmoid", "torch.mul"), ("operator", "torch.sigmoid", "operator.mul"),
                                   ("aten", "torch.ops.aten.sigmoid.default", "torch.ops.aten.mul.Tensor")]:
        g = Graph()
        x = g.input()
        g.output(g.fn(mul, x, g.fn(sigmoid, x, name="gate", **SHAPE), name="y", **SHAPE))
        rule(f"silu-{spelling}", g, 1, of="FuseSilu")

    g = Graph()
    x = g.input()
    g.module("act", "torch.nn.Sigmoid")
    g.output(g.method("mul", g.call("act", x), x, **SHAPE))
    rule("silu-module-and-method", g, 1, of="FuseSilu")

    g = Graph()
    x, z = g.input(), g.input("z")
    g.output(g.fn("torch.mul", z, g.fn("torch.sigmoid", x, **SHAPE), **SHAPE))
    rule("not-silu-of-another", g, 0, of="FuseSilu")

    g = Graph()
    x = g.relu(g.input())
    gate = g.fn("torch.sigmoid", x, name="gate", **SHAPE)
    g.add_(x)
    g.output(g.fn("torch.mul", x, gate, name="y", **SHAPE))
    rule("silu-input-written-between", g, 0, refusal("input-mutated", "y", "gate"), of="FuseSilu")

    g = Graph()
    x = g.relu(g.input())
    y = g.fn("torch.mul", x, g.fn("torch.sigmoid", x, name="gate", **SHAPE), name="y", **SHAPE)
    g.add_(x)
    rule("silu-input-written-later", g.output(y), 0, refusal("mutated", "y", "gate"), of="FuseSilu")

    g = Graph()
    x = g.input()
    gate = g.fn("torch.sigmoid", x, name="gate", **SHAPE)
    g.fn("torch._C._set_grad_enabled", False, name="mode")
    g.output(g.fn("torch.mul", x, gate, name="y", **SHAPE))
    rule("silu-mode-switched-between", g, 0, refusal("mode-switched", "y", "gate"), of="FuseSilu")

    for name, make in [
        ("function", lambda g, x: g.fn("torch.nn.functional.relu", x, **SHAPE)),
        ("function-with-inplace", lambda g, x: g.fn("torch.nn.functional.relu", x, kwargs={"inplace": False}, **SHAPE)),
        ("method", lambda g, x: g.method("relu", x, **SHAPE)),
        ("aten", lambda g, x: g.fn("torch.ops.aten.relu.default", x, **SHAPE)),
    ]:
        g = Graph()
        rule(f"gelu-for-relu-{name}", g.output(make(g, g.input())), 1, of="GeluForRelu")

    def modules(**config):
        g = Graph()
        x = g.input()
        g.module("act", "torch.nn.ReLU", config)
        return g.output(g.call("act", g.call("act", x)))

    rule("gelu-for-relu-module-called-twice", modules(), 2, of="GeluForRelu")
    rule("gelu-for-relu-module-in-place", modules(inplace=True), 0, refusal("mutates", "act"), refusal("mutates", "act_1"),
         of="GeluForRelu")

    g = Graph()
    x = g.fn("torch.tanh", g.input(), **SHAPE)
    g.output(g.fn("torch.nn.functional.relu", x, name="y", shape=(2, 4), dtype="float32", kwargs={"inplace": True}))
    rule("not-in-place", g, 0, refusal("mutates", "y"), of="GeluForRelu")

    def gated(write):
        g = Graph()
        x = g.fn("torch.tanh", g.input(), **SHAPE)
        gate = g.fn("torch.sigmoid", x, name="gate", **SHAPE)
        return g.output(write(g, x, gate))

    wrong = refusal("mutates", "y", "gate")
    rule("silu-in-place", gated(lambda g, x, gate: g.method("mul_", gate, x, name="y", **SHAPE)), 0, wrong, of="FuseSilu")
    rule("silu-in-place-aten", gated(lambda g, x, gate: g.fn("torch.ops.aten.mul_.Tensor", x, gate, name="y", **SHAPE)), 0,
         wrong,
         of="FuseSilu")
    into = lambda g, x, gate: g.fn("torch.mul", x, gate, name="y", kwargs={"out": x}, **SHAPE)
    rule("silu-out", gated(into), 0, wrong, of="FuseSilu")
    into = lambda g, x, gate: g.fn("torch.mul", x, gate, name="y", kwargs={"out": None}, **SHAPE)
    rule("silu-out-none", gated(into), 1, of="FuseSilu")  # as torch.fx prints several functions


def several_roots():
    def both(first, second, between=None):
        g = Graph()
        x = g.relu(g.input())
        a = g.fn(f"torch.{first}", x, **SHAPE)
        if between:
            between(g, x)
        return g.output(a, g.fn(f"torch.{second}", x, **SHAPE))

    rule("two-roots", both("sin", "cos"), 1, of="SinCosOnce")
    rule("two-roots-the-other-way-round", both("cos", "sin"), 1, of="SinCosOnce")
    rule("two-roots-one-is-missing", both("sin", "sin"), 0, of="SinCosOnce")
    rule("two-roots-written-between", both("sin", "cos", lambda g, x: g.add_(x)), 0, refusal("input-mutated", "sin", "cos"),
         of="SinCosOnce")
    g = Graph()
    x = g.input()
    names = [g.fn(f"torch.{name}", x, **SHAPE) for name in ("sin", "cos", "cos", "sin")]
    rule("two-roots-twice", g.output(*names), 2, of="SinCosOnce")
    g = Graph()
    x = g.input()
    s = g.fn("torch.sin", x, **SHAPE)
    rule("two-roots-too-many-readers", g.output(s, *[g.fn("torch.tanh", x, **SHAPE) for _ in range(64)]), 0,
         refusal("too-many-readers", "sin"), of="SinCosOnce")


def computed():
    def scaled(factor, users=1):
        g = Graph()
        x = g.input(shape=(2, 16))
        m = g.fn("operator.mul", x, factor, name="m", shape=(2, 16), dtype="float32")
        y = g.fn("torch.nn.functional.softmax", m, -1, name="y", shape=(2, 16), dtype="float32")
        return g.output(y) if users == 1 else g.output(y, m)

    rule("computed-from-a-size", scaled(0.5), 1, of="ScaleByWidth")
    rule("condition-without-a-reason", scaled(-0.5), 0, of="ScaleByWidth")
    rule("condition-with-a-reason", scaled(0.5, users=2), 0, refusal("other-users", "y", "m"), of="ScaleByWidth")
    g = Graph()
    y = g.fn("torch.nn.functional.softmax", g.fn("operator.mul", g.input(shape=(2, 16)), 0.5, shape=(2, 16), dtype="float32"),
             -1,
             name="y", shape=(2, 16), dtype="float32")
    g.add_(y)
    rule("result-that-was-saved-before-written-later", g.output(y), 1, of="ScaleByWidth")
    g = Graph()
    x = g.input(shape=("s0", "s1"))
    m = g.fn("operator.mul", x, 0.5, name="m", shape=("s0", "s1"), dtype="float32")
    g.output(g.fn("torch.nn.functional.softmax", m, -1, name="y", shape=("s0", "s1"), dtype="float32"))
    rule("size-is-symbolic", g, 0, refusal("not-computable", "y", "m"), of="ScaleByWidth")


def spelled():
    g = Graph()
    x, z = g.input(), g.input("z")
    a = g.fn("torch.cat", [x, z], name="a", shape=(4, 4), dtype="float32")
    b = g.fn("torch.concat", [a, z], name="b", shape=(2, 8), dtype="float32", kwargs={"dim": 1})
    c = g.fn("torch.cat", [a, b, z], name="c", shape=(6, 4), dtype="float32")
    rule("by-target", g.output(c), 2, of="CatPairToStack")


def refused():
    g = Graph()
    x = g.input()
    y = g.fn("operator.mul", x, 2, name="y", **SHAPE)
    g.output(g.fn("my.operator", y, name="z", **SHAPE))
    rule("beside-an-unknown-operator", g, 1, of="DoubleTheDoubles")
    g = Graph()
    x = g.input()
    g.output(g.fn("torch.mul", x, 2, name="y", kwargs={"out": x}, **SHAPE))
    rule("not-with-more-arguments", g, 0, refusal("mutates", "y"), of="DoubleTheDoubles")
    g = Graph()
    x = g.relu(g.input())
    g.output(g.fn("torch.ops.aten.relu.default", x, name="y", **SHAPE))
    rule("no-such-call", g, 1, refusal("no-such-call", "y"), of="LeakyForRelu")
    g = Graph()
    x = g.input()
    y = g.fn("torch.nn.functional.relu", x, name="y", **SHAPE)
    g.output(g.fn("torch.tanh", y, **SHAPE))
    rule("result-is-not-known", g, 1, of="OwnForRelu")


def weights():
    def scaled(factor=0.5, bias=True, others=False, calls=1, factor_first=False, dtype="float32"):
        g = Graph()
        x = g.input(dtype=dtype)
        fc = g.linear("fc", x, 3, bias=bias, dtype=dtype)
        for _ in range(calls - 1):
            g.call("fc", x, (2, 3))
        args = [factor, fc] if factor_first else [fc, factor]
        y = g.fn("operator.mul", *args, name="y", shape=(2, 3), dtype=dtype)
        z = g.fn("torch.tanh", y, shape=(2, 3), dtype=dtype)
        return g.output(z, fc) if others else g.output(z)

    into = lambda name, graph, applied, *refused: rule(f"scale-into-linear-{name}", graph, applied, *refused,
                                                       of="ScaleIntoLinear")
    into("with-bias", scaled(), 1)
    into("factor-first", scaled(3, factor_first=True), 1)
    into("bfloat16", scaled(dtype="bfloat16"), 1)
    into("zero", scaled(0), 0, refusal("zero", "y", "fc"))
    into("read-by-others", scaled(others=True), 0, refusal("other-users", "y", "fc"))
    into("called-twice", scaled(calls=2), 0, refusal("shared-module", "y", "fc"))

    g = Graph()
    x = g.input()
    g.tensor("fc.weight", [3, 4])
    g.tensor("fc.bias", [3])
    g.module("fc", "torch.nn.Module", parameters={"weight": "fc.weight", "bias": "fc.bias"})
    w, b = g.get_attr("fc.weight", (3, 4)), g.get_attr("fc.bias", (3,))
    fc = g.fn("torch.ops.aten.linear.default", x, w, b, name="linear", shape=(2, 3), dtype="float32")
    y = g.fn("torch.ops.aten.mul.Tensor", fc, 0.5, name="y", shape=(2, 3), dtype="float32")
    into("aten", g.output(g.fn("torch.ops.aten.tanh.default", y, shape=(2, 3), dtype="float32")), 1)
