"""What every request meets before a route: framing, targets, methods, media types, codings, connections.

Limits and deadlines, which need a server with small ones, are in tests/unit/test_http.c.
"""

import concurrent.futures
import gzip
import http.client
import json
import os
import re
import socket
import time

import pytest
from conftest import receive_all
from documents import branches

GRAPH = {
    "format": "foldback.graph/1",
    "name": "tiny",
    "nodes": [
        {"name": "x", "op": "placeholder", "target": "x"},
        {"name": "output", "op": "output", "target": "output", "args": [{"$node": "x"}]},
    ],
    "modules": [{"path": "", "type": "torch.nn.Module"}],
    "tensors": [],
}
DOCUMENT = json.dumps(GRAPH).encode()


def is_problem(answer, status, code=None):
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"] == "/problems/" + problem["code"]
    assert problem["title"] and problem["detail"]
    if code:
        assert problem["code"] == code
    return problem


def responses(raw):
    """Status codes of the responses in a byte stream (their bodies are small JSON without "HTTP/1.1 ")."""
    return [int(part[:3]) for part in raw.split(b"HTTP/1.1 ")[1:]]


def post_graph(extra=b"", body=DOCUMENT, length=True):
    head = b"POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    if length:
        head += b"Content-Length: %d\r\n" % len(body)
    return head + extra + b"\r\n" + body


def chunked(body, size=7):
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


# ---------------------------------------------------------------------------------------------------------- routing


def test_live(shared):
    answer = shared.get("/livez")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith(("application/json", "text/plain"))
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"]


def test_request_id_is_taken_over_when_sane(shared):
    assert shared.get("/livez", headers={"X-Request-Id": "job-17.a:b"}).headers["x-request-id"] == "job-17.a:b"
    assert shared.get("/livez", headers={"X-Request-Id": 'a"b c'}).headers["x-request-id"] != 'a"b c'
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    answer = shared.get("/livez", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    assert answer.headers["x-request-id"] == trace


def test_unknown_path(shared):
    for path in ["/v1", "/v1/", "/v1/nothing", "/livez/", "//livez", "/v1/passes/a/b", "/" + "a/" * 20]:
        is_problem(shared.get(path), 404, "not-found")


def test_wrong_method(shared):
    answer = shared.post("/livez", {})
    is_problem(answer, 405, "method-not-allowed")
    assert {"GET", "HEAD", "OPTIONS"} <= set(answer.headers["allow"].split(", "))
    answer = shared.delete("/v1/graphs")
    assert "POST" in answer.headers["allow"]
    for method in ["TRACE", "CONNECT", "get", "FROB"]:
        is_problem(shared.request(method, "/v1/passes"), 405)


def test_options(shared):
    answer = shared.request("OPTIONS", "/v1/passes")
    assert (answer.status, answer.body) == (204, b"")
    assert "GET" in answer.headers["allow"]


def test_head_is_get_without_the_body(shared):
    got, head = shared.get("/v1/passes"), shared.request("HEAD", "/v1/passes")
    assert (got.status, head.status, head.body) == (200, 200, b"")
    assert int(head.headers["content-length"]) == len(got.body)
    assert head.headers["content-type"] == got.headers["content-type"]
    raw = shared.raw(b"HEAD /v1/passes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert raw.endswith(b"\r\n\r\n") and raw.count(b"\r\n\r\n") == 1


# ---------------------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize(
    "path",
    [
        "/v1/graphs/a%00b", "/v1/graphs/a%2fb", "/v1/graphs/a%2Fb", "/v1/graphs/%zz", "/v1/graphs/%4", "/v1/graphs/%",
        "/v1/graphs/%ff", "/v1/graphs/%c0%af", "/v1/graphs/%ed%a0%80", "/v1/graphs/%0a", "/v1/graphs/..", "/v1/./graphs",
        "/v1/graphs/%2e%2e", "/v1/graphs/%2e", "/../etc/passwd", "/v1/graphs?limit=%zz", "/v1/graphs?a=%00", "/v1/graphs?%ff",
        "/v1/graphs#x", "http://a/livez", "livez", "*",
    ],
)
def test_bad_target(shared, path):
    raw = shared.raw(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode())
    assert responses(raw) == [400], raw
    assert b"bad-target" in raw


def test_path_is_decoded_once(shared):
    is_problem(shared.get("/v1/passes/Merge%4Cinear"), 404)
    assert shared.get("/v1/passes/Merge%4Cinears").status == shared.get("/v1/passes/MergeLinears").status == 200
    is_problem(shared.get("/v1/passes/Merge%254Cinears"), 404)
    assert shared.get("/%6civez").status == 200


def test_long_target_and_headers(shared):
    is_problem(shared.get("/v1/graphs/" + "a" * 9000), 414, "target-too-long")
    is_problem(shared.get("/livez", headers={"X-Long": "a" * 40000}), 431, "headers-too-large")
    is_problem(shared.get("/livez", headers={f"X-{i}": "a" for i in range(200)}), 431, "headers-too-large")
    for target, header in [(300000, 0), (0, 300000)]:  # beyond what the library buffers: it answers by itself
        raw = shared.raw(b"GET /%s HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n" % (b"a" * target, b"a" * header))
        assert responses(raw) in ([414], [431], [413]), raw[:200]
    assert shared.get("/livez").status == 200


# ---------------------------------------------------------------------------------------------------------- framing


@pytest.mark.parametrize(
    "name, request_bytes",
    [
        ("two lengths", post_graph(b"Content-Length: 5\r\n")),
        ("same length twice", post_graph(b"Content-Length: %d\r\n" % len(DOCUMENT))),
        ("length and chunked", post_graph(b"Transfer-Encoding: chunked\r\n", chunked(DOCUMENT))),
        ("two codings", post_graph(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunked(DOCUMENT), False)),
        ("unknown coding", post_graph(b"Transfer-Encoding: gzip\r\n", DOCUMENT, False)),
        ("coding list", post_graph(b"Transfer-Encoding: gzip, chunked\r\n", chunked(DOCUMENT), False)),
        ("obscured coding", post_graph(b"Transfer-Encoding: xchunked\r\n", chunked(DOCUMENT), False)),
        ("chunked in 1.0", post_graph(b"Transfer-Encoding: chunked\r\n", chunked(DOCUMENT), False).replace(b"1.1", b"1.0", 1)),
        ("signed length", post_graph(b"Content-Length: +5\r\n", DOCUMENT, False)),
        ("negative length", post_graph(b"Content-Length: -5\r\n", DOCUMENT, False)),
        ("hexadecimal length", post_graph(b"Content-Length: 0x5\r\n", DOCUMENT, False)),
        ("length list", post_graph(b"Content-Length: 5, 5\r\n", DOCUMENT, False)),
        ("empty length", post_graph(b"Content-Length:\r\n", DOCUMENT, False)),
        ("two hosts", post_graph(b"Host: localhost\r\n")),
        ("no host", GET.replace(b"Host: localhost\r\n", b"")),
        ("space before the colon", post_graph(b"Content-Length : 5\r\n")),
        ("control character in a value", GET.replace(b"Host: localhost", b"Host: localhost\r\nX: a\x01b")),
        ("bad header name", GET.replace(b"Host: localhost", b"Host: localhost\r\nX(y): b")),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_bad_framing_is_refused_and_nothing_after_it_runs(shared, name, request_bytes):
    raw = shared.raw(request_bytes + LAST)
    codes = responses(raw)
    if "length" in name and b"Bad framing" not in raw:
        codes = codes[:1] if codes == [400, 400] else codes  # libmicrohttpd's own answer to a length it cannot read comes twice
    assert codes == [400], (name, raw)


def test_huge_content_length(shared):
    for length in [b"99999999999999999999999", b"18446744073709551615", b"9223372036854775808"]:
        raw = shared.raw(post_graph(b"Content-Length: " + length + b"\r\n", DOCUMENT, False) + LAST)
        assert responses(raw) and set(responses(raw)) <= {400, 413}, raw


def test_too_large_is_refused_before_the_body_comes(shared):
    with shared.connect() as connection:
        connection.sendall(post_graph(b"Content-Length: 1099511627776\r\nExpect: 100-continue\r\n", b"", False))
        raw = receive_all(connection)
    assert responses(raw) == [413] and b"body-too-large" in raw


def test_refused_client_that_keeps_sending_still_reads_the_answer(shared):
    with shared.connect() as connection:
        connection.sendall(post_graph(b"Content-Length: 1099511627776\r\n", b"", False))
        try:
            for _ in range(100):
                connection.sendall(b"x" * 65536)
        except OSError:
            pass
        assert responses(receive_all(connection)) == [413]


# ----------------------------------------------------------------------------------------------------------- bodies


def test_curl_without_content_type(shared):
    for kind in ["application/x-www-form-urlencoded", "application/json; charset=utf-8", "application/vnd.x+json",
                 "application/octet-stream", "APPLICATION/JSON"]:
        assert shared.post("/v1/graphs", DOCUMENT, headers={"Content-Type": kind}).status in (200, 201), kind
    assert shared.post("/v1/graphs", DOCUMENT).status in (200, 201)


def test_wrong_media_type(shared):
    for kind in ["text/html", "multipart/form-data; boundary=x", "image/png", "application/json; charset=utf-16"]:
        is_problem(shared.post("/v1/graphs", DOCUMENT, headers={"Content-Type": kind}), 415, "unsupported-media-type")


def test_missing_and_unexpected_body(shared):
    is_problem(shared.post("/v1/graphs"), 400, "missing-body")
    is_problem(shared.post("/v1/graphs", b""), 400, "missing-body")
    raw = shared.raw(post_graph(b"Transfer-Encoding: chunked\r\nConnection: close\r\n", b"0\r\n\r\n", False))
    assert responses(raw) == [400] and b"missing-body" in raw
    is_problem(shared.get("/livez", body=b"x"), 400, "unexpected-body")
    assert shared.get("/livez", body=b"").status == 200


def test_compressed_bodies(shared):
    packed = gzip.compress(DOCUMENT)
    two_members = gzip.compress(DOCUMENT[:50]) + gzip.compress(DOCUMENT[50:])
    for body in [packed, two_members]:
        assert shared.post("/v1/graphs", body, headers={"Content-Encoding": "gzip"}).status in (200, 201)
    for body in [packed[:-1], packed[:20], packed + b"x", b"x" + packed, packed[:30] + b"\0\0\0" + packed[33:], DOCUMENT]:
        is_problem(shared.post("/v1/graphs", body, headers={"Content-Encoding": "gzip"}), 400, "bad-encoding")
    is_problem(shared.post("/v1/graphs", DOCUMENT, headers={"Content-Encoding": "zstd"}), 400, "bad-encoding")
    answer = shared.post("/v1/graphs", DOCUMENT, headers={"Content-Encoding": "br"})
    is_problem(answer, 415, "unsupported-encoding")
    assert answer.headers["accept-encoding"] == "gzip, zstd"
    is_problem(shared.post("/v1/graphs", packed, headers={"Content-Encoding": "gzip, gzip"}), 415)
    assert shared.post("/v1/graphs", DOCUMENT, headers={"Content-Encoding": "identity"}).status in (200, 201)


def test_chunked_body(shared):
    for size in [1, 7, 4096]:
        extra = b"Transfer-Encoding: chunked\r\nConnection: close\r\n"
        raw = shared.raw(post_graph(extra, chunked(DOCUMENT, size), False))
        assert responses(raw)[0] in (200, 201), raw


def test_expect_continue(shared):
    with shared.connect() as connection:
        connection.sendall(post_graph(b"Content-Length: %d\r\nExpect: 100-continue\r\nConnection: close\r\n" % len(DOCUMENT),
                                      b"", False))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(DOCUMENT)
        assert responses(receive_all(connection))[0] in (200, 201)
    raw = shared.raw(post_graph(b"Expect: magic\r\n"))
    assert responses(raw) == [417]


# ------------------------------------------------------------------------------------------------------ negotiation


def test_accept(shared):
    for accept in ["*/*", "application/*", "application/json", "text/html, */*;q=0.1", "application/json;q=0.001", ""]:
        assert shared.get("/v1/passes", headers={"Accept": accept}).status == 200, accept
    for accept in ["text/html", "image/*", "*/*;q=0", "application/json;q=0, */*"]:
        is_problem(shared.get("/v1/passes", headers={"Accept": accept}), 406, "not-acceptable")


def test_accept_of_problems_only(shared):
    """What clients made by openapi-generator send to paths that give no JSON."""
    assert shared.get("/livez", headers={"Accept": "application/problem+json"}).status == 200
    assert shared.get("/openapi.yaml", headers={"Accept": "application/problem+json"}).status == 200
    is_problem(shared.get("/openapi.yaml", headers={"Accept": "application/problem+json;q=0"}), 406, "not-acceptable")
    is_problem(shared.get("/openapi.yaml", headers={"Accept": "text/html"}), 406, "not-acceptable")


def test_answers_are_compressed_on_demand(shared):
    plain = shared.get("/v1/passes")
    assert "content-encoding" not in plain.headers
    if len(plain.body) < 1024:
        pytest.skip("too small to be compressed")
    packed = shared.get("/v1/passes", headers={"Accept-Encoding": "gzip;q=0.5, br"})
    assert packed.headers["content-encoding"] == "gzip" and packed.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(packed.body) == plain.body
    assert shared.get("/v1/passes", headers={"Accept-Encoding": "zstd, gzip"}).headers["content-encoding"] == "zstd"
    for none in ["br", "gzip;q=0", "identity"]:
        assert "content-encoding" not in shared.get("/v1/passes", headers={"Accept-Encoding": none}).headers


def test_pages_of_another_origin_cannot_write(shared):
    is_problem(shared.post("/v1/graphs", DOCUMENT, headers={"Origin": "http://evil.example"}), 403, "foreign-origin")
    is_problem(shared.post("/v1/graphs", DOCUMENT, headers={"Origin": "null"}), 403, "foreign-origin")
    own = {"Origin": shared.url, "Host": f"{shared.host}:{shared.port}"}
    assert shared.post("/v1/graphs", DOCUMENT, headers=own).status in (200, 201)


# ------------------------------------------------------------------------------------------------------ connections


def test_keep_alive(shared):
    connection = http.client.HTTPConnection(shared.host, shared.port, timeout=600)
    connection.connect()
    port = connection.sock.getsockname()[1]
    for method, path, body, status in [
        ("GET", "/livez", None, {200}), ("GET", "/nope", None, {404}), ("HEAD", "/livez", None, {200}),
        ("POST", "/v1/graphs", DOCUMENT, {200, 201}), ("POST", "/livez", b"x" * 100000, {405}),
        ("POST", "/v1/graphs", b"not JSON", {400}), ("GET", "/livez", None, {200}),
    ]:
        connection.request(method, path, body)
        response = connection.getresponse()
        response.read()
        assert response.status in status, (method, path)
        assert connection.sock and connection.sock.getsockname()[1] == port, "the connection was not kept"
    connection.close()


def test_pipelining(shared):
    requests = GET + post_graph() + GET.replace(b"livez", b"nope") + b"HEAD /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" + LAST
    codes = responses(shared.raw(requests))
    assert codes[0] == 200 and codes[1] in (200, 201) and codes[2:] == [404, 200, 200]


def test_http_1_0(shared):
    assert shared.raw(b"GET /livez HTTP/1.0\r\n\r\n").split(b" ")[1] == b"200"


def test_clients_that_go_away(shared):
    for text in [b"", b"GET", GET[:-2], post_graph()[:-10], post_graph(b"Transfer-Encoding: chunked\r\n", b"5\r\nab", False)]:
        for _ in range(5):
            with shared.connect() as connection:
                connection.sendall(text)
    for _ in range(20):  # gone while the answer is being made, with a reset
        connection = shared.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.sendall(post_graph())
        connection.close()
    assert shared.get("/livez").status == 200


def test_half_closed_clients_are_not_kept(shared):
    """libmicrohttpd may take the end of the client's sending as its leaving; what matters is that the connection ends."""
    for text in [GET, post_graph(), GET.replace(b"livez", b"v1/passes")]:
        began = time.monotonic()
        raw = shared.raw(text, half_close=True)
        assert all(code in (200, 201) for code in responses(raw))
        assert time.monotonic() - began < 30, "kept until the idle timeout"


def test_garbage(shared):
    for text in [b"\0" * 100, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\r\n\r\n\r\n", b"GET\r\n\r\n",
                 b" / HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", b"GET /livez HTTP/2.0\r\nHost: localhost\r\n\r\n", b"A" * 1000]:
        raw = shared.raw(text, half_close=True)
        assert all(code >= 400 for code in responses(raw)), (text, raw)
    assert shared.get("/livez").status == 200


@pytest.mark.heavy
def test_many_requests_on_many_connections(shared):
    def client(number):
        connection = http.client.HTTPConnection(shared.host, shared.port, timeout=600)
        for i in range(30):
            if (number + i) % 3:
                connection.request("GET", "/v1/passes")
            else:
                connection.request("POST", "/v1/graphs", DOCUMENT)
            response = connection.getresponse()
            response.read()
            if response.status not in (200, 201):
                return response.status
        connection.close()
        return 200

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        assert set(pool.map(client, range(64))) == {200}


def test_one_write_for_a_small_answer(shared):
    """Head and body arrive together, without waiting for the client's delayed acknowledgement."""
    with shared.connect() as connection:
        for _ in range(20):
            connection.sendall(GET)
            piece = connection.recv(65536)
            assert b"\r\n\r\n" in piece and not piece.endswith(b"\r\n\r\n")


# ---------------------------------------------------------------------------------------- log, metrics, stopping


def test_access_log(service):
    service.get("/livez?token=secret", headers={"X-Request-Id": "log-1", "Authorization": "Bearer secret"})
    service.post("/v1/graphs", DOCUMENT, headers={"X-Request-Id": "log-2"})
    service.raw(b"GET /a%0ab\xff\" HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: log-3\r\nConnection: close\r\n\r\n")
    service.stop()
    lines = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    by_id = {line.get("request"): line for line in lines}
    assert by_id["log-1"]["path"] == "/livez" and by_id["log-1"]["method"] == "GET"
    assert by_id["log-2"]["status"] in (200, 201) and by_id["log-2"]["bytes_in"] == len(DOCUMENT)
    assert by_id["log-2"]["remote"].startswith("127.0.0.1:") and by_id["log-2"]["ms"] > 0
    assert by_id["log-3"]["status"] == 400
    assert "secret" not in service.log()


def test_metrics(service):
    service.get("/livez")
    service.get("/nothing")
    # A request is counted when its answer has gone out, and that may be after the client has read it.
    expected = 'foldback_http_requests_total{route="",method="",status="404"} 1\n'
    for _ in range(1000):
        text = service.get("/metrics").body.decode()
        if expected in text:
            break
    assert expected in text
    assert 'foldback_http_requests_total{route="/livez",method="GET",status="200"} 1\n' in text
    assert 'foldback_http_request_duration_seconds_bucket{route="/livez",method="GET",le="+Inf"} 1\n' in text
    assert re.search(r"\nfoldback_http_in_flight [12]\n", text)
    assert "\nfoldback_http_queue_depth 0\n" in text


def test_graceful_stop(service):
    idle = service.connect()
    idle.sendall(GET)
    assert idle.recv(65536).startswith(b"HTTP/1.1 200")
    began = time.monotonic()
    assert service.stop() == 0
    assert time.monotonic() - began < 20
    assert idle.recv(10) == b""
    with pytest.raises(OSError):
        service.connect(timeout=2)


def test_upload_under_way_is_finished_before_stopping(service):
    connection = service.connect()
    connection.sendall(post_graph()[:-20])
    time.sleep(0.3)
    service.process.terminate()
    time.sleep(0.3)
    with pytest.raises(OSError):
        service.connect(timeout=2)
    connection.sendall(post_graph()[-20:])
    raw = receive_all(connection)
    assert responses(raw)[0] in (200, 201) and b"connection: close" in raw.lower()
    assert service._ended() == 0


def test_zstd_window_too_large(shared):
    """A frame of zstd --long=28, which says so in its header: valid, but its window would take 256 MiB."""
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([(28 - 10) << 3]) + b"\x11\x00\x00" + b"{}"
    answer = shared.request("POST", "/v1/graphs", frame, {"Content-Encoding": "zstd", "Content-Type": "application/json"})
    assert "--long=27" in is_problem(answer, 413, "window-too-large")["detail"]


@pytest.mark.heavy
def test_workers_start_when_there_is_work(new_service):
    service = new_service("--workers", "40")
    threads = lambda: len(os.listdir(f"/proc/{service.process.pid}/task"))
    before = threads()
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        answers = [*pool.map(lambda number: service.post("/v1/graphs", branches(2, f"w{number}")).status, range(300))]
    assert answers == [201] * 300
    assert before < 20 and before < threads() < before + 40
