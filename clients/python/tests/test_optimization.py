"""foldback.optimization in the place of optimum.fx.optimization."""

import copy
import inspect
import itertools
import operator
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
import transformers
from test_traps import TRAPS
from torch import nn

import foldback
from foldback import optimization, private

OPTIMUM = {
    "Transformation", "ReversibleTransformation", "compose", "MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse",
    "FuseBatchNorm2dInConv2d", "FuseBatchNorm1dInLinear",
}


@pytest.fixture(autouse=True)
def connected(service):
    foldback.connect(service.url)
    yield
    foldback.disconnect()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.out = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / 7
        return self.out(scores.softmax(-1) @ x)


class NegateTwice(optimization.ReversibleTransformation):
    """Puts two negations behind a softmax."""

    preserves_computation = True

    def transform(self, graph_module):
        graph = graph_module.graph
        for node in [node for node in graph.nodes if node.target == "softmax"]:
            last = node
            users = list(node.users)
            for _ in range(2):
                with graph.inserting_after(last):
                    last = graph.call_function(torch.neg, (last,))
                self.mark_as_transformed(last)
            for user in users:
                user.replace_input_with(node, last)
        return graph_module

    def reverse(self, graph_module):
        for node in reversed(self.get_transformed_nodes(graph_module)):
            node.replace_all_uses_with(node.args[0])
            self.mark_as_restored(node)
            graph_module.graph.erase_node(node)
        return graph_module


class AddOne(optimization.Transformation):
    def transform(self, graph_module):
        output = next(node for node in graph_module.graph.nodes if node.op == "output")
        with graph_module.graph.inserting_before(output):
            output.args = (graph_module.graph.call_function(torch.add, (output.args[0], 1)),)
        return graph_module


def make():
    torch.manual_seed(0)
    model, x = Attention().eval(), torch.randn(2, 5, 8)
    return model, torch.fx.symbolic_trace(model), x, model(x).detach()


PASSES = [optimization.MergeLinears, optimization.ChangeTrueDivToMulByInverse, optimization.FuseBiasInLinear]


def test_every_name_of_optimum_and_every_pass(service):
    assert set(optimization.__all__) >= OPTIMUM
    listed = foldback.Client(service.url)._service.json("GET", "/v1/passes")
    for row in listed["items"]:
        made = getattr(optimization, row["name"])
        parameters = set(row.get("parameters", {}).get("properties", {}))
        taken = {name.removesuffix("_") for name in inspect.signature(made).parameters} - {"named"}
        assert parameters <= taken, row["name"]
        assert issubclass(made, optimization.ReversibleTransformation) == row["reversible"], row["name"]
        assert made.preserves_computation == row["preserves_computation"], row["name"]
    for row in listed["presets"]:
        assert getattr(optimization, row["name"])().preserves_computation
    assert len(listed["items"]) >= 19


@pytest.mark.parametrize("made", PASSES)
def test_a_pass_there_and_back(made):
    model, traced, x, expected = make()
    code, transformation = traced.code, made()
    changed = transformation(traced)
    assert changed is traced and traced.code != code and transformation.get_transformed_nodes(traced)
    torch.testing.assert_close(traced(x), expected)
    assert transformation.run["passes"][0]["applied"]
    assert transformation(traced, reverse=True).code == code
    assert torch.equal(traced(x), expected) and traced.query.weight is model.query.weight
    assert not transformation.get_transformed_nodes(traced)


def test_composed_with_a_transformation_of_ones_own(client):
    _, traced, x, expected = make()
    code, own = traced.code, NegateTwice()
    merge, divide, fuse = (made() for made in PASSES)
    composed = optimization.compose(merge, divide, own, fuse)
    assert isinstance(composed, optimization.ReversibleTransformation) and composed.preserves_computation
    composed(traced)
    torch.testing.assert_close(traced(x), expected)
    kinds = [client.run(run)["kind"] for run in optimization.runs(traced)]
    assert kinds == ["optimize", "external", "optimize"]
    assert "NegateTwice" in client.run(optimization.runs(traced)[1])["passes"][0]["name"]

    merge(traced, reverse=True)  # below the user's, alone
    assert "merged" not in traced.code and traced.code.count("neg") > 1 and "ones" in traced.code
    assert len(own.get_transformed_nodes(traced)) == 2
    torch.testing.assert_close(traced(x), expected)
    composed(traced, reverse=True)
    assert traced.code == code and torch.equal(traced(x), expected)


def test_not_in_place():
    _, traced, x, expected = make()
    code, state = traced.code, {key: item.clone() for key, item in traced.state_dict().items()}
    composed = optimization.compose(*(made() for made in PASSES), inplace=False)
    made = composed(traced)
    assert made is not traced and traced.code == code and not traced.meta.get("foldback")
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(1)
    assert all(torch.equal(item, state[key]) for key, item in traced.state_dict().items())
    made = composed(traced)
    back = composed(made, reverse=True)
    assert back is not made and back.code == code and made.code != code
    assert torch.equal(back(x), expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_keep_marks_and_runs(copied):
    _, traced, x, expected = make()
    code = traced.code
    parts = [made() for made in PASSES]
    composed = optimization.compose(*parts)
    composed(traced)
    other = copied(traced)
    assert optimization.runs(other) == optimization.runs(traced) != []
    for part in parts:
        names = [node.name for node in part.get_transformed_nodes(traced)]
        assert [node.name for node in part.get_transformed_nodes(other)] == names != []
    composed(other, reverse=True)
    assert other.code.strip() == code.strip() and torch.equal(other(x), expected)
    assert traced.code != code


def test_a_copy_of_what_was_unpickled_knows_its_runs():
    model, traced, x, _ = make()
    code = traced.code
    composed = optimization.compose(optimization.MergeLinears(), optimization.FuseBiasInLinear())
    other = copy.deepcopy(pickle.loads(pickle.dumps(composed(traced))))
    assert optimization.runs(other) == optimization.runs(traced)
    composed(pickle.loads(pickle.dumps(other)), reverse=True)
    composed(other, reverse=True)
    assert other.code.strip() == code.strip()
    weights = dict(other.named_parameters())
    assert all(torch.equal(weights.pop(name), item) for name, item in model.named_parameters()) and not weights


def test_a_branch_that_was_dropped_as_dead_code():
    class Dead(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            query, _, value = self.query(x), self.key(x).relu(), self.value(x)
            return query - value

    model, x = Dead().eval(), torch.randn(2, 8)
    traced, merge = torch.fx.symbolic_trace(model), optimization.MergeLinears()
    merge(traced)
    assert traced.graph.eliminate_dead_code()
    traced.recompile()
    merge(traced, reverse=True)
    assert torch.equal(traced(x), model(x)) and "key" not in traced.code and "merged" not in traced.code
    assert all(traced.get_submodule(name).weight is getattr(model, name).weight for name in ("query", "key", "value"))
    assert not merge.get_transformed_nodes(traced)


def test_another_service_learns_the_runs(tmp_path, monkeypatch):
    """As when a pickle is read by another process, whose private service never saw the runs."""
    monkeypatch.delenv("FOLDBACK_SERVER", raising=False)
    _, traced, x, expected = make()
    code = traced.code
    composed = optimization.compose(optimization.MergeLinears(), NegateTwice(), optimization.FuseBiasInLinear())
    pickled = pickle.dumps(composed(traced))
    foldback.disconnect()
    try:
        other = pickle.loads(pickled)
        optimization.MergeLinears()(other, reverse=True)
        torch.testing.assert_close(other(x), expected)
        composed(other, reverse=True)
        assert other.code.strip() == code.strip()
    finally:
        foldback.disconnect()


def test_what_was_trained_comes_back():
    model, traced, x, _ = make()
    merge, fuse = optimization.MergeLinears(), optimization.FuseBiasInLinear()
    optimization.compose(merge, fuse)(traced)
    optimiser = torch.optim.SGD(traced.parameters(), 0.5)
    traced(x).square().sum().backward()
    optimiser.step()
    learnt = traced(x)
    assert not torch.allclose(learnt, model(x))
    other = copy.deepcopy(traced)
    fuse(traced, reverse=True)
    torch.testing.assert_close(traced(x), learnt)
    merge(traced, reverse=True)
    torch.testing.assert_close(traced(x), learnt)
    torch.testing.assert_close(model(x), learnt)  # the same parameters

    merge(other, reverse=True)  # below the other
    torch.testing.assert_close(other(x), learnt)
    code = other.code
    with pytest.raises(optimization.UndoConflict):  # merging and undoing left its own columns of ones
        fuse(other, reverse=True)
    assert other.code == code
    torch.testing.assert_close(other(x), learnt)


def test_tied_weights_that_nobody_touched_are_no_conflict():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.query, self.key, self.head = nn.Embedding(8, 8), *(nn.Linear(8, 8) for _ in range(3))
            self.head.weight = self.embedding.weight
            self.query.weight = self.embedding.weight
            self.key.bias = None

        def forward(self, ids):
            x = self.embedding(ids)
            return self.head(self.query(x) + self.key(x))

    model, ids = Tied().eval(), torch.arange(8).reshape(2, 4)
    traced = torch.fx.symbolic_trace(model)
    code, expected, merge = traced.code, model(ids), optimization.MergeLinears()
    merge(traced)
    assert "merged" in traced.code
    with traced.graph.inserting_before(next(iter(reversed(traced.graph.nodes)))):
        traced.graph.call_function(print, ("somebody changed the graph",))
    merge(traced, reverse=True)
    assert torch.equal(traced(ids), expected) and traced.embedding.weight is traced.query.weight is model.embedding.weight
    assert traced.code != code
    merge(traced)
    with torch.no_grad():
        traced.get_submodule(next(node.target for node in merge.get_transformed_nodes(traced))).weight.add_(1)
    code, learnt = traced.code, traced(ids)
    with pytest.raises(optimization.UndoConflict, match="weight") as caught:
        merge(traced, reverse=True)
    assert caught.value.names and traced.code == code and torch.equal(traced(ids), learnt)


def test_an_irreversible_pass_is_rolled_back():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).eval()
    model[1].running_mean.normal_(), model[1].running_var.uniform_(1, 2)
    x = torch.randn(1, 2, 5, 5)
    traced = torch.fx.symbolic_trace(model)
    fold = optimization.FuseBatchNorm2dInConv2d()
    code, expected = traced.code, model(x)
    with pytest.raises(TypeError):
        fold(traced, reverse=True)
    fold(traced)
    assert traced.code != code
    torch.testing.assert_close(traced(x), expected)
    optimization.rollback(traced)
    assert traced.code == code and torch.equal(traced(x), expected) and optimization.runs(traced) == []
    with pytest.warns(UserWarning, match="FuseBatchNorm2dInConv2d.. found nothing"):
        fold(torch.fx.symbolic_trace(copy.deepcopy(model).train()))
    assert "training" in str(fold.run.refused[0])


@pytest.mark.parametrize("name", ["FuseBatchNorm2dInConv2d", "MergeLinears"])
def test_a_rollback_loses_no_training(name):
    """The weight that the pass made has learnt since, and the one before it has not."""
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)) if name != "MergeLinears" else Attention()
    traced, x = torch.fx.symbolic_trace(shared.eval()), torch.randn(1, 3, 8, 8)
    getattr(optimization, name)()(traced)
    with torch.no_grad():
        next(one for one in traced.parameters()).mul_(2)
    code, learnt = traced.code, traced(x)
    with pytest.raises(foldback.LostTraining, match="weight") as caught:
        optimization.rollback(traced)
    assert len(caught.value.names) == 1 and traced.code == code and torch.equal(traced(x), learnt)


@pytest.mark.parametrize("more", [[], ["MergeLinears"]])
def test_runs_that_came_by_their_edits_are_rolled_back(service, more):
    """Of a service that is not connected any more they are not, and nothing is changed."""
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)).eval()
    model[1].running_mean.normal_(), model[1].running_var.uniform_(1, 2)
    x = torch.randn(1, 2, 5, 5)
    traced = torch.fx.symbolic_trace(model)
    code, expected = traced.code, model(x)
    client = private.client()
    run = client.optimize(foldback.fx.to_document(traced, x), ["FuseBatchNorm"])
    foldback.apply_edits(traced, client.edits(run))
    for name in more:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(optimization, name)()(traced)
    assert traced.code != code
    folded = traced.code
    foldback.disconnect()  # from now on a private service, which knows nothing of the run
    with pytest.raises(ValueError, match="is not a run of http.*foldback.connect names"):
        optimization.rollback(traced)
    assert traced.code == folded
    foldback.connect(service.url)
    optimization.rollback(traced)
    assert traced.code == code and torch.equal(traced(x), expected) and optimization.runs(traced) == []


def test_without_examples_divisions_are_found_by_dtypes_of_weights():
    _, traced, _, _ = make()
    assert all("shape" not in node.meta.get("foldback", {}) for node in traced.graph.nodes)
    divide = optimization.ChangeTrueDivToMulByInverse()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        divide(traced)
    assert [node.name for node in divide.get_transformed_nodes(traced)] == ["truediv"]
    unknown = torch.fx.symbolic_trace(lambda x: x / 3)
    with pytest.warns(UserWarning, match="found nothing.*record_shapes"):
        divide(unknown)
    divide(optimization.record_shapes(unknown, torch.randn(3)))
    assert divide.get_transformed_nodes(unknown)


def test_bert_as_transformers_traces_it():
    from transformers.utils import fx

    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=50,
        attn_implementation="eager",
    )
    model = transformers.BertModel(config).eval()
    names = ["input_ids", "attention_mask", "token_type_ids"]
    traced = fx.symbolic_trace(model, input_names=names)
    code = traced.code
    inputs = {name: torch.ones(1, 6, dtype=torch.int64) for name in names}
    expected = model(**inputs).last_hidden_state
    composed = optimization.compose(*(made() for made in PASSES))
    composed(traced)
    assert traced.code.count("merged") >= 2
    torch.testing.assert_close(traced(**inputs)["last_hidden_state"], expected, rtol=1e-4, atol=1e-5)
    composed(traced, reverse=True)
    assert traced.code == code and torch.equal(traced(**inputs)["last_hidden_state"], expected)

    optimization.MergeLinears()(traced)
    optimization.compose(optimization.FoldShapes(), optimization.inference())(traced)
    for shape in ((1, 6), (2, 7), (4, 11)):  # no size of an example got into the program
        inputs = {name: torch.ones(shape, dtype=torch.int64) for name in names}
        expected = model(**inputs).last_hidden_state
        torch.testing.assert_close(traced(**inputs)["last_hidden_state"], expected, rtol=1e-4, atol=1e-5)


def tiny_group_vit():
    text = dict(vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    vision = dict(
        image_size=6,
        patch_size=2,
        hidden_size=16,
        intermediate_size=16,
        depths=[1, 1],
        num_group_tokens=[4, 0],
        num_output_groups=[4, 4],
        num_attention_heads=2,
    )
    config = transformers.GroupViTConfig(
        text_config=text | {"eos_token_id": 2}, vision_config=vision, projection_dim=8, projection_intermediate_dim=12
    )
    return transformers.GroupViTModel(config).eval()


def test_a_model_that_takes_images_of_one_size_only():
    from transformers.utils import fx

    torch.manual_seed(0)
    model = tiny_group_vit()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_(), module.running_var.uniform_(1, 2)
    inputs = {
        "input_ids": torch.randint(3, 50, (3, 9)),
        "attention_mask": torch.ones(3, 9, dtype=torch.int64),
        "pixel_values": torch.randn(3, 3, 6, 6),
    }
    expected = model(**inputs).logits_per_image
    traced = fx.symbolic_trace(model, input_names=list(inputs), disable_check=True)
    optimization.FuseBatchNorm1dInLinear()(traced)
    assert not any(isinstance(module, nn.BatchNorm1d) for module in traced.modules())
    torch.testing.assert_close(traced(**inputs)["logits_per_image"], expected, rtol=1e-4, atol=1e-5)


def test_a_copy_knows_as_much_as_the_module():
    from transformers.utils import fx

    config = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50)
    model = transformers.BertModel(transformers.BertConfig(**config, attn_implementation="eager")).eval()
    codes = []
    for inplace in (True, False):
        traced = fx.symbolic_trace(model, input_names=["input_ids", "attention_mask", "token_type_ids"])
        before, composed = traced.code, optimization.compose(*(made() for made in PASSES), inplace=inplace)
        made = composed(traced)
        codes.append(made.code)
        assert (made is traced) == inplace and composed(made, reverse=True).code == before
    assert codes[0] == codes[1]


def test_an_exported_program():
    model, _, x, expected = make()
    module = torch.export.export(model, (x,)).module()
    composed = optimization.compose(*(made() for made in PASSES), optimization.EliminateDeadCode())
    composed(module)
    torch.testing.assert_close(module(x), expected)
    composed(module, reverse=True)
    assert torch.equal(module(x), expected)


def test_parameters_and_presets():
    _, traced, x, expected = make()
    with pytest.warns(UserWarning, match="minimum_gain=5"):
        optimization.MergeLinears(minimum_gain=5)(traced)
    optimization.compose(optimization.cleanup(), optimization.MergeLinears(), optimization.inference())(traced)
    torch.testing.assert_close(traced(x), expected)
    relu = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    optimization.ReplaceActivation("relu", "gelu")(relu)
    assert isinstance(relu.get_submodule("1"), nn.GELU)


@pytest.mark.parametrize("preset", [optimization.cleanup, optimization.inference, lambda: optimization.latency(tokens=1)])
def test_a_preset_among_passes(preset):
    _, traced, x, expected = make()
    merging = optimization.MergeLinears()
    optimization.compose(merging, preset(), optimization.RemoveNoOps(), optimization.ChangeTrueDivToMulByInverse())(traced)
    torch.testing.assert_close(traced(x), expected)
    assert [row["name"] for row in merging.run["passes"]] == ["MergeLinears"]
    optimization.rollback(traced)
    assert torch.equal(traced(x), expected)


def test_weights_in_four_bits():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 64)).eval(), torch.randn(3, 64)
    quantize = optimization.QuantizeWeights(bits=4, group_size=64)
    live = quantize(torch.fx.symbolic_trace(model))
    (refused,) = quantize.run.refused
    assert "group_size" in str(refused)
    state = live.state_dict()
    assert (state["0.weight_int4"].dtype, state["0.weight_int4"].numel()) == (torch.int8, 64 * 8 // 2)
    assert 0 < (live(x) - model(x)).abs().max() < 0.2 * model(x).abs().max()
    optimization.rollback(live)
    assert torch.equal(live(x), model(x))


@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.double])
@pytest.mark.parametrize("passes", [optimization.QuantizeWeights, optimization.MergeLinears])
@pytest.mark.parametrize("undo", ["rollback", "edits of a rollback", "edits of a reverse"])
def test_a_module_that_was_converted_does_not_come_back_in_two_dtypes(passes, convert, undo):
    """What the pass put away has the dtype that it had."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
            self.c = nn.Embedding(4, 8)

        def forward(self, x, i):
            return self.a(x) + self.b(x) + self.c(i)

    torch.manual_seed(0)
    live = torch.fx.symbolic_trace(Model().eval())
    x, i = torch.randn(2, 8), torch.tensor([1, 2])
    optimization.record_shapes(live, x, i)
    passes()(live)
    convert(live)
    code, x = live.code, x.to(live.c.weight.dtype)
    expected = live(x, i)
    client, run = private.client(), optimization.runs(live)[-1]
    if undo == "edits of a reverse" and passes is optimization.QuantizeWeights:
        pytest.skip("it is not reversible")
    with pytest.raises(foldback.EditError, match="convert the module back first"):
        if undo == "rollback":
            optimization.rollback(live)
        else:
            undone = client.rollback(run) if undo == "edits of a rollback" else client.reverse(run)
            foldback.apply_edits(live, client.edits(undone))
    assert live.code == code and torch.equal(live(x, i), expected)
    if convert is nn.Module.half:
        return  # its weights are others for good
    live.float()
    optimization.rollback(live)
    assert {item.dtype for item in live.state_dict().values()} == {torch.float32} and "merged" not in live.code


@pytest.mark.parametrize("convert", [nn.Module.float, nn.Module.half])
@pytest.mark.parametrize("recipe", [{"op": "mul", "args": ["b.weight", "b.weight"]}, None])
def test_a_tensor_that_gets_another_dtype_stays_the_same_object(convert, recipe):
    """Edits fit by the dtype that they found, not by the one that they give."""
    live = convert(torch.fx.symbolic_trace(nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})["a"]))
    live.b = convert(nn.Linear(4, 4))
    live.graph.get_attr("b.weight")
    weight, before = live.weight, live.weight.clone()
    now = {"/dtype": "float16", **({} if recipe is None else {"/recipe": recipe})}
    edits = [{"edit": "set_tensor", "name": "weight", "was": {"/dtype": "float32"}, "now": now}]
    if recipe is None or convert is nn.Module.half:
        with pytest.raises(foldback.EditError, match="convert the module back first"):
            foldback.apply_edits(live, edits, recompile=False)
        assert live.weight is weight and torch.equal(weight, before) and weight.dtype == before.dtype
        return
    foldback.apply_edits(live, edits, recompile=False)
    assert live.weight is weight and weight.dtype == torch.float16 and weight.requires_grad
    assert torch.equal(weight, (live.b.weight.double() ** 2).half())


def test_signatures_tell_parameters_apart():
    class Own(optimization.Transformation):
        def __init__(self, value):
            self.value = value

        def transform(self, graph_module):
            return graph_module

    values = [-1, -2, 1, 1.0, True, "1", [1], (1,), None, {"a": 1}, {"a": 2}, torch.float32]
    assert len({Own(value).signature for value in values}) == len(values)
    assert Own([1, {"a": 2}]).signature == Own([1, {"a": 2}]).signature
    text = "import foldback.optimization as o; print(o.MergeLinears(minimum_gain=2).signature)"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.strip()
    assert said == optimization.MergeLinears(minimum_gain=2).signature != optimization.MergeLinears().signature


# ---- what goes wrong ------------------------------------------------------------------------------------------------------


def test_what_raises_leaves_the_module_as_it_was():
    class Fails(NegateTwice):
        def transform(self, graph_module):
            super().transform(graph_module)
            del graph_module.out
            raise RuntimeError("in the middle")

        def reverse(self, graph_module):
            super().reverse(graph_module)
            raise RuntimeError("on the way back")

    model, traced, x, expected = make()
    code, nodes = traced.code, [node.name for node in traced.graph.nodes]
    with pytest.raises(RuntimeError, match="in the middle"):
        optimization.compose(optimization.MergeLinears(), Fails())(traced)
    assert traced.code == code and [node.name for node in traced.graph.nodes] == nodes
    assert torch.equal(traced(x), expected) and traced.out.weight is model.out.weight
    assert optimization.runs(traced) == [] and not any(node.meta.get("foldback") for node in traced.graph.nodes)

    class FailsToReverse(Fails):
        transform = NegateTwice.transform

    composed = optimization.compose(optimization.MergeLinears(), FailsToReverse())
    composed(traced)
    code, before = traced.code, optimization.runs(traced)
    with pytest.raises(RuntimeError, match="on the way back"):
        composed(traced, reverse=True)
    assert traced.code == code and optimization.runs(traced) == before
    optimization.MergeLinears()(traced, reverse=True)
    torch.testing.assert_close(traced(x), expected)


def test_what_cannot_be_done_is_said():
    model, traced, _, _ = make()
    with pytest.raises(TypeError, match="symbolic_trace makes one"):
        optimization.MergeLinears()(model)
    with pytest.raises(TypeError, match="parentheses"):
        optimization.compose(optimization.MergeLinears)
    with pytest.raises(TypeError):
        optimization.MergeLinears(minimal_gain=2)
    mine = NegateTwice()
    with pytest.raises(ValueError, match="not transformed by this"):
        mine.mark_as_restored(next(iter(traced.graph.nodes)))
    with pytest.raises(TypeError, match="abstract"):
        optimization.Transformation()

    class Wrong(optimization.Transformation):
        def transform(self, graph_module):
            return None

    with pytest.raises(TypeError, match="Wrong.transform has to return a GraphModule"):
        Wrong()(traced)
    composed = optimization.compose(optimization.MergeLinears(), AddOne())
    assert not isinstance(composed, optimization.ReversibleTransformation) and not composed.preserves_computation
    foldback.connect("http://127.0.0.1:9")
    code = traced.code
    with pytest.raises(ConnectionError, match="127.0.0.1:9"):
        optimization.MergeLinears()(traced)
    assert traced.code == code


def test_the_program_that_is_not_there(monkeypatch, tmp_path):
    foldback.disconnect()
    monkeypatch.delenv("FOLDBACK_SERVER", raising=False)
    monkeypatch.setenv("FOLDBACK_BINARY", str(tmp_path / "nothing"))
    with pytest.raises(foldback.ServiceNotStarted, match="FOLDBACK_BINARY is"):
        private.client()
    monkeypatch.delenv("FOLDBACK_BINARY")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(private, "__file__", str(tmp_path / "private.py"))
    with pytest.raises(foldback.ServiceNotStarted, match="make wheel.*FOLDBACK_SERVER"):
        private.client()


def test_a_norm_of_rows_is_folded_if_two_dimensions_are_assumed(client):
    torch.manual_seed(0)
    _, make, shape = TRAPS["a norm of rows"]
    model, x = make().eval(), torch.randn(shape)
    live = torch.fx.symbolic_trace(model)
    document = foldback.fx.to_document(live, model=model)
    for assume, count in (({}, 0), ({"dtype": "float32", "rank": 3}, 0), ({"dtype": "float32", "rank": 2}, 1)):
        run = client.optimize(document, ["FuseBatchNorm1dInLinear"], assume=assume)
        assert run["passes"][1]["applied"] == count
    foldback.apply_edits(live, client.edits(run))
    torch.testing.assert_close(live(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_reverse_restores_what_every_call_changed():
    """Also where a later call found nothing to change."""

    class Divided(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return (self.q(x) + self.k(x)) / 4.0

    model, divide, merge = Divided().eval(), optimization.ChangeTrueDivToMulByInverse(), optimization.MergeLinears()
    code = torch.fx.symbolic_trace(model).code

    def after(*calls):
        traced = torch.fx.symbolic_trace(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of calls that find nothing to change
            for transformation, is_undone in calls:
                transformation(traced, reverse=is_undone)
        return traced

    composed = optimization.compose(merge, divide)
    for calls in (
        [(divide, False), (divide, False), (divide, True)],
        [(divide, False), (divide, False), (divide, True), (divide, True)],
        [(merge, False), (composed, False), (composed, True)],
        [(merge, False), (composed, False), (divide, True), (merge, True)],
        [(divide, False), (divide, True), (divide, False), (divide, True)],
    ):
        traced = after(*calls)
        assert traced.code == code and not composed.get_transformed_nodes(traced)

    traced = after((divide, False))
    output = next(node for node in traced.graph.nodes if node.op == "output")
    with traced.graph.inserting_before(output):
        output.args = (traced.graph.call_function(operator.truediv, (output.args[0], 8.0)),)
    traced.recompile()
    divide(traced)
    assert traced.code.count(" / ") == 0 and len(divide.get_transformed_nodes(traced)) == 2
    divide(traced, reverse=True)
    assert traced.code.count(" / ") == 2 and not divide.get_transformed_nodes(traced)


def test_a_module_that_lost_its_runs_says_so():
    """GraphModule(module, graph) keeps the nodes with their marks, and nothing else of the undo."""
    _, traced, _, _ = make()
    merge = optimization.MergeLinears()
    merge(traced)
    made = torch.fx.GraphModule(traced, traced.graph)
    assert merge.get_transformed_nodes(made)
    for undo in (lambda: merge(made, reverse=True), lambda: optimization.compose(merge)(made, reverse=True),
                 lambda: optimization.rollback(made)):
        with pytest.raises(ValueError, match=r"does not have the run that made it: .* copy.deepcopy\(module\)"):
            undo()
    optimization.ChangeTrueDivToMulByInverse()(made, reverse=True)  # nothing was done, and nothing is marked


def test_node_transformations_is_a_set_of_signatures():
    """Code written for Optimum tests it, adds to it and clears it."""
    _, traced, _, _ = make()
    divide = optimization.ChangeTrueDivToMulByInverse()
    divide(traced)
    (node,) = divide.get_transformed_nodes(traced)
    other = next(iter(traced.graph.nodes))
    assert divide.signature in node.transformations and node.transformations == {divide.signature}
    assert not hasattr(other, "transformations") and getattr(other, "transformations", set()) == set()

    mine = NegateTwice()
    copied = copy.deepcopy(traced)
    held = node.transformations
    held.add(mine.signature)
    assert mine.transformed(node) and node.transformations | {"a"} == {divide.signature, mine.signature, "a"}
    held.update({"a", "b"}, ["c"])
    assert len(node.transformations) == 5 and held.issuperset({"a", "b", "c"})
    held -= {"a"}
    held.remove("b")
    with pytest.raises(KeyError):
        held.remove("b")
    other.transformations = {mine.signature}
    assert mine.get_transformed_nodes(traced) == [other, node]
    assert not mine.get_transformed_nodes(copied)  # marks of copies are their own
    for again in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert len(mine.get_transformed_nodes(again)) == 2
    mine.mark_as_restored(other)
    assert other.transformations == set()
    node.transformations.clear()
    assert not divide.transformed(node) and not divide.get_transformed_nodes(pickle.loads(pickle.dumps(traced)))
    del node.transformations
    assert not hasattr(node, "transformations")


def test_a_class_that_inherits_from_a_pass():
    """It is that pass in the service, and its own methods are called, alone and in a composition."""

    class Named(optimization.MergeLinears):
        pass

    class Counted(optimization.ChangeTrueDivToMulByInverse):
        def __init__(self):  # does not call that of the pass, as classes of Optimum need not
            self.calls = []

        signature = "counted"

        def transform(self, graph_module):
            self.calls.append("transform")
            return super().transform(graph_module)

        def reverse(self, graph_module):
            self.calls.append("reverse")
            return super().reverse(graph_module)

    _, traced, x, expected = make()
    code = traced.code
    named, counted = Named(), Counted()
    assert named.signature != optimization.MergeLinears().signature
    for one in (named, optimization.compose(named)):
        one(traced)
        assert "merged" in traced.code and named.get_transformed_nodes(traced) and "Named" not in str(named.run["passes"][0])
        one(traced, reverse=True)
        assert traced.code == code
    for one in (counted, optimization.compose(optimization.MergeLinears(), counted, optimization.FuseBiasInLinear())):
        counted.calls.clear()
        one(traced)
        assert counted.calls == ["transform"] and "0.142857" in traced.code and counted.get_transformed_nodes(traced)
        torch.testing.assert_close(traced(x), expected)
        one(traced, reverse=True)
        assert counted.calls == ["transform", "reverse"] and traced.code == code


class MulToAdd(optimization.ReversibleTransformation):
    """The example of Optimum's documentation."""

    def transform(self, graph_module):
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and node.target is operator.mul:
                self.mark_as_transformed(node)
                node.target = operator.add
        return graph_module

    def reverse(self, graph_module):
        for node in self.get_transformed_nodes(graph_module):
            node.target = operator.mul
            self.mark_as_restored(node)
        return graph_module


class Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        return self.c(torch.relu((self.a(x) + self.b(x)) * 2.0)).sigmoid().exp()


def own_run(client, traced):
    """The last run, and the nodes that SQLite knows by the signature of its pass."""
    run = client.run(optimization.runs(traced)[-1])
    (row,) = run["passes"]
    found = client._service.json("GET", f"/v1/graphs/{run['result']}/nodes?signature={row['signature']}")["items"]
    return run["kind"], row["nodes"], [node["name"] for node in found]


@pytest.mark.parametrize("others", [[], [optimization.MergeLinears()]])
def test_a_transformation_of_ones_own_is_recorded(client, others):
    """With exactly the nodes that it marked or changed, and those that read them are not among them."""
    own, traced = MulToAdd(), torch.fx.symbolic_trace(Doubled().eval())
    code = traced.code
    composed = optimization.compose(*others, own)
    composed(traced)
    assert own_run(client, traced) == ("external", ["mul"], ["mul"])
    assert composed.run["id"] == own.run["id"] == optimization.runs(traced)[-1]
    for again in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert optimization.rollback(again).code == code and not own.get_transformed_nodes(again)
    optimization.FuseBiasInLinear()(traced)  # what the service knows of the marks goes along
    run = client.run(optimization.runs(traced)[-1])
    kept = client._service.json("GET", f"/v1/graphs/{run['result']}/nodes?signature={own.run['passes'][0]['signature']}")
    assert [node["name"] for node in kept["items"]] == ["mul"]
    own(traced, reverse=True)
    assert own_run(client, traced)[1:] == (["mul"], []) and "ones" in traced.code and " * 2.0" in traced.code
    assert optimization.rollback(traced).code == code


def test_a_transformation_that_marks_and_changes_nothing(client):
    class Marks(optimization.Transformation):
        def transform(self, graph_module):
            self.mark_as_transformed(next(node for node in graph_module.graph.nodes if node.target == "a"))
            return graph_module

    traced = torch.fx.symbolic_trace(Doubled().eval())
    mine = Marks()
    mine(traced)
    assert own_run(client, traced) == ("external", ["a"], ["a"])
    mine(traced)
    assert len(optimization.runs(traced)) == 1  # nothing more was marked


def test_a_transformation_around_a_pass_is_rolled_back(client):
    """What it does before and after the pass is recorded as well."""

    class Around(optimization.MergeLinears):
        def transform(self, graph_module):
            MulToAdd().transform(graph_module)
            graph_module = super().transform(graph_module)
            return AddOne().transform(graph_module)

    traced = torch.fx.symbolic_trace(Doubled().eval())
    code = traced.code
    Around()(traced)
    kinds = [client.run(run)["kind"] for run in optimization.runs(traced)]
    assert kinds == ["external", "optimize", "external"] and "+ 2.0" in traced.code and "merged" in traced.code
    assert optimization.rollback(traced).code == code


def test_what_no_document_can_hold_is_transformed_and_not_rolled_back():
    traced, x = torch.fx.symbolic_trace(Doubled().eval()), torch.randn(2, 4)
    expected = traced(x) + 1
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.warns(UserWarning, match="AddOne is not recorded, and the module cannot be rolled back: .*hook"):
            AddOne()(traced)
    finally:
        hook.remove()
    assert torch.equal(traced(x), expected) and not optimization.runs(traced)
    with pytest.raises(ValueError, match="AddOne is not recorded"):
        optimization.rollback(traced)


class Scaled(optimization.Transformation):
    """Of which there are two, by a number."""

    def __init__(self, factor):
        self.factor = factor

    def transform(self, graph_module):
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and node.target is operator.mul:
                node.args = (node.args[0], node.args[1] * self.factor)
                self.mark_as_transformed(node)
        return graph_module


def test_the_service_knows_a_transformation_of_ones_own_by_its_signature(client):
    found = []
    for factor in (2.0, 3.0, "x" * 3000):
        traced, mine = torch.fx.symbolic_trace(Doubled().eval()), Scaled(factor)
        if isinstance(factor, str):
            mine = Marked(factor)
        mine(traced)
        kind, nodes, held = own_run(client, traced)
        assert (kind, nodes, held) == ("external", ["mul"], ["mul"])
        (row,) = client.run(optimization.runs(traced)[-1])["passes"]
        assert row["signature"] == mine.signature
        found.append(row["signature"])
    assert len(set(found)) == 3


class Marked(optimization.Transformation):
    def __init__(self, text):
        self.text = text

    def transform(self, graph_module):
        self.mark_as_transformed(next(node for node in graph_module.graph.nodes if node.target is operator.mul))
        return graph_module


def test_the_signature_of_a_pass_is_the_services(service):
    client = foldback.Client(service.url)
    rows = client._service.json("GET", "/v1/passes")["items"]
    assert optimization.VERSIONS == {row["name"]: row["version"] for row in rows if row["version"] > 1}
    made = [getattr(optimization, row["name"])() for row in rows if "required" not in row["parameters"]]
    made += [optimization.MergeLinears(minimum_gain=2), optimization.ConvertPrecision(to="float16", keep=["q\u00e9", "k"]),
             optimization.FoldConstants(maximum_growth=0),
             optimization.ReplaceActivation(from_="relu", to="leaky_relu", parameters={"negative_slope": 0.5}),
             optimization.ReplaceActivation(from_="relu", to="leaky_relu", parameters={"negative_slope": 1.0})]
    assert len(made) > len(rows)
    graph = client.put_graph(foldback.fx.to_document(torch.fx.symbolic_trace(nn.ReLU())))
    for one in made:
        (row,) = client.optimize(graph, [getattr(one, "_sent", type(one).__name__)])["passes"]
        assert one.signature == row["signature"], one


def test_a_default_that_is_spelled_out_is_the_same_transformation(service):
    rows = foldback.Client(service.url)._service.json("GET", "/v1/passes")["items"]
    defaults = [(name, one["default"]) for row in rows for name, one in row["parameters"].get("properties", {}).items()
                if "default" in one]
    assert dict(defaults) == optimization.DEFAULTS and all(value == optimization.DEFAULTS[name] for name, value in defaults)
    _, traced, x, expected = make()
    code = traced.code
    spelled = optimization.MergeLinears(minimum_gain=1)
    assert spelled.signature == optimization.MergeLinears().signature
    spelled(traced)
    assert "merged" in traced.code and spelled.run["passes"][0]["params"] == {}
    optimization.MergeLinears()(traced, reverse=True)
    assert traced.code == code
    assert optimization.MergeLinears(minimum_gain=True).params  # which is no integer


def test_marks_on_a_composition(client):
    _, traced, _, _ = make()
    merge, divide = optimization.MergeLinears(), optimization.ChangeTrueDivToMulByInverse()
    composed = optimization.compose(merge, optimization.compose(divide))
    node = next(iter(traced.graph.nodes))
    composed.mark_as_transformed(node)
    assert composed.transformed(node) and composed.get_transformed_nodes(traced) == [node]
    composed.mark_as_restored(node)
    assert not composed.transformed(node)
    composed(traced)
    of_parts = {*merge.get_transformed_nodes(traced), *divide.get_transformed_nodes(traced)}
    assert len(of_parts) == 2 and set(composed.get_transformed_nodes(traced)) == of_parts
    divide(traced, reverse=True)
    assert composed.get_transformed_nodes(traced) == merge.get_transformed_nodes(traced) != []
    composed(traced, reverse=True)
    assert composed.get_transformed_nodes(traced) == []


def test_chains_without_lint_and_recompile():
    """The code is that of before until somebody recompiles; the graph is what the chain made, there and back."""
    _, traced, x, expected = make()
    code = traced.code
    merge, divide, own = optimization.MergeLinears(), optimization.ChangeTrueDivToMulByInverse(), NegateTwice()
    chain = [merge, divide, optimization.compose(own, optimization.FuseBiasInLinear())]
    for one in chain:
        assert one(traced, lint_and_recompile=False) is traced
    optimization.LintAndRecompile()(traced)
    assert "merged" in traced.code and "neg" in traced.code and " / " not in traced.code
    torch.testing.assert_close(traced(x), expected)
    for one in reversed(chain):
        one(traced, lint_and_recompile=False, reverse=True)
    assert "merged" in traced.code  # nobody recompiled
    traced.recompile()
    assert traced.code == code and torch.equal(traced(x), expected)


def test_a_copy_has_marks_of_its_own():
    _, traced, x, expected = make()
    merge, divide = optimization.MergeLinears(), optimization.ChangeTrueDivToMulByInverse()
    merge(traced)
    code = traced.code
    copied = optimization.DeepCopy()(traced)
    assert copied is not traced and [node.name for node in merge.get_transformed_nodes(copied)] != []
    divide(copied)
    assert divide.get_transformed_nodes(copied) and not divide.get_transformed_nodes(traced) and traced.code == code
    merge(copied, reverse=True)
    assert not merge.get_transformed_nodes(copied) and merge.get_transformed_nodes(traced) and traced.code == code
    merge(traced, reverse=True)
    assert divide.get_transformed_nodes(copied) and "merged" not in traced.code
    for one in (traced, copied):
        torch.testing.assert_close(one(x), expected)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3), 2)))
def test_two_reverses_in_any_order(order):
    _, traced, x, expected = make()
    code, parts = traced.code, [made() for made in PASSES]
    for part in parts:
        part(traced)
    for index in order:
        parts[index](traced, reverse=True)
        torch.testing.assert_close(traced(x), expected)
        assert not parts[index].get_transformed_nodes(traced)
    (left,) = set(range(3)) - set(order)
    assert parts[left].get_transformed_nodes(traced) and traced.code != code
    _, alone, _, _ = make()
    PASSES[left]()(alone)
    assert alone.code == traced.code
    parts[left](traced, reverse=True)
    assert traced.code == code and torch.equal(traced(x), expected)


@pytest.mark.parametrize("parts", [[optimization.MergeLinears, optimization.FuseBatchNorm2dInConv2d],
                                   [optimization.FuseBatchNorm2dInConv2d]])
def test_what_cannot_be_reversed_says_which_pass_and_what_can(parts):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
    live, x = torch.fx.symbolic_trace(model), torch.randn(1, 3, 8, 8)
    made = optimization.compose(*(part() for part in parts)) if len(parts) > 1 else parts[0]()
    made(live)
    with pytest.raises(optimization.Irreversible, match=r"FuseBatchNorm2dInConv2d\(\) cannot be reversed.*rollback") as raised:
        made(live, reverse=True)
    assert "MergeLinears" not in str(raised.value) and isinstance(raised.value, TypeError)
    assert [type(one) for one in raised.value.transformations] == [optimization.FuseBatchNorm2dInConv2d]
    assert torch.equal(optimization.rollback(live)(x), model(x))
