"""What schemathesis has to be told about this service."""

import base64
import functools
import hashlib
import json
import math
import os
import pathlib
import random
import re
import urllib.parse

import requests
import schemathesis

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ("MergeLinears/two-branches", "FuseBiasInLinear/chain", "ChangeTrueDivToMulByInverse/operator",
             "FuseBatchNorm/aten-conv2d")
GOLDEN = ROOT / "build" / "golden"  # make golden writes it
PRESETS = ["cleanup", "inference"]
PASSES = sorted(path.name for path in GOLDEN.iterdir() if path.name[0].isupper() and path.name != "Composition") + PRESETS
chance = random.Random(0)
WEIGHTS = ("listTensors", "getTensor", "getWeights", "materializeWeights")
GRAPH = "#/components/schemas/Graph"
DIGEST = re.compile("sha256:[0-9a-f]{64}")


def with_documents(value):
    """A description of a body in which a graph is one of a few."""
    if isinstance(value, list):
        return [with_documents(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("$ref") == GRAPH:
        return {"$ref": GRAPH + ".example"}
    if value.get("$ref") == "#/components/schemas/GraphOrId":
        return {"$ref": GRAPH + ".exampleOrId"}
    return {key: with_documents(item) for key, item in value.items()}


def document_of(name):
    """A golden document; with bytes, so that its weights can be had."""
    document = json.loads((GOLDEN / name / "before.json").read_text())
    for one in document["tensors"]:
        size = 4 * math.prod(one["shape"])
        if one["dtype"] == "float32":
            one["data"] = base64.b64encode(bytes(i % 64 for i in range(size))).decode()
    return document


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Every way of spelling a graph is tried where graphs are stored (POST /v1/graphs). Elsewhere a few graphs, on which passes
    do something, lead further than the many thousand ways of spelling an invalid one; the long run tries those too."""
    if os.environ.get("FOLDBACK_CONTRACT") == "long":
        return
    documents = [document_of(name) for name in DOCUMENTS]
    schemas = raw_schema["components"]["schemas"]
    for name, schema in list(schemas.items()):
        if name.endswith("Request"):
            schemas[name] = with_documents(schema)
    schemas["Pass.name"] = {"enum": PASSES}
    schemas["Graph.example"] = {"enum": documents}
    schemas["Graph.exampleOrId"] = {"anyOf": [{"$ref": GRAPH + ".example"}, {"$ref": GRAPH + ".sha256"}]}
    for path, item in raw_schema["paths"].items():
        for operation in item.values():
            if path != "/v1/graphs" and isinstance(operation, dict) and "requestBody" in operation:
                operation["requestBody"] = with_documents(operation["requestBody"])


@functools.cache
def stored(url):
    """The id of a graph that is there and that no other request names, and a tensor of it."""
    document = document_of(DOCUMENTS[0]) | {"name": "kept"}
    headers = {"Authorization": f"Bearer {os.environ['FOLDBACK_TOKEN']}"}
    answer = requests.post(f"{url.rstrip('/')}/v1/graphs", json=document, headers=headers, timeout=600)
    return answer.json()["id"], document["tensors"][0]["name"]


@schemathesis.hook("before_call")
def know_graphs(context, case, kwargs):
    """An id of a graph is never found by chance: where it is one, it is made to be that of a stored graph, every other time."""
    place = case.path_parameters or {}  # percent-encoded
    said = urllib.parse.unquote(str(place.get("id")))
    if case.operation.definition.raw.get("operationId") not in WEIGHTS or not DIGEST.fullmatch(said):
        return
    if chance.random() < 0.5:
        place["id"], tensor = stored(case.operation.base_url)
        if "name" in place and chance.random() < 0.5:
            place["name"] = tensor


@schemathesis.hook
def before_call(context, case, kwargs):
    """A digest is seldom that of the bytes by chance: where it is one, it is made to be, every other time."""
    places = {"putBlob": case.path_parameters, "startUpload": case.query, "finishUpload": case.query}
    place = places.get(case.operation.definition.raw.get("operationId"))
    said = (place or {}).get("digest")
    if isinstance(case.body, bytes) and isinstance(said, str) and DIGEST.fullmatch(said) and int(said[-1], 16) % 2:
        place["digest"] = "sha256:" + hashlib.sha256(case.body).hexdigest()


class FirstBlock:
    """A stream of events does not end: its first block is taken for the whole."""

    def __init__(self, stream):
        self.stream, self.text = stream, b""

    def read1(self, *args, **options):
        if self.text.endswith(b"\n\n"):
            return b""
        piece = self.stream.read1(*args, **options)
        self.text += piece
        return piece

    def __getattr__(self, name):
        return getattr(self.stream, name)


send = requests.adapters.HTTPAdapter.send


def send_and_take_first_block(self, request, **options):
    response = send(self, request, **options)
    if response.headers.get("Content-Type", "").startswith("text/event-stream"):
        response.raw = FirstBlock(response.raw)
    return response


requests.adapters.HTTPAdapter.send = send_and_take_first_block
