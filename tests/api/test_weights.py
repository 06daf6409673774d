"""Weights in, weights out: bound, optimised, reversed, and read in part. Every fixture that has weights."""

import hashlib
import json
import random
import urllib.parse

import documents
import pytest
import weights_files as files

FIXTURES = [name for name in documents.NAMES if (documents.FIXTURES / name / "weights.safetensors").exists()]
PASSES = [
    "MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse", "FuseBatchNorm2dInConv2d", "FuseBatchNorm1dInLinear",
    "DeepCopy",
]
COMPOSED = ["FuseBatchNorm2dInConv2d", "FuseBatchNorm1dInLinear", "MergeLinears", "FuseBiasInLinear"]
BYTES = "application/octet-stream"


def digest_of(part):
    return "sha256:" + hashlib.sha256(part).hexdigest()


def upload(service, part):
    digest = digest_of(part)
    assert service.request("PUT", f"/v1/blobs/{digest}", part, {"Content-Type": BYTES}).status in (200, 201)
    return digest


def weights_of(name):
    return (documents.FIXTURES / name / "weights.safetensors").read_bytes()


def bind(service, document, *parts, strict=False):
    """Uploads the files and stores the document bound to them."""
    query = [("weights", upload(service, part)) for part in parts] + ([("strict", "true")] if strict else [])
    answer = service.post("/v1/graphs", document, raw_query=query)
    assert answer.status in (200, 201), answer
    return answer.json()


def download(service, graph, **query):
    answer = service.get(f"/v1/graphs/{graph}/weights", raw_query=query)
    assert answer.status == 200, answer
    assert int(answer.headers["content-length"]) == len(answer.body)
    return answer.body


def document_of(service, graph):
    return service.get(f"/v1/graphs/{graph}").json()


def optimize(service, graph, *passes, **more):
    answer = service.post("/v1/optimize", {"graph": graph, "passes": list(passes), **more})
    assert answer.status == 201, answer
    return answer.json()


def undo(service, run, **more):
    """Reversed where that can be, else rolled back."""
    what = "reverse" if run["reversible"] else "rollback"
    answer = service.post(f"/v1/runs/{run['id']}/{what}", more or None)
    assert answer.status == 201, answer
    return answer.json()


def owners(graph):
    """{tensor: the paths that own it}"""
    found = {}
    for module in graph["modules"]:
        for attribute, tensor in [*module["parameters"].items(), *module["buffers"].items()]:
            if tensor is not None:
                found.setdefault(tensor, []).append(f"{module['path']}.{attribute}".lstrip("."))
    return found


def tensor_path(graph, name):
    return f"/v1/graphs/{graph}/tensors/{urllib.parse.quote(name, safe='')}"


# ---- what goes in comes out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXTURES)
def test_same_file(shared, name):
    file = weights_of(name)
    answer = bind(shared, documents.document(name), file, strict=True)
    assert answer["weights"] == {"bound": answer["tensors"], "missing": [], "extra": []}
    assert [answer["structure"], answer["id"] == documents.ids(name)[0]] == [documents.ids(name)[1], False]
    digest = digest_of(file)
    assert all(one["blob"] == digest for one in document_of(shared, answer["id"])["tensors"])
    assert download(shared, answer["id"]) == file
    assert bind(shared, documents.document(name), file)["id"] == answer["id"]


@pytest.mark.parametrize("name", FIXTURES)
def test_single_tensors(shared, name):
    file = weights_of(name)
    graph = bind(shared, documents.document(name), file)["id"]
    inside, described, token = files.tensors_of(file), {}, None
    while token is not None or not described:
        page = shared.get(f"/v1/graphs/{graph}/tensors",
                          raw_query={"limit": 7, **({"page_token": token} if token else {})}).json()
        assert 1 <= len(page["items"]) <= 7
        described |= {one["name"]: one for one in page["items"]}
        token = page.get("next_page_token")
    of = owners(document_of(shared, graph))
    assert list(described) == [one["name"] for one in document_of(shared, graph)["tensors"]]
    for tensor, (dtype, shape, part) in inside.items():
        one = described[tensor]
        assert (one["dtype"], one["shape"], one["size"], one["where"]) == (dtype, shape, len(part), "blob")
        assert one["owners"] == of[tensor] and one["blob"] == digest_of(file)
        assert file[one["offset"] : one["offset"] + one["size"]] == part
    for tensor in random.Random(name).sample(sorted(inside), 5):
        dtype, shape, part = inside[tensor]
        assert shared.get(tensor_path(graph, tensor), headers={"Accept": "application/json"}).json() == described[tensor]
        assert shared.get(tensor_path(graph, tensor), raw_query="describe").json() == described[tensor]
        answer = shared.get(tensor_path(graph, tensor))
        assert answer.body == part and answer.headers["content-type"] == BYTES
        assert answer.headers["foldback-dtype"] == dtype
        assert answer.headers.get("foldback-shape", "") == ",".join(map(str, shape))


# ---- recipes -----------------------------------------------------------------------------------------------------------------


def check_weights(service, graph, blobs):
    """The file and the tensors of a graph against our own evaluation of its recipes."""
    document = document_of(service, graph)
    expected = files.Weights(document, blobs)
    inside = files.tensors_of(download(service, graph))
    assert sorted(inside) == sorted(paths[0] for paths in owners(document).values())
    for tensor, paths in owners(document).items():
        dtype, shape, part = inside[paths[0]]
        row = expected.rows[tensor]
        assert (dtype, shape) == (row["dtype"], row["shape"])
        if expected.is_computed(tensor):
            assert files.near(part, expected.part(tensor)), tensor
        else:
            assert part == expected.part(tensor), tensor
    return document, inside


@pytest.mark.heavy
@pytest.mark.sampled
@pytest.mark.parametrize("passes", [[one] for one in PASSES] + [COMPOSED], ids="-".join)
@pytest.mark.parametrize("name", FIXTURES)
def test_optimised_and_back(shared, name, passes):
    file = weights_of(name)
    source = bind(shared, documents.document(name), file)["id"]
    run = optimize(shared, source, *passes)
    document, inside = check_weights(shared, run["result"], {digest_of(file): file})
    made = [one for one in document["tensors"] if "recipe" in one and one["name"] in owners(document)]
    for one in made[:3]:
        path = owners(document)[one["name"]][0]
        answer = shared.get(tensor_path(run["result"], path))
        assert answer.body == inside[path][2]
        described = shared.get(tensor_path(run["result"], one["name"]), raw_query="describe").json()
        assert (described["where"], described["recipe"]) == ("recipe", one["recipe"])
    back = undo(shared, run)
    assert back["result"] == source
    assert download(shared, back["result"]) == file


def test_seed_passes_make_tensors(shared):
    """So that the test above tests something."""
    counts = {}
    for name, one in (("bert-tiny", "MergeLinears"), ("bert-tiny", "FuseBiasInLinear"),
                      ("resnet-tiny", "FuseBatchNorm2dInConv2d"),
                      ("toy", "FuseBatchNorm1dInLinear")):
        run = optimize(shared, json.loads(documents.document(name)), one, options={"include": ["graph"]})
        counts[one] = sum("recipe" in tensor for tensor in run["graph"]["tensors"])
    assert all(counts.values()), counts


# ---- a part of it ------------------------------------------------------------------------------------------------------------


def test_names(shared):
    file = weights_of("gpt2-tiny")
    inside = files.tensors_of(file)
    graph = bind(shared, documents.document("gpt2-tiny"), file)["id"]
    some = random.Random(1).sample(sorted(inside), 4)
    answer = shared.get(f"/v1/graphs/{graph}/weights", raw_query=[("names", one) for one in some + some[:2]])
    assert answer.body == files.file_of({one: inside[one] for one in some})
    again = shared.get(f"/v1/graphs/{graph}/weights", raw_query=[("names", one) for one in some[::-1]])
    assert again.headers["etag"] == answer.headers["etag"] and again.body == answer.body
    head = "lm_head.weight"  # is tied to another
    assert head not in inside
    assert files.tensors_of(download(shared, graph, names=head)) == {head: inside["transformer.wte.weight"]}
    whole = download(shared, graph, tied="each")
    assert files.tensors_of(whole) == {**inside, head: inside["transformer.wte.weight"]}
    assert download(shared, graph, tied="first") == file


def test_unknown_names(shared):
    graph = bind(shared, documents.document("toy"), weights_of("toy"))["id"]
    answer = shared.get(f"/v1/graphs/{graph}/weights", raw_query=[("names", one) for one in ("x", "q.weight", "c2")])
    problem = answer.json()
    assert (answer.status, problem["code"], problem["names"]) == (422, "unknown-tensor", ["c2", "x"])
    for name in ("x", "c2", "q.weight.", "..."):
        answer = shared.get(tensor_path(graph, name))
        assert (answer.status, answer.json()["code"]) == (404, "unknown-tensor")
    for path in ("weights", "tensors", "tensors/q.weight"):
        answer = shared.get(f"/v1/graphs/sha256:{'0' * 64}/{path}")
        assert (answer.status, answer.json()["code"]) == (404, "unknown-graph")
    assert shared.get(f"/v1/graphs/{graph}/weights", raw_query={"tied": "all"}).json()["parameter"] == "tied"
    assert shared.get(f"/v1/graphs/{graph}/tensors", raw_query={"page_token": "1-2"}).json()["code"] == "bad-page-token"


def test_strange_names(shared):
    """Percent-encoded in a path; and a file of them is what the reference implementation would write."""
    names = ["a b", 'ä+%25&?#"', "weight@365bfe60", "日本.w", "x" * 200]
    values = {name: files.floats([i, -i]) for i, name in enumerate(names)}
    graph = one_linear(names)
    file = files.file_of({name: ("float32", [2], part) for name, part in values.items()})
    stored = bind(shared, graph, file, strict=True)["id"]
    for name in names:
        assert shared.get(tensor_path(stored, name)).body == values[name]
        assert shared.get(tensor_path(stored, name), raw_query="describe").json()["name"] == name
    assert download(shared, stored, names=names) == file  # under the names that were asked for
    assert sorted(files.tensors_of(download(shared, stored))) == [f"p{i}" for i in range(len(names))]


def one_linear(names):
    """A graph whose root owns tensors of these names."""
    return {
        "format": "foldback.graph/1",
        "nodes": [
            documents.node("x", "placeholder", "x"),
            documents.node("output", "output", "output", [documents.ref("x")]),
        ],
        "modules": [
            {"path": "", "type": "torch.nn.Module", "parameters": {f"p{i}": name for i, name in enumerate(names)}},
        ],
        "tensors": [{"name": name, "dtype": "float32", "shape": [2]} for name in names],
    }


def test_sizes_and_dtypes(shared):
    """Nothing, scalars, and every dtype that the format has; NaN payloads, infinities and -0.0 as they came."""
    kinds = {dtype: random.Random(dtype).randbytes(files.SIZE[dtype] * 6) for dtype in files.SIZE if dtype != "bool"}
    tensors = {dtype: (dtype, [2, 3], part) for dtype, part in kinds.items()}
    tensors |= {"bool": ("bool", [3], bytes([0, 1, 1])), "empty": ("float32", [0, 4], b""),
                "scalar": ("float32", [], b"\0\0\xc0\x7f")}
    graph = one_linear([])
    graph["modules"][0]["buffers"] = {name: name for name in tensors}
    graph["tensors"] = [{"name": name, "dtype": dtype, "shape": shape} for name, (dtype, shape, _) in tensors.items()]
    file = files.file_of(tensors, {"format": "pt", "b": "ä", "a": ""})
    stored = bind(shared, graph, file, strict=True)["id"]
    assert download(shared, stored) == file
    for name, (dtype, shape, part) in tensors.items():
        answer = shared.get(tensor_path(stored, name))
        assert (answer.body, answer.headers["foldback-dtype"]) == (part, dtype)
        assert ("foldback-shape" in answer.headers) == bool(shape)


def test_heads_and_tags(shared):
    file = weights_of("toy")
    graph = bind(shared, documents.document("toy"), file)["id"]
    for path, size in ((f"/v1/graphs/{graph}/weights", len(file)), (tensor_path(graph, "q.weight"), None)):
        whole = shared.get(path)
        head = shared.request("HEAD", path)
        assert head.status == 200 and head.body == b""
        for header in ("content-length", "etag", "accept-ranges", "content-type", "content-disposition", "foldback-shape"):
            assert head.headers.get(header) == whole.headers.get(header)
        assert int(head.headers["content-length"]) == (size or len(whole.body))
        assert whole.headers["accept-ranges"] == "bytes" and not whole.headers["etag"].startswith("W/")
        same = shared.get(path, headers={"If-None-Match": whole.headers["etag"]})
        assert (same.status, same.body) == (304, b"")
        packed = shared.get(path, headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in packed.headers and packed.headers["etag"] == whole.headers["etag"]
    tags = {shared.request("HEAD", f"/v1/graphs/{graph}/weights", raw_query=query).headers["etag"] for query in
            ("", "tied=each", "names=q.weight", "names=q.bias", "names=q.weight&names=q.bias", "names=q.weight&tied=each")}
    assert len(tags) == 6
    assert shared.get(f"/v1/graphs/{graph}/weights").headers["content-disposition"].endswith('.safetensors"')


@pytest.mark.parametrize("name, passes", [("bert-tiny", COMPOSED), ("resnet-tiny", COMPOSED), ("toy", [])])
def test_ranges(shared, name, passes):
    """The parts are those of the whole, wherever it is cut."""
    source = bind(shared, documents.document(name), weights_of(name))["id"]
    graph = optimize(shared, source, *passes)["result"] if passes else source
    whole = download(shared, graph)
    rng, path = random.Random(name), f"/v1/graphs/{graph}/weights"
    tag = shared.request("HEAD", path).headers["etag"]
    cuts = sorted({0, len(whole), 1, 7, 8, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(12))})
    for begin, end in zip(cuts, cuts[1:]):
        part = shared.get(path, headers={"Range": f"bytes={begin}-{end - 1}", "If-Range": tag})
        assert part.status == 206 and part.body == whole[begin:end]
        assert part.headers["content-range"] == f"bytes {begin}-{end - 1}/{len(whole)}"
    for begin, end in (sorted(rng.sample(range(len(whole)), 2)) for _ in range(12)):
        assert shared.get(path, headers={"Range": f"bytes={begin}-{end}"}).body == whole[begin : end + 1]
    assert shared.get(path, headers={"Range": "bytes=-9"}).body == whole[-9:]
    assert shared.get(path, headers={"Range": f"bytes={len(whole) - 5}-"}).body == whole[-5:]
    assert shared.get(path, headers={"Range": "bytes=0-3", "If-Range": '"other"'}).body == whole
    beyond = shared.get(path, headers={"Range": f"bytes={len(whole)}-"})
    assert beyond.status == 416 and beyond.headers["content-range"] == f"bytes */{len(whole)}"


# ---- what is not here --------------------------------------------------------------------------------------------------------


def test_bytes_missing(shared):
    """All that is missing is said before the first byte, and what is there can be had."""
    graph = json.loads(documents.document("toy"))
    file = weights_of("toy")
    inside = files.tensors_of(file)
    absent = "sha256:" + "1" * 64
    rows = {one["name"]: one for one in bound_document(shared, graph, file)["tensors"]}
    rows["q.weight"] |= {"blob": absent, "offset": 0}
    for member in ("blob", "offset"):
        del rows["k.weight"][member]
    graph["tensors"] = list(rows.values())
    stored = shared.post("/v1/graphs", graph).json()["id"]
    for answer in (shared.get(f"/v1/graphs/{stored}/weights"), shared.post(f"/v1/graphs/{stored}/materialize")):
        problem = answer.json()
        assert (answer.status, problem["code"]) == (409, "bytes-missing")
        assert sorted(problem["tensors"], key=lambda one: one["name"]) == [
            {"name": "k.weight", "code": "bytes-unknown"},
            {"name": "q.weight", "code": "blob-missing", "blob": absent},
        ]
    assert shared.request("HEAD", f"/v1/graphs/{stored}/weights").status == 409
    for name, code in (("q.weight", "blob-missing"), ("k.weight", "bytes-unknown")):
        answer = shared.get(tensor_path(stored, name))
        assert (answer.status, answer.json()["code"]) == (409, "bytes-missing")
        assert [(one["name"], one["code"]) for one in answer.json()["tensors"]] == [(name, code)]
        assert shared.get(tensor_path(stored, name), raw_query="describe").status == 200
    assert files.tensors_of(download(shared, stored, names="q.bias")) == {"q.bias": inside["q.bias"]}
    run = optimize(shared, stored, "MergeLinears", "FuseBatchNorm1dInLinear", options={"include": ["graph"]})
    answer = shared.get(f"/v1/graphs/{run['result']}/weights")
    assert {one["name"] for one in answer.json()["tensors"]} >= {"q.weight", "k.weight"} or not run["passes"][0]["applied"]
    assert undo_all(shared, run) == stored


def bound_document(service, graph, file):
    return document_of(service, bind(service, graph, file)["id"])


def undo_all(service, run):
    answer = service.post(f"/v1/runs/{run['id']}/rollback")
    assert answer.status == 201, answer
    return answer.json()["result"]


def test_blob_too_small(shared):
    """A document may say anything of a blob."""
    small = upload(shared, b"12345678")
    graph = one_linear(["w"])
    graph["tensors"][0] |= {"blob": small, "offset": 1}
    stored = shared.post("/v1/graphs", graph).json()["id"]
    for answer in (shared.get(f"/v1/graphs/{stored}/weights"), shared.get(tensor_path(stored, "w"))):
        assert (answer.status, answer.json()["code"]) == (409, "bytes-missing")
        assert answer.json()["tensors"] == [{"name": "w", "code": "blob-too-small", "blob": small}]
    graph["tensors"][0]["offset"] = 0
    stored = shared.post("/v1/graphs", graph).json()["id"]
    assert files.tensors_of(download(shared, stored)) == {"p0": ("float32", [2], b"12345678")}


# ---- POST …/materialize ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert-tiny", "resnet-tiny"])
def test_materialize(shared, name):
    source = bind(shared, documents.document(name), weights_of(name))["id"]
    assert shared.post(f"/v1/graphs/{source}/materialize").json()["blob"] == digest_of(weights_of(name))
    graph = optimize(shared, source, *COMPOSED)["result"]
    whole = download(shared, graph)
    first, second = (shared.post(f"/v1/graphs/{graph}/materialize") for _ in range(2))
    assert (first.status, second.status) == (201, 200)
    assert first.json() == second.json() == {"blob": digest_of(whole), "size": len(whole),
                                             "tensors": len(files.tensors_of(whole))}
    assert first.headers["location"] == f"/v1/blobs/{digest_of(whole)}"
    assert shared.get(first.headers["location"]).body == whole
    some = sorted(files.tensors_of(whole))[:2]
    part = shared.post(f"/v1/graphs/{graph}/materialize", {"names": some, "tied": "each"}).json()
    assert part["tensors"] == 2
    assert shared.get(f"/v1/blobs/{part['blob']}").body == download(shared, graph, names=some, tied="each")


def test_materialize_refuses(shared):
    graph = bind(shared, documents.document("toy"), weights_of("toy"))["id"]
    for body, code, pointer in (
        ({"names": "q.weight"}, "wrong-type", "/names"),
        ({"names": ["q.weight", 1]}, "wrong-type", "/names/1"),
        ({"tied": 1}, "wrong-type", "/tied"),
        ({"tied": "every"}, "wrong-type", "/tied"),
        ({"name": []}, "unknown-member", "/name"),
        ({"names": ["no"]}, "unknown-tensor", None),
    ):
        answer = shared.post(f"/v1/graphs/{graph}/materialize", body)
        assert (answer.status, answer.json()["code"], answer.json().get("pointer")) == (422, code, pointer)
    assert shared.post(f"/v1/graphs/sha256:{'0' * 64}/materialize").status == 404


def test_a_deleted_graph(service):
    """Its weights can be had no more; and not from the cache."""
    graph = bind(service, documents.document("toy"), weights_of("toy"))["id"]
    tag = service.request("HEAD", f"/v1/graphs/{graph}/weights").headers["etag"]
    assert service.delete(f"/v1/graphs/{graph}").status == 204
    assert service.get(f"/v1/graphs/{graph}/weights", headers={"If-None-Match": tag}).status == 404


def test_restart(service):
    file = weights_of("bert-tiny")
    graph = bind(service, documents.document("bert-tiny"), file)["id"]
    merged = optimize(service, graph, "MergeLinears")["result"]
    before = service.get(f"/v1/graphs/{merged}/weights")
    service.restart()
    after = service.get(f"/v1/graphs/{merged}/weights")
    assert (after.body, after.headers["etag"]) == (before.body, before.headers["etag"])
    assert download(service, graph) == file
