"""A bit of a stored blob flips: its bytes are never sent as if they were right, and putting the blob again mends it."""

import concurrent.futures
import http.client
import io
import json
import math
import pathlib
import sqlite3
import struct
import zipfile

import buckets
import databases
import pytest
from blobs import INLINE, digest_of, files, put_blob, some_bytes, stored
from documents import branches, linear
from test_archives import archive
from test_http import is_problem

LARGE = 5 << 20  # several parts
SIZES = [1, INLINE, INLINE + 1, 1 << 20, (1 << 20) + 1, LARGE]


def flip(service, size, at=-1):
    """In the only blob of this size."""
    if size > INLINE:
        [path] = [path for path in files(service, "blobs") if path.stat().st_size == size]
        with open(path, "r+b") as file:
            file.seek(at % size)
            byte = file.read(1)[0]
            file.seek(at % size)
            file.write(bytes([byte ^ 1]))
        return
    with sqlite3.connect(service.data / "foldback.sqlite") as connection:
        [(key, data)] = connection.execute("SELECT key, bytes FROM blobs WHERE size = ?", [size]).fetchall()
        data = bytearray(data)
        data[at] ^= 1
        connection.execute("UPDATE blobs SET bytes = ? WHERE key = ?", [bytes(data), key])
    connection.close()


def is_refused(service, path, size, headers=()):
    """Small ones before anything is sent, large ones by the end of the connection."""
    connection = http.client.HTTPConnection(service.host, service.port, timeout=600)
    connection.request("GET", path, headers=dict(headers))
    answer = connection.getresponse()
    try:
        body = answer.read()
    except http.client.IncompleteRead as cut:
        assert size > 1 << 20 and answer.status in (200, 206) and len(cut.partial) < int(answer.headers["Content-Length"])
        return
    finally:
        connection.close()
    assert answer.status == 500 and json.loads(body)["code"] == "store-corrupt", (answer.status, len(body))


def without_rows_elsewhere(size):
    if size <= INLINE and databases.IN_USE:
        pytest.skip("the rows are in a database on a server")


def is_passed_on(size):
    """A range of a large object is what the bucket answers: only the whole has a digest."""
    return buckets.IN_USE and size > 1 << 20


@pytest.mark.parametrize("at", [0, -1])
@pytest.mark.parametrize("size", SIZES)
def test_a_blob(service, size, at):
    without_rows_elsewhere(size)
    data, other = some_bytes(size), some_bytes(LARGE + 1)
    path = f"/v1/blobs/{stored(service, data)}"
    stored(service, other)
    flip(service, size, at)
    for _ in range(2):
        is_refused(service, path, size)
    for part in () if is_passed_on(size) else ("0-0", "0-99", f"{size // 2}-"):
        is_problem(service.get(path, headers={"Range": f"bytes={part}"}), 500, "store-corrupt")
    assert service.get(f"/v1/blobs/{digest_of(other)}").body == other
    service.restart()
    is_refused(service, path, size)
    assert put_blob(service, data).status == 200
    assert service.get(path).body == data, "who puts it again has mended it"
    service.restart()
    assert service.get(path).body == data


def safetensors(tensors):
    header, data = {}, b""
    for name, (shape, content) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def linears(outputs):
    document = branches(2)
    own = [linear(f"fc{i}", 4, outputs) for i in range(2)]
    document["modules"][1:] = [module for module, _ in own]
    document["tensors"] = [tensor for _, tensors in own for tensor in tensors]
    for node in document["nodes"][1:-1]:
        node["meta"]["shape"] = [2, outputs]
    return document


@pytest.mark.parametrize("outputs", [16, 2000, 200_000])
def test_weights(service, outputs):
    """Those that were uploaded, and those that a pass computes from them."""
    document = linears(outputs)
    content = safetensors({one["name"]: (one["shape"], some_bytes(4 * math.prod(one["shape"]), one["name"]))
                           for one in document["tensors"]})
    size = len(content)
    without_rows_elsewhere(size)
    answer = service.post("/v1/graphs", document, raw_query=[("weights", stored(service, content))])
    assert answer.status == 201, answer
    graph = answer.json()["id"]
    merged = service.post("/v1/optimize", {"graph": graph, "passes": ["MergeLinears"]})
    assert merged.status == 201 and merged.json()["result"] != graph, merged
    right = [service.get(f"/v1/graphs/{one}/weights").body for one in (graph, merged.json()["result"])]
    flip(service, size)
    for one in (graph, merged.json()["result"]):
        is_refused(service, f"/v1/graphs/{one}/weights", size)
        is_problem(service.post(f"/v1/graphs/{one}/materialize"), 500, "store-corrupt")
    [name] = [one["name"] for one in document["tensors"] if one["name"].startswith("fc1") and len(one["shape"]) == 2]
    is_refused(service, f"/v1/graphs/{graph}/tensors/{name}", size)
    assert put_blob(service, content).status == 200
    assert [service.get(f"/v1/graphs/{one}/weights").body for one in (graph, merged.json()["result"])] == right


@pytest.mark.parametrize("more", [10_000, 3 << 20])
def test_archives(service, more):
    """That which was uploaded, and that of a graph which was optimised."""
    out = io.BytesIO(archive("shared"))
    with zipfile.ZipFile(out, "a") as given:
        given.writestr(given.namelist()[0].partition("/")[0] + "/extra/large", some_bytes(more))
    content = out.getvalue()
    size = len(content)
    without_rows_elsewhere(size)
    source = service.request("POST", "/v1/graphs", content, {"Content-Type": "application/zip"}).json()["id"]
    run = service.post("/v1/optimize", {"graph": source, "passes": ["inference"]}).json()
    assert run["result"] != source
    flip(service, size, size - more // 2)
    for one in (source, run["result"]):
        is_refused(service, f"/v1/graphs/{one}/archive", size)
    is_problem(service.post(f"/v1/graphs/{run['result']}/materialize", raw_query=[("format", "pt2")]), 500, "store-corrupt")
    assert put_blob(service, content).status == 200
    assert service.get(f"/v1/graphs/{source}/archive").body == content
    assert service.get(f"/v1/graphs/{run['result']}/archive").status == 200


def part_of(service, path, first=0, last=99):
    answer = service.get(path, headers={"Range": f"bytes={first}-{last}"})
    return answer.body if answer.status == 206 else answer.json()["code"]


def test_parts_of_what_is_made_of_a_blob(service):
    """A range, or a small tensor of a large file, is not sent before the file is known to be right."""
    document = linears(200_000)
    content = safetensors({one["name"]: (one["shape"], some_bytes(4 * math.prod(one["shape"]), one["name"]))
                           for one in document["tensors"]})
    answer = service.post("/v1/graphs", document, raw_query=[("weights", stored(service, content))])
    graph = answer.json()["id"]
    merged = service.post("/v1/optimize", {"graph": graph, "passes": ["MergeLinears"]}).json()["result"]
    small = min(document["tensors"], key=lambda one: math.prod(one["shape"]))["name"]
    paths = [f"/v1/graphs/{graph}/weights", f"/v1/graphs/{merged}/weights", f"/v1/graphs/{graph}/tensors/{small}"]
    paths += [] if is_passed_on(len(content)) else [f"/v1/blobs/{digest_of(content)}"]
    right = [part_of(service, path) for path in paths]
    named = f"/v1/graphs/{graph}/weights?names={small}"
    few = service.get(named).body
    assert all(len(part) == 100 for part in right) and len(few) * 4 < len(content)
    flip(service, len(content), len(content) // 2)  # in none of the parts
    assert [part_of(service, path) for path in paths] == ["store-corrupt"] * len(paths)
    is_problem(service.get(named), 500, "store-corrupt")
    assert put_blob(service, content).status == 200
    assert [part_of(service, path) for path in paths] == right and service.get(named).body == few


@pytest.mark.heavy
def test_nothing_is_computed_from_it(service):
    """By an evaluation, or the validation of a pass."""
    document = linears(200_000)
    content = safetensors({one["name"]: (one["shape"], some_bytes(4 * math.prod(one["shape"]), one["name"]))
                           for one in document["tensors"]})
    graph = service.post("/v1/graphs", document, raw_query=[("weights", stored(service, content))]).json()["id"]
    merge = {"graph": graph, "passes": ["MergeLinears"]}
    asked = {f"/v1/graphs/{graph}/evaluate": {}, "/v1/optimize": {**merge, "options": {"validate": "rewrites"}}}
    flip(service, len(content), len(content) // 2)
    for path, body in asked.items():
        is_problem(service.post(path, body), 500, "store-corrupt")
    assert service.post("/v1/optimize", merge).status == 201  # it reads none
    assert put_blob(service, content).status == 200
    assert [service.post(path, body).status for path, body in asked.items()] == [200, 201]


@pytest.mark.heavy
@pytest.mark.skipif(buckets.IN_USE, reason="it is not a file")
def test_a_file_is_read_once_for_its_parts(service):
    """Also when many ask at the same time."""
    data = some_bytes(60 << 20)
    path = f"/v1/blobs/{stored(service, data)}"
    process = pathlib.Path(f"/proc/{service.process.pid}/io")

    def read():
        return int(dict(line.split(": ") for line in process.read_text().splitlines())["rchar"])

    before = read()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda i: part_of(service, path, i << 20, (i << 20) + 9), range(48)))
    assert parts == [data[i << 20 : (i << 20) + 10] for i in range(48)]
    assert len(data) <= read() - before < 2 * len(data)
