"""Starts the real binary on a free port and talks to it over real sockets. Standard library only."""

import contextlib
import functools
import http.client
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.parse

import buckets
import databases
import pytest
from described import Description

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_TIMEOUT = STOP_TIMEOUT = 600  # seconds; a sanitizer build on a busy machine is slow
# A test that is not about these limits does not run into them, however busy the machine is.
UNHURRIED = ("--request-timeout", "3600", "--evaluation-timeout", "3600", "--webhook-timeout", "600")


def binary():
    return pathlib.Path(os.environ.get("FOLDBACK_BINARY", ROOT / "build" / "foldback")).resolve()


def is_sanitized():
    return binary().parent.name == "build-asan"


def without_sandbox(said):
    """Without what a build with a sanitizer says about the sandbox."""
    return "".join(line for line in said.splitlines(True) if not line.startswith("foldback: sandbox:"))


@functools.cache
def description():
    return Description(binary().parent / "generated" / "openapi.json")


# What looks into the database's file.
of_a_file = pytest.mark.skipif(databases.IN_USE, reason="the database is on a server")

# Graphs of real size: what is tried on each fixture is tried on these in make test-all.
LARGE_FIXTURES = {"bert-base", "resnet50"}


def pytest_collection_modifyitems(items):
    for item in items:
        if hasattr(item, "callspec") and any(value in LARGE_FIXTURES
                                             for value in item.callspec.params.values() if isinstance(value, str)):
            item.add_marker(pytest.mark.long)


class Answer:
    """status, headers (names in lower case; a repeated one is joined by ", "), body, json()."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {}
        for name, value in headers:
            name = name.lower()
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        self.body = body

    def json(self):
        return json.loads(self.body)

    def __iter__(self):  # status, headers, body = client.request(...)
        return iter((self.status, self.headers, self.body))

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class Service:
    """One process of the service over one data folder."""

    scheme = "http"

    def __init__(self, data, *options, environment=None):
        self.data = pathlib.Path(data)
        self.options = list(options)
        self.environment = environment or {}
        if buckets.IN_USE and "--blobs" not in options:
            # Nothing fits into the cache: whatever is read comes from the bucket.
            self.options += [*buckets.options(buckets.shared_server().url, buckets.prefix_of(data)), "--blobs-cache", "1"]
            self.environment = {**buckets.CREDENTIALS, **self.environment}
        if databases.IN_USE and "--store" not in options:
            self.options += ["--store", databases.shared_server().make(databases.name_of(data))]
        self.process = None
        self.log_path = self.data.parent / (self.data.name + ".log")

    def start(self):
        assert self.process is None
        command = [str(binary()), "serve", "--listen", "127.0.0.1:0", "--data", str(self.data), *UNHURRIED, *self.options]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env={**os.environ, **self.environment}
            )
        line = self._first_line()
        prefix = f"listening on {self.scheme}://"
        if not line.startswith(prefix):
            self.kill()
            raise AssertionError(f"{command} said {line!r}; its log: {self.log()[-2000:]}")
        self.host, port = line[len(prefix) :].strip().rsplit(":", 1)
        self.port = int(port)
        return self

    def _first_line(self):
        line, deadline = b"", time.monotonic() + START_TIMEOUT
        pipe = self.process.stdout.fileno()
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(pipe, 1) if ready else b""
            if not piece:
                break
            line += piece
        return line.decode(errors="replace")

    def log(self):
        """What it has logged: whole lines, as the last one may be on its way."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return text[: text.rfind("\n") + 1]

    def stop(self):
        """SIGTERM; returns the exit status."""
        if self.process is None:
            return None
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill(self):
        """SIGKILL: what a power cut leaves of the process."""
        if self.process is not None:
            self.process.kill()
            self._ended()

    def _ended(self):
        try:
            status = self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the service did not stop; its log: {self.log()[-2000:]}") from None
        finally:
            self.process.stdout.close()
            self.process = None
        return status

    def sql(self, statement):
        """Behind the service's back, which had better be stopped; rows of texts."""
        if databases.IN_USE:
            found = databases.shared_server().sql(statement, databases.name_of(self.data))
            return [line.split("|") for line in found.splitlines()]
        with contextlib.closing(sqlite3.connect(self.data / "foldback.sqlite")) as connection, connection:
            return [list(map(str, row)) for row in connection.execute(statement)]

    def restart(self):
        self.stop()
        return self.start()

    def connection(self, timeout):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    @property
    def url(self):
        return f"{self.scheme}://{self.host}:{self.port}"

    def request(self, method, path, body=None, headers=None, raw_query=None, timeout=600):
        """One request on a connection of its own. `body`: bytes, text, or anything else to be sent as JSON. `raw_query`: text
        that is sent as it is, or a dict or list of pairs to encode."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, bytearray, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        if isinstance(body, str):
            body = body.encode()
        if raw_query is not None:
            path += "?" + (raw_query if isinstance(raw_query, str) else urllib.parse.urlencode(raw_query, doseq=True))
        connection = self.connection(timeout)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()
        description().check(method, path, answer)
        return answer

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.request("POST", path, body, **options)

    def delete(self, path, **options):
        return self.request("DELETE", path, **options)

    def connect(self, timeout=600):
        return socket.create_connection((self.host, self.port), timeout)

    def raw(self, text, timeout=600, half_close=False):
        """Sends bytes as they are and returns all that comes back until the service closes the connection: the last request
        should ask for that, or be refused, unless `half_close` ends the sending side."""
        with self.connect(timeout) as connection:
            try:
                connection.sendall(text)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused in the middle: what it said counts
            answer = receive_all(connection)
        description().check_raw(answer)
        return answer


def receive_all(connection):
    answer = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return answer
        if not piece:
            return answer
        answer += piece


@pytest.fixture
def new_service(tmp_path):
    """Makes services with options of one's own: new_service("--option", "value"). All are ended with the test."""
    made = []

    def make(*options, data=None, environment=None):
        service = Service(data or tmp_path / f"data{len(made)}", *options, environment=environment)
        made.append(service)
        return service.start()

    yield make
    for service in made:
        service.kill()


@pytest.fixture
def service(new_service):
    """A service over an empty data folder, for this test only: it may be restarted and killed."""
    service = new_service()
    yield service
    if service.process is not None:
        assert service.stop() == 0, service.log()[-4000:]


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A service for tests that only add to it."""
    folder = tmp_path_factory.mktemp("shared")
    service = Service(folder / "data").start()
    yield service
    status = service.stop()
    log = service.log()
    shutil.rmtree(folder, ignore_errors=True)
    assert status == 0, log[-4000:]
