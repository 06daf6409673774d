#!/usr/bin/env python3
"""Calls of ONNX's operators with random arguments, whose shapes foldback infers and folds: ONNX Runtime says if they are right.

    python tests/onnx/hunt_shapes.py build/foldback [--count 300] [--seed 1]

Each call is drawn from a number: an operator, an opset, sizes that are numbers or symbols, inputs that are constant or not. Its
result's Shape is folded by FoldShapes and EvaluateConstants, and must be what ONNX Runtime gives without optimisation. Where
libraries differ, the shape must stay open. Prints the seeds that fail, and the operators of which no shape was known."""

import argparse
import collections
import contextlib
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

F = np.float32
LARGE = (-2**63, 2**63 - 1, 2**31 - 1, -2**31)
DRAWN = {}


def drawn(*operators, since=13):
    """`function` draws a call of each: inputs (name → array, of constants "=name"), attributes, results."""
    def register(function):
        for operator in operators:
            DRAWN[operator] = function, since
        return function
    return register


class Draw(random.Random):
    op, opset = "", 0

    def sizes(self, rank, low=1, high=4):
        return [self.randint(low, high) for _ in range(rank)]

    def array(self, sizes):
        return np.array(self.randint(0, 9), F) + np.zeros(sizes, F)

    def may(self, probability):
        return self.random() < probability

    def maybe_constant(self, name):
        return self.choice([name, "=" + name])

    def axes(self, rank, count):
        return [axis - rank if self.may(0.4) else axis for axis in self.sample(range(rank), count)]


def whole(numbers):
    return np.array(numbers, np.int64)


def window(d, spatial, widest_pad):
    """Attributes of what slides; `widest_pad` of each kernel's size."""
    kernel = d.sizes(spatial, 1, 3)
    made, kind = {"kernel_shape": kernel}, d.random()
    if d.may(0.8):
        made["strides"] = d.sizes(spatial)
    if d.may(0.3):
        made["dilations"] = d.sizes(spatial, 1, 2)
    if kind < 0.4:
        made["pads"] = [d.randint(0, widest_pad(kernel[i % spatial])) for i in range(2 * spatial)]
    elif kind < 0.8:
        made["auto_pad"] = d.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return made


@drawn("Conv", "ConvTranspose")
def convolution(d):
    spatial, channels = d.randint(1, 2), d.randint(1, 2)
    more = window(d, spatial, lambda kernel: 2)
    kernel = more.pop("kernel_shape") if d.may(0.4) else more["kernel_shape"]
    if d.op == "ConvTranspose" and d.may(0.3):
        more["output_padding"] = [min(d.randint(0, 1), stride - 1) for stride in more.get("strides", [1] * spatial)]
    if d.op == "ConvTranspose" and d.may(0.15):
        more["output_shape"] = d.sizes(spatial, 6, 12)
    first = [3, channels] if d.op == "Conv" else [channels, 3]
    return {"x": d.array([d.randint(1, 2), channels, *d.sizes(spatial, 4, 9)]), "=w": d.array([*first, *kernel])}, more, 1


@drawn("MaxPool", "AveragePool", "LpPool")
def pool(d):
    spatial = d.randint(1, 2)
    more = window(d, spatial, lambda kernel: kernel - 1)
    if d.opset < {"AveragePool": 19, "LpPool": 18}.get(d.op, 0):
        more.pop("dilations", None)
    if d.may(0.5) and not (d.op == "LpPool" and d.opset < 18):
        more["ceil_mode"] = 1
    return {"x": d.array([1, 2, *d.sizes(spatial, 5, 10)])}, more, 2 if d.op == "MaxPool" and d.may(0.3) else 1


@drawn("Slice")
def slices(d):
    sizes = d.sizes(d.randint(1, 3), 1, 6)
    axes = d.axes(len(sizes), d.randint(1, len(sizes)))
    ends = [whole([d.choice([d.randint(-8, 8), d.choice(LARGE)]) for _ in axes]) for _ in range(2)]
    made = {"x": d.array(sizes), "=starts": ends[0], "=ends": ends[1], "=axes": whole(axes)}
    if d.may(0.7):
        made["=steps"] = whole([d.choice([1, 2, 3, -1, -2, -3, d.choice(LARGE)]) for _ in axes])
    return made, {}, 1


@drawn("Pad")
def pad(d):
    sizes = d.sizes(d.randint(1, 3), 3, 6)
    has_axes = d.opset >= 18 and d.may(0.5)
    axes = d.axes(len(sizes), d.randint(1, len(sizes))) if has_axes else sizes
    made = {"x": d.array(sizes), "=pads": whole([d.randint(-1, 2) for _ in range(2 * len(axes))])}
    return {**made, **({"": None, "=axes": whole(axes)} if has_axes else {})}, {}, 1


@drawn("Resize")
def resize(d):
    x, axes = d.array([1, 1, *d.sizes(2, 2, 7)]), d.choice([[2, 3], [3, 2], [-1, -2]])
    has_axes, more = d.opset >= 18 and d.may(0.5), {"mode": "nearest"}
    if has_axes:
        more["axes"] = axes
    if d.may(0.5):
        scales = np.array([d.choice([1, 2, 0.5, 1.5, 0.7, 2.3, 3, 1 / 3, 1.1]) for _ in range(2)], F)
        return {"x": x, "": None, "=scales": scales if has_axes else np.concatenate([np.ones(2, F), scales])}, more, 1
    if has_axes:
        more["keep_aspect_ratio_policy"] = d.choice(["stretch", "not_larger", "not_smaller"])
    asked = d.sizes(2, 2, 9)
    return {"x": x, "": None, " ": None, "=sizes": whole(asked if has_axes else [1, 1, *asked])}, more, 1


@drawn("Reshape")
def reshape(d):
    sizes = d.sizes(d.randint(1, 4))
    asked = d.choice([[int(np.prod(sizes))], [*sizes, 1], d.sample(sizes, len(sizes)), [sizes[0], -1], [1, *sizes]])
    asked = [0 if i < len(sizes) and size == sizes[i] and d.may(0.4) else size for i, size in enumerate(asked)]
    if -1 not in asked and d.may(0.5):
        asked[d.randrange(len(asked))] = -1
    return {"x": d.array(sizes), d.maybe_constant("shape"): whole(asked)}, {}, 1


@drawn("Squeeze")
def squeeze(d):
    sizes = [d.choice([1, 1, 2, 3]) for _ in range(d.randint(1, 4))]
    ones = [i - len(sizes) if d.may(0.4) else i for i, size in enumerate(sizes) if size == 1]
    axes = {"=axes": whole(d.sample(ones, d.randint(1, len(ones))))} if ones and d.may(0.7) else {}
    return {"x": d.array(sizes), **axes}, {}, 1


@drawn("Unsqueeze")
def unsqueeze(d):
    sizes, count = d.sizes(d.randint(0, 3)), d.randint(1, 3)
    return {"x": d.array(sizes), "=axes": whole(d.axes(len(sizes) + count, count))}, {}, 1


@drawn("Flatten", "Transpose", "ArgMax", "GlobalAveragePool", "NonZero", "Size", "Unique", "Dropout")
def of_one(d):
    sizes = d.sizes(d.randint(3 if d.op == "GlobalAveragePool" else 1, 4))
    more = {"Flatten": {"axis": d.randint(-len(sizes), len(sizes))},
            "Transpose": {"perm": d.sample(range(len(sizes)), len(sizes))} if d.may(0.8) else {},
            "ArgMax": {"axis": d.randrange(-len(sizes), len(sizes)), "keepdims": d.randint(0, 1)},
            "Unique": {"axis": d.randrange(-len(sizes), len(sizes))} if d.may(0.6) else {}}
    return {"x": d.array(sizes)}, more.get(d.op, {}), {"Unique": 4, "Dropout": 2}.get(d.op, 1)


@drawn("Split")
def split(d):
    sizes, count = d.sizes(d.randint(1, 3), 3, 7), d.randint(1, 3)
    axis = d.randrange(-len(sizes), len(sizes))
    if d.may(0.5):
        cuts = sorted(d.randint(0, sizes[axis]) for _ in range(count - 1))
        parts = [end - begin for begin, end in zip([0, *cuts], [*cuts, sizes[axis]])]
        return {"x": d.array(sizes), "=split": whole(parts)}, {"axis": axis}, count
    return {"x": d.array(sizes)}, {"axis": axis, **({"num_outputs": count} if d.opset >= 18 else {})}, count


@drawn("Gather", "GatherElements", "GatherND")
def gather(d):
    sizes, batch = d.sizes(3, 2, 3), d.randint(0, 1)
    index = {"Gather": d.sizes(d.randint(0, 2)), "GatherElements": [d.randint(1, size) for size in sizes],
             "GatherND": [*sizes[:batch], *d.sizes(d.randint(0, 1)), d.randint(1, 3 - batch)]}[d.op]
    more = {"batch_dims": batch} if d.op == "GatherND" else {"axis": d.randint(-3, 2)}
    return {"x": d.array(sizes), d.maybe_constant("index"): np.zeros(index, np.int64)}, more, 1


@drawn("ReduceSum", "ReduceMean")
def reduce(d):
    sizes = d.sizes(d.randint(1, 3))
    axes, more = d.axes(len(sizes), d.randint(0, len(sizes))), {"keepdims": d.randint(0, 1)}
    if d.op == "ReduceMean" and d.opset < 18:
        return {"x": d.array(sizes)}, {**more, **({"axes": axes} if axes else {})}, 1
    if d.may(0.3):
        more["noop_with_empty_axes"] = d.randint(0, 1)
    return {"x": d.array(sizes), **({"=axes": whole(axes)} if d.may(0.7) else {})}, more, 1


@drawn("TopK", "Tile", "Expand", "ConstantOfShape", "CenterCropPad", since=18)
def asked(d):
    sizes = d.sizes(3, 2, 5)
    numbers, more = {
        "TopK": ([d.randint(0, 2)], {"axis": d.randint(-3, 2)}), "Tile": (d.sizes(3, 0, 3), {}),
        "Expand": ([*d.sizes(d.randint(0, 1)), *(size if d.may(0.5) else 1 for size in sizes)], {}),
        "ConstantOfShape": (d.sizes(d.randint(0, 3), 0, 3), {}),
        "CenterCropPad": (d.sizes(2, 2, 6), {"axes": d.sample(range(3), 2)})}[d.op]
    first = {} if d.op == "ConstantOfShape" else {"x": d.array(sizes)}
    return {**first, d.maybe_constant("asked"): whole(numbers)}, more, 2 if d.op == "TopK" else 1


@drawn("Concat", "Where", "Compress")
def several(d):
    sizes, axis = d.sizes(2, 2, 4), d.randint(-2, 1)
    other = [d.randint(0, 3) if i == axis % 2 else size for i, size in enumerate(sizes)]
    first = {"Where": {"c": np.ones([1, sizes[1]], bool)}}.get(d.op, {})
    second = {"Concat": d.array(other), "Where": d.array([1]), "Compress": np.array([True, False])}[d.op]
    more = {"axis": axis} if d.op == "Concat" or (d.op == "Compress" and d.may(0.7)) else {}
    return {**first, "x": d.array(sizes), d.maybe_constant("y"): second}, more, 1


@drawn("MatMul", "Einsum", "Gemm")
def product(d):
    k, turns = d.randint(1, 3), [d.randint(0, 1), d.randint(0, 1)]
    one, other, more = {
        "MatMul": (d.choice([[k], [2, k], [3, 2, k], [1, 2, k]]), d.choice([[k], [k, 4], [3, k, 4], [2, 1, k, 4]]), {}),
        "Gemm": ([2, 3][::1 - 2 * turns[0]], [3, 4][::1 - 2 * turns[1]], {"transA": turns[0], "transB": turns[1]}),
        "Einsum": (lambda a, b, equation: (a, b, {"equation": equation}))(*d.choice([
            ([2, 3], [3, 4], "ij,jk->ik"), ([5, 2, 3], [5, 3, 4], "bij,bjk"), ([5, 2, 3], [5, 3, 4], "...ij,...jk->...ik"),
            ([5, 2, 3], [3, 4], "...ij,jk"), ([3, 3], [3, 2], "ii,ij->j"), ([2], [3], "i,j"), ([2, 3], [3], "...i,i->..."),
            ([2, 3], [3, 4], "bA,Ac")]))}[d.op]
    return {"x": d.array(one), d.maybe_constant("y"): d.array(other)}, more, 1


@drawn("DepthToSpace", "SpaceToDepth", "GridSample", "MaxUnpool", "BatchNormalization", "LayerNormalization", since=17)
def image(d):
    block, axis, sizes = d.randint(1, 2), d.randint(-3, 2), d.sizes(3)
    return {"DepthToSpace": ({"x": d.array([1, 2 * block**2, *d.sizes(2)])}, {"blocksize": block}, 1),
            "SpaceToDepth": ({"x": d.array([1, 2, 2 * block, 3 * block])}, {"blocksize": block}, 1),
            "GridSample": ({"x": d.array([1, 2, 4, 5]), "grid": d.array([1, *d.sizes(2), 2])}, {}, 1),
            "MaxUnpool": ({"x": d.array([1, 1, 2, 2]), "i": whole([[[[0, 3], [6, 9]]]])},
                          {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
            "BatchNormalization": ({"x": d.array([2, 3, 2]), **{"=" + name: d.array([3]) for name in "sbmv"}}, {}, 1),
            "LayerNormalization": ({"x": d.array(sizes), "=w": d.array(sizes[axis:])}, {"axis": axis}, 3)}[d.op]


@drawn("Range", "OneHot", "Shape", "HannWindow", "Col2Im", since=18)
def made(d):
    kind, sizes = d.choice([np.int64, np.int32, F]), d.sizes(d.randint(1, 3))
    scale = [0.3, 0.7] if kind is F else [1, 1]
    step = d.choice([0.1, 0.3, -0.1, 1, 0.7] if kind is F else [1, 2, 3, -1, -2])
    return {"Range": ({"=a": np.array(d.randint(-3, 3) * scale[0], kind), "=b": np.array(d.randint(-9, 9) * scale[1], kind),
                       "=c": np.array(step, kind)}, {}, 1),
            "OneHot": ({"x": np.zeros(sizes, np.int64), "=depth": d.choice([whole(3), whole([4])]), "=v": np.array([0, 1], F)},
                       {"axis": d.randint(-len(sizes) - 1, len(sizes))}, 1),
            "Shape": ({"x": d.array(sizes)}, {"start": d.randint(-5, 5), **({"end": d.randint(-5, 5)} if d.may(0.6) else {})},
                      1),
            "HannWindow": ({"=size": whole(d.randint(1, 6))}, {}, 1),
            "Col2Im": ({"x": d.array([1, 4, 9]), "=s": whole([4, 4]), "=b": whole([2, 2])}, {}, 1)}[d.op]


@drawn("LSTM", "GRU", "DFT", "STFT", since=20)
def in_time(d):
    ways, sizes, one = d.randint(1, 2), [1, *d.sizes(2, 3, 6)], d.randint(0, 1)
    if d.op in ("LSTM", "GRU"):
        rows = 8 if d.op == "LSTM" else 6
        weights = {"=w": d.array([ways, rows, 3]), "=r": d.array([ways, rows, 2])}
        return {"x": d.array([*d.sizes(2, 1, 3), 3]), **weights}, {
            "hidden_size": 2, "direction": "bidirectional" if ways == 2 else "reverse"}, 3 if d.op == "LSTM" else 2
    if d.op == "STFT":
        length = d.randint(2, 5)
        return {"x": d.array([1, d.randint(6, 12), 1]), "=step": whole(d.randint(1, 3)), "=w": d.array([length]),
                "=n": whole(length)}, {"onesided": one}, 1
    length = {"=n": whole(d.randint(2, 7))} if d.may(0.5) else {"": None}
    return {"x": d.array([*sizes, 1 if one else d.randint(1, 2)]), **length, "=axis": whole(d.choice([1, 2, -2, -3]))}, {
        "onesided": one}, 1


def model_of(d, arrays, more, results, asks_shapes):
    """The call alone, or the shapes of what it gives; and what is fed."""
    names = [f"o{i}" for i in range(results)]
    nodes = [helper.make_node(d.op, [name.strip(" =") for name in arrays], names, **more)]
    feeds, inputs, stored, is_symbolic = {}, [], [], d.may(0.4)
    for name, array in arrays.items():
        if array is None:
            continue
        if name.startswith("="):
            stored.append(numpy_helper.from_array(array, name[1:]))
            continue
        feeds[name] = array
        sizes = [f"n{size}" if is_symbolic and d.may(0.6) else size for size in array.shape]
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes))
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    if asks_shapes:  # an input beside it, so that its Shape is no output
        feeds["none"] = whole([0])
        inputs.append(helper.make_tensor_value_info("none", TensorProto.INT64, [1]))
        for name in names:
            nodes += [helper.make_node("Shape", [name], ["shape of " + name]),
                      helper.make_node("Concat", ["shape of " + name, "none"], ["asked of " + name], axis=0)]
        outputs = [helper.make_tensor_value_info("asked of " + name, TensorProto.INT64, [None]) for name in names]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", d.opset)], ir_version=9).SerializeToString(), feeds


def run(data, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


@contextlib.contextmanager
def service(binary):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as data:
        running = subprocess.Popen([binary, "serve", "--listen", f"127.0.0.1:{port}", "--data", data],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def call(path, body=None):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body,
                                             headers={"Content-Type": "application/onnx"} if body else {})
            for wait in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, None):
                try:
                    return urllib.request.urlopen(request).read()
                except urllib.error.HTTPError as error:
                    raise SystemExit(error.read().decode()) from error
                except OSError:
                    if wait is None:
                        raise
                    time.sleep(wait)
        try:
            yield call
        finally:
            running.terminate()
            running.wait()


def try_one(seed, call):
    """The operator, and "folded", "open", "refused" by ONNX Runtime, or in which way it is wrong."""
    d = Draw(seed)
    d.op = d.choice(sorted(DRAWN))
    function, since = DRAWN[d.op]
    d.opset = d.randint(since, 22)
    arrays, more, results = function(d)
    try:
        real = [list(np.shape(one)) for one in run(*model_of(d, arrays, more, results, False))]
    except Exception:
        return d.op, "refused"
    data, feeds = model_of(d, arrays, more, results, True)
    made = json.loads(call("/v1/optimize?pass=FoldShapes&pass=EvaluateConstants&pass=EliminateDeadCode", data))
    written = call(f"/v1/graphs/{made['result']}/archive")
    found = [one.tolist()[:-1] for one in run(written, feeds)]
    if found != real:
        return d.op, f"wrong: {found} for {real}: opset {d.opset}, {more}, {arrays}"
    return d.op, "open" if any(node.op_type == "Shape" for node in onnx.load_from_string(written).graph.node) else "folded"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    counts, wrong = collections.defaultdict(collections.Counter), 0
    with service(asked.binary) as call:
        for seed in range(asked.seed, asked.seed + asked.count):
            op, said = try_one(seed, call)
            counts[op][said.partition(":")[0]] += 1
            if said.startswith("wrong"):
                wrong += 1
                print(f"seed {seed}: {op}: {said}", flush=True)
    folded = sum(one["folded"] for one in counts.values())
    refused = sum(one["refused"] for one in counts.values())
    print(f"{asked.count} calls: {folded} shapes folded, {wrong} wrong, {refused} that ONNX Runtime refuses; never folded:",
          " ".join(op for op, one in sorted(counts.items()) if not one["folded"]) or "none")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
