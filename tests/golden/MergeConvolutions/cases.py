"""MergeConvolutions, in both dialects."""
from cases_layers import ATEN, conv, own
from make_cases import Graph, case, refusal


def cases():
    def merge(name, graph, applied, *refused, **more):
        case("MergeConvolutions", name, graph, applied, *refused, **more)

    def modules(spatial=2, change=None, reader=None, shape=None, **each):
        """a, b and c with six, one and two channels; what `each` says of one of them."""
        g = Graph()
        x = g.input(shape=shape or (2, 4) + (5,) * spatial, dtype=each.get("a", {}).get("dtype", "float32"))
        values = []
        for path, outputs in zip("abc", (6, 1, 2)):
            if path == "b" and change:
                change(g, x)
            values.append(g.conv(path, x, outputs,
                                 **{"type": f"torch.nn.Conv{spatial}d", "spatial": spatial, **each.get(path, {})}))
        return g.output(*(reader(g, values) if reader else values))

    def functions(spatial=2, aten=True, biases=(True, True, True), change=None, **each):
        g = Graph()
        x = g.input(shape=(2, 4) + (5,) * spatial)
        values = []
        for path, outputs, bias in zip("abc", (6, 1, 2), biases):
            if path == "b" and change:
                change(g, x)
            values.append(conv(g, f"left.{path}", x, outputs,
                               **{"spatial": spatial, "aten": aten, "bias": bias, **each.get(path, {})}))
        return g.output(*values)

    for spatial in (1, 2, 3):
        merge(f"modules-{spatial}d", modules(spatial), 1)
        merge(f"aten-{spatial}d", functions(spatial), 1)
        merge(f"torch-{spatial}d", functions(spatial, aten=False), 1)
    none = {"bias": False}
    merge("no-bias", modules(a=none, b=none, c=none), 1)
    merge("mixed-bias", modules(b=none), 1)
    merge("mixed-bias-first-without", modules(a=none), 1)
    merge("mixed-bias-float16", modules(a={"dtype": "float16"}, b={"dtype": "float16", "bias": False}, c={"dtype": "float16"}),
          1)
    merge("aten-no-bias", functions(biases=(False, False, False)), 1)
    merge("aten-mixed-bias-first-without", functions(biases=(False, True, False)), 1)
    short = {path: {"options": False, "padding": 0} for path in "abc"}
    merge("aten-defaults-first-without-bias", functions(biases=(False, True, True), **short), 1)
    merge("aten-defaults-no-bias", functions(biases=(False, False, False), **short), 1)

    wide = {"config": {"stride": (2, 2)}}
    merge("another-kernel", modules(b={"kernel": 1}), 1, refusal("kernel-differs", "b"))
    merge("another-stride", modules(b=wide), 1, refusal("options-differ", "b"))
    merge("another-padding", modules(b={"config": {"padding": "same"}}), 1, refusal("options-differ", "b"))
    merge("another-dilation", modules(b={"config": {"dilation": (2, 2)}}), 1, refusal("options-differ", "b"))
    merge("another-padding-mode", modules(b={"config": {"padding_mode": "circular"}}), 1, refusal("options-differ", "b"))
    circular = {"config": {"padding_mode": "circular", "stride": (2, 2), "padding": (1, 1)}}
    merge("alike-in-every-option", modules(a=circular, b=circular, c=circular), 1)
    merge("aten-another-kernel", functions(b={"kernel": 1, "padding": 0}), 1, refusal("kernel-differs", "left_b"))
    merge("aten-another-padding", functions(b={"padding": 0}), 1, refusal("options-differ", "left_b"))
    merge("groups", modules(a={"groups": 2}), 1, refusal("grouped", "a"))
    merge("aten-groups", functions(a={"groups": 2}), 1, refusal("grouped", "left_a"))
    transposed = {"type": "torch.nn.ConvTranspose2d"}
    merge("transposed", modules(a=transposed), 1, refusal("transposed", "a"))
    merge("aten-transposed", functions(a={"transposed": True}), 1, refusal("transposed", "left_a"))
    merge("dtypes-differ", modules(b={"dtype": "float16"}), 1, refusal("dtype", "b"))
    merge("training-mode", modules(b={"training": True}), 1, refusal("training-mode", "b"))
    merge("input-is-written", modules(change=lambda g, x: g.add_(x)), 1, refusal("input-mutated", "a"))
    merge("aten-input-is-written", functions(change=lambda g, x: g.add_(x)), 1, refusal("input-mutated", "left_a"))
    merge("two-spellings", functions(a={"aten": False}), 1)

    def flat(target, *sizes):
        return lambda g, v: [g.method(target, v[0], *sizes, shape=(2, 150), dtype="float32"), *v[1:]]

    merge("reader-joins-all-but-the-batch", modules(reader=flat("view", 2, 150)), 1)
    merge("reader-joins-everything",
          modules(reader=lambda g, v: [g.method("view", v[0], -1, shape=(300,), dtype="float32"), *v[1:]]), 1,
          refusal("needs-contiguous", "a"))
    merge("reader-views-one-channel",
          modules(reader=lambda g, v: [v[0], g.method("view", v[1], 10, 5, shape=(10, 5), dtype="float32"), v[2]]), 1,
          refusal("needs-contiguous", "b"))
    merge("reader-asks-for-strides", modules(reader=lambda g, v: [v[0], g.method("stride", v[1]), v[2]]), 1,
          refusal("needs-contiguous", "b"))

    def result_is_written(g, v):
        g.add_(v[0])
        return v

    merge("result-is-written", modules(reader=result_is_written), 1, refusal("mutated", "a"))

    def contiguous_is_written(g, v):
        y = g.method("contiguous", v[0], shape=(2, 6, 5, 5), dtype="float32")
        g.add_(y)
        return [*v, y]

    merge("contiguous-is-written", modules(reader=contiguous_is_written), 1, refusal("needs-contiguous", "a"))

    g = Graph()
    x = g.input(shape=("s0", 4, "s1", "s1"))
    a, b = g.conv("a", x, 3), g.conv("b", x, 2)
    merge("symbolic", g.output(g.relu(a), b), 1)
    g = Graph()
    x = g.input(shape=("s0", 4, "s1", "s1"))
    a, b, c = g.conv("a", x, 3), g.conv("b", x, 2), g.conv("c", x, 2)
    merge("symbolic-view", g.output(g.method("view", a, -1, 3), b, c), 1, refusal("needs-contiguous", "a"))

    g = Graph()
    x = g.input(shape=(2, 4, 5, 5))
    first, second = g.conv("a", x, 3), g.call("a", x, (2, 3, 5, 5), "float32")
    merge("called-twice", g.output(first, second, g.conv("b", x, 2), g.conv("c", x, 2)), 1, refusal("shared-module", "a"),
          refusal("shared-module", "a_1"))

    g = Graph()
    x = g.input(shape=(2, 4, 5, 5))
    values = [g.conv(path, x, 2, kernel=1 if path in "bd" else 3) for path in "abcde"]
    merge("two-applications", g.output(*values), 1, refusal("kernel-differs", "b"), refusal("kernel-differs", "d"))

    def convolution(transposed=False):
        g = Graph()
        x = g.input(shape=(2, 4, 5, 5))
        values = []
        for path, outputs in (("a", 3), ("b", 2)):
            w, v = own(g, path, weight=[4, outputs, 3, 3] if transposed else [outputs, 4, 3, 3], bias=[outputs])
            values.append(g.fn(ATEN + "convolution.default", x, w, v if path == "b" else None, [1, 1], [1, 1],
                               [1, 1], transposed,
                               [0, 0], 1, shape=(2, outputs, 5, 5), dtype="float32", name=f"call_{path}"))
        return g.output(*values)

    merge("aten-convolution", convolution(), 1)
    merge("aten-convolution-transposed", convolution(True), 0, refusal("transposed", "call_a"), refusal("transposed", "call_b"))

    g = Graph()
    x = g.input(shape=(2, 4, 5, 5))
    w, v = own(g, "a", weight=[3, 4, 3, 3], bias=[3])
    u, z = own(g, "b", weight=[2, 4, 3, 3], bias=[2])
    more = {"padding": 1}
    values = [g.fn("torch.conv2d", x, shape=(2, 3, 5, 5), dtype="float32", kwargs={"weight": w, **more}, name="y"),
              g.fn("torch.conv2d", x, shape=(2, 2, 5, 5), dtype="float32", kwargs={"weight": u, "bias": z, **more}, name="z")]
    merge("torch-keywords", g.output(*values), 1)

    g = Graph()
    x = g.input(shape=(2, 4, 5, 5))
    reads = own(g, "a", weight=[3, 4, 3, 3], bias=[3])
    merge("aten-one-weight-for-both", g.output(conv(g, "y", x, 3, reads=reads), conv(g, "z", x, 3, reads=reads)), 1)

