"""ChannelsLast, in both dialects."""
from cases_layers import ATEN, conv
from make_cases import Graph, Raw, case, refusal

LAST = Raw({"$memory_format": "channels_last"})


def cases():
    weights()

    def lay(name, graph, applied, *refused, **more):
        case("ChannelsLast", name, graph, applied, *refused, **more)

    def net(behind, aten=False, shape=(1, 16, 36, 36), before=None, between=None, dtype="float32"):
        """Two convolutions, whose images are just large enough for oneDNN, and a pool."""
        g = Graph()
        x = g.input(shape=shape, dtype=dtype)
        if before:
            x = before(g, x)
        if aten:
            a = conv(g, "conv1", x, 16, aten=True)
        else:
            a = g.conv("conv1", x, 16, dtype=dtype)
        a = g.relu(a) if not between else between(g, a, x)
        b = conv(g, "conv2", a, 16, aten=True) if aten else g.conv("conv2", a, 16, dtype=dtype)
        return g.output(*behind(g, b))

    def like(g, x):
        shape, dtype = g.names[x]
        return {"shape": shape, "dtype": dtype}

    def pool(g, x):
        shape, dtype = g.names[x]
        return g.fn("torch.nn.functional.adaptive_avg_pool2d", x, (1, 1), shape=(shape[0], shape[1], 1, 1),
                    dtype=dtype, name="pool")

    flat = lambda g, x, start=1: g.fn("torch.flatten", x, start, shape=(1, 16), dtype="float32", name="flat")
    pooled = lambda g, b: [g.linear("fc", flat(g, pool(g, b)), 5)]
    halved = lambda g, b: g.fn("torch.nn.functional.max_pool2d", b, 2, 2, shape=(1, 16, 18, 18), dtype="float32",
                               name="max_pool")
    line = lambda target, *more, **given: lambda g, b: [g.method(target, pool(g, b), *more, **given)]
    summed = lambda g, b: [g.fn("torch.sum", b, shape=(), dtype="float32", name="sum")]

    def behind(call):
        """The call, and a sum that reads what it was given."""
        def both(g, b):
            call(g, b)
            return summed(g, b)
        return both

    seen = lambda reason, who: refusal(reason, "conv1", who)

    # ---- what may lie otherwise
    lay("modules", net(pooled), 1)
    lay("aten", net(pooled, aten=True), 1)
    lay("summed", net(summed), 1)
    lay("pooled-view", net(line("view", 1, -1, shape=(1, 16), dtype="float32")), 1)
    lay("pooled-squeeze",
        net(lambda g, b: [g.method("squeeze", g.method("squeeze", pool(g, b), -1, shape=(1, 16, 1), dtype="float32"), -1,
                                   shape=(1, 16), dtype="float32")]), 1)
    lay("mean", net(lambda g, b: [g.method("mean", b, [2, 3], shape=(1, 16), dtype="float32")]), 1)
    lay("reshaped",
        net(lambda g, b: [g.linear("fc", g.method("reshape", halved(g, b), 1, -1, shape=(1, 5184), dtype="float32"), 5)]), 1)
    lay("tokens",
        net(lambda g, b: [g.linear("fc", g.method("transpose", g.method("flatten", halved(g, b), 2, shape=(1, 16, 324),
                                                                        dtype="float32"), 1, 2, shape=(1, 324, 16),
                                                  dtype="float32"), 5)]), 1)
    lay("sizes", net(lambda g, b: [g.method("size", b, 0), *summed(g, b)]), 1)
    lay("written-element-by-element", net(summed, between=lambda g, a, x: g.method("relu_", a, **like(g, a))), 1)
    lay("added-in-place", net(summed, between=lambda g, a, x: g.fn("operator.iadd", a, a, **like(g, a), name="iadd")), 1)
    lay("set", net(behind(lambda g, b: g.fn("operator.setitem", b, (0, 0), 1.0, name="set"))), 1)
    lay("normalised-before", net(summed, before=lambda g, x: g.fn("operator.mul", x, 2.0, **like(g, x), name="mul")), 1)
    lay("channels-split",
        net(lambda g, b: [g.fn("torch.sum", g.method("view", b, 1, 4, 4, 36, 36, shape=(1, 4, 4, 36, 36), dtype="float32"),
                               shape=(), dtype="float32")]), 1)
    lay("rows-again",
        net(lambda g, b: [g.fn("torch.sum",
                               g.method("view", g.method("contiguous", halved(g, b), shape=(1, 16, 18, 18), dtype="float32"),
                                        -1, shape=(5184,), dtype="float32"), shape=(),
                               dtype="float32")]), 1)

    def two(g, x):
        return g.fn("torch.cat", [g.conv("left", x, 16), g.conv("right", x, 16)], 1, shape=(1, 32, 36, 36),
                    dtype="float32", name="cat")
    g = Graph()
    x = g.input(shape=(1, 16, 36, 36))
    lay("two-read-the-image", g.output(*summed(g, g.conv("conv", two(g, x), 16))), 1)
    g = Graph()
    x, y = g.input(shape=(1, 16, 36, 36)), g.input("y", shape=(1, 16, 36, 36))
    a, b = g.conv("left", x, 16), g.conv("right", y, 16)
    lay("two-images",
        g.output(*summed(g, halved(g, g.fn("torch.add", a, b, shape=(1, 16, 36, 36), dtype="float32", name="add")))), 2)
    g = Graph()
    x = g.input(shape=("s0", 16, 36, 36))
    lay("any-number-of-images", g.output(*summed(g, halved(g, g.conv("conv", x, 16)))), 1)
    lay("float64", net(summed, dtype="float64"), 1)

    distances = net(lambda g, b: [g.fn("torch.cdist", b, b, shape=(1, 16, 36, 36), dtype="float32", name="cdist")])
    softmax = net(lambda g, b: [g.fn("torch.softmax", b, 1, **like(g, b), name="softmax")])
    lay("distances", distances, 1)
    lay("softmax-gives-rows", softmax, 1)
    for name, graph, why in ("distances", distances, seen("needs-contiguous", "cdist")), (
            "softmax", softmax, seen("graph-output", "output")):
        lay(f"{name}-version-1", graph, None, passes=[{"name": "ChannelsLast", "version": 1}],
            expected=[("ChannelsLast", 0, [why])])

    # ---- left alone
    lay("twice", net(pooled), None, passes=["ChannelsLast"] * 2,
        expected=[("ChannelsLast", 1, []), ("ChannelsLast", 0, [])])
    lay("lies-so-already",
        net(pooled, before=lambda g, x: g.method("contiguous", x, kwargs={"memory_format": LAST}, **like(g, x))), 1)
    lay("permuted-so", net(pooled, shape=(1, 36, 36, 16),
                           before=lambda g, x: g.method("permute", x, 0, 3, 1, 2, shape=(1, 16, 36, 36), dtype="float32")), 1)
    lay("one-channel", net(pooled, shape=(1, 1, 36, 36)), 0, refusal("more-work", "conv2"))
    g = Graph()
    lay("one-pixel", g.output(g.conv("conv", g.input(shape=(2, 4, 1, 1)), 4)), 0)
    g = Graph()
    x = g.input(shape=(3, 6, 6))
    g.make_conv("conv", 3, 3)
    lay("not-batched", g.output(g.call("conv", x)), 0)

    # ---- refused
    lay("returned", net(lambda g, b: [b]), 0, seen("graph-output", "output"))
    lay("view", net(lambda g, b: [g.fn("torch.sum", g.method("view", b, 1, -1, shape=(1, 20736), dtype="float32"), shape=(),
                                       dtype="float32")]), 0,
        seen("needs-contiguous", "view"))
    lay("aten-view",
        net(lambda g, b: [g.fn("torch.sum",
                               g.fn(ATEN + "view.default", b, [1, 20736], shape=(1, 20736), dtype="float32", name="view"),
                               shape=(), dtype="float32")], aten=True), 0, seen("needs-contiguous", "view"))
    lay("strides", net(lambda g, b: [g.method("stride", b, 1), *summed(g, b)]), 0, seen("needs-contiguous", "stride"))
    lay("as-strided", net(lambda g, b: [g.method("as_strided", b, (4,), (1,), shape=(4,), dtype="float32")]), 0,
        seen("needs-contiguous", "as_strided"))
    lay("unknown", net(lambda g, b: [g.fn("mine.op", b, shape=(), dtype="float32", name="op")]), 0,
        seen("unknown-operator", "op"))
    lay("layout-not-known", net(lambda g, b: [g.fn("torch.einsum", "abcd,abcd->ad", b, b, shape=(1, 36), dtype="float32",
                                                   name="einsum")]), 0,
        seen("needs-contiguous", "einsum"))
    lay("one-volume", net(lambda g, b: [g.fn("torch.nn.functional.max_pool3d", b, 2, shape=(1, 8, 18, 18), dtype="float32",
                                             name="max_pool3d")]), 0,
        seen("needs-contiguous", "max_pool3d"))
    lay("random",
        net(lambda g, b: [g.fn("torch.sum", g.fn("torch.rand_like", b, **like(g, b), name="rand"), shape=(), dtype="float32")]),
        0,
        seen("random", "rand"))
    lay("turned-in-place", net(behind(lambda g, b: g.method("transpose_", b, 1, 2, shape=(1, 36, 16, 36), dtype="float32"))), 0,
        seen("mutates", "transpose_"))

    lay("reshaped-and-written", net(behind(lambda g, b: g.add_(g.method("reshape", b, -1, shape=(20736,), dtype="float32")))),
        0, seen("mutated", "reshape"))
    lay("asserted-strides", net(behind(lambda g, b: g.fn(ATEN + "_assert_tensor_metadata.default", b, [1, 16, 36, 36],
                                                         [20736, 1296, 36, 1], name="check"))), 0,
        seen("needs-contiguous", "check"))
    lay("small", net(pooled, shape=(1, 3, 4, 4)), 0, refusal("more-work", "conv1"))
    lay("heavy-weight", heavy(), 0, refusal("more-work", "conv"))
    lay("patches", patches(), 0, refusal("more-work", "conv"))
    lay("memory-format",
        net(lambda g, b: [g.fn("torch.sum", g.method("to", b, Raw({"$dtype": "float64"}),
                                                     kwargs={"memory_format": Raw({"$memory_format": "contiguous_format"})},
                                                     shape=(1, 16, 36, 36), dtype="float64"), shape=(),
                               dtype="float64")]), 1)
    g = Graph()
    x = g.input(shape=(1, 16, 36, 36))
    a = g.conv("left", x, 16)
    g.add_(x)
    b = g.conv("right", x, 16)
    lay("image-is-written",
        g.output(*summed(g, halved(g, g.fn("torch.add", a, b, shape=(1, 16, 36, 36), dtype="float32", name="add")))), 0,
        refusal("input-mutated", "left", "right"))
    g = Graph()
    x = g.input(shape=(1, 16, 36, 36))
    a = g.conv("left", x, 16)
    g.fn("torch._C._set_grad_enabled", False, name="mode")
    b = g.conv("right", x, 16)
    lay("mode-is-switched",
        g.output(*summed(g, halved(g, g.fn("torch.add", a, b, shape=(1, 16, 36, 36), dtype="float32", name="add")))), 0,
        refusal("mode-switched", "left", "right"))
    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, None, "float32")
    g.make_conv("conv", 3, 16)
    lay("unknown-shape", g.output(g.call("conv", x)), 0, refusal("unknown-shape", "conv"))
    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, (1, 16, 36, 36), None)
    g.make_conv("conv", 3, 16)
    lay("unknown-dtype", g.output(*summed(g, g.call("conv", x, (1, 16, 36, 36), "float32"))), 0,
        refusal("unknown-dtype", "conv", "x"))
    g = Graph()
    x = g.input(shape=(1, 3, "s0", "s1"))
    g.make_conv("conv", 3, 16)
    lay("any-size-of-images", g.output(*summed(g, g.call("conv", x, (1, 16, "s0", "s1")))), 0, refusal("unknown-shape", "conv"))


def weights():
    """Which weights get the format."""
    def lay(name, graph, applied, *refused, **more):
        case("ChannelsLast", name, graph, applied, *refused, **more)

    def begin(shape=(1, 16, 36, 36)):
        g = Graph()
        return g, g.input(shape=shape)

    total = lambda g, x, name="sum": g.fn("torch.sum", x, shape=(), dtype="float32", name=name)

    def two(read):
        g, x = begin((1, 16, 48, 48))
        y = g.conv("first", x, 16)
        return g.output(total(g, g.conv("second", g.relu(y), 16)), *read(g))

    lay("weight-is-read-by-another", two(lambda g: [total(g, g.get_attr("second.weight", (16, 16, 3, 3)), "read")]), 1)
    lay("weight-is-computed-from", two(lambda g: [g.module("other", "torch.nn.Module", parameters={"w": g.tensor(
        "w", [9, 256], recipe={"op": "reshape", "args": ["second.weight"], "shape": [9, 256]})})
                                                  or g.get_attr("other.w", (9, 256))]),
        1)
    lay("weight-overlaps", two(lambda g: [g.tensors["second.weight"].update(overlaps=True) or total(g, "x", "read")]), 1)
    lay("weight-is-written", two(lambda g: [g.add_(g.get_attr("second.weight", (16, 16, 3, 3)))]), 1)
    lay("weights-lie-so",
        two(lambda g: [g.tensors[f"{name}.weight"].update(memory_format="channels_last") or total(g, "x", name)
                                         for name in ("first", "second")]), 0)

    g, x = begin()
    y = g.conv("conv", g.conv("stem", x, 16), 16)
    z = g.call("conv", g.relu(y), name="again")
    lay("weight-is-used-twice", g.output(total(g, z)), 1)
    g, x = begin()
    small = g.input("small", (1, 16, 8, 8))
    y = g.conv("conv", g.conv("stem", x, 16), 16)
    lay("weight-is-used-elsewhere", g.output(total(g, y), g.call("conv", small, name="again")), 1,
        refusal("graph-output", "again", "output"))
    g, x = begin()
    y = g.conv("one", g.conv("stem", x, 16), 16)
    lay("weights-are-tied", g.output(total(g, g.conv("other", y, 16, weight="one.weight"))), 1)

    g, x = begin((1, 16, 36, 36))
    y = g.conv("pixel", g.conv("depth", g.conv("stem", x, 16), 16, groups=16), 32, kernel=1, config={"padding": (0, 0)})
    lay("one-order", g.output(total(g, g.conv("grouped", y, 32, groups=4))), 1)
    g, x = begin((1, 32, 32, 32))
    lay("transposed", g.output(total(g, g.conv("up", g.conv("stem", x, 32), 16, type="torch.nn.ConvTranspose2d"))), 1)
    g, x = begin((1, 128, 4, 4))
    y = g.fn("torch.nn.functional.max_pool2d", g.conv("deep", x, 128), 3, 1, 1, shape=(1, 128, 4, 4),
             dtype="float32", name="pool")
    deep = g.output(total(g, y))
    lay("large-weight", deep, 1)
    lay("large-weight-version-2", deep, None, passes=[{"name": "ChannelsLast", "version": 2}],
        expected=[("ChannelsLast", 0, [refusal("more-work", "deep")])])
    g, x = begin((1, 8, 42, 42))
    few = g.output(total(g, g.conv("second", g.conv("first", x, 8), 8)))
    lay("few-channels-of-a-small-image", few, 0, refusal("more-work", "first"))

    g, x = begin()
    y = g.norm("bn", g.conv("conv", x, 16))
    g.tensors["conv.weight"]["memory_format"] = "channels_last"
    case("FuseBatchNorm", "keeps-the-memory-format", g.output(g.relu(y)), 1)


def heavy():
    """A few pixels do not pay for the copy of the weight."""
    g = Graph()
    y = g.conv("conv", g.input(shape=(1, 64, 8, 8)), 64)
    return g.output(g.method("mean", y, [2, 3], shape=(1, 64), dtype="float32"))


def patches():
    """The first layer of a vision transformer."""
    g = Graph()
    x = g.input(shape=(1, 3, 64, 64))
    g.make_conv("conv", 3, 32, kernel=16, config={"stride": (16, 16), "padding": (0, 0)})
    y = g.call("conv", x, (1, 32, 4, 4))
    y = g.method("flatten", y, 2, shape=(1, 32, 16), dtype="float32")
    return g.output(g.linear("fc", g.method("transpose", y, 1, 2, shape=(1, 16, 32), dtype="float32"), 5))
