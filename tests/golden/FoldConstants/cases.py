"""FoldConstants. The number in a name (trap-36-…) is that of a known failure of other optimisers."""
from EvaluateConstants.cases import buffer
from make_cases import Graph, Raw, case, refusal

ATEN = "torch.ops.aten."


def weights(**shapes):
    """A graph whose module `layer`, of no known type, owns these tensors; and the nodes that read them."""
    g = Graph()
    dtypes = shapes.pop("dtypes", {})
    for name, shape in shapes.items():
        g.tensor(f"layer.{name}", shape, dtypes.get(name, "float32"))
    g.module("layer", "torch.nn.Module", None, {name: f"layer.{name}" for name in shapes})
    reads = [g.get_attr(f"layer.{name}", list(shape), dtypes.get(name, "float32")) for name, shape in shapes.items()]
    return (g, *reads)


def linear(g, weight, x=None, name="linear", shape=(2, 3), aten=False):
    x = x or g.input()
    target = ATEN + "linear.default" if aten else "torch.nn.functional.linear"
    return g.fn(target, x, weight, shape=shape, dtype="float32", name=name)


def cases():
    def fold(name, graph, applied, *refused, params=None, **more):
        passes = [{"name": "FoldConstants", "params": params}] if params else None
        case("FoldConstants", name, graph, applied, *refused, passes=more.pop("passes", passes), **more)

    # ---- what is folded

    def lora(aten, typed=True):
        g, w, a, b = weights(weight=(3, 4), lora_A=(2, 4), lora_B=(3, 2))
        meta = lambda *shape: {"shape": shape, "dtype": "float32"} if typed else {}
        prefix = (lambda n: ATEN + n) if aten else (lambda n: "torch." + n.split(".")[0])
        product = g.fn(prefix("matmul.default"), b, a, name="product", **meta(3, 4))
        scaled = g.fn(prefix("mul.Tensor"), product, 0.5, name="scaled", **meta(3, 4))
        merged = g.fn(prefix("add.Tensor"), w, scaled, name="merged", **meta(3, 4))
        return g.output(linear(g, merged, aten=aten))

    def transposed(call, *args, aten=True, rank=2):
        g, w = weights(weight=(4, 3) if rank == 2 else (2, 4, 3))
        shape = (3, 4) if rank == 2 else (2, 3, 4)
        make = g.fn if call.startswith(("torch", "builtins")) else g.method
        t = make(call, w, *args, shape=shape, dtype="float32", name="transposed")
        x = g.input(shape=(*shape[:-2], 5, 3))
        return g.output(g.fn(ATEN + "matmul.default" if aten else "torch.matmul", x, t, shape=(*shape[:-2], 5, 4),
                             dtype="float32"))

    for name, *spelling in (("t", "t"), ("aten-t", ATEN + "t.default"), ("transpose", "transpose", 0, 1),
                            ("aten-transpose", ATEN + "transpose.int", -1, -2), ("permute", "permute", 1, 0),
                            ("aten-permute", ATEN + "permute.default", [1, 0]), ("aten-numpy-t", ATEN + "numpy_T.default"),
                            ("aten-mt", ATEN + "mT.default"), ("attribute-t", "builtins.getattr", "T"),
                            ("attribute-mt", "builtins.getattr", "mT"),
                            ("aten-movedim", ATEN + "movedim.int", 0, -1)):
        fold(f"transposed-{name}", transposed(*spelling, aten=name.startswith("aten")), 1)
    fold("transposed-mt-of-three", transposed(ATEN + "mT.default", rank=3), 0, refusal("unsupported-arguments", "transposed"))
    fold("transposed-adjoint", transposed(ATEN + "adjoint.default"), 0, refusal("unsupported-operator", "transposed"))

    fold("lora", lora(False), 1)
    fold("lora-without-meta", lora(False, typed=False), 1)
    fold("aten-lora", lora(True), 1)

    g, w = weights(weight=(4, 3))
    g.output(linear(g, g.method("t", w, shape=(3, 4), dtype="float32")))
    fold("transpose", g, 1)

    g, w = weights(weight=(4, 3))
    g.output(linear(g, g.fn("builtins.getattr", w, "T", shape=(3, 4), dtype="float32")))
    fold("attribute-t", g, 1)

    g, w, v = weights(weight=(1, 3, 4), other=(2, 3, 4))
    first = g.fn(ATEN + "select.int", v, 0, 1, shape=(3, 4), dtype="float32")
    flat = g.fn(ATEN + "view.default", w, [3, -1], shape=(3, 4), dtype="float32")
    both = g.fn(ATEN + "cat.default", [flat, first], 1, shape=(3, 8), dtype="float32")
    part = g.fn(ATEN + "slice.Tensor", both, -1, 2, 6, shape=(3, 4), dtype="float32")
    g.output(linear(g, part, aten=True))
    fold("aten-movements", g, 1)

    g, w, v = weights(weight=(3, 2), other=(3, 2))
    stacked = g.fn("torch.stack", [w, v], shape=(3, 2, 2), dtype="float32", kwargs={"dim": 1})
    swapped = g.method("permute", stacked, 0, 2, 1, shape=(3, 2, 2), dtype="float32")
    g.output(linear(g, g.method("reshape", swapped, 3, 4, shape=(3, 4), dtype="float32")))
    fold("stack-permute-reshape", g, 1)

    g, w = weights(weight=(5, 1, 4))
    part = g.fn("operator.getitem", w, (slice(1, -1), 0, ...), shape=(3, 4), dtype="float32")
    g.output(linear(g, part))
    fold("index", g, 1)

    g, w, v = weights(weight=(3, 4), scale=(3,))
    column = g.method("unsqueeze", v, -1, shape=(3, 1), dtype="float32")
    wide = g.method("expand", column, 3, 4, shape=(3, 4), dtype="float32")
    g.output(linear(g, g.fn("operator.mul", w, wide, shape=(3, 4), dtype="float32", name="mul")))
    fold("expand", g, 1)

    g, w, v = weights(weight=(3, 4), g=(3, 1))
    squared = g.fn("operator.pow", v, 2, shape=(3, 1), dtype="float32", name="pow")
    root = g.fn("torch.rsqrt", g.fn("operator.add", squared, 1.0, shape=(3, 1), dtype="float32", name="add"), shape=(3, 1),
                dtype="float32")
    minus = g.fn("operator.neg", w, shape=(3, 4), dtype="float32")
    g.output(linear(g, g.fn("operator.truediv", minus, root, shape=(3, 4), dtype="float32", name="div")))
    fold("arithmetic", g, 1)

    g, w, a, b = weights(weight=(3, 4), a=(3, 2), b=(2, 4))
    merged = g.fn(ATEN + "addmm.default", w, a, b, shape=(3, 4), dtype="float32", kwargs={"alpha": 2, "beta": 0.5})
    less = g.fn(ATEN + "sub.Tensor", merged, w, shape=(3, 4), dtype="float32", kwargs={"alpha": 3})
    g.output(linear(g, less, aten=True))
    fold("aten-addmm-alpha-beta", g, 1)

    g, w = weights(weight=(3, 4))
    scaled = g.fn("operator.mul", w, 2.0, shape=(3, 4), dtype="float32", name="mul")
    more = g.fn("operator.add", scaled, 1.0, shape=(3, 4), dtype="float32", name="add")
    x = g.input()
    g.output(linear(g, scaled, x), linear(g, more, x))
    fold("read-by-both", g, 2)

    g, w = weights(weight=(3, 4))
    shared = g.fn("operator.mul", w, 2.0, shape=(3, 4), dtype="float32", name="mul")
    a = g.fn("operator.add", shared, 1.0, shape=(3, 4), dtype="float32", name="add")
    b = g.fn("operator.sub", shared, 1.0, shape=(3, 4), dtype="float32", name="sub")
    x = g.input()
    g.output(linear(g, a, x), linear(g, b, x))
    fold("shared-inside", g, 2)

    g, w, x = (*weights(weight=(3, 4)), None)
    x = g.input()
    g.output(linear(g, g.fn("operator.mul", w, 2.0, shape=(3, 4), dtype="float32", name="mul"), x),
             linear(g, w, x))
    fold("weight-read-otherwise", g, 1)

    g = Graph()
    g.make_linear("fc", 4, 3, bias=False)
    w = g.get_attr("fc.weight", [3, 4])
    g.output(linear(g, g.fn("operator.mul", w, 2.0, shape=(3, 4), dtype="float32", name="mul")))
    fold("of-a-known-type", g, 1)

    g = Graph()
    g.tensor("weight", (3, 4))
    g.modules[""]["parameters"] = {"weight": "weight"}
    w = g.get_attr("weight", [3, 4])
    g.output(linear(g, g.fn("operator.mul", w, 2.0, shape=(3, 4), dtype="float32", name="mul")))
    fold("of-the-root", g, 1)

    g, w, v = weights(weight=(3, 4), ids=(1, 8), dtypes={"ids": "int64"})
    ids = g.fn(ATEN + "slice.Tensor", v, 1, 0, 4, shape=(1, 4), dtype="int64")
    rows = g.fn(ATEN + "embedding.default", w, ids, shape=(1, 4, 4), dtype="float32", name="embedding")
    g.output(g.fn(ATEN + "add.Tensor", g.input(shape=(1, 4, 4)), rows, shape=(1, 4, 4), dtype="float32"))
    fold("aten-integers-are-moved", g, 1, refusal("unsupported-arguments", "embedding"))

    def added(g, value, shape):
        return g.output(g.fn(ATEN + "add.Tensor", g.input(shape=shape), value, shape=shape, dtype="float32"))

    def of_linear(target, *, bias=True):
        g, table, w, b = weights(table=(1, 5, 4), weight=(3, 4), bias=(3,))
        args = (w, b) if bias else (w,)
        return added(g, g.fn(target, table, *args, shape=(1, 5, 3), dtype="float32", name="projected"), (1, 5, 3))

    fold("aten-linear-of-a-weight", of_linear(ATEN + "linear.default"), 1)
    fold("linear-of-a-weight", of_linear("torch._C._nn.linear", bias=False), 1)

    def of_layer_norm(shape, *more):
        g, table, w, b = weights(table=(2, 5, 4), weight=(4,), bias=(4,))
        y = g.fn(ATEN + "layer_norm.default", table, shape, *((w, b) if shape == [4] else ()), *more, shape=(2, 5, 4),
                 dtype="float32", name="norm")
        return added(g, y, (2, 5, 4))

    fold("aten-layer-norm-of-a-weight", of_layer_norm([4], 1e-7, False), 1)
    fold("aten-layer-norm-of-two-dimensions", of_layer_norm([5, 4]), 0, refusal("unsupported-arguments", "norm"))

    g, w = weights(weight=(5, 4))
    wide = g.method("repeat", w, 2, 1, 3, shape=(2, 5, 12), dtype="float32", name="repeat")
    fold("repeat", added(g, wide, (2, 5, 12)), 1)

    def rows(numbers, aten=True, *more, persistent=False, **kwargs):
        g, table = weights(table=(5, 4))
        chosen = buffer(g, "chosen", numbers, persistent)
        args = (table, chosen) if aten else (chosen, table)
        target = ATEN + "embedding.default" if aten else "torch.nn.functional.embedding"
        shape = (len(numbers), 4)
        return added(g, g.fn(target, *args, *more, shape=shape, dtype="float32", name="embedding", kwargs=kwargs), shape)

    not_there = refusal("unsupported-arguments", "embedding")
    fold("aten-rows-in-order", rows([1, 2, 3], True, 0), 1)
    fold("rows-in-order", rows([2, 3], False, padding_idx=None, max_norm=None), 1)
    fold("aten-one-row-again-and-again", rows([3, 3, 3, 3]), 1)
    fold("aten-rows-in-no-order", rows([3, 1, 2]), 1)
    fold("aten-rows-that-are-not-there", rows([3, 4, 5]), 0, not_there)
    fold("aten-rows-by-a-persistent-buffer", rows([1, 2, 3], persistent=True), 1)
    fold("rows-whose-norm-is-bounded", rows([1, 2], False, max_norm=1.0), 0, refusal("unknown-operator", "embedding"))
    g, table = weights(table=(5, 4))
    chosen = buffer(g, "chosen", [1, 2])
    g.add_(chosen)
    value = g.fn(ATEN + "embedding.default", table, chosen, shape=(2, 4), dtype="float32", name="embedding")
    fold("written-choice-of-rows", added(g, value, (2, 4)), 0, refusal("mutates", "add_"),
         refusal("tensor-mutated", "embedding"))
    fold("aten-rows-that-count-down", rows([3, 2, 1]), 1)
    fold("aten-rows-from-the-end", rows([-1, 0, 1]), 0, not_there)

    def by_tensor(numbers, axis, persistent=False):
        g, table = weights(table=(5, 4))
        chosen = buffer(g, "chosen", numbers, persistent)
        shape = (len(numbers), 4) if axis == 0 else (5, len(numbers))
        return added(g, g.fn(ATEN + "index.Tensor", table, [None] * axis + [chosen], shape=shape, dtype="float32",
                             name="index"), shape)

    fold("aten-index-by-a-constant", by_tensor([3, 0, 3], 0), 1)
    fold("aten-index-of-columns", by_tensor([2, 2, 1, 0, 3], 1), 1)
    fold("aten-index-in-order", by_tensor([1, 2, 3], 0), 1)
    fold("aten-index-by-a-persistent-buffer", by_tensor([3, 0, 3], 0, persistent=True), 1)
    fold("aten-index-beyond", by_tensor([3, 0, 4], 1), 0, refusal("unsupported-arguments", "index"))
    g, table = weights(table=(5, 4))
    one, two = buffer(g, "one", [3, 0]), buffer(g, "two", [1, 2])
    value = g.fn(ATEN + "index.Tensor", table, [one, two], shape=(2,), dtype="float32", name="index")
    fold("aten-index-by-two", added(g, value, (2,)), 0, refusal("unsupported-arguments", "index"))
    g, table = weights(table=(5, 4))
    value = g.fn("torch.index_select", table, 1, buffer(g, "chosen", [3, 0, 0]), shape=(5, 3), dtype="float32", name="columns")
    fold("index-select", added(g, value, (5, 3)), 1)
    g, table = weights(table=(5, 4))
    value = g.fn("operator.getitem", table, buffer(g, "chosen", [3, 0, 0]), shape=(3, 4), dtype="float32", name="rows")
    fold("rows-of-a-table", added(g, value, (3, 4)), 1)

    def computed(target, *args, **kwargs):
        g, w = weights(weight=(3, 4))
        return g.output(linear(g, g.fn(target, w, *args, shape=(3, 4), dtype="float32", name="computed", kwargs=kwargs)))

    for name, *call in (("exp", "torch.exp"), ("sigmoid", "torch.sigmoid"), ("aten-sigmoid", ATEN + "sigmoid.default"),
                        ("aten-clamp", ATEN + "clamp.default", -0.5, 0.5),
                        ("aten-clamp-above", ATEN + "clamp.default", None, 0.5),
                        ("aten-clamp-min", ATEN + "clamp_min.default", 0.1), ("aten-relu", ATEN + "relu.default")):
        fold(name, computed(*call), 1)
    fold("relu-in-place-of-a-weight", computed("torch.nn.functional.relu", inplace=True), 0, refusal("mutates", "computed"))

    def in_place(between=None, write="relu_", also=None, behind=None):
        """Writes into what is computed of a weight; or into a view of it."""
        g, w = weights(weight=(3, 4))
        made = view = g.method("mul", w, 2.0, shape=(3, 4), dtype="float32", name="made")
        if between:
            view = g.method(between, made, shape=(4, 3), dtype="float32", name="view")
        read = g.fn("torch.abs", made, shape=(3, 4), dtype="float32", name="before") if also == "before" else None
        shape = (4, 3) if between else (3, 4)
        written = g.method(write, view, shape=shape, dtype="float32", name="written")
        if also == "behind":
            read = g.fn("torch.abs", made, shape=(3, 4), dtype="float32", name="behind")
        if also == "again":
            written = g.method("exp_", written, shape=shape, dtype="float32", name="again")
        value = g.method("t", written, shape=(3, 4), dtype="float32", name="turned") if between else written
        g.output(linear(g, value), *([read] if read else []))
        return g

    changed = refusal("tensor-mutated", "made")
    fold("written-by-its-only-reader", in_place(), 1)
    fold("written-through-a-view", in_place("t"), 1)
    fold("written-and-read-before", in_place(also="before"), 0, changed)
    fold("written-and-read-behind", in_place(also="behind"), 0, changed)
    fold("written-twice", in_place(also="again"), 0, changed)
    fold("written-by-what-no-recipe-computes", in_place(write="tanh_"), 0, changed, refusal("unsupported-operator", "written"))

    g, w = weights(weight=(3, 4), dtypes={"weight": "bfloat16"})
    wide = g.method("float", w, shape=(3, 4), dtype="float32")
    g.output(linear(g, wide))
    fold("widening-cast", g, 1)

    g, w, a = weights(weight=(3, 4), a=(3, 4), dtypes={"weight": "float16"})
    low = g.method("to", a, None, shape=(3, 4), dtype="float16")
    g.nodes[-1]["args"][1] = {"$dtype": "float16"}
    x = g.input(dtype="float16")
    g.output(g.fn("torch.nn.functional.linear", x, low, shape=(2, 3), dtype="float16", name="linear"))
    fold("narrowing-cast", g, 1)

    # ---- what is not

    def mul(g, w, value=2.0, shape=(3, 4), dtype="float32", name="mul"):
        return g.fn("operator.mul", w, value, shape=shape, dtype=dtype, name=name)

    g, w = weights(weight=(3, 4))
    low = g.method("half", w, shape=(3, 4), dtype="float16")
    back = g.method("float", low, shape=(3, 4), dtype="float32")
    g.output(linear(g, back))
    fold("trap-36-narrowed-and-back", g, 1, refusal("narrowing-cast", "float"))

    # Recipes compute in floating dtypes only: a cast to another one stays, and so does what computes with it.
    def cast(name, of, to, floats=True):
        g, w = weights(weight=(3, 4), dtypes={"weight": of})
        whole = g.method("to", w, Raw({"$dtype": to}), shape=(3, 4), dtype=to)
        x = g.input(shape=(3, 4))
        if floats:
            g.output(g.fn("operator.add", x, mul(g, whole, 0.5), shape=(3, 4), dtype="float32", name="add"))
        else:
            g.output(g.method("masked_fill", x, whole, -1e9, shape=(3, 4), dtype="float32"))
        fold(name, g, 0, refusal("unsupported-dtype", "to"))

    cast("cast-to-a-wider-integer", "float32", "int64")
    cast("cast-to-an-integer-of-the-same-size", "float32", "int32")
    cast("cast-of-half-to-int32", "float16", "int32")
    cast("cast-to-bool", "float32", "bool", floats=False)
    cast("cast-of-integers-to-bool", "int64", "bool", floats=False)
    cast("cast-of-bool-to-float", "bool", "float32")
    cast("cast-of-integers-to-float", "int64", "float64")
    cast("cast-to-complex", "float32", "complex64")
    cast("cast-to-float8", "float32", "float8_e4m3fn")

    g, w = weights(weight=(3, 4))
    x = g.input(shape=(3, 4))
    g.output(linear(g, g.fn("operator.mul", w, x, shape=(3, 4), dtype="float32", name="mul"), x, shape=(3, 3)))
    fold("not-with-an-input", g, 0)

    g, w = weights(weight=(3, 4))
    g.output(mul(g, w))
    fold("graph-output", g, 0, refusal("graph-output", "mul"))

    g, w = weights(weight=(3, 4))
    x = g.input(shape=(4, 3))
    doubled = mul(g, w)
    g.output(g.fn("torch.matmul", x, doubled, shape=(4, 4), dtype="float32"),
             g.method("t", doubled, shape=(4, 3), dtype="float32"))
    fold("graph-output-by-a-view", g, 0, refusal("graph-output", "mul"))

    g, w = weights(weight=(3, 4))
    x = g.input(shape=(4, 3))
    moved = g.method("t", w, shape=(4, 3), dtype="float32")
    g.output(g.fn("operator.add", x, moved, shape=(4, 3), dtype="float32", name="add"), w)
    fold("graph-output-of-the-weight", g, 0, refusal("graph-output", "t"))

    g, w = weights(weight=(3, 4))
    doubled = mul(g, w)
    g.add_(doubled)
    g.output(linear(g, doubled))
    fold("result-mutated", g, 0, refusal("tensor-mutated", "mul"))

    g, w = weights(weight=(3, 4))
    g.add_(w)
    g.output(linear(g, mul(g, w)))
    fold("weight-mutated", g, 0, refusal("mutates", "add_"), refusal("tensor-mutated", "mul"))

    g, w = weights(weight=(3, 4))
    moved = g.method("t", w, shape=(4, 3), dtype="float32")
    g.add_(g.method("t", moved, shape=(3, 4), dtype="float32", name="again"))
    g.output(linear(g, mul(g, w)))
    fold("weight-mutated-by-a-view", g, 0, refusal("tensor-mutated", "t"), refusal("tensor-mutated", "mul"))

    g, w = weights(weight=(3, 4))
    noise = g.fn("torch.rand_like", w, shape=(3, 4), dtype="float32")
    g.output(linear(g, noise))
    fold("random", g, 0, refusal("random", "rand_like"))

    g, w = weights(weight=(3, 4))
    dropped = g.fn("torch.nn.functional.dropout", w, shape=(3, 4), dtype="float32", kwargs={"training": True})
    g.output(linear(g, dropped))
    fold("dropout-in-training", g, 0, refusal("random", "dropout"))

    g, w = weights(weight=(3, 4))
    g.output(linear(g, g.fn("mylib.transform", w, shape=(3, 4), dtype="float32")))
    fold("unknown-operator", g, 0, refusal("unknown-operator", "transform"))

    g, w = weights(weight=(3, 4))
    g.output(linear(g, g.fn("torch.log", mul(g, w), shape=(3, 4), dtype="float32")))
    fold("unsupported-operator", g, 1, refusal("unsupported-operator", "log"))

    g, w = weights(weight=(3, 4), dtypes={"weight": "int64"})
    x = g.input(shape=(3, 4), dtype="int64")
    g.output(g.fn("operator.add", x, mul(g, w, 2, dtype="int64"), shape=(3, 4), dtype="int64"))
    fold("integer-arithmetic", g, 0, refusal("unsupported-dtype", "mul"))

    g, w = weights(weight=(3, 4))
    whole = g.fn("torch.div", w, 2.0, shape=(3, 4), dtype="float32", kwargs={"rounding_mode": "floor"})
    g.output(linear(g, whole))
    fold("rounding-mode", g, 0, refusal("unsupported-arguments", "div"))

    # ---- norms

    def normed(target, *args, shape=(3, 1), of=(3, 4), gain=None, kwargs=None):
        """linear(x, v * (g / norm(v)))"""
        g, v, gains = weights(weight_v=of, weight_g=gain or shape)
        norm = g.fn(target, v, *args, shape=shape, dtype="float32", name="norm", kwargs=kwargs)
        factor = g.fn("operator.truediv", gains, norm, shape=shape, dtype="float32", name="factor")
        w = g.fn("operator.mul", v, factor, shape=of, dtype="float32", name="w")
        return g.output(g.fn("operator.mul", g.input(shape=of), w, shape=of, dtype="float32", name="y"))

    def weight_norm(target, *args, of=(3, 4), gain=(3, 1)):
        g, v, gains = weights(weight_v=of, weight_g=gain)
        w = g.fn(target, v, gains, *args, shape=of, dtype="float32", name="w")
        return g.output(g.fn("operator.mul", g.input(shape=of), w, shape=of, dtype="float32", name="y"))

    NORM = ATEN + "linalg_vector_norm.default"
    fold("aten-weight-norm", weight_norm(ATEN + "_weight_norm.default"), 1)
    fold("aten-weight-norm-of-dimension-1", weight_norm(ATEN + "_weight_norm.default", 1, of=(3, 4, 2), gain=(1, 4, 1)), 1)
    fold("aten-weight-norm-of-all", weight_norm(ATEN + "_weight_norm.default", -1, gain=()), 1)
    fold("weight-norm-of-other-gains", weight_norm("torch._weight_norm", 0, gain=(3, 4)), 0,
         refusal("unsupported-arguments", "w"))
    fold("aten-norm-of-rows", normed(NORM, 2, [1], True), 1)
    fold("aten-norm-of-a-kernel", normed(NORM, 2, [1, -1], True, shape=(3, 1, 1), of=(3, 4, 2)), 1)
    fold("aten-norm-of-columns", normed(NORM, 2.0, [0], shape=(4,)), 1)
    fold("aten-norm-of-all", normed(NORM, shape=()), 1)
    fold("aten-norm-of-rows-in-its-old-spelling", normed(ATEN + "norm.ScalarOpt_dim", 2, [1], True), 1)
    fold("norm-of-one", normed(NORM, 1, [1], True), 0, refusal("unsupported-arguments", "norm"))
    fold("norm-of-a-matrix", normed("torch.linalg.norm", 2, (0, 1), True, shape=(1, 1)), 0,
         refusal("unsupported-arguments", "norm"))
    fold("norm-in-another-dtype", normed(NORM, 2, [1], True, kwargs={"dtype": Raw({"$dtype": "float32"})}), 0,
         refusal("unsupported-arguments", "norm"))

    for zero in ("beta", "alpha"):
        g, w, a, b = weights(weight=(3, 4), a=(3, 2), b=(2, 4))
        g.output(linear(g, g.fn("torch.addmm", w, a, b, shape=(3, 4), dtype="float32", kwargs={zero: 0})))
        fold(f"addmm-with-{zero}-zero", g, 0, refusal("unsupported-arguments", "addmm"))

    g, w = weights(weight=(3, 8))
    g.output(linear(g, g.fn("operator.getitem", w, (slice(None), slice(0, None, 2)), shape=(3, 4), dtype="float32")))
    fold("slice-in-steps", g, 0, refusal("unsupported-arguments", "getitem"))

    g, w = weights(weight=(3, 4))
    g.output(linear(g, g.fn("operator.pow", w, 3, shape=(3, 4), dtype="float32")))
    fold("power-of-three", g, 0, refusal("unsupported-arguments", "pow"))

    g, w = weights(weight=(3, 4))
    g.output(linear(g, mul(g, w, dtype="bfloat16")))
    fold("recorded-otherwise", g, 0, refusal("recorded-otherwise", "mul"))

    g, w = weights(weight=(3, 4))
    part = g.fn("torch.diagonal", w, shape=(3,), dtype="float32")
    g.output(g.fn("operator.add", g.input(shape=(3,)), part, shape=(3,), dtype="float32"))
    fold("unsupported-view", g, 0, refusal("unsupported-operator", "diagonal"))

    g, w = weights(weight=(3, 4))
    moved = g.method("t", w, shape=(4, 3), dtype="float32")
    strides = g.method("stride", moved)
    x = g.input(shape=(3, 4))
    g.output(g.fn("torch.matmul", x, moved, shape=(3, 3), dtype="float32"), strides)
    fold("layout-read", g, 0, refusal("layout-read", "t"))

    def scaled_and_viewed(first, shape):
        """(x * first(w.t() * 2)).view(12), which runs only where the product is row-major."""
        g, w = weights(weight=(3, 4))
        turned = g.method("t", w, shape=(4, 3), dtype="float32")
        doubled = first(g, g.fn("operator.mul", turned, 2, shape=(4, 3), dtype="float32", name="doubled"))
        product = g.fn("operator.mul", g.input(shape=()), doubled, shape=shape, dtype="float32", name="product")
        return g.output(g.method("view", product, 12, shape=(12,), dtype="float32"))

    back = lambda g, doubled: g.method("t", doubled, shape=(3, 4), dtype="float32", name="back")
    rows = lambda g, doubled: g.method("contiguous", doubled, shape=(4, 3), dtype="float32", name="rows")
    # The transposition back is not believed: it may lie either way.
    read_far = [refusal("needs-contiguous", name) for name in ("t", "doubled", "back")]
    fold("needs-contiguous", scaled_and_viewed(back, (3, 4)), 0, *read_far)
    fold("needs-contiguous-and-is", scaled_and_viewed(rows, (4, 3)), 1)

    g = Graph()
    x = g.input()
    y = g.linear("fc", x, 3)
    g.output(y, linear(g, mul(g, g.get_attr("fc.weight", [3, 4])), x))
    fold("module-called", g, 0, refusal("module-called", "mul"))

    g, w = weights(weight=(3, 4))
    mul(g, w)
    g.output(linear(g, w))
    fold("not-what-nobody-reads", g, 0)

    g, w = weights(weight=(3, 4))
    copy = g.method("clone", w, shape=(3, 4), dtype="float32")
    g.output(linear(g, copy))
    fold("not-a-weight-as-it-is", g, 0)

    g, w = weights(weight=(3, 4))
    shape = g.fn("builtins.getattr", w, "shape")
    x = g.input(shape=(12,))
    g.output(g.method("view", x, shape, shape=(3, 4), dtype="float32"))
    fold("not-a-size", g, 0)

    # ---- how large

    def tied(growth):
        g, w = weights(weight=(3, 4))
        x = g.input(shape=(2, 3))
        y = g.fn("torch.matmul", x, w, shape=(2, 4), dtype="float32")
        moved = g.method("t", w, shape=(4, 3), dtype="float32")
        return g.output(g.fn("torch.matmul", y, moved, shape=(2, 3), dtype="float32"))

    fold("view-of-a-kept-weight", tied(12), 1, params={"maximum_growth": 12})
    fold("too-large-view-of-a-kept-weight", tied(11), 0, refusal("too-large", "t"), params={"maximum_growth": 11})

    g, w = weights(weight=(1, 4))
    wide = g.method("expand", g.fn("operator.mul", w, 2.0, shape=(1, 4), dtype="float32", name="mul"), 1000, 4,
                    shape=(1000, 4), dtype="float32")
    x = g.input(shape=(1000, 4))
    g.output(g.fn("torch.nn.functional.relu", wide, shape=(1000, 4), dtype="float32"))
    g.nodes[-2]["args"] = [{"$node": "x"}]
    g.nodes.insert(-2, {"name": "sum_1", "op": "call_function", "target": "operator.mul",
                        "args": [{"$node": "x"}, {"$node": "expand"}],
                        "meta": {"shape": [1000, 4], "dtype": "float32"}})
    g.nodes[-2]["args"] = [{"$node": "sum_1"}]
    fold("too-large-expand", g, 1, refusal("too-large", "expand"), params={"maximum_growth": 0})

    g, w = weights(weight=(3, 4))
    for i in range(12):
        w = g.fn("operator.add", w, w, shape=(3, 4), dtype="float32", name="add")
    g.output(linear(g, w))
    fold("too-complex", g, 1, refusal("too-complex", "add_6"))

    name = "FoldConstants"
    fold("twice", lora(False), None, passes=[name, name], expected=[(name, 1, []), (name, 0, [])])
    fold("then-merge", two_loras(), None, passes=[name, "MergeLinears"], expected=[(name, 2, []), ("MergeLinears", 1, [])])


def two_loras():
    g, q, k, a, b = weights(q=(3, 4), k=(3, 4), lora_A=(2, 4), lora_B=(3, 2))
    x = g.input()
    outputs = []
    for w in (q, k):
        product = g.fn("torch.matmul", b, a, shape=(3, 4), dtype="float32")
        outputs.append(linear(g, g.fn("operator.add", w, product, shape=(3, 4), dtype="float32"), x))
    return g.output(*outputs)
