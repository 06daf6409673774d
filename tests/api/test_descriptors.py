"""The service starts only with as many file descriptors as its options need, and then every connection is answered."""

import re
import resource
import subprocess
import threading

import bursts
import pytest
from blobs import digest_of, put_blob, some_bytes
from conftest import Service, binary
from documents import branches
from jobs import PREFER

SMALL = ["--max-connections", "40", "--max-connections-per-address", "0", "--workers", "4", "--io-threads", "3"]


def start(folder, limit, *options):
    """(exit status, error) of a service that may open so many files; it must not start."""
    command = [binary(), "serve", "--listen", "127.0.0.1:0", "--data", folder / "data", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, preexec_fn=lambda: allow(limit))
    assert not done.stdout, "it listens"
    return done.returncode, done.stderr


def allow(limit):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def needed(folder, *options):
    return int(re.search(r"(\d+) file descriptors are needed", start(folder, 24, *options)[1])[1])


@pytest.mark.parametrize("limit", [16, 24, 64, 256])
def test_too_few(tmp_path, limit):
    status, error = start(tmp_path, limit)
    assert status == 1 and "1024 for connections" in error and "8 readers" in error and f"only {limit} may be opened" in error
    assert "ulimit -n" in error and not (tmp_path / "data").exists()


def test_what_is_needed_follows_the_options(tmp_path):
    small = needed(tmp_path, *SMALL)
    assert needed(tmp_path, *SMALL, "--max-connections", "140") == small + 100
    assert needed(tmp_path, *SMALL, "--workers", "5") == small + 2 + 2  # a file and its folder; one more reader
    assert needed(tmp_path, *SMALL, "--io-threads", "4") == small + 2
    status, error = start(tmp_path, small - 10, *SMALL)
    assert status == 1 and error.rstrip().endswith("--max-connections 30")
    assert start(tmp_path, small - 1, *SMALL)[0] == 1


class LimitedService(Service):
    limit = 0

    def start(self):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(self.limit, before[0]), before[1]))
        try:
            super().start()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (self.limit, self.limit))
        return self


def test_just_enough(tmp_path):
    """All connections that there may be, and work on them."""
    limit = needed(tmp_path, *SMALL)
    service = LimitedService(tmp_path / "data", *SMALL)
    service.limit = limit
    service.start()
    try:
        held = [service.connect() for _ in range(30)]
        for connection in held:
            connection.sendall(bursts.REQUEST)
            assert b" 200 " in connection.recv(1000)
        statuses = []

        def work(number):
            data = some_bytes(300_000, number)
            statuses.append(put_blob(service, data).status)
            statuses.append(service.get(f"/v1/blobs/{digest_of(data)}").status)
            body = {"graph": branches(3, f"n{number}"), "passes": ["MergeLinears"]}
            statuses.append(service.post("/v1/optimize", body).status)
            statuses.append(service.post("/v1/optimize", body, headers=PREFER).status)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(set(statuses)) == [200, 201, 202], statuses
        for connection in held:
            connection.sendall(bursts.REQUEST)
            assert b" 200 " in connection.recv(1000)
            connection.close()
        assert service.stop() == 0
    finally:
        service.kill()
