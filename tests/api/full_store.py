"""A store with some of everything, and what must be true of it wherever it is opened: after a backup, a migration, a crash."""

import gzip
import json
import os
import shutil
import sqlite3
import subprocess

import buckets
import golden
import pytest
from blobs import INLINE, graph_of, some_bytes, stored
from conftest import Service, binary
from documents import COMPOSED, batch_norm_fold, branches, node, ref

NEWEST = 99  # schema: all that there is
MODELS, BLOBS, RULES = 2, 3, 5  # the schemas that brought them
META = {"shape": [2, 4], "dtype": "float32"}
DOUBLE = golden.RULES["DoubleTheDoubles"]


def lay_out_database(dump, data):
    """Makes the data folder whose database was dumped into a file of tests/fixtures/schemas or stores."""
    data.mkdir(mode=0o700)
    with sqlite3.connect(data / "foldback.sqlite") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(gzip.decompress(dump.read_bytes()).decode())
    connection.close()


def check(data):
    """What `foldback db check` says."""
    command = [binary(), "db", "check", "--data", data, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **buckets.CREDENTIALS})
    assert done.returncode in (0, 1) and done.stderr == "", done
    answer = json.loads(done.stdout)
    assert answer["ok"] == (done.returncode == 0) == (answer["findings"] == []) and len(answer["findings"]) == answer["total"]
    for one in answer["findings"]:
        assert set(one) == {"code", "subject", "detail", "costs", "cure"} and all(one.values()), one
    return answer


def is_clean(data):
    answer = check(data)
    assert answer["ok"], answer
    return answer


def made(answer):
    assert answer.status in (200, 201), answer
    return answer.json()


def doubled():
    nodes = [
        node("x", "placeholder", "x", meta=META),
        node("mul", "call_function", "operator.mul", [ref("x"), 2], meta=META),
        node("output", "output", "output", [ref("mul")]),
    ]
    return {"format": "foldback.graph/1", "name": "doubled", "nodes": nodes, "modules": [{"path": "", "type": "Model"}],
            "tensors": []}


def with_relu(graph):
    """The graph as somebody changed it."""
    last = graph["nodes"][-1]
    relu = node("relu", "call_function", "torch.relu", last["args"], meta=META)
    return {**graph, "nodes": [*graph["nodes"][:-1], relu, {**last, "args": [ref("relu")]}]}


def undo(service, run, how, body=None):
    return made(service.post(f"/v1/runs/{run['id']}/{how}", body or {}))


def deploy(service, version):
    answer = service.get("/v1/models/net/aliases/production")
    condition = {"If-None-Match": "*"} if answer.status == 404 else {"If-Match": "*"}
    made(service.request("PUT", "/v1/models/net/aliases/production", {"version": version}, headers=condition))


def fill(service, schema=NEWEST):
    """Runs of every kind, of one pass and several, on graphs at hand and on changed ones; models, an alias with a history,
    blobs, rules, an answer to a repeated request. What is to be found again, for `verify`."""

    def optimize(graph, *passes, **more):
        return made(service.post("/v1/optimize", {"graph": graph, "passes": list(passes), **more}))

    composed = optimize(branches(4), *COMPOSED, labels={"team": "a"}, note="x")
    folded = optimize(batch_norm_fold(), "FuseBatchNorm2dInConv2d")
    unchanged = optimize(branches(2, "plain"), "FuseBatchNorm2dInConv2d")
    runs = [composed, folded, unchanged, undo(service, folded, "rollback")]
    for passes in (["MergeLinears"], [0, 2]):
        runs += [undo(service, composed, how, {"passes": passes}) for how in ("rollback", "reverse")]
    changed = with_relu(json.loads(service.get(f"/v1/graphs/{composed['result']}").body))
    if schema >= MODELS:  # before, a graph that was changed could not be reversed
        runs.append(undo(service, composed, "reverse", {"graph": changed, "passes": ["MergeLinears"]}))
        assert runs[-1]["exact"] is False
    second = optimize(composed["result"], "FuseBiasInLinear", "DeepCopy")
    repeated = {"graph": branches(3, "again"), "passes": ["MergeLinears"]}
    once = made(service.post("/v1/optimize", repeated, headers={"Idempotency-Key": "once"}))
    found = {"runs": [*runs, second, once], "repeated": repeated, "once": once["id"], "blobs": [], "aliases": False}

    if schema >= MODELS:
        for version, run in (("1", composed), ("2", once)):
            made(service.request("PUT", f"/v1/models/net/versions/{version}", {"run": run["id"]}))
            deploy(service, version)
        found["aliases"] = True
    if schema >= BLOBS:
        found["blobs"] = [stored(service, some_bytes(size)) for size in (100, INLINE + 1)]
        found["runs"].append(optimize(graph_of(found["blobs"], "weighed"), "MergeLinears"))
    if schema >= RULES:
        made(service.post("/v1/transformations", DOUBLE))
        found["runs"].append(optimize(doubled(), "DoubleTheDoubles"))
        found["runs"].append(undo(service, found["runs"][-1], "rollback"))
    return found


def is_within(part, whole):
    """A later version's answer may have more members."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_within(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(is_within, part, whole))
    return part == whole


def verify(service, found):
    """Every run is as it was answered, and goes back to its source; the rest is there, too."""
    for run in found["runs"]:
        now = service.get(f"/v1/runs/{run['id']}").json()
        assert is_within(run, now), (run, now)
        if run["kind"] == "optimize":
            back = undo(service, run, "rollback")
            assert back["result"] == run["source"] and back["exact"] is True
    assert all(service.get(f"/v1/blobs/{digest}").status == 200 for digest in found["blobs"])
    repeated = made(service.post("/v1/optimize", found["repeated"], headers={"Idempotency-Key": "once"}))
    assert repeated["id"] == found["once"]
    if found["aliases"]:
        assert made(service.get("/v1/models/net/aliases/production"))["version"] == "2"
        assert made(service.post("/v1/models/net/aliases/production/rollback"))["version"] == "1"
        deploy(service, "2")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A data folder with some of everything, that nobody has open."""
    folder = tmp_path_factory.mktemp("filled")
    service = Service(folder / "data").start()
    found = fill(service)
    service.stop()
    return folder / "data", found


@pytest.fixture
def copy(filled, tmp_path):
    shutil.copytree(filled[0], tmp_path / "data")
    return tmp_path / "data"
