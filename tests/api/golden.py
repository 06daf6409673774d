"""The golden cases as documents (tests/golden/make_cases.py), by name: "MergeLinears/training-mode"."""

import functools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests/golden/make_cases.py"
RULES = json.loads((ROOT / "tests/golden/rules.json").read_text())  # of the cases of rules, by name


@functools.cache
def folder():
    made = ROOT / "build/golden"
    subprocess.run([sys.executable, PROGRAM, made], check=True)
    return made


def names(of="*"):
    """Those of one pass, or all."""
    return [f"{path.parent.name}/{path.name}" for path in sorted(folder().glob(f"{of}/*/"))]


def read(name, file="before"):
    return json.loads((folder() / name / f"{file}.json").read_text())


def ids():
    """The id of each result that expected.diff has, or "unchanged"."""
    found = {}
    for path in ROOT.glob("tests/golden/*/expected.diff"):
        for name, said in re.findall(r"^diff (.+)\n(?:(?!diff ).*\n)*?result: (.+)$", path.read_text(), re.M):
            found[f"{path.parent.name}/{name}"] = said
    return found
