"""Pages of other origins: none may use the service, but those that the operator names."""

import pytest
from access import bearer, make_token
from cli import CommandLine
from documents import branches

OURS, OTHER = "https://registry.example", "https://elsewhere.example"
ASKING = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization,if-match"}


@pytest.fixture
def open_to(new_service):
    return lambda *origins: new_service(*(word for origin in origins for word in ("--cors-origin", origin)))


def allowed(answer):
    return answer.headers.get("access-control-allow-origin")


def test_off_by_default(service):
    for headers in ({"Origin": OTHER}, {"Origin": OTHER, **ASKING}):
        for method in ("GET", "OPTIONS"):
            answer = service.request(method, "/v1/models", headers=headers)
            assert not [name for name in answer.headers if name.startswith("access-control-")] and "vary" not in answer.headers
    assert service.post("/v1/optimize", {"graph": branches(2), "passes": []},
                        headers={"Origin": OTHER}).json()["code"] == "foreign-origin"


def test_a_preflight_needs_no_token_and_says_what_may_be_sent(open_to):
    service = open_to(OURS)
    make_token(service, "admin")
    answer = service.request("OPTIONS", "/v1/models/m/aliases/a", headers={"Origin": OURS, **ASKING})
    assert answer.status == 204 and allowed(answer) == OURS and answer.headers["vary"] == "Origin"
    assert {"PUT", "PATCH", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    assert {"Authorization", "If-Match", "Idempotency-Key",
            "Last-Event-ID"} <= set(answer.headers["access-control-allow-headers"].split(", "))
    assert answer.headers["access-control-max-age"] == "600"
    # it tells nothing of what there is
    nothing = service.request("OPTIONS", "/v1/nothing", headers={"Origin": OURS, **ASKING})
    assert (nothing.status, nothing.headers.get("allow")) == (204, None)
    # and is none for others, or without what makes it one
    for headers in ({"Origin": OTHER, **ASKING}, {"Origin": "null", **ASKING}, {"Origin": OURS}, ASKING):
        answer = service.request("OPTIONS", "/v1/models", headers=headers)
        assert answer.status == 401 and "access-control-allow-methods" not in answer.headers, headers


def test_what_a_page_may_read_and_write(open_to):
    service = open_to(OURS, "http://localhost:3000")
    token = make_token(service, "admin")
    for origin in (OURS, "http://localhost:3000"):
        page = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", **bearer(token)}
        made = service.request("PUT", f"/v1/models/m/versions/{len(origin)}", {"graph": branches(2)}, page)
        assert made.status == 201 and allowed(made) == origin
        assert "ETag" in made.headers["access-control-expose-headers"] and made.headers["vary"].endswith("Origin")
        read = service.get("/v1/models", headers=page)
        assert read.status == 200 and allowed(read) == origin
        # refusals, too: else the page could not read why
        for answer in (service.get("/v1/models", headers={"Origin": origin}), service.get("/v1/models/none", headers=page)):
            assert answer.status in (401, 404) and allowed(answer) == origin
    for answer in (made, read):
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "origin",
    [OTHER, "https://registry.example.evil", "https://registry.example:444", "http://registry.example",
     "https://REGISTRY.example", "null", "*", "",
     "https://registry.example/", "https://evil.registry.example", f"{OURS}, {OTHER}"],
)
def test_others_stay_out(open_to, origin):
    service = open_to(OURS)
    answer = service.get("/v1/models", headers={"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"})
    assert answer.status == 403 and answer.json()["code"] == "foreign-origin" and not allowed(answer)
    answer = service.post("/v1/optimize", {"graph": branches(2), "passes": []}, headers={"Origin": origin})
    assert answer.status == 403 and not allowed(answer)
    answer = service.get("/v1/models")  # no browser
    assert answer.status == 200 and not allowed(answer) and answer.headers["vary"] == "Origin"


def test_two_origins_are_none(open_to):
    service = open_to(OURS)
    answer = service.raw(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         + f"Origin: {OURS}\r\nOrigin: {OTHER}\r\n\r\n".encode())
    assert b"Access-Control-Allow-Origin" not in answer


def test_events_of_a_page(open_to):
    service = open_to(OURS)
    with service.connect() as connection:
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n"
                           + f"Origin: {OURS}\r\n\r\n".encode())
        head = connection.recv(65536)
    assert head.startswith(b"HTTP/1.1 200 ") and f"Access-Control-Allow-Origin: {OURS}\r\n".encode() in head


@pytest.mark.parametrize("origin", ["*", "registry.example", "https://", "https://registry.example/", "https://*.example",
                                    "null", "https://A.example", "ftp://a"])
def test_what_is_no_origin(tmp_path, origin):
    done = CommandLine(tmp_path)("serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--cors-origin", origin)
    assert done.status == 2 and "--cors-origin" in done.err
