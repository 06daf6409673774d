"""How results lie in memory: PyTorch's for test_eval_kernels.c. Whether view(-1) works, and what it gives, tells the strides.
See recorder.py."""

import torch
from recorder import Raised, Recorder, values

F = torch.float32
PERMUTED = {"rows": (0, 1, 2), "columns": (0, 2, 1), "outside in": (1, 0, 2), "turned": (1, 2, 0), "back": (2, 1, 0),
            "other": (2, 0, 1)}
# name -> from the case and a tensor of sizes (2, 3, 4), that lies in memory in some way, another tensor of theirs
CALLS = {
    "relu": lambda case, x: case.method("relu", x),
    "add a number": lambda case, x: case.call("operator.add", x, 1.0),
    "add a vector": lambda case, x: case.call("operator.add", case.input(values(F, 4)), x),
    "add a column": lambda case, x: case.call("operator.mul", case.input(values(F, 3, 1)), x),
    "add row-major": lambda case, x: case.call("torch.add", x, case.input(values(F, 2, 3, 4))),
    "row-major add": lambda case, x: case.call("torch.add", case.input(values(F, 2, 3, 4)), x),
    "where": lambda case, x: case.call("torch.where", case.call("torch.gt", x, 0), x, 0.0),
    "addcmul": lambda case, x: case.call("torch.addcmul", x, x, x),
    "clamp": lambda case, x: case.method("clamp", x, 0, 1),
    "hardtanh": lambda case, x: case.call("torch.nn.functional.hardtanh", x),
    "gelu": lambda case, x: case.call("torch.nn.functional.gelu", x),
    "softplus": lambda case, x: case.call("torch.nn.functional.softplus", x),
    "isnan": lambda case, x: case.method("isnan", x),
    "logical_not": lambda case, x: case.method("logical_not", x),
    "nan_to_num": lambda case, x: case.method("nan_to_num", x),
    "copy": lambda case, x: case.call("torch.ops.aten.copy.default", x, case.input(values(F, 2, 3, 4))),
    "clone": lambda case, x: case.method("clone", x),
    "contiguous": lambda case, x: case.method("contiguous", x),
    "clone contiguous": lambda case, x: case.method("clone", x, memory_format=torch.contiguous_format),
    "double": lambda case, x: case.method("double", x),
    "to": lambda case, x: case.method("to", x, torch.int64),
    "type_as": lambda case, x: case.method("type_as", x, case.input(values(torch.float64, 1))),
    "zeros_like": lambda case, x: case.call("torch.zeros_like", x),
    "full_like": lambda case, x: case.call("torch.full_like", x, 2.0),
    "softmax": lambda case, x: case.method("softmax", x, -1),
    "log_softmax": lambda case, x: case.method("log_softmax", x, 1),
    "layer_norm": lambda case, x: case.call("torch.nn.functional.layer_norm", x, (4,)),
    "masked_fill": lambda case, x: case.method("masked_fill", x, case.call("torch.gt", x, 0), 0.0),
    "masked_fill by rows": lambda case, x: case.method("masked_fill", x, case.input(values(torch.bool, 2, 3, 4)), 0.0),
    "cumsum": lambda case, x: case.method("cumsum", x, 1),
    "flip": lambda case, x: case.method("flip", x, (1,)),
    "roll": lambda case, x: case.method("roll", x, 1, 1),
    "tril": lambda case, x: case.method("tril", x),
    "sum": lambda case, x: case.method("sum", x, 0),
    "sum keepdim": lambda case, x: case.method("sum", x, 1, keepdim=True),
    "mean": lambda case, x: case.method("mean", x, -1),
    "amax": lambda case, x: case.method("amax", x, 0),
    "cat": lambda case, x: case.call("torch.cat", [x, x], 1),
    "stack": lambda case, x: case.call("torch.stack", [x, x]),
    "repeat": lambda case, x: case.method("repeat", x, 1, 1, 2),
    "linear": lambda case, x: case.call("torch.nn.functional.linear", x, case.input(values(F, 5, 4))),
    "matmul": lambda case, x: case.call("torch.matmul", x, case.input(values(F, 4, 5))),
    "pad": lambda case, x: case.call("torch.nn.functional.pad", x, (1, 1)),
    "normalize": lambda case, x: case.call("torch.nn.functional.normalize", x),
    "index_select": lambda case, x: case.method("index_select", x, 1, case.input(torch.tensor([0, 2]))),
    "gather": lambda case, x: case.method("gather", x, 1, case.input(torch.zeros(2, 1, 4, dtype=torch.int64))),
    "glu": lambda case, x: case.call("torch.nn.functional.glu", x),
    "embedding": lambda case, x: case.call("torch.nn.functional.embedding",
                                           case.method("to", case.method("gt", x, 0), torch.int64),
                                           case.input(values(F, 2, 2))),
    "dropout": lambda case, x: case.call("torch.nn.functional.dropout", x, 0.5, False),
    "prelu": lambda case, x: case.call("torch.nn.functional.prelu", x, case.input(values(F, 3))),
    "add_": lambda case, x: case.method("add_", x, case.input(values(F, 2, 3, 4))),
}

LAST, LAST_3D, KEPT, ROWS = torch.channels_last, torch.channels_last_3d, torch.preserve_format, torch.contiguous_format
# name -> from the case, a tensor and a format
FORMATS = {
    "contiguous": lambda case, x, f: case.method("contiguous", x, memory_format=f),
    "clone": lambda case, x, f: case.method("clone", x, memory_format=f),
    "to": lambda case, x, f: case.method("to", x, memory_format=f),
    "to double": lambda case, x, f: case.method("to", x, torch.float64, memory_format=f),
    "float": lambda case, x, f: case.method("float", x, memory_format=f),
    "_to_copy": lambda case, x, f: case.call("torch.ops.aten._to_copy.default", x, memory_format=f),
    "zeros_like": lambda case, x, f: case.call("torch.zeros_like", x, memory_format=f),
    "aten.full_like": lambda case, x, f: case.call("torch.ops.aten.full_like.default", x, 2.0, pin_memory=False,
                                                   memory_format=f),
}
NUMBERS = {"contiguous": "torch.ops.aten.contiguous.default", "clone": "torch.ops.aten.clone.default"}
FILLS = {"fill": ("torch.ops.aten.fill.Scalar", 2.0), "zero": ("torch.ops.aten.zero.default",)}
SEEN = [(0, 1, 2, 3), (0, 2, 3, 1), (0, 2, 1, 3), (2, 0, 1, 3)]


def tell(recorder, name, make):
    """Its strides by the views that work, and whether what is written to the result is written to x."""
    for axes in SEEN:
        case = recorder.start(f"{name}, seen as {axes}")
        y = make(case)[1]
        y = case.method("permute", y, *axes) if y.value is not None and getattr(y.value, "ndim", 4) == 4 else y
        recorder.finish(case, case.method("view", y, -1))
    case = recorder.start(f"{name}, written to")
    x, y = make(case)
    case.method("add_", y, 1)
    recorder.finish(case, y if isinstance(y.value, Raised) else x)


def formats(recorder):
    for sizes in [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 3, 4, 5), (2, 3, 4, 5, 2), (2, 3, 4)]:
        for how in ("plain", "channels last", "turned"):
            if how != "plain" and len(sizes) != 4:
                continue

            def start(case):
                x = case.input(values(F, *sizes))
                return {"plain": lambda: x, "channels last": lambda: case.method("clone", x, memory_format=LAST),
                        "turned": lambda: case.method("transpose", x, 1, 2)}[how]()

            def both(case, call):
                x = start(case)
                return x, call(case, x)

            for format in (LAST, LAST_3D, KEPT, ROWS):
                for name, call in FORMATS.items():
                    tell(recorder, f"{name} {format} of {sizes}, {how}",
                         lambda case: both(case, lambda case, x: call(case, x, format)))
            for name, target in NUMBERS.items():
                for number in range(4):
                    tell(recorder, f"{name} {number} of {sizes}, {how}",
                         lambda case: both(case, lambda case, x: case.call(target, x, memory_format=number)))
            for name, (target, *more) in FILLS.items():
                tell(recorder, f"{name} of {sizes}, {how}",
                     lambda case: both(case, lambda case, x: case.call(target, x, *more)))


def main(recorder):
    formats(recorder)
    for name, call in CALLS.items():
        for how, order in PERMUTED.items():
            for seen, axes in PERMUTED.items():
                case = recorder.start(f"{name}, {how} seen as {seen}")
                back = tuple(order.index(i) for i in range(3))
                x = case.method("permute", case.input(values(F, *(((2, 3, 4)[i]) for i in order))), *back)
                y = call(case, x)
                y = case.method("permute", y, *axes) if y.value is not None and getattr(y.value, "ndim", 3) == 3 else y
                recorder.finish(case, case.method("view", y, -1), ulps=16, absolute=1e-6)


if __name__ == "__main__":
    recorder = Recorder("layout")
    main(recorder)
    recorder.write()
