"""Workers and the service, as seen by the process that measures."""

from __future__ import annotations

import hashlib
import http.client
import json
import pathlib
import select
import shutil
import subprocess
import sys
import time
from typing import Any, BinaryIO

HERE = pathlib.Path(__file__).resolve().parent
START_LIMIT = 900.0  # seconds that making and tracing a model may take


class Worker:
    """A subject in a process of its own. After a crash or a limit it is started again for the next step."""

    def __init__(self, name: str, model: str, folder: pathlib.Path, url: str, log: BinaryIO) -> None:
        self.arguments = [sys.executable, str(HERE / "worker.py"), name, model, str(folder), url]
        self.name, self.log = name, log
        self.process: subprocess.Popen[bytes] | None = None

    def step(self, step: str, limit: float) -> dict[str, Any]:
        if self.process is not None and self.process.poll() is not None:
            self.end()  # it crashed after its last answer
        if self.process is None:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
            if step != "prepare":
                started = self._ask("start", START_LIMIT)
                if "error" in started:
                    self.end()
                    return started
        return self._ask(step, limit)

    def _ask(self, step: str, limit: float) -> dict[str, Any]:
        process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{step}\n".encode())
        process.stdin.flush()
        if not select.select([process.stdout], [], [], limit)[0]:
            self.end()
            return {"error": f"not done after {limit:.0f} s"}
        line = process.stdout.readline()
        if not line:
            status = process.wait()
            self.process = None
            return {"error": f"the process ended with status {status}"}
        return dict(json.loads(line))

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Service:
    """A foldback of its own on a free port, and a connection to it."""

    def __init__(self, binary: pathlib.Path, data: pathlib.Path) -> None:
        self.binary, self.data = binary, data
        shutil.rmtree(data, ignore_errors=True)
        self.start()

    def start(self) -> None:
        command = [str(self.binary), "serve", "--listen", "127.0.0.1:0", "--data", str(self.data), "--access-log", "off"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        self.url = line.removeprefix("listening on ")
        self.connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=600)

    def connect(self) -> None:
        """Anew, because the service closes a connection that was idle while a slow peer worked."""
        self.connection.close()
        self.connection.connect()

    def post(self, path: str, body: bytes = b"") -> bytes:
        return self._ask("POST", path, body)

    def get(self, path: str) -> bytes:
        return self._ask("GET", path, b"")

    def _ask(self, method: str, path: str, body: bytes) -> bytes:
        self.connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200].decode(errors='replace')}")
        return content

    def kill(self) -> None:
        """What a power cut leaves of it."""
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()


class Foldback:
    """The steps of foldback: requests to the service, the whole answer read."""

    def __init__(self, service: Service, document: dict[str, Any], passes: tuple[str, ...]) -> None:
        self.service, self.passes = service, passes
        self.query = "/v1/optimize?" + "&".join(f"pass={name}" for name in passes) + "&include=graph"
        self.document, self.number = document, 0
        self.run = ""

    def _new(self) -> bytes:
        """The document under another name: a graph that the service has never seen."""
        self.number += 1
        return json.dumps({**self.document, "name": f"model {self.number}"}).encode()

    def _put(self) -> bytes:
        """A request for a graph that was uploaded, but never optimised."""
        self.service.connect()
        graph = json.loads(self.service.post("/v1/graphs", self._new()))["id"]
        self.by_id = json.dumps({"graph": graph, "passes": self.passes}).encode()
        return self.by_id

    def step(self, step: str) -> dict[str, Any]:
        if step == "new":
            path, body = self.query, self._new()
        elif step == "by_id":
            path, body = "/v1/optimize", self._put()
        elif step == "again":
            path, body = "/v1/optimize", self.by_id
        elif step == "undone":
            path, body = f"/v1/runs/{self.run}/rollback", json.dumps({"passes": ["MergeLinears"]}).encode()
        else:
            path, body = f"/v1/runs/{self.run}/{step}", b""
        self.service.connect()
        start = time.perf_counter()
        content = self.service.post(path, body)
        taken = (time.perf_counter() - start) * 1e3
        if step in ("new", "by_id"):
            self.run = json.loads(content)["id"]
        return {"ms": taken}

    # ---- what it can do, found by doing it ------------------------------------------------------------------------------

    def checks(self) -> dict[str, str]:
        service = self.service
        service.connect()
        run = json.loads(service.post("/v1/optimize", self._put()))
        source, before = run["source"], service.get(f"/v1/graphs/{run['source']}")
        changed = run["result"] != source
        here = self._undone(run)
        one = self._one_pass_undone(run)
        service.kill()
        service.start()
        there = self._undone(run)
        after = service.get(f"/v1/graphs/{source}")
        kept = changed and before == after and source == "sha256:" + hashlib.sha256(after).hexdigest()
        return {"here": here, "elsewhere": there, "one": one, "input": "no" if kept else "yes"}

    def _undone(self, run: dict[str, Any]) -> str:
        answer = json.loads(self.service.post(f"/v1/runs/{run['id']}/rollback"))
        return "yes" if answer["result"] == run["source"] else "another graph came back"

    def _one_pass_undone(self, run: dict[str, Any]) -> str:
        """Every pass in turn, beside a run that never had it."""
        if len(self.passes) < 2:
            return ""
        for name in self.passes:
            others = [other for other in self.passes if other != name]
            without = json.dumps({"graph": run["source"], "passes": others}).encode()
            expected = json.loads(self.service.post("/v1/optimize", without))
            body = json.dumps({"passes": [name]}).encode()
            answer = json.loads(self.service.post(f"/v1/runs/{run['id']}/rollback", body))
            if answer["result"] != expected["result"]:
                return f"not {name}"
        return "yes"
