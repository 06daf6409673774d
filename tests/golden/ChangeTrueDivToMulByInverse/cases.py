"""ChangeTrueDivToMulByInverse. The number in a name (trap-19-…) is that of a known failure of other optimisers."""
from common import FLOATS
from make_cases import Graph, Raw, case, refusal


def cases():
    def change(name, graph, applied, *refused, **more):
        case("ChangeTrueDivToMulByInverse", name, graph, applied, *refused, **more)

    def by(divisor, dtype="float32", target="operator.truediv", kwargs=None, shape=(2, 4)):
        g = Graph()
        x = g.input(shape=shape, dtype=dtype)
        return g.output(g.fn(target, x, divisor, shape=shape, dtype=dtype, name="div", kwargs=kwargs))

    change("operator", by(4.0), 1)
    change("torch-div", by(4.0, target="torch.div"), 1)
    change("torch-true-divide", by(4.0, target="torch.true_divide"), 1)

    def method(**kwargs):
        g = Graph()
        x = g.input()
        return g.output(g.method("div", *([x] if "other" in kwargs else [x, 8]), shape=(2, 4), dtype="float32", kwargs=kwargs))

    change("method-div", method(), 1)
    change("method-div-keyword", method(other=8), 1)

    g = Graph()
    x = g.input()
    g.output(g.fn("torch.div", shape=(2, 4), dtype="float32", kwargs={"input": x, "other": 5}))
    change("torch-div-keywords", g, 1)

    change("int-8", by(8), 1)
    change("trap-26-int-49", by(49), 1)
    change("trap-28-power-of-two", by(0.125), 1)
    change("trap-28-not-a-power-of-two", by(3.0), 1)
    change("negative", by(-7), 1)
    change("large-int", by(2**60), 1)
    for dtype in FLOATS:
        change(f"dtype-{dtype}", by(3, dtype), 1)
    change("rounding-mode-none", by(4, target="torch.div", kwargs={"rounding_mode": None}), 1)
    change("float16-smallest-inverse", by(16384, "float16"), 1)
    change("trap-38-chain-and-output", chain_of_divisions(), 2)

    div = lambda reason: refusal(reason, "div")
    for name, zero in (("int", 0), ("float", 0.0), ("negative", -0.0)):
        change(f"trap-27-zero-{name}", by(zero), 0, div("division-by-zero"))
    for name, number in (("inf", float("inf")), ("minus-inf", -float("inf")), ("nan", float("nan"))):
        change(f"trap-27-{name}", by(number), 0, div("non-finite-divisor"))
    change("trap-27-denormal-divisor", by(1e-310, "float64"), 0, div("inverse-out-of-range"))
    change("trap-27-denormal-in-float32", by(1e-39), 0, div("inverse-out-of-range"))
    change("trap-27-inverse-subnormal", by(3e38), 0, div("inverse-out-of-range"))
    change("trap-27-inverse-overflows", by(1.2e-38, "float16"), 0, div("inverse-out-of-range"))
    change("trap-27-float16-inverse-subnormal", by(32768, "float16"), 0, div("inverse-out-of-range"))
    change("trap-27-float16-divisor-overflows", by(70000, "float16"), 0, div("inverse-out-of-range"))
    change("bfloat16-has-the-range-of-float32", by(70000, "bfloat16"), 1)
    for mode in ("floor", "trunc"):
        change(f"trap-27-rounding-mode-{mode}", by(4, target="torch.div", kwargs={"rounding_mode": mode}), 0,
               div("rounding-mode"))
    for dtype in ("int64", "int32", "uint8", "bool"):
        g = Graph()
        x = g.input(dtype=dtype)
        g.output(g.fn("operator.truediv", x, 2, shape=(2, 4), dtype="float32", name="div"))
        change(f"trap-27-integer-{dtype}", g, 1)

    g = Graph()
    x = g.input()
    size = g.method("size", x, -1)
    g.output(g.fn("operator.truediv", size, 2, name="div"))
    change("numerator-is-a-size", g, 0, div("unknown-dtype"))

    g = Graph()
    x = g.input()
    shape = g.fn("builtins.getattr", x, "shape")
    last = g.fn("operator.getitem", shape, -1)
    twice = g.fn("operator.mul", last, 2)
    g.output(g.fn("operator.truediv", twice, 3, name="div"))
    change("numerator-is-arithmetic-on-sizes", g, 0, div("unknown-dtype"))

    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, (2, 4), None)
    g.output(g.fn("operator.truediv", x, 2, name="div"))
    change("unknown-dtype", g, 1)

    for dtype, divisor, applied in (("float32", 70000, 1), (None, 70000, 0), (None, 16384, 1)):
        g = Graph()
        x = g.node("x", "placeholder", "x", [], {}, (2, 4), "int64")
        g.output(g.fn("operator.truediv", x, divisor, shape=(2, 4), dtype=dtype, name="div"))
        refused = [] if applied else [div("inverse-out-of-range")]
        change(f"integer-by-{divisor}-gives-{dtype or 'unknown'}", g, applied, *refused)

    g = Graph()
    x = g.input(shape=(1,))
    item = g.method("item", x, dtype="float32")
    g.output(g.fn("operator.truediv", item, 2, name="div"))
    change("numerator-is-a-number-with-a-dtype", g, 0, div("unknown-dtype"))

    change("complex-tensor", by(2, "complex64"), 0, div("unsupported-dtype"))
    for name, number in (("true", True), ("complex", Raw({"$complex": [1, 0.5]})),
                         ("beyond-64-bits", Raw({"$int": "1" + "0" * 30}))):
        change(f"unsupported-constant-{name}", by(number), 0, div("unsupported-constant"))

    g = Graph()
    x, out = g.input(), g.input("out")
    g.output(g.fn("torch.div", x, 2, shape=(2, 4), dtype="float32", kwargs={"out": out}))
    change("unsupported-arguments", g, 0, div("unsupported-arguments"))

    g = Graph()
    x, y = g.input(), g.input("y")
    g.output(g.fn("operator.truediv", x, y, shape=(2, 4), dtype="float32"))
    change("not-by-a-tensor", g, 0)

    g = Graph()
    x = g.input()
    g.output(g.fn("operator.truediv", 2.0, x, shape=(2, 4), dtype="float32"))
    change("not-a-constant-by-a-tensor", g, 0)

    g = Graph()
    x = g.input()
    g.fn("operator.itruediv", x, 2.0, shape=(2, 4), dtype="float32")
    g.method("div_", x, 2.0, shape=(2, 4), dtype="float32")
    g.output(g.fn("operator.floordiv", x, 2.0, shape=(2, 4), dtype="float32"))
    change("not-in-place-nor-floor", g, 0)

    name = "ChangeTrueDivToMulByInverse"
    change("twice", by(4.0), None, passes=[name, name],
           expected=[(name, 1, []), (name, 0, [refusal("already-transformed", "div")])])


def chain_of_divisions():
    g = Graph()
    x = g.input()
    first = g.fn("operator.truediv", x, 2.0, shape=(2, 4), dtype="float32")
    second = g.fn("torch.div", first, 10, shape=(2, 4), dtype="float32")
    return g.output(first, second)
