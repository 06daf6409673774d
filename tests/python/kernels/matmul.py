"""Matrix products: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import FLOATS, STRIDES, Recorder, short, strided, values

ATEN = "torch.ops.aten."
CLOSE = dict(ulps=16, absolute=1e-6)
SHAPES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)), ((2, 3), (5, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((1, 2, 3), (5, 3, 1)), ((2, 0), (0, 3)), ((0, 3), (3, 2)),
    ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)),
    ((0, 2, 3), (0, 3, 4)), ((1, 1), (1, 1)), ((0,), (0,)), ((2, 3), (2, 3)), ((), (3,)), ((2, 3), ()), ((2, 2, 3), (3, 3, 4)),
    ((2,), (3,)), ((1, 3), (3, 1)),
]


def close(dtype):
    return dict(ulps=8, absolute=1e-2) if dtype in (torch.float16, torch.bfloat16) else CLOSE


def main(recorder):
    for one, other in SHAPES:
        for name in ("torch.matmul", "operator.matmul", ATEN + "matmul.default"):
            case = recorder.start(f"{name} {one} {other}")
            recorder.finish(case, case.call(name, case.input(values(torch.float32, *one)),
                                            case.input(values(torch.float32, *other, seed=4))), **CLOSE)
    for dtype in [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool]:
        case = recorder.start(f"Tensor.matmul {short(dtype)}")
        recorder.finish(case, case.method("matmul", case.input(values(dtype, 2, 4, 3)), case.input(values(dtype, 3, 5))),
                        **close(dtype))
        case = recorder.start(f"linear {short(dtype)}")
        arguments = [case.input(values(dtype, *shape)) for shape in ((2, 4, 3), (5, 3), (5,))]
        recorder.finish(case, case.call("torch.nn.functional.linear", *arguments), **close(dtype))
        case = recorder.start(f"addmm {short(dtype)}")
        arguments = [case.input(values(dtype, *shape)) for shape in ((5,), (2, 3), (3, 5))]
        recorder.finish(case, case.call("torch.addmm", *arguments), **close(dtype), refused=not dtype.is_floating_point)
    for one, other in ((torch.float64, torch.float16), (torch.int64, torch.float32), (torch.bool, torch.int32),
                       (torch.float16, torch.bfloat16)):
        for name in ("torch.outer", "torch.ger", ATEN + "outer.default"):
            case = recorder.start(f"{name} {short(one)} {short(other)}")
            recorder.finish(case, case.call(name, case.input(values(one, 3)), case.input(values(other, 4, seed=2))))
    for dtype in FLOATS:
        for rows, inputs, outputs in ((1, 32, 3), (5, 64, 8), (2, 16, 1), (0, 32, 4)):
            case = recorder.start(f"_weight_int8pack_mm {short(dtype)} {rows} {inputs} {outputs}")
            arguments = [case.input(values(dtype, rows, inputs)), case.input(values(torch.int8, outputs, inputs, seed=3)),
                         case.input(values(dtype, outputs, seed=5).abs())]
            tolerance = dict(ulps=16, absolute=1e-3) if dtype == torch.float32 else close(dtype)  # of sums of hundreds
            recorder.finish(case, case.call(ATEN + "_weight_int8pack_mm.default", *arguments), **tolerance,
                            refused=dtype == torch.float64)
        for rows, inputs, outputs, group_size in ((1, 32, 16, 32), (5, 128, 32, 64), (0, 32, 16, 32)):
            case = recorder.start(f"_weight_int4pack_mm_for_cpu {short(dtype)} {rows} {inputs} {outputs} {group_size}")
            numbers = values(torch.int32, outputs, inputs, seed=3) & 15
            packed = case.call(ATEN + "_convert_weight_to_int4pack_for_cpu.default", case.input(numbers), 1)
            scales = values(dtype, inputs // group_size, outputs, 2, seed=5)
            tolerance = dict(ulps=16, absolute=1e-3) if dtype == torch.float32 else close(dtype)
            arguments = [case.input(values(dtype, rows, inputs)), packed, group_size, case.input(scales)]
            recorder.finish(case, case.call(ATEN + "_weight_int4pack_mm_for_cpu.default", *arguments), **tolerance,
                            refused=dtype == torch.float64)
    case = recorder.start("two dtypes")
    recorder.finish(case, case.method("matmul", case.input(values(torch.float32, 2, 3)),
                                      case.input(values(torch.float64, 3, 2))))
    for left in STRIDES:
        for right in STRIDES:
            case = recorder.start(f"strides {left} {right}")
            x, y = strided(case, values(torch.float32, 4, 6), left), strided(case, values(torch.float32, 6, 5), right)
            recorder.finish(case, case.call("torch.matmul", x, y), **CLOSE)
            case = recorder.start(f"strides of batches {left} {right}")
            x, y = strided(case, values(torch.float32, 3, 4, 6), left), strided(case, values(torch.float32, 3, 6, 5), right)
            recorder.finish(case, case.call("torch.bmm", x, y), **CLOSE)
    for name, shapes in {
        "mm": [((2, 3), (3, 4)), ((2, 3), (2, 4)), ((2, 3), (3,)), ((0, 3), (3, 4))],
        "bmm": [((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (3, 4, 5)), ((3, 4), (4, 5)), ((2, 3, 0), (2, 0, 5))],
        "mv": [((2, 3), (3,)), ((2, 3), (2,)), ((2, 3), (3, 1)), ((2, 0), (0,))],
        "dot": [((3,), (3,)), ((0,), (0,)), ((3,), (4,)), ((3, 1), (3, 1))],
        "outer": [((3,), (4,)), ((0,), (4,)), ((3, 1), (4,))], "ger": [((3,), (2,))], "vdot": [((3,), (3,))],
    }.items():
        for one, other in shapes:
            for spelling in ("function", "method", "aten"):
                case = recorder.start(f"{spelling} {name} {one} {other}")
                x, y = case.input(values(torch.float32, *one)), case.input(values(torch.float32, *other, seed=2))
                found = (case.method(name, x, y) if spelling == "method"
                         else case.call(f"torch.{name}" if spelling == "function" else f"{ATEN}{name}.default", x, y))
                recorder.finish(case, found, **CLOSE)
    for name, shapes in {
        "addmm": [((2, 4), (2, 3), (3, 4)), ((4,), (2, 3), (3, 4)), ((), (2, 3), (3, 4)), ((3, 4), (2, 3), (3, 4)),
                  ((2, 1), (2, 0), (0, 4))],
        "baddbmm": [((2, 3, 5), (2, 3, 4), (2, 4, 5)), ((1, 5), (2, 3, 4), (2, 4, 5)), ((2, 3, 5), (2, 3, 4), (1, 4, 5))],
        "addmv": [((2,), (2, 3), (3,)), ((1,), (2, 3), (3,)), ((), (2, 3), (3,))],
    }.items():
        for group in shapes:
            for keywords in ({}, {"beta": 0.5, "alpha": 2.0}, {"beta": 0, "alpha": -1}, {"beta": 2}):
                for spelling in (f"torch.{name}", f"{ATEN}{name}.default"):
                    case = recorder.start(f"{spelling} {group} {keywords}")
                    arguments = [case.input(values(torch.float32, *shape, seed=i)) for i, shape in enumerate(group)]
                    recorder.finish(case, case.call(spelling, *arguments, **keywords), **CLOSE)
    for beta in (0, 1):
        case = recorder.start(f"addmm of nan, beta {beta}")
        nan = torch.full((2, 2), float("nan"))
        recorder.finish(case, case.call("torch.addmm", case.input(nan), case.input(torch.ones(2, 1)),
                                        case.input(torch.ones(1, 2)), beta=beta))
    case = recorder.start("nan, inf")
    odd = torch.tensor([[float("inf"), 0.0, 1.0], [float("nan"), 0.0, 1.0], [1.0, float("-inf"), 0.0]])
    recorder.finish(case, case.method("matmul", case.input(odd), case.input(torch.eye(3))))
    for given in ((3,), (2, 3), (2, 4, 3), (0, 3), (2, 0, 3), (2, 4), ()):
        for bias in (True, False):
            w, b, x = values(torch.float32, 5, 3), values(torch.float32, 5), values(torch.float32, *given)
            for spelling in ("torch.nn.functional.linear", ATEN + "linear.default"):
                case = recorder.start(f"{spelling} {given} {bias}")
                arguments = [case.input(item) for item in (x, w, *([b] if bias else []))]
                recorder.finish(case, case.call(spelling, *arguments), **CLOSE)
            case = recorder.start(f"Linear {given} {bias}")
            config = {"in_features": 3, "out_features": 5, "bias": bias}
            recorder.finish(case, case.module("Linear", config, case.input(x), tensors={"weight": w, "bias": b}), **CLOSE)
    for how in STRIDES:
        case = recorder.start(f"linear by keywords {how}")
        x = strided(case, values(torch.float32, 4, 3), how)
        recorder.finish(case, case.call("torch.nn.functional.linear", input=x, weight=case.input(values(torch.float32, 5, 3)),
                                        bias=None), **CLOSE)
    case = recorder.start("linear with a weight of one dimension")
    recorder.finish(case, case.call("torch.nn.functional.linear", case.input(values(torch.float32, 4, 3)),
                                    case.input(values(torch.float32, 3))), **CLOSE)
    for input, weight, bias in (((2, 4, 3), (5, 3), torch.float16), ((4, 3), (5, 3), torch.float16),
                                ((2, 2, 4, 3), (3,), torch.float64), ((3,), (5, 3), torch.int64)):
        case = recorder.start(f"linear {input} {weight} with one number of {short(bias)} as its bias")
        arguments = [case.input(values(dtype, *shape))
                     for dtype, shape in ((torch.float32, input), (torch.float32, weight), (bias, ()))]
        recorder.finish(case, case.call("torch.nn.functional.linear", *arguments), **close(torch.float16))
    case = recorder.start("linear, a bias that does not fit")
    recorder.finish(case, case.call("torch.nn.functional.linear", case.input(values(torch.float32, 4, 3)),
                                    case.input(values(torch.float32, 5, 3)), case.input(values(torch.float32, 4))))


if __name__ == "__main__":
    recorder = Recorder("matmul")
    main(recorder)
    recorder.write()
