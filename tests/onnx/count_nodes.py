#!/usr/bin/env python3
"""Counts the nodes that foldback's folds and other tools leave of ONNX models, as a table; Constants are not counted.

    python count_nodes.py FOLDBACK FOLDER...      needs what tests/onnx/peers.txt lists

A folder has NAME.onnx, and NAME.npz with inputs: then the result of foldback must compute the same without optimisation,
but for the last bits of what EvaluateConstants rounds. onnxsim runs without each pass whose name begins with "fuse", of its
list and of the sources in its wheel (some, as fuse_attention, are on no list); the others as they are. Fails where foldback
leaves more than onnxsim.
"""
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime
import onnxscript.optimizer
import onnxsim
import onnxslim
from onnxsim import onnxsim_cpp2py_export

PORT = 8951
FOLDS = ("RemoveNoOps", "FoldShapes", {"name": "EvaluateConstants", "params": {"exactness": "rounds"}}, "FoldConstants",
         "MergeViews", "RemoveNoOps", "EliminateCommonSubexpressions", "EliminateDeadCode")
FUSIONS = sorted({name for name in onnxsim_cpp2py_export._list_optimizers() if name.startswith("fuse")}
                 | {path.stem for path in (Path(onnxsim.__file__).parent / "passes").glob("fuse_*.h")})
PEERS = {"onnxsim": lambda model: onnxsim.simplify(model, skipped_optimizers=list(FUSIONS))[0], "OnnxSlim": onnxslim.slim,
         "onnxoptimizer": onnxoptimizer.optimize, "onnxscript": onnxscript.optimizer.optimize}


def count(model):
    def within(graph):
        return sum((node.op_type != "Constant") + sum(within(a.g) for a in node.attribute if a.HasField("g"))
                   for node in graph.node)
    return within(model.graph) + sum(node.op_type != "Constant" for one in model.functions for node in one.node)


@contextlib.contextmanager
def service(binary):
    with tempfile.TemporaryDirectory() as data:
        running = subprocess.Popen([binary, "serve", "--listen", f"127.0.0.1:{PORT}", "--data", data],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)
        try:
            yield
        finally:
            running.terminate()
            running.wait()


def call(path, body=None, kind="application/onnx"):
    headers = {"Content-Type": kind} if body else {}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data=body, headers=headers)
    return urllib.request.urlopen(request).read()


def fold(data):
    """Functions that are called again and again are more nodes in place: the shorter of both."""
    graph = json.loads(call("/v1/graphs", data))["id"]
    made = []
    for passes in (FOLDS, ("InlinePrograms", *FOLDS)):
        run = json.loads(call("/v1/optimize", json.dumps({"graph": graph, "passes": passes}).encode(), "application/json"))
        made.append(call(f"/v1/graphs/{run['result']}/archive"))
    return min(made, key=lambda one: count(onnx.load_from_string(one)))


def outputs(data, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1  # the sums of several go in any order
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def by_peer(tool, path):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return count(tool(onnx.load(path)))
    except Exception as error:  # a tool that fails is told by its error
        return type(error).__name__


def main(binary, folders):
    rows = []
    print("| model | nodes | foldback |", " | ".join(PEERS), "|\n|---|---:|---:|" + "---:|" * len(PEERS))
    with service(binary):
        for path in (path for folder in folders for path in sorted(Path(folder).glob("*.onnx"))):
            data, inputs = onnx.load(path).SerializeToString(), path.with_suffix(".npz")
            made = fold(data)
            onnx.checker.check_model(onnx.load_from_string(made), full_check=True)
            if inputs.exists():
                feeds = dict(np.load(inputs))
                for one, other in zip(outputs(data, feeds), outputs(made, feeds)):
                    assert one.dtype == other.dtype and np.allclose(one, other, 1e-5, 1e-6,
                                                                    equal_nan=one.dtype.kind == "f"), path
            row = [count(onnx.load_from_string(data)), count(onnx.load_from_string(made))]
            row += [by_peer(tool, path) for tool in PEERS.values()]
            rows.append(row)
            print("|", path.stem, "|", " | ".join(map(str, row)), "|", flush=True)
    sums = (sum(one for one in column if isinstance(one, int)) for column in zip(*rows))
    print(f"| all {len(rows)} |", " | ".join(map(str, sums)), "|")
    return any(isinstance(row[2], int) and row[1] > row[2] for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
