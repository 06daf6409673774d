"""ResNet-50 forward by the reference interpreter and by PyTorch, on one thread each, with the same random weights.

Usage: forward.py evaluate_document. Prints a table in Markdown; the outputs must agree, too."""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "clients/python/src"))

import foldback.fx

ROUNDS = 7
TARGET = 5


def random_weights(document):
    torch.manual_seed(0)
    weights = {}
    for row in document["tensors"]:
        dtype = getattr(torch, row["dtype"])
        shape, name = row["shape"], row["name"]
        if not dtype.is_floating_point:
            weights[name] = torch.zeros(shape, dtype=dtype)
        elif name.endswith("running_var"):
            weights[name] = torch.rand(shape) + 0.5
        else:
            weights[name] = torch.randn(shape) / max(1, torch.Size(shape[1:]).numel()) ** 0.5
    return weights


def measure(live, x):
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        found = live(x)
        times.append((time.perf_counter() - start) * 1e3)
    return times, found


@torch.no_grad()
def main(program):
    torch.set_num_threads(1)
    path = ROOT / "tests/fixtures/resnet50/graph.json"
    document = json.loads(path.read_text())
    weights = random_weights(document)
    live, x = foldback.fx.from_document(document, weights=weights).eval(), torch.randn(1, 3, 224, 224)
    name = document["nodes"][0]["target"]
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{part}.safetensors" for part in ("weights", "inputs", "outputs")]
        save_file(weights, files[0])
        save_file({name: x}, files[1])
        measure(live, x)
        theirs, expected = measure(live, x)
        done = subprocess.run(
            [program, "--rounds", str(ROUNDS), "--weights", files[0], path, files[1], files[2]], capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        ours = [float(line) for line in done.stdout.split()]
        theirs += measure(live, x)[0]
        found = load_file(files[2])["output.0"]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    print("\n### ResNet-50 forward, one thread, weights in memory\n")
    print("| | floor, ms | median, ms | ratio | target |\n| --- | ---: | ---: | ---: | --- |")
    for what, times, target in (("PyTorch", theirs, ""), ("the reference interpreter", ours, f"<= {TARGET}")):
        middle = statistics.median(times)
        print(f"| {what} | {min(times):.1f} | {middle:.1f} | {middle / statistics.median(theirs):.3f} | {target} |")


main(sys.argv[1])
