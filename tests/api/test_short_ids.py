"""The beginning of an id stands for the id if only one begins so: in paths, queries, bodies and on the command line."""

import hashlib
from urllib.parse import quote

import documents
import pytest
from cli import CommandLine

TOY = documents.FIXTURES / "toy" / "graph.json"


def spellings(whole):
    digits = whole.removeprefix("sha256:")
    return [f"sha256:{digits[:8]}", f"sha256:{digits[:12]}…", f"{digits[:12]}...", digits[:20], digits[:63], digits]


def stored(service, name="toy"):
    return service.post("/v1/graphs", documents.document(name)).json()["id"]


def test_paths_queries_and_bodies(service):
    whole = stored(service)
    stored(service, "bert-tiny")
    run = service.post("/v1/optimize", {"graph": whole, "passes": ["RemoveNoOps"]}).json()["id"]
    for short in spellings(whole):
        assert service.get(f"/v1/graphs/{quote(short)}").headers["etag"].strip('"') == whole
        assert service.get(f"/v1/graphs/{quote(short)}/code").body == service.get(f"/v1/graphs/{whole}/code").body
        assert service.post("/v1/optimize", {"graph": short, "passes": ["RemoveNoOps"]}).json()["source"] == whole
        runs = service.get("/v1/runs", raw_query=[("source", short)]).json()["items"]
        assert run in [one["id"] for one in runs]
    assert service.get(f"/v1/runs/{run[:-1]}").json()["id"] == run
    assert service.get(f"/v1/runs/{quote(run[:-2])}%E2%80%A6").json()["id"] == run


def test_what_is_too_short_or_unknown(service):
    whole = stored(service)
    for text in (whole[:14], whole[7:14], "sha256:", "sha256:" + "0" * 12, whole[:20] + "x", whole + "0", whole[:20].upper()):
        answer = service.get(f"/v1/graphs/{text}")
        assert (answer.status, answer.json()["code"]) == (404, "unknown-graph"), text


def alike(ids):
    """What all of them begin with."""
    return next(ids[0][:n] for n in range(len(ids[0]), 0, -1) if all(one.startswith(ids[0][:n]) for one in ids))


def runs_that_begin_alike(service, whole):
    """Runs of the same few seconds do: an id begins with the time."""
    for _ in range(20):
        made = [service.post("/v1/optimize", {"graph": whole, "passes": ["RemoveNoOps"]}).json()["id"] for _ in range(3)]
        if len(alike(made)) >= len("run_") + 8:
            return sorted(made)
    raise AssertionError(made)


def test_ambiguous_ones_list_candidates(service):
    whole = stored(service)
    made = runs_that_begin_alike(service, whole)
    short = alike(made)
    for path in (f"/v1/runs/{short}", f"/v1/runs?of_run={short}"):
        problem = service.get(path).json()
        assert (problem["status"], problem["code"]) == (409, "ambiguous-id") and set(made) <= set(problem["candidates"])
        assert problem["candidates"] == sorted(problem["candidates"])
    refused = service.request("PUT", "/v1/models/m/versions/v1", {"run": short})
    assert (refused.status, refused.json()["code"], refused.json()["pointer"]) == (409, "ambiguous-id", "/run")


def test_the_other_ids(service):
    """Of jobs, blobs, structures and signatures."""
    whole = stored(service)
    listed = service.get("/v1/graphs").json()["items"][0]
    assert service.get("/v1/graphs", raw_query=[("structure", listed["structure"][:20] + "…")]).json()["items"] == [listed]
    run = service.post("/v1/optimize", {"graph": whole, "passes": ["MergeLinears"]}).json()
    for signature in (run["signature"], run["passes"][0]["signature"]):
        found = service.get("/v1/runs", raw_query=[("signature", signature[:8])]).json()["items"]
        assert [one["id"] for one in found] == [run["id"]]
    signature = run["passes"][0]["signature"]
    nodes = [service.get(f"/v1/graphs/{run['result']}/nodes?signature={text}").json()
             for text in (signature, signature[:8] + "...")]
    assert nodes[0] == nodes[1] and nodes[0]["items"]
    job = service.post("/v1/jobs", {"graphs": [whole], "passes": ["RemoveNoOps"]}).json()["id"]
    assert service.get(f"/v1/jobs/{job[:-2]}").json()["id"] == job
    body = b"some bytes"
    digest = "sha256:" + hashlib.sha256(body).hexdigest()
    assert service.request("PUT", f"/v1/blobs/{digest}", body).status == 201
    assert service.get(f"/v1/blobs/{digest[:15]}").body == body
    assert service.request("PUT", f"/v1/blobs/{digest[:15]}", body).status == 422  # what is stored is named in full
    made = service.request("PUT", "/v1/models/m/versions/v1", {"graph": whole[:20]}).json()
    assert made["graph"] == whole
    assert service.request("PUT", "/v1/models/m/versions/v2", {"run": run["id"][:-1]}).json()["run"] == run["id"]


@pytest.mark.heavy
@pytest.mark.parametrize("place", ["data", "server"])
def test_commands(request, tmp_path, place):
    where = ["--data", tmp_path / "store"] if place == "data" else ["--server", request.getfixturevalue("service").url]
    foldback = CommandLine(tmp_path, *where)
    run = foldback("optimize", TOY, "--pass", "RemoveNoOps").json()
    whole = run["source"]
    for short in spellings(whole):
        assert foldback("id", short).out == whole + "\n", short
        assert foldback("code", short).out == documents.code("toy")
        assert foldback("show", short).json() == foldback("show", whole).json()
    assert foldback("show", run["id"][:-2] + "…").json()["id"] == run["id"]
    for verb in ("delete", "show", "id"):  # too short
        refused = foldback(verb, whole[:12])
        assert refused.status == 1 and f"there is no graph {whole[:12]}" in refused.err, refused
    refused = foldback("show", "run_01M")
    assert refused.status == 1 and "there is no run run_01M" in refused.err
    unknown = foldback("id", "sha256:" + "0" * 12 + "…")
    assert unknown.status == 1 and "there is no graph" in unknown.err
    name = whole[7:19]
    foldback.put(name, documents.document("bert-tiny"))
    assert foldback("id", name).out == documents.ids("bert-tiny")[0] + "\n"  # a file comes first


@pytest.mark.parametrize("place", ["data", "server"])
def test_digests_on_the_command_line(request, tmp_path, place):
    where = ["--data", tmp_path / "store"] if place == "data" else ["--server", request.getfixturevalue("service").url]
    foldback = CommandLine(tmp_path, *where)
    foldback.path("bytes").write_bytes(b"some bytes")
    digest = foldback("upload", "bytes").json()["items"][0]["digest"]
    for short in (digest[:19] + "…", digest[7:19]):
        assert foldback("download", short).out == "some bytes"
        assert foldback("missing", short).json() == {"missing": []}
        assert foldback("upload", short).status == 2
    refused = foldback("download", "sha256:" + "0" * 12)
    assert refused.status == 1 and "there is no blob" in refused.err


def test_the_command_line_lists_candidates(service, tmp_path):
    made = runs_that_begin_alike(service, stored(service))
    foldback = CommandLine(tmp_path, "--server", service.url)
    for words in (["show", alike(made)], ["code", alike(made) + "…"], ["rollback", alike(made)]):
        refused = foldback(*words)
        first, *candidates = refused.err.splitlines()
        assert refused.status == 1 and "ids begin with run_" in first, refused
        assert {line.strip() for line in candidates} >= set(made) and all(line.startswith("  run_") for line in candidates)
