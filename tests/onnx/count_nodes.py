#!/usr/bin/env python3
"""Counts the nodes that foldback's folds and other tools leave of ONNX models, as a table; Constants are not counted.

    python count_nodes.py FOLDBACK FOLDER...      needs onnx, onnxruntime, onnxsim, onnxslim, onnxoptimizer and onnxscript

A folder has NAME.onnx, and NAME.npz with inputs: then the result of foldback must compute the same bits without optimisation.
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

PORT = 8951
PASSES = ("RemoveNoOps", "FoldShapes", "EvaluateConstants", "FoldConstants", "MergeViews", "RemoveNoOps",
          "EliminateCommonSubexpressions", "EliminateDeadCode")
FUSIONS = [name for name in onnxoptimizer.get_fuse_and_elimination_passes() if name.startswith("fuse")]
PEERS = {"onnxsim": lambda model: onnxsim.simplify(model, skipped_optimizers=FUSIONS)[0], "OnnxSlim": onnxslim.slim,
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


def call(path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data=body,
                                     headers={"Content-Type": "application/onnx"} if body else {})
    return urllib.request.urlopen(request).read()


def fold(data):
    run = json.loads(call("/v1/optimize?" + "&".join(f"pass={name}" for name in PASSES), data))
    return call(f"/v1/graphs/{run['result']}/archive")


def outputs(data, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1  # the sums of several go in any order
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def by_peer(tool, path):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return str(count(tool(onnx.load(path))))
    except Exception as error:  # a tool that fails is told by its error
        return type(error).__name__


def main(binary, folders):
    print("| model | nodes | foldback |", " | ".join(PEERS), "|\n|---|---:|---:|" + "---:|" * len(PEERS))
    with service(binary):
        for path in (path for folder in folders for path in sorted(Path(folder).glob("*.onnx"))):
            data, inputs = path.read_bytes(), path.with_suffix(".npz")
            made = fold(data)
            onnx.checker.check_model(onnx.load_from_string(made), full_check=True)
            if inputs.exists():
                feeds = dict(np.load(inputs))
                for one, other in zip(outputs(data, feeds), outputs(made, feeds)):
                    assert one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), path
            ours = count(onnx.load_from_string(made))
            print(f"| {path.stem} | {count(onnx.load_from_string(data))} | {ours} |",
                  " | ".join(by_peer(tool, path) for tool in PEERS.values()), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
