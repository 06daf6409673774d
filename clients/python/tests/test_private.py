"""The service that a process starts for itself."""

import os
import pathlib
import signal
import subprocess
import sys
import time

PROGRAM = """
import os, sys, time
import torch
import foldback
from foldback import optimization, private

model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).eval()
def go():
    optimization.FuseBiasInLinear()(torch.fx.symbolic_trace(model))
go()
url = private._connection.private
child = os.fork()
if child == 0:
    assert private._connection.client is None
    go()
    assert private._connection.private == url
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
