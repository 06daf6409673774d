"""What tests of jobs share: graphs that take long, and clients that follow a job."""

import http.client
import json
import socket
import time

from conftest import description
from documents import node, ref

PREFER = {"Prefer": "respond-async"}
STATES = ("queued", "running", "succeeded", "failed", "cancelled")


def slow_graph(products, name="slow"):
    """Each product takes some 100 ms or more to validate; to optimise it takes no time, unless that is validated."""
    shaped = {"meta": {"shape": [1024, 1024], "dtype": "float32"}}
    nodes = [node("x", "placeholder", "x", **shaped), node("halved", "call_function", "torch.div", [ref("x"), 2.0], **shaped)]
    for i in range(products):
        last = nodes[-1]["name"]
        nodes.append(node(f"mm_{i}", "call_function", "torch.matmul", [ref(last), ref("x")], **shaped))
    nodes.append(node("output", "output", "output", [ref(nodes[-1]["name"])]))
    return {
        "format": "foldback.graph/1",
        "name": name,
        "nodes": nodes,
        "modules": [{"path": "", "type": "torch.nn.Module"}],
        "tensors": [],
    }


def slow_request(products, name="slow", **more):
    """POST /v1/optimize, whose validation takes that long."""
    graph = slow_graph(products, name)
    return {"graph": graph, "passes": ["ChangeTrueDivToMulByInverse"], "options": {"validate": "graph"}, **more}


FOREVER = 2000  # products
A_WHILE = 20  # more than a second on any machine


def quick_request(name="quick", **more):
    return slow_request(0, name) | {"options": {}} | more


def begin(service, path, body=None, **headers):
    """Sends the request as a job; the job."""
    answer = service.post(path, body, headers=PREFER | headers)
    assert answer.status == 202, answer
    job = answer.json()
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    return job


def get(service, job):
    answer = service.get(f"/v1/jobs/{job['id']}")
    assert answer.status == 200, answer
    return answer.json()


def wait_until(service, job, *states, timeout=600):
    deadline = time.monotonic() + timeout
    while True:
        now = get(service, job)
        if now["state"] in states:
            return now
        assert time.monotonic() < deadline and now["state"] in ("queued", "running"), now
        time.sleep(0.02)


def wait(service, job, timeout=600):
    """The job when it has ended."""
    return wait_until(service, job, "succeeded", "failed", "cancelled", timeout=timeout)


def wait_for_progress(service, job):
    """It runs, and has said so."""
    deadline = time.monotonic() + 600
    while "progress" not in get(service, job):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(service):
    return service.get("/v1/runs", raw_query={"limit": 1000}).json()["items"]


class Events:
    """The events of a job, as an EventSource gets them."""

    def __init__(self, service, job, last_id=None, timeout=600):
        self.socket = socket.create_connection((service.host, service.port), timeout)
        headers = f"Last-Event-ID: {last_id}\r\n" if last_id is not None else ""
        self.socket.sendall(f"GET /v1/jobs/{job['id']}/events HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        self.response = http.client.HTTPResponse(self.socket)
        self.response.begin()
        self.status = self.response.status
        self.last_id = last_id

    def next(self):
        """(number, event, data); None at the end."""
        fields = {}
        while True:
            line = self.response.readline().decode()
            if not line:
                return None
            if line == "\n":
                if "data" in fields:
                    break
                fields = {}
                continue
            if not line.startswith(":"):
                name, value = line.rstrip("\n").split(": ", 1)
                fields[name] = value
        number = int(fields["id"])
        assert self.last_id is None or number > self.last_id, "a number does not ascend"
        self.last_id = number
        data = json.loads(fields["data"])
        if "progress" in data:
            schema = {"$ref": "#/components/schemas/Job.progress"}
            description().check_value(schema, json.dumps(data["progress"]).encode(), "progress")
        return number, fields["event"], data

    def rest(self):
        found = []
        while event := self.next():
            found.append(event)
        return found

    def close(self):
        self.response.close()
        self.socket.close()


def result(service, job):
    return service.get(f"/v1/jobs/{job['id']}/result")


def store(service, graph):
    answer = service.post("/v1/graphs", graph)
    assert answer.status in (200, 201), answer
    return answer.json()["id"]
