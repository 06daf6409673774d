"""Graphs whose tracer recorded no dtypes: what follows from weights, and what the caller says."""

import json
import pathlib
import time

import pytest

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"

DIVIDE = "ChangeTrueDivToMulByInverse"


def untyped(with_layer):
    """x / 3, or linear(x) / 3; nothing is recorded."""
    nodes = [{"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {}, "meta": {}}]
    modules, tensors = [{"path": "", "type": "torch.nn.Module"}], []
    if with_layer:
        nodes.append({"name": "q", "op": "call_module", "target": "q", "args": [{"$node": "x"}], "kwargs": {}, "meta": {}})
        config = {"in_features": 2, "out_features": 2, "bias": False}
        modules.append({"path": "q", "type": "torch.nn.Linear", "config": config, "parameters": {"weight": "w", "bias": None},
                        "buffers": {}, "training": False})
        tensors.append({"name": "w", "dtype": "float32", "shape": [2, 2]})
    read = nodes[-1]["name"]
    nodes.append({"name": "y", "op": "call_function", "target": "operator.truediv",
                  "args": [{"$node": read}, {"$float": "3.0"}],
                  "kwargs": {}, "meta": {}})
    nodes.append({"name": "output", "op": "output", "target": "output", "args": [{"$node": "y"}], "kwargs": {}, "meta": {}})
    return {"format": "foldback.graph/1", "name": "untyped", "nodes": nodes, "modules": modules, "tensors": tensors}


def optimize(service, graph, status=201, **options):
    answer = service.post("/v1/optimize", {"graph": graph, "passes": [DIVIDE], "options": options})
    assert answer.status == status, answer.json()
    return answer.json()


def test_a_refusal_says_how_to_give_a_dtype(service):
    refused = optimize(service, untyped(True))["passes"][0]["refused"][0]
    assert refused["reason"] == "unknown-dtype" and "meta.dtype" in refused["detail"] and "assume" in refused["detail"]


def test_what_follows_from_weights(service):
    run = optimize(service, untyped(True), assume={})
    assert [(row["name"], row["params"], row["applied"]) for row in run["passes"]] == [("RecordTypes", {}, 2), (DIVIDE, {}, 1)]
    undone = service.post(f"/v1/runs/{run['id']}/reverse", {}).json()
    assert undone["result"] == run["source"] and undone["exact"]
    divided = service.post(f"/v1/runs/{run['id']}/reverse", {"passes": [DIVIDE]}).json()
    nodes = {row["name"]: row for row in service.get(f"/v1/graphs/{divided['result']}").json()["nodes"]}
    assert nodes["q"]["meta"]["dtype"] == "float32" and nodes["y"]["target"] == "operator.truediv"


@pytest.mark.parametrize("how", ["body", "query", "job"])
def test_an_assumed_dtype_is_recorded_in_the_run(service, how):
    graph = untyped(False)
    assert optimize(service, graph, assume={})["passes"][1]["applied"] == 0
    if how == "body":
        run = optimize(service, graph, assume={"dtype": "float16"})
    elif how == "query":
        answer = service.post(f"/v1/optimize?pass={DIVIDE}&assume=float16", graph)
        run = answer.json()
    else:
        stored = service.post("/v1/graphs", graph).json()["id"]
        body = {"graphs": [stored], "passes": [DIVIDE], "options": {"assume": {"dtype": "float16"}}}
        job = service.post("/v1/jobs", body, headers={"Prefer": "respond-async"}).json()["id"]
        deadline = time.monotonic() + 600
        while service.get(f"/v1/jobs/{job}").json()["state"] not in ("succeeded", "failed"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run = service.get(f"/v1/jobs/{job}/result").json()["items"][0]
        run = service.get(f"/v1/runs/{run.get('run') or run['id']}").json()
    first, second = run["passes"]
    assert (first["name"], first["params"], second["applied"]) == ("RecordTypes", {"dtype": "float16"}, 1)


@pytest.mark.parametrize(
    ("assume", "code", "pointer"),
    [
        ("float32", "wrong-type", "/options/assume"),
        ({"dtype": "int64"}, None, "/options/assume/dtype"),
        ({"dtyp": "float32"}, None, "/options/assume/dtyp"),
    ],
)
def test_what_is_wrong_with_it_is_said(service, assume, code, pointer):
    problem = optimize(service, untyped(False), 422, assume=assume)
    assert problem["pointer"] == pointer and code in (None, problem["code"])


@pytest.mark.parametrize(("fixture", "share"),
                         [("toy", 0.95), ("bert-tiny", 0.9), ("gpt2-tiny", 0.8), ("resnet-tiny", 0.95), ("aten-bert", 0.5)])
def test_what_is_recorded_is_what_the_tracer_saw(service, fixture, share):
    document = json.loads((FIXTURES / fixture / "graph.json").read_text())
    seen = {row["name"]: dict(row["meta"]) for row in document["nodes"]}
    for row in document["nodes"]:
        row["meta"] = {}
    answer = service.post("/v1/optimize", {"graph": document, "passes": ["RecordTypes"], "options": {"include": ["graph"]}})
    found = {row["name"]: row["meta"] for row in answer.json()["graph"]["nodes"]}
    for name, meta in found.items():
        assert {key: item for key, item in meta.items() if key in ("shape", "dtype")}.items() <= seen[name].items(), name
    known = sum("dtype" in meta for meta in found.values())
    assert known >= share * sum("dtype" in meta for meta in seen.values())
