"""The code that Optimum gives for the fixtures, recorded under expected/, comes out of the service; and so do their ids."""

import pathlib

import pytest

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
COMPOSED = ["ChangeTrueDivToMulByInverse", "MergeLinears", "FuseBiasInLinear"]


@pytest.mark.parametrize(
    "path", sorted(FIXTURES.glob("*/expected/*.code.txt")), ids=lambda path: f"{path.parts[-3]}-{path.name}"
)
def test_code_after_a_pass(service, path):
    name = path.name.removesuffix(".code.txt")
    passes = COMPOSED if name == "composed" else [name]
    query = [("pass", name) for name in passes] + [("include", "code")]
    document = (path.parents[1] / "graph.json").read_bytes()
    answer = service.post("/v1/optimize", document, raw_query=query)
    assert answer.status == 201, answer.body.decode()
    assert answer.json()["code"] == path.read_text()
