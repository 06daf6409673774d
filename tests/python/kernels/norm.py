"""Normalisation: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import FLOATS, STRIDES, Recorder, short, strided, values

ATEN = "torch.ops.aten."
CLOSE = dict(ulps=16, absolute=2e-6)


def statistics(count):
    return values(torch.float32, count, seed=1), values(torch.float32, count, seed=2).abs() + 0.1


def batch(recorder):
    shapes = {"BatchNorm1d": [(4, 3), (2, 3, 5), (3,), (0, 3), (2, 3, 0), (2, 4, 5), (2, 3, 4, 5)],
              "BatchNorm2d": [(2, 3, 4, 5), (3, 4, 5), (0, 3, 2, 2), (2, 3, 1, 1), (2, 3)],
              "BatchNorm3d": [(2, 3, 2, 2, 3), (3, 2, 2, 3)]}
    weight, bias, (mean, variance) = values(torch.float32, 3), values(torch.float32, 3, seed=8), statistics(3)
    tensors = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": variance,
               "num_batches_tracked": torch.tensor(7)}
    for kind, group in shapes.items():
        for shape in group:
            for config in ({}, {"affine": False}, {"eps": 0.5, "momentum": None}):
                case = recorder.start(f"{kind} {shape} {config}")
                recorder.finish(case, case.module(kind, {"num_features": 3, **config},
                                                  case.input(values(torch.float32, *shape)), tensors=tensors), **CLOSE)
        case = recorder.start(f"{kind} in training")
        recorder.finish(case, case.module(kind, {"num_features": 3}, case.input(values(torch.float32, *group[1])),
                                          tensors=tensors, training=True), refused=True)
        case = recorder.start(f"{kind} without statistics")
        y = case.module(kind, {"num_features": 3, "track_running_stats": False}, case.input(values(torch.float32, *group[0])),
                        tensors=tensors)
        recorder.finish(case, y, **CLOSE)
    for shape in ((4, 3), (2, 3, 4, 5)):
        for how in STRIDES:
            case = recorder.start(f"batch_norm {shape} {how}")
            x = strided(case, values(torch.float32, *shape), how)
            recorder.finish(case, case.call("torch.nn.functional.batch_norm", x,
                                            *[case.input(item) for item in (mean, variance, weight, bias)]), **CLOSE)
    x = values(torch.float32, 2, 3, 4)
    for dtype in FLOATS:
        tolerance = dict(ulps=2, absolute=1e-3) if dtype in (torch.float16, torch.bfloat16) else CLOSE
        case = recorder.start(f"batch_norm {short(dtype)}")
        recorder.finish(case, case.call("torch.nn.functional.batch_norm",
                                        *[case.input(item.to(dtype)) for item in (x, mean, variance, weight, bias)]),
                        **tolerance)
        case = recorder.start(f"batch_norm {short(dtype)} of float32")
        y = case.call("torch.nn.functional.batch_norm", case.input(x.to(dtype)),
                      *[case.input(item) for item in (mean, variance, weight, bias)])
        recorder.finish(case, y, **tolerance)
    for number, (given, keywords) in enumerate([
        ((mean, variance), {}), ((mean, variance, weight), {}), ((mean, variance), {"weight": None, "bias": bias}),
        ((mean, variance, weight, bias), {"eps": 0.1, "training": False}),
        ((mean[:2], variance[:2]), {}), ((mean, variance, weight[:2]), {}),
    ]):
        case = recorder.start(f"functional.batch_norm {number}")
        keywords = {key: case.input(item) if isinstance(item, torch.Tensor) else item for key, item in keywords.items()}
        recorder.finish(case, case.call("torch.nn.functional.batch_norm", case.input(x), *[case.input(item) for item in given],
                                        **keywords), **CLOSE)
    for training in (False, True):
        for statistic in (True, False):
            case = recorder.start(f"aten.batch_norm {training} {statistic}")
            found = [case.input(mean), case.input(variance)] if statistic else [None, None]
            y = case.call(ATEN + "batch_norm.default", case.input(x), case.input(weight), case.input(bias), *found, training,
                          0.1, 1e-5, False)
            recorder.finish(case, y, refused=training and statistic, **CLOSE)
    for name, flag in {"_native_batch_norm_legit_no_training": (), "native_batch_norm": (False,),
                       "_native_batch_norm_legit": (False,)}.items():
        for affine in ((weight, bias), (None, bias), (None, None)):
            for item in range(3):
                case = recorder.start(f"aten.{name} {[part is None for part in affine]} {item}")
                given = [part if part is None else case.input(part) for part in (x, *affine, mean, variance)]
                y = case.call(f"{ATEN}{name}.default", *given, *flag, 0.1, 1e-5)
                recorder.finish(case, case.call("operator.getitem", y, item), **CLOSE)
    case = recorder.start("aten.native_batch_norm in training")
    y = case.call(ATEN + "native_batch_norm.default",
                  *[case.input(item) for item in (x, weight, bias, mean.clone(), variance.clone())], True, 0.1, 1e-5)
    recorder.finish(case, case.call("operator.getitem", y, 0), refused=True)


def native(recorder):
    x, (row, box) = values(torch.float32, 2, 6, 3, 4), (values(torch.float32, 4), values(torch.float32, 3, 4, seed=4))
    for item in range(3):
        for shape, affine in (([4], row), ([4], None), ([3, 4], box), ([3, 4], None), ([3], None)):
            case = recorder.start(f"aten.native_layer_norm {shape} {affine is None} {item}")
            given = [None, None] if affine is None else [case.input(affine), case.input(affine + 1)]
            y = case.call(ATEN + "native_layer_norm.default", case.input(x), shape, *given, 1e-5)
            recorder.finish(case, case.call("operator.getitem", y, item), **CLOSE)
        for groups in (2, 6, 4):
            case = recorder.start(f"aten.native_group_norm {groups} {item}")
            gains = values(torch.float32, 6)
            y = case.call(ATEN + "native_group_norm.default", case.input(x), case.input(gains), case.input(gains + 1), 2, 6,
                          12, groups, 1e-5)
            recorder.finish(case, case.call("operator.getitem", y, item), **CLOSE)


def layer(recorder):
    for shape, normal in [((4, 6), (6,)), ((2, 3, 6), (6,)), ((2, 3, 6), (3, 6)), ((6,), (6,)), ((0, 6), (6,)), ((2, 0), (0,)),
                          ((2, 6), (5,)), ((6,), (2, 6)), ((2, 1), (1,)), ((2, 6), ())]:
        weight, bias = values(torch.float32, *normal), values(torch.float32, *normal, seed=4)
        x = values(torch.float32, *shape)
        for given in ((), (weight,), (weight, bias), (None, bias)):
            for kind in ("layer_norm", "rms_norm"):
                if kind == "rms_norm" and len(given) > 1:
                    continue
                for spelling in (f"torch.nn.functional.{kind}", f"{ATEN}{kind}.default"):
                    case = recorder.start(f"{spelling} {shape} {normal} {[item is not None for item in given]}")
                    recorder.finish(case, case.call(spelling, case.input(x), list(normal),
                                                    *[None if item is None else case.input(item) for item in given]), **CLOSE)
        if not normal:
            continue
        for config in ({}, {"elementwise_affine": False}, {"eps": 0.1}, {"bias": False}):
            case = recorder.start(f"LayerNorm {shape} {normal} {config}")
            y = case.module("LayerNorm", {"normalized_shape": normal, **config}, case.input(x),
                            tensors={"weight": weight, "bias": bias})
            recorder.finish(case, y, **CLOSE)
            if "bias" in config:
                continue
            case = recorder.start(f"RMSNorm {shape} {normal} {config}")
            recorder.finish(case, case.module("RMSNorm", {"normalized_shape": normal, **config}, case.input(x),
                                              tensors={"weight": weight}), **CLOSE)
    for how in STRIDES:
        for kind in ("layer_norm", "rms_norm"):
            case = recorder.start(f"{kind} {how}")
            recorder.finish(case, case.call(f"torch.nn.functional.{kind}", strided(case, values(torch.float32, 4, 6), how),
                                            (6,), eps=1e-3), **CLOSE)
    for dtype in [*FLOATS, torch.int64]:
        tolerance = dict(ulps=2, absolute=1e-3) if dtype in (torch.float16, torch.bfloat16) else CLOSE
        for kind in ("layer_norm", "rms_norm"):
            for size in (6, 33):
                case = recorder.start(f"{kind} {short(dtype)} {size}")
                y = case.call(f"torch.nn.functional.{kind}", case.input(values(dtype, 4, size)), (size,),
                              case.input(values(dtype, size)))
                recorder.finish(case, y, refused=not dtype.is_floating_point, **tolerance)
    for kind in ("layer_norm", "rms_norm"):
        case = recorder.start(f"{kind} of odd rows")
        odd = torch.tensor([[1.0, float("nan"), 2.0], [float("inf"), 0.0, 1.0], [3.0, 3.0, 3.0], [0.0, 0.0, 0.0],
                            [10000.0, 10001.0, 10002.0]])
        recorder.finish(case, case.call(f"torch.nn.functional.{kind}", case.input(odd), (3,)), ulps=64, absolute=1e-6)
    for dtype in (torch.int32, torch.float64):  # PyTorch promotes
        case = recorder.start(f"rms_norm with a weight of {dtype}")
        x, weight = case.input(values(torch.float32, 2, 4)), case.input(torch.tensor([1, 2, 3, 4], dtype=dtype))
        recorder.finish(case, case.call("torch.nn.functional.rms_norm", x, (4,), weight), refused=True)


def groups(recorder):
    for shape in ((2, 6, 3), (2, 6), (1, 6, 2, 3), (0, 6, 3), (2, 5, 3), (2, 6, 0), (6,), (1, 6), (1, 6, 1)):
        weight, bias = values(torch.float32, 6), values(torch.float32, 6, seed=4)
        x = values(torch.float32, *shape)
        near = dict(ulps=16, absolute=2e-4 if shape == (2, 6) else 2e-6)  # where what is left of a difference is scaled by 300
        for count in (1, 2, 6, 4):
            case = recorder.start(f"group_norm {shape} {count}")
            recorder.finish(case, case.call("torch.nn.functional.group_norm", case.input(x), count, case.input(weight),
                                            case.input(bias)), **near)
            case = recorder.start(f"aten.group_norm {shape} {count}")
            recorder.finish(case, case.call(ATEN + "group_norm.default", case.input(x), count, None, case.input(bias), 1e-3,
                                            False), **near)
            if count == 4:
                continue
            for affine in (True, False):
                case = recorder.start(f"GroupNorm {shape} {count} {affine}")
                config = {"num_groups": count, "num_channels": 6, "affine": affine}
                recorder.finish(case, case.module("GroupNorm", config, case.input(x), tensors={"weight": weight, "bias": bias}),
                                **near)
    x, weight, bias = values(torch.float32, 2, 3, 8), values(torch.float32, 3), values(torch.float32, 3, seed=1)
    for shape in ((2, 3, 8), (2, 3, 2, 4), (3, 8), (2, 3, 1), (2, 3)):
        case = recorder.start(f"instance_norm {shape}")
        recorder.finish(case, case.call("torch.nn.functional.instance_norm", case.input(values(torch.float32, *shape))),
                        **CLOSE)
    for config in ({}, {"affine": True}, {"affine": True, "eps": 0.1}):
        for given in (x, x[0], x[:, :2]):
            case = recorder.start(f"InstanceNorm1d {config} {tuple(given.shape)}")
            recorder.finish(case, case.module("InstanceNorm1d", {"num_features": 3, **config}, case.input(given),
                                              tensors={"weight": weight, "bias": bias}), **CLOSE)
    case = recorder.start("InstanceNorm1d with statistics")
    mean, variance = statistics(3)
    tensors = {"running_mean": mean, "running_var": variance, "num_batches_tracked": torch.tensor(3)}
    recorder.finish(case, case.module("InstanceNorm1d", {"num_features": 3, "track_running_stats": True}, case.input(x),
                                      tensors=tensors), **CLOSE)
    case = recorder.start("instance_norm with weights")
    keywords = {"weight": case.input(weight), "bias": case.input(bias), "eps": 0.01}
    recorder.finish(case, case.call("torch.nn.functional.instance_norm", case.input(x), **keywords), **CLOSE)
    case = recorder.start("aten.instance_norm")
    y = case.call(ATEN + "instance_norm.default", case.input(x), case.input(weight), case.input(bias), None, None, True,
                  0.1, 1e-5, False)
    recorder.finish(case, y, **CLOSE)
    for dim in (0, 1, 2, -1):
        case = recorder.start(f"_weight_norm {dim}")
        v = values(torch.float32, 4, 3, 2)
        g = torch.norm_except_dim(v, 2, dim) if dim >= 0 else v.norm()
        recorder.finish(case, case.call("torch._weight_norm", case.input(v), case.input(g * 2), dim), **CLOSE)
        case = recorder.start(f"aten._weight_norm {dim}")
        recorder.finish(case, case.call(ATEN + "_weight_norm.default", case.input(v), case.input(g + 1), dim), **CLOSE)


def main(recorder):
    batch(recorder)
    native(recorder)
    layer(recorder)
    groups(recorder)


if __name__ == "__main__":
    recorder = Recorder("norm")
    main(recorder)
    recorder.write()
