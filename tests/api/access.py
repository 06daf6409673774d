"""Tokens for tests."""

import datetime
import time


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def in_future(**distance):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(**distance)).isoformat()


def make_token(service, scope, name=None, by=None, expires=None):
    """The secret of a new token."""
    body = {"scope": scope} | ({"name": name} if name else {}) | ({"expires": expires} if expires else {})
    answer = service.post("/v1/tokens", body, headers=bearer(by) if by else None)
    assert answer.status == 201, answer
    return answer.json()["token"]


def make_expired_token(service, scope, name, by):
    """One that is worth nothing any more. It must be in the future when it is made."""
    token = make_token(service, scope, name, by, in_future(seconds=2))
    deadline = time.monotonic() + 30
    while service.get("/v1/graphs", headers=bearer(token)).status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return token
