"""Divisions by a constant."""

import math

import torch
from case import case
from torch import nn

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
ZERO, RANGE, NUMBER, UNKNOWN = "division-by-zero", "inverse-out-of-range", "unknown-dtype", "unknown-dtype"


# ---- what becomes a multiplication ----------------------------------------------------------------------------------------


@case((2, 8), div=(4, []))
def every_spelling(self, x):
    return x / 8, torch.div(x, 8.0), torch.true_divide(x, 8), x.div(8)


@case((2, 8), div=(3, []))
def every_other_name(self, x):
    return torch.divide(x, 8), x.divide(8.0), x.true_divide(8)


@case((2, 8), div=(0, ["rounding-mode", "rounding-mode"]))
def other_names_that_round(self, x):
    return torch.divide(x, 8, rounding_mode="floor"), x.divide(8, rounding_mode="trunc")


@case((2, 8), div=(4, []))
def keywords(self, x):
    return x.div(other=3), torch.div(input=x, other=3), torch.div(x, other=3), torch.true_divide(x, other=3)


@case((2, 8), div=(3, []))
def an_empty_rounding_mode(self, x):
    return torch.div(x, 3, rounding_mode=None), x.div(3, rounding_mode=None), torch.div(x, rounding_mode=None, other=3)


@case((2, 8), div=(9, []))
def constants_whose_inverse_does_not_invert_back(self, x):
    return x / 49, x / 98, x / 103, x / 49.0, x / 10, x / -7, x / math.pi, x / 1e-3, x / 1e3


@case((2, 8), dtype=SINGLE, div=(4, []))
def single_precision(self, x):
    return x / 49, x / 3.0, x / 1e30, x / 1e-30


@case((2, 8), dtype=HALF, div=(3, []))
def half_precision_in_range(self, x):
    return x / 8, x / 16384, x / 49


@case((2, 8), dtype=BRAIN, div=(3, []))
def brain_precision_in_range(self, x):
    return x / 8, x / 1e30, x / 49


@case((2, 8), div=(3, []))
def divided_again_and_again(self, x):
    return x / 3 / 3 / 3


@case((), div=(1, []))
def a_tensor_without_dimensions(self, x):
    return x / 3


@case(torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 5e-324]), div=(1, []))
def odd_values(self, x):
    return x / 4


@case((2, 8), div=(1, []))
def a_large_int(self, x):
    return x / (2**53 + 1)


@case((2, 8), modules=lambda: {"fc": nn.Linear(8, 4)}, div=(2, []))
def before_and_after_a_linear(self, x):
    return self.fc(x / 7).div(math.sqrt(8))


@case((2, 8), div=(1, []))
def the_result_is_written_in_place(self, x):
    y = x / 5
    y.add_(1)
    return y, x


# ---- what does not --------------------------------------------------------------------------------------------------------


@case((2, 8), div=(0, [ZERO] * 4))
def zeros(self, x):
    return x / 0, x / 0.0, x.div(-0.0), torch.div(x, 0)


@case((2, 8), div=(0, ["non-finite-divisor"] * 3))
def infinities(self, x):
    return x / math.inf, x.div(-math.inf), torch.div(x, math.nan)


@case((2, 8), div=(0, [RANGE] * 4))
def denormals(self, x):
    return x / 5e-324, x / 2.2e-308, x / 1.7e308, x / 1e-310


@case((2, 8), dtype=SINGLE, div=(0, [RANGE] * 5))
def out_of_single_range(self, x):
    return x / 1e39, x / 1e-39, x / 3e38, x / 1e-46, x / 1e300


@case((2, 8), dtype=HALF, div=(0, [RANGE] * 4))
def out_of_half_range(self, x):
    return x / 65504, x / 1e5, x / 1e-5, x / 16385


@case((2, 8), dtype=BRAIN, div=(0, [RANGE] * 2))
def out_of_brain_range(self, x):
    return x / 3e38, x / 1e-39


@case((2, 8), div=(0, ["rounding-mode"] * 3))
def rounded(self, x):
    return torch.div(x, 3, rounding_mode="floor"), x.div(3, rounding_mode="trunc"), torch.div(x, 3, rounding_mode="trunc")


@case(torch.arange(12), div=(2, []))
def integers(self, x):
    return x / 3, x.div(4)


@case(torch.tensor([True, False]), div=(1, []))
def booleans(self, x):
    return x / 3


@case(torch.tensor([1 + 2j, -1j]), div=(0, ["unsupported-dtype"]))
def complex_numbers(self, x):
    return x / 3


@case((2, 8), div=(0, ["unsupported-constant"] * 3))
def odd_constants(self, x):
    return x / True, x.div(2 + 0j).abs(), x / False


@case((2, 8), div=(0, [NUMBER] * 3))
def sizes(self, x):
    return x * (x.size(0) / 2), x + x.shape[1] / 3, x - (x.size(-1) * 2 + 1) / 7


@case((2, 8), div=(0, [NUMBER] * 3))
def other_numbers(self, x):
    return x * (x.dim() / 2), x * (x.numel() / 3), x * (x.sum().item() / 4)


@case((2, 8), div=(0, []))
def by_a_size(self, x):
    return x / x.size(-1), x.div(x.shape[0])


@case((2, 8), (2, 8), div=(0, []))
def by_a_tensor(self, x, y):
    return x / y, torch.div(x, y.abs() + 1)


@case((2, 8), div=(0, []))
def a_constant_by_a_tensor(self, x):
    return 8 / x, x.reciprocal()


@case(6.0, (2, 8), div=(0, [UNKNOWN]))
def a_number_as_input(self, scale, x):
    return x * (scale / 3)


@case((2, 8), div=(0, []))
def in_place(self, x):
    x.div_(8)
    return x, x.floor_divide(3), x // 2, x % 3


@case((2, 8), div=(0, ["unsupported-arguments"]))
def an_out_argument(self, x):
    y = torch.empty_like(x)
    torch.div(x, 4, out=y)
    return y


@case((2, 8), div=(2, []))
def after_a_cast(self, x):
    return x.long() / 3, x.long().to(x.dtype) / 3


@case((4, 4), div=(3, []))
def parts_of_a_tensor(self, x):
    return x[0] / 3, x.T / 3, x.chunk(2)[1] / 3


@case((4, 4), div=(2, []))
def results_of_reductions(self, x):
    return x.max(1)[0] / 3, x.sort().values / 3
