"""Weights that a norm scales, as torch.export spells weight_norm and as models spell it: FoldConstants leaves one weight, whose
numbers are PyTorch's, computed by the client and by the service alike."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_merge_branches import optimise
from test_parallel_convolutions import read
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

from foldback.client import Client
from foldback.fx import from_document


class Spelled(nn.Module):
    """x * weight(v, g)"""

    def __init__(self, function, v=(3, 4), g=(3, 1)):
        super().__init__()
        self.function = function
        self.v, self.g = nn.Parameter(torch.randn(v)), nn.Parameter(torch.randn(g))

    def forward(self, x):
        return x * self.function(self.v, self.g)


def layers(norm, **options):
    return nn.Sequential(norm(nn.Conv1d(4, 6, 3), **options), nn.ReLU(), norm(nn.Conv1d(6, 2, 1, bias=False), **options))


MODELS = {  # how a model is made, its input, and how often FoldConstants applies to what torch.export writes
    "weight_norm": (lambda: layers(parametrizations.weight_norm), (2, 4, 9), 2),
    "weight_norm of dimension 1": (lambda: layers(parametrizations.weight_norm, dim=1), (2, 4, 9), 2),
    "weight_norm of all": (lambda: layers(parametrizations.weight_norm, dim=None), (2, 4, 9), 2),
    "old weight_norm": (lambda: layers(weight_norm), (2, 4, 9), 2),
    "spelled out": (lambda: Spelled(lambda v, g: v * (g / v.norm(dim=1, keepdim=True))), (3, 4), 1),
    "vector_norm": (lambda: Spelled(lambda v, g: g * v / torch.linalg.vector_norm(v, dim=(0, 1), keepdim=True)), (3, 4), 1),
    "columns": (lambda: Spelled(lambda v, g: v / torch.linalg.vector_norm(v, 2, 0) * g), (3, 4), 1),
    "norm 1": (lambda: Spelled(lambda v, g: v * (g / v.norm(1, 1, keepdim=True))), (3, 4), 0),
    "a norm of a matrix": (lambda: Spelled(lambda v, g: v * (g / torch.linalg.matrix_norm(v, "nuc"))), (3, 4), 0),
}


@pytest.mark.filterwarnings("ignore")  # weight_norm of old is deprecated
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dialect", ["fx", "aten", "core"])
@pytest.mark.parametrize("name", MODELS)
def test_a_norm_of_a_weight_is_folded_as_pytorch_computes_it(service, tmp_path, name, dialect, dtype):
    make, shape, count = MODELS[name]
    torch.manual_seed(1)
    model, x = make().to(dtype).eval(), torch.randn(shape, dtype=dtype)
    if dialect == "fx" and "weight_norm" in name:
        pytest.skip("torch.fx calls the parametrised module, whose weight no graph computes")
    if name == "a norm of a matrix" and dtype is torch.bfloat16:
        pytest.skip("PyTorch computes none in bfloat16")
    with torch.no_grad():
        expected = model(x)
    run = optimise(service, read(model, x, dialect), ["FoldConstants"])
    # The norm, by a cast: only of dimension 0 has PyTorch a kernel that is decomposed so.
    is_rounded_between = name in ("weight_norm", "old weight_norm") and (dialect, dtype) == ("core", torch.bfloat16)
    assert run["passes"][0]["applied"] == (0 if is_rounded_between else count), run["passes"]
    with torch.no_grad():
        made, by_module = from_document(run["graph"]), from_document(run["graph"], module=model)
        for found in (made(x), by_module(x)):
            torch.testing.assert_close(found, expected, **({"rtol": 0.03, "atol": 0.03} if dtype is torch.bfloat16 else {}))
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, tmp_path / "net.safetensors")
    with Client(service.url) as client:
        bound = client.bind(run["source"], [tmp_path / "net.safetensors"])["id"]
        client.weights(client.optimize(bound, ["FoldConstants"])["result"], tmp_path / "result.safetensors")
    files = load_file(tmp_path / "result.safetensors")
    assert all(torch.equal(files[key], value) for key, value in made.state_dict().items() if key in files)
