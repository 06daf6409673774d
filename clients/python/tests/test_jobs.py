"""What is done in the background."""

import pytest
from test_client import relu

import foldback

PASSES = ["ChangeTrueDivToMulByInverse"]


def test_a_job(client):
    body = {"graph": relu(), "passes": PASSES}
    job = client.submit("/v1/optimize", body, key="one")
    assert client.submit("/v1/optimize", body, key="one").id == job.id
    run = job.wait(timeout=600)
    assert run["kind"] == "optimize" and client.run(run)["id"] == run["id"] and job.result() == run
    info = client.job(job.id).info()
    assert info["state"] == "succeeded" and info["progress"]["done"] == 1
    with pytest.raises(foldback.Problem) as refused:
        job.cancel()
    assert refused.value.code == "job-finished"


def test_events(client):
    job = client.submit("/v1/optimize", {"graph": relu(), "passes": PASSES})
    events = list(job.events())
    assert [event.kind for event in events] == ["queued", "running", "progress", "succeeded"]
    assert events[2].data["progress"]["name"] == PASSES[0]
    assert list(job.events(after=events[1].number)) == events[2:]
    assert list(job.events(after=events[-1].number)) == []


def test_one_that_fails(client):
    job = client.submit("/v1/optimize", {"graph": relu(), "passes": ["NoSuchPass"]})
    with pytest.raises(foldback.Problem) as refused:
        job.wait(timeout=600)
    assert refused.value.code == "unknown-pass"
    with pytest.raises(foldback.Problem) as refused:
        list(client.job("job_x").events())
    assert refused.value.code == "unknown-job"


def test_many_graphs(client):
    graph, missing = client.put_graph(relu()), "sha256:" + "0" * 64
    done = client.optimize_many([graph, missing], PASSES, note="both").wait(timeout=600)
    assert [item["status"] for item in done["items"]] == [201, 404] and (done["succeeded"], done["failed"]) == (1, 1)
    assert client.run(done["items"][0]["run"])["note"] == "both"
