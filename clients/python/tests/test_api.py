"""The rest of the API, in both clients; what is sent again; what a notebook shows."""

import asyncio
import copy
import inspect
import json
import pathlib
import pickle

import httpx
import pytest
import torch
from safetensors.torch import load_file
from test_client import relu

import foldback
from foldback import AsyncClient, Client
from foldback.service import Service

ROOT = pathlib.Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests/fixtures"
TOY = json.loads((FIXTURES / "toy/graph.json").read_text())
PASSES = ["ChangeTrueDivToMulByInverse"]


def test_models_from_the_first_version_to_a_rollback(client):
    run = client.optimize(relu(), ["EliminateDeadCode"], note="first")
    for version in ("v1", "v2"):
        client.put_version("ranker", version, run=run["id"], note=version)
    assert [row["version"] for row in client.versions("ranker")] == ["v2", "v1"]
    assert client.version("ranker", "v1")["graph"] == run["result"] == client.put_graph(client.graph(run["result"]))
    client.deploy("ranker", "production", "v1", who="ann")
    etag = client.alias("ranker", "production")["etag"]
    client.deploy("ranker", "production", "v2", who="ann", why="faster", if_match=etag)
    with pytest.raises(foldback.Problem) as caught:
        client.deploy("ranker", "production", "v1", if_match=etag)
    assert caught.value.status == 412
    client.rollback_alias("ranker", "production", who="bob")
    assert client.alias("ranker", "production")["version"] == "v1"
    assert [row["action"] for row in client.history("ranker", "production")] == ["rollback", "deploy", "create"]
    events = client.alias_events(model="ranker", since=0)
    assert [next(events)["to"] for _ in range(3)] == ["v1", "v2", "v1"]
    assert client.alias_graph("ranker", "production")["format"] == "foldback.graph/1"
    assert [row["alias"] for row in client.aliases("ranker")] == ["production"] and client.model("ranker")
    client.delete_alias("ranker", "production")
    client.delete_version("ranker", "v2")
    assert "ranker" in [row["name"] for row in client.models()]


def test_an_alias_that_is_not_there(client):
    run = client.optimize(relu(), ["EliminateDeadCode"])
    client.put_version("lonely", "v1", run=run["id"])
    for act in (client.rollback_alias, client.delete_alias):
        for model in ("lonely", "nobody"):
            with pytest.raises(foldback.Problem) as caught:
                act(model, "production")
            assert caught.value.status == 404
    client.deploy("lonely", "production", "v1")
    with pytest.raises(foldback.Problem) as caught:
        client.rollback_alias("lonely", "production", if_match='"0"')
    assert caught.value.status == 412


def test_runs_graphs_and_what_they_hold(client):
    document = TOY | {"name": "looked-up"}
    run = client.optimize(document, ["MergeLinears"])
    assert [row["id"] for row in client.runs(source=run["source"])] == [run["id"]]
    assert run["source"] in [row["id"] for row in client.graphs(name="looked-up")]
    assert [row["name"] for row in client.nodes(run["source"])] == [row["name"] for row in document["nodes"]]
    assert {row["name"] for row in client.tensors(run["source"])} == {row["name"] for row in document["tensors"]}
    assert client.lineage(run["source"])
    client.pin(run["id"], "kept")
    assert client.pinned(run["id"])["note"] == "kept"
    client.unpin(run["id"])
    undone = client.reverse_graph(run["result"])
    assert undone["result"] == run["source"]
    assert client.gc(dry_run=True) and list(client.blobs()) is not None and list(client.jobs()) is not None
    assert client.pass_("MergeLinears")["name"] == "MergeLinears" and client.passes()["presets"]
    assert list(client.rules()) == [] and list(client.audit(who="nobody at all")) == []


def test_an_archive_and_back(client, tmp_path):
    file = FIXTURES / "archives/mlp.pt2"
    graph = client.put_archive(file, progress=False)
    assert client.put_archive(client.upload(file, progress=False)) == graph
    run = client.optimize(graph, ["MergeLinears"])
    assert client.archive(client.rollback(run)["result"], tmp_path / "back.pt2").read_bytes() == file.read_bytes()
    undone = client.rollback(run)
    for at, given in enumerate((undone, undone["id"])):
        assert client.archive(given, tmp_path / f"run{at}.pt2", progress=False).read_bytes() == file.read_bytes()
    with pytest.raises(foldback.Problem) as caught:
        client.archive(client.put_graph(relu()), tmp_path / "none.pt2")
    assert caught.value.code == "no-archive" and not (tmp_path / "none.pt2").exists()
    with pytest.raises(TypeError, match="a program of torch.export, not dict"):
        client.put_archive({})


def test_an_onnx_model_and_back(client, tmp_path):
    """With the files beside it, which may not lead out of its folder."""
    models, given = FIXTURES / "onnx", tmp_path / "given"
    (given / "weights").mkdir(parents=True)
    for name in ("two.data", "weights/one.bin"):
        (given / name).write_bytes((models / name).read_bytes())
    (given / "m.onnx").write_bytes((models / "external-two-files.onnx").read_bytes())
    graph = client.put_onnx(given / "m.onnx", progress=False)
    assert client.put_onnx(str(given / "m.onnx")) == graph
    assert client.archive(graph, tmp_path / "back.onnx").read_bytes() == (given / "m.onnx").read_bytes()
    assert client.put_onnx(models / "functions.onnx", progress=False)
    (given / "two.data").rename(tmp_path / "blob")
    with pytest.raises(FileNotFoundError, match=r"two\.data is not beside"):
        client.put_onnx(given / "m.onnx", progress=False)
    assert client.put_onnx(given / "m.onnx", absent=True, progress=False) != graph
    (given / "two.data").symlink_to("../blob")
    with pytest.raises(ValueError, match="leads out of"):
        client.put_onnx(given / "m.onnx", progress=False)
    assert client.put_onnx(given / "m.onnx", root=tmp_path, progress=False) == graph
    (tmp_path / "bad.onnx").write_bytes(b"hello")
    with pytest.raises(foldback.Problem) as caught:
        client.put_onnx(tmp_path / "bad.onnx", progress=False)
    assert caught.value.code == "bad-onnx"


def deploy_an_archive(client):
    """As a version, and an optimised program as another, which an alias names."""
    graph = client.put_archive(FIXTURES / "archives/mlp.pt2", progress=False)
    client.put_version("archived", "v1", graph=graph)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.ReLU()).eval()
    program = client.put_archive(torch.export.export(model, (torch.randn(2, 4),)), progress=False)
    run = client.optimize(program, ["inference"])
    assert run["result"] != program
    client.put_version("archived", "v2", run=run["id"])
    client.deploy("archived", "production", "v1")
    client.deploy("archived", "production", "v2")
    return run["result"]


def test_archives_of_versions_and_of_what_is_deployed(client, service, tmp_path):
    old = (FIXTURES / "archives/mlp.pt2").read_bytes()
    new = client.archive(deploy_an_archive(client), tmp_path / "new.pt2", progress=False).read_bytes()
    assert new != old
    assert client.version_archive("archived", "v1", tmp_path / "v1.pt2", progress=False).read_bytes() == old
    assert client.version_archive("archived", "v2", tmp_path / "v2.pt2", progress=False).read_bytes() == new
    assert client.alias_archive("archived", "production", tmp_path / "deployed.pt2", progress=False).read_bytes() == new
    client.rollback_alias("archived", "production")

    async def fetch():
        async with AsyncClient(service.url) as waiting:
            await waiting.alias_archive("archived", "production", tmp_path / "back.pt2", progress=False)
            await waiting.version_archive("archived", "v2", tmp_path / "again.pt2", progress=False)

    asyncio.run(fetch())
    assert (tmp_path / "back.pt2").read_bytes() == old and (tmp_path / "again.pt2").read_bytes() == new
    with pytest.raises(foldback.Problem) as caught:
        client.version_archive("archived", "v3", tmp_path / "none.pt2", progress=False)
    assert caught.value.status == 404 and not (tmp_path / "none.pt2").exists()


def test_a_program_as_an_archive(client, tmp_path):
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.ReLU()).eval(), torch.randn(2, 4)
    graph = client.put_archive(torch.export.export(model, (x,)), progress=False)
    run = client.optimize(graph, ["inference"])
    for stored in (graph, run["result"]):
        loaded = torch.export.load(client.archive(stored, tmp_path / "program.pt2", progress=False))
        torch.testing.assert_close(loaded.module()(x), model(x))


def test_a_checkpoint_and_layouts(client, tmp_path):
    file = FIXTURES / "aten-llama/weights.safetensors"
    graph = client.checkpoint(file, name="llama", progress=False)
    assert graph in [row["id"] for row in client.graphs(name="llama")]
    run = client.optimize(graph, ["qkv-fused"])
    assert run["passes"][0]["applied"] == 2
    client.weights(run["result"], tmp_path / "fused.safetensors", progress=False)
    client.weights(client.reverse(run)["result"], tmp_path / "back.safetensors", progress=False)
    fused, back, before = (load_file(name) for name in (tmp_path / "fused.safetensors", tmp_path / "back.safetensors", file))
    assert fused.keys() != before.keys() == back.keys() and all(torch.equal(back[key], before[key]) for key in before)
    own = client.layout("qkv-fused")["layout"] | {"name": "mine"}
    assert client.put_layout(own)["version"] == client.layout("mine", 1)["version"] == 1
    assert [row["version"] for row in client.layout_versions("mine")] == [1]
    assert {"mine", "qkv-fused"} <= {row["name"] for row in client.layouts()}


def test_lists_of_many_pages(client):
    for number in range(3):
        client.put_graph(relu() | {"name": f"page-{number}"})
    asked = list(client._pages("/v1/graphs", {"limit": "1"}))
    assert len(asked) == len({row["id"] for row in asked}) == len(list(client.graphs())) >= 3


def test_a_run_shows_itself(client):
    run = client.optimize(TOY, ["inference", "MergeLinears"])
    shown = foldback.Run(run | {"passes": [*run["passes"], {"name": "<b>", "applied": 2, "refused": []}]})._repr_html_()
    assert run["id"] in shown and "<td>MergeLinears</td>" in shown and "inference + MergeLinears, nodes" in shown
    assert f"nodes {run['nodes']['before']} → {run['nodes']['after']}" in shown
    idle = sum(not one["applied"] and not one["refused"] for one in run["passes"])
    assert idle and f"{idle} passes changed nothing" in shown and "<td>FoldPad</td>" not in shown
    assert "&lt;b&gt;" in shown and "<b>" not in shown
    assert isinstance(run, foldback.Run) and isinstance(client.run(run), foldback.Run)


def test_a_graph_and_a_version_show_themselves(client):
    graph = client.graph(client.put_graph(TOY | {"name": "<shown>"}))
    shown = graph._repr_html_()
    assert f"{len(TOY['nodes'])} nodes" in shown and "&lt;shown&gt;" in shown and "<td>call_module</td>" in shown
    many = foldback.Graph(TOY | {"nodes": TOY["nodes"] * 50})._repr_html_()
    assert "the first 50 nodes" in many and many.count("<tr>") == 51
    version = client.put_version("shown", "v1", graph=TOY, note="a <b> note")
    assert version == client.version("shown", "v1") == next(client.versions("shown"))
    for one in (version, client.version("shown", "v1"), next(client.versions("shown"))):
        assert (isinstance(one, foldback.Version) and "a &lt;b&gt; note" in one._repr_html_()
                and version["graph"] in one._repr_html_())
    client.deploy("shown", "production", "v1")
    assert client.alias_graph("shown", "production")._repr_html_() == client.graph(version["graph"])._repr_html_()


def test_notebooks_see_pictures(client):
    """Of what the service stores; without it, and of copies, the table alone."""
    run = client.optimize(TOY, PASSES)
    graph = client.graph(run["source"])
    for one, svg in ((run, client.picture(run)), (client.run(run["id"]), client.picture(run["id"])),
                     (graph, client.picture(run["source"]))):
        assert svg.startswith("<svg ") and str(svg) in svg._repr_html_()
        assert str(svg) in one._repr_html_() and "<table>" in one._repr_html_()
        for copied in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert (copied == one and type(copied) is type(one) and "<svg" not in copied._repr_html_()
                    and "<table>" in copied._repr_html_())
    both = client.picture(run["result"], base=run["source"])
    assert "class=\"box node" in both and both != client.picture(run["result"])
    gone = foldback.Client("http://127.0.0.1:1")
    run.draw = lambda: gone.picture(run["id"])
    assert "<svg" not in run._repr_html_() and "<table>" in run._repr_html_()
    with pytest.raises(foldback.Problem, match="nobody"):
        client.picture(run["source"], at="nobody")


def test_an_archive_of_a_run_without_a_result(client, tmp_path):
    for run in ({"id": "run_1"}, foldback.Run(id="run_1", result=None)):
        with pytest.raises(ValueError, match="run run_1 has no result"):
            client.archive(run, tmp_path / "none.pt2")


# ---- at once ----------------------------------------------------------------------------------------------------------------


def test_the_other_client_has_every_method():
    of_client = {name for name, item in inspect.getmembers(Client, callable) if not name.startswith("_")}
    assert of_client <= {name for name, item in inspect.getmembers(AsyncClient, callable)}


def test_many_at_once(service):
    async def go():
        async with AsyncClient(service.url) as client:
            runs = await asyncio.gather(*(client.optimize(relu() | {"name": f"at-once-{n}"}, PASSES) for n in range(20)))
            assert len({run["id"] for run in runs}) == 20
            listed = [row["id"] async for row in client.runs(kind="optimize")]
            assert {run["id"] for run in runs} <= set(listed)
            job = await client.optimize_many([run["source"] for run in runs[:3]], PASSES)
            assert len((await client.wait(job, 60))["items"]) == 3
            assert [event.kind async for event in client.events(job)][-1] == "succeeded"
            with pytest.raises(foldback.Problem):
                await client.run("run_01M7XTSAAT7GE5FHQDV5WCKM9T")

    asyncio.run(go())


# ---- what is sent again -----------------------------------------------------------------------------------------------------


def answering(answers, monkeypatch):
    """A service that gives these answers, one after the other, and the requests that it got."""
    seen, left = [], list(answers)

    def handle(request):
        seen.append(request)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("foldback.service.time.sleep", lambda seconds: None)
    return Service("http://service", httpx.Client(transport=httpx.MockTransport(handle))), seen


def busy(status=503, **headers):
    return httpx.Response(status, headers=headers, json={"code": "overloaded"})


def test_a_busy_service_and_a_broken_connection(monkeypatch):
    done = httpx.Response(201, json={"id": "run_1"})
    later = {"Retry-After": "1"}
    service, seen = answering([busy(**later), httpx.ReadError("broken"), busy(429, **later), done], monkeypatch)
    assert service.json("POST", "/v1/optimize", {"a": 1}) == {"id": "run_1"}
    keys = {request.headers["Idempotency-Key"] for request in seen}
    assert len(seen) == 4 and len(keys) == 1 and all(json.loads(request.content) == {"a": 1} for request in seen)


def test_a_request_in_progress_is_waited_for(monkeypatch):
    """Its connection broke, and the service is still at it; or the replica that had it was killed."""
    running = httpx.Response(409, headers={"Retry-After": "1"}, json={"code": "request-in-progress"})
    done = httpx.Response(201, json={"id": "run_1"})
    service, seen = answering([httpx.ReadError("broken"), *[running] * 20, busy(**{"Retry-After": "1"}), done], monkeypatch)
    assert service.json("POST", "/v1/optimize", {"a": 1}) == {"id": "run_1"}
    assert len(seen) == 23 and len({request.headers["Idempotency-Key"] for request in seen}) == 1
    service, seen = answering([running] * 100, monkeypatch)
    with pytest.raises(foldback.Problem, match="request-in-progress"):
        service.json("POST", "/v1/optimize", {})
    assert 60 <= len(seen) <= 65
    unfinished = httpx.Response(409, headers={"Retry-After": "1"}, json={"code": "job-not-finished"})
    service, seen = answering([unfinished], monkeypatch)
    with pytest.raises(foldback.Problem):
        service.json("GET", "/v1/jobs/job_1/result")
    assert len(seen) == 1


def test_what_is_not_sent_again(monkeypatch):
    service, seen = answering([busy()], monkeypatch)  # a deadline: the same request would take as long
    with pytest.raises(foldback.Problem):
        service.json("POST", "/v1/optimize", {})
    service, seen = answering([httpx.ReadError("broken")], monkeypatch)  # it may have made the token
    with pytest.raises(httpx.ReadError):
        service.json("POST", "/v1/tokens", {"scope": "read"})
    assert len(seen) == 1 and "Idempotency-Key" not in seen[0].headers
    service, seen = answering([busy(**{"Retry-After": "1"})] * 9, monkeypatch)
    with pytest.raises(foldback.Problem):
        service.json("GET", "/v1/runs")
    assert len(seen) == 4
