"""UnpackLinear, in both dialects."""
from make_cases import Graph, N, case, refusal

FLOAT = {"dtype": "float32"}


def cases():
    unpack = lambda name, graph, applied, *refused: case("UnpackLinear", name, graph, applied, *refused)

    def layer(aten=False, shape=(2, 3, 4), before=(6, 4), after=(2, 3, 5), between=None, tensor_dtype="float32", dtype=None,
              outputs=5):
        g = Graph()
        g.module("c", "torch.nn.Module", parameters={"weight": g.tensor("c.weight", [4, outputs], tensor_dtype),
                                                     "bias": g.tensor("c.bias", [outputs], tensor_dtype)})
        known = {"dtype": dtype or tensor_dtype}
        x = g.relu(g.input(shape=shape, **known))
        bias = g.get_attr("c.bias", (outputs,), tensor_dtype, "bias")
        weight = g.get_attr("c.weight", (4, outputs), tensor_dtype, "weight")
        view = "torch.ops.aten.view.default" if aten else "view"
        sizes = (lambda *sizes: [list(sizes)]) if aten else (lambda *sizes: sizes)
        make = g.fn if aten else g.method
        flat = make(view, x, *sizes(-1, before[-1]), shape=before, name="flat", **known)
        if between:
            between(g, x, flat, weight)
        product = g.fn("torch.ops.aten.addmm.default" if aten else "torch.addmm", bias, flat, weight, name="product",
                       shape=(before[0], outputs), **known)
        y = make(view, product, *sizes(*after), shape=after, name="back", **known)
        g.output(g.fn("torch.ops.aten.tanh.default" if aten else "torch.tanh", y, shape=after, **known))
        return g

    unpack("three-dimensions", layer(), 1)
    unpack("aten-three-dimensions", layer(aten=True), 1)
    unpack("four-dimensions", layer(shape=(2, 1, 3, 4), after=(2, 1, 3, 5)), 1)
    one = {"shape": (1, 1, 4), "before": (1, 4), "after": (1, 1, 5)}
    unpack("one-row", layer(**one), 0, refusal("more-work", "product"))
    unpack("aten-one-row", layer(aten=True, **one), 0, refusal("more-work", "product"))
    unpack("three-rows", layer(shape=(3, 1, 4), before=(3, 4), after=(3, 1, 5)), 0, refusal("more-work", "product"))
    unpack("one-row-of-a-tall-weight", layer(outputs=3, **one | {"after": (1, 1, 3)}), 1)
    unpack("symbolic", layer(shape=("s0", 3, 4), before=("3*s0", 4), after=("s0", 3, 5)), 1)
    unpack("bfloat16", layer(tensor_dtype="bfloat16"), 1)
    unpack("dtype", layer(tensor_dtype="bfloat16", dtype="float32"), 0, refusal("dtype", "product"))
    unpack("not-back-to-other-dimensions", layer(after=(3, 2, 5)), 0, refusal("shape-mismatch", "product"))
    unpack("not-across-the-last-dimension", layer(shape=(2, 3, 2, 2), after=(2, 3, 1, 5)), 0,
           refusal("shape-mismatch", "product"))
    unpack("input-mutated", layer(between=lambda g, x, flat, weight: g.add_(x)), 0, refusal("input-mutated", "product"))
    unpack("weight-mutated", layer(between=lambda g, x, flat, weight: g.add_(weight)), 0, refusal("tensor-mutated", "product"))
    other = lambda g, x, flat, weight: g.fn("torch.tanh", flat, shape=(6, 4), **FLOAT)
    unpack("reshape-with-another-reader", layer(between=other), 1)

    g = layer()
    g.nodes.pop()
    del g.names["output"]
    g.output(N("tanh"), N("product"))
    unpack("not-with-another-reader", g, 0)

    g = layer()
    g.nodes.pop()
    del g.names["output"]
    g.output(N("tanh"), g.fn("torch.exp", N("weight"), shape=(4, 5), **FLOAT))
    unpack("weight-with-another-reader", g, 1)
