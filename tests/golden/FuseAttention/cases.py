"""FuseAttention: attention that is spelled out."""
import base64
import struct

from make_cases import Graph, N, Raw, case, refusal

ATEN = "torch.ops.aten."
B, H, L, S, E = 2, 2, 3, 4, 2
SCORES = (B, H, L, S)


def constant(g, name, shape, numbers, dtype="float32"):
    data = struct.pack(f"<{len(numbers)}" + ("?" if dtype == "bool" else "f"), *numbers)
    g.tensor(name, list(shape), dtype, data=base64.b64encode(data).decode())
    g.modules[""].setdefault("buffers", {})[name] = name
    g.modules[""].setdefault("non_persistent", []).append(name)
    return g.get_attr(name, list(shape), dtype)


def inputs(g, dtype="float32", keys=(B, H, S, E)):
    return (g.input("q", (B, H, L, E), dtype), g.input("k", keys, dtype), g.input("v", (B, H, S, E), dtype))


class Spelled:
    """Attention in one of the dialects; `scores` and `weights` change what they are given."""

    def __init__(self, aten, dtype="float32"):
        self.g, self.aten, self.dtype = Graph(), aten, dtype

    def call(self, torch_name, aten_name, *args, shape, name, kwargs=None, dtype=None):
        target = ATEN + aten_name if self.aten else torch_name
        return self.g.fn(target, *args, shape=shape, dtype=dtype or self.dtype, name=name, kwargs=None if self.aten else kwargs)

    def matmul(self, a, b, shape, name):
        return self.call("torch.matmul", "matmul.default", a, b, shape=shape, name=name)

    def turned(self, k):
        if self.aten:
            return self.g.fn(ATEN + "transpose.int", k, -1, -2, shape=(B, H, E, S), dtype=self.dtype, name="turned")
        return self.g.method("transpose", k, -1, -2, shape=(B, H, E, S), dtype=self.dtype, name="turned")

    def divided(self, scores):
        return self.call("operator.truediv", "div.Tensor", scores, 2.0, shape=SCORES, name="divided")

    def added(self, scores, mask):
        return self.call("operator.add", "add.Tensor", scores, mask, shape=SCORES, name="masked")

    def softmax(self, scores):
        if self.aten:
            return self.g.fn(ATEN + "softmax.int", scores, -1, shape=SCORES, dtype=self.dtype, name="softmax")
        return self.g.fn("torch.nn.functional.softmax", scores, shape=SCORES, dtype=self.dtype, name="softmax",
                         kwargs={"dim": -1})

    def whole(self, q, k, v, scores=lambda s: s, weights=lambda w: w):
        product = self.matmul(q, self.turned(k), SCORES, "product")
        result = weights(self.softmax(scores(product)))
        return self.matmul(result, v, (B, H, L, E), "y")

    def use(self, y):
        """What reads the result does not see how it lies in memory."""
        flat = self.call("torch.matmul", "matmul.default", y, self.g.input("w", (B, H, E, 3), self.dtype),
                         shape=(B, H, L, 3), name="used")
        return self.g.output(flat)


def cases():
    name = "FuseAttention"

    def fuse(case_name, graph, applied, *refused, params=None, **more):
        passes = [{"name": name, "params": params}] if params else None
        case(name, case_name, graph, applied, *refused, passes=more.pop("passes", passes), **more)

    def plain(aten, **more):
        s = Spelled(aten)
        return s.use(s.whole(*inputs(s.g), **more))

    fuse("plain", plain(False), 1)
    fuse("aten-plain", plain(True), 1)

    for aten in (False, True):
        s = Spelled(aten)
        q, k, v = inputs(s.g)
        mask = s.g.input("mask", (B, 1, 1, S))
        s.use(s.whole(q, k, v, lambda scores: s.added(s.divided(scores), mask)))
        prefix = "aten-" if aten else ""
        fuse(prefix + "scaled-and-masked", s.g, 1, params={"masked_rows": True})
        fuse(prefix + "masked-row", s.g, 0, refusal("masked-row", "y"))

    for aten in (False, True):
        s = Spelled(aten)
        q, k, v = inputs(s.g)
        mask = constant(s.g, "mask", (L, S), [0.0, float("-inf"), 0.0, 0.0] * L)
        s.use(s.whole(q, k, v, lambda scores: s.added(scores, mask)))
        fuse(("aten-" if aten else "") + "constant-mask", s.g, 1)

    s = Spelled(True)
    q, k, v = inputs(s.g)
    mask = constant(s.g, "mask", (L, S), [0.0] * S + [float("-inf")] * S + [0.0] * S)
    s.use(s.whole(q, k, v, lambda scores: s.added(scores, mask)))
    fuse("aten-constant-mask-of-a-whole-row", s.g, 0, refusal("masked-row", "y"))

    LOW = -3.4028234663852886e38
    for form, rows, low in (("where", [True] * 11 + [False], LOW), ("where-whole-row", [True] * 8 + [False] * 4, LOW),
                            ("where-infinity", [True] * 8 + [False] * 4, float("-inf"))):
        s = Spelled(True)
        q, k, v = inputs(s.g)
        mask = constant(s.g, "mask", (1, 1, L, S), rows, "bool")
        s.use(s.whole(q, k, v, lambda scores: s.g.fn(ATEN + "where.ScalarOther", mask, scores, low, shape=SCORES,
                                                     dtype="float32")))
        fuse("aten-" + form, s.g, int(low == LOW), *([] if low == LOW else [refusal("masked-row", "y")]))

    for form in ("where", "filled"):
        s = Spelled(True)
        q, k, v = inputs(s.g)
        mask = s.g.input("mask", (B, 1, 1, S), "bool")
        call = ("where.ScalarOther", mask, None, LOW) if form == "where" else ("masked_fill.Scalar", None, mask, LOW)
        s.use(s.whole(q, k, v, lambda scores: s.g.fn(ATEN + call[0], *(scores if item is None else item for item in call[1:]),
                                                     shape=SCORES, dtype="float32")))
        fuse("aten-mask-of-an-input-" + form, s.g, 1)

    for low in (LOW, float("-inf")):
        s = Spelled(True)
        q, k, v = inputs(s.g)
        zeros = s.g.fn(ATEN + "zeros.default", [], shape=(), dtype="float32", name="zeros",
                       kwargs={"dtype": Raw({"$dtype": "float32"})})
        mask = s.g.fn(ATEN + "where.ScalarOther", s.g.input("mask", (B, 1, 1, S), "bool"), zeros, low, shape=(B, 1, 1, S),
                      dtype="float32", name="low")
        mask = s.g.fn(ATEN + "expand.default", mask, [B, 1, L, S], shape=(B, 1, L, S), dtype="float32", name="wide")
        s.use(s.whole(q, k, v, lambda scores: s.added(scores, mask)))
        fuse("aten-mask-made-of-" + ("finite-numbers" if low == LOW else "infinity"), s.g, int(low == LOW),
             *([] if low == LOW else [refusal("masked-row", "y")]))

    s = Spelled(True)
    q, k, v = inputs(s.g)
    mask = constant(s.g, "mask", (1, 1, L, S), [False] * 11 + [True], "bool")
    low = constant(s.g, "low", (), [float("-inf")])
    s.use(s.whole(q, k, v, lambda scores: s.g.fn(ATEN + "masked_fill.Tensor", scores, mask, low, shape=SCORES,
                                                 dtype="float32")))
    fuse("aten-masked-fill", s.g, 1)

    s = Spelled(True)
    q, k, v = inputs(s.g)
    mask = constant(s.g, "mask", (1, 1, L, S), [False] * 11 + [True], "bool")
    s.use(s.whole(q, k, v, lambda scores: s.g.fn(ATEN + "masked_fill.Scalar", scores, mask, -10000.0, shape=SCORES,
                                                 dtype="float32")))
    fuse("aten-filled-with-a-score", s.g, 0, refusal("unsupported-constant", "y"))

    s = Spelled(False)
    q, k, v = inputs(s.g)
    s.g.module("drop", "torch.nn.Dropout", {"p": 0.1})
    s.use(s.whole(q, k, v, weights=lambda w: s.g.call("drop", w)))
    fuse("dropout", s.g, 1)

    s = Spelled(False)
    q, k, v = inputs(s.g)
    s.g.module("drop", "torch.nn.Dropout", {"p": 0.1}, training=True)
    s.use(s.whole(q, k, v, weights=lambda w: s.g.call("drop", w)))
    fuse("training", s.g, 0, refusal("training-mode", "y"))

    s = Spelled(False)
    q, k, v = inputs(s.g)
    scaled = s.g.fn("operator.mul", q, 0.5, shape=(B, H, L, E), dtype="float32", name="scaled")
    small = s.g.fn("operator.mul", 0.25, k, shape=(B, H, S, E), dtype="float32", name="small")
    s.use(s.whole(scaled, small, v))
    fuse("queries-and-keys-scaled", s.g, 1)

    s = Spelled(True)
    q, k, v = inputs(s.g, keys=(B, H, E, S))  # they come transposed
    product = s.matmul(q, k, SCORES, "product")
    s.use(s.matmul(s.softmax(product), v, (B, H, L, E), "y"))
    fuse("aten-keys-come-transposed", s.g, 1)

    s = Spelled(True)
    q, k, v = inputs(s.g)
    bias = constant(s.g, "bias", (1, H, L, S), [0.5] * H * L * S)
    s.use(s.whole(q, k, v, lambda scores: s.g.fn(ATEN + "add_.Tensor", scores, bias, shape=SCORES, dtype="float32",
                                                 name="masked")))
    fuse("aten-added-in-place", s.g, 1)

    # ---- what is kept

    s = Spelled(False)
    q, k, v = inputs(s.g)
    seen = []
    y = s.whole(q, k, v, weights=lambda w: seen.append(w) or w)
    s.g.output(s.matmul(y, s.g.input("w", (B, H, E, 3)), (B, H, L, 3), "used"), seen[0])
    fuse("weights-are-an-output", s.g, 0, refusal("shared-output", "y"))

    s = Spelled(False)
    y = s.whole(*inputs(s.g))
    s.g.output(s.g.method("view", y, -1, shape=(B * H * L * E,), dtype="float32"))
    fuse("needs-contiguous", s.g, 0, refusal("needs-contiguous", "y"))

    s = Spelled(False)
    y = s.whole(*inputs(s.g))
    turned = s.g.method("transpose", y, 1, 2, shape=(B, L, H, E), dtype="float32", name="heads")
    row = s.g.method("contiguous", turned, shape=(B, L, H, E), dtype="float32")
    s.g.output(s.g.method("view", row, B, L, H * E, shape=(B, L, H * E), dtype="float32"))
    fuse("contiguous-behind-it", s.g, 1)

    # ---- readers that give rows of either order

    def either(g, aten, target, method, *args, shape, name):
        """A call of ATen, or the method."""
        return (g.fn(ATEN + target, *args, shape=shape, dtype="float32", name=name) if aten
                else g.method(method, *args, shape=shape, dtype="float32", name=name))

    def turned(g, aten, x, shape, name):
        return either(g, aten, "transpose.int", "transpose", x, 1, 2, shape=shape, name=name)

    def read_by(aten, reader, known=True):
        """With queries whose heads and rows are exchanged in memory, or of which that is not known."""
        s = Spelled(aten)
        x = s.g.input("x", (B, L, H, E))
        if known:
            x = s.call("torch.matmul", "matmul.default", x, s.g.input("w", (E, E)), shape=(B, L, H, E), name="rows")
        q = turned(s.g, aten, x, (B, H, L, E), "q")
        k, v = s.g.input("k", (B, H, S, E)), s.g.input("v", (B, H, S, E))
        y = s.whole(q, k, v)
        return s.g.output(*reader(s.g, y, turned(s.g, aten, y, (B, L, H, E), "heads")))

    def reshaped(aten, name="merged"):
        return lambda g, y, heads: [either(g, aten, "reshape.default", "reshape", heads, [B, L, H * E],
                                           shape=(B, L, H * E), name=name)]

    def joined(aten):
        return lambda g, y, heads: [g.fn(ATEN + "cat.default" if aten else "torch.cat", [y, y], 2, shape=(B, H, 2 * L, E),
                                         dtype="float32", name="joined")]

    def flattened(aten):
        return lambda g, y, heads: [either(g, aten, "flatten.using_ints", "flatten", heads, 2, shape=(B, L, H * E),
                                           name="flat")]

    def split(g, y, heads):
        return [g.method("reshape", heads, B, L, H, E, 1, shape=(B, L, H, E, 1), dtype="float32")]

    def twice(g, y, heads):
        return reshaped(False)(g, y, heads) + reshaped(False, "again")(g, y, heads)

    for aten in (False, True):
        prefix = "aten-" if aten else ""
        fuse(prefix + "reshaped", read_by(aten, reshaped(aten)), 1)
        fuse(prefix + "flattened", read_by(aten, flattened(aten)), 1)
        fuse(prefix + "in-a-cat", read_by(aten, joined(aten)), 1)
        fuse(prefix + "reshaped-of-any-order", read_by(aten, reshaped(aten), known=False), 0, refusal("needs-contiguous", "y"))
    fuse("reshaped-to-a-split", read_by(False, split), 0, refusal("needs-contiguous", "y"))
    fuse("reshaped-twice", read_by(False, twice), 0, refusal("needs-contiguous", "y"))

    s = Spelled(False)
    q, k, v = inputs(s.g)
    s.use(s.whole(q, k, v, lambda scores: s.g.add_(v, 1.0) and scores))
    fuse("input-mutated", s.g, 0, refusal("input-mutated", "y"))

    s = Spelled(False)
    q, k, v = inputs(s.g)
    y = s.whole(q, k, v)
    s.g.add_(k, 1.0)
    s.use(y)
    fuse("key-written-later", s.g, 0, refusal("mutated", "y"))

    s = Spelled(False)
    q, k, v = inputs(s.g)
    wide = s.whole(q, k, v, lambda scores: s.g.method("double", scores, shape=SCORES, dtype="float64"))
    s.use(wide)
    fuse("another-operator-between", s.g, 0, refusal("dtype", "y"))

    s = Spelled(True)
    q, k, v = inputs(s.g)
    s.use(s.whole(q, k, v, lambda scores: s.g.fn(ATEN + "tanh.default", scores, shape=SCORES, dtype="float32")))
    fuse("aten-scores-are-bent", s.g, 0, refusal("unsupported-form", "y"))

    s = Spelled(True)
    q, k, v = inputs(s.g)
    mask = s.g.input("mask", (B, 1, 1, S), "bool")
    fill = lambda scores: s.g.fn(ATEN + "masked_fill.Scalar", scores, mask, -1e4, shape=SCORES, dtype="float32", name="filled")
    s.use(s.whole(q, k, v, fill, lambda weights: s.g.fn(ATEN + "mul.Tensor", weights, 0.5, shape=SCORES, dtype="float32",
                                                        name="half")))
    fuse("aten-weights-are-scaled", s.g, 0, refusal("unsupported-form", "y"))

    for inner in (0, 1):  # a product of another form
        g = Graph()
        q, k, v = g.input("q", (4, L, E)), g.input("k", (4, E, S)), g.input("v", (4, S, E))
        scores = g.fn(ATEN + "bmm.default", q, k, shape=(4, L, S), dtype="float32")
        weights = g.fn(ATEN + "softmax.int", scores, -1, shape=(4, L, S), dtype="float32")
        g.output(g.fn(ATEN + ("matmul.default" if inner else "bmm.default"), weights, v, shape=(4, L, E),
                      dtype="float32", name="y"))
        fuse("aten-batches" + ("-inside" if inner else ""), g, 0, refusal("unsupported-form", "y"))

    s = Spelled(True, "float16")
    q, k, v = inputs(s.g, "float16")
    product = s.matmul(q, s.turned(k), SCORES, "product")
    weights = s.g.fn(ATEN + "softmax.int", product, -1, Raw({"$dtype": "float32"}), shape=SCORES, dtype="float32",
                     name="softmax")
    s.use(s.matmul(weights, v, (B, H, L, E), "y"))
    fuse("aten-softmax-in-another-dtype", s.g, 0, refusal("dtype", "y"))

    # ---- what torch.export leaves in it

    F32 = Raw({"$dtype": "float32"})

    def asserted(s, x, dtype="float32", **more):
        s.g.fn(ATEN + "_assert_tensor_metadata.default", x, *more.pop("args", []), name="asserted",
               kwargs={"dtype": Raw({"$dtype": dtype}), "device": Raw({"$device": "cpu"}),
                       "layout": Raw({"$layout": "strided"})})

    def exported(assertion, scores=lambda s, x: x):
        """As the eager attention of transformers is exported."""
        s = Spelled(True)
        q, k, v = inputs(s.g)
        product = s.matmul(q, s.turned(k), SCORES, "product")
        scaled = s.g.fn(ATEN + "mul.Tensor", scores(s, product), 0.125, shape=SCORES, dtype="float32", name="scaled")
        weights = s.g.fn(ATEN + "softmax.int", scaled, -1, F32, shape=SCORES, dtype="float32", name="softmax")
        assertion(s, weights)
        same = s.g.fn(ATEN + "to.dtype", weights, F32, shape=SCORES, dtype="float32", name="same")
        dropped = s.g.fn(ATEN + "dropout.default", same, 0.1, False, shape=SCORES, dtype="float32", name="dropped")
        return s.use(s.matmul(dropped, v, (B, H, L, E), "y"))

    fuse("aten-type-of-the-weights-asserted", exported(asserted), 1)
    fuse("aten-type-asserted-throughout",
         exported(lambda s, w: [asserted(s, N(n)) for n in ("product", "scaled", "softmax", "turned", "q")]), 1)
    fuse("aten-strides-of-the-weights-asserted", exported(lambda s, w: asserted(s, w, args=[None, [48, 24, 4, 1]])), 0,
         refusal("shared-output", "y"))
    to_device = lambda s, x: s.g.fn(ATEN + "to.dtype_layout", x, shape=SCORES, dtype="float32", name="moved",
                                    kwargs={"dtype": F32, "device": Raw({"$device": "cpu"})})
    fuse("aten-perhaps-on-another-device", exported(asserted, to_device), 0, refusal("unknown-device", "y"))

    s = Spelled(False)
    q, k, v = inputs(s.g)
    cast = lambda x, name: s.g.method("to", x, Raw({"$dtype": "float32"}), shape=SCORES, dtype="float32", name=name)
    s.use(s.whole(q, k, v, lambda scores: s.divided(cast(s.divided(scores), "same")), lambda w: cast(w, "still")))
    fuse("casts-to-its-own-dtype", s.g, 1)

    for dtype in ("bfloat16", "float16"):
        for is_asserted in (False, True):
            s = Spelled(True, dtype)
            q, k, v = inputs(s.g, dtype)
            product = s.matmul(q, s.turned(k), SCORES, "product")
            weights = s.g.fn(ATEN + "softmax.int", product, -1, F32, shape=SCORES, dtype="float32", name="softmax")
            if is_asserted:
                asserted(s, weights)
            narrow = s.g.fn(ATEN + "to.dtype", weights, Raw({"$dtype": dtype}), shape=SCORES, dtype=dtype, name="narrow")
            s.use(s.matmul(narrow, v, (B, H, L, E), "y"))
            fuse(f"aten-softmax-of-{dtype}-in-float32" + ("-asserted" if is_asserted else ""), s.g, int(not is_asserted),
                 *([refusal("shared-output", "y")] if is_asserted else []))

    s = Spelled(False, "bfloat16")
    q, k, v = inputs(s.g, "bfloat16")
    wide = lambda x: s.g.method("float", x, shape=SCORES, dtype="float32", name="wide")
    product = s.matmul(q, s.turned(k), SCORES, "product")
    weights = s.g.fn("torch.nn.functional.softmax", wide(product), shape=SCORES, dtype="float32", name="softmax",
                     kwargs={"dim": -1})
    narrow = s.g.method("to", weights, Raw({"$dtype": "bfloat16"}), shape=SCORES, dtype="bfloat16", name="narrow")
    s.use(s.matmul(narrow, v, (B, H, L, E), "y"))
    fuse("softmax-of-bfloat16-in-float32", s.g, 1)

    s = Spelled(True)
    q, k, v = inputs(s.g)
    root = s.g.fn(ATEN + "full.default", [], 4.0, shape=(), dtype="float32", name="root", kwargs={"dtype": F32})
    s.use(s.whole(q, k, v, lambda scores: s.g.fn(ATEN + "div.Tensor", scores, root, shape=SCORES, dtype="float32",
                                                 name="divided")))
    fuse("aten-divided-by-a-tensor", s.g, 1)

    # ---- masks that are computed

    def masked(name, applied, make, mask_dtype="int64", reason="masked-row"):
        s = Spelled(True)
        q, k, v = inputs(s.g)
        given = s.g.input("mask", (B, 1, 1, S), mask_dtype)
        call = lambda target, *args, dtype="float32", name, kwargs=None: s.g.fn(ATEN + target, *args, shape=(B, 1, 1, S),
                                                                                dtype=dtype, name=name, kwargs=kwargs)
        mask = make(call, given)
        s.use(s.whole(q, k, v, lambda scores: s.added(scores, mask)))
        fuse("aten-mask-" + name, s.g, applied, *([] if applied else [refusal(reason, "y")]))

    def inverted(call, given):
        wide = call("to.dtype", given, F32, name="wide")
        return call("mul.Tensor", call("rsub.Scalar", wide, 1.0, name="rest"), LOW, name="low")

    masked("inverted", 1, inverted, "bool")
    masked("inverted-of-integers", 0, inverted)  # 3 becomes infinity
    masked("inverted-of-ones", 1,
           lambda call, given: inverted(call, call("ones.default", [B, 1, 1, S], dtype="int64", name="ones")))
    masked("twice-the-lowest", 0, lambda call, given: call("mul.Tensor", inverted(call, given), 2.0, name="lower"), "bool")

    def lifted(call, given, writes=False):
        zero = call("detach_.default", call("lift_fresh_copy.default", call("zeros.default", [B, 1, 1, S], name="zeros"),
                                            name="lifted"), name="zero")
        low = call("where.ScalarOther", given, zero, LOW, name="low")
        if writes:
            call("mul_.Tensor", low, 2.0, name="lower")
        return call("alias.default", low, name="seen")

    masked("of-a-lifted-constant", 1, lifted, "bool")
    masked("of-a-lifted-constant-written", 0, lambda call, given: lifted(call, given, True), "bool")

    def copied(call, given):
        made = call("clone.default", call("full.default", [B, 1, 1, S], LOW, name="full"), name="made")
        filled = call("masked_fill.Scalar", call("alias.default", made, name="seen"), given, 0.0, name="filled")
        return call("copy_.default", made, filled, name="copied")

    masked("copied-into", 1, copied, "bool")

    # ---- masks whose first column is open

    def opened(name, make, applied=1, form="filled", dtype="float32"):
        """`make` gives a mask (L, S)."""
        s = Spelled(True, dtype)
        q, k, v = inputs(s.g, dtype)

        def call(target, *args, shape=(L, S), dtype="bool", name=None, kwargs=None):
            return s.g.fn(ATEN + target, *args, shape=shape, dtype=dtype, name=name, kwargs=kwargs)

        mask = make(call, s.g)
        low = float("-inf")
        on = {"filled": lambda x: s.g.fn(ATEN + "masked_fill.Scalar", x, mask, low, shape=SCORES, dtype=dtype),
              "selected": lambda x: s.g.fn(ATEN + "where.ScalarOther", mask, x, low, shape=SCORES, dtype=dtype),
              "added": lambda x: s.added(x, mask)}
        s.use(s.whole(q, k, v, on[form]))
        fuse("aten-first-column-" + name, s.g, applied, *([] if applied else [refusal("masked-row", "y")]))

    def positions(call, *columns):
        rows = call("unsqueeze.default", call("arange.default", L, shape=(L,), dtype="int64", name="lines"), 1, shape=(L, 1),
                    dtype="int64", name="rows")
        return call("arange." + ("start" if len(columns) > 1 else "default"), *(columns or [S]), shape=(S,), dtype="int64",
                    name="columns"), rows

    def ones(call, diagonal=0, upper=False):
        made = call("ones.default", [L, S], name="ones", kwargs={"dtype": Raw({"$dtype": "bool"})})
        return call("triu.default" if upper else "tril.default", made, diagonal, name="triangle")

    opened("causal", lambda call, g: call("le.Tensor", *positions(call), name="mask"), form="selected")
    opened("from-1", lambda call, g: call("le.Tensor", *positions(call, 1, S + 1), name="mask"), 0, "selected")
    opened("strictly-below", lambda call, g: call("lt.Tensor", *positions(call), name="mask"), 0, "selected")
    opened("above", lambda call, g: call("gt.Tensor", *positions(call), name="mask"))
    opened("above-and-equal", lambda call, g: call("ge.Tensor", *positions(call), name="mask"), 0)
    def widened(call, g):
        columns, rows = positions(call)
        wide = call("unsqueeze.default", columns, 0, shape=(1, S), dtype="int64", name="wide")
        return call("le.Tensor", wide, rows, name="mask")

    opened("of-columns-in-a-row", widened, form="selected")
    opened("sides-exchanged", lambda call, g: call("ge.Tensor", *reversed(positions(call)), name="mask"), form="selected")
    opened("turned", lambda call, g: call(
        "transpose.int", call("le.Tensor", *positions(call), shape=(S, L), name="lower"), 0, 1, name="mask"), 0, "selected")
    opened("not-a-triangle", lambda call, g: call("logical_not.default", ones(call), name="mask"))
    opened("bits-of-a-triangle", lambda call, g: call("bitwise_not.default", ones(call), name="mask"))
    opened("equal-to-0", lambda call, g: call("eq.Scalar", ones(call), 0, name="mask"))
    opened("a-lower-triangle", lambda call, g: ones(call, -1), 0, "selected")
    opened("an-upper-triangle", lambda call, g: ones(call, 1, True))
    opened("an-upper-triangle-of-all", lambda call, g: ones(call, 0, True), 0)
    opened("or-padding", lambda call, g: call(
        "logical_or.default", ones(call), g.input("given", (1, S), "bool"), name="mask"), 0, "selected")
    opened("and-padding", lambda call, g: call(
        "logical_and.default", ones(call), g.input("given", (1, S), "bool"), name="mask"), 0, "selected")
    opened("of-integers", lambda call, g: call("gt.Scalar", call("tril.default", g.input("given", (L, S), "int64"),
                                                                 dtype="int64", name="lower"), 0, name="mask"), 0, "selected")

    def infinite(call, g, diagonal=1, dtype="float32"):
        full = call("full.default", [L, S], float("-inf"), dtype=dtype, name="full",
                    kwargs={"dtype": Raw({"$dtype": dtype})})
        return call("triu.default", full, diagonal, dtype=dtype, name="mask")

    opened("added", infinite, form="added")
    opened("added-from-the-diagonal-on", lambda call, g: infinite(call, g, 0), 0, "added")
    opened("added-in-float16", lambda call, g: infinite(call, g, dtype="float16"), form="added", dtype="float16")
    opened("added-of-a-choice", lambda call, g: call("where.Scalar", ones(call), 0.0, float("-inf"), dtype="float32",
                                                     name="mask"), form="added")
    opened("added-of-the-other-choice", lambda call, g: call("where.Scalar", ones(call), float("-inf"), 0.0, dtype="float32",
                                                             name="mask"), 0, "added")
    opened("moved", lambda call, g: call("slice.Tensor", ones(call), 1, 0, S, name="mask"), form="selected")
    opened("cut-off", lambda call, g: call("slice.Tensor", call("tril.default", call(
        "ones.default", [L, S + 1], shape=(L, S + 1), name="ones", kwargs={"dtype": Raw({"$dtype": "bool"})}), shape=(L, S + 1),
        name="wider"), 1, 1, name="mask"), 0, "selected")

    g = Graph()
    q, k, v = g.input("q", (4, L, E)), g.input("k", (4, E, S)), g.input("v", (4, S, E))
    weights = g.fn("torch.softmax", g.fn("torch.matmul", q, k, shape=(4, L, S), dtype="float32"), -1, shape=(4, L, S),
                   dtype="float32")
    g.output(g.fn("torch.matmul", weights, v, shape=(4, L, E), dtype="float32", name="y"))
    fuse("three-dimensions", g, 0, refusal("unsupported-shape", "y"))

    s = Spelled(False)
    q, k, v = inputs(s.g)
    for row in s.g.nodes:
        row["meta"].pop("shape")
    s.use(s.whole(q, k, v))
    fuse("unknown-shape", s.g, 0, refusal("unknown-shape", "y"))

    s = Spelled(True)
    q, k, v = inputs(s.g)
    wide = s.g.input("wide", (1, H, S, E))
    s.use(s.whole(q, k, wide))
    fuse("aten-values-are-broadcast", s.g, 0, refusal("shape-mismatch", "y"))

    s = Spelled(True)
    q, k, v = inputs(s.g)
    mask = s.g.input("mask", (L, S), "int64")
    s.use(s.whole(q, k, v, lambda scores: s.added(scores, mask)))
    fuse("aten-mask-of-integers", s.g, 0, refusal("dtype", "y"), params={"masked_rows": True})

    fuse("twice", plain(False), None, passes=[name, name],
         expected=[(name, 1, []), (name, 0, [refusal("already-transformed", "y")])])
