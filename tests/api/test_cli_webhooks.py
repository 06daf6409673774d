"""foldback webhook: what the routes do, from a command line."""

import pytest
from cli import CommandLine
from receivers import OPTIONS, Receiver, wait_for_delivery


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


def test_the_verbs(new_service, receiver, tmp_path):
    service = new_service(*OPTIONS)
    foldback = CommandLine(tmp_path, "--server", service.url)
    made = foldback("webhook", "create", receiver.url, "--event", "alias.moved", "-e", "run.finished", "--model", "bert-*",
                    "--note", "ours").json()
    assert made["secret"].startswith("whsec_") and made["events"] == ["alias.moved", "run.finished"]
    assert (made["models"], made["note"]) == (["bert-*"], "ours")
    assert [one["id"] for one in foldback("webhook", "list").json()["items"]] == [made["id"]]
    assert "secret" not in foldback("webhook", "show", made["id"]).json()
    changed = foldback("webhook", "change", made["id"], "--disable", "--event", "*", "--url", receiver.url + "2").json()
    assert (changed["enabled"], changed["events"], changed["models"],
            changed["url"]) == (False, ["*"], ["bert-*"], receiver.url + "2")
    assert foldback("webhook", "change", made["id"], "--enable").json()["enabled"]
    assert foldback("webhook", "rotate", made["id"], "--overlap", "0").json()["secret"] != made["secret"]
    message = foldback("webhook", "test", made["id"]).json()["id"]
    wait_for_delivery(service, made["id"], lambda items: items[0]["state"] == "delivered")
    listed = foldback("webhook", "deliveries", made["id"], "--state", "delivered").json()["items"]
    assert ([one["id"] for one in listed] == [message]
            and not foldback("webhook", "deliveries", made["id"], "--state", "parked").json()["items"])
    assert foldback("webhook", "redeliver", made["id"], message).json()["id"] == message
    receiver.wait(lambda messages: len(messages) == 2)
    assert foldback("webhook", "delete", made["id"]).status == 0
    gone = foldback("webhook", "show", made["id"])
    assert gone.status == 1 and "there is no webhook" in gone.err


def test_what_is_refused(new_service, receiver, tmp_path):
    service = new_service(*OPTIONS)
    foldback = CommandLine(tmp_path, "--server", service.url)
    assert foldback("webhook", "change", "hook_x", "--enable", "--disable").status == 2
    assert foldback("webhook", "create").status == 2
    private = foldback("webhook", "create", "http://10.0.0.1/")
    assert private.status == 1 and "--webhook-allow" in private.err
    offline = CommandLine(tmp_path, "--data", tmp_path / "folder")
    offline("token", "create", "--scope", "admin")
    refused = offline("webhook", "create", receiver.url)
    assert refused.status == 1 and "--webhooks" in refused.err


@pytest.mark.parametrize("words", [["--webhook-allow", "10.0.0.0/8"], ["--webhook-allow-http"],
                                   ["--webhooks", "--webhook-allow", "10.0.0.0/33"],
                                   ["--webhooks", "--webhook-allow", "example.com"],
                                   ["--webhooks", "--webhook-allow", "10.0.0.0/"]])
def test_options_that_make_no_sense(tmp_path, words):
    done = CommandLine(tmp_path)("serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", *words)
    assert done.status == 2 and "--webhook" in done.err
