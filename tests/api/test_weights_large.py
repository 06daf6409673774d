"""Offsets of more than 32 bits: a tensor over 4 GiB. Takes 10 GB of disk and minutes: only with FOLDBACK_LARGE=1."""

import hashlib
import http.client
import json
import os
import random
import struct

import pytest
from test_weights import download, one_linear, tensor_path

pytestmark = pytest.mark.skipif(os.environ.get("FOLDBACK_LARGE") != "1", reason="FOLDBACK_LARGE=1 runs it")

COUNT = 2**30 + 1024  # elements of four bytes
TAIL = random.Random(0).randbytes(4096)  # behind 4 GiB of zeros
SMALL = struct.pack("<2f", 1, -2)


def parts():
    header = {
        "big": {"dtype": "F32", "shape": [COUNT], "data_offsets": [0, 4 * COUNT]},
        "small": {"dtype": "F32", "shape": [2], "data_offsets": [4 * COUNT, 4 * COUNT + 8]},
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    zeros = bytes(2**22)
    for _ in range(2**10):
        yield zeros
    yield TAIL + SMALL


def test_a_large_tensor(service):
    digest, size = hashlib.sha256(), 0
    for part in parts():
        digest.update(part)
        size += len(part)
    digest = "sha256:" + digest.hexdigest()
    connection = http.client.HTTPConnection(service.host, service.port, timeout=600)
    connection.request("PUT", f"/v1/blobs/{digest}", parts(), {"Content-Length": str(size)})
    assert connection.getresponse().status == 201
    connection.close()

    graph = one_linear(["big", "small", "end"])
    graph["tensors"][0]["shape"] = [COUNT]
    recipe = {"op": "slice", "args": ["big"], "axis": 0, "start": 2**30 - 1, "stop": 2**30 + 1}
    graph["tensors"][2]["recipe"] = recipe
    stored = service.post("/v1/graphs", graph, raw_query={"weights": digest}).json()
    assert stored["weights"] == {"bound": 2, "missing": [], "extra": []}
    graph = stored["id"]
    assert service.get(tensor_path(graph, "small")).body == SMALL
    assert service.get(tensor_path(graph, "end")).body == bytes(4) + TAIL[:4]
    part = service.get(tensor_path(graph, "big"), headers={"Range": f"bytes={2**32 - 8}-{2**32 + 99}"})
    assert part.status == 206 and part.body == bytes(8) + TAIL[:100]
    assert service.get(tensor_path(graph, "big"), headers={"Range": "bytes=-10"}).body == TAIL[-10:]
    whole = service.request("HEAD", f"/v1/graphs/{graph}/weights")
    length = int(whole.headers["content-length"])
    assert length > 2**32
    end = service.get(f"/v1/graphs/{graph}/weights", headers={"Range": f"bytes={length - 24}-"}).body
    assert end == TAIL[-8:] + SMALL + bytes(4) + TAIL[:4]
    assert download(service, graph, names="small").endswith(SMALL)
    made = service.post(f"/v1/graphs/{graph}/materialize", {"names": ["big", "small"]}, timeout=600).json()
    assert made == {"blob": digest, "size": size, "tensors": 2}
