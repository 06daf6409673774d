"""Architectures of transformers and of vision, in both dialects: to the service and back, every pass, and undone.

docs/models.md says what each pass found and refused on each; UPDATE=1 writes it anew, and UPDATE=table does so without
proving."""

import collections
import os
import pathlib
import pickle

import pytest
import torch
import transformers
import transformers_models
import vision_models
from live import Live
from sample import turn

import foldback
from foldback import optimization

TABLE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "models.md"
IS_UPDATE = bool(os.environ.get("UPDATE"))


def cases():
    found = []
    for name in transformers_models.MODELS:
        found += [(name, "torch.fx")] if name in transformers_models.TRACED else []
        found.append((name, "torch.export"))
    found += [(f"vision/{name}", dialect) for name in vision_models.MODELS for dialect in ("torch.fx", "torch.export")]
    return found


CASES = cases()
IS_ALL = IS_UPDATE or bool(os.environ.get("FOLDBACK_ALL_MODELS"))
# Models built like another one of the list, which CI tries in their place. FOLDBACK_ALL_MODELS=1 tries each, in both dialects.
SIBLINGS = {
    "bert": ["bert-classifier", "roberta", "xlm-roberta", "electra", "megatron-bert", "layoutlm"],
    "gpt-neox": ["gpt-j"],
    "llama": ["mistral", "qwen2", "phi", "gemma", "stablelm"],
    "vit": ["deit", "dinov2", "beit"],
    "vision/vgg": ["vision/alexnet"],
    "vision/resnet": ["vision/wide-resnet", "vision/regnet"],
    "vision/efficientnet": ["vision/mobilenet"],
}
LEFT_OUT = set() if IS_ALL else {name for names in SIBLINGS.values() for name in names}


def chosen():
    """In CI each model is tried in one dialect, by turns."""
    by_name = {}
    for name, dialect in CASES:
        if name not in LEFT_OUT:
            by_name.setdefault(name, []).append(dialect)
    return [(name, dialect) for place, (name, dialects) in enumerate(by_name.items())
            for dialect in (dialects if IS_ALL else [dialects[place % len(dialects)]])]


CHOSEN = chosen()


def make(name, dialect):
    """The document, a live module, an example of arguments, and what PyTorch gives for them."""
    source = vision_models if name.startswith("vision/") else transformers_models
    model, inputs = source.make(name.removeprefix("vision/"))
    with torch.no_grad():
        expected = model(**inputs)  # before the tracer of transformers, which leaves proxies in some models
    if dialect == "torch.export":
        program = torch.export.export(model, (), inputs)
        live = program.module(check_guards=False)
        document = foldback.export.from_exported_program(program, name=name)
    else:
        live = torch.fx.symbolic_trace(model) if source is vision_models else transformers_models.trace(model, inputs)
        document = foldback.fx.to_document(live, *inputs.values(), name=name)
    return document, live, inputs, expected


def cell(outcome):
    """Found, and refused for which reasons; empty for neither."""
    reasons = collections.Counter(refused["reason"] for refused in outcome["refused"])
    said = [str(outcome["applied"])] if outcome["applied"] else []
    said += [f"{count} refused: {reason}" for reason, count in sorted(reasons.items())]
    return f"{outcome['name']} {', '.join(said)}" if said else ""


def row(name, dialect, nodes, left, cells):
    return f"| {name} | {dialect} | {nodes} | {left} | " + "; ".join(filter(None, cells)) + " |"


ROWS = {}
# Other versions write the models, or export them, in other words.
IS_AS_IN_THE_TABLE = torch.__version__.startswith("2.13.") and transformers.__version__.startswith("4.57.")


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    if IS_UPDATE and ROWS.keys() == set(CASES):
        head = TABLE.read_text().partition("| model |")[0]
        lines = [row("model", "dialect", "nodes", "after `inference`", ["what passes find"]), "|---|---|---:|---:|---|"]
        TABLE.write_text(head + "\n".join(lines + [ROWS[case] for case in CASES]) + "\n")


@pytest.mark.parametrize("name, dialect", CHOSEN, ids=[f"{name}-{dialect}" for name, dialect in CHOSEN])
def test_model(client, passes, name, dialect):
    document, *rest = make(name, dialect)
    graph = client.put_graph(document)
    live = None if os.environ.get("UPDATE") == "table" else Live(client, document, *rest)
    number, cells = CHOSEN.index((name, dialect)), []
    proved = turn(passes.each, number) if live else []
    for pass_ in passes.each:
        (outcome,) = live.prove([pass_]) if pass_ in proved else client.optimize(graph, [pass_])["passes"]
        cells.append(cell(outcome) if isinstance(pass_, str) else "")
    if live:
        for preset in turn(passes.presets, number):
            live.prove([preset])
        live.prove(passes.preserving)
    left = len(client.optimize(graph, ["inference"], include=["graph"])["graph"]["nodes"])
    ROWS[name, dialect] = row(name, dialect, len(document["nodes"]), left, cells)
    if IS_AS_IN_THE_TABLE:
        assert IS_UPDATE or ROWS[name, dialect] in TABLE.read_text().splitlines()


def test_packed_projections_merge(client):
    """Every layer of GPT-2 with cross attention projects the same memory, by addmm with packed weights."""
    live = Live(client, *make("gpt2-cross", "torch.export"))
    for before in ("EliminateCommonSubexpressions", "UnpackLinear", "inference"):
        merged = live.prove([before, "MergeLinears"])[-1]
        assert (merged["name"], merged["applied"]) == ("MergeLinears", 1)


@pytest.mark.parametrize("name", ["bert", "gpt-neo"])
def test_what_was_pickled_is_undone(name):
    """Reading a pickle traces its code anew, and transformers' tracer makes x.size() of x.shape."""
    model, inputs = transformers_models.make(name)
    traced = transformers_models.trace(model, inputs)
    code, nodes = traced.code.strip(), [(node.name, node.op) for node in traced.graph.nodes]
    composed = optimization.compose(optimization.MergeLinears(), optimization.FuseBiasInLinear())
    read = pickle.loads(pickle.dumps(composed(traced)))
    assert [(node.name, node.op, node.target) for node in read.graph.nodes if node.op == "call_function"] == [
        (node.name, node.op, node.target) for node in traced.graph.nodes if node.op == "call_function"]
    composed(read, reverse=True)
    assert read.code.strip() == code and [(node.name, node.op) for node in read.graph.nodes] == nodes


def test_there_are_enough():
    assert len({name for name, _ in CASES}) >= 30
    names = {name for name, _ in CASES}
    for name, siblings in SIBLINGS.items():
        assert names >= {name, *siblings} and name not in LEFT_OUT
