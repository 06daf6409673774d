"""Blobs in a bucket: what is where, what fails and how, and that nothing is lost. Against rclone's server and, for a part,
moto's."""

import hashlib
import hmac
import http.client
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.parse

import buckets
import documents
import pytest
from blobs import collect, digest_of, graph_of, is_here, put_blob, some_bytes, stored
from conftest import Service, binary
from test_http import is_problem
from test_runs import optimize
from test_uploads import append, begin, finish, size_of
from test_weights import bind, download, weights_of

pytestmark = pytest.mark.skipif("FOLDBACK_S3_SERVERS" not in os.environ, reason="make test-s3 has servers for this")

LARGE = 40 << 20  # three parts
NO_REDIRECT = {"Prefer": "no-redirect"}


@pytest.fixture(params=["rclone"])
def server(request, tmp_path):
    made = buckets.Server(tmp_path / "root", request.param).start()
    yield made
    made.stop()


@pytest.fixture
def proxy(server):
    made = buckets.Proxy(server)
    yield made
    made.close()


@pytest.fixture
def start(tmp_path, new_service):
    """A service whose blobs are at this URL."""

    def make(url, *options, data=None, environment=None, prefix="store"):
        environment = {**buckets.CREDENTIALS, **(environment or {})}
        return new_service(*buckets.options(url, prefix), *options, data=data, environment=environment)

    return make


def blob_path(digest):
    hexes = digest.removeprefix("sha256:")
    return f"blobs/{hexes[:2]}/{hexes[2:4]}/{hexes}"


def cached(service):
    return sorted(path.name for path in (service.data / "cache").iterdir())


def empty_cache(service):
    for path in (service.data / "cache").iterdir():
        path.unlink()


def read(service, digest, **headers):
    answer = service.get(f"/v1/blobs/{digest}", headers={**NO_REDIRECT, **headers})
    assert answer.status in (200, 206), answer
    return answer.body


def refuses_to_start(data, *options, environment=buckets.CREDENTIALS):
    """What it says."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [binary(), "serve", "--listen", "127.0.0.1:0", "--data", str(data), *options],
        capture_output=True, text=True, timeout=600, env={**bare, **environment},
    )
    assert done.returncode in (1, 2), done
    assert buckets.SECRET not in done.stdout + done.stderr
    return done.stderr


def says_nothing_secret(service):
    log = service.log()
    assert buckets.SECRET not in log and buckets.KEY not in log and "X-Amz-Signature" not in log
    return True


# ---- what is where ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["rclone", "moto"], indirect=True)
def test_bytes_come_back(server, start):
    service = start(server.url)
    sizes = [0, 1, 64 << 10, (64 << 10) + 1, 5 << 20, (16 << 20) - 1, 16 << 20, (16 << 20) + 1, LARGE]
    for size in sizes:
        data = some_bytes(size)
        digest = stored(service, data)
        assert put_blob(service, data).status == 200
        assert read(service, digest) == data  # of the cache
        empty_cache(service)
        assert read(service, digest) == data  # of the bucket
        if size > 3:
            assert read(service, digest, Range="bytes=2-3") == data[2:4]
            assert read(service, digest, Range=f"bytes={size - 2}-") == data[-2:]
    assert not any((service.data / "blobs").rglob("*"))
    service.restart()
    assert read(service, digest_of(some_bytes(LARGE))) == some_bytes(LARGE)
    assert collect(service)["blobs"] == len(sizes)
    assert not is_here(service, digest_of(some_bytes(LARGE))) and says_nothing_secret(service)
    if server.kind == "rclone":
        assert server.objects("store") == []


def test_only_large_blobs_are_there(server, start):
    service = start(server.url)
    small, large = stored(service, b"small"), stored(service, some_bytes(1 << 20))
    assert [path.name for path in server.objects("store")] == [large[7:]] and cached(service) == [large[7:]]
    assert server.objects("store")[0].relative_to(server.folder / "bucket" / "store").as_posix() == blob_path(large)
    assert is_here(service, small)


@pytest.mark.parametrize("cache", ["1", "1G"])
def test_weights_are_computed_of_fetched_blobs(server, start, tmp_path, cache):
    """Through the cache, or past it; a blob that is damaged in the bucket is never computed with."""
    service = start(server.url, "--blobs-cache", cache)
    here = Service(tmp_path / "here")
    here.options, here.environment = [], {}
    here.start()
    made = []
    for one in (here, service):
        graph = bind(one, documents.document("bert-tiny"), weights_of("bert-tiny"))["id"]
        made.append(optimize(one, graph, ["MergeLinears", "FuseBiasInLinear"])["result"])
    assert made[0] == made[1] and len(cached(service)) == (cache == "1G")
    empty_cache(service)
    expected = download(here, made[0])
    here.stop()
    assert download(service, made[0]) == expected and len(cached(service)) == (cache == "1G")
    empty_cache(service)
    [path] = server.objects("store")
    right = path.read_bytes()
    path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))  # as long as before
    is_problem(service.get(f"/v1/graphs/{made[0]}/weights"), 500, "store-corrupt")
    assert cached(service) == []
    path.write_bytes(right)
    assert download(service, made[0]) == expected


def test_the_cache_has_a_limit(server, start):
    service = start(server.url, "--blobs-cache", "3M")
    digests = []
    for number in range(5):
        digests.append(stored(service, some_bytes(1 << 20, number)))
        time.sleep(0.01)
    assert sorted(cached(service)) == sorted(digest[7:] for digest in digests[-3:])
    stored(service, some_bytes(4 << 20))
    assert len(cached(service)) == 3 and len(server.objects("store")) == 6
    assert read(service, digests[0]) == some_bytes(1 << 20, 0)


def test_files_of_before_stay_files(server, start, tmp_path):
    before = Service(tmp_path / "data")
    before.options = []
    before.environment = {}
    before.start()
    old = stored(before, some_bytes(1 << 20))
    before.stop()
    service = start(server.url, data=before.data)
    new = stored(service, some_bytes(2 << 20))
    assert put_blob(service, some_bytes(1 << 20)).status == 200
    assert [path.name for path in server.objects("store")] == [new[7:]]
    assert read(service, old) == some_bytes(1 << 20) and read(service, new) == some_bytes(2 << 20)
    assert collect(service)["blobs"] == 2
    assert not server.objects("store") and not [path for path in (service.data / "blobs").rglob("*") if path.is_file()]


# ---- which bucket -----------------------------------------------------------------------------------------------------------


def test_a_store_stays_with_its_bucket(server, start, tmp_path):
    service = start(server.url)
    digest = stored(service, some_bytes(1 << 20))
    service.stop()
    elsewhere = refuses_to_start(service.data, *buckets.options(server.url, "other"))
    assert "has its blobs in s3://bucket/store" in elsewhere
    taken = refuses_to_start(tmp_path / "second", *buckets.options(server.url, "store"))
    assert "another store has its blobs in s3://bucket/store" in taken
    shutil.rmtree(service.data / "cache")
    again = Service(service.data)
    again.options, again.environment = [], dict(buckets.CREDENTIALS)  # it knows where they are
    again.start()
    assert read(again, digest) == some_bytes(1 << 20)
    again.stop()


def test_a_copy_removes_nothing(server, start, tmp_path):
    service = start(server.url)
    data = some_bytes(1 << 20)
    digest = stored(service, data)
    copy = tmp_path / "copy"
    backup = subprocess.run([binary(), "db", "backup", str(copy), "--data", str(service.data)], capture_output=True, text=True)
    assert backup.returncode == 0, backup
    check = [binary(), "db", "check", "--data", str(copy)]
    done = subprocess.run(check, capture_output=True, text=True, env={**os.environ, **buckets.CREDENTIALS})
    assert done.returncode == 0 and json.loads(done.stdout)["blob_bytes"] == len(data), done
    reader = Service(copy)
    reader.options, reader.environment = [], dict(buckets.CREDENTIALS)
    reader.start()
    try:
        assert read(reader, digest) == data
        assert collect(reader)["blobs"] == 1 and not is_here(reader, digest)
    finally:
        reader.stop()
    assert read(service, digest) == data and len(server.objects("store")) == 1


@pytest.mark.parametrize(
    "url, endpoint, says",
    [
        ("bucket/store", None, "is not s3://BUCKET"),
        ("s3://", None, "is not s3://BUCKET"),
        ("s3://bucket/../store", None, "is not s3://BUCKET"),
        ("s3://bucket/a b", None, "is not s3://BUCKET"),
        ("s3://bucket", "127.0.0.1:1", "is not an endpoint"),
        ("s3://bucket", "ftp://127.0.0.1", "is not an endpoint"),
        ("s3://bucket", "http://user:secret@127.0.0.1", "is not an endpoint"),
    ],
)
def test_malformed_options(tmp_path, url, endpoint, says):
    said = refuses_to_start(tmp_path / "data", "--blobs", url, *(["--blobs-endpoint", endpoint] if endpoint else []))
    assert says in said


def test_no_credentials(tmp_path):
    said = refuses_to_start(tmp_path / "data", *buckets.options("http://127.0.0.1:1", "store"), environment={})
    assert "no credentials" in said
    said = refuses_to_start(
        tmp_path / "data", *buckets.options("http://127.0.0.1:1", "store"), environment={"AWS_ACCESS_KEY_ID": "a"}
    )
    assert "is missing" in said


@pytest.mark.parametrize("wrong", [{"AWS_SECRET_ACCESS_KEY": "wrong"}, {"AWS_ACCESS_KEY_ID": "UNKNOWN"}])
def test_wrong_credentials(server, tmp_path, wrong):
    said = refuses_to_start(tmp_path / "data", *buckets.options(server.url, "store"),
                            environment={**buckets.CREDENTIALS, **wrong})
    assert "403" in said and "check the credentials" in said


def test_wrong_bucket(server, tmp_path):
    said = refuses_to_start(tmp_path / "data", "--blobs", "s3://elsewhere/store", "--blobs-endpoint", server.url)
    assert "NoSuchBucket" in said and "check --blobs" in said
    assert not (tmp_path / "data" / "blobs-at").exists()


def test_credentials_in_a_file(server, start, tmp_path):
    """It is read again for each request: credentials that expire are renewed there."""
    path = tmp_path / "secrets" / "credentials"
    path.parent.mkdir()
    right = f"[default]\naws_access_key_id = {buckets.KEY}\naws_secret_access_key = {buckets.SECRET}\n"
    path.write_text(right)
    file = {"AWS_SHARED_CREDENTIALS_FILE": str(path), "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    service = start(server.url, environment=file)
    stored(service, some_bytes(1 << 20))
    fresh = path.with_name("fresh")
    fresh.write_text(right.replace(buckets.SECRET, "expired"))
    fresh.rename(path)
    is_problem(put_blob(service, some_bytes(2 << 20)), 500, "blobs-refused")
    is_problem(service.get("/readyz"), 503, "blobs-refused")
    fresh.write_text(right)
    fresh.rename(path)
    stored(service, some_bytes(2 << 20))
    assert service.get("/readyz").status == 200 and says_nothing_secret(service)


# ---- downloads --------------------------------------------------------------------------------------------------------------


def follow(location, headers=None):
    url = urllib.parse.urlsplit(location)
    connection = http.client.HTTPConnection(url.netloc, timeout=600)
    connection.request("GET", f"{url.path}?{url.query}", headers=headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.mark.parametrize("server", ["rclone", "moto"], indirect=True)
def test_redirects(server, start):
    service = start(server.url, "--blobs-redirect", "on")
    data = some_bytes(1 << 20)
    digest, small = stored(service, data), stored(service, b"small")
    answer = service.get(f"/v1/blobs/{digest}")
    assert answer.status == 307 and answer.headers["cache-control"] == "no-store" and not answer.body
    location = answer.headers["location"]
    assert follow(location) == (200, data) and location.startswith(f"{server.url}/bucket/store/{blob_path(digest)}?")
    status, part = follow(location, {"Range": "bytes=5-9"})
    assert status in (200, 206) and part == data[5:10]
    if server.kind == "rclone":
        assert follow(location[:-1] + ("0" if location[-1] != "0" else "1"))[0] == 403
    head = service.request("HEAD", f"/v1/blobs/{digest}")
    assert head.status == 200 and head.headers["content-length"] == str(len(data))
    assert read(service, digest) == data and service.get(f"/v1/blobs/{small}").body == b"small"
    assert service.get(f"/v1/blobs/{digest}", headers={"If-None-Match": f'"{digest}"'}).status == 304
    is_problem(service.get("/v1/blobs/sha256:" + "0" * 64), 404, "unknown-blob")
    assert says_nothing_secret(service)


def test_the_public_endpoint_is_signed(server, start):
    service = start(server.url, "--blobs-redirect", "on", "--blobs-public-endpoint", "https://blobs.example.org/")
    location = service.get(f"/v1/blobs/{stored(service, some_bytes(1 << 20))}").headers["location"]
    url = urllib.parse.urlsplit(location)
    query = dict(urllib.parse.parse_qsl(url.query))
    assert url.netloc == "blobs.example.org"
    signature = query.pop("X-Amz-Signature")
    plain = "&".join(f"{name}={urllib.parse.quote(value, safe='-._~')}" for name, value in sorted(query.items()))
    request = f"GET\n{url.path}\n{plain}\nhost:blobs.example.org\n\nhost\nUNSIGNED-PAYLOAD"
    date = query["X-Amz-Date"]
    key = ("AWS4" + buckets.SECRET).encode()
    for part in (date[:8], "us-east-1", "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{date}\n{date[:8]}/us-east-1/s3/aws4_request\n{hashlib.sha256(request.encode()).hexdigest()}"
    assert signature == hmac.digest(key, text.encode(), "sha256").hex()


def test_the_command_line_reads_through_the_service(server, start, tmp_path):
    service = start(server.url, "--blobs-redirect", "on")
    data = some_bytes(1 << 20)
    digest = stored(service, data)
    out = tmp_path / "out"
    done = subprocess.run([binary(), "download", digest, "--output", str(out), "--server", service.url], capture_output=True)
    assert done.returncode == 0, done
    assert out.read_bytes() == data


# ---- faults -----------------------------------------------------------------------------------------------------------------


def times(count, fault, method=None):
    """The fault for the first `count` requests, of this method."""
    left = [count]

    def decide(its_method, path):
        if left[0] and method in (None, its_method) and "list-type" not in path:
            left[0] -= 1
            return fault
        return None

    return decide


@pytest.mark.parametrize(
    "fault", [("status", 503, "SlowDown"), ("status", 500, "InternalError"), ("drop",), ("deaf",), ("cut", 1000), ("slow", 1)]
)
def test_passing_faults_are_not_seen(proxy, start, fault):
    service = start(proxy.url)
    data = some_bytes(LARGE)
    for method in ("HEAD", "PUT", "POST"):
        if method != "HEAD" or fault[0] != "cut":
            proxy.fault = times(2, fault, method)
        blob = data[: LARGE - len(method)]
        digest = stored(service, blob)
        empty_cache(service)
        proxy.fault = times(2, fault, "GET")
        assert hashlib.sha256(read(service, digest)).hexdigest() == digest[7:]
    assert says_nothing_secret(service)


def test_faults_that_last(proxy, start):
    """They are told, with a limit, and nothing is stored; when they have passed all goes on."""
    service = start(proxy.url)
    data = some_bytes(1 << 20)
    kept = stored(service, some_bytes(2 << 20))
    empty_cache(service)
    proxy.fault = lambda method, path: ("status", 503, "SlowDown")
    is_problem(put_blob(service, data), 503, "blobs-unavailable")
    is_problem(service.get(f"/v1/blobs/{kept}"), 503, "blobs-unavailable")
    answer = service.get("/readyz")
    is_problem(answer, 503, "blobs-unavailable")
    assert "SlowDown" in answer.json()["detail"] and service.get("/livez").status == 200
    proxy.fault = lambda method, path: ("status", 403, "RequestTimeTooSkewed")
    answer = service.post("/v1/gc", {"grace_seconds": 3600})
    is_problem(answer, 500, "blobs-refused")
    assert "clock" in answer.json()["detail"]
    proxy.fault = lambda method, path: None
    assert not is_here(service, digest_of(data)) and service.get("/readyz").status == 200
    assert read(service, kept) == some_bytes(2 << 20) and stored(service, data)


def test_another_range_is_no_range(server, proxy, start):
    """A server that ignores Range would give the beginning for the middle."""
    service = start(proxy.url)
    data = some_bytes(3 << 20)
    digest = stored(service, data)
    empty_cache(service)
    path = server.objects("store")[0]
    path.write_bytes(data[:-1])
    is_problem(service.get(f"/v1/blobs/{digest}"), 500, "store-corrupt")
    path.unlink()
    is_problem(service.get(f"/v1/blobs/{digest}"), 500, "store-corrupt")
    assert put_blob(service, data).status == 200 and read(service, digest) == data  # it is put again


def test_unreachable_at_the_start(server, start, tmp_path):
    """The first start must reach it; later ones need not."""
    url = server.url
    server.stop()
    said = refuses_to_start(tmp_path / "data0", *buckets.options(url, "store"))
    assert "cannot be reached" in said
    server.start()
    service = start(url, data=tmp_path / "data0")
    small, large = stored(service, b"small"), stored(service, some_bytes(1 << 20))
    server.stop()
    service.restart()
    assert "the bucket does not answer yet" in service.log()
    is_problem(service.get("/readyz"), 503, "blobs-unavailable")
    assert is_here(service, small) and service.get("/livez").status == 200
    assert read(service, large) == some_bytes(1 << 20)  # of the cache
    server.start()
    assert service.get("/readyz").status == 200 and stored(service, some_bytes(2 << 20))


# ---- crashes and garbage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_killed_in_the_middle_of_an_upload(server, proxy, start):
    """The upload is still there, what the bucket has of it goes, and the same upload can be finished."""
    service = start(proxy.url)
    data = some_bytes(LARGE)
    location = begin(service)
    append(service, location, data)
    reached = threading.Event()

    def fault(method, path):
        if method == "PUT" and "partNumber=3" in path:
            reached.set()
            return ("slow", 3)
        return None

    proxy.fault = fault

    def send():
        try:
            finish(service, location, digest_of(data))
        except (OSError, http.client.HTTPException):
            pass  # killed

    sender = threading.Thread(target=send)
    sender.start()
    assert reached.wait(600)
    service.kill()
    sender.join()
    proxy.fault = lambda method, path: None
    service.start()
    assert size_of(service, location) == LARGE and not is_here(service, digest_of(data))
    time.sleep(1.1)  # the times of uploads there are whole seconds
    assert collect(service, dry_run=True)["uploads"] == 2
    assert finish(service, location, digest_of(data)).status == 201
    assert read(service, digest_of(data)) == data
    assert collect(service, dry_run=True)["uploads"] == 1
    assert collect(service)["uploads"] == 1
    assert collect(service)["uploads"] == 0


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_gc_during_an_upload(proxy, start):
    """Even without a grace period it leaves the parts alone that are being sent."""
    service = start(proxy.url)
    data = some_bytes(LARGE)
    reached, results = threading.Event(), []

    def fault(method, path):
        if method == "PUT" and "partNumber=2" in path:
            reached.set()
            return ("slow", 3)
        return None

    proxy.fault = fault
    sender = threading.Thread(target=lambda: results.append(put_blob(service, data).status))
    sender.start()
    assert reached.wait(600)
    time.sleep(1.1)
    assert collect(service)["uploads"] == 0
    sender.join()
    assert results == [201]
    empty_cache(service)
    assert read(service, digest_of(data)) == data


def test_another_endpoint_is_kept(server, proxy, start, tmp_path):
    """Later starts may leave the endpoint out, or name another one of the same bucket."""
    service = start(server.url)
    digest = stored(service, some_bytes(1 << 20))
    for options in (["--blobs", "s3://bucket/store/"], buckets.options(proxy.url, "store"), ["--blobs", "s3://bucket/store"]):
        service.stop()
        service.options = options
        service.start()
        empty_cache(service)
        assert read(service, digest) == some_bytes(1 << 20)
    assert proxy.seen and f"endpoint {proxy.url}" in (service.data / "blobs-at").read_text()


def test_killed_between_object_and_row(server, proxy, start):
    service = start(proxy.url)
    data = some_bytes(1 << 20)
    digest = digest_of(data)
    arrived = threading.Event()

    def fault(method, path):
        if method == "PUT":
            arrived.set()
            return ("deaf",)  # the object is there, and the service does not hear of it
        return ("status", 503, "SlowDown") if arrived.is_set() else None

    proxy.fault = fault
    sender = threading.Thread(target=lambda: pytest.raises(Exception, put_blob, service, data))
    sender.start()
    assert arrived.wait(600)
    time.sleep(0.3)
    service.kill()
    sender.join()
    proxy.fault = lambda method, path: None
    service.start()
    assert not is_here(service, digest) and len(server.objects("store")) == 1
    assert collect(service, grace=3600)["files"] == 0
    time.sleep(1.1)
    assert collect(service, dry_run=True)["files"] == 1 and len(server.objects("store")) == 1
    assert collect(service)["files"] == 1 and not server.objects("store")
    assert stored(service, data) and read(service, digest) == data


def test_the_sweep_leaves_what_is_not_a_blobs(server, start):
    service = start(server.url)
    stored(service, some_bytes(1 << 20))
    service.post("/v1/graphs", graph_of([digest_of(some_bytes(1 << 20))]))
    other = server.folder / "bucket" / "store" / "blobs" / "notes.txt"
    other.write_text("mine")
    beside = server.folder / "bucket" / "storeroom" / blob_path("sha256:" + "a" * 64)
    beside.parent.mkdir(parents=True)
    beside.write_text("of another store")
    time.sleep(1.1)
    assert collect(service)["files"] == 0
    assert other.exists() and beside.exists() and len(server.objects("store")) == 2


def test_gc_stops_where_another_store_took_over(server, start):
    service = start(server.url)
    stored(service, some_bytes(1 << 20))
    (server.folder / "bucket" / "store" / "foldback-store").write_text("01M85K4BNY2DD10CKC1QN9ST35")
    is_problem(service.post("/v1/gc", {"grace_seconds": 0}), 409, "blobs-taken")
    assert len(server.objects("store")) == 1


def test_a_bucket_that_cannot_remove(proxy, server, start):
    """The row goes first: what remains is swept later."""
    service = start(proxy.url)
    digest = stored(service, some_bytes(1 << 20))
    proxy.fault = lambda method, path: ("status", 403, "AccessDenied") if method == "DELETE" else None
    is_problem(service.post("/v1/gc", {"grace_seconds": 0}), 500, "blobs-refused")
    assert not is_here(service, digest) and len(server.objects("store")) == 1
    proxy.fault = lambda method, path: None
    time.sleep(1.1)
    assert collect(service)["files"] == 1 and not server.objects("store")


def test_blobs_that_come_and_go(server, start):
    """A blob that was answered for is there, however gc and others that put it meet."""
    service = start(server.url)
    failures, ends = [], time.monotonic() + 6
    blobs = [some_bytes(100_000 + number) for number in range(3)]

    def put():
        while time.monotonic() < ends and not failures:
            for data in blobs:
                if put_blob(service, data).status not in (200, 201):
                    failures.append("put")

    def gc():
        while time.monotonic() < ends and not failures:
            collect(service)

    def watched(work):
        try:
            work()
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=watched, args=(work,)) for work in (put, put, gc, gc)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    empty_cache(service)
    for item in service.get("/v1/blobs").json()["items"]:
        assert digest_of(read(service, item["digest"])) == item["digest"]
    for data in blobs:
        assert read(service, stored(service, data)) == data
