"""Hears of changes by webhooks, MLflow's and foldback's, and believes those that are signed.

MLflow signs as Standard Webhooks says, under names of its own for the headers, with the bytes of the secret as they are; so one
library checks both."""

from __future__ import annotations

import binascii
import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Listener", "NotSigned"]

MOST = 1 << 20  # bytes of a message
PATIENCE = 10  # seconds for one, from its connection to its answer
CONNECTIONS = 64  # at once; a new one ends the oldest
_MLFLOW = {"webhook-id": "x-mlflow-delivery-id", "webhook-timestamp": "x-mlflow-timestamp",
           "webhook-signature": "x-mlflow-signature"}


class NotSigned(Exception):
    """A message that is signed with none of the secrets, or was signed more than five minutes ago."""


class Listener:
    """Takes webhooks on `host` and `port` (0: any that is free; then `port` says which), in threads of its own.

    `mlflow_secret` is the secret of MLflow's webhook, `foldback_secret` that of foldback's (whsec_…); a message of a side
    without a secret is refused. `wait` gives the models that messages were about."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        mlflow_secret: str | None = None,
        foldback_secret: str | None = None,
    ) -> None:
        from standardwebhooks import Webhook

        if not mlflow_secret and not foldback_secret:
            raise ValueError("a listener needs the secret of MLflow's webhook, or of foldback's, or both")
        self._mlflow = Webhook(mlflow_secret.encode()) if mlflow_secret else None
        try:
            self._foldback = Webhook(foldback_secret) if foldback_secret else None
        except binascii.Error as error:
            raise ValueError("foldback's secret is whsec_ and base64") from error
        self._changed = threading.Condition()
        self._models: set[str] = set()
        self._server = _Server((host, port), _handler(self))
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="foldback.mlflow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening, and gives the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def read(self, headers: Mapping[str, str], body: bytes) -> str | None:
        """The model that a message is about; None: it is about none. Raises NotSigned."""
        given = {name.lower(): value for name, value in headers.items()}
        if "x-mlflow-signature" in given:
            data = _verified(self._mlflow, {name: given.get(theirs, "") for name, theirs in _MLFLOW.items()}, body)
            return _text(data.get("name"))
        data = _verified(self._foldback, given, body)
        return _text(data.get("model"))

    def wait(self, timeout: float | None) -> set[str]:
        """The models that messages were about since the last call; waits for one, for so many seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._models, timeout)
            models, self._models = self._models, set()
            return models

    def _note(self, models: Iterable[str]) -> None:
        with self._changed:
            self._models.update(models)
            self._changed.notify_all()


def _verified(secret: Any, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """`data` of a signed message."""
    from standardwebhooks import WebhookVerificationError

    if secret is None:
        raise NotSigned("there is no secret for messages of that side")
    try:
        secret.verify(body, dict(headers), json_parse=False)
        message = json.loads(body)
    except (WebhookVerificationError, ValueError, RecursionError) as error:  # not base64, not UTF-8, nested too deep
        raise NotSigned(str(error)) from error
    data = message.get("data") if isinstance(message, dict) else None
    return data if isinstance(data, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class _Server(http.server.ThreadingHTTPServer):
    """Ends connections that take too long, however slowly they go on."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[Any, float] = {}
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        open_now = list(self._open)
        if len(open_now) >= CONNECTIONS:
            self._end(open_now[0])
        self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:  # twice a second
        for request, begun in list(self._open.items()):
            if time.monotonic() - begun > PATIENCE:
                self._end(request)

    def _end(self, request: Any) -> None:
        """Its thread finds that nothing more comes."""
        self._open.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client has left


def _handler(listener: Listener) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = PATIENCE

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MOST:
                self._answer(413 if length.isdecimal() else 411)
                return
            body = self.rfile.read(int(length))
            if len(body) < int(length):  # it took too long
                self.close_connection = True
                return
            try:
                model = listener.read(dict(self.headers.items()), body)
            except NotSigned:
                self._answer(401)
                return
            self._answer(204)
            if model is not None:
                listener._note([model])

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")  # one message each: so the time for it is the connection's
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    return Handler
