"""Generated code is the text of torch.fx, on random graphs; and on fixtures, after some passes, that of Optimum (code.txt)."""

import documents
import pytest
from canonical import canonical_bytes, identity
from random_code import random_case

GRAPHS = 300


@pytest.mark.parametrize("first", range(0, GRAPHS, 50))
def test_code(service, first):
    for seed in range(first, first + 50):
        document, expected = random_case(seed)
        answer = service.post("/v1/graphs", document)
        assert answer.status in (200, 201), (seed, answer.body.decode())
        assert answer.json()["id"] == identity(document), seed
        assert service.get(f"/v1/graphs/{identity(document)}").body == canonical_bytes(document), seed
        code = service.get(f"/v1/graphs/{identity(document)}/code").body.decode()
        assert code == expected, seed


@pytest.mark.parametrize(("name", "passes", "expected"), documents.expectations())
def test_code_after_a_pass(service, name, passes, expected):
    query = [("pass", one) for one in passes] + [("include", "code")]
    answer = service.post("/v1/optimize", documents.document(name), raw_query=query)
    assert answer.status == 201, answer.body.decode()
    assert answer.json()["code"] == expected
