"""FuseBiasInLinear. The number in a name (trap-19-…) is that of a known failure of other optimisers."""
from common import nested
from make_cases import Graph, case, refusal


def cases():
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

    g = Graph()  # the ones have the sizes that x has when the Linear reads it, and not those when it was made
    x = g.input()
    g.method("unsqueeze_", x, 0, shape=(1, 2, 4), dtype="float32")
    g.make_linear("fc", 4, 3)
    g.output(g.call("fc", x, (1, 2, 3), "float32"))
    fuse("input-of-other-sizes-by-then", g, 1)

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
