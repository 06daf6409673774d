"""foldback doctor: what is wrong with a machine, a store or a service, and what to do; nothing is changed by asking."""

import http.server
import json
import os
import pathlib
import resource
import sqlite3
import subprocess
import threading

import databases
import pytest
from cli import CommandLine, environment
from conftest import ROOT, binary, is_sanitized, of_a_file
from documents import branches
from test_blob_faults import fill as fill_disk
from test_blob_faults import small_disk  # noqa: F401
from test_db import read_only  # noqa: F401
from test_migrations import lay_out, user_version
from test_runs import optimize

TOY = ROOT / "tests" / "fixtures" / "toy" / "graph.json"
SECTIONS = ["versions", "limits", "disk", "store", "clock", "configuration"]


def doctor(*words, prepare=None, **variables):
    """Exit status, and what was said."""
    done = subprocess.run(
        [binary(), "doctor", *map(str, words)], capture_output=True, text=True, timeout=600, preexec_fn=prepare,
        env=environment(**variables)
    )
    assert done.stderr == "" or "--server" in words, done.stderr
    answer = json.loads(done.stdout)
    assert (done.returncode == (not answer["ok"]) and answer["ok"]
            != any(one["severity"] == "fault" for one in answer["findings"]))
    for one in answer["findings"]:
        assert one["subject"] in answer["facts"] and all(one.values()), one
    return answer


def codes(answer, severity=None):
    return {one["code"] for one in answer["findings"] if severity in (None, one["severity"])}


@pytest.fixture
def stopped(service):
    """The folder of a service that stored something, and has stopped."""
    optimize(service, branches(4), ["MergeLinears"])
    assert service.stop() == 0
    return service.data


def files_of(folder):
    """Without an empty log and its index, which SQLite makes for whoever reads."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "foldback.sqlite-shm"
            and (path.name != "foldback.sqlite-wal" or path.stat().st_size)}


# ---- a data folder -----------------------------------------------------------------------------------------------------------


@of_a_file
def test_nothing_is_wrong(stopped):
    before = files_of(stopped)
    answer = doctor("--data", stopped)
    assert answer["ok"] and codes(answer) <= {"no-backup", "disk-low", "not-on-disk", "not-on-a-volume", "little-memory"}
    assert list(answer["facts"]) == SECTIONS and files_of(stopped) == before
    version = subprocess.run([binary(), "--version"], capture_output=True, text=True).stdout.split()[1]
    assert answer["facts"]["versions"]["foldback"] == version
    assert answer["facts"]["versions"]["sqlite"].startswith("3.") and answer["facts"]["disk"]["writable"] == "yes"
    store = answer["facts"]["store"]
    assert store["runs"] == 1 and store["graphs"] == 2 and store["schema"] == store["newest_schema"] == user_version(stopped)
    assert store["in_use"] == "no" and store["database_bytes"] == (stopped / "foldback.sqlite").stat().st_size


@of_a_file
def test_beside_a_service(service):
    optimize(service, branches(4), ["MergeLinears"])
    answer = doctor("--data", service.data)
    assert answer["ok"] and answer["facts"]["store"]["in_use"].startswith("yes") and answer["facts"]["store"]["runs"] == 1
    optimize(service, branches(5), ["MergeLinears"])


@of_a_file
def test_the_last_backup(stopped, tmp_path):
    assert "no-backup" in codes(doctor("--data", stopped))
    subprocess.run([binary(), "db", "backup", "--data", stopped, tmp_path / "copy"], check=True, capture_output=True)
    answer = doctor("--data", stopped)
    assert "no-backup" not in codes(answer) and answer["facts"]["store"]["last_backup"] <= answer["facts"]["clock"]["now"]
    assert not (tmp_path / "copy" / "backed-up").exists()
    os.utime(stopped / "backed-up", (0, 1_700_000_000))
    assert "no-backup" in codes(doctor("--data", stopped))
    service = subprocess.run([binary(), "run", "list", "--data", stopped, "--json"], capture_output=True)
    assert service.returncode == 0, "the note is no reason to refuse the folder"


def test_there_is_no_folder(tmp_path):
    answer = doctor("--data", tmp_path / "none")
    assert answer["ok"] and codes(answer, "warning") >= {"no-store"} and not (tmp_path / "none").exists()
    assert answer["facts"]["disk"]["folder"] == str(tmp_path)
    assert "store-not-writable" in codes(doctor("--data", tmp_path / "none" / "below"), "fault")


@of_a_file
def test_a_folder_that_cannot_be_written_to(stopped, read_only):
    place = read_only(stopped)
    answer = doctor("--data", place)
    assert not answer["ok"] and "store-not-writable" in codes(answer, "fault") and answer["facts"]["disk"]["writable"] == "no"
    assert answer["facts"]["store"]["runs"] == 1, "what can be read is read"


@of_a_file
def test_a_full_disk(small_disk, new_service):
    service = new_service(data=small_disk / "data")
    fill_disk(small_disk)
    answer = doctor("--data", service.data)
    assert "disk-full" in codes(answer, "fault") and "disk-low" in codes(answer)
    answer = doctor("--server", service.url)
    assert codes(answer, "fault") == {"disk-full"} and answer["facts"]["service"]["ready"] == "no"


@of_a_file
def test_a_damaged_database(stopped):
    with (stopped / "foldback.sqlite").open("r+b") as file:
        for page in range(3, 40):
            file.seek(page * 4096)
            file.write(b"\xff" * 512)
    assert codes(doctor("--data", stopped), "fault") <= {"database-damaged", "store-corrupt"}
    assert not doctor("--data", stopped)["ok"]


def test_an_old_schema(tmp_path):
    lay_out(1, tmp_path / "data")
    answer = doctor("--data", tmp_path / "data")
    assert (answer["ok"] and "old-schema" in codes(answer)
            and answer["facts"]["store"]["schema"] == 1 == user_version(tmp_path / "data"))


@of_a_file
def test_a_newer_schema(stopped):
    with sqlite3.connect(stopped / "foldback.sqlite") as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    assert "newer-schema" in codes(doctor("--data", stopped), "fault")


def test_a_database_of_another_program(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    with sqlite3.connect(tmp_path / "data" / "foldback.sqlite") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    assert "not-a-store" in codes(doctor("--data", tmp_path / "data"), "fault")


@of_a_file
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_command_ran_as_another_user(stopped):
    os.chown(stopped / "foldback.sqlite", 65534, 65534)
    answer = doctor("--data", stopped)
    assert "mixed-owners" in codes(answer, "fault")


@of_a_file
def test_others_may_read_it(stopped):
    stopped.chmod(0o755)
    assert "readable-by-others" in codes(doctor("--data", stopped), "warning")


@of_a_file
def test_the_clock_is_behind(stopped):
    with sqlite3.connect(stopped / "foldback.sqlite") as connection:
        connection.execute("UPDATE runs SET created = created + 86400000")
    connection.close()
    answer = doctor("--data", stopped)
    assert codes(answer, "fault") == {"clock-behind"}
    assert next(one for one in answer["findings"] if one["code"] == "clock-behind")["subject"] == "clock"


def test_few_descriptors(tmp_path):
    answer = doctor("--data", tmp_path, prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)))
    assert codes(answer, "fault") == {"few-descriptors"} and answer["facts"]["limits"]["descriptors"] == 200
    needed = answer["facts"]["limits"]["descriptors_needed"]
    assert "few-descriptors" not in codes(doctor("--data", tmp_path,
                                                 prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (needed, needed))))


def test_small_files(tmp_path):
    limited = doctor("--data", tmp_path, prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30)))
    assert "small-files" in codes(limited, "fault")


@pytest.mark.skipif(is_sanitized(), reason="a sanitizer needs terabytes of address space")
def test_small_address_space(tmp_path):
    limited = doctor("--data", tmp_path, prepare=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
    assert "small-address-space" in codes(limited, "warning")


@pytest.fixture
def group():
    """A control group with 1 GiB of memory, and one below it: the limit of the upper one holds."""
    made = []
    for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        outer = pathlib.Path(root) / f"foldback-test-{os.getpid()}"
        try:
            outer.mkdir()
            made.append(outer)
            (outer / name).write_text(str(1 << 30))
            (outer / "inner").mkdir()
            made.append(outer / "inner")
        except OSError:
            continue
        break
    else:
        pytest.skip("no control group can be made")
    yield outer / "inner"
    for folder in reversed(made):
        folder.rmdir()


def test_little_memory(tmp_path, group):
    answer = doctor("--data", tmp_path, prepare=lambda: (group / "cgroup.procs").write_text("0"))
    assert "little-memory" in codes(answer, "warning") and answer["facts"]["limits"]["memory_of_cgroup_bytes"] == 1 << 30


def test_a_database_that_does_not_answer(tmp_path):
    answer = doctor("--data", tmp_path, "--store", "postgresql://me:hunter2@127.0.0.1:1/none")
    assert not answer["ok"] and "hunter2" not in json.dumps(answer)
    answer = doctor("--data", tmp_path, "--store", "postgresql://me@127.0.0.1:1/none")
    assert "store-unavailable" in codes(answer,
                                        "fault") and answer["facts"]["store"]["database"] == "postgresql://me@127.0.0.1:1/none"


@pytest.mark.skipif(not databases.IN_USE, reason="the database is a file")
def test_a_store_on_a_server(stopped):
    answer = doctor("--data", stopped)
    store = answer["facts"]["store"]
    assert answer["ok"] and store["runs"] == 1 and store["schema"] == store["newest_schema"], answer
    assert store["database"].startswith("postgresql://") and "database_bytes" not in store and "no-backup" not in codes(answer)


def test_no_secret_is_shown(tmp_path):
    secrets = dict(FOLDBACK_TOKEN="fbt_hunter2", PGPASSWORD="hunter2", AWS_SECRET_ACCESS_KEY="hunter2",
                   AWS_SESSION_TOKEN="hunter2",
                   AWS_ENDPOINT_URL="http://me:hunter2@proxy.example.org/x")
    answer = doctor("--data", tmp_path, PGHOST="db.example.org", **secrets)
    assert "hunter2" not in json.dumps(answer)
    shown = answer["facts"]["configuration"]
    assert set(secrets) <= set(shown) and shown["PGHOST"] == "db.example.org"
    assert shown["AWS_ENDPOINT_URL"] == "http://me:*******@proxy.example.org/x"


@of_a_file
def test_jobs_that_failed(service):
    job = service.post("/v1/optimize", {"graph": branches(3), "passes": ["NoSuchPass"]}, headers={"Prefer": "respond-async"})
    if job.status != 202:
        job = service.post("/v1/optimize", {"graph": "sha256:" + "0" * 64, "passes": ["MergeLinears"]},
                           headers={"Prefer": "respond-async"})
    assert job.status == 202, job.body
    name = job.json()["id"]
    for _ in range(100):
        if service.get(f"/v1/jobs/{name}").json()["state"] == "failed":
            break
        threading.Event().wait(0.1)
    for where in (("--data", service.data), ("--server", service.url)):
        facts = doctor(*where)["facts"]["store" if where[0] == "--data" else "service"]
        assert facts[name].startswith("POST /v1/optimize: status 4"), facts


def test_on_a_terminal(stopped, tmp_path):
    command = CommandLine(tmp_path, "--data", stopped)
    shown = command.on_terminal("doctor").out
    for section in SECTIONS:
        assert f"{section.capitalize()}\n" in shown
    assert "\nwarning: " in shown and "  cure: " in shown or "nothing is wrong" in shown


# ---- a service ---------------------------------------------------------------------------------------------------------------


def test_a_service_that_is_well(service):
    service.post("/v1/graphs", json.loads(TOY.read_bytes()))
    answer = doctor("--server", service.url)
    assert answer["ok"] and codes(answer) == set(), answer
    facts = answer["facts"]["service"]
    assert facts["ready"] == "yes" and facts["graphs"] == 1 and facts["descriptors"] > facts["descriptors_open"] > 0
    assert facts["requests"] >= 1 and list(answer["facts"]) == ["versions", "service"]


@of_a_file
def test_a_service_that_wants_a_token(tmp_path, new_service):
    made = subprocess.run([binary(), "token", "create", "--scope", "admin", "--data", tmp_path / "data0", "--json"],
                          capture_output=True, check=True)
    service = new_service(data=tmp_path / "data0")
    answer = doctor("--server", service.url)
    assert answer["ok"] and codes(answer) == {"not-allowed"} and answer["facts"]["service"]["ready"] == "yes"
    assert codes(doctor("--server", service.url, FOLDBACK_TOKEN=json.loads(made.stdout)["token"])) == set()


def test_nobody_answers():
    answer = doctor("--server", "http://127.0.0.1:1")
    assert codes(answer, "fault") == {"unreachable"}


def test_somebody_else_answers():
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        answer = doctor("--server", f"http://127.0.0.1:{other.server_port}")
        other.shutdown()
    assert "not-foldback" in codes(answer, "fault")
