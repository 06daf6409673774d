"""POST /v1/compare: two graphs on the same inputs."""

import copy
import json

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
    assert refusal(shared, graph, graph) == (409, "bytes-missing")
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


def test_outputs_that_cannot_be_compared(shared):
    two = graph_of(node("relu", "call_function", "torch.relu", [ref("x")]), output("relu", "x"))
    assert refusal(shared, RELU, two) == (422, "output-mismatch")
    total = graph_of(node("sum_1", "call_method", "sum", [ref("x")]), output("sum_1"))
    assert refusal(shared, RELU, total) == (422, "output-mismatch")


@pytest.mark.parametrize(
    "one, other",
    [
        ({"$tuple": [ref("start"), 3]}, {"$tuple": [ref("start"), 4]}),
        ({"$tuple": [ref("start"), None]}, {"$tuple": [ref("start")]}),
        ({"$dict": [["a", ref("start")]]}, {"$dict": [["b", ref("start")]]}),
        ([ref("start")], {"$tuple": [ref("start")]}),
    ],
)
def test_outputs_that_differ_in_what_is_no_tensor(shared, one, other):
    start = node("start", "call_function", "operator.mul", [ref("x"), 2])
    graphs = [graph_of(start, node("output", "output", "output", [value])) for value in (one, other)]
    assert refusal(shared, *graphs) == (422, "output-mismatch")
    assert compare(shared, graphs[0], graphs[0])["passes"]


def test_narrow_dtypes_have_a_tolerance_that_tells(shared):
    """A factor that is a fifth too large, in bfloat16."""

    def scaled(by):
        graph = graph_of(node("start", "call_function", "operator.mul", [ref("x"), by]), output("start"))
        graph["nodes"][0]["meta"]["dtype"] = "bfloat16"
        return graph

    assert not compare(shared, scaled(1.0), scaled(1.2))["passes"]
    assert compare(shared, scaled(1.0), scaled(1.01))["passes"]


def test_what_cannot_be_evaluated(shared):
    unknown = graph_of(node("f", "call_function", "my.own.function", [ref("x")]), output("f"))
    problem = shared.post("/v1/compare", {"a": RELU, "b": unknown}).json()
    assert (problem["code"], problem["nodes"], problem["target"]) == ("unsupported-operator", ["f"], "my.own.function")
    nowhere = json.loads(json.dumps(RELU))
    del nowhere["nodes"][0]["meta"]
    assert refusal(shared, RELU, nowhere) == (422, "missing-shape")


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
