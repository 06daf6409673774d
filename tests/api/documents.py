"""The fixtures, and small graphs made to measure."""

import json
import pathlib

import pytest

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
NAMES = sorted(folder.name for folder in FIXTURES.iterdir() if (folder / "graph.json").exists())
# As parameters of a test: the small ones, and in make test-all the others.
EACH = [name if name in ("toy", "bert-tiny", "aten-toy", "aten-resnet18") else pytest.param(name, marks=pytest.mark.long)
        for name in NAMES]
COMPOSED = ["ChangeTrueDivToMulByInverse", "MergeLinears", "FuseBiasInLinear"]


def document(name):
    return (FIXTURES / name / "graph.json").read_bytes()


def ids(name):
    """The id and the structure that an independent writer found."""
    found = json.loads((FIXTURES / "ids.json").read_text())[name]
    return [found["id"], found["structure"]]


def code(name):
    return (FIXTURES / name / "code.txt").read_text().split("# after ")[0]


def expectations():
    """(fixture, list of passes, code) for every code that Optimum makes of a fixture: after code() in code.txt."""
    for name in NAMES:
        for part in (FIXTURES / name / "code.txt").read_text().split("# after ")[1:]:
            passes, _, expected = part.partition("\n")
            yield pytest.param(name, json.loads(passes), expected, id="-".join([name, *json.loads(passes)]))


def node(name, op, target, args=(), **more):
    return {"name": name, "op": op, "target": target, "args": list(args), **more}


def ref(name):
    return {"$node": name}


def linear(path, inputs=4, outputs=4):
    module = {
        "path": path,
        "type": "torch.nn.Linear",
        "config": {"in_features": inputs, "out_features": outputs, "bias": True},
        "parameters": {"weight": f"{path}.weight", "bias": f"{path}.bias"},
    }
    tensors = [
        {"name": f"{path}.weight", "dtype": "float32", "shape": [outputs, inputs]},
        {"name": f"{path}.bias", "dtype": "float32", "shape": [outputs]},
    ]
    return module, tensors


def batch_norm_fold():
    """Conv2d -> BatchNorm2d: the pass that folds it cannot be reversed."""
    tensors = [
        {"name": "conv.weight", "dtype": "float32", "shape": [8, 3, 3, 3]},
        *({"name": f"bn.{part}", "dtype": "float32", "shape": [8]} for part in ("weight", "bias")),
        *({"name": f"bn.{part}", "dtype": "float32", "shape": [8]} for part in ("running_mean", "running_var")),
        {"name": "bn.num_batches_tracked", "dtype": "int64", "shape": []},
    ]
    modules = [
        {"path": "", "type": "Model"},
        {
            "path": "conv",
            "type": "torch.nn.Conv2d",
            "config": {"in_channels": 3, "out_channels": 8, "kernel_size": {"$tuple": [3, 3]}, "bias": False},
            "parameters": {"weight": "conv.weight", "bias": None},
        },
        {
            "path": "bn",
            "type": "torch.nn.BatchNorm2d",
            "config": {"num_features": 8},
            "parameters": {"weight": "bn.weight", "bias": "bn.bias"},
            "buffers": {part: f"bn.{part}" for part in ("running_mean", "running_var", "num_batches_tracked")},
        },
    ]
    meta = {"shape": [1, 8, 6, 6], "dtype": "float32"}
    nodes = [
        node("x", "placeholder", "x", meta={"shape": [1, 3, 8, 8], "dtype": "float32"}),
        node("conv", "call_module", "conv", [ref("x")], meta=meta),
        node("bn", "call_module", "bn", [ref("conv")], meta=meta),
        node("output", "output", "output", [ref("bn")]),
    ]
    return {"format": "foldback.graph/1", "name": "folds", "nodes": nodes, "modules": modules, "tensors": tensors}


def branches(count=2, name="branches"):
    """`count` Linears that read one input, divided by 8, added up."""
    modules, tensors = [{"path": "", "type": "Model"}], []
    meta = {"shape": [2, 4], "dtype": "float32"}
    nodes = [node("x", "placeholder", "x", meta=meta)]
    for i in range(count):
        module, own = linear(f"fc{i}")
        modules.append(module)
        tensors.extend(own)
        nodes.append(node(f"fc{i}", "call_module", f"fc{i}", [ref("x")], meta=meta))
    total = "fc0"
    for i in range(1, count):
        nodes.append(node(f"add_{i}", "call_function", "operator.add", [ref(total), ref(f"fc{i}")], meta=meta))
        total = f"add_{i}"
    nodes.append(node("truediv", "call_function", "operator.truediv", [ref(total), 8], meta=meta))
    nodes.append(node("output", "output", "output", [ref("truediv")]))
    graph = {"format": "foldback.graph/1", "name": name, "nodes": nodes, "modules": modules, "tensors": tensors}
    return json.loads(json.dumps(graph))  # nothing in it is shared: a test may change any part alone


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def counts(service):
    """How many graphs and runs the store holds, as it says itself."""
    lines = dict(line.rsplit(" ", 1) for line in service.get("/metrics").body.decode().splitlines() if line[:1] != "#")
    return int(lines["foldback_store_graphs"]), int(lines["foldback_store_runs"])


def every_item(service, path, query=(), limit=2):
    """All items of a list, page by page."""
    items, token = [], None
    while True:
        pairs = [*query, ("limit", limit)] + ([("page_token", token)] if token else [])
        answer = service.get(path, raw_query=pairs)
        assert answer.status == 200, answer
        page = answer.json()
        assert len(page["items"]) <= limit
        items += page["items"]
        token = page.get("next_page_token")
        if not token:
            return items
