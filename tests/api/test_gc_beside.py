"""Collections without any grace beside all that names blobs: a graph that was acknowledged never loses its bytes.

FOLDBACK_HELD (60) says how many of each way."""

import os
import threading

import pytest
from blobs import collect, digest_of, graph_of, is_here, put_blob, some_bytes, stored
from holders import Holder, Went
from ledger import check_store
from test_http import is_problem

HELD = int(os.environ.get("FOLDBACK_HELD", "60"))
WRITERS = 3
WAYS = list(Holder(None, "").ways)


def asking(service):
    def ask(method, path, body, headers):
        answer = service.request(method, path, body, headers)
        return answer.status, answer.body

    return ask


class Beside:
    """Whoever collects, while writers write."""

    def __init__(self, service, way):
        self.service, self.way, self.held, self.wrong, self.went = service, way, [], [], 0
        self.is_over = threading.Event()

    def collect(self):
        while not self.is_over.is_set():
            assert self.service.post("/v1/gc", {"grace_seconds": 0}).status == 200

    def write(self, number):
        holder = Holder(asking(self.service), f"w{number}")
        try:
            while len(self.held) < HELD:
                try:
                    data = holder.ways[self.way]()
                except Went:
                    self.went += 1
                else:
                    self.held.append(data)
        except BaseException as wrong:
            self.wrong.append(wrong)
            raise

    def run(self):
        collector = threading.Thread(target=self.collect)
        writers = [threading.Thread(target=self.write, args=(number,)) for number in range(WRITERS)]
        for one in [collector, *writers]:
            one.start()
        for one in writers:
            one.join()
        self.is_over.set()
        collector.join()
        assert not self.wrong, self.wrong


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.heavy
def test_what_is_acknowledged_stays(new_service, way):
    service = new_service("--access-log", "off")
    beside = Beside(service, way)
    beside.run()
    lost = [digest_of(data) for data in beside.held if service.get(f"/v1/blobs/{digest_of(data)}").body != data]
    print(f"{way}: {len(beside.held)} acknowledged, {len(lost)} lost, {beside.went} refused as their blob had gone")
    assert len(beside.held) >= HELD and not lost
    assert service.stop() == 0
    check_store(service.data)


def test_what_was_collected_is_uploaded_again_first(service):
    """What is named and has not come yet may come later; what was here and went is asked for."""
    gone, never = some_bytes(1000), "sha256:" + "0" * 64
    stored(service, gone)
    assert collect(service)["blobs"] == 1
    graph = graph_of([digest_of(gone), never])
    for method, path, body in (
        ("POST", "/v1/graphs", graph),
        ("POST", "/v1/optimize", {"graph": graph, "passes": ["MergeLinears"]}),
        ("PUT", "/v1/models/m/versions/1", {"graph": graph}),
        ("POST", "/v1/runs", {"source": graph, "result": graph_of([], "after"), "name": "Mine"}),
    ):
        problem = is_problem(service.request(method, path, body), 409, "blob-missing")
        assert digest_of(gone) in problem["detail"], path
    assert service.get("/v1/graphs").json()["items"] == [] and service.get("/v1/models").json()["items"] == []
    assert put_blob(service, gone).status == 201
    assert service.post("/v1/graphs", graph).status == 201
    assert collect(service)["blobs"] == 0 and is_here(service, digest_of(gone))


def test_a_repeated_checkpoint_is_not_one_that_was_deleted(service):
    """A request that is repeated with its key after the graph went is done anew: here its blob has gone, too."""
    holder = Holder(asking(service), "repeated")
    digest = digest_of(holder.hold_checkpoint())
    asked, headers = {"weights": [digest]}, {"Idempotency-Key": "k"}
    graph = service.post("/v1/checkpoints", asked, headers=headers).json()["id"]
    assert service.delete(f"/v1/graphs/{graph}").status == 204
    assert collect(service)["blobs"] == 1
    is_problem(service.post("/v1/checkpoints", asked, headers=headers), 409, "blob-missing")
