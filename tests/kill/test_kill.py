"""SIGKILL at random instants, while several processes write; the same data folder goes on through all rounds.

Afterwards every acknowledged run is there and rolls back to the id that it came from, every acknowledged movement of an alias
is in its history, every version is what was sent, so is every blob that something names, in spite of collections without grace,
and `foldback db check` finds nothing. In between, the newest of each is looked at in every round.

FOLDBACK_KILL_ROUNDS (100) says how many, FOLDBACK_KILL_SECONDS (0.2) how long a round is at most, FOLDBACK_KILL_SEED (1) draws
other instants."""

import os
import random
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "api"))

from conftest import Service
from ledger import Ledger, check_store
from writers import Writers

pytestmark = pytest.mark.shortened
ROUNDS = int(os.environ.get("FOLDBACK_KILL_ROUNDS", "100"))
SEED = int(os.environ.get("FOLDBACK_KILL_SEED", "1"))
CLIENTS = 4
LONGEST = float(os.environ.get("FOLDBACK_KILL_SECONDS", "0.2"))  # of a round
OPTIONS = ("--access-log", "off", "--workers", "8", "--gc-interval", "1", "--gc-grace", "0")


@pytest.fixture
def writers():
    writers = Writers(CLIENTS, SEED)
    yield writers
    writers.stop()


def check_newest(service, ledger):
    """The last one that was acknowledged before the kill is the first one that would be lost."""
    for run in list(ledger.runs.values())[-2:]:
        ledger.check_run(service, run)
    for key in list(ledger.versions)[-2:]:
        ledger.check_version(service, key)
    for digest in list(ledger.blobs)[-2:]:
        ledger.check_blob(service, digest)


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path / "data", *OPTIONS)
    yield service
    service.kill()


def test_nothing_acknowledged_is_lost(service, writers):
    rng, ledger = random.Random(SEED), Ledger()
    for _ in range(ROUNDS):
        service.start()
        check_newest(service, ledger)
        writers.begin(service)
        time.sleep(rng.uniform(0, LONGEST))
        service.kill()
        writers.end(ledger)
    service.start()
    ledger.check(service)
    assert service.stop() == 0, service.log()[-4000:]
    check_store(service.data)
    written = f"{len(ledger.runs)} runs, {len(ledger.versions)} versions, {len(ledger.blobs)} blobs"
    print(f"{ROUNDS} kills; acknowledged: {written}, {sum(map(len, ledger.movements.values()))} movements of aliases")
    assert len(ledger.runs) >= ROUNDS // 2 and ledger.versions and ledger.blobs and ledger.movements
