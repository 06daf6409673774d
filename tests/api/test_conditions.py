"""Conditional requests: If-Match, If-Unmodified-Since and If-None-Match (RFC 9110, 13), on what is read and on what is
changed."""

import email.utils
import time

import pytest
from blobs import digest_of, put_blob, some_bytes, stored
from documents import branches
from holders import archive
from test_http import is_problem
from test_models import put_version
from test_runs import optimize

NOT_THIS = {"If-Match": '"nope"'}


def date(at):
    return email.utils.formatdate(at, usegmt=True)


def deploy(service, model, version, condition):
    graph = service.post("/v1/graphs", archive(f"{model} {version}"), headers={"Content-Type": "application/zip"}).json()["id"]
    assert put_version(service, model, version, {"graph": graph}).status == 201
    answer = service.request("PUT", f"/v1/models/{model}/aliases/live", {"version": version}, headers=condition)
    assert answer.status in (200, 201)


def test_a_download_does_not_go_on_with_another_file(shared):
    """Between two ranges somebody deploys."""
    path = "/v1/models/ranges/aliases/live/archive"
    deploy(shared, "ranges", "1", {"If-None-Match": "*"})
    first = shared.get(path, headers={"Range": "bytes=0-999"})
    tag, whole = first.headers["etag"], shared.get(path).body
    rest = {"Range": "bytes=1000-"}
    for condition in ({"If-Match": tag}, {"If-Match": f'"other", {tag}'}, {"If-Match": "*"},
                      {"If-Unmodified-Since": date(time.time() + 1)}):
        answer = shared.get(path, headers=rest | condition)
        assert answer.status == 206 and first.body + answer.body == whole, condition
    deploy(shared, "ranges", "2", {"If-Match": "*"})
    for condition in ({"If-Match": tag}, {"If-Match": f"W/{tag}"}, {"If-Unmodified-Since": date(time.time() - 2)}):
        answer = shared.get(path, headers=rest | condition)
        is_problem(answer, 412, "precondition-failed")
        assert "content-range" not in answer.headers
    assert shared.get(path, headers=rest | {"If-Range": tag}).status == 200
    # If-Match alone counts
    assert shared.get(path, headers=rest | {"If-Match": "*", "If-Unmodified-Since": date(0)}).status == 206
    assert shared.get(path, headers=rest | {"If-Unmodified-Since": "yesterday"}).status == 206


def test_every_get(shared):
    """If-Match comes before If-None-Match; what has no tag matches none."""
    run = optimize(shared, branches(2, "every get"), ["MergeLinears"])
    deploy(shared, "gets", "1", {"If-None-Match": "*"})
    blob, graph = stored(shared, some_bytes(1000)), run["result"]
    alias = "/v1/models/gets/aliases/live"
    for path in (
        f"/v1/graphs/{graph}", f"/v1/graphs/{graph}/code", f"/v1/blobs/{blob}", f"/v1/runs/{run['id']}",
        "/v1/runs", "/v1/models",
        alias, f"{alias}/graph", f"{alias}/archive", "/v1/models/gets/versions/1", "/v1/models/gets/versions/1/archive",
    ):  # fmt: skip
        is_problem(shared.get(path, headers=NOT_THIS), 412, "precondition-failed")
        assert shared.request("HEAD", path, headers=NOT_THIS).status == 412
        answer = shared.get(path, headers={"If-Match": "*"})
        assert answer.status == 200
        tag = answer.headers.get("etag")
        if tag:
            is_problem(shared.get(path, headers=NOT_THIS | {"If-None-Match": tag}), 412, "precondition-failed")
            assert shared.get(path, headers={"If-Match": tag, "If-None-Match": tag}).status == 304
            assert shared.get(path, headers={"If-Match": f'"other", {tag}'}).status == 200
    is_problem(shared.get("/v1/models/none/versions/1", headers=NOT_THIS), 404, "unknown-model")


def test_versions(shared):
    path, body = "/v1/models/conditions/versions/1", {"graph": branches(2, "conditions")}

    def put(**condition):
        return shared.request("PUT", path, body, headers={name.replace("_", "-"): value for name, value in condition.items()})

    is_problem(put(If_Match="*"), 412, "precondition-failed")
    is_problem(put(If_Match='"x"'), 412, "precondition-failed")
    assert shared.get(path).status == 404
    assert put(If_None_Match="*").status == 201
    is_problem(put(If_None_Match="*"), 412, "precondition-failed")
    tag = shared.get(path).headers["etag"]
    assert put(If_Match=tag).status == put(If_Match="*").status == put().status == 200
    is_problem(shared.delete(path, headers=NOT_THIS), 412, "precondition-failed")
    assert shared.get(path).status == 200
    assert shared.delete(path, headers={"If-Match": tag}).status == 204
    is_problem(shared.delete(path, headers={"If-Match": tag}), 412, "precondition-failed")


@pytest.mark.parametrize("condition", [NOT_THIS, {"If-None-Match": "*"}])
def test_nothing_is_deleted(shared, condition):
    graph = shared.post("/v1/graphs", branches(2, f"kept {condition}")).json()["id"]
    is_problem(shared.delete(f"/v1/graphs/{graph}", headers=condition), 412, "precondition-failed")
    assert shared.delete(f"/v1/graphs/{graph}", headers={"If-Match": f'"{graph}"'}).status == 204


def test_a_body_that_is_not_wanted(service):
    """It is read, and nothing of it stays."""
    data = some_bytes(100_000)
    is_problem(put_blob(service, data, headers={"If-Match": "*"}), 412, "precondition-failed")
    assert service.get("/v1/blobs").json()["items"] == [] and not list((service.data / "uploads").iterdir())
    assert put_blob(service, data, headers={"If-None-Match": "*"}).status == 201
    is_problem(put_blob(service, data, headers={"If-None-Match": "*"}), 412, "precondition-failed")
    assert put_blob(service, data, headers={"If-Match": f'"{digest_of(data)}"'}).status == 200
