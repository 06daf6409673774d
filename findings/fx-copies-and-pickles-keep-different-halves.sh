#!/bin/sh
# copy.deepcopy of a GraphModule drops its attributes and keeps its meta; a pickle keeps the attributes and drops the meta.
#
# Guess:    a deep copy and a pickle of a torch.fx.GraphModule are equally complete: what one keeps, the other keeps.
# Seen:     an attribute set on the module (transformers sets its config so) survives the pickle only, an entry of
#           module.meta the copy only; node.meta goes with the copy, and not with the pickle. Nothing survives both.
# Versions: torch 2.13.0 (CPU)
# Changed:  clients/python/src/foldback/tensors.py, State.keep_in: runs are noted in both places, and copies and pickles
#           mended by hooks; optimization.py carries config along.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import copy
import pickle

import torch
from torch import fx, nn

module = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
module.config = {"size": 2}
module.meta["note"] = "mine"
for node in module.graph.nodes:
    node.meta["note"] = "mine"
for name, other in ("copy", copy.deepcopy(module)), ("pickle", pickle.loads(pickle.dumps(module))):
    nodes = all("note" in node.meta for node in other.graph.nodes)
    print(f"{name:6} attribute: {hasattr(other, 'config')}, module.meta: {'note' in other.meta}, node.meta: {nodes}")
END
expect <<'END'
copy   attribute: False, module.meta: True, node.meta: True
pickle attribute: True, module.meta: False, node.meta: False
END
