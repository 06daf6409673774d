"""Edits on live modules, on random programs with ties, frozen weights, repeated calls and writes in place, and on the cases
of the tests with PyTorch."""

import copy
import os
import random

import cases_division  # noqa: F401
import cases_layout  # noqa: F401
import cases_linear  # noqa: F401
import cases_norm  # noqa: F401
import pytest
import torch
from case import COLLECTED
from live import Live
from proof import Tracer
from random_models import random_model
from sample import turn

import foldback

MODELS = int(os.environ.get("FOLDBACK_RANDOM_MODELS", "100"))


def make(client, module, inputs):
    with torch.no_grad():
        expected = copy.deepcopy(module)(*copy.deepcopy(inputs))
    document = foldback.fx.to_document(module, *inputs)
    names = [node.target for node in module.graph.nodes if node.op == "placeholder"]
    return Live(client, document, module, dict(zip(names, inputs)), expected)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(MODELS))
def test_random_model(client, passes, seed):
    live = make(client, *random_model(seed))
    choose = random.Random(seed)
    for _ in range(4):
        live.prove(choose.choices(passes.each, k=choose.randint(1, 5)))


@pytest.mark.parametrize("case", COLLECTED.values(), ids=list(COLLECTED))
def test_case(client, passes, case):
    model, inputs = case.make()
    live = make(client, torch.fx.GraphModule(model, Tracer().trace(model)), inputs)
    choose = random.Random(case.name)
    for known in (passes.preserving, passes.each):
        live.prove(choose.sample(known, len(known)))
    for preset in turn(passes.presets, sorted(COLLECTED).index(case.name)):
        live.prove([preset])
