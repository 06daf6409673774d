"""PyTorch's exporters against each other: what `compare` finds of each on twelve architectures. docs/exporters.md has a table
for each version of PyTorch; UPDATE=1 writes that of this one anew."""

import copy
import os
import warnings

import pytest
import torch
import transformers_models
import vision_models
from test_exporters import PAGE, check_page

import foldback

VERSION = torch.__version__.split("+")[0]
NAMES = ["resnet", "mobilenet", "densenet", "unet", "convnext", "vit", "bert", "gpt2", "llama", "t5", "mistral", "wav2vec2"]
MARK = f"exporters {VERSION}"


def captured(model, inputs):
    """A model that is captured by torch.compile, and run as it was captured."""
    def call(self, *args, **kwargs):
        return torch.compile(type(model).__call__.__get__(self), backend="eager", dynamic=False)(*args, **kwargs)

    torch._dynamo.reset()
    made = copy.deepcopy(model)
    made.__class__ = type(type(model).__name__, (type(model),), {"__call__": call})
    return made


EXPORTERS = {
    "torch.export": lambda model, inputs: torch.export.export(model, (), inputs),
    "strict": lambda model, inputs: torch.export.export(model, (), inputs, strict=True),
    "decomposed": lambda model, inputs: torch.export.export(model, (), inputs).run_decompositions(),
    "torch.fx": lambda model, inputs: torch.fx.symbolic_trace(model),
    "torch.compile": captured,
}
ROWS = {}


def cell(model, inputs, exporter):
    try:
        program = exporter(model, inputs)
    except Exception:
        return "cannot follow"
    found = foldback.compare(model, program, (), inputs)
    kinds = dict.fromkeys(f"{one.when}: {one.what}" for one in found.differences)
    return "; ".join(kinds) or "same"


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_exporters_against_each_other(name):
    if f"<!-- {MARK} -->" not in PAGE.read_text():
        pytest.skip(f"docs/exporters.md has no table of PyTorch {VERSION}")
    if name in vision_models.MODELS:
        model, inputs = vision_models.make(name)
    else:
        pytest.importorskip("transformers")
        model, inputs = transformers_models.make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ROWS[name] = f"| {name} | " + " | ".join(cell(model, inputs, exporter) for exporter in EXPORTERS.values()) + " |"
    if ROWS.keys() == set(NAMES):
        head = ["| | " + " | ".join(EXPORTERS) + " |", "|---" * (len(EXPORTERS) + 1) + "|"]
        check_page(MARK, "\n".join([*head, *(ROWS[one] for one in NAMES)]))
    elif not os.environ.get("UPDATE"):
        assert ROWS[name] in PAGE.read_text().partition(f"<!-- {MARK} -->")[2].partition("<!-- end")[0]
