"""Webhooks: what is told, to whom, signed, in which order, again and again; and what the API says of it."""

import base64
import datetime
import email.utils
import itertools
import json
import os
import ssl
import threading
import time

import prometheus
import pytest
from access import bearer, in_future, make_token
from documents import branches
from receivers import OPTIONS, Message, Receiver, make_webhook, signature, wait_for_delivery
from test_tls import make_certificate

EVENTS = ["alias.created", "alias.moved", "alias.rolled_back", "alias.deleted", "version.created", "run.finished",
          "job.finished"]


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def hooked(new_service):
    return new_service(*OPTIONS)


def metric(service, name, **labels):
    return prometheus.value(prometheus.parse(service.get("/metrics").body.decode()), name, **labels)


def put_version(service, model, version, name=None):
    answer = service.request("PUT", f"/v1/models/{model}/versions/{version}", {"graph": branches(2, name or version)})
    assert answer.status == 201, answer
    return answer.json()


def set_alias(service, model, alias, version):
    """By whatever the alias has now."""
    path = f"/v1/models/{model}/aliases/{alias}"
    now = service.get(path)
    headers = {"If-Match": now.headers["etag"]} if now.status == 200 else {"If-None-Match": "*"}
    answer = service.request("PUT", path, {"version": version}, headers)
    assert answer.status in (200, 201), answer
    return answer


def optimize(service, name="run"):
    answer = service.post("/v1/optimize", {"graph": branches(2, name), "passes": ["MergeLinears"]})
    assert answer.status == 201, answer
    return answer.json()


# ---- what is told


def test_the_signature_is_that_of_others():
    """As the package standardwebhooks 1.1.0 signs it: by this the receivers of these tests judge."""
    body = b'{"event_type":"ping","data":{"success":true}}'
    found = signature("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "msg_loFOjxBNrRLzqYUf", "1731705121", body)
    assert found == "v1,Vr7I+3nDU86QUiDSfbM2evz2uJR/7d9XDcmuTdBO8/I="


def test_every_event_is_told_once_and_signed(hooked, receiver):
    made = make_webhook(hooked, receiver.url)
    run = optimize(hooked)
    put_version(hooked, "bert", "1")
    second = hooked.request("PUT", "/v1/models/bert/versions/2", {"run": run["id"], "note": "faster"}).json()
    set_alias(hooked, "bert", "live", "1")
    set_alias(hooked, "bert", "live", "2")
    etag = set_alias(hooked, "bert", "live", "2").headers["etag"]  # has it already: nothing happens
    hooked.post("/v1/models/bert/aliases/live/rollback", {"why": "slower"})
    hooked.request("DELETE", "/v1/models/bert/aliases/live", headers={"If-Match": f'"{int(etag.strip(chr(34))) + 1}"'})
    job = hooked.post("/v1/optimize", {"graph": run["source"], "passes": ["MergeLinears"]},
                      headers={"Prefer": "respond-async"}).json()
    messages = receiver.wait(lambda messages: len(messages) == 9)
    by_type = {event: [message for message in messages if message.type == event] for event in EVENTS}
    assert {event: len(of)
            for event, of in by_type.items()} == dict.fromkeys(EVENTS, 1) | {"version.created": 2, "run.finished": 2}
    assert len({message.id for message in messages}) == 9
    for message in messages:
        assert message.is_signed_with(made["secret"]) and len(message.signatures) == 1
        assert abs(time.time() - int(message.timestamp)) < 600
        assert message.headers["Content-Type"] == "application/json" and message.headers["User-Agent"].startswith("foldback/")
        assert set(message.json) == {"type", "timestamp", "data"}
        found = hooked.get(f"/v1/webhooks/{made['id']}/deliveries/{message.id}").json()
        assert found["message"] == message.json
    # what is told of an alias is what its history says
    history = hooked.get("/v1/models/bert/aliases/live/history").json()["items"]
    told = [by_type[event][0].data for event in ("alias.deleted", "alias.rolled_back", "alias.moved", "alias.created")]
    assert told == [{**entry, "model": "bert", "alias": "live"} for entry in history]
    version = next(message.data for message in by_type["version.created"] if message.data["version"] == "2")
    assert version == second
    finished = next(message.data for message in by_type["run.finished"] if message.data["id"] == run["id"])
    assert finished["passes"] == [{"name": "MergeLinears", "applied": run["passes"][0]["applied"],
                                   "refused": len(run["passes"][0]["refused"])}]
    assert {name: finished[name] for name in ("kind", "source",
                                              "result")} == {name: run[name] for name in ("kind", "source", "result")}
    ended = by_type["job.finished"][0].data
    assert (ended["id"], ended["state"], ended["status"], ended["target"]) == (job["id"], "succeeded", 201, "/v1/optimize")


def test_a_rollback_of_passes_tells_of_run_version_and_alias(hooked, receiver):
    run = hooked.post("/v1/optimize",
                      {"graph": branches(2, "x"), "passes": ["MergeLinears", "ChangeTrueDivToMulByInverse"]}).json()
    hooked.request("PUT", "/v1/models/bert/versions/1", {"run": run["id"]})
    set_alias(hooked, "bert", "live", "1")
    make_webhook(hooked, receiver.url)
    hooked.post("/v1/models/bert/aliases/live/rollback", {"passes": ["MergeLinears"]})
    messages = {message.type: message.data for message in receiver.wait(lambda messages: len(messages) == 3)}
    assert set(messages) == {"run.finished", "version.created", "alias.rolled_back"}
    assert messages["run.finished"]["kind"] == "rollback" and messages["run.finished"]["of_run"] == run["id"]
    assert messages["version.created"]["version"] == messages["alias.rolled_back"]["to"] == "1-without-MergeLinears"
    assert messages["version.created"]["run"] == messages["run.finished"]["id"]


def test_who_wants_what(hooked, receiver):
    wants = {
        "/all": {}, "/moves": {"events": ["alias.moved", "alias.rolled_back"]}, "/bert": {"models": ["bert", "gpt-?"]},
        "/prefix": {"models": ["ber*"], "events": ["version.created"]},
        "/none": {"models": ["other"], "events": ["alias.created", "version.created"]},
        "/off": {"enabled": False}, "/runs": {"models": ["other"], "events": ["run.finished"]},
    }
    for path, want in wants.items():
        make_webhook(hooked, receiver.url.replace("/hook", path), **want)
    for model in ("bert", "gpt-2", "gpt-22"):
        put_version(hooked, model, "1", model)
        set_alias(hooked, model, "live", "1")
    put_version(hooked, "bert", "2")
    set_alias(hooked, "bert", "live", "2")
    optimize(hooked)
    expected = {"/all": 9, "/moves": 1, "/bert": 7, "/prefix": 2, "/runs": 1}
    messages = receiver.wait(lambda messages: len(messages) >= sum(expected.values()))
    time.sleep(0.3)
    counts = {path: sum(message.path == path for message in receiver.messages) for path in wants}
    assert counts == dict.fromkeys(wants, 0) | expected, messages
    assert {message.data["model"] for message in receiver.messages if message.path == "/bert"
            and "model" in message.data} == {"bert", "gpt-2"}


def test_what_fails_tells_nothing(hooked, receiver):
    """The message is in the act's own transaction."""
    put_version(hooked, "bert", "1")
    set_alias(hooked, "bert", "live", "1")
    webhook = make_webhook(hooked, receiver.url)["id"]
    assert hooked.request("PUT", "/v1/models/bert/versions/1", {"graph": branches(2, "another")}).status == 409
    assert hooked.request("PUT", "/v1/models/bert/aliases/live", {"version": "none"}, {"If-Match": "*"}).status == 422 or True
    assert hooked.request("PUT", "/v1/models/bert/aliases/live", {"version": "1"}, {"If-Match": '"77"'}).status == 412
    assert hooked.post("/v1/models/bert/aliases/live/rollback", {}).status == 409
    hooked.post("/v1/optimize", {"graph": branches(2, "x"), "passes": ["MergeLinears"], "options": {"dry_run": True}})
    body = {"graph": branches(2, "x"), "passes": ["MergeLinears"]}
    for _ in range(2):
        hooked.post("/v1/optimize", body, headers={"Idempotency-Key": "once"})
    assert [item["type"] for item in hooked.get(f"/v1/webhooks/{webhook}/deliveries").json()["items"]] == ["run.finished"]


# ---- at least once, in order


def test_what_fails_is_sent_again_under_the_same_id(new_service, receiver):
    hooked = new_service(*OPTIONS[:-1], "600")  # between two attempts
    answers = iter([500, None, 404, 302, 204])
    receiver.answer = lambda message: (next(answers, 200), {}, b"")
    webhook = make_webhook(hooked, receiver.url, events=["run.finished"])["id"]
    optimize(hooked)
    first = receiver.wait(lambda messages: messages)[0]
    found = wait_for_delivery(hooked, webhook, lambda items: items[0]["attempts"] == 1)[0]
    assert (found["state"] == "pending" and found["status"] == 500 and found["failure"] == "it answered 500"
            and found["due"] > found["attempted"])
    for _ in range(4):  # asking for it again is quicker than waiting, and begins the pauses anew
        count = len(receiver.messages)
        assert hooked.post(f"/v1/webhooks/{webhook}/deliveries/{first.id}/redeliver").status == 202
        receiver.wait(lambda messages, count=count: len(messages) > count)
        wait_for_delivery(hooked, webhook, lambda items: items[0]["attempts"] == 1)
    assert ({message.id for message in receiver.messages} == {first.id}
            and len({message.body for message in receiver.messages}) == 1)
    assert wait_for_delivery(hooked, webhook, lambda items: items[0]["state"] == "delivered")[0]["status"] in (200, 204)


def test_it_is_sent_again_by_itself(hooked, receiver):
    answers = iter([500, 503])
    receiver.answer = lambda message: next(answers, 200)
    webhook = make_webhook(hooked, receiver.url, events=["run.finished"])["id"]
    optimize(hooked)
    assert wait_for_delivery(hooked, webhook, lambda items: items[0]["state"] == "delivered")[0]["attempts"] == 3
    assert len({message.id for message in receiver.messages}) == 1


def test_the_messages_of_an_alias_are_in_order(hooked, receiver):
    """Also when some of them fail, and while those of other aliases go on."""
    seen = {}

    def answer(message):
        seen[message.id] = seen.get(message.id, 0) + 1
        return 500 if message.data["alias"] == "a" and message.data["id"] % 3 == 0 and seen[message.id] == 1 else 200

    receiver.answer = answer
    for version in ("1", "2"):
        put_version(hooked, "bert", version)
    make_webhook(hooked, receiver.url, events=["alias.created", "alias.moved"])
    for number in range(8):
        for alias in ("a", "b"):
            set_alias(hooked, "bert", alias, "12"[number % 2])
    receiver.wait(lambda messages: len({message.id for message in messages}) == 16)
    for alias in ("a", "b"):
        order = [message.data["id"] for message in receiver.messages if message.data["alias"] == alias]
        assert order == sorted(order) and len(set(order)) == 8, alias  # one that failed comes again before the next
    last_of_b = max(place for place, message in enumerate(receiver.messages) if message.data["alias"] == "b")
    assert [message.data["alias"] for message in receiver.messages[last_of_b:]].count("a") >= 1, "b waited for a"


def test_a_receiver_that_hangs_holds_no_other_up(hooked, receiver):
    over = threading.Event()
    slow = Receiver(answer=lambda message: over.wait() and 200)
    make_webhook(hooked, slow.url)
    make_webhook(hooked, receiver.url)
    for number in range(20):
        optimize(hooked, f"run{number}")
    receiver.wait(lambda messages: len(messages) == 20, seconds=300)  # before the first attempt is given up
    assert 1 <= len(slow.messages) <= 4  # at once
    hooked.kill()
    over.set()
    slow.close()


@pytest.mark.parametrize("had_answered", [False, True])
@pytest.mark.heavy
def test_as_many_as_there_may_be_hang_and_hold_no_other_up(hooked, receiver, had_answered):
    """Attempts take 600 s here: all messages come to the one that answers before any is given up."""
    over = threading.Event()
    slow = Receiver(answer=lambda message: 200 if message.type == "webhook.test" else over.wait() and 200)
    others = [make_webhook(hooked, slow.url)["id"] for _ in range(99)]
    make_webhook(hooked, receiver.url)
    if had_answered:
        for other in others:
            assert hooked.post(f"/v1/webhooks/{other}/test").status == 202
        slow.wait(lambda messages: len(messages) == 99)
    for number in range(30):
        optimize(hooked, f"run{number}")
    receiver.wait(lambda messages: len(messages) == 30, seconds=200)
    slow.wait(lambda messages: sum(message.type != "webhook.test" for message in messages) >= 99)
    hooked.kill()
    over.set()
    slow.close()


def test_what_waits_survives_a_restart_and_a_kill(hooked, receiver):
    receiver.answer = lambda message: 503
    webhook = make_webhook(hooked, receiver.url, events=["run.finished"])["id"]
    runs = [optimize(hooked, f"run{number}")["id"] for number in range(5)]
    receiver.wait(lambda messages: len(messages) >= 3)
    hooked.kill()
    receiver.answer = lambda message: 200
    before = len(receiver.messages)
    hooked.start()
    wait_for_delivery(hooked, webhook, lambda items: all(item["state"] == "delivered" for item in items))
    assert {message.data["id"] for message in receiver.messages[before:]} == set(runs)
    ids = {message.data["id"]: message.id for message in receiver.messages}
    assert all(ids[message.data["id"]] == message.id for message in receiver.messages)


def test_it_is_parked_at_last_and_can_be_sent_again(new_service, receiver):
    service = new_service(*OPTIONS, "--webhook-lifetime", "1")
    receiver.answer = lambda message: 500
    webhook = make_webhook(service, receiver.url, events=["alias.created", "alias.moved"])["id"]
    for version in ("1", "2"):
        put_version(service, "bert", version)
        set_alias(service, "bert", "live", version)
    parked = wait_for_delivery(service, webhook, lambda items: len(items) == 2, state="parked")
    assert all(item["attempts"] >= 1 and item["status"] == 500 and "due" not in item for item in parked)
    shown = service.get(f"/v1/webhooks/{webhook}").json()
    assert (shown["pending"], shown["parked"]) == (0, 2)
    assert metric(service, "foldback_webhook_parked") == 2
    receiver.answer = lambda message: 200
    before = len(receiver.messages)
    again = service.post(f"/v1/webhooks/{webhook}/deliveries/{parked[0]['id']}/redeliver")
    assert again.status == 202 and again.json()["state"] == "pending"
    assert receiver.wait(lambda messages: len(messages) > before)[-1].id == parked[0]["id"]
    wait_for_delivery(service, webhook, lambda items: len(items) == 1, state="delivered")


def test_one_that_is_gone_is_not_asked_again(hooked, receiver):
    """410: the webhook is disabled, what failed is parked, and the rest waits."""
    for version in ("1", "2"):
        put_version(hooked, "bert", version)
    receiver.answer = lambda message: 410
    webhook = make_webhook(hooked, receiver.url, events=["alias.created", "alias.moved"])["id"]
    set_alias(hooked, "bert", "live", "1")
    parked = wait_for_delivery(hooked, webhook, lambda items: items and items[0]["state"] == "parked")[0]
    assert (parked["attempts"], parked["status"], parked["failure"]) == (1, 410, "it answered 410")
    assert hooked.get(f"/v1/webhooks/{webhook}").json()["enabled"] is False
    entry = hooked.get("/v1/audit?action=webhook-change").json()["items"][0]
    assert (entry["object"], entry["who"], entry["outcome"]) == (webhook, "service", "disabled: it answered 410")
    set_alias(hooked, "bert", "live", "2")  # told to nobody
    receiver.answer = lambda message: 200
    hooked.request("PATCH", f"/v1/webhooks/{webhook}", {"enabled": True})
    hooked.post(f"/v1/webhooks/{webhook}/deliveries/{parked['id']}/redeliver")
    found = wait_for_delivery(hooked, webhook, lambda items: items[0]["state"] == "delivered")
    assert len(found) == 1 and [message.id for message in receiver.messages] == [parked["id"]] * 2


@pytest.mark.parametrize("wanted", ["3600", "86400", "date"])
def test_a_receiver_says_when(hooked, receiver, wanted):
    """Retry-After, in seconds or as a date, and for an hour at most."""
    text = email.utils.formatdate(time.time() + 3600, usegmt=True) if wanted == "date" else wanted
    receiver.answer = lambda message: (503, {"Retry-After": text}, b"")
    webhook = make_webhook(hooked, receiver.url)["id"]
    hooked.post(f"/v1/webhooks/{webhook}/test")
    found = wait_for_delivery(hooked, webhook, lambda items: items[0]["attempts"] == 1)[0]
    due, attempted = (datetime.datetime.fromisoformat(found[name]) for name in ("due", "attempted"))
    assert 3590 <= (due - attempted).total_seconds() <= 3600


def test_deliveries_wait_while_it_is_off(hooked, receiver):
    receiver.answer = lambda message: 500
    webhook = make_webhook(hooked, receiver.url, events=["run.finished"])["id"]
    optimize(hooked, "first")
    receiver.wait(lambda messages: messages)
    wait_for_delivery(hooked, webhook, lambda items: items[0]["attempts"] == 1)
    assert hooked.request("PATCH", f"/v1/webhooks/{webhook}", {"enabled": False}).json()["enabled"] is False
    optimize(hooked, "not told")
    receiver.answer = lambda message: 200
    time.sleep(1.5)
    count = len(receiver.messages)
    assert hooked.request("PATCH", f"/v1/webhooks/{webhook}", {"enabled": True}).json()["pending"] == 1
    found = wait_for_delivery(hooked, webhook, lambda items: all(item["state"] == "delivered" for item in items))
    assert len(found) == 1 and len(receiver.messages) == count + 1


def test_without_the_option_nothing_is_lost(hooked, receiver):
    webhook = make_webhook(hooked, receiver.url, events=["run.finished"])["id"]
    hooked.stop()
    options, hooked.options = hooked.options, []
    hooked.start()
    run = optimize(hooked)
    answer = hooked.post("/v1/webhooks", {"url": receiver.url})
    assert answer.status == 409 and answer.json()["code"] == "webhooks-off"
    assert hooked.get(f"/v1/webhooks/{webhook}").json()["pending"] == 1
    hooked.stop()
    hooked.start()
    assert "1 messages wait for webhooks" in hooked.log() and not receiver.messages
    hooked.stop()
    hooked.options = options
    hooked.start()
    assert receiver.wait(lambda messages: messages)[0].data["id"] == run["id"]


def test_many_acts_at_once(hooked, receiver):
    make_webhook(hooked, receiver.url, events=["run.finished"])
    runs, threads = [], []

    def work(number):
        for count in range(10):
            runs.append(optimize(hooked, f"run-{number}-{count}")["id"])

    for number in range(6):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    messages = receiver.wait(lambda messages: len(messages) >= 60)
    assert sorted(message.data["id"] for message in messages) == sorted(runs)


def test_over_tls(new_service, tmp_path):
    make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    receiver = Receiver(context=context)
    allowed = ("--webhooks", "--webhook-allow", "127.0.0.1")
    trusting = new_service(*allowed, "--webhook-ca-file", str(tmp_path / "cert.pem"))
    made = make_webhook(trusting, receiver.url)
    trusting.post(f"/v1/webhooks/{made['id']}/test")
    assert receiver.wait(lambda messages: messages)[0].is_signed_with(made["secret"])
    other = new_service(*allowed)
    webhook = make_webhook(other, receiver.url)["id"]
    other.post(f"/v1/webhooks/{webhook}/test")
    found = wait_for_delivery(other, webhook, lambda items: items[0]["attempts"] > 0)[0]
    assert found["state"] == "pending" and "certificate" in found["failure"] and len(receiver.messages) == 1
    receiver.close()


# ---- secrets


def test_two_secrets_while_they_are_rotated(hooked, receiver):
    made = make_webhook(hooked, receiver.url)
    path = f"/v1/webhooks/{made['id']}"
    second = hooked.post(f"{path}/secret", {"overlap": 3600}).json()
    assert second["secret"] != made["secret"] and second["old_secret_until"] > second["changed"]
    hooked.post(f"{path}/test")
    message = receiver.wait(lambda messages: messages)[0]
    assert len(message.signatures) == 2 and message.is_signed_with(made["secret"]) and message.is_signed_with(second["secret"])
    own = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    assert hooked.post(f"{path}/secret", {"secret": own, "overlap": 0}).json()["secret"] == own
    hooked.post(f"{path}/test")
    message = receiver.wait(lambda messages: len(messages) == 2)[1]
    assert len(message.signatures) == 1 and message.is_signed_with(own)
    assert hooked.post(f"{path}/secret").status == 200  # a body is not needed
    for bad in ("whsec_", "whsec_AAAA", "secret", own[6:], "whsec_" + base64.b64encode(bytes(65)).decode(), own[:-1] + "!"):
        answer = hooked.post(f"{path}/secret", {"secret": bad})
        assert answer.status == 422 and answer.json()["pointer"] == "/secret", bad
    for bad in (-1, 1e9, "1", 31536001):
        assert hooked.post(f"{path}/secret", {"overlap": bad}).json()["code"] == "bad-overlap", bad


def test_a_secret_is_seen_once(new_service, receiver, tmp_path):
    service = new_service(*OPTIONS, "--access-log", str(tmp_path / "access.log"))
    own = "whsec_" + base64.b64encode(b"a key that is easy to find again").decode()
    made = make_webhook(service, receiver.url + "?token=of-the-receiver", secret=own)
    path = f"/v1/webhooks/{made['id']}"
    assert made["secret"] == own
    service.post(f"{path}/test")
    receiver.wait(lambda messages: messages)
    rotated = service.post(f"{path}/secret").json()["secret"]
    service.request("PATCH", path, {"note": "changed"})
    delivery = service.get(f"{path}/deliveries").json()["items"][0]["id"]
    told = [service.get(one).body for one in ("/v1/webhooks", path, f"{path}/deliveries", f"{path}/deliveries/{delivery}",
                                              "/v1/audit", "/metrics")]
    service.request("DELETE", path)
    audit = service.get("/v1/audit").body
    told += [audit, service.log().encode(), (tmp_path / "access.log").read_bytes()]
    for secret in (own, rotated, own[6:], rotated[6:]):
        assert not [text for text in told if secret.encode() in text]
    assert b"of-the-receiver" not in b"".join(told[4:])
    acts = [(entry["action"], entry["object"]) for entry in json.loads(audit)["items"]]
    assert acts == [(f"webhook-{act}", made["id"]) for act in ("delete", "change", "rotate", "test", "create")]


# ---- the API


def test_the_life_of_a_webhook(hooked, receiver):
    made = make_webhook(hooked, receiver.url, note="for the registry", models=["bert-*"], events=["alias.moved"])
    path = f"/v1/webhooks/{made['id']}"
    shown = hooked.get(path).json()
    assert {**shown, "secret": made["secret"]} == made and made["models"] == ["bert-*"] and made["enabled"]
    assert hooked.get("/v1/webhooks").json()["items"] == [shown]
    changed = hooked.request("PATCH", path, {"events": ["*"], "note": None, "url": receiver.url + "2"}).json()
    assert (changed["events"], changed["note"], changed["url"],
            changed["models"]) == (["*"], None, receiver.url + "2", ["bert-*"])
    assert hooked.request("DELETE", path).status == 204
    for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/test"), ("POST", "/secret"), ("GET", "/deliveries"),
                         ("GET", "/deliveries/x")):
        assert hooked.request(method, path + rest).json()["code"] == "unknown-webhook"
    assert hooked.request("PATCH", path, {"note": "x"}).json()["code"] == "unknown-webhook"


def test_its_deliveries_go_with_it(hooked, receiver):
    receiver.answer = lambda message: 500
    webhook = make_webhook(hooked, receiver.url)["id"]
    for number in range(5):
        optimize(hooked, str(number))
    receiver.wait(lambda messages: messages)
    assert hooked.request("DELETE", f"/v1/webhooks/{webhook}").status == 204
    time.sleep(0.2)
    count = len(receiver.messages)
    time.sleep(1.5)
    assert len(receiver.messages) <= count + 1
    optimize(hooked, "afterwards")
    assert metric(hooked, "foldback_webhook_pending") == 0


def test_lists_are_paged(hooked, receiver):
    webhooks = [make_webhook(hooked, receiver.url, note=str(number), enabled=False)["id"] for number in range(5)]
    found, token = [], ""
    for _ in range(3):
        page = hooked.get(f"/v1/webhooks?limit=2{token}").json()
        found += [item["id"] for item in page["items"]]
        token = f"&page_token={page.get('next_page_token')}"
    assert found == webhooks[::-1]
    for _ in range(5):
        hooked.post(f"/v1/webhooks/{webhooks[0]}/test")
    page = hooked.get(f"/v1/webhooks/{webhooks[0]}/deliveries?limit=3&state=pending").json()
    assert len(page["items"]) == 3
    token = page["next_page_token"]
    assert len(hooked.get(
        f"/v1/webhooks/{webhooks[0]}/deliveries?limit=3&state=pending&page_token={token}").json()["items"]) == 2
    assert hooked.get(f"/v1/webhooks/{webhooks[0]}/deliveries?page_token={token}").json()["code"] == "bad-page-token"
    assert hooked.get(f"/v1/webhooks/{webhooks[0]}/deliveries?state=lost").json()["code"] == "bad-parameter"
    delivery = page["items"][0]["id"]
    assert hooked.get(f"/v1/webhooks/{webhooks[1]}/deliveries/{delivery}").json()["code"] == "unknown-delivery"


def test_what_is_wrong_with_a_request(hooked, receiver):
    for body, code, pointer in [
        ({}, "missing-member", None), ({"url": 5}, "wrong-type", "/url"),
        ({"url": receiver.url, "events": []}, "wrong-type", "/events"),
        ({"url": receiver.url, "events": ["alias.moved", "alias.sold"]}, "unknown-event-type", "/events/1"),
        ({"url": receiver.url, "events": [7]}, "wrong-type", "/events/0"),
        ({"url": receiver.url, "events": "*"}, "wrong-type", "/events"),
        ({"url": receiver.url, "models": ["a b"]}, "bad-model-pattern", "/models/0"),
        ({"url": receiver.url, "models": [""]}, "bad-model-pattern", "/models/0"),
        ({"url": receiver.url, "models": ["[a]"]}, "bad-model-pattern", "/models/0"),
        ({"url": receiver.url, "enabled": 1}, "wrong-type", "/enabled"),
        ({"url": receiver.url, "secret": "hunter2"}, "bad-secret", "/secret"),
        ({"url": receiver.url, "colour": 1}, "unknown-member", "/colour"),
        ({"url": receiver.url, "note": "x" * 10001}, "note-too-long", "/note"),
        ({"url": "http://" + "x" * 2000}, "bad-url", "/url"),
    ]:
        answer = hooked.post("/v1/webhooks", body)
        assert (answer.status == 422 and answer.json()["code"] == code
                and answer.json().get("pointer", None) in (pointer, "")), (body, answer)
    assert not hooked.get("/v1/webhooks").json()["items"]


def test_there_are_not_too_many(hooked, receiver):
    for _ in range(100):
        make_webhook(hooked, receiver.url)
    answer = hooked.post("/v1/webhooks", {"url": receiver.url})
    assert answer.status == 409 and answer.json()["code"] == "too-many-webhooks"
    optimize(hooked)
    receiver.wait(lambda messages: len(messages) == 100)


def test_the_scope_hooks(hooked, receiver):
    admin = make_token(hooked, "admin", "boss")
    hooks = make_token(hooked, "hooks", "integrator", by=admin)
    writer = make_token(hooked, "write", "writer", by=admin)
    assert hooked.get("/v1/tokens/integrator", headers=bearer(admin)).json()["scope"] == "hooks"
    made = make_webhook(hooked, receiver.url, headers=bearer(hooks))
    assert hooked.get("/v1/models", headers=bearer(hooks)).status == 200
    refused = hooked.post("/v1/optimize", {"graph": branches(2), "passes": []}, headers=bearer(hooks))
    assert refused.status == 403 and refused.json()["code"] == "scope-too-small"
    assert hooked.get("/v1/audit", headers=bearer(hooks)).status == 403
    for method, path in itertools.product(("GET", "DELETE"), (f"/v1/webhooks/{made['id']}",)):
        assert hooked.request(method, path, headers=bearer(writer)).status == 403
    hooked.restart()  # the scope is in the store
    assert hooked.get(f"/v1/webhooks/{made['id']}", headers=bearer(hooks)).status == 200
    assert hooked.request("DELETE", f"/v1/webhooks/{made['id']}", headers=bearer(hooks)).status == 204
    entry = hooked.get("/v1/audit?action=webhook-create", headers=bearer(admin)).json()["items"][0]
    assert entry["who"] == "integrator" and entry["outcome"] == receiver.url.removesuffix("/hook")


def test_a_webhook_ends_with_its_token(hooked, receiver):
    admin = make_token(hooked, "admin", "boss")
    hooks = make_token(hooked, "hooks", "integrator", by=admin)
    second = make_token(hooked, "hooks", "successor", by=admin)
    path = f"/v1/webhooks/{make_webhook(hooked, receiver.url, headers=bearer(hooks))['id']}"

    def state(headers):
        told = hooked.get(path, headers=headers).json()
        return told["who"], told["withdrawn"], told["enabled"], told["pending"]

    def told(name):
        answer = hooked.post("/v1/optimize", {"graph": branches(2, name), "passes": ["MergeLinears"]}, headers=bearer(admin))
        assert answer.status == 201, answer

    assert state(bearer(admin)) == ("integrator", False, True, 0)
    told("before")
    receiver.wait(lambda messages: len(messages) == 1)
    assert hooked.request("DELETE", "/v1/tokens/integrator", headers=bearer(admin)).status in (200, 204)
    told("after")
    hooked.post(path + "/test", headers=bearer(admin))  # which waits
    assert state(bearer(admin)) == ("integrator", True, True, 1)
    hooked.restart()
    witness = make_webhook(hooked, receiver.url + "/witness", headers=bearer(admin))
    hooked.post(f"/v1/webhooks/{witness['id']}/test", headers=bearer(admin))
    receiver.wait(lambda messages: any(message.path.endswith("/witness") for message in messages))
    assert len(receiver.messages) == 2, "what waits for the one that is withdrawn was due before"
    changed = hooked.request("PATCH", path, {}, headers=bearer(second)).json()
    assert (changed["who"], changed["withdrawn"]) == ("successor", False)
    receiver.wait(lambda messages: len(messages) == 3)
    assert receiver.messages[-1].type == "webhook.test", "of what happened meanwhile nothing is told"
    wait_for_delivery(hooked, path.removeprefix("/v1/webhooks/"),
                      lambda items: all(item["state"] == "delivered" for item in items), headers=bearer(admin))


def test_a_webhook_ends_when_its_token_expires(hooked, receiver):
    admin = make_token(hooked, "admin", "boss")
    short = make_token(hooked, "hooks", "short", by=admin, expires=in_future(seconds=4))
    path = f"/v1/webhooks/{make_webhook(hooked, receiver.url, headers=bearer(short))['id']}"
    while not hooked.get(path, headers=bearer(admin)).json()["withdrawn"]:
        time.sleep(0.05)
    assert hooked.post("/v1/optimize", {"graph": branches(2), "passes": ["MergeLinears"]}, headers=bearer(admin)).status == 201
    assert hooked.get(path, headers=bearer(admin)).json()["pending"] == 0 and not receiver.messages


def test_metrics(hooked, receiver):
    receiver.answer = lambda message: 500 if message.path == "/bad" else 200
    good = make_webhook(hooked, receiver.url)["id"]
    bad = make_webhook(hooked, receiver.url.replace("/hook", "/bad"))["id"]
    none = make_webhook(hooked, "http://localhost:1025/", events=["job.finished"])["id"]
    for webhook in (good, bad, none):
        hooked.post(f"/v1/webhooks/{webhook}/test")
        wait_for_delivery(hooked, webhook, lambda items: items[0]["attempts"] > 0)
    assert metric(hooked, "foldback_webhook_attempts_total", outcome="delivered") == 1
    assert metric(hooked, "foldback_webhook_attempts_total", outcome="failed") >= 2
    assert metric(hooked, "foldback_webhook_enabled") == 3 and metric(hooked, "foldback_webhook_pending") == 2
    assert metric(hooked, "foldback_webhook_oldest_pending_seconds") >= 0


def test_messages_are_read_as_they_are_written():
    """A receiver of these tests notices a wrong signature."""
    secret = "whsec_" + base64.b64encode(bytes(range(32))).decode()
    body = b'{"type":"a","data":{}}'
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": signature(secret, "msg_1", "1", body)}
    assert Message("/", headers, body).is_signed_with(secret)
    assert not Message("/", {**headers, "webhook-timestamp": "2"}, body).is_signed_with(secret)
    assert not Message("/", headers, body + b" ").is_signed_with(secret)
