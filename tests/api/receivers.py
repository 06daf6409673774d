"""Receivers of webhooks: HTTP servers in this process, which note what comes and answer as they are told. Standard library
only."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import http.server
import json
import socket
import threading
import time

OPTIONS = ("--webhooks", "--webhook-allow", "127.0.0.0/8", "--webhook-allow-http", "--webhook-pause", "1")


def signature(secret, message_id, timestamp, body):
    """Of Standard Webhooks, kind v1."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)).decode()


class Message:
    def __init__(self, path, headers, body):
        self.path, self.headers, self.body = path, headers, body
        self.id, self.timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        self.signatures = headers["webhook-signature"].split(" ")
        self.json = json.loads(body)
        self.type, self.data = self.json["type"], self.json["data"]

    def is_signed_with(self, secret):
        return signature(secret, self.id, self.timestamp, self.body) in self.signatures


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = Message(self.path, dict(self.headers.items()), body)
        with receiver.changed:
            receiver.messages.append(message)
            receiver.changed.notify_all()
        answer = receiver.answer(message)
        status, headers, text = answer if isinstance(answer, tuple) else (answer, {}, b"")
        if status is None:  # hangs up
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):  # a redirect that was followed
        self.server.receiver.strays.append(self.path)
        self.send_error(404)

    def log_message(self, *ignored):
        pass


class Receiver:
    """`answer(message)` is a status, or (status, headers, body), or None in place of the status to hang up."""

    def __init__(self, host="127.0.0.1", port=0, answer=lambda message: 200, context=None):
        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, address):
                pass

            def process_request(self, request, address):  # in the order in which they connected
                with self.receiver.changed:
                    self.receiver.connections += 1
                super().process_request(request, address)

            def shutdown_request(self, request):  # at the end of a connection
                super().shutdown_request(request)
                with self.receiver.changed:
                    self.receiver.connections -= 1
                    self.receiver.changed.notify_all()

        self.answer, self.messages, self.strays = answer, [], []
        self.changed, self.connections = threading.Condition(), 0
        self.server = Server((host, port), Handler)
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.receiver = self
        self.port = self.server.server_port
        self.url = f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def wait(self, is_enough, seconds=600):
        """Waits until that is true of the messages; returns them."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not is_enough(self.messages):
                left = deadline - time.monotonic()
                assert left > 0, [(message.type, message.id) for message in self.messages]
                self.changed.wait(left)
            return list(self.messages)

    def settle(self):
        """Reads all that processes had sent which are dead now: a later one may send the same again."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as last:
            last.request("OPTIONS", "/")
            last.getresponse().read()
        with self.changed:
            assert self.changed.wait_for(lambda: self.connections == 0, 600)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def make_webhook(service, url, headers=None, **more):
    answer = service.post("/v1/webhooks", {"url": url, **more}, headers=headers)
    assert answer.status == 201, answer
    return answer.json()


def wait_for_delivery(service, webhook, is_enough, seconds=600, state=None, headers=None):
    """Waits until that is true of the webhook's deliveries, newest first."""
    deadline = time.monotonic() + seconds
    while True:
        found = service.get(f"/v1/webhooks/{webhook}/deliveries?limit=1000" + (f"&state={state}" if state else ""),
                            headers=headers).json()["items"]
        if is_enough(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
