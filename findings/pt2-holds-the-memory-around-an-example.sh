#!/bin/sh
# torch.export.save writes the whole tensor of which an example or a weight is a slice, examples included.
#
# Guess:    an archive has the weights and the graph, and of the examples their shapes at most: a model of 10 numbers that was
#           exported with the first rows of a data set is a few KB.
# Seen:     the archive has the numbers of the examples (data/sample_inputs), and of a slice all the memory around it: here 4 MB
#           of data that the model never saw. A weight that is a slice is written with all of its storage, too. The exported
#           program does not show either: shapes and state_dict are those of the slices.
# Versions: torch 2.13.0 (CPU)
# Changed:  docs/exporters.md, and docs/archives.md, "What comes back": foldback keeps data/sample_inputs as it is.
#           clients/python/tests/test_exporters.py shows that a document has none of it.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import io
import zipfile

import torch
from torch import nn

data = torch.zeros(1_000_000)
for what, weight, example in (
    ("none", torch.zeros(2, 4), torch.zeros(4)),
    ("example", torch.zeros(2, 4), data[:4]),
    ("weight", torch.zeros(250_000, 4)[:2], torch.zeros(4)),
):
    model = nn.Linear(4, 2)
    model.weight = nn.Parameter(weight)
    archive = io.BytesIO()
    torch.export.save(torch.export.export(model, (example,)), archive)
    sizes = {entry.filename: entry.file_size for entry in zipfile.ZipFile(archive).infolist()}
    print(f"slice: {what}; large:", *(name for name, size in sizes.items() if size >= 4_000_000))
    archive.seek(0)
    (loaded,), _ = torch.export.load(archive).example_inputs
print("the last example, loaded:", loaded)
END
expect <<'END'
slice: none; large:
slice: example; large: archive/data/sample_inputs/model.pt
slice: weight; large: archive/data/weights/weight_0
the last example, loaded: tensor([0., 0., 0., 0.])
END
