"""/v1/blobs: bytes by their digest."""

import concurrent.futures
import hashlib
import http.client
import json
import re

import pytest
from blobs import (
    INLINE,
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
from documents import every_item
from test_http import is_problem

SIZES = [0, 1, INLINE - 1, INLINE, INLINE + 1, (3 << 20) + 7]
ABSENT = "sha256:" + "0" * 64


def test_in_and_out(service):
    for size in SIZES:
        data = some_bytes(size)
        path = f"/v1/blobs/{digest_of(data)}"
        is_problem(service.get(path), 404, "unknown-blob")
        assert service.request("HEAD", path).status == 404
        first = put_blob(service, data)
        assert first.status == 201 and first.headers["location"] == path, first
        assert set(first.json()) == {"digest", "size", "created"}
        assert (first.json()["digest"], first.json()["size"]) == (digest_of(data), size)
        again = put_blob(service, data)
        assert again.status == 200 and again.json() == first.json()
        for _ in range(2):
            got = service.get(path)
            assert got.status == 200 and got.body == data
            assert got.headers["content-type"] == "application/octet-stream"
            assert got.headers["content-length"] == str(size)
            assert got.headers["etag"] == f'"{digest_of(data)}"'
            assert got.headers["accept-ranges"] == "bytes"
            assert got.headers["cache-control"] == "public, max-age=31536000, immutable"
            head = service.request("HEAD", path)
            assert head.status == 200 and not head.body and head.headers["content-length"] == str(size)
            assert head.headers["etag"] == got.headers["etag"] and head.headers["accept-ranges"] == "bytes"
            service.restart()
    large = {digest_of(some_bytes(size))[7:] for size in SIZES if size > INLINE}
    assert {path.name for path in files(service, "blobs")} == large
    for path in files(service, "blobs"):
        assert path.parent.name == path.name[2:4] and path.parent.parent.name == path.name[:2]
    assert files(service, "uploads") == []


def test_any_media_type(shared):
    for i, kind in enumerate(["application/octet-stream", "text/html; charset=x", "application/json", "nonsense", None]):
        data = b"{ no json " + bytes([i])
        assert put_blob(shared, data, headers={"Content-Type": kind} if kind else {}).status == 201


def test_a_body_of_unknown_length(shared):
    data = some_bytes(INLINE * 3, "chunked")
    pieces = (data[i : i + 10007] for i in range(0, len(data), 10007))
    connection = http.client.HTTPConnection(shared.host, shared.port, timeout=600)
    headers = {"Transfer-Encoding": "chunked"}
    connection.request("PUT", f"/v1/blobs/{digest_of(data)}", pieces, headers, encode_chunked=True)
    assert connection.getresponse().status == 201
    connection.close()
    assert shared.get(f"/v1/blobs/{digest_of(data)}").body == data


def test_never_compressed(shared):
    text = b'{"compresses": "well"}' * 10000
    got = shared.get(f"/v1/blobs/{stored(shared, text)}", headers={"Accept-Encoding": "gzip, zstd"})
    assert "content-encoding" not in got.headers and got.body == text
    is_problem(put_blob(shared, some_bytes(10), headers={"Content-Encoding": "gzip"}), 415, "unsupported-encoding")
    assert put_blob(shared, some_bytes(10, "as is"), headers={"Content-Encoding": "identity"}).status == 201


@pytest.mark.parametrize("size", [10, INLINE * 2 + 5])
def test_other_bytes_than_said(service, size):
    data, wrong = some_bytes(size), digest_of(b"another")
    answer = put_blob(service, data, wrong)
    assert wrong in is_problem(answer, 422, "digest-mismatch")["detail"] and digest_of(data) in answer.json()["detail"]
    assert not is_here(service, wrong) and not is_here(service, digest_of(data))
    assert stored(service, b"another") == wrong
    is_problem(put_blob(service, data, wrong), 422, "digest-mismatch")  # it is here, but these bytes are not it
    assert service.get(f"/v1/blobs/{wrong}").body == b"another"
    assert files(service, "uploads") == files(service, "blobs") == []


@pytest.mark.parametrize(
    "digest",
    ["x", "sha256:", "sha256:" + "A" * 64, "sha256:" + "0" * 63, "sha512:" + "0" * 64, "0" * 64, "a" * 5000],
    ids=lambda digest: digest[:20],
)
def test_bad_digests(shared, digest):
    for method, data in (("PUT", b"x"), ("GET", None), ("PUT", None)):
        answer = shared.request(method, f"/v1/blobs/{digest}", data)
        assert is_problem(answer, 422, "bad-digest")["parameter"] == "digest"
    assert shared.request("HEAD", f"/v1/blobs/{digest}").status == 422


def test_other_methods(shared):
    path = f"/v1/blobs/{stored(shared, b'methods')}"
    for method in ("DELETE", "POST", "PATCH"):
        answer = shared.request(method, path)
        is_problem(answer, 405)
        assert answer.headers["allow"] == "PUT, GET, HEAD, OPTIONS"
    is_problem(shared.get("/v1/blobs/uploads"), 405)
    is_problem(shared.request("PUT", "/v1/blobs/missing", b""), 405)
    is_problem(shared.get(path, raw_query="size=1"), 422, "unknown-parameter")
    is_problem(shared.request("PUT", path, b"", raw_query="size=1"), 422, "unknown-parameter")
    is_problem(shared.get(path, headers={"Accept": "application/json"}), 406)
    is_problem(put_blob(shared, b"foreign", headers={"Origin": "http://elsewhere.example"}), 403, "foreign-origin")
    assert not is_here(shared, digest_of(b"foreign"))


# ---- parts -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1000, INLINE + 1000, 5 << 20])
def test_ranges(shared, size):
    data = some_bytes(size, "ranges")
    path = f"/v1/blobs/{stored(shared, data)}"
    tag = f'"{digest_of(data)}"'
    for asked, first, last in [
        ("bytes=0-0", 0, 0),
        ("bytes=0-", 0, size - 1),
        ("bytes=7-99", 7, 99),
        ("bytes=999-", 999, size - 1),
        (f"bytes={size - 1}-", size - 1, size - 1),
        (f"bytes=5-{size * 10}", 5, size - 1),
        ("bytes=-1", size - 1, size - 1),
        (f"bytes=-{size * 10}", 0, size - 1),
        (f"bytes={size // 3}-{size // 2}", size // 3, size // 2),
    ]:
        got = shared.get(path, headers={"Range": asked})
        assert got.status == 206, asked
        assert got.body == data[first : last + 1]
        assert got.headers["content-range"] == f"bytes {first}-{last}/{size}"
        assert got.headers["content-length"] == str(last - first + 1) and got.headers["etag"] == tag
    for asked in (f"bytes={size}-", f"bytes={size * 2}-{size * 3}", "bytes=-0"):
        got = shared.get(path, headers={"Range": asked})
        is_problem(got, 416, "range-not-satisfiable")
        assert got.headers["content-range"] == f"bytes */{size}"
    for asked in ("bytes=0-1,5-6", "bytes=9-5", "bytes=x-y", "lines=1-2", "bytes=", "bytes"):
        got = shared.get(path, headers={"Range": asked})
        assert got.status == 200 and got.body == data, asked
    assert shared.get(path, headers={"Range": "bytes=1-2", "If-Range": tag}).status == 206
    assert shared.get(path, headers={"Range": "bytes=1-2", "If-Range": '"other"'}).body == data
    assert shared.request("HEAD", path, headers={"Range": "bytes=1-2"}).headers["content-length"] in (str(size), "2")


def test_what_the_client_has(shared):
    path = f"/v1/blobs/{stored(shared, some_bytes(INLINE * 2))}"
    tag = f'"{path[len("/v1/blobs/"):]}"'
    got = shared.get(path, headers={"If-None-Match": tag})
    assert got.status == 304 and not got.body and got.headers["etag"] == tag
    assert shared.get(path, headers={"If-None-Match": '"other"'}).status == 200
    is_problem(shared.get(f"/v1/blobs/{ABSENT}", headers={"If-None-Match": f'"{ABSENT}"'}), 404, "unknown-blob")


# ---- much --------------------------------------------------------------------------------------------------------------------


def memory(service):
    """The most that the process ever had, in MB."""
    status = open(f"/proc/{service.process.pid}/status").read()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) >> 10


@pytest.mark.heavy
def test_large(new_service):
    """The memory of the service does not grow with a blob, on the way in or out."""
    # Or a sanitizer keeps what was freed.
    service = new_service(environment={"ASAN_OPTIONS": "quarantine_size_mb=1"})
    block, count = some_bytes(1 << 20), 100
    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(block)
    path = f"/v1/blobs/sha256:{digest.hexdigest()}"
    stored(service, block)
    assert service.get(f"/v1/blobs/{digest_of(block)}").body == block
    before = memory(service)
    connection = http.client.HTTPConnection(service.host, service.port, timeout=600)
    for status in (201, 200):
        connection.request("PUT", path, (block for _ in range(count)), headers={"Content-Length": str(count << 20)})
        answer = connection.getresponse()
        assert answer.status == status and json.loads(answer.read())["size"] == count << 20
    connection.request("GET", path)
    answer = connection.getresponse()
    assert all(answer.read(1 << 20) == block for _ in range(count)) and answer.read() == b""
    connection.close()
    assert memory(service) - before < 50, (before, memory(service))


def test_more_than_a_body_may_have(new_service):
    """--max-body is about what is held in memory; bytes are not."""
    service = new_service("--max-body", "64K", "--max-body-memory", "3M")
    data = some_bytes(8 << 20)
    assert service.get(f"/v1/blobs/{stored(service, data)}").body == data


def test_many_at_once(service):
    """Of those who bring the same blob at once one is told that it is new; others are not disturbed."""
    same = some_bytes(INLINE * 2, "same")
    own = [some_bytes(INLINE - 8 + i, i) for i in range(16)]
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda data: put_blob(service, data), [same] * 8 + own + [same] * 8))
    of_same = answers[:8] + answers[-8:]
    assert sorted(answer.status for answer in of_same) == [200] * 15 + [201]
    assert all(answer.status == 201 for answer in answers[8:-8])
    assert service.get(f"/v1/blobs/{digest_of(same)}").body == same
    assert len(files(service, "blobs")) == 1 + sum(len(data) > INLINE for data in own)
    assert files(service, "uploads") == []


@pytest.mark.parametrize("sent", [0, 1, 200_000])
def test_a_connection_that_breaks(service, sent):
    data = some_bytes(1 << 20)
    path = f"/v1/blobs/{digest_of(data)}"
    with start_request(service, "PUT", path, len(data), data[:sent]):
        if sent:
            wait_until(lambda: files(service, "uploads"))
    wait_until(lambda: not files(service, "uploads"))
    assert not is_here(service, digest_of(data)) and service.get("/v1/blobs").json() == {"items": []}
    assert put_blob(service, data).status == 201


def test_a_reader_that_leaves(service):
    digest = stored(service, some_bytes(20 << 20))
    for _ in range(5):
        with start_request(service, "GET", f"/v1/blobs/{digest}", 0) as connection:
            assert read_answer(connection).status == 200
    assert hashlib.sha256(service.get(f"/v1/blobs/{digest}").body).hexdigest() == digest[7:]


# ---- lists -------------------------------------------------------------------------------------------------------------------


def test_list(service):
    assert service.get("/v1/blobs").json() == {"items": []}
    digests = [stored(service, some_bytes(size, "list")) for size in (3, INLINE + 3, 0, 100, 7)]
    for graph in (graph_of(digests[:2], "a"), graph_of([digests[0], ABSENT], "b")):
        assert service.post("/v1/graphs", graph).status == 201
    items = every_item(service, "/v1/blobs")
    assert [item["digest"] for item in items] == digests[::-1]
    assert [item["size"] for item in items] == [7, 100, 0, INLINE + 3, 3]
    assert [item["graphs"] for item in items] == [0, 0, 0, 1, 2]
    assert all(item["created"] <= item["used"] for item in items)
    stored(service, some_bytes(100, "list"))
    again = every_item(service, "/v1/blobs", limit=1000)
    assert [item["digest"] for item in again] == digests[::-1]
    assert again[1]["used"] > items[1]["used"] and again[1]["created"] == items[1]["created"]
    assert is_problem(service.get("/v1/blobs?page_token=x"), 422, "bad-page-token")["parameter"] == "page_token"
    is_problem(service.get("/v1/blobs?limit=0"), 422, "bad-parameter")


def test_missing(service):
    here = [stored(service, some_bytes(size, "missing")) for size in (5, INLINE * 2)]
    gone = [digest_of(bytes([i])) for i in range(3)]

    def missing(digests):
        answer = service.post("/v1/blobs/missing", {"digests": digests})
        assert answer.status == 200, answer
        return answer.json()["missing"]

    assert missing([]) == missing(here) == missing(here * 2) == []
    assert missing(gone) == gone and missing(gone[::-1] + here) == gone[::-1]
    assert missing([gone[2], here[0], gone[0], gone[2], here[0], gone[0]]) == [gone[2], gone[0]]
    many = [digest_of(str(i).encode()) for i in range(9999)]
    assert missing(many + here[:1]) == many
    problem = is_problem(service.post("/v1/blobs/missing", {"digests": many + gone}), 413, "too-many-digests")
    assert problem["pointer"] == "/digests"


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        (None, 400, "missing-body", None),
        ([], 422, "wrong-type", None),
        ({}, 422, "missing-member", "/digests"),
        ({"digests": "x"}, 422, "wrong-type", "/digests"),
        ({"digests": [ABSENT, 1]}, 422, "wrong-type", "/digests/1"),
        ({"digests": [ABSENT, ABSENT, ABSENT.upper()]}, 422, "bad-digest", "/digests/2"),
        ({"digests": [], "digest": ABSENT}, 422, "unknown-member", "/digest"),
    ],
)
def test_missing_wrongly_asked(shared, body, status, code, pointer):
    problem = is_problem(shared.post("/v1/blobs/missing", body), status, code)
    assert problem.get("pointer") == pointer
