"""FuseActivation: a formula becomes one call."""
import math

from common import ATEN, SHAPE, Formula
from make_cases import Graph, case, refusal

F = "torch.nn.functional."


def before_layers():
    """A preset finds a formula whose last factor a fold could take into the layer behind it."""
    gelu = lambda bend: lambda g: g.step("operator.mul", g.step("operator.mul", g.x, g.step("operator.add", 1, bend(g))), 0.5)
    erf = lambda g: g.step("torch.erf", g.step("operator.truediv", g.x, math.sqrt(2)))

    def tanh(g):
        cube = g.step("operator.mul", g.step("operator.mul", g.step("operator.mul", 0.044715, g.x), g.x), g.x)
        return g.step("torch.tanh", g.step("operator.mul", math.sqrt(2 / math.pi), g.step("operator.add", g.x, cube)))

    def hardswish(g):
        return g.step("operator.truediv", g.step("operator.mul", g.x, g.step(F + "relu6", g.step("operator.add", g.x, 3))), 6)

    for name, spelt in (("hardswish", hardswish), ("erf-gelu", gelu(erf)), ("tanh-gelu", gelu(tanh))):
        for layer, shape in (("linear", (2, 4)), ("conv", (2, 4, 3, 3))):
            g = Formula(shape=shape)
            y = spelt(g)
            g.output(g.conv("layer", y, 5) if layer == "conv" else g.linear("layer", y, 5))
            case("FuseActivation", f"{name}-before-a-{layer}", g, None, passes=["FuseActivation", "FoldScaleIntoLinear"],
                 expected=[("FuseActivation", 1, []), ("FoldScaleIntoLinear", 0, [])])


def cases():
    before_layers()

    def fuse(name, graph, applied, *refused):
        case("FuseActivation", name, graph, applied, *refused)

    def tanh_gelu(g):
        cube = g.step("torch.pow", g.x, 3.0)
        inner = g.step("operator.add", g.x, g.step("operator.mul", 0.044715, cube))
        bent = g.step("torch.tanh", g.step("operator.mul", math.sqrt(2 / math.pi), inner))
        return g.step("operator.mul", g.step("operator.mul", 0.5, g.x), g.step("operator.add", 1.0, bent))

    def erf_gelu(g, root=math.sqrt(2)):
        bent = g.step("torch.erf", g.step("operator.truediv", g.x, root))
        return g.step("operator.mul", g.step("operator.mul", g.x, 0.5), g.step("operator.add", bent, 1.0))

    def gated(g, gate, times="operator.mul", **more):
        return g.step(times, g.x, g.step(gate, g.x, **more))

    for dtype in ("float32", "float64", "float16", "bfloat16"):
        g = Formula(dtype)
        fuse(f"tanh-gelu-{dtype}", g.end(tanh_gelu(g)), 1)
    g = Formula()
    fuse("erf-gelu", g.end(erf_gelu(g)), 1)
    g = Formula()
    fuse("erf-gelu-with-a-rough-constant", g.end(erf_gelu(g, 1.41421)), 0, refusal("another-function", "mul_1"))
    g = Formula()
    fuse("silu-methods", g.end(gated(g, ".sigmoid", ".mul")), 1)
    g = Formula()
    fuse("silu-aten", g.end(gated(g, ATEN + "sigmoid.default", ATEN + "mul.Tensor")), 1)
    g = Formula()
    g.module("gate", "torch.nn.Sigmoid")
    fuse("silu-module", g.end(g.step("operator.mul", g.x, g.call("gate", g.x))), 1)
    g = Formula()
    fuse("mish", g.end(g.step("operator.mul", g.x, g.step("torch.tanh", g.step(F + "softplus", g.x)))), 1)
    g = Formula()
    six = g.step(F + "relu6", g.step("operator.add", g.x, 3))
    fuse("hardswish", g.end(g.step("operator.truediv", g.step("operator.mul", g.x, six), 6)), 1)

    g = Formula("float16")
    six = g.step(F + "relu6", g.step("operator.add", g.x, 3))
    fuse("hardswish-that-overflows", g.end(g.step("operator.truediv", g.step("operator.mul", g.x, six), 6)), 0,
         refusal("overflows", "truediv"))
    g = Formula()
    fuse("quick-gelu", g.end(g.step("operator.mul", g.x, g.step("torch.sigmoid", g.step("operator.mul", 1.702, g.x)))), 0,
         refusal("another-function", "mul_1"))
    g = Formula()
    e = g.step("torch.exp", g.x)
    gate = g.step("operator.truediv", e, g.step("operator.add", e, 1.0))
    fuse("silu-that-overflows", g.end(g.step("operator.mul", g.x, gate)), 0, refusal("overflows", "mul"))
    g = Formula()
    gate = g.step("torch.sigmoid", g.x)
    fuse("gate-with-other-readers", g.end(g.step("operator.mul", g.x, gate), gate), 0,
         refusal("other-readers", "sigmoid", "mul"))
    g = Formula()
    gate = g.step("torch.sigmoid", g.x)
    g.add_(g.x)
    fuse("input-written-between", g.end(g.step("operator.mul", g.x, gate)), 0, refusal("input-mutated", "sigmoid", "mul"))
    g = Formula()
    y = gated(g, "torch.sigmoid")
    g.add_(g.x)
    fuse("input-written-later", g.end(y), 0, refusal("mutated", "sigmoid", "mul"))
    g = Formula()
    y = gated(g, "torch.sigmoid")
    g.add_(y)
    fuse("result-written-later", g.end(y), 1)
    g = Formula()
    gate = g.step("torch.sigmoid", g.x)
    g.node("off", "call_function", "torch._C._set_grad_enabled", [False], {}, None, None)
    fuse("mode-switched-between", g.end(g.step("operator.mul", g.x, gate)), 0, refusal("mode-switched", "sigmoid", "mul"))
    g = Formula()
    y = g.input("y", SHAPE)
    fuse("not-a-gate-of-another", g.end(g.step("operator.mul", y, g.step("torch.sigmoid", g.x))), 0)
    g = Formula()
    fuse("not-in-place", g.end(g.step(".mul_", g.step("torch.sigmoid", g.x), g.x)), 0)
    g = Formula("int64")
    fuse("not-of-integers", g.end(g.step("operator.mul", g.x, g.step("torch.sigmoid", g.x, dtype="float32"), dtype="float32")),
         0)
    g = Graph()
    x = g.input(shape=None, dtype=None)
    y = g.fn("operator.mul", x, g.fn("torch.sigmoid", x))
    fuse("unknown-dtype", g.output(g.method("neg", y)), 0, refusal("unknown-dtype", "sigmoid", "mul"))
    g = Formula(shape=("s0", 4))
    fuse("symbolic-size", g.end(gated(g, "torch.sigmoid")), 1)
