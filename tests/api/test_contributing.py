"""CONTRIBUTING.md is followed to the letter, in a copy of the source: the pass that it adds builds, and its golden case
passes."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+) ?(file|append)?=?(\S*)\n(.*?)^```", re.M | re.S)


def copy_source(to):
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for file in filter(None, files):
        if (ROOT / file).is_file():
            (to / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, to / file)
    for part in ("core", "server", "generated"):  # what is compiled already
        if (ROOT / "build" / part).exists():
            shutil.copytree(ROOT / "build" / part, to / "build" / part)


@pytest.mark.nightly
def test_a_pass_by_the_recipe(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    copy_source(tmp_path)
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("## Add a pass") : text.index("**5. Name it elsewhere.**")]
    commands = []
    for language, how, path, body in BLOCK.findall(section):
        if how == "append":
            with open(tmp_path / path, "a") as file:
                file.write(body)
        elif how == "file":
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(body)
        else:
            assert language == "sh"
            commands.append(body)
    given = ("MAKE", "MFLAGS", "BUILD", "OPTIMISE", "SANITIZE")  # by a make above; the copy is built as CONTRIBUTING.md says
    environment = {key: value for key, value in os.environ.items() if not key.startswith(given)}
    done = subprocess.run(["sh", "-e", "-c", "\n".join(commands)], cwd=tmp_path, env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for line in re.search(r"^    diff function\n(.*?)…$", section, re.M | re.S)[1].splitlines():  # as the text shows it
        assert f"\n{line[4:].rstrip('…')}" in done.stdout
    if shutil.which("clang-format"):
        style = ["clang-format", "--dry-run", "-Werror", "core/passes/change_square_to_product.c"]
        assert subprocess.run(style, cwd=tmp_path).returncode == 0
