"""Several replicas on one PostgreSQL and one bucket: any of them answers anything, and none does what another has done."""

import calendar
import concurrent.futures
import glob
import os
import re
import signal
import threading
import time

import buckets
import databases
import pytest
import receivers
from access import bearer, make_token
from blobs import collect, digest_of, put_blob, some_bytes, stored
from conftest import Service
from documents import branches
from jobs import A_WHILE, FOREVER, Events, begin, get, quick_request, result, runs, slow_request, wait, wait_for_progress
from test_alias_writers import Operator, check_told, run_all
from test_aliases import CREATE, history, is_chain, make_versions, put_alias, version_of
from test_events import Ended, Stream
from test_http import is_problem
from test_runs import optimize
from test_uploads import begin as begin_upload
from test_webhooks import put_version, set_alias

pytestmark = pytest.mark.skipif("FOLDBACK_S3_SERVERS" not in os.environ,
                                reason="make test-postgres BLOBS=s3 has servers for this")

DIVISION = ["ChangeTrueDivToMulByInverse"]


@pytest.fixture(scope="module")
def postgres():
    made = databases.new_server()
    yield made
    made.stop()


def skewed(by):
    """The environment of a process whose clock is wrong by so much."""
    library = max(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"), default=None)
    assert library, "there is no libfaketime; deploy/install-deps.sh test installs it"
    return {"LD_PRELOAD": library, "FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


@pytest.fixture
def start(postgres, request, tmp_path, new_service):
    """Replicas, each with a data folder of its own."""
    name = re.sub(r"\W", "_", request.node.name.lower())[:60]
    url = postgres.make(name)
    bucket = buckets.Server(tmp_path / "root").start()
    count = 0

    def make(*options, clock=None):
        nonlocal count
        count += 1
        environment = {**buckets.CREDENTIALS, **(skewed(clock) if clock else {})}
        # Nothing fits into the cache: whatever is read comes from the bucket.
        return new_service("--store", url, *buckets.options(bucket.url, "store"), "--blobs-cache", "1", *options,
                           data=tmp_path / f"replica{count}", environment=environment)

    make.sql = lambda text: postgres.sql(text, name)
    make.bucket = bucket
    yield make
    bucket.stop()


def eventually(found, timeout=600):
    deadline = time.monotonic() + timeout
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.25)  # each look is a psql


def replicas(start):
    return int(start.sql("SELECT count(*) FROM replicas"))


# ---- what one writes the others read ----------------------------------------------------------------------------------------


def test_reads_after_writes(start):
    a, b, c = start(), start(), start()
    assert replicas(start) == 3
    for number in range(10):
        run = optimize(a, branches(2, f"graph{number}"), DIVISION)
        for other in (b, c):
            assert other.get(f"/v1/runs/{run['id']}").status == 200
            assert other.get(f"/v1/graphs/{run['result']}/code").status == 200
    large, small = some_bytes(1 << 20), b"small"
    for data in (large, small):
        digest = stored(a, data)
        assert b.get(f"/v1/blobs/{digest}").body == data and put_blob(c, data).status == 200
    graph = b.post("/v1/graphs", branches(3, "to go")).json()["id"]
    assert a.get(f"/v1/graphs/{graph}/code").status == 200
    assert c.request("DELETE", f"/v1/graphs/{graph}").status == 204
    for one in (a, b, c):
        is_problem(one.get(f"/v1/graphs/{graph}/code"), 404, "unknown-graph")
    b.stop()
    assert replicas(start) == 2


def test_pages_skip_nothing(start):
    """Pages that are read while all replicas write: whatever was there when the first was read is on one of them, once."""
    services = [start() for _ in range(3)]
    is_over, made = threading.Event(), []

    def write(number):
        while not is_over.is_set():
            answer = services[number % 3].post("/v1/graphs", branches(1, f"w{number}n{len(made)}"))
            made.append(answer.json()["id"])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for turn in range(8):
        before, found, token = list(made), [], None
        while True:
            page = services[turn % 3].get("/v1/graphs",
                                          raw_query={"limit": 7, **({"page_token": token} if token else {})}).json()
            found += [item["id"] for item in page["items"]]
            token = page.get("next_page_token")
            if not token:
                break
        assert len(set(found)) == len(found) and set(before) <= set(found)
    is_over.set()
    for thread in threads:
        thread.join()


def test_tokens(start):
    a, b = start(), start()
    admin = make_token(a, "admin", "boss")
    eventually(lambda: b.get("/v1/graphs").status == 401, 10)
    assert b.get("/v1/graphs", headers=bearer(admin)).status == 200
    make_token(b, "read", "reader", by=admin)
    assert a.request("DELETE", "/v1/tokens/boss", headers=bearer(admin)).status in (200, 204)
    eventually(lambda: b.get("/v1/graphs", headers=bearer(admin)).status == 401, 10)


# ---- one of them ------------------------------------------------------------------------------------------------------------


def test_one_key_is_one_run(start):
    """The same requests with the same keys, at once on all replicas."""
    services = [start() for _ in range(3)]
    source = services[0].post("/v1/graphs", branches(2)).json()["id"]
    start_line = threading.Barrier(12, timeout=600)

    def ask(number):
        found = []
        for key in range(15):
            start_line.wait()
            while True:
                answer = services[number % 3].post("/v1/optimize", {"graph": source, "passes": DIVISION},
                                                   headers={"Idempotency-Key": f"k{key}"})
                if answer.status == 201:
                    break
                assert answer.status == 409 and answer.json()["code"] == "request-in-progress", answer
                time.sleep(0.02)
            found.append(answer.json()["id"])
        return found

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(12)))
    assert all(one == answers[0] for one in answers) and len(set(answers[0])) == 15
    assert len(runs(services[0])) == 15 and start.sql("SELECT count(*) FROM requests") == "0"
    other = services[1].post("/v1/optimize", {"graph": source, "passes": []}, headers={"Idempotency-Key": "k0"})
    assert other.status == 422, other


def test_one_winner(start):
    """64 clients on three replicas move one alias: no update is lost, and the events of all three have each change, once."""
    services = [start() for _ in range(3)]
    make_versions(services[0])
    put_alias(services[0], "v0", CREATE)
    streams = [Stream(one, last_id=0) for one in services]
    operators = [Operator(services[number % 3], number, ["v0", "v1", "v2", "v3"]) for number in range(64)]
    threads, failures = run_all(operators, lambda operator: operator.move(2))
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    items = history(services[1])
    is_chain(items)
    assert check_told(items, operators) == 128 == len(items) - 1
    assert version_of(services[2]) == items[0]["to"]
    numbers = [item["id"] for item in reversed(items)]
    for stream in streams:
        assert [event["id"] for event in stream.take(len(numbers))] == numbers
        stream.close()


def test_events_over_a_change_of_replica(start):
    """A client goes from one replica to the next with Last-Event-ID, while all write."""
    services = [start() for _ in range(3)]
    make_versions(services[0])
    put_alias(services[0], "v0", CREATE)
    operators = [Operator(services[number % 3], number, ["v0", "v1", "v2"]) for number in range(12)]
    threads, failures = run_all(operators, lambda operator: operator.move(15))
    seen, last = [], 0
    for turn in range(1000):
        if len(seen) == 181:
            break
        stream = Stream(services[turn % 3], last_id=last, timeout=10)
        try:
            for _ in range(7):
                seen.append(stream.next()["id"])
                if len(seen) == 181:
                    break
        except (Ended, TimeoutError):
            pass
        last = stream.last_id
        stream.close()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert seen == [item["id"] for item in reversed(history(services[0]))]


# ---- jobs -------------------------------------------------------------------------------------------------------------------


def test_whoever_is_free_takes_a_job(start):
    a = start("--job-threads", "1")
    busy = begin(a, "/v1/optimize", slow_request(FOREVER))
    wait_for_progress(a, busy)
    waiting = [begin(a, "/v1/optimize", quick_request(f"q{number}")) for number in range(3)]
    time.sleep(1)
    assert {get(a, job)["state"] for job in waiting} == {"queued"}
    b = start()
    for job in waiting:
        done = wait(a, job)
        assert done["state"] == "succeeded" and done["attempts"] == 1
        assert result(b, job).json()["id"] == result(a, job).json()["id"]
        assert [event for _, event, _ in Events(a, job).rest()][-1] == "succeeded"
    assert get(b, busy)["state"] == "running"
    assert b.request("DELETE", f"/v1/jobs/{busy['id']}").status in (200, 202, 204)
    assert wait(a, busy)["state"] == "cancelled"
    assert len(runs(a)) == 3


def test_each_job_is_done_once(start):
    """Many jobs on three replicas, one of which is killed, another stopped."""
    services = [start("--job-threads", "2") for _ in range(3)]
    jobs = [begin(services[number % 3], "/v1/optimize", quick_request(f"many{number}")) for number in range(40)]
    services[0].kill()
    services[1].stop()
    done = [wait(services[2], job) for job in jobs]
    assert {one["state"] for one in done} == {"succeeded"}
    assert sorted(run["id"] for run in runs(services[2])) == sorted(one["location"].rsplit("/", 1)[1] for one in done)


def test_a_job_goes_on_elsewhere(start):
    a = start()
    job = begin(a, "/v1/optimize", slow_request(A_WHILE))
    wait_for_progress(a, job)
    b = start()
    a.kill()
    done = wait(b, job)
    assert done["state"] == "succeeded" and done["attempts"] == 2
    assert [run["id"] for run in runs(b)] == [done["location"].rsplit("/", 1)[1]] and replicas(start) == 1


def test_one_that_comes_back_gives_up_what_it_had_begun(start):
    """Before others notice that it was killed: whoever holds its data folder knows."""
    a, b = start(), start()

    def ask(service):
        return service.post("/v1/optimize", slow_request(A_WHILE), headers={"Idempotency-Key": "killed"})

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, a)
        eventually(lambda: start.sql("SELECT count(*) FROM requests") == "1")
        a.kill()
        assert first.exception()
    is_problem(ask(b), 409, "request-in-progress")
    a.start()
    answer = ask(b)
    assert answer.status == 201, answer
    assert ask(a).json()["id"] == answer.json()["id"] and len(runs(a)) == 1
    assert replicas(start) == 2


def test_one_that_seemed_dead_writes_nothing(start):
    """A replica that stood still is taken out; when it goes on, what it had begun is not written twice."""
    a = start()
    job = begin(a, "/v1/optimize", slow_request(A_WHILE))
    wait_for_progress(a, job)
    b = start()
    a.process.send_signal(signal.SIGSTOP)
    eventually(lambda: start.sql(f"SELECT attempts FROM jobs WHERE id = '{job['id']}'") == "2")
    a.process.send_signal(signal.SIGCONT)
    done = wait(b, job)
    assert done["state"] == "succeeded" and done["attempts"] == 2
    eventually(lambda: replicas(start) == 2)
    assert len(runs(a)) == 1 == len(runs(b))
    assert optimize(a, branches(2, "after"),
                    DIVISION)["id"] and wait(a, begin(a, "/v1/optimize", quick_request()))["state"] == "succeeded"


# ---- webhooks ---------------------------------------------------------------------------------------------------------------


def test_another_delivers_when_the_one_that_did_is_killed(start):
    """All write while the one that delivers is killed: nothing is lost, what comes twice has the same id, an alias keeps its
    order."""
    services = [start(*receivers.OPTIONS) for _ in range(3)]
    for version in ("1", "2"):
        put_version(services[0], "bert", version)
    is_down, held = threading.Event(), threading.Event()

    def answer(message):
        if is_down.is_set():
            held.set()
            time.sleep(2)  # the process is killed meanwhile, and does not learn that it was delivered
        return 200

    receiver = receivers.Receiver(answer=answer)
    webhook = receivers.make_webhook(services[1], receiver.url)["id"]
    for number, service in enumerate(services):
        optimize(service, branches(2, f"before{number}"), DIVISION)
        set_alias(service, "bert", f"live{number}", "1")
    receiver.wait(lambda messages: len(messages) == 6)
    time.sleep(1)
    assert len(receiver.messages) == 6, "more than one delivers"
    is_down.set()
    set_alias(services[1], "bert", "live0", "2")
    assert held.wait(600)
    services[0].kill()  # it started first, so it leads
    is_down.clear()
    left = services[1:]
    for turn in range(10):
        optimize(left[turn % 2], branches(2, f"after{turn}"), DIVISION)
        set_alias(left[turn % 2], "bert", "live0", "12"[turn % 2])
    receivers.wait_for_delivery(services[2], webhook, lambda items: all(item["state"] == "delivered" for item in items), 120)
    messages = list(receiver.messages)
    moved = [message.data["id"] for message in messages if message.data.get("alias") == "live0"]
    assert moved == sorted(moved) and set(moved) == {entry["id"] for entry in history(services[1], "live0", "bert")}
    assert {message.data["id"] for message in messages
            if message.type == "run.finished"} == {run["id"] for run in runs(services[1])}
    bodies = {message.id: message.body for message in messages}
    assert len(bodies) == len(set(bodies.values())) == 27 and len(messages) > len(bodies), (len(messages), len(bodies))
    receiver.close()


def test_clocks_that_differ(start):
    """By ten minutes either way: S3 allows fifteen. Who is alive, who leads and whose turn it is are no matter of clocks."""
    services = [start(clock=clock) for clock in ("+10m", "-10m", None)]
    a, b, c = services
    now = time.time()
    made = [one.post("/v1/graphs", branches(2, f"at{number}")).json() for number, one in enumerate(services)]
    told = [optimize(one, graph["id"], DIVISION)["created"] for one, graph in zip(services, made)]
    seconds = [calendar.timegm(time.strptime(one[:19], "%Y-%m-%dT%H:%M:%S")) - now for one in told]
    assert 500 < seconds[0] < 700 and -700 < seconds[1] < -500 and -100 < seconds[2] < 100
    for number in range(12):  # each key at two of them
        answers = [services[(number + step) % 3].post("/v1/optimize", {"graph": made[0]["id"], "passes": DIVISION},
                                                      headers={"Idempotency-Key": f"k{number}"})
                   for step in (0, 1)]
        assert [answer.status for answer in answers] == [201, 201] and answers[0].json()["id"] == answers[1].json()["id"]
    assert len(runs(a)) == 15
    found = [one["id"] for one in b.get("/v1/graphs", raw_query={"limit": 1000}).json()["items"]]
    assert [one["id"] for one in reversed(made)] == [one for one in found if one in {other["id"] for other in made}]
    data = some_bytes(1 << 20)
    digest = stored(a, data)
    assert b.get(f"/v1/blobs/{digest}").body == data == c.get(f"/v1/blobs/{digest}").body
    done = [wait(one, begin(one, "/v1/optimize", quick_request(f"clock{number}"))) for number, one in enumerate(services)]
    assert {job["state"] for job in done} == {"succeeded"}
    begun = time.monotonic()
    while time.monotonic() < begun + 20:  # longer than it takes to be taken out
        assert replicas(start) == 3
        time.sleep(1)
    a.kill()
    eventually(lambda: replicas(start) == 2)


def test_one_that_was_taken_out_is_told_to_ask_again(start):
    """Before it has noticed: its requests with a key, and blobs, are not begun under an id that is no more."""
    a = start()
    graph = a.post("/v1/graphs", branches(2)).json()["id"]
    seen = set()
    for number in range(40):
        start.sql("DELETE FROM replicas")
        answer = a.post("/v1/optimize", {"graph": graph, "passes": DIVISION}, headers={"Idempotency-Key": f"k{number}"})
        assert answer.status in (201, 503), answer
        seen.add(answer.json().get("code", answer.status))
        start.sql("DELETE FROM replicas")
        assert put_blob(a, some_bytes((1 << 17) + number)).status in (201, 503)
    assert "store-busy" in seen
    eventually(lambda: a.post("/v1/optimize", {"graph": graph, "passes": DIVISION},
                              headers={"Idempotency-Key": "k0"}).status == 201)


# ---- garbage ----------------------------------------------------------------------------------------------------------------


def test_garbage_is_collected_on_all_at_once(start):
    """Blobs come and go on all replicas: every blob that was acknowledged after its last removal can be read."""
    services = [start() for _ in range(3)]
    data = [some_bytes((1 << 17) + number) for number in range(6)]
    is_over, failures = threading.Event(), []

    def put(number):
        while not is_over.is_set():
            answer = put_blob(services[number % 3], data[number % 6])
            if answer.status not in (200, 201):
                failures.append(answer)

    def remove(number):
        while not is_over.is_set():
            answer = services[number % 3].post("/v1/gc", {"grace_seconds": 0})
            if answer.status != 200:
                failures.append(answer)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(6)]
    threads += [threading.Thread(target=remove, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(4)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    for one in services:
        for number in range(6):
            assert put_blob(one, data[number]).status in (200, 201)
            assert one.get(f"/v1/blobs/{digest_of(data[number])}").body == data[number]
    collect(services[0], 0)
    assert start.sql("SELECT count(*) FROM blobs") == "0" and not start.bucket.objects("store")


def test_uploads_stay_where_they_began(start):
    a, b = start(), start()
    upload = begin_upload(a)
    assert a.get(upload).status in (200, 204)
    answer = b.get(upload)
    is_problem(answer, 404, "unknown-upload")
    assert "this replica" in answer.json()["detail"]


# ---- starts and stops -------------------------------------------------------------------------------------------------------


def test_who_is_refused(start, postgres, tmp_path):
    """One whose blobs are in its folder is not let in beside others."""
    first = start()
    url = first.options[first.options.index("--store") + 1]
    environment = {**os.environ, **buckets.CREDENTIALS}
    with pytest.raises(AssertionError, match="said ''"):
        other = Service(tmp_path / "other", "--store", url, *buckets.options(start.bucket.url, "elsewhere"),
                        environment=environment)
        other.start()
    assert "not in s3://bucket/elsewhere" in other.log()
