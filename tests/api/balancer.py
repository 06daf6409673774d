"""What a load balancer before replicas does, in a client: each request goes to the next replica; one that does not answer, or
answers 503, is left alone for a moment, and the request is sent once more, to another one."""

import http.client
import json
import threading
import time

LEFT_ALONE = 0.3  # seconds


class NoAnswer(Exception):
    pass


class Balancer:
    """For any number of threads, each with connections of its own that stay open. `retries` a request has at most; `tries`
    counts how many requests took how many."""

    def __init__(self, services, retries=1):
        self.services, self.retries, self.mutex = services, retries, threading.Lock()
        self.turn, self.until, self.tries = 0, [0.0] * len(services), {}
        self.own = threading.local()

    def _choose(self, tried):
        with self.mutex:
            now, count = time.monotonic(), len(self.services)
            order = [(self.turn + step) % count for step in range(1, count + 1)]
            left = [one for one in order if one not in tried] or order
            self.turn = next((one for one in left if self.until[one] <= now), left[0])
            return self.turn

    def _avoid(self, number):
        with self.mutex:
            self.until[number] = time.monotonic() + LEFT_ALONE

    def _send(self, number, method, path, body, headers, timeout):
        service = self.services[number]
        address = (number, service.port)
        kept = self.own.__dict__.setdefault("connections", {})
        connection = kept.pop(address, None) or http.client.HTTPConnection(service.host, service.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            found = answer.read()
        except BaseException:
            connection.close()
            raise
        kept[address] = connection
        return answer.status, answer.headers, found

    def request(self, method, path, body=None, headers=None, timeout=600):
        """(status, headers, body); NoAnswer when the retries did not help either, and the last answer when it is 503."""
        headers, tried, answer = dict(headers or {}), [], None
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        while len(tried) <= self.retries:
            number = self._choose(tried)
            tried.append(number)
            try:
                answer = self._send(number, method, path, body, headers, timeout)
            except (OSError, http.client.HTTPException):
                answer = None
            if answer and answer[0] != 503:
                break
            self._avoid(number)
        with self.mutex:
            self.tries[len(tried)] = self.tries.get(len(tried), 0) + 1
        if answer is None:
            raise NoAnswer(f"{method} {path} was not answered by {tried}")
        return answer
