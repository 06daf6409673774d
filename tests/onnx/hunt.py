#!/usr/bin/env python3
"""Random ONNX programs, cleaned and undone: an adversary of what passes know of ONNX's operators and of how models are written.

    python tests/onnx/hunt.py build/foldback [--count 60] [--seed 1] [--passes A,B] [--keep FOLDER]

Each program is drawn from a number: opsets 11 to 23, names as tools write them, shared and overridable weights, graphs in
one another, functions, what is there twice, what nothing reads, and what nearly is nothing (x + 0.0, a Pad by zeros). ONNX
Runtime without optimisation computes the model and what `foldback optimize` makes of it: every bit of every output must be
the same, but for those of a nan. The checker must take the result if it took the model, inputs and outputs must keep their
declarations, random numbers must be drawn as often, and `foldback reverse` without a run must give the very bytes. Each second
program has layers, which are fused; those results may be rounded otherwise, so nothing in them jumps. Prints the seeds that
fail, and how often each pass found something: one that never does has not been tried."""

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper, numpy_helper

F = np.float32
CLEANUP = ["RemoveNoOps", "EliminateCommonSubexpressions", "EliminateDeadCode"]
# Of these as well every bit stays: they move numbers, or compute those that are the same everywhere.
FOLDS = ["InlinePrograms", *CLEANUP[:2], "FoldShapes", "EvaluateConstants", "MergeConsecutiveCalls", "MergeViews", CLEANUP[2]]
FUSIONS = ["ChangeEinsumToMatMul", "FuseAttention", "MoveTransposes", "FoldConstants", "ChangeMulByInverseToTrueDiv",
           "FuseRotation", "FoldNormIntoLinear", "FuseNorm", "FuseActivation", "ChangeTrueDivToMulByInverse", "FoldPad",
           "FuseBatchNorm", "FuseLinear", "FoldScaleIntoLinear", "MergeLinears", "MergeConsecutiveLinears",
           "MergeConvolutions", "PackLinear", "UnpackLinear", *CLEANUP]
RAISE = ["RaiseOpset"]
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


class Value:
    def __init__(self, name, shape, dtype=T.FLOAT, constant=False):
        self.name, self.shape, self.dtype, self.constant = name, tuple(shape), dtype, constant


class Program:
    """A graph that is being drawn; `outer` is the one around it."""

    def __init__(self, draw, opset, outer=None):
        self.draw, self.opset, self.outer = draw, opset, outer
        self.names = outer.names if outer else set()
        self.nodes, self.stored, self.values, self.functions = [], [], [], outer.functions if outer else {}
        self.weights, self.constants = [], []

    def name(self, like):
        spelled = self.draw.choice(["{}_{}", "/layer/{}/{}", "onnx::{}_{}", "{}.{}", "{} {}", "{}:{}", "é{}'\"{}", "{}__{}"])
        while True:
            made = self.draw.choice([spelled.format(like, self.draw.randrange(1000)), str(self.draw.randrange(10000))])
            if made not in self.names:
                self.names.add(made)
                return made

    def weight(self, array, constant_too=True):
        array = np.asarray(array)
        name = self.name("w")
        if constant_too and self.draw.random() < 0.3:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        elif self.draw.random() < 0.3:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            self.stored.append(helper.make_tensor(name, kind, array.shape, array.flatten().tolist()))
        else:
            self.stored.append(numpy_helper.from_array(array, name))
        self.constants.append(Value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype), True))
        return self.constants[-1]

    def known(self, shape):
        """A weight of that shape, of this program or of one around it."""
        found = [one for one in self.constants if one.shape == shape and one.dtype == T.FLOAT]
        if self.outer and (not found or self.draw.random() < 0.5):
            return self.outer.known(shape)
        return self.draw.choice(found) if found else None

    def node(self, op, inputs, shapes, dtypes=(), outputs=None, **attributes):
        """Appends a node; `outputs` are names, or one for each shape is made."""
        names = outputs or [self.name(op) for _ in shapes]
        inputs = [one.name if isinstance(one, Value) else one for one in inputs]
        domain = attributes.pop("domain", "")
        made = helper.make_node(op, inputs, names, domain=domain, **attributes)
        if self.draw.random() < 0.5:
            made.name = self.name("node")
        if self.draw.random() < 0.1:
            made.doc_string = "what a tool said"
        self.nodes.append(made)
        several = [Value(name, shape, (list(dtypes) or [T.FLOAT] * len(shapes))[i])
                   for i, (name, shape) in enumerate(zip(names, shapes)) if name]
        self.values += several
        return several

    def seen(self, dtype=T.FLOAT):
        found = [one for one in self.values if one.dtype == dtype]
        if self.outer and (not found or self.draw.random() < 0.4):
            return self.outer.seen(dtype)
        return self.draw.choice(found) if found else None

    def ints(self, numbers):
        return self.weight(np.array(numbers, np.int64))

    # ---- statements ----------------------------------------------------------------------------------------------------

    def unary(self, x):
        op = self.draw.choice(["Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Floor", "Softsign", "Elu"])
        self.node(op, [x], [x.shape], **({"alpha": 0.5} if op == "Elu" and self.draw.random() < 0.5 else {}))

    def identity(self, x):
        self.node("Identity", [x], [x.shape])

    def dropout(self, x):
        inputs, more = [x], {}
        if self.opset >= 12:
            if self.draw.random() < 0.6:
                inputs.append(self.weight(F(0.5)))
                if self.draw.random() < 0.6:
                    inputs.append(self.weight(np.bool_(False)))
        else:
            more["ratio"] = 0.5
        shapes = [x.shape] * self.draw.choice([1, 2])
        self.node("Dropout", inputs, shapes, [T.FLOAT, T.BOOL][:len(shapes)], **more)

    def cast(self, x):
        to = self.draw.choice([T.FLOAT, T.FLOAT, T.FLOAT16, T.INT64])
        (made,) = self.node("Cast", [x], [x.shape], [to], to=to)
        if to != T.FLOAT:
            self.node("Cast", [made], [x.shape], to=T.FLOAT)

    def transpose(self, x):
        perm = list(range(len(x.shape)))
        if self.draw.random() < 0.5:
            self.draw.shuffle(perm)
        more = {} if self.draw.random() < 0.2 else {"perm": perm}
        perm = more.get("perm", list(reversed(range(len(x.shape)))))
        self.node("Transpose", [x], [[x.shape[i] for i in perm]], **more)

    def reshape(self, x):
        size = int(np.prod(x.shape))
        to = self.draw.choice([x.shape, (size,), (1, *x.shape), (size, 1)])
        spelled = list(to)
        if self.draw.random() < 0.4:
            spelled[self.draw.randrange(len(spelled))] = -1
        self.node("Reshape", [x, self.ints(spelled)], [to])

    def sized(self, x):
        """A Reshape by sizes that are found."""
        (sizes,) = self.node("Shape", [x], [(len(x.shape),)], [T.INT64])
        kept = self.draw.randrange(len(x.shape))
        (one,) = self.node("Gather", [sizes, self.ints([kept])], [(1,)], [T.INT64], axis=0)
        both = [one, self.ints([-1])] if self.draw.random() < 0.7 else [self.ints([-1]), one]
        (to,) = self.node("Concat", both, [(2,)], [T.INT64], axis=0)
        rest = int(np.prod(x.shape)) // x.shape[kept]
        self.node("Reshape", [x, to], [(x.shape[kept], rest) if both[0] is one else (rest, x.shape[kept])])

    def squeeze(self, x):
        if self.opset < 13:
            self.node("Unsqueeze", [x], [(1, *x.shape)], axes=[0])
        else:
            self.node("Unsqueeze", [x, self.ints([0])], [(1, *x.shape)])

    def flatten(self, x):
        axis = self.draw.randrange(len(x.shape) + 1)
        left = int(np.prod(x.shape[:axis])) if axis else 1
        self.node("Flatten", [x], [(left, int(np.prod(x.shape)) // left)], axis=axis)

    def pad(self, x):
        by = [self.draw.choice([0, 0, 0, 1]) if self.draw.random() < 0.5 else 0 for _ in range(2 * len(x.shape))]
        shape = [n + by[i] + by[i + len(x.shape)] for i, n in enumerate(x.shape)]
        inputs = [x, self.ints(by)] + ([self.weight(F(self.draw.choice([0, 2])))] if self.draw.random() < 0.5 else [])
        self.node("Pad", inputs, [shape])

    def sliced(self, x):
        """Any bounds, of one axis or several, along which something is left."""
        given, shape, far = [], list(x.shape), self.draw.choice([2**63 - 1, 2**31])
        for axis in self.draw.sample(range(len(shape)), self.draw.randint(1, min(2, len(shape)))):
            n = shape[axis]
            end, step = self.draw.choice([self.draw.randint(-n, n + 2), far]), self.draw.choice([1, 1, 1, 2, -1])
            start, end, step = self.draw.choice([(self.draw.randint(-n, n), end, step), (0, far, 1), (n // 2, far, 1)])
            if not range(*slice(start, end, step).indices(n)):
                start, end, step = 0, n, 1
            given.append((start, end, axis - self.draw.choice([0, len(shape)]), step))
            shape[axis] = len(range(*slice(start, end, step).indices(n)))
        inputs = [self.ints(one) for one in zip(*given)]
        if all(one[3] == 1 for one in given) and self.draw.random() < 0.5:
            del inputs[3:]
        return self.node("Slice", [x, *inputs], [shape])[0]

    def slices(self, x):
        first = self.sliced(x)
        for _ in range(self.draw.choice([1, 1, 2])):
            self.sliced(first)

    def concats(self, x):
        axis, last = self.draw.randrange(len(x.shape)), len(x.shape) - 1
        made = x
        for at in self.draw.choice([(axis, axis), (axis, axis, axis), (axis, last)]):
            if any(a != b for i, (a, b) in enumerate(zip(made.shape, x.shape)) if i != at):
                break
            shape = [n + (x.shape[i] if at == i else 0) for i, n in enumerate(made.shape)]
            order = self.draw.choice([[made, x], [x, made]])
            (made,) = self.node("Concat", order, [shape], axis=at - self.draw.choice([0, len(x.shape)]))

    def casts(self, x):
        for to in self.draw.choice([(T.DOUBLE, T.FLOAT16), (T.INT32, T.DOUBLE), (T.BOOL, T.UINT8), (T.INT8, T.INT64, T.FLOAT16),
                                    (T.DOUBLE, T.INT16, T.INT32)]) + (T.FLOAT,):
            (x,) = self.node("Cast", [x], [x.shape], [to], to=to)

    def reduction(self, x):
        """Of which a view changes the dimensions."""
        axis, keeps = self.draw.randrange(len(x.shape)), self.draw.randrange(2)
        shape = [1 if i == axis else n for i, n in enumerate(x.shape)]
        less = [n for i, n in enumerate(x.shape) if i != axis]
        axes = [axis - self.draw.choice([0, len(x.shape)])]
        more, inputs = ({"axes": axes}, [x]) if self.opset < 18 else ({}, [x, self.ints(axes)])
        op = self.draw.choice(["ReduceMax", "ReduceMin"])
        (made,) = self.node(op, inputs, [shape if keeps else less], keepdims=keeps, **more)
        at = axis if keeps else self.draw.choice([axis, axis, 0])
        more, inputs = ({"axes": [at]}, [made]) if self.opset < 13 else ({}, [made, self.ints([at])])
        self.node("Squeeze" if keeps else "Unsqueeze", inputs, [less if keeps else [*less[:at], 1, *less[at:]]], **more)

    def twice(self, x):
        for op in self.draw.choice([("Neg", "Neg"), ("Relu", "Relu"), ("Abs", "Abs", "Neg", "Neg"), ("Round", "Round")]):
            (x,) = self.node(op, [x], [x.shape])

    def chosen(self, x):
        """Of numbers that are not -0.0, of which ONNX Runtime's Where makes 0.0."""
        (x,) = self.node("Abs", [x], [x.shape])
        other = self.draw.choice([x, *self.node("Exp", [x], [x.shape])])
        where = self.weight(np.full(self.draw.choice([(), (1,), x.shape, (2, *x.shape)]), self.draw.random() < 0.5))
        order = self.draw.choice([[x, other], [other, x]])
        self.node("Where", [where, *order], [np.broadcast_shapes(where.shape, x.shape)])

    def requantised(self, x):
        """Quantised, dequantised, and quantised by the same scale or another."""
        scale, zero = self.weight(F(self.draw.choice([0.02, 0.1, 1e-30]))), self.weight(np.uint8(self.draw.choice([0, 7, 255])))
        (made,) = self.node("QuantizeLinear", [x, scale, zero], [x.shape], [T.UINT8])
        (back,) = self.node("DequantizeLinear", [made, scale, zero], [x.shape])
        other = self.draw.choice([scale, scale, self.weight(F(0.05))])
        (again,) = self.node("QuantizeLinear", [back, other, zero], [x.shape], [T.UINT8])
        self.node("DequantizeLinear", [again, scale, zero], [x.shape])

    def slice(self, x):
        axis = self.draw.randrange(len(x.shape))
        n = x.shape[axis]
        start, end, step = self.draw.choice([(0, n, 1), (0, 2**62, 1), (-n, n, 1), (n - 1, -n - 1, -1), (0, max(1, n - 1), 1),
                                             (0, n, 2)])
        count = len(range(*slice(start, end if end > -n - 1 else None, step).indices(n)))
        shape = [count if i == axis else one for i, one in enumerate(x.shape)]
        inputs = [x, self.ints([start]), self.ints([end]), self.ints([axis])]
        if step != 1 or self.draw.random() < 0.5:
            inputs.append(self.ints([step]))
        self.node("Slice", inputs, [shape])

    def expand(self, x):
        to = self.draw.choice([x.shape, (1,) * len(x.shape), (2, *x.shape)])
        self.node("Expand", [x, self.ints(to)], [np.broadcast_shapes(x.shape, to)])

    def tile(self, x):
        by = [self.draw.choice([1, 1, 1, 2]) for _ in x.shape]
        if by:
            self.node("Tile", [x, self.ints(by)], [[a * b for a, b in zip(x.shape, by)]])

    def concat(self, x):
        axis, several = self.draw.randrange(len(x.shape)), self.draw.choice([1, 1, 2, 3])
        self.node("Concat", [x] * several, [[n * several if i == axis else n for i, n in enumerate(x.shape)]], axis=axis)

    def variadic(self, x):
        self.node(self.draw.choice(["Sum", "Max", "Min", "Mean"]), [x] * self.draw.choice([1, 1, 2]), [x.shape])

    def binary(self, x):
        op = self.draw.choice(["Add", "Sub", "Mul", "Div"])
        neutral = self.draw.choice([0.0, -0.0, 1.0, 1.0, 2.0])
        if op == "Div" and neutral == 0:
            neutral = 1.0
        shape = self.draw.choice([(), (1,), (1,) * len(x.shape), x.shape, (2,) + (1,) * len(x.shape)])
        other = self.weight(np.full(shape, neutral, F))
        inputs = [x, other] if self.draw.random() < 0.6 or op in ("Sub", "Div") else [other, x]
        self.node(op, inputs, [np.broadcast_shapes(x.shape, shape)])

    def buckets(self, x):
        """Integers of a logarithm or power of constants, as positions are sorted; sometimes of what is not finite."""
        random = np.random.default_rng(self.draw.randrange(2**31))
        numbers = random.uniform(0.1, 20, x.shape[-1:]).astype(F)
        is_near = random.random(numbers.shape) < 0.3
        numbers[is_near] = self.draw.choice([0, 1, 3])
        (y,) = self.node(self.draw.choice(["Log", "Log", "Exp"]), [self.weight(numbers)], [numbers.shape])
        (y,) = self.node(self.draw.choice(["Mul", "Div", "Add", "Sub", "Min"]), [y, self.weight(F(self.draw.choice([2, 1.7])))],
                         [y.shape])
        kind = self.draw.choice([T.INT64, T.INT32])
        (i,) = self.node("Cast", [y], [y.shape], [kind], to=kind)
        as_kind = np.int64 if kind == T.INT64 else np.int32
        for op in self.draw.sample(["Add", "Sub", "Mul"], self.draw.choice([0, 1, 2])):
            (i,) = self.node(op, [i, self.weight(as_kind(self.draw.choice([3, -7])))], [y.shape], [kind])
        if self.opset >= 12:
            (i,) = self.node(self.draw.choice(["Min", "Max"]), [i, self.weight(as_kind(15))], [y.shape], [kind])
        if self.draw.random() < 0.8:
            (i,) = self.node("Where", [self.weight(is_near), self.weight(np.arange(y.shape[0]).astype(as_kind)), i],
                             [y.shape], [kind])
        (f,) = self.node("Cast", [i], [y.shape], to=T.FLOAT)
        self.node("Add", [x, f], [x.shape])

    def computed(self, x):
        """What is made of weights alone, often of those of a program around it."""
        shape, numbers = (2, x.shape[-1]), np.random.default_rng(self.draw.randrange(2**31))
        w = self.known(shape) if self.draw.random() < 0.7 else None
        if not w or self.draw.random() < 0.2:
            w = self.weight(numbers.standard_normal(shape).astype(F))
        for _ in range(self.draw.randint(1, 4)):
            rows, columns = w.shape
            if self.draw.random() < 0.4:
                (w,) = self.node("Transpose", [w], [(columns, rows)], perm=[1, 0])
            elif self.draw.random() < 0.4:
                start = self.draw.randrange(rows)
                (w,) = self.node("Slice", [w, *map(self.ints, ([start], [rows], [0]))], [(rows - start, columns)])
                other = self.known(shape) if columns == shape[1] else None
                (w,) = self.node("Concat", [w, other or w], [(w.shape[0] + (other or w).shape[0], columns)], axis=0)
            else:
                (w,) = self.node(self.draw.choice(["Neg", "Abs", "Mul", "Add"]), [w], [w.shape])
                if self.nodes[-1].op_type in ("Mul", "Add"):
                    self.nodes[-1].input.append(self.nodes[-1].input[0])
        if w.shape[1] != shape[1]:
            (w,) = self.node("Transpose", [w], [w.shape[::-1]], perm=[1, 0])
        (w,) = self.node("ReduceMax", [w], [()], keepdims=0) if w.shape[1] != shape[1] else self.node(
            "Slice", [w, *map(self.ints, ([0], [1], [0]))], [(1, shape[1])])
        self.node("Add", [x, w], [np.broadcast_shapes(x.shape, w.shape)])

    def both(self, x):
        same = [one for one in self.values if one.dtype == T.FLOAT and one.shape == x.shape]
        other = self.draw.choice(same) if same else x
        self.node(self.draw.choice(["Add", "Mul", "Sub"]), [x, other], [x.shape])

    def matmul(self, x):
        if len(x.shape) != 2:
            return
        w = self.weight(np.random.default_rng(len(self.nodes)).standard_normal((x.shape[1], 3)).astype(F))
        self.node("MatMul", [x, w], [(x.shape[0], 3)])

    def softmax(self, x):
        self.node("Softmax", [x], [x.shape], axis=self.draw.randrange(len(x.shape)))

    def split(self, x):
        axis = self.draw.randrange(len(x.shape))
        parts = self.draw.choice([k for k in (1, 2, 3) if x.shape[axis] % k == 0])
        more = {"num_outputs": parts} if self.opset >= 18 else {}
        shape = [n // parts if i == axis else n for i, n in enumerate(x.shape)]
        self.node("Split", [x], [shape] * parts, axis=axis, **more)

    def topk(self, x):
        axis = self.draw.randrange(len(x.shape))
        shape = [1 if i == axis else n for i, n in enumerate(x.shape)]
        self.node("TopK", [x, self.ints([1])], [shape, shape], [T.FLOAT, T.INT64], axis=axis)

    def drawn(self, x):
        """Random numbers, of which only the shape comes back."""
        if self.opset >= 22:  # ONNX Runtime has none of these
            return
        op = self.draw.choice(["RandomNormalLike", "RandomUniformLike"])
        (made,) = self.node(op, [x], [x.shape], **({"seed": 1.0} if self.draw.random() < 0.5 else {}))
        self.values.remove(made)
        if self.draw.random() < 0.5:
            (shape,) = self.node("Shape", [made], [(len(x.shape),)], [T.INT64])
            self.node("Reshape", [x, shape], [x.shape])

    def branch(self, count, shape, index):
        inner = Program(self.draw, self.opset, self)
        inner.step(self.draw.randrange(1, 4), deeper=self.draw.random() < 0.3)
        same = [one for one in inner.values if one.dtype == T.FLOAT and one.shape == shape]
        x = self.draw.choice(same) if same and self.draw.random() < 0.7 else None
        if x is None:
            (x,) = inner.node("Expand", [inner.weight(F(index)), inner.ints(shape)], [shape])
        return inner.graph("branch", [x])

    def condition(self, x):
        flag = self.draw.choice([one for one in self.values if one.dtype == T.BOOL and one.shape == ()] or [None])
        if self.draw.random() < 0.3:
            flag = self.weight(np.bool_(self.draw.random() < 0.5))
        elif flag is None:
            (total,) = self.node("ReduceMax", [x], [()], keepdims=0)
            (flag,) = self.node("Greater", [total, self.weight(F(self.draw.choice([-9, 0, 9])))], [()], [T.BOOL])
        self.node("If", [flag], [x.shape], then_branch=self.branch(1, x.shape, 1), else_branch=self.branch(1, x.shape, 2))

    def loop(self, x):
        inner = Program(self.draw, self.opset, self)
        i, go, state = (Value(inner.name(one), shape, dtype) for one, shape, dtype in
                        (("i", (), T.INT64), ("go", (), T.BOOL), ("state", x.shape, T.FLOAT)))
        inner.values += [state]
        inner.step(self.draw.randrange(1, 3), deeper=False)
        same = [one for one in inner.values if one.dtype == T.FLOAT and one.shape == x.shape and one is not state]
        if same:
            last = self.draw.choice(same)
        else:
            (last,) = inner.node("Neg", [state], [x.shape])
        (still,) = inner.node("Identity", [go], [()], [T.BOOL])
        body = inner.graph("body", [still, last], [i, go, state])
        self.node("Loop", [self.weight(np.int64(self.draw.choice([0, 1, 2]))), "", x], [x.shape], body=body)

    def function(self, x):
        name = self.draw.choice(["Act", "Twice", "Table"])
        if name == "Table" and name not in self.functions:
            nodes = [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(F([[0.5, 3]]))),
                     helper.make_node("Constant", [], ["k"]), helper.make_node("Transpose", ["c"], ["t"], perm=[1, 0]),
                     helper.make_node("ReduceMax", ["t"], ["m"], keepdims=0), helper.make_node("Add", ["m", "k"], ["n"]),
                     helper.make_node("Mul", ["m", "m"], ["s"]), helper.make_node("Add", ["in", "n"], ["a"]),
                     helper.make_node("Add", ["a", "s"], ["out"])]
            nodes[1].attribute.add(name="value_float", ref_attr_name="by", type=onnx.AttributeProto.FLOAT)
            self.functions[name] = helper.make_function("own.nn", name, ["in"], ["out"], nodes,
                                                        [helper.make_opsetid("", self.opset)], attributes=["by"])
        if name not in self.functions:
            nodes = [helper.make_node("Identity", ["in"], ["a"]), helper.make_node("Abs", ["a"], ["b"]),
                     helper.make_node("Add", ["b", "b" if name == "Twice" else "a"], ["out"])]
            self.functions[name] = helper.make_function("own.nn", name, ["in"], ["out"], nodes,
                                                        [helper.make_opsetid("", self.opset)])
        self.node(name, [x], [x.shape], domain="own.nn", **({"by": self.draw.choice([0.5, 2.0])} if name == "Table" else {}))

    def again(self, x):
        """A node once more, of other names."""
        of = [one for one in self.nodes if one.op_type not in RANDOM]
        made = onnx.NodeProto()
        if not of:
            return
        made.CopyFrom(self.draw.choice(of))
        known = {one.name: one for one in self.values}
        if any(name not in known for name in made.output):
            return
        of_it = [known[name] for name in made.output]
        del made.output[:]
        made.output.extend(self.name("again") for _ in of_it)
        made.name = self.name("node")
        self.nodes.append(made)
        self.values += [Value(name, one.shape, one.dtype) for name, one in zip(made.output, of_it)]

    STATEMENTS = [unary, unary, identity, identity, dropout, cast, transpose, reshape, sized, squeeze, flatten, pad, slice,
                  expand, slices, concats, casts, reduction, twice, chosen, requantised, tile, concat, variadic, binary, binary,
                  buckets, computed, computed, both, both, matmul, softmax, split, topk, drawn, function, again, again, again]

    def step(self, count, deeper=True):
        for _ in range(count):
            x = self.seen()
            if not x.shape or np.prod(x.shape) > 2000 or len(x.shape) > 5:
                continue
            self.draw.choice(self.STATEMENTS + [Program.condition, Program.loop] * 2 if deeper else self.STATEMENTS)(self, x)

    def graph(self, name, outputs, inputs=(), infos=()):
        def declared(one):
            return helper.make_tensor_value_info(one.name, one.dtype, one.shape)
        return helper.make_graph(self.nodes, name, [declared(one) for one in inputs], [declared(one) for one in outputs],
                                 self.stored, value_info=[declared(one) for one in infos])


class Layers(Program):
    """A program of layers, of nothing that jumps."""

    def tensor(self, *shape, least=None):
        """A weight, or one that is there already: several layers may read it."""
        known = [one for one in self.weights if one.shape == shape and least is None]
        if known and self.draw.random() < 0.2:
            return self.draw.choice(known)
        numbers = np.random.default_rng(self.draw.randrange(2**31)).uniform(-0.7 if least is None else least, 1.3, shape)
        made = self.weight(numbers.astype(F))
        if least is None:
            self.weights.append(made)
        return made

    def unary(self, x):
        self.node(self.draw.choice(["Relu", "Neg", "Abs", "Sigmoid", "Tanh"]), [x], [x.shape])

    def with_rank(self, x, rank):
        """x in so many dimensions."""
        if len(x.shape) == rank:
            return x
        size = int(np.prod(x.shape))
        last = x.shape[-1]
        to = {2: (size // last, last), 3: (1, size // last, last), 4: (1, size // last, last, 1)}[rank]
        return self.node("Reshape", [x, self.ints(to)], [to])[0]

    def factor(self, x, axis, channels):
        """x with a constant: of one number, or one for each channel; or one for each of another axis."""
        op = self.draw.choice(["Add", "Sub", "Mul", "Div"])
        n = len(x.shape)
        shapes = [(), (1,), (1,) * n, (channels,) + (1,) * (n - 1 - axis), (1,) * axis + (channels,) + (1,) * (n - 1 - axis),
                  (x.shape[-1],)]
        other = self.tensor(*self.draw.choice(shapes), least=0.5 if op == "Div" else None)
        inputs = [x, other] if op in ("Sub", "Div") or self.draw.random() < 0.6 else [other, x]
        if op == "Sub" and self.draw.random() < 0.3:
            inputs.reverse()
        return self.node(op, inputs, [np.broadcast_shapes(x.shape, other.shape)])[0]

    def batch_norm(self, x):
        if len(x.shape) < 2:
            return x
        c = x.shape[1]
        inputs = [x, self.tensor(c), self.tensor(c), self.tensor(c), self.tensor(c, least=0.5)]
        more = self.draw.choice([{}, {"epsilon": 1e-3}, {"momentum": 0.5}])
        if self.opset >= 14 and self.draw.random() < 0.1:
            inputs[3] = self.weight(np.full((c,), 0.25, F))  # ONNX Runtime writes into it, even if others read it
            return self.node("BatchNormalization", inputs, [x.shape, (c,), (c,)], training_mode=1, **more)[0]
        return self.node("BatchNormalization", inputs, [x.shape], **more)[0]

    def linear(self, x):
        if len(x.shape) < 2 or self.draw.random() < 0.4:
            x = self.with_rank(x, 2)
        outputs, inputs, rows = self.draw.choice([2, 3, 6]), x.shape[-1], x.shape[0]
        if len(x.shape) == 2 and self.draw.random() < 0.5:
            turned, alpha, beta = self.draw.random() < 0.5, self.draw.choice([1, 1, 1, 0.5]), self.draw.choice([1, 1, 1, 2])
            weight = self.tensor(*((outputs, inputs) if turned else (inputs, outputs)))
            more = {"transB": 1} if turned else {}
            if self.draw.random() < 0.2:
                weight = self.tensor(*((outputs, rows) if turned else (rows, outputs)))
                more["transA"], rows = 1, inputs
            biases = [(outputs,), (outputs,), (1, outputs), (1,), (), (rows, 1)]
            more |= ({"alpha": float(alpha)} if alpha != 1 else {}) | ({"beta": float(beta)} if beta != 1 else {})
            given = [x, weight]
            if self.opset < 11 or self.draw.random() < 0.7:
                given.append(self.tensor(*self.draw.choice(biases)))
            return self.node("Gemm", given, [(rows, outputs)], **more)[0]
        (y,) = self.node("MatMul", [x, self.tensor(inputs, outputs)], [(*x.shape[:-1], outputs)])
        if self.draw.random() < 0.6:
            shape = self.draw.choice([(outputs,), (outputs,), (1, outputs), (), y.shape])
            both = [y, self.tensor(*shape)]
            if self.draw.random() < 0.4:
                both.reverse()
            (y,) = self.node("Add", both, [np.broadcast_shapes(y.shape, shape)])
        return y

    def flat(self, x):
        """A layer on rows, between what makes x rows and what makes it x again; or nearly."""
        *outer, last = x.shape
        if len(outer) < 2:
            return x
        rows = (int(np.prod(outer)), last)
        (y,) = self.node("Reshape", [x, self.ints((-1, last))], [rows])
        y = self.linear(y)
        to = (*outer, y.shape[-1]) if y.shape[0] == rows[0] and self.draw.random() < 0.8 else (1, *y.shape)
        return self.node("Reshape", [y, self.ints(to)], [to])[0]

    def zeros_around(self, x):
        by = [0] * (2 * len(x.shape))
        for i in range(2 if self.draw.random() < 0.9 else 0, len(x.shape)):
            by[i], by[i + len(x.shape)] = self.draw.choice([(1, 1), (0, 1), (0, 0), (2, 2)])
        number = self.draw.choice([0, 0, 0, 0.5])
        shape = [n + by[i] + by[i + len(x.shape)] for i, n in enumerate(x.shape)]
        given = [x, self.ints(by)] + ([self.weight(F(number))] if number or self.draw.random() < 0.5 else [])
        if self.opset >= 18 and self.draw.random() < 0.4:
            axes = [i for i in range(len(x.shape)) if by[i] or by[i + len(x.shape)]] or [0]
            given[1] = self.ints([by[i] for i in axes] + [by[i + len(x.shape)] for i in axes])
            if len(given) == 2:
                given.append("")
            given.append(self.ints([i - (len(x.shape) if self.draw.random() < 0.5 else 0) for i in axes]))
        return self.node("Pad", given, [shape])[0]

    def window(self, x):
        x = self.with_rank(x, self.draw.choice([3, 4]))
        if self.draw.random() < 0.5:
            x = self.zeros_around(x)
        if self.draw.random() < 0.3:
            x = self.batch_norm(x)
        elif self.draw.random() < 0.2:
            x = self.factor(x, 1, x.shape[1])
        spatial = len(x.shape) - 2
        kernel = [self.draw.choice([1, min(2, n), min(3, n)]) for n in x.shape[2:]]
        pads = self.draw.choice([None, [0] * 2 * spatial, [0, 1] * spatial])
        both = [0] * 2 * spatial if pads is None else pads
        more = {} if pads is None else {"pads": pads}
        if pads is None and self.draw.random() < 0.2:
            more["auto_pad"] = "VALID"
        sizes = [x.shape[2 + i] + both[i] + both[i + spatial] - kernel[i] + 1 for i in range(spatial)]
        c = x.shape[1]
        kind = self.draw.choice(["Conv"] * 5 + ["ConvTranspose"] * 2 + ["AveragePool", "MaxPool"])
        if "Pool" in kind:
            if any(b >= kernel[i % spatial] for i, b in enumerate(both)):
                return x
            if kind == "AveragePool" and self.draw.random() < 0.7:
                more["count_include_pad"] = 1
            return self.node(kind, [x], [(x.shape[0], c, *sizes)], kernel_shape=kernel, **more)[0]
        groups, per_group = self.draw.choice([g for g in (1, 1, 2, 3) if c % g == 0]), self.draw.choice([1, 2])
        outputs = groups * per_group
        if groups > 1 or self.draw.random() < 0.3:
            more["group"] = groups
        if kind == "ConvTranspose":
            sizes = [x.shape[2 + i] - both[i] - both[i + spatial] + kernel[i] - 1 for i in range(spatial)]
            if min(sizes) < 1:
                return x
        weight = self.tensor(*((outputs, c // groups) if kind == "Conv" else (c, per_group)), *kernel)
        given = [x, weight] + ([self.tensor(outputs)] if self.draw.random() < 0.5 else [])
        if self.draw.random() < 0.5:
            more["kernel_shape"] = kernel
        return self.node(kind, given, [(x.shape[0], outputs, *sizes)], **more)[0]

    def view(self, x):
        """x, or its elements in another shape or order."""
        n = len(x.shape)
        if n < 2 or self.draw.random() < 0.6:
            return x
        if self.draw.random() < 0.5:
            perm = [0, *range(2, n), 1] if self.draw.random() < 0.7 else self.draw.sample(range(n), n)
            return self.node("Transpose", [x], [[x.shape[i] for i in perm]], perm=perm)[0]
        rows, row = int(np.prod(x.shape[:-1])), int(np.prod(x.shape[1:]))
        to = self.draw.choice([(rows, x.shape[-1]), (1, *x.shape), (x.shape[0], row), (*x.shape, 1)])
        return self.node("Reshape", [x, self.ints(to)], [to])[0]

    def layer(self, x):
        if self.draw.random() < 0.2:
            x = self.batch_norm(x)
        elif self.draw.random() < 0.2:
            x = self.factor(x, len(x.shape) - 1, x.shape[-1])
        is_linear = self.draw.random() < 0.5
        for _ in range(self.draw.choice([1, 1, 1, 2])):
            y = x = self.flat(x) if self.draw.random() < 0.2 else self.linear(x) if is_linear else self.window(x)
        y = self.view(y)
        if y.shape and self.draw.random() < 0.4:
            y = self.view(self.batch_norm(y))
            if is_linear and self.draw.random() < 0.3:
                y = self.linear(y)
        axis = len(y.shape) - 1 if is_linear else 1
        if 0 <= axis < len(y.shape) and self.draw.random() < 0.4:
            self.factor(y, axis, y.shape[axis])

    def beside(self, x):
        """Layers that read one value: each as the first is, or nearly."""
        x = self.with_rank(x, self.draw.choice([2, 3, 4]))
        few = len(x.shape) == 2 and self.draw.random() < 0.5
        for _ in range(self.draw.choice([2, 3, 4])):
            outputs = self.draw.choice([1, 2, 3])
            if few:
                given = [x, self.tensor(x.shape[1], outputs)] + ([self.tensor(outputs)] if self.draw.random() < 0.6 else [])
                self.node("Gemm", given if self.opset >= 11 or len(given) == 3 else [*given, self.tensor(outputs)],
                          [(x.shape[0], outputs)])
            elif len(x.shape) == 4:
                given = [x, self.tensor(outputs, x.shape[1], 1,
                                        1)] + ([self.tensor(outputs)] if self.draw.random() < 0.6 else [])
                self.node("Conv", given, [(x.shape[0], outputs, *x.shape[2:])])
            else:
                (y,) = self.node("MatMul", [x, self.tensor(x.shape[-1], outputs)], [(*x.shape[:-1], outputs)])
                if self.draw.random() < 0.6:
                    both = [y, self.tensor(self.draw.choice([outputs, outputs, outputs, 1]))]
                    if self.draw.random() < 0.4:
                        both.reverse()
                    self.node("Add", both, [y.shape])

    def heads(self, x):
        """Linears of one value whose results are cut, or nearly."""
        x = self.with_rank(x, 3)
        *outer, size = x.shape
        for _ in range(self.draw.choice([2, 2, 3])):
            (y,) = self.node("MatMul", [x, self.tensor(size, 6)], [(*outer, 6)])
            if self.draw.random() < 0.9:
                y = self.both_ways("Add", y, self.tensor(6))
            to = self.draw.choice([(*outer, 3, 2), (*outer, 2, 3), (int(np.prod(outer)) * 6,), (*outer, 6), (outer[0], 3, -1)])
            made = tuple(int(np.prod(outer[1:])) * 2 if size < 0 else size for size in to)
            self.node("Reshape", [y, self.ints(to)], [made])
            if self.draw.random() < 0.1:
                self.unary(y)

    def wave(self, x):
        angles = np.random.default_rng(self.draw.randrange(2**31)).uniform(-9, 9, x.shape[-1:]).astype(F)
        self.both_ways("Mul", x, self.same(self.draw.choice(["Sin", "Cos", "Exp"]), self.weight(angles)))

    def inverse(self, x):
        raised = self.same("Exp", x)
        one = self.draw.choice([1.0, 1.0, 2.0])
        part = self.same("Reciprocal", raised) if self.draw.random() < 0.5 else self.same("Div", one, raised)
        self.both_ways("Mul", x, part)

    def quotient(self, x):
        ones = self.draw.choice([one for one in ((), (1,), (1, 1)) if len(one) <= len(x.shape)])
        self.node("Div", [x, self.weight(np.full(ones, self.draw.choice([2, 3, 0.125]), F))], [x.shape])

    def same(self, op, *inputs, **attributes):
        """A node whose result has the shape of its inputs, which may be numbers."""
        given = [one if isinstance(one, Value) else self.weight(F(one)) for one in inputs]
        return self.node(op, given, [np.broadcast_shapes(*(one.shape for one in given))], **attributes)[0]

    def both_ways(self, op, a, b):
        return self.same(op, *((a, b) if self.draw.random() < 0.5 else (b, a)))

    def activation(self, x):
        """One that is spelled out, sometimes with another number, or a part of it that others read."""
        kind = self.draw.choice(["gelu", "tanh", "silu", "mish", "hard", "hard-sigmoid"])
        off = self.draw.choice([1, 1, 1, 1, 1.1])
        if kind == "gelu":
            root = self.same("Div", x, 1.4142135 * off) if self.draw.random() < 0.5 else self.same("Mul", x, 0.70710678 * off)
            part = self.both_ways("Add", self.same("Erf", root), 1.0)
            self.both_ways("Mul", self.both_ways("Mul", x, 0.5), part)
        elif kind == "tanh":
            cube = self.same("Pow", x, 3.0) if self.draw.random() < 0.5 else self.same("Mul", self.same("Mul", x, x), x)
            inner = self.same("Mul", self.both_ways("Add", x, self.same("Mul", cube, 0.044715 * off)), 0.7978845608)
            part = self.same("Add", self.same("Tanh", inner), 1.0)
            self.same("Mul", self.same("Mul", x, part), 0.5)
        elif kind == "silu":
            part = self.same("Sigmoid", x if off == 1 else self.same("Mul", x, 1.702))
            gate = self.both_ways("Mul", x, part)
            self.same("Mul", gate, self.tensor(*x.shape))
        elif kind == "mish":
            part = self.same("Tanh", self.same("Softplus", x))
            self.both_ways("Mul", x, part)
        elif kind == "hard-sigmoid":
            part = self.same("HardSigmoid", x, alpha=off / 6, beta=0.5)
            self.both_ways("Mul", x, part)
        else:
            part = self.same("Clip", self.same("Add", x, 3.0), 0.0, 6.0 * off)
            self.same("Div", self.both_ways("Mul", x, part), 6.0)
        if self.draw.random() < 0.15:
            self.unary(part)

    def reduced(self, op, x, axes):
        shape = [1 if i - len(x.shape) in axes else size for i, size in enumerate(x.shape)]
        is_input = self.opset >= (13 if op == "ReduceSum" else 18)
        more = {} if is_input else {"axes": axes}
        return self.node(op, [x, self.ints(axes)] if is_input else [x], [tuple(shape)], **more)[0]

    def normed(self, x):
        """A norm or softmax that is spelled out, or nearly."""
        if len(x.shape) < 2:
            return
        axes = self.draw.choice([[-1], [-1], [-1], [-2, -1], [-2]])
        sizes = x.shape[axes[0]:] if axes[-1] == -1 else x.shape[-2:-1]
        if self.draw.random() < 0.25:
            shifted = self.same("Sub", x, self.reduced("ReduceMax", x, axes))
            raised = self.same("Exp", shifted)
            self.same("Div", raised, self.reduced("ReduceSum", raised, axes))
            return
        d = self.same("Sub", x, self.reduced("ReduceMean", x, axes)) if self.draw.random() < 0.6 else x
        square = self.same("Mul", d, d) if self.draw.random() < 0.5 else self.same("Pow", d, 2.0)
        variance, eps = self.reduced("ReduceMean", square, axes), self.draw.choice([1e-5, 1e-3])
        if self.draw.random() < 0.15:
            root = self.same("Add", self.same("Sqrt", variance), eps)
        else:
            root = self.same("Sqrt", self.both_ways("Add", variance, eps))
        y = self.same("Div", d, root) if self.draw.random() < 0.6 else self.both_ways("Mul", d, self.same("Reciprocal", root))
        for op in ("Mul", "Add"):
            shape = self.draw.choice([sizes, sizes, sizes, (1, *sizes), x.shape[-1:]])
            fits = len(shape) <= len(y.shape) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(y.shape)))
            if fits and self.draw.random() < 0.7:
                y = self.both_ways(op, y, self.tensor(*shape))
        if self.draw.random() < 0.15:
            self.unary(root)
        for _ in range(self.draw.choice([0, 0, 1, 2, 3])):
            self.linear(self.view(y))

    def turned(self, x):
        """Calls between transpositions, as Keras has them."""
        x = self.with_rank(x, self.draw.choice([3, 4, 4]))
        rank = len(x.shape)
        perm = [0, *range(2, rank), 1] if self.draw.random() < 0.8 else self.draw.sample(range(rank), rank)
        back = [perm.index(i) for i in range(rank)]

        def turn(one, by):
            return self.node("Transpose", [one], [[one.shape[i] for i in by]], perm=by)[0]
        y, other = turn(x, perm), turn(self.same("Neg", x), perm)
        for _ in range(self.draw.choice([1, 2, 3])):
            kind = self.draw.choice(["unary", "vector", "both", "concat", "softmax", "mean", "pad", "clip"])
            if kind == "unary":
                y = self.same(self.draw.choice(["Relu", "Tanh", "Abs"]), y)
            elif kind == "vector":
                shape = self.draw.choice([y.shape[-1:], y.shape[-2:], (), (1,) * rank, y.shape, (1, *y.shape[1:])])
                y = self.both_ways(self.draw.choice(["Add", "Mul", "Sub"]), y, self.tensor(*shape))
            elif kind == "both" and y.shape == other.shape:
                y = self.both_ways("Add", y, other)
            elif kind == "concat":
                axis = self.draw.randrange(rank)
                y = self.node("Concat", [y, y], [[2 * size if i == axis else size for i, size in enumerate(y.shape)]],
                              axis=axis - (rank if self.draw.random() < 0.5 else 0))[0]
            elif kind == "softmax":
                y = self.same("Softmax", y, axis=self.draw.randrange(rank))
            elif kind == "mean":
                y = self.reduced("ReduceMean", y, [self.draw.choice([-1, -2])])
            elif kind == "pad":
                y = self.zeros_around(y)
            elif kind == "clip":
                y = self.same("Clip", y, 0.0, 0.5)
            if self.draw.random() < 0.1:
                self.unary(y)
        end = self.draw.random()
        if end < 0.7:
            turn(y, back)
        elif end < 0.85 and self.opset < 18:
            axes = list(range(1, rank - 1))
            self.node("ReduceMean", [y], [(y.shape[0], y.shape[-1])], axes=axes, keepdims=0)
        elif end < 0.95:
            axis, at = self.draw.randrange(rank), self.draw.choice([0, -1])
            self.node("Gather", [y, self.weight(np.int64(at))], [y.shape[:axis] + y.shape[axis + 1:]], axis=axis)

    def attention(self, x):
        """Attention that is spelled out, or nearly."""
        q = self.with_rank(x, 4)
        b, h, rows, size = q.shape
        k, v = self.same("Neg", q), self.same("Tanh", q)
        if self.draw.random() < 0.8:
            k = self.node("Transpose", [k], [(b, h, size, rows)], perm=[0, 1, 3, 2])[0]
        else:
            k = self.node("Reshape", [k, self.ints((b, h, size, rows))], [(b, h, size, rows)])[0]
        scores = self.node("MatMul", [q, k], [(b, h, rows, rows)])[0]
        if self.draw.random() < 0.7:
            scores = self.same(*self.draw.choice([("Mul", scores, 0.35), ("Div", scores, 2.8), ("Mul", scores, -0.5)]))
        if self.draw.random() < 0.5:
            numbers = np.where(np.tri(rows) if self.draw.random() < 0.7 else np.eye(rows)[::-1], 0, -3e38).astype(F)
            scores = self.both_ways("Add", scores, self.weight(numbers))
        weights = self.node("Softmax", [scores], [scores.shape], axis=self.draw.choice([3, 3, 3, 3, 2]))[0]
        self.node("MatMul", [weights, v], [q.shape])
        if self.draw.random() < 0.1:
            self.unary(weights)

    def rotary(self, x):
        """A rotary embedding, or nearly: of halves or of neighbours."""
        if self.opset < 13:
            return
        x = self.with_rank(x, 4)
        b, h, rows, size = x.shape
        if size != 4:
            x = self.with_rank(self.node("Reshape", [x, self.ints((b * h * rows * size,))], [(b * h * rows * size,)])[0], 4)
            b, h, rows, size = x.shape
            x = self.node("Expand", [x, self.ints((b, h, rows, 4))], [(b, h, rows, 4)])[0]
            size = 4
        angles = np.random.default_rng(rows).uniform(0, 6, (b, 1, rows, size // 2)).astype(F)
        is_near, form = self.draw.random() < 0.2, self.draw.choice(["rotated", "rotated", "halves", "neighbours"])
        if form == "rotated":
            angles = np.concatenate([angles, angles + F(is_near)], -1)
        cos, sin = self.node("Cos", [self.weight(angles)], [angles.shape])[0], self.weight(np.sin(angles))
        cuts = [(0, 2**62, 2), (1, 2**62, 2)] if form == "neighbours" else [(0, 2, 1), (2, 2**62, 1)]
        halves = [self.node("Slice", [x, *(self.ints([one]) for one in (start, end, 3, step))], [(b, h, rows, 2)])[0]
                  for start, end, step in cuts]
        low, high = halves if self.draw.random() < 0.85 else halves[::-1]
        if form == "rotated":
            negated = self.node("Neg", [high], [high.shape])[0]
            turned = self.node("Concat", [negated, low], [x.shape], axis=self.draw.choice([-1, 3]))[0]
            self.both_ways("Add", self.both_ways("Mul", x, cos), self.both_ways("Mul", turned, sin))
            return
        first = self.same("Sub", self.both_ways("Mul", low, cos), self.both_ways("Mul", high, sin))
        second = self.both_ways("Add", self.both_ways("Mul", high, cos), self.both_ways("Mul", low, sin))
        if form == "halves":
            self.node("Concat", [first, second], [x.shape], axis=-1)
            return
        both = [self.node("Unsqueeze", [one, self.ints([4])], [(*one.shape, 1)])[0] for one in (first, second)]
        pairs = self.node("Concat", both, [(*first.shape, 2)], axis=-1)[0]
        self.node("Reshape", [pairs, self.ints(x.shape)], [x.shape])

    def einsum(self, x):
        """A product by labels: mostly one of matrices, in any order of axes."""
        if self.opset < 12 or not 2 <= len(x.shape) <= 4:
            return
        of_x = "abcdef"[:len(x.shape)]
        order = self.draw.sample(of_x, len(of_x))
        summed, row, batch = order[0], order[1], order[2:]
        more = batch[:self.draw.randint(0, len(batch))]
        of_y = [*[one for one in batch if one not in more], summed, "z"]
        result = [*more, *[one for one in batch if one not in more], row, "z"]
        for each in self.draw.choice([[], [], [of_y], [result], [of_y, result]]):
            self.draw.shuffle(each)
        sizes = dict(zip(of_x, x.shape)) | {"z": self.draw.choice([2, 3])}
        y = self.tensor(*(sizes[one] for one in of_y))
        if self.draw.random() < 0.5:
            y = self.same("Tanh", y)
        given = [(of_x, x), ("".join(of_y), y)]
        if self.draw.random() < 0.3:
            given.reverse()
        if self.draw.random() < 0.2:
            result = [one for one in result if one != row]
        equation = f"{given[0][0]},{given[1][0]}->{''.join(result)}"
        self.node("Einsum", [one[1] for one in given], [tuple(sizes[one] for one in result)], equation=equation)

    STATEMENTS = [unary, Program.identity, Program.transpose, Program.reshape, Program.concat, Program.both, Program.split,
                  einsum, layer, layer, layer, beside, heads, heads, heads, wave, inverse, quotient, activation, activation,
                  normed, normed, turned, turned, attention, rotary,
                  Program.computed, Program.computed]


def draw_model(seed, kind=Program):
    """A model and its inputs."""
    draw = random.Random(seed)
    numbers = np.random.default_rng(seed)
    opset = draw.randint(11, 24)
    ir = draw.choice([3, 6, 7, 8, 9, 10])
    p = kind(draw, opset)
    feeds, inputs = {}, []
    for _ in range(draw.choice([1, 2, 2])):
        one = Value(p.name("x"), draw.choice([(2, 3), (4, 6), (1, 2, 6), (6,)]))
        feeds[one.name] = numbers.standard_normal(one.shape).astype(F)
        feeds[one.name].flat[0] = -0.0
        inputs.append(one)
    p.values += inputs
    for _ in range(draw.choice([0, 1, 2])):  # weights that several read; from IR 4 on the caller may give another
        w = p.weight(draw.choice([np.ones, np.zeros])(draw.choice([(), (6,), (2, 3)]), F), constant_too=False)
        if w.shape:
            p.values.append(w)
        if ir >= 4 and draw.random() < 0.5:
            inputs.append(w)
            if draw.random() < 0.5:
                feeds[w.name] = numbers.standard_normal(w.shape).astype(F)
    p.step(draw.randrange(4, 25))
    made = [one for one in p.values if not any(one is other for other in inputs)]
    outputs, taken = [], set()
    for one in draw.sample(made, min(len(made), draw.choice([1, 2, 3]))) or p.node("Neg", [inputs[0]], [inputs[0].shape]):
        if one.name in taken or any(one.name == stored.name for stored in p.stored):
            continue
        taken.add(one.name)
        outputs.append(one)
    if not outputs:
        outputs = p.node("Neg", [inputs[0]], [inputs[0].shape])
    if draw.random() < 0.4:  # the same under another name; of an input or a weight as well
        x = draw.choice([*outputs, *inputs])
        outputs += p.node("Identity", [x], [x.shape], [x.dtype])
    if ir < 4:
        inputs += [Value(one.name, one.dims, one.data_type) for one in p.stored]
    known = {one.name for one in outputs} | {one.name for one in inputs}
    infos = [one for one in p.values if one.name not in known] if draw.random() < 0.5 else []
    graph = p.graph("drawn", outputs, inputs, infos)
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("own.nn", 1)] if p.functions else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=max(ir, 8) if p.functions else ir,
                              functions=list(p.functions.values()), producer_name="hunt")
    if p.functions and ir < 4:
        del model.graph.input[len(model.graph.input) - len(p.stored):]
    return model, feeds


def compute(data, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def same_bits(a, b):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return np.array_equal(np.isnan(a), np.isnan(b)) and np.where(np.isnan(a), 0, a).tobytes() == np.where(
        np.isnan(b), 0, b).tobytes()


def are_close(a, b):
    if a.dtype != b.dtype or a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return False
    a, b = np.where(np.isfinite(a), a, 0), np.where(np.isfinite(b), b, 0)
    return not a.size or np.abs(a - b).max() <= 1e-4 * (1 + np.abs(a).max())


def nodes_of(graph):
    for one in graph.node:
        yield one
        for attribute in one.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


def is_right(data):
    try:
        onnx.checker.check_model(data, full_check=True)
    except Exception:
        return False
    return True


class Hunt:
    def __init__(self, binary, passes, folder):
        self.binary, self.passes, self.folder = binary, passes, folder
        self.applied, self.programs, self.changed = collections.Counter(), 0, 0

    def run(self, *words):
        command = [self.binary, *map(str, words), "--data", str(self.folder / "data")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{words[0]}: {done.stdout}{done.stderr}"
        return done.stdout

    def judge(self, seed):
        has_layers = seed % 4 >= 2
        model, feeds = draw_model(seed, Layers if has_layers else Program)
        data = model.SerializeToString()
        try:
            wanted = compute(data, feeds)
        except Exception:
            return  # not a model that can be judged
        names = self.passes or [CLEANUP, RAISE if seed // 4 % 3 == 2 else FOLDS, FUSIONS,
                                [["inference"], ["latency"]][seed // 4 % 2]][seed % 4]
        if names == RAISE and any(one.op_type in RANDOM for one in nodes_of(model.graph)):
            return  # ONNX Runtime 1.32 has no kernel for them from opset 22 on
        given, made, back = (self.folder / f"{name}-{seed}.onnx" for name in ("given", "made", "back"))
        given.write_bytes(data)
        passes = [word for one in names for word in ("--pass", one)]
        run = json.loads(self.run("optimize", given, *passes, "-o", made, "--json"))
        self.programs += 1
        for one in run["passes"]:
            self.applied[one["name"]] += one["applied"]
        result = made.read_bytes()
        if run["result"] == run["source"]:
            assert result == data, "nothing was changed, and the model is another"
        else:
            self.changed += 1
            self.compare(model, onnx.load_from_string(result), result, data, names == RAISE)
            for index, (a, b) in enumerate(zip(wanted, compute(result, feeds))):
                assert are_close(a, b) if has_layers else same_bits(a, b), f"output {index} differs"
            self.run(*(["reverse", made] if run["reversible"] else ["rollback", run["id"]]), "-o", back, "--json")
            assert back.read_bytes() == data, "it is not undone to the same bytes"
            back.unlink()
        given.unlink()
        made.unlink()

    def compare(self, model, changed, result, data, may_grow):
        assert is_right(result) or not is_right(data), "the checker refuses the result"
        if model.ir_version >= 4:
            assert list(changed.graph.input) == list(model.graph.input), "inputs are declared otherwise"
        assert list(changed.graph.output) == list(model.graph.output), "outputs are declared otherwise"
        drawn, choices = ([sum(one.op_type in names for one in nodes_of(each.graph)) for each in (model, changed)]
                          for names in (RANDOM, {"If"}))  # the branch that is never taken goes with what it would draw
        assert drawn[0] == drawn[1] or (drawn[0] > drawn[1] and choices[0] > choices[1]), "random numbers are drawn otherwise"
        is_more = len(list(nodes_of(changed.graph))) > len(list(nodes_of(model.graph)))
        assert may_grow or not is_more or len(changed.functions) < len(model.functions), "it has more nodes"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--passes", help="all programs, in place of those of cleanup and of the folds in turns")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        hunt = Hunt(given.binary, given.passes and given.passes.split(","), given.keep or Path(folder))
        hunt.folder.mkdir(parents=True, exist_ok=True)
        for seed in range(given.seed, given.seed + given.count):
            try:
                hunt.judge(seed)
            except Exception as failure:
                failed += 1
                print(f"seed {seed}: {str(failure)[:600]}", flush=True)
    print(f"{hunt.programs} programs of {given.count}, {hunt.changed} changed, {failed} wrong; {dict(hunt.applied)}")
    must = CLEANUP + ["FuseLinear", "FuseBatchNorm", "FoldScaleIntoLinear", "MoveTransposes", "FuseNorm", "FuseActivation",
                      "PackLinear", "ChangeMulByInverseToTrueDiv"]
    has_found = given.passes or all(hunt.applied[one] for one in must)
    is_tried = hunt.programs >= given.count * 0.7 and hunt.changed >= hunt.programs * 0.4 and has_found
    sys.exit(bool(failed) or not is_tried)


if __name__ == "__main__":
    main()
