"""QuantizeWeights against PyTorch, in both dialects: every number and scale, what is downloaded, archives, keep, and
rollback."""

import copy
import io
import json
import subprocess
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import foldback
import foldback.export
from foldback import torch_compile
from foldback.fx import from_document, to_document

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
    rows = [0.0, limits.smallest_normal / 128, limits.smallest_normal, limits.max / 1.01, 1e-3, 1.0, torch.nan,
            torch.inf, -torch.inf]
    torch.manual_seed(1)
    with torch.no_grad():
        model.weight.copy_(torch.rand(9, 8) * 2 - 1)
        for row, size in enumerate(rows):
            model.weight[row, :5] *= size
            model.weight[row, 5] = size
        model.weight[0] = 0
    document = to_document(torch.fx.symbolic_trace(nn.Sequential(model).eval()), torch.randn(2, 8, dtype=dtype), data=True)
    run = service.post("/v1/optimize", {"graph": document, "passes": ["QuantizeWeights"],
                                        "options": {"include": ["graph"]}}).json()
    state = from_document(run["graph"]).state_dict()
    numbers, scale = quantized(model.weight, 0)
    assert torch.equal(state["0.weight_int8"], numbers)
    torch.testing.assert_close(state["0.weight_scale"], scale, rtol=0, atol=0, equal_nan=True)
    again = numbers * scale
    assert again[6:].isnan().all() and again[:6].isfinite().all() and not again[0].any()


class Rows(nn.Module):
    """Linears of both forms: `last` has 33 inputs, `narrow` float16's result, and the second call of `first` is of a
    transposed input."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(33, 3)
        self.weight = nn.Parameter(torch.randn(33, 64))

    def forward(self, x):
        rows = self.first(self.first(x).transpose(-1, -2).relu()[..., :64].transpose(-1, -2))
        return self.last(nn.functional.linear(rows, self.weight))


def linear_by_int8(x, weight, bias=None):
    numbers, scale = by_rounded_scale(weight)
    rows = torch._weight_int8pack_mm(x.to(torch.bfloat16).reshape(-1, x.shape[-1]).contiguous(), numbers, scale)
    result = rows.to(x.dtype).unflatten(0, x.shape[:-1])
    return result if bias is None else result + bias


def by_rounded_scale(weight):
    wide = weight.detach().double()
    scale = (wide.abs().amax(1) / 127).to(torch.bfloat16)
    return (wide / scale.double()[:, None]).round().clamp(-128, 127).to(torch.int8), scale


@pytest.mark.parametrize("dialect", ["fx", "aten"])
@pytest.mark.parametrize("shape", [(64, 64), (3, 64, 64), (2, 1, 64, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed(service, dialect, shape, dtype):
    torch.manual_seed(6)
    model, x = Rows().to(dtype).eval(), torch.randn(shape, dtype=dtype)
    if dialect == "fx":
        document = to_document(torch.fx.symbolic_trace(model), x, data=True)
    else:
        rows = torch.export.Dim("rows", min=2)  # the other sizes stay numbers
        sizes = ({0: rows} if shape[0] == 3 else None,)
        document = foldback.export.from_exported_program(torch.export.export(model, (x,), dynamic_shapes=sizes), data=True)
    passes = [{"name": "QuantizeWeights", "params": {"form": "packed"}}]
    run = service.post("/v1/optimize", {"graph": document, "passes": passes,
                                        "options": {"include": ["graph"], "lint": "each"}}).json()
    made = from_document(run["graph"])
    assert run["passes"][0]["applied"] == (3 if dialect == "fx" else 2), run  # both calls of a module, or the weight is shared
    packed = made.code.count("_weight_int8pack_mm(" if dialect == "fx" else "_weight_int8pack_mm.default(")
    assert packed == (3 if dialect == "fx" else 1)
    first = linear_by_int8 if dialect == "fx" else nn.functional.linear
    with torch.no_grad():
        rows = first(x, model.first.weight, model.first.bias).transpose(-1, -2).relu()[..., :64].transpose(-1, -2)
        rows = first(rows, model.first.weight, model.first.bias)
        numbers, scale = quantized(model.last.weight, 0)
        expected = nn.functional.linear(linear_by_int8(rows, model.weight), numbers * scale, model.last.bias)
        assert torch.equal(made(x), expected)
        exact = model(x)
    assert ((made(x) - exact).abs().max() / exact.abs().max()).item() < (2e-2 if dtype == torch.float32 else 6e-2)
    assert service.post(f"/v1/runs/{run['id']}/rollback").json()["result"] == run["source"]


@pytest.mark.parametrize("params, packed", [
    ({}, 0), ({"tokens": 8}, 2), ({"tokens": 9}, 1), ({"tokens": 64}, 1), ({"tokens": 65}, 0), ({"form": "packed"}, 2),
    ({"tokens": 1, "form": "portable"}, 0), ({"bits": 4, "group_size": 32, "form": "packed"}, 2),
    ({"bits": 4, "group_size": 32, "tokens": 1}, 0)
])
def test_who_is_packed(service, params, packed):
    model = nn.Sequential(nn.Linear(1024, 1056), nn.Linear(1056, 32)).eval()
    document = to_document(torch.fx.symbolic_trace(model), torch.randn(1, 1024))
    run = service.post("/v1/optimize", {"graph": document, "passes": [{"name": "QuantizeWeights", "params": params}],
                                        "options": {"include": ["graph"]}}).json()
    assert sum("_weight_int" in node["target"] for node in run["graph"]["nodes"]) == packed


def test_a_result_that_is_detached_in_place_is_portable(service):
    """PyTorch takes no view for that."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(32, 16, bias=False)

        def forward(self, x):
            return self.linear(x).detach_() * 2

    model, x = Model().eval(), torch.randn(2, 3, 32)
    document = to_document(torch.fx.symbolic_trace(model), x, data=True)
    for bits in 8, 4:
        passes = [{"name": "QuantizeWeights", "params": {"form": "packed", "bits": bits, "group_size": 32}}]
        run = service.post("/v1/optimize", {"graph": document, "passes": passes, "options": {"include": ["graph"]}}).json()
        made = from_document(run["graph"])
        assert run["passes"][0]["applied"] == 1 and "pack_mm" not in made.code
        with torch.no_grad():
            assert ((made(x) - model(x)).abs().max() / model(x).abs().max()).item() < 0.3


class InFourBits(nn.Module):
    """Linears that pack, and one whose 20 outputs do not; `first` is called twice."""

    def __init__(self):
        super().__init__()
        self.first, self.odd = nn.Linear(64, 64), nn.Linear(64, 20)
        self.weight = nn.Parameter(torch.randn(48, 64))

    def forward(self, x):
        rows = self.first(self.first(x).relu())
        return self.odd(rows), nn.functional.linear(rows, self.weight)


def in_four_bits(weight, size, dtype):
    """The numbers and their scales, of that dtype, in groups of so many inputs."""
    wide = weight.detach().double().unflatten(1, (-1, size))
    least = 2.0 ** (-149 if dtype == torch.float32 else -133)
    scale = (wide.abs().amax(2, keepdim=True) / 7 + least).to(dtype)
    return (wide / scale.double()).round(), scale


def linear_by_int4(x, weight, bias, size):
    numbers, scale = in_four_bits(weight, size, torch.bfloat16)
    wide = (numbers * scale.double()).flatten(1)
    rows = (x.to(torch.bfloat16).double() @ wide.T).to(torch.bfloat16).to(x.dtype)
    return rows if bias is None else rows + bias


@pytest.mark.parametrize("dialect", ["fx", "aten"])
@pytest.mark.parametrize("shape", [(64, 64), (3, 5, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [32, 64])
def test_packed_in_four_bits(service, dialect, shape, dtype, size, tmp_path):
    torch.manual_seed(6)
    model, x = InFourBits().to(dtype).eval(), torch.randn(shape, dtype=dtype)
    if dialect == "fx":
        document = to_document(torch.fx.symbolic_trace(model), x, data=True)
    else:
        document = foldback.export.from_exported_program(torch.export.export(model, (x,)), data=True)
    passes = [{"name": "QuantizeWeights", "params": {"bits": 4, "group_size": size, "form": "packed"}}]
    run = service.post("/v1/optimize", {"graph": document, "passes": passes,
                                        "options": {"include": ["graph"], "lint": "each", "validate": "graph"}}).json()
    assert run["passes"][0]["applied"] == (3 if dialect == "fx" else 2), run
    targets = [node["target"] for node in run["graph"]["nodes"]]
    calls = 3 if dialect == "fx" else 1
    assert targets.count("torch.ops.aten._weight_int4pack_mm_for_cpu.default") == calls
    assert targets.count("torch.ops.aten._convert_weight_to_int4pack_for_cpu.default") == (2 if dialect == "fx" else 1)
    made = from_document(run["graph"])
    packed = foldback.pack(made)
    assert "_convert_weight" in made.code and "_convert_weight" not in packed.code and "bitwise" in packed.code  # `odd`
    assert not {"weight_int4", "first.weight_int4"} & packed.state_dict().keys()
    with torch.no_grad():
        found = packed(x)
        assert all(map(torch.equal, made(x), found))
        if dialect == "fx":
            rows = linear_by_int4(x, model.first.weight, model.first.bias, size).relu()
            rows = linear_by_int4(rows, model.first.weight, model.first.bias, size)
        else:
            rows = model.first(model.first(x).relu())
        numbers, scale = in_four_bits(model.odd.weight, size, dtype)
        odd = nn.functional.linear(rows.double(), (numbers * scale.double()).flatten(1), model.odd.bias.double())
        for one, other in zip(found, (odd, linear_by_int4(rows, model.weight, None, size))):
            assert ((one.double() - other.double()).abs().max() / other.double().abs().max()).item() < 1.2e-2
    file = io.BytesIO(safetensors.torch.save({"x": x}))
    answer = service.post(f"/v1/graphs/{run['result']}/evaluate", file.getvalue())
    assert answer.status == 200, answer.body
    outputs = safetensors.torch.load(answer.body)
    for place, one in enumerate(found):
        ours = outputs[f"output.{place}"]
        assert ((ours.double() - one.double()).abs().max() / one.double().abs().max()).item() < 1.2e-2
    if dialect == "aten":
        client = foldback.Client(service.url)
        archive = client.optimize(client.put_archive(torch.export.export(model, (x,))), passes)
        client.archive(archive["result"], tmp_path / "int4.pt2")
        live = torch.export.load(tmp_path / "int4.pt2").module()
        with torch.no_grad():
            assert all(map(torch.equal, live(x), found)) and all(map(torch.equal, foldback.pack(live)(x), found))
    assert service.post(f"/v1/runs/{run['id']}/rollback").json()["result"] == run["source"]


FOUR_BITS = {"name": "QuantizeWeights", "params": {"bits": 4, "group_size": 32, "form": "packed"}}


def test_an_operator_that_is_missing_is_named(service):
    """Before anything runs."""
    document = to_document(torch.fx.symbolic_trace(InFourBits().eval()), torch.randn(2, 64), data=True)
    graph = service.post("/v1/optimize", {"graph": document, "passes": [FOUR_BITS],
                                          "options": {"include": ["graph"]}}).json()["graph"]
    with pytest.raises(ValueError, match="is for a CPU, and its weight is on meta"):
        foldback.pack(from_document(graph).to("meta"))
    for node in graph["nodes"]:
        node["target"] = node["target"].replace("_for_cpu", "_for_nobody")
    with pytest.raises(ValueError, match=r"there is no torch\.ops\.aten\._\w+_for_nobody\.default here: PyTorch \S+ lacks"):
        from_document(graph)


def test_four_bits_under_torch_compile(service):
    foldback.connect(service.url)
    torch.manual_seed(4)
    model, x = InFourBits().eval(), torch.randn(3, 64)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=torch_compile.backend, options={"passes": [FOUR_BITS]})
    try:
        with torch.no_grad():
            found, expected = compiled(x), model(x)
    finally:
        foldback.disconnect()
    (run,) = foldback.compiled_runs(model)
    assert run["passes"][0]["applied"] and [item["name"] for item in run["passes"]] == ["QuantizeWeights"]
    for one, other in zip(found, expected):
        assert 1e-3 < ((one - other).abs().max() / other.abs().max()).item() < 0.3


def loss_of(service, model, x, data=True, **params):
    document = to_document(torch.fx.symbolic_trace(model.eval()), x, data=data)
    run = service.post("/v1/optimize", {"graph": document, "passes": [{"name": "QuantizeWeights", "params": params}]}).json()
    return run["passes"][0].get("expected_loss")


def test_the_loss_to_expect(service):
    """Of each weight the relative error of what is really computed; together as noise adds up."""
    torch.manual_seed(7)
    cases = [
        (nn.Sequential(nn.Linear(64, 48), nn.Linear(48, 8)), (2, 64), {}),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 5, 2)), (1, 3, 8, 8), {}),
        (nn.Sequential(nn.Linear(64, 48), nn.Linear(48, 8)).to(torch.bfloat16), (2, 64), {}),
    ]
    for model, shape, params in cases:
        loss = loss_of(service, model, torch.randn(shape, dtype=next(model.parameters()).dtype), **params)
        errors = {}
        for name, module in model.named_modules():
            if hasattr(module, "weight"):
                numbers, scale = quantized(module.weight, axis_of(name, module))
                wide = module.weight.double()
                errors[f"{name}.weight"] = ((numbers.double() * scale.double() - wide).norm() / wide.norm()).item()
        found = {one["name"]: one["relative_error"] for one in loss["tensors"]}
        assert found == pytest.approx(errors, rel=6e-3) and loss["unknown"] == 0
        total = sum(error**2 for error in errors.values()) ** 0.5
        assert loss["relative_error"] == pytest.approx(total, rel=6e-3)
        assert loss["cosine_distance"] == pytest.approx(1 - (1 + total**2) ** -0.5, rel=2e-2)


@pytest.mark.parametrize("make, shape, size", [(lambda: nn.Sequential(nn.Linear(128, 40)), (2, 128), 32),
                                               (lambda: PackedOnly(), (6, 64), 64)])
def test_the_loss_to_expect_in_four_bits(service, make, shape, size):
    torch.manual_seed(8)
    model = make()
    loss = loss_of(service, model, torch.randn(shape), bits=4, group_size=size)
    ((module, axis),) = layers_of(model)
    error = ((in_groups(module.weight, size, axis)[2].double() - module.weight.double()).norm() / module.weight.norm()).item()
    assert loss["tensors"][0]["relative_error"] == pytest.approx(error, rel=6e-3) and 0.05 < error < 0.2
    assert loss["cosine_distance"] == pytest.approx(error**2 / 2, rel=0.05)


def test_the_loss_to_expect_of_what_is_not_known(service):
    """Rows of a large weight stand for all of them; no bytes, zeros and infinities say nothing."""
    torch.manual_seed(9)
    model, x = nn.Sequential(nn.Linear(64, 3000), nn.Linear(3000, 4), nn.Linear(4, 4)), torch.randn(2, 64)
    assert loss_of(service, model, x, data=False) is None
    model[1].weight.data[2, 7] = torch.inf
    model[2].weight.data.zero_()
    loss = loss_of(service, model, x)
    assert [one["name"] for one in loss["tensors"]] == ["0.weight"] and loss["unknown"] == 2
    numbers, scale = quantized(model[0].weight, 0)
    error = ((numbers.double() * scale.double() - model[0].weight.double()).norm() / model[0].weight.norm()).item()
    assert loss["relative_error"] == pytest.approx(error, rel=0.1)


class PackedOnly(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 12)), nn.Parameter(torch.randn(12))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(128, 128)

    def forward(self, x):
        return self.one(self.one(x))


IN_FOUR_BITS = {
    "linears": (lambda: nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 8, bias=False)), (3, 128), 128, 2),
    "narrow groups": (lambda: nn.Sequential(nn.Linear(64, 5), nn.Conv1d(3, 3, 1)), (3, 64), 32, 1),
    "packed": (PackedOnly, (6, 64), 64, 1),
}


def in_groups(weight, size, axis):
    """What two numbers to a byte, and the scales, are by the formula, and the weight that they hold."""
    groups = weight.detach().double().unflatten(axis, (-1, size))
    scale = (groups.abs().amax(axis + 1, keepdim=True) / 7 + torch.finfo(weight.dtype).smallest_normal
             * torch.finfo(weight.dtype).eps).to(weight.dtype)
    numbers = (groups / scale.double()).round()
    low, high = numbers.chunk(2, axis + 1)
    stored = (low + 16 * high).nan_to_num(nan=0.0).to(torch.int8)
    return stored, scale, (numbers.to(weight.dtype) * scale).flatten(axis, axis + 1)


def layers_of(model):
    """Layers of which 4 bits are enough, and which dimension of the weight is that of the inputs."""
    for module in model.modules():
        if isinstance(module, nn.Linear | PackedOnly):
            yield module, 0 if isinstance(module, PackedOnly) else 1


def replaced_in_groups(model, size):
    model = copy.deepcopy(model)
    for module, axis in layers_of(model):
        module.weight.data = in_groups(module.weight, size, axis)[2]
    return model


def documents(model, x):
    yield to_document(torch.fx.symbolic_trace(model), x, data=True)
    yield foldback.export.from_exported_program(torch.export.export(model, (x,)), data=True)


def quantize_in_groups(service, document, size):
    params = {"bits": 4, "group_size": size}
    run = service.post(
        "/v1/optimize",
        {"graph": document, "passes": [{"name": "QuantizeWeights", "params": params}],
         "options": {"include": ["graph"], "lint": "each"}},
    ).json()
    assert "passes" in run, run
    back = service.post(f"/v1/runs/{run['id']}/rollback").json()
    assert back["result"] == run["source"]
    return run


@pytest.mark.parametrize("name", IN_FOUR_BITS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_numbers_in_four_bits(service, name, dtype):
    torch.manual_seed(5)
    make, shape, size, applied = IN_FOUR_BITS[name]
    model, x = make().to(dtype).eval(), torch.randn(shape, dtype=dtype)
    with torch.no_grad():
        for weight in model.parameters():
            weight[0] = 0  # a channel, or a part of each
    for document in documents(model, x):
        run = quantize_in_groups(service, document, size)
        assert run["passes"][0]["applied"] == applied, run
        made = from_document(run["graph"])
        state = made.state_dict()
        for module, axis in layers_of(model):
            weight = module.weight.detach()
            stored, scale, again = in_groups(weight, size, axis)
            bound = scale.double().expand_as(weight.unflatten(axis, (-1, size))).flatten(axis, axis + 1)
            rounding = weight.double().abs() * torch.finfo(dtype).eps  # of the product
            assert ((weight.double() - again.double()).abs() <= bound / 2 + rounding).all()
            assert any(torch.equal(stored, one) for one in state.values() if one.dtype == torch.int8)
            assert any(torch.equal(scale, one) for one in state.values())
        assert torch.equal(made(x), replaced_in_groups(model, size)(x))
        before, after = run["passes"][0]["weight_bytes"].values()
        assert after < before


def test_a_module_that_is_called_twice_in_four_bits(service):
    torch.manual_seed(5)
    model, x = Twice().eval(), torch.randn(2, 128)
    called, read_twice = (quantize_in_groups(service, document, 64) for document in documents(model, x))
    assert torch.equal(from_document(called["graph"])(x), replaced_in_groups(model, 64)(x))
    assert {one["reason"] for one in read_twice["passes"][0]["refused"]} == {"shared-weight"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_weights_in_four_bits(service, dtype):
    """Zeros, subnormals, large numbers, nan and infinities: no number is beyond 7, and what is not finite reaches its group
    alone."""
    limits = torch.finfo(dtype)
    least = limits.smallest_normal * limits.eps
    model = nn.Linear(64, 12, bias=False).to(dtype).eval()
    rows = [0.0, least, 2 * least, 10 * least, 17 * least, limits.smallest_normal, limits.max / 1.01, 1e-3, 1.0, torch.nan,
            torch.inf, -torch.inf]
    torch.manual_seed(1)
    with torch.no_grad():
        model.weight.copy_(torch.rand(12, 64) * 2 - 1)
        for row, size in enumerate(rows):
            model.weight[row, :20] *= size
            model.weight[row, 20:32] = 0
            model.weight[row, 20] = size
    for document in documents(nn.Sequential(model).eval(), torch.randn(2, 64, dtype=dtype)):
        run = quantize_in_groups(service, document, 32)
        state = from_document(run["graph"]).state_dict()
        (stored,) = (one for one in state.values() if one.dtype == torch.int8)
        (scale,) = (one for one in state.values() if one.dtype == dtype)
        downloaded = safetensors.torch.load(service.get(f"/v1/graphs/{run['result']}/weights").body)
        assert {(one.dtype, one.shape) for one in state.values()} == {(one.dtype, one.shape) for one in downloaded.values()}
        for one in downloaded.values():
            torch.testing.assert_close(one, stored if one.dtype == torch.int8 else scale, rtol=0, atol=0, equal_nan=True)
        expected, expected_scale, again = in_groups(model.weight, 32, 1)
        assert torch.equal(stored, expected)
        torch.testing.assert_close(scale, expected_scale, rtol=0, atol=0, equal_nan=True)
        high = (stored + 8) >> 4
        low = stored - 16 * high
        assert max(high.abs().max(), low.abs().max()) <= 7
        held = (torch.cat([low, high], 2) * scale).flatten(1)
        torch.testing.assert_close(held, again, rtol=0, atol=0, equal_nan=True)
        assert (held[9:, :32].isnan().all() and held[:9].isfinite().all() and held[9:, 32:].isfinite().all()
                and not held[0, :32].any())
        error = (model.weight.double() - held.double())[:9].abs().unflatten(1, (2, 32)).amax(2)
        assert (error <= scale[:9, :, 0].double() * (0.5 + 8 * limits.eps)).all()


def foldback_says(store, *words):
    done = subprocess.run([str(BINARY), *words, "--data", str(store)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@pytest.mark.parametrize("form", ["exported", "decomposed"])
@pytest.mark.parametrize("name", MODELS)
def test_archives(tmp_path, name, form):
    """torch.export loads the result, and saves it again; a rollback gives the old file."""
    make, shape, applied = MODELS[name]
    check_archive(tmp_path, make, shape, form, "QuantizeWeights", applied, replaced)


@pytest.mark.parametrize("form", ["exported", "decomposed"])
@pytest.mark.parametrize("name", IN_FOUR_BITS)
def test_archives_in_four_bits(tmp_path, name, form):
    make, shape, size, applied = IN_FOUR_BITS[name]
    wanted = json.dumps({"name": "QuantizeWeights", "params": {"bits": 4, "group_size": size}})
    check_archive(tmp_path, make, shape, form, wanted, applied, lambda model: replaced_in_groups(model, size))


def test_archives_of_runs_of_version_1(service, tmp_path):
    """Its int8 tensors are parameters in documents, and buffers in archives."""
    torch.manual_seed(2)
    model, x = MODELS["linears"][0]().eval(), torch.randn(3, 16)
    with foldback.Client(service.url) as client:
        source = client.put_archive(torch.export.export(model, (x,)))
        document = client.graph(client.optimize(source, ["QuantizeWeights"])["result"])
        for module in document["modules"]:
            module["parameters"] = {**module["parameters"], **module.pop("buffers", {})}
        client.archive(client.put_graph(document), tmp_path / "small.pt2")
    small = torch.export.load(tmp_path / "small.pt2")
    assert [one.dtype for one in small.buffers()] == [torch.int8] * 2
    assert all(one.is_floating_point() for one in small.parameters())
    torch.testing.assert_close(small.module()(x), replaced(model)(x), rtol=0, atol=1e-5)


def check_archive(tmp_path, make, shape, form, wanted, applied, as_replaced):
    torch.manual_seed(2)
    model, x = make().eval(), torch.randn(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, (x,))
        torch.export.save(program if form == "exported" else program.run_decompositions(), tmp_path / "model.pt2")
        made = json.loads(
            foldback_says(tmp_path / "store", "optimize", str(tmp_path / "model.pt2"), "--pass", wanted, "-o",
                          str(tmp_path / "small.pt2"), "--json")
        )
        assert made["passes"][0]["applied"] == applied
        small = torch.export.load(tmp_path / "small.pt2")
        torch.export.save(small, io.BytesIO())
    assert [one.dtype for one in small.state_dict.values()].count(torch.int8) == applied
    assert all(one.is_floating_point() for one in small.parameters())  # PyTorch 2.9 loads no others
    torch.testing.assert_close(small.module()(x), as_replaced(model)(x), rtol=0, atol=1e-5)
    foldback_says(tmp_path / "store", "rollback", made["id"], "-o", str(tmp_path / "back.pt2"))
    assert (tmp_path / "back.pt2").read_bytes() == (tmp_path / "model.pt2").read_bytes()
