"""Blobs for the tests: bytes made to measure, and what is done with them."""

import hashlib
import http.client
import random
import time

import buckets
from documents import branches

INLINE = 64 << 10  # up to this size blobs are in the database, larger ones are files


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def some_bytes(size, seed=0):
    return random.Random(f"{size} {seed}").randbytes(size)


def put_blob(service, data, digest=None, **options):
    return service.request("PUT", f"/v1/blobs/{digest or digest_of(data)}", data, **options)


def stored(service, data):
    """Stores it; its digest."""
    assert put_blob(service, data).status in (200, 201)
    return digest_of(data)


def is_here(service, digest):
    status = service.request("HEAD", f"/v1/blobs/{digest}").status
    assert status in (200, 404)
    return status == 200


def graph_of(digests, name="refers"):
    """A graph whose tensors are in these blobs; the blobs need not be there."""
    graph = branches(max(2, (len(digests) + 1) // 2), name)
    for tensor, digest in zip(graph["tensors"], digests):
        tensor.update(blob=digest, offset=0)
    return graph


def collect(service, grace=0, dry_run=False):
    """Removes the garbage. The clock of the store counts milliseconds."""
    time.sleep(0.01)
    answer = service.post("/v1/gc", {"grace_seconds": grace, "dry_run": dry_run})
    assert answer.status == 200, answer
    return answer.json()


def files(service, folder):
    """The files below one of the data folder's folders; those of blobs may be in a bucket."""
    if folder == "blobs" and buckets.IN_USE:
        return buckets.shared_server().objects(buckets.prefix_of(service.data))
    return sorted(path for path in (service.data / folder).rglob("*") if path.is_file())


def wait_until(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_request(service, method, path, length, data=b"", headers=""):
    """A request of which only `data` is sent. The caller closes the connection."""
    connection = service.connect()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


def read_answer(connection):
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response
