"""foldback db: check finds every kind of damage, a backup is taken while others write, a restore takes a folder's place."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import threading

import pytest
from blobs import INLINE, collect, graph_of, some_bytes, stored
from cli import CommandLine
from conftest import binary
from documents import branches
from full_store import check, copy, filled, is_clean, verify  # noqa: F401
from test_runs import optimize


def db(data, *words):
    done = subprocess.run([binary(), "db", *words, "--data", data], capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


def change(data, sql, *values):
    """Behind the service's back."""
    connection = sqlite3.connect(data / "foldback.sqlite")
    for name, text in connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA foreign_keys = OFF")
    assert connection.execute(sql, values).rowcount != 0, sql
    connection.commit()
    connection.close()


# ---- check -------------------------------------------------------------------------------------------------------------------


def test_a_store_that_is_right(filled):
    data, found = filled
    answer = is_clean(data)
    assert answer["runs"] == answer["replayed"] >= len(found["runs"])
    assert answer["graphs"] >= 12 and answer["rules"] == 1 and answer["answers"] >= 1
    assert answer["blobs"] == 2 and answer["blob_bytes"] == 100 + INLINE + 1


def test_people_read_it(filled, tmp_path):
    data = filled[0]
    done = CommandLine(tmp_path, "--data", data).on_terminal("db", "check")
    assert done.status == 0 and done.out.endswith("nothing is wrong\n"), done
    shutil.copytree(data, tmp_path / "data")
    change(tmp_path / "data", "UPDATE graphs SET name = 'other' WHERE key = 1")
    done = CommandLine(tmp_path, "--data", tmp_path / "data").on_terminal("db", "check")
    assert done.status == 1 and "graph-rows-wrong" in done.out and "costs: " in done.out and "cure: " in done.out
    assert done.out.endswith("1 findings\n")


def test_there_is_no_store(tmp_path):
    status, out, err = db(tmp_path / "nothing", "check")
    assert status == 1 and out == "" and "there is no store" in err
    assert not (tmp_path / "nothing").exists()


def test_a_service_holds_it(service):
    status, _, err = db(service.data, "check")
    assert status == 3 and "held by another process" in err


# What is done to a store, and which finding names what.
DAMAGE = {
    "a graph's bytes": ("UPDATE graphs SET document = zeroblob(40) WHERE key = 3", "graph-damaged", "graph sha256:"),
    "another graph's bytes": (
        "UPDATE graphs SET (size, document) = (SELECT size, document FROM graphs WHERE key = 4) WHERE key = 3",
        "graph-damaged",
        "graph sha256:",
    ),
    "a graph's structure": ("UPDATE graphs SET structure = 'sha256:0' WHERE key = 2", "graph-rows-wrong", "graph sha256:"),
    "a graph's nodes": ("UPDATE graphs SET nodes = nodes + 1 WHERE key = 2", "graph-rows-wrong", "graph sha256:"),
    "a mark that went": (
        "DELETE FROM node_signatures WHERE graph = (SELECT min(graph) FROM node_signatures)",
        "graph-rows-wrong",
        "graph sha256:",
    ),
    "a mark that came": (
        "INSERT INTO node_signatures SELECT graph, signature, node + 1, name FROM node_signatures LIMIT 1",
        "graph-rows-wrong",
        "graph sha256:",
    ),
    "the name of a marked node": ("UPDATE node_signatures SET name = 'other'", "graph-rows-wrong", "graph sha256:"),
    "a mark of another pass": (
        "UPDATE signatures SET text = '0123' WHERE id = (SELECT min(signature) FROM node_signatures)",
        "graph-rows-wrong",
        "graph sha256:",
    ),
    "what a graph refers to": ("DELETE FROM graph_blobs", "graph-rows-wrong", "graph sha256:"),
    "a blob that a graph keeps": ("DELETE FROM blobs WHERE digest IN (SELECT digest FROM graph_blobs)", "blob-missing",
                                  "graph sha256:"),
    "a graph that went": ("DELETE FROM graphs WHERE key = 2", "reference-broken", "runs"),
    "a run's result": ("UPDATE runs SET result = source WHERE key = 1", "run-differs", "run run_"),
    "an undo's result": (
        "UPDATE runs SET result = 1 WHERE key = (SELECT min(key) FROM runs WHERE kind = 'reverse' AND result <> 1)",
        "run-differs",
        "run run_",
    ),
    "a merge's result": ("UPDATE runs SET result = 1 WHERE kind = 'reverse' AND exact = 0", "run-differs", "run run_"),
    "a run's request": ("UPDATE runs SET request = '[\"DeepCopy\"]' WHERE key = 1", "run-damaged", "run run_"),
    "a run's unreadable request": ("UPDATE runs SET request = '[' WHERE key = 1", "run-damaged", "run run_"),
    "a run's report": ("UPDATE runs SET report = zeroblob(9) WHERE key = 1", "run-damaged", "run run_"),
    "another run's report": (
        "UPDATE runs SET (report_size, report) = (SELECT report_size, report FROM runs WHERE key = 2) WHERE key = 1",
        "run-damaged",
        "run run_",
    ),
    "a run's signature": ("UPDATE runs SET composition = 'ab' WHERE key = 1", "run-damaged", "run run_"),
    "a run's passes": ("DELETE FROM run_passes WHERE run = 1 AND position = 1", "run-damaged", "run run_"),
    "a rule": ("UPDATE rules SET document = replace(document, '4', '5')", "rule-damaged", "rule DoubleTheDoubles, version 1"),
    "an answer": ("UPDATE answers SET body = zeroblob(9), body_size = 3", "answer-damaged", "the answer to a POST"),
    "an audit's text": ("UPDATE audit SET object = CAST(x'67ff' AS TEXT) WHERE number = 2", "audit-damaged",
                        "entry 2 of the audit"),
    "an audit's name": ("UPDATE audit SET who = 'lo' || char(3) || 'cal' WHERE number = 2", "audit-damaged", "entry 2"),
    "an audit's action": ("UPDATE audit SET action = 'graph=put' WHERE number = 2", "audit-damaged", "entry 2"),
    "an audit's letter": ("UPDATE audit SET who = replace(who, 'o', 'u') WHERE number = 2", "audit-damaged", "entry 2"),
    "an audit's time": ("UPDATE audit SET at = at + 1 WHERE number = 3", "audit-damaged", "entry 3"),
    "an audit's request": ("UPDATE audit SET request = NULL WHERE number = 3", "audit-damaged", "entry 3"),
    "an audit's first entry": ("DELETE FROM audit WHERE number = 1", "audit-damaged", "entry 2"),
    "an audit's entry": ("DELETE FROM audit WHERE number = 4", "audit-damaged", "entry 5"),
    "an audit's entry without a digest": ("UPDATE audit SET digest = NULL WHERE number = 4", "audit-damaged", "entry 4"),
    "an audit's digest": ("UPDATE audit SET digest = replace(digest, 'a', 'b') WHERE number = 4", "audit-damaged", "entry 4"),
    "one more in the audit": (
        "INSERT INTO audit (at, who, action, object, outcome) VALUES (1, 'ann', 'pin', 'run_1', 'pinned')",
        "audit-damaged",
        "entry ",
    ),
    "an alias": ("UPDATE aliases SET version = 1", "alias-broken", "alias net@production"),
    "a history": ("UPDATE alias_entries SET previous = NULL", "alias-broken", "entry 2"),
    "a history's graph": ("UPDATE alias_entries SET graph = 'sha256:0' WHERE number = 1", "reference-broken", "entry 1"),
    "a history's run": ("UPDATE alias_entries SET run = 'run_0' WHERE number = 1", "reference-broken", "entry 1"),
    "a small blob": ("UPDATE blobs SET bytes = zeroblob(100) WHERE bytes IS NOT NULL", "blob-damaged", "blob sha256:"),
    "a blob's size": ("UPDATE blobs SET size = size - 1 WHERE bytes IS NULL", "blob-damaged", "blob sha256:"),
    "a tensor's digest": (
        "INSERT INTO tensor_digests SELECT key, 0, 'float32', '[2,3]', 'sha256:0' FROM blobs",
        "tensor-digest-wrong",
        "blob sha256:",
    ),
    "a tensor beyond its blob": (
        "INSERT INTO tensor_digests SELECT key, 90, 'float32', '[2,3]', 'sha256:0' FROM blobs WHERE size = 100",
        "tensor-digest-wrong",
        "blob sha256:",
    ),
}



@pytest.mark.parametrize("what", DAMAGE)
def test_damage_in_rows_is_named(copy, what):
    sql, code, subject = DAMAGE[what]
    change(copy, sql)
    answer = check(copy)
    assert any(one["code"] == code and subject in one["subject"] for one in answer["findings"]), answer


def test_a_tensor_digest_that_is_right(copy):
    data = some_bytes(100)
    right = "sha256:" + hashlib.sha256(data[4:28]).hexdigest()
    change(copy, "INSERT INTO tensor_digests SELECT key, 4, 'float32', '[2,3]', ? FROM blobs WHERE size = 100", right)
    assert is_clean(copy)["tensors"] == 1


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_damaged_files_of_blobs_are_named(copy, damage):
    path = next(path for path in (copy / "blobs").rglob("*") if path.is_file())
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flipped" else data[:-1])
    answer = check(copy)
    assert [(one["code"], one["subject"]) for one in answer["findings"]] == [("blob-damaged", f"blob sha256:{path.name}")]
    assert "foldback upload" in answer["findings"][0]["cure"]


@pytest.mark.long
def test_every_damaged_page_is_noticed(copy, filled):
    """Every page of the database is overwritten, one at a time."""
    path = copy / "foldback.sqlite"
    whole = path.read_bytes()
    pages = len(whole) // 4096
    unnoticed = []
    for page in range(pages):
        damaged = bytearray(whole)
        damaged[page * 4096 : (page + 1) * 4096] = some_bytes(4096, page)
        path.write_bytes(damaged)
        done = subprocess.run([binary(), "db", "check", "--data", copy, "--json"], capture_output=True, text=True, timeout=600)
        if done.returncode == 0:
            unnoticed.append(page)
        assert done.returncode in (0, 1), (page, done)
    assert unnoticed == []


# ---- backup ------------------------------------------------------------------------------------------------------------------


def test_a_backup_is_a_data_folder(filled, tmp_path, new_service):
    data, found = filled
    status, out, err = db(data, "backup", tmp_path / "backup", "--json")
    assert status == 0, err
    told = json.loads(out)
    assert told["folder"] == str(tmp_path / "backup") and told["blobs"] == 2 and told["files"] == 1 and told["damaged"] == 0
    assert told["runs"] == is_clean(data)["runs"] == is_clean(tmp_path / "backup")["runs"]
    assert not (tmp_path / "backup.partial").exists()
    assert oct((tmp_path / "backup" / "foldback.sqlite").stat().st_mode & 0o777) == "0o600"
    verify(new_service(data=tmp_path / "backup"), found)


def test_linked_or_copied(filled, tmp_path):
    data = filled[0]
    assert db(data, "backup", tmp_path / "linked")[0] == 0
    assert db(data, "backup", tmp_path / "copied", "--copy")[0] == 0
    original = next(path for path in (data / "blobs").rglob("*") if path.is_file())
    inside = original.relative_to(data)
    if os.stat(data).st_dev == os.stat(tmp_path).st_dev:
        assert (tmp_path / "linked" / inside).samefile(original)
    assert not (tmp_path / "copied" / inside).samefile(original)
    assert (tmp_path / "copied" / inside).read_bytes() == original.read_bytes()


@pytest.mark.heavy
def test_while_a_service_writes(service, tmp_path):
    """Every backup that is taken meanwhile is whole, has all that was acknowledged before it began, and the service is fine."""
    stopped, failures, told = threading.Event(), [], []

    def write(client):
        try:
            i = 0
            while not stopped.is_set():
                told.append(optimize(service, branches(2, f"{client} {i}"), ["MergeLinears"])["id"])
                if i % 5 == 0:
                    digest = stored(service, some_bytes(INLINE + 10, f"{client} {i}"))
                    if i % 2:
                        service.post("/v1/graphs", graph_of([digest], f"blob {client} {i}"))
                if i % 7 == 0:
                    collect(service)
                i += 1
        except Exception as failure:
            failures.append(failure)

    clients = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for client in clients:
        client.start()
    try:
        for i in range(5):
            before = list(told)
            status, out, err = db(service.data, "backup", tmp_path / f"backup{i}", "--json")
            assert status == 0, err
            assert is_clean(tmp_path / f"backup{i}")["runs"] == json.loads(out)["runs"] >= len(before)
            connection = sqlite3.connect(tmp_path / f"backup{i}" / "foldback.sqlite")
            kept = {row[0] for row in connection.execute("SELECT id FROM runs")}
            connection.close()
            assert kept >= set(before)
    finally:
        stopped.set()
        for client in clients:
            client.join()
    assert not failures, failures
    assert service.stop() == 0
    assert is_clean(service.data)["runs"] == len(told)


def test_after_a_crash(service, tmp_path):
    """What is only in the log is in the backup, and the log stays where it is."""
    run = optimize(service, branches(2), ["MergeLinears"])
    service.kill()
    log = service.data / "foldback.sqlite-wal"
    size = log.stat().st_size
    assert size > 0
    assert db(service.data, "backup", tmp_path / "backup")[0] == 0
    assert log.stat().st_size == size
    assert is_clean(tmp_path / "backup")["runs"] == 1
    service.start()
    assert service.get(f"/v1/runs/{run['id']}").json() == run


def test_where_something_is_already(filled, tmp_path):
    (tmp_path / "empty").mkdir()
    assert db(filled[0], "backup", tmp_path / "empty")[0] == 0
    for place in (tmp_path / "empty", filled[0]):
        status, _, err = db(filled[0], "backup", place)
        assert status == 1 and "is there already" in err
    (tmp_path / "next.partial").mkdir()
    (tmp_path / "next.partial" / "mine").write_text("x")
    status, _, err = db(filled[0], "backup", tmp_path / "next")
    assert status == 1 and "in the way" in err and (tmp_path / "next.partial" / "mine").exists()
    status, _, err = db(tmp_path / "nothing", "backup", tmp_path / "other")
    assert status == 1 and "there is no" in err and not (tmp_path / "other").exists()


def test_what_an_interrupted_backup_left(filled, tmp_path):
    partial = tmp_path / "backup.partial"
    (partial / "blobs").mkdir(parents=True)
    (partial / "lock").touch()
    (partial / "foldback.sqlite").write_bytes(b"half")
    assert db(filled[0], "backup", tmp_path / "backup")[0] == 0
    assert not partial.exists() and is_clean(tmp_path / "backup")


def test_of_a_damaged_store(copy, tmp_path):
    next(path for path in (copy / "blobs").rglob("*") if path.is_file()).unlink()
    status, _, err = db(copy, "backup", tmp_path / "blob")
    assert status == 1 and "1 blobs are also damaged" in err
    assert [one["code"] for one in check(tmp_path / "blob")["findings"]] == ["blob-damaged"]
    path = copy / "foldback.sqlite"
    whole = bytearray(path.read_bytes())
    whole[4096 * 2 : 4096 * 3] = some_bytes(4096)
    path.write_bytes(whole)
    status, _, err = db(copy, "backup", tmp_path / "page")
    assert status == 1 and "damaged" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blob", "data"]


def test_into_itself(filled, tmp_path):
    data = filled[0]
    before = sorted(data.rglob("*"))
    (tmp_path / "link").symlink_to(data)
    for place in (data / "backup", data / "blobs" / "backup", tmp_path / "link" / "backup", data / "backup" / ""):
        status, _, err = db(data, "backup", place)
        assert status == 1 and "within the data folder" in err, (place, err)
    done = subprocess.run([binary(), "db", "backup", "backup", "--data", "."], cwd=data, capture_output=True, text=True)
    assert done.returncode == 1 and "within the data folder" in done.stderr
    assert sorted(data.rglob("*")) == before
    assert db(data, "backup", data.with_name(data.name + "-copy"))[0] == 0  # its name begins as the folder's does


# ---- a disk that is read-only ------------------------------------------------------------------------------------------------


@pytest.fixture
def read_only(tmp_path):
    """Shows a folder at a place where nothing can be written."""
    places = []

    def show(folder):
        place = tmp_path / f"read-only-{len(places)}"
        place.mkdir()
        if subprocess.run(["mount", "--bind", folder, place], capture_output=True).returncode:
            pytest.skip("no file system can be mounted")
        places.append(place)
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        return place

    yield show
    for place in places:
        subprocess.run(["umount", "-l", place], check=True)


def test_read_only_and_stopped(copy, filled, tmp_path, read_only, new_service):
    (copy / "foldback.sqlite-wal").unlink(missing_ok=True)
    (copy / "foldback.sqlite-shm").unlink(missing_ok=True)
    place, before = read_only(copy), sorted(path.name for path in copy.rglob("*"))
    assert is_clean(place) == is_clean(filled[0])
    assert db(place, "backup", tmp_path / "backup")[0] == 0
    verify(new_service(data=tmp_path / "backup"), filled[1])
    assert sorted(path.name for path in copy.rglob("*")) == before
    next(path for path in (copy / "blobs").rglob("*") if path.is_file()).unlink()
    assert [one["code"] for one in check(place)["findings"]] == ["blob-damaged"]


def test_read_only_after_a_crash(service, tmp_path, read_only):
    """With its index the log is read; without, whatever is in the database alone would be old."""
    run = optimize(service, branches(2), ["MergeLinears"])
    service.kill()
    place = read_only(service.data)
    log, index = service.data / "foldback.sqlite-wal", service.data / "foldback.sqlite-shm"
    whole = log.read_bytes()
    assert whole and is_clean(place)["runs"] == 1
    assert db(place, "backup", tmp_path / "backup")[0] == 0 and is_clean(tmp_path / "backup")["runs"] == 1
    index.unlink()
    for words in (["check"], ["backup", tmp_path / "other"]):
        status, _, err = db(place, *words)
        assert status == 1 and "log" in err and "last" in err, err
    assert not (tmp_path / "other").exists() and log.read_bytes() == whole
    service.start()
    assert service.get(f"/v1/runs/{run['id']}").json() == run


def test_read_only_while_a_service_writes(service, tmp_path, read_only):
    place = read_only(service.data)
    for runs in (1, 2):
        optimize(service, branches(2, f"{runs}"), ["MergeLinears"])
        assert db(place, "backup", tmp_path / f"{runs}")[0] == 0 and is_clean(tmp_path / f"{runs}")["runs"] == runs
    status, _, err = db(place, "check")
    assert status == 3 and "held" in err


def test_read_only_and_of_an_earlier_schema(copy, read_only):
    connection = sqlite3.connect(copy / "foldback.sqlite")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA user_version = 3")
    connection.commit()
    connection.close()
    status, _, err = db(read_only(copy), "check")
    assert status == 1 and "schema 3" in err and "cannot be written" in err


# ---- restore -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def backup(filled, tmp_path):
    assert db(filled[0], "backup", tmp_path / "backup")[0] == 0
    return tmp_path / "backup"


def test_there_and_back(backup, filled, tmp_path, new_service):
    for place in ("new", "empty"):
        if place == "empty":
            (tmp_path / place).mkdir()
        status, _, err = db(tmp_path / place, "restore", backup)
        assert status == 0 and "before" not in err, err
        assert not list(tmp_path.glob(f"{place}.*"))
    assert not (tmp_path / "new" / "foldback.sqlite").samefile(backup / "foldback.sqlite")
    original = next(path for path in (backup / "blobs").rglob("*") if path.is_file())
    assert not (tmp_path / "new" / original.relative_to(backup)).samefile(original)
    verify(new_service(data=tmp_path / "new"), filled[1])
    is_clean(backup)


def test_a_folder_is_replaced_only_by_force(backup, filled, tmp_path, new_service):
    service = new_service(data=tmp_path / "data")
    run = optimize(service, branches(5, "newer"), ["MergeLinears"])
    status, _, err = db(service.data, "restore", backup, "--force")
    assert status == 3 and "held by another process" in err
    service.stop()
    status, _, err = db(service.data, "restore", backup)
    assert status == 1 and "--force" in err and not list(tmp_path.glob("data.restoring*"))
    status, out, err = db(service.data, "restore", backup, "--force")
    assert status == 0 and ".before-restore-" in err, err
    (aside,) = tmp_path.glob("data.before-restore-*")
    service.start()
    assert service.get(f"/v1/runs/{run['id']}").status == 404
    verify(service, filled[1])
    old = new_service(data=aside)
    assert old.get(f"/v1/runs/{run['id']}").json() == run


def test_a_damaged_backup_is_not_restored(backup, tmp_path):
    change(backup, "UPDATE graphs SET name = 'other' WHERE key = 1")
    status, out, err = db(tmp_path / "data", "restore", backup)
    assert status == 1 and out == "" and "graph-rows-wrong" in err and "nothing was restored" in err
    assert not (tmp_path / "data").exists() and not (tmp_path / "data.restoring").exists()
    assert db(tmp_path / "data", "restore", backup, "--unchecked")[0] == 0
    assert len(check(tmp_path / "data")["findings"]) == 1


def test_what_is_no_backup(tmp_path):
    (tmp_path / "folder").mkdir()
    for place in ("folder", "nothing"):
        status, _, err = db(tmp_path / "data", "restore", tmp_path / place)
        assert status == 1 and "there is no store" in err
    sqlite3.connect(tmp_path / "folder" / "foldback.sqlite").execute("CREATE TABLE mine (x)").connection.close()
    status, _, err = db(tmp_path / "data", "restore", tmp_path / "folder")
    assert status == 1 and "not one of foldback" in err and not list(tmp_path.glob("data*"))


def test_a_restore_leaves_the_backup_alone(backup, tmp_path):
    """A backup needs no writing to be read."""
    names = sorted(path.name for path in backup.iterdir())
    assert db(tmp_path / "data", "restore", backup)[0] == 0
    assert sorted(path.name for path in backup.iterdir()) == names == ["blobs", "foldback.sqlite", "lock", "uploads"]


def test_a_backup_is_not_restored_to_itself(backup):
    status, _, err = db(backup, "restore", backup, "--force")
    assert status == 1 and "is the backup itself" in err


def test_wrong_usage(tmp_path):
    for words in (["mend"], ["check", "x"], ["backup"], ["restore"]):
        assert db(tmp_path / "data", *words)[0] == 2
