"""Modules whose own names do not tell what they compute with (pruning, weight_norm), and shared modules whose calls cross."""
from make_cases import Graph, case, refusal


def prune(graph, path, name):
    """Puts a hook's tensors in the place of a parameter, as torch.nn.utils.prune does."""
    module = graph.modules[path]
    tensor = module["parameters"].pop(name)
    module["parameters"][name + "_orig"] = tensor
    shape = graph.tensors[tensor]["shape"]
    graph.tensor(f"{path}.{name}_mask", shape)
    module["buffers"][name + "_mask"] = f"{path}.{name}_mask"


def cases():
    g = Graph()
    x = g.input()
    g.output(g.linear("q", x, 4), g.linear("k", x, 4), g.linear("v", x, 4))
    prune(g, "q", "bias")
    case("MergeLinears", "pruned-bias", g, 1, refusal("reparametrised", "q"))

    g = Graph()
    g.output(g.norm("bn", g.conv("conv", g.input(shape=(1, 2, 5, 5)), 3)))
    prune(g, "bn", "weight")
    case("FuseBatchNorm2dInConv2d", "pruned-norm-weight", g, 0, refusal("reparametrised", "conv", "bn"))

    g = Graph()
    g.output(g.norm("bn", g.conv("conv", g.input(shape=(1, 2, 5, 5)), 3)))
    prune(g, "conv", "bias")
    case("FuseBatchNorm2dInConv2d", "pruned-conv-bias", g, 0, refusal("reparametrised", "conv", "bn"))

    # The BatchNorm is called on x, then on y; the Linear on the second result first.
    g = Graph()
    x, y = g.input(), g.input("y")
    a = g.norm("bn", x, spatial=1)
    b = g.call("bn", y, (2, 4), "float32")
    p = g.linear("fc", b, 6)
    g.output(p, g.call("fc", a, (2, 6), "float32"))
    case("FuseBatchNorm1dInLinear", "trap-02-calls-cross", g, 1)
