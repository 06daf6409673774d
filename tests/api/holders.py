"""Every way in which something that names a blob is stored, so that the blob stays, each with bytes that nothing else has; and
whoever collects garbage beside them."""

import io
import itertools
import json
import random
import time
import zipfile

from blobs import INLINE, digest_of, graph_of
from conftest import ROOT
from weights_files import file_of

ARCHIVE = (ROOT / "tests" / "fixtures" / "archives" / "mlp.pt2").read_bytes()
ZIP = {"Content-Type": "application/zip"}
WENT = ((404, "unknown-blob"), (409, "blob-missing"))


class Went(Exception):
    pass


def archive(seed):
    """An archive with an entry more."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(ARCHIVE)) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
        new.writestr(old.namelist()[0].split("/")[0] + "/extra/note", seed)
    return made.getvalue()


def weights(seed, names):
    """A file of safetensors, in half of all cases larger than what is kept in the database."""
    chance = random.Random(seed)
    size = chance.choice([(8, 8), (160, 160)])
    return file_of({f"l.0.self_attn.{one}_proj.weight": ("float32", size, chance.randbytes(4 * size[0] * size[1]))
                    for one in names})


def named(data, seed):
    return graph_of([digest_of(data)], seed)


class Holder:
    """`ask(method, path, body, headers)` sends a request and gives its status and its body. Each way gives the blob's bytes
    when all of it was acknowledged, and raises Went when the blob had gone."""

    def __init__(self, ask, name):
        self.ask, self.name, self.count = ask, name, itertools.count()
        self.ways = {way[5:]: getattr(self, way) for way in dir(self) if way.startswith("hold_")}

    def fresh(self):
        return f"{self.name}-{next(self.count)}"

    def said(self, method, path, body=None, headers=None):
        status, answer = self.ask(method, path, body, headers or {})
        found = json.loads(answer) if answer[:1] == b"{" else {}
        if (status, found.get("code")) in WENT:
            raise Went(found)
        assert status in (200, 201, 202), (method, path, status, answer[:500])
        return found

    def put(self, data):
        self.said("PUT", f"/v1/blobs/{digest_of(data)}", data)
        return digest_of(data)

    # ---- the ways --------------------------------------------------------------------------------------------------------

    def hold_document(self):
        seed = self.fresh()
        data = random.Random(seed).randbytes(random.Random(seed).choice([1000, INLINE + 1000]))
        self.put(data)
        self.said("POST", "/v1/graphs", named(data, seed))
        return data

    def hold_document_again(self):
        """A graph that was deleted comes back."""
        data, seed = self.hold_document(), f"{self.name}-{next(self.count) - 1}"
        graph = self.said("POST", "/v1/graphs", named(data, seed))["id"]
        self.ask("DELETE", f"/v1/graphs/{graph}", None, {})
        self.said("POST", "/v1/graphs", named(data, seed))
        return data

    def hold_version(self):
        seed = self.fresh()
        data = random.Random(seed).randbytes(1000)
        self.put(data)
        self.said("PUT", f"/v1/models/{self.name}/versions/{seed}", {"graph": named(data, seed)})
        return data

    def hold_external(self):
        seed = self.fresh()
        data = random.Random(seed).randbytes(1000)
        self.put(data)
        self.said("POST", "/v1/runs", {"source": named(data, seed), "result": named(data, seed + "-after"), "name": "Mine"})
        return data

    def hold_checkpoint(self):
        data = weights(self.fresh(), "qkv")
        self.said("POST", "/v1/checkpoints", {"weights": [self.put(data)]})
        return data

    def hold_layout(self):
        data = weights(self.fresh(), "qkv")
        graph = self.said("POST", "/v1/checkpoints", {"weights": [self.put(data)]})["id"]
        self.said("POST", "/v1/optimize", {"graph": graph, "passes": ["qkv-fused"]})
        return data

    def bound(self):
        """A graph that is not bound yet, and a file that fits it."""
        seed = self.fresh()
        chance = random.Random(seed)
        more = chance.choice([8, INLINE // 4])
        tensors = {"fc0.weight": ("float32", [4, 4], chance.randbytes(64)), "more": ("float32", [more], bytes(4 * more))}
        return graph_of([], seed), file_of(tensors)

    def hold_weights(self):
        graph, data = self.bound()
        self.said("POST", f"/v1/graphs?weights={self.put(data)}", graph)
        return data

    def hold_weights_run(self):
        graph, data = self.bound()
        self.said("POST", "/v1/optimize", {"graph": graph, "weights": [self.put(data)], "passes": ["MergeLinears"]})
        return data

    def hold_job(self):
        graph, data = self.bound()
        asked = {"graph": graph, "weights": [self.put(data)], "passes": ["MergeLinears"]}
        job = self.said("POST", "/v1/optimize", asked, {"Prefer": "respond-async"})["id"]
        while self.said("GET", f"/v1/jobs/{job}")["state"] in ("queued", "running"):
            time.sleep(0.01)
        self.said("GET", f"/v1/jobs/{job}/result")
        return data

    def hold_archive(self):
        data = archive(self.fresh())
        self.said("POST", f"/v1/graphs?archive={self.put(data)}")
        return data

    def hold_archive_body(self):
        data = archive(self.fresh())
        self.said("POST", "/v1/graphs", data, ZIP)
        return data

    def hold_archive_run(self):
        data = archive(self.fresh())
        self.said("POST", f"/v1/optimize?pass=inference&archive={self.put(data)}")
        return data

    def hold_archive_body_run(self):
        data = archive(self.fresh())
        self.said("POST", "/v1/optimize?pass=inference", data, ZIP)
        return data
