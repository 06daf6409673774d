"""Dtypes and shapes that are found for the values of an ONNX model. The oracle is what ONNX Runtime gives, and at least what
onnx's own inference says is known here (tests/onnx/make_types.py recorded both)."""

import collections
import json
import lzma

from conftest import ROOT
from test_onnx import send
from test_onnx_evaluate import stored

FIXTURES = ROOT / "tests" / "fixtures" / "onnx"
# What a Loop gives that makes no turn, and what a tensor in an optional is, onnx believes the file; of Scan 8 nothing is said.
NOT_FOUND = {("node/loop11", "res_scan"), ("node/optional_get_element_optional_tensor", "output"),
             ("node/optional_get_element_tensor", "output")}


def values_of(service, model):
    """value → (dtype or None, shape or None) of the main graph; of a model that is not read nothing."""
    made = send(service, model)
    if made.status == 422:
        assert made.json()["code"] in ("unsupported-onnx", "missing-files")
        return {}
    found = {}
    for node in service.get(f"/v1/graphs/{made.json()['id']}").json()["nodes"]:
        value = node.get("meta", {}).get("onnx", {}).get("value")
        if node["op"] == "call_function" and value is not None:
            found[value] = node["meta"].get("dtype"), node["meta"].get("shape")
    return found


def is_right(shape, real, sizes):
    """Equal symbols are equal sizes."""
    return len(shape) == len(real) and all(
        size == got if isinstance(size, int) else sizes.setdefault(size, got) == got for size, got in zip(shape, real))


def is_less(shape, said):
    return shape is None or (len(shape) == len(said)
                             and any(known is not None and not isinstance(size, int) for known, size in zip(said, shape)))


def test_types_of_cases(shared):
    cases, parts = json.loads(lzma.decompress((FIXTURES / "types.json.xz").read_bytes())), stored()
    wrong, missing, counts = [], set(), collections.Counter()
    for name, case in cases.items():
        model = parts[name].get("model.onnx") or (FIXTURES / f"{name.rpartition('/')[2]}.onnx").read_bytes()
        found, sizes = values_of(shared, model), {}
        for value, (dtype, real) in case["real"].items():
            ours, shape = found.get(value, (None, None))
            if (ours and ours != dtype) or (shape is not None and not is_right(shape, real, sizes)):
                wrong.append((name, value, ours, shape, dtype, real))
            counts["values"] += 1
            counts["ours"] += shape is not None and all(isinstance(size, int) for size in shape)
        for value, (dtype, said) in case["onnx"].items():
            if value not in found:
                continue
            ours, shape = found[value]
            counts["onnx"] += said is not None and None not in said
            if (said is not None and is_less(shape, said)) or (dtype in ("float32", "int64", "bool") and not ours):
                missing.add((name, value))
    print(dict(counts))
    assert not wrong
    assert missing <= NOT_FOUND, missing - NOT_FOUND
    assert counts["ours"] > counts["onnx"] > 600
