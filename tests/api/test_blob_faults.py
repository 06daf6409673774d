"""Blobs when the disk is full, and when the service dies at any instant: no half blob is ever served, none that was
acknowledged is lost, and what is left behind goes with the garbage. FOLDBACK_KILL_ROUNDS sets how often it dies."""

import hashlib
import http.client
import json
import os
import random
import subprocess
import threading
import time

import buckets
import databases
import jobs
import pytest
from access import bearer, make_token
from blobs import INLINE, collect, digest_of, files, graph_of, is_here, put_blob, some_bytes, stored
from conftest import binary, description
from documents import branches, every_item
from receivers import OPTIONS
from test_http import is_problem
from test_models import put_version
from test_uploads import append, begin, finish, size_of

KILL_ROUNDS = int(os.environ.get("FOLDBACK_KILL_ROUNDS", 30))

# ---- a full disk -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def cramped(small_disk, new_service):
    return new_service(data=small_disk / "data")


def fill(folder):
    """Takes all the room there is."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return path


def fill_log(service, **options):
    """On a full disk: the database's log has some room left. A server's is elsewhere."""
    if databases.IN_USE:
        return
    refused = 0
    for i in range(2000):
        refused = refused + 1 if service.post("/v1/graphs", branches(40, f"more {i}"), **options).status == 507 else 0
        if refused == 5:
            break
    assert refused == 5
    is_problem(service.post("/v1/graphs", branches(40, "more"), **options), 507, "disk-full")


@pytest.mark.heavy
def test_a_blob_that_does_not_fit(cramped):
    small, large = some_bytes(8 << 20), some_bytes(40 << 20)
    digest = stored(cramped, small)
    for _ in range(3):
        is_problem(put_blob(cramped, large), 507, "disk-full")
        assert not is_here(cramped, digest_of(large)) and files(cramped, "uploads") == []
    assert cramped.get(f"/v1/blobs/{digest}").body == small
    assert cramped.get("/readyz").status == 200
    other = some_bytes(8 << 20, "other")
    assert put_blob(cramped, other).status == 201 and cramped.get(f"/v1/blobs/{digest_of(other)}").body == other
    cramped.restart()
    assert [item["digest"] for item in cramped.get("/v1/blobs").json()["items"]] == [digest_of(other), digest]


@pytest.mark.skipif(buckets.IN_USE, reason="large blobs are not on that disk")
def test_a_full_disk_is_freed(cramped, small_disk):
    """By what makes room: deletions and collections, of the service and of the command line."""
    graphs = [cramped.post("/v1/graphs", graph_of([stored(cramped, some_bytes(INLINE * 4, i))], f"g{i}")).json()["id"]
              for i in range(4)]
    assert put_version(cramped, "full", "1", {"graph": graphs[3]}).status == 201
    location = begin(cramped)
    append(cramped, location, some_bytes(1000))
    fill(small_disk)
    fill_log(cramped)
    assert cramped.delete(location).status == 204
    assert cramped.delete("/v1/models/full/versions/1").status == 204
    for graph in graphs[:2]:
        assert cramped.delete(f"/v1/graphs/{graph}").status == 204
    assert collect(cramped)["blobs"] == 2
    assert put_blob(cramped, some_bytes(INLINE * 2, "room")).status == 201
    fill(small_disk)
    assert cramped.stop() == 0
    fill(small_disk)
    command = [binary(), "gc", "--grace", "0", "--data", cramped.data]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["blobs"] == 1, done
    fill(small_disk)
    cramped.start()
    assert cramped.delete(f"/v1/graphs/{graphs[2]}").status == 204 and collect(cramped)["blobs"] == 1


@pytest.mark.heavy
def test_everything_can_be_deleted_on_a_full_disk(small_disk, new_service):
    """Each DELETE that there is: one without the other may be what keeps a graph, or what must not go on."""
    service = new_service(*OPTIONS, data=small_disk / "data")
    secret = make_token(service, "admin", "boss")
    admin = bearer(secret)
    make_token(service, "write", "lost", by=secret)
    assert put_version(service, "full", "1", headers=admin).status == 201
    alias = "/v1/models/full/aliases/live"
    assert service.request("PUT", alias, {"version": "1"}, headers=admin | {"If-None-Match": "*"}).status == 201
    hook = service.post("/v1/webhooks", {"url": "http://127.0.0.1:9009/", "events": ["run.finished"]}, headers=admin)
    graph = service.post("/v1/graphs", branches(2, "alone"), headers=admin)
    run = service.post("/v1/optimize", {"graph": branches(2, "run"), "passes": ["MergeLinears"]}, headers=admin)
    pin = f"/v1/runs/{run.json()['id']}/pin"
    assert service.request("PUT", pin, {}, headers=admin).status in (200, 201)
    job = jobs.begin(service, "/v1/optimize", jobs.slow_request(jobs.FOREVER), **admin)
    upload = service.post("/v1/blobs/uploads", headers=admin).headers["location"]
    fill(small_disk)
    fill_log(service, headers=admin)
    paths = ["/v1/tokens/lost", f"/v1/jobs/{job['id']}", f"/v1/webhooks/{hook.json()['id']}", pin, alias,
             "/v1/models/full/versions/1", upload, f"/v1/graphs/{graph.json()['id']}"]
    assert len(paths) == sum("delete" in one for one in description().document["paths"].values())
    for path in paths:
        answer = service.delete(path, headers=admin | {"If-Match": "*"})
        assert answer.status in (200, 202, 204), (path, answer)
        fill(small_disk)
    assert [service.get(path, headers=admin).status for path in (alias, pin, upload)] == [404] * 3
    assert service.get("/v1/tokens/lost", headers=admin).json()["revoked"]


def test_an_upload_that_does_not_fit(cramped, small_disk):
    data = some_bytes(12 << 20)
    location = begin(cramped)
    append(cramped, location, data[: 2 << 20])
    filler = fill(small_disk)
    is_problem(append(cramped, location, data[2 << 20 : 6 << 20]), 507, "disk-full")
    at = size_of(cramped, location)
    assert 2 << 20 <= at < 6 << 20
    is_problem(finish(cramped, location, digest_of(data), data[at:]), 507, "disk-full")
    filler.unlink()
    at = size_of(cramped, location)
    assert append(cramped, location, data[at : at + 1000]).status == 202
    cramped.restart()
    assert size_of(cramped, location) == at + 1000
    assert finish(cramped, location, digest_of(data), data[at + 1000 :]).status == 201
    assert cramped.get(f"/v1/blobs/{digest_of(data)}").body == data


@pytest.mark.parametrize("size", [0, 100, INLINE, INLINE + 1, 1 << 20])
def test_a_disk_that_is_full_to_the_last_byte(cramped, small_disk, size):
    here = stored(cramped, some_bytes(INLINE * 2, "here"))
    data = some_bytes(size, "last byte")
    filler = fill(small_disk)
    statuses = {put_blob(cramped, some_bytes(size, i)).status for i in range(20)} if size else {put_blob(cramped, data).status}
    assert statuses <= {201, 507}
    if size > INLINE:
        assert statuses == {507}
    statuses = [cramped.post("/v1/blobs/uploads").status for _ in range(20)]
    assert set(statuses) <= {202, 507}
    assert cramped.get("/livez").status == 200 and is_here(cramped, here)
    for item in every_item(cramped, "/v1/blobs"):
        assert digest_of(cramped.get(f"/v1/blobs/{item['digest']}").body) == item["digest"]
    filler.unlink()
    assert put_blob(cramped, data).status in (200, 201)
    assert cramped.get(f"/v1/blobs/{digest_of(data)}").body == data
    collect(cramped)
    assert files(cramped, "uploads") == files(cramped, "blobs") == []


@pytest.mark.heavy
@pytest.mark.skipif(buckets.IN_USE, reason="large blobs are not on that disk")
def test_garbage_makes_room(cramped, small_disk):
    """A disk full of blobs that nothing refers to is a reason to collect, not an obstacle."""
    for i in range(100):
        if put_blob(cramped, some_bytes(1 << 20, i)).status == 507:
            break
    held = len(files(cramped, "blobs"))
    assert 10 < held < 24
    assert collect(cramped)["blobs"] == held
    assert files(cramped, "blobs") == files(cramped, "uploads") == []
    assert put_blob(cramped, some_bytes(12 << 20)).status == 201


# ---- a service that dies -----------------------------------------------------------------------------------------------------


class Client(threading.Thread):
    """Does one thing until the service is gone."""

    def __init__(self, *arguments):
        super().__init__()
        self.arguments, self.failure = arguments, None

    def run(self):
        try:
            while self.step(*self.arguments):
                pass
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            pass  # killed
        except Exception as failure:
            self.failure = failure


class Writer(Client):
    """Brings blobs that a graph refers to; knows which were acknowledged."""

    def __init__(self, service, planned):
        super().__init__(service, list(planned))
        self.acknowledged = []

    def step(self, service, planned):
        if not planned:
            return False
        data = planned.pop()
        assert put_blob(service, data).status in (200, 201)
        self.acknowledged.append(digest_of(data))
        return True


class Littering(Client):
    """Brings blobs that nothing refers to."""

    def step(self, service, chance):
        data = chance.randbytes(chance.choice([10, INLINE, INLINE + 1, 300_000]))
        assert put_blob(service, data).status in (200, 201)
        return True


class Uploader(Client):
    """Sends one of the blobs in parts."""

    def __init__(self, service, data, chance, may_be_collected):
        super().__init__(service, data, chance)
        self.data, self.may_be_collected = data, may_be_collected
        self.location, self.at, self.is_ending, self.is_done = None, 0, False, False

    def step(self, service, data, chance):
        self.location = self.location or begin(service)
        piece = data[self.at : self.at + chance.randrange(1, 100_000)]
        self.is_ending = not piece
        if piece:
            answer = append(service, self.location, piece)
        else:
            answer = finish(service, self.location, digest_of(data))
        if answer.status in (404, 409) and self.may_be_collected:  # it is gone, or about to be
            self.location, self.at = None, 0
            return True
        assert answer.status in (200, 201, 202), answer
        self.at += len(piece)
        self.is_done = not piece
        return bool(piece)


class Reader(Client):
    """What comes whole is right."""

    def step(self, service, digests):
        for digest in digests:
            assert digest_of(service.get(f"/v1/blobs/{digest}").body) == digest
        return bool(digests)


class Sweeper(Client):
    def step(self, service):
        collect(service)
        return True


def everything_served_is_right(service):
    for item in every_item(service, "/v1/blobs", limit=1000):
        got = service.get(f"/v1/blobs/{item['digest']}")
        assert got.status == 200 and len(got.body) == item["size"]
        assert "sha256:" + hashlib.sha256(got.body).hexdigest() == item["digest"]


def go_on(service, uploader):
    """What was acknowledged is there; only when the service died while it made it a blob it may have to be sent again."""
    data, digest = uploader.data, digest_of(uploader.data)
    if service.get(uploader.location).status == 404:
        assert uploader.is_ending
        assert put_blob(service, data).status in (200, 201)
    else:
        at = size_of(service, uploader.location)
        assert at >= uploader.at
        assert finish(service, uploader.location, digest, data[at:]).status in (200, 201)
    assert service.get(f"/v1/blobs/{digest}").body == data


def one_life(service, chance, name, known):
    """A service with clients of all kinds, killed at a random instant. Returns what was acknowledged."""
    planned = [chance.randbytes(chance.choice([0, 500, INLINE, INLINE + 1, 200_000, 1_500_000])) for _ in range(20)]
    in_parts = chance.randbytes(chance.choice([1000, INLINE, 700_000]))
    referred = [digest_of(data) for data in [*planned, in_parts]]
    assert service.post("/v1/graphs", graph_of(referred, name)).status == 201
    is_sweeping = chance.random() < 0.6
    writer = Writer(service, planned)
    uploader = Uploader(service, in_parts, chance, is_sweeping)
    clients = [writer, uploader, Littering(service, random.Random(name)), Reader(service, known[-10:])]
    clients += [Sweeper(service)] if is_sweeping else []
    for client in clients:
        client.start()
    time.sleep(chance.uniform(0, 0.3))
    service.kill()
    for client in clients:
        client.join()
    assert not [client.failure for client in clients if client.failure]
    service.start()
    everything_served_is_right(service)
    if uploader.is_done:
        writer.acknowledged.append(digest_of(in_parts))
    elif uploader.location and not is_sweeping:
        go_on(service, uploader)
    for digest in writer.acknowledged:
        assert is_here(service, digest)
    return writer.acknowledged


@pytest.mark.long
def test_killed_at_any_instant(service):
    seed = int(os.environ.get("FOLDBACK_KILL_SEED", random.randrange(1 << 30)))
    print(f"FOLDBACK_KILL_SEED={seed}")
    chance, acknowledged = random.Random(seed), []
    for i in range(KILL_ROUNDS):
        acknowledged += one_life(service, chance, f"life {i}", acknowledged)
    assert len(acknowledged) > KILL_ROUNDS
    collect(service)
    assert all(is_here(service, digest) for digest in acknowledged)
    everything_served_is_right(service)
    rows = every_item(service, "/v1/blobs", limit=1000)
    assert all(row["graphs"] for row in rows)
    large = {row["digest"][7:] for row in rows if row["size"] > INLINE}
    assert {path.name for path in files(service, "blobs")} == large and files(service, "uploads") == []
    again = collect(service)
    assert [again[name] for name in ("blobs", "uploads", "files")] == [0, 0, 0]


@pytest.mark.shortened
@pytest.mark.heavy
def test_killed_while_it_collects(service):
    """Many blobs go at once: some of them, in any state, and the others at the next time."""
    kept = [stored(service, some_bytes(INLINE + 64 + i, "kept")) for i in range(10)]
    assert service.post("/v1/graphs", graph_of(kept)).status == 201
    for i in range(max(1, KILL_ROUNDS // 6)):
        for j in range(40):
            stored(service, some_bytes(INLINE + 1 if j % 2 else 100, f"{i} {j}"))
        sweeper = Sweeper(service)
        sweeper.start()
        time.sleep(random.uniform(0, 0.05))
        service.kill()
        sweeper.join()
        assert not sweeper.failure
        service.start()
        everything_served_is_right(service)
        assert all(is_here(service, digest) for digest in kept)
    if buckets.IN_USE:
        time.sleep(1)  # it counts seconds: what it got in this one is not older than now
    collect(service)
    assert {path.name for path in files(service, "blobs")} == {digest[7:] for digest in kept}
