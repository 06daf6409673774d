"""stacked-experts is judged by transformers' own conversion, both ways: tests/fixtures/transformers/make.py."""

import json

import pytest
from cli import CommandLine
from documents import FIXTURES
from weights_files import tensors_of

FOLDER = FIXTURES / "transformers"
ARCHITECTURES = sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def changed(data):
    """Every byte of every tensor is another one."""
    start = 8 + int.from_bytes(data[:8], "little")
    return data[:start] + bytes(byte ^ 0x5A for byte in data[start:])


def test_there_are_enough():
    assert len(ARCHITECTURES) >= 5


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_same_bytes(tmp_path, name):
    foldback = CommandLine(tmp_path)
    folder, config = FOLDER / name, FOLDER / name / "config.json"
    apart, stacked = ((folder / f"{one}.safetensors").read_bytes() for one in ("apart", "stacked"))
    made = foldback("layout", "apply", "stacked-experts", folder / "apart.safetensors", "--config", config, "-o", tmp_path / "ours")
    assert made.status == 0, made
    assert made.out
    ours = (tmp_path / "ours").read_bytes()
    assert tensors_of(ours) == tensors_of(stacked) != tensors_of(apart)
    run = json.loads(made.out)["id"]
    for theirs, expected in ((stacked, apart), (changed(stacked), changed(apart))):
        (tmp_path / "theirs.safetensors").write_bytes(theirs)
        undone = foldback("layout", "undo", tmp_path / "theirs.safetensors", "--run", run, "-o", tmp_path / "back")
        assert undone.status == 0, undone
        assert tensors_of((tmp_path / "back").read_bytes()) == tensors_of(expected)
