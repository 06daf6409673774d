"""Jobs: what the service does in the background."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from .service import Service, events_in, problem_of

ENDS = ("succeeded", "failed", "cancelled")
PREFER = {"Prefer": "respond-async"}


class Cancelled(Exception):
    """The job was cancelled: it has no result."""


@dataclass(frozen=True)
class Event:
    """What happened to a job: "queued", "running", "progress", "graph" (one of many is done), and how it ended."""

    number: int
    kind: str
    data: dict[str, Any]


class Job:
    """A request that is answered later. The service goes on with it whoever waits, and over its own restarts."""

    def __init__(self, service: Service, job: str) -> None:
        self._service, self.id = service, job

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def info(self) -> dict[str, Any]:
        """Its state, its progress, and what it answered, when it has."""
        return dict(self._service.json("GET", f"/v1/jobs/{self.id}"))

    def cancel(self) -> dict[str, Any]:
        """Ends it; what it has not stored by then is not stored. A Problem, `job-finished`, when it has ended."""
        return dict(self._service.json("DELETE", f"/v1/jobs/{self.id}"))

    def events(self, after: int | None = None) -> Iterator[Event]:
        """What happens to it, until it has ended. When the connection breaks it is made again, and no event comes twice."""
        while True:
            headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": str(after)})
            try:
                with self._service.stream(f"/v1/jobs/{self.id}/events", headers) as answer:
                    if answer.status_code == httpx.codes.NO_CONTENT:
                        return
                    if not answer.is_success:
                        answer.read()
                        raise problem_of(answer)
                    for fields in events_in(answer.iter_lines()):
                        if "data" not in fields:
                            continue
                        event = Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
                        after = event.number
                        yield event
                        if event.kind in ENDS:
                            return
            except httpx.TransportError:
                time.sleep(1)

    def wait(self, timeout: float | None = None) -> Any:
        """What the request would have been answered at once, when it has been done: a run, or of many graphs the list of what
        became of each. Raises Problem when that is one, Cancelled, and TimeoutError after so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.05
        while (state := self.info()["state"]) not in ENDS:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.id} is {state} after {timeout} seconds")
            time.sleep(pause)
            pause = min(2 * pause, 1.0)
        if state == "cancelled":
            raise Cancelled(self.id)
        return self.result()

    def result(self) -> Any:
        """The same without waiting: a Problem, `job-not-finished`, when it is too early."""
        answer = self._service.request("GET", f"/v1/jobs/{self.id}/result")
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.json() if is_json else answer.content
