"""EliminateDeadCode, in both dialects. The number in a name (trap-37-…) is that of a known failure of other optimisers."""
from make_cases import Graph, case, refusal

SHAPE = {"shape": (2, 4), "dtype": "float32"}


def cases():
    dead_code()
    kept_code()
    dead_modules()


def eliminate(name, graph, applied, *refused):
    case("EliminateDeadCode", name, graph, applied, *refused)


def beside(make):
    """x, relu(x) as the result, and something that the result does not need."""
    g = Graph()
    x = g.input()
    y = g.relu(x)
    make(g, x)
    return g.output(y)


def dead_code():
    tanh = lambda g, x: g.fn("torch.tanh", x, **SHAPE)
    eliminate("one-node", beside(tanh), 1)
    eliminate("chain", beside(lambda g, x: tanh(g, tanh(g, tanh(g, x)))), 3)
    eliminate("aten",
              beside(lambda g, x: g.fn("torch.ops.aten.sum.dim_IntList", g.fn("torch.ops.aten.mul.Tensor", x, 2, **SHAPE), [1],
                                       shape=(2,), dtype="float32")), 2)
    eliminate("nothing-dead", beside(lambda g, x: None), 0)

    def fork(g, x):
        y = tanh(g, x)
        g.fn("operator.add", tanh(g, y), g.fn("torch.exp", y, **SHAPE), **SHAPE)
    eliminate("diamond", beside(fork), 4)

    g = Graph()
    g.input("unused")
    x = g.input()
    eliminate("unused-inputs-stay", g.output(g.relu(x)), 0)

    def size(g, x):
        g.fn("operator.mul", g.method("size", x, 0), 2)
    eliminate("sizes", beside(size), 2)

    def in_a_list(g, x):
        g.fn("torch.cat", [tanh(g, x), g.fn("torch.exp", x, **SHAPE)], shape=(4, 4), dtype="float32")
    eliminate("read-in-a-list", beside(in_a_list), 3)

    g = Graph()
    x = g.input()
    a = g.fn("torch.tanh", x, **SHAPE)
    g.fn("torch.exp", a, **SHAPE)
    eliminate("read-by-a-dead-and-a-living-node", g.output(g.relu(a)), 1)


def kept_code():
    fn = lambda target, *args, **kwargs: lambda g, x: g.fn(target, *[x if a == "x" else a for a in args], name="y",
                                                           kwargs=kwargs)
    method = lambda target, *args: lambda g, x: g.method(target, x, *args, name="y")
    for name, reason, make in (
            ("in-place-method", "mutates", method("add_", 1)),
            ("setitem", "mutates", fn("operator.setitem", "x", 0, 1.0)),
            ("out-argument", "unknown-operator", lambda g, x: g.fn("torch.add", x, 1, name="y", kwargs={"out": x})),
            ("aten-fill_", "mutates", fn("torch.ops.aten.fill_.Scalar", "x", 0)),
            ("aten-triu_", "mutates", fn("torch.ops.aten.triu_.default", "x")),
            ("aten-fill_diagonal_", "mutates", fn("torch.ops.aten.fill_diagonal_.default", "x", 0)),
            ("rand", "random", fn("torch.rand", 2, 4)),
            ("aten-rand", "random", fn("torch.ops.aten.rand.default", [2, 4])),
            ("functional-dropout-in-training", "random", fn("torch.nn.functional.dropout", "x", 0.5, True)),
            ("native-dropout-not-told", "random", fn("torch.ops.aten.native_dropout.default", "x", 0.5, None)),
            ("assert", "effect", fn("torch._assert", True, "no")),
            ("aten-assert", "effect", fn("torch.ops.aten._assert_tensor_metadata.default", "x")),
            ("mode-switch", "effect", fn("torch._C._set_grad_enabled", False)),
            ("autocast", "effect", fn("torch.amp.autocast_mode._enter_autocast", "cpu")),
            ("vmap", "effect", fn("torch._functorch.predispatch._vmap_increment_nesting", 3, "error")),
            ("unknown-function", "unknown-operator", fn("my.function", "x")),
            ("unknown-aten", "unknown-operator", fn("torch.ops.my.function.default", "x"))):
        eliminate(f"trap-37-{name}", beside(make), 0, refusal(reason, "y"))

    def through_view(g, x):
        view = g.fn("torch.ops.aten.select.int", x, 0, 0, shape=(4,), dtype="float32")
        g.fn("torch.ops.aten.copy_.default", view,
             g.fn("torch.ops.aten.zeros.default", [4], shape=(4,), dtype="float32"), name="y")
    eliminate("trap-37-written-through-a-view", beside(through_view), 0, refusal("mutates", "y"))

    def module(type, training, **config):
        def make(g, x):
            g.module("m", type, config, training=training)
            g.call("m", x)
        return make

    def norm(training):
        def make(g, x):
            g.norm("bn", x, spatial=1, training=training)
        return make
    eliminate("trap-37-batch-norm-in-training", beside(norm(True)), 0, refusal("mutates", "bn"))
    eliminate("batch-norm-in-eval-mode", beside(norm(False)), 1)
    eliminate("trap-37-dropout-in-training", beside(module("torch.nn.Dropout", True, p=0.5)), 0, refusal("random", "m"))
    eliminate("dropout-in-eval-mode", beside(module("torch.nn.Dropout", False, p=0.5)), 1)
    eliminate("trap-37-in-place-module", beside(module("torch.nn.ReLU", False, inplace=True)), 0, refusal("mutates", "m"))
    eliminate("trap-37-unknown-module", beside(module("my.Module", False)), 0, refusal("unknown-operator", "m"))
    aten_norm = lambda training: lambda g, x: g.fn("torch.ops.aten.batch_norm.default", x, None, None, x, x, training, 0.1,
                                                   1e-5, True, name="y")
    eliminate("trap-37-aten-batch-norm-in-training", beside(aten_norm(True)), 0, refusal("unknown-operator", "y"))
    eliminate("aten-batch-norm-in-eval-mode", beside(aten_norm(False)), 1)

    def kept_reader(g, x):
        g.fn("my.function", g.fn("torch.tanh", x, **SHAPE), name="y")
    eliminate("read-by-what-is-kept", beside(kept_reader), 0, refusal("unknown-operator", "y"))


def dead_modules():
    eliminate("linear-and-its-weights", beside(lambda g, x: g.linear("fc", x, 3)), 1)

    def shared(g, x):
        g.linear("fc", x, 4)
        g.call("fc", g.fn("torch.tanh", x, **SHAPE))
    eliminate("linear-called-twice", beside(shared), 3)

    g = Graph()
    x = g.input()
    y = g.linear("fc", x, 4)
    g.call("fc", g.fn("torch.tanh", x, **SHAPE))
    eliminate("linear-still-called", g.output(y), 2)

    g = Graph()
    x = g.input()
    g.linear("fc", x, 4)
    eliminate("linear-still-read", g.output(g.fn("torch.matmul", x, g.get_attr("fc.weight", (4, 4)), **SHAPE)), 1)

    def norm_without_weight(g, x):
        g.module("ln", "torch.nn.LayerNorm", {"normalized_shape": (4,), "eps": 1e-5, "elementwise_affine": False},
                 {"weight": None, "bias": None})
        g.call("ln", x)
        g.fn("my.function", g.get_attr("ln.weight", dtype=None), name="y")
    eliminate("missing-weight-still-read", beside(norm_without_weight), 1, refusal("unknown-operator", "y"))

    g = Graph()
    x = g.input()
    g.linear("a", x, 4)
    eliminate("tied-weight-stays", g.output(g.linear("b", x, 4, weight="a.weight")), 1)

    g = Graph()
    x = g.input()
    g.module("", "torch.nn.Module", parameters={"w": g.tensor("w", [4, 3]), "v": g.tensor("v", [3])})
    g.fn("torch.ops.aten.linear.default", x, g.get_attr("w", (3, 4)), g.get_attr("v", (3,)), shape=(2, 3), dtype="float32")
    eliminate("aten-linear-and-its-weights", g.output(g.relu(x)), 3)

    merge = "MergeLinears"
    g = Graph()
    x = g.input()
    y = g.linear("q", x, 3)
    g.linear("k", x, 3)
    case("EliminateDeadCode", "trap-21-one-branch-of-merged-linears", g.output(y), None, passes=[merge, "EliminateDeadCode"],
         expected=[(merge, 1, []), ("EliminateDeadCode", 1, [])])

    g = Graph()
    x = g.input()
    g.module("mine", "torch.nn.Module", parameters={"w": g.tensor("w", [4])}, owner="me")
    g.fn("operator.mul", x, g.get_attr("mine.w", (4,)), **SHAPE)
    eliminate("weight-of-a-module-with-a-note", g.output(g.relu(x)), 2)
