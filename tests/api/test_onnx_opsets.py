"""RaiseOpset: what rises gives what it gave, by the outputs that ONNX's own cases and ONNX Runtime have; what does not is
refused by name; and all of it is undone. FOLDBACK_ONNX_SUITE adds all node cases, as in test_onnx_evaluate.py."""

import collections
import itertools
import re

import pytest
from conftest import ROOT
from test_onnx import send
from test_onnx_changed import field, graph, made_of, node, number, optimize, part, value
from test_onnx_evaluate import SUITES, cases_of, evaluate, judge
from test_onnx_folds import unshaped
from test_onnx_formulas import model
from test_onnx_fusions import fused, weight

ROWS = (ROOT / "core" / "operators" / "onnx_operators.def").read_text()
VERSIONS = {name: [*map(int, numbers.split(","))]
            for name, numbers in re.findall(r'^ONNX_OPERATOR\("(\w+)", \w+, \w+, \w+, ([\d, ]+)\)', ROWS, re.M)}
PAGE = ROOT / "docs" / "onnx.md"
REFUSALS = {"version-differs", "unknown-operator", "named-elsewhere", "opset-too-old"}
FIRST, LAST = 11, 23


def raised(service, graph, to=LAST):
    """(run, the reasons of what is refused)"""
    answer = service.post("/v1/optimize", {"graph": graph, "passes": [{"name": "RaiseOpset", "params": {"to": to}}]})
    assert answer.status == 201, answer
    run = answer.json()
    return run, [refused["reason"] for refused in run["passes"][0]["refused"]]


def versions_of(service, graph):
    """{(operator, version)} of all programs."""
    return {(name, int(version)) for name, version in
            re.findall(r'"onnx\.(\w+)\.v(\d+)"', service.get(f"/v1/graphs/{graph}").body.decode())}


def begun(service, parts):
    """The graph of a case; where its opset is too old, as a model of opset 11, if that has the same operators."""
    made = send(service, parts["model.onnx"])
    if made.status not in (200, 201):
        return None
    graph, versions = made.json()["id"], versions_of(service, made.json()["id"])
    if all(max((v for v in VERSIONS.get(name, ()) if v <= FIRST), default=0) == version for name, version in versions):
        for opset in range(7, FIRST):
            for domain in (b"", b"\x0a\x00"):
                one, other = (b"\x42" + bytes([len(domain) + 2]) + domain + bytes([0x10, at]) for at in (opset, FIRST))
                if parts["model.onnx"].count(one) == 1:
                    parts["model.onnx"] = parts["model.onnx"].replace(one, other)
                    graph = send(service, parts["model.onnx"]).json()["id"]
    return graph if evaluate(service, graph, parts).status == 200 else None


def check(service, graph, parts):
    """None where it rose and is right, the reasons where it is refused; and the versions from which it rose."""
    before = service.get(f"/v1/graphs/{graph}").json()["metadata"]["onnx"]["opsets"].get("", 0)
    run, reasons = raised(service, graph)
    assert set(reasons) <= REFUSALS, reasons
    if reasons:
        assert run["result"] == graph
        return reasons, set()
    after = service.get(f"/v1/graphs/{run['result']}").json()["metadata"]["onnx"]["opsets"].get("", 0)
    assert after == max(before, LAST), (before, after)
    answer = evaluate(service, run["result"], parts)
    assert answer.status == 200, (answer.body, versions_of(service, run["result"]))
    difference = judge(answer.body, parts["outputs.safetensors"])
    assert difference is None, difference
    written = service.get(f"/v1/graphs/{run['result']}/archive")
    assert written.status == 200, written.body
    assert send(service, written.body).json().get("id") == run["result"]
    undone = service.post(f"/v1/runs/{run['id']}/rollback").json()
    assert undone["result"] == graph
    assert service.get(f"/v1/graphs/{undone['result']}/archive").body == parts["model.onnx"]
    return None, versions_of(service, graph) - versions_of(service, run["result"])


@pytest.fixture(scope="module")
def rose_in_all():
    """(operator, version) of all cases; the page counts those of the whole suites."""
    found = set()
    yield found
    steps = {(name, one) for name, versions in VERSIONS.items() for one, next_ in itertools.pairwise(versions)
             if FIRST < next_ <= LAST}
    if len(SUITES) == 2:
        assert f"{len(steps & found)} of the {len(steps)} versions" in PAGE.read_text(), (len(steps & found), steps - found)


@pytest.mark.parametrize("suite", [pytest.param("node", marks=pytest.mark.heavy), "version", "trap", *SUITES])
def test_cases_rise(new_service, rose_in_all, suite):
    service, counts, faults, rose, reasons = new_service(), collections.Counter(), [], set(), collections.Counter()
    for name, parts in cases_of(suite):
        parts = dict(parts)
        graph = begun(service, parts)
        if not graph:
            continue
        try:
            refused, versions = check(service, graph, parts)
        except AssertionError as error:
            faults.append((name, str(error)[:1500]))
            continue
        counts["refused" if refused else "rose" if versions else "had nothing to rise"] += 1
        reasons.update(refused or ())
        rose |= versions
    print(dict(counts), dict(reasons))
    rose_in_all |= rose
    assert not faults
    assert counts["rose"] > 0


RAISED = {
    "rows": ("Softmax x > y", 11, (2, 3, 4), ["Flatten", "Softmax", "Shape", "Reshape"]),
    "rows-of-none": ("Softmax x > y", 11, (2, 0, 4), ["Flatten", "Softmax", "Shape", "Reshape"]),
    "rows-by-the-first-axis": ("LogSoftmax x > y axis=0", 12, (2, 3, 4), ["Flatten", "LogSoftmax", "Shape", "Reshape"]),
    "last-axis": ("Hardmax x > y axis=2", 12, (2, 3, 4), ["Hardmax"]),
    "axes": ("Unsqueeze x > u axes=[0]\nReduceL2 u > y axes=[1,-1] keepdims=0", 12, (2, 3, 4), ["Unsqueeze", "ReduceL2"]),
    "all-axes": ("ReduceMax x > y keepdims=0", 12, (2, 3, 4), ["ReduceMax"]),
    "parts": ("Split x > y,z axis=1", 13, (2, 4, 4), ["Split"]),
    "sizes-of-parts": ("Split x > y,z axis=1 split=[1,3]", 12, (2, 4, 4), ["Split"]),
    "training-goes": ("Dropout x > y ratio=0.25", 11, (2, 3, 4), ["Dropout"]),
    "mask": ("Dropout x > d,m ratio=0.25\nWhere m d x > y", 11, (2, 3, 4), ["Dropout", "Where"]),
}


@pytest.mark.parametrize("name", RAISED)
def test_raised(shared, name):
    text, opset, shape, wanted = RAISED[name]
    data = model(text, opset, shape, outputs="y z" if ",z" in text else "y")
    run, written = optimize(shared, data, "RaiseOpset")
    assert part(written.body, 8, 2) == [LAST] and not run["passes"][0]["refused"]
    assert fused(shared, data, "RaiseOpset")[0] == wanted


LEFT = {
    "ceil": ("AveragePool x > y ceil_mode=1 kernel_shape=[2]", "version-differs"),
    "all-or-nothing": ("Relu x > r\nMaxPool r > y ceil_mode=1 kernel_shape=[2]", "version-differs"),
    "scale-of-one-number": ("QuantizeLinear x s > q\nDequantizeLinear q s > y", "version-differs"),
    "a-later-operator": ("Mish x > y", "unknown-operator"),
}


@pytest.mark.parametrize("name", LEFT)
def test_left(shared, name):
    text, reason = LEFT[name]
    data = model(text, 11, (2, 3, 4), weights=[weight("s", 1)])
    run, written = optimize(shared, data, "RaiseOpset")
    assert {one["reason"] for one in run["passes"][0]["refused"]} == {reason}
    assert run["result"] == run["source"] and written.body == data


def function(text, opset):
    """Of the domain d, which takes x and gives y, and imports that opset."""
    nodes = b"".join(field(7, one) for one in part(model(text, opset), 7, 1))
    imports = field(9, field(1, "") + number(2, opset))
    return field(25, field(1, "f") + field(4, "x") + field(5, "y") + nodes + imports + field(10, "d"))


@pytest.mark.parametrize("opset,rises", [(12, True), (13, True), (24, False)])
def test_a_function_has_an_opset_of_its_own(shared, opset, rises):
    """All of the model rises; a function that is of a later opset does not fall."""
    text = "ReduceMean x > m axes=[-1]\nTranspose m > y" if opset < 18 else "Relu x > t\nTranspose t > y"
    call = field(1, field(1, "x") + field(2, "y") + field(4, "f") + field(7, "d"))
    rest = field(8, field(1, "d") + number(2, 1)) + function(text, opset)
    data = made_of(graph([call], [value("x", shape=(2, 3))], [unshaped("y")]), opset=12, rest=rest)
    run, written = optimize(shared, data, "RaiseOpset")
    refused = {one["reason"] for one in run["passes"][0]["refused"]}
    assert refused == (set() if rises else {"version-differs"})
    if rises:
        assert part(written.body, 25, 9, 2) == [LAST] and LAST in part(written.body, 8, 2)
        assert [one.decode() for one in part(written.body, 25, 7, 4)] == ["Constant", "ReduceMean", "Transpose"]
    fused(shared, data, "RaiseOpset")


def test_nodes_beside_the_graph_keep_their_opset(shared):
    """A model is not written whose training_info would be of another opset than its nodes were meant for."""
    algorithm = field(2, graph([node("Relu", "x", "z")], [], [unshaped("z")]))
    data = model("Relu x > y", 12) + field(20, algorithm)
    run, written = optimize(shared, data, "RaiseOpset")
    assert run["result"] != run["source"] and written.status == 409 and "training_info" in written.json()["detail"]


def test_passes_write_what_the_later_opset_has(shared):
    text = "Div x 1.4142135 > a\nErf a > e\nAdd e 1.0 > o\nMul x o > p\nMul p 0.5 > y"
    assert fused(shared, model(text, 12), "FuseActivation") == (["Div", "Erf", "Add", "Mul", "Mul"], {"opset-too-old"})
    assert fused(shared, model(text, 12), "RaiseOpset FuseActivation")[0] == ["Gelu"]
