"""Tokens for tests."""

import datetime
import json
import subprocess
import time

import conftest


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def in_future(**distance):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(**distance)).isoformat()


def make_first_token(service, scope, name=None, expires=None):
    """By the command line on the data folder, which the service lets go of meanwhile: it is not made over HTTP."""
    words = ["--scope", scope, *(["--name", name] if name else []), *(["--expires", expires] if expires else [])]
    service.stop()
    command = [str(conftest.binary()), "token", "create", *words, "--data", str(service.data), "--json"]
    made = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    service.start()
    return made["token"]


def make_token(service, scope, name=None, by=None, expires=None):
    """The secret of a new token."""
    if not by:
        return make_first_token(service, scope, name, expires)
    body = {"scope": scope} | ({"name": name} if name else {}) | ({"expires": expires} if expires else {})
    answer = service.post("/v1/tokens", body, headers=bearer(by))
    assert answer.status == 201, answer
    return answer.json()["token"]


def make_expired_token(service, scope, name, by):
    """One that is worth nothing any more. It must be in the future when it is made."""
    token = make_token(service, scope, name, by, in_future(seconds=5))
    deadline = time.monotonic() + 600
    while service.get("/v1/graphs", headers=bearer(token)).status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return token
