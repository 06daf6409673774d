"""Lists of passes. The number in a name (trap-19-…) is that of a known failure of other optimisers."""
from make_cases import Graph, case, refusal


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
