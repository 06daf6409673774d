"""What a peer can do, found by doing it, not by reading what it says of itself.

    here       the original comes back in the process that transformed it: graph, names of tensors in order, and every byte
    elsewhere  it comes back in a new process that has nothing but the files that the peer wrote
    one        one pass of the composition can be undone: the same comes out as without that pass
    input      the input was modified
"""

from __future__ import annotations

import ast
import copy
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import models
from subjects import OnnxTool, Optimum, print_of

Checks = dict[str, dict[str, str]]


def of(name: str, subject: Any) -> Checks:
    if isinstance(subject, Optimum):
        return _of_optimum(subject)
    return {name: _of_onnx(subject)}


def tried(work: Callable[[], str]) -> str:
    try:
        return work()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[0][:160]}"


def same(found: Any, expected: Any) -> str:
    if found == expected:
        return "yes"
    if found[0] != expected[0]:
        return "no: another graph, and no error"
    if sorted(found[1]) == sorted(expected[1]):
        return "yes, but state_dict in another order"
    return "no: other weights, and no error"


# ---- Optimum, copies and files ------------------------------------------------------------------------------------------


def _of_optimum(subject: Optimum) -> Checks:
    original = print_of(subject.module)
    return {
        "compose": _of_composition(subject, original, inplace=True),
        "compose_copy": _of_composition(subject, original, inplace=False),
        "deepcopy": _of_copy(subject, original),
        "save": _of_file(subject, original),
    }


def _of_composition(subject: Optimum, original: Any, inplace: bool) -> dict[str, str]:
    # Traced anew: of a deep copy of what transformers traces, torch.save makes a file that cannot be loaded.
    composition, (module, _) = subject.composition(inplace), models.trace(subject.model)
    result = composition(module)
    modified = print_of(module) != original

    def here() -> str:
        return same(print_of(composition(result, reverse=True)), original)

    found = {"input": "yes" if modified else "no", "elsewhere": tried(lambda: _elsewhere(subject, result, original, inplace))}
    found["here"] = tried(here)
    found["one"] = tried(lambda: _one_pass(subject)) if len(subject.model.passes) > 1 else ""
    return found


def _elsewhere(subject: Optimum, result: Any, original: Any, inplace: bool) -> str:
    """torch.save of the transformed module, reversed by a process that loads it."""
    import torch

    torch.save(result, subject.file)
    code = (
        "import sys, torch, subjects, models, pathlib; import optimum.fx.optimization as optimum\n"
        f"passes = [getattr(optimum, name)() for name in {subject.model.passes!r}]\n"
        f"module = torch.load({str(subject.file)!r}, weights_only=False)\n"
        f"module = optimum.compose(*passes, inplace={inplace!r})(module, reverse=True)\n"
        "sys.stderr.flush(); print(repr(subjects.print_of(module)))"
    )
    return same(_in_new_process(code), original)


def _in_new_process(code: str) -> Any:
    here = str(pathlib.Path(__file__).resolve().parent)
    program = f"import sys; sys.path.insert(0, {here!r})\n{code}"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip().splitlines()[-1])
    return ast.literal_eval(done.stdout.decode().strip().splitlines()[-1])


def _one_pass(subject: Optimum) -> str:
    """Every pass in turn."""
    for left_out in subject.model.passes:
        passes = {name: getattr(subject.optimum, name)() for name in subject.model.passes}
        result = subject.optimum.compose(*passes.values())(copy.deepcopy(subject.module))
        others = [item for name, item in passes.items() if name != left_out]
        expected = print_of(subject.optimum.compose(*others)(copy.deepcopy(subject.module)))
        outcome = tried(lambda: same(print_of(passes[left_out](result, reverse=True)), expected))
        if not outcome.startswith("yes"):
            return f"not {left_out}: {outcome}"
    return "yes"


def _of_copy(subject: Optimum, original: Any) -> dict[str, str]:
    kept = copy.deepcopy(subject.module)
    subject.composition()(copy.deepcopy(subject.module))
    return {
        "here": same(print_of(kept), original),
        "elsewhere": "no: it writes nothing",
        "one": _whole(subject),
        "input": _input(subject, original),
    }


def _of_file(subject: Optimum, original: Any) -> dict[str, str]:
    import torch

    torch.save(subject.module, subject.file)
    code = f"import torch, subjects; print(repr(subjects.print_of(torch.load({str(subject.file)!r}, weights_only=False))))"
    return {
        "here": tried(lambda: same(print_of(torch.load(subject.file, weights_only=False)), original)),
        "elsewhere": tried(lambda: same(_in_new_process(code), original)),
        "one": _whole(subject),
        "input": _input(subject, original),
    }


def _whole(subject: Optimum) -> str:
    return "no: it keeps the whole" if len(subject.model.passes) > 1 else ""


def _input(subject: Optimum, original: Any) -> str:
    return "no" if print_of(subject.module) == original else "yes"


# ---- ONNX ---------------------------------------------------------------------------------------------------------------


def _of_onnx(subject: OnnxTool) -> dict[str, str]:
    before = subject.input_bytes()
    subject.optimize()()
    undo = re.compile("undo|revers|revert|restore|roll_?back", re.IGNORECASE)
    found = [name for name in dir(subject.tool) if undo.search(name)]
    answer = "no such function" if not found else f"perhaps: {', '.join(found)}"
    return {"here": answer, "elsewhere": answer, "one": answer, "input": "no" if subject.input_bytes() == before else "yes"}
