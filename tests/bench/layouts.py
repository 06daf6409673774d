"""make bench-layouts: `foldback layout apply qkv-fused` of a 4 GB checkpoint, and undo of the result, beside cp and SHA-256 of
the same file from the page cache; the most memory that they took; and the plan for 100,000 tensors. Prints Markdown. Each round
does everything once, and a ratio is the median of those within one round. Needs 16 GB of disk, and room for the files in the
page cache."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

SHA, SYNC, CP = "`openssl dgst -sha256`", "`cp` and fdatasync, as foldback writes files", "`cp`, from the page cache"
HIDDEN, PIECE = 4096, os.urandom(1 << 20)


def write(path: Path, shapes: dict[str, list[int]]) -> int:
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for left in range(at, 0, -len(PIECE)):
            file.write(PIECE[:left])
    return path.stat().st_size


def llama(gigabytes: float) -> dict[str, list[int]]:
    """Blocks of attention with 8 groups, and MLPs."""
    block = {"self_attn.q_proj": HIDDEN, "self_attn.k_proj": 1024, "self_attn.v_proj": 1024, "self_attn.o_proj": HIDDEN,
             "mlp.gate_proj": 14336, "mlp.up_proj": 14336}
    count = max(1, round(gigabytes * 1e9 / (2 * HIDDEN * sum(block.values()))))
    return {f"model.layers.{i}.{name}.weight": [rows, HIDDEN] for i in range(count) for name, rows in block.items()}


def mixture(tensors: int) -> dict[str, list[int]]:
    names = (f"model.layers.{i // 512}.mlp.experts.{i % 512}.{name}_proj.weight" for i in range(tensors // 3)
             for name in ("gate", "up", "down"))
    return {name: [1, 1] for name in names}


def run(*words: object) -> tuple[float, float, float]:
    """Seconds; MiB at most, of which anonymous (the rest are pages of files, which the kernel may take back)."""
    begin, anonymous = time.perf_counter(), 0
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL)
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            anonymous = max(anonymous, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)
        except (OSError, ValueError):
            pass
        time.sleep(0.01)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return seconds, usage.ru_maxrss / 1024, anonymous / 1024


def result_of(binary: str, store: Path) -> str:
    listed = subprocess.run([binary, "run", "list", "--data", store, "--limit", "1"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=True)
    return json.loads(listed.stdout)["items"][0]["result"]


def measure(binary: str, folder: Path, gigabytes: float, rounds: int) -> None:
    model, copy, fused, back, store = (folder / name for name in ("model.safetensors", "copy", "fused", "back", "store"))
    size = write(model, llama(gigabytes))
    apply = [binary, "layout", "apply", "qkv-fused", model, "--data", store, "--output", fused]
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(rounds):
        shutil.rmtree(store, ignore_errors=True)
        for what, words, made in (
            (SHA, ["openssl", "dgst", "-sha256", model], copy),
            (SYNC, ["sh", "-c", 'cp "$0" "$1" && sync -d "$1"', model, copy], copy),
            (CP, ["cp", model, copy], copy),
            ("`layout apply` of a file that the store has not had", apply, fused),
            ("`layout apply` of a file that it has", apply, fused),
            ("`foldback weights` of the result: the fusing alone",
             [binary, "weights", "GRAPH", "--data", store, "--output", fused], fused),
            ("`layout undo` of the result, which the store has not had",
             [binary, "layout", "undo", fused, "--data", store, "--output", back], back),
        ):
            made.unlink(missing_ok=True)
            if "GRAPH" in words:
                words = [result_of(binary, store) if word == "GRAPH" else word for word in words]
            os.sync()  # what is written by now does not count
            rows.setdefault(what, []).append(run(*words))
    references = [max(sha[0], synced[0]) for sha, synced in zip(rows[SHA], rows[SYNC])], [one[0] for one in rows[CP]]
    print(f"\nLlama-like blocks, bfloat16, {size / 1e9:.1f} GB; {rounds} rounds\n")
    print("| | MB/s at best | time, to the longer of the first two | time, to `cp` | at most, MiB | of these anonymous |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for what, measured in rows.items():
        ratios = [statistics.median(one[0] / other for one, other in zip(measured, reference)) for reference in references]
        print(f"| {what} | {size / 1e6 / min(one[0] for one in measured):.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} | "
              f"{max(one[1] for one in measured):.0f} | {max(one[2] for one in measured):.0f} |")


def measure_plan(binary: str, folder: Path) -> None:
    model, tensors = folder / "mixture.safetensors", 99_840
    write(model, mixture(tensors))
    words = [binary, "layout", "apply", "stacked-experts", model, "--set", "experts=512", "--dry-run", "--data",
             folder / "store"]
    measured = [run(*words) for _ in range(5)]
    print(f"\n`layout apply stacked-experts --dry-run` of {tensors} tensors, from start to end: "
          f"{min(one[0] for one in measured):.2f} s, {max(one[1] for one in measured):.0f} MiB; 5 rounds")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="build") as folder:
        measure(asked.binary, Path(folder), asked.gigabytes, asked.rounds)
        measure_plan(asked.binary, Path(folder))


if __name__ == "__main__":
    main()
