"""Tensors out of nothing, and writes of one value: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import ALL, FLOATS, Recorder, short, values

F, D, H, B, L, I32, U, T = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
                          torch.bool)


def main(recorder):
    def one(name, target, *args, **kwargs):
        case = recorder.start(name)
        recorder.finish(case, case.call(target, *args, **kwargs), ulps=2 if "long" in name else 0)

    for name in ["zeros", "ones"]:
        for args in [((2, 3),), (2, 3), ([2, 0],), ((),), (3,), (-1,)]:
            one(f"torch.{name} {args}", f"torch.{name}", *args)
        for dtype in ALL:
            one(f"torch.{name} {short(dtype)}", f"torch.{name}", (2,), dtype=dtype, device=torch.device("cpu"))
        one(f"torch.{name} size=", f"torch.{name}", size=(2, 2))
        one(f"aten.{name}", f"torch.ops.aten.{name}.default", [2, 3], device=torch.device("cpu"), pin_memory=False)
        for dtype in ALL:
            case = recorder.start(f"{name}_like {short(dtype)}")
            recorder.finish(case, case.call(f"torch.{name}_like", case.method("t", case.input(values(dtype, 2, 3)))))
            case = recorder.start(f"new_{name} {short(dtype)}")
            recorder.finish(case, case.method(f"new_{name}", case.input(values(dtype, 2)), 2, 3))
        case = recorder.start(f"{name}_like dtype=")
        recorder.finish(case, case.call(f"torch.{name}_like", case.input(values(F, 2, 3)), dtype=L))
        case = recorder.start(f"new_{name} dtype= of a tuple")
        recorder.finish(case, case.method(f"new_{name}", case.input(values(F, 2)), (3, 1), dtype=T))
    for value in [0, 7, 2.5, True, float("-inf"), float("nan"), -1]:
        one(f"torch.full {value!r}", "torch.full", (2, 2), value)
        one(f"aten.full {value!r}", "torch.ops.aten.full.default", [2], value, dtype=F)
        for dtype in [F, H, L, T]:
            one(f"torch.full {value!r} {short(dtype)}", "torch.full", (2,), value, dtype=dtype)
            case = recorder.start(f"full_like {value!r} {short(dtype)}")
            recorder.finish(case, case.call("torch.full_like", case.input(values(dtype, 3)), value))
            case = recorder.start(f"new_full {value!r} {short(dtype)}")
            recorder.finish(case, case.method("new_full", case.input(values(dtype, 3)), (2,), value))
            case = recorder.start(f"fill_ {value!r} {short(dtype)}")
            x = case.input(values(dtype, 2, 3))
            recorder.finish(case, x, case.method("fill_", case.call("operator.getitem", x, (0, slice(1, None))), value))
    one("torch.full 70000 float16", "torch.full", (2,), 70000, dtype=H)
    one("torch.full 300 uint8", "torch.full", (2,), 300, dtype=U)
    one("torch.full of names", "torch.full", size=(1, 2), fill_value=3)
    case = recorder.start("full of a tensor")
    recorder.finish(case, case.call("torch.full", (2,), case.input(values(F))))
    for args, kwargs in [((5,), {}), ((5.0,), {}), ((2.5,), {}), ((2, 7), {}), ((0, 10, 3), {}), ((10, 0, -3), {}),
                         ((0, 1, 0.25), {}),
                         ((1, 2, 0.1), {}), ((5, 5), {}), ((0,), {}), ((5, 2), {}), ((0, 5, 0), {}), ((3,), {"dtype": F}),
                         ((0, 5), {"dtype": H}), ((0.0, 2.0, 0.5), {"dtype": L}), ((-3, 3), {"dtype": I32}),
                         ((0, 1, 0.3), {"dtype": D}),
                         ((2**40, 2**40 + 3), {}), ((-5,), {}), ((0.5, 5.5, 2), {}), ((1, 300, 100), {"dtype": U})]:
        one(f"torch.arange {args} {kwargs}", "torch.arange", *args, **kwargs)
    one("torch.arange of names", "torch.arange", start=1, end=7, step=2)
    one("torch.arange end=", "torch.arange", end=4)
    one("torch.arange start, end=", "torch.arange", 1, end=4)
    one("aten.arange.start_step", "torch.ops.aten.arange.start_step", 0, 6, 2, device=torch.device("cpu"), pin_memory=False)
    one("aten.arange.start", "torch.ops.aten.arange.start", 1, 6, dtype=L)
    one("aten.arange", "torch.ops.aten.arange.default", 4)
    one("torch.arange long float32", "torch.arange", 0, 40, 0.1, dtype=F)
    one("torch.arange long float64", "torch.arange", 0, 40, 0.1, dtype=D)
    case = recorder.start("arange of a computed size")
    recorder.finish(case, case.call("torch.arange", case.method("size", case.input(values(F, 2, 3)), 1)))
    for args, kwargs in [((0, 1, 5), {}), ((0, 10, 4), {"dtype": D}), ((5, -5, 7), {}), ((1, 2, 1), {}), ((1, 2, 0), {}),
                         ((0, 10, 11), {"dtype": L}), ((-1, 1, 33), {}), ((0, 10, 4), {"dtype": H}), ((1, 2, -1), {})]:
        case = recorder.start(f"torch.linspace {args} {kwargs}")
        recorder.finish(case, case.call("torch.linspace", *args, **kwargs), ulps=1, absolute=1e-6,
                        refused=kwargs.get("dtype") == L)
    one("torch.logspace", "torch.logspace", 0, 2, 3)
    recorder.cases[-1].pop("outputs")
    recorder.cases[-1]["refused"] = True  # not computed: no model has it
    for data in [3, 2.5, True, [1, 2, 3], [1.0, 2], [True, False], [[1, 2], [3, 4]], [], [[]], [[1], [2, 3]], [1, 2.5, True],
                 ((1, 2), (3, 4)),
                 [[[1.5]], [[2.5]]], [2**60, 1], float("inf"), [True, 2]]:
        one(f"torch.tensor {data}", "torch.tensor", data)
        for dtype in [F, L, H, T]:
            one(f"torch.tensor {data} {short(dtype)}", "torch.tensor", data, dtype=dtype)
    one("torch.as_tensor list", "torch.as_tensor", [1.0, 2.0])
    one("torch.tensor requires_grad", "torch.tensor", [1.0, 2.0], requires_grad=False, device=torch.device("cpu"))
    for dtype in [F, L]:
        case = recorder.start(f"as_tensor of a tensor {short(dtype)}")
        recorder.finish(case, case.call("torch.as_tensor", case.input(values(F, 3)), dtype=dtype))
        case = recorder.start(f"new_tensor {short(dtype)}")
        recorder.finish(case, case.method("new_tensor", case.input(values(dtype, 3)), [1, 2]))
        case = recorder.start(f"new_tensor of floats {short(dtype)}")
        recorder.finish(case, case.method("new_tensor", case.input(values(dtype, 3)), [1.5, 2]))
        case = recorder.start(f"new_tensor {short(dtype)} dtype=")
        recorder.finish(case, case.method("new_tensor", case.input(values(dtype, 3)), 4, dtype=D))
    case = recorder.start("tensor of sizes")
    x = case.input(values(F, 2, 3))
    recorder.finish(case, case.call("torch.tensor", [case.method("size", x, 0), case.method("size", x, 1)]))
    for value, kwargs in [(2, {}), (2.5, {"dtype": H}), (3, {"dtype": L}), (True, {})]:
        one(f"aten.scalar_tensor {value!r} {kwargs}", "torch.ops.aten.scalar_tensor.default", value, **kwargs)
    one("torch.scalar_tensor", "torch.scalar_tensor", 5)
    for dtype in ALL:  # of a number only the kind counts
        for shape in [(), (1,)]:
            case = recorder.start(f"torch.scalar_tensor of a tensor {short(dtype)} {shape}")
            recorder.finish(case, case.call("torch.scalar_tensor", case.input(values(dtype, *shape))))
            case = recorder.start(f"torch.full of a tensor {short(dtype)} {shape}")
            recorder.finish(case, case.call("torch.full", (2,), case.input(values(dtype, *shape))))
    # copies and fillings
    for dtype in ALL:
        for other in ALL:
            case = recorder.start(f"copy_ {short(dtype)} {short(other)}")
            x = case.input(values(dtype, 2, 3))
            recorder.finish(case, x, case.method("copy_", case.method("t", x), case.input(values(other, 3, 1))))
        case = recorder.start(f"zero_ {short(dtype)}")
        x = case.input(values(dtype, 2, 3))
        recorder.finish(case, x, case.method("zero_", case.call("operator.getitem", x, 1)))
    case = recorder.start("copy_ that does not fit")
    recorder.finish(case, case.method("copy_", case.input(values(F, 2)), case.input(values(F, 3))))
    case = recorder.start("fill_ with a tensor")
    recorder.finish(case, case.method("fill_", case.input(values(F, 2)), case.input(values(L))))
    case = recorder.start("torch.fill")
    recorder.finish(case, case.call("torch.fill", case.input(values(F, 2)), 2))
    for args in [(3,), (2, 4), (4, 2), (0,), (1, 0), (0, 3), (-1,)]:
        one(f"torch.eye {args}", "torch.eye", *args)
    for dtype in FLOATS + [L, T]:
        one(f"torch.eye {short(dtype)}", "torch.eye", 2, dtype=dtype)
    for args in [(3, 4), (3, 3, 1), (4, 3, -1), (0, 3), (2, 2, 5)]:
        one(f"torch.triu_indices {args}", "torch.triu_indices", *args)
        one(f"torch.tril_indices {args}", "torch.tril_indices", *args)
    # drawn at random, or memory as it is: never a number
    for target, args in [("rand", (2,)), ("randn", ((2, 2),)), ("randint", (5, (2,))), ("randperm", (4,)), ("empty", (2,))]:
        case = recorder.start(f"torch.{target} is refused")
        recorder.finish(case, case.call(f"torch.{target}", *args), refused=True)
    case = recorder.start("torch.rand_like is refused")
    recorder.finish(case, case.call("torch.rand_like", case.input(values(F, 2))), refused=True)
    case = recorder.start("out= is refused")
    recorder.finish(case, case.call("torch.add", case.input(values(F, 2)), 1, out=case.input(values(F, 2))), refused=True)

    for name in ("new_ones", "new_zeros", "reshape", "permute"):
        sizes = (1, 0) if name == "permute" else (3, 2)
        for given in (sizes, (sizes,)):
            case = recorder.start(f"torch.Tensor.{name} {given}")
            recorder.finish(case, case.call(f"torch.Tensor.{name}", case.input(values(torch.float32, 2, 3)), *given))


if __name__ == "__main__":
    recorder = Recorder("create")
    main(recorder)
    recorder.write()
