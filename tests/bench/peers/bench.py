"""make bench-peers: foldback beside other tools that rewrite graphs, on the same models, in one run.

Every subject lives in a process of its own and has its model ready. A round asks each for each of its steps in turn, so that
whatever else the machine does meets all of them. One round to warm up is not counted."""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import sys
from typing import Any

import models
import report
from processes import START_LIMIT, Foldback, Service, Worker

SLOW = 10_000.0  # milliseconds: what takes longer is done once
LIMIT = 300.0  # seconds that a step may take

STEPS = {
    "foldback": ["new", "by_id", "rollback", "reverse", "again"],
    "optimum": ["to_document", "apply_edits", "compose", "reverse", "compose_copy", "deepcopy", "save", "load"],
    "onnxsim": ["optimize"],
    "onnxoptimizer": ["optimize"],
    "onnxruntime": ["optimize"],
}


class Series:
    """What one step of one subject took."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.error = ""
        self.warm_up: float | None = None

    def is_done(self) -> bool:
        return bool(self.error) or (self.warm_up or 0) > SLOW

    def add(self, said: dict[str, Any], is_warm_up: bool) -> None:
        if "error" in said:
            self.error = said["error"]
        elif is_warm_up:
            self.warm_up = said["ms"]
        else:
            self.times.append(said["ms"])

    def result(self) -> dict[str, Any]:
        if self.error:
            return {"error": self.error}
        times = self.times or [self.warm_up]
        return {"median": statistics.median(times), "floor": min(times), "times": len(self.times) or 1, "once": not self.times}


def installed_errors(venv: pathlib.Path) -> dict[str, str]:
    """What pip said of the peers that could not be installed."""
    found = {}
    for file in venv.glob("*.error"):
        lines = [line for line in file.read_text().splitlines() if line.startswith("ERROR")]
        found[file.stem] = lines[0] if lines else "pip failed"
    return found


def measure(model: models.Model, build: pathlib.Path, not_installed: dict[str, str], log: Any) -> dict[str, Any]:
    folder = build / "bench-peers" / model.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    service = Service(build / "foldback", folder / "data")
    workers: dict[str, Worker] = {}
    try:
        preparing = Worker("optimum", model.name, folder, service.url, log)
        prepared = preparing.step("prepare", START_LIMIT)
        preparing.end()
        if not (folder / "graph.json").exists():
            raise RuntimeError(f"{model.name}: no document: {prepared}")
        document = json.loads((folder / "graph.json").read_text())
        foldback = Foldback(service, document, model.passes)
        workers = {name: Worker(name, model.name, folder, service.url, log) for name in STEPS if name != "foldback"}
        found = _rounds(model, foldback, workers, not_installed)
        optimised = [name for name in workers if "error" not in found[name].get("optimize", {"error": ""})]
        nodes = {name: workers[name].step("nodes", 60) for name in optimised}
        checks = {"foldback": foldback.checks()}
        if not model.name.startswith("blocks"):
            for name, worker in workers.items():
                said = worker.step("checks", LIMIT)
                checks |= said.get("checks", {name: {"error": said.get("error", "")}})
        sizes = {"nodes": len(document["nodes"]), "bytes": (folder / "graph.json").stat().st_size, "rounds": model.rounds}
        return {**sizes, "steps": found, "onnx": nodes, "checks": checks, "export": prepared.get("error", "")}
    finally:
        for worker in workers.values():
            worker.end()
        service.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _rounds(model: models.Model, foldback: Foldback, workers: dict[str, Worker],
            not_installed: dict[str, str]) -> dict[str, Any]:
    steps = {name: [step for step in listed if model.is_reversible or step != "reverse"] for name, listed in STEPS.items()}
    series = {name: {step: Series() for step in listed} for name, listed in steps.items()}
    for number in range(model.rounds + 1):
        for name, listed in steps.items():
            for step in listed:
                one = series[name][step]
                if one.is_done():
                    continue
                print(f"{model.name}: round {number} of {model.rounds}: {name} {step}", file=sys.stderr, flush=True)
                if name in not_installed:
                    one.add({"error": f"not installed: {not_installed[name]}"}, False)
                elif name == "foldback":
                    one.add(foldback.step(step), number == 0)
                else:
                    one.add(workers[name].step(step, LIMIT), number == 0)
    return {name: {step: one.result() for step, one in listed.items()} for name, listed in series.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--write", type=pathlib.Path, help="the Markdown file whose section is written anew")
    parser.add_argument("models", nargs="*", default=list(models.MODELS))
    options = parser.parse_args()
    not_installed = installed_errors(pathlib.Path(sys.prefix))
    # Each model's figures are kept, so that a text can be made again of those that were measured last.
    results_file = options.build / "bench-peers.json"
    results = json.loads(results_file.read_text()) if results_file.exists() else {}
    with open(options.build / "bench-peers.log", "wb") as log:
        for name in options.models:
            results[name] = measure(models.MODELS[name], options.build, not_installed, log)
            results_file.write_text(json.dumps(results, indent=1))
    text = report.text({name: results[name] for name in models.MODELS if name in results})
    print(text)
    if options.write:
        report.put(options.write, text)


if __name__ == "__main__":
    main()
