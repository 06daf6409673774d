"""make bench-archives: a .pt2 archive of 500 MB on its way in, beside openssl dgst of it, and optimised on its way out, beside
cat of the answer's bytes; and the memory of the service. Prints Markdown. Each round does everything once, and a ratio is the
median of those within one round. The same for an ONNX model whose weights are in a file beside it, and for one of 100,000
nodes, beside its own document. Needs the venv of `make test-python`, 12 GB of disk, and room for the archives in the page
cache."""

import argparse
import hashlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

WIDTH = 2896  # a Linear is 33.5 MB
PIECE = 1 << 20
NODES = 100_000


class Stack(torch.nn.Module):
    """Pairs of Linears that read one value, and are merged."""

    def __init__(self, pairs: int) -> None:
        super().__init__()
        self.left = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(pairs))
        self.right = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(pairs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for left, right in zip(self.left, self.right, strict=True):
            x = torch.relu(left(x)) + right(x)
        return x


def make(path: Path, megabytes: int) -> int:
    torch.manual_seed(0)
    program = torch.export.export(Stack(max(1, round(megabytes * 1e6 / (8 * WIDTH * WIDTH)))).eval(), (torch.randn(2, WIDTH),))
    torch.export.save(program, path)
    return path.stat().st_size


class Service:
    def __init__(self, binary: str, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        words = [binary, "serve", "--listen", "127.0.0.1:0", "--data", str(folder), "--access-log", "off", "--gc-interval", "0"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> dict:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body=body, headers={"Content-Type": kind} if body is not None else {})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text)

    def get(self, path: str) -> int:
        """Lets the body go by; its size."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        size, buffer = 0, bytearray(PIECE)
        while count := answer.readinto(buffer):
            size += count
        return size

    def take_in(self, file: Path, query: str = "") -> dict:
        with file.open("rb") as body:
            return self.ask("POST", "/v1/optimize" + query if query else "/v1/graphs", body, "application/zip")

    def forget(self, graph: str) -> None:
        self.ask_empty("DELETE", f"/v1/graphs/{graph}")
        self.ask("POST", "/v1/gc", '{"grace_seconds": 0}')

    def ask_empty(self, method: str, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 204, (method, path, answer.status)

    def memory(self, line: str) -> float:
        """MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(line)[1].split()[0]) / 1024


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def print_speed(binary: str, folder: Path, rounds: int, megabytes: int) -> None:
    file = folder / "model.pt2"
    size = make(file, megabytes)
    times: dict[str, list[float]] = {"openssl": [], "in": [], "cat": [], "out": []}
    with Service(binary, folder / "data") as new, Service(binary, folder / "other") as full:
        run = full.take_in(file, "?pass=MergeLinears")
        path = f"/v1/graphs/{run['result']}/archive"
        made = full.get(path)
        for i in range(rounds + 1):
            graph = ""

            def take_in() -> None:
                nonlocal graph
                graph = new.take_in(file)["id"]

            one = {
                "openssl": seconds(lambda: subprocess.run(["openssl", "dgst", "-sha256", str(file)], check=True,
                                                          stdout=subprocess.DEVNULL)),
                "in": seconds(take_in),
                "cat": seconds(lambda: subprocess.run(f"cat {file} | cat >/dev/null", shell=True, check=True)),
                "out": seconds(lambda: full.get(path)),
            }
            new.forget(graph)
            for name, taken in one.items():
                if i:  # the first one warms up
                    times[name].append(taken)
    ratio = {a: statistics.median(x / y for x, y in zip(times[b], times[a], strict=True))
             for a, b in (("in", "openssl"), ("out", "cat"))}
    best = {name: size / 1e6 / min(taken) for name, taken in times.items()}
    print(f"\nAn archive of {size / 1e6:.0f} MB; MergeLinears; {rounds} rounds\n")
    print("| | MB/s at best | speed, to the row before | target |\n| --- | ---: | ---: | --- |")
    print(f"| `openssl dgst -sha256` of the file, from the page cache | {best['openssl']:.0f} | 1.00 | |")
    print(f"| POST /v1/graphs, which the service has not had | {best['in']:.0f} | {ratio['in']:.2f} | 0.8 |")
    print(f"| `cat` of the file through a pipe | {best['cat']:.0f} | 1.00 | |")
    print(f"| GET …/archive of the optimised graph | {made / 1e6 / min(times['out']):.0f} | {ratio['out']:.2f} | 500 MB/s |")


def print_memory(binary: str, folder: Path, sizes: list[int]) -> None:
    print("\nMemory of a service that takes in, optimises and hands out an archive; *at most* counts mapped pages of files\n")
    print("| archive, MB | idle, MiB | at most, MiB | target |\n| ---: | ---: | ---: | --- |")
    for megabytes in sizes:
        size = make(folder / "model.pt2", megabytes)
        with Service(binary, folder / "data") as service:
            idle = service.memory("VmRSS:")
            run = service.take_in(folder / "model.pt2", "?pass=MergeLinears")
            service.get(f"/v1/graphs/{run['result']}/archive")
            print(f"| {size / 1e6:.0f} | {idle:.0f} | {service.memory('VmHWM:'):.0f} | 100 at 4 GB |", flush=True)


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number: int, data: bytes | int) -> bytes:
    """Of protobuf: a number, or bytes."""
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    return varint(number << 3 | 2) + varint(len(data)) + data


def onnx_model(nodes: list[bytes], weights: list[bytes], last: str, sizes: tuple[int, ...]) -> bytes:
    def value(name: str) -> bytes:
        shape = b"".join(field(1, field(1, size)) for size in sizes)
        return field(1, name.encode()) + field(2, field(1, field(1, 1) + field(2, shape)))

    graph = b"".join([*(field(1, node) for node in nodes), *(field(5, weight) for weight in weights),
                      field(11, value("x")), field(12, value(last))])
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


def onnx_node(operator: str, inputs: list[str], output: str) -> bytes:
    return b"".join(field(1, one.encode()) for one in inputs) + field(2, output.encode()) + field(4, operator.encode())


def print_onnx(binary: str, folder: Path, rounds: int, megabytes: int) -> None:
    """Weights of 1 MiB each, added one after the other."""
    weights, count = folder / "model.data", max(1, round(megabytes * 1e6 / PIECE))
    with weights.open("wb") as file:
        for _ in range(count):
            file.write(os.urandom(PIECE))
    tensors = [b"".join([field(1, 512), field(1, 512), field(2, 1), field(8, f"w{i}".encode()), field(14, 1),
                         *(field(13, field(1, key) + field(2, said))
                           for key, said in ((b"location", b"model.data"), (b"offset", b"%d" % (i * PIECE)),
                                             (b"length", b"%d" % PIECE)))])
               for i in range(count)]
    nodes = [onnx_node("Add", ["x" if i == 0 else f"h{i - 1}", f"w{i}"], f"h{i}") for i in range(count)]
    model = onnx_model(nodes, tensors, f"h{count - 1}", (512, 512))
    digest, own = (f"sha256:{hashlib.sha256(data).hexdigest()}" for data in (weights.read_bytes(), model))
    body = json.dumps({"model": "model.onnx", "files": {"model.onnx": own, "model.data": digest}})
    many = [onnx_node("Relu", ["x" if i == 0 else f"/layer/value_{i - 1}"], f"/layer/value_{i}") for i in range(NODES)]
    large = onnx_model(many, [], f"/layer/value_{NODES - 1}", (512, 512))
    times: dict[str, list[float]] = {"openssl": [], "in": [], "document": [], "nodes": []}
    with Service(binary, folder / "data") as service:
        kept = service.ask("POST", "/v1/graphs", large, "application/onnx")["id"]
        document = json.dumps(service.ask("GET", f"/v1/graphs/{kept}")).encode()
        for i in range(rounds + 1):
            made: list[str] = []

            def take_in(made: list[str] = made) -> None:
                with weights.open("rb") as file:
                    service.ask("PUT", f"/v1/blobs/{digest}", file, "application/octet-stream")
                service.ask("PUT", f"/v1/blobs/{own}", model, "application/octet-stream")
                made.append(service.ask("POST", "/v1/graphs", body, "application/vnd.foldback.files+json")["id"])

            one = {"openssl": seconds(lambda: subprocess.run(["openssl", "dgst", "-sha256", str(weights)], check=True,
                                                             stdout=subprocess.DEVNULL)),
                   "in": seconds(take_in),
                   "document": seconds(lambda: service.ask("POST", "/v1/graphs", document)),
                   "nodes": seconds(lambda: service.ask("POST", "/v1/graphs", large, "application/onnx"))}
            service.forget(made[0])
            for name, taken in one.items():
                if i:
                    times[name].append(taken)
    rate = {name: bytes_ / 1e6 / min(times[name]) for name, bytes_ in (
        ("openssl", count * PIECE), ("in", count * PIECE), ("document", len(document)), ("nodes", len(large)))}
    ratio = {a: statistics.median(x / y for x, y in zip(times[b], times[a], strict=True))
             for a, b in (("in", "openssl"), ("nodes", "document"))}
    print(f"\nAn ONNX model of {count * PIECE / 1e6:.0f} MB in two files, and one of {NODES:,} nodes; {rounds} rounds\n")
    print("| | MB/s at best | speed, to the row before |\n| --- | ---: | ---: |")
    print(f"| `openssl dgst -sha256` of the weights | {rate['openssl']:.0f} | 1.00 |")
    print(f"| PUT of both files, POST of the set | {rate['in']:.0f} | {ratio['in']:.2f} |")
    print(f"| POST of the document, {len(document) / 1e6:.1f} MB | {rate['document']:.0f} | 1.00 |")
    print(f"| POST of the model, {len(large) / 1e6:.1f} MB | {rate['nodes']:.0f} | {ratio['nodes']:.2f} |")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("binary")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--megabytes", type=int, default=500)
    arguments.add_argument("--memory", type=int, nargs="*", default=[100, 500, 2000, 4000])
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir="build") as folder:
        print_speed(given.binary, Path(folder), given.rounds, given.megabytes)
        print_onnx(given.binary, Path(folder), given.rounds, given.megabytes)
        print_memory(given.binary, Path(folder), given.memory)


if __name__ == "__main__":
    sys.exit(main())
