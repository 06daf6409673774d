"""No text of ours asks a package index for our own name: an index gives whatever somebody has put there under it.

The name foldback at PyPI is another project's, and a name that is free today can be taken tomorrow. Wheels, packages and
archives are installed from their files; an index is asked for other people's packages only.
"""

import re
import subprocess

import pytest
from conftest import ROOT

INSTALLERS = re.compile(
    r"(?:\b(?:pip3?|pipx|conda|mamba|poetry|pdm|npm|pnpm|yarn|bun|deno|apt|apt-get)|\buv(?: pip| "
    r"tool)?)\s+(?:-\S+\s+)*(?:install|add|i|download)\b"
    r"(?P<asked>[^\n|;&)]*)|\b(?:npx|uvx|pipx run)\s+(?P<run>\S+)"
)
OURS = re.compile(r"@?foldback(?:[-_.]graphs|/\w+)?(?:\[[\w,-]*\])?(?:(?:[=<>~!]=?|@)\S*)?")
EXTRAS = re.compile(r"(?<![\w/*.-])foldback(?:[-_.]graphs)?\[[\w,-]+\]")


def asked_of_an_index(text):
    """The words of a text that make an index look for our package."""
    lines = "\n".join(line for line in text.replace("\\\n", " ").split("\n") if "foldback" in line)
    found = [match[0] for match in EXTRAS.finditer(lines)]
    for command in INSTALLERS.finditer(lines):
        words = re.split(r"[\s`'\"]+", command["asked"] or command["run"])
        found += [word for word in words if OURS.fullmatch(word.rstrip(".,:"))]
    return found


def texts():
    """Every file of the project that a person reads or that a package carries, by its path."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in filter(None, listed.split("\0")):
        if path == "tests/api/test_package_names.py" or path.startswith("tests/fixtures/") or not (ROOT / path).is_file():
            continue
        content = (ROOT / path).read_bytes()
        if b"foldback" in content and b"\0" not in content:
            yield path, content.decode()


@pytest.mark.parametrize(
    "text, found",
    [
        ("    pip install 'foldback[mlflow]'", 2),
        ("(pip install foldback)", 1),
        ("`python -m pip install -q -U foldback==0.1.0`", 1),
        ("uv pip install foldback-graphs.", 1),
        ("npm install foldback      # a comment", 1),
        ("npx foldback", 1),
        ("apt-get install -y foldback", 1),
        ("the extra foldback[hub]", 1),
        ("pip install clients/python, or dist/foldback_graphs-*.whl", 0),
        ('pip install "$(echo dist/foldback_graphs-*.whl)[mlflow]"', 0),
        ("apt install ./build-deb/foldback_*.deb", 0),
        ("apt-get install -y git make", 0),
        ("npm install build/typescript/foldback-0.1.0.tgz", 0),
    ],
)
def test_such_a_line_is_found(text, found):
    assert len(asked_of_an_index(text)) == found


def test_no_line_asks_an_index_for_our_name():
    assert {path: asked for path, text in texts() if (asked := asked_of_an_index(text))} == {}


def test_the_distribution_has_a_name_of_its_own_in_every_page():
    """Import, command and entry points are foldback; the wheel's file has the distribution's name."""
    project = (ROOT / "clients" / "python" / "pyproject.toml").read_text()
    (name,) = re.findall(r'^name = "(.+)"$', project, re.M)
    assert name != "foldback"
    named = {path: set(re.findall(r"\b([\w.]+)-[\d.*]+(?:-\S*)?\.whl", text)) for path, text in texts() if path.endswith(".md")}
    pages = {path for path, names in named.items() if names}
    assert pages >= {"README.md", "clients/python/README.md", "docs/mlflow.md"}
    assert {path: named[path] for path in pages} == dict.fromkeys(pages, {name.replace("-", "_")})
