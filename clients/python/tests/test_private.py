"""The service that a process starts for itself."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import httpx
import pytest
import torch

from foldback import optimization, private

PROGRAM = """
import os, sys, time
import torch
import foldback
from foldback import optimization, private

model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).eval()
def go():
    optimization.FuseBiasInLinear()(torch.fx.symbolic_trace(model))
go()
url = private._connection.private.read()
child = os.fork()
if child == 0:
    assert private._connection.client is None
    go()
    assert private._connection.private.read() == url
    time.sleep(float(sys.argv[1]))
    go()
    os._exit(0)
print(child, flush=True)
sys.stdin.readline()
"""


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start(tmp_path, seconds):
    environment = {key: item for key, item in os.environ.items() if key != "FOLDBACK_SERVER"} | {"TMPDIR": str(tmp_path)}
    (tmp_path / "program.py").write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, tmp_path / "program.py", str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    return program, int(program.stdout.readline())


def services(tmp_path):
    """Processes that were given a folder below this one."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{tmp_path}/foldback-".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def folders(tmp_path):
    return list(tmp_path.glob("foldback-*"))


def test_it_ends_with_the_process_and_leaves_nothing(tmp_path):
    program, child = start(tmp_path, 0)
    assert services(tmp_path) and len(folders(tmp_path)) == 1
    program.communicate("\n")
    assert program.returncode == 0
    wait_until(lambda: not services(tmp_path) and not folders(tmp_path))


def test_after_sigkill_it_stays_for_the_fork_and_then_ends(tmp_path):
    program, child = start(tmp_path, 600)
    program.kill()
    program.wait()
    time.sleep(0.3)
    assert services(tmp_path) and folders(tmp_path)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not services(tmp_path) and not folders(tmp_path))
    program.stdin.close()
    program.stdout.close()


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A private service of a test alone, in a folder below tmp_path."""
    monkeypatch.delenv("FOLDBACK_SERVER", raising=False)
    monkeypatch.setattr(private.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(private, "_connection", private._Connection())
    yield private._connection
    private.disconnect()
    wait_until(lambda: not services(tmp_path) and not folders(tmp_path))


def merged():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).eval()
    live = torch.fx.symbolic_trace(model)
    optimization.FuseBiasInLinear()(live)
    return model, live


def test_nobody_without_its_token_is_answered(own, tmp_path):
    merged()
    assert own.private.read() == f"unix:{own.private.folder}/socket"
    with httpx.Client(transport=httpx.HTTPTransport(uds=own.private.socket)) as stranger:
        for path in ("/v1/runs", "/v1/graphs"):
            assert stranger.get("http://localhost" + path).status_code == 401
            wrong = {"Authorization": "Bearer " + "0" * 43}
            assert stranger.get("http://localhost" + path, headers=wrong).status_code == 401
    assert folders(tmp_path)[0].stat().st_mode & 0o077 == 0
    token = own.token.encode()
    assert all(token not in pathlib.Path(f"/proc/{one}/cmdline").read_bytes() for one in services(tmp_path))


def the_service(tmp_path):
    found = [one for one in services(tmp_path) if b"sh\0-c" not in pathlib.Path(f"/proc/{one}/cmdline").read_bytes()]
    assert len(found) == 1
    return found[0]


def test_it_is_started_again_on_its_folder(own, tmp_path):
    model, live = merged()
    x = torch.randn(3, 2)
    for _ in range(2):
        os.kill(the_service(tmp_path), signal.SIGKILL)
        known = optimization.runs(live)
        assert [own.get().run(run)["id"] for run in known] == known and known
    os.kill(the_service(tmp_path), signal.SIGKILL)
    optimization.FuseBiasInLinear()(live, reverse=True)
    assert torch.equal(live(x), model(x)) and len(folders(tmp_path)) == 1


def test_a_folder_whose_path_is_too_long_for_a_socket(own, tmp_path, monkeypatch):
    long = tmp_path / ("x" * (private.LONGEST_PATH - len(str(tmp_path))))
    long.mkdir()
    monkeypatch.setattr(private.tempfile, "tempdir", str(long))
    model, live = merged()
    assert own.private.read().startswith("http://127.0.0.1:")
    pid = next(one for one in services(long) if b"sh\0-c" not in pathlib.Path(f"/proc/{one}/cmdline").read_bytes())
    os.kill(pid, signal.SIGKILL)
    optimization.FuseBiasInLinear()(live, reverse=True)
    x = torch.randn(3, 2)
    assert torch.equal(live(x), model(x))
    private.disconnect()
    wait_until(lambda: not services(long) and not folders(long))


def test_it_starts_anew_when_its_folder_is_gone(own, tmp_path):
    model, live = merged()
    first = own.private.folder
    os.close(own.lifeline)
    own.lifeline = None
    wait_until(lambda: not first.exists())
    optimization.FuseBiasInLinear()(live, reverse=True)
    x = torch.randn(3, 2)
    assert torch.equal(live(x), model(x)) and own.private.folder != first


def test_a_program_that_does_not_start_is_an_error_and_leaves_nothing(own, tmp_path, monkeypatch):
    program = tmp_path / "broken"
    program.write_text('#!/bin/sh\n[ "$1" = token ] && { echo \'{"token": "t"}\'; exit; }\necho it is broken >&2; exit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("FOLDBACK_BINARY", str(program))
    with pytest.raises(private.ServiceNotStarted, match="does not start: it is broken"):
        own.get()
    program.write_text("#!/bin/sh\necho no token >&2; exit 3\n")
    with pytest.raises(private.ServiceNotStarted, match="no token"):
        own.get()
