"""Functions of one operand and activations: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import ALL, EPSILON, FLOATS, STRIDES, Recorder, edges, short, strided, values

EXACT = ["neg", "abs", "sign", "sgn", "square", "floor", "ceil", "round", "trunc", "relu", "frac", "isnan", "isinf", "isfinite",
         "logical_not", "bitwise_not", "positive", "nan_to_num"]
CLOSE = ["reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
         "acos", "atan", "sinh", "cosh", "tanh", "erf", "erfc", "erfinv", "lgamma", "sigmoid"]
ACTIVATIONS = {
    "relu6": [{}], "selu": [{}], "silu": [{}], "mish": [{}], "logsigmoid": [{}], "hardsigmoid": [{}], "hardswish": [{}],
    "softsign": [{}], "tanhshrink": [{}], "gelu": [{}, {"approximate": "tanh"}], "leaky_relu": [{}, {"negative_slope": 0.2}],
    "elu": [{}, {"alpha": 0.7}], "celu": [{}, {"alpha": 0.7}], "hardtanh": [{}, {"min_val": -2.0, "max_val": 0.5}],
    "hardshrink": [{}, {"lambd": 1.0}], "softshrink": [{}, {"lambd": 0.3}], "softplus": [{}, {"beta": 2.0, "threshold": 3.0}],
    "threshold": [{"threshold": 0.1, "value": -7.0}],
}
MODULES = {
    "ReLU": [{}, {"inplace": True}], "ReLU6": [{}], "LeakyReLU": [{}, {"negative_slope": 0.3}], "ELU": [{"alpha": 1.3}],
    "SELU": [{}], "CELU": [{"alpha": 1.3}], "GELU": [{}, {"approximate": "tanh"}],
    "SiLU": [{}, {"inplace": True}], "Mish": [{}],
    "Sigmoid": [{}], "LogSigmoid": [{}], "Hardsigmoid": [{}], "Hardswish": [{}],
    "Hardtanh": [{}, {"min_val": -2.0, "max_val": 2.0}],
    "Hardshrink": [{}, {"lambd": 1.0}], "Softshrink": [{}], "Tanhshrink": [{}], "Tanh": [{}], "Softplus": [{"beta": 2.0}],
    "Softsign": [{}], "Threshold": [{"threshold": 0.5, "value": 2.0}],
}


def main(recorder):
    for name in EXACT + CLOSE:
        ulps = 0 if name in EXACT else 4
        for dtype in ALL:
            case = recorder.start(f"torch.{name} {short(dtype)}")
            x = values(dtype, 9) if name in ("sin", "cos", "tan") and not dtype.is_floating_point else edges(dtype)
            y = case.call(f"torch.{name}", case.input(x))
            recorder.finish(case, y, ulps=ulps, refused=name == "square" and dtype == torch.bool)
    for name in ["neg", "exp", "floor", "sigmoid", "isnan", "rsqrt"]:
        for dtype in [torch.float32, torch.int32]:
            for how in STRIDES:
                case = recorder.start(f"Tensor.{name} {short(dtype)} {how}")
                y = case.method(name, strided(case, values(dtype, 3, 4), how))
                recorder.finish(case, y, ulps=4)
            for shape in [(), (0,), (2, 0, 3), (1,), (2, 1, 3, 2)]:
                case = recorder.start(f"aten.{name} {short(dtype)} {shape}")
                y = case.call(f"torch.ops.aten.{name}.default", case.input(values(dtype, *shape)))
                recorder.finish(case, y, ulps=4)
        for dtype in [torch.float32, torch.float16, torch.int64]:
            if name == "isnan":
                continue
            case = recorder.start(f"Tensor.{name}_ {short(dtype)}")
            x = case.input(values(dtype, 3, 4).abs() + 1)
            part = case.call("operator.getitem", x, (slice(None), slice(1, 3)))
            y = case.method(name + "_", part)
            recorder.finish(case, x, y, ulps=4)
    for name, settings in ACTIVATIONS.items():
        for setting in settings:
            for dtype in [*FLOATS, torch.int64, torch.bool]:
                case = recorder.start(f"functional.{name} {short(dtype)} {setting}")
                x = values(dtype, 15) if name == "gelu" or (name == "softsign" and dtype == torch.int64) else edges(dtype)
                y = case.call(f"torch.nn.functional.{name}", case.input(x), **setting)
                # integers are hardly ever activated
                refused = dtype == torch.int64 and name in ("hardtanh", "threshold")
                recorder.finish(case, y, ulps=4, absolute=2 * EPSILON.get(dtype, 0.0), refused=refused)
                if dtype not in (torch.float32, torch.bfloat16):
                    continue
                case = recorder.start(f"functional.{name} {short(dtype)} {setting} by position, transposed")
                x = strided(case, values(dtype, 5, 7), "transposed")
                y = case.call(f"torch.nn.functional.{name}", x, *([] if name == "gelu" else setting.values()),
                              **(setting if name == "gelu" else {}))
                recorder.finish(case, y, ulps=4, absolute=2 * EPSILON[dtype])
    for name in ["relu", "relu6", "selu", "silu", "mish", "hardsigmoid", "hardswish", "leaky_relu", "elu", "celu", "hardtanh"]:
        case = recorder.start(f"functional.{name} inplace=True")
        x = case.input(values(torch.float32, 4, 5))
        y = case.call(f"torch.nn.functional.{name}", x, inplace=True)
        recorder.finish(case, x, y, ulps=4)
    for name, settings in MODULES.items():
        for setting in settings:
            case = recorder.start(f"nn.{name} {setting}")
            x = case.input(values(torch.float32, 4, 5))
            y = case.module(name, setting, x)
            recorder.finish(case, x, y, ulps=4, absolute=5e-7)
            case = recorder.start(f"nn.{name} {setting} input=")
            x = case.input(edges(torch.float32) if name != "GELU" else values(torch.float32, 50))  # inf gives nan, at times
            y = case.module(name, setting, input=x)
            recorder.finish(case, x, y, ulps=4, absolute=5e-7)
    for args, kwargs in [((), {"alpha": 2}), ((True, 1), {})]:
        case = recorder.start(f"relu with arguments that it has not {args} {kwargs}")
        recorder.finish(case, case.call("torch.nn.functional.relu", case.input(values(torch.float32, 3)), *args, **kwargs),
                        refused=True)
    # ATen's own parameters
    for target, args in [("elu", (0.5,)), ("elu", (0.5, 1.5, 2.0)), ("elu", (1.6732632423543772, 1.0507009873554805)),
                         ("leaky_relu", (0.25,)), ("hardtanh", (-0.5, 0.25)), ("gelu", ()), ("threshold", (0.0, 3.0)),
                         ("softplus", (3.0, 4.0)), ("hardshrink", (0.25,)), ("softshrink", (0.25,))]:
        case = recorder.start(f"aten.{target} {args}")
        x = edges(torch.float32) if target != "gelu" else values(torch.float32, 50)
        y = case.call(f"torch.ops.aten.{target}.default", case.input(x), *args)
        recorder.finish(case, y, ulps=4, absolute=5e-7, refused=target == "elu" and len(args) > 1)
    case = recorder.start("aten.gelu tanh")
    y = case.call("torch.ops.aten.gelu.default", case.input(values(torch.float32, 40)), approximate="tanh")
    recorder.finish(case, y, ulps=4, absolute=5e-7)
    for decimals in [0, 1, 3, -1, -2]:
        for dtype in [torch.float32, torch.float64, torch.int64, torch.bfloat16]:
            case = recorder.start(f"round decimals={decimals} {short(dtype)}")
            x = values(dtype, 30) * 100 if dtype != torch.int64 else values(dtype, 30)
            recorder.finish(case, case.call("torch.round", case.input(x), decimals=decimals),
                            refused=bool(decimals) and dtype == torch.bfloat16)
    for setting in [{"nan": 2.0}, {"nan": 1.0, "posinf": 5.0, "neginf": -5.0}, {"posinf": 3}]:
        for dtype in [torch.float32, torch.float16, torch.int32]:
            case = recorder.start(f"nan_to_num {setting} {short(dtype)}")
            recorder.finish(case, case.method("nan_to_num", case.input(edges(dtype)), **setting))
    for shape in [(4, 6), (2, 3, 8)]:
        for dim in [-1, 0, 1]:
            case = recorder.start(f"glu {shape} {dim}")
            recorder.finish(case, case.call("torch.nn.functional.glu", case.input(values(torch.float32, *shape)), dim), ulps=4)


if __name__ == "__main__":
    recorder = Recorder("unary")
    main(recorder)
    recorder.write()
