"""Many modules below one: nothing may take a time that grows with their square (which here would be minutes)."""

import torch

import foldback

COUNT = 5000


def test_many_linears_on_one_input(client):
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for index in range(COUNT):
        root.add_module(f"fc{index}", torch.nn.Linear(2, 1))
    graph.output([graph.call_module(f"fc{index}", (x,)) for index in range(COUNT)])
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
