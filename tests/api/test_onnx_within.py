"""EvaluateConstants and FoldConstants in branches, bodies and functions of ONNX models: constants of a program and those that
it captures, what must stay, and undo."""

import struct

import pytest
from test_onnx import send
from test_onnx_changed import field, fields, graph, made_of, node, number, optimize, part, tensor, value, within
from test_onnx_folds import attribute, integer, ints, whole

BOTH = "EvaluateConstants FoldConstants EliminateDeadCode"
PERM = ints("perm", [1, 0])


def renamed(one, at):
    """The node with names of one branch: a message says how long each is."""
    return field(1, b"".join(field(tag, content.replace(b"@", at.encode()) if tag < 3 else content)
                             for tag, content in fields(part(one, 1)[0])))


def own(at, name, numbers, shape):
    return tensor(name.replace("@", at), numbers, shape)


def chosen(branches, initializers=(), outer=(), more=(), inputs=(), ir=8):
    """A model that chooses between two branches: nodes and initializers of each, in whose names @ is the branch's letter."""
    made = []
    for at, name, (nodes, stored) in zip("te", ("then_branch", "else_branch"), branches):
        body = graph([renamed(one, at) for one in nodes], [], [value(f"{at}out")], [own(at, *one) for one in stored], name=name)
        made.append(field(1, name) + number(20, 5) + field(6, body))
    choice = field(1, part(node("If", "c", "y"), 1)[0] + b"".join(field(5, one) for one in made))
    return made_of(graph([*outer, choice, *more], [value("x"), value("c", dtype=9, shape=()), *inputs], [value("y")],
                         initializers), ir=ir)


def names(graph_message):
    return [part(one, 4)[0].decode() for one in part(graph_message, 1)]


def branches_of(model):
    return [found for one in part(model, 7, 1) for found in part(one, 5, 6)]


def computes_the_same(service, run):
    found = service.post("/v1/compare", {"a": run["source"], "b": run["result"], "seed": 3}).json()
    assert found["verdict"] in ("same", "moved", "evaluated"), found


def folded(service, data, passes=BOTH):
    """What is left in each branch, and the model; it computes the same, and undone it is the file."""
    run, written = optimize(service, data, passes)
    assert written.status == 200, written.body
    computes_the_same(service, run)
    back = service.post(f"/v1/runs/{run['id']}/rollback", {}).json()
    assert service.get(f"/v1/graphs/{back['result']}/archive").body == data
    if run["reversible"]:
        again = service.post("/v1/reverse", {"graph": run["result"], "passes": [one["name"] for one in run["passes"]]}).json()
        assert service.get(f"/v1/graphs/{again['result']}/archive").body == data
    assert send(service, written.body).json()["id"] == run["result"]
    return [names(one) for one in branches_of(written.body)], written.body, run


def floats(initializer):
    raw = b"".join(part(initializer, 9))
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def stored_within(model):
    return [[floats(one) for one in part(branch, 5)] for branch in branches_of(model)]


W = tensor("w", [1.5, 2.5, 3.5], (3,))
OWN = ("@w", [1.5, 2.5, 3.5], (3,))


@pytest.mark.parametrize("where", ["own", "captured"])
def test_constants_of_a_branch_are_evaluated(shared, where):
    w = "@w" if where == "own" else "w"
    nodes = [node("Mul", f"{w} {w}", "@a"), node("Sub", f"@a {w}", "@b"), node("Add", "x @b", "@out")]
    data = chosen([(nodes, [OWN] if where == "own" else [])] * 2, [] if where == "own" else [W])
    left, model, run = folded(shared, data, "EvaluateConstants EliminateDeadCode")
    assert left == [["Add"]] * 2 and stored_within(model) == [[[0.75, 3.75, 8.75]]] * 2
    assert run["reversible"] and not part(model, 7, 5), "nothing reads the captured weight any more"


def test_a_constant_of_the_main_graph_that_branches_compute_with(shared):
    """It is computed there, and captured; and what is computed of it within as well."""
    nodes = [node("Neg", "m", "@a"), node("Add", "x @a", "@out")]
    data = chosen([(nodes, [])] * 2, [W], outer=[node("Mul", "w w", "m")])
    left, model, _ = folded(shared, data, "EvaluateConstants EliminateDeadCode")
    assert left == [["Add"]] * 2 and stored_within(model) == [[[-2.25, -6.25, -12.25]]] * 2
    assert names(part(model, 7)[0]) == ["If"]


def test_a_default_that_a_caller_may_override_is_none(shared):
    nodes = [node("Mul", "w w", "@a"), node("Add", "x @a", "@out")]
    data = chosen([(nodes, [])] * 2, [W], inputs=[value("w", shape=(3,))])
    assert folded(shared, data)[0] == [["Mul", "Add"]] * 2


def test_what_a_branch_gives_stays(shared):
    nodes = [node("Add", "w w", "@a"), node("Neg", "@a", "@out")]
    zeros = tensor("w", [0.5] * 6, (2, 3))
    left, _, run = folded(shared, chosen([(nodes, [])] * 2, [zeros]), "EvaluateConstants EliminateDeadCode")
    assert left == [["Neg"]] * 2
    assert [one["reason"] for one in run["passes"][0]["refused"]] == ["graph-output"] * 2


def test_random_numbers_within_stay(shared):
    nodes = [node("RandomNormalLike", "w", "@a"), node("Mul", "@a @a", "@b"), node("Sub", "@b @b", "@n"),
             node("Add", "x @n", "@out")]
    data = chosen([(nodes, [])] * 2, [W])
    run, written = optimize(shared, data, BOTH)
    assert written.body == data and run["result"] == run["source"]


def test_a_branch_within_a_branch(shared):
    inner = [node("Neg", "w", "ti"), node("Add", "x ti", "tin")]
    both = [within(inner, "tin", "then_branch"), within([renamed(one, "e") for one in (
        node("Abs", "w", "@i"), node("Add", "x @i", "@in"))], "ein", "else_branch")]
    choice = field(1, part(node("If", "c", "tout"), 1)[0] + b"".join(field(5, one) for one in both))
    data = chosen([([choice], []), ([node("Add", "x w", "@out")], [])], [W])
    _, model, _ = folded(shared, data)
    inner_graphs = [found for one in part(branches_of(model)[0], 1) for found in part(one, 5, 6)]
    assert [names(one) for one in inner_graphs] == [["Add"]] * 2
    assert [floats(one) for one in part(inner_graphs[0], 5)] == [[-1.5, -2.5, -3.5]]


def test_the_state_of_a_loop_is_no_constant(shared):
    """It begins as one. What a turn computes of weights alone is, also of those that it captures."""
    body = [node("Mul", "state w", "a"), node("Add", "w w", "b"), node("Add", "a b", "last"), node("Identity", "go", "still")]
    inputs = [value("i", 7, ()), value("go", 9, ()), value("state", 1, (3,))]
    outputs = [value("still", 9, ()), value("last", 1, (3,))]
    attributes = field(5, field(1, "body") + number(20, 5) + field(6, graph(body, inputs, outputs)))
    loop = field(1, b"".join(field(1, one) for one in ("n", "", "w")) + field(2, "l") + field(4, "Loop") + attributes)
    data = made_of(graph([loop, node("Add", "x l", "y")], [value("x")], [value("y")], [W, whole("n", [3], ())]))
    left, model, _ = folded(shared, data)
    assert left == [["Mul", "Add", "Identity"]] and stored_within(model) == [[[3.0, 5.0, 7.0]]]


def function(name, nodes, attributes=()):
    body = field(1, name) + field(4, "in") + field(5, "out") + b"".join(field(6, one) for one in attributes)
    return field(25, body + b"".join(field(7, part(one, 1)[0]) for one in nodes) + field(9, number(2, 17)) + field(10, "own"))


def constant(name, numbers):
    return node("Constant", "", name, attribute("value", 4, field(5, tensor("", numbers, (len(numbers),))))).replace(
        field(1, ""), b"", 1)


def call(name, x, y, *attributes):
    return field(1, part(node(name, x, y, *attributes), 1)[0] + field(7, "own"))


def test_constants_of_functions(shared):
    """Its constants are nodes. What an attribute of the function says differs from call to call."""
    given = field(1, "value_float") + number(20, 1) + field(21, "by")
    by = field(1, part(node("Constant", "x", "k"), 1)[0].replace(field(1, "x"), b"", 1) + field(5, given))
    nodes = [constant("c", [1.0, 2.0, 4.0]), by, node("Mul", "c c", "d"), node("Mul", "k k", "l"), node("Add", "in d", "e"),
             node("Mul", "e l", "out")]
    nodes = [one if one != nodes[0] else constant("c", [1.0, 2.0, 4.0]) for one in nodes]
    calls = [call("F", "x", "m", attribute("by", 1, b"\x15" + struct.pack("<f", 2.0))),
             call("F", "m", "y", attribute("by", 1, b"\x15" + struct.pack("<f", 3.0)))]
    rest = field(8, field(1, "own") + number(2, 1)) + function("F", nodes, ["by"])
    data = made_of(graph(calls, [value("x")], [value("y")]), rest=rest)
    run, written = optimize(shared, data, BOTH)
    assert written.status == 200, written.body
    computes_the_same(shared, run)
    left = [part(one, 4)[0].decode() for one in part(written.body, 25, 7)]
    assert left.count("Mul") == 2 and left.count("Add") == 1, "c * c is a constant, and k * k is not"
    back = shared.post(f"/v1/runs/{run['id']}/rollback", {}).json()
    assert shared.get(f"/v1/graphs/{back['result']}/archive").body == data


# ---- weights --------------------------------------------------------------------------------------------------------------

SQUARE = [float(one) for one in range(6)]
TURNED = [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]


@pytest.mark.parametrize("where", ["own", "captured"])
def test_weights_of_a_branch_are_folded(shared, where):
    """Turned in one branch, and cut in the other: recipes of the weight that the branch has, or captures."""
    w = "@w" if where == "own" else "w"
    turned = [node("Transpose", w, "@a", PERM), node("MatMul", "x @a", "@b"), node("MatMul", f"@b {w}", "@out")]
    cut = [node("Slice", f"{w} zero one zero", "@a"), node("Add", "x @a", "@out")]
    stored = [whole("zero", [0]), whole("one", [1])]
    of_it = [("@w", SQUARE, (2, 3))] if where == "own" else []
    data = chosen([(turned, of_it), (cut, of_it)], stored + ([] if where == "own" else [tensor("w", SQUARE, (2, 3))]))
    left, model, run = folded(shared, data, "FoldConstants EliminateDeadCode")
    assert left == [["MatMul", "MatMul"], ["Add"]]
    assert TURNED in stored_within(model)[0] and stored_within(model)[1] == [[0.0, 1.0, 2.0]]
    assert not run["reversible"]


@pytest.mark.parametrize("count", [2, 3])
def test_a_captured_weight_that_others_read_grows(shared, count):
    """Each branch would have its own copy of a view, which nothing makes up for."""
    turned = [node("Transpose", "w", "@a", PERM), node("MatMul", "x @a", "@m"), node("MatMul", "@m w", "@out")]
    data = chosen([(turned, [])] * 2, [tensor("w", SQUARE, (2, 3))])
    graph_id = send(shared, data).json()["id"]
    run = shared.post("/v1/optimize", {"graph": graph_id, "passes": [
        {"name": "FoldConstants", "params": {"maximum_growth": 5 if count == 2 else 6}}]}).json()
    reasons = [one["reason"] for one in run["passes"][0]["refused"]]
    assert reasons == (["too-large"] * 2 if count == 2 else [])


def test_opset_and_ir_of_old_models(shared):
    """Before IR 4 an initializer is listed as an input, and is constant all the same. Graphs within get a Constant instead."""
    nodes = [node("Mul", "w w", "@a"), node("Add", "x @a", "@out")]
    data = chosen([(nodes, [])] * 2, [W], inputs=[value("w", shape=(3,))], ir=3)
    left, model, _ = folded(shared, data)
    assert left == [["Constant", "Add"]] * 2 and stored_within(model) == [[]] * 2
    constants = [floats(part(one, 1, 5, 5)[0]) for one in branches_of(model)]
    assert constants == [[2.25, 6.25, 12.25]] * 2


def test_axes_within(shared):
    """Sizes that are computed of integers in a branch."""
    nodes = [node("Add", "one one", "@n"), node("Concat", "@n three", "@s", integer("axis", 0)),
             node("Reshape", "x @s", "@r"), node("Neg", "@r", "@out")]
    data = chosen([(nodes, [])] * 2, [whole("one", [1]), whole("three", [3])])
    assert folded(shared, data, "EvaluateConstants EliminateDeadCode")[0] == [["Reshape", "Neg"]] * 2


@pytest.mark.parametrize("name", ["FoldShapes", "EvaluateConstants", "FoldConstants"])
def test_a_pass_alone_leaves_a_model_that_can_be_written(shared, name):
    """What a program captures and nothing in it reads any more, no model says: also of a program within."""
    nodes = [node("Shape", "x", "@n"), node("Concat", "@n last", "@k", integer("axis", 0)), node("Reshape", "x @k", "@r"),
             node("Mul", "w w", "@a"), node("Transpose", "v", "@t", PERM), node("Add", "@a @t", "@b"),
             node("MatMul", "x @b", "@out")]
    inner = [within([renamed(one, at) for one in nodes], f"{at}out", branch)
             for at, branch in (("i", "then_branch"), ("j", "else_branch"))]
    choice = field(1, part(node("If", "c", "tout"), 1)[0] + b"".join(field(5, one) for one in inner))
    stored = [whole("last", [1]), tensor("w", [0.5] * 9, (3, 3)), tensor("v", [2.0] * 9, (3, 3))]
    data = chosen([([choice], []), (nodes, [])], stored)
    _, model, run = folded(shared, data, name)
    assert run["passes"][0]["applied"] and model != data
