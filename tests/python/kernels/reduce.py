"""Reductions, softmax, scans, sorting: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import ALL, FLOATS, STRIDES, Recorder, edges, short, strided, values

F, D, H, B, L, I32, U, T = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
                          torch.bool)
EXACT = {"amax", "amin", "argmax", "argmin", "all", "any", "count_nonzero", "max", "min"}
# float16 and bfloat16 are summed in float32 and rounded once, or twice
ULPS = {"prod": 8, "logsumexp": 8}


def near(name):
    return {} if name in EXACT else {"ulps": ULPS.get(name, 4), "absolute": 2e-6}


def main(recorder):
    names = ["sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "all", "any", "count_nonzero", "logsumexp",
             "max", "min", "var",
             "std", "norm"]
    for name in names:
        for dtype in ALL:
            if name == "logsumexp":
                continue
            case = recorder.start(f"torch.{name} {short(dtype)}")
            recorder.finish(case, case.call(f"torch.{name}", case.input(values(dtype, 3, 4))), **near(name))
            if dtype.is_floating_point:
                case = recorder.start(f"torch.{name} {short(dtype)} edges")
                x = edges(dtype)[:15] if name in EXACT or dtype != H else values(dtype, 5)
                recorder.finish(case, case.call(f"torch.{name}", case.input(x)), **near(name))
        for dtype in [F, H, L, T]:
            for dim in [0, 1, -1, 5]:
                case = recorder.start(f"Tensor.{name} {short(dtype)} dim={dim}")
                x = case.input(values(dtype, 3, 4))
                y = case.method(name, x, **({"p": 2} if name == "norm" else {}), dim=dim)
                recorder.finish(case, y, **near(name))
        for how in STRIDES:
            for dim in [0, 1]:
                if name == "count_nonzero":
                    continue
                case = recorder.start(f"torch.{name} {how} keepdim {dim}")
                x = strided(case, values(F, 5, 6), how)
                recorder.finish(case, case.call(f"torch.{name}", x, dim=dim, keepdim=True), **near(name))
        for shape in [(), (0,), (0, 3), (1,), (2, 3, 4, 5)]:
            for dim in [None, 0, -1] if name != "logsumexp" else [0, -1]:
                case = recorder.start(f"torch.{name} {shape} {dim}")
                x = case.input(values(F, *shape))
                kwargs = {} if dim is None else {"dim": dim}
                recorder.finish(case, case.call(f"torch.{name}", x, **kwargs), **near(name))
    for name in ["sum", "mean", "amax", "amin", "logsumexp", "var", "std", "norm", "all", "any", "count_nonzero"]:
        for dims in [(0, 2), (-1, 0), (0, 1, 2), (), (1, 1), [2]]:
            case = recorder.start(f"torch.{name} of dims {dims}")
            recorder.finish(case, case.call(f"torch.{name}", case.input(values(F, 2, 3, 4)), dim=dims), **near(name))
            if name == "count_nonzero":
                continue
            case = recorder.start(f"torch.{name} of dims {dims} keepdim transposed")
            x = case.method("permute", case.input(values(F, 4, 3, 2)), 2, 1, 0)
            recorder.finish(case, case.call(f"torch.{name}", x, dim=dims, keepdim=True), **near(name))
    for name in ["sum", "mean", "prod"]:
        for dtype in [F, L, T, H]:
            for given in [F, D, L, I32, T, H]:
                case = recorder.start(f"torch.{name} {short(dtype)} dtype={short(given)}")
                recorder.finish(case, case.call(f"torch.{name}", case.input(values(dtype, 3, 4)), dtype=given), **near(name))
    case = recorder.start("aten.sum.dim_IntList")
    recorder.finish(case, case.call("torch.ops.aten.sum.dim_IntList", case.input(values(F, 2, 3)), [1], True), ulps=4)
    case = recorder.start("aten.mean.dim")
    recorder.finish(case, case.call("torch.ops.aten.mean.dim", case.input(values(F, 2, 3)), [-1], True), ulps=4)
    case = recorder.start("mean by position")
    recorder.finish(case, case.method("mean", case.input(values(F, 2, 3)), -1, True), ulps=4)
    case = recorder.start("mean((2, 3))")
    recorder.finish(case, case.method("mean", case.input(values(F, 2, 3, 4, 5)), (2, 3)), ulps=4)
    case = recorder.start("sum axis keepdims")
    recorder.finish(case, case.call("torch.sum", case.input(values(F, 2, 3)), axis=1, keepdims=True), ulps=4)
    case = recorder.start("sum of many")
    recorder.finish(case, case.call("torch.sum", case.method("expand", case.input(torch.tensor([0.1])), 70001)), ulps=64)
    # max and min with dim, of two tensors
    for name in ["max", "min"]:
        for dtype in [F, B, L, T]:
            for args in [(0,), (-1,), (1, True)]:
                case = recorder.start(f"torch.{name} {short(dtype)} {args}")
                recorder.finish(case, case.call(f"torch.{name}", case.input(values(dtype, 3, 4)), *args))
        case = recorder.start(f"torch.{name} of nan along dim")
        x = torch.tensor([[1.0, float("nan"), 3.0], [2.0, 2.0, 1.0]])
        recorder.finish(case, case.call(f"torch.{name}", case.input(x), 1))
        case = recorder.start(f"torch.{name} values")
        y = case.call(f"torch.{name}", case.input(x), -1)
        recorder.finish(case, case.call("builtins.getattr", y, "values"), case.call("operator.getitem", y, 1))
        case = recorder.start(f"torch.{name} indices")
        y = case.call(f"torch.{name}", case.input(x), -1)
        recorder.finish(case, case.call("builtins.getattr", y, "indices"))
        for one, other in [(F, F), (L, F), (T, L)]:
            case = recorder.start(f"torch.{name} of two {short(one)} {short(other)}")
            recorder.finish(case, case.call(f"torch.{name}", case.input(values(one, 2, 3)),
                                            case.input(values(other, 3, seed=1))))
        case = recorder.start(f"Tensor.{name} other=")
        recorder.finish(case, case.method(name, case.input(values(F, 3)), other=case.input(values(F, 3, seed=1))))
        case = recorder.start(f"aten.{name}.dim")
        recorder.finish(case, case.call(f"torch.ops.aten.{name}.dim", case.input(values(F, 3, 4)), 1, True))
        case = recorder.start(f"arg{name} keepdim without dim")
        recorder.finish(case, case.call(f"torch.arg{name}", case.input(values(F, 3, 4)), keepdim=True))
        case = recorder.start(f"arg{name} of two dims")
        recorder.finish(case, case.call(f"torch.arg{name}", case.input(values(F, 3, 4)), dim=(0, 1)))
        case = recorder.start(f"a{name} by names")
        recorder.finish(case, case.call(f"torch.a{name}", input=case.input(values(F, 3, 4)), dim=1))
    for dtype in [F, L, H]:
        case = recorder.start(f"aminmax {short(dtype)}")
        recorder.finish(case, case.call("torch.aminmax", case.input(values(dtype, 3, 4))))
        case = recorder.start(f"aminmax {short(dtype)} dim")
        recorder.finish(case, case.call("torch.aminmax", case.input(values(dtype, 3, 4)), dim=1, keepdim=True))
    # var, std
    for name in ["var", "std", "var_mean", "std_mean"]:
        for dtype in FLOATS:
            for kwargs in [{}, {"unbiased": False}, {"dim": 1}, {"dim": 1, "unbiased": False}, {"dim": (0, 1), "correction": 0},
                           {"correction": 2}, {"dim": 0, "correction": 5}, {"dim": -1, "unbiased": True, "keepdim": True}]:
                case = recorder.start(f"torch.{name} {short(dtype)} {kwargs}")
                recorder.finish(case, case.call(f"torch.{name}", case.input(values(dtype, 3, 4)), **kwargs), ulps=4)
        for place in range(3):
            x = values(F, 2, 3)
            x[0, place] = float("inf")
            case = recorder.start(f"torch.{name} of infinity at {place}")
            recorder.finish(case, case.call(f"torch.{name}", case.input(x), dim=-1), ulps=4)
        for args in [(False,), (True,), (1,), (1, False), ([0], True, True), (1, True, True), ((0, 1), False)]:
            case = recorder.start(f"torch.{name} {args}")
            recorder.finish(case, case.call(f"torch.{name}", case.input(values(F, 3, 4)), *args), ulps=4)
            if name in ("var", "std"):
                case = recorder.start(f"Tensor.{name} {args}")
                recorder.finish(case, case.method(name, case.input(values(F, 3, 4)), *args), ulps=4)
        case = recorder.start(f"aten.{name}.correction")
        recorder.finish(case, case.call(f"torch.ops.aten.{name}.correction", case.input(values(F, 3, 4)), [1], correction=0,
                                        keepdim=True),
                        ulps=4)
        case = recorder.start(f"aten.{name}.dim")
        recorder.finish(case, case.call(f"torch.ops.aten.{name}.dim", case.input(values(F, 3, 4)), [1], False, True), ulps=4)
        case = recorder.start(f"{name} far from zero")
        recorder.finish(case, case.call(f"torch.{name}", case.input(values(F, 64) + 10000), dim=0), ulps=64)
    # norms
    for p in [2, 1, 0, 3, 2.5, -1, float("inf"), float("-inf"), "fro", "nuc", None, 2.0]:
        for dtype in [F, H]:
            case = recorder.start(f"torch.norm {short(dtype)} p={p}")
            recorder.finish(case, case.call("torch.norm", case.input(values(dtype, 3, 4)), p, 1), refused=p == "nuc", ulps=4)
            if isinstance(p, (int, float)):
                case = recorder.start(f"linalg.vector_norm {short(dtype)} {p}")
                recorder.finish(case, case.call("torch.linalg.vector_norm", case.input(values(dtype, 3, 4)), p, -1, True),
                                ulps=4)
    case = recorder.start("Tensor.norm(dim=-1, keepdim=True)")
    recorder.finish(case, case.method("norm", case.input(values(F, 3, 4)), dim=-1, keepdim=True), ulps=4)
    case = recorder.start("Tensor.norm(2, -1, True)")
    recorder.finish(case, case.method("norm", case.input(values(F, 3, 4)), 2, -1, True), ulps=4)
    case = recorder.start("linalg.vector_norm of all")
    recorder.finish(case, case.call("torch.linalg.vector_norm", case.input(values(F, 3, 4))), ulps=4)
    case = recorder.start("linalg.norm of a matrix")
    recorder.finish(case, case.call("torch.linalg.norm", case.input(values(F, 3, 4)), 2), refused=True)
    for given, dtype in [(D, F), (F, H), (H, torch.bfloat16), (torch.bfloat16, H), (H, F)]:
        for name, more in [("torch.norm", (2, 1)), ("torch.linalg.vector_norm", (2, 1))]:
            case = recorder.start(f"{name} {short(given)} dtype={short(dtype)}")
            recorder.finish(case, case.call(name, case.input(values(given, 3, 4)), *more, dtype=dtype), ulps=8)
    case = recorder.start("norm dtype=")
    recorder.finish(case, case.call("torch.norm", case.input(values(F, 3, 4)), 2, 1, dtype=D), ulps=8)
    # softmax
    for name in ["softmax", "log_softmax", "softmin"]:
        for dtype in FLOATS + [L]:
            for dim in [0, 1, -1, -3]:
                case = recorder.start(f"functional.{name} {short(dtype)} {dim}")
                y = case.call(f"torch.nn.functional.{name}", case.input(values(dtype, 3, 40)), dim=dim)
                recorder.finish(case, y, ulps=4, absolute=1e-6 if dtype == F else 0.0)
        for given in [F, D, H, B]:
            for dtype in [F, H, L]:
                case = recorder.start(f"functional.{name} {short(dtype)} dtype={short(given)}")
                y = case.call(f"torch.nn.functional.{name}", case.input(values(dtype, 3, 7)), -1, dtype=given)
                recorder.finish(case, y, ulps=4, absolute=4e-3 if given == B else 1e-6)
        for shape in [(), (0,), (3, 0), (0, 3), (2, 3, 4), (1,), (2, 1, 3, 2)]:
            case = recorder.start(f"functional.{name} {shape}")
            y = case.call(f"torch.nn.functional.{name}", case.input(values(F, *shape)), dim=-1)
            recorder.finish(case, y, ulps=4, absolute=1e-6)
            case = recorder.start(f"functional.{name} {shape} without dim")
            y = case.call(f"torch.nn.functional.{name}", case.input(values(F, *shape)))
            recorder.finish(case, y, ulps=4, absolute=1e-6)
        for how in STRIDES:
            for dim in [0, 1, 2]:
                case = recorder.start(f"functional.{name} {how} {dim}")
                y = case.call(f"torch.nn.functional.{name}", strided(case, values(F, 3, 4, 5), how), dim)
                recorder.finish(case, y, ulps=4, absolute=1e-6)
        inf = float("inf")
        for row in [[1.0, inf, 2.0], [-inf, -inf], [-inf, 1.0, 2.0], [float("nan"), 1.0], [1e30, -1e30], [-1e38, -1e38],
                    [inf, inf], [1000.0, 999.0]]:
            case = recorder.start(f"functional.{name} {row}")
            y = case.call(f"torch.nn.functional.{name}", case.input(torch.tensor([row])), -1)
            recorder.finish(case, y, ulps=4, absolute=1e-6)
    for name, config in [("Softmax", {"dim": 1}), ("Softmax", {}), ("LogSoftmax", {"dim": -1}), ("Softmin", {"dim": 0}),
                         ("Softmax2d", {})]:
        for shape in [(2, 3), (2, 3, 4), (2, 3, 2, 2)]:
            case = recorder.start(f"nn.{name} {config} {shape}")
            recorder.finish(case, case.module(name, config, case.input(values(F, *shape))), ulps=4, absolute=1e-6)
    for name in ["softmax", "log_softmax"]:
        case = recorder.start(f"Tensor.{name}")
        recorder.finish(case, case.method(name, case.input(values(F, 3, 4)), -1), ulps=4, absolute=1e-6)
        case = recorder.start(f"torch.{name}")
        recorder.finish(case, case.call(f"torch.{name}", case.input(values(F, 3, 4)), 0, D), ulps=4, absolute=1e-6)
        case = recorder.start(f"aten._{name}")
        recorder.finish(case, case.call(f"torch.ops.aten._{name}.default", case.input(values(F, 3, 4)), 1, False), ulps=4,
                        absolute=1e-6)
        case = recorder.start(f"aten._{name} half_to_float")
        recorder.finish(case, case.call(f"torch.ops.aten._{name}.default", case.input(values(H, 3, 4)), 1, True), ulps=4,
                        absolute=1e-6)
        case = recorder.start(f"aten.{name}.int")
        recorder.finish(case, case.call(f"torch.ops.aten.{name}.int", case.input(values(B, 3, 4)), 1, F), ulps=4, absolute=1e-6)
    # scans
    for name in ["cumsum", "cumprod"]:
        for dtype in ALL:
            for dim in [0, -1]:
                case = recorder.start(f"torch.{name} {short(dtype)} {dim}")
                recorder.finish(case, case.call(f"torch.{name}", case.input(values(dtype, 3, 4)), dim), ulps=8, absolute=4e-6)
        for dtype, given in [(F, D), (F, L), (L, F), (L, I32), (T, L), (T, F), (F, H), (L, H)]:
            case = recorder.start(f"torch.{name} {short(dtype)} dtype={short(given)}")
            recorder.finish(case, case.call(f"torch.{name}", case.input(values(dtype, 3, 4)), dim=1, dtype=given), ulps=8,
                            absolute=4e-6)
        for shape in [(), (0,), (2, 0), (2, 3, 4)]:
            case = recorder.start(f"torch.{name} {shape}")
            recorder.finish(case, case.call(f"torch.{name}", case.input(values(F, *shape)), -1), ulps=8, absolute=4e-6)
        case = recorder.start(f"torch.{name} transposed")
        recorder.finish(case, case.call(f"torch.{name}", strided(case, values(F, 3, 4), "transposed"), 0), ulps=8,
                        absolute=4e-6)
        case = recorder.start(f"Tensor.{name}_")
        x = case.input(values(F, 3, 4))
        recorder.finish(case, x, case.method(name + "_", x, 1), ulps=8, absolute=4e-6)
    # sorting
    for dtype in [F, H, L, U, T]:
        for kwargs in [{}, {"dim": 0}, {"descending": True}, {"dim": 1, "stable": True},
                       {"dim": 0, "descending": True, "stable": True}]:
            case = recorder.start(f"torch.sort {short(dtype)} {kwargs}")
            y = case.call("torch.sort", case.input(values(dtype, 4, 5)), **kwargs)
            found = y if "stable" in kwargs else case.call("operator.getitem", y, 0)
            recorder.finish(case, found)
        case = recorder.start(f"torch.argsort {short(dtype)} stable")
        recorder.finish(case, case.call("torch.argsort", case.input(values(dtype, 4, 5)), stable=True))
        case = recorder.start(f"Tensor.argsort {short(dtype)} descending")
        recorder.finish(case, case.method("argsort", case.input(values(dtype, 4, 5)), dim=0, descending=True, stable=True))
        if dtype == T:
            continue
        for kwargs in [{"k": 2}, {"k": 1, "dim": 0}, {"k": 3, "largest": False}, {"k": 0}, {"k": 6}, {"k": 5}]:
            case = recorder.start(f"torch.topk {short(dtype)} {kwargs}")
            x = torch.randperm(20, generator=torch.Generator().manual_seed(1)).reshape(4, 5).to(dtype)
            recorder.finish(case, case.call("torch.topk", case.input(x), **kwargs))
    case = recorder.start("sort of nan")
    recorder.finish(case, case.call("torch.sort", case.input(edges(F)), stable=True))
    case = recorder.start("sort of nan descending")
    recorder.finish(case, case.call("torch.sort", case.input(edges(F)), stable=True, descending=True))
    case = recorder.start("sort of a number")
    recorder.finish(case, case.call("torch.sort", case.input(values(F))))
    case = recorder.start("sort of nothing")
    recorder.finish(case, case.call("torch.sort", case.input(values(F, 0, 3)), 0))
    case = recorder.start("Tensor.topk(3, -1)")
    recorder.finish(case, case.method("topk", case.input(values(F, 2, 7)), 3, -1))
    case = recorder.start("topk of nan")
    recorder.finish(case, case.method("topk", case.input(torch.tensor([1.0, float("nan"), 3.0, 2.0])), 2))
    case = recorder.start("topk unsorted")
    recorder.finish(case, case.method("topk", case.input(values(F, 7)), 1, sorted=False))
    case = recorder.start("kthvalue")
    recorder.finish(case, case.method("kthvalue", case.input(values(F, 7)), 3), refused=True)
    case = recorder.start("aten.topk")
    recorder.finish(case, case.call("torch.ops.aten.topk.default", case.input(values(F, 2, 7)), 2, 1, True, True))

    NORMALIZE = "torch.nn.functional.normalize"
    for dtype in [*FLOATS, torch.int64]:
        for shape in ((3, 4), (2, 3, 4), (2, 0), (0, 2), (1, 1)):
            case = recorder.start(f"normalize {short(dtype)} {shape}")
            recorder.finish(case, case.call(NORMALIZE, case.input(values(dtype, *shape))), ulps=8)
    for keywords in ({"dim": 0}, {"dim": -1}, {"dim": (0, 1)}, {"dim": 2}, {"p": 1.0}, {"p": float("inf")},
                     {"p": 0.5, "dim": -1}, {"eps": 2.0}, {"p": 2, "dim": -1, "eps": 1e-12}, {"dim": None}, {"dim": ()}):
        case = recorder.start(f"normalize {keywords}")
        recorder.finish(case, case.call(NORMALIZE, case.input(values(torch.float32, 3, 4)), **keywords), ulps=8)
    for how in STRIDES:
        case = recorder.start(f"normalize {how}")
        recorder.finish(case, case.call(NORMALIZE, strided(case, values(torch.float32, 3, 4), how)), ulps=8)
    for shape in ((4,), ()):
        case = recorder.start(f"normalize {shape}, dim 0")
        recorder.finish(case, case.call(NORMALIZE, case.input(values(torch.float32, *shape)), dim=0), ulps=8)
    case = recorder.start("normalize by position")
    recorder.finish(case, case.call(NORMALIZE, case.input(torch.zeros(2, 3)), 2.0, 1, 1e-3), ulps=8)


if __name__ == "__main__":
    recorder = Recorder("reduce")
    main(recorder)
    recorder.write()
