#!/usr/bin/env python3
"""Times foldback's folds beside other tools on ONNX models of several sizes, in one run, as a table: seconds, microseconds a
node, how many times as long as foldback, and the peak of memory.

    python bench.py FOLDBACK [--nodes 1000,5000,100000] [--limit 120]      needs what tests/onnx/peers.txt lists

Each tool gets the model in memory, in a process of its own; the time is that of its call. foldback is a service that has the
model: the time is that of the request, from parsing it to storing the result. "with files" is from one file to the other.
"""
import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDS = ("FoldShapes", "EvaluateConstants", "FoldConstants", "cleanup")
PEERS = ("onnxsim", "OnnxSlim", "onnxoptimizer", "onnxscript", "ONNX Runtime basic")


def write_model(path, count):
    """Layers of ten nodes: a weight that is turned, a Reshape by sizes that are found and joined, a Constant, an Identity."""
    random = np.random.default_rng(count)
    stored = [numpy_helper.from_array(np.array(array, np.int64), name) for name, array in (("zero", 0), ("front", [0]))]
    stored += [numpy_helper.from_array(random.standard_normal((8, 8)).astype(np.float32), f"w{i}") for i in range(16)]
    nodes, now = [], "x"
    for i in range(count // 10):
        eight = numpy_helper.from_array(np.array([8]))
        nodes += [helper.make_node("Transpose", [f"w{i % 16}"], [f"t{i}"]),
                  helper.make_node("MatMul", [now, f"t{i}"], [f"m{i}"]),
                  helper.make_node("Shape", [f"m{i}"], [f"s{i}"]), helper.make_node("Gather", [f"s{i}", "zero"], [f"g{i}"]),
                  helper.make_node("Unsqueeze", [f"g{i}", "front"], [f"u{i}"]),
                  helper.make_node("Constant", [], [f"c{i}"], value=eight),
                  helper.make_node("Concat", [f"u{i}", f"c{i}"], [f"k{i}"], axis=0),
                  helper.make_node("Reshape", [f"m{i}", f"k{i}"], [f"r{i}"]),
                  helper.make_node("Identity", [f"r{i}"], [f"i{i}"]),
                  helper.make_node("Relu", [f"i{i}"], [f"y{i}"])]
        now = f"y{i}"
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 8])],
                              [helper.make_tensor_value_info(now, TensorProto.FLOAT, ["b", 8])], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


# ---- a tool, in a process of its own ---------------------------------------------------------------------------------------

def run_peer(name, path):
    """Prints as JSON: the seconds of the call, those with reading and writing, and the peak of memory in MB."""
    if name == "onnxsim":
        import onnxsim
        tool = lambda model: onnxsim.simplify(model)[0]
    elif name == "OnnxSlim":
        import onnxslim
        tool = onnxslim.slim
    elif name == "onnxoptimizer":
        import onnxoptimizer
        tool = onnxoptimizer.optimize
    elif name == "onnxscript":
        import onnxscript.optimizer
        tool = onnxscript.optimizer.optimize
    else:
        import onnxruntime

        def tool(model):
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.optimized_model_filepath, options.intra_op_num_threads = str(path) + ".made", 1
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return None
    begun = time.perf_counter()
    model = onnx.load(path)
    loaded = time.perf_counter()
    made = tool(model)
    done = time.perf_counter()
    if made is not None:
        onnx.save(made, str(path) + ".made")
    left = len(onnx.load(str(path) + ".made").graph.node)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("\n" + json.dumps([done - loaded, time.perf_counter() - begun, peak, left]))


def measure_peer(name, path, limit):
    """As run_peer prints it; None where it failed or took too long."""
    try:
        said = subprocess.run([sys.executable, __file__, "--peer", name, str(path)], capture_output=True, text=True,
                              timeout=limit)
        return json.loads(said.stdout.splitlines()[-1]) if said.returncode == 0 else None
    except subprocess.TimeoutExpired:
        return None


def measure_foldback(binary, path, port=8952):
    def call(where, body=None, kind="application/onnx"):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{where}", data=body,
                                         headers={"Content-Type": kind} if body else {})
        return urllib.request.urlopen(request).read()
    with tempfile.TemporaryDirectory() as data:
        running = subprocess.Popen([binary, "serve", "--listen", f"127.0.0.1:{port}", "--data", data],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            begun = time.perf_counter()
            graph = json.loads(call("/v1/graphs", path.read_bytes()))["id"]
            stored = time.perf_counter()
            run = json.loads(call("/v1/optimize", json.dumps({"graph": graph, "passes": FOLDS}).encode(), "application/json"))
            done = time.perf_counter()
            left = len(onnx.load_from_string(call(f"/v1/graphs/{run['result']}/archive")).graph.node)
            status = Path(f"/proc/{running.pid}/status").read_text()
            peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
            return [done - stored, time.perf_counter() - begun, peak, left]
        finally:
            running.terminate()
            running.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", nargs="?")
    parser.add_argument("--nodes", default="1000,5000,100000")
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--peer", nargs=2)
    asked = parser.parse_args()
    if asked.peer:
        run_peer(asked.peer[0], Path(asked.peer[1]))
        return
    print("| nodes | tool | seconds | us a node | times foldback | with files | peak, MB | nodes left |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for count in map(int, asked.nodes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            write_model(path, count)
            ours = measure_foldback(asked.binary, path)
            for name in ("foldback", *PEERS):
                found = ours if name == "foldback" else measure_peer(name, path, asked.limit)
                if not found:
                    print(f"| {count} | {name} | fails, or more than {asked.limit:g} s | | | | | |", flush=True)
                    continue
                seconds, whole, peak, left = found
                print(f"| {count} | {name} | {seconds:.3f} | {seconds / count * 1e6:.1f} | {seconds / ours[0]:.1f} | "
                      f"{whole:.3f} "
                      f"| {peak:.0f} | {left} |", flush=True)


if __name__ == "__main__":
    main()
