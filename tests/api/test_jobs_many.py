"""Jobs over many graphs."""

import time

import pytest
from jobs import FOREVER, Events, begin, get, result, runs, slow_graph, store, wait
from test_http import is_problem


def test_one_job_over_many_graphs(service):
    graphs = [store(service, slow_graph(0, f"graph {i}")) for i in range(3)]
    missing = "sha256:" + "0" * 64
    body = {"graphs": [graphs[0], missing, graphs[1], graphs[0], graphs[2]], "passes": ["ChangeTrueDivToMulByInverse"],
            "note": "all"}
    answer = service.post("/v1/jobs", body)
    assert answer.status == 202, answer
    job = answer.json()
    done = wait(service, job)
    assert (done["state"], done["status"]) == ("succeeded", 200)
    assert done["progress"] == {"done": 5, "total": 5, "name": graphs[2]}
    found = result(service, job).json()
    assert (found["succeeded"], found["failed"]) == (4, 1)
    assert [item["graph"] for item in found["items"]] == body["graphs"]
    assert [item["status"] for item in found["items"]] == [201, 404, 201, 201, 201]
    assert found["items"][1]["problem"]["code"] == "unknown-graph"
    for item in found["items"]:
        if item["status"] == 201:
            run = service.get(f"/v1/runs/{item['run']}").json()
            assert (run["source"], run["result"], run["note"]) == (item["graph"], item["result"], "all")
    assert len(runs(service)) == 4
    events = Events(service, job).rest()
    told = [data for _, event, data in events if event == "graph"]
    assert [data["graph"] for data in told] == body["graphs"] and told[1]["status"] == 404
    assert told[2]["progress"]["done"] == 3


def test_a_dry_run_over_many_stores_nothing(service):
    graph = store(service, slow_graph(0))
    body = {"graphs": [graph], "passes": ["ChangeTrueDivToMulByInverse"], "options": {"dry_run": True}}
    job = service.post("/v1/jobs", body).json()
    wait(service, job)
    (item,) = result(service, job).json()["items"]
    assert item["status"] == 200 and "run" not in item and item["result"] != graph
    assert runs(service) == []


GRAPH = "sha256:" + "1" * 64


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({}, "missing-member", "/graphs"),
        ({"graphs": "x", "passes": ["MergeLinears"]}, "wrong-type", "/graphs"),
        ({"graphs": [], "passes": ["MergeLinears"]}, "wrong-type", "/graphs"),
        ({"graphs": [GRAPH] * 10001, "passes": ["MergeLinears"]}, "wrong-type", "/graphs"),
        ({"graphs": [GRAPH, 7], "passes": ["MergeLinears"]}, "bad-id", "/graphs/1"),
        ({"graphs": ["sha256:x"], "passes": ["MergeLinears"]}, "bad-id", "/graphs/0"),
        ({"graphs": [GRAPH]}, "missing-member", "/passes"),
        ({"graphs": [GRAPH], "passes": ["Nothing"]}, "unknown-pass", "/passes/0"),
        ({"graphs": [GRAPH], "passes": ["MergeLinears"], "options": {"strange": 1}}, "unknown-option", "/options/strange"),
        ({"graphs": [GRAPH], "passes": ["MergeLinears"], "options": {"include": ["graph"]}}, "unknown-option-value",
         "/options/include"),
        ({"graphs": [GRAPH], "passes": ["MergeLinears"], "graph": GRAPH}, "unknown-member", "/graph"),
        ({"graphs": [GRAPH], "passes": ["MergeLinears"], "labels": {"": "x"}}, "bad-label", None),
    ],
)
def test_what_is_wrong_with_a_job_over_many_is_said_at_once(shared, body, code, pointer):
    answer = shared.post("/v1/jobs", body)
    is_problem(answer, 422, code)
    if pointer:
        assert answer.json()["pointer"] == pointer


def test_cancelling_a_job_over_many_keeps_what_was_done(new_service):
    service = new_service()
    quick, slow = store(service, slow_graph(0)), store(service, slow_graph(FOREVER))
    body = {"graphs": [quick, slow, quick], "passes": ["ChangeTrueDivToMulByInverse"], "options": {"validate": "graph"}}
    job = service.post("/v1/jobs", body).json()
    stream = Events(service, job)
    while stream.next()[1] != "graph":
        pass
    service.delete(f"/v1/jobs/{job['id']}")
    assert wait(service, job)["state"] == "cancelled"
    assert [run["source"] for run in runs(service)] == [quick]


@pytest.mark.heavy
def test_what_a_cancelled_job_over_many_had_done_is_listed(new_service):
    service = new_service()
    graphs = [store(service, slow_graph(0, f"{i}")) for i in range(3)] + [store(service, slow_graph(FOREVER))]
    body = {"graphs": [*graphs, graphs[0]], "passes": ["ChangeTrueDivToMulByInverse"], "options": {"validate": "graph"}}
    job = begin(service, "/v1/jobs", body)
    while get(service, job).get("progress", {}).get("done") != 3:
        time.sleep(0.02)
    service.delete(f"/v1/jobs/{job['id']}")
    ended = wait(service, job)
    assert (ended["state"], ended["status"], ended["result"]) == ("cancelled", 200, f"/v1/jobs/{job['id']}/result")
    answer = result(service, job)
    assert answer.status == 200 and (answer.json()["succeeded"], answer.json()["failed"]) == (3, 0)
    items = answer.json()["items"]
    assert [one["graph"] for one in items] == graphs[:3] and all(one["status"] == 201 for one in items)
    assert sorted(one["run"] for one in items) == sorted(one["id"] for one in runs(service))
    service.restart()
    assert result(service, job).json() == answer.json()
