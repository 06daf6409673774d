"""Graphs get their weights from safetensors files: several of them, too many tensors, too few, wrong ones, broken files."""

import concurrent.futures
import json
import random
import struct
import time

import blobs
import documents
import golden
import jobs
import pytest
import weights_files as files
from test_weights import bind, digest_of, document_of, download, one_linear, upload, weights_of

NOWHERE = "sha256:" + "0" * 64


def post(service, document, *digests, **query):
    return service.post("/v1/graphs", document, raw_query=[*(("weights", one) for one in digests), *query.items()])


def shards(name, count):
    """The fixture's weights cut into files, and their index."""
    tensors = files.tensors_of(weights_of(name))
    cut = [{} for _ in range(count)]
    for i, (tensor, one) in enumerate(tensors.items()):
        cut[i % count][tensor] = one
    names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    size = sum(len(part) for _, _, part in tensors.values())
    where = {tensor: names[i] for i, one in enumerate(cut) for tensor in one}
    index = json.dumps({"metadata": {"total_size": size}, "weight_map": where}).encode()
    return [files.file_of(one, {"format": "pt"}) for one in cut], index


# ---- several files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count, position", [(1, None), (3, None), (3, 0), (3, 2), (3, 3)])
def test_shards(shared, count, position):
    """With and without model.safetensors.index.json, wherever it stands."""
    parts, index = shards("bert-tiny", count)
    if position is not None:
        parts.insert(position, index)
    answer = bind(shared, documents.document("bert-tiny"), *parts, strict=True)
    assert answer["weights"] == {"bound": 40, "missing": [], "extra": []}
    file = weights_of("bert-tiny")
    whole = download(shared, answer["id"])
    assert files.tensors_of(whole) == files.tensors_of(file)
    assert whole == files.file_of(files.tensors_of(file), {"format": "pt"})


def test_a_shard_is_missing(shared):
    parts, index = shards("bert-tiny", 3)
    here = [upload(shared, part) for part in (index, *parts[:2])]
    answer = post(shared, documents.document("bert-tiny"), *here)
    problem = answer.json()
    assert (answer.status, problem["code"]) == (422, "weights-mismatch")
    assert any("model-00003-of-00003.safetensors" in json.dumps(one) for one in problem["mismatching"])
    without_index = bind(shared, documents.document("bert-tiny"), *parts[:2])
    assert set(without_index["weights"]["missing"]) == set(files.tensors_of(parts[2]))


def test_a_blob_is_not_here(shared):
    """Every one that is not here is named, and nothing is stored."""
    here = upload(shared, weights_of("toy"))
    other = "sha256:" + "f" * 64
    before = shared.get("/v1/graphs", raw_query={"limit": 1}).json()
    answer = post(shared, documents.document("toy"), NOWHERE, here, other)
    assert (answer.status, answer.json()["code"], answer.json()["blobs"]) == (409, "blob-missing", [NOWHERE, other])
    answer = shared.post("/v1/optimize", documents.document("toy"), raw_query={"weights": NOWHERE, "pass": "MergeLinears"})
    assert (answer.status, answer.json()["code"], answer.json()["blobs"]) == (409, "blob-missing", [NOWHERE])
    assert shared.get("/v1/graphs", raw_query={"limit": 1}).json() == before


@pytest.mark.long
def test_a_blob_goes_meanwhile(new_service):
    """Between the binding and the end of a long run: what is stored never refers to a file that has gone in between."""
    service = new_service()
    before = service.get("/v1/graphs").json()
    request = jobs.slow_request(jobs.A_WHILE)
    request["graph"]["modules"][0]["parameters"] = {"p": "weight"}
    request["graph"]["tensors"] = [{"name": "weight", "dtype": "float32", "shape": [2]}]
    digest = upload(service, files.file_of({"p": ("float32", [2], bytes(8))}))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answering = pool.submit(service.post, "/v1/optimize", request | {"weights": [digest]}, timeout=600)
        time.sleep(0.5)
        assert blobs.collect(service)["blobs"] == 1
        answer = answering.result()
    assert (answer.status, answer.json()["code"], answer.json()["blobs"]) == (409, "blob-missing", [digest]), answer
    assert service.get("/v1/graphs").json() == before


# ---- what does not fit -------------------------------------------------------------------------------------------------------


def test_missing_and_extra(shared):
    tensors = files.tensors_of(weights_of("toy"))
    gone = ["c2.weight", "q.bias"]
    tensors = {name: one for name, one in tensors.items() if name not in gone}
    tensors["stray"] = ("int8", [2], b"ab")
    file = files.file_of(tensors)
    answer = bind(shared, documents.document("toy"), file)
    assert answer["weights"] == {"bound": len(tensors) - 1, "missing": gone, "extra": ["stray"]}
    rows = {one["name"]: one for one in document_of(shared, answer["id"])["tensors"]}
    assert [name for name, one in rows.items() if "blob" not in one] == [name for name in rows if name in gone]
    refused = post(shared, documents.document("toy"), digest_of(file), strict="true")
    problem = refused.json()
    assert (refused.status, problem["code"]) == (422, "weights-mismatch")
    assert (problem["missing"], problem["extra"], problem["mismatching"]) == (gone, ["stray"], [])


@pytest.mark.parametrize("change", [("float16", [4], b"12345678"), ("float32", [2, 1], b"12345678"),
                                    ("int32", [2], b"12345678")])
def test_mismatching(shared, change):
    graph = one_linear(["a", "b"])
    good = ("float32", [2], b"12345678")
    refused = post(shared, graph, upload(shared, files.file_of({"a": good, "b": change})))
    problem = refused.json()
    assert (refused.status, problem["code"]) == (422, "weights-mismatch")
    assert [one["name"] for one in problem["mismatching"]] == ["b"]
    one = problem["mismatching"][0]
    assert one["graph"] == {"dtype": "float32", "shape": [2]}
    assert one["file"]["shape"] == change[1]
    assert bind(shared, graph, files.file_of({"a": good, "b": good}))["weights"]["bound"] == 2


def test_names_of_owners(shared):
    """A file has the owners' paths, whatever the tensors are called in the graph."""
    graph = one_linear(["a@01234567", "b"])
    good = {"p0": ("float32", [2], b"12345678"), "b": ("float32", [2], b"abcdefgh")}
    stored = bind(shared, graph, files.file_of(good), strict=True)
    assert files.tensors_of(download(shared, stored["id"])) == {"p0": good["p0"], "p1": good["b"]}


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 3) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{}" + b"more",
        files.file_of({"a": ("float32", [2], b"12345678")})[:-1],
        files.file_of({"a": ("float32", [2], b"12345678")}).replace(b"[0,8]", b"[1,8]"),
        files.file_of({"a": ("float32", [2], b"12345678")}).replace(b"F32", b"F33"),
        files.file_of({"a": ("float32", [2], b"12345678")}).replace(b"[2]", b"[3]"),
        b'{"weight_map": []}',
    ],
)
@pytest.mark.parametrize("position", [0, 1])
def test_broken_files(shared, file, position):
    parts = [weights_of("toy")]
    parts.insert(position, file)
    digests = [upload(shared, part) for part in parts]
    answer = post(shared, documents.document("toy"), *digests)
    assert (answer.status, answer.json()["code"], answer.json()["parameter"]) == (422, "bad-safetensors", "weights")
    body = {"graph": json.loads(documents.document("toy")), "weights": digests, "passes": ["MergeLinears"]}
    answer = shared.post("/v1/optimize", body)
    assert (answer.status, answer.json()["code"]) == (422, "bad-safetensors")
    assert answer.json()["pointer"].startswith(f"/weights/{position}")


def test_bad_digests(shared):
    graph = json.loads(documents.document("toy"))
    for wrong in ("x", "sha256:" + "A" * 64, "sha256:" + "0" * 63, ""):
        answer = post(shared, graph, wrong)
        assert (answer.status, answer.json()["code"], answer.json()["parameter"]) == (422, "bad-digest", "weights")
        answer = shared.post("/v1/optimize", {"graph": graph, "weights": [NOWHERE, wrong], "passes": ["MergeLinears"]})
        assert (answer.status, answer.json()["code"], answer.json()["pointer"]) == (422, "bad-digest", "/weights/1")
    for wrong, pointer in ((NOWHERE, "/weights"), ([1], "/weights/0"), ({}, "/weights")):
        answer = shared.post("/v1/optimize", {"graph": graph, "weights": wrong, "passes": ["MergeLinears"]})
        assert (answer.status, answer.json()["code"], answer.json()["pointer"]) == (422, "wrong-type", pointer)
    assert post(shared, graph, strict="perhaps").json()["parameter"] == "strict"
    for path in ("reverse", "runs"):
        assert shared.post(f"/v1/{path}", graph, raw_query={"weights": NOWHERE}).json()["code"] == "unknown-parameter"
        assert shared.post(f"/v1/{path}", {"weights": [NOWHERE]}).json()["code"] == "unknown-member"


# ---- POST /v1/optimize -------------------------------------------------------------------------------------------------------


def ways_to_optimize(service, name, digests, strict=False):
    """The same said in the query of a bare document, in a body, and with the id of a stored graph."""
    graph = json.loads(documents.document(name))
    stored = service.post("/v1/graphs", graph).json()["id"]
    query = [("pass", "MergeLinears"), *(("weights", one) for one in digests), *([("strict", "")] if strict else [])]
    options = {"options": {"strict": True}} if strict else {}
    yield service.post("/v1/optimize", graph, raw_query=query)
    for one in (graph, stored):
        yield service.post("/v1/optimize", {"graph": one, "weights": digests, "passes": ["MergeLinears"], **options})
    yield service.post("/v1/optimize", {"graph": stored, "passes": ["MergeLinears"]}, raw_query=query[1:])


def test_optimize(shared):
    parts, index = shards("bert-tiny", 2)
    digests = [upload(shared, part) for part in (*parts, index)]
    source = bind(shared, documents.document("bert-tiny"), *parts)["id"]
    for answer in ways_to_optimize(shared, "bert-tiny", digests, strict=True):
        run = answer.json()
        assert (answer.status, run["source"]) == (201, source), answer
        assert run["weights"] == {"bound": 40, "missing": [], "extra": []}
        assert run["result"] != source
        back = shared.post(f"/v1/runs/{run['id']}/reverse").json()
        assert back["result"] == source and "weights" not in back
        assert "weights" not in shared.get(f"/v1/runs/{run['id']}").json()
    whole = files.tensors_of(download(shared, run["result"]))
    assert len(whole) < 40


def test_optimize_refuses(shared):
    tensors = files.tensors_of(weights_of("bert-tiny"))
    first = next(iter(tensors))
    part = upload(shared, files.file_of({name: one for name, one in tensors.items() if name != first}))
    for answer in ways_to_optimize(shared, "bert-tiny", [part], strict=True):
        assert (answer.status, answer.json()["code"], answer.json()["missing"]) == (422, "weights-mismatch", [first])
    for answer in ways_to_optimize(shared, "bert-tiny", [part]):
        assert answer.status == 201 and answer.json()["weights"]["missing"] == [first]
    both = {"graph": json.loads(documents.document("toy")), "weights": [part], "passes": ["MergeLinears"]}
    assert shared.post("/v1/optimize", both, raw_query={"weights": part}).json()["code"] == "given-twice"


def test_dry_run(shared):
    file = files.file_of(files.tensors_of(weights_of("aten-toy")), {"only": "here"})
    graph = json.loads(documents.document("aten-toy"))
    body = {"graph": graph, "weights": [upload(shared, file)], "passes": ["MergeLinears"], "options": {"dry_run": True}}
    run = shared.post("/v1/optimize", body).json()
    assert run["id"] is None and run["weights"]["missing"] == []
    assert shared.get(f"/v1/graphs/{run['source']}/weights").status == 404


def test_answered_again(shared):
    """With its Idempotency-Key, the lists included."""
    tensors = files.tensors_of(weights_of("toy"))
    tensors["a graph with code and edits"] = tensors.pop("q.bias")
    digest = upload(shared, files.file_of(tensors))
    graph = json.loads(documents.document("toy"))
    for path, body, query in (
        ("/v1/graphs", graph, {"weights": digest}),
        ("/v1/optimize", {"graph": graph, "weights": [digest], "passes": ["MergeLinears"]}, None),
        ("/v1/optimize", graph, {"weights": digest, "pass": "MergeLinears", "include": "code"}),
    ):
        key = {"Idempotency-Key": f"key-{random.random()}"}
        first, second = (shared.post(path, body, raw_query=query, headers=key) for _ in range(2))
        assert first.status == 201 and second.headers["idempotency-replayed"] == "true"
        assert first.json() == second.json()
        assert first.json()["weights"]["extra"] == ["a graph with code and edits"]


def test_bound_twice(shared):
    """Other weights for the same graph: another graph of the same structure; and back."""
    file = weights_of("toy")
    tensors = files.tensors_of(file)
    other = files.file_of(tensors | {"q.bias": ("float32", tensors["q.bias"][1], bytes(len(tensors["q.bias"][2])))})
    first = bind(shared, documents.document("toy"), file)
    second = bind(shared, document_of(shared, first["id"]), other)
    assert first["id"] != second["id"] and first["structure"] == second["structure"]
    assert download(shared, second["id"]) == other
    assert bind(shared, document_of(shared, second["id"]), file)["id"] == first["id"]


def test_inline_data(shared):
    """It gives way to the file."""
    graph = one_linear(["a", "b"])
    graph["tensors"][0]["data"] = "AAAAAAAAAAA="
    bare = shared.post("/v1/graphs", graph).json()["id"]
    assert files.tensors_of(download(shared, bare, names="a")) == {"a": ("float32", [2], bytes(8))}
    file = files.file_of({"a": ("float32", [2], b"12345678"), "b": ("float32", [2], b"abcdefgh")})
    stored = bind(shared, graph, file)
    assert [set(one) for one in document_of(shared,
                                            stored["id"])["tensors"]] == [{"name", "dtype", "shape", "blob", "offset"}] * 2
    assert [part for _, _, part in files.tensors_of(download(shared, stored["id"])).values()] == [b"12345678", b"abcdefgh"]


def test_digests(shared):
    """A document without bytes that says which ones it means is bound to these, and to no others."""
    graph = one_linear(["a"])
    graph["tensors"][0]["digest"] = digest_of(b"12345678")
    file = files.file_of({"a": ("float32", [2], b"12345678")})
    row = document_of(shared, bind(shared, graph, file)["id"])["tensors"][0]
    assert (row["blob"], row["digest"]) == (digest_of(file), digest_of(b"12345678"))
    refused = post(shared, graph, upload(shared, files.file_of({"a": ("float32", [2], b"abcdefgh")})))
    assert (refused.status, refused.json()["code"]) == (422, "weights-mismatch")
    assert [one["name"] for one in refused.json()["mismatching"]] == ["a"]


# ---- whose weights they are --------------------------------------------------------------------------------------------------


def scaled(prefix=""):
    """x * 0.5 before a Linear, whose weight takes the factor; and a buffer that no checkpoint has."""
    meta = {"shape": [2, 2], "dtype": "float32"}
    path = f"{prefix}fc"

    def node(name, op, target, *args):
        return {"name": name, "op": op, "target": target, "args": list(args), "meta": meta}

    x, half, y = {"$node": "x"}, {"$node": "half"}, {"$node": "y"}
    return {
        "format": "foldback.graph/1",
        "nodes": [
            node("x", "placeholder", "x"),
            node("half", "call_function", "operator.mul", x, 0.5),
            node("y", "call_module", path, half),
            node("output", "output", "output", y),
        ],
        "modules": [
            {"path": "", "type": "torch.nn.Module", "buffers": {"ids": "ids"}, "non_persistent": ["ids"]},
            {
                "path": path,
                "type": "torch.nn.Linear",
                "config": {"in_features": 2, "out_features": 2},
                "parameters": {"weight": f"{path}.weight", "bias": f"{path}.bias"},
            },
        ],
        "tensors": [
            {"name": "ids", "dtype": "float32", "shape": [2], "data": "AACAPwAAgD8="},
            {"name": f"{path}.weight", "dtype": "float32", "shape": [2, 2]},
            {"name": f"{path}.bias", "dtype": "float32", "shape": [2]},
        ],
    }


SOURCE = files.file_of({"fc.weight": ("float32", [2, 2], files.floats([1, 2, 3, 4])),
                        "fc.bias": ("float32", [2], files.floats([5, 6]))})


def weight_of(service, graph):
    return files.numbers(files.tensors_of(download(service, graph, names="fc.weight"))["fc.weight"][2])


def strip_metadata(file):
    return files.file_of(files.tensors_of(file))


def test_both_readings_fit(shared):
    """Names, dtypes and shapes of the source's file and of the optimised model's are the same: nothing is guessed."""
    run = optimize_scaled(shared)
    bare = document_of(shared,
                       shared.post("/v1/optimize", {"graph": scaled(), "passes": ["FoldScaleIntoLinear"]}).json()["result"])
    for strict in ({}, {"strict": "true"}):
        refused = post(shared, bare, upload(shared, SOURCE), **strict)
        assert (refused.status, refused.json()["code"]) == (409, "ambiguous-weights")
        assert "source" in refused.json()["detail"] and "finished" in refused.json()["detail"]
    body = {"graph": bare, "weights": [upload(shared, SOURCE)], "passes": ["MergeLinears"]}
    assert shared.post("/v1/optimize", body).json()["code"] == "ambiguous-weights"
    for how, expected in (("source", [0.5, 1, 1.5, 2]), ("finished", [1, 2, 3, 4])):
        made = post(shared, bare, upload(shared, SOURCE), **{"as": how}).json()
        assert weight_of(shared, made["id"]) == expected
        assert made["weights"] == {"bound": 2, "missing": [], "extra": []}
        made = shared.post("/v1/optimize", body | {"as": how}).json()
        assert weight_of(shared, made["result"]) == expected
    assert weight_of(shared, run["result"]) == [0.5, 1, 1.5, 2]
    for wrong, code in ((1, "wrong-type"), ("both", "unknown-option-value")):
        answer = shared.post("/v1/optimize", body | {"as": wrong})
        assert (answer.status, answer.json()["code"], answer.json()["pointer"]) == (422, code, "/as")
    answer = post(shared, bare, upload(shared, SOURCE), **{"as": "both"})
    assert (answer.status, answer.json()["code"], answer.json()["parameter"]) == (422, "unknown-option-value", "as")


def optimize_scaled(service):
    answer = service.post("/v1/optimize", {"graph": scaled(), "weights": [upload(service, SOURCE)],
                                           "passes": ["FoldScaleIntoLinear"]})
    assert answer.status == 201 and answer.json()["passes"][0]["applied"] == 1, answer
    return answer.json()


def test_a_file_says_whose_it_is(shared):
    """One that passes made something of; and the source's own is byte for byte what came in."""
    run = optimize_scaled(shared)
    assert download(shared, run["source"]) == SOURCE
    finished = download(shared, run["result"])
    header = json.loads(finished[8 : 8 + struct.unpack("<Q", finished[:8])[0]])["__metadata__"]
    structure = next(one for one in shared.get("/v1/graphs").json()["items"] if one["id"] == run["result"])["structure"]
    tensors = json.loads(header.pop("foldback.tensors"))
    assert [one[0] for one in tensors.values()] == ["fc.weight@2c88e0b5"] and list(tensors) == ["fc.weight"]
    assert header == {"foldback.graph": run["result"], "foldback.structure": structure, "foldback.weights": "finished"}
    bare = document_of(shared,
                       shared.post("/v1/optimize", {"graph": scaled(), "passes": ["FoldScaleIntoLinear"]}).json()["result"])
    made = bind(shared, bare, finished, strict=True)
    assert weight_of(shared, made["id"]) == [0.5, 1, 1.5, 2]
    assert files.tensors_of(download(shared, made["id"])) == files.tensors_of(finished)
    assert post(shared, bare, upload(shared, finished), **{"as": "source"}).json()["code"] == "ambiguous-weights"
    refused = post(shared, bare, upload(shared, strip_metadata(finished)))
    assert refused.json()["code"] == "ambiguous-weights"
    # The graph that has its bytes tells either file by them.
    for file in (SOURCE, strip_metadata(finished)):
        made = bind(shared, document_of(shared, run["result"]), file)
        assert weight_of(shared, made["id"]) == [0.5, 1, 1.5, 2]
    materialized = shared.post(f"/v1/graphs/{run['result']}/materialize").json()["blob"]
    assert materialized == digest_of(finished)


# ---- passes over the results of passes ---------------------------------------------------------------------------------------


def chained():
    """A Linear, a BatchNorm and a factor of 2: the fold of each gives fc.weight another tensor."""
    graph = scaled()
    meta = {"shape": [2, 2], "dtype": "float32"}
    x, y, n, z = ({"$node": name} for name in ("x", "y", "n", "z"))
    graph["nodes"] = [
        {"name": "x", "op": "placeholder", "target": "x", "args": [], "meta": meta},
        {"name": "y", "op": "call_module", "target": "fc", "args": [x], "meta": meta},
        {"name": "n", "op": "call_module", "target": "bn", "args": [y], "meta": meta},
        {"name": "z", "op": "call_function", "target": "operator.mul", "args": [n, 2], "meta": meta},
        {"name": "output", "op": "output", "target": "output", "args": [z]},
    ]
    parameters = {key: f"bn.{key}" for key in ("weight", "bias")}
    buffers = {key: f"bn.{key}" for key in ("running_mean", "running_var", "num_batches_tracked")}
    config = {"num_features": 2, "eps": 0.25, "momentum": 0.1, "affine": True, "track_running_stats": True}
    graph["modules"].insert(1, {"path": "bn", "type": "torch.nn.BatchNorm1d", "config": config, "parameters": parameters,
                                "buffers": buffers})
    graph["modules"] = [graph["modules"][0], graph["modules"][2], graph["modules"][1]]
    for row in graph["modules"]:
        row["training"] = False
    for key in ("weight", "bias", "running_mean", "running_var"):
        graph["tensors"].append({"name": f"bn.{key}", "dtype": "float32", "shape": [2]})
    graph["tensors"].append({"name": "bn.num_batches_tracked", "dtype": "int64", "shape": []})
    return graph


CHAIN_SOURCE = files.file_of(
    files.tensors_of(SOURCE)
    | {f"bn.{key}": ("float32", [2], files.floats(values)) for key, values in
       {"weight": [8, 16], "bias": [0, 0], "running_mean": [0, 0], "running_var": [3.75, 3.75]}.items()}
    | {"bn.num_batches_tracked": ("int64", [], bytes(8))}
)
CHAIN = ("FuseBatchNorm1dInLinear", "FoldScaleIntoLinear")
WEIGHTS = [[1, 2, 3, 4], [4, 8, 24, 32], [8, 16, 48, 64]]  # of the three graphs


def chain_of(service, *weights):
    """The graphs before the passes, between them, and after them."""
    graph, made = chained(), []
    if weights:
        graph = document_of(service, post(service, graph, *weights).json()["id"])
    for name in CHAIN:
        run = service.post("/v1/optimize", {"graph": graph, "passes": [name]}).json()
        assert run["passes"][0]["applied"] == 1, run
        made += [run["source"], run["result"]]
        graph = run["result"]
    return [made[0], made[1], made[3]]


def bind_chain(service, graph, file, as_=None):
    """The finished weight, or the code of the refusal."""
    answer = post(service, document_of(service, graph), upload(service, file), **({"as": as_} if as_ else {}))
    if answer.status == 409:
        return answer.json()["code"]
    assert answer.status in (200, 201), answer
    return weight_of(service, answer.json()["id"])


AMBIGUOUS = "ambiguous-weights"


@pytest.mark.parametrize("as_", [None, "source", "finished", "original"])
def test_a_chain_by_what_files_say(shared, as_):
    """A file of any generation binds to the graph of any later one; none is taken for another."""
    bound, bare = chain_of(shared, upload(shared, CHAIN_SOURCE)), chain_of(shared)
    parts = [download(shared, one) for one in bound]
    assert parts[0] == CHAIN_SOURCE
    assert [files.numbers(files.tensors_of(one)["fc.weight"][2]) for one in parts] == WEIGHTS
    header = json.loads(parts[2][8 : 8 + struct.unpack("<Q", parts[2][:8])[0]])["__metadata__"]
    assert set(json.loads(header["foldback.tensors"])) == {"fc.weight", "fc.bias"}
    right = {
        # file, graph: what is bound; the others are refused
        (0, 0): (None, "source", "finished", "original"),
        (0, 1): (None, "source", "original"),
        (0, 2): (None, "source", "original"),
        (1, 1): (None, "finished"),
        (1, 2): (None, "source"),
        (2, 2): (None, "finished"),
    }
    for (file, graph), ways in right.items():
        if as_ == "finished" and (file, graph) in ((0, 1), (0, 2)):
            continue  # the file says nothing, and the request is believed
        expected = WEIGHTS[graph] if as_ in ways else AMBIGUOUS
        for one in (bare, bound):
            assert bind_chain(shared, one[graph], parts[file], as_) == expected, (file, graph)
    for file, graph in ((1, 0), (2, 0), (2, 1)):  # these graphs know nothing of such tensors
        expected = WEIGHTS[file] if as_ == "finished" else AMBIGUOUS
        assert bind_chain(shared, bare[graph], parts[file], as_) == expected, (file, graph)


def test_a_chain_without_metadata(shared):
    """What passes read tells generations apart, or bytes do; nothing is guessed."""
    bound, bare = chain_of(shared, upload(shared, CHAIN_SOURCE)), chain_of(shared)
    parts = [strip_metadata(download(shared, one)) for one in bound]
    assert bind_chain(shared, bare[2], parts[0]) == bind_chain(shared, bare[2], parts[0], "source") == WEIGHTS[2]
    assert bind_chain(shared, bare[2], parts[0], "original") == WEIGHTS[2]
    assert bind_chain(shared, bare[2], parts[1], "source") == WEIGHTS[2]  # no bn.weight is there: it was folded before
    assert bind_chain(shared, bare[2], parts[1]) == AMBIGUOUS
    assert bind_chain(shared, bare[2], parts[2]) == AMBIGUOUS
    assert bind_chain(shared, bare[2], parts[2], "finished") == WEIGHTS[2]
    for part, as_ in zip(parts, (None, "source", None)):  # the graph has bytes
        assert bind_chain(shared, bound[2], part, as_) == WEIGHTS[2]
    assert bind_chain(shared, bound[2], parts[1]) == AMBIGUOUS


def by_constants(*factors):
    """A graph of which each factor was folded by a run of its own: nothing but the weight was ever read."""
    graph, name = scaled(), "fc.weight"
    graph["nodes"] = [one for one in graph["nodes"] if one["name"] != "half"]
    graph["nodes"][1]["args"] = [{"$node": "x"}]
    for i, factor in enumerate(factors):
        value = {"op": "full", "args": [], "shape": [], "value": factor}
        recipe = {"op": "mul", "args": [name, value]}
        name = f"fc.weight@{i + 1:08d}"
        graph["tensors"].insert(2, {"name": name, "dtype": "float32", "shape": [2, 2], "recipe": recipe})
    graph["modules"][1]["parameters"]["weight"] = name
    return graph


def test_a_chain_of_constants(shared):
    """Nothing but what a file says tells its generation."""
    stored = shared.post("/v1/graphs", by_constants(3, 5)).json()["id"]
    assert bind_chain(shared, stored, SOURCE, "source") == AMBIGUOUS
    assert bind_chain(shared, stored, SOURCE) == AMBIGUOUS
    assert bind_chain(shared, stored, SOURCE, "original") == [15, 30, 45, 60]
    assert bind_chain(shared, stored, SOURCE, "finished") == [1, 2, 3, 4]
    one = post(shared, by_constants(3), upload(shared, SOURCE), **{"as": "source"}).json()
    file = download(shared, one["id"])
    assert files.numbers(files.tensors_of(file)["fc.weight"][2]) == [3, 6, 9, 12]
    for as_ in (None, "source"):
        assert bind_chain(shared, stored, file, as_) == [15, 30, 45, 60]
    assert bind_chain(shared, stored, file, "finished") == AMBIGUOUS
    # One of another factor is another tensor.
    other = shared.post("/v1/graphs", by_constants(4, 5)).json()["id"]
    for as_ in (None, "source", "original"):
        assert bind_chain(shared, other, file, as_) == AMBIGUOUS


def scaled_twice():
    """x @ fc * 3 * 5"""
    graph = by_constants()
    meta = {"shape": [2, 2], "dtype": "float32"}
    x, y, z = ({"$node": name} for name in "xyz")
    graph["nodes"] = [
        {"name": "x", "op": "placeholder", "target": "x", "args": [], "meta": meta},
        {"name": "y", "op": "call_module", "target": "fc", "args": [x], "meta": meta},
        {"name": "z", "op": "call_function", "target": "operator.mul", "args": [y, 3], "meta": meta},
        {"name": "w", "op": "call_function", "target": "operator.mul", "args": [z, 5], "meta": meta},
        {"name": "output", "op": "output", "target": "output", "args": [{"$node": "w"}]},
    ]
    return graph


def test_two_folds_of_one_run(new_service):
    """The source of that run is the only one, as no graph lies between its passes; until one does."""
    service = new_service()
    assert service.post("/v1/transformations", golden.RULES["ScaleIntoLinear"]).status == 201
    folds = ["ScaleIntoLinear", "FoldScaleIntoLinear"]
    source = service.post("/v1/graphs", scaled_twice()).json()["id"]
    run = service.post("/v1/optimize", {"graph": source, "passes": folds}).json()
    assert [one["applied"] for one in run["passes"]] == [1, 1]
    expected = [15, 30, 45, 60]
    assert bind_chain(service, run["result"], SOURCE) == AMBIGUOUS
    assert bind_chain(service, run["result"], SOURCE, "source") == expected
    assert bind_chain(service, run["result"], SOURCE, "original") == expected
    # Neither does a run that changes nothing lie between, nor an undo of a later one.
    more = service.post("/v1/optimize", {"graph": run["result"], "passes": ["MergeLinears"]}).json()
    later = service.post("/v1/optimize", {"graph": run["result"], "passes": ["FuseBiasInLinear"]}).json()
    undone = service.post(f"/v1/runs/{later['id']}/reverse", {"graph": later["result"]}).json()
    assert more["result"] == undone["result"] == run["result"] != later["result"]
    assert bind_chain(service, run["result"], SOURCE, "source") == expected
    between = service.post("/v1/optimize", {"graph": source, "passes": folds[:1]}).json()["result"]
    again = service.post("/v1/optimize", {"graph": between, "passes": folds[1:]}).json()
    assert again["result"] == run["result"]
    assert bind_chain(service, run["result"], SOURCE, "source") == AMBIGUOUS
    assert bind_chain(service, run["result"], SOURCE, "original") == expected


def test_an_earlier_file_was_bound_as_finished(shared):
    """Then the graph has no recipe of fc.weight@…, and no tensor is called fc.weight; a pass makes another one of it."""
    graph = by_constants(3, 5)
    graph["tensors"] = [one for one in graph["tensors"] if one["name"] != "fc.weight"]
    first = next(one for one in graph["tensors"] if one["name"] == "fc.weight@00000001")
    del first["recipe"]
    stored = shared.post("/v1/graphs", graph).json()["id"]
    assert bind_chain(shared, stored, SOURCE) == AMBIGUOUS
    assert bind_chain(shared, stored, SOURCE, "source") == [5, 10, 15, 20]
    assert bind_chain(shared, stored, SOURCE, "finished") == [1, 2, 3, 4]


def test_what_another_file_replaced_is_not_said(shared):
    """Metadata that is taken over from a file says nothing wrong of tensors that came in another."""
    one = post(shared, by_constants(3), upload(shared, SOURCE), **{"as": "source"}).json()
    file = download(shared, one["id"])
    graph = document_of(shared, bind(shared, by_constants(3), file)["id"])
    assert download(shared, shared.post("/v1/graphs", graph).json()["id"]) == file
    plain = by_constants()
    forced = post(shared, plain, upload(shared, file), **{"as": "finished"}).json()
    assert weight_of(shared, forced["id"]) == [3, 6, 9, 12]
    assert b"foldback." not in download(shared, forced["id"])


def test_nothing_fits(shared):
    """Names that differ by a prefix, on either side."""
    digest = upload(shared, SOURCE)
    refused = post(shared, scaled("model.bert."), digest)
    problem = refused.json()
    assert (refused.status, problem["code"], problem["prefix"]) == (422, "weights-mismatch", "model.bert.")
    made = post(shared, scaled("model.bert."), digest, prefix="model.bert.", strict="true").json()
    assert made["weights"] == {"bound": 2, "missing": [], "extra": []}
    longer = upload(shared, files.file_of({f"bert.{name}": one for name, one in files.tensors_of(SOURCE).items()}))
    problem = post(shared, scaled(), longer).json()
    assert (problem["code"], problem["prefix"]) == ("weights-mismatch", "bert.") and "bert." in problem["detail"]
    made = post(shared, scaled(), longer, prefix="bert.", strict="true").json()
    assert weight_of(shared, made["id"]) == [1, 2, 3, 4]
    body = {"graph": scaled(), "weights": [longer], "passes": ["FoldScaleIntoLinear"]}
    assert shared.post("/v1/optimize", body).json()["prefix"] == "bert."
    assert weight_of(shared, shared.post("/v1/optimize", body | {"prefix": "bert."}).json()["result"]) == [0.5, 1, 1.5, 2]
    strange = upload(shared, files.file_of({"nothing": ("int8", [2], b"ab")}))
    problem = post(shared, scaled(), strange).json()
    assert problem["code"] == "weights-mismatch" and "prefix" not in problem
    assert shared.post("/v1/optimize", body | {"prefix": 1}).json()["code"] == "wrong-type"


# ---- buffers that a checkpoint lacks -----------------------------------------------------------------------------------------


def test_non_persistent_buffers(shared):
    """They are not demanded of a file, and left out of those that are written, unless they came in one."""
    made = bind(shared, scaled(), SOURCE, strict=True)
    assert made["weights"] == {"bound": 2, "missing": [], "extra": []}
    assert download(shared, made["id"]) == SOURCE
    without = scaled()
    del without["tensors"][0]["data"]
    made = bind(shared, without, SOURCE, strict=True)
    assert download(shared, made["id"]) == SOURCE
    assert shared.get(f"/v1/graphs/{made['id']}/weights", raw_query={"names": "ids"}).json()["code"] == "bytes-missing"
    whole = files.file_of(files.tensors_of(SOURCE) | {"ids": ("float32", [2], files.floats([7, 8]))})
    made = bind(shared, scaled(), whole, strict=True)
    assert made["weights"]["bound"] == 3 and download(shared, made["id"]) == whole
    # One that a checkpoint's tensor is made from is demanded all the same.
    without["modules"][1]["parameters"]["bias"] = "made"
    without["tensors"][2] = {"name": "made", "dtype": "float32", "shape": [2],
                             "recipe": {"op": "reshape", "args": ["ids"], "shape": [2]}}
    part = files.file_of({"fc.weight": files.tensors_of(SOURCE)["fc.weight"]})
    assert bind(shared, without, part)["weights"]["missing"] == ["ids"]
