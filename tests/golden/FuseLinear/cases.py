"""FuseLinear: a formula becomes one call."""
from common import ATEN, SHAPE, Formula
from make_cases import case, refusal


def cases():
    def fuse(name, graph, applied, *refused):
        case("FuseLinear", name, graph, applied, *refused)

    def make(weight=(3, 4), bias=(3,), dtype="float32", shape=SHAPE, others=None):
        g = Formula(dtype, shape)
        g.module("", "torch.nn.Module", {}, {"w": g.tensor("w", weight, others or dtype), "b": g.tensor("b", bias, dtype)})
        return g, g.get_attr("w", weight, others or dtype), g.get_attr("b", bias, dtype)

    def product(g, w, target="torch.matmul", turned=".t", shape=(2, 3)):
        return g.step(target, g.x, g.step(turned, w, shape=(4, 3)) if turned else w, shape=shape)

    g, w, b = make()
    fuse("transposed", g.end(g.step("operator.add", product(g, w), b, shape=(2, 3))), 1)
    g, w, b = make()
    fuse("addend-first", g.end(g.step("torch.add", b, product(g, w), shape=(2, 3))), 1)
    g, w, b = make()
    fuse("without-addend", g.end(product(g, w)), 1)
    g, w, b = make(shape=(2, 5, 4))
    fuse("three-dimensions", g.end(g.step("operator.add", product(g, w, shape=(2, 5, 3)), b, shape=(2, 5, 3))), 1)
    g, w, b = make((4, 3))
    fuse("not-transposed", g.end(g.step("operator.add", product(g, w, turned=None), b, shape=(2, 3))), 1)
    g, w, b = make((4, 3))
    y = g.step(ATEN + "mm.default", g.x, w, shape=(2, 3))
    fuse("not-transposed-aten", g.end(g.step(ATEN + "add.Tensor", y, b, shape=(2, 3))), 1)
    g, w, b = make()
    y = g.step(ATEN + "matmul.default", g.x, g.step(ATEN + "t.default", w, shape=(4, 3)), shape=(2, 3))
    fuse("transposed-aten", g.end(g.step(ATEN + "add.Tensor", y, b, shape=(2, 3))), 1)

    g, w, b = make()
    y = product(g, w)
    fuse("product-with-other-readers", g.end(g.step("operator.add", y, b, shape=(2, 3)), y), 1)
    g, w, b = make(bias=(2, 3))
    fuse("addend-that-is-no-vector-stays", g.end(g.step("operator.add", product(g, w), b, shape=(2, 3))), 1)
    g, w, b = make()
    fuse("scaled-addend-stays", g.end(g.step("torch.add", product(g, w), b, shape=(2, 3), alpha=2)), 1)
    g, w, b = make()
    y = product(g, w)
    g.add_(b)
    fuse("addend-written-between", g.end(g.step("operator.add", y, b, shape=(2, 3))), 0, refusal("input-mutated", "add"))
    g, w, b = make(dtype="bfloat16", others="float32")
    fuse("dtypes-of-autocast", g.end(g.step("operator.add", product(g, w), b, shape=(2, 3))), 0, refusal("dtype", "add"))
    g, w, b = make((4, 3), shape=(2, 5, 4))
    fuse("not-where-the-weight-would-be-moved",
         g.end(g.step("operator.add", product(g, w, turned=None, shape=(2, 5, 3)), b, shape=(2, 5, 3))), 0)
    g, w, b = make()
    y = g.input("y", (4, 3))
    fuse("not-of-two-inputs", g.end(g.step("torch.matmul", g.x, y, shape=(2, 3))), 0)
