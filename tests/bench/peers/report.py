"""The figures as Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from models import MODELS

BEGIN, END = "<!-- peers begin -->", "<!-- peers end -->"
REFERENCE = ("foldback", "new")

LIVE = (REFERENCE, ("optimum", "to_document"), ("optimum", "apply_edits"))  # whoever has a live GraphModule needs all three

ROWS = {
    ("foldback", "new"): "**foldback**: `POST /v1/optimize`, document sent, result received",
    ("foldback", "by_id"): "foldback: `POST /v1/optimize` by id, after an upload that is not counted",
    ("foldback", "rollback"): "foldback: rollback of that run",
    ("foldback", "reverse"): "foldback: reverse of that run",
    ("foldback", "again"): "foldback: the same request by id again",
    ("optimum", "to_document"): "foldback's client: `to_document` of a live GraphModule, with all shapes",
    ("optimum", "apply_edits"): "foldback's client: `apply_edits` to a live GraphModule, weights computed",
    ("foldback", "live"): "**foldback: a live GraphModule, the sum**: `to_document`, the POST, `apply_edits`",
    ("optimum", "compose"): "Optimum: `compose(…)`, in place",
    ("optimum", "compose_copy"): "Optimum: `compose(…, inplace=False)`",
    ("optimum", "reverse"): "Optimum: reverse",
    ("optimum", "deepcopy"): "PyTorch: `copy.deepcopy` of the GraphModule, to keep an undo",
    ("optimum", "save"): "PyTorch: `torch.save` of the GraphModule, to keep an undo on disk",
    ("optimum", "load"): "PyTorch: `torch.load` of it",
    ("onnxsim", "optimize"): "onnxsim: `simplify`",
    ("onnxoptimizer", "optimize"): "onnxoptimizer: `optimize`",
    ("onnxruntime", "optimize"): "ONNX Runtime: a session at level basic",
}

ABLE = {
    "foldback": "**foldback**",
    "compose": "Optimum, in place",
    "compose_copy": "Optimum, `inplace=False`",
    "deepcopy": "`copy.deepcopy`",
    "save": "`torch.save`",
    "onnxsim": "onnxsim",
    "onnxoptimizer": "onnxoptimizer",
    "onnxruntime": "ONNX Runtime",
}

INTRODUCTION = """## Beside other tools

`make bench-peers` installs the peers from PyPI in a venv of its own, makes the models from configurations with random weights,
and writes this section. {versions}.

- Each table is one run, not all of the same hour. A round asks each tool for each of its steps in turn, so that whatever else
  the machine did met all of them. When this was written the load average of 15 minutes was {load:.1f} on {cores} cores; above
  one, others were at work on the machine. **The ratios count**, to foldback's first row; the milliseconds show the order of
  magnitude.
- One round to warm up, then as many as each table says; median and floor (the fastest). What took more than 10 s in the round
  that warms up was not repeated: that one figure is marked †. What took more than 300 s was ended, and says so.
- Each tool is in a process of its own and has its model ready in the form that it takes: a GraphModule, an ONNX model in
  memory, the bytes of a document. What it may spoil is copied before the clock starts. foldback is asked over HTTP, stores
  source and result on disk (fsync included) before it answers, and in the first row gets a graph that it has never seen, every
  time, just after the others have had the caches; a document that is sent again and again costs less.
- The passes are `ChangeTrueDivToMulByInverse`, `MergeLinears` and `FuseBiasInLinear`; for ResNet-50 `FuseBatchNorm2dInConv2d`.
  The three tools for ONNX do their own default passes instead, on an export of the same model: their rows say what their job
  costs, not who does the same one faster. ONNX Runtime cannot optimise without making a session.
- foldback's service never touches weights: its new tensors are recipes. Who has a live GraphModule and wants one back pays for
  three rows, whose sum is in bold: `to_document` (once a model), a POST, and `apply_edits`, which computes the new weights.
"""


def text(results: dict[str, Any]) -> str:
    parts = [INTRODUCTION.format(versions=versions(), load=os.getloadavg()[2], cores=os.cpu_count())]
    for name, found in results.items():
        parts.append(_times(name, found))
    parts.append(_able(results))
    return "\n".join(parts)


NAMES = {
    "optimum": "Optimum",
    "transformers": "transformers",
    "torch": "PyTorch",
    "onnx": "ONNX",
    "onnxsim": "onnxsim",
    "onnxoptimizer": "onnxoptimizer",
    "onnxslim": "OnnxSlim",
    "onnxruntime": "ONNX Runtime",
    "onnxscript": "onnxscript",
}


def versions(packages: Iterable[str] = ("optimum", "transformers", "torch", "onnxsim", "onnxoptimizer", "onnxruntime")) -> str:
    found = []
    for package in packages:
        try:
            found.append(f"{NAMES[package]} {importlib.metadata.version(package).partition('+')[0]}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{NAMES[package]} (not installed)")
    return ", ".join(found)


# ---- times --------------------------------------------------------------------------------------------------------------


def _times(name: str, found: dict[str, Any]) -> str:
    steps = {(subject, step): taken for subject, listed in found["steps"].items() for step, taken in listed.items()}
    reference = steps[REFERENCE]
    parts = [steps[key] for key in LIVE if key in steps and "error" not in steps[key]]
    if len(parts) == len(LIVE):
        steps["foldback", "live"] = {key: sum(part[key] for part in parts) for key in ("median", "floor", "once")}
    title = f"### {MODELS[name].title}\n\n{found['nodes']:,} nodes, a document of {found['bytes'] / 1000:,.0f} kB; "
    title += f"{found['rounds']} rounds."
    if found["export"]:
        title += f" Export to ONNX failed: {_cell(found['export'])}"
    lines = [title, "", "| | median ms | floor ms | medians, to foldback's | floors |", "|---|---:|---:|---:|---:|"]
    for key, label in ROWS.items():
        if key in steps:
            lines.append(_row(label + _nodes(found["onnx"].get(key[0], {})), steps[key], reference))
    return "\n".join([*lines, ""])


def _nodes(said: dict[str, Any]) -> str:
    return f" ({said['nodes'][0]:,} nodes become {said['nodes'][1]:,})" if "nodes" in said else ""


def _row(label: str, taken: dict[str, Any], reference: dict[str, Any]) -> str:
    if "error" in taken:
        return f"| {label} | {_cell(taken['error'])} | | | |"
    ratios = ["" if "error" in reference else f"{_figure(taken[key] / reference[key])} ×" for key in ("median", "floor")]
    mark = " †" if taken["once"] else ""
    return f"| {label} | {_figure(taken['median'])}{mark} | {_figure(taken['floor'])} | {' | '.join(ratios)} |"


def _figure(number: float) -> str:
    digits = 0 if number >= 100 else 1 if number >= 10 else 2 if number >= 0.1 else 3
    return f"{number:,.{digits}f}"


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


# ---- what they can do ---------------------------------------------------------------------------------------------------


def _able(results: dict[str, Any]) -> str:
    bert = next((results[name]["checks"] for name in ("bert-base", "bert-tiny") if name in results), {})
    resnet = results.get("resnet-50", {}).get("checks", {})
    lines = [
        "### What they can do",
        "",
        "Found by doing it in these runs, on BERT-base and, for the BatchNorm fold, on ResNet-50. *Comes back* means: the same "
        "graph",
        "(names of nodes aside), the same names of tensors in the same order, the same bytes; for foldback, the same id. *In "
        "another",
        "process* means: from the files that the tool wrote (for Optimum, `torch.save` of the transformed module); foldback's "
        "service",
        "was killed with SIGKILL and started again. For the tools for ONNX, their modules were searched for a function that "
        "undoes.",
        "",
        "| | comes back in the same process | in another process | one pass undone | BatchNorm fold undone | modifies its "
        "input |",
        "|---|---|---|---|---|---|",
    ]
    for name, label in ABLE.items():
        found, fold = bert.get(name), resnet.get(name, {})
        if found is None:
            found = bert.get("optimum", {"error": "not checked"})  # the worker of these did not answer
        if "error" in found:
            lines.append(f"| {label} | {_cell(found['error'])} | | | | |")
            continue
        cells = [found["here"], found["elsewhere"], found["one"], fold.get("here", ""), found["input"]]
        lines.append(f"| {label} | " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join([*lines, ""])


# ---- the file -----------------------------------------------------------------------------------------------------------


def put(file: pathlib.Path, section: str, begin: str = BEGIN, end: str = END) -> None:
    """Writes the section between its markers; the rest of the file stays."""
    whole = file.read_text() if file.exists() else "# Performance\n"
    marked = f"{begin}\n{section}{end}"
    if begin in whole and end in whole:
        before, _, rest = whole.partition(begin)
        whole = before + marked + rest.partition(end)[2]
    else:
        whole = whole.rstrip("\n") + f"\n\n{marked}\n"
    file.write_text(whole)
