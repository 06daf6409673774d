"""Verdicts of POST /v1/compare, judged by PyTorch in float64: no broken pair is called equal, and no right one differs.

FOLDBACK_JUDGE_PAIRS of each are tried (200 at night, with the exports of another version of PyTorch among them)."""

import collections
import os
import pathlib
import subprocess

import judge_pairs
import pytest

PAIRS = int(os.environ.get("FOLDBACK_JUDGE_PAIRS", "20"))
IS_LONG = PAIRS >= 200
ROOT = pathlib.Path(__file__).resolve().parents[2]


def compare(service, a, b, **more):
    answer = service.post("/v1/compare", {"a": a, "b": b, **more})
    assert answer.status == 200, answer
    return answer.json()


def reasons(found):
    return [(one["name"], one["verdict"], one["reason"], one.get("detail"), one["max_relative"], one.get("node"),
             one.get("target")) for one in found["outputs"]]


@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
def test_broken_pairs(service, is_sparse):
    """A quarter differs on less than 1 % of the elements of a plain draw, or on boundary values only."""
    count = PAIRS // 4 if is_sparse else PAIRS - PAIRS // 4
    verdicts, kinds, bases, wrong = collections.Counter(), collections.Counter(), set(), []
    for seed in range(count):
        base, other, mistake, (apart, part) = judge_pairs.broken_pair(seed, is_sparse)
        found = compare(service, judge_pairs.document_of(*base), other)
        is_random = found["verdict"] == "not-evaluated" and all(
            one["reason"] == "random" or one["verdict"] in ("same", "moved", "evaluated") for one in found["outputs"])
        proved = [i for i, one in enumerate(found["outputs"]) if one["verdict"] in ("same", "moved")]
        verdicts["random" if is_random else found["verdict"]] += 1
        kinds[mistake] += 1
        bases.add(base)
        if any(apart[i] for i in proved) or not (found["verdict"] == "differs" or is_random):
            wrong.append((seed, base, mistake, apart, part, reasons(found)))
    print(f"broken, {'sparse' if is_sparse else 'dense'}: {dict(verdicts)}; {len(bases)} bases; {dict(kinds)}")
    assert not wrong, "\n".join(map(str, wrong))
    assert verdicts["random"] <= max(1, PAIRS // 20)


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """By the newest PyTorch, in a process of its own."""
    if not IS_LONG:
        return None
    folder = tmp_path_factory.mktemp("exports")
    judge_pairs.write_weights(folder)
    venv = subprocess.check_output([ROOT / "tests/venv", "pytorch", ROOT / "tests/python/newest.txt"], text=True).strip()
    subprocess.run([f"{venv}/bin/python", judge_pairs.__file__, folder], check=True, cwd=ROOT)
    return folder


def test_right_pairs_that_look_different(service, exports):
    def optimised(preset, document):
        run = service.post("/v1/optimize", {"graph": document, "passes": [preset]})
        assert run.status == 201, run
        return run.json()["result"]

    verdicts, wrong, unknown = collections.Counter(), [], []
    for number in range(PAIRS) if IS_LONG else range(0, 200, 200 // PAIRS + 1):
        way, a, b = judge_pairs.right_pair(number, optimised, exports)
        found = compare(service, a, b)
        verdicts[found["verdict"]] += 1
        what = (number, a["name"], way, reasons(found))
        if found["verdict"] == "differs":
            wrong.append(what)
        elif found["verdict"] == "not-evaluated":
            unknown.append(what)
    print(f"right: {dict(verdicts)}")
    assert not wrong, "\n".join(map(str, wrong))
    assert len(unknown) <= max(2, PAIRS // 20), "\n".join(map(str, unknown))


def test_a_copy_is_the_same(service):
    for base in judge_pairs.BASES[:: 1 if IS_LONG else 9]:
        assert compare(service, judge_pairs.document_of(*base), judge_pairs.document_of(*base))["verdict"] == "same", base
