"""A converted file is whole or not there: foldback is killed at instants all over its work, and its disk fills up."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

from cli import environment
from conftest import binary

pytestmark = pytest.mark.shortened
ROUNDS = int(os.environ.get("FOLDBACK_KILL_ROUNDS", "20"))
ROWS, HIDDEN, LAYERS = 256, 512, 6


@pytest.fixture
def folder(tmp_path):
    """4.7 MB of queries, keys and values."""
    header, parts = {}, []
    for i in range(LAYERS):
        for name in ("q", "k", "v"):
            part = random.Random(f"{name}{i}").randbytes(2 * ROWS * HIDDEN)
            at = len(parts) * len(part)
            header[f"model.layers.{i}.self_attn.{name}_proj.weight"] = {"dtype": "BF16", "shape": [ROWS, HIDDEN],
                                                                        "data_offsets": [at, at + len(part)]}
            parts.append(part)
    text = str(header).replace("'", '"').encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))
    return tmp_path


def words_of(verb, *more, output="new.safetensors"):
    source = ("qkv-fused", "model.safetensors") if verb == "apply" else ("fused.safetensors",)
    return [binary(), "layout", verb, *source, "-o", output, "--data", "store", *more]


def run(folder, words):
    subprocess.run(words, cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL)


def written(folder, wanted=True):
    return {path.name: path.read_bytes() for path in folder.glob("new*") if path.name.endswith(".part") != wanted}


def whole(folder, verb, more):
    """What the command writes when nothing stops it. The store has all bytes afterwards."""
    run(folder, words_of("apply", output="fused.safetensors"))
    run(folder, words_of(verb, *more))
    made = written(folder)
    for path in folder.glob("new*"):
        path.unlink()
    return made


@pytest.mark.parametrize("more", [(), ("--shard-size", "1MB")], ids=["file", "shards"])
@pytest.mark.parametrize("verb", ["apply", "undo"])
@pytest.mark.heavy
def test_killed(folder, verb, more):
    made = whole(folder, verb, more)
    kill_often(folder, verb, more, made, "store")


@pytest.mark.heavy
def test_killed_over_a_new_file(folder):
    """Hashed and stored while the result is written ahead of that: another store each time."""
    made = whole(folder, "apply", ())
    kill_often(folder, "apply", (), made, "store-{}")


def kill_often(folder, verb, more, made, store):
    def words(i, *last):
        return [store.format(i) if word == "store" else word for word in words_of(verb, *more, *last)]

    begin = time.monotonic()
    run(folder, words("timed"))
    seconds = time.monotonic() - begin
    seen = set()
    for i in range(ROUNDS):
        for path in folder.glob("new*"):
            path.unlink()
        process = subprocess.Popen(words(i), cwd=folder, env=environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(seconds * i / ROUNDS)
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = written(folder)
        seen.add(tuple(sorted(left)))
        assert all(made[name] == data for name, data in left.items())
        assert "new.safetensors.index.json" not in left or left == made
        # The same command finishes what was begun; files of it that are there already need --force.
        if i % 4 == 0:
            run(folder, words(i, *(["--force"] if left else [])))
            assert written(folder) == made and not written(folder, wanted=False)
    assert () in seen


@pytest.mark.parametrize("more", [(), ("--shard-size", "4MB")], ids=["file", "shards"])
@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_a_disk_that_fills_up(folder, verb, more):
    """Files may not grow beyond 3 MB, which the store's new ones need not."""
    whole(folder, verb, more)
    done = subprocess.run(words_of(verb, *more), cwd=folder, env=environment(), capture_output=True, restore_signals=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000)))
    assert done.returncode == 1 and b"cannot write new" in done.stderr and b"File too large" in done.stderr, done
    assert not written(folder)
