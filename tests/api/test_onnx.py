"""ONNX models: in by POST /v1/graphs, out as the very bytes, and everything that is refused."""

import concurrent.futures
import json
import urllib.parse

import pytest
from blobs import collect, digest_of, files, is_here, stored
from conftest import ROOT
from test_http import is_problem

MODELS = ROOT / "tests" / "fixtures" / "onnx"
SET = "application/vnd.foldback.files+json"
BESIDE = {"external-two-files": ["two.data", "weights/one.bin"]}
NAMES = sorted(path.stem for path in MODELS.glob("*.onnx"))
CHECKS = {name: (code, bytes.fromhex(data.replace("-", "")))
          for name, code, data in (line.split(" ") for line in (MODELS / "checks.txt").read_text().splitlines())}
BESIDE_CHECKS = {"w.bin": bytes(64), "a/b.bin": bytes(range(64))}  # what checks.txt is made for


def model(name):
    return (MODELS / f"{name}.onnx").read_bytes()


def send(service, data, query="", kind="application/onnx", path="/v1/graphs"):
    return service.request("POST", path + query, body=data, headers={"Content-Type": kind})


def send_set(service, name, contents, path="/v1/graphs", query="", **more):
    """The files as blobs, and then the set of them."""
    body = {"model": name, "files": {one: stored(service, data) for one, data in contents.items()}, **more}
    return service.request("POST", path + query, body=json.dumps(body), headers={"Content-Type": SET})


def contents_of(name, spelled="model.onnx"):
    return {spelled: model(name)} | {one: (MODELS / one).read_bytes() for one in BESIDE.get(name, [])}


@pytest.mark.parametrize("name", NAMES)
def test_in_and_out(shared, name):
    contents = contents_of(name)
    made = send_set(shared, "model.onnx", contents)
    assert made.status in (200, 201), made.body
    answer = made.json()
    assert answer["archive"] == digest_of(contents["model.onnx"]) and answer["dialect"] == "onnx"
    again = shared.get(f"/v1/graphs/{answer['id']}/archive")
    assert again.status == 200 and again.body == contents["model.onnx"]
    assert again.headers["content-type"] == "application/octet-stream" and again.headers["etag"] == f'"{answer["archive"]}"'
    listed = shared.get(f"/v1/graphs/{answer['id']}/archive/files").json()
    assert listed == {"model": "model.onnx", "files": {one: {"digest": digest_of(data), "size": len(data)}
                                                       for one, data in contents.items()}}
    for one, data in contents.items():
        assert shared.get(f"/v1/graphs/{answer['id']}/archive/files/{one}").body == data
    if name not in BESIDE:  # alone it is the same graph
        assert send(shared, contents["model.onnx"]).json()["id"] == answer["id"]
    assert shared.get(f"/v1/graphs/{answer['id']}/code").status == 200


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_models_right_and_wrong(shared, name):
    """Every row of what is refused, and what is not: with two files beside it."""
    code, data = CHECKS[name]
    made = send_set(shared, "model.onnx", {"model.onnx": data} | BESIDE_CHECKS)
    if code != "ok":
        problem = is_problem(made, 422, code)
        assert problem["files"] == ["none.bin"] if code == "missing-files" else " at byte " in problem["detail"]
        return
    assert made.status in (200, 201), made.body
    graph = f"/v1/graphs/{made.json()['id']}"
    assert shared.get(f"{graph}/archive").body == data
    read = [one for one in shared.get(f"{graph}/archive/files").json()["files"] if one != "model.onnx"]
    assert bool(read) == (name.startswith("file") and code == "ok"), "only files that are read belong to it"
    for one in read:
        assert shared.get(f"{graph}/archive/files/{one}").body == BESIDE_CHECKS[one]


@pytest.mark.parametrize(("name", "sorts"), [("order", True), ("circle", True), ("nothing-gives", False)])
def test_nodes_are_to_be_sorted_where_that_helps(shared, name, sorts):
    detail = is_problem(send_set(shared, "model.onnx", {"model.onnx": CHECKS[name][1]}), 422, "bad-onnx")["detail"]
    assert ("topological_sort" in detail, "and none behind it" in detail) == (sorts, not sorts), detail


@pytest.mark.parametrize("kind", ["application/onnx", "application/x-onnx", "application/vnd.onnx", "application/octet-stream",
                                  "application/json", "application/zip", "APPLICATION/ONNX; a=b"])
def test_ways_to_send(shared, kind):
    data = model("functions")
    made = send(shared, data, kind=kind)
    assert made.status in (200, 201), made.body
    assert made.json()["archive"] == digest_of(data) and made.json()["dialect"] == "onnx"


def test_a_body_of_the_type_is_a_model(shared):
    """Whatever it begins with, but a zip file is an archive."""
    is_problem(send(shared, b"hello"), 422, "bad-onnx")
    is_problem(send(shared, b"\x00"), 422, "bad-onnx")
    is_problem(send(shared, b""), 400, "missing-body")
    is_problem(send(shared, b"PK\x03\x04"), 422, "bad-archive")
    is_problem(send(shared, b"hello", kind="application/zip"), 422, "bad-archive")
    turned = model("functions")[2:] + model("functions")[:2]  # the version of the format is its last field
    is_problem(send(shared, turned, kind="application/octet-stream"), 400)
    made = send(shared, turned)
    assert made.status == 201 and shared.get(f"/v1/graphs/{made.json()['id']}/archive").body == turned


def test_a_blob_that_is_here(shared):
    data = model("qdq-cnn")
    is_problem(shared.request("POST", f"/v1/graphs?archive={digest_of(b'never here')}"), 404, "unknown-blob")
    stored(shared, data)
    made = shared.request("POST", f"/v1/graphs?archive={digest_of(data)}")
    assert made.status in (200, 201) and made.json()["archive"] == digest_of(data) and made.json()["dialect"] == "onnx"
    assert made.json()["id"] == send(shared, data).json()["id"]
    is_problem(send(shared, data, f"?archive={digest_of(data)}"), 422, "contradictory-source")
    is_problem(send(shared, data, "?model=x"), 422, "contradictory-source")
    is_problem(shared.request("POST", f"/v1/graphs?archive={digest_of(data)}&model=x"), 422, "contradictory-source")


def test_parts_and_heads(shared):
    contents = contents_of("external-two-files")
    graph = f"/v1/graphs/{send_set(shared, 'model.onnx', contents).json()['id']}"
    for path, data in [("archive", contents["model.onnx"]), ("archive/files/weights/one.bin", contents["weights/one.bin"])]:
        head = shared.request("HEAD", f"{graph}/{path}")
        assert head.status == 200 and head.headers["content-length"] == str(len(data)) and not head.body
        part = shared.request("GET", f"{graph}/{path}", headers={"Range": "bytes=100-199"})
        assert part.status == 206 and part.body == data[100:200]
        tag = {"If-None-Match": head.headers["etag"]}
        assert shared.request("GET", f"{graph}/{path}", headers=tag).status == 304
    is_problem(shared.get(f"{graph}/archive/files/none"), 404, "unknown-file")
    is_problem(shared.get(f"{graph}/archive/files/weights"), 404, "unknown-file")
    is_problem(shared.get(f"{graph}/archive/files/weights/one.bin/"), 404, "unknown-file")
    # As generated clients send it; nowhere else is a slash a part of a name.
    assert shared.get(f"{graph}/archive/files/weights%2Fone.bin").body == contents["weights/one.bin"]
    is_problem(shared.get(f"{graph}/archive/files/weights%2F..%2Ftwo.data"), 404, "unknown-file")
    is_problem(shared.get(f"{graph.replace('graphs/', 'graphs%2F')}/archive/files/weights"), 400, "bad-target")
    is_problem(shared.get(f"{graph}/archive%2Ffiles/weights"), 400, "bad-target")
    is_problem(shared.get(f"{graph}/archive/files/weights/../two.data"), 400, "bad-target")


def test_names_are_the_users(shared):
    """A location is what the tensor says; a name may be any that a path can hold."""
    name = "my model \u00e9.onnx"
    contents = contents_of("external-two-files", name)
    path = f"/v1/graphs/{send_set(shared, name, contents).json()['id']}/archive/files"
    assert shared.get(path).json()["model"] == name
    assert shared.get(f"{path}/{urllib.parse.quote(name)}").body == contents[name]


def test_files_that_are_not_here(shared):
    contents = contents_of("external-two-files")
    digests = {one: stored(shared, data) for one, data in contents.items()}
    gone = digest_of(b"never here")

    def post(**body):
        return shared.request("POST", "/v1/graphs", body=json.dumps(body), headers={"Content-Type": SET})
    two = digests | {"two.data": gone, "weights/one.bin": gone}
    assert is_problem(post(model="model.onnx", files=two), 422, "missing-files")["files"] == ["two.data", "weights/one.bin"]
    assert is_problem(post(model="model.onnx", files={"model.onnx": gone}), 422, "missing-files")["files"] == ["model.onnx"]
    alone = {"model.onnx": digests["model.onnx"]}
    assert is_problem(post(model="model.onnx", files=alone), 422, "missing-files")["files"] == ["two.data", "weights/one.bin"]
    problem = is_problem(send(shared, contents["model.onnx"]), 422, "missing-files")
    assert problem["files"] == ["two.data", "weights/one.bin"] and "two.data" in problem["detail"]
    made = post(model="model.onnx", files=alone, absent=True)
    assert made.status in (200, 201), made.body
    graph = f"/v1/graphs/{made.json()['id']}"
    listed = shared.get(f"{graph}/archive/files").json()["files"]
    assert listed["two.data"] is None and listed["weights/one.bin"] is None and listed["model.onnx"]["size"] == 721
    is_problem(shared.get(f"{graph}/archive/files/two.data"), 404, "unknown-file")
    assert shared.get(f"{graph}/archive").body == contents["model.onnx"]
    nowhere = [one["name"] for one in json.loads(shared.get(graph).body)["tensors"] if "blob" not in one and "data" not in one]
    assert len(nowhere) >= 2


@pytest.mark.parametrize("body, code, pointer", [
    ({"files": {}}, "missing-member", "/model"),
    ({"model": "m.onnx"}, "missing-member", "/files"),
    ({"model": "m.onnx", "files": {}}, "missing-member", "/files"),
    ({"model": "m.onnx", "files": []}, "wrong-type", "/files"),
    ({"model": 1, "files": {}}, "wrong-type", "/model"),
    ({"model": "m.onnx", "files": {"m.onnx": 1}}, "wrong-type", "/files/m.onnx"),
    ({"model": "m.onnx", "files": {"m.onnx": "sha256:12"}}, "bad-digest", "/files/m.onnx"),
    ({"model": "m.onnx", "files": {"a/~b": "sha256:12", "m.onnx": "x"}}, "bad-digest", "/files/a~1~0b"),
    ({"model": "m.onnx", "files": {"m.onnx": digest_of(b"")}, "absent": 1}, "wrong-type", "/absent"),
    ({"model": "m" * 1001, "files": {}}, "model-too-long", "/model"),
    ({"model": "m.onnx", "files": {"m.onnx": digest_of(b"")}, "more": 1}, "unknown-member", "/more"),
])
def test_sets_that_are_wrong(shared, body, code, pointer):
    problem = is_problem(shared.request("POST", "/v1/graphs", body=json.dumps(body), headers={"Content-Type": SET}), 422, code)
    assert problem["pointer"] == pointer


def test_a_set_is_json(shared):
    is_problem(shared.request("POST", "/v1/graphs", body="{", headers={"Content-Type": SET}), 400)
    body = json.dumps({"model": "m.onnx", "files": {"m.onnx": digest_of(b"x")}})
    is_problem(shared.request("POST", f"/v1/graphs?archive={digest_of(b'x')}", body=body, headers={"Content-Type": SET}), 422,
               "contradictory-source")
    is_problem(shared.request("POST", "/v1/graphs?model=x", body=body, headers={"Content-Type": SET}), 422,
               "contradictory-source")


def test_passes_leave_it(shared):
    """Those that know nothing of ONNX's operators leave them alone."""
    contents = contents_of("external-two-files")
    for answer in (send(shared, model("torchscript-resnet"), "?pass=ChannelsLast", path="/v1/optimize"),
                   send_set(shared, "model.onnx", contents, "/v1/optimize", "?pass=ChannelsLast")):
        assert answer.status == 201, answer.body
        run = answer.json()
        assert run["archive"] and run["dialect"] == "onnx" and run["source"] == run["result"]
        assert not any(one["applied"] for one in run["passes"])
        assert shared.get(f"/v1/graphs/{run['source']}/archive").status == 200
    is_problem(send(shared, model("torchscript-resnet"), path="/v1/optimize"), 422, "no-passes")
    body = json.dumps({"model": "m.onnx", "files": {"m.onnx": digest_of(b"x")}})
    is_problem(shared.request("POST", "/v1/optimize", body=body, headers={"Content-Type": SET}), 422, "no-passes")


def test_a_changed_graph(shared):
    """Its model is written anew, but for what ONNX has no words for."""
    made = send(shared, model("half-mlp")).json()["id"]
    document = json.loads(shared.get(f"/v1/graphs/{made}").body)
    document["name"] += "x"
    changed = shared.post("/v1/graphs", document).json()["id"]
    data = shared.get(f"/v1/graphs/{changed}/archive").body
    assert changed.encode() in data and data != model("half-mlp")
    listed = shared.get(f"/v1/graphs/{changed}/archive/files").json()
    assert listed == {"model": "model.onnx", "files": {"model.onnx": {"digest": digest_of(data), "size": len(data)}}}
    assert shared.get(f"/v1/graphs/{changed}/archive/files/model.onnx").body == data
    assert send(shared, data).json()["id"] == changed, "what foldback wrote is the graph that it wrote it for"
    touched = data.replace(b"foldback.graph", b"foldback.grapf")
    assert send(shared, touched).json()["id"] not in (made, changed)
    is_problem(shared.post(f"/v1/graphs/{made}/materialize?format=pt2", {}), 409, "no-archive")
    call = next(one for one in document["nodes"] if one["op"] == "call_function")
    call["target"] = "torch.relu"
    strange = shared.post("/v1/graphs", document).json()["id"]
    for path in ("archive", "archive/files", "archive/files/model.onnx"):
        assert "torch.relu" in is_problem(shared.get(f"/v1/graphs/{strange}/{path}"), 409, "archive-changed")["detail"]


def test_a_document_cannot_claim_a_file(shared):
    """Metadata are the client's: another blob is not given out for them."""
    secret = stored(shared, b"\x08\x07\x12\x00not a model")
    document = json.loads(shared.get(f"/v1/graphs/{send(shared, model('functions')).json()['id']}").body)
    document["metadata"]["onnx"]["files"] = {"secret": secret}
    claimed = shared.post("/v1/graphs", document).json()["id"]
    is_problem(shared.get(f"/v1/graphs/{claimed}/archive/files/secret"), 409, "archive-changed")
    document["metadata"]["onnx"]["blob"] = secret
    claimed = shared.post("/v1/graphs", document).json()["id"]
    is_problem(shared.get(f"/v1/graphs/{claimed}/archive"), 409, "archive-changed")
    for wrong in ({"blob": "x"}, {"blob": secret, "model": 1, "files": {}},
                  {"blob": secret, "model": "m", "files": {"a": 1}}, 1):
        document["metadata"]["onnx"] = wrong
        claimed = shared.post("/v1/graphs", document).json()["id"]
        is_problem(shared.get(f"/v1/graphs/{claimed}/archive"), 409, "no-archive")


def test_blobs_stay(new_service):
    """The model's file and those beside it, those without a tensor that is read included; until the graph goes."""
    service = new_service()
    contents = contents_of("external-two-files")
    digests = [digest_of(data) for data in contents.values()]
    graph = send_set(service, "model.onnx", contents).json()["id"]
    collect(service)
    assert all(is_here(service, one) for one in digests)
    assert service.get(f"/v1/graphs/{graph}/archive").body == contents["model.onnx"]
    service.request("DELETE", f"/v1/graphs/{graph}")
    collect(service)
    assert not any(is_here(service, one) for one in digests)
    is_problem(send(service, contents["model.onnx"]), 422, "missing-files")
    collect(service)
    assert not files(service, "uploads") and not is_here(service, digests[0])


def test_at_once(new_service):
    service = new_service()
    data = model("keras-cnn-11")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = [answer.json()["id"] for answer in pool.map(lambda _: send(service, data), range(16))]
    assert len(set(made)) == 1
    is_problem(service.request("POST", f"/v1/graphs?archive={digest_of(data)}&weights={digest_of(b'no')}"), 409, "blob-missing")


def test_repeated(shared):
    contents = contents_of("external-two-files")
    body = json.dumps({"model": "model.onnx", "files": {one: stored(shared, data) for one, data in contents.items()}})
    headers = {"Content-Type": SET, "Idempotency-Key": "onnx-set-1"}
    first = shared.request("POST", "/v1/graphs", body=body, headers=headers)
    again = shared.request("POST", "/v1/graphs", body=body, headers=headers)
    assert again.body == first.body and again.headers["idempotency-replayed"] == "true"
    is_problem(shared.request("POST", "/v1/graphs", body=body + " ", headers=headers), 422, "idempotency-key-reused")
    headers["Idempotency-Key"] = "onnx-set-2"
    runs = [shared.request("POST", "/v1/optimize?pass=inference", body=body, headers=headers).json() for _ in range(2)]
    assert runs[0] == runs[1] and runs[1]["dialect"] == "onnx" and runs[1]["archive"]


def test_limits(new_service):
    """Memory is the messages', not the weights'; nodes are counted before they are read."""
    narrow = new_service("--max-body", "1M", "--max-nodes", "10")
    large = bytes.fromhex("4a") + b"\x80\x80\x80\x01" + bytes(2 << 20)  # raw_data of 2 MiB
    tensor = b"\x08\x80\x80\x80\x01\x10\x02" + large + b"\x42\x01w"
    assert len(large) - 5 == 1 << 21
    graph = b"\x2a" + varint(len(tensor)) + tensor + b"\x62\x03\x0a\x01w"
    data = b"\x08\x08\x3a" + varint(len(graph)) + graph + b"\x42\x02\x10\x11"
    made = send(narrow, data)
    assert made.status == 201, made.body
    is_problem(send(narrow, data, kind="application/octet-stream"), 413, "body-too-large")
    many = b"\x0a\x00" * 100_000  # empty nodes
    problem = is_problem(send(narrow, b"\x08\x08\x3a" + varint(len(many)) + many), 413)
    assert problem["code"] in ("body-too-large", "too-many-nodes")
    eleven = b"\x0a\x00" * 11
    refused = send(narrow, b"\x08\x08\x3a" + varint(len(eleven)) + eleven)
    assert "--max-nodes" in is_problem(refused, 413, "too-many-nodes")["detail"]


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def test_code_calls_operators_by_their_targets(shared):
    graph = send(shared, model("half-mlp")).json()["id"]
    assert "= onnx.Gemm.v13(x, " in shared.get(f"/v1/graphs/{graph}/code").body.decode()


def test_code_has_nested_graphs_and_functions(shared):
    """Below their paths, behind what the model itself computes: so a diff sees them."""
    for name, path, inner in (("if-and-loop", "body", "onnx."), ("functions", "onnx.function.own.nn.Act", "onnx.LeakyRelu")):
        graph = send(shared, model(name)).json()["id"]
        text = shared.get(f"/v1/graphs/{graph}/code").body.decode()
        whole, _, nested = text.partition(f"# '{path}'")
        assert "def forward(self, x" in whole and "def forward(self" in nested and inner in nested, text
