"""foldback events: a line for each event, on a terminal and in a pipe."""

import http.server
import json
import os
import pty
import re
import signal
import subprocess
import threading

import pytest
from cli import CommandLine, environment
from conftest import binary
from test_cli import TOY, optimize


@pytest.fixture
def foldback(tmp_path, service):
    remote = CommandLine(tmp_path, "--server", service.url)
    run = optimize(remote, TOY, "MergeLinears")
    for model in ("bert", "resnet"):
        remote("register", f"{model}:v1", run["source"])
        remote("register", f"{model}:v2", run["id"])
    return remote


def heed_interrupts():
    """What a shell starts in the background ignores SIGINT, and so would what these tests start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Following:
    """A process that follows; `lines` reads as many as are asked for."""

    def __init__(self, foldback, *words, place=None, **streams):
        streams.setdefault("stdout", subprocess.PIPE)
        self.process = subprocess.Popen([binary(), "events", *words, *(place or foldback.place)], cwd=foldback.folder,
                                        stderr=subprocess.PIPE,
                                        stdin=subprocess.DEVNULL, env=environment(NO_COLOR="1"), preexec_fn=heed_interrupts,
                                        **streams)

    def lines(self, count):
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


def test_versions_and_runs(foldback):
    with Following(foldback, "--type", "run,version", "--since", "0") as following:
        found = following.lines(5)
        assert [one["type"] for one in found] == ["run"] + ["version"] * 4 and found[1]["data"]["model"] == "bert"
    assert foldback("events", "job_x", "--type", "run").status == 2


def test_a_line_for_each_event_until_ctrl_c(foldback):
    foldback("deploy", "bert@production", "v1")
    with Following(foldback, "--since", "0") as following:  # without it, what happened before it listens is not told
        assert [(one["model"], one["to"]) for one in following.lines(1)] == [("bert", "v1")]
        foldback("deploy", "bert@production", "v2", "--who", "ann", "--why", "A/B test")
        foldback("rollback", "bert@production")
        first, second = following.lines(2)
        assert (first["action"], first["from"], first["to"], first["why"]) == ("deploy", "v1", "v2", "A/B test")
        assert (second["action"], second["to"]) == ("rollback", "v1")
        following.process.send_signal(signal.SIGINT)
        assert following.process.wait(600) == -signal.SIGINT  # 130 to a shell


def test_of_one_model_and_alias(foldback):
    for alias in ("bert@production", "bert@staging", "resnet@production"):
        foldback("deploy", alias, "v1")
    for words, count in (([], 3), (["bert"], 2), (["bert@staging"], 1), (["resnet"], 1)):
        with Following(foldback, *words, "--since", "0") as following:
            found = following.lines(count)
            assert {f"{one['model']}@{one['alias']}" for one in found
                    if words} <= {alias for alias in ("bert@production", "bert@staging", "resnet@production") if not words
                                  or alias.startswith(words[0])}
            assert len({one["id"] for one in found}) == count


def test_on_a_terminal(foldback):
    ours, theirs = pty.openpty()
    foldback("deploy", "bert@production", "v1")
    foldback("deploy", "bert@production", "v2", "--who", "ann", "--why", "A/B test \033[2J")
    with Following(foldback, "--since", "0", stdout=theirs):
        os.close(theirs)
        shown = b""
        while shown.count(b"\n") < 2:
            shown += os.read(ours, 4096)
    os.close(ours)
    lines = shown.decode().splitlines()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  create    bert@production  v1(  .*)?", lines[0]), lines
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  deploy    bert@production  v1 → v2  ann: A/B test \?\[2J",
                        lines[1]), lines


def test_of_a_job(foldback):
    started = foldback("optimize", TOY, "-p", "MergeLinears", "--async").json()["id"]
    with Following(foldback, started) as following:
        told = [json.loads(line) for line in following.process.stdout]
        assert following.process.wait(600) == 0 and told[-1]["state"] == "succeeded"
    assert all(one["id"] == started for one in told)
    failing = foldback("optimize", "sha256:" + "0" * 64, "-p", "MergeLinears", "--async").json()["id"]
    with Following(foldback, failing) as following:
        told = [json.loads(line) for line in following.process.stdout]
        assert following.process.wait(600) == 1 and told[-1]["state"] == "failed"


class Stuttering(http.server.BaseHTTPRequestHandler):
    """Two events a stream, then it ends; the second stream begins where the client says."""

    asked = []

    def do_GET(self):
        last = self.headers.get("Last-Event-ID")
        self.asked.append(last)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        start = int(last or 0)
        self.wfile.write(b"retry: 2000\n: a comment\nid: %d\n\n" % start)
        for number in (start + 1, start + 2):
            data = json.dumps({"id": number, "model": "m", "alias": "a", "to": "v1"})
            self.wfile.write(f"id: {number}\r\nevent: alias\r\ndata: {data}\r\n\r\n".encode())
            self.wfile.flush()

    def log_message(self, *_):
        pass


def test_it_comes_back_and_leaves_nothing_out(tmp_path):
    server = http.server.HTTPServer(("127.0.0.1", 0), Stuttering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with Following(CommandLine(tmp_path), place=["--server", f"http://127.0.0.1:{server.server_port}"]) as following:
            assert [one["id"] for one in following.lines(5)] == [1, 2, 3, 4, 5]
        assert Stuttering.asked[:3] == [None, "2", "4"]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_refused(foldback, tmp_path):
    local = CommandLine(tmp_path, "--data", tmp_path / "d")
    assert local.run("events").status == 2 and "--server URL" in local.run("events").err
    for words, said in ((["--since", "x"], "at --since"), (["--since", "99"], "there is no event 99 yet"),
                        (["job_01ARZ3NDEKTSV4RRFFQ69G5FAV"], "there is no job"),
                        (["no model"], "letters, digits")):
        refused = foldback("events", *words)
        assert refused.status == 1 and said in refused.err, (words, refused)
    assert CommandLine(tmp_path).run("events", "--server", "http://127.0.0.1:1").status == 1


def test_a_reader_that_leaves(foldback):
    """`foldback events | head -1` ends with the next event."""
    with Following(foldback, "--since", "0") as following:
        foldback("deploy", "bert@production", "v1")
        following.lines(1)
        following.process.stdout.close()
        for i in range(2, 200):
            foldback("deploy", "bert@production", f"v{1 + i % 2}")
            try:
                assert following.process.wait(0.2) == 1
                break
            except subprocess.TimeoutExpired:
                continue
        else:
            raise AssertionError("it goes on without a reader")
