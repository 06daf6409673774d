"""Verdicts of POST /v1/compare, judged by PyTorch in float64: no broken pair is called equal, and no right one differs.

A broken pair is a graph and a copy with one mistake at a place that a seed draws; FOLDBACK_JUDGE_PAIRS of them are tried."""

import copy
import json
import math
import os
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import foldback.export
import foldback.fx

PAIRS = int(os.environ.get("FOLDBACK_JUDGE_PAIRS", "24"))
DTYPES = [torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.float64]
FOUND = [82]  # seeds that found a mistake: nan in b alone
SURE = 1e-5  # relative to the largest magnitude, in float64: what is nearer may be rounding of a constant


class Block(nn.Module):
    """A layer of a transformer: heads, a causal mask, two norms."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.n1, self.n2 = nn.LayerNorm(16), nn.LayerNorm(16, eps=1e-6)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.register_buffer("mask", torch.ones(5, 5).tril() == 0)

    def forward(self, x):
        h = self.n1(x)
        q, k, v = (part(h).view(2, 5, 4, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(4)
        scores = scores.masked_fill(self.mask, -1e4)
        mixed = torch.matmul(torch.softmax(scores, dim=-1), v).transpose(1, 2).reshape(2, 5, 16)
        x = x + self.o(mixed)
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.b1, self.b2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)
        for norm in (self.b1, self.b2):
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.normal_(norm.running_mean)

    def forward(self, x):
        x = torch.relu(self.b1(self.c1(x)))
        x = F.max_pool2d(x + torch.relu(self.b2(self.c2(x))), 2)
        return self.head(x.mean((2, 3)))


class Words(nn.Module):
    """Table look-ups, a mask of what is padding, and several results."""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(11, 12), nn.Embedding(6, 12)
        self.a, self.b = nn.Linear(12, 12), nn.Linear(12, 12)
        self.register_buffer("order", torch.arange(6))

    def forward(self, ids, scale):
        x = self.table(ids) + self.places(self.order)
        keep = (ids > 0).unsqueeze(-1).to(x.dtype)
        pooled = (x * keep).sum(1) / keep.sum(1).clamp(min=1.0)
        return torch.tanh(self.a(pooled)) * scale, torch.sigmoid(self.b(pooled)), torch.clamp(scale, -3.0, 3.0) > 0.5


class Boundaries(nn.Module):
    """Comparisons, where a difference shows at one value alone."""

    def forward(self, x, y):
        high = torch.where(x >= 1.0, x, y * 2.0)
        low = torch.clamp(y, min=-1.5, max=100.0)
        rolled = torch.cumsum(torch.relu(x - 0.5), 1)
        return high, low.sum(-1), torch.maximum(rolled, y), torch.floor(x * 2.0)


class Casts(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        small = self.a(x).to(torch.float16).to(x.dtype)
        return F.normalize(small, dim=-1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)


NETS = {
    "Block": (Block, [(2, 5, 16)]), "Images": (Images, [(2, 3, 8, 8)]), "Words": (Words, ["ids", (4, 12)]),
    "Boundaries": (Boundaries, [(4, 6), (4, 6)]), "Casts": (Casts, [(3, 8)]),
}


def inputs_of(shapes, dtype, seed=0, kind=0):
    torch.manual_seed(seed)
    made = []
    for shape in shapes:
        if shape == "ids":
            made.append(torch.randint(0, 11, (4, 6)))
            continue
        x = torch.randn(shape)
        x = [x, x * 1e-3, (x * 2).round() / 2, x * 100, torch.zeros(shape), torch.full(shape, 0.5), -x.abs()][kind % 7]
        made.append(x.to(dtype))
    return made


def document_of(name, dialect, dtype, seed=1):
    """With its weights inside; the same weights for each dialect."""
    torch.manual_seed(seed)
    net, shapes = NETS[name]
    model = net().eval().to(dtype)
    inputs = tuple(inputs_of(shapes, dtype))
    if dialect == "export":
        return foldback.export.from_exported_program(torch.export.export(model, inputs), name=name, data=True)
    if dialect == "decomposed":
        program = torch.export.export(model, inputs).run_decompositions()
        return foldback.export.from_exported_program(program, name=name, data=True)
    traced = torch.fx.symbolic_trace(model)
    torch.fx.passes.shape_prop.ShapeProp(traced).propagate(*inputs)
    return foldback.fx.to_document(traced, name=name, data=True)


# ---- mistakes ----------------------------------------------------------------------------------------------------------------


def calls(document):
    return [row for row in document["nodes"] if row["op"].startswith("call")]


def shape_of(row):
    meta = row.get("meta", {})
    return meta.get("shape"), meta.get("dtype")


def wrong_operand(document, rng):
    """One argument is another value of the same shape that was there before."""
    seen, found = [], []
    for row in document["nodes"]:
        for i, arg in enumerate(row["args"]):
            own = next((one for one in seen if isinstance(arg, dict) and arg.get("$node") == one["name"]), None)
            others = [one for one in seen if own and one is not own and shape_of(one) == shape_of(own) and shape_of(own)[0]]
            if row["op"].startswith("call"):
                found += [(row, i, one["name"]) for one in others]
        seen.append(row)
    row, i, name = rng.choice(found)
    row["args"][i] = {"$node": name}


def swapped_weights(document, rng):
    tensors = document["tensors"]
    pairs = [(a, b) for i, a in enumerate(tensors) for b in tensors[:i]
             if (a["shape"], a["dtype"]) == (b["shape"], b["dtype"]) and a.get("data") != b.get("data")]
    a, b = rng.choice(pairs)
    a["data"], b["data"] = b["data"], a["data"]
    for one in (a, b):
        one.pop("digest", None)


def numbers(value):
    """Places of numbers in an argument tree."""
    if isinstance(value, dict):
        value = value.get("$tuple") or value.get("$list")
    found = []
    for i, one in enumerate(value if isinstance(value, list) else []):
        found += [(value, i)] if type(one) in (int, float) else numbers(one)
    return found


def another_number(document, rng):
    """Another epsilon, axis, bound or factor."""
    places = [place for row in calls(document) for place in numbers(row["args"])]
    places += [(row["kwargs"], key) for row in calls(document) for key, one in (row.get("kwargs") or {}).items()
               if type(one) in (int, float)]
    places += [(row["config"], key) for row in document["modules"] for key in row.get("config", {}) if key == "eps"]
    where, key = rng.choice(places)
    old = where[key]
    where[key] = old + rng.choice([-1, 1]) if isinstance(old, int) else old * rng.choice([10, 0.1, 1.01, -1]) or 1.0


def dropped_node(document, rng):
    named = {row["name"]: row for row in document["nodes"]}
    found = []
    for row in calls(document):
        first = row["args"][0] if row["args"] else None
        first = first.get("$node") if isinstance(first, dict) else None
        if first and shape_of(named[first]) == shape_of(row) and shape_of(row)[0]:
            found.append((row, first))
    row, first = rng.choice(found)
    document["nodes"].remove(row)
    text = json.dumps(document["nodes"]).replace(json.dumps({"$node": row["name"]}), json.dumps({"$node": first}))
    document["nodes"][:] = json.loads(text)


OTHERS = {"ge": "gt", "gt": "ge", "relu": "sigmoid", "tanh": "sigmoid", "sigmoid": "tanh", "maximum": "minimum", 
          "floor": "ceil", "add": "sub", "mul": "add", "gelu": "relu", "cumsum": "cumprod", "softmax": "log_softmax"}


def another_operator(document, rng):
    found = []
    for row in calls(document):
        parts = row["target"].split(".")
        for i, part in enumerate(parts):
            if OTHERS.get(part) and row["op"] != "call_module":
                found.append((row, ".".join([*parts[:i], OTHERS[part], *parts[i + 1:]])))
    row, target = rng.choice(found)
    row["target"] = target


def mask_off_by_one(document, rng):
    """A bool that is kept as a weight is true at one more place, or at one less."""
    masks = [tensor for tensor in document["tensors"] if tensor["dtype"] == "bool" and tensor.get("data")]
    import base64
    tensor = rng.choice(masks)
    raw = bytearray(base64.b64decode(tensor["data"]))
    raw[rng.randrange(len(raw))] ^= 1
    tensor["data"] = base64.b64encode(bytes(raw)).decode()
    tensor.pop("digest", None)


MISTAKES = [wrong_operand, swapped_weights, another_number, dropped_node, another_operator, mask_off_by_one]


def results(document, inputs):
    document = copy.deepcopy(document)  # without assertions about dtypes, which float64 is not
    document["nodes"] = [row for row in document["nodes"] if "_assert_tensor_metadata" not in row["target"]]
    module = foldback.fx.from_document(document).double()
    with torch.no_grad():
        found = module(*[x.double() if x.is_floating_point() else x for x in copy.deepcopy(inputs)])
    return list(found) if isinstance(found, (tuple, list)) else [found]


def distance(a, b):
    """Relative to the scale; infinite for another shape."""
    if a.shape != b.shape:
        return math.inf
    a, b = a.double(), b.double()
    sure = a.isfinite()
    if not bool(sure.any()):
        return 0
    apart, scale = (a - b)[sure].abs().max().item(), b[b.isfinite()].abs().max().item() if bool(b.isfinite().any()) else 0
    return math.inf if apart != apart else apart / max(scale, 1e-30) if apart else 0


def judge(one, other, shapes, dtype):
    """Does the other graph differ, says PyTorch in float64 on 16 draws: None where it refuses the other one."""
    worst = 0
    for draw in range(16):
        inputs = inputs_of(shapes, dtype, 100 + draw, draw)
        expected = results(one, inputs)
        try:
            found = results(other, inputs)
        except Exception:
            return None
        worst = max([worst, *map(distance, expected, found)])
    return worst


def compare(service, a, b, **more):
    answer = service.post("/v1/compare", {"a": a, "b": b, **more})
    return answer.json() if answer.status == 200 else None


@pytest.mark.parametrize("seed", sorted({*range(PAIRS), *FOUND}))
def test_a_broken_pair(service, seed):
    rng = random.Random(seed)
    name = rng.choice(list(NETS))
    dtype = rng.choice(DTYPES)
    one = document_of(name, rng.choice(["fx", "export"]), dtype)
    other = copy.deepcopy(one)
    mistake = rng.choice(MISTAKES)
    try:
        mistake(other, rng)
    except IndexError:
        pytest.skip("it has no place for this mistake")
    truth = judge(one, other, NETS[name][1], dtype)
    found = compare(service, one, other)
    if truth is None or found is None:
        return
    verdict = found["verdict"]
    what = (seed, name, str(dtype), mistake.__name__, truth, verdict, [one["reason"] for one in found["outputs"]])
    if truth > SURE:
        assert verdict == "differs", what
    if truth > 0:
        assert verdict not in ("same", "moved"), what


@pytest.mark.parametrize("dtype", sorted(set(DTYPES), key=str), ids=str)
@pytest.mark.parametrize("name", NETS)
def test_right_pairs_that_look_different(service, name, dtype):
    one = document_of(name, "fx", dtype)
    others = {dialect: document_of(name, dialect, dtype) for dialect in ("export", "decomposed")}
    graph = service.post("/v1/graphs", one).json()["id"]
    for preset in ("inference",):
        run = service.post("/v1/optimize", {"graph": graph, "passes": [preset]})
        if run.status == 201:
            others[preset] = run.json()["result"]
    for what, other in others.items():
        found = compare(service, graph, other)
        assert found["passes"], (name, str(dtype), what, [(one["verdict"], one["reason"]) for one in found["outputs"]])
    assert compare(service, one, document_of(name, "fx", dtype))["verdict"] == "same"
