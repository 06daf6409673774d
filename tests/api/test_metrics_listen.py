"""--metrics-listen: numbers and health for monitoring, without a token, on a listener of their own."""

import contextlib
import http.client
import re
import socket
import subprocess
import time

import prometheus
import pytest
from access import bearer, make_token
from blobs import wait_until
from conftest import Answer, Service, binary, description, is_sanitized
from documents import branches


class Watched(Service):
    def __init__(self, data, *options):
        super().__init__(data, "--metrics-listen", "127.0.0.1:0", *options)

    def start(self):
        super().start()
        line = self.process.stdout.readline().decode()
        self.metrics_port = int(re.fullmatch(r"metrics on http://127\.0\.0\.1:(\d+)/metrics\n", line)[1])
        return self

    def ask(self, path, method="GET", headers=None):
        connection = http.client.HTTPConnection(self.host, self.metrics_port, timeout=600)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()


@pytest.fixture
def watched(tmp_path):
    service = Watched(tmp_path / "data").start()
    yield service
    if service.process:
        assert service.stop() == 0


def test_numbers_without_a_token_and_nothing_else(watched):
    token = make_token(watched, "admin")
    assert watched.get("/metrics").status == 401, "the service's own needs one"
    answer = watched.ask("/metrics")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    with_token = watched.get("/metrics", headers=bearer(token))
    assert set(prometheus.parse(answer.body.decode())) == set(prometheus.parse(with_token.body.decode()))
    assert watched.ask("/livez").json() == {"status": "live"} and watched.ask("/readyz").json() == {"status": "ready"}
    for path in description().document["paths"]:
        if path not in ("/metrics", "/livez", "/readyz"):
            assert watched.ask(re.sub(r"\{\w+\}", "x", path)).status == 404, path
            assert watched.ask(re.sub(r"\{\w+\}", "x", path), "POST", bearer(token)).status == 404, path
    assert watched.ask("/metrics", "POST").status == 405


def test_half_sent_requests_do_not_keep_a_scraper_out(watched):
    """Of many addresses, 1,500 of them: one that asks is answered within its usual 10 s."""
    halves = []
    try:
        for number in range(1500):
            half = socket.socket()
            half.bind((f"127.0.1.{number % 100 + 1}", 0))
            half.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                half.connect(("127.0.0.1", watched.metrics_port))
            halves.append(half)
        time.sleep(0.5)
        for half in halves:
            with contextlib.suppress(OSError):
                half.send(b"GET /metrics HTTP/1.1\r\nHost: loc")
        connection = http.client.HTTPConnection("127.0.0.1", watched.metrics_port, timeout=10 if not is_sanitized() else 600)
        connection.request("GET", "/metrics")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        for half in halves:
            half.close()


def test_they_are_the_services(watched):
    """Not those of the listener that tells them."""
    for _ in range(3):
        watched.ask("/readyz")
    watched.post("/v1/optimize", branches(), raw_query="pass=MergeLinears")

    def of(route):
        samples = prometheus.parse(watched.ask("/metrics").body.decode())["foldback_http_requests_total"].samples
        return [value for (_, labels), value in samples.items() if ("route", route) in labels]

    wait_until(lambda: of("/v1/optimize"))  # a request is counted when its answer is out
    assert of("/v1/optimize") == [1] and not of("/readyz")


def test_whoever_asks_by_whatever_name(watched):
    """A scraper asks by the pod's address."""
    assert watched.ask("/metrics", headers={"Host": "10.1.2.3:9090"}).status == 200


def test_an_address_that_is_none(tmp_path):
    done = subprocess.run([binary(), "serve", "--data", tmp_path / "d", "--listen", "127.0.0.1:0",
                           "--metrics-listen", "nonsense"],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and "nonsense" in done.stderr, done


def test_it_ends_with_the_service_and_comes_back(watched):
    watched.restart()
    assert watched.ask("/metrics").status == 200


def test_with_tls_too(tmp_path):
    """The service speaks TLS; the listener for monitoring does not, and still sees whether the service answers."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj",
         "/CN=localhost", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True)

    class WithTls(Watched):
        scheme = "https"

    service = WithTls(tmp_path / "data", "--tls-certificate", str(tmp_path / "cert.pem"), "--tls-key",
                      str(tmp_path / "key.pem"))
    service.start()
    try:
        assert service.ask("/livez").status == 200 and service.ask("/metrics").status == 200
    finally:
        assert service.stop() == 0
