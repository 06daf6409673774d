"""Archives of torch.export: in by POST /v1/graphs and /v1/optimize, out by GET /v1/graphs/{id}/archive."""

import concurrent.futures
import hashlib
import io
import json
import pathlib
import struct
import zipfile

import pytest
from blobs import collect, files, is_here, put_blob
from test_http import is_problem

ARCHIVES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "archives"
ZIP = {"Content-Type": "application/zip"}
DOCUMENTS = json.loads((ARCHIVES / "documents.json").read_text())  # of each archive and model, as PyTorch exports it


def archive(name):
    return (ARCHIVES / f"{name}.pt2").read_bytes()


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def post(service, data, query="", kind="application/zip", path="/v1/graphs"):
    return service.request("POST", path + query, body=data, headers={"Content-Type": kind})


@pytest.mark.parametrize(("name", "model"), [(name, model) for name in DOCUMENTS for model in DOCUMENTS[name]])
def test_in_and_out(shared, name, model):
    data = archive(name)
    made = post(shared, data, f"?model={model}")
    assert made.status in (200, 201), made.body
    answer = made.json()
    exported = shared.post("/v1/graphs", DOCUMENTS[name][model])
    assert exported.status in (200, 201), exported.body
    assert answer["structure"] == exported.json()["structure"]
    assert answer["archive"] == digest_of(data) and answer["name"] == model
    again = shared.get(f"/v1/graphs/{answer['id']}/archive")
    assert again.status == 200 and again.body == data
    assert again.headers["content-type"] == "application/octet-stream" and again.headers["etag"] == f'"{digest_of(data)}"'
    is_problem(shared.get(f"/v1/graphs/{exported.json()['id']}/archive"), 409, "no-archive")


def test_parts_and_heads(shared):
    data = archive("mlp")
    path = f"/v1/graphs/{post(shared, data).json()['id']}/archive"
    head = shared.request("HEAD", path)
    assert head.status == 200 and head.headers["content-length"] == str(len(data)) and not head.body
    part = shared.request("GET", path, headers={"Range": "bytes=100-199"})
    assert part.status == 206 and part.body == data[100:200]


@pytest.mark.parametrize("kind", ["application/zip", "application/vnd.pytorch.pt2", "application/octet-stream",
                                  "application/json"])
def test_ways_to_send(shared, kind):
    data = archive("tied")
    assert post(shared, data, kind=kind).json()["archive"] == digest_of(data)


def test_a_blob_that_is_here(shared):
    data = archive("half")
    is_problem(shared.request("POST", f"/v1/graphs?archive={digest_of(data)[:-1]}0"), 404, "unknown-blob")
    assert put_blob(shared, data).status in (200, 201)
    made = shared.request("POST", f"/v1/graphs?archive={digest_of(data)}")
    assert made.status in (200, 201) and made.json()["archive"] == digest_of(data)
    assert made.json()["id"] == post(shared, data).json()["id"]
    is_problem(post(shared, data, f"?archive={digest_of(data)}"), 422, "contradictory-source")
    is_problem(shared.request("POST", "/v1/graphs?archive=x"), 422, "bad-digest")
    is_problem(shared.request("POST", "/v1/graphs"), 400, "missing-body")
    is_problem(shared.request("POST", "/v1/optimize"), 400, "missing-body")


def nodes_of(service, graph):
    document = json.loads(service.get(f"/v1/graphs/{graph}").body)
    return [(node["name"], node["target"], node["args"], node["meta"]["shape"])
            for node in document["nodes"] if node["op"] == "call_function"]


def test_optimize_and_reverse(shared):
    data = archive("conv")
    run = post(shared, data, "?pass=RemoveNoOps", path="/v1/optimize")
    assert run.status == 201, run.body
    source, result = run.json()["source"], run.json()["result"]
    assert shared.get(f"/v1/graphs/{source}/archive").body == data
    assert source != result
    back = shared.post("/v1/reverse", {"graph": result})
    assert shared.get(f"/v1/graphs/{back.json()['result']}/archive").body == data
    changed = shared.get(f"/v1/graphs/{result}/archive")
    assert changed.status == 200 and changed.headers["content-type"] == "application/octet-stream"
    part = shared.get(f"/v1/graphs/{result}/archive", headers={"Range": "bytes=100-4999"})
    assert part.status == 206 and part.body == changed.body[100:5000]
    again = post(shared, repacked(changed.body))
    assert again.status == 201 and nodes_of(shared, again.json()["id"]) == nodes_of(shared, result)
    is_problem(post(shared, data, path="/v1/optimize"), 422, "no-passes")


def test_new_weights_are_in_the_archive(shared):
    run = post(shared, archive("conv"), "?pass=FuseBatchNorm", path="/v1/optimize").json()
    made = shared.get(f"/v1/graphs/{run['result']}/archive").body
    with zipfile.ZipFile(io.BytesIO(made)) as given:
        assert given.testzip() is None
        names = {name.partition("/")[2] for name in given.namelist()}
    assert "data/weights/weight_1" not in names and "data/weights/weight_0" not in names
    assert post(shared, repacked(made)).status == 201


def repacked(data, change=None):
    """The same entries written by other software; `change` gives the bytes of a name anew."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)) if change else old.read(name))
    return out.getvalue()


def test_what_was_written_is_recognised(shared, new_service):
    run = post(shared, archive("conv"), "?pass=RemoveNoOps", path="/v1/optimize").json()
    written = shared.get(f"/v1/graphs/{run['result']}/archive").body
    back = post(shared, written)
    assert back.status == 200 and back.json()["id"] == run["result"] and back.json()["archive"] == digest_of(written)
    assert post(shared, written, "?model=model").json()["id"] == run["result"]
    undone = shared.post("/v1/reverse", {"graph": back.json()["id"]}).json()
    assert undone["result"] == run["source"] and undone["exact"]
    again = post(shared, written, "?pass=FuseBatchNorm", path="/v1/optimize").json()
    assert again["source"] == run["result"] and again["passes"][0]["applied"] > 0
    elsewhere = post(new_service(), written)
    assert elsewhere.status == 201 and elsewhere.json()["id"] != run["result"], "a store that lacks the graph reads the archive"


def flipped(name, data):
    return bytes([data[0] ^ 1]) + data[1:] if "/data/weights/weight_0" in name else data


def weight_of(service, graph):
    """The first tensor that the program reads."""
    weights = service.get(f"/v1/graphs/{graph}/weights").body
    size = int.from_bytes(weights[:8], "little")
    begin, end = json.loads(weights[8 : 8 + size])["body.0.weight"]["data_offsets"]
    return weights[8 + size + begin : 8 + size + end]


def test_training_is_taken_along(shared):
    """What was changed since is a graph of its own, and the undo keeps the change."""
    run = post(shared, archive("conv"), "?pass=RemoveNoOps", path="/v1/optimize").json()
    written = shared.get(f"/v1/graphs/{run['result']}/archive").body
    before = weight_of(shared, run["source"])
    for data, wanted in ((repacked(written), before), (repacked(written, flipped), bytes([before[0] ^ 1]) + before[1:])):
        other = post(shared, data).json()
        assert other["id"] != run["result"]
        undone = shared.post("/v1/reverse", {"graph": other["id"]})
        assert undone.status == 201, undone.body
        assert weight_of(shared, undone.json()["result"]) == wanted
        assert nodes_of(shared, undone.json()["result"]) == nodes_of(shared, run["source"])
        back = post(shared, shared.get(f"/v1/graphs/{undone.json()['result']}/archive").body)
        assert weight_of(shared, back.json()["id"]) == wanted


def without_entry(data):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if not name.endswith("foldback_graph"):
                new.writestr(name, flipped(name, old.read(name)))
    return out.getvalue()


def test_an_archive_that_does_not_say_what_it_was(shared):
    """PyTorch drops the entry; then the run must be named."""
    run = post(shared, archive("conv"), "?pass=RemoveNoOps", path="/v1/optimize").json()
    graph = post(shared, without_entry(shared.get(f"/v1/graphs/{run['result']}/archive").body)).json()["id"]
    answer = shared.post("/v1/reverse", {"graph": graph})
    is_problem(answer, 409, "unrelated-graph")
    assert "that run's reverse link" in answer.json()["detail"]
    undone = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": graph})
    assert undone.status == 201, undone.body
    assert weight_of(shared, undone.json()["result"])[0] == weight_of(shared, run["source"])[0] ^ 1


def test_another_program_is_not_taken_for_what_was_written(shared):
    run = post(shared, archive("conv"), "?pass=RemoveNoOps", path="/v1/optimize").json()
    written = shared.get(f"/v1/graphs/{run['result']}/archive").body
    claims = repacked(written, lambda name, data: run["source"].encode() if name.endswith("foldback_graph") else data)
    other = post(shared, claims).json()["id"]
    assert other not in (run["result"], run["source"])
    answer = shared.post("/v1/reverse", {"graph": other})
    is_problem(answer, 409, "unrelated-graph")
    assert run["source"] in answer.json()["detail"] and "flatten" in answer.json()["detail"]

    def clamps(name, data):
        return data.replace(b"aten.relu.default", b"aten.relu6.default") if "/models/" in name else data

    answer = shared.post("/v1/reverse", {"graph": post(shared, repacked(written, clamps)).json()["id"]})
    is_problem(answer, 409, "unrelated-graph")
    assert "torch.ops.aten.relu" in answer.json()["detail"]


@pytest.mark.parametrize("mode", ["graph", "rewrites"])
@pytest.mark.parametrize("name", ["conv", "conv-core", "sizes"])
def test_dynamic_sizes_are_validated(shared, name, mode):
    """Inputs are made from shapes whose sizes are symbols."""
    run = post(shared, archive(name), f"?pass=inference&validate={mode}", path="/v1/optimize").json()
    assert run["validation"] == {"mode": mode, "passes": True, "complete": True}


def with_nested_call(service, target):
    """The id of a graph whose nested program has another call, in the place of a subtraction."""
    graph = post(service, archive("nested")).json()["id"]
    document = json.loads(service.get(f"/v1/graphs/{graph}").body)
    [nodes] = [module["graph"]["nodes"] for module in document["modules"] if module["path"] == "false_graph_0"]
    [changed] = [node for node in nodes if node["target"] == "torch.ops.aten.sub.Tensor"]
    changed["target"] = target
    made = service.post("/v1/graphs", document)
    assert made.status == 201, made.body
    return made.json()["id"]


def test_a_changed_nested_program_is_written(shared):
    answer = shared.get(f"/v1/graphs/{with_nested_call(shared, 'torch.ops.aten.add.Tensor')}/archive")
    assert answer.status == 200, answer.body
    with zipfile.ZipFile(io.BytesIO(answer.body)) as given:
        program = json.loads(given.read("nested/models/model.json"))
    [branch] = [
        argument["arg"]["as_graph"]["graph"]
        for node in program["graph_module"]["graph"]["nodes"]
        for argument in node["inputs"]
        if argument["arg"].get("as_graph", {}).get("name") == "false_graph_0"
    ]
    assert [node["target"] for node in branch["nodes"]] == ["torch.ops.aten.add.Tensor", "torch.ops.aten.mul.Tensor"]


def test_what_cannot_be_written_is_refused(shared):
    """A call of which no signature is known."""
    answer = shared.get(f"/v1/graphs/{with_nested_call(shared, 'operator.sub')}/archive")
    is_problem(answer, 409, "archive-changed")
    assert "(operator.sub)" in answer.json()["detail"]


def test_nothing_is_stored_of_what_is_refused(service):
    good = archive("conv")

    def without_weights(name, data):
        return b"{}" if name.endswith("weights_config.json") else data

    refused = [good[:5000], archive("several"), repacked(good, without_weights),
               repacked(good, lambda name, data: data.replace(b"torch.ops.aten.relu.default", b"os.system"))]
    for data in refused:
        for path in ("/v1/graphs", "/v1/optimize?pass=inference"):
            for kind in ("application/zip", "application/octet-stream"):
                assert post(service, data, kind=kind, path=path).status == 422
    # An archive that is right, in a request that is not.
    wrong = ["/v1/optimize?pass=MergeLinear", "/v1/optimize", "/v1/optimize?pass=ConvertPrecision&to=float12",
             "/v1/optimize?pass=inference&as=mine"]
    wrong += ["/v1/optimize?pass=inference&weights=abc", "/v1/graphs?weights=abc",
              "/v1/graphs?weights=sha256:" + "0" * 64 + "&as=mine", "/v1/graphs?strict=perhaps"]
    for path in wrong:
        for kind in ("application/zip", "application/octet-stream"):
            assert post(service, good, kind=kind, path=path).status == 422, path
    assert service.get("/v1/blobs").json()["items"] == [] == service.get("/v1/graphs").json()["items"]


MISSING = "sha256:" + "1" * 64
# Known to be wrong when the graph is read
LATE = [f"/v1/graphs?weights={MISSING}", f"/v1/optimize?pass=inference&weights={MISSING}"]


@pytest.mark.parametrize("path", LATE)
@pytest.mark.parametrize("kind", ["application/zip", "application/octet-stream"])
def test_a_late_refusal_leaves_nothing(service, path, kind):
    """Of a small archive, and of one that is a file; but what was here before stays."""
    for data in (archive("conv"), large("conv")):
        assert post(service, data, kind=kind, path=path).status >= 400
        assert service.get("/v1/blobs").json()["items"] == [] and files(service, "blobs") == [] == files(service, "uploads")
        assert put_blob(service, data).status == 201
        assert post(service, data, kind=kind, path=path).status >= 400
        assert is_here(service, digest_of(data))
        assert collect(service)["blobs"] == 1


def large(name):
    out = io.BytesIO(archive(name))
    with zipfile.ZipFile(out, "a") as given:
        given.writestr(given.namelist()[0].partition("/")[0] + "/extra/large", bytes(200_000))
    return out.getvalue()


@pytest.mark.long
def test_a_late_refusal_does_not_take_the_blob_of_another(service):
    """One client is refused again and again, another puts the same bytes and refers to them. A clock of milliseconds is too
    coarse to tell whose upload was the last."""
    data, path = archive("conv"), LATE[0]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(150):
            refused = [pool.submit(post, service, data, path=path) for _ in range(3)]
            assert put_blob(service, data).status in (200, 201)
            assert is_here(service, digest_of(data)), "it was told that the blob is here"
            assert all(one.result().status >= 400 for one in refused)
            assert is_here(service, digest_of(data))
            collect(service)


def test_weights_of_an_archive(shared):
    """They are read from the archive, without having been copied."""
    graph = post(shared, archive("shared")).json()["id"]
    weights = shared.get(f"/v1/graphs/{graph}/weights")
    assert weights.status == 200, weights.body
    size = int.from_bytes(weights.body[:8], "little")
    header = json.loads(weights.body[8 : 8 + size])
    begin, end = header["column"]["data_offsets"]
    assert struct.unpack("<4f", weights.body[8 + size + begin : 8 + size + end]) == (2.0, 8.0, 14.0, 20.0)


def test_an_archive_stays_while_a_graph_needs_it(service):
    """Also where no tensor points into it."""
    data = archive("empty")
    graph = post(service, data).json()["id"]
    alone = archive("tied")
    assert put_blob(service, alone).status == 201
    assert collect(service)["blobs"] == 1 and service.get(f"/v1/blobs/{digest_of(alone)}").status == 404
    assert service.get(f"/v1/graphs/{graph}/archive").body == data


def test_damage_is_named(shared):
    data = bytearray(archive("mlp"))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as given:
        info = next(info for info in given.infolist() if info.filename.endswith("weight_0"))
    at = info.header_offset + 30 + len(info.filename)
    at += int.from_bytes(data[info.header_offset + 28 : info.header_offset + 30], "little")
    data[at] ^= 1
    answer = post(shared, bytes(data))
    is_problem(answer, 422, "bad-archive")
    assert "data/weights/weight_0" in answer.json()["detail"]
    is_problem(post(shared, archive("mlp")[:5000]), 422, "bad-archive")
    is_problem(post(shared, archive("several")), 422, "bad-archive")
    is_problem(post(shared, b"not a zip"), 422, "bad-archive")


def test_a_repeated_request(shared):
    headers = {**ZIP, "Idempotency-Key": "archive-1"}
    first = shared.request("POST", "/v1/graphs", body=archive("conv"), headers=headers)
    again = shared.request("POST", "/v1/graphs", body=archive("conv"), headers=headers)
    assert again.headers.get("idempotency-replayed") == "true" and again.json() == first.json()
    is_problem(shared.request("POST", "/v1/graphs", body=archive("tied"), headers=headers), 422, "idempotency-key-reused")


def test_a_repeated_run_names_its_archive(shared):
    data = archive("conv")
    headers = {**ZIP, "Idempotency-Key": "archive-2"}
    first, again = (shared.request("POST", "/v1/optimize?pass=RemoveNoOps", body=data, headers=headers) for _ in range(2))
    assert first.json()["archive"] == digest_of(data)
    assert again.headers.get("idempotency-replayed") == "true" and again.json() == first.json()
    plain = shared.post("/v1/optimize", {"graph": first.json()["source"], "passes": ["RemoveNoOps"]})
    assert plain.status == 201 and "archive" not in plain.json()
    assert "archive" not in shared.get(f"/v1/runs/{first.json()['id']}").json()


def test_materialize(service):
    """The archive of a graph as a blob: the upload's own, or the one of the changed graph."""
    data = archive("conv")
    run = post(service, data, "?pass=FuseBatchNorm", path="/v1/optimize").json()
    same = service.post(f"/v1/graphs/{run['source']}/materialize?format=pt2")
    assert same.status == 200 and same.json() == {"blob": digest_of(data), "size": len(data)}
    wanted = service.get(f"/v1/graphs/{run['result']}/archive").body
    first, again = (service.post(f"/v1/graphs/{run['result']}/materialize?format=pt2", {}) for _ in range(2))
    assert (first.status, again.status) == (201, 200) and first.json() == again.json()
    assert first.json() == {"blob": digest_of(wanted), "size": len(wanted)}
    assert first.headers["location"] == f"/v1/blobs/{digest_of(wanted)}"
    head = service.request("HEAD", first.headers["location"])
    assert head.status == 200 and head.headers["content-length"] == str(len(wanted))
    part = service.get(first.headers["location"], headers={"Range": "bytes=1000-1999"})
    assert part.status == 206 and part.body == wanted[1000:2000]
    path = f"/v1/graphs/{run['result']}/materialize"
    assert service.post(path + "?format=safetensors").json() == service.post(path).json() != first.json()
    is_problem(service.post(path + "?format=onnx"), 422, "bad-parameter")
    assert service.post(path + "?format=pt2", {"names": ["x"]}).status == 422
    exported = service.post("/v1/graphs", DOCUMENTS["conv"]["model"]).json()["id"]
    is_problem(service.post(f"/v1/graphs/{exported}/materialize?format=pt2"), 409, "no-archive")
    is_problem(service.post(f"/v1/graphs/sha256:{'0' * 64}/materialize?format=pt2"), 404, "unknown-graph")


def test_a_rollback_hands_out_the_old_file(service):
    """Versions and aliases serve archives: an A/B test is rolled back to the bytes that were uploaded."""
    data = archive("conv")
    run = post(service, data, "?pass=inference", path="/v1/optimize").json()
    assert run["archive"] == digest_of(data)
    versions, alias = "/v1/models/m/versions/", "/v1/models/m/aliases/champion"
    assert service.request("PUT", versions + "1", {"graph": run["source"]}).status == 201
    assert service.request("PUT", versions + "2", {"run": run["id"]}).status == 201
    assert service.request("PUT", alias, {"version": "1"}, headers={"If-None-Match": "*"}).status == 201
    assert service.request("PUT", alias, {"version": "2"}, headers={"If-Match": "*"}).status == 200
    fast = service.get(f"/v1/graphs/{run['result']}/archive").body
    assert service.get(versions + "1/archive").body == data and service.get(versions + "2/archive").body == fast != data
    deployed = service.get(alias + "/archive")
    assert deployed.body == fast and deployed.headers["foldback-version"] == "2"
    assert deployed.headers["content-location"] == f"/v1/graphs/{run['result']}/archive"
    kept = {"If-None-Match": deployed.headers["etag"]}
    assert service.get(alias + "/archive", headers=kept).status == 304
    assert service.post(alias + "/rollback", {}).json()["version"] == "1"
    back = service.get(alias + "/archive", headers=kept)
    assert back.status == 200 and back.body == data and back.headers["foldback-version"] == "1"
    assert back.headers["cache-control"] == "no-cache"  # an alias moves
    head = service.request("HEAD", alias + "/archive")
    assert head.status == 200 and head.headers["content-length"] == str(len(data)) and not head.body
    part = service.get(versions + "1/archive", headers={"Range": "bytes=10-19"})
    assert part.status == 206 and part.body == data[10:20]
    is_problem(service.get(versions + "3/archive"), 404, "unknown-version")
    is_problem(service.get("/v1/models/m/aliases/none/archive"), 404, "unknown-alias")
    exported = service.post("/v1/graphs", DOCUMENTS["conv"]["model"]).json()["id"]
    assert service.request("PUT", versions + "4", {"graph": exported}).status == 201
    is_problem(service.get(versions + "4/archive"), 409, "no-archive")


@pytest.mark.heavy
def test_memory_does_not_grow_with_an_archive(service, tmp_path):
    """Checking an archive reads all of it; its pages are given back on the way."""
    large = tmp_path / "large.pt2"
    large.write_bytes(archive("conv"))
    with zipfile.ZipFile(large, "a", zipfile.ZIP_STORED) as made, made.open("conv/extra/zeros", "w") as entry:
        for _ in range(256):
            entry.write(bytes(1 << 20))
    data = large.read_bytes()
    put_blob(service, data)
    peak_of(service)
    before = peak_of(service)
    answer = service.request("POST", f"/v1/graphs?archive={digest_of(data)}")
    assert answer.status == 201, answer.body
    assert peak_of(service) - before < 128


def peak_of(service):
    """MiB of resident memory, at most so far since it was last asked."""
    process = pathlib.Path(f"/proc/{service.process.pid}")
    status = (process / "status").read_text()
    (process / "clear_refs").write_text("5")
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def padded(mebibytes, compression):
    """A good archive whose program ends with blanks."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive("mlp"))) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            is_program = name.endswith("/models/model.json")
            content = old.read(name) + b" " * (mebibytes << 20) if is_program else old.read(name)
            new.writestr(name, content, compression if is_program else zipfile.ZIP_STORED)
    return out.getvalue()


def give(service, data, way):
    """As a body that goes to a file, as one that is held in memory, and by the name of a blob."""
    if way != "blob":
        return post(service, data, kind=way)
    assert put_blob(service, data).status in (200, 201)
    return service.request("POST", f"/v1/graphs?archive={digest_of(data)}")


@pytest.mark.parametrize("way", ["application/zip", "application/json", "blob"])
@pytest.mark.heavy
def test_the_content_counts_as_a_body_does(new_service, way):
    entry = "mlp/models/model.json"
    service = new_service("--max-body", "24M", "--max-body-memory", "48M")
    problem = is_problem(give(service, padded(20, zipfile.ZIP_DEFLATED), way), 413, "body-ratio-too-large")
    assert entry in problem["detail"]
    assert give(service, padded(15, zipfile.ZIP_DEFLATED), way).status == 201
    any_ratio = new_service("--max-body", "18M", "--max-body-memory", "48M", "--max-body-ratio", "0")
    assert give(any_ratio, padded(17, zipfile.ZIP_DEFLATED), way).status == 201
    problem = is_problem(give(any_ratio, padded(19, zipfile.ZIP_DEFLATED), way), 413, "body-too-large")
    assert entry in problem["detail"]
    little = new_service("--max-body", "18M", "--max-body-memory", "4M", "--max-body-ratio", "0")
    full = give(little, padded(6, zipfile.ZIP_DEFLATED), way)
    is_problem(full, 503, "overloaded")
    assert full.headers["retry-after"] == "1"
    assert give(little, padded(1, zipfile.ZIP_DEFLATED), way).status == 201, "what was counted has been released"


def test_a_stored_archive_is_read_under_narrower_limits(new_service, tmp_path):
    data = padded(3, zipfile.ZIP_STORED)
    wide = new_service(data=tmp_path / "data")
    made = give(wide, data, "application/zip").json()
    assert wide.stop() == 0
    narrow = new_service("--max-body", "1M", data=tmp_path / "data")
    is_problem(give(narrow, data, "application/zip"), 413, "body-too-large")
    assert narrow.get(f"/v1/graphs/{made['id']}/archive").body == data
