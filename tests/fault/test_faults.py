"""Torture: every kind of call that can fail is made to, in the real service, at the k-th call of it, once and from then on,
within every step of a script of requests.

Asserted: the service lives; it answers what is right or a problem that the description has, 500, 503 or 507 (where it could not
even make an answer, the connection ends); it works as before when nothing fails any more; what it acknowledged is there after a
restart, and runs roll back; `foldback db check` finds nothing; and it holds no more memory at its end than one for which
nothing failed.

FOLDBACK_FAULT_SAMPLES (10) values of k are drawn for each step, kind of call and manner; 0 means every k. FOLDBACK_FAULT_SEED
draws others. They are drawn from the calls of the request itself, one from each part of them, so that they reach the same
places however fast the machine is; what happens to the job that a step leaves at work is looked at for itself
(test_jobs_that_fail)."""

import http.client
import os
import random
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "api"))

import databases
import faults
import jobs
from conftest import Answer, description
from ledger import check_store
from script import STEPS, Script

SAMPLES = int(os.environ.get("FOLDBACK_FAULT_SAMPLES", "10"))
SEED = int(os.environ.get("FOLDBACK_FAULT_SEED", "1"))
OPTIONS = ("--workers", "4", "--io-threads", "1", "--access-log", "off", "--cache", "1M", "--gc-interval", "0")
pytestmark = [
    pytest.mark.shortened,
    pytest.mark.skipif(not faults.LIBRARY.exists(), reason="a build with a sanitizer has an allocator of its own"),
]
MORE_BLOCKS = 64  # of memory, that libraries may keep for themselves after a failure
NO_ANSWER = (ConnectionError, http.client.BadStatusLine, http.client.IncompleteRead)


def ask(service, request):
    """None: the connection ended without an answer, or within one."""
    connection = service.connection(600)
    try:
        connection.request(request.method, request.path, request.body, {**service.bearer, **request.headers})
        response = connection.getresponse()
        return Answer(response.status, response.getheaders(), response.read())
    except NO_ANSWER:
        return None
    finally:
        connection.close()


def until(condition, what):
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class Torture:
    def __init__(self, folder):
        self.service = faults.FaultyService(folder / "data", *OPTIONS).start()
        self.script = Script(self.service, SEED)
        self.injected, self.has_failed = 0, False

    def check(self, request, answer, calls, what):
        assert self.service.process.poll() is None, f"{what}: the service died; {self.service.log()[-4000:]}"
        if answer is None:
            # No memory for an answer, or a download whose rest could not be read: cut, so that nobody takes it for the whole.
            assert calls in ("memory", "accept") or request.method == "GET", f"{what}: no answer"
            return
        description().check(request.method, request.path, answer)
        if answer.status in request.statuses:
            request.told(answer)
            return
        assert answer.status in (500, 503, 507), f"{what}: {answer}"
        assert answer.json()["code"] != "no-response", f"{what}: {answer}"

    def settle(self):
        """A connection to a database that was lost for long is made anew within half a second."""
        if databases.IN_USE and self.has_failed:
            time.sleep(0.5)
            until(lambda: self.service.get("/readyz").status == 200, "it never becomes ready again")
        self.has_failed = False

    def one(self, step, calls, first, goes_on=False, reason=0):
        """One request of the step; how many calls there were, and how many failed."""
        self.settle()
        request = step(self.script)
        self.service.arm(calls, first, goes_on, reason)
        what = f"{step.__name__}, {calls} {first}{' and later' if goes_on else ''}, errno {self.service.page.reason}"
        try:
            answer = ask(self.service, request)
        except TimeoutError:
            answer = TimeoutError
        counted, failed = self.service.disarm()
        assert answer is not TimeoutError, f"{what}: no answer in time"
        self.injected += failed
        self.has_failed = failed > 1 or (failed > 0 and answer is not None and answer.status >= 500)
        self.check(request, answer, calls, what)
        return counted, failed

    def choose(self, step, calls, count):
        """Places within so many calls: the first, and one in each of equal parts, at the same share of it on every machine."""
        if not SAMPLES or count <= SAMPLES:
            return range(count)
        rng = random.Random(f"{SEED} {step.__name__} {calls}")
        return sorted({0} | {int((i + rng.random()) * count / SAMPLES) for i in range(SAMPLES)})

    def every(self, step, calls):
        """The calls of that kind within the step, one after the other, or some of them."""
        reasons = faults.CALLS[calls][1]
        count, _ = self.one(step, calls, 1 << 40)
        for first in self.choose(step, calls, count):
            self.one(step, calls, first, reason=reasons[first % len(reasons)])
            if calls != "accept" and not (databases.IN_USE and SAMPLES == 1):  # it would be asked again until somebody gives up
                self.one(step, calls, first, goes_on=True, reason=reasons[-1 - first % len(reasons)])
        self.one(step, calls, 1 << 40)


@pytest.fixture(scope="module")
def usual_blocks(tmp_path_factory):
    """What a service has not freed at its end for which nothing failed."""
    torture = Torture(tmp_path_factory.mktemp("usual"))
    for step in STEPS:
        torture.script.ask(step(torture.script))
    assert torture.service.stop() == 0
    return torture.service.page.allocated


@pytest.fixture
def torture(tmp_path):
    torture = Torture(tmp_path)
    yield torture
    torture.service.kill()


@pytest.mark.parametrize("calls", faults.CALLS)
@pytest.mark.heavy
def test_calls_that_fail(calls, torture, usual_blocks):
    for step in STEPS:
        torture.every(step, calls)
    print(f"{calls}: {torture.injected} failed, {len(torture.script.ledger)} writes acknowledged")
    assert torture.injected > 0
    assert torture.service.stop() == 0, torture.service.log()[-4000:]
    more = torture.service.page.allocated - usual_blocks
    assert more <= MORE_BLOCKS, f"{more} more blocks of memory than without faults"
    after = faults.GuardedService(torture.service.data, *OPTIONS).start()
    after.bearer = torture.service.bearer
    try:
        torture.script.ledger.check(after)
        assert after.stop() == 0
    finally:
        after.kill()
    check_store(after.data)


# ---- jobs ----


FIRST = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)  # calls of the job's thread that succeed; a job takes some hundred


@pytest.mark.parametrize(
    "is_cancelled, goes_on",
    [(True, False), *(pytest.param(*both, marks=pytest.mark.long) for both in ((False, False), (False, True), (True, True)))],
)
def test_jobs_that_fail(torture, is_cancelled, goes_on):
    """Memory runs out for a job, from its start or when it is cancelled: it ends in a way that is right, and one whose
    cancellation was acknowledged as cancelled, whatever else happened to it."""
    service, acknowledged = torture.service, 0
    for first in FIRST:
        is_acknowledged = False
        if is_cancelled:
            job = jobs.begin(service, "/v1/optimize", jobs.slow_request(jobs.FOREVER, torture.script.fresh("long")))
            jobs.wait_until(service, job, "running")
        service.arm("memory", first, goes_on, of_jobs=True)
        if is_cancelled:
            answer = service.delete(f"/v1/jobs/{job['id']}")
            is_acknowledged = answer.status in (200, 202)
            # where the service is slow to hear of it, its memory may be gone first
            assert is_acknowledged or answer.json()["code"] == "job-finished", answer
            acknowledged += is_acknowledged
        else:
            job = jobs.begin(service, "/v1/optimize", jobs.quick_request(torture.script.fresh("quick")))
        # while all of its memory is refused it cannot end
        until(lambda: (goes_on and service.page.failed > 3) or jobs.get(service, job)["state"] in jobs.STATES[2:],
              f"call {first}")
        torture.injected += service.disarm()[1]
        found = jobs.wait(service, job)
        assert found["state"] == "cancelled" if is_acknowledged else found["state"] in ("succeeded", "failed"), (first, found)
        if found["state"] == "failed":
            assert found["status"] in (500, 503, 507), found
        torture.script.ledger.jobs[job["id"]] = found["state"]
        if found["state"] == "succeeded":
            torture.script.ledger.run(service.get(found["location"]).json())
    assert torture.injected > 0
    assert acknowledged > 0 or not is_cancelled
    assert service.stop() == 0, service.log()[-4000:]
    after = faults.GuardedService(service.data, *OPTIONS).start()
    after.bearer = service.bearer
    try:
        torture.script.ledger.check(after)
        assert after.stop() == 0
    finally:
        after.kill()
    check_store(after.data)
