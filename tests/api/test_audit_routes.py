"""Every route that changes what is stored leaves an entry in the audit, by who asked; no route for readers stores anything. The
build holds openapi.yaml against the route table, so the operations there are all routes."""

import math

import pytest
from access import bearer, make_token
from blobs import digest_of, some_bytes
from conftest import description
from documents import branches
from jobs import PREFER
from test_access_matrix import OPERATIONS
from test_audit import As
from test_external import gelu
from test_layouts import KV_FUSED
from test_transformations import DOUBLE
from undo import model
from weights_files import file_of

WRITES = {(method, path) for method, path, scope in OPERATIONS if method != "GET" and scope in ("write", "admin")}


def takes_prefer(method, path):
    parameters = description().document["paths"][path][method.lower()].get("parameters", [])
    return any(one.get("$ref", "").endswith("/Prefer") for one in parameters)


DEFERRED = [(method, path) for method, path, _ in OPERATIONS if takes_prefer(method, path)]


class Writer:
    """Does something by a route, and looks whether the audit has it."""

    def __init__(self, client):
        self.client, self.routes = client, {}

    def do(self, method, route, body=None, headers=None, query="", **names):
        path = route
        for name, value in names.items():
            path = path.replace("{" + name + "}", value)
        answer = self.client.request(method, path + query, body, headers)
        request = f"request-{self.client.count}"
        entries = [one for one in self.client.entries() if one["request"] == request]
        assert entries and all(one["who"] == "boss" for one in entries), (method, route)
        self.routes[(method, route)] = [one["action"] for one in entries]
        return answer

    def post(self, route, body=None, **more):
        return self.do("POST", route, body, **more)


def weights_of(graph):
    parts = {one["name"]: some_bytes(4 * math.prod(one["shape"]), one["name"]) for one in graph["tensors"]}
    return file_of({one["name"]: ("float32", one["shape"], parts[one["name"]]) for one in graph["tensors"]})


def write_graphs(writer):
    graph = writer.post("/v1/graphs", model()).json()["id"]
    run = writer.post("/v1/optimize", {"graph": graph, "passes": ["MergeLinears"]}).json()
    writer.post("/v1/runs/{run}/reverse", run=run["id"])
    writer.post("/v1/runs/{run}/rollback", run=run["id"])
    writer.post("/v1/reverse", {"graph": run["result"]})
    writer.post("/v1/runs", {"source": model(), "result": gelu(model()), "name": "AddGelu"})
    writer.do("PUT", "/v1/runs/{run}/pin", run=run["id"])
    writer.do("DELETE", "/v1/runs/{run}/pin", run=run["id"])
    writer.post("/v1/transformations", DOUBLE)
    writer.do("PUT", "/v1/layouts/{name}", KV_FUSED, name=KV_FUSED["name"])
    writer.post("/v1/jobs", {"graphs": [graph], "passes": ["DeepCopy"]})
    return run


def write_weights(writer):
    graph = branches(2, "with weights")
    file = weights_of(graph)
    writer.do("PUT", "/v1/blobs/{digest}", file, digest=digest_of(file))
    writer.post("/v1/checkpoints", {"weights": [digest_of(file)]})
    bound = writer.post("/v1/graphs", graph, query=f"?weights={digest_of(file)}").json()["id"]
    run = writer.post("/v1/optimize", {"graph": bound, "passes": ["MergeLinears"]}).json()
    writer.post("/v1/graphs/{id}/materialize", id=run["result"])
    upload = writer.post("/v1/blobs/uploads").json()["upload"]
    writer.do("PATCH", "/v1/blobs/uploads/{upload}", b"abc", upload=upload)
    writer.do("PUT", "/v1/blobs/uploads/{upload}", b"d", query=f"?digest={digest_of(b'abcd')}", upload=upload)
    upload = writer.post("/v1/blobs/uploads").json()["upload"]
    writer.do("DELETE", "/v1/blobs/uploads/{upload}", upload=upload)
    writer.post("/v1/blobs/uploads", b"whole", query=f"?digest={digest_of(b'whole')}")


def write_models(writer, run):
    version, alias = "/v1/models/{model}/versions/{version}", "/v1/models/{model}/aliases/{alias}"
    writer.do("PUT", "/v1/models/{model}", {"naming": "words"}, model="m")
    for name, graph in (("v1", run["source"]), ("v2", run["result"]), ("v3", run["result"])):
        writer.do("PUT", version, {"graph": graph}, model="m", version=name)
    writer.do("DELETE", version, model="m", version="v3")
    tag = writer.do("PUT", alias, {"version": "v1"}, {"If-None-Match": "*"}, model="m", alias="a").headers["etag"]
    writer.do("PUT", alias, {"version": "v2"}, {"If-Match": tag}, model="m", alias="a")
    writer.post(alias + "/rollback", {}, model="m", alias="a")
    writer.do("DELETE", alias, None, {"If-Match": "*"}, model="m", alias="a")


def write_others(writer):
    graph = writer.post("/v1/graphs", branches(2, "to go")).json()["id"]
    writer.do("DELETE", "/v1/graphs/{id}", id=graph)
    writer.do("PUT", "/v1/blobs/{digest}", b"to go", digest=digest_of(b"to go"))
    writer.post("/v1/gc", {"grace_seconds": 0})
    writer.post("/v1/tokens", {"scope": "read", "name": "other"})
    writer.do("DELETE", "/v1/tokens/{token}", token="other")


def cancel_a_job(writer):
    from jobs import FOREVER, slow_request

    job = writer.post("/v1/optimize", slow_request(FOREVER), headers=PREFER).json()["id"]
    writer.do("DELETE", "/v1/jobs/{job}", job=job)


def test_every_route_that_writes(new_service):
    service = new_service("--gc-interval", "0")
    writer = Writer(As(service, make_token(service, "admin", "boss")))
    run = write_graphs(writer)
    write_weights(writer)
    write_models(writer, run)
    cancel_a_job(writer)
    write_others(writer)
    assert set(writer.routes) == WRITES, "a route that writes is not tried here"


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    from conftest import Service

    service = Service(tmp_path_factory.mktemp("readers") / "data").start()
    admin = make_token(service, "admin", "boss")
    yield service, admin, make_token(service, "read", "reader", by=admin), make_token(service, "write", "writer", by=admin)
    assert service.stop() == 0


def test_what_may_be_deferred():
    assert ("POST", "/v1/graphs/{id}/evaluate") in DEFERRED and ("POST", "/v1/compare") in DEFERRED and len(DEFERRED) == 9


@pytest.mark.parametrize(("method", "path"), DEFERRED)
def test_a_job_is_stored_by_a_writer_alone(readers, method, path):
    """It is stored, so who may only read does not make one; who makes one has an entry, and may cancel it."""
    service, admin, reader, writer = readers
    path = path.replace("{id}", "sha256:" + "0" * 64).replace("{run}", "run_" + "0" * 26)
    refused = service.request(method, path, {}, headers={**PREFER, **bearer(reader)})
    assert (refused.status, refused.json()["code"]) == (403, "scope-too-small")
    assert 'scope="write"' in refused.headers["www-authenticate"] or path == "/v1/gc"
    assert service.get("/v1/jobs", headers=bearer(reader)).json()["items"] == [] or path != DEFERRED[0][1]
    token = admin if path == "/v1/gc" else writer
    job = service.request(method, path, {}, headers={**PREFER, **bearer(token)})
    assert job.status == 202, job
    entries = service.get(f"/v1/audit?object={job.json()['id']}", headers=bearer(admin)).json()["items"]
    who = "boss" if path == "/v1/gc" else "writer"
    assert [(one["who"], one["action"], one["outcome"]) for one in entries] == [(who, "job-create", f"{method} {path}")]
    assert service.delete(f"/v1/jobs/{job.json()['id']}", headers=bearer(token)).status in (200, 202, 409)


def test_readers_store_nothing(readers):
    """What they may ask for leaves the store as it is: graphs, runs, blobs and jobs."""
    service, admin, reader, writer = readers
    graph = service.post("/v1/graphs", branches(2, "read"), headers=bearer(writer)).json()["id"]
    before = service.get("/v1/audit?limit=1", headers=bearer(admin)).json()["items"]
    jobs = len(service.get("/v1/jobs?limit=1000", headers=bearer(reader)).json()["items"])
    asked = {"a": graph, "b": graph, "random_weights": True}
    assert service.post("/v1/compare", asked, headers=bearer(reader)).status == 200
    answer = service.post(f"/v1/graphs/{graph}/evaluate?random_weights=true&seed=1", headers=bearer(reader))
    assert answer.status == 200
    assert service.post("/v1/blobs/missing", {"digests": []}, headers=bearer(reader)).status == 200
    for method, path, scope in OPERATIONS:
        if method == "POST" and scope != "read":
            assert service.post(path, {}, headers=bearer(reader)).status == 403, path
    assert service.get("/v1/audit?limit=1", headers=bearer(admin)).json()["items"] == before
    assert len(service.get("/v1/jobs?limit=1000", headers=bearer(reader)).json()["items"]) == jobs


# ---- keys of requests ----


def test_a_key_belongs_to_who_sent_it(readers):
    """Another's run never comes back, for the same body or another; after a restart neither."""
    service, admin, reader, writer = readers
    body, other = ({"graph": branches(2, name), "passes": ["MergeLinears"]} for name in ("mine", "other"))

    def ask(token, body):
        return service.post("/v1/optimize", body, headers={"Idempotency-Key": "same", **bearer(token)})

    mine, others = ask(writer, body), ask(admin, body)
    assert mine.status == others.status == 201 and mine.json()["id"] != others.json()["id"]
    assert "idempotency-replayed" not in others.headers
    job = service.post("/v1/jobs", {"graphs": [mine.json()["source"]], "passes": ["DeepCopy"]},
                       headers={"Idempotency-Key": "same", **bearer(admin)})
    theirs = service.post("/v1/jobs", {"graphs": [mine.json()["source"]], "passes": ["DeepCopy"]},
                          headers={"Idempotency-Key": "same", **bearer(writer)})
    assert job.json()["id"] != theirs.json()["id"]
    service.restart()
    assert ask(writer, body).json() == mine.json() and ask(admin, body).json() == others.json()
    assert ask(admin, other).status == ask(writer, other).status == 422
    third = make_token(service, "write", "third", by=admin)
    assert ask(third, other).status == 201
