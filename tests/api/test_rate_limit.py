"""--rate-limit: so many requests a second, of one token, or of one address without one."""

import concurrent.futures
import socket
import time

import pytest
from access import bearer, make_token

GRAPHS = "/v1/graphs"


def statuses(service, count, **options):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return [answer.status for answer in pool.map(lambda _: service.get(GRAPHS, **options), range(count))]


def wait_for(service, **options):
    """Until one request is let in again."""
    deadline = time.monotonic() + 600
    while service.get(GRAPHS, **options).status == 429:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_a_limit_there_is_none(service):
    assert statuses(service, 200) == [200] * 200


def test_an_address_is_limited(new_service):
    service = new_service("--rate-limit", "1")
    assert service.get(GRAPHS).status == 200
    refused = [service.get(GRAPHS) for _ in range(20)]
    too_many = [answer for answer in refused if answer.status == 429]
    assert len(too_many) >= 10  # however slow this machine is, twenty requests do not take ten seconds
    assert all(answer.json()["code"] == "too-many-requests" for answer in too_many)
    assert all(1 <= int(answer.headers["retry-after"]) <= 2 for answer in too_many)
    wait_for(service)


def test_what_needs_no_scope_is_not_limited(new_service):
    service = new_service("--rate-limit", "1")
    for path in ("/livez", "/readyz", "/", "/openapi.yaml"):
        assert [service.get(path).status for _ in range(10)] == [200] * 10
    statuses(service, 10)
    assert service.get("/livez").status == 200


def test_each_token_has_its_own(new_service):
    service = new_service()
    admin = make_token(service, "admin", "boss")
    tokens = [make_token(service, "read", name, by=admin) for name in "ab"]
    service.options += ["--rate-limit", "3"]
    service.restart()
    first = statuses(service, 40, headers=bearer(tokens[0]))
    assert 3 <= first.count(200) < 40 and set(first) == {200, 429}
    assert service.get(GRAPHS, headers=bearer(tokens[1])).status == 200  # not its fault
    # nor is it of the address that somebody else has spent
    without = statuses(service, 40)
    assert set(without) == {401, 429}
    wait_for(service, headers=bearer(tokens[1]))


def test_who_guesses_tokens_guesses_slowly(new_service):
    service = new_service("--rate-limit", "2")
    make_token(service, "admin", "boss")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: service.get(GRAPHS, headers=bearer("fbt_" + f"{i:043}")), range(60)))
    seen = [answer.status for answer in answers]
    assert set(seen) == {401, 429} and seen.count(429) >= 30


def test_addresses_are_told_apart(new_service):
    service = new_service("--rate-limit", "1")
    statuses(service, 10)

    def status_from(address):
        with socket.create_connection((service.host, service.port), 30, source_address=(address, 0)) as connection:
            connection.sendall(f"GET {GRAPHS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return int(connection.recv(65536)[9:12])

    assert [status_from(f"127.0.0.{i}") for i in range(2, 12)] == [200] * 10
    assert 429 in [status_from("127.0.0.2") for _ in range(10)]


def test_refusals_are_counted(new_service):
    service = new_service("--rate-limit", "1")
    refused = statuses(service, 20).count(429)
    answer = service.get("/metrics")
    while answer.status == 429:
        time.sleep(0.1)
        answer = service.get("/metrics")
    metrics = answer.body.decode()
    counted = [line for line in metrics.splitlines() if line.startswith('foldback_http_rejected_total{reason="rate"}')]
    assert int(counted[0].split()[1]) >= refused > 0


@pytest.mark.parametrize("value", ["-1", "x", "1000001", "1.5"])
def test_what_is_no_limit(new_service, value):
    with pytest.raises(AssertionError, match="said ''"):
        new_service("--rate-limit", value)
