"""FuseNorm: a formula becomes one call."""
from common import ATEN, SHAPE, Formula
from make_cases import Raw, case, refusal


def cases():
    def fuse(name, graph, applied, *refused):
        case("FuseNorm", name, graph, applied, *refused)

    SHORT, WEIGHT = (2, 1), {"w": (4,), "b": (4,)}

    def make(dtype="float32", shape=SHAPE, weights=True):
        g = Formula(dtype, shape)
        g.x = g.step(".contiguous", g.x)
        if weights:
            g.module("", "torch.nn.Module", {}, {name: g.tensor(name, size, dtype) for name, size in WEIGHT.items()})
        return g

    def vector(g, name="w"):
        return g.get_attr(name, (4,), g.dtype)

    def inverse_root(g, x, eps=1e-6, dim=-1, short=SHORT, dtype=None, **more):
        mean = g.step(".mean", g.step(".pow", x, 2, dtype=dtype), dim, shape=short, dtype=dtype, keepdim=True)
        return g.step("torch.rsqrt", g.step("operator.add", mean, eps, shape=short, dtype=dtype), shape=short, dtype=dtype)

    def rms(g, x=None, dtype=None, **more):
        x = x or g.x
        return g.step("operator.mul", x, inverse_root(g, x, dtype=dtype, **more), dtype=dtype)

    g = make()
    fuse("rms-norm", g.end(g.step("operator.mul", vector(g), rms(g))), 1)
    g = make(weights=False)
    fuse("rms-norm-without-weight", g.end(rms(g)), 1)
    for dtype in ("float16", "bfloat16"):
        g = make(dtype)
        wide = g.step(".to", g.x, Raw({"$dtype": "float32"}), dtype="float32")
        y = g.step(".to", rms(g, wide, dtype="float32"), Raw({"$dtype": dtype}))
        fuse(f"rms-norm-with-casts-{dtype}", g.end(g.step("operator.mul", vector(g), y)), 1)
    g = make("float16", weights=False)
    fuse("rms-norm-of-float16-overflows", g.end(rms(g)), 0, refusal("overflows", "mul"))

    def centred(g):
        return g.step("operator.sub", g.x, g.step(".mean", g.x, [-1], True, shape=SHORT))

    def layer_norm(g, eps=1e-5, inside=True):
        y = centred(g)
        variance = g.step(".mean", g.step(".pow", y, 2), -1, True, shape=SHORT)
        if inside:
            variance = g.step("operator.add", variance, eps, shape=SHORT)
        root = g.step("torch.sqrt", variance, shape=SHORT)
        if not inside:
            root = g.step("operator.add", root, eps, shape=SHORT)
        return g.step("operator.truediv", y, root)

    g = make()
    y = g.step("operator.mul", layer_norm(g), vector(g))
    fuse("layer-norm", g.end(g.step("operator.add", y, vector(g, "b"))), 1)
    g = make(weights=False)
    fuse("layer-norm-aten", g.end(aten_layer_norm(g)), 1)
    g = make(weights=False)
    fuse("epsilon-outside-of-the-root", g.end(layer_norm(g, 1e-3, False)), 0, refusal("another-function", "truediv"))
    g = make()
    wide = g.input("y", SHAPE)
    fuse("weight-of-other-sizes-stays", g.end(g.step("operator.mul", rms(g), wide)), 1)
    g = make(shape=(4, 4), weights=False)
    fuse("not-over-another-axis", g.end(rms(g, dim=0, short=(1, 4))), 0)
    g = make(weights=False)
    root = inverse_root(g, g.x)
    fuse("root-with-other-readers", g.end(g.step("operator.mul", g.x, root), root), 0,
         refusal("other-readers", "pow", "mean", "add", "rsqrt", "mul"))
    g = make(weights=False)
    root = inverse_root(g, g.x)
    g.add_(g.x)
    fuse("input-written-between", g.end(g.step("operator.mul", g.x, root)), 0,
         refusal("input-mutated", "pow", "mean", "add", "rsqrt", "mul"))
    g = make(weights=False)
    y = rms(g)
    g.add_(g.x)
    fuse("input-written-later", g.end(y), 0, refusal("mutated", "pow", "mean", "add", "rsqrt", "mul"))
    g = make(weights=False)
    y = rms(g, short=None)
    for row in g.nodes:
        row["meta"].pop("shape", None)
    fuse("unknown-shape", g.end(y), 0, refusal("unknown-shape", "pow", "mean", "add", "rsqrt", "mul"))
    g = make(weights=False)
    turned = g.step(".transpose", g.x, 0, 1, shape=(4, 2))
    y = g.step("operator.mul", turned, inverse_root(g, turned, short=(4, 1)), shape=(4, 2))
    fuse("needs-contiguous", g.output(g.step(".view", y, -1, shape=(8,))), 0,
         refusal("needs-contiguous", "pow", "mean", "add", "rsqrt", "mul"))

    g = Formula()  # an input may lie in any order, and so does what is computed of it, but not a norm's result
    fuse("an-input-in-any-order", g.end(rms(g)), 0, refusal("needs-contiguous", "pow", "mean", "add", "rsqrt", "mul"))
    g = Formula()
    g.output(g.linear("fc", rms(g), 3))
    fuse("an-input-in-any-order-before-a-linear", g, 1)

    def softmax(g, shifted=True):
        y = g.x
        if shifted:
            y = g.step("operator.sub", y, g.step("torch.amax", y, -1, True, shape=SHORT))
        e = g.step("torch.exp", y)
        return y, g.step(".sum", e, -1, True, shape=SHORT), e

    g = make(weights=False)
    _, total, e = softmax(g)
    fuse("softmax", g.end(g.step("operator.truediv", e, total)), 1)
    g = make(weights=False)
    y, total, _ = softmax(g)
    fuse("log-softmax", g.end(g.step("operator.sub", y, g.step("torch.log", total, shape=SHORT))), 1)
    g = make(weights=False)
    _, total, e = softmax(g, False)
    fuse("softmax-that-overflows", g.end(g.step("operator.truediv", e, total)), 0, refusal("overflows", "truediv"))

    def l2(g, find, times="operator.truediv", y=None):
        return g.step(times, g.x, y or find(g))

    def root_of_squares(g, *bound, dim=-1, short=SHORT):
        total = g.step(".sum", g.step("torch.square", g.x), dim, True, shape=short)
        total = g.step("torch.clamp", total, *bound, shape=short) if bound else total
        return g.step("torch.sqrt", total, shape=short)

    def bounded(g, target=".norm", *args, bound=(".clamp_min", 1e-12), short=SHORT, **kwargs):
        norm = g.step(target, g.x, *args, shape=short, **kwargs)
        return g.step(bound[0], norm, *bound[1:], shape=short)

    g = make(weights=False)
    fuse("normalize", g.end(l2(g, lambda g: bounded(g, ".norm", 2, -1, True))), 1)
    g = make(weights=False, shape=(4, 4))
    short = bounded(g, ".norm", 2, 0, True, short=(1, 4))
    fuse("normalize-along-the-first-axis", g.end(g.step("operator.truediv", g.x, g.step(".expand_as", short, g.x))), 1)
    g = make(weights=False)
    fuse("normalize-of-squares", g.end(l2(g, lambda g: root_of_squares(g, 1e-24))), 1)
    g = make("float16", weights=False)
    fuse("normalize-float16", g.end(l2(g, lambda g: bounded(g, ".norm", 2, -1, True, bound=(".clamp", 1e-5)))), 1)
    g = make(weights=False)
    of_linalg = bounded(g, "torch.linalg.norm", ord=2, dim=-1, keepdim=True)
    fuse("normalize-by-linalg-norm", g.end(l2(g, None, y=of_linalg)), 1)
    g = make(weights=False)
    turned = g.step(".transpose", g.x, 0, 1, shape=(4, 2))
    norm = g.step(".clamp_min", g.step(".norm", turned, 2, -1, True, shape=(4, 1)), 1e-12, shape=(4, 1))
    y = g.step("operator.truediv", turned, norm, shape=(4, 2))
    fuse("normalize-lies-like-its-input", g.output(g.step(".t", y, shape=SHAPE)), 1)
    g = make(weights=False)
    added = bounded(g, ".norm", 2, -1, True, bound=("operator.add", 1e-3))
    fuse("normalize-with-an-addend", g.end(l2(g, None, y=added)), 0, refusal("another-function", "truediv"))
    g = make(weights=False)
    fuse("normalize-without-bound-stays", g.end(l2(g, root_of_squares)), 0)
    g = make(weights=False)
    fuse("normalize-by-another-norm-stays", g.end(l2(g, lambda g: bounded(g, ".norm", 1, -1, True))), 0)
    g = make(weights=False)
    y = g.step(ATEN + "linalg_vector_norm.default", g.x, 2, [-1], True, shape=SHORT)
    y = g.step(ATEN + "clamp_min.default", y, 1e-12, shape=SHORT)
    fuse("normalize-is-not-in-aten", g.end(g.step(ATEN + "div.Tensor", g.x, y)), 0)


def aten_layer_norm(g):
    short = (2, 1)
    y = g.step(ATEN + "sub.Tensor", g.x, g.step(ATEN + "mean.dim", g.x, [-1], True, shape=short))
    squares = g.step(ATEN + "pow.Tensor_Scalar", y, 2)
    variance = g.step(ATEN + "add.Tensor", g.step(ATEN + "mean.dim", squares, [-1], True, shape=short), 1e-5, shape=short)
    return g.step(ATEN + "mul.Tensor", y, g.step(ATEN + "rsqrt.default", variance, shape=short))
