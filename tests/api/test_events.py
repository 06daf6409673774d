"""GET /v1/events: alias changes as server-sent events. Whatever happens to the connection or the service, a client that comes back
with its last id sees every change once and in order."""

import http.client
import json
import socket
import struct
import threading
import time

import pytest

from conftest import description
from documents import every_item
from test_aliases import ANY, CREATE, history, make_versions, put_alias, roll_back, versions  # noqa: F401 (a fixture)
from test_http import is_problem

LONG = "x" * 10000  # the longest `why`


class Ended(Exception):
    pass


class Stream:
    """A client like a browser's EventSource, on one connection."""

    def __init__(self, service, query="", last_id=None, receive_buffer=None, timeout=60):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect((service.host, service.port))
        headers = f"Last-Event-ID: {last_id}\r\n" if last_id is not None else ""
        self.socket.sendall(f"GET /v1/events{query} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{headers}\r\n".encode())
        self.response = http.client.HTTPResponse(self.socket)
        self.response.begin()
        assert self.response.status == 200, self.response.read()
        self.last_id = last_id

    def block(self):
        """The lines up to the next empty one."""
        lines = []
        while True:
            try:
                line = self.response.readline()
            except (http.client.IncompleteRead, ConnectionError):
                raise Ended from None
            if not line.endswith(b"\n"):
                raise Ended
            if line == b"\n":
                return lines
            lines.append(line[:-1].decode())

    def next(self):
        """The next event's data."""
        while True:
            lines = self.block()
            fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
            if "id" in fields:
                self.last_id = int(fields["id"])
            if "data" in fields:
                assert fields["event"] == "alias" and len(lines) == 3
                data = json.loads(fields["data"])
                assert data["id"] == self.last_id
                event = {"$ref": "#/components/schemas/AliasEntry.event"}
                description().check_value(event, fields["data"].encode(), "an event")
                return data

    def take(self, count):
        return [self.next() for _ in range(count)]

    def close(self, rudely=False):
        if rudely:  # a reset instead of a farewell
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.response.close()
        self.socket.close()


def all_entries(service, names):
    """From the histories: what a subscriber should have seen."""
    found = [
        {**entry, "model": model, "alias": alias} for model, alias in names for entry in history(service, alias, model)
    ]
    return sorted(found, key=lambda entry: entry["id"])


def numbers(events):
    return [event["id"] for event in events]


def swing(service, alias, times, ready=None, why=None):
    """Moves an alias to one version after the other."""
    if ready:
        ready.wait()
    for i in range(times):
        answer = put_alias(service, f"v{i % 3}", ANY, alias, who="swing", why=why or f"{alias} {i}")
        assert answer.status == 200, answer


def start_writers(service, writers=20, times=15, aliases=5):
    """Several share an alias, which exists."""
    barrier = threading.Barrier(writers)
    threads = [
        threading.Thread(target=swing, args=(service, f"a{i % aliases}", times, barrier), daemon=True) for i in range(writers)
    ]
    for thread in threads:
        thread.start()
    return threads


# ---------------------------------------------------------------------------------------------------------- the protocol


def test_first_bytes_and_headers(versions):
    stream = Stream(versions)
    headers = stream.response.headers
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["Cache-Control"] == "no-store" and headers["X-Accel-Buffering"] == "no"
    assert headers["Content-Encoding"] is None and headers["Content-Length"] is None
    first = stream.block()
    assert first[0] == "retry: 2000" and first[1].startswith(":") and first[2:] == ["id: 0"]
    put_alias(versions, "v0", CREATE, who="ann", why="it's \"new\"\n")
    event = stream.next()
    (entry,) = history(versions)
    assert event == {**entry, "model": "m", "alias": "live"}
    assert (event["action"], event["who"], event["why"]) == ("create", "ann", "it's \"new\"\n")
    stream.close()


def test_every_kind_of_change(versions):
    stream = Stream(versions)
    put_alias(versions, "v0", CREATE)
    put_alias(versions, "v1", ANY)
    put_alias(versions, "v1", ANY)  # changes nothing
    assert roll_back(versions).status == 200
    assert versions.delete("/v1/models/m/aliases/live", headers=ANY).status == 204
    put_alias(versions, "v2", CREATE)
    events = stream.take(5)
    assert [event["action"] for event in events] == ["create", "deploy", "rollback", "delete", "create"]
    assert [event["to"] for event in events] == ["v0", "v1", "v0", None, "v2"]
    assert events == all_entries(versions, [("m", "live")])
    stream.close()


def test_where_it_begins(versions):
    put_alias(versions, "v0", CREATE)
    for i in range(1, 250):  # more than the service reads at once
        put_alias(versions, f"v{i % 4}", ANY)
    ids = numbers(all_entries(versions, [("m", "live")]))
    assert len(ids) == 250
    for query, last_id, expected in [
        ("?since=0", None, ids),
        (f"?since={ids[100]}", None, ids[101:]),
        ("", ids[100], ids[101:]),
        ("?since=0", ids[240], ids[241:]),  # the header comes first
        ("", 0, ids),
    ]:
        stream = Stream(versions, query, last_id)
        assert numbers(stream.take(len(expected))) == expected
        stream.close()
    late = Stream(versions)
    put_alias(versions, "v3", ANY)
    assert late.next()["id"] == ids[-1] + 1
    late.close()


def test_filters(versions):
    make_versions(versions, model="n")
    names = [("m", "a"), ("m", "b"), ("n", "a"), ("n", "b")]
    for model, alias in names:
        put_alias(versions, "v0", CREATE, alias, model)
    queries = {"": names, "model=m": names[:2], "alias=a": names[::2], "model=n&alias=b": names[3:], "model=unknown": []}
    live = {query: Stream(versions, "?" + query if query else "") for query in queries}
    for i in range(1, 5):
        for model, alias in names:
            put_alias(versions, f"v{i % 4}", ANY, alias, model)
    for model, alias in names:
        put_alias(versions, "v1", ANY, alias, model)
    for query, wanted in queries.items():
        expected = all_entries(versions, wanted)
        replay = Stream(versions, f"?since=0&{query}")
        assert replay.take(len(expected)) == expected
        assert live[query].take(len(expected) - len(wanted)) == [event for event in expected if event["action"] != "create"]
        replay.close()
    # After all that was not for it comes the first thing that is.
    assert versions.request("PUT", "/v1/models/unknown/versions/v0", {"graph": history(versions, "a")[0]["to_graph"]}).status == 201
    put_alias(versions, "v0", CREATE, "x", "unknown")
    assert live["model=unknown"].next()["alias"] == "x"
    for stream in live.values():
        stream.close()


@pytest.mark.parametrize(
    "query, headers, code",
    [
        ("?since=x", {}, "bad-parameter"),
        ("?since=-1", {}, "bad-parameter"),
        ("?since=1", {}, "unknown-event"),
        ("", {"Last-Event-ID": "x"}, "bad-last-event-id"),
        ("", {"Last-Event-ID": "-1"}, "bad-last-event-id"),
        ("", {"Last-Event-ID": "1.0"}, "bad-last-event-id"),
        ("", {"Last-Event-ID": ""}, "bad-last-event-id"),
        ("", {"Last-Event-ID": "99999999999999999999"}, "bad-last-event-id"),
        ("", {"Last-Event-ID": "7"}, "unknown-event"),
        ("?model=a/b", {}, "bad-name"),
        ("?alias=", {}, "bad-name"),
        ("?version=v1", {}, "unknown-parameter"),
    ],
)
def test_bad_requests(service, query, headers, code):
    is_problem(service.get("/v1/events" + query, headers=headers), 422, code)


def test_methods_and_types(service):
    assert service.get("/v1/events", headers={"Accept": "application/json"}).status == 406
    answer = service.request("HEAD", "/v1/events", headers={"Accept": "*/*"})
    assert answer.status == 200 and answer.body == b"" and answer.headers["content-type"] == "text/event-stream"
    # Nothing comes after the headers of HEAD, and a client of HTTP/1.0 (nginx, when told nothing) gets no chunks.
    raw = service.raw(b"HEAD /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert raw.endswith(b"\r\n\r\n") and raw.count(b"\r\n\r\n") == 1
    with service.connect() as connection:
        connection.sendall(b"GET /v1/events HTTP/1.0\r\nHost: localhost\r\n\r\n")
        received = b""
        while b"id: 0\n\n" not in received:
            received += connection.recv(1000)
        assert b"\r\n\r\nretry: 2000\n" in received and b"chunked" not in received


def test_heartbeat(new_service):
    service = new_service("--heartbeat", "1")
    stream = Stream(service)
    stream.block()
    assert stream.block() == [":"] and stream.block() == [":"]
    stream.close()


def test_limit(new_service):
    service = new_service("--max-streams", "2")
    first, second = Stream(service), Stream(service)
    refused = service.get("/v1/events")
    is_problem(refused, 503, "too-many-streams")
    assert int(refused.headers["retry-after"]) > 0
    assert service.get("/v1/passes").status == 200
    first.close()
    second.close()
    for _ in range(200):  # until the service notices that they left
        if "foldback_http_streams 0\n" in service.get("/metrics").body.decode():
            break
        time.sleep(0.05)
    Stream(service).close()


# ------------------------------------------------------------------------------------------- none missing, none twice


def test_twenty_writers(versions):
    everything, one_alias = Stream(versions), Stream(versions, "?alias=a3")
    for alias in range(5):
        put_alias(versions, "v3", CREATE, f"a{alias}")
    for thread in start_writers(versions):
        thread.join()
    expected = all_entries(versions, [("m", f"a{alias}") for alias in range(5)])
    assert len(expected) > 100
    assert everything.take(len(expected)) == expected
    of_one = [event for event in expected if event["alias"] == "a3"]
    assert one_alias.take(len(of_one)) == of_one
    put_alias(versions, "v3", CREATE, "last")
    assert everything.next()["alias"] == "last"


def test_connections_die(versions):
    names = [("m", f"a{i}") for i in range(5)]
    for _, alias in names:
        put_alias(versions, "v3", CREATE, alias)
    start = all_entries(versions, names)[-1]["id"]
    writers = start_writers(versions)

    def finish():
        for writer in writers:
            writer.join()
        put_alias(versions, "v3", CREATE, "last")

    finisher = threading.Thread(target=finish)
    finisher.start()
    seen, last_id, rounds = [], start, 0
    while not seen or seen[-1]["alias"] != "last":
        stream = Stream(versions, "", last_id)
        for _ in range(1 + rounds % 7):
            seen.append(stream.next())
            if seen[-1]["alias"] == "last":
                break
        last_id = stream.last_id
        stream.close(rudely=rounds % 2 == 0)
        rounds += 1
    finisher.join()
    assert seen[:-1] == [event for event in all_entries(versions, names) if event["id"] > start] and rounds > 10


def test_a_client_that_saw_nothing_comes_back(versions):
    stream = Stream(versions)
    (last_id,) = [line[4:] for line in stream.block() if line.startswith("id: ")]
    stream.close()
    put_alias(versions, "v0", CREATE)
    again = Stream(versions, "", last_id)
    assert again.next()["action"] == "create"
    again.close()


def test_kill_and_restart(new_service):
    service = new_service()
    make_versions(service)
    put_alias(service, "v3", CREATE)
    acknowledged, seen, last_id = [], [], 0

    def write():
        for i in range(100000):
            try:
                answer = put_alias(service, f"v{i % 3}", ANY, why=str(i))
            except (OSError, http.client.HTTPException):
                return
            acknowledged.append((answer.status, int(answer.headers["etag"].strip('"'))))

    for _ in range(3):
        writer = threading.Thread(target=write)
        writer.start()
        stream = Stream(service, "", last_id)
        seen += stream.take(20)
        service.kill()
        writer.join()
        try:
            while True:
                seen.append(stream.next())
        except Ended:
            last_id = stream.last_id
        stream.close()
        service.start()
    put_alias(service, "v3", ANY, why="last")
    stream = Stream(service, "", last_id)
    while seen[-1]["why"] != "last":
        seen.append(stream.next())
    assert seen == all_entries(service, [("m", "live")])
    assert {number for _, number in acknowledged} <= set(numbers(seen)) and len(acknowledged) > 50


def test_a_slow_reader_blocks_nobody(new_service):
    service = new_service("--heartbeat", "86400")  # nothing but news and free room moves it on
    make_versions(service)
    put_alias(service, "v3", CREATE)
    slow, quick = Stream(service, receive_buffer=4096), Stream(service)
    for _ in range(2):
        swing(service, "live", 60, why=LONG)
        quick.take(60)
    expected = all_entries(service, [("m", "live")])[1:]
    assert slow.take(len(expected)) == expected
    swing(service, "live", 3)
    assert numbers(slow.take(3)) == numbers(quick.take(3))
    slow.close()
    quick.close()


# ------------------------------------------------------------------------------------------------------------ the end


def test_stop_ends_the_streams(new_service):
    service = new_service("--stop-timeout", "50")
    make_versions(service)
    put_alias(service, "v3", CREATE)
    idle, many = Stream(service), [Stream(service) for _ in range(20)]
    stuck = Stream(service, receive_buffer=4096)  # reads nothing
    swing(service, "live", 150, why=LONG)
    idle.take(150)
    assert service.stop() == 0
    assert "cut off" not in service.log()
    with pytest.raises(Ended):
        idle.next()
    assert idle.response.read() == b""  # and it ended as a chunked body should
    ended = [json.loads(line) for line in service.log().splitlines() if '"route":"/v1/events"' in line]
    assert len(ended) == 22 and all(line["status"] == 200 and line["bytes_out"] > 0 and line["ms"] > 0 for line in ended)
    for stream in (stuck, *many):
        stream.close()


def test_metrics(service):
    stream = Stream(service)
    assert "foldback_http_streams 1\n" in service.get("/metrics").body.decode()
    stream.close()
