#!/bin/sh
# After torch.export failed, the module can't assign its own buffers any more.
#
# Guess:    a failed torch.export leaves the module and the process as they were, as it does with the module's attributes.
# Seen:     a hook on the buffers of all modules stays: the model's next `self.count = tensor` raises AssertionError, as the
#           tensor is not a fake one, and torch.compile leaves the graph at each assignment of a buffer, of any module.
# Versions: torch 2.9.1 (CPU); in 2.13.0 the hook goes
# Changed:  clients/python/src/foldback/export.py, _left_alone.
. "$(dirname "$0")/setup"
python_with torch==2.9.1 numpy==2.4.6
"$python" >"$work/seen" 2>"$work/warnings" <<'END'
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        return x + self.count if x.sum() > 0 else x


model = Model().eval()
for when in "before", "after":
    try:
        model.count = torch.ones(())
        print(f"{when}: assigned")
    except AssertionError:
        print(f"{when}: AssertionError")
    try:
        torch.export.export(model, (torch.ones(2),))
    except Exception as error:
        print(f"export: {type(error).__name__}")
    print("hooks on buffers:", len(torch.nn.modules.module._global_buffer_registration_hooks))
END
expect <<'END'
before: assigned
export: GuardOnDataDependentSymNode
hooks on buffers: 1
after: AssertionError
export: GuardOnDataDependentSymNode
hooks on buffers: 2
END
