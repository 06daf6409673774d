"""ConvertPrecision of ONNX models: what computes in half, the Casts around it, and what stays."""

import pytest
from test_onnx_changed import field, graph, made_of, node, number, part, value
from test_onnx_folds import integer, operators, whole
from test_onnx_formulas import model, numbers
from test_onnx_fusions import changed, weight

HALF = {"to": "float16"}
W, B = weight("w", 8, 8), weight("b", 8)


def casts(data):
    """Where each Cast leads, in order."""
    nodes = [one for one in part(data, 7, 1) if part(one, 4) == [b"Cast"]]
    return [part(option, 3)[0] for one in nodes for option in part(one, 5) if part(option, 1) == [b"to"]]


def converted(service, data, **params):
    """(operators, where the Casts lead, {reason}) of the result, which computes nearly the same; undone, it is the file."""
    (left, reasons), found, made = changed(service, data, "ConvertPrecision", **(HALF | params))
    assert found["verdict"] in ("evaluated", "same"), found
    assert part(made, 7, 11) == part(data, 7, 11) and part(made, 7, 12) == part(data, 7, 12), "they are declared otherwise"
    return left, casts(made), reasons


CONVERTED = {
    "layers": ("MatMul x w > a\nAdd a b > c\nRelu c > y", ["Cast", "MatMul", "Add", "Relu", "Cast"], [10, 1]),
    "an-input-twice": ("MatMul x w > a\nAdd a x > y", ["Cast", "MatMul", "Add", "Cast"], [10, 1]),
    "two-results": ("Relu x > y\nMul y 2.0 > z", ["Cast", "Relu", "Mul", "Cast", "Cast"], [10, 1, 1]),
    "parts": ("Split x > a,c axis=-1 num_outputs=2\nMul a c > y", ["Cast", "Split", "Mul", "Cast"], [10, 1]),
    "places-stay-integers": ("TopK x k > v,i\nMul v 2.0 > y", ["Cast", "TopK", "Mul", "Cast"], [10, 1]),
    "a-norm": ("LayerNormalization x b > n\nRelu n > y", ["Cast", "LayerNormalization", "Relu", "Cast"], [10, 1]),
    "a-cast-that-nobody-converted-reads": ("Size x > s\nCast s > f to=1\nDropout f > d\nMul d x > y", [
        "Size", "Cast", "Dropout", "Cast", "Cast", "Mul", "Cast"], [1, 10, 10, 1]),
    "a-cast": ("Size x > s\nCast s > f to=1\nMul f x > y", ["Size", "Cast", "Cast", "Mul", "Cast"], [10, 10, 1]),
    "what-reads-the-shape-alone": ("Shape x > s\nReshape x s > y", ["Shape", "Cast", "Reshape", "Cast"], [10, 1]),
    "a-comparison": ("Relu x > a\nGreater a 0.5 > g\nWhere g a x > y", [
        "Cast", "Relu", "Cast", "Greater", "Where", "Cast"], [10, 1, 1]),
}


def given(text, opset=20, **more):
    return model(text, opset, (2, 8), weights=[W, B, whole("k", [8]), *more.pop("stored", [])],
                 outputs="y z" if "> z" in text else "y")


@pytest.mark.parametrize("name", CONVERTED)
def test_converted(shared, name):
    text, wanted, leads = CONVERTED[name]
    left, found, _ = converted(shared, given(text))
    assert (left, found) == (wanted, leads)


def test_bfloat16(shared):
    left, found, reasons = converted(shared, given("MatMul x w > a\nRelu a > y"), to="bfloat16")
    assert (left, found, reasons) == (["Cast", "MatMul", "Relu", "Cast"], [16, 1], set())
    left, _, reasons = converted(shared, given("Elu x > a\nRelu a > y"), to="bfloat16")  # Elu has it from opset 22 on
    assert left == ["Elu", "Cast", "Relu", "Cast"] and reasons == {"unsupported-operator"}


EPSILON = "ReduceMean q > v axes=[-1]\nAdd v 1e-12 > e\nSqrt e > r\nDiv x r > n\nMul n b > y"
STAYS = {
    "large-weights": ("Min x big > a\nRelu a > y", ["Min", "Cast", "Relu", "Cast"], {"tensor-overflows"},
                      {"stored": [numbers("big", [1e5] * 8, (8,))]}),
    "an-epsilon": ("Mul x x > q\n" + EPSILON, [
        "Cast", "Mul", "ReduceMean", "Cast", "Add", "Sqrt", "Div", "Cast", "Mul", "Cast"],
                   {"unsupported-constant"}, {"opset": 17}),
    "a-bound": ("Clip x > a min=-100000.0 max=1.0\nRelu a > y", ["Clip", "Cast", "Relu", "Cast"], {"literal-overflows"},
                {"opset": 10}),
    "kept": ("MatMul x w > a\nSoftmax a > s axis=-1\nRelu s > y", ["Cast", "MatMul", "Cast", "Softmax", "Cast", "Relu", "Cast"],
             set(), {"keep": ["Softmax"]}),
    "several-results-of-a-norm": ("LayerNormalization x b > n,m\nAdd n m > y", [
        "LayerNormalization", "Cast", "Cast", "Add", "Cast"], {"unsupported-form"}, {}),
    "nothing": ("Shape x > s\nCast s > y to=1", ["Shape", "Cast"], set(), {}),
}


@pytest.mark.parametrize("name", STAYS)
def test_stays(shared, name):
    text, wanted, reasons, more = STAYS[name]
    params = {"keep": more["keep"]} if "keep" in more else {}
    left, _, found = converted(shared, given(text, **{key: one for key, one in more.items() if key != "keep"}), **params)
    assert left == wanted and found == reasons


def test_what_the_file_says_of_values_that_are_half_now_goes(shared):
    infos = [value(one, shape=(2, 3)) for one in ("a", "b")]
    data = made_of(graph([node("Relu", "x", "a"), node("Cosh", "a", "b"), node("Neg", "b", "y")], [value("x")], [value("y")],
                         infos=infos))
    _, _, made = changed(shared, data, "ConvertPrecision", **(HALF | {"keep": ["Cosh"]}))
    assert part(made, 7, 13, 1) == [b"b"]


def test_outputs_keep_their_dtypes(shared):
    data = given("Relu x > y")
    (left, reasons), _, _ = changed(shared, data, "ConvertPrecision", **HALF, cast_outputs=False)
    assert left == ["Relu"] and reasons == {"unsupported-form"}


def test_a_value_of_doubles_stays(shared):
    nodes = [node("Cast", "x", "d", integer("to", 11)), node("Neg", "d", "e"), node("Cast", "e", "y", integer("to", 1))]
    data = made_of(graph(nodes, [value("x")], [value("y")]))
    (left, _), _, made = changed(shared, data, "ConvertPrecision", **HALF)
    assert left == ["Cast", "Neg", "Cast"] and made == data


def test_what_a_branch_captures_stays_as_it_was(shared):
    """Its program is left alone, and gets float32."""
    branch = field(1, "then_branch") + number(20, 5) + field(6, graph([node("Neg", "s", "t")], [], [value("t")], name="a"))
    other = field(1, "else_branch") + number(20, 5) + field(6, graph([node("Abs", "s", "e")], [], [value("e")], name="b"))
    choice = field(1, part(node("If", "c", "r"), 1)[0] + field(5, branch) + field(5, other))
    data = made_of(graph([node("Sin", "x", "s"), choice, node("Relu", "r", "y")],
                         [value("x"), value("c", dtype=9, shape=())], [value("y")]))
    left, found, _ = converted(shared, data)
    assert left == ["Cast", "Sin", "Cast", "If", "Cast", "Relu", "Cast"] and found == [10, 1, 10, 1]


def test_a_weight_that_several_read_is_rounded_once(shared):
    data = given("MatMul x w > a\nMatMul a w > c\nCosh c > d\nMatMul d w > y")
    (left, _), _, made = changed(shared, data, "ConvertPrecision", **HALF)
    assert left.count("MatMul") == 3 and len([one for one in part(made, 7, 5) if part(one, 2) == [10]]) == 1
    assert operators(made) == left
