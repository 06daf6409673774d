"""The Debian package on a bare Debian 12: it installs, starts, answers, is upgraded and keeps its data, is removed and
purged."""

import gzip
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pytest
from machine import Machine, bare_root, can_boot, output_of, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "tests" / "fixtures" / "schemas"
TOY = ROOT / "tests" / "fixtures" / "toy" / "graph.json"
BUILT = ROOT / "build-deb"
EARLIER = "0.0.9"

pytestmark = pytest.mark.skipif(not can_boot(), reason="needs root, systemd-nspawn and mmdebstrap, outside of a container")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with the package of this code, and the same as an earlier version."""
    folder = tmp_path_factory.mktemp("packages")
    built = next(BUILT.glob("foldback_*.deb"))
    shutil.copy(built, folder / "now.deb")
    output_of("dpkg-deb", "--raw-extract", built, folder / "earlier")
    control = folder / "earlier" / "DEBIAN" / "control"
    control.write_text(re.sub("^Version: .*$", f"Version: {EARLIER}", control.read_text(), flags=re.M))
    output_of("dpkg-deb", "--build", "--root-owner-group", "-Zgzip", folder / "earlier", folder / "earlier.deb")
    shutil.rmtree(folder / "earlier")
    return folder


@pytest.fixture(scope="module")
def machine(tmp_path_factory, packages):
    folder = tmp_path_factory.mktemp("machine")
    kept = bare_root()
    output_of("cp", "--archive", "--reflink=auto", kept, folder / "root")
    started = Machine(folder / "root", packages, folder / "log")
    yield started
    started.stop()
    shutil.rmtree(folder / "root", ignore_errors=True)


def apt(machine, *words):
    return machine.output_of("apt-get", "-qq", "--yes", "--no-install-recommends", *words)


def foldback(machine, *words):
    return json.loads(machine.output_of("foldback", *words, "--server", "http://127.0.0.1:8080", "--json"))


def is_ready(machine):
    return machine.call("foldback", "ready").returncode == 0


def unit(machine, name):
    return machine.output_of("systemctl", "show", "--value", "--property", name, "foldback").strip()


def version(machine):
    return machine.call("dpkg-query", "--showformat", "${Version}", "--show", "foldback").stdout


def version_of_makefile():
    return re.search("^VERSION +:= (.*)$", (ROOT / "Makefile").read_text(), re.M)[1]


def test_its_version_is_that_of_the_program():
    assert subprocess.check_output(["dpkg-parsechangelog", "-l", ROOT / "deploy/debian/changelog", "-S", "Version"],
                                   text=True).strip() == version_of_makefile()


def test_from_the_first_install_to_the_purge(machine):
    # installed: it runs, as its own user, and answers
    apt(machine, "install", "/packages/earlier.deb")
    assert version(machine) == EARLIER
    wait_for(lambda: is_ready(machine), "the service is not ready")
    assert unit(machine, "ActiveState") == "active" and unit(machine, "UnitFileState") == "enabled"
    first = unit(machine, "MainPID")
    user = machine.output_of("id", "-u", "foldback").strip()
    assert machine.output_of("stat", "-c", "%u %a", "/var/lib/foldback").split() == [user, "700"] and int(user) < 1000
    assert re.search(rf"^Uid:\s+{user}\s", machine.output_of("cat", f"/proc/{first}/status"), re.M)
    machine.path("/root/toy.json").write_bytes(TOY.read_bytes())
    run = foldback(machine, "optimize", "/root/toy.json", "--pass", "MergeLinears")
    for name in ("man/man1/foldback.1.gz", "bash-completion/completions/foldback", "doc/foldback/docs/pictures/undo.svg",
                 "doc/foldback/copyright"):
        assert machine.path(f"/usr/share/{name}").is_file(), name
    # what a person works with beside the service: the data folder is its user's
    backup = machine.call("runuser", "-u", "foldback", "--", "foldback", "db", "backup", "--data", "/var/lib/foldback/store",
                          "/var/lib/foldback/backup")
    assert backup.returncode == 0, backup.stdout

    looked = machine.call("runuser", "-u", "foldback", "--", "foldback", "doctor", "--data",
                          "/var/lib/foldback/store", "--json")
    assert looked.returncode == 0 and json.loads(looked.stdout)["facts"]["store"]["in_use"].startswith("yes"), looked.stdout

    # upgraded: it was restarted, has its data, and the options that a person changed
    options = machine.path("/etc/default/foldback")
    options.write_text(options.read_text() + 'FOLDBACK_OPTIONS="--workers 5"\n')
    apt(machine, "install", "/packages/now.deb")
    assert version(machine) == version_of_makefile()
    wait_for(lambda: is_ready(machine) and unit(machine, "MainPID") != first, "the new version is not ready")
    command = machine.output_of("cat", f"/proc/{unit(machine, 'MainPID')}/cmdline").split("\0")
    assert command[-3:-1] == ["--workers", "5"]
    assert foldback(machine, "run", "show", run["id"])["result"] == run["result"]
    assert foldback(machine, "reverse", run["id"])["result"] == run["source"]

    # killed: it comes back
    second = unit(machine, "MainPID")
    machine.output_of("systemctl", "kill", "--signal=KILL", "foldback")
    wait_for(lambda: unit(machine, "MainPID") not in ("0", second) and is_ready(machine), "it does not come back")

    # removed: the program is gone, data and options stay
    apt(machine, "remove", "foldback")
    assert not machine.path("/usr/bin/foldback").exists() and unit(machine, "ActiveState") != "active"
    assert machine.path("/var/lib/foldback/store/foldback.sqlite").is_file() and options.is_file()

    # installed again where a version of long ago left its store: that is brought up to date
    store = machine.path("/var/lib/foldback/store")
    database = store / "foldback.sqlite"
    for path in store.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    connection = sqlite3.connect(database)
    connection.executescript("PRAGMA journal_mode = WAL;"
                             + gzip.decompress((SCHEMAS / "001.sql.gz").read_bytes()).decode())
    connection.close()
    for path in store.iterdir():
        os.chown(path, int(user), -1)
    apt(machine, "install", "/packages/now.deb")
    wait_for(lambda: is_ready(machine), "the store of an earlier version")
    old = json.loads((SCHEMAS / "found.json").read_text())["001"]["runs"]
    assert {one["id"] for one in old} <= {one["id"] for one in foldback(machine, "run", "list", "--limit", "0")["items"]}

    # purged: nothing is left but the name of the user
    apt(machine, "purge", "foldback")
    assert not store.parent.exists() and not options.exists()
    left = machine.output_of("find", "/etc", "/var", "/usr", "/lib", "-xdev", "-name", "*foldback*").split()
    assert left == [], left
    assert machine.call("id", "-u", "foldback").stdout.strip() == user
