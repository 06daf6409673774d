"""Choices, limits, masks and functions of three operands: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import ALL, FLOATS, STRIDES, Recorder, edges, short, strided, values

F, D, H, B, L, I32, U, T = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
                          torch.bool)


def main(recorder):
    # where
    for dtype in ALL:
        for other in [F, L, T]:
            case = recorder.start(f"torch.where {short(dtype)} {short(other)}")
            c, x, y = case.input(values(T, 2, 3)), case.input(values(dtype, 2, 3)), case.input(values(other, 3, seed=1))
            recorder.finish(case, case.call("torch.where", c, x, y))
        for number in [0, 1.5, True]:
            case = recorder.start(f"torch.where {short(dtype)} {number!r}")
            recorder.finish(case, case.call("torch.where", case.input(values(T, 4)), case.input(values(dtype, 4)), number))
            case = recorder.start(f"torch.where {number!r} {short(dtype)}")
            recorder.finish(case, case.call("torch.where", case.input(values(T, 4)), number, case.input(values(dtype, 4))))
    for condition in [F, L, U]:
        case = recorder.start(f"torch.where with a condition of {short(condition)}")
        recorder.finish(case, case.call("torch.where", case.input(values(condition, 4)), case.input(values(F, 4)), 0.0),
                        refused=True)
    for shapes in [((2, 1), (1, 3), ()), ((3,), (2, 3), (1,)), ((), (2,), (2,)), ((0,), (0,), ()), ((2, 1), (3, 1), (1,))]:
        case = recorder.start(f"torch.where {shapes}")
        c, x, y = (case.input(values(d, *s, seed=i)) for i, (d, s) in enumerate(zip([T, F, F], shapes, strict=True)))
        recorder.finish(case, case.call("torch.where", c, x, y))
    for how in STRIDES:
        case = recorder.start(f"Tensor.where {how}")
        x, c = strided(case, values(F, 3, 4), how), strided(case, values(T, 3, 4), how)
        recorder.finish(case, case.method("where", x, c, case.input(values(F, 3, 4, seed=9))))
    case = recorder.start("aten.where.self")
    recorder.finish(case, case.call("torch.ops.aten.where.self", case.input(values(T, 4)), case.input(values(F, 4)),
                                    case.input(values(F, 4, seed=2))))
    case = recorder.start("torch.where of two numbers")
    recorder.finish(case, case.call("torch.where", case.input(values(T, 4)), 1.0, 0.0))
    case = recorder.start("torch.where of two ints")
    recorder.finish(case, case.call("torch.where", case.input(values(T, 4)), 1, 0))
    # masked_fill
    for dtype in ALL:
        for value in [0, 2, -1.5, float("-inf"), True]:
            case = recorder.start(f"masked_fill {short(dtype)} {value!r}")
            x, m = case.input(values(dtype, 2, 3)), case.input(values(T, 3))
            recorder.finish(case, case.method("masked_fill", x, m, value))
    for dtype in FLOATS:
        case = recorder.start(f"masked_fill_ finfo.min {short(dtype)}")
        x = case.input(values(dtype, 2, 3))
        recorder.finish(case, x, case.method("masked_fill_", x, case.input(values(T, 2, 3)), torch.finfo(dtype).min))
    for shape, mask in [((3,), (2, 3)), ((2, 3), ()), ((), ()), ((0,), (0,)), ((2, 3), (4,))]:
        case = recorder.start(f"masked_fill {shape} {mask}")
        recorder.finish(case, case.call("torch.masked_fill", case.input(values(F, *shape)), case.input(values(T, *mask)), 7.0))
    for value in [values(F), values(D), values(L), values(F, 1)]:
        case = recorder.start(f"masked_fill with a tensor {short(value.dtype)} {tuple(value.shape)}")
        recorder.finish(case, case.call("torch.masked_fill", case.input(values(F, 3)), case.input(values(T, 3)),
                                        case.input(value)))
    case = recorder.start("masked_fill of a mask of uint8")
    recorder.finish(case, case.call("torch.masked_fill", case.input(values(F, 3)), case.input(values(U, 3)), 1.0))
    # triangles
    for name in ["triu", "tril"]:
        for dtype in [F, H, L, T]:
            for shape in [(3, 4), (4, 3), (2, 3, 3), (0, 3), (1, 1), (3,)]:
                for diagonal in [0, 1, -1, 5, -5]:
                    if diagonal and dtype != F:
                        continue
                    case = recorder.start(f"{name} {short(dtype)} {shape} {diagonal}")
                    x = case.input(values(dtype, *shape))
                    y = case.call(f"torch.{name}", x, diagonal=diagonal) if diagonal else case.method(name, x)
                    recorder.finish(case, y)
        case = recorder.start(f"{name} of a transposed one")
        recorder.finish(case, case.method(name, strided(case, values(F, 3, 5), "transposed"), 1))
        case = recorder.start(f"{name}_ in place of nan")
        x = case.input(torch.full((3, 3), float("nan")))
        recorder.finish(case, x, case.method(name + "_", x, -1))
    # clamp
    limits = [{"min": 0}, {"max": 1}, {"min": -1.0, "max": 1.0}, {"min": -1, "max": 2.5}, {"min": 2, "max": 1},
              {"min": float("nan")},
              {"min": None, "max": 1}, {}, {"min": float("-inf"), "max": 3}]
    for dtype in ALL:
        for limit in limits:
            case = recorder.start(f"torch.clamp {short(dtype)} {limit}")
            recorder.finish(case, case.call("torch.clamp", case.input(edges(dtype)), **limit))
    for dtype, other in [(F, F), (F, L), (L, F), (H, F), (L, L)]:
        case = recorder.start(f"clamp tensors {short(dtype)} {short(other)}")
        x, low, high = case.input(edges(dtype)), case.input(values(other, 1)), case.input(values(other).abs() + 1)
        recorder.finish(case, case.call("torch.clamp", x, low, high))
        case = recorder.start(f"clamp min=tensor {short(dtype)} {short(other)}")
        x, low = case.input(values(dtype, 2, 3)), case.input(values(other, 3, seed=1))
        recorder.finish(case, case.call("torch.clamp", x, min=low))
    for dtype, other in [(F, D), (L, D), (L, F), (H, L), (T, L)]:
        for first in [True, False]:
            case = recorder.start(f"clamp by a number and a tensor {short(dtype)} {short(other)} {first}")
            x, limit = case.input(edges(dtype)), case.input(values(other).abs())
            recorder.finish(case, case.call("torch.clamp", x, *([-1, limit] if first else [limit, 2.5])))
    case = recorder.start("clamp by a number and a tensor with dimensions")
    recorder.finish(case, case.call("torch.clamp", case.input(values(F, 3)), 0, case.input(values(F, 3))), refused=True)
    for name in ["clamp_min", "clamp_max"]:
        for dtype in [F, L]:
            for limit in [0, 0.5]:
                case = recorder.start(f"Tensor.{name} {short(dtype)} {limit}")
                recorder.finish(case, case.method(name, case.input(edges(dtype)), limit))
    for name in ["clamp", "clamp_min", "clamp_max"]:
        for kind, limit in [("number", True), ("scalar", torch.tensor(True)), ("tensor", torch.tensor([True, False]))]:
            case = recorder.start(f"{name} of bools by a {kind}")
            limit = case.input(limit) if isinstance(limit, torch.Tensor) else limit
            recorder.finish(case, case.method(name, case.input(values(T, 2)), limit))
    case = recorder.start("clip")
    recorder.finish(case, case.method("clip", case.input(edges(F)), -1, 1))
    case = recorder.start("clamp_ of ints by a float")
    x = case.input(values(L, 5))
    recorder.finish(case, x, case.method("clamp_", x, -1.5, 3))
    case = recorder.start("aten.clamp")
    recorder.finish(case, case.call("torch.ops.aten.clamp.default", case.input(edges(F)), None, 2))
    case = recorder.start("clamp with nan limits")
    recorder.finish(case, case.call("torch.clamp", case.input(values(F, 3)),
                                    case.input(torch.tensor([float("nan"), 0.0, 1.0]))))
    # three operands
    for name in ["addcmul", "addcdiv"]:
        for dtype in [*FLOATS, L]:
            for setting in [{}, {"value": 2}, {"value": -0.5}]:
                case = recorder.start(f"{name} {short(dtype)} {setting}")
                x, y = case.input(values(dtype, 2, 3)), case.input(values(dtype, 3, seed=1))
                z = case.input(values(dtype, 2, 1, seed=2).abs() + 1)
                recorder.finish(case, case.call(f"torch.{name}", x, y, z, **setting), ulps=4, absolute=1e-6, refused=dtype == L)
        case = recorder.start(f"{name}_")
        x = case.input(values(F, 2, 3))
        y = case.method(name + "_", x, case.input(values(F, 3)), case.input(values(F, 3, seed=4)), value=0.25)
        recorder.finish(case, x, y, ulps=4, absolute=1e-6)
    for dtype in [*FLOATS, L]:
        for weight in [0.0, 0.25, 0.5, 0.75, 1.0, 2]:
            case = recorder.start(f"lerp {short(dtype)} {weight}")
            recorder.finish(case, case.call("torch.lerp", case.input(values(dtype, 5)),
                                            case.input(values(dtype, 5, seed=1)), weight),
                            ulps=4, absolute=1e-6)
        case = recorder.start(f"lerp {short(dtype)} tensor")
        x, y, w = case.input(values(dtype, 2, 5)), case.input(values(dtype, 5, seed=1)), case.input(values(dtype, 2, 1, seed=2))
        recorder.finish(case, case.method("lerp", x, y, w), ulps=4, absolute=1e-6)
    for shape in [(), (1,)]:
        case = recorder.start(f"lerp by a weight of another dtype {shape}")
        recorder.finish(case, case.call("torch.lerp", case.input(values(F, 3)), case.input(values(F, 3, seed=1)),
                                        case.input(values(D, *shape))), ulps=4)
    case = recorder.start("lerp of two dtypes")
    recorder.finish(case, case.call("torch.lerp", case.input(values(F, 3)), case.input(values(D, 3)), 0.5))
    # prelu
    for dtype in FLOATS:
        for shape, slopes in [((2, 3, 4), 3), ((2, 3), 1), ((3,), 1), ((), 1), ((2, 3), 3), ((0, 3), 3),
                              ((2, 4), 3), ((3,), 3)]:
            case = recorder.start(f"prelu {short(dtype)} {shape} {slopes}")
            y = case.call("torch.nn.functional.prelu", case.input(values(dtype, *shape)),
                          case.input(values(dtype, slopes, seed=3)))
            recorder.finish(case, y, ulps=1)
    case = recorder.start("prelu of two dtypes")
    recorder.finish(case, case.call("torch.nn.functional.prelu", case.input(values(H, 2, 3)), case.input(values(F, 3))))
    case = recorder.start("nn.PReLU")
    y = case.module("PReLU", {"num_parameters": 3}, case.input(values(F, 2, 3, 2)), tensors={"weight": values(F, 3, seed=3)})
    recorder.finish(case, y, ulps=1)
    case = recorder.start("nn.PReLU of nan and inf")
    y = case.module("PReLU", {}, case.input(edges(F)), tensors={"weight": torch.tensor([0.0])})
    recorder.finish(case, y)


if __name__ == "__main__":
    recorder = Recorder("choice")
    main(recorder)
    recorder.write()
