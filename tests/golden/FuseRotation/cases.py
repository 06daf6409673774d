"""FuseRotation: rotary embeddings as transformers write them, in both dialects."""
from cases_layers import ATEN
from make_cases import Graph, case, refusal

HUGE = 9223372036854775807


def cases():
    def fuse(name, graph, applied, *refused):
        case("FuseRotation", name, graph, applied, *refused)

    def both(aten=True, shape=(2, 4, 16, 8), factor=(16, 8), change=None, dtype="float32", first=False, others=2, behind=None,
             other=None, **more):
        """Two values that are rotated and multiplied with one factor."""
        g = Graph()
        m = g.relu(g.input("m", factor, dtype))
        made = []
        for i in range(others):
            x = g.relu(g.input(f"x{i}", shape, dtype))
            turned = rotated(g, x, aten, **more)
            if change:
                change(g, x, turned)
            with_ = other(g, m) if other else m
            made.append(product(g, *((with_, turned) if first else (turned, with_)), aten, shape, dtype))
            if behind:
                made.append(behind(g, x, turned))
        return g.output(*(g.fn("torch.tanh", y, shape=g.names[y][0], dtype=dtype) for y in made))

    two = lambda reason: (refusal(reason, "mul"), refusal(reason, "mul_1"))
    fuse("aten", both(), 2)
    fuse("functions", both(aten=False), 2)
    fuse("factor-first", both(first=True), 2)
    fuse("uneven", both(at=3), 2)
    fuse("bfloat16", both(dtype="bfloat16"), 2)
    fuse("complex", both(dtype="complex64"), 0, *two("dtype"))
    fuse("integers", both(dtype="int64"), 0, *two("dtype"))
    fuse("factor-of-one-reader", both(others=1), 0, refusal("more-work", "mul"))
    fuse("factor-as-large", both(factor=(2, 4, 16, 8)), 0, *two("more-work"))
    fuse("factor-of-one-number", both(factor=(16, 1)), 0, *two("more-work"))
    fuse("lower-half-negated", both(neg_first=False), 2)
    fuse("lower-half-negated-functions", both(neg_first=False, aten=False), 2)
    for aten in (True, False):
        for of in ("chunk", "split", *(["split_with_sizes"] if aten else [])):
            name = f"{of}-{'aten' if aten else 'functions'}"
            fuse(name, both(aten=aten, of=of), 2)
            fuse(f"{name}-lower-negated", both(aten=aten, of=of, neg_first=False), 2)
    fuse("chunk-uneven", both(of="chunk", shape=(2, 4, 16, 7), factor=(16, 7), at=4), 2)
    fuse("chunk-of-three", both(of="chunk", parts=3), 0)
    fuse("split-of-three", both(of="split", parts=3), 0)
    fuse("tensor-split-at-two-places", both(of="tensor_split", aten=False, at=2), 0)
    fuse("chunk-of-another-dimension", both(of="chunk", shape=(2, 4, 8, 8), factor=(8, 8), dim=2), 0)
    fuse("chunk-written-between", both(of="chunk", change=lambda g, x, turned: g.add_(x)), 0, *two("input-mutated"))
    earlier = {"name": "FuseRotation", "version": 1}
    for name, graph in ("chunk", both(of="chunk")), ("sign", both(neg_first=False)):
        case("FuseRotation", f"{name}-version-1", graph, None, passes=[earlier], expected=[("FuseRotation", 0, [])])
    fuse("another-dimension", both(shape=(2, 4, 8, 8), factor=(8, 8), dim=2), 0)
    fuse("halves-have-other-readers", both(behind=lambda g, x, turned: part(g, x, None, 4, True)), 2)
    fuse("halves-are-read-twice", both(behind=lambda g, x, turned: turned), 0)
    fuse("written-between", both(change=lambda g, x, turned: g.add_(x)), 0, *two("input-mutated"))
    fuse("written-before-it-is-read", both(change=lambda g, x, turned: g.add_(turned)), 0)

    g = Graph()
    m, x = g.relu(g.input("m", (16, 8))), g.relu(g.input("x", (2, 4, 16, 8)))
    other = g.relu(g.input("other", (2, 4, 16, 8)))
    lower, upper = part(g, x, None, 4, True), part(g, other, 4, None, True)
    minus = g.fn(ATEN + "neg.default", upper, shape=(2, 4, 16, 4), dtype="float32")
    cat = g.fn(ATEN + "cat.default", [minus, lower], -1, shape=(2, 4, 16, 8), dtype="float32")
    fuse("halves-of-two-values", g.output(product(g, cat, m, True, (2, 4, 16, 8)), g.fn("torch.exp", m, shape=(16, 8),
                                                                                         dtype="float32")), 0)


def part(g, x, start, end, aten, dim=-1):
    shape, dtype = g.names[x]
    size = shape[-1]
    made = tuple(shape[:-1]) + (min(end if end is not None else size, size) - (start or 0),)
    if aten:
        return g.fn(ATEN + "slice.Tensor", x, len(shape) - 1 if dim == -1 else dim, start or 0, HUGE if end is None else end,
                    shape=made, dtype=dtype)
    return g.fn("operator.getitem", x, (..., slice(start, end, None)), shape=made, dtype=dtype)


def halves_of(g, x, aten, of, at, dim, parts):
    """Two of so many items of a chunk or split."""
    shape, dtype = g.names[x]
    number = parts if of == "chunk" else at if parts == 2 else at - 1
    if of in ("split_with_sizes", "tensor_split"):
        number = [at, shape[dim] - at]
    made = g.fn(f"{ATEN}{of}.{'Tensor' if of == 'split' else 'default'}" if aten else f"torch.{of}", x, number, dim, name=of)
    each = at if parts == 2 else 3
    sizes = [each, shape[dim] - 2 * at if of == "tensor_split" else min(each, shape[dim] - each)]
    items = [g.fn("operator.getitem", made, i, dtype=dtype, name="getitem",
                  shape=[sizes[i] if axis == dim % len(shape) else size for axis, size in enumerate(shape)]) for i in range(2)]
    return items[1], items[0]


def rotated(g, x, aten, at=None, neg_first=True, dim=-1, of=None, parts=2):
    shape, dtype = g.names[x]
    at = at if at is not None else shape[-1] // 2
    if of:
        upper, lower = halves_of(g, x, aten, of, at, dim, parts)
    else:
        upper, lower = part(g, x, at, None, aten), part(g, x, None, at, aten)
    neg = ATEN + "neg.default" if aten else "torch.neg"
    minus = g.fn(neg, upper if neg_first else lower, shape=g.names[upper if neg_first else lower][0], dtype=dtype)
    halves = [minus, lower] if neg_first else [upper, minus]
    cat = ATEN + "cat.default" if aten else "torch.cat"
    args = (halves, dim) if aten else (tuple(halves),)
    return g.fn(cat, *args, shape=shape, dtype=dtype, kwargs=None if aten else {"dim": dim}, name="cat")


def product(g, a, b, aten, shape, dtype="float32"):
    return g.fn(ATEN + "mul.Tensor" if aten else "operator.mul", a, b, shape=shape, dtype=dtype, name="mul")
