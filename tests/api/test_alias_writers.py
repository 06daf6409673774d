"""Many writers of one alias, and kill -9 in the middle of them: compare and swap loses no update."""

import http.client
import json
import threading

import pytest
from documents import COMPOSED, branches, counts
from test_aliases import (  # noqa: F401 (a fixture)
    CREATE,
    history,
    is_chain,
    path_of,
    put_alias,
    roll_back,
    version_of,
    versions,
)
from test_models import put_version
from test_runs import optimize


class Operator:
    """A client that moves the alias from where it found it, and tries again when somebody was faster."""

    def __init__(self, service, number, versions):
        self.name, self.number, self.versions = f"operator-{number}", number, versions
        self.connection = http.client.HTTPConnection(service.host, service.port, timeout=600)
        self.told = []  # (etag before, etag after, version)
        self.refused = 0

    def request(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body and json.dumps(body), headers or {})
        answer = self.connection.getresponse()
        return answer.status, answer.headers["ETag"], json.loads(answer.read())

    def move(self, times):
        for i in range(times):
            while True:
                status, before, alias = self.request("GET", path_of())
                assert status == 200, alias
                others = [version for version in self.versions if version != alias["version"]]
                version = others[(self.number + i) % len(others)]
                body = {"version": version, "who": self.name, "why": str(i)}
                status, after, answer = self.request("PUT", path_of(), body, {"If-Match": before})
                if status == 200:
                    assert answer["version"] == version and answer["who"] == self.name
                    self.told.append((before, after, version))
                    break
                assert (status, answer["code"]) == (412, "alias-moved"), answer
                self.refused += 1


def run_all(operators, work):
    failures = []

    def guarded(operator):
        try:
            work(operator)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(operator,)) for operator in operators]
    for thread in threads:
        thread.start()
    return threads, failures


def check_told(items, operators):
    """Every change that was answered is in the history, once, as it was answered."""
    by_tag = {f'"{item["id"]}"': (item, f'"{before["id"]}"') for item, before in zip(items, items[1:])}
    told = [(operator, change) for operator in operators for change in operator.told]
    assert len({after for _, (_, after, _) in told}) == len(told)
    for operator, (before, after, version) in told:
        item, previous = by_tag[after]
        assert (item["to"], item["who"], previous) == (version, operator.name, before)
    return len(told)


@pytest.mark.long
def test_a_hundred_writers_lose_no_update(versions):
    put_alias(versions, "v0", CREATE)
    operators = [Operator(versions, i, ["v0", "v1", "v2", "v3"]) for i in range(100)]
    threads, failures = run_all(operators, lambda operator: operator.move(3))
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    items = history(versions)
    is_chain(items)
    assert check_told(items, operators) == 300 == len(items) - 1
    assert version_of(versions) == items[0]["to"]
    assert sum(operator.refused for operator in operators) > 0  # they did meet


@pytest.mark.heavy
def test_kill_in_the_middle_of_writers(versions):
    put_alias(versions, "v0", CREATE)
    everyone = []
    for _ in range(3):
        operators = [Operator(versions, i, ["v0", "v1", "v2", "v3"]) for i in range(20)]
        everyone += operators
        threads, _ = run_all(operators, lambda operator: operator.move(100000))
        while sum(len(operator.told) for operator in operators) < 60:
            assert any(thread.is_alive() for thread in threads)
        versions.kill()
        for thread in threads:
            thread.join()
        versions.start()
        items = history(versions)
        is_chain(items)
        alias = versions.get(path_of()).json()
        assert alias["version"] == items[0]["to"] and alias["etag"] == f'"{items[0]["id"]}"'
        assert check_told(items, everyone) >= 60
        # at most one change of each operator was made and not answered any more
        assert len(items) - 1 - sum(len(operator.told) for operator in everyone) <= len(everyone)


@pytest.mark.parametrize("repetition", range(8))
def test_rollbacks_of_passes_meet(service, repetition):
    """Of many that take a pass out of one deployment, one does; the others were too late and leave nothing behind."""
    run = optimize(service, branches(3), COMPOSED)
    put_version(service, "m", "fast", {"run": run["id"]})
    tag = put_alias(service, "fast", CREATE).headers["etag"]
    graphs, runs = counts(service)
    answers = []

    def work(number):
        answers.append(roll_back(service, {"passes": [number % 3]}, headers={"If-Match": tag}))

    threads, failures = run_all(range(12), work)
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert sorted(answer.status for answer in answers) == [200] + 11 * [412]
    assert service.get("/v1/models/m").json()["versions"] == 2 and len(history(service)) == 2
    assert counts(service) == (graphs + 1, runs + 1)
