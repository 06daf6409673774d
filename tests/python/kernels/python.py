"""Python's own values in a graph - sizes, numbers, tuples, dtypes: PyTorch's results for test_eval_kernels.c. See
recorder.py."""

import math

import torch
from recorder import ALL, Recorder, short, values

F, D, H, B, L, I32, U, T = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
                          torch.bool)
NUMBERS = [0, 1, 7, -7, 2, -2, 3, True, False, 0.0, -0.0, 2.5, -2.5, 0.1, 1e300, math.inf, 10**15, 2**62]
BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor",
          "lshift", "rshift"]


def fits(value):
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def main(recorder):
    def finish(case, *outputs, **settings):
        # what has no 64-bit int, or is complex, is refused
        beyond = any(isinstance(o.value, complex) or not fits(o.value) for o in outputs)
        recorder.finish(case, *outputs, refused=beyond or settings.pop("refused", False), **settings)

    def number(name, target, *args, **kwargs):
        case = recorder.start(name)
        finish(case, case.call(target, *args, **kwargs))

    def refuse_last():
        recorder.cases[-1].pop("outputs", None)
        recorder.cases[-1]["refused"] = True

    # arithmetic of numbers: the operands come from the graph, as sizes would
    for name in BINARY:
        for a in NUMBERS:
            for b in NUMBERS:
                if name == "pow" and (abs(b) > 100 or abs(a) > 1e200 or (abs(a) > 1e10 and abs(b) > 3)):
                    continue
                if name in ("lshift", "rshift") and (not isinstance(b, int) or b > 1000):
                    continue
                number(f"operator.{name} {a!r} {b!r}", f"operator.{name}", a, b)
    for name in ["neg", "pos", "abs", "invert", "not_", "truth", "index"]:
        for a in NUMBERS:
            number(f"operator.{name} {a!r}", f"operator.{name}", a)
    for name in ["math.floor", "math.ceil", "math.trunc", "math.sqrt", "math.log", "math.log2", "math.exp", "builtins.int",
                 "builtins.float",
                 "builtins.bool", "builtins.round", "builtins.abs", "torch.sym_int", "torch.sym_float", "torch.sym_not"]:
        for a in [*NUMBERS, 3.5, 0.5, -0.5, 100.75]:
            if name == "torch.sym_not" and not isinstance(a, bool):
                continue
            number(f"{name} {a!r}", name, a)
    number("math.log of two", "math.log", 8, 2)
    refuse_last()
    number("round to digits", "builtins.round", 2.567, 2)
    refuse_last()
    for args in [(3, 1, 2), (1, 2.5), (2.5, 1), (1, True), ([4, 9, 2],), ([],), ((1.0, 1),), (5,), ("ab",), (0.0, -0.0),
                 (math.nan, 1.0), (1.0, math.nan)]:
        for name in ["max", "min"]:
            number(f"builtins.{name} {args}", f"builtins.{name}", *args)
            if args == ("ab",):
                refuse_last()
    for args in [([1, 2, 3],), ([],), ([1, 2.5],), ([1, 2], 10), ([True, True],)]:
        number(f"builtins.sum {args}", "builtins.sum", *args)
        if len(args) > 1 or 2.5 in args[0]:
            refuse_last()
    for items in [[2, 3, 4], (5,), [], [2.5, 2], [2**40, 2**40]]:
        number(f"math.prod {items}", "math.prod", items)
        if 2.5 in items:
            refuse_last()
    # sizes
    for shape in [(2, 3, 4), (), (0, 5), (7,)]:
        case = recorder.start(f"sizes {shape}")
        x = case.input(values(F, *shape))
        finish(case, case.method("size", x), case.call("builtins.getattr", x, "shape"), case.method("dim", x),
               case.method("numel", x),
               case.call("builtins.getattr", x, "ndim"), case.method("nelement", x), case.method("ndimension", x),
               case.call("torch.numel", x))
        for dim in [0, -1, 1, 5, -5]:
            case = recorder.start(f"size({dim}) of {shape}")
            finish(case, case.method("size", case.input(values(F, *shape)), dim))
            case = recorder.start(f"sym_size.int({dim}) of {shape}")
            finish(case, case.call("torch.ops.aten.sym_size.int", case.input(values(F, *shape)), dim))
            case = recorder.start(f"shape[{dim}] of {shape}")
            x = case.call("builtins.getattr", case.input(values(F, *shape)), "shape")
            finish(case, case.call("operator.getitem", x, dim))
        case = recorder.start(f"len of {shape}")
        finish(case, case.call("builtins.len", case.input(values(F, *shape))))
        for part in [slice(None, -1), slice(1, None), slice(None, None, 2), slice(None, None, -1)]:
            case = recorder.start(f"shape[{part}] of {shape}")
            x = case.call("builtins.getattr", case.input(values(F, *shape)), "shape")
            y = case.call("operator.getitem", x, part)
            finish(case, y, refused=part.step == -1)
            if part.step is None and len(shape) > 1:
                case = recorder.start(f"view of shape[{part}] + (…) of {shape}")
                x = case.input(values(F, *shape))
                y = case.call("operator.getitem", case.method("size", x), part)
                z = case.method("view", x, case.call("operator.add", y, (-1,))) if 0 not in shape else y
                finish(case, z)
    case = recorder.start("a size computed")
    x = case.input(values(F, 2, 6))
    n = case.call("operator.floordiv", case.method("size", x, 1), 3)
    finish(case, n, case.method("view", x, 2, 3, n), case.call("operator.mul", n, 2.0), case.call("operator.mul", x, n),
           case.call("operator.sub", n, x))
    # numbers of tensors
    for dtype in ALL:
        case = recorder.start(f"item {short(dtype)}")
        x = case.input(values(dtype, 1, 1))
        finish(case, case.method("item", x))
        for name in ["builtins.int", "builtins.float", "builtins.bool", "operator.truth", "operator.not_"]:
            case = recorder.start(f"{name} of {short(dtype)}")
            finish(case, case.call(name, case.input(values(dtype, 1))))
        case = recorder.start(f"_local_scalar_dense {short(dtype)}")
        finish(case, case.call("torch.ops.aten._local_scalar_dense.default", case.input(values(dtype))))
        case = recorder.start(f"questions {short(dtype)}")
        x = case.input(values(dtype, 2))
        finish(case, case.method("is_floating_point", x), case.call("torch.is_complex", x), case.method("element_size", x),
               case.method("is_signed", x),
               case.call("builtins.getattr", x, "dtype"), case.call("builtins.getattr", x, "device"),
               case.call("builtins.getattr", x, "itemsize"),
               case.call("builtins.getattr", x, "is_cuda"))
        case = recorder.start(f"tolist of a 0-d {short(dtype)}")
        finish(case, case.method("tolist", case.input(values(dtype))))
    for name, x in [("item", values(F, 2)), ("item", values(F, 0)), ("__bool__", values(F, 2))]:
        case = recorder.start(f"{name} of {x.numel()} elements")
        finish(case, case.method(name, case.input(x)))
    for value in [2.75, -2.75, math.nan, math.inf]:
        for name in ["builtins.int", "builtins.float", "builtins.bool"]:
            case = recorder.start(f"{name} of the tensor {value}")
            finish(case, case.call(name, case.input(torch.tensor(value))))
    case = recorder.start("tolist")
    finish(case, case.method("tolist", case.input(values(L, 3))), refused=True)
    # attributes
    for name in ["T", "mT", "data", "H", "nothing", "real"]:
        for shape in [(2, 3), (2, 3, 4)]:
            case = recorder.start(f"getattr {name} {shape}")
            y = case.call("builtins.getattr", case.input(values(F, *shape)), name)
            finish(case, y, refused=name == "H")
    for dtype in ALL + [torch.int8, torch.int16]:
        info = "finfo" if dtype.is_floating_point else "iinfo"
        for name in ["max", "min", "bits"] + (["eps", "tiny", "smallest_normal"] if dtype.is_floating_point else []):
            if dtype == T:
                continue
            case = recorder.start(f"{info} {short(dtype)} {name}")
            finish(case, case.call("builtins.getattr", case.call(f"torch.{info}", dtype), name))
        case = recorder.start(f"attributes of {short(dtype)}")
        finish(case, case.call("builtins.getattr", dtype, "is_floating_point"),
               case.call("builtins.getattr", dtype, "itemsize"))
    for dtype in [F, L]:
        case = recorder.start(f"the other info of {short(dtype)}")
        finish(case, case.call("builtins.getattr", case.call(f"torch.{'iinfo' if dtype == F else 'finfo'}", dtype), "max"))
    case = recorder.start("finfo(x.dtype).min")
    x = case.call("builtins.getattr", case.input(values(H, 2)), "dtype")
    finish(case, case.call("builtins.getattr", case.call("torch.finfo", x), "min"))
    case = recorder.start("device.type")
    x = case.call("builtins.getattr", case.input(values(H, 2)), "device")
    finish(case, case.call("builtins.getattr", x, "type"))
    # sequences
    x = [1, 2, 3]
    number("operator.add tuples", "operator.getitem", ((1, 2), (3,)), 0)
    for a, b in [((1, 2), (3,)), ([1], [2]), ((1,), [2]), ((), ()), ([1], 2)]:
        case = recorder.start(f"operator.add {a} {b}")
        y = case.call("operator.add", a, b)
        finish(case, case.call("builtins.len", y))
    for a, n in [((1, 2), 2), ([1], 0), ([1], -1), ((), 5)]:
        case = recorder.start(f"operator.mul {a} {n}")
        finish(case, case.call("builtins.len", case.call("operator.mul", a, n)))
        case = recorder.start(f"operator.mul {n} {a}")
        finish(case, case.call("builtins.len", case.call("operator.mul", n, a)))
    for a, b in [((1, 2), (1, 2)), ((1, 2), [1, 2]), ("a", "a"), ("a", "b"), (None, None), (None, 1), (F, F), (F, D),
                 ([1.0], [1]), ((1, 2), (1, 3)), ({}, {})]:
        for name in ["eq", "ne"]:
            case = recorder.start(f"operator.{name} {a} {b}")
            finish(case, case.call(f"operator.{name}", a, b), refused=a == {})
    for a, b in [((1, 2), (1, 3)), ((2,), (1, 5)), ("a", "b")]:
        case = recorder.start(f"operator.lt {a} {b}")
        finish(case, case.call("operator.lt", a, b), refused=True)
    case = recorder.start("sizes compared")
    x, y = case.input(values(F, 2, 3)), case.input(values(F, 2, 3))
    finish(case, case.call("operator.eq", case.method("size", x), case.method("size", y)),
           case.call("operator.eq", case.method("size", x), (2, 4)),
           case.call("operator.eq", case.method("size", x), [2, 3]))
    for index in [0, -1, 2, 3, -4, slice(1, None), slice(None, None, 2), "a", True]:
        case = recorder.start(f"tuple[{index}]")
        finish(case, case.call("operator.getitem", (10, 20.5, 30), index))
    for key in ["a", 1, "b"]:
        case = recorder.start(f"dict[{key!r}]")
        finish(case, case.call("operator.getitem", {"a": 5, 1: 6}, key))
    case = recorder.start("tensors in a dict and a tuple")
    x = case.input(values(F, 2))
    d = case.call("operator.getitem", {"k": (x, 1)}, "k")
    finish(case, case.call("operator.getitem", d, 0))
    for name in ["tuple", "list", "set", "reversed", "sorted"]:
        case = recorder.start(f"builtins.{name}")
        y = case.call(f"builtins.{name}", (3, 1, 2))
        finish(case, case.call("operator.getitem", y, 1), refused=name not in ("tuple", "list"))
    case = recorder.start("tuple of a shape")
    y = case.call("builtins.tuple", case.method("size", case.input(values(F, 2, 3))))
    finish(case, case.call("operator.getitem", y, 1))
    case = recorder.start("tuple of a tensor")
    y = case.call("builtins.tuple", case.input(values(F, 2, 3)))
    finish(case, case.call("operator.getitem", y, 1), refused=True)
    case = recorder.start("torch.Size")
    finish(case, case.call("torch.Size", [2, 3]))
    for shapes in [((2, 1), (3,)), ((4,), (2, 1, 1)), ((2,), (3,)), ((), (2,)), ((0,), (1,))]:
        case = recorder.start(f"broadcast_shapes {shapes}")
        finish(case, case.call("torch.broadcast_shapes", *shapes))
    # is, isinstance
    for a, b in [(None, None), (1, None), (True, True), (True, False), (F, None)]:
        for name in ["is_", "is_not"]:
            case = recorder.start(f"operator.{name} {a} {b}")
            finish(case, case.call(f"operator.{name}", a, b))
    case = recorder.start("operator.is_ of tensors")
    x = case.input(values(F, 2))
    finish(case, case.call("operator.is_", x, x), case.call("operator.is_", x, None),
           case.call("operator.is_not", x, case.method("neg", x)))
    case = recorder.start("operator.contains")
    finish(case, case.call("operator.contains", [1, 2], 2), refused=True)
    case = recorder.start("torch.is_tensor")
    finish(case, case.call("torch.is_tensor", case.input(values(F, 2))), case.call("torch.is_tensor", 1))
    case = recorder.start("torch.get_default_dtype")
    finish(case, case.call("torch.get_default_dtype"))
    case = recorder.start("torch._assert")
    x = case.input(values(F, 2))
    case.call("torch._assert", True, "message")
    finish(case, x)
    for args in [(3,), (1, 4), (0, 10, 3), (5, 0, -2), (0,)]:
        case = recorder.start(f"range {args}")
        y = case.call("builtins.range", *args)
        finish(case, case.call("builtins.len", y), refused=True)
    case = recorder.start("builtins.str")
    finish(case, case.call("builtins.str", 3), refused=True)
    for value in (1, 2.5, True, "x", None):
        for name in ["len", "int"]:
            number(f"{name} of {value!r}", f"builtins.{name}", value)
            if value == "x":
                refuse_last()
    # numbers and tensors together
    for dtype in [F, L, T]:
        case = recorder.start(f"arithmetic with item {short(dtype)}")
        x = case.input(values(dtype, 3))
        n = case.method("item", case.input(values(dtype, 1)))
        finish(case, case.call("operator.add", n, 1), case.call("operator.mul", x, n))


if __name__ == "__main__":
    recorder = Recorder("python")
    main(recorder)
    recorder.write()
