"""The fixtures were made by a real tracer: programs made of them give the same documents, with shapes, and the same code."""

import inspect
import json
import pathlib

import pytest
import torch
import transformers
from canonical import canonical_bytes, identity
from live import Live
from sample import turn

import foldback

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "tests" / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/graph.json"))


def traced(model, names):
    from transformers.utils.fx import symbolic_trace

    return symbolic_trace(model, names)


def load(name):
    """The document, a module on random weights, and arguments of the shapes that the document says."""
    torch.manual_seed(0)
    document = json.loads((FIXTURES / name / "graph.json").read_text())
    weights = {row["name"]: random_tensor(row) for row in document["tensors"]}
    live = foldback.fx.from_document(document, weights=weights)
    return (
        document,
        live,
        {row["target"]: random_tensor(row["meta"]) for row in document["nodes"] if row["op"] == "placeholder"},
    )


def modules_here(document):
    """Without the option `bias` of a BatchNorm where this version of PyTorch lacks it."""
    if "bias" in inspect.signature(torch.nn.BatchNorm2d).parameters:
        return document["modules"]
    return [{**row, "config": {key: item for key, item in row.get("config", {}).items() if key != "bias"}}
            if "BatchNorm" in row["type"] else row for row in document["modules"]]


def without_data(document):
    """The fixtures were made before buffers that no checkpoint has travelled with documents, and by one version of PyTorch."""
    tensors = [{key: item for key, item in row.items() if key != "data"} for row in document["tensors"]]
    metadata = {key: said.split(" ")[0] if key == "producer" else said for key, said in document["metadata"].items()}
    return canonical_bytes({**document, "modules": modules_here(document), "tensors": tensors, "metadata": metadata})


def random_tensor(row):
    dtype = getattr(torch, row["dtype"])
    if not dtype.is_floating_point:
        return torch.zeros(row["shape"], dtype=dtype)
    is_variance = row.get("name", "").endswith("running_var")
    return (torch.rand(row["shape"]) + 0.5 if is_variance else torch.randn(row["shape"]) * 0.2).to(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name):
    document, live, inputs = load(name)
    assert live.code == (FIXTURES / name / "code.txt").read_text().split("# after ")[0]
    assert identity(document) == json.loads((FIXTURES / "ids.json").read_text())[name]["id"]
    assert without_data(foldback.fx.to_document(live)) == without_data(document)
    for node in live.graph.nodes:
        node.meta.clear()
    again = foldback.fx.to_document(live, *inputs.values())
    for node in again["nodes"]:
        node["meta"].pop("device", None)  # the fixtures are older than the record of devices
    assert without_data(again) == without_data(document)


@pytest.mark.parametrize("name", NAMES)
def test_edits(client, passes, name):
    document, live, inputs = load(name)
    document = {**document, "modules": modules_here(document)}
    with torch.no_grad():
        expected = live(**inputs)
    proof = Live(client, document, live, inputs, expected)
    for item in turn([*passes.each, *passes.presets], NAMES.index(name)):
        proof.prove([item])
    proof.prove(passes.preserving)


def rebuilt(name):
    """Models whose making is known from their fixtures."""
    if name == "bert-tiny":
        config = transformers.BertConfig(
            vocab_size=100,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=64,
        )
        config._attn_implementation = "eager"
        model = transformers.BertModel(config).eval()
        tokens = torch.zeros(2, 16, dtype=torch.int64)
        return traced(model, ["input_ids", "attention_mask", "token_type_ids"]), [tokens] * 3
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[2, 2, 2, 2], layer_type="basic", num_labels=10
    )
    model = transformers.ResNetForImageClassification(config).eval()
    return traced(model, ["pixel_values"]), [torch.randn(2, 3, 32, 32)]


@pytest.mark.parametrize("name", ["bert-tiny", "resnet-tiny"])
def test_models_made_again(name):
    document = json.loads((FIXTURES / name / "graph.json").read_text())
    live, inputs = rebuilt(name)
    made = foldback.fx.to_document(live, *inputs, name=name)
    assert [row["name"] for row in made["nodes"]] == [row["name"] for row in document["nodes"]]
    assert without_data(made) == without_data(document)
