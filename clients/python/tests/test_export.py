"""Programs of torch.export as documents."""

import contextlib
import copy
import operator

import programs
import pytest
import torch
from canonical import canonical_bytes, identity
from torch import nn
from torch.export import Dim, export

import foldback


class Everything(nn.Module):
    """A lifted constant, a buffer that a checkpoint lacks, a nested program, keyword arguments, a nested result."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1)
        self.register_buffer("scale", torch.ones(4), persistent=False)
        self.fc.register_buffer("state", torch.zeros(4))

    def forward(self, x, *, y):
        z = self.norm(self.drop(self.fc(x) * self.scale + torch.tensor([1.0, 2.0, 3.0, 4.0]))) + self.fc.state
        with torch.no_grad():
            w = z * 2 + y
        return {"a": z, "b": [w, x]}


def exported(model, args, kwargs=None, **options):
    return foldback.export.from_exported_program(export(model, args, kwargs, **options))


def inputs(batch=3):
    return (torch.randn(batch, 4),), {"y": torch.randn(4)}


def rows(document, table, key):
    return {row[key]: row for row in document[table]}


def test_a_program_runs_again_on_the_model(client):
    model, (args, kwargs) = Everything().eval(), inputs()
    document = exported(model, args, kwargs)
    assert client.put_graph(document) == identity(document)
    live = foldback.fx.from_document(document, model)
    given, expected = live(*args, **kwargs), model(*args, **kwargs)
    assert given.keys() == expected.keys() and len(given["b"]) == 2
    assert torch.equal(given["a"], expected["a"]) and torch.equal(given["b"][0], expected["b"][0])
    assert live.fc.weight is model.fc.weight
    again = foldback.fx.to_document(live, name=document["name"])
    again["modules"] = [row | {"training": False} for row in again["modules"]]
    assert canonical_bytes({**again, "tensors": []}) == canonical_bytes({**document, "tensors": []})


def test_what_a_checkpoint_lacks():
    args, kwargs = inputs()
    document = exported(Everything().eval(), args, kwargs)
    root = document["modules"][0]
    assert set(root["non_persistent"]) == {"lifted_tensor_0", "scale"}
    assert "non_persistent" not in rows(document, "modules", "path")["fc"]
    found = rows(document, "tensors", "name")
    assert "data" in found["lifted_tensor_0"] and "data" in found["scale"] and "data" not in found["fc.weight"]


def test_guards_are_left_out_and_nested_programs_kept():
    args, kwargs = inputs()
    document = exported(Everything().eval(), args, kwargs)
    assert not any(row["op"] == "call_module" for row in document["nodes"])
    assert all("_guards" not in row["path"] for row in document["modules"])
    (nested,) = [row for row in document["modules"] if "graph" in row]
    assert nested["type"] == "torch.fx.GraphModule" and len(nested["graph"]["nodes"]) > 2
    assert all("shape" in row["meta"] for row in nested["graph"]["nodes"] if row["op"] == "placeholder")


@pytest.mark.parametrize("is_training", [False, True])
def test_the_training_flag_is_that_of_the_operators(is_training):
    args, kwargs = inputs()
    document = exported(Everything().train(is_training), args, kwargs)
    assert {row["training"] for row in document["modules"]} == {is_training}
    plain = exported(nn.Linear(4, 4).train(), (torch.randn(2, 4),))
    assert {row["training"] for row in plain["modules"]} == {False}


def test_symbolic_sizes(client):
    args, kwargs = inputs()
    document = exported(Everything().eval(), args, kwargs, dynamic_shapes={"x": {0: Dim("batch")}, "y": None})
    assert client.put_graph(document) == identity(document)
    shape = rows(document, "nodes", "name")["x"]["meta"]["shape"]
    assert isinstance(shape[0], str) and shape[1] == 4
    model = nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 4))
    document = exported(model, (torch.randn(2, 3, 4),), dynamic_shapes=({0: Dim("a"), 1: Dim("b")},))
    assert client.put_graph(document) == identity(document)
    assert any("*" in str(size) for row in document["nodes"] for size in row["meta"].get("shape", []))


def test_ties_and_views(client):
    model = programs.Small()
    document = exported(model, (torch.randn(2, 8),))
    assert client.put_graph(document) == identity(document)
    found = rows(document, "modules", "path")
    assert found["head"]["parameters"]["weight"] == found["out"]["parameters"]["weight"]
    assert "recipe" in rows(document, "tensors", "name")["row"]
    assert rows(document, "tensors", "name")["out.bias"]["requires_grad"] is False


def test_code_is_that_of_flat_arguments(client):
    from live import flat_code

    args, kwargs = inputs()
    program = export(Everything().eval(), args, kwargs)
    document = foldback.export.from_exported_program(program)
    assert client.code(client.put_graph(document)) == flat_code(program.module())


def test_an_exported_module_itself_can_be_edited(client):
    """A multiplication is the one ATen operator that a pass finds now: a client's own change shows the way."""
    model, (args, kwargs) = Everything().eval(), inputs()
    program = export(model, args, kwargs)
    live = program.module()
    document = foldback.export.from_exported_program(program)
    changed = {**document, "nodes": [dict(row) for row in document["nodes"]]}
    (node,) = [row for row in changed["nodes"] if row["target"] == "torch.ops.aten.mul.Tensor"]
    node["target"] = "torch.ops.aten.add.Tensor"
    ids = client.put_graph(document), client.put_graph(changed)
    diff = client._service.json("GET", f"/v1/graphs/{ids[1]}/diff?base={ids[0]}")["edits"]
    before = live(*args, **kwargs)["a"]
    foldback.apply_edits(live, diff)
    assert torch.equal(live(*args, **kwargs)["a"], foldback.fx.from_document(changed, model)(*args, **kwargs)["a"])
    foldback.apply_edits(live, client._service.json("GET", f"/v1/graphs/{ids[0]}/diff?base={ids[1]}")["edits"])
    assert torch.equal(live(*args, **kwargs)["a"], before)


# ---- from_module ----------------------------------------------------------------------------------------------------------


class Branching(nn.Module):
    """torch.export cannot tell which way it goes; torch.fx does not see that it could go another."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("offset", torch.ones(4), persistent=False)

    def forward(self, x, scale=2.0):
        x = self.fc(x) + self.offset + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return x.nonzero().tolist(), x * scale


class Looping(nn.Module):
    def forward(self, x):
        return [y for y in x.nonzero().tolist() if y]


def test_from_module_prefers_export():
    document = foldback.export.from_module(programs.Small(), torch.randn(2, 8))
    assert document["name"] == "Small"
    assert any(row["target"].startswith("torch.ops.aten.") for row in document["nodes"])


def test_from_module_falls_back_to_torch_fx(client):
    model = Branching().eval()
    document = foldback.export.from_module(model, torch.randn(2, 4), scale=3.0)
    assert client.put_graph(document) == identity(document)
    assert document["name"] == "Branching"
    assert [row["op"] for row in document["nodes"] if row["name"] == "fc"] == ["call_module"]
    assert document["nodes"][0]["meta"]["shape"] == [2, 4]
    assert document["modules"][0]["non_persistent"] == ["offset", "_tensor_constant0"]
    live = foldback.fx.from_document(document, model)
    x = torch.randn(2, 4)
    assert torch.equal(live(x)[1], model(x)[1])


def test_an_export_that_fails_leaves_modules_as_they_are():
    """PyTorch 2.9 left a hook on all modules, with which this one could not assign its buffer again."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            return x + self.count if x.sum() > 0 else x

    model, hooks = Model().eval(), dict(torch.nn.modules.module._global_buffer_registration_hooks)
    with pytest.warns(UserWarning, match="cannot follow"), pytest.raises(ValueError, match="neither torch.export nor torch.fx"):
        foldback.export.from_module(model, torch.ones(2))
    assert dict(torch.nn.modules.module._global_buffer_registration_hooks) == hooks
    model.count = torch.ones(())
    assert float(model.count) == 1


def test_from_module_says_why_neither_can():
    with pytest.raises(ValueError, match="neither torch.export nor torch.fx can follow Looping"):
        foldback.export.from_module(Looping(), torch.randn(2, 4))


class Augmented(nn.Module):
    def forward(self, x):
        h = x * 1
        view = h[0]
        view += 5
        return h


class Counting(nn.Module):
    """Counts in a buffer, and in an attribute."""

    def __init__(self, is_buffer):
        super().__init__()
        self.calls = torch.zeros(1)
        if is_buffer:
            del self.calls
            self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x * self.calls


class Masking(nn.Module):
    """Makes an attribute on its first call."""

    def forward(self, x):
        if not hasattr(self, "mask"):
            self.mask = torch.ones(x.shape[-1], x.shape[-1]).tril()
        return x @ self.mask


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 2))

    def forward(self, x, y):
        return x @ self.weight - 2 * y


def test_torch_fx_records_writes_of_augmented_assignments(client):
    document = foldback.export.from_module(Augmented())
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.equal(foldback.fx.from_document(document)(x.clone()), Augmented()(x.clone()))
    client.put_graph(document)


def test_torch_fx_records_writes_to_buffers():
    model = Counting(is_buffer=True)
    document = foldback.export.from_module(model)
    assert model.calls.item() == 0
    live = foldback.fx.from_document(document, copy.deepcopy(model))
    assert [live(torch.ones(1)).item() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("make", [Masking, lambda: Counting(True), lambda: Counting(False)])
def test_the_model_stays_as_it_is(make):
    model, fresh = make(), make()
    is_refused = make is Masking and torch.__version__ < "2.10"
    with pytest.raises(ValueError, match="attrs were created") if is_refused else contextlib.nullcontext():
        foldback.export.from_module(model, torch.ones(1, 3))
    assert vars(model).keys() == vars(fresh).keys()
    found, wanted = model(torch.ones(1, 3)), fresh(torch.ones(1, 3))
    assert type(found) is torch.Tensor and torch.equal(found, wanted)


def test_an_example_given_twice_and_a_parameter_as_example():
    model, x = Sum(), torch.randn(2, 2)
    for args in ((x, x), (x, model.weight), (model.weight, model.weight)):
        live = foldback.fx.from_document(foldback.export.from_module(model, *args), model)
        one, other = torch.randn(2, 2), torch.randn(2, 2)
        assert torch.allclose(live(one, other), model(one, other), atol=1e-6)


def test_a_program_that_is_not_the_model_is_refused(monkeypatch):
    """As PyTorch has a fault in it: here it exports another model."""
    export = torch.export.export
    monkeypatch.setattr(torch.export, "export",
                        lambda model, *rest, **more: export(nn.Sequential(model, nn.ReLU()), *rest, **more))
    with pytest.raises(ValueError, match="gives another result: value 0 is not the model's"):
        foldback.export.from_module(nn.Linear(4, 4), torch.randn(8, 4))


def test_the_fallback_says_why_and_randomness_is_no_fault(client):
    with pytest.warns(UserWarning, match="torch.export cannot follow Branching, so torch.fx traces it"):
        foldback.export.from_module(Branching().eval(), torch.randn(2, 4), scale=3.0)
    foldback.export.from_module(nn.Dropout().train(), torch.ones(4, 4))


class Casts(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x).to(x.device, torch.float32)
        return torch.tanh(y.to("cpu")) + torch.sigmoid(x)


def test_the_device_is_recorded_where_a_cast_names_one() -> None:
    x = torch.randn(2, 3)
    program = torch.export.export(Casts(), (x,))
    for document in (
        foldback.export.from_exported_program(program),
        foldback.export.from_exported_program(program.run_decompositions()),
        foldback.fx.to_document(torch.fx.symbolic_trace(Casts()), x),
    ):
        rows = {row["name"]: row for row in document["nodes"]}
        casts = [row for row in rows.values() if "to" in row["target"].removeprefix("torch.ops.aten.").split(".")
                 or "_to_copy" in row["target"]]
        read = {row["args"][0]["$node"] for row in casts}
        asked = {row["args"][0]["$node"] for row in rows.values() if row["target"] == "builtins.getattr"}
        assert {name for name, row in rows.items() if "device" in row["meta"]} == read | asked
        assert all(rows[name]["meta"]["device"] == "cpu" for name in read)
        again = foldback.fx.to_document(foldback.fx.from_document(document))
        assert [row["meta"] for row in again["nodes"]] == [row["meta"] for row in document["nodes"]]


def test_a_sparse_tensor_has_no_recorded_device() -> None:
    assert "device" not in foldback.shapes.meta_of(torch.eye(2).to_sparse())


class Noisy(torch.nn.Module):
    """torch.export refuses a write to a leaf that wants a gradient, and torch.fx makes a constant of the noise."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        noise = torch.randn(2)
        self.weight.mul_(2)
        return x + noise


def test_noise_does_not_become_a_constant():
    with pytest.raises(ValueError, match="draws random numbers"), pytest.warns(UserWarning, match="so torch.fx traces it"):
        foldback.export.from_module(Noisy(), torch.ones(2))
    with pytest.raises(ValueError, match="draws random numbers"):
        foldback.export.traced(Noisy(), torch.ones(2))


class Accumulating(torch.nn.Module):
    def __init__(self, write):
        super().__init__()
        self.write = write

    def forward(self, x):
        total = torch.zeros(4)
        total = self.write(total, x)
        return total


def put(total, x):
    total[:2] = x[:2]
    return total


@pytest.mark.parametrize("write", [lambda total, x: operator.iadd(total, x), lambda total, x: total.add_(x), put,
                                   lambda total, x: torch.add(x, 1, out=total)])
def test_a_tensor_of_each_call_does_not_become_one_of_all(write):
    with pytest.raises(ValueError, match="one for all calls"):
        foldback.export.traced(Accumulating(write), torch.ones(4))


def test_a_constant_result_is_a_copy():
    model = foldback.fx.from_document(foldback.export.traced(Accumulating(lambda total, x: total), torch.ones(4), data=True))
    model(torch.ones(4)).add_(1)
    assert torch.equal(model(torch.ones(4)), torch.zeros(4))
