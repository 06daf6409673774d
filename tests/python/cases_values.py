"""Values that are no floating-point tensors: casts of weights, integer, bool and complex weights, masks, numbers and tensors
without dimensions, and operators that take the one and not the other."""

import operator

import torch
import torch.nn.functional as F
from case import case
from torch import nn


def buffers(**values):
    """Modules that hold these tensors, as they are: `self.w.value`."""

    def make():
        children = {name: nn.Module() for name in values}
        for name, value in values.items():
            children[name].register_buffer("value", value.clone())
        return children

    return make


def holding(**values):
    def prepare(module):
        for name, value in values.items():
            getattr(module, name).value = value.clone()

    return {"modules": buffers(**values), "prepare": prepare}


FRACTIONS = torch.tensor([[0.5, -1.7, 2.25], [3.9, -0.1, 7.5]])
MASK = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
WHOLE = torch.tensor([[1, -2, 3], [4, 5, -6]])

# ---- casts of weights -----------------------------------------------------------------------------------------------------


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_cast_to_a_wider_integer(self, x):
    return x + self.w.value.long() * 0.5


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_cast_to_int64_by_to(self, x):
    return x + self.w.value.to(torch.int64) * 0.5


@case((2, 3), **holding(w=FRACTIONS.half()), dtype=torch.float32)
def a_half_weight_cast_to_int32(self, x):
    return x + self.w.value.to(torch.int32) * 0.5


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_cast_to_an_integer_and_back(self, x):
    return x + self.w.value.to(torch.int64).to(torch.float32)


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_cast_to_an_integer_and_to_double(self, x):
    return x + self.w.value.type(torch.int64).double()


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_cast_to_int8(self, x):
    return x + self.w.value.to(torch.int8)


@case((2, 3), **holding(w=MASK), dtype=torch.float32)
def a_mask_of_floats(self, x):
    return x.masked_fill(~self.w.value.bool(), -1e9)


@case((2, 3), **holding(w=MASK), dtype=torch.float32)
def a_mask_of_floats_cast_by_to(self, x):
    return x.masked_fill(self.w.value.to(torch.bool), -1e9)


@case((2, 3), **holding(w=MASK), dtype=torch.float32)
def a_mask_of_floats_cast_twice(self, x):
    return x * self.w.value.to(torch.bool).to(torch.float32)


@case((2, 3), **holding(w=WHOLE), dtype=torch.float32)
def a_mask_of_integers(self, x):
    return x.masked_fill(~self.w.value.bool(), -1e9)


@case((2, 3), **holding(w=WHOLE), dtype=torch.float32)
def integers_cast_to_a_mask_by_to(self, x):
    return x.masked_fill(self.w.value.to(torch.bool).t().t(), -1e9)


@case((2, 3), **holding(w=WHOLE), dtype=torch.float32)
def integers_cast_to_floats(self, x):
    return x * self.w.value.float() + self.w.value.to(torch.float16)


@case((2, 3), **holding(w=WHOLE), dtype=torch.float32)
def integers_times_a_number(self, x):
    return x * (self.w.value * 0.5) + self.w.value / 2 + (self.w.value * 2)


@case((2, 3), **holding(w=WHOLE), dtype=torch.float32)
def integers_cast_to_other_integers(self, x):
    return x * self.w.value.to(torch.int8) + self.w.value.to(torch.int16).reshape(2, 3)


@case((2, 3), **holding(w=WHOLE > 0), dtype=torch.float32)
def bools_as_numbers(self, x):
    return x * self.w.value.to(torch.float32) + self.w.value * 2 + self.w.value.int()


@case((2, 3), **holding(w=WHOLE > 0), dtype=torch.float32)
def bools_expanded(self, x):
    return x.masked_fill(self.w.value.unsqueeze(0).expand(2, 2, 3)[0], 1.5)


@case((2, 3), **holding(w=WHOLE), dtype=torch.float32)
def integers_expanded(self, x):
    return x + self.w.value.unsqueeze(0).expand(2, 2, 3).reshape(4, 3)[1:3]


@case((2, 3), **holding(w=torch.complex(FRACTIONS, MASK)), dtype=torch.float32)
def complex_times_a_number(self, x):
    return torch.view_as_real(x * (self.w.value * 2.0)) + 1


@case((2, 3), **holding(w=torch.complex(FRACTIONS, MASK)), dtype=torch.float32)
def complex_transposed(self, x):
    return torch.view_as_real(x * self.w.value.t().reshape(2, 3)) + 1


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_cast_to_complex(self, x):
    return torch.view_as_real(x * self.w.value.to(torch.complex64)) + 1


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_cast_to_complex_and_multiplied(self, x):
    return torch.view_as_real(x * (self.w.value * 2.0).to(torch.complex64)) + 1


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_viewed_as_another_dtype(self, x):
    return x + self.w.value.view(torch.int32) % 7


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_rounded_to_bfloat16_and_back(self, x):
    return x + self.w.value.bfloat16().t().t().float()


@case((2, 3), **holding(w=FRACTIONS), dtype=torch.float32)
def a_weight_made_wider(self, x):
    return x + (self.w.value.double() * 0.1).float()


@case((2, 3), **holding(w=FRACTIONS, m=WHOLE > 0), dtype=torch.float32)
def a_product_of_a_weight_and_a_mask(self, x):
    return x + self.w.value * self.m.value


@case((2, 3), **holding(w=FRACTIONS, m=WHOLE), dtype=torch.float32)
def a_product_of_a_weight_and_integers(self, x):
    return x + self.w.value * self.m.value + torch.cat([self.w.value, self.m.value])[:2]


@case((2, 3), **holding(w=FRACTIONS, m=WHOLE > 0), dtype=torch.float32)
def a_mask_made_of_weights(self, x):
    return torch.where(self.m.value & (self.w.value > 0), x, self.w.value)


# ---- tensors without dimensions -----------------------------------------------------------------------------------------


def number(x, value=0.5):
    return torch.full((), value, dtype=x.dtype)


def of_two(function, name):
    """Both ways round, as a function and as a method."""

    def forward(self, x):
        results = [function(x, number(x)), function(number(x), x)]
        if hasattr(torch.Tensor, name):
            results.append(getattr(x, name)(number(x)))
        return results

    forward.__name__ = f"a_scalar_tensor_in_{name}"
    case((2, 3), dtype=torch.float32)(forward)


OF_TWO = [
    "add", "sub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod", "pow", "float_power", "maximum", "minimum",
    "fmax", "fmin", "max", "min", "atan2", "arctan2", "hypot", "logaddexp", "logaddexp2", "copysign", "xlogy", "heaviside",
    "nextafter", "rsub", "multiply", "subtract", "divide", "special_xlogy", "special_xlog1py", "ldexp",
]
for each in OF_TWO:
    if hasattr(torch, each):
        of_two(getattr(torch, each), each)


@case((2, 3), dtype=torch.float32)
def scalar_tensors_beside_operators(self, x):
    half = number(x)
    return x + half, half - x, x * half, half / x, x // half, x % half, half % x, x**half, half**x, half // x


@case((2, 3), dtype=torch.float32)
def scalar_tensors_that_bound(self, x):
    low, high = number(x, -0.5), number(x)
    return (torch.clamp(x, low, high), x.clamp(min=low), torch.clamp(x, max=high), torch.clamp(x, low, x),
            torch.clamp_min(x, low))


@case((2, 3), dtype=torch.float32)
def scalar_tensors_as_bounds_of_tensors(self, x):
    return torch.clamp(x, min=x * 0.5, max=number(x)), x.clamp_max(
        number(x)
    )


@case((2, 3), dtype=torch.float32)
def scalar_tensors_among_three(self, x):
    half = number(x)
    return (
        torch.addcmul(x, x, half),
        torch.addcmul(half, x, x),
        torch.addcdiv(x, x, half),
        torch.lerp(x, half, 0.5),
        torch.lerp(x, x * 2, half),
        x.lerp(half, x),
    )


@case((2, 3), dtype=torch.float32)
def scalar_tensors_that_are_chosen(self, x):
    half = number(x)
    return torch.where(x > 0, x, half), torch.where(x > 0, half, x), x.where(x > 0, half), x.masked_fill(x > 0, half)


@case((2, 3), dtype=torch.float32)
def scalar_tensors_given_by_name(self, x):
    half = number(x)
    return torch.add(x, other=half), torch.add(input=half,
                                               other=x), torch.maximum(input=x, other=half), torch.add(x, x, alpha=half)


@case((2, 3), dtype=torch.float32)
def scalar_tensors_that_activations_take(self, x):
    return F.prelu(x, torch.full((1,), 0.5, dtype=x.dtype)), F.threshold(x, 0.5, 1.0), F.hardtanh(x, -0.5, 0.5)


@case((2, 3), dtype=torch.float32)
def scalar_tensors_that_losses_take(self, x):
    half = number(x)
    return torch.isclose(x, half), torch.eq(x, half), torch.dist(x, half), F.mse_loss(x, half, reduction="none")


@case((2, 3), dtype=torch.float16)
def scalar_tensors_of_half_precision(self, x):
    tenth = number(x, 0.1)
    return x * tenth, x + tenth, x / tenth, torch.maximum(x, tenth)


@case((2, 3))
def sizes_that_are_asked_for_more(self, x):
    return x.reshape(x.shape.numel()), x * getattr(x, "shape").numel(), x * operator.getitem(getattr(x, "shape"), 0)


@case((2, 3))
def sizes_compared(self, x):
    return x * (x.shape == x.shape), x.view(x.shape), x.new_zeros(x.shape), x.expand(x.size())
