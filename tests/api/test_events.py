"""GET /v1/events: alias changes as server-sent events. Whatever happens to the connection or the service, a client that comes
back with its last id sees every change once and in order."""

import http.client
import json
import socket
import struct
import threading
import time

import pytest
import receivers
from access import bearer, make_token
from conftest import description
from documents import branches, every_item
from test_aliases import ANY, CREATE, history, make_versions, put_alias, roll_back, versions  # noqa: F401 (a fixture)
from test_http import is_problem

LONG = "x" * 10000  # the longest `why`


class Ended(Exception):
    pass


class Stream:
    """A client like a browser's EventSource, on one connection."""

    def __init__(self, service, query="", last_id=None, receive_buffer=None, timeout=600, token=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect((service.host, service.port))
        headers = f"Last-Event-ID: {last_id}\r\n" if last_id is not None else ""
        headers += f"Authorization: Bearer {token}\r\n" if token else ""
        self.socket.sendall(
            f"GET /v1/events{query} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{headers}\r\n".encode())
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


@pytest.mark.heavy
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
    assert versions.request("PUT", "/v1/models/unknown/versions/v0",
                            {"graph": history(versions, "a")[0]["to_graph"]}).status == 201
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
        ("?types=", {}, "unknown-event-type"),
        ("?types=alias,", {}, "unknown-event-type"),
        ("?types=alias,job", {}, "unknown-event-type"),
        ("?types=aliases", {}, "unknown-event-type"),
        ("?types=run&since=r1", {}, "unknown-event"),
        ("?types=run&since=r1.r2", {}, "bad-parameter"),
        ("?types=run&since=a1.r0", {}, "bad-parameter"),
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


@pytest.mark.heavy
def test_twenty_writers(versions):
    everything, one_alias = Stream(versions), Stream(versions, "?alias=a3")
    for alias in range(5):
        put_alias(versions, "v3", CREATE, f"a{alias}")
    for thread in start_writers(versions):
        thread.join()
    expected = all_entries(versions, [("m", f"a{alias}") for alias in range(5)])
    assert len(expected) >= 80  # a movement makes at most three others fail: a quarter of 300, and five creations
    assert everything.take(len(expected)) == expected
    of_one = [event for event in expected if event["alias"] == "a3"]
    assert one_alias.take(len(of_one)) == of_one
    put_alias(versions, "v3", CREATE, "last")
    assert everything.next()["alias"] == "last"


@pytest.mark.heavy
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


# ---- versions and runs


class Events(Stream):
    """Of several types."""

    def next(self):
        """The next event: its id, type and data."""
        while True:
            fields = dict(line.split(": ", 1) for line in self.block() if not line.startswith(":"))
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                return fields["id"], fields["event"], json.loads(fields["data"])


ALL = "?types=alias,version,run"


def everything(service):
    """{type: data in the order in which it happened}, by the other routes."""
    runs = [run["id"] for run in every_item(service, "/v1/runs", limit=1000)][::-1]
    models = [model["name"] for model in every_item(service, "/v1/models", limit=1000)]
    versions = [(row["created"], row["model"], row["version"]) for model in models
                for row in every_item(service, f"/v1/models/{model}/versions", limit=1000)]
    aliases = [(model, row["alias"]) for model in models
               for row in every_item(service, f"/v1/models/{model}/aliases", limit=1000)]
    return {"run": runs, "version": sorted(versions), "alias": [row["id"] for row in all_entries(service, aliases)]}


def told(events):
    """The same of what streams have told."""
    found = {"run": [], "version": [], "alias": []}
    for _, kind, data in events:
        found[kind].append((data["created"], data["model"], data["version"]) if kind == "version" else data["id"])
    return {**found, "version": sorted(found["version"])}


def act(service, number):
    run = service.post("/v1/optimize", {"graph": branches(2, f"g{number}"),
                                        "passes": ["MergeLinears", "ChangeTrueDivToMulByInverse"]}).json()
    assert service.request("PUT", f"/v1/models/m/versions/n{number}", {"run": run["id"]}).status == 201
    assert put_alias(service, f"n{number}", ANY if number else CREATE, "new").status in (200, 201)
    if number % 3 == 0:
        assert roll_back(service, {"passes": ["MergeLinears"]}, "new").status in (200, 201)


def test_all_types(service):
    live, only = Events(service, ALL), Events(service, "?types=run,version&model=other")
    for number in range(4):
        act(service, number)
    assert service.request("PUT", "/v1/models/other/versions/1", {"graph": branches(2, "other")}).status == 201
    count = sum(map(len, everything(service).values()))
    assert count == 6 + 7 + 6
    events = live.take(count)
    assert told(events) == everything(service)
    assert told(Events(service, f"{ALL}&since=0").take(count)) == told(events)
    # what an alias names is told before it
    known = set()
    for _, kind, data in events:
        if kind == "alias":
            assert data["to"] in known and (data["run"] is None or data["run"] in known)
        known.add(data["version"] if kind == "version" else data["id"])
        if kind == "version":
            assert data["run"] is None or data["run"] in known
    # runs are of no model, and come all
    assert [(kind, data.get("model")) for _, kind, data in only.take(7)] == [("run", None)] * 6 + [("version", "other")]
    # from every id, what comes after it
    for place in range(0, count, 3):
        later = Events(service, ALL, last_id=events[place][0]).take(count - place - 1)
        assert [event[2] for event in later] == [event[2] for event in events[place + 1 :]]
    for one in (live, only):
        one.close()


def test_what_is_told_is_what_webhooks_are_told(new_service):
    service = new_service(*receivers.OPTIONS)
    receiver = receivers.Receiver()
    receivers.make_webhook(service, receiver.url)
    stream = Events(service, ALL)
    act(service, 0)
    messages = receiver.wait(lambda messages: len(messages) == 6)
    events = stream.take(6)
    assert sorted(json.dumps(message.data) for message in messages) == sorted(json.dumps(data) for _, _, data in events)
    stream.close()
    receiver.close()


@pytest.mark.heavy
def test_all_types_over_kills(new_service):
    """A client that comes back with its last id, while the service is killed: each event once, each type in its order."""
    service = new_service()
    act(service, 0)
    seen, last = [], "0"
    for turn in range(1, 7):
        stream = Events(service, ALL, last_id=last)
        writer = threading.Thread(target=lambda turn=turn: [act(service, turn * 10 + number) for number in range(3)])
        writer.start()
        if turn % 2:
            seen += stream.take(5)
            writer.join()
        else:
            writer.join()
            seen += stream.take(7)
        last = stream.last_id
        stream.close()
        service.kill()
        service.start()
    expected = everything(service)
    seen += Events(service, ALL, last_id=last).take(sum(map(len, expected.values())) - len(seen))
    assert told(seen) == expected
    for kind in ("run", "alias"):
        numbers = [data["id"] for _, one, data in seen if one == kind]
        assert numbers == sorted(set(numbers))


def test_what_is_deleted_is_left_out(versions):
    before = Events(versions, "?types=version&since=0")
    count = len(everything(versions)["version"])
    last = before.take(count)[-1][0]
    assert versions.request("PUT", "/v1/models/m/versions/last", {"graph": branches(2, "last")}).status == 201
    newest = before.take(1)[0][0]
    assert versions.delete("/v1/models/m/versions/last").status in (200, 204)
    versions.restart()
    resumed = Events(versions, "?types=version", last_id=newest)  # its version is gone; it is an id all the same
    again = Events(versions, "?types=version", last_id=last)
    assert versions.request("PUT", "/v1/models/m/versions/next", {"graph": branches(2, "next")}).status == 201
    for one in (resumed, again):
        assert [data["version"] for _, _, data in one.take(1)] == ["next"]
        one.close()


def test_a_token_that_may_read_sees_them(new_service):
    service = new_service("--heartbeat", "1")
    admin = make_token(service, "admin", "boss")
    for scope in ("read", "hooks"):
        token = make_token(service, scope, scope, by=admin)
        stream = Events(service, ALL, token=token)
        run = {"graph": branches(2, scope), "passes": ["MergeLinears"]}
        assert service.post("/v1/optimize", run, headers=bearer(admin)).status == 201
        assert stream.take(1)[0][1] == "run"
        assert service.delete(f"/v1/tokens/{scope}", headers=bearer(admin)).status == 200
        with pytest.raises(Ended):  # the permission went with the token
            stream.take(1)
        stream.close()
    is_problem(service.get(f"/v1/events{ALL}"), 401, "token-required")


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


@pytest.mark.heavy
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
