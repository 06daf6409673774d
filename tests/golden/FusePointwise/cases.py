"""FusePointwise, in both dialects."""
from cases_layers import ATEN, conv, linear
from make_cases import Graph, case, refusal

RELUS = {"relu": (), "relu6": (), "silu": (), "hardswish": (), "hardtanh": (-2.0, 3), "gelu": ()}


def cases():
    def fuse(name, graph, applied, *refused):
        case("FusePointwise", name, graph, applied, *refused)

    def like(g, x):
        shape, dtype = g.names[x]
        return {"shape": shape, "dtype": dtype}

    def image(g, aten, shape=(1, 4, 6, 6), name="x", dtype="float32"):
        return g.input(name, shape, dtype)

    def summed(g, x):
        """All that is read of an image: a number, which no memory format changes."""
        return g.fn(ATEN + "sum.default", x, shape=(), dtype=g.names[x][1], name="sum")

    def act(g, x, name="relu", *more, aten=True, **kwargs):
        home = ATEN + name + ".default" if aten else "torch.nn.functional." + name
        return g.fn(home, x, *more, kwargs=kwargs, name=name, **like(g, x))

    def add(g, a, b, target=ATEN + "add.Tensor", **kwargs):
        return g.fn(target, a, b, kwargs=kwargs, name="plus", **like(g, a))

    for name, more in RELUS.items():
        g = Graph()
        fuse(f"aten-{name}", g.output(summed(g, act(g, conv(g, "a", image(g, True), 8, bias=True), name, *more))), 1)
    g = Graph()
    fuse("aten-tanh-gelu", g.output(summed(g, act(g, conv(g, "a", image(g, True), 8), "gelu", approximate="tanh"))), 1)
    for kind, config in (("ReLU", {"inplace": True}), ("ReLU6", {}), ("Hardtanh", {"min_val": -0.5, "max_val": 0.5}),
                         ("SiLU", {}), ("Hardswish", {}), ("GELU", {"approximate": "tanh"})):
        g = Graph()
        x = g.conv("a", image(g, False), 8)
        g.module("act", f"torch.nn.{kind}", config)
        fuse(f"module-{kind.lower()}", g.output(summed(g, g.call("act", x))), 1)

    def alone(**more):
        g = Graph()
        x = image(g, False, dtype=more.get("dtype", "float32"))
        return g.output(summed(g, g.conv("a", x, 8, **more)))

    fuse("module", alone(), 1)
    fuse("module-without-bias", alone(bias=False), 1)
    fuse("module-bfloat16", alone(dtype="bfloat16"), 1)
    fuse("float16", alone(dtype="float16"), 0, refusal("unsupported-dtype", "a"))
    fuse("training", alone(training=True), 0, refusal("training-mode", "a"))
    g = Graph()
    fuse("groups", g.output(summed(g, act(g, conv(g, "a", image(g, True), 8, groups=4)))), 1)
    g = Graph()
    fuse("kernel-of-one", g.output(summed(g, conv(g, "a", image(g, True), 8, kernel=1, padding=0))), 1)
    g = Graph()
    fuse("short", g.output(summed(g, conv(g, "a", image(g, True), 8, padding=0, options=False))), 1)
    for word, size in ("same", 6), ("valid", 4):
        g = Graph()
        g.module("a", "torch.nn.Conv2d", {"in_channels": 4, "out_channels": 8, "kernel_size": (3, 3), "padding": word,
                                          "bias": False},
                 {"weight": g.tensor("a.weight", [8, 4, 3, 3]), "bias": None})
        fuse(f"padding-{word}", g.output(summed(g, g.call("a", image(g, False), (1, 8, size, size)))), 1)
    g = Graph()
    g.module("a", "torch.nn.Conv2d", {"in_channels": 4, "out_channels": 8, "kernel_size": (3, 3), "padding": 1,
                                      "padding_mode": "reflect", "bias": False},
             {"weight": g.tensor("a.weight", [8, 4, 3, 3]), "bias": None})
    fuse("padding-reflect", g.output(summed(g, g.call("a", image(g, False), (1, 8, 6, 6)))), 0,
         refusal("unsupported-form", "a"))

    def residual(change=None, relu=True, target=ATEN + "add.Tensor", turned=False, dtype="float32", **more):
        g = Graph()
        x, z = image(g, True, dtype=dtype), image(g, True, (1, 8, 6, 6), "z", dtype)
        y = conv(g, "a", x, 8, **more)
        if change:
            change(g, x, z, y)
        y = add(g, z, y, target) if turned else add(g, y, z, target)
        return g, x, z, act(g, y) if relu else y

    def block(*args, **more):
        g, _, _, y = residual(*args, **more)
        return g.output(summed(g, y))

    fuse("residual", block(), 1)
    fuse("residual-turned", block(turned=True), 1)
    fuse("residual-without-relu", block(relu=False), 1)
    fuse("residual-in-place", block(target=ATEN + "add_.Tensor"), 1)
    fuse("residual-written", block(target=ATEN + "add_.Tensor", turned=True), 1)  # into z: the convolution alone
    fuse("residual-in-groups", block(groups=4), 1)  # the convolution alone
    written = lambda g, x, z, y: g.fn(ATEN + "relu_.default", x, name="write", **like(g, x))
    fuse("residual-input-written", block(written), 0, refusal("input-mutated", "a", "plus", "relu"))
    g, _, _, y = residual(lambda g, x, z, y: g.fn(ATEN + "neg.default", y, name="neg", **like(g, y)))
    fuse("residual-read", g.output(summed(g, y)), 1)  # the convolution alone: another reads its result
    g = Graph()
    x = image(g, False, dtype="bfloat16")
    a, z = g.conv("a", x, 8, dtype="bfloat16"), image(g, False, (1, 8, 6, 6), "z", "bfloat16")
    y = g.fn("operator.add", a, z, name="plus", **like(g, a))
    fuse("residual-bfloat16", g.output(summed(g, g.relu(y))), 1)  # without its ReLU
    g = Graph()
    x = image(g, True)
    fuse("two-convolutions", g.output(summed(g, act(g, add(g, conv(g, "a", x, 8), conv(g, "b", x, 8))))), 2)
    g = Graph()
    y = conv(g, "a", image(g, True), 8)
    scaled = add(g, y, image(g, True, (1, 8, 6, 6), "z"), alpha=2)
    fuse("scaled-sum", g.output(summed(g, scaled)), 1)  # the convolution alone
    g = Graph()
    y = conv(g, "a", image(g, True), 8)
    fuse("broadcast-sum", g.output(summed(g, add(g, y, image(g, True, (1, 8, 1, 1), "z")))), 1)  # the same

    g = Graph()
    fuse("returned", g.output(act(g, conv(g, "a", image(g, True), 8))), 0, refusal("graph-output", "a", "relu"))
    g = Graph()
    y = conv(g, "a", image(g, True), 8)
    view = g.fn(ATEN + "view.default", y, [1, 288], shape=(1, 288), dtype="float32", name="view")
    fuse("viewed", g.output(summed(g, view)), 0, refusal("needs-contiguous", "a"))
    g = Graph()
    x = image(g, False)
    g.make_conv("a", 4, 4)
    y = [g.call("a", x, name="one"), g.call("a", x, name="two")]
    fuse("shared", g.output(*[summed(g, one) for one in y]), 0,
         *[refusal("shared-module", name) for name in ("one", "two")])
    g = Graph()
    fuse("sequence", g.output(summed(g, conv(g, "a", g.input(shape=(1, 4, 6)), 8, spatial=1))), 0)
    g = Graph()
    fuse("transposed", g.output(summed(g, conv(g, "a", image(g, True), 8, transposed=True))), 0)
    g = Graph()
    y = g.call("a", image(g, False), None, None)
    g.make_conv("a", 4, 4)
    fuse("unknown", g.output(summed(g, y)), 0, refusal("unknown-dtype", "a"))

    for form in "aten", "functional":
        g = Graph()
        fuse(f"linear-{form}", g.output(act(g, linear(g, "a", g.input(shape=(2, 8, 4)), 8, form), "gelu")), 1)
    g = Graph()
    g.module("act", "torch.nn.GELU", {})
    fuse("linear-module", g.output(g.call("act", g.linear("a", g.input(shape=(32, 4)), 8))), 1)
    g = Graph()
    fuse("linear-few-rows", g.output(act(g, linear(g, "a", g.input(shape=(3, 4)), 8), "gelu")), 0,
         refusal("more-work", "a", "gelu"))
    g = Graph()
    fuse("linear-symbolic", g.output(act(g, linear(g, "a", g.input(shape=("n", 4)), 8), "gelu")), 0,
         refusal("unknown-shape", "a", "gelu"))
    g = Graph()
    fuse("linear-relu", g.output(act(g, linear(g, "a", g.input(shape=(32, 4)), 8))), 0)
