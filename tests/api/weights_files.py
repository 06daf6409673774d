"""safetensors files in and out, and recipes evaluated, without any library: what the service makes is held against this."""

import itertools
import json
import math
import struct

# (dtype of graph documents, name in the format, bytes of an element), in the order in which the reference implementation sorts.
KINDS = [
    ("bool", "BOOL", 1), ("uint8", "U8", 1), ("int8", "I8", 1), ("float8_e5m2", "F8_E5M2", 1), ("float8_e4m3fn", "F8_E4M3", 1),
    ("float8_e8m0fnu", "F8_E8M0", 1), ("float8_e4m3fnuz", "F8_E4M3FNUZ", 1), ("float8_e5m2fnuz", "F8_E5M2FNUZ", 1),
    ("int16", "I16", 2), ("uint16", "U16", 2), ("float16", "F16", 2), ("bfloat16", "BF16", 2), ("int32", "I32", 4),
    ("uint32", "U32", 4), ("float32", "F32", 4), ("complex64", "C64", 8), ("float64", "F64", 8), ("int64", "I64", 8),
    ("uint64", "U64", 8),
]
NAME = {dtype: name for dtype, name, _ in KINDS}
DTYPE = {name: dtype for dtype, name, _ in KINDS}
SIZE = {dtype: size for dtype, _, size in KINDS}
ORDER = {dtype: -position for position, (dtype, _, _) in enumerate(KINDS)}


def file_of(tensors, metadata=None):
    """The bytes of a file of {name: (dtype, shape, bytes)}, laid out as the reference implementation does."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, part) in sorted(tensors.items(), key=lambda item: (ORDER[item[1][0]], item[0].encode())):
        assert len(part) == SIZE[dtype] * math.prod(shape), name
        header[name] = {"dtype": NAME[dtype], "shape": list(shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def laid_out(tensors, metadata=None, indent=None, pad=" " * 3):
    """A valid file as no library of Python lays it out: the tensors in the order given, the header's text spread out."""
    header, data = {}, b""
    for name, (dtype, shape, part) in tensors.items():
        header[name] = {"data_offsets": [len(data), len(data) + len(part)], "shape": shape, "dtype": NAME[dtype]}
        data += part
    text = json.dumps(header | ({} if metadata is None else {"__metadata__": metadata}), indent=indent).encode() + pad.encode()
    return struct.pack("<Q", len(text)) + text + data


def tensors_of(file):
    """{name: (dtype, shape, bytes)}"""
    end = 8 + struct.unpack("<Q", file[:8])[0]
    header = json.loads(file[8:end])
    header.pop("__metadata__", None)
    return {
        name: (DTYPE[one["dtype"]], one["shape"], file[end + one["data_offsets"][0] : end + one["data_offsets"][1]])
        for name, one in header.items()
    }


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def numbers(part):
    return list(struct.unpack(f"<{len(part) // 4}f", part))


# ---- recipes -----------------------------------------------------------------------------------------------------------------


def strides(shape):
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def spread(shape, values, to):
    """Broadcast."""
    at = [0] * (len(to) - len(shape)) + [0 if size == 1 else step for size, step in zip(shape, strides(shape))]
    return [values[sum(i * step for i, step in zip(index, at))] for index in itertools.product(*map(range, to))]


def product(a, b):
    (rows, inner), (_, columns) = a[0], b[0]
    value = [
        math.fsum(a[1][r * inner + i] * b[1][i * columns + c] for i in range(inner))
        for r in range(rows)
        for c in range(columns)
    ]
    return [rows, columns], value


ARITHMETIC = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "exp": math.exp,
    "sin": math.sin,
    "cos": math.cos,
    "maximum": max,
    "minimum": min,
    "round": lambda x: float(round(x)) if math.isfinite(x) else x,
}


def evaluate(recipe, tensor):
    """(shape, elements) of an expression; tensor(name) gives those of a tensor."""
    if isinstance(recipe, str):
        return tensor(recipe)
    args = [evaluate(one, tensor) for one in recipe["args"]]
    op = recipe["op"]
    if op == "full":
        value = recipe["value"]  # integral and non-finite floats are written as {"$float": "…"}
        return recipe["shape"], [float(value["$float"]) if isinstance(value, dict) else value] * math.prod(recipe["shape"])
    if op == "reshape":
        return recipe["shape"], args[0][1]
    if op == "concat":
        axis, shape = recipe["axis"], list(args[0][0])
        shape[axis] = sum(part[0][axis] for part in args)
        values = []
        for i in range(math.prod(shape[:axis])):
            for size, part in args:
                step = math.prod(size[axis:])
                values += part[i * step : (i + 1) * step]
        return shape, values
    if op == "slice":
        (shape, values), axis = args[0], recipe["axis"]
        step, inner = math.prod(shape[axis:]), math.prod(shape[axis + 1 :])
        kept = []
        for i in range(math.prod(shape[:axis])):
            kept += values[i * step + recipe["start"] * inner : i * step + recipe["stop"] * inner]
        return [*shape[:axis], recipe["stop"] - recipe["start"], *shape[axis + 1 :]], kept
    if op == "index_select":
        (shape, values), (_, index), axis = *args, recipe["axis"]
        inner = math.prod(shape[axis + 1 :])
        starts = [(i * shape[axis] + int(j) % shape[axis]) * inner for i in range(math.prod(shape[:axis])) for j in index]
        return [*shape[:axis], len(index), *shape[axis + 1 :]], [values[k] for start in starts
                                                                 for k in range(start, start + inner)]
    if op == "permute":
        (shape, values), at = args[0], strides(args[0][0])
        to = [shape[axis] for axis in recipe["dims"]]
        moved = [at[axis] for axis in recipe["dims"]]
        return to, [values[sum(i * step for i, step in zip(index, moved))] for index in itertools.product(*map(range, to))]
    if op == "matmul":
        return product(*args)
    rank = max(len(shape) for shape, _ in args)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape, _ in args]
    to = [max(sizes) if 0 not in sizes else 0 for sizes in zip(*padded)]
    return to, [ARITHMETIC[op](*values) for values in zip(*(spread(shape, values, to) for shape, values in args))]


def is_movement(recipe):
    return isinstance(recipe, str) or (
        recipe["op"] in ("concat", "slice", "reshape", "permute", "full") and all(map(is_movement, recipe["args"]))
    )


class Weights:
    """The bytes of a document's tensors; `blobs` are {digest: bytes}."""

    def __init__(self, graph, blobs):
        self.rows = {one["name"]: one for one in graph["tensors"]}
        self.blobs = blobs
        self.known = {}

    def part(self, name):
        """A tensor's bytes. float32 is computed, and compared by `near`; the rest is moved."""
        if name not in self.known:
            row = self.rows[name]
            size = SIZE[row["dtype"]]
            if "blob" in row:
                begin = row["offset"]
                self.known[name] = self.blobs[row["blob"]][begin : begin + size * math.prod(row["shape"])]
            elif is_movement(row["recipe"]):
                filler = {"float32": lambda x: struct.pack("<f", x), "bool": lambda x: bytes([x])}[row["dtype"]]
                shape, values = evaluate(row["recipe"], lambda other: self.elements(other, size))
                assert shape == row["shape"]
                self.known[name] = b"".join(one if isinstance(one, bytes) else filler(one) for one in values)
            else:
                shape, values = evaluate(row["recipe"], lambda other: (self.rows[other]["shape"], numbers(self.part(other))))
                assert shape == row["shape"] and row["dtype"] == "float32"
                self.known[name] = floats(values)
        return self.known[name]

    def elements(self, name, size):
        part = self.part(name)
        return self.rows[name]["shape"], [part[at : at + size] for at in range(0, len(part), size)]

    def is_computed(self, name):
        recipe = self.rows[name].get("recipe")
        return recipe is not None and not is_movement(recipe)


def near(a, b):
    """Whether two runs of float32 differ by a unit in the last place at most."""
    one, other = (struct.unpack(f"<{len(part) // 4}i", part) for part in (a, b))
    return len(one) == len(other) and all(abs(x - y) <= 1 for x, y in zip(one, other))
