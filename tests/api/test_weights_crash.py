"""kill -9 while weights are written and read: no half blob is there afterwards, and a download goes on where it ended."""

import http.client
import random
import threading
import time

import pytest
import weights_files as files
from documents import branches
from test_weights import bind, digest_of, document_of, download, optimize

ROWS, COLUMNS = 512, 2048  # 4 MB each


def large_model():
    graph = branches(3)
    for one in graph["tensors"]:
        one["shape"] = [ROWS, COLUMNS] if len(one["shape"]) == 2 else [ROWS]
    for one in graph["modules"][1:]:
        one["config"] |= {"in_features": COLUMNS, "out_features": ROWS}
    for one in graph["nodes"]:
        one.pop("meta", None)
    graph["nodes"][0]["meta"] = {"shape": [2, COLUMNS], "dtype": "float32"}
    return graph


def merged(service):
    graph, rng = large_model(), random.Random(0)
    size = {2: 4 * ROWS * COLUMNS, 1: 4 * ROWS}
    file = files.file_of({one["name"]: ("float32", one["shape"], rng.randbytes(size[len(one["shape"])]))
                          for one in graph["tensors"]})
    run = optimize(service, bind(service, graph, file, strict=True)["id"], "MergeLinears")
    assert run["passes"][0]["applied"] == 1
    return run["result"]


def check_blobs(service):
    token = None
    while True:
        page = service.get("/v1/blobs", raw_query={"page_token": token} if token else None).json()
        for blob in page["items"]:
            part = service.get(f"/v1/blobs/{blob['digest']}").body
            assert (digest_of(part), len(part)) == (blob["digest"], blob["size"])
        token = page.get("next_page_token")
        if not token:
            return


@pytest.mark.long
def test_kill_while_materializing(service):
    graph = merged(service)
    whole = download(service, graph)
    began = time.monotonic()
    assert digest_of(service.post(f"/v1/graphs/{graph}/materialize", {"names": ["fc0-fc1-fc2-merged.weight"]}).body)
    rng, seconds = random.Random(1), time.monotonic() - began
    for _ in range(8):

        def ask():
            try:
                service.post(f"/v1/graphs/{graph}/materialize")
            except (OSError, http.client.HTTPException):
                pass  # killed

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(rng.uniform(0, 1.5 * seconds))
        service.kill()
        asking.join()
        service.start()
        answer = service.get(f"/v1/blobs/{digest_of(whole)}")
        assert answer.status == 404 or answer.body == whole
        check_blobs(service)
    made = service.post(f"/v1/graphs/{graph}/materialize").json()
    assert (made["blob"], made["size"]) == (digest_of(whole), len(whole))
    assert service.get(f"/v1/blobs/{made['blob']}").body == whole


@pytest.mark.heavy
def test_kill_while_downloading(service):
    """What came is the begin of the file, and the client asks for the rest."""
    graph = merged(service)
    whole = download(service, graph)
    path, got, tag = f"/v1/graphs/{graph}/weights", b"", None
    rng = random.Random(2)
    for _ in range(6):
        connection = http.client.HTTPConnection(service.host, service.port, timeout=600)
        connection.request("GET", path, headers={"Range": f"bytes={len(got)}-", "If-Range": tag} if tag else {})
        answer = connection.getresponse()
        assert answer.status == (206 if tag else 200)
        tag = answer.headers["ETag"]
        got += answer.read(rng.randrange(1, len(whole) // 8))
        service.kill()
        try:
            got += answer.read()  # what was under way
        except http.client.IncompleteRead as partial:
            got += partial.partial
        except OSError:
            pass
        connection.close()
        assert got == whole[: len(got)]
        service.start()
        if len(got) == len(whole):
            break
    rest = service.get(path, headers={"Range": f"bytes={len(got)}-", "If-Range": tag}) if len(got) < len(whole) else None
    assert got + (rest.body if rest else b"") == whole
    assert document_of(service, graph)["tensors"]


@pytest.mark.long
def test_clients_that_leave(service):
    """Downloads that nobody reads to the end hold nothing up."""
    graph = merged(service)
    left = []
    for i in range(20):
        connection = http.client.HTTPConnection(service.host, service.port, timeout=600)
        connection.request("GET", f"/v1/graphs/{graph}/weights")
        answer = connection.getresponse()
        answer.read(1 + 1000 * i)
        left.append((connection, answer))
        if i % 2:
            connection.close()
    whole = download(service, graph)
    assert service.stop() == 0
    service.start()
    assert download(service, graph) == whole
    for connection, _ in left:
        connection.close()
