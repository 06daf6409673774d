"""Layouts from transformers 5's mapping beside from_pretrained: for each entry with a converter a tiny model, whose checkpoint
of other names both read. UPDATE=1 writes the table in docs/layouts.md; otherwise each row must be as it is there."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip("the mapping came with transformers 5", allow_module_level=True)

import mapping_models

from foldback import layouts

ROOT = Path(__file__).parents[2]
BINARY, DOCS = ROOT / "build/foldback", ROOT / "docs/layouts.md"
HEAD = "| entry | model | rows | as `from_pretrained`, and back | `save_pretrained` |\n|---|---|---:|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"((?:\|.*\n)*)")
State = dict[str, torch.Tensor]


def foldback(folder: Path, *words: object) -> None:
    done = subprocess.run([str(BINARY), *map(str, words), "--data", str(folder / "store")], capture_output=True, text=True,
                          timeout=600, check=False)
    assert done.returncode == 0, done.stderr


def changed(state: State) -> State:
    """Every number is another one."""
    return {name: (1 - tensor / 2 if tensor.is_floating_point() else ~tensor).contiguous() for name, tensor in state.items()}


def difference(one: State, two: State) -> str:
    """Empty where both are the same tensors of the same bytes."""
    fewer, more = sorted(two.keys() - one.keys()), sorted(one.keys() - two.keys())
    if fewer or more:
        count = max(len(fewer), len(more))
        return f"{count} of {len(two)} names: `{(more or [''])[0]}` for `{(fewer or [''])[0]}`"
    for name, tensor in one.items():
        if tensor.dtype != two[name].dtype or tensor.shape != two[name].shape:
            return f"`{name}` is {list(tensor.shape)}, not {list(two[name].shape)}"
        if not torch.equal(tensor, two[name]):
            return f"other numbers in `{name}`"
    return ""


def source_of(config: transformers.PretrainedConfig, folder: Path) -> State:
    """A checkpoint of random numbers under the names of before. from_pretrained must read it whole, so it is a right one."""
    lib = layouts._Transformers()
    mapping = layouts.Mapping(lib.model(config), lib)
    made, _ = mapping.collected(names := mapping.original())
    for tied in getattr(mapping.model, "all_tied_weights_keys", None) or ():
        for name in made.pop(tied, {}).get("", []):
            del names[name]
    dtypes = {name: mapping.meta[first].dtype for first, some in made.items() for part in some.values() for name in part}
    torch.manual_seed(0)
    state = {name: torch.randn(shape) if dtypes[name].is_floating_point else torch.randint(0, 2, shape).to(dtypes[name])
             for name, shape in names.items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    return state


def read_by_transformers(folder: Path, known: type) -> tuple[transformers.PreTrainedModel, State]:
    model, told = known.from_pretrained(folder, config=transformers.AutoConfig.from_pretrained(folder),
                                        output_loading_info=True, dtype=torch.float32)
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    return model, {name: tensor.detach() for name, tensor in model.state_dict().items()}


def judged(folder: Path, config: Path, theirs: State, source: State, tied: set[str]) -> int:
    """Applies the layout and undoes it after training; the number of its rows. Raises LayoutRefused where there is none."""
    layout = layouts.from_transformers(config, name=f"{config.name}-made")
    document = folder / "layout.json"
    document.write_text(json.dumps(layout))
    foldback(folder, "layout", "put", document)
    foldback(folder, "layout", "apply", layout["name"], folder / "before/model.safetensors", "--output",
             folder / "made.safetensors", "--force")
    made = load_file(folder / "made.safetensors")
    expected = {name: tensor for name, tensor in theirs.items() if name in made or name not in tied}
    assert not difference(made, expected), difference(made, expected)
    with safe_open(folder / "made.safetensors", "pt") as file:
        metadata = file.metadata()
    save_file(dict(reversed(changed(made).items())), folder / "trained.safetensors", metadata)
    foldback(folder, "layout", "undo", folder / "trained.safetensors", "--output", folder / "back.safetensors", "--force")
    back = load_file(folder / "back.safetensors")
    assert not difference(back, changed(source)), difference(back, changed(source))
    return len(layout["rows"])


def wrong_in(model: transformers.PreTrainedModel, source: State, folder: Path) -> str:
    """What save_pretrained of a model that was read from the source writes otherwise; of empty tensors only the names count."""
    try:
        model.save_pretrained(folder, max_shard_size="100GB")
    except Exception as error:  # whatever transformers raises
        return type(error).__name__
    saved = load_file(folder / "model.safetensors")
    if any(not len(tensor) for tensor in source.values() if tensor.ndim):
        saved = {name: tensor[:0] if tensor.ndim else tensor for name, tensor in saved.items()}
        source = {name: saved.get(name, tensor) for name, tensor in source.items()}
    return difference(saved, source)


def row_of(entry: str, folder: Path) -> str:
    known = mapping_models.class_of(entry)
    for name in ("before", "config"):
        (folder / name).mkdir()
        config = mapping_models.config_of(entry, folder / name)
    source = source_of(config, folder / "before")
    model, theirs = read_by_transformers(folder / "before", known)
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    rows, verdict = "", "yes"
    try:
        counts = {judged(folder, folder / name, theirs, source, tied) for name in ("config", "before")}
        rows = ", ".join(map(str, sorted(counts)))
    except layouts.LayoutRefused as refused:
        verdict = f"refused: {refused}"
    saved = wrong_in(model, source, folder / "saved")
    names = {name: tensor[:0] if tensor.ndim else tensor for name, tensor in source.items()}
    if not saved and (new := wrong_in(known(config), names, folder / "new")):
        saved = f"of a new model, {new}"
    return f"| `{entry}` | {known.__name__} | {rows} | {verdict} | {f'**wrong**: {saved}' if saved else 'right'} |"


@pytest.mark.sampled
@pytest.mark.parametrize("entry", mapping_models.entries())
def test_as_from_pretrained(tmp_path: Path, entry: str) -> None:
    row = row_of(entry, tmp_path)
    text = DOCS.read_text()
    table = TABLE.search(text)
    assert table
    rows = {line.split("`")[1]: line for line in table[1].splitlines()}
    if os.environ.get("UPDATE"):
        rows[entry] = row
        inside = HEAD + "".join(f"{rows[name]}\n" for name in sorted(rows, key=str.lower))
        DOCS.write_text(text[: table.start()] + inside + text[table.end() :])
    else:
        assert rows[entry] == row


def test_the_table_is_whole() -> None:
    """Every entry has a row, and most are moved as from_pretrained does it."""
    rows = TABLE.search(DOCS.read_text())[1].splitlines()
    names = {line.split("`")[1] for line in rows}
    assert names == set(mapping_models.entries())
    assert sum("| yes |" in line for line in rows) >= 60
