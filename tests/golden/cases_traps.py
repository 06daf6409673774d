"""Known failures of other optimisers, by number: in the dialect that the passes' own cases leave out, and those about lists of
passes, signatures, numbers and undoing. Expected is what has to be; why, the name says."""
import base64
import hashlib
import json
import struct
from decimal import Decimal, getcontext

from cases_layers import ADDMM, ATEN, call_linear, conv, image, linear, norm, own
from make_cases import Graph, Raw, beside, case, refusal

MERGE, BIAS, DIV, DEAD = "MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse", "EliminateDeadCode"
INF, NAN = Raw({"$float": "inf"}), Raw({"$float": "nan"})


def cases():
    batch_norm()
    rounded_once()
    linears()
    divisions()
    lists()
    signatures()
    clean_up()


def in_dtype(g, dtype):
    """The graph with every float32 in another dtype."""
    for row in g.nodes:
        if row["meta"].get("dtype") == "float32":
            row["meta"]["dtype"] = dtype
    for row in g.tensors.values():
        row["dtype"] = dtype if row["dtype"] == "float32" else row["dtype"]
    return g


# ---- BatchNorm folding


def batch_norm():
    def fold(name, graph, applied, *refused):
        case("FuseBatchNorm", name, graph, applied, *refused)

    for aten in (True, False):
        form = "aten" if aten else "functional"
        g = Graph()
        y = norm(g, "bn", linear(g, "fc", g.input(), 5, form), aten=aten, affine=False)
        fold(f"trap-07-{form}-affine-false", g.output(y), 1)
        g = Graph()
        y = linear(g, "fc", norm(g, "bn", g.input(), aten=aten, affine=False), 5, form)
        fold(f"trap-07-{form}-affine-false-then-linear", g.output(y), 1)

    g = Graph()
    y = norm(g, "bn", linear(g, "fc", g.input(shape=(2, 7, 4)), 5))
    fold("trap-08-aten-channels-differ", g.output(y), 0, refusal("channel-mismatch", "fc", "bn"))
    g = Graph()
    reads = own(g, "fc", weight=[5, 4], bias=[5])
    x = g.node("x", "placeholder", "x", [], {}, None, "float32")
    y = g.fn(ATEN + "linear.default", x, *reads, name="fc")
    fold("trap-09-aten-shape-unknown", g.output(norm(g, "bn", y, features=5)), 0, refusal("unknown-shape", "bn"))

    for dtype in ("float16", "bfloat16"):
        g = Graph()
        y = norm(g, "bn", conv(g, "conv", image(g), 6))
        fold(f"trap-12-aten-{dtype}-conv-without-bias", in_dtype(g.output(y), dtype), 1)
        g = Graph()
        y = norm(g, "bn", linear(g, "fc", g.input(), 5, bias=False))
        fold(f"trap-12-aten-{dtype}-linear-without-bias", in_dtype(g.output(y), dtype), 1)

    g = Graph()
    x = image(g, channels=4, size=6)
    reads = own(g, "conv", weight=[6, 4, 3, 3])
    y = g.fn("torch.conv2d", x, *reads, shape=(2, 6, 2, 2), dtype="float32", name="conv", kwargs={"stride": 2})
    fold("trap-14-stride-by-keyword", g.output(norm(g, "bn", y, aten=False)), 1)

    g = Graph()
    x = image(g, channels=4, size=6)
    (weight,) = own(g, "conv", weight=[6, 4, 3, 3])
    y = g.fn("torch.conv2d", shape=(2, 6, 4, 4), dtype="float32", name="conv", kwargs={"input": x, "weight": weight})
    n = [6]
    weight, bias, mean, var = own(g, "bn", weight=n, bias=n, running_mean=n, running_var=n,
                                  buffers=("running_mean", "running_var"))
    z = g.fn("torch.nn.functional.batch_norm", shape=(2, 6, 4, 4), dtype="float32", name="bn", kwargs={
        "input": y, "running_mean": mean, "running_var": var, "weight": weight, "bias": bias, "training": False})
    fold("trap-15-functional-keywords", g.output(z), 1)

    g = Graph()
    x = g.input(shape=(3, 2, 4))
    weight, bias = own(g, "norm", weight=(2, 4), bias=(2, 4))
    y = g.fn(ATEN + "layer_norm.default", x, [2, 4], weight, bias, shape=(3, 2, 4), dtype="float32", name="norm")
    case("FoldNormIntoLinear", "trap-40-aten-two-dimensions", g.output(linear(g, "fc", y, 3)), 0,
         refusal("shape-mismatch", "norm", "fc"))


# ---- a fold in bfloat16: computed wide, rounded once

WEIGHT, GAMMA, BETA = [1.0078125, -2.328125, 3.140625, 0.10009765625], [1.6953125, -0.58984375], [-1.046875, 0.1767578125]
MEAN, VAR, EPS = [-0.51953125, 0.416015625], [0.30078125, 1.703125], Decimal("0.00001")


def bfloat16(exact):
    """The two bytes of the nearest bfloat16, of two equally near ones the even one."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", float(exact)))
    low = bits & ((1 << 45) - 1)
    bits = (bits >> 45) + (low > 1 << 44 or (low == 1 << 44 and bits >> 45 & 1))
    sign, exponent, mantissa = bits >> 18, (bits >> 7 & 0x7FF) - 1023 + 127, bits & 0x7F
    assert 0 < exponent < 255
    return struct.pack("<H", sign << 15 | exponent << 7 | mantissa)


def value(packed):
    return Decimal(struct.unpack("<f", b"\0\0" + packed)[0])


def rounded_once():
    getcontext().prec = 60
    weight, gamma, beta, mean, var = ([Decimal(n) for n in numbers] for numbers in (WEIGHT, GAMMA, BETA, MEAN, VAR))
    for number in weight + gamma + beta + mean + var:
        assert value(bfloat16(number)) == number, number
    scale = [g / (v + EPS).sqrt() for g, v in zip(gamma, var)]
    weights = b"".join(bfloat16(w * scale[i // 2]) for i, w in enumerate(weight))
    biases = b"".join(bfloat16(b - m * s) for b, m, s in zip(beta, mean, scale))
    twice = [value(bfloat16(s)) for s in scale]
    assert weights != b"".join(bfloat16(w * twice[i // 2]) for i, w in enumerate(weight))  # what a scale in bfloat16 gives
    assert biases != b"".join(bfloat16(b - value(bfloat16(m * s))) for b, m, s in zip(beta, mean, twice))
    data = {"conv.weight": weight, "bn.weight": gamma, "bn.bias": beta, "bn.running_mean": mean, "bn.running_var": var}

    def filled(g):
        in_dtype(g, "bfloat16")
        for name, numbers in data.items():
            g.tensors[name]["data"] = base64.b64encode(b"".join(map(bfloat16, numbers))).decode()
        return g

    g = Graph()
    y = g.conv("conv", g.input(shape=(1, 2, 3, 3)), 2, kernel=1, bias=False, config={"padding": (0, 0)})
    modules = filled(g.output(g.norm("bn", y)))
    g = Graph()
    aten = filled(g.output(norm(g, "bn", conv(g, "conv", g.input(shape=(1, 2, 3, 3)), 2, kernel=1, padding=0))))
    for folder, graph in (("FuseBatchNorm2dInConv2d/trap-13-bfloat16", modules), ("FuseBatchNorm/trap-13-aten-bfloat16", aten)):
        case(*folder.split("/"), graph, 1)
        beside(folder, "numbers.json", {"conv.weight": weights.hex(), "conv.bias": biases.hex()})


# ---- Linear merging and bias fusion


def linears():
    def merge(name, graph, applied, *refused):
        case(MERGE, name, graph, applied, *refused)

    g = Graph()
    x = g.input()
    reads = {p: own(g, p, weight=[3, 4], bias=[3]) for p in "qk"}
    keywords = lambda p: dict(zip(("input", "weight", "bias"), [x, *reads[p]]))
    values = [g.fn("torch._C._nn.linear", shape=(2, 3), dtype="float32", name=p, kwargs=keywords(p)) for p in reads]
    merge("trap-15-functional-keywords", g.output(*values), 1)

    g = Graph()
    x = g.input()
    reads = own(g, "fc", weight=[3, 4], bias=[3])
    twice = [call_linear(g, x, reads, 3, name="first"), call_linear(g, x, reads, 3, name="second")]
    merge("trap-17-aten-called-twice-on-one-input", g.output(*twice, linear(g, "q", x, 2), linear(g, "k", x, 2)), 1)
    g = Graph()
    x, y = g.input(), g.input("y")
    reads = own(g, "fc", weight=[3, 4], bias=[3])
    twice = [call_linear(g, x, reads, 3, name="first"), call_linear(g, y, reads, 3, name="second")]
    merge("trap-17-aten-called-twice-on-two-inputs", g.output(*twice, linear(g, "q", x, 2), linear(g, "k", x, 2)), 1)

    for form in ("aten", "aten-addmm", "functional"):
        if form in ADDMM:
            continue  # addmm cannot do without its addend
        g = Graph()
        x = g.input()
        merge(f"trap-18-{form}-no-bias", g.output(*[linear(g, p, x, 3, form, bias=False) for p in "qk"]), 1)
        g = Graph()
        x = g.input()
        values = [linear(g, p, x, 3, form) for p in "qkv"]
        for row in g.nodes:
            if row["target"] in ("k.weight", "k.bias"):
                row["meta"]["dtype"] = g.tensors[row["target"]]["dtype"] = "float16"
        merge(f"trap-20-{form}-dtypes", g.output(*values), 1, refusal("dtype", "k"))

    for form in ("aten", "aten-addmm"):
        g = Graph()
        x = g.input()
        y, _dead = linear(g, "q", x, 3, form), linear(g, "k", x, 3, form)
        case(DEAD, f"trap-21-{form}-one-branch-of-merged-linears", g.output(y), None, passes=[MERGE, DEAD],
             expected=[(MERGE, 1, []), (DEAD, 1, [])])
        g = Graph()
        x = g.input()
        case("Composition", f"trap-22-{form}-merge-then-deep-copy", g.output(*[linear(g, p, x, 3, form) for p in "qk"]), None,
             passes=[MERGE, "DeepCopy"], expected=[(MERGE, 1, []), ("DeepCopy", 0, [])])

    g = Graph()
    case(BIAS, "trap-23-aten-one-output", g.output(linear(g, "fc", g.input(), 1)), 1)
    for dtype in ("float16", "bfloat16"):
        g = Graph()
        case(BIAS, f"trap-24-aten-{dtype}", in_dtype(g.output(linear(g, "fc", g.input(), 3)), dtype), 1)
    g = Graph()
    x = g.input()
    taken = [g.input(n) for n in ("slice_tensor", "ones_like_default", "cat_default")]
    case(BIAS, "trap-39-aten-names-taken", g.output(linear(g, "fc", x, 3), *taken), 1)
    g = Graph()
    x = g.input()
    g.module("q-k-merged", "torch.nn.Module", parameters={"weight": g.tensor("q-k-merged.weight", [2, 2])})
    taken = [g.get_attr("q-k-merged.weight", (2, 2), name="q_k_merged_weight"), g.input("linear_default")]
    merge("trap-39-aten-path-and-name-taken", g.output(linear(g, "q", x, 3), linear(g, "k", x, 3), *taken), 1)


# ---- division


def divisions():
    def divide(name, divisor, *refused):
        g = Graph()
        y = g.fn(ATEN + "div.Tensor", g.input(), divisor, shape=(2, 4), dtype="float32", name="div")
        case(DIV, f"trap-27-aten-{name}", g.output(y), 0, *refused)

    divide("inf", INF, refusal("non-finite-divisor", "div"))
    divide("nan", NAN, refusal("non-finite-divisor", "div"))
    divide("denormal", 1e-40, refusal("inverse-out-of-range", "div"))


# ---- lists of passes


def attention(aten):
    """Three Linears of one input, a division, and a BatchNorm behind a fourth."""
    g = Graph()
    x = g.input(shape=(3, 4))
    make = (lambda p: linear(g, p, x, 4)) if aten else (lambda p: g.linear(p, x, 4))
    q, k, v, last = (make(p) for p in ("q", "k", "v", "last"))
    last = norm(g, "bn", last) if aten else g.norm("bn", last, spatial=1)
    scaled = (g.fn(ATEN + "div.Tensor", q, 8.0, shape=(3, 4), dtype="float32", name="div") if aten else
              g.fn("operator.truediv", q, 8.0, shape=(3, 4), dtype="float32", name="div"))
    return g.output(scaled, k, v, last)


def lists():
    for aten in (False, True):
        form = "aten" if aten else "modules"
        for name in (MERGE, BIAS, DIV):
            applied = {MERGE: 1, BIAS: 4, DIV: 1}[name]
            case("Composition", f"trap-29-{form}-one-pass-{name}", attention(aten), None, passes=[[name]],
                 expected=[(name, applied, [])])
        case("Composition", f"trap-30-{form}-input-stays", attention(aten), None,
             passes=["FuseBatchNorm", MERGE, BIAS, DIV],
             expected=[("FuseBatchNorm", 1, []), (MERGE, 1, []), (BIAS, 1, []), (DIV, 1, [])])


def signature(call):
    """As the API says: of canonical JSON, by nothing but hashlib."""
    call = {"name": call} if isinstance(call, str) else call
    text = json.dumps({"params": call.get("params", {}), "pass": call["name"], "version": call.get("version", 1)},
                      sort_keys=True,
                      separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def signatures():
    def signed(name, graph, passes, expected):
        case("Composition", name, graph, None, passes=passes, expected=expected)
        of_passes = [signature(call) for call in passes]
        whole = hashlib.sha256(json.dumps(of_passes, separators=(",", ":")).encode()).hexdigest()[:32]
        beside(f"Composition/{name}", "signatures.json", {"passes": of_passes, "composition": whole})

    signed("trap-31-the-same-in-every-process", attention(False), [MERGE, BIAS, {"name": DIV, "version": 2}],
           [(MERGE, 1, []), (BIAS, 1, []), (DIV, 1, [])])

    def activation(slope):
        params = {"from": "relu", "to": "leaky_relu", "parameters": {"negative_slope": slope}}
        return {"name": "ReplaceActivation", "params": params, "version": 2}

    def precision(*keep):
        return {"name": "ConvertPrecision", "params": {"to": "float16", "keep": list(keep)}, "version": 2}

    g = Graph()
    g.output(g.fn("torch.tanh", g.input(dtype="float64"), shape=(2, 4), dtype="float64"))
    slopes, kept = [-1, -2, 1, 1.0, True, "1"], [["a"], ["b"], ["a", "b"], ["b", "a"]]
    nothing = [("ReplaceActivation", 0, [])] * len(slopes)
    nothing += [("ConvertPrecision", 0, [refusal("keeps-nothing")] * len(keep)) for keep in kept]
    signed("trap-32-parameters-that-look-alike", g, [activation(s) for s in slopes] + [precision(*k) for k in kept], nothing)


# ---- clean-up


def clean_up():
    g = Graph()
    y = g.fn(ATEN + "mul.Tensor", g.input(), 1, shape=(2, 4), dtype="float32", name="y")
    case("RemoveNoOps", "trap-34-aten-copy-of-an-input", g.output(y), 0, refusal("graph-output", "y"))

    g = Graph()
    cast = lambda x, to: g.fn(ATEN + "to.dtype", x, Raw({"$dtype": to}), shape=(2, 4), dtype=to, name="to")
    back = cast(cast(g.relu(g.input()), "float16"), "float32")
    case("RemoveNoOps", "trap-36-aten-there-and-back",
         g.output(g.fn(ATEN + "tanh.default", back, shape=(2, 4), dtype="float32")), 0)
