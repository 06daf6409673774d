"""Runs the plan of a layout on tensors in memory: a trainer's own, on any device.

`foldback layout plan LAYOUT FILE --json` writes a plan: parts of tensors that are copied into parts of others, and with `undo`
back. Bits move, and nothing is computed. This file needs PyTorch alone: copy it, or take the module that
`foldback layout plan --python` writes, which is this one with the plan in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

__all__ = ["load", "move_optimizer", "run"]

FORMAT = "foldback.layout-plan/1"
# Their steps read an element and its own state alone, so that they do the same to a tensor and to parts of it.
ELEMENTWISE = ("SGD", "Adam", "AdamW")
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def load(path: str) -> dict[str, Any]:
    """The plan that a file has."""
    with open(path, encoding="utf-8") as file:
        plan: dict[str, Any] = json.load(file)
    if plan.get("format") != FORMAT:
        raise ValueError(f"{path} is not a plan of foldback layout plan --json")
    return plan


def run(plan: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], *, undo: bool = False) -> dict[str, torch.Tensor]:
    """The state dict `tensors`, rearranged. What no copy names, or what gets another name alone, is the same tensor.

    KeyError for a tensor that is missing; ValueError for another shape or dtype, for a plan that cannot be undone, and for
    copies of one tensor that differ or constants that have changed, which no tensor of before would give.
    """
    before, after = _sides(plan, undo)
    for name, about in before.items():
        _check(name, about, tensors[name])
    out = {name: tensor for name, tensor in tensors.items() if name not in before}
    clash = sorted(out.keys() & after.keys())
    if clash:
        raise ValueError(f"{clash[0]} is there already")
    for one in plan["copies"]:
        _copy(one, tensors, out, after, undo)
    for one in plan["fills"]:
        name, steps = one["made"], one["part"]
        if not undo:
            made = _made(out, name, after[name], next(iter(tensors.values())).device)
            constant = torch.full(_shape(made, steps), one["value"], dtype=made.dtype, device=made.device)
            _write(_bits(made), steps, _bits(constant))
        elif not bool((_read(tensors[name], steps) == one["value"]).all()):
            raise ValueError(f"{name}: {one['value']} has changed where it fills in, so that no tensor of before gives this")
    for name, about in after.items():  # without elements, of which nothing is copied
        if name not in out:
            _made(out, name, about, next(iter(tensors.values())).device)
    return out


def _sides(plan: Mapping[str, Any], undo: bool) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    if plan.get("format") != FORMAT:
        raise ValueError("this is not a plan of foldback layout plan --json")
    if undo and not plan["reversible"]:
        raise ValueError(f"{plan['layout']} leaves numbers out here, so that it cannot be undone")
    return (plan["made"], plan["sources"]) if undo else (plan["sources"], plan["made"])


def _check(name: str, about: Mapping[str, Any], tensor: torch.Tensor) -> None:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if list(tensor.shape) != about["shape"] or dtype != about["dtype"]:
        raise ValueError(f"{name} is {dtype}{list(tensor.shape)}, and the plan is for {about['dtype']}{about['shape']}")


def _copy(one: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], out: dict[str, torch.Tensor], after: Mapping[str, Any],
          undo: bool) -> None:
    sides = (one["source"], one["of"]), (one["made"], one["part"])
    (source, of), (target, part) = reversed(sides) if undo else sides
    if not of and not part and not one.get("again"):
        out[target] = tensors[source]
        return
    value = _read(_bits(tensors[source]), of)
    if undo and one.get("again"):
        if not torch.equal(_read(_bits(out[target]), part).to(value.device), value):
            raise ValueError(f"{source} has other numbers for {target} than an earlier copy of them")
        return
    _write(_bits(_made(out, target, after[target], tensors[source].device)), part, value)


def _made(out: dict[str, torch.Tensor], name: str, about: Mapping[str, Any], device: torch.device) -> torch.Tensor:
    if name not in out:
        out[name] = torch.empty(about["shape"], dtype=getattr(torch, about["dtype"]), device=device)
    return out[name]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory in a dtype that PyTorch moves on every device."""
    return tensor.detach().view(_INTEGERS[tensor.element_size()])


# ---- parts of tensors -----------------------------------------------------------------------------------------------------


def _places(index: Mapping[str, Any], device: torch.device) -> torch.Tensor:
    sizes = index["reshape"]
    return torch.arange(torch.Size(sizes).numel(), device=device).reshape(sizes).permute(index["permute"]).reshape(-1)


def _step(tensor: torch.Tensor, step: Mapping[str, Any]) -> torch.Tensor:
    """A view where one is possible."""
    if "slice" in step:
        return tensor[tuple(slice(start, stop) for start, stop in step["slice"])]
    if "index" in step:
        return tensor.index_select(step["index"]["axis"], _places(step["index"], tensor.device))
    return tensor.reshape(step["reshape"]) if "reshape" in step else tensor.permute(step["permute"])


def _read(tensor: torch.Tensor, steps: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    for step in steps:
        tensor = _step(tensor, step)
    return tensor


def _shape(tensor: torch.Tensor, steps: Sequence[Mapping[str, Any]]) -> torch.Size:
    return _read(torch.empty(tensor.shape, device="meta"), [step for step in steps if "index" not in step]).shape


def _write(tensor: torch.Tensor, steps: Sequence[Mapping[str, Any]], value: torch.Tensor) -> None:
    if not steps:
        tensor.copy_(value)
        return
    part = _step(tensor, steps[0])
    _write(part, steps[1:], value)
    if "index" in steps[0]:
        tensor.index_copy_(steps[0]["index"]["axis"], _places(steps[0]["index"], tensor.device), part)
    elif part.numel() and part.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr():  # the reshape has copied
        tensor.copy_(part.reshape(tensor.shape))


# ---- optimisers -----------------------------------------------------------------------------------------------------------


def move_optimizer(plan: Mapping[str, Any], source: torch.optim.Optimizer, names: Sequence[str], target: torch.optim.Optimizer,
                   target_names: Sequence[str], *, undo: bool = False) -> None:
    """Loads the state of `source` into `target`, an optimiser of the same class over the rearranged parameters.

    `names` and `target_names` are those of the parameters, in the order of the optimisers' groups. SGD, Adam and AdamW go on as
    they would have: they compute element by element. TypeError for any other class: Muon and Adafactor look at a whole matrix,
    and their step on a fused weight is another step. ValueError where parts of one tensor have other hyperparameters, or have
    been trained for another number of steps.
    """
    kind = type(source).__name__
    if kind not in ELEMENTWISE or type(source).__module__.split(".")[0] != "torch":
        raise TypeError(f"{kind} need not compute element by element as {', '.join(ELEMENTWISE)} do: its state stays")
    if type(target) is not type(source):
        raise TypeError(f"the state of {kind} is not that of {type(target).__name__}")
    if plan["fills"]:
        raise ValueError("what a layout fills in has no state of an optimiser")
    _sides(plan, undo)
    origins: dict[str, list[str]] = {}
    for one in plan["copies"]:
        origins.setdefault(one["source" if undo else "made"], []).append(one["made" if undo else "source"])
    states, groups = _by_name(source, names)
    _, target_groups = _by_name(target, target_names)
    new: dict[str, dict[str, Any]] = {}
    for name in target_names:
        parts = origins.get(name, [name])
        missing = [part for part in parts if part not in groups]
        if missing:
            raise ValueError(f"{missing[0]} is not a parameter of the optimiser, and {name} is")
        for part in parts:
            if _settings(groups[part]) != _settings(groups[parts[0]]):
                raise ValueError(f"{part} and {parts[0]} have other hyperparameters, and {name} is of both")
        new[name] = {key: value.clone() if isinstance(value, torch.Tensor) else value
                     for key, value in states.get(parts[0], {}).items()}
        if any((part in states) != (parts[0] in states) for part in parts):
            raise ValueError(f"some parts of {name} have been trained and others have not")
        for key, value in new[name].items():
            if not (isinstance(value, torch.Tensor) and value.dim()) and any(states[part][key] != value for part in parts):
                raise ValueError(f"{key} differs between parts of {name}")
    for key in sorted({key for state in states.values() for key, value in state.items() if _is_of_elements(value)}):
        moved = run(_plan_of(plan, key, states, undo), {name: state[key] for name, state in states.items() if key in state},
                    undo=undo)
        for name, value in moved.items():
            if name in new:
                new[name][key] = value.clone()
    order = [name for group in target.state_dict()["param_groups"] for name in group["params"]]
    target.load_state_dict({
        "state": {index: new[name] for index, name in zip(order, target_names, strict=True) if new[name]},
        "param_groups": [{**_settings(groups[origins.get(name, [name])[0]]), "params": group["params"]}
                         for group, name in _first_names(target, target_names)],
    })


def _is_of_elements(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _plan_of(plan: Mapping[str, Any], key: str, states: Mapping[str, Mapping[str, Any]], undo: bool) -> dict[str, Any]:
    """The plan for the state `key`, which may be of another dtype than the parameters, and of some of them alone."""
    _, after = _sides(plan, undo)
    side = "made" if undo else "source"
    have = {name for name, state in states.items() if key in state}
    copies = [one for one in plan["copies"] if one[side] in have]
    used = {end: {one[end] for one in copies} for end in ("made", "source")}
    dtypes = {str(states[name][key].dtype).removeprefix("torch.") for name in have & used[side]}
    if len(dtypes) > 1:
        raise ValueError(f"{key} has the dtypes {', '.join(sorted(dtypes))}, and parts of one tensor have one")
    dtype = next(iter(dtypes), "float32")
    return {**plan, "copies": copies,
            "made": {name: {**about, "dtype": dtype} for name, about in plan["made"].items() if name in used["made"]},
            "sources": {name: {**about, "dtype": dtype} for name, about in plan["sources"].items() if name in used["source"]}}


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


def _first_names(optimizer: torch.optim.Optimizer, names: Sequence[str]) -> list[tuple[dict[str, Any], str]]:
    at, out = 0, []
    for group in optimizer.state_dict()["param_groups"]:
        out.append((group, names[at]))
        at += len(group["params"])
    return out


def _by_name(optimizer: torch.optim.Optimizer,
             names: Sequence[str]) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Every parameter's state and group."""
    held = optimizer.state_dict()
    order = [(index, group) for group in held["param_groups"] for index in group["params"]]
    if len(order) != len(names) or len(set(names)) != len(names):
        raise ValueError(f"the optimiser has {len(order)} parameters, and {len(names)} names are given")
    states = {name: held["state"][index] for name, (index, _) in zip(names, order, strict=True) if index in held["state"]}
    return states, {name: group for name, (_, group) in zip(names, order, strict=True)}
