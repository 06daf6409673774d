"""FuseBatchNorm2dInConv2d. The number in a name (trap-19-…) is that of a known failure of other optimisers."""
from common import nested
from make_cases import Graph, case, refusal


def cases():
    def fold(name, graph, applied, *refused, **more):
        case("FuseBatchNorm2dInConv2d", name, graph, applied, *refused, **more)

    def pair(conv={}, norm={}, channels=2, between=None, after=None, dtype="float32", outputs=None):
        g = Graph()
        x = g.input(shape=(1, channels, 5, 5), dtype=dtype)
        c = g.conv("conv", x, conv.pop("outputs", 3), dtype=dtype, **conv)
        if between:
            c = between(g, c)
        b = g.norm("bn", c, dtype=dtype, **norm)
        return g.output(*(outputs(g, c, b) if outputs else [b]))

    both = lambda reason: refusal(reason, "conv", "bn")
    fold("with-bias", pair(), 1)
    fold("without-bias", pair({"bias": False}), 1)
    fold("trap-06-not-affine", pair(norm={"affine": False}), 1)
    fold("trap-06-not-affine-without-bias", pair({"bias": False}, {"affine": False}), 1)
    for dtype in ("float16", "bfloat16", "float64"):
        fold(f"trap-12-{dtype}-without-bias", pair({"bias": False}, dtype=dtype), 1)
    fold("trap-12-float16-conv-float32-norm", mixed_norm(), 1)
    fold("depthwise", pair({"groups": 2, "outputs": 4}), 1)
    fold("stride-padding-dilation", strided(), 1)
    fold("eps-missing", pair(norm={"eps": None}), 1)
    fold("eps-is-an-int", pair(norm={"eps": 1}), 1)
    fold("eps-is-no-number", pair(norm={"eps": True}), 0, both("unsupported-constant"))
    fold("trap-15-keyword-calls", pair({"keyword": "input"}, {"keyword": "input"}), 1)
    fold("norm-is-an-output", pair(), 1)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    for i in range(3):
        x = g.relu(g.norm(f"layers.{i}.bn", g.conv(f"layers.{i}.conv", x, 2, bias=i == 1)))
    fold("three-in-a-row", g.output(x), 3)

    g = Graph()
    x, y = g.input(shape=(1, 2, 5, 5)), g.input("y", (1, 2, 5, 5))
    a = g.conv("conv", x, 3)
    b = g.norm("bn", a)
    c = g.call("conv", y, (1, 3, 5, 5), "float32")
    g.output(b, g.call("bn", c))
    fold("trap-02-pair-traced-twice", g, 1)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a = g.conv("conv", x, 2)
    b = g.norm("bn", a)
    c = g.call("conv", b, (1, 2, 5, 5), "float32")
    g.output(g.call("bn", c))
    fold("trap-02-pair-traced-twice-in-a-row", g, 1)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a = g.conv("conv", x, 3)
    b = g.norm("bn", a)
    g.output(b, g.conv("other", x, 3, weight="conv.weight"))
    fold("trap-03-shared-weight", g, 1)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a, c = g.conv("a", x, 3), g.conv("c", x, 3, weight="a.weight")
    g.output(g.norm("bn_a", a), g.norm("bn_c", c))
    fold("trap-03-shared-weight-both-folded", g, 2)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a = g.conv("conv", x, 3)
    g.output(g.norm("bn", a), g.call("conv", g.relu(x), (1, 3, 5, 5), "float32"))
    fold("trap-01-conv-called-twice", g, 0, refusal("shared-module", "conv", "conv_1", "bn"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a, c = g.conv("a", x, 3), g.conv("c", x, 3)
    g.output(g.norm("bn", a), g.call("bn", c))
    fold("one-norm-after-two-convs", g, 0, refusal("shared-module", "a", "bn", "bn_1"))

    g = Graph()
    x = g.input(shape=(1, 3, 5, 5))
    a = g.conv("conv", x, 3)
    g.output(g.norm("bn", a), g.call("bn", x))
    fold("norm-called-without-conv-too", g, 0, refusal("shared-module", "conv", "bn", "bn_1"))

    g = Graph()
    x = g.input(shape=(1, 3, 5, 5))
    early = g.norm("bn", x)
    a = g.conv("conv", early, 3)
    g.output(g.call("bn", a))
    fold("norm-called-without-conv-before", g, 0, refusal("shared-module", "conv", "bn", "bn_1"))

    fold("trap-04-norm-in-training", pair(norm={"training": True}), 0, both("training-mode"))
    fold("trap-04-conv-in-training", pair({"training": True}), 0, both("training-mode"))
    fold("trap-05-no-statistics", pair(norm={"mean": False, "var": False}), 0, both("no-running-statistics"))
    fold("trap-38-between-is-an-output", pair(outputs=lambda g, c, b: [b, c]), 0, both("graph-output"))
    fold("other-users", pair(outputs=lambda g, c, b: [b, g.relu(c)]), 0, both("shared-output"))
    fold("two-norms-on-one-conv", pair(outputs=lambda g, c, b: [b, g.norm("bn2", c)]), 0, both("shared-output"),
         refusal("shared-output", "conv", "bn2"))
    fold("one-norm-twice-on-one-call", pair(outputs=lambda g, c, b: [b, g.call("bn", c)]), 0,
         refusal("shared-output", "conv", "bn", "bn_1"))
    fold("channel-mismatch", pair(norm={"features": 4}), 0, both("channel-mismatch"))
    fold("unsupported-dtype", pair(dtype="int8"), 0, both("unsupported-dtype"))
    for dtype in ("float8_e5m2", "complex64"):
        fold(f"unsupported-dtype-{dtype}", pair(dtype=dtype), 0, both("unsupported-dtype"))
    fold("unsupported-dtype-of-the-norm", mixed_norm("float8_e4m3fn"), 0, both("unsupported-dtype"))
    fold("trap-12-float16-conv-bfloat16-norm", mixed_norm("bfloat16"), 1)
    fold("module-read-conv", pair(outputs=lambda g, c, b: [b, g.get_attr("conv.weight", (3, 2, 3, 3))]), 0,
         both("module-read"))
    fold("module-read-norm", pair(outputs=lambda g, c, b: [b, g.get_attr("bn.running_mean", (3,))]), 0, both("module-read"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    nested(g, "part", "conv")
    whole = g.call("part", x, (1, 3, 5, 5))
    c = g.conv("part.conv", x, 3, name="conv")
    g.output(whole, g.norm("bn", c))
    fold("called-by-a-nested-program", g, 0, refusal("shared-module", "conv", "fc", "bn"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    c = g.conv("conv", x, 3)
    b = g.norm("bn", c)
    g.module("store", "custom.Store", {}, {"value": "bn.running_mean"})
    g.add_(g.get_attr("store.value", (3,)))
    g.output(b)
    fold("tensor-mutated", g, 0, both("tensor-mutated"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    c = g.conv("conv", x, 3)
    b = g.norm("bn", c)
    d = g.call("conv", x, (1, 3, 5, 5), "float32")
    g.output(b, g.call("bn", d, args=[d, True]))
    fold("unsupported-arguments", g, 0, refusal("unsupported-arguments", "conv", "conv_1", "bn", "bn_1"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    c = g.conv("conv", x, 3)
    b = g.norm("bn", c)
    g.add_(x)
    g.output(b)
    fold("input-mutated-later", g, 1)

    g = Graph()
    x, w = g.input(shape=(1, 2, 5, 5)), g.input("w", (3, 2, 3, 3))
    c = g.fn("torch.nn.functional.conv2d", x, w, shape=(1, 3, 2, 2), dtype="float32", kwargs={"stride": 2})
    g.output(g.norm("bn", c))
    fold("trap-14-not-functional-with-keywords", g, 0)

    fold("not-through-relu", pair(between=lambda g, c: g.relu(c)), 0)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    g.output(g.conv("conv", g.norm("bn", x), 3))
    fold("trap-10-not-norm-before-a-padded-conv", g, 0)
    fold("trap-11-not-transposed", pair({"type": "torch.nn.ConvTranspose2d"}), 0)

    g = Graph()
    x = g.input(shape=(1, 2, 5))
    g.output(g.norm("bn", g.conv("conv", x, 3, type="torch.nn.Conv1d", spatial=1), spatial=1))
    fold("not-one-dimensional", g, 0)

    name = "FuseBatchNorm2dInConv2d"
    fold("twice", pair(), None, passes=[name, name],
         expected=[(name, 1, []), (name, 0, [refusal("already-transformed", "conv")])])

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    c = g.call("conv", x, (1, 3, 5, 5), "float32", transformations=["f6a0cf7c3b7a5cfd4a3f1ab10dc0c2b5"])
    g.make_conv("conv", 2, 3)
    g.output(g.norm("bn", c))
    fold("marked-by-another-pass", g, 1)


def strided():
    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    g.make_conv("conv", 2, 3, config={"stride": (2, 2), "padding": (0, 2), "dilation": (2, 1), "padding_mode": "reflect"})
    return g.output(g.norm("bn", g.call("conv", x, (1, 3, 1, 4), "float32")))


def mixed_norm(dtype="float32"):
    """After a convolution in float16 one in another dtype."""
    g = Graph()
    x = g.input(shape=(1, 2, 5, 5), dtype="float16")
    c = g.conv("conv", x, 3, dtype="float16", bias=False)
    return g.output(g.norm("bn", c, dtype=dtype))
