"""Documents of optimised models as programs again, on tensors from everywhere: right, or refused, and never silently off."""

import copy
import json

import pytest
import torch
from proof import TOLERANCE, tensors_of
from safetensors.torch import load_file, save_file
from test_models import CASES, make

import foldback
from foldback.readings import AmbiguousWeights, structure_of

OPAQUE = "cannot be made into an object|as_="  # what a document cannot hold, a module has
LISTS = [["FoldScaleIntoLinear"], ["FoldNormIntoLinear"], ["FuseBatchNorm"], ["MergeLinears", "FuseBiasInLinear"], ["inference"]]


def call(program, inputs):
    program, inputs = copy.deepcopy((program, inputs))
    torch.manual_seed(0)
    with torch.no_grad():
        return tensors_of([program(**inputs)])


def is_close(results, expected):
    for one, other in zip(results, expected, strict=True):
        tolerance = 10 * TOLERANCE.get(one.dtype, 0)
        scale = max(1.0, float(other.abs().max())) if one.is_floating_point() and other.numel() else 1
        if not torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return False
    return True


def save(state, path):
    """Each tensor alone, as `save_file` wants it."""
    save_file({key: tensor.detach().clone().contiguous() for key, tensor in state.items()}, path)
    return path


class Ways:
    """Everywhere that the tensors of a result may come from; each is right, or refused."""

    def __init__(self, client, document, live, inputs, expected, tmp_path):
        self.client, self.document, self.live, self.inputs, self.tmp_path = client, document, live, inputs, tmp_path
        self.expected = tensors_of([expected])
        self.needs_module = any("$opaque" in json.dumps(row.get("attributes", {})) for row in document["modules"])
        self.source = save(live.state_dict(), tmp_path / "source.safetensors")

    def check(self, result, expects=(), **given):
        """What comes of it: "right", or the error's name."""
        if self.needs_module and "module" not in given:
            with pytest.raises(ValueError, match=OPAQUE):
                foldback.fx.from_document(result, **given)
            return "right"
        try:
            program = foldback.fx.from_document(result, **given)
        except AmbiguousWeights:
            outcome = "ambiguous"
        else:
            assert is_close(call(program, self.inputs), self.expected), given.keys()
            outcome = "right"
        assert outcome in expects, (outcome, given)
        return outcome

    def bind(self, result, file, **how):
        try:
            bound = self.client.bind(result, file, progress=False, **how)
        except foldback.Problem as problem:
            assert problem.code == "ambiguous-weights"
            return "ambiguous"
        if self.needs_module:
            return "right"
        path = self.client.weights(bound["id"], self.tmp_path / "bound.safetensors", progress=False)
        program = foldback.fx.from_document(self.client.graph(bound["id"]), weights=path)
        assert is_close(call(program, self.inputs), self.expected)
        return "right"

    def prove(self, passes):
        run = self.client.optimize(self.document, passes)
        result = self.client.graph(run["result"])
        right, either = {"right"}, {"right", "ambiguous"}
        self.check(result, right, module=self.live)
        self.check(result, right, weights=self.source, as_="source")
        told = self.check(result, either, weights=self.source)
        assert self.bind(run["result"], self.source, as_="source") == "right"
        assert self.bind(run["result"], self.source) == told or self.needs_module
        bound = self.client.optimize(self.document, passes, weights=self.source)
        finished = self.client.weights(bound["result"], self.tmp_path / "finished.safetensors", progress=False)
        self.check(result, right, weights=finished)
        assert self.bind(run["result"], finished) == "right"
        self.check(self.client.graph(bound["result"]), right, weights=finished)
        optimised = foldback.fx.from_document(result, module=self.live)
        state = save(optimised.state_dict(), self.tmp_path / "state.safetensors")
        self.check(result, right, weights=state, as_="finished")
        told = self.check(result, either, weights=state)
        self.check(result, either, weights=load_file(state))
        assert self.bind(run["result"], state, as_="finished") == "right"
        assert self.bind(run["result"], state) == told or self.needs_module
        self.check(result, right, module=optimised)
        return told


@pytest.mark.parametrize("name, dialect", CASES, ids=[f"{name}-{dialect}" for name, dialect in CASES])
def test_model(client, tmp_path, name, dialect):
    ways = Ways(client, *make(name, dialect), tmp_path)
    for passes in LISTS:
        ways.prove(passes)


def test_the_structure_is_the_services(client):
    for case in CASES[:2]:
        stored = client._service.json("POST", "/v1/graphs", make(*case)[0])
        assert structure_of(client.graph(stored["id"])) == stored["structure"]
