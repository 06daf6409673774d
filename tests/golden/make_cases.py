#!/usr/bin/env python3
"""Writes the golden cases into a folder: <Pass>/<case>/ with before.json, passes.json and refused.json (`make golden`).
Usage: make_cases.py FOLDER. Standard library only.

Cases come from the programs beside this one: <Pass>/cases.py, and cases_<what>.py of several passes. Each has a function
cases(), which says by hand what each pass has to apply and to refuse. <Pass>/<case>.json is a case that was written by hand:
"passes", "refused", "before", and its result, "after".
tests/unit/test_golden.c runs them all, and says where the results are.
"""
import importlib
import json
import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent


class N(str):
    """The result of a node."""


class Raw:
    """A value in the document's own form."""

    def __init__(self, form):
        self.form = form


def encode(value):
    if isinstance(value, Raw):
        return value.form
    if isinstance(value, N):
        return {"$node": str(value)}
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        text = repr(value)
        return value if "." in text and not value.is_integer() and "e" not in text else {"$float": text}
    if value is ...:
        return {"$ellipsis": True}
    if isinstance(value, slice):
        return {"$slice": [encode(value.start), encode(value.stop), encode(value.step)]}
    if isinstance(value, tuple):
        return {"$tuple": [encode(v) for v in value]}
    if isinstance(value, list):
        return [encode(v) for v in value]
    raise TypeError(value)


class Graph:
    def __init__(self, name="g"):
        self.name, self.nodes, self.modules, self.tensors, self.names = name, [], {}, {}, {}
        self.metadata = None
        self.modules[""] = {"path": "", "type": "torch.nn.Module"}

    # ---- rows

    def fresh(self, base):
        base = base.replace(".", "_")
        name, number = base, 0
        while name in self.names:
            number += 1
            name = f"{base}_{number}"
        return name

    def node(self, name, op, target, args, kwargs, shape, dtype, **meta):
        name = self.fresh(name)
        row = {"name": name, "op": op, "target": target, "args": [encode(a) for a in args],
               "kwargs": {k: encode(v) for k, v in (kwargs or {}).items()}, "meta": {}}
        if shape is not None:
            row["meta"]["shape"] = list(shape)
        if dtype is not None:
            row["meta"]["dtype"] = dtype
        row["meta"].update(meta)
        self.nodes.append(row)
        self.names[name] = (shape, dtype)
        return N(name)

    def tensor(self, name, shape, dtype="float32", **more):
        if name not in self.tensors:
            self.tensors[name] = {"name": name, "dtype": dtype, "shape": list(shape), **more}
        return name

    def module(self, path, type, config=None, parameters=None, buffers=None, training=False, **more):
        self.modules[path] = {"path": path, "type": type, "config": {k: encode(v) for k, v in (config or {}).items()},
                              "parameters": parameters or {}, "buffers": buffers or {}, "training": training, **more}

    # ---- calls

    def input(self, name="x", shape=(2, 4), dtype="float32"):
        return self.node(name, "placeholder", name, [], {}, shape, dtype)

    def call(self, path, x, shape="same", dtype="same", name=None, keyword=None, args=None, kwargs=None, **meta):
        known = self.names.get(x, (None, None))
        shape = known[0] if shape == "same" else shape
        dtype = known[1] if dtype == "same" else dtype
        args = args if args is not None else ([] if keyword else [x])
        kwargs = kwargs if kwargs is not None else ({keyword: x} if keyword else {})
        return self.node(name or path, "call_module", path, args, kwargs, shape, dtype, **meta)

    def fn(self, target, *args, shape=None, dtype=None, name=None, kwargs=None, **meta):
        return self.node(name or target.split(".")[-1], "call_function", target, args, kwargs, shape, dtype, **meta)

    def method(self, target, *args, shape=None, dtype=None, name=None, kwargs=None):
        return self.node(name or target, "call_method", target, args, kwargs, shape, dtype)

    def get_attr(self, target, shape=None, dtype="float32", name=None):
        return self.node(name or target, "get_attr", target, [], {}, shape, dtype)

    def relu(self, x, name="relu"):
        shape, dtype = self.names[x]
        return self.fn("torch.nn.functional.relu", x, shape=shape, dtype=dtype, name=name)

    def add_(self, x, value=1.0):
        shape, dtype = self.names[x]
        return self.method("add_", x, value, shape=shape, dtype=dtype)

    def output(self, *values):
        self.node("output", "output", "output", [values[0] if len(values) == 1 else tuple(values)], {}, None, None)
        return self

    # ---- layers

    def make_linear(self, path, inputs, outputs, bias=True, dtype="float32", training=False, weight=None, bias_name=None,
                    type="torch.nn.Linear", weight_grad=None, bias_grad=None, bias_dtype=None):
        grad = lambda flag: {} if flag is None else {"requires_grad": flag}
        weight = weight or self.tensor(f"{path}.weight", [outputs, inputs], dtype, **grad(weight_grad))
        if bias:
            bias_name = bias_name or self.tensor(f"{path}.bias", [outputs], bias_dtype or dtype, **grad(bias_grad))
        self.module(path, type, {"in_features": inputs, "out_features": outputs, "bias": bias},
                    {"weight": weight, "bias": bias_name if bias else None}, training=training)

    def linear(self, path, x, outputs, inputs=None, keyword=None, name=None, meta=True, **more):
        shape, dtype = self.names[x]
        self.make_linear(path, inputs or shape[-1], outputs, **more)
        result = tuple(shape[:-1]) + (outputs,) if shape and meta else None
        return self.call(path, x, result, more.get("dtype", "float32") if meta else None, name, keyword)

    def make_conv(self, path, inputs, outputs, kernel=3, groups=1, bias=True, dtype="float32", training=False, weight=None,
                  type="torch.nn.Conv2d", spatial=2, config=None):
        shape = [outputs, inputs // groups] + [kernel] * spatial
        if type.startswith("torch.nn.ConvTranspose"):
            shape = [inputs, outputs // groups] + [kernel] * spatial
        weight = weight or self.tensor(f"{path}.weight", shape, dtype)
        given = {"in_channels": inputs, "out_channels": outputs, "kernel_size": (kernel,) * spatial,
                 "padding": (kernel // 2,) * spatial, "groups": groups, "bias": bias}
        given.update(config or {})
        self.module(path, type, given, {"weight": weight, "bias": self.tensor(f"{path}.bias", [outputs], dtype) if bias else
                                        None}, training=training)

    def conv(self, path, x, outputs, keyword=None, name=None, **more):
        shape, dtype = self.names[x]
        self.make_conv(path, shape[1], outputs, **more)
        return self.call(path, x, (shape[0], outputs) + tuple(shape[2:]), more.get("dtype", "float32"), name, keyword)

    def make_norm(self, path, features, spatial=2, affine=True, training=False, dtype="float32", mean=True, var=True,
                  eps=1e-5, config=None):
        tensors = lambda names, given: {n: self.tensor(f"{path}.{n}", [features], dtype) if given else None for n in names}
        buffers = {**tensors(["running_mean"], mean), **tensors(["running_var"], var)}
        tracks = mean or var
        buffers["num_batches_tracked"] = self.tensor(f"{path}.num_batches_tracked", [], "int64") if tracks else None
        given = {"num_features": features, "eps": eps, "affine": affine, "track_running_stats": tracks}
        given.update(config or {})
        self.module(path, f"torch.nn.BatchNorm{spatial}d", {k: v for k, v in given.items() if v is not None},
                    tensors(["weight", "bias"], affine), buffers, training)

    def norm(self, path, x, keyword=None, name=None, features=None, spatial=2, **more):
        shape, dtype = self.names[x]
        self.make_norm(path, features or shape[1], spatial, **more)
        return self.call(path, x, shape, dtype, name, keyword)

    # ---- text

    def text(self):
        text = lambda row: json.dumps(row, ensure_ascii=False)
        lines = lambda rows: "[\n    " + ",\n    ".join(map(text, rows)) + "\n  ]" if rows else "[]"
        return "".join((
            f'{{\n  "format": "foldback.graph/1",\n  "name": {json.dumps(self.name)},\n',
            f'  "nodes": {lines(self.nodes)},\n',
            f'  "modules": {lines(list(self.modules.values()))},\n',
            f'  "tensors": {lines(list(self.tensors.values()))}',
            f',\n  "metadata": {json.dumps(self.metadata)}' if self.metadata else "", "\n}\n"))


def refusal(reason, *nodes):
    return {"reason": reason, "nodes": list(nodes)}


class Folder:
    """Where the cases are written. A file that says the same already is left alone, and others are exchanged whole: tests may
    read them meanwhile."""

    def __init__(self):
        self.path, self.cases = None, set()

    def write(self, case, file, text):
        path = self.path / case / file
        self.cases.add(case)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{file}.{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        part.replace(path)

    def remove_others(self):
        for path in self.path.glob("*/*/"):
            if f"{path.parent.name}/{path.name}" not in self.cases:
                shutil.rmtree(path, ignore_errors=True)


FOLDER = Folder()


def beside(folder, file, content):
    """One more file of a case: signatures.json or numbers.json."""
    FOLDER.write(folder, file, json.dumps(content, indent=2) + "\n")


def case(pass_name, name, graph, applied, *refused, passes=None, expected=None):
    """One pass: applied so often, refused for these reasons. Several: `passes` and `expected`."""
    folder = f"{pass_name}/{name}"
    assert folder not in FOLDER.cases, folder
    graph.name = name
    FOLDER.write(folder, "before.json", graph.text())
    FOLDER.write(folder, "passes.json", json.dumps(passes or [pass_name]) + "\n")
    rows = []
    for one, times, refusals in expected or [(pass_name, applied, list(refused))]:
        inside = ",".join("\n    " + json.dumps(r) for r in refusals)
        end = "\n  " if refusals else ""
        rows.append(f'  {{"pass": {json.dumps(one)}, "applied": {times}, "refused": [{inside}{end}]}}')
    FOLDER.write(folder, "refused.json", "[\n" + ",\n".join(rows) + "\n]\n")


def main(folder):
    FOLDER.path = pathlib.Path(folder)
    for path in sorted(HERE.glob("*/*.json")):
        parts = json.loads(path.read_text(encoding="utf-8"))
        for part in parts.keys() - {"after"}:
            beside(f"{path.parent.name}/{path.stem}", f"{part}.json", parts[part])
    for path in sorted([*HERE.glob("*/cases.py"), *HERE.glob("cases_*.py")]):
        name = ".".join(path.relative_to(HERE).with_suffix("").parts)
        importlib.import_module(name).cases()
    FOLDER.remove_others()


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.modules["make_cases"] = sys.modules["__main__"]
    main(sys.argv[1])
