"""What clients were told, and whether it is still so: for tests in which the service is killed, or its calls fail."""

import concurrent.futures
import os
import subprocess

import buckets
import jobs
from access import bearer
from blobs import digest_of
from conftest import binary


class Ledger:
    """Acknowledged writes: `runs` {id: run}, `versions` {(model, name): graph}, `movements` {(model, alias): [(version after
    it, why)]}, `blobs` {digest: bytes}, `rules` {name: versions}, `pins` {run: whether it is}, `tokens` {secret: whether it is
    worth something}, `jobs` {id: how it ended, None = not known}."""

    def __init__(self):
        self.runs, self.versions, self.movements, self.blobs, self.rules = {}, {}, {}, {}, {}
        self.pins, self.tokens, self.jobs = {}, {}, {}

    def run(self, run):
        self.runs[run["id"]] = run

    def moved(self, model, alias, version, why):
        """`why` tells it from the others."""
        self.movements.setdefault((model, alias), []).append((version, why))

    def __len__(self):
        each = (self.runs, self.versions, self.blobs, self.rules, self.pins, self.tokens, self.jobs, *self.movements.values())
        return sum(map(len, each))

    # ---- checks ----------------------------------------------------------------------------------------------------------

    def check_run(self, service, run):
        """It is what was said, and what it did rolls back to the graph that it came from."""
        answer = service.get(f"/v1/runs/{run['id']}")
        assert answer.status == 200, (run["id"], answer)
        found = answer.json()
        assert {key: found[key] for key in ("kind", "source", "result", "signature")} == {
            key: run[key] for key in ("kind", "source", "result", "signature")
        }
        if run["kind"] not in ("optimize", "external"):
            return
        back = service.post(f"/v1/runs/{run['id']}/rollback")
        assert back.status == 201 and back.json()["result"] == run["source"], back

    def check_alias(self, service, key):
        """Every acknowledged movement is in the history, in its order. Others may stand between: those whose client was not
        told."""
        model, alias = key
        history, token = [], None
        while True:
            query = {"limit": 1000, **({"page_token": token} if token else {})}
            answer = service.get(f"/v1/models/{model}/aliases/{alias}/history", raw_query=query)
            assert answer.status == 200, answer
            page = answer.json()
            history += page["items"]
            token = page.get("next_page_token")
            if not token:
                break
        history.reverse()  # the oldest first
        assert all(later["from"] == earlier["to"] for earlier, later in zip(history, history[1:]))
        told, written = self.movements[key], [(entry["to"], entry["why"]) for entry in history]
        assert not set(told) - set(written), f"{model}/{alias}: not in its history: {set(told) - set(written)}"
        assert [one for one in written if one in set(told)] == told

    def check_version(self, service, key):
        answer = service.get(f"/v1/models/{key[0]}/versions/{key[1]}")
        assert answer.status == 200 and answer.json()["graph"] == self.versions[key], answer

    def check_blob(self, service, digest):
        answer = service.get(f"/v1/blobs/{digest}")
        assert answer.status == 200, (digest, answer)
        assert answer.body == self.blobs[digest] and digest_of(answer.body) == digest, digest

    def check_rule(self, service, name):
        answer = service.get(f"/v1/transformations/{name}")
        assert answer.status == 200 and answer.json()["version"] >= self.rules[name], answer

    def check_pin(self, service, run):
        answer = service.get(f"/v1/runs/{run}/pin")
        assert answer.status == (200 if self.pins[run] else 404), (run, answer)

    def check_token(self, service, secret):
        answer = service.get("/v1/runs", headers=bearer(secret))
        assert answer.status == (200 if self.tokens[secret] else 401), answer

    def check_job(self, service, job):
        """It has ended, or does: as it was seen to, with a run when it succeeded; one that failed was in trouble itself."""
        found = jobs.wait(service, {"id": job})
        assert self.jobs[job] in (None, found["state"]), found
        if found["state"] == "succeeded":
            self.check_run(service, service.get(found["location"]).json())
        else:
            assert found["state"] == "cancelled" or found["status"] in (500, 503, 507), found

    def check(self, service, threads=4):
        """All of it."""
        work = [(self.check_run, run) for run in self.runs.values()]
        work += [(self.check_alias, key) for key in self.movements]
        work += [(self.check_version, key) for key in self.versions]
        work += [(self.check_blob, digest) for digest in self.blobs]
        work += [(self.check_rule, name) for name in self.rules]
        work += [(self.check_pin, run) for run in self.pins]
        work += [(self.check_token, secret) for secret in self.tokens]
        work += [(self.check_job, job) for job in self.jobs]
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(check, service, what) for check, what in work]:
                done.result()


def check_store(data):
    """`foldback db check` on the data folder of a stopped service: every digest, id and run of it."""
    done = subprocess.run([binary(), "db", "check", "--data", data], capture_output=True, text=True,
                          env={**os.environ, **buckets.CREDENTIALS})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
