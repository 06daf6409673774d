#!/bin/sh
# copy.deepcopy of a module with a tensor in oneDNN's order of memory raises, though the tensor has a clone().
#
# Guess:    a tensor of to_mkldnn() is copied as any other: deepcopy asks it for a clone, as it does where there is no storage
#           (sparse and meta tensors).
# Seen:     NotImplementedError: Cannot access storage of OpaqueTensorImpl. Its clone() works.
# Versions: torch 2.13.0 (CPU)
# Changed:  clients/python/src/foldback/packing.py, pack: its docstring says so. tests/adversary/compare.py, another: such tensors
#           are shared by the copies of a module.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import copy

import torch

module = torch.nn.Module()
module.register_buffer("weight", torch.ones(2, 2).to_mkldnn())
print("clone", module.weight.clone().to_dense().tolist())
try:
    copy.deepcopy(module)
    print("copied")
except NotImplementedError as error:
    print(error)
END
expect <<'END'
clone [[1.0, 1.0], [1.0, 1.0]]
Cannot access storage of OpaqueTensorImpl
END
