"""foldback job, and --async."""

import pytest
from cli import CommandLine
from jobs import FOREVER, quick_request, slow_graph, wait

PASS = ("--pass", "ChangeTrueDivToMulByInverse")


@pytest.fixture
def service(new_service):
    return new_service("--job-threads", "1")


@pytest.fixture
def foldback(service, tmp_path):
    """The command line, at that service."""
    foldback = CommandLine(tmp_path, "--server", service.url)
    foldback.put("quick.json", quick_request()["graph"])
    foldback.put("slow.json", slow_graph(FOREVER))
    return foldback


def test_a_run_in_the_background(foldback):
    job = foldback("optimize", "quick.json", *PASS, "--async").json()
    waited = foldback("job", "wait", job["id"]).json()
    run = foldback("job", "result", job["id"]).json()
    assert waited["state"] == "succeeded" and waited["location"] == f"/v1/runs/{run['id']}"
    back = foldback("rollback", run["id"], "--async").json()
    assert foldback("job", "wait", back["id"]).status == 0
    assert [item["id"] for item in foldback("job", "list").json()["items"]] == [back["id"], job["id"]]
    assert foldback("job", "list", "--state", "failed").json()["items"] == []


def test_on_a_terminal(foldback):
    job = foldback("optimize", "quick.json", *PASS, "--async").json()["id"]
    foldback("job", "wait", job)
    for words in (("show", job), ("list",)):
        shown = foldback.on_terminal("job", *words)
        assert shown.status == 0 and job in shown.out and "succeeded" in shown.out and "1 of 1" in shown.out


def test_cancelling(service, foldback):
    job = foldback("optimize", "slow.json", *PASS, "--validate", "graph", "--async").json()["id"]
    assert foldback("job", "show", job).json()["id"] == job
    assert foldback("job", "cancel", job).status == 0
    wait(service, {"id": job})
    assert foldback("job", "wait", job).status == 1
    refused = foldback("job", "result", job)
    assert refused.status == 1 and "cancelled" in refused.err


@pytest.mark.parametrize(
    "words",
    [("job",), ("job", "do"), ("job", "wait"), ("job", "list", "x"), ("optimize", "quick.json", *PASS, "--async", "-o", "x")],
)
def test_usage(foldback, words):
    assert foldback(*words).status == 2


def test_without_a_service_it_is_done_now(foldback):
    """There is nothing that would go on in the background."""
    foldback.place = ["--data", "data"]
    run = foldback("optimize", "quick.json", *PASS, "--async").json()
    assert run["kind"] == "optimize" and run["id"].startswith("run_")
    assert foldback("job", "list").json() == {"items": []}
