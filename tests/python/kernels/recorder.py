"""Records what PyTorch computes, as cases for tests/unit/test_eval_kernels.c.

A family is one file beside this one, run by hand; it writes tests/fixtures/kernels/<family>.json.gz:

    python tests/python/kernels/reduce.py

The file is a JSON list of

    {"name": ..., "graph": a document, "outputs": [output, ...], "tolerance": {"relative": r, "absolute": a}, "refused": true,
     "optional": true}

whose inputs are buffers of the root module with inline data, read by get_attr, so that a case is whole in itself. An output is
{"dtype", "shape", "data"} for a tensor, or {"value": as the document spells it}. A case without a tolerance is exact: the same
bytes (any nan for a nan). A refused one must fail: PyTorch raised, or it is known that we do not compute it. An optional one
may fail, too.
"""

import base64
import gzip
import importlib
import json
import math
import pathlib
import sys

import torch

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "kernels"
EPSILON = {torch.complex128: 2**-52, torch.complex64: 2**-23, torch.float64: 2**-52, torch.float32: 2**-23,
           torch.bfloat16: 2**-7, torch.float16: 2**-10}

COMPLEX = [torch.complex64, torch.complex128]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.uint8]
NUMBERS = FLOATS + INTS
ALL = NUMBERS + [torch.bool]


def short(dtype):
    return str(dtype).removeprefix("torch.")


def data_of(tensor):
    flat = tensor.detach().resolve_conj().clone(memory_format=torch.contiguous_format).reshape(-1)
    raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return {"dtype": short(tensor.dtype), "shape": list(tensor.shape), "data": base64.b64encode(raw).decode()}


def function_of(target):
    """The object of a target such as torch.ops.aten.add.Tensor."""
    if target.startswith("torch."):
        found = torch
        for part in target.split(".")[1:]:
            found = getattr(found, part)
        return found
    module, name = target.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


class Ref:
    """A node: its name, and the value that PyTorch gave it."""

    def __init__(self, name, value):
        self.name, self.value = name, value


class Raised(Exception):
    pass


def encode(value):
    if isinstance(value, Ref):
        return {"$node": value.name}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else {"$int": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) and value != int(value) else {"$float": repr(value)}
    if isinstance(value, torch.Size):
        return {"$size": [encode(v) for v in value]}
    if isinstance(value, tuple):
        return {"$tuple": [encode(v) for v in value]}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return {"$dict": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, slice):
        return {"$slice": [encode(v) for v in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"$ellipsis": True}
    if isinstance(value, torch.dtype):
        return {"$dtype": short(value)}
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    if isinstance(value, torch.memory_format):
        return {"$memory_format": short(value)}
    if isinstance(value, torch.layout):
        return {"$layout": short(value)}
    raise TypeError(type(value))


def resolve(value):
    if isinstance(value, Ref):
        return value.value
    if type(value) in (tuple, list):
        return type(value)(resolve(v) for v in value)
    if isinstance(value, dict):
        return {k: resolve(v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(resolve(value.start), resolve(value.stop), resolve(value.step))
    return value


class Case:
    def __init__(self, name):
        self.name, self.nodes, self.tensors, self.modules, self.buffers = name, [], [], [], {}
        self.last = None  # what the last call gave

    def _node(self, op, target, args, kwargs, value):
        name = f"n{len(self.nodes)}"
        self.nodes.append({"name": name, "op": op, "target": target, "args": [encode(a) for a in args]})
        if kwargs:
            self.nodes[-1]["kwargs"] = {k: encode(v) for k, v in kwargs.items()}
        return Ref(name, value)

    def _compute(self, function, args, kwargs):
        try:
            self.last = function(*resolve(list(args)), **resolve(kwargs))
        except Exception as error:
            self.last = Raised(str(error))
        return self.last

    def input(self, tensor):
        """A buffer; strides that are not row-major must be made by calls."""
        name = f"x{len(self.buffers)}"
        self.buffers[name] = name
        self.tensors.append({"name": name, **data_of(tensor)})
        return self._node("get_attr", name, (), {}, tensor.detach().clone(memory_format=torch.contiguous_format))

    def call(self, target, /, *args, **kwargs):
        value = self._compute(function_of(target), args, kwargs)
        return self._node("call_function", target, args, kwargs, value)

    def method(self, name, /, *args, **kwargs):
        value = self._compute(lambda self, *a, **k: getattr(self, name)(*a, **k), args, kwargs)
        return self._node("call_method", name, args, kwargs, value)

    def module(self, type_name, config, *args, tensors=None, training=False, **kwargs):
        """torch.nn.<type_name>(**config), whose parameters and buffers are set to `tensors`."""
        path = f"m{len(self.modules)}"
        module = getattr(torch.nn, type_name)(**config).train(training)
        row = {"path": path, "type": f"torch.nn.{type_name}", "config": {k: encode(v) for k, v in config.items()}}
        row.update(training=training, parameters={}, buffers={})
        for kind in ("parameters", "buffers"):
            for key, found in list(getattr(module, f"_{kind}").items()):
                if found is None:
                    row[kind][key] = None
                    continue
                tensor = tensors[key]
                if kind == "parameters":
                    setattr(module, key, torch.nn.Parameter(tensor.clone(), requires_grad=False))
                else:
                    setattr(module, key, tensor.clone())
                row[kind][key] = f"{path}.{key}"
                self.tensors.append({"name": f"{path}.{key}", **data_of(tensor)})
        self.modules.append(row)
        return self._node("call_module", path, args, kwargs, self._compute(module, args, kwargs))

    def document(self, output):
        nodes = self.nodes + [{"name": "output", "op": "output", "target": "output", "args": [encode(output)]}]
        root = {"path": "", "type": "torch.nn.Module", "buffers": self.buffers}
        return {"format": "foldback.graph/1", "nodes": nodes, "modules": [root, *self.modules], "tensors": self.tensors}


def outputs_of(value, found):
    if isinstance(value, torch.Tensor):
        found.append(data_of(value))
    elif type(value) in (list, tuple) or (isinstance(value, tuple) and not isinstance(value, torch.Size)):
        for item in value:
            outputs_of(item, found)
    else:
        found.append({"value": encode(value)})
    return found


class Recorder:
    def __init__(self, family):
        self.family, self.cases, self.names = family, [], set()

    def start(self, name):
        if name in self.names:
            raise ValueError(f"two cases are named {name}")
        self.names.add(name)
        return Case(name)

    def finish(self, case, *outputs, ulps=0, absolute=0.0, refused=False, optional=False):
        """`ulps` of the least exact floating output's dtype; 0 = the same bits. A case that PyTorch refuses is recorded as
        that."""
        output = outputs[0] if len(outputs) == 1 else tuple(outputs)
        value = resolve(output)
        row = {"name": case.name, "graph": case.document(output)}
        raised = any(isinstance(v, Raised) for v in (value if isinstance(value, (tuple, list)) else [value]))
        if refused or raised:
            row["refused"] = True
        else:
            row["outputs"] = outputs_of(value, [])
            if ulps or absolute:
                dtypes = [getattr(torch, o["dtype"]) for o in row["outputs"] if "dtype" in o]
                epsilon = max((EPSILON.get(d, 0) for d in dtypes), default=0) or 2**-52
                # what is next to nothing may be nothing: subnormal numbers are flushed here and there
                least = max([torch.finfo(d).tiny * (2 if d != torch.float16 else EPSILON[d]) for d in dtypes if d in EPSILON],
                            default=0.0)
                row["tolerance"] = {"relative": ulps * epsilon, "absolute": max(absolute, least)}
        if optional:
            row["optional"] = True
        self.cases.append(row)

    def text(self):
        return json.dumps(self.cases, separators=(",", ":"), allow_nan=False)

    def write(self):
        FIXTURES.mkdir(parents=True, exist_ok=True)
        path = FIXTURES / f"{self.family}.json.gz"
        path.write_bytes(gzip.compress(self.text().encode(), 9, mtime=0))
        refused = sum("refused" in c for c in self.cases)
        print(f"{path.name}: {len(self.cases)} cases ({refused} refused), {path.stat().st_size} bytes", file=sys.stderr)


# ---- values -----------------------------------------------------------------------------------------------------------------

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, float("inf"), float("-inf"), float("nan"), 3.0, 100.0, -100.0]


def edges(dtype):
    """Every value that is likely to be mistreated, in this dtype."""
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        extremes = [info.max, info.min, info.tiny, info.eps, info.tiny * info.eps]
        return torch.tensor(EDGES + extremes, dtype=torch.float64).to(dtype)
    info = torch.iinfo(dtype)
    low = [] if info.min == 0 else [-1, -2, -3, -7, info.min, info.min + 1]
    return torch.tensor([0, 1, 2, 3, 7, 100, info.max, *low], dtype=dtype)


def values(dtype, *shape, seed=0):
    """Small numbers that each dtype has, positive and negative, some alike."""
    generator = torch.Generator().manual_seed(seed + 31 * sum((i + 1) * s for i, s in enumerate(shape)))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex:
        part = torch.float32 if dtype == torch.complex64 else torch.float64
        return torch.complex(values(part, *shape, seed=seed), values(part, *shape, seed=seed + 1))
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 1.5).to(torch.float32).to(dtype)
    low = 0 if dtype == torch.uint8 else -9
    return torch.randint(low, 10, shape, generator=generator).to(dtype)


def strided(case, tensor, how):
    """The same numbers behind other strides: the input node holds what the views then undo."""
    if how == "plain":
        return case.input(tensor)
    if how == "transposed" and tensor.dim() >= 2:
        return case.method("transpose", case.input(tensor.transpose(0, -1).contiguous()), 0, -1)
    if how == "sliced" and tensor.dim() >= 1:
        wide = torch.stack([tensor, tensor * 0 if tensor.dtype != torch.bool else ~tensor], -1)
        wide = wide.reshape(*tensor.shape[:-1], 2 * tensor.shape[-1])
        return case.call("operator.getitem", case.input(wide), (Ellipsis, slice(None, None, 2)))
    if how == "expanded" and tensor.dim() >= 1:
        return case.method("expand", case.input(tensor[:1].contiguous()), *tensor.shape)
    return case.input(tensor)


STRIDES = ["plain", "transposed", "sliced", "expanded"]
