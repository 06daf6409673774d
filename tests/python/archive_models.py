"""Small models whose archives are optimised in test_archive_passes.py: each has something that made an archive hard to write."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.export import Dim

BATCH, LENGTH = Dim("batch", min=2, max=16), Dim("length", min=2, max=12)
Given = tuple[nn.Module, tuple[Any, ...], Any]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(8, 4, bias=False)
        self.drop, self.norm = nn.Dropout(0.1), nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(self.norm(self.a(x))) + self.drop(self.b(x)) / 3.0, self.c(x) * 2.0


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.grouped, self.second, self.head = nn.Conv2d(8, 8, 3, groups=2), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.silu(self.second(self.grouped(functional.relu(self.norm(self.conv(x))))))
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    """Sizes are computed in the graph; decomposed, its Linears are addmm between views."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q, k, v = (linear(self.norm(x)).view(b, n, 2, 8).transpose(1, 2) for linear in (self.q, self.k, self.v))
        y = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v
        return x + self.out(y.transpose(1, 2).reshape(b, n, 16))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mid, self.head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.mid(self.embed(i))))


class Shared(nn.Module):
    """Buffers that are views of a weight, which a fold takes away."""

    def __init__(self) -> None:
        super().__init__()
        base = torch.randn(8, 8)
        self.base = nn.Parameter(base)
        self.register_buffer("row", base[1:3])
        self.register_buffer("turned", base.t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.base) + x @ self.turned + self.row.sum()


class Mutated(nn.Module):
    """A counter and a cache: the program ends with writes to buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("cache", torch.zeros(2, 4, 8))
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        self.cache[:, 1:2].copy_(self.a(x).unsqueeze(1))
        return self.cache.sum(1) + self.b(x) * self.steps * 1.0


class WritesInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        return self.linear(x), x[0]


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.k = nn.Linear(4, 4), torch.arange(4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * torch.tensor([1.0, 2.0, 3.0, 4.0])) + self.k


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: torch.relu(self.a(y)) / 3.0, lambda y: self.b(y) + 0.0, (x,)) * 1


class Narrow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(functional.gelu(self.a(x))) + self.b(x).float().to(torch.bfloat16) / 2


class Empty(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Factories(nn.Module):
    """Factories have arguments by name only, of which a conversion adds the dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place, self.linear = nn.Embedding(30, 8), nn.Embedding(30, 8), nn.Linear(8, 8)

    def forward(self, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = i.shape[1]
        x = self.embed(i) + self.place(torch.arange(n))
        mask = torch.full((n, n), float("-inf")).triu(1)
        w = torch.softmax(x @ x.transpose(1, 2) + mask, -1) @ self.linear(x)
        return w, x.type_as(w)


class Parts(nn.Module):
    """Results of operators that have several are returned."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, right = torch.cat([self.a(x), y], 1).split([3, 5], 1)
        return left, torch.topk(right, 2)[0], torch.var_mean(right, 1)[1]


class Cache(nn.Module):
    """A buffer, a parameter and an input are written; what is written into a buffer is returned through a no-op."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(8, 4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64), persistent=False)
        self.scale = nn.Parameter(torch.ones(4), requires_grad=False)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.cache[:2].copy_(self.a(x))
        self.steps.add_(2)
        self.scale.mul_(0.5)
        x.add_(1)
        return self.cache.sum(0) / 2.0 + self.b(x) * self.scale, x[0], self.steps * 1


class Autocast(nn.Module):
    """A region in another dtype is a nested program."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x) / 2.0 + functional.dropout(self.b(x), 0.5, False)
        return y.float() * self.c(x)


class SpelledOut(nn.Module):
    """Norms, an activation, a softmax and a Linear as formulas, around casts."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.w, self.v, self.b = (nn.Parameter(torch.randn(8, dtype=dtype)) for _ in range(3))
        self.m = nn.Parameter(torch.randn(8, 8, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        y = self.w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        y = y @ self.m.t() + self.b
        y = 0.5 * y * (1.0 + torch.tanh(0.7978845608028654 * (y + 0.044715 * torch.pow(y, 3.0))))
        z = y - y.mean(-1, keepdim=True)
        y = z / torch.sqrt(z.pow(2).mean(-1, keepdim=True) + 1e-5) * self.v + self.b
        e = torch.exp(y - y.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)


MODELS: dict[str, Callable[[], Given]] = {
    "mlp": lambda: (Mlp().eval(), (torch.randn(3, 8),), ({0: BATCH},)),
    "convolutions": lambda: (Convolutions().eval(), (torch.randn(2, 3, 8, 8),), ({0: BATCH},)),
    "training": lambda: (Convolutions().train(), (torch.randn(2, 3, 8, 8),), None),
    "attention": lambda: (Attention().eval(), (torch.randn(3, 7, 16),), ({0: BATCH, 1: LENGTH},)),
    "tied": lambda: (Tied().eval(), (torch.randint(0, 20, (2, 5)),), ({0: BATCH},)),
    "shared": lambda: (Shared().eval(), (torch.randn(3, 8),), ({0: BATCH},)),
    "mutated": lambda: (Mutated().eval(), (torch.randn(2, 8),), None),
    "writes-input": lambda: (WritesInput().eval(), (torch.randn(3, 4),), None),
    "constants": lambda: (Constants().eval(), (torch.randn(3, 4),), ({0: BATCH},)),
    "cache": lambda: (Cache().eval(), (torch.randn(2, 4),), None),
    "autocast": lambda: (Autocast().eval(), (torch.randn(3, 8),), ({0: BATCH},)),
    "branches": lambda: (Branches().eval(), (torch.randn(3, 4),), ({0: BATCH},)),
    "bfloat16": lambda: (Narrow().bfloat16().eval(), (torch.randn(3, 8).bfloat16(),), ({0: BATCH},)),
    "empty": lambda: (Empty(), (torch.randn(3, 8),), None),
    "factories": lambda: (Factories().eval(), (torch.randint(0, 30, (2, 6)),), ({0: BATCH, 1: LENGTH},)),
    "spelled-out": lambda: (SpelledOut().eval(), (torch.randn(3, 8),), ({0: BATCH},)),
    "spelled-out-bfloat16": lambda: (SpelledOut(torch.bfloat16).eval(), (torch.randn(3, 8).bfloat16(),), ({0: BATCH},)),
    "parts": lambda: (Parts().eval(), (torch.randn(3, 4), torch.randn(3, 4)), ({0: BATCH}, {0: BATCH})),
}
