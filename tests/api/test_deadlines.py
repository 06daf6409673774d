"""Work that is not waited for: a request has a time by which its work must have ended, and ends when its client leaves. Nothing
of it is stored then."""

import json
import socket
import time

import pytest
from documents import ref
from jobs import A_WHILE, FOREVER, PREFER, begin, quick_request, runs, slow_graph, slow_request, wait
from test_http import is_problem


def is_empty(service):
    return runs(service) == [] and service.get("/v1/graphs").json()["items"] == []


def metric(service, reason):
    text = service.get("/metrics").body.decode()
    return int(text.split(f'foldback_http_rejected_total{{reason="{reason}"}} ')[1].split("\n")[0])


def is_too_late(answer):
    is_problem(answer, 503, "deadline-exceeded")
    assert "retry-after" not in answer.headers, "it would take as long again"
    assert "respond-async" in answer.json()["detail"] and "--request-timeout" in answer.json()["detail"]


@pytest.fixture
def hasty(new_service):
    return new_service("--request-timeout", "1")


def test_work_that_takes_too_long_is_stopped(hasty):
    is_too_late(hasty.post("/v1/optimize", slow_request(FOREVER)))
    assert is_empty(hasty) and metric(hasty, "work-deadline") == 1
    assert hasty.post("/v1/optimize", quick_request()).status == 201


@pytest.mark.heavy
def test_evaluations_too(hasty):
    graph = hasty.post("/v1/graphs", slow_graph(FOREVER)).json()["id"]
    is_too_late(hasty.post(f"/v1/graphs/{graph}/evaluate"))
    is_too_late(hasty.post("/v1/compare", {"a": graph, "b": slow_graph(FOREVER - 1)}))


def test_one_matrix_product_too(hasty):
    """Of 2^37 products: some seconds in one call of BLAS."""
    meta = {"meta": {"shape": [4096, 8192], "dtype": "float32"}}
    graph = slow_graph(0)
    graph["nodes"] = [
        {"name": "x", "op": "placeholder", "target": "x", "args": [], **meta},
        {"name": "xt", "op": "call_method", "target": "t", "args": [ref("x")]},
        {"name": "y", "op": "call_function", "target": "torch.matmul", "args": [ref("x"), ref("xt")]},
        {"name": "z", "op": "call_function", "target": "torch.matmul", "args": [ref("y"), ref("x")]},
        {"name": "output", "op": "output", "target": "output", "args": [ref("z")]},
    ]
    stored = hasty.post("/v1/graphs", graph).json()["id"]
    is_too_late(hasty.post(f"/v1/graphs/{stored}/evaluate"))


def chain(count):
    """Nothing in it is to be done, but for one division."""
    graph = slow_graph(0, "chain")
    *nodes, output = graph["nodes"]
    for i in range(count):
        read = [ref(nodes[-1]["name"])]
        nodes.append({"name": f"n{i}", "op": "call_function", "target": "torch.sin", "args": read, "meta": nodes[0]["meta"]})
    graph["nodes"] = [*nodes, output | {"args": [ref(nodes[-1]["name"])]}]
    return graph


PASSES = ["ChangeTrueDivToMulByInverse", *["EliminateCommonSubexpressions", "RemoveNoOps", "EliminateDeadCode"] * 30]


@pytest.mark.heavy
def test_passes_too(hasty):
    """Hundreds of passes over a large graph, none of which takes long by itself."""
    is_too_late(hasty.post("/v1/optimize", {"graph": chain(400000), "passes": PASSES}))
    assert is_empty(hasty)


@pytest.mark.long
def test_an_undo_too(new_service):
    service = new_service()
    run = service.post("/v1/optimize", {"graph": chain(400000), "passes": PASSES}).json()
    service.stop()
    service.options = ["--request-timeout", "1"]
    service.start()
    is_too_late(service.post(f"/v1/runs/{run['id']}/rollback", {"passes": PASSES[:1]}))
    assert len(runs(service)) == 1


@pytest.mark.long
def test_as_a_job_it_may_take_longer(hasty):
    """The same request, which is too large for --request-timeout."""
    body = slow_request(A_WHILE)
    is_too_late(hasty.post("/v1/optimize", body))
    job = begin(hasty, "/v1/optimize", body)
    assert wait(hasty, job)["state"] == "succeeded" and len(runs(hasty)) == 1


def test_a_job_has_a_time_of_its_own(new_service):
    service = new_service("--job-timeout", "1")
    job = begin(service, "/v1/optimize", slow_request(FOREVER))
    done = wait(service, job)
    assert (done["state"], done["status"]) == ("failed", 503)
    answer = service.get(f"/v1/jobs/{job['id']}/result")
    is_problem(answer, 503, "deadline-exceeded")
    assert "--job-timeout" in answer.json()["detail"] and is_empty(service)


@pytest.mark.heavy
def test_an_evaluation_has_a_time_of_its_own(new_service):
    service = new_service("--evaluation-timeout", "1")
    is_problem(service.post("/v1/optimize", slow_request(FOREVER)), 422, "evaluation-timeout")


def send(service, path, body, headers=()):
    text = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
             f"Content-Length: {len(text)}", *headers]
    connection = service.connect()
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + text)
    return connection


def wait_for_work(service, what="/v1/optimize"):
    """It is with a worker: one request is in flight beside the one that asks."""
    deadline = time.monotonic() + 600
    while "foldback_http_in_flight 2" not in service.get("/metrics").body.decode():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.heavy
def test_a_client_that_leaves_ends_its_work(new_service, how):
    service = new_service("--workers", "2")
    connection = send(service, "/v1/optimize", slow_request(FOREVER))
    wait_for_work(service)
    if how == "resets":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    deadline = time.monotonic() + 600
    while not metric(service, "client-left"):
        assert time.monotonic() < deadline, "its work goes on"
        time.sleep(0.05)
    assert is_empty(service)


@pytest.mark.heavy
def test_its_key_may_be_used_again(new_service):
    service = new_service()
    connection = send(service, "/v1/optimize", slow_request(FOREVER), ["Idempotency-Key: k"])
    wait_for_work(service)
    connection.close()
    deadline = time.monotonic() + 600
    while not metric(service, "client-left"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # Until it has noticed that nobody waits any more, the key is that request's.
    while (answer := service.post("/v1/optimize", quick_request(), headers={"Idempotency-Key": "k"})).status != 201:
        assert answer.json()["code"] == "idempotency-key-reused" and time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
def test_a_job_does_not_care(new_service):
    """Who asked for it has left long ago."""
    service = new_service()
    connection = send(service, "/v1/optimize", slow_request(A_WHILE), ["Prefer: respond-async"])
    assert b" 202 " in connection.recv(65536)
    connection.close()
    (job,) = service.get("/v1/jobs").json()["items"]
    done = wait(service, job)
    assert done["state"] == "succeeded", done


@pytest.mark.heavy
def test_a_stopped_service_stops_its_work(new_service):
    service = new_service("--stop-timeout", "1")
    connection = send(service, "/v1/optimize", slow_request(FOREVER))
    wait_for_work(service)
    assert service.stop() == 0
    assert b'"stopping"' in connection.recv(65536)
    connection.close()


def multiplications(count, factor):
    """A chain; the first of them is the same for every factor."""
    graph = slow_graph(0, "chain")
    meta = {"meta": {"shape": [2, 4], "dtype": "float32"}}
    nodes = [{"op": "placeholder", "name": "n0", "target": "n0", **meta}]
    for i in range(1, count):
        arguments = [ref(f"n{i - 1}"), i * factor if i > 1 else 1]
        nodes.append({"op": "call_function", "name": f"n{i}", "target": "operator.mul", "args": arguments, **meta})
    results = [[ref(f"n{i}") for i in range(1, count)]]
    graph["nodes"] = [*nodes, {"op": "output", "name": "output", "target": "output", "args": results}]
    return graph


def long_undo(service, count):
    """Path and body of an undo that merges: its run put in a chain, which was changed everywhere since."""
    run = service.post(
        "/v1/runs", {"name": "Chain", "version": 1, "reversible": True, "source": multiplications(2, 1),
                     "result": multiplications(count, 1)}
    ).json()
    return f"/v1/runs/{run['id']}/reverse", {"graph": multiplications(count, 3)}


@pytest.mark.nightly  # a service that is stopped stops the same merge, in CI
def test_a_merge_too(new_service):
    service = new_service()
    path, body = long_undo(service, 200000)
    service.stop()
    service.options = ["--request-timeout", "1"]
    service.start()
    is_too_late(service.post(path, body))
    assert len(runs(service)) == 1


@pytest.mark.parametrize("work", ["evaluation", pytest.param("merge", marks=pytest.mark.long)])
def test_a_stopped_service_stops_evaluations_and_merges(new_service, work):
    service = new_service("--stop-timeout", "1")
    if work == "merge":
        path, body = long_undo(service, 200000)
    else:
        path, body = "/v1/graphs/{}/evaluate".format(service.post("/v1/graphs", slow_graph(FOREVER)).json()["id"]), {}
    before = len(runs(service))
    connection = send(service, path, body)
    wait_for_work(service)
    assert service.stop() == 0
    assert b'"stopping"' in connection.recv(65536)
    connection.close()
    service.start()
    assert len(runs(service)) == before


def test_preferring_is_no_way_around_the_limit_of_a_body(new_service):
    service = new_service("--max-body", "2000")
    is_problem(service.post("/v1/optimize", chain(100), headers=PREFER), 413, "body-too-large")
