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
ADVICE = ("export", "POST /v1/graphs", "decompress", "bind", "safetensors.torch.save_file")
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
