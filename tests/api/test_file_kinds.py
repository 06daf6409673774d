"""A file of another kind is recognised by its first bytes, and the error says what it is and what to do."""

import gzip
import io
import json
import pickle
import zipfile

import blobs
import documents
import pytest
import weights_files as files
from cli import CommandLine
from test_weights import weights_of


def zip_file():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/version", "3")
    return out.getvalue()


KINDS = {
    "a zip archive": zip_file(),
    "a Python pickle": pickle.dumps({"a": [1]}),
    "an ONNX model": b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:\x00",
    "compressed with gzip": gzip.compress(b'{"format": "foldback"}'),
    "a GGUF file": b"GGUF\x03\x00\x00\x00" + bytes(16),
    "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(16),
    "a NumPy array": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}",
}
ADVICE = ("export", "POST /v1/graphs", "decompress", "bind", "safetensors.torch.save_file", "foldback convert")
NOT_JSON = {**KINDS, "a safetensors file": weights_of("toy")}


@pytest.mark.parametrize("kind", NOT_JSON)
@pytest.mark.parametrize("path", ["/v1/graphs", "/v1/optimize?pass=RemoveNoOps", "/v1/reverse", "/v1/compare"])
def test_bodies(shared, path, kind):
    takes_archives = path in ("/v1/graphs", "/v1/optimize?pass=RemoveNoOps")
    answer = shared.post(path, NOT_JSON[kind], headers={"Content-Type": "application/json"})
    problem = answer.json()
    if kind == "a zip archive" and takes_archives:
        assert ((answer.status, problem["code"]) == (422, "bad-archive")
                and "not a .pt2 of torch.export.save" in problem["detail"]), problem
        return
    if kind == "an ONNX model" and takes_archives:
        assert (answer.status, problem["code"]) == (422, "bad-onnx"), problem
        return
    assert (answer.status, problem["code"]) == (400, "invalid-json")
    assert f"this is {kind}" in problem["detail"] and any(word in problem["detail"] for word in ADVICE), problem


@pytest.mark.parametrize("kind", KINDS)
def test_weights(shared, kind):
    digest = blobs.stored(shared, KINDS[kind])
    answer = shared.post("/v1/graphs", documents.document("toy"), raw_query=[("weights", digest)])
    text = json.dumps(answer.json())
    assert answer.status == 422 and "bad-safetensors" in text
    assert f"this is {kind}" in text and any(word in text for word in ADVICE), text


@pytest.mark.parametrize("kind", NOT_JSON)
@pytest.mark.parametrize("verb", ["verify", "optimize", "code"])
def test_commands(tmp_path, verb, kind):
    foldback = CommandLine(tmp_path)
    foldback.put("model", NOT_JSON[kind])
    passes = ["--pass", "RemoveNoOps"] if verb == "optimize" else []
    done = foldback.run(verb, "model", *passes)
    assert done.status == 1 and f"this is {kind}" in done.out + done.err, done


def test_a_header_that_begins_like_another_kind(shared):
    """The size of a safetensors header may have the bytes of a pickle's, a gzip file's or an ONNX model's beginning."""
    for start in (0x0280, 0x8B1F, 0x120108):
        tensors = files.tensors_of(weights_of("toy"))
        plain = files.file_of(tensors, {"format": "pt"})
        header = plain[8 : 8 + int.from_bytes(plain[:8], "little")]
        if len(header) > start:
            continue
        padded = start.to_bytes(8, "little") + header.ljust(start) + plain[8 + len(header) :]
        digest = blobs.stored(shared, padded)
        answer = shared.post("/v1/graphs", documents.document("toy"), raw_query=[("weights", digest)])
        assert answer.status in (200, 201), answer.json()


def torch_zip(*entries):
    """As PyTorch writes them: in this order, uncompressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in entries:
            archive.writestr(f"model/{name}", data)
    return out.getvalue()


OF_TORCH = {
    "a TorchScript model (torch.jit.save)": torch_zip(("data/0", bytes(64)), ("data.pkl", b"\x80\x02c__torch__\nNet\n"),
                                                      ("code/n.py", "")),
    "a checkpoint of torch.save (.pt, .bin)": torch_zip(("data.pkl", b"\x80\x02ccollections\nOrderedDict\n"),
                                                        ("data/0", bytes(64))),
    "a TensorFlow Lite model": b"\x1c\x00\x00\x00TFL3" + bytes(64),
    "a saved_model.pb of TensorFlow": b"\x08\x01\x12\x10" + bytes(64),
}
CURES = ("export", "tf2onnx.convert", "python -m foldback convert")


@pytest.mark.parametrize("kind", OF_TORCH)
def test_each_place_says_what_it_is_and_a_way_on(tmp_path, shared, kind):
    """The command line wherever it takes a graph or weights, under any name, and HTTP."""
    local = CommandLine(tmp_path, "--data", tmp_path / "store")
    graph = local.put("graph.json", documents.document("toy"))
    for name in ("model.bin", "model.pt2", "model.onnx", "model.safetensors"):
        local.put(name, OF_TORCH[kind])
        for words in (["put", name], ["id", name], ["code", name], ["show", name], ["diff", name, graph], ["verify", name],
                      ["optimize", name, "-p", "cleanup"], ["register", "m:1", name], ["reverse", name], ["weights", name],
                      ["optimize", graph, "-p", "cleanup", "--weights", name], ["bind", graph, name],
                      ["layout", "apply", "qkv-fused", name, "-o", "out.safetensors"],
                      ["layout", "undo", name, "-o", "out.safetensors"], ["compare", graph, name]):
            needs_store = words[0] not in ("id", "verify") or name in ("model.pt2", "model.onnx")
            done = local(*words) if needs_store else local.run(*words)
            said = done.out + done.err
            refused = 2 if words[0] == "compare" else 1  # 1 of compare: the outputs differ
            assert done.status == refused and f"this is {kind}" in said, (words, done)
            assert any(cure in said for cure in CURES) or "save_file" in said, (words, done)
    for headers in ({"Content-Type": "application/json"}, {"Content-Type": "application/octet-stream"}, {}):
        for path in ("/v1/graphs", "/v1/optimize?pass=cleanup", "/v1/compare"):
            answer = shared.post(path, OF_TORCH[kind], headers=headers)
            if answer.status != 415:
                assert answer.status in (400, 422) and f"this is {kind}" in answer.json()["detail"], (path, headers, answer)


def test_folders_are_said_to_be_folders(tmp_path):
    local = CommandLine(tmp_path, "--data", tmp_path / "store")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"\x08\x01\x12\x10")
    done = local("put", "saved")
    assert done.status == 1 and "SavedModel of TensorFlow" in done.err and "tf2onnx" in done.err


def test_bytes_that_are_missing_come_by_binding(shared):
    graph = shared.post("/v1/graphs", documents.document("toy")).json()["id"]
    for answer in (shared.get(f"/v1/graphs/{graph}/weights"), shared.post(f"/v1/graphs/{graph}/evaluate", {})):
        problem = answer.json()
        assert (answer.status, problem["code"]) == (409, "bytes-missing")
        assert "/v1/blobs/{digest}" in problem["detail"] and "/v1/graphs?weights={digest}" in problem["detail"]
