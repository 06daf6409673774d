"""QuantizeWeights against PyTorch, in both dialects: every number and scale, what is downloaded, archives, keep, and rollback."""

import io
import json
import subprocess
import warnings
from pathlib import Path

import foldback.export
import pytest
import torch
from foldback.fx import from_document, to_document
from torch import nn

BINARY = Path(__file__).parents[2] / "build/foldback"


class Packed(nn.Module):
    """GPT-2's Conv1D, whose weight has the output channels in its second dimension, and a convolution of a function."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 12))
        self.bias = nn.Parameter(torch.randn(12))
        self.kernel = nn.Parameter(torch.randn(6, 3, 5))

    def forward(self, x):
        rows = torch.addmm(self.bias, x.view(-1, 8), self.weight).view(2, 6, 6)
        return nn.functional.conv1d(rows, self.kernel, None, 1, 2, 1, 2)


MODELS = {
    "linears": (lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8, bias=False)), (3, 16), 2),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, stride=2, padding=1),
            nn.Conv2d(8, 8, 3, padding="same", groups=4),
            nn.ConvTranspose2d(8, 6, 2, stride=2, output_padding=1),
        ),
        (2, 4, 9, 9),
        3,
    ),
    "packed": (Packed, (6, 8), 2),
}


def quantized(weight, axis):
    """As the recipes say it: in float64, rounded once."""
    wide = weight.detach().double()
    dims = [dim for dim in range(weight.dim()) if dim != axis]
    scale = (wide.abs().amax(dims, keepdim=True) / 127).to(weight.dtype)
    return (wide / scale.double()).nan_to_num(nan=0.0).round().clamp(-128, 127).to(torch.int8), scale


def axis_of(name, module):
    return 1 if isinstance(module, nn.ConvTranspose2d) or (isinstance(module, Packed) and name == "weight") else 0


def replaced(model):
    """The model with what is left of its weights in their place."""
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if weight.dim() < 2:
                continue
            numbers, scale = quantized(weight, axis_of(name, module))
            weight.data = numbers * scale
    return model


@pytest.mark.parametrize("dialect", ["fx", "aten"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_numbers(service, name, dialect, dtype):
    torch.manual_seed(5)
    make, shape, applied = MODELS[name]
    model, x = make().to(dtype).eval(), torch.randn(shape, dtype=dtype)
    with torch.no_grad():
        first = next(iter(model.parameters()))
        first[0] = 0  # a channel, or a part of each
    if dialect == "fx":
        document = to_document(torch.fx.symbolic_trace(model), x, data=True)
    else:
        document = foldback.export.from_exported_program(torch.export.export(model, (x,)), data=True)
    run = service.post(
        "/v1/optimize", {"graph": document, "passes": ["QuantizeWeights"], "options": {"include": ["graph"], "lint": "each"}}
    ).json()
    assert run["passes"][0]["applied"] == applied, run
    made = from_document(run["graph"])
    tensors = [one.dtype for one in made.state_dict().values()]
    assert tensors.count(torch.int8) == applied
    assert torch.equal(made(x), replaced(model)(x))
    back = service.post(f"/v1/runs/{run['id']}/rollback").json()
    assert back["result"] == run["source"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_weights(service, dtype):
    """Zeros, subnormals, large numbers, nan and infinities: computed as PyTorch would."""
    limits = torch.finfo(dtype)
    model = nn.Linear(8, 9, bias=False).to(dtype).eval()
    rows = [0.0, limits.smallest_normal / 128, limits.smallest_normal, limits.max / 1.01, 1e-3, 1.0, torch.nan, torch.inf, -torch.inf]
    torch.manual_seed(1)
    with torch.no_grad():
        model.weight.copy_(torch.rand(9, 8) * 2 - 1)
        for row, size in enumerate(rows):
            model.weight[row, :5] *= size
            model.weight[row, 5] = size
        model.weight[0] = 0
    document = to_document(torch.fx.symbolic_trace(nn.Sequential(model).eval()), torch.randn(2, 8, dtype=dtype), data=True)
    run = service.post("/v1/optimize", {"graph": document, "passes": ["QuantizeWeights"], "options": {"include": ["graph"]}}).json()
    state = from_document(run["graph"]).state_dict()
    numbers, scale = quantized(model.weight, 0)
    assert torch.equal(state["0.weight_int8"], numbers)
    torch.testing.assert_close(state["0.weight_scale"], scale, rtol=0, atol=0, equal_nan=True)
    again = numbers * scale
    assert again[6:].isnan().all() and again[:6].isfinite().all() and not again[0].any()


def foldback_says(store, *words):
    done = subprocess.run([str(BINARY), *words, "--data", str(store)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@pytest.mark.parametrize("form", ["exported", "decomposed"])
@pytest.mark.parametrize("name", MODELS)
def test_archives(tmp_path, name, form):
    """torch.export loads the result, and saves it again; a rollback gives the old file."""
    torch.manual_seed(2)
    make, shape, applied = MODELS[name]
    model, x = make().eval(), torch.randn(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, (x,))
        torch.export.save(program if form == "exported" else program.run_decompositions(), tmp_path / "model.pt2")
        made = json.loads(
            foldback_says(tmp_path / "store", "optimize", str(tmp_path / "model.pt2"), "--pass", "QuantizeWeights", "-o", str(tmp_path / "small.pt2"), "--json")
        )
        assert made["passes"][0]["applied"] == applied
        small = torch.export.load(tmp_path / "small.pt2")
        torch.export.save(small, io.BytesIO())
    assert [one.dtype for one in small.state_dict.values()].count(torch.int8) == applied
    torch.testing.assert_close(small.module()(x), replaced(model)(x), rtol=0, atol=1e-5)
    foldback_says(tmp_path / "store", "rollback", made["id"], "-o", str(tmp_path / "back.pt2"))
    assert (tmp_path / "back.pt2").read_bytes() == (tmp_path / "model.pt2").read_bytes()
