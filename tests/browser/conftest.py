"""The service and Chromium, once for all tests."""

import os
import pathlib
import subprocess

import pytest
from playwright.sync_api import sync_playwright

BINARY = pathlib.Path(os.environ["FOLDBACK_BINARY"]).resolve()
SCREENSHOTS = pathlib.Path(os.environ["FOLDBACK_SCREENSHOTS"])
CHROMIUM = os.environ.get("FOLDBACK_CHROMIUM", "/usr/bin/chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]


def serve(data):
    process = subprocess.Popen([BINARY, "serve", "--listen", "127.0.0.1:0", "--data", data, "--access-log", "off"],
                               stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().split()[-1]


@pytest.fixture
def new_service(tmp_path):
    """Starts an empty one; gives its address and its data folder."""
    started = []

    def make():
        data = tmp_path / f"data{len(started)}"
        process, address = serve(data)
        started.append(process)
        return address, data

    yield make
    for process in started:
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture(scope="session")
def url(tmp_path_factory):
    process, address = serve(tmp_path_factory.mktemp("service") / "data")
    yield address
    process.terminate()
    assert process.wait(30) == 0


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
