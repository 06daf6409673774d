"""MergeBranches, in both dialects."""
from cases_layers import ATEN, conv, norm, own
from make_cases import Graph, case, refusal


def cases():
    def merge(name, graph, applied, *refused, **more):
        case("MergeBranches", name, graph, applied, *refused, **more)

    def refused(reason, *nodes):
        return refusal(reason, *nodes, "y")

    def add(g, a, b, name="y", target="operator.add", **more):
        shape, dtype = g.names[a]
        return g.fn(target, a, b, shape=shape, dtype=dtype, name=name, **more)

    def modules(spatial=2, channels=4, dtype="float32", shape=None, join=None, reader=None, contiguous=False, **each):
        """A kernel of 3 and one of 1, a BatchNorm, and the value; what `each` says of one of them, None: it is left out."""
        g = Graph()
        x = g.input(shape=shape or (2, channels) + (5,) * spatial, dtype=dtype)
        if contiguous:
            x = g.method("contiguous", x, shape=g.names[x][0], dtype=dtype)
        values = []
        kind = {"type": f"torch.nn.Conv{spatial}d", "spatial": spatial, "dtype": dtype}
        for path, kernel in (("three", 3), ("one", 1)):
            if each.get(path, {}) is not None:
                more = {**kind, "kernel": kernel, **each.get(path, {})}
                values.append(g.conv(path, x, more.pop("outputs", channels), **more))
        if each.get("norm", {}) is not None:
            values.append(g.norm("norm", x, **{"spatial": spatial, "dtype": dtype, **each.get("norm", {})}))
        if each.get("identity", {}) is not None:
            values.append(x)
        total = values[0]
        for i, value in enumerate(values[1:], 1):
            total = (join or add)(g, total, value, "y" if i + 1 == len(values) else f"s{i}")
        return g.output(*(reader(g, values, total) if reader else [total]))

    for spatial in (1, 2, 3):
        merge(f"modules-{spatial}d", modules(spatial, contiguous=spatial == 1, reader=lambda g, v, y: [g.relu(y)]), 1)
    alone = {"norm": None, "identity": None}
    merge("two-kernels", modules(**alone), 1)
    merge("two-kernels-1d", modules(1, **alone), 1)
    merge("no-bias", modules(three={"bias": False}, one={"bias": False}, **alone), 1)
    merge("bias-of-the-smaller", modules(three={"bias": False}, **alone), 1)
    merge("value-alone", modules(one=None, norm=None), 1)
    merge("norm-alone", modules(one=None, identity=None), 1)
    merge("norm-without-affine", modules(one=None, identity=None, norm={"affine": False}), 1)
    merge("groups", modules(channels=6, three={"groups": 3}, one={"groups": 3}), 1)
    merge("depthwise", modules(three={"groups": 4}, one={"groups": 4}), 1)
    merge("float16", modules(dtype="float16"), 1)
    merge("bfloat16", modules(dtype="bfloat16"), 1)
    wide = {"kernel": 7, "config": {"dilation": (2, 2), "padding": (6, 6)}}
    merge("dilated", modules(three=wide, one={"kernel": 3, "config": {"dilation": (2, 2), "padding": (2, 2)}}), 1)
    merge("same-and-valid", modules(three={"config": {"padding": "same"}}, one={"config": {"padding": "valid"}}), 1)
    strides = {"config": {"stride": (2, 2), "padding": (1, 1)}}, {"config": {"stride": (2, 2), "padding": (0, 0)}}
    half = {"shape": (2, 4, 3, 3), "dtype": "float32"}

    def strided(one, *more):
        g = Graph()
        x = g.input(shape=(2, 4, 5, 5))
        g.make_conv("three", 4, 4, **strides[0])
        g.make_conv("one", 4, 4, kernel=1, **one)
        a, b = g.call("three", x, **half), g.call("one", x, **half)
        return g.output(add(g, a, b))

    merge("strided", strided(strides[1]), 1)
    merge("strides-differ", strided({"config": {"stride": (3, 3), "padding": (2, 2)}}), 0,
          refused("options-differ", "three", "one"))

    def minus(g, a, b, name):
        return add(g, a, b, name, "operator.sub" if name != "y" else "torch.sub")

    merge("differences", modules(join=minus), 1)
    merge("largest-is-subtracted", modules(join=lambda g, a, b, name: add(g, b, a, name, "operator.sub"), **alone), 1)
    merge("in-place", modules(join=lambda g, a, b, name: add(g, a, b, name, "operator.iadd")), 1)
    merge("method-in-place",
          modules(join=lambda g, a, b, name: g.method("add_", a, b, shape=g.names[a][0], dtype="float32", name=name)), 1)
    merge("into-the-value", modules(join=lambda g, a, b, name: add(g, b, a, name, "operator.iadd"), one=None, norm=None), 0,
          refused("input-mutated", "three"))
    merge("alpha", modules(join=lambda g, a, b, name: add(g, a, b, name, "torch.add", kwargs={"alpha": 2}), **alone), 0)

    def from_zero(g, a, b, name):
        return add(g, add(g, a, 0, f"{name}_0") if name == "y" else a, b, name)

    merge("from-zero", modules(join=from_zero), 1)
    merge("one-is-added", modules(join=lambda g, a, b, name: add(g, add(g, a, 1, f"{name}_0"), b, name), **alone), 0)

    def twice(g, a, b, name):
        return add(g, add(g, a, b, "s"), add(g, b, b, "t"), name)

    merge("branch-is-added-twice", modules(join=twice, **alone), 0, refused("shared-output", "three", "one", "one", "one"))
    merge("branch-is-returned", modules(reader=lambda g, v, y: [y, v[0]], **alone), 0, refused("shared-output", "three", "one"))
    merge("sum-is-written", modules(reader=lambda g, v, y: [g.fn("torch.relu_", y, shape=(2, 4, 5, 5), dtype="float32")]), 1)
    merge("view-of-the-sum", modules(1, reader=lambda g, v, y: [g.method("view", y, -1, shape=(40,), dtype="float32")]), 0,
          refused("needs-contiguous", "three", "one", "norm"))

    merge("another-kernel", modules(three={"config": {"kernel_size": (3, 3), "dilation": (2, 2), "padding": (2, 2)}},
                                    one={"kernel": 3}, **alone), 0, refused("kernel-differs", "three", "one"))
    merge("result-is-smaller", modules(three={"config": {"padding": (2, 2)}}, **alone), 0,
          refused("options-differ", "three", "one"))
    merge("uneven-same", modules(three={"kernel": 4, "config": {"padding": "same"}}, **alone), 0,
          refused("unsupported-arguments", "three", "one"))
    merge("circular", modules(three={"config": {"padding_mode": "circular"}}, **alone), 0,
          refused("unsupported-arguments", "three", "one"))
    merge("other-groups", modules(three={"groups": 2}, **alone), 0, refused("grouped", "three", "one"))
    merge("transposed", modules(one={"type": "torch.nn.ConvTranspose2d"}, **alone), 0, refused("transposed", "three", "one"))
    merge("dtypes-differ", modules(one={"dtype": "float16"}, **alone), 0, refused("dtype", "three", "one"))
    merge("norm-in-training", modules(norm={"training": True}), 0, refused("training-mode", "three", "one", "norm"))
    merge("norm-without-statistics", modules(norm={"mean": False, "var": False}), 0,
          refused("no-running-statistics", "three", "one", "norm"))
    merge("norm-of-eps-0", modules(norm={"eps": 0.0}), 0, refused("unsupported-constant", "three", "one", "norm"))
    merge("one-channel", modules(channels=1), 1)
    merge("symbolic", modules(shape=("s0", 4, "s1", "s2")), 1)

    g = Graph()
    x = g.input(shape=(2, 4, 5, 5))
    a = g.conv("three", x, 4)
    g.add_(x)
    merge("input-is-written", g.output(add(g, a, g.conv("one", x, 4, kernel=1))), 0, refused("input-mutated", "three", "one"))

    g = Graph()
    x = g.input(shape=(2, 4, 5, 5))
    a, b = g.conv("three", x, 4), g.call("three", x, name="again")
    merge("one-module", g.output(add(g, a, b)), 0, refused("shared-module", "three", "again"))

    def unfolded(training=False):
        g = Graph()
        x = g.input(shape=(2, 4, 5, 5))
        a = g.norm("b3", g.conv("three", x, 4, bias=False), training=training)
        b = g.norm("b1", g.conv("one", x, 4, kernel=1, bias=False), training=training)
        s = add(g, a, b, "s")
        return g.output(g.relu(add(g, s, g.norm("b0", x, training=training))))

    def rounds():
        g = Graph()
        x = g.input(shape=(2, 4, 5, 5))
        y = add(g, g.norm("b3", g.conv("three", x, 4, bias=False)), x, "s")
        return g.output(add(g, g.norm("behind", y), x))

    merge("norms-between", unfolded(), 0, refused("norm-between", "b3", "b1", "b0"))
    merge("norms-in-training", unfolded(True), 0, refused("training-mode", "b3", "b1", "b0"))
    merge("norm-behind-the-sum", rounds(), None, passes=["FuseBatchNorm", "MergeBranches", "FuseBatchNorm", "MergeBranches"],
          expected=[("FuseBatchNorm", 1, []), ("MergeBranches", 1, []), ("FuseBatchNorm", 1, []), ("MergeBranches", 1, [])])
    merge("repvgg", unfolded(), None, passes=["FuseBatchNorm", "MergeBranches"],
          expected=[("FuseBatchNorm", 2, []), ("MergeBranches", 1, [])])

    g = Graph()
    x = g.input(shape=(2, 4, 5, 5))
    a = g.conv("inner", x, 4, kernel=1, groups=4)
    b = g.conv("outer", x, 4, groups=4)
    s = add(g, a, b, "s")
    c = g.conv("after", s, 4)
    merge("two-sums", g.output(add(g, c, s)), 2)

    g = Graph()
    x = g.conv("stem", g.input(shape=(2, 4, 5, 5)), 4)
    merge("value-of-a-convolution", g.output(add(g, x, g.conv("three", x, 4))), 1)
    g = Graph()
    x = g.input(shape=(2, 4, 5, 5))
    merge("other-inputs", g.output(add(g, g.conv("a", x, 4), g.conv("b", g.relu(x), 4))), 0)

    def functions(aten=True, reads=None, shape=(2, 4, 5, 5), **more):
        g = Graph()
        x = g.input(shape=shape)
        target = ATEN + "add.Tensor" if aten else "torch.add"
        a = conv(g, "three", x, 4, aten=aten, bias=True, **more)
        b = conv(g, "one", x, 4, kernel=1, padding=0, aten=aten, **more)
        s = add(g, a, b, "s", target)
        t = add(g, s, norm(g, "norm", x, aten=aten), "t", target)
        return g.output(g.relu(add(g, t, x, target=target)))

    for aten in (True, False):
        name = "aten" if aten else "torch"
        merge(name, functions(aten), 1)
        merge(f"{name}-depthwise", functions(aten, groups=4), 1)

    def in_place_aten():
        g = Graph()
        x = g.input(shape=(2, 4, 5, 5))
        a, b = conv(g, "three", x, 4), conv(g, "one", x, 4, kernel=1, padding=0)
        s = add(g, a, b, "s", ATEN + "add_.Tensor")
        return g.output(add(g, s, norm(g, "norm", x), "y", ATEN + "sub_.Tensor"))

    merge("aten-in-place", in_place_aten(), 1)

    def convolution(native):
        g = Graph()
        x = g.input(shape=(2, 4, 5, 5))
        values = []
        for path, kernel in (("three", 3), ("one", 1)):
            w, v = own(g, path, weight=[4, 4, kernel, kernel], bias=[4])
            values.append(g.fn(ATEN + "convolution.default", x, w, v if path == "one" else None, [1, 1], [kernel // 2] * 2,
                               [1, 1], False, [0, 0], 1, shape=(2, 4, 5, 5), dtype="float32", name=f"call_{path}"))
        if native:
            reads = own(g, "norm", weight=[4], bias=[4], mean=[4], var=[4], buffers=("mean", "var"))
            call = g.fn(ATEN + "_native_batch_norm_legit_no_training.default", x, *reads, 0.1, 1e-5, name="native")
            values.append(g.fn("operator.getitem", call, 0, shape=(2, 4, 5, 5), dtype="float32", name="norm"))
            values = [add(g, *values[:2], "s", ATEN + "add.Tensor"), values[2]]
        return g.output(add(g, *values, target=ATEN + "add.Tensor"))

    merge("aten-convolution", convolution(False), 1)
    merge("aten-native-norm", convolution(True), 1)

    g = Graph()
    x = g.input(shape=(2, 4, 5, 5))
    reads = own(g, "a", weight=[4, 4, 3, 3])
    y, z = conv(g, "first", x, 4, reads=reads), conv(g, "second", x, 4, reads=reads)
    merge("aten-one-weight-for-both", g.output(add(g, y, z, target=ATEN + "add.Tensor")), 1)

    g = Graph()
    x = g.input(shape=(4, 5, 5))
    g.make_conv("three", 4, 4)
    g.make_conv("one", 4, 4, kernel=1)
    a, b = g.call("three", x, (4, 5, 5)), g.call("one", x, (4, 5, 5))
    merge("without-batch", g.output(add(g, a, b)), 1)

    def of_function(shape):
        g = Graph()
        x = g.input(shape=shape)
        g.make_conv("three", 4, 4)
        reads = own(g, "norm", weight=[4], bias=[4], mean=[4], var=[4], buffers=("mean", "var"))
        a = g.call("three", x, shape)
        b = g.fn("torch.nn.functional.batch_norm", x, reads[2], reads[3], reads[0], reads[1], False, shape=shape,
                 dtype="float32", name="norm")
        return g.output(add(g, a, b))

    merge("norm-without-batch", of_function((4, 4, 5)), 0, refused("not-batched", "three", "norm"))
    merge("norm-of-unknown-rank", of_function(None), 0, refused("unknown-shape", "three", "norm"))
