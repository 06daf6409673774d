#!/usr/bin/env python3
"""Counts the nodes that foldback's `inference` and other tools leave of ONNX models, and judges what they leave, as two tables.

    python count_nodes.py FOLDBACK FOLDER...      needs what tests/onnx/peers.txt lists

Nodes of nested graphs count, and those of a function each time that it is called; Constants do not. A folder has NAME.onnx,
and NAME.npz with inputs. A result is

    wrong          where it computes something else there without optimisation, or has other inputs or outputs
    invalid        where onnx.checker refuses it
    not portable   where it uses a domain that the model does not

Each tool works in a process of its own, one model after another; foldback's time is that of its requests, with what it
stores, and its memory that of the service. Fails where foldback leaves more nodes than the best right and portable result
of the others, is not right, or does not give the bytes of the model back.
"""
import contextlib
import io
import json
import multiprocessing
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import onnxruntime

# ---- tools -----------------------------------------------------------------------------------------------------------------

def by_onnxsim(model):
    import onnxsim
    return onnxsim.simplify(model)[0]


def by_onnxslim(model):
    import onnxslim
    return onnxslim.slim(model)


def by_onnxoptimizer(model):
    import onnxoptimizer
    return onnxoptimizer.optimize(model)


def by_onnxscript(model):
    import onnxscript.optimizer
    return onnxscript.optimizer.optimize(model)


def by_runtime(model):
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "m.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


PEERS = {"onnxsim": by_onnxsim, "OnnxSlim": by_onnxslim, "onnxoptimizer": by_onnxoptimizer, "onnxscript": by_onnxscript,
         "ONNX Runtime basic": by_runtime}


def serve_tool(name, pipe):
    """Results and seconds of one tool, for paths that come; then the peak of memory over that of the first model."""
    PEERS[name](onnx.load(pipe.recv()))
    least = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while path := pipe.recv():
        model = onnx.load(path)
        begin = time.perf_counter()
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                made = PEERS[name](model).SerializeToString()
        except Exception as error:  # a tool that fails is told by its error
            made = type(error).__name__
        pipe.send((made, time.perf_counter() - begin))
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - least)


class Peer:
    def __init__(self, name, first):
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(target=serve_tool, args=(name, other), daemon=True)
        self.process.start()
        self.pipe.send(first)

    def make(self, path):
        self.pipe.send(path)
        return self.pipe.recv()

    def end(self):
        self.pipe.send("")
        return self.pipe.recv()


class Foldback:
    def __init__(self, binary):
        self.data = tempfile.TemporaryDirectory()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen([binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--data", self.data.name],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)
        self.least, self.undone = self.memory(), 0

    def memory(self):
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(one.split()[1]) for one in lines if one.startswith("VmHWM"))

    def call(self, path, body=None, kind="application/json"):
        headers = {"Content-Type": kind} if body else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, headers=headers)
        return urllib.request.urlopen(request).read()

    def make(self, path):
        data = onnx.load(path).SerializeToString()  # with what lies beside it
        begin = time.perf_counter()
        run = json.loads(self.call("/v1/optimize?pass=inference", data, "application/onnx"))
        made = self.call(f"/v1/graphs/{run['result']}/archive")
        seconds = time.perf_counter() - begin
        back = json.loads(self.call(f"/v1/runs/{run['id']}/rollback", b"{}"))
        self.undone += self.call(f"/v1/graphs/{back['result']}/archive") == data
        return made, seconds

    def end(self):
        used = self.memory() - self.least
        self.process.terminate()
        self.process.wait()
        self.data.cleanup()
        return used


# ---- what they leave -------------------------------------------------------------------------------------------------------

def count(model):
    def within(graph):
        return sum((node.op_type != "Constant") + sum(within(a.g) for a in node.attribute if a.HasField("g"))
                   for node in graph.node)
    return within(onnx.inliner.inline_local_functions(model).graph if model.functions else model.graph)


def outputs(data, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1  # the sums of several go in any order
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def are_close(one, other):
    tolerance = 1e-2 if one.dtype == np.float16 else 1e-4
    return one.dtype == other.dtype and one.shape == other.shape and np.allclose(
        one, other, tolerance, tolerance * 0.1, equal_nan=one.dtype.kind == "f")


def domains(model):
    found = {node.domain or "ai.onnx" for node in model.graph.node} | {one.domain for one in model.functions}
    return found | {node.domain or "ai.onnx" for one in model.functions for node in one.node}


def faults(model, data, feeds):
    """Of a result: "wrong", "invalid", "not portable"."""
    if isinstance(data, str):
        return [data]
    made, found = onnx.load_from_string(data), []
    try:
        onnx.checker.check_model(made, full_check=True)
    except Exception:
        found.append("invalid")
    try:
        names = [[one.name for one in each] for graph in (model.graph, made.graph) for each in (graph.input, graph.output)]
        both = zip(outputs(model.SerializeToString(), feeds), outputs(data, feeds)) if feeds else []
        if names[:2] != names[2:] or not all(are_close(*each) for each in both):
            found.append("wrong")
    except Exception:
        found.append("wrong")
    if not domains(made) <= domains(model):
        found.append("not portable")
    return found


MARKS = {"wrong": "!", "invalid": "?", "not portable": "*"}


def main(binary, folders):
    onnxruntime.set_default_logger_severity(4)
    paths = [path for folder in folders for path in sorted(Path(folder).glob("*.onnx"))]
    tools = {"foldback": Foldback(binary)} | {name: Peer(name, paths[0]) for name in PEERS}
    seen = {name: {"nodes": 0, "seconds": 0.0} | dict.fromkeys([*MARKS, "failed"], 0) for name in tools}
    before, best_of_all, behind = 0, 0, []
    print("| model | nodes |", " | ".join(tools), "|\n|---|---:|" + "---:|" * len(tools))
    for path in paths:
        model, inputs = onnx.load(path), path.with_suffix(".npz")
        feeds = dict(np.load(inputs)) if inputs.exists() else {}
        row, rights = [], []
        for name, tool in tools.items():
            data, seconds = tool.make(path)
            found = faults(model, data, feeds)
            is_failed = isinstance(data, str)
            nodes = count(model if is_failed else onnx.load_from_string(data))
            seen[name]["seconds"] += seconds
            seen[name]["nodes"] += nodes
            for one in found:
                seen[name][one if one in MARKS else "failed"] += 1
            if name != "foldback" and not found:
                rights.append(nodes)
            row.append(data if is_failed else f"{nodes}{''.join(MARKS[one] for one in found)}")
        before += count(model)
        best = min(rights, default=count(model))
        best_of_all += best
        if not row[0].isdigit() or int(row[0]) > best:
            behind.append(f"{path.stem} ({row[0]}, {best})")
        print("|", path.stem, "|", count(model), "|", " | ".join(row), "|", flush=True)
    print(f"| all {len(paths)} | {before} |", " | ".join(str(one["nodes"]) for one in seen.values()), "|\n")
    is_undone = tools["foldback"].undone == len(paths)
    print("| | nodes | wrong | invalid | not portable | failed | seconds | MiB | undone |\n|---|" + "---:|" * 8)
    for name, tool in tools.items():
        one = seen[name]
        print(f"| {name} | {one['nodes']} | {one['wrong']} | {one['invalid']} | {one['not portable']} | {one['failed']} "
              f"| {one['seconds']:.1f} | {tool.end() / 1024:.0f} | {tools['foldback'].undone if name == 'foldback' else ''} |")
    print(f"| best of the others, right and portable | {best_of_all} | | | | | | | |\n")
    print(f"behind the best: {', '.join(behind) or 'never'}", file=sys.stderr)
    return bool(behind) or not is_undone


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
