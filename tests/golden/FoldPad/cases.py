"""FoldPad, in both dialects."""
from cases_layers import ATEN, conv
from make_cases import Graph, Raw, case, refusal


def sizes_behind(shape, sizes):
    grown = list(shape)
    for i in range(0, len(sizes), 2):
        grown[-1 - i // 2] += sizes[i] + sizes[i + 1]
    return tuple(grown)


def pad(g, x, sizes, how="functional", name="pad", value=None, mode=None):
    """A pad of the last dimensions, spelled in one of the ways that there are."""
    shape, dtype = g.names[x]
    more = {"shape": sizes_behind(shape, sizes), "dtype": dtype, "name": name}
    given = [v for v in (mode, value) if v is not None]
    if how == "functional":
        return g.fn("torch.nn.functional.pad", x, tuple(sizes), *given, **more)
    if how == "keywords":
        return g.fn("torch.nn.functional.pad", x, kwargs={"pad": list(sizes), "mode": "constant", "value": 0.0}, **more)
    if how == "aten":
        return g.fn(ATEN + "pad.default", x, list(sizes), *given, **more)
    if how == "nd":
        return g.fn(ATEN + "constant_pad_nd.default", x, list(sizes), *given, **more)
    config = {"padding": tuple(sizes), **({"value": value} if value is not None else {})}
    g.module(name, f"torch.nn.{how}", config)
    return g.call(name, x, more["shape"], dtype)


def pool(g, x, spatial=2, path="pool", type="AvgPool", **config):
    shape = g.names[x][0]
    kernel, padding = config.get("kernel_size", 2), config.get("padding", 0)
    g.module(path, f"torch.nn.{type}{spatial}d", {"kernel_size": kernel, "stride": 1, "padding": padding, **config})
    return g.call(path, x, tuple(shape[:-spatial]) + tuple(n + 2 * padding - kernel + 1 for n in shape[-spatial:]))


def cases():
    def fold(name, graph, applied, *refused, **more):
        case("FoldPad", name, graph, applied, *refused, **more)

    both = lambda reason, pad="pad", call="conv": refusal(reason, pad, call)
    plain = {"config": {"padding": (0, 0)}}

    def layer(sizes=(1, 1, 1, 1), how="functional", spatial=2, shape=None, between=None, behind=None, conv=None, **more):
        """A module, and what is between and behind."""
        g = Graph()
        x = g.input(shape=shape or (2, 4) + (6,) * spatial)
        x = g.relu(x)
        padded = pad(g, x, sizes, how, **more)
        if between:
            between(g, x, padded)
        conv = {"config": {"padding": (0,) * spatial}, **(conv or {})}
        size = g.names[padded][0]
        g.make_conv("conv", 4, 6, **{"type": f"torch.nn.Conv{spatial}d", "spatial": spatial, **conv})
        y = g.call("conv", padded, (size[0], 6) + tuple(n - 2 for n in size[2:]))
        return g.output(y, *(behind(g, x, padded, y) if behind else []))

    def call(sizes=(1, 1, 1, 1), how="aten", spatial=2, aten=True, padding=0, **more):
        g = Graph()
        x = g.input(shape=(2, 4) + (6,) * spatial)
        if spatial == 1:
            x = g.method("contiguous", x, shape=(2, 4, 6), dtype="float32")
        padded = pad(g, x, sizes, how)
        y = conv(g, "conv", padded, 6, spatial=spatial, aten=aten, padding=padding, **more)
        return g.output(y)

    for how in ("functional", "keywords", "ZeroPad2d", "aten", "nd"):
        fold(how.lower(), layer(how=how), 1)
    fold("constant-pad", layer(how="ConstantPad2d", value=0.0), 1)
    fold("constant-of-one", layer(how="ConstantPad2d", value=1.0), 0)
    fold("functional-constant-of-one", layer(mode="constant", value=1.0), 0)
    fold("reflection", layer(mode="reflect"), 0)
    fold("reflection-pad", layer(how="ReflectionPad2d"), 0)
    fold("functions-1d", call((1, 1), spatial=1), 1)
    fold("functions-2d", call(), 1)
    fold("functions-3d", call((1, 1, 0, 0, 2, 2), spatial=3), 1)
    fold("torch-functions", call(how="functional", aten=False), 1)
    fold("without-options", call(options=False), 1)
    for spatial in (1, 2, 3):
        fold(f"aten-valid-conv{spatial}d", call((1, 1) * spatial, spatial=spatial, options=False, overload=".padding"), 1)
    fold("padded-already", call((2, 2, 1, 1), padding=1), 1)
    fold("padded-module", layer(conv={"config": {"padding": (1, 2)}}), 1)
    fold("one-number", layer((2, 2), conv={"config": {"padding": 1}}), 1)
    fold("one-dimension", layer((1, 1)), 1)
    fold("strides-groups-and-dilation",
         layer(conv={"groups": 2, "config": {"stride": (2, 1), "dilation": (1, 2), "padding": (0, 0)}}), 1)
    fold("training-mode", layer(conv={"training": True, **plain}), 1)
    fold("not-batched", layer((1, 1, 1, 1), shape=(4, 6, 6)), 0, both("needs-contiguous"))

    fold("more-on-one-side", layer((1, 2, 1, 1)), 0, both("unsupported-arguments"))
    fold("cut-off", layer((-1, -1, 1, 1)), 0, both("unsupported-arguments"))
    fold("channels-too", layer((0, 0, 0, 0, 1, 1)), 0, both("unsupported-arguments"))
    fold("all-but-the-channels", layer((1, 1, 1, 1, 0, 0, 0, 0)), 1)
    fold("same", layer(conv={"config": {"padding": "same"}}), 0, both("unsupported-arguments"))
    fold("circular", layer(conv={"config": {"padding": (1, 1), "padding_mode": "circular"}}), 0, both("unsupported-arguments"))
    fold("transposed", layer(conv={"type": "torch.nn.ConvTranspose2d"}), 0, both("transposed"))
    fold("other-readers", layer(behind=lambda g, x, p, y: [g.relu(p)]), 0, both("shared-output"))
    fold("returned", layer(behind=lambda g, x, p, y: [p]), 0, both("shared-output"))
    fold("written-between", layer(between=lambda g, x, p: g.add_(x)), 0, both("input-mutated"))
    fold("written-later", layer(behind=lambda g, x, p, y: [g.add_(x)]), 0, both("mutated"))
    fold("padded-value-is-written", layer(between=lambda g, x, p: g.add_(p)), 0, both("shared-output"))
    fold("mode-switched", layer(between=lambda g, x, p: g.fn("torch.amp.autocast_mode._enter_autocast", "cpu", name="mode")), 0,
         both("mode-switched"))
    fold("read-by-get-attr", layer(behind=lambda g, x, p, y: [g.get_attr("conv.weight", (6, 4, 3, 3))]), 0, both("module-read"))
    fold("hooked", layer(conv={"type": "torch.nn.Conv2d (hooks)"}), 0)
    fold("sequence-returned", layer((1, 1), spatial=1), 0, both("needs-contiguous"))
    fold("twice", layer(), None, passes=["FoldPad"] * 2,
         expected=[("FoldPad", 1, []), ("FoldPad", 0, [refusal("already-transformed", "conv")])])

    def again(second, conv=plain, sizes=(1, 1, 1, 1), how="ZeroPad2d"):
        """The convolution is called twice."""
        g = Graph()
        x = g.input(shape=(2, 4, 6, 6))
        a = pad(g, x, sizes, how)
        g.make_conv("conv", 4, 4, **conv)
        b = g.call("conv", a, (2, 4, 6, 6))
        c = second(g, b)
        return g.output(g.call("conv", c, (2, 4) + tuple(n - 2 for n in g.names[c][0][2:])))

    fold("called-twice", again(lambda g, b: g.call("pad", b, (2, 4, 8, 8))), 1)
    fold("called-twice-padded-by-two", again(lambda g, b: pad(g, b, (1, 1, 1, 1), "functional", "other")), 1)
    fold("called-twice-without", again(lambda g, b: b), 0, both("shared-module"))
    fold("called-twice-otherwise", again(lambda g, b: pad(g, b, (2, 2, 1, 1), "functional", "other")), 0, both("shared-module"))

    g = Graph()
    x = g.input(shape=(2, 4, 6, 6))
    a = pad(g, pad(g, x, (1, 1), "functional", "inner"), (0, 0, 1, 1), "functional")
    y = g.conv("conv", a, 4, **plain)
    fold("two-pads", g.output(y), None, passes=["FoldPad"] * 2,
         expected=[("FoldPad", 1, []), ("FoldPad", 0, [refusal("already-transformed", "conv")])])

    g = Graph()
    x = g.input(shape=(2, 4, "s0", 6))
    g.fn(ATEN + "sym_size.int", x, 2, name="n")
    a = g.fn(ATEN + "pad.default", x, Raw([1, 1, {"$node": "n"}, {"$node": "n"}]), dtype="float32", name="pad")
    g.make_conv("conv", 4, 4, **plain)
    fold("symbolic-padding", g.output(g.call("conv", a)), 0, both("unsupported-arguments"))

    # ---- pools

    def average(spatial=2, sizes=None, type="AvgPool", how="functional", **config):
        g = Graph()
        x = g.relu(g.input(shape=(2, 4) + (6,) * spatial))
        if spatial == 1:
            x = g.method("contiguous", x, shape=(2, 4, 6), dtype="float32")
        padded = pad(g, x, sizes or (1, 1) * spatial, how)
        return g.output(pool(g, padded, spatial, type=type, **config))

    for spatial in (1, 2, 3):
        fold(f"average-pool-{spatial}d", average(spatial), 1)
    fold("average-pool-padded-already", average(kernel_size=4, padding=1), 1)
    fold("average-pool-with-divisor", average(divisor_override=3), 1)
    fold("average-pool-of-half-its-kernel", average(kernel_size=3, sizes=(2, 2)), 0, both("unsupported-arguments", call="pool"))
    fold("average-pool-rounds-up", average(ceil_mode=True), 0, both("unsupported-arguments", call="pool"))
    fold("average-pool-counts-no-padding", average(count_include_pad=False), 0, both("unsupported-arguments", call="pool"))
    fold("max-pool", average(type="MaxPool"), 0, both("unsupported-type", call="pool"))

    def function(target, *more, how="aten"):
        g = Graph()
        padded = pad(g, g.input(shape=(2, 4, 6, 6)), (1, 1, 1, 1), how)
        return g.output(g.fn(target, padded, *more, shape=(2, 4, 4, 4), dtype="float32", name="pool"))

    fold("aten-average-pool", function(ATEN + "avg_pool2d.default", [2, 2], [2, 2]), 1)
    fold("average-pool-function", function("torch.nn.functional.avg_pool2d", 2, 2, how="functional"), 1)
    fold("average-pool-function-counts", function(ATEN + "avg_pool2d.default", [2, 2], [2, 2], [0, 0], False, False), 0,
         both("unsupported-arguments", call="pool"))
    fold("other-pools", function(ATEN + "adaptive_avg_pool2d.default", [4, 4]), 0)
