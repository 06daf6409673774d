"""A service without tokens, and web pages: what browsers send for pages of other origins, and for pages whose name was made to
point to this machine after they were loaded (DNS rebinding), reads nothing and changes nothing."""

import json
import subprocess

import pytest
from access import bearer, make_token
from conftest import binary
from documents import branches

DOCUMENT = json.dumps(branches(2, "rebound")).encode()
EVIL = "evil.example"


def ask(service, method, path, host, body=None, **headers):
    """(status, code or None), with `host` as it stands."""
    sent = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    answer = service.request(method, path, body, sent)
    code = answer.json().get("code") if answer.body and "problem+json" in answer.headers.get("content-type", "") else None
    return answer.status, code


def page(authority, site="same-origin", mode="cors", scheme="http"):
    """What a browser adds for a script of that origin."""
    return {"Origin": f"{scheme}://{authority}", "Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": "empty"}


LOOPBACK = [
    "localhost", "LocalHost", "LOCALHOST", "localhost.", "127.0.0.1", "127.0.0.1.", "127.1.2.3", "127.255.255.254", "[::1]",
    "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]",
]
FOREIGN = [
    EVIL, "evil.example.", "EVIL.EXAMPLE", "localhost.evil.example", "127.0.0.1.evil.example", "evil.localhost", "localhost..",
    "xlocalhost", "127.0.0.1x", "127.0.0.256", "127.1", "0x7f.0.0.1", "2130706433", "0177.0.0.1", "128.0.0.1", "0.0.0.0",
    "10.0.0.5", "[::]",
    "[::2]", "[fe80::1]", "[::ffff:10.0.0.1]", "[localhost]", "[127.0.0.1]", "::1", "[::1", "[::1]x", "localhost:80:80",
    "localhost:http",
    "localhost:123456", "localhost%2eevil.example", ".localhost", ".", "local", "a" * 300, "127.0.0.1;evil.example",
]


@pytest.mark.parametrize("port", ["", ":8080", ":1", ":"])
@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_is_answered(shared, host, port):
    assert ask(shared, "GET", "/v1/graphs", host + port)[0] == 200
    assert ask(shared, "POST", "/v1/graphs", host + port, DOCUMENT, **page(host + port))[0] in (200, 201)


@pytest.mark.parametrize("host", FOREIGN)
def test_no_other_name_is(shared, host):
    assert ask(shared, "GET", "/v1/graphs", host) == (403, "foreign-host")
    assert ask(shared, "HEAD", "/v1/graphs", host)[0] == 403


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/", None), ("GET", "/docs", None), ("GET", "/openapi.yaml", None), ("GET", "/metrics", None),
        ("GET", "/v1/graphs", None),
        ("GET", "/v1/audit", None), ("GET", "/v1/events", None), ("GET", "/absent", None), ("OPTIONS", "/v1/graphs", None),
        ("POST", "/v1/graphs", DOCUMENT), ("POST", "/v1/tokens", b'{"scope":"admin"}'), ("POST", "/v1/gc", b"{}"),
        ("PUT", "/v1/models/m/versions/v1", b'{"graph":"x"}'), ("DELETE", "/v1/tokens/boss", None),
    ],
)
def test_a_rebound_page_gets_nothing(shared, method, path, body):
    """Of its own name and port, so same-origin to the browser."""
    authority = f"{EVIL}:{shared.port}"
    before = shared.get("/v1/graphs").json()
    assert ask(shared, method, path, authority, body, **page(authority)) == (403, "foreign-host")
    assert shared.get("/v1/graphs").json() == before and shared.get("/v1/tokens").json()["items"] == []


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
@pytest.mark.parametrize("host", [EVIL, "10.42.0.17:8080", "[fd00::17]:8080"])
def test_probes_are_answered_whatever_the_host(shared, path, host):
    """Kubernetes asks for the address of the pod."""
    assert ask(shared, "GET", path, host) == (200, None)


def test_a_request_without_host(shared):
    """HTTP/1.0: no browser sends that."""
    assert b" 200 " in shared.raw(b"GET /v1/graphs HTTP/1.0\r\n\r\n").split(b"\r\n")[0]


@pytest.mark.parametrize("target", ["http://127.0.0.1/v1/graphs", "http://evil.example/v1/graphs", "evil.example:80",
                                    "//evil.example/v1/graphs"])
@pytest.mark.parametrize("host", ["localhost", EVIL])
def test_targets_with_a_host_are_not_taken(shared, target, host):
    answer = shared.raw(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"400", b"403", b"404"), answer[:300]


def test_two_hosts_are_none(shared):
    for first, second in (("localhost", EVIL), (EVIL, "localhost")):
        answer = shared.raw(f"GET /v1/graphs HTTP/1.1\r\nHost: {first}\r\nHost: {second}\r\n\r\n".encode())
        assert b" 400 " in answer.split(b"\r\n")[0]


# ---- pages of other origins that ask for localhost ------------------------------------------------------------------------

SIMPLE = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain;charset=UTF-8"]


@pytest.mark.parametrize("kind", [*SIMPLE, "application/json"])
@pytest.mark.parametrize("origin", [f"http://{EVIL}", "http://localhost:3000", "https://localhost", "null", "file://",
                                    "chrome-extension://abc"])
def test_a_cross_site_write(shared, kind, origin):
    """A form, or fetch with mode no-cors: sent without asking first."""
    host = f"localhost:{shared.port}"
    before = shared.get("/v1/graphs").json()
    for more in ({}, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
                 {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}):
        found = ask(shared, "POST", "/v1/graphs", host, DOCUMENT, Origin=origin, Content_Type=kind, **more)
        assert found == (403, "foreign-origin")
    assert shared.get("/v1/graphs").json() == before


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_cross_site_write_without_origin(shared, site):
    found = ask(shared, "POST", "/v1/graphs", f"localhost:{shared.port}", DOCUMENT, Sec_Fetch_Site=site)
    assert found == (403, "foreign-origin")


@pytest.mark.parametrize("mode", ["no-cors", "cors", "websocket"])
def test_a_cross_site_read(shared, mode):
    """An image or script of a page elsewhere: it could not be read, and would still cost work. A link may be followed."""
    host = f"localhost:{shared.port}"
    assert ask(shared, "GET", "/v1/graphs", host, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode=mode) == (403, "foreign-origin")
    assert ask(shared, "GET", "/v1/graphs", host, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate") == (200, None)
    for site in ("same-origin", "none"):
        assert ask(shared, "GET", "/v1/graphs", host, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode) == (200, None)
    assert ask(shared, "GET", "/livez", host, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode=mode) == (200, None)


def test_no_answer_lets_another_origin_read(shared):
    for method, headers in (("GET", {}), ("OPTIONS", {"Access-Control-Request-Method": "POST"})):
        answer = shared.request(method, "/v1/graphs", headers={"Origin": f"http://{EVIL}", **headers})
        assert not any(name.startswith("access-control-") for name in answer.headers)


# ---- what changes it ------------------------------------------------------------------------------------------------------


def test_allow_host(new_service):
    service = new_service("--allow-host", "Registry.example", "--allow-host", "10.0.0.5", "--allow-host", "fd00::5")
    for host in ("registry.example", "REGISTRY.example.:8080", "10.0.0.5:80", "[fd00::5]", "[FD00:0::5]:8080", "localhost"):
        assert ask(service, "GET", "/v1/graphs", host) == (200, None)
        assert ask(service, "POST", "/v1/graphs", host, DOCUMENT, **page(host))[0] in (200, 201)
    for host in (EVIL, "x.registry.example", "registry.example.evil.example", "10.0.0.6", "[fd00::6]", "fd00::5"):
        assert ask(service, "GET", "/v1/graphs", host) == (403, "foreign-host")
    # Another name of those allowed is still another origin.
    assert ask(service, "POST", "/v1/graphs", "localhost", DOCUMENT, **page("registry.example")) == (403, "foreign-origin")


@pytest.mark.parametrize("name", ["http://a", "a:80", "a/b", "", "a b", "*", "*.example", "[::1]:80", "[::1", "[a]",
                                  "a:", "ä.example"])
def test_what_is_no_host(tmp_path, name):
    command = [binary(), "serve", "--listen", "127.0.0.1:0", "--data", tmp_path / "data", "--allow-host", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and "--allow-host" in done.stderr and not done.stdout


def test_listening_beyond_this_machine(new_service):
    """Anybody on the network may do everything then, but not pages from elsewhere by way of somebody's browser. Nobody else can
    own an address."""
    service = new_service("--listen", "0.0.0.0:0", "--insecure-listen", "--allow-host", "build-machine")
    for host in ("10.0.0.5:8080", "[fd00::5]:8080", "build-machine:8080", "localhost", "0.0.0.0"):
        assert ask(service, "GET", "/v1/graphs", host) == (200, None)
    assert ask(service, "GET", "/v1/graphs", f"{EVIL}:8080", **page(f"{EVIL}:8080")) == (403, "foreign-host")
    assert ask(service, "POST", "/v1/tokens", "10.0.0.5:8080", b'{"scope":"admin"}') == (403, "first-token")


def test_with_tokens_every_name_is_answered(service):
    """A page cannot know a token."""
    admin = make_token(service, "admin")
    assert ask(service, "GET", "/v1/graphs", EVIL, **bearer(admin)) == (200, None)
    assert ask(service, "GET", "/v1/graphs", EVIL) == (401, "token-required")
    assert ask(service, "POST", "/v1/graphs", EVIL, DOCUMENT, **bearer(admin), **page(EVIL))[0] == 201
    assert ask(service, "POST", "/v1/graphs", EVIL, DOCUMENT, **bearer(admin),
               **page("other.example")) == (403, "foreign-origin")
    assert ask(service, "GET", "/docs", EVIL) == (200, None)


def test_the_takeover(service):
    """As it was found: everything read, and the owner locked out."""
    authority = f"{EVIL}:{service.port}"
    made = ask(service, "POST", "/v1/tokens", authority, b'{"scope":"admin","name":"mine"}', Content_Type="application/json",
               **page(authority))
    assert made == (403, "foreign-host")
    direct = ask(service, "POST", "/v1/tokens", f"localhost:{service.port}", b'{"scope":"admin","name":"mine"}')
    assert direct == (403, "first-token")
    assert service.get("/v1/graphs").status == 200
