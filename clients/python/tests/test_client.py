"""The calls of the client, and that none of it needs PyTorch."""

import socket
import struct
import subprocess
import sys
import time

import pytest

import foldback


def relu():
    nodes = [
        {"name": "x", "op": "placeholder", "target": "x", "args": [], "meta": {"shape": [2], "dtype": "float32"}},
        {"name": "y", "op": "call_function", "target": "operator.truediv", "args": [{"$node": "x"}, 8]},
        {"name": "output", "op": "output", "target": "output", "args": [{"$node": "y"}]},
    ]
    return {
        "format": "foldback.graph/1",
        "name": "é",
        "nodes": nodes,
        "modules": [{"path": "", "type": "torch.nn.Module"}],
        "tensors": [],
    }


def test_every_call(client):
    graph = client.put_graph(relu())
    assert graph.startswith("sha256:") and client.put_graph(relu()) == graph
    assert client.graph(graph)["name"] == "é"
    assert "y = x / 8" in client.code(graph)
    run = client.optimize(graph, ["ChangeTrueDivToMulByInverse", ["DeepCopy"]], include=["code"], lint="each", note="a try")
    assert run["passes"][0]["applied"] == 1 and "y * 0.125" not in run["code"] and "x * 0.125" in run["code"]
    assert client.run(run)["result"] == run["result"] and client.run(run["id"])["note"] == "a try"
    assert {edit["edit"] for edit in client.edits(run)} <= {"insert_node", "erase_node", "set_node"}
    undone = client.reverse(run, ["ChangeTrueDivToMulByInverse"])
    assert undone["result"] == graph and undone["exact"] is True
    assert client.rollback(run)["result"] == graph
    assert client.rollback(run, ["DeepCopy"])["result"] == run["result"]
    assert client.reverse(run, graph=client.graph(run["result"]))["result"] == graph


def test_evaluation(client, tmp_path):
    graph = client.put_graph(relu())
    header = b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    inputs = tmp_path / "inputs.safetensors"
    inputs.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 8, -4))
    output = client.evaluate(graph, inputs, file=tmp_path / "outputs.safetensors")
    assert struct.unpack("<2f", output.read_bytes()[-8:]) == (1, -0.5)
    drawn = [client.evaluate(graph, file=tmp_path / "drawn", seed=seed, precision="float64").read_bytes() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and b'"F64"' in drawn[0]
    run = client.optimize(graph, ["ChangeTrueDivToMulByInverse"], validate="rewrites", seed=3, tolerance={"relative": 0})
    assert run["validation"] == {"mode": "rewrites", "passes": True, "complete": True}
    assert client.compare(run["source"], run["result"])["passes"]
    other = relu()
    other["nodes"][1]["args"][1] = 4
    found = client.compare(graph, other, inputs=inputs, progress=False)
    assert not found["passes"] and found["outputs"][0]["max_absolute"] == 1 and found["first_node"]["name"] == "y"
    assert client.compare(graph, other, inputs=inputs, tolerance={"absolute": 1}, progress=False)["passes"]
    assert not client.bisect(run, inputs=inputs, progress=False)["found"]
    kept = client.optimize(graph, [{"name": "ChangeTrueDivToMulByInverse", "only": []}])
    assert kept["passes"][0]["only"] == [] and kept["result"] == kept["source"]
    found = client.bisect(run["id"], against=other, output=0, samples=2, seed=1)
    assert found["source_differs"] and not found["found"]


def test_problems(client):
    with pytest.raises(foldback.Problem) as caught:
        client.optimize(relu(), ["NoSuchPass"])
    assert caught.value.status == 422 and caught.value.code == "unknown-pass"
    assert caught.value.body["pointer"] == "/passes/0" and "NoSuchPass" in str(caught.value)
    with pytest.raises(foldback.Problem) as caught:
        client.run("run_00000000000000000000000000")
    assert caught.value.status == 404


def test_numbers_that_are_none_are_not_sent(client):
    with pytest.raises(ValueError):
        client.put_graph({**relu(), "metadata": {"a": float("nan")}})


def test_pytorch_is_imported_late(service):
    program = f"""
import sys, foldback
with foldback.Client({service.url!r}) as client:
    try:
        client.graph("sha256:" + 64 * "0")
    except foldback.Problem as problem:
        assert problem.status == 404
assert "torch" not in sys.modules
import foldback.__main__
assert "torch" not in sys.modules
foldback.fx, foldback.apply_edits
assert "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_there_is_nothing_else():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        foldback.nothing
    errors = {"AmbiguousWeights", "Cancelled", "EditError", "LostTraining", "Problem", "ServiceNotStarted", "TensorOverflows"}
    modules = {"export", "fx", "hub", "huggingface", "optimization"}
    functions = {"apply_edits", "compare", "compiled_runs", "connect", "disconnect", "pack"}
    assert set(foldback.__all__) == errors | modules | functions | {
        "AsyncClient", "Client", "Comparison", "Difference", "Event", "Graph", "Job", "Picture", "Refusal", "Run", "Version"}


def test_an_address_that_swallows_connections(monkeypatch):
    """The kernel of the other side answers nothing: its queue is full, as behind a firewall."""
    monkeypatch.setattr(foldback.client, "CONNECT", 0.5)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = f"http://127.0.0.1:{full.getsockname()[1]}"
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        begun = time.monotonic()
        with foldback.Client(address) as client, pytest.raises(foldback.service.Unreachable, match=address):
            list(client.models())
        assert time.monotonic() - begun < 30
        for one in waiting:
            one.close()
