"""MergeAdapters, in both dialects."""
from cases_layers import ATEN, linear, own
from make_cases import Graph, Raw, case, refusal

NODES = ("base", "down", "up", "sum")


def cases():
    def merge(name, graph, applied, *refused, **more):
        case("MergeAdapters", name, graph, applied, *refused, **more)

    def modules(scale=("operator.mul", 2.0), shape=(2, 4), rank=2, outputs=3, sum="operator.add", swapped=False, base={},
                down={}, up={}, dtype="float32", between=None, behind=None, meta=True):
        """base(x) + up(down(x)) * scale"""
        g = Graph()
        x = g.input(shape=shape, dtype=dtype)
        result = (*shape[:-1], outputs)
        y = g.linear("base", x, outputs, **{"dtype": dtype, "meta": meta, **base})
        if between:
            between(g, x, y)
        h = g.linear("down", x, rank, **{"dtype": dtype, "bias": False, **down})
        z = g.linear("up", h, **{"outputs": outputs, "dtype": dtype, "bias": False, **up})
        for target, number in [scale] if scale else []:
            z = g.fn(target, z, number, shape=result, dtype=dtype, name="scaled")
        y = g.fn(sum, *((z, y) if swapped else (y, z)), shape=result, dtype=dtype, name="sum")
        if behind:
            behind(g, x, h, z, y)
        return g.output(y)

    def refused(name, reason, graph):
        merge(name, graph, 0, refusal(reason, *NODES))

    merge("modules", modules(), 1)
    merge("three-dimensions", modules(shape=(2, 5, 4)), 1)
    merge("symbolic-batch", modules(shape=("s0", 4)), 1)
    merge("without-a-factor", modules(scale=None), 1)
    merge("divided", modules(scale=("operator.truediv", 4)), 1)
    merge("the-branch-first", modules(swapped=True), 1)
    merge("subtracted", modules(sum="operator.sub"), 1)
    merge("biases", modules(down={"bias": True}, up={"bias": True}), 1)
    merge("a-bias-of-the-branch-alone", modules(base={"bias": False}, up={"bias": True}), 1)
    merge("no-bias", modules(base={"bias": False}), 1)
    merge("added-in-place", modules(sum="operator.iadd"), 1)
    for dtype in ("float64", "float16", "bfloat16"):
        merge(f"dtype-{dtype}", modules(dtype=dtype), 1)
    merge("a-frozen-base", modules(base={"weight_grad": False, "bias_grad": False}), 1)
    merge("the-base-is-subtracted", modules(sum="operator.sub", swapped=True), 0)
    merge("with-a-factor-of-its-own", modules(sum="torch.add", scale=("torch.sigmoid", 2)), 0)

    refused("scaled-by-zero", "unsupported-constant", modules(scale=("operator.mul", 0.0)))
    refused("scaled-by-infinity", "unsupported-constant", modules(scale=("operator.mul", Raw({"$float": "inf"}))))
    refused("training", "training-mode", modules(down={"training": True}))
    refused("dtypes-differ", "dtype", modules(up={"dtype": "float64"}))
    refused("unknown-shape", "unknown-shape", modules(meta=False))
    refused("outputs-are-broadcast", "shape-mismatch", modules(up={"outputs": 1}))
    refused("sizes-do-not-fit", "shape-mismatch", modules(up={"inputs": 5}))
    refused("input-is-written", "input-mutated", modules(between=lambda g, x, y: g.add_(x)))
    refused("base-is-read", "shared-output", modules(between=lambda g, x, y: g.relu(y)))
    refused("base-is-written", "shared-output", modules(between=lambda g, x, y: g.add_(y)))
    refused("middle-is-read", "shared-output", modules(behind=lambda g, x, h, z, y: g.relu(h)))
    refused("branch-is-read", "shared-output", modules(behind=lambda g, x, h, z, y: g.relu(z)))
    refused("a-module-is-called-twice", "shared-module",
            modules(behind=lambda g, x, h, z, y: g.call("down", g.relu(x), (2, 2), "float32", name="again")))
    merge("input-is-written-later", modules(behind=lambda g, x, h, z, y: g.add_(x)), 1)

    # ---- functions

    def functions(base="aten", down="aten", up="aten", bias=True, kwargs=None, tied=False, last=None):
        g = Graph()
        x = g.input(shape=(2, 4))
        name = lambda form, aten, other: ATEN + aten if form.startswith("aten") else other
        y = linear(g, "base", x, 3, base, bias=bias or base.endswith("addmm"))
        h = linear(g, "down", x, 2, down, bias=down.endswith("addmm"))
        z = linear(g, "up", h, 3, up, bias=up.endswith("addmm"))
        z = g.fn(name(base, "mul.Tensor", "operator.mul"), z, 0.5, shape=(2, 3), dtype="float32", name="scaled")
        y = g.fn(name(base, "add.Tensor", "operator.add"), y, z, shape=(2, 3), dtype="float32", name="sum", kwargs=kwargs)
        values = [y]
        if tied:
            values.append(g.fn(ATEN + "relu.default", "base_weight", shape=(3, 4), dtype="float32"))
        return g.output(*values)

    for form in ("aten", "functional", "builtin", "aten-addmm", "addmm"):
        merge(f"functions-{form}", functions(form, form, form), 1)
    merge("aten-packed-branch", functions("aten", "aten-addmm", "aten"), 1)
    merge("aten-packed-base", functions("aten-addmm", "aten", "aten-addmm"), 1)
    merge("aten-without-a-bias", functions(bias=False), 1)
    merge("aten-weight-is-read-elsewhere", functions(tied=True), 1)
    merge("aten-added-with-alpha", functions(kwargs={"alpha": 2}), 0)

    g = Graph()  # two adapters of one Linear
    x = g.input()
    y = g.linear("base", x, 3)
    for i in (1, 2):
        z = g.linear(f"up{i}", g.linear(f"down{i}", x, 2, bias=False), 3, bias=False)
        y = g.fn("operator.add", y, z, shape=(2, 3), dtype="float32", name=f"sum{i}")
    merge("two-adapters", g.output(y), None, passes=["MergeAdapters"] * 2,
          expected=[("MergeAdapters", 1, []), ("MergeAdapters", 1, [refusal("already-transformed", "base_1")])])

    g = Graph()  # read from what the other is
    x = g.input()
    [w] = own(g, "owner", weight=[4, 4])
    y = g.fn("torch.nn.functional.linear", x, w, shape=(2, 4), dtype="float32", name="base")
    h = g.fn("torch.nn.functional.linear", x, w, shape=(2, 4), dtype="float32", name="down")
    z = g.fn("torch.nn.functional.linear", h, w, shape=(2, 4), dtype="float32", name="up")
    merge("one-weight-for-all", g.output(g.fn("operator.add", y, z, shape=(2, 4), dtype="float32", name="sum")), 1)
