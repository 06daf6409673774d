"""Pairs of graphs for test_judge.py: 40 base graphs, mistakes at places that a seed draws, and graphs that look different and
compute the same.

`judge_pairs.py FOLDER` writes the exports of the PyTorch that runs it, with the weights that are in the folder."""

import base64
import copy
import functools
import json
import math
import pathlib
import random
import sys

import torch
from torch import nn
from torch.nn import functional as F

import foldback.export
import foldback.fx

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
SURE = 1e-5  # relative to the largest magnitude, in float64: what is nearer may be rounding of a constant
DRAWS = 16


# ---- base graphs -------------------------------------------------------------------------------------------------------------


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
        near = torch.where((y > 0.5) & (x <= 2.0), x + y, x * 0.25)
        return high, low.sum(-1), torch.maximum(rolled, y), torch.floor(x * 2.0), near


class Casts(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        small = self.a(x).to(torch.float16).to(x.dtype)
        whole = (self.b(x) * 4.0).to(torch.int64).to(x.dtype)
        part = (x * 8.0).to(torch.bfloat16).to(x.dtype)
        return F.normalize(small, dim=-1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3), whole * 0.5 + part


class Masks(nn.Module):
    """Large results, of which a mistake in a mask changes an element or a row."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keep", torch.rand(24, 40) > 0.2)
        self.register_buffer("near", (torch.arange(40)[:, None] - torch.arange(40)[None, :]).abs() < 9)
        self.scale, self.shift = nn.Parameter(torch.randn(24, 40)), nn.Parameter(torch.randn(24, 40))

    def forward(self, x, y):
        one = torch.where(self.keep, x * self.scale, y - self.shift)
        two = (x.t() @ y / 5.0).masked_fill(~self.near, -1.0)
        return one, two, torch.clamp(x * y, min=-40.0, max=60.0), torch.where(y < -2.5, x, y), torch.where(x > 1.5, x, y)


class Rotary(nn.Module):
    """A layer of a decoder: norms without a mean, rotated halves, a gate."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (nn.Linear(*size, bias=False) for size in ((16, 24), (16, 24), (24, 16)))
        self.norm = nn.Parameter(torch.rand(16) + 0.5)
        angles = torch.arange(6)[:, None] / 100 ** (torch.arange(4) / 4)
        self.register_buffer("cos", torch.cos(torch.cat([angles, angles], -1)))
        self.register_buffer("sin", torch.sin(torch.cat([angles, angles], -1)))

    def rotated(self, x):
        return x * self.cos + torch.cat([-x[..., 4:], x[..., :4]], -1) * self.sin

    def forward(self, x):
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2) * self.norm
        q, k, v = (part(h).view(2, 6, 2, 8).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(self.rotated(q), self.rotated(k), v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(2, 6, 16))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class Noise(nn.Module):
    """One result is random, the other is not."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = torch.tanh(self.a(x))
        return F.dropout(F.dropout(y, 0.25, True) * 2.0, 0.5, True), torch.softmax(self.b(y), dim=-1) - y * 0.5


def fixture(name):
    """A model with the weights of its checkpoint."""
    document = json.loads((FIXTURES / name / "graph.json").read_text())
    return foldback.fx.from_document(document, weights=FIXTURES / name / "weights.safetensors")


NETS = {
    "Block": (Block, [(2, 5, 16)]), "Images": (Images, [(2, 3, 8, 8)]), "Words": (Words, ["ids 11 4 6", (4, 12)]),
    "Boundaries": (Boundaries, [(8, 32), (8, 32)]), "Casts": (Casts, [(3, 8)]), "Masks": (Masks, [(24, 40), (24, 40)]),
    "Rotary": (Rotary, [(2, 6, 16)]), "Noise": (Noise, [(3, 8)]),
    "bert": (functools.partial(fixture, "bert-tiny"), ["ids 100 2 16", "ids 2 2 16", "ids 2 2 16"]),
    "gpt2": (functools.partial(fixture, "gpt2-tiny"), ["ids 100 2 16", "ids 2 2 16"]),
    "resnet": (functools.partial(fixture, "resnet-tiny"), [(2, 3, 32, 32)]),
}
SINGLE = ["bert", "gpt2"]  # their forward has casts to float32
BASES = [(name, ("fx", "export")[(i + j) % 2], dtype) for i, name in enumerate(NETS) if name not in SINGLE
         for j, dtype in enumerate(DTYPES)] + [(name, dialect, torch.float32) for name in SINGLE
                                               for dialect in ("fx", "export")]


def inputs_of(shapes, dtype, seed=0, kind=0):
    torch.manual_seed(seed)
    made = []
    for shape in shapes:
        if isinstance(shape, str):
            most, *sizes = map(int, shape.split()[1:])
            made.append(torch.randint(0, most, sizes))
            continue
        x = torch.randn(shape)
        x = [x, x * 1e-3, (x * 2).round() / 2, x * 100, torch.zeros(shape), torch.full(shape, 0.5), -x.abs()][kind % 7]
        made.append(x.to(dtype))
    return made


WEIGHTS = {}  # by net: those of a folder, in the place of the seed's


@functools.cache
def model_of(name, dtype):
    torch.manual_seed(1)
    net, shapes = NETS[name]
    model = net().eval()
    if name in WEIGHTS:
        model.load_state_dict(WEIGHTS[name])
    return model.to(dtype), tuple(inputs_of(shapes, dtype))


@functools.cache
def text_of(name, dialect, dtype):
    model, inputs = model_of(name, dtype)
    if dialect == "fx":
        copied = copy.deepcopy(model)
        traced = copied if name in SINGLE else torch.fx.symbolic_trace(copied)
        torch.fx.passes.shape_prop.ShapeProp(traced).propagate(*inputs)
        return json.dumps(foldback.fx.to_document(traced, name=name, data=True))
    program = torch.export.export(model, inputs)
    if dialect == "decomposed":
        program = program.run_decompositions()
    return json.dumps(foldback.export.from_exported_program(program, name=name, data=True))


def document_of(name, dialect, dtype):
    """With its weights inside; the same weights for each dialect."""
    return json.loads(text_of(name, dialect, dtype))


# ---- mistakes ----------------------------------------------------------------------------------------------------------------
#
# Each is given a document and gives the places where it can be made: functions that make it.


def calls(document):
    return [row for row in document["nodes"] if row["op"].startswith("call")]


def shape_of(row):
    meta = row.get("meta", {})
    return (meta["shape"], meta["dtype"]) if "shape" in meta and "dtype" in meta else None


def put(where, key, value):
    where[key] = value


def wrong_operand(document, rng):
    """One argument is another value of the same shape that was there before."""
    seen = {}
    for row in document["nodes"]:
        for i, arg in enumerate(row["args"] if row["op"].startswith("call") else []):
            name = arg.get("$node") if isinstance(arg, dict) else None
            for other in seen if seen.get(name) else []:
                if other != name and seen[other] == seen[name]:
                    yield functools.partial(put, row["args"], i, {"$node": other})
        seen[row["name"]] = shape_of(row)


def swap(one, other):
    one["data"], other["data"] = other["data"], one["data"]
    for row in (one, other):
        row.pop("digest", None)


def swapped_weights(document, rng):
    tensors = document["tensors"]
    for i, a in enumerate(tensors):
        for b in tensors[:i]:
            if (a["shape"], a["dtype"]) == (b["shape"], b["dtype"]) and a.get("data") != b.get("data"):
                yield functools.partial(swap, a, b)


def numbers(value):
    """Places of numbers in an argument tree."""
    if isinstance(value, dict):
        value = value.get("$tuple") or value.get("$list") or value.get("$slice")
    for i, one in enumerate(value if isinstance(value, list) else []):
        if type(one) in (int, float):
            yield value, i
        else:
            yield from numbers(one)


def all_numbers(document):
    for row in calls(document):
        yield from numbers(row["args"])
        yield from ((row["kwargs"], key) for key, one in (row.get("kwargs") or {}).items() if type(one) in (int, float))


def other_epsilon(document, rng):
    places = [place for place in all_numbers(document) if isinstance(place[0][place[1]], float)
              and 0 < place[0][place[1]] < 0.02]
    places += [(row["config"], "eps") for row in document["modules"] if row.get("config", {}).get("eps")]
    for where, key in places:
        yield functools.partial(put, where, key, where[key] * rng.choice([0.1, 10, 100]))


def other_axis(document, rng):
    """An axis, an offset or a size; what cannot be computed then is drawn again."""
    for where, key in all_numbers(document):
        if isinstance(where[key], int):
            yield functools.partial(put, where, key, where[key] + rng.choice([-1, 1]))


def other_number(document, rng):
    """Another bound or factor."""
    for where, key in all_numbers(document):
        if isinstance(where[key], float) and where[key]:
            yield functools.partial(put, where, key, where[key] * rng.choice([1.01, -1, 0.5, 3]))


def drop(document, row, first):
    document["nodes"].remove(row)
    text = json.dumps(document["nodes"]).replace(json.dumps({"$node": row["name"]}), json.dumps({"$node": first}))
    document["nodes"][:] = json.loads(text)


def is_narrower(one, other):
    """Is the number lost that a cast to the first dtype loses?"""
    one, other = getattr(torch, one), getattr(torch, other)
    return not one.is_floating_point or (other.is_floating_point and torch.finfo(one).eps > torch.finfo(other).eps)


def dropped(document, is_cast):
    named = {row["name"]: row for row in document["nodes"]}
    for row in calls(document):
        first = row["args"][0] if row["args"] else None
        first = first.get("$node") if isinstance(first, dict) else None
        one, other = shape_of(row), shape_of(named[first]) if first else None
        if one and other and one[0] == other[0] and (is_narrower(one[1], other[1]) if is_cast else one[1] == other[1]):
            yield functools.partial(drop, document, row, first)


def dropped_node(document, rng):
    return dropped(document, False)


def lost_cast(document, rng):
    """Of those that lose something in the dtypes of the graph."""
    return dropped(document, True)


OTHERS = {"ge": "gt", "gt": "ge", "le": "lt", "lt": "le", "relu": "sigmoid", "tanh": "sigmoid", "sigmoid": "tanh",
          "maximum": "minimum", "floor": "ceil", "add": "sub", "mul": "add", "gelu": "relu", "cumsum": "cumprod",
          "softmax": "log_softmax", "silu": "gelu", "truediv": "mul", "div": "mul"}
BOUNDS = {"ge", "gt", "le", "lt"}


def operators(document, is_bound):
    for row in calls(document):
        parts = row["target"].split(".")
        for i, part in enumerate(parts):
            if part in OTHERS and row["op"] != "call_module" and (part in BOUNDS) == is_bound:
                yield functools.partial(put, row, "target", ".".join([*parts[:i], OTHERS[part], *parts[i + 1:]]))


def other_operator(document, rng):
    return operators(document, False)


def other_bound(document, rng):
    """< in the place of <=: they differ at one value alone."""
    return operators(document, True)


def flip(tensor, index, size):
    """One element: of a mask it is the other one, of numbers the double and one more."""
    raw = bytearray(base64.b64decode(tensor["data"]))
    if tensor["dtype"] == "bool":
        raw[index] ^= 1
    else:
        dtype = getattr(torch, tensor["dtype"])
        element = torch.frombuffer(raw, dtype=dtype)[index:index + 1]
        element.copy_(element * 2 + 1)
    tensor["data"] = base64.b64encode(bytes(raw)).decode()
    tensor.pop("digest", None)


def elements(document, rng, is_mask):
    for tensor in document["tensors"]:
        size = math.prod(tensor["shape"])
        if tensor.get("data") and size and (tensor["dtype"] == "bool") == is_mask:
            yield functools.partial(flip, tensor, rng.randrange(size), size)


def mask_off_by_one(document, rng):
    """A mask is true at one more place, or at one less."""
    return elements(document, rng, True)


def other_weight(document, rng):
    """One element of a weight is another."""
    return elements(document, rng, False)


def other_seed(document, rng):
    """Random numbers of another distribution, or drawn in another order."""
    for row in calls(document):
        if "dropout" in row["target"]:
            for where, key in numbers([row["args"], list(row.get("kwargs", {}).values())]):
                if isinstance(where[key], float):
                    yield functools.partial(put, row["args"] if row["args"] is where else where, key, 0.75)


MISTAKES = [wrong_operand, swapped_weights, lost_cast, mask_off_by_one, other_epsilon, dropped_node, other_axis, other_number,
            other_operator, other_bound, other_weight]
SPARSE = [mask_off_by_one, other_bound, other_weight, other_number]  # those that may change few elements


# ---- the truth ---------------------------------------------------------------------------------------------------------------


def results(document, draws, dtype):
    """Of PyTorch in float64, for each draw."""
    text = json.dumps(document)
    if dtype == torch.float32:  # a cast to it leaves all as it is
        text = text.replace('{"$dtype": "float32"}', '{"$dtype": "float64"}')
    document = json.loads(text)  # without assertions about dtypes, which float64 is not
    document["nodes"] = [row for row in document["nodes"] if "_assert_tensor_metadata" not in row["target"]]
    module = foldback.fx.from_document(document).double()
    for inputs in draws:
        torch.manual_seed(0)
        with torch.no_grad():
            found = module(*[x.double() if x.is_floating_point() else x for x in copy.deepcopy(inputs)])
        yield list(found) if isinstance(found, (tuple, list)) else list(found.values()) if isinstance(found, dict) else [found]


@functools.cache
def expected_of(name, dialect, dtype):
    draws = [inputs_of(NETS[name][1], dtype, 100 + draw, draw) for draw in range(DRAWS)]
    return draws, list(results(document_of(name, dialect, dtype), draws, dtype))


def distance(a, b):
    """Of each element, relative to the scale; None of another shape."""
    if a.shape != b.shape:
        return None
    a, b = a.double(), b.double()
    sure = a.isfinite()
    apart = (a - b).abs()[sure]
    apart = torch.where(apart.isnan(), torch.inf, apart)
    scale = b[b.isfinite()].abs().max().item() if bool(b.isfinite().any()) else 0
    return apart / max(scale, 1e-30)


def truth_of(base, other):
    """How far each output of the other graph is from that of the base at most, and on which part of all elements of a plain
    draw they differ. None where PyTorch refuses it or it has other shapes: then nobody doubts that it is broken."""
    draws, expected = expected_of(*base)
    worst, differing, elements = [0] * len(expected[0]), 0, 0
    try:
        for i, (one, two) in enumerate(zip(expected, results(other, draws, base[2]), strict=True)):
            apart = [distance(a, b) for a, b in zip(one, two, strict=True)]
            worst = [max(so_far, *part.tolist(), 0) for so_far, part in zip(worst, apart)]
            if i % 7 == 0:
                differing += sum((part > SURE).sum().item() for part in apart)
                elements += sum(part.numel() for part in apart)
    except Exception:
        return None
    return worst, differing / elements


def dtypes_of(document, base):
    """Of the results; None where PyTorch refuses it."""
    inputs = inputs_of(NETS[base[0]][1], base[2])
    try:
        with torch.no_grad():
            return [leaf.dtype for leaf in torch.utils._pytree.tree_leaves(foldback.fx.from_document(document)(*inputs))]
    except Exception:
        return None


def broken_pair(seed, is_sparse):
    """A base, a copy with a mistake that PyTorch sees, and what it sees. `other_seed` alone changes only what is random."""
    rng = random.Random(2 * seed + is_sparse)
    kinds = SPARSE if is_sparse else MISTAKES
    mistake = other_seed if seed % 25 == 24 and not is_sparse else kinds[seed % len(kinds)]
    while True:
        base = rng.choice(BASES)
        other = document_of(*base)
        places = list(mistake(other, rng))
        if not places:
            continue
        rng.choice(places)()
        truth = truth_of(base, other)
        if not truth or (is_sparse and truth[1] >= 0.01):
            continue
        if mistake is lost_cast and dtypes_of(other, base) != dtypes_of(document_of(*base), base):
            continue  # which has a reason of its own
        is_noise = base[0] == "Noise" and mistake is not other_seed
        if max(truth[0][1:] if is_noise else truth[0]) > SURE:
            return base, other, mistake.__name__, truth


# ---- right pairs -------------------------------------------------------------------------------------------------------------


def right_pair(number, optimised, exports):
    """Two graphs that compute the same, by five ways in turn. `optimised` gives a preset's result; `exports` is a folder with
    what another version of PyTorch exported, or None."""
    name, dtype = BASES[number // 5 % 40][::2]
    way, dialect = number % 5, ("fx", "export")[number % 2]
    presets = ["inference", "latency", "cleanup"]
    if way == 0:
        return "fx and export", document_of(name, "fx", dtype), document_of(name, "export", dtype)
    if way == 1:
        return f"{dialect} and decomposed", document_of(name, dialect, dtype), document_of(name, "decomposed", dtype)
    if way == 2 and exports:
        other = json.loads((exports / f"{name}-{dtype}.json").read_text())
        return "2.13 and 2.14", document_of(name, "export", dtype), other
    preset = presets[(number // 5 + way) % 3]
    one = document_of(name, dialect, dtype)
    return f"{preset} of {dialect}", one, optimised(preset, one)


def write_weights(folder):
    torch.save({name: model_of(name, torch.float32)[0].state_dict() for name in NETS}, folder / "weights.pt")


def write_exports(folder):
    WEIGHTS.update(torch.load(folder / "weights.pt"))
    for name in NETS:
        for dtype in DTYPES[:1] if name in SINGLE else DTYPES:
            (folder / f"{name}-{dtype}.json").write_text(text_of(name, "export", dtype))


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_exports(pathlib.Path(sys.argv[1]))
