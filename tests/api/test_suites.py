"""What CI and `make nightly` run: no file of tests is forgotten, and the table at the end counts right."""

import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess

import pytest
from conftest import ROOT


def script(name):
    """A program of tests/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tests" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


suites, run = script("suites"), script("run")
COMMANDS = [*(command for lane in suites.CI.values() for command in lane.values()), *suites.NIGHTLY.values()]

IS_TEST = re.compile(r"test_.*\.(py|c)|fuzz_.*\.c|.*\.test\.ts")
NOT_TESTS = {"bench", "golden", "fixtures", "node_modules"}  # folders


def files_of_tests():
    for top in (ROOT / "tests", ROOT / "clients"):
        for folder, folders, files in os.walk(top):
            folders[:] = set(folders) - NOT_TESTS
            yield from (pathlib.Path(folder, file).relative_to(ROOT) for file in files if IS_TEST.fullmatch(file))


def without_comments(script):
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))


@pytest.fixture(scope="module")
def said():
    """The words of all commands, of what make runs for them, and of the scripts that these call: paths from the root, and
    others as they are."""
    targets = sorted({target for command in COMMANDS for target in re.findall(r"make ([\w-]+)", command)})
    stores = [command.partition("make ")[2].split() for command in COMMANDS if "STORE=" in command or "BLOBS=" in command]
    todo = [*COMMANDS]
    for arguments in (targets, *stores):
        # Of a folder that is empty: make reads what it knows of a build, and does so again for each target.
        command = ["make", "-Bn", "--no-print-directory", "BUILD=unbuilt", *arguments]
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
        assert made.returncode == 0, made.stderr[-2000:]
        # The compiler sees all; what counts is what is run.
        lines = made.stdout.replace("unbuilt", "build").splitlines()
        todo += [line for line in lines if not line.startswith(("echo ", "clang-format ", "{ ", "mkdir "))]
    words, read = set(), set()
    while todo:
        text = todo.pop()
        entered = re.search(r"^cd ([\w/.-]+)$", text, re.M)
        for word in re.findall(r"[\w./-]+", text):
            places = [word, *([os.path.join(entered[1], word)] if entered else [])]
            words.update(os.path.normpath(place) for place in places)
            script = ROOT / word
            if (word.startswith(("tests/", "clients/")) and script not in read and script.is_file()
                and os.access(script, os.X_OK)):
                read.add(script)
                todo.append(without_comments(script.read_text()))
    return words


def is_reached(path, said):
    if path.suffix == ".c":  # a program
        name = path.stem if path.parent.name == "fuzz" else f"build/tests/unit/{path.stem}"
        return name in said
    return not said.isdisjoint({str(path), *map(str, path.parents)} - {".", "tests", "clients"})


@pytest.mark.heavy
def test_every_file_of_tests_is_run(said):
    files = [*files_of_tests()]
    assert len(files) > 240
    assert [str(path) for path in files if not is_reached(path, said)] == []


@pytest.mark.heavy
@pytest.mark.parametrize("path", ["tests/elsewhere/test_new.py", "tests/unit/test_new.c", "tests/fuzz/fuzz_new.c",
                                  "tests/bench/test_new.py"])
def test_a_file_that_nothing_runs_is_noticed(path, said):
    assert not is_reached(pathlib.Path(path), said)


@pytest.mark.parametrize(
    "text, status, counts",
    [
        ("12 passed, 3 skipped, 1 warning in 4.20s\n", 0, (12, 0, 3)),
        ("=== 2 failed, 1 passed, 1 error in 0.50s (0:00:01) ===\n", 1, (1, 3, 0)),
        ("5 passed in 1.00s\n7 passed in 2 s\n", 0, (12, 0, 0)),
        # A test of time, again
        ("90%: Checks: 10, Failures: 1, Errors: 0\n100%: Checks: 10, Failures: 0, Errors: 0\n", 0, (19, 0, 0)),
        ("90%: Checks: 10, Failures: 1, Errors: 0\n", 1, (9, 1, 0)),
        ("# pass 8\n# fail 0\n# skipped 1\n", 0, (8, 0, 1)),
        ("Test cases:\n  5120 generated, 5120 passed, 12 skipped\n\n=== No issues found in 90.1s ===\n", 0, (5120, 0, 12)),
        ("nothing that counts\n", 0, (1, 0, 0)),
        ("3 passed in 1.00s\nkilled\n", 137, (3, 1, 0)),
    ],
)
def test_counts(text, status, counts):
    assert tuple(suites.counted(text, status).values()) == counts


def test_a_failure_lets_the_others_run_and_fails_the_whole(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    monkeypatch.setattr(suites, "LOGS", tmp_path / "logs")
    lanes = {"one": {"bad": "echo whole log; echo '1 failed, 2 passed in 1.00s'; exit 1", "after": "echo '4 passed in 1.00s'"},
             "two": {"quiet": "true"}}
    assert suites.Run(lanes).run_all() == 1
    said = capsys.readouterr().out
    assert "whole log" in said and said.endswith("FAILED: bad\n7 passed, 1 failed\n")
    # A lane that has ended takes over from the other.
    lanes = {"one": {"first": "echo 1 >>ran; sleep 1", "second": "echo 2 >>ran", "third": "echo 3 >>ran"},
             "two": {"zero": "sleep 0.2"}}
    assert suites.Run(lanes).run_all() == 0
    assert (tmp_path / "ran").read_text().split() == ["1", "3", "2"]
    assert suites.Run({"one": {"quiet": "true"}}).run_all() == 0
    assert capsys.readouterr().out.endswith("\n1 passed, 0 failed\n")


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("is_right", [True, False])
@pytest.mark.heavy
def test_make_test_counts_all_and_shows_what_failed(is_right, tmp_path, monkeypatch, capsys):
    status = 0 if is_right else 1
    program(tmp_path / "tests/unit/test_one", "echo '100%: Checks: 5, Failures: 0, Errors: 0'")
    program(tmp_path / "tests/unit/test_two",
            f"echo the place; echo '50%: Checks: 4, Failures: {status}, Errors: 0'; exit {status}")
    program(tmp_path / "tests/unit/test_random", 'echo "$FOLDBACK_RANDOM_SEED $FOLDBACK_RANDOM_CASES"')
    program(tmp_path / "tests/load/load", f"exit {status}")
    (tmp_path / "test_api.py").write_text(
        f"""import pytest, time
def test_right(): pass
def test_what_may_fail(): assert {is_right}
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.long
def test_long(): pass
@pytest.mark.parametrize("i", range(40))
def test_later(i): time.sleep(0.1)
"""
    )
    (tmp_path / "pytest.ini").write_text((ROOT / "tests" / "pytest.ini").read_text())
    monkeypatch.setattr(run, "API", [str(tmp_path / "test_api.py")])
    monkeypatch.setattr("sys.argv", ["run", str(tmp_path), "short"])
    monkeypatch.setenv("FOLDBACK_RANDOM_CASES", "10000")
    monkeypatch.setenv("FOLDBACK_RANDOM_SEED", "501")
    assert run.main() == status
    said = capsys.readouterr().out
    # Of the random cases four processes try a quarter each.
    log = (tmp_path / "units.log").read_text()
    assert sorted(re.findall(r"^\d+ \d+$", log, re.M)) == ["3001 2500", "501 2500", "5501 2500", "8001 2500"]
    failed = re.findall(r"^FAILED (.*)$", said, re.M)
    assert len(failed) == 3 * status
    if is_right:
        assert re.search(r"^56 passed, 0 failed, 1 skipped in \d+ s$", said, re.M), said
    else:
        assert "the place" in said and "assert False" in said and failed[-1] == "tests/load"
        assert re.search(r"^53 passed, 3 failed, 1 skipped in \d+ s$", said, re.M), said
