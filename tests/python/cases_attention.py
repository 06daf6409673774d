"""Attention that is spelled out, and what depends on no input: positions, masks and tables."""

import torch
import torch.nn.functional as F
from case import case

HEADS = (2, 2, 4, 8)
LOW = torch.finfo(torch.float32).min
OPEN = torch.tensor([[True, False, False, True]] * 4)
SHUT = torch.tensor([[True, False, False, True], [False] * 4, [True] * 4, [False, True, False, False]])


def made(x, function, *args, **kwargs):
    """A call that reads no input, which torch.fx would do at once."""
    return x.tracer.create_proxy("call_function", function, args,
                                 kwargs) if isinstance(x, torch.fx.Proxy) else function(*args, **kwargs)


def attention(q, k, v, change=lambda scores: scores):
    return torch.matmul(F.softmax(change(torch.matmul(q, k.transpose(-1, -2))), dim=-1), v)


# ---- attention ---------------------------------------------------------------------------------------------------------------


@case(HEADS, HEADS, HEADS, attention=(1, []))
def attention_plain(self, q, k, v):
    return attention(q, k, v).contiguous()


@case(HEADS, HEADS, HEADS, dtype=torch.float32, attention=(1, []))
def attention_scaled_by_its_queries_and_after(self, q, k, v):
    return attention(q * 0.5, k, v, lambda scores: scores / 2).contiguous()


@case(HEADS, HEADS, HEADS, dtype=torch.float32, attention=(1, []))
def attention_scaled_by_a_negative_number(self, q, k, v):
    return attention(q, k, v, lambda scores: scores * -0.3).contiguous()


@case(HEADS, (2, 2, 7, 8), (2, 2, 7, 3), attention=(1, []))
def attention_over_another_length(self, q, k, v):
    return attention(q, k, v, lambda scores: scores * 0.3).contiguous()


@case(HEADS, HEADS, HEADS, SHUT, dtype=torch.float32, attention=(1, []))
def attention_where_a_row_is_shut(self, q, k, v, mask):
    return attention(q, k, v, lambda scores: torch.where(mask, scores, LOW)).contiguous()


@case(HEADS, HEADS, HEADS, SHUT, dtype=torch.float32, attention=(1, []))
def attention_filled_where_a_row_is_shut(self, q, k, v, mask):
    return attention(q, k, v, lambda scores: scores.masked_fill(~mask, LOW)).contiguous()


@case(HEADS, HEADS, HEADS, OPEN, dtype=torch.float32, attention=(0, ["masked-row"]))
def attention_filled_with_infinity(self, q, k, v, mask):
    return attention(q, k, v, lambda scores: scores.masked_fill(~mask, float("-inf"))).contiguous()


@case(HEADS, HEADS, HEADS, SHUT, dtype=torch.float32, attention=(1, []))
def attention_under_a_finite_mask(self, q, k, v, mask):
    low = torch.where(mask, 0.0, LOW)
    return attention(q, k, v, lambda scores: scores + low[None, None]).contiguous()


@case(HEADS, HEADS, HEADS, dtype=torch.float32, attention=(1, []))
def attention_under_a_mask_of_its_own(self, q, k, v):
    rows = made(q, torch.arange, 4)
    return attention(q, k, v, lambda scores: torch.where(rows[None] <= rows[:, None], scores, LOW)).contiguous()


@case(HEADS, HEADS, HEADS, dtype=torch.float32, attention=(1, []))
def attention_under_a_causal_mask_of_infinity(self, q, k, v):
    closed = made(q, torch.ones, 4, 4, dtype=torch.bool).tril().logical_not()
    return attention(q, k, v, lambda scores: scores.masked_fill(closed, float("-inf"))).contiguous()


@case(HEADS, HEADS, HEADS, dtype=torch.float32, attention=(1, []))
def attention_under_an_added_triangle_of_infinity(self, q, k, v):
    low = made(q, torch.full, (4, 4), float("-inf")).triu(diagonal=1)
    return attention(q, k, v, lambda scores: scores + low).contiguous()


@case(HEADS, (2, 1, 4, 8), (2, 1, 4, 8), attention=(1, []))
def attention_of_shared_keys(self, q, k, v):
    return attention(q, k.expand(2, 2, 4, 8), v.expand(2, 2, 4, 8)).contiguous()


@case(HEADS, HEADS, HEADS, attention=(0, ["needs-contiguous"]))
def attention_that_is_viewed(self, q, k, v):
    return attention(q, k, v).view(-1)


# ---- what depends on no input ------------------------------------------------------------------------------------------------


@case((4, 4), constants=(1, []))
def causal_mask(self, x):
    rows = made(x, torch.arange, 4)
    return torch.where(rows[None] <= rows[:, None], x, 0.0)


@case((4,), dtype=torch.float32, constants=(1, ["inexact"]))
def sines_of_positions(self, x):
    return x * made(x, torch.arange, 4).float().mul(0.1).sin()


@case((3, 4), dtype=torch.float32, constants=(1, []))
def a_table_written_in_place(self, x):
    table = made(x, torch.zeros, 3, 4)
    table.add_(2)
    table[1].mul_(3)
    return x + table


@case((3, 4), dtype=torch.float32, constants=(0, ["graph-output"]))
def a_table_that_is_returned(self, x):
    return made(x, torch.ones, 3, 4)


@case((3, 4), dtype=torch.float32)
def every_other_column_of_a_table(self, x):
    return x + made(x, torch.ones, 3, 8)[:, ::2].contiguous().view(3, 4)


@case((5, 5), dtype=torch.float32)
def relative_positions(self, x):
    rows = made(x, torch.arange, 5)
    distance = rows[:, None] - rows[None]
    near = distance.abs() < 2
    return x * torch.where(near, distance, 7 // 2).clamp(-2, 2) + near.long()
