"""How parametrised modules compute their weights: for the evaluator, which sees a call of a module and not what is inside."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

KEY = "parametrized"  # of a module's config


def recipes_of(module: torch.nn.Module) -> list[Any] | None:
    """The class whose forward() runs, then for each weight how it is computed (core/evaluator/parametrized.c has the forms).
    None for a module that is not parametrised, and where something else runs beside."""
    kind = parametrize.type_before_parametrizations(module)
    if getattr(torch.nn, kind.__name__, None) is not kind or "forward" in vars(module):
        return None
    found = _registered(module) if parametrize.is_parametrized(module) else []
    for table in ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"):
        for hook in (vars(module).get(table) or {}).values():
            recipe = _of_hook(hook) if table == "_forward_pre_hooks" else None
            if recipe is None or any(recipe[0] == other[0] for other in found):
                return None
            found.append(recipe)
    return [f"torch.nn.{kind.__name__}", *found] if found else None


def _registered(module: torch.nn.Module) -> list[list[Any]]:
    """torch.nn.utils.parametrize: one after the other."""
    found = []
    for name, steps in module.parametrizations.items():  # type: ignore[union-attr, operator]
        path = f"parametrizations.{name}"
        for index, step in enumerate(steps):
            found.append([name, *_of_step(step, path, index)])
    return found


def _of_step(step: torch.nn.Module, path: str, index: int) -> list[Any]:
    original = None if index else f"{path}.original"
    runs_more = bool(step._forward_hooks or step._forward_pre_hooks or "forward" in vars(step))
    if type(step) is parametrizations._WeightNorm and index == 0 and not runs_more:
        return ["weight_norm", step.dim, f"{path}.original1", f"{path}.original0"]
    if type(step) is parametrizations._SpectralNorm and not step.training and not runs_more:
        return ["spectral_norm", step.dim, step.eps, original, f"{path}.{index}._u", f"{path}.{index}._v"]
    if type(step) is parametrizations._Orthogonal and not runs_more and getattr(step, "base", step) is not None:
        return ["orthogonal", step.orthogonal_map.name, original, f"{path}.{index}.base" if hasattr(step, "base") else None]
    training = " in training" if step.training else ""
    return [f"{type(step).__module__}.{type(step).__qualname__}{training}"]


def _of_hook(hook: Any) -> list[Any] | None:
    """torch.nn.utils.weight_norm, spectral_norm and prune, which are forward pre-hooks."""
    if type(hook) is WeightNorm:
        return [hook.name, "weight_norm", hook.dim, f"{hook.name}_v", f"{hook.name}_g"]
    if type(hook) is SpectralNorm:
        names = [f"{hook.name}_{end}" for end in ("orig", "u", "v")]
        return [hook.name, "spectral_norm", hook.dim, hook.eps, *names]
    if isinstance(hook, prune.BasePruningMethod) and type(hook).apply_mask is prune.BasePruningMethod.apply_mask:
        is_known = type(hook).__call__ is prune.BasePruningMethod.__call__
        return [hook._tensor_name, "mask", f"{hook._tensor_name}_orig", f"{hook._tensor_name}_mask"] if is_known else None
    return None
