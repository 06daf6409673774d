"""python -m foldback, in processes of its own; and that all processes say the same."""

import json
import os
import pathlib
import subprocess
import sys

import programs
from canonical import identity

from foldback.__main__ import main

HERE = pathlib.Path(__file__).resolve().parent


def run(*arguments, **environment):
    command = [sys.executable, "-m", "foldback", "export", *arguments]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, env={**os.environ, **environment})


def test_the_same_model_has_the_same_id_in_every_process(client, tmp_path):
    """Sets, dictionaries of strings and addresses differ from process to process."""
    texts = []
    for seed in ("0", "1", "4711"):
        done = run("programs:build", "-o", str(tmp_path / f"{seed}.json"), "--data", PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        texts.append((tmp_path / f"{seed}.json").read_text())
    assert texts[0] == texts[1] == texts[2]
    document = json.loads(texts[0])
    assert client.put_graph(document) == identity(document)


def test_real_models_have_the_same_id_in_every_process():
    program = f"""
import sys
sys.path[:0] = ["{HERE}", "{HERE.parents[2] / "tests" / "python"}"]
from canonical import identity
from test_models import make
for name, dialect in (("t5", "torch.export"), ("gpt-j", "torch.fx"), ("segformer", "torch.export")):
    print(identity(make(name, dialect)[0]))
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0].count("sha256:") == 3 and said[0] == said[1]


def test_without_an_example(tmp_path):
    done = run("programs:build_model", "--name", "small")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["name"] == "small" and all(row["meta"] == {} for row in document["nodes"])


def test_what_goes_wrong():
    assert "no model today" in run("programs:build_nothing").stderr
    done = run("programs")
    assert done.returncode != 0 and "say module:function" in done.stderr
    assert run().returncode == 2


def test_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "build", lambda: (programs.Small(), (), {"x": programs.build()[1][0]}))
    assert main(["export", "programs:build_model", "-o", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text())["name"] == "Small"
