"""Einsum of ONNX models as a product of matrices, where that is one."""

import pytest
from test_onnx_changed import graph, made_of, node, optimize, value
from test_onnx_folds import ints, named, operators, unshaped
from test_onnx_fusions import fused, weight, word

SIZES = {"a": 2, "b": 5, "c": 3, "d": 4, "B": 2, "Z": 1}


def product(equation, x="x", y="z", to="y"):
    return node("Einsum", f"{x} {y}", to, word("equation", equation))


def shaped(labels):
    return tuple(SIZES[one] for one in labels)


def turned(source, to, *perm):
    return node("Transpose", source, to, ints("perm", perm))


MADE = {  # by equation
    "abc,acd->abd": ["MatMul"], "bc,cd->bd": ["MatMul"], "bc,dc->bd": ["Gemm"], "cb, dc -> bd": ["Gemm"], "bc,dc->db": ["Gemm"],
    "cb,cd->db": ["Gemm"], "abc,cd->abd": ["MatMul"], "aBbc,Bcd->aBbd": ["MatMul"], "aBbc,aBcd->aBbd": ["MatMul"],
    "bc,cd": ["MatMul"], "cd,abc->abd": ["MatMul"],
}


@pytest.mark.parametrize("equation", MADE)
def test_products(shared, equation):
    left, right = (one.strip() for one in equation.split("->")[0].split(","))
    data = made_of(graph([product(equation)], [value("x", shape=shaped(left)), value("z", shape=shaped(right))],
                         [unshaped("y")]))
    assert fused(shared, data, "ChangeEinsumToMatMul")[0] == MADE[equation]


def test_a_weight_is_transposed_once(shared):
    data = made_of(graph([product("abc,dc->abd", "x", "k")], [value("x", shape=(2, 5, 3))], [unshaped("y")],
                         [weight("k", 4, 3)]))
    assert fused(shared, data, "ChangeEinsumToMatMul FoldConstants")[0] == ["MatMul"]


def test_transpositions_are_merged(shared):
    """Those around it take in what the product needs."""
    nodes = [turned("x", "h", 0, 2, 1, 3), product("aBbc,aBdc->aBbd", "h", "i", "g"), turned("z", "i", 0, 2, 1, 3),
             turned("g", "y", 0, 2, 1, 3)]
    nodes = [nodes[0], nodes[2], nodes[1], nodes[3]]
    data = made_of(graph(nodes, [value("x", shape=(2, 5, 2, 3)), value("z", shape=(2, 4, 2, 3))], [unshaped("y")]))
    left = fused(shared, data, "ChangeEinsumToMatMul MergeViews")[0]
    assert sorted(left) == ["MatMul", "Transpose", "Transpose", "Transpose"]


@pytest.mark.parametrize("equation", ["abc,adc->abd", "ac,ac->ac", "abc,bc->a", "bc,c->b", "b,c->bc", "abc,cd->ad",
                                      "bbc,cd->bd", "...c,cd->...d"])
def test_left(shared, equation):
    left, right = equation.split("->")[0].replace("...", "ab").split(",")
    data = made_of(graph([product(equation)], [value("x", shape=shaped(left.replace("bb", "aa"))),
                                               value("z", shape=shaped(right))], [unshaped("y")]))
    operators, reasons = fused(shared, data, "ChangeEinsumToMatMul")
    assert operators == ["Einsum"] and reasons == ({"more-work"} if equation == "abc,adc->abd" else set())


def test_a_size_of_one_is_not_broadcast(shared):
    """Einsum repeats it, MatMul would refuse it."""
    data = made_of(graph([product("bc,cd->bd")], [value("x", shape=(5, 1)), value("z", shape=(3, 4))], [unshaped("y")]))
    assert fused(shared, data, "ChangeEinsumToMatMul")[0] == ["Einsum"]


@pytest.mark.parametrize("dtype, left", [(6, "MatMul"), (3, "Einsum")])
def test_integers(shared, dtype, left):
    """MatMul takes int32, and no int8."""
    inputs = [value("x", dtype, (2, 3)), value("z", dtype, (3, 4))]
    data = made_of(graph([product("bc,cd->bd")], inputs, [unshaped("y", dtype)]))
    assert operators(optimize(shared, data, "ChangeEinsumToMatMul")[1].body) == [left]


def test_unknown_sizes(shared):
    data = made_of(graph([product("bc,cd->bd")], [named("x", ("n", "m")), named("z", ("k", 4))], [unshaped("y")]))
    assert fused(shared, data, "ChangeEinsumToMatMul")[0] == ["Einsum"]
    data = made_of(graph([product("bc,cd->bd")], [named("x", ("n", "m")), named("z", ("m", 4))], [unshaped("y")]))
    assert fused(shared, data, "ChangeEinsumToMatMul")[0] == ["MatMul"]
