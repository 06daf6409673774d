"""ConvertPrecision."""
import base64
import struct

from common import nested
from make_cases import Graph, Raw, case, refusal

F, ATEN = "torch.nn.functional.", "torch.ops.aten."
FLOAT32 = Raw({"$dtype": "float32"})
LEAST = -3.4028234663852886e38


def cases():
    def convert(name, graph, applied, *refused, to="float16", **params):
        case("ConvertPrecision", name, graph, applied, *refused,
             passes=[{"name": "ConvertPrecision", "params": {"to": to, **params}}])

    def fn(g, target, *args, shape=(2, 4), dtype="float32", **more):
        name = target.split(".")[3 if target.startswith(ATEN) else -1]
        return g.fn(target, *args, shape=shape, dtype=dtype, name=name, **more)

    def layer_norm(g, path, x):
        n = [g.names[x][0][-1]]
        g.module(path, "torch.nn.LayerNorm", {"normalized_shape": tuple(n), "eps": 1e-5},
                 {a: g.tensor(f"{path}.{a}", n) for a in ("weight", "bias")})
        return g.call(path, x)

    def block():
        g = Graph()
        y = layer_norm(g, "block.norm", g.linear("block.fc", g.input(), 4))
        y = g.relu(y)
        return g, fn(g, F + "softmax", y, kwargs={"dim": -1})

    # ---- both dialects
    for to in ["float16", "bfloat16"]:
        g, y = block()
        convert(f"modules-{to}", g.output(y), 1, to=to)
        g = Graph()
        x, w, b = g.input(), weight(g, "fc.weight", [4, 4]), weight(g, "fc.bias", [4])
        convert(f"aten-{to}", g.output(fn(g, ATEN + "linear.default", x, w, b)), 1, to=to)
    g, y = block()
    convert("outputs-stay-converted", g.output(y), 1, cast_outputs=False)
    g = Graph()
    g.output(g.method("relu", g.input(), shape=(2, 4), dtype="float32"))
    g.nodes[-1]["meta"] = {"shape": [2, 4], "dtype": "float32"}
    convert("output-stays-converted-and-says-so", g, 1, cast_outputs=False)

    def copied(first, second, before=False, behind=False, returned=False):
        """A cast of what is written before it, or behind, or returned as well."""
        g = Graph()
        x = fn(g, "torch.mul", g.input(dtype=first), 2.0, dtype=first)
        write = lambda: g.method("add_", x, 1, shape=(2, 4), dtype=first)
        if before:
            write()
        y = g.method("to", x, Raw({"$dtype": second}), shape=(2, 4), dtype=second)
        if behind:
            write()
        return g.output(*([x, y] if returned else [fn(g, "torch.sin", y, dtype=second)]))

    for first, second in (("float16", "float32"), ("float32", "float16")):
        convert(f"copy-of-{first}-that-is-written", copied(first, second, behind=True), int(first == "float16"),
                refusal("mutated", "to"))
        convert(f"copy-of-{first}-that-was-written", copied(first, second, before=True), 1)
        convert(f"copy-of-{first}-that-is-returned", copied(first, second, returned=True), 1)
        convert(f"copy-of-{first}-that-is-returned-as-it-is", copied(first, second, returned=True), 0, refusal("mutated", "to"),
                cast_outputs=False)
    g = Graph()
    x = g.input()
    y = g.relu(x)
    questions = [g.fn(f"torch.{name}", y, x, name=name) for name in ("allclose", "equal", "result_type")]
    convert("questions-about-two-values", g.output(y, *questions), 1)
    g = Graph()
    x = g.input()
    y = g.fn("operator.mul", g.method("select", x, 0, g.input("i", (), "int64"), shape=None, dtype="float32"), 2.0, shape=None,
             dtype="float32")
    g.output(g.fn("operator.matmul", y, g.fn("builtins.getattr", y, "mT", name="turned"), name="product"))
    convert("attribute-of-unknown-dtype", g, 1, refusal("unknown-dtype", "turned"))
    g = Graph()
    x = g.input(shape=(4, 4))
    eye = g.fn("torch.eye", 4, shape=(4, 4), dtype="float32", name="eye", kwargs={"dtype": FLOAT32})
    convert("factory-that-is-told-its-dtype",
            g.output(g.fn("torch.cdist", x, eye, shape=(4, 4), dtype="float32", name="cdist")), 1,
            refusal("no-kernel", "cdist"))
    g = Graph()
    x = g.input()
    convert("several-readers-one-cast", g.output(g.linear("a", x, 4), g.linear("b", x, 4), x), 1)
    g = Graph()
    x, y = g.input(), g.input("y", dtype="float64")
    convert("integers-and-float64-stay", g.output(fn(g, "torch.add", g.relu(x), y, dtype="float64"),
                                                  g.input("i", dtype="int64")), 1)
    g = Graph()
    ids = g.input("ids", (2, 3), "int64")
    g.module("embed", "torch.nn.Embedding", {"num_embeddings": 9, "embedding_dim": 4},
             {"weight": g.tensor("embed.weight", [9, 4])})
    y = g.call("embed", ids, (2, 3, 4), "float32")
    g.module("head", "torch.nn.Linear", {"in_features": 4, "out_features": 9, "bias": False},
             {"weight": "embed.weight", "bias": None})
    convert("tied-weights-stay-tied", g.output(g.call("head", y, (2, 3, 9))), 1)
    for kind, more in (("EmbeddingBag", {"mode": "mean"}), ("Embedding", {})):  # reads integers, and gives what its weight is
        g = Graph()
        g.module("embed", f"torch.nn.{kind}", {"num_embeddings": 9, "embedding_dim": 4, **more},
                 {"weight": g.tensor("embed.weight", [9, 4])})
        shape = (3, 4) if more else (3, 6, 4)
        convert(f"{kind.lower()}-gives-its-weights-dtype",
                g.output(g.linear("fc", g.call("embed", g.input("ids", (3, 6), "int64"), shape, "float32"), 4)), 1)
    g = Graph()
    y = g.norm("bn", g.conv("conv", g.input(shape=(1, 3, 6, 6)), 4))
    convert("buffers", g.output(y), 1)
    g = Graph()
    x = g.input(dtype="float64")
    convert("not-float64", g.output(g.relu(x)), 0)
    g = Graph()
    x = g.input(shape=(2, 4))
    parts = fn(g, "torch.chunk", x, 2, 1, shape=None, dtype=None)
    y = fn(g, "operator.getitem", parts, 0, shape=(2, 2))
    convert("tuples", g.output(g.relu(y)), 1)

    # ---- keep
    def kept(name, *keep, refused=()):
        g, y = block()
        convert(f"keep-{name}", g.output(y), 1, *refused, keep=list(keep))

    kept("an-operator", "softmax")
    kept("an-operator-and-a-layer", "softmax", "layer_norm")
    kept("a-path", "block.norm")
    kept("a-path-around", "block")
    kept("a-pattern", "*.no?m")
    kept("nothing", "block.nor", refused=[refusal("keeps-nothing")])
    g = Graph()
    x, w, b = g.input(), weight(g, "norm.weight", [4]), weight(g, "norm.bias", [4])
    y = fn(g, ATEN + "layer_norm.default", fn(g, ATEN + "relu.default", x), [4], w, b, 1e-5)
    convert("aten-keep-a-layer-and-its-weights", g.output(fn(g, ATEN + "relu.default", y)), 1, keep=["layer_norm"])
    g = Graph()
    x, w = g.input(shape=(4, 4)), weight(g, "w", [4, 4])
    y = fn(g, ATEN + "matmul.default", x, w, shape=(4, 4))
    convert("aten-keep-a-path", g.output(fn(g, ATEN + "softmax.int", fn(g, ATEN + "add.Tensor", y, weight(g, "m.s", [4])), -1,
                                            shape=(4, 4))), 1, keep=["m"])
    g = Graph()
    a = g.linear("fc", g.input(), 4)
    convert("keep-a-module-called-twice", g.output(g.call("fc", g.relu(a))), 1, keep=["fc"])

    # ---- literals
    def masked(value, dtype="float32"):
        g = Graph()
        x, mask = g.input(), g.input("mask", dtype="bool")
        return g.output(g.method("masked_fill", x, mask, value, shape=(2, 4), dtype=dtype))

    convert("literal-least", masked(LEAST), 1, refusal("literal-overflows", "masked_fill"))
    convert("literal-least-bfloat16", masked(LEAST), 1, refusal("literal-overflows", "masked_fill"), to="bfloat16")
    convert("literal-large", masked(-1e9), 1, refusal("literal-overflows", "masked_fill"))
    convert("literal-fits-bfloat16", masked(-1e9), 1, to="bfloat16")
    convert("literal-infinite", masked(float("-inf")), 1)
    g = Graph()
    y = fn(g, "operator.mul", fn(g, "operator.mul", g.input(), LEAST), 1e6)
    convert("literal-factors", g.output(y), 1, refusal("literal-overflows", "mul"))
    g = Graph()
    x = g.input()
    y = g.method("to", x, FLOAT32, shape=(2, 4), dtype="float32")
    info = fn(g, "torch.finfo", FLOAT32, shape=None, dtype=None)
    least = fn(g, "builtins.getattr", info, "min", shape=None, dtype=None)
    z = g.method("masked_fill", y, g.input("mask", dtype="bool"), least, shape=(2, 4), dtype="float32")
    s = fn(g, F + "softmax", z, kwargs={"dim": -1, "dtype": FLOAT32})
    convert("dtypes-in-arguments", g.output(s), 1)
    g = Graph()
    x = g.input(dtype="int64")
    y = g.method("float", x, shape=(2, 4), dtype="float32")
    z = fn(g, "torch.zeros", 2, 4)
    o = fn(g, "torch.full", [2, 4], 0.5, kwargs={"dtype": FLOAT32})
    convert("float-method-and-factories", g.output(fn(g, "torch.add", fn(g, "torch.add", y, z), o)), 1)
    g = Graph()
    x = g.input(dtype="int64")
    convert("float32-of-integers", g.output(fn(g, "torch.mul", fn(g, "torch.div", x, 2), g.input("y"))), 1)
    g = Graph()
    x = g.input()
    dtype = fn(g, "builtins.getattr", x, "dtype", shape=None, dtype=None)
    y = g.method("to", g.input("i", dtype="int64"), dtype, shape=(2, 4), dtype="float32")
    convert("dtype-of-a-value", g.output(fn(g, "torch.add", x, y)), 1)
    g = Graph()
    x = g.input()
    size = g.method("size", x, 0, shape=None, dtype=None)
    convert("sizes-need-no-cast", g.output(fn(g, "torch.zeros", size, 4, shape=(2, 4))), 1)
    g = Graph()
    x = g.input()
    fn(g, ATEN + "_assert_tensor_metadata.default", x, None, None, FLOAT32, shape=None, dtype=None)
    y = fn(g, ATEN + "to.dtype", x, FLOAT32)
    convert("assertion-of-the-dtype", g.output(fn(g, ATEN + "relu.default", y)), 1)
    g = Graph()
    x = g.input()
    y = g.method("to", x, Raw({"$dtype": "float64"}), shape=(2, 4), dtype="float64")
    convert("not-a-cast-to-another-dtype", g.output(y), 0)

    # ---- weights that overflow
    for name, numbers, found in [("too-large", [1.0, 70000.0], [refusal("tensor-overflows", "fc")]),
                                 ("large-enough", [1.0, 65504.0], [])]:
        g = Graph()
        g.tensor("fc.bias", [2], data=floats(*numbers))
        convert(f"weights-{name}", g.output(g.linear("after", g.linear("fc", g.input(), 2), 2)), 1, *found)
    g = Graph()
    x = g.linear("fc", g.input(), 2)
    read = g.method("view", weight(g, "mask", [2]), 1, 2, shape=(1, 2), dtype="float32")
    g.tensors["mask"]["data"] = floats(0.0, -3e38)
    convert("weights-too-large-read", g.output(g.relu(fn(g, "operator.add", x, read, shape=(2, 2)))), 1,
            refusal("tensor-overflows", "view"), refusal("tensor-overflows", "add"))
    g = Graph()
    x = g.input()
    g.tensor("fc.bias", [2], data=floats(1.0, 70000.0))
    convert("weights-too-large-kept", g.output(g.linear("after", g.linear("fc", x, 2), 2)), 1, keep=["fc"])

    # ---- in place
    g = Graph()
    x = g.linear("fc", g.input(), 4)
    convert("in-place-among-converted", g.output(g.relu(g.add_(x))), 1)
    g = Graph()
    x = g.input()
    y = g.add_(x)
    convert("in-place-on-an-input", g.output(g.linear("fc", y, 4), x), 1)
    g = Graph()
    x = g.linear("fc", g.input(), 4)
    v = g.method("view", x, 4, 2, shape=(4, 2), dtype="float32")
    y = fn(g, F + "softmax", v, shape=(4, 2), kwargs={"dim": -1})
    g.add_(x)
    z = fn(g, F + "softmax", v, shape=(4, 2), kwargs={"dim": -1})
    convert("in-place-between-casts", g.output(y, z), 1, keep=["softmax"])
    g = Graph()
    cache = weight(g, "cache", [2, 4])
    y = fn(g, ATEN + "copy_.default", cache, g.input())
    convert("in-place-on-a-buffer", g.output(fn(g, ATEN + "relu.default", y)), 1)

    # ---- what stays
    g = Graph()
    x = g.linear("fc", g.input(), 4)
    convert("unknown-operator", g.output(g.relu(fn(g, "my.kernel", x))), 1, refusal("unknown-operator", "kernel"))
    g = Graph()
    x = g.input()
    y = g.linear("a", x, 4)
    wanted = fn(g, "builtins.getattr", y, "dtype", shape=None, dtype=None)
    strange = fn(g, "my.kernel", x, shape=None, dtype=None)
    cast = g.method("to", strange, wanted, shape=(2, 4), dtype="float32")
    convert("dtype-asked-of-what-is-converted", g.output(cast, y, fn(g, "torch.add", y, cast)), 1,
            refusal("unknown-operator", "kernel"))
    g = Graph()
    x = g.input()
    before = g.linear("a", x, 4)
    mode = g.fn("torch.amp.autocast_mode._enter_autocast", "cpu", Raw({"$dtype": "bfloat16"}), True, True, name="enter")
    inside = g.linear("b", before, 4, meta=False)
    g.fn("torch.amp.autocast_mode._exit_autocast", mode, name="exit")
    convert("autocast", g.output(g.relu(before), inside), 1, refusal("autocast", "b"))
    g = Graph()
    y = g.linear("fc", g.input(dtype="bfloat16"), 4, dtype="bfloat16")
    convert("mixed-dtypes", g.output(g.norm("bn", y, spatial=1)), 0, refusal("mixed-dtypes", "bn"))
    g = Graph()
    x, w = g.input(dtype="bfloat16"), weight(g, "w", [4])
    y = fn(g, ATEN + "mul.Tensor", x, w)
    convert("aten-mixed-dtypes", g.output(g.relu(y)), 1, refusal("mixed-dtypes", "mul"))
    g = Graph()
    g.module("mine", "my.Layer", parameters={"weight": g.tensor("mine.weight", [4])})
    convert("unknown-module", g.output(g.relu(g.call("mine", g.input()))), 1, refusal("unknown-operator", "mine"))
    g = Graph()
    x = g.input(shape=(2, 4, 2))
    y = fn(g, "torch.view_as_complex", g.relu(x), shape=(2, 4), dtype="complex64")
    convert("complex", g.output(fn(g, "torch.view_as_real", y, shape=(2, 4, 2))), 1, refusal("complex", "view_as_complex"))
    g = Graph()
    a = g.linear("part.fc", g.input(), 4, name="fc")
    nested(g, "part", "fc")
    convert("a-nested-program-calls-it-too", g.output(g.relu(a)), 1)
    g = Graph()
    convert("unknown-input", g.output(g.linear("fc", g.input(dtype=None, shape=None), 4, 4)), 0, refusal("unknown-dtype", "x"))

    # ---- no kernel, bytes, and values whose dtype is not recorded
    g = Graph()
    y = g.linear("fc", g.input(shape=(4, 4)), 4)
    convert("no-kernel", g.output(g.relu(fn(g, "torch.linalg.inv", y, shape=(4, 4)))), 1, refusal("no-kernel", "inv"))
    g = Graph()
    x = g.input()
    y = g.linear("fc", x, 4)
    convert("no-kernel-of-two", g.output(fn(g, "torch.cdist", y, y, shape=(2, 2))), 1, refusal("no-kernel", "cdist"),
            to="bfloat16")
    g = Graph()
    y = g.method("view", g.linear("fc", g.input(), 4), Raw({"$dtype": "int32"}), shape=(2, 4), dtype="int32")
    convert("bytes-are-read", g.output(y), 1, refusal("reinterprets", "view"))
    g = Graph()
    y = g.fn(ATEN + "view.dtype", g.linear("fc", g.input(), 4), Raw({"$dtype": "int32"}), shape=(2, 4), dtype="int32")
    convert("bytes-are-read-aten", g.output(y), 1, refusal("reinterprets", y))

    def untyped(make):
        g = Graph()
        y = make(g, g.linear("a", g.input(), 4))
        return g.output(g.call("b", y, (2, 4), "float32"), g.make_linear("b", 4, 4) or y)

    convert("untyped-float", untyped(lambda g, y: g.method("float", y)), 1)
    convert("untyped-to-float32", untyped(lambda g, y: g.method("to", y, FLOAT32)), 1)
    convert("untyped-factory", untyped(lambda g, y: fn(g, "torch.zeros", 2, 4, shape=None, dtype=None)), 1)
    convert("untyped-to-double", untyped(lambda g, y: g.method("float", g.method("double", y))), 1)
    convert("untyped-unknown", untyped(lambda g, y: g.fn("my.kernel", g.fn("torch.relu", y))), 1,
            refusal("unknown-operator", "kernel"))
    convert("untyped-no-kernel", untyped(lambda g, y: g.fn("torch.linalg.inv", g.fn("torch.relu", y))), 1,
            refusal("no-kernel", "inv"))
    convert("untyped-cast-to-the-type-of-another", untyped(lambda g, y: g.method("type", y, "torch.FloatTensor")), 1,
            refusal("unknown-dtype", "type"))
    # whose dtype is not recorded, and follows from a question that is answered otherwise afterwards
    asking = Graph()
    x = asking.input()
    named = asking.fn("builtins.getattr", x, "dtype", name="named", shape=None, dtype=None)
    y = asking.method("to", asking.method("relu", x, shape=None, dtype=None), named, shape=None, dtype=None)
    convert("result-of-a-dtype-that-is-asked-for", asking.output(y), 1)

    # where the inputs alone have dtypes
    def of_inputs(make):
        g = Graph()
        return g.output(make(g, g.input(shape=(4, 4))))

    plain = {"shape": None, "dtype": None}
    convert("untyped-comparison", of_inputs(lambda g, x: g.fn("operator.ne", g.method("relu", x, **plain), x, **plain)), 1)
    convert("untyped-attribute",
            of_inputs(lambda g, x: g.fn("operator.matmul", x, g.fn("builtins.getattr", x, "mT", **plain), **plain)), 1)
    product = lambda g, x: g.fn("torch.tensordot", x, g.fn("torch.eye", 4, **plain), **plain)  # eye may be of any dtype
    convert("untyped-product-of-a-factory", of_inputs(product), 0, refusal("unknown-dtype", "eye"))
    mixed = lambda g, x: g.fn("operator.matmul", g.method("relu", x, **plain), g.input("wide", (4, 4), "float64"), **plain)
    convert("untyped-product-of-two-dtypes", of_inputs(mixed), 1)  # relu is converted
    parts = lambda g, x: g.method("relu", g.fn("operator.getitem", g.method("topk", g.method("relu", x, **plain), 2, **plain),
                                               0, **plain), **plain)
    convert("untyped-parts", of_inputs(parts), 1, refusal("unknown-dtype", "topk"), refusal("unknown-dtype", "getitem"))

    g, y = block()
    g.output(y)
    half = {"name": "ConvertPrecision", "params": {"to": "float16", "keep": ["softmax"]}}
    marked = ["to", "block_fc", "block_norm", "relu", "to_1"]
    case("ConvertPrecision", "twice", g, 1, passes=[half, half], expected=[
        ("ConvertPrecision", 1, []), ("ConvertPrecision", 0, [refusal("already-transformed", n) for n in marked])])


def floats(*numbers):
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def weight(g, path, shape):
    owner = path.rpartition(".")[0]
    row = g.modules.setdefault(owner, {"path": owner, "type": "torch.nn.Module"})
    row.setdefault("parameters", {})[path.rpartition(".")[2]] = g.tensor(path, shape)
    return g.get_attr(path, tuple(shape))
