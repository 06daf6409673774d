"""Layers of both dialects: MergeLinears, FuseBiasInLinear and divisions of functions that read their weights by get_attr, and
FuseBatchNorm in both. The number in a name (trap-11-…) is that of a known failure of other optimisers."""
from cases_reparametrised import prune
from make_cases import Graph, Raw, case, refusal

ATEN = "torch.ops.aten."
LINEAR = {"aten": ATEN + "linear.default", "functional": "torch.nn.functional.linear", "builtin": "torch._C._nn.linear"}
ADDMM = {"aten-addmm": ATEN + "addmm.default", "addmm": "torch.addmm"}


def cases():
    merge_linears()
    fuse_bias()
    divisions()
    fold_modules()
    fold_functions()
    fold_refusals()


# ---- functions with weights


def own(g, path, type="torch.nn.Module", config=None, buffers=(), training=False, **shapes):
    """A module that owns tensors of these shapes, and the nodes that read them. A shape may be a tensor's name: then it is
    tied."""
    name = lambda a: f"{path}.{a}" if path else a
    rows = {a: s if isinstance(s, str) else g.tensor(name(a), s) for a, s in shapes.items()}
    old = g.modules.get(path, {}).get("parameters", {})
    g.module(path, type, config, {**old, **{a: t for a, t in rows.items() if a not in buffers}},
             {a: t for a, t in rows.items() if a in buffers}, training=training)
    return [read(g, name(a), g.tensors[t]["shape"]) for a, t in rows.items()]


def read(g, target, shape):
    return g.get_attr(target, tuple(shape))


def linear(g, path, x, outputs, form="aten", bias=True, name=None, attributes=("weight", "bias"), **more):
    shape = g.names[x][0]
    packed = form in ADDMM
    sizes = {attributes[0]: [shape[-1], outputs] if packed else [outputs, shape[-1]]}
    if bias:
        sizes[attributes[1]] = [outputs]
    return call_linear(g, x, own(g, path, **sizes, **more), outputs, form, name or path)


def call_linear(g, x, reads, outputs, form="aten", name=None, kwargs=None):
    shape = g.names[x][0]
    args = [reads[1], x, reads[0]] if form in ADDMM else [x, *reads]
    return g.fn({**LINEAR, **ADDMM}[form], *args, shape=tuple(shape[:-1]) + (outputs,), dtype="float32", name=name,
                kwargs=kwargs)


def conv(g, path, x, outputs, kernel=3, spatial=2, bias=False, groups=1, padding=1, transposed=False, aten=True, reads=None,
         kwargs=None, options=True, overload=None):
    shape = g.names[x][0]
    sizes = [shape[1], outputs // groups] if transposed else [outputs, shape[1] // groups]
    if reads is None:
        more = {"bias": [outputs]} if bias else {}
        reads = own(g, path, weight=sizes + [kernel] * spatial, **more)
    each = lambda n: [n] * spatial
    args = [x, reads[0], reads[1] if len(reads) > 1 else None]
    if options:
        args += [each(1), each(padding)] + ([each(0), groups] if transposed else [each(1), groups])
    base = ("conv_transpose" if transposed else "conv") + f"{spatial}d"
    overload = overload or (".input" if transposed and spatial > 1 else ".default")
    grown = kernel - 1 - 2 * padding if transposed else 2 * padding - kernel + 1
    result = (shape[0], outputs) + tuple(n + grown for n in shape[2:])
    return g.fn(ATEN + base + overload if aten else "torch." + base, *args, shape=result, dtype="float32", name=path,
                kwargs=kwargs)


def norm(g, path, x, features=None, training=False, affine=True, aten=True, reads=None, stats=True, eps=1e-5, name=None):
    shape, dtype = g.names[x]
    n = [features or shape[1]]
    if reads is None:
        reads = own(g, path, weight=n, bias=n, running_mean=n, running_var=n, buffers=("running_mean", "running_var"))
    weight, bias, mean, var = reads
    if not affine:
        weight = bias = None
    if not stats:
        mean = var = None
    if aten:
        return g.fn(ATEN + "batch_norm.default", x, weight, bias, mean, var, training, 0.1, eps, False,
                    shape=shape, dtype=dtype,
                    name=name or path)
    return g.fn("torch.nn.functional.batch_norm", x, mean, var, shape=shape, dtype=dtype, name=name or path,
                kwargs={"weight": weight, "bias": bias, "training": training, "eps": eps})


def assert_metadata(g, x, **more):
    return g.fn(ATEN + "_assert_tensor_metadata.default", x, kwargs={"dtype": Raw({"$dtype": "float32"}), **more}, name="check")


# ---- MergeLinears


def merge_linears():
    def merge(name, graph, applied, *refused, **params):
        passes = [{"name": "MergeLinears", "params": params}] if params else None
        case("MergeLinears", name, graph, applied, *refused, passes=passes)

    def branches(form, sizes, biases=None, prefix="layer.0."):
        g = Graph()
        x = g.input(shape=(6, 4) if form in ADDMM else (2, 3, 4))
        biases = biases or [True] * len(sizes)
        return g, x, [linear(g, prefix + p, x, n, form, b) for p, n, b in zip("qkv", sizes, biases)]

    def done(built, *more):
        g, _, values = built
        return g.output(*values, *more)

    for form in list(LINEAR) + list(ADDMM):
        merge(f"{form}", done(branches(form, [3, 2])), 1)
    merge("aten-gqa", done(branches("aten", [8, 2, 2], [False] * 3)), 1)
    merge("aten-gate-up", done(branches("aten", [6, 6], [False] * 2, "mlp.")), 1)
    merge("trap-19-aten-mixed-bias", done(branches("aten", [3, 2], [True, False])), 1)
    merge("functional-gqa", done(branches("functional", [8, 2, 2], [False] * 3)), 1)

    merge("minimum-gain", done(branches("aten", [3, 2])), 0, refusal("minimum-gain", "layer_0_q", "layer_0_k"), minimum_gain=2)
    merge("minimum-gain-reached", done(branches("aten", [3, 2, 2])), 1, minimum_gain=2)
    g = Graph()
    x = g.input()
    merge("minimum-gain-of-modules", g.output(g.linear("q", x, 3), g.linear("k", x, 3)), 0, refusal("minimum-gain", "q", "k"),
          minimum_gain=2)

    g = Graph()
    x = g.input()
    q, k = own(g, "", q_weight=[3, 4], k_weight=[2, 4])
    merge("trap-16-aten-owned-by-the-root", g.output(call_linear(g, x, [q], 3, name="q"), call_linear(g, x, [k], 2, name="k")),
          1)

    g = Graph()
    x = g.input()
    q = linear(g, "q", x, 3)
    k = call_linear(g, x, own(g, "k", weight="q.weight", bias=[3]), 3, name="k")
    merge("aten-tied-weights", g.output(q, k), 1)

    g = Graph()
    x = g.input()
    reads = own(g, "q", weight=[3, 4], bias=[3])
    q, k = call_linear(g, x, reads, 3, name="q"), linear(g, "k", x, 2)
    h = call_linear(g, g.fn("torch.tanh", x, shape=(2, 4), dtype="float32"), reads, 3, name="again")
    merge("aten-weight-read-elsewhere", g.output(q, k, h), 1)

    g = Graph()
    x = g.input()
    values = [linear(g, "a", x, 3), linear(g, "b", x, 3, "functional"), g.linear("c", x, 3), linear(g, "d", x, 2),
              linear(g, "e", x, 2, "functional"), g.linear("f", x, 2)]
    merge("spelled-in-three-ways", g.output(*values), 3)

    g = Graph()
    x = g.input()
    merge("two-spellings-of-one", g.output(linear(g, "q", x, 3), linear(g, "k", x, 3, "functional")), 0)

    g = Graph()
    x = g.input()
    q = linear(g, "q", x, 3, type="torch.nn.Linear", config={"in_features": 4, "out_features": 3, "bias": True})
    merge("functional-weights-of-a-linear", g.output(q, linear(g, "k", x, 2)), 1)

    g = Graph()
    x = g.input()
    q = linear(g, "q", x, 3, type="torch.nn.Linear", config={"in_features": 4, "out_features": 3, "bias": True})
    g.output(q, linear(g, "k", x, 2), g.call("q", x, (2, 3), "float32", name="again"))
    merge("module-called", g, 0, refusal("module-called", "q"), refusal("module-read", "again"))

    g = Graph()
    x = g.input()
    reads = own(g, "q", weight=[3, 4], bias=[3])
    g.fn(ATEN + "mul_.Tensor", reads[0], 0.5, shape=(3, 4), dtype="float32", name="halve")
    merge("aten-tensor-mutated", g.output(call_linear(g, x, reads, 3, name="q"), linear(g, "k", x, 2)), 0,
          refusal("tensor-mutated", "q"))

    g = Graph()
    x = g.input()
    q = linear(g, "q", x, 3)
    g.fn(ATEN + "relu_.default", x, shape=(2, 4), dtype="float32", name="relu_")
    merge("aten-input-mutated", g.output(q, linear(g, "k", x, 2)), 0, refusal("input-mutated", "k"))

    g, x, (q, k) = branches("aten", [3, 2])
    assert_metadata(g, q, device=Raw({"$device": "cpu"}), layout=Raw({"$layout": "strided"}))
    merge("aten-type-asserted", g.output(q, k), 1)
    g, x, (q, k) = branches("aten", [3, 2])
    assert_metadata(g, q, stride=[9, 3, 1])
    merge("aten-strides-asserted", g.output(q, k), 0, refusal("needs-contiguous", "layer_0_q"))

    g, x, (q, k) = branches("aten", [4, 4])
    heads = [g.fn(ATEN + "view.default", y, [2, 3, 2, 2], shape=(2, 3, 2, 2), dtype="float32") for y in (q, k)]
    merge("aten-split-into-heads", g.output(*heads), 1)

    def decomposed(write=None, sizes=([6, 4], [6, 4], [6, 4]), copy=False, biases=(True, False, True)):
        """Each Linear reads a view of its own, as after run_decompositions()."""
        g = Graph()
        x = g.input(shape=(2, 3, 4))
        results = []
        for i, size in enumerate(sizes):
            view = g.fn(ATEN + "view.default", x, list(size), shape=tuple(size), dtype="float32", name="view")
            if copy:
                view = g.fn(ATEN + "clone.default", x, shape=(2, 3, 4), dtype="float32", name="clone")
            if i == 1 and write:
                write(g, x, view)
            weight, *bias = own(g, f"layer.{i}", weight=[4, 5], **({"bias": [5]} if biases[i] else {}))
            if copy:
                y = g.fn(ATEN + "linear.default", view, own(g, f"other.{i}", weight=[5, 4])[0], shape=(2, 3, 5),
                         dtype="float32", name="linear")
            elif bias:
                y = g.fn(ATEN + "addmm.default", *bias, view, weight, shape=tuple(size[:1]) + (5,),
                         dtype="float32", name="addmm")
            else:
                y = g.fn(ATEN + "mm.default", view, weight, shape=tuple(size[:1]) + (5,), dtype="float32", name="mm")
            results.append(y)
        return g.output(*results)

    relu = lambda g, of: g.fn(ATEN + "relu_.default", of, shape=g.names[of][0], dtype="float32", name="relu_")
    merge("aten-views-of-one-value", decomposed(), 1)
    merge("aten-mm-without-bias", decomposed(biases=[False] * 3), 1)
    merge("aten-not-different-views", decomposed(sizes=([6, 4], [3, 2, 4], [6, 4]), biases=[True] * 3), 1)
    merge("aten-views-of-what-is-written", decomposed(lambda g, x, view: relu(g, x)), 0, refusal("input-mutated", "mm"))
    merge("aten-copies-of-one-value", decomposed(copy=True), 1)
    merge("aten-copies-that-are-written", decomposed(lambda g, x, view: relu(g, view), copy=True), 0,
          refusal("input-mutated", "linear_1"))
    merge("aten-copies-of-what-is-written", decomposed(lambda g, x, view: relu(g, x), copy=True), 0,
          refusal("input-mutated", "linear_1"))

    g = Graph()
    x = g.input()
    for path in ("q", "k"):
        own(g, path, weight=[4, 3], bias=[3])
    reads = {p: [read(g, f"{p}.weight", (4, 3)), read(g, f"{p}.bias", (3,))] for p in ("q", "k")}
    values = [call_linear(g, x, reads[p], 3, "addmm", p, kwargs={"alpha": 2} if p == "q" else None) for p in reads]
    merge("addmm-with-a-factor", g.output(*values), 0)

    g = Graph()
    x = g.input()
    w = g.input("w", (3, 4))
    merge("aten-weight-is-an-input", g.output(call_linear(g, x, [w], 3, name="q"), linear(g, "k", x, 2)), 0)


# ---- FuseBiasInLinear, ChangeTrueDivToMulByInverse


def fuse_bias():
    def fuse(name, graph, applied, *refused):
        case("FuseBiasInLinear", name, graph, applied, *refused)

    for form in LINEAR:
        g = Graph()
        x = g.input(shape=(2, 3, 4))
        fuse(f"{form}", g.output(linear(g, "fc", x, 5, form)), 1)
    g = Graph()
    fuse("addmm", g.output(linear(g, "fc", g.input(), 5, "addmm")), 0, refusal("unsupported-form", "fc"))
    g = Graph()
    fuse("aten-without-bias", g.output(linear(g, "fc", g.input(), 5, bias=False)), 0)

    g = Graph()
    x = g.input(shape=("s0", 3, 4))
    fuse("aten-symbolic-batch", g.output(linear(g, "fc", x, 5)), 1)

    g = Graph()
    x, y = g.input(), g.input("y")
    reads = own(g, "fc", weight=[5, 4], bias=[5])
    fuse("trap-25-aten-weights-read-twice",
         g.output(call_linear(g, x, reads, 5, name="a"), call_linear(g, y, reads, 5, name="b")), 2)

    g = Graph()
    x = g.input()
    reads = own(g, "fc", weight=[5, 4], bias=[5]) + own(g, "other", weight="fc.weight")
    fuse("aten-tied-weights", g.output(call_linear(g, x, reads[:2], 5, name="a"), call_linear(g, x, reads[2:], 5, name="b")), 1)

    g = Graph()
    x = g.input()
    y = linear(g, "fc", x, 5, type="torch.nn.Linear", config={"in_features": 4, "out_features": 5, "bias": True})
    fuse("functional-weights-of-a-linear", g.output(y), 1)


    g = Graph()
    x = g.input()
    reads, values = own(g, "fc", weight=[2, 4], bias=[2]), []
    for _ in range(129):
        values.append(call_linear(g, x, reads, 2, name="fc"))
    fuse("aten-crowded-module", g.output(*values), 0, *[refusal("crowded-module", v) for v in values])


def divisions():
    def divide(name, target, value, applied, *refused, dtype="float32", **more):
        g = Graph()
        x = g.input(dtype=dtype)
        y = g.fn(ATEN + target, x, value, shape=(2, 4), dtype="float32", name="div", **more)
        case("ChangeTrueDivToMulByInverse", name, g.output(y), applied, *refused)

    divide("trap-28-aten-power-of-two", "div.Tensor", 8.0, 1)
    divide("trap-26-aten-int-49", "div.Tensor", 49, 1)
    divide("aten-scalar", "div.Scalar", 8.0, 1)
    divide("trap-28-aten-not-a-power-of-two", "true_divide.Tensor", 3.0, 1)
    divide("aten-mode-none", "div.Tensor_mode", 4.0, 1, kwargs={"rounding_mode": None})
    divide("trap-27-aten-rounding-mode", "div.Tensor_mode", 4.0, 0, refusal("rounding-mode", "div"),
           kwargs={"rounding_mode": "floor"})
    divide("trap-27-aten-integer", "div.Tensor", 4.0, 1, dtype="int64")
    divide("trap-27-aten-zero", "div.Tensor", 0.0, 0, refusal("division-by-zero", "div"))
    divide("aten-in-place", "div_.Tensor", 4.0, 0)


# ---- FuseBatchNorm


def fold(name, graph, applied, *refused):
    case("FuseBatchNorm", name, graph, applied, *refused)


def image(g, spatial=2, channels=4, size=6):
    return g.input(shape=(2, channels) + (size,) * spatial)


def fold_modules():
    def conv_norm(spatial=2, type="Conv", channels=4, outputs=6, conv={}, norm={}):
        g = Graph()
        x = image(g, spatial, channels)
        y = g.conv("conv", x, outputs, type=f"torch.nn.{type}{spatial}d", spatial=spatial, **conv)
        return g.output(g.norm("norm", y, spatial=spatial, **norm))

    def norm_conv(spatial=2, type="Conv", conv={}, norm={}, channels=4):
        g = Graph()
        x = image(g, spatial, channels)
        y = g.norm("norm", x, spatial=spatial, **norm)
        conv = {"config": {"padding": (0,) * spatial}, **conv}
        return g.output(g.conv("conv", y, 6, type=f"torch.nn.{type}{spatial}d", spatial=spatial, **conv))

    for spatial in (1, 2, 3):
        fold(f"conv{spatial}d", conv_norm(spatial), 1)
        fold(f"conv{spatial}d-groups-without-bias", conv_norm(spatial, conv={"groups": 2, "bias": False}), 1)
        fold(f"trap-11-conv-transpose{spatial}d", conv_norm(spatial, "ConvTranspose"), 1)
        fold(f"trap-11-conv-transpose{spatial}d-groups", conv_norm(spatial, "ConvTranspose", conv={"groups": 2}), 1)
        fold(f"norm-then-conv{spatial}d", norm_conv(spatial), 1)
        fold(f"norm-then-conv{spatial}d-groups", norm_conv(spatial, conv={"groups": 2, "config": {"padding": 0}}), 1)
    fold("trap-06-affine-false", conv_norm(norm={"affine": False}), 1)
    fold("norm-then-conv-affine-false-without-bias",
         norm_conv(norm={"affine": False}, conv={"bias": False, "config": {"padding": 0}}), 1)
    fold("norm-then-conv-valid", norm_conv(conv={"config": {"padding": "valid"}}), 1)
    fold("norm-then-depthwise-conv", norm_conv(conv={"groups": 6, "config": {"padding": 0}}, channels=6), 1)
    fold("trap-10-norm-then-padded-conv", norm_conv(conv={"config": {"padding": (1, 1)}}), 0, refusal("padded", "conv", "norm"))
    fold("trap-10-norm-then-conv-same", norm_conv(conv={"config": {"padding": "same"}}), 0, refusal("padded", "conv", "norm"))
    fold("norm-then-conv-transpose", norm_conv(type="ConvTranspose"), 0)
    fold("trap-04-training", conv_norm(norm={"training": True}), 0, refusal("training-mode", "conv", "norm"))
    fold("trap-05-no-running-mean", conv_norm(norm={"mean": False}), 0, refusal("no-running-statistics", "conv", "norm"))
    fold("float16", conv_norm(conv={"dtype": "float16", "bias": False}, norm={"dtype": "float16"}), 1)

    def linear_norm(shape, features=3, after=False):
        g = Graph()
        x = g.input(shape=shape)
        if after:
            return g.output(g.linear("fc", g.norm("norm", x, spatial=1, features=shape[1]), features, inputs=shape[-1]))
        return g.output(g.norm("norm", g.linear("fc", x, features), spatial=1, features=features))

    fold("linear-then-norm", linear_norm((2, 4)), 1)
    fold("norm-then-linear", linear_norm((2, 4), after=True), 1)
    fold("trap-09-three-dimensions", linear_norm((2, 3, 3)), 0, refusal("not-2d", "norm"))

    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, None, "float32")
    g.make_conv("conv", 4, 6, type="torch.nn.Conv1d", spatial=1)
    g.make_norm("norm", 6, 1)
    fold("conv1d-unknown-shape", g.output(g.call("norm", g.call("conv", x))), 0, refusal("unknown-shape", "norm"))

    g = Graph()
    x = g.input(shape=(4, 6))
    g.make_conv("conv", 4, 6, type="torch.nn.Conv1d", spatial=1)
    g.make_norm("norm", 6, 1)
    fold("conv1d-without-batch", g.output(g.call("norm", g.call("conv", x, (6, 6), "float32"))), 0,
         refusal("not-batched", "norm"))

    g = Graph()
    x = image(g)
    a = g.norm("first", g.conv("conv", x, 6))
    fold("between-two-convolutions", g.output(g.conv("last", a, 3, config={"padding": 0})), 1)


def fold_functions():
    def pair(spatial=2, aten=True, before=True, conv_={}, norm_={}, size=6):
        g = Graph()
        x = image(g, spatial, size=size)
        if before:
            return g, norm(g, "bn", conv(g, "conv", x, 6, spatial=spatial, aten=aten, **conv_), aten=aten, **norm_)
        y = norm(g, "bn", x, aten=aten, **norm_)
        return g, conv(g, "conv", y, 6, spatial=spatial, aten=aten, **{"padding": 0, **conv_})

    def one(*args, **more):
        g, y = pair(*args, **more)
        return g.output(y)

    for spatial in (1, 2, 3):
        fold(f"aten-conv{spatial}d", one(spatial), 1)
        fold(f"aten-conv{spatial}d-bias-groups", one(spatial, conv_={"bias": True, "groups": 2}), 1)
        fold(f"aten-norm-then-conv{spatial}d", one(spatial, before=False), 1)
        fold(f"trap-11-aten-conv-transpose{spatial}d-groups", one(spatial, conv_={"transposed": True, "groups": 2}), 1)
    fold("functional-conv2d", one(aten=False), 1)
    fold("functional-norm-then-conv2d-groups", one(aten=False, before=False, conv_={"groups": 2, "bias": True}), 1)
    fold("trap-14-options-by-keyword", one(aten=False, conv_={"options": False, "kwargs": {"padding": (1, 1), "groups": 1}}), 1)
    fold("trap-06-aten-affine-false", one(norm_={"affine": False}), 1)
    fold("trap-04-aten-training", one(norm_={"training": True}), 0, refusal("training-mode", "conv", "bn"))
    fold("trap-05-aten-no-running-statistics", one(norm_={"stats": False}), 0, refusal("no-running-statistics", "conv", "bn"))
    fold("trap-10-aten-norm-then-padded-conv", one(before=False, conv_={"padding": 1}), 0, refusal("padded", "conv", "bn"))
    fold("aten-channel-mismatch", one(norm_={"features": 5}), 0, refusal("channel-mismatch", "conv", "bn"))

    g, y = pair()
    g.fn(ATEN + "relu_.default", y, shape=g.names[y][0], dtype="float32", name="relu_")
    fold("aten-written-in-place-behind", g.output(y), 1)

    for name, more, ok in (("type", {}, True), ("strides", {"stride": [1, 1, 1, 1]}, False)):
        g = Graph()
        c = conv(g, "conv", image(g), 6)
        assert_metadata(g, c, **more)
        fold(f"aten-{name}-asserted-between", g.output(norm(g, "bn", c)), int(ok),
             *([] if ok else [refusal("shared-output", "conv", "bn")]))

    g = Graph()
    c = conv(g, "conv", image(g), 6)
    fold("trap-38-aten-between-is-an-output", g.output(c, norm(g, "bn", c)), 0, refusal("graph-output", "conv", "bn"))

    g = Graph()
    x = image(g, channels=6)
    reads = own(g, "conv", weight=[6, 6, 3, 3], bias=[6])
    first = norm(g, "bn", conv(g, "first", x, 6, reads=reads))
    fold("trap-01-aten-weights-read-twice", g.output(first, conv(g, "second", x, 6, reads=reads)), 1)

    g = Graph()
    x = image(g, channels=6)
    reads, n = own(g, "conv", weight=[6, 6, 3, 3]), [6]
    stats = own(g, "bn", weight=n, bias=n, running_mean=n, running_var=n, buffers=("running_mean", "running_var"))
    first = norm(g, "bn", conv(g, "first", x, 6, reads=reads), reads=stats, name="bn_of_first")
    second = norm(g, "bn", conv(g, "second", x, 6, reads=reads), reads=stats, name="bn_of_second")
    fold("trap-02-aten-pair-twice", g.output(first, second), 2)

    g = Graph()
    x = image(g, channels=6)
    a, b = own(g, "a", weight=[6, 6, 3, 3]), own(g, "b", weight="a.weight")
    fold("trap-03-aten-tied-weights", g.output(norm(g, "bn", conv(g, "first", x, 6, reads=a)),
                                               conv(g, "second", x, 6, reads=b)), 1)

    g = Graph()
    x = image(g)
    reads = own(g, "conv", weight=[6, 4, 3, 3], type="torch.nn.Conv2d",
                config={"in_channels": 4, "out_channels": 6, "kernel_size": 3, "bias": False})
    fold("functional-weights-of-a-conv", g.output(norm(g, "bn", conv(g, "c", x, 6, reads=reads, aten=False), aten=False)), 1)

    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, None, "float32")
    reads = own(g, "conv", weight=[6, 4, 3, 3])
    c = g.fn(ATEN + "conv2d.default", x, *reads, name="conv")
    fold("aten-unknown-shape", g.output(norm(g, "bn", c, features=6)), 0, refusal("unknown-shape", "bn"))

    g = Graph()
    x = g.input(shape=(2, 3, 4))
    weight, = own(g, "fc", weight=[2, 4, 5])
    y = g.fn(ATEN + "bmm.default", x, weight, shape=(2, 3, 5), dtype="float32", name="bmm")
    y = g.fn(ATEN + "view.default", y, [6, 5], shape=(6, 5), dtype="float32", name="view")
    fold("aten-behind-a-batched-product", g.output(norm(g, "bn", y, features=5)), 0, refusal("unsupported-form", "bmm", "bn"))

    g = Graph()
    x = g.input(shape=(4, 6, 6))
    reads = own(g, "conv", weight=[6, 4, 1, 1])
    c = g.fn(ATEN + "conv2d.default", x, *reads, shape=(6, 6, 6), dtype="float32", name="conv")
    fold("aten-without-batch", g.output(norm(g, "bn", c)), 0, refusal("not-batched", "bn"))

    for form in ("aten", "functional", "addmm", "aten-addmm"):
        g = Graph()
        fold(f"{form}-linear-then-norm", g.output(norm(g, "bn", linear(g, "fc", g.input(), 5, form), aten="aten" in form)), 1)
        g = Graph()
        fold(f"{form}-norm-then-linear", g.output(linear(g, "fc", norm(g, "bn", g.input(), aten="aten" in form), 5, form)), 1)
    g = Graph()
    fold("aten-norm-then-linear-without-bias", g.output(linear(g, "fc", norm(g, "bn", g.input()), 5, bias=False)), 1)
    g = Graph()
    fold("trap-09-aten-square", g.output(norm(g, "bn", linear(g, "fc", g.input(shape=(2, 5, 5)), 5))), 0,
         refusal("not-2d", "bn"))

    g = Graph()
    x = g.relu(g.input())
    y = norm(g, "bn", x)
    g.fn(ATEN + "mul_.Tensor", x, 2.0, shape=(2, 4), dtype="float32", name="double")
    fold("aten-input-mutated", g.output(linear(g, "fc", y, 5)), 0, refusal("input-mutated", "fc", "bn"))

    g = Graph()
    reads = own(g, "bn", weight=[6], bias=[6], running_mean=[6], running_var=[6], buffers=("running_mean", "running_var"))
    g.fn(ATEN + "mul_.Tensor", reads[2], 2.0, shape=(6,), dtype="float32", name="double")
    fold("aten-statistics-mutated", g.output(norm(g, "bn", conv(g, "conv", image(g), 6), reads=reads)), 0,
         refusal("tensor-mutated", "conv", "bn"))

    case("FuseBatchNorm2dInConv2d", "aten", one(), 1)
    case("FuseBatchNorm2dInConv2d", "aten-conv1d", one(1), 0)
    case("FuseBatchNorm2dInConv2d", "functional", one(aten=False), 1)
    case("FuseBatchNorm2dInConv2d", "aten-norm-first", one(before=False), 0)
    g = Graph()
    case("FuseBatchNorm1dInLinear", "aten", g.output(norm(g, "bn", linear(g, "fc", g.input(), 5))), 1)
    g = Graph()
    case("FuseBatchNorm1dInLinear", "aten-norm-first", g.output(linear(g, "fc", norm(g, "bn", g.input()), 5)), 1)
    case("FuseBatchNorm1dInLinear", "aten-conv1d", one(1), 0)


def fold_refusals():
    """The other reasons for which FuseBatchNorm can refuse."""
    def pair(between=None, behind=None, dtype="float32", **norm):
        g = Graph()
        c = g.conv("conv", g.input(shape=(2, 4, 6, 6), dtype=dtype), 6, dtype=dtype)
        if between:
            between(g)
        n = g.norm("bn", c, dtype=dtype, **norm)
        return g.output(n, *(behind(g, c) if behind else []))

    both = lambda reason: refusal(reason, "conv", "bn")
    fold("eps-is-no-number", pair(eps=True), 0, both("unsupported-constant"))
    fold("unsupported-dtype", pair(dtype="int8"), 0, both("unsupported-dtype"))
    fold("other-users", pair(behind=lambda g, c: [g.relu(c)]), 0, both("shared-output"))
    fold("module-read", pair(behind=lambda g, c: [g.get_attr("conv.weight", (6, 4, 3, 3))]), 0, both("module-read"))
    fold("mode-switched", pair(between=lambda g: g.fn("torch.amp.autocast_mode._enter_autocast", "cpu", name="mode")), 0,
         both("mode-switched"))
    fold("conv-called-twice", pair(behind=lambda g, c: [g.call("conv", "x", (2, 6, 6, 6), "float32")]), 0,
         refusal("shared-module", "conv", "conv_1", "bn"))
    case("FuseBatchNorm", "twice", pair(), None, passes=["FuseBatchNorm"] * 2,
         expected=[("FuseBatchNorm", 1, []), ("FuseBatchNorm", 0, [refusal("already-transformed", "conv")])])

    g = pair()
    prune(g, "bn", "weight")
    fold("pruned-norm-weight", g, 0, both("reparametrised"))

    g = Graph()
    n = g.norm("bn", g.conv("conv", g.input(shape=(2, 4, 6, 6)), 6))
    d = g.call("conv", "x", (2, 6, 6, 6), "float32")
    fold("unsupported-arguments", g.output(n, g.call("bn", d, args=[d, True])), 0,
         refusal("unsupported-arguments", "conv", "conv_1", "bn", "bn_1"))

    g = Graph()
    x = image(g)
    g.make_conv("conv", 4, 6, bias=False)
    c = conv(g, "c", x, 6, reads=[g.get_attr("conv.weight", (6, 4, 3, 3))])
    fold("aten-weight-of-a-called-module", g.output(norm(g, "bn", c), g.call("conv", x, (2, 6, 6, 6))), 0,
         refusal("module-called", "c", "bn"))

    g = Graph()
    reads = own(g, "conv", weight=[6, 4, 1, 1])
    n = norm(g, "bn", conv(g, "conv", image(g), 6, reads=reads))
    sums = [g.fn("torch.sum", reads[0], shape=(), dtype="float32") for _ in range(256)]
    fold("aten-crowded-module", g.output(n, *sums), 0, both("crowded-module"))
