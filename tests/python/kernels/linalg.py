"""Matrix functions: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import STRIDES, Recorder, short, strided, values

CLOSE = dict(ulps=64, absolute=1e-4)
WIDE = [torch.float32, torch.float64]
NOT_COMPUTED = [torch.float16, torch.bfloat16, torch.int64, torch.complex64]
BATCHES = [(), (3,), (2, 0), (2, 3)]


def close(dtype):
    return CLOSE if dtype == torch.float32 else dict(ulps=256, absolute=1e-10)


def matrices(dtype, *shape, scale=0.3, seed=0):
    return values(dtype, *shape, seed=seed) * scale


def well_posed(dtype, *batch, n):
    return matrices(dtype, *batch, n, n) + 3 * torch.eye(n, dtype=dtype)


def main(recorder):
    for dtype in [*WIDE, *NOT_COMPUTED]:
        refused = dtype in NOT_COMPUTED
        for name in ("torch.matrix_exp", "torch.linalg.matrix_exp", "torch.ops.aten.linalg_matrix_exp.default"):
            case = recorder.start(f"{name} {short(dtype)}")
            recorder.finish(case, case.call(name, case.input(values(dtype, 4, 4))), **close(dtype), refused=refused)
        for name in ("torch.linalg.householder_product", "torch.orgqr", "torch.ops.aten.linalg_householder_product.default"):
            case = recorder.start(f"{name} {short(dtype)}")
            recorder.finish(case, case.call(name, case.input(values(dtype, 5, 3)), case.input(values(dtype, 3, seed=2))),
                            **close(dtype), refused=refused)
        for name in ("torch.linalg.solve", "torch.ops.aten.linalg_solve.default"):
            case = recorder.start(f"{name} {short(dtype)}")
            recorder.finish(case, case.call(name, case.input(values(dtype, 3, 3)), case.input(values(dtype, 3, 2, seed=2))),
                            **close(dtype), refused=refused)
    for batch in BATCHES:
        for n in (0, 1, 2, 7):
            case = recorder.start(f"matrix_exp {batch} {n}")
            recorder.finish(case, case.method("matrix_exp", case.input(matrices(torch.float32, *batch, n, n))), **CLOSE)
        for m, n, count in ((5, 5, 5), (5, 3, 3), (5, 3, 1), (5, 3, 0), (1, 1, 1), (3, 0, 0), (3, 5, 3), (5, 3, 4)):
            case = recorder.start(f"householder_product {batch} {m} {n} {count}")
            arguments = [case.input(matrices(torch.float32, *batch, m, n)),
                         case.input(matrices(torch.float32, *batch, count, seed=3))]
            made = case.call("torch.linalg.householder_product", *arguments)
            recorder.finish(case, made, case.method("flatten", made), **CLOSE)
        for n, columns in ((5, 3), (3, 5), (1, 1), (4, 0), (0, 2)):
            case = recorder.start(f"solve {batch} {n} {columns}")
            arguments = [case.input(well_posed(torch.float32, *batch, n=n)),
                         case.input(values(torch.float32, *batch, n, columns))]
            recorder.finish(case, case.call("torch.linalg.solve", *arguments), **CLOSE)
    for how in STRIDES:
        case = recorder.start(f"matrix_exp {how}")
        recorder.finish(case, case.call("torch.matrix_exp", strided(case, matrices(torch.float32, 4, 4), how)), **CLOSE)
        case = recorder.start(f"solve {how}")
        a, b = strided(case, well_posed(torch.float32, n=4), how), strided(case, values(torch.float32, 4, 6), how)
        recorder.finish(case, case.call("torch.linalg.solve", a, b), **CLOSE)
        case = recorder.start(f"householder_product {how}")
        arguments = [strided(case, matrices(torch.float32, 4, 4), how), case.input(matrices(torch.float32, 4, seed=3))]
        recorder.finish(case, case.call("torch.linalg.householder_product", *arguments), **CLOSE)
    for scale in (1e-30, 1e-3, 5.0, 40.0):
        case = recorder.start(f"matrix_exp of a skew matrix times {scale}")
        x = values(torch.float64, 6, 6)
        recorder.finish(case, case.call("torch.matrix_exp", case.input((x - x.mT) * scale)), ulps=2**20, absolute=1e-8)
    for name, number in (("inf", float("inf")), ("nan", float("nan"))):
        case = recorder.start(f"matrix_exp of {name}")
        recorder.finish(case, case.call("torch.matrix_exp", case.input(torch.full((2, 2), number))), **CLOSE)
    case = recorder.start("matrix_exp of no matrices, whose sizes no number of elements can be made of")
    x = case.call("torch.ops.aten.expand.default", case.input(torch.ones(0, 1, 1)), [0, 2**32, 2**32])
    recorder.finish(case, case.call("torch.matrix_exp", x), refused=True)
    for shape in ((3,), (3, 4)):
        case = recorder.start(f"matrix_exp of {shape}")
        recorder.finish(case, case.call("torch.matrix_exp", case.input(values(torch.float32, *shape))))
    case = recorder.start("solve of a singular matrix")
    recorder.finish(case, case.call("torch.linalg.solve", case.input(torch.zeros(2, 2)), case.input(torch.ones(2, 2))))
    case = recorder.start("solve with rows exchanged")
    recorder.finish(case, case.call("torch.linalg.solve", case.input(torch.tensor([[0.0, 2.0], [1.0, 0.0]])),
                                    case.input(torch.eye(2))), **CLOSE)
    for left, shape in ((False, (2, 3)), (True, (3,))):
        case = recorder.start(f"solve left={left} {shape}")
        call = case.call("torch.linalg.solve", case.input(well_posed(torch.float32, n=3)),
                         case.input(values(torch.float32, *shape)), left=left)
        recorder.finish(case, call, refused=True)
    for layout in (torch.strided, torch.sparse_coo):
        case = recorder.start(f"zeros with layout {layout}")
        recorder.finish(case, case.call("torch.zeros", [2, 3], layout=layout), refused=layout is not torch.strided)


if __name__ == "__main__":
    recorder = Recorder("linalg")
    main(recorder)
    recorder.write()
