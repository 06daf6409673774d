"""Retention: old runs go, and the graphs that only they needed; never what a pin, a version, an alias or its history, an answer
that may be repeated, or another run that stays needs."""

import json
import threading
import time

import jobs
import pytest
from blobs import collect, graph_of, is_here, some_bytes, stored, wait_until
from documents import COMPOSED, branches, counts, every_item
from full_store import deploy, fill, is_clean, made, undo
from test_http import is_problem
from test_runs import optimize

NONE = {"keep_runs_days": None, "keep_runs": None}


def retain(service, dry_run=False, **limits):
    answer = service.post("/v1/gc", {"dry_run": dry_run, "grace_seconds": 3600, **limits})
    assert answer.status == 200, answer
    return answer.json()


def age(service, days, where="1 = 1"):
    """Makes the runs older, behind the service's back."""
    service.stop()
    service.sql(f"UPDATE runs SET created = created - {days * 86400000} WHERE {where}")
    service.sql("DELETE FROM answers")  # they are forgotten after a day
    service.start()


def run(service, name, source=None):
    return optimize(service, source or branches(3, name), COMPOSED)


def is_kept(service, one):
    status = service.get(f"/v1/runs/{one['id']}").status
    assert status in (200, 404)
    return status == 200


def has_graph(service, identity):
    return service.get(f"/v1/graphs/{identity}").status == 200


def test_nothing_goes_unless_asked(service):
    one = run(service, "a")
    age(service, 4000)
    answer = retain(service)
    assert (answer["keep_runs_days"], answer["keep_runs"], answer["runs"], answer["graphs"]) == (None, None, 0, 0)
    assert answer["kept_runs"] == 1 and answer["run_ids"] == [] and is_kept(service, one)


def test_age(service):
    old = [run(service, f"old {i}") for i in range(3)]
    age(service, 11)
    young = run(service, "young")
    assert retain(service, keep_runs_days=12)["runs"] == 0
    dry = retain(service, dry_run=True, keep_runs_days=10)
    assert (dry["runs"], dry["graphs"], dry["kept_runs"], dry["keep_runs_days"]) == (3, 6, 1, 10)
    assert dry["run_ids"] == [one["id"] for one in reversed(old)] and all(is_kept(service, one) for one in old)
    done = retain(service, keep_runs_days=10)
    assert {**done, "dry_run": True} == dry
    assert not any(is_kept(service, one) for one in old) and is_kept(service, young)
    assert not any(has_graph(service, one[end]) for one in old for end in ("source", "result"))
    assert has_graph(service, young["source"]) and has_graph(service, young["result"])
    assert counts(service) == (2, 1)
    assert retain(service, keep_runs_days=10)["runs"] == 0
    audit = service.get("/v1/audit", raw_query={"action": "retention"}).json()["items"]
    assert [(one["object"], one["outcome"]) for one in audit] == [("runs", "3 runs, 6 graphs")]
    assert optimize(service, branches(3, "old 0"), COMPOSED)["result"] == old[0]["result"]  # and can come again
    service.stop()
    is_clean(service.data)


def test_count(service):
    runs = [run(service, f"{i}") for i in range(80)]  # more than go at once
    age(service, 1)
    assert retain(service, keep_runs=1000)["runs"] == 0
    assert retain(service, keep_runs=5, keep_runs_days=100)["runs"] == 75
    assert [is_kept(service, one) for one in runs] == [False] * 75 + [True] * 5
    assert counts(service) == (10, 5)


def test_pins(service):
    one, other = run(service, "one"), run(service, "other")
    back = undo(service, one, "rollback")
    pin = f"/v1/runs/{back['id']}/pin"
    is_problem(service.get(pin), 404, "not-pinned")
    is_problem(service.delete(pin), 404, "not-pinned")
    answer = service.request("PUT", pin, {"note": "the audit"})
    assert answer.status == 201 and answer.json()["run"] == back["id"] and answer.json()["note"] == "the audit"
    assert service.get(pin).json() == answer.json()
    changed = service.request("PUT", pin)
    assert changed.status == 200 and changed.json() == {"run": back["id"], "created": answer.json()["created"]}
    for method in ("GET", "PUT", "DELETE"):
        is_problem(service.request(method, "/v1/runs/run_" + "0" * 26 + "/pin"), 404, "unknown-run")
    age(service, 100)
    assert retain(service, keep_runs_days=1)["run_ids"] == [other["id"]]
    assert is_kept(service, one) and is_kept(service, back)  # what it undid, too
    undo(service, one, "rollback")
    assert service.delete(pin).status == 204
    age(service, 100)
    assert retain(service, keep_runs_days=1)["kept_runs"] == 0 and counts(service) == (0, 0)
    actions = [one["action"] for one in service.get("/v1/audit").json()["items"]]
    assert actions.count("pin") == 2 and actions.count("unpin") == 1


def test_what_is_deployed_can_be_rolled_back(service):
    """What a version was made from stays, as far back as passes can be taken out of it, and so does what an alias had."""
    first = optimize(service, branches(3, "deployed"), ["MergeLinears"])
    second = optimize(service, first["result"], ["ChangeTrueDivToMulByInverse"])
    third = optimize(service, second["result"], ["FuseBiasInLinear"])
    other = run(service, "by its graph")
    loose = run(service, "loose")
    made(service.request("PUT", "/v1/models/net/versions/1", {"run": second["id"]}))
    made(service.request("PUT", "/v1/models/net/versions/2", {"graph": other["result"]}))
    deploy(service, "1")
    deploy(service, "2")
    age(service, 100)
    assert retain(service, keep_runs_days=1, keep_runs=1)["run_ids"] == [loose["id"], third["id"]]
    assert is_kept(service, first) and is_kept(service, second) and is_kept(service, other) and not is_kept(service, loose)
    left = made(service.post("/v1/models/net/aliases/production/rollback", {"passes": ["MergeLinears"]}))
    assert left["graph"] == optimize(service, other["source"], [COMPOSED[0], COMPOSED[2]])["result"]
    made(service.post("/v1/models/net/aliases/production/rollback", {"version": "1"}))
    left = made(service.post("/v1/models/net/aliases/production/rollback", {"passes": ["MergeLinears"]}))
    assert left["graph"] == optimize(service, first["source"], ["ChangeTrueDivToMulByInverse"])["result"]


def test_a_deleted_alias_keeps_its_history(service):
    one = run(service, "deployed")
    made(service.request("PUT", "/v1/models/net/versions/1", {"run": one["id"]}))
    deploy(service, "1")
    assert service.request("DELETE", "/v1/models/net/aliases/production", headers={"If-Match": "*"}).status == 204
    assert service.delete("/v1/models/net/versions/1").status == 204
    age(service, 100)
    assert retain(service, keep_runs_days=1)["runs"] == 0
    assert is_kept(service, one) and has_graph(service, one["result"]) and has_graph(service, one["source"])


def test_what_a_run_that_stays_needs(service):
    """An undo needs the run that it undid, those whose passes it left over, and the graph that these started from."""
    first = run(service, "chain")
    second = optimize(service, first["result"], ["DeepCopy", "LintAndRecompile"])
    changed = json.loads(service.get(f"/v1/graphs/{first['result']}").body)
    changed["name"] = "changed"
    merged = undo(service, first, "reverse", {"graph": changed, "passes": ["MergeLinears"]})
    partly = undo(service, first, "rollback", {"passes": ["FuseBiasInLinear"]})
    age(service, 100, f"id IN ('{first['id']}', '{second['id']}')")
    retain(service, keep_runs_days=1)
    assert all(is_kept(service, one) for one in (first, merged, partly))
    service.stop()
    answer = is_clean(service.data)
    assert answer["replayed"] == answer["runs"]
    service.start()
    age(service, 100)
    assert retain(service, keep_runs_days=1)["kept_runs"] == 0 and counts(service) == (0, 0)


def test_an_answer_that_may_be_repeated(service):
    body, headers = {"graph": branches(2), "passes": ["MergeLinears"]}, {"Idempotency-Key": "k"}
    one = made(service.post("/v1/optimize", body, headers=headers))
    other = run(service, "other")
    time.sleep(0.01)
    assert retain(service, keep_runs=1)["runs"] == 0
    third = run(service, "third")
    assert retain(service, keep_runs=1)["run_ids"] == [other["id"]]
    assert made(service.post("/v1/optimize", body, headers=headers)) == one and is_kept(service, third)


def test_what_a_job_names(new_service):
    """As long as it has not ended: the graph, the run with what it needs, the file to bind; and those that nobody names go."""
    options = ("--job-threads", "1")
    service = new_service(*options)
    first = run(service, "first")
    second = optimize(service, first["result"], ["DeepCopy", "LintAndRecompile"])
    others = [run(service, name) for name in ("a", "b", "loose")]
    digests = [stored(service, some_bytes(size)) for size in (100, 101, 102)]
    age(service, 100)
    running = jobs.begin(service, "/v1/optimize", jobs.slow_request(jobs.FOREVER))
    jobs.wait_until(service, running, "running")
    body = {"graph": others[0]["source"], "passes": ["DeepCopy"], "weights": [digests[0]]}
    waiting = [
        jobs.begin(service, "/v1/optimize", body),
        jobs.begin(service, f"/v1/runs/{second['id'].replace('_', '%5F')}/rollback"),
        jobs.begin(service, f"/v1/graphs/{others[1]['result'].replace(':', '%3a')}/materialize"),
        jobs.begin(service, "/v1/compare", {"a": others[1]["result"], "b": others[1]["result"], "inputs": digests[1]}),
    ]
    expected = [others[2]["id"], others[0]["id"]]
    assert retain(service, dry_run=True, keep_runs_days=1)["run_ids"] == expected
    answer = retain(service, keep_runs_days=1)
    assert answer["run_ids"] == expected and answer["graphs"] == 3, answer
    assert has_graph(service, others[0]["source"]) and not has_graph(service, others[0]["result"])
    assert is_kept(service, first) and is_kept(service, second) and is_kept(service, others[1])  # which made its graph
    assert collect(service)["blobs"] == 1
    assert [is_here(service, digest) for digest in digests] == [True, True, False]
    for job in [*waiting, running]:
        service.delete(f"/v1/jobs/{job['id']}")
        jobs.wait(service, job)
    assert retain(service, keep_runs_days=1)["kept_runs"] == 0
    assert not has_graph(service, others[1]["result"])
    assert collect(service, grace=3600)["blobs"] == 0 and collect(service)["blobs"] == 2  # they were needed until now
    service.stop()
    is_clean(service.data)


def test_graphs_and_blobs_that_others_need(service):
    shared = service.post("/v1/graphs", branches(3, "shared")).json()["id"]
    versioned = run(service, "versioned")
    made(service.request("PUT", "/v1/models/net/versions/1", {"graph": versioned["source"]}))
    digest = stored(service, some_bytes(100))
    weighed = run(service, "", graph_of([digest], "weighed"))
    old = run(service, "", shared)
    age(service, 100)
    young = optimize(service, shared, ["DeepCopy"])
    assert retain(service, keep_runs_days=1)["runs"] == 3
    assert has_graph(service, shared) and has_graph(service, young["result"]) and not has_graph(service, old["result"])
    assert has_graph(service, versioned["source"]) and not has_graph(service, versioned["result"])
    assert not has_graph(service, weighed["source"]) and is_here(service, digest)  # its grace period has begun
    service.post("/v1/gc", {"grace_seconds": 0})
    time.sleep(0.01)
    service.post("/v1/gc", {"grace_seconds": 0})
    assert not is_here(service, digest)
    alone = service.post("/v1/graphs", branches(4, "alone")).json()["id"]
    assert retain(service, keep_runs=1)["runs"] == 0 and has_graph(service, alone)


def test_a_store_with_everything(service):
    found = fill(service)
    age(service, 400)
    before = counts(service)[1]
    answer = retain(service, keep_runs_days=1)
    assert answer["runs"] > 0 and answer["kept_runs"] == before - answer["runs"] == counts(service)[1]
    kept = [one for one in found["runs"] if is_kept(service, one)]
    assert 0 < len(kept) < len(found["runs"])
    for one in kept:
        if one["kind"] == "optimize":
            assert undo(service, one, "rollback")["result"] == one["source"]
    assert made(service.post("/v1/models/net/aliases/production/rollback"))["version"] == "1"
    service.stop()
    answer = is_clean(service.data)
    assert answer["runs"] == answer["replayed"]


@pytest.mark.long
def test_while_others_write(service):
    """Runs are made, undone, deployed and pinned while old ones go: what was answered as kept is there, nothing is left in
    half."""
    stopped, failures, kept = threading.Event(), [], []
    for i in range(100):
        run(service, f"old {i % 10}" + " " * (i // 10))
    age(service, 100)
    old = [one["id"] for one in every_item(service, "/v1/runs", limit=100)]

    def write(client):
        try:
            for i in range(20):
                one = old[(client * 20 + i) % len(old)]
                answer = service.request("PUT", f"/v1/runs/{one}/pin") if i % 2 else service.post(f"/v1/runs/{one}/rollback")
                assert answer.status in (200, 201, 404), answer
                if answer.status != 404:
                    kept.append(one)
        except Exception as failure:
            failures.append(failure)

    def sweep():
        try:
            while not stopped.is_set():
                retain(service, keep_runs_days=1)
        except Exception as failure:
            failures.append(failure)

    writers = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in [*writers, *sweepers]:
        thread.start()
    for thread in writers:
        thread.join()
    stopped.set()
    for thread in sweepers:
        thread.join()
    assert not failures, failures
    assert all(service.get(f"/v1/runs/{one}").status == 200 for one in kept)
    runs = counts(service)[1]
    service.stop()
    assert is_clean(service.data)["runs"] == runs


def test_by_itself(new_service):
    service = new_service("--gc-interval", "1", "--keep-runs-days", "2", "--keep-runs", "3")
    old = run(service, "old")
    age(service, 3)
    runs = [run(service, f"{i}") for i in range(4)]
    wait_until(lambda: not is_kept(service, old))
    wait_until(lambda: not is_kept(service, runs[0]))
    assert all(is_kept(service, one) for one in runs[1:])
    answer = service.post("/v1/gc").json()
    assert (answer["keep_runs_days"], answer["keep_runs"]) == (2, 3)
    answer = service.post("/v1/gc", {**NONE, "dry_run": True}).json()
    assert (answer["keep_runs_days"], answer["keep_runs"]) == (None, None)
    assert service.stop() == 0


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"keep_runs_days": 0}, "/keep_runs_days"),
        ({"keep_runs_days": -1}, "/keep_runs_days"),
        ({"keep_runs_days": 36501}, "/keep_runs_days"),
        ({"keep_runs_days": 1.5}, "/keep_runs_days"),
        ({"keep_runs_days": "1"}, "/keep_runs_days"),
        ({"keep_runs": 0}, "/keep_runs"),
        ({"keep_runs": 0.5}, "/keep_runs"),
        ({"keep_runs": True}, "/keep_runs"),
        ({"keep_runs": 1e10}, "/keep_runs"),
    ],
)
def test_wrongly_asked(shared, body, pointer):
    assert is_problem(shared.post("/v1/gc", body), 422, "wrong-type")["pointer"] == pointer


def test_runs_that_jobs_made(new_service):
    """They go like any other once the job has ended, and what the job says of them is clear."""
    service = new_service("--gc-interval", "0")
    graphs = [service.post("/v1/graphs", branches(2, f"{i}")).json()["id"] for i in range(6)]
    body = {"passes": ["MergeLinears"]}
    single = [jobs.begin(service, "/v1/optimize", {"graph": graph, **body}) for graph in graphs[:3]]
    done = [jobs.wait(service, job) for job in single]
    many = jobs.wait(service, service.post("/v1/jobs", {"graphs": graphs, **body}).json())
    made = [item["run"] for item in jobs.result(service, many).json()["items"]]
    last = [run(service, f"last {i}")["id"] for i in range(2)]
    answer = retain(service, keep_runs=3)
    assert (answer["runs"], answer["kept_runs"]) == (6 + 3 - 1, 3)
    assert {one["id"] for one in jobs.runs(service)} == {made[-1], *last}
    for job in done:
        found = jobs.get(service, job)
        assert found["state"] == "succeeded" and found["run_removed"] is True and found["location"] == job["location"]
        is_problem(jobs.result(service, job), 410, "run-removed")
        is_problem(service.get(job["location"]), 404, "unknown-run")
    items = jobs.result(service, many).json()["items"]
    assert [item["run"] for item in items] == made and [item.get("removed", False) for item in items] == [True] * 5 + [False]
    assert "run_removed" not in jobs.get(service, many)
    service.restart()
    is_problem(jobs.result(service, done[0]), 410, "run-removed")
    service.stop()
    is_clean(service.data)


def test_runs_of_a_job_that_has_not_ended_stay(new_service):
    service = new_service("--gc-interval", "0")
    graphs = [service.post("/v1/graphs", graph).json()["id"] for graph in (branches(2, "first"), jobs.slow_graph(jobs.FOREVER))]
    body = {"graphs": graphs, "passes": ["ChangeTrueDivToMulByInverse"], "options": {"validate": "graph"}}
    job = service.post("/v1/jobs", body).json()
    wait_until(lambda: jobs.runs(service))
    of_job = jobs.runs(service)[0]["id"]
    run(service, "newer")
    assert retain(service, keep_runs=1)["runs"] == 0
    service.delete(f"/v1/jobs/{job['id']}")
    cancelled = jobs.wait(service, job)
    assert cancelled["state"] == "cancelled" and jobs.result(service, job).json()["items"][0]["run"] == of_job
    assert retain(service, keep_runs=1)["run_ids"] == [of_job]
