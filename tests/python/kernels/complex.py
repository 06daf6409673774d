"""Complex numbers: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import COMPLEX, STRIDES, Recorder, short, strided, values

CLOSE = dict(ulps=16, absolute=1e-5)
PART = {torch.complex64: torch.float32, torch.complex128: torch.float64}

# Calls that no complex number may come through: PyTorch has some of them, none is evaluated.
REFUSED = [
    ("torch.nn.functional.relu",), ("torch.softmax", -1), ("torch.cumsum", 0), ("torch.sigmoid",), ("torch.tanh",),
    ("torch.sin",), ("torch.sort",), ("torch.argmax",),
    ("torch.prod",), ("torch.var",), ("torch.amax", 0), ("torch.norm",), ("torch.isnan",), ("torch.nn.functional.gelu",),
    ("torch.tril",), ("torch.triu",), ("torch.round",),
    ("torch.nn.functional.layer_norm", (4,)), ("torch.nn.functional.pad", (1, 1)), ("torch.logsumexp", 0), ("torch.std",),
    ("torch.sqrt",), ("torch.pow", 2),
    ("operator.pow", 3), ("operator.floordiv", 2), ("torch.clamp", 0, 1), ("torch.any",), ("torch.all",), ("torch.nan_to_num",),
    ("torch.nn.functional.silu",), ("torch.nn.functional.avg_pool1d", 2), ("torch.nn.functional.max_pool1d", 2),
    ("torch.topk", 1), ("torch.linalg.vector_norm",),
    ("torch.logical_not",), ("torch.count_nonzero",), ("torch.max",), ("torch.min",), ("torch.floor",), ("torch.sign",),
]


def main(recorder):
    def of(name, calls, *tensors, how="plain", refused=False, **more):
        """calls: [(target or .method, args, kwargs)], each on the first input, or on what the call before made."""
        case = recorder.start(name)
        inputs = [strided(case, t, how) if i == 0 else case.input(t) for i, t in enumerate(tensors)]
        made = inputs[0]
        for target, *args in calls:
            args = [inputs[a[1]] if isinstance(a, tuple) and a[:1] == ("input",) else a for a in args]
            made = case.method(target[1:], made, *args) if target.startswith(".") else case.call(target, made, *args)
        recorder.finish(case, made, refused=refused, **(more or CLOSE))

    for dtype in COMPLEX:
        kind, part = short(dtype), PART[dtype]
        for how in STRIDES:
            of(f"view_as_real {kind} {how}", [("torch.view_as_real",)], values(dtype, 3, 4), how=how, ulps=0)
            for name in ("torch.real", "torch.imag", "torch.conj", "torch.abs", "torch.angle", "torch.neg", "torch.exp"):
                of(f"{name} {kind} {how}", [(name,)], values(dtype, 3, 4), how=how)
            for name in ("operator.add", "operator.sub", "operator.mul", "operator.truediv"):
                of(f"{name} {kind} {how}", [(name, ("input", 1))], values(dtype, 3, 4), values(dtype, 3, 4, seed=3), how=how)
        for name in ("operator.add", "operator.sub", "operator.mul", "operator.truediv"):
            of(f"{name} {kind} broadcast", [(name, ("input", 1))], values(dtype, 3, 4), values(dtype, 4))
            of(f"{name} {kind} and its part", [(name, ("input", 1))], values(dtype, 3, 4), values(part, 3, 4))
            of(f"{name} part and {kind}", [(name, ("input", 1))], values(part, 3, 4), values(dtype, 3, 4))
            of(f"{name} {kind} and float16", [(name, ("input", 1))], values(dtype, 3, 4), values(torch.float16, 3, 4))
            of(f"{name} {kind} and float64", [(name, ("input", 1))], values(dtype, 3, 4), values(torch.float64, 3, 4))
            of(f"{name} {kind} and ints", [(name, ("input", 1))], values(dtype, 3, 4), values(torch.int64, 3, 4) * 2 + 1)
            of(f"{name} {kind} and a number", [(name, 2.5)], values(dtype, 3, 4))
            of(f"{name} {kind} and an int", [(name, 3)], values(dtype, 3, 4))
        for name in ("add", "sub"):
            case = recorder.start(f"{name} alpha {kind}")
            operands = case.input(values(dtype, 3)), case.input(values(dtype, 3, seed=1))
            recorder.finish(case, case.call(f"torch.ops.aten.{name}.Tensor", *operands, alpha=2.5), **CLOSE)
        for name in ("torch.matmul", "torch.mm"):
            of(f"{name} {kind}", [(name, ("input", 1))], values(dtype, 3, 4), values(dtype, 4, 2))
            of(f"{name} {kind} transposed", [(name, ("input", 1))], values(dtype, 3, 4), values(dtype, 4, 2), how="transposed")
        of(f"bmm {kind}", [("torch.bmm", ("input", 1))], values(dtype, 2, 3, 4), values(dtype, 2, 4, 3))
        of(f"mv {kind}", [("torch.mv", ("input", 1))], values(dtype, 3, 4), values(dtype, 4))
        of(f"matmul broadcast {kind}", [("torch.matmul", ("input", 1))], values(dtype, 2, 1, 3, 4), values(dtype, 3, 4, 2))
        of(f"matmul of two kinds {kind}", [("torch.matmul", ("input", 1))], values(dtype, 3, 4), values(part, 4, 2))
        for args in ([], [0], [1, True], [(0, 1)]):
            of(f"sum {args} {kind}", [("torch.sum", *args)], values(dtype, 3, 4))
            if args:
                of(f"mean {args} {kind}", [("torch.mean", *args)], values(dtype, 3, 4))
        of(f"mean {kind}", [("torch.mean",)], values(dtype, 3, 4))
        # where elements move
        for name, *args in [
            (".transpose", 0, 1), (".reshape", 4, 3), (".view", 2, 6), (".flatten",), (".unsqueeze", 1), (".permute", 1, 0),
            (".expand", 2, 3, 4), (".repeat", 2, 1),
            (".flip", 0), (".roll", 1, 0), (".clone",), (".contiguous",), (".detach",), (".narrow", 1, 1, 2), (".select", 0, 1),
            (".t",), (".index_select", 1, ("input", 1)),
            ("operator.getitem", (slice(None), slice(1, None, 2))), ("operator.getitem", 1), ("operator.getitem", ("input", 1)),
        ]:
            of(f"{name} {args} {kind}", [(name, *args)], values(dtype, 3, 4), torch.tensor([1, 0]), ulps=0)
        for other in (*COMPLEX, torch.float32, torch.float64, torch.float16, torch.int64, torch.bool):
            of(f"{kind} to {short(other)}", [(".to", other)], values(dtype, 3, 4), ulps=0)
            if not other.is_complex:
                of(f"{short(other)} to {kind}", [(".to", dtype)], values(other, 3, 4), ulps=0)
        for name in ("cat", "stack"):
            case = recorder.start(f"{name} {kind}")
            inputs = [case.input(values(dtype, 2, 3, seed=i)) for i in range(2)]
            recorder.finish(case, case.call(f"torch.{name}", inputs, 1))
        case = recorder.start(f"zeros, ones, full {kind}")
        recorder.finish(case, *(case.call(f"torch.{n}", (2, 3), *a, dtype=dtype)
                                for n, a in (("zeros", ()), ("ones", ()), ("full", (1.5,)))))
        case = recorder.start(f"full of a complex number {kind}")
        recorder.finish(case, case.call("torch.full", (2, 3), case.input(values(dtype)), dtype=dtype))
        case = recorder.start(f"fill_ with a complex number {kind}")
        x = case.input(values(dtype, 2, 3))
        case.method("fill_", x, case.input(values(dtype, seed=5)))
        recorder.finish(case, x)
        # views share
        case = recorder.start(f"what is written to a part is written to the whole {kind}")
        x = case.input(values(dtype, 2, 3))
        case.method("mul_", case.call("torch.imag", x), 2)
        case.method("zero_", case.call("torch.real", x))
        case.method("add_", case.call("torch.view_as_real", x), 1)
        recorder.finish(case, x)
        case = recorder.start(f"view_as_complex {kind}")
        x = case.input(values(part, 2, 3, 2))
        y = case.call("torch.view_as_complex", x)
        case.method("mul_", y, 2)
        recorder.finish(case, x, y)
        case = recorder.start(f"in place {kind}")
        x = case.input(values(dtype, 2, 3))
        for method, other in (("add_", values(dtype, 2, 3, seed=2)), ("mul_", values(part, 3)),
                              ("div_", values(dtype, 2, 1, seed=4)), ("sub_", values(dtype, 3, seed=6))):
            case.method(method, x, case.input(other))
        recorder.finish(case, x, **CLOSE)
        case = recorder.start(f"a complex result into a real tensor {kind}")
        recorder.finish(case, case.method("add_", case.input(values(part, 2, 3)), case.input(values(dtype, 2, 3))), **CLOSE)
        case = recorder.start(f"setitem {kind}")
        x = case.input(values(dtype, 3, 4))
        case.call("operator.setitem", x, (slice(None), slice(0, 2)), case.input(values(dtype, 3, 2, seed=2)))
        case.call("operator.setitem", x, (0, 3), 2.0)
        recorder.finish(case, x)
        case = recorder.start(f"index_put_ that accumulates {kind}")
        x = case.input(values(dtype, 3, 4))
        case.method("index_put_", x, (case.input(torch.tensor([0, 2, 0])),), case.input(values(dtype, 3, 4, seed=2)), True)
        recorder.finish(case, x, **CLOSE)
        for name in ("torch.complex", "torch.polar"):
            for how in STRIDES:
                of(f"{name} {kind} {how}", [(name, ("input", 1))], values(part, 3, 4), values(part, 3, 4, seed=2), how=how)
            of(f"{name} {kind} broadcast", [(name, ("input", 1))], values(part, 3, 4), values(part, 4))
            of(f"{name} {kind} of two dtypes", [(name, ("input", 1))], values(part, 3), values(torch.float16, 3))
        of(f"view_as_complex of neighbours that are none {kind}", [(".transpose", 0, 1), ("torch.view_as_complex",)],
           values(part, 2, 4))
        of(f"view_as_complex of three {kind}", [("torch.view_as_complex",)], values(part, 2, 3))
        of(f"view_as_complex of an odd place {kind}",
           [("operator.getitem", (slice(1, 7),)), (".reshape", 3, 2), ("torch.view_as_complex",)], values(part, 7))
        of(f"view_as_complex of an odd stride {kind}", [(".unfold", 0, 2, 3), ("torch.view_as_complex",)], values(part, 9))
        of(f"matmul with a vector {kind}", [("torch.matmul", ("input", 1))], values(dtype, 2, 3), values(dtype, 3))
        for equation, shapes in (("ij,jk->ik", ((2, 3), (3, 4))), ("bix,iox->box", ((2, 3, 4), (3, 2, 4))),
                                 ("ij->ji", ((2, 3),)), ("ij->", ((2, 3),))):
            case = recorder.start(f"einsum {equation} {kind}")
            recorder.finish(case, case.call("torch.einsum", equation,
                                            *(case.input(values(dtype, *s, seed=i)) for i, s in enumerate(shapes))), **CLOSE)
        # a conjugate shares its storage in PyTorch: nothing may be written that would be seen there
        case = recorder.start(f"a conjugate is written {kind}")
        x = case.input(values(dtype, 3))
        y = case.call("torch.conj", x)
        case.method("mul_", y, 2)
        recorder.finish(case, x, y, refused=True)
        case = recorder.start(f"what a conjugate was taken of is written {kind}")
        x = case.input(values(dtype, 3))
        y = case.call("torch.conj", x)
        case.method("mul_", x, 2)
        recorder.finish(case, x, y, refused=True)
        case = recorder.start(f"a conjugate is read {kind}")
        x = case.input(values(dtype, 3))
        recorder.finish(case, case.call("operator.mul", case.call("torch.conj", x), x),
                        case.call("torch.conj", case.call("torch.conj", x)), **CLOSE)
        for target, *args in REFUSED:
            of(f"{target} {args} of {kind}", [(target, *args)], values(dtype, 3, 4), refused=True)
        for target in ("torch.maximum", "torch.minimum", "torch.atan2", "operator.gt", "operator.lt", "operator.eq",
                       "operator.ne", "torch.dot", "torch.outer"):
            of(f"{target} of {kind}", [(target, ("input", 1))], values(dtype, 4), values(dtype, 4, seed=1),
               refused=target != "torch.dot")
        of(f"conv1d of {kind}", [("torch.nn.functional.conv1d", ("input", 1))], values(dtype, 2, 3, 4), values(dtype, 2, 3, 1),
           refused=True)
        for target in ("torch.nn.functional.linear", "torch.ops.aten.linear.default"):
            for shape in ((4,), (2, 4), (2, 5, 4), (0, 4)):
                given = values(dtype, *shape), values(dtype, 3, 4, seed=1), values(dtype, 3, seed=2)
                of(f"{target} of {kind} {shape}", [(target, ("input", 1))], *given[:2])
                of(f"{target} of {kind} {shape} and a bias", [(target, ("input", 1), ("input", 2))], *given)
            mixed = values(dtype, 2, 4), values(PART[dtype], 3, 4), values(dtype, 3)
            of(f"{target} of {kind} by real numbers", [(target, ("input", 1))], *mixed[:2], refused=True)
            of(f"{target} of {kind} and a real bias", [(target, ("input", 1), ("input", 2))], mixed[0], values(dtype, 3, 4),
               values(PART[dtype], 3), refused=True)
    for name in ("mul", "add", "sub"):  # complex32 comes out
        of(f"{name} of half and one complex number", [(f"operator.{name}", ("input", 1))], values(torch.float16, 3),
           torch.tensor(1j), refused=True)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.float16, torch.bool):
        for name in ("torch.real", "torch.imag", "torch.conj", "torch.angle", "torch.view_as_real"):
            of(f"{name} of {short(dtype)}", [(name,)], values(dtype, 3, 4))
    case = recorder.start("rotary positions as complex numbers")
    x = case.call("torch.view_as_complex", case.method("reshape", case.input(values(torch.float32, 2, 5, 8)), 2, 5, 4, 2))
    angles = case.call("torch.outer", case.input(torch.arange(5.0)), case.input(values(torch.float32, 4)))
    turned = case.call("operator.mul", x, case.call("torch.polar", case.call("torch.ones_like", angles), angles))
    recorder.finish(case, case.method("flatten", case.call("torch.view_as_real", turned), 2), **CLOSE)


if __name__ == "__main__":
    recorder = Recorder("complex")
    main(recorder)
    recorder.write()
