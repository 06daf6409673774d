"""The command line: weights there and back, blobs, downloads that are interrupted."""

import hashlib
import http.server
import json
import os
import pty
import struct
import subprocess
import sys
import threading

import documents
import pytest
import weights_files
from cli import CommandLine, environment
from conftest import binary, is_sanitized
from test_binding import SOURCE, scaled
from test_cli import TOY, foldback, identity, local, optimize  # noqa: F401 (fixtures)

WEIGHTS = documents.FIXTURES / "toy" / "weights.safetensors"
NOWHERE = "sha256:" + 64 * "0"
FIXTURES = [path.parent.name for path in sorted(documents.FIXTURES.glob("*/weights.safetensors"))]


def read_file(path):
    """{name: (dtype, shape, bytes)}"""
    return weights_files.tensors_of(path.read_bytes())


# ---------------------------------------------------------------------------------------------------------- there and back


@pytest.mark.heavy
@pytest.mark.parametrize("name", FIXTURES)
def test_the_file_that_comes_back_is_the_one_that_went_in(foldback, name):
    folder = documents.FIXTURES / name
    bound = foldback("bind", folder / "graph.json", folder / "weights.safetensors", "-o", "bound.json").json()
    assert bound["id"] == identity(foldback.path("bound.json"))
    assert bound["weights"]["bound"] > 0 and bound["weights"]["missing"] == bound["weights"]["extra"] == []
    run = optimize(foldback, "bound.json", "MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse")
    assert foldback("weights", "out.json", "-o", "out.safetensors").out == ""
    foldback("reverse", run["id"], "-o", "back.json")
    assert foldback("weights", "back.json", "-o", "back.safetensors").status == 0
    assert foldback.path("back.safetensors").read_bytes() == (folder / "weights.safetensors").read_bytes()
    assert foldback("weights", run["id"], "-o", "again.safetensors").status == 0  # the result of a run
    assert foldback.path("again.safetensors").read_bytes() == foldback.path("out.safetensors").read_bytes()


def test_merged_weights_are_what_the_graph_says(foldback):
    run = foldback("optimize", TOY, "--weights", WEIGHTS, "-p", "MergeLinears", "-o", "out.json").json()
    assert run["weights"]["bound"] == 32
    foldback("weights", "out.json", "-o", "out.safetensors")
    before, after = read_file(WEIGHTS), read_file(foldback.path("out.safetensors"))
    # head.weight is q.weight, too, and stays; the parts stand one below the other.
    parts = [before[name] for name in ("q.weight", "k.weight", "v.weight")]
    assert after["q-k-v-merged.weight"][2] == b"".join(data for _, _, data in parts)
    untouched = set(before) & set(after)
    assert len(untouched) > 20 and all(before[name] == after[name] for name in untouched)


def test_some_tensors_only(foldback):
    foldback("bind", TOY, WEIGHTS, "-o", "bound.json")
    before = read_file(WEIGHTS)
    assert foldback("weights", "bound.json", "--names", "c1.weight,b1.bias", "--names", "k.weight", "-o", "few").status == 0
    assert read_file(foldback.path("few")) == {name: before[name] for name in ("c1.weight", "b1.bias", "k.weight")}
    assert foldback("weights", "bound.json", "--tied", "each", "-o", "each").status == 0
    each = read_file(foldback.path("each"))
    assert each == {**before, "head.weight": before["q.weight"], "c3.weight": before["c2.weight"]} and len(each) > len(before)
    unknown = foldback("weights", "bound.json", "--names", "c1.weight,nowhere", "-o", "none")
    assert unknown.status == 1 and '"nowhere"' in unknown.err and not foldback.path("none").exists()
    assert foldback("weights", "bound.json", "--tied", "some", "-o", "none").status == 1
    assert not list(foldback.folder.glob("none*"))


def test_a_sharded_model(foldback):
    """The index brings its files with it; alone or in any order they are the same."""
    tensors = read_file(WEIGHTS)
    names = [name for name in tensors if not name.endswith("num_batches_tracked")]
    half = len(names) // 2
    folder = foldback.path("model")
    folder.mkdir()
    for number, part in (("1", names[:half]), ("2", names[half:])):
        (folder / f"part-{number}.safetensors").write_bytes(weights_files.file_of({name: tensors[name] for name in part}))
    index = {"weight_map": {name: f"part-{1 + (i >= half)}.safetensors" for i, name in enumerate(names)}}
    foldback.put("model/model.safetensors.index.json", index)
    bound = foldback("bind", TOY, "model/model.safetensors.index.json").json()
    assert bound["weights"]["bound"] == len(names)
    assert all(name.endswith("num_batches_tracked") for name in bound["weights"]["missing"])
    again = foldback("bind", TOY, "model/part-2.safetensors", "model/part-1.safetensors").json()
    assert again["id"] == bound["id"]
    strict = foldback("bind", TOY, "model/part-1.safetensors", "--strict")
    assert strict.status == 1 and "  missing: " in strict.err

    for mapped in ("../part-1.safetensors", "", 1):
        foldback.put("model/model.safetensors.index.json", {"weight_map": {"a": mapped}})
        assert "is not a file beside it" in foldback("bind", TOY, "model/model.safetensors.index.json").err
    foldback.put("model/model.safetensors.index.json", {})
    assert "weight_map" in foldback("bind", TOY, "model/model.safetensors.index.json").err


def test_only_what_is_lacking_is_sent(service, tmp_path):
    foldback = CommandLine(tmp_path, "--server", service.url)

    digest = identity(WEIGHTS)
    assert foldback("missing", WEIGHTS, NOWHERE).json() == {"missing": [digest, NOWHERE]}
    copy = foldback.put("copy", WEIGHTS.read_bytes())
    sent = foldback("upload", WEIGHTS, copy).json()["items"]
    assert [(one["digest"], one["size"], one["sent"]) for one in sent] == [(digest, 9432, True)] * 2
    assert [one["sent"] for one in foldback("upload", WEIGHTS, copy, WEIGHTS).json()["items"]] == [False] * 2
    assert foldback("missing", copy, digest).json() == {"missing": []}
    for weights in (WEIGHTS, digest):
        assert foldback("optimize", TOY, "--weights", weights, "-p", "DeepCopy").status == 0
        assert foldback("bind", TOY, weights).status == 0
    assert foldback("optimize", TOY, "--weights", digest, "-p", "MergeLinears", "--dry-run").json()["id"] is None
    service.stop()  # a line of the log may follow its answer
    methods = [json.loads(line)["method"] for line in service.log().splitlines() if line.startswith("{")]
    assert methods.count("PUT") == 1


def test_files_of_one_size(local):
    """A store of this process takes a file of a new size before its digest is known."""
    names = [local.put(name, byte * 70000) for name, byte in (("a", b"1"), ("b", b"2"), ("c", b"1"))]
    wanted = [identity(local.folder / name) for name in names]
    first, second = (local("upload", *names, *local.place).json()["items"] for _ in range(2))
    assert [one["digest"] for one in first] == [one["digest"] for one in second] == wanted
    assert [one["sent"] for one in first] == [True, True, False] and not any(one["sent"] for one in second)


def test_blobs_and_garbage(foldback):
    foldback("upload", WEIGHTS, foldback.put("large", bytes(100000)), foldback.put("empty", b""))
    foldback("bind", TOY, WEIGHTS)
    listed = {one["digest"]: one for one in foldback("blobs").json()["items"]}
    assert {one["size"] for one in listed.values()} == {9432, 100000, 0}
    assert listed[identity(WEIGHTS)]["graphs"] == 1
    assert foldback("blobs", "--limit", "2").err == "foldback: there are more than 2; see --limit\n"
    assert foldback("gc").json()["blobs"] == 0  # all are young
    counted = foldback("gc", "--dry-run", "--grace", "0").json()
    assert (counted["blobs"], counted["bytes"], counted["kept"]) == (2, 100000, 1)
    assert len(foldback("blobs").json()["items"]) == 3
    gone = foldback("gc", "--grace", "0").json()
    assert (gone["blobs"], gone["kept"], gone["kept_bytes"]) == (2, 1, 9432)
    assert [one["digest"] for one in foldback("blobs").json()["items"]] == [identity(WEIGHTS)]
    assert foldback("weights", foldback("bind", TOY, WEIGHTS).json()["id"], "-o", "whole").status == 0


# --------------------------------------------------------------------------------------------------------------- downloads


def test_download(foldback):
    for size in (0, 1, 70000, 3_000_000):  # in the database, and as a file
        data = bytes(i * 7 % 251 for i in range(size))
        digest = identity(foldback.path(foldback.put(f"f{size}", data)))
        foldback("upload", f"f{size}")
        foldback.put("got", b"what was there before")
        done = foldback("download", digest, "-o", "got")
        assert (done.status, done.out, done.err) == (0, "", ""), done
        assert foldback.path("got").read_bytes() == data
        assert not list(foldback.folder.glob("*.part"))
    unknown = foldback("download", NOWHERE, "-o", "none")
    assert unknown.status == 1 and NOWHERE in unknown.err and not list(foldback.folder.glob("none*"))
    assert foldback("download", "sha256:xyz", "-o", "none").status == 2


def test_where_it_goes(local):
    graph = local("bind", TOY, WEIGHTS).json()["id"]
    words = [binary(), "weights", graph, *local.place]
    piped = subprocess.run(words, cwd=local.folder, capture_output=True, env=environment())
    assert piped.returncode == 0 and piped.stderr == b"" and piped.stdout == WEIGHTS.read_bytes()
    assert subprocess.run([*words, "-o", "-"], cwd=local.folder, capture_output=True).stdout == piped.stdout
    assert subprocess.run([*words, "-o", "/dev/stdout"], cwd=local.folder, capture_output=True).stdout == piped.stdout
    assert subprocess.run([*words, "-o", "/dev/null"], cwd=local.folder).returncode == 0
    assert not os.path.isfile("/dev/null") and not list(local.folder.glob("*.part"))
    refused = local.on_terminal("weights", graph)
    assert refused.status == 2 and refused.out == "" and "--output" in refused.err
    assert local.on_terminal("weights", graph, "-o", "w", NO_COLOR="1").out == "9.4 kB written to w\n"
    for place, said in (("nowhere/w", "cannot write nowhere/w"), (".", ". is a folder")):
        failed = local("weights", graph, "-o", place)
        assert failed.status == 1 and failed.err.startswith(f"foldback: {said}"), failed
    full = local("weights", graph, "-o", "/dev/full")
    assert full.status == 1 and "No space left" in full.err


class Proxy(http.server.ThreadingHTTPServer):
    """Before a service. Of the body of a GET it passes on `limit` bytes and then closes the connection; with `spoil` it changes
    the last byte. Of the body of a PUT it reads a part and closes. `heard` is [(method, Range)]."""

    def __init__(self, service):
        super().__init__(("127.0.0.1", 0), Handler)
        self.service, self.limit, self.spoil, self.cut_uploads, self.heard = service, None, False, False, []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        proxy = self.server
        proxy.heard.append((self.command, self.headers.get("Range")))
        size = int(self.headers.get("Content-Length") or 0)
        if self.command == "PUT" and proxy.cut_uploads:
            self.rfile.read(size // 2)
            self.close_connection = True
            return
        body = self.rfile.read(size) if size else None
        headers = {name: value for name, value in self.headers.items() if name.lower() in ("range", "content-type")}
        answer = proxy.service.request(self.command, self.path, body, headers)
        self.send_response(answer.status)
        for name in ("content-type", "etag", "content-range", "content-length"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.end_headers()
        data = answer.body
        if self.command == "GET" and proxy.spoil:
            data = data[:-1] + bytes([data[-1] ^ 1])
        if self.command == "GET" and proxy.limit is not None and len(data) > proxy.limit:
            data = data[: proxy.limit]
            self.close_connection = True
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = forward

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy(service):
    proxy = Proxy(service)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    yield proxy
    proxy.shutdown()
    thread.join()
    proxy.server_close()


@pytest.mark.parametrize("what", ["weights", "download"])
def test_an_interrupted_download_is_gone_on_with(proxy, tmp_path, what):
    foldback = CommandLine(tmp_path, "--server", f"http://127.0.0.1:{proxy.server_address[1]}")
    folder = documents.FIXTURES / "bert-tiny"
    whole = (folder / "weights.safetensors").read_bytes()
    bound = foldback("bind", folder / "graph.json", folder / "weights.safetensors").json()
    words = ["weights", bound["id"], "--force"] if what == "weights" else ["download", identity(folder / "weights.safetensors")]
    foldback.put("w", b"an older file")
    proxy.heard.clear()
    proxy.limit = 40000
    for have in (40000, 80000):
        cut = foldback(*words, "-o", "w")
        (part,) = tmp_path.glob("w.*.part")
        assert cut.status == 1 and f"the part that arrived is in {part.name}" in cut.err, cut
        assert part.read_bytes() == whole[:have] and foldback.path("w").read_bytes() == b"an older file"
    proxy.limit = None
    assert foldback(*words, "-o", "w").status == 0
    assert foldback.path("w").read_bytes() == whole and not part.exists()
    assert [heard for heard in proxy.heard if heard[0] == "GET"] == [
        ("GET", None), ("GET", "bytes=40000-"), ("GET", "bytes=80000-")]
    part.write_bytes(whole)  # killed between the last byte and the new name
    proxy.heard.clear()
    assert foldback(*words, "-o", "v").status == 0 and part.exists()
    part.rename(part.with_name(part.name.replace("w.", "u.", 1)))
    proxy.heard.clear()
    assert foldback(*words, "-o", "u").status == 0 and foldback.path("u").read_bytes() == whole
    assert [method for method, _ in proxy.heard] == ["HEAD"]
    assert not list(tmp_path.glob("*.part"))


def test_what_was_left_belongs_to_what_was_asked_for(proxy, tmp_path):
    """The rest of another file is not put behind it."""
    foldback = CommandLine(tmp_path, "--server", f"http://127.0.0.1:{proxy.server_address[1]}")
    graph = foldback("bind", TOY, WEIGHTS).json()["id"]
    proxy.limit = 5000
    assert foldback("weights", graph, "-o", "w").status == 1
    proxy.limit = None
    assert foldback("weights", graph, "--names", "c1.weight,c2.weight,q.weight,k.weight", "-o", "w").status == 0
    before = read_file(WEIGHTS)
    assert foldback.path("w").stat().st_size > 5000
    assert read_file(foldback.path("w")) == {name: before[name] for name in ("c1.weight", "c2.weight", "q.weight", "k.weight")}
    kept = foldback.path("w").read_bytes()
    refused = foldback("weights", graph, "-o", "w")
    assert refused.status == 1 and "--force" in refused.err and foldback.path("w").read_bytes() == kept
    assert foldback("weights", graph, "-o", "w", "--force").status == 0
    assert foldback.path("w").read_bytes() == WEIGHTS.read_bytes()


def test_a_blob_that_was_changed_on_its_way(proxy, tmp_path):
    foldback = CommandLine(tmp_path, "--server", f"http://127.0.0.1:{proxy.server_address[1]}")
    foldback("upload", WEIGHTS)
    proxy.spoil = True
    spoilt = foldback("download", identity(WEIGHTS), "-o", "w")
    assert spoilt.status == 1 and f"not {identity(WEIGHTS)}" in spoilt.err and not list(tmp_path.glob("w*"))


def test_an_upload_that_is_cut_off(proxy, tmp_path):
    foldback = CommandLine(tmp_path, "--server", f"http://127.0.0.1:{proxy.server_address[1]}")
    proxy.cut_uploads = True
    foldback.put("large", os.urandom(3_000_000))
    for words in (["upload", "large"], ["optimize", TOY, "-p", "DeepCopy", "--weights", "large"], ["bind", TOY, "large"]):
        cut = foldback(*words)
        assert cut.status == 1 and cut.out == "" and "did not answer" in cut.err, cut
    assert len(foldback("missing", "large").json()["missing"]) == 1 and foldback("graphs").json()["items"] == []


# ------------------------------------------------------------------------------------------------------------------ memory


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def peak_of(words, folder):
    """Of the whole process, in bytes. Started by a small process: what forks counts as the peak of what it becomes."""
    command = [sys.executable, "-c", MEASURE, binary(), *map(str, words)]
    return int(subprocess.run(command, cwd=folder, env=environment(), check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(is_sanitized(), reason="a sanitizer keeps what was freed")
@pytest.mark.long
def test_files_are_never_whole_in_memory(service, tmp_path):
    rows = 12288
    size = rows * 4096 * 4
    graph = documents.branches(1)
    graph["tensors"] = [{"name": "fc0.weight", "dtype": "float32", "shape": [rows, 4096]}]
    graph["nodes"] = [documents.node("x", "placeholder", "x", []),
                      documents.node("output", "output", "output", [documents.ref("x")])]
    graph["modules"] = [{"path": "", "type": "torch.nn.Module"},
                        {"path": "fc0", "type": "torch.nn.Linear",
                         "config": {"in_features": 4096, "out_features": rows, "bias": False},
                         "parameters": {"weight": "fc0.weight", "bias": None}}]
    entry = {"dtype": "F32", "shape": [rows, 4096], "data_offsets": [0, size]}
    header = json.dumps({"fc0.weight": entry}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with open(tmp_path / "w", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    place = ["--server", service.url]
    peaks = [peak_of(["bind", "graph.json", "w", "-o", "bound.json", *place], tmp_path)]
    peaks += [peak_of(["weights", "bound.json", "-o", "out", *place], tmp_path)]
    assert max(peaks) < size / 4, peaks
    with open(tmp_path / "w", "rb") as one, open(tmp_path / "out", "rb") as other:
        assert hashlib.file_digest(one, "sha256").digest() == hashlib.file_digest(other, "sha256").digest()


# ---------------------------------------------------------------------------------------------------------------- refusals


def test_refusals(foldback):
    optimize(foldback, TOY, "DeepCopy")
    unknown = foldback("weights", TOY, "-o", "none")
    assert unknown.status == 1 and "  c1.weight: bytes-unknown\n" in unknown.err and "foldback bind" in unknown.err
    refused = foldback("bind", TOY, NOWHERE)
    assert refused.status == 1 and f"  blobs: {NOWHERE}\n" in refused.err
    (foldback.folder / "folder").mkdir()
    for name, said in (("nowhere", "No such file"), ("folder", "folder is a folder")):
        for words in (["upload", name], ["bind", TOY, name], ["missing", name],
                      ["optimize", TOY, "-p", "DeepCopy", "--weights", name]):
            refused = foldback(*words)
            assert refused.status == 1 and refused.out == "" and said in refused.err, (words, refused)
    wrong = foldback.put("wrong", weights_files.file_of({"c1.weight": ("float32", [2], bytes(8))}))
    refused = foldback("bind", TOY, wrong)
    assert refused.status == 1 and "  c1.weight: " in refused.err
    refused = foldback("bind", TOY, foldback.put("rubbish", b"rubbish"))
    assert refused.status == 1 and "  at the parameter: weights\n" in refused.err
    for words, said in (
        (["upload"], "it needs FILE..."),
        (["bind", TOY], "it needs GRAPH FILE..."),
        (["upload", NOWHERE], "is a digest"),
        (["optimize", TOY, "-p", "DeepCopy", "--weights", WEIGHTS, "--dry-run"], "foldback upload"),
        (["gc", "--grace", "soon"], "--grace soon"),
        (["weights", TOY, "again"], "too many arguments"),
    ):
        refused = foldback(*words)
        assert refused.status == 2 and refused.out == "" and said in refused.err, (words, refused)
    assert len(foldback("graphs").json()["items"]) == 1


def test_a_graph_that_is_none_is_found_before_files_are_sent(foldback):
    foldback.put("broken.json", {"format": "foldback.graph/1"})
    optimize(foldback, TOY, "DeepCopy")
    for words in (["bind", "broken.json", WEIGHTS], ["optimize", "broken.json", "-p", "DeepCopy", "--weights", WEIGHTS]):
        assert "broken.json is not a valid graph" in foldback(*words).err
    assert foldback("blobs").json()["items"] == []


# ---------------------------------------------------------------------------------------------------------------- progress


def said_on_terminal(folder, words):
    """Standard error on a terminal, standard output in a pipe."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([binary(), *map(str, words)], cwd=folder, stdout=subprocess.PIPE, stderr=theirs,
                               env=environment())
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    process.communicate()
    assert process.returncode == 0
    return said.decode()


def test_progress_is_for_a_terminal(local):
    bind = ["bind", TOY, WEIGHTS, "-o", "bound.json", *local.place]
    for verb in "sending", "reading":  # what the store cannot have is read once, as it is stored
        said = said_on_terminal(local.folder, bind)
        assert f"\r{verb} weights.safetensors    0 %  0 B of 9.4 kB" in said and said.endswith("\r\033[K"), said
    said = said_on_terminal(local.folder, ["weights", "bound.json", "-o", "w\033]0;evil", *local.place])
    assert "\rwriting w?]0;evil  " in said and said.endswith("\r\033[K"), said
    assert local("weights", "bound.json", "-o", "w").err == ""


def test_whose_weights_and_prefix(foldback):
    graph = foldback.put("graph.json", json.dumps(scaled()).encode())
    source = foldback.put("source.safetensors", SOURCE)
    foldback("optimize", graph, "-p", "FoldScaleIntoLinear", "-o", "folded.json")
    refused = foldback("bind", "folded.json", source)
    assert refused.status == 1 and "as: source" in refused.err
    wrong = foldback("bind", "folded.json", source, "--as", "neither")
    assert wrong.status == 1 and "neither" in wrong.err
    for how, expected in (("source", [0.5, 1, 1.5, 2]), ("finished", [1, 2, 3, 4])):
        bound = foldback("bind", "folded.json", source, "--as", how, "--strict").json()
        foldback("weights", bound["id"], "-o", how)
        assert weights_files.numbers(read_file(foldback.path(how))["fc.weight"][2]) == expected
        run = foldback("optimize", "folded.json", "-p", "DeepCopy", "--weights", source, "--as", how).json()
        assert run["weights"]["bound"] == 2
    longer = foldback.put("longer.json", json.dumps(scaled("bert.")).encode())
    refused = foldback("bind", longer, source)
    assert refused.status == 1 and 'prefix "bert."' in refused.err
    assert foldback("bind", longer, source, "--prefix", "bert.", "--strict").json()["weights"]["bound"] == 2
