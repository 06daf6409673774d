"""python -m foldback, in processes of its own; and that all processes say the same."""

import json
import os
import pathlib
import subprocess
import sys

import programs
import pytest
from canonical import identity
from test_models import make

from foldback.__main__ import main

HERE = pathlib.Path(__file__).resolve().parent


def run(*arguments, **environment):
    command = [sys.executable, "-m", "foldback", "export", *arguments]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, env={**os.environ, **environment})


# Of several processes one is this one: each new one imports PyTorch anew, which takes longer than its work.


def test_the_same_model_has_the_same_id_in_every_process(client, tmp_path):
    """Sets, dictionaries of strings and addresses differ from process to process."""
    texts = []
    for seed in ("0", "1"):
        done = run("programs:build", "-o", str(tmp_path / f"{seed}.json"), "--data", PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        texts.append((tmp_path / f"{seed}.json").read_text())
    assert main(["export", "programs:build", "-o", str(tmp_path / "here.json"), "--data"]) == 0
    assert texts[0] == texts[1] == (tmp_path / "here.json").read_text()
    document = json.loads(texts[0])
    assert client.put_graph(document) == identity(document)


MODELS = ("t5", "torch.export"), ("gpt-j", "torch.fx"), ("segformer", "torch.export")


def test_real_models_have_the_same_id_in_every_process():
    pytest.importorskip("transformers.utils.fx")
    program = f"""
import sys
sys.path[:0] = ["{HERE}", "{HERE.parents[2] / "tests" / "python"}"]
from canonical import identity
from test_models import make
for name, dialect in {MODELS}:
    print(identity(make(name, dialect)[0]))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONHASHSEED": "1"}).stdout
    assert said.count("sha256:") == 3 and said.split() == [identity(make(name, dialect)[0]) for name, dialect in MODELS]


def test_without_an_example(capsys):
    assert main(["export", "programs:build_model", "--name", "small"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["name"] == "small" and all(row["meta"] == {} for row in document["nodes"])


def test_what_goes_wrong(capsys):
    with pytest.raises(RuntimeError, match="no model today"):
        main(["export", "programs:build_nothing"])
    with pytest.raises(SystemExit, match="say module:function"):
        main(["export", "programs"])
    with pytest.raises(SystemExit) as stopped:
        main(["export"])
    assert stopped.value.code == 2 and "usage: python -m foldback export" in capsys.readouterr().err
    done = run("programs")  # as a process says it
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "programs names no function: say module:function"


def test_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "build", lambda: (programs.Small(), (), {"x": programs.build()[1][0]}))
    assert main(["export", "programs:build_model", "-o", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text())["name"] == "Small"
