"""TLS by the library: what holds without it holds with it."""

import functools
import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import time

import pytest
from access import bearer, make_token
from blobs import digest_of, some_bytes, wait_until
from conftest import Service, of_a_file, receive_all
from documents import branches
from manager import Manager


class TlsService(Service):
    """Trusts the certificate of its tests, and no other."""

    def __init__(self, data, folder, *options):
        super().__init__(data, "--tls-certificate", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"), *options)
        self.folder = folder

    scheme = "https"

    @functools.cached_property
    def context(self):
        return ssl.create_default_context(cafile=self.folder / "cert.pem")

    def connection(self, timeout):
        return http.client.HTTPSConnection("localhost", self.port, timeout=timeout, context=self.context)

    def connect(self, timeout=600):
        return self.context.wrap_socket(super().connect(timeout), server_hostname="localhost")


def make_certificate(folder, *, name="localhost", key="key.pem", certificate="cert.pem",
                     algorithm=("ec", "ec_paramgen_curve:P-256")):
    command = ["openssl", "req", "-x509", "-newkey", algorithm[0], "-pkeyopt", algorithm[1], "-nodes", "-days", "2", "-subj",
               f"/CN={name}",
               "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1", "-keyout", folder / key, "-out", folder / certificate]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    make_certificate(folder)
    return folder


@pytest.fixture
def tls(tmp_path, certificate):
    service = TlsService(tmp_path / "data", certificate, "--header-timeout", "2", "--body-timeout", "2",
                         "--minimum-rate", "1K").start()
    yield service
    if service.process:
        assert service.stop() == 0, service.log()[-3000:]


def test_requests(tls):
    assert tls.url.startswith("https://")
    made = tls.request("POST", "/v1/optimize?pass=MergeLinears", json.dumps(branches(2)).encode())
    assert made.status == 201
    run = made.json()
    back = tls.request("POST", f"/v1/runs/{run['id']}/rollback")
    assert back.json()["result"] == run["source"]
    graph = tls.get(f"/v1/graphs/{run['source']}")
    assert digest_of(graph.body) == run["source"]


def test_watchdog(tmp_path, certificate):
    """Its request speaks TLS, too."""
    manager = Manager(tmp_path)
    service = TlsService(tmp_path / "data", certificate)
    service.environment |= {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "400000"}
    service.start()
    try:
        assert manager.hears(b"WATCHDOG=1", 600), service.log()[-2000:]
        wait_until(lambda: '"/livez"' in service.log())
        assert service.stop() == 0
    finally:
        service.kill()


def test_several_requests_on_one_connection(tls):
    connection = http.client.HTTPSConnection("localhost", tls.port, timeout=600, context=tls.context)
    ends = set()
    for path in ["/livez", "/docs", "/v1/passes", "/v1/nothing"] * 10:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.read() and response.status == (404 if path == "/v1/nothing" else 200)
        ends.add(connection.sock.getsockname())
    assert len(ends) == 1


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\nHost: x\n\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n X: folded\r\n\r\n", 400),
        (b"POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 40000 + b"\r\n\r\n", 431),
    ],
    ids=["no host", "bare LF", "two hosts", "folded", "two lengths", "length and chunks", "large headers"],
)
def test_guards(tls, text, status):
    """And what follows is not run."""
    answer = tls.raw(text + b"DELETE /v1/graphs/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert int(answer[9:12]) == status and answer.count(b"HTTP/1.1 ") == 1
    assert '"method":"DELETE"' not in tls.log()


def test_tokens(tls, certificate):
    made = make_token(tls, "admin", "boss")
    assert tls.get("/v1/graphs").status == 401
    assert tls.get("/v1/graphs", headers=bearer(made)).status == 200
    curl = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", certificate / "cert.pem", "-H",
            f"Authorization: Bearer {made}",
            f"https://localhost:{tls.port}/v1/graphs"]
    assert subprocess.run(curl, capture_output=True, text=True).stdout == "200"


def test_host_and_origin(tls):
    """As without TLS."""
    host = f"localhost:{tls.port}"
    assert tls.get("/v1/graphs", headers={"Host": "evil.example"}).json()["code"] == "foreign-host"
    assert tls.get("/v1/graphs", headers={"Host": host}).status == 200
    for origin, status in ((f"https://{host}", 201), ("https://evil.example", 403)):
        body = json.dumps(branches(2, origin)).encode()
        assert tls.request("POST", "/v1/graphs", body, {"Host": host, "Origin": origin}).status == status


def test_deadlines(tls):
    """Of the handshake, of headers, of a body: who says nothing more is cut off."""
    beginnings = [b"", b"GET /livez HT", b"POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"]
    connections = [tls.connect(timeout=600) for _ in beginnings]
    with socket.create_connection((tls.host, tls.port), 60) as mute:
        for connection, text in zip(connections, beginnings):
            connection.sendall(text)
        for connection in connections:
            with connection:
                try:
                    while connection.recv(65536):
                        pass
                except (ssl.SSLError, ConnectionError):
                    pass
        receive_all(mute)  # returns: the service has closed it
    assert tls.get("/livez").status == 200


def test_a_slow_sender_of_headers_is_cut_off(tls):
    with tls.connect(timeout=600) as connection:
        with pytest.raises((OSError, ssl.SSLError)):
            for _ in range(600):
                connection.sendall(b"G")
                time.sleep(0.1)


@pytest.mark.heavy
def test_large_bodies_both_ways(tls):
    """Sinks and pulls: a blob larger than what is held at once; and a part of it."""
    data = some_bytes(24 << 20)
    digest = digest_of(data)
    sent = tls.request("PUT", f"/v1/blobs/{digest}", data, headers={"Content-Type": "application/octet-stream"})
    assert sent.status == 201, sent
    assert tls.get(f"/v1/blobs/{digest}").body == data
    part = tls.get(f"/v1/blobs/{digest}", headers={"Range": "bytes=5000000-6999999"})
    assert part.status == 206 and part.body == data[5000000:7000000]


def test_an_upload_that_is_broken_off(tls):
    data = some_bytes(4 << 20, "broken")
    connection = tls.connect()
    connection.sendall(
        f"PUT /v1/blobs/{digest_of(data)} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode())
    connection.sendall(data[: 3 << 20])
    connection.close()
    assert tls.request("HEAD", f"/v1/blobs/{digest_of(data)}").status == 404


def test_streams(tls):
    with tls.connect(timeout=600) as stream:
        stream.sendall(b"GET /v1/events?since=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200" in stream.recv(20)
        body = json.dumps({"graph": branches(2)}).encode()
        assert tls.request("PUT", "/v1/models/m/versions/v1", body, headers={"Content-Type": "application/json"}).status == 201
        assert tls.request("PUT", "/v1/models/m/aliases/a", b'{"version":"v1"}', headers={"If-None-Match": "*"}).status < 300
        text = b""
        while b"event: alias" not in text:
            piece = stream.recv(65536)
            assert piece, text
            text += piece
        # the service stops, and the stream ends
        assert tls.stop() == 0
        receive_all(stream)


def test_who_does_not_speak_tls_gets_nothing(tls):
    with socket.create_connection((tls.host, tls.port), 30) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = receive_all(connection)
    assert b"HTTP" not in answer
    assert tls.get("/livez").status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(tls, version):
    context = ssl.create_default_context(cafile=tls.options[1])
    context.minimum_version = context.maximum_version = version
    with context.wrap_socket(socket.create_connection((tls.host, tls.port), 30), server_hostname="localhost") as connection:
        assert connection.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_versions_are_refused(tls, version):
    client = ["openssl", "s_client", version, "-cipher", "ALL:@SECLEVEL=0", "-connect", f"127.0.0.1:{tls.port}"]
    said = subprocess.run(client, input="", capture_output=True, text=True, timeout=600)
    assert "Cipher is (NONE)" in said.stdout


@pytest.mark.heavy
def test_a_certificate_of_rsa(tmp_path):
    make_certificate(tmp_path, algorithm=("rsa", "rsa_keygen_bits:2048"))
    service = TlsService(tmp_path / "data", tmp_path).start()
    assert service.get("/livez").status == 200
    assert service.stop() == 0


@pytest.mark.parametrize("what", ["missing", "garbage", "swapped", "another's", "alone"])
def test_what_cannot_be_served(tmp_path, certificate, what):
    shutil.copy(certificate / "cert.pem", tmp_path / "cert.pem")
    shutil.copy(certificate / "key.pem", tmp_path / "key.pem")
    if what == "missing":
        (tmp_path / "key.pem").unlink()
    elif what == "garbage":
        (tmp_path / "cert.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    elif what == "swapped":
        (tmp_path / "cert.pem").rename(tmp_path / "x")
        (tmp_path / "key.pem").rename(tmp_path / "cert.pem")
        (tmp_path / "x").rename(tmp_path / "key.pem")
    elif what == "another's":
        make_certificate(tmp_path, certificate="other.pem")
    service = TlsService(tmp_path / "data", tmp_path)
    if what == "alone":
        service.options = service.options[:2]
    with pytest.raises(AssertionError, match="said ''"):
        service.start()
    assert re.search("certificate|key", service.log())
    assert "PRIVATE" not in service.log()


@of_a_file
def test_beyond_loopback_only_with_tokens(tmp_path, certificate):
    service = TlsService(tmp_path / "data", certificate, "--listen", "0.0.0.0:0")
    with pytest.raises(AssertionError, match="said ''"):
        service.start()
    assert "make a token first" in service.log()
    at = service.options.index("0.0.0.0:0")
    del service.options[at - 1 : at + 1]
    service.start()
    admin = make_token(service, "admin")
    service.stop()
    service.options += ["--listen", "0.0.0.0:0"]
    service.start()
    assert service.get("/v1/graphs").status == 401
    assert service.get("/v1/graphs", headers=bearer(admin)).status == 200
    service.stop()
    assert "in the clear" not in service.log()


def test_beyond_loopback_without_tls_it_says_so(new_service):
    service = new_service("--listen", "0.0.0.0:0", "--insecure-listen")
    assert service.get("/v1/graphs").status == 200
    assert "in the clear" in service.log()
    make_token(service, "admin")
    assert service.get("/v1/graphs").status == 401
