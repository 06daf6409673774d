"""The messages of webhooks, verified by the package of those who wrote the specification."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

from conftest import Service
from documents import branches
from receivers import OPTIONS, Receiver, make_webhook
from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def test_messages_are_those_of_the_specification(tmp_path):
    service, receiver = Service(tmp_path / "data", *OPTIONS).start(), Receiver()
    try:
        made = make_webhook(service, receiver.url)
        service.post("/v1/optimize", {"graph": branches(2), "passes": ["MergeLinears"]})
        first = receiver.wait(lambda messages: messages)[0]
        assert Webhook(made["secret"]).verify(first.body, first.headers) == first.json
        second = service.post(f"/v1/webhooks/{made['id']}/secret", {"overlap": 60}).json()["secret"]
        service.post(f"/v1/webhooks/{made['id']}/test")
        message = receiver.wait(lambda messages: len(messages) == 2)[1]
        for secret in (made["secret"], second):
            assert Webhook(secret).verify(message.body, message.headers)["type"] == "webhook.test"
        for body, headers in ((message.body + b" ", message.headers), (message.body, first.headers)):
            with pytest.raises(WebhookVerificationError):
                Webhook(second).verify(body, headers)
    finally:
        service.kill()
        receiver.close()
