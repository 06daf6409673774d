"""Small models whose archives are optimised in test_archive_passes.py: each has something that made an archive hard to
write."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional

BATCH, LENGTH, OTHER = Dim("batch", min=2, max=16), Dim("length", min=2, max=12), Dim("other", min=2, max=12)
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


class Symbols(nn.Module):
    """Sums and products of symbolic sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.cat([self.a(x), self.b(y)], 1)
        return z * 1.0, (z @ z.transpose(1, 2)) / 4.0, x.new_zeros(x.shape[0], y.shape[1] * 2) + 1


class Views(nn.Module):
    """One storage as a parameter and three buffers, and one module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.randn(6, 8) / 8)
        for name, view in {"v": self.p.data[:, 2:6], "w": self.p.data.t(), "u": self.p.data.view(2, 3, 8)[1]}.items():
            self.register_buffer(name, view)
        self.linear = nn.Linear(8, 6)
        self.same = self.linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) @ self.p + (x[:, :4]
                                          @ self.v.t()) @ self.p + x @ self.w @ self.p + self.same(x).mean() * self.u.mean()


class NestedBranches(nn.Module):
    """A nested program within a nested program."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return torch.cond(y.sum() > 1, lambda z: z * 1.0 + self.a(z), lambda z: z / 3.0, (y,))

        return torch.cond(x.sum() > 0, inner, lambda y: self.a(y) + 0.0, (x,)) * 1


class Dtypes(nn.Module):
    """Buffers of many dtypes, an empty one and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        for dtype in (torch.int8, torch.uint8, torch.int16):
            self.register_buffer(f"as_{str(dtype)[6:]}", torch.arange(4, dtype=dtype))
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.complex64):
            self.register_buffer(f"as_{str(dtype)[6:]}", torch.randn(4, dtype=dtype))
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("scalar", torch.tensor(2.5))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.linear(x) * self.mask + self.as_int8 + self.as_uint8 + self.as_int16
        wide = (y.half() + self.as_float16).float() + (y * self.as_float64).float() + (y * self.as_complex64).real
        return torch.where(self.mask, y, -y) * 1.0, wide, torch.cat([self.empty, x[:, :3]]) * self.scalar / 2.0


class KeyCache(nn.Module):
    """Attention over a cache; the place that it writes at is a buffer that it writes as well."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 8, 4))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (linear(x).view(1, 1, 2, 4).transpose(1, 2) for linear in (self.q, self.k, self.v))
        self.keys.index_copy_(2, self.place, k)
        self.place.add_(1)
        return functional.scaled_dot_product_attention(q, self.keys, self.keys) + v * 1.0


class Columns(nn.Module):
    """Weights and buffers that are the halves of columns of one tensor: they interleave, and have no element in common."""

    def __init__(self) -> None:
        super().__init__()
        weights, table = torch.randn(6, 16) / 4, torch.rand(6, 12)
        self.a, self.b = nn.Linear(8, 6), nn.Linear(8, 6)
        self.a.weight, self.b.weight = nn.Parameter(weights[:, :8]), nn.Parameter(weights[:, 8:])
        self.register_buffer("sin", table[:, ::2])
        self.register_buffer("cos", table[:, 1::2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) @ self.sin + (self.b(x) / 2.0) @ self.cos.t()


class Overlapping(nn.Module):
    """Weights that share memory without being views of each other, an expanded one, and layers that a pass would merge."""

    def __init__(self) -> None:
        super().__init__()
        held = torch.randn(4, 10)
        self.a, self.b = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False)
        self.a.weight, self.b.weight = nn.Parameter(held[:, :6]), nn.Parameter(held[:, 4:])
        self.c, self.d = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False)
        self.c.weight = nn.Parameter(torch.randn(1, 6).expand(4, 6))
        self.register_buffer("bits", self.d.weight.detach().view(torch.int32))
        self.e, self.f = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.a(x) / 8.0, self.b(x), self.c(x), self.d(x) + self.bits[:, 0] % 7, self.e(x), self.f(x)


class Integers(nn.Module):
    """Linears of integers, which passes merge."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in {"q": (4, 6), "k": (4, 6), "a": (4,), "b": (4,)}.items():
            self.register_buffer(name, torch.randint(-5, 5, shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two = nn.functional.linear(x, self.q, self.a), nn.functional.linear(x, self.k, self.b)
        return one * two + self.a[:2].repeat(2)


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
    "symbols": lambda: (Symbols().eval(), (torch.randn(3, 4, 6), torch.randn(3, 5, 6)),
                        ({0: BATCH, 1: LENGTH}, {0: BATCH, 1: OTHER})),
    "views": lambda: (Views().eval(), (torch.randn(3, 8),), ({0: BATCH},)),
    "nested-branches": lambda: (NestedBranches().eval(), (torch.randn(3, 4),), ({0: BATCH},)),
    "dtypes": lambda: (Dtypes().eval(), (torch.randn(3, 4),), ({0: BATCH},)),
    "key-cache": lambda: (KeyCache().eval(), (torch.randn(1, 1, 8),), None),
    "columns": lambda: (Columns().eval(), (torch.randn(3, 8),), ({0: BATCH},)),
    "overlapping": lambda: (Overlapping().eval(), (torch.randn(3, 6),), ({0: BATCH},)),
    "integers": lambda: (Integers().eval(), (torch.randint(-5, 5, (3, 6)),), ({0: BATCH},)),
    "parts": lambda: (Parts().eval(), (torch.randn(3, 4), torch.randn(3, 4)), ({0: BATCH}, {0: BATCH})),
}
