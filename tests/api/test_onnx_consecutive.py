"""Calls of ONNX models that follow each other: those that are merged, those that undo each other, and those that must stay."""

import pytest
from test_onnx import send
from test_onnx_changed import field, graph, made_of, node, number, optimize, tensor, value
from test_onnx_folds import attribute, integer, ints, named, operators, truth, unshaped, whole
from test_onnx_fusions import fused

BOOL, DOUBLE, FLOAT, HALF, INT8, INT32, INT64, UINT8 = 9, 11, 1, 10, 3, 6, 7, 2
X = value("x", shape=(2, 6, 5))
FAR = 2**63 - 1
AXIS = integer("axis", 1)


def bounds(name, *given):
    """Starts, ends, axes and steps."""
    return [whole(f"{name}{i}", one) for i, one in enumerate(given)]


def sliced(name, source, count, to):
    return node("Slice", " ".join([source, *(f"{name}{i}" for i in range(count))]), to)


def cut(first, second):
    return [sliced("a", "x", len(first), "h"), sliced("b", "h", len(second), "y")], bounds("a", *first) + bounds("b", *second)


def casts(*to):
    return [node("Cast", f"h{i}" if i else "x", f"h{i + 1}" if i + 1 < len(to) else "y", integer("to", one))
            for i, one in enumerate(to)]


def reduced(op, axes, keeps, view, *more):
    """As in opset 13 and later."""
    of_sum = op == "ReduceSum"
    own = [] if of_sum else [ints("axes", axes)]
    return [node(op, "x r" if of_sum else "x", "h", *own, integer("keepdims", keeps)), node(view, "h v", "y", *more)]


MERGED = {
    "concats": ([node("Concat", "x x", "h", AXIS), node("Concat", "z h x", "y", integer("axis", -2))], [], ["Concat"]),
    "three concats": ([node("Concat", "x z", "h", AXIS), node("Concat", "h x", "i", AXIS),
                       node("Concat", "z i i", "y", AXIS)], [], ["Concat"]),
    "two concats in one": ([node("Concat", "x z", "h", AXIS), node("Concat", "x x", "i", AXIS),
                            node("Concat", "h i", "y", AXIS)], [], ["Concat"]),
    "slices of two axes": (*cut(([1], [5], [1]), ([-3], [FAR], [2])), ["Slice"]),
    "slices of one axis": (*cut(([1], [FAR], [1]), ([1], [3], [1])), ["Slice"]),
    "slices of one axis that end early": (*cut(([1], [3], [1]), ([1], [9], [1])), ["Slice"]),
    "slices with steps": (*cut(([0, 4], [2, -7], [0, 1], [1, -2]), ([0], [5], [2], [2])), ["Slice"]),
    "slices without axes": (*cut(([0, 1], [2, 4]), ([1], [FAR], [2])), ["Slice"]),
    "two slices of one": ([sliced("a", "x", 3, "h"), sliced("b", "h", 3, "i"), sliced("c", "h", 3, "j"),
                           node("Add", "i j", "y")],
                          [*bounds("a", [1], [5], [1]), *bounds("b", [0], [2], [2]), *bounds("c", [1], [3], [2])],
                          ["Slice", "Slice", "Add"]),
    "casts": (casts(DOUBLE, HALF), [], ["Cast"]),
    "three casts": (casts(DOUBLE, DOUBLE, INT32), [], ["Cast"]),
    "a sum and its dimension": (reduced("ReduceSum", None, 0, "Unsqueeze"), [whole("r", [1]), whole("v", [1])], ["ReduceSum"]),
    "a maximum and its dimensions": (reduced("ReduceMax", [-1, 0], 0, "Unsqueeze"), [whole("v", [-1, 0])], ["ReduceMax"]),
    "a minimum without its dimension": (reduced("ReduceMin", [2], 1, "Squeeze"), [whole("v", [2])], ["ReduceMin"]),
    "a mean in a shape": (reduced("ReduceMean", [1], 0, "Reshape"), [whole("v", [2, 1, 5])], ["ReduceMean"]),
}


@pytest.mark.parametrize("name", MERGED)
def test_merged(shared, name):
    nodes, weights, left = MERGED[name]
    data = made_of(graph(nodes, [X, value("z", shape=(2, 3, 5))], [unshaped("y", ends(nodes))], weights), opset=17)
    assert fused(shared, data, "MergeConsecutiveCalls")[0] == left


def ends(nodes):
    return {casts(DOUBLE, HALF)[-1]: HALF, casts(DOUBLE, DOUBLE, INT32)[-1]: INT32}.get(nodes[-1], FLOAT)


STAY = {
    "concats of two axes": ([node("Concat", "x x", "h", integer("axis", 0)), node("Concat", "h h", "y", AXIS)], []),
    "slices from the end": cut(([-4], [FAR], [1]), ([0], [2], [1])),
    "slices up to the end": cut(([0], [-1], [1]), ([0], [2], [1])),
    "slices backwards": cut(([4], [0], [1], [-1]), ([1], [2], [1])),
    "a cast that rounds": (casts(HALF, FLOAT), []),
    "a cast that cuts off": (casts(INT32, FLOAT), []),
    "a cast to bools": (casts(BOOL, FLOAT), []),
    "another dimension": (reduced("ReduceMax", [1], 0, "Unsqueeze"), [whole("v", [2])]),
    "a reader beside it": ([node("Concat", "x x", "h", AXIS), node("Concat", "h h", "i", AXIS), node("ReduceMax", "h", "j"),
                            node("Add", "i j", "y")], []),
}


@pytest.mark.parametrize("name", STAY)
def test_left(shared, name):
    nodes, weights = STAY[name]
    data = made_of(graph(nodes, [X], [unshaped("y")], weights))
    assert len(fused(shared, data, "MergeConsecutiveCalls")[0]) == len(nodes)


def test_a_long_chain_of_concats(shared):
    """At most a thousand values go into one, so that the work is linear."""
    nodes = [node("Concat", f"h{i} x" if i else "x x", f"h{i + 1}" if i < 1499 else "y", AXIS) for i in range(1500)]
    data = made_of(graph(nodes, [value("x", shape=(1, 1))], [unshaped("y")]))
    assert operators(optimize(shared, data, "MergeConsecutiveCalls")[1].body) == ["Concat"] * 2


def test_an_output_stays(shared):
    nodes = [node("Concat", "x x", "h", AXIS), node("Concat", "h x", "y", AXIS)]
    data = made_of(graph(nodes, [X], [unshaped("h"), unshaped("y")]))
    assert fused(shared, data, "MergeConsecutiveCalls")[0] == ["Concat", "Concat"]


def test_slices_before_opset_10(shared):
    nodes = [node("Slice", "x", "h", ints("starts", [1]), ints("ends", [5]), ints("axes", [1])),
             node("Slice", "h", "y", ints("starts", [-2, 1]), ints("ends", [FAR, 2]), ints("axes", [2, 1]))]
    data = made_of(graph(nodes, [X], [unshaped("y")]), opset=9)
    assert fused(shared, data, "MergeConsecutiveCalls")[0] == ["Slice"]


def test_within_a_branch(shared):
    """Calls that need no new constant are merged there too."""
    then = graph([node("Concat", "x x", "h", AXIS), node("Concat", "h x", "t", AXIS)], [], [unshaped("t")], name="then")
    other = graph([node("Concat", "x x x", "e", AXIS)], [], [unshaped("e")], name="else")
    branches = [attribute("then_branch", 5, field(6, then)), attribute("else_branch", 5, field(6, other))]
    data = made_of(graph([node("If", "c", "y", *branches)], [X, value("c", BOOL, ())], [unshaped("y")]))
    run = send(shared, data, "?pass=MergeConsecutiveCalls", path="/v1/optimize").json()
    assert run["passes"][0]["applied"] == 1
    back = shared.post(f"/v1/runs/{run['id']}/rollback").json()["result"]
    assert shared.get(f"/v1/graphs/{back}/archive").body == data


# ---- calls that give what they, or the call before, were given ------------------------------------------------------------

def quantised(scale, zero=None, again=None, dtype=UINT8):
    """q, dequantised and quantised."""
    weights = [tensor("s", [scale], ()), tensor("u", [scale if again is None else again], ())]
    names = ["q s", "h u"]
    if zero is not None:
        weights += [small(one, zero, dtype) for one in ("z", "k")]
        names = ["q s z", "h u k"]
    return [node("DequantizeLinear", names[0], "h"), node("QuantizeLinear", names[1], "y")], weights


def small(name, one, dtype):
    return number(2, dtype) + field(8, name) + field(9, bytes([one & 255]))


GONE = {
    "relu": ([node("Relu", "x", "h"), node("Relu", "h", "y")], [], [X], FLOAT, ["Relu"]),
    "round": ([node("Round", "x", "h"), node("Round", "h", "y")], [], [X], FLOAT, ["Round"]),
    "neg": ([node("Exp", "x", "e"), node("Neg", "e", "h"), node("Neg", "h", "y")], [], [X], FLOAT, ["Exp"]),
    "not": ([node("Not", "b", "h"), node("Not", "h", "i"), node("Not", "i", "y")], [], [value("b", BOOL)], BOOL, ["Not"]),
    "where true": ([node("Exp", "x", "e"), node("Where", "c e x", "y")], [truth("c", 1)], [X], FLOAT, ["Exp"]),
    "where false": ([node("Exp", "x", "e"), node("Where", "c x e", "y")], [truth("c", 0)], [X], FLOAT, ["Exp"]),
    "where alike": ([node("Exp", "x", "e"), node("Where", "c e e", "y")], [], [X, value("c", BOOL, ())], FLOAT, ["Exp"]),
}


@pytest.mark.parametrize("name", GONE)
def test_gone(shared, name):
    nodes, weights, inputs, dtype, left = GONE[name]
    data = made_of(graph(nodes, inputs, [unshaped("y", dtype)], weights))
    assert fused(shared, data, "cleanup")[0] == left


@pytest.mark.parametrize("scale, zero, again, is_gone", [
    (0.02, 3, None, True), (0.02, None, None, True), (1e-37, 0, None, True), (1e-38, 0, None, False), (1e34, 255, None, False),
    (0.02, 3, 0.03, False), (-0.02, 3, None, False)])
def test_quantised_again(shared, scale, zero, again, is_gone):
    """By the same scale and zero point each number comes back, where nothing over- or underflows."""
    nodes, weights = quantised(scale, zero, again)
    nodes = [node("Transpose", "x", "q", ints("perm", [1, 0])), *nodes]
    data = made_of(graph(nodes, [value("x", UINT8, (2, 6))], [unshaped("y", UINT8)], weights), opset=13)
    assert fused(shared, data, "cleanup")[0] == (["Transpose"] if is_gone else
                                                 ["Transpose", "DequantizeLinear", "QuantizeLinear"])


def test_a_condition_that_broadcasts_stays(shared):
    nodes = [node("Where", "c x z", "y")]
    data = made_of(graph(nodes, [named("x", (1, 5)), named("z", (3, 5))], [unshaped("y")], [truth("c", 1)]))
    assert fused(shared, data, "cleanup")[0] == ["Where"]
