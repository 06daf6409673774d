"""The service in valgrind: the steps of the script of tests/fault, while nothing fails; afterwards no error, no leak, and no
descriptor that was not open at its start."""

import os
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

import conftest
from faults import GuardedService
from script import STEPS, Script

MEMCHECK = os.environ.get("FOLDBACK_VALGRIND", "").split()
pytestmark = pytest.mark.skipif(not MEMCHECK, reason="make valgrind runs it")


def test_the_script(tmp_path, monkeypatch):
    wrapper = tmp_path / "foldback"
    log = tmp_path / "valgrind.log"
    command = [part for part in MEMCHECK if not part.startswith("--log-file")]
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(command)} --log-file={log} {conftest.binary()} "$@"\n')
    wrapper.chmod(0o755)
    conftest.description()
    monkeypatch.setenv("FOLDBACK_BINARY", str(wrapper))
    service = GuardedService(tmp_path / "data", "--access-log", "off", "--sandbox", "off", "--workers", "4").start()
    try:
        script = Script(service, 1)
        for step in STEPS:
            if step is not Script.look_at_job:  # a product of matrices, which takes minutes here
                script.ask(step(script))
        script.ledger.check(service)
        assert service.stop() == 0, log.read_text()[-6000:]
    finally:
        service.kill()
    said = log.read_text()
    count, standard = map(int, re.search(r"FILE DESCRIPTORS: (\d+) open \((\d+) std\)", said).groups())
    assert count - standard == said.count("<inherited from parent>"), said[-6000:]
