"""Pooling: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import itertools

import recorder as base
import torch
from recorder import FLOATS, STRIDES, Recorder, edges, short, strided

ATEN = "torch.ops.aten."
CLOSE = dict(ulps=4, absolute=1e-6)
SPATIAL = {1: (11,), 2: (5, 8), 3: (4, 3, 5)}
MAX = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "dilation": 2}, {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True}, {"kernel_size": 2, "padding": 2},
    {"kernel_size": 20},
    {"kernel_size": 2, "stride": 0}, {"kernel_size": 4, "stride": 5, "padding": 2, "ceil_mode": True},
]
AVERAGE = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False}, {"kernel_size": 20},
    {"kernel_size": 4, "stride": 5, "padding": 2, "ceil_mode": True}, {"kernel_size": 2, "padding": 2},
]


def values(dtype, *shape, seed=0):
    """Few bits each: the file is small."""
    return (base.values(torch.float32, *shape, seed=seed) * 4).round().div(4).to(dtype)


def main(recorder):
    for spatial, is_max in itertools.product((1, 2, 3), (True, False)):
        name, kind = f"{'max' if is_max else 'avg'}_pool{spatial}d", f"{'Max' if is_max else 'Avg'}Pool{spatial}d"
        x = values(torch.float32, 2, 3, *SPATIAL[spatial])
        for keywords in MAX if is_max else AVERAGE:
            case = recorder.start(f"{name} {keywords}")
            recorder.finish(case, case.call(f"torch.nn.functional.{name}", case.input(x), **keywords), **CLOSE)
            case = recorder.start(f"{kind} {keywords}")
            recorder.finish(case, case.module(kind, keywords, case.input(x[0])), **CLOSE)
        case = recorder.start(f"aten.{name}")
        recorder.finish(case, case.call(f"{ATEN}{name}.default", case.input(x), [3] * spatial, [2] * spatial, [1] * spatial),
                        **CLOSE)
        case = recorder.start(f"aten.{name} without a stride")
        recorder.finish(case, case.call(f"{ATEN}{name}.default", case.input(x), [2] * spatial), **CLOSE)
        case = recorder.start(f"{name} by position")
        recorder.finish(case, case.call(f"torch.nn.functional.{name}", case.input(x), 3, 2, 1), **CLOSE)
        for how in STRIDES:
            case = recorder.start(f"{name} {how}")
            recorder.finish(case, case.call(f"torch.nn.functional.{name}", strided(case, x, how), 2), **CLOSE)
        for dtype in [*FLOATS, torch.int64, torch.int32]:
            if spatial == 3 and not is_max and dtype in (torch.float16, torch.bfloat16):
                continue  # PyTorch has it, but not on CPUs
            case = recorder.start(f"{name} {short(dtype)}")
            y = case.call(f"torch.nn.functional.{name}", case.input(values(dtype, 2, 3, *SPATIAL[spatial])), 2)
            recorder.finish(case, y, ulps=0 if is_max else 4, absolute=0 if is_max else 1e-6,
                            refused=not dtype.is_floating_point)
        case = recorder.start(f"{name} of odd values")
        odd = edges(torch.float32)
        shape = {1: (1, 20), 2: (1, 4, 5), 3: (1, 1, 4, 5)}[spatial]
        recorder.finish(case, case.call(f"torch.nn.functional.{name}", case.input(odd.reshape(shape)),
                                        (1,) * (spatial - 1) + (2,), 1), **CLOSE)
        for shape in ((0, 3, *SPATIAL[spatial]), (2, 0, *SPATIAL[spatial]), (2, 3, *SPATIAL[spatial][:-1], 0), SPATIAL[spatial],
                      (1, 1, *SPATIAL[spatial], 1)):
            case = recorder.start(f"{name} of {shape}")
            recorder.finish(case, case.call(f"torch.nn.functional.{name}", case.input(values(torch.float32, *shape)), 2),
                            **CLOSE)
        sizes = [1, 3, (2,) * spatial, (None,) * (spatial - 1) + (4,), 13, 0, -1]
        adaptive, layer = f"adaptive_{name}", f"Adaptive{kind}"
        for size, shape in itertools.product(sizes, ((2, 3, *SPATIAL[spatial]), (3, *SPATIAL[spatial]))):
            case = recorder.start(f"{adaptive} {size} {shape}")
            recorder.finish(case, case.call(f"torch.nn.functional.{adaptive}", case.input(values(torch.float32, *shape)), size),
                            **CLOSE)
            case = recorder.start(f"{layer} {size} {shape}")
            recorder.finish(case, case.module(layer, {"output_size": size}, case.input(values(torch.float32, *shape))), **CLOSE)
        for how in STRIDES:
            case = recorder.start(f"{adaptive} {how}")
            recorder.finish(case, case.call(f"torch.nn.functional.{adaptive}", strided(case, x, how), 2), **CLOSE)
        # Only a mean takes any number of dimensions
        for shape in (SPATIAL[spatial], (2, 1, 2, *SPATIAL[spatial]), SPATIAL[spatial][1:]):
            for size in (1, 2, (1,) * (spatial - 1) + (2,)):
                case = recorder.start(f"{adaptive} {size} of {shape}")
                recorder.finish(case, case.call(f"torch.nn.functional.{adaptive}", case.input(values(torch.float32, *shape)),
                                                size), **CLOSE)
        if not is_max:
            case = recorder.start(f"aten.{adaptive}")
            recorder.finish(case, case.call(f"{ATEN}{adaptive}.default", case.input(x), [2] * spatial), **CLOSE)
        case = recorder.start(f"{adaptive} of nothing")
        recorder.finish(case, case.call(f"torch.nn.functional.{adaptive}",
                                        case.input(values(torch.float32, 2, 3, *SPATIAL[spatial][:-1], 0)), 2), **CLOSE)
    x = values(torch.float32, 2, 3, 5, 8)
    for keywords in ({"kernel_size": (2, 3)}, {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0)},
                     {"kernel_size": [2, 2], "stride": [2]}, {"kernel_size": (2, 2, 2)}):
        for name in ("max_pool2d", "avg_pool2d"):
            case = recorder.start(f"{name} {keywords}")
            recorder.finish(case, case.call(f"torch.nn.functional.{name}", case.input(x), **keywords), **CLOSE)
    for divisor in (1, 3, -2, 0):
        case = recorder.start(f"divisor {divisor}")
        recorder.finish(case, case.call("torch.nn.functional.avg_pool2d", case.input(x), 3, 2, 1, divisor_override=divisor),
                        **CLOSE)
    for item in range(2):
        case = recorder.start(f"indices {item}")
        y = case.call("torch.nn.functional.max_pool2d", case.input(x), 2, return_indices=True)
        recorder.finish(case, case.call("operator.getitem", y, item), **CLOSE)
        for given in ([3, 3], [2, 2], [1, 1]), ([2, 2], [1, 2], [0, 0], [1, 1], True), ([2, 2],):
            for what in ("nan", "ties"):
                z = x.clone()
                z[0, 0, 1, 1:3] = torch.nan if what == "nan" else 9
                case = recorder.start(f"max_pool2d_with_indices {given} {what} {item}")
                y = case.call(ATEN + "max_pool2d_with_indices.default", case.input(z), *given)
                recorder.finish(case, case.call("operator.getitem", y, item), **CLOSE)
        case = recorder.start(f"max_pool3d_with_indices {item}")
        y = case.call(ATEN + "max_pool3d_with_indices.default", case.input(values(torch.float32, 2, 3, 4, 5, 6)),
                      [2, 2, 2], [1, 2, 1])
        recorder.finish(case, case.call("operator.getitem", y, item), **CLOSE)


if __name__ == "__main__":
    recorder = Recorder("pool")
    main(recorder)
    recorder.write()
