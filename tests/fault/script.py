"""The requests that are made while calls fail. A step prepares itself while nothing fails, and says what it asks, which status
is the right answer, and what to remember when it was given."""

import json
import math
import random

import golden
import jobs
from access import bearer, make_token
from blobs import digest_of
from documents import batch_norm_fold, branches
from ledger import Ledger
from weights_files import file_of


class Request:
    def __init__(self, method, path, body=None, headers=None, status=200, told=None):
        self.method, self.path, self.told = method, path, told or (lambda answer: None)
        self.statuses = status if isinstance(status, tuple) else (status,)
        self.headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            self.headers["Content-Type"] = "application/json"
        self.body = body


class Script:
    def __init__(self, service, seed):
        self.service, self.rng, self.ledger, self.number = service, random.Random(seed), Ledger(), 0
        self.cancelling = []
        service.bearer = bearer(make_token(service, "admin", "admin"))
        self.rule = golden.RULES["DivisionToMultiplication"]
        self.graph = self.made(service.post("/v1/graphs", branches(3, "fixed")))["id"]
        self.given = self.ask(self.optimize()).json()
        self.changed = service.get(f"/v1/graphs/{self.given['result']}").json()
        self.conflicting = json.loads(json.dumps(self.changed))
        for one in self.conflicting["modules"]:
            one["training"] = one["training"] or one["path"].endswith("merged")
        self.weights, self.bound = self.model_with_weights()
        body = {"graph": batch_norm_fold(), "passes": ["FuseBatchNorm2dInConv2d"]}
        self.folded = self.made(service.post("/v1/optimize", body))
        self.ledger.run(self.folded)
        for version in ("v0", "v00"):
            self.ask(self.put_version(version))
        self.ask(self.alias())

    @staticmethod
    def made(answer):
        assert answer.status in (200, 201), answer
        return answer.json()

    def ask(self, request):
        """While nothing fails."""
        answer = self.service.request(request.method, request.path, request.body, request.headers)
        assert answer.status in request.statuses, (request.path, answer)
        request.told(answer)
        return answer

    def fresh(self, what):
        self.number += 1
        return f"{what}{self.number}"

    # ---- what there is before ---------------------------------------------------------------------------------------------

    def model_with_weights(self):
        """A new file of weights: its digest, and the optimised graph that reads it."""
        graph = branches(2, "with weights")
        parts = {one["name"]: self.rng.randbytes(4 * math.prod(one["shape"])) for one in graph["tensors"]}
        file = file_of({one["name"]: ("float32", one["shape"], parts[one["name"]]) for one in graph["tensors"]})
        digest = digest_of(file)
        self.ask(Request("PUT", f"/v1/blobs/{digest}", file, status=201))
        self.ledger.blobs[digest] = file
        bound = self.made(self.service.post("/v1/graphs", graph, raw_query={"weights": digest}))["id"]
        run = self.made(self.service.post("/v1/optimize", {"graph": bound, "passes": ["MergeLinears"]}))
        self.ledger.run(run)
        return digest, run["result"]

    # ---- the steps --------------------------------------------------------------------------------------------------------

    def remember_run(self, answer):
        self.ledger.run(answer.json())

    def optimize(self):
        passes = ["ChangeTrueDivToMulByInverse", "MergeLinears", "FuseBiasInLinear"]
        body = {"graph": self.graph, "passes": passes, "note": self.fresh("note")}
        return Request("POST", "/v1/optimize", body, status=201, told=self.remember_run)

    def optimize_document(self):
        body = {"graph": branches(2, self.fresh("new")), "passes": ["MergeLinears"], "options": {"include": ["graph", "code"]}}
        return Request("POST", "/v1/optimize", body, status=201, told=self.remember_run)

    def reverse(self):
        return Request("POST", f"/v1/runs/{self.given['id']}/reverse", {"note": self.fresh("note")}, status=201,
                       told=self.remember_run)

    def merge(self):
        body = {"graph": {**self.changed, "name": self.fresh("changed")}}
        return Request("POST", f"/v1/runs/{self.given['id']}/reverse", body, status=201, told=self.remember_run)

    def conflict(self):
        return Request("POST", f"/v1/runs/{self.given['id']}/reverse", {"graph": self.conflicting}, status=409)

    def rollback(self):
        def told(answer):
            assert answer.json()["result"] == self.given["source"]
            self.remember_run(answer)

        return Request("POST", f"/v1/runs/{self.given['id']}/rollback", {}, status=201, told=told)

    def irreversible(self):
        return Request("POST", f"/v1/runs/{self.folded['id']}/reverse", {}, status=409)

    def in_use(self):
        return Request("DELETE", f"/v1/graphs/{self.given['source']}", status=409)

    def bytes_missing(self):
        return Request("GET", f"/v1/graphs/{self.given['result']}/weights", status=409)

    def put_version(self, name):
        path = f"/v1/models/m/versions/{name}"

        def told(answer):
            self.ledger.versions["m", name] = answer.json()["graph"]

        return Request("PUT", path, {"graph": self.given["result"]}, status=201, told=told)

    def versions(self):
        return self.put_version(self.fresh("v"))

    def alias(self):
        path, known = "/v1/models/m/aliases/live", sorted(name for _, name in self.ledger.versions)
        now = self.service.get(path)
        assert now.status in (200, 404), now
        headers = {"If-Match": now.headers["etag"]} if now.status == 200 else {"If-None-Match": "*"}
        others = [name for name in known if now.status != 200 or name != now.json()["version"]]
        version = others[self.rng.randrange(len(others))]

        why = self.fresh("why")

        def told(answer):
            self.ledger.moved("m", "live", version, why)

        return Request("PUT", path, {"version": version, "why": why}, headers, 200 if now.status == 200 else 201, told)

    def alias_rollback(self):
        """To a version by name: without one, a rollback skips those that the alias was taken back from, until none is left."""
        self.ask(self.alias())
        why, now = self.fresh("why"), self.service.get("/v1/models/m/aliases/live").json()["version"]
        before = sorted({version for version, _ in self.ledger.movements["m", "live"]} - {now})
        version = before[self.rng.randrange(len(before))]

        def told(answer):
            self.ledger.moved("m", "live", answer.json()["version"], why)

        return Request("POST", "/v1/models/m/aliases/live/rollback", {"version": version, "why": why}, status=200, told=told)

    def upload(self, size=100000):
        data = self.rng.randbytes(size)

        def told(answer):
            self.ledger.blobs[digest_of(data)] = data

        return Request("PUT", f"/v1/blobs/{digest_of(data)}", data, status=201, told=told)

    def upload_small(self):
        return self.upload(1000)

    def part(self):
        location = self.service.post("/v1/blobs/uploads").headers["location"]
        return Request("PATCH", location, self.rng.randbytes(200000), status=202)

    def finish(self):
        request, data = self.part(), self.rng.randbytes(5000)
        self.ask(request)
        whole = request.body + data

        def told(answer):
            self.ledger.blobs[digest_of(whole)] = whole

        path = f"{request.path}?digest={digest_of(whole)}"
        return Request("PUT", path, data, status=201, told=told)

    def bind(self):
        path = f"/v1/graphs?weights={self.weights}"
        return Request("POST", path, branches(2, self.fresh("bound")), status=201)

    def read_weights(self):
        return Request("GET", f"/v1/graphs/{self.bound}/weights")

    def read_tensor(self):
        return Request("GET", f"/v1/graphs/{self.bound}/tensors/fc0-fc1-merged.weight")

    def materialize(self):
        _, graph = self.model_with_weights()  # of which nothing is stored yet
        return Request("POST", f"/v1/graphs/{graph}/materialize", {"names": ["fc0-fc1-merged.weight"]}, status=201)

    def evaluate(self):
        return Request("POST", f"/v1/graphs/{self.bound}/evaluate?seed=1")

    def compare(self):
        return Request("POST", "/v1/compare", {"a": self.given["source"], "b": self.given["result"], "random_weights": True})

    def add_rule(self):
        name = self.fresh("Rule")

        def told(answer):
            self.ledger.rules[name] = answer.json()["version"]

        return Request("POST", "/v1/transformations", {**self.rule, "name": name}, status=201, told=told)

    def collect_garbage(self):
        return Request("POST", "/v1/gc", {})

    # jobs

    def settle(self):
        """Waits for the jobs that were acknowledged; what they made is as if it had been answered."""
        for job in [job for job, end in self.ledger.jobs.items() if end is None]:
            found = jobs.wait(self.service, {"id": job})
            self.ledger.jobs[job] = found["state"]
            if found["state"] == "succeeded":
                self.ledger.run(self.service.get(found["location"]).json())

    def submit(self):
        self.settle()

        def told(answer):
            self.ledger.jobs[answer.json()["id"]] = None

        body = {"graph": self.graph, "passes": ["MergeLinears"], "note": self.fresh("note")}
        return Request("POST", "/v1/optimize", body, jobs.PREFER, 202, told)

    def look_at_job(self):
        """While it runs: so what fails may be its own."""
        self.settle()
        job = jobs.begin(self.service, "/v1/optimize", jobs.slow_request(1, self.fresh("slow")))
        self.ledger.jobs[job["id"]] = None
        return Request("GET", f"/v1/jobs/{job['id']}")

    def many(self):
        """One over many graphs, whose result is asked for."""
        self.settle()
        job = self.made_job({"graphs": [self.graph, self.given["result"]], "passes": ["DeepCopy"]})
        jobs.wait(self.service, {"id": job})
        return Request("GET", f"/v1/jobs/{job}/result")

    def made_job(self, body):
        answer = self.service.post("/v1/jobs", body)
        assert answer.status == 202, answer
        return answer.json()["id"]

    def cancel(self):
        for job in self.cancelling:
            self.service.delete(f"/v1/jobs/{job}")
        self.settle()
        job = jobs.begin(self.service, "/v1/optimize", jobs.slow_request(jobs.FOREVER, self.fresh("long")))["id"]
        jobs.wait_until(self.service, {"id": job}, "running")
        self.cancelling = [job]

        def told(answer):
            self.ledger.jobs[job] = "cancelled"
            assert jobs.wait(self.service, {"id": job})["state"] == "cancelled"

        return Request("DELETE", f"/v1/jobs/{job}", status=(200, 202), told=told)

    # tokens

    def new_token(self):
        def told(answer):
            self.ledger.tokens[answer.json()["token"]] = True

        return Request("POST", "/v1/tokens", {"scope": "read", "name": self.fresh("token")}, status=201, told=told)

    def revoke(self):
        name = self.fresh("token")
        secret = make_token(self.service, "read", name, by=self.service.bearer["Authorization"].removeprefix("Bearer "))

        def told(answer):
            self.ledger.tokens[secret] = False

        return Request("DELETE", f"/v1/tokens/{name}", told=told)

    def list_tokens(self):
        return Request("GET", "/v1/tokens")

    # pins and retention

    def pin_of(self, run, method, status, is_pinned):
        self.ledger.pins.pop(run, None)  # until it is answered nobody knows

        def told(answer):
            self.ledger.pins[run] = is_pinned

        return Request(method, f"/v1/runs/{run}/pin", status=status, told=told)

    def pin(self):
        return self.pin_of(self.ask(self.optimize()).json()["id"], "PUT", (200, 201), True)

    def unpin(self):
        run = self.ask(self.optimize()).json()["id"]
        self.ask(self.pin_of(run, "PUT", (200, 201), True))
        return self.pin_of(run, "DELETE", 204, False)

    def retain(self):
        """All that was acknowledged is pinned, and goes on being there; some others go."""
        self.settle()
        for run in self.ledger.runs:
            if not self.ledger.pins.get(run):
                self.ask(self.pin_of(run, "PUT", (200, 201), True))
        for _ in range(3):
            self.made(self.service.post("/v1/optimize",
                                        {"graph": branches(2, self.fresh("loose")), "passes": ["MergeLinears"]}))

        def told(answer):
            assert answer.json()["runs"] >= 2, answer

        return Request("POST", "/v1/gc", {"keep_runs": 1, "grace_seconds": 3600}, told=told)

    def look(self):
        return Request("GET", f"/v1/runs/{self.given['id']}?include=graph")

    def lists(self):
        return Request("GET", f"/v1/graphs/{self.graph}/lineage")

    def diff(self):
        return Request("GET", f"/v1/graphs/{self.given['result']}/diff?base={self.given['source']}")

    def ready(self):
        return Request("GET", "/readyz")


STEPS = [
    Script.optimize, Script.optimize_document, Script.reverse, Script.merge, Script.conflict, Script.irreversible,
    Script.in_use, Script.bytes_missing, Script.rollback, Script.versions, Script.alias, Script.alias_rollback, Script.upload,
    Script.upload_small, Script.part, Script.finish, Script.bind,
    Script.read_weights, Script.read_tensor, Script.materialize, Script.evaluate, Script.compare, Script.add_rule,
    Script.submit, Script.look_at_job, Script.many, Script.cancel, Script.new_token, Script.revoke,
    Script.list_tokens, Script.pin,
    Script.unpin, Script.retain, Script.collect_garbage, Script.look, Script.lists, Script.diff, Script.ready,
]
