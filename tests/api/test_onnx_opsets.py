"""RaiseOpset: what rises gives what it gave, by the outputs that ONNX's own cases and ONNX Runtime have; what does not is
refused by name; and all of it is undone. FOLDBACK_ONNX_SUITE adds all node cases, as in test_onnx_evaluate.py."""

import collections
import itertools
import re

import pytest
from conftest import ROOT
from test_onnx import send
from test_onnx_evaluate import SUITES, cases_of, evaluate, judge

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
