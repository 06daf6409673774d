"""foldback bisect: by the service, and by a command."""

import json
import re

import pytest
from documents import node, ref
from test_bisect import WRONG, chain, rule
from test_cli import foldback  # noqa: F401 (a fixture)
from test_evaluate import graph_of, output

PASSES = ["RemoveNoOps", "Planted0"]


def planted(foldback, constants):
    nodes, last = chain(constants)
    foldback.path("graph.json").write_text(json.dumps(graph_of(*nodes, output(last))))
    foldback.path("rule.json").write_text(json.dumps(rule("Planted0", WRONG)))
    assert foldback("transformation", "put", "rule.json").status == 0
    return foldback("optimize", "graph.json", "--pass", ",".join(PASSES)).json()["id"]


def test_a_match_is_found(foldback):
    run = planted(foldback, [3, 5, WRONG, 7])
    answer = foldback("bisect", run, "--samples", "3", "--seed", "4")
    found = json.loads(answer.out)
    assert answer.status == 1 and (found["pass"]["name"], found["pass"]["position"], found["match"]) == ("Planted0", 1, "d2")
    assert found["seed"] == 4 and foldback("bisect", run, "--output", "0").status == 1
    rest = found["rest"]["request"]
    passes = [word for one in rest["passes"] for word in ("--pass", json.dumps(one))]
    kept = foldback("optimize", rest["graph"], *passes).json()
    assert kept["passes"][1]["except"] == ["d2"]
    assert foldback("bisect", kept["id"]).status == 0
    assert foldback("compare", kept["source"], kept["id"]).status == 0


def test_on_a_terminal(foldback):
    answer = foldback.on_terminal("bisect", planted(foldback, [3, WRONG, 7]))
    assert answer.status == 1 and answer.out.startswith("differs\n") and "the first node that differs: d1" in answer.out
    assert any(re.sub("\x1b\\[[0-9]*m", "", line).split() == ["Planted0", "d1", "1"] for line in answer.out.splitlines())
    command = answer.out.splitlines()[-1]
    assert (command.startswith("  foldback optimize sha256:") and "--pass RemoveNoOps --pass '{" in command
            and '"except":["d1"]' in command)


def test_without_a_match_it_tells_what_was_compared(foldback):
    right = foldback.on_terminal("bisect", planted(foldback, [3, 5]), NO_COLOR="1")
    assert right.status == 0 and "compared with, so nothing was searched" in right.out and "output.0" in right.out
    graph = graph_of(node("w", "get_attr", "w"), node("y", "call_function", "operator.truediv", [ref("w"), 4.0]), output("y"),
                     modules=[{"path": "", "type": "Model", "parameters": {"w": "w"}}],
                     tensors=[{"name": "w", "dtype": "float32", "shape": [4]}])
    foldback.path("weight.json").write_text(json.dumps(graph))
    run = foldback("optimize", "weight.json", "--pass", "ChangeTrueDivToMulByInverse").json()["id"]
    unknown = foldback.on_terminal("bisect", run, NO_COLOR="1")
    assert unknown.status == 2 and "the bytes of w are not known here" in unknown.out, unknown.out


def test_nothing_is_wrong_and_nothing_is_known(foldback):
    assert foldback("bisect", planted(foldback, [3, 5])).status == 0
    assert foldback("bisect", "graph.json").status == 2
    assert foldback("bisect", "run_00000000000000000000000000").status == 2
    assert foldback("bisect", planted(foldback, [3, 5]), "--output", "x").status == 2


CHECK = """import json, sys
graph = json.load(open(sys.argv[1]))
factors = [node["args"][1] for node in graph["nodes"] if node["target"] == "operator.mul"]
open("calls", "a").write("x")
sys.exit({} if any(abs(one - 0.9 / 97) < 1e-9 for one in factors) else 0)
"""


@pytest.mark.heavy
def test_by_a_command(foldback):
    run = planted(foldback, [3, 5, WRONG, 7, 9])
    foldback.path("check.py").write_text(CHECK.format(3))
    answer = foldback("bisect", run, "--exec", "python3 check.py")
    found = json.loads(answer.out)
    assert answer.status == 1 and (found["verdict"], found["match"], found["is_smallest"]) == ("differs", "d2", True)
    assert found["steps"]["all"] == len(foldback.path("calls").read_text()) and found["steps"]["matches"] <= 3
    assert found["rest"]["verdict"] == "passes" and found["rest"]["request"]["passes"][1]["except"] == ["d2"]
    foldback.path("check.py").write_text(CHECK.format(0))
    assert foldback("bisect", run, "--exec", "python3 check.py").status == 0
    foldback.path("check.py").write_text(CHECK.format(125))
    assert foldback("bisect", run, "--exec", "python3 check.py").status == 2
    foldback.path("check.py").write_text(CHECK.format(200))  # as in git bisect run, this ends the search
    answer = foldback("bisect", run, "--exec", "python3 check.py")
    assert answer.status == 2 and "200" in answer.err
    answer = foldback("bisect", run, "--exec", "false")
    assert answer.status == 2 and json.loads(answer.out)["source_differs"]


def test_against_another_graph(foldback):
    run = planted(foldback, [3, WRONG, 7])
    nodes, last = chain([3, WRONG, 7])
    nodes[0]["args"] = [ref("x"), 3.0]
    foldback.path("other.json").write_text(json.dumps(graph_of(*nodes, output(last))))
    assert json.loads(foldback("bisect", run, "--against", "other.json").out)["match"] == "d1"
