"""Undo with bytes: merged weights that were fine-tuned come back as their parts, and what does not fit is a conflict."""

import contextlib
import json
import math
import random
import sqlite3
import struct

import documents
import pytest
import weights_files as files
from conftest import of_a_file
from documents import branches, node, ref
from test_weights import (
    FIXTURES,
    bind,
    digest_of,
    document_of,
    download,
    optimize,
    owners,
    upload,
    weights_of,
)
from undo import META, conflicts, module

MERGED = ["aten-bert", "aten-llama", "aten-toy", "bert-tiny", "toy"]


def random_weights(graph, seed=0):
    """A file for a document whose tensors have no bytes."""
    rng = random.Random(seed)
    tensors = {}
    for one in graph["tensors"]:
        if "recipe" not in one:
            values = [rng.uniform(-1, 1) for _ in range(math.prod(one["shape"]))]
            tensors[one["name"]] = (one["dtype"], one["shape"], files.floats(values))
    return files.file_of(tensors)


def tuned(inside, paths, seed=1):
    """The tensors with other bytes at these paths."""
    rng = random.Random(seed)
    return {
        path: (dtype, shape, files.floats([rng.uniform(-9, 9) for _ in range(len(part) // 4)]) if path in paths else part)
        for path, (dtype, shape, part) in inside.items()
    }


def made_paths(graph):
    """Where the tensors are owned that a pass made."""
    of = owners(graph)
    return [of[one["name"]][0] for one in graph["tensors"] if "recipe" in one and one["name"] in of]


def reverse(service, run, graph, **more):
    return service.post(f"/v1/runs/{run['id']}/reverse", {"graph": graph, **more})


def reversed_weights(service, run, graph):
    answer = reverse(service, run, graph)
    assert answer.status == 201, answer
    return answer.json(), files.tensors_of(download(service, answer.json()["result"]))


class Tuning:
    """A source with weights, the run that merged it, and the merged file."""

    def __init__(self, service, graph, *passes, file=None):
        self.service = service
        self.file = file or random_weights(graph)
        self.source = bind(service, graph, self.file)["id"]
        self.before = files.tensors_of(download(service, self.source))
        self.run = optimize(service, self.source, *passes)
        self.merged = document_of(service, self.run["result"])
        self.inside = files.tensors_of(download(service, self.run["result"]))

    def bound(self, tensors):
        """The merged graph with the weights that a client sends back."""
        return bind(self.service, self.merged, files.file_of(tensors), strict=True)["id"]

    def conflicts(self, tensors):
        return conflicts(reverse(self.service, self.run, self.bound(tensors)))

    def back(self, tensors):
        return reversed_weights(self.service, self.run, self.bound(tensors))


# ---- fine-tuning -------------------------------------------------------------------------------------------------------------


def slices(document, path, bytes_of):
    """What a merged tensor was concatenated from, along axis 0: [(name, its bytes within)], without filler."""
    of = {paths[0]: name for name, paths in owners(document).items()}
    rows = {one["name"]: one for one in document["tensors"]}
    recipe = rows[of[path]]["recipe"]
    assert recipe["op"] == "concat" and recipe["axis"] == 0
    at, parts = 0, []
    for part in recipe["args"]:
        shape = rows[part]["shape"] if isinstance(part, str) else part["shape"]
        size = 4 * math.prod(shape)
        if isinstance(part, str):
            parts.append((part, bytes_of[at : at + size]))
        at += size
    assert at == len(bytes_of)
    return parts


def keep_filler(document, before, after):
    """What stands in a merged tensor for a bias that is not there is not trained, nor what is owned elsewhere too."""
    of = {paths[0]: name for name, paths in owners(document).items()}
    rows = {one["name"]: one for one in document["tensors"]}
    kept = dict(after)
    for path in made_paths(document):
        at, (dtype, shape, part) = 0, after[path]
        for one in rows[of[path]]["recipe"]["args"]:
            size = 4 * math.prod(rows[one]["shape"] if isinstance(one, str) else one["shape"])
            if not isinstance(one, str) or one in owners(document):
                part = part[:at] + before[path][2][at : at + size] + part[at + size :]
            at += size
        kept[path] = (dtype, shape, part)
    return kept


@pytest.mark.parametrize("name", FIXTURES)
def test_fine_tuned_fixture(shared, name):
    """Each part is its slice of the new bytes; all that was not tuned is as it was."""
    tuning = Tuning(shared, documents.document(name), "MergeLinears", file=weights_of(name))
    merged = made_paths(tuning.merged)
    assert bool(merged) == (name in MERGED)
    after = keep_filler(tuning.merged, tuning.inside, tuned(tuning.inside, merged))
    run, back = tuning.back(after)
    expected = dict(tuning.before)
    for path in merged:
        for part, now in slices(tuning.merged, path, after[path][2]):
            at = next(paths[0] for tensor, paths in owners(document_of(shared, tuning.source)).items() if tensor == part)
            expected[at] = (*expected[at][:2], now)
    assert back == expected
    assert run["exact"] is not bool(merged)
    # Once more from the start: what came back is a graph like any other.
    again = optimize(shared, run["result"], "MergeLinears")
    assert files.tensors_of(download(shared, again["result"])) == after


def test_one_of_several(shared):
    """Only one merged tensor was tuned: the other's parts keep their blob."""
    tuning = Tuning(shared, branches(3), "MergeLinears")
    after = tuned(tuning.inside, ["fc0-fc1-fc2-merged.weight"])
    run, back = tuning.back(after)
    for i in range(3):
        part = after["fc0-fc1-fc2-merged.weight"][2][64 * i : 64 * i + 64]
        assert back[f"fc{i}.weight"] == ("float32", [4, 4], part)
        assert back[f"fc{i}.bias"] == tuning.before[f"fc{i}.bias"]
    rows = {one["name"]: one for one in document_of(shared, run["result"])["tensors"]}
    assert rows["fc1.bias"]["blob"] == digest_of(tuning.file)
    assert "blob" not in rows["fc1.weight"]


def test_two_passes(shared):
    """Through the column of a fused bias, too."""
    tuning = Tuning(shared, branches(2), "MergeLinears", "FuseBiasInLinear")
    path = "fc0-fc1-merged.weight"
    assert tuning.inside[path][1] == [8, 5]
    after = tuned(tuning.inside, [path])
    _, back = tuning.back(after)
    rows = [after[path][2][20 * i : 20 * i + 20] for i in range(8)]
    for i in range(2):
        own = rows[4 * i : 4 * i + 4]
        assert back[f"fc{i}.weight"][2] == b"".join(row[:16] for row in own)
        assert back[f"fc{i}.bias"][2] == b"".join(row[16:] for row in own)


def test_only_the_last_pass(shared):
    tuning = Tuning(shared, branches(2), "MergeLinears", "FuseBiasInLinear")
    after = tuned(tuning.inside, ["fc0-fc1-merged.weight"])
    answer = reverse(shared, tuning.run, tuning.bound(after), passes=["FuseBiasInLinear"])
    back = files.tensors_of(download(shared, answer.json()["result"]))
    rows = [after["fc0-fc1-merged.weight"][2][20 * i : 20 * i + 20] for i in range(8)]
    assert back == {
        "fc0-fc1-merged.weight": ("float32", [8, 4], b"".join(row[:16] for row in rows)),
        "fc0-fc1-merged.bias": ("float32", [8], b"".join(row[16:] for row in rows)),
    }


# ---- the same bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXTURES)
def test_same_bytes_again(shared, name):
    """A client that downloads and uploads without training has changed nothing: the undo is exact."""
    tuning = Tuning(shared, documents.document(name), "MergeLinears", file=weights_of(name))
    answer = reverse(shared, tuning.run, tuning.bound(tuning.inside))
    assert (answer.json()["result"], answer.json()["exact"]) == (tuning.source, True)
    other = files.file_of(tuning.inside, {"by": "a client"})  # the same tensors in another file
    assert bind(shared, tuning.merged, other, strict=True)["id"] == tuning.run["result"]


def test_same_bytes_by_blob(shared):
    """A client writes blob and offset itself, and takes the recipe away: the bytes tell that nothing changed."""
    tuning = Tuning(shared, branches(2), "MergeLinears")
    path = "fc0-fc1-merged.weight"
    mine = b"....." + tuning.inside[path][2]
    for part, is_same in ((mine, True), (mine[:-4] + struct.pack("<f", 5), False)):
        graph = json.loads(json.dumps(tuning.merged))
        row = next(one for one in graph["tensors"] if one["name"] == path)
        del row["recipe"]
        row |= {"blob": upload(shared, part), "offset": 5}
        graph["tensors"] = [one for one in graph["tensors"] if one["name"] not in ("fc0.weight", "fc1.weight")]
        run, back = reversed_weights(shared, tuning.run, graph)
        assert (back == tuning.before) is is_same
        assert back["fc0.weight"] == tuning.before["fc0.weight"]
        assert back["fc1.weight"][2] == part[5 + 64 :]


@of_a_file
def test_bytes_are_hashed_once(service):
    """The digests that the first undo found are remembered, also over a restart: what the table says is believed."""
    tuning = Tuning(service, branches(2), "MergeLinears")
    path = "fc0-fc1-merged.weight"
    graph = tuning.bound(tuned(tuning.inside, [path]))
    first = reverse(service, tuning.run, graph).json()
    assert not first["exact"]
    row = next(one for one in document_of(service, graph)["tensors"] if one["name"] == path)

    def table(statement, *values):
        with contextlib.closing(sqlite3.connect(service.data / "foldback.sqlite")) as database, database:
            return database.execute(statement, values).fetchall()

    service.stop()
    own = table("SELECT t.digest FROM tensor_digests t JOIN blobs b ON b.key = t.blob WHERE b.digest = ? AND offset = ?",
                row["blob"], row["offset"])
    part = files.tensors_of(download(service.start(), graph))[path][2]
    assert own == [(digest_of(part),)]
    service.stop()
    known = table("SELECT digest, offset FROM tensor_digests ORDER BY 1, 2")
    service.start()
    assert reverse(service, tuning.run, graph).json()["result"] == first["result"]
    service.stop()
    assert table("SELECT digest, offset FROM tensor_digests ORDER BY 1, 2") == known
    table("UPDATE tensor_digests SET digest = ? WHERE digest = ?", digest_of(tuning.inside[path][2]), digest_of(part))
    service.start()
    back = reverse(service, tuning.run, graph).json()
    assert back["result"] == tuning.source  # nobody looked at the bytes

# ---- conflicts ---------------------------------------------------------------------------------------------------------------


def test_tied(shared):
    """One original is owned elsewhere too, and has not changed there."""
    source = branches(2)
    source["modules"].append({"path": "again", "type": "torch.nn.Linear",
                              "config": {"in_features": 4, "out_features": 4, "bias": False},
                              "parameters": {"weight": "fc1.weight", "bias": None}})
    source["nodes"].insert(-1, node("again", "call_module", "again", [ref("truediv")], meta=META))
    source["nodes"][-1]["args"] = [ref("again")]
    tuning = Tuning(shared, source, "MergeLinears")
    path = "fc0-fc1-merged.weight"
    after = tuned(tuning.inside, [path])
    assert tuning.conflicts(after) == [("tied", "tensor", "fc1.weight")]
    # Only the part of the other one changed: nothing is torn apart.
    first = after[path][2][:64] + tuning.inside[path][2][64:]
    _, back = tuning.back(after | {path: ("float32", [8, 4], first)})
    assert back == tuning.before | {"fc0.weight": ("float32", [4, 4], first[:64])}


def test_constant_changed(shared):
    """Where one Linear has no bias zeros stand in the merged one: others there belong to nobody."""
    source = branches(2)
    source["tensors"] = [one for one in source["tensors"] if one["name"] != "fc0.bias"]
    module(source, "fc0")["config"]["bias"], module(source, "fc0")["parameters"]["bias"] = False, None
    tuning = Tuning(shared, source, "MergeLinears")
    path = "fc0-fc1-merged.bias"
    zeros, ones = (tuning.inside | {path: ("float32", [8], files.floats([x] * 4 + [5, 6, 7, 8]))} for x in (0, 1))
    _, back = tuning.back(zeros)
    assert back == tuning.before | {"fc1.bias": ("float32", [4], files.floats([5, 6, 7, 8]))}
    assert tuning.conflicts(ones) == [("constant-changed", "tensor", path)]


def test_copies_diverged(shared):
    """One weight is in both merged ones; tuned alike it comes back, tuned apart it does not."""
    source = branches(2)
    other = json.loads(json.dumps(branches(2)).replace("fc", "gc").replace('"x"', '"y"').replace("add_1", "add_2"))
    other = json.loads(json.dumps(other).replace('"truediv"', '"truediv_1"'))
    source["nodes"] = source["nodes"][:1] + other["nodes"][:1] + source["nodes"][1:-1] + other["nodes"][1:]
    source["nodes"][-1]["args"] = [{"$tuple": [ref("truediv"), ref("truediv_1")]}]
    source["modules"] += other["modules"][1:]
    source["tensors"] += [one for one in other["tensors"] if one["name"] != "gc0.weight"]
    module(source, "gc0")["parameters"]["weight"] = "fc0.weight"
    tuning = Tuning(shared, source, "MergeLinears")
    after = tuned(tuning.inside, ["fc0-fc1-merged.weight", "gc0-gc1-merged.weight"])
    assert tuning.conflicts(after) == [("copies-diverged", "tensor", "fc0.weight")]
    of_f, of_g = (after[f"{one}0-{one}1-merged.weight"][2] for one in ("fc", "gc"))
    alike = after | {"gc0-gc1-merged.weight": ("float32", [8, 4], of_f[:64] + of_g[64:])}
    _, back = tuning.back(alike)
    assert [back[name][2] for name in ("fc0.weight", "fc1.weight", "gc1.weight")] == [of_f[:64], of_f[64:], of_g[64:]]


def test_partly_moved(shared):
    """The weight was a part of a larger tensor, of which nothing else is in what was tuned."""
    source = branches(2)
    source["tensors"][0]["recipe"] = {"op": "slice", "args": ["big"], "axis": 0, "start": 0, "stop": 4}
    source["tensors"].insert(0, {"name": "big", "dtype": "float32", "shape": [6, 4]})
    tuning = Tuning(shared, source, "MergeLinears")
    assert tuning.conflicts(tuned(tuning.inside, ["fc0-fc1-merged.weight"])) == [("partly-moved", "tensor", "big")]


def test_computed(shared):
    """The weight was computed: what it is computed from cannot be found."""
    source = branches(2)
    source["tensors"][0]["recipe"] = {"op": "mul", "args": ["raw", {"op": "full", "args": [], "shape": [], "value": 0.5}]}
    source["tensors"].insert(0, {"name": "raw", "dtype": "float32", "shape": [4, 4]})
    tuning = Tuning(shared, source, "MergeLinears")
    path = "fc0-fc1-merged.weight"
    assert tuning.inside[path][2][:64] == files.floats([x / 2 for x in files.numbers(files.tensors_of(tuning.file)["raw"][2])])
    assert [code for code, _, _ in tuning.conflicts(tuned(tuning.inside, [path]))] == ["computed"]
    back, inside = tuning.back(tuning.inside)
    assert back["exact"] and inside == tuning.before


def test_a_conflict_stores_nothing(service):
    source = branches(2)
    source["tensors"][0]["recipe"] = {"op": "slice", "args": ["big"], "axis": 0, "start": 0, "stop": 4}
    source["tensors"].insert(0, {"name": "big", "dtype": "float32", "shape": [6, 4]})
    tuning = Tuning(service, source, "MergeLinears")
    graph = tuning.bound(tuned(tuning.inside, ["fc0-fc1-merged.weight"]))
    before = documents.counts(service)
    conflicts(reverse(service, tuning.run, graph))
    assert documents.counts(service) == before


def test_the_bytes_are_gone(new_service):
    """Without the blob a tensor counts as changed when what is said about it has; so it was before there were blobs."""
    service = new_service()
    graph = branches(2)
    run = optimize(service, service.post("/v1/graphs", graph).json()["id"], "MergeLinears", options={"include": ["graph"]})
    merged = run["graph"]
    row = next(one for one in merged["tensors"] if one["name"] == "fc0-fc1-merged.weight")
    del row["recipe"]
    row |= {"blob": "sha256:" + "2" * 64, "offset": 0}
    merged["tensors"] = [one for one in merged["tensors"] if one["name"] not in ("fc0.weight", "fc1.weight")]
    answer = reverse(service, run, merged)
    assert answer.status == 201, answer
    rows = {one["name"]: one for one in document_of(service, answer.json()["result"])["tensors"]}
    assert rows["fc0.weight"]["recipe"]["op"] == "slice"
