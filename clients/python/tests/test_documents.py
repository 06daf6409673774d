"""What a document says of a program, and that a program made of it is the same."""

import copy
import typing

import programs
import pytest
import torch
from canonical import canonical_bytes, identity
from live import spelled_as_before
from torch import nn
from torch.nn.utils import parametrizations

import foldback
from foldback import shapes, values
from foldback.recipes import evaluate, view_of

FLOAT = {"dtype": "float32"}
Maybe = typing.Optional[torch.Tensor]  # noqa: UP045


def traced(forward, *inputs, **members):
    """A GraphModule of a function that is a module's forward()."""
    module = type("Net", (nn.Module,), {"forward": forward})()
    for name, member in members.items():
        if isinstance(member, torch.Tensor) and not isinstance(member, nn.Parameter):
            module.register_buffer(name, member)
        else:
            setattr(module, name, member)
    return torch.fx.symbolic_trace(module.eval())


def document_of(forward, *inputs, **members):
    return foldback.fx.to_document(traced(forward, **members), *inputs)


def node(document, name):
    return next(row for row in document["nodes"] if row["name"] == name)


def rows(document, table, key):
    return {row[key]: row for row in document[table]}


def assert_accepted(client, document):
    """The service says the same id as the canonicaliser of the tests."""
    assert client.put_graph(document) == identity(document)
    return document


def assert_round_trip(client, live, *inputs):
    document = assert_accepted(client, foldback.fx.to_document(live, *inputs, data=True))
    assert client.code(identity(document)) == live.code
    back = foldback.fx.from_document(document)
    assert back.code == live.code
    assert canonical_bytes(foldback.fx.to_document(back, data=True)) == canonical_bytes(document)
    return document


# ---- nodes ----------------------------------------------------------------------------------------------------------------


def test_arguments_of_every_kind(client):
    def forward(self, x, scale: float = 2.0, *rest, flag: Maybe = None):
        y = programs.wrapped(x, programs.Mode.SUM)
        z = x[..., 1:3, None].to(torch.float64, memory_format=torch.contiguous_format)
        return {"a": (y, [z]), "b": programs.Pair(y, x.shape), "c": x.view(torch.Size([-1])) / float("inf") + 1j + scale}

    live = traced(forward)
    document = foldback.fx.to_document(live, torch.randn(2, 4), 2.0, None)
    assert_accepted(client, document)
    assert client.code(identity(document)) == spelled_as_before(live.code)
    assert foldback.fx.from_document(document).code == live.code
    assert node(document, "scale")["args"] == [{"$float": "2.0"}] and node(document, "scale")["type"] == "float"
    assert node(document, "wrapped")["meta"]["is_wrapped"] is True
    assert node(document, "wrapped")["args"][1] == {"$enum": ["programs.Mode", "SUM"]}
    assert node(document, "flag")["type"] == "typing_Union[torch.Tensor,NoneType]"
    assert node(document, "getitem")["args"][1]["$tuple"][0] == {"$ellipsis": True}
    assert node(document, "pair")["target"] == "programs.Pair"


@pytest.mark.skipif(torch.__version__ < "2.10", reason="torch.fx wrote Pair(left=x, …)")
def test_a_named_tuple_as_an_argument(client):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(programs.Pair(x, [1]))
    live = torch.fx.GraphModule(nn.Module(), graph)
    document = assert_round_trip(client, live, torch.randn(2))
    assert node(document, "output")["args"] == [{"$namedtuple": ["programs.Pair", [{"$node": "x"}, [1]]]}]


def test_shapes_are_those_when_a_value_is_made():
    def forward(self, x):
        y = x.clone()
        y.unsqueeze_(0)
        return y, x.shape[0], x.max(1)

    document = document_of(forward, torch.randn(2, 4))
    assert node(document, "clone")["meta"] == {"shape": [2, 4], **FLOAT}
    assert node(document, "unsqueeze_")["meta"] == {"shape": [1, 2, 4], **FLOAT}
    assert node(document, "max_1")["meta"] == {} and node(document, "getattr_1")["meta"] == {}
    assert node(document, "output")["meta"] == {}


def test_nothing_is_computed_or_written():
    live = traced(lambda self, x: self.norm(x.mul_(2)), norm=nn.BatchNorm1d(4))
    live.train()
    x, before = torch.ones(3, 4), copy.deepcopy(live.state_dict())
    foldback.fx.to_document(live, x)
    assert torch.equal(x, torch.ones(3, 4))
    assert all(torch.equal(before[key], value) for key, value in live.state_dict().items())


def test_without_an_example_there_are_no_shapes():
    assert all(row["meta"] == {} for row in document_of(lambda self, x: x + 1)["nodes"])


def test_sizes_that_depend_on_values(client):
    def forward(self, x):
        found = x.nonzero()
        return found + 1, x.sum().item() + 1, x * 2

    document = assert_accepted(client, document_of(forward, torch.randn(2, 4)))
    assert node(document, "nonzero")["meta"]["shape"][1] == 2 and isinstance(node(document, "nonzero")["meta"]["shape"][0], str)
    assert node(document, "mul")["meta"] == {"shape": [2, 4], **FLOAT}


def test_a_wrong_example_is_an_error():
    with pytest.raises(RuntimeError):
        document_of(lambda self, x: self.fc(x), torch.randn(2, 5), fc=nn.Linear(4, 4))


# ---- modules and tensors --------------------------------------------------------------------------------------------------


def test_modules_that_are_listed(client):
    model = programs.Small()
    live = torch.fx.symbolic_trace(model)
    live.add_submodule("unused", nn.ReLU())
    live.add_submodule("kept", nn.Linear(2, 2))
    document = assert_round_trip(client, live, torch.randn(2, 8))
    assert list(rows(document, "modules", "path")) == ["", "query", "key", "out", "norm", "head", "kept"]
    root = document["modules"][0]
    assert root["type"] == "torch.nn.Module" and root["buffers"] == {"row": "row", "table": "table"}


def test_configuration():
    made = {
        "conv": nn.Conv2d(2, 4, 3, padding="same", bias=False),
        "norm": nn.BatchNorm2d(4, affine=False),
        "scaled": programs.Scaled(4, 4),
        "drop": nn.Dropout(0.25),
    }
    document = document_of(lambda self, x: self.drop(self.scaled.weight.sum() + self.norm(self.conv(x))), **made)
    found = rows(document, "modules", "path")
    assert found["conv"]["config"]["padding"] == "same" and found["conv"]["config"]["bias"] is False
    assert found["conv"]["parameters"] == {"weight": "conv.weight", "bias": None}
    assert found["norm"]["config"]["affine"] is False and found["norm"]["parameters"] == {"weight": None, "bias": None}
    assert found["drop"]["config"] == {"p": 0.25, "inplace": False}


def test_a_class_of_ones_own(client):
    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, path):
            return True

    model = nn.Sequential(programs.Scaled(4, 4), nn.MultiheadAttention(4, 2))
    live = torch.fx.GraphModule(model, Tracer().trace(nn.Sequential(model[0])))
    document = assert_round_trip(client, live, torch.randn(2, 4))
    assert rows(document, "modules", "path")["0"]["type"] == "programs.Scaled"
    x = torch.randn(2, 4)
    assert torch.equal(foldback.fx.from_document(document)(x), model[0](x))


def test_plain_attributes_travel(client):
    graph = torch.fx.Graph()
    x, factor = graph.placeholder("x"), graph.get_attr("factor")
    graph.output(graph.call_function(torch.mul, (x, factor)))
    root = nn.Module()
    root.factor = 2.5
    document = assert_round_trip(client, torch.fx.GraphModule(root, graph), torch.randn(2))
    assert document["modules"][0]["attributes"] == {"factor": 2.5}
    assert torch.equal(foldback.fx.from_document(document)(torch.ones(2)), torch.full((2,), 2.5))


def test_ties(client):
    model = programs.Small()
    document = assert_round_trip(client, torch.fx.symbolic_trace(model), torch.randn(2, 8))
    found = rows(document, "modules", "path")
    assert found["head"]["parameters"]["weight"] == found["out"]["parameters"]["weight"] == "out.weight"
    back = foldback.fx.from_document(document)
    assert back.head.weight is back.out.weight


def test_requires_grad(client):
    model = programs.Small()
    model.table.requires_grad_(True)
    document = assert_round_trip(client, torch.fx.symbolic_trace(model), torch.randn(2, 8))
    found = rows(document, "tensors", "name")
    assert found["out.bias"]["requires_grad"] is False and found["table"]["requires_grad"] is True
    assert "requires_grad" not in found["out.weight"] and "requires_grad" not in found["norm.running_mean"]
    back = foldback.fx.from_document(document)
    assert not back.out.bias.requires_grad and back.table.requires_grad and back.out.weight.requires_grad


VIEWS = {
    "rows": lambda base: base[1:3],
    "columns": lambda base: base[:, 2:5],
    "transposed": lambda base: base.t(),
    "every-other": lambda base: base[::2, 1::3],
    "one": lambda base: base[3, 4],
    "flat": lambda base: base.view(-1)[5:],
    "expanded": lambda base: base[0].expand(3, -1),
    "strided": lambda base: base.view(-1)[7:].as_strided((3, 4), (11, 2), 7),
    "the-whole": lambda base: base.view(6, 8),
    "split": lambda base: base.view(6, 2, 4)[:, 1].permute(1, 0),
    "last-column": lambda base: base[:, 7],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(client, name):
    base = torch.randn(6, 8)
    live = traced(lambda self, x: (x, self.base, self.view), view=VIEWS[name](base), base=base)
    document = assert_accepted(client, foldback.fx.to_document(live, torch.randn(2), data=True))
    found = rows(document, "tensors", "name")
    assert "data" not in found["view"] and "recipe" not in found["base"]
    made = evaluate(found["view"]["recipe"], lambda _: base, torch.float32, torch.device("cpu"))
    assert torch.equal(made, live.view)
    assert foldback.fx.from_document(document, live).view is live.view
    back = foldback.fx.from_document(document)
    assert torch.equal(back.view, live.view)
    if name not in (
        "every-other",
        "expanded",
        "strided",
        "last-column",
    ):  # no views of torch by reshape, slice and permute alone
        back.base.fill_(3)
        assert (back.view == 3).all()


def test_parts_of_one_storage_are_no_views_of_each_other(client):
    whole = torch.randn(8)
    document = document_of(lambda self, x: x + self.one + self.two, one=whole[:4], two=whole[4:])
    assert all("recipe" not in row for row in assert_accepted(client, document)["tensors"])


PARTS = {
    "column-halves": lambda whole: (whole[:, :4], whole[:, 4:]),
    "unequal-columns": lambda whole: (whole[:, :3], whole[1:5, 4:]),
    "every-other": lambda whole: (whole[:, ::2], whole[:, 1::2]),
    "transposed": lambda whole: (whole[:, :4].t(), whole[:, 4:]),
    "around-the-end": lambda whole: (whole[:, 2:6], whole.view(-1)[6:].as_strided((5, 4), (8, 1))),
    "blocks": lambda whole: (whole.view(3, 2, 8)[:, 0], whole.view(3, 2, 8)[:, 1, 2:]),
    "three": lambda whole: (whole[:, :2], whole[:, 2:4], whole[:, 4:]),
    "complex-and-real": lambda whole: (torch.view_as_complex(whole.view(6, 4, 2))[:, :2], whole[:, 4:]),
    "with-the-whole": lambda whole: (whole[:, :4], whole[:, 4:], whole),
}


@pytest.mark.parametrize("name", PARTS)
def test_interleaved_parts_of_one_storage_are_tensors_of_their_own(client, name):
    parts = {f"part{index}": part for index, part in enumerate(PARTS[name](torch.randn(6, 8)))}
    live = traced(lambda self, x: [x, *(getattr(self, part) for part in parts)], **parts)
    document = assert_accepted(client, foldback.fx.to_document(live, torch.randn(2), data=True))
    assert sum("recipe" in row for row in document["tensors"]) == (2 if name == "with-the-whole" else 0)
    back = foldback.fx.from_document(document)
    assert all(torch.equal(getattr(back, part), tensor) for part, tensor in parts.items())


def test_what_is_taken_to_be_apart_is():
    import random

    from foldback.tensors import _is_apart

    found = [0, 0]  # of those that are apart, how many it says are not, and are
    for seed in range(2000):
        choose = random.Random(seed)
        places, views = torch.arange(96), []
        for _ in range(2):
            sizes = [choose.randint(1, 4) for _ in range(2)]
            strides = [choose.choice([0, 1, 2, 3, 4, 6, 8, 12]) for _ in range(2)]
            reach = sum((size - 1) * stride for size, stride in zip(sizes, strides))
            views.append(places.as_strided(sizes, strides, choose.randint(0, 95 - reach)))
        is_apart = not set(views[0].flatten().tolist()) & set(views[1].flatten().tolist())
        said = _is_apart(*views)
        assert is_apart or not said, (seed, [(view.shape, view.stride(), view.storage_offset()) for view in views])
        found[said] += is_apart
    assert found[True] > 100, found


def test_bits_that_pytorch_conjugates_or_negates_later():
    z = torch.complex(torch.randn(4), torch.randn(4))
    alone = z.clone().conj()
    live = traced(lambda self, x: x + self.one + self.two, one=alone, two=z.conj().imag)
    document = foldback.fx.to_document(live, data=True)
    back = foldback.fx.from_document(document)
    assert torch.equal(back.one, alone) and torch.equal(back.two, z.conj().imag)
    for part in (z.conj(), torch.view_as_real(z)[:, 1]._neg_view()):
        base = z if part.is_conj() else torch.view_as_real(z)
        document = document_of(lambda self, x: x + self.one + self.two, one=base, two=part)
        assert all(row["overlaps"] for row in document["tensors"])


def test_random_views():
    import random

    for seed in range(300):
        choose = random.Random(seed)
        base = torch.arange(choose.choice([24, 60, 64])).float()
        view = base.view(choose.choice([[-1], [4, -1], [2, 3, -1] if base.numel() != 64 else [2, 2, -1], [-1, 2, 2]]))
        for _ in range(3):
            dim = choose.randrange(view.dim()) if view.dim() else 0
            kind = choose.random()
            if kind < 0.4 and view.dim():
                start = choose.randrange(view.shape[dim])
                view = view.narrow(dim, start, choose.randint(1, view.shape[dim] - start))
            elif kind < 0.6 and view.dim():
                view = view[(slice(None),) * dim + (slice(None, None, choose.randint(1, 3)),)]
            elif kind < 0.8:
                view = view.permute(choose.sample(range(view.dim()), view.dim()))
            elif view.dim():
                view = view.select(dim, choose.randrange(view.shape[dim]))
        recipe = view_of(base, "base", view)
        assert recipe is not None, seed
        assert torch.equal(evaluate(recipe, lambda _: base, base.dtype, base.device), view), seed


def test_digests(client):
    live = torch.fx.symbolic_trace(programs.Small())
    document = assert_accepted(client, foldback.fx.to_document(live, torch.randn(2, 8), digests=True))
    import hashlib

    for name, row in rows(document, "tensors", "name").items():
        tensor = live.get_parameter(name) if name in dict(live.named_parameters()) else live.get_buffer(name)
        assert row["digest"] == "sha256:" + hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()


def test_dtypes_travel(client):
    kinds = [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool, torch.complex64]
    members = {f"m{index}": (torch.randn(3) * 3).to(kind) for index, kind in enumerate(kinds)}
    live = traced(lambda self, x: [getattr(self, name) for name in members], **members)
    document = assert_round_trip(client, live, torch.randn(2))
    back = foldback.fx.from_document(document)
    for name, tensor in members.items():
        assert torch.equal(getattr(back, name), tensor) and getattr(back, name).dtype == tensor.dtype


# The service knows no uint4 and no bits8, as little as what PyTorch may add.
CARRIED = ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "complex32", "uint4", "bits8"]


@pytest.mark.parametrize("name", [name for name in CARRIED if hasattr(torch, name)])
def test_dtypes_that_nothing_computes_with_are_carried(client, name):
    bits = torch.tensor([[0, 127, 255, 128], [1, 2, 3, 4]], dtype=torch.uint8)
    live = traced(lambda self, x: (x / 8, self.scale), scale=bits.view(getattr(torch, name)), other=torch.randn(2))
    document = assert_accepted(client, foldback.fx.to_document(live, torch.randn(2), data=True))
    assert rows(document, "tensors", "name")["scale"]["dtype"] == name
    run = client.optimize(document, ["ChangeTrueDivToMulByInverse"], include=["graph"])
    assert run["passes"][0]["applied"] == 1
    found = foldback.fx.from_document(run["graph"]).scale
    assert found.dtype == getattr(torch, name) and torch.equal(found.view(torch.uint8), bits)


@pytest.mark.parametrize("name", ["float8_e8m0fnu", "float4_e2m1fn_x2", "complex32", "uint4"])
def test_no_pass_computes_with_carried_dtypes(client, name):
    """Every pass and preset runs on layers with such weights, and leaves the weights as they are."""
    dtype = getattr(torch, name)

    def held():
        return nn.Parameter(torch.randint(0, 255, (4, 4 * dtype.itemsize), dtype=torch.uint8).view(dtype), requires_grad=False)

    def forward(self, x):
        return self.a(x) / 8 + self.b(x) * 2 + self.norm(x) + (self.scale * 2).sum() + self.a.weight.t()

    layers = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "norm": nn.LayerNorm(4)}
    live = traced(forward, scale=held(), **layers)
    for layer in (live.a, live.b):
        layer.weight = held()
    document = assert_accepted(client, foldback.fx.to_document(live, data=True))
    bits = {key: row["data"] for key, row in rows(document, "tensors", "name").items() if row["dtype"] == name}
    assert set(bits) == {"a.weight", "b.weight", "scale"}
    needed = {"ReplaceActivation": {"from": "relu", "to": "gelu"}, "ConvertPrecision": {"to": "bfloat16"}}
    for item in client.passes()["items"]:
        item = {"name": item["name"], "params": needed.get(item["name"], {})}
        run = client.optimize(document, [item], include=["graph"])
        found = rows(run["graph"], "tensors", "name")
        assert {key: found.get(key, {}).get("data") for key in bits} == bits, item


def parameters(tensors):
    return {name: nn.Parameter(tensor, requires_grad=False) for name, tensor in tensors.items()}


def windows():
    held = torch.arange(12.0)
    return {"a": held[:8].view(2, 4), "b": held[4:].view(2, 4)}


OVERLAPS = {
    "windows": (windows, ["a", "b"]),
    "expanded": (lambda: {"a": torch.randn(1, 4).expand(2, 4), "b": torch.randn(2, 4)}, ["a"]),
    "sliding": (lambda: {"a": torch.arange(5.0).as_strided((2, 4), (1, 1)), "b": torch.randn(2, 4)}, ["a"]),
    "columns with an edge in common": (lambda: (lambda held: {"a": held[:, :4], "b": held[:, 2:6]})(torch.randn(2, 6)),
                                       ["a", "b"]),
    "two dtypes": (lambda: (lambda held: {"a": held, "b": held.view(torch.int32)})(torch.randn(2, 4)), ["a", "b"]),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_tensors_that_overlap_are_carried_whole(client, name):
    make, overlapping = OVERLAPS[name]
    live = traced(lambda self, x: (x / 8 + self.a * 2 + self.b * 2, self.a + 1), **parameters(make()))
    document = assert_accepted(client, foldback.fx.to_document(live, torch.randn(2, 4), data=True))
    found = rows(document, "tensors", "name")
    assert [name for name, row in found.items() if row.get("overlaps")] == overlapping
    assert not any("recipe" in row for row in found.values())
    run = client.optimize(document, ["ChangeTrueDivToMulByInverse", "FoldConstants"], include=["graph"])
    assert run["passes"][0]["applied"] == 1
    refused = {item["reason"] for item in run["passes"][1]["refused"]}
    assert run["passes"][1]["applied"] == (name in ("expanded", "sliding")) and refused == {"tensor-mutated"}, run["passes"][1]
    x = torch.randn(2, 4)
    with pytest.warns(UserWarning, match="shared memory"):
        back = foldback.fx.from_document(run["graph"])
    for one, other in zip(back(x), live(x), strict=True):
        torch.testing.assert_close(one, other)


def test_a_write_to_a_tensor_that_overlaps_is_not_evaluated(client, tmp_path):
    """The document has each of them whole, so a write to one would not reach the other."""
    live = traced(lambda self, x: (self.a.add_(x), self.b + 1), **parameters(windows()))
    graph = client.put_graph(foldback.fx.to_document(live, torch.ones(2, 4), data=True))
    with pytest.raises(foldback.Problem) as refused:
        client.evaluate(graph, file=tmp_path / "out.safetensors")
    assert refused.value.code == "unsupported-operator" and "shares memory" in str(refused.value)


# ---- from a document ------------------------------------------------------------------------------------------------------


def test_on_the_weights_of_a_module():
    model = programs.Small()
    document = foldback.fx.to_document(torch.fx.symbolic_trace(model), torch.randn(2, 8))
    live = foldback.fx.from_document(document, model)
    x = torch.randn(2, 8)
    assert all(torch.equal(one, other) for one, other in zip(live(x), model(x)))
    assert live.query.weight is model.query.weight and live.norm.running_var is model.norm.running_var
    assert live.query is not model.query


def test_weights_from_a_file(tmp_path):
    from safetensors.torch import save_file

    model = programs.Small()
    document = foldback.fx.to_document(torch.fx.symbolic_trace(model), torch.randn(2, 8))
    state = {key: tensor.contiguous() for key, tensor in model.state_dict().items() if key != "head.weight"}
    save_file(state, tmp_path / "model.safetensors")
    live = foldback.fx.from_document(document, weights=tmp_path / "model.safetensors")
    x = torch.randn(2, 8)
    assert all(torch.equal(one, other) for one, other in zip(live(x), model(x)))
    assert not live.out.bias.requires_grad and live.head.weight is live.out.weight
    del state["key.bias"]
    with pytest.raises(ValueError, match="no bytes for the tensor key.bias"):
        foldback.fx.from_document(document, weights=state)
    with pytest.raises(ValueError, match="not what the document says"):
        foldback.fx.from_document(document, weights=state | {"key.bias": torch.zeros(3)})


def test_an_optimised_document_runs(client):
    model, x = programs.Small(), torch.randn(2, 8)
    document = foldback.fx.to_document(torch.fx.symbolic_trace(model), x)
    run = client.optimize(document, ["MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse"], include=["graph"])
    assert [outcome["applied"] for outcome in run["passes"]] == [1, 1, 1]
    live = foldback.fx.from_document(run["graph"], model)
    assert live.code == client.code(run["result"])
    for one, other in zip(live(x), model(x)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    foldback.apply_edits(live, client.edits(client.reverse(run)))
    assert live.query.weight is model.query.weight and live.out.bias is model.out.bias
    assert list(live.state_dict()) == list(foldback.fx.from_document(document, model).state_dict())
    assert all(torch.equal(one, other) for one, other in zip(live(x), model(x)))


def lacking_dtypes():
    """Those that PyTorch has and documents do not."""
    known = {getattr(torch, name) for name in values.DTYPES}
    return sorted({item for item in vars(torch).values() if isinstance(item, torch.dtype)} - known, key=str)


def test_dtypes_are_those_of_documents(client):
    assert torch.uint4 in lacking_dtypes()
    for name in sorted(values.DTYPES):
        document = document_of(lambda self, x: x.detach(), torch.zeros(16, dtype=torch.uint8).view(getattr(torch, name)))
        assert node(document, "x")["meta"]["dtype"] == name
        client.put_graph(document)


@pytest.mark.parametrize("dtype", lacking_dtypes(), ids=str)
def test_a_dtype_that_documents_lack_is_left_out(dtype):
    class Given:
        shape = torch.Size([2, 3])

    Given.dtype = dtype
    assert shapes.meta_of(Given()) == {"shape": [2, 3]}


def test_a_result_of_a_dtype_that_documents_lack(client):
    document = document_of(lambda self, x: x.view(torch.bits8), torch.zeros(2, 3, dtype=torch.uint8))
    assert node(document, "view")["meta"] == {"shape": [2, 3]}
    client.put_graph(document)


@pytest.mark.parametrize("make", [lambda: nn.GRU(4, 4), lambda: nn.LSTM(4, 4),
                                  lambda: parametrizations.weight_norm(nn.Linear(4, 4))])
def test_a_module_that_a_document_cannot_make(make):
    model = nn.Sequential(make()).eval()
    document = foldback.fx.to_document(torch.fx.symbolic_trace(model), torch.randn(2, 3, 4), data=True)
    with pytest.raises(ValueError, match=r"module 0 \(.*\) cannot be made from the document alone.*module=model"):
        foldback.fx.from_document(document)
    made, given = foldback.fx.from_document(document, module=model), torch.randn(2, 3, 4)
    torch.testing.assert_close(made(given), model(given), rtol=0, atol=0)


class Rotary(torch.nn.Module):
    """Two tables of float numbers: a checkpoint has one of them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", torch.rand(4), persistent=False)
        self.register_buffer("scale", torch.rand(4))
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x * self.frequencies * self.scale)


def test_buffers_that_a_checkpoint_may_lack_are_named(recwarn):
    model = Rotary().eval()
    live, x = torch.fx.symbolic_trace(model), torch.randn(2, 4)
    with pytest.warns(UserWarning, match=r"buffers (frequencies, )?scale; .*model=model"):
        foldback.fx.to_document(live, x)
    recwarn.clear()
    document = foldback.fx.to_document(live, x, model=model)
    assert document["modules"][0]["non_persistent"] == ["frequencies"]
    again = foldback.fx.from_document(document, module=live)
    foldback.fx.to_document(again, x)
    foldback.fx.to_document(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.BatchNorm1d(4))).eval(), x)
    said = [one for one in recwarn if one.category is not ResourceWarning]
    assert not said, "nothing is unknown where the model, from_document or the module itself says it"


def detaches_a_view(self, x):
    """Runs, but not on tensors without storage: there max_pool1d gives a view, which detach_() refuses."""
    return nn.functional.dropout(nn.functional.max_pool1d(x, 2).detach_() * 2)


def test_no_size_that_depends_on_values_is_a_number_in_such_a_program():
    document = document_of(lambda self, x: (x.nonzero(), detaches_a_view(self, x)), torch.randn(4, 6))
    assert not isinstance(node(document, "nonzero")["meta"]["shape"][0], int)


def test_shapes_of_a_program_that_only_runs_when_it_is_computed():
    x = torch.randn(4, 6)
    torch.manual_seed(1)
    document = document_of(detaches_a_view, x)
    assert [row["meta"].get("shape") for row in document["nodes"][:-1]] == [[4, 6], [4, 3], None, None, None]
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(3)), "the caller's random numbers were used up"


def test_what_raises_in_any_case_is_raised():
    with pytest.raises(Exception, match="broadcast"):
        document_of(lambda self, x: x + self.w, torch.randn(4), w=nn.Parameter(torch.ones(5)))


def test_a_single_element_of_any_stride():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor([[3.0, 5.0]])[:, ::2])

        def forward(self, x):
            return x * self.scale

    live = torch.fx.symbolic_trace(Net())
    assert live.scale.stride() == (2, 2)
    back = foldback.fx.from_document(foldback.fx.to_document(live, data=True, digests=True))
    assert back.scale.shape == (1, 1) and back(torch.ones(1)).item() == 3


@pytest.mark.parametrize("make", [
    lambda: torch.nn.LayerNorm(4, elementwise_affine=False),
    lambda: torch.nn.RMSNorm(4, elementwise_affine=False),
    lambda: torch.nn.GroupNorm(2, 4, affine=False),
    lambda: torch.nn.BatchNorm1d(4, affine=False, track_running_stats=False),
    lambda: torch.nn.InstanceNorm1d(4),
])
def test_a_module_without_tensors_that_is_called_no_more(client, make):
    """After an edit of the user's: it is still there, and no part of the program."""
    live = torch.fx.symbolic_trace(torch.nn.Sequential(make(), torch.nn.Linear(4, 4)))
    (norm,) = live.graph.find_nodes(op="call_module", target="0")
    norm.replace_all_uses_with(norm.args[0])
    live.graph.erase_node(norm)
    live.recompile()
    document = foldback.fx.to_document(live)
    assert [row["path"] for row in document["modules"]] == ["", "1"]
    client.put_graph(document)


class Scaling(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.tensor([1.0, 2.0]))
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x):
        return x * self.factor + self.shift


@pytest.mark.parametrize("has_module", [False, True])
def test_a_constant_that_a_nested_program_reads(client, has_module):
    """A plain attribute, as torch.export leaves constants in its programs."""
    inner = torch.fx.symbolic_trace(Scaling())
    vars(inner)["factor"] = inner._buffers.pop("factor")
    graph = torch.fx.Graph()
    graph.output(graph.call_module("inner", (graph.placeholder("x"),)))
    live, x = torch.fx.GraphModule(nn.ModuleDict({"inner": inner}), graph), torch.randn(2)
    document = foldback.fx.to_document(live, x, data=True)
    assert document["modules"][1]["non_persistent"] == ["factor"]
    back = foldback.fx.from_document(document, live if has_module else None)
    assert torch.equal(back(x), live(x))
    assert identity(foldback.fx.to_document(back, x, data=True)) == identity(document) == client.put_graph(document)


def test_shapes_say_how_far_they_are():
    module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
    told = []
    foldback.fx.to_document(module, torch.zeros(1, 2), progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 4) for done in range(5)]
