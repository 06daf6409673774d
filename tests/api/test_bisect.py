"""POST /v1/runs/{run}/bisect: which match of which pass makes a result wrong; and passes that apply some of their matches.

FOLDBACK_BISECT_CASES planted faults are searched (10 in CI, 50 in make nightly)."""

import json
import math
import os
import random

import pytest
from documents import node, ref
from test_evaluate import graph_of, output
from test_http import is_problem

CASES = int(os.environ.get("FOLDBACK_BISECT_CASES", "10"))
WRONG = 97  # the constant for which a planted rule is wrong


def rule(name, wrong, operator="div"):
    """x / c becomes x * (1 / c), but for one c it is a tenth too small."""
    return {
        "name": name,
        "pattern": {"operator": [operator, "true_divide"], "args": ["?x", "?c"], "as": "?y"},
        "replacement": {"?y": {"operator": "mul", "args": ["?x", {"compute": f"(1 - 0.1 * 0 ** abs(?c - {wrong})) / ?c"}]}},
        "exactness": "rounds",
    }


@pytest.fixture(scope="module")
def planted(shared):
    for k in range(2):
        answer = shared.post("/v1/transformations", rule(f"Planted{k}", WRONG + k))
        assert answer.status in (200, 201), answer
    return shared


def chain(constants, start="x", prefix="d", between=()):
    """A row of divisions, each behind something that it cannot be merged over."""
    nodes, last = [], start
    for i, constant in enumerate(constants):
        nodes.append(node(f"{prefix}{i}", "call_function", "operator.truediv", [ref(last), constant]))
        last = f"{prefix}{i}"
        if i in between:
            nodes.append(node(f"{prefix}{i}_up", "call_function", "operator.mul", [ref(last), 50]))
            last = f"{prefix}{i}_up"
    return nodes, last


def optimised(service, graph, passes, **options):
    answer = service.post("/v1/optimize", {"graph": graph, "passes": passes, "options": options})
    assert answer.status in (200, 201), answer
    return answer.json()


def bisected(service, run, **more):
    answer = service.post(f"/v1/runs/{run['id']}/bisect", more)
    assert answer.status == 200, answer
    return answer.json()


def names(run, position):
    return run["passes"][position]["matches"]


THREE = graph_of(*[node(name, "call_function", "operator.truediv", [ref(read), by])
                   for name, read, by in (("a", "x", 3), ("b", "a", 5), ("c", "b", 7))], output("c"))
INVERSE = "ChangeTrueDivToMulByInverse"


def two_steps(service):
    """The rule TwoSteps: a relu becomes cos(sin)."""
    answer = service.post("/v1/transformations", {
        "name": "TwoSteps", "exactness": "changes",
        "pattern": {"operator": "relu", "args": ["?x"], "kwargs": {"inplace": {"optional": False}}, "as": "?y"},
        "replacement": {"let": [{"operator": "sin", "args": ["?x"], "as": "?s"}], "?y": {"operator": "cos", "args": ["?s"]}}})
    assert answer.status in (200, 201), answer


# ---- some matches -----------------------------------------------------------------------------------------------------------


def test_the_matches_of_a_pass_have_names(shared):
    run = optimised(shared, THREE, [INVERSE], matches=True)
    assert names(run, 0) == run["passes"][0]["nodes"] and len(names(run, 0)) == 3
    assert "matches" not in optimised(shared, THREE, [INVERSE])["passes"][0]


@pytest.mark.parametrize("choice", [{"only": ["b"]}, {"except": ["b"]}, {"only": ["a", "b"], "except": ["b"]}, {"only": []}])
def test_some_matches_alone_are_applied(shared, choice):
    kept = [name for name in choice.get("only", ["a", "b", "c"]) if name not in choice.get("except", [])]
    run = optimised(shared, THREE, [{"name": INVERSE, **choice}], matches=True)
    (one,) = run["passes"]
    assert (one["applied"], one["nodes"]) == (len(kept), kept)
    assert {key: one[key] for key in choice} == choice
    assert shared.get(f"/v1/runs/{run['id']}").json()["passes"] == run["passes"]
    targets = {one["name"]: one["target"] for one in shared.get(f"/v1/graphs/{run['result']}").json()["nodes"]}
    assert [name for name in ("a", "b", "c") if targets[name] == "operator.mul"] == kept
    for way in ("reverse", "rollback"):
        undone = shared.post(f"/v1/runs/{run['id']}/{way}")
        assert undone.status == (201 if kept else 409) or undone.json()["result"] == run["source"], undone
        if undone.status == 201:
            assert undone.json()["result"] == run["source"] and undone.json()["exact"]


def test_the_others_keep_their_names(shared):
    """New nodes are named as if no match were left out, so that the same match has one name in every part of a run."""
    two_steps(shared)
    relus = [node(f"r{i}", "call_function", "torch.relu", [ref(f"r{i - 1}" if i else "x")]) for i in range(4)]
    graph = graph_of(*relus, output("r3"))

    def made(**choice):
        run = optimised(shared, graph, [{"name": "TwoSteps", **choice}])
        nodes = shared.get(f"/v1/graphs/{run['result']}").json()["nodes"]
        return [one["name"] for one in nodes if one["name"].startswith("sin")]

    assert made() == ["sin", "sin_1", "sin_2", "sin_3"]
    run = optimised(shared, graph, ["TwoSteps"], matches=True)
    left_out = names(run, 0)[1]
    assert made(**{"except": [left_out]}) == ["sin", "sin_2", "sin_3"]
    assert made(only=[left_out]) == ["sin_1"]


def test_a_choice_behind_a_pass_that_is_undone(shared):
    """Its names must be of nodes of the source: the same names of new nodes may mean others without the first pass."""
    two_steps(shared)
    one = {"name": "CosForSin", "exactness": "changes", "pattern": {"operator": "sin", "args": ["?x"], "as": "?y"},
           "replacement": {"?y": {"operator": "cos", "args": ["?x"]}}}
    assert shared.post("/v1/transformations", one).status in (200, 201)
    graph = graph_of(node("r", "call_function", "torch.relu", [ref("x")]),
                     node("sin", "call_function", "torch.sin", [ref("r")]),
                     node("s", "call_function", "torch.sin", [ref("sin")]), output("s"))

    def rolled_back(left_out):
        passes = ["TwoSteps", {"name": "CosForSin", "except": [left_out]}]
        run = optimised(shared, graph, passes)
        return shared.post(f"/v1/runs/{run['id']}/rollback", {"passes": ["TwoSteps"]})

    result = rolled_back("s").json()["result"]
    assert result == optimised(shared, graph, [{"name": "CosForSin", "except": ["s"]}])["result"]
    is_problem(rolled_back("sin_1"), 409, "matches-renamed")


def test_a_choice_is_a_part_of_the_signature(shared):
    def signature(**choice):
        return optimised(shared, THREE, [{"name": INVERSE, **choice}])["signature"]

    choices = [{}, {"except": ["a"]}, {"only": ["a"]}, {"except": ["b"]}, {"only": []}]
    assert len({signature(**choice) for choice in choices}) == len(choices)
    assert signature() == signature(**{"except": []})


def test_choices_that_are_refused(shared):
    def refused(*passes):
        return shared.post("/v1/optimize", {"graph": THREE, "passes": list(passes)})

    problem = is_problem(refused("RemoveNoOps", {"name": INVERSE, "except": ["a", "none"]}), 422, "unknown-match")
    assert problem["pointer"] == "/passes/1/except/1"
    problem = is_problem(refused({"name": "RemoveNoOps", "only": ["a"]}), 422, "unknown-match")
    assert problem["pointer"] == "/passes/0/only/0"
    assert is_problem(refused({"name": INVERSE, "only": "a"}), 422, "wrong-type")["pointer"] == "/passes/0/only"
    assert is_problem(refused({"name": INVERSE, "only": [1]}), 422, "wrong-type")["pointer"] == "/passes/0/only/0"
    assert is_problem(refused({"name": "inference", "except": ["a"]}), 422, "unknown-member")["pointer"] == "/passes/0/except"


# ---- bisect ----------------------------------------------------------------------------------------------------------------


def test_nothing_is_found_where_nothing_is_wrong(shared):
    found = bisected(shared, optimised(shared, THREE, [INVERSE]))
    assert not found["found"] and found["match"] is None and found["matches"] == [] and found["rest"] is None
    assert found["verdict"] == "evaluated" and found["steps"] == {"passes": 0, "matches": 0, "all": 1}


def test_a_result_of_which_nothing_is_known(shared):
    graph = graph_of(node("y", "call_function", "my.own", [ref("x")], meta={"shape": [2, 3], "dtype": "float32"}),
                     node("a", "call_function", "operator.truediv", [ref("y"), 3]), output("a"))
    found = bisected(shared, optimised(shared, graph, [INVERSE]))
    assert found["verdict"] == "not-evaluated" and not found["found"]


def test_the_match_and_the_healthy_rest(planted):
    nodes, last = chain([3, 5, WRONG, 7, 9, 11, 4, 6], between=(2,))
    graph = graph_of(*nodes, output(last))
    run = optimised(planted, graph, ["RemoveNoOps", "Planted0", "DeepCopy"], matches=True)
    found = bisected(planted, run, samples=3)
    assert found["found"] and found["verdict"] == "differs" and found["is_smallest"] and found["unclear_from"] is None
    assert found["pass"] == {"name": "Planted0", "version": 1, "position": 1}
    assert found["match"] == names(run, 1)[2] and found["nodes"] == ["d2"]
    assert found["matches"] == [{"pass": found["pass"], "match": "d2", "nodes": ["d2"]}]
    assert found["steps"]["passes"] == 0 and found["steps"]["matches"] == 3
    assert found["first_node"]["name"] == "d2"
    example = found["counterexample"]
    assert example == found["outputs"][0]["counterexample"] and abs(example["b"] / example["a"] - 0.9) < 1e-3
    assert found["rest"]["verdict"] == "passes"
    rest = optimised(planted, found["rest"]["request"]["graph"], found["rest"]["request"]["passes"])
    assert rest["passes"][1]["except"] == ["d2"] and rest["passes"][1]["applied"] == 7
    answer = planted.post("/v1/compare", {"a": rest["source"], "b": rest["result"]}).json()
    assert answer["verdict"] == "evaluated"
    assert planted.post(f"/v1/runs/{rest['id']}/reverse").json()["result"] == rest["source"]


def test_one_output_and_another_graph(planted):
    nodes, last = chain([3, WRONG, 5])
    graph = graph_of(*nodes, node("other", "call_function", "torch.sin", [ref("x")]), output("other", last))
    run = optimised(planted, graph, ["Planted0"])
    assert bisected(planted, run, output=1)["match"] == "d1"
    assert not bisected(planted, run, output=0)["found"]
    found = bisected(planted, run, against=run["result"])  # the source is wrong then, and no pass
    assert not found["found"] and not found["source_differs"] and found["verdict"] == "same"
    another = graph_of(*nodes, node("other", "call_function", "torch.cos", [ref("x")]), output("other", last))
    found = bisected(planted, run, against=another)
    assert found["source_differs"] and not found["found"]


def test_a_job(planted):
    nodes, last = chain([3, WRONG, 5])
    run = optimised(planted, graph_of(*nodes, output(last)), ["Planted0"])
    answer = planted.post(f"/v1/runs/{run['id']}/bisect", {}, headers={"Prefer": "respond-async"})
    assert answer.status == 202
    job = answer.json()["id"]
    while (result := planted.get(f"/v1/jobs/{job}/result")).status == 409:
        pass
    assert result.json()["match"] == "d1"


def test_other_runs_have_no_matches(planted):
    run = optimised(planted, THREE, [INVERSE])
    undo = planted.post(f"/v1/runs/{run['id']}/reverse").json()
    is_problem(planted.post(f"/v1/runs/{undo['id']}/bisect", {}), 409, "not-an-optimize-run")
    is_problem(planted.post("/v1/runs/run_00000000000000000000000000/bisect", {}), 404, "unknown-run")
    assert is_problem(planted.post(f"/v1/runs/{run['id']}/bisect", {"output": -1}), 422, "wrong-type")["pointer"] == "/output"


# ---- planted faults --------------------------------------------------------------------------------------------------------

OTHERS = ["RemoveNoOps", "MergeViews", "EliminateDeadCode", "FoldConstants", "DeepCopy", "LintAndRecompile", "FuseActivation"]


def single(generator):
    """One wrong match at a random place, among passes and matches that are right."""
    count = generator.randint(3, 30)
    constants = [generator.choice([2, 3, 5, 7, 9, 11]) for _ in range(count)]
    at = generator.randrange(count)
    constants[at] = WRONG
    nodes, last = chain(constants, between=range(count))
    passes = generator.sample(OTHERS, generator.randint(0, len(OTHERS)))
    passes.insert(generator.randint(0, len(passes)), "Planted0")
    if generator.random() < 0.5:
        passes.append(INVERSE)
    return graph_of(*nodes, output(last)), passes, [f"d{at}"]


def pair(generator):
    """Each of two wrong matches is hidden by the other branch, and both together are not."""
    count, at = generator.randint(2, 12), generator.randint(0, 1)
    constants = [generator.choice([2, 3, 5, 7]) for _ in range(count)]
    here, there = generator.randrange(count), generator.randrange(count)
    of_two_rules = generator.random() < 0.5
    left, right = list(constants), list(constants)
    left.insert(here, WRONG)
    right.insert(there, WRONG + of_two_rules)
    a, last_a = chain(left, "size", "l", range(count + 1))
    b, last_b = chain(right, "size", "r", range(count + 1))
    nodes = [node("size", "call_function", "torch.abs", [ref("x")]), *(a + b if at else b + a)]
    scale = node("even", "call_function", "operator.mul", [ref(last_b), (WRONG + of_two_rules) / WRONG])
    most = node("most", "call_function", "torch.maximum", [ref(last_a), ref("even")])
    rules = ["Planted0", "Planted1"] if of_two_rules else ["Planted0"]
    generator.shuffle(rules)
    # The second rule finds the divisions that the first one left out, so each is asked for its own constants alone.
    passes = generator.sample(OTHERS, 2) + rules
    return graph_of(*nodes, scale, most, output("most")), passes, [f"l{here}", f"r{there}"]


@pytest.mark.parametrize("case", range(CASES))
def test_a_planted_fault_is_found(planted, case):
    generator = random.Random(1000 + case)
    is_pair = case % 5 == 4
    graph, passes, guilty = (pair if is_pair else single)(generator)
    if is_pair and "Planted1" in passes:  # each rule its own match alone, and the rest to the first of them
        first, second = [name for name in passes if name.startswith("Planted")]
        mine = {"Planted0": guilty[0], "Planted1": guilty[1]}
        passes = [{"name": name, "except": [mine[second]]} if name == first else name for name in passes]
    run = optimised(planted, graph, passes, matches=True)
    assert planted.post("/v1/compare", {"a": run["source"], "b": run["result"], "samples": 2}).json()["verdict"] == "differs"
    found = bisected(planted, run, samples=2)
    assert sorted(one["match"] for one in found["matches"]) == sorted(guilty), found
    assert found["is_smallest"] and found["match"] in guilty and found["rest"]["verdict"] == "passes"
    assert found["pass"]["name"].startswith("Planted")
    active = sum(one["applied"] > 0 for one in run["passes"])
    assert found["steps"]["passes"] <= math.ceil(math.log2(active)) if active > 1 else found["steps"]["passes"] == 0
    matches = len(names(run, found["pass"]["position"]))
    assert found["steps"]["matches"] <= math.ceil(math.log2(matches))


# ---- external passes -------------------------------------------------------------------------------------------------------


def inverted(graph, wrong):
    """A user's own pass: every division becomes a new multiplication, but one is wrong."""
    out = json.loads(json.dumps(graph))
    names = {}
    for one in out["nodes"]:
        text = json.dumps(one["args"])
        for old, new in names.items():
            text = text.replace(json.dumps(ref(old)), json.dumps(ref(new)))
        one["args"] = json.loads(text)
        if one["target"] == "operator.truediv":
            names[one["name"]] = f"{one['name']}_times"
            factor = 1 / one["args"][1]
            one.update(name=f"{one['name']}_times", target="operator.mul",
                       args=[one["args"][0], 0.9 * factor if one["args"][1] == wrong else factor])
    return out


@pytest.mark.parametrize("case", range(CASES))
def test_a_fault_of_an_external_pass_is_found(shared, case):
    generator = random.Random(2000 + case)
    count = generator.randint(2, 20)
    constants = [generator.choice([3, 5, 7, 11]) for _ in range(count)]
    at = generator.randrange(count)
    constants[at] = WRONG
    nodes, last = chain(constants, between=range(count))
    graph = graph_of(*nodes, output(last))
    answer = shared.post("/v1/runs", {"source": graph, "result": inverted(graph, WRONG), "name": "MyInverse"})
    assert answer.status == 201
    run = answer.json()
    found = bisected(shared, run, samples=2)
    assert found["found"] and found["pass"]["name"] == "MyInverse" and found["is_smallest"]
    assert found["match"] == f"d{at}_times" and set(found["nodes"]) == {f"d{at}_times", f"d{at}", f"d{at}_up"}
    assert found["steps"]["matches"] <= math.ceil(math.log2(count))
    assert found["rest"]["verdict"] == "passes"
    rest = shared.post("/v1/runs", found["rest"]["request"])
    assert rest.status == 201 and rest.json()["source"] == run["source"]
    verdict = shared.post("/v1/compare", {"a": run["source"], "b": rest.json()["result"]}).json()["verdict"]
    assert verdict == "evaluated"
    assert shared.post(f"/v1/runs/{rest.json()['id']}/reverse").json()["result"] == run["source"]
