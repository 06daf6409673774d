"""A hub on this machine that speaks as much of the Hugging Face Hub as a push and a pull take: repositories, commits of lines
of JSON, large files by git-lfs's batch API, and downloads of a revision. Standard library only."""

import base64
import hashlib
import http.server
import json
import re
import threading
import urllib.parse


class Hub:
    """`repos`: {name: [commits, each {path: bytes}]}. Files of 1 KiB and more are large ones."""

    LARGE = 1024

    def __init__(self, token="hf_test"):
        self.token, self.repos, self.objects, self.asked = token, {}, {}, []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @staticmethod
    def sha(repo, number):
        return hashlib.sha1(f"{repo} {number}".encode()).hexdigest()

    def files(self, repo, revision):
        commits = self.repos[repo]
        numbers = {self.sha(repo, number): number for number in range(len(commits))}
        number = len(commits) - 1 if revision == "main" else numbers[revision]
        return self.sha(repo, number), commits[number]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None

    def log_message(self, *ignored):
        pass

    def _answer(self, status, body=b"", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _go(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        if not path.startswith("/objects/") and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._answer(401, {"error": "Invalid credentials"})
            return
        for method, pattern, handler in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in method:
                try:
                    handler(self, body, *found.groups())
                except KeyError:
                    self._answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
                return
        self._answer(404, {"error": f"there is no {path}"})

    do_GET = do_HEAD = do_POST = do_PUT = _go

    def create(self, body):
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
        known = name in self.hub.repos
        self.hub.repos.setdefault(name, [{".gitattributes": b""}])
        self._answer(409 if known else 200, {"url": f"{self.hub.url}/{name}", "name": name})

    def validate(self, body):
        self._answer(200, {"errors": [], "warnings": []})

    def preupload(self, body, repo, revision):
        assert revision == "main" and self.hub.repos[repo]
        files = [
            {"path": one["path"], "uploadMode": "lfs" if one["size"] >= self.hub.LARGE else "regular", "shouldIgnore": False}
            for one in json.loads(body)["files"]
        ]
        self._answer(200, {"files": files})

    def batch(self, body, repo):
        objects = []
        for one in json.loads(body)["objects"]:
            action = ({} if one["oid"] in self.hub.objects
                      else {"actions": {"upload": {"href": f"{self.hub.url}/objects/{one['oid']}"}}})
            objects.append({"oid": one["oid"], "size": one["size"], **action})
        self._answer(200, {"transfer": "basic", "objects": objects}, Content_Type="application/vnd.git-lfs+json")

    def put(self, body, oid):
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.objects[oid] = body
        self._answer(200)

    def commit(self, body, repo, revision):
        files = dict(self.hub.repos[repo][-1])
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif item["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif item["key"] == "deletedFile":
                del files[value["path"]]
            else:
                assert item["key"] == "header", item
        self.hub.repos[repo].append(files)
        sha = self.hub.sha(repo, len(self.hub.repos[repo]) - 1)
        self._answer(200, {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{repo}/commit/{sha}",
                           "hookOutput": ""})

    def info(self, body, repo, revision="main"):
        sha, files = self.hub.files(repo, revision)
        self._answer(200, {"id": repo, "modelId": repo, "sha": sha, "private": False,
                           "siblings": [{"rfilename": name} for name in files]})

    def tree(self, body, repo, revision):
        _, files = self.hub.files(repo, revision)
        self._answer(200, [{"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                           for name, data in files.items()])

    def resolve(self, body, repo, revision, name):
        sha, files = self.hub.files(repo, revision)
        data = files[name]
        headers = {"X_Repo_Commit": sha, "ETag": f'"{hashlib.sha256(data).hexdigest()}"', "Accept_Ranges": "bytes"}
        if self.command == "HEAD":
            self._answer(200, b"", Content_Length=str(len(data)), **headers)
        else:
            self._answer(200, data, **headers)


REPO = r"([^/]+/[^/]+)"
ROUTES = [
    (("POST",), "/api/repos/create", Handler.create),
    (("POST",), "/api/validate-yaml", Handler.validate),
    (("POST",), f"/api/models/{REPO}/preupload/([^/]+)", Handler.preupload),
    (("POST",), f"/{REPO}.git/info/lfs/objects/batch", Handler.batch),
    (("PUT",), "/objects/([0-9a-f]{64})", Handler.put),
    (("POST",), f"/api/models/{REPO}/commit/([^/]+)", Handler.commit),
    (("GET",), f"/api/models/{REPO}/revision/([^/]+)", Handler.info),
    (("GET",), f"/api/models/{REPO}/tree/([^/]+)", Handler.tree),
    (("GET",), f"/api/models/{REPO}", Handler.info),
    (("GET", "HEAD"), f"/{REPO}/resolve/([^/]+)/(.+)", Handler.resolve),
]
