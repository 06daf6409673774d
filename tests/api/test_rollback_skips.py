"""A rollback at night: what somebody has taken back already does not come again, and it says what it does."""

import os
import pty
import subprocess

import pytest
from access import bearer, make_token
from cli import CommandLine, environment
from conftest import ROOT, binary
from documents import branches
from test_aliases import ANY, CREATE, make_versions, path_of, put_alias, roll_back
from test_http import is_problem
from test_models import put_version
from test_runs import optimize

TOY = ROOT / "tests" / "fixtures" / "toy" / "graph.json"


@pytest.fixture
def versions(service):
    make_versions(service, 5)
    return service


def play(service, story):
    """"0 1 <": deploys v0, then v1, then rolls back; "<2": to v2. Gives where each rollback came out, None for a refusal."""
    came = []
    for step in story.split():
        if step[0] != "<":
            headers = ANY if service.get(path_of()).status == 200 else CREATE
            assert put_alias(service, f"v{step}", headers).status in (200, 201)
            continue
        plan = service.get(path_of() + "/rollback").json()
        answer = roll_back(service, {"version": f"v{step[1:]}"} if step[1:] else None, headers={"If-Match": plan["etag"]})
        came.append(answer.json()["version"][1:] if answer.status == 200 else None)
        if not step[1:]:
            assert (plan["to"] or "v")[1:] == (came[-1] or "")
        if came[-1] is None:
            assert is_problem(answer, 409, "nothing-to-roll-back").get("versions", []) == plan["withdrawn"]
        else:
            assert answer.json()["from"] == plan["from"]
    return came


@pytest.mark.parametrize("story, came", [
    ("1 2 1 <", [None]),        # the second person finds what the first one did
    ("0 1 2 1 <", ["0"]),       # and a third time goes further
    ("1 2 3 1 <", [None]),      # nor what came before it
    ("0 1 2 3 1 4 < <", ["1", "0"]),
    ("1 2 <", ["1"]),
    ("1 2 < <", ["1", None]),
    ("1 2 < 2 3 <", ["1", "2"]),  # deployed again on purpose, and left for a new one
    ("1 2 1 2 <", ["1"]),       # an A/B test that goes on
    ("1 2 1 3 <", ["1"]),
    ("1 0 <", ["1"]),           # v0 is new to this alias, whenever it was registered
    ("0 1 2 <0 <2 <", ["0", "2", "0"]),
    ("0 1 2 3 <1 <", ["1", "0"]),
])
def test_what_was_taken_back_is_skipped(versions, story, came):
    assert play(versions, story) == came


def test_versions_that_can_be_named(versions):
    play(versions, "1 2 1")
    problem = is_problem(roll_back(versions), 409, "nothing-to-roll-back")
    assert problem["versions"] == ["v2"] and "taken back" in problem["detail"]
    assert versions.get(path_of() + "/rollback").json() == {
        "from": "v1", "to": None, "withdrawn": ["v2"], "etag": versions.get(path_of()).headers["etag"]}
    assert roll_back(versions, {"version": "v2"}).json()["version"] == "v2"  # HTTP is not asked
    assert versions.get(path_of() + "/rollback").json()["withdrawn"] == ["v1"]
    is_problem(versions.get(path_of("none") + "/rollback"), 404, "unknown-alias")


def test_taking_passes_out_puts_a_version_on_top(service):
    run = optimize(service, branches(), ["MergeLinears"])
    assert put_version(service, "m", "v0", {"graph": branches()}).status == 201
    assert put_version(service, "m", "v1", {"run": run["id"]}).status == 201
    put_alias(service, "v0", CREATE), put_alias(service, "v1", ANY)
    assert roll_back(service, {"passes": ["MergeLinears"]}).json()["version"] == "v1-without-MergeLinears"
    assert roll_back(service).json()["version"] == "v1"  # what is put on top comes off
    assert roll_back(service).json()["version"] == "v0"


def test_who_is_the_token(service, tmp_path):
    make_versions(service, 3)
    admin = make_token(service, "admin", "root")
    ann = make_token(service, "write", "ann", by=admin)
    for version, headers, more in (("v0", CREATE, {}), ("v1", ANY, {"who": "bob"})):
        answer = service.request("PUT", path_of(), {"version": version, **more}, headers={**headers, **bearer(ann)})
        assert answer.status in (200, 201), answer
    assert service.post(path_of() + "/rollback", headers=bearer(ann)).json()["who"] == "ann"
    local = CommandLine(tmp_path, "--server", service.url)
    assert local("deploy", "m@live", "v2", FOLDBACK_TOKEN=ann, USER="root").status == 0
    assert local("rollback", "m@live", "--who", "carol", FOLDBACK_TOKEN=ann).status == 0
    etag = service.get(path_of(), headers=bearer(ann)).headers["etag"]
    assert service.delete(path_of(), headers={"If-Match": etag, **bearer(ann)}).status == 204
    found = service.get(path_of() + "/history", headers=bearer(ann)).json()["items"]
    assert [one["who"] for one in found] == ["ann", "carol", "ann", "ann", "bob", "ann"]


# ---- the command line


@pytest.fixture
def local(tmp_path):
    local = CommandLine(tmp_path, "--data", tmp_path / "store")
    run = local("optimize", TOY, "-p", "MergeLinears").json()
    for version, graph in (("1", run["source"]), ("2", run["id"])):
        assert local("register", f"toy:{version}", graph).status == 0
        assert local("deploy", "toy@champion", version).status == 0
    return local


def version(local):
    return local("show", "toy@champion").json()["version"]


def answered(local, answer, *words):
    """On a terminal on which somebody types the answer."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([binary(), *words, *local.place], cwd=local.folder, stdin=theirs, stdout=theirs, stderr=theirs,
                               env=environment(NO_COLOR="1"))
    os.close(theirs)
    os.write(ours, answer)
    out = b""
    try:
        while piece := os.read(ours, 4096):
            out += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    return process.wait(60), out.decode()


def test_two_people_on_call(local):
    assert local("deploy", "toy@champion", "1").status == 0  # one person
    refused = local("rollback", "toy@champion")  # the other
    assert refused.status == 1 and version(local) == "1" and "versions: 2" in refused.err


def test_it_says_from_where_to_where(local):
    shown = local.on_terminal("rollback", "toy@champion", NO_COLOR="1")
    assert shown.status == 0 and shown.err == "toy@champion: 2 → 1\n" and shown.out.endswith("\ntoy@champion: 2 → 1\n")
    assert version(local) == "1"


def test_from(local):
    refused = local("rollback", "toy@champion", "--from", "1")
    assert refused.status == 1 and version(local) == "2" and "toy@champion is at 2, not at 1" in refused.err
    assert local("rollback", "toy@champion", "--from", "toy:2").json()["version"] == "1"


@pytest.mark.parametrize("answer, more, now", [(b"n\n", [], "1"), (b"\n", [], "1"), (b"y\n", [], "2"), (b"", ["--yes"], "2")])
def test_what_was_taken_back_is_asked_about(local, answer, more, now):
    assert local("rollback", "toy@champion").status == 0
    status, said = answered(local, answer, "rollback", "toy@champion", "--to", "2", *more)
    assert (status == 0) == (now == "2") and version(local) == now
    assert ("taken back from 2" in said) == (not more) and "1 → 2" in said


def test_what_was_not_taken_back_is_not_asked_about(local):
    status, said = answered(local, b"", "rollback", "toy@champion", "--to", "1")
    assert status == 0 and version(local) == "1" and "[y/N]" not in said
