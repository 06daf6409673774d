"""A service over HTTP: requests, and what it says when it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import httpx

Headers = Mapping[str, str]
Query = Mapping[str, str | list[str]]


class Problem(Exception):
    """What the service says when it does not do what it was asked (RFC 9457). `body` has all of it; `code` is stable."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self.body = status, body
        self.code: str = body.get("code", "")
        super().__init__(f"{status} {body.get('title', '')}: {body.get('detail', '')}")


class Unreachable(httpx.ConnectError, ConnectionError):
    """No service answers at the address."""


class Service:
    def __init__(self, url: str, http: httpx.Client, token: str | None = None) -> None:
        self._url, self._http = url.rstrip("/"), http
        self._credentials: dict[str, str] = {"Authorization": f"Bearer {token}"} if token else {}

    def close(self) -> None:
        self._http.close()

    def json(
        self, method: str, path: str, body: Any = None, *, query: Query | None = None, timeout: float | None = None
    ) -> Any:
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
        """Anything but 2xx is a Problem."""
        wait = httpx.USE_CLIENT_DEFAULT if timeout is None else httpx.Timeout(timeout)
        sent = {**self._credentials, **(headers or {})}
        try:
            answer = self._http.request(method, self._url + path, content=content, headers=sent, params=query, timeout=wait)
        except httpx.ConnectError as error:
            said = f"no service answers at {self._url}: {error}. Start foldback serve, or give another address"
            raise Unreachable(said) from error
        if not answer.is_success:
            raise problem_of(answer)
        return answer

    def stream(self, path: str, headers: Headers, *, query: Query | None = None) -> AbstractContextManager[httpx.Response]:
        """A GET whose body is read by the caller, whatever its status."""
        return self._http.stream("GET", self._url + path, headers={**self._credentials, **headers}, params=query)


def problem_of(answer: httpx.Response) -> Problem:
    is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
    return Problem(answer.status_code, answer.json() if is_problem and answer.content else {"detail": answer.text})
