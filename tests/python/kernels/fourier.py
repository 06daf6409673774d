"""torch.fft: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import COMPLEX, STRIDES, Recorder, short, strided, values

CLOSE = dict(ulps=64, absolute=2e-5)
REAL = [torch.float32, torch.float64]
LINES = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"]
OF_REAL = ("rfft", "ihfft", "rfftn", "rfft2")
OF_COMPLEX = ("irfft", "hfft", "irfftn", "irfft2")
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 64, 100]


def dtypes_of(name):
    return REAL if name in OF_REAL else COMPLEX if name in OF_COMPLEX else REAL + COMPLEX


def main(recorder):
    def one(name, function, tensor, *args, how="plain", prefix="torch.fft.", refused=False, **kwargs):
        case = recorder.start(name)
        target = prefix + function + (".default" if "aten" in prefix else "")
        made = case.call(target, strided(case, tensor, how), *args, **kwargs)
        recorder.finish(case, made, refused=refused, **CLOSE)

    for name in LINES:
        for dtype in dtypes_of(name):
            for length in LENGTHS:
                one(f"{name} of {length} {short(dtype)}", name, values(dtype, 2, length))
            for norm in ("backward", "ortho", "forward"):
                one(f"{name} {norm} {short(dtype)}", name, values(dtype, 2, 6), norm=norm)
            for n in (1, 3, 6, 9):
                one(f"{name} n={n} {short(dtype)}", name, values(dtype, 2, 6), n)
                one(f"aten {name} n={n} {short(dtype)}", f"fft_{name}", values(dtype, 2, 6), n, prefix="torch.ops.aten.")
            for dim in (0, 1, -2):
                one(f"{name} dim={dim} {short(dtype)}", name, values(dtype, 3, 4, 2), dim=dim)
        for how in STRIDES:
            one(f"{name} {how}", name, values(dtypes_of(name)[0], 4, 6), how=how)
        one(f"{name} of nothing", name, values(dtypes_of(name)[0], 2, 0))
        one(f"{name} of no lines", name, values(dtypes_of(name)[0], 0, 4))
        one(f"{name} n=0", name, values(dtypes_of(name)[0], 2, 4), 0)
        one(f"{name} of a number", name, values(dtypes_of(name)[0]))
        one(f"{name} of ints", name, values(torch.int64, 2, 6))
        one(f"{name} of bools", name, values(torch.bool, 2, 6))
        one(f"{name} of half", name, values(torch.float16, 2, 6))
        one(f"{name} another norm", name, values(dtypes_of(name)[0], 2, 6), norm="none")
        one(f"{name} a dimension too many", name, values(dtypes_of(name)[0], 2, 6), dim=2)
        one(f"{name} of the other kind", name, values(torch.float32 if name in OF_COMPLEX else torch.complex64, 2, 6))
    for name in MANY:
        for dtype in dtypes_of(name):
            for shape in ((2, 3, 4), (5, 6), (1, 7)):
                one(f"{name} of {shape} {short(dtype)}", name, values(dtype, *shape))
            for norm in ("backward", "ortho", "forward"):
                one(f"{name} {norm} {short(dtype)}", name, values(dtype, 3, 4), norm=norm)
            one(f"{name} s {short(dtype)}", name, values(dtype, 2, 3, 4), s=(4, 3))
            one(f"{name} s and dim {short(dtype)}", name, values(dtype, 2, 3, 4), s=(3, 5), dim=(0, 2))
            one(f"{name} s of -1 {short(dtype)}", name, values(dtype, 2, 3, 4), s=(-1, 2), dim=(1, 2))
            one(f"{name} dims in another order {short(dtype)}", name, values(dtype, 2, 3, 4), dim=(2, 0))
            one(f"aten {name} {short(dtype)}", f"fft_{name}", values(dtype, 2, 3, 4), prefix="torch.ops.aten.")
        one(f"{name} transposed", name, values(dtypes_of(name)[0], 2, 3, 4), how="transposed")
        one(f"{name} a dimension twice", name, values(dtypes_of(name)[0], 2, 3), dim=(1, 1))
        one(f"{name} too many sizes", name, values(dtypes_of(name)[0], 2, 3), s=(1, 2, 3))
        one(f"{name} of no dimension", name, values(dtypes_of(name)[0], 2, 3), dim=())
    for dtype in REAL:
        for normalization in (0, 1, 2):
            for onesided in (True, False):
                one(f"_fft_r2c {normalization} {onesided} {short(dtype)}", "_fft_r2c", values(dtype, 3, 5), [0, 1],
                    normalization, onesided, prefix="torch.ops.aten.")
    for dtype in COMPLEX:
        for normalization in (0, 1, 2):
            for forward in (True, False):
                one(f"_fft_c2c {normalization} {forward} {short(dtype)}", "_fft_c2c", values(dtype, 3, 5), [1, 0],
                    normalization, forward, prefix="torch.ops.aten.")
            for size in (4, 5):
                one(f"_fft_c2r {normalization} {size} {short(dtype)}", "_fft_c2r", values(dtype, 4, 3), [0, 1], normalization,
                    size, prefix="torch.ops.aten.")
    for name in ("fftshift", "ifftshift"):
        for dtype in (torch.float32, torch.complex64, torch.int64):
            one(f"{name} {short(dtype)}", name, values(dtype, 3, 4, 5))
        for dim in (0, -1, (0, 2), [1]):
            one(f"{name} dim={dim}", name, values(torch.float32, 3, 4, 5), dim=dim)
        one(f"aten {name}", f"fft_{name}", values(torch.float32, 3, 4), prefix="torch.ops.aten.")
    for name in ("fftfreq", "rfftfreq"):
        for n in (0, 1, 2, 5, 8):
            for how in ({}, {"d": 0.5}, {"d": 3, "dtype": torch.float64}):
                case = recorder.start(f"{name} {n} {how}")
                recorder.finish(case, case.call(f"torch.fft.{name}", n, **how), ulps=4)
    # what models do with them
    case = recorder.start("FNet: the real part of a transform of both dimensions")
    made = case.call("torch.fft.fftn", case.input(values(torch.float32, 2, 6, 8)), dim=(1, 2))
    recorder.finish(case, case.call("builtins.getattr", made, "real"), **CLOSE)
    case = recorder.start("a global filter: to frequencies, times a weight, and back")
    x = case.call("torch.fft.rfft2", case.input(values(torch.float32, 2, 6, 6, 3)), dim=(1, 2), norm="ortho")
    weight = case.call("torch.view_as_complex", case.input(values(torch.float32, 6, 4, 3, 2)))
    y = case.call("operator.mul", x, weight)
    recorder.finish(case, case.call("torch.fft.irfft2", y, s=(6, 6), dim=(1, 2), norm="ortho"), **CLOSE)
    case = recorder.start("a Fourier layer: the low frequencies times a weight, written into zeros")
    x = case.call("torch.fft.rfft", case.input(values(torch.float32, 2, 3, 16)))
    out = case.call("torch.zeros", 2, 4, 9, dtype=torch.complex64)
    low = case.call("operator.getitem", x, (slice(None), slice(None), slice(None, 5)))
    product = case.call("torch.einsum", "bix,iox->box", low, case.input(values(torch.complex64, 3, 4, 5)))
    case.call("operator.setitem", out, (slice(None), slice(None), slice(None, 5)), product)
    recorder.finish(case, case.call("torch.fft.irfft", out, n=16), **CLOSE)
    case = recorder.start("a convolution by frequencies")
    a = case.call("torch.fft.rfft", case.input(values(torch.float32, 2, 12)), n=24)
    b = case.call("torch.fft.rfft", case.input(values(torch.float32, 2, 12, seed=1)), n=24)
    y = case.call("torch.fft.irfft", case.call("operator.mul", a, b), n=24)
    recorder.finish(case, case.call("operator.getitem", y, (Ellipsis, slice(None, 12))), **CLOSE)


if __name__ == "__main__":
    recorder = Recorder("fourier")
    main(recorder)
    recorder.write()
