"""The inputs of a counterexample: beside the answer, as a blob, and in a file of the command line."""

import json
import struct

from access import bearer, make_token
from blobs import stored as stored_blob
from conftest import Service
from documents import node, ref
from test_cli import foldback  # noqa: F401 (a fixture)
from test_evaluate import graph_of, output
from test_http import is_problem
from weights_files import file_of, numbers, tensors_of

LOWER = graph_of(node("y", "call_function", "operator.gt", [ref("x"), 0.5]), output("y"))
OTHER = graph_of(node("y", "call_function", "operator.ge", [ref("x"), 0.5]), output("y"))


def parts_of(answer):
    kind, boundary = answer.headers["content-type"].split("; boundary=")
    assert kind == "multipart/mixed"
    first, *parts, last = answer.body.split(b"--" + boundary.encode())
    assert first == b"" and last == b"--\r\n"
    return [part.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n") for part in parts]


def test_in_parts(shared):
    answer = shared.post("/v1/compare", {"a": LOWER, "b": OTHER}, headers={"Accept": "multipart/mixed"})
    found, inputs = parts_of(answer)
    example = json.loads(found)["outputs"][0]["counterexample"]
    ((name, (dtype, shape, part)),) = tensors_of(inputs).items()
    assert (name, dtype, shape) == ("x", "float32", [2, 3]) and numbers(part)[example["index"]] == 0.5
    again = shared.post("/v1/compare", {"a": LOWER, "b": OTHER, "inputs": stored_blob(shared, inputs)}).json()
    assert again["verdict"] == "differs" and again["outputs"][0]["counterexample"]["index"] == example["index"]
    (only,) = parts_of(shared.post("/v1/compare", {"a": LOWER, "b": LOWER}, headers={"Accept": "multipart/mixed"}))
    assert json.loads(only)["verdict"] == "same"


def test_parts_may_hold_what_looks_like_the_line_between_them(shared):
    x = ("float32", [2, 3], b"foldback-part-0\0" + struct.pack("<2f", 0.5, 0))
    given = stored_blob(shared, file_of({"x": x}))
    answer = shared.post("/v1/compare", {"a": LOWER, "b": OTHER, "inputs": given}, headers={"Accept": "multipart/mixed"})
    found, inputs = parts_of(answer)
    assert json.loads(found)["verdict"] == "differs" and tensors_of(inputs) == {"x": x}


def test_as_a_blob(service):
    def blobs():
        return {one["digest"] for one in service.get("/v1/blobs").json()["items"]}

    before = blobs()
    found = service.post("/v1/compare", {"a": LOWER, "b": OTHER, "seed": 3}).json()
    assert "inputs" not in found["outputs"][0]["counterexample"] and blobs() == before
    found = service.post("/v1/compare", {"a": LOWER, "b": OTHER, "keep": True, "seed": 3}).json()
    digest = found["outputs"][0]["counterexample"]["inputs"]
    assert blobs() - before == {digest}
    assert service.post("/v1/compare", {"a": LOWER, "b": OTHER, "inputs": digest}).json()["verdict"] == "differs"
    assert service.post("/v1/compare", {"a": LOWER, "b": LOWER, "keep": True}).json()["verdict"] == "same"
    problem = is_problem(service.post("/v1/compare", {"a": LOWER, "b": OTHER, "keep": 1}), 422, "wrong-type")
    assert problem["pointer"] == "/keep"


def test_keeping_needs_to_write(tmp_path):
    service = Service(tmp_path / "data").start()
    try:
        admin = make_token(service, "admin", "admin")
        reader, writer = (make_token(service, scope, scope, by=admin) for scope in ("read", "write"))
        body = {"a": LOWER, "b": OTHER}
        for token, keep, status in ((reader, False, 200), (reader, True, 403), (writer, True, 200)):
            answer = service.post("/v1/compare", {**body, "keep": keep}, headers=bearer(token))
            assert answer.status == status, answer
        is_problem(service.post("/v1/compare", {**body, "keep": True}, headers=bearer(reader)), 403, "scope-too-small")
    finally:
        service.stop()


def test_by_the_command_line(foldback):
    for name, graph in (("a.json", LOWER), ("b.json", OTHER)):
        foldback.put(name, graph)
    foldback("optimize", "a.json", "-p", "DeepCopy")
    assert foldback("compare", "a.json", "b.json", "-o", "inputs.safetensors").status == 1
    assert foldback("compare", "a.json", "b.json", "--samples", "1").status == 0
    assert foldback("compare", "a.json", "b.json", "--samples", "1", "--inputs", "inputs.safetensors").status == 1
    assert foldback("compare", "a.json", "a.json", "-o", "none.safetensors").status == 0
    assert not foldback.path("none.safetensors").exists()
