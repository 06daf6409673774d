"""A plan, run on tensors in memory, gives what `layout apply` writes and what `layout undo` puts back, bit for bit. The states
of optimisers that compute element by element go on as if nothing had been rearranged."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from test_layouts import MODELS, RANKS, Folder, trained

from foldback import layouts

CASES = [(name, layout) for name, (_, fitting) in MODELS.items() for layout in fitting]
assert len(CASES) >= 20


def words_of(folder: Folder, layout: str) -> list:
    return [layout, folder.path / "model.safetensors", "--config", folder.path / "config.json",
            *(("--set", f"ranks={RANKS}") if layout == "tensor-parallel" else ())]


def plan_of(folder: Folder, layout: str) -> dict:
    done = folder.foldback("layout", "plan", *words_of(folder, layout), "--json")
    assert done.returncode == 0, done.stderr
    (folder.path / "plan.json").write_text(done.stdout)
    return layouts.load(str(folder.path / "plan.json"))


def assert_same_bits(now: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert set(now) == set(expected)
    for name, tensor in expected.items():
        assert now[name].dtype == tensor.dtype and now[name].shape == tensor.shape, name
        assert torch.equal(now[name].contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8)), name


@pytest.mark.sampled
@pytest.mark.parametrize("name, layout", CASES)
def test_the_same_as_apply(tmp_path: Path, name: str, layout: str) -> None:
    folder = Folder(tmp_path, name, MODELS[name][0])
    plan = plan_of(folder, layout)
    module = folder.foldback("layout", "plan", *words_of(folder, layout), "--python")
    (tmp_path / "plan.py").write_text(module.stdout)
    alone = runpy.run_path(str(tmp_path / "plan.py"))
    for source in (folder.source, {key: tensor.to(torch.bfloat16) for key, tensor in folder.source.items()}):
        if next(iter(source.values())).dtype == torch.bfloat16:
            save_file(source, tmp_path / "model.safetensors", {"format": "pt"})
            with pytest.raises(ValueError, match="the plan is for float32"):
                layouts.run(plan, source)
            plan = plan_of(folder, layout)
        else:
            assert_same_bits(alone["apply"](source), folder.applied(layout))
            assert_same_bits(alone["undo"](alone["apply"](source)), source)
        made = layouts.run(plan, source)
        assert_same_bits(made, folder.applied(layout))
        assert_same_bits(layouts.run(plan, made, undo=True), source)
        assert_same_bits(layouts.run(plan, trained(made), undo=True), trained(source))
        moved = {one["made"] for one in plan["copies"] if one["part"] or one["of"]}
        assert all(tensor is source.get(key, tensor) for key, tensor in made.items() if key not in moved)


def adapted(source: dict[str, torch.Tensor], modules: tuple[str, ...]) -> dict[str, torch.Tensor]:
    out = dict(source)
    for key, weight in source.items():
        if key.endswith(tuple(f"{module}.weight" for module in modules)):
            out[key.replace("weight", "lora_A.weight")] = torch.randn(2, weight.shape[1])
            out[key.replace("weight", "lora_B.weight")] = torch.randn(weight.shape[0], 2)
    return out


@pytest.mark.parametrize("layout", ["qkv-fused", "megatron-gqa", "tensor-parallel"])
def test_adapters(tmp_path: Path, layout: str) -> None:
    """Filled with zeros, and copied to each rank: changes there are refused."""
    folder = Folder(tmp_path, "llama", MODELS["llama"][0])
    source = adapted(folder.source, ("q_proj", "v_proj"))
    save_file(source, tmp_path / "model.safetensors")
    plan = plan_of(folder, layout)
    made = layouts.run(plan, source)
    assert_same_bits(made, folder.applied(layout))
    assert_same_bits(layouts.run(plan, made, undo=True), source)
    assert bool(plan["fills"]) == (layout != "tensor-parallel")
    factor = "lora_B.weight" if plan["fills"] else "lora_A.weight"
    key = next(key for key in made if key.endswith(factor) and "rank_0" not in key)
    with pytest.raises(ValueError, match="has changed" if plan["fills"] else "other numbers"):
        layouts.run(plan, {**made, key: made[key] + 1}, undo=True)


OTHERS = (torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2, torch.bool, torch.complex64)


@pytest.mark.parametrize("dtype", OTHERS)
def test_other_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = Folder(tmp_path, "llama", MODELS["llama"][0])
    source = {key: torch.randint(0, 2 if dtype == torch.bool else 255, (*tensor.shape[:-1], tensor.shape[-1] * dtype.itemsize),
                                 dtype=torch.uint8).view(dtype) for key, tensor in folder.source.items()}
    save_file(source, tmp_path / "model.safetensors")
    for layout in ("qkv-fused", "llama-cpp-rope"):
        plan = plan_of(folder, layout)
        made = layouts.run(plan, source)
        assert_same_bits(made, folder.applied(layout))
        assert_same_bits(layouts.run(plan, made, undo=True), source)


def test_refusals(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "llama", MODELS["llama"][0])
    done = folder.foldback("layout", "plan", "tensor-parallel", tmp_path / "model.safetensors", "--set", "ranks=3", "--set",
                           "heads=4", "--set", "kv_heads=2", "--set", "head_dim=4")
    assert done.returncode == 1 and not done.stdout and "does-not-divide" in done.stderr
    plan = plan_of(folder, "qkv-fused")
    with pytest.raises(KeyError, match="k_proj"):
        layouts.run(plan, {})
    with pytest.raises(ValueError, match="is there already"):
        layouts.run(plan, {**folder.source, next(iter(plan["made"])): torch.zeros(1)})
    with pytest.raises(ValueError, match="cannot be undone"):
        layouts.run({**plan, "reversible": False}, layouts.run(plan, folder.source), undo=True)
    with pytest.raises(ValueError, match="not a plan"):
        layouts.run({}, {})
    (tmp_path / "no.json").write_text(json.dumps({}))
    with pytest.raises(ValueError, match="not a plan"):
        layouts.load(str(tmp_path / "no.json"))


# ---- optimisers -------------------------------------------------------------------------------------------------------------

KINDS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD without momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
}


def parameters_of(state: dict[str, torch.Tensor]) -> dict[str, torch.nn.Parameter]:
    return {name: torch.nn.Parameter(tensor.clone()) for name, tensor in state.items()}


def steps(parameters: dict, optimizer: torch.optim.Optimizer, gradients: list[dict[str, torch.Tensor]]) -> None:
    for gradient in gradients:
        for name, parameter in parameters.items():
            parameter.grad = gradient[name].clone()
        optimizer.step()


@pytest.mark.parametrize("layout", ["qkv-fused", "llama-cpp-rope"])
@pytest.mark.parametrize("kind", KINDS)
def test_elementwise_optimisers_go_on(tmp_path: Path, kind: str, layout: str) -> None:
    """Three steps apart, three fused, three apart again: what nine steps apart give. The gradients are the same numbers."""
    folder = Folder(tmp_path, "llama", MODELS["llama"][0])
    plan, make = plan_of(folder, layout), KINDS[kind]
    torch.manual_seed(1)
    gradients = [{name: torch.randn_like(tensor) for name, tensor in folder.source.items()} for _ in range(9)]

    expected = parameters_of(folder.source)
    steps(expected, make(expected.values()), gradients)

    apart = parameters_of(folder.source)
    first = make(apart.values())
    steps(apart, first, gradients[:3])
    fused = parameters_of(layouts.run(plan, {name: one.data for name, one in apart.items()}))
    second = make(fused.values())
    layouts.move_optimizer(plan, first, list(apart), second, list(fused))
    steps(fused, second, [layouts.run(plan, gradient) for gradient in gradients[3:6]])
    back = parameters_of(layouts.run(plan, {name: one.data for name, one in fused.items()}, undo=True))
    third = make(back.values())
    layouts.move_optimizer(plan, second, list(fused), third, list(back), undo=True)
    steps(back, third, gradients[6:])
    assert_same_bits({name: one.data for name, one in back.items()}, {name: one.data for name, one in expected.items()})


@pytest.mark.parametrize("kind", ["Muon", "Adafactor", "LBFGS"])
def test_optimisers_of_whole_matrices_are_refused(tmp_path: Path, kind: str) -> None:
    folder = Folder(tmp_path, "llama", MODELS["llama"][0])
    plan = plan_of(folder, "qkv-fused")
    state = {name: tensor for name, tensor in folder.source.items() if tensor.dim() == 2}
    apart, fused = parameters_of(state), parameters_of(layouts.run(plan, state))
    optimizers = [getattr(torch.optim, kind)(one.values()) for one in (apart, fused)]
    with pytest.raises(TypeError, match=kind):
        layouts.move_optimizer(plan, optimizers[0], list(apart), optimizers[1], list(fused))


def test_optimisers_that_do_not_fit(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "llama", MODELS["llama"][0])
    plan = plan_of(folder, "qkv-fused")
    apart, fused = parameters_of(folder.source), parameters_of(layouts.run(plan, folder.source))
    target = torch.optim.AdamW(fused.values())
    key = next(name for name in apart if "q_proj" in name)
    groups = [{"params": [one for name, one in apart.items() if name != key]}, {"params": [apart[key]], "lr": 0.5}]
    names = [name for name in apart if name != key] + [key]
    with pytest.raises(ValueError, match="hyperparameters"):
        layouts.move_optimizer(plan, torch.optim.AdamW(groups), names, target, list(fused))
    source = torch.optim.AdamW(apart.values())
    for name, one in apart.items():
        one.grad = None if name == key else torch.ones_like(one)
    source.step()
    with pytest.raises(ValueError, match="some parts"):
        layouts.move_optimizer(plan, source, list(apart), target, list(fused))
    apart[key].grad = torch.ones_like(apart[key])
    source.step()
    with pytest.raises(ValueError, match="step differs"):
        layouts.move_optimizer(plan, source, list(apart), target, list(fused))
    with pytest.raises(ValueError, match="names are given"):
        layouts.move_optimizer(plan, source, [], target, list(fused))
    with pytest.raises(TypeError, match="AdamW is not that of Adam"):
        layouts.move_optimizer(plan, source, list(apart), torch.optim.Adam(fused.values()), list(fused))
