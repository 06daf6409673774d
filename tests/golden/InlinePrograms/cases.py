"""InlinePrograms: nested programs as torch.export writes them."""
from cases_layers import ATEN
from make_cases import Graph, Raw, case, refusal

HIGHER = "torch.ops.higher_order."
SHAPE = {"shape": (2, 4), "dtype": "float32"}


def program(path, g, make, outer="", **more):
    """A nested program of one input: `make` gives its results."""
    inner = Graph()
    results = make(inner, inner.input("given"))
    inner.output(tuple(results) if len(results) > 1 else Raw({"$tuple": [{"$node": str(results[0])}]}))
    g.module(outer + path, "torch.fx.GraphModule", graph={"nodes": inner.nodes}, **more)


def run(g, path, x, grad=False, autocast=None, name=None, read=None):
    """The call of the program, and one item."""
    read = read or g.get_attr(path, dtype=None)
    if autocast is None:
        call = g.fn(HIGHER + "wrap_with_set_grad_enabled", grad, read, *x, name=name)
    else:
        call = g.fn(HIGHER + "wrap_with_autocast", "cpu", Raw({"$dtype": "bfloat16"}), autocast, False, read, *x, name=name)
    return call


def item(g, call, index=0, **more):
    return g.fn("operator.getitem", call, index, **{**SHAPE, **more})


def cases():
    def inline(name, graph, applied, *refused, gradients=True):
        passes = [{"name": "InlinePrograms", "params": {"gradients": True}}] if gradients else None
        case("InlinePrograms", name, graph, applied, *refused, passes=passes)

    cos = lambda g, x: [g.fn(ATEN + "cos.default", x, **SHAPE)]
    both = lambda g, x: [g.fn(ATEN + "cos.default", x, **SHAPE, device="cpu"), g.fn(ATEN + "sin.default", x, **SHAPE)]

    def whole(make=cos, change=None, behind=None, **more):
        g = Graph()
        x = g.input()
        program("submod", g, make)
        if change:
            change(g, x)
        call = run(g, "submod", [x], **more)
        y = item(g, call)
        return g.output(g.fn("torch.exp", y, **SHAPE), *(behind(g, call, x) if behind else []))

    refused = lambda reason: refusal(reason, "wrap_with_set_grad_enabled")
    inline("gradients-off", whole(), 1)
    inline("gradients-off-is-not-allowed", whole(), 0, refused("gradient"), gradients=False)
    inline("gradients-on", whole(grad=True), 1, gradients=False)
    inline("autocast-off", whole(autocast=False), 1, gradients=False)
    inline("autocast-on", whole(autocast=True), 0)
    inline("two-results", whole(both, behind=lambda g, call, x: [item(g, call, 1)]), 1)
    inline("one-result-is-not-read", whole(both), 1)
    inline("it-computes-nothing", whole(lambda g, x: [x]), 0, refused("unsupported-arguments"))
    inline("its-input-is-its-result", whole(lambda g, x: [*cos(g, x), x], behind=lambda g, call, x: [item(g, call, 1)]), 1)
    inline("its-result-is-a-number", whole(lambda g, x: [g.fn(ATEN + "cos.default", x, **SHAPE), 2], behind=lambda g, call, x: [
        g.fn("torch.mul", x, item(g, call, 1, shape=None, dtype=None), **SHAPE)]), 1)
    inline("it-asserts", whole(lambda g, x: [g.fn(ATEN + "_assert_tensor_metadata.default", x, kwargs={
        "dtype": Raw({"$dtype": "float32"})}), *cos(g, x)][1:]), 1)
    inline("it-writes", whole(lambda g, x: [g.fn(ATEN + "add_.Tensor", g.fn(ATEN + "cos.default", x, **SHAPE), 1, **SHAPE)]), 1)
    inline("read-as-a-whole", whole(behind=lambda g, call, x: [call]), 0, refused("unsupported-arguments"))
    inline("read-from-the-end", whole(behind=lambda g, call, x: [item(g, call, -1)]), 0, refused("unsupported-arguments"))

    g = Graph()
    x = g.input()
    program("submod", g, cos)
    read = g.get_attr("submod", dtype=None)
    a, b = (item(g, run(g, "submod", [x], read=read)) for _ in range(2))
    inline("run-twice", g.output(a, b), 0, refused("shared-module"), refusal("shared-module", "wrap_with_set_grad_enabled_1"))

    def nest(autocast, kind="wrap_with_autocast", inner=cos):
        g = Graph()
        x = g.input()

        def outer(h, given):
            read = h.get_attr("submod", dtype=None)
            call = run(h, "submod", [given], autocast=autocast, read=read) if kind == "wrap_with_autocast" else h.fn(
                HIGHER + kind, given, read, read, [given])
            return [h.fn(ATEN + "neg.default", item(h, call), **SHAPE), item(h, call)]

        program("submod", g, outer)
        program("submod", g, inner, outer="submod.")
        call = run(g, "submod", [x])
        return g.output(item(g, call), item(g, call, 1))

    inline("a-program-in-it", nest(False), 1)
    inline("autocast-in-it", nest(True), 0, refused("unsupported-operator"))
    inline("a-condition-in-it", nest(False, "cond"), 0, refused("unsupported-operator"))
    inline("two-in-a-row", two_in_a_row(cos), 2)
    inline("autocast-around-it", whole(autocast=False, change=lambda g, x: g.fn(
        "torch.amp.autocast_mode._enter_autocast", "cpu", None, True, None)), 0, refusal("mode-switched", "wrap_with_autocast"))

    g = Graph()
    x = g.input()
    inner = Graph()
    given = inner.input("given")
    weight = inner.get_attr("weight", (2, 4))
    inner.output(Raw({"$tuple": [{"$node": str(inner.fn(ATEN + "mul.Tensor", given, weight, **SHAPE))}]}))
    g.module("submod", "torch.fx.GraphModule", parameters={"weight": g.tensor("w", [2, 4])}, graph={"nodes": inner.nodes})
    inline("it-reads-a-weight", g.output(item(g, run(g, "submod", [x]))), 0, refused("module-read"))

    g = Graph()
    x = g.input()
    inner = Graph()
    given = inner.input("given")
    inner.output(Raw({"$tuple": [{"$node": str(inner.call("fc", given, (2, 4), "float32"))}]}))
    g.module("submod", "torch.fx.GraphModule", graph={"nodes": inner.nodes})
    g.make_linear("submod.fc", 4, 4)
    inline("it-calls-a-module", g.output(item(g, run(g, "submod", [x]))), 0, refused("nested-call"))


def two_in_a_row(cos):
    g = Graph()
    x = g.input()
    for path in ("submod_1", "submod_2"):
        program(path, g, cos)
        x = item(g, run(g, path, [x]))
    return g.output(x)
