"""Inputs as NumPy writes them: .npz, and on the command line a folder of .npy. A pickle is never read."""

import io
import struct
import zipfile

import pytest
from blobs import stored as stored_blob
from test_cli import foldback  # noqa: F401 (a fixture)
from test_evaluate import RELU, evaluate, stored, x_file
from test_http import is_problem
from weights_files import tensors_of

VALUES = [-1, 2, -3, 4, 0.5, 7]


def npy(values, shape, descr="<f4", code="f", fortran=False, version=1):
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
    start = 10 if version == 1 else 12
    header += " " * (-(start + len(header) + 1) % 64) + "\n"
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + struct.pack(f"<{len(values)}{code}", *values)


def npz(method=zipfile.ZIP_STORED, **files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name + ".npy", content)
    return out.getvalue()


X = npy(VALUES, (2, 3))
SAME = {
    "stored": npz(x=X),
    "deflated": npz(zipfile.ZIP_DEFLATED, x=X),
    "version-2": npz(x=npy(VALUES, (2, 3), version=2)),
    "fortran": npz(x=npy([-1, 4, 2, 0.5, -3, 7], (2, 3), fortran=True)),
    "float64": npz(x=npy(VALUES, (2, 3), "<f8", "d")),
}


@pytest.mark.parametrize("kind", SAME)
def test_an_npz_is_read(shared, kind):
    graph = stored(shared, RELU)
    dtype, shape, part = tensors_of(evaluate(shared, graph, SAME[kind]).body)["output.0"]
    values = struct.unpack(f"<6{'d' if kind == 'float64' else 'f'}", part)
    assert shape == [2, 3] and list(values) == [max(value, 0) for value in VALUES], dtype


def test_comparisons_take_it(shared):
    inputs = stored_blob(shared, SAME["deflated"])
    found = shared.post("/v1/compare", {"a": RELU, "b": RELU | {"name": "b"}, "inputs": inputs})
    assert found.status == 200 and found.json()["verdict"] == "same"


REFUSED = [
    (npz(x=npy([], (), "|O", "f") + b"\x80\x04N."), "bad-npy"),  # a pickle
    (npz(x=npy(VALUES, (2, 3), ">f4")), "bad-npy"),
    (npz(x=npy(VALUES, (2, 4))), "bad-npy"),
    (npz(x=npy(VALUES, (2, 3))[:-1]), "bad-npy"),
    (npz(x=npy(VALUES, (2**62, 2**62))), "bad-npy"),
    (npz(x=b"\x93NUMPY\x01\x00\xff\xff{"), "bad-npy"),
    (npz(x=b"\x93NUMPY\x09\x00\x02\x00{}"), "bad-npy"),
    (npz(x=b""), "bad-npy"),
    (npz(x=X).replace(b"x.npy", b"x.txt"), "bad-npy"),
    (npz(x=X)[:-3], "bad-archive"),
    (npz(other=X), "unknown-input"),
]


@pytest.mark.parametrize("content, code", REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(shared, content, code):
    is_problem(evaluate(shared, stored(shared, RELU), content), 422, code)


def test_a_folder_of_npy(foldback):
    foldback("optimize", foldback.put("relu.json", RELU), "-p", "DeepCopy")
    foldback.path("x.safetensors").write_bytes(x_file(VALUES))
    folder = foldback.path("inputs")
    folder.mkdir()
    (folder / "x.npy").write_bytes(X)
    (folder / "notes.txt").write_text("not an array")
    foldback.path("x.npz").write_bytes(SAME["stored"])
    outputs = []
    for inputs in ("x.safetensors", "inputs", "x.npz"):
        assert foldback("evaluate", "relu.json", "--inputs", inputs, "-o", "out").status == 0
        outputs.append(foldback.path("out").read_bytes())
        assert foldback("compare", "relu.json", "relu.json", "--inputs", inputs).status == 0
    assert outputs[0] == outputs[1] == outputs[2]
    (folder / "y.npy").write_bytes(npy([], (), "|O", "f"))
    answer = foldback("compare", "relu.json", "relu.json", "--inputs", "inputs")
    assert answer.status == 2 and "pickle" in answer.err
