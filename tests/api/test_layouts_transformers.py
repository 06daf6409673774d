"""Layouts are judged by transformers' own conversion, both ways: tests/fixtures/transformers/make.py."""

import json

import pytest
from cli import CommandLine
from documents import FIXTURES
from weights_files import tensors_of

FOLDER = FIXTURES / "transformers"
CONFIGS = json.loads((FOLDER / "configs.json").read_text())
CASES = sorted((path.parent.name, path.stem) for path in FOLDER.glob("*/*.safetensors") if path.stem != "apart")


def changed(data):
    """Every byte of every tensor is another one, but for numbers that are 0: those beside the blocks of an adapter stay so."""
    start = 8 + int.from_bytes(data[:8], "little")
    words = (data[at : at + 4] for at in range(start, len(data), 4))
    return data[:start] + b"".join(bytes(byte ^ 0x5A for byte in word) if any(word) else word for word in words)


def test_there_are_enough():
    layouts = [layout for _, layout in CASES]
    assert {layout: layouts.count(layout) for layout in layouts} == {
        "gate-up-fused": 3, "llama-cpp-rope": 3, "phi3": 2, "qkv-fused": 3, "stacked-experts": 8}


@pytest.mark.parametrize("name, layout", CASES)
def test_the_same_bytes(tmp_path, name, layout):
    foldback = CommandLine(tmp_path)
    folder, config = FOLDER / name, tmp_path / "config.json"
    config.write_text(json.dumps(CONFIGS[name]))
    apart, arranged = ((folder / f"{one}.safetensors").read_bytes() for one in ("apart", layout))
    made = foldback("layout", "apply", layout, folder / "apart.safetensors", "--config", config, "-o", tmp_path / "ours")
    assert made.status == 0, made
    assert made.out
    ours = (tmp_path / "ours").read_bytes()
    assert tensors_of(ours) == tensors_of(arranged) != tensors_of(apart)
    run = json.loads(made.out)["id"]
    for theirs, expected, back in ((arranged, apart, tmp_path / "back"),
                                   (changed(arranged), changed(apart), tmp_path / "changed")):
        (tmp_path / "theirs.safetensors").write_bytes(theirs)
        undone = foldback("layout", "undo", tmp_path / "theirs.safetensors", "--run", run, "-o", back)
        assert undone.status == 0, undone
        assert tensors_of(back.read_bytes()) == tensors_of(expected)
