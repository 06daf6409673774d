"""Weights in channels_last: a document says it, and every way to load it lays them out so; numbers and strides are
PyTorch's."""

import copy
import os
import subprocess

import pytest
import torch
from torch import nn

import foldback.export
import foldback.fx
from foldback import apply_edits, torch_compile

LAST = torch.channels_last


class Net(nn.Module):
    """A small residual network, with a depthwise, a pixelwise, a grouped and a transposed convolution."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.depth, self.pixel = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 1)
        self.grouped, self.up = nn.Conv2d(32, 32, 3, padding=1, groups=4), nn.ConvTranspose2d(32, 8, 2, 2)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu(self.bn(self.stem(x)))
        y = self.pixel(y + self.depth(y))
        y = self.up(torch.relu(y + self.grouped(y)))
        return self.head(y.mean((2, 3)))


MOVED = {"stem.weight", "grouped.weight", "up.weight"}


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(2, 3, 64, 64)


def laid_out(module):
    """Names of what is in channels_last and not row-major."""
    return {name for name, tensor in [*module.named_parameters(), *module.named_buffers()]
            if tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=LAST)}


def said(document):
    return {row["name"] for row in document["tensors"] if row.get("memory_format") == "channels_last"}


class Strides(torch.fx.Interpreter):
    def run_node(self, node):
        made = super().run_node(node)
        if isinstance(made, torch.Tensor):
            self.strides[node.name] = made.stride()
        return made

    def of(module, x):
        interpreter = Strides(module)
        interpreter.strides = {}
        interpreter.run(x)
        return interpreter.strides


def test_a_live_module_is_edited_and_comes_back(client, net):
    model, x = net
    live = torch.fx.symbolic_trace(model)
    parameters, before = dict(live.named_parameters()), {name: tensor.clone() for name, tensor in live.state_dict().items()}
    expected, source = live(x), foldback.fx.to_document(live, x)
    assert not said(source)
    run = client.optimize(source, ["ChannelsLast"])
    assert run["passes"][0]["applied"] == 1
    result = client.graph(run["result"])
    assert said(result) == MOVED
    apply_edits(live, client.edits(run))
    assert laid_out(live) == MOVED
    # The same objects
    assert all(live.get_parameter(name) is parameter for name, parameter in parameters.items())
    assert all(torch.equal(tensor, before[name]) for name, tensor in live.state_dict().items())
    assert torch.allclose(live(x), expected, atol=1e-5)
    assert client.put_graph(foldback.fx.to_document(live, x)) == run["result"]  # the member is written again
    strides = Strides.of(live, x)
    assert all(strides[name][1] == 1 for name in ("stem", "pixel", "grouped", "up"))
    copied = copy.deepcopy(live)
    assert laid_out(copied) == MOVED

    apply_edits(live, client.edits(client.rollback(run)))
    assert not laid_out(live)
    assert client.put_graph(foldback.fx.to_document(live, x)) == run["source"]
    assert torch.equal(live(x), expected)


def test_training_goes_on_and_comes_back(client, net):
    model, x = net
    model.train()
    live = torch.fx.symbolic_trace(model)
    optimizer = torch.optim.SGD(live.parameters(), 0.1, momentum=0.9)

    def step():
        optimizer.zero_grad()
        live(x).square().mean().backward()
        optimizer.step()

    step()
    run = client.optimize(foldback.fx.to_document(live, x), ["ChannelsLast"])
    apply_edits(live, client.edits(run))
    step()
    step()
    trained = {name: tensor.clone() for name, tensor in live.state_dict().items()}
    assert laid_out(live) >= MOVED
    back = client.reverse(run, graph=foldback.fx.to_document(live, x, digests=True))
    apply_edits(live, client.edits(back))
    assert not laid_out(live)
    assert all(torch.equal(tensor, trained[name]) for name, tensor in live.state_dict().items())


@pytest.mark.parametrize("is_made_so", [False, True])
@pytest.mark.parametrize("is_edited_so", [False, True])
def test_a_tensor_stays_of_inference_mode_or_not(client, is_made_so, is_edited_so):
    """PyTorch takes the other kind as its data; then it cannot be trained, or counts no writes."""
    with torch.inference_mode(is_made_so):
        model, x = Net().eval(), torch.randn(2, 3, 64, 64)
    live = torch.fx.symbolic_trace(model)
    run = client.optimize(foldback.fx.to_document(live, x), ["ChannelsLast"])
    with torch.inference_mode(is_edited_so):
        apply_edits(live, client.edits(run))
    assert laid_out(live) == MOVED and all(one.is_inference() == is_made_so for one in live.parameters())
    if not is_made_so:
        live(x).sum().backward()
    apply_edits(live, client.edits(client.rollback(run)))
    assert not laid_out(live)


def test_after_a_fold(client, net):
    """The folded weight is new, and is laid out; the original, which comes back, is not."""
    model, x = net
    live = torch.fx.symbolic_trace(model)
    expected = live(x)
    run = client.optimize(foldback.fx.to_document(live, x), ["latency"])
    apply_edits(live, client.edits(run))
    assert laid_out(live) == MOVED and torch.allclose(live(x), expected, atol=1e-4)
    second = client.optimize(foldback.fx.to_document(live, x), ["latency"])
    assert second["result"] == second["source"]
    apply_edits(live, client.edits(client.rollback(run)))
    assert not laid_out(live) and torch.equal(live(x), expected)


@pytest.mark.parametrize("dialect", ["fx", "export"])
def test_from_document(client, net, dialect):
    model, x = net
    if dialect == "fx":
        document = foldback.fx.to_document(torch.fx.symbolic_trace(model), x, data=True)
    else:
        document = foldback.export.from_exported_program(torch.export.export(model, (x,)), data=True)
    run = client.optimize(document, ["latency"])
    result = client.graph(run["result"])
    made = foldback.fx.from_document(result)
    assert len(laid_out(made)) == 3
    found = made(x)
    assert torch.allclose(found, model(x), atol=1e-4)
    again = foldback.fx.to_document(made, x) if dialect == "fx" else foldback.fx.to_document(made)
    assert len(said(again)) == 3
    # The very objects of a module that is given
    given = copy.deepcopy(model)
    held = dict(given.named_parameters())
    only_laid_out = client.graph(client.optimize(document, ["ChannelsLast"])["result"])
    live = foldback.fx.from_document(only_laid_out, given)
    assert laid_out(live) == MOVED and all(live.get_parameter(name) is held[name] for name in MOVED)


def test_the_source_says_what_it_has(client, net):
    """A model that was converted by hand: documents of both dialects say so, and ChannelsLast finds nothing to do."""
    model, x = net
    model = model.to(memory_format=LAST)
    for document in (foldback.fx.to_document(torch.fx.symbolic_trace(model), x),
                     foldback.export.from_exported_program(torch.export.export(model, (x,)))):
        assert said(document) == MOVED | {"depth.weight", "pixel.weight"}
        run = client.optimize(document, ["ChannelsLast"])
        assert run["passes"][0]["applied"] == 0 and not run["passes"][0]["refused"]
    folded = client.graph(client.optimize(document, ["FuseBatchNorm"])["result"])
    assert len([row for row in folded["tensors"] if row.get("memory_format") and "recipe" in row]) == 1
    live = torch.fx.symbolic_trace(model)
    apply_edits(live, client.edits(client.optimize(foldback.fx.to_document(live, x), ["FuseBatchNorm"])))
    assert laid_out(live) == MOVED


@pytest.mark.parametrize("dialect", ["fx", "export"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_both_orders(dialect, dtype):
    """The elements of these weights have both orders. PyTorch goes by the strides: the image is in channels_last."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose2d(3, 4, 1), nn.Conv2d(4, 8, 3, groups=4)).to(dtype).to(memory_format=LAST)
    x = torch.randn(2, 3, 4, 4, dtype=dtype)
    document = foldback.fx.to_document(torch.fx.symbolic_trace(model), data=True) if dialect == "fx" else (
        foldback.export.from_exported_program(torch.export.export(model, (x,)), data=True))
    made = foldback.fx.from_document(document)
    assert sorted(tensor.stride() for tensor in made.parameters()) == sorted(tensor.stride() for tensor in model.parameters())
    assert made(x).stride() == model(x).stride() and torch.equal(made(x), model(x))


@pytest.mark.parametrize("kernel", [1, 2])
def test_what_is_made_of_such_a_weight_lies_as_it(client, kernel):
    class Scaled(nn.Sequential):
        def forward(self, x):
            return self[0](x * 2)

    model, x = Scaled(nn.ConvTranspose2d(3, 4, kernel, bias=False)).to(memory_format=LAST), torch.randn(3, 3, 4)
    live = torch.fx.symbolic_trace(model)
    run = client.optimize(foldback.fx.to_document(live, x), ["FoldScaleIntoLinear"])
    apply_edits(live, client.edits(run))
    assert run["passes"][0]["applied"] == 1 and live(x).stride() == model(x).stride()


def test_three_dimensions_and_what_does_not_fit(client):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv3d(2, 4, 3)).eval(), torch.randn(1, 2, 5, 5, 5)
    document = foldback.fx.to_document(torch.fx.symbolic_trace(model), x, data=True)
    for said_so, format_, fits in (("channels_last_3d", torch.channels_last_3d, True), ("channels_last", None, False),
                                   ("mine", None, False)):
        document["tensors"][0]["memory_format"] = said_so
        assert client.put_graph(document)
        made = foldback.fx.from_document(document)
        assert made.get_parameter("0.weight").is_contiguous() != fits
        assert not fits or made.get_parameter("0.weight").is_contiguous(memory_format=format_)
        assert torch.allclose(made(x), model(x), atol=1e-6)


def test_volumes_keep_their_format(client, tmp_path):
    """Weights of conv3d that lie in channels_last_3d, in documents, after a fold, its undo, and in an archive. ChannelsLast
    leaves them and row-major ones alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv3d(4, 8, 3), nn.BatchNorm3d(8), nn.Conv3d(8, 8, 3, groups=2)).eval()
    x = torch.randn(2, 4, 6, 6, 6)
    for format_ in (torch.contiguous_format, torch.channels_last_3d):
        model = model.to(memory_format=format_)
        lies = format_ != torch.contiguous_format
        program, live = torch.export.export(model, (x,)), torch.fx.symbolic_trace(model)
        expected = model(x)
        assert expected.stride()[1] == 1 if lies else expected.is_contiguous()
        for document in (foldback.fx.to_document(live, x), foldback.export.from_exported_program(program)):
            formats = [row.get("memory_format") for row in document["tensors"] if len(row["shape"]) == 5]
            assert formats == ["channels_last_3d" if lies else None] * 2
            (outcome,) = client.optimize(document, ["ChannelsLast"])["passes"]
            assert outcome["applied"] == 0
            run = client.optimize(document, ["FuseBatchNorm"])
            assert run["passes"][0]["applied"] == 1 and client.rollback(run)["result"] == run["source"]
        apply_edits(live, client.edits(client.optimize(foldback.fx.to_document(live, x), ["FuseBatchNorm"])))
        torch.export.save(program, tmp_path / "model.pt2")
        command = [os.environ["FOLDBACK_BINARY"], "--data", tmp_path / "data", "optimize", tmp_path / "model.pt2"]
        command += ["--pass", "FuseBatchNorm", "-o", tmp_path / f"{lies}.pt2"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        archived = torch.export.load(tmp_path / f"{lies}.pt2").module()
        for made in (live, archived):
            weights = [tensor for tensor in made.parameters() if tensor.dim() == 5]
            assert len(weights) == 2 and all(tensor.is_contiguous(memory_format=format_) for tensor in weights)
            assert torch.allclose(made(x), expected, atol=1e-5) and made(x).stride() == expected.stride()


def test_torch_compile_chooses_itself(service, net):
    """Weights stay as they are, and the passes apply."""
    model, x = net
    foldback.connect(service.url)
    torch._dynamo.reset()
    try:
        compiled = torch.compile(model, backend=torch_compile.backend, options={"passes": ["latency"], "then": "eager"})
        with torch.no_grad():
            assert torch.allclose(compiled(x), model(x), atol=1e-4)
        (run,) = foldback.compiled_runs(model)
        assert not laid_out(model) and any(one["name"] == "ChannelsLast" and one["applied"] for one in run["passes"])
    finally:
        foldback.disconnect()
