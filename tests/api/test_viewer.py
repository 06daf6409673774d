"""GET /ui and below, GET /v1/access, and foldback show --svg and foldback ui. tests/browser looks at the pages themselves."""

import http.client
import json
import pathlib
import re
import signal
import subprocess
import urllib.error
import urllib.request
import xml.etree.ElementTree as xml

import pytest
from access import bearer
from conftest import binary
from documents import FIXTURES, ids

UI = pathlib.Path(__file__).resolve().parents[2] / "server" / "ui"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def test_pages_and_files(shared):
    """Every file of server/ui is served as it is, and each address of a page gives the one page there is."""
    page = (UI / "index.html").read_bytes()
    for path in ("/ui", "/ui/models", "/ui/models/bert", "/ui/runs/run_01M7XTSAAT7GE5FHQDV5WCKM9T?passes=2&open=a",
                 "/ui/compare?base=a&graph=b", "/ui/jobs"):
        answer = shared.get(path, headers={"Accept": "text/html"})
        assert (answer.status, answer.body) == (200, page), path
    for file in UI.iterdir():
        answer = shared.get(f"/ui/{file.name}", headers={"Accept": "*/*"})
        assert ((answer.status, answer.body) == (200, file.read_bytes())
                and answer.headers["content-type"].startswith(TYPES[file.suffix]))
        again = shared.get(f"/ui/{file.name}", headers={"Accept": "*/*", "If-None-Match": answer.headers["etag"]})
        assert again.status == 304
    for path in ("/ui/other", "/ui/other/thing", "/ui/app.jsx"):
        assert shared.get(path, headers={"Accept": "*/*"}).status == 404
    assert shared.get("/ui/..%2Findex.c", headers={"Accept": "*/*"}).status in (400, 404)


def test_policy(shared):
    """No page runs or loads what is not a file of the viewer, and the files name nothing outside."""
    for path in ("/ui", "/ui/app.js", "/ui/runs/run_1"):
        policy = shared.get(path, headers={"Accept": "*/*"}).headers["content-security-policy"]
        assert (policy.startswith("default-src 'none'; script-src 'self'; ") and "unsafe" not in policy
                and "frame-ancestors 'none'" in policy)
    for file in UI.iterdir():
        text = file.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\("
                             r"|new Function|localStorage", text), file.name
    assert not re.search(r"<script(?![^>]* src=)|<style| on\w+=| style=", (UI / "index.html").read_text())


def test_browser_at_the_root(shared):
    for accept in ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"):
        answer = shared.get("/", headers={"Accept": accept})
        assert (answer.status, answer.headers["location"]) == (303, "/ui") and b'href="/ui"' in answer.body
    for accept in ("*/*", "application/json", "application/json, text/html;q=0.5"):
        assert shared.get("/", headers={"Accept": accept}).json()["ui"] == "/ui"


def test_access(service):
    assert service.get("/v1/access").json() == {"principal": "anonymous", "scope": "admin"}


def test_access_of_tokens(new_service):
    service = new_service()
    service.stop()
    secrets = {}
    for scope in ("admin", "write", "read"):
        made = subprocess.run([binary(), "token", "create", "--data", service.data, "--scope", scope, "--name", f"a-{scope}",
                               "--json"], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        secrets[scope] = json.loads(made.stdout)["token"]
    service.start()
    assert service.get("/v1/access").status == 401
    for scope, secret in secrets.items():
        assert service.get("/v1/access", headers=bearer(secret)).json() == {"principal": f"a-{scope}", "scope": scope}


# ---- the command line --------------------------------------------------------------------------------------------------------


def foldback(*arguments, folder):
    return subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=600, cwd=folder)


def labels(svg):
    return [one.text for one in xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text") if one.get("class") == "label"]


def test_show_svg(tmp_path):
    """Of a file without a store; of a run, what it changed."""
    bert = FIXTURES / "bert-base" / "graph.json"
    made = foldback("show", bert, "--svg", "-o", "x.svg", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert {"embeddings", "encoder.layer", "input_ids"} <= set(labels((tmp_path / "x.svg").read_text()))
    opened = foldback("show", bert, "--svg", "--open", "encoder.layer.3.attention.self", folder=tmp_path)
    assert {"query", "key", "value"} <= set(labels(opened.stdout))
    run = json.loads(foldback("optimize", bert, "--pass", "MergeLinears", folder=tmp_path).stdout)["id"]
    changed = foldback("show", run, "--svg", "--open", "encoder.layer.3.attention.self", folder=tmp_path)
    assert "query_key_value_merged" in labels(changed.stdout) and "box node added" in changed.stdout
    failed = foldback("show", "nothing.json", "--svg", folder=tmp_path)
    assert failed.returncode == 1 and "nothing.json" in failed.stderr


class Viewer:
    def __init__(self, *arguments, folder):
        self.process = subprocess.Popen([binary(), "ui", "--no-browser", *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, cwd=folder)
        self.address = self.process.stdout.readline().strip()
        self.url, self.page, self.token = re.fullmatch(r"(http://127\.0\.0\.1:\d+)(/ui[^#]*)#token=(fbt_\S{43})",
                                                       self.address).groups()

    def get(self, path, token=None):
        request = urllib.request.Request(self.url + path, headers=bearer(token) if token else {})
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def end(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(600) == 0, self.process.stderr.read()


def test_ui_of_a_folder(tmp_path):
    """A service of one's own: only who has the token of the address gets anything, and it ends with the process."""
    viewer = Viewer(FIXTURES / "toy" / "graph.json", folder=tmp_path)
    graph = ids("toy")[0]
    assert viewer.page == f"/ui/graphs/{graph}"
    assert viewer.get(viewer.page)[0] == 200
    assert viewer.get(f"/v1/graphs/{graph}")[0] == 401 and viewer.get(f"/v1/graphs/{graph}", "fbt_" + "A" * 43)[0] == 401
    status, body = viewer.get(f"/v1/graphs/{graph}/layout", viewer.token)
    assert status == 200 and json.loads(body)["graph"] == graph
    assert json.loads(viewer.get("/v1/access", viewer.token)[1]) == {"principal": "local", "scope": "admin"}
    viewer.end()
    with pytest.raises((ConnectionError, urllib.error.URLError, http.client.HTTPException)):
        viewer.get("/ui")
    later = Viewer(folder=tmp_path)
    assert later.page == "/ui" and later.token != viewer.token and later.get("/v1/graphs", viewer.token)[0] == 401
    later.end()


def test_ui_of_things(tmp_path):
    run = json.loads(foldback("optimize", FIXTURES / "toy" / "graph.json", "--pass", "MergeLinears",
                              folder=tmp_path).stdout)["id"]
    assert foldback("register", "bert:1", run, folder=tmp_path).returncode == 0
    assert foldback("deploy", "bert@champion", "1", folder=tmp_path).returncode == 0
    for arguments, page in ((["bert"], "/ui/models/bert"), (["bert@champion"], "/ui/models/bert"), ([run], f"/ui/runs/{run}"),
                            ([ids("toy")[0][7:19]], f"/ui/graphs/{ids('toy')[0]}")):
        viewer = Viewer(*arguments, folder=tmp_path)
        assert viewer.page == page
        viewer.end()


def test_ui_of_a_service(shared, tmp_path):
    """Of a service elsewhere it is its own viewer, and no token is put into an address."""
    for words in (["register", "viewed:1", FIXTURES / "toy" / "graph.json"], ["deploy", "viewed@champion", "1"]):
        assert foldback(*words, "--server", shared.url, folder=tmp_path).returncode == 0
    made = foldback("ui", "--no-browser", "--server", shared.url, "viewed@champion", folder=tmp_path)
    assert (made.returncode, made.stdout.strip()) == (0, f"{shared.url}/ui/models/viewed")


def test_ui_of_a_folder_with_tokens(tmp_path):
    """The store's tokens count for nothing here: whoever may read the folder may look at it."""
    assert foldback("token", "create", "--scope", "read", "--name", "reader", folder=tmp_path).returncode == 0
    viewer = Viewer(folder=tmp_path)
    assert viewer.get("/v1/graphs")[0] == 401 and json.loads(viewer.get("/v1/access", viewer.token)[1])["scope"] == "admin"
    viewer.end()
