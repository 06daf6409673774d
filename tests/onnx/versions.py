#!/usr/bin/env python3
"""Cases of versions of operators that neither onnx's own cases nor those of its old wheels reach: small models, one operator
each, whose outputs ONNX Runtime gave at the opset that has the version in force.

    python versions.py [OPERATOR]      compares ONNX Runtime with what onnx.reference gives, and lists what differs
"""
import sys
import warnings

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

F, WHOLE = np.float32, np.int64
CASES = []  # (operator, version, function that gives (node or nodes, inputs, constants))


def random(*shape, seed=3):
    return np.random.default_rng(seed + sum(shape) + 31 * len(shape)).standard_normal(shape).astype(F)


def cases(operator, *versions):
    def add(function):
        for version in versions:
            CASES.append((operator, version, function))
        return function
    return add


def node(operator, inputs, outputs="y", **attributes):
    return helper.make_node(operator, inputs.split(","), outputs.split(","), **attributes)


def simple(operator, versions, feeds, inputs=None, constants=None, outputs="y", **attributes):
    """The same node of each version; an attribute may be a function of the version, and None of it is left out."""
    @cases(operator, *versions)
    def make(version):
        given = {name: value(version) if callable(value) else value for name, value in attributes.items()}
        made = node(operator, inputs or ",".join([*feeds, *(constants or {})]), outputs,
                    **{name: value for name, value in given.items() if value is not None})
        return made, feeds, constants or {}


X, IMAGE = random(2, 3, 4), random(1, 2, 5, 6)
WHOLES = np.array([[3, -1, 4], [1, 5, -9]], np.int32)
BOOLS = np.array([[True, False, True], [False, False, True]])

simple("AveragePool", (11, 19), {"x": IMAGE}, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], ceil_mode=1,
       count_include_pad=1, dilations=lambda v: [1, 2] if v >= 19 else None)
simple("BatchNormalization", (7, 14), {"x": IMAGE}, "x,scale,bias,mean,variance",
       {"scale": random(2), "bias": random(2, seed=4), "mean": random(2, seed=5), "variance": np.array([0.5, 2], F)},
       epsilon=1e-3)
simple("Cast", (6,), {"x": np.array([-1.5, 0, 2.7, 100], F)}, to=T.INT32)
simple("Cast", (19,), {"x": np.array([-1.5, 0, 2.7, 1e30], F)}, to=T.FLOAT16)
simple("CastLike", (21,), {"x": np.array([-1.5, 0, 2.7], F), "like": np.array([1], np.int8)})
simple("ConstantOfShape", (21,), {"shape": np.array([2, 3], WHOLE)},
       value=numpy_helper.from_array(np.array([7], np.uint16), "value"))
simple("Conv", (11,), {"x": IMAGE}, constants={"w": random(4, 1, 3, 2), "b": random(4)}, group=2, pads=[1, 0, 2, 1],
       strides=[2, 1], dilations=[1, 2])
simple("ConvTranspose", (11,), {"x": random(1, 4, 3, 3)}, constants={"w": random(4, 1, 3, 2), "b": random(2)}, group=2,
       strides=[2, 3], output_padding=[1, 2], pads=[1, 0, 0, 1])
simple("DepthToSpace", (13,), {"x": random(1, 8, 2, 3)}, blocksize=2, mode="CRD")
simple("SpaceToDepth", (1, 13), {"x": random(1, 2, 4, 6)}, blocksize=2)
simple("DequantizeLinear", (19, 21, 23, 24, 25), {"x": np.array([[0, 3, 128], [255, 7, 9]], np.uint8)},
       constants={"scale": np.array([0.5, 0.1], F), "zero": np.array([128, 3], np.uint8)}, axis=0)
simple("DequantizeLinear", (21, 23, 24, 25), {"x": np.array([[0, 3, 128, 9], [255, 7, 9, 1]], np.uint16)},
       constants={"scale": random(2, 2), "zero": np.array([[128, 3], [1, 2]], np.uint16)}, axis=1, block_size=2)
simple("QuantizeLinear", (19, 21, 23, 24, 25), {"x": np.array([[-3, 0.26, 0.25], [100, 1.5, 2.5]], F)},
       constants={"scale": np.array([0.1, 1], F), "zero": np.array([3, -3], np.int8)}, axis=0)
simple("QuantizeLinear", (21, 23, 24, 25), {"x": np.array([[-3, 0.26, 0.25, 7], [100, 1.5, 2.5, 70000]], F)},
       constants={"scale": np.array([[0.5, 1], [1, 0.25]], F), "zero": np.array([[128, 3], [1, 2]], np.uint16)}, axis=1,
       block_size=2)
simple("Dropout", (13,), {"x": X}, outputs="y,mask")
simple("Flatten", (1, 21, 23, 24), {"x": X}, axis=2)
simple("Gemm", (7,), {"a": random(4, 3)}, constants={"b": random(5, 4), "c": random(3, 1)}, transA=1, transB=1, alpha=0.5,
       beta=2.0)
simple("Greater", (7,), {"a": random(2, 3), "b": random(3)})
simple("Less", (7,), {"a": random(2, 3), "b": random(3)})
GRID = np.array([[[[-1, -1], [0.3, 0.1], [1.2, -1.4]], [[0.95, 0.6], [-0.2, 0.9], [2.5, 0]]]], F)
for mode, filling, aligns in (("linear", "zeros", 0), ("nearest", "border", 1), ("cubic", "reflection", 0)):
    simple("GridSample", (16, 20), {"x": random(1, 2, 4, 5), "grid": GRID}, padding_mode=filling, align_corners=aligns,
           mode=lambda v, mode=mode: {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode) if v < 20 else mode)
simple("HardSwish", (14,), {"x": X * 3})
simple("Hardmax", (11,), {"x": X}, axis=1)
simple("Softmax", (11,), {"x": X}, axis=1)
simple("LogSoftmax", (11,), {"x": X}, axis=1)
simple("Identity", (14, 16, 21), {"x": X})
simple("IsNaN", (13,), {"x": np.array([1, np.nan, np.inf], F)})
simple("LpNormalization", (1,), {"x": X}, axis=1, p=1)
simple("LpPool", (2, 11, 18), {"x": IMAGE}, kernel_shape=[2, 3], strides=[2, 1], pads=[1, 0, 0, 1], p=3)
simple("MatMul", (1,), {"a": random(2, 3, 4), "b": random(4, 5)})
simple("MaxPool", (1, 11), {"x": IMAGE}, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1],
       ceil_mode=lambda v: 1 if v >= 10 else None)
for operator in ("Max", "Min", "Mean", "Sum"):
    simple(operator, (6,), {"a": random(2, 3), "b": random(2, 3, seed=9), "c": random(2, 3, seed=11)})
simple("Mish", (18,), {"x": X * 4})
simple("PRelu", (7,), {"x": X}, constants={"slope": random(3, 1)})
for mode in ("constant", "reflect", "edge", "wrap"):
    simple("Pad", (13, 19, 21, 23) if mode != "wrap" else (19, 21, 23), {"x": random(3, 4)},
           "x,pads" + ",v" * (mode == "constant"),
           {"pads": np.array([1, 0, 2, 3], WHOLE), **({"v": F(1.5)} if mode == "constant" else {})}, mode=mode)
for operator, versions in (("ReduceL1", (13,)), ("ReduceL2", (13,)), ("ReduceLogSum", (13,)), ("ReduceLogSumExp", (13,)),
                           ("ReduceProd", (13,)), ("ReduceSumSquare", (13,)), ("ReduceSum", (11,)), ("ReduceMin", (12, 13))):
    simple(operator, versions, {"x": np.abs(X) + 0.1}, axes=[-1, 0], keepdims=0)
for operator in ("ReduceLogSum", "ReduceLogSumExp"):
    simple(operator, (18,), {"x": np.abs(X) + 0.1}, constants={"axes": np.array([-1, 0], WHOLE)})
simple("ReduceMax", (12,), {"x": np.array([[3, -4, 5], [9, 2, -128]], np.int8)}, axes=[1])
simple("Relu", (13,), {"x": X})
for mode, coordinates in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("cubic", "align_corners")):
    simple("Resize", (11, 18), {"x": random(1, 1, 3, 4)}, "x,roi,scales",
           {"roi": np.array([], F), "scales": np.array([1, 1, 2, 3], F)}, mode=mode, coordinate_transformation_mode=coordinates)
for operator in ("RNN", "GRU", "LSTM"):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[operator]
    simple(operator, (14,), {"x": random(3, 2, 4)}, constants={
        "w": random(2, gates * 5, 4), "r": random(2, gates * 5, 5), "b": random(2, gates * 10)},
        outputs="y,h,c" if operator == "LSTM" else "y,h", hidden_size=5, direction="bidirectional")
INDICES, UPDATES = np.array([[1, 0], [2, 2]], WHOLE), np.array([[10, 20], [30, 40]], F)
simple("ScatterElements", (13,), {"x": random(3, 2)}, constants={"i": np.array([[1, 0], [2, 1]], WHOLE), "u": UPDATES})
simple("ScatterElements", (16,), {"x": random(3, 2)}, constants={"i": INDICES, "u": UPDATES}, reduction="add")
simple("ScatterND", (13,), {"x": random(3, 2)}, constants={"i": np.array([[2], [0]], WHOLE), "u": UPDATES})
simple("ScatterND", (16,), {"x": random(3, 2)}, constants={"i": np.array([[2], [2]], WHOLE), "u": UPDATES}, reduction="mul")
simple("Size", (21, 24), {"x": X})
simple("Slice", (1,), {"x": X}, starts=[1, -3], ends=[10, -1], axes=[1, 2])
simple("Split", (11,), {"x": X}, outputs="a,b", axis=-1, split=[1, 3])
simple("Squeeze", (11,), {"x": random(1, 3, 1, 2)}, axes=[-2, 0])
simple("TopK", (1,), {"x": X}, outputs="v,i", k=2, axis=-1)
simple("Transpose", (21,), {"x": X}, perm=[2, 0, 1])
LABELS = np.array([[0, 2], [1, 1]], WHOLE)
simple("NegativeLogLikelihoodLoss", (12,), {"x": random(2, 3, 2)}, constants={"t": LABELS, "w": np.array([1, 2, 0.5], F)},
       reduction="mean", ignore_index=1)
simple("SoftmaxCrossEntropyLoss", (12,), {"x": random(2, 3, 2)}, constants={"t": LABELS}, outputs="y,log", reduction="sum")


@cases("Constant", 1)
def constant(version):
    value = numpy_helper.from_array(np.array([1, 2, 3], F), "value")
    return [node("Constant", "", "c", value=value), node("Add", "x,c")], {"x": random(3)}, {}


# GroupNormalization 18 says scale and bias by group.
@cases("GroupNormalization", 18)
def group_normalization(version):
    return (node("GroupNormalization", "x,scale,bias", num_groups=2, epsilon=1e-3), {"x": random(1, 4, 3)},
            {"scale": np.array([1.5, -2], F), "bias": np.array([0.25, 1], F)})


def value(name, dtype=T.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


@cases("If", 1, 13, 16, 21, 23, 24, 25)
def branches(version):
    one = helper.make_graph([node("Add", "x,x", "a")], "one", [], [value("a")])
    other = helper.make_graph([node("Neg", "x", "b")], "other", [], [value("b")])
    return node("If", "c", then_branch=one, else_branch=other), {"c": np.array(False), "x": random(3)}, {}


@cases("Loop", 1, 13, 16, 19, 21, 23, 24)
def loop(version):
    body = helper.make_graph(
        [node("Add", "s,one", "s2"), node("Mul", "s2,s", "o"), node("Less", "i,last", "c2")], "body",
        [value("i", T.INT64, []), value("c", T.BOOL, []), value("s", T.FLOAT, [3])],
        [value("c2", T.BOOL, []), value("s2", T.FLOAT, [3]), value("o", T.FLOAT, [3])])
    if version < 9:  # Less takes floats alone
        body.node[2].CopyFrom(node("Identity", "c", "c2"))
    return (node("Loop", "n,t,x", "y,z", body=body), {"x": random(3)},
            {"n": np.array(5, WHOLE), "t": np.array(True), "one": F(1), "last": np.array(2, WHOLE)})


@cases("Scan", 11, 16, 19, 21, 23, 24)
def scan(version):
    body = helper.make_graph([node("Add", "s,x", "s2"), node("Mul", "s2,x", "o")], "body",
                             [value("s", T.FLOAT, [2]), value("x", T.FLOAT, [2])],
                             [value("s2", T.FLOAT, [2]), value("o", T.FLOAT, [2])])
    return (node("Scan", "s0,xs", "y,z", body=body, num_scan_inputs=1, scan_input_axes=[-1], scan_input_directions=[1],
                 scan_output_axes=[-1]), {"s0": random(2), "xs": random(2, 4)}, {})


def model(version, function):
    made, feeds, constants = function(version)
    nodes = made if isinstance(made, list) else [made]
    inputs = [value(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    outputs = [onnx.ValueInfoProto(name=n) for n in nodes[-1].output]
    graph = helper.make_graph(nodes, "version", inputs, outputs, stored)
    opset = max(version, 7)
    ir = max(4, min(10, opset - 5))  # before IR 4 an initializer is an input as well
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir), feeds


def answers(made, feeds):
    """Their dtypes are written into the model, which ONNX Runtime does not need."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in made.graph.output]
    found = dict(zip(names, session.run(names, feeds)))
    for output in made.graph.output:
        output.CopyFrom(value(output.name, helper.np_dtype_to_tensor_dtype(found[output.name].dtype), found[output.name].shape))
    return found


def recorded():
    """(name, model, inputs, outputs) of each."""
    counts = {}
    for operator, version, function in CASES:
        made, feeds = model(version, function)
        name = f"{operator}.v{version}"
        counts[name] = counts.get(name, 0) + 1
        yield f"{name}-{counts[name]}", made, feeds, answers(made, feeds)


if __name__ == "__main__":
    from onnx.reference import ReferenceEvaluator
    warnings.simplefilter("ignore")
    for operator, version, function in CASES:
        if operator not in (sys.argv[1:] or [operator]):
            continue
        made, feeds = model(version, function)
        try:
            right = answers(made, feeds)
            other = ReferenceEvaluator(made).run(None, feeds)
        except Exception as error:  # one of the two lacks it
            print(operator, version, type(error).__name__, str(error)[:300])
            continue
        for one, (name, want) in zip(other, right.items()):
            if one.shape != want.shape or not np.allclose(one.astype(float), want.astype(float), 1e-4, 1e-5, equal_nan=True):
                print(operator, version, name, one.ravel()[:6], want.ravel()[:6])
