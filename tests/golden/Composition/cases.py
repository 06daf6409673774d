"""Lists of passes. The number in a name (trap-19-…) is that of a known failure of other optimisers."""
from make_cases import Graph, Raw, case, refusal


def cases():
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
         expected=[(merge, 1, []), (fuse, 1, []),
                   (merge, 0, [refusal("already-transformed", "attention_query_key_value_merged")]),
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
    read_elsewhere()


def read_elsewhere():
    """Values inside of what is rewritten that others read as well: comparing before and after must not take them for faults."""
    constants, scale, fuse, common = "FoldConstants", "FoldScaleIntoLinear", "FuseBiasInLinear", "EliminateCommonSubexpressions"
    sizes = {"shape": (3, 4), "dtype": "float32"}
    made = {"shape": (3, 3), "dtype": "float32"}

    def weights(g):
        g.module("", "torch.nn.Module", parameters={"w": g.tensor("w", [3, 4])})
        return g.input(shape=(3, 4)), g.get_attr("w", (3, 4))

    g = Graph()
    x, w = weights(g)
    copy = g.fn("torch.clone", w, **sizes)
    half = g.fn("operator.mul", copy, 0.5, **sizes)
    linear = lambda weight: g.fn("torch.nn.functional.linear", x, weight, **made)
    case(constants, "weight-inside-is-read-elsewhere", g.output(linear(half), linear(copy)), 1)

    g = Graph()
    x, w = weights(g)
    y = g.fn("torch.nn.functional.linear", x, g.fn("torch.neg", w, **sizes), **made)
    case("Composition", "weight-folded-then-scaled", g.output(g.relu(g.fn("operator.mul", y, 0.5, **made))), None,
         passes=[constants, scale], expected=[(constants, 1, []), (scale, 1, [])])

    g = Graph()
    x = g.input(shape=(3, 4))
    y = g.linear("fc", x, 3, meta=False)
    size = g.method("size", y)
    case(scale, "sizes-of-what-is-scaled", g.output(g.relu(g.fn("operator.mul", y, 0.5, **made)), size), 1)

    g = Graph()
    x = g.input(shape=(3, 4))
    a, b = g.fn("torch.neg", x, **sizes), g.fn("torch.neg", x, **sizes)
    case("Composition", "one-of-two-equal-calls", g.output(g.relu(g.linear("fc", b, 3)), g.fn("torch.tanh", a, **sizes)), None,
         passes=[fuse, common], expected=[(fuse, 1, []), (common, 1, [])])

    g = Graph()
    x = g.input(shape=(3, 4))
    rows = g.fn("operator.getitem", g.fn("builtins.getattr", x, "shape"), 0)
    case("FoldShapes", "not-a-number", g.output(g.relu(x), g.fn("operator.truediv", rows, float("nan"), name="nan")), 2)

    g = Graph()
    x = g.relu(g.input(shape=(3, 4)))
    g.module("drop", "torch.nn.Dropout", {"p": 0.5, "inplace": True})
    dropped = g.call("drop", x)
    more = g.method("add_", dropped, 1.5, shape=(3, 4))
    case("RemoveNoOps", "dropout-in-place-is-written",
         g.output(g.method("to", more, Raw({"$dtype": "float32"}), **sizes), dropped), 2)
