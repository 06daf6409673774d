"""Files to the service and back. Interrupted transfers are resumed."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import httpx

from .progress import Meter, Progress
from .service import Problem, Query, Service, problem_of

PIECE = 1 << 20  # bytes that are read and sent at a time
PART = 64 << 20  # bytes of one request of an upload; files up to this size are sent in one
ATTEMPTS = 6  # without a byte getting through, before it is given up
LONG = 600.0  # seconds, for what has to reach the disk whole before the answer

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(path: Path, progress: Progress = False) -> str:
    """The digest of a file, by which the service knows it."""
    added = hashlib.sha256()
    with open(path, "rb") as file, Meter(f"reading {path.name}", path.stat().st_size, progress) as meter:
        while piece := file.read(PIECE):
            added.update(piece)
            meter.at(file.tell())
    return f"sha256:{added.hexdigest()}"


class _Patience:
    """How often something may fail on its way: without end, as long as it gets on."""

    def __init__(self) -> None:
        self._failures, self._best = 0, -1

    def wait(self, at: int) -> bool:
        self._failures = 1 if at > self._best else self._failures + 1
        self._best = max(at, self._best)
        if self._failures < ATTEMPTS:
            time.sleep(0.1 * 2**self._failures)
        return self._failures < ATTEMPTS


# ---- there --------------------------------------------------------------------------------------------------------------


def _pieces(file: BinaryIO, begin: int, end: int, meter: Meter) -> Iterator[bytes]:
    file.seek(begin)
    while begin < end:
        piece = file.read(min(PIECE, end - begin))
        if not piece:
            raise OSError(f"{file.name} became shorter while it was sent")
        yield piece
        begin += len(piece)
        meter.at(begin)


class Uploads:
    """Sends files. An upload that failed is remembered, so that the next call for that file goes on with it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open: dict[str, str] = {}  # the address of an upload, by the file's digest

    def send(self, path: Path, digest: str, progress: Progress) -> None:
        """Sends a file as the blob of this digest: one of up to PART bytes at once, a larger one in parts. Raises
        httpx.TransportError once nothing gets through any more, and OSError if the file becomes shorter meanwhile; the next
        call resumes."""
        size = path.stat().st_size
        with open(path, "rb") as file, Meter(f"sending {path.name}", size, progress) as meter:
            if size <= PART and digest not in self._open:
                self._send_whole(file, size, digest, meter)
            else:
                self._send_parts(file, size, digest, meter)
        self._open.pop(digest, None)

    def _send_whole(self, file: BinaryIO, size: int, digest: str, meter: Meter) -> None:
        patience = _Patience()
        while True:
            try:
                self._put(f"/v1/blobs/{digest}", _pieces(file, 0, size, meter), size)
                return
            except httpx.TransportError:
                if not patience.wait(0):
                    raise

    def _send_parts(self, file: BinaryIO, size: int, digest: str, meter: Meter) -> None:
        patience, at = _Patience(), 0
        while True:
            try:
                at = self._offset(digest)
                while at < size:
                    at = self._append(file, at, min(at + PART, size), self._open[digest], meter)
                self._put(f"{self._open[digest]}?digest={digest}", None, 0)
                return
            except httpx.TransportError:
                if not patience.wait(at):
                    raise
            except Problem as problem:
                # The service has not noticed yet that the connection is gone; or the upload is, and it begins anew.
                if problem.code == "unknown-upload":
                    self._open.pop(digest, None)
                if problem.code not in ("upload-busy", "unknown-upload") or not patience.wait(at):
                    raise

    def _offset(self, digest: str) -> int:
        """What of it has come."""
        known = self._open.get(digest)
        answer = self._service.request("GET" if known else "POST", known or "/v1/blobs/uploads")
        self._open[digest] = answer.headers["Location"]
        return int(answer.headers["Upload-Offset"])

    def _append(self, file: BinaryIO, begin: int, end: int, place: str, meter: Meter) -> int:
        headers = {"Content-Length": str(end - begin), "Content-Range": f"{begin}-{end - 1}"}
        headers["Content-Type"] = "application/octet-stream"
        answer = self._service.request("PATCH", place, _pieces(file, begin, end, meter), headers)
        return int(answer.headers["Upload-Offset"])

    def _put(self, place: str, content: Iterator[bytes] | None, size: int) -> None:
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        self._service.request("PUT", place, content, headers, timeout=LONG)


# ---- and back -----------------------------------------------------------------------------------------------------------


def download(
    service: Service,
    path: str,
    query: Query,
    target: Path,
    progress: Progress,
    digest: str | None = None,
) -> None:
    """GETs into a file, which gets its name when it is whole. Until then it is FILE.xxxxxxxx.part, as it is for the command
    line: one goes on with what the other began."""
    size, etag = _facts(service, path, query)
    tag = hashlib.sha256(etag.encode()).hexdigest()[:8]
    part = target.with_name(f"{target.name}.{tag}.part")
    with open(part, "ab") as file:
        if file.tell() > size:
            file.truncate(0)
            file.seek(0)
        with Meter(f"receiving {target.name}", size, progress, done=file.tell()) as meter:
            _fetch(service, path, query, file, size, etag, meter)
        file.flush()
        os.fsync(file.fileno())
    found = digest and digest_of(part)
    if found != digest:
        part.unlink()
        raise ValueError(f"what came is {found}, not {digest}")
    os.replace(part, target)


def _facts(service: Service, path: str, query: Query) -> tuple[int, str]:
    try:
        head = service.request("HEAD", path, headers={"Accept-Encoding": "identity"}, query=query)
    except Problem as problem:  # without a sentence, for such an answer has no body
        with service.stream(path, {}, query=query) as answer:
            if not answer.is_success:
                answer.read()
                raise problem_of(answer) from None
        raise problem
    return int(head.headers["Content-Length"]), head.headers["ETag"]


def _fetch(service: Service, path: str, query: Query, file: BinaryIO, size: int, etag: str, meter: Meter) -> None:
    patience = _Patience()
    while (begin := file.tell()) < size:
        headers = {"Accept-Encoding": "identity", "Prefer": "no-redirect"}
        if begin:
            headers["Range"] = f"bytes={begin}-"
        try:
            with service.stream(path, headers, query=query) as answer:
                if not answer.is_success:
                    answer.read()
                    raise problem_of(answer)
                if answer.headers["ETag"] != etag or answer.status_code != (206 if begin else 200):
                    raise OSError("the service sends something else than it said")
                for piece in answer.iter_raw(PIECE):
                    file.write(piece)
                    meter.at(file.tell())
        except httpx.TransportError:
            if not patience.wait(file.tell()):
                raise
