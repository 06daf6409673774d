"""A service over HTTP: requests, and what it says when it refuses."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import httpx

Headers = Mapping[str, str]
Query = Mapping[str, str | list[str]]


ATTEMPTS = 4  # of a request that may be sent again
CONNECT = 10.0  # seconds
IN_PROGRESS = 60.0  # seconds for which a request is waited for whose first attempt still runs
# Where the service knows a request again by its Idempotency-Key.
_KEYED = (
    "/v1/optimize", "/v1/reverse", "/v1/runs", "/v1/graphs", "/v1/checkpoints", "/v1/compare", "/v1/models",
    "/v1/gc", "/v1/jobs",
)


class Problem(Exception):
    """What the service says when it does not do what it was asked (RFC 9457). `body` has all of it; `code` is stable."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self.body = status, body
        self.code: str = body.get("code", "")
        hint = f" (did you mean {body['did_you_mean']}?)" if "did_you_mean" in body else ""
        super().__init__(f"{status} {body.get('title', '')}: {body.get('detail', '')}{hint}")


class Unreachable(httpx.ConnectError, ConnectionError):
    """No service answers at the address."""


def socket_of(url: str) -> str | None:
    """The path in "unix:PATH"; None for any other address."""
    return url.removeprefix("unix:") if url.startswith("unix:") else None


class Service:
    """A service's address, the connection to it, and the token that it wants to see."""

    def __init__(self, url: str, http: httpx.Client, token: str | None = None) -> None:
        self._url, self._http = url.rstrip("/"), http
        self._base = self._url if socket_of(url) is None else "http://localhost"
        self._credentials: dict[str, str] = {"Authorization": f"Bearer {token}"} if token else {}

    def close(self) -> None:
        """Closes the connection."""
        self._http.close()

    def json(
        self, method: str, path: str, body: Any = None, *, query: Query | None = None, timeout: float | None = None
    ) -> Any:
        """Sends `body` as JSON and gives the answer's JSON. Raises what `request` does, and ValueError for infinity and NaN,
        which JSON cannot hold."""
        content = None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        return self.request(method, path, content, headers, query=query, timeout=timeout).json()

    def request(
        self,
        method: str,
        path: str,
        content: bytes | Iterable[bytes] | None = None,
        headers: Headers | None = None,
        *,
        query: Query | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        """Anything but 2xx is a Problem. A request that the service was too busy for (503 or 429 with Retry-After) is sent
        again, and so is one whose connection broke, where the service knows it again. While its first attempt still runs
        (409 request-in-progress) this waits for it, for IN_PROGRESS seconds at most."""
        wait = httpx.USE_CLIENT_DEFAULT if timeout is None else httpx.Timeout(timeout, connect=CONNECT)
        sent = {**self._credentials, **(headers or {})}
        if method == "POST" and path.startswith(_KEYED):
            sent.setdefault("Idempotency-Key", str(uuid.uuid4()))
        is_repeatable = content is None or isinstance(content, bytes)
        left = ATTEMPTS if is_repeatable else 1
        is_known = "Idempotency-Key" in sent
        may_break = method != "POST" or is_known
        pause, waited = 0.1, 0.0
        while True:
            left -= 1
            pause *= 2
            after: float | None = None
            try:
                answer = self._http.request(method, self._base + path, content=content, headers=sent,
                                            params=query, timeout=wait)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                said = f"no service answers at {self._url}: {error}. Start foldback serve, or give another address"
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    said = f"{self._url} is not trusted: {error}. Name certificates to trust: ca_file=…, or $SSL_CERT_FILE"
                raise Unreachable(said) from error
            except (httpx.TimeoutException, httpx.UnsupportedProtocol):
                raise
            except httpx.TransportError:
                if not left or not may_break:
                    raise
            else:
                if answer.is_success:
                    return answer
                after = _seconds_to_wait(answer)
                is_running = answer.status_code == 409 and is_known and is_repeatable
                if after is not None and is_running and waited < IN_PROGRESS:
                    left, pause = left + 1, pause / 2
                    waited += max(pause, after)
                elif not left or after is None or answer.status_code == 409:
                    raise problem_of(answer)
            time.sleep(max(pause, after or 0))

    def stream(self, path: str, headers: Headers, *, query: Query | None = None) -> AbstractContextManager[httpx.Response]:
        """A GET whose body is read by the caller, whatever its status."""
        return self._http.stream("GET", self._base + path, headers={**self._credentials, **headers}, params=query)


def problem_of(answer: httpx.Response) -> Problem:
    """The Problem in an answer that is not 2xx. An answer of a proxy, which has none, gives its text as the detail."""
    is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
    return Problem(answer.status_code, answer.json() if is_problem and answer.content else {"detail": answer.text})


LONGEST_WAIT = 30.0  # seconds; a service that asks for more is not waited for


def _seconds_to_wait(answer: httpx.Response) -> float | None:
    """What a service asks for that is too busy, or still at the request; None where sending it again would not help."""
    after = answer.headers.get("Retry-After", "")
    if answer.status_code not in (409, 429, 503) or not after.isdigit() or float(after) > LONGEST_WAIT:
        return None
    return float(after)


def events_in(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """The fields of each event of a stream (text/event-stream)."""
    fields: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif not line:
            if fields:
                yield fields
            fields = {}
