"""Nothing is silently skipped: after run_decompositions(), and where views stand between layers. gaps.py has the whole
survey."""

import gaps
import pytest
import torch
from torch import nn

import foldback


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.next, self.bn2 = nn.Conv2d(6, 6, 3, groups=2), nn.BatchNorm2d(6)
        self.up, self.bn3 = nn.ConvTranspose2d(6, 4, 2), nn.BatchNorm2d(4)
        self.flat, self.bn4 = nn.Conv1d(4, 5, 2), nn.BatchNorm1d(5)
        self.fc, self.bn5 = nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        x = torch.relu(self.bn(self.stem(x)))
        x = nn.functional.max_pool2d(self.bn2(self.next(x)), 2)
        x = self.bn4(self.flat(self.bn3(self.up(x)).flatten(2)))
        return self.head(self.bn5(self.fc(x.mean(-1))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out_norm = nn.LayerNorm(8), nn.LayerNorm(8)
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
        self.out, self.gamma = nn.Linear(8, 8), nn.Parameter(torch.randn(8))

    def forward(self, x):
        y = self.norm(x)
        scores = torch.softmax(self.q(y) @ self.k(y).transpose(-1, -2) / 8**0.5, -1)
        return x + self.gamma * self.out(self.out_norm(scores @ self.v(y)))


class Levit(nn.Module):
    """As transformers' LevitForImageClassification has it."""

    def __init__(self):
        super().__init__()
        self.a, self.bn_a = nn.Linear(8, 6, bias=False), nn.BatchNorm1d(6)
        self.b, self.bn_b = nn.Linear(6, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        x = self.a(x)
        x = torch.relu(self.bn_a(x.flatten(0, 1)).reshape_as(x))
        y = self.b(x)
        return self.bn_b(y.flatten(0, 1)).reshape_as(y)


class ThroughViews(nn.Module):
    """Where the channels stay together they are folded, on whatever axis they come."""

    def __init__(self):
        super().__init__()
        self.fc, self.bn = nn.Linear(8, 6), nn.BatchNorm1d(6)
        self.conv, self.bn1 = nn.Conv2d(3, 5, 4), nn.BatchNorm1d(5)
        self.bn2, self.last = nn.BatchNorm1d(6), nn.Linear(6, 4)

    def forward(self, x, image):
        y = self.bn(self.fc(x).transpose(1, 2))  # the channels come from the last axis
        z = self.bn1(self.conv(image).flatten(1))
        return y * 2, z, self.last(self.bn2(x.flatten(0, 1)[:, :6]).reshape(-1, 2, 6))


class Scattered(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn = nn.Linear(8, 6), nn.BatchNorm1d(6)

    def forward(self, x):
        return self.bn(self.fc(x).transpose(1, 2).reshape(-1, 6))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.bn = nn.Linear(8, 6), nn.BatchNorm1d(6)

    def forward(self, x):
        y = self.fc(x)
        flat = y.flatten(0, 1)
        return self.bn(flat) + flat


def made(kind):
    torch.manual_seed(1)
    module = kind()
    for child in module.modules():
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            child.running_mean.normal_()
            child.running_var.uniform_(0.5, 2)
        if hasattr(child, "weight") and isinstance(child, (nn.modules.batchnorm._BatchNorm, nn.LayerNorm)):
            nn.init.uniform_(child.weight, -2, 2)
            nn.init.normal_(child.bias)
    return module.double().eval()


def documents(module, inputs):
    """In both dialects, and after run_decompositions()."""
    yield "torch.fx", foldback.fx.to_document(torch.fx.symbolic_trace(module), *inputs, data=True)
    with torch.no_grad():
        program = torch.export.export(module, tuple(inputs))
        yield "torch.export", foldback.export.from_exported_program(program, data=True)
        yield "decomposed", foldback.export.from_exported_program(program.run_decompositions(), data=True)


X, IMAGE = torch.randn(2, 5, 8, dtype=torch.float64), torch.randn(2, 3, 9, 9, dtype=torch.float64)
MODELS = {
    Vision: [IMAGE],
    Attention: [X],
    Levit: [X],
    ThroughViews: [torch.randn(2, 4, 8, dtype=torch.float64), IMAGE[:, :, :4, :4]],
    Scattered: [X],
    Shared: [X],
}
FOLDED = {Vision: 5, Levit: 2, ThroughViews: 3, Scattered: 0, Shared: 0}
REFUSED = {Scattered: {"channels-moved", "needs-contiguous"}, Shared: {"shared-output"}, ThroughViews: {"needs-contiguous"}}


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_nothing_is_skipped_in_silence(service, kind):
    module, inputs = made(kind), MODELS[kind]
    with torch.no_grad():
        expected = module(*inputs)

    def optimize(document, names):
        request = {"graph": document, "passes": names,
                   "options": {"include": ["graph"], "lint": "each", "validate": "rewrites"}}
        answer = service.post("/v1/optimize", request)
        assert answer.status == 201, answer.body.decode()
        run = answer.json()
        if all(outcome["exactness"] != "changes" for outcome in run["passes"]):
            with torch.no_grad():
                torch.testing.assert_close(foldback.fx.from_document(run["graph"])(*inputs), expected, rtol=1e-10, atol=1e-10)
        rolled_back = service.post(f"/v1/runs/{run['id']}/rollback")
        assert rolled_back.status == 201 and rolled_back.json()["result"] == run["source"]
        return run

    for form, document in documents(module, inputs):
        skipped, unknown, _ = gaps.Survey(optimize).see(document)
        assert not skipped and not unknown, (form, skipped, unknown)
        (fold,) = optimize(document, ["FuseBatchNorm"])["passes"]
        if kind in FOLDED:
            assert fold["applied"] + len(fold["refused"]) == max(FOLDED[kind],
                                                                 1) and fold["applied"] <= FOLDED[kind], (form, fold)
            assert {item["reason"] for item in fold["refused"]} <= REFUSED.get(kind, set()), (form, fold)
        left = {node["target"] for node in optimize(document, ["inference"])["graph"]["nodes"]}
        if FOLDED.get(kind) and kind is not ThroughViews:
            assert not any("batch_norm" in target or "bn" in target for target in left), (form, left)


def resnet50():
    """As torchvision's resnet50, whose package is not needed here."""

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            self.relu, self.downsample = nn.ReLU(inplace=True), None
            if stride != 1 or inputs != 4 * width:
                self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
            return self.relu(y + (x if self.downsample is None else self.downsample(x)))

    layers, inputs = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                      nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def calls(document):
    return sum(node["op"].startswith("call") and node["target"] != "operator.getitem" for node in document["nodes"])


@pytest.mark.parametrize("is_decomposed", [False, True], ids=["torch.export", "decomposed"])
def test_a_resnet50_loses_its_batch_norms(service, is_decomposed):
    module, inputs = made(resnet50), [torch.randn(1, 3, 64, 64, dtype=torch.float64)]
    with torch.no_grad():
        expected = module(*inputs)
        program = torch.export.export(module, tuple(inputs))
        program = program.run_decompositions() if is_decomposed else program
    document = foldback.export.from_exported_program(program)
    answer = service.post("/v1/optimize", {"graph": document, "passes": ["FuseBatchNorm"], "options": {"include": ["graph"]}})
    assert answer.status == 201, answer.body.decode()
    graph = answer.json()["graph"]
    assert answer.json()["passes"][0]["applied"] == 53 and not answer.json()["passes"][0]["refused"]
    permuted = 1 if is_decomposed else 0  # the last Linear is permute and addmm
    assert (calls(document), calls(graph)) == (175 + permuted, 122 + permuted)
    with torch.no_grad():
        live = foldback.fx.from_document(graph, module=program.module())
        torch.testing.assert_close(live(*inputs), expected, rtol=1e-9, atol=1e-9)
