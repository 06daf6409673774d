"""Views: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import STRIDES, Recorder, short, strided, values

ATEN = "torch.ops.aten."
# name: (shape, arguments …)
METHODS = {
    "view": [((2, 6), (3, 4)), ((2, 6), (-1,)), ((2, 6), ((2, -1, 3),)), ((2, 0), (0, 5)), ((), (1, 1)), ((1,), ()),
             ((2, 3), (4, 2))]
    + [((2, 3), (-1, -1)), ((2, 0), (-1, 0)), ((4,), (-2, 2)), ((2, 3, 4), (6, 4)), ((2, 3, 4), (2, 12)), ((2, 3, 4), (3, 8))],
    "reshape": [((2, 6), (3, 4)), ((2, 6), (-1,)), ((2, 3, 4), (4, 6)), ((2, 0, 3), (0, -1)), ((), ()), ((2, 3), (7,)),
                ((6,), (1, 6, 1))],
    "flatten": [((2, 3, 4), ()), ((2, 3, 4), (1,)), ((2, 3, 4), (0, 1)), ((2, 3, 4), (-2, -1)), ((), ()), ((5,), (0, 0)),
                ((2, 3), (1, 0))],
    "unflatten": [((2, 6), (1, (2, 3))), ((2, 6), (-1, (-1, 2))), ((6,), (0, (2, 3))), ((2, 6), (1, (4, 2))),
                  ((2, 6), (0, (2,)))],
    "permute": [((2, 3, 4), (2, 0, 1)), ((2, 3, 4), ((0, -1, 1),)), ((), ()), ((2, 3), (0, 0)), ((2, 3), (0,)),
                ((2, 3), (0, 2))],
    "transpose": [((2, 3, 4), (0, 2)), ((2, 3, 4), (-1, -2)), ((5,), (0, 0)), ((), (0, 0)), ((), (-1, 0)), ((2, 3), (0, 2))],
    "swapaxes": [((2, 3, 4), (0, 1))], "swapdims": [((2, 3, 4), (-1, 0))],
    "t": [((2, 3), ()), ((3,), ()), ((), ()), ((2, 3, 4), ())],
    "movedim": [((2, 3, 4), (0, 2)), ((2, 3, 4), (-1, 0)), ((2, 3, 4, 5), ((0, 1), (2, 0))), ((2, 3), ((0, 0), (0, 1))),
                ((2, 3), ((0,), (0, 1)))],
    "moveaxis": [((2, 3, 4), (2, 0))],
    "unsqueeze": [((2, 3), (0,)), ((2, 3), (2,)), ((2, 3), (-1,)), ((2, 3), (-3,)), ((), (0,)), ((), (-1,)), ((2,), (2,)),
                  ((2,), (-3,)), ((0, 2), (1,))],
    "squeeze": [((1, 2, 1), ()), ((1, 2, 1), (0,)), ((1, 2, 1), (1,)), ((1, 2, 1), (-1,)), ((1, 2, 1), ((0, 2),)), ((), ()),
                ((), (0,)), ((2,), (1,)), ((1, 1), ())]
    + [((1, 2, 1), ((0, 0),))],
    "expand": [((1, 3), (4, 3)), ((3,), (2, 3)), ((3,), (2, -1)), ((1, 3), ((2, 5, 3),)), ((), (2, 2)), ((), ()),
               ((2, 3), (4, 3)), ((3,), (-1, 3)), ((1,), (0,))]
    + [((2, 3), (3,)), ((0, 1), (0, 4))],
    "broadcast_to": [((1, 3), ((2, 2, 3),))],
    "select": [((2, 3, 4), (1, 2)), ((2, 3, 4), (-1, -1)), ((5,), (0, 4)), ((5,), (0, 5)), ((5,), (0, -6)), ((), (0, 0)),
               ((2,), (1, 0))],
    "narrow": [((4, 5), (1, 1, 3)), ((4, 5), (-2, -3, 2)), ((4, 5), (0, 4, 0)), ((4, 5), (0, 2, 3)), ((4, 5), (0, 0, -1)),
               ((4, 5), (0, 5, 0)), ((), (0, 0, 0))],
    "split": [((7, 2), (3,)), ((7, 2), (7,)), ((7, 2), (9,)), ((2, 6), (2, 1)), ((2, 6), ([1, 2, 3], 1)),
              ((2, 6), ((6, 0), -1)), ((2, 6), ([1, 2], 1)), ((0, 2), (3,))]
    + [((6,), (0,)), ((0,), (0,)), ((6,), (-1,)), ((6,), ([7, -1],))],
    "split_with_sizes": [((2, 6), ([2, 4], 1)), ((6,), ([1, 5],)), ((6,), ([1, 4],))],
    "tensor_split": [((7, 2), (3,)), ((7, 2), (2, 1)), ((7, 2), ((2, 5),)), ((7,), ((0, 3, 9),)), ((7,), ((-2, 3),)),
                     ((2,), (5,)), ((7,), (0,))],
    "chunk": [((7, 2), (3,)), ((7, 2), (9,)), ((2, 6), (2, 1)), ((2, 6), (4, -1)), ((0, 2), (3,)), ((6,), (0,)), ((), (1,))],
    "unbind": [((2, 3), ()), ((2, 3), (1,)), ((2, 3), (-1,)), ((0, 3), ()), ((), ())],
    "unfold": [((8,), (0, 3, 2)), ((3, 8), (1, 4, 4)), ((3, 8), (-1, 8, 1)), ((8,), (0, 9, 1)), ((8,), (0, 3, 0)),
               ((), (0, 1, 1)), ((5, 2), (0, 2, 1))],
    "diagonal": [((3, 4), ()), ((3, 4), (1,)), ((3, 4), (-2,)), ((3, 4), (5,)), ((2, 3, 4), (0, 1, 2)), ((2, 3, 4), (1, 0, -1)),
                 ((3,), ()), ((3, 4), (0, 1, 1))],
    "contiguous": [((2, 3), ())], "ravel": [((2, 3), ()), ((), ())],
}
KEYWORDS = [
    ("reshape", (2, 6), {"shape": (3, 4)}), ("flatten", (2, 3, 4), {"start_dim": 1, "end_dim": 2}),
    ("permute", (2, 3, 4), {"dims": (1, 0, 2)}), ("transpose", (2, 3), {"dim0": 0, "dim1": 1}),
    ("unsqueeze", (2, 3), {"dim": -1}),
    ("squeeze", (1, 2), {"dim": 0}), ("narrow", (4, 5), {"dim": 1, "start": 1, "length": 2}),
    ("chunk", (7,), {"chunks": 3, "dim": 0}),
    ("select", (4, 5), {"dim": 1, "index": -1}), ("unbind", (2, 3), {"dim": 1}),
    ("movedim", (2, 3, 4), {"source": 0, "destination": 2}),
    ("unflatten", (2, 6), {"dim": 1, "sizes": (3, 2)}), ("diagonal", (2, 3, 4), {"offset": 1, "dim1": 1, "dim2": 2}),
]
OVERLOADS = [
    ("view.default", (2, 6), [3, 4]), ("_unsafe_view.default", (2, 6), [12]), ("reshape.default", (2, 6), [4, -1]),
    ("permute.default", (2, 3, 4), [2, 1, 0]), ("transpose.int", (2, 3, 4), 1, 2), ("t.default", (2, 3)),
    ("numpy_T.default", (2, 3, 4)),
    ("mT.default", (2, 3, 4)), ("adjoint.default", (2, 3, 4)), ("movedim.int", (2, 3, 4), 0, 1),
    ("movedim.intlist", (2, 3, 4), [0], [2]),
    ("unsqueeze.default", (2, 3), 1), ("squeeze.default", (1, 2, 1)), ("squeeze.dim", (1, 2, 1), 2),
    ("squeeze.dims", (1, 2, 1), [0, 1]),
    ("expand.default", (1, 3), [2, -1]), ("select.int", (2, 3), 1, -1), ("slice.Tensor", (5, 4)),
    ("slice.Tensor", (5, 4), 0, 1, 3),
    ("slice.Tensor", (5, 4), 0, -3, 9223372036854775807), ("slice.Tensor", (5, 4), 1, 0, 9, 2),
    ("slice.Tensor", (5, 4), 0, 4, 2),
    ("slice.Tensor", (5, 4), 0, None, None, 2), ("slice.Tensor", (5, 4), 0, 7, 9), ("slice.Tensor", (5, 4), 0, -9, -4),
    ("slice.Tensor", (5,), 0, 0, 5, 0),
    ("slice.Tensor", (), 0, 0, 1), ("split.Tensor", (7, 2), 3), ("split_with_sizes.default", (7, 2), [3, 4]),
    ("chunk.default", (7, 2), 2, 1),
    ("unbind.int", (2, 3), 1), ("flatten.using_ints", (2, 3, 4), 1), ("unflatten.int", (2, 6), 1, [2, 3]),
    ("unfold.default", (3, 8), 1, 3, 2),
    ("diagonal.default", (3, 3), 1), ("as_strided.default", (12,), [2, 3], [3, 1]),
    ("as_strided.default", (12,), [2, 2], [1, 2], 3),
    ("alias.default", (2, 3)), ("detach.default", (2, 3)),
]


def main(recorder):
    for name, rows in METHODS.items():
        for number, (shape, arguments) in enumerate(rows):
            for how in STRIDES if number < 4 and len(shape) > 1 else ["plain"]:
                case = recorder.start(f"Tensor.{name} {shape} {arguments} {how} {number}")
                recorder.finish(case, case.method(name, strided(case, values(torch.float32, *shape), how), *arguments))
        shape, arguments = rows[0]
        if hasattr(torch, name) and name not in ("view", "expand", "unfold", "contiguous"):
            function = f"torch.{name}"
            spread = (arguments,) if name in ("reshape", "permute") else arguments
            for dtype in (torch.float16, torch.int32, torch.bool):
                case = recorder.start(f"{function} {short(dtype)}")
                recorder.finish(case, case.call(function, case.input(values(dtype, *shape)), *spread))
    for name, shape, keywords in KEYWORDS:
        for spelling in ("method", "function"):
            if spelling == "function" and not hasattr(torch, name):
                continue
            case = recorder.start(f"{spelling} {name} by keywords")
            x = case.input(values(torch.float32, *shape))
            recorder.finish(case, case.method(name, x, **keywords) if spelling == "method"
                            else case.call(f"torch.{name}", input=x, **keywords))
    for number, (name, shape, *arguments) in enumerate(OVERLOADS):
        case = recorder.start(f"aten.{name} {shape} {arguments} {number}")
        y = case.call(ATEN + name, case.input(values(torch.float32, *shape)), *arguments)
        recorder.finish(case, y, refused=name.startswith("as_strided"))
    for how in STRIDES:
        case = recorder.start(f"view_as, reshape_as, expand_as {how}")
        x, other = strided(case, values(torch.float32, 2, 6), how), case.input(values(torch.float32, 4, 3))
        recorder.finish(case, case.method("reshape_as", x, other))
        case = recorder.start(f"view_as {how}")
        x, other = strided(case, values(torch.float32, 2, 6), how), case.input(values(torch.float32, 4, 3))
        recorder.finish(case, case.method("view_as", x, other))
    case = recorder.start("expand_as")
    recorder.finish(case, case.method("expand_as", case.input(values(torch.float32, 3, 1)),
                                      case.input(values(torch.int64, 2, 3, 4))))
    for name, config, shape in [
        ("Flatten", {}, (2, 3, 4)), ("Flatten", {"start_dim": 0}, (2, 3)),
        ("Flatten", {"start_dim": 1, "end_dim": 2}, (2, 3, 4, 5)),
        ("Flatten", {}, (3,)), ("Unflatten", {"dim": 1, "unflattened_size": (2, 3)}, (2, 6)),
        ("Unflatten", {"dim": -1, "unflattened_size": (2, -1)}, (2, 6)),
    ]:
        case = recorder.start(f"{name} {config} {shape}")
        recorder.finish(case, case.module(name, config, case.input(values(torch.float32, *shape))))
    # What is written through a view is seen by what it is a view of, and by its other views.
    for name, *arguments in [
        ("view", 6), ("reshape", 6), ("transpose", 0, 1), ("permute", 1, 0), ("unsqueeze", 0), ("squeeze",),
        ("narrow", 1, 1, 2), ("select", 0, 1),
        ("flatten",), ("t",), ("expand", 2, 3), ("detach",), ("contiguous",), ("diagonal",), ("unfold", 1, 2, 2),
        ("movedim", 0, 1), ("to", torch.float32),
        ("clone",), ("float",), ("unflatten", 1, (3, 1)), ("ravel",), ("view_as", None), ("type_as", None), ("double",),
        ("swapaxes", 0, 1),
    ]:
        for how in ("plain", "transposed"):
            case = recorder.start(f"written through {name} {how}")
            x = strided(case, values(torch.float32, 2, 3), how)
            part = case.method(name, x, *[x if item is None else item for item in arguments])
            case.method("mul_", part, 2.0)
            recorder.finish(case, x, part)
    for name, *arguments in [("split", 2, 1), ("chunk", 2), ("unbind",), ("split_with_sizes", [1, 2], 1),
                             ("tensor_split", 2, 1)]:
        case = recorder.start(f"written through {name}")
        x = case.input(values(torch.float32, 2, 3))
        parts = case.method(name, x, *arguments)
        case.method("add_", case.call("operator.getitem", parts, 1), 10.0)
        recorder.finish(case, x)
    for name, *arguments in [("transpose_", 0, 1), ("unsqueeze_", 0), ("squeeze_",), ("t_",), ("swapaxes_", 0, 1),
                             ("squeeze_", 0)]:
        case = recorder.start(f"in place {name} {arguments}")
        x = case.input(values(torch.float32, 2, 1))
        y = case.method(name, x, *arguments)
        case.method("add_", y, 1.0)
        recorder.finish(case, x, y)


if __name__ == "__main__":
    recorder = Recorder("view")
    main(recorder)
    recorder.write()
