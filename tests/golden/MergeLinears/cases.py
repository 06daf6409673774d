"""MergeLinears. The number in a name (trap-19-…) is that of a known failure of other optimisers."""
from common import FLOATS, nested, signature
from make_cases import Graph, N, case, refusal


def cases():
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
    for dtype in ("int8", "uint8", "bool", "complex64", "float8_e4m3fn", "float16"):
        merge(f"trap-19-mixed-bias-{dtype}", pair(first={"dtype": dtype}, second={"dtype": dtype, "bias": False}), 1)
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

    merge("not-exactly-linear-between-two-that-are", pair(second={"type": "my.LoraLinear"}, third={}), 1,
          refusal("unsupported-type", "k"))

    g = Graph()
    x = g.input()
    values = [g.linear(p, x, 3, training=p in ("b", "d", "e")) for p in "abcde"]
    g.output(*values)
    merge("largest-group-wins", g, 1, refusal("training-mode", "a"), refusal("training-mode", "c"))

    for target, *arguments in (("set_", N("y")), ("resize_", 1, 2, 4), ("as_strided_", (1, 2, 4), (8, 4, 1))):
        g = Graph()
        x, _ = g.input(), g.input("y", (1, 2, 4))
        g.method(target, x, *arguments)
        g.make_linear("q", 4, 3)
        g.make_linear("k", 4, 3)
        g.output(*[g.call(path, x, (1, 2, 3), "float32") for path in "qk"])
        merge(f"input-reshaped-by-{target}", g, 1)

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
    for target in ("torch._C._set_grad_enabled", "torch.amp.autocast_mode._enter_autocast"):
        merge(f"mode-switched-by-{target.split('.')[-1]}", pair(lambda g, x: g.fn(target, False)), 0,
              refusal("mode-switched", "k"))
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
