"""FoldNormIntoLinear. The number in a name (trap-40-…) is that of a known failure of other optimisers."""
from make_cases import Graph, case, refusal

ATEN = "torch.ops.aten."


def norm(g, x, features=4, type="LayerNorm", bias=True, weight=True, path="norm", shape=None, training=False, dtype="float32"):
    sizes = list(shape or (features,))
    parameters = {"weight": g.tensor(f"{path}.weight", sizes, dtype) if weight else None}
    config = {"normalized_shape": tuple(sizes), "eps": 1e-6, "elementwise_affine": weight}
    if type == "LayerNorm":
        parameters["bias"] = g.tensor(f"{path}.bias", sizes, dtype) if bias else None
        config["bias"] = bias
    g.module(path, f"torch.nn.{type}", config, parameters, training=training)
    return g.call(path, x)


def own(g, path, **shapes):
    """Tensors of a module of no known type, and the nodes that read them."""
    for name, shape in shapes.items():
        g.tensor(f"{path}.{name}", shape)
    g.module(path, "torch.nn.Module", None, {name: f"{path}.{name}" for name in shapes})
    return [g.get_attr(f"{path}.{name}", list(shape)) for name, shape in shapes.items()]


def fn(g, target, *args, shape=(2, 4), name=None, **more):
    return g.fn(target, *args, shape=shape, dtype="float32", name=name, **more)


def spelled_out(g, x, aten=False, features=4, is_recorded=True):
    """Llama's RMSNorm, and its weight's product."""
    p = (lambda n, o: ATEN + f"{n}.{o}") if aten else (lambda n, o: f"operator.{n}" if n in ("mul", "add") else f"torch.{n}")
    weight, = own(g, "norm", weight=(features,))
    shape = g.names[x][0]
    square = fn(g, p("pow", "Tensor_Scalar"), x, 2, shape=shape, name="pow")
    mean = fn(g, p("mean", "dim"), square, [-1], True, shape=shape[:-1] + (1,), name="mean")
    root = fn(g, p("rsqrt", "default"), fn(g, p("add", "Tensor"), mean, 1e-6, shape=shape[:-1] + (1,), name="add"),
              shape=shape[:-1] + (1,), name="rsqrt")
    alone = fn(g, p("mul", "Tensor"), x, root, shape=shape if is_recorded else None, name="alone")
    return fn(g, p("mul", "Tensor"), weight, alone, shape=shape, name="scaled"), alone


def cases():
    def fold(name, graph, applied, *refused, **more):
        case("FoldNormIntoLinear", name, graph, applied, *refused, **more)

    def modules(outputs=1, **more):
        linear = more.pop("linear", {})
        g = Graph()
        x = g.input(dtype=more.get("dtype", "float32"))
        y = norm(g, x, **more)
        return g.output(*[g.linear(f"fc{i}", y, 3, **linear) for i in range(outputs)])

    fold("layer-norm", modules(), 1)
    fold("layer-norm-three-linears", modules(3), 1)
    fold("layer-norm-without-bias", modules(bias=False), 1)
    fold("linear-without-bias", modules(linear={"bias": False}), 1)
    fold("rms-norm", modules(2, type="RMSNorm"), 1)
    fold("rms-norm-into-linear-without-bias", modules(type="RMSNorm", linear={"bias": False}), 1)
    fold("bfloat16", modules(dtype="bfloat16", linear={"dtype": "bfloat16"}), 1)

    g = Graph()
    y, _ = spelled_out(g, g.input())
    g.output(g.linear("q", y, 4, bias=False), g.linear("k", y, 2))
    fold("spelled-out", g, 1)

    g = Graph()
    y, _ = spelled_out(g, g.input(), is_recorded=False)
    g.output(g.linear("q", y, 4))
    fold("unknown-shape", g, 0, refusal("unknown-shape", "scaled", "q"))

    def aten(target, bias):
        g = Graph()
        x = g.input()
        reads = own(g, "norm", weight=(4,), **({"bias": (4,)} if bias else {}))
        eps = [1e-5, False] if bias else [1e-6]
        y = fn(g, ATEN + target, x, [4], *reads, *eps, name="norm")
        w, b = own(g, "fc", weight=(3, 4), bias=(3,))
        v, = own(g, "other", weight=(2, 4))
        first = fn(g, ATEN + "linear.default", y, w, b, shape=(2, 3), name="linear")
        return g.output(first, fn(g, ATEN + "linear.default", y, v, shape=(2, 2), name="linear"))

    fold("aten-layer-norm", aten("layer_norm.default", True), 1)
    fold("aten-rms-norm", aten("rms_norm.default", False), 1)

    def native(read_again=lambda g, y: ()):
        """A norm of which a decomposed program takes the first value of three."""
        g = Graph()
        x = g.input()
        y = g.fn(ATEN + "native_layer_norm.default", x, [4], *own(g, "norm", weight=(4,), bias=(4,)), 1e-6, name="norms")
        first = fn(g, "operator.getitem", y, 0, name="first")
        w, b = own(g, "a", weight=(3, 4), bias=(3,))
        return g.output(fn(g, ATEN + "linear.default", first, w, b, shape=(2, 3), name="linear"), *read_again(g, y))

    others = refusal("other-readers", "first", "linear")
    fold("native", native(), 1)
    fold("native-whose-mean-is-read", native(lambda g, y: [fn(g, "operator.getitem", y, 1, shape=(2, 1), name="mean")]), 0,
         others)
    fold("native-taken-out-twice", native(lambda g, y: [fn(g, "operator.getitem", y, 0, name="again")]), 0, others)
    fold("native-that-is-returned", native(lambda g, y: [y]), 0, others)

    g = Graph()
    x = g.input(shape=(1, 2, 4))
    y, _ = spelled_out(g, x, aten=True)
    g.fn(ATEN + "_assert_tensor_metadata.default", y, kwargs={"dtype": None}, name="check")
    g.nodes[-1]["kwargs"]["dtype"] = {"$dtype": "float32"}
    w, = own(g, "fc", weight=(3, 4))
    g.output(fn(g, ATEN + "linear.default", y, w, shape=(1, 2, 3)))
    fold("aten-spelled-out-with-an-assertion", g, 1)

    g = Graph()
    x = g.input()
    w, b = own(g, "norm", weight=(4,), bias=(4,))
    y = fn(g, "torch.nn.functional.layer_norm", x, (4,), w, b, name="norm")
    fb, fw = own(g, "fc", bias=(3,), weight=(4, 3))
    g.output(fn(g, "torch.addmm", fb, y, fw, shape=(2, 3)))
    fold("packed", g, 1)

    g = Graph()
    y = norm(g, g.input())
    size = g.method("size", y, 0)
    g.output(g.linear("fc", y, 3), size)
    fold("its-size-is-read-too", g, 1)

    g = Graph()
    x = g.input()
    y = norm(g, x)
    a = g.linear("a", y, 3)
    b = g.linear("b", x, 3, weight="a.weight")
    g.output(a, b)
    fold("tied-weight-stays", g, 1)

    fold("twice", modules(), None, passes=["FoldNormIntoLinear"] * 2,
         expected=[("FoldNormIntoLinear", 1, []), ("FoldNormIntoLinear", 0, [refusal("already-transformed", "fc0")])])
    fold("then-merge", modules(3), None, passes=["FoldNormIntoLinear", "MergeLinears"],
         expected=[("FoldNormIntoLinear", 1, []), ("MergeLinears", 1, [])])

    def through_views(middle, biases=True, write=None, spelled=False):
        """As after run_decompositions(): each Linear reads a view of the norm's value. `middle` lists the views."""
        g = Graph()
        x = g.input(shape=(2, 3, 4))
        if spelled:
            y, _ = spelled_out(g, x, aten=True)
        else:
            y = fn(g, ATEN + "layer_norm.default", x, [4], *own(g, "norm", weight=(4,), bias=(4,)),
                   shape=(2, 3, 4), name="norm")
        results = []
        for i in range(2):
            view = y
            for target, args, shape in middle:
                view = fn(g, ATEN + target, view, *args, shape=shape, name="view")
            w, b = own(g, f"fc{i}", weight=(4, 5), bias=(5,))
            if write and i == 1:
                write(g, view)
            results.append(fn(g, ATEN + "addmm.default", b, view, w, shape=(6, 5), name="addmm"))
        return g.output(*results)

    view = ("view.default", [[6, 4]], (6, 4))
    fold("aten-through-views", through_views([view]), 1)
    fold("aten-through-two-views",
         through_views([("permute.default", [[1, 0, 2]], (3, 2, 4)), ("reshape.default", [[6, 4]], (6, 4))]), 1)
    fold("aten-spelled-out-through-views", through_views([view], spelled=True), 1)
    fold("aten-views-move-channels",
         through_views([("permute.default", [[0, 2, 1]], (2, 4, 3)), ("reshape.default", [[6, 4]], (6, 4))]), 0,
         refusal("channels-moved", "norm", "view", "view_2", "view_1", "view_3", "addmm", "addmm_1"))
    fold("aten-view-read-elsewhere",
         through_views([view], write=lambda g, v: g.fn(ATEN + "relu.default", v, shape=(6, 4), dtype="float32", name="relu")),
         0,
         refusal("other-readers", "norm", "view", "view_1", "addmm", "addmm_1"))

    # ---- what is not

    fold("not-without-a-weight", modules(weight=False, bias=False), 0)

    g = Graph()
    g.output(g.relu(norm(g, g.input())))
    fold("not-without-a-linear", g, 0)

    one = lambda reason: refusal(reason, "norm", "fc")

    g = Graph()
    x = g.input()
    y = norm(g, x)
    g.output(g.relu(y), g.linear("fc", y, 3))
    fold("other-readers", g, 0, one("other-readers"))

    g = Graph()
    y = norm(g, g.input())
    g.output(g.linear("fc", y, 3), y)
    fold("trap-38-graph-output", g, 0, one("graph-output"))

    g = Graph()
    y, alone = spelled_out(g, g.input())
    g.add_(alone)
    g.output(g.linear("fc", y, 3))
    fold("input-mutated", g, 0, refusal("input-mutated", "scaled", "fc"))

    g = Graph()
    y, alone = spelled_out(g, g.input())
    y = g.linear("fc", y, 3)
    g.add_(alone)
    fold("input-written-later", g.output(y), 0, refusal("mutated", "scaled", "fc"))

    g = Graph()
    x = g.input(shape=(3, 2, 4))
    g.output(g.linear("fc", norm(g, x, shape=(2, 4)), 3))
    fold("trap-40-two-dimensions", g, 0, one("shape-mismatch"))

    g = Graph()
    x = g.input(shape=(2, 1))
    w, = own(g, "norm", weight=(4,))
    y, alone = spelled_out_wide(g, x, w)
    g.output(g.linear("fc", y, 3))
    fold("trap-40-product-broadcasts", g, 0, refusal("shape-mismatch", "scaled", "fc"))

    g = Graph()
    x = g.input()
    a = norm(g, x)
    b = g.call("norm", a, name="again")
    g.output(g.linear("fc", b, 3))
    fold("shared-norm", g, 0, refusal("shared-module", "again", "fc"))

    g = Graph()
    x = g.input()
    y = norm(g, x)
    g.output(g.linear("fc", y, 3), g.call("fc", x, (2, 3)))
    fold("shared-linear", g, 0, one("shared-module"))

    fold("norm-in-training", modules(training=True), 0, refusal("training-mode", "norm", "fc0"))
    fold("linear-in-training", modules(linear={"training": True}), 0, refusal("training-mode", "norm", "fc0"))
    fold("dtype", modules(linear={"dtype": "float16"}), 0, refusal("dtype", "norm", "fc0"))

    g = Graph()
    y = norm(g, g.input())
    g.output(g.linear("fc", y, 3), g.get_attr("norm.weight", [4]))
    fold("norm-weight-read", g, 0, one("module-read"))

    g = Graph()
    x = g.input()
    w, b = own(g, "norm", weight=(4,), bias=(4,))
    g.add_(w)
    y = fn(g, ATEN + "layer_norm.default", x, [4], w, b, name="norm")
    g.output(g.linear("fc", y, 3))
    fold("aten-norm-weight-mutated", g, 0, one("tensor-mutated"))

    g = Graph()
    y = norm(g, g.input())
    g.fn("torch._C._set_grad_enabled", False)
    g.output(g.linear("fc", y, 3))
    fold("mode-switched", g, 0, one("mode-switched"))


def spelled_out_wide(g, x, weight):
    square = fn(g, "operator.pow", x, 2, shape=(2, 1), name="pow")
    mean = fn(g, "torch.mean", square, -1, True, shape=(2, 1), name="mean")
    root = fn(g, "torch.rsqrt", fn(g, "operator.add", mean, 1e-6, shape=(2, 1), name="add"), shape=(2, 1), name="rsqrt")
    alone = fn(g, "operator.mul", x, root, shape=(2, 1), name="alone")
    return fn(g, "operator.mul", alone, weight, shape=(2, 4), name="scaled"), alone
