"""POST /v1/compare: two graphs on the same inputs."""

import base64
import copy
import hashlib
import json
import struct

import pytest
from blobs import stored as stored_blob
from documents import FIXTURES, batch_norm_fold, branches, counts, node, ref
from test_evaluate import RELU, bound, evaluate, graph_of, output, stored, x_file
from weights_files import numbers, tensors_of

PASSES = ["MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse", "FuseBatchNorm2dInConv2d",
          "FuseBatchNorm1dInLinear"]
RANDOM = {"random_weights": True}


def compare(service, a, b, **more):
    answer = service.post("/v1/compare", {"a": a, "b": b, **more})
    assert answer.status == 200, answer
    return answer.json()


def refusal(service, a, b, **more):
    answer = service.post("/v1/compare", {"a": a, "b": b, **more})
    assert answer.status >= 400, answer
    return answer.status, answer.json()["code"]


@pytest.mark.parametrize("name", ["toy", "bert-tiny", "resnet-tiny"])
def test_a_run_computes_the_same(shared, name):
    run = shared.post("/v1/optimize", {"graph": bound(shared, name), "passes": PASSES}).json()
    inputs = stored_blob(shared, (FIXTURES / name / "io.safetensors").read_bytes())
    for options in ({"inputs": inputs}, {"seed": 1}):
        found = compare(shared, run["source"], run["result"], **options)
        assert found["passes"] and found["first_node"] is None and found["outputs"]
        for i, one in enumerate(found["outputs"]):
            assert one["name"] == f"output.{i}" and one["passes"] and one["max_relative"] < 1e-5
            assert one["a_against_float64"]["max_relative"] < 1e-5 and one["b_against_float64"]["max_relative"] < 1e-5


def test_the_same_graph_differs_by_nothing(shared):
    graph = branches()
    found = compare(shared, graph, graph, **RANDOM)
    assert [one[key] for one in found["outputs"] for key in ("max_absolute", "max_relative", "max_ulp")] == [0, 0, 0]


def test_where_they_differ(shared):
    """x + 1 and then relu, against x + 1.5 and then relu, on given inputs."""

    def shifted(by):
        return graph_of(
            node("start", "call_function", "operator.mul", [ref("x"), 2]),
            node("add", "call_function", "operator.add", [ref("start"), by]),
            node("relu", "call_function", "torch.relu", [ref("add")]),
            output("relu"),
        )

    inputs = stored_blob(shared, x_file([1, 2, 3, 4, 5, 6.5]))
    found = compare(shared, shifted(1), shifted(1.5), inputs=inputs)
    (one,) = found["outputs"]
    assert not found["passes"] and not one["passes"] and found["first_node"]["name"] == "add"
    assert one["max_absolute"] == 0.5 and one["max_relative"] == 0.5 / 14.5 and one["dtype"] == "float32"
    assert one["a_against_float64"]["max_absolute"] == one["b_against_float64"]["max_absolute"] == 0
    assert compare(shared, shifted(1), shifted(1.5), inputs=inputs, tolerance={"absolute": 0.5})["passes"]
    assert not compare(shared, shifted(1), shifted(1.5), inputs=inputs, tolerance={"absolute": 0.49})["passes"]
    assert compare(shared, shifted(1), shifted(1.5), inputs=inputs, tolerance={"relative": 0.04})["passes"]


def test_what_is_not_finite_is_null(shared):
    other = graph_of(node("log", "call_function", "torch.log", [ref("x")]), output("log"))
    inputs = stored_blob(shared, x_file([-1] * 6))
    (one,) = compare(shared, RELU, other, inputs=inputs)["outputs"]
    assert one["max_absolute"] is None and not one["passes"]


def test_random_weights_are_the_same_in_both(shared):
    graph = batch_norm_fold()
    other = copy.deepcopy(graph)
    other["name"] = "other"
    (one,) = compare(shared, graph, other)["outputs"]
    assert (one["verdict"], one["reason"], one["max_absolute"]) == ("not-evaluated", "bytes-unknown", None)
    run = shared.post("/v1/optimize", {"graph": graph, "passes": ["FuseBatchNorm2dInConv2d"]}).json()
    found = compare(shared, run["source"], run["result"], **RANDOM)
    assert found["passes"] and 0 < found["outputs"][0]["max_relative"] < 1e-5
    other = copy.deepcopy(graph)
    other["modules"][2]["config"]["eps"] = 0.5
    assert not compare(shared, graph, other, **RANDOM)["passes"]


def test_it_is_what_evaluate_gives(shared):
    graph, inputs = stored(shared, RELU), x_file([1, 2, 3, 4, 5, 6])
    other = stored(shared, graph_of(node("neg", "call_function", "torch.neg", [ref("x")]), output("neg")))
    a, b = (numbers(tensors_of(evaluate(shared, one, inputs).body)["output.0"][2]) for one in (graph, other))
    (one,) = compare(shared, graph, other, inputs=stored_blob(shared, inputs))["outputs"]
    assert one["max_absolute"] == max(abs(x - y) for x, y in zip(a, b)) == 12


def verdicts(found):
    return [(one["name"], one["verdict"], one["reason"]) for one in found["outputs"]]


def test_another_number_of_outputs_and_another_shape(shared):
    two = graph_of(node("relu", "call_function", "torch.relu", [ref("x")]), output("relu", "x"))
    found = compare(shared, RELU, two)
    assert found["verdict"] == "not-evaluated" and not found["passes"]
    assert verdicts(found) == [("output.0", "same", None), ("output.1", "not-evaluated", "missing-in-a")]
    assert verdicts(compare(shared, two, RELU))[1] == ("output.1", "not-evaluated", "missing-in-b")
    total = graph_of(node("sum_1", "call_method", "sum", [ref("x")]), output("sum_1"))
    assert verdicts(compare(shared, RELU, total)) == [("output.0", "differs", "shape")]


@pytest.mark.parametrize(
    "one, other",
    [
        ({"$tuple": [ref("start"), 3]}, {"$tuple": [ref("start"), 4]}),
        ({"$tuple": [ref("start"), None]}, {"$tuple": [ref("start")]}),
        ({"$dict": [["a", ref("start")]]}, {"$dict": [["b", ref("start")]]}),
    ],
)
def test_outputs_that_differ_in_what_is_no_tensor(shared, one, other):
    start = node("start", "call_function", "operator.mul", [ref("x"), 2])
    graphs = [graph_of(start, node("output", "output", "output", [value])) for value in (one, other)]
    assert verdicts(compare(shared, *graphs)) == [("output.0", "same", None), ("structure", "differs", "structure")]
    assert compare(shared, graphs[0], graphs[0])["verdict"] == "same"


@pytest.mark.parametrize("value", [ref("start"), [ref("start")], {"$dict": [["a", ref("start")]]}])
def test_an_exported_program_gives_a_flat_list_of_what_the_model_gave(shared, value):
    start = node("start", "call_function", "operator.mul", [ref("x"), 2])
    graphs = [graph_of(start, node("output", "output", "output", [one])) for one in (value, {"$tuple": [ref("start")]})]
    assert verdicts(compare(shared, *graphs)) == [("output.0", "same", None)]


def test_narrow_dtypes_have_a_tolerance_that_tells(shared):
    """A factor that is a fifth too large, in bfloat16."""

    def scaled(by):
        graph = graph_of(node("start", "call_function", "operator.mul", [ref("x"), by]), output("start"))
        graph["nodes"][0]["meta"]["dtype"] = "bfloat16"
        return graph

    assert not compare(shared, scaled(1.0), scaled(1.2))["passes"]
    found = compare(shared, scaled(1.0), scaled(1.01))  # which bfloat16 hides, and float64 does not
    assert verdicts(found) == [("output.0", "differs", "float64")]
    assert compare(shared, scaled(1.0), scaled(1.01), tolerance={"relative": 2**-4})["passes"]


def test_what_cannot_be_evaluated(shared):
    unknown = graph_of(node("f", "call_function", "my.own.function", [ref("x")]), output("f"))
    (one,) = compare(shared, RELU, unknown)["outputs"]
    assert (one["verdict"], one["reason"], one["node"], one["target"]) == (
        "not-evaluated", "unsupported-operator", "f", "my.own.function")
    assert compare(shared, unknown, unknown)["verdict"] == "same"
    nowhere = json.loads(json.dumps(RELU))
    del nowhere["nodes"][0]["meta"]
    other = graph_of(node("neg", "call_function", "torch.neg", [ref("x")]), output("neg"))
    del other["nodes"][0]["meta"]
    assert verdicts(compare(shared, nowhere, other)) == [("output.0", "not-evaluated", "missing-shape")]


def chain(*steps, name="x", dtype="float32", shape=(2, 3), returned=None):
    """A graph that applies functions one after another: (target, [further arguments])."""
    nodes, last = [], name
    for i, (target, *more) in enumerate(steps):
        nodes.append(node(f"v{i}", "call_function", target, [ref(last), *more]))
        last = f"v{i}"
    graph = graph_of(*nodes, output(*(returned or [last])))
    graph["nodes"][0].update(name=name, target=name, meta={"shape": list(shape), "dtype": dtype})
    return graph


def test_same_is_proved_and_not_evaluated(shared):
    """Other names of nodes and inputs, and another order, of operators that cannot be evaluated."""

    def graph(first, second, source):
        f = node(first, "call_function", "torch.rot90", [ref(source)])
        g = node(second, "call_function", "torch.neg", [ref(source)])
        end = node(first + second, "call_function", "torch.add", [ref(first), ref(second)])
        made = graph_of(*((f, g) if first < second else (g, f)), end, output(first + second))
        made["nodes"][0].update(name=source, target=source)
        return made

    found = compare(shared, graph("a", "b", "x"), graph("n", "m", "input_1"))
    assert (found["verdict"], found["samples"], found["outputs"][0]["max_absolute"]) == ("same", 0, 0)


def test_views_that_move_bytes_only(shared):
    one = chain(("torch.exp",))
    two = chain(("torch.reshape", [6]), ("torch.reshape", [2, 3]), ("torch.exp",))
    for part in two["nodes"][1:3]:
        part["meta"] = {"dtype": "float32", "shape": part["args"][1]}
    found = compare(shared, one, two)
    assert (found["verdict"], found["samples"]) == ("moved", 0)
    wrong = copy.deepcopy(two)
    wrong["nodes"][1]["args"][1] = [3, 2]  # and the recorded shape is not what the call gives
    wrong["nodes"][2]["args"][1] = [3, 2]
    assert compare(shared, one, wrong)["verdict"] == "differs"


def test_a_recorded_shape_that_is_wrong_proves_nothing(shared):
    wrong = chain(("torch.flatten",), ("torch.exp",))
    wrong["nodes"][1]["meta"] = {"dtype": "float32", "shape": [2, 3]}
    assert verdicts(compare(shared, chain(("torch.exp",)), wrong)) == [("output.0", "differs", "shape")]


def test_writes_into_one_of_two_equal_values_are_not_same(shared):
    """x + 1 twice, one of them written in place: the other one is what is returned."""
    one = graph_of(
        node("p", "call_function", "torch.add", [ref("x"), 1]),
        node("q", "call_function", "torch.add", [ref("x"), 1]),
        node("w", "call_method", "mul_", [ref("p"), 3]),
        output("q"),
    )
    two = graph_of(
        node("p", "call_function", "torch.add", [ref("x"), 1]),
        node("w", "call_method", "mul_", [ref("p"), 3]),
        output("p"),
    )
    assert compare(shared, one, two)["verdict"] == "differs"
    assert compare(shared, one, one)["verdict"] == "same"


def test_random_numbers_in_another_order_are_not_same(shared):
    def drops(first, second):
        return graph_of(
            node("a", "call_function", "torch.dropout", [ref("x"), first, True]),
            node("b", "call_function", "torch.dropout", [ref("x"), second, True]),
            output("a", "b"),
        )

    assert compare(shared, drops(0.5, 0.25), drops(0.5, 0.25))["verdict"] == "same"
    other = drops(0.25, 0.5)
    other["nodes"][3]["args"][0] = [ref("b"), ref("a")]
    assert [one["reason"] for one in compare(shared, drops(0.5, 0.25), other)["outputs"]] == ["random", "random"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("torch.exp",)], [("torch.exp2",)]),
        ([("torch.gt", 0.5)], [("torch.ge", 0.5)]),  # at a value that is drawn again and again
        ([("torch.sign",)], [("torch.ge", 0.0), ("torch.mul", 2.0), ("torch.sub", 1.0)]),  # at zero
        ([("torch.nn.functional.layer_norm", [3], None, None, 1e-5)],
         [("torch.nn.functional.layer_norm", [3], None, None, 1e-6)]),
        ([("torch.clamp", -100.0, 100.0)], [("torch.clamp", -100.0, 1000.0)]),  # at large values
        ([("torch.softmax", 0)], [("torch.softmax", 1)]),
        ([("torch.tril", 0)], [("torch.tril", -1)]),
        ([("torch.exp",), ("torch.log",)], [("torch.sub", 1e5), ("torch.log",)]),  # nan in b alone
        ([("operator.add", 1e-40)], [("operator.add", 0.0)]),  # denormal
    ],
)
def test_a_counterexample_can_be_replayed(shared, one, other):
    a, b = chain(*one), chain(*other)
    found = compare(shared, a, b)
    (result,) = found["outputs"]
    assert found["verdict"] == result["verdict"] == "differs", found
    at = result["counterexample"]
    again = compare(shared, a, b, seed=at["seed"], samples=at["sample"] + 1)
    assert again["outputs"][0]["counterexample"] == at and at["a"] != at["b"]
    assert compare(shared, a, copy.deepcopy(a))["verdict"] == "same"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("torch.gt", 2.5), ("torch.ge", 2.5)),  # beyond what random numbers reach
        (("torch.lt", -17.3), ("torch.lt", -17.5)),  # between two numbers that the graphs name
        (("torch.lt", 1.5), ("torch.lt", 1.515)),  # which are neighbours in bfloat16
        (("torch.clamp", -40.0, 60.0), ("torch.clamp", -40.0, 60.5)),
    ],
)
def test_what_differs_at_numbers_that_the_graphs_name_is_drawn_there(shared, one, other, dtype):
    found = compare(shared, chain(one, dtype=dtype, shape=(16, 24)), chain(other, dtype=dtype, shape=(16, 24)))
    assert found["verdict"] == "differs", found


def test_integers_that_the_graphs_name_are_drawn(shared):
    def graph(pad):
        return chain(("torch.eq", pad), dtype="int64", shape=(16, 24))

    assert compare(shared, graph(7), graph(9))["verdict"] == "differs"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_one_weight_that_differs_less_than_the_dtype_rounds(shared, dtype):
    """The calls are the same, so that nothing else explains it. Where two weights differ, they may be rounded."""

    def graph(first, second):
        tensors = {"w": first, "v": second}
        made = {
            "format": "foldback.graph/1", "modules": [{"path": "", "type": "Net", "parameters": {k: k for k in tensors}}],
            "tensors": [{"name": k, "dtype": "float32", "shape": [64], "data": base64.b64encode(v).decode()}
                        for k, v in tensors.items()],
            "nodes": [
                node("x", "placeholder", "x", meta={"shape": [64], "dtype": dtype}),
                node("w", "get_attr", "w"), node("v", "get_attr", "v"),
                node("wide", "call_method", "to", [ref("x"), {"$dtype": "float32"}]),
                node("a", "call_function", "torch.add", [ref("wide"), ref("w")]),
                node("b", "call_function", "torch.add", [ref("a"), ref("v")]),
                output("b"),
            ],
        }
        return made

    plain, other = struct.pack("<64f", *[1.0] * 64), struct.pack("<64f", 1.0004, *[1.0] * 63)
    assert verdicts(compare(shared, graph(plain, plain), graph(plain, other))) == [("output.0", "differs", "float64")]
    assert compare(shared, graph(plain, plain), graph(other, other))["verdict"] == "evaluated"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("torch.div", 3.0)], [("torch.mul", 1 / 3)]),
        ([("torch.nn.functional.silu",)],
         [("torch.neg",), ("torch.exp",), ("torch.add", 1.0), ("torch.reciprocal",), ("torch.mul", ref("x"))]),
        ([("torch.softmax", 1)], [("torch.log_softmax", 1), ("torch.exp",)]),
        ([("torch.mul", 0.1)], [("operator.truediv", 10.0)]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_what_is_equal_but_for_rounding(shared, one, other, dtype):
    found = compare(shared, chain(*one, dtype=dtype), chain(*other, dtype=dtype))
    assert found["verdict"] == "evaluated" and found["outputs"][0]["samples"] >= 6, found


def test_a_cast_that_is_lost(shared):
    half = chain(("torch.Tensor.to", {"$dtype": "float16"}), ("torch.Tensor.to", {"$dtype": "float32"}), ("torch.mul", 2.0))
    for part in half["nodes"][1:3]:
        part.update(op="call_method", target="to")
    assert compare(shared, half, chain(("torch.mul", 2.0)))["verdict"] == "differs"
    other = copy.deepcopy(half)
    other["nodes"][2]["args"][1] = {"$dtype": "float64"}
    assert verdicts(compare(shared, half, other)) == [("output.0", "not-evaluated", "dtype")]


def test_inputs_are_matched_by_position_where_names_differ(shared):
    found = compare(shared, chain(("torch.exp",)), chain(("torch.log",), ("torch.exp",), ("torch.exp",), name="other"))
    assert found["inputs"] == [] and found["verdict"] in ("differs", "not-evaluated")
    more = chain(("torch.exp",))
    more["nodes"].insert(1, node("y", "placeholder", "y", meta={"shape": [1], "dtype": "float32"}))
    found = compare(shared, chain(("torch.exp",)), more)
    assert [(one["name"], one["reason"]) for one in found["inputs"]] == [("y", "missing-in-a")]
    assert found["verdict"] == "not-evaluated" and found["outputs"][0]["verdict"] == "same"


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"a": None}, 422, "wrong-type"),
        ({"b": "sha256:" + "0" * 64}, 404, "unknown-graph"),
        ({"b": {"format": "foldback.graph/1", "nodes": [], "modules": [], "tensors": []}}, 422, "missing-output"),
        ({"seed": "1"}, 422, "wrong-type"),
        ({"inputs": "x"}, 422, "bad-digest"),
        ({"inputs": 1}, 422, "wrong-type"),
        ({"inputs": "sha256:" + "0" * 64}, 409, "blob-missing"),
        ({"tolerance": 1}, 422, "wrong-type"),
        ({"tolerance": {"absolute": -1}}, 422, "wrong-type"),
        ({"tolerance": {"ulp": 1}}, 422, "unknown-member"),
        ({"random_weights": 1}, 422, "wrong-type"),
        ({"samples": 0}, 422, "wrong-type"),
        ({"samples": 1.5}, 422, "wrong-type"),
        ({"samples": 100000}, 422, "wrong-type"),
        ({"c": RELU}, 422, "unknown-member"),
    ],
)
def test_bad_requests(shared, change, status, code):
    answer = shared.post("/v1/compare", {"a": RELU, "b": RELU, **change})
    assert (answer.status, answer.json()["code"]) == (status, code)


def test_both_are_needed(shared):
    for body in ({"a": RELU}, {"b": RELU}, {}):
        answer = shared.post("/v1/compare", body)
        assert (answer.status, answer.json()["code"]) == (422, "missing-member")


def test_a_file_that_is_none(shared):
    assert refusal(shared, RELU, RELU, inputs=stored_blob(shared, b"no safetensors")) == (422, "bad-safetensors")
    assert refusal(shared, RELU, RELU, inputs=stored_blob(shared, x_file([1] * 6, "y"))) == (422, "unknown-input")


def test_nothing_is_stored(service):
    compare(service, RELU, RELU)
    assert counts(service) == (0, 0)


# ---- regions: of large graphs, and of those whose weights are elsewhere ------------------------------------------------------


def layers(count, changes=None, known=(), factor=2.0):
    """Linears in a row, whose weights are named and nowhere but in `known`; `changes` gives a layer's activation."""
    nodes, tensors, parameters = [node("x", "placeholder", "x", meta={"shape": [2, 8], "dtype": "float32"})], [], {}
    last = "x"
    for i in range(count):
        name = f"w{i}"
        data = struct.pack("<64f", *[((i + 1) * (k % 7) - 3) / 16 for k in range(64)])
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        tensors.append({"name": name, "dtype": "float32", "shape": [8, 8], "digest": digest}
                       | ({"data": base64.b64encode(data).decode()} if i in known else {}))
        parameters[name] = name
        target, arguments = (changes or {}).get(i, ("torch.mul", [factor]))
        meta = {"shape": [2, 8], "dtype": "float32"}
        nodes += [node(name, "get_attr", name, meta={"shape": [8, 8], "dtype": "float32"}),
                  node(f"l{i}", "call_function", "torch.nn.functional.linear", [ref(last), ref(name)], meta=meta),
                  node(f"a{i}", "call_function", target, [ref(f"l{i}"), *arguments], meta=meta)]
        last = f"a{i}"
    return {"format": "foldback.graph/1", "modules": [{"path": "", "type": "Net", "parameters": parameters}],
            "tensors": tensors, "nodes": [*nodes, output(last)]}


def test_graphs_that_differ_in_a_few_places_are_judged_there(shared):
    """Of forty layers three differ, and no weight is there."""
    a = layers(40)
    b = layers(40, {i: ("torch.div", [0.5]) for i in (3, 20, 39)})
    found = compare(shared, a, b)
    assert (found["verdict"], found["regions"]) == ("evaluated", {"count": 3, "nodes": 6})
    assert found["outputs"][0]["samples"] == found["samples"] == 8 and found["outputs"][0]["max_relative"] == 0


def test_the_weights_of_these_places_alone_are_read(shared):
    def merged(known):
        """One of the layers has another operand order, so that its weight is needed."""
        made = layers(20, known=known)
        row = next(row for row in made["nodes"] if row["name"] == "l7")
        row["target"], row["args"] = "torch.matmul", [row["args"][0], ref("t7")]
        turned = node("t7", "call_function", "torch.t", [ref("w7")], meta={"shape": [8, 8], "dtype": "float32"})
        made["nodes"].insert(made["nodes"].index(row), turned)
        return made

    found = compare(shared, layers(20, known=[7]), merged([7]))
    assert (found["verdict"], found["regions"]["count"]) == ("evaluated", 1), found
    assert verdicts(compare(shared, layers(20), merged([]))) == [("output.0", "not-evaluated", "bytes-unknown")]


@pytest.mark.parametrize("wrong", [("torch.div", [0.5 + 2**-20]), ("torch.relu", []), ("torch.clamp", [-100.0, 100.0])])
def test_regions_that_do_not_agree_prove_nothing(shared, wrong):
    """The weights are needed to find inputs that lead there."""
    broken = layers(10, {4: wrong})
    found = compare(shared, layers(10), broken)
    assert (verdicts(found), found["regions"]) == ([("output.0", "not-evaluated", "bytes-unknown")], None)
    known = compare(shared, layers(10, known=range(10)), layers(10, {4: wrong}, known=range(10)))
    assert known["verdict"] == "differs" and known["regions"] is None


def test_a_weight_that_nobody_knows_is_not_the_same_in_a_region(shared):
    a, b = layers(4), layers(4, {2: ("torch.div", [0.5])})
    for graph in (a, b):
        del graph["tensors"][0]["digest"]
    assert compare(shared, a, b)["verdict"] == "not-evaluated"
    assert compare(shared, a, b, random_weights=True)["verdict"] == "evaluated"


def test_a_recorded_shape_that_is_wrong_is_not_given_to_a_region(shared):
    a, b = layers(4), layers(4, {2: ("torch.div", [0.5])})
    for graph in (a, b):
        next(row for row in graph["nodes"] if row["name"] == "l2")["meta"]["shape"] = [8, 2]
    assert compare(shared, a, b)["verdict"] == "not-evaluated"


def test_a_graph_of_many_nodes_is_not_evaluated_as_a_whole(shared):
    def long(change):
        steps = [("torch.neg",)] * 10001
        for i in change:
            steps[i] = ("torch.mul", -1.0)
        made = chain(*steps)
        for row in made["nodes"][1:-1]:
            row["meta"] = {"shape": [2, 3], "dtype": "float32"}
        return made

    found = compare(shared, long([]), long([5, 500, 9000]))
    assert (found["verdict"], found["regions"]) == ("evaluated", {"count": 3, "nodes": 6})
