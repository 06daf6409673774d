"""How results lie in memory: PyTorch's for test_eval_kernels.c. Whether view(-1) works, and what it gives, tells the strides. See
recorder.py."""

from recorder import Recorder, values

import torch

F = torch.float32
PERMUTED = {"rows": (0, 1, 2), "columns": (0, 2, 1), "outside in": (1, 0, 2), "turned": (1, 2, 0), "back": (2, 1, 0), "other": (2, 0, 1)}
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
    "embedding": lambda case, x: case.call("torch.nn.functional.embedding", case.method("to", case.method("gt", x, 0), torch.int64), case.input(values(F, 2, 2))),
    "dropout": lambda case, x: case.call("torch.nn.functional.dropout", x, 0.5, False),
    "prelu": lambda case, x: case.call("torch.nn.functional.prelu", x, case.input(values(F, 3))),
    "add_": lambda case, x: case.method("add_", x, case.input(values(F, 2, 3, 4))),
}


def main(recorder):
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
