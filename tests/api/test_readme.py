"""The README's tour is real: its commands are run, and what they print is what the README shows.

UPDATE=1 writes what they print into the README instead; look at the diff. Run ids and times differ in every run: those that the
README shows stand for those that the service gives.
"""

import os
import re
import shutil
import subprocess

import pytest

from conftest import ROOT

README = ROOT / "README.md"
ADDRESS = "localhost:8080"
WIDTH = 116
LINES = 13  # of one answer that are shown
RUN = re.compile(r"run_[0-9A-Z]{26}")
TIME = re.compile(r'"created":"[^"]*"')


def tour(text):
    """The console block as [[command, shown lines], …], and where it stands."""
    start = text.index("```console\n") + len("```console\n")
    end = text.index("```", start)
    steps = []
    for line in text[start:end].splitlines():
        if line.startswith("$ "):
            steps.append([line[2:], []])
        elif line:
            steps[-1][1].append(line)
    return steps, start, end


def fold(line):
    """A long line of JSON as several, broken after commas."""
    while len(line) > WIDTH:
        at = line.rfind(",", 0, WIDTH) + 1 or WIDTH
        yield line[:at]
        line = "  " + line[at:]
    yield line


def shown(answer):
    lines = [part for line in answer.splitlines() if line.strip() for part in fold(line.rstrip())]
    return lines if len(lines) <= LINES else lines[:LINES] + ["…"]


def run(command, service, runs):
    for old, new in runs.items():
        command = command.replace(old, new)
    command = command.replace(ADDRESS, f"{service.host}:{service.port}").replace("curl ", "curl -sS ", 1)
    answer = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return TIME.sub('"created":"2026-11-21T09:00:00.000Z"', answer.stdout)


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_tour(service):
    text = README.read_text()
    steps, start, end = tour(text)
    assert len(steps) >= 8
    runs = {}  # as the README calls it -> as the service does
    fresh = []
    for command, expected in steps:
        answer = run(command, service, runs)
        for old, new in zip(RUN.findall("".join(expected)), RUN.findall(answer)):
            runs.setdefault(old, new)
        for old, new in runs.items():
            answer = answer.replace(new, old)
        if os.environ.get("UPDATE"):
            fresh += ["$ " + command, *shown(answer), ""]
        else:
            assert shown(answer) == expected, command
    if fresh:
        README.write_text(text[:start] + "\n".join(fresh[:-1]) + "\n" + text[end:])
