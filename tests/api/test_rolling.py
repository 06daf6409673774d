"""Three replicas behind a balancer are restarted one after another while clients work: no request fails that is sent once
more."""

import concurrent.futures
import hashlib
import itertools
import json
import os
import threading
import time

import pytest
from balancer import Balancer
from blobs import some_bytes
from documents import branches
from test_aliases import CREATE, history, is_chain, make_versions, put_alias
from test_replicas import eventually, postgres, start  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif("FOLDBACK_S3_SERVERS" not in os.environ,
                                reason="make test-postgres BLOBS=s3 has servers for this")


class Client:
    """Does all kinds of requests in turn. A write has an Idempotency-Key or says what it expects to find, so that it can be
    sent again."""

    def __init__(self, balancer, number):
        self.balancer, self.number, self.count = balancer, number, itertools.count()
        self.runs, self.graphs, self.blobs, self.moves, self.failures = {}, [], {}, [], []

    def ask(self, expected, method, path, body=None, **headers):
        status, found, text = self.balancer.request(method, path, body,
                                                    {name.replace("_", "-"): value for name, value in headers.items()})
        assert status in expected, (method, path, status, text[:300])
        return status, found, text

    def step(self):
        number = next(self.count)
        name = f"c{self.number}n{number}"
        graph = json.loads(self.ask((200, 201), "POST", "/v1/graphs", branches(1 + number % 3, name))[2])["id"]
        self.graphs.append(graph)
        _, _, text = self.ask((201,), "POST", "/v1/optimize", {"graph": graph, "passes": ["ChangeTrueDivToMulByInverse"]},
                              Idempotency_Key=name)
        self.runs[name] = json.loads(text)["id"]
        self.ask((200,), "GET", f"/v1/runs/{self.runs[name]}")
        data = some_bytes((1 << 16) + 1 + (self.number << 8) + number % 256)
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.ask((200, 201), "PUT", f"/v1/blobs/{digest}", data)
        self.blobs[digest] = data
        _, _, text = self.ask((200,), "GET", f"/v1/blobs/{digest}")
        assert text == data
        self.move(number)

    def move(self, number):
        """Who sends a movement again may find that it was done: the tag that it names is no longer the alias' then."""
        path = f"/v1/models/m/aliases/a{self.number}"
        _, headers, text = self.ask((200,), "GET", path)
        versions = [one for one in ("v0", "v1", "v2") if one != json.loads(text)["version"]]
        why = f"{self.number}-{number}"
        status, _, _ = self.ask((200, 412), "PUT", path, {"version": versions[number % 2], "why": why},
                                If_Match=headers["ETag"])
        self.moves.append((why, status))

    def work(self, is_over):
        while not is_over.is_set():
            try:
                self.step()
            except Exception as failure:  # every one of them is looked at
                self.failures.append(failure)


def test_a_rolling_restart_under_load(start):
    services = [start() for _ in range(3)]
    make_versions(services[0])
    for number in range(6):
        put_alias(services[0], "v0", CREATE, alias=f"a{number}")
    balancer, is_over = Balancer(services), threading.Event()
    clients = [Client(balancer, number) for number in range(6)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(client.work, is_over) for client in clients]
        for one in services * 2:
            time.sleep(1)
            assert one.stop() == 0, one.log()[-2000:]
            one.start()
            eventually(lambda: one.get("/readyz").status == 200)
        time.sleep(1)
        is_over.set()
        for future in futures:
            future.result()
    failures = [failure for client in clients for failure in client.failures]
    assert not failures, (len(failures), failures[:3])
    assert set(balancer.tries) == {1, 2} and sum(len(client.runs) for client in clients) > 20, balancer.tries
    services[0].get("/v1/graphs")
    for client in clients:
        for name, run in client.runs.items():
            assert services[client.number % 3].get(f"/v1/runs/{run}").json()["id"] == run
        items = history(services[0], alias=f"a{client.number}")
        is_chain(items)
        told = [item["why"] for item in items if item.get("why")]
        assert len(told) == len(set(told)) and {why for why, status in client.moves if status == 200} <= set(told)
        # one that was sent again and refused had been done: nobody else moves this alias
        assert sorted(told) == sorted(why for why, _ in client.moves)
