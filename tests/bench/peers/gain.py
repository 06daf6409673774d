"""How much faster models run after a preset: eager PyTorch on one thread, beside torch.compile with freezing and ONNX Runtime.

Each model is exported as torch.export and, where that can follow, torch.fx writes it; the document is made a live program, and so is the
document of the result. The rounds ask every variant in turn, so that whatever else the machine does meets all of them. Every model runs in a
process of its own. The rules are in TEXT."""

from __future__ import annotations

import argparse
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
from typing import Any, Callable

import report
from gain_models import SUBJECTS, inputs, make, shapes

BEGIN, END = "<!-- gain begin -->", "<!-- gain end -->"
ROUNDS, LEAST = 9, 3
SECONDS = 12.0  # of one row's rounds, after which LEAST of them are enough
FAST = 0.02  # seconds: what is faster is repeated within a round
ALLOWED = 1e-3  # of the largest output
GOALS = {"all": 1.15, "vision": 1.3, "least": 0.98}

TEXT = """## Time that is saved

`make bench-gain` runs models of real sizes with random weights, before and after `{preset}`, in eager PyTorch on one thread, and beside them
`torch.compile` with freezing and ONNX Runtime, both on one thread. {versions}.

- *before* is the exported program as a GraphModule, *gain* its time over that of the result: the median over the rounds of the ratio within
  a round. A round runs each variant once (again and again for {fast:.0f} ms where it is faster), so whatever else the machine does meets all.
- *torch.compile* and *ONNX Runtime* are gains over the same *before*. The first fuses and generates code for one shape; the second runs
  its own kernels. foldback's result stays a program of PyTorch that anything can be done with, and both can be given it.
- The outputs before and after differ by at most {allowed:.0e} of the largest number, or the row says so.

"""


# ---- one model ----------------------------------------------------------------------------------------------------------------


def programs_of(model: Any, given: dict[str, Any], dialect: str) -> tuple[dict[str, Any], Any, Any]:
    """The document, and the program twice, with the same weights."""
    import copy

    import foldback.export
    import torch

    if dialect == "fx":
        document = foldback.export.traced(model, **given)
        return document, foldback.fx.from_document(document, module=model), foldback.fx.from_document(document, module=copy.deepcopy(model))
    program = torch.export.export(model, (), given)
    before, after = program.module(check_guards=False), program.module(check_guards=False)
    return foldback.export.from_exported_program(program), before, after


def first_tensor(value: Any) -> Any:
    import torch

    return next(leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def error_between(one: Any, other: Any) -> float:
    a, b = first_tensor(one), first_tensor(other)
    return ((a - b).abs().max() / b.abs().max()).item() if a.shape == b.shape else math.inf


def variants(name: str, batch: int, tokens: int, options: argparse.Namespace) -> tuple[dict[str, Callable[[], Any]], dict[str, Any]]:
    import foldback.private

    model, given = make(name), inputs(name, batch, tokens)
    facts: dict[str, Any] = {}
    document, before, after = programs_of(model, given, options.dialect)
    client = foldback.private.client()
    hint = {"params": {"tokens": batch * tokens}} if options.preset == "latency" and tokens else {}
    run = client.optimize(document, [{"name": options.preset, **hint}])
    foldback.apply_edits(after, client.edits(run))
    facts["applied"] = {one["name"]: one["applied"] for one in run["passes"] if one["applied"]}
    facts["nodes"] = [len(document["nodes"]), len(after.graph.nodes)]
    facts["error"] = error_between(after(**given), before(**given))
    found: dict[str, Callable[[], Any]] = {"before": lambda: before(**given), "after": lambda: after(**given)}
    if options.peers:
        for peer, maker in (("torch.compile", compiled), ("ONNX Runtime", session)):
            try:
                found[peer] = maker(model, given)
                found[peer]()
            except Exception as error:  # what a peer cannot do is said, not fatal
                found.pop(peer, None)
                facts[peer] = f"{type(error).__name__}: {str(error)[:80]}"
    return found, facts


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
    count, start = 0, time.perf_counter()
    while True:
        run()
        count += 1
        spent = time.perf_counter() - start
        if spent >= FAST:
            return spent / count


def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    import torch

    torch.set_num_threads(1)
    rows = []
    for batch, tokens in shapes(name, options.short):
        with torch.no_grad():
            found, facts = variants(name, batch, tokens, options)
            times: dict[str, list[float]] = {variant: [] for variant in found}
            for run in found.values():
                run()
            start = time.perf_counter()
            for rounds in range(ROUNDS):
                if rounds >= LEAST and time.perf_counter() - start > SECONDS:
                    break
                for variant, run in found.items():
                    times[variant].append(time_of(run))
        gains = {
            variant: statistics.median(a / b for a, b in zip(times["before"], spent)) for variant, spent in times.items()
        }
        milliseconds = {variant: statistics.median(spent) * 1e3 for variant, spent in times.items()}
        rows.append({"name": name, "batch": batch, "tokens": tokens, "gains": gains, "ms": milliseconds, **facts})
    return rows


# ---- all together -------------------------------------------------------------------------------------------------------------


def in_process(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    words = [sys.executable, __file__, "--one", name, "--dialect", options.dialect, "--preset", options.preset]
    words += ["--short"] * options.short + ["--peers"] * options.peers
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        print(f"{name}: {last}", file=sys.stderr)
        return [{"name": name, "failed": last[:120]}]
    return json.loads(done.stdout.splitlines()[-1])


def mean(numbers: list[float]) -> float:
    return math.exp(sum(math.log(number) for number in numbers) / len(numbers)) if numbers else math.nan


def summary(rows: list[dict[str, Any]]) -> list[str]:
    gains = [row["gains"]["after"] for row in rows if "gains" in row]
    vision = [row["gains"]["after"] for row in rows if "gains" in row and SUBJECTS[row["name"]].kind == "image"]
    lines = [f"Geometric mean over {len(gains)} rows: **{mean(gains):.2f}** (goal {GOALS['all']}); over {len(vision)} rows of vision models: "
             f"**{mean(vision):.2f}** (goal {GOALS['vision']}); the least: {min(gains, default=math.nan):.2f} (goal {GOALS['least']})."]  # fmt: skip
    for peer in ("torch.compile", "ONNX Runtime"):
        theirs = [row["gains"][peer] for row in rows if peer in row.get("gains", {})]
        if theirs:
            lines.append(f"{peer}: {mean(theirs):.2f} over {len(theirs)} rows.")
    return lines


def text(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    peers = ["torch.compile", "ONNX Runtime"] if options.peers else []
    lines = ["| model | batch | tokens | nodes | before, ms | after, ms | **gain** | " + "".join(f"{peer} | " for peer in peers) + "applied |"]
    lines.append("|---|" + "---:|" * (6 + len(peers)) + "---|")
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['name']} | " + "| " * (5 + len(peers)) + f"| {row['failed']} |")
            continue
        applied = ", ".join(f"{name} {count}" for name, count in row["applied"].items() if name.startswith(("Fuse", "Merge", "Fold")))
        note = f"; **outputs differ by {row['error']:.0e}**" if not row["error"] <= ALLOWED else ""
        cells = [row["name"], str(row["batch"]), str(row["tokens"] or ""), "{} → {}".format(*row["nodes"])]
        cells += [f"{row['ms']['before']:.2f}", f"{row['ms']['after']:.2f}", f"**{row['gains']['after']:.2f}**"]
        cells += [f"{row['gains'][peer]:.2f}" if peer in row["gains"] else "no" for peer in peers]
        lines.append("| " + " | ".join([*cells, applied + note]) + " |")
    versions = report.versions(("torch", "transformers", *(["onnxruntime"] if options.peers else [])))
    head = TEXT.format(preset=options.preset, versions=versions, fast=FAST * 1e3, allowed=ALLOWED)
    return head + "\n".join(lines) + "\n\n" + "\n\n".join(summary(rows)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--write", type=pathlib.Path, help="the Markdown file whose section is written anew")
    parser.add_argument("--preset", default="inference")
    parser.add_argument("--dialect", choices=["aten", "fx"], default="aten")
    parser.add_argument("--peers", action="store_true", help="also torch.compile with freezing and ONNX Runtime: minutes for each model")
    parser.add_argument("--short", action="store_true", help="batch 1 and at most 128 tokens")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no model after so long")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", default=list(SUBJECTS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.setdefault("FOLDBACK_BINARY", str(options.build.resolve() / "foldback"))
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return 0
    rows: list[dict[str, Any]] = []
    start = time.monotonic()
    for name in options.models:
        if time.monotonic() - start > options.minutes * 60:
            print(f"no time is left for {name}", file=sys.stderr)
            continue
        print(f"{name} …", file=sys.stderr, flush=True)
        rows += in_process(name, options)
    print(text(rows, options))
    if options.write:
        report.put(options.write, text(rows, options), BEGIN, END)
    wrong = [row["name"] for row in rows if "error" in row and not row["error"] <= ALLOWED]
    for name in wrong:
        print(f"{name}: the outputs differ by more than rounding explains", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
