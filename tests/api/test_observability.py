"""What an operator sees: metrics, traces, times, the log, and what happens when there is too much to do."""

import concurrent.futures
import gzip
import json
import re
import resource
import subprocess
import time

import prometheus
import pytest
from blobs import wait_until
from conftest import binary, of_a_file
from documents import branches

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


def metrics_of(service):
    return prometheus.parse(service.get("/metrics").body.decode())


def log_line(service, request):
    """The line is written when the answer has gone out, which may be after we have it."""
    for _ in range(500):
        for line in service.log().splitlines():
            if line.startswith("{") and json.loads(line).get("request") == request:
                return json.loads(line)
        time.sleep(0.01)
    raise AssertionError(service.log()[-2000:])


# ----------------------------------------------------------------------------------------------------------- metrics


EXPECTED = {
    "foldback_build_info": "gauge", "foldback_http_requests_total": "counter",
    "foldback_http_request_duration_seconds": "histogram",
    "foldback_http_in_flight": "gauge", "foldback_http_queue_depth": "gauge", "foldback_http_connections": "gauge",
    "foldback_http_streams": "gauge", "foldback_http_body_bytes": "gauge", "foldback_http_rejected_total": "counter",
    "foldback_store_commits_total": "counter", "foldback_store_group_size": "histogram", "foldback_store_queue_depth": "gauge",
    "foldback_store_wal_bytes": "gauge", "foldback_store_database_bytes": "gauge", "foldback_cache_hits_total": "counter",
    "foldback_cache_misses_total": "counter", "foldback_cache_bytes": "gauge", "foldback_pass_applied_total": "counter",
    "foldback_pass_refused_total": "counter", "process_resident_memory_bytes": "gauge", "process_virtual_memory_bytes": "gauge",
    "process_open_fds": "gauge", "process_max_fds": "gauge", "process_cpu_seconds_total": "counter",
    "process_start_time_seconds": "gauge",
}


@of_a_file
def test_metrics_keep_the_rules_of_prometheus(service):
    service.post("/v1/optimize", branches(), raw_query="pass=MergeLinears")
    service.get("/nothing")
    metrics = metrics_of(service)
    assert {name: metrics[name].kind for name in EXPECTED if name in metrics} == EXPECTED
    assert all(name.startswith(("foldback_", "process_")) for name in metrics)


@of_a_file
def test_metrics_say_what_happened(service):
    # Of its own it writes twice at the start: jobs that ran when it ended wait again, and those from long ago go.
    wait_until(lambda: prometheus.value(metrics_of(service), "foldback_store_commits_total") == 2)
    before = metrics_of(service)
    for _ in range(5):
        assert service.post("/v1/optimize", branches(), raw_query="pass=MergeLinears").status in (200, 201)
    service.raw(b"GET /livez HTTP/1.1\nHost: localhost\n\n")
    after = metrics_of(service)

    def grown(name, **labels):
        return prometheus.value(after, name, **labels) - (prometheus.value(before, name, **labels) or 0)

    assert grown("foldback_store_commits_total") == grown("foldback_store_group_size_count") == 5
    assert grown("foldback_store_group_size_sum") == 5 and grown("foldback_store_group_size_bucket", le="1") == 5
    assert grown("foldback_http_rejected_total", reason="framing") == 1
    assert prometheus.value(after, "foldback_pass_applied_total", **{"pass": "MergeLinears"}) == 5
    assert prometheus.value(after, "foldback_http_request_duration_seconds_count", route="/v1/optimize", method="POST") == 5
    assert prometheus.value(after, "foldback_store_wal_bytes") > 0
    assert prometheus.value(after, "process_resident_memory_bytes") > 1 << 20
    assert 10 < prometheus.value(after, "process_open_fds") < prometheus.value(after, "process_max_fds")
    assert prometheus.value(after, "process_cpu_seconds_total") > 0
    assert abs(prometheus.value(after, "process_start_time_seconds") - time.time()) < 600


def test_connections_and_descriptors_are_counted(service):
    before = metrics_of(service)
    held = [service.connect() for _ in range(20)]
    for _ in range(500):
        after = metrics_of(service)
        if prometheus.value(after, "foldback_http_connections") >= 20:
            break
    grown = [prometheus.value(after, name) - prometheus.value(before, name)
             for name in ("foldback_http_connections", "process_open_fds")]
    assert min(grown) >= 19
    for connection in held:
        connection.close()


FORGETFUL = """
"$0" serve --listen unix:"$1/socket" --data "$1/data" > "$1/said" 2>&1 & service=$!
until curl -s --unix-socket "$1/socket" http://localhost/readyz > "$1/ready"; do kill -0 $service || exit; sleep 0.1; done
curl -s --unix-socket "$1/socket" http://localhost/metrics | grep -c ^process_
mount -o remount,rw /proc
curl -s --unix-socket "$1/socket" http://localhost/metrics | grep -c ^process_
kill $service
wait $service
"""


def test_figures_of_the_process_outlive_the_names_of_proc(tmp_path):
    """A kernel that is short of memory forgets names, as it does for a remount: procfs makes new inodes then."""
    private = ["unshare", "--fork", "--pid", "--mount-proc"]
    if subprocess.run([*private, "mount", "-o", "remount,rw", "/proc"], capture_output=True).returncode:
        pytest.skip("needs a procfs of its own")
    done = subprocess.run([*private, "sh", "-c", FORGETFUL, binary(), tmp_path], capture_output=True, text=True, timeout=100)
    before, after = done.stdout.split()
    assert int(before) == int(after) > 4


def test_the_checker_can_fail():
    good = '# HELP a_total x\n# TYPE a_total counter\na_total{l="v"} 1\n'
    prometheus.parse(good)
    for bad in [
        good[:-1], good.replace("# TYPE a_total counter\n", ""), good + 'a_total{l="v"} 2\n', good.replace("a_total", "a"),
        good.replace('"v"', '"v'), good.replace(" 1", " one"), good + "b 1\n", good.replace("1\n", "-1\n"),
        "# HELP h x\n# TYPE h histogram\n" + 'h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n',
        "# HELP h x\n# TYPE h histogram\n" + 'h_bucket{le="1"} 1\nh_sum 1\nh_count 1\n',
    ]:
        with pytest.raises((AssertionError, ValueError, KeyError, IndexError)):
            prometheus.parse(bad)


# ------------------------------------------------------------------------------------------------------------ traces


def test_trace_is_logged_and_names_the_request(service):
    answer = service.get("/v1/passes", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    assert answer.headers["x-request-id"] == TRACE
    line = log_line(service, TRACE)
    assert (line["trace"], line["parent_span"]) == (TRACE, SPAN)
    service.get("/v1/passes", headers={"traceparent": f"00-{TRACE}-{SPAN}-00", "X-Request-Id": "mine"})
    line = log_line(service, "mine")
    assert line["trace"] == TRACE
    later = f"cc-{TRACE}-{SPAN}-01-what-the-future-will-bring"
    assert service.get("/livez", headers={"traceparent": later}).headers["x-request-id"] == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "", "00", f"00-{TRACE}", f"00-{TRACE}-{SPAN}", f"00-{TRACE}-{SPAN}-", f"00-{TRACE}-{SPAN}-1", f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-01-more", f"00-{TRACE}-{SPAN}-011", f"ff-{TRACE}-{SPAN}-01", f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}a-{SPAN}-01", f"00_{TRACE}_{SPAN}_01", f"cc-{TRACE}-{SPAN}-01x", f"00-{TRACE}-{SPAN[:-1]}g-01",
        f"00-{TRACE[:-1]}\"-{SPAN}-01",
    ],
)
def test_bad_trace_is_as_none(shared, header):
    answer = shared.get("/livez", headers={"traceparent": header})
    assert answer.status == 200
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"]) and answer.headers["x-request-id"] != TRACE
    line = log_line(shared, answer.headers["x-request-id"])
    assert "trace" not in line and "parent_span" not in line


def test_two_traces_are_none(shared):
    parent = f"traceparent: 00-{TRACE}-{SPAN}-01\r\n".encode()
    raw = shared.raw(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + parent * 2 + b"\r\n")
    assert raw.startswith(b"HTTP/1.1 200") and TRACE.encode() not in raw


# ------------------------------------------------------------------------------------------------------------- times


def test_server_timing(service):
    answer = service.post("/v1/optimize", branches(), raw_query="pass=MergeLinears", headers={"X-Request-Id": "timed"})
    entries = [re.fullmatch(r"([a-z]+);dur=(\d+\.\d{3})", entry) for entry in answer.headers["server-timing"].split(", ")]
    times = {entry[1]: float(entry[2]) for entry in entries}
    assert list(times) == ["read", "queue", "parse", "work", "store", "total"]
    assert times["parse"] > 0 and times["work"] > 0 and times["store"] > 0  # it read a document and waited for a commit
    assert abs(sum(times.values()) - 2 * times["total"]) < 0.01
    line = log_line(service, "timed")
    assert {name: line[f"{name}_ms"] for name in ("queue", "parse", "work", "store")} == {
        name: times[name] for name in ("queue", "parse", "work", "store")
    }
    assert line["ms"] >= times["total"]


def test_no_times_without_work(shared):
    assert "server-timing" not in shared.get("/nothing").headers


# --------------------------------------------------------------------------------------------------------------- log


def test_log_is_json_with_known_members(service):
    service.get("/v1/passes?limit=zz")
    service.get("/nothing", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
    service.post("/v1/graphs", b"{")
    service.raw(b"GET /\xff\x01\" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    service.stop()
    always = {"time", "request", "method", "path", "status", "bytes_in", "bytes_out", "ms", "remote"}
    lines = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    assert len(lines) == 4
    for line in lines:
        assert always <= set(line), line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert len({line["request"] for line in lines}) == 4
    assert [line.get("code") for line in lines] == ["unknown-parameter", "not-found", "invalid-json", "bad-target"]


def test_the_log_has_no_code_where_nothing_went_wrong(service):
    service.get("/v1/passes")
    service.stop()
    lines = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    assert [(line["status"], "code" in line) for line in lines] == [(200, False)]


# ------------------------------------------------------------------------------------------------------------ limits


@pytest.mark.heavy
def test_bodies_that_decompress_too_well(new_service):
    """As small as it comes, it would take memory: more than 200 to 1 is refused from 16 MiB on."""
    service = new_service()
    blank = b" " * (40 << 20)
    answer = service.post("/v1/graphs", gzip.compress(blank), headers={"Content-Encoding": "gzip"})
    assert (answer.status, answer.json()["code"]) == (413, "body-ratio-too-large")
    assert prometheus.value(metrics_of(service), "foldback_http_body_bytes") == 0
    small = gzip.compress(blank[: 15 << 20] + json.dumps(branches()).encode())
    assert service.post("/v1/graphs", small, headers={"Content-Encoding": "gzip"}).status == 201
    lenient = new_service("--max-body-ratio", "0")
    assert lenient.post("/v1/graphs", gzip.compress(blank),
                        headers={"Content-Encoding": "gzip"}).json()["code"] == "invalid-json"


def test_descriptors_are_not_the_limit(new_service):
    """A shell's soft limit is raised as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        service = new_service()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert prometheus.value(metrics_of(service), "process_max_fds") == hard


def test_connections_of_one_address(new_service):
    service = new_service("--max-connections-per-address", "3")
    held = []
    for _ in range(3):
        held.append(service.connect())
        held[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[-1].recv(65536).startswith(b"HTTP/1.1 200")
    with service.connect() as one_more:
        try:
            one_more.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one_more.recv(65536) == b""
        except OSError:
            pass  # closed before it was read
    held.pop().close()
    for _ in range(100):
        try:
            metrics = metrics_of(service)
            break
        except OSError:
            time.sleep(0.05)  # its place is not free yet
    assert prometheus.value(metrics, "foldback_http_rejected_total", reason="address") >= 1
    for connection in held:
        connection.close()


def test_overload_is_answered_at_once(new_service):
    """One worker, room for one more: of 40 requests at once some are told to come back, and every other one is done."""
    service = new_service("--workers", "1", "--max-queue", "1")
    document = branches()

    def client(_):
        answer = service.post("/v1/optimize", document, raw_query="pass=MergeLinears")
        if answer.status == 503:
            assert answer.json()["code"] == "overloaded" and int(answer.headers["retry-after"]) >= 1
        return answer.status

    statuses = []
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        for _ in range(20):
            statuses += pool.map(client, range(40))
            if 503 in statuses:
                break
    assert set(statuses) == {201, 503}
    metrics = metrics_of(service)
    assert prometheus.value(metrics, "foldback_http_rejected_total", reason="queue-full") == statuses.count(503)
    assert prometheus.value(metrics, "foldback_store_runs") == statuses.count(201)
    assert service.get("/livez").status == 200  # never waits for a worker
