"""What clients were told, and whether it is still so: for tests in which the service is killed, or its calls fail."""

import concurrent.futures
import subprocess

from blobs import digest_of
from conftest import binary


class Ledger:
    """Acknowledged writes: `runs` {id: run}, `versions` {(model, name): graph}, `movements` {(model, alias): [(version after
    it, why)]}, `blobs` {digest: bytes}, `rules` {name: versions}."""

    def __init__(self):
        self.runs, self.versions, self.movements, self.blobs, self.rules = {}, {}, {}, {}, {}

    def run(self, run):
        self.runs[run["id"]] = run

    def moved(self, model, alias, version, why):
        """`why` tells it from the others."""
        self.movements.setdefault((model, alias), []).append((version, why))

    def __len__(self):
        return sum(map(len, (self.runs, self.versions, self.blobs, self.rules))) + sum(map(len, self.movements.values()))

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
        """Every acknowledged movement is in the history, in its order. Others may stand between: those whose client was not told."""
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
        assert answer.status == 200 and answer.body == self.blobs[digest] and digest_of(answer.body) == digest, digest

    def check_rule(self, service, name):
        answer = service.get(f"/v1/transformations/{name}")
        assert answer.status == 200 and answer.json()["version"] >= self.rules[name], answer

    def check(self, service, threads=4):
        """All of it."""
        work = [(self.check_run, run) for run in self.runs.values()]
        work += [(self.check_alias, key) for key in self.movements]
        work += [(self.check_version, key) for key in self.versions]
        work += [(self.check_blob, digest) for digest in self.blobs]
        work += [(self.check_rule, name) for name in self.rules]
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(check, service, what) for check, what in work]:
                done.result()


def check_store(data):
    """`foldback db check` on the data folder of a stopped service: every digest, id and run of it."""
    done = subprocess.run([binary(), "db", "check", "--data", data], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
