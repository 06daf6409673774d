"""Documents of optimised models as programs again, on tensors from everywhere: right, or refused, and never silently off."""

import copy
import json
import math
import operator
import os

import pytest
import torch
from live import spelled_as_before
from proof import TOLERANCE, tensors_of
from safetensors.torch import load_file, save_file
from test_models import CASES, make

import foldback
from foldback.readings import AmbiguousWeights, structure_of

# What a document cannot hold, a module has
OPAQUE = "cannot be made into an object|cannot be made from the document alone|as_="
PARAMETRISED = "torch.nn.utils.parametrize."  # a class that PyTorch makes for one module
LISTS = [["FoldScaleIntoLinear"], ["FoldNormIntoLinear"], ["FuseBatchNorm"], ["MergeLinears", "FuseBiasInLinear"],
         ["inference"]]
# One of each kind in a minute of computing; FOLDBACK_ALL_MODELS=1 tries all of test_models.py.
FEW = [
    ("bert", "torch.fx"),
    ("gpt2-cross", "torch.export"),
    ("llama", "torch.export"),
    ("t5", "torch.fx"),
    ("resnet", "torch.fx"),
    ("vision/resnet", "torch.export"),
    ("vision/densenet", "torch.fx"),
    ("vision/vit", "torch.fx"),
    ("vision/generator", "torch.export"),
    ("vision/pre-activation", "torch.fx"),
    ("vision/adapted", "torch.fx"),
    ("vision/adapted", "torch.export"),
]
CHOSEN = CASES if os.environ.get("FOLDBACK_ALL_MODELS") else FEW


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


def needs_module(document):
    """Does a node read what no document can hold, or is a module parametrised?"""
    programs = [("", document["nodes"]), *((row["path"], row["graph"]["nodes"])
                                           for row in document["modules"] if "graph" in row)]
    read = {f"{path}.{node['target']}".lstrip(".") for path, nodes in programs for node in nodes if node["op"] == "get_attr"}
    opaque = {
        f"{row['path']}.{key}".lstrip(".")
        for row in document["modules"]
        for key, value in row.get("attributes", {}).items()
        if "$opaque" in json.dumps(value)
    }
    return not read.isdisjoint(opaque) or any(row["type"].startswith(PARAMETRISED) for row in document["modules"])


class Ways:
    """Everywhere that the tensors of a result may come from; each is right, or refused."""

    def __init__(self, client, document, live, inputs, expected, tmp_path):
        self.client, self.document, self.live, self.inputs, self.tmp_path = client, document, live, inputs, tmp_path
        self.expected = tensors_of([expected])
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
        self.needs_module = needs_module(result)
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


@pytest.mark.parametrize("name, dialect", CHOSEN, ids=[f"{name}-{dialect}" for name, dialect in CHOSEN])
def test_model(client, tmp_path, name, dialect):
    ways = Ways(client, *make(name, dialect), tmp_path)
    for passes in LISTS:
        ways.prove(passes)


class Shared(torch.nn.Module):
    """The norm, which is all ones, is folded into the first of two uses: that weight is like the other's, but not tied to
    it."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(torch.relu(self.linear(self.norm(x))))


def test_a_weight_that_folding_left_alike_is_no_tie(client, tmp_path):
    model, x = Shared().eval(), torch.randn(3, 4)
    program = torch.export.export(model, (x,))
    document = foldback.export.from_exported_program(program)
    assert client.optimize(document, ["FoldNormIntoLinear"])["passes"][0]["applied"] == 1
    ways = Ways(client, document, program.module(check_guards=False), {"x": x}, model(x).detach(), tmp_path)
    ways.prove(["FoldNormIntoLinear"])


class Chain(torch.nn.Module):
    """Folding the norm and folding the factor each give linear.weight another tensor."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        for tensor in (self.norm.weight, self.norm.bias, self.norm.running_mean, self.norm.running_var):
            torch.nn.init.uniform_(tensor, 0.5, 2.0)

    def forward(self, x):
        return self.norm(self.linear(x)) * 0.25


def test_passes_over_results_of_passes(client, tmp_path):
    """A file of any generation is read as what it is, by what foldback wrote into it or else by what the passes read; or
    refused."""
    model, x = Chain().eval(), torch.randn(3, 4)
    program = torch.export.export(model, (x,))
    graph, bound = foldback.export.from_exported_program(program), None
    documents, paths = [graph], [save(model.state_dict(), tmp_path / "0.safetensors")]
    for number, name in enumerate(("FuseBatchNorm1dInLinear", "FoldScaleIntoLinear"), 1):
        run = client.optimize(documents[-1], [name])
        made = client.optimize(graph if bound is None else bound, [name], **({"weights": paths[0]} if bound is None else {}))
        assert run["passes"][0]["applied"] == made["passes"][0]["applied"] == 1
        documents.append(client.graph(run["result"]))
        bound = made["result"]
        paths.append(client.weights(bound, tmp_path / f"{number}.safetensors", progress=False))
    plain = [save(load_file(path), tmp_path / f"plain{number}.safetensors") for number, path in enumerate(paths)]

    def outcome(document, path, as_=None):
        """Whether the output is right, or who refuses."""
        try:
            program = foldback.fx.from_document(documents[document], weights=path, as_=as_)
        except AmbiguousWeights:
            return "ambiguous"
        return "right" if is_close(call(program, {"x": x}), [model(x).detach()]) else "wrong"

    def service_says(document, path, as_=None):
        try:
            made = client.bind(documents[document], path, progress=False, **({"as_": as_} if as_ else {}))
        except foldback.Problem as problem:
            assert problem.code == "ambiguous-weights"
            return "ambiguous"
        program = foldback.fx.from_document(client.graph(made["id"]),
                                            weights=client.weights(made["id"], tmp_path / "bound", progress=False))
        os.remove(tmp_path / "bound")
        return "right" if is_close(call(program, {"x": x}), [model(x).detach()]) else "wrong"

    for says in (outcome, service_says):
        for document, path, as_, expected in (
            (2, paths[2], None, "right"),
            (2, paths[1], None, "right"),
            (2, paths[1], "source", "right"),
            (2, paths[1], "finished", "ambiguous"),
            (2, paths[1], "original", "ambiguous"),
            (2, paths[2], "source", "ambiguous"),
            (1, paths[2], None, "ambiguous"),
            (1, paths[2], "source", "ambiguous"),
            (0, paths[1], None, "ambiguous"),
            (2, paths[0], "source", "right"),
            (2, paths[0], "original", "right"),
            (2, plain[0], None, "right"),
            (2, plain[1], None, "ambiguous"),
            (2, plain[1], "source", "right"),
            (2, plain[2], None, "ambiguous"),
            (2, plain[2], "finished", "right"),
            (1, plain[1], "finished", "right"),
        ):
            assert says(document, path, as_) == expected, (says, document, path, as_)


class Attention(torch.nn.Module):
    """Folding the factor gives the queries another weight, and merging takes their name away. The convolution gets another
    weight, and a bias, when the BatchNorm is folded."""

    def __init__(self, has_bias=True):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv1d(5, 5, 1, bias=has_bias), torch.nn.BatchNorm1d(5)
        for tensor in (self.norm.weight, self.norm.bias, self.norm.running_mean, self.norm.running_var):
            torch.nn.init.uniform_(tensor, 0.5, 2.0)
        self.query, self.key, self.value = (torch.nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        x = self.norm(self.conv(x))
        return torch.softmax(self.query(x) @ self.key(x).transpose(-1, -2) / 4, -1) @ self.value(x)


def outcome_of(model, x, document, **given):
    """Whether the output is right, or that it is asked."""
    try:
        program = foldback.fx.from_document(document, **given)
    except AmbiguousWeights:
        return "ambiguous"
    return "right" if is_close(call(program, {"x": x}), [model(x).detach()]) else "wrong"


def outcome_of_binding(client, tmp_path, model, x, graph, state, **how):
    """What the service's file gives."""
    try:
        bound = client.bind(graph, save(state, tmp_path / "state.safetensors"), progress=False, **how)
    except foldback.Problem as problem:
        assert problem.code == "ambiguous-weights"
        return "ambiguous"
    file = client.weights(bound["id"], tmp_path / "bound.safetensors", progress=False)
    outcome = outcome_of(model, x, client.graph(bound["id"]), weights=file)
    os.remove(file)
    return outcome


@pytest.mark.parametrize("dialect", ["torch.fx", "torch.export"])
@pytest.mark.parametrize(
    "passes", [["FoldScaleIntoLinear", "MergeLinears"], ["inference", "MergeLinears"],
               [{"name": "latency", "params": {"tokens": 1}}]], ids=str
)
def test_a_weight_with_more_states_than_names(client, tmp_path, dialect, passes):
    """The original, a state between two passes, and no name in the result: a mapping or a file may be either."""
    model, x = Attention().eval(), torch.randn(2, 5, 16)
    if dialect == "torch.fx":
        document = foldback.fx.to_document(torch.fx.symbolic_trace(model), x, model=model)
        known = foldback.fx.to_document(torch.fx.symbolic_trace(model), x, model=model, digests=True)
    else:
        program = torch.export.export(model, (x,))
        document = foldback.export.from_exported_program(program)
        known = foldback.export.from_exported_program(program, digests=True)
    run = client.optimize(document, passes)
    result, state = client.graph(run["result"]), model.state_dict()
    file = save(state, tmp_path / "source.safetensors")
    for given in ({"weights": state}, {"weights": file}):
        assert outcome_of(model, x, result, **given) in ("right", "ambiguous")
        assert outcome_of(model, x, result, **given, as_="original") == "right"
        assert outcome_of(model, x, result, **given, as_="source") == "right"  # a single run: there is no graph between
        assert outcome_of(model, x, dict(result), **given, as_="source") in ("right", "ambiguous")  # nobody to ask
    for as_ in (None, "source", "original"):
        assert outcome_of(model, x, result, module=model, as_=as_) == "right"
    assert outcome_of_binding(client, tmp_path, model, x, run["result"], state, as_="source") == "right"
    bytes_known = client.graph(client.optimize(known, passes)["result"])
    assert outcome_of(model, x, bytes_known, weights=state) == "right"


def test_a_file_from_before_a_state_that_has_no_name(client, tmp_path):
    """It is of the first run's result: the convolution is folded, the queries are as they were, and their name is gone two runs
    later."""
    model, x = Attention(has_bias=False).eval(), torch.randn(2, 5, 16)
    live = torch.fx.symbolic_trace(model)
    graph = client.put_graph(foldback.fx.to_document(live, x, model=model))
    for passes in (["FuseBatchNorm"], ["FoldScaleIntoLinear"], ["MergeLinears"]):
        run = client.optimize(graph, passes)
        assert run["passes"][0]["applied"] == 1
        graph = run["result"]
        if passes[0].startswith("Fuse"):
            foldback.apply_edits(live, client.edits(run))
            state = {key: tensor.clone() for key, tensor in live.state_dict().items()}
    assert "conv.bias" in state and "norm.weight" not in state
    for as_ in (None, "source"):
        assert outcome_of(model, x, client.graph(graph), weights=state, as_=as_) in ("ambiguous", "right")
        assert outcome_of_binding(client, tmp_path, model, x, graph, state,
                                  **({"as_": as_} if as_ else {})) in ("ambiguous", "right")


def test_the_structure_is_the_services(client):
    for case in CASES[:2]:
        stored = client._service.json("POST", "/v1/graphs", make(*case)[0])
        assert structure_of(client.graph(stored["id"])) == stored["structure"]


def test_weights_in_several_files(client, tmp_path):
    """A list of files, an index of shards, and a folder with it give what one file does."""
    document, live, inputs, expected = make("vision/resnet", "torch.fx")
    run = client.optimize(document, ["FuseBatchNorm"])
    result, state = client.graph(run["result"]), live.state_dict()
    names, folder, parts = list(state), tmp_path / "folder", []
    folder.mkdir()
    for index in (0, 1):
        part = save({key: state[key] for key in names[index::2]}, folder / f"part{index}.safetensors")
        parts.append(part)
    with pytest.raises(ValueError, match="part0.safetensors and part1.safetensors; name the one"):
        foldback.fx.from_document(result, weights=folder)
    shards = {key: parts[index % 2].name for index, key in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    whole = foldback.fx.from_document(result, weights=save(state, tmp_path / "whole.safetensors"), as_="source")
    for weights in (parts, folder, str(folder), folder / "model.safetensors.index.json"):
        program = foldback.fx.from_document(result, weights=weights, as_="source")
        assert is_close(call(program, inputs), tensors_of([expected]))
        for key, tensor in whole.state_dict().items():
            assert torch.equal(tensor, program.state_dict()[key]), key
    with pytest.raises(ValueError, match="no bytes for the tensor"):
        foldback.fx.from_document(result, weights=parts[:1], as_="source")
    with pytest.raises(ValueError, match="both hold"):
        foldback.fx.from_document(result, weights=[parts[0], tmp_path / "whole.safetensors"], as_="source")
    bound = client.optimize(document, ["FuseBatchNorm"], weights=tmp_path / "whole.safetensors")
    finished = client.weights(bound["result"], tmp_path / "done")
    foldback.fx.from_document(result, weights=[finished])
    with pytest.raises(AmbiguousWeights, match="leave as_ out"):
        foldback.fx.from_document(result, weights=[finished], as_="source")
    save(state, folder / "model.safetensors")  # transformers reads this one, and not what the index names
    with pytest.raises(ValueError, match="model.safetensors.index.json and model.safetensors; name the one"):
        foldback.fx.from_document(result, weights=folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no .safetensors file"):
        foldback.fx.from_document(result, weights=tmp_path / "empty")


USES = {
    "torch": lambda graph, x: graph.call_function(torch.relu, (x,)),
    "inf": lambda graph, x: graph.call_function(operator.sub, (x, math.inf)),
    "nan": lambda graph, x: graph.call_function(operator.mul, (x, complex(math.nan, 1))),
    "device": lambda graph, x: graph.call_method("to", (x, torch.device("cpu"))),
    "slice": lambda graph, x: graph.call_function(operator.getitem, (x, (0, slice(0, 2, None)))),
    "Ellipsis": lambda graph, x: graph.call_function(operator.getitem, (x, (Ellipsis, 0))),
    "getattr": lambda graph, x: graph.call_function(getattr, (x, "real", "no name")),
    "len": lambda graph, x: graph.call_function(len, (x,)),
    "float": lambda graph, x: graph.call_function(float, (3,)),
    "math": lambda graph, x: graph.call_function(math.sqrt, (3,)),
    "operator": lambda graph, x: graph.call_function(operator.not_, (3,)),
    "input": lambda graph, x: graph.call_function(torch.nn.functional.relu, (), {"input": x}),
    "mode": lambda graph, x: graph.call_function(torch.nn.functional.pad, (x, (1, 1)), {"mode": "constant"}),
    "fx_pytree": lambda graph, x: graph.get_attr("weight"),
}
HIDING = {("torch", "input"), ("torch", "mode"), *((use, use) for use in list(USES)[:9])}


@pytest.mark.parametrize("use", USES)
def test_inputs_that_are_called_like_what_the_code_says(client, use):
    """PyTorch's own code takes the input for the number, module or builtin. The client refuses; the service's code is right.
    Where PyTorch's code is right, so is everything else, and the service's code is the same."""
    x = torch.randn(2, 3)
    for name in dict.fromkeys([use, "torch", "inf", "slice", "type", "input", "x"]):
        graph = torch.fx.Graph()
        given = graph.placeholder(name)
        graph.output((USES[use](graph, given), given))
        live = torch.fx.GraphModule({"weight": torch.nn.Parameter(torch.ones(2))}, graph)
        document = foldback.fx.to_document(live, data=True)
        (expected, same), code = torch.fx.Interpreter(live).run(x), client.code(client.put_graph(document))
        names = {"torch": torch, "inf": math.inf, "nan": math.nan, "device": torch.device}
        exec(code, {**names, "math_sqrt": math.sqrt, "_operator_not_": operator.not_}, names)
        assert str(names["forward"](live, x)) == str((expected, x)) and same is x
        empty = torch.fx.Graph()
        empty.output(empty.placeholder(name))
        edited = torch.fx.GraphModule({}, empty)
        edits = client.diff(client.put_graph(foldback.fx.to_document(edited)), client.put_graph(document))
        theirs = spelled_as_before(live.code)
        assert (code != theirs) == ((name, use) in HIDING), (name, use)
        if (name, use) in HIDING:
            with pytest.raises(ValueError, match=f"would take the input '{name}' for what else it calls so.*rename the input"):
                foldback.fx.from_document(document)
            with pytest.raises(foldback.EditError, match="rename the input"):
                foldback.apply_edits(edited, edits)
            assert len(edited.graph.nodes) == 2
        else:
            foldback.apply_edits(edited, edits)
            for module in (foldback.fx.from_document(document), live, edited):
                assert str(module(x)) == str((expected, x))


def test_an_input_called_like_a_number(client):
    """PyTorch's own code of such a program takes the input for the number: it is refused, and the service's code is right."""

    class Masked(torch.nn.Module):
        def forward(self, x, inf):
            return torch.where(x > 0, x, -math.inf) * inf

    live = torch.fx.symbolic_trace(Masked())
    x, other = torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert not torch.equal(live(x, other), Masked()(x, other))  # PyTorch's fault
    document = foldback.fx.to_document(live)
    with pytest.raises(ValueError, match="would take the input 'inf' for what else it calls so, in .*; rename the input"):
        foldback.fx.from_document(document)
    names = {"torch": torch, "inf": math.inf}
    exec(client.code(client.put_graph(document)), names)
    assert torch.equal(names["forward"](None, x, other), Masked()(x, other))
    renamed = json.loads(json.dumps(document).replace('"target": "inf"', '"target": "factor"'))
    assert torch.equal(foldback.fx.from_document(renamed)(x, other), Masked()(x, other))
    named = torch.fx.symbolic_trace(lambda inf: inf + 1)  # nothing takes it for a number
    assert torch.equal(foldback.fx.from_document(foldback.fx.to_document(named))(x), x + 1)
