"""Functions of two operands: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import ALL, STRIDES, Recorder, edges, short, strided, values

F, D, H, B, L, I32, U, T = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
                          torch.bool)
ARITHMETIC = ["add", "sub", "mul", "true_divide", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum",
              "fmax", "fmin",
              "atan2", "hypot", "copysign", "float_power"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or",
               "bitwise_xor"]
OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder",
             "pow": "pow", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "and_": "bitwise_and",
             "or_": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"}
CLOSE = {"fmax": 1, "fmin": 1, "truediv": 1, "pow": 6, "atan2": 4, "hypot": 4, "float_power": 6}


def pairs(dtype, name):
    """Every edge with every edge."""
    x = edges(dtype)
    if not dtype.is_floating_point:
        low = 0 if dtype in (U, T) else -7
        x = torch.tensor([0, 1, 2, 3, 7, 100, low]).to(dtype)
        if name == "pow" and low:
            x = torch.tensor([0, 1, 2, 3, 7, -1, -7]).to(dtype)
    if name in ("remainder", "fmod"):
        x = x[(x == 0) | ~x.isfinite() | ((x.double().abs() > 1e-6) & (x.double().abs() < 1e6))]  # no quotient beyond the dtype
    a, b = torch.meshgrid(x, x, indexing="ij")
    if not dtype.is_floating_point and name in ("floor_divide", "remainder", "fmod", "pow"):
        keep = b > 0 if name == "pow" else b != 0
        return a[keep], b[keep]
    return a.reshape(-1), b.reshape(-1)


def main(recorder):
    for name in ARITHMETIC + COMPARISONS:
        for dtype in ALL:
            a, b = pairs(dtype, name)
            case = recorder.start(f"torch.{name} {short(dtype)} edges")
            y = case.call(f"torch.{name}", case.input(a), case.input(b))
            recorder.finish(case, y, ulps=CLOSE.get(name, 0))
    # promotion: dtypes, tensors without dimensions, Python numbers
    for name in ["add", "true_divide", "maximum", "pow", "eq", "floor_divide"]:
        for one in [F, D, H, B, L, U, T]:
            for other in [F, D, H, B, L, I32, U, T]:
                case = recorder.start(f"torch.{name} {short(one)} with {short(other)}")
                x, y = case.input(values(one, 2, 3)), case.input(values(other, 3).abs() + 1 if other != T else values(T, 3))
                recorder.finish(case, case.call(f"torch.{name}", x, y), ulps=CLOSE.get(name, 1))
    for name in ["add", "mul", "true_divide", "pow"]:
        for one in [F, H, L, U, T]:
            for other in [F, D, L, T]:
                case = recorder.start(f"Tensor.{name} {short(one)} with 0-d {short(other)}")
                x, y = case.input(values(one, 2, 3).abs() if one != T else values(one, 2, 3)), case.input(values(other))
                recorder.finish(case, case.method(name, x, y), ulps=CLOSE.get(name, 1))
    for symbol, name in OPERATORS.items():
        for dtype in [F, H, L, U, T]:
            for number in [2, 2.5, True]:
                case = recorder.start(f"operator.{symbol} {short(dtype)} {number}")
                x = case.input(values(dtype, 7))
                is_bool = dtype == T and number is True
                refused = symbol == "pow" and is_bool or "shift" in symbol and (dtype in (F, H) or number == 2.5 or is_bool)
                recorder.finish(case, case.call(f"operator.{symbol}", x, number), ulps=CLOSE.get(name, 0), refused=refused)
                case = recorder.start(f"operator.{symbol} {number} {short(dtype)}")
                x = values(dtype, 7)
                x = case.input(x.abs() + 1 if dtype != T else torch.ones(3, dtype=T))
                refused = "shift" in symbol and (dtype in (F, H) or number == 2.5)
                recorder.finish(case, case.call(f"operator.{symbol}", number, x), ulps=CLOSE.get(name, 0), refused=refused)
    # shapes and strides
    shapes = [((), ()), ((3,), ()), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0,), (1,)), ((2, 0, 3), (3,)), ((4, 1, 2), (3, 1)),
              ((2, 3), (4,)), ((2,), (0,)), ((1, 1), (1,)), ((2, 3, 2, 2), (3, 1, 1))]
    for name in ["add", "div", "lt", "remainder", "logical_and"]:
        for one, other in shapes:
            case = recorder.start(f"Tensor.{name} {one} {other}")
            x, y = case.input(values(F, *one)), case.input(values(F, *other, seed=1))
            recorder.finish(case, case.method(name, x, y), ulps=1)
        for one in STRIDES:
            for other in STRIDES:
                for dtype in [F, L]:
                    if name == "remainder" and dtype == L:
                        continue
                    case = recorder.start(f"aten.{name} {short(dtype)} {one} {other}")
                    x, y = strided(case, values(dtype, 3, 4), one), strided(case, values(dtype, 3, 4, seed=1), other)
                    target = "default" if name == "logical_and" else "Tensor"
                    recorder.finish(case, case.call(f"torch.ops.aten.{name}.{target}", x, y), ulps=1)
    # alpha, rounding_mode, other spellings
    for name in ["add", "sub", "rsub", "subtract"]:
        for dtype in [F, H, L, T]:
            for alpha in [2, 0.5, True]:
                case = recorder.start(f"torch.{name} {short(dtype)} alpha={alpha}")
                x, y = case.input(values(dtype, 2, 3)), case.input(values(dtype, 3, seed=1))
                recorder.finish(case, case.call(f"torch.{name}", x, y, alpha=alpha), ulps=2)
                case = recorder.start(f"torch.{name} {short(dtype)} number, alpha={alpha}")
                x = case.input(values(dtype, 2, 3))
                recorder.finish(case, case.call(f"torch.{name}", x, 3, alpha=alpha), ulps=2)
    for overload, other in [("Scalar", 2), ("Scalar", 1.5)]:
        for name in ["add", "sub", "mul", "div", "rsub", "remainder", "eq", "ge"]:
            case = recorder.start(f"aten.{name}.{overload} {other}")
            recorder.finish(case, case.call(f"torch.ops.aten.{name}.{overload}", case.input(values(F, 5)), other), ulps=1)
    case = recorder.start("aten.pow.Scalar")
    recorder.finish(case, case.call("torch.ops.aten.pow.Scalar", 2, case.input(values(F, 5))), ulps=4)
    case = recorder.start("aten.pow.Tensor_Scalar")
    recorder.finish(case, case.call("torch.ops.aten.pow.Tensor_Scalar", case.input(values(F, 9)), 3), ulps=4)
    for exponent in [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, float("nan"), float("inf")]:
        for dtype in [F, D, H, B, L]:
            case = recorder.start(f"pow {short(dtype)} ** {exponent}")
            x = edges(dtype) if dtype.is_floating_point else values(dtype, 9)
            recorder.finish(case, case.call("operator.pow", case.input(x), exponent), ulps=6)
    for mode in [None, "floor", "trunc", "other"]:
        for dtype in [F, H, L, U, T]:
            a, b = pairs(dtype, "floor_divide")
            case = recorder.start(f"torch.div {short(dtype)} rounding_mode={mode}")
            recorder.finish(case, case.call("torch.div", case.input(a), case.input(b), rounding_mode=mode))
            case = recorder.start(f"Tensor.div {short(dtype)} number rounding_mode={mode}")
            recorder.finish(case, case.method("div", case.input(values(dtype, 9)), 2, rounding_mode=mode))
    for name in ["floor_divide", "remainder", "fmod", "div"]:
        case = recorder.start(f"torch.{name} int64 by zero")
        recorder.finish(case, case.call(f"torch.{name}", case.input(values(L, 4)), case.input(torch.tensor([1, 0, 2, 3]))))
        for zero in [0, 0.0, False]:
            case = recorder.start(f"torch.{name} int64 by {zero!r}")
            recorder.finish(case, case.call(f"torch.{name}", case.input(values(L, 4)), zero))
    for name in ["add", "sub", "mul", "div", "eq", "lt"]:
        case = recorder.start(f"torch.{name} of keywords")
        recorder.finish(case, case.call(f"torch.{name}", input=case.input(values(F, 4)),
                                        other=case.input(values(F, 4, seed=2))))
    # in place
    for symbol in ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift"]:
        for dtype in [F, H, L]:
            for number in [2, 1.5]:
                case = recorder.start(f"operator.{symbol} {short(dtype)} {number}")
                x = case.input(values(dtype, 3, 4))
                y = case.call(f"operator.{symbol}", case.method("t", x), number)
                recorder.finish(case, x, y, ulps=4)
    for name in ["add_", "mul_", "div_", "sub_", "pow_", "remainder_", "clamp_min_", "eq_", "lt_", "logical_and_", "copysign_"]:
        for dtype, other in [(F, F), (F, L), (L, F), (H, F), (L, L), (U, L), (T, L), (T, T)]:
            case = recorder.start(f"Tensor.{name} {short(dtype)} {short(other)}")
            x, y = case.input(values(dtype, 2, 3)), case.input(values(other, 3).abs() + 1 if other != T else values(T, 3))
            recorder.finish(case, x, case.method(name, x, y), ulps=4)
    for name, other in [("pow_.Scalar", 2), ("pow_.Tensor", 3), ("pow_.Scalar", None), ("floor_divide_.Scalar", 2),
                        ("float_power_.Scalar", 2)]:
        case = recorder.start(f"aten.{name} {other}")
        x = case.input(values(torch.float64, 2, 3))
        y = other if name.endswith("Scalar") and other else case.input(values(torch.float64, 3).abs() + 1)
        recorder.finish(case, x, case.call(f"torch.ops.aten.{name}", x, y), ulps=4)
    case = recorder.start("add_ that would grow")
    x = case.input(values(F, 3))
    recorder.finish(case, x, case.method("add_", x, case.input(values(F, 2, 3))))
    case = recorder.start("add_ alpha")
    x = case.input(values(F, 3))
    recorder.finish(case, x, case.method("add_", x, case.input(values(F, 3, seed=5)), alpha=-2), ulps=1)
    for name in ["bitwise_left_shift", "bitwise_right_shift"]:
        for dtype in [L, I32, U, torch.int8, F, T]:
            case = recorder.start(f"torch.{name} {short(dtype)}")
            x = case.input(torch.tensor([1, 5, 100, 77, 3, 2]).to(dtype))
            y = case.input(torch.tensor([0, 1, 3, 6, 2, 7]).to(dtype))
            recorder.finish(case, case.call(f"torch.{name}", x, y))
    case = recorder.start("bitwise_right_shift of negative")
    x = case.input(torch.tensor([-1, -5, -100]))
    recorder.finish(case, case.call("torch.bitwise_right_shift", x, 1))
    for setting in [{}, {"equal_nan": True}, {"rtol": 0.1}, {"atol": 0.5, "rtol": 0.0}]:
        for dtype in [F, D, H, L]:
            a, b = pairs(dtype, "isclose")
            case = recorder.start(f"isclose {short(dtype)} {setting}")
            recorder.finish(case, case.call("torch.isclose", case.input(a), case.input(b), **setting), refused=dtype in (H, L))
    for dtype in [F, D, H, L, U, T, torch.complex64]:
        for shape in [(5,), (3, 4), (2, 1), (0,), (2, 0)]:
            for setting in [{}, {"n": 2}, {"n": 0}, {"n": 7}, {"dim": 0}, {"n": -1}]:
                case = recorder.start(f"diff {short(dtype)} {shape} {setting}")
                recorder.finish(case, case.call("torch.diff", case.input(values(dtype, *shape)), **setting))
    case = recorder.start("diff of a number")
    recorder.finish(case, case.call("torch.diff", case.input(values(F))))
    for where in [{"prepend": (2, 1)}, {"append": (2, 3)}, {"prepend": (2, 1), "append": (2, 1), "n": 2},
                  {"prepend": (1, 3), "dim": 0}, {"append": (3, 2)}, {"append": (2, 1), "n": 3}]:
        case = recorder.start(f"diff {where}")
        more = {name: case.input(values(F, *found, seed=4)) if isinstance(found, tuple) else found
                for name, found in where.items()}
        recorder.finish(case, case.call("torch.diff", case.input(values(F, 2, 3)), **more))
    case = recorder.start("diff with something of another dtype")
    recorder.finish(case, case.call("torch.diff", case.input(values(F, 3)), prepend=case.input(values(L, 1))), refused=True)
    case = recorder.start("a bool tensor subtracted")
    recorder.finish(case, case.call("operator.sub", case.input(values(T, 3)), case.input(values(T, 3))))
    case = recorder.start("complex exponent refused")
    recorder.finish(case, case.call("torch.add", case.input(values(F, 3)), "x"))


if __name__ == "__main__":
    recorder = Recorder("binary")
    main(recorder)
    recorder.write()
