"""How versions are named that the service makes itself, by a rollback of passes: in words, or by the next number."""

import pytest
from documents import branches

PASSES = ["MergeLinears", "ChangeTrueDivToMulByInverse"]


@pytest.fixture
def deployed(service):
    """A model `bert` with version 1, a run's result, that `live` names; what asks for a rollback of a pass."""
    run = service.post("/v1/optimize", {"graph": branches(2), "passes": PASSES}).json()
    service.request("PUT", "/v1/models/bert/versions/1", {"run": run["id"]})
    service.request("PUT", "/v1/models/bert/aliases/live", {"version": "1"}, {"If-None-Match": "*"})

    def take_out(name=PASSES[0], **more):
        answer = service.post("/v1/models/bert/aliases/live/rollback", {"passes": [name], **more})
        assert answer.status == 200, answer
        return service.get(f"/v1/models/bert/versions/{answer.json()['version']}").json()

    return take_out


def name_by(service, naming, model="bert"):
    return service.request("PUT", f"/v1/models/{model}", {"naming": naming})


def again(service):
    service.request("PUT", "/v1/models/bert/aliases/live", {"version": "1"}, {"If-Match": "*"})


def test_words_unless_said(service, deployed):
    assert service.get("/v1/models/bert").json()["naming"] == "words"
    assert deployed()["version"] == "1-without-MergeLinears"


def test_numbers(service, deployed):
    answer = name_by(service, "integer")
    assert answer.status == 200 and answer.json()["naming"] == "integer" == service.get("/v1/models/bert").json()["naming"]
    made = deployed()
    assert (made["version"], made["note"]) == ("2", "1-without-MergeLinears")
    again(service)
    assert deployed(PASSES[1])["version"] == "3"
    # after the largest number that there is; other names, and what only looks like a number, do not count
    for name in ("41", "v99", "007", "0", "1.5", "-7", "9" * 19):
        service.request("PUT", f"/v1/models/bert/versions/{name}", {"graph": branches(2, name)})
    again(service)
    assert deployed()["version"] == "42"
    again(service)
    assert deployed(**{"as": "mine"})["version"] == "mine"  # a name that is asked for stays
    name_by(service, "words")
    again(service)
    assert deployed()["version"] == "1-without-MergeLinears"


def test_no_number_is_given_twice(service, deployed):
    """Another registry may know the one that was deleted."""
    name_by(service, "integer")
    assert deployed()["version"] == "2"
    etag = service.get("/v1/models/bert/aliases/live").headers["etag"]
    service.request("DELETE", "/v1/models/bert/aliases/live", headers={"If-Match": etag})
    assert service.request("DELETE", "/v1/models/bert/versions/2").status == 204
    service.restart()
    service.request("PUT", "/v1/models/bert/aliases/live", {"version": "1"}, {"If-None-Match": "*"})
    assert deployed()["version"] == "3"


def test_a_model_without_versions(service):
    answer = name_by(service, "integer", "new")
    assert answer.status == 201 and answer.headers["location"] == "/v1/models/new"
    assert (answer.json()["versions"], answer.json()["naming"]) == (0, "integer")
    assert name_by(service, "integer", "new").status == 200
    entries = service.get("/v1/audit?action=model-put").json()["items"]
    assert [(entry["object"], entry["outcome"]) for entry in entries] == [("new", "integer")]  # the second changed nothing
    name_by(service, "words", "new")
    assert service.get("/v1/audit?action=model-put").json()["items"][0]["outcome"] == "words"


@pytest.mark.parametrize(
    ("body", "code"),
    [({}, "missing-member"), ({"naming": "roman"}, "unknown-naming"), ({"naming": 1}, "wrong-type"),
     ({"naming": "words", "x": 1}, "unknown-member")],
)
def test_what_is_refused(service, body, code):
    answer = service.request("PUT", "/v1/models/m", body)
    assert answer.status == 422 and answer.json()["code"] == code
    assert service.get("/v1/models/m").status == 404
