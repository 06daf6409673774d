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


MARK = {"meta": {"transformations": ["0" * 32]}}
PAIRS = {
    "another output of a large graph, whose node has another name": (long_chain(), long_chain(77, out="end", value="v2")),
    "another output of a large graph, in another list": (
        long_chain(), long_chain(77, value="v2", nest=lambda one: {"$tuple": [one]})),
    "another output of a large graph, marked": (long_chain(), long_chain(77, value="v2", **MARK)),
    "another output of a large graph": (long_chain(), long_chain(77, value="v2")),
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


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_that_differ(shared, name):
    found = compare(shared, *PAIRS[name])
    assert found["verdict"] in ("differs", "not-evaluated"), found


def product(target, **more):
    return net(X, call("y", target, ref("x"), **more), call("z", "operator.mul", ref("y"), 2.0), output("z"))


@pytest.mark.parametrize("target", ["torch.special.bessel_j1", "torch.nn.functional.ctc_loss", "torch.ops.aten.none.default"])
def test_what_foldback_cannot_evaluate_in_b_alone_does_not_differ(shared, target):
    """It may be another spelling of what a computes."""
    found = compare(shared, product("torch.neg"), product(target))
    assert found["verdict"] == "not-evaluated" and found["outputs"][0]["reason"] == "unsupported-operator", found
