"""Layers of ONNX models that passes fuse: what they make, what they must leave, that it computes the same and is undone."""

import struct

import pytest
from test_onnx import send
from test_onnx_changed import field, graph, made_of, node, number, optimize, part, tensor, value
from test_onnx_evaluate import evaluate, judge, stored
from test_onnx_folds import attribute, integer, ints, named, operators, truth, unshaped, whole

FUSIONS = ("ChangeTrueDivToMulByInverse FoldPad FuseBatchNorm FuseLinear FoldScaleIntoLinear MergeLinears "
           "MergeConsecutiveLinears MergeConvolutions")


def real(name, one):
    return attribute(name, 1, b"\x15" + struct.pack("<f", one))


def word(name, text):
    return attribute(name, 3, field(4, text))


def weight(name, *shape, least=-1.0):
    """Other numbers for other names, between `least` and 1."""
    count = 1
    for size in shape:
        count *= size
    seed = sum(map(ord, name))
    return tensor(name, [least + (1 - least) * ((i * 37 + seed * 17) % 101) / 100 for i in range(count)], shape)


STATISTICS = [weight("s", 3), weight("b", 3), weight("m", 3), weight("v", 3, least=0.5)]
W = weight("w", 3, 3)
KERNEL = weight("k", 3, 3, 2, 2)
X2, X3, X4 = value("x"), value("x", shape=(2, 4, 3)), value("x", shape=(2, 3, 4, 5))
NORM = node("BatchNormalization", "h s b m v", "y", real("epsilon", 1e-3))
NORM_FIRST = node("BatchNormalization", "x s b m v", "h")


def fused(service, data, passes):
    """(operators, {reason}) of what is left, which computes the same; undone, it is the file."""
    run, written = optimize(service, data, passes)
    assert written.status == 200, written.body
    if run["result"] != run["source"]:
        found = service.post("/v1/compare", {"a": run["source"], "b": run["result"], "seed": 5}).json()
        assert found["verdict"] in ("same", "moved", "evaluated"), found
    back = service.post(f"/v1/runs/{run['id']}/rollback")
    assert back.status in (200, 201), back.body
    assert service.get(f"/v1/graphs/{back.json()['result']}/archive").body == data
    return operators(written.body), {one["reason"] for made in run["passes"] for one in made["refused"]}


PAD = whole("p", [0, 0, 1, 0, 0, 0, 1, 2])
LAST = [ints("axes", [-1]), integer("keepdims", 1)]
CENTRED = [node("ReduceMean", "x", "m0", *LAST), node("Sub", "x m0", "c0"), node("Mul", "c0 c0", "q0"),
           node("ReduceMean", "q0", "v0", *LAST), node("Add", "v0 e0", "t0"), node("Sqrt", "t0", "r0"),
           node("Div", "c0 r0", "n0")]
SCALED = [*CENTRED, node("Mul", "n0 s", "p0"), node("Add", "p0 b", "l0")]
ROOTS = [node("Mul", "x x", "q0"), node("ReduceMean", "q0", "v0", *LAST), node("Add", "v0 e0", "t0"), node("Sqrt", "t0", "r0"),
         node("Reciprocal", "r0", "i0"), node("Mul", "x i0", "n0"), node("Mul", "s n0", "l0")]
ROOTS_OF_23 = [ROOTS[0], node("ReduceMean", "q0 last", "v0", integer("keepdims", 1)), *ROOTS[2:]]
NORMAL = [tensor("e0", [1e-5], ()), weight("s", 3), weight("b", 3), weight("w", 3, 3), weight("u", 3, 3), weight("z", 3)]
LEFT_OF = [part(one, 1, 4)[0].decode() for one in CENTRED], [part(one, 1, 4)[0].decode() for one in ROOTS[:-1]]
GEMM, CONV, BIASED = ["Gemm"], ["Conv"], ["MatMul", "Add"]
UNPACKED = [STATISTICS[0], whole("r", [-1, 3]), whole("q", [2, 4, 3])]
PROJECTED = [node("MatMul", "x w", "e"), node("Add", "e s", "g")]


@pytest.mark.parametrize("passes, nodes, x, weights, wanted, opset", [
    ("FuseLinear", [node("MatMul", "x w", "h"), node("Add", "h s", "y")], X2, [W, STATISTICS[0]], GEMM, 17),
    ("FuseLinear", [node("MatMul", "x w", "h"), node("Add", "s h", "y")], X2, [W, STATISTICS[0]], GEMM, 7),
    ("FuseBatchNorm", [node("Conv", "x k", "h"), NORM], X4, [KERNEL, *STATISTICS], CONV, 17),
    ("FuseBatchNorm", [node("Conv", "x k s", "h"), NORM], X4, [KERNEL, *STATISTICS], CONV, 9),
    ("FuseBatchNorm", [node("ConvTranspose", "x k", "h"), NORM], X4, [KERNEL, *STATISTICS], ["ConvTranspose"], 17),
    ("FuseBatchNorm", [NORM_FIRST, node("Conv", "h k", "y")], X4, [KERNEL, *STATISTICS], CONV, 17),
    ("FuseBatchNorm", [node("Gemm", "x w s", "h", integer("transB", 1)), NORM], X2, [W, *STATISTICS], GEMM, 17),
    ("FuseBatchNorm", [node("MatMul", "x w", "h"), NORM], X2, [W, *STATISTICS], GEMM, 17),
    ("FuseBatchNorm", [NORM_FIRST, node("MatMul", "h w", "y")], X2, [W, *STATISTICS], GEMM, 17),
    ("FuseLinear FuseBatchNorm", [node("MatMul", "x w", "g"), node("Add", "g s", "h"), NORM], X2, [W, *STATISTICS], GEMM, 17),
    ("FuseBatchNorm", [node("MatMul", "x w", "g"), node("Add", "g s", "h"), NORM], X2, [W, *STATISTICS], BIASED, 17),
    ("FuseBatchNorm", [NORM_FIRST, node("MatMul", "h w", "g"), node("Add", "s g", "y")], X2, [W, *STATISTICS], BIASED, 9),
    ("FuseBatchNorm", [node("Gemm", "x w s", "h", real("alpha", 0.5), real("beta", 2.0)), NORM], X2, [W, *STATISTICS],
     GEMM, 17),
    ("FuseBatchNorm", [NORM_FIRST, node("Gemm", "h w", "y", real("alpha", 0.5), real("beta", 2.0))], X2, [W, *STATISTICS],
     GEMM, 17),
    ("FuseBatchNorm", [node("Gemm", "x w s", "h", integer("transA", 1), real("alpha", 0.5)), NORM], value("x", shape=(3, 2)),
     [W, *STATISTICS], GEMM, 17),
    ("FuseBatchNorm", [*PROJECTED, node("Transpose", "g", "h", ints("perm", [0, 2, 1])), NORM], X3, [W, *STATISTICS],
     [*BIASED, "Transpose"], 17),
    ("FuseBatchNorm", [node("MatMul", "x w", "g"), node("Transpose", "g", "h", ints("perm", [0, 2, 1])), NORM], X3,
     [W, *STATISTICS], [*BIASED, "Transpose"], 17),
    ("FuseBatchNorm", [*PROJECTED, node("Reshape", "g n", "h"), NORM], X3, [W, *STATISTICS, whole("n", [-1, 3])],
     [*BIASED, "Reshape"], 17),
    ("FuseBatchNorm", [NORM_FIRST, node("Reshape", "h n", "g"), node("MatMul", "g w", "e"), node("Add", "s e", "y")], X2,
     [W, *STATISTICS, whole("n", [2, 1, 3])], ["Reshape", *BIASED], 17),
    ("FuseBatchNorm", [node("BatchNormalization", "x s b m v", "h"), node("Transpose", "h", "g", ints("perm", [0, 2, 1])),
                       node("MatMul", "g w", "y")], value("x", shape=(2, 3, 4)), [W, *STATISTICS], ["Transpose", *BIASED], 17),
    ("FoldPad", [node("Pad", "x p", "h"), node("Conv", "h k", "y")], X4, [KERNEL, PAD], CONV, 17),
    ("FoldPad", [node("Pad", "x p", "h"), node("Conv", "h k", "y", word("auto_pad", "VALID"))], X4, [KERNEL, PAD], CONV, 17),
    ("FoldPad", [node("Pad", "x p", "h"), node("Conv", "h k", "y", ints("pads", [1, 1, 0, 0]))], X4, [KERNEL, PAD], CONV, 17),
    ("FoldPad", [node("Pad", "x", "h", ints("pads", [0, 0, 1, 0, 0, 0, 0, 1])), node("Conv", "h k", "y")], X4,
     [KERNEL], CONV, 10),
    ("FoldPad", [node("Pad", "x p z a", "h"), node("Conv", "h k", "y")], X4,
     [KERNEL, whole("p", [1, 2]), tensor("z", [0.0], ()), whole("a", [-1])], CONV, 18),
    ("FoldPad", [node("Pad", "x p", "h"), node("AveragePool", "h", "y", ints("kernel_shape", [2, 4]),
                                               integer("count_include_pad", 1))], X4, [PAD], ["AveragePool"], 17),
    ("FoldScaleIntoLinear", [node("Gemm", "x w s", "h"), node("Mul", "h b", "y")], X2, [W, *STATISTICS[:2]], GEMM, 17),
    ("FoldScaleIntoLinear", [node("MatMul", "x w", "h"), node("Mul", "c h", "y")], X3, [W, tensor("c", [0.5], ())],
     ["MatMul"], 17),
    ("FoldScaleIntoLinear", [node("Conv", "x k", "h"), node("Sub", "h c", "y")], X4, [KERNEL, weight("c", 3, 1, 1)], CONV, 17),
    ("FoldScaleIntoLinear", [node("Mul", "x c", "h"), node("Conv", "h k", "y")], X4, [KERNEL, weight("c", 3, 1, 1)], CONV, 17),
    ("MergeConsecutiveLinears", [node("MatMul", "x w", "h"), node("MatMul", "h u", "y")], X3, [W, weight("u", 3, 3)],
     ["MatMul"], 17),
    ("MergeConsecutiveLinears", [node("Gemm", "x w s", "h", integer("transB", 1)), node("MatMul", "h u", "y")], X2,
     [W, weight("u", 3, 3), STATISTICS[0]], GEMM, 17),
    ("FoldScaleIntoLinear", [*PROJECTED, node("Mul", "g b", "y")], X3, [W, *STATISTICS[:2]], BIASED, 17),
    ("FoldScaleIntoLinear", [*PROJECTED, node("Reshape", "g n", "f"), node("Div", "f c", "y")], X3,
     [W, STATISTICS[0], tensor("c", [2.0], ()), whole("n", [2, 4, 1, 3])], [*BIASED, "Reshape"], 17),
    ("FoldScaleIntoLinear", [node("Add", "x c", "h"), node("MatMul", "h w", "e"), node("Add", "s e", "y")], X3,
     [W, STATISTICS[0], weight("c", 3)], BIASED, 17),
    ("FoldScaleIntoLinear", [node("Gemm", "x w s", "h", real("alpha", 2.0), real("beta", 0.5)), node("Mul", "h b", "y")], X2,
     [W, *STATISTICS[:2]], GEMM, 17),
    ("FoldScaleIntoLinear", [node("Gemm", "x w s", "h", real("alpha", 2.0), real("beta", 0.5)), node("Add", "h b", "y")], X2,
     [W, *STATISTICS[:2]], GEMM, 17),
    ("MergeConsecutiveLinears", [*PROJECTED, node("MatMul", "g u", "f"), node("Add", "b f", "y")], X3,
     [W, weight("u", 3, 3), *STATISTICS[:2]], BIASED, 17),
    ("MergeConsecutiveLinears", [*PROJECTED, node("MatMul", "g u", "y")], X3, [W, weight("u", 3, 3), STATISTICS[0]],
     BIASED, 17),
    ("MergeConsecutiveLinears", [node("Gemm", "x w s", "h", real("beta", 0.5)), node("Gemm", "h u b", "y", real("alpha", 3.0))],
     X2, [W, weight("u", 3, 3), *STATISTICS[:2]], GEMM, 17),
    ("MergeLinears", [*PROJECTED, node("MatMul", "x u", "f"), node("Add", "b f", "h"), node("Mul", "g h", "y")], X3,
     [W, weight("u", 3, 3), *STATISTICS[:2]], [*BIASED, "Split", "Mul"], 17),
    ("MergeLinears", [*PROJECTED, node("MatMul", "x u", "f"), node("MatMul", "x t", "d"), node("Sum", "g f d", "y")], X3,
     [W, weight("u", 3, 3), weight("t", 3, 3), STATISTICS[0]], [*BIASED, "Split", "Sum"], 11),
    ("MergeLinears", [node("MatMul", "x w", "e"), node("MatMul", "x u", "f"), node("Add", "f b", "h"), node("Add", "s e", "g"),
                      node("Mul", "g h", "y")], X3, [W, weight("u", 3, 3), *STATISTICS[:2]], [*BIASED, "Split", "Mul"], 17),
    ("MergeLinears", [node("Gemm", f"x {one} {one}b", f"{one}1", real("alpha", 1.0 + i), real("beta", 2.0 - i / 2))
                      for i, one in enumerate("wut")] + [node("Sum", "w1 u1 t1", "y")],
     X2, [weight(one, 3, 3) for one in "wut"] + [weight(f"{one}b", 3) for one in "wut"], ["Gemm", "Split", "Sum"], 13),
    ("MergeLinears", [node("MatMul", f"x {one}", f"{one}1") for one in "wut"]
     + [node("Concat", "w1 u1 t1", "y", integer("axis", 1))],
     X3, [W, weight("u", 3, 3), weight("t", 3, 3)], ["MatMul", "Split", "Concat"], 17),
    ("MergeLinears", [node("Gemm", f"x {one} {one}b", f"{one}1") for one in "wut"] + [node("Sum", "w1 u1 t1", "y")],
     X2, [weight(one, 3, 3) for one in "wut"] + [weight(f"{one}b", 3) for one in "wut"], ["Gemm", "Split", "Sum"], 11),
    ("MergeConvolutions", [node("Conv", "x k", "a"), node("Conv", "x l c", "d"), node("Conv", "x n", "e"),
                           node("Concat", "a d e", "y", integer("axis", 1))], X4,
     [KERNEL, weight("l", 2, 3, 2, 2), weight("c", 2), weight("n", 1, 3, 2, 2)], ["Conv", "Split", "Concat"], 18),
    ("UnpackLinear", [node("Reshape", "x r", "f"), node("Gemm", "f w s", "h"), node("Reshape", "h q", "y")], X3, [W, *UNPACKED],
     BIASED, 17),
    ("UnpackLinear", [node("Reshape", "x r", "f"), node("Gemm", "f u s", "h", integer("transB", 1)),
                      node("Reshape", "h q", "y")], X3, [weight("u", 3, 3), *UNPACKED], BIASED, 9),
    ("UnpackLinear", [node("Flatten", "x", "f", integer("axis", 2)), node("Gemm", "f w", "h"), node("Reshape", "h q", "y")], X3,
     [W, *UNPACKED], ["MatMul"], 13),
    ("UnpackLinear", [node("Reshape", "x r", "f"), node("MatMul", "f w", "h"), node("Reshape", "h q", "y")], X3, [W, *UNPACKED],
     ["MatMul"], 17),
    ("UnpackLinear", [node("Reshape", "x r", "f"), node("MatMul", "f w", "g"), node("Add", "s g", "h"),
                      node("Reshape", "h q", "y")], X3, [W, *UNPACKED], BIASED, 17),
    ("FoldNormIntoLinear", [*SCALED, node("MatMul", "l0 w", "a"), node("Add", "a z", "d"), node("MatMul", "l0 u", "f"),
                            node("Add", "s f", "g"), node("Sub", "d g", "y")], X3, NORMAL,
     [*LEFT_OF[0], *BIASED, *BIASED, "Sub"], 17),
    ("FoldNormIntoLinear", [*SCALED, node("Gemm", "l0 w", "d", real("alpha", 0.5)), node("MatMul", "l0 u", "g"),
                            node("Sub", "d g", "y")], X2, NORMAL, [*LEFT_OF[0], "Gemm", "Gemm", "Sub"], 17),
    ("FoldNormIntoLinear", [*ROOTS_OF_23, node("MatMul", "l0 w", "a"), node("Reshape", "l0 n", "f"), node("MatMul", "f u", "g"),
                            node("Reshape", "g k", "h"), node("Sub", "a h", "y")], X3,
     [*NORMAL, whole("n", [8, 3]), whole("k", [2, 4, 3]), whole("last", [-1])],
     [*LEFT_OF[1], "MatMul", "Reshape", "MatMul", "Reshape", "Sub"], 23),
    ("FuseBiasInLinear", [node("Gemm", "x w s", "y", real("beta", 0.5))], X2, [W, STATISTICS[0]], ["Pad", "Gemm"], 17),
    ("FuseBiasInLinear", [node("Gemm", "x w s", "y", integer("transB", 1))], X2, [W, STATISTICS[0]], ["Pad", "Gemm"], 11),
    ("FuseBiasInLinear", [node("MatMul", "x w", "h"), node("Add", "s h", "y")], X3, [W, STATISTICS[0]], ["Pad", "MatMul"], 9),
    ("ChangeTrueDivToMulByInverse", [node("Div", "x c", "y")], X2, [tensor("c", [3.0], (1,))], ["Mul"], 17),
], ids=lambda one: one if isinstance(one, str) else "")
def test_fused(shared, passes, nodes, x, weights, wanted, opset):
    data = made_of(graph(nodes, [x], [unshaped("y")], weights), opset=opset)
    assert fused(shared, data, passes)[0] == wanted


LEFT = {
    "a-row-for-channels": ("FoldScaleIntoLinear", [node("Conv", "x k", "h"), node("Mul", "h c", "y")], X4,
                           [KERNEL, weight("c", 4)], ()),
    "a-default": ("FuseBatchNorm", [node("Conv", "x k", "h"), NORM], X4, [KERNEL, *STATISTICS], ("k",)),
    "statistics-of-the-caller": ("FuseBatchNorm", [node("Conv", "x k", "h"), NORM], X4, [KERNEL, *STATISTICS], ("m",)),
    "a-bias-of-the-caller": ("FuseBatchNorm", [node("Conv", "x k s", "h"), NORM], X4, [KERNEL, *STATISTICS], ("s",)),
    "training": ("FuseBatchNorm", [node("Conv", "x k", "h"),
                                   node("BatchNormalization", "h s b m v", "y m2 v2", integer("training_mode", 1))],
                 X4, [KERNEL, *STATISTICS], ()),
    "another-reader": ("FuseBatchNorm", [node("Conv", "x k", "h"), node("BatchNormalization", "h s b m v", "g"),
                                         node("Add", "g h", "y")], X4, [KERNEL, *STATISTICS], ()),
    "padded-behind-a-norm": ("FuseBatchNorm", [NORM_FIRST, node("Conv", "h k", "y", ints("pads", [1, 1, 1, 1]))], X4,
                             [KERNEL, *STATISTICS], ()),
    "same-behind-a-norm": ("FuseBatchNorm", [NORM_FIRST, node("Conv", "h k", "y", word("auto_pad", "SAME_UPPER"))], X4,
                           [KERNEL, *STATISTICS], ()),
    "another-axis": ("FuseBatchNorm", [node("MatMul", "x w", "h"), NORM], value("x", shape=(2, 3, 3)), [W, *STATISTICS], ()),
    "large-factors": ("FuseBatchNorm", [node("Gemm", "x w s", "h", real("alpha", 1e30)), NORM], X2, [W, *STATISTICS], ()),
    "no-factor": ("FuseBatchNorm", [node("Gemm", "x w s", "h", real("beta", 0.0)), NORM], X2, [W, *STATISTICS], ()),
    "turned": ("FuseBatchNorm", [NORM_FIRST, node("Gemm", "h w", "y", integer("transA", 1))], value("x", shape=(3, 3)),
               [W, *STATISTICS], ()),
    "both-turned": ("MergeConsecutiveLinears", [node("Gemm", "x w", "h", integer("transA", 1)),
                                                node("Gemm", "h w", "y", integer("transA", 1))], value("x", shape=(3, 3)), [W],
                    ()),
    "turned-beside": ("MergeLinears", [node("Gemm", f"x {one}", f"{one}1", integer("transA", 1)) for one in "wut"]
                      + [node("Sum", "w1 u1 t1", "y")], value("x", shape=(3, 3)), [weight(one, 3, 3) for one in "wut"], ()),
    "a-column-behind": ("FuseBatchNorm", [node("MatMul", "x w", "g"), node("Add", "g c", "h"), NORM], value("x", shape=(3, 3)),
                        [W, weight("c", 3, 1), *STATISTICS], ()),
    "a-number-behind": ("FuseBatchNorm", [node("MatMul", "x w", "g"), node("Add", "g c", "h"), NORM], X2,
                        [W, tensor("c", [0.5], ()), *STATISTICS], ()),
    "a-bias-of-more": ("FuseBatchNorm", [node("MatMul", "x w", "g"), node("Add", "g s", "h"), NORM], X2,
                       [weight("w", 3, 1), *STATISTICS], ()),
    "a-product-read-twice": ("FuseBatchNorm", [node("MatMul", "x w", "g"), node("Add", "g s", "h"),
                                               node("BatchNormalization", "h s b m v", "f"), node("Add", "f g", "y")], X2,
                             [W, *STATISTICS], ()),
    "a-bias-by-the-caller": ("FuseBatchNorm", [node("MatMul", "x w", "g"), node("Add", "g s", "h"), NORM], X2,
                             [W, *STATISTICS], ("s",)),
    "one-dimension": ("FoldScaleIntoLinear", [*PROJECTED, node("Mul", "g b", "y")], value("x", shape=(3,)),
                      [W, *STATISTICS[:2]], ()),
    "channels-moved": ("FuseBatchNorm", [*PROJECTED, node("Reshape", "g n", "h"), NORM], X3,
                       [W, *STATISTICS, whole("n", [-1, 3, 2])], ()),
    "a-column": ("FuseLinear", [node("MatMul", "x w", "h"), node("Add", "h c", "y")], X2, [W, weight("c", 2, 1)], ()),
    "three-dimensions": ("FuseLinear", [node("MatMul", "x w", "h"), node("Add", "h s", "y")], X3, [W, STATISTICS[0]], ()),
    "an-addend-of-three": ("FoldScaleIntoLinear", [node("MatMul", "x w", "h"), node("Add", "h s", "y")], X3,
                           [W, STATISTICS[0]], ()),
    "max-pool": ("FoldPad", [node("Pad", "x p", "h"), node("MaxPool", "h", "y", ints("kernel_shape", [2, 4]))], X4, [PAD], ()),
    "not-counted": ("FoldPad", [node("Pad", "x p", "h"), node("AveragePool", "h", "y", ints("kernel_shape", [2, 4]))], X4,
                    [PAD], ()),
    "ones-around": ("FoldPad", [node("Pad", "x p o", "h"), node("Conv", "h k", "y")], X4, [KERNEL, PAD, tensor("o", [1.0], ())],
                    ()),
    "edges": ("FoldPad", [node("Pad", "x p", "h", word("mode", "edge")), node("Conv", "h k", "y")], X4, [KERNEL, PAD], ()),
    "channels": ("FoldPad", [node("Pad", "x p", "h"), node("Conv", "h k", "y")], value("x", shape=(2, 2, 4, 5)),
                 [KERNEL, whole("p", [0, 1, 0, 0, 0, 0, 0, 0])], ()),
    "two-layers": ("MergeLinears", [node("MatMul", "x w", "a"), node("MatMul", "x u", "c"), node("Add", "a c", "y")], X3,
                   [W, weight("u", 3, 3)], ()),
    "groups": ("MergeConvolutions", [node("Conv", f"x {one}", f"{one}1", integer("group", 3)) for one in "klm"]
               + [node("Sum", "k1 l1 m1", "y")], X4, [weight(one, 3, 1, 2, 2) for one in "klm"], ()),
    "a-norm-read-by-others": ("FoldNormIntoLinear", [*SCALED, node("MatMul", "l0 w", "a"), node("Add", "a z", "d"),
                                                     node("Add", "d l0", "y")], X3, NORMAL, ()),
    "no-place-for-a-shift": ("FoldNormIntoLinear", [*SCALED, node("MatMul", "l0 w", "y")], X3, NORMAL, ()),
    "a-scale-of-the-caller": ("FoldNormIntoLinear", [*SCALED, node("MatMul", "l0 w", "a"), node("Add", "a z", "y")], X3, NORMAL,
                              ("s",)),
    "no-norm": ("FoldNormIntoLinear", [node("Relu", "x", "n0"), node("Mul", "n0 s", "l0"), node("MatMul", "l0 w", "a"),
                                       node("MatMul", "l0 u", "d"), node("Sub", "a d", "y")], X3, NORMAL, ()),
    "another-shape": ("UnpackLinear", [node("Reshape", "x r", "f"), node("Gemm", "f w s", "h"), node("Reshape", "h n", "y")],
                      X3, [W, *UNPACKED, whole("n", [4, 2, 3])], ()),
    "rows-of-others": ("UnpackLinear", [node("Reshape", "x n", "f"), node("Gemm", "f u", "h"), node("Reshape", "h q", "y")], X3,
                       [weight("u", 6, 6), whole("n", [4, 6]), *UNPACKED], ()),
    "factors": ("UnpackLinear", [node("Reshape", "x r", "f"), node("Gemm", "f w s", "h", real("alpha", 2.0)),
                                 node("Reshape", "h q", "y")], X3, [W, *UNPACKED], ()),
    "ones-before-a-turn": ("FuseBiasInLinear", [node("Gemm", "x w s", "y", integer("transA", 1))], value("x", shape=(3, 2)),
                           [W, STATISTICS[0]], ()),
    "no-bias": ("FuseBiasInLinear", [node("Gemm", "x w", "y")], X2, [W], ()),
    "zero": ("ChangeTrueDivToMulByInverse", [node("Div", "x c", "y")], X2, [tensor("c", [0.0], ())], ()),
}


@pytest.mark.parametrize("name", LEFT)
def test_left(shared, name):
    passes, nodes, x, weights, given = LEFT[name]
    kinds = {one: value(one, shape=(3,)) for one in "sm"} | {"k": value("k", shape=(3, 3, 2, 2))}
    data = made_of(graph(nodes, [x, *(kinds[one] for one in given)], [unshaped("y")], weights))
    left, _ = fused(shared, data, passes)
    assert left == [part(one, 1, 4)[0].decode() for one in nodes]


UNNAMED = {"-1": (-1, 3, 4, 5), "no name": ("", 3, "", ""), "?": ("?", 3, "?", "?"),
           "a name that is taken": ("size", 3, "", "?")}


@pytest.mark.parametrize("sizes", UNNAMED)
def test_sizes_that_the_model_does_not_name(shared, sizes):
    """Each is a size of its own: the others and the number of dimensions are known."""
    data = made_of(graph([node("Conv", "x k", "h"), NORM], [named("x", UNNAMED[sizes])], [unshaped("y")],
                         [KERNEL, *STATISTICS]))
    assert fused(shared, data, "FuseBatchNorm")[0] == CONV
    shape = next(one for one in shared.get(f"/v1/graphs/{send(shared, data).json()['id']}").json()["nodes"]
                 if one["name"] == "x")["meta"]["shape"]
    assert shape[1] == 3 and len({*shape}) == 4 and shape[0] == ("size" if sizes == "a name that is taken" else shape[0])


def test_integers_are_not_divided_by_products(shared):
    """Div of integers cuts off."""
    data = made_of(graph([node("Div", "x c", "y")], [value("x", 7)], [value("y", 7)], [whole("c", [3])]))
    assert fused(shared, data, FUSIONS)[0] == ["Div"]


@pytest.mark.parametrize("kind, x, opset", [("Conv", X4, 9), ("Conv", X4, 13), ("Gemm", X2, 12)])
def test_two_are_merged_where_that_is_asked_for(shared, kind, x, opset):
    weights = [weight(one, *((3, 3, 2, 2) if kind == "Conv" else (3, 3))) for one in "kl"] + STATISTICS[:1]
    body = graph([node(kind, "x k s", "a"), node(kind, "x l s", "c"), node("Sub", "a c", "y")], [x], [unshaped("y")], weights)
    source = send(shared, made_of(body, opset=opset)).json()["id"]
    name = "MergeConvolutions" if kind == "Conv" else "MergeLinears"
    asked = {"name": name, "params": {"minimum_gain": 0}}
    run = shared.post("/v1/optimize", {"graph": source, "passes": [asked]}).json()
    assert operators(shared.get(f"/v1/graphs/{run['result']}/archive").body) == [kind, "Split", "Sub"]
    assert shared.post("/v1/compare", {"a": source, "b": run["result"], "seed": 5}).json()["verdict"] in ("moved", "evaluated")


def test_what_is_said_of_a_shape_that_is_another_goes(shared):
    nodes = [node("Reshape", "x r", "f"), node("MatMul", "f w", "h"), node("Reshape", "h q", "g"), node("Relu", "g", "y")]
    infos = [value("f", shape=(8, 3)), value("h", shape=(8, 3))]
    data = made_of(graph(nodes, [X3], [unshaped("y")], [W, *UNPACKED[1:]], infos=infos))
    assert fused(shared, data, "UnpackLinear")[0] == ["MatMul", "Relu"]
    assert not part(optimize(shared, data, "UnpackLinear")[1].body, 7, 13)


def test_a_gemm_that_needs_its_bias(shared):
    data = made_of(graph([node("Gemm", "x w s", "y")], [X2], [value("y", shape=(2, 3))], [W, STATISTICS[0]]), opset=10)
    assert fused(shared, data, "FuseBiasInLinear") == (["Gemm"], {"opset-too-old"})


@pytest.mark.parametrize("kind", ["another-layer", "output", "captured"])
def test_weights_that_others_read(shared, kind):
    """They keep theirs."""
    nodes = [node("Conv", "x k", "h"), NORM]
    outputs = [unshaped("y")]
    if kind == "another-layer":
        nodes += [node("Conv", "x k", "z")]
        outputs += [unshaped("z")]
    elif kind == "output":
        outputs += [value("k", shape=(3, 3, 2, 2))]
    else:
        branch = graph([node("ReduceSum", "k", "r", integer("keepdims", 0))], [], [unshaped("r")], name="b")
        other = graph([node("ReduceMax", "k", "q", integer("keepdims", 0))], [], [unshaped("q")], name="o")
        both = [attribute(name, 5, field(6, body)) for name, body in (("then_branch", branch), ("else_branch", other))]
        nodes += [node("If", "c", "z", *both)]
        outputs += [unshaped("z")]
    data = made_of(graph(nodes, [X4], outputs, [KERNEL, *STATISTICS, truth("c", True)]))
    left, _ = fused(shared, data, "FuseBatchNorm")
    assert "BatchNormalization" not in left and len(left) == len(nodes) - 1


@pytest.mark.parametrize("passes, nodes", [
    ("FuseBatchNorm", [node("Conv", "x p", "h"), NORM]),
    ("FoldScaleIntoLinear", [node("Conv", "x k", "h"), node("Mul", "h p", "y")])])
def test_sparse_weights_stay(shared, passes, nodes):
    """Their bytes are not read."""
    sizes = (3, 3, 2, 2) if passes == "FuseBatchNorm" else (3, 1, 1)
    sparse = field(1, tensor("p", [1.0, 2.0], (2,))) + field(2, whole("i", [0, 2])) + b"".join(number(3, one) for one in sizes)
    body = graph(nodes, [X4], [unshaped("y")], [KERNEL, *STATISTICS]) + field(15, sparse)
    left, reasons = fused(shared, made_of(body), passes)
    assert left == [part(one, 1, 4)[0].decode() for one in nodes] and "unknown-bytes" in reasons


def test_ir_3(shared):
    """Before IR 4 each weight is listed as an input, too; a pass lists the new ones."""
    inputs = [X4, value("k", shape=(3, 3, 2, 2)), *(value(one, shape=(3,)) for one in "sbmv")]
    data = made_of(graph([node("Conv", "x k", "h"), NORM], inputs, [unshaped("y")], [KERNEL, *STATISTICS]), ir=3, opset=8)
    run, written = optimize(shared, data, "FuseBatchNorm")
    assert operators(written.body) == ["Conv"]
    listed = {part(one, 1)[0] for one in part(written.body, 7, 11)}
    assert {part(one, 8)[0] for one in part(written.body, 7, 5)} < listed
    assert fused(shared, data, "FuseBatchNorm")[0] == ["Conv"]


def test_many_weights(shared):
    """The root owns all weights of a model: beyond some it is not copied for each change."""
    nodes, weights = [], [*STATISTICS, W]
    for i in range(300):
        weights += [weight(f"w{i}", 3, 3)]
        nodes += [node("MatMul", f"{f'y{i - 1}' if i else 'x'} w{i}", f"h{i}"),
                  node("BatchNormalization", f"h{i} s b m v", f"a{i}"), node("Tanh", f"a{i}", f"y{i}")]
    data = made_of(graph(nodes, [X2], [unshaped("y299")], weights))
    assert fused(shared, data, "FuseBatchNorm")[0] == ["Gemm", "Tanh"] * 300


def changed(service, data, name, **params):
    """(operators, {reason}) of what the pass leaves, and the answer of a comparison; undone, it is the file."""
    source = send(service, data).json()["id"]
    run = service.post("/v1/optimize", {"graph": source, "passes": [{"name": name, "params": params}]}).json()
    written = service.get(f"/v1/graphs/{run['result']}/archive")
    assert written.status == 200, written.body
    asked = {"a": source, "b": run["result"], "seed": 5, "tolerance": {"absolute": 0.02, "relative": 0.02}}
    found = service.post("/v1/compare", asked).json()
    if run["result"] != source:
        back = service.post(f"/v1/runs/{run['id']}/rollback").json()
        assert service.get(f"/v1/graphs/{back['result']}/archive").body == data
    return (operators(written.body), {one["reason"] for one in run["passes"][0]["refused"]}), found, written.body


STORED = "DequantizeLinear"


@pytest.mark.parametrize("nodes, x, weights, wanted", [
    ([node("Gemm", "x w s", "y", integer("transB", 1), real("alpha", 0.5))], X2, [W, STATISTICS[0]], [STORED, "Gemm"]),
    ([node("Gemm", "x w", "y")], X2, [W], [STORED, "Gemm"]),
    (PROJECTED + [node("Relu", "g", "y")], X3, [W, STATISTICS[0]], [STORED, "MatMul", "Add", "Relu"]),
    ([node("Conv", "x k", "y")], X4, [KERNEL], [STORED, "Conv"]),
    ([node("ConvTranspose", "x k", "y")], X4, [KERNEL], [STORED, "ConvTranspose"]),
])
@pytest.mark.parametrize("opset", [13, 21])
def test_quantized_weights(shared, nodes, x, weights, wanted, opset):
    data = made_of(graph(nodes, [x], [unshaped("y")], weights), opset=opset)
    (left, _), found, _ = changed(shared, data, "QuantizeWeights")
    assert left == wanted and found["verdict"] == "evaluated" and found["outputs"][0]["max_absolute"] != 0, found


def test_quantized_numbers(shared):
    """One scale for each output: the largest by 127, and what is nearest."""
    numbers = [[0.5, -1.0], [0.25, 2.0], [-0.125, 0.3]]
    w = tensor("w", [one for row in numbers for one in row], (3, 2))
    data = made_of(graph([node("MatMul", "x w", "y")], [value("x", shape=(3, 3))], [value("y", shape=(3, 2))], [w]))
    _, _, made = changed(shared, data, "QuantizeWeights")
    stored_ones = {part(one, 2)[0]: part(one, 9)[0] for one in part(made, 7, 5)}
    scales = struct.unpack("<2f", next(one for one in stored_ones.values() if len(one) == 8))
    bytes_of = struct.unpack("<6b", next(one for one in stored_ones.values() if len(one) == 6))
    assert scales == pytest.approx((0.5 / 127, 2.0 / 127), rel=1e-6)
    assert bytes_of == (127, -64, 64, 127, -32, 19)


WIDE = weight("v", 64, 3)


@pytest.mark.parametrize("nodes, weights, shape", [
    ([node("MatMul", "x v", "y")], [WIDE], (2, 5, 64)), ([node("Gemm", "x v", "y", real("alpha", 0.5))], [WIDE], (5, 64)),
    ([node("Gemm", "x v", "y", integer("transB", 1))], [weight("v", 3, 64)], (5, 64))])
@pytest.mark.parametrize("block", [16, 32, 64])
def test_blocks_of_inputs_have_a_scale_each(shared, nodes, weights, shape, block):
    data = made_of(graph(nodes, [value("x", shape=shape)], [unshaped("y")], weights), opset=21)
    (left, _), found, made = changed(shared, data, "QuantizeWeights", block_size=block)
    assert left == [STORED, left[1]] and found["verdict"] == "evaluated" and found["outputs"][0]["max_absolute"] != 0, found
    attributes = {part(one, 1)[0]: part(one, 3) for one in part(part(made, 7, 1)[0], 5)}
    assert attributes[b"block_size"] == [block] and attributes[b"axis"] == [1 if b"transB" in data else 0]
    scales = next(one for one in part(made, 7, 5) if part(one, 2) == [1])
    count = 64 // block
    assert part(scales, 1) == ([3, count] if b"transB" in data else [count, 3])
    rows = struct.unpack("<192f", part(weights[0], 9)[0])
    columns = [rows[64 * i:64 * i + 64] if b"transB" in data else rows[i::3] for i in range(3)]
    largest = [max(map(abs, column[at:at + block])) / 127 for column in columns for at in range(0, 64, block)]
    assert sorted(struct.unpack(f"<{3 * count}f", part(scales, 9)[0])) == pytest.approx(sorted(largest), rel=1e-6)


def test_blocks_of_a_convolution_or_of_uneven_inputs(shared):
    product = graph([node("MatMul", "x v", "y")], [value("x", shape=(5, 60))], [unshaped("y")], [weight("v", 60, 3)])
    data = made_of(product, opset=21)
    assert changed(shared, data, "QuantizeWeights", block_size=16)[0] == (["MatMul"], {"group-size"})
    data = made_of(graph([node("Conv", "x k", "y")], [X4], [unshaped("y")], [KERNEL]), opset=21)
    assert changed(shared, data, "QuantizeWeights", block_size=16)[0] == (["Conv"], {"not-linear"})


@pytest.mark.parametrize("opset, params, reason", [
    (12, {}, "opset-too-old"), (20, {"block_size": 16}, "opset-too-old"),
    (17, {"bits": 4, "group_size": 32}, "unsupported-form"), (17, {"keep": ["w"]}, None),
    (17, {"keep": ["Gemm"]}, None), (17, {"keep": ["Conv"]}, "keeps-nothing")])
def test_weights_that_are_not_quantized(shared, opset, params, reason):
    data = made_of(graph([node("Gemm", "x w s", "y")], [X2], [unshaped("y")], [W, STATISTICS[0]]), opset=opset)
    (left, reasons), _, _ = changed(shared, data, "QuantizeWeights", **params)
    assert (left == ["Gemm"]) == (reason != "keeps-nothing") and reasons == ({reason} if reason else set())


@pytest.mark.parametrize("opset, kind, to, wanted, reason", [
    (20, 1, {"to": "gelu", "parameters": {"approximate": "tanh"}}, "Gelu", None),
    (14, 1, {"to": "hardswish"}, "HardSwish", None), (17, 1, {"to": "tanh"}, "Tanh", None),
    (17, 1, {"to": "gelu"}, "Relu", "opset-too-old"),
    (17, 1, {"to": "softshrink"}, "Relu", "no-spelling"), (17, 7, {"to": "tanh"}, "Relu", "not-floating")])
def test_activations_are_replaced(shared, opset, kind, to, wanted, reason):
    data = made_of(graph([node("Relu", "x", "y")], [value("x", kind)], [value("y", kind)]), opset=opset)
    (left, reasons), found, _ = changed(shared, data, "ReplaceActivation", **{"from": "relu"}, **to)
    assert left == [wanted] and reasons == ({reason} if reason else set())
    assert (found["verdict"] == "differs") == (wanted != "Relu"), found


@pytest.mark.parametrize("preset", ["inference", "latency"])
def test_traps(new_service, preset):
    service, wrong = new_service(), []
    for name, parts in ((name, parts) for name, parts in stored().items() if name.startswith("trap/")):
        run, written = optimize(service, parts["model.onnx"], preset)
        assert written.status == 200, (name, written.body)
        answer = evaluate(service, run["result"], parts)
        if answer.status != 200 and name == "trap/two_random_draws":
            continue
        difference = answer.body if answer.status != 200 else judge(answer.body, parts["outputs.safetensors"])
        wrong += [(name, difference)] if difference else []
        back = service.post(f"/v1/runs/{run['id']}/rollback").json()
        assert service.get(f"/v1/graphs/{back['result']}/archive").body == parts["model.onnx"], name
    assert not wrong


GELU = [node("Div", "x r", "t0"), node("Erf", "t0", "e"), node("Add", "e i", "o"), node("Mul", "x o", "p"),
        node("Mul", "p h", "l0")]
OF_GELU = [tensor("r", [1.4142135], ()), tensor("i", [1.0], ()), tensor("h", [0.5], ()), weight("w", 3, 3), weight("z", 3)]


@pytest.mark.parametrize("formula, weights, passes, opset", [
    (SCALED, NORMAL, "FoldNormIntoLinear FoldScaleIntoLinear", 16),
    (ROOTS, NORMAL, "FoldNormIntoLinear FoldScaleIntoLinear", 17),
    (GELU, OF_GELU, "FoldScaleIntoLinear", 19)], ids=["norm", "root-mean-square", "gelu"])
def test_a_formula_keeps_what_runtimes_find_it_by(shared, formula, weights, passes, opset):
    """Until the opset has the operator: they compute such a formula as one, and would not without its scale."""
    nodes = [*formula, node("MatMul", "l0 w", "a"), node("Add", "a z", "y")]
    data = made_of(graph(nodes, [X3], [unshaped("y")], weights), opset=opset)
    assert fused(shared, data, passes) == ([part(one, 1, 4)[0].decode() for one in nodes], {"opset-too-old"})
