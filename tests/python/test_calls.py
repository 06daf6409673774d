"""Calls that rules make of an operator are calls that PyTorch has: core/analysis/calls.def, and what comes out, run.
Functions are known under the names that torch.fx prints as well."""

import builtins
import operator
import pathlib

import make_calls
import pytest
import torch
import torch.nn.functional as F
from test_models_evaluate import evaluate

from foldback.fx import to_document
from foldback.values import qualified_name

CALLS = pathlib.Path(__file__).resolve().parents[2] / "core" / "analysis" / "calls.def"
X, LESS = "?x", {"operator": "gt", "args": ["?x", 0.5]}

# What takes the place of relu(z), with z of shape [2, 4]; all of it can be computed.
REPLACEMENTS = [
    ("gt", [X, 0]), ("gt", [X, X]), ("eq", [X, 0]), ("ne", [X, 0.5]), ("pow", [X, 2]), ("pow", [X, X]), ("rsub", [X, 1]),
    ("remainder", [X, 2]), ("fmod", [X, 2]), ("floor_divide", [X, 2]), ("add", [X, 1]), ("div", [X, 2]), ("mul", [X, X]),
    ("where", [LESS, X, X]), ("masked_fill", [X, LESS, 0.0]), ("mean", [X]), ("mean", [X, -1]), ("mean", [X, [0, 1], True]),
    ("sum", [X]), ("sum", [X, -1]), ("max", [X]), ("max", [X, X]), ("min", [X, X]), ("amax", [X, -1]), ("softmax", [X, -1]),
    ("lerp", [X, X, 0.5]), ("clamp", [X, 0, 1]), ("cat", [[X, X], 0]), ("stack", [[X, X], 0]), ("cumsum", [X, 0]),
    ("full_like", [X, 1.0]), ("zeros_like", [X]), ("std", [X]), ("norm", [X]), ("any", [X]), ("topk", [X, 2]), ("sort", [X]),
    ("argmax", [X]), ("flip", [X, [0]]), ("repeat", [X, [1, 2]]), ("layer_norm", [X, [4]]), ("tile", [X, [2]]),
    ("scaled_dot_product_attention", [X, X, X]), ("normalize", [X]), ("logsigmoid", [X]), ("softsign", [X]),
    ("add", [X, {"operator": "arange", "args": [4]}]), ("one_hot", [{"operator": "argmax", "args": [X]}, 8]),
    ("maximum", [X, 0]), ("add", [2, X]),
]
SPELLINGS = {
    "aten": ("call_function", "torch.ops.aten.relu.default", "torch.ops.aten.mul.Tensor"),
    "method": ("call_method", "relu", "operator.mul"),
    "torch": ("call_function", "torch.relu", "operator.mul"),
}
# ATen has no such operator; the method `where` has its arguments in another order.
NOT_THERE = {("normalize", "aten"), ("logsigmoid", "aten"), ("softsign", "aten"), ("where", "method")}
# It takes tensors only; and a number has no method.
NOT_THERE |= {("maximum", spelling) for spelling in SPELLINGS}


def test_the_table_is_pytorchs():
    assert CALLS.read_text() == make_calls.text()


def graph(spelling):
    opcode, relu, mul = SPELLINGS[spelling]
    typed = {"meta": {"shape": [2, 4], "dtype": "float32"}}
    x, z = {"$node": "x"}, {"$node": "z"}
    nodes = [
        {"name": "x", "op": "placeholder", "target": "x", **typed},
        {"name": "z", "op": "call_function", "target": mul, "args": [x, x], **typed},
        {"name": "a", "op": opcode, "target": relu, "args": [z]},
        {"name": "b", "op": "call_function", "target": "builtins.id", "args": [{"$node": "a"}]},
        {"name": "output", "op": "output", "target": "output", "args": [{"$node": "b"}]},
    ]
    root = {"path": "", "type": "torch.nn.Module"}
    return {"format": "foldback.graph/1", "name": spelling, "nodes": nodes, "modules": [root], "tensors": []}


@pytest.mark.parametrize("number", range(len(REPLACEMENTS)))
def test_what_a_rule_makes_can_be_called(service, number):
    name, args = REPLACEMENTS[number]
    rule = {
        "name": f"Calls{number}",
        "pattern": {"operator": "relu", "args": ["?x"], "as": "?y"},
        "replacement": {"?y": {"operator": name, "args": args}},
        "exactness": "changes",
        "once": True,
    }
    answer = service.post("/v1/transformations", rule)
    if all((name, spelling) in NOT_THERE for spelling in SPELLINGS):
        assert (answer.status, answer.json()["code"]) == (422, "no-such-call")
        return
    assert answer.status in (200, 201), answer
    for spelling in SPELLINGS:
        body = {"graph": graph(spelling), "passes": [rule["name"]], "options": {"include": ["code"]}}
        answer = service.post("/v1/optimize", body)
        assert answer.status == 201, answer
        (done,) = answer.json()["passes"]
        if (name, spelling) in NOT_THERE or (spelling == "method" and isinstance(args[0], int)):
            assert [refused["reason"] for refused in done["refused"]] == ["no-such-call"]
            continue
        assert done["applied"] == 1, (spelling, done)
        code = answer.json()["code"]
        known = {"torch": torch, "operator": operator, "builtins": builtins, "device": torch.device}
        exec(code.strip(), known)
        known["forward"](None, torch.rand(2, 4))


# Calls of functions that are written in Python, in place of relu(z): with these arguments they are there, with those not.
IN_PYTHON = [
    ("alpha_dropout", [X, "a"], {}, False), ("dropout", [X, "a"], {}, False), ("dropout", [X, None], {}, False),
    ("dropout", [X, 0.5, False, False, 1], {}, False), ("dropout", [X, 0.5], {"training": "no"}, False),
    ("softsign", [X], {}, True), ("softsign", [X, 1], {}, False),
    ("hardtanh", [X, -1, 1], {}, True), ("hardtanh", [X, "a"], {}, False),
    ("threshold", [X, 0.5, 0.0], {}, True), ("threshold", [X], {}, False), ("threshold", [X, 0.5], {}, False),
    ("normalize", [X], {"dim": -1}, True), ("normalize", [X, 2.0, [0, 1]], {}, True),
    ("normalize", [X, 2.0, "last"], {}, False),
    ("layer_norm", [X, [4]], {}, True), ("layer_norm", [X], {}, False), ("layer_norm", [X, "all"], {}, False),
    ("layer_norm", [X, [4], 2], {}, False),
    ("mse_loss", [X, X], {}, True), ("mse_loss", [X], {}, False),
    ("mse_loss", [X, 2], {}, False),
    ("gumbel_softmax", [X, 1.0], {}, True), ("gumbel_softmax", [X, "a"], {}, False),
    ("softmax", [X, -1], {"dtype": {"$dtype": "float64"}}, True), ("softmax", [X, -1], {"dtype": "float64"}, False),
    ("interpolate", [X], {"size": [4]}, True), ("interpolate", [X], {"size": "a"}, False),
    ("interpolate", [X], {"mode": 1}, False),
    ("pad", [X, [1, 1]], {"mode": 2}, False), ("cross_entropy", [X], {}, False), ("embedding", [X, 3], {}, False),
]


def functional(name, args, kwargs):
    """What an optimiser made of a graph of torch.nn.functional, or why not."""
    document = graph("torch")
    document["nodes"][2]["target"] = "torch.nn.functional.relu"
    replacement = {"operator": name, "args": args, **({"kwargs": kwargs} if kwargs else {})}
    rule = {
        "name": "MakesIt",
        "pattern": {"operator": "relu", "args": ["?x"], "as": "?y"},
        "replacement": {"?y": replacement},
        "exactness": "changes",
        "once": True,
    }
    return document, rule


@pytest.mark.parametrize("number", range(len(IN_PYTHON)))
def test_a_function_of_python_is_called_as_it_takes(service, number):
    name, args, kwargs, exists = IN_PYTHON[number]
    document, rule = functional(name, args, kwargs)
    rule["name"] = f"InPython{number}"
    answer = service.post("/v1/transformations", rule)
    if answer.status == 422:
        assert not exists, answer
        return
    answer = service.post("/v1/optimize", {"graph": document, "passes": [rule["name"]], "options": {"include": ["code"]}})
    assert answer.status == 201, answer
    (done,) = answer.json()["passes"]
    if not exists:
        assert [refused["reason"] for refused in done["refused"]] == ["no-such-call"], answer.json()["code"]
        return
    reasons = [refused["reason"] for refused in done["refused"]]
    assert "no-such-call" not in reasons, done
    # What may be its input again is refused for that, where the graph's writes and outputs ask for it.
    assert reasons or f"torch.nn.functional.{name}(" in answer.json()["code"], done


# ---- functions as torch.fx prints them ---------------------------------------------------------------------------------------


def printed_names():
    """What of torch's functions torch.fx prints under another name: torch.split as torch.functional.split."""
    homes = {"torch": torch, "torch.nn.functional": F, "torch.special": torch.special, "torch.fft": torch.fft,
             "torch.linalg": torch.linalg}
    for home, module in homes.items():
        for name, function in vars(module).items():
            if callable(function) and not isinstance(function, type) and not name.startswith("_"):
                yield f"{home}.{name}", qualified_name(function)


def test_what_torch_fx_prints_is_the_same_operator(service):
    names = {written: printed for written, printed in printed_names() if printed != written}
    assert names["torch.split"] == "torch.functional.split"
    document = graph("torch")
    x, targets = document["nodes"][0], sorted({*names, *names.values()})
    calls = [{"name": f"c{i}", "op": "call_function", "target": target, "args": [{"$node": "x"}]}
             for i, target in enumerate(targets)]
    document["nodes"] = [x, *calls, {"name": "output", "op": "output", "target": "output", "args": [{"$node": "x"}]}]
    answer = service.post("/v1/optimize", {"graph": document, "passes": ["EliminateDeadCode"],
                                           "options": {"include": ["graph"]}})
    assert answer.status == 201, answer
    unknown = {node["target"] for node in answer.json()["graph"]["nodes"]}  # the others are removed, as nobody reads them
    assert [name for name in names if name not in unknown and names[name] in unknown] == []


AS_PRINTED = {
    "split": lambda x: torch.split(x, 2, -1)[1], "split into sizes": lambda x: torch.split(x, [1, 3], dim=1)[1],
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x), "einsum of a list": lambda x: torch.einsum("ij,kj->ik", [x, x]),
    "norm": lambda x: torch.norm(x), "norm along": lambda x: torch.norm(x, 1, dim=0),
    "norm in float64": lambda x: torch.norm(x, dtype=torch.float64),
    "linalg.norm along": lambda x: torch.linalg.norm(x, dim=1), "linalg.matmul": lambda x: torch.linalg.matmul(x, x.t()),
    "threshold": lambda x: F.threshold(x, 0.1, 20.0), "meshgrid": lambda x: torch.meshgrid(x[0], x[1, :3], indexing="ij")[1],
    "meshgrid xy": lambda x: torch.stack(torch.meshgrid(x[0, ::2], x[1], x[0, :3], indexing="xy")),
    "meshgrid of one": lambda x: torch.meshgrid([x[0]])[0],
    "meshgrid of numbers": lambda x: torch.stack(torch.meshgrid(x[0, 0], x[1])),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x[:1], x[None])[1],
}


@pytest.mark.parametrize("name", AS_PRINTED)
def test_what_torch_fx_prints_is_evaluated(name, tmp_path):
    function, x = AS_PRINTED[name], torch.randn(2, 4, generator=torch.Generator().manual_seed(7))
    found = evaluate(to_document(torch.fx.symbolic_trace(function), x, data=True), {"x": x}, tmp_path)
    assert not isinstance(found, str), found
    assert found[0].dtype == function(x).dtype
    torch.testing.assert_close(found[0], function(x))


def test_a_norm_of_matrices_is_not_taken_for_one_of_vectors(tmp_path):
    x = torch.randn(2, 4)
    found = evaluate(to_document(torch.fx.symbolic_trace(lambda x: torch.linalg.norm(x, 2)), x, data=True), {"x": x}, tmp_path)
    assert isinstance(found, str) and "norm" in found, found
