"""S3-compatible servers for the tests, on loopback: rclone's, which checks signatures, and moto's, which is nearer to Amazon's
elsewhere; and a proxy before one of them that does what networks and busy servers do."""

import hashlib
import http.client
import http.server
import os
import pathlib
import socket
import subprocess
import threading
import time
import urllib.request

from ports import free_port

IN_USE = os.environ.get("BLOBS") == "s3"  # every service has its blobs in a bucket of a server that the tests start
BUCKET = "bucket"
KEY, SECRET = "ACCESSKEY1", "a-secret-that-no-log-may-have"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


def program(name):
    return str(pathlib.Path(os.environ["FOLDBACK_S3_SERVERS"]) / name)


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Server:
    """Of one process. `kind` is "rclone" or "moto"."""

    def __init__(self, folder, kind="rclone"):
        self.kind, self.folder, self.process = kind, pathlib.Path(folder), None
        self.port = free_port()
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)

    def start(self):
        # No hash: it would read an object as a whole for each HEAD and range.
        rclone = [program("rclone"), "serve", "s3", "--config", "", "--auth-key", f"{KEY},{SECRET}", "--addr",
                  f"127.0.0.1:{self.port}",
                  "--etag-hash", "", "--vfs-cache-mode", "off", "--dir-cache-time", "1ms", str(self.folder)]
        moto = [program("moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
        output = self.folder.parent / f"{self.folder.name}.log"
        with open(output, "ab") as log:
            # It ends with this process, also where that is killed: one that is left goes on computing.
            command = ["setpriv", "--pdeathsig", "KILL", *(rclone if self.kind == "rclone" else moto)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 600
        while not accepts(self.port):
            assert self.process.poll() is None and time.monotonic() < deadline, (
                f"the server did not start: {output.read_text()[-2000:]}")
            time.sleep(0.02)
        if self.kind == "moto":
            urllib.request.urlopen(urllib.request.Request(f"{self.url}/{BUCKET}", method="PUT")).close()
        return self

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def objects(self, prefix):
        """The blobs there, as paths; of rclone's."""
        return sorted(path for path in (self.folder / BUCKET / prefix / "blobs").rglob("*") if path.is_file())


def options(url, prefix):
    return ["--blobs", f"s3://{BUCKET}/{prefix}", "--blobs-endpoint", url]


def prefix_of(data):
    """The same for the same data folder."""
    return "store-" + hashlib.sha256(str(pathlib.Path(data).absolute()).encode()).hexdigest()[:16]


class Proxy:
    """Passes requests on. `fault(method, path)` says what happens to one: None, ("status", 503, "SlowDown"), ("slow", seconds),
    ("cut", bytes) of the answer's body, ("drop",) without an answer, ("deaf",) after it was passed on."""

    def __init__(self, server):
        self.fault, self.seen = (lambda method, path: None), []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                proxy.seen.append((self.command, self.path))
                fault = proxy.fault(self.command, self.path) or ("none",)
                if fault[0] == "drop":
                    return self.hang_up()
                if fault[0] == "slow":
                    time.sleep(fault[1])
                if fault[0] == "status":
                    return self.give(fault[1], [], f"<Error><Code>{fault[2]}</Code><Message>no</Message></Error>".encode())
                try:
                    status, headers, found = self.ask(body)
                except (OSError, http.client.HTTPException):  # it ended, or was restarted
                    return self.hang_up()
                if fault[0] == "deaf":
                    return self.hang_up()
                self.give(status, headers, found, fault[1] if fault[0] == "cut" else None)

            def ask(self, body):
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                found = answer.read()
                connection.close()
                return answer.status, answer.getheaders(), found

            def hang_up(self):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

            def give(self, status, headers, body, cut=None):
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = dict((name.lower(), value) for name, value in headers).get("content-length", len(body))
                self.send_header("Content-Length", str(length if self.command == "HEAD" else len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body[:cut])
                if cut is not None:
                    self.wfile.flush()
                    self.hang_up()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}"

    def close(self):
        self.httpd.shutdown()
        self.httpd.server_close()


_server = None


def shared_server():
    """One for this process of pytest."""
    global _server
    if _server is None:
        import atexit
        import tempfile

        folder = tempfile.TemporaryDirectory(prefix="foldback-s3-")
        _server = Server(pathlib.Path(folder.name) / "root").start()
        atexit.register(lambda: (_server.stop(), folder.cleanup()))
    return _server
