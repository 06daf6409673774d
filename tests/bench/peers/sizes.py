"""make bench-peers: time and memory of foldback and other tools on graphs of 1,000 to 100,000 nodes, in one run.

Every subject is a process of its own that has its model ready; a step that takes longer than the limit is ended, and not tried
on the larger graphs."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
from typing import Any, BinaryIO

import models
import report
from processes import START_LIMIT, Foldback, Service, Worker
from worker import peak_memory

LIMIT = 120.0  # seconds that a step may take
SLOW = 10_000.0  # milliseconds: what takes longer is done once
BEGIN, END = "<!-- sizes begin -->", "<!-- sizes end -->"
ROWS = {
    ("foldback", "memory"): "**foldback**, in memory: the three passes",
    ("foldback", "new"): "**foldback**, as a request: document sent, stored, result received",
    ("foldback", "undone"): "**foldback**: one pass of that run undone (`rollback` of `MergeLinears`)",
    ("foldback", "rollback"): "**foldback**: the whole run undone",
    ("optimum", "compose"): "Optimum: the same passes, in place",
    ("optimum", "reverse"): "Optimum: undone",
    ("onnxsim", "optimize"): "onnxsim",
    ("onnxslim", "optimize"): "OnnxSlim",
    ("onnxoptimizer", "optimize"): "onnxoptimizer",
    ("onnxscript", "optimize"): "onnxscript",
    ("onnxruntime", "optimize"): "ONNX Runtime: a session at level basic",
}
INTRODUCTION = """## How time grows beside other tools

Blocks of three Linears, a division and two additions, as [above](#beside-other-tools), of four sizes; {versions}.
One run, medians of three for foldback; of each other tool the second time, or the first where that took 10 s; load average
{load:.1f} on {cores} cores. Milliseconds, in brackets microseconds a node, then the most memory of the process in MB, which has
its model ready and its libraries loaded. "–": more than {limit:.0f} s, here or on the size before. The tools for ONNX find
nothing to do on these models: this is what it takes them to look.
"""


def measure_foldback(build: pathlib.Path, service: Service, document: dict[str, Any], file: pathlib.Path,
                     model: models.Model) -> dict[str, Any]:
    program = build / "tests/bench/instructions/bench"
    ms, peak = subprocess.run([program, file], check=True, capture_output=True, text=True).stdout.split()
    foldback = Foldback(service, document, model.passes)
    times: dict[str, list[float]] = {"new": [], "undone": [], "rollback": []}
    for _ in range(3):
        for step, one in times.items():
            one.append(foldback.step(step)["ms"])
    steps = {step: {"ms": statistics.median(one), "peak": peak_memory(service.process.pid)} for step, one in times.items()}
    return {"memory": {"ms": float(ms), "peak": int(peak)}} | steps


def measure(model: models.Model, build: pathlib.Path, given_up: set[tuple[str, str]], log: BinaryIO) -> dict[str, Any]:
    folder = build / "bench-peers" / model.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    service = Service(build / "foldback", folder / "data")
    try:
        preparing = Worker("optimum", model.name, folder, service.url, log)
        preparing.step("prepare", START_LIMIT)
        preparing.end()
        file = folder / "graph.json"
        worker: Worker | None = None
        found = {"foldback": measure_foldback(build, service, json.loads(file.read_text()), file, model)}
        for name, step in ROWS:
            if name == "foldback" or (name, step) in given_up:
                continue
            if worker is None:
                worker = Worker(name, model.name, folder, service.url, log)
            print(f"{model.name}: {name} {step}", file=sys.stderr, flush=True)
            said = worker.step(step, LIMIT)
            if step != "reverse" and said.get("ms", SLOW) < SLOW:
                said = worker.step(step, LIMIT)
            found.setdefault(name, {})[step] = said
            if "error" in said:
                given_up |= {(name, step)} | ({(name, "reverse")} if step == "compose" else set())
            if step != "compose" or "error" in said:
                worker.end()
                worker = None
        return found
    finally:
        service.stop()
        shutil.rmtree(folder, ignore_errors=True)


def cell(said: dict[str, Any] | None, nodes: int) -> str:
    if said is None or said.get("error", "").startswith("not done after"):
        return "–"
    if "error" in said:
        return report._cell(said["error"])
    return f"{report._figure(said['ms'])} ({report._figure(1e3 * said['ms'] / nodes)}), {said['peak'] * 1.024e-3:,.0f}"


def text(results: dict[str, Any]) -> str:
    packages = ("optimum", "torch", "onnxsim", "onnxslim", "onnxoptimizer", "onnxscript", "onnxruntime")
    introduction = INTRODUCTION.format(versions=report.versions(packages), load=os.getloadavg()[2], cores=os.cpu_count(),
                                       limit=LIMIT)
    lines = [introduction, "| nodes | " + " | ".join(f"{model.size:,}" for model in models.SIZES) + " |",
             "|---|" + "---:|" * len(models.SIZES)]
    for (name, step), label in ROWS.items():
        cells = [cell(results[model.name].get(name, {}).get(step), model.size) for model in models.SIZES]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--write", type=pathlib.Path, help="the Markdown file whose section is written anew")
    options = parser.parse_args()
    given_up: set[tuple[str, str]] = set()
    with open(options.build / "bench-sizes.log", "wb") as log:
        results = {model.name: measure(model, options.build, given_up, log) for model in models.SIZES}
    (options.build / "bench-sizes.json").write_text(json.dumps(results, indent=1))
    print(text(results))
    if options.write:
        report.put(options.write, text(results), BEGIN, END)


if __name__ == "__main__":
    main()
