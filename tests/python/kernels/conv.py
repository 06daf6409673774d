"""Convolutions: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import itertools

import recorder as base
import torch
from recorder import FLOATS, STRIDES, Recorder, short, strided

ATEN = "torch.ops.aten."
CLOSE = dict(ulps=32, absolute=2e-6)
SPATIAL = {1: (9,), 2: (5, 7), 3: (3, 4, 4)}
FORWARD = [
    {}, {"stride": 2}, {"padding": 1}, {"dilation": 2}, {"stride": 2, "padding": 1, "dilation": 2}, {"padding": "same"},
    {"padding": "valid"}, {"padding": "same", "dilation": 2},
    {"groups": 2}, {"groups": 4, "padding": 1}, {"padding": 5}, {"stride": 3, "groups": 2, "padding": 2},
    {"padding": "same", "stride": 2}, {"dilation": 9}, {"stride": 0}, {"padding": -1}, {"groups": 3},
]
BACKWARD = [
    {}, {"stride": 2}, {"padding": 1}, {"stride": 2, "output_padding": 1},
    {"stride": 3, "padding": 1, "output_padding": 2, "dilation": 2}, {"groups": 2}, {"groups": 4, "stride": 2},
    {"dilation": 2}, {"output_padding": 1}, {"stride": 2, "padding": 4},
]


def values(dtype, *shape, seed=0):
    """Few bits each: sums are exact, and the file is small."""
    return (base.values(torch.float32, *shape, seed=seed) * 4).round().div(4).to(dtype)


def weights(spatial, kernel, groups, is_back, channels=4, out=4):
    shape = (channels, out // groups) if is_back else (out, channels // groups)
    return values(torch.float32, *shape, *kernel), values(torch.float32, out)


def main(recorder):
    for spatial, is_back in itertools.product((1, 2, 3), (False, True)):
        name = f"conv{'_transpose' * is_back}{spatial}d"
        kernel = (3, 2, 3)[:spatial] if spatial > 1 else (3,)
        for number, keywords in enumerate(BACKWARD if is_back else FORWARD):
            groups = keywords.get("groups", 1)
            w, b = weights(spatial, kernel, groups if groups != 3 else 1, is_back)
            x = values(torch.float32, 2 if number < 3 else 1, 4, *SPATIAL[spatial])
            if spatial == 3 and number > 5:
                continue
            case = recorder.start(f"{name} {keywords}")
            recorder.finish(case, case.call(f"torch.nn.functional.{name}", *[case.input(item) for item in (x, w, b)],
                                            **keywords), **CLOSE)
            case = recorder.start(f"{name} {keywords} without bias or batch")
            recorder.finish(case, case.call(f"torch.{name}", case.input(x[0]), case.input(w), **keywords), **CLOSE)
            config = {"in_channels": 4, "out_channels": 4, "kernel_size": kernel if spatial > 1 else kernel[0], **keywords}
            try:
                getattr(torch.nn, f"Conv{'Transpose' * is_back}{spatial}d")(**config)
            except ValueError:
                continue
            if keywords.get("stride") == 0 or keywords.get("padding") == -1:
                continue  # no such module is in a document
            for bias in (True, False):
                case = recorder.start(f"module {name} {keywords} {bias}")
                kind = f"Conv{'Transpose' * is_back}{spatial}d"
                recorder.finish(case, case.module(kind, config | {"bias": bias}, case.input(x),
                                                  tensors={"weight": w, "bias": b}), **CLOSE)
        w, b = weights(spatial, kernel, 1, is_back)
        x = values(torch.float32, 1, 4, *SPATIAL[spatial])
        for how in STRIDES if spatial == 2 else STRIDES[:2]:
            case = recorder.start(f"{name} strides {how}")
            recorder.finish(case, case.call(f"torch.{name}", strided(case, x, how), strided(case, w, how), case.input(b)),
                            **CLOSE)
        case = recorder.start(f"aten.{name}")
        overload = "default" if spatial == 1 or not is_back else "input"
        options = [[2] * spatial, [1] * spatial]
        recorder.finish(case, case.call(f"{ATEN}{name}.{overload}", *[case.input(item) for item in (x, w, b)], *options),
                        **CLOSE)
        case = recorder.start(f"aten.convolution of {name}")
        options = [[2] * spatial, [1] * spatial, [1] * spatial, is_back, [0] * spatial, 1]
        recorder.finish(case, case.call(ATEN + "convolution.default", case.input(x), case.input(w), None, *options), **CLOSE)
        for wrong, (given, weight, bias) in {
            "channels": (x[:, :3], w, b), "a bias": (x, w, b[:3]), "dimensions": (x[0, 0], w, b), "dtypes": (x.double(), w, b),
            "a large kernel": (x[..., :1], w, b),
            "no batch": (x[:0], w, b), "no channels": (x[:, :0], w, b), "no columns": (x[..., :0], w, b),
            "no columns and no batch": (x[:0, ..., :0], w, b),
        }.items():
            case = recorder.start(f"{name}, {wrong}")
            recorder.finish(case, case.call(f"torch.{name}", *[case.input(item) for item in (given, weight, bias)]), **CLOSE)
        case = recorder.start(f"{name}, no columns, padded")
        recorder.finish(case, case.call(f"torch.{name}", *[case.input(item) for item in (x[..., :0], w, b)], 1,
                                        0 if is_back else 2), **CLOSE)
    x, w, b = values(torch.float32, 1, 4, 5, 6), values(torch.float32, 4, 4, 3, 3), values(torch.float32, 4)
    for keywords in ({"stride": (2, 1)}, {"padding": (0, 2)}, {"dilation": (1, 2)}, {"stride": [2, 3], "padding": [1, 0]},
                     {"stride": (1, 2, 3)}, {"padding": "other"}):
        case = recorder.start(f"conv2d {keywords}")
        recorder.finish(case, case.call("torch.nn.functional.conv2d", *[case.input(item) for item in (x, w, b)], **keywords),
                        **CLOSE)
    case = recorder.start("conv2d by keywords")
    recorder.finish(case, case.call("torch.nn.functional.conv2d", input=case.input(x), weight=case.input(w), stride=2), **CLOSE)
    for padding in ("same", "valid"):
        case = recorder.start(f"aten.conv2d.padding {padding}")
        recorder.finish(case, case.call(ATEN + "conv2d.padding", case.input(x), case.input(w), case.input(b), [1, 1], padding),
                        **CLOSE)
    for kernel, padding in (((1, 1), 0), ((1, 1), 1), ((2, 4), "same"), ((3, 3), 1), ((5, 5), 2)):
        case = recorder.start(f"depthwise {kernel} {padding}")
        recorder.finish(case, case.call("torch.conv2d", case.input(x), case.input(values(torch.float32, 8, 1, *kernel)),
                                        case.input(values(torch.float32, 8)), 1, padding, 1, 4), **CLOSE)
        case = recorder.start(f"kernel {kernel} {padding}")
        recorder.finish(case, case.call("torch.conv2d", case.input(x), case.input(values(torch.float32, 4, 4, *kernel)), None,
                                        1, padding), **CLOSE)
    for stride in (1, 2):
        case = recorder.start(f"depthwise, stride {stride}")
        recorder.finish(case, case.call("torch.conv2d", case.input(x), case.input(values(torch.float32, 4, 1, 3, 3)), None,
                                        stride, 1, 1, 4), **CLOSE)
    for dtype in [*FLOATS, torch.int64]:
        tolerance = dict(ulps=8, absolute=5e-2) if dtype in (torch.float16, torch.bfloat16) else CLOSE
        for name, weight in (("conv2d", w), ("conv_transpose2d", w.transpose(0, 1).contiguous())):
            case = recorder.start(f"{name} {short(dtype)}")
            recorder.finish(case, case.call(f"torch.{name}", *[case.input(item.to(dtype)) for item in (x, weight, b)]),
                            **tolerance, refused=not dtype.is_floating_point)
    for mode in ("reflect", "replicate", "circular"):
        case = recorder.start(f"padding mode {mode}")
        config = {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "padding": 1, "padding_mode": mode}
        recorder.finish(case, case.module("Conv2d", config, case.input(x), tensors={"weight": w, "bias": b}), **CLOSE)
        config = {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "padding": "same", "padding_mode": mode, "dilation": 2}
        case = recorder.start(f"padding mode {mode}, the same size")
        recorder.finish(case, case.module("Conv2d", config, case.input(x), tensors={"weight": w, "bias": b}), **CLOSE)
    case = recorder.start("an output size")
    config = {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "stride": 2}
    y = case.module("ConvTranspose2d", config, case.input(x), output_size=[12, 14],
                    tensors={"weight": values(torch.float32, 4, 4, 3, 3), "bias": b})
    recorder.finish(case, y, refused=True)


if __name__ == "__main__":
    recorder = Recorder("conv")
    main(recorder)
    recorder.write()
