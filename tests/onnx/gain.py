#!/usr/bin/env python3
"""Times ONNX Runtime, with all its optimisations, and OpenVINO on what foldback's `inference` and other tools make of ONNX
models, in one thread, as a table.

    python gain.py FOLDBACK FOLDER...      needs what tests/onnx/peers.txt lists

A gain is the time of the model as it was by that of a tool's result, each the least of GAIN_ROUNDS (25) rounds; in each round
every result runs in turn for a few milliseconds, so that what else the machine does meets all alike. A folder has NAME.onnx,
and NAME.npz with inputs. Wrong and invalid results, and those that a runtime does not take, are left out, and counted. The row
of a runtime has the geometric mean of its models, and the worst of them.
"""
import contextlib
import io
import os
import statistics
import sys
import time
from pathlib import Path

import count_nodes
import numpy as np
import onnx
import onnxruntime

ROUNDS = int(os.environ.get("GAIN_ROUNDS", 25))
PART = 0.004  # seconds of one result in a round


def in_onnxruntime(data):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def in_openvino(data):
    import openvino
    core = openvino.Core()
    model = core.read_model(model=data)
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    return lambda feeds: request.infer(feeds)


RUNTIMES = {"ONNX Runtime": in_onnxruntime, "OpenVINO": in_openvino}


def seconds_of(run, feeds, times):
    begin = time.perf_counter()
    for _ in range(times):
        run(feeds)
    return (time.perf_counter() - begin) / times


def gains(made, open_in, feeds):
    """By tool; None: the runtime does not take it."""
    runs, times = {}, {}
    for name, data in made.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                runs[name] = open_in(data)
                seconds_of(runs[name], feeds, 3)
        except Exception:
            continue
    if "" not in runs:
        return {}
    count = max(1, round(PART / seconds_of(runs[""], feeds, 5)))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times.setdefault(name, []).append(seconds_of(run, feeds, count))
    least = {name: min(each) for name, each in times.items()}
    return {name: least[""] / least[name] if name in least else None for name in made if name}


def main(binary, folders):
    onnxruntime.set_default_logger_severity(4)
    paths = [path for folder in folders for path in sorted(Path(folder).glob("*.onnx")) if path.with_suffix(".npz").exists()]
    tools = {"foldback": count_nodes.Foldback(binary)}
    tools |= {name: count_nodes.Peer(name, paths[0]) for name in count_nodes.PEERS}
    found = {runtime: {name: {} for name in tools} for runtime in RUNTIMES}
    left_out = dict.fromkeys(tools, 0)
    for path in paths:
        model, feeds = onnx.load(path), dict(np.load(path.with_suffix(".npz")))
        made = {"": model.SerializeToString()}
        for name, tool in tools.items():
            data, _ = tool.make(path)
            is_right = not set(count_nodes.faults(model, data, feeds)) - {"not portable"}
            left_out[name] += not is_right
            if is_right:
                made[name] = data
        for runtime, open_in in RUNTIMES.items():
            for name, gain in gains(made, open_in, feeds).items():
                if gain is None:
                    left_out[name] += 1
                else:
                    found[runtime][name][path.stem] = gain
        print(path.stem, *(f"{runtime} " + " ".join(f"{name}={found[runtime][name].get(path.stem, 0):.2f}" for name in tools)
                           for runtime in RUNTIMES), sep="  ", file=sys.stderr, flush=True)
    print(f"| {len(paths)} models |", " | ".join(tools), "|\n|---|" + "---:|" * len(tools))
    for runtime, by_tool in found.items():
        print(f"| {runtime}, geometric mean |", " | ".join(f"{statistics.geometric_mean(one.values()):.3f}" if one else ""
                                                           for one in by_tool.values()), "|")
        print(f"| {runtime}, the worst |", " | ".join(f"{min(one.values()):.2f} ({min(one, key=one.get)})" if one else ""
                                                      for one in by_tool.values()), "|")
    print("| left out |", " | ".join(map(str, left_out.values())), "|")
    for tool in tools.values():
        tool.end()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
