"""Samples of pages run: the README's ten lines, with the client as pip installs it, against a service; and docs/optimum.md."""

import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import pytest

from foldback.torch_compile import TESTED

CLIENT = pathlib.Path(__file__).resolve().parents[1]


def test_the_ten_lines(service, tmp_path):
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(tmp_path / "site"),
    ]
    unbuilt = shutil.ignore_patterns("tests", "build", "*.egg-info", "__pycache__")
    shutil.copytree(CLIENT, tmp_path / "source", ignore=unbuilt)  # pip builds in the folder of the source
    subprocess.run([*install, str(tmp_path / "source")], check=True)
    assert (tmp_path / "site" / "foldback" / "py.typed").exists()

    model, lines, weights = re.findall(r"```python\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    assert len(lines.splitlines()) == 10
    assert lines.count("http://127.0.0.1:8080") == 1
    program = tmp_path / "program.py"  # in a file: torch.fx reads the source
    weights = "import json\ngraph = json.load(open('graph.json'))\n" + weights
    weights += "assert open('back.safetensors', 'rb').read() == open('model.safetensors', 'rb').read()\n"
    for name, file in (("graph.json", "graph.json"), ("weights.safetensors", "model.safetensors")):
        shutil.copy(CLIENT.parents[1] / "tests" / "fixtures" / "resnet-tiny" / name, tmp_path / file)
    program.write_text(model + lines.replace("http://127.0.0.1:8080", service.url) + weights + "print(foldback.__file__)\n")
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PATH": ""}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "site"))


STEP = """
optimiser = torch.optim.SGD(live.parameters(), 0.1)
live(x).square().sum().backward()
optimiser.step()
trained = live(x)
assert (trained - model(x)).abs().max() > 1e-3
"""


@pytest.mark.parametrize("of", ["run", "live"])
def test_the_ten_lines_with_a_step_before_the_undo(service, tmp_path, monkeypatch, of):
    """What was learnt in between comes back in the parts."""
    model, lines, _ = re.findall(r"```python\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    lines = lines.replace("http://127.0.0.1:8080", service.url)
    before, undo, after = lines.partition("undone = client.reverse(run)\n")
    applied, _, _ = after.partition("assert")
    check = "torch.testing.assert_close(live(x), trained)\nassert not hasattr(live, 'query_key_value_merged')\n"
    check += "assert live.query.weight.shape == (32, 32)\n"
    program = tmp_path / "program.py"
    program.write_text(model + before + STEP + undo.replace("run", of) + applied + check)
    monkeypatch.chdir(tmp_path)
    assert undo and "live" in runpy.run_path(str(program))


def test_the_samples_of_the_guide(tmp_path):
    """In order, in one program."""
    samples = re.findall(r"```python\n(.*?)```", (CLIENT.parents[1] / "docs" / "optimum.md").read_text(), re.DOTALL)
    assert len(samples) == 7
    program = tmp_path / "program.py"  # in a file: torch.fx reads the source
    program.write_text("\n".join(samples) + "print('all of it ran')\n")
    done = subprocess.run([sys.executable, "-W", "error::UserWarning:foldback", program], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("all of it ran\n"), done.stderr


def test_the_versions_of_pytorch_are_those_of_the_tests():
    """Pages and the backend name them, and the extras ask for the oldest or later."""
    root = CLIENT.parents[1]
    lists = [(root / "tests" / "python" / f"{name}.txt").read_text() for name in ("oldest", "requirements", "newest")]
    versions = [re.search(r"^torch==(.*)$", text, re.MULTILINE)[1] for text in lists]
    for page in (CLIENT / "README.md", root / "docs" / "torch-compile.md"):
        assert f"tested on PyTorch {versions[0]}, {versions[1]} and {versions[2]}" in page.read_text(), page
    assert list(TESTED) == versions
    assert set(re.findall(r'"torch(.*?)"', (CLIENT / "pyproject.toml").read_text())) == {f">={versions[0]}"}
