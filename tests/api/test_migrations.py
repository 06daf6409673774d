"""Data folders of every earlier schema, as the services of that time left them (fixtures/schemas), are brought up to date: all
that was in them is there, is right, and can be undone. Also when the migration is interrupted, and when it is refused."""

import json
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest
from blobs import INLINE, digest_of, some_bytes
from conftest import ROOT, binary
from documents import COMPOSED, branches
from full_store import is_clean, lay_out_database, verify
from test_runs import optimize
from undo import fresh

SCHEMAS = ROOT / "tests" / "fixtures" / "schemas"
FOUND = json.loads((SCHEMAS / "found.json").read_text())  # of each schema what its service said
VERSIONS = sorted(int(path.name[:3]) for path in SCHEMAS.glob("*.sql.gz"))
NEWEST = max(int(path.name[:3]) for path in (ROOT / "schema" / "sql").glob("*.sql"))


def lay_out(version, data):
    """Makes the data folder that a service of that schema left; what was in it."""
    name = f"{version:03}"
    lay_out_database(SCHEMAS / f"{name}.sql.gz", data)
    found = FOUND[name]
    if found["blobs"]:
        large = some_bytes(INLINE + 1)
        path = data / "blobs" / digest_of(large)[7:9] / digest_of(large)[9:11] / digest_of(large)[7:]
        path.parent.mkdir(parents=True)
        path.write_bytes(large)
    # so that the answer to a repeated request is not forgotten: it was given just now
    with sqlite3.connect(data / "foldback.sqlite") as connection:
        connection.execute("UPDATE answers SET created = ?", (int(time.time() * 1000),))
    connection.close()
    return found


def user_version(data):
    connection = sqlite3.connect(data / "foldback.sqlite")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return version


def described(data):
    """Every table, index and trigger, without what only differs in how it was written."""
    connection = sqlite3.connect(data / "foldback.sqlite")
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
    connection.close()
    return [(*row[:3], re.sub(r"\s+", " ", row[3] or "")) for row in rows]


def test_every_earlier_schema_is_here():
    assert VERSIONS == list(range(1, VERSIONS[-1] + 1)) and VERSIONS[-1] >= NEWEST - 1, "run fixtures/schemas/make.py"


@pytest.mark.parametrize("version", VERSIONS)
def test_brought_up_to_date(version, tmp_path, new_service):
    data = tmp_path / "data"
    found = lay_out(version, data)
    assert user_version(data) == version
    service = new_service(data=data)
    verify(service, found)
    assert service.stop() == 0
    assert user_version(data) == NEWEST
    answer = is_clean(data)
    merged = sum(not run["exact"] and run["kind"] in ("reverse", "rollback") for run in found["runs"])
    assert answer["runs"] - answer["replayed"] <= merged
    empty = new_service(data=tmp_path / "empty")
    assert empty.stop() == 0
    assert described(data) == described(tmp_path / "empty")


@pytest.mark.parametrize("version", VERSIONS)
def test_old_runs_are_undone_in_part(version, tmp_path, new_service):
    data = tmp_path / "data"
    found = lay_out(version, data)
    service = new_service(data=data)
    composed = found["runs"][0]
    assert [one["name"] for one in composed["passes"]] == COMPOSED
    passes = [{"name": one["name"], "version": one["version"]} for one in composed["passes"]]
    for name in COMPOSED:
        left = [other for other in passes if other["name"] != name]
        expected = fresh(service, branches(4), left)
        for how in ("reverse", "rollback"):
            answer = service.post(f"/v1/runs/{composed['id']}/{how}", {"passes": [name]})
            assert answer.status == 201 and answer.json()["result"] == expected, (name, how, answer)
    again = optimize(service, branches(4), passes)
    assert (again["result"], again["signature"]) == (composed["result"], composed["signature"])
    service.stop()
    is_clean(data)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_check_does_it_too(version, tmp_path):
    lay_out(version, tmp_path / "data")
    is_clean(tmp_path / "data")
    assert user_version(tmp_path / "data") == NEWEST


@pytest.mark.parametrize("version", VERSIONS)
def test_a_backup_leaves_it_as_it_is(version, tmp_path, new_service):
    """The schema of a backup is that of the folder; it is brought up to date when it is opened."""
    found = lay_out(version, tmp_path / "data")
    for verb, place, data in (("backup", "backup", "data"), ("restore", "backup", "restored")):
        done = subprocess.run([binary(), "db", verb, tmp_path / place, "--data", tmp_path / data],
                              capture_output=True, text=True)
        assert done.returncode == 0, done
    assert user_version(tmp_path / "data") == user_version(tmp_path / "backup") == version
    verify(new_service(data=tmp_path / "restored"), found)


def test_what_waiting_jobs_name(tmp_path):
    """Jobs of before schema 9 keep what they name, too."""
    data = tmp_path / "data"
    named = lay_out(8, data)["runs"][2]["id"]  # that nothing else needs
    connection = sqlite3.connect(data / "foldback.sqlite")
    connection.execute("DELETE FROM answers")
    connection.execute("UPDATE runs SET created = 0")
    connection.execute(
        "INSERT INTO jobs (id, state, principal, request, method, target, content_type, body_size, created, attempts, "
        "interruptions, is_unwanted) VALUES ('job_1', 'queued', 'a', 'b', 'POST', ?, '', 0, 0, 0, 0, 0)",
        (f"/v1/runs/{named}/rollback",),
    )
    connection.commit()
    connection.close()
    done = subprocess.run([binary(), "gc", "--keep-runs-days", "1", "--data", data, "--json"], capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["runs"] > 0, done
    connection = sqlite3.connect(data / "foldback.sqlite")
    assert connection.execute("SELECT count(*) FROM runs WHERE id = ?", (named,)).fetchone() == (1,)
    connection.close()


@pytest.mark.long
def test_interrupted(tmp_path, new_service):
    """Killed at any instant of a migration: what is there is one schema or the other, and the next start goes on."""
    whole, chance = tmp_path / "whole", random.Random(1)
    found = lay_out(1, whole)
    seen = set()
    for round_ in range(25):
        data = tmp_path / f"data{round_}"
        shutil.copytree(whole, data)
        process = subprocess.Popen([binary(), "serve", "--listen", "127.0.0.1:0", "--data", data], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(chance.random() * 0.06)
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen.add(user_version(data))
        assert is_clean(data)["runs"] == len(found["runs"])
        shutil.rmtree(data)
    assert seen <= set(range(1, NEWEST + 1))


@pytest.mark.parametrize("kilobytes", [50, 150, 250])
def test_a_new_store_is_made_whole_or_not_at_all(tmp_path, new_service, kilobytes):
    """No file may grow beyond so many bytes, as on a disk that is full when some of the tables are written."""
    data = tmp_path / "data"
    limit = (kilobytes * 1024, kilobytes * 1024)
    done = subprocess.run([binary(), "serve", "--listen", "127.0.0.1:0", "--data", data], capture_output=True, text=True,
                          timeout=600, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert done.returncode != 0
    assert user_version(data) == 0 and described(data) == []
    assert new_service(data=data).get("/v1/runs").json()["items"] == []
    assert user_version(data) == NEWEST


def test_a_migration_that_fails_is_undone(tmp_path, new_service):
    """Something of the new schema's name is in the way: the store says so, is as it was, and opens when it is gone."""
    data = tmp_path / "data"
    found = lay_out(1, data)
    connection = sqlite3.connect(data / "foldback.sqlite")
    connection.execute("CREATE TABLE aliases (mine)")  # after others that migration 2 makes
    connection.close()
    before = described(data)
    done = subprocess.run([binary(), "serve", "--listen", "127.0.0.1:0", "--data", data], capture_output=True, text=True)
    assert done.returncode == 1 and "aliases" in done.stderr
    assert user_version(data) == 1 and described(data) == before
    connection = sqlite3.connect(data / "foldback.sqlite")
    connection.execute("DROP TABLE aliases")
    connection.close()
    verify(new_service(data=data), found)


def test_a_newer_schema_is_refused(tmp_path):
    data = tmp_path / "data"
    lay_out(VERSIONS[-1], data)
    connection = sqlite3.connect(data / "foldback.sqlite")
    connection.execute(f"PRAGMA user_version = {NEWEST + 1}")
    connection.close()
    bytes_before = (data / "foldback.sqlite").read_bytes()
    for words in (["serve", "--listen", "127.0.0.1:0"], ["db", "check"], ["runs"], ["db", "backup", tmp_path / "backup"]):
        done = subprocess.run([binary(), *words, "--data", data], capture_output=True, text=True)
        assert done.returncode == 1, words
        assert f"schema {NEWEST + 1}" in done.stderr and f"up to {NEWEST}" in done.stderr and "newer foldback" in done.stderr
    assert (data / "foldback.sqlite").read_bytes() == bytes_before and not (tmp_path / "backup").exists()


def test_the_audit_says_who_made_an_earlier_webhook(tmp_path, new_service):
    data = tmp_path / "data"
    lay_out(14, data)
    with sqlite3.connect(data / "foldback.sqlite") as connection:
        for hook in ("hook_01M8JNMPFQ02Q79EMA4G8MACCF", "hook_01M8JNMPFQ02Q79EMA4G8MACCG"):
            connection.execute(
                "INSERT INTO webhooks (id, url, events, models, is_enabled, secret, created, changed) "
                "VALUES (?, 'https://example.org/', '*', '*', 1, 'whsec_', 1, 1)",
                (hook,),
            )
        for who, action in (("first", "webhook-create"), ("second", "webhook-change"), ("service", "webhook-change"),
                            ("third", "webhook-test")):
            connection.execute("INSERT INTO audit (at, who, action, object, outcome) VALUES (1, ?, ?, ?, '')",
                               (who, action, "hook_01M8JNMPFQ02Q79EMA4G8MACCF"))
    connection.close()
    found = new_service(data=data).get("/v1/webhooks").json()["items"]
    assert [(item["id"][-1], item["who"], item["withdrawn"]) for item in found] == [("G", None, False), ("F", "second", False)]
