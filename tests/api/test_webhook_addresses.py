"""Whoever may make a webhook cannot reach this machine or the private network through it, however an address is spelled.

A receiver listens on loopback, on IPv4 and IPv6. A case is met when its URL is refused, or when its message is never sent:
refused at the connection, whatever the name led to."""

import socket
import time

import buckets
import pytest
from receivers import OPTIONS, Receiver, make_webhook, wait_for_delivery

# {port} is that of the receiver: a guard that fails is seen by it.
LOOPBACK = [
    "127.0.0.1:{port}", "127.0.0.2:{port}", "127.1:{port}", "127.0.1:{port}", "2130706433:{port}", "0x7f000001:{port}",
    "0x7f.1:{port}",
    "0x7f.0x0.0x0.0x1:{port}", "0177.0.0.1:{port}", "0177.0.0.0x1:{port}", "017700000001:{port}", "127.0.0.1.:{port}",
    "0.0.0.0:{port}", "0:{port}", "0x0:{port}",
    "localhost:{port}", "LOCALHOST:{port}", "localhost.:{port}", "any.localhost:{port}", "ip6-localhost:{port}",
    socket.gethostname() + ":{port}",
    "[::1]:{port}", "[0:0:0:0:0:0:0:1]:{port}", "[0000::0001]:{port}", "[::]:{port}",
    "[::ffff:127.0.0.1]:{port}", "[::ffff:7f00:1]:{port}", "[0:0:0:0:0:ffff:127.0.0.1]:{port}", "[::127.0.0.1]:{port}",
    "[::1%25lo]:{port}", "%31%32%37.0.0.1:{port}", "127。0。0。1:{port}", "①②⑦.⓪.⓪.①:{port}", "１２７.0.0.1:{port}",
    "user:password@127.0.0.1:{port}", "example.com@127.0.0.1:{port}", "127.0.0.1:{port}#@example.com",
    "127.0.0.1:{port}\\@example.com",
    "example.com\\@127.0.0.1:{port}", "127.0.0.1%00.example.com:{port}", "127.0.0.1%0a:{port}",
]
ELSEWHERE = [
    "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.254", "192.168.1.1", "169.254.169.254",
    "169.254.170.2", "100.64.0.1",
    "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "0x0a000001", "012.0.0.1", "167772161", "0xa9fea9fe", "2852039166",
    "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[fe80::1%25eth0]", "[fec0::1]", "[ff02::1]", "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001::1]", "[2001:db8::1]", "[100::1]", "[::10.0.0.1]",
]
NO_URLS = [
    "file:///etc/passwd", "ftp://127.0.0.1/", "dict://127.0.0.1:11211/", "unix:///run/x", "//127.0.0.1:{port}/",
    "127.0.0.1:{port}", "http:", "http://", "http:///path", "", "javascript:alert(1)", "http://127.0.0.1:99999/",
    "http://exa mple.com/",
    "http://93.184.216.34:22/", "http://93.184.216.34:25/", "https://93.184.216.34:80/", "http://93.184.216.34:0/",
    "gopher://127.0.0.1:{port}/",
]


@pytest.fixture(scope="module")
def receivers():
    four = Receiver("127.0.0.1")
    six = None
    try:
        six = Receiver("::1", four.port)
    except OSError:
        pass  # a machine without IPv6
    yield [one for one in (four, six) if one]
    for one in (four, six):
        if one:
            one.close()


@pytest.fixture
def guarded(new_service):
    return new_service("--webhooks", "--webhook-allow-http", "--webhook-pause", "1")


def refused_at_once(service, url):
    answer = service.post("/v1/webhooks", {"url": url})
    assert answer.status in (201, 422), answer
    if answer.status == 422:
        assert answer.json()["code"] in ("bad-url", "address-refused") and answer.json()["pointer"] == "/url"
        return None
    return answer.json()["id"]


def test_nothing_of_this_machine_is_reached(guarded, receivers):
    port = receivers[0].port
    accepted = {}
    for host in LOOPBACK:
        webhook = refused_at_once(guarded, f"http://{host.format(port=port)}/hook")
        if webhook:
            accepted[host] = webhook
    # What is an address, in any spelling, is refused at once; names are, when they are connected to.
    assert not [host for host in accepted if host.isascii() and host[0] in "0123456789[%" and ".:" not in host], accepted
    assert "localhost:{port}" in accepted
    for webhook in accepted.values():
        assert guarded.post(f"/v1/webhooks/{webhook}/test").status == 202
    for host, webhook in accepted.items():
        found = wait_for_delivery(guarded, webhook, lambda items: items[0]["attempts"] > 0)[0]
        assert found["state"] == "pending" and "status" not in found and found["failure"], (host, found)
    for host in ("localhost:{port}", "any.localhost:{port}", "LOCALHOST:{port}"):
        found = guarded.get(f"/v1/webhooks/{accepted[host]}/deliveries").json()["items"][0]
        assert found["failure"] == "the host's address is private, of this machine or reserved", host
    time.sleep(0.2)
    assert not [message for receiver in receivers for message in receiver.messages]


@pytest.mark.parametrize("host", ELSEWHERE)
def test_nothing_of_the_network_is_reached(guarded, host):
    answer = guarded.post("/v1/webhooks", {"url": f"http://{host}/"})
    assert answer.status == 422 and answer.json()["code"] in ("address-refused", "bad-url"), answer


def test_what_is_no_url_of_the_web(guarded, receivers):
    for url in NO_URLS:
        answer = guarded.post("/v1/webhooks", {"url": url.format(port=receivers[0].port)})
        assert answer.status == 422 and answer.json()["code"] == "bad-url", (url, answer)


def test_http_is_refused_unless_allowed(new_service):
    service = new_service("--webhooks", "--webhook-allow", "127.0.0.0/8")
    answer = service.post("/v1/webhooks", {"url": "http://127.0.0.1:9/"})
    assert answer.status == 422 and answer.json()["code"] == "bad-url" and "https" in answer.json()["detail"]
    assert service.post("/v1/webhooks", {"url": "https://127.0.0.1:9999/"}).status == 201


def test_a_change_is_judged_as_well(guarded):
    webhook = make_webhook(guarded, "http://localhost:9999/")["id"]
    for url in ("http://127.0.0.1:9999/", "file:///etc/passwd", "http://10.0.0.1/"):
        assert guarded.request("PATCH", f"/v1/webhooks/{webhook}", {"url": url}).status == 422


def test_only_the_networks_that_are_allowed(new_service):
    service = new_service("--webhooks", "--webhook-allow-http", "--webhook-allow", "127.0.0.2", "--webhook-allow",
                          "fd00:1::/64")
    for host, status in {"127.0.0.2": 201, "127.0.0.3": 422, "[::ffff:127.0.0.2]": 201, "[fd00:1::5]": 201,
                         "[fd00:1:0:1::5]": 422}.items():
        assert service.post("/v1/webhooks", {"url": f"http://{host}:9999/"}).status == status, host


def test_redirects_are_not_followed(new_service):
    """Neither to what is not allowed nor to what is."""
    target = Receiver()
    for status in (301, 302, 303, 307, 308):
        source = Receiver("127.0.0.2", answer=lambda message, status=status: (status, {"Location": target.url}, b""))
        service = new_service(*OPTIONS)
        webhook = make_webhook(service, source.url)["id"]
        service.post(f"/v1/webhooks/{webhook}/test")
        found = wait_for_delivery(service, webhook, lambda items: items[0]["attempts"] > 0)[0]
        assert found["state"] == "pending" and found["status"] == status and "redirects" in found["failure"]
        service.stop()
        source.close()
    assert not target.messages and not target.strays
    target.close()


@pytest.mark.skipif(buckets.IN_USE, reason="the bucket is reached through it")
def test_a_proxy_of_the_environment_is_not_used(new_service):
    """It would connect to any address."""
    proxy, receiver = Receiver(), Receiver("127.0.0.2")
    environment = {name: proxy.url for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY")}
    service = new_service(*OPTIONS, environment=environment)
    webhook = make_webhook(service, receiver.url)["id"]
    service.post(f"/v1/webhooks/{webhook}/test")
    assert len(receiver.wait(lambda messages: messages)) == 1 and not proxy.messages and not proxy.strays
    proxy.close()
    receiver.close()


def test_long_answers_are_cut(new_service):
    """A receiver that never ends holds nothing up, and what it says is not kept."""
    answers = {"/body": (200, {}, b"x" * (1 << 20)), "/headers": (200, {f"X-{n}": "x" * 1000 for n in range(100)}, b"")}
    receiver = Receiver(answer=lambda message: answers[message.path])
    service = new_service(*OPTIONS)
    states = {}
    for path in answers:
        webhook = make_webhook(service, receiver.url.replace("/hook", path))["id"]
        service.post(f"/v1/webhooks/{webhook}/test")
        states[path] = wait_for_delivery(service, webhook, lambda items: items[0]["attempts"] > 0)[0]
    assert states["/body"]["state"] == "delivered" and states["/headers"]["state"] == "pending"
    assert "xxx" not in str(states)
    receiver.close()


def test_a_receiver_that_does_not_answer_in_time(new_service):
    receiver = Receiver(answer=lambda message: time.sleep(5) or 200)
    service = new_service(*OPTIONS, "--webhook-timeout", "1")
    webhook = make_webhook(service, receiver.url)["id"]
    service.post(f"/v1/webhooks/{webhook}/test")
    found = wait_for_delivery(service, webhook, lambda items: items[0]["attempts"] > 0)[0]
    assert found["state"] == "pending" and "Timeout" in found["failure"]
    service.kill()
    receiver.close()
