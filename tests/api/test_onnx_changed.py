"""ONNX models that passes changed: written anew, read again as the graph that they are, undone to the very bytes."""

import json

import pytest
from blobs import digest_of
from test_http import is_problem
from test_onnx import NAMES, contents_of, model, send, send_set, varint


def field(number, content):
    """A message or a text."""
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(at, value):
    return varint(at << 3) + varint(value)


def node(op, inputs, outputs, *attributes):
    names = b"".join(field(1, one) for one in inputs.split()) + b"".join(field(2, one) for one in outputs.split())
    return field(1, names + field(4, op) + b"".join(field(5, one) for one in attributes))


def value(name, dtype=1, shape=(2, 3)):
    sizes = b"".join(field(1, number(1, size)) for size in shape)
    return field(1, name) + field(2, field(1, number(1, dtype) + field(2, sizes)))


def tensor(name, numbers, shape, dtype=1):
    import struct
    raw = struct.pack(f"<{len(numbers)}f", *numbers)
    return b"".join(number(1, size) for size in shape) + number(2, dtype) + field(8, name) + field(9, raw)


def graph(nodes, inputs, outputs, initializers=(), name="g", **more):
    """`more`: infos, annotations (lists of messages)."""
    lists = [(5, initializers), (11, inputs), (12, outputs), (13, more.get("infos", ())), (14, more.get("annotations", ()))]
    return b"".join(nodes) + field(2, name) + b"".join(field(at, one) for at, several in lists for one in several)


def made_of(body, ir=8, opset=17, rest=b""):
    return number(1, ir) + field(2, "a tool") + field(7, body) + field(8, number(2, opset)) + rest


def optimize(service, data, passes="cleanup"):
    run = send(service, data, "?" + "&".join(f"pass={one}" for one in passes.split()), path="/v1/optimize").json()
    assert "result" in run, run
    return run, service.get(f"/v1/graphs/{run['result']}/archive")


def fields(data):
    """The fields of a message: numbers, and their values or contents."""
    at = 0

    def read():
        nonlocal at
        shift = found = 0
        while True:
            byte = data[at]
            at += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found
    while at < len(data):
        tag = read()
        wire = tag & 7
        if wire == 0:
            yield tag >> 3, read()
        else:
            size = read() if wire == 2 else {1: 8, 5: 4}[wire]
            yield tag >> 3, data[at:at + size]
            at += size


def part(data, *path):
    """What is at a path of field numbers: lists."""
    found = [data]
    for step in path:
        found = [content for one in found for at, content in fields(one) if at == step]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_undone_to_the_very_bytes(shared, name):
    contents = contents_of(name)
    made = send_set(shared, "model.onnx", contents, "/v1/optimize", "?pass=cleanup").json()
    written = shared.get(f"/v1/graphs/{made['result']}/archive")
    assert written.status == 200, written.body
    listed = shared.get(f"/v1/graphs/{made['result']}/archive/files").json()["files"]
    assert listed["model.onnx"] == {"digest": digest_of(written.body), "size": len(written.body)}
    assert set(listed) == set(contents)
    again = send_set(shared, "model.onnx", contents | {"model.onnx": written.body}).json()
    assert again["id"] == made["result"], "no byte has changed, so it is that graph"
    if made["result"] == made["source"]:
        assert written.body == contents["model.onnx"]
        return
    undone = shared.post("/v1/reverse", {"graph": again["id"]}).json()
    assert undone["result"] == made["source"]
    assert shared.get(f"/v1/graphs/{undone['result']}/archive").body == contents["model.onnx"]


TWICE = [node("Relu", "x", "a"), node("Relu", "x", "b"), node("Add", "a b", "s"), node("Identity", "s", "y")]


def test_what_nothing_touched_is_copied(shared):
    """Also what no table here has: an unknown field of a node, of the graph, of the model."""
    strange = field(1, b"".join(field(1, one) for one in ("x",)) + field(2, "c") + field(4, "Abs") + field(99, "kept"))
    body = graph([strange, *TWICE[:2], node("Add", "a b", "t"), node("Add", "t c", "s"), TWICE[3]], [value("x")], [value("y")],
                 infos=[value("a"), value("b"), value("s"), value("c")]) + field(77, "of the graph")
    data = made_of(body, rest=field(88, "of the model") + field(14, field(1, "key") + field(2, "value")))
    run, written = optimize(shared, data)
    assert written.status == 200, written.body
    assert {one["name"]: one["applied"] for one in run["passes"] if one["applied"]} == {
        "RemoveNoOps": 1, "EliminateCommonSubexpressions": 1}
    assert part(written.body, 7, 1)[0] == part(data, 7, 1)[0] and b"kept" in written.body
    assert part(written.body, 88) == [b"of the model"] and part(written.body, 7, 77) == [b"of the graph"]
    assert part(written.body, 2) == [b"a tool"] and part(written.body, 8) == part(data, 8)
    assert [part(one, 4)[0] for one in part(written.body, 7, 1)] == [b"Abs", b"Relu", b"Add", b"Add"]
    assert part(written.body, 7, 1, 2) == [b"c", b"a", b"t", b"y"], "the output's name is its value's now"
    assert part(written.body, 7, 1, 1) == [b"x", b"x", b"a", b"a", b"t", b"c"]
    assert part(written.body, 7, 13, 1) == [b"a", b"c"], "of values that are gone nothing is said"
    assert part(written.body, 7, 11) == part(data, 7, 11) and part(written.body, 7, 12) == part(data, 7, 12)
    properties = {part(one, 1)[0]: part(one, 2)[0] for one in part(written.body, 14)}
    assert properties == {b"key": b"value", b"foldback.graph": run["result"].encode()}


def test_ir_3_lists_weights_as_inputs(shared):
    """Of one that is gone the input goes as well; another one is constant."""
    body = graph([node("Mul", "x w", "y"), node("Add", "v v", "dead")], [value("x"), value("w"), value("v")], [value("y")],
                 [tensor("w", [2] * 6, (2, 3)), tensor("v", [1] * 6, (2, 3))])
    run, written = optimize(shared, made_of(body, ir=3, opset=8))
    assert part(written.body, 7, 5, 8) == [b"w"] and part(written.body, 7, 11, 1) == [b"x", b"w"]
    run, written = optimize(shared, made_of(body, ir=8))
    assert part(written.body, 7, 5, 8) == [b"w", b"v"] and part(written.body, 7, 11, 1) == [b"x", b"w", b"v"]


def test_outputs_keep_their_names(shared):
    """What is an input, an initializer or another output already is not renamed."""
    body = graph([node("Identity", "x", "a"), node("Identity", "w", "b"), node("Relu", "x", "r"), node("Identity", "r", "c"),
                  node("Identity", "r", "d")],
                 [value("x")], [value(one) for one in "abcd"], [tensor("w", [1] * 6, (2, 3))])
    data = made_of(body)
    run, written = optimize(shared, data)
    assert run["passes"][0]["applied"] == 1
    assert part(written.body, 7, 12) == part(data, 7, 12)
    assert [part(one, 2)[0] for one in part(written.body, 7, 1)] == [b"a", b"b", b"c", b"d"]


def if_reading(name):
    """An If whose branches read a value of the graph around them."""
    branch = graph([node("Neg", name, "inner")], [], [value("inner")], name="branch")
    other = graph([node("Abs", name, "other")], [], [value("other")], name="branch2")
    graphs = [field(1, at) + number(20, 5) + field(6, one) for at, one in (("then_branch", branch), ("else_branch", other))]
    return node("If", "flag", "z", *graphs)


def test_nested_graphs_read_what_replaces_a_value(shared):
    """By its new name, which is an output's; only they keep it alive."""
    body = graph([node("Relu", "x", "r"), node("Identity", "r", "y"), node("Identity", "r", "i"), if_reading("i")],
                 [value("x"), value("flag", 9, ())], [value("y"), value("z")])
    run, written = optimize(shared, made_of(body))
    assert [part(one, 4)[0] for one in part(written.body, 7, 1)] == [b"Relu", b"If"]
    assert part(written.body, 7, 1, 5, 6, 1, 1) == [b"y", b"y"]
    back = shared.post("/v1/reverse", {"graph": run["result"]}).json()
    assert shared.get(f"/v1/graphs/{back['result']}/archive").body == made_of(body)


def test_a_value_that_is_captured_twice(shared):
    """A branch reads two values, of which one takes the place of the other."""
    branch = graph([node("Add", "r i", "inner")], [], [value("inner")], name="branch")
    graphs = [field(1, at) + number(20, 5) + field(6, branch) for at in ("then_branch", "else_branch")]
    body = graph([node("Relu", "x", "r"), node("Identity", "r", "i"), node("If", "flag", "y", *graphs)],
                 [value("x"), value("flag", 9, ())], [value("y")])
    run, written = optimize(shared, made_of(body))
    assert written.status == 200, written.body
    assert part(written.body, 7, 1, 5, 6, 1, 1) == [b"r", b"r"] * 2
    assert send(shared, written.body).json()["id"] == run["result"]


@pytest.mark.parametrize("rest, annotations", [
    (field(20, field(4, field(1, "w") + field(2, "b"))), ()),  # update_binding
    (field(20, field(2, graph([node("Neg", "b", "n")], [], [value("n")], name="algorithm"))), ()),
    (b"", [field(1, "b") + field(2, field(1, "SCALE_TENSOR") + field(2, "w"))]),
])
def test_what_is_named_elsewhere_stays(shared, rest, annotations):
    body = graph([*TWICE], [value("x"), value("w")], [value("y")], [tensor("w", [1] * 6, (2, 3))], annotations=annotations)
    run, written = optimize(shared, made_of(body, rest=rest), "EliminateCommonSubexpressions EliminateDeadCode")
    refused = [one["reason"] for each in run["passes"] for one in each["refused"]]
    assert refused == ["named-elsewhere"] and run["result"] == run["source"]
    assert written.body == made_of(body, rest=rest)


def test_a_result_that_is_not_read_keeps_its_name(shared):
    """Split gives as many parts as it names; two that name other numbers are not the same."""
    body = graph([node("Split", "x", "a b"), node("Split", "x", "c d e"), node("Relu", "a", "y"), node("Relu", "c", "z"),
                  node("Split", "x", "f g h")], [value("x", 1, (6,))], [value("y", 1, (3,)), value("z", 1, (2,))])
    run, written = optimize(shared, made_of(body, opset=13))
    assert [part(one, 2) for one in part(written.body, 7, 1)] == [[b"a", b"b"], [b"c", b"d", b"e"], [b"y"], [b"z"]]


def test_results_of_calls_that_are_one(shared):
    """Two outputs that are the same result of it: the second is a copy."""
    body = graph([node("Split", "x", "a b"), node("Split", "x", "c d"), node("Relu", "c", "y")],
                 [value("x", 1, (6,))], [value("b", 1, (3,)), value("d", 1, (3,)), value("y", 1, (3,))])
    run, written = optimize(shared, made_of(body, opset=13))
    assert written.status == 200, written.body
    assert [part(one, 4)[0] for one in part(written.body, 7, 1)] == [b"Split", b"Relu", b"Identity"]
    assert part(written.body, 7, 12, 1) == [b"b", b"d", b"y"] and part(written.body, 7, 1, 2)[-1] == b"d"
    assert send(shared, written.body).json()["id"] == run["result"]


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli", "Unknown", "LayerNormalization"])
def test_what_may_do_anything_stays(shared, op):
    """Random numbers are drawn as often as before. LayerNormalization is unknown where the opset has none."""
    body = graph([node(op, "x", "a"), node(op, "x", "b"), node(op, "x", "c"), node("Add", "a b", "y")],
                 [value("x")], [value("y")])
    run, written = optimize(shared, made_of(body, opset=15))
    reasons = {one["reason"] for each in run["passes"] for one in each["refused"]}
    assert run["result"] == run["source"] and written.body == made_of(body, opset=15)
    assert reasons == {"random" if op.startswith(("R", "B")) else "unknown-operator"}


def test_dropout(shared):
    """Nothing without training_mode; its mask stays as long as something reads it."""
    def with_mode(mode, mask=False):
        nodes = [node("Dropout", "x r t" if mode else "x", "a m"), node("Relu", "a", "y")]
        inputs = [value("x")] + ([value("t", 9, ())] if mode == "input" else [])
        flag = [number(2, 9) + field(8, "t") + field(5, bytes([mode == "true"]))] if mode in ("true", "false") else []
        outputs = [value("y")] + ([value("m", 9)] if mask else [])
        run, written = optimize(shared, made_of(graph(nodes, inputs, outputs, [tensor("r", [0.5], ())] + flag)))
        return [part(one, 4)[0].decode() for one in part(written.body, 7, 1)]
    assert with_mode(None) == with_mode("false") == ["Relu"]
    assert with_mode(None, True) == with_mode("true") == with_mode("input") == ["Dropout", "Relu"]


def test_new_nodes_say_what_made_them(shared):
    """In documents that another changed: a new call, a new weight of each size, an attribute with another value."""
    import base64
    document = json.loads(shared.get(f"/v1/graphs/{send(shared, model('half-mlp')).json()['id']}").body)
    large = base64.b64encode(bytes(2 * 1024)).decode()
    document["tensors"].append({"name": "new", "dtype": "float16", "shape": [1024], "data": large})
    document["modules"][0]["buffers"]["new"] = "new"
    at = next(i for i, one in enumerate(document["nodes"]) if one["op"] == "output")
    output = document["nodes"][at]["args"][0]["$tuple"][0]["$node"]
    document["nodes"][at:at] = [
        {"name": "new", "op": "get_attr", "target": "new", "args": [], "kwargs": {}, "meta": {}},
        {"name": "sum_of", "op": "call_function", "target": "onnx.ReduceSum.v13", "args": [{"$node": "new"}],
         "kwargs": {"keepdims": 0}, "meta": {}},
        {"name": "last", "op": "call_function", "target": "onnx.Add.v14",
         "args": [{"$node": output}, {"$node": "sum_of"}], "kwargs": {}, "meta": {}}]
    document["nodes"][-1]["args"][0]["$tuple"][0]["$node"] = "last"
    made = shared.post("/v1/graphs", document).json()["id"]
    written = shared.get(f"/v1/graphs/{made}/archive")
    assert written.status == 200, written.body
    again = send(shared, written.body).json()
    assert again["id"] == made
    assert bytes(2048) in part(written.body, 7, 5, 9) and part(written.body, 7, 1, 2)[-1] == part(written.body, 7, 12, 1)[0]
    document["nodes"][at + 1]["target"] = "onnx.ReduceSum.v11"
    wrong = shared.post("/v1/graphs", document).json()["id"]
    assert "ReduceSum.v11" in is_problem(shared.get(f"/v1/graphs/{wrong}/archive"), 409, "archive-changed")["detail"]


def test_what_another_tool_trained_is_merged(shared):
    """It renames values and writes other weights; --run says of which run's result."""
    def made(names, factor, extra=()):
        x, r, s, w, v = names
        nodes = [node("Relu", x, r), node("Identity", r, s), node("Mul", f"{s} {w}", "m"), node("Add", f"m {v}", "y")]
        if extra:
            nodes[1:2] = []
            nodes[1] = node("Mul", f"{r} {w}", "m")
        weights = [tensor(w, [factor * one for one in range(6)], (2, 3)), tensor(v, [factor] * 3, (3,))]
        return made_of(graph(nodes, [value(x)], [value("y")], weights[::-1] if extra else weights))
    source = made(["x", "r", "s", "w", "v"], 1)
    run, written = optimize(shared, source)
    trained = send(shared, made(["input", "7", "8", "onnx::w", "b"], 3, extra=True)).json()["id"]
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": trained})
    assert back.status == 201, back.body
    model = shared.get(f"/v1/graphs/{back.json()['result']}/archive").body
    assert [part(one, 4)[0] for one in part(model, 7, 1)] == [b"Relu", b"Identity", b"Mul", b"Add"]
    assert part(model, 7, 1, 2) == [b"r", b"s", b"m", b"y"] and part(model, 7, 11, 1) == [b"x"]
    assert part(model, 7, 5) == part(made(["x", "r", "s", "w", "v"], 3), 7, 5), "the weights are the trained ones"
    other = send(shared, made_of(graph([node("Neg", "x", "y")], [value("x")], [value("y")]))).json()["id"]
    is_problem(shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": other}), 409, "unrelated-graph")
    is_problem(shared.post("/v1/reverse", {"graph": trained}), 409)


def test_rolled_back_and_bisected(shared):
    run, written = optimize(shared, model("keras-cnn-11"))
    back = shared.post(f"/v1/runs/{run['id']}/rollback", {}).json()
    assert shared.get(f"/v1/graphs/{back['result']}/archive").body == model("keras-cnn-11")
    found = shared.post(f"/v1/runs/{run['id']}/bisect", {}).json()
    assert found["found"] is False and found["verdict"] in ("moved", "same", "evaluated")


def test_the_document_of_a_result_is_canonical(shared):
    """A pass that adds no constant leaves no empty list of them: what is stored has the id that is computed of it again."""
    perm = field(1, "perm") + number(20, 7)
    turns = [perm + b"".join(number(8, one) for one in axes) for axes in ((1, 2, 0), (1, 2, 0))]
    body = graph([node("Transpose", "x", "t", turns[0]), node("Transpose", "t", "y", turns[1])],
                 [value("x", 1, (3, 3, 3))], [value("y", 1, (3, 3, 3))])
    run, written = optimize(shared, made_of(body), "MergeViews")
    assert run["passes"][0]["applied"] == 1
    assert send(shared, written.body).json()["id"] == run["result"]


def test_new_weights_of_a_model_with_files(shared):
    """They go into one new file; the others stay as they came."""
    import base64
    contents = contents_of("external-two-files")
    document = json.loads(shared.get(f"/v1/graphs/{send_set(shared, 'model.onnx', contents).json()['id']}").body)
    for name, size in (("new_large", 2048), ("new_small", 16)):
        data = base64.b64encode(bytes([7]) * size).decode()
        document["tensors"].append({"name": name, "dtype": "uint8", "shape": [size], "data": data})
        document["modules"][0]["buffers"][name] = name
        document["nodes"].insert(-1, {"name": name, "op": "get_attr", "target": name, "args": [], "kwargs": {}, "meta": {}})
        document["nodes"].insert(-1, {"name": f"{name}_size", "op": "call_function", "target": "onnx.Size.v13",
                                      "args": [{"$node": name}], "kwargs": {}, "meta": {}})
    made = shared.post("/v1/graphs", document)
    assert made.status == 201, made.body
    made = made.json()["id"]
    listed = shared.get(f"/v1/graphs/{made}/archive/files")
    assert listed.status == 200, listed.body
    files = listed.json()["files"]
    assert set(files) == {*contents, "model.onnx.foldback.data"}
    got = {one: shared.get(f"/v1/graphs/{made}/archive/files/{one}").body for one in files}
    assert {one: {"digest": digest_of(data), "size": len(data)} for one, data in got.items()} == files
    assert got["model.onnx.foldback.data"] == bytes([7]) * 2048 and bytes([7]) * 16 in got["model.onnx"]
    assert {one: got[one] for one in contents if one != "model.onnx"} == {
        one: data for one, data in contents.items() if one != "model.onnx"}
    path = f"/v1/graphs/{made}/archive/files/model.onnx.foldback.data"
    part_of = shared.request("GET", path, headers={"Range": "bytes=8-11"})
    assert part_of.status == 206 and part_of.body == bytes([7]) * 4
    again = send_set(shared, "model.onnx", got)
    assert again.json().get("id") == made, again.body
    changed = got | {"model.onnx.foldback.data": bytes([8]) * 2048}
    assert send_set(shared, "model.onnx", changed).json()["id"] != made


def within(nodes, output, name):
    """The attribute of a branch that reads what is around it."""
    return field(1, name) + number(20, 5) + field(6, graph(nodes, [], [value(output)], name=name))


def renamed(one, at):
    """The node with names of one branch: a message says how long each is."""
    return field(1, b"".join(field(tag, content.replace(b"@", at.encode())) for tag, content in fields(part(one, 1)[0])))


def cleaned_within(service, nodes, initializers=(), passes="cleanup"):
    """A choice whose branches compute the same: what cleanup leaves of each, and of the nodes around; undone, it is the
    file."""
    branches = [within([renamed(one, at.decode()) for one in nodes], at.decode() + "out", name)
                for at, name in ((b"t", "then_branch"), (b"e", "else_branch"))]
    choice = node("If", "c", "y")
    choice = field(1, part(choice, 1)[0] + b"".join(field(5, one) for one in branches))
    data = made_of(graph([node("Sin", "x", "s"), choice], [value("x"), value("c", dtype=9, shape=())], [value("y")],
                         initializers))
    run, written = optimize(service, data, passes)
    assert written.status == 200, written.body
    if run["result"] != run["source"]:
        back = service.post("/v1/reverse", {"graph": run["result"], "passes": [one["name"] for one in run["passes"]]}).json()
        assert service.get(f"/v1/graphs/{back['result']}/archive").body == data
    nodes = part(written.body, 7, 1)
    left = [part(one, 4)[0].decode() for one in nodes]
    return left, [[part(one, 4)[0].decode() for one in part(graph_of, 1)]
                  for choice in nodes for graph_of in part(choice, 5, 6)]


def test_what_nothing_reads_within_goes_with_what_it_captured(shared):
    dead = [node("Exp", "s", "@dead"), node("Neg", "x", "@out")]
    assert cleaned_within(shared, dead) == (["If"], [["Neg"], ["Neg"]])


def test_what_is_there_twice_within(shared):
    twice = [node("Neg", "s", "@a"), node("Neg", "s", "@b"), node("Add", "@a @b", "@out")]
    assert cleaned_within(shared, twice) == (["Sin", "If"], [["Neg", "Add"]] * 2)


def test_what_does_nothing_within(shared):
    """The order in which values are captured changes with it."""
    nothing = [node("Identity", "s", "@i"), node("Sub", "x @i", "@out")]
    assert cleaned_within(shared, nothing) == (["Sin", "If"], [["Sub"], ["Sub"]])


def test_an_output_within_that_is_captured_keeps_its_identity(shared):
    assert cleaned_within(shared, [node("Neg", "s", "@dead"), node("Identity", "x", "@out")]) == (
        ["If"], [["Identity"], ["Identity"]])


def test_random_numbers_within_stay(shared):
    drawn = [node("RandomNormalLike", "s", "@d"), node("Neg", "x", "@out")]
    assert cleaned_within(shared, drawn) == (["Sin", "If"], [["RandomNormalLike", "Neg"]] * 2)


def test_programs_that_are_alike_share_nothing(shared):
    """What two branches compute is computed by each."""
    alike = [node("Exp", "x", "@e"), node("Add", "@e s", "@out")]
    assert cleaned_within(shared, [*alike, node("Exp", "x", "@f")])[1] == [["Exp", "Add"]] * 2


def test_a_branch_whose_call_is_gone(shared):
    """The second round meets programs that nothing runs any more, in which something is captured for nothing."""
    programs = (field(1, f"{kind}_branch") + number(20, 5)
                + field(6, graph([node(op, "r", kind), node("Neg", "q", f"{kind}n")], [], [value(kind)], name=kind))
                for kind, op in (("then", "Abs"), ("else", "Neg")))
    flag = field(1, "c") + field(2, field(1, number(1, 9) + field(2, b"")))
    nodes = [node("Relu", "x", "r"), node("Exp", "x", "q"), node("If", "c", "z", *programs), node("Add", "r q", "y")]
    _, written = optimize(shared, made_of(graph(nodes, [value("x"), flag], [value("y")])),
                          "EliminateDeadCode EliminateDeadCode")
    assert written.status == 200, written.body
    assert [part(one, 4)[0] for one in part(written.body, 7, 1)] == [b"Relu", b"Exp", b"Add"]
