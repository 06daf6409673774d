"""Resizing by interpolation: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import itertools

import recorder as base
import torch
from recorder import FLOATS, STRIDES, Recorder, edges, short, strided

INTERPOLATE, ATEN = "torch.nn.functional.interpolate", "torch.ops.aten."
CLOSE = dict(ulps=16, absolute=1e-5)  # positions are counted in float32, and a cubic is steep
SPATIAL = {1: (7,), 2: (5, 6), 3: (2, 3, 3)}
SIZES = {1: [7, 14, 21, 5, 1, 23, (9,)], 2: [10, (10, 12), (15, 18), (5, 6), (3, 4), (1, 1), (13, 17), (5, 12), (11, 3)],
         3: [4, (4, 6, 5), (5, 2, 3), (1, 2, 1)]}
SCALES = {1: [2, 2.0, 3, 0.5, 1.7, 2.3, 0.37, 1.0], 2: [2, 3, 0.5, 1.7, 2.3, 0.37], 3: [2, 0.5, 1.7]}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def values(dtype, *shape, seed=0):
    """Few bits each: the file is small."""
    return (base.values(torch.float32, *shape, seed=seed) * 4).round().div(4).to(dtype)


def modes(spatial):
    """(mode, keywords)"""
    smooth = [LINEAR[spatial]] + ["bicubic"] * (spatial == 2)
    return [("nearest", {}), ("nearest-exact", {})] + [(m, k) for m in smooth
                                                       for k in ({}, {"align_corners": True}, {"align_corners": False})]


def functional(recorder, spatial):
    x = values(torch.float32, 1, 1 if spatial == 3 else 2, *SPATIAL[spatial])
    for mode, more in modes(spatial):
        keywords = [{"size": s} for s in SIZES[spatial]] + [{"scale_factor": s} for s in SCALES[spatial]]
        keywords += [{"scale_factor": s, "recompute_scale_factor": r} for s in (1.7, 2.3, 0.37)[: 4 - spatial]
                     for r in (True, False)]
        keywords += [{"scale_factor": (1.7, 2.3, 0.6)[:spatial]}, {"scale_factor": 0.05}, {"size": 0},
                     {"size": 3, "scale_factor": 2}, {}, {"size": 4, "recompute_scale_factor": True}, {"size": (2,) * 4}]
        for one in keywords:
            case = recorder.start(f"{mode} {spatial} {one} {more}")
            recorder.finish(case, case.call(INTERPOLATE, case.input(x), mode=mode, **one, **more), **CLOSE)
        for how in STRIDES:
            case = recorder.start(f"{mode} {spatial} {how} {more}")
            recorder.finish(case, case.call(INTERPOLATE, strided(case, x, how), scale_factor=2, mode=mode, **more), **CLOSE)
        for dtype in [*FLOATS, torch.int64, torch.uint8]:
            case = recorder.start(f"{mode} {spatial} {short(dtype)} {more}")
            y = case.call(INTERPOLATE, case.input(values(dtype, 2, 1, *SPATIAL[spatial]).abs()), scale_factor=1.6,
                          mode=mode, **more)
            recorder.finish(case, y, refused=not dtype.is_floating_point, **CLOSE)
        for shape in ((0, 2, *SPATIAL[spatial]), (2, 0, *SPATIAL[spatial]), (1, 1, *SPATIAL[spatial][:-1], 0), SPATIAL[spatial],
                      (1, 1, *[1] * spatial)):
            case = recorder.start(f"{mode} {spatial} of {shape} {more}")
            recorder.finish(case, case.call(INTERPOLATE, case.input(values(torch.float32, *shape)), scale_factor=2, mode=mode,
                                            **more), **CLOSE)
    case = recorder.start(f"nearest {spatial} of odd values")
    odd = edges(torch.float32).reshape({1: (1, 1, 20), 2: (1, 1, 4, 5), 3: (1, 1, 2, 2, 5)}[spatial])
    recorder.finish(case, case.call(INTERPOLATE, case.input(odd), None, 2))


def rounding(recorder):
    """Where float32's rounding decides."""
    long = torch.arange(301.0).reshape(1, 1, 301)
    for size, mode in itertools.product((903, 907, 2107, 100, 43), ("nearest", "nearest-exact")):
        case = recorder.start(f"{mode} of many, {size}")
        recorder.finish(case, case.call(INTERPOLATE, case.input(long), size=size, mode=mode))


def layers(recorder):
    for spatial in SPATIAL:
        x = values(torch.float32, 1, 2, *SPATIAL[spatial])
        for mode, more in modes(spatial):
            for one in ({"size": 9}, {"scale_factor": 2}, {"scale_factor": 1.7},
                        {"scale_factor": 1.7, "recompute_scale_factor": True}):
                case = recorder.start(f"Upsample {mode} {spatial} {one} {more}")
                recorder.finish(case, case.module("Upsample", {**one, "mode": mode, **more}, case.input(x)), **CLOSE)
    x = values(torch.float32, 1, 2, 5, 6)
    for layer, one in itertools.product(("UpsamplingNearest2d", "UpsamplingBilinear2d"),
                                        ({"size": 9}, {"size": (9, 4)}, {"scale_factor": 2}, {"scale_factor": (1.7, 2.3)})):
        case = recorder.start(f"{layer} {one}")
        recorder.finish(case, case.module(layer, one, case.input(x)), **CLOSE)
        case = recorder.start(f"{layer} {one} of three dimensions")
        recorder.finish(case, case.module(layer, one, case.input(x[0])), **CLOSE)


def aten(recorder):
    nearest = [(f"upsample_nearest{d}d", d) for d in SPATIAL] + [(f"_upsample_nearest_exact{d}d", d) for d in SPATIAL]
    smooth = [("upsample_linear1d", 1), ("upsample_bilinear2d", 2), ("upsample_bicubic2d", 2), ("upsample_trilinear3d", 3)]
    for name, spatial in nearest + smooth:
        x = values(torch.float32, 1, 2, *SPATIAL[spatial])
        size = [9, 4, 11][:spatial]
        for corners in ([],) if (name, spatial) in nearest else ([True], [False]):
            for scale in ([], [1.7, 2.3, 0.6][:spatial], [None, 2.0, None][:spatial]):
                case = recorder.start(f"{name} {corners} {scale}")
                recorder.finish(case, case.call(f"{ATEN}{name}.default", case.input(x), size, *corners, *scale), **CLOSE)
            for sizes, scale in ((size, None), (None, [1.7, 2.3, 0.6][:spatial]), (None, None), (size, [2.0] * spatial)):
                case = recorder.start(f"{name}.vec {corners} {sizes} {scale}")
                recorder.finish(case, case.call(f"{ATEN}{name}.vec", case.input(x), sizes, *corners, scale), **CLOSE)


def refused(recorder):
    x = values(torch.float32, 1, 2, 5, 6)
    for keywords in ({"mode": "area"}, {"mode": "bilinear", "antialias": True}, {"mode": "bicubic", "antialias": True}):
        case = recorder.start(f"not evaluated: {keywords}")
        recorder.finish(case, case.call(INTERPOLATE, case.input(x), size=9, **keywords), refused=True)
    for mode in ("linear", "trilinear", "nearest2d"):
        case = recorder.start(f"no such mode: {mode}")
        recorder.finish(case, case.call(INTERPOLATE, case.input(x), size=9, mode=mode))
    case = recorder.start("nearest with corners")
    recorder.finish(case, case.call(INTERPOLATE, case.input(x), size=9, align_corners=False))


def main(recorder):
    for spatial in SPATIAL:
        functional(recorder, spatial)
    rounding(recorder)
    layers(recorder)
    aten(recorder)
    refused(recorder)


if __name__ == "__main__":
    recorder = Recorder("upsample")
    main(recorder)
    recorder.write()
