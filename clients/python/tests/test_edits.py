"""Edits on live modules: what is kept, what is refused, and what happens to weights that were trained in between."""

import copy

import canonical
import programs
import pytest
import torch
from live import Live
from torch import nn

import foldback
from foldback.edits import EditError
from foldback.recipes import evaluate, round_once
from foldback.tensors import State

PASSES = ["MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse"]


def make(client, dtype=torch.float32):
    model = programs.Small(dtype)
    live = torch.fx.symbolic_trace(model)
    x = torch.randn(2, 8).to(dtype)
    with torch.no_grad():
        return model, Live(client, foldback.fx.to_document(live, x), live, {"x": x}, model(x))


def edits_of(client, document, *passes):
    return client.edits(client.optimize(document, passes))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_dtypes_are_kept(client, dtype):
    _, live = make(client, dtype)
    live.prove(PASSES)
    foldback.apply_edits(live.module, edits_of(client, live.id, *PASSES))
    assert {tensor.dtype for tensor in live.module.parameters()} == {dtype}


def test_the_traced_model_stays_as_it_is(client):
    model, live = make(client)
    before = {path: (child, dict(vars(child))) for path, child in model.named_modules()}
    foldback.apply_edits(live.module, edits_of(client, live.id, *PASSES))
    assert live.module.out.in_features == 5 or live.module.out.in_features == 9 or live.module.out is model.out
    for path, child in model.named_modules():
        assert child is before[path][0]
        assert list(child._parameters) == list(before[path][1]["_parameters"])
    x = live.inputs["x"]
    assert all(torch.equal(one, other) for one, other in zip(model(x), live.expected))


def test_frozen_weights_stay_frozen(client):
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    net = type("Net", (nn.Module,), {"forward": lambda self, x: (self.m["a"](x), self.m["b"](x))})()
    net.m = model
    live = torch.fx.symbolic_trace(net)
    document = foldback.fx.to_document(live, torch.randn(2, 4))
    foldback.apply_edits(live, edits_of(client, document, "MergeLinears"))
    assert [parameter.requires_grad for parameter in live.parameters()] == [False, False]
    assert list(live.state_dict()) == ["m.a-b-merged.weight", "m.a-b-merged.bias"]


def test_devices_are_kept(client):
    model = programs.Small()
    live = torch.fx.symbolic_trace(model)
    document = foldback.fx.to_document(live, torch.randn(2, 8))
    live.to("meta")
    foldback.apply_edits(live, edits_of(client, document, *PASSES))
    assert {tensor.device.type for tensor in live.parameters()} == {"meta"}


def test_a_copy_goes_its_own_way(client):
    model, live = make(client)
    run = client.optimize(live.id, PASSES)
    foldback.apply_edits(live.module, client.edits(run))
    other = copy.deepcopy(live.module)
    back = client.edits(client.reverse(run))
    foldback.apply_edits(other, back)
    assert list(other.state_dict()) == list(live.state)
    for key, tensor in other.state_dict(keep_vars=True).items():
        assert tensor is not live.state[key][0] and torch.equal(tensor, live.state[key][1])
    foldback.apply_edits(live.module, back)
    live.assert_undone()


def test_again_and_again(client):
    _, live = make(client)
    for _ in range(3):
        live.prove(PASSES)
        live.prove(["MergeLinears"])


def test_run_after_run(client):
    """Undone in the order in which they were done, and in another."""
    _, live = make(client)
    first = client.optimize(live.id, ["MergeLinears"])
    second = client.optimize(first["result"], ["ChangeTrueDivToMulByInverse"])
    for run in (first, second):
        foldback.apply_edits(live.module, client.edits(run))
    for run in (client.reverse(second), client.reverse(first)):
        foldback.apply_edits(live.module, client.edits(run))
    live.assert_undone()

    both = client.optimize(live.id, ["MergeLinears", "ChangeTrueDivToMulByInverse"])
    one = client.reverse(both, ["MergeLinears"])
    other = client.reverse(second, graph=one["result"])
    for run in (both, one, other):
        foldback.apply_edits(live.module, client.edits(run))
    live.assert_undone()


def test_trained_weights_are_carried_back(client):
    """A merged weight that was trained is cut into its parts when the merge is undone."""
    model, live = make(client)
    run = client.optimize(live.id, ["MergeLinears"], include=["graph"])
    foldback.apply_edits(live.module, client.edits(run))
    merged = live.module.get_parameter("query-key-merged.weight")
    with torch.no_grad():
        merged.add_(torch.randn_like(merged))
    trained = merged.detach().clone()

    document = foldback.fx.to_document(live.module, live.inputs["x"], digests=True)
    undone = client.reverse(run, graph=document)
    foldback.apply_edits(live.module, client.edits(undone))
    assert torch.equal(live.module.query.weight, trained[:8]) and torch.equal(live.module.key.weight, trained[8:])
    assert live.module.query.weight is model.query.weight
    assert list(live.module.state_dict()) == list(live.state)


def test_modules_that_no_document_lists_keep_their_places(client):
    root, graph = nn.Module(), torch.fx.Graph()
    x = graph.placeholder("x")
    for name in ("first", "second"):
        root.add_module(name, nn.Linear(4, 4))
    graph.output([graph.call_module(name, (x,)) for name in ("first", "second")])
    live = torch.fx.GraphModule(root, graph)
    live.add_submodule("unused", nn.ReLU())
    before = list(live.named_modules())
    run = client.optimize(foldback.fx.to_document(live, torch.randn(2, 4)), ["MergeLinears"])
    foldback.apply_edits(live, client.edits(run))
    assert live.unused is before[-1][1]
    foldback.apply_edits(live, client.edits(client.reverse(run)))
    assert list(live.named_modules()) == before


def test_the_optimiser_sees_the_parameters_again(client):
    _, live = make(client)
    optimiser = torch.optim.SGD(live.module.parameters(), lr=0.1)
    live.prove(PASSES)
    held = {id(tensor) for group in optimiser.param_groups for tensor in group["params"]}
    assert {id(tensor) for tensor in live.module.parameters()} == held


def test_hooks_and_gradients_stay(client):
    _, live = make(client)
    calls = []
    live.module.norm.register_forward_hook(lambda *_: calls.append(1))
    foldback.apply_edits(live.module, edits_of(client, live.id, "FuseBiasInLinear"))
    live.module.out.register_forward_hook(lambda *_: calls.append(2))
    sum(result.sum() for result in live.module(live.inputs["x"])).backward()
    assert calls == [2, 1]
    assert live.module.query.weight.grad is not None


# ---- what does not fit ----------------------------------------------------------------------------------------------------


def spoiled(edits):
    """Edits, each spoiled in one way, and what is said of it."""
    node = next(index for index, edit in enumerate(edits) if edit["edit"] == "set_node")
    insert = next(index for index, edit in enumerate(edits) if edit["edit"] == "insert_node")
    tensor = next(index for index, edit in enumerate(edits) if edit["edit"] == "set_tensor" and edit["now"])
    module = next(index for index, edit in enumerate(edits) if edit["edit"] == "set_module" and edit["now"] is None)

    def change(index, *path, to):
        made = copy.deepcopy(edits)
        place = made[index]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to
        return made

    pointer = next(iter(edits[node]["was"]))
    yield change(node, "was", pointer, to={"$node": "elsewhere"}), "is "
    yield change(node, "name", to="nobody"), "no node nobody"
    yield change(insert, "node", "name", to="x"), "already a node x"
    yield change(insert, "node", "args", to=[{"$node": "nobody"}]), "reads nobody"
    yield change(insert, "before", to="nobody"), "no node nobody"
    yield change(tensor, "now", "recipe", to="nobody"), "no tensor nobody"
    yield change(tensor, "now", "shape", to=[1]), "would have the shape"
    yield change(module, "path", to="nobody"), "no module nobody"
    yield [edit for index, edit in enumerate(edits) if index != node], "needs the module query"


def test_edits_that_do_not_fit_change_nothing(client):
    model, live = make(client)
    edits = edits_of(client, live.id, "MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse")
    assert {edit["edit"] for edit in edits} >= {"set_node", "insert_node", "set_tensor", "set_module"}
    ways = list(spoiled(edits))
    assert len(ways) == 9
    for spoiled_edits, said in ways:
        with pytest.raises(EditError, match=said):
            foldback.apply_edits(live.module, spoiled_edits)
        live.assert_undone()
    with pytest.raises(EditError):
        foldback.apply_edits(torch.fx.symbolic_trace(nn.Linear(2, 2)), edits)
    run = client.optimize(live.id, ["MergeLinears"])
    back = client.edits(client.reverse(run))
    with pytest.raises(EditError, match="no node query_key_merged"):
        foldback.apply_edits(live.module, back)
    live.assert_undone()
    foldback.apply_edits(live.module, client.edits(run))
    with pytest.raises(EditError, match="reads query_key_merged, which would not be there"):
        foldback.apply_edits(live.module, [edit for edit in back if edit["edit"] != "set_node"])
    foldback.apply_edits(live.module, back)
    live.assert_undone()


# ---- recipes --------------------------------------------------------------------------------------------------------------


def test_movements_copy_bits():
    values = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45, 5e-324]).to(torch.float32)
    values.view(torch.int32)[0] = 0x7FA00001  # a signalling NaN with something in it
    recipe = {"op": "concat", "axis": 0, "args": ["a", {"op": "full", "args": [], "shape": [1], "value": 0}, "a"]}
    made = evaluate(recipe, lambda _: values, torch.float32, values.device)
    assert torch.equal(made[:5].view(torch.int32), values.view(torch.int32))
    assert torch.equal(made[6:].view(torch.int32), values.view(torch.int32))


@pytest.mark.parametrize("dtype, bits", [(torch.float16, 11), (torch.bfloat16, 8), (torch.float32, 24)])
def test_rounded_once_to_nearest_even(dtype, bits):
    from fractions import Fraction

    torch.manual_seed(0)
    exact = torch.cat([torch.randn(2000).double(), 1 + torch.arange(512).double() * 2.0 ** -(bits + 1)])
    halves = (1 + 2.0 ** (1 - bits) * torch.arange(64).double()) + 2.0**-bits  # just between two numbers
    exact = torch.cat(
        [exact, halves, halves + 2.0**-40, halves - 2.0**-40, torch.tensor([0.0, -0.0, 1e300, float("inf")]).double()]
    )
    given = round_once(exact, dtype)
    for one, other in zip(exact.tolist(), given.double().tolist()):
        if one in (0.0, 1e300, float("inf")):
            assert other == (0.0 if one == 0 else float("inf"))
            continue
        exponent = Fraction(2) ** (torch.tensor(one).double().abs().log2().floor().int().item() - bits + 1)
        assert Fraction(other) == round(Fraction(one) / exponent) * exponent, (one, other)
    assert round_once(torch.tensor([float("nan")]).double(), dtype).isnan().all()


# ---- trained in between -----------------------------------------------------------------------------------------------------


def trained(client, passes):
    """A live module after a run and one step of an optimiser, the run, and an example."""
    torch.manual_seed(0)
    live = torch.fx.symbolic_trace(programs.Small(torch.float32))
    x = torch.randn(2, 8)
    run = client.optimize(foldback.fx.to_document(live, x), passes)
    foldback.apply_edits(live, client.edits(run))
    optimiser = torch.optim.SGD(live.parameters(), 0.1)
    sum(one.square().sum() for one in live(x)).backward()
    optimiser.step()
    return live, run, x


def test_training_is_not_lost(client):
    """Undoing would drop the merged weight, and what it learnt: refused, with the names and what to do."""
    live, run, x = trained(client, ["MergeLinears"])
    edits = list(client.edits(client.reverse(run)))
    code, expected = live.code, live(x)
    with pytest.raises(foldback.LostTraining, match="merged.weight.*to_document.*digests=True.*force=True") as caught:
        foldback.apply_edits(live, edits)
    assert len(caught.value.names) == 2
    assert live.code == code and all(map(torch.equal, live(x), expected))
    kept = client.edits(client.reverse(run, graph=foldback.fx.to_document(live, x, digests=True)))
    foldback.apply_edits(live, kept)
    assert live.code != code
    torch.testing.assert_close(live(x), expected)


@pytest.mark.parametrize("undo", ["run", "module", "rollback of the run", "rollback of the module"])
def test_training_is_carried_back(client, undo):
    live, run, x = trained(client, ["MergeLinears"])
    code, expected = live.code, live(x)
    undone = {
        "run": lambda: client.reverse(run),
        "module": lambda: client.reverse(live),
        "rollback of the run": lambda: client.rollback(run),
        "rollback of the module": lambda: client.rollback(live),
    }[undo]()
    foldback.apply_edits(live, client.edits(undone))
    assert live.code != code
    torch.testing.assert_close(live(x), expected)
    with pytest.raises(ValueError, match="no run that is not undone"):
        client.reverse(live)


def test_a_module_knows_its_run_in_a_shared_store(client):
    """Two runs with one result: the module says which of them it is."""
    live, run, x = trained(client, ["MergeLinears"])
    client.optimize(run["source"], ["MergeLinears"])
    made = torch.fx.symbolic_trace(programs.Small(torch.float32))
    again = client.optimize(foldback.fx.to_document(made, x), ["MergeLinears"])
    before = made(x)
    foldback.apply_edits(made, client.edits(again))
    undone = client.reverse(copy.deepcopy(made))
    assert undone["of_run"] == again["id"] and undone["result"] == again["source"]
    foldback.apply_edits(made, client.edits(undone))
    assert all(map(torch.equal, made(x), before))


def test_training_is_dropped_by_force(client):
    live, run, x = trained(client, ["MergeLinears"])
    before = torch.fx.symbolic_trace(programs.Small(torch.float32)).state_dict().keys()
    foldback.apply_edits(live, client.edits(client.reverse(run)), force=True)
    assert live.state_dict().keys() == before


def test_a_fold_that_was_trained(client):
    """There is no way back with what it learnt, and none without a word."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.Linear(3, 3)).eval()
    x = torch.randn(1, 2, 3, 3)
    for attribute, is_lost in (("0", True), ("2", False)):
        live = torch.fx.symbolic_trace(copy.deepcopy(model))
        run = client.optimize(foldback.fx.to_document(live, x), ["FuseBatchNorm"])
        foldback.apply_edits(live, client.edits(run))
        edits = client.edits(client.rollback(run))
        with torch.no_grad():
            live.get_submodule(attribute).weight.add_(1)
        if is_lost:
            with pytest.raises(foldback.LostTraining, match="0.weight"):
                foldback.apply_edits(live, edits)
        foldback.apply_edits(live, edits, force=is_lost)
        assert type(live.get_submodule("1")) is nn.BatchNorm2d


def test_what_was_not_trained_is_undone(client):
    """Also on a program that was made of the result's document, and moved to another dtype and back."""
    torch.manual_seed(0)
    model, x = programs.Small(torch.float32), torch.randn(2, 8)
    live = torch.fx.symbolic_trace(model)
    run = client.optimize(foldback.fx.to_document(live, x), [*PASSES, "inference"])
    edits = client.edits(client.rollback(run))
    made = foldback.fx.from_document(client.graph(run["result"]), module=model)
    foldback.apply_edits(made, edits)
    torch.testing.assert_close(made(x), model(x))
    made = foldback.fx.from_document(client.graph(run["result"]), module=model)
    with torch.no_grad():
        next(parameter for name, parameter in made.named_parameters() if "merged" in name).mul_(2)
    with pytest.raises(foldback.LostTraining):
        foldback.apply_edits(made, edits)


class Mixed(torch.nn.Module):
    """Tied weights, and a bias at some of the Linears."""

    def __init__(self):
        super().__init__()
        self.embedding, self.q, self.k, self.v = torch.nn.Embedding(8, 8), *(torch.nn.Linear(8, 8) for _ in range(3))
        self.head = torch.nn.Linear(8, 8)
        self.head.weight = self.embedding.weight
        self.k.bias = None

    def forward(self, ids):
        x = self.embedding(ids)
        return self.head(self.q(x) * self.k(x) + self.v(x) / 7)


@pytest.mark.parametrize("passes", [["MergeLinears"], ["MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse"]])
@pytest.mark.parametrize("is_trained", [False, True])
def test_a_module_whose_digests_are_sent_is_no_conflict(client, passes, is_trained):
    """What edits made is told as its recipe while nobody changed it; a digest would not say which part is which."""
    model, ids = Mixed().eval(), torch.arange(8).reshape(2, 4)
    live = torch.fx.symbolic_trace(model)
    source = foldback.fx.to_document(live, ids)
    run = client.optimize(source, passes)
    foldback.apply_edits(live, client.edits(run))
    if is_trained:
        with torch.no_grad():
            live.get_submodule("q-k-v-merged").weight.mul_(1.5)
    expected = live(ids)
    undone = client.reverse(run, graph=foldback.fx.to_document(live, ids, digests=True))
    foldback.apply_edits(live, client.edits(undone))
    torch.testing.assert_close(live(ids), expected)
    assert live.q.weight is model.q.weight and live.k.bias is None and live.head.weight is model.embedding.weight
    assert foldback.fx.to_document(live, ids)["nodes"] == source["nodes"]


class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.q(x) + self.k(x)


@pytest.mark.parametrize("passes", [["MergeLinears"], ["FuseBiasInLinear"], ["MergeLinears", "FuseBiasInLinear"]])
@pytest.mark.parametrize("digests", [False, True])
def test_a_module_is_optimised_trained_and_undone_again_and_again(client, passes, digests):
    """Undone weights are parts of the merged one, which was made of them: no document says both."""
    torch.manual_seed(0)
    model, x = Sum(), torch.randn(2, 8)
    live = torch.fx.symbolic_trace(model)
    for _ in range(3):
        run = client.optimize(foldback.fx.to_document(live, x, digests=True), passes)
        foldback.apply_edits(live, client.edits(run))
        with torch.no_grad():
            for parameter in live.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        expected = live(x)
        undone = client.reverse(run, graph=foldback.fx.to_document(live, x, digests=digests))
        foldback.apply_edits(live, client.edits(undone))
        torch.testing.assert_close(live(x), expected)
        assert live.q.weight is model.q.weight and "merged" not in live.code


def test_one_pass_after_the_other_of_a_module_that_was_trained(client):
    model, ids = Mixed().eval(), torch.arange(8).reshape(2, 4)
    live = torch.fx.symbolic_trace(model)
    passes = ["MergeLinears", "FuseBiasInLinear", "ChangeTrueDivToMulByInverse"]
    for _ in range(2):  # runs of the same graph, as in a store that many share
        run = client.optimize(foldback.fx.to_document(live, ids), passes)
    foldback.apply_edits(live, client.edits(run))
    with torch.no_grad():
        live.get_submodule("q-k-v-merged").weight[:, :8].mul_(1.5)
    expected = live(ids)
    for one in ("FuseBiasInLinear", "ChangeTrueDivToMulByInverse", "MergeLinears"):
        foldback.apply_edits(live, client.edits(client.reverse(live, [one])))
        torch.testing.assert_close(live(ids), expected)
    assert live.q.weight is model.q.weight and "merged" not in live.code
    with pytest.raises(ValueError, match="no run that is not undone"):
        client.reverse(live)


class Constants(torch.nn.Module):
    """Two constants of the program, and integers, bools and weights of which passes make new ones."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ids", torch.arange(6))
        self.register_buffer("mask", torch.ones(3, 6, dtype=torch.bool), persistent=False)
        self.q, self.k = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, x):
        masked = torch.where(self.mask[:, :3], self.q(x) * torch.tensor([1.0, 2.0, 3.0]), self.ids[:3])
        return masked + self.k(x) * torch.tensor([2.0, 1.0, 3.0])


@pytest.mark.parametrize("passes", [["FoldConstants"], ["MergeLinears"], ["FoldConstants", "MergeLinears"]])
def test_the_document_of_a_module_after_a_run_is_the_stored_one(client, passes):
    """Buffers and tensors are in the order that the service has, and their bytes are told where no checkpoint has them."""
    x = torch.randn(3, 3)
    live = torch.export.export(Constants().eval(), (x,)).module(check_guards=False)

    def document():
        return foldback.fx.to_document(live, x, name="Constants", digests=True)

    source = document()
    run = client.optimize(source, passes, include=["graph"])
    foldback.apply_edits(live, client.edits(run))
    assert sum(row["applied"] for row in run["passes"]) > 0
    assert document()["modules"] == run["graph"]["modules"]
    assert canonical.identity(document()) == run["result"]
    undone = client.rollback(run) if "FoldConstants" in passes else client.reverse(run, graph=document(), include=["graph"])
    if "graph" in undone:
        assert all(row.get("requires_grad", True) for row in undone["graph"]["tensors"] if row["dtype"] == "float32")
    foldback.apply_edits(live, client.edits(undone))
    assert canonical.identity(document()) == canonical.identity(source)


def test_the_state_of_an_earlier_version_is_read(client):
    """A pickle has what State had when it was written."""
    live = torch.fx.symbolic_trace(Sum())
    foldback.apply_edits(live, client.edits(client.optimize(foldback.fx.to_document(live), ["MergeLinears"])))
    kept = State.of(live).__getstate__()
    for member in ("buffers", "table", "constants"):
        del kept[member]
    state = State.__new__(State)
    state.__setstate__(kept)
    live.meta["foldback"] = state
    names = [row["name"] for row in foldback.fx.to_document(live, digests=True)["tensors"]]
    assert set(names) == {*(f"{layer}.{key}" for layer in ("q", "k", "q-k-merged") for key in ("weight", "bias"))}


def test_dead_code_of_merged_weights_comes_back(client):
    """Its weights are those that a run made, and no recipe of the document says how."""
    class Dead(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)

        def forward(self, x):
            self.a(x), self.b(x)
            return x * 2

    x = torch.randn(2, 3)
    live = torch.fx.symbolic_trace(Dead().eval())
    for passes in (["MergeLinears"], ["EliminateDeadCode"]):
        merged = {key: item.clone() for key, item in live.state_dict().items()}
        run = client.optimize(foldback.fx.to_document(live, x), passes)
        foldback.apply_edits(live, client.edits(run))
    undone = client.reverse(run, graph=foldback.fx.to_document(live, x))
    foldback.apply_edits(live, client.edits(undone))
    assert {*live.state_dict()} == {*merged} and merged
    assert all(torch.equal(item, merged[key]) for key, item in live.state_dict().items())


def test_many_linears_on_one_input(client):
    """Nothing may take a time that grows with the square of the modules below one, which here would be minutes."""
    count = 5000
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for index in range(count):
        root.add_module(f"fc{index}", torch.nn.Linear(2, 1))
    graph.output([graph.call_module(f"fc{index}", (x,)) for index in range(count)])
    live = torch.fx.GraphModule(root, graph)
    given = torch.randn(1, 2)
    before, results = dict(live.named_modules()), live(given)
    run = client.optimize(foldback.fx.to_document(live, given), ["MergeLinears"])
    foldback.apply_edits(live, client.edits(run))
    assert len(list(live.parameters())) == 2
    torch.testing.assert_close(torch.cat(live(given), 1), torch.cat(results, 1))
    foldback.apply_edits(live, client.edits(client.reverse(run)))
    after = dict(live.named_modules())
    assert list(before) == list(after) and all(after[path] is child for path, child in before.items() if path)
