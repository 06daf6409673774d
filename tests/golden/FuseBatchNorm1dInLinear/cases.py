"""FuseBatchNorm1dInLinear. The number in a name (trap-19-…) is that of a known failure of other optimisers."""
from make_cases import Graph, N, case, refusal


def cases():
    def fold(name, graph, applied, *refused, **more):
        case("FuseBatchNorm1dInLinear", name, graph, applied, *refused, **more)

    def before(linear={}, norm={}, shape=(2, 4), outputs=None, dtype="float32"):
        """Linear, then BatchNorm1d."""
        g = Graph()
        h = g.linear("fc", g.input(shape=shape, dtype=dtype), 3, dtype=dtype, **linear)
        b = g.norm("bn", h, spatial=1, dtype=dtype, **norm)
        return g.output(*(outputs(g, h, b) if outputs else [b]))

    def after(linear={}, norm={}, shape=(2, 4), between=None, outputs=None, dtype="float32"):
        """BatchNorm1d, then Linear."""
        g = Graph()
        x = g.input(shape=shape, dtype=dtype)
        b = g.norm("bn", x, spatial=1, dtype=dtype, **norm)
        if between:
            between(g, x, b)
        y = g.linear("fc", b, 3, dtype=dtype, **linear)
        return g.output(*(outputs(g, b, y) if outputs else [y]))

    both = lambda reason: refusal(reason, "fc", "bn")
    fold("linear-then-norm", before(), 1)
    fold("linear-then-norm-without-bias", before({"bias": False}), 1)
    fold("norm-then-linear", after(), 1)
    fold("norm-then-linear-without-bias", after({"bias": False}), 1)
    fold("trap-07-not-affine", before(norm={"affine": False}), 1)
    fold("trap-07-not-affine-without-bias", before({"bias": False}, {"affine": False}), 1)
    fold("trap-07-not-affine-then-linear", after(norm={"affine": False}), 1)
    fold("trap-07-not-affine-then-linear-without-bias", after({"bias": False}, {"affine": False}), 1)
    fold("trap-12-float16-without-bias", before({"bias": False}, dtype="float16"), 1)
    fold("trap-12-bfloat16-then-linear-without-bias", after({"bias": False}, dtype="bfloat16"), 1)
    fold("trap-15-keyword-calls", before({"keyword": "input"}, {"keyword": "input"}), 1)
    fold("symbolic-batch", before(shape=("s0", 4)), 1)
    fold("one-feature-each", after({}, {}, shape=(2, 1)), 1)

    g = Graph()
    x = g.input()
    g.output(g.norm("bn2", g.linear("fc", g.norm("bn1", x, spatial=1), 3), spatial=1))
    fold("norm-on-both-sides", g, 2)

    g = Graph()
    x = g.input()
    g.output(g.linear("b", g.norm("bn", g.linear("a", x, 3), spatial=1), 2))
    fold("between-two-linears", g, 1)

    g = Graph()
    x, y = g.input(), g.input("y")
    a = g.linear("fc", x, 3)
    b = g.norm("bn", a, spatial=1)
    c = g.call("fc", y, (2, 3), "float32")
    g.output(b, g.call("bn", c))
    fold("trap-02-pair-traced-twice", g, 1)

    g = Graph()
    x = g.input()
    a = g.linear("fc", x, 3)
    g.output(g.norm("bn", a, spatial=1), g.linear("other", x, 3, weight="fc.weight"))
    fold("trap-03-tied-weight", g, 1)

    fold("trap-08-three-dimensions", before(norm={"features": 3}, shape=(2, 5, 4)), 0, refusal("not-2d", "bn"))
    fold("trap-08-channels-differ", before(norm={"features": 5}, shape=(2, 5, 4)), 0, both("channel-mismatch"))
    fold("trap-09-square", before(norm={"features": 3}, shape=(2, 3, 4)), 0, refusal("not-2d", "bn"))
    fold("trap-09-square-then-linear", after(norm={"features": 4}, shape=(2, 4, 4)), 0, refusal("not-2d", "bn"))

    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, None, None)
    h = g.linear("fc", x, 3, inputs=4, meta=False)
    g.make_norm("bn", 3, 1)
    g.output(g.call("bn", h))
    fold("trap-09-shape-unknown", g, 0, refusal("unknown-shape", "bn"))

    fold("trap-04-norm-in-training", before(norm={"training": True}), 0, both("training-mode"))
    fold("trap-04-linear-in-training", after({"training": True}), 0, both("training-mode"))
    fold("trap-05-no-statistics", before(norm={"mean": False, "var": False}), 0, both("no-running-statistics"))
    fold("trap-38-between-is-an-output", before(outputs=lambda g, h, b: [h, b]), 0, both("graph-output"))
    fold("trap-38-between-is-an-output-then-linear", after(outputs=lambda g, b, y: [b, y]), 0, both("graph-output"))
    fold("other-users", before(outputs=lambda g, h, b: [g.relu(h), b]), 0, both("shared-output"))
    fold("norm-feeds-two-linears", after(outputs=lambda g, b, y: [y, g.linear("fc2", b, 2)]), 0, both("shared-output"))
    fold("trap-01-linear-called-twice", before(outputs=lambda g, h, b: [b, g.call("fc", N("x"), (2, 3), "float32")]), 0,
         refusal("shared-module", "fc", "fc_1", "bn"))
    fold("channel-mismatch", before(norm={"features": 5}), 0, both("channel-mismatch"))
    fold("trap-40-scale-does-not-match-the-input", after({"inputs": 5}), 0, both("channel-mismatch"))
    fold("unsupported-dtype", before(dtype="int8"), 0, both("unsupported-dtype"))
    fold("module-read", after(outputs=lambda g, b, y: [y, g.get_attr("fc.weight", (3, 4))]), 0, both("module-read"))
    fold("input-mutated", after(between=lambda g, x, b: g.add_(x)), 0, both("input-mutated"))
    fold("input-mutated-later", after(outputs=lambda g, b, y: [y, g.add_(N("x"))]), 1)
    fold("linear-then-norm-input-mutated-between", mutated_between(), 1)
    fold("not-exactly-linear", before({"type": "my.LoraLinear"}), 0)
    fold("not-a-norm-alone", alone(), 0)

    g = Graph()
    h = g.linear("fc", g.input(), 3)
    b = g.norm("bn", h, spatial=1)
    g.module("store", "custom.Store", {}, {"value": "fc.weight"})
    g.add_(g.get_attr("store.value", (3, 4)))
    g.output(b)
    fold("tensor-mutated", g, 0, both("tensor-mutated"))

    name = "FuseBatchNorm1dInLinear"
    fold("twice", before(), None, passes=[name, name],
         expected=[(name, 1, []), (name, 0, [refusal("already-transformed", "fc")])])


def mutated_between():
    g = Graph()
    x = g.input()
    h = g.linear("fc", x, 3)
    g.add_(x)
    return g.output(g.norm("bn", h, spatial=1))


def alone():
    g = Graph()
    return g.output(g.norm("bn", g.input(), spatial=1))
