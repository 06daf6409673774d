"""foldback db copy: a whole store goes from SQLite to PostgreSQL, from files to a bucket, and back; with every id and key."""

import contextlib
import hashlib
import os
import random
import re
import signal
import sqlite3
import subprocess

import buckets
import databases
import pytest
from blobs import INLINE, some_bytes, stored
from cli import CommandLine, environment
from conftest import Service, binary, without_sandbox
from documents import branches
from full_store import fill, is_clean, verify
from test_migrations import VERSIONS, lay_out
from test_onnx import contents_of, send_set

HAS_S3 = "FOLDBACK_S3_SERVERS" in os.environ
SIDES = ["folder", "bucket"] if HAS_S3 else ["folder"]
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module", autouse=True)
def plain():
    """Services here have their store where the test says, whatever STORE and BLOBS are."""
    was = databases.IN_USE, buckets.IN_USE
    databases.IN_USE = buckets.IN_USE = False
    yield
    databases.IN_USE, buckets.IN_USE = was


@pytest.fixture(scope="module")
def postgres():
    made = databases.new_server()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    server = buckets.Server(tmp_path_factory.mktemp("s3") / "root").start() if HAS_S3 else None
    yield server
    if server:
        server.stop()


@pytest.fixture
def name(request):
    return re.sub(r"\W", "_", request.node.name.lower())[:60]


@pytest.fixture
def url(postgres, name):
    """Of an empty database."""
    return postgres.make(name)


@pytest.fixture(scope="module")
def filled(plain, tmp_path_factory):
    """A data folder with some of everything that nobody has open, and what is in it."""
    folder = tmp_path_factory.mktemp("filled") / "data"
    service = Service(folder).start()
    found = fill(service)
    model = send_set(service, "model.onnx", contents_of("external-two-files"))
    assert model.status == 201, model.body
    found["onnx"] = model.json()["id"]
    newest = service.post("/v1/graphs", branches(7, "to go")).json()["id"]
    assert service.delete(f"/v1/graphs/{newest}").status == 204  # its key is never given again
    found["blobs"] += [stored(service, some_bytes(INLINE + number)) for number in range(2, 6)] + [stored(service, b"")]
    assert service.stop() == 0
    return folder, found


def holds_all(service, found):
    """With the ONNX model and the files beside it, byte for byte."""
    verify(service, found)
    listed = service.get(f"/v1/graphs/{found['onnx']}/archive/files").json()["files"]
    contents = contents_of("external-two-files")
    assert listed.keys() == contents.keys()
    assert {name: service.get(f"/v1/graphs/{found['onnx']}/archive/files/{name}").body for name in listed} == contents


@pytest.fixture
def copy(tmp_path):
    """foldback db copy; what it printed."""

    def run(*words, status=0):
        done = CommandLine(tmp_path).run("db", "copy", "--json", *words, **buckets.CREDENTIALS)
        assert done.status == status, done
        return done.json() if status == 0 else done.err

    return run


def fingerprint(folder):
    """Of all that the folder holds, but for what SQLite keeps while somebody reads."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal"))}


def rows(folder):
    """All rows of SQLite's file that are the store's, and the last keys that were given."""
    kept = {"notes", "replicas", "requests", "claims"}
    with contextlib.closing(sqlite3.connect(folder / "foldback.sqlite")) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        found = {one: sorted(database.execute(f"SELECT * FROM {one}"), key=repr) for one in tables if one not in kept}
    found["sqlite_sequence"] = [one for one in found["sqlite_sequence"] if one[1] and one[0] not in kept]
    return found


def options_of(side, s3, name):
    return buckets.options(s3.url, name) if side == "bucket" else []


@pytest.mark.parametrize("side", SIDES)
def test_there_and_back(side, filled, copy, url, s3, name, tmp_path, new_service):
    source, found = filled
    before = fingerprint(source)
    place = options_of(side, s3, name)
    told = copy("--from", source, "--to", url, "--data", tmp_path / "there", *place)
    assert told["rows"] == told["copied_rows"] > 100 and told["large_blobs"] == told["copied_large_blobs"] == 5
    assert fingerprint(source) == before
    back = tmp_path / "back"
    assert copy("--from", tmp_path / "there", "--to", back)["rows"] == told["rows"]
    assert rows(back) == rows(source)
    assert {path for path in fingerprint(back)
            if path.startswith("blobs/")} == {path for path in before if path.startswith("blobs/")}
    is_clean(back)
    holds_all(new_service(data=back), found)
    service = new_service(*place, data=tmp_path / "there", environment=buckets.CREDENTIALS)
    holds_all(service, found)
    assert service.stop() == 0


@pytest.mark.skipif(not HAS_S3, reason="make test-postgres BLOBS=s3 has servers for this")
def test_without_data_folders(filled, copy, url, s3, name, tmp_path, new_service, postgres):
    """As docs/scale.md has it; and from one database to another, from one bucket to another."""
    source, found = filled
    copy("--from", source, "--to", url, *buckets.options(s3.url, name))
    other = postgres.make(name + "_2")
    assert copy("--from", url, "--to", other, *buckets.options(s3.url, name + "/2"))["large_blobs"] == 5
    assert not list(tmp_path.iterdir())
    service = new_service("--store", other, *buckets.options(s3.url, name + "/2"), environment=buckets.CREDENTIALS)
    holds_all(service, found)
    assert service.stop() == 0
    copy("--from", other, "--to", tmp_path / "back", *buckets.options(s3.url, name + "/3"))
    assert (tmp_path / "back" / "blobs-at").exists() and not list((tmp_path / "back" / "blobs").iterdir())
    assert "another store has its blobs" in copy("--from", source, "--to", postgres.make(name + "_3"),
                                                 *buckets.options(s3.url, name), status=1)


@pytest.mark.sampled
@pytest.mark.parametrize("version", VERSIONS)
def test_every_earlier_schema(version, copy, url, tmp_path, new_service):
    source = tmp_path / "source"
    found = lay_out(version, source)
    before = fingerprint(source)
    copy("--from", source, "--to", url, "--data", tmp_path / "there")
    assert fingerprint(source) == before and not list(tmp_path.glob("*.source.sqlite*"))
    verify(new_service(data=tmp_path / "there"), found)


def test_keys_go_on(filled, copy, url, postgres, name, tmp_path, new_service):
    """New rows get keys that no row ever had, so page tokens and numbers of events keep their meaning."""
    source, _ = filled
    copy("--from", source, "--to", url, "--data", tmp_path / "there")
    with contextlib.closing(sqlite3.connect(source / "foldback.sqlite")) as database:
        given = dict(database.execute("SELECT name, seq FROM sqlite_sequence"))
        highest = database.execute("SELECT max(key) FROM graphs").fetchone()[0]
    assert given["graphs"] > highest
    service = new_service(data=tmp_path / "there")
    assert service.post("/v1/graphs", branches(8, "new")).status == 201
    assert int(postgres.sql("SELECT max(key) FROM graphs", name)) == given["graphs"] + 1
    assert int(postgres.sql("SELECT max(number) FROM audit", name)) == given["audit"] + 1


def test_what_is_refused(filled, copy, url, postgres, name, tmp_path, new_service):
    source, _ = filled
    assert "need a place" in copy("--from", source, "--to", url, status=2)
    assert "needs --from and --to" in copy("--from", source, status=2)
    assert "already" in copy("--from", source, "--to", tmp_path / "a", "--data", tmp_path / "b", status=2)
    assert "no store" in copy("--from", tmp_path, "--to", tmp_path / "new", status=1) and not (tmp_path / "new").exists()
    assert "stop it first" in copy("--from", source, "--to", source, status=3)
    service = new_service(data=tmp_path / "used")
    assert "stop it first" in copy("--from", tmp_path / "used", "--to", url, "--data", tmp_path / "x", status=3)
    assert "stop it first" in copy("--from", source, "--to", tmp_path / "used", status=3)
    service.post("/v1/graphs", branches(1))
    service.stop()
    before = fingerprint(tmp_path / "used")
    assert "data of its own" in copy("--from", source, "--to", tmp_path / "used", status=1)
    assert fingerprint(tmp_path / "used") == before
    other = postgres.make(name + "_2")
    service = new_service("--store", other, data=tmp_path / "far")
    assert "stop it first" in copy("--from", source, "--to", other, "--data", tmp_path / "z", status=3)
    service.post("/v1/graphs", branches(1))
    service.stop()
    assert "data of its own" in copy("--from", source, "--to", other, "--data", tmp_path / "y", status=1)
    (tmp_path / "not-ours").mkdir()
    (tmp_path / "not-ours" / "file").write_text("x")
    assert "no store" in copy("--from", source, "--to", tmp_path / "not-ours", status=1)


@pytest.fixture(scope="module")
def large(plain, tmp_path_factory):
    """More rows and blobs than one step copies."""
    folder = tmp_path_factory.mktemp("large") / "data"
    service = Service(folder).start()
    found = fill(service)
    for number in range(60):
        assert service.post("/v1/optimize",
                            {"graph": branches(1 + number % 5, f"n{number}"), "passes": ["MergeLinears"]}).status == 201
    found["blobs"] += [stored(service, some_bytes((1 << 20) + number)) for number in range(12)]
    assert service.stop() == 0
    return folder, found


def opened(folder):
    """What a service says first of a store."""
    words = [binary(), "serve", "--listen", "127.0.0.1:0", "--data", folder]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment(**buckets.CREDENTIALS)) as process:
        said = next((line for line in process.stdout if without_sandbox(line)), "")
        process.terminate()
        return said + process.stdout.read()


def test_no_temporary_folder_is_made_that_nobody_needs(filled, url, tmp_path):
    """One would stay when the copy is killed."""
    source, _ = filled
    for words in (["--to", tmp_path / "there"], ["--to", url, "--data", tmp_path / "here"]):
        variables = {**buckets.CREDENTIALS, "TMPDIR": str(tmp_path / "missing")}
        done = CommandLine(tmp_path).run("db", "copy", "--json", "--from", source, *words, **variables)
        assert done.status == 0, done
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = CommandLine(tmp_path).run("db", "copy", "--from", url, "--to", tmp_path / "back", TMPDIR=str(temporary))
    assert not list(temporary.iterdir()), done


@pytest.mark.parametrize("side", SIDES)
def test_killed_and_resumed(side, large, copy, url, s3, name, tmp_path, new_service):
    """kill -9 at random moments: nothing opens what is there until the copy is complete, and then it is whole."""
    source, found = large
    before = fingerprint(source)
    words = ["--from", source, "--to", url, "--data", tmp_path / "there", *options_of(side, s3, name)]
    chance, kills, seen = random.Random(7), 0, []
    for turn in range(40):
        process = subprocess.Popen([str(word) for word in (binary(), "db", "copy", "--json", *words)],
                                   stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, env=environment(**buckets.CREDENTIALS))
        try:
            _, said = process.communicate(timeout=chance.uniform(0.02, 0.05 + 0.02 * turn))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            _, said = process.communicate()
            kills += 1
        seen.append(process.returncode)
        if process.returncode == 0 or "data of its own" in said:  # the one before had just ended
            seen[-1] = 0
            break
        assert process.returncode == -signal.SIGKILL, said
        if turn % 4 == 3 and (tmp_path / "there" / "store-at").exists():
            said = opened(tmp_path / "there")
            if said.startswith("listening on"):  # killed between its end and its answer
                seen[-1] = 0
                break
            assert "unfinished copy" in said or "another process" in said, said
    assert kills > 3, seen
    if seen[-1] != 0:
        copy(*words)
    assert fingerprint(source) == before
    copy("--from", tmp_path / "there", "--to", tmp_path / "back")
    assert rows(tmp_path / "back") == rows(source)
    verify(new_service(data=tmp_path / "there", environment=buckets.CREDENTIALS), found)


def break_off(postgres, name, url, tmp_path):
    """A trigger in the target breaks the copy off at the table of runs."""
    Service(tmp_path / "made", "--store", url).start().stop()  # the tables
    postgres.sql("""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON runs EXECUTE FUNCTION refuse()""", name)


def test_resumed_in_the_middle(filled, copy, url, postgres, name, tmp_path):
    source, _ = filled
    there = tmp_path / "made"
    break_off(postgres, name, url, tmp_path)
    words = ["--from", source, "--to", url, "--data", there]
    assert "not now" in copy(*words, status=1)
    held = int(postgres.sql("SELECT count(*) FROM graphs", name))
    assert held > 5
    other = tmp_path / "other"
    Service(other).start().stop()
    assert f"unfinished copy of {source}" in copy("--from", other, "--to", url, "--data", there, status=1)
    assert "unfinished copy" in copy("--from", there, "--to", tmp_path / "x", status=1)
    postgres.sql("DROP FUNCTION refuse CASCADE", name)
    told = copy(*words)
    assert told["copied_large_blobs"] == 0 and 0 < told["copied_rows"] <= told["rows"] - held
    assert copy(*words, status=1)  # it is a store now, with data of its own


def test_a_source_that_changed(filled, copy, url, postgres, name, tmp_path):
    source = tmp_path / "source"
    subprocess.run(["cp", "-a", filled[0], source], check=True)
    break_off(postgres, name, url, tmp_path)
    words = ["--from", source, "--to", url, "--data", tmp_path / "made"]
    assert "not now" in copy(*words, status=1)
    postgres.sql("DROP FUNCTION refuse CASCADE", name)
    with contextlib.closing(sqlite3.connect(source / "foldback.sqlite")) as database, database:
        database.execute("UPDATE graphs SET name = 'other' WHERE key = 3")
    said = copy(*words, status=1)
    assert "differs from its source in the table graphs" in said and "key 3" in said
    said = CommandLine(tmp_path).run("serve", "--listen", "127.0.0.1:0", "--data", tmp_path / "made")
    assert said.status == 1 and "unfinished copy" in said.err


def test_damaged_blobs_are_not_copied(filled, copy, url, tmp_path):
    source = tmp_path / "source"
    subprocess.run(["cp", "-a", filled[0], source], check=True)
    victim = next(path for path in (source / "blobs").rglob("*") if path.is_file())
    kept = victim.read_bytes()
    victim.write_bytes(kept[:-1] + b"?")
    words = ["--from", source, "--to", url, "--data", tmp_path / "there"]
    said = copy(*words, status=1)
    assert "other bytes" in said and victim.name in said
    victim.unlink()
    assert "missing" in copy(*words, status=1)
    victim.write_bytes(kept)
    assert copy(*words)["large_blobs"] == 5
    again = next(path for path in (tmp_path / "there" / "blobs").rglob("*") if path.is_file())
    assert again.stat().st_size > INLINE
