"""What must hold for every run of passes on every program."""

import copy

import torch
from canonical import canonical_bytes, identity
from passes import are_preserving

from foldback.fx import from_document, to_document

TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class Recorder(torch.fx.Interpreter):
    """Runs a program once and notes the shape and dtype of every node that is a tensor, as they are when it is made."""

    def __init__(self, module):
        super().__init__(module)
        self.meta = {}

    def run_node(self, node):
        result = super().run_node(node)
        is_tensor = isinstance(result, torch.Tensor)
        self.meta[node.name] = {"shape": list(result.shape),
                                "dtype": str(result.dtype).removeprefix("torch.")} if is_tensor else {}
        return result


def recorded_meta(module, inputs):
    recorder = Recorder(copy.deepcopy(module))
    with torch.no_grad():
        recorder.run(*copy.deepcopy(inputs))
    return recorder.meta


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [tensor for item in value for tensor in tensors_of(item)] if hasattr(value, "__iter__") else []


def run(module, inputs):
    """Results, inputs and the module's own state after a call; and which results share memory with which inputs."""
    module, inputs = copy.deepcopy(module), copy.deepcopy(inputs)
    torch.manual_seed(0)
    with torch.no_grad():
        results = tensors_of([module(*inputs)])
    given = tensors_of(inputs)
    storage = [tensor.untyped_storage().data_ptr() for tensor in given]
    aliases = [[tensor.untyped_storage().data_ptr() == address for address in storage] for tensor in results]
    return results, given, aliases


def assert_same(actual, expected, what, values=True):
    assert len(actual) == len(expected), what
    for one, other in zip(actual, expected):
        assert one.dtype == other.dtype and one.shape == other.shape, what
        if not values:
            continue
        tolerance = TOLERANCE.get(one.dtype, 0)
        torch.testing.assert_close(
            one, other, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda text: f"{what}: {text}"
        )


def assert_equivalent(actual, expected, inputs, values=True):
    """Both compute the same, do the same to their inputs, and return what shares memory with an input in the same places.
    Without `values` all but the numbers are the same."""
    results, given, aliases = run(actual, inputs)
    expected_results, expected_given, expected_aliases = run(expected, inputs)
    assert_same(results, expected_results, "results", values)
    assert_same(given, expected_given, "inputs after the call", values)
    assert aliases == expected_aliases, "results that share memory with inputs"


def refusals(outcome):
    return sorted(refused["reason"] for refused in outcome["refused"])


class Tracer(torch.fx.Tracer):
    """Calls stay calls of modules also where a test derives from them, and what is done with buffers is traced."""

    proxy_buffer_attributes = True

    def is_leaf_module(self, module, path):
        return super().is_leaf_module(module, path) or isinstance(module, (torch.nn.Linear, torch.nn.Conv2d))


class Prover:
    """A program with the service; runs passes on it and proves each result. Without `shapes` the document has no shapes and no
    dtypes of nodes, and the passes have to do without."""

    def __init__(self, service, module, inputs, shapes=True):
        self.service, self.inputs = service, inputs
        self.module = torch.fx.GraphModule(module, Tracer().trace(module))
        self.document = to_document(self.module, *inputs, data=True)
        recorded = recorded_meta(self.module, inputs)
        for node in self.document["nodes"]:
            said = {key: item for key, item in node["meta"].items() if key != "device"}  # only where a cast reads it
            assert said == recorded[node["name"]], node["name"]
        if not shapes:
            self.document["nodes"] = [node | {"meta": {}} for node in self.document["nodes"]]
        answer = service.post("/v1/graphs", self.document)
        assert answer.status in (200, 201), answer.body.decode()
        self.id = answer.json()["id"]
        assert self.id == identity(self.document)
        code = service.get(f"/v1/graphs/{self.id}/code")
        assert code.body.decode() == self.module.code
        assert_equivalent(from_document(self.document), self.module, inputs)

    def optimize(self, passes):
        """Runs the passes, proves everything that must hold, and returns what each pass says."""
        request = {"graph": self.id, "passes": passes, "options": {"include": ["graph", "code"], "lint": "each"}}
        answer = self.service.post("/v1/optimize", request)
        assert answer.status == 201, answer.body.decode()
        run = answer.json()
        assert run["source"] == self.id and run["lint"] == "passed"

        result = run["graph"]
        assert run["result"] == identity(result)
        rewritten = from_document(result)
        assert rewritten.code == run["code"], run["code"]
        assert_equivalent(rewritten, self.module, self.inputs, values=are_preserving(run["passes"]))
        actual = recorded_meta(rewritten, self.inputs)
        for node in result["nodes"]:
            said = {key: node["meta"][key] for key in ("shape", "dtype") if key in node["meta"]}
            assert not said or said.items() <= actual[node["name"]].items(), f"recorded for {node['name']}: {said}"
        for outcome in run["passes"]:
            assert (outcome["applied"] == 0) <= (outcome["nodes"] == []), outcome

        self.undo(run)
        return run["passes"]

    def undo(self, run):
        reversed_ = self.service.post(f"/v1/runs/{run['id']}/reverse")
        assert reversed_.status == (201 if run["reversible"] else 409), reversed_.body.decode()
        if run["reversible"]:
            assert reversed_.json()["result"] == self.id
        rolled_back = self.service.post(f"/v1/runs/{run['id']}/rollback")
        assert rolled_back.status == 201, rolled_back.body.decode()
        assert rolled_back.json()["result"] == self.id
        kept = self.service.get(f"/v1/graphs/{self.id}")
        assert kept.body == canonical_bytes(self.document)
