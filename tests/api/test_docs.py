"""The tours in the documents are real: their commands are run, and what they print is what the documents show.

A tour is all of a document's ```console blocks, run from top to bottom against one service in one folder, in which the
repository's tests/ is there. A command may go on in lines that begin with "> ".

UPDATE=1 writes what they print into the documents instead; look at the diff. Run ids and times differ in every run: those that a
document shows stand for those that the service gives.
"""

import os
import re
import shutil
import subprocess

import pytest

from conftest import ROOT, binary
from passes_document import passes_document

DOCUMENTS = ["README.md", "docs/undo.md", "docs/registry.md", "docs/weights.md", "docs/validation.md", "docs/rules.md"]
ADDRESS = "localhost:8080"
WIDTH = 116
LINES = 13  # of one answer that are shown
RUN = re.compile(r"run_[0-9A-Z]{26}")
TIME = re.compile(r'"(created|updated|when)":"2[^"]*"')
BLOCK = re.compile(r"```console\n(.*?)```", re.S)


def steps_of(block):
    """[[command, shown lines], …]"""
    steps = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append([line[2:], []])
        elif line.startswith("> ") and not steps[-1][1]:
            steps[-1][0] += "\n" + line[2:]
        elif line:
            steps[-1][1].append(line)
    return steps


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


class Tour:
    def __init__(self, service, folder):
        self.address = f"{service.host}:{service.port}"
        self.folder = folder
        self.runs = {}  # as the document calls it -> as the service does
        (folder / "tests").symlink_to(ROOT / "tests")
        self.environment = dict(os.environ, PATH=f"{binary().parent}:{os.environ['PATH']}")

    def run(self, command):
        for old, new in self.runs.items():
            command = command.replace(old, new)
        command = command.replace(ADDRESS, self.address).replace("curl ", "curl -sS ")
        answer = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True,
                                timeout=60)
        assert answer.returncode == 0, f"{command}\n{answer.stderr}"
        return TIME.sub(r'"\1":"2026-11-21T09:00:00.000Z"', answer.stdout).replace(self.address, ADDRESS)

    def take(self, command, expected):
        answer = self.run(command)
        for old, new in zip(RUN.findall("".join(expected)), RUN.findall(answer)):
            self.runs.setdefault(old, new)
        for old, new in self.runs.items():
            answer = answer.replace(new, old)
        return shown(answer)


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_tour(service, tmp_path, document):
    path = ROOT / document
    text = path.read_text()
    tour = Tour(service, tmp_path)
    blocks = BLOCK.findall(text)
    assert blocks
    for block in blocks:
        fresh = []
        for command, expected in steps_of(block):
            found = tour.take(command, expected)
            fresh += ["$ " + command.replace("\n", "\n> "), *found, ""]
            if not os.environ.get("UPDATE"):
                assert found == expected, command
        text = text.replace(block, "\n".join(fresh[:-1]) + "\n", 1)
    if os.environ.get("UPDATE"):
        path.write_text(text)


def test_passes(service):
    """docs/passes.md says what the service says, and README.md names all of it."""
    path = ROOT / "docs/passes.md"
    text = passes_document(service)
    if os.environ.get("UPDATE"):
        path.write_text(text)
    assert path.read_text() == text
    readme = (ROOT / "README.md").read_text()
    answer = service.get("/v1/passes").json()
    for item in answer["items"]:
        assert f"| `{item['name']}` |" in readme and item["exactness"] in readme
    for preset in answer["presets"]:
        assert f'`"{preset["name"]}"`' in readme
