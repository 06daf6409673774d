#!/usr/bin/env python3
"""Writes tests/fixtures/onnx/cases.tar.xz: of ONNX's own node cases the two smallest of each operator, and one that is made of
simpler ones; the cases of versions.py; the traps of traps.py; the outputs of the models beside it. ONNX Runtime gave the
outputs of versions and models.

    python make_cases.py SUITE MODELS      SUITE: what make_node_suite.py wrote; MODELS: NAME/model.onnx, inputs.npz,
                                           outputs.npz
"""
import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import onnx
import traps
import versions
from make_node_suite import safetensors

OUT = Path(__file__).resolve().parents[1] / "fixtures" / "onnx" / "cases.tar.xz"
PARTS = ("model.onnx", "inputs.safetensors", "outputs.safetensors")


def in_order(values, arrays):
    return safetensors({value.name: arrays[value.name] for value in values if value.name in arrays})


def picked(suite):
    smallest = {}
    for name, case in sorted(json.loads((suite / "cases.json").read_text()).items()):
        if case["files"] != "safetensors" or case["random"] or case["domain"]:
            continue
        size = sum((suite / name / part).stat().st_size for part in PARTS)
        if size < 12000:
            smallest.setdefault((case["expanded"], case["operator"]), []).append((size, name))
    for (expanded, _), cases in smallest.items():
        yield from (name for _, name in sorted(cases)[: 1 if expanded else 2])


def node_cases(suite):
    for name in sorted(picked(suite)):
        yield f"node/{name.removeprefix('test_')}", {part: (suite / name / part).read_bytes() for part in PARTS}


def version_cases():
    for name, made, feeds, right in versions.recorded():
        yield f"version/{name}", {"model.onnx": made.SerializeToString(),
                                  "inputs.safetensors": in_order(made.graph.input, feeds),
                                  "outputs.safetensors": in_order(made.graph.output, right)}


def trap_cases():
    for name, function in sorted(traps.TRAPS.items()):
        made, feeds, *want = function()
        right = traps.answers(made, feeds, *want)
        yield f"trap/{name}", {"model.onnx": made.SerializeToString(), "inputs.safetensors": in_order(made.graph.input, feeds),
                               "outputs.safetensors": in_order(made.graph.output, right)}


def model_cases(models):
    for folder in sorted(models.iterdir()):
        graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
        yield f"model/{folder.name}", {
            "inputs.safetensors": in_order(graph.input, dict(np.load(folder / "inputs.npz"))),
            "outputs.safetensors": in_order(graph.output, dict(np.load(folder / "outputs.npz")))}


def main(suite, models):
    with tarfile.open(OUT, "w:xz", preset=9) as archive:
        for name, parts in (*node_cases(Path(suite)), *version_cases(), *trap_cases(), *model_cases(Path(models))):
            for part, data in parts.items():
                entry = tarfile.TarInfo(f"{name}/{part}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
