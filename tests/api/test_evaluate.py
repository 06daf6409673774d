"""POST /v1/graphs/{id}/evaluate: recorded inputs give PyTorch's outputs; what cannot be evaluated is said by name."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import math
import struct

import pytest
from blobs import stored as stored_blob
from blobs import wait_until
from documents import FIXTURES, node, ref
from weights_files import file_of, floats, numbers, tensors_of

# Small ones, of each kind; all of them are evaluated by tests/unit/test_eval_fixtures.c.
RECORDED = ["toy", "bert-tiny", "gpt2-tiny", "aten-toy"]


def bound(service, name):
    """The id of a fixture with its weights."""
    weights = (FIXTURES / name / "weights.safetensors").read_bytes()
    digest = stored_blob(service, weights)
    answer = service.post("/v1/graphs", (FIXTURES / name / "graph.json").read_bytes(), raw_query={"weights": digest})
    assert answer.status in (200, 201), answer
    return answer.json()["id"]


def stored(service, graph):
    answer = service.post("/v1/graphs", graph)
    assert answer.status in (200, 201), answer
    return answer.json()["id"]


def graph_of(*nodes, **more):
    """A document of these nodes, which read x: float32 [2, 3]."""
    x = node("x", "placeholder", "x", meta={"shape": [2, 3], "dtype": "float32"})
    return {
        "format": "foldback.graph/1",
        "nodes": [x, *nodes],
        "modules": [{"path": "", "type": "Model"}],
        "tensors": [],
        **more,
    }


def output(*names):
    return node("output", "output", "output", [ref(names[0]) if len(names) == 1 else [ref(name) for name in names]])


RELU = graph_of(node("relu", "call_function", "torch.relu", [ref("x")]), output("relu"))


def evaluate(service, graph, body=None, **options):
    return service.post(f"/v1/graphs/{graph}/evaluate", body, **options)


def test_a_weight_that_a_linear_reads_twice(shared):
    """Not in parts, as one that is nothing but its weight."""
    data = base64.b64encode(floats([1, 2, 3, 4])).decode()
    graph = graph_of(
        node("w", "get_attr", "w"),
        node("y", "call_function", "torch._C._nn.linear", [ref("w"), ref("w")]),
        output("y"),
        modules=[{"path": "", "type": "Model", "parameters": {"w": "w"}}],
        tensors=[{"name": "w", "dtype": "float32", "shape": [2, 2], "data": data}],
    )
    answer = evaluate(shared, stored(shared, graph), x_file([0] * 6), headers={"Content-Type": "application/octet-stream"})
    assert answer.status == 200, answer
    assert numbers(tensors_of(answer.body)["output.0"][2]) == [5, 11, 11, 25]


def x_file(values, name="x", shape=(2, 3)):
    return file_of({name: ("float32", list(shape), floats(values))})


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_inputs_give_the_recorded_outputs(shared, name):
    recorded = (FIXTURES / name / "io.safetensors").read_bytes()
    answer = evaluate(shared, bound(shared, name), recorded, headers={"Content-Type": "application/octet-stream"})
    assert answer.status == 200 and answer.headers["content-type"] == "application/octet-stream"
    found = tensors_of(answer.body)
    expected = {key: value for key, value in tensors_of(recorded).items() if key.startswith("output.")}
    assert found.keys() == expected.keys()
    for key, (dtype, shape, part) in expected.items():
        assert found[key][:2] == (dtype, shape)
        values = numbers(part)
        largest = max(map(abs, values))
        assert all(abs(a - b) <= 1e-5 * largest for a, b in zip(numbers(found[key][2]), values))


def test_inputs_by_name(shared):
    graph = stored(shared, RELU)
    for name in ("x", "input.x"):
        answer = evaluate(shared, graph, x_file([-1, 2, -3, 4, 0.5, 7], name))
        assert answer.status == 200
        assert tensors_of(answer.body) == {"output.0": ("float32", [2, 3], floats([0, 2, 0, 4, 0.5, 7]))}


def test_other_shapes_than_the_recorded_one(shared):
    answer = evaluate(shared, stored(shared, RELU), x_file([1, -1], shape=[2]))
    assert tensors_of(answer.body)["output.0"] == ("float32", [2], floats([1, 0]))


def test_random_inputs_are_those_of_the_seed(shared):
    graph = stored(shared, RELU)
    default, zero, one, body = (
        evaluate(shared, graph).body,
        evaluate(shared, graph, raw_query="seed=0").body,
        evaluate(shared, graph, raw_query="seed=1").body,
        evaluate(shared, graph, {"seed": 1.0}).body,
    )
    assert default == zero != one == body
    assert tensors_of(one)["output.0"][:2] == ("float32", [2, 3])


def test_float64(shared):
    graph = stored(shared, graph_of(node("exp", "call_function", "torch.exp", [ref("x")]), output("exp")))
    sent = x_file([1, 2, 3, 4, 5, 6])
    answer = evaluate(shared, graph, sent, raw_query="precision=float64")
    dtype, shape, part = tensors_of(answer.body)["output.0"]
    assert (dtype, shape) == ("float64", [2, 3])
    assert all(math.isclose(a, math.exp(x), rel_tol=1e-14) for a, x in zip(struct.unpack("<6d", part), range(1, 7)))
    assert tensors_of(evaluate(shared, graph, sent).body)["output.0"][0] == "float32"
    assert tensors_of(evaluate(shared, graph, {"precision": "float64"}).body)["output.0"][0] == "float64"


def test_several_outputs_in_order(shared):
    graph = graph_of(
        node("neg", "call_function", "operator.neg", [ref("x")]),
        node("sum_1", "call_method", "sum", [ref("x")]),
        output("neg", "sum_1"),
    )
    found = tensors_of(evaluate(shared, stored(shared, graph), x_file([1, 2, 3, 4, 5, 6])).body)
    assert found == {
        "output.0": ("float32", [2, 3], floats([-1, -2, -3, -4, -5, -6])),
        "output.1": ("float32", [], floats([21])),
    }


def test_what_an_assignment_to_items_gives(shared):
    """The code of torch.fx (`x[0] = 7; setitem = x`) goes on with the tensor; a call of the method gives None."""
    written = struct.pack("<6f", 7, 7, 7, 4, 5, 6)
    for kind, target, expected in (
        ("call_function", "operator.setitem", {"output.0": ("float32", [2, 3], written)}),
        ("call_method", "__setitem__", {}),
    ):
        graph = graph_of(node("setitem", kind, target, [ref("x"), 0, 7.0]), output("setitem"))
        assert tensors_of(evaluate(shared, stored(shared, graph), x_file([1, 2, 3, 4, 5, 6])).body) == expected


def test_weights_that_are_not_here(shared):
    graph = stored(shared, json.loads((FIXTURES / "toy" / "graph.json").read_text()))
    answer = evaluate(shared, graph)
    assert answer.status == 409 and answer.json()["code"] == "bytes-missing"
    for options in ({"raw_query": "random_weights=true"}, {"body": {"random_weights": True}}):
        answer = evaluate(shared, graph, **options)
        assert answer.status == 200 and "output.0" in tensors_of(answer.body)


def test_an_unsupported_operator_is_named(shared):
    graph = graph_of(
        node("relu", "call_function", "torch.relu", [ref("x")]),
        node("mystery", "call_function", "torch.rrelu", [ref("relu")], kwargs={"training": True}),
        output("mystery"),
    )
    answer = evaluate(shared, stored(shared, graph))
    problem = answer.json()
    assert answer.status == 422 and problem["code"] == "unsupported-operator"
    assert problem["nodes"] == ["mystery"] and problem["target"] == "torch.rrelu"


def test_a_complex_number_is_not_evaluated(shared):
    """PyTorch has the call."""
    graph = graph_of(node("mul", "call_function", "torch.mul", [ref("x"), {"$complex": [0, 1]}]), output("mul"))
    answer = evaluate(shared, stored(shared, graph))
    assert (answer.status, answer.json()["code"]) == (422, "unsupported-operator"), answer


OPERATORS = "torch.ops.higher_order."
VMAP = "torch._functorch.predispatch."


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "inputs", "found"),
    [
        ("wrap_with_set_grad_enabled", [False, ref("program"), ref("x")], {}, ["y"], None),
        ("wrap_with_set_grad_enabled", [False, ref("program")], {"y": ref("x")}, ["y"], "keyword arguments"),
        ("wrap_with_set_grad_enabled", [False, ref("program"), ref("x")], {"y": ref("x")}, ["y"], "keyword arguments"),
        ("wrap_with_set_grad_enabled", [False, ref("program"), ref("x"), ref("x")], {}, ["y"], "fewer inputs"),
        ("wrap_with_set_grad_enabled", [False, ref("program"), ref("x")], {}, ["y", "z"], "more inputs"),
        ("wrap_with_set_grad_enabled", [False, ref("program"), ref("x")], {}, ["*y"], "tuple"),
        ("wrap_with_autocast", ["cpu", None, False, True, ref("program"), ref("x")], {}, ["y"], None),
        ("wrap_with_autocast", ["cpu", None, False, True, ref("program")], {"y": ref("x")}, ["y"], "keyword arguments"),
    ],
)
def test_inputs_of_a_nested_program(shared, target, args, kwargs, inputs, found):
    """They are given by position, one each: what is given otherwise is not dropped."""
    given = [node(name.strip("*"), "placeholder", name) for name in inputs]
    body = [*given, node("relu", "call_function", "torch.relu", [ref("y")]), output("relu")]
    graph = graph_of(
        node("program", "get_attr", "program"),
        node("call", "call_function", OPERATORS + target, args, kwargs=kwargs),
        output("call"),
        modules=[{"path": "", "type": "Model"}, {"path": "program", "type": "torch.fx.GraphModule", "graph": {"nodes": body}}],
    )
    answer = evaluate(shared, stored(shared, graph))
    assert (answer.status == 200) == (found is None), answer
    assert found is None or (answer.json()["nodes"] == ["call"] and found in answer.json()["detail"])


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        (None, None),
        ("open", {"chunk_size": 1}),
        ("batch", {"offset": 1}),
        ("index", {"offset": 1}),
        ("left", {"offset": 1}),
        ("close", {"level": 1}),
    ],
)
def test_keywords_of_vmap_are_not_dropped(shared, changed, more):
    function = "_ConstantFunction(func=<function _call_custom_autograd_function_in_pre_dispatch>)"
    index = "torch._dynamo._trace_wrapped_higher_order_op.ModIndex"
    graph = graph_of(
        node("n", "call_function", "torch.arange", [2]),
        node("function", "get_attr", "function"),
        node("shape", "get_attr", "shape"),
        node("open", "call_function", VMAP + "_vmap_increment_nesting", [2, "error"]),
        node("batch", "call_function", VMAP + "_add_batch_dim", [ref("n"), 0, 1]),
        node("index", "call_function", OPERATORS + "flat_apply",
             [ref("function"), ref("shape"), index, ref("n"), ref("batch")]),
        node("left", "call_function", VMAP + "_remove_batch_dim", [ref("index"), 1, 2, 0]),
        node("close", "call_function", VMAP + "_vmap_decrement_nesting"),
        output("left"),
        modules=[{"path": "", "type": "Model",
                  "attributes": {"function": {"$opaque": function}, "shape": {"$opaque": "TreeSpec"}}}],
    )
    for one in graph["nodes"]:
        one["kwargs"] = more if one["name"] == changed else {}
    answer = evaluate(shared, stored(shared, graph))
    assert (answer.status == 200) == (changed is None), answer
    assert changed is None or (answer.json()["nodes"] == [changed] and "keyword arguments" in answer.json()["detail"])


def test_elements_that_are_written_twice(shared):
    """Overlapping windows: PyTorch's result depends on the order in which it writes them."""
    graph = graph_of(
        node("unfold", "call_method", "unfold", [ref("x"), -1, 2, 1]),
        node("mul_", "call_method", "mul_", [ref("unfold"), 2]),
        output("mul_"),
    )
    answer = evaluate(shared, stored(shared, graph))
    assert answer.status == 422 and answer.json()["code"] == "unsupported-operator" and answer.json()["nodes"] == ["mul_"]
    graph["nodes"][1]["args"][3] = 2  # apart
    assert evaluate(shared, stored(shared, graph)).status == 200


@pytest.mark.parametrize("index", [0, [0], {"$tuple": [{"$slice": [None, None, None]}, 0]}], ids=str)
def test_elements_that_are_assigned_twice(shared, index):
    """PyTorch raises, or writes them in its own order."""
    graph = graph_of(
        node("rows", "call_method", "unsqueeze", [ref("x"), 0]),
        node("expand", "call_method", "expand", [ref("rows"), 2, -1, -1]),
        node("set", "call_function", "operator.setitem", [ref("expand"), index, 5.0]),
        output("expand"),
    )
    answer = evaluate(shared, stored(shared, graph))
    is_one_row = index == 0
    assert answer.status == (200 if is_one_row else 422), answer
    assert is_one_row or answer.json()["code"] == "unsupported-operator" and answer.json()["nodes"] == ["set"]


def test_what_is_missing(shared):
    add = node("add", "call_function", "operator.add", [ref("x"), ref("y")])
    two = graph_of(node("y", "placeholder", "y"), add, output("add"))
    graph = stored(shared, two)
    answer = evaluate(shared, graph, x_file([1] * 6))
    assert (answer.status, answer.json()["code"], answer.json()["nodes"]) == (422, "missing-input", ["y"])
    answer = evaluate(shared, graph)
    assert (answer.status, answer.json()["code"], answer.json()["nodes"]) == (422, "missing-shape", ["y"])
    answer = evaluate(shared, graph, x_file([1] * 6, "z"))
    assert (answer.status, answer.json()["code"], answer.json()["names"]) == (422, "unknown-input", ["z"])


def test_shapes_that_do_not_fit(shared):
    graph = stored(shared, graph_of(node("mm", "call_function", "torch.matmul", [ref("x"), ref("x")]), output("mm")))
    answer = evaluate(shared, graph, x_file([1] * 6))
    assert (answer.status, answer.json()["code"], answer.json()["nodes"]) == (422, "evaluation-failed", ["mm"])


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ({"raw_query": "precision=half"}, 422, "bad-parameter"),
        ({"raw_query": "seed=-1"}, 422, "bad-parameter"),
        ({"raw_query": "sed=1"}, 422, "unknown-parameter"),
        ({"body": {"seed": -1}}, 422, "wrong-type"),
        ({"body": {"seed": 1.5}}, 422, "wrong-type"),
        ({"body": {"random_weights": "yes"}}, 422, "wrong-type"),
        ({"body": {"precision": "half"}}, 422, "wrong-type"),
        ({"body": {"inputs": {}}}, 422, "unknown-member"),
        ({"body": {"seed": 1}, "raw_query": "seed=2"}, 422, "given-twice"),
        ({"body": "{", "headers": {"Content-Type": "application/json"}}, 400, "invalid-json"),
        ({"body": b"\x10\0\0\0\0\0\0\0{}"}, 422, "bad-safetensors"),
        ({"body": b"rubbish"}, 422, "bad-safetensors"),
    ],
)
def test_bad_requests(shared, options, status, code):
    answer = evaluate(shared, stored(shared, RELU), **options)
    assert (answer.status, answer.json()["code"]) == (status, code)


def test_an_unknown_graph(shared):
    answer = evaluate(shared, "sha256:" + "0" * 64)
    assert (answer.status, answer.json()["code"]) == (404, "unknown-graph")


def test_memory_is_limited(new_service):
    service = new_service("--evaluation-memory", "4K")
    graph = stored(service, RELU)
    assert evaluate(service, graph, x_file([1] * 6)).status == 200
    answer = evaluate(service, graph, x_file([1] * 2000, shape=[2000]))
    assert (answer.status, answer.json()["code"]) == (413, "evaluation-too-large")


def test_a_view_counts_with_all_its_elements(new_service):
    """Expanded it has 4 GB in 24 bytes."""
    service = new_service("--evaluation-memory", "64M")
    wide = node("wide", "call_method", "expand", [ref("x"), 200_000_000, -1, -1])
    total = node("total", "call_method", "sum", [ref("wide")])
    for nodes in ([wide, output("wide")], [wide, total, output("total")]):
        answer = evaluate(service, stored(service, graph_of(*nodes)), {"seed": 1})
        assert answer.status == 413 and answer.json()["code"] == "evaluation-too-large"


def test_an_input_is_given_once(shared):
    twice = file_of({name: ("float32", [2, 3], floats([1] * 6)) for name in ("x", "input.x")})
    answer = evaluate(shared, stored(shared, RELU), twice)
    assert answer.status == 422 and answer.json()["code"] == "given-twice"


def slow_graph(steps=400):
    """Minutes of matrix products."""
    nodes = [node("x", "placeholder", "x", meta={"shape": [2000, 2000], "dtype": "float32"})]
    for i in range(steps):
        nodes.append(node(f"mm{i}", "call_function", "torch.matmul", [ref(nodes[-1]["name"]), ref("x")]))
    return {**RELU, "nodes": [*nodes, output(nodes[-1]["name"])]}


def test_time_is_limited(new_service):
    service = new_service("--evaluation-timeout", "1")
    answer = evaluate(service, stored(service, slow_graph()))
    assert (answer.status, answer.json()["code"]) == (422, "evaluation-timeout")


def test_a_stop_ends_what_runs(new_service):
    service = new_service("--stop-timeout", "0")
    graph = stored(service, slow_graph())
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(service.request, "POST", f"/v1/graphs/{graph}/evaluate")
        wait_until(lambda: b'foldback_http_in_flight 2' in service.get("/metrics").body)
        assert service.stop() == 0  # long before the evaluation would end
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert running.result().status == 503


def test_only_so_many_at_once(new_service):
    service = new_service("--max-evaluations", "1", "--stop-timeout", "0")
    slow, quick = stored(service, slow_graph()), stored(service, RELU)


    def evaluate_slowly():  # it may meet one of the quick ones
        while evaluate(service, slow).status == 503:
            pass

    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(evaluate_slowly)
        wait_until(lambda: evaluate(service, quick).status == 503)
        answer = evaluate(service, quick)
        assert answer.json()["code"] == "too-many-evaluations" and "retry-after" in answer.headers
        assert service.get("/readyz").status == 200
        service.stop()
        with contextlib.suppress(OSError, http.client.HTTPException):
            running.result()


def symbolic(size):
    meta = {"dtype": "float32", "shape": [size, 3]}
    graph = graph_of(node("y", "placeholder", "y", meta=meta),
                     node("sum", "call_function", "torch.add", [ref("x"), ref("y")], meta=meta), output("sum"))
    graph["nodes"][0]["meta"] = meta
    return graph


def test_sizes_that_are_symbols(shared):
    """Any size will do, the same for all tensors of one symbol, and that of an input which is given."""
    [(_, (size, three), _)] = tensors_of(evaluate(shared, stored(shared, symbolic("s0"))).body).values()
    assert 5 <= size <= 15 and three == 3
    both = {"a": symbolic("s0"), "b": symbolic("s0")}
    answer = shared.post("/v1/compare", {**both, "inputs": stored_blob(shared, x_file([1] * 6))})
    assert answer.status == 200 and answer.json()["passes"], "y is as long as x"
    refused = evaluate(shared, stored(shared, symbolic("2*s0")))
    assert (refused.status, refused.json()["code"], refused.json()["nodes"]) == (422, "missing-shape", ["x"])


LARGEST = 2**63 - 1
FUNCTIONAL = "torch.nn.functional."


@pytest.mark.parametrize(
    "target,sizes,rest",
    [
        (FUNCTIONAL + "conv1d", [[2, 3, 8], [4, 3, 3]], [None, LARGEST, LARGEST]),
        (FUNCTIONAL + "conv1d", [[2, 3, 8], [4, 3, 3]], [None, 1, 0, LARGEST]),
        (FUNCTIONAL + "conv1d", [[2, 3, 8], [4, 3, 3]], [None, 1, "same", LARGEST]),
        (FUNCTIONAL + "conv2d", [[1, 2, 6, 6], [4, 2, 3, 3]], [None, [1, 2**62], [2**62, 1]]),
        (FUNCTIONAL + "conv2d", [[0, 2, 6, 6], [0, 2, 3, 3]], [None, 2**40, 2**62]),
        (FUNCTIONAL + "conv_transpose1d", [[2, 3, 8], [3, 4, 3]], [None, LARGEST]),
        (FUNCTIONAL + "conv_transpose1d", [[2, 3, 8], [3, 4, 3]], [None, 1, 0, 0, LARGEST]),
        (FUNCTIONAL + "conv_transpose2d", [[1, 2, 6, 6], [2, 4, 3, 3]], [None, 2**32, 0, 0, 1, 2**32]),
        (FUNCTIONAL + "max_pool1d", [[2, 3, 8]], [LARGEST, 2, 2**62 - 1]),
        (FUNCTIONAL + "max_pool2d", [[1, 2, 6, 6]], [2, 2, 0, LARGEST]),
        (FUNCTIONAL + "avg_pool2d", [[1, 2, 6, 6]], [2, LARGEST, 1, True]),
        (FUNCTIONAL + "avg_pool3d", [[1, 2, 4, 4, 4]], [2**62, 2**62, 2**61]),
        (FUNCTIONAL + "adaptive_avg_pool1d", [[2, 3, 8]], [LARGEST]),
        (FUNCTIONAL + "pad", [[2, 3, 8]], [[LARGEST, LARGEST]]),
        (FUNCTIONAL + "pad", [[2, 3, 8]], [[-LARGEST - 1, LARGEST]]),
        (FUNCTIONAL + "pad", [[2, 3, 8]], [[LARGEST, 1], "replicate"]),
        (FUNCTIONAL + "unfold", [[1, 2, 6, 6]], [2, LARGEST]),
        ("torch.reshape", [[2, 0, 8]], [[2**62, 0, 2**62]]),
        ("torch.unflatten", [[2, 0, 8]], [1, [2**62, 0, 2**62]]),
        ("torch.split", [[2, 3, 8]], [[LARGEST, LARGEST, 10], 2]),
        ("torch.chunk", [[2, 3, 8]], [LARGEST, 2]),
        ("torch.tensor_split", [[2, 3, 8]], [LARGEST, 2]),
        ("torch.ops.aten.slice.Tensor", [[2, 3, 8]], [0, 1, 2, LARGEST]),
        ("torch.tril_indices", [], [3, 4, LARGEST]),
        ("torch.eye", [], [LARGEST, 2]),
        ("torch.zeros", [], [[0, LARGEST, LARGEST]]),
        (".expand", [[0, 1, 1]], [0, LARGEST, LARGEST]),
        (".repeat", [[0, 3]], [2**62, 2**62]),
        (".unfold", [[2, 3, 8]], [2, LARGEST, 2]),
    ],
)
def test_sizes_near_the_largest_integer_are_refused(shared, target, sizes, rest):
    """What PyTorch refuses as well, or could only make of more memory than there is. Nothing overflows on the way (make
    asan)."""
    inputs = [
        {"name": f"x{i}", "op": "placeholder", "target": f"x{i}", "args": [], "meta": {"shape": shape, "dtype": "float32"}}
        for i, shape in enumerate(sizes)
    ]
    given = [{"$node": node["name"]} for node in inputs] + rest
    call = {"name": "y", "op": "call_method" if target[0] == "." else "call_function", "target": target.lstrip("."),
            "args": given}
    output = {"name": "output", "op": "output", "target": "output", "args": [{"$node": "y"}]}
    document = {"format": "foldback.graph/1", "nodes": [*inputs, call, output],
                "modules": [{"path": "", "type": "torch.nn.Module"}], "tensors": []}
    answer = evaluate(shared, stored(shared, document), raw_query="seed=0")
    assert answer.status in (413, 422), answer
    assert answer.json()["code"] in ("unsupported-operator", "evaluation-failed", "evaluation-too-large"), answer


def test_an_offset_beyond_the_matrix_leaves_nothing(shared):
    nodes = [
        {"name": "x", "op": "placeholder", "target": "x", "args": [], "meta": {"shape": [3, 4], "dtype": "float32"}},
        {"name": "y", "op": "call_function", "target": "torch.diagonal", "args": [{"$node": "x"}, -(2**63)]},
        {"name": "output", "op": "output", "target": "output", "args": [{"$node": "y"}]},
    ]
    document = {"format": "foldback.graph/1", "nodes": nodes, "modules": [{"path": "", "type": "torch.nn.Module"}],
                "tensors": []}
    answer = evaluate(shared, stored(shared, document), raw_query="seed=0")
    assert answer.status == 200, answer
