"""Rules as data: they are stored in versions, and are passes like any other."""

import json

import golden
import pytest
from cli import CommandLine
from conftest import ROOT
from documents import node, ref
from test_http import is_problem
from test_schemas import validator

META = {"shape": [2, 4], "dtype": "float32"}
DOUBLE = golden.RULES["DoubleTheDoubles"]


def graph(*factors):
    nodes = [node("x", "placeholder", "x", meta=META)]
    for i, factor in enumerate(factors):
        nodes.append(node(f"mul_{i + 1}", "call_function", "operator.mul", [ref(nodes[-1]["name"]), factor], meta=META))
    nodes.append(node("output", "output", "output", [ref(nodes[-1]["name"])]))
    return {"format": "foldback.graph/1", "name": "g", "nodes": nodes, "modules": [{"path": "", "type": "torch.nn.Module"}],
            "tensors": []}


def put(service, rule, status=201):
    answer = service.post("/v1/transformations", rule)
    assert answer.status == status, answer
    return answer.json()


def optimize(service, document, *passes, **options):
    answer = service.post("/v1/optimize", {"graph": document, "passes": list(passes), "options": options})
    assert answer.status == (200 if options.get("dry_run") else 201), answer
    return answer.json()


def factors(service, id):
    return [one["args"][1] for one in service.get(f"/v1/graphs/{id}").json()["nodes"] if one["name"].startswith("mul")]


def changed(rule, **members):
    return {**rule, **members}


TRIPLE = changed(DOUBLE, replacement={"?y": {"operator": "mul", "args": ["?x", 6]}}, description="`x * 2` becomes `x * 6`.")


@pytest.mark.parametrize("name", golden.RULES)
def test_every_rule_of_the_tests_is_valid_and_stored(service, name):
    rule = golden.RULES[name]
    validator("rule.schema.json").validate(rule)
    made = put(service, rule)
    assert (made["name"], made["version"], made["rule"], made["exactness"]) == (name, 1, rule, rule["exactness"])
    assert made["description"] == rule["description"]
    assert made["preserves_computation"] == (made["exactness"] != "changes")
    assert service.get(f"/v1/transformations/{name}").json() == made
    assert service.get(f"/v1/transformations/{name}/versions/1").json() == made
    assert put(service, json.dumps(rule, sort_keys=True).encode(), 200) == made
    assert service.get("/v1/transformations").json() == {"items": [made]}


def test_a_rule_is_a_pass(service):
    made = put(service, DOUBLE)
    run = optimize(service, graph(2, 3, 2), "DoubleTheDoubles")
    assert factors(service, run["result"]) == [4, 3, 4]
    assert (run["reversible"], run["preserves_computation"]) == (True, False)
    (one,) = run["passes"]
    assert one == {"name": "DoubleTheDoubles", "version": 1, "params": {}, "signature": made["signature"], "reversible": True,
                   "exactness": "changes", "applied": 2, "nodes": ["mul_1", "mul_3"], "refused": [],
                   "inserted": ["mul_1", "mul_3"]}
    marked = service.get(f"/v1/graphs/{run['result']}/nodes?pass=DoubleTheDoubles").json()["items"]
    assert [one["name"] for one in marked] == ["mul_1", "mul_3"]
    assert [one["id"] for one in service.get("/v1/runs?pass=DoubleTheDoubles").json()["items"]] == [run["id"]]
    for way in ("reverse", "rollback"):
        back = service.post(f"/v1/runs/{run['id']}/{way}").json()
        assert (back["result"], back["exact"]) == (run["source"], True)
    again = optimize(service, run["result"], "DoubleTheDoubles")
    assert again["result"] == run["result"] and [one["reason"]
                                                 for one in again["passes"][0]["refused"]] == ["already-transformed"] * 2


def test_a_rule_is_found_where_passes_are_looked_for(service):
    problem = is_problem(service.get("/v1/passes/DoubleTheDoubles"), 404, "unknown-pass")
    assert "there is no pass" in problem["detail"] and "GET /v1/transformations " in problem["detail"]
    put(service, DOUBLE)
    problem = is_problem(service.get("/v1/passes/DoubleTheDoubles"), 404, "unknown-pass")
    assert problem["detail"].endswith("is a rule: GET /v1/transformations/DoubleTheDoubles")


def test_a_rule_that_cannot_be_right_is_refused(service):
    one = changed(DOUBLE, replacement={"?y": {"operator": "add", "args": ["?x"]}})
    assert is_problem(service.post("/v1/transformations", one), 422, "missing-argument")["pointer"] == "/replacement/?y"
    one = changed(DOUBLE, conditions=[{"of": "?x", "users": 1}, {"of": "?x", "users": {"at_least": 2}}])
    assert is_problem(service.post("/v1/transformations", one), 422, "never-holds")["pointer"] == "/conditions/1"
    assert service.get("/v1/transformations").json() == {"items": []}


def test_beside_passes(service):
    put(service, DOUBLE)
    document = json.loads((ROOT / "tests/fixtures/toy/graph.json").read_text())
    run = optimize(service, document, "MergeLinears", ["DoubleTheDoubles", {"name": "DoubleTheDoubles", "version": 1}])
    assert [one["name"] for one in run["passes"]] == ["MergeLinears", "DoubleTheDoubles", "DoubleTheDoubles"]
    back = service.post(f"/v1/runs/{run['id']}/reverse", {"passes": ["DoubleTheDoubles"]}).json()
    assert back["exact"] and back["result"] == optimize(service, document, "MergeLinears")["result"]


@pytest.mark.parametrize("mode", ["rewrites", "graph"])
def test_validated_runs(service, mode):
    """A rule that keeps its promise, one that breaks it, and one that promises nothing."""
    halves = changed(DOUBLE, name="Halves", description="`x * 2` becomes `x / 0.5`.", exactness="rounds",
                     replacement={"?y": {"operator": "div", "args": ["?x", 0.5]}})
    put(service, halves)
    run = optimize(service, graph(2, 3), "Halves", validate=mode)
    assert run["validation"] == {"mode": mode, "passes": True, "complete": True}
    (one,) = run["passes"]
    assert one["applied"] == 1 and one["validation"]["regions" if mode == "rewrites" else "outputs"] == 1
    assert one["validation"]["not_evaluated"] == [] and one["validation"]["max_relative"] < 1e-6

    put(service, changed(DOUBLE, name="Liar", exactness="rounds"))
    body = {"graph": graph(2, 3), "passes": ["Liar"], "options": {"validate": mode}}
    problem = is_problem(service.post("/v1/optimize", body), 422, "validation-failed")
    assert "Liar" in problem["detail"]
    assert service.get("/v1/runs?pass=Liar").json()["items"] == []

    put(service, DOUBLE)
    run = optimize(service, graph(2, 3), "DoubleTheDoubles", validate=mode)
    assert run["passes"][0]["applied"] == 1
    assert run["passes"][0]["validation"]["max_relative"] is None  # it may compute what it likes
    back = service.post(f"/v1/runs/{run['id']}/reverse").json()
    assert (back["result"], back["exact"]) == (run["source"], True)


def test_dry_run_stores_nothing(service):
    put(service, DOUBLE)
    run = optimize(service, graph(2), "DoubleTheDoubles", dry_run=True, include=["graph"])
    assert run["graph"]["nodes"][1]["args"][1] == 4
    assert service.get(f"/v1/graphs/{run['result']}").status == 404


def test_versions_never_change(service):
    first = put(service, DOUBLE)
    run = optimize(service, graph(2, 3), "DoubleTheDoubles")
    second = put(service, TRIPLE)
    assert (first["version"], second["version"]) == (1, 2) and first["signature"] != second["signature"]
    assert put(service, DOUBLE, 200) == first  # what is there already is no new version
    assert service.get("/v1/transformations/DoubleTheDoubles").json() == second
    versions = service.get("/v1/transformations/DoubleTheDoubles/versions").json()
    assert versions["items"] == [second, first]
    assert service.get("/v1/transformations").json()["items"] == [second]
    page = service.get("/v1/transformations/DoubleTheDoubles/versions?limit=1").json()
    assert page["items"] == [second]
    token = page["next_page_token"]
    assert service.get(f"/v1/transformations/DoubleTheDoubles/versions?limit=1&page_token={token}").json()["items"] == [first]

    newest = optimize(service, graph(2, 3), "DoubleTheDoubles")
    assert newest["passes"][0]["version"] == 2 and factors(service, newest["result"]) == [6, 3]
    named = optimize(service, graph(2, 3), {"name": "DoubleTheDoubles", "version": 1})
    assert (named["result"], named["signature"]) == (run["result"], run["signature"])

    # The old run is replayed with what it used: on a graph that was changed since as well.
    document = service.get(f"/v1/graphs/{run['result']}").json()
    document["nodes"][2]["args"][1] = 5
    back = service.post(f"/v1/runs/{run['id']}/reverse", {"graph": document})
    assert back.status == 201 and factors(service, back.json()["result"]) == [2, 5]


def test_versions_after_a_restart(service):
    put(service, DOUBLE)
    run = optimize(service, graph(2), "DoubleTheDoubles", "DeepCopy")
    put(service, TRIPLE)
    service.restart()
    back = service.post(f"/v1/runs/{run['id']}/reverse", {"passes": ["DeepCopy"]}).json()
    assert (back["result"], back["exact"]) == (run["result"], True)


@pytest.mark.parametrize(
    ("rule", "code", "pointer"),
    [
        ({}, "missing-member", ""),
        (changed(DOUBLE, name="MergeLinears"), "name-taken-by-pass", "/name"),
        (changed(DOUBLE, name="inference"), "name-taken-by-pass", "/name"),
        (changed(DOUBLE, name="a/b"), "bad-name", "/name"),
        (changed(DOUBLE, colour="red"), "unknown-member", "/colour"),
        (changed(DOUBLE, pattern=[]), "binds-nothing", "/pattern"),
        (changed(DOUBLE, replacement={"?y": {"operator": "mul", "args": ["?x", "?z"]}}), "unbound-variable",
         "/replacement/?y/args/1"),
        (changed(DOUBLE, replacement={"?y": {"operator": "mul", "args": ["?x", 2]}}), "rule-loops", "/replacement/?y"),
        (changed(DOUBLE, replacement={"?y": {"target": "os.system('rm')"}}), "bad-target", "/replacement/?y/target"),
        (changed(DOUBLE, replacement={"?y": {"target": "f", "kwargs": {"a b": 1}}}), "bad-keyword",
         "/replacement/?y/kwargs/a b"),
        (changed(DOUBLE, replacement={"?y": {"operator": "mul", "args": [{"$node": "x"}]}}), "bad-value",
         "/replacement/?y/args/0"),
        (changed(DOUBLE, format="foldback.graph/1"), "unexpected-graph", ""),
    ],
)
def test_refused(service, rule, code, pointer):
    answer = service.post("/v1/transformations", rule)
    is_problem(answer, 422, code)
    assert answer.json().get("pointer", "") == pointer
    assert service.get("/v1/transformations").json() == {"items": []}


def test_unknown(service):
    put(service, DOUBLE)
    is_problem(service.get("/v1/transformations/Nothing"), 404, "unknown-transformation")
    is_problem(service.get("/v1/transformations/Nothing/versions"), 404, "unknown-transformation")
    is_problem(service.get("/v1/transformations/DoubleTheDoubles/versions/2"), 404, "unknown-version")
    is_problem(service.get("/v1/transformations/DoubleTheDoubles/versions/one"), 404, "unknown-version")
    answer = service.post("/v1/optimize", {"graph": graph(2), "passes": [{"name": "DoubleTheDoubles", "version": 2}]})
    is_problem(answer, 422, "unknown-version")
    assert answer.json()["pointer"] == "/passes/0/version"
    is_problem(service.post("/v1/optimize", {"graph": graph(2), "passes": ["Nothing"]}), 422, "unknown-pass")


def test_refusals_are_told(service):
    put(service, golden.RULES["DivisionToMultiplication"])
    document = graph(2)
    document["nodes"][1].update(target="operator.truediv", args=[ref("x"), 0])
    (one,) = optimize(service, document, "DivisionToMultiplication")["passes"]
    assert one["refused"] == [{"reason": "division-by-zero", "nodes": ["mul_1"], "detail": "zero has no inverse"}]
    assert 'foldback_pass_refused_total{pass="rules",reason="rules"} 1' in service.get("/metrics").body.decode()


def test_command_line(service, tmp_path):
    foldback = CommandLine(tmp_path, "--data", tmp_path / "data")
    foldback.put("rule.json", DOUBLE), foldback.put("next.json", TRIPLE), foldback.put("graph.json", graph(2, 3))
    made = foldback("transformation", "put", "rule.json").json()
    assert (made["name"], made["version"]) == ("DoubleTheDoubles", 1)
    assert foldback("transformation", "put", "next.json").json()["version"] == 2
    assert [one["version"] for one in foldback("transformation", "ls").json()["items"]] == [2]
    assert [one["version"] for one in foldback("transformation", "ls", "DoubleTheDoubles").json()["items"]] == [2, 1]
    assert foldback("transformation", "show", "DoubleTheDoubles:1").json() == made
    run = foldback("optimize", "graph.json", "--pass", "DoubleTheDoubles").json()
    assert run["passes"][0]["version"] == 2
    shown = foldback.on_terminal("transformation", "show", "DoubleTheDoubles")
    assert shown.out.count("\n") > 20  # lines are lines
    assert shown.status == 0 and "DoubleTheDoubles" in shown.out and '"pattern"' in shown.out
    foldback.put("wrong.json", changed(DOUBLE, pattern=[]))
    wrong = foldback("transformation", "put", "wrong.json")
    assert wrong.status == 1 and "/pattern" in wrong.err
    assert foldback("transformation", "remove").status == 2
    assert foldback("transformation", "show").status == 2
    assert foldback("transformation", "show", "Nothing").status == 1
