"""docs/operations.md is complete: every option of the service with its default, every error with its cause and its cure."""

import re
import subprocess

from conftest import ROOT, binary, description

DOCUMENT = (ROOT / "docs" / "operations.md").read_text()

def options():
    """{--name: (default or None, help)} of `foldback serve --help`."""
    text = subprocess.run([binary(), "serve", "--help"], check=True, capture_output=True, text=True).stdout
    found = {}
    for name, told in re.findall(r"^ +(?:-\w, )?(--[a-z-]+)(?: \S+)? {2,}(\S.*)$", text, re.M):
        default = re.search(r"\(([^()]+)\)$", told)
        found[name] = default and default[1]
    return found


def rows(heading):
    """The table rows below a heading, as lists of cells."""
    part = DOCUMENT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_option_is_told_with_its_default():
    told = {re.match(r"`(--[a-z-]+)", cells[0])[1]: cells[1] for cells in rows("Limits and defaults")}
    real = {name: default for name, default in options().items() if name != "--help"}
    assert sorted(told) == sorted(real)
    for name, default in real.items():
        assert told[name] == (f"`{default}`" if default else "—"), name


def test_every_error_is_told_with_cause_and_cure():
    """Of those that the description of the API knows, which the other tests hold all answers against."""
    told = {}
    for cells in rows("Errors"):
        code = cells[0].strip("`")
        assert len(cells) == 4 and all(cells) and code not in told, code
        told[code] = cells[1]
    assert list(told) == sorted(told)
    known = {code: set() for code in description().document["x-unrouted"]}
    for status, code in description().problems:
        known.setdefault(code, set()).add(str(status))
    assert sorted(set(known) - set(told)) == []
    for code, statuses in known.items():
        assert statuses <= set(told[code].split(", ")), code
