"""ChannelsLast against PyTorch on random nets, in three dialects: numbers, strides, and an undo that gives the same id."""

import random
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from sample import IS_SHORT
from torch import nn

import foldback.export
from foldback.fx import from_document, to_document

sys.path.append(str(Path(__file__).parents[2] / "clients/python/tests"))
import test_memory_layout
import vision_models


class Norm(nn.Module):
    """Over the channels, as ConvNeXt has it."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Step(nn.Module):
    """What is done to an image of eight channels; most of it gives one again."""

    KINDS = """conv conv conv conv depthwise transposed bn relu relu_ relu6 hardswish max avg adaptive double add add_ mul_
    shuffle upsample interpolate pad reflect chunk shuffled squeeze norm group instance dropout contiguous clone tokens
    back_view back_reshape flat_write view_write set permuted_write where softmax prelu narrow matmul mean_add one ones_like
    max_indices flip gelu_tanh cast split_view view_pixels unflatten stack select_write returned strided""".split()

    def __init__(self, r, width):
        super().__init__()
        self.kind = r.choice(self.KINDS)
        self.number = r.choice([0.5, 2, -1])
        if self.kind == "conv":
            self.part = nn.Conv2d(width, width, r.choice([1, 3, (1, 3)]), r.choice([1, 1, 2]), r.choice([0, 1]),
                                  groups=r.choice([1, 1, 2]), bias=r.random() < 0.5)
        elif self.kind == "depthwise":
            self.part = nn.Conv2d(width, width, 3, padding=1, groups=width,
                                  padding_mode=r.choice(["zeros", "zeros", "circular", "reflect"]))
        elif self.kind == "transposed":
            self.part = nn.ConvTranspose2d(width, width, 2, 2)
        elif self.kind == "bn":
            self.part = nn.BatchNorm2d(width)
        elif self.kind == "norm":
            self.part = Norm(width)
        elif self.kind == "group":
            self.part = nn.GroupNorm(2, width)
        elif self.kind == "instance":
            self.part = nn.InstanceNorm2d(width, affine=True)
        elif self.kind == "prelu":
            self.part = nn.PReLU(width)
        elif self.kind == "squeeze":
            self.part = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 4, 1), nn.ReLU(True),
                                      nn.Conv2d(4, width, 1), nn.Sigmoid())
        elif self.kind == "matmul":
            self.part = nn.Linear(width, width)

    def forward(self, x, before, shown):
        kind = self.kind
        n, c, h, w = x.shape
        if hasattr(self, "part"):
            if kind == "squeeze":
                return x * self.part(x)
            if kind == "matmul":
                return self.part(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(n, c, h, w)
            return self.part(x)
        match kind:
            case "relu": return F.relu(x)
            case "relu_": return F.relu_(x)
            case "relu6": return F.relu6(x, inplace=True)
            case "hardswish": return F.hardswish(x)
            case "max": return F.max_pool2d(x, 2, 1, 1)
            case "avg": return F.avg_pool2d(x, 3, 1, 1)
            case "adaptive": return F.adaptive_avg_pool2d(x, (3, 2))
            case "one": return x + F.adaptive_avg_pool2d(x, 1)
            case "double": return torch.cat([x, x * 2], 1)[:, ::2]
            case "add": return x + before if before.shape == x.shape else x + x.mean()
            case "add_": return x.add_(before) if before.shape == x.shape else x.add_(1)
            case "mul_": return x.mul_(self.number)
            case "shuffle": return F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2)
            case "upsample": return F.interpolate(x, scale_factor=2, mode="nearest")[:, :, :8, :8]
            case "interpolate": return F.interpolate(x, size=(4, 5), mode="bilinear")
            case "pad": return F.pad(x, (1, 0, 0, 1))
            case "reflect": return F.pad(x, (1, 1, 1, 1), mode="reflect")
            case "chunk":
                a, b = x.chunk(2, 1)
                return torch.cat((b, a.tanh()), 1)
            case "shuffled": return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
            case "dropout": return F.dropout(x, 0.5, False)
            case "contiguous": return x.contiguous()
            case "clone": return x.clone()
            case "tokens": return x.flatten(2).transpose(1, 2).softmax(-1).transpose(1, 2).reshape(n, c, h, w)
            case "back_view": return x.view(n, c, h * w).view(n, c, h, w)
            case "back_reshape": return x.reshape(n, c // 2, 2 * h, w).reshape(n, c, h, w)
            case "flat_write":
                y = x.flatten(1)
                y.add_(1)
                return x
            case "view_write":
                x.view(n, 2, c // 2, h, w).mul_(2)
                return x
            case "permuted_write":
                x.permute(0, 2, 3, 1).mul_(2)
                return x
            case "select_write":
                x.select(1, 0).add_(1)
                return x * 2
            case "set":
                x = x.clone()
                x[:, 0] = 1
                return x
            case "where": return torch.where(x > 0, x, x * 0.1)
            case "softmax": return x.softmax(1)
            case "narrow": return x.narrow(2, 0, max(h - 1, 1))
            case "mean_add": return x - x.mean((2, 3), keepdim=True) + x.mean(1, keepdim=True)
            case "ones_like": return x + torch.ones_like(x)
            case "max_indices":
                y, indices = F.max_pool2d(x, 2, 1, return_indices=True)
                return y + indices.sum()
            case "flip": return x.transpose(2, 3)
            case "gelu_tanh": return F.gelu(x, approximate="tanh")
            case "cast": return x.float().double()
            case "split_view": return x.view(n, c, h, 1, w).squeeze(3)
            case "view_pixels": return x.view(n, c, h * w).softmax(-1).reshape(n, c, h, w)
            case "unflatten": return x.unflatten(1, (2, c // 2)).sum(1).repeat(1, 2, 1, 1)
            case "stack": return torch.stack([x, x * 2], 1).amax(1)
            case "returned":
                shown.append(x.sum((2, 3)))
                shown.append(x.flatten(1).sum(1))
                return x
            case "strided": return x * x.stride(1) if self.number == 2 else x.relu()
        raise AssertionError(kind)


class Net(nn.Module):
    ENDS = ("flatten mean pooled_view pooled_flatten pooled_squeeze conv_view image argmax view linear pooled channel sum amax "
            "reshape_linear".split())

    def __init__(self, seed):
        super().__init__()
        r = random.Random(seed)
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.steps = nn.ModuleList(Step(r, 8) for _ in range(r.randint(1, 5)))
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, r.choice([1, 3]), padding=1) for _ in range(4))
        self.where = [r.randrange(len(self.steps)) for _ in self.convs]
        self.last, self.linear = nn.Conv2d(8, 1, 1), nn.Linear(8, 3)
        self.end, self.shift = r.choice(self.ENDS), r.choice([None, None, 0.5])

    def forward(self, x):
        shown = []
        x = self.stem(x if self.shift is None else (x - self.shift) * 2)
        x = F.max_pool2d(x, 3, 1, 1)  # which pays for all the rest
        before = x
        for index, step in enumerate(self.steps):
            now = step(x, before, shown)
            x, before = now, x
            for conv, where in zip(self.convs, self.where):
                x = conv(x) if where == index else x
        n = x.shape[0]
        match self.end:
            case "flatten": x = x.flatten(1)
            case "mean": x = x.mean((2, 3))
            case "pooled_view": x = F.adaptive_avg_pool2d(x, 1).view(n, -1)
            case "pooled_flatten": x = F.adaptive_avg_pool2d(x, (1, 1)).flatten(1)
            case "pooled_squeeze": x = F.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1)
            case "conv_view": x = self.last(x).view(n, -1)
            case "argmax": x = x.argmax(1)
            case "view": x = x.view(n, -1).sum(1)
            case "linear": x = self.linear(F.adaptive_avg_pool2d(x, 1).view(n, -1))
            case "pooled": x = F.adaptive_avg_pool2d(x, 1)
            case "channel": x = self.last(x).squeeze(1)
            case "sum": x = x.sum()
            case "amax": x = x.amax((2, 3))
            case "reshape_linear": x = self.linear(x.flatten(2).transpose(1, 2)).mean(1)
        return (x, *shown)


def read(model, x, dialect):
    if dialect == "fx":
        return to_document(torch.fx.symbolic_trace(model), x, data=True)
    program = torch.export.export(model, (x,))
    return foldback.export.from_exported_program(program.run_decompositions() if dialect == "core" else program, data=True)


def optimise(service, document, **options):
    asked = {"graph": document, "passes": ["ChannelsLast"], "options": {"include": ["graph"], "lint": "each", **options}}
    answer = service.post("/v1/optimize", asked)
    assert answer.status == 201, answer.body.decode()
    run = answer.json()
    back = service.post(f"/v1/runs/{run['id']}/rollback")
    assert back.status == 201 and back.json()["result"] == run["source"]
    return run


def leaves(value):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def assert_alike(found, expected, word, rtol=1e-10):
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert a.shape == b.shape and a.stride() == b.stride(), (word, a.stride(), b.stride())
        assert torch.allclose(a, b, rtol=rtol, atol=rtol), word


def laid(x, layout):
    x = x.clone()
    return {"rows": x, "channels-last": x.contiguous(memory_format=torch.channels_last),
            "cut": torch.cat([x, x], 3)[..., ::2]}[layout]


SEEDS = {"fx": 300, "aten": 60, "core": 60}


@pytest.mark.parametrize("dialect", ["fx", "aten", "core"])
def test_random_nets_keep_their_numbers_and_strides(service, dialect):
    applied = 0
    for seed in range(SEEDS[dialect] // 10 if IS_SHORT else SEEDS[dialect]):
        torch.manual_seed(seed)
        model = Net(seed).double().eval()
        x = torch.randn(random.Random(seed).choice([1, 2]), 3, 8, 8, dtype=torch.float64)
        try:
            expected = model(x.clone())
            document = read(model, x.clone(), dialect)
        except (RuntimeError, TypeError, ValueError):
            continue  # too small an image, a view that there is not, a read of strides that torch.fx cannot follow
        run = optimise(service, document)
        applied += run["passes"][0]["applied"] > 0
        before, after = from_document(document), from_document(run["graph"])
        assert_alike(after(x.clone()), expected, seed)
        for layout in ("channels-last", "cut"):
            given = lambda: laid(x, layout).clone(memory_format=torch.preserve_format)
            try:
                expected = before(given())
            except RuntimeError:
                continue
            found = after(given())
            for a, b in zip(leaves(found), leaves(expected), strict=True):
                assert torch.allclose(a, b, rtol=1e-10, atol=1e-10), (seed, layout)
    assert applied >= SEEDS[dialect] // (200 if IS_SHORT else 20)


MODELS = ["vgg", "mobilenet", "efficientnet", "densenet", "squeezenet", "inception", "regnet"]
# An image is returned, or it does not pay
OTHERS = ["unet", "padded", "shufflenet", "pre-activation", "generator", "autoencoder", "convnext"]


@pytest.mark.parametrize("dialect", ["fx", "aten"])
@pytest.mark.parametrize("name", MODELS + OTHERS)
def test_models_of_vision(service, name, dialect):
    """On a batch that is large enough for it to pay; validated as well."""
    torch.manual_seed(3)
    model, inputs = vision_models.make(name)
    model = model.double().eval()
    shape = list(next(iter(inputs.values())).shape)
    x = torch.randn([16, *shape[1:]], dtype=torch.float64) if len(shape) == 4 else torch.randn(shape, dtype=torch.float64)
    expected = model(x.clone())
    document = read(model, x.clone(), dialect)
    run = optimise(service, document, validate="rewrites")
    (outcome,) = run["passes"]
    assert_alike(from_document(run["graph"])(x.clone()), expected, name)
    assert outcome["applied"] or name in OTHERS, outcome["refused"]


def behind_images(row, call, image):
    """A convolution and a pool give what the call reads in the place of `image`: exactly, values between 0 and 1. Its result is
    returned, laid out in rows unless the row says that it is."""
    function, leaves = call.function, call.leaves
    result = call.attempt([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
    is_copied = isinstance(result, torch.Tensor) and row.layout != "ROWS"
    root, graph = nn.Module(), torch.fx.Graph()
    root.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    root.conv.weight.data = torch.randint(0, 4, root.conv.weight.shape) / 128
    x = graph.call_module("conv", (graph.placeholder("x"), ))
    pooled = graph.call_function(F.max_pool2d, (graph.call_function(F.max_pool2d, (x, 1, 1)), 1, 1))  # which pay for copies
    given = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf is not image:
            root.register_buffer(f"given{i}", leaf)
        given.append(pooled if leaf is image else graph.get_attr(f"given{i}") if isinstance(leaf, torch.Tensor) else leaf)
    args, kwargs = torch.utils._pytree.tree_unflatten(given, call.form)
    is_method = getattr(torch.Tensor, getattr(function, "__name__", ""), None) is function
    made = graph.call_method(function.__name__, args, kwargs) if is_method else graph.call_function(function, args, kwargs)
    graph.output(graph.call_method("contiguous", (made, )) if is_copied else made)
    return torch.fx.GraphModule(root, graph).eval()


def run_behind_images(service, row, call, image):
    """What ChannelsLast did, the results without it, and those with it."""
    model, x = behind_images(row, call, image), torch.randint(0, 1024, (2, 3, 14, 14)) / 1024
    torch.manual_seed(0)
    expected = model(x.clone())
    run = optimise(service, to_document(model, x, data=True))
    torch.manual_seed(0)
    return run["passes"][0], leaves(expected), leaves(from_document(run["graph"])(x.clone()))


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
def test_each_operator_behind_images(service):
    """Every operator whose layout is known reads an image in channels_last, and gives the numbers and strides that it gave."""
    applied, wrong, image = set(), [], torch.rand(2, 8, 14, 14)
    for row in test_memory_layout.cases():
        seen, is_unset = set(), any(flag.startswith("UNSET") for flag in row.flags)
        for call in test_memory_layout.calls(row, image):
            kind = (call.name.rsplit(",")[-1], call.is_in_place)
            is_spelled = any(leaf is image for leaf in call.leaves) and not isinstance(call.function, nn.Module)
            if is_unset or not is_spelled or kind in seen:
                continue
            seen.add(kind)
            outcome, expected, found = run_behind_images(service, row, call, image)
            if outcome["applied"]:
                applied.add(row.name)
            if not all(a.stride() == b.stride() and test_memory_layout.same_numbers(a, b)
                       for a, b in zip(found, expected, strict=True)):
                wrong.append((row.name, call.name, [a.stride() for a in found], [b.stride() for b in expected]))
    assert not wrong
    assert len(applied) > 250


class Residual(nn.Module):
    def __init__(self, norm=True):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16) if norm else nn.Identity()
        self.grouped, self.up = nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.ConvTranspose2d(16, 8, 2, 2)

    def forward(self, x):
        y = self.bn(self.stem(x)).relu()
        return self.up(y + self.grouped(y)).mean((2, 3))


def lies(tensor):
    return not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


@torch.no_grad()
@pytest.mark.parametrize("norm", [False, True])
def test_archives_have_the_strides_of_weights(service, tmp_path, norm):
    """Written and read: PyTorch loads weights in channels_last, and the service reads them so again. A rollback gives the old
    file, whose weights are row-major; and what PyTorch saved of the new one is the same graph."""
    torch.manual_seed(0)
    model, x = Residual(norm).eval(), torch.randn(2, 3, 48, 48)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "a.pt2")
    content = {"Content-Type": "application/octet-stream"}
    source = service.post("/v1/graphs", (tmp_path / "a.pt2").read_bytes(), headers=content).json()["id"]
    run = service.post("/v1/optimize", {"graph": source, "passes": ["latency"]}).json()
    written = service.get(f"/v1/graphs/{run['result']}/archive").body
    (tmp_path / "b.pt2").write_bytes(written)
    program = torch.export.load(tmp_path / "b.pt2")
    assert sum(lies(tensor) for tensor in program.state_dict.values()) == 3
    assert torch.allclose(program.module()(x), model(x), atol=1e-5)
    torch.export.save(program, tmp_path / "c.pt2")
    for name in ("b.pt2", "c.pt2"):
        read = service.post("/v1/graphs", (tmp_path / name).read_bytes(), headers=content).json()["id"]
        document = service.get(f"/v1/graphs/{read}").json()
        assert len([row for row in document["tensors"] if row.get("memory_format") == "channels_last"]) == 3
        weights = safetensors.torch.load(service.get(f"/v1/graphs/{read}/weights").body)
        assert all(torch.equal(weights[key], tensor) for key, tensor in program.state_dict.items())
    back = service.post(f"/v1/runs/{run['id']}/rollback").json()
    assert back["result"] == source and service.get(f"/v1/graphs/{source}/archive").body == (tmp_path / "a.pt2").read_bytes()


class Shown(nn.Module):
    """Strides of a convolution's result, and views by which PyTorch notices them."""

    def __init__(self, view):
        super().__init__()
        self.conv, self.view = nn.Conv2d(3, 4, 3, padding=1), view

    def forward(self, x):
        return self.view(self.conv(x))


VIEWS = [lambda y: y.view(2, -1), lambda y: y.permute(0, 2, 3, 1).view(2, -1), lambda y: y.view(2, 2, 2, 6, 6),
         lambda y: torch.relu(y).permute(0, 2, 3, 1).view(2, -1), lambda y: F.max_pool2d(y, 2).permute(0, 2, 3, 1).view(2, -1),
         lambda y: torch.cat([y, y], 1).view(2, -1), lambda y: F.adaptive_avg_pool2d(y, 1).view(2, -1)]


@torch.no_grad()
@pytest.mark.parametrize("number", range(len(VIEWS)))
@pytest.mark.parametrize("of", ["", "weight", "image", "both"])
def test_evaluation_has_the_strides_that_pytorch_gives(service, number, of):
    """A view works or fails in the evaluation as it does in PyTorch."""
    torch.manual_seed(0)
    model, x = Shown(VIEWS[number]).eval(), torch.randn(2, 3, 6, 6)
    traced = torch.fx.symbolic_trace(model)
    if of in ("image", "both"):
        image = next(iter(traced.graph.nodes))
        with traced.graph.inserting_after(image):
            copied = traced.graph.call_method("contiguous", (image,), {"memory_format": torch.channels_last})
        image.replace_all_uses_with(copied, lambda user: user is not copied)
    if of in ("weight", "both"):
        traced.conv.weight.data = traced.conv.weight.data.contiguous(memory_format=torch.channels_last)
    traced.recompile()
    try:
        traced(x)
        works = True
    except RuntimeError:
        works = False
    document = to_document(traced, data=True)
    document["nodes"][0]["meta"] = {"shape": [2, 3, 6, 6], "dtype": "float32"}
    graph = service.post("/v1/graphs", document).json()["id"]
    answer = service.post(f"/v1/graphs/{graph}/evaluate")
    assert (answer.status == 200) == works, answer.body[:300]
