"""A process of its own for one subject: a peer that crashes or takes too long takes nothing else with it.

Reads a step's name a line and answers with a line of JSON."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import sys
import time
import warnings
from typing import Any

import checks
import models
import subjects


def measured(subject: Any, step: str) -> dict[str, Any]:
    work = getattr(subject, step)()
    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew: proc_pid_clear_refs(5)
    start = time.perf_counter()
    work()
    return {"ms": (time.perf_counter() - start) * 1e3, "peak": peak_memory("self")}


def peak_memory(process: str | int) -> int:
    """Most memory that a process had, in KiB."""
    return int(pathlib.Path(f"/proc/{process}/status").read_text().partition("VmHWM:")[2].split()[0])


def answer(subject: Any, name: str, step: str) -> dict[str, Any]:
    if step == "nodes":
        return {"nodes": subject.nodes()}
    if step == "checks":
        return {"checks": checks.of(name, subject)}
    return measured(subject, step)


def error_of(error: BaseException) -> dict[str, Any]:
    lines = str(error).strip().splitlines() or [""]
    return {"error": f"{type(error).__name__}: {lines[0]}"}


def main(name: str, model: str, folder: str, url: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the peers print is no answer
    warnings.simplefilter("ignore")
    subject = None
    for line in sys.stdin:
        step = line.strip()
        try:
            if step == "prepare":
                subjects.prepare(models.ALL[model], pathlib.Path(folder))
                said: dict[str, Any] = {}
            elif step == "start":
                subject = subjects.SUBJECTS[name](models.ALL[model], pathlib.Path(folder), url)
                said = {}
            else:
                said = answer(subject, name, step)
        except Exception as error:
            said = error_of(error)
        print(json.dumps(said), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
