"""Every route with every kind of token. The build holds openapi.yaml against the route table, its scopes included; so the
operations there are the routes, all of them."""

import http.client
import os
import pathlib
import re

import pytest
from access import bearer, make_expired_token, make_token
from conftest import Service, description

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCOPES = ["read", "write", "hooks", "admin"]
# What a token of that scope may do
MAY = {"read": {"read"}, "write": {"read", "write"}, "hooks": {"read", "hooks"}, "admin": {*SCOPES}}
METHODS = ["get", "put", "post", "patch", "delete"]
DOCUMENT = ROOT / "docs" / "access.md"


def operations():
    """(method, path, scope), in the order of the description."""
    for path, item in description().document["paths"].items():
        for method in METHODS:
            if method in item:
                security = item[method]["security"]
                yield method.upper(), path, security[0]["token"][0] if security else None


OPERATIONS = list(operations())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A service, and tokens by what they are."""
    service = Service(tmp_path_factory.mktemp("guarded") / "data").start()
    tokens = {"admin": make_token(service, "admin", "admin")}
    for scope in ("read", "write", "hooks"):
        tokens[scope] = make_token(service, scope, scope, by=tokens["admin"])
    tokens["expired"] = make_expired_token(service, "admin", "expired", by=tokens["admin"])
    tokens["revoked"] = make_token(service, "admin", "revoked", by=tokens["admin"])
    assert service.delete("/v1/tokens/revoked", headers=bearer(tokens["admin"])).status == 200
    tokens["unknown"] = "fbt_" + "A" * 43
    yield service, tokens
    assert service.stop() == 0


def ask(service, method, path, token):
    """Status and code; of an answer that does not end only its head is read."""
    path = re.sub(r"\{(digest|id)\}", "sha256:" + "0" * 64, path)
    path = re.sub(r"\{\w+\}", "nothing", path)
    headers = bearer(token) if token else {}
    body = None if method in ("GET", "HEAD", "DELETE", "OPTIONS") else b"{}"
    if body:
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(service.host, service.port, timeout=600)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        is_problem = response.getheader("Content-Type") == "application/problem+json"
        text = response.read().decode() if is_problem else ""
        code = re.search(r'"code":"([a-z-]+)"', text)
        return response.status, code[1] if code else None, response
    finally:
        connection.close()


@pytest.mark.parametrize(("method", "path", "scope"), OPERATIONS, ids=[f"{m} {p}" for m, p, _ in OPERATIONS])
def test_route(guarded, method, path, scope):
    service, tokens = guarded
    for method_asked in [method, "HEAD"] if method == "GET" else [method]:
        for kind, expected in ((None, "token-required"),
                               *((kind, "token-invalid") for kind in ("unknown", "expired", "revoked"))):
            status, code, response = ask(service, method_asked, path, tokens.get(kind))
            if scope is None:
                assert status not in (401, 403), (kind, code)
                continue
            assert status == 401 and response.getheader("WWW-Authenticate").startswith('Bearer realm="foldback"'), kind
            assert code == expected or method_asked == "HEAD"
        for kind in SCOPES:
            status, code, response = ask(service, method_asked, path, tokens[kind])
            if scope is None or scope in MAY[kind]:
                assert status not in (401, 403), (kind, code)
            else:
                assert status == 403 and (code == "scope-too-small" or method_asked == "HEAD"), kind
                assert f'error="insufficient_scope", scope="{scope}"' in response.getheader("WWW-Authenticate")


def test_nothing_was_done_by_all_this(guarded):
    service, tokens = guarded
    entries = service.get("/v1/audit?limit=1000", headers=bearer(tokens["admin"])).json()["items"]
    assert {entry["action"] for entry in entries} == {"token-create", "token-revoke"}
    assert len(entries) == 7


def test_writes_need_more_than_reads():
    """What is known of the routes without asking the table: a scope that is too small is a slip of the pen."""
    harmless = {"/v1/compare", "/v1/picture", "/v1/runs/{run}/bisect", "/v1/blobs/missing", "/v1/graphs/{id}/evaluate"}
    public = {"/", "/docs", "/ui", "/ui/{page}", "/ui/{page}/{thing}", "/openapi.yaml", "/livez", "/readyz"}
    for method, path, scope in OPERATIONS:
        if path in public:
            assert scope is None
        elif path.startswith(("/v1/tokens", "/v1/audit")) or path == "/v1/gc":
            assert scope == "admin", (method, path)
        elif path.startswith("/v1/webhooks"):
            assert scope == "hooks", (method, path)
        elif method == "GET" or path in harmless:
            assert scope == "read", (method, path)
        else:
            assert scope in ("write", "admin"), (method, path)


def test_who_has_no_token_learns_nothing_of_paths(guarded):
    service, tokens = guarded
    for method, path in (("GET", "/v1/nothing"), ("GET", "/nothing"), ("POST", "/v1/runs/x"), ("OPTIONS", "/v1/graphs"),
                         ("TRACE", "/"), ("POST", "/livez")):
        status, code, response = ask(service, method, path, None)
        assert (status, code) == (401, "token-required") and not response.getheader("Allow"), (method, path)
    assert ask(service, "GET", "/v1/nothing", tokens["read"])[:2] == (404, "not-found")
    assert ask(service, "POST", "/v1/runs/x", tokens["read"])[:2] == (405, "method-not-allowed")
    assert ask(service, "OPTIONS", "/v1/graphs", tokens["read"])[0] == 204
    # what is no HTTP is refused before anything is asked of it
    assert service.raw(b"GET /v1/graphs HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_refusals_have_the_headers_of_every_answer(guarded):
    service, tokens = guarded
    for token in (None, tokens["unknown"], tokens["read"]):
        answer = service.post("/v1/gc", headers=bearer(token) if token else None)
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.heavy
def test_access_comes_before_what_is_wrong_with_the_request(guarded):
    service, tokens = guarded
    for token, status in ((None, 401), (tokens["read"], 403)):
        headers = bearer(token) if token else {}
        for bad in ({"Content-Type": "text/plain"}, {"Accept": "image/png"}, {"Origin": "http://elsewhere"},
                    {"Content-Encoding": "br"}):
            assert service.post("/v1/optimize?x=1", b"{", headers={**headers, **bad}).status == status
        assert service.raw(
            b"POST /v1/optimize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\nExpect: 100-continue\r\n"
            + (f"Authorization: Bearer {token}\r\n" if token else "").encode()
            + b"\r\n"
        ).startswith(b"HTTP/1.1 %d " % status)


def table():
    lines = ["| Method | Path | without a token | read | write | hooks | admin |", "|---|---|---|---|---|---|---|"]
    for method, path, scope in sorted(OPERATIONS, key=lambda one: (one[1], METHODS.index(one[0].lower()))):
        cells = " | ".join("yes" if scope is None or scope in may else "–" for may in ({}, *MAY.values()))
        lines.append(f"| {method} | `{path}` | {cells} |")
    return "\n".join(lines)


@pytest.mark.heavy
def test_the_document_has_the_matrix():
    """UPDATE=1 writes it anew."""
    text = DOCUMENT.read_text()
    before, rest = text.split("<!-- matrix -->\n")
    _, after = rest.split("<!-- end of the matrix -->\n")
    current = f"{before}<!-- matrix -->\n{table()}\n<!-- end of the matrix -->\n{after}"
    if os.environ.get("UPDATE"):
        DOCUMENT.write_text(current)
    assert DOCUMENT.read_text() == current
