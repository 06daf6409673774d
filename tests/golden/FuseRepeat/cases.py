"""FuseRepeat: grouped heads as transformers write them, in both dialects."""
from cases_layers import ATEN
from make_cases import Graph, case, refusal


def cases():
    def fuse(name, graph, applied, *refused):
        case("FuseRepeat", name, graph, applied, *refused)

    def grouped(aten=True, shape=(2, 3, 16, 8), count=4, axis=1, before=None, behind=None, merged=None,
                expanded=None, first=None):
        g = Graph()
        x = g.relu(g.input("x", shape)) if not first else first(g, g.input("x", shape))
        wide = shape[: axis + 1] + (1,) + shape[axis + 1 :]
        many = expanded or shape[: axis + 1] + (count,) + shape[axis + 1 :]
        whole = merged or shape[:axis] + (shape[axis] * count,) + shape[axis + 1 :]
        f = {"dtype": "float32"}
        if aten:
            u = g.fn(ATEN + "unsqueeze.default", x, axis + 1, shape=wide, **f, name="unsqueeze")
            e = g.fn(ATEN + "expand.default", u, list(many), shape=many, **f, name="expand")
            r = g.fn(ATEN + "reshape.default", e, list(whole), shape=whole, **f, name="reshape")
        else:
            u = g.method("unsqueeze", x, axis + 1, shape=wide, **f)
            e = g.method("expand", u, *many, shape=many, **f)
            r = g.method("reshape", e, *whole, shape=whole, **f)
        more = behind(g, x, u, e, r) if behind else []
        return g.output(g.fn("torch.exp", r, shape=whole, **f), *more)

    exp = lambda g, x: [g.fn("torch.exp", x, shape=g.names[x][0], dtype="float32")]
    fuse("aten", grouped(), 1)
    fuse("methods", grouped(aten=False), 1)
    fuse("last-dimension", grouped(axis=3), 1)
    fuse("first-dimension", grouped(axis=0), 1)
    fuse("symbolic-batch", grouped(shape=("s0", 3, 16, 8)), 1)
    fuse("one-part", grouped(shape=(2, 1, 16, 8)), 0)
    fuse("symbolic-parts", grouped(shape=(2, "s0", 16, 8), merged=(2, "s1", 16, 8)), 0)
    fuse("merges-otherwise", grouped(merged=(2, 3, 64, 8)), 0)
    fuse("expands-more", grouped(shape=(1, 3, 16, 8), expanded=(2, 3, 4, 16, 8), merged=(2, 12, 16, 8)), 0)
    fuse("expansion-has-other-readers", grouped(behind=lambda g, x, u, e, r: exp(g, e)), 0)
    fuse("unsqueezed-has-other-readers", grouped(behind=lambda g, x, u, e, r: exp(g, u)), 1)
    fuse("written-later", grouped(behind=lambda g, x, u, e, r: [g.add_(x)]), 0, refusal("mutated", "reshape"))
    fuse("copy-is-written", grouped(behind=lambda g, x, u, e, r: [g.add_(r)]), 0, refusal("mutated", "reshape"))
    fuse("an-input-that-may-be-expanded", grouped(first=lambda g, x: x, behind=lambda g, x, u, e, r: [g.method(
        "stride", r)]), 0, refusal("needs-contiguous", "reshape"))
    fuse("behind-an-input", grouped(first=lambda g, x: x), 0, refusal("needs-contiguous", "reshape"))
