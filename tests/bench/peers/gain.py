"""How much faster models run after a preset: eager PyTorch on one thread, beside torch.compile with freezing and ONNX Runtime.

Each model is exported as torch.export and, where that can follow, as torch.fx writes it; the document is made a live program,
and so is the document of the result. The rounds ask every variant in turn, so that whatever else the machine does meets all of
them. Every model runs in a process of its own. The rules are in TEXT."""

from __future__ import annotations

import argparse
import concurrent.futures
import copy
import dataclasses
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import report
from gain_models import PASSES, SUBJECTS, inputs, make, shapes

BEGIN, END = "<!-- gain begin -->", "<!-- gain end -->"
EACH_BEGIN, EACH_END = "<!-- passes begin -->", "<!-- passes end -->"
ROUNDS, LEAST = 9, 3
SECONDS = 12.0  # of one row's rounds, after which LEAST of them are enough
FAST = 0.02  # seconds: what is faster is repeated within a round
ALLOWED = 1e-3  # of the largest output
GOALS = {"all": 1.15, "vision": 1.3, "least": 0.98}

TEXT = """## Time that is saved

`make bench-gain` runs models of real sizes with random weights, before and after a preset, in eager PyTorch on one thread, and
beside them `torch.compile` with freezing and ONNX Runtime, both on one thread. {versions}; {machine}.

- *before* is what `torch.export` wrote, as a GraphModule; *inference* and *latency* are its time over that of the result: the
  median over the rounds of the ratio within a round. A round runs each variant once (again and again for {fast:.0f} ms where it
  is faster), so whatever else the machine does meets all. Times are the processor's.
- *fx* is `inference` on what torch.fx traces, against that program before; "no" where torch.fx cannot follow the model.
- *torch.compile* and *ONNX Runtime* are gains over *before*. The first fuses and generates code for one shape; the second runs
  its own kernels. foldback's result stays a program of PyTorch that anything can be done with, and both can be given it.
- A row measured twice differs by some per cent, on a virtual machine seldom by 10: read the means.
- The outputs before and after differ by at most {allowed:.0e} of the largest number, or the row says so.

"""

PASSES_TEXT = """## What each pass saves alone

`make bench-gain GAIN=--each` runs models of real sizes with random weights before and after one pass, in eager PyTorch on one
thread, batch 1, as `torch.export` writes them. {versions}; {machine}. *gain* is the processor time before over that after: the
median over the rounds of the ratio within a round.
The `gain` in `GET /v1/passes` is `faster` or `slower` if the geometric mean of a pass's rows is 5 % away from 1, else
`fewer-nodes` or `same`.

"""


# ---- one model ---------------------------------------------------------------------------------------------------------------


def programs_of(model: Any, given: dict[str, Any], dialect: str) -> tuple[dict[str, Any], Callable[[], Any]]:
    """The document, and what makes the program anew, with weights of the same values."""
    import torch
    from transformers.utils.fx import symbolic_trace

    import foldback
    import foldback.export

    if dialect == "fx":
        live = symbolic_trace(model, input_names=list(given), disable_check=True)
        document = foldback.fx.to_document(live, *(given[node.target] for node in live.graph.nodes if node.op == "placeholder"),
                                           model=model)
        return document, lambda: copy.deepcopy(live)
    program = torch.export.export(model, (), given)
    return foldback.export.from_exported_program(program), lambda: program.module(check_guards=False)


def first_tensor(value: Any) -> Any:
    import torch

    return next(leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def error_between(one: Any, other: Any) -> float:
    a, b = first_tensor(one), first_tensor(other)
    return ((a - b).abs().max() / b.abs().max()).item() if a.shape == b.shape else math.inf


@dataclasses.dataclass
class Variants:
    """What is measured: `runs` by name; `against`: the name of each one's original, where that is not "before"."""

    runs: dict[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)
    against: dict[str, str] = dataclasses.field(default_factory=dict)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add_result(self, name: str, client: Any, document: dict[str, Any], after: Any, item: dict[str, Any],
                   given: dict[str, Any], before: str) -> dict[str, Any]:
        """The program after a preset."""
        import foldback

        run = client.optimize(document, [item])
        foldback.apply_edits(after, client.edits(run))
        self.runs[name] = lambda: after(**given)
        self.against[name] = before
        self.facts["error"] = max(self.facts.get("error", 0.0), error_between(after(**given), self.runs[before]()))
        self.facts[f"{name} nodes"] = len(after.graph.nodes)
        return run


def variants(name: str, batch: int, tokens: int, options: argparse.Namespace) -> Variants:
    import foldback.private

    model, given = make(name), inputs(name, batch, tokens)
    found, client = Variants(), foldback.private.client()
    document, program = programs_of(model, given, "aten")
    before = program()
    found.runs["before"] = lambda: before(**given)
    found.facts["nodes"] = len(document["nodes"])
    run = found.add_result("inference", client, document, program(), {"name": "inference"}, given, "before")
    found.facts["applied"] = {one["name"]: one["applied"] for one in run["passes"] if one["applied"]}
    hint = {"params": {"tokens": batch * tokens}} if tokens else {}
    found.add_result("latency", client, document, program(), {"name": "latency", **hint}, given, "before")
    makers: dict[str, Callable[[], None]] = {"fx": lambda: add_traced(found, client, model, given)}
    if options.peers:
        makers["torch.compile"] = lambda: found.runs.update({"torch.compile": compiled(model, given)})
        makers["ONNX Runtime"] = lambda: found.runs.update({"ONNX Runtime": session(model, given)})
    for one, maker in makers.items():
        try:
            maker()
            found.runs[one]()
        except Exception as error:  # what cannot be done is said, not fatal
            found.runs.pop(one, None)
            found.facts[one] = f"{type(error).__name__}: {str(error)[:80]}"
    return found


def add_traced(found: Variants, client: Any, model: Any, given: dict[str, Any]) -> None:
    document, program = programs_of(model, given, "fx")
    before = program()
    found.runs["fx before"] = lambda: before(**given)
    try:
        found.add_result("fx", client, document, program(), {"name": "inference"}, given, "fx before")
    except Exception:
        del found.runs["fx before"]
        raise


def compiled(model: Any, given: dict[str, Any]) -> Callable[[], Any]:
    import torch

    torch._inductor.config.freezing = True
    made = torch.compile(model, dynamic=False)
    return lambda: made(**given)


def session(model: Any, given: dict[str, Any]) -> Callable[[], Any]:
    import onnxruntime
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        torch.onnx.export(model, (), path, kwargs=given, dynamo=True, external_data=True, verbose=False)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        settings.log_severity_level = 3
        made = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    names = [value.name for value in made.get_inputs()]
    arrays = {name: given[name].numpy() for name in names}
    return lambda: made.run(None, arrays)


def time_of(run: Callable[[], Any]) -> float:
    """Of the processor, so what else the machine does counts less: all run on one thread."""
    count, start = 0, time.process_time()
    while True:
        run()
        count += 1
        spent = time.process_time() - start
        if spent >= FAST:
            return spent / count


def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    rows = []
    for batch, tokens in shapes(name, options.short):
        with torch.no_grad():
            found = variants(name, batch, tokens, options)
            times: dict[str, list[float]] = {variant: [] for variant in found.runs}
            for run in found.runs.values():
                run()
            start = time.perf_counter()
            for rounds in range(ROUNDS):
                if rounds >= LEAST and time.perf_counter() - start > SECONDS:
                    break
                for variant, run in found.runs.items():
                    times[variant].append(time_of(run))
        gains = {
            variant: statistics.median(a / b for a, b in zip(times[found.against.get(variant, "before")], spent))
            for variant, spent in times.items()
        }
        milliseconds = {variant: statistics.median(spent) * 1e3 for variant, spent in times.items()}
        rows.append({"name": name, "batch": batch, "tokens": tokens, "gains": gains, "ms": milliseconds, **found.facts})
    return rows


# ---- each pass alone ---------------------------------------------------------------------------------------------------------


def measure_passes(name: str) -> list[dict[str, Any]]:
    """A pass that finds nothing has no row."""
    import torch

    import foldback.export
    import foldback.private

    torch.set_num_threads(1)
    client, rows = foldback.private.client(), []
    for batch, tokens in shapes(name, True):
        given = inputs(name, batch, tokens)
        with torch.no_grad():
            program = torch.export.export(make(name), (), given)
            graph = client.put_graph(foldback.export.from_exported_program(program))
            before, modules, nodes = program.module(check_guards=False), {}, {}
            for one in PASSES[name]:
                run = client.optimize(graph, [one])
                if not run["passes"][0]["applied"]:
                    continue
                modules[one] = program.module(check_guards=False)
                nodes[one] = [len(modules[one].graph.nodes)]
                foldback.apply_edits(modules[one], client.edits(run))
                nodes[one].append(len(modules[one].graph.nodes))
            gains: dict[str, list[float]] = {one: [] for one in modules}
            start = time.perf_counter()
            for run in (before, *modules.values()):
                run(**given)
            for rounds in range(ROUNDS):
                if rounds >= LEAST and time.perf_counter() - start > SECONDS * len(modules):
                    break
                for one, after in modules.items():  # each beside its own original
                    gains[one].append(time_of(lambda: before(**given)) / time_of(lambda after=after: after(**given)))
        rows += [{"pass": one, "name": name, "tokens": tokens, "nodes": nodes[one], "gain": statistics.median(found)}
                 for one, found in gains.items()]
    return rows


def text_of_passes(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    head = PASSES_TEXT.format(versions=report.versions(("torch", "transformers")), machine=machine(options))
    lines = ["| pass | model | tokens | nodes | gain |", "|---|---|---:|---:|---:|"]
    order = {row["pass"]: None for row in rows if "pass" in row}
    for row in (row for one in order for row in rows if row.get("pass") == one):
        lines.append(f"| {row['pass']} | {row['name']} | {row['tokens'] or ''} | {row['nodes'][0]} → {row['nodes'][1]} | "
                     f"{row['gain']:.2f} |")
    return head + "\n".join(lines) + "\n"


# ---- all together ------------------------------------------------------------------------------------------------------------


def in_process(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    words = [sys.executable, __file__, "--one",
             name] + ["--short"] * options.short + ["--peers"] * options.peers + ["--each"] * options.each
    done = subprocess.run(words, capture_output=True, text=True)
    print(f"{name}: {'done' if done.returncode == 0 else 'failed'}", file=sys.stderr, flush=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        print(last, file=sys.stderr)
        return [{"name": name, "failed": last[:120]}]
    return json.loads(done.stdout.splitlines()[-1])


def all_rows(names: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Each model in a process of its own, `options.jobs` at a time."""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        return [row for rows in pool.map(lambda name: in_process(name, options), names) for row in rows]


def machine(options: argparse.Namespace) -> str:
    return f"{options.jobs} models at a time on {os.cpu_count()} cores" if options.jobs > 1 else "one model at a time"


def mean(numbers: list[float]) -> float:
    return math.exp(sum(math.log(number) for number in numbers) / len(numbers)) if numbers else math.nan


def summary(rows: list[dict[str, Any]]) -> list[str]:
    measured = [row for row in rows if "gains" in row]

    def of(variant: str, kind: str | None = None) -> list[float]:
        return [row["gains"][variant] for row in measured if variant in row["gains"]
                and kind in (None, SUBJECTS[row["name"]].kind)]

    gains, vision = of("inference"), of("latency", "image")
    least = min(measured, key=lambda row: row["gains"]["inference"], default=None)
    lines = [f"`inference`: geometric mean over {len(gains)} rows of {len({row['name'] for row in measured})} models "
             f"**{mean(gains):.2f}** (goal "
             f"{GOALS['all']}), the least {min(gains, default=math.nan):.2f} ({least['name'] if least else ''}; goal "
             f"{GOALS['least']}). `latency`: "
             f"**{mean(of('latency')):.2f}**, over the {len(vision)} rows of vision models **{mean(vision):.2f}** (goal "
             f"{GOALS['vision']})."]
    for variant in ("fx", "torch.compile", "ONNX Runtime"):
        if found := of(variant):
            lines.append(f"{variant}: {mean(found):.2f} over {len(found)} rows.")
    return lines


def text(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    variants = ["inference", "latency", "fx", *(["torch.compile", "ONNX Runtime"] if options.peers else [])]
    lines = ["| model | batch | tokens | nodes | before, ms | " + "".join(f"{variant} | " for variant in variants)
             + "applied |"]
    lines.append("|---|" + "---:|" * (4 + len(variants)) + "---|")
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['name']} | " + "| " * (4 + len(variants)) + f"{row['failed']} |")
            continue
        applied = ", ".join(f"{name} {count}" for name, count in row["applied"].items()
                            if name.startswith(("Fuse", "Merge", "Fold")))
        note = f"; **outputs differ by {row['error']:.0e}**" if not row["error"] <= ALLOWED else ""
        cells = [row["name"], str(row["batch"]), str(row["tokens"] or ""), f"{row['nodes']} → {row['inference nodes']}",
                 f"{row['ms']['before']:.2f}"]
        cells += [f"{row['gains'][variant]:.2f}" if variant in row["gains"] else "no" for variant in variants]
        lines.append("| " + " | ".join([*cells, applied + note]) + " |")
    versions = report.versions(("torch", "transformers", *(["onnxruntime"] if options.peers else [])))
    head = TEXT.format(versions=versions, machine=machine(options), fast=FAST * 1e3, allowed=ALLOWED)
    return head + "\n".join(lines) + "\n\n" + "\n\n".join(summary(rows)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--write", type=pathlib.Path, help="the Markdown file whose section is written anew")
    parser.add_argument("--peers", action="store_true",
                        help="also torch.compile with freezing and ONNX Runtime: minutes for each model")
    parser.add_argument("--short", action="store_true", help="batch 1 and at most 128 tokens")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time; each has one thread")
    parser.add_argument("--each", action="store_true", help="each pass alone, on models that it changes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", help="all of gain_models.py if none is named")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.setdefault("FOLDBACK_BINARY", str(options.build.resolve() / "foldback"))
    if options.one:
        print(json.dumps(measure_passes(options.one) if options.each else measure(options.one, options)))
        return 0
    rows = all_rows(options.models or list(PASSES if options.each else SUBJECTS), options)
    section = text_of_passes(rows, options) if options.each else text(rows, options)
    print(section)
    if options.write:
        report.put(options.write, section, *((EACH_BEGIN, EACH_END) if options.each else (BEGIN, END)))
    wrong = [row["name"] for row in rows if "error" in row and not row["error"] <= ALLOWED]
    for name in wrong:
        print(f"{name}: the outputs differ by more than rounding explains", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
