"""MergeConsecutiveLinears, in both dialects."""
from cases_layers import ADDMM, LINEAR, call_linear, linear, own
from make_cases import Graph, case, refusal


def cases():
    def merge(name, graph, applied, *refused, **more):
        case("MergeConsecutiveLinears", name, graph, applied, *refused, **more)

    def modules(middle=4, outputs=3, change=None, behind=None, shape=(2, 4), first={}, second={}):
        g = Graph()
        x = g.input(shape=shape, dtype=first.get("dtype", "float32"))
        h = g.linear("a", x, middle, **first)
        if change:
            change(g, x, h)
        y = g.linear("b", h, outputs, **second)
        if behind:
            behind(g, x)
        return g.output(y)

    merge("modules", modules(), 1)
    merge("three-dimensions", modules(shape=(2, 5, 4)), 1)
    merge("symbolic-batch", modules(shape=("s0", 4)), 1)
    merge("first-without-bias", modules(first={"bias": False}), 1)
    merge("second-without-bias", modules(second={"bias": False}), 1)
    merge("no-bias", modules(first={"bias": False}, second={"bias": False}), 1)
    for dtype in ("float64", "bfloat16"):
        merge(f"dtype-{dtype}", modules(first={"dtype": dtype}, second={"dtype": dtype}), 1)
    merge("float16", modules(first={"dtype": "float16"}, second={"dtype": "float16"}), 0,
          refusal("unsupported-dtype", "a", "b"))
    merge("as-many-multiplications", modules(middle=2, outputs=4), 1)
    merge("narrow-middle", modules(middle=1, outputs=4), 0, refusal("more-work", "a", "b"))
    merge("training", modules(first={"training": True}), 0, refusal("training-mode", "a", "b"))
    merge("dtypes-differ", modules(second={"dtype": "float64"}), 0, refusal("dtype", "a", "b"))
    merge("sizes-do-not-fit", modules(second={"inputs": 5}), 0, refusal("shape-mismatch", "a", "b"))
    merge("unknown-dtype", modules(first={"meta": False}, second={"inputs": 4}), 0, refusal("dtype", "a", "b"))
    merge("no-features", modules(middle=0), 0, refusal("shape-mismatch", "a", "b"))
    merge("middle-is-read", modules(change=lambda g, x, h: g.relu(h)), 0, refusal("shared-output", "a", "b"))
    merge("middle-is-written", modules(change=lambda g, x, h: g.add_(h)), 0, refusal("shared-output", "a", "b"))
    merge("input-is-written-later", modules(behind=lambda g, x: g.add_(x)), 0, refusal("mutated", "a", "b"))
    merge("input-is-written", modules(change=lambda g, x, h: g.add_(x)), 0, refusal("input-mutated", "a", "b"))

    g = Graph()
    x = g.input()
    h = g.linear("a", x, 4)
    merge("middle-is-an-output", g.output(h, g.linear("b", h, 3)), 0, refusal("shared-output", "a", "b"))

    g = Graph()
    x = g.input()
    first = g.linear("a", x, 4)
    y = g.linear("b", first, 3)
    merge("first-is-called-twice", g.output(y, g.call("a", g.relu(x), (2, 4), "float32")), 0,
          refusal("shared-module", "a", "b"))

    g = Graph()
    h = g.linear("a", g.input(), 4)
    merge("one-module-after-itself", g.output(g.call("a", h, (2, 4), "float32")), 0, refusal("shared-module", "a", "a_1"))

    g = Graph()
    h = g.linear("a", g.input(), 4)
    merge("tied-weights", g.output(g.linear("b", h, 4, weight="a.weight", bias_name="a.bias")), 1)

    g = Graph()
    h = g.linear("a", g.input(), 4)
    merge("chain-of-three", g.output(g.linear("c", g.linear("b", h, 4), 4)), 1)

    g = Graph()
    h = g.linear("a", g.input(), 4)
    merge("activation-between", g.output(g.linear("b", g.relu(h), 3)), 0)

    forms = [*LINEAR, *ADDMM]
    for one in forms:
        for other in (forms if one in ("aten", "aten-addmm") else [one]):
            g = Graph()
            h = linear(g, "a", g.input(), 4, one)
            merge(f"{one}-{other}", g.output(linear(g, "b", h, 3, other)), 1)

    g = Graph()
    h = linear(g, "a", g.input(), 4, bias=False)
    merge("aten-first-without-bias", g.output(linear(g, "b", h, 3)), 1)
    g = Graph()
    h = linear(g, "a", g.input(), 4)
    merge("aten-second-without-bias", g.output(linear(g, "b", h, 3, bias=False)), 1)

    g = Graph()
    x = g.input()
    w, v = own(g, "a", weight=[4, 5]), own(g, "b", weight=[5, 3])
    h = g.fn("torch.ops.aten.addmm.default", own(g, "a", bias=[5])[0], x, w[0], shape=(2, 5), dtype="float32", name="h")
    y = g.fn("torch.ops.aten.mm.default", h, v[0], shape=(2, 3), dtype="float32", name="y")
    merge("aten-mm-gets-a-bias", g.output(y), 1)

    g = Graph()
    x = g.input()
    reads = own(g, "a", weight=[4, 4], bias=[4])
    h = call_linear(g, x, reads, 4, name="h")
    merge("aten-one-weight-for-both", g.output(call_linear(g, h, reads, 4, name="y")), 1)

    g = Graph()
    x = g.input()
    reads = own(g, "b", weight=[4, 4], bias=[4])
    h = linear(g, "a", x, 4)
    merge("aten-second-weight-has-another-reader",
          g.output(call_linear(g, h, reads, 4, name="y"), call_linear(g, g.relu(x), reads, 4, name="z")), 1)
