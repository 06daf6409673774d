"""RemoveNoOps, in both dialects. The number in a name (trap-34-…) is that of a known failure of other optimisers."""
from common import FLOATS
from make_cases import Graph, N, Raw, case, refusal

SHAPE = {"shape": (2, 4), "dtype": "float32"}
DTYPE = lambda name: Raw({"$dtype": name})
FORMAT = lambda name: Raw({"$memory_format": name})


def cases():
    identities()
    arithmetic()
    views()
    casts()
    copies()
    written()
    overwritten()
    written_by_its_reader()
    outputs()
    layouts()
    joins()
    assertions()


def remove(name, graph, applied, *refused, **params):
    passes = [{"name": "RemoveNoOps", "params": params}] if params else None
    case("RemoveNoOps", name, graph, applied, *refused, passes=passes)


def written_by_its_reader():
    """A copy that one call writes into: clone(x).add_(y) is x + y."""

    FULL = {"shape": (4, 4), "dtype": "float32"}

    def sum_of(copy, write, behind=None, between=None, made=None, dtype="float32", other="float32"):
        g = Graph()
        x = made(g) if made else g.fn("torch.matmul", g.input(shape=(4, 4)), g.input("w", shape=(4, 4)), **FULL)
        y = g.input("y", shape=(4,), dtype=other)
        kind = {"shape": (4, 4), "dtype": dtype}
        copied = (g.fn if "." in copy else g.method)(copy, x, *([0] if ".add" in copy else []), name="copied", **kind)
        more = between(g, x, copied) if between else []
        target, *args = write
        args = [y if arg is None else copied if arg is ... else arg for arg in args]
        total = (g.fn if "." in target else g.method)(target, copied, *args, name="total", **kind)
        more += behind(g, x, total) if behind else []
        rows = g.fn("torch.sum", total, 0, shape=(4,), dtype=dtype, name="rows")
        return g.output(rows, *more)

    stays = refusal("mutated", "copied")
    exp = lambda g, x: [g.fn("torch.exp", x, **FULL, name="more")]
    ints = lambda dtype: lambda g: g.input(shape=(4, 4), dtype=dtype)
    aten = "torch.ops.aten."
    remove("copy-that-its-reader-writes", sum_of("clone", ("add_", None)), 1)
    remove("copy-that-its-reader-writes-by-operator", sum_of("clone", ("operator.iadd", None)), 1)
    remove("copy-that-its-reader-writes-alone", sum_of("clone", ("torch.relu_",)), 1)
    remove("copy-that-its-reader-writes-aten", sum_of(aten + "clone.default", (aten + "add_.Tensor", None)), 1)
    remove("copy-that-its-reader-writes-aten-sum",
           sum_of(aten + "add.Tensor", (aten + "add_.Tensor", None), made=ints("int64"), dtype="int64", other="int64"), 1)
    remove("copy-that-its-reader-writes-aten-power", sum_of(aten + "clone.default", (aten + "pow_.Scalar", 2)), 1)
    remove("copy-that-its-reader-writes-and-others-later",
           sum_of("clone", ("add_", None), behind=lambda g, x, total: [g.add_(total)]), 1)
    remove("copy-of-what-is-written-behind-its-reader",
           sum_of("clone", ("add_", None), behind=lambda g, x, total: [g.add_(x)]), 0, stays)
    remove("copy-that-its-reader-writes-then-zero", sum_of("operator.add", ("add_", None)), 0, refusal("float-zero", "copied"))

    remove("copy-of-what-is-written-before-its-reader",
           sum_of("clone", ("add_", None), between=lambda g, x, copied: [g.add_(x)]), 0, stays)
    remove("copy-that-is-written-and-read-before",
           sum_of("clone", ("add_", None), between=lambda g, x, copied: exp(g, copied)), 0, stays)
    remove("copy-that-its-reader-reads-twice", sum_of("clone", ("add_", ...)), 0, stays)
    remove("copy-that-its-reader-compares", sum_of("clone", ("lt_", None)), 0, stays)
    remove("copy-that-its-reader-fills", sum_of("clone", ("fill_", 1.0)), 0, stays)
    remove("copy-that-would-be-promoted", sum_of("clone", ("add_", None), made=ints("int32"), dtype="int32", other="int64"), 0,
           stays)
    turned = lambda g: g.method("t", g.fn("torch.matmul", g.input(shape=(4, 4)), g.input("w", shape=(4, 4)), **FULL), **FULL)
    flat = lambda g, x, total: [g.method("view", g.method("t", total, **FULL), 16, shape=(16,), dtype="float32")]
    remove("copy-whose-layout-is-read-behind-its-reader", sum_of("clone", ("add_", None), made=turned, behind=flat), 0, stays)


def overwritten():
    """copy_ into a tensor of the graph's own."""

    rows = lambda g, x: g.fn("torch.matmul", g.fn("torch.ones", 3, 2, shape=(3, 2), dtype="float32"), x, shape=(3, 4),
                             dtype="float32")

    def overwrite(into=None, src=None, aten=True, behind=None, before=None):
        g = Graph()
        x = g.relu(g.input())
        own = (into or (lambda g, x: g.fn("torch.ops.aten.zeros_like.default", x, **SHAPE, name="own")))(g, x)
        old = before(g, own) if before else []
        y = (src or (lambda g, x: g.fn("torch.tanh", x, **SHAPE)))(g, x)
        made = g.fn("torch.ops.aten.copy_.default", own, y, **SHAPE,
                    name="copy_") if aten else g.method("copy_", own, y, **SHAPE)
        last = rows(g, made)
        g.output(last, *old, *(behind(g, x, own, y, made) if behind else []))
        for row in g.nodes:
            row["meta"].setdefault("device", "cpu")
        return g

    exp = lambda g, x: [g.fn("torch.exp", x, **SHAPE, name="more")]
    remove("copy-over-it-all", overwrite(), 1)
    remove("copy-over-it-all-method", overwrite(aten=False), 1)
    remove("copy-over-what-was-read-before", overwrite(before=exp), 1)
    remove("copy-over-what-is-read-later", overwrite(behind=lambda g, x, own, y, made: exp(g, own)), 0,
           refusal("mutated", "copy_"))
    remove("copy-that-is-written-later", overwrite(behind=lambda g, x, own, y, made: [g.add_(made)]), 0,
           refusal("mutated", "copy_"))
    remove("copy-of-what-is-written-later", overwrite(behind=lambda g, x, own, y, made: [g.add_(y), rows(g, made)]), 0,
           refusal("mutated", "copy_"))
    remove("copy-over-an-input", overwrite(into=lambda g, x: g.input("own")), 0, refusal("mutated", "copy_"))
    remove("copy-over-a-view-of-an-input", overwrite(into=lambda g, x: g.fn(
        "torch.ops.aten.alias.default", g.input("own"), **SHAPE, name="alias")), 0, refusal("mutated", "alias"),
           refusal("mutated", "copy_"))
    remove("copy-that-is-returned", overwrite(behind=lambda g, x, own, y, made: [made]), 0,
           refusal("needs-contiguous", "copy_"))
    remove("copy-that-casts", overwrite(src=lambda g, x: g.fn("torch.ops.aten.gt.Scalar", x, 0, shape=(2, 4), dtype="bool")), 0)
    remove("copy-that-broadcasts",
           overwrite(src=lambda g, x: g.fn("torch.ops.aten.select.int", x, 0, 0, shape=(4,), dtype="float32")),
           0)
    pad = lambda sizes, *more: between(lambda g, x: g.fn("torch.ops.aten.pad.default", x, sizes, *more, **SHAPE, name="pad"))
    remove("pad-by-nothing", pad([0, 0, 0, 0]), 1)
    remove("pad-by-nothing-of-ones", pad([0, 0], "constant", 1.0), 1)
    remove("not-pad-to-the-same-size", pad([1, -1]), 0)
    remove("not-reflection-pad", pad([0, 0], "reflect"), 0)
    turn = lambda target, *args: between(lambda g, x: g.method(target, x, *args, **SHAPE))
    remove("permute-of-nothing", turn("permute", 0, 1), 1)
    remove("transpose-of-nothing", turn("transpose", 1, -1), 1)
    remove("not-permute-of-a-square", between(lambda g, x: g.method("permute", x, 1, 0, shape=(4, 4), dtype="float32"), (4, 4)),
           0)
    remove("copy-from-another-device", overwrite(src=lambda g, x: g.fn(
        "torch.tanh", g.input("far", (2, 4)), **SHAPE, device="cuda")), 0, refusal("unknown-device", "copy_"))


def between(make, shape=(2, 4), dtype="float32"):
    """relu(x), the call, tanh of it: no result of the graph has anything to do with the call's memory."""
    g = Graph()
    x = g.relu(g.input(shape=shape, dtype=dtype))
    y = make(g, x)
    known_shape, known_dtype = g.names[y]
    return g.output(g.fn("torch.tanh", y, shape=known_shape, dtype=known_dtype))


def identities():
    def module(type, training=False, **config):
        def make(g, x):
            g.module("m", type, config, training=training)
            return g.call("m", x)
        return make

    remove("identity", between(module("torch.nn.Identity")), 1)
    remove("identity-ignores-its-mode", between(module("torch.nn.Identity", True)), 1)
    for name in ("Dropout", "Dropout2d", "AlphaDropout"):
        remove(f"{name.lower()}-in-eval-mode", between(module(f"torch.nn.{name}", p=0.5)), 1)
        remove(f"{name.lower()}-in-training", between(module(f"torch.nn.{name}", True, p=0.5)), 0,
               refusal("training-mode", "m"))
    remove("dropout-in-place-in-eval-mode", between(module("torch.nn.Dropout", p=0.5, inplace=True)), 1)

    g = Graph()
    x = g.relu(g.input())
    g.module("drop", "torch.nn.Dropout", {"p": 0.5})
    a, b = g.call("drop", x), g.call("drop", g.fn("torch.tanh", x, **SHAPE))
    remove("dropout-called-twice", g.output(g.fn("operator.add", a, b, **SHAPE)), 2)

    drop = lambda *args, **kwargs: lambda g, x: g.fn("torch.nn.functional.dropout", x, *args, kwargs=kwargs, **SHAPE)
    remove("functional-dropout-in-eval-mode", between(drop(0.1, False)), 1)
    remove("functional-dropout-in-eval-mode-by-keyword", between(drop(p=0.1, training=False, inplace=False)), 1)
    remove("functional-dropout-trains-by-default", between(drop(0.1)), 0, refusal("training-mode", "dropout"))
    aten = lambda train: lambda g, x: g.fn("torch.ops.aten.dropout.default", x, 0.1, train, **SHAPE)
    remove("aten-dropout", between(aten(False)), 1)
    remove("aten-dropout-trains", between(aten(True)), 0, refusal("training-mode", "default"))

    g = Graph()
    x = g.input()
    g.module("id", "torch.nn.Identity")
    for _ in range(5):
        x = g.call("id", x)
    remove("chain", g.output(g.relu(x)), 5)

    g = Graph()
    g.module("id", "torch.nn.Identity")
    remove("identity-of-an-input-is-the-result", g.output(g.call("id", g.input())), 1)

    g = Graph()
    x = g.input()
    g.module("id", "torch.nn.Identity")
    y = g.call("id", x)
    g.add_(y)
    remove("identity-is-written", g.output(y, x), 1)  # into x in either case

    g = Graph()
    x = g.input()
    g.module("part", "torch.fx.GraphModule", graph={"nodes": [
        {"name": "y", "op": "placeholder", "target": "y", "args": []},
        {"name": "id", "op": "call_module", "target": "id", "args": [{"$node": "y"}]},
        {"name": "output", "op": "output", "target": "output", "args": [{"$node": "id"}]}]})
    g.module("part.id", "torch.nn.Identity")
    y = g.call("part.id", x)
    remove("identity-of-a-nested-program", g.output(g.call("part", g.relu(y))), 1)

    g = Graph()
    x = g.relu(g.input())
    g.module("seq", "torch.nn.Sequential")
    g.module("seq.0", "torch.nn.Identity")
    remove("identity-inside-a-called-module", g.output(g.call("seq", g.call("seq.0", x))), 1)

    remove("not-a-subclass", between(module("my.Identity")), 0)


def arithmetic():
    fn = lambda target, *more, **kwargs: lambda g, x: g.fn(target, x, *more, kwargs=kwargs, **SHAPE)
    remove("mul-one", between(fn("operator.mul", 1)), 1)
    remove("mul-one-float", between(fn("torch.mul", 1.0)), 1)
    remove("mul-one-aten", between(fn("torch.ops.aten.mul.Tensor", 1)), 1)
    remove("mul-one-keyword", between(lambda g, x: g.fn("torch.mul", kwargs={"input": x, "other": 1}, **SHAPE)), 1)
    remove("one-times", between(lambda g, x: g.fn("operator.mul", 1, x, **SHAPE)), 1)
    remove("mul-one-method", between(lambda g, x: g.method("mul", x, 1, **SHAPE)), 1)
    remove("div-one", between(fn("operator.truediv", 1)), 1)
    remove("div-one-aten", between(fn("torch.ops.aten.div.Tensor", 1.0)), 1)
    remove("div-one-rounding-mode-none", between(fn("torch.div", 1, rounding_mode=None)), 1)
    remove("not-div-one-that-rounds", between(fn("torch.div", 1, rounding_mode="floor")), 0)
    remove("not-one-divided-by-it", between(lambda g, x: g.fn("operator.truediv", 1, x, **SHAPE)), 0)
    remove("not-floor-division", between(fn("operator.floordiv", 1)), 0)
    remove("not-mul-two", between(fn("operator.mul", 2)), 0)
    remove("not-mul-true", between(fn("operator.mul", True)), 0)
    remove("trap-35-not-mul-zero", between(fn("operator.mul", 0)), 0)
    remove("sub-zero", between(fn("operator.sub", 0)), 1)
    remove("sub-zero-aten", between(fn("torch.ops.aten.sub.Tensor", 0.0)), 1)
    remove("not-zero-minus-it", between(lambda g, x: g.fn("operator.sub", 0, x, **SHAPE)), 0)
    remove("add-minus-zero", between(fn("operator.add", -0.0)), 1)
    for name, make in (("int", fn("operator.add", 0)), ("float", fn("torch.add", 0.0)),
                       ("aten", fn("torch.ops.aten.add.Tensor", 0)),
                       ("first", lambda g, x: g.fn("operator.add", 0, x, **SHAPE))):
        remove(f"trap-35-add-zero-{name}", between(make), 0, refusal("float-zero", "Tensor" if name == "aten" else "add"))
        remove(f"trap-35-add-zero-{name}-allowed", between(make), 1, float_zeros=True)
    remove("sub-minus-zero", between(fn("operator.sub", -0.0)), 0, refusal("float-zero", "sub"))
    remove("sub-minus-zero-allowed", between(fn("operator.sub", -0.0)), 1, float_zeros=True)
    remove("alpha-one", between(fn("torch.sub", 0, alpha=1)), 1)
    remove("alpha", between(fn("torch.sub", 0, alpha=2)), 0, refusal("unsupported-arguments", "sub"))

    def typed(target, number, source, result, name, applied, *refused):
        g = Graph()
        x = g.input(dtype=source)
        y = g.fn(target, g.fn("torch.neg", x, shape=(2, 4), dtype=source), number, shape=(2, 4), dtype=result, name="y")
        remove(name, g.output(g.fn("torch.abs", y, shape=(2, 4), dtype=result)), applied, *refused)

    typed("operator.add", 0, "int64", "int64", "int-add-zero", 1)
    typed("operator.add", 0.0, "int64", "float32", "not-int-add-float-zero", 0)
    typed("operator.truediv", 1, "int64", "float32", "not-int-div-one", 0)
    typed("operator.mul", 1, "bool", "int64", "not-bool-mul-one", 0)
    typed("operator.mul", 1, "bool", "bool", "bool-mul-one-recorded-as-bool", 0, refusal("unknown-dtype", "y"))
    typed("operator.mul", 1, "complex64", "complex64", "complex", 0, refusal("unsupported-dtype", "y"))
    for dtype in FLOATS:
        typed("operator.mul", 1, dtype, dtype, f"mul-one-{dtype}", 1)
    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, (2, 4), None)
    y = g.fn("operator.mul", x, 1, name="y")
    remove("unknown-dtype", g.output(g.fn("torch.tanh", y)), 0, refusal("unknown-dtype", "y"))
    g = Graph()
    size = g.method("size", g.input(), 0)
    remove("not-of-a-size", g.output(g.fn("operator.mul", size, 1)), 0)


def views():
    method = lambda target, *args, **meta: lambda g, x: g.method(target, x, *args, **{**SHAPE, **meta})
    fn = lambda target, *args, **meta: lambda g, x: g.fn(target, x, *args, **{**SHAPE, **meta})
    remove("view", between(method("view", 2, 4)), 1)
    remove("view-with-minus-one", between(method("view", -1, 4)), 1)
    remove("view-shape-not-recorded", between(method("view", 2, 4, shape=None)), 1)  # it follows from the arguments
    remove("reshape", between(fn("torch.reshape", (2, 4))), 1)
    remove("expand", between(method("expand", -1, 4)), 1)
    remove("aten-view", between(fn("torch.ops.aten.view.default", [2, 4])), 1)
    remove("aten-expand", between(fn("torch.ops.aten.expand.default", [2, 4])), 1)
    remove("aten-slice-of-all", between(fn("torch.ops.aten.slice.Tensor", 0, 0, 2**63 - 1)), 1)
    remove("getitem-of-all", between(fn("operator.getitem", (slice(None), ...))), 1)
    remove("flatten-of-one-dimension", between(lambda g, x: g.fn("torch.flatten", x, shape=(8,), dtype="float32"), (8,)), 1)
    remove("detach", between(method("detach")), 0, refusal("gradient", "detach"))  # gradients would flow through
    remove("detach-allowed", between(method("detach")), 1, detach=True)
    remove("aten-detach", between(fn("torch.ops.aten.detach.default")), 0, refusal("gradient", "default"))
    remove("aten-detach-allowed", between(fn("torch.ops.aten.detach.default")), 1, detach=True)
    detached()
    remove("aten-alias", between(fn("torch.ops.aten.alias.default")), 1)
    remove("not-a-view-of-other-sizes", between(method("view", 4, 2, shape=(4, 2))), 0)
    remove("not-an-expand-that-repeats",
           between(lambda g, x: g.method("expand", x, 3, 4, shape=(3, 4), dtype="float32"), (1, 4)), 0)
    remove("not-a-slice-of-some", between(fn("torch.ops.aten.slice.Tensor", 0, 0, 1, shape=(1, 4))), 0)
    remove("not-a-transpose-of-a-square",
           between(lambda g, x: g.method("transpose", x, 0, 1, shape=(4, 4), dtype="float32"), (4, 4)), 0)
    remove("not-an-index-by-a-tensor", between(lambda g, x: g.fn("operator.getitem", x, g.input("i", (2,), "int64"), **SHAPE)),
           0)
    remove("not-a-view-of-another-dtype", between(fn("torch.ops.aten.view.dtype", DTYPE("int32"), dtype="int32")), 0)
    symbolic = lambda shape: between(lambda g, x: g.method("reshape", x, -1, 4, shape=shape, dtype="float32"), ("s0", 4))
    remove("view-of-symbolic-sizes", symbolic(("s0", 4)), 1)
    remove("not-a-view-of-other-symbolic-sizes", symbolic(("2*s0", 4)), 0)
    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, None, "float32")
    remove("unknown-shape", g.output(g.relu(g.method("view", x, 2, 4, **SHAPE))), 0, refusal("unknown-shape", "view"))

    def shaped_again(g, x):
        v = g.method("view", x, 4, 4, shape=(4, 4), dtype="float32")
        g.method("t_", x, shape=(4, 4), dtype="float32")
        return v
    remove("view-before-its-tensor-is-turned", between(shaped_again, (4, 4)), 0, refusal("mutated", "view"))


def detached():
    """detach goes where no gradient can reach it: behind a tensor that is not trained, integers, another detach."""
    def of_weight(name, applied, *refused, middle=lambda g, w: w, **tensor):
        g = Graph()
        g.module("", "torch.nn.Module", parameters={"w": g.tensor("w", [2, 4], **tensor)})
        w = middle(g, g.get_attr("w", (2, 4)))
        y = g.method("detach", w, name="detached", **SHAPE)
        remove(name, g.output(g.fn("torch.add", g.input(), g.relu(y), **SHAPE)), applied, *refused)

    refused = refusal("gradient", "detached")
    of_weight("detach-of-a-trained-weight", 0, refused)
    of_weight("detach-of-a-frozen-weight", 1, requires_grad=False)
    of_weight("detach-of-what-is-made-of-a-frozen-weight", 1, middle=lambda g, w: g.fn("torch.sin", w, **SHAPE),
              requires_grad=False)
    of_weight("detach-twice", 1, refusal("gradient", "first"), middle=lambda g, w: g.method("detach", w, name="first", **SHAPE))
    of_weight("detach-of-an-unknown-function", 0, refused, middle=lambda g, w: g.fn("my.function", w, **SHAPE),
              requires_grad=False)

    def written(g, w):
        copy = g.method("clone", w, name="copied", **SHAPE)
        g.fn("operator.setitem", copy, 0, g.fn("torch.sin", g.input("z"), name="sin", **SHAPE))
        return g.fn("torch.cos", copy, **SHAPE)
    of_weight("detach-of-what-an-input-is-written-into", 0, refusal("mutated", "copied"), refused, middle=written,
              requires_grad=False)
    g = Graph()
    x = g.fn("torch.neg", g.input(dtype="int64"), shape=(2, 4), dtype="int64")
    y = g.method("detach", x, shape=(2, 4), dtype="int64")
    remove("detach-of-integers", g.output(g.fn("torch.abs", y, shape=(2, 4), dtype="int64")), 1)


def casts():
    def cast(name, make, source, applied, *refused, result=None, **recorded):
        g = Graph()
        x = g.fn("torch.neg", g.input(dtype=source), shape=(2, 4), dtype=source, **recorded)
        y = make(g, x, {"shape": (2, 4), "dtype": result or source, "name": "y"})
        remove(name, g.output(g.fn("torch.abs", y, shape=(2, 4), dtype=result or source)), applied, *refused)

    to = lambda *args, **kwargs: lambda g, x, meta: g.method("to", x, *args, kwargs=kwargs, **meta)
    aten = lambda *args, **kwargs: lambda g, x, meta: g.fn("torch.ops.aten.to.dtype", x, *args, kwargs=kwargs, **meta)
    cast("to-its-own-dtype", to(DTYPE("float16")), "float16", 1)
    cast("to-its-own-dtype-by-keyword", to(dtype=DTYPE("int64")), "int64", 1)
    cast("float-of-float32", lambda g, x, meta: g.method("float", x, **meta), "float32", 1)
    cast("long-of-int64", lambda g, x, meta: g.method("long", x, **meta), "int64", 1)
    cast("type-of-its-own", lambda g, x, meta: g.method("type", x, DTYPE("float32"), **meta), "float32", 1)
    cast("to-the-dtype-of-another", lambda g, x, meta: g.method("to", x, g.fn("builtins.getattr", x, "dtype"), **meta),
         "float32", 1)
    cast("aten-to-dtype", aten(DTYPE("float32")), "float32", 1)
    cast("aten-to-dtype-copies", aten(DTYPE("float32"), False, True), "float32", 0, refusal("unsupported-arguments", "y"))
    cast("aten-to-dtype-with-format", aten(DTYPE("float32"), False, False, FORMAT("channels_last")), "float32", 0,
         refusal("unsupported-arguments", "y"))
    cast("aten-to-copy", lambda g, x, meta: g.fn("torch.ops.aten._to_copy.default", x,
                                                 kwargs={"dtype": DTYPE("float32")}, **meta),
         "float32", 1)
    DEVICE = lambda name: Raw({"$device": name})
    cast("to-a-device", to("cpu"), "float32", 0, refusal("unknown-device", "y"))
    cast("to-a-device-and-dtype", to(DEVICE("cpu"), DTYPE("float32")), "float32", 0, refusal("unknown-device", "y"))
    cast("to-its-own-device", to("cpu"), "float32", 1, device="cpu")
    cast("to-its-own-device-and-dtype", to(DEVICE("cuda:1"), DTYPE("float32")), "float32", 1, device="cuda:1")
    cast("to-another-device", to(DEVICE("cuda:0")), "float32", 0, refusal("unsupported-arguments", "y"), device="cpu")
    cast("to-the-device-of-itself", lambda g, x, meta: g.method("to", x, g.fn("builtins.getattr", x, "device"), **meta),
         "float32", 1, device="cpu")
    cast("not-to-its-device-and-another-dtype", to("cpu", DTYPE("float16")), "float32", 0, result="float16", device="cpu")
    laid_out = lambda overload, **kwargs: lambda g, x, meta: g.fn(f"torch.ops.aten.{overload}", x,
                                                                  kwargs={"dtype": DTYPE("float32"),
                                                                          "layout": Raw({"$layout": "strided"}), **kwargs},
                                                                  **meta)
    for overload in ("to.dtype_layout", "_to_copy.default"):
        name = overload.replace(".", "-").replace("_", "-").strip("-")
        cast(f"aten-{name}", laid_out(overload, device=DEVICE("cpu")), "float32", 1, device="cpu")
        cast(f"aten-{name}-of-an-unknown-device", laid_out(overload), "float32", 0, refusal("unknown-device", "y"))
        cast(f"aten-{name}-elsewhere", laid_out(overload, device=DEVICE("cuda:0")), "float32", 0,
             refusal("unsupported-arguments", "y"), device="cpu")
    like = lambda find: lambda g, x, meta: g.fn("torch.ops.aten.type_as.default", x, find(g, x), **meta)
    second = lambda dtype="float32", **more: lambda g, x: g.input("z", dtype=dtype, **more)
    cast("like-itself", like(lambda g, x: x), "float32", 1)
    cast("like-what-it-is-computed-from", like(lambda g, x: N("x")), "float32", 1)
    cast("like-another", like(second()), "float32", 0, refusal("unknown-device", "y"))
    cast("like-another-dtype", like(second("float16")), "float32", 0, result="float16")

    def behind(make, applied, name, *refused):
        """A cast like x of what is computed from x, in one way or another."""
        g = Graph()
        x = g.input()
        y = g.fn("torch.ops.aten.type_as.default", make(g, x), x, name="y", **SHAPE)
        remove(name, g.output(g.fn("torch.abs", y, **SHAPE)), applied, *refused)

    unknown = refusal("unknown-device", "y")
    behind(lambda g, x: g.fn("torch.mul", g.input("w", ()), g.fn("torch.softmax", x, -1, **SHAPE), **SHAPE), 1,
           "like-one-of-its-factors")
    behind(lambda g, x: g.fn("torch.zeros_like", x, kwargs={"device": DEVICE("cuda:0")}, **SHAPE), 0,
           "like-what-it-was-made-elsewhere-from", unknown)
    behind(lambda g, x: g.fn("torch.neg", g.method("cuda", x, **SHAPE), **SHAPE), 0, "like-what-it-was-moved-from", unknown)

    g = Graph()
    x = g.input(shape=())
    y = g.fn("torch.ops.aten.type_as.default", g.fn("torch.mul", g.input("w"), x, **SHAPE), x, name="y", **SHAPE)
    remove("like-a-number-among-its-factors", g.output(g.fn("torch.abs", y, **SHAPE)), 0, unknown)
    cast("to-with-copy", to(DTYPE("float32"), copy=True), "float32", 0, refusal("unsupported-arguments", "y"))
    cast("not-to-another-dtype", to(DTYPE("float16")), "float32", 0, result="float16")

    g = Graph()
    x = g.relu(g.input())
    half = g.method("to", x, DTYPE("float16"), shape=(2, 4), dtype="float16")
    back = g.method("to", half, DTYPE("float32"), **SHAPE)
    remove("trap-36-there-and-back", g.output(g.fn("torch.tanh", back, **SHAPE)), 0)

    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, (2, 4), None)
    remove("cast-of-an-unknown-dtype", g.output(g.fn("torch.tanh", g.method("float", x, **SHAPE))), 0,
           refusal("unknown-dtype", "float"))
    g = Graph()
    x = g.input(shape=(2, 4), dtype="float32")
    remove("cast-to-a-dtype-by-its-number", g.output(g.fn("torch.tanh", g.fn("torch.ops.aten.to.dtype", x, 6, name="to"))), 0,
           refusal("unknown-dtype", "to"))


def copies():
    fn = lambda target, **kwargs: lambda g, x: g.fn(target, x, kwargs=kwargs, name="y", **SHAPE)
    remove("clone", between(fn("torch.clone")), 1)
    remove("aten-clone", between(fn("torch.ops.aten.clone.default")), 1)
    remove("aten-clone-keeps-format", between(fn("torch.ops.aten.clone.default", memory_format=FORMAT("preserve_format"))), 1)
    remove("aten-clone-contiguous", between(fn("torch.ops.aten.clone.default", memory_format=FORMAT("contiguous_format"))), 0,
           refusal("unknown-layout", "y"))
    remove("aten-clone-channels-last", between(fn("torch.ops.aten.clone.default", memory_format=FORMAT("channels_last"))), 0,
           refusal("unsupported-arguments", "y"))
    remove("contiguous", between(lambda g, x: g.method("contiguous", x, **SHAPE)), 0, refusal("unknown-layout", "contiguous"))

    def of_linear(make):
        g = Graph()
        x = make(g, g.linear("fc", g.input(), 4))
        return g.output(g.fn("torch.tanh", g.method("contiguous", x, shape=g.names[x][0], dtype="float32")))

    remove("contiguous-of-a-linear", of_linear(lambda g, x: x), 1)
    remove("contiguous-of-a-view-of-a-linear",
           of_linear(lambda g, x: g.method("view", x, 4, 2, shape=(4, 2), dtype="float32")), 1)
    remove("contiguous-of-a-relu-of-a-linear", of_linear(lambda g, x: g.relu(x)), 1)
    both = lambda g, x: (x, g.linear("other", "x", 4))
    add = lambda g, a, b: g.fn("torch.add", a, b, **SHAPE)
    remove("contiguous-of-a-sum-of-linears", of_linear(lambda g, x: add(g, *both(g, x))), 1)
    remove("contiguous-of-a-sum-with-a-row", of_linear(lambda g, x: add(g, x, g.input("row", (4,)))), 1)
    remove("contiguous-of-a-sum-with-an-input", of_linear(lambda g, x: add(g, x, g.input("z"))), 1)
    for name, alias in (("itself", None), ("another-name", "neg_")):
        g, square = Graph(), {"shape": (4, 4), "dtype": "float32"}
        x = g.input(shape=(4, 4))
        y = g.fn("torch.matmul", x, x, **square)
        g.method("t_", g.method(alias, y, **square) if alias else y, **square)
        g.output(g.fn("torch.tanh", g.method("contiguous", g.fn("torch.add", y, x, **square), **square), **square))
        remove(f"contiguous-of-a-sum-with-what-is-turned-under-{name}", g, 0, refusal("unknown-layout", "contiguous"))
    remove("contiguous-of-an-input-and-a-linear", of_linear(lambda g, x: add(g, g.input("z"), x)), 0,
           refusal("unknown-layout", "contiguous"))
    remove("contiguous-twice",
           of_linear(lambda g, x: g.method("contiguous", g.method("t", x, shape=(4, 2), dtype="float32"), shape=(4, 2),
           dtype="float32")), 1, refusal("unknown-layout", "contiguous"))
    remove("contiguous-of-a-transpose", of_linear(lambda g, x: g.method("transpose", x, 0, 1, shape=(4, 2), dtype="float32")),
           0,
           refusal("unknown-layout", "contiguous"))

    def of_stack(make):
        g = Graph()
        x = make(g, g.input(shape=(2, 3, 4, 5)))
        shape = (2, *g.names[x][0])
        stacked = g.fn("torch.stack", [x, x], 0, shape=shape, dtype="float32")
        y = g.method("contiguous", stacked, shape=shape, dtype="float32")
        return g.output(g.fn("torch.tanh", g.method("view", y, -1, shape=(240,), dtype="float32")))

    remove("contiguous-of-stacked-images", of_stack(lambda g, x: x), 0, refusal("unknown-layout", "contiguous"))
    remove("contiguous-of-stacked-linears", of_stack(lambda g, x: g.linear("fc", x, 5)), 1)
    remove("contiguous-with-format",
           between(lambda g, x: g.method("contiguous", x, kwargs={"memory_format": FORMAT("channels_last")}, **SHAPE)), 0,
           refusal("unsupported-arguments", "contiguous"))

    g = Graph()
    g.module("", "torch.nn.Module", buffers={"c": g.tensor("c", [2, 4])})
    c = g.get_attr("c", (2, 4))
    lifted = g.fn("torch.ops.aten.lift_fresh_copy.default", c, name="lifted", **SHAPE)
    detached = g.fn("torch.ops.aten.detach_.default", lifted, name="detached", **SHAPE)
    graph = g.output(g.fn("torch.ops.aten.add.Tensor", g.input(), detached, **SHAPE))
    remove("aten-lifted-constant", graph, 1, refusal("mutated", "lifted"))  # the write goes first, then the copy
    case("RemoveNoOps", "aten-lifted-constant-twice", graph, None, passes=["RemoveNoOps"] * 2,
         expected=[("RemoveNoOps", 1, [refusal("mutated", "lifted")]), ("RemoveNoOps", 1, [])])


def written():
    """x, a copy of it, and a write into one of them or what shares its memory."""
    def write(name, into, applied, *refused, copy=("operator.mul", 1)):
        g = Graph()
        x = g.relu(g.input())
        y = g.fn(copy[0], x, copy[1], name="y", **SHAPE)
        into(g, x, y)
        remove(name, g.output(g.fn("torch.tanh", x, **SHAPE), g.fn("torch.tanh", y, **SHAPE)), applied, *refused)

    kept = refusal("mutated", "y")
    write("trap-33-input-written-later", lambda g, x, y: g.add_(x), 0, kept)
    write("trap-33-result-written-later", lambda g, x, y: g.add_(y), 0, kept)
    write("trap-33-written-through-a-view", lambda g, x, y: g.add_(g.method("view", y, 8, shape=(8,), dtype="float32")), 0,
          kept)
    write("trap-33-sub-zero", lambda g, x, y: g.add_(x), 0, kept, copy=("operator.sub", 0))
    write("trap-33-given-to-an-unknown-function", lambda g, x, y: g.fn("my.function", y), 0, kept)
    write("trap-33-aten-copy_", lambda g, x, y: g.fn("torch.ops.aten.copy_.default", x, g.input("z"), **SHAPE), 0, kept,
          refusal("unknown-device", "default"))
    write("read-only", lambda g, x, y: None, 1)

    g = Graph()
    x = g.relu(g.input())
    g.add_(x)
    y = g.fn("operator.mul", x, 1, name="y", **SHAPE)
    remove("written-before-only", g.output(g.fn("torch.tanh", y, **SHAPE)), 1)


def outputs():
    def result(name, build, applied, *refused):
        g = Graph()
        remove(name, build(g), applied, *refused)

    one = lambda g, x, name="y": g.fn("operator.mul", x, 1, name=name, **SHAPE)
    kept = refusal("graph-output", "y")
    result("trap-34-copy-of-an-input", lambda g: g.output(one(g, g.input())), 0, kept)
    result("trap-34-view-of-a-copy-of-an-input",
           lambda g: g.output(g.method("view", one(g, g.input()), 8, shape=(8,), dtype="float32")), 0, kept)
    result("trap-34-chain-of-copies", lambda g: g.output(one(g, one(g, g.input(), "x_1"))), 1, kept)

    def of_parameter(g):
        g.module("", "torch.nn.Module", parameters={"w": g.tensor("w", [2, 4])})
        return g.output(one(g, g.get_attr("w", (2, 4))))
    result("trap-34-copy-of-a-parameter", of_parameter, 0, kept)

    def both(g):
        x = g.relu(g.input())
        return g.output(x, one(g, x))
    result("trap-34-two-results", both, 0, kept)
    result("copy-as-the-only-result", lambda g: g.output(one(g, g.relu(g.input()))), 1)
    result("trap-34-view-as-a-result", lambda g: g.output(g.method("view", g.input(), 2, 4, **SHAPE)), 1)  # shares it already

    def read_too(g):
        x = g.input()
        return g.output(g.relu(one(g, x)), x)
    result("trap-38-input-is-a-result-too", read_too, 1)


def layouts():
    def of_slice(reader, name, applied, *refused, **params):
        g = Graph()
        x = g.relu(g.input(shape=(2, 8)))
        part = g.fn("operator.getitem", x, (..., slice(0, 4)), **SHAPE)
        y = g.fn("operator.mul", part, 1, name="y", **SHAPE)
        remove(name, g.output(g.fn("torch.tanh", reader(g, y), name="end")), applied, *refused, **params)

    def twice(of, applied, *refused):
        """A copy of a copy: without the first, the second is one of the slice."""
        g = Graph()
        part = of(g, g.relu(g.input(shape=(2, 8) if of is slice_of else (2, 4))))
        copied = g.method("clone", part, name="copied", **SHAPE)
        y = g.fn("operator.truediv", copied, 1, name="y", **SHAPE)
        end = g.method("view", y, -1, name="end", shape=(8,), dtype="float32")
        remove(f"copy-of-a-copy-of-a-{of.__name__.removesuffix('_of')}",
               g.output(g.fn("torch.tanh", end, shape=(8,), dtype="float32")), applied, *refused)

    def slice_of(g, x):
        return g.fn("operator.getitem", x, (..., slice(0, 4)), **SHAPE)

    def sum_of(g, x):
        return g.fn("operator.add", x, x, **SHAPE)

    flat = {"shape": (8,), "dtype": "float32"}
    kept = refusal("needs-contiguous", "y")
    twice(slice_of, 1, kept)
    twice(sum_of, 2)
    of_slice(lambda g, y: g.method("view", y, -1, **flat), "copy-of-a-slice-is-viewed", 0, kept)
    of_slice(lambda g, y: g.method("view", g.method("detach", y, **SHAPE), -1, **flat),
             "copy-of-a-slice-is-viewed-behind-detach", 1, kept, detach=True)
    of_slice(lambda g, y: g.fn("torch.ops.aten.view.dtype", y, DTYPE("int64"), shape=(2, 2), dtype="int64"),
             "copy-of-a-slice-is-viewed-as-another-dtype", 0, kept)
    of_slice(lambda g, y: g.method("reshape", y, -1, **flat), "copy-of-a-slice-is-reshaped", 1)
    of_slice(lambda g, y: g.fn("torch.exp", y, **SHAPE), "copy-of-a-slice-is-read", 1)
    of_slice(lambda g, y: g.method("stride", y, 0), "copy-of-a-slice-is-asked-for-strides", 0, kept)
    of_slice(lambda g, y: g.fn("torch.exp", g.method("unsqueeze", y, 0, shape=(1, 2, 4), dtype="float32")),
             "copy-of-a-slice-is-unsqueezed", 1)

    g = Graph()
    part = g.fn("operator.getitem", g.relu(g.input(shape=(2, 8))), (..., slice(0, 4)), **SHAPE)
    remove("copy-of-a-slice-is-the-result", g.output(g.fn("operator.mul", part, 1, name="y", **SHAPE)), 0, kept)

    remove("copy-of-a-transpose-is-viewed", between(lambda g, x: g.method("view", g.fn("operator.mul", g.method(
        "transpose", x, 0, 1, shape=(4, 2), dtype="float32"), 1, shape=(4, 2), dtype="float32"), 4, 1, 2, shape=(4, 1, 2),
                                                                          dtype="float32")), 1)


def joins():
    """Concatenations of one tensor, which copy it into rows."""
    image = {"shape": (2, 3, 4, 5), "dtype": "float32"}
    rows = lambda g, x: g.linear("end", x, 3)

    def of(target, tensors=lambda g, x: [x], dim=(0,), make=lambda g, x: x, behind=rows, shape=(2, 4), result=None):
        g = Graph()
        x = make(g, g.relu(g.input(shape=shape)))
        y = g.fn(target, tensors(g, x), *dim, name="y", shape=result or g.names[x][0], dtype="float32")
        return g.output(behind(g, y))

    kept = refusal("needs-contiguous", "y")
    for name, target in (("cat", "torch.cat"), ("concat", "torch.concat"), ("aten-cat", "torch.ops.aten.cat.default")):
        remove(f"{name}-of-one", of(target), 1)
    for name in ("hstack", "vstack", "column_stack"):
        remove(f"{name}-of-one", of(f"torch.{name}", dim=()), 1)
    remove("aten-hstack-of-one", of("torch.ops.aten.hstack.default", dim=()), 1)
    remove("cat-of-a-tuple", of("torch.cat", lambda g, x: (x,)), 1)
    remove("not-dstack-of-a-matrix", of("torch.dstack", dim=(), result=(2, 4, 1), behind=lambda g, y: y), 0)
    remove("not-cat-of-two", of("torch.cat", lambda g, x: [x, x], result=(4, 4)), 0)
    nothing = lambda g, x: [g.fn("torch.ops.aten.zeros.default", [0], shape=(0,), dtype="float32"), x]
    remove("cat-with-nothing", of("torch.cat", nothing), 1)
    remove("cat-with-no-rows", of("torch.cat", lambda g, x: [x, g.fn("torch.zeros", 0, 4, shape=(0, 4), dtype="float32")]), 1)
    remove("not-cat-with-what-has-no-shape", of("torch.cat", lambda g, x: [g.fn("torch.mystery"), x]), 0)

    exp = lambda g, y: g.fn("torch.exp", y, shape=g.names[y][0], dtype="float32", name="exp")
    remove("cat-that-is-returned", of("torch.cat", behind=lambda g, y: y), 0, kept)
    remove("cat-whose-sum-is-returned", of("torch.cat", behind=exp), 0, kept)
    remove("cat-of-a-linear-that-is-returned", of("torch.cat", make=lambda g, x: g.linear("fc", x, 4), behind=exp), 1)
    turned = lambda g, x: g.method("t", g.linear("fc", x, 4), shape=(4, 2), dtype="float32")
    flat = lambda g, y: g.method("view", y, 8, shape=(8,), dtype="float32")
    remove("cat-of-a-transpose-is-viewed", of("torch.cat", make=turned, behind=lambda g, y: exp(g, flat(g, y))), 0, kept)
    remove("cat-of-a-transpose-is-viewed-behind-exp",
           of("torch.cat", make=turned, behind=lambda g, y: flat(g, exp(g, y))), 0, kept)
    remove("cat-that-is-written", of("torch.cat", behind=lambda g, y: rows(g, g.add_(y))), 1)

    def later(g, y):
        z = rows(g, y)
        g.add_(N("relu"))
        return g.fn("torch.add", z, rows(g, y), shape=(2, 3), dtype="float32")

    remove("cat-of-what-is-written-later", of("torch.cat", behind=later), 0, refusal("mutated", "y"))

    g = Graph()
    x = g.input()
    y = g.fn("torch.cat", [x], name="y", **SHAPE)
    remove("cat-of-an-input", g.output(y), 0, refusal("graph-output", "y"))

    conv = lambda g, x: g.conv("conv", x, 3)
    relu_ = lambda g, x: g.method("relu_", conv(g, x), **image)
    shaped = {"shape": (2, 3, 4, 5), "result": (2, 3, 4, 5)}
    remove("cat-of-an-image", of("torch.cat", make=conv, behind=exp, **shaped), 1)
    remove("cat-of-an-image-written-in-place", of("torch.cat", make=relu_, behind=exp, **shaped), 1)
    remove("cat-of-a-pool", of("torch.cat", make=lambda g, x: g.fn("torch.nn.functional.max_pool2d", x, 3, 1, 1, **image),
                               behind=exp, **shaped), 1)
    remove("hstack-of-an-image", of("torch.hstack", dim=(), make=conv, behind=exp, **shaped), 1)
    remove("cat-of-an-image-with-nothing", of("torch.cat", nothing, make=conv, behind=exp, **shaped), 0, kept)
    other = {"shape": (2, 3, 5, 4), "dtype": "float32"}

    def turned_in_place(g, x):
        y = conv(g, x)
        g.method("transpose_", y, 2, 3, **other)
        return g.method("mul_", y, 2.0, **other)

    remove("cat-of-an-image-turned-in-place", of("torch.cat", make=turned_in_place, behind=exp, shape=(2, 3, 4, 5)), 0, kept)

    pool = lambda g, x: g.fn("torch.nn.functional.adaptive_avg_pool2d", x, (5, 4), name="pool", **other)

    def pooled(make, applied, *refused):
        g = Graph()
        x = make(g, conv(g, g.input(shape=(2, 3, 4, 5))))
        y = pool(g, g.method("transpose", x, 2, 3, **other))
        end = g.method("view", y, 2, 60, shape=(2, 60), dtype="float32")
        return g.output(g.fn("torch.exp", end, shape=(2, 60), dtype="float32"))

    remove("mean-of-one-of-a-transpose-is-viewed", pooled(lambda g, x: x, 0), 0, refusal("needs-contiguous", "pool"),
           float_zeros=True)


def assertions():
    def check(target, *args):
        g = Graph()
        x = g.input()
        g.fn(target, *[x if a == "x" else a for a in args], name="check")
        return g.output(g.relu(x))

    for name, graph in (("aten", lambda: check("torch.ops.aten._assert_tensor_metadata.default", "x", None, None,
                                               DTYPE("float32"))),
                        ("torch", lambda: check("torch._assert", True, "no"))):
        remove(f"assertion-{name}", graph(), 0, refusal("assertion", "check"))
        remove(f"assertion-{name}-allowed", graph(), 1, asserts=True)
