"""A graph whose weights no pass has changed gives the very file that it was bound to, whatever the file looks like."""

import json

import pytest
import weights_files as files
from test_weights import bind, document_of, download, one_linear, optimize, undo

A = ("float32", [2], b"12345678")
B = ("float32", [2], b"abcdefgh")
DEAD = {"path": "dead", "type": "torch.nn.Linear", "config": {"in_features": 1, "out_features": 2, "bias": False},
        "parameters": {"weight": "dead.weight"}}


def tied():
    """p0 and p2 are one tensor, p1 is another."""
    graph = one_linear(["p0", "p1"])
    graph["modules"][0]["parameters"]["p2"] = "p0"
    return graph


FILES = {
    "first owner": files.file_of({"p0": A, "p1": B}),
    "other owner": files.file_of({"p1": B, "p2": A}, {"format": "pt"}),
    "both": files.file_of({"p0": A, "p1": B, "p2": A}),
    "both, with a note": files.file_of({"p0": A, "p1": B, "p2": A}, {"format": "pt", "p2": "p0"}),
    "extra": files.file_of({"p0": A, "p1": B, "p3": ("int8", [3], b"xyz"), "a.b.inv_freq": ("float16", [1], b"12")}),
    "other owner, extra": files.file_of({"p2": A, "p1": B, "q": B}, {"q": "p2"}),
    "another order": files.laid_out({"p2": A, "p0": A, "p1": B}, {"b": "1", "a": "2"}, indent=1),
    "another order, extra": files.laid_out({"z": ("uint8", [1], b"!"), "p1": B, "p0": A}),
}


@pytest.mark.parametrize("label", FILES)
def test_the_file_comes_back(service, label):
    file = FILES[label]
    bound = bind(service, tied(), file)["id"]
    assert download(service, bound) == file
    made = service.post(f"/v1/graphs/{bound}/materialize").json()
    assert service.get(f"/v1/blobs/{made['blob']}").body == file
    assert made["tensors"] == len(files.tensors_of(file))
    for first, last in ((0, 0), (7, 40), (len(file) - 9, len(file) - 1)):
        part = service.get(f"/v1/graphs/{bound}/weights", headers={"Range": f"bytes={first}-{last}"})
        assert (part.status, part.body) == (206, file[first : last + 1])
    again = bind(service, document_of(service, bound), file)
    assert again["id"] == bound
    run = optimize(service, bound, "DeepCopy", "EliminateDeadCode")
    assert download(service, undo(service, run)["result"]) == file
    without_copies = files.tensors_of(download(service, bound, tied="first"))
    assert without_copies == {"p0": A, "p1": B}
    assert files.tensors_of(download(service, bound, tied="each")) == {"p0": A, "p1": B, "p2": A}


def test_bound_again(service):
    """What was left over of one file says nothing of another one."""
    trained = files.file_of({"p0": B, "p1": A, "p2": B})
    graph = bind(service, tied(), FILES["extra"])["id"]
    other = bind(service, document_of(service, graph), trained)["id"]
    assert other == bind(service, tied(), trained)["id"]
    assert download(service, other) == trained
    back = bind(service, document_of(service, other), FILES["extra"])["id"]
    assert download(service, back) == FILES["extra"]


def test_shards(service):
    """One file is made of several, with the names that they have."""
    bound = bind(service, tied(), files.file_of({"p0": A}), files.file_of({"p1": B, "p2": A}))["id"]
    assert download(service, bound) == files.file_of({"p0": A, "p1": B, "p2": A})
    bound = bind(service, tied(), files.file_of({"p1": B}), files.file_of({"p2": A}))["id"]
    assert download(service, bound) == files.file_of({"p1": B, "p2": A})


def test_what_a_pass_removed_is_not_extra(service):
    """Two graphs of one file: in one of them the tensor was extra, from the other a pass took it away."""
    file = files.file_of({"p0": A, "p1": B, "dead.weight": ("float32", [2, 1], b"deadDEAD")})
    graph = tied()
    graph["modules"].append(DEAD)
    graph["tensors"].append({"name": "dead.weight", "dtype": "float32", "shape": [2, 1]})
    graph["nodes"].insert(1, {"name": "dead", "op": "call_module", "target": "dead", "args": [{"$node": "x"}]})
    bound = bind(service, graph, file)["id"]
    run = optimize(service, bound, "EliminateDeadCode")
    assert "dead.weight" not in json.dumps(document_of(service, run["result"]))
    assert files.tensors_of(download(service, run["result"])) == {"p0": A, "p1": B}
    assert download(service, undo(service, run)["result"]) == file
    extra = bind(service, tied(), file)["id"]
    assert extra != run["result"] and download(service, extra) == file


def test_a_lie_about_a_tie(service):
    """A document may say of two names that they are one tensor, whose file says otherwise: both are never given as one."""
    file = files.file_of({"p0": A, "p1": B, "p2": B})
    graph = document_of(service, bind(service, one_linear(["p0", "p1", "p2"]), file)["id"])
    graph["modules"][0]["parameters"]["p2"] = "p0"
    graph["tensors"] = [one for one in graph["tensors"] if one["name"] != "p2"]
    stored = service.post("/v1/graphs", graph).json()["id"]
    assert files.tensors_of(download(service, stored)) == {"p0": A, "p1": B}
