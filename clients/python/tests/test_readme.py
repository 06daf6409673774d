"""The README's ten lines, with the client as pip installs it, against a service."""

import pathlib
import re
import shutil
import subprocess
import sys

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
