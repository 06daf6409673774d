#!/usr/bin/env python3
"""The main job on real graphs, start to end: optimise a large Llama and roll it back; then upload BERT, optimise it, undo one
pass, reverse the run, deploy by alias, undo the deployment, restart, roll back from disk; then upload weights, optimise and
validate, compare, download weights, and get the same bytes back.

Usage: demo.py BINARY FOLDER. Everything goes over HTTP; each step prints its curl command before its result.
Standard library only.
"""

import difflib
import hashlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time

LLAMA = "deploy/llama-8b.json"
GRAPH = "tests/fixtures/bert-base/graph.json"
WITH_WEIGHTS = "tests/fixtures/resnet-tiny"
PASSES = ["ChangeTrueDivToMulByInverse", "MergeLinears", "FuseBiasInLinear"]
DIFF_LINES = 60

colour = sys.stdout.isatty()


def paint(text, code):
    return f"\033[{code}m{text}\033[0m" if colour else text


def say(text):
    print("\n" + paint("# " + text, "1"))


class Service:
    """foldback serve on a free port."""

    def __init__(self, binary, data):
        self.process = subprocess.Popen(
            [binary, "serve", "--listen", "127.0.0.1:0", "--data", data, "--access-log", "off"],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().strip()
        if not line.startswith("listening on "):
            sys.exit(f"the service did not start: {line!r}")
        self.url = line.removeprefix("listening on ")
        print(line)

    def request(self, method, path, body=None, shown=None, headers=None):
        arguments = f" -X {method}" if method == "PUT" or method != "GET" and body is None else ""
        for name, value in (headers or {}).items():
            arguments += f" -H '{name}: {value}'"
        if body is not None:
            arguments += " " + (shown or f"-d '{body}'")
        print(paint(f"$ curl{arguments} '{self.url}{path}'", "36"))
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        if response.status >= 400:
            sys.exit(f"{response.status}: {data.decode()}")
        return data

    def json(self, *arguments, **keywords):
        return json.loads(self.request(*arguments, **keywords))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=30) != 0:
            sys.exit("the service did not stop cleanly")


def shorten(line, width=150):
    return line if len(line) <= width else line[: width - 1] + "…"


def show_diff(before, after):
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=1))
    for line in lines[:DIFF_LINES]:
        code = {"+": "32", "-": "31", "@": "36"}.get(line[:1], "0")
        print(paint(shorten(line), code))
    if len(lines) > DIFF_LINES:
        print(f"… and {len(lines) - DIFF_LINES} more lines of diff")


def show_passes(run):
    print(f"{'pass':<30}{'exactness':<11}{'reversible':<12}{'applied':>7}{'refused':>9}  why")
    for one in run["passes"]:
        reasons = {}
        for refusal in one["refused"]:
            reasons.setdefault(refusal["reason"], []).append(refusal)
        why = "; ".join(f"{reason} ×{len(refusals)}: {', '.join(refusals[0]['nodes'])}" for reason, refusals in reasons.items())
        print(f"{one['name']:<30}{one['exactness']:<11}{'yes' if one['reversible'] else 'no':<12}"
              f"{one['applied']:>7}{len(one['refused']):>9}  {shorten(why, 90)}")


def check(what, expected, found):
    ok = expected == found
    print(paint(f"{'same' if ok else 'DIFFERENT'}: {what} {found}", "32" if ok else "31"))
    if not ok:
        sys.exit(1)


def sizes(file):
    """What a safetensors file says of itself."""
    tensors = json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])
    tensors.pop("__metadata__", None)
    return f"{len(tensors)} tensors, {len(file)} bytes"


def show_llama(service):
    say("Optimise a Llama of eight billion parameters, exported without its weights (0.6 MB of JSON)")
    with open(LLAMA, "rb") as file:
        body = file.read()
    nodes = len(json.loads(body)["nodes"])
    started = time.monotonic()
    run = service.json("POST", "/v1/optimize?pass=inference&pass=MergeLinears", body, shown=f"--data-binary @{LLAMA}")
    took = time.monotonic() - started
    after = len(service.json("GET", f"/v1/graphs/{run['result']}")["nodes"])
    show_passes({"passes": [one for one in run["passes"] if one["applied"]]})
    print(f"{nodes} nodes became {after} in {took * 1000:.0f} ms")

    say("Roll it back: the id proves that the original returned")
    check("the graph that came back is", run["source"], service.json("POST", f"/v1/runs/{run['id']}/rollback")["result"])


def show_validation(run):
    for one in run["passes"]:
        found = one["validation"]
        print(f"{one['name']}: {found['regions']} regions compared, {len(found['not_evaluated'])} could not be; at most "
              f"{found['max_relative']:.2g} of the largest value apart")
    check("the validation's verdict is", True, run["validation"]["passes"])


def show_weights(service):
    say("Upload a safetensors file as a blob, named by its SHA-256, and bind a ResNet to it")
    with open(f"{WITH_WEIGHTS}/weights.safetensors", "rb") as file:
        weights = file.read()
    blob = "sha256:" + hashlib.sha256(weights).hexdigest()
    service.json("PUT", f"/v1/blobs/{blob}", weights, shown=f"--data-binary @{WITH_WEIGHTS}/weights.safetensors")
    with open(f"{WITH_WEIGHTS}/graph.json", "rb") as file:
        bound = service.json("POST", f"/v1/graphs?weights={blob}", file.read(),
                             shown=f"--data-binary @{WITH_WEIGHTS}/graph.json")
    print(f"bound: {bound['weights']['bound']}, missing: {bound['weights']['missing']}, extra: {bound['weights']['extra']}")

    say("Optimise it, and evaluate what was rewritten before and after: foldback refuses a run that differs")
    run = service.json("POST", "/v1/optimize", json.dumps(
        {"graph": bound["id"], "passes": ["FuseBatchNorm2dInConv2d"], "options": {"validate": "rewrites"}}))
    show_validation(run)

    say("Compare the outputs of both graphs on recorded inputs")
    with open(f"{WITH_WEIGHTS}/io.safetensors", "rb") as file:
        inputs = file.read()
    digest = "sha256:" + hashlib.sha256(inputs).hexdigest()
    service.json("PUT", f"/v1/blobs/{digest}", inputs, shown=f"--data-binary @{WITH_WEIGHTS}/io.safetensors")
    body = json.dumps({"a": run["source"], "b": run["result"], "inputs": digest})
    for one in service.json("POST", "/v1/compare", body)["outputs"]:
        print(f"{one['name']}: at most {one['max_absolute']:.2g} apart, {one['max_relative']:.2g} of the largest value; "
              f"from float64 {one['a_against_float64']['max_relative']:.2g} before and "
              f"{one['b_against_float64']['max_relative']:.2g} after")
        check("the outputs' verdict is", True, one["passes"])

    say("Download the finished weights: foldback computes them while it sends them")
    folded = service.request("GET", f"/v1/graphs/{run['result']}/weights")
    print(f"in:  {sizes(weights)}\nout: {sizes(folded)}, {run['passes'][0]['applied']} BatchNorms folded")

    say("Roll back: the weights are byte for byte the file that was uploaded")
    rollback = service.json("POST", f"/v1/runs/{run['id']}/rollback")
    back = service.request("GET", f"/v1/graphs/{rollback['result']}/weights")
    check("the weights that came back are", blob, "sha256:" + hashlib.sha256(back).hexdigest())


def main():
    binary, data = sys.argv[1], sys.argv[2]
    started = time.monotonic()
    shutil.rmtree(data, ignore_errors=True)
    os.makedirs(os.path.dirname(data) or ".", exist_ok=True)

    say("Start the service: one binary, its data in one folder")
    service = Service(binary, data)
    try:
        show_llama(service)
        say("Upload a traced BERT (12 layers, 464 nodes)")
        with open(GRAPH, "rb") as file:
            graph = service.json("POST", "/v1/graphs", file.read(), shown=f"--data-binary @{GRAPH}")
        print(json.dumps(graph, indent=2))
        before = service.request("GET", f"/v1/graphs/{graph['id']}/code").decode()

        say("Optimise it with three passes, composed left to right")
        body = json.dumps({"graph": graph["id"], "passes": PASSES, "note": "demo"})
        run = service.json("POST", "/v1/optimize", body)
        print(f"run {run['id']}: {run['source'][:19]}… became {run['result'][:19]}…")

        say("See what the passes did, and what they refused")
        show_passes(run)

        say("See what changed in the generated code")
        show_diff(before, service.request("GET", f"/v1/graphs/{run['result']}/code").decode())

        say("List ten of the nodes that MergeLinears marked with its signature")
        marked = service.json("GET", f"/v1/graphs/{run['result']}/nodes?pass=MergeLinears&limit=10")
        for node in marked["items"]:
            print(f"  {node['name']}")

        say("Run MergeLinears again on the result: it refuses, and says why")
        body = json.dumps({"graph": run["result"], "passes": ["MergeLinears"], "options": {"dry_run": True}})
        show_passes(service.json("POST", "/v1/optimize", body))

        say("Undo one pass of three: a run without it gives the same graph")
        body = json.dumps({"passes": ["MergeLinears"]})
        partial = service.json("POST", f"/v1/runs/{run['id']}/reverse", body)
        body = json.dumps({"graph": graph["id"], "passes": [one for one in PASSES if one != "MergeLinears"]})
        fresh = service.json("POST", "/v1/optimize", body)
        check("without MergeLinears it is", fresh["result"], partial["result"])

        say("Reverse all passes: the id proves that the original returned")
        reverse = service.json("POST", f"/v1/runs/{run['id']}/reverse")
        check("the graph that came back is", graph["id"], reverse["result"])

        say("Start an A/B test: deploy version 1, then version 2, the run's result")
        model = "/v1/models/bert"
        service.json("PUT", f"{model}/versions/1", json.dumps({"graph": graph["id"]}))
        service.json("PUT", f"{model}/versions/2", json.dumps({"run": run["id"]}))
        deployed = service.json("PUT", f"{model}/aliases/champion", json.dumps({"version": "1", "who": "ada"}),
                                headers={"If-None-Match": "*"})
        service.json("PUT", f"{model}/aliases/champion", json.dumps({"version": "2", "who": "ada", "why": "A/B test"}),
                     headers={"If-Match": deployed["etag"]})

        say("Version 2 loses: take one pass out of what is deployed, then roll back all of it")
        body = json.dumps({"passes": ["MergeLinears"], "who": "bob", "why": "latency"})
        deployed = service.json("POST", f"{model}/aliases/champion/rollback", body)
        check(f"version {deployed['version']} is", fresh["result"], deployed["graph"])
        body = json.dumps({"version": "1", "who": "bob", "why": "wrong answers"})
        deployed = service.json("POST", f"{model}/aliases/champion/rollback", body)
        check("what a server pulls now is", graph["id"], deployed["graph"])
        for entry in reversed(service.json("GET", f"{model}/aliases/champion/history")["items"]):
            print(f"  {entry['id']}: {entry['action']:<9}{entry['from'] or '':<24} -> {entry['to']:<24}"
                  f"{entry['who'] or '':<5}{entry['why'] or ''}")

        say("Restart the service on the same folder")
        service.stop()
        service = Service(binary, data)

        say("Roll the same run back again, from disk")
        rollback = service.json("POST", f"/v1/runs/{run['id']}/rollback")
        check("the graph that came back is", graph["id"], rollback["result"])
        after = service.request("GET", f"/v1/graphs/{rollback['result']}/code").decode()
        check("its generated code is the code from before:", True, before == after)

        show_weights(service)
    finally:
        service.stop()
    print(f"\ndone in {time.monotonic() - started:.2f} s; the data is in {data}")


if __name__ == "__main__":
    main()
