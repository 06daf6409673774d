"""Jobs outlive the service: each is done once, however often it ends in the middle."""

import time

import pytest
from jobs import (
    A_WHILE,
    FOREVER,
    Events,
    begin,
    quick_request,
    result,
    runs,
    slow_graph,
    slow_request,
    store,
    wait,
    wait_for_progress,
    wait_until,
)
from test_http import is_problem


def ended_once(service, job):
    """It has succeeded, with one run, that its result names."""
    done = wait(service, job)
    assert done["state"] == "succeeded", (done, service.log()[-2000:])
    assert [run["id"] for run in runs(service)] == [done["location"].rsplit("/", 1)[1]]
    assert result(service, job).json()["id"] == runs(service)[0]["id"]
    return done


@pytest.mark.long
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_job_that_runs_is_done_after_a_restart(new_service, how):
    service = new_service()
    job = begin(service, "/v1/optimize", slow_request(A_WHILE))
    wait_for_progress(service, job)
    getattr(service, how)()
    service.start()
    done = ended_once(service, job)
    assert done["attempts"] == 2, "it was not in the middle of it"
    events = Events(service, job).rest()
    assert events[-1][1] == "succeeded" and events[0][1] in ("queued", "running")


def test_jobs_that_wait_are_done_after_a_restart_in_their_order(new_service):
    service = new_service("--job-threads", "1")
    running = begin(service, "/v1/optimize", slow_request(FOREVER))
    waiting = [begin(service, "/v1/optimize", quick_request(f"graph {i}")) for i in range(3)]
    service.kill()
    service.start()
    service.delete(f"/v1/jobs/{running['id']}")
    done = [wait(service, job) for job in waiting]
    assert [job["state"] for job in done] == ["succeeded"] * 3
    assert [job["started"] for job in done] == sorted(job["started"] for job in done)
    assert len(runs(service)) == 3


@pytest.mark.long
def test_numbers_of_events_ascend_over_a_restart(new_service):
    service = new_service()
    job = begin(service, "/v1/optimize", slow_request(A_WHILE))
    stream = Events(service, job)
    while stream.next()[1] != "progress":
        pass
    service.kill()
    service.start()
    rest = Events(service, job, last_id=stream.last_id).rest()  # they ascend: Events looks at that
    assert rest[0][1] == "running" and rest[-1][1] == "succeeded"


def test_a_job_that_was_to_be_cancelled_is_not_done_after_a_restart(new_service):
    service = new_service()
    job = begin(service, "/v1/optimize", slow_request(FOREVER))
    wait_for_progress(service, job)
    service.delete(f"/v1/jobs/{job['id']}")
    service.kill()
    service.start()
    assert wait(service, job)["state"] == "cancelled" and runs(service) == []


@pytest.mark.heavy
def test_kills_at_any_moment_give_one_run_each(new_service):
    """Jobs, single and over many graphs, while the service is killed again and again: each graph has one run, or none when its
    job was given up."""
    service = new_service("--job-threads", "2")
    graphs = [store(service, slow_graph(0, f"graph {i}")) for i in range(40)]
    passes = ["ChangeTrueDivToMulByInverse"]
    many = service.post("/v1/jobs", {"graphs": graphs, "passes": passes}).json()
    single = [begin(service, "/v1/optimize", quick_request(f"single {i}")) for i in range(20)]
    for i in range(8):
        time.sleep(0.004 * i)
        service.kill()
        service.start()
    ends = [wait(service, job) for job in (many, *single)]
    made = {run["id"]: run["source"] for run in runs(service)}
    assert len(set(made.values())) == len(made), "a graph has two runs"
    for end in ends:
        if end["state"] == "failed":
            is_problem(result(service, end), 500, "job-interrupted")
    if ends[0]["state"] == "succeeded":
        items = result(service, many).json()["items"]
        assert [made.get(item["run"]) for item in items] == graphs
    of_single = [end["location"].rsplit("/", 1)[1] for end in ends[1:] if end["state"] == "succeeded"]
    assert len(set(of_single)) == len(of_single) and set(of_single) <= set(made)
    assert len(of_single) == len([source for source in made.values() if source not in graphs])


@pytest.mark.long
def test_a_job_over_many_graphs_that_gets_on_is_not_given_up(new_service):
    """It is interrupted more often than a job may be, but a graph was done each time."""
    service = new_service()
    graphs = [store(service, slow_graph(A_WHILE // 20, f"graph {i}")) for i in range(5)]
    body = {"graphs": graphs, "passes": ["ChangeTrueDivToMulByInverse"], "options": {"validate": "graph"}}
    job = service.post("/v1/jobs", body).json()
    for done in range(1, 4):
        deadline = time.monotonic() + 600
        while len(runs(service)) < done:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        service.kill()
        service.start()
    assert wait(service, job)["state"] == "succeeded" and len(runs(service)) == 5


def test_a_job_that_is_interrupted_twice_is_given_up(new_service):
    service = new_service()
    job = begin(service, "/v1/optimize", slow_request(FOREVER))
    for _ in range(2):
        wait_until(service, job, "running")
        service.kill()
        service.start()
    done = wait(service, job)
    assert (done["state"], done["status"], done["attempts"]) == ("failed", 500, 2)
    is_problem(result(service, job), 500, "job-interrupted")
