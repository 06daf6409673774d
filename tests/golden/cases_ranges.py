"""Folds whose new weight or bias leaves the range of its dtype, or becomes nan: where the numbers are in the document."""
import base64
import struct

from make_cases import Graph, case, refusal


def filled(g, **numbers):
    """The graph with one number for all elements of each tensor: of those named with "__" for the dot, else 1."""
    for name, row in g.tensors.items():
        code = {"float16": "e", "float32": "f", "int64": "q"}[row["dtype"]]
        count = 1
        for size in row["shape"]:
            count *= size
        number = int(numbers.get(name.replace(".", "__"), 1)) if code == "q" else numbers.get(name.replace(".", "__"), 1.0)
        row["data"] = base64.b64encode(struct.pack(f"<{count}{code}", *[number] * count)).decode()
    return g


def cases():
    def linear_norm(dtype="float16", eps=1e-5, after=False):
        g = Graph()
        x = g.input(dtype=dtype)
        if after:
            return g.output(g.linear("fc", g.norm("norm", x, spatial=1, dtype=dtype), 3, dtype=dtype))
        return g.output(g.norm("norm", g.linear("fc", x, 3, dtype=dtype), spatial=1, dtype=dtype, eps=eps))

    def conv_norm(type="Conv", dtype="float16"):
        g = Graph()
        x = g.input(shape=(2, 4, 6, 6), dtype=dtype)
        return g.output(g.norm("norm", g.conv("conv", x, 6, type=f"torch.nn.{type}2d", dtype=dtype), dtype=dtype))

    scale = {"norm__weight": 100.0, "norm__running_mean": 1000.0}
    for name in ("FuseBatchNorm", "FuseBatchNorm1dInLinear"):
        fold = lambda case_name, graph, applied, *refused: case(name, case_name, graph, applied, *refused)
        refused = refusal("tensor-overflows", "fc", "norm")
        fold("float16-bias-overflows", filled(linear_norm(), **scale), 0, refused)
        fold("float16-weight-overflows", filled(linear_norm(), fc__weight=1000.0, norm__weight=100.0), 0, refused)
        fold("float16-in-range", filled(linear_norm(), norm__running_mean=100.0), 1)
        fold("float32-in-range", filled(linear_norm("float32"), **scale), 1)
        fold("float16-bias-after-overflows", filled(linear_norm(after=True), **scale), 0, refused)
        fold("eps-0", linear_norm(eps=0.0, dtype="float32"), 0, refusal("unsupported-constant", "fc", "norm"))
        fold("eps-0-variance-0", filled(linear_norm("float32", 0.0), norm__running_var=0.0), 0,
             refusal("unsupported-constant", "fc", "norm"))
        fold("eps-0-variance-1", filled(linear_norm("float32", 0.0)), 1)
    refused = refusal("tensor-overflows", "conv", "norm")
    case("FuseBatchNorm", "float16-conv-overflows", filled(conv_norm(), **scale), 0, refused)
    case("FuseBatchNorm", "float16-conv-transpose-overflows", filled(conv_norm("ConvTranspose"), **scale), 0, refused)
    case("FuseBatchNorm2dInConv2d", "float16-overflows", filled(conv_norm(), **scale), 0, refused)

    def branches(**numbers):
        g = Graph()
        x = g.input(shape=(2, 4, 6, 6), dtype="float16")
        y = g.fn("operator.add", g.conv("conv", x, 4, dtype="float16"), x, shape=(2, 4, 6, 6), dtype="float16", name="y")
        return filled(g.output(g.fn("operator.add", y, g.norm("norm", x, dtype="float16"), shape=(2, 4, 6, 6), dtype="float16",
                                    name="z")), **numbers)

    refused = refusal("tensor-overflows", "conv", "norm", "z")
    case("MergeBranches", "float16-in-range", branches(conv__weight=60000.0), 1)
    case("MergeBranches", "float16-weight-overflows", branches(conv__weight=60000.0, norm__weight=6000.0), 0, refused)
    case("MergeBranches", "float16-bias-overflows", branches(conv__bias=60000.0, norm__bias=6000.0), 0, refused)

    def norm_linear(dtype="float16"):
        g = Graph()
        tensors = {n: g.tensor(f"norm.{n}", [4], dtype) for n in ("weight", "bias")}
        g.module("norm", "torch.nn.LayerNorm", {"normalized_shape": (4,), "eps": 1e-5}, tensors)
        return g.output(g.linear("fc", g.call("norm", g.input(dtype=dtype)), 3, dtype=dtype))

    refused = refusal("tensor-overflows", "norm", "fc")
    case("FoldNormIntoLinear", "float16-weight-overflows",
         filled(norm_linear(), norm__weight=300.0, fc__weight=300.0), 0, refused)
    case("FoldNormIntoLinear", "float16-bias-overflows", filled(norm_linear(), norm__bias=300.0, fc__weight=100.0), 0, refused)
    case("FoldNormIntoLinear", "float16-in-range", filled(norm_linear(), norm__weight=10.0), 1)
    case("FoldNormIntoLinear", "float32-in-range", filled(norm_linear("float32"), norm__weight=300.0, fc__weight=300.0), 1)

    # ---- a product that is no Linear
    for number in ("alpha", "beta"):
        g = Graph()
        x = g.input()
        g.module("fc", "torch.nn.Module", None, {"weight": g.tensor("fc.weight", [4, 3]), "bias": g.tensor("fc.bias", [3])})
        bias, weight = g.get_attr("fc.bias", [3]), g.get_attr("fc.weight", [4, 3])
        y = g.fn("torch.addmm", bias, x, weight, shape=(2, 3), dtype="float32", kwargs={number: 2})
        case("FuseBatchNorm", f"addmm-with-{number}", g.output(g.norm("norm", y, spatial=1)), 0,
             refusal("unsupported-form", "addmm", "norm"))

    # ---- an activation that gives rows
    def activation(target, behind, turned=True):
        g = Graph()
        x = g.input(shape=(4, 3))
        x = g.method("t", x, shape=(3, 4),
                     dtype="float32") if turned else g.relu(g.method("contiguous", x, shape=(4, 3), dtype="float32"))
        shape = (3, 4) if turned else (4, 3)
        y = g.fn(f"torch.nn.functional.{target}", x, shape=shape, dtype="float32", name="act")
        if behind == "view":
            return g.output(g.method("view", y, -1, shape=(12,), dtype="float32"))
        return g.output(g.fn("torch.matmul", y, g.input("w", shape=shape[::-1]), shape=(3, 3), dtype="float32"))

    for old, new in (("relu", "log_sigmoid"), ("logsigmoid", "relu")):
        def replace(name, *rest, passes=[{"name": "ReplaceActivation", "params": {"from": old, "to": new}}]):
            case("ReplaceActivation", name, *rest, passes=passes)

        replace(f"rows-{old}-turned", activation(old, "view"), 0, refusal("needs-contiguous", "act"))
        replace(f"rows-{old}-not-read", activation(old, "matmul"), 1)
        replace(f"rows-{old}-contiguous", activation(old, "view", turned=False), 2 if old == "relu" else 1)
