"""--listen unix:PATH: a socket that is a file, for one user of the machine."""

import contextlib
import fcntl
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import threading

import pytest
from conftest import STOP_TIMEOUT, binary

LONGEST = 107  # bytes of a path


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=600)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self.path))


def request(path, method="GET", target="/v1/passes", body=None, headers=None):
    with contextlib.closing(Connection(path)) as connection:
        connection.request(method, target, body, headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def command(data, path, *options):
    return [binary(), "serve", "--data", data, "--listen", f"unix:{path}", *options]


@contextlib.contextmanager
def serving(data, path, *options, folder=None):
    """The process, whose log is beside its data."""
    log = open(f"{data}.log", "wb")
    process = subprocess.Popen(command(data, path, *options), stdout=subprocess.PIPE, stderr=log, cwd=folder)
    try:
        assert process.stdout.readline() == f"listening on unix:{path}\n".encode(), open(log.name).read()
        yield process
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT)
        process.stdout.close()
        log.close()


def refused(data, path, *options):
    done = subprocess.run(command(data, path, *options), capture_output=True, text=True, timeout=600)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()[-1]


@pytest.fixture
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("s") / "socket"


def test_requests_and_the_file(tmp_path, path):
    with serving(tmp_path / "data", path):
        assert stat.S_ISSOCK(path.lstat().st_mode) and stat.S_IMODE(path.lstat().st_mode) == 0o600
        status, _, body = request(path)
        assert status == 200 and json.loads(body)
        start = json.loads(request(path, target="/")[2])["start"][0]
        assert start.startswith(f"curl --data-binary @graph.json --unix-socket '{path}' 'http://localhost/v1/optimize?")
    assert not path.exists()


def test_the_command_line_and_its_probe(tmp_path, path):
    with serving(tmp_path / "data", path):
        for verb in (["ready"], ["run", "list"], ["graph", "list", "--json"]):
            done = subprocess.run([binary(), *verb, "--server", f"unix:{path}"], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, ""), verb
    done = subprocess.run([binary(), "run", "list", "--server", f"unix:{path}"], capture_output=True, text=True)
    assert done.returncode == 1 and f"cannot reach unix:{path}" in done.stderr


def test_a_relative_path(tmp_path, path):
    with serving(tmp_path / "data", path.name, folder=path.parent):
        assert request(path)[0] == 200
    assert not path.exists()


def test_a_token_is_asked_for(tmp_path, path):
    made = subprocess.run(
        [binary(), "token", "create", "--scope", "read", "--name", "one", "--data", tmp_path / "data", "--json"],
        capture_output=True
    )
    token = json.loads(made.stdout)["token"]
    with serving(tmp_path / "data", path):
        assert request(path, target="/v1/runs")[0] == 401
        assert request(path, target="/v1/runs", headers={"Authorization": f"Bearer {token}"})[0] == 200
        assert request(path, "POST", "/v1/gc", headers={"Authorization": f"Bearer {token}"})[0] == 403


def test_a_foreign_host_is_refused(tmp_path, path):
    with serving(tmp_path / "data", path):
        assert request(path, headers={"Host": "attacker.example"})[0] == 403


def test_the_log_names_the_user(tmp_path, path):
    with serving(tmp_path / "data", path):
        request(path)
    lines = [json.loads(line) for line in (tmp_path / "data.log").read_text().splitlines() if line.startswith("{")]
    assert {line["remote"] for line in lines} == {f"user {os.getuid()}"}


def test_the_rate_counts_for_the_user(tmp_path, path):
    with serving(tmp_path / "data", path, "--rate-limit", "2"):
        assert 429 in [request(path)[0] for _ in range(20)]


def test_connections_count_for_the_user(tmp_path, path):
    with serving(tmp_path / "data", path, "--max-connections-per-address", "2"), contextlib.ExitStack() as open_ones:
        for _ in range(2):
            connection = open_ones.enter_context(contextlib.closing(Connection(path)))
            connection.request("GET", "/livez")
            assert connection.getresponse().read() is not None
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            request(path, target="/livez")


def test_a_socket_that_was_left_is_replaced(tmp_path, path):
    with serving(tmp_path / "data", path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert path.exists()
    with serving(tmp_path / "data", path):
        assert request(path)[0] == 200


def test_a_socket_where_somebody_listens_is_not_replaced(tmp_path, path):
    with serving(tmp_path / "one", path):
        assert refused(tmp_path / "other", path) == (1,
                                                     f"foldback: cannot listen on unix:{path}: another process listens there")
        assert request(path)[0] == 200


def stale(path):
    """A socket that nobody listens at."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_of_several_that_start_at_once_one_listens(tmp_path, path, sandbox):
    stale(path)
    started = [
        subprocess.Popen(
            command(tmp_path / f"data{number}", path, "--sandbox", sandbox), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    try:
        listening = [process for process in started if process.stdout.readline()]
        assert len(listening) == 1 and request(path)[0] == 200
        for process in started:
            if process not in listening:
                said = process.communicate(timeout=600)[1].splitlines()[-1]
                assert (process.returncode, said) == (1,
                                                      f"foldback: cannot listen on unix:{path}: another process listens there")
        assert request(path)[0] == 200
    finally:
        for process in started:
            process.terminate()
            process.communicate(timeout=STOP_TIMEOUT)


def test_a_service_waits_until_another_that_starts_listens(tmp_path, path):
    """It looks at the socket when no other service starts in the folder: here the test is that other."""
    stale(path)
    folder = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    process = subprocess.Popen(command(tmp_path / "data", path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        path.unlink()
        with socket.socket(socket.AF_UNIX) as winner:
            winner.bind(str(path))
            winner.listen()
            os.close(folder)
            out, said = process.communicate(timeout=600)
            assert (process.returncode, out) == (1, "") and said.endswith("another process listens there\n")
            Connection(path).connect()
    finally:
        process.kill()
        process.communicate()


def test_a_socket_that_another_put_there_is_not_removed(tmp_path, path):
    with serving(tmp_path / "data", path), socket.socket(socket.AF_UNIX) as other:
        path.unlink()
        other.bind(str(path))
    assert path.exists()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_not_a_socket_stays(tmp_path, path, kind):
    if kind == "file":
        path.write_text("mine")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    assert refused(tmp_path / "data", path) == (1, f"foldback: cannot listen on unix:{path}: that file is not a socket")
    assert os.path.lexists(path) and not (tmp_path / "data").exists()


def test_paths_that_cannot_be(tmp_path, path):
    longest = str(path.parent / ("x" * (LONGEST - len(str(path.parent)) - 1)))
    with serving(tmp_path / "data", longest):
        assert request(longest)[0] == 200
    assert refused(tmp_path / "data", longest + "x") == (
        2,
        f"foldback: the path of a socket has at most {LONGEST} bytes; {longest}x has {LONGEST + 1}",
    )
    assert refused(tmp_path / "data", "")[0] == 2
    status, said = refused(tmp_path / "data", path.parent / "none" / "socket")
    assert status == 1 and said.endswith("No such file or directory")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path, path):
    path.parent.chmod(0o500)
    try:
        status, said = refused(tmp_path / "data", path)
    finally:
        path.parent.chmod(0o700)
    assert status == 1 and said.endswith("Permission denied")


def test_metrics_need_a_port(tmp_path, path):
    status, said = refused(tmp_path / "data", path, "--metrics-listen", f"unix:{path}2")
    assert status == 2 and "--metrics-listen" in said


def test_many_at_once(tmp_path, path):
    statuses = []

    def ask():
        statuses.extend(request(path)[0] for _ in range(20))

    with serving(tmp_path / "data", path):
        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 320
