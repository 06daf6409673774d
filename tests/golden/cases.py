"""The golden cases of every pass. The number in a name (trap-19-…) is that of a known failure of other optimisers."""
import hashlib

from make_cases import Graph, N, Raw, case, refusal

FLOATS = ["float64", "float32", "float16", "bfloat16"]


def signature(name):
    """Of a pass in its first version without parameters."""
    return hashlib.sha256(('{"params":{},"pass":"%s","version":1}' % name).encode()).hexdigest()[:32]


def nested(graph, path, target):
    """A nested program below `path` that calls the module `path`.fc, and owns nothing else."""
    rows = [{"name": "y", "op": "placeholder", "target": "y", "args": []},
            {"name": "fc", "op": "call_module", "target": target, "args": [{"$node": "y"}]},
            {"name": "output", "op": "output", "target": "output", "args": [{"$node": "fc"}]}]
    graph.module(path, "torch.fx.GraphModule", graph={"nodes": rows})


# ---- MergeLinears ------------------------------------------------------------------------------------------------------


def merge_linears():
    def merge(name, graph, applied, *refused, **more):
        case("MergeLinears", name, graph, applied, *refused, **more)

    def branches(paths, sizes=None, **more):
        g = Graph()
        x = g.input()
        g.output(*[g.linear(p, x, (sizes or [3] * len(paths))[i], **more) for i, p in enumerate(paths)])
        return g

    def pair(change=None, first={}, second={}, third=None):
        """q and k on x with something between them."""
        g = Graph()
        x = g.input()
        values = [g.linear("q", x, 3, **first)]
        if change:
            change(g, x)
        values.append(g.linear("k", x, 2, **second))
        if third is not None:
            values.append(g.linear("v", x, 4, **third))
        g.output(*values)
        return g

    merge("two-branches", branches(["encoder.0.q", "encoder.0.k"]), 1)
    merge("sizes-differ", branches(["encoder.0.query", "encoder.0.key", "encoder.0.value"], [5, 1, 2]), 1)
    merge("five-branches", branches(["a.l0", "a.l1", "a.l2", "a.l3", "a.l4"]), 1)
    merge("trap-16-top-level", branches(["fc1", "fc2"]), 1)
    merge("across-parents", branches(["left.q", "right.inner.k", "v"]), 1)
    merge("trap-18-no-bias", branches(["q", "k"], bias=False), 1)
    for dtype in FLOATS:
        merge(f"dtype-{dtype}", branches(["q", "k"], dtype=dtype), 1)
    merge("trap-19-mixed-bias", pair(second={"bias": False}), 1)
    merge("trap-19-mixed-bias-first-without", pair(first={"bias": False}), 1)
    merge("both-in-training", branches(["q", "k"], training=True), 1)
    merge("both-frozen", branches(["q", "k"], weight_grad=False, bias_grad=False), 1)
    merge("name-over-200-characters", branches([f"block.projection_number_{i:03d}" for i in range(12)]), 1)

    g = Graph()
    x = g.input()
    h = g.relu(x)
    a, b = g.linear("late", h, 3, name="a"), g.linear("early", x, 2, name="b")
    c, d = g.linear("early2", x, 2, name="c"), g.linear("late2", h, 2, name="d")
    g.output(a, b, c, d)
    merge("two-groups-interleaved", g, 2)

    g = Graph()
    x = g.input()
    g.output(g.linear("q", x, 3, keyword="input"), g.linear("k", x, 3, keyword="input"))
    merge("keyword-call", g, 1)

    g = Graph()
    x = g.input(shape=("s0", 7, 4))
    g.output(g.linear("q", x, 3), g.linear("k", x, 3))
    merge("symbolic-batch", g, 1)

    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, None, None)
    g.output(g.linear("q", x, 3, inputs=4), g.linear("k", x, 3, inputs=4))
    merge("unknown-shape", g, 1)

    g = Graph()
    x = g.input()
    g.linear("dead", x, 2)
    g.output(g.linear("q", x, 3), g.linear("k", x, 3))
    merge("trap-21-one-branch-is-dead", g, 1)

    g = Graph()
    x = g.input()
    q = g.linear("q", x, 3)
    g.relu(q)
    g.output(q, g.linear("k", x, 3))
    merge("trap-38-branch-is-an-output", g, 1)

    g = Graph()
    x = g.input()
    g.output(x, g.linear("q", x, 3), g.linear("k", x, 3))
    merge("trap-38-input-is-an-output", g, 1)

    g = Graph()
    x = g.input()
    first, second = g.linear("fc", x, 3), g.call("fc", x, (2, 3), "float32")
    g.output(first, second, g.linear("q", x, 2), g.linear("k", x, 2))
    merge("trap-17-called-twice-on-one-input", g, 1, refusal("shared-module", "fc"), refusal("shared-module", "fc_1"))

    g = Graph()
    x, y = g.input(), g.input("y")
    first, second = g.linear("fc", x, 3), g.call("fc", y, (2, 3), "float32")
    g.output(first, second, g.linear("q", x, 2), g.linear("k", x, 2))
    merge("trap-17-called-twice-on-two-inputs", g, 1, refusal("shared-module", "fc"))

    g = Graph()
    x = g.input()
    g.output(g.linear("fc", x, 3), g.call("fc", x, (2, 3), "float32"))
    merge("trap-17-nothing-else", g, 0, refusal("shared-module", "fc"), refusal("shared-module", "fc_1"))

    merge("trap-20-dtypes", pair(second={"dtype": "float16"}, third={}), 1, refusal("dtype", "k"))
    merge("trap-20-two-dtypes-only", pair(second={"dtype": "float64"}), 0, refusal("dtype", "k"))
    merge("bias-of-another-dtype", pair(second={"bias_dtype": "float64"}, third={}), 1, refusal("dtype", "k"))
    merge("requires-grad-weight", pair(second={"weight_grad": False}, third={}), 1, refusal("requires-grad", "k"))
    merge("requires-grad-bias", pair(second={"bias_grad": False}, third={}), 1, refusal("requires-grad", "k"))
    merge("training-mode", pair(second={"training": True}, third={}), 1, refusal("training-mode", "k"))
    merge("shape-mismatch", pair(second={"inputs": 5}, third={}), 1, refusal("shape-mismatch", "k"))
    merge("not-exactly-linear", pair(second={"type": "bitsandbytes.nn.Linear8bitLt"}, third={"type": "my.LoraLinear"}), 0,
          refusal("unsupported-type", "k"), refusal("unsupported-type", "v"))

    g = Graph()
    x = g.input()
    values = [g.linear(p, x, 3, training=p in ("b", "d", "e")) for p in "abcde"]
    g.output(*values)
    merge("largest-group-wins", g, 1, refusal("training-mode", "a"), refusal("training-mode", "c"))

    merge("input-mutated", pair(lambda g, x: g.add_(x)), 0, refusal("input-mutated", "k"))
    merge("input-mutated-third-joins-second", pair(lambda g, x: g.add_(x), third={}), 1, refusal("input-mutated", "q"))

    def through_view(g, x):
        g.add_(g.method("view", x, 4, 2, shape=(4, 2), dtype="float32"))

    merge("input-mutated-through-a-view", pair(through_view), 0, refusal("input-mutated", "k"))

    def through_slice(g, x):
        g.fn("operator.setitem", x, (..., 0), 1.5)

    merge("input-mutated-by-setitem", pair(through_slice), 0, refusal("input-mutated", "k"))

    def inplace_module(g, x):
        g.module("act", "torch.nn.ReLU", {"inplace": True})
        g.call("act", x)

    merge("input-mutated-by-inplace-module", pair(inplace_module), 0, refusal("input-mutated", "k"))
    merge("input-mutated-by-unknown-function", pair(lambda g, x: g.fn("custom.kernel", x)), 0, refusal("input-mutated", "k"))
    merge("input-mutated-by-out", pair(lambda g, x: g.fn("torch.add", x, 1.0, kwargs={"out": x})), 0,
          refusal("input-mutated", "k"))
    merge("unmutated-by-pure-function", pair(lambda g, x: g.relu(x)), 1)

    g = Graph()
    x = g.input()
    g.add_(x)
    q, k = g.linear("q", x, 3), g.linear("k", x, 3)
    g.add_(x)
    g.output(q, k)
    merge("mutated-before-and-after-only", g, 1)

    g = Graph()
    x = g.input()
    h = g.relu(x)
    view = g.method("view", h, 2, 4, shape=(2, 4), dtype="float32")
    q = g.linear("q", view, 3)
    g.add_(h)
    g.output(q, g.linear("k", view, 3))
    merge("input-mutated-below-the-view", g, 0, refusal("input-mutated", "k"))

    g = Graph()
    x = g.input()
    ids = g.input("ids", (2, 3), "int64")
    g.tensor("embedding.weight", [3, 4])
    g.module("embedding", "torch.nn.Embedding", {"num_embeddings": 3, "embedding_dim": 4}, {"weight": "embedding.weight"})
    e = g.call("embedding", ids, (2, 3, 4), "float32")
    g.output(e, g.linear("q", x, 3, weight="embedding.weight"), g.linear("k", x, 2))
    merge("tied-weight-stays-with-its-other-owner", g, 1)

    g = Graph()
    x = g.input()
    q = g.linear("q", x, 3)
    g.output(q, g.linear("k", x, 3, weight="q.weight", bias_name="q.bias"))
    merge("tied-to-each-other", g, 1)

    g = pair()
    g.tensors["k.weight"] = {"name": "k.weight", "dtype": "float32", "shape": [2, 4],
                             "recipe": {"op": "slice", "args": ["q.weight"], "axis": 0, "start": 0, "stop": 2}}
    merge("weight-is-a-view-of-the-other", g, 1)

    g = Graph()
    x = g.input()
    taken = g.linear("q-k-merged", x, 2, bias=False, name="q_k_merged", training=True)
    q, k = g.linear("q", x, 3), g.linear("k", x, 3)
    g.output(taken, q, k)
    merge("trap-39-path-and-name-taken", g, 1, refusal("training-mode", "q_k_merged"))

    g = Graph()
    x = g.input()
    q = g.linear("q", x, 3, weight=g.tensor("q-k-merged.weight", [3, 4]))
    g.output(q, g.linear("k", x, 3, weight=g.tensor(f"q-k-merged.weight@{signature('MergeLinears')[:8]}", [3, 4])))
    merge("trap-39-tensor-name-taken", g, 1)

    g = Graph()
    x = g.input()
    q, k = g.linear("q", x, 3), g.linear("k", x, 3)
    w = g.get_attr("q.weight", (3, 4))
    g.output(q, k, w, g.linear("v", x, 3))
    merge("module-read", g, 1, refusal("module-read", "q"))

    g = Graph()
    x = g.input()
    g.module("block", "custom.Block")
    whole = g.call("block", x)
    g.output(whole, g.linear("block.q", x, 3), g.linear("k", x, 3), g.linear("v", x, 3))
    merge("module-around-it-is-called", g, 1, refusal("module-read", "block_q"))

    g = Graph()
    x = g.input()
    nested(g, "part", "fc")
    whole = g.call("part", x, (2, 3))
    g.output(whole, g.linear("part.fc", x, 3, name="direct"), g.linear("q", x, 3), g.linear("k", x, 3))
    merge("called-by-a-nested-program", g, 1, refusal("shared-module", "direct"))

    g = Graph()
    x = g.input()
    g.tensor("memory.weight", [3, 4])
    g.module("memory", "torch.nn.Embedding", {"num_embeddings": 3, "embedding_dim": 4}, {"weight": "memory.weight"})
    w = g.get_attr("memory.weight", (3, 4))
    g.add_(w)
    g.output(g.linear("q", x, 3, weight="memory.weight"), g.linear("k", x, 3), g.linear("v", x, 3))
    merge("tensor-mutated", g, 1, refusal("tensor-mutated", "q"))

    g = Graph()
    x = g.input()
    g.tensor("pool.all", [6, 4])
    g.module("pool", "custom.Pool", {}, {"all": "pool.all"})
    g.tensor("q.weight", [3, 4], recipe={"op": "slice", "args": ["pool.all"], "axis": 0, "start": 0, "stop": 3})
    w = g.get_attr("pool.all", (6, 4))
    g.add_(w)
    g.output(g.linear("q", x, 3, weight="q.weight"), g.linear("k", x, 3), g.linear("v", x, 3))
    merge("tensor-mutated-through-another-that-shares-it", g, 1, refusal("tensor-mutated", "q"))

    g = pair()
    merge("twice", g, None, passes=["MergeLinears", "MergeLinears"],
          expected=[("MergeLinears", 1, []), ("MergeLinears", 0, [refusal("already-transformed", "q_k_merged")])])

    g = Graph()
    x = g.input()
    g.make_linear("q", 4, 3)
    q = g.call("q", x, (2, 3), transformations=[signature("MergeLinears")])
    g.output(q, g.linear("k", x, 3), g.linear("v", x, 3))
    merge("marked-one-is-left-out", g, 1, refusal("already-transformed", "q"))

    g = Graph()
    x = g.input()
    g.output(g.linear("q", x, 3), g.linear("k", g.relu(x), 3))
    merge("not-different-inputs", g, 0)

    def viewed(*sizes, target="view", write=False):
        """q is viewed (or reshaped) in these sizes."""
        g = Graph()
        x = g.input(shape=(2, 5, 4))
        q, k = g.linear("q", x, 6), g.linear("k", x, 6)
        view = g.method(target, q, *sizes, shape=sizes, dtype="float32")
        if write:
            g.add_(view)
        return g.output(q, k, view)

    merge("view-splits-the-last-dimension", viewed(2, 5, 2, 3), 1)
    merge("view-joins-the-last-dimension", viewed(2, 30), 0, refusal("needs-contiguous", "q"))
    merge("reshape-joins-the-last-dimension", viewed(2, 30, target="reshape"), 1)
    merge("reshape-is-written-later", viewed(2, 30, target="reshape", write=True), 0, refusal("needs-contiguous", "q"))
    merge("not-a-single-linear", branches(["q"]), 0)

    g = Graph()
    x = g.input()
    w = g.input("w", (3, 4))
    g.output(g.fn("torch.nn.functional.linear", x, w, shape=(2, 3), dtype="float32"),
             g.fn("torch.nn.functional.linear", x, w, shape=(2, 3), dtype="float32"))
    merge("not-functional", g, 0)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    g.output(g.linear("q", x, 3), g.conv("c", x, 3), g.conv("d", x, 3))
    merge("not-other-modules", g, 0)

    g = Graph()
    x = g.input()
    q = g.linear("q", x, 4)
    g.output(g.linear("k", q, 4), g.linear("v", q, 4), g.linear("u", x, 4))
    merge("group-below-a-group", g, 2)


# ---- FuseBiasInLinear --------------------------------------------------------------------------------------------------


def fuse_bias():
    def fuse(name, graph, applied, *refused, **more):
        case("FuseBiasInLinear", name, graph, applied, *refused, **more)

    def one(shape=(2, 4), outputs=3, keyword=None, dtype="float32", **more):
        g = Graph()
        x = g.input(shape=shape, dtype=dtype)
        return g.output(g.linear("encoder.fc", x, outputs, keyword=keyword, dtype=dtype, **more))

    fuse("one-linear", one(), 1)
    fuse("three-dimensions", one((2, 5, 4)), 1)
    fuse("one-dimension", one((4,)), 1)
    fuse("symbolic-batch", one(("s0", "2*s77", 4)), 1)
    fuse("trap-15-keyword-call", one(keyword="input"), 1)
    fuse("trap-23-one-output", one(outputs=1), 1)
    fuse("trap-24-float16", one(dtype="float16"), 1)
    fuse("trap-24-bfloat16", one(dtype="bfloat16"), 1)
    fuse("float64", one(dtype="float64"), 1)
    fuse("training-mode-is-fine", one(training=True), 1)
    fuse("frozen", one(weight_grad=False, bias_grad=False), 1)
    fuse("not-without-bias", one(bias=False), 0)

    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, None, None)
    g.output(g.linear("fc", x, 3, inputs=4))
    fuse("unknown-shape", g, 1)

    g = Graph()
    x, y = g.input(), g.input("y")
    g.output(g.linear("fc", x, 3), g.call("fc", y, (2, 3), "float32"), g.call("fc", x, (2, 3), "float32", keyword="input"))
    fuse("trap-25-called-three-times", g, 1)

    g = Graph()
    x = g.input()
    g.tensor("embedding.weight", [3, 4])
    g.module("embedding", "torch.nn.Embedding", {"num_embeddings": 3, "embedding_dim": 4}, {"weight": "embedding.weight"})
    e = g.call("embedding", g.input("ids", (2,), "int64"), (2, 4), "float32")
    g.output(e, g.linear("head", x, 3, weight="embedding.weight"))
    fuse("tied-weight-is-not-overwritten", g, 1)

    g = Graph()
    x = g.input()
    a = g.linear("a", x, 3)
    g.output(a, g.linear("b", x, 3, bias_name="a.bias"))
    fuse("tied-bias", g, 2)

    g = Graph()
    x = g.input()
    h = g.linear("a", x, 4)
    g.output(g.linear("b", g.relu(h), 2))
    fuse("chain", g, 2)

    g = Graph()
    x = g.input()
    h = g.linear("a", x, 3)
    g.add_(x)
    g.output(h)
    fuse("input-mutated-later", g, 1)

    g = Graph()
    x = g.input()
    names = [g.input(n, (2, 4)) for n in ("getattr_1", "getitem", "add", "ones", "cat", "getattr_2")]
    g.output(g.linear("fc", x, 3), *names)
    fuse("trap-39-names-taken", g, 1)

    fuse("dtype", one(bias_dtype="float64"), 0, refusal("dtype", "encoder_fc"))
    fuse("requires-grad", one(weight_grad=False), 0, refusal("requires-grad", "encoder_fc"))
    fuse("unsupported-type", one(type="my.LoraLinear"), 0, refusal("unsupported-type", "encoder_fc"))

    g = Graph()
    x, y = g.input(), g.input("y")
    g.make_linear("fc", 4, 3)
    g.output(g.call("fc", x, (2, 3), "float32", args=[x, y]))
    fuse("unsupported-arguments", g, 0, refusal("unsupported-arguments", "fc"))

    g = Graph()
    g.output(g.linear("fc", g.input(), 3), g.get_attr("fc.bias", (3,)))
    fuse("module-read", g, 0, refusal("module-read", "fc"))

    g = Graph()
    x = g.input()
    nested(g, "part", "fc")
    whole = g.call("part", x, (2, 3))
    g.output(whole, g.linear("part.fc", x, 3, name="direct"))
    fuse("nested-program-around-it-is-called", g, 0, refusal("module-read", "direct", "fc"))

    g = Graph()
    x = g.input()
    nested(g, "part", "fc")
    part = g.node("part", "get_attr", "part", [], {}, None, None)
    whole = g.fn("torch.ops.higher_order.wrap_with_set_grad_enabled", False, part, x)
    g.output(whole, g.linear("part.fc", x, 3, name="direct"))
    fuse("nested-call", g, 0, refusal("nested-call", "direct", "fc"))

    g = Graph()
    x = g.input()
    a = g.linear("a", x, 3)
    g.tensor("store.value", [3])
    g.module("store", "custom.Store", {}, {"value": "a.bias"})
    g.add_(g.get_attr("store.value", (3,)))
    del g.tensors["store.value"]
    g.output(a)
    fuse("tensor-mutated", g, 0, refusal("tensor-mutated", "a"))

    fuse("twice", one(), None, passes=["FuseBiasInLinear", "FuseBiasInLinear"],
         expected=[("FuseBiasInLinear", 1, []), ("FuseBiasInLinear", 0, [refusal("already-transformed", "encoder_fc")])])


# ---- ChangeTrueDivToMulByInverse ---------------------------------------------------------------------------------------


def true_div():
    def change(name, graph, applied, *refused, **more):
        case("ChangeTrueDivToMulByInverse", name, graph, applied, *refused, **more)

    def by(divisor, dtype="float32", target="operator.truediv", kwargs=None, shape=(2, 4)):
        g = Graph()
        x = g.input(shape=shape, dtype=dtype)
        return g.output(g.fn(target, x, divisor, shape=shape, dtype=dtype, name="div", kwargs=kwargs))

    change("operator", by(4.0), 1)
    change("torch-div", by(4.0, target="torch.div"), 1)
    change("torch-true-divide", by(4.0, target="torch.true_divide"), 1)

    def method(**kwargs):
        g = Graph()
        x = g.input()
        return g.output(g.method("div", *([x] if "other" in kwargs else [x, 8]), shape=(2, 4), dtype="float32", kwargs=kwargs))

    change("method-div", method(), 1)
    change("method-div-keyword", method(other=8), 1)

    g = Graph()
    x = g.input()
    g.output(g.fn("torch.div", shape=(2, 4), dtype="float32", kwargs={"input": x, "other": 5}))
    change("torch-div-keywords", g, 1)

    change("int-8", by(8), 1)
    change("trap-26-int-49", by(49), 1)
    change("trap-28-power-of-two", by(0.125), 1)
    change("trap-28-not-a-power-of-two", by(3.0), 1)
    change("negative", by(-7), 1)
    change("large-int", by(2**60), 1)
    for dtype in FLOATS:
        change(f"dtype-{dtype}", by(3, dtype), 1)
    change("rounding-mode-none", by(4, target="torch.div", kwargs={"rounding_mode": None}), 1)
    change("float16-smallest-inverse", by(16384, "float16"), 1)
    change("trap-38-chain-and-output", chain_of_divisions(), 2)

    div = lambda reason: refusal(reason, "div")
    for name, zero in (("int", 0), ("float", 0.0), ("negative", -0.0)):
        change(f"trap-27-zero-{name}", by(zero), 0, div("division-by-zero"))
    for name, number in (("inf", float("inf")), ("minus-inf", -float("inf")), ("nan", float("nan"))):
        change(f"trap-27-{name}", by(number), 0, div("non-finite-divisor"))
    change("trap-27-denormal-divisor", by(1e-310, "float64"), 0, div("inverse-out-of-range"))
    change("trap-27-denormal-in-float32", by(1e-39), 0, div("inverse-out-of-range"))
    change("trap-27-inverse-subnormal", by(3e38), 0, div("inverse-out-of-range"))
    change("trap-27-inverse-overflows", by(1.2e-38, "float16"), 0, div("inverse-out-of-range"))
    change("trap-27-float16-inverse-subnormal", by(32768, "float16"), 0, div("inverse-out-of-range"))
    change("trap-27-float16-divisor-overflows", by(70000, "float16"), 0, div("inverse-out-of-range"))
    change("bfloat16-has-the-range-of-float32", by(70000, "bfloat16"), 1)
    for mode in ("floor", "trunc"):
        change(f"trap-27-rounding-mode-{mode}", by(4, target="torch.div", kwargs={"rounding_mode": mode}), 0,
               div("rounding-mode"))
    for dtype in ("int64", "int32", "uint8", "bool"):
        g = Graph()
        x = g.input(dtype=dtype)
        g.output(g.fn("operator.truediv", x, 2, shape=(2, 4), dtype="float32", name="div"))
        change(f"trap-27-integer-{dtype}", g, 0, div("integer-tensor"))

    g = Graph()
    x = g.input()
    size = g.method("size", x, -1)
    g.output(g.fn("operator.truediv", size, 2, name="div"))
    change("numerator-is-a-size", g, 0, div("unknown-dtype"))

    g = Graph()
    x = g.input()
    shape = g.fn("builtins.getattr", x, "shape")
    last = g.fn("operator.getitem", shape, -1)
    twice = g.fn("operator.mul", last, 2)
    g.output(g.fn("operator.truediv", twice, 3, name="div"))
    change("numerator-is-arithmetic-on-sizes", g, 0, div("unknown-dtype"))

    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, (2, 4), None)
    g.output(g.fn("operator.truediv", x, 2, name="div"))
    change("unknown-dtype", g, 0, div("unknown-dtype"))

    g = Graph()
    x = g.input(shape=(1,))
    item = g.method("item", x, dtype="float32")
    g.output(g.fn("operator.truediv", item, 2, name="div"))
    change("numerator-is-a-number-with-a-dtype", g, 0, div("unknown-dtype"))

    change("complex-tensor", by(2, "complex64"), 0, div("unsupported-dtype"))
    for name, number in (("true", True), ("complex", Raw({"$complex": [1, 0.5]})), ("beyond-64-bits", Raw({"$int": "1" + "0" * 30}))):
        change(f"unsupported-constant-{name}", by(number), 0, div("unsupported-constant"))

    g = Graph()
    x, out = g.input(), g.input("out")
    g.output(g.fn("torch.div", x, 2, shape=(2, 4), dtype="float32", kwargs={"out": out}))
    change("unsupported-arguments", g, 0, div("unsupported-arguments"))

    g = Graph()
    x, y = g.input(), g.input("y")
    g.output(g.fn("operator.truediv", x, y, shape=(2, 4), dtype="float32"))
    change("not-by-a-tensor", g, 0)

    g = Graph()
    x = g.input()
    g.output(g.fn("operator.truediv", 2.0, x, shape=(2, 4), dtype="float32"))
    change("not-a-constant-by-a-tensor", g, 0)

    g = Graph()
    x = g.input()
    g.fn("operator.itruediv", x, 2.0, shape=(2, 4), dtype="float32")
    g.method("div_", x, 2.0, shape=(2, 4), dtype="float32")
    g.output(g.fn("operator.floordiv", x, 2.0, shape=(2, 4), dtype="float32"))
    change("not-in-place-nor-floor", g, 0)

    name = "ChangeTrueDivToMulByInverse"
    change("twice", by(4.0), None, passes=[name, name],
           expected=[(name, 1, []), (name, 0, [refusal("already-transformed", "div")])])


def chain_of_divisions():
    g = Graph()
    x = g.input()
    first = g.fn("operator.truediv", x, 2.0, shape=(2, 4), dtype="float32")
    second = g.fn("torch.div", first, 10, shape=(2, 4), dtype="float32")
    return g.output(first, second)


# ---- FuseBatchNorm2dInConv2d -------------------------------------------------------------------------------------------


def batch_norm_2d():
    def fold(name, graph, applied, *refused, **more):
        case("FuseBatchNorm2dInConv2d", name, graph, applied, *refused, **more)

    def pair(conv={}, norm={}, channels=2, between=None, after=None, dtype="float32", outputs=None):
        g = Graph()
        x = g.input(shape=(1, channels, 5, 5), dtype=dtype)
        c = g.conv("conv", x, conv.pop("outputs", 3), dtype=dtype, **conv)
        if between:
            c = between(g, c)
        b = g.norm("bn", c, dtype=dtype, **norm)
        return g.output(*(outputs(g, c, b) if outputs else [b]))

    both = lambda reason: refusal(reason, "conv", "bn")
    fold("with-bias", pair(), 1)
    fold("without-bias", pair({"bias": False}), 1)
    fold("trap-06-not-affine", pair(norm={"affine": False}), 1)
    fold("trap-06-not-affine-without-bias", pair({"bias": False}, {"affine": False}), 1)
    for dtype in ("float16", "bfloat16", "float64"):
        fold(f"trap-12-{dtype}-without-bias", pair({"bias": False}, dtype=dtype), 1)
    fold("trap-12-float16-conv-float32-norm", mixed_norm(), 1)
    fold("depthwise", pair({"groups": 2, "outputs": 4}), 1)
    fold("stride-padding-dilation", strided(), 1)
    fold("eps-missing", pair(norm={"eps": None}), 1)
    fold("eps-is-an-int", pair(norm={"eps": 1}), 1)
    fold("trap-15-keyword-calls", pair({"keyword": "input"}, {"keyword": "input"}), 1)
    fold("norm-is-an-output", pair(), 1)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    for i in range(3):
        x = g.relu(g.norm(f"layers.{i}.bn", g.conv(f"layers.{i}.conv", x, 2, bias=i == 1)))
    fold("three-in-a-row", g.output(x), 3)

    g = Graph()
    x, y = g.input(shape=(1, 2, 5, 5)), g.input("y", (1, 2, 5, 5))
    a = g.conv("conv", x, 3)
    b = g.norm("bn", a)
    c = g.call("conv", y, (1, 3, 5, 5), "float32")
    g.output(b, g.call("bn", c))
    fold("trap-02-pair-traced-twice", g, 1)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a = g.conv("conv", x, 2)
    b = g.norm("bn", a)
    c = g.call("conv", b, (1, 2, 5, 5), "float32")
    g.output(g.call("bn", c))
    fold("trap-02-pair-traced-twice-in-a-row", g, 1)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a = g.conv("conv", x, 3)
    b = g.norm("bn", a)
    g.output(b, g.conv("other", x, 3, weight="conv.weight"))
    fold("trap-03-shared-weight", g, 1)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a, c = g.conv("a", x, 3), g.conv("c", x, 3, weight="a.weight")
    g.output(g.norm("bn_a", a), g.norm("bn_c", c))
    fold("trap-03-shared-weight-both-folded", g, 2)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a = g.conv("conv", x, 3)
    g.output(g.norm("bn", a), g.call("conv", g.relu(x), (1, 3, 5, 5), "float32"))
    fold("trap-01-conv-called-twice", g, 0, refusal("shared-module", "conv", "conv_1", "bn"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    a, c = g.conv("a", x, 3), g.conv("c", x, 3)
    g.output(g.norm("bn", a), g.call("bn", c))
    fold("one-norm-after-two-convs", g, 0, refusal("shared-module", "a", "bn", "bn_1"))

    g = Graph()
    x = g.input(shape=(1, 3, 5, 5))
    a = g.conv("conv", x, 3)
    g.output(g.norm("bn", a), g.call("bn", x))
    fold("norm-called-without-conv-too", g, 0, refusal("shared-module", "conv", "bn", "bn_1"))

    g = Graph()
    x = g.input(shape=(1, 3, 5, 5))
    early = g.norm("bn", x)
    a = g.conv("conv", early, 3)
    g.output(g.call("bn", a))
    fold("norm-called-without-conv-before", g, 0, refusal("shared-module", "conv", "bn", "bn_1"))

    fold("trap-04-norm-in-training", pair(norm={"training": True}), 0, both("training-mode"))
    fold("trap-04-conv-in-training", pair({"training": True}), 0, both("training-mode"))
    fold("trap-05-no-statistics", pair(norm={"mean": False, "var": False}), 0, both("no-running-statistics"))
    fold("trap-38-between-is-an-output", pair(outputs=lambda g, c, b: [b, c]), 0, both("graph-output"))
    fold("other-users", pair(outputs=lambda g, c, b: [b, g.relu(c)]), 0, both("shared-output"))
    fold("two-norms-on-one-conv", pair(outputs=lambda g, c, b: [b, g.norm("bn2", c)]), 0, both("shared-output"),
         refusal("shared-output", "conv", "bn2"))
    fold("one-norm-twice-on-one-call", pair(outputs=lambda g, c, b: [b, g.call("bn", c)]), 0,
         refusal("shared-output", "conv", "bn", "bn_1"))
    fold("channel-mismatch", pair(norm={"features": 4}), 0, both("channel-mismatch"))
    fold("unsupported-dtype", pair(dtype="int8"), 0, both("unsupported-dtype"))
    fold("module-read-conv", pair(outputs=lambda g, c, b: [b, g.get_attr("conv.weight", (3, 2, 3, 3))]), 0,
         both("module-read"))
    fold("module-read-norm", pair(outputs=lambda g, c, b: [b, g.get_attr("bn.running_mean", (3,))]), 0, both("module-read"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    nested(g, "part", "conv")
    whole = g.call("part", x, (1, 3, 5, 5))
    c = g.conv("part.conv", x, 3, name="conv")
    g.output(whole, g.norm("bn", c))
    fold("called-by-a-nested-program", g, 0, refusal("shared-module", "conv", "fc", "bn"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    c = g.conv("conv", x, 3)
    b = g.norm("bn", c)
    g.module("store", "custom.Store", {}, {"value": "bn.running_mean"})
    g.add_(g.get_attr("store.value", (3,)))
    g.output(b)
    fold("tensor-mutated", g, 0, both("tensor-mutated"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    c = g.conv("conv", x, 3)
    b = g.norm("bn", c)
    d = g.call("conv", x, (1, 3, 5, 5), "float32")
    g.output(b, g.call("bn", d, args=[d, True]))
    fold("unsupported-arguments", g, 0, refusal("unsupported-arguments", "conv", "conv_1", "bn", "bn_1"))

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    c = g.conv("conv", x, 3)
    b = g.norm("bn", c)
    g.add_(x)
    g.output(b)
    fold("input-mutated-later", g, 1)

    g = Graph()
    x, w = g.input(shape=(1, 2, 5, 5)), g.input("w", (3, 2, 3, 3))
    c = g.fn("torch.nn.functional.conv2d", x, w, shape=(1, 3, 2, 2), dtype="float32", kwargs={"stride": 2})
    g.output(g.norm("bn", c))
    fold("trap-14-not-functional-with-keywords", g, 0)

    fold("not-through-relu", pair(between=lambda g, c: g.relu(c)), 0)

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    g.output(g.conv("conv", g.norm("bn", x), 3))
    fold("trap-10-not-norm-before-a-padded-conv", g, 0)
    fold("trap-11-not-transposed", pair({"type": "torch.nn.ConvTranspose2d"}), 0)

    g = Graph()
    x = g.input(shape=(1, 2, 5))
    g.output(g.norm("bn", g.conv("conv", x, 3, type="torch.nn.Conv1d", spatial=1), spatial=1))
    fold("not-one-dimensional", g, 0)

    name = "FuseBatchNorm2dInConv2d"
    fold("twice", pair(), None, passes=[name, name], expected=[(name, 1, []), (name, 0, [refusal("already-transformed", "conv")])])

    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    c = g.call("conv", x, (1, 3, 5, 5), "float32", transformations=["f6a0cf7c3b7a5cfd4a3f1ab10dc0c2b5"])
    g.make_conv("conv", 2, 3)
    g.output(g.norm("bn", c))
    fold("marked-by-another-pass", g, 1)


def strided():
    g = Graph()
    x = g.input(shape=(1, 2, 5, 5))
    g.make_conv("conv", 2, 3, config={"stride": (2, 2), "padding": (0, 2), "dilation": (2, 1), "padding_mode": "reflect"})
    return g.output(g.norm("bn", g.call("conv", x, (1, 3, 1, 4), "float32")))


def mixed_norm():
    g = Graph()
    x = g.input(shape=(1, 2, 5, 5), dtype="float16")
    c = g.conv("conv", x, 3, dtype="float16", bias=False)
    return g.output(g.norm("bn", c))


# ---- FuseBatchNorm1dInLinear -------------------------------------------------------------------------------------------


def batch_norm_1d():
    def fold(name, graph, applied, *refused, **more):
        case("FuseBatchNorm1dInLinear", name, graph, applied, *refused, **more)

    def before(linear={}, norm={}, shape=(2, 4), outputs=None, dtype="float32"):
        """Linear, then BatchNorm1d."""
        g = Graph()
        h = g.linear("fc", g.input(shape=shape, dtype=dtype), 3, dtype=dtype, **linear)
        b = g.norm("bn", h, spatial=1, dtype=dtype, **norm)
        return g.output(*(outputs(g, h, b) if outputs else [b]))

    def after(linear={}, norm={}, shape=(2, 4), between=None, outputs=None, dtype="float32"):
        """BatchNorm1d, then Linear."""
        g = Graph()
        x = g.input(shape=shape, dtype=dtype)
        b = g.norm("bn", x, spatial=1, dtype=dtype, **norm)
        if between:
            between(g, x, b)
        y = g.linear("fc", b, 3, dtype=dtype, **linear)
        return g.output(*(outputs(g, b, y) if outputs else [y]))

    both = lambda reason: refusal(reason, "fc", "bn")
    fold("linear-then-norm", before(), 1)
    fold("linear-then-norm-without-bias", before({"bias": False}), 1)
    fold("norm-then-linear", after(), 1)
    fold("norm-then-linear-without-bias", after({"bias": False}), 1)
    fold("trap-07-not-affine", before(norm={"affine": False}), 1)
    fold("trap-07-not-affine-without-bias", before({"bias": False}, {"affine": False}), 1)
    fold("trap-07-not-affine-then-linear", after(norm={"affine": False}), 1)
    fold("trap-07-not-affine-then-linear-without-bias", after({"bias": False}, {"affine": False}), 1)
    fold("trap-12-float16-without-bias", before({"bias": False}, dtype="float16"), 1)
    fold("trap-12-bfloat16-then-linear-without-bias", after({"bias": False}, dtype="bfloat16"), 1)
    fold("trap-15-keyword-calls", before({"keyword": "input"}, {"keyword": "input"}), 1)
    fold("symbolic-batch", before(shape=("s0", 4)), 1)
    fold("one-feature-each", after({}, {}, shape=(2, 1)), 1)

    g = Graph()
    x = g.input()
    g.output(g.norm("bn2", g.linear("fc", g.norm("bn1", x, spatial=1), 3), spatial=1))
    fold("norm-on-both-sides", g, 2)

    g = Graph()
    x = g.input()
    g.output(g.linear("b", g.norm("bn", g.linear("a", x, 3), spatial=1), 2))
    fold("between-two-linears", g, 1)

    g = Graph()
    x, y = g.input(), g.input("y")
    a = g.linear("fc", x, 3)
    b = g.norm("bn", a, spatial=1)
    c = g.call("fc", y, (2, 3), "float32")
    g.output(b, g.call("bn", c))
    fold("trap-02-pair-traced-twice", g, 1)

    g = Graph()
    x = g.input()
    a = g.linear("fc", x, 3)
    g.output(g.norm("bn", a, spatial=1), g.linear("other", x, 3, weight="fc.weight"))
    fold("trap-03-tied-weight", g, 1)

    fold("trap-08-three-dimensions", before(norm={"features": 3}, shape=(2, 5, 4)), 0, refusal("not-2d", "bn"))
    fold("trap-08-channels-differ", before(norm={"features": 5}, shape=(2, 5, 4)), 0, both("channel-mismatch"))
    fold("trap-09-square", before(norm={"features": 3}, shape=(2, 3, 4)), 0, refusal("not-2d", "bn"))
    fold("trap-09-square-then-linear", after(norm={"features": 4}, shape=(2, 4, 4)), 0, refusal("not-2d", "bn"))

    g = Graph()
    x = g.node("x", "placeholder", "x", [], {}, None, None)
    h = g.linear("fc", x, 3, inputs=4, meta=False)
    g.make_norm("bn", 3, 1)
    g.output(g.call("bn", h))
    fold("trap-09-shape-unknown", g, 0, refusal("unknown-shape", "bn"))

    fold("trap-04-norm-in-training", before(norm={"training": True}), 0, both("training-mode"))
    fold("trap-04-linear-in-training", after({"training": True}), 0, both("training-mode"))
    fold("trap-05-no-statistics", before(norm={"mean": False, "var": False}), 0, both("no-running-statistics"))
    fold("trap-38-between-is-an-output", before(outputs=lambda g, h, b: [h, b]), 0, both("graph-output"))
    fold("trap-38-between-is-an-output-then-linear", after(outputs=lambda g, b, y: [b, y]), 0, both("graph-output"))
    fold("other-users", before(outputs=lambda g, h, b: [g.relu(h), b]), 0, both("shared-output"))
    fold("norm-feeds-two-linears", after(outputs=lambda g, b, y: [y, g.linear("fc2", b, 2)]), 0, both("shared-output"))
    fold("trap-01-linear-called-twice", before(outputs=lambda g, h, b: [b, g.call("fc", N("x"), (2, 3), "float32")]), 0,
         refusal("shared-module", "fc", "fc_1", "bn"))
    fold("channel-mismatch", before(norm={"features": 5}), 0, both("channel-mismatch"))
    fold("trap-40-scale-does-not-match-the-input", after({"inputs": 5}), 0, both("channel-mismatch"))
    fold("unsupported-dtype", before(dtype="int8"), 0, both("unsupported-dtype"))
    fold("module-read", after(outputs=lambda g, b, y: [y, g.get_attr("fc.weight", (3, 4))]), 0, both("module-read"))
    fold("input-mutated", after(between=lambda g, x, b: g.add_(x)), 0, both("input-mutated"))
    fold("input-mutated-later", after(outputs=lambda g, b, y: [y, g.add_(N("x"))]), 1)
    fold("linear-then-norm-input-mutated-between", mutated_between(), 1)
    fold("not-exactly-linear", before({"type": "my.LoraLinear"}), 0)
    fold("not-a-norm-alone", alone(), 0)

    g = Graph()
    h = g.linear("fc", g.input(), 3)
    b = g.norm("bn", h, spatial=1)
    g.module("store", "custom.Store", {}, {"value": "fc.weight"})
    g.add_(g.get_attr("store.value", (3, 4)))
    g.output(b)
    fold("tensor-mutated", g, 0, both("tensor-mutated"))

    name = "FuseBatchNorm1dInLinear"
    fold("twice", before(), None, passes=[name, name], expected=[(name, 1, []), (name, 0, [refusal("already-transformed", "fc")])])


def mutated_between():
    g = Graph()
    x = g.input()
    h = g.linear("fc", x, 3)
    g.add_(x)
    return g.output(g.norm("bn", h, spatial=1))


def alone():
    g = Graph()
    return g.output(g.norm("bn", g.input(), spatial=1))


# ---- lists of passes ---------------------------------------------------------------------------------------------------


def compositions():
    def attention():
        g = Graph()
        x = g.input(shape=(2, 3, 4))
        q, k, v = (g.linear(f"attention.{n}", x, 4) for n in ("query", "key", "value"))
        s = g.fn("torch.matmul", q, g.method("transpose", k, -1, -2, shape=(2, 4, 3), dtype="float32"), shape=(2, 3, 3),
                 dtype="float32")
        d = g.fn("operator.truediv", s, 2.0, shape=(2, 3, 3), dtype="float32")
        return g.output(g.fn("torch.matmul", d, v, shape=(2, 3, 4), dtype="float32"))

    div, merge, fuse = "ChangeTrueDivToMulByInverse", "MergeLinears", "FuseBiasInLinear"
    case("Composition", "three-passes", attention(), None, passes=[div, merge, fuse],
         expected=[(div, 1, []), (merge, 1, []), (fuse, 1, [])])
    case("Composition", "nested-lists", attention(), None, passes=[[div], [[merge, [fuse]]]],
         expected=[(div, 1, []), (merge, 1, []), (fuse, 1, [])])
    case("Composition", "trap-22-merge-then-deep-copy", attention(), None, passes=[merge, "DeepCopy"],
         expected=[(merge, 1, []), ("DeepCopy", 0, [])])
    case("Composition", "fuse-then-merge", attention(), None, passes=[fuse, merge],
         expected=[(fuse, 3, []), (merge, 0, [])])
    case("Composition", "repeated", attention(), None, passes=[merge, fuse, merge, fuse],
         expected=[(merge, 1, []), (fuse, 1, []), (merge, 0, [refusal("already-transformed", "attention_query_key_value_merged")]),
                   (fuse, 0, [refusal("already-transformed", "attention_query_key_value_merged")])])
    case("DeepCopy", "nothing-to-do", attention(), 0)
    case("LintAndRecompile", "looks-only", attention(), 0)
    case("LintAndRecompile", "after-a-pass", attention(), None, passes=[merge, "LintAndRecompile"],
         expected=[(merge, 1, []), ("LintAndRecompile", 0, [])])

    g = Graph()
    x = g.input()
    h = g.linear("fc", x, 3)
    b = g.norm("bn", h, spatial=1)
    fold = "FuseBatchNorm1dInLinear"
    g.output(b, g.linear("other", x, 2))
    case("Composition", "fold-then-merge-then-fuse", g, None, passes=[fold, merge, fuse],
         expected=[(fold, 1, []), (merge, 1, []), (fuse, 1, [])])


def write(_):
    merge_linears()
    fuse_bias()
    true_div()
    batch_norm_2d()
    batch_norm_1d()
    compositions()
