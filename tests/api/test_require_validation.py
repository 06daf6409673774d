"""serve --require-validation: what was not judged is refused, and the 422 says how to go on."""

import json

import pytest
from documents import FIXTURES, branches
from test_validate import optimize


@pytest.fixture
def strict(new_service):
    return new_service("--require-validation")


def refused(answer, pointer):
    problem = answer.json()
    place = problem.get("pointer", problem.get("parameter", ""))
    assert (answer.status, problem["code"], place) == (422, "validation-required", pointer), answer
    return problem["detail"]


def test_a_run_must_be_validated(strict):
    detail = refused(optimize(strict, branches(), ["MergeLinears"]), "/options/validate")
    assert "validate=rewrites" in detail and "metric" in detail
    refused(optimize(strict, branches(), ["MergeLinears"], validate="off"), "/options/validate")
    refused(strict.post("/v1/optimize?pass=MergeLinears", branches()), "validate")
    assert not strict.get("/v1/runs").json()["items"]
    assert optimize(strict, branches(), ["MergeLinears"], dry_run=True).status == 200
    for mode in ("rewrites", "graph"):
        assert optimize(strict, branches(), ["MergeLinears"], validate=mode).status == 201


def test_what_could_not_be_compared(strict):
    """A pass that changes what is computed on purpose needs a task."""
    graph = json.loads((FIXTURES / "toy" / "graph.json").read_bytes())
    assert optimize(strict, graph, ["cleanup"], validate="rewrites").status == 201
    replaced = [{"name": "ReplaceActivation", "params": {"from": "relu", "to": "gelu"}}]
    assert "metric" in refused(optimize(strict, graph, replaced, validate="rewrites"), "")


def test_versions(new_service):
    def version(service, name, body):
        return service.request("PUT", f"/v1/models/net/versions/{name}", body)

    lax = new_service()
    old = optimize(lax, branches(), ["MergeLinears"]).json()
    judged = optimize(lax, branches(), ["MergeLinears", "cleanup"], validate="graph").json()
    assert version(lax, "1", {"run": old["id"]}).status == 201
    lax.stop()
    strict = new_service("--require-validation", data=lax.data)
    assert "again" in refused(version(strict, "2", {"run": old["id"]}), "/run")
    assert version(strict, "3", {"run": judged["id"]}).status == 201
    assert version(strict, "4", {"graph": branches()}).status == 201
    assert version(strict, "5", {"run": "run_01M7XTSAAT7GE5FHQDV5WCKM9T"}).status == 404
