"""The commands of docs/layouts.md that need the Python package (```sh python), pasted into one shell each section, print what
the page shows. UPDATE=1 writes what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip("these commands need transformers 5", allow_module_level=True)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/layouts.md"
BLOCK = re.compile(r"^```sh python\n(.*?)^```\n\n```text\n(.*?)^```\n", re.S | re.M)
SECTION = re.compile(r"^## (.*)$", re.M)


def sections() -> dict[str, str]:
    parts = SECTION.split(PAGE.read_text())
    return {title: text for title, text in zip(parts[1::2], parts[2::2], strict=True) if "```sh python\n" in text}


@pytest.mark.parametrize("title", sections())
def test_commands(tmp_path: Path, title: str) -> None:
    for name, text in (("foldback", "from foldback.command import main; main()"), ("python", None)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {f'-c {chr(39)}{text}{chr(39)} ' if text else ''}\"$@\"\n")
        program.chmod(0o755)
    blocks = list(BLOCK.finditer(sections()[title]))
    assert blocks
    script = "".join(f"{one[1]}\necho '\x1eend'\n" for one in blocks)
    done = subprocess.run(["bash", "--norc"], input=script, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path),
                               "FOLDBACK_BINARY": str(ROOT / "build/foldback")})
    printed = done.stdout.split("\x1eend\n")
    assert len(printed) == len(blocks) + 1, done.stderr
    text = PAGE.read_text()
    for one, said in zip(blocks, printed, strict=False):
        if os.environ.get("UPDATE"):
            text = text.replace(one[0], one[0][: one.start(2) - one.start()] + said + "```\n")
        else:
            assert said == one[2], done.stderr
    if os.environ.get("UPDATE"):
        PAGE.write_text(text)
