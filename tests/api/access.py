"""Tokens for tests."""


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def make_token(service, scope, name=None, by=None, expires=None):
    """The secret of a new token."""
    body = {"scope": scope} | ({"name": name} if name else {}) | ({"expires": expires} if expires else {})
    answer = service.post("/v1/tokens", body, headers=bearer(by) if by else None)
    assert answer.status == 201, answer
    return answer.json()["token"]
