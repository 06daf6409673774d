"""The recorded cases of tests/fixtures/kernels are what PyTorch computes here: the same cases, and the same results within
their tolerance (instruction sets differ in the last places)."""

import base64
import gzip
import importlib.util
import json
import pathlib
import sys
import warnings

import pytest
import torch

KERNELS = pathlib.Path(__file__).resolve().parent / "kernels"
FAMILIES = sorted(p.stem for p in KERNELS.glob("*.py") if p.stem != "recorder")


def load(name):
    specification = importlib.util.spec_from_file_location(f"kernels_{name}", KERNELS / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def recorder_module(monkeypatch):
    monkeypatch.syspath_prepend(str(KERNELS))
    yield importlib.import_module("recorder")
    sys.modules.pop("recorder", None)


def tensor_of(output):
    raw = bytearray(base64.b64decode(output["data"]))
    dtype = getattr(torch, output["dtype"])
    return torch.frombuffer(raw, dtype=dtype).reshape(output["shape"]) if raw else torch.empty(output["shape"], dtype=dtype)


def assert_same(name, recorded, now, tolerance):
    assert [{k: v for k, v in o.items() if k != "data"} for o in recorded] == [
        {k: v for k, v in o.items() if k != "data"} for o in now
    ], name
    for one, other in zip(recorded, now, strict=True):
        if one == other or "data" not in one:
            continue
        relative, absolute = (2 * tolerance.get(k, 0.0) for k in ("relative", "absolute"))
        wide = torch.complex128 if tensor_of(one).is_complex() else torch.float64
        a, b = tensor_of(one).to(wide), tensor_of(other).to(wide)
        assert torch.allclose(a, b, rtol=relative, atol=absolute, equal_nan=True), name


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, recorder_module):
    recorder = recorder_module.Recorder(family)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(family).main(recorder)
    recorded = json.loads(gzip.decompress((recorder_module.FIXTURES / f"{family}.json.gz").read_bytes()))
    now = json.loads(recorder.text())
    assert [c["name"] for c in recorded] == [c["name"] for c in now]
    for one, other in zip(recorded, now, strict=True):
        assert one["graph"] == other["graph"], one["name"]
        assert one.get("refused") == other.get("refused"), one["name"]
        assert_same(one["name"], one.get("outputs", []), other.get("outputs", []), one.get("tolerance", {}))
