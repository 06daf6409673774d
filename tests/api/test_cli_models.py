"""The command line: versions, aliases, deploying and rolling back."""

import json

import documents
import pytest
from cli import CommandLine
from test_cli import TOY, foldback, identity, optimize  # noqa: F401 (a fixture)


@pytest.fixture
def deployed(foldback):
    """toy:v1 as it was traced, toy:v2 with two passes; toy@prod went from one to the other."""
    foldback.runs = optimize(foldback, TOY, "MergeLinears", "FuseBatchNorm2dInConv2d")
    assert foldback("register", "toy:v1", TOY, "--note", "as traced").json()["run"] is None
    assert foldback("register", "toy:v2", foldback.runs["id"]).json()["run"] == foldback.runs["id"]
    assert foldback("deploy", "toy@prod", "v1", "--who", "ann").json()["version"] == "v1"
    assert foldback("deploy", "toy@prod", "v2", "--who", "bob", "--why", "faster").json()["version"] == "v2"
    return foldback


def test_the_story(deployed):
    entries = deployed("history", "toy@prod").json()["items"]
    assert [(one["action"], one["from"], one["to"], one["who"], one["why"]) for one in entries] == [
        ("deploy", "v1", "v2", "bob", "faster"), ("create", None, "v1", "ann", None)]

    part = deployed("rollback", "toy@prod", "--pass", "FuseBatchNorm2dInConv2d", "--why", "accuracy", "-o", "part.json").json()
    assert part["version"] == "v2-without-FuseBatchNorm2dInConv2d" and part["graph"] == identity(deployed.path("part.json"))
    assert part["graph"] == optimize(deployed, TOY, "MergeLinears")["result"]
    assert deployed("rollback", "toy@prod").json()["version"] == "v2"
    assert deployed("rollback", "toy@prod").json()["version"] == "v1"
    nothing = deployed("rollback", "toy@prod")
    assert nothing.status == 1 and nothing.out == "" and nothing.err
    assert deployed("deploy", "toy@prod", "v2").json()["version"] == "v2"
    assert deployed("rollback", "toy@prod", "--to", "v1").json()["version"] == "v1"
    named = deployed("deploy", "toy@prod", "v2", USER="carl").json()
    assert named["who"] == "carl"
    named = deployed("rollback", "toy@prod", "-p", "MergeLinears", "--as", "v3").json()
    assert named["version"] == "v3" and deployed("show", named["run"]).json()["kind"] == "rollback"


def test_versions_and_aliases_are_graphs(deployed):
    code = documents.code("toy")
    assert deployed("code", "toy:v1").out == code != deployed("code", "toy@prod").out
    assert deployed("id", "toy@prod").out.strip() == deployed.runs["result"]
    assert deployed("diff", "toy:v1", "toy@prod").out.splitlines()[:2] == ["--- toy:v1", "+++ toy@prod"]
    assert deployed("optimize", "toy@prod", "-p", "FuseBiasInLinear").json()["source"] == deployed.runs["result"]
    assert deployed("register", "other:v1", "toy@prod").json()["graph"] == deployed.runs["result"]
    assert deployed("show", "toy:v1").json()["note"] == "as traced"
    assert deployed("show", "toy@prod").json()["version"] == "v2"


def test_lists(deployed):
    assert [(one["name"], one["versions"], one["aliases"]) for one in deployed("models").json()["items"]] == [("toy", 2, 1)]
    model = deployed("models", "toy").json()
    assert [one["version"] for one in model["versions"]] == ["v2", "v1"]
    assert [(one["alias"], one["version"]) for one in model["aliases"]] == [("prod", "v2")]
    assert deployed("models", "unknown").status == 1


def test_refused(deployed):
    for words, said in (
        (["register", "toy:v1", "toy:v2"], "v1"),
        (["deploy", "toy@prod", "v9"], "/version"),
        (["deploy", "unknown@prod", "v1"], "unknown"),
        (["deploy", "toy@prod", "v1", "--from", "v1"], "toy@prod is at v2, not at v1"),
        (["deploy", "toy@new", "v1", "--from", "v1"], "toy@new is at no version, not at v1"),
        (["rollback", "toy@prod", "--to", "v7"], "v7"),
        (["rollback", "toy@prod", "-p", "DeepCopy"], "DeepCopy"),
        (["rollback", "toy@other"], "other"),
        (["show", "toy@other"], "other"),
        (["history", "toy@other"], "other"),
        (["delete", "toy:v1"], "toy"),
        (["delete", deployed.runs["result"]], deployed.runs["id"]),
    ):
        refused = deployed(*words)
        assert refused.status == 1 and refused.out == "" and said in refused.err, (words, refused)
    for words, said in (
        (["rollback", "toy@prod", "--note", "x"], "--why"),
        (["rollback", "toy@prod", "--dry-run"], "--why"),
        (["rollback", "toy@prod", "--to", "other:v1"], "other:v1 is not a version of toy"),
        (["deploy", "toy@prod", "other/v1"], "other/v1 is not a version of toy"),
        (["register", TOY, "toy:v3"], "it takes MODEL:VERSION GRAPH"),
        (["register", "toy", "v3", TOY], "it takes MODEL:VERSION GRAPH"),
    ):
        refused = deployed(*words)
        assert refused.status == 2 and said in refused.err, (words, refused)
    assert deployed("show", "toy@prod").json()["version"] == "v2"
    assert deployed("deploy", "toy@prod", "toy:v1", "--from", "toy:v2").json()["version"] == "v1"


def test_delete(deployed):
    graph = documents.branches(4)
    deployed.put("graph.json", graph)
    made = deployed("register", "toy:spare", "graph.json").json()
    in_use = deployed("delete", made["graph"])
    assert in_use.status == 1 and "  versions: toy/spare\n" in in_use.err
    for thing in ("toy/spare", made["graph"]):  # as the refusal spells it
        gone = deployed("delete", thing)
        assert (gone.status, gone.out, gone.err) == (0, "", "")
        assert deployed("show", thing.replace("/", ":")).status == 1
    assert deployed("delete", "toy@prod").status == 0 and deployed("show", "toy@prod").status == 1
    last = deployed("history", "toy@prod").json()["items"][0]
    assert (last["action"], last["from"], last["to"]) == ("delete", "v2", None)


def test_a_lost_race(local_service, tmp_path):
    """Between reading the alias and moving it, somebody else moves it."""
    service, foldback = local_service
    foldback("register", "toy:v1", TOY)
    foldback("register", "toy:v2", TOY)
    foldback("deploy", "toy@prod", "v1")
    lost = foldback("deploy", "toy@prod", "v2")
    assert lost.status == 1 and lost.out == "" and "has changed since" in lost.err, lost
    assert json.loads(service.get("/v1/models/toy/aliases/prod").body)["who"] == "the other"


@pytest.fixture
def local_service(service, tmp_path):
    """A proxy before the service that moves the alias itself, just before it passes a PUT with If-Match on."""
    import http.server
    import threading

    class Proxy(http.server.BaseHTTPRequestHandler):
        def forward(self):
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size) if size else None
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() in ("if-match", "if-none-match", "content-type")}
            if "if-match" in {name.lower() for name in headers}:
                moved = service.request("PUT", self.path, {"version": "v2", "who": "the other"}, headers={"If-Match": "*"})
                assert moved.status == 200, moved
            answer = service.request(self.command, self.path, body, headers)
            self.send_response(answer.status)
            for name in ("content-type", "etag"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_PUT = do_POST = forward

        def log_message(self, *_):
            pass

    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    yield service, CommandLine(tmp_path, "--server", f"http://127.0.0.1:{proxy.server_address[1]}")
    proxy.shutdown()
    thread.join()
    proxy.server_close()
