"""A service for this process alone: it starts when it is first needed, and ends with the process and its forks.

A shell beside the service waits for the end of a pipe, which the process and its forks hold open. The kernel closes the pipe
with the last of them, also after SIGKILL; then the shell ends the service and removes its folder. The shell also starts the
service again, on the same folder, when it has died. It listens at a socket in that folder, which no other user can enter. Every
request needs a token, which only this process and its forks know.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path

import httpx

from .client import Client
from .service import socket_of

SECONDS_TO_START = 60.0
LONGEST_PATH = 107  # bytes of the path of a socket

_SUPERVISOR = """
folder=$1
shift
keep() {
    trap 'kill -TERM $! 2>/dev/null; wait $! 2>/dev/null; exit' TERM
    while :; do
        "$@" >"$folder/address" 2>"$folder/log" </dev/null &
        wait $!
        [ -s "$folder/address" ] || break
    done
    : >"$folder/failed"
}
keep "$@" &
keeper=$!
cat >/dev/null
kill -TERM "$keeper" 2>/dev/null
wait "$keeper" 2>/dev/null
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
    for folder in os.get_exec_path():
        found = shutil.which("foldback", path=folder)
        if found and not _is_our_script(found):
            return found
    raise ServiceNotStarted(
        "the program foldback is neither in FOLDBACK_BINARY, nor in this package, nor on PATH. Install the wheel that has it "
        "(make wheel), set FOLDBACK_BINARY=build/foldback, or name a running service: FOLDBACK_SERVER=http://…"
    )


def _is_our_script(path: str) -> bool:
    """Says if it is the script that pip makes of `command.main` (of `private.main`, in older wheels), which looks for the
    program itself."""
    with open(path, "rb") as file:
        text = file.read(4096)
    return text.startswith(b"#!") and (b"foldback.command" in text or b"foldback.private" in text)


class _Address:
    """Where the service in a private folder listens: at a socket there, or where its path would be too long, on another port
    after each restart."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        path = f"{folder}/socket"
        self.socket = path if len(os.fsencode(path)) <= LONGEST_PATH else None
        self.listen = f"unix:{path}" if self.socket else "127.0.0.1:0"

    def read(self) -> str | None:
        try:
            line, end, _ = (self.folder / "address").read_text(errors="replace").partition("\n")
        except OSError:
            return None
        return line.removeprefix("listening on ").strip() if end and line.startswith("listening on ") else None

    def wait(self) -> str | None:
        """The address, once somebody answers there. None if the service does not start."""
        deadline = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < deadline and self.folder.exists() and not (self.folder / "failed").exists():
            found = self.read()
            if found is not None and _answers(found):
                return found
            time.sleep(0.005)
        return None

    def log(self) -> str:
        try:
            return (self.folder / "log").read_text(errors="replace").strip()
        except OSError:
            return ""


class _Transport(httpx.HTTPTransport):
    """Sends requests to where the private service listens now. A request that the service died of, or before, is sent
    again, with the same Idempotency-Key."""

    def __init__(self, address: _Address) -> None:
        super().__init__(trust_env=False, uds=address.socket)
        self._address = address

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and "Idempotency-Key" not in request.headers:
            request.headers["Idempotency-Key"] = str(uuid.uuid4())
        request.read()
        for _ in range(2):
            try:
                return self._send(request)
            except httpx.TimeoutException:
                raise
            except httpx.TransportError:
                if self._address.wait() is None:
                    raise
        return self._send(request)

    def _send(self, request: httpx.Request) -> httpx.Response:
        url = None if self._address.socket else self._address.read()
        if url is not None:
            now = httpx.URL(url)
            request.url = request.url.copy_with(host=now.host, port=now.port)
            request.headers["Host"] = now.netloc.decode()
        return super().handle_request(request)


def _answers(url: str) -> bool:
    try:
        _connected(url).close()
    except OSError:
        return False
    return True


def _connected(url: str) -> socket.socket:
    path = socket_of(url)
    if path is None:
        parts = httpx.URL(url)
        return socket.create_connection((parts.host, parts.port or 80), timeout=1)
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(1)
    try:
        made.connect(path)
    except OSError:
        made.close()
        raise
    return made


class _Connection:
    """What this process talks to. A fork talks to the same service by connections of its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.chosen: tuple[str, str | None] | None = None  # by connect(): address and token
        self.private: _Address | None = None  # of the private service
        self.token: str | None = None  # that it wants to see
        self.lifeline: int | None = None  # the end of the pipe that keeps the private service running
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.client: Client | None = None

    def forget_sockets(self) -> None:
        self.lock = threading.RLock()
        self.client = None  # its sockets are the parent's

    def get(self) -> Client:
        with self.lock:
            if self.client is not None and self.private is not None and not self.private.folder.exists():
                self.close()
            if self.client is None:
                url, token = self.chosen or (os.environ.get("FOLDBACK_SERVER"), None)
                self.client = Client(url, token=token) if url else self._private_client()
            return self.client

    def _private_client(self) -> Client:
        if self.private is None:
            self._start(find_binary())
        assert self.private is not None
        http = httpx.Client(timeout=60, trust_env=False, transport=_Transport(self.private))
        return Client("http://localhost", token=self.token, http=http)

    def _start(self, binary: str) -> None:
        folder = tempfile.mkdtemp(prefix="foldback-")  # which no other user can read
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FOLDBACK_")}
        try:
            token = _token(binary, f"{folder}/data", environment)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        reading, writing = os.pipe()  # neither end is inherited by programs, only by forks
        address = _Address(folder)
        command = [binary, "serve", "--listen", address.listen, "--data", f"{folder}/data", "--access-log", "off"]
        supervisor = subprocess.Popen(
            ["/bin/sh", "-c", _SUPERVISOR, "foldback", folder, *command],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal is not for the service
        )
        os.close(reading)
        if address.wait() is None:
            said = address.log()
            os.close(writing)
            supervisor.wait()
            raise ServiceNotStarted(f"{binary} serve does not start: {said or 'it said nothing'}")
        self.private, self.token, self.lifeline, self.supervisor = address, token, writing, supervisor
        supervisor.returncode = 0  # it outlives this process by a moment, and nobody waits for it

    def close(self) -> None:
        with self.lock:
            if self.client is not None:
                self.client.close()
            if self.lifeline is not None:
                os.close(self.lifeline)
            self.client = self.private = self.token = self.lifeline = self.supervisor = self.chosen = None


def _token(binary: str, data: str, environment: dict[str, str]) -> str:
    """Makes the only token of a new data folder: no request is answered without it."""
    made = subprocess.run(
        [binary, "token", "create", "--scope", "admin", "--name", "private", "--data", data, "--json"],
        capture_output=True,
        text=True,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    if made.returncode != 0:
        raise ServiceNotStarted(f"{binary} token create does not work: {made.stderr.strip() or 'it said nothing'}")
    return str(json.loads(made.stdout)["token"])


_connection = _Connection()
os.register_at_fork(after_in_child=_connection.forget_sockets)


def client() -> Client:
    """The client that `foldback.optimization` uses: of the service named by `connect` or FOLDBACK_SERVER, or of a private
    one, which starts now. Raises ServiceNotStarted."""
    return _connection.get()


def connect(url: str, *, token: str | None = None) -> Client:
    """Lets `foldback.optimization` use this service from now on, in this process. Gives its client."""
    with _connection.lock:
        _connection.chosen, _connection.client = (url, token), None
    return _connection.get()


def disconnect() -> None:
    """Closes the connection, and ends the private service unless a fork still uses it."""
    _connection.close()
