"""A store whose rows are in PostgreSQL: what is refused and why, and what happens when the server or the way to it fails."""

import concurrent.futures
import json
import os
import re
import subprocess
import threading
import time

import buckets
import databases
import pytest
from blobs import digest_of, put_blob, some_bytes, stored, wait_until
from cli import CommandLine
from conftest import Service, binary
from documents import branches
from test_http import is_problem
from test_runs import optimize

PASSES = ["ChangeTrueDivToMulByInverse"]
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def server():
    made = databases.new_server()
    yield made
    made.stop()


@pytest.fixture
def database(server, request):
    """The name of an empty one."""
    name = re.sub(r"\W", "_", request.node.name.lower())[:60]
    server.make(name)
    return name


@pytest.fixture
def proxy(server):
    made = databases.Proxy(server)
    yield made
    made.close()


@pytest.fixture
def start(new_service):
    """A service on this URL."""

    def make(url, *options, **more):
        return new_service("--store", url, *options, **more)

    return make


@pytest.fixture
def far(server, database, proxy, start):
    """A service that reaches its server through the proxy, with a password."""
    return start(server.tcp_url(database, proxy.port), environment={"PGPASSWORD": databases.SECRET})


def refuses_to_start(data, *options, status=1, **environment):
    done = subprocess.run([binary(), "serve", "--listen", "127.0.0.1:0", "--data", str(data), *options],
                          capture_output=True, text=True, timeout=600, env={**os.environ, **environment})
    assert done.returncode == status, done
    return done.stderr


def put_graph(service, number):
    answer = service.post("/v1/graphs", branches(1, f"graph{number}"))
    assert answer.status in (200, 201), answer
    return answer.json()["id"]


def counts(server, database, table):
    return int(server.sql(f"SELECT count(*) FROM {table}", database))


# ---- what is refused --------------------------------------------------------------------------------------------------------


def test_what_is_no_store(server, database, tmp_path):
    data = tmp_path / "data"
    assert "is a URL" in refuses_to_start(data, "--store", "mysql://host/name", status=2)
    assert "not a URL" in refuses_to_start(data, "--store", "postgresql://host/name?colour=red", status=2)
    said = refuses_to_start(data, "--store", f"postgresql://{databases.USER}:{databases.SECRET}@127.0.0.1/{database}", status=2)
    assert "PGPASSWORD" in said and databases.SECRET not in said
    server.sql("CREATE TABLE of_another_program (a int)", database)
    assert "not one of foldback" in refuses_to_start(data, "--store", server.url(database))
    server.sql("DROP TABLE of_another_program; CREATE TABLE foldback_schema (version bigint); INSERT INTO foldback_schema "
               "VALUES (999)", database)
    assert "schema 999" in refuses_to_start(data, "--store", server.url(database))
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    assert "LATIN1" in refuses_to_start(data, "--store", server.url("latin"))


def test_wrong_credentials(server, database, tmp_path):
    said = refuses_to_start(tmp_path / "data", "--store", server.tcp_url(database), PGPASSWORD="a-wrong-one")
    assert "password authentication failed" in said and "a-wrong-one" not in said
    assert "does not exist" in refuses_to_start(tmp_path / "data", "--store", server.url("nowhere"))


@pytest.mark.skipif(buckets.IN_USE, reason="several may")
def test_one_process_uses_it(server, database, start, tmp_path):
    first = start(server.url(database))
    assert "another process" in refuses_to_start(tmp_path / "other", "--store", server.url(database), status=3)
    first.kill()
    assert first.start().get("/readyz").status == 200  # at once: the server knows that the other one has gone


@pytest.mark.skipif(buckets.IN_USE, reason="any folder may")
def test_folders_and_stores_belong_together(server, database, start, tmp_path):
    service = start(server.url(database))
    graph, blob = put_graph(service, 1), stored(service, some_bytes(1 << 20))
    service.stop()
    server.make("another")
    assert "names another one" in refuses_to_start(service.data, "--store", server.url("another"))
    assert "another data folder" in refuses_to_start(tmp_path / "new", "--store", server.url(database))
    service.options = []  # the folder knows
    service.start()
    assert service.get(f"/v1/graphs/{graph}").status == 200 and service.get(f"/v1/blobs/{blob}").body == some_bytes(1 << 20)
    service.stop()
    plain = Service(tmp_path / "plain").start()
    plain.stop()
    if not databases.IN_USE:
        assert "foldback.sqlite" in refuses_to_start(plain.data, "--store", server.url(database))


def test_a_first_start_that_was_killed(server, database, start, tmp_path):
    """While it noted in the data folder where the store is."""
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "lock").touch()
    (tmp_path / "data" / "store-at.part").write_text("url postgres")
    service = start(server.url(database), data=tmp_path / "data")
    assert put_graph(service, 0)
    service.stop()
    service.options = []
    assert put_graph(service.start(), 1)


# ---- what the server does ---------------------------------------------------------------------------------------------------


def test_restarts(server, database, start):
    """Connections that broke while nobody used them are not noticed; writes wait for a server that is back soon."""
    service = start(server.url(database))
    first = put_graph(service, 0)
    server.restart()
    assert service.get(f"/v1/graphs/{first}").status == 200 and put_graph(service, 1)
    acknowledged, failed, is_over = [], [], threading.Event()

    def write(thread):
        number = 0
        while not is_over.is_set():
            number += 1
            answer = service.post("/v1/graphs", branches(1, f"t{thread}n{number}"))
            if answer.status == 201:
                acknowledged.append(answer.json()["id"])
            else:
                failed.append((answer.status, answer.json()["code"]))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        time.sleep(0.5)
        server.restart()
    time.sleep(0.5)
    is_over.set()
    for thread in threads:
        thread.join()
    assert set(failed) <= {(503, "store-unavailable")} and len(acknowledged) > 10
    for graph in acknowledged:
        assert service.get(f"/v1/graphs/{graph}").status == 200
    assert counts(server, database, "graphs") >= len(acknowledged) + 2


def test_away(start):
    """/readyz says which side is missing; nothing was lost when it is back."""
    server = databases.new_server()
    service = start(server.url("postgres"))
    kept = put_graph(service, 0)
    server.stop("fast")
    answer = service.get("/readyz")
    is_problem(answer, 503, "store-unavailable")
    assert "database" in answer.json()["detail"] and service.get("/livez").status == 200
    is_problem(service.post("/v1/graphs", branches(1, "none")), 503, "store-unavailable")
    is_problem(service.get(f"/v1/graphs/{kept}"), 503, "store-unavailable")
    server.start()
    deadline = time.monotonic() + 600
    while service.get("/readyz").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert service.get(f"/v1/graphs/{kept}").status == 200 and put_graph(service, 1)
    server.stop()


def test_full_disk(server, database, start):
    service = start(server.url(database))
    kept = put_graph(service, 0)
    server.sql("""CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER fill BEFORE INSERT ON graphs EXECUTE FUNCTION fill()""", database)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: service.post("/v1/graphs", branches(1, f"full{number}")), range(8)))
    for answer in answers:
        is_problem(answer, 507, "disk-full")
    assert service.get(f"/v1/graphs/{kept}").status == 200
    server.sql("DROP FUNCTION fill CASCADE", database)
    assert put_graph(service, 1) and service.get("/readyz").status == 200
    assert counts(server, database, "graphs") == 2


def test_a_write_that_fails_fails_alone(server, database, start):
    """Of writes that are committed together."""
    service = start(server.url(database))
    server.sql("ALTER TABLE graphs ADD CHECK (name <> 'bad')", database)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        names = [f"good{number}" if number % 4 else "bad" for number in range(32)]
        answers = list(pool.map(lambda name: service.post("/v1/graphs", branches(1 + names.index(name) % 3, name)), names))
    for name, answer in zip(names, answers):
        assert answer.status == (500 if name == "bad" else 201), answer
    assert counts(server, database, "graphs") == 24


# ---- a standby takes over ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pair():
    """A server and a standby that streams from it."""
    first = databases.new_server()
    first.make("store")
    standby = databases.new_server(of=first)
    yield first, standby
    for one in (standby, first):
        one.stop()


def url_of_both(first, standby):
    return (f"postgresql://{databases.USER}@/store?host={first.folder},{standby.folder}&port={first.port},{standby.port}&"
            "target_session_attrs=read-write")


def test_failover(pair, start):
    """With synchronous replication nothing that was acknowledged is lost; what was being written is answered as what it is."""
    first, standby = pair
    first.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    first.sql("SELECT pg_reload_conf()")
    service = start(url_of_both(first, standby))
    acknowledged, failed, is_over = [], [], threading.Event()

    def write(thread):
        for number in range(100000):
            if is_over.is_set():
                return
            answer = service.post("/v1/graphs", branches(1, f"t{thread}n{number}"))
            if answer.status == 201:
                acknowledged.append(answer.json()["id"])
            else:
                failed.append((answer.status, answer.json()["code"]))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    first.stop()
    before = len(acknowledged)
    standby.promote()
    deadline = time.monotonic() + 600
    while len(acknowledged) < before + 20:
        assert time.monotonic() < deadline, failed[-3:]
        time.sleep(0.1)
    is_over.set()
    for thread in threads:
        thread.join()
    assert before > 5 and set(failed) <= {(503, "store-unavailable"), (500, "commit-unknown")}, set(failed)
    for graph in acknowledged:
        assert service.get(f"/v1/graphs/{graph}").status == 200
    assert service.get("/readyz").status == 200
    assert len(acknowledged) <= counts(standby, "store", "graphs") <= len(acknowledged) + len(failed)


def test_a_lost_commit_is_not_taken_for_another(pair, start):
    """The standby had not heard of a commit that was not answered, and gives the number of its transaction to another one."""
    first, standby = pair
    proxy = databases.Proxy(first)
    standby_proxy = databases.Proxy(standby)
    url = (f"postgresql://{databases.USER}@127.0.0.1:{proxy.port},127.0.0.1:{standby_proxy.port}/store"
           "?target_session_attrs=read-write")
    service = start(url, environment={"PGPASSWORD": databases.SECRET})
    put_graph(service, 0)
    standby_proxy.is_open = False
    first.sql("SELECT pg_switch_wal()")
    taken = []

    def watch(sent):
        if b"COMMIT" in sent and not taken:
            # It is cut off with what is uncommitted; the server dies, and the standby never hears of it.
            taken.append(int(first.sql("SELECT max(backend_xid::text::bigint) FROM pg_stat_activity WHERE backend_xid IS NOT "
                                       "NULL")))
            standby.stop("fast")
            proxy.close()
            first.stop()
            standby.start()
            standby.promote()
            standby.sql("CREATE TABLE others (a int)", "store")
            while int(standby.sql("INSERT INTO others VALUES (1) RETURNING pg_current_xact_id()", "store")) <= taken[0]:
                pass
            standby_proxy.is_open = True
            return "before"

    proxy.watch = watch
    answer = service.post("/v1/graphs", branches(1, "lost"))
    stored = counts(standby, "store", "graphs WHERE name = 'lost'")
    assert taken and (answer.status, stored) in ((201, 1), (503, 0)), (answer, stored)
    assert (service.post("/v1/graphs", branches(1, "lost")).status in (200, 201)
            and counts(standby, "store", "graphs WHERE name = 'lost'") == 1)
    standby_proxy.close()


# ---- the way to it ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_cut_off_while_committing(server, database, proxy, far, when):
    """A commit that was not answered is looked for: what was done is told as done, what was not is done again; once."""
    source = put_graph(far, 0)
    cuts = []

    def watch(sent):
        if b"COMMIT" in sent and len(cuts) < 3:
            cuts.append(when)
            return when

    for number in range(3):
        cuts.clear()
        cuts.extend([None] * 2)  # one cut
        proxy.watch = watch
        run = optimize(far, source, PASSES, labels={"number": str(number)})
        assert len(cuts) == 3 and far.get(f"/v1/runs/{run['id']}").status == 200
    proxy.watch = lambda sent: None
    assert counts(server, database, "runs") == 3 and counts(server, database, "audit WHERE object LIKE 'run%'") == 3


@pytest.mark.long  # for half a minute the service tries to learn what became of the commit
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_blob_whose_commit_is_unknown(far, proxy, when):
    """Its row may be there, so its file stays: it is whole, or unknown, and can be put again."""
    data = some_bytes(100000, 1)

    def watch(sent):
        if b"COMMIT" in sent and digest_of(data).encode() in sent and proxy.is_open:
            proxy.is_open = False
            return when

    proxy.watch = watch
    answer = put_blob(far, data)
    assert answer.json()["code"] == "commit-unknown", answer
    proxy.watch, proxy.is_open = (lambda sent: None), True
    wait_until(lambda: far.get("/readyz").status == 200)
    path = f"/v1/blobs/{digest_of(data)}"
    found = far.get(path)
    assert (found.status, found.body == data) == (200, True) if when == "after" else found.status == 404, found.status
    assert put_blob(far, data).status in (200, 201) and far.get(path).body == data


def test_cut_off_at_any_time(server, database, proxy, far):
    """With cuts all the time every request is answered, and what was acknowledged is there, once."""
    source, made, is_over = put_graph(far, 0), [], threading.Event()

    def write(thread):
        for number in range(25):
            answer = far.post("/v1/optimize", {"graph": source, "passes": PASSES},
                              headers={"Idempotency-Key": f"{thread}-{number}"})
            for _ in range(100):
                if answer.status == 201:
                    break
                assert answer.status in (409, 503), answer
                time.sleep(0.2)
                answer = far.post("/v1/optimize", {"graph": source, "passes": PASSES},
                                  headers={"Idempotency-Key": f"{thread}-{number}"})
            assert answer.status == 201, answer
            made.append(answer.json()["id"])

    def cut():
        while not is_over.wait(0.7):
            proxy.cut()

    cutter = threading.Thread(target=cut)
    cutter.start()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    is_over.set()
    cutter.join()
    assert len(set(made)) == 100 == counts(server, database, "runs")
    for run in made[::10]:
        assert far.get(f"/v1/runs/{run}").status == 200


def test_a_crash_of_the_server_gives_numbers_again(database, server, proxy, far):
    """The server dies before it gets the COMMIT. What it had not written down it forgets, and another transaction gets its
    number."""
    put_graph(far, 0)
    taken = []

    def watch(sent):
        if b"COMMIT" in sent and not taken:
            taken.append(int(server.sql("SELECT max(backend_xid::text::bigint) FROM pg_stat_activity WHERE backend_xid IS NOT "
                                        "NULL")))
            proxy.is_open = False
            server.restart()
            server.sql("CREATE TABLE others (a int)", database)
            while int(server.sql("INSERT INTO others VALUES (1) RETURNING pg_current_xact_id()", database)) <= taken[0]:
                pass
            proxy.is_open = True
            return "before"

    proxy.watch = watch
    answer = far.post("/v1/graphs", branches(1, "lost"))
    stored = counts(server, database, "graphs WHERE name = 'lost'")
    assert taken and (answer.status, stored) in ((201, 1), (503, 0)), (answer, stored)
    assert (far.post("/v1/graphs", branches(1, "lost")).status in (200, 201)
            and counts(server, database, "graphs WHERE name = 'lost'") == 1)


def test_nothing_secret_is_told(server, database, proxy, far):
    proxy.is_open = False
    proxy.cut()
    told = far.get("/readyz").body.decode() + far.log()
    assert "database" in told and databases.SECRET not in told
    assert databases.SECRET not in (far.data / "store-at").read_text()


# ---- looked through ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(buckets.IN_USE, reason="the command is not given the bucket's credentials")
def test_check(server, database, start):
    service = start(server.url(database))
    source = put_graph(service, 0)
    optimize(service, source, PASSES)
    stored(service, some_bytes(1 << 20))
    service.stop()
    foldback = CommandLine(service.data, "--data", service.data)
    found = foldback("db", "check", "--json").json()
    assert found["ok"] and found["graphs"] == 2 and found["replayed"] == 1 and found["blobs"] == 1
    server.sql("UPDATE graphs SET structure = 'sha256:' WHERE key = 1", database)
    assert [one["code"] for one in json.loads(foldback("db", "check", "--json").out)["findings"]] == ["graph-rows-wrong"]


def test_backups_are_the_servers(server, database, start, tmp_path):
    service = start(server.url(database))
    said = CommandLine(tmp_path, "--data", service.data)("db", "backup", tmp_path / "copy")
    assert said.status == 1 and "pg_dump" in said.err
