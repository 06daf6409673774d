"""EvaluateConstants: what depends on no input and no weight."""
import base64
import struct

from InlineVmap.cases import Vmap
from make_cases import Graph, Raw, case, refusal

ATEN = "torch.ops.aten."
CPU = {"device": Raw({"$device": "cpu"}), "pin_memory": False}


def positions(g, count, aten=True, **kwargs):
    if aten:
        return g.fn(ATEN + "arange.default", count, shape=(count,), dtype="int64", kwargs={**CPU, **kwargs})
    return g.fn("torch.arange", count, shape=(count,), dtype="int64", kwargs=kwargs)


def buffer(g, name, numbers, persistent=False):
    """A buffer of int64 whose bytes are in the document."""
    data = base64.b64encode(struct.pack(f"<{len(numbers)}q", *numbers)).decode()
    g.tensor(name, [len(numbers)], "int64", data=data)
    g.modules[""].setdefault("buffers", {})[name] = name
    if not persistent:
        g.modules[""].setdefault("non_persistent", []).append(name)
    return g.get_attr(name, [len(numbers)], "int64")


def floats(g, x=None, shape=(4, 4)):
    return x or g.input(shape=shape)


def cases():
    def evaluate(name, graph, applied, *refused, params=None, **more):
        passes = [{"name": "EvaluateConstants", "params": params}] if params else None
        case("EvaluateConstants", name, graph, applied, *refused, passes=more.pop("passes", passes), **more)

    # ---- what is evaluated

    def causal(aten):
        g = Graph()
        x = g.input(shape=(4, 4))
        row = positions(g, 4, aten)
        if aten:
            column = g.fn(ATEN + "unsqueeze.default", row, 1, shape=(4, 1), dtype="int64")
            mask = g.fn(ATEN + "le.Tensor", row, column, shape=(4, 4), dtype="bool", name="le")
            low = g.fn(ATEN + "full.default", [], float("-inf"), shape=(), dtype="float32", kwargs=CPU, name="low")
            y = g.fn(ATEN + "where.self", mask, x, low, shape=(4, 4), dtype="float32", name="where")
        else:
            column = g.method("unsqueeze", row, 1, shape=(4, 1), dtype="int64")
            mask = g.fn("operator.le", row, column, shape=(4, 4), dtype="bool")
            y = g.fn("operator.mul", x, mask, shape=(4, 4), dtype="float32", name="masked")
        return g.output(y)

    evaluate("causal-mask", causal(False), 1)
    evaluate("aten-causal-mask", causal(True), 2)

    def relative(read):
        """Distances of positions, as T5 and DeBERTa have them: a part of what is known."""
        g = Graph()
        x = g.input(shape=(3, 3), dtype="int64")
        ids = read(g)
        part = g.fn(ATEN + "slice.Tensor", ids, 0, 1, 4, shape=(3,), dtype="int64")
        column = g.fn(ATEN + "unsqueeze.default", part, 1, shape=(3, 1), dtype="int64")
        distance = g.fn(ATEN + "sub.Tensor", part, column, shape=(3, 3), dtype="int64", name="distance")
        size = g.fn(ATEN + "abs.default", distance, shape=(3, 3), dtype="int64")
        return g.output(g.fn(ATEN + "add.Tensor", x, size, shape=(3, 3), dtype="int64", name="sum"))

    evaluate("buffer-in-the-document", relative(lambda g: buffer(g, "ids", range(6))), 1)
    # a checkpoint may bring another one
    evaluate("persistent-buffer", relative(lambda g: buffer(g, "ids", range(6), persistent=True)), 0)

    g = Graph()
    x = g.input(shape=(4, 4))
    mask = g.fn("torch.zeros", 4, 4, shape=(4, 4), dtype="float32")
    part = g.fn("operator.getitem", mask, (slice(None), slice(2, None)), shape=(4, 2), dtype="float32")
    g.method("fill_", part, -100.0, shape=(4, 2), dtype="float32")
    g.output(g.fn("operator.add", x, mask, shape=(4, 4), dtype="float32", name="sum"))
    evaluate("written-in-place", g, 1)

    g = Graph()
    x = g.input(shape=(4,), dtype="int64")
    first = positions(g, 4)
    second = g.fn(ATEN + "add_.Tensor", first, 2, shape=(4,), dtype="int64", name="second")
    g.output(g.fn(ATEN + "mul.Tensor", g.fn(ATEN + "add.Tensor", x, first, shape=(4,), dtype="int64", name="sum"), second,
                  shape=(4,), dtype="int64", name="product"))
    evaluate("aten-written-and-read-by-two-names", g, 1)

    g = Graph()
    x = g.input(shape=(2, 4))
    low, high = (g.fn("torch.full", (4,), value, shape=(4,), dtype="float32", kwargs={"dtype": Raw({"$dtype": "float32"})})
                 for value in (0.1, 3.0))
    ratio = g.fn("operator.truediv", low, high, shape=(4,), dtype="float32", name="ratio")
    g.output(g.fn("operator.mul", x, ratio, shape=(2, 4), dtype="float32", name="scaled"))
    evaluate("correctly-rounded", g, 1)

    g = Graph()
    x = g.input(shape=(2, 3))
    table = g.method("view", g.fn("torch.arange", 12, shape=(12,), dtype="int64"), 4, 3, shape=(4, 3), dtype="int64")
    parts = g.fn(ATEN + "split.Tensor", table, 2, name="split")
    rows, columns = (g.fn("operator.getitem", parts, i, shape=(2, 3), dtype="int64", name=name)
                     for i, name in enumerate(("rows", "columns")))
    y = g.fn("operator.add", x, rows, shape=(2, 3), dtype="float32", name="first")
    g.output(g.fn("operator.add", y, columns, shape=(2, 3), dtype="float32", name="both"))
    evaluate("parts-of-a-tuple", g, 1)

    g = Graph()
    x = g.input(shape=(4,), dtype="int64")
    ones = g.fn("torch.ones", 4, name="ones")  # nothing is recorded
    g.output(g.fn("operator.mul", x, g.method("long", ones)))
    evaluate("without-meta", g, 1, refusal("inexact", "long"))

    g = Graph()
    x = g.input(shape=(4,), dtype="int64")
    one, other = positions(g, 4), g.fn(ATEN + "arange.start", 1, 5, shape=(4,), dtype="int64", kwargs=CPU, name="other")
    g.modules[""]["buffers"] = {"arange_constant": g.tensor("arange_constant", [4], "int64")}
    y = g.fn(ATEN + "add.Tensor", x, one, shape=(4,), dtype="int64", name="sum")
    g.output(g.fn(ATEN + "mul.Tensor", y, other, shape=(4,), dtype="int64", name="product"))
    evaluate("name-that-is-taken", g, 2)

    # ---- what reads only sizes and a dtype

    # relative positions in buckets, as T5 and MPNet compute them: the logarithm stays, and the bound beside it goes
    g = Graph()
    x = g.input(shape=(4,), dtype="int64")
    near = g.fn(ATEN + "to.dtype", positions(g, 4), Raw({"$dtype": "float32"}), shape=(4,), dtype="float32", name="near")
    log = g.fn(ATEN + "log.default", near, shape=(4,), dtype="float32", name="log")
    far = g.fn(ATEN + "to.dtype", log, Raw({"$dtype": "int64"}), shape=(4,), dtype="int64", name="far")
    bound = g.fn(ATEN + "full_like.default", far, 1, shape=(4,), dtype="int64", kwargs={"pin_memory": False}, name="bound")
    least = g.fn(ATEN + "minimum.default", far, bound, shape=(4,), dtype="int64", name="least")
    g.output(g.fn(ATEN + "add.Tensor", x, least, shape=(4,), dtype="int64", name="sum"))
    evaluate("aten-like-what-stays", g, 2, refusal("inexact", "log"))

    def like(call, shape=(2, 3), dtype="float32", known={"device": "cpu"}, sizes=(2, 3), before=None):
        """What `call` makes of a product, whose device is recorded or not."""
        g = Graph()
        x, w = g.input(shape=sizes), g.input("w", shape=(3, 3))
        y = g.fn(ATEN + "mm.default", x, w, shape=sizes, dtype="float32", name="y", **known)
        if before:
            before(g, y)
        target, *args = call(g, y)
        made = g.fn(ATEN + target, *args, shape=shape, dtype=dtype, name="made")
        z = g.fn(ATEN + "mul.Tensor", y, made, shape=sizes, dtype="float32", name="z")
        return g.output(g.fn(ATEN + "sum.default", z, shape=(), dtype="float32", name="total"))

    ones = lambda g, y: ("ones_like.default", y)
    evaluate("aten-like-an-input", like(ones), 1)
    evaluate("aten-as-an-input-in-new", like(lambda g, y: ("new_full.default", y, [3], 2.5), shape=(3,)), 1)
    evaluate("aten-expanded-as-an-input", like(lambda g, y: ("expand_as.default", positions(g, 3), y), dtype="int64", known={}),
             1)
    evaluate("aten-cast-as-an-input", like(lambda g, y: ("type_as.default", positions(g, 3), y), shape=(3,)), 1)
    # another device than the CPU, or an unknown one; sizes that are not numbers; sizes that may have changed
    evaluate("aten-not-like-an-input-elsewhere", like(ones, known={"device": "cuda:0"}), 0)
    evaluate("aten-not-like-an-input-somewhere", like(ones, known={}), 0)
    evaluate("aten-not-cast-as-an-input-somewhere",
             like(lambda g, y: ("type_as.default", positions(g, 3), y), shape=(3,), known={}), 1)
    evaluate("aten-not-expanded-as-any-size",
             like(lambda g, y: ("expand_as.default", positions(g, 3), y), shape=("s0", 3), dtype="int64", sizes=("s0", 3)), 1)
    written = lambda g, y: g.fn(ATEN + "add_.Tensor", y, 1.0, shape=(2, 3), dtype="float32", name="written")
    evaluate("aten-not-like-what-is-written", like(ones, before=written), 0)

    def filled(of_itself):
        def make(g, y):
            one = g.fn(ATEN + "sum.default", y, shape=(), dtype="float32", name="one", device="cpu")
            return "full_like.default", one if of_itself else y, one
        return make

    evaluate("aten-not-full-of-what-varies", like(filled(False)), 0)
    evaluate("aten-not-full-of-itself", like(filled(True), shape=()), 0)

    # in torch.vmap it is batched as the input is
    g = Vmap(3)
    (each,) = g.enter(g.vector(3, "vector"))
    made = g.each("new_ones.default", each, [], dtype="int64")
    g.output(g.leave(g.each("gt.Tensor", made, each)))
    evaluate("aten-not-like-what-is-batched", g, 1)

    g = Graph()
    x, w = g.input(shape=(3, 3)), g.input("w", shape=(3, 3))
    y = g.fn(ATEN + "mm.default", x, w, shape=(3, 3), dtype="float32", name="y", device="cpu")
    turned = g.fn(ATEN + "t.default", y, shape=(3, 3), dtype="float32", name="turned", device="cpu")
    made = g.fn(ATEN + "zeros_like.default", turned, shape=(3, 3), dtype="float32", name="made")
    z = g.fn(ATEN + "add.Tensor", made, turned, shape=(3, 3), dtype="float32", name="z")
    back = g.fn(ATEN + "t.default", z, shape=(3, 3), dtype="float32", name="back")
    g.output(g.fn(ATEN + "view.default", back, [9], shape=(9,), dtype="float32"))
    evaluate("aten-not-like-what-is-turned", g, 0, refusal("needs-contiguous", "made"))

    # ---- what is kept

    g = Graph()
    x = g.input(shape=(4,))
    angle = g.method("float", positions(g, 4, False), shape=(4,), dtype="float32")
    g.output(g.fn("operator.mul", x, g.fn("torch.sin", angle, shape=(4,), dtype="float32"), shape=(4,), dtype="float32"))
    evaluate("sine", g, 1, refusal("inexact", "sin"))

    g = Graph()
    x = g.input(shape=(4,), dtype="float64")
    angle = g.method("double", positions(g, 4, False), shape=(4,), dtype="float64")
    g.output(g.fn("operator.mul", x, g.fn("torch.sin", angle, shape=(4,), dtype="float64"), shape=(4,), dtype="float64"))
    evaluate("sine-rounds", g, 1, params={"exactness": "rounds"})

    g = Graph()
    x = g.input(shape=())
    ones = g.fn("torch.ones", 3, shape=(3,), dtype="float32")
    g.output(g.fn("operator.mul", x, g.method("sum", ones, shape=(), dtype="float32"), shape=(), dtype="float32"))
    evaluate("sum-of-floats", g, 1, refusal("inexact", "sum"))

    g = Graph()
    x = g.input(shape=(3,))
    half = g.fn("torch.full", (3,), 0.5, shape=(3,), dtype="float32")
    scaled = g.fn("torch.add", half, half, shape=(3,), dtype="float32", kwargs={"alpha": 0.1}, name="scaled")
    g.output(g.fn("operator.mul", x, scaled, shape=(3,), dtype="float32"))
    evaluate("alpha-of-floats", g, 1, refusal("inexact", "scaled"))

    g = Graph()
    x = g.input(shape=(3,))
    noise = g.fn("torch.rand_like", g.fn("torch.ones", 3, shape=(3,), dtype="float32"), shape=(3,), dtype="float32")
    g.output(g.fn("operator.mul", x, noise, shape=(3,), dtype="float32"))
    evaluate("random", g, 1, refusal("random", "rand_like"))

    g = Graph()
    x = g.input(shape=(4,), dtype="int64")
    away = g.fn(ATEN + "arange.default", 4, shape=(4,), dtype="int64", kwargs={"device": Raw({"$device": "cuda:0"})})
    g.output(g.fn(ATEN + "add.Tensor", x, away, shape=(4,), dtype="int64"))
    evaluate("aten-another-device", g, 0, refusal("device", "default"))

    g = Graph()
    x = g.input(shape=(4,), dtype="int64")
    given = g.fn("operator.add", positions(g, 4, False), 1, shape=(4,), dtype="int64", name="given")
    g.output(g.fn("operator.add", x, given, shape=(4,), dtype="int64", name="sum"),
             g.method("view", given, 2, 2, shape=(2, 2), dtype="int64"))
    evaluate("graph-output", g, 1, refusal("graph-output", "given"))

    g = Graph()
    x = g.input(shape=(4, 4))
    mask = g.fn("torch.zeros", 4, 4, shape=(4, 4), dtype="float32")
    early = g.fn("operator.add", x, mask, shape=(4, 4), dtype="float32", name="early")
    g.method("fill_", mask, 1.0, shape=(4, 4), dtype="float32")
    g.output(g.fn("operator.add", early, mask, shape=(4, 4), dtype="float32", name="late"))
    evaluate("read-before-it-is-written", g, 0, refusal("tensor-mutated", "zeros"))

    g = Graph()
    x = g.input(shape=(4,))
    cache = g.fn(ATEN + "zeros.default", [4], shape=(4,), dtype="float32", kwargs=CPU)
    g.fn(ATEN + "copy_.default", cache, x, shape=(4,), dtype="float32")
    g.output(g.fn(ATEN + "relu.default", cache, shape=(4,), dtype="float32"))
    evaluate("aten-written-by-an-input", g, 0, refusal("tensor-mutated", "default"))

    g = Graph()
    x = g.input(shape=(512, 512))
    big = g.fn("torch.ones", 512, 512, shape=(512, 512), dtype="float32")
    g.output(g.fn("operator.add", x, big, shape=(512, 512), dtype="float32", name="sum"))
    evaluate("too-large", g, 0, refusal("too-large", "ones"), params={"maximum_bytes": 1048575})

    g = Graph()
    x = g.input(shape=(64, 4))
    row = g.fn("torch.ones", 4, shape=(4,), dtype="float32")
    g.output(g.fn("operator.add", x, g.method("expand", row, 64, 4, shape=(64, 4), dtype="float32"), shape=(64, 4),
                  dtype="float32", name="sum"))
    evaluate("too-large-expand", g, 1, refusal("too-large", "expand"), params={"maximum_bytes": 16})

    g = Graph()
    x = g.input(shape=(3,))
    zero = g.fn("torch.zeros", 3, shape=(3,), dtype="float32")
    g.output(g.fn("operator.add", x, g.fn("operator.truediv", zero, zero, shape=(3,), dtype="float32", name="ratio"),
                  shape=(3,), dtype="float32", name="sum"))
    evaluate("not-a-number", g, 1, refusal("not-a-number", "ratio"))

    g = Graph()
    x = g.input(shape=(3,))
    wrong = g.fn("torch.zeros", 3, shape=(3,), dtype="float64")
    g.output(g.fn("operator.add", x, wrong, shape=(3,), dtype="float64", name="sum"))
    evaluate("recorded-otherwise", g, 0, refusal("recorded-otherwise", "zeros"))

    g = Graph()
    x = g.input(shape=(3, 2))
    table = g.fn("torch.ones", 2, 3, shape=(2, 3), dtype="float32")
    turned = g.method("t", table, shape=(3, 2), dtype="float32")
    y = g.fn("operator.add", turned, x, shape=(3, 2), dtype="float32", name="sum")
    g.output(g.method("view", y, 6, shape=(6,), dtype="float32"))
    evaluate("needs-contiguous", g, 1, refusal("needs-contiguous", "t"))

    g = Graph()
    x = g.input(shape=(2, 3))
    table = g.fn(ATEN + "ones.default", [2, 3], shape=(2, 3), dtype="float32", kwargs=CPU)
    other = g.fn(ATEN + "as_strided.default", table, [3], [1], shape=(3,), dtype="float32")
    g.output(g.fn(ATEN + "add.Tensor", x, other, shape=(2, 3), dtype="float32"))
    evaluate("aten-strides-are-read", g, 0, refusal("layout-read", "default"))

    g = Graph()
    x = g.input(shape=(3,))
    parts = g.fn("torch.zeros", 3, shape=(3,), dtype="complex64", kwargs={"dtype": Raw({"$dtype": "complex64"})})
    g.output(g.fn("operator.add", x, parts, shape=(3,), dtype="complex64", name="sum"))
    evaluate("complex", g, 0, refusal("unsupported-dtype", "zeros"))

    g = Graph()
    x = g.input(shape=(3,), dtype="int64")
    bad = g.fn("operator.floordiv", positions(g, 3, False), 0, shape=(3,), dtype="int64", name="bad")
    g.output(g.fn("operator.add", x, bad, shape=(3,), dtype="int64", name="sum"))
    evaluate("fails-in-pytorch-too", g, 1, refusal("unsupported-operator", "bad"))

    g = Graph()
    x = g.input(shape=(4,), dtype="int64")
    made = g.fn("my.table", positions(g, 4, False), shape=(4,), dtype="int64")
    g.output(g.fn("operator.add", x, made, shape=(4,), dtype="int64", name="sum"))
    evaluate("unknown-operator", g, 0, refusal("tensor-mutated", "arange"))

    name = "EvaluateConstants"
    evaluate("twice", causal(True), None, passes=[name, name], expected=[(name, 2, []), (name, 0, [])])
    evaluate("then-the-preset", causal(False), None, passes=[name, "RemoveNoOps"],
             expected=[(name, 1, []), ("RemoveNoOps", 0, [])])
