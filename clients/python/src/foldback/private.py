"""A service for this process alone: it starts when it is first needed, and ends with the process and its forks.

A shell beside the service waits for the end of a pipe, which the process and its forks hold open. The kernel closes the pipe with the
last of them, also after SIGKILL; then the shell ends the service and removes its folder.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import httpx

from .client import Client

SECONDS_TO_START = 60.0

_SUPERVISOR = """
folder=$1
shift
"$@" 2>"$folder/log" </dev/null &
service=$!
exec >/dev/null
cat >/dev/null
kill -TERM "$service" 2>/dev/null
wait "$service" 2>/dev/null
rm -rf "$folder"
"""


class ServiceNotStarted(RuntimeError):
    """The private service cannot be found, or does not start."""


def find_binary() -> str:
    """The program foldback: FOLDBACK_BINARY, or the one in this package's wheel, or the one on PATH."""
    named = os.environ.get("FOLDBACK_BINARY")
    if named:
        if not os.access(named, os.X_OK):
            raise ServiceNotStarted(f"FOLDBACK_BINARY is {named}, which is not a program that can be run")
        return os.path.abspath(named)
    packed = Path(__file__).parent / "bin" / "foldback"
    if os.access(packed, os.X_OK):
        return str(packed)
    found = shutil.which("foldback")
    if found:
        return found
    raise ServiceNotStarted(
        "the program foldback is neither in this package, nor in FOLDBACK_BINARY, nor on PATH. Build it with make and set "
        "FOLDBACK_BINARY=build/foldback, or name a running service: FOLDBACK_SERVER=http://…, or foldback.connect(url)"
    )


class _Connection:
    """What this process talks to. A fork talks to the same service by connections of its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.chosen: tuple[str, str | None] | None = None  # by connect(): address and token
        self.private: str | None = None  # address of the private service
        self.lifeline: int | None = None  # the end of the pipe that keeps the private service running
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.client: Client | None = None

    def forget_sockets(self) -> None:
        self.lock = threading.RLock()
        self.client = None  # its sockets are the parent's

    def get(self) -> Client:
        with self.lock:
            if self.client is None:
                url, token = self.chosen or (os.environ.get("FOLDBACK_SERVER") or self._private_url(), None)
                is_private = url == self.private
                http = httpx.Client(timeout=60, trust_env=False) if is_private else None
                self.client = Client(url, token=token, http=http)
            return self.client

    def _private_url(self) -> str:
        if self.private is None:
            self._start(find_binary())
        assert self.private is not None
        return self.private

    def _start(self, binary: str) -> None:
        folder = tempfile.mkdtemp(prefix="foldback-")
        reading, writing = os.pipe()  # neither end is inherited by programs, only by forks
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--data", f"{folder}/data", "--access-log", "off"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FOLDBACK_")}
        supervisor = subprocess.Popen(
            ["/bin/sh", "-c", _SUPERVISOR, "foldback", folder, *command],
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal is not for the service
        )
        os.close(reading)
        try:
            assert supervisor.stdout is not None
            line = _first_line(supervisor.stdout.fileno())
        finally:
            supervisor.stdout.close()  # type: ignore[union-attr]
        if not line.startswith("listening on "):
            try:
                said = Path(folder, "log").read_text(errors="replace").strip()
            except OSError:
                said = ""
            os.close(writing)
            supervisor.wait()
            raise ServiceNotStarted(f"{binary} serve does not start: {said or line or 'it said nothing'}")
        self.private, self.lifeline, self.supervisor = line.removeprefix("listening on ").strip(), writing, supervisor
        supervisor.returncode = 0  # it outlives this process by a moment, and nobody waits for it

    def close(self) -> None:
        with self.lock:
            if self.client is not None:
                self.client.close()
            if self.lifeline is not None:
                os.close(self.lifeline)
            self.client = self.private = self.lifeline = self.supervisor = self.chosen = None


def _first_line(descriptor: int) -> str:
    deadline, read = time.monotonic() + SECONDS_TO_START, b""
    while b"\n" not in read and (left := deadline - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left)[0]:
            piece = os.read(descriptor, 4096)
            if not piece:
                break
            read += piece
    return read.decode(errors="replace").partition("\n")[0]


_connection = _Connection()
os.register_at_fork(after_in_child=_connection.forget_sockets)


def client() -> Client:
    """The client that `foldback.optimization` uses: of the service named by `connect` or FOLDBACK_SERVER, or of a private one, which
    starts now. Raises ServiceNotStarted."""
    return _connection.get()


def connect(url: str, *, token: str | None = None) -> Client:
    """Lets `foldback.optimization` use this service from now on, in this process. Gives its client."""
    with _connection.lock:
        _connection.chosen, _connection.client = (url, token), None
    return _connection.get()


def disconnect() -> None:
    """Closes the connection, and ends the private service unless a fork still uses it."""
    _connection.close()
