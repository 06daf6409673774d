#!/bin/sh
# The value of operator.setitem in a torch.fx graph is the tensor when the module runs, and None when torch.fx.Interpreter
# runs it.
#
# Guess:    operator.setitem gives None, in Python and in a graph; a module and fx.Interpreter of one graph give the same.
# Seen:     fx prints the call as an assignment and goes on with the tensor that was assigned into, as there is nothing else
#           to name. The Interpreter calls the function, and has None.
# Versions: torch 2.13.0 (CPU)
# Changed:  core/evaluator/kernels_index.c, kernel_setitem: the function gives the tensor, as the printed code has it; the
#           method gives None.
. "$(dirname "$0")/setup"
python_with torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
"$python" >"$work/seen" <<'END'
import operator

import torch
from torch import fx, nn

graph = fx.Graph()
x = graph.placeholder("x")
graph.output(graph.call_function(operator.setitem, (x, 0, 5.0)))
module = fx.GraphModule(nn.Module(), graph)
print("Python:     ", operator.setitem(torch.zeros(2), 0, 5.0))
print("module:     ", module(torch.zeros(2)))
print("Interpreter:", fx.Interpreter(module).run(torch.zeros(2)))
END
expect <<'END'
Python:      None
module:      tensor([5., 0.])
Interpreter: None
END
