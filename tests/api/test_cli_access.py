"""foldback token and audit, and how the command line shows a token to a service."""

import datetime
import re

import pytest
from access import bearer, make_token
from cli import CommandLine
from conftest import Service
from documents import branches
from test_tls import TlsService, make_certificate

SECRET = re.compile(r"fbt_[A-Za-z0-9_-]{43}")


def local(folder):
    return CommandLine(folder, "--data", folder / "data")


def test_tokens_on_the_data_folder(tmp_path):
    foldback = local(tmp_path)
    made = foldback("token", "create", "--scope", "admin", "--name", "boss").json()
    assert SECRET.fullmatch(made["token"]) and made["scope"] == "admin" and made["expires"] is None
    foldback("token", "create", "--scope", "read", "--name", "reader", "--expires", "2099-12-31").json()
    listed = foldback("token", "list").json()["items"]
    assert [(one["name"], one["expires"]) for one in listed] == [("reader", "2099-12-31T00:00:00.000Z"), ("boss", None)]
    assert foldback("token", "revoke", "reader").json()["revoked"]
    again = foldback("token", "create", "--scope", "read", "--name", "reader")
    assert again.status == 1 and "a name is given once" in again.err
    assert foldback("token", "revoke", "nobody").status == 1
    # the command line on the folder goes on without a token
    foldback.put("g.json", branches(2))
    foldback("optimize", "g.json", "--pass", "MergeLinears").json()
    audit = foldback("audit").json()["items"]
    assert [(one["who"], one["action"]) for one in reversed(audit)] == [
        ("local", "token-create"), ("local", "token-create"), ("local", "token-revoke"), ("local", "optimize"),
    ]
    assert [one["object"] for one in foldback("audit", "--action", "token-create", "--limit",
                                              "1").json()["items"]] == ["reader"]
    assert foldback("audit", "--who",
                    "boss").json()["items"] == foldback("audit", "--until", "2020-01-01").json()["items"] == []
    assert foldback("audit", "--since", "never").status == 1


@pytest.mark.parametrize(("given", "seconds"),
                         [("90d", 90 * 86400), ("12h", 43200), ("30m", 1800), ("45s", 45), ("2w", 14 * 86400)])
def test_when_a_token_expires(tmp_path, given, seconds):
    before = datetime.datetime.now(datetime.timezone.utc)
    made = local(tmp_path)("token", "create", "--scope", "read", "--expires", given).json()
    asked = datetime.datetime.fromisoformat(made["expires"]) - datetime.timedelta(seconds=seconds)
    second = datetime.timedelta(seconds=1)  # that of the expiry is whole
    assert before - second < asked < datetime.datetime.now(datetime.timezone.utc) + second


@pytest.mark.parametrize(
    "words",
    [
        ["create"], ["create", "ci", "--scope", "read"], ["revoke"], ["list", "x"], ["make"],
        *(["create", "--scope", "read", "--expires", bad]
          for bad in ("0d", "x", "1y", "d", "-1d", "1.5d", "999999999w", "1d1", "2099-13-01", "")),
    ],
)
def test_wrong_usage(tmp_path, words):
    done = local(tmp_path)("token", *words)
    assert done.status == 2 and done.err and not done.out


def test_what_is_shown_on_a_terminal(tmp_path):
    foldback = local(tmp_path)
    shown = foldback.on_terminal("token", "create", "--scope", "write", "--name", "ci", NO_COLOR="1")
    assert SECRET.search(shown.out) and "not shown again" in shown.err
    assert str(tmp_path / "data") in shown.err  # the default is easily another folder than the service has
    shown = foldback.on_terminal("token", "list", NO_COLOR="1")
    assert not SECRET.search(shown.out) and re.search(r"ci +write", shown.out)
    assert re.search(r"local +token-create +ci +write", foldback.on_terminal("audit", NO_COLOR="1").out)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A service over TLS, the token of its admin, and a command line that knows the certificate."""
    folder = tmp_path_factory.mktemp("guarded")
    make_certificate(folder)
    TlsService(folder / "data", folder).start().stop()  # the data folder knows then where its store is
    token = local(folder)("token", "create", "--scope", "admin", "--name", "boss").json()["token"]
    service = TlsService(folder / "data", folder).start()
    foldback = CommandLine(folder, "--server", service.url.replace("127.0.0.1", "localhost"), "--ca-file", folder / "cert.pem")
    yield service, token, foldback
    assert service.stop() == 0


def test_a_token_for_a_service(guarded):
    service, token, foldback = guarded
    refused = foldback("graphs")
    assert refused.status == 1 and "this needs a token" in refused.err
    assert foldback("graphs", FOLDBACK_TOKEN=token).json() == {"items": []}
    foldback.put("token", f"{token}\nand what follows".encode())
    assert foldback("graphs", "--token-file", "token").json() == {"items": []}
    # the file comes before the variable
    foldback.put("wrong", b"fbt_wrong\n")
    assert "not one of this service" in foldback("graphs", "--token-file", "wrong", FOLDBACK_TOKEN=token).err
    assert foldback("graphs", "--token-file", "missing").status == 1
    foldback.put("bad", "é\n".encode())
    assert foldback("graphs", "--token-file", "bad").status == 2
    assert foldback("graphs", FOLDBACK_TOKEN="a b").status == 2


def test_the_whole_way_through_a_service(guarded):
    service, token, foldback = guarded
    ci = foldback("token", "create", "--scope", "write", "--name", "ci", FOLDBACK_TOKEN=token).json()["token"]
    foldback.put("g.json", branches(2))
    run = foldback("optimize", "g.json", "--pass", "MergeLinears", FOLDBACK_TOKEN=ci).json()
    assert foldback("rollback", run["id"], FOLDBACK_TOKEN=ci).json()["result"] == run["source"]
    too_small = foldback("gc", FOLDBACK_TOKEN=ci)
    assert too_small.status == 1 and "scope admin" in too_small.err
    acts = foldback("audit", "--who", "ci", FOLDBACK_TOKEN=token).json()["items"]
    assert [one["action"] for one in acts] == ["rollback", "optimize"]
    foldback("token", "revoke", "ci", FOLDBACK_TOKEN=token).json()
    assert "revoked" in foldback("runs", FOLDBACK_TOKEN=ci).err
    assert foldback("ready").status == 0


def test_who_is_not_trusted_gets_no_token(guarded, tmp_path):
    service, token, foldback = guarded
    make_certificate(tmp_path)
    stranger = CommandLine(tmp_path, "--server", service.url.replace("127.0.0.1", "localhost"))
    for more in ([], ["--ca-file", tmp_path / "cert.pem"], ["--ca-file", tmp_path / "missing"]):
        done = stranger("graphs", *more, FOLDBACK_TOKEN=token)
        assert done.status == 1 and "certificate" in done.err.lower(), done
        assert ("--ca-file" in done.err) == (not more), done  # says how, to those who have not done it
    wrong_name = CommandLine(tmp_path, "--server", service.url.replace("127.0.0.1", "127.0.0.2"), "--ca-file",
                             foldback.place[-1])
    assert wrong_name("graphs", FOLDBACK_TOKEN=token).status == 1


def test_no_token_is_in_what_is_said(guarded):
    service, token, foldback = guarded
    for words in (["graphs"], ["show", "run_x"], ["token", "revoke", "nobody"], ["token", "list"]):
        done = foldback(*words, FOLDBACK_TOKEN=token)
        assert token not in done.out + done.err
    assert token not in service.log()


def test_a_service_that_holds_the_folder(tmp_path):
    service = Service(tmp_path / "data").start()
    try:
        assert local(tmp_path)("token", "list").status == 3
        through = CommandLine(tmp_path, "--server", service.url)
        first = through("token", "create", "--scope", "admin")
        assert first.status == 1 and "not made over the network" in first.err
        token = make_token(service, "admin")
        through = CommandLine(tmp_path, "--server", service.url)
        assert through("token", "list").status == 1
        assert service.get("/v1/tokens", headers=bearer(token)).status == 200
    finally:
        assert service.stop() == 0
