"""POST /v1/compare: pairs that look the same and are not. None of them may pass."""

import base64
import struct

import pytest
from documents import node, ref
from test_compare import compare
from test_evaluate import output


def data(dtype, *values):
    code = {"float32": "f", "float64": "d", "int64": "q", "int32": "i", "bool": "?", "uint8": "B"}[dtype]
    return base64.b64encode(struct.pack(f"<{len(values)}{code}", *values)).decode()


def tensor(name, dtype, shape, *values, **more):
    return {"name": name, "dtype": dtype, "shape": shape, "data": data(dtype, *values), **more}


def given(name, *shape, dtype="float32"):
    return node(name, "placeholder", name, meta={"shape": list(shape), "dtype": dtype})


def call(name, target, *args, **kwargs):
    return node(name, "call_function", target, args, **({"kwargs": kwargs} if kwargs else {}))


def method(name, target, *args, **kwargs):
    return node(name, "call_method", target, args, **({"kwargs": kwargs} if kwargs else {}))


def module(name, path, *args):
    return node(name, "call_module", path, args)


def weight(name, target):
    return node(name, "get_attr", target)


def net(*nodes, tensors=(), modules=(), **root):
    top = {"path": "", "type": "Net", **root}
    top.setdefault("parameters", {one["name"]: one["name"] for one in tensors if "." not in one["name"]})
    return {"format": "foldback.graph/1", "modules": [top, *modules], "tensors": list(tensors), "nodes": list(nodes)}


def shaped(one, *shape, dtype="float32"):
    return {**one, "meta": {"shape": list(shape), "dtype": dtype}}


X = given("x", 4, 6)


def pair(*parts, **of):
    """Two graphs that differ in one part."""
    return [net(*part, **{key: value[i] if isinstance(value, tuple) else value for key, value in of.items()})
            for i, part in enumerate(parts)]


def tied(is_tied):
    """An in-place write to one of two weights of equal bytes; they are one, or two."""
    tensors = [tensor("w", "float32", [6], *range(6)), tensor("v", "float32", [6], *range(6))]
    names = {"w": "w", "v": "w" if is_tied else "v"}
    return net(X, weight("one", "w"), weight("two", "v"), method("add_", "add_", ref("one"), 1.0),
               call("sum", "operator.add", ref("x"), ref("two")), output("sum"), tensors=tensors[: 1 if is_tied else 2],
               parameters=names)


def two_memories(is_tied):
    """The same through buffers of modules: a write into one, a read of the other."""
    tensors = [tensor("a.w", "float32", [6], *range(6)), tensor("b.w", "float32", [6], *range(6))]
    modules = [{"path": "a", "type": "Holder", "buffers": {"w": "a.w"}},
               {"path": "b", "type": "Holder", "buffers": {"w": "a.w" if is_tied else "b.w"}}]
    return net(X, weight("one", "a.w"), weight("two", "b.w"), method("mul_", "mul_", ref("one"), 3.0),
               call("sum", "operator.add", ref("x"), ref("two")), output("sum"), tensors=tensors[: 1 if is_tied else 2],
               modules=modules)


def attention(scale):
    """The weights of the projection behind the heads are a module's inside."""
    import random

    def some(name, *shape, by=1.0):
        count = 1
        for size in shape:
            count *= size
        numbers = random.Random(name)
        return tensor(name, "float32", list(shape), *(numbers.uniform(-1, 1) * by for _ in range(count)))

    tensors = [some("m.in_proj_weight", 12, 4), some("m.in_proj_bias", 12), some("m.out_proj.weight", 4, 4, by=scale),
               some("m.out_proj.bias", 4)]
    modules = [{"path": "m", "type": "torch.nn.MultiheadAttention", "training": False,
                "config": {"embed_dim": 4, "num_heads": 2, "dropout": 0.0, "batch_first": True},
                "parameters": {"in_proj_weight": "m.in_proj_weight", "in_proj_bias": "m.in_proj_bias"}},
               {"path": "m.out_proj", "type": "torch.nn.modules.linear.NonDynamicallyQuantizableLinear", "training": False,
                "config": {"in_features": 4, "out_features": 4, "bias": True},
                "parameters": {"weight": "m.out_proj.weight", "bias": "m.out_proj.bias"}}]
    return net(given("x", 2, 3, 4), node("m", "call_module", "m", [ref("x"), ref("x"), ref("x")]),
               call("first", "operator.getitem", ref("m"), 0), output("first"), tensors=tensors, modules=modules)


def inner(body):
    """A module that is a graph of its own, and is called."""
    graph = {"nodes": [given("y", 4, 6), call("z", body, ref("y")), output("z")]}
    return net(X, module("inner", "inner", ref("x")), output("inner"),
               modules=[{"path": "inner", "type": "torch.fx.GraphModule", "graph": graph}])


def wide(shape, has_view):
    """The same name and another recorded shape: a view to the one is a change of the other."""
    nodes = [given("x", *shape)]
    if has_view:
        nodes.append(shaped(method("y", "view", ref("x"), 4, 6), 4, 6))
    return net(*nodes, output("y" if has_view else "x"))


def written(writes):
    """Writes into an input that nobody else reads."""
    nodes = [given("x", 4, 6), given("y", 4, 6)]
    if writes:
        nodes.append(method("add_", "add_", ref("x"), 1.0))
    return net(*nodes, call("twice", "operator.mul", ref("y"), 2.0), output("twice"))


def large_integers(by):
    return net(X, call("size", "torch.full", [3], 9007199254740992 + by, dtype={"$dtype": "int64"}),
               call("neg", "torch.neg", ref("x")), output("size", "neg"))


def complex_output(part):
    return net(X, call("neg", "torch.neg", ref("x")),
               node("output", "output", "output", [[ref("neg"), {"$complex": [1.0, part]}]]))


def long_chain(*changes, out="output", value=None, nest=lambda one: [one], **more):
    """Of 12,000 nodes, so that only what differs is evaluated; some of them multiply by -1."""
    nodes, last = [X], "x"
    for i in range(12000):
        one = call(f"v{i}", "torch.mul", ref(last), -1.0) if i in changes else call(f"v{i}", "torch.neg", ref(last))
        nodes.append(shaped(one, 4, 6))
        last = f"v{i}"
    return net(*nodes, node(out, "output", "output", [nest(ref(value or last))], **more))


def attribute(name):
    """Of a module that says nothing of it."""
    return net(X, weight("one", f"holder.{name}"), call("sum", "operator.add", ref("x"), ref("one")), output("sum"),
               modules=[{"path": "holder", "type": "Holder", "attributes": {"a": 1.0, "b": 2.0}}])


def both(one, other, *tail, out="y", inputs=(X,), **of):
    """Two graphs that differ in one node."""
    return tuple(net(*inputs, node_, *tail, output(out), **of) for node_ in (one, other))


def functional(target, *variants, more=(), **of):
    """The same call with two lists of further arguments."""
    (args, kwargs), (others, keywords) = [one if isinstance(one, tuple) else (one, {}) for one in variants]
    return both(call("y", target, ref("x"), *args, **kwargs), call("y", target, ref("x"), *others, **keywords), *more, **of)


def tensors_apart(one, other, *tail, out="y", **of):
    """The same graph on two weights."""
    return tuple(net(X, weight("w", "w"), *tail, output(out), tensors=[made], **of) for made in (one, other))


ONNX = {"dialect": "onnx", "onnx": {"ir_version": 9, "opsets": {"": 17}}}


def onnx(target, args, *variants, tensors=(), inputs=(X,), names=()):
    """A call of ONNX with two sets of attributes, or two targets."""
    made = []
    for variant in variants:
        attributes, spelled = (variant, target) if isinstance(variant, dict) else ({}, variant)
        nodes = [*inputs, *(weight(name, name) for name in names),
                 node("y", "call_function", spelled, args, kwargs=attributes), output("y")]
        made.append({**net(*nodes, tensors=tensors), "metadata": ONNX})
    return tuple(made)


ADD_W = call("y", "operator.add", ref("x"), ref("w"))
FLOAT, DOUBLE, LONG, BOOL = ({"$dtype": name} for name in ("float32", "float64", "int64", "bool"))


def batch_norm(training):
    tensors = [tensor(f"n.{name}", "float32", [6], *values) for name, values in (
        ("weight", [1, 2, 3, 4, 5, 6]), ("bias", [0] * 6), ("running_mean", [0.1] * 6), ("running_var", [0.9] * 6))]
    one = {"path": "n", "type": "torch.nn.BatchNorm1d", "training": training, "config": {"num_features": 6},
           "parameters": {"weight": "n.weight", "bias": "n.bias"},
           "buffers": {"running_mean": "n.running_mean", "running_var": "n.running_var"}}
    return net(X, module("y", "n", ref("x")), output("y"), tensors=tensors, modules=[one])


def dropout(training, probability=0.5):
    one = {"path": "d", "type": "torch.nn.Dropout", "training": training, "config": {"p": probability}}
    return net(X, module("y", "d", ref("x")), output("y"), modules=[one])


def writes(order, returned="y"):
    """A write through a view, before or after the value is read."""
    view = method("v", "view", ref("c"), 24)
    parts = {"read": call("y", "operator.mul", ref("c"), 2.0), "write": method("w", "mul_", ref("v"), 3.0)}
    return net(X, method("c", "clone", ref("x")), view, *(parts[one] for one in order), output(returned))


def symmetric(order):
    """A weight that equals its transpose, and one that does not but has the same numbers."""
    one = tensor("w", "float32", [2, 2], *order)
    return net(given("x", 4, 2), weight("w", "w"), call("y", "torch.matmul", ref("x"), ref("w")), output("y"), tensors=[one])


MORE = {
    "another dtype of the same bytes": tensors_apart(
        tensor("w", "int32", [6], *[1065353216] * 6), tensor("w", "float32", [6], *[1.0] * 6), ADD_W),
    "another shape of the same bytes": tensors_apart(
        tensor("w", "float32", [4, 6], *range(24)), tensor("w", "float32", [6, 4], *range(24)),
        call("y", "torch.flatten", ref("w")), call("z", "torch.sum", ref("w"), 0), out="z"),
    "one weight's small change": tensors_apart(
        tensor("w", "float64", [6], *[1.0] * 6), tensor("w", "float64", [6], *[1.0] * 5, 1.00001), ADD_W),
    "a negative zero in a weight": tensors_apart(
        tensor("w", "float32", [6], *[0.0] * 6), tensor("w", "float32", [6], *[-0.0] * 6),
        call("y", "torch.reciprocal", ref("w"))),
    "nan beside a number": tensors_apart(
        tensor("w", "float32", [6], *[float("nan")] * 6), tensor("w", "float32", [6], *[1.0] * 6), ADD_W),
    "one nan": tensors_apart(
        tensor("w", "float32", [6], *[1.0] * 5, float("nan")), tensor("w", "float32", [6], *[1.0] * 6), ADD_W),
    "infinity's sign": tensors_apart(
        tensor("w", "float32", [6], *[1.0] * 5, float("inf")), tensor("w", "float32", [6], *[1.0] * 5, -float("inf")), ADD_W),
    "one element of a mask": tensors_apart(
        tensor("w", "bool", [6], *[True] * 6), tensor("w", "bool", [6], *[True] * 5, False),
        call("y", "torch.where", ref("w"), ref("x"), 0.0)),
    "an integer at the end of its range": tensors_apart(
        tensor("w", "int64", [2], 2**63 - 1, 0), tensor("w", "int64", [2], 2**63 - 2, 0), call("y", "torch.abs", ref("w"))),
    "an int and a float": functional("operator.add", [1], [1.0], inputs=(given("x", 4, 6, dtype="int64"),)),
    "a bool and an int": functional("operator.mul", [True], [2]),
    "a dim": functional("torch.softmax", [0], [1]),
    "a negative dim": functional("torch.cumsum", [-1], [-2]),
    "keepdim": functional("torch.sum", [1], ([1], {"keepdim": True})),
    "unbiased": functional("torch.var", ([1], {"unbiased": True}), ([1], {"unbiased": False})),
    "gelu's kind": functional("torch.nn.functional.gelu", [], ([], {"approximate": "tanh"})),
    "leaky slope": functional("torch.nn.functional.leaky_relu", [0.01], [0.0101]),
    "clamp's bound": functional("torch.clamp", [-1.0, 1.0], [-1.0, 1.001]),
    "clamp's bound far away": functional("torch.clamp", [-100.0, 100.0], [-100.0, 101.0]),
    "greater and not less": both(call("y", "torch.gt", ref("x"), 0.0), call("y", "torch.ge", ref("x"), 0.0)),
    "floor and trunc": both(call("y", "torch.floor", ref("x")), call("y", "torch.trunc", ref("x"))),
    "round and floor of a half more": both(
        call("y", "torch.round", ref("x")), call("y", "torch.floor", ref("h")),
        inputs=(X, call("h", "operator.add", ref("x"), 0.5))),
    "remainder and fmod": both(call("y", "torch.remainder", ref("x"), 2.0), call("y", "torch.fmod", ref("x"), 2.0)),
    "floor division": both(call("y", "operator.floordiv", ref("x"), 2.0), call("y", "operator.truediv", ref("x"), 2.0)),
    "the sign of zero": both(
        call("y", "torch.atan2", ref("x"), ref("m")), call("y", "torch.atan2", ref("p"), ref("m")),
        inputs=(X, call("p", "operator.add", ref("x"), 0.0), call("m", "torch.full_like", ref("x"), -1.0))),
    "relu and abs": both(call("y", "torch.relu", ref("x")), call("y", "torch.abs", ref("x"))),
    "a sort's side": both(
        call("y", "torch.argsort", ref("x")), call("y", "torch.argsort", ref("x"), descending=True)),
    "topk's number": functional("torch.sum", ([], {"dtype": FLOAT}), ([], {"dtype": DOUBLE})),
    "a triangle's diagonal": functional("torch.tril", [0], [-1]),
    "a roll": functional("torch.roll", [1, 1], [5, 0]),
    "flip": functional("torch.flip", [[0]], [[1]]),
    "a transpose of a square": functional("torch.transpose", [0, 1], [0, 0], inputs=(given("x", 4, 4),)),
    "a permutation": functional("torch.permute", [[1, 0, 2]], [[2, 1, 0]], inputs=(given("x", 3, 3, 3),)),
    "a view for a transpose": both(
        method("y", "reshape", ref("x"), 6, 4), method("y", "t", ref("x"))),
    "index order": both(call("y", "operator.getitem", ref("x"), {"$slice": [0, 2, None]}),
                        call("y", "operator.getitem", ref("x"), {"$slice": [1, 3, None]})),
    "a slice's step": both(call("y", "operator.getitem", ref("x"), {"$slice": [None, None, 2]}),
                           call("y", "operator.getitem", ref("x"), {"$slice": [None, 2, None]})),
    "operands of a difference": both(call("y", "operator.sub", ref("x"), ref("z")),
                                     call("y", "operator.sub", ref("z"), ref("x")),
                                     inputs=(X, given("z", 4, 6))),
    "addcmul's value": functional("torch.addcmul", ([ref("x"), ref("x")], {"value": 0.5}),
                                  ([ref("x"), ref("x")], {"value": 0.50001})),
    "a lost cast": both(method("y", "to", ref("x"), DOUBLE), method("y", "to", ref("x"), FLOAT)),
    "a cast to halves and back": both(
        method("y", "to", ref("h"), FLOAT), method("y", "clone", ref("x")),
        inputs=(X, method("h", "to", ref("x"), {"$dtype": "float16"}))),
    "training of batch norm": (batch_norm(False), batch_norm(True)),
    "dropout in training": (dropout(False), dropout(True)),
    "dropout's probability": (dropout(True, 0.5), dropout(True, 0.6)),
    "seeds": both(call("y", "torch.rand_like", ref("x")), call("y", "torch.randn_like", ref("x"))),
    "one more draw": (
        net(X, call("r", "torch.rand_like", ref("x")), call("y", "torch.rand_like", ref("x")), output("y")),
        net(X, call("y", "torch.rand_like", ref("x")), output("y"))),
    "a write before a read": (writes(["read", "write"]), writes(["write", "read"])),
    "a write that is lost": (writes(["read", "write"], "c"), net(X, method("c", "clone", ref("x")), output("c"))),
    "an output that is an input": (net(X, method("a", "add_", ref("x"), 1.0), output("x")), net(X, output("x"))),
    "an output that is an input, copied too late": (
        net(X, method("c", "clone", ref("x")), method("a", "add_", ref("x"), 1.0), output("c")),
        net(X, method("a", "add_", ref("x"), 1.0), method("c", "clone", ref("x")), output("c"))),
    "nested outputs": (
        net(X, call("y", "torch.neg", ref("x")),
            node("output", "output", "output", [{"$dict": [["a", [ref("y"), ref("x")]]]}])),
        net(X, call("y", "torch.neg", ref("x")),
            node("output", "output", "output", [{"$dict": [["a", [ref("x"), ref("y")]]]}]))),
    "the order of outputs": (net(X, call("y", "torch.neg", ref("x")), output("y", "x")),
                             net(X, call("y", "torch.neg", ref("x")), output("x", "y"))),
    "an output twice": (net(X, call("y", "torch.neg", ref("x")), output("y", "x")),
                        net(X, call("y", "torch.neg", ref("x")), output("y", "y"))),
    "None among outputs": (
        net(X, node("output", "output", "output", [[ref("x"), None]])),
        net(X, node("output", "output", "output", [[ref("x"), 0]]))),
    "symmetry": (symmetric([1, 2, 2, 1]), symmetric([2, 1, 1, 2])),
    "an empty sum": (net(given("x", 0, 6), call("y", "torch.sum", ref("x"), 0), output("y")),
                     net(given("x", 0, 6), call("y", "torch.prod", ref("x"), 0), output("y"))),
    "an empty shape": (net(given("x", 0, 6), call("y", "torch.neg", ref("x")), output("y")),
                       net(given("x", 0, 6), method("y", "reshape", ref("x"), 6, 0), output("y"))),
    "an ATen overload": both(
        call("y", "torch.ops.aten.div.Tensor_mode", ref("x"), 3.0, rounding_mode="floor"),
        call("y", "torch.ops.aten.div.Tensor_mode", ref("x"), 3.0, rounding_mode="trunc")),
    "an epsilon": functional("torch.nn.functional.layer_norm", [[6], None, None, 1e-5], [[6], None, None, 1e-12]),
    "one of two masks": both(
        call("y", "torch.masked_fill", ref("x"), ref("m"), -1e9), call("y", "torch.masked_fill", ref("x"), ref("m"), -1e4),
        inputs=(X, call("m", "torch.gt", ref("x"), 0.0))),
    "onnx: softmax of two versions": onnx("", [ref("x")], "onnx.Softmax.v11", "onnx.Softmax.v13",
                                          inputs=(given("x", 2, 3, 4),)),
    "onnx: an axis": onnx("onnx.Softmax.v13", [ref("x")], {"axis": 0}, {"axis": 1}),
    "onnx: a default of a version": onnx("", [ref("x")], "onnx.Hardmax.v11", "onnx.Hardmax.v13", inputs=(given("x", 2, 3, 4),)),
    "onnx: keepdims": onnx("onnx.ReduceMax.v13", [ref("x")], {"keepdims": 0}, {"keepdims": 1}),
    "onnx: argmax's last": onnx("onnx.ArgMax.v13", [ref("x")], {"select_last_index": 0}, {"select_last_index": 1}),
    "onnx: a cast": onnx("onnx.Cast.v13", [ref("x")], {"to": 1}, {"to": 7}),
    "onnx: fmod": onnx("onnx.Mod.v13", [ref("x"), ref("w")], {"fmod": 1}, {"fmod": 0},
                       tensors=[tensor("w", "float32", [1], 2.0)], names=("w",)),
    "onnx: which is subtracted": onnx("onnx.Sub.v14", [ref("x"), ref("w")], "onnx.Sub.v14", "onnx.Add.v14",
                                      tensors=[tensor("w", "float32", [1], 2.0)], names=("w",)),
    "onnx: the seed of numbers": onnx("onnx.RandomNormalLike.v1", [ref("x")], {"seed": {"$float": "1.0"}},
                                      {"seed": {"$float": "2.0"}}),
    "onnx: exclusive sums": onnx("onnx.CumSum.v14", [ref("x"), ref("w")], {"exclusive": 0}, {"exclusive": 1},
                                 tensors=[tensor("w", "int64", [], 1)], names=("w",)),
    "causal attention": both(
        call("y", "torch.nn.functional.scaled_dot_product_attention", ref("x"), ref("x"), ref("x"), is_causal=True),
        call("y", "torch.nn.functional.scaled_dot_product_attention", ref("x"), ref("x"), ref("x")),
        inputs=(given("x", 1, 4, 6),)),
}
MARK = {"meta": {"transformations": ["0" * 32]}}
PAIRS = {
    "another output of a large graph, whose node has another name": lambda: (
        long_chain(), long_chain(77, out="end", value="v2")),
    "another output of a large graph, in another list": lambda: (
        long_chain(), long_chain(77, value="v2", nest=lambda one: {"$tuple": [one]})),
    "another output of a large graph, marked": lambda: (long_chain(), long_chain(77, value="v2", **MARK)),
    "another output of a large graph": lambda: (long_chain(), long_chain(77, value="v2")),
    "another attribute": (attribute("a"), attribute("b")),
    "tied weights, one is written": (tied(True), tied(False)),
    "tied buffers, one is written": (two_memories(True), two_memories(False)),
    "attention's projection": (attention(1.0), attention(2.0)),
    "a module's program": (inner("torch.neg"), inner("torch.exp")),
    "a view of another input": (wide([2, 12], False), wide([4, 6], True)),
    "a write that only a makes": (written(True), written(False)),
    "a write that only b makes": (written(False), written(True)),
    "integers above 2^53": (large_integers(0), large_integers(1)),
    "a complex number in the output": (complex_output(2.0), complex_output(3.0)),
}


PAIRS |= MORE


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_that_differ(shared, name):
    pair = PAIRS[name]
    found = compare(shared, *(pair() if callable(pair) else pair))
    assert found["verdict"] in ("differs", "not-evaluated"), found


def product(target, **more):
    return net(X, call("y", target, ref("x"), **more), call("z", "operator.mul", ref("y"), 2.0), output("z"))


@pytest.mark.parametrize("target", ["torch.special.bessel_j1", "torch.nn.functional.ctc_loss", "torch.ops.aten.none.default"])
def test_what_foldback_cannot_evaluate_in_b_alone_does_not_differ(shared, target):
    """It may be another spelling of what a computes."""
    found = compare(shared, product("torch.neg"), product(target))
    assert found["verdict"] == "not-evaluated" and found["outputs"][0]["reason"] == "unsupported-operator", found
