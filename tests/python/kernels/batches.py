"""torch.vmap as torch.export writes it: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import pathlib
import sys

import torch
from recorder import Recorder, outputs_of, values
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "clients/python/src"))

import foldback.export


class Mask(torch.nn.Module):
    """What `function` says of each batch, head, query and key, as transformers makes masks of attention."""

    def __init__(self, end=lambda mask: mask):
        super().__init__()
        self.end = end
        self.register_buffer("padding", values(torch.bool, 2, 6))
        self.register_buffer("grid", torch.arange(6))

    def forward(self):
        function = self.function
        for dims in [(None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)]:
            function = torch.vmap(function, in_dims=dims, out_dims=0)
        with TransformGetItemToIndex():
            return self.end(function(self.grid[:2], self.grid[:3], self.grid[1:5], self.grid))


def main(recorder):
    functions = {
        "causal": lambda mask: lambda b, h, q, k: q >= k,
        "window": lambda mask: lambda b, h, q, k: (q - 2 < k) & (k <= q),
        "padding": lambda mask: lambda b, h, q, k: mask.padding[b, k] & (k <= q),
        "heads": lambda mask: lambda b, h, q, k: h * 10 + q - k,
        "one level": lambda mask: lambda b, h, q, k: h + 1,
        "none": lambda mask: lambda b, h, q, k: q.new_ones((), dtype=torch.bool),
        "viewed": lambda mask: lambda b, h, q, k: (k * 2 - q) * 3 + b - h,
        "sums": lambda mask: lambda b, h, q, k: torch.stack([q, k]).sum(),
    }
    for name, function in functions.items():
        mask = Mask(lambda made: made.view(-1)) if name == "viewed" else Mask()
        mask.function = function(mask)
        program = torch.export.export(mask, ())
        document = foldback.export.from_exported_program(program, data=True)
        row = {"name": name, "graph": document}
        row |= {"refused": True} if name == "sums" else {"outputs": outputs_of(mask(), [])}
        recorder.cases.append(row)


if __name__ == "__main__":
    recorder = Recorder("batches")
    main(recorder)
    recorder.write()
