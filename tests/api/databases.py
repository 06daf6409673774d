"""A PostgreSQL for the tests, of Debian's package, on a Unix socket in a temporary folder; and a proxy that cuts connections to
it."""

import atexit
import functools
import glob
import hashlib
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from ports import free_port

IN_USE = os.environ.get("STORE") == "postgresql"  # every service has its rows in a database of a server that the tests start
USER, SECRET = "foldback", "a-password-that-no-log-may-have"


def program(name):
    # Debian's command of that name is a script in Perl, which takes longer than psql itself.
    found = max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), default=None) or shutil.which(name)
    assert found, f"there is no {name}; deploy/install-deps.sh test installs it"
    return found


def as_user(command):
    """initdb and postgres refuse to be run by root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


class Server:
    """Of one process tree. Whoever comes over the socket is trusted; over TCP, on loopback, with the password alone."""

    def __init__(self, folder, *options, of=None):
        """`of`: it is a streaming standby of that one."""
        self.folder, self.options, self.process, self.of = pathlib.Path(folder), options, None, of
        self.port = free_port()
        if os.geteuid() == 0:
            self.folder.parent.chmod(0o755)
            self.folder.mkdir()
            shutil.chown(self.folder, "postgres")
        else:
            self.folder.mkdir()
        if of:
            self._run("pg_basebackup", "-D", str(self.data), "-R", "-X", "stream", "-c", "fast", "-h", str(of.folder), "-p",
                      str(of.port), "-U", USER, "--no-sync")
            return
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-U", USER, "--no-sync")
        (self.data / "pg_hba.conf").write_text("local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 "
                                               "scram-sha-256\n")

    @property
    def data(self):
        return self.folder / "data"

    def _run(self, name, *arguments):
        done = subprocess.run(as_user([program(name), *arguments]), capture_output=True, text=True, cwd="/", timeout=600)
        assert done.returncode == 0, done.stderr + done.stdout

    def start(self):
        options = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}",
                   "max_connections=300",
                   "fsync=off", "full_page_writes=off", "shared_buffers=32MB", *self.options]
        output = self.folder.parent / f"{self.folder.name}.log"
        with open(output, "ab") as log:
            command = [program("postgres"), "-D", str(self.data), *(word for option in options for word in ("-c", option))]
            self.process = subprocess.Popen(as_user(command), stdout=log, stderr=log, cwd="/")
        deadline = time.monotonic() + 600
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < deadline, (
                f"the server did not start: {output.read_text()[-2000:]}")
            time.sleep(0.05)
        if not self.of:
            self.sql(f"ALTER ROLE {USER} PASSWORD '{SECRET}'")
        return self

    def promote(self):
        """A standby takes over."""
        self.sql("SELECT pg_promote()")
        self.of = None

    def answers(self):
        return self._psql("postgres", "SELECT 1").returncode == 0

    def stop(self, how="immediate"):
        """SIGQUIT ends every session in the middle of what it does, and the log is replayed at the next start."""
        if self.process is not None:
            self._run("pg_ctl", "-D", str(self.data), "-m", how, "-w", "stop")
            self.process.wait()
            self.process = None

    def restart(self):
        self.stop()
        return self.start()

    def _psql(self, database, text):
        command = [program("psql"), "-X", "-A", "-t", "-q", "-h", str(self.folder), "-p", str(self.port), "-U", USER,
                   "-d", database]
        return subprocess.run([*command, "-v", "ON_ERROR_STOP=1", "-c", text], capture_output=True, text=True, timeout=600)

    def sql(self, text, database="postgres"):
        done = self._psql(database, text)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def make(self, name):
        """An empty database, or the one that is there already; its URL."""
        done = self._psql("postgres", f"CREATE DATABASE {name} STRATEGY file_copy")
        assert done.returncode == 0 or "already exists" in done.stderr, done.stderr
        return self.url(name)

    def url(self, name):
        return f"postgresql://{USER}@/{name}?host={self.folder}&port={self.port}"

    def tcp_url(self, name, port=None):
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/{name}"


def name_of(data):
    """The same for the same data folder."""
    return "store_" + hashlib.sha256(str(pathlib.Path(data).absolute()).encode()).hexdigest()[:16]


def new_server(*options, of=None):
    """It goes with stop(); its folder is one that another user reaches."""
    folder = tempfile.TemporaryDirectory(prefix="foldback-pg-")
    server = Server(pathlib.Path(folder.name) / "server", *options, of=of).start()
    atexit.register(lambda: (server.stop(), folder.cleanup()))
    return server


@functools.cache
def shared_server():
    """One for this process of pytest."""
    return new_server()


class Proxy:
    """Passes bytes on to the server's TCP port. `cut()` breaks all connections; while `is_held` nothing gets through;
    `watch(bytes)` sees what a client has sent since it committed last, and what it returns is done: None passes it on, "before"
    breaks the connection without, "after" passes it on and breaks it before the answer."""

    def __init__(self, server):
        self.server, self.watch, self.is_open, self.is_held = server, (lambda sent: None), True, False
        self.pairs = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if not self.is_open:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.server.port), 5)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            self.pairs.add(pair)
            threading.Thread(target=self._pump, args=(pair, client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(pair, server, client, False), daemon=True).start()

    def _pump(self, pair, source, target, is_client):
        said = b""
        try:
            while piece := source.recv(65536):
                while self.is_held and pair in self.pairs:
                    time.sleep(0.02)
                said = piece if b"COMMIT" in said else said[-(1 << 20) :] + piece
                fault = self.watch(said) if is_client else None
                if fault == "before":
                    break
                if fault == "after":
                    self._shut(pair[0])  # the answer finds nobody
                target.sendall(piece)
                if fault == "after":
                    time.sleep(0.2)  # the server has had the time to do it
                    break
        except OSError:
            pass
        self._break(pair)

    @staticmethod
    def _shut(one):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _break(self, pair):
        self.pairs.discard(pair)
        for one in pair:
            self._shut(one)

    def cut(self):
        for pair in list(self.pairs):
            self._break(pair)

    def close(self):
        self.is_open = False
        self.listener.close()
        self.cut()
