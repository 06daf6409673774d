"""Weights to a live service and back: in parts, interrupted and resumed, the same bytes."""

import builtins
import hashlib
import io
import json
import os
import subprocess
import sys
import time

import httpx
import pytest
import torch
from conftest import ROOT
from safetensors.torch import load_file, save_file
from torch import nn

import foldback
from foldback import transfer
from foldback.convert import convert

TOY = ROOT / "tests" / "fixtures" / "toy"


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def graph():
    return json.loads((TOY / "graph.json").read_text())


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """So that a small file is a large one."""
    monkeypatch.setattr(transfer, "PART", 100_000)
    monkeypatch.setattr(transfer, "PIECE", 10_000)
    sleep = time.sleep
    monkeypatch.setattr(transfer.time, "sleep", lambda seconds: sleep(seconds / 5))


class Stream(httpx.SyncByteStream):
    """Breaks after some bytes, as a connection does."""

    def __init__(self, stream, wire, error):
        self.stream, self.wire, self.error = stream, wire, error

    def __iter__(self):
        for piece in self.stream:
            if self.wire.left is not None:
                self.wire.left -= len(piece)
                if self.wire.left < 0:
                    self.wire.left = self.wire.breaks.pop(0) if self.wire.breaks else None
                    raise self.error("the connection broke")
            yield piece

    def close(self):
        if hasattr(self.stream, "close"):
            self.stream.close()


class Wire(httpx.BaseTransport):
    """A network that breaks after `breaks` bytes each time, in bodies of PUT, PATCH and GET; `heard` is what was asked."""

    def __init__(self, *breaks):
        self.transport = httpx.HTTPTransport()
        self.breaks, self.heard = list(breaks), []
        self.left = self.breaks.pop(0) if self.breaks else None

    def handle_request(self, request):
        self.heard.append((request.method, request.headers.get("content-range") or request.headers.get("range")))
        if request.method in ("PUT", "PATCH"):
            request.stream = Stream(request.stream, self, httpx.WriteError)
        answer = self.transport.handle_request(request)
        if request.method == "GET":
            answer.stream = Stream(answer.stream, self, httpx.ReadError)
        return answer

    def close(self):
        self.transport.close()


@pytest.fixture
def wired(service):
    """wired(…breaks) gives a client behind such a network, and the network."""
    made = []

    def make(*breaks):
        wire = Wire(*breaks)
        made.append(foldback.Client(service.url, http=httpx.Client(transport=wire, timeout=30)))
        return made[-1], wire

    yield make
    for client in made:
        client.close()


# ---- there and back -----------------------------------------------------------------------------------------------------


def test_there_and_back(client, graph, tmp_path):
    bound = client.bind(graph, TOY / "weights.safetensors", progress=False)
    assert bound["weights"] == {"bound": 32, "missing": [], "extra": []}
    run = client.optimize(bound["id"], ["MergeLinears", "FuseBatchNorm2dInConv2d"])
    assert client.weights(run["result"], tmp_path / "merged.safetensors") == tmp_path / "merged.safetensors"
    before, after = load_file(TOY / "weights.safetensors"), load_file(tmp_path / "merged.safetensors")
    parts = [before[name] for name in ("q.weight", "k.weight", "v.weight")]
    assert torch.equal(after["q-k-v-merged.weight"], torch.cat(parts))
    undone = client.rollback(run)
    client.weights(undone["result"], str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (TOY / "weights.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "merged.safetensors"]


def test_trained_in_between(client, graph, tmp_path):
    """What the merged weight learnt is in its parts afterwards."""
    run = client.optimize(graph, ["MergeLinears"], weights=TOY / "weights.safetensors")
    assert run["weights"]["bound"] == 32
    state = load_file(client.weights(run["result"], tmp_path / "merged"))
    state["q-k-v-merged.weight"][16:] += 0.25  # q's part is tied to another module's weight, and could not be told apart
    save_file(state, tmp_path / "tuned")
    tuned = client.bind(run["result"], [tmp_path / "tuned"])
    undone = client.reverse(run, graph=tuned["id"])
    parts = load_file(client.weights(undone["result"], tmp_path / "back"))
    before = load_file(TOY / "weights.safetensors")
    for name in ("k.weight", "v.weight"):
        assert torch.equal(parts[name], before[name] + 0.25)


def test_some_and_tied(client, graph, tmp_path):
    bound = client.bind(graph, [str(TOY / "weights.safetensors")])["id"]
    before = load_file(TOY / "weights.safetensors")
    some = load_file(client.weights(bound, tmp_path / "some", names=["c1.weight", "b1.bias"]))
    assert set(some) == {"c1.weight", "b1.bias"} and torch.equal(some["b1.bias"], before["b1.bias"])
    each = load_file(client.weights(bound, tmp_path / "each", tied="each"))
    assert set(each) - set(before) == {"head.weight", "c3.weight"}
    with pytest.raises(foldback.Problem) as caught:
        client.weights(bound, tmp_path / "none", names=["nowhere"])
    assert caught.value.code == "unknown-tensor" and "nowhere" in str(caught.value)
    assert not list(tmp_path.glob("none*"))


def test_materialize(client, graph, tmp_path):
    run = client.optimize(graph, ["MergeLinears"], weights=[TOY / "weights.safetensors"])
    made = client.materialize(run["result"])
    assert client.materialize(run["result"]) == made
    client.download(made["blob"], tmp_path / "blob")
    client.weights(run["result"], tmp_path / "weights")
    assert (tmp_path / "blob").read_bytes() == (tmp_path / "weights").read_bytes()
    assert client.materialize(run["result"], names=["c1.weight"], tied="each")["tensors"] == 1


def test_a_header_whose_size_is_how_a_pickle_begins(client, graph, tmp_path):
    raw = (TOY / "weights.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    for beginning in (b"\x80\x02", b"\x80\x04", b"\x1f\x8b", b"\x08\x12"):
        larger = next(n for n in range(size, size + (1 << 17)) if n.to_bytes(8, "little").startswith(beginning))
        path = tmp_path / f"{beginning.hex()}.safetensors"
        path.write_bytes(larger.to_bytes(8, "little") + raw[8 : 8 + size].ljust(larger) + raw[8 + size :])
        assert client.bind(graph, path, strict=True)["weights"]["bound"] == 32


def test_shards(client, graph, tmp_path):
    tensors = load_file(TOY / "weights.safetensors")
    names = sorted(tensors)
    for number, part in enumerate((names[:16], names[16:])):
        save_file({name: tensors[name] for name in part}, tmp_path / f"{number}.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: f"{int(i >= 16)}.safetensors" for i, name in enumerate(names)}}))
    assert client.bind(graph, index, strict=True)["weights"] == {"bound": 32, "missing": [], "extra": []}
    with pytest.raises(foldback.Problem) as caught:
        client.bind(graph, [tmp_path / "0.safetensors"], strict=True)
    assert caught.value.code == "weights-mismatch" and len(caught.value.body["missing"]) == 16
    index.write_text(json.dumps({"weight_map": {"a": "../0.safetensors"}}))
    with pytest.raises(ValueError, match="is not a file beside it"):
        client.bind(graph, index)


def test_what_is_missing(client, graph):
    nowhere = "sha256:" + 64 * "0"
    with pytest.raises(foldback.Problem) as caught:
        client.bind(graph, nowhere)
    assert caught.value.status == 409 and caught.value.body["blobs"] == [nowhere]
    stored = client.put_graph(graph)
    with pytest.raises(foldback.Problem) as caught:
        client.weights(stored, "/nonexistent/file")
    assert caught.value.code == "bytes-missing" and len(caught.value.body["tensors"]) == 32


# ---- interrupted --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 99_999, 100_000, 100_001, 555_555])
def test_upload_and_download(wired, tmp_path, size):
    client, wire = wired()
    data = os.urandom(size)
    (tmp_path / "there").write_bytes(data)
    digest = client.upload(tmp_path / "there")
    assert digest == digest_of(data) and client.missing([digest]) == []
    parts = [place for method, place in wire.heard if method == "PATCH"]
    begins = range(0, size, 100_000) if size > 100_000 else []
    assert parts == [f"{begin}-{min(begin + 100_000, size) - 1}" for begin in begins]
    wire.heard.clear()
    assert client.upload(str(tmp_path / "there")) == digest and wire.heard == [("POST", None)]  # it has it
    client.download(digest, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data and not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("size", [80_000, 400_000])
def test_an_upload_goes_on_where_it_was(wired, tmp_path, size):
    client, wire = wired(35_000, 35_000, 35_000, 120_000)
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    assert client.missing([client.upload(tmp_path / "file", progress=False)]) == []
    if size > 100_000:
        begins = [int(place.split("-")[0]) for method, place in wire.heard if method == "PATCH"]
        # Never back; how much of a part that broke off was kept is for the service to say.
        assert begins == sorted(begins) and {0, 100_000, 200_000, 300_000} <= set(begins) | {b - b % 100_000 for b in begins}
        assert sum(method == "POST" for method, _ in wire.heard) == 3  # missing, one upload, missing


def test_a_later_call_goes_on(wired, tmp_path):
    breaks = [150_000] + [0] * 20  # then nothing gets through
    client, wire = wired(*breaks)
    data = os.urandom(300_000)
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(httpx.TransportError):
        client.upload(tmp_path / "file")
    assert len(wire.heard) < 30
    wire.left, wire.breaks = None, []
    wire.heard.clear()
    assert client.missing([client.upload(tmp_path / "file")]) == []
    assert [place for method, place in wire.heard if method == "PATCH"][0].startswith("1")
    assert [method for method, _ in wire.heard if method != "PATCH"] == ["POST", "GET", "PUT", "POST"]


def test_an_upload_that_the_service_gave_up_begins_anew(wired, tmp_path):
    client, wire = wired(150_000, *[0] * 20)
    (tmp_path / "file").write_bytes(os.urandom(300_000))
    with pytest.raises(httpx.TransportError):
        client.upload(tmp_path / "file")
    (place,) = client._uploads._open.values()
    wire.left, wire.breaks = None, []
    for _ in range(1000):
        try:
            client._service.request("DELETE", place)
            break
        except foldback.Problem as problem:
            assert problem.code == "upload-busy"  # the service has still to notice that the connection is gone
            time.sleep(0.01)
    assert client.missing([client.upload(tmp_path / "file")]) == []


def test_a_file_that_changes_while_it_is_sent(wired, tmp_path):
    client, wire = wired()
    path = tmp_path / "file"
    path.write_bytes(os.urandom(300_000))
    digest = digest_of(path.read_bytes())
    path.write_bytes(os.urandom(300_000))
    with pytest.raises(foldback.Problem) as caught:
        client._uploads.send(path, digest, False)
    assert caught.value.code == "digest-mismatch" and client.missing([digest]) == [digest]


def test_a_download_goes_on_where_it_was(wired, tmp_path):
    client, wire = wired()
    data = os.urandom(400_000)
    (tmp_path / "there").write_bytes(data)
    digest = client.upload(tmp_path / "there")
    wire.left, wire.breaks = 120_000, [90_000, *[0] * 20]
    wire.heard.clear()
    with pytest.raises(httpx.TransportError):
        client.download(digest, tmp_path / "back")
    (part,) = tmp_path.glob("back.*.part")
    have = part.stat().st_size
    assert 0 < have < 400_000 and part.read_bytes() == data[:have]
    wire.left, wire.breaks = None, []
    wire.heard.clear()
    client.download(digest, tmp_path / "back")
    assert wire.heard == [("HEAD", None), ("GET", f"bytes={have}-")]
    assert (tmp_path / "back").read_bytes() == data and not part.exists()


def test_a_part_that_is_not_right_is_noticed(client, tmp_path):
    data = os.urandom(200_000)
    (tmp_path / "there").write_bytes(data)
    digest = client.upload(tmp_path / "there")
    tag = hashlib.sha256(f'"{digest}"'.encode()).hexdigest()[:8]
    part = tmp_path / f"back.{tag}.part"
    part.write_bytes(b"x" * 1000)
    with pytest.raises(ValueError, match=digest):
        client.download(digest, tmp_path / "back")
    assert not part.exists() and not (tmp_path / "back").exists()
    part.write_bytes(b"x" * 300_000)
    client.download(digest, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data


def test_the_command_line_goes_on_with_it(wired, service, tmp_path):
    client, wire = wired()
    data = os.urandom(400_000)
    (tmp_path / "there").write_bytes(data)
    digest = client.upload(tmp_path / "there")
    wire.left, wire.breaks = 120_000, [0] * 20
    with pytest.raises(httpx.TransportError):
        client.download(digest, tmp_path / "back")
    assert len(list(tmp_path.glob("back.*.part"))) == 1
    binary = os.environ.get("FOLDBACK_BINARY", ROOT / "build" / "foldback")
    command = [binary, "download", digest, "--server", service.url, "-o", tmp_path / "back"]
    subprocess.run(command, check=True)
    assert (tmp_path / "back").read_bytes() == data and not list(tmp_path.glob("back.*"))


# ---- progress -----------------------------------------------------------------------------------------------------------


def test_progress_is_told(client, tmp_path):
    data = os.urandom(250_000)
    (tmp_path / "there").write_bytes(data)
    told = []
    digest = client.upload(tmp_path / "there", progress=lambda done, total: told.append((done, total)))
    client.download(digest, tmp_path / "back", progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {250_000}
    done = [done for done, _ in told]
    assert done.count(0) == done.count(250_000) == 3  # reading, sending, receiving
    assert len(done) > 60


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal(client, tmp_path, monkeypatch, capsys):
    pytest.importorskip("tqdm")
    (tmp_path / "there").write_bytes(os.urandom(250_000))
    client.upload(tmp_path / "there")
    assert capsys.readouterr().err == ""
    (tmp_path / "there").write_bytes(os.urandom(250_000))
    monkeypatch.setattr(sys, "stderr", Terminal())
    client.upload(tmp_path / "there")
    shown = sys.stderr.getvalue()
    assert "sending there" in shown and "/250k" in shown
    client.upload(tmp_path / "there", progress=False)
    assert sys.stderr.getvalue() == shown


def test_no_bar_without_tqdm(client, tmp_path, monkeypatch):
    original = builtins.__import__

    def absent(name, *arguments, **keywords):
        if name.startswith("tqdm"):
            raise ImportError(name)
        return original(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", absent)
    (tmp_path / "there").write_bytes(os.urandom(1000))
    assert client.missing([client.upload(tmp_path / "there", progress=True)]) == []


# ---- files of another kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, start",
    [
        ("torch.save", None),
        ("a pickle", b"\x80\x04\x95"),
        ("compressed with gzip", b"\x1f\x8b\x08\x00"),
        ("compressed with zstd", b"\x28\xb5\x2f\xfd"),
        ("a GGUF file", b"GGUF\x03"),
        ("an ONNX model", b"\x08\x08\x12\x07pytorch"),
    ],
)
def test_a_file_of_another_kind(client, graph, tmp_path, kind, start):
    path = tmp_path / "weights"
    if start is None:
        torch.save({"a": torch.zeros(2)}, path)
    else:
        path.write_bytes(start + bytes(100))
    for refused in (
        lambda: client.bind(graph, path, progress=False),
        lambda: client.optimize(graph, ["MergeLinears"], weights=[path]),
        lambda: foldback.fx.from_document(graph, weights=path),
    ):
        with pytest.raises(ValueError, match=f"is .*{kind}.*not a safetensors file.*(save_file|foldback convert)"):
            refused()


class Twice(nn.Module):
    """Has a second name for a module that it calls, for a parameter and a buffer that it reads."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.table = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Embedding(3, 4)
        self.blocks, self.rows = nn.ModuleList([self.fc]), self.table.weight
        self.scale = nn.Parameter(torch.rand(4))
        self.other = nn.Module()
        self.other.register_parameter("scale", self.scale)
        self.other.register_buffer("mean", self.norm.running_mean)
        self.norm.running_mean.normal_()

    def forward(self, x):
        return self.norm(self.blocks[0](x)) * self.scale + self.rows[0]


@pytest.mark.parametrize("make", [
    lambda model, x: foldback.export.traced(model, x),
    lambda model, x: foldback.export.from_module(model, x),
], ids=["traced", "exported"])
@pytest.mark.parametrize("first", [False, True])
def test_a_checkpoint_may_have_any_name_of_a_tensor(client, tmp_path, make, first):
    """safetensors files have each tensor once, by any of its names."""
    torch.manual_seed(0)
    model, x = Twice().eval(), torch.randn(2, 4)
    by_object = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        by_object.setdefault(id(tensor), []).append(name)
    assert sum(len(names) > 1 for names in by_object.values()) == 5
    state = model.state_dict()
    kept = {names[0 if first else -1]: state[names[0]] for names in by_object.values()}
    save_file(kept, tmp_path / "model.safetensors")
    document = make(model, x)
    bound = client.bind(document, tmp_path / "model.safetensors")
    assert not bound["weights"].get("missing") and set(bound["weights"].get("extra", ())) <= {"norm.num_batches_tracked"}
    run = client.optimize(bound["id"], ["inference"])
    assert sum(row["applied"] for row in run["passes"]) > 0
    for graph, weights in ((document, tmp_path / "model.safetensors"),
                           (client.graph(run["result"]), client.weights(run["result"], tmp_path / "result.safetensors"))):
        torch.testing.assert_close(foldback.fx.from_document(graph, weights=weights)(x), model(x))


def test_tensors_of_a_real_checkpoint(tmp_path):
    """Not contiguous, shared, on the way of training: what save_file refuses, and the states of an optimiser stay out."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3))
    model[1].weight = model[0].weight
    optimiser = torch.optim.AdamW(model.parameters())
    state = model.state_dict() | {"turned": torch.arange(6.0).reshape(2, 3).T, "number": torch.tensor(3)}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    whole = {"model": state, "optimizer": optimiser.state_dict(), "step": 3, "config": {"rate": 1e-3}}
    for number, (saved, more) in enumerate([(state, {}), (whole, {}), (whole | {"ema": state}, {"key": "ema"})]):
        path, target = tmp_path / f"{number}.pt", tmp_path / f"{number}.safetensors"
        torch.save(saved, path, _use_new_zipfile_serialization=number != 1)
        convert(path, target, **more)
        found = load_file(target)
        assert found.keys() == state.keys() and all(torch.equal(found[name], state[name]) for name in state)
        with pytest.raises(ValueError, match="is there already"):
            convert(path, target, **more)
    with pytest.raises(ValueError, match=r"tensors at model \(6\), ema \(6\)"):
        convert(tmp_path / "2.pt", tmp_path / "new.safetensors")
    torch.save(model, tmp_path / "whole.pt")
    with pytest.raises(ValueError, match="holds more than tensors"):
        convert(tmp_path / "whole.pt", tmp_path / "new.safetensors")
    torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)).save(tmp_path / "script.pt")
    command = [sys.executable, "-m", "foldback", "convert", str(tmp_path / "script.pt"), "-o", str(tmp_path / "s.safetensors")]
    assert subprocess.run(command, capture_output=True, text=True).stdout.startswith("2 tensors written to")
    assert not (tmp_path / "new.safetensors").exists()
