"""Jobs: requests that are answered later, whatever happens to the service meanwhile."""

import threading
import time

import pytest

from documents import document, ids
from jobs import (
    A_WHILE,
    FOREVER,
    PREFER,
    Events,
    begin,
    get,
    quick_request,
    runs,
    slow_graph,
    slow_request,
    wait,
    wait_for_progress,
    wait_until,
)
from test_http import is_problem

UNKNOWN = "job_01M7XTSAAT7GE5FHQDV5WCKM9T"


def result(service, job):
    return service.get(f"/v1/jobs/{job['id']}/result")


def store(service, graph):
    answer = service.post("/v1/graphs", graph)
    assert answer.status in (200, 201), answer
    return answer.json()["id"]


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
    is_problem(service.get("/v1/jobs", raw_query={"page_token": first["next_page_token"], "state": "failed"}), 422, "bad-page-token")


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
    service = new_service("--evaluation-timeout", "600")
    job = begin(service, "/v1/optimize", slow_request(FOREVER))
    answer = result(service, job)
    is_problem(answer, 409, "job-not-finished")
    assert answer.headers["retry-after"]
    service.delete(f"/v1/jobs/{job['id']}")
    assert wait(service, job)["state"] == "cancelled"
    is_problem(result(service, job), 409, "job-cancelled")


def test_metrics(service):
    wait(service, begin(service, "/v1/optimize", quick_request()))
    text = service.get("/metrics").body.decode()
    assert 'foldback_jobs_finished_total{state="succeeded"} 1' in text and 'foldback_jobs{state="queued"} 0' in text


# ---- cancelling ----


def test_a_job_that_runs_is_cancelled_and_stores_nothing(new_service):
    service = new_service("--evaluation-timeout", "600")
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
    service = new_service("--evaluation-timeout", "600", "--job-threads", "1")
    running = begin(service, "/v1/optimize", slow_request(FOREVER))
    waiting = begin(service, "/v1/optimize", quick_request())
    answer = service.delete(f"/v1/jobs/{waiting['id']}")
    assert answer.status == 200 and answer.json()["state"] == "cancelled" and answer.json()["attempts"] == 0
    assert [event for _, event, _ in Events(service, waiting).rest()] == ["queued", "cancelled"]
    service.delete(f"/v1/jobs/{running['id']}")
    wait(service, running)
    assert runs(service) == []


def test_what_has_ended_is_not_cancelled(service):
    job = begin(service, "/v1/optimize", quick_request())
    wait(service, job)
    is_problem(service.delete(f"/v1/jobs/{job['id']}"), 409, "job-finished")
    assert get(service, job)["state"] == "succeeded" and result(service, job).status == 201


# ---- how many ----


def test_no_more_wait_than_may(new_service):
    service = new_service("--evaluation-timeout", "600", "--job-threads", "1", "--job-limit", "2")
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


def test_finished_jobs_go_after_their_lifetime(new_service):
    service = new_service("--job-lifetime", "1", "--evaluation-timeout", "600", "--job-threads", "1")
    finished = begin(service, "/v1/optimize", quick_request())
    done = wait(service, finished)
    running = begin(service, "/v1/optimize", slow_request(FOREVER))
    waiting = begin(service, "/v1/optimize", quick_request("waits"))
    deadline = time.monotonic() + 60
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


def test_a_key_that_was_used_at_once_gives_no_job(service):
    headers = {"Idempotency-Key": "k2"}
    run = service.post("/v1/optimize", quick_request(), headers=headers).json()
    answer = service.post("/v1/optimize", quick_request(), headers=headers | PREFER)
    assert answer.status == 201 and answer.json()["id"] == run["id"] and "preference-applied" not in answer.headers


def test_keys_of_clients_and_of_jobs_are_two_things(new_service):
    """The job's requests have keys of their own, and one who guesses these changes nothing."""
    service = new_service("--evaluation-timeout", "600", "--job-threads", "1")
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
    assert [data["progress"]["name"] for _, event, data in events if event == "progress"] == ["MergeLinears", "FuseBiasInLinear"]
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
    service = new_service("--evaluation-timeout", "600", "--heartbeat", "1")
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


# ---- many graphs ----


def test_one_job_over_many_graphs(service):
    graphs = [store(service, slow_graph(0, f"graph {i}")) for i in range(3)]
    missing = "sha256:" + "0" * 64
    body = {"graphs": [graphs[0], missing, graphs[1], graphs[0], graphs[2]], "passes": ["ChangeTrueDivToMulByInverse"], "note": "all"}
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
        ({"graphs": [GRAPH], "passes": ["MergeLinears"], "options": {"include": ["graph"]}}, "unknown-option-value", "/options/include"),
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
    service = new_service("--evaluation-timeout", "600")
    quick, slow = store(service, slow_graph(0)), store(service, slow_graph(FOREVER))
    body = {"graphs": [quick, slow, quick], "passes": ["ChangeTrueDivToMulByInverse"], "options": {"validate": "graph"}}
    job = service.post("/v1/jobs", body).json()
    stream = Events(service, job)
    while stream.next()[1] != "graph":
        pass
    service.delete(f"/v1/jobs/{job['id']}")
    assert wait(service, job)["state"] == "cancelled"
    assert [run["source"] for run in runs(service)] == [quick]


def test_what_a_cancelled_job_over_many_had_done_is_listed(new_service):
    service = new_service("--evaluation-timeout", "600")
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


# ---- restarts ----


def ended_once(service, job):
    """It has succeeded, with one run, that its result names."""
    done = wait(service, job)
    assert done["state"] == "succeeded", (done, service.log()[-2000:])
    assert [run["id"] for run in runs(service)] == [done["location"].rsplit("/", 1)[1]]
    assert result(service, job).json()["id"] == runs(service)[0]["id"]
    return done


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_job_that_runs_is_done_after_a_restart(new_service, how):
    service = new_service("--evaluation-timeout", "600")
    job = begin(service, "/v1/optimize", slow_request(A_WHILE))
    wait_for_progress(service, job)
    getattr(service, how)()
    service.start()
    done = ended_once(service, job)
    assert done["attempts"] == 2, "it was not in the middle of it"
    events = Events(service, job).rest()
    assert events[-1][1] == "succeeded" and events[0][1] in ("queued", "running")


def test_jobs_that_wait_are_done_after_a_restart_in_their_order(new_service):
    service = new_service("--evaluation-timeout", "600", "--job-threads", "1")
    running = begin(service, "/v1/optimize", slow_request(FOREVER))
    waiting = [begin(service, "/v1/optimize", quick_request(f"graph {i}")) for i in range(3)]
    service.kill()
    service.start()
    service.delete(f"/v1/jobs/{running['id']}")
    done = [wait(service, job) for job in waiting]
    assert [job["state"] for job in done] == ["succeeded"] * 3
    assert [job["started"] for job in done] == sorted(job["started"] for job in done)
    assert len(runs(service)) == 3


def test_numbers_of_events_ascend_over_a_restart(new_service):
    service = new_service("--evaluation-timeout", "600")
    job = begin(service, "/v1/optimize", slow_request(A_WHILE))
    stream = Events(service, job)
    while stream.next()[1] != "progress":
        pass
    service.kill()
    service.start()
    rest = Events(service, job, last_id=stream.last_id).rest()  # they ascend: Events looks at that
    assert rest[0][1] == "running" and rest[-1][1] == "succeeded"


def test_a_job_that_was_to_be_cancelled_is_not_done_after_a_restart(new_service):
    service = new_service("--evaluation-timeout", "600")
    job = begin(service, "/v1/optimize", slow_request(FOREVER))
    wait_for_progress(service, job)
    service.delete(f"/v1/jobs/{job['id']}")
    service.kill()
    service.start()
    assert wait(service, job)["state"] == "cancelled" and runs(service) == []


def test_kills_at_any_moment_give_one_run_each(new_service):
    """Jobs, single and over many graphs, while the service is killed again and again."""
    service = new_service("--job-threads", "2")
    graphs = [store(service, slow_graph(0, f"graph {i}")) for i in range(40)]
    passes = ["ChangeTrueDivToMulByInverse"]
    many = service.post("/v1/jobs", {"graphs": graphs, "passes": passes}).json()
    single = [begin(service, "/v1/optimize", quick_request(f"single {i}")) for i in range(20)]
    for i in range(8):
        time.sleep(0.004 * i)
        service.kill()
        service.start()
    found = wait(service, many)
    assert found["state"] == "succeeded", found
    items = result(service, many).json()["items"]
    of_single = [wait(service, job)["location"].rsplit("/", 1)[1] for job in single]
    expected = [item["run"] for item in items] + of_single
    assert sorted(run["id"] for run in runs(service)) == sorted(expected) and len(set(expected)) == 60


def test_a_job_that_ends_the_process_again_and_again_is_given_up(new_service):
    service = new_service("--evaluation-timeout", "600")
    job = begin(service, "/v1/optimize", slow_request(FOREVER))
    for _ in range(10):
        wait_until(service, job, "running")
        service.kill()
        service.start()
    done = wait(service, job)
    assert (done["state"], done["status"]) == ("failed", 500)
    is_problem(result(service, job), 500, "job-interrupted")


# ---- at once ----


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
