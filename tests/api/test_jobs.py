"""Jobs: requests that are answered later, whatever happens to the service meanwhile."""

import threading
import time

import pytest
from documents import document, ids
from jobs import (
    FOREVER,
    PREFER,
    Events,
    begin,
    get,
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

UNKNOWN = "job_01M7XTSAAT7GE5FHQDV5WCKM9T"


# ---- every request that may become one ----


def test_the_answer_is_what_it_would_have_been_at_once(service):
    body = quick_request(note="later", labels={"a": "b"})
    job = begin(service, "/v1/optimize", body)
    assert job["state"] == "queued" and job["target"] == "/v1/optimize" and job["attempts"] == 0
    done = wait(service, job)
    assert (done["state"], done["status"], done["attempts"]) == ("succeeded", 201, 1)
    assert done["progress"] == {"done": 1, "total": 1, "name": "ChangeTrueDivToMulByInverse"}
    answer = result(service, job)
    run = answer.json()
    assert answer.status == 201 and answer.headers["location"] == done["location"] == f"/v1/runs/{run['id']}"
    at_once = service.post("/v1/optimize", body).json()
    for varying in ("id", "created"):
        del run[varying], at_once[varying]
    assert run == at_once
    assert service.get(done["location"]).json()["note"] == "later"


def test_all_long_requests(service):
    run = service.post("/v1/optimize", quick_request()).json()
    small = document("bert-tiny")
    graph = store(service, small)
    for path, body, status in [
        (f"/v1/runs/{run['id']}/rollback", None, 201),
        (f"/v1/runs/{run['id']}/reverse", {}, 201),
        ("/v1/reverse", {"graph": run["result"]}, 201),
        (f"/v1/graphs/{graph}/evaluate?random_weights=true&seed=3", None, 200),
        ("/v1/compare", {"a": graph, "b": graph, "random_weights": True}, 200),
        ("/v1/gc", {"dry_run": True}, 200),
        (f"/v1/graphs/{graph}/materialize", None, 409),
    ]:
        job = begin(service, path, body)
        assert job["target"] == path
        done = wait(service, job)
        answer, at_once = result(service, job), service.post(path, body)
        assert done["status"] == answer.status == status == at_once.status, (path, answer)
        assert answer.headers["content-type"] == at_once.headers["content-type"]
        if status == 200:
            assert answer.body == at_once.body, path
        assert (done["state"] == "succeeded") == (status < 400)


def test_a_document_as_body_and_the_rest_in_the_query(service):
    job = begin(service, "/v1/optimize?pass=MergeLinears&pass=FuseBiasInLinear&include=code&note=a%20b", document("toy"))
    done = wait(service, job)
    assert done["state"] == "succeeded" and done["progress"]["total"] == 2
    run = result(service, job).json()
    assert run["source"] == ids("toy")[0] and run["note"] == "a b" and "def forward" in run["code"]


def test_a_request_that_is_wrong_fails_with_its_problem(service):
    job = begin(service, "/v1/optimize", quick_request(passes=["NoSuchPass"]))
    done = wait(service, job)
    assert (done["state"], done["status"]) == ("failed", 422) and "location" not in done
    is_problem(result(service, job), 422, "unknown-pass")
    assert result(service, job).json()["pointer"] == "/passes/0"
    job = begin(service, "/v1/optimize", "{")
    assert wait(service, job)["status"] == 400
    is_problem(result(service, job), 400, "invalid-json")


def test_what_no_route_takes_is_said_at_once(service):
    for path, body, status in [("/v1/optimize?strange=1", {}, 422), ("/v1/optimize", None, 400), ("/v1/nothing", {}, 404)]:
        assert service.post(path, body, headers=PREFER).status == status
    assert service.get("/v1/jobs").json() == {"items": []}


@pytest.mark.parametrize(
    ("prefer", "is_job"),
    [
        ("respond-async", True),
        ("Respond-Async", True),
        ("respond-async, wait=10", True),
        ("return=minimal,respond-async", True),
        ("  respond-async ; a=b", True),
        ("handling=lenient ;x=\"respond-async\"", False),
        ("respond-async=1", False),
        ("respond-asynchronously", False),
        ("x-respond-async", False),
        ("wait=1", False),
        ("", False),
    ],
)
def test_how_it_may_be_preferred(shared, prefer, is_job):
    answer = shared.post("/v1/optimize", quick_request(), headers={"Prefer": prefer})
    assert answer.status == (202 if is_job else 201)
    assert answer.headers.get("preference-applied") == ("respond-async" if is_job else None)


def test_where_it_means_nothing(shared):
    for path in ("/v1/passes", "/v1/runs"):
        assert shared.get(path, headers=PREFER).status == 200
    assert shared.post("/v1/graphs", slow_graph(0), headers=PREFER).status in (200, 201)


# ---- looking at them ----


def test_lists(service):
    made = [begin(service, "/v1/optimize", quick_request(f"graph {i}"))["id"] for i in range(5)]
    bad = begin(service, "/v1/optimize", {})
    for job in made:
        wait(service, {"id": job})
    wait(service, bad)
    first = service.get("/v1/jobs", raw_query={"limit": 4}).json()
    rest = service.get("/v1/jobs", raw_query={"limit": 4, "page_token": first["next_page_token"]}).json()
    assert [job["id"] for job in first["items"] + rest["items"]] == [bad["id"], *reversed(made)]
    of_state = service.get("/v1/jobs", raw_query={"state": "failed"}).json()["items"]
    assert [job["id"] for job in of_state] == [bad["id"]]
    is_problem(service.get("/v1/jobs", raw_query={"state": "done"}), 422, "bad-parameter")
    is_problem(service.get("/v1/jobs", raw_query={"page_token": first["next_page_token"], "state": "failed"}), 422,
               "bad-page-token")


@pytest.mark.parametrize("job", [UNKNOWN, "job_1", "x", "run_01M7XTSAAT7GE5FHQDV5WCKM9T", "%F0%9F%98%80", "job_" + "0" * 500])
def test_unknown_jobs(shared, job):
    for answer in (
        shared.get(f"/v1/jobs/{job}"),
        shared.get(f"/v1/jobs/{job}/result"),
        shared.get(f"/v1/jobs/{job}/events"),
        shared.delete(f"/v1/jobs/{job}"),
    ):
        is_problem(answer, 404, "unknown-job")


def test_there_is_no_result_before_the_end(new_service):
    service = new_service()
    job = begin(service, "/v1/optimize", slow_request(FOREVER))
    answer = result(service, job)
    is_problem(answer, 409, "job-not-finished")
    assert answer.headers["retry-after"]
    service.delete(f"/v1/jobs/{job['id']}")
    assert wait(service, job)["state"] == "cancelled"
    is_problem(result(service, job), 409, "job-cancelled")


def test_metrics(service):
    wait(service, begin(service, "/v1/optimize", quick_request()))
    deadline, text = time.monotonic() + 60, ""
    # The store has the end of a job before the counter has.
    while 'foldback_jobs_finished_total{state="succeeded"} 1' not in text and time.monotonic() < deadline:
        text = service.get("/metrics").body.decode()
    assert 'foldback_jobs_finished_total{state="succeeded"} 1' in text and 'foldback_jobs{state="queued"} 0' in text


# ---- cancelling ----


def test_a_job_that_runs_is_cancelled_and_stores_nothing(new_service):
    service = new_service()
    job = begin(service, "/v1/optimize", slow_request(FOREVER))
    wait_for_progress(service, job)
    answer = service.delete(f"/v1/jobs/{job['id']}")
    assert answer.status == 202 and answer.json()["cancelling"] in (True, False)
    done = wait(service, job)
    assert done["state"] == "cancelled" and "status" not in done and "location" not in done
    assert runs(service) == [] and service.get("/v1/graphs").json()["items"] == []
    assert service.delete(f"/v1/jobs/{job['id']}").json()["state"] == "cancelled", "it is cancelled already"
    wait(service, begin(service, "/v1/optimize", quick_request()))  # the thread goes on


def test_a_job_that_waits_is_cancelled_at_once(new_service):
    service = new_service("--job-threads", "1")
    running = begin(service, "/v1/optimize", slow_request(FOREVER))
    waiting = begin(service, "/v1/optimize", quick_request())
    answer = service.delete(f"/v1/jobs/{waiting['id']}")
    assert answer.status == 200 and answer.json()["state"] == "cancelled" and answer.json()["attempts"] == 0
    assert [event for _, event, _ in Events(service, waiting).rest()] == ["queued", "cancelled"]
    service.delete(f"/v1/jobs/{running['id']}")
    wait(service, running)
    assert runs(service) == []


def test_what_an_unfinished_job_names_is_not_deleted(new_service):
    service = new_service("--job-threads", "1")
    begin(service, "/v1/optimize", slow_request(FOREVER))
    graph = store(service, slow_graph(0, "named"))
    for name in (graph, graph[:20], graph[:19] + "…", graph[7:19]):  # a short id, too: later it might be another's
        job = begin(service, "/v1/optimize", {"graph": name, "passes": ["cleanup"]})
        is_problem(service.delete(f"/v1/graphs/{graph}"), 409, "graph-in-use")
        assert service.delete(f"/v1/jobs/{job['id']}").status in (200, 202, 204)
    assert service.delete(f"/v1/graphs/{graph}").status == 204


def test_what_has_ended_is_not_cancelled(service):
    job = begin(service, "/v1/optimize", quick_request())
    wait(service, job)
    is_problem(service.delete(f"/v1/jobs/{job['id']}"), 409, "job-finished")
    assert get(service, job)["state"] == "succeeded" and result(service, job).status == 201


# ---- how many ----


def test_no_more_wait_than_may(new_service):
    service = new_service("--job-threads", "1", "--job-limit", "2")
    running = begin(service, "/v1/optimize", slow_request(FOREVER))
    wait_until(service, running, "running")
    waiting = [begin(service, "/v1/optimize", quick_request(f"graph {i}")) for i in range(2)]
    answer = service.post("/v1/optimize", quick_request("one too many"), headers=PREFER)
    is_problem(answer, 503, "too-many-jobs")
    assert int(answer.headers["retry-after"]) > 0
    assert service.post("/v1/optimize", quick_request("now")).status == 201, "others are answered"
    service.delete(f"/v1/jobs/{waiting[0]['id']}")
    again = begin(service, "/v1/optimize", quick_request("there is room"))
    service.delete(f"/v1/jobs/{running['id']}")
    for job in (waiting[1], again):
        assert wait(service, job)["state"] == "succeeded"
    assert len(service.get("/v1/jobs").json()["items"]) == 4


@pytest.mark.heavy
def test_finished_jobs_go_after_their_lifetime(new_service):
    service = new_service("--job-lifetime", "1", "--job-threads", "1")
    finished = begin(service, "/v1/optimize", quick_request())
    done = wait(service, finished)
    running = begin(service, "/v1/optimize", slow_request(FOREVER))
    waiting = begin(service, "/v1/optimize", quick_request("waits"))
    deadline = time.monotonic() + 600
    while service.get(f"/v1/jobs/{finished['id']}").status != 404:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert service.get(done["location"]).status == 200, "what it made stays"
    assert get(service, waiting)["state"] == "queued" and get(service, running)["state"] == "running"
    service.delete(f"/v1/jobs/{running['id']}")


# ---- Idempotency-Key ----


def test_a_key_gives_one_job(service):
    body = quick_request()
    headers = PREFER | {"Idempotency-Key": "k1"}
    first = service.post("/v1/optimize", body, headers=headers)
    second = service.post("/v1/optimize", body, headers=headers)
    assert first.status == second.status == 202 and second.headers["idempotency-replayed"] == "true"
    assert first.json()["id"] == second.json()["id"] and second.headers["preference-applied"] == "respond-async"
    assert first.headers["location"] == second.headers["location"]
    wait(service, first.json())
    third = service.post("/v1/optimize", body, headers=headers)
    assert third.status == 202 and third.headers["location"] == first.headers["location"]
    is_problem(service.post("/v1/optimize", quick_request("other"), headers=headers), 422, "idempotency-key-reused")
    is_problem(service.post("/v1/optimize", body, headers=PREFER | {"Idempotency-Key": "ä"}), 400, "bad-idempotency-key")
    assert len(runs(service)) == 1 and len(service.get("/v1/jobs").json()["items"]) == 1


@pytest.mark.parametrize("path", ["optimize", "compare", "reverse", "gc", "runs/{run}/bisect", "runs/{run}/reverse",
                                  "graphs/{graph}/evaluate", "graphs/{graph}/materialize"])
def test_a_key_has_its_form_at_once_too(service, path):
    """A request that could be deferred takes a key, and so it looks at it, whether it keeps anything or not."""
    run = service.post("/v1/optimize", quick_request()).json()
    answer = service.post("/v1/" + path.format(run=run["id"], graph=run["source"]), {}, headers={"Idempotency-Key": "a b"})
    is_problem(answer, 400, "bad-idempotency-key")


def test_a_key_that_was_used_at_once_gives_no_job(service):
    headers = {"Idempotency-Key": "k2"}
    run = service.post("/v1/optimize", quick_request(), headers=headers).json()
    answer = service.post("/v1/optimize", quick_request(), headers=headers | PREFER)
    assert answer.status == 201 and answer.json()["id"] == run["id"] and "preference-applied" not in answer.headers


def test_keys_of_clients_and_of_jobs_are_two_things(new_service):
    """The job's requests have keys of their own, and one who guesses these changes nothing."""
    service = new_service("--job-threads", "1")
    running = begin(service, "/v1/optimize", slow_request(FOREVER))
    job = begin(service, "/v1/optimize", quick_request())
    taken = service.post("/v1/optimize", quick_request("other"), headers={"Idempotency-Key": job["id"]})
    assert taken.status == 201
    service.delete(f"/v1/jobs/{running['id']}")
    assert wait(service, job)["state"] == "succeeded" and "idempotency-replayed" not in result(service, job).headers
    assert result(service, job).json()["source"] != taken.json()["source"]


# ---- events ----


def test_events_from_the_beginning_to_the_end(service):
    job = begin(service, "/v1/optimize?pass=MergeLinears&pass=FuseBiasInLinear", document("toy"))
    events = Events(service, job).rest()
    assert [event for _, event, _ in events] == ["queued", "running", "progress", "progress", "succeeded"]
    assert [data["progress"]["name"] for _, event, data in events
            if event == "progress"] == ["MergeLinears", "FuseBiasInLinear"]
    last = events[-1][2]
    assert last["progress"]["done"] == 2 and last["status"] == 201 and last["location"] == get(service, job)["location"]
    assert all(data["id"] == job["id"] for _, _, data in events)
    assert Events(service, job).rest() == events, "also when all is over"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_client_that_comes_back_gets_the_rest(service, is_restarted):
    job = begin(service, "/v1/optimize?pass=MergeLinears&pass=FuseBiasInLinear", document("toy"))
    stream = Events(service, job)
    seen = [stream.next(), stream.next()]
    stream.close()
    wait(service, job)
    if is_restarted:
        service.restart()
    rest = Events(service, job, last_id=seen[-1][0]).rest()
    assert [event for _, event, _ in seen + rest] == ["queued", "running", "progress", "progress", "succeeded"]
    over = service.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": str(rest[-1][0])})
    assert over.status == 204 and over.body == b"", "an EventSource does not come back after that"


def test_events_come_while_it_runs(new_service):
    service = new_service("--heartbeat", "1")
    job = begin(service, "/v1/optimize", slow_request(FOREVER))
    stream = Events(service, job)
    assert [stream.next()[1] for _ in range(3)] == ["queued", "running", "progress"]
    late = Events(service, job, last_id=stream.last_id)
    assert late.response.readline() == b"retry: 2000\n" and late.response.readline() == b"\n"
    assert late.response.readline() == b":\n", "a sign of life"
    service.delete(f"/v1/jobs/{job['id']}")
    assert stream.next()[1] == "cancelled" and stream.next() is None
    assert late.response.readline() == b"\n"
    assert [event for _, event, _ in late.rest()] == ["cancelled"]


@pytest.mark.parametrize("last_id", ["x", "-1", "1.5", "9" * 30, ""])
def test_bad_last_event_ids(service, last_id):
    job = begin(service, "/v1/optimize", quick_request())
    answer = service.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": last_id})
    is_problem(answer, 422, "bad-last-event-id")
    wait(service, job)


# ---- at once ----


@pytest.mark.heavy
def test_who_follows_a_quick_job_hears_how_it_ended(service):
    """Also where it ends between the look for it in the store and the look among those that run."""
    ends = []

    def work(thread):
        for number in range(60):
            events = Events(service, begin(service, "/v1/optimize", quick_request(f"quick {thread} {number}"))).rest()
            ends.append(events[-1][1] if events else "nothing")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == ["succeeded"] * 480


def test_many_clients_at_once(service):
    found = []

    def work(number):
        job = begin(service, "/v1/optimize", quick_request(f"client {number}"))
        events = Events(service, job).rest()
        found.append((events[-1][1], result(service, job).status))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [("succeeded", 201)] * 30 and len(runs(service)) == 30
