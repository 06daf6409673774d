"""The audit: every act leaves an entry, with it or not at all; nothing is ever taken out; no secret gets in."""

import concurrent.futures
import json
import re
import sqlite3
import subprocess
import time

import pytest
from access import bearer, make_token
from blobs import digest_of, graph_of, put_blob, some_bytes, wait_until
from conftest import binary, of_a_file
from documents import branches, every_item
from test_external import gelu
from test_models import put_version
from test_transformations import DOUBLE
from test_uploads import append, begin, finish
from undo import model


class As:
    """A service as one of its clients sees it."""

    def __init__(self, service, token):
        self.service, self.token, self.count = service, token, 0

    def request(self, method, path, body=None, headers=None, **options):
        self.count += 1
        given = {**(bearer(self.token) if self.token else {}), "X-Request-Id": f"request-{self.count}", **(headers or {})}
        answer = self.service.request(method, path, body, headers=given, **options)
        assert answer.status < 300, answer
        return answer

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.request("POST", path, body, **options)

    def entries(self, **filters):
        return every_item(self, "/v1/audit", filters.items(), limit=7)

    def did(self, **filters):
        return [(one["who"], one["action"], one["object"], one["outcome"]) for one in reversed(self.entries(**filters))]


@pytest.fixture
def people(service):
    boss = As(service, make_token(service, "admin", "boss"))
    return boss, As(service, make_token(service, "write", "ci", by=boss.token))


ALIAS = "/v1/models/bert/aliases/production"


def set_alias(client, version, tag):
    headers = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
    return client.request("PUT", ALIAS, {"version": version, "who": "somebody else"}, headers=headers).headers["etag"]


def act(boss, ci):
    """Everything that leaves an entry, once at least; the entries that it should leave."""
    expected = [("local", "token-create", "boss", "admin"), ("boss", "token-create", "ci", "write")]

    def leaves(who, action, object, outcome):
        expected.append((who, action, object, outcome))

    run = ci.post("/v1/optimize", {"graph": model(), "passes": ["MergeLinears"]}).json()
    leaves("ci", "optimize", run["id"], run["result"])
    later = {"graph": run["source"], "passes": ["DeepCopy", "LintAndRecompile"]}
    job = ci.post("/v1/optimize", later, headers={"Prefer": "respond-async"}).json()
    leaves("ci", "job-create", job["id"], "POST /v1/optimize")
    wait_until(lambda: ci.get(f"/v1/jobs/{job['id']}").json()["state"] == "succeeded")
    done = ci.get(f"/v1/jobs/{job['id']}/result").json()
    leaves("ci", "optimize", done["id"], done["result"])
    for kind in ("reverse", "rollback"):
        undone = ci.post(f"/v1/runs/{run['id']}/{kind}").json()
        leaves("ci", kind, undone["id"], undone["result"])
    recorded = ci.post("/v1/runs", {"source": model(), "result": gelu(model()), "name": "AddGelu"}).json()
    leaves("ci", "external", recorded["id"], recorded["result"])
    for version, of in (("v1", run), ("v2", recorded)):
        put_version(ci, "bert", version, {"run": of["id"]})
        leaves("ci", "version-put", f"bert:{version}", of["result"])
    put_version(ci, "bert", "v3", {"run": run["id"]})
    leaves("ci", "version-put", "bert:v3", run["result"])
    ci.request("DELETE", "/v1/models/bert/versions/v3")
    leaves("ci", "version-delete", "bert:v3", "deleted")
    boss.request("PUT", f"/v1/runs/{run['id']}/pin")
    boss.request("DELETE", f"/v1/runs/{run['id']}/pin")
    leaves("boss", "pin", run["id"], "pinned")
    leaves("boss", "unpin", run["id"], "no longer pinned")
    tag = set_alias(ci, "v2", None)
    leaves("ci", "alias-create", "bert@production", "v2")
    tag = set_alias(ci, "v1", tag)
    leaves("ci", "alias-deploy", "bert@production", "v1")
    passes = ci.post(f"{ALIAS}/rollback", {"passes": ["MergeLinears"]}, headers={"If-Match": tag}).json()
    leaves("ci", "rollback", passes["run"], passes["graph"])
    leaves("ci", "alias-rollback", "bert@production", passes["version"])
    tag = ci.post(f"{ALIAS}/rollback", {"version": "v2"}).headers["etag"]
    leaves("ci", "alias-rollback", "bert@production", "v2")
    ci.request("DELETE", ALIAS, headers={"If-Match": tag})
    leaves("ci", "alias-delete", "bert@production", "deleted")
    ci.post("/v1/transformations", DOUBLE)
    leaves("ci", "transformation-put", "DoubleTheDoubles", "version 1")
    stored = ci.post("/v1/graphs", branches(2, "to go")).json()
    leaves("ci", "graph-put", stored["id"], f"{stored['nodes']} nodes, {stored['bytes']} bytes")
    ci.request("DELETE", f"/v1/graphs/{stored['id']}")
    leaves("ci", "graph-delete", stored["id"], "deleted")
    put_blob(ci, some_bytes(100))
    leaves("ci", "blob-put", digest_of(some_bytes(100)), "100 bytes")
    places = [begin(ci) for _ in range(3)]
    uploads = [place.rsplit("/", 1)[1] for place in places]
    for upload in uploads:
        leaves("ci", "upload-create", upload, "0 bytes")
    append(ci, places[0], b"abc")
    leaves("ci", "upload-part", uploads[0], "3 bytes")
    finish(ci, places[0], digest_of(b"abc"))
    leaves("ci", "blob-put", digest_of(b"abc"), "3 bytes")
    ci.request("DELETE", places[1])
    leaves("ci", "upload-delete", uploads[1], "0 bytes")
    boss.post("/v1/gc", {"grace_seconds": 0})
    leaves("boss", "gc", "blobs", "2 blobs, 103 bytes")
    leaves("boss", "gc", "uploads", "1 uploads")
    boss.request("DELETE", "/v1/tokens/ci")
    leaves("boss", "token-revoke", "ci", "revoked")
    return expected


def test_every_act_leaves_an_entry(people):
    boss, ci = people
    expected = act(boss, ci)
    assert boss.did() == expected
    entries = boss.entries()
    assert [one["id"] for one in entries] == list(range(len(entries), 0, -1))
    assert all(re.fullmatch(r"request-\d+|[0-9a-f]{32}", one["request"]) for one in entries)
    assert all(set(one) == {"id", "when", "who", "request", "action", "object", "outcome"} for one in entries)
    boss.service.restart()
    assert boss.did() == expected


def test_filters(people):
    boss, ci = people
    expected = act(boss, ci)
    assert boss.did(who="boss") == [one for one in expected if one[0] == "boss"]
    assert boss.did(action="rollback") == [one for one in expected if one[1] == "rollback"]
    assert boss.did(object="bert@production", action="alias-rollback") == [
        one for one in expected if one[1:3] == ("alias-rollback", "bert@production")
    ]
    assert boss.did(who="nobody") == boss.did(who="ci", action="gc") == []
    entries = boss.entries()
    middle = entries[len(entries) // 2]["when"]
    since, until = boss.entries(since=middle), boss.entries(until=middle)
    assert {one["id"] for one in since}.isdisjoint({one["id"] for one in until})
    assert sorted((one["id"] for one in since + until), reverse=True) == [one["id"] for one in entries]
    assert all(one["when"] >= middle for one in since) and all(one["when"] < middle for one in until)
    assert boss.entries(since="2099-01-01") == boss.entries(until="2020-01-01T00:00:00Z") == []
    bad = boss.service.get("/v1/audit?since=yesterday", headers=bearer(boss.token))
    assert (bad.status, bad.json()["code"], bad.json()["parameter"]) == (422, "bad-time", "since")
    page = boss.get("/v1/audit?limit=2&who=ci").json()["next_page_token"]
    other = boss.service.get(f"/v1/audit?who=boss&page_token={page}", headers=bearer(boss.token))
    assert (other.status, other.json()["code"]) == (422, "bad-page-token")


def test_what_changed_nothing_leaves_nothing(people):
    boss, ci = people
    put_version(ci, "bert", "v1", {"graph": branches(2)})
    tag = set_alias(ci, "v1", None)
    run = ci.post("/v1/optimize", {"graph": model(), "passes": ["MergeLinears"]}, headers={"Idempotency-Key": "k"}).json()
    ci.post("/v1/transformations", DOUBLE)
    put_blob(ci, some_bytes(100))
    ci.post("/v1/graphs", branches(2, "known"))
    boss.request("PUT", f"/v1/runs/{run['id']}/pin", {"note": "why"})
    before = boss.did()
    put_blob(ci, some_bytes(100))
    ci.post("/v1/graphs", branches(2, "known"))
    boss.request("PUT", f"/v1/runs/{run['id']}/pin", {"note": "why"})
    put_version(ci, "bert", "v1", {"graph": branches(2)})
    set_alias(ci, "v1", tag)
    ci.post("/v1/transformations", DOUBLE)
    again = ci.post("/v1/optimize", {"graph": model(), "passes": ["MergeLinears"]}, headers={"Idempotency-Key": "k"})
    assert again.json()["id"] == run["id"]
    ci.post("/v1/optimize", {"graph": model(), "passes": ["MergeLinears"], "options": {"dry_run": True}})
    boss.post("/v1/gc", {"grace_seconds": 0, "dry_run": True})
    boss.post("/v1/gc", {"grace_seconds": 3600})
    refused = (
        ("DELETE", f"/v1/graphs/{run['source']}", None, {}, 409),
        ("DELETE", "/v1/models/bert/versions/v1", None, {}, 409),
        ("PUT", ALIAS, {"version": "v1"}, {"If-None-Match": "*"}, 412),
        ("POST", f"{ALIAS}/rollback", {}, {}, 409),
        ("POST", "/v1/tokens", {"scope": "read"}, {}, 403),
        ("POST", "/v1/gc", None, {}, 403),
    )
    for method, path, body, headers, status in refused:
        assert ci.service.request(method, path, body, headers={**headers, **bearer(ci.token)}).status == status, path
    assert boss.did() == before


def test_an_entry_is_there_when_its_act_was_answered(people):
    """Acts of several at once, the process killed in the middle: each act that was answered has one entry, each entry its
    act."""
    boss, ci = people
    service, answered = boss.service, []

    def work(number):
        for i in range(1000):
            try:
                answer = service.post("/v1/optimize", {"graph": branches(2, f"{number}-{i}"), "passes": ["MergeLinears"]},
                                      headers=bearer(ci.token))
            except OSError:
                return
            answered.append(answer.json()["id"])
            if len(answered) == 40:
                service.process.kill()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    service.kill()
    service.start()
    entries = [one["object"] for one in boss.entries(action="optimize")]
    runs = [one["id"] for one in every_item(boss, "/v1/runs", limit=100)]
    assert sorted(entries) == sorted(runs) and len(set(entries)) == len(entries)
    assert set(answered) <= set(entries) and len(answered) >= 40


@of_a_file
def test_the_database_refuses_to_forget(people):
    boss, ci = people
    act(boss, ci)
    boss.service.stop()
    with sqlite3.connect(boss.service.data / "foldback.sqlite") as database:
        for sql in ("DELETE FROM audit", "UPDATE audit SET who = 'nobody'", "DELETE FROM audit WHERE number = 1"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                database.execute(sql)
    boss.service.start()


def test_without_tokens_somebody_did_it(service):
    service.post("/v1/optimize", {"graph": model(), "passes": ["MergeLinears"]})
    assert [one["who"] for one in service.get("/v1/audit").json()["items"]] == ["anonymous"]


def test_what_the_service_does_on_its_own(new_service):
    service = new_service("--gc-interval", "1", "--gc-grace", "0")
    put_blob(service, some_bytes(10))
    wait_until(lambda: service.get("/v1/audit?action=gc").json()["items"])
    entry = service.get("/v1/audit?action=gc").json()["items"][0]
    assert (entry["who"], entry["action"], entry["request"]) == ("service", "gc", None)


def test_no_secret_is_written_anywhere(people):
    boss, ci = people
    service = boss.service
    expected = act(boss, ci)
    key = "key-of-an-idempotent-request"
    secret_text = "a-note-that-only-the-client-knows"
    boss.post("/v1/optimize", {"graph": graph_of([]), "passes": ["MergeLinears"], "note": secret_text},
              headers={"Idempotency-Key": key})
    for target in (f"/v1/graphs?access_token={ci.token}", "/v1/graphs"):
        service.get(target, headers={"Authorization": f"Basic {ci.token}"})
        service.get(target, headers=bearer(ci.token))
        service.raw(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {ci.token}\nX: "
                    "y\r\n\r\n".encode())
    service.stop()
    log = service.log()
    assert len(expected) < log.count("\n")
    for secret in (boss.token, ci.token):
        for path in service.data.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    for secret in (boss.token, ci.token, boss.token[4:], ci.token[4:], key, secret_text, "Bearer", "Basic"):
        assert secret not in log, secret
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"boss", "ci", "anonymous"} <= {line["who"] for line in lines}
    service.start()


# ---- retention ---------------------------------------------------------------------------------------------------------------


def grow_old(service, days, where="1"):
    """Makes entries older, behind the service's back."""
    service.stop()
    with sqlite3.connect(service.data / "foldback.sqlite") as database:
        (trigger,) = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'audit_is_not_changed'").fetchone()
        database.execute("DROP TRIGGER audit_is_not_changed")
        database.execute(f"UPDATE audit SET at = at - ? WHERE {where}", (days * 86400000,))
        database.execute(trigger)
    database.close()
    service.start()


def entries_of(service):
    return every_item(service, "/v1/audit", limit=100)


DAY = 86400000


def change_audit(service, sql, *values):
    """Behind the service's back."""
    service.stop()
    with sqlite3.connect(service.data / "foldback.sqlite") as database:
        triggers = database.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        database.execute(sql, values)
        for _, text in triggers:
            database.execute(text)
    database.close()
    service.start()


def add_to_audit(service, entries):
    """(days from ten days ago, object) each: as the service would have written them then."""
    service.stop()
    with sqlite3.connect(service.data / "foldback.sqlite") as database:
        previous = ""
        for days, what in entries:
            at = int(time.time() * 1000) + (days - 10) * DAY
            fields = ["somebody", None, "pin", what, "pinned"]
            text = f"{previous} {at} " + "".join("-," if one is None else f"{len(one)}:{one}," for one in fields)
            previous = digest_of(text.encode())
            columns = "at, who, request, action, object, outcome, digest"
            database.execute(f"INSERT INTO audit ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", (at, *fields, previous))
    database.close()
    service.start()


def damaged(service):
    """The entries that `foldback db check` names."""
    service.stop()
    done = subprocess.run([binary(), "db", "check", "--data", service.data, "--json"], capture_output=True, text=True)
    service.start()
    return [one["subject"] for one in json.loads(done.stdout)["findings"]]


@of_a_file
def test_what_is_left_after_a_trim_hangs_together(service):
    """Old entries go without a finding, also where a wrong clock keeps one; what goes behind the service's back does not."""
    add_to_audit(service, [(0, f"old {i}") for i in range(10)] + [(40, "ahead")] + [(0, "old 10")])
    for size in range(10, 14):
        put_blob(service, some_bytes(size))
    assert damaged(service) == []
    assert service.post("/v1/gc", {"keep_audit_days": 5}).json()["audit_entries"] == 11
    put_blob(service, some_bytes(30))
    assert [one["object"] for one in entries_of(service)][-1] == "ahead" and damaged(service) == []
    change_audit(service, "UPDATE audit SET outcome = '99 bytes' WHERE number = 15")
    assert damaged(service) == ["entry 15 of the audit"]
    change_audit(service, "DELETE FROM audit WHERE number = 15")
    assert damaged(service) == ["entry 16 of the audit"]


@of_a_file
def test_old_entries_are_removed_on_demand(service):
    for size in range(10, 20):
        put_blob(service, some_bytes(size))
    grow_old(service, 10)
    put_blob(service, some_bytes(30))
    before = entries_of(service)
    assert len(before) == 11
    untouched = service.post("/v1/gc").json()
    assert (untouched["keep_audit_days"], untouched["audit_entries"]) == (None, 0)
    assert service.post("/v1/gc", {"keep_audit_days": 11}).json()["audit_entries"] == 0
    dry = service.post("/v1/gc", {"keep_audit_days": 9, "dry_run": True}).json()
    assert (dry["keep_audit_days"], dry["audit_entries"]) == (9, 10)
    assert entries_of(service) == before
    assert service.post("/v1/gc", {"keep_audit_days": 9}).json()["audit_entries"] == 10
    told, kept = entries_of(service)
    assert kept == before[0]
    assert (told["action"], told["object"], told["who"]) == ("audit-trim", "audit", "anonymous")
    assert told["outcome"].startswith("10 entries from before 20") and told["request"]
    assert service.post("/v1/gc", {"keep_audit_days": 9}).json()["audit_entries"] == 0
    assert len(entries_of(service)) == 2
    service.stop()
    with sqlite3.connect(service.data / "foldback.sqlite") as database:  # it refuses anybody else as before
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute("DELETE FROM audit")
        assert database.execute("SELECT count(*) FROM audit_trim").fetchone() == (0,)
    service.start()
    for wrong in (0, -1, 36501, 1.5, "1", True):
        answer = service.post("/v1/gc", {"keep_audit_days": wrong})
        assert (answer.status, answer.json()["pointer"]) == (422, "/keep_audit_days")


@of_a_file
def test_a_clock_that_was_ahead_holds_nothing_up(service):
    for size in range(10, 14):
        put_blob(service, some_bytes(size))
    grow_old(service, 10)
    grow_old(service, -30, "number = 2")
    put_blob(service, some_bytes(30))
    assert service.post("/v1/gc", {"keep_audit_days": 5}).json()["audit_entries"] == 3
    assert len(entries_of(service)) == 3


@of_a_file
def test_old_entries_are_removed_in_parts(service):
    """Of some thousand, each with its entry; what is removed is what was counted."""
    put_blob(service, some_bytes(10))
    service.stop()
    with sqlite3.connect(service.data / "foldback.sqlite") as database:
        database.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000) "
            "INSERT INTO audit (at, who, action, object, outcome) SELECT 1000000000000 + i, 'somebody', 'pin', 'run', 'pinned' "
            "FROM n"
        )
    database.close()
    service.start()
    grow_old(service, 10000, "who <> 'somebody'")
    answer = service.post("/v1/gc", {"keep_audit_days": 1}).json()
    assert answer["audit_entries"] == 12001
    told = [one["outcome"].split()[0] for one in entries_of(service)]
    assert sorted(map(int, told)) == [2001, 5000, 5000]


@of_a_file
def test_a_service_removes_old_entries_by_itself(new_service):
    service = new_service("--gc-interval", "1", "--keep-audit-days", "5")
    put_blob(service, some_bytes(10))
    grow_old(service, 10)
    wait_until(lambda: [one["action"] for one in entries_of(service)] == ["audit-trim"])
    assert entries_of(service)[0]["who"] == "service"
    assert service.post("/v1/gc").json()["keep_audit_days"] == 5


@of_a_file
def test_a_command_line_removes_old_entries(service):
    put_blob(service, some_bytes(10))
    grow_old(service, 10)
    service.stop()
    done = subprocess.run([binary(), "gc", "--keep-audit-days", "5", "--data", service.data, "--json"],
                          capture_output=True, text=True)
    assert json.loads(done.stdout)["audit_entries"] == 1, done
    service.start()
    assert [(one["action"], one["who"]) for one in entries_of(service)] == [("audit-trim", "local")]
