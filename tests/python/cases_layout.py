"""What a merged Linear gives are slices of a wider result, and those are not contiguous."""

import operator

import torch
import torch.nn.functional as F
from case import call, case
from cases_linear import two
from torch import nn


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous"]))
def a_view_across_rows(self, x):
    return self.fc1(x).view(-1), self.fc2(x)


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous"]))
def what_is_taken_across_rows(self, x):
    return torch.take_along_dim(self.fc1(x), (x * 0).long()), self.fc2(x)


@case((2, 4, 8), modules=two(), merge=(1, []))
def what_is_taken_within_rows(self, x):
    return torch.take_along_dim(self.fc1(x), (x * 0).long(), -1), self.fc2(x)


@case((2, 8), modules=two(), merge=(0, ["needs-contiguous"]))
def detached_in_place(self, x):
    return self.fc1(x).detach_(), self.fc2(x)


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous"]))
def a_view_of_what_is_in_a_tuple(self, x):
    parts = torch.chunk(x, 2) + (self.fc1(x),)
    return parts[2].view(-1), self.fc2(x)


@case((2, 4, 8), modules=two(8, 4), merge=(1, []))
def a_view_within_rows(self, x):
    return self.fc1(x).view(2, 4, 2, 4).transpose(1, 2), self.fc2(x).view(8, 4)


@case((2, 4, 8), modules=two(), merge=(1, []))
def a_reshape_across_rows(self, x):
    return self.fc1(x).reshape(-1), self.fc2(x).flatten()


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous"]))
def a_view_of_an_activated_result(self, x):
    return self.fc1(x).relu_().view(-1), self.fc2(x)


@case(
    (2, 4, 8),
    modules=lambda: two()() | {"drop": nn.Dropout(0.5), "same": nn.Identity()},
    merge=(0, ["needs-contiguous", "needs-contiguous"]),
)
def a_view_of_the_same_result(self, x):
    return self.drop(self.fc1(x)).view(-1), self.same(self.fc2(x)).view(-1)


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous", "needs-contiguous"]))
def a_view_of_a_part(self, x):
    return self.fc1(x)[0].view(-1), self.fc2(x).unsqueeze(0).view(-1)


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous", "needs-contiguous"]))
def a_view_of_a_cast_that_does_nothing(self, x):
    return self.fc1(x).double().view(-1), self.fc2(x).detach().view(-1)


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous", "needs-contiguous"]))
def a_view_of_a_view(self, x):
    return self.fc1(x).view(2, 4, 6).view(-1), self.fc2(x).view(8, 4).view(-1)


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous", "needs-contiguous"]))
def a_reshaped_result_is_written(self, x):
    a, b = self.fc1(x), self.fc2(x)
    a.reshape(-1).add_(100)
    call(operator.setitem, b.flatten(), 0, 5)
    return a, b


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous", "needs-contiguous"]))
def a_contiguous_result_is_written(self, x):
    a, b = self.fc1(x), self.fc2(x)
    a.contiguous().add_(100)
    torch.ravel(b).zero_()
    return a, b


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous", "needs-contiguous"]))
def a_question_about_layout(self, x):
    a, b = self.fc1(x), self.fc2(x)
    return a * a.stride(0), b + b.storage_offset(), b * b.is_contiguous()


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous", "needs-contiguous"]))
def a_strided_view(self, x):
    a, b = self.fc1(x), self.fc2(x)
    return torch.as_strided(a, (2, 3), (3, 1)), b.as_strided((2, 2), (2, 1), 1)


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous", "needs-contiguous"]))
def a_view_as_another(self, x):
    a, b = self.fc1(x), self.fc2(x)
    return a.view_as(torch.zeros(48)), b.view(torch.int64)


@case((2, 4, 8), modules=two(6, 4))
def a_view_as_complex(self, x):
    a, b = self.fc1(x), self.fc2(x)
    return torch.view_as_complex(a.view(2, 4, 3, 2)).abs(), torch.view_as_complex(b.view(2, 4, 2, 2)).abs()


@case((2, 4, 8), modules=two(5, 4), merge=(0, ["needs-contiguous"]))
def a_view_as_complex_of_odd_columns(self, x):
    a, b = self.fc1(x), self.fc2(x)
    return a, torch.view_as_complex(b.view(2, 4, 2, 2)).abs()


@case((2, 4, 8), modules=two(6, 6), merge=(0, ["needs-contiguous"]))
def a_view_to_an_unknown_shape(self, x):
    a, b = self.fc1(x), self.fc2(x)
    return a.view(x.size(0), -1), b.view(x.shape[0] * x.shape[1], -1)


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous"]))
def an_argument_of_an_unknown_function(self, x):
    return torch.ops.aten._unsafe_view.default(self.fc1(x), [48]), self.fc2(x)


@case((2, 4, 8), modules=two(8, 8), merge=(1, []))
def attention_heads(self, x):
    a = self.fc1(x).view(2, 4, 2, 4).transpose(1, 2)
    b = self.fc2(x).view(2, 4, 2, 4).transpose(1, 2)
    return (a @ b.transpose(-1, -2)).softmax(-1), a.transpose(1, 2).reshape(2, 4, 8), b.transpose(1, 2).contiguous().view(2, 32)


@case((2, 4, 8), modules=two(24, 8), merge=(1, []))
def chunks_that_are_split(self, x):
    q, k, v = self.fc1(x).chunk(3, -1)
    q, k = q.view(2, 4, 2, 4).transpose(1, 2), k.view(2, 4, 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v.view(2, 4, 2, 4).transpose(1, 2)), self.fc2(x)


@case((2, 4, 8), modules=two(), merge=(0, ["needs-contiguous", "needs-contiguous"]))
def a_reshape_that_is_activated_in_place(self, x):
    a, b = self.fc1(x), self.fc2(x)
    return a.reshape(-1).relu_(), a, b.flatten(0).mul_(2), b


@case((2, 4, 8), modules=two(), merge=(0, ["mutated", "mutated"]))
def a_reshape_after_the_write(self, x):
    return F.relu(self.fc1(x), inplace=True).reshape(-1), self.fc2(x).tanh_().flatten()


@case((1, 8), modules=two(), merge=(1, []))
def one_row_is_still_contiguous(self, x):
    return self.fc1(x).view(-1), self.fc2(x).view(2, 2).t().contiguous().view(-1)


@case((2, 4, 8), modules=two(1, 1), merge=(1, []))
def columns_of_one(self, x):
    return self.fc1(x).view(-1), self.fc2(x).view(8)
