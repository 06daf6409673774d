"""More connections at once than the service takes: it refuses, lets wait, and goes on."""

import os
import pathlib
import re
import resource
import socket
import sys
import threading
import time

import bursts
import pytest
from blobs import wait_until
from conftest import binary
from manager import Manager

ROUNDS = 5


def connections_of(service):
    """None when this one was refused, because its address has too many that the service has not seen leave yet."""
    try:
        text = service.get("/metrics").body.decode()
    except OSError:
        return None
    return int(re.search(r"(?m)^foldback_http_connections (\d+)$", text)[1])


def await_connections(service, count):
    """Until at most so many are open; the one that asks is among them."""
    deadline = time.monotonic() + 600
    while (open_now := connections_of(service)) is None or open_now > count:
        assert time.monotonic() < deadline, "connections are still counted that have ended"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "options, count, addresses",
    [
        (["--max-connections-per-address", "0"], 1200, ["127.0.0.1"]),
        ([], 520, ["127.0.0.1", "127.0.0.2", "127.0.0.3"]),
        (["--io-threads", "1", "--max-connections", "64", "--max-connections-per-address", "0"], 640, ["127.0.0.1"]),
        (["--io-threads", "4", "--max-connections", "64"], 320, ["127.0.0.1", "127.0.0.2"]),
    ],
    ids=["one-address", "three-addresses", "one-io-thread", "four-io-threads"],
)
@pytest.mark.heavy
def test_burst_is_survived(new_service, options, count, addresses):
    service = new_service("--access-log", "off", *options)
    for _ in range(ROUNDS):
        bursts.burst(service.port, count, addresses)
        assert bursts.recovery(service.port) is not None, "it does not answer any more"
    await_connections(service, 1)
    assert service.stop() == 0


@pytest.mark.heavy
def test_limit_holds_in_a_burst(new_service):
    """While the I/O threads are far behind: what the kernel says is open is never more than the limit."""
    limit = 16
    service = new_service("--access-log", "off", "--max-connections", str(limit), "--max-connections-per-address", "0")
    folder = pathlib.Path(f"/proc/{service.process.pid}/fd")
    before, most, is_over = len(list(folder.iterdir())), 0, threading.Event()

    def look():
        nonlocal most
        while not is_over.is_set():
            most = max(most, len(os.listdir(folder)))

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(ROUNDS):
        bursts.burst(service.port, 20 * limit)
        assert bursts.recovery(service.port) is not None
    is_over.set()
    watcher.join()
    # A connection that is being closed has given its place back already; the store opens a file now and then.
    assert most <= before + limit + 8, f"{most - before} more descriptors than before, with {limit} connections allowed"


def test_client_beyond_the_limit_waits_for_a_place(new_service):
    service = new_service("--max-connections", "4", "--max-connections-per-address", "0")
    held = [service.connect() for _ in range(4)]
    for connection in held:
        connection.sendall(bursts.REQUEST)
        assert b" 200 " in connection.recv(1000)
    late = service.connect()
    late.sendall(bursts.REQUEST)
    late.settimeout(0.5)
    with pytest.raises(TimeoutError):
        late.recv(1000)
    held.pop().close()
    late.settimeout(30)
    assert b" 200 " in late.recv(1000)
    for connection in [*held, late]:
        connection.close()


def test_one_address_has_its_share(new_service):
    service = new_service("--max-connections", "8")
    held = [service.connect() for _ in range(4)]
    for connection in held:
        connection.sendall(bursts.REQUEST)
        assert b" 200 " in connection.recv(1000)
    with service.connect() as refused:
        try:
            refused.sendall(bursts.REQUEST)
            assert refused.recv(1000) == b""
        except ConnectionResetError:
            pass
    with socket.create_connection(("127.0.0.1", service.port), 30, source_address=("127.0.0.2", 0)) as other:
        other.sendall(bursts.REQUEST)
        assert b" 200 " in other.recv(1000)
    for connection in held:
        connection.close()
    await_connections(service, 1)
    assert service.get("/livez").status == 200


faults_library = binary().parent / "tests" / "fault" / "faults.so"


@pytest.mark.skipif(not faults_library.exists(), reason="calls cannot be made to fail beside a sanitizer")
@pytest.mark.parametrize("calls", ["memory", "mmap"])
def test_connection_without_memory_gives_its_place_back(tmp_path, calls):
    """libmicrohttpd closes such a connection without a word."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault"))
    import faults

    service = faults.FaultyService(tmp_path / "data", "--max-connections", "4", "--max-connections-per-address", "2").start()
    try:
        for first in range(12):
            service.arm(calls, first, goes_on=True)
            for _ in range(6):
                bursts.is_live(service.port, 0.2)
            service.disarm()
        deadline = time.monotonic() + 600
        while not bursts.is_live(service.port, 10):
            assert time.monotonic() < deadline, "places of connections that failed are never free again"
            time.sleep(0.1)
        await_connections(service, 1)
        assert service.stop() == 0
    finally:
        service.kill()


# ---- the watchdog of systemd ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sandbox", "is_abstract"), [("auto", False), ("auto", True), ("off", False)])
def test_watchdog_makes_a_request(tmp_path, new_service, sandbox, is_abstract):
    manager = Manager(tmp_path, is_abstract)
    environment = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "400000"}
    service = new_service("--sandbox", sandbox, "--io-threads", "3", environment=environment)
    assert manager.hears(b"READY=1", 600)
    assert manager.hears(b"WATCHDOG=1", 600)
    wait_until(lambda: service.log().count('"/livez"') >= 3)  # one request for each I/O thread
    # No connection can be made any more: that is not alive, though the store is.
    limits = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (1, limits[1]))
    deadline = time.monotonic() + 600
    while "the watchdog" not in service.log():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    manager.forget()
    assert not manager.hears(b"WATCHDOG=1", 2)
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, limits)
    assert manager.hears(b"WATCHDOG=1", 600)
    assert service.stop() == 0


@pytest.mark.parametrize("wrong", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "1s"},
                                   {"WATCHDOG_USEC": ""}])
def test_watchdog_of_another_process(tmp_path, new_service, wrong):
    manager = Manager(tmp_path)
    new_service(environment={"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "100000"} | wrong)
    assert manager.hears(b"READY=1", 600) and not manager.hears(b"WATCHDOG=1", 1)


def test_watchdog_when_all_connections_are_taken(tmp_path, new_service):
    """A service that others keep busy works: it must not be restarted."""
    manager = Manager(tmp_path)
    environment = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "400000"}
    service = new_service("--max-connections", "2", "--max-connections-per-address", "0", environment=environment)
    held = [service.connect() for _ in range(3)]
    assert not bursts.is_live(service.port, 0.5)
    manager.forget()
    assert manager.hears(b"WATCHDOG=1", 600) and manager.hears(b"WATCHDOG=1", 600)
    for connection in held:
        connection.close()
