"""Webhooks over SIGKILL: every act that was acknowledged is told, one that is told has happened, a message that comes twice has
the same id, and those of one alias come in their order.

The service is killed at random instants while clients write and while it delivers; the receiver fails now and then, too.
FOLDBACK_KILL_ROUNDS, FOLDBACK_KILL_SECONDS and FOLDBACK_KILL_SEED as in test_kill.py."""

import os
import random
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "api"))

import receivers
from conftest import Service
from ledger import Ledger, check_store
from writers import Writers

pytestmark = pytest.mark.shortened
ROUNDS = int(os.environ.get("FOLDBACK_KILL_ROUNDS", "100"))
SEED = int(os.environ.get("FOLDBACK_KILL_SEED", "1"))
LONGEST = float(os.environ.get("FOLDBACK_KILL_SECONDS", "0.2"))
CLIENTS = 2
OPTIONS = ("--access-log", "off", "--workers", "8", *receivers.OPTIONS)


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path / "data", *OPTIONS)
    yield service
    service.kill()


@pytest.fixture
def writers():
    writers = Writers(CLIENTS, SEED)
    yield writers
    writers.stop()


def check_order(messages):
    """The entries of an alias are seen for the first time in their order, and one that comes again has not been overtaken."""
    last, ids = {}, {}
    for message in messages:
        if not message.type.startswith("alias."):
            continue
        key, number = (message.data["model"], message.data["alias"]), message.data["id"]
        assert ids.setdefault((key, number), message.id) == message.id
        assert number >= last.get(key, 0), (key, number, last[key])
        last[key] = number


@pytest.mark.heavy
def test_nothing_told_is_lost(service, writers):
    rng, ledger = random.Random(SEED), Ledger()
    receiver = receivers.Receiver(answer=lambda message: 503 if rng.random() < 0.05 else 200)
    service.start()
    made = receivers.make_webhook(service, receiver.url)
    service.kill()
    for _ in range(ROUNDS):
        service.start()
        writers.begin(service)
        time.sleep(rng.uniform(0, LONGEST))
        service.kill()
        writers.end(ledger)
        receiver.settle()
    receiver.answer = lambda message: 200
    service.start()
    path = f"/v1/webhooks/{made['id']}"
    deadline = time.monotonic() + 600
    while (left := service.get(path).json())["pending"]:
        assert not left["parked"] and time.monotonic() < deadline, left
        time.sleep(0.1)
    messages = list(receiver.messages)
    told = {event: {} for event in ("run.finished", "job.finished", "version.created", "alias")}
    for message in messages:
        assert message.is_signed_with(made["secret"])
        kind = "alias" if message.type.startswith("alias.") else message.type
        data = message.data
        key = data["id"] if kind != "version.created" else (data["model"], data["version"])
        assert told[kind].setdefault(key, message.id) == message.id, "told under two ids"
    # what was acknowledged is told
    assert ledger.runs.keys() <= told["run.finished"].keys()
    assert ledger.versions.keys() <= told["version.created"].keys()
    whys = {(message.data["model"], message.data["why"]) for message in messages if message.type.startswith("alias.")}
    for (model, _), movements in ledger.movements.items():
        assert {(model, why) for _, why in movements} <= whys
    # and nothing else: what is told has happened
    for run in told["run.finished"]:
        assert service.get(f"/v1/runs/{run}").status == 200
    for model, version in told["version.created"]:
        assert service.get(f"/v1/models/{model}/versions/{version}").status == 200
    check_order(messages)
    assert service.stop() == 0, service.log()[-4000:]
    check_store(service.data)
    receiver.close()
    different = len({message.id for message in messages})
    print(f"{ROUNDS} kills; {different} messages, {len(messages) - different} of them again")
    assert different >= ROUNDS // 2 and told["alias"]
