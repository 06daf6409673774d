"""The command line with archives of torch.export: a file called .pt2 stands wherever a graph does."""

import json
import os
import pathlib
import signal
import subprocess
import time

from conftest import binary

ARCHIVES = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "archives"


def run(folder, *words):
    return run_in(None, *words, "--data", folder / "store")


def run_in(folder, *words, **variables):
    environment = {**os.environ, "NO_COLOR": "1", **variables}
    return subprocess.run([binary(), *map(str, words)], cwd=folder, capture_output=True, text=True, env=environment,
                          timeout=600)


def test_optimize_and_back(tmp_path):
    given = ARCHIVES / "conv.pt2"
    done = run(tmp_path, "optimize", given, "--pass", "RemoveNoOps", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["source"] != made["result"]
    back = run(tmp_path, "reverse", made["id"], "-o", tmp_path / "back.pt2")
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "back.pt2").read_bytes() == given.read_bytes()


def test_optimize_to_an_archive(tmp_path):
    done = run(tmp_path, "optimize", ARCHIVES / "conv.pt2", "--pass", "inference", "-o", tmp_path / "fast.pt2")
    assert done.returncode == 0, done.stderr
    assert run(tmp_path, "diff", tmp_path / "fast.pt2", tmp_path / "fast.pt2").returncode == 0
    assert (tmp_path / "fast.pt2").read_bytes() != (ARCHIVES / "conv.pt2").read_bytes()


def test_the_file_alone_leads_back(tmp_path):
    given, fast = ARCHIVES / "conv.pt2", tmp_path / "fast.pt2"
    assert run(tmp_path, "optimize", given, "--pass", "RemoveNoOps", "-o", fast).returncode == 0
    back = run(tmp_path, "reverse", fast, "-o", tmp_path / "back.pt2")
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "back.pt2").read_bytes() == given.read_bytes()
    assert "RemoveNoOps" in run(tmp_path, "show", fast).stdout
    assert run(tmp_path, "optimize", given, "--pass", "inference", "-o", fast).returncode == 0
    back = run(tmp_path, "reverse", fast, "-o", tmp_path / "again.pt2")
    assert back.returncode != 0 and "can undo any of them" in back.stderr and not (tmp_path / "again.pt2").exists()


def test_what_cannot_be_written_is_refused(tmp_path):
    assert run(tmp_path, "optimize", ARCHIVES / "mlp.pt2", "--pass", "RemoveNoOps", "-o",
               tmp_path / "graph.json").returncode == 0
    document = json.loads((tmp_path / "graph.json").read_text())
    del document["metadata"]["archive"]
    (tmp_path / "graph.json").write_text(json.dumps(document))
    done = run(tmp_path, "optimize", tmp_path / "graph.json", "--pass", "FuseBiasInLinear", "-o", tmp_path / "fast.pt2")
    assert done.returncode != 0 and "was not read from an archive" in done.stderr
    assert not (tmp_path / "fast.pt2").exists()


def test_diff_of_archives(tmp_path):
    assert run(tmp_path, "optimize", ARCHIVES / "empty.pt2", "--pass", "DeepCopy").returncode == 0  # makes the data folder
    same = run(tmp_path, "diff", ARCHIVES / "tied.pt2", ARCHIVES / "tied.pt2")
    assert same.returncode == 0, same.stderr
    other = run(tmp_path, "diff", ARCHIVES / "tied.pt2", ARCHIVES / "mlp.pt2")
    assert "linear" in other.stdout


def test_files_are_read_without_a_data_folder(tmp_path):
    """An archive is stored when it is referred to; where there is no data folder, in one that goes with the command."""
    given, place = ARCHIVES / "kinds.pt2", tmp_path / "tmp"
    place.mkdir()
    for words in (["compare", given, given], ["diff", given, given], ["code", given], ["show", given], ["verify", given],
                  ["graph", "nodes", given], ["weights", given, "-o", "w.safetensors"]):
        done = run_in(tmp_path, *words, TMPDIR=str(place))
        assert done.returncode == 0, done
        assert {path.name for path in tmp_path.iterdir()} - {"w.safetensors"} == {"tmp"} and not list(place.iterdir())
    for words in (["compare", given, "sha256:" + "0" * 64], ["compare", given, given, "--data", "none"]):
        done = run_in(tmp_path, *words)
        assert done.returncode == 2 and "there is no data folder" in done.stderr, done
    done = run(tmp_path, "optimize", given, "--pass", "MergeLinears", "-n", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["id"] is None, done.stderr
    assert run(tmp_path, "compare", given, given).returncode == 0


def test_an_own_folder_goes_with_a_killed_command(tmp_path):
    place = tmp_path / ("tmp" * 50)
    place.mkdir()
    command = subprocess.Popen([binary(), "compare", ARCHIVES / "kinds.pt2", "-"], stdin=subprocess.PIPE, cwd=tmp_path,
                               env={**os.environ, "TMPDIR": str(place)})
    while not list(place.iterdir()) and command.poll() is None:
        time.sleep(0.001)
    command.kill()
    assert command.wait() == -signal.SIGKILL
    end = time.monotonic() + 60
    while list(place.iterdir()) and time.monotonic() < end:
        time.sleep(0.01)
    assert not list(place.iterdir())


def test_a_broken_archive_is_named(tmp_path):
    (tmp_path / "cut.pt2").write_bytes((ARCHIVES / "mlp.pt2").read_bytes()[:3000])
    done = run(tmp_path, "optimize", tmp_path / "cut.pt2", "--pass", "RemoveNoOps")
    assert done.returncode != 0 and "no directory at its end" in done.stderr


def test_put_stores_a_graph(tmp_path):
    put = run(tmp_path, "put", ARCHIVES / "several.pt2", "--model", "two", "--json")
    assert put.returncode == 0, put.stderr
    made = json.loads(put.stdout)
    assert made["name"] == "two" and made["archive"].startswith("sha256:")
    back = run(tmp_path, "put", ARCHIVES / "several.pt2")
    assert back.returncode == 1 and "one, two" in back.stderr
    (tmp_path / "two.json").write_text(json.dumps(json.loads((ARCHIVES / "documents.json").read_text())["several"]["two"]))
    document = run(tmp_path, "put", tmp_path / "two.json", "--json")
    assert json.loads(document.stdout)["structure"] == made["structure"]
    assert run(tmp_path, "put", tmp_path / "two.json", "--model", "two").returncode == 2
    assert run(tmp_path, "put", made["id"]).returncode == 2
    assert run(tmp_path, "put", ARCHIVES / "none.pt2").returncode == 1


def test_validate_is_verify(tmp_path):
    assert run(tmp_path, "put", ARCHIVES / "conv.pt2").returncode == 0
    for verb in ("validate", "verify"):
        assert run(tmp_path, verb, ARCHIVES / "conv.pt2").stdout.startswith("valid: sha256:")
    (tmp_path / "cut.pt2").write_bytes((ARCHIVES / "mlp.pt2").read_bytes()[:3000])
    assert run(tmp_path, "validate", tmp_path / "cut.pt2").returncode == 1


def test_no_python_is_needed(tmp_path):
    """The binary starts no other program: it works where nothing is on the PATH."""
    words = ["optimize", str(ARCHIVES / "conv.pt2"), "--pass", "inference", "--validate", "graph", "-o",
             str(tmp_path / "fast.pt2")]
    done = subprocess.run([binary(), *words, "--data", tmp_path / "store"], capture_output=True, text=True,
                          env={"PATH": str(tmp_path)}, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fast.pt2").read_bytes()[:2] == b"PK"
