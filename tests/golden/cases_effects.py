"""What is between and behind the nodes that a pass would change: writes out of sight, switches of mode, layout."""
from make_cases import Graph, case, refusal


def cases():
    merge_beside()
    merge_before()
    fold_across_modes()
    spellings_of_division()


def merge_beside():
    """Two Linears that read x, with something between them."""
    def merge(name, between, applied, *refused, method="add_"):
        g = Graph()
        x = g.input()
        y = g.input("y")
        g.module("sub", "torch.fx.GraphModule", {}, {"w": g.tensor("k.weight", [3, 4])}, graph={"nodes": [
            {"name": "w", "op": "get_attr", "target": "w"},
            {"name": "m", "op": "call_method", "target": method, "args": [{"$node": "w"}, 1]},
            {"name": "output", "op": "output", "target": "output", "args": [{"$node": "m"}]}]})
        q = g.linear("q", x, 3)
        between(g, x, y)
        case("MergeLinears", name, g.output(q, g.linear("k", x, 3)), applied, *refused)

    def in_list(g, x, y):
        items = g.fn("builtins.list", [y])
        g.fn("operator.setitem", items, 0, x)
        g.add_(g.fn("operator.getitem", items, 0, shape=(2, 4), dtype="float32"))

    def in_tuple(g, x, y):
        items = g.fn("operator.add", g.fn("torch.chunk", y, 2), (x,))
        g.add_(g.fn("operator.getitem", items, 2, shape=(2, 4), dtype="float32"))

    def sum_of_tensors(g, x, y):
        g.add_(g.fn("operator.add", x, y, shape=(2, 4), dtype="float32"))

    def result(name, method, *args, shape=(2, 3), reason="needs-contiguous"):
        g = Graph()
        x = g.input(shape=(shape[0], 4))
        q = g.linear("q", x, 3)
        y = g.method("transpose", q, 0, 1, shape=shape[::-1], dtype="float32")
        drawn = g.method(method, y, *args, shape=shape[::-1], dtype="float32")
        case("MergeLinears", name, g.output(drawn, g.linear("k", x, 3)), 0, refusal(reason, "q"))

    result("random-numbers-into-a-result", "normal_")
    result("random-numbers-into-a-result-bernoulli", "bernoulli_", 0.5)
    result("other-writes-into-a-result", "add_", 1.0, reason="mutated")

    merge("input-mutated-in-list", in_list, 0, refusal("input-mutated", "k"))
    merge("input-mutated-in-tuple", in_tuple, 0, refusal("input-mutated", "k"))
    merge("unmutated-by-sum-of-tensors", sum_of_tensors, 1)
    merge("mode-switched-by-unknown-function", lambda g, x, y: g.fn("torch.set_autocast_enabled", "cpu", True), 0,
          refusal("mode-switched", "k"))
    merge("mode-switched-by-vmap", lambda g, x, y: g.fn("torch._functorch.predispatch._vmap_increment_nesting", 3, "error"), 0,
          refusal("mode-switched", "k"))
    merge("mode-kept-by-factory", lambda g, x, y: g.fn("torch.ones", 2), 1)
    for name, method, applied, refused in [("tensor-mutated-by-nested-program", "add_", 0, [refusal("tensor-mutated", "k")]),
                                           ("nested-program-writes-nothing", "add", 1, [])]:
        merge(name, lambda g, x, y: g.fn("torch.ops.higher_order.wrap_with_set_grad_enabled", False, g.get_attr("sub")),
              applied,
              *refused, method=method)
    merge("nested-program-only-read", lambda g, x, y: g.get_attr("sub"), 1)


def merge_before():
    """Two Linears that read x, and a reader of the first one's result."""
    def merge(name, reader, applied, *refused):
        g = Graph()
        x = g.input()
        q, k = g.linear("q", x, 3), g.linear("k", x, 3)
        case("MergeLinears", name, g.output(reader(g, q), k), applied, *refused)

    def look_alike(g, q):
        g.make_linear("odd", 3, 3, type="custom.OddLinear")
        return g.call("odd", q)

    def stored(g, q):
        items = g.fn("builtins.list", [1])
        g.fn("operator.setitem", items, 0, q)
        return g.method("view", g.fn("operator.getitem", items, 0), -1)

    kept = refusal("needs-contiguous", "q")
    merge("needs-contiguous-resize-in-place", lambda g, q: g.method("resize_", q, 6, shape=(6,), dtype="float32"), 0, kept)
    merge("needs-contiguous-detach-in-place", lambda g, q: g.method("detach_", q, shape=(2, 3), dtype="float32"), 0, kept)
    merge("contiguous-detach", lambda g, q: g.method("detach", q, shape=(2, 3), dtype="float32"), 1)
    merge("needs-contiguous-look-alike", look_alike, 0, kept)
    merge("needs-contiguous-in-list", stored, 0, kept)


def fold_across_modes():
    fold, switch = "FuseBatchNorm1dInLinear", "torch.amp.autocast_mode._enter_autocast"
    g = Graph()
    h = g.norm("bn", g.input(), spatial=1)
    g.fn(switch, "cpu", True)
    case(fold, "mode-switched-before-linear", g.output(g.linear("fc", h, 3)), 0, refusal("mode-switched", "fc", "bn"))
    g = Graph()
    h = g.linear("fc", g.input(), 3)
    g.fn(switch, "cpu", True)
    case(fold, "mode-switched-before-norm", g.output(g.norm("bn", h, spatial=1)), 0, refusal("mode-switched", "fc", "bn"))
    g = Graph()
    x = g.input()
    g.fn(switch, "cpu", True)
    case(fold, "mode-switched-before-both", g.output(g.norm("bn", g.linear("fc", x, 3), spatial=1)), 1)
    g = Graph()
    case(fold, "eps-int", g.output(g.norm("bn", g.linear("fc", g.input(), 3), spatial=1, eps=1)), 1)


def spellings_of_division():
    def change(name, make, applied, *refused):
        g = Graph()
        case("ChangeTrueDivToMulByInverse", name, g.output(make(g, g.input(), {"shape": (2, 4), "dtype": "float32"})), applied,
             *refused)

    change("torch-divide", lambda g, x, meta: g.fn("torch.divide", x, 8, **meta), 1)
    change("torch-tensor-div", lambda g, x, meta: g.fn("torch.Tensor.div", x, 8, **meta), 1)
    for name in ("divide", "true_divide"):
        change(f"method-{name.replace('_', '-')}", lambda g, x, meta: g.method(name, x, 8, **meta), 1)
    rounds = {"kwargs": {"rounding_mode": "floor"}}
    change("torch-divide-rounding", lambda g, x, meta: g.fn("torch.divide", x, 8, **meta, **rounds), 0,
           refusal("rounding-mode", "divide"))
    change("method-divide-rounding", lambda g, x, meta: g.method("divide", x, 8, **meta, **rounds), 0,
           refusal("rounding-mode", "divide"))
