"""Convolutions and Linears of oneDNN: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import recorder as base
import torch
from recorder import FLOATS, Recorder, short

CONVOLUTION, LINEAR = "torch.ops.mkldnn._convolution_pointwise.", "torch.ops.mkldnn._linear_pointwise."
ATTRIBUTES = [("none", [], ""), ("relu", [], ""), ("hardtanh", [0.0, 6.0], ""), ("hardtanh", [-0.5, 0.25], ""),
              ("swish", [], ""), ("hardswish", [], ""), ("gelu", [], "none"), ("gelu", [], "tanh")]
WINDOWS = [([0, 0], [1, 1], [1, 1], 1), ([1, 2], [2, 1], [1, 1], 1), ([2, 2], [1, 1], [2, 2], 2), ([1, 1], [1, 1], [1, 1], 4)]


def values(dtype, *shape, seed=0):
    """Few bits each: sums are exact, and the file is small."""
    return (base.values(torch.float32, *shape, seed=seed) * 4).round().div(4).to(dtype)


def close(dtype):
    return dict(ulps=1, absolute=1e-2) if dtype == torch.bfloat16 else dict(ulps=64, absolute=4e-6)


def main(recorder):
    for dtype in FLOATS:
        if dtype == torch.float16:
            continue  # PyTorch has it on some machines only
        is_refused = dict(refused=dtype == torch.float64)
        bias = values(dtype, 4, seed=2)
        for number, attribute in enumerate(ATTRIBUTES):
            for window in WINDOWS if number < 2 else WINDOWS[:1]:
                case = recorder.start(f"convolution {short(dtype)} {attribute} {window}")
                weight = values(dtype, 4, 4 // window[-1], 3, 3, seed=1)
                arguments = [case.input(values(dtype, 2, 4, 5, 6)), case.input(weight)]
                arguments.append(case.input(bias) if number % 2 else None)
                recorder.finish(case, case.call(CONVOLUTION + "default", *arguments, *window, *attribute), **close(dtype),
                                **is_refused)
        for attribute in ((None, [], ""), *([("relu", [], "")] if dtype != torch.bfloat16 else [])):
            case = recorder.start(f"sum {short(dtype)} {attribute}")
            arguments = [case.input(values(dtype, 2, 4, 5, 6)), case.input(values(dtype, 2, 4, 3, 4, seed=4)),
                         case.input(values(dtype, 4, 4, 3, 3, seed=1)), case.input(bias)]
            recorder.finish(case, case.call(CONVOLUTION + "binary", *arguments, *WINDOWS[0], "add", None, *attribute),
                            **close(dtype), **is_refused)
        for attribute in ATTRIBUTES[1:2] + ATTRIBUTES[6:]:
            for shape in ((5, 6), (2, 3, 6), (6,)):
                case = recorder.start(f"linear {short(dtype)} {attribute} {shape}")
                arguments = [case.input(values(dtype, *shape)), case.input(values(dtype, 4, 6, seed=1)), case.input(bias)]
                recorder.finish(case, case.call(LINEAR + "default", *arguments, *attribute), **close(dtype), **is_refused)


if __name__ == "__main__":
    recorder = Recorder("pointwise")
    main(recorder)
    recorder.write()
