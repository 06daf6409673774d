"""The command line with ONNX models: a file called .onnx stands wherever a graph does, and the files beside it come along."""

import json
import os
import shutil
import subprocess

import pytest
from conftest import ROOT, binary
from test_cli_archives import run

MODELS = ROOT / "tests" / "fixtures" / "onnx"


@pytest.fixture
def folder(tmp_path):
    """A model with two files beside it."""
    made = tmp_path / "given"
    (made / "weights").mkdir(parents=True)
    shutil.copy(MODELS / "external-two-files.onnx", made / "model.onnx")
    shutil.copy(MODELS / "two.data", made)
    shutil.copy(MODELS / "weights" / "one.bin", made / "weights")
    return made


def put(tmp_path, *words):
    done = run(tmp_path, "put", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_put_and_back(tmp_path, folder):
    made = put(tmp_path, folder / "model.onnx")
    assert made["dialect"] == "onnx" and made["tensors"] >= 2
    done = run(tmp_path, "optimize", folder / "model.onnx", "--pass", "RemoveNoOps", "--json")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    out.mkdir()
    back = run(tmp_path, "optimize", folder / "model.onnx", "--pass", "RemoveNoOps", "-o", out / "model.onnx")
    assert back.returncode == 0, back.stderr
    assert contents(out) == contents(folder)
    again = run(tmp_path, "optimize", folder / "model.onnx", "--pass", "RemoveNoOps", "-o", out / "model.onnx")
    assert again.returncode == 0, "files that are the same stay"
    (out / "weights" / "one.bin").write_bytes(b"mine")
    refused = run(tmp_path, "optimize", folder / "model.onnx", "--pass", "RemoveNoOps", "-o", out / "model.onnx")
    assert refused.returncode != 0 and "one.bin is there already, with other bytes" in refused.stderr
    assert (out / "weights" / "one.bin").read_bytes() == b"mine"


def test_the_name_says_what_is_written(tmp_path, folder):
    """An ONNX model under the name of an archive would be read as one by whoever gets it."""
    archive = ROOT / "tests" / "fixtures" / "archives" / "constants.pt2"
    for given, name, kind, ending in ((folder / "model.onnx", "x.pt2", "an ONNX model", ".onnx"),
                                      (archive, "x.onnx", "an archive of torch.export", ".pt2")):
        done = run(tmp_path, "optimize", given, "--pass", "RemoveNoOps", "-o", tmp_path / name)
        assert done.returncode == 2 and f"the result is {kind}: give it a name that ends in {ending}" in done.stderr
        assert not (tmp_path / name).exists()


def test_wherever_a_graph_stands(tmp_path, folder):
    given = folder / "model.onnx"
    made = put(tmp_path, given)["id"]
    assert run(tmp_path, "id", given).stdout.strip() == made
    assert "def forward" in run(tmp_path, "code", given).stdout
    assert run(tmp_path, "diff", given, given).stdout == ""
    for words in (["show", given], ["verify", given], ["weights", given, "-o", tmp_path / "w.safetensors"]):
        done = run(tmp_path, *words)
        assert done.returncode == 0, (words, done.stderr)
    assert "onnx.function" in run(tmp_path, "diff", given, MODELS / "functions.onnx").stdout


def test_the_ending_may_be_in_capitals(tmp_path, folder):
    given = folder / "GIVEN.ONNX"
    shutil.move(folder / "model.onnx", given)
    done = run(tmp_path, "optimize", given, "--pass", "RemoveNoOps", "-o", folder / "OUT.ONNX")
    assert done.returncode == 0, done.stderr
    assert (folder / "OUT.ONNX").read_bytes() == given.read_bytes()


def test_from_where_it_is(tmp_path, folder, monkeypatch):
    """Files are found beside the model, not beside the one who asks."""
    first = put(tmp_path, folder / "model.onnx")["id"]
    monkeypatch.chdir(folder)
    assert put(tmp_path, "model.onnx")["id"] == first
    monkeypatch.chdir(folder / "weights")
    assert put(tmp_path, "../model.onnx")["id"] == first


def test_missing_files(tmp_path, folder):
    (folder / "two.data").unlink()
    done = run(tmp_path, "put", folder / "model.onnx")
    assert done.returncode == 1 and "lacks files that have its weights: two.data; foldback put --absent" in done.stderr
    made = put(tmp_path, folder / "model.onnx", "--absent")
    assert run(tmp_path, "verify", made["id"]).returncode == 0


def test_what_is_not_an_ordinary_file(tmp_path, folder):
    (folder / "two.data").unlink()
    (folder / "two.data").mkdir()
    done = run(tmp_path, "put", folder / "model.onnx")
    assert done.returncode == 1 and "two.data is not an ordinary file" in done.stderr
    (folder / "two.data").rmdir()
    os.mkfifo(folder / "two.data")
    done = run(tmp_path, "put", folder / "model.onnx")
    assert done.returncode == 1 and "two.data is not an ordinary file" in done.stderr


def test_links(tmp_path, folder):
    """Within the folder they are followed; out of it only where --root says how far. The model itself may be a link."""
    first = put(tmp_path, folder / "model.onnx")["id"]
    os.rename(folder / "two.data", folder / "really.data")
    os.symlink("really.data", folder / "two.data")
    assert put(tmp_path, folder / "model.onnx")["id"] == first
    os.rename(folder / "really.data", tmp_path / "blob")
    os.unlink(folder / "two.data")
    os.symlink("../blob", folder / "two.data")
    done = run(tmp_path, "put", folder / "model.onnx")
    assert done.returncode == 1 and "two.data leads out of" in done.stderr and "--root" in done.stderr
    assert put(tmp_path, folder / "model.onnx", "--root", tmp_path)["id"] == first
    os.rename(folder / "weights", tmp_path / "elsewhere")
    os.symlink("../elsewhere", folder / "weights")
    done = run(tmp_path, "put", folder / "model.onnx")
    assert done.returncode == 1 and "leads out of" in done.stderr
    os.rename(folder / "model.onnx", tmp_path / "kept")
    os.symlink("../kept", folder / "model.onnx")
    assert put(tmp_path, folder / "model.onnx", "--root", tmp_path)["id"] == first


def test_folders_of_the_output(tmp_path, folder):
    """What is written stays in the folder, also where a part of it is a link."""
    put(tmp_path, folder / "model.onnx")
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "aside").mkdir()
    os.symlink("../aside", out / "weights")
    done = run(tmp_path, "optimize", folder / "model.onnx", "--pass", "RemoveNoOps", "-o", out / "model.onnx")
    assert done.returncode == 1 and "leads out of" in done.stderr
    assert not list((tmp_path / "aside").iterdir()) and not (out / "model.onnx").exists()


def test_what_is_refused(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"hello")
    done = run(tmp_path, "put", tmp_path / "bad.onnx")
    assert done.returncode == 1 and "bad-onnx" in done.stderr
    (tmp_path / "bad.onnx").write_bytes(b"")
    done = run(tmp_path, "put", tmp_path / "bad.onnx")
    assert done.returncode == 1 and "bad-onnx" in done.stderr
    done = run(tmp_path, "put", MODELS / "functions.onnx", "--model", "x")
    assert done.returncode == 2 and "--model" in done.stderr
    document = ROOT / "tests" / "fixtures" / "toy" / "graph.json"
    done = run(tmp_path, "optimize", document, "--pass", "RemoveNoOps", "-o", tmp_path / "x.onnx")
    assert done.returncode == 1 and "was not read from an archive" in done.stderr and not (tmp_path / "x.onnx").exists()


def test_with_a_service(shared, folder):
    done = subprocess.run([binary(), "put", folder / "model.onnx", "--server", shared.url, "--json"], capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert shared.get(f"/v1/graphs/{json.loads(done.stdout)['id']}/archive").body == (folder / "model.onnx").read_bytes()
