"""POST /v1/gc, and the service's own: what nothing refers to goes, after a while."""

import http.client
import threading
import time

import buckets
import pytest
from blobs import (
    INLINE,
    collect,
    digest_of,
    files,
    graph_of,
    is_here,
    put_blob,
    read_answer,
    some_bytes,
    start_request,
    stored,
    wait_until,
)
from test_http import is_problem
from test_runs import optimize
from test_uploads import append, begin, finish, is_gone, size_of

NOTHING = {"blobs": 0, "bytes": 0, "uploads": 0, "files": 0}


def removed(figures):
    return {name: figures[name] for name in NOTHING}


def test_what_goes_and_what_stays(service):
    assert removed(collect(service)) == NOTHING
    small, large = some_bytes(100), some_bytes(INLINE * 2)
    kept = [stored(service, some_bytes(size, "kept")) for size in (50, INLINE * 3)]
    graph = service.post("/v1/graphs", graph_of(kept)).json()["id"]
    gone = [stored(service, small), stored(service, large)]
    location = begin(service)
    append(service, location, b"abc")

    young = collect(service, grace=3600)
    assert removed(young) == NOTHING and young["grace_seconds"] == 3600 and young["dry_run"] is False
    assert young["kept"] == 4 and young["kept_bytes"] == 150 + INLINE * 5
    expected = {"blobs": 2, "bytes": 100 + INLINE * 2, "uploads": 1, "files": 0}
    dry = collect(service, dry_run=True)
    assert dry["dry_run"] is True and removed(dry) == expected and dry["kept"] == 2
    assert all(is_here(service, digest) for digest in kept + gone) and size_of(service, location) == 3

    done = collect(service)
    assert removed(done) == expected and done["kept"] == 2 and done["kept_bytes"] == 50 + INLINE * 3
    assert [is_here(service, digest) for digest in kept + gone] == [True, True, False, False]
    assert is_gone(service, location) and files(service, "uploads") == []
    assert [path.name for path in files(service, "blobs")] == [kept[1][7:]]
    assert removed(collect(service)) == NOTHING
    assert put_blob(service, large).status == 201  # and comes again

    assert service.delete(f"/v1/graphs/{graph}").status == 204
    assert removed(collect(service, grace=3600)) == NOTHING  # the grace period begins when the graph goes
    assert collect(service)["blobs"] == 3
    assert files(service, "blobs") == [] and service.get("/v1/blobs").json() == {"items": []}


def test_every_graph_counts(service):
    """A blob stays as long as one of the graphs that refer to it."""
    digest = stored(service, some_bytes(64))
    ids = [service.post("/v1/graphs", graph_of([digest], name)).json()["id"] for name in "abc"]
    run = optimize(service, ids[2], ["MergeLinears"])
    for identity in ids[:2]:
        assert service.delete(f"/v1/graphs/{identity}").status == 204
        assert collect(service)["blobs"] == 0
    is_problem(service.delete(f"/v1/graphs/{ids[2]}"), 409, "graph-in-use")
    assert collect(service)["blobs"] == 0 and is_here(service, digest)
    assert digest in service.get(f"/v1/graphs/{run['result']}").body.decode()  # its recipe reads the source's tensors
    service.restart()
    assert collect(service)["blobs"] == 0 and is_here(service, digest)


def test_a_graph_may_come_first(service):
    data = some_bytes(INLINE * 2)
    assert service.post("/v1/graphs", graph_of([digest_of(data)])).status == 201
    stored(service, data)
    assert removed(collect(service)) == NOTHING and is_here(service, digest_of(data))


def test_sent_again_is_used_again(service):
    data = some_bytes(10)
    stored(service, data)
    time.sleep(2.1)
    assert collect(service, grace=2, dry_run=True)["blobs"] == 1
    assert put_blob(service, data).status == 200
    assert removed(collect(service, grace=2)) == NOTHING and is_here(service, digest_of(data))


def test_files_that_nobody_knows(service):
    """What a crash in between leaves."""
    digest = stored(service, some_bytes(INLINE * 2))
    service.stop()
    stray = [service.data / "blobs" / "ab" / "cd" / ("abcd" + "0" * 60), service.data / "uploads" / ("upload_" + "0" * 26)]
    for path in stray:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"rubbish")
    service.start()
    assert not is_here(service, "sha256:abcd" + "0" * 60)
    assert collect(service, grace=3600, dry_run=True)["blobs"] == 0
    collect(service)
    assert not any(path.exists() for path in stray)
    assert not is_here(service, digest)
    assert removed(collect(service)) == NOTHING


@pytest.mark.heavy
def test_never_one_in_use(service):
    """Who reads a blob gets all of it; who brings one keeps it."""
    data = some_bytes(40 << 20)
    digest = stored(service, data)
    with start_request(service, "GET", f"/v1/blobs/{digest}", 0) as connection:
        answer = read_answer(connection)
        assert answer.status == 200 and answer.read(1000) == data[:1000]
        assert collect(service)["blobs"] == 1 and not is_here(service, digest)
        if buckets.IN_USE:  # an object has no readers that keep it
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
        else:
            assert answer.read() == data[1000:]
    location = begin(service)
    with start_request(service, "PATCH", location, 100, b"x" * 50) as connection:
        wait_until(lambda: service.get(location).status == 409)
        assert collect(service)["uploads"] == 0
        connection.sendall(b"x" * 50)
        assert connection.recv(65536).startswith(b"HTTP/1.1 202 ")
    assert finish(service, location, digest_of(b"x" * 100)).status == 201


@pytest.mark.heavy
def test_while_others_write(service):
    """Blobs come, and graphs that refer to them come before or after: none that a graph refers to is ever gone."""
    stopped, failures, kept = threading.Event(), [], []

    def write(client):
        try:
            for i in range(25):
                data = some_bytes(100 if i % 2 else INLINE + 100, f"{client} {i}")
                assert service.post("/v1/graphs", graph_of([digest_of(data)], f"{client}-{i}")).status == 201
                stored(service, data)
                assert service.get(f"/v1/blobs/{digest_of(data)}").body == data
                late = stored(service, data + b"late")
                status = service.post("/v1/graphs", graph_of([late], f"{client}-{i}-late")).status
                assert (status, is_here(service, late)) in ((201, True), (409, False))  # collected before the graph came
                kept.extend([digest_of(data)] + [late] * (status == 201))
        except Exception as failure:
            failures.append(failure)

    def sweep():
        try:
            while not stopped.is_set():
                collect(service)
        except Exception as failure:
            failures.append(failure)

    writers = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in writers + sweepers:
        thread.start()
    for thread in writers:
        thread.join()
    stopped.set()
    for thread in sweepers:
        thread.join()
    assert not failures, failures
    assert collect(service)["kept"] == len(kept) >= 100
    assert all(is_here(service, digest) for digest in kept)


def test_by_itself(new_service):
    service = new_service("--gc-interval", "1", "--gc-grace", "1")
    kept = stored(service, some_bytes(INLINE * 2, "kept"))
    service.post("/v1/graphs", graph_of([kept]))
    gone, location = stored(service, some_bytes(INLINE * 2)), begin(service)
    wait_until(lambda: not is_here(service, gone))
    wait_until(lambda: service.get(location).status == 404)
    assert is_here(service, kept) and len(files(service, "blobs")) == 1
    assert service.post("/v1/gc").json()["grace_seconds"] == 1
    assert service.stop() == 0


def test_never_by_itself(new_service):
    service = new_service("--gc-interval=0", "--gc-grace=0")
    digest = stored(service, some_bytes(10))
    time.sleep(1.5)
    assert is_here(service, digest)
    assert service.post("/v1/gc").json()["blobs"] == 1  # without a body: with the service's own grace period


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        ({"dry_run": 1}, 422, "wrong-type", "/dry_run"),
        ({"grace_seconds": -1}, 422, "wrong-type", "/grace_seconds"),
        ({"grace_seconds": 0.5}, 422, "wrong-type", "/grace_seconds"),
        ({"grace_seconds": "1"}, 422, "wrong-type", "/grace_seconds"),
        ({"grace_seconds": 1e18}, 422, "wrong-type", "/grace_seconds"),
        ({"grace": 1}, 422, "unknown-member", "/grace"),
        ([], 422, "wrong-type", None),
        (b" ", 400, "invalid-json", ""),
    ],
)
def test_wrongly_asked(shared, body, status, code, pointer):
    assert is_problem(shared.post("/v1/gc", body), status, code).get("pointer") == pointer
