"""`meta` says of all nodes that edits put into a live module where they are from, as PyTorch's tools read it."""

import pytest
import torch
import vision_models
from torch._inductor.debug import create_mapping_pre_post_grad_nodes
from torch.fx.traceback import get_graph_provenance_json

import foldback
from foldback.export import _drop_guards

LISTS = [["inference"], [{"name": "latency", "params": {"tokens": 1}}],
         [{"name": "ConvertPrecision", "params": {"to": "bfloat16"}}]]


def exported(name):
    model, inputs = vision_models.make(name)
    live = torch.export.export(model, (), inputs).module()
    _drop_guards(live)
    return live, inputs


def calls(module):
    return {node.name: str(node.target) for node in module.graph.nodes if node.op == "call_function"}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["resnet", "vit", "convnext", "mobilenet", "adapted", "densenet", "shufflenet", "inception"])
def test_every_new_node_says_where_it_is_from(client, name):
    count = 0
    for passes in LISTS:
        live, inputs = exported(name)
        before, old = calls(live), {node.name: dict(node.meta) for node in live.graph.nodes}
        document = foldback.fx.to_document(live, *inputs.values())
        run = client.optimize(document, passes)
        foldback.apply_edits(live, client.edits(run))
        new = {node.name: node for node in live.graph.nodes
               if node.op == "call_function" and before.get(node.name) != str(node.target)}
        mapping = create_mapping_pre_post_grad_nodes(id(live.graph), get_graph_provenance_json(live.graph))
        for key, node in new.items():
            sources = node.meta["from_node"]
            made = [f"{one['name']} {one['signature']}" for one in run["passes"] if key in one.get("inserted", ())]
            assert {source.pass_name for source in sources} == {made[-1]}
            assert set(mapping["postToPre"][key]) >= {source.name for source in sources} and sources
            called = [old[source.name] for source in sources if source.name in before]
            for member in ("stack_trace", "torch_fn"):
                said = {meta.get(member) for meta in called}
                assert node.meta.get(member) == (said.pop() if len(said) == 1 else None)
            assert not called or next(iter(node.meta["nn_module_stack"].items())) == next(
                iter(called[0]["nn_module_stack"].items()))
        count += len(new)
        assert client.graph(run["result"])["nodes"] == foldback.fx.to_document(live)["nodes"], "a document has none of this"
    assert count >= 2


def test_the_modules_that_all_are_in(client):
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return (self.q(x) @ self.k(x).transpose(2, 3) / 2.0).softmax(-1) @ x

    model = torch.nn.Sequential(Attention(), torch.nn.Linear(4, 4))
    live = torch.export.export(model, (torch.randn(1, 1, 3, 4),)).module()
    _drop_guards(live)
    run = client.optimize(foldback.fx.to_document(live, torch.randn(1, 1, 3, 4)), ["MergeLinears", "FuseAttention"])
    foldback.apply_edits(live, client.edits(run))
    found = {node.target: node for node in live.graph.nodes if "from_node" in node.meta and "slice" not in node.name}
    attention = found[torch.ops.aten.scaled_dot_product_attention.default]
    assert [source.name for source in attention.meta["from_node"]][:2] == ["matmul_1", "softmax"]
    merged = next(node for node in live.graph.nodes if node.name == "linear_default")
    for node in (attention, merged):
        assert [path for path, _ in node.meta["nn_module_stack"].values()] == ["", "0"]
    assert attention.meta["from_node"][0].pass_name.startswith("FuseAttention ")


def test_edits_without_a_run(client):
    live, inputs = exported("vit")
    document = foldback.fx.to_document(live, *inputs.values())
    foldback.apply_edits(live, list(client.edits(client.optimize(document, ["inference"]))))
    assert {source.pass_name for node in live.graph.nodes for source in node.meta.get("from_node", ())
            if "module()" not in source.pass_name} == {"foldback"}


def test_sources_do_not_multiply(client):
    """A new node has at most 64 sources in all, the nearest, however often the model was changed and changed back."""
    live, inputs = exported("vit")
    document, before = foldback.fx.to_document(live, *inputs.values()), calls(live)

    def count(source):
        return 1 + sum(map(count, source.from_node))

    counts = []
    for _ in range(8):
        run = client.optimize(document, ["inference"])
        for answer in (run, client.reverse(run) if run["reversible"] else client.rollback(run)):
            foldback.apply_edits(live, client.edits(answer))
            foldback_made = [node.meta["from_node"] for node in live.graph.nodes
                             if any("module()" not in source.pass_name for source in node.meta.get("from_node", ()))]
            counts.append(max(sum(map(count, sources)) for sources in foldback_made))
    assert calls(live) == before
    assert counts[0] > 1 and counts[-1] == max(counts) <= 64
