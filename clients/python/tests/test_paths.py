"""Names that are made from the paths of modules, whatever the keys of these are: the results are right, or refused by name."""

import pytest
import torch
from torch import nn

import foldback

PASSES = ["MergeLinears", "FuseBatchNorm", "inference"]
X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Net(nn.Module):
    """Two layers to merge, a norm to fold, and a parameter and a buffer, all called after one key."""

    def __init__(self, keys):
        super().__init__()
        self.keys = keys
        self.add_module(keys[0], nn.Linear(4, 4))
        self.add_module(keys[1], nn.Linear(4, 4))
        self.add_module(keys[2], nn.BatchNorm1d(4))
        self.register_parameter(keys[0] + "_", nn.Parameter(torch.rand(4)))
        self.register_buffer(keys[1] + "_", torch.rand(4))
        self.get_submodule(keys[2]).running_mean.normal_()

    def forward(self, x):
        one, two, norm = (self._modules[key] for key in self.keys)
        return norm(one(x) + two(x)) * self._parameters[self.keys[0] + "_"] + self._buffers[self.keys[1] + "_"]


class Within(nn.Module):
    def __init__(self, key):
        super().__init__()
        self.key = key
        self.add_module(key, Net(["q", "k", "norm"]))

    def forward(self, x):
        return self._modules[self.key](x)


def called(key):
    return [key, key + "1", key + "2"]


MODELS = {
    "numbers and spaces": lambda: Net(["0", "1-2", "a b"]),
    "letters and signs": lambda: Net(["größe", "$x", "~1"]),
    "words of PyTorch": lambda: Net(["torch", "weight", "inf"]),
    "within a number": lambda: Within("0"),
    "within a space": lambda: Within("x "),
    "within a word of a module": lambda: Within("get_submodule_"),
    "alike but for one character": lambda: Net(["a-b", "a_b", "a b"]),
    "numbers and underscores": lambda: Net(["0", "_0", "__0"]),
    "the name of what is merged": lambda: Net(["a", "a-a1-merged", "a_a1_merged"]),
    "Sequential": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))),
}
OTHERS = {"class": "invalid syntax", "None": "invalid syntax", 'x"y': "unterminated", "x\\y": "backslash"}  # refused so
RENAMED = {"ａ": ["ａ", "a", "b"], "e\u0301": ["e\u0301", "é", "b"], "𝒙": called("𝒙")}


def make(name):
    torch.manual_seed(0)
    return MODELS[name]().eval()


def assert_right(model, *results):
    for result in results:
        result = result[0] if isinstance(result, tuple) else result  # torch.export's flat code gives a tuple
        torch.testing.assert_close(result, model(X), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_every_way_in(client, tmp_path, name):
    model = make(name)
    program = torch.export.export(model, (X,))
    live, traced = program.module(check_guards=False), torch.fx.symbolic_trace(model)
    documents = {live: foldback.export.from_exported_program(program, data=True),
                 traced: foldback.fx.to_document(traced, X, model=model, data=True)}
    for module, document in documents.items():
        run = client.optimize(document, PASSES, include=["graph"])
        assert sum(row["applied"] for row in run["passes"]) > 0
        foldback.apply_edits(module, client.edits(run))
        made = foldback.fx.from_document(run["graph"])
        code = {"torch": torch}
        exec(client.code(run["result"]), code)
        assert_right(model, module(X), made(X), code["forward"](made, X))
    torch.export.save(program, tmp_path / "model.pt2")
    run = client.optimize(client.put_archive(tmp_path / "model.pt2"), PASSES)
    archive = client.archive(run["result"], tmp_path / "result.pt2")
    assert_right(model, torch.export.load(archive).module()(X))


@pytest.mark.parametrize("key", [*OTHERS, "0", "self", *RENAMED])
def test_torch_compile(recwarn, key):
    """Its programs have names of their own, so that no key stops it."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Net(RENAMED.get(key, called(key))).eval()
    with torch.no_grad():
        result = torch.compile(model, backend="foldback", options={"passes": PASSES})(X)
    (run,) = foldback.compiled_runs(model)
    assert run.nodes[1] < run.nodes[0]
    said = [one for one in recwarn if one.category is not ResourceWarning]  # that a socket of another test's is collected now
    assert [str(one.message) for one in said if "foldback" in str(one.message)] == []
    assert_right(model, result)


@pytest.mark.parametrize("key", OTHERS)
def test_keys_that_neither_documents_nor_pytorch_can_say(client, key):
    with pytest.raises((ValueError, foldback.Problem), match=OTHERS[key]):
        client.put_graph(foldback.export.from_module(Net(called(key)).eval(), X))


@pytest.mark.parametrize("key", RENAMED)
def test_keys_that_python_reads_as_others(client, key):
    """Python takes the NFKC form of an identifier. PyTorch's code then calls another module, or none."""
    model = Net(RENAMED[key]).eval()
    traced = torch.fx.symbolic_trace(model)
    document = foldback.fx.to_document(traced, data=True)
    with pytest.raises(ValueError, match="Python reads .* in PyTorch's code; rename it"):
        foldback.fx.from_document(document)
    empty = torch.fx.symbolic_trace(nn.Sequential())
    edits = client.diff(client.put_graph(foldback.fx.to_document(empty)), client.put_graph(document))
    with pytest.raises(foldback.EditError, match="Python reads"):
        foldback.apply_edits(empty, edits)
    code = {"torch": torch}
    exec(client.code(client.put_graph(document)), code)
    assert_right(model, code["forward"](model, X))
