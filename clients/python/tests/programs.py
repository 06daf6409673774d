"""Functions and classes that traced programs of the tests name: another process finds them by their module."""

import collections
import enum

import torch
import torch.fx

Pair = collections.namedtuple("Pair", ["left", "right"])


class Mode(enum.Enum):
    SUM = 1
    MEAN = 2


def wrapped(x, mode):
    return x.sum(-1) if mode is Mode.SUM else x.mean(-1)


torch.fx.wrap("wrapped")


def pooled(x, mode, scale=1.0, options=None):
    return (x.sum(-1) if mode is Mode.SUM else x.mean(-1)) * scale


class Scaled(torch.nn.Linear):
    def forward(self, input):
        return super().forward(input) * 2


class Small(torch.nn.Module):
    """Merged, folded and divided; a frozen weight, a tie, a view and a buffer that a checkpoint lacks."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.norm, self.out = torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4)
        self.head = torch.nn.Linear(8, 4, bias=False)
        self.head.weight = self.out.weight
        self.register_buffer("table", torch.randn(4, 8))
        self.register_buffer("row", self.table[2], persistent=False)
        self.out.bias.requires_grad_(False)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)
        self.to(dtype).eval()
        self.row = self.table[2]

    def forward(self, x):
        x = self.query(x) * self.key(x) / 49 + self.row
        x = self.norm(self.out(x) @ self.table)
        return self.head(x), x


def build():
    return Small(), (torch.randn(2, 8),)


def build_model():
    return Small()


def build_nothing():
    raise RuntimeError("no model today")
