"""Clients that write as fast as they can until the service is killed, in processes of their own, and remember what they were
told.

Each has a graph of its own per run, a model with versions and an alias that moves, and blobs that a graph names in one of all
ways; what was acknowledged goes through a queue at the end of the round, when the connection has broken. One more collects
garbage all the time."""

import http.client
import json
import multiprocessing
import random

from blobs import digest_of, graph_of
from documents import branches
from holders import Holder, Went

PASSES = ["ChangeTrueDivToMulByInverse", "MergeLinears", "FuseBiasInLinear"]


class Killed(Exception):
    pass


class Writer:
    def __init__(self, number, seed):
        self.name, self.rng, self.count = f"writer{number}", random.Random(f"{seed} {number}"), 0
        self.versions, self.told = [], []
        self.holder = Holder(self.send, f"{self.name}-holder")

    def send(self, method, path, body=None, headers=None):
        if isinstance(body, dict):
            body, headers = json.dumps(body), {"Content-Type": "application/json", **(headers or {})}
        try:
            self.connection.request(method, path, body, headers or {})
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            raise Killed from None
        self.headers = answer.headers
        return answer.status, text

    def ask(self, method, path, body=None, headers=None):
        status, text = self.send(method, path, body, headers)
        assert status in (200, 201, 202, 204), (method, path, status, text[:500])
        return json.loads(text) if text[:1] in (b"{", b"[") else text

    def fresh(self):
        self.count += 1
        return f"{self.name}-{self.count}"

    def write_run(self):
        body = {"graph": branches(2, self.fresh()), "passes": PASSES[: self.rng.randint(1, 3)]}
        run = self.ask("POST", "/v1/optimize", body)
        self.told.append(("run", run))
        if self.rng.random() < 0.3:
            self.told.append(("run", self.ask("POST", f"/v1/runs/{run['id']}/reverse", {})))

    def write_version(self):
        name = self.fresh()
        made = self.ask("PUT", f"/v1/models/{self.name}/versions/{name}", {"graph": branches(2, name)})
        self.versions.append(name)
        self.told.append(("version", (self.name, name, made["graph"])))

    def move_alias(self):
        """Whatever was done last, which the writer may not have been told."""
        if len(self.versions) < 2:
            return self.write_version()
        path, why = f"/v1/models/{self.name}/aliases/live", self.fresh()
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        now = json.loads(answer.read())
        headers = {"If-Match": answer.headers["ETag"]} if answer.status == 200 else {"If-None-Match": "*"}
        version = self.rng.choice([name for name in self.versions if name != now.get("version")])
        self.ask("PUT", path, {"version": version, "why": why}, headers)
        self.told.append(("moved", (self.name, "live", version, why)))

    def upload(self):
        """A document names the blob before it comes, so that it stays."""
        data = self.rng.randbytes(self.rng.choice((1000, 5000, 100_000)))
        self.ask("POST", "/v1/graphs", graph_of([digest_of(data)], self.fresh()))
        self.ask("POST", "/v1/blobs/uploads")
        location = self.headers["Location"]
        for method, query, part in (("PATCH", "", data[: len(data) // 2]),
                                    ("PUT", f"?digest={digest_of(data)}", data[len(data) // 2 :])):
            status, text = self.send(method, location + query, part)
            if status in (404, 409):
                return  # between two requests an upload is garbage, too: it went, or is going
            assert status in (201, 202), (method, status, text)
        self.told.append(("blob", data))

    def hold(self):
        try:
            self.told.append(("blob", self.rng.choice(list(self.holder.ways.values()))()))
        except Went:
            pass

    def work(self):
        self.rng.choice([self.write_run] * 4 + [self.write_version, self.move_alias, self.move_alias,
                                                self.upload] + [self.hold] * 4)()

    def write_until_killed(self, host, port):
        self.connection = http.client.HTTPConnection(host, port, timeout=600)
        try:
            while True:
                self.work()
        except (Killed, OSError, http.client.HTTPException):
            pass
        finally:
            self.connection.close()
        told, self.told = self.told, []
        return told


class Collector(Writer):
    def work(self):
        self.ask("POST", "/v1/gc", {"grace_seconds": 0})


def serve_rounds(number, seed, pipe):
    writer = Writer(number, seed) if number else Collector(number, seed)
    while (address := pipe.recv()) is not None:
        try:
            pipe.send(writer.write_until_killed(*address))
        except AssertionError as wrong:
            pipe.send(str(wrong))


class Writers:
    """`count` processes and the collector, which wait for a round."""

    def __init__(self, count, seed):
        self.pipes, self.processes = [], []
        context = multiprocessing.get_context("fork")
        for number in range(count + 1):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve_rounds, args=(number, seed, theirs), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def begin(self, service):
        for pipe in self.pipes:
            pipe.send((service.host, service.port))

    def end(self, ledger):
        """After the kill: what they were told."""
        for pipe in self.pipes:
            told = pipe.recv()
            assert isinstance(told, list), told
            for kind, what in told:
                if kind == "run":
                    ledger.run(what)
                elif kind == "version":
                    ledger.versions[what[0], what[1]] = what[2]
                elif kind == "moved":
                    ledger.moved(*what)
                else:
                    ledger.blobs[digest_of(what)] = what

    def stop(self):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()
