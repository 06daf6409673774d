"""Whether the service's memory stays level: clients store graphs, optimise, undo, evaluate, upload, bind, run jobs and move
aliases for a given time, while retention and garbage collection remove what is old, and the resident memory is read every few
seconds.

    memory.py BINARY SECONDS [--judge] [-- OPTION ...]     the options go to `foldback serve`

A line of figures for each sample, at the end one that sums up. With --judge it fails when the last quarter of the time needed
over
1.05 times (and 4 MiB more than) the second quarter. The first quarter fills caches."""

import itertools
import json
import math
import pathlib
import random
import re
import shutil
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))

import conftest
from blobs import digest_of
from documents import branches, document
from weights_files import file_of

CLIENTS = 4
SAMPLE_SECONDS = 10
# Small enough to be full soon: what grows after that is not a cache.
OPTIONS = ["--access-log", "off", "--cache", "16M", "--keep-runs", "200", "--gc-interval", "20", "--gc-grace", "20",
           "--job-lifetime", "20"]
FIXTURES = ["toy", "bert-tiny", "gpt2-tiny", "resnet-tiny", "aten-bert", "aten-llama", "bert-base"]
NUMBERS = itertools.count(1)


class Client:
    """Asks one thing after the other on a connection of its own."""

    def __init__(self, service, seed):
        self.service, self.random = service, random.Random(seed)
        self.documents = [json.loads(document(name)) for name in FIXTURES]
        self.connection, self.requests, self.errors = service.connection(120), 0, []
        self.steps = [self.optimize] * 6 + [self.undo] * 3 + [self.read] * 4 + [
            self.upload, self.upload_in_parts, self.bind, self.evaluate, self.job, self.job, self.deploy,
            self.compare, self.refused,
            self.reconnect, self.metrics,
        ]

    def ask(self, method, path, body=None, *statuses, headers=None):
        headers = dict(headers or {})
        if isinstance(body, dict):
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        data = response.read()
        self.requests += 1
        if response.status not in (statuses or (200, 201)):
            self.errors.append((method, path, response.status, data[:300]))
        kind = response.headers.get("Content-Type", "")
        return json.loads(data) if "json" in kind and response.status < 300 else {}

    def fresh(self):
        """A graph that nobody has sent yet."""
        return {**self.random.choice(self.documents), "name": f"soak-{next(NUMBERS)}"}

    def run(self):
        answer = self.ask("POST", "/v1/optimize", {"graph": self.fresh(), "passes": ["MergeLinears"]})
        return answer if "id" in answer else None

    def optimize(self):
        self.run()

    def undo(self):
        run = self.run()
        if run:
            self.ask("POST", f"/v1/runs/{run['id']}/rollback", {})

    def read(self):
        runs = self.ask("GET", "/v1/runs?limit=50").get("items", [])
        if not runs:
            return
        run = self.random.choice(runs)
        # Retention may have removed it since.
        self.ask("GET", f"/v1/graphs/{run['result']}", None, 200, 404)
        self.ask("GET", f"/v1/graphs/{run['result']}/nodes?limit=20", None, 200, 404)
        self.ask("GET", f"/v1/graphs/{run['source']}/code", None, 200, 404, 422, headers={"Accept-Encoding": "zstd"})
        self.ask("GET", f"/v1/runs/{run['id']}?include=graph", None, 200, 404)

    def upload(self):
        data = self.random.randbytes(self.random.choice([1000, 100_000, 3_000_000]))
        self.ask("PUT", f"/v1/blobs/{digest_of(data)}", data)
        self.ask("GET", f"/v1/blobs/{digest_of(data)}", None, 200, 404)

    def upload_in_parts(self):
        data = self.random.randbytes(400_000)
        location = self.ask("POST", "/v1/blobs/uploads", None, 201, 202).get("location")
        if not location:
            return
        self.ask("PATCH", location, data[:200_000], 202)
        self.ask("PUT", f"{location}?digest={digest_of(data)}", data[200_000:], 201, 200)

    def bind(self):
        graph = branches(3, f"weights-{next(NUMBERS)}")
        tensors = {one["name"]: ("float32", one["shape"], self.random.randbytes(4 * math.prod(one["shape"])))
                   for one in graph["tensors"]}
        file = file_of(tensors)
        self.ask("PUT", f"/v1/blobs/{digest_of(file)}", file)
        bound = self.ask("POST", f"/v1/graphs?weights={digest_of(file)}", graph).get("id")
        run = self.ask("POST", "/v1/optimize", {"graph": bound, "passes": ["MergeLinears"]})
        if "result" in run:
            self.ask("GET", f"/v1/graphs/{run['result']}/weights")

    def evaluate(self):
        graph = self.ask("POST", "/v1/graphs", {**self.documents[1], "name": f"evaluated-{next(NUMBERS)}"}).get("id")
        self.ask("POST", f"/v1/graphs/{graph}/evaluate?seed=1&random_weights=true", None, 200, 422)

    def compare(self):
        run = self.ask("POST", "/v1/optimize", {"graph": branches(3, f"compared-{next(NUMBERS)}"), "passes": ["MergeLinears"]})
        if "result" in run:
            self.ask("POST", "/v1/compare", {"a": run["source"], "b": run["result"], "random_weights": True})

    def job(self):
        body = {"graph": self.fresh(), "passes": ["ChangeTrueDivToMulByInverse", "MergeLinears"]}
        self.ask("POST", "/v1/optimize", body, 202, 503, headers={"Prefer": "respond-async"})

    def deploy(self):
        graph = self.ask("POST", "/v1/graphs", self.fresh()).get("id")
        model, number = f"m{self.random.randrange(20)}", next(NUMBERS)
        self.ask("PUT", f"/v1/models/{model}/versions/v{number}", {"graph": graph}, 201, 404)
        self.ask("PUT", f"/v1/models/{model}/aliases/live", {"version": f"v{number}"}, 200, 201, 404, 412, 428)
        self.ask("DELETE", f"/v1/models/{model}/versions/v{number}", None, 200, 204, 404, 409)

    def refused(self):
        self.ask("POST", "/v1/graphs", {"format": "foldback.graph/1", "nodes": [1, 2, 3]}, 422)
        self.ask("GET", "/v1/graphs/sha256:" + "0" * 64, None, 404)

    def reconnect(self):
        self.connection.close()

    def metrics(self):
        self.connection.request("GET", "/metrics")
        self.connection.getresponse().read()
        self.requests += 1

    def go_on(self, until):
        while time.monotonic() < until and len(self.errors) < 20:
            try:
                self.random.choice(self.steps)()
            except OSError as error:
                self.errors.append(repr(error))
                self.connection.close()
                if self.service.process.poll() is not None:
                    return


def memory_of(process):
    """KiB, by kind, from /proc."""
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return {name: int(value) for name, value in re.findall(r"(?m)^(VmRSS|RssAnon|RssFile|RssShmem):\s+(\d+) kB", text)}


def figures_of(service):
    """MiB: what the service itself says it holds."""
    text = service.get("/metrics").body.decode()
    wanted = {"cache": "foldback_cache_bytes", "used": "foldback_memory_used_bytes", "freed": "foldback_memory_free_bytes"}
    found = {name: re.search(rf"(?m)^{metric} (\d+)", text) for name, metric in wanted.items()}
    return {name: int(match[1]) / 2**20 for name, match in found.items() if match}


def main():
    arguments = sys.argv[1:]
    options = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    seconds, is_judged = float(arguments[1]), "--judge" in arguments
    conftest.binary = lambda: pathlib.Path(arguments[0]).resolve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="foldback-memory-"))
    service = conftest.Service(folder / "data", *OPTIONS, *options).start()
    begun = time.monotonic()
    until = begun + seconds
    clients = [Client(service, number) for number in range(CLIENTS)]
    threads = [threading.Thread(target=one.go_on, args=(until,)) for one in clients]
    for thread in threads:
        thread.start()
    samples = []
    while any(thread.is_alive() for thread in threads) and service.process.poll() is None:
        time.sleep(min(SAMPLE_SECONDS, max(1, seconds / 20)))
        found = memory_of(service.process)
        if not found:
            break
        samples.append((time.monotonic() - begun, found["VmRSS"]))
        done, errors = sum(one.requests for one in clients), sum(len(one.errors) for one in clients)
        kinds = " ".join(f"{name} {found[name] / 1024:.1f}" for name in found)
        data = sum(file.stat().st_size for file in folder.rglob("foldback*")) >> 20
        kinds += "".join(f" {name} {value:.1f}" for name, value in figures_of(service).items())
        print(f"{samples[-1][0]:7.0f} s  {done} requests, {errors} errors  MiB: {kinds}  database {data}", flush=True)
    status = service.stop()
    shutil.rmtree(folder, ignore_errors=True)
    for one in clients:
        for error in one.errors[:5]:
            print("error:", error)

    def most(first, last):
        return max(rss for at, rss in samples if first <= at / seconds <= last) / 1024

    early, late = most(0.25, 0.5), most(0.75, 1.1)
    total = sum(one.requests for one in clients)
    print(f"{total} requests in {seconds:.0f} s; resident at most {early:.1f} MiB in the second quarter, {late:.1f} MiB in the "
          "last")
    is_level = late <= max(early * 1.05, early + 4)
    failed = status != 0 or any(one.errors for one in clients) or (is_judged and not is_level)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
