"""The documents beside the archives in tests/fixtures/archives are what the exporter makes of the loaded programs; the tests of the
reader in C (test_archive.c) compare with them. And where a name is that of a tied tensor, the loaded program has the document of the
one that was saved."""

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.export.pt2_archive._package import load_pt2

HERE = Path(__file__).parent
ARCHIVES = HERE.parent / "fixtures/archives"
sys.path[:0] = [str(HERE.parents[1] / "clients/python/src"), str(ARCHIVES)]

from foldback.export import from_exported_program  # noqa: E402

DOCUMENTS = sorted(path.name for path in ARCHIVES.glob("*.json"))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_is_that_of_the_exporter(name: str) -> None:
    archive, _, model = name.removesuffix(".json").rpartition("-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = load_pt2(str(ARCHIVES / f"{archive}.pt2")).exported_programs[model]
        made = from_exported_program(program)
    assert json.loads(json.dumps(made)) == json.loads((ARCHIVES / name).read_text())


def test_a_tied_tensor_is_one_after_loading(tmp_path: Path) -> None:
    import make

    program = torch.export.export(make.Tied().eval(), (torch.zeros(2, 3, dtype=torch.int64),))
    torch.export.save(program, tmp_path / "tied.pt2")
    loaded = torch.export.load(tmp_path / "tied.pt2")
    before, after = from_exported_program(program), from_exported_program(loaded)
    assert [row["name"] for row in after["tensors"]] == ["embed.weight"]
    assert before["modules"] == after["modules"] and before["tensors"] == after["tensors"]
