#!/usr/bin/env python3
"""Writes tests/fixtures/onnx/types.json.xz: of each case beside it the dtypes and shapes that ONNX Runtime gives all values of
the main graph without optimisation, and what onnx's own inference says of them from the model without value_info.

    python make_types.py            needs onnx and onnxruntime
"""
import collections
import json
import lzma
import tarfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from make_node_suite import read_safetensors
from onnx import shape_inference

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "onnx"
OUT = FIXTURES / "types.json.xz"


def real_types(model, feeds):
    """name → [dtype, shape] of all values, by ONNX Runtime."""
    asked, given = onnx.ModelProto(), {value.name for value in model.graph.output}
    asked.CopyFrom(model)
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for node in model.graph.node for name in node.output
                              if name and name not in given)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(asked.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return {name: [value.dtype.name, list(value.shape)] for name, value in zip(names, session.run(None, feeds))
            if isinstance(value, np.ndarray) and value.dtype != object}


def said_types(model):
    """name → [dtype, sizes] by onnx; None: it says nothing."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.type.tensor_type.ClearField("shape")
    inferred = shape_inference.infer_shapes(bare, data_prop=True).graph
    found = {}
    for value in [*inferred.value_info, *inferred.output]:
        kind = value.type.tensor_type
        if value.type.HasField("tensor_type"):
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name if kind.elem_type else None
            sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
            found[value.name] = [dtype, sizes if kind.HasField("shape") else None]
    return found


def main():
    parts, found = collections.defaultdict(dict), {}
    with tarfile.open(FIXTURES / "cases.tar.xz") as archive:
        for entry in archive:
            name, _, part = entry.name.rpartition("/")
            parts[name][part] = archive.extractfile(entry).read()
    for name, case in sorted(parts.items()):
        data = case["model.onnx"] if "model.onnx" in case else (FIXTURES / f"{Path(name).name}.onnx").read_bytes()
        model = onnx.load_from_string(data)
        try:
            real = real_types(model, read_safetensors(case["inputs.safetensors"]))
        except Exception:  # it does not run all of them, and cannot find files of external data
            continue
        found[name] = {"real": real, "onnx": said_types(model)}
    OUT.write_bytes(lzma.compress(json.dumps(found, separators=(",", ":")).encode(), preset=9))
    print(len(found), "of", len(parts), "cases")


if __name__ == "__main__":
    main()
