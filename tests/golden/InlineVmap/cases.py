"""InlineVmap: regions of torch.vmap as torch.export writes them."""
from cases_layers import ATEN
from make_cases import Graph, Raw, case, refusal

VMAP = "torch._functorch.predispatch."
INDEX = "torch._dynamo._trace_wrapped_higher_order_op.ModIndex"
FUNCTION = {"$opaque": "TreeSpec(_ConstantFunction, ConstantNode(value=_ConstantFunction(func="
                       "<function _call_custom_autograd_function_in_pre_dispatch>)), [])"}


class Vmap(Graph):
    """One vmap in another: sizes of the levels from the outermost on."""

    def __init__(self, *sizes):
        super().__init__()
        self.sizes, self.open = sizes, 0

    def level(self, size, load=True):
        if load:
            self.fn(VMAP + "lazy_load_decompositions")
        self.open += 1
        return self.fn(VMAP + "_vmap_increment_nesting", size, "error")

    def batch(self, x, dim=0, level=None):
        return self.fn(VMAP + "_add_batch_dim", x, dim, level or self.open, shape=(), dtype=self.names[x][1])

    def enter(self, *vectors, **more):
        """Opens the levels, and lets one vector into each (None: none)."""
        made = []
        for size, vector in zip(self.sizes, vectors):
            self.level(size, **more)
            made.append(self.batch(vector) if vector else None)
        return made

    def each(self, target, *args, dtype="bool", **more):
        return self.fn(ATEN + target, *args, shape=(), dtype=dtype, name=target.split(".")[0], **more)

    def close(self):
        self.fn(VMAP + "_vmap_decrement_nesting")
        self.open -= 1

    def leave(self, x, dim=0):
        """Through all levels that are open."""
        dtype, shape = self.names[x][1], ()
        while self.open:
            size = self.sizes[self.open - 1]
            shape = (size,) + shape
            x = self.fn(VMAP + "_remove_batch_dim", x, self.open, size, dim, shape=shape, dtype=dtype)
            self.close()
        return x

    def look_up(self, x, *indices):
        self.modules[""].update(attributes={"function": FUNCTION, "shape": {"$opaque": "TreeSpec(tuple, None, [])"}})
        function, shape = (self.get_attr(name, dtype=None) for name in ("function", "shape"))
        return self.fn("torch.ops.higher_order.flat_apply", function, shape, INDEX, x, *indices, shape=(),
                       dtype=self.names[x][1], name="flat_apply")

    def vector(self, size, name, dtype="int64"):
        return self.fn(ATEN + "arange.default", size, shape=(size,), dtype=dtype, name=name,
                       kwargs={"dtype": Raw({"$dtype": dtype})})

    def seen(self, mask):
        """A reader that does not mind how the mask lies in memory, nor does what reads that."""
        shape, dtype = self.names[mask]
        rows = self.fn(ATEN + "contiguous.default", mask, shape=shape, dtype=dtype)
        return self.fn(ATEN + "sum.default", rows, shape=(), dtype="int64")


def mask_of_a_model():
    g = Vmap(2, 1, 5, 3)
    given = g.input("given", (2, 3), "bool")
    batch, head, query, key = g.enter(*(g.vector(size, name) for size, name in zip(g.sizes, ("b", "h", "q", "k"))))
    ones = g.each("new_ones.default", query, [], kwargs={"dtype": Raw({"$dtype": "bool"})})
    causal = g.each("__and__.Tensor", ones, g.each("le.Tensor", key, query))
    whole = g.each("__and__.Tensor", causal, g.look_up(given, batch, key))
    return g, g.leave(whole)


def cases():
    def inline(name, graph, applied, *refused, **more):
        case("InlineVmap", name, graph, applied, *refused, **more)

    def small(change=lambda g, a, b: g.each("le.Tensor", a, b), behind=None, dtypes=("int64", "int64"), **more):
        """What two levels compute of two vectors."""
        g = Vmap(3, 5)
        a, b = g.vector(3, "a", dtypes[0]), g.vector(5, "b", dtypes[1])
        x, y = g.enter(a, b, **more)
        z = g.leave(change(g, x, y))
        return g.output((behind or Vmap.seen)(g, z))

    g, mask = mask_of_a_model()
    inline("mask", g.output(g.seen(mask)), 1)
    g, mask = mask_of_a_model()
    inline("returned", g.output(mask), 0, refusal("needs-contiguous", "_remove_batch_dim_3"))
    inline("constants", small(), 1, passes=["InlineVmap", "EvaluateConstants"],
           expected=[("InlineVmap", 1, []), ("EvaluateConstants", 1, [refusal("graph-output", "default_1")])])
    inline("without-loads", small(load=False), 1)
    inline("batched-at-one-level", small(lambda g, a, b: g.each("gt.Scalar", a, 1)), 1)
    inline("batched-at-no-level", small(lambda g, a, b: g.each("new_ones.default", a, [], kwargs={
        "dtype": Raw({"$dtype": "bool"})})), 1)
    inline("where", small(lambda g, a, b: g.each("where.self", g.each("lt.Tensor", a, b), a, b, dtype="int64")), 1)
    inline("itself", small(lambda g, a, b: b), 0, refusal("unsupported-arguments", "_remove_batch_dim"))
    inline("dtypes", small(dtypes=("int32", "int64")), 0, refusal("dtype", "le"))
    inline("not-element-by-element", small(lambda g, a, b: g.each("any.default", g.each("le.Tensor", a, b))), 0,
           refusal("unsupported-operator", "any"))
    inline("in-place", small(lambda g, a, b: g.each("le_.Tensor", g.each("mul.Tensor", a, b, dtype="int64"), 4, dtype="int64")),
           0,
           refusal("unsupported-operator", "le_"))
    inline("view-of-it", small(behind=lambda g, z: g.fn(ATEN + "sum.default", g.fn(ATEN + "view.default", z, [15], shape=(15,),
                                                                                     dtype="bool"), shape=(), dtype="int64")),
           0, refusal("needs-contiguous", "_remove_batch_dim_1"))

    def written(g, z):
        g.fn(ATEN + "logical_not_.default", z, shape=(3, 5), dtype="bool")
        return g.seen(z)

    inline("written-later", small(behind=written), 0, refusal("needs-contiguous", "_remove_batch_dim_1"))

    g = Vmap(3)
    a = g.vector(3, "a")
    x, = g.enter(a)
    y = g.leave(g.each("lt.Scalar", x, 3))
    g.fn(ATEN + "add_.Tensor", a, 1, shape=(3,), dtype="int64")
    inline("batch-written-later", g.output(g.seen(y)), 0, refusal("tensor-mutated", "_add_batch_dim"))

    g = Vmap(3)
    a = g.vector(3, "a")
    a = g.fn(ATEN + "add_.Tensor", a, 2, shape=(3,), dtype="int64")
    x, = g.enter(a)
    inline("written-before", g.output(g.seen(g.leave(g.each("lt.Scalar", x, 3)))), 1)

    g = Vmap(3, 5)
    x, y = g.enter(g.vector(3, "a"), g.vector(5, "b"))
    twice = g.each("le.Tensor", x, y)
    z = g.fn(VMAP + "_remove_batch_dim", twice, 2, 5, 0, shape=(5,), dtype="bool")
    g.close()
    outer = g.each("any.default", z)
    inline("computed-between-the-levels", g.output(g.seen(g.leave(outer))), 0, refusal("unsupported-operator", "any"))

    g = Vmap(3, 5)
    x, y = g.enter(g.vector(3, "a"), g.vector(5, "b"))
    g.fn(ATEN + "expand.default", g.each("le.Tensor", x, y), [4], shape=(4,), dtype="bool")
    inline("nobody-reads-it", g.output(g.seen(g.leave(g.each("lt.Tensor", x, y)))), 1)

    g = Vmap(3)
    x, = g.enter(g.vector(3, "a"))
    y = g.each("lt.Scalar", x, 2)
    g.fn(ATEN + "_assert_tensor_metadata.default", y, kwargs={"dtype": Raw({"$dtype": "bool"})})
    inline("assertions", g.output(g.seen(g.leave(y))), 1)

    g = Vmap(3, 5)
    a = g.vector(3, "a")
    g.level(3)
    x = g.batch(a)
    g.level(5)
    g.close()
    g.level(5)
    inline("level-opened-twice", g.output(g.seen(g.leave(g.each("lt.Scalar", x, 2)))), 0,
           refusal("unsupported-arguments", "_vmap_increment_nesting"))

    g = Vmap(3)
    a = g.vector(3, "a")
    x, = g.enter(a)
    g.fn("torch._C._set_grad_enabled", False)
    inline("mode-switched", g.output(g.seen(g.leave(g.each("lt.Scalar", x, 2)))), 0, refusal("effect", "_set_grad_enabled"))

    g = Vmap(3)
    x, = g.enter(g.vector(3, "a"))
    y = g.each("lt.Scalar", x, 2)
    z = g.leave(y)
    inline("read-outside", g.output(g.seen(z), g.seen(y)), 0, refusal("shared-output", "lt"))

    g = Vmap(4)
    x, = g.enter(g.vector(3, "a"))
    inline("another-size", g.output(g.seen(g.leave(g.each("lt.Scalar", x, 2)))), 0,
           refusal("unsupported-shape", "_add_batch_dim"))

    g = Vmap(3)
    g.level(3)
    m = g.fn(ATEN + "ones.default", [3, 2], shape=(3, 2), dtype="float32")
    x = g.fn(VMAP + "_add_batch_dim", m, 0, 1, shape=(2,), dtype="float32")
    y = g.fn(ATEN + "lt.Scalar", x, 2, shape=(2,), dtype="bool")
    z = g.fn(VMAP + "_remove_batch_dim", y, 1, 3, 0, shape=(3, 2), dtype="bool")
    g.close()
    inline("rows", g.output(g.seen(z)), 0, refusal("unsupported-shape", "_add_batch_dim"))

    g = Vmap(3, 5)
    x, y = g.enter(g.vector(3, "a"), g.vector(5, "b"))
    inline("index-of-other-dimensions", g.output(g.seen(g.leave(g.look_up(g.input("t", (3, 5, 2), "bool"), x, y)))), 0,
           refusal("unsupported-arguments", "flat_apply"))

    g = Vmap(3)
    x, = g.enter(g.vector(3, "a"))
    first = g.seen(g.leave(g.each("lt.Scalar", x, 2)))
    y, = g.enter(g.vector(3, "b"), load=False)
    inline("two-regions-one-load", g.output(first, g.seen(g.leave(g.each("gt.Scalar", y, 2)))), 2)
