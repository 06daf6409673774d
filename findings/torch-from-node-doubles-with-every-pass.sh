#!/bin/sh
# A node made from two nodes, over and over, has twice as many sources each time: `from_node` is a tree of copies.
#
# Guess:    NodeSource refers to the sources of the node that was replaced, so provenance grows with the number of passes.
# Seen:     it copies them deeply, and `get_graph_provenance_json` writes each out: a sum that is replaced by a sum of two copies of
#           it has 8188 sources after 11 rounds. Nothing limits the depth.
# Versions: torch 2.13.0 (CPU)
# Changed:  clients/python/src/foldback/ancestry.py and core/archive/provenance.c: the 64 nearest sources of a node, in all.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import torch
from torch.fx.traceback import NodeSource, NodeSourceAction, get_graph_provenance_json

graph = torch.fx.Graph()
x = graph.placeholder("x")
node = graph.call_function(torch.relu, (x,))
for _ in range(11):
    left, right = (graph.call_function(torch.relu, (x,)) for _ in range(2))
    for copy in (left, right):
        copy.meta["from_node"] = [NodeSource(node, "duplicate", NodeSourceAction.REPLACE)]
    node = graph.call_function(torch.add, (left, right))
    node.meta["from_node"] = [NodeSource(copy, "join", NodeSourceAction.CREATE) for copy in (left, right)]
graph.output(node)


def count(sources):
    return sum(1 + count(source["from_node"]) for source in sources)


print(count(get_graph_provenance_json(graph)[node.name]))
END
expect <<'END'
8188
END
