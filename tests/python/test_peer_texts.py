"""The code that Optimum gives for the fixtures, recorded in their code.txt, comes out of the service."""

import documents
import pytest


@pytest.mark.parametrize(("name", "passes", "expected"), documents.expectations())
def test_code_after_a_pass(service, name, passes, expected):
    query = [("pass", one) for one in passes] + [("include", "code")]
    answer = service.post("/v1/optimize", documents.document(name), raw_query=query)
    assert answer.status == 201, answer.body.decode()
    assert answer.json()["code"] == expected
