"""A run keeps what was asked for: a preset is one thing in its titles, in undo and in hints. And what it did to the nodes."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
from cli import CommandLine, environment
from conftest import ROOT, binary
from documents import document
from test_http import is_problem
from test_runs import optimize

TOY = json.loads(document("toy"))
BERT = json.loads(document("bert-tiny"))


@pytest.fixture
def run(shared):
    return optimize(shared, BERT, ["inference", ["MergeLinears"]])


def passes_of(run, preset):
    return [one["name"] for one in run["passes"] if one.get("preset") == preset]


def test_requested_is_the_list_as_it_was_named(shared, run):
    assert run["requested"] == ["inference", "MergeLinears"]
    assert len(passes_of(run, "inference")) == len(run["passes"]) - 1 and passes_of(run, None) == ["MergeLinears"]
    assert shared.get(f"/v1/runs/{run['id']}").json() == run
    [listed] = [one for one in shared.get("/v1/runs?limit=1000").json()["items"] if one["id"] == run["id"]]
    assert listed["requested"] == run["requested"] and passes_of(listed, None) == ["MergeLinears"]
    latency = {"name": "latency", "params": {"tokens": 1}}
    listed = ["cleanup", {"name": "MergeLinears"}, latency]
    made = optimize(shared, TOY, listed, options={"assume": {"dtype": "float32"}})
    assert made["requested"] == ["cleanup", "MergeLinears", latency]
    assert {one.get("preset") for one in made["passes"]} == {None, "cleanup", "latency"}
    assert "requested" not in shared.post("/v1/runs", {"source": TOY, "result": BERT, "name": "mine"}).json()


def test_the_nodes_before_and_after(shared, run):
    before, after = (len(shared.get(f"/v1/graphs/{run[one]}").json()["nodes"]) for one in ("source", "result"))
    assert run["nodes"] == {"before": before, "after": after} and before > after and run["name"] == "bert-tiny"
    dry = shared.post("/v1/optimize", {"graph": TOY, "passes": ["cleanup"], "options": {"dry_run": True}}).json()
    assert dry["nodes"]["before"] == len(TOY["nodes"]) and dry["name"] == "toy"
    undone = shared.post(f"/v1/runs/{run['id']}/rollback").json()
    assert undone["nodes"] == {"before": after, "after": before} and undone["requested"] == run["requested"]
    lineage = shared.get(f"/v1/graphs/{run['source']}/lineage").json()
    assert (lineage["name"], lineage["nodes"]) == ("bert-tiny", before)
    assert lineage["bytes"] == len(shared.get(f"/v1/graphs/{run['source']}").body)


def test_the_model_of_a_run(shared, run):
    assert "model" not in run
    for version in ("v1", "v2"):
        assert shared.request("PUT", f"/v1/models/bert/versions/{version}", {"run": run["id"]}).status == 201
    listed = shared.get(f"/v1/runs?result={run['result']}").json()["items"][0]
    for found in (shared.get(f"/v1/runs/{run['id']}").json(), listed):
        assert (found["model"], found["version"]) == ("bert", "v1")


@pytest.mark.parametrize("verb", ["reverse", "rollback"])
def test_undo_takes_a_presets_name(shared, verb):
    run = optimize(shared, BERT, ["cleanup", "MergeLinears"])
    undone = shared.post(f"/v1/runs/{run['id']}/{verb}", {"passes": ["cleanup"]}).json()
    alone = optimize(shared, BERT, ["MergeLinears"])
    assert (undone["result"], undone["requested"], undone["exact"]) == (alone["result"], ["cleanup"], True)
    assert shared.post(f"/v1/runs/{run['id']}/{verb}?pass=cleanup").json()["result"] == alone["result"]
    by_position = shared.post(f"/v1/runs/{run['id']}/{verb}", {"passes": [len(run["passes"]) - 1]}).json()
    assert by_position["requested"] == ["MergeLinears"]


def test_a_deployed_presets_passes_are_taken_out(shared, run):
    assert shared.request("PUT", "/v1/models/tiny/versions/v1", {"run": run["id"]}).status == 201
    alias = "/v1/models/tiny/aliases/champion"
    assert shared.request("PUT", alias, {"version": "v1"}, headers={"If-None-Match": "*"}).status == 201
    rolled = shared.post(alias + "/rollback", {"passes": ["inference"]}).json()
    assert rolled["graph"] == optimize(shared, BERT, ["MergeLinears"])["result"]


def test_runs_are_found_by_preset(shared, run):
    assert run["id"] in [one["id"] for one in shared.get("/v1/runs?pass=inference&limit=1000").json()["items"]]
    other = optimize(shared, TOY, ["MergeLinears"])
    assert other["id"] not in [one["id"] for one in shared.get("/v1/runs?pass=inference&limit=1000").json()["items"]]


def test_an_unknown_name_lists_what_can_be_named(shared, run):
    for name in ("MergeConvolutions", "cleanup", "inferenc"):
        problem = shared.post(f"/v1/runs/{run['id']}/rollback", {"passes": [name]})
        assert is_problem(problem, 422, "unknown-pass")["passes"] == [
            "inference", *dict.fromkeys(one["name"] for one in run["passes"])]


# ---- the command line


@pytest.fixture
def local(tmp_path):
    return CommandLine(tmp_path, "--data", tmp_path / "store")


TOY_FILE = ROOT / "tests" / "fixtures" / "toy" / "graph.json"


def test_hints_name_what_is_in_the_run(local):
    run = local("optimize", TOY_FILE, "-p", "inference,MergeLinears").json()
    assert local("rollback", run["id"], "-p", "inference").status == 0
    for wrong, hint in (("MergeConvolutions", None), ("MergeLiners", "MergeLinears"), ("Inference", "inference")):
        refused = local("rollback", run["id"], "-p", wrong)
        assert refused.status == 1 and ("did you mean" in refused.err) == bool(hint), refused
        assert not hint or f"did you mean {hint}?" in refused.err
        assert "passes: inference, " in refused.err


def test_nodes_name_the_passes_that_marked_them(local):
    run = local("optimize", TOY_FILE, "-p", "inference,MergeLinears").json()
    shown = local.on_terminal("graph", "nodes", run["id"], width=120)
    assert shown.status == 0 and "PASSES" in shown.out and "SIGNATURES" not in shown.out
    [row] = [line for line in shown.out.splitlines() if re.search(r"\bc1\b", line)]
    assert row.rstrip().endswith("FuseBatchNorm"), row
    nodes = local("graph", "nodes", run["id"]).json()["items"]
    assert "passes" not in nodes[1] and nodes[1]["transformations"]  # JSON is the service's


@pytest.mark.parametrize("width", [80, 120])
def test_a_run_of_a_preset_is_short(local, width):
    shown = local.on_terminal("optimize", TOY_FILE, "-p", "inference,MergeLinears", width=width, NO_COLOR="1").out
    run = local("run", "list").json()["items"][0]
    told = [one for one in run["passes"] if one["applied"] or one["refusals"]]
    before, after = run["nodes"]["before"], run["nodes"]["after"]
    assert "passes   inference, MergeLinears\n" in shown and f"nodes    {before} → {after} ({after - before:+d})" in shown
    assert f"\n{len(run['passes']) - len(told)} passes changed nothing\n" in shown
    table = shown[shown.index("PASS "):].split("\n\n")[0].splitlines()
    assert len(table) == len(told) + 2  # headings, and the line above
    listed = local.on_terminal("run", "list", width=width, NO_COLOR="1").out
    assert "inference, MergeLinears" in " ".join(listed.split())
    assert "toy" in listed and f"{after} ({after - before:+d})" in listed
    assert max(map(len, listed.splitlines())) <= width and listed.startswith("RUN ")


def test_a_preset_on_an_onnx_model_is_short(local):
    """A preset has passes that know only PyTorch: one line counts them. Who names such a pass is told."""
    model = ROOT / "tests" / "fixtures" / "onnx" / "torchscript-resnet.onnx"
    shown = local.on_terminal("optimize", model, "-p", "inference", NO_COLOR="1").out
    run = local("run", "list").json()["items"][0]
    foreign = [one for one in local("run", "show", run["id"]).json()["passes"]
               if [refusal["reason"] for refusal in one["refused"]] == ["other-dialect"]]
    assert foreign and "other-dialect" not in shown and foreign[0]["name"] not in shown
    assert re.search(rf"\n\d+ passes changed nothing; {len(foreign)} of them know only PyTorch's operators\r?\n", shown)
    assert "other-dialect" in local.on_terminal("optimize", model, "-p", foreign[0]["name"], NO_COLOR="1").out


def test_an_undo_lists_no_refusals(local):
    """They are those of the run that it undoes."""
    run = local("optimize", TOY_FILE, "-p", "FuseBatchNorm2dInConv2d").json()
    assert "REFUSED BY" in local.on_terminal("run", "show", run["id"], NO_COLOR="1").out
    undone = local.on_terminal("rollback", run["id"], NO_COLOR="1").out
    assert "FuseBatchNorm2dInConv2d" in undone and "REFUSED BY" not in undone


def test_messages_are_broken_at_words(local):
    """On a terminal of 80 columns; whole lines elsewhere."""
    run = local("optimize", TOY_FILE, "-p", "inference,MergeLinears").json()
    words = ["rollback", run["id"], "-p", "MergeConvolutions"]
    whole = local(*words).err
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    process = subprocess.Popen([binary(), *words, *local.place], cwd=local.folder, stdin=subprocess.DEVNULL, stdout=theirs,
                               stderr=theirs, env=environment(NO_COLOR="1"))
    os.close(theirs)
    assert process.wait(60) == 1
    shown = os.read(ours, 65536).decode().replace("\r\n", "\n")
    os.close(ours)
    assert max(map(len, shown.splitlines())) <= 80 < max(map(len, whole.splitlines())) and shown.split() == whole.split()
