"""Losses of element by element: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import FLOATS, STRIDES, Recorder, short, strided, values

F, D, L = torch.float32, torch.float64, torch.int64
REDUCTIONS = ["none", "mean", "sum"]  # in ATen's order
LOSSES = [("mse_loss", "MSELoss", [{}]), ("l1_loss", "L1Loss", [{}]),
          ("smooth_l1_loss", "SmoothL1Loss", [{}, {"beta": 0.25}, {"beta": 0.0}]),
          ("huber_loss", "HuberLoss", [{}, {"delta": 0.25}])]


def main(recorder):
    for name, kind, settings in LOSSES:
        target = f"torch.nn.functional.{name}"

        def both(case, one=(2, 5), other=(2, 5), dtype=F, of_other=None):
            return case.input(values(dtype, *one)), case.input(values(of_other or dtype, *other, seed=1))

        for dtype in FLOATS:
            ulps = 4 if dtype in (F, D) else 2
            for number, reduction in enumerate(REDUCTIONS):
                for setting in settings:
                    case = recorder.start(f"{name} {short(dtype)} {reduction} {setting}")
                    recorder.finish(case, case.call(target, *both(case, dtype=dtype), reduction=reduction, **setting),
                                    ulps=ulps, absolute=1e-6)
                    case = recorder.start(f"aten.{name} {short(dtype)} {reduction} {setting}")
                    recorder.finish(case, case.call(f"torch.ops.aten.{name}.default", *both(case, dtype=dtype), number,
                                                    *setting.values()), ulps=ulps, absolute=1e-6)
                    case = recorder.start(f"{kind} {short(dtype)} {reduction} {setting}")
                    recorder.finish(case, case.module(kind, {"reduction": reduction, **setting},
                                                      *both(case, dtype=dtype)), ulps=ulps, absolute=1e-6)
        case = recorder.start(f"{name} without a reduction")
        recorder.finish(case, case.call(target, *both(case)), ulps=4, absolute=1e-6)
        case = recorder.start(f"{name} of two dtypes")
        recorder.finish(case, case.call(target, *both(case, dtype=F, of_other=D)), ulps=4, absolute=1e-6,
                        refused=name == "huber_loss")
        for shapes in [((2, 1), (1, 3)), ((), (3,)), ((), ()), ((0, 3), (0, 3))]:
            case = recorder.start(f"{name} {shapes}")
            recorder.finish(case, case.call(target, *both(case, *shapes), reduction="none"), ulps=4, absolute=1e-6)
        case = recorder.start(f"{name} of nothing")
        recorder.finish(case, case.call(target, *both(case, (0,), (0,))))
        case = recorder.start(f"{name} of integers")
        recorder.finish(case, case.call(target, *both(case, dtype=L), reduction="none"), refused=True)
        for how in STRIDES:
            case = recorder.start(f"{name} {how}")
            x = strided(case, values(F, 3, 4), how)
            recorder.finish(case, case.call(target, x, case.input(values(F, 3, 4, seed=1)), reduction="none"), ulps=4,
                            absolute=1e-6)


if __name__ == "__main__":
    losses = Recorder("losses")
    main(losses)
    losses.write()
