"""POST /v1/optimize: both forms of its body, its options, and what the answer says."""

import json
import threading

import documents
import pytest
from documents import branches, counts
from test_http import is_problem

MEMBERS = ["id", "kind", "requested", "source", "result", "name", "nodes", "signature", "exact", "reversible",
           "preserves_computation", "lint", "created", "passes"]
PASS_MEMBERS = ["name", "version", "params", "signature", "reversible", "exactness", "applied", "nodes", "refused"]


@pytest.mark.parametrize("name,passes,expected", documents.expectations())
def test_expected_code(shared, name, passes, expected):
    answer = shared.post("/v1/optimize", documents.document(name),
                         raw_query=[("pass", p) for p in passes] + [("include", "code")])
    assert answer.status == 201, answer
    run = answer.json()
    assert run["code"] == expected
    assert shared.get(f"/v1/graphs/{run['result']}/code").body.decode() == run["code"]
    assert [one["name"] for one in run["passes"]] == passes
    assert shared.post(f"/v1/runs/{run['id']}/rollback").json()["result"] == documents.ids(name)[0]


def test_answer(shared):
    answer = shared.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears", "DeepCopy"]})
    run = answer.json()
    assert answer.status == 201 and answer.headers["location"] == f"/v1/runs/{run['id']}"
    assert list(run) == MEMBERS
    assert [list(one)[: len(PASS_MEMBERS)] for one in run["passes"]] == [PASS_MEMBERS] * 2
    assert run["id"].startswith("run_") and run["kind"] == "optimize" and run["lint"] == "passed"
    assert (run["exact"], run["reversible"], run["preserves_computation"]) == (False, True, True)
    assert run["source"] != run["result"] and run["created"].endswith("Z")
    merge = run["passes"][0]
    assert (merge["name"], merge["version"], merge["params"], merge["exactness"]) == ("MergeLinears", 1, {}, "moves")
    assert merge["applied"] == 1 and len(merge["nodes"]) == 1 and merge["refused"] == []
    assert merge["signature"] == shared.get("/v1/passes/MergeLinears").json()["signature"]
    assert shared.get(answer.headers["location"]).body == answer.body


def test_refusals_are_told(shared):
    graph = branches()
    graph["modules"][2]["training"] = True
    run = shared.post("/v1/optimize", {"graph": graph, "passes": ["MergeLinears"]}).json()
    merge = run["passes"][0]
    assert merge["applied"] == 0 and run["result"] == run["source"]
    assert merge["refused"] and all(set(one) == {"reason", "nodes", "detail"} for one in merge["refused"])
    again = shared.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears", "MergeLinears"]}).json()
    assert "already-transformed" in [one["reason"] for one in again["passes"][1]["refused"]]
    metrics = shared.get("/metrics").body.decode()
    assert 'foldback_pass_applied_total{pass="MergeLinears"}' in metrics
    assert 'foldback_pass_refused_total{pass="MergeLinears",reason="already-transformed"}' in metrics


def test_every_form_does_the_same(shared):
    graph, passes = branches(3), ["MergeLinears", "FuseBiasInLinear"]
    identity = shared.post("/v1/graphs", graph).json()["id"]
    by_query = shared.post("/v1/optimize", graph, raw_query=[("pass", p) for p in passes])
    by_document = shared.post("/v1/optimize", {"graph": graph, "passes": passes})
    by_id = shared.post("/v1/optimize", {"passes": passes, "graph": identity})
    nested = shared.post("/v1/optimize", {"graph": identity, "passes": [["MergeLinears"], [[{"name": "FuseBiasInLinear"}]]]})
    backwards = {name: graph[name] for name in reversed(graph)}  # "format" comes last
    last = shared.post("/v1/optimize", backwards, raw_query=[("pass", p) for p in passes])
    answers = [by_query, by_document, by_id, nested, last]
    assert [answer.status for answer in answers] == [201] * 5, answers
    runs = [answer.json() for answer in answers]
    assert {run["source"] for run in runs} == {identity}
    assert len({run["result"] for run in runs}) == len({run["signature"] for run in runs}) == 1
    assert len({run["id"] for run in runs}) == 5


def test_include(shared):
    body = {"graph": branches(), "passes": ["MergeLinears"], "options": {"include": ["graph", "code"]}}
    run = shared.post("/v1/optimize", body).json()
    assert list(run)[-2:] == ["graph", "code"]
    stored = shared.get(f"/v1/graphs/{run['result']}").body
    assert json.dumps(run["graph"], separators=(",", ":"), ensure_ascii=False).encode() == stored
    assert run["code"] == shared.get(f"/v1/graphs/{run['result']}/code").body.decode()
    only_code = shared.post("/v1/optimize", branches(), raw_query="pass=MergeLinears&include=code").json()
    assert "code" in only_code and "graph" not in only_code
    both = shared.post("/v1/optimize", branches(), raw_query="pass=MergeLinears&include=code&include=graph").json()
    assert both["graph"] == run["graph"]
    unchanged = shared.post("/v1/optimize", {**body, "passes": ["DeepCopy"]}).json()
    assert unchanged["result"] == unchanged["source"] and unchanged["graph"]["name"] == "branches"


def test_dry_run(service):
    body = {"graph": branches(), "passes": ["MergeLinears"], "options": {"dry_run": True, "include": ["graph", "code"]}}
    dry = service.post("/v1/optimize", body)
    assert dry.status == 200 and "location" not in dry.headers
    assert dry.json()["id"] is None and dry.json()["created"] is None
    assert counts(service) == (0, 0)
    is_problem(service.get(f"/v1/graphs/{dry.json()['result']}"), 404)
    is_problem(service.get(f"/v1/graphs/{dry.json()['source']}/code"), 404)
    assert service.post("/v1/optimize", branches(), raw_query="pass=MergeLinears&dry_run").json()["id"] is None
    body["options"]["dry_run"] = False
    real = service.post("/v1/optimize", body).json()
    assert {**real, "id": None, "created": None} == dry.json()
    assert counts(service) == (2, 1)


def test_lint(shared):
    def lint(mode):
        answer = shared.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears"], "options": {"lint": mode}})
        assert answer.status == 201
        return answer.json()["lint"]

    assert [lint(mode) for mode in ("end", "each", "none")] == ["passed", "passed", "skipped"]
    assert shared.post("/v1/optimize", branches(), raw_query="pass=DeepCopy&lint=each").json()["lint"] == "passed"


def test_passes_that_only_look_say_what_they_did(shared):
    run = shared.post("/v1/optimize", {"graph": branches(), "passes": ["DeepCopy", "LintAndRecompile"]}).json()
    assert run["result"] == run["source"]
    assert all(one["detail"] and one["nodes"] == [] for one in run["passes"])


def test_note_and_labels(shared):
    labels = {f"label {i}": "ä" * i for i in range(64)}
    body = {"graph": branches(), "passes": ["DeepCopy"], "note": "é" * 10000, "labels": labels}
    run = shared.post("/v1/optimize", body).json()
    assert (run["note"], run["labels"]) == (body["note"], labels)
    assert shared.get(f"/v1/runs/{run['id']}").json()["labels"] == labels
    run = shared.post("/v1/optimize", branches(), raw_query="pass=DeepCopy&note=a+b&label=k=v=w&label=e=").json()
    assert (run["note"], run["labels"]) == ("a b", {"k": "v=w", "e": ""})


def test_numbers_with_a_point_are_integers_where_an_integer_is_meant(shared):
    one = shared.post("/v1/optimize", {"graph": branches(), "passes": [{"name": "MergeLinears", "version": 1.0}]})
    assert one.status == 201 and one.json()["passes"][0]["version"] == 1


@pytest.mark.parametrize(
    "change,code,pointer",
    [
        ({"passes": ["MergeLinears", "Nonsense"]}, "unknown-pass", "/passes/1"),
        ({"passes": [["MergeLinears", ["x"]]]}, "unknown-pass", "/passes/0/1/0"),
        ({"passes": [{"name": "Nonsense"}]}, "unknown-pass", "/passes/0/name"),
        ({"passes": [{"name": "MergeLinears", "params": {"x": 1}}]}, "unknown-parameter", "/passes/0/params/x"),
        ({"passes": [{"name": "MergeLinears", "version": 99}]}, "unknown-version", "/passes/0/"),
        ({"passes": [{"name": "MergeLinears", "colour": 1}]}, "unknown-member", "/passes/0/colour"),
        ({"passes": [7]}, "wrong-type", "/passes/0"),
        ({"passes": "MergeLinears"}, "wrong-type", "/passes"),
        ({"passes": []}, "no-passes", "/passes"),
        ({"passes": [[], [[]]]}, "no-passes", "/passes"),
        ({"passes": ["DeepCopy"] * 101}, "too-many-passes", "/passes/100"),
        ({"passes": [["inference"] * 50, ["cleanup"] * 51]}, "too-many-passes", "/passes/1/50"),
        ({"passes": None}, "wrong-type", "/passes"),
        ({"graph": 7}, "wrong-type", "/graph"),
        ({"graph": []}, "wrong-type", "/graph"),
        ({"graph": {}}, None, "/graph"),
        ({"options": []}, "wrong-type", "/options"),
        ({"options": {"colour": 1}}, "unknown-option", "/options/colour"),
        ({"options": {"lint": "maybe"}}, "unknown-option-value", "/options/lint"),
        ({"options": {"lint": True}}, "wrong-type", "/options/lint"),
        ({"options": {"include": "graph"}}, "wrong-type", "/options/include"),
        ({"options": {"include": ["graph", "moves"]}}, "unknown-option-value", "/options/include/1"),
        ({"options": {"include": [1]}}, "wrong-type", "/options/include/0"),
        ({"options": {"dry_run": "yes"}}, "wrong-type", "/options/dry_run"),
        ({"note": 1}, "wrong-type", "/note"),
        ({"note": "x" * 10001}, "note-too-long", "/note"),
        ({"labels": ["a"]}, "wrong-type", "/labels"),
        ({"labels": {"a/b": 1}}, "wrong-type", "/labels/a~1b"),
        ({"labels": {"": "x"}}, "bad-label", "/labels/"),
        ({"labels": {str(i): "x" for i in range(65)}}, "too-many-labels", "/labels"),
        ({"color": 1}, "unknown-member", "/color"),
        ({"a/b~": {"nodes": []}}, "unknown-member", "/a~1b~0"),
    ],
)
def test_bad_request(shared, change, code, pointer):
    before = counts(shared)
    problem = is_problem(shared.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears"], **change}), 422, code)
    is_vague = code is None or pointer.endswith("0/")
    assert problem["pointer"].startswith(pointer) if is_vague else problem["pointer"] == pointer, problem
    assert counts(shared) == before


@pytest.mark.parametrize("passes", [
    ["inference", "cleanup"],
    ["inference", "latency"],
    ["inference", {"name": "latency", "params": {"tokens": 1}}, ["cleanup", "FuseBiasInLinear"]],
    ["cleanup", "inference", "MergeLinears", "inference"],
    ["inference"] * 100,
])
def test_a_preset_counts_as_one_pass(shared, passes):
    """Also where more than a hundred passes, or a thousand, were run: the store reads them, and undoes them."""
    run = shared.post("/v1/optimize", {"graph": branches(), "passes": passes}).json()
    assert len(run["passes"]) > 17 and shared.post(f"/v1/runs/{run['id']}/rollback").json()["result"] == run["source"]
    last = len(run["passes"]) - 1
    partly = shared.post(f"/v1/runs/{run['id']}/rollback", {"passes": [0, last]})
    assert partly.status == 201 and shared.get(f"/v1/runs/{partly.json()['id']}").body == partly.body
    assert shared.post(f"/v1/runs/{run['id']}/reverse", {"passes": ["RemoveNoOps"]}).status in (200, 201, 409)


def test_a_default_that_is_spelled_out_is_the_same_pass(shared):
    said = [{"name": "MergeLinears", "params": {"minimum_gain": one}} for one in (1, 1.0, 2)]
    runs = [shared.post("/v1/optimize", {"graph": branches(3), "passes": [one]}).json() for one in ("MergeLinears", *said)]
    assert [run["passes"][0]["params"] for run in runs] == [{}, {}, {}, {"minimum_gain": 2}]
    signatures = [run["passes"][0]["signature"] for run in runs]
    assert signatures[0] == signatures[1] == signatures[2] != signatures[3]
    assert runs[0]["result"] == runs[1]["result"] == runs[2]["result"] and runs[0]["signature"] == runs[1]["signature"]


def test_marks_of_runs_that_are_not_in_this_store(shared):
    graph = branches(2)
    for count, said in ((0, "no node has the mark of one"), (1, "1 mark is of a run that is not in this store"),
                        (3, "3 marks are of runs that are not in this store")):
        graph["nodes"][1]["meta"] = {"transformations": [f"{number:032x}" for number in range(count)]} if count else {}
        problem = is_problem(shared.post("/v1/reverse", {"graph": graph}), 409, "unrelated-graph")
        assert said in problem["detail"]


def test_missing_members(shared):
    for body, pointer in (({"passes": ["MergeLinears"]}, "/graph"), ({"graph": branches()}, "/passes"), ({}, "/graph")):
        assert is_problem(shared.post("/v1/optimize", body), 422, "missing-member")["pointer"] == pointer
    for body in ([], "text", 7, None):
        answer = shared.post("/v1/optimize", json.dumps(body))
        is_problem(answer, 422, "wrong-type")


@pytest.mark.parametrize(
    "query,code,parameter",
    [
        ("", "no-passes", "pass"),
        ("pass=Nonsense", "unknown-pass", "pass"),
        ("pass=MergeLinears&pass=", "unknown-pass", "pass"),
        ("pass=0", "wrong-type", "pass"),
        ("pass=MergeLinears&include=moves", "unknown-option-value", "include"),
        ("pass=MergeLinears&lint=maybe", "unknown-option-value", "lint"),
        ("pass=MergeLinears&dry_run=perhaps", "wrong-type", "dry_run"),
        ("pass=MergeLinears&label=x", "bad-label", "label"),
        ("pass=MergeLinears&label=x=1&label=x=2", "bad-label", "label"),
        ("pass=MergeLinears&colour=red", "unknown-parameter", "colour"),
        ("passes=MergeLinears", "unknown-parameter", "passes"),
        ("pass=MergeLinears&note=" + "x" * 7000, None, None),
        ("pass=MergeLinears&note=x&note=y", "given-twice", "note"),
        ("pass=MergeLinears&lint=each&lint=none", "given-twice", "lint"),
    ],
)
def test_bad_query(shared, query, code, parameter):
    answer = shared.post("/v1/optimize", branches(), raw_query=query)
    if code is None:
        assert answer.status == 201
    else:
        assert is_problem(answer, 422, code)["parameter"] == parameter


def test_the_same_thing_in_body_and_query(shared):
    answer = shared.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears"]}, raw_query="pass=DeepCopy")
    assert is_problem(answer, 422, "given-twice")["pointer"] == "/passes"
    answer = shared.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears"]}, raw_query="include=code")
    assert answer.status == 201 and "code" in answer.json()


def test_unknown_graph(shared):
    for identity in ("sha256:" + "0" * 64, "x", ""):
        answer = shared.post("/v1/optimize", {"graph": identity, "passes": ["MergeLinears"]})
        assert is_problem(answer, 404, "unknown-graph")["pointer"] == "/graph"


def test_pointers_into_the_graph(shared):
    graph = branches()
    graph["nodes"][3]["args"][1] = {"$node": "nobody"}
    problem = is_problem(shared.post("/v1/optimize", {"graph": graph, "passes": ["MergeLinears"]}), 422)
    assert problem["pointer"].startswith("/graph/nodes/3/args/1") and "add_1" in problem["nodes"]
    assert problem["errors"][0]["pointer"] == problem["pointer"]
    problem = is_problem(shared.post("/v1/optimize", graph, raw_query="pass=MergeLinears"), 422)
    assert problem["pointer"].startswith("/nodes/3/args/1")


# ------------------------------------------------------------------------------------------------------ Idempotency-Key


def test_idempotency_key(service):
    body = {"graph": branches(), "passes": ["MergeLinears"], "options": {"include": ["code", "graph"]}}
    key = {"Idempotency-Key": "one"}
    first, second = service.post("/v1/optimize", body, headers=key), service.post("/v1/optimize", body, headers=key)
    assert (first.status, second.status) == (201, 201)
    assert first.body == second.body and first.headers["location"] == second.headers["location"]
    assert "idempotency-replayed" not in first.headers and second.headers["idempotency-replayed"] == "true"
    assert counts(service) == (2, 1)
    is_problem(service.post("/v1/optimize", {**body, "note": "x"}, headers=key), 422, "idempotency-key-reused")
    is_problem(service.post("/v1/optimize", body, headers=key, raw_query="label=a=b"), 422, "idempotency-key-reused")
    run = first.json()["id"]
    path = f"/v1/runs/{run}/reverse"
    back = [service.post(path, headers=key), service.post(path, headers=key)]  # another path: the key is free there
    assert back[0].body == back[1].body and back[0].status == 201
    assert service.restart().post("/v1/optimize", body, headers=key).body == first.body
    assert counts(service) == (2, 2)


def test_idempotency_key_for_graphs_and_failures(service):
    key = {"Idempotency-Key": "one"}
    first, second = [service.post("/v1/graphs", branches(), headers=key) for _ in range(2)]
    assert (first.status, second.status, second.headers["idempotency-replayed"]) == (201, 201, "true")
    assert first.body == second.body and first.headers["location"] == second.headers["location"]
    known = [service.post("/v1/graphs", branches(), headers={"Idempotency-Key": "known"}).status for _ in range(2)]
    assert known == [200, 200]
    body = {"graph": "sha256:" + "0" * 64, "passes": ["DeepCopy"]}
    for _ in range(2):  # what failed is tried again
        answer = service.post("/v1/optimize", body, headers={"Idempotency-Key": "two"})
        is_problem(answer, 404, "unknown-graph")
    for bad in ("", "a b", "x" * 256):
        is_problem(service.post("/v1/graphs", branches(), headers={"Idempotency-Key": bad}), 400, "bad-idempotency-key")


def test_one_key_many_at_once(service):
    """However many send it at the same time, it is done once."""
    body, answers = {"graph": branches(50), "passes": ["MergeLinears"]}, []
    clients = [
        threading.Thread(target=lambda: answers.append(service.post("/v1/optimize", body, headers={"Idempotency-Key": "k"})))
        for _ in range(16)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert {answer.status for answer in answers} <= {201, 409}
    for answer in answers:
        if answer.status == 409:
            assert is_problem(answer, 409, "request-in-progress") and answer.headers["retry-after"]
    assert len({answer.json()["id"] for answer in answers if answer.status == 201}) == 1
    assert counts(service) == (2, 1)
