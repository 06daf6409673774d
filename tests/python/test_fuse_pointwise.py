"""FusePointwise against PyTorch, in both dialects: what it computes, weights in oneDNN's order, archives, undo, and what it
must not do."""

import contextlib
import importlib

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

import foldback
import foldback.export
from foldback import packing, torch_compile, values
from foldback.fx import from_document, to_document

CALLS = ("torch.ops.mkldnn._convolution_pointwise.default", "torch.ops.mkldnn._convolution_pointwise.binary",
         "torch.ops.mkldnn._linear_pointwise.default")
ACTIVATIONS = {"relu": F.relu, "relu6": F.relu6, "silu": F.silu, "hardswish": F.hardswish, "gelu": F.gelu,
               "tanh": lambda x: F.gelu(x, approximate="tanh"), "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.25)}


class Net(nn.Module):
    """A residual block, one in groups, convolutions of any window, and a Linear as in a ConvNeXt."""

    def __init__(self, activation="relu"):
        super().__init__()
        self.activation = activation
        self.stem, self.norm = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16)
        self.one, self.two = nn.Conv2d(16, 16, 3, padding="same"), nn.Conv2d(16, 16, 3, padding=1)
        self.depth, self.point = nn.Conv2d(16, 16, 5, padding=4, dilation=2, groups=16), nn.Conv2d(16, 24, 1, bias=False)
        self.wide, self.narrow = nn.Linear(24, 48), nn.Linear(48, 8)

    def forward(self, x):
        act = ACTIVATIONS[self.activation]
        x = act(self.norm(self.stem(x)))
        y = self.two(act(self.one(x)))
        y += x
        y = F.relu(y, inplace=True)
        y = self.point(act(self.depth(y)) + y)
        return self.narrow(F.gelu(self.wide(y.permute(0, 2, 3, 1)))).mean((1, 2))


def made(activation="relu", dtype=torch.float32):
    torch.manual_seed(3)
    return Net(activation).to(dtype).eval(), torch.randn(2, 3, 22, 18, dtype=dtype)


def document_of(model, x, dialect):
    if dialect == "fx":
        return to_document(torch.fx.symbolic_trace(model), x, data=True)
    return foldback.export.from_exported_program(torch.export.export(model, (x,)), data=True)


def optimise(service, document, passes):
    answer = service.post("/v1/optimize", {"graph": document, "passes": passes,
                                           "options": {"include": ["graph"], "lint": "each"}}).json()
    assert "passes" in answer, answer
    back = service.post(f"/v1/runs/{answer['id']}/rollback").json()
    assert back["result"] == answer["source"]
    return answer


def error(one, other):
    return ((one.double() - other.double()).abs().max() / other.double().abs().max()).item()


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("passes", [["FusePointwise"], ["cpu"]], ids=str)
@pytest.mark.parametrize("dialect", ["fx", "aten"])
@pytest.mark.parametrize("activation, dtype", [*((name, torch.float32) for name in ACTIVATIONS), ("silu", torch.bfloat16),
                                               ("relu", torch.bfloat16)])
def test_same(service, passes, dialect, activation, dtype):
    model, x = made(activation, dtype)
    run = optimise(service, document_of(model, x, dialect), passes)
    targets = [node["target"] for node in run["graph"]["nodes"]]
    # the stem's BatchNorm is folded first, or stays
    assert [targets.count(one) for one in CALLS] == [4, 1, 1], run["passes"]
    live = from_document(run["graph"])
    exact = made(activation)[0].double()(x.double())
    limit = 2e-6 if dtype == torch.float32 else 2 * error(model(x), exact) + 1e-3
    for program in (live, foldback.pack(live)):
        assert error(program(x), exact) < limit
    assert error(live(x[:1]), exact[:1]) < limit


def test_residual_in_bfloat16_keeps_its_relu(service):
    """PyTorch 2.13 raises for both together, in rows or in groups."""
    model, x = made(dtype=torch.bfloat16)
    run = optimise(service, document_of(model, x, "aten"), ["FusePointwise"])
    (call,) = (node for node in run["graph"]["nodes"] if node["target"] == CALLS[1])
    assert call["args"][-3] is None and call["args"][8] == "add"


@pytest.mark.parametrize("to", ["float16", "bfloat16"])
def test_convert_precision_leaves_what_onednn_computes(service, to):
    """A machine may lack it in the other dtype."""
    model, x = made()
    run = optimise(service, document_of(model, x, "fx"), ["cpu", {"name": "ConvertPrecision", "params": {"to": to}}])
    last = run["passes"][-1]
    assert [one["reason"] for one in last["refused"]].count("no-kernel") == 6 and last["applied"]
    assert error(foldback.pack(from_document(run["graph"]))(x), model(x)) < 2e-2


def test_packed_weights_are_oned_nns_own(service):
    model, x = made()
    run = optimise(service, document_of(model, x, "fx"), ["cpu"])
    live = from_document(run["graph"])
    before = {name: tensor.clone() for name, tensor in live.state_dict().items()}
    packed = foldback.pack(live)
    held = dict(packed.named_buffers())
    assert len(held) == 6 and all(tensor.is_mkldnn for tensor in held.values())
    assert not {name for name, _ in packed.named_parameters() if name.endswith("weight")} - {"narrow.weight"}
    after = live.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
    with pytest.raises(ValueError, match=r"no place for the layout torch\._mkldnn"):
        to_document(packed, x)
    with torch.inference_mode():
        assert torch.equal(packed(x), packed(x))


def test_packed_again(service):
    """Packed weights stay as they are, and no name of the model's own is taken."""

    class Scaled(Net):
        def forward(self, x):
            return super().forward(x) * self._packed_0

    torch.manual_seed(3)
    model, x = Scaled().eval(), made()[1]
    model.register_buffer("_packed_0", torch.randn(2, 8))
    packed = foldback.pack(from_document(optimise(service, document_of(model, x, "fx"), ["cpu"])["graph"]))
    assert error(packed(x), model(x)) < 2e-6 and torch.equal(foldback.pack(packed)(x), packed(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_weights_of_another_dtype_are_refused(service, dtype):
    model, x = made()
    live = from_document(optimise(service, document_of(model, x, "fx"), ["cpu"])["graph"]).to(dtype)
    with pytest.raises(ValueError, match=rf"has no oneDNN for {dtype} on this machine; optimise the model again"):
        foldback.pack(live)


def test_live_module_and_back(service):
    """Edits on the model itself, and rollback: the same object, to the bit."""
    client = foldback.Client(service.url)
    model, x = made()
    live = torch.fx.symbolic_trace(model)
    before, code = live(x), live.code
    run = client.optimize(to_document(live, x), ["cpu"])
    foldback.apply_edits(live, client.edits(run))
    assert error(foldback.pack(live)(x), before) < 2e-6 and "_convolution_pointwise" in live.code
    foldback.apply_edits(live, client.edits(client.rollback(run)))
    assert torch.equal(live(x), before) and live.code == code
    assert foldback.pack(live).code == code  # nothing to lay out


def test_archive(service, tmp_path):
    client = foldback.Client(service.url)
    model, x = made("relu6")
    run = client.optimize(client.put_archive(torch.export.export(model, (x,))), ["cpu"])
    client.archive(run["result"], tmp_path / "cpu.pt2")
    program = torch.export.load(tmp_path / "cpu.pt2")
    live = program.module()
    assert "_convolution_pointwise.binary" in live.code and error(live(x), model(x)) < 2e-6
    assert error(foldback.pack(live)(x), model(x)) < 2e-6
    torch.export.save(program, tmp_path / "again.pt2")
    assert error(torch.export.load(tmp_path / "again.pt2").module()(x), model(x)) < 2e-6


def test_operators_that_are_missing_are_named(service, monkeypatch):
    """Before anything runs."""
    model, x = made()
    run = optimise(service, document_of(model, x, "fx"), ["cpu"])
    live = from_document(run["graph"])
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"has no oneDNN for torch\.float32 on this machine; optimise the model again"):
        foldback.pack(live)
    for node in run["graph"]["nodes"]:
        node["target"] = node["target"].replace("mkldnn._", "mkldnn._other_")
    with pytest.raises(ValueError, match=r"there is no torch\.ops\.mkldnn\._other_\w+\.\w+ here: PyTorch \S+ lacks it\."):
        from_document(run["graph"])


def test_weights_of_another_device_are_refused(service):
    model, x = made()
    live = from_document(optimise(service, document_of(model, x, "fx"), ["cpu"])["graph"]).to("meta")
    with pytest.raises(ValueError, match="is for a CPU, and its weight is on meta"):
        foldback.pack(live)


@pytest.mark.parametrize("then", [None, "aot_eager"])
def test_torch_compile(service, then):
    """The result runs as it is; another backend gets the graph as it was captured."""
    foldback.connect(service.url)
    model, x = made()
    torch._dynamo.reset()
    options = {"passes": ["cpu"]} | ({"then": then} if then else {})
    compiled = torch.compile(model, backend=torch_compile.backend, options=options)
    try:
        with contextlib.nullcontext() if then is None else pytest.warns(UserWarning, match='cannot trace the calls of oneDNN'):
            assert error(compiled(x), model(x)) < 2e-6
    finally:
        foldback.disconnect()
    runs = foldback.compiled_runs(model)
    assert [one["applied"] for one in runs[0]["passes"] if one["name"] == "FusePointwise"][0] == 6 if then is None else not runs


@pytest.mark.parametrize("activation, keeps", [(nn.ReLU, False), (nn.ReLU6, False), (nn.SiLU, True)])
def test_a_nan_is_as_documented(service, activation, keeps):
    """oneDNN's ReLU makes 0 of it, and the evaluator does as well."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.act = nn.Conv2d(8, 8, 1), activation()

        def forward(self, x):
            return self.act(self.convolution(x)).amax((2, 3))

    model, x = Model().eval(), torch.randn(1, 8, 4, 4)
    x[0, 0, 1, 1] = torch.nan
    graph = optimise(service, document_of(model, x, "fx"), ["FusePointwise"])["graph"]
    assert bool(from_document(graph)(x).isnan().any()) == keeps and model(x).isnan().all()
    source = service.post("/v1/graphs", graph).json()["id"]
    answer = service.post(f"/v1/graphs/{source}/evaluate", safetensors.torch.save({"x": x}))
    assert answer.status == 200, answer.text
    assert bool(safetensors.torch.load(answer.body)["output.0"].isnan().any()) == keeps


def test_operators_have_their_weights():
    """pack knows each operator that the pass makes, and where its weight is."""
    for target in CALLS:
        schema = values.resolve(target)._schema
        assert schema.arguments[packing._WEIGHTS[target]].name == "W"
    assert {*packing._WEIGHTS} == {*CALLS} and importlib.import_module("foldback").pack is packing.pack
