"""RecordTypes: what follows from weights and operators, and what is assumed of inputs."""
from make_cases import Graph, Raw, case

DIVIDE = "ChangeTrueDivToMulByInverse"


def record(name, graph, applied, **params):
    case("RecordTypes", name, graph, applied, passes=[{"name": "RecordTypes", "params": params}])


def untyped(name="x"):
    """A graph whose tracer recorded nothing, and its input."""
    g = Graph()
    return g, g.input(name, shape=None, dtype=None)


def scores(g, x, dtype="float32"):
    """A division of a product of two Linears, as attention has it."""
    g.make_linear("q", 4, 4, dtype=dtype)
    g.make_linear("k", 4, 4, dtype=dtype)
    q, k = (g.call(path, x, None, None) for path in ("q", "k"))
    product = g.fn("operator.matmul", g.method("view", q, -1, 2, 4), g.method("transpose", k, -1, -2))
    return g.fn("operator.truediv", product, 7.0)


def embedded(g, ids):
    g.module("embedding", "torch.nn.Embedding", {"num_embeddings": 3, "embedding_dim": 4},
             {"weight": g.tensor("embedding.weight", [3, 4])})
    return g.call("embedding", ids, None, None)


def reshaped():
    """What is given another shape in place, under another name or through out=: nothing is recorded of what reads it."""
    def reading(name, make, shape=(4, 1)):
        g = Graph()
        x = g.input(shape=shape)
        make(g, x)
        record(name, g.output(g.method("abs", x, shape=None, dtype=None)), 0)

    reading("not-of-what-is-reshaped-as-contiguous",
            lambda g, x: g.method("t_", g.method("contiguous", x, shape=(4, 1), dtype="float32"), shape=(1, 4),
                                  dtype="float32"))
    reading("not-of-what-is-given-as-out", lambda g, x: g.fn("torch.sum", g.input("y", (3, 5)), 0, shape=(5,), dtype="float32",
                                                             kwargs={"out": Raw({"$node": "x"})}))
    g = Graph()
    x = g.input(shape=(4,))
    g.method("unsqueeze_", x, 0, shape=(1, 4), dtype="float32")
    part = g.fn("operator.getitem", g.fn("torch.functional.split", x, 2, shape=None, dtype=None), 0, shape=None, dtype=None)
    record("not-of-parts-of-what-is-reshaped", g.output(g.method("abs", part, shape=None, dtype=None)), 0)
    g = Graph()
    x = g.input(shape=(4,))
    same = g.method("float", x, shape=(4,), dtype="float32")
    g.method("unsqueeze_", x, 0, shape=(1, 4), dtype="float32")
    record("not-of-what-may-be-what-is-reshaped", g.output(g.method("abs", same, shape=None, dtype=None)), 0)


def cases():
    reshaped()
    g, x = untyped()
    record("linear", g.output(scores(g, x)), 6)
    g, x = untyped()
    record("bfloat16-weights", g.output(scores(g, x, "bfloat16")), 6)
    g = Graph()
    g.output(g.fn("torch.ops.aten.to.dtype", g.input(dtype="float64"), 0, name="to"))
    record("a-dtype-that-is-a-number", g, 1)
    g, x = untyped()
    record("nothing-follows", g.output(g.fn("operator.truediv", x, 3.0)), 0)
    g, x = untyped()
    record("assumed-input", g.output(g.fn("operator.truediv", x, 3.0)), 2, dtype="float16")
    g, ids = untyped("ids")
    record("indices-are-not-assumed", g.output(g.fn("operator.truediv", embedded(g, g.method("view", ids, -1)), 3.0)), 2,
           dtype="float32")
    g, x = untyped()
    scale = g.node("scale", "placeholder", "scale", [2.0], {}, None, None)
    record("not-of-a-default", g.output(g.fn("operator.mul", x, scale)), 1, dtype="float32")
    g = Graph()
    x = g.input(dtype="float64")
    record("what-is-recorded-stays", g.output(g.fn("operator.truediv", x, 3.0)), 1, dtype="float32")
    g = Graph()
    x = g.input(shape=(2, 4))
    g.make_linear("q", 4, 3)
    record("sizes-follow", g.output(g.method("flatten", g.call("q", x, None, None))), 2)
    g, x = untyped()
    g.fn("torch.amp.autocast_mode._enter_autocast", "cpu", name="mode")
    record("not-behind-a-switch-of-a-mode", g.output(scores(g, x)), 0)
    g, x = untyped()
    case("RecordTypes", "then-a-division", g.output(scores(g, x)), None, passes=["RecordTypes", DIVIDE],
         expected=[("RecordTypes", 6, []), (DIVIDE, 1, [])])
