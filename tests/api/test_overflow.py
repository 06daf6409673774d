"""Weights that are computed and leave the range of their dtype: refused by the run that knows their bytes, and else by what
makes a file of them."""

import base64
import math
import struct
import subprocess
import urllib.parse

import blobs
import full_store
import golden
import pytest
import weights_files as files
from conftest import binary

FOLDS = ["FuseBatchNorm", "FuseBatchNorm1dInLinear", "FoldNormIntoLinear"]
HALF = [{"name": "ConvertPrecision", "params": {"to": "float16"}}]
CODE = "tensor-overflows"


def without_bytes(case):
    """The document of a golden case, and a file of the bytes that its tensors had."""
    document = golden.read(case)
    tensors = {row["name"]: (row["dtype"], row["shape"], base64.b64decode(row.pop("data"))) for row in document["tensors"]
               if "data" in row}
    return document, {name: tensor for name, tensor in tensors.items() if tensor[0] != "int64"}


def folded(name):
    cases = {"FoldNormIntoLinear": "float16-bias-overflows"}
    return without_bytes(f"{name}/{cases.get(name, 'float16-bias-overflows')}")


def converted(*numbers):
    document, tensors = without_bytes("ConvertPrecision/weights-too-large")
    for row in document["tensors"]:
        tensors[row["name"]] = ("float32", row["shape"], struct.pack("<f", 0.5) * math.prod(row["shape"]))
    tensors["fc.bias"] = ("float32", [2], struct.pack("<2f", *numbers))
    return document, tensors


def upload(service, tensors):
    return blobs.stored(service, files.file_of(tensors))


def store(service, document, *files_of_weights, as_="source"):
    answer = service.post("/v1/graphs", document, raw_query=[("weights", one) for one in files_of_weights] + [("as", as_)])
    assert answer.status in (200, 201), answer
    return answer.json()["id"]


def optimize(service, graph, passes, **options):
    answer = service.post("/v1/optimize", {"graph": graph, "passes": passes, "options": options})
    assert answer.status == 201, answer
    return answer.json()


def bind(service, graph, digest):
    return store(service, service.get(f"/v1/graphs/{graph}").json(), digest)


def reasons(run):
    return [refused["reason"] for one in run["passes"] for refused in one["refused"]]


def numbers(file):
    kinds = {"float16": "e", "float32": "f"}
    return {name: struct.unpack(f"<{math.prod(shape)}{kinds[dtype]}", part) for name, (dtype, shape, part)
            in files.tensors_of(file).items() if dtype in kinds}


@pytest.mark.parametrize("name", FOLDS)
def test_bound_bytes_are_known_at_the_run(shared, name):
    document, tensors = folded(name)
    run = optimize(shared, store(shared, document, upload(shared, tensors)), [name])
    assert reasons(run) == [CODE] and run["passes"][0]["applied"] == 0
    milder = {key: (dtype, shape, struct.pack("<e", 1) * (len(part) // 2)) for key, (dtype, shape, part) in tensors.items()}
    run = optimize(shared, store(shared, document, upload(shared, milder)), [name])
    assert reasons(run) == [] and run["passes"][0]["applied"] == 1


def test_a_bound_weight_that_does_not_fit_stays_float32(shared):
    document, tensors = converted(1.0, 7e4)
    run = optimize(shared, store(shared, document, upload(shared, tensors)), HALF)
    made = shared.get(f"/v1/graphs/{run['result']}/weights")
    assert reasons(run) == [CODE] and run["passes"][0]["applied"] == 1
    assert {name: dtype for name, (dtype, *_) in files.tensors_of(made.body).items()} == {
        "after.weight": "float16", "after.bias": "float16", "fc.weight": "float32", "fc.bias": "float32"}
    assert numbers(made.body)["fc.bias"] == (1.0, 7e4)


@pytest.mark.parametrize("name", [*FOLDS, "ConvertPrecision"])
def test_bytes_that_come_later(shared, tmp_path, name):
    """The run does not know them: then no way to the finished bytes gives an infinite number without a word."""
    document, tensors = folded(name) if name in FOLDS else converted(1.0, 7e4)
    run = optimize(shared, store(shared, document), [name] if name in FOLDS else HALF)
    assert reasons(run) == [] and run["passes"][0]["applied"] == 1
    bound = bind(shared, run["result"], upload(shared, tensors))
    answers = [shared.get(f"/v1/graphs/{bound}/weights"), shared.get(f"/v1/graphs/{bound}/weights", raw_query={"tied": "each"}),
               shared.post(f"/v1/graphs/{bound}/materialize"),
               shared.get(f"/v1/graphs/{bound}/weights", headers={"Range": "bytes=0-9"})]
    overflowed = {one["name"] for one in answers[0].json()["tensors"]}
    answers += [shared.get(f"/v1/graphs/{bound}/tensors/{urllib.parse.quote(one, safe='')}") for one in overflowed]
    for answer in answers:
        assert (answer.status, answer.json()["code"]) == (409, CODE)
        assert all(one["code"] == CODE for one in answer.json().get("tensors", []))
    assert shared.request("HEAD", f"/v1/graphs/{bound}/weights").status == 409
    done = subprocess.run([binary(), "weights", bound, "-o", tmp_path / "out", "--server", shared.url],
                          capture_output=True, text=True)
    assert done.returncode == 1 and CODE in done.stderr and not (tmp_path / "out").exists(), done
    # Every other tensor can be had.
    graph = shared.get(f"/v1/graphs/{bound}").json()
    others = [f"{module['path']}.{attribute}" for module in graph["modules"]
              for attribute, tensor in module["parameters"].items()
              if tensor and tensor not in overflowed]
    answer = shared.get(f"/v1/graphs/{bound}/weights", raw_query=[("names", one) for one in others])
    assert answer.status == 200 and all(map(math.isfinite, sum(numbers(answer.body).values(), ())))


def test_what_was_infinite_stays_so(shared):
    document, tensors = converted(1.0, -math.inf)
    run = optimize(shared, store(shared, document), HALF)
    answer = shared.get(f"/v1/graphs/{bind(shared, run['result'], upload(shared, tensors))}/weights")
    assert answer.status == 200 and numbers(answer.body)["fc.bias"] == (1.0, -math.inf)


def test_runs_are_repeated_with_the_bytes_that_they_knew(service):
    """A run that refused for the numbers of a blob does so again when a part of it is undone; one that did not know them, and
    folded, folds again, though they are here by then."""
    document, tensors = folded("FuseBatchNorm")
    digest = upload(service, tensors)
    passes = ["EliminateDeadCode", "FuseBatchNorm", "DeepCopy"]
    knew = optimize(service, store(service, document, digest), passes)
    assert reasons(knew) == [CODE]
    pieces = b"not here yet"
    at = {}
    for name, (_, _, part) in tensors.items():
        at[name], pieces = len(pieces), pieces + part
    later = blobs.digest_of(pieces)
    for row in document["tensors"]:
        if row["name"] in at:
            row |= {"blob": later, "offset": at[row["name"]]}
    did_not = optimize(service, store(service, document), passes)
    assert reasons(did_not) == [] and did_not["passes"][1]["applied"] == 1
    assert blobs.stored(service, pieces) == later
    again = optimize(service, did_not["source"], passes)
    assert reasons(again) == [CODE]  # now they are
    for run in (knew, did_not):
        undone = service.post(f"/v1/runs/{run['id']}/rollback", {"passes": ["DeepCopy"]})
        assert undone.status == 201 and undone.json()["result"] == run["result"], undone
    service.stop()
    full_store.is_clean(service.data)
    service.start()



def validated(service, document, passes, mode):
    run = optimize(service, document, passes, validate=mode)
    return run["validation"], run["passes"][0]["validation"]


@pytest.mark.parametrize("mode", ["rewrites", "graph"])
def test_validation_does_not_pass_what_overflowed_before(shared, mode):
    """Version 1 folds it: the bias is infinite then, and so was all that comes of random inputs before."""
    graph = store(shared, golden.read("FuseBatchNorm/float16-bias-overflows"))
    whole, of_pass = validated(shared, graph, [{"name": "FuseBatchNorm", "version": 1}], mode)
    assert whole == {"mode": mode, "passes": None, "complete": False}
    assert [one["code"] for one in of_pass["not_evaluated"]] == ["not-finite"] and of_pass["max_absolute"] is None


@pytest.mark.parametrize("mode", ["rewrites", "graph"])
def test_validation_draws_smaller_inputs_where_others_overflow(shared, mode):
    document = golden.read("FuseBatchNorm/float16-in-range")
    for row in document["tensors"]:
        if row["name"] == "fc.weight":
            row["data"] = base64.b64encode(struct.pack("<e", 3e4) * math.prod(row["shape"])).decode()
    whole, of_pass = validated(shared, store(shared, document), [{"name": "FuseBatchNorm", "version": 1}], mode)
    assert whole == {"mode": mode, "passes": True, "complete": True} and of_pass["not_evaluated"] == []
    assert 0 <= of_pass["max_absolute"] < math.inf
