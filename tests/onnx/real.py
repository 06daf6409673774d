#!/usr/bin/env python3
"""Models that others ship (real_models.py), in and out, optimised, raised, and undone, as a table.

    python tests/onnx/real.py build/foldback FOLDER

ONNX Runtime without optimisation computes each model and what foldback makes of it. Fails where an output differs by more than
1e-5 of itself and 1, where the model that comes out is not the one that went in, or an undo does not give its very bytes. A
column has the fewest nodes that another tool leaves of it, right, valid and portable."""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from count_nodes import PEERS, Peer, count, faults

TRIED = {"inference": ["inference"], "opset 23": ["RaiseOpset"], "both": ["RaiseOpset", "inference"]}
CLOSE = 1e-5


def compute(path, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)


def difference(results, wanted):
    """The largest, of 1 and the number itself."""
    largest = 0.0
    for one, other in zip(results, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype, (one.shape, other.shape)
        a, b = one.astype(np.float64), other.astype(np.float64)
        assert (np.isfinite(a) == np.isfinite(b)).all()
        if a.size:
            largest = max(largest, float(np.nanmax(np.abs(a - b) / (1 + np.abs(b)))))
    return largest


class Tool:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)

    def run(self, *words):
        done = subprocess.run([self.binary, *map(str, words), "--data", self.folder / "data"], capture_output=True, text=True)
        assert done.returncode == 0, f"{words[0]}: {done.stdout}{done.stderr}"
        return done.stdout

    def try_one(self, path, inputs, wanted, passes):
        """Nodes that are left, and the largest difference; None where a call refuses to rise."""
        made, back = self.folder / "made.onnx", self.folder / "back.onnx"
        for one in (made, back):
            one.unlink(missing_ok=True)
        words = [word for one in passes for word in ("--pass", one)]
        run = json.loads(self.run("optimize", path, *words, "-o", made, "--json"))
        refused = [row for one in run["passes"] if one["name"] == "RaiseOpset" for row in one["refused"]]
        if run["result"] == run["source"]:
            assert made.read_bytes() == path.read_bytes()
        else:
            self.run("rollback", run["id"], "-o", back)
            assert back.read_bytes() == path.read_bytes(), "it is not undone to the same bytes"
        found = difference(compute(made, inputs), wanted)
        assert found <= CLOSE, f"{passes}: an output differs by {found}"
        return count(onnx.load(made)), found, refused


def best_of(peers, path, model, inputs):
    """The fewest nodes that one of them leaves, and its name."""
    found = [(count(model), "")]
    for name, peer in peers.items():
        data, _ = peer.make(path)
        if not isinstance(data, str) and not faults(model, data, inputs):
            found.append((count(onnx.load_from_string(data)), name))
    return min(found, key=lambda one: one[0])


def main():
    onnxruntime.set_default_logger_severity(4)
    failed = 0
    paths = sorted(pathlib.Path(sys.argv[2]).glob("*.onnx"))
    peers = {name: Peer(name, paths[0]) for name in PEERS}
    print(f"| model | opset | nodes | best of the others | {' | '.join(TRIED)} | largest difference |\n"
          f"|---|---:|---:|---:|{'---:|' * len(TRIED)}---:|")
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(sys.argv[1], folder)
        for path in paths:
            model, inputs = onnx.load(path), dict(np.load(path.with_suffix(".npz")))
            opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
            try:
                wanted = compute(path, inputs)
                found = [tool.try_one(path, inputs, wanted, passes) for passes in TRIED.values()]
            except Exception as error:  # of ONNX Runtime as well
                failed += 1
                print(f"| {path.stem} | {opset} | WRONG: {str(error)[:300]} |", flush=True)
                continue
            cells = " | ".join(f"{nodes}{' (refused)' if refused else ''}" for nodes, _, refused in found)
            best, who = best_of(peers, path, model, inputs)
            best = f"{best} ({who})" if who else best
            print(f"| {path.stem} | {opset} | {count(model)} | {best} | {cells} | {max(row[1] for row in found):.1e} |",
                  flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
