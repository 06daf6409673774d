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
from gain_models import PASSES, SUBJECTS, WITH_COMPILERS, Shape, decoding, inputs, make, shapes

BEGIN, END = "<!-- gain begin -->", "<!-- gain end -->"
EACH_BEGIN, EACH_END = "<!-- passes begin -->", "<!-- passes end -->"
ROUNDS, LEAST = 9, 3
SECONDS = 12.0  # of one row's rounds, after which LEAST of them are enough
FAST = 0.02  # seconds: what is faster is repeated within a round
ALLOWED = 1e-3  # of the largest output
GOALS = {"decoders": 1.15, "vision": 1.15, "least": 0.98, "added": 1.05, "least added": 0.97}
COMPILERS = ("torch.compile", "ONNX Runtime")
# Kernels that compute with weights or attend: a rewrite that leaves them cannot gain more than the rest takes.
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "conv2d", "attention", "mv", "linear"}
ALONE = 3  # times that a row below the goal is measured again

TEXT = """## Time that is saved

`make bench-gain GAIN=--peers` runs models of real sizes with random weights, before and after a preset, in eager PyTorch on one
thread, and {compiled} of them in `torch.compile` with freezing and in ONNX Runtime, both on one thread. {versions}; {machine}.

{summary}

- *before* is what `torch.export` wrote, as a GraphModule; *inference* and *latency* are its time over that of the result: the
  median over the rounds of the ratio within a round. A round runs each variant once (again and again for {fast:.0f} ms where it
  is faster), so whatever else the machine does meets all. Times are the processor's.
- *products*: the part of *before* that matrix products, convolutions and attention take, by PyTorch's profiler. What rewriting
  around them can gain is 1 over it at most; more is gained where they themselves get faster, as by another memory format.
- *cached*: a decoder gives one token, with so many in its cache. Other rows of it compute a whole prompt.
- *fx* is `inference` on what torch.fx traces, against that program before; "no" where torch.fx cannot follow the model.
- *torch.compile* and *ONNX Runtime* are gains over *before*: of that program, and, under *with*, of the better preset's
  result. Both compile for one shape.
- A row measured twice differs by some per cent, on a virtual machine seldom by 10: read the means. A row of a preset below
  {least}, and a compiler's below {least_added} of what it is without foldback, was measured {alone} times alone, and its
  median counts.
- The outputs of all variants differ by at most {allowed:.0e} of the largest number, or the row says so; each run was rolled
  back to the source.

"""

PASSES_TEXT = """## What each pass saves alone

`make bench-gain GAIN=--each` runs models of real sizes with random weights before and after one pass, in eager PyTorch on one
thread, batch 1, as `torch.export` writes them. {versions}; {machine}. *gain* is the processor time before over that after: the
median over the rounds of the ratio within a round. What FusePointwise makes runs as `foldback.pack` lays it out.
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

    leaves = torch.utils._pytree.tree_leaves(value)
    return torch.as_tensor(next(leaf for leaf in leaves if hasattr(leaf, "shape")))


def error_between(one: Any, other: Any) -> float:
    a, b = first_tensor(one).float(), first_tensor(other).float()
    return ((a - b).abs().max() / b.abs().max()).item() if a.shape == b.shape else math.inf


@dataclasses.dataclass
class Variants:
    """What is measured: `runs` by name; `against`: the name of each one's original, where that is not "before"."""

    given: dict[str, Any]
    runs: dict[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)
    against: dict[str, str] = dataclasses.field(default_factory=dict)
    programs: dict[str, Any] = dataclasses.field(default_factory=dict)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, name: str, run: Callable[[], Any], before: str = "before") -> None:
        """One that gives what `before` gives."""
        self.facts["error"] = max(self.facts.get("error", 0.0), error_between(run(), self.runs[before]()))
        self.runs[name], self.against[name] = run, before

    def add_result(self, name: str, client: Any, document: dict[str, Any], after: Any, item: dict[str, Any],
                   before: str) -> dict[str, Any]:
        """The program after a preset, which can be undone."""
        import foldback

        run = client.optimize(document, [item])
        assert client.rollback(run)["result"] == run["source"]
        foldback.apply_edits(after, client.edits(run))
        self.add(name, lambda: after(**self.given), before)
        self.programs[name] = after
        self.facts[f"{name} nodes"] = len(after.graph.nodes)
        return run

    def try_to_add(self, name: str, maker: Callable[[], Callable[[], Any]]) -> None:
        """What cannot be done is said, not fatal."""
        try:
            self.add(name, maker())
        except Exception as error:
            self.facts[name] = f"{type(error).__name__}: {str(error)[:80]}"


def variants(name: str, shape: Shape) -> Variants:
    import foldback.private

    model = make(name)
    given = inputs(name, shape, model)
    model = decoding(model) if shape.cached else model
    found, client = Variants(given), foldback.private.client()
    document, program = programs_of(model, given, "aten")
    before = found.programs["before"] = program()
    found.runs["before"] = lambda: before(**given)
    found.facts["nodes"] = len(document["nodes"])
    found.facts["products"] = products(found.runs["before"])
    run = found.add_result("inference", client, document, program(), {"name": "inference"}, "before")
    hint = {"params": {"tokens": shape.batch * shape.tokens}} if shape.tokens else {}
    other = found.add_result("latency", client, document, program(), {"name": "latency", **hint}, "before")
    found.facts["applied"] = {one["name"]: one["applied"] for one in run["passes"] + other["passes"] if one["applied"]}
    if not shape.cached and shape.batch == 1:
        try:
            add_traced(found, client, model, given)
        except Exception as error:
            found.facts["fx"] = f"{type(error).__name__}: {str(error)[:80]}"
    return found


def products(run: Callable[[], Any]) -> float:
    """Their part of the time of a run."""
    import torch

    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    times = {event.key.rpartition("::")[2]: event.self_cpu_time_total for event in profile.key_averages()}
    return sum(spent for name, spent in times.items() if set(name.split("_")) & PRODUCTS) / sum(times.values())


def add_compilers(found: Variants, best: str) -> None:
    """Of the source, and of the result of the better preset."""
    found.facts["best"] = best
    for name, compile_ in zip(COMPILERS, (compiled, session)):
        found.try_to_add(name, lambda: compile_(found.programs["before"], found.given))
        found.try_to_add(f"{name} with", lambda: compile_(found.programs[best], found.given))


def add_traced(found: Variants, client: Any, model: Any, given: dict[str, Any]) -> None:
    document, program = programs_of(model, given, "fx")
    before = program()
    found.runs["fx before"] = lambda: before(**given)
    try:
        found.add_result("fx", client, document, program(), {"name": "inference"}, "fx before")
    except Exception:
        del found.runs["fx before"]
        raise


def compiled(model: Any, given: dict[str, Any]) -> Callable[[], Any]:
    import torch

    torch._inductor.config.freezing = True
    torch._dynamo.reset()
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
    tensors = torch.utils._pytree.tree_leaves(given)
    arrays = {value.name: tensor.numpy() for value, tensor in zip(made.get_inputs(), tensors, strict=True)}
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
    with torch.no_grad():
        return [measure_shape(name, shape, options.peers and shape.batch == 1 and name in WITH_COMPILERS)
                for shape in options.shapes or shapes(name, options.short)]


def measure_shape(name: str, shape: Shape, has_compilers: bool) -> dict[str, Any]:
    found = variants(name, shape)
    times = rounds_of(found)
    if has_compilers:
        add_compilers(found, min(("inference", "latency"), key=lambda preset: statistics.median(times[preset])))
        times = rounds_of(found)  # all in one run
    gains = {variant: ratio(times[found.against.get(variant, "before")], spent) for variant, spent in times.items()}
    added = {one: ratio(times[one], times[f"{one} with"]) for one in COMPILERS if {one, f"{one} with"} <= times.keys()}
    milliseconds = {variant: statistics.median(spent) * 1e3 for variant, spent in times.items()}
    return {"name": name, "shape": dataclasses.astuple(shape), "gains": gains, "added": added, "ms": milliseconds,
            **found.facts}


def ratio(before: list[float], after: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(before, after))


def rounds_of(found: Variants) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {variant: [] for variant in found.runs}
    for run in found.runs.values():
        run()
    start = time.perf_counter()
    for rounds in range(ROUNDS):
        if rounds >= LEAST and time.perf_counter() - start > SECONDS:
            break
        for variant, run in found.runs.items():
            times[variant].append(time_of(run))
    return times


# ---- each pass alone ---------------------------------------------------------------------------------------------------------


def measure_passes(name: str) -> list[dict[str, Any]]:
    """A pass that finds nothing has no row."""
    import torch

    import foldback.export
    import foldback.private

    torch.set_num_threads(1)
    client, rows = foldback.private.client(), []
    for shape in shapes(name, True):
        model = make(name)
        given = inputs(name, shape, model)
        with torch.no_grad():
            program = torch.export.export(decoding(model) if shape.cached else model, (), given)
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
                modules[one] = foldback.pack(modules[one])
            gains: dict[str, list[float]] = {one: [] for one in modules}
            start = time.perf_counter()
            for run in (before, *modules.values()):
                run(**given)
            for rounds in range(ROUNDS):
                if rounds >= LEAST and time.perf_counter() - start > SECONDS * len(modules):
                    break
                for one, after in modules.items():  # each beside its own original
                    gains[one].append(time_of(lambda: before(**given)) / time_of(lambda after=after: after(**given)))
        rows += [{"pass": one, "name": name, "shape": dataclasses.astuple(shape), "nodes": nodes[one],
                  "gain": statistics.median(found)}
                 for one, found in gains.items()]
    return rows


def text_of_passes(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    head = PASSES_TEXT.format(versions=report.versions(("torch", "transformers")), machine=machine(options))
    lines = ["| pass | model | tokens | cached | nodes | gain |", "|---|---|---:|---:|---:|---:|"]
    order = {row["pass"]: None for row in rows if "pass" in row}
    for row in (row for one in order for row in rows if row.get("pass") == one):
        _, tokens, cached = row["shape"]
        lines.append(f"| {row['pass']} | {row['name']} | {tokens or ''} | {cached or ''} | {row['nodes'][0]} → "
                     f"{row['nodes'][1]} | {row['gain']:.2f} |")
    return head + "\n".join(lines) + "\n"


# ---- all together ------------------------------------------------------------------------------------------------------------


def in_process(name: str, options: argparse.Namespace, *more: str) -> list[dict[str, Any]]:
    words = [sys.executable, __file__, "--one", name, *more]
    words += ["--short"] * options.short + ["--peers"] * options.peers + ["--each"] * options.each
    done = subprocess.run(words, capture_output=True, text=True)
    print(f"{name}: {'done' if done.returncode == 0 else 'failed'}", file=sys.stderr, flush=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        print(last, file=sys.stderr)
        return [{"name": name, "failed": last[:120]}]
    return json.loads(done.stdout.splitlines()[-1])


def all_rows(names: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Each model in a process of its own, `options.jobs` at a time; then those below the goals again, one after the other."""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        rows = [row for rows in pool.map(lambda name: in_process(name, options), names) for row in rows]
    return rows if options.each else [again(row, options) if is_low(row) else row for row in rows]


def is_low(row: dict[str, Any]) -> bool:
    presets = [gain for variant, gain in row.get("gains", {}).items() if variant in ("inference", "latency")]
    added = row.get("added", {}).values()
    return any(gain < GOALS["least"] for gain in presets) or any(gain < GOALS["least added"] for gain in added)


def again(row: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    words = ("--shape", ",".join(map(str, row["shape"])))
    found = [one for _ in range(ALONE) for one in in_process(row["name"], options, *words) if "gains" in one]
    medians = {kind: {variant: statistics.median(one[kind].get(variant, number) for one in found)
                      for variant, number in row[kind].items()} for kind in ("gains", "added") if found}
    return row | medians


def machine(options: argparse.Namespace) -> str:
    return f"{options.jobs} models at a time on {os.cpu_count()} cores" if options.jobs > 1 else "one model at a time"


def mean(numbers: list[float]) -> float:
    return math.exp(sum(math.log(number) for number in numbers) / len(numbers)) if numbers else math.nan


def is_decoding(row: dict[str, Any]) -> bool:
    return bool(Shape(*row["shape"]).cached)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    measured = [row for row in rows if "gains" in row]
    lines = []
    for name in COMPILERS:
        added = {f"{row['name']}{', one token' * is_decoding(row)}": row["added"][name] for row in measured
                 if name in row["added"]}
        if not added:
            continue
        least = min(added, key=lambda one: added[one])
        lines.append(f"**{name} is {mean(list(added.values())):.2f} times as fast with foldback before it** as without: "
                     f"geometric mean over {len(added)} rows (goal {GOALS['added']}), the least {added[least]:.2f} ({least}; "
                     f"goal {GOALS['least added']}).")

    def of(variant: str, is_wanted: Callable[[dict[str, Any]], bool] = lambda row: True) -> list[float]:
        return [row["gains"][variant] for row in measured if variant in row["gains"] and is_wanted(row)]

    groups = {
        "vision": lambda row: SUBJECTS[row["name"]].kind == "image",
        "decoders": lambda row: SUBJECTS[row["name"]].is_decoder,
    }
    for variant in ("inference", "latency"):
        if not (gains := of(variant)):
            continue
        parts = [f"{name} {mean(of(variant, is_wanted)):.2f} over {len(of(variant, is_wanted))} (goal {GOALS[name]})"
                 for name, is_wanted in groups.items() if of(variant, is_wanted)]
        lines.append(f"`{variant}` in eager PyTorch: geometric mean over {len(gains)} rows of "
                     f"{len({row['name'] for row in measured})} models **{mean(gains):.2f}**; {', '.join(parts)}; the least "
                     f"{min(gains):.2f} (goal {GOALS['least']}).")
    for variant in ("fx", *COMPILERS):
        if found := of(variant):
            lines.append(f"{variant}: {mean(found):.2f} over {len(found)} rows.")
    return lines


def text(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    compilers = [variant for name in COMPILERS for variant in (name, f"{name} with")] if options.peers else []
    variants = ["inference", "latency", "fx", *compilers]
    heads = ["with" if variant.endswith(" with") else variant for variant in variants]
    columns = ["model", "batch", "tokens", "cached", "nodes", "before, ms", "products", *heads, "applied"]
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("|---|" + "---:|" * (6 + len(variants)) + "---|")
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['name']} | " + "| " * (6 + len(variants)) + f"{row['failed']} |")
            continue
        applied = ", ".join(f"{name} {count}" for name, count in row["applied"].items()
                            if name.startswith(("Fuse", "Merge", "Fold", "Channels")))
        note = f"; **outputs differ by {row['error']:.0e}**" if not row["error"] <= ALLOWED else ""
        cells = [row["name"], *(str(size or "") for size in row["shape"]), f"{row['nodes']} → {row['inference nodes']}",
                 f"{row['ms']['before']:.2f}", f"{row['products']:.0%}"]
        cells += [f"{row['gains'][variant]:.2f}" if variant in row["gains"] else "no" if variant in row else ""
                  for variant in variants]
        lines.append("| " + " | ".join([*cells, applied + note]) + " |")
    versions = report.versions(("torch", "transformers", *(["onnxruntime"] if options.peers else [])))
    head = TEXT.format(versions=versions, machine=machine(options), fast=FAST * 1e3, allowed=ALLOWED, alone=ALONE,
                       compiled=len({row["name"] for row in rows if row.get("added")}), summary="\n\n".join(summary(rows)),
                       least=GOALS["least"], least_added=GOALS["least added"])
    return head + "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--write", type=pathlib.Path, help="the Markdown file whose section is written anew")
    parser.add_argument("--peers", action="store_true",
                        help="also torch.compile with freezing and ONNX Runtime, of WITH_COMPILERS: minutes for each model")
    parser.add_argument("--short", action="store_true", help="batch 1 alone")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time; each has one thread")
    parser.add_argument("--each", action="store_true", help="each pass alone, on models that it changes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--shape", help=argparse.SUPPRESS, dest="shapes",
                        type=lambda text: [Shape(*map(int, text.split(",")))])
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
