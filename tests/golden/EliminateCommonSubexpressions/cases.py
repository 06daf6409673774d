"""EliminateCommonSubexpressions, in both dialects, and presets. The number in a name (trap-37-…) is that of a known failure of
other optimisers."""
from make_cases import Graph, case, refusal

SHAPE = {"shape": (2, 4), "dtype": "float32"}


def cases():
    common()
    uncommon()
    presets()


def same(name, graph, applied, *refused):
    case("EliminateCommonSubexpressions", name, graph, applied, *refused)


def twice(make, again=None, middle=None):
    """x, the call twice, and the sum of exp of both as the result."""
    g = Graph()
    x = g.relu(g.input())
    a = make(g, x)
    if middle:
        middle(g, x, a)
    b = (again or make)(g, x)
    ends = [g.fn("torch.exp", a, name="e"), g.fn("torch.sin", b, name="s")]
    return g.output(g.fn("operator.add", *ends))


def common():
    tanh = lambda g, x: g.fn("torch.tanh", x, name="y", **SHAPE)
    same("function", twice(tanh), 1)
    same("method", twice(lambda g, x: g.method("tanh", x, name="y", **SHAPE)), 1)
    same("aten", twice(lambda g, x: g.fn("torch.ops.aten.sum.dim_IntList", x, [1], True, name="y", shape=(2, 1),
                                         dtype="float32")), 1)
    same("keywords", twice(lambda g, x: g.fn("torch.sub", x, name="y", kwargs={"other": 2}, **SHAPE)), 1)
    same("chain", twice(lambda g, x: g.fn("torch.sqrt", g.fn("torch.abs", x, **SHAPE), name="y", **SHAPE)), 2)
    same("in-a-list",
         twice(lambda g, x: g.fn("torch.cat", [x, g.fn("torch.abs", x, **SHAPE)], name="y", shape=(4, 4), dtype="float32")), 2)
    same("size", twice(lambda g, x: g.method("size", x, 0, name="y")), 1)
    same("factory", twice(lambda g, x: g.fn("torch.ones", 2, 4, name="y", **SHAPE)), 1)
    same("view", twice(lambda g, x: g.method("view", x, 8, name="y", shape=(8,), dtype="float32")), 1)

    def call(g, x):
        if "fc" not in g.modules:
            g.make_linear("fc", 4, 4)
        return g.call("fc", x, (2, 4), name="y")
    same("module", twice(call), 1)

    def norm(training):
        def make(g, x):
            if "bn" not in g.modules:
                g.make_norm("bn", 4, 1, training=training)
            return g.call("bn", x, name="y")
        return make
    same("batch-norm-in-eval-mode", twice(norm(False)), 1)
    same("trap-37-batch-norm-in-training", twice(norm(True)), 0, refusal("mutates", "y", "y_1"))

    def weight(g, x):
        if "w" not in g.tensors:
            g.module("", "torch.nn.Module", parameters={"w": g.tensor("w", [4, 4])})
        return g.fn("torch.ops.aten.linear.default", x, g.get_attr("w", (4, 4)), name="y", **SHAPE)
    same("aten-linear", twice(weight), 2)
    same("aten-weight-alone",
         twice(weight, lambda g, x: g.fn("torch.ops.aten.mm.default", x, g.get_attr("w", (4, 4)), name="y", **SHAPE)), 1)

    g = Graph()
    x = g.relu(g.input())
    many = [tanh(g, x) for _ in range(5)]
    same("five", g.output(g.fn("torch.cat", many, shape=(10, 4), dtype="float32")), 4)

    g = Graph()
    x = g.relu(g.input())
    same("one-is-a-result", g.output(tanh(g, x), g.fn("torch.exp", tanh(g, x), **SHAPE)), 1)


def uncommon():
    fn = lambda target, *more, **kwargs: lambda g, x: g.fn(target, x, *more, name="y", kwargs=kwargs, **SHAPE)
    tanh = fn("torch.tanh")
    pair = lambda reason: refusal(reason, "y", "y_1")
    same("not-other-arguments", twice(fn("operator.add", 1), fn("operator.add", 2)), 0)
    same("not-int-and-float", twice(fn("operator.add", 1), fn("operator.add", 1.0)), 0)
    same("not-int-and-true", twice(fn("operator.add", 1), fn("operator.add", True)), 0)
    same("not-zero-and-minus-zero", twice(fn("operator.add", 0.0), fn("operator.add", -0.0)), 0)
    same("not-other-keywords", twice(fn("torch.sub", other=2), fn("torch.sub", other=3)), 0)
    same("not-other-order", twice(fn("operator.sub", 1), lambda g, x: g.fn("operator.sub", 1, x, name="y", **SHAPE)), 0)
    same("not-other-inputs", twice(tanh, lambda g, x: g.fn("torch.tanh", g.input("z"), name="y", **SHAPE)), 0)
    same("not-other-modules", twice(lambda g, x: g.linear("a", x, 4), lambda g, x: g.linear("b", x, 4)), 0)

    random = lambda target, *args: lambda g, x: g.fn(target, *args, name="y", **SHAPE)
    same("trap-37-rand", twice(random("torch.rand", 2, 4)), 0, pair("random"))
    same("trap-37-aten-rand", twice(random("torch.ops.aten.rand.default", [2, 4])), 0, pair("random"))
    same("trap-37-empty", twice(random("torch.empty", 2, 4)), 0, pair("random"))
    same("trap-37-dropout", twice(fn("torch.nn.functional.dropout", 0.5, True)), 0, pair("random"))
    same("trap-37-in-place", twice(lambda g, x: g.method("add_", x, 1, name="y", **SHAPE)), 0, pair("mutates"))
    same("trap-37-unknown-function", twice(fn("my.function")), 0, pair("unknown-operator"))
    same("assertions", twice(tanh, middle=lambda g, x, a: [g.fn("torch._assert", True, "no", name="check") for _ in range(2)]),
         1,
         refusal("effect", "check", "check_1"))

    same("input-written-between", twice(tanh, middle=lambda g, x, a: g.add_(x)), 0, pair("input-mutated"))
    same("input-written-through-a-view", twice(tanh, middle=lambda g, x, a: g.add_(
        g.method("view", x, 8, shape=(8,), dtype="float32"))), 0, pair("input-mutated"))
    same("aten-input-written-between", twice(tanh, middle=lambda g, x, a: g.fn("torch.ops.aten.fill_.Scalar", x, 0, **SHAPE)),
         0,
         pair("input-mutated"))
    same("input-given-to-an-unknown-function", twice(tanh, middle=lambda g, x, a: g.fn("my.function", x)), 0,
         pair("input-mutated"))
    same("first-written-between", twice(tanh, middle=lambda g, x, a: g.add_(a)), 0, pair("mutated"))
    same("mode-switched-between",
         twice(tanh, middle=lambda g, x, a: g.fn("torch.amp.autocast_mode._enter_autocast", "cpu", True)), 0,
         pair("mode-switched"))
    same("vmap-between",
         twice(tanh, middle=lambda g, x, a: g.fn("torch._functorch.predispatch._vmap_increment_nesting", 3, "error")), 0,
         pair("mode-switched"))

    g = Graph()
    x = g.relu(g.input())
    a, b = tanh(g, x), tanh(g, x)
    g.add_(b)
    same("second-written-later", g.output(g.fn("operator.add", a, b, **SHAPE)), 0, pair("mutated"))

    g = Graph()
    x = g.relu(g.input())
    g.add_(x)
    same("input-written-before-only", g.output(g.fn("operator.add", tanh(g, x), tanh(g, x), **SHAPE)), 1)

    g = Graph()
    x = g.relu(g.input())
    same("two-results", g.output(tanh(g, x), tanh(g, x)), 0, pair("graph-output"))

    g = Graph()
    x = g.relu(g.input())
    views = [g.method("view", tanh(g, x), 8, shape=(8,), dtype="float32") for _ in range(2)]
    same("two-results-through-views", g.output(*views), 0, pair("graph-output"))

    def norms(results):
        """Two norms that give tuples, of which the first values are read."""
        g = Graph()
        x, gives = g.input(), {"shape": (2, 4), "dtype": "float32"}
        tuples = [g.fn("torch.ops.aten.native_layer_norm.default", x, [4], None, None, 1e-6, name="norms") for _ in range(2)]
        items = [g.fn("operator.getitem", tuple, 0, name="item", **gives) for tuple in tuples]
        return g.output(*results(g, items))

    same("items-of-a-tuple", norms(lambda g, items: [tanh(g, items[0]), items[1]]), 2)
    same("two-results-of-tuples", norms(lambda g, items: items), 0, refusal("graph-output", "norms", "norms_1"))

    g = Graph()
    x = g.input()
    sizes = [g.method("size", x, 0) for _ in range(2)]
    same("two-results-that-are-numbers", g.output(*sizes), 1)

    g = Graph()
    x = g.relu(g.input())
    many = []
    for _ in range(3):
        many += [tanh(g, x), tanh(g, x)]
        g.add_(x)
    same("between-writes", g.output(g.fn("torch.cat", many)), 3, refusal("input-mutated", "y", "y_2"),
         refusal("mutates", "add_", "add__1"), refusal("input-mutated", "y_2", "y_4"), refusal("mutates", "add_", "add__2"))

    def weight_written(g, x):
        return g.call("fc", x, (2, 4), name="y")
    g = Graph()
    x = g.relu(g.input())
    g.make_linear("fc", 4, 4)
    a = weight_written(g, x)
    g.add_(g.get_attr("fc.weight", (4, 4)))
    same("weight-written-between", g.output(g.fn("operator.add", a, weight_written(g, x), **SHAPE)), 0, pair("input-mutated"))

    g = Graph()
    x = g.relu(g.input())
    attention = [g.node("y", "call_module", "mha", [x, x, x], {}, None, None) for _ in range(2)]
    g.module("mha", "torch.nn.MultiheadAttention", {"embed_dim": 4, "num_heads": 1, "bias": False})
    same("module-with-modules-inside", g.output(g.fn("my.function", *attention)), 0, pair("unknown-operator"))

    g = Graph()
    x = g.relu(g.input())
    a = g.fn("torch.tanh", x, name="y", **SHAPE)
    b = g.fn("torch.tanh", x, name="y", shape=("u0", 4), dtype="float32")
    same("not-other-recorded-shapes", g.output(g.fn("my.function", a, b)), 0)


# ---- presets


def presets():
    cleanup = ["RemoveNoOps", "EliminateCommonSubexpressions", "EliminateDeadCode"]

    g = Graph()
    x = g.relu(g.input())
    g.module("drop", "torch.nn.Dropout", {"p": 0.1})
    a = g.fn("torch.tanh", g.call("drop", x), name="a", **SHAPE)
    b = g.fn("torch.tanh", g.call("drop", x), name="b", **SHAPE)
    g.fn("torch.exp", b, **SHAPE)
    case("Composition", "cleanup", g.output(g.fn("operator.add", a, b, **SHAPE)), None, passes=["cleanup"],
         expected=list(zip(cleanup, [2, 1, 1], [[]] * 3)))

    g = Graph()
    g.module("", "torch.nn.Module", buffers={"c": g.tensor("c", [2, 4])})
    lifted = g.fn("torch.ops.aten.lift_fresh_copy.default", g.get_attr("c", (2, 4)), name="lifted", **SHAPE)
    detached = g.fn("torch.ops.aten.detach_.default", lifted, **SHAPE)
    graph = g.output(g.fn("torch.ops.aten.add.Tensor", g.input(), detached, **SHAPE))
    case("Composition", "cleanup-in-two-rounds", graph, None, passes=["cleanup"],
         expected=list(zip(cleanup * 2, [1, 0, 0, 1, 0, 0], [[refusal("mutated", "lifted")]] + [[]] * 5)))

    g = Graph()
    case("Composition", "cleanup-of-nothing", g.output(g.relu(g.input())), None, passes=[["cleanup"], {"name": "cleanup"}],
         expected=[(name, 0, []) for name in cleanup * 2])
