"""MergeBranches against PyTorch: blocks as published models are trained with, and random ones; in all dialects, with undo."""

import random

import pytest
import torch
import torch.nn.functional as F
from test_parallel_convolutions import read
from torch import nn

from foldback.fx import from_document, to_document


def scattered(model, seed=0):
    """Statistics and factors as after training."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for tensor, low, high in ((module.running_mean, -1, 1), (module.running_var, 0.2, 2), (module.weight, -1.5, 1.5),
                                      (module.bias, -1, 1)):
                if tensor is not None:
                    tensor.data.uniform_(low, high, generator=generator)
    return model.double().eval()


def conv_norm(inputs, outputs, kernel, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class RepVGGBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1, groups=1):
        super().__init__()
        self.dense, self.point = conv_norm(inputs, outputs, 3, stride, groups), conv_norm(inputs, outputs, 1, stride, groups)
        self.identity = nn.BatchNorm2d(inputs) if inputs == outputs and stride == 1 else None

    def forward(self, x):
        y = self.dense(x) + self.point(x)
        return F.relu(y + self.identity(x) if self.identity is not None else y)


class MobileOneBlock(nn.Module):
    """As timm spells it: from 0 on, and the branches are added in place."""

    def __init__(self, inputs, outputs, kernel=3, stride=1, groups=1, branches=3, act=True):
        super().__init__()
        self.identity = nn.BatchNorm2d(inputs) if inputs == outputs and stride == 1 else None
        self.scale = conv_norm(inputs, outputs, 1, stride, groups) if kernel > 1 and branches else None
        self.kernels = nn.ModuleList(conv_norm(inputs, outputs, kernel, stride, groups) for _ in range(branches))
        self.act = nn.ReLU(inplace=True) if act else nn.Identity()

    def forward(self, x):
        identity = self.identity(x) if self.identity is not None else 0
        out = (self.scale(x) if self.scale is not None else 0) + identity
        for kernel in self.kernels:
            out += kernel(x)
        return self.act(out)


class RepMixer(nn.Module):
    """FastViT's token mixer."""

    def __init__(self, width):
        super().__init__()
        self.norm = MobileOneBlock(width, width, groups=width, branches=0, act=False)
        self.mixer = MobileOneBlock(width, width, groups=width, branches=1, act=False)
        self.layer_scale = nn.Parameter(torch.rand(width, 1, 1))

    def forward(self, x):
        return x + self.layer_scale * (self.mixer(x) - self.norm(x))


class LargeKernel(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.large, self.small = conv_norm(width, width, 7, groups=width), conv_norm(width, width, 3, groups=width)

    def forward(self, x):
        return F.gelu(self.large(x) + self.small(x))


class RepVGGDW(nn.Module):
    """RepViT's: the BatchNorm comes behind the sum."""

    def __init__(self, width):
        super().__init__()
        self.conv = conv_norm(width, width, 3, groups=width)
        self.conv1 = nn.Conv2d(width, width, 1, groups=width)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(self.conv(x) + self.conv1(x) + x)


class ACBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.square = nn.Conv2d(width, width, 3, 1, 1)
        self.rows, self.columns = nn.Conv2d(width, width, (1, 3), 1, (0, 1)), nn.Conv2d(width, width, (3, 1), 1, (1, 0))

    def forward(self, x):
        return F.relu(self.square(x) + self.rows(x) + self.columns(x))


BLOCKS = {
    "repvgg": lambda: nn.Sequential(RepVGGBlock(3, 8, 2), RepVGGBlock(8, 8), RepVGGBlock(8, 8, groups=2), RepVGGBlock(8, 9)),
    "mobileone": lambda: nn.Sequential(MobileOneBlock(3, 8, stride=2), MobileOneBlock(8, 8, groups=8), MobileOneBlock(8, 8, 1)),
    "fastvit": lambda: nn.Sequential(nn.Conv2d(3, 8, 1), RepMixer(8), LargeKernel(8)),
    "repvit": lambda: nn.Sequential(nn.Conv2d(3, 8, 1), RepVGGDW(8), nn.GELU()),
    "acnet": lambda: nn.Sequential(nn.Conv2d(3, 8, 1), ACBlock(8)),
}


def optimise(service, document, passes, **options):
    asked = {"graph": document, "passes": passes, "options": {"include": ["graph"], "lint": "each", **options}}
    answer = service.post("/v1/optimize", asked)
    assert answer.status == 201, answer.body.decode()
    run = answer.json()
    back = service.post(f"/v1/runs/{run['id']}/rollback")
    assert back.status == 201 and back.json()["result"] == run["source"]
    return run


def kinds(document):
    types = {module["path"]: module["type"].rpartition(".")[2] for module in document["modules"]}
    for node in document["nodes"]:
        if node["op"] != "get_attr":
            yield types[node["target"]] if node["op"] == "call_module" else node["target"]


@pytest.mark.parametrize("dialect", ["fx", "aten", "core"])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_the_training_form_becomes_one_convolution(service, name, dialect):
    torch.manual_seed(1)
    model, x = scattered(BLOCKS[name]()), torch.randn(2, 3, 12, 12, dtype=torch.float64)
    run = optimise(service, read(model, x, dialect), ["inference"])
    left = [kind for kind in kinds(run["graph"]) if "orm" in kind or "add" in kind or "sub" in kind or kind.endswith("mul")]
    assert not left
    convolutions = sum("onv" in kind for kind in kinds(run["graph"]))
    assert convolutions == {"repvgg": 4, "mobileone": 3, "fastvit": 3, "repvit": 2, "acnet": 2}[name]
    found = from_document(run["graph"])(x)
    found = found[0] if isinstance(found, tuple) else found
    assert torch.allclose(found, model(x), rtol=1e-11, atol=1e-11)


def test_in_training_nothing_is_merged(service):
    model, x = RepVGGBlock(4, 4).train(), torch.randn(2, 4, 6, 6)
    run = optimise(service, to_document(torch.fx.symbolic_trace(model), x, data=True), ["FuseBatchNorm", "MergeBranches"])
    assert [p["applied"] for p in run["passes"]] == [0, 0]
    assert [r["reason"] for r in run["passes"][1]["refused"]] == ["training-mode"]


def test_reverse_works_until_the_weight_is_trained(service):
    torch.manual_seed(2)
    model, x = ACBlock(4).double().eval(), torch.randn(1, 4, 6, 6, dtype=torch.float64)
    document = read(model, x, "fx")
    run = optimise(service, document, ["MergeBranches"])
    assert run["passes"][0]["applied"] == 1 and run["reversible"]
    back = service.post(f"/v1/runs/{run['id']}/reverse")
    assert back.status == 201 and back.json()["result"] == run["source"]
    merged = from_document(run["graph"])
    with torch.no_grad():
        merged.square.weight.add_(1)
    trained = to_document(merged, x, data=True)
    answer = service.post(f"/v1/runs/{run['id']}/reverse", {"graph": trained})
    assert answer.status == 409, answer.body.decode()
    assert {"computed"} == {c["code"] for c in answer.json()["conflicts"]}


class Net(nn.Module):
    """Terms of one value: convolutions of a few shapes, most of which fit, BatchNorms and the value, added or subtracted."""

    def __init__(self, seed):
        super().__init__()
        r = random.Random(seed)
        self.spatial = r.choice([1, 2, 2, 3])
        self.groups = r.choice([1, 1, 2, 4])
        dilation, stride = r.choice([1, 1, 2]), r.choice([1, 1, 1, 2])
        conv, norm = getattr(nn, f"Conv{self.spatial}d"), getattr(nn, f"BatchNorm{self.spatial}d")
        self.terms, self.signs, self.as_function = nn.ModuleList(), [], []
        for _ in range(r.randint(2, 5)):
            kind = r.random()
            if kind < 0.7 or not self.terms:
                sizes = tuple(r.choice([1, 3, 5]) for _ in range(self.spatial))
                padding = tuple(dilation * (size // 2) for size in sizes)
                if r.random() < 0.1:
                    padding = r.choice([0, 1, "valid"])
                if r.random() < 0.15 and stride == 1:
                    padding = "same"
                self.terms.append(conv(4, 4, sizes, stride, padding, dilation, self.groups, r.random() < 0.5,
                                       r.choice(["zeros"] * 8 + ["circular"]) if padding != "same" else "zeros"))
            else:
                self.terms.append(norm(4, affine=r.random() < 0.7) if kind < 0.85 else nn.Identity())
            self.signs.append(r.choice(["+", "+", "-", "+="]))
            self.as_function.append(r.random() < 0.3)
        self.reader = r.choice([F.relu, torch.tanh, lambda y: y.sum(-1), lambda y: y.clone().add_(1), lambda y: y.relu_()])
        self.writes = r.random() < 0.05

    def term(self, i, x):
        layer = self.terms[i]
        if self.as_function[i] and isinstance(layer, nn.modules.conv._ConvNd) and layer.padding_mode == "zeros":
            function = (F.conv1d, F.conv2d, F.conv3d)[self.spatial - 1]
            return function(x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)
        return layer(x)

    def forward(self, x):
        x = torch.relu(x)
        y = self.term(0, x)
        for i in range(1, len(self.terms)):
            if i == 1 and self.writes:
                x.mul_(2)
            z = self.term(i, x)
            if self.signs[i] == "+=":
                y = y.add_(z) if i > 1 else y + z
            else:
                y = y + z if self.signs[i] == "+" else y - z
        return self.reader(y)


@pytest.mark.parametrize("dialect", ["fx", "aten", "core"])
def test_random_sums_keep_their_numbers(service, dialect):
    applied = refused = 0
    for seed in range(60 if dialect == "fx" else 6):
        torch.manual_seed(seed)
        model = scattered(Net(seed), seed)
        x = torch.randn((2, 4) + (9,) * model.spatial, dtype=torch.float64)
        formats = {2: torch.channels_last, 3: torch.channels_last_3d}
        if seed % 2 and model.spatial in formats:
            x = x.contiguous(memory_format=formats[model.spatial])
        try:
            expected = model(x.clone(memory_format=torch.preserve_format))
        except RuntimeError:
            continue  # results of different sizes
        run = optimise(service, read(model, x, dialect), ["MergeBranches"])
        applied += run["passes"][0]["applied"]
        refused += len(run["passes"][0]["refused"])
        if not run["passes"][0]["applied"]:
            continue
        found = from_document(run["graph"])(x.clone(memory_format=torch.preserve_format))
        found = found[0] if isinstance(found, tuple) else found
        assert found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-11, atol=1e-11), seed
        assert found.stride() == expected.stride(), seed
    assert applied >= (15 if dialect == "fx" else 1), (applied, refused)
