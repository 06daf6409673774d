"""QuantizeWeights, in both dialects."""
from cases_layers import ADDMM, LINEAR, call_linear, conv, linear, own
from make_cases import Graph, case, refusal


def cases():
    def quantize(name, graph, applied, *refused, **params):
        case("QuantizeWeights", name, graph, applied, *refused,
             passes=[{"name": "QuantizeWeights", "params": params}] if params else None)

    def module(**more):
        g = Graph()
        return g.output(g.linear("a", g.input(dtype=more.get("dtype", "float32")), 3, **more))

    quantize("module", module(), 1)
    quantize("module-without-bias", module(bias=False), 1)
    quantize("module-keyword", module(keyword="input"), 1)
    for dtype in ("float64", "float16", "bfloat16"):
        quantize(f"module-{dtype}", module(dtype=dtype), 1)
    quantize("training", module(training=True), 0, refusal("training-mode", "a"))

    for form in [*LINEAR, *ADDMM]:
        g = Graph()
        quantize(f"packed-{form}", g.output(linear(g, "a", g.input(shape=(2, 32)), 3, form)), 1, form="packed")
    for shape in (2, 5, 32), ("n", 5, 32), ("n", "m", 32):
        for form in "functional", "aten":
            g = Graph()
            quantize(f"packed-{form}-{'-'.join(map(str, shape))}", g.output(linear(g, "a", g.input(shape=shape), 3, form)), 1,
                     form="packed")
    for form in [*LINEAR, *ADDMM]:
        g = Graph()
        quantize(form, g.output(linear(g, "a", g.input(), 3, form)), 1)
    g = Graph()
    quantize("aten-typed-owner",
             g.output(linear(g, "a", g.input(), 3, type="torch.nn.Linear", config={"in_features": 4, "out_features": 3})), 1)
    g = Graph()
    x = g.input()
    weight, = own(g, "a", weight=[4, 3])
    quantize("aten-mm", g.output(g.fn("torch.ops.aten.mm.default", x, weight, shape=(2, 3), dtype="float32", name="y")), 1)
    for form, sizes, target in (("linear", [4, 3], LINEAR["aten"]), ("addmm", [3, 4], ADDMM["aten-addmm"])):
        g = Graph()
        x = g.input()
        weight, bias = own(g, "a", weight=sizes, bias=[3])
        turned = g.fn("torch.ops.aten.t.default", weight, shape=(sizes[1], sizes[0]), dtype="float32", name="t")
        args = [x, turned, bias] if form == "linear" else [bias, x, turned]
        quantize(f"aten-transposed-{form}", g.output(g.fn(target, *args, shape=(2, 3), dtype="float32", name="y")), 1)

    g = Graph()
    x = g.input()
    first = g.linear("a", x, 4)
    quantize("called-twice", g.output(first, g.call("a", first, (2, 4), "float32")), 1)

    g = Graph()
    x = g.input()
    quantize("tied-weights", g.output(g.linear("b", g.linear("a", x, 4), 4, weight="a.weight", bias_name="a.bias")), 0,
             refusal("shared-weight", "a"), refusal("shared-weight", "b"))
    g = Graph()
    x = g.input()
    reads = own(g, "a", weight=[4, 4], bias=[4])
    h = call_linear(g, x, reads, 4, name="h")
    quantize("aten-weight-read-twice", g.output(call_linear(g, h, reads, 4, name="y")), 0, refusal("shared-weight", "h"),
             refusal("shared-weight", "y"))
    g = Graph()
    x = g.input()
    reads = own(g, "a", weight=[4, 4], bias=[4])
    quantize("aten-weight-is-an-output", g.output(call_linear(g, x, reads, 4, name="y"), reads[0]), 0,
             refusal("shared-weight", "y"))
    g = Graph()
    x = g.input()
    reads = own(g, "a", weight=[4, 4], bias=[4])
    g.fn("torch.ops.aten.mul_.Tensor", reads[0], 2.0, shape=(4, 4), dtype="float32", name="write")
    quantize("aten-weight-is-written", g.output(call_linear(g, x, reads, 4, name="y")), 0, refusal("shared-weight", "y"))

    g = Graph()
    quantize("one-input", g.output(g.linear("a", g.input(shape=(2, 1)), 3)), 0, refusal("saves-nothing", "a"))
    g = Graph()
    quantize("no-outputs", g.output(g.linear("a", g.input(), 0)), 0, refusal("saves-nothing", "a"))

    def three():
        g = Graph()
        x = g.linear("layers.0.up", g.input(), 4)
        return g.output(g.linear("head", g.linear("layers.1.up", x, 4), 3))

    quantize("keep-modules", three(), 1, keep=["layers"])
    quantize("keep-patterns", three(), 1, refusal("keeps-nothing"), keep=["layers.?.up", "embedding"])
    quantize("keep-operator", three(), 0, keep=["linear"])
    g = Graph()
    h = linear(g, "layers.0", g.input(), 4, name="h")
    quantize("aten-keep", g.output(linear(g, "head", h, 3, name="y")), 1, keep=["head"])

    for spatial in (1, 2, 3):
        g = Graph()
        x = g.input(shape=(2, 4) + (5,) * spatial)
        quantize(f"module-conv{spatial}d", g.output(g.conv("a", x, 6, type=f"torch.nn.Conv{spatial}d", spatial=spatial)), 1)
        g = Graph()
        x = g.input(shape=(2, 4) + (5,) * spatial)
        quantize(f"aten-conv{spatial}d", g.output(conv(g, "a", x, 6, spatial=spatial, bias=True)), 1)
    for name, more in {"groups": {"groups": 2}, "no-bias": {"bias": False},
                       "strides": {"config": {"stride": (2, 2), "dilation": (1, 1)}},
                       "transposed": {"type": "torch.nn.ConvTranspose2d", "config": {"output_padding": (0, 0)}}}.items():
        g = Graph()
        quantize(f"module-conv-{name}", g.output(g.conv("a", g.input(shape=(2, 4, 5, 5)), 6, **more)), 1)
    g = Graph()
    quantize("module-conv-circular", g.output(g.conv("a", g.input(shape=(2, 4, 5, 5)), 6, config={"padding_mode": "circular"})),
             0,
             refusal("unsupported-form", "a"))
    g = Graph()
    quantize("module-conv-transposed-groups",
             g.output(g.conv("a", g.input(shape=(2, 4, 5, 5)), 6, type="torch.nn.ConvTranspose2d", groups=2)), 0,
             refusal("grouped", "a"))
    g = Graph()
    quantize("aten-conv-transposed", g.output(conv(g, "a", g.input(shape=(2, 4, 5, 5)), 6, transposed=True, bias=True)), 1)
    g = Graph()
    quantize("depthwise-one-by-one", g.output(g.conv("a", g.input(shape=(2, 4, 5, 5)), 4, kernel=1, groups=4)), 0,
             refusal("saves-nothing", "a"))

    in_four_bits(quantize)

    case("QuantizeWeights", "applied-twice", three(), 0, passes=["QuantizeWeights", "QuantizeWeights"],
         expected=[("QuantizeWeights", 3, []), ("QuantizeWeights", 0, [])])
    case("QuantizeWeights", "then-fold-constants", three(), 0,
         passes=["QuantizeWeights", "EvaluateConstants", "FoldConstants", "EliminateCommonSubexpressions"],
         expected=[("QuantizeWeights", 3, []), ("EvaluateConstants", 0, []),
                   ("FoldConstants", 0, [refusal("unsupported-dtype", n) for n in ("mul", "mul_1", "mul_2")]),
                   ("EliminateCommonSubexpressions", 0, [])])


def in_four_bits(quantize):
    def wide(inputs=64, outputs=3, **more):
        g = Graph()
        return g.output(g.linear("a", g.input(shape=(2, inputs), dtype=more.get("dtype", "float32")), outputs, **more))

    for size in (32, 64):
        quantize(f"four-bits-groups-of-{size}", wide(), 1, bits=4, group_size=size)
    quantize("four-bits-usual-group", wide(256), 1, bits=4)
    quantize("four-bits-without-bias", wide(32, bias=False), 1, bits=4, group_size=32)
    for dtype in ("float64", "float16", "bfloat16"):
        quantize(f"four-bits-{dtype}", wide(dtype=dtype), 1, bits=4, group_size=32)
    quantize("four-bits-uneven", wide(48), 0, refusal("group-size", "a"), bits=4, group_size=32)
    quantize("four-bits-no-outputs", wide(outputs=0), 0, refusal("saves-nothing", "a"), bits=4, group_size=32)
    quantize("four-bits-no-inputs", wide(0), 0, refusal("saves-nothing", "a"), bits=4, group_size=32)
    quantize("four-bits-training", wide(training=True), 0, refusal("training-mode", "a"), bits=4, group_size=32)
    quantize("eight-bits-in-groups", wide(), 1, refusal("unused-parameter"), bits=8, group_size=32)
    quantize("four-bits-keep", wide(), 0, bits=4, group_size=32, keep=["a"])

    for form in [*LINEAR, *ADDMM]:
        g = Graph()
        quantize(f"four-bits-packed-{form}", g.output(linear(g, "a", g.input(shape=(2, 64)), 16, form)), 1, bits=4,
                 group_size=32, form="packed")
    for form in "functional", "aten":
        g = Graph()
        quantize(f"four-bits-packed-{form}-of-three-dimensions",
                 g.output(linear(g, "a", g.input(shape=(2, 5, 64)), 32, form)), 1, bits=4, group_size=64, form="packed")
    quantize("four-bits-packed-bfloat16", wide(outputs=16, dtype="bfloat16"), 1, bits=4, group_size=32, form="packed")
    for name, more in {"uneven-outputs": {"outputs": 24}, "float64": {"outputs": 16, "dtype": "float64"}}.items():
        quantize(f"four-bits-packed-{name}", wide(**more), 1, bits=4, group_size=32, form="packed")  # portable
    for form in [*LINEAR, *ADDMM]:
        g = Graph()
        quantize(f"four-bits-{form}", g.output(linear(g, "a", g.input(shape=(2, 64)), 3, form)), 1, bits=4, group_size=32)
    for form, sizes, target in (("linear", [64, 3], LINEAR["aten"]), ("addmm", [3, 64], ADDMM["aten-addmm"])):
        g = Graph()
        x = g.input(shape=(2, 64))
        weight, bias = own(g, "a", weight=sizes, bias=[3])
        turned = g.fn("torch.ops.aten.t.default", weight, shape=(sizes[1], sizes[0]), dtype="float32", name="t")
        args = [x, turned, bias] if form == "linear" else [bias, x, turned]
        quantize(f"four-bits-aten-transposed-{form}", g.output(g.fn(target, *args, shape=(2, 3), dtype="float32", name="y")), 1,
                 bits=4, group_size=32)

    g = Graph()
    first = g.linear("a", g.input(shape=(2, 32)), 32)
    quantize("four-bits-called-twice", g.output(first, g.call("a", first, (2, 32), "float32")), 1, bits=4, group_size=32)
    g = Graph()
    h = g.linear("a", g.input(shape=(2, 32)), 32)
    quantize("four-bits-tied-weights", g.output(g.linear("b", h, 32, weight="a.weight")), 0, refusal("shared-weight", "a"),
             refusal("shared-weight", "b"), bits=4, group_size=32)
    g = Graph()
    quantize("four-bits-module-conv2d", g.output(g.conv("a", g.input(shape=(2, 32, 5, 5)), 6)), 0, refusal("not-linear", "a"),
             bits=4, group_size=32)
    g = Graph()
    quantize("four-bits-aten-conv2d", g.output(conv(g, "a", g.input(shape=(2, 32, 5, 5)), 6, bias=True)), 0,
             refusal("not-linear", "a"), bits=4, group_size=32)

    four = {"name": "QuantizeWeights", "params": {"bits": 4, "group_size": 32}}
    nothing = [("MergeViews", 0, []), ("EvaluateConstants", 0, []), ("RemoveNoOps", 0, []),
               ("EliminateCommonSubexpressions", 0, []), ("EliminateDeadCode", 0, [])]
    case("QuantizeWeights", "four-bits-then-others", wide(), 1, passes=[four, *(name for name, *_ in nothing), four],
         expected=[("QuantizeWeights", 1, []), *nothing, ("QuantizeWeights", 0, [])])
