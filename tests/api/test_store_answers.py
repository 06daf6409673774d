"""What the service says when its data folder is full, read-only, locked, damaged or not a folder: an answer for each, nothing
acknowledged is lost, and it goes on when the trouble is over."""

import os
import sqlite3
import subprocess
import threading

import buckets
import pytest
from blobs import some_bytes
from conftest import binary, of_a_file
from documents import branches
from full_store import DOUBLE, check, copy, fill, filled, is_clean, verify  # noqa: F401
from test_blob_faults import cramped, small_disk  # noqa: F401
from test_blob_faults import fill as fill_disk
from test_http import is_problem
from test_runs import optimize


def refused(data, *options, status=1):
    """Why the service does not start: what it says last."""
    done = subprocess.run([binary(), "serve", "--listen", "127.0.0.1:0", "--data", data, *options],
                          capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == status and done.stdout == "", done
    lines = [line for line in done.stderr.splitlines() if "sandbox" not in line]
    assert len(lines) == 1 and lines[0].startswith("foldback: "), done
    return lines[0]


# ---- full --------------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_full_disk(cramped, small_disk):
    run = optimize(cramped, branches(4), ["MergeLinears"])
    filler = fill_disk(small_disk)
    requests = [
        lambda i: cramped.post("/v1/graphs", branches(200, f"full {i}")),
        lambda i: cramped.post("/v1/optimize", {"graph": branches(200, f"full run {i}"), "passes": ["MergeLinears"]}),
        lambda i: cramped.request("PUT", f"/v1/models/m{i}/versions/1", {"graph": branches(200, f"full version {i}")}),
    ]
    told = []
    for i in range(60):
        for request in requests:
            answer = request(i)
            if answer.status == 507:
                is_problem(answer, 507, "disk-full")
            else:
                assert answer.status == 201
                told.append(answer.headers["location"])
    assert len(told) < 180
    assert ("foldback: the disk is full" in cramped.log()
            and cramped.log().count("the disk is full") < 10), "it says so, now and then"
    assert cramped.get(f"/v1/runs/{run['id']}").json() == run
    assert cramped.get("/livez").status == 200
    is_problem(cramped.get("/readyz"), 503, "disk-full")
    filler.unlink()
    assert cramped.get("/readyz").status == 200
    assert all(cramped.get(location).status == 200 for location in told)
    optimize(cramped, branches(200, "room"), ["MergeLinears"])
    cramped.stop()
    is_clean(cramped.data)


# ---- read-only ---------------------------------------------------------------------------------------------------------------


@of_a_file
@pytest.mark.skipif(buckets.IN_USE, reason="restoring reads the bucket, whose credentials it is not given")
def test_a_read_only_disk(small_disk, new_service, tmp_path):
    service = new_service(data=small_disk / "data")
    found = fill(service)
    service.stop()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for data in (small_disk / "data", small_disk / "other"):
        assert "Read-only file system" in refused(data)
    done = subprocess.run([binary(), "db", "restore", small_disk / "data", "--data", tmp_path / "data"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done  # a backup may be on such a disk
    verify(new_service(data=tmp_path / "data"), found)


# ---- locked ------------------------------------------------------------------------------------------------------------------


@of_a_file
def test_another_program_locks_the_database(service):
    run = optimize(service, branches(2), ["MergeLinears"])
    other = sqlite3.connect(service.data / "foldback.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for body in (branches(3), branches(5)):
        answer = service.post("/v1/graphs", body)
        is_problem(answer, 503, "store-busy")
        assert int(answer.headers["retry-after"]) >= 1
    assert service.get(f"/v1/runs/{run['id']}").json() == run
    other.execute("ROLLBACK")
    other.close()
    assert service.post("/v1/graphs", branches(3)).status == 201
    service.stop()
    assert is_clean(service.data)["graphs"] == 3


def test_a_lock_of_a_moment_is_waited_for(service):
    """As long as a reader has the writer's lock while it looks at the log's header again."""
    path = service.data / "foldback.sqlite"
    for i in range(5):
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.05, other.execute, ["ROLLBACK"])
        release.start()
        assert service.post("/v1/graphs", branches(2, f"{i}")).status == 201
        release.join()
        other.close()


def test_held_by_another_service(service):
    assert "held by another process" in refused(service.data, status=3)


# ---- damaged -----------------------------------------------------------------------------------------------------------------


def header(path):
    damaged = bytearray(path.read_bytes())
    damaged[:16] = b"this is no SQLit"
    path.write_bytes(damaged)


def schema_page(path):
    damaged = bytearray(path.read_bytes())
    damaged[100:4096] = some_bytes(3996)
    path.write_bytes(damaged)


def cut(path):
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def empty(path):
    os.truncate(path, 0)


def gone(path):
    path.unlink()


@of_a_file
@pytest.mark.parametrize("damage", [header, schema_page, cut, empty, gone])
def test_a_damaged_database_is_refused(copy, damage):
    """With what is wrong, where, and what to do; and nothing is made in its place."""
    path = copy / "foldback.sqlite"
    damage(path)
    before = path.read_bytes() if path.exists() else None
    for _ in range(2):
        reason = refused(copy)
        assert "damaged" in reason and str(copy) in reason and "db check" in reason and "db restore" in reason
        assert (path.read_bytes() if path.exists() else None) == before
    assert {one["code"] for one in check(copy)["findings"]} == {"database-damaged"}


@of_a_file
def test_a_new_folder_is_no_damaged_one(tmp_path, new_service):
    """What a crash leaves before there was anything."""
    for name, size in (("nothing", None), ("empty", 0)):
        (tmp_path / name).mkdir()
        if size is not None:
            (tmp_path / name / "foldback.sqlite").touch()
        service = new_service(data=tmp_path / name)
        assert service.get("/v1/runs").json() == {"items": []} and service.stop() == 0


@of_a_file
def test_the_file_of_a_new_store(tmp_path, new_service):
    """A start that is killed while it writes the database leaves a part of it; a link to another disk stays one."""
    for name in ("killed", "linked", "disk"):
        (tmp_path / name).mkdir()
    (tmp_path / "killed" / "foldback.sqlite").touch()
    (tmp_path / "killed" / "foldback.sqlite.part").write_bytes(b"SQLite format 3\0")
    (tmp_path / "disk" / "database").touch()
    (tmp_path / "linked" / "foldback.sqlite").symlink_to(tmp_path / "disk" / "database")
    for name in ("killed", "linked"):
        service = new_service("--sandbox", "off", data=tmp_path / name)
        graph = service.post("/v1/graphs", branches(2)).json()["id"]
        assert service.restart().get(f"/v1/graphs/{graph}").status == 200 and service.stop() == 0
        assert not (tmp_path / name / "foldback.sqlite.part").exists()
    assert (tmp_path / "linked" / "foldback.sqlite").is_symlink() and (tmp_path / "disk" / "database").stat().st_size > 4096


@pytest.mark.long
def test_a_page_that_is_found_damaged_later(new_service, tmp_path):
    """Only what is on it cannot be read."""
    service = new_service()
    graphs = [service.post("/v1/graphs", branches(2000, f"large {i}")).json()["id"] for i in range(4)]
    service.stop()
    path = service.data / "foldback.sqlite"
    connection = sqlite3.connect(path)
    document = connection.execute("SELECT document FROM graphs WHERE id = ?", (graphs[1],)).fetchone()[0]
    connection.close()
    damaged = bytearray(path.read_bytes())
    at = damaged.find(document[-200:])
    assert at > 4096 and len(document) > 12000
    damaged[at : at + 200] = bytes(200)
    path.write_bytes(damaged)
    service.start()
    problem = is_problem(service.get(f"/v1/graphs/{graphs[1]}"), 500, "store-corrupt")
    assert "damaged" in problem["detail"]
    is_problem(service.post("/v1/optimize", {"graph": graphs[1], "passes": ["DeepCopy"]}), 500, "store-corrupt")
    for identity in (graphs[0], graphs[2], graphs[3]):
        assert service.get(f"/v1/graphs/{identity}").status == 200
    optimize(service, graphs[0], ["MergeLinears"])
    assert service.get("/readyz").status == 200  # the database itself is whole
    assert service.stop() == 0
    answer = check(service.data)
    assert [(one["code"], one["subject"]) for one in answer["findings"]] == [("graph-damaged", f"graph {graphs[1]}")]


@of_a_file
def test_a_page_of_the_database_that_is_found_damaged_later(new_service):
    """The service says that it is not ready from then on, and serves what it can read."""
    service = new_service()
    graph = service.post("/v1/graphs", branches(3)).json()["id"]
    service.post("/v1/transformations", DOUBLE)
    service.stop()
    path = service.data / "foldback.sqlite"
    connection = sqlite3.connect(path)
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'rules'").fetchone()[0]
    connection.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: 4096 * (page - 1)] + bytes(range(256)) * 16 + whole[4096 * page :])
    service.start()
    assert service.get("/readyz").status == 200
    is_problem(service.get("/v1/transformations"), 500, "store-corrupt")
    for _ in range(2):
        assert "db check" in is_problem(service.get("/readyz"), 503, "store-corrupt")["detail"]
    assert service.get("/livez").status == 200 and service.get(f"/v1/graphs/{graph}").status == 200
    service.stop()
    path.write_bytes(whole)
    service.start()
    assert service.get("/readyz").status == 200 and service.get("/v1/transformations").status == 200


@of_a_file
@pytest.mark.parametrize("part", [0, 10, 40, 70, 99])
def test_a_log_that_was_cut(service, part):
    """What it holds whole is there, in the order in which it was written."""
    service.stop()
    service.start()  # so that the log begins anew
    runs = [optimize(service, branches(2, f"log {i}"), ["MergeLinears"])["id"] for i in range(10)]
    service.kill()
    log = service.data / "foldback.sqlite-wal"
    os.truncate(log, log.stat().st_size * part // 100)
    service.start()
    there = [service.get(f"/v1/runs/{run}").status == 200 for run in runs]
    assert there == sorted(there, reverse=True)
    service.stop()
    assert is_clean(service.data)["runs"] == sum(there)


# ---- folders -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "0.0.0.0", "nowhere:80", "127.0.0.1:99999", "::1:80"])
def test_what_is_no_address(address, tmp_path):
    """It is said to be none, whether there are tokens or not, and no folder is made."""
    for words in ((), ("--insecure-listen",)):
        told = refused(tmp_path / "data", "--listen", address, *words, status=2)
        assert "is not an address to listen on" in told and "token" not in told
    assert not (tmp_path / "data").exists()
    told = refused(tmp_path / "data", "--listen", "0.0.0.0:0", status=2)
    assert "token" in told and not (tmp_path / "data").exists()


def test_what_is_no_data_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "Not a directory" in refused(tmp_path / "file")
    assert "No such file or directory" in refused(tmp_path / "no" / "parent")
    (tmp_path / "theirs").mkdir()
    connection = sqlite3.connect(tmp_path / "theirs" / "foldback.sqlite")
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    assert "not one of foldback" in refused(tmp_path / "theirs")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "foldback.sqlite").mkdir()
    assert "cannot" in refused(tmp_path / "blocked")
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "blobs").write_text("x")
    (tmp_path / "occupied" / "lock").mkdir()
    assert "cannot open" in refused(tmp_path / "occupied")
