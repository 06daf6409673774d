"""Times foldback.optimization beside optimum.fx.optimization, in one run. Prints the table of docs/performance.md.

Needs optimum and transformers 4 (pip install optimum==1.27.0 transformers==4.57.6), and FOLDBACK_BINARY:

    PYTHONPATH=clients/python/src FOLDBACK_BINARY=build/foldback python clients/python/tests/bench_optimum.py [rounds]

Each library has a process of its own, and the two take turns. Every round traces a new BERT-base, which is not timed."""

import gc
import importlib
import json
import statistics
import subprocess
import sys
import time
import warnings

PASSES = ("ChangeTrueDivToMulByInverse", "MergeLinears", "FuseBiasInLinear")


def trace():
    import torch
    import transformers
    from transformers.utils.fx import symbolic_trace

    torch.manual_seed(0)
    config = transformers.BertConfig(use_cache=False, attn_implementation="eager")
    names = ["input_ids", "attention_mask", "token_type_ids"]
    return symbolic_trace(transformers.BertModel(config).eval(), input_names=names, disable_check=True)


def memory(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(key + ":"))


def storages(module):
    held = [*module.parameters(), *module.buffers()]
    return {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in held}


def measure(library):
    module = trace()
    before = storages(module)
    kept = [*module.parameters(), *module.buffers()]  # so that no storage takes the place of one that is gone
    composition = library.compose(*(getattr(library, name)() for name in PASSES))
    gc.collect()
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    idle, start = memory("VmRSS"), time.process_time()
    made = composition(module)
    transform = time.process_time() - start
    grown = memory("VmHWM") - idle
    needed = sum(size for key, size in storages(made).items() if key not in before)
    start = time.process_time()
    composition(made, reverse=True)
    reverse = time.process_time() - start
    assert kept
    return {"transform": transform, "reverse": reverse, "grown": grown, "needed": needed}


def worker(name):
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    library = importlib.import_module(name)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(measure(library)), flush=True)


def main(rounds):
    names = {"Optimum": "optimum.fx.optimization", "foldback": "foldback.optimization"}
    workers = {
        title: subprocess.Popen([sys.executable, __file__, name], stdin=-1, stdout=-1, text=True, bufsize=1)
        for title, name in names.items()
    }
    found = {title: [] for title in names}
    for process in workers.values():
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
    for _ in range(rounds + 1):
        for title, process in workers.items():
            process.stdin.write("\n")
            line = process.stdout.readline()
            while not line.startswith("{"):
                assert line, f"{title} failed"
                line = process.stdout.readline()
            found[title].append(json.loads(line))
    for process in workers.values():
        process.stdin.close()
        process.wait()
    print("| | transform, ms | ratio | reverse, ms | ratio | first transform, ms | memory, MiB | of which the result needs |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for title, rows in found.items():
        cells = []
        for key in ("transform", "reverse"):
            mine, theirs = [row[key] for row in rows[1:]], [row[key] for row in found["Optimum"][1:]]
            ratio = statistics.median(one / other for one, other in zip(mine, theirs, strict=True))
            cells += [f"{statistics.median(mine) * 1e3:.0f}", f"{ratio:.2f}"]
        first = rows[0]
        cells += [f"{first[key] * 1e3:.0f}" for key in ("transform",)]
        print(f"| {title} | {' | '.join(cells)} | {first['grown'] >> 20} | {first['needed'] >> 20} |")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].isdigit():
        worker(sys.argv[1])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
