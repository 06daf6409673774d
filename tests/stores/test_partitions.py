"""Three replicas on one PostgreSQL and one bucket, while they are killed, stopped and cut off at random: nothing that was
acknowledged is lost or done twice, in spite of collections without grace, and each alias is one register to all clients
(linearizable.py).

FOLDBACK_PARTITION_SECONDS (60) says how long, FOLDBACK_PARTITION_SEED draws other faults."""

import collections
import concurrent.futures
import hashlib
import http.client
import itertools
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "api"))

import buckets
import databases
from conftest import Service
from documents import branches
from holders import WENT, Holder, Went
from ledger import check_store
from linearizable import is_linearizable
from test_aliases import CREATE, history, is_chain, path_of, put_alias
from test_events import Ended, Stream
from test_models import put_version

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif("FOLDBACK_S3_SERVERS" not in os.environ, reason="make test-postgres BLOBS=s3 has servers for this"),
]
SECONDS = float(os.environ.get("FOLDBACK_PARTITION_SECONDS", "60"))
SEED = int(os.environ.get("FOLDBACK_PARTITION_SEED", "1"))
ALIASES, CLIENTS, PATIENCE = 3, 6, 20
DIVISION = ["ChangeTrueDivToMulByInverse"]


class Replica:
    """A service that reaches its database and its bucket through proxies of its own."""

    def __init__(self, number, folder, postgres, name, s3):
        self.to_database, self.to_bucket = databases.Proxy(postgres), databases.Proxy(s3)
        environment = {**buckets.CREDENTIALS, "PGPASSWORD": databases.SECRET}
        place = buckets.options(f"http://127.0.0.1:{self.to_bucket.port}", "store")
        self.service = Service(folder / f"replica{number}", "--store", postgres.tcp_url(name, self.to_database.port), *place,
                               "--blobs-cache", "1", "--access-log", "off", environment=environment)  # fmt: skip
        self.mutex = threading.Lock()  # over its process

    def start(self):
        """Again and again: it may be cut off."""
        with self.mutex:
            while self.service.process is None:
                try:
                    self.service.start()
                except AssertionError:
                    self.service.process = None
                    self.heal()

    def heal(self):
        for proxy in (self.to_database, self.to_bucket):
            proxy.is_open, proxy.is_held, proxy.watch = True, False, lambda sent: None

    def end(self):
        self.service.kill()
        self.to_database.close()
        self.to_bucket.close()


class Nemesis:
    """One fault after another, at one replica or at the server of all."""

    def __init__(self, replicas, postgres, chance):
        self.replicas, self.postgres, self.chance, self.done = replicas, postgres, chance, collections.Counter()

    def kill(self, one):
        with one.mutex:
            one.service.kill()
        time.sleep(self.chance.uniform(0, 3))
        one.start()

    def stand_still(self, one, longest=6):
        one.service.process.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.5, longest))
        one.service.process.send_signal(signal.SIGCONT)

    def seem_dead(self, one):
        """So long that the others take it out, and it comes back."""
        self.stand_still(one, 25)

    def cut_connections(self, one):
        for _ in range(self.chance.randint(1, 5)):
            one.to_database.cut()
            time.sleep(self.chance.uniform(0.01, 0.5))

    def cut_off(self, one):
        one.to_database.is_open = False
        one.to_database.cut()
        time.sleep(self.chance.uniform(1, 8))
        one.to_database.is_open = True

    def lose_packets(self, one):
        """What is sent gets nowhere for a while, and then all of it arrives, or the connections are gone."""
        proxy = self.chance.choice([one.to_database, one.to_database, one.to_bucket])
        proxy.is_held = True
        time.sleep(self.chance.uniform(0.5, 8))
        if self.chance.random() < 0.5:
            proxy.cut()
        proxy.is_held = False

    def cut_commits(self, one):
        """The connection breaks before, or right after, the server has got a COMMIT."""
        left = itertools.count(self.chance.randint(2, 10), -1)
        one.to_database.watch = lambda sent: self.chance.choice(["before",
                                                                 "after"]) if b"COMMIT" in sent and next(left) > 0 else None
        time.sleep(2)
        one.to_database.watch = lambda sent: None

    def lose_the_bucket(self, one):
        one.to_bucket.is_open = False
        one.to_bucket.cut()
        time.sleep(self.chance.uniform(1, 5))
        one.to_bucket.is_open = True

    def restart_the_server(self, one):
        self.postgres.restart()

    def work(self, until):
        faults = [self.kill, self.kill, self.stand_still, self.cut_connections, self.cut_off, self.lose_packets,
                  self.cut_commits,
                  self.cut_commits, self.lose_the_bucket, self.restart_the_server, self.seem_dead]  # fmt: skip
        while (left := until - time.monotonic()) > 0:
            fault = self.chance.choice([one for one in faults if left > 30 or one != self.seem_dead])
            fault(self.chance.choice(self.replicas))
            self.done[fault.__name__] += 1
            time.sleep(self.chance.uniform(0, 2))


class Client:
    """Does one thing after another at random replicas, and notes when each began and ended, and what it was told. An operation
    of which it was told nothing, or that it may have been done, has no end."""

    def __init__(self, number, replicas, seed):
        self.number, self.replicas, self.chance, self.count = number, replicas, random.Random(seed), itertools.count()
        self.operations = {alias: [] for alias in range(ALIASES)}
        self.runs, self.graphs, self.blobs = {}, {}, {}
        self.statuses = collections.Counter()
        self.holder = Holder(self.send, f"c{number}-holder")

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body), or None: it was not answered."""
        service = self.chance.choice(self.replicas).service
        connection = http.client.HTTPConnection(service.host, service.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body), headers or {})
            answer = connection.getresponse()
            found = answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException):
            found = None
        finally:
            connection.close()
        code = json.loads(found[2]).get("code", "") if found and found[0] >= 400 else ""
        self.statuses[f"{found[0]} {code}".strip() if found else "no answer"] += 1
        # 408: the replica stood still while the request came.
        expected = found and (found[0] in (200, 201, 202, 204, 408, 412, 503) or
                              code in ("request-in-progress", "commit-unknown"))
        assert not found or expected or (found[0], code) in (*WENT, (404, "unknown-graph")), found
        return found

    def read(self, alias):
        call = time.monotonic()
        found = self.ask("GET", path_of(f"a{alias}"))
        if found and found[0] == 200:
            version = json.loads(found[2])["version"]
            self.operations[alias].append({"kind": "read", "value": version, "call": call, "end": time.monotonic()})
            return found[1]["ETag"], version
        return None, None

    def write(self, alias):
        """Moves it to a version of this client's own, from what it read, or from whatever it is."""
        tag, old = self.read(alias) if self.chance.random() < 0.6 else ("*", None)
        if tag is None:
            return
        version = f"c{self.number}n{next(self.count)}"
        made = self.ask("PUT", f"/v1/models/m/versions/{version}", {"graph": self.graph})
        if not made or made[0] not in (200, 201):
            return
        operation = {"kind": "write" if tag == "*" else "swap", "value": version, "call": time.monotonic(), "end": None}
        if tag != "*":
            operation["old"] = old
        found = self.ask("PUT", path_of(f"a{alias}"), {"version": version, "why": version}, {"If-Match": tag})
        if found and found[0] == 200:
            operation["end"] = time.monotonic()
        elif found and found[0] in (408, 412, 503):
            operation["refused"] = True
        self.operations[alias].append(operation)

    def store(self):
        name = f"c{self.number}g{next(self.count)}"
        found = self.ask("POST", "/v1/graphs", branches(1 + self.chance.randrange(3), name))
        if found and found[0] in (200, 201):
            self.graphs[json.loads(found[2])["id"]] = name

    def send(self, method, path, body, headers):
        found = self.ask(method, path, body, headers)
        if not found or found[0] in (500, 503) or found[0] == 409 and b"commit-unknown" in found[2]:
            raise Went  # perhaps
        return found[0], found[2]

    def hold(self):
        """Stores what names a blob, in one of all ways."""
        try:
            data = self.chance.choice(list(self.holder.ways.values()))()
        except Went:
            return
        self.blobs["sha256:" + hashlib.sha256(data).hexdigest()] = data

    def collect(self, until):
        while time.monotonic() < until:
            self.ask("POST", "/v1/gc", {"grace_seconds": 0})

    def run(self):
        """With a key, until it is answered: then it was done once, wherever it was asked for."""
        key = f"c{self.number}k{next(self.count)}"
        for _ in range(8):
            found = self.ask("POST", "/v1/optimize", {"graph": self.graph, "passes": DIVISION, "labels": {"key": key}},
                             {"Idempotency-Key": key})
            if found and found[0] == 201:
                self.runs[key] = json.loads(found[2])["id"]
                return
            time.sleep(0.3)

    def work(self, graph, until):
        self.graph = graph
        while time.monotonic() < until:
            what = self.chance.choices([self.read, self.write, self.store, self.hold, self.run], [4, 4, 1, 2, 1])[0]
            if what in (self.read, self.write):
                what(self.chance.randrange(ALIASES))
            else:
                what()


def everywhere(replicas, path, expected=200):
    answers = [one.service.get(path) for one in replicas]
    assert {answer.status for answer in answers} == {expected}, (path, answers)
    return answers


def check_aliases(replicas, clients):
    """Each one is linearizable, its history is a chain that has each movement once, and the events of all replicas tell it."""
    events = []
    for alias in range(ALIASES):
        operations = [one for client in clients for one in client.operations[alias]]
        kept = [one for one in operations if not one.get("refused")]
        assert is_linearizable(kept, "first") is None, (alias, is_linearizable(kept, "first"))
        items = history(replicas[alias % 3].service, f"a{alias}")
        is_chain(items)
        events += [(item["id"], item["to"]) for item in items]
        told = [item["to"] for item in items]
        assert len(set(told)) == len(told)
        acknowledged = {one["value"] for one in kept if one["kind"] != "read" and one["end"] is not None}
        refused = {one["value"] for one in operations if one.get("refused")}
        asked = {one["value"] for one in operations if one["kind"] != "read"} | {"first"}
        assert acknowledged <= set(told) <= asked and not refused & set(told), (acknowledged - set(told), refused & set(told))
        for answer in everywhere(replicas, path_of(f"a{alias}")):
            assert answer.json()["version"] == told[0]
    for one in replicas:
        stream, found = Stream(one.service, last_id=0), []
        try:
            while len(found) < len(events):
                event = stream.next()
                found.append(event["id"])
        except (Ended, TimeoutError):
            pass
        stream.close()
        assert found == sorted(number for number, _ in events)


def check_writes(replicas, clients, sql):
    for client in clients:
        for graph in client.graphs:
            assert client.chance.choice(replicas).service.get(f"/v1/graphs/{graph}").status == 200, graph
        for digest, data in client.blobs.items():
            assert client.chance.choice(replicas).service.get(f"/v1/blobs/{digest}").body == data, digest
        for key, run in client.runs.items():
            found = replicas[0].service.get("/v1/runs", raw_query={"label": f"key={key}"}).json()["items"]
            assert [one["id"] for one in found] == [run], (key, run, found)
    assert sql("SELECT count(*) FROM (SELECT value FROM run_labels WHERE key = 'key' GROUP BY value HAVING count(*) > 1) "
               "doubled") == "0"


def test_nothing_is_lost_and_aliases_are_registers(tmp_path):
    postgres, s3 = databases.new_server(), buckets.Server(tmp_path / "root").start()
    postgres.make("store")
    replicas = [Replica(number, tmp_path, postgres, "store", s3) for number in range(3)]
    clients = [Client(number, replicas, SEED * 100 + number) for number in range(CLIENTS)]
    nemesis = Nemesis(replicas, postgres, random.Random(SEED))
    try:
        for one in replicas:
            one.start()
        first = replicas[0].service
        graph = first.post("/v1/graphs", branches(2, "first")).json()["id"]
        put_version(first, "m", "first", {"graph": graph})
        for alias in range(ALIASES):
            assert put_alias(first, "first", CREATE, f"a{alias}").status == 201
        until = time.monotonic() + SECONDS
        with concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
            futures = [pool.submit(client.work, graph, until) for client in clients]
            futures.append(pool.submit(Client(CLIENTS, replicas, SEED).collect, until))
            nemesis.work(until)
            for future in futures:
                future.result()
        for one in replicas:
            one.heal()
            one.start()
        deadline = time.monotonic() + 90
        while any(one.service.get("/readyz").status != 200 for one in replicas):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        check_aliases(replicas, clients)
        check_writes(replicas, clients, lambda text: postgres.sql(text, "store"))
        statuses = sum((client.statuses for client in clients), collections.Counter())
        operations = [one for client in clients for some in client.operations.values() for one in some]
        print(f"{SECONDS:.0f} s; faults: {dict(nemesis.done)}; answers: {dict(statuses)}")
        print(f"acknowledged: {sum(one['kind'] != 'read' and one['end'] is not None for one in operations)} movements of "
              "aliases, "
              f"{sum(one['kind'] == 'read' for one in operations)} reads of them, {sum(len(one.runs) for one in clients)} "
              "runs, "
              f"{sum(len(one.graphs) for one in clients)} graphs, {sum(len(one.blobs) for one in clients)} blobs")  # fmt: skip
        assert len(operations) > 5 * SECONDS and sum(nemesis.done.values()) > SECONDS / 10
        for one in replicas:
            assert one.service.stop() == 0, one.service.log()[-4000:]
        os.environ["PGPASSWORD"] = databases.SECRET
        check_store(replicas[0].service.data)
    finally:
        os.environ.pop("PGPASSWORD", None)
        for one in replicas:
            one.end()
        s3.stop()
        postgres.stop()
