"""Tokens: how they are made, shown, used and revoked."""

import re
import time

import pytest
from access import bearer, in_future, make_token
from conftest import Service, receive_all

SECRET = re.compile(r"fbt_[A-Za-z0-9_-]{43}")
GRAPHS = "/v1/graphs"


def code_of(answer):
    return answer.status, answer.json()["code"]


def test_everybody_may_ask_until_there_is_a_token(service):
    assert service.get(GRAPHS).status == 200
    assert service.get(GRAPHS, headers=bearer("fbt_" + "x" * 43)).status == 200  # nothing to compare it with
    admin = make_token(service, "admin", "boss")
    refused = service.get(GRAPHS)
    assert code_of(refused) == (401, "token-required")
    assert refused.headers["www-authenticate"] == 'Bearer realm="foldback"'
    assert service.get(GRAPHS, headers=bearer(admin)).status == 200
    assert code_of(service.post("/v1/tokens", {"scope": "admin"})) == (401, "token-required")
    service.restart()
    assert service.get(GRAPHS).status == 401
    assert service.get(GRAPHS, headers=bearer(admin)).status == 200
    # also when the last one is gone: nothing becomes open by revoking
    assert service.delete("/v1/tokens/boss", headers=bearer(admin)).status == 200
    assert service.get(GRAPHS).status == 401
    service.restart()
    assert service.get(GRAPHS).status == 401


def test_a_token_is_shown_once_and_kept_as_a_digest(service):
    admin = bearer(make_token(service, "admin", "boss"))
    body = {"name": "ci", "scope": "write", "expires": "2099-12-31T23:59:59+01:00"}
    made = service.post("/v1/tokens", body, headers=admin)
    assert made.status == 201 and made.headers["location"] == "/v1/tokens/ci" and made.headers["cache-control"] == "no-store"
    token = made.json()
    secret = token.pop("token")
    assert SECRET.fullmatch(secret)
    assert token["expires"] == "2099-12-31T22:59:59.000Z" and token["revoked"] is None and token["last_used"] is None
    service.stop()
    files = [path for path in service.data.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert secret.encode() not in path.read_bytes(), path
    assert service.sql("SELECT count(*) FROM tokens WHERE digest LIKE 'sha256:%'") == [["2"]]
    service.start()


def test_tokens_are_listed_without_their_secrets(service):
    admin = make_token(service, "admin", "boss")
    made = [make_token(service, "read", f"t{i}", by=admin) for i in range(5)]
    assert len({admin, *made}) == 6
    listed, page = [], ""
    while True:
        answer = service.get(f"/v1/tokens?limit=2{page}", headers=bearer(admin))
        assert answer.status == 200 and not SECRET.search(answer.body.decode())
        listed += [item["name"] for item in answer.json()["items"]]
        if "next_page_token" not in answer.json():
            break
        page = "&page_token=" + answer.json()["next_page_token"]
    assert listed == ["t4", "t3", "t2", "t1", "t0", "boss"]
    one = service.get("/v1/tokens/t1", headers=bearer(admin))
    assert one.status == 200 and one.json()["scope"] == "read"
    assert code_of(service.get("/v1/tokens/none", headers=bearer(admin))) == (404, "unknown-token")


def test_a_name_is_made_up_and_never_given_twice(service):
    admin = make_token(service, "admin")
    name = service.get("/v1/tokens", headers=bearer(admin)).json()["items"][0]["name"]
    assert re.fullmatch(r"token-[0-9a-f]{10}", name)
    make_token(service, "read", "ci", by=admin)
    assert service.delete("/v1/tokens/ci", headers=bearer(admin)).status == 200
    again = service.post("/v1/tokens", {"name": "ci", "scope": "read"}, headers=bearer(admin))
    assert code_of(again) == (409, "token-exists")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A service with an admin's token, and that."""
    service = Service(tmp_path_factory.mktemp("guarded") / "data").start()
    yield service, bearer(make_token(service, "admin", "boss"))
    assert service.stop() == 0


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "missing-member"),
        ({"scope": "root"}, 422, "unknown-scope"),
        ({"scope": "none"}, 422, "unknown-scope"),
        ({"scope": 1}, 422, "wrong-type"),
        ({"scope": "read", "name": "a b"}, 422, "bad-name"),
        ({"scope": "read", "name": ""}, 422, "bad-name"),
        ({"scope": "read", "name": "local"}, 422, "reserved-name"),
        ({"scope": "read", "name": "anonymous"}, 422, "reserved-name"),
        ({"scope": "read", "name": "service"}, 422, "reserved-name"),
        ({"scope": "read", "expires": "tomorrow"}, 422, "bad-time"),
        ({"scope": "read", "expires": "2099-02-29"}, 422, "bad-time"),
        ({"scope": "read", "expires": "2099-01-01T00:00:00"}, 422, "bad-time"),
        ({"scope": "read", "expires": "1970-01-01"}, 422, "bad-time"),
        ({"scope": "read", "expires": 1}, 422, "wrong-type"),
        ({"scope": "read", "expires": "1" * 1001}, 422, "expires-too-long"),
        ({"scope": "read", "token": "fbt_"}, 422, "unknown-member"),
    ],
)
def test_what_makes_no_token(guarded, body, status, code):
    service, admin = guarded
    assert code_of(service.post("/v1/tokens", body, headers=admin)) == (status, code)
    assert len(service.get("/v1/tokens", headers=admin).json()["items"]) == 1


@pytest.mark.parametrize("body", [{"scope": "admin"}, {"scope": "read", "name": "me"}, {"scope": "root"}, {}])
def test_the_first_token_is_not_made_over_http(shared, body):
    assert code_of(shared.post("/v1/tokens", body)) == (403, "first-token")
    assert shared.get("/v1/tokens").json()["items"] == []


def test_a_revocation_counts_at_once_for_open_connections_too(service):
    admin, other = make_token(service, "admin", "boss"), None
    other = make_token(service, "read", "other", by=admin)
    ask = f"GET {GRAPHS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {other}\r\n"
    with service.connect() as connection:
        connection.sendall((ask + "\r\n").encode())
        assert b" 200 " in connection.recv(65536).split(b"\r\n")[0]
        revoked = service.delete("/v1/tokens/other", headers=bearer(admin))
        assert revoked.status == 200 and revoked.json()["revoked"]
        connection.sendall((ask + "Connection: close\r\n\r\n").encode())
        answer = receive_all(connection)
    assert b" 401 " in answer.split(b"\r\n")[0] and b"token-invalid" in answer and b"revoked" in answer
    again = service.delete("/v1/tokens/other", headers=bearer(admin))
    assert again.status == 200 and again.json()["revoked"] == revoked.json()["revoked"]
    service.restart()
    assert service.get(GRAPHS, headers=bearer(other)).status == 401


def test_a_token_may_revoke_itself(service):
    admin = make_token(service, "admin", "boss")
    assert service.delete("/v1/tokens/boss", headers=bearer(admin)).status == 200
    refused = service.get(GRAPHS, headers=bearer(admin))
    assert code_of(refused) == (401, "token-invalid")
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]


def test_a_token_expires(service):
    admin = make_token(service, "admin", "boss")
    long = make_token(service, "read", "long", by=admin, expires=in_future(days=1))
    short = make_token(service, "read", "short", by=admin, expires=in_future(seconds=5))
    assert service.get(GRAPHS, headers=bearer(short)).status == 200
    deadline = time.monotonic() + 600
    while service.get(GRAPHS, headers=bearer(short)).status == 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    refused = service.get(GRAPHS, headers=bearer(short))
    assert code_of(refused) == (401, "token-invalid") and "expired" in refused.json()["detail"]
    assert service.get(GRAPHS, headers=bearer(long)).status == 200


def test_a_token_that_has_expired_already_is_refused(service):
    """And its name is not used up."""
    admin = make_token(service, "admin", "boss")
    for past in ("2020-01-01", in_future(seconds=-1)):
        body = {"scope": "read", "name": "late", "expires": past}
        answer = service.post("/v1/tokens", body, headers=bearer(admin))
        assert code_of(answer) == (422, "already-expired") and answer.json()["pointer"] == "/expires"
    assert len(service.get("/v1/tokens", headers=bearer(admin)).json()["items"]) == 1
    late = make_token(service, "read", "late", by=admin, expires=in_future(days=1))
    assert service.get(GRAPHS, headers=bearer(late)).status == 200


def test_the_last_use_is_recorded_and_survives_a_restart(service):
    admin = make_token(service, "admin", "boss")
    used = make_token(service, "read", "used", by=admin)
    make_token(service, "read", "unused", by=admin)

    def last_use(name):
        return service.get(f"/v1/tokens/{name}", headers=bearer(admin)).json()["last_used"]

    assert last_use("used") is None
    service.get(GRAPHS, headers=bearer(used))
    first = last_use("used")
    assert first
    time.sleep(0.01)
    service.post("/v1/gc", headers=bearer(used))  # refused, and a use all the same
    second = last_use("used")
    assert second > first
    service.restart()
    assert last_use("used") == second and last_use("unused") is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Authorization: Bearer {}", 200),
        ("authorization: bearer {}", 200),
        ("AUTHORIZATION: BEARER {}", 200),
        ("Authorization: Bearer   {}", 200),
        ("Authorization:Bearer {}  ", 200),
        ("Authorization: {}", 401),
        ("Authorization: Bearer", 401),
        ("Authorization: Bearer ", 401),
        ("Authorization: Bearer\t{}", 401),
        ("Authorization: Bearer{}", 401),
        ("Authorization: Bearers {}", 401),
        ("Authorization: Bearer {0},{0}", 401),
        ("Authorization: Bearer {0} {0}", 401),
        ("Authorization: Bearer {}x", 401),
        ('Authorization: Bearer "{}"', 401),
        ("Authorization: Bearer token={}", 401),
        ("Authorization: Basic {}", 401),
        ("Authorization: Token {}", 401),
        ("Authorization: Digest username={}", 401),
        ("Authorization: Bearer {0}\r\nAuthorization: Bearer {0}", 401),
        ("Authorization: Basic xyz\r\nAuthorization: Bearer {0}", 401),
        ("Proxy-Authorization: Bearer {}", 401),
        ("X-Api-Key: {}", 401),
        ("Cookie: token={}", 401),
        ("Authorization: Bearer " + "x" * 30000, 401),
        ("Authorization: Bearer fbt_" + "x" * 43, 401),
        ("Authorization: Bearer fbt_" + "é" * 20, 401),
        ("Authorization: Bearer fbt_%00", 401),
    ],
)
def test_how_a_token_is_sent(reading, headers, status):
    service, token = reading
    head = f"GET {GRAPHS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers.format(token)}\r\n\r\n"
    answer = service.raw(head.encode())
    assert int(answer[9:12]) == status, answer


def test_a_token_is_not_taken_from_the_target(reading):
    service, token = reading
    for target in (f"{GRAPHS}?token={token}", f"{GRAPHS}?access_token={token}", f"/metrics?access_token={token}"):
        answer = service.get(target)
        assert code_of(answer) == (401, "token-required")
        assert token not in answer.body.decode() and token not in str(answer.headers)
    assert code_of(service.get(f"{GRAPHS}?access_token={token}", headers=bearer(token))) == (422, "unknown-parameter")
    assert token not in service.log()


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    from conftest import Service

    service = Service(tmp_path_factory.mktemp("reading") / "data").start()
    admin = make_token(service, "admin", "boss")
    yield service, make_token(service, "read", "reader", by=admin)
    assert service.stop() == 0


def test_one_bit_off_is_another_token(reading):
    service, token = reading
    for place in range(4, len(token)):
        other = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert service.get(GRAPHS, headers=bearer(other)).status == 401
    assert service.get(GRAPHS, headers=bearer(token)).status == 200


def test_a_stream_ends_with_its_token(new_service):
    service = new_service("--heartbeat", "86400")  # nothing else wakes it
    admin = make_token(service, "admin", "boss")
    other = make_token(service, "read", "other", by=admin)
    head = "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n"
    with service.connect(timeout=600) as doomed, service.connect(timeout=600) as kept:
        doomed.sendall(head.format(other).encode())
        kept.sendall(head.format(admin).encode())
        assert b" 200 " in doomed.recv(65536) and b" 200 " in kept.recv(65536)
        service.delete("/v1/tokens/other", headers=bearer(admin))
        receive_all(doomed)  # returns, because the service closes or ends it
        kept.settimeout(0.2)
        with pytest.raises(TimeoutError):
            while kept.recv(65536):
                pass


def test_a_stream_of_nobody_ends_when_tokens_are_needed(new_service):
    service = new_service("--heartbeat", "86400")
    with service.connect(timeout=600) as stream:
        stream.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 200 " in stream.recv(65536)
        make_token(service, "admin", "boss")
        receive_all(stream)


def test_a_refused_upload_is_not_kept(service):
    admin = make_token(service, "admin", "boss")
    digest = "sha256:" + "0" * 64
    for method, path in (("PUT", f"/v1/blobs/{digest}"), ("POST", "/v1/blobs/uploads")):
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\nExpect: 100-continue\r\n\r\n"
        answer = service.raw(head.encode())
        assert answer.startswith(b"HTTP/1.1 401 ") and b"100 Continue" not in answer
    assert service.get("/v1/blobs", headers=bearer(admin)).json()["items"] == []
    assert list((service.data / "uploads").iterdir()) == []
