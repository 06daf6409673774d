"""unfold and fold of images: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import itertools

import torch
from recorder import FLOATS, STRIDES, Recorder, short, strided, values

UNFOLD, FOLD = "torch.nn.functional.unfold", "torch.nn.functional.fold"
CLOSE = dict(ulps=8, absolute=1e-6)
WINDOWS = [
    dict(kernel_size=2), dict(kernel_size=(2, 3)), dict(kernel_size=3, padding=1), dict(kernel_size=2, stride=2),
    dict(kernel_size=2, dilation=2),
    dict(kernel_size=(3, 2), dilation=(1, 2), padding=(2, 1), stride=(2, 1)), dict(kernel_size=1),
    dict(kernel_size=2, padding=3, stride=4),
]
WRONG = [dict(kernel_size=9), dict(kernel_size=0), dict(kernel_size=2, stride=0), dict(kernel_size=2, dilation=0),
         dict(kernel_size=2, padding=-1)]


def main(recorder):
    image = values(torch.float32, 2, 3, 5, 6)
    for window, shape in itertools.product(WINDOWS + WRONG, ((2, 3, 5, 6), (3, 5, 6))):
        x = values(torch.float32, *shape)
        case = recorder.start(f"unfold {window} of {shape}")
        recorder.finish(case, case.call(UNFOLD, case.input(x), **window))
        size = dict(kernel_size=2, dilation=1, padding=0, stride=1) | window
        pairs = [[v, v] if isinstance(v, int) else list(v) for v in size.values()]
        case = recorder.start(f"im2col {window} of {shape}")
        recorder.finish(case, case.call("torch.ops.aten.im2col.default", case.input(x), *pairs))
        if window in WRONG:
            case = recorder.start(f"fold {window} of {shape}")
            recorder.finish(case, case.call(FOLD, case.input(values(torch.float32, 2, 12, 20)), output_size=(5, 6), **window))
            continue
        columns = values(torch.float32, *torch.nn.functional.unfold(x, **window).shape, seed=3)
        case = recorder.start(f"fold {window} to {shape}")
        recorder.finish(case, case.call(FOLD, case.input(columns), output_size=(5, 6), **window), **CLOSE)
        case = recorder.start(f"col2im {window} to {shape}")
        recorder.finish(case, case.call("torch.ops.aten.col2im.default", case.input(columns), [5, 6], *pairs), **CLOSE)
        case = recorder.start(f"Unfold {window} of {shape}")
        recorder.finish(case, case.module("Unfold", window, case.input(x)))
        case = recorder.start(f"Fold {window} to {shape}")
        recorder.finish(case, case.module("Fold", {"output_size": (5, 6), **window}, case.input(columns)), **CLOSE)
    for how in STRIDES:
        case = recorder.start(f"unfold {how}")
        recorder.finish(case, case.call(UNFOLD, strided(case, image, how), 2))
        case = recorder.start(f"fold {how}")
        recorder.finish(case, case.call(FOLD, strided(case, values(torch.float32, 2, 12, 20), how), (5, 6), 2), **CLOSE)
    for dtype in [*FLOATS, torch.int64]:
        case = recorder.start(f"unfold {short(dtype)}")
        recorder.finish(case, case.call(UNFOLD, case.input(values(dtype, 1, 2, 4, 4)), 2), refused=not dtype.is_floating_point)
        case = recorder.start(f"fold {short(dtype)}")
        recorder.finish(case, case.call(FOLD, case.input(values(dtype, 1, 8, 4)), (4, 4), 2, stride=2),
                        refused=not dtype.is_floating_point, **CLOSE)
    for shape in ((0, 3, 5, 6), (2, 0, 5, 6), (2, 3, 0, 6), (5, 6), (1, 1, 1, 5, 6)):
        case = recorder.start(f"unfold of {shape}")
        recorder.finish(case, case.call(UNFOLD, case.input(values(torch.float32, *shape)), 2, padding=1))
    for shape, size in (((0, 12, 20), (5, 6)), ((2, 13, 20), (5, 6)), ((2, 12, 21), (5, 6)), ((12,), (5, 6)),
                        ((2, 0, 20), (5, 6)), ((2, 12, 20), (0, 6))):
        case = recorder.start(f"fold of {shape} to {size}")
        recorder.finish(case, case.call(FOLD, case.input(values(torch.float32, *shape)), size, 2))


if __name__ == "__main__":
    recorder = Recorder("patches")
    main(recorder)
    recorder.write()
