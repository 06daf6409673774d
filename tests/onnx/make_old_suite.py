#!/usr/bin/env python3
"""Writes the node cases of old wheels of onnx, which are read as archives and not installed, into a folder as
make_node_suite.py does: versions of operators that most models have.

    python make_old_suite.py OUT [WHEEL…]      needs onnx, numpy, ml_dtypes, and pip where no wheel is given
"""
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from make_node_suite import DTYPES, RANDOM, safetensors
from onnx import numpy_helper

VERSIONS = ("1.5.0", "1.8.1")


def wheels(folder):
    for version in VERSIONS:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
                        "--python-version", "3.7", "--abi", "cp37m", "--platform", "manylinux2010_x86_64",
                        "--platform", "manylinux1_x86_64", "-d", folder, f"onnx=={version}"], check=True)
    return sorted(Path(folder).glob("*.whl"))


def array(data, element):
    """These wheels store bfloat16 as the uint16 of its bits."""
    found = numpy_helper.to_array(onnx.TensorProto.FromString(data))
    is_half = element == onnx.TensorProto.BFLOAT16 and found.dtype == np.uint16
    return found.view(ml_dtypes.bfloat16) if is_half else found


def arrays(archive, folder, kind, values):
    """name → array, or None: it has something else than tensors."""
    found = {}
    for at, value in enumerate(values):
        name = f"{folder}test_data_set_0/{kind}_{at}.pb"
        if value.type.WhichOneof("value") != "tensor_type" or name not in archive.namelist():
            return None
        found[value.name] = array(archive.read(name), value.type.tensor_type.elem_type)
    return found if all(a.dtype.name in DTYPES for a in found.values()) else None


def write(out, paths):
    index = {}
    for path in paths:
        archive, version = zipfile.ZipFile(path), Path(path).name.split("-")[1]
        for name in archive.namelist():
            folder, _, last = name.rpartition("model.onnx")
            if "/data/node/" not in name or last:
                continue
            data = archive.read(name)
            graph = onnx.load_model_from_string(data).graph
            inputs, outputs = arrays(archive, folder, "input", graph.input), arrays(archive, folder, "output", graph.output)
            if inputs is None or outputs is None:
                continue
            case = f"{folder.rstrip('/').rpartition('/')[2]}_{version}"
            to = Path(out) / case
            to.mkdir(parents=True)
            for part, content in (("model.onnx", data), ("inputs.safetensors", safetensors(inputs)),
                                  ("outputs.safetensors", safetensors(outputs))):
                (to / part).write_bytes(content)
            index[case] = {"files": "safetensors", "random": any(word in case for word in RANDOM)}
    (Path(out) / "cases.json").write_text(json.dumps(index, indent=1, sort_keys=True))
    print(f"{len(index)} cases with tensors only")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as kept:
        write(sys.argv[1], sys.argv[2:] or wheels(kept))
