"""FoldPad against PyTorch on random nets, in both dialects: numbers, strides, and an undo that gives the same id."""

import random

import pytest
import torch
import torch.nn.functional as F
from sample import few
from torch import nn

import foldback
import foldback.export
from foldback.fx import from_document, to_document

LAYOUTS = {2: torch.channels_last, 3: torch.channels_last_3d}


def pads(r, spatial):
    """Mostly what can be folded."""
    sizes = [side for _ in range(spatial) for side in [r.randint(0, 2)] * 2]
    kind = r.random()
    if kind < 0.1:
        sizes[0] += 1
    elif kind < 0.15:
        sizes = [-1, -1, *sizes[2:]]
    elif kind < 0.2:
        sizes += [1, 1]
    return tuple(sizes)


class Step(nn.Module):
    """A pad, and what reads it."""

    def __init__(self, r, spatial, channels):
        super().__init__()
        self.sizes, self.spatial, self.value = pads(r, spatial), spatial, 0.5 if r.random() < 0.1 else 0
        self.how = r.choice(["pad", "module", "zeros", "keywords"])
        if len(self.sizes) == 2 * spatial:
            self.module = getattr(nn, f"ConstantPad{spatial}d")(self.sizes, self.value)
            self.zeros = getattr(nn, f"ZeroPad{spatial}d")(self.sizes)
        else:
            self.how = "pad"
        kernel = r.choice([1, 2, 3])
        stride = r.choice([1, 2])
        self.is_pool, self.is_function = r.random() < 0.35, r.random() < 0.4
        own = r.choice([0, 0, 1]) if kernel > 1 else 0
        if self.is_pool:
            more = {"ceil_mode": r.random() < 0.1, "count_include_pad": r.random() < 0.9}
            self.read = getattr(nn, f"AvgPool{spatial}d")(kernel, stride, own, **more)
        else:
            own = r.choice([own, own, "valid", "same" if stride == 1 else 0])
            more = {"padding_mode": r.choice(["zeros"] * 5 + ["circular"])}
            groups = r.choice([1, 1, channels])
            self.read = getattr(nn, f"Conv{spatial}d")(
                channels, channels, kernel, stride, own, r.choice([1, 2]), groups, bias=r.random() < 0.5, **more)
            self.is_function &= self.read.padding_mode == "zeros"
            if r.random() < 0.1:
                self.read = getattr(nn, f"ConvTranspose{spatial}d")(channels, channels, kernel)
                self.is_function = False
        self.calls, self.shows, self.writes = r.choice([1, 1, 1, 2]), r.random() < 0.1, r.random() < 0.1

    def pad(self, x):
        if self.how == "module":
            return self.module(x)
        if self.how == "zeros":
            return self.zeros(x)
        return (F.pad(x, self.sizes, value=self.value) if self.how == "keywords"
                else F.pad(x, self.sizes, "constant", self.value))

    def apply_to(self, x):
        read = self.read
        if not self.is_function:
            return read(x)
        if self.is_pool:
            function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[self.spatial - 1]
            return function(x, read.kernel_size, read.stride, read.padding, read.ceil_mode, read.count_include_pad)
        function = (F.conv1d, F.conv2d, F.conv3d)[self.spatial - 1]
        if read.groups == 1 and read.dilation == (1,) * self.spatial and read.padding in (0, (0,) * self.spatial):
            return function(x, read.weight, read.bias, read.stride)
        return function(x, read.weight, read.bias, read.stride, read.padding, read.dilation, read.groups)

    def forward(self, x):
        shown = []
        for _ in range(self.calls):
            padded = self.pad(x)
            if self.writes:
                x = x.mul_(1.5) if self.calls == 1 else x
            if self.shows:
                shown.append(padded.sum())
            x = self.apply_to(padded)
        return x, shown


class Net(nn.Module):
    def __init__(self, seed):
        super().__init__()
        r = random.Random(seed)
        self.spatial, self.is_batched = r.choice([1, 2, 2, 3]), r.random() < 0.8
        self.steps = nn.ModuleList(Step(r, self.spatial, 4) for _ in range(r.randint(1, 3)))
        self.ends = r.choice(["flatten", "return", "view"])

    def forward(self, x):
        x, shown = torch.relu(x), []
        for step in self.steps:
            x, more = step(x)
            shown += more
        if self.ends == "flatten":
            x = x.flatten(0)
        elif self.ends == "view":
            x = torch.tanh(x).contiguous().view(-1)
        return (x, *shown)


def read(model, x, dialect):
    if dialect == "fx":
        return to_document(torch.fx.symbolic_trace(model), x, data=True)
    program = torch.export.export(model, (x,))
    return foldback.export.from_exported_program(program.run_decompositions() if dialect == "core" else program, data=True)


def optimise(service, document):
    asked = {"graph": document, "passes": ["FoldPad"], "options": {"include": ["graph"], "lint": "each"}}
    answer = service.post("/v1/optimize", asked)
    assert answer.status == 201, answer.body.decode()
    run = answer.json()
    back = service.post(f"/v1/runs/{run['id']}/rollback")
    assert back.status == 201 and back.json()["result"] == run["source"]
    return run


def sample(model, layout):
    x = torch.randn((2, 4) + (8,) * model.spatial, dtype=torch.float64)
    if layout == "channels-last":
        x = x.contiguous(memory_format=LAYOUTS[model.spatial]) if model.spatial > 1 else x.mT.contiguous().mT
    elif layout == "cut":
        x = x[..., ::2]
    return x if model.is_batched else x[0]


@pytest.mark.parametrize("dialect", ["fx", "aten", "core"])
@pytest.mark.parametrize("layout", ["contiguous", "channels-last", "cut"])
def test_random_nets_keep_their_numbers_and_strides(service, dialect, layout):
    applied = 0
    for seed in range(few(60 if dialect == "fx" else 16)):
        torch.manual_seed(seed)
        model = Net(seed).double().eval()
        x = sample(model, layout)
        copy = lambda: x.clone(memory_format=torch.preserve_format)
        try:
            expected = model(copy())
        except RuntimeError:
            continue  # a pool that pads too much, too small a value, or a view that there is not
        run = optimise(service, read(model, copy(), dialect))
        applied += run["passes"][0]["applied"]
        found = from_document(run["graph"])(copy())
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape and a.stride() == b.stride(), seed
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-12), seed
    assert applied >= few(3)


def test_two_calls_padded_alike(service):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.pad, self.conv = nn.ZeroPad2d(1), nn.Conv2d(4, 4, 3)

        def forward(self, x):
            return self.conv(self.pad(self.conv(self.pad(x))))

    model, x = Twice().double().eval(), torch.randn(2, 4, 6, 6, dtype=torch.float64)
    run = optimise(service, read(model, x, "fx"))
    assert run["passes"][0]["applied"] == 1 and not run["passes"][0]["refused"]
    assert [node["target"] for node in run["graph"]["nodes"]] == ["x", "conv", "conv", "output"]
    assert torch.allclose(from_document(run["graph"])(x), model(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spatial", [2, 3])
def test_archives_of_valid_convolutions(service, tmp_path, spatial):
    """conv2d.padding with "valid", which torch.export leaves out as the default, takes no numbers. What version 1 made of it is
    not sent."""

    class Valid(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = getattr(nn, f"Conv{spatial}d")(3, 4, 3, padding="valid")

        def forward(self, x):
            return self.conv(F.pad(x, (1, 1) * spatial))

    model, x = Valid().eval(), torch.randn((2, 3) + (6,) * spatial)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
    client = foldback.Client(service.url)
    graph = client.put_archive(tmp_path / "model.pt2")
    run = client.optimize(graph, ["FoldPad"])
    assert run["passes"][0]["applied"] == 1
    client.archive(run["result"], tmp_path / "folded.pt2")
    torch.testing.assert_close(torch.export.load(tmp_path / "folded.pt2").module()(x), model(x), rtol=1e-5, atol=1e-6)
    wrong = client.optimize(graph, [{"name": "FoldPad", "version": 1}])
    with pytest.raises(foldback.Problem, match="PyTorch has no torch.ops.aten.conv"):
        client.archive(wrong["result"], tmp_path / "wrong.pt2")
