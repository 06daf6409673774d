"""/v1/blobs/uploads: a blob in parts, whatever happens in between."""

import concurrent.futures
import threading
import time

import pytest
from blobs import INLINE, digest_of, files, is_here, put_blob, some_bytes, start_request, stored, wait_until
from test_http import is_problem

UNKNOWN = "/v1/blobs/uploads/upload_01M7XTSAAT7GE5FHQDV5WCKM9T"


def begin(service):
    answer = service.post("/v1/blobs/uploads")
    assert answer.status == 202, answer
    location = answer.headers["location"]
    assert answer.json() == {"upload": location.removeprefix("/v1/blobs/uploads/"), "size": 0}
    assert answer.headers["range"] == "0-0" and answer.headers["upload-offset"] == "0"
    return location


def append(service, location, data, content_range=None, **options):
    headers = {"Content-Range": content_range} if content_range else {}
    return service.request("PATCH", location, data, headers=headers, **options)


def finish(service, location, digest, data=None, headers=None):
    return service.request("PUT", location, data, headers=headers, raw_query={"digest": digest} if digest else None)


def is_at(answer, size, status):
    assert answer.status == status, answer
    assert answer.headers["range"] == f"0-{max(size - 1, 0)}" and answer.headers["upload-offset"] == str(size)
    if status == 202:
        assert answer.json()["size"] == size
    return True


def size_of(service, location):
    """How far it is. A request whose connection broke may still be at it."""
    while (answer := service.get(location)).status == 409:
        is_problem(answer, 409, "upload-busy")
        time.sleep(0.01)
    assert answer.status == 204 and not answer.body and answer.headers["location"] == location
    assert is_at(answer, int(answer.headers["upload-offset"]), 204)
    return int(answer.headers["upload-offset"])


def is_gone(service, location):
    is_problem(service.get(location), 404, "unknown-upload")
    is_problem(append(service, location, b"x"), 404, "unknown-upload")
    is_problem(finish(service, location, digest_of(b"x")), 404, "unknown-upload")
    is_problem(service.delete(location), 404, "unknown-upload")
    return True


@pytest.mark.heavy
def test_who_looks_is_in_nobodys_way(service):
    """Others ask how far it is all the time; no part is refused for that."""
    location, stopped, seen = begin(service), threading.Event(), set()

    def look():
        while not stopped.is_set():
            seen.add(service.get(location).status)

    watchers = [threading.Thread(target=look) for _ in range(4)]
    for watcher in watchers:
        watcher.start()
    try:
        for i in range(200):
            assert append(service, location, b"x").status == 202, f"part {i}"
    finally:
        stopped.set()
        for watcher in watchers:
            watcher.join()
    assert seen <= {204, 409} and size_of(service, location) == 200


@pytest.mark.parametrize("size", [1, 1000, INLINE, INLINE + 1, 3 << 20])
def test_in_parts(service, size):
    data, part = some_bytes(size), size // 4 + 1
    location = begin(service)
    for start in range(0, size, part):
        piece = data[start : start + part]
        assert size_of(service, location) == start
        answer = append(service, location, piece, f"{start}-{start + len(piece) - 1}")
        assert is_at(answer, start + len(piece), 202) and answer.headers["location"] == location
    assert not is_here(service, digest_of(data))
    answer = finish(service, location, digest_of(data))
    assert answer.status == 201 and answer.headers["location"] == f"/v1/blobs/{digest_of(data)}", answer
    assert (answer.json()["digest"], answer.json()["size"]) == (digest_of(data), size)
    assert service.get(answer.headers["location"]).body == data
    assert is_gone(service, location) and files(service, "uploads") == []


def test_the_last_part_with_the_end(shared):
    data = some_bytes(100_000, "last part")
    location = begin(shared)
    append(shared, location, data[:60_000])
    answer = finish(shared, location, digest_of(data), data[60_000:], {"Content-Range": "60000-99999"})
    assert answer.status == 201 and shared.get(answer.headers["location"]).body == data
    whole = begin(shared)
    assert finish(shared, whole, digest_of(data), data).status == 200  # it is here already
    assert is_gone(shared, whole)


def test_nothing_at_all(shared):
    location = begin(shared)
    assert is_at(append(shared, location, b""), 0, 202)
    assert finish(shared, location, digest_of(b"")).status in (200, 201)
    assert shared.get(f"/v1/blobs/{digest_of(b'')}").body == b""


def test_in_one_request(service):
    data = some_bytes(INLINE * 2, "one request")
    answer = service.post("/v1/blobs/uploads", data, raw_query={"digest": digest_of(data)})
    assert answer.status == 201 and answer.headers["location"] == f"/v1/blobs/{digest_of(data)}"
    assert service.post("/v1/blobs/uploads", data, raw_query={"digest": digest_of(data)}).status == 200
    assert service.post("/v1/blobs/uploads", raw_query={"digest": digest_of(b"")}).status == 201
    is_problem(service.post("/v1/blobs/uploads", b"other", raw_query={"digest": digest_of(data)}), 422, "digest-mismatch")
    problem = is_problem(service.post("/v1/blobs/uploads", b"of what?"), 422, "missing-parameter")
    assert problem["parameter"] == "digest"
    is_problem(service.post("/v1/blobs/uploads", data, raw_query={"digest": "x"}), 422, "bad-digest")
    assert files(service, "uploads") == []


@pytest.mark.parametrize("spelling", ["{}-{}", "bytes {}-{}", "bytes {}-{}/*", "bytes {}-{}/100"])
def test_ways_to_spell_a_range(shared, spelling):
    location = begin(shared)
    assert is_at(append(shared, location, b"abc", spelling.format(0, 2)), 3, 202)
    assert is_at(append(shared, location, b"d", spelling.format(3, 3)), 4, 202)
    assert finish(shared, location, digest_of(b"abcd")).status in (200, 201)


def test_out_of_order(shared):
    location = begin(shared)
    answer = append(shared, location, b"later", "5-9")
    is_problem(answer, 416, "out-of-order")
    assert is_at(answer, 0, 416)
    append(shared, location, b"first", "0-4")
    for content_range in ("0-4", "4-8", "6-10", "999999999999-1000000000003"):
        answer = append(shared, location, b"again", content_range)
        is_problem(answer, 416, "out-of-order")
        assert is_at(answer, 5, 416)
        answer = finish(shared, location, digest_of(b"x"), b"again", {"Content-Range": content_range})
        assert is_at(answer, 5, 416)
    assert is_at(append(shared, location, b"later", "5-9"), 10, 202)
    assert finish(shared, location, digest_of(b"firstlater")).status in (200, 201)


@pytest.mark.parametrize(
    "content_range",
    ["0", "0-", "-4", "4-0", "a-b", "0 - 4", "0-4/", "0-4/4", "0-4/x", "bytes=0-4", "lines 0-4", "+0-4", "0-3", "0-5",
     "0-99999999999999999999", "99999999999999999999-99999999999999999999", "bytes */5"],
)
def test_bad_ranges(shared, content_range):
    location = begin(shared)
    is_problem(append(shared, location, b"12345", content_range), 400, "bad-content-range")
    assert size_of(shared, location) == 0
    assert shared.delete(location).status == 204


def test_a_range_that_the_body_has_not(shared):
    """Of a body without a length that is seen when it has come: it stays, and the answer to the next question says how much."""

    def send(location, content_range, *chunks):
        body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        head = (f"PATCH {location} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Range: "
                f"{content_range}\r\n")
        return shared.raw(head.encode() + b"Connection: close\r\n\r\n" + body)[:12]

    location = begin(shared)
    assert send(location, "0-4", b"abc", b"de") == b"HTTP/1.1 202"
    assert send(location, "5-9", b"f") == b"HTTP/1.1 400" and size_of(shared, location) == 6
    assert send(location, "6-7", b"ghijkl") == b"HTTP/1.1 400" and size_of(shared, location) == 6  # none of too much
    assert shared.delete(location).status == 204


def test_wrong_digest_keeps_the_session(service):
    data = some_bytes(INLINE * 2, "kept")
    location = begin(service)
    append(service, location, data[:-10])
    answer = finish(service, location, digest_of(data))
    assert digest_of(data) in is_problem(answer, 422, "digest-mismatch")["detail"]
    assert digest_of(data[:-10]) in answer.json()["detail"]
    assert size_of(service, location) == len(data) - 10 and service.get("/v1/blobs").json() == {"items": []}
    is_problem(finish(service, location, digest_of(data), data[-10:-5]), 422, "digest-mismatch")
    assert size_of(service, location) == len(data) - 5
    assert finish(service, location, digest_of(data), data[-5:]).status == 201
    assert service.get(f"/v1/blobs/{digest_of(data)}").body == data


def test_end_without_a_digest(shared):
    location = begin(shared)
    append(shared, location, b"abc")
    for digest, code in ((None, "missing-parameter"), ("x", "bad-digest"), ("", "bad-digest")):
        answer = shared.request("PUT", location, b"def", raw_query=None if digest is None else {"digest": digest})
        assert is_problem(answer, 422, code)["parameter"] == "digest"
    assert size_of(shared, location) == 3  # nothing was appended
    assert finish(shared, location, digest_of(b"abc")).status in (200, 201)


def test_cancel(service):
    location = begin(service)
    append(service, location, some_bytes(INLINE * 2))
    assert len(files(service, "uploads")) == 1
    assert service.delete(location).status == 204
    assert is_gone(service, location) and files(service, "uploads") == []


@pytest.mark.parametrize(
    "name",
    ["x", "..x", "%2e%2e%00", "upload_", "upload_" + "Z" * 26, "upload_01m7xtsaat7ge5fhqdv5wckm9t", "a%20b", "U" * 3000],
    ids=lambda name: name[:20],
)
def test_no_such_upload(shared, name):
    path = f"/v1/blobs/uploads/{name}"
    answer = shared.get(path)
    if name == "%2e%2e%00":
        is_problem(answer, 400, "bad-target")
    else:
        assert is_gone(shared, path)


def test_ids_lead_nowhere_else(service):
    """An id is no way to a file."""
    (service.data / "uploads").mkdir(exist_ok=True)
    (service.data / "uploads" / "planted").write_bytes(b"secret")
    for name in ("planted", "foldback.sqlite", "blobs"):
        assert is_gone(service, f"/v1/blobs/uploads/{name}")
    assert (service.data / "uploads" / "planted").read_bytes() == b"secret"


@pytest.mark.heavy
def test_a_connection_that_breaks(service):
    """What came stays, and the rest follows."""
    data = some_bytes(3 << 20, "breaks")
    location, at, rounds = begin(service), 0, 0
    while at < len(data):
        rounds += 1
        sent = min(len(data) - at, 700_001)
        headers = f"Content-Range: {at}-{len(data) - 1}\r\n"
        start_request(service, "PATCH", location, len(data) - at, data[at : at + sent], headers).close()
        try:  # refused unheard when the part before is still being put away
            wait_until(lambda: size_of(service, location) > at, seconds=2)
        except AssertionError:
            assert rounds < 30
        reached = size_of(service, location)
        assert reached <= at + sent
        at = reached
    assert rounds >= 5
    assert finish(service, location, digest_of(data)).status == 201
    assert service.get(f"/v1/blobs/{digest_of(data)}").body == data


def test_a_last_part_that_breaks(service):
    data = some_bytes(1 << 20, "breaks at the end")
    location = begin(service)
    path = f"{location}?digest={digest_of(data)}"
    start_request(service, "PUT", path, len(data), data[:-1]).close()
    wait_until(lambda: size_of(service, location) > 0)
    at = size_of(service, location)
    assert 0 < at < len(data) and not is_here(service, digest_of(data))
    assert finish(service, location, digest_of(data), data[at:]).status == 201


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_over_a_restart(service, end):
    data = some_bytes(INLINE * 3, "restart")
    locations = [begin(service) for _ in range(3)]
    append(service, locations[0], data[:100])
    append(service, locations[1], data[:INLINE])
    append(service, locations[1], data[INLINE : 2 * INLINE])
    getattr(service, end)()
    service.start()
    assert [size_of(service, location) for location in locations] == [100, 2 * INLINE, 0]
    for location, start in zip(locations, (100, 2 * INLINE, 0)):
        append(service, location, data[start : start + 1000], f"{start}-{start + 999}")
    getattr(service, end)()
    service.start()
    for location, start in zip(locations, (1100, 2 * INLINE + 1000, 1000)):
        assert size_of(service, location) == start
        assert finish(service, location, digest_of(data), data[start:]).status in (200, 201)
        assert is_gone(service, location)
    assert service.get(f"/v1/blobs/{digest_of(data)}").body == data
    assert service.restart() and is_gone(service, locations[0])


def test_one_at_a_time(service):
    data = some_bytes(INLINE * 2, "busy")
    location = begin(service)
    with start_request(service, "PATCH", location, len(data), data[:-1]) as connection:
        wait_until(lambda: service.get(location).status == 409)
        is_problem(append(service, location, b"x"), 409, "upload-busy")
        is_problem(finish(service, location, digest_of(data)), 409, "upload-busy")
        is_problem(service.delete(location), 409, "upload-busy")
        other = begin(service)  # others go on
        assert finish(service, other, digest_of(b"other"), b"other").status == 201
        connection.sendall(data[-1:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 202 ")
    assert size_of(service, location) == len(data)
    assert finish(service, location, digest_of(data)).status == 201


def test_many_sessions_at_once(service):
    def upload(i):
        data = some_bytes(INLINE // 2 * (i % 5) + i, "many")
        location = begin(service)
        for start in range(0, len(data), 20_000):
            assert append(service, location, data[start : start + 20_000]).status == 202
        return finish(service, location, digest_of(data)).status, data

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        done = list(threads.map(upload, range(1, 25)))
    for status, data in done:
        assert status == 201 and service.get(f"/v1/blobs/{digest_of(data)}").body == data
    assert files(service, "uploads") == []


def test_the_same_blob_by_all_ways(service):
    data = some_bytes(INLINE * 2, "ways")
    location = begin(service)
    append(service, location, data)
    stored(service, data)
    assert finish(service, location, digest_of(data)).status == 200
    assert put_blob(service, data).status == 200
    assert len(files(service, "blobs")) == 1
