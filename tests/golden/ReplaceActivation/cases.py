"""ReplaceActivation."""
from common import nested
from make_cases import Graph, case, refusal

F, ATEN = "torch.nn.functional.", "torch.ops.aten."


def cases():
    def replace(name, graph, applied, *refused, old="relu", new="gelu", **parameters):
        params = {"from": old, "to": new, **({"parameters": parameters} if parameters else {})}
        case("ReplaceActivation", name, graph, applied, *refused, passes=[{"name": "ReplaceActivation", "params": params}])

    def chain(*calls, kwargs=None, dtype="float32", **meta):
        """calls: targets of functions, methods (".relu") or module types; each reads the one before."""
        g = Graph()
        x = g.input(dtype=dtype)
        for target in calls:
            x = step(g, x, target, kwargs, dtype)
        return g.output(x)

    def step(g, x, target, kwargs=None, dtype="float32"):
        if target.startswith("torch.nn.") and target[9].isupper():
            path = g.fresh("act")
            g.module(path, target, kwargs)
            return g.call(path, x)
        if target.startswith("."):
            return g.method(target[1:], x, shape=(2, 4), dtype=dtype, kwargs=kwargs)
        name = target.split(".")[3 if target.startswith(ATEN) else -1]
        return g.fn(target, x, shape=(2, 4), dtype=dtype, name=name, kwargs=kwargs)

    # ---- spellings stay in their family
    replace("module", chain("torch.nn.ReLU"), 1)
    replace("functional", chain(F + "relu"), 1)
    replace("builtin", chain("torch._C._nn.gelu"), 1, old="gelu", new="silu")
    replace("aten", chain(ATEN + "relu.default"), 1)
    def written(act, of_result):
        g = Graph()
        x = step(g, g.input(), "torch.tanh")
        y = step(g, x, F + act)
        g.add_(y if of_result else x)
        return g.output(y)

    replace("input-written-later", written("relu", False), 0, refusal("mutated", "relu"))
    replace("result-written-later", written("relu", True), 1)
    replace("saved-result-written-later", written("gelu", True), 0, refusal("mutated", "gelu"), old="gelu", new="relu")
    replace("torch-stays", chain("torch.relu"), 1, new="tanh")
    replace("torch-to-functional", chain("torch.relu"), 1)
    replace("method-stays", chain(".relu"), 1, new="sigmoid")
    replace("method-to-functional", chain(".relu"), 1)
    replace("all-spellings", chain("torch.nn.ReLU", F + "relu", "torch.relu", ".relu", ATEN + "relu.default"), 5,
            new="hardswish")
    for name in ["gelu", "silu", "hardswish", "relu6", "leaky_relu", "tanh", "sigmoid", "mish"]:
        replace(f"relu-to-{name}", chain("torch.nn.ReLU", F + "relu", ATEN + "relu.default"), 3, new=name)
    replace("aliases-of-names", chain("torch.special.expit", "torch.sigmoid"), 2, old="expit", new="tanh")

    # ---- parameters
    replace("parameters-of-functions", chain("torch.nn.ReLU", F + "relu", ATEN + "relu.default"), 3, approximate="tanh")
    replace("parameters-are-numbers", chain("torch.nn.ReLU", F + "relu"), 2, new="leaky_relu", negative_slope=0.2)
    replace("parameters-go", chain(F + "leaky_relu", kwargs={"negative_slope": 0.3}), 1, old="leaky_relu")
    replace("config-goes", chain("torch.nn.GELU", kwargs={"approximate": "tanh"}), 1, old="gelu", new="relu")
    replace("same-with-other-parameters", chain(F + "gelu"), 1, old="gelu", approximate="tanh")
    replace("unknown-parameter", chain(F + "relu"), 0, refusal("unknown-parameter"), slope=1)
    replace("inplace-is-no-parameter", chain(F + "relu"), 0, refusal("unknown-parameter"), new="silu", inplace=True)

    # ---- names
    replace("unknown-from", chain(F + "relu"), 0, refusal("unknown-activation"), old="swish")
    replace("unknown-to", chain(F + "relu"), 0, refusal("unknown-activation"), new="softmax")
    replace("not-others", chain(F + "silu", "torch.nn.GELU", ATEN + "tanh.default"), 0)
    replace("not-in-this-dialect", chain(ATEN + "relu.default", F + "relu"), 1, refusal("no-spelling", "relu"), new="softsign")

    # ---- keyword input
    g = Graph()
    x = g.input()
    y = g.fn(F + "relu", shape=(2, 4), dtype="float32", kwargs={"input": x})
    y = g.fn(ATEN + "relu.default", shape=(2, 4), dtype="float32", kwargs={"self": y}, name="relu_aten")
    replace("keyword-input", g.output(y), 2, approximate="tanh")

    # ---- modules
    g = Graph()
    g.module("act", "torch.nn.ReLU")
    a = g.call("act", g.input())
    replace("module-called-twice", g.output(g.call("act", a)), 1)
    g = Graph()
    g.module("inner.fc", "torch.nn.ReLU")
    nested(g, "inner", "fc")
    x = g.input()
    replace("module-called-by-a-nested-program", g.output(g.call("inner.fc", x, name="act")), 0, refusal("nested-call", "act"))
    g = Graph()
    g.module("block", "my.Block")
    g.module("block.act", "torch.nn.ReLU")
    x = g.input()
    replace("module-called-out-of-sight", g.output(g.call("block", x), g.call("block.act", x, name="act")), 0,
            refusal("module-read", "act"))
    g = Graph()
    g.module("act", "my.ReLU")
    replace("not-a-subclass", g.output(g.call("act", g.input())), 0)

    # ---- in place
    def in_place(*calls, kwargs=None, on_linear=True, more=False):
        g = Graph()
        x = g.input()
        x = g.linear("fc", x, 4) if on_linear else x
        y = x
        for target in calls:
            y = step(g, y, target, kwargs)
        return g.output(y, x) if more else g.output(y)

    for on, name in [(True, "alone"), (False, "on-an-input")]:
        replace(f"in-place-method-{name}", in_place(".relu_", on_linear=on), int(on),
                *[] if on else [refusal("input-is-read", "relu_")])
    replace("in-place-method-stays", in_place(".relu_", on_linear=False), 1, new="tanh")
    replace("in-place-aten-stays", in_place(ATEN + "relu_.default", on_linear=False), 1, new="silu")
    replace("in-place-torch-stays", in_place("torch.relu_", on_linear=False), 1, new="selu")
    replace("in-place-flag-stays", in_place("torch.nn.ReLU", F + "relu", kwargs={"inplace": True}, on_linear=False),
            2, new="silu")
    replace("in-place-flag-goes", in_place("torch.nn.ReLU", F + "relu", kwargs={"inplace": True}), 2)
    replace("in-place-name-becomes-flag", in_place(F + "relu_", on_linear=False), 1, new="silu")
    replace("in-place-read-elsewhere", in_place(".relu_", more=True), 0, refusal("input-is-read", "relu_"))
    replace("in-place-module-read-elsewhere", in_place("torch.nn.ReLU", kwargs={"inplace": True}, more=True), 0,
            refusal("input-is-read", "act"))
    replace("in-place-chain", in_place(".relu_", ".relu_", ".relu_"), 3)
    g = Graph()
    x = g.linear("fc", g.input(), 4)
    v = g.method("view", x, 4, 2, shape=(4, 2), dtype="float32")
    y = g.method("relu_", v, shape=(4, 2), dtype="float32")
    replace("in-place-through-a-view-that-is-read", g.output(y, x), 0, refusal("input-is-read", "relu_"))

    g = Graph()
    x = g.linear("a", g.input(), 4)
    g.module("act", "torch.nn.ReLU", {"inplace": True})
    x = g.linear("b", g.call("act", x), 4)
    replace("in-place-module-called-twice", g.output(g.call("act", x)), 1)

    # ---- others
    replace("not-floating", chain(F + "relu", dtype="int64"), 0, refusal("not-floating", "relu"), new="tanh")
    replace("out-argument", chain("torch.tanh", kwargs={"out": None}), 1, old="tanh", new="relu")
    g = Graph()
    x, out = g.input(), g.input("y")
    y = g.fn("torch.tanh", x, kwargs={"out": out}, shape=(2, 4), dtype="float32")
    replace("out-argument-given", g.output(y), 0, refusal("unsupported-arguments", "tanh"), old="tanh", new="relu")

    twice = {"name": "ReplaceActivation", "params": {"from": "gelu", "to": "gelu", "parameters": {"approximate": "tanh"}}}
    case("ReplaceActivation", "twice", chain(F + "gelu"), 1, passes=[twice, twice],
         expected=[("ReplaceActivation", 1, []), ("ReplaceActivation", 0, [refusal("already-transformed", "gelu")])])
