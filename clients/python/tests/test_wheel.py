"""The wheel with the program: what `pip wheel clients/python` makes runs without a library of the system but glibc's."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch

pytestmark = pytest.mark.xdist_group("wheel")  # it is made in the folder of the sources: by one at a time

CLIENT = pathlib.Path(__file__).resolve().parents[1]
GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|nss_\w+))\.so\b.*")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = pathlib.Path(os.environ["FOLDBACK_BINARY"]).absolute().parent
    root = CLIENT.parents[1]
    environment = os.environ | {"FOLDBACK_BUILD": str(build.relative_to(root) if build.is_relative_to(root) else build)}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(CLIENT)]
    subprocess.run(command, check=True, env=environment)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory):
    """With the wheel, and PyTorch of the venv that runs the tests."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q", "--no-deps", "--no-index"]
    bare = {key: item for key, item in os.environ.items() if key != "PYTHONPATH"}  # there foldback seems to be installed
    subprocess.run([*pip, str(wheel)], check=True, env=bare)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "torch_of_the_tests.pth").write_text(f"{pathlib.Path(torch.__file__).parents[1]}\n")
    return folder


def run(venv, program, tmp_path):
    (tmp_path / "program.py").write_text(program)  # in a file: torch.fx reads the source
    environment = {"PATH": f"{venv}/bin:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [venv / "bin" / "python", "program.py"], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ten_lines():
    model, lines, _ = re.findall(r"```python\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)
    return model, lines


def test_its_name_and_its_files(wheel):
    assert re.fullmatch(r"foldback_graphs-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert {"foldback/py.typed", "foldback/bin/foldback"} <= set(names)
    libraries = [name.rpartition("/")[2] for name in names if name.startswith("foldback/bin/lib/")]
    assert len(libraries) > 10 and not [name for name in libraries if GLIBC.fullmatch(name)]
    assert len([name for name in names if name.startswith("foldback/bin/licenses/")]) > 10


WHAT_IT_LOADS = """
from pathlib import Path
from foldback import optimization, private
live = torch.fx.symbolic_trace(Attention().eval())
optimization.MergeLinears()(live)
assert "merged" in live.code
binary = private.find_binary()
found = []
for entry in Path("/proc").iterdir():
    try:
        if entry.name.isdigit() and str(entry.joinpath("exe").readlink()) == binary:
            found.append(entry.joinpath("maps").read_text())
    except OSError:
        pass
assert len(found) == 1, found
print(binary)
print(*{line.split()[-1] for line in found[0].splitlines() if ".so" in line}, sep="\\n")
"""


def test_the_private_service_is_the_one_in_the_wheel_and_loads_its_own_libraries(venv, tmp_path):
    binary, *loaded = run(venv, ten_lines()[0] + WHAT_IT_LOADS, tmp_path).splitlines()
    assert pathlib.Path(binary).is_relative_to(venv)
    foreign = [path for path in loaded if not pathlib.Path(path).is_relative_to(venv)]
    assert len(loaded) - len(foreign) > 10 and foreign
    assert not [path for path in foreign if not GLIBC.fullmatch(pathlib.Path(path).name)]


def test_the_traps_with_nothing_but_the_wheel(venv, tmp_path):
    shutil.copy(CLIENT / "tests" / "test_traps.py", tmp_path)
    environment = {"PATH": f"{venv}/bin:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    command = [venv / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_traps.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    assert done.returncode == 0 and re.search(r"^\d{3} passed", done.stdout, re.MULTILINE), done.stdout


def test_the_ten_lines_with_the_command_of_the_wheel(venv, tmp_path):
    model, lines = ten_lines()
    service = subprocess.Popen(
        [venv / "bin" / "foldback", "serve", "--listen", "127.0.0.1:0", "--data", tmp_path / "data"],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    try:
        url = service.stdout.readline().removeprefix("listening on ").strip()
        run(venv, model + lines.replace("http://127.0.0.1:8080", url), tmp_path)
    finally:
        service.terminate()
        service.wait(60)
        service.stdout.close()


def test_the_script_of_another_venv_is_not_taken_for_the_program(venv, monkeypatch):
    from foldback import private

    monkeypatch.delenv("FOLDBACK_BINARY")
    monkeypatch.setenv("PATH", f"{venv}/bin")
    with pytest.raises(private.ServiceNotStarted, match="make wheel"):
        private.find_binary()
