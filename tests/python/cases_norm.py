"""Folding batch normalisation into a convolution or a Linear."""

import operator

import torch
import torch.nn.functional as F
from case import call, case
from torch import nn
from torch.nn import BatchNorm1d, BatchNorm2d, Conv2d, Linear

IMAGE = (2, 3, 8, 8)


class MyConv(Conv2d):
    """Looks like a convolution and computes something else."""

    def forward(self, input):
        return super().forward(input) * 2


def pair(features=6, **options):
    return lambda: {"conv": Conv2d(3, features, 3, **options), "bn": BatchNorm2d(features)}


def line(out=6, **options):
    return lambda: {"fc": Linear(8, out, **options), "bn": BatchNorm1d(out)}


# ---- convolutions ---------------------------------------------------------------------------------------------------------


@case(IMAGE, modules=pair(), conv=(1, []))
def a_convolution(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=pair(bias=False), conv=(1, []))
def a_convolution_without_bias(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=pair(), dtype=torch.float32, conv=(1, []))
def a_convolution_in_single_precision(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=pair(bias=False), dtype=torch.float16, conv=(1, []))
def a_convolution_in_half_precision(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=pair(bias=False), dtype=torch.bfloat16, conv=(1, []))
def a_convolution_in_brain_precision(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=pair(groups=3, stride=2, padding=1, dilation=2, padding_mode="reflect"), conv=(1, []))
def a_convolution_with_options(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=lambda: {"conv": Conv2d(3, 6, 3), "bn": BatchNorm2d(6, affine=False)}, conv=(1, []))
def not_affine(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=lambda: {"conv": Conv2d(3, 6, 3, bias=False), "bn": BatchNorm2d(6, affine=False, eps=0.1)}, conv=(1, []))
def not_affine_and_no_bias(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=pair(), conv=(1, []))
def both_called_with_keywords(self, x):
    return self.bn(input=self.conv(input=x))


@case(
    IMAGE,
    modules=lambda: {
        "net": nn.Sequential(Conv2d(3, 4, 3), BatchNorm2d(4), nn.ReLU(inplace=True), Conv2d(4, 5, 3), BatchNorm2d(5))
    },
    conv=(2, []),
)
def two_pairs(self, x):
    return self.net(x)


@case(IMAGE, (1, 3, 8, 8), modules=pair(), conv=(1, []))
def a_pair_called_twice(self, x, y):
    return self.bn(self.conv(x)), self.bn(self.conv(y))


@case(IMAGE, modules=lambda: {"conv": Conv2d(3, 3, 3, padding=1), "bn": BatchNorm2d(3)}, conv=(1, []))
def a_pair_behind_itself(self, x):
    return self.bn(self.conv(self.bn(self.conv(x))))


@case(IMAGE, modules=pair(), conv=(1, []))
def the_result_is_read_twice(self, x):
    y = self.bn(self.conv(x))
    return y, y.relu_(), x


@case(IMAGE, modules=pair(), conv=(1, []))
def the_image_is_written_between(self, x):
    y = self.conv(x)
    x.add_(1)
    return self.bn(y), x


@case(IMAGE, modules=pair(), conv=(0, ["shared-module"]))
def a_convolution_called_twice_with_one_norm(self, x):
    return self.bn(self.conv(x)), self.conv(x + 1)


@case(
    IMAGE,
    modules=lambda: {"conv": Conv2d(3, 6, 3), "other": Conv2d(3, 6, 3), "bn": BatchNorm2d(6)},
    conv=(0, ["shared-module"]),
)
def a_norm_after_two_convolutions(self, x):
    return self.bn(self.conv(x)), self.bn(self.other(x))


@case(IMAGE, modules=lambda: {"conv": Conv2d(3, 6, 3), "bn": BatchNorm2d(6), "other": BatchNorm2d(6)})
def two_norms_after_one_convolution(self, x):
    y = self.conv(x)
    return self.bn(y), self.other(y)


@case(IMAGE, modules=lambda: {"conv": Conv2d(3, 6, 3), "bn": BatchNorm2d(6), "other": BatchNorm2d(6)}, conv=(1, []))
def two_norms_behind_each_other(self, x):
    return self.other(self.bn(self.conv(x)))


@case(IMAGE, modules=pair(), conv=(0, ["shared-output"]))
def the_convolutions_result_is_read_too(self, x):
    y = self.conv(x)
    return self.bn(y), y.sum()


@case(IMAGE, modules=pair(), conv=(0, ["graph-output"]))
def the_convolutions_result_is_an_output(self, x):
    y = self.conv(x)
    return self.bn(y), y


@case(IMAGE, modules=pair(), conv=(0, ["shared-output"]))
def the_convolutions_result_is_written(self, x):
    y = self.conv(x)
    y.relu_()
    return self.bn(y)


@case(IMAGE, modules=pair(), conv=(0, ["shared-output"]))
def the_norm_reads_twice(self, x):
    y = self.conv(x)
    return self.bn(y) + self.bn(y)


@case(IMAGE, modules=lambda: pair()() | {"act": nn.ReLU()}, conv=(0, []))
def something_between(self, x):
    return self.bn(self.act(self.conv(x)))


@case(IMAGE, modules=pair(), prepare=lambda m: m.bn.train(), conv=(0, ["training-mode"]))
def a_norm_in_training(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=pair(), prepare=lambda m: m.conv.train(), conv=(0, ["training-mode"]))
def a_convolution_in_training(self, x):
    return self.bn(self.conv(x))


@case(
    IMAGE,
    modules=lambda: {"conv": Conv2d(3, 6, 3), "bn": BatchNorm2d(6, track_running_stats=False)},
    conv=(0, ["no-running-statistics"]),
)
def no_statistics(self, x):
    return self.bn(self.conv(x))


def share_weight(m):
    m.other.weight = m.conv.weight


@case(
    IMAGE,
    modules=lambda: {"conv": Conv2d(3, 6, 3), "other": Conv2d(3, 6, 3), "bn": BatchNorm2d(6)},
    prepare=share_weight,
    conv=(1, []),
)
def two_convolutions_with_one_weight(self, x):
    return self.bn(self.conv(x)), self.other(x)


@case(
    IMAGE,
    modules=lambda: {"conv": Conv2d(3, 6, 3), "other": Conv2d(3, 6, 3), "bn": BatchNorm2d(6), "bn2": BatchNorm2d(6)},
    prepare=share_weight,
    conv=(2, []),
)
def two_pairs_with_one_weight(self, x):
    return self.bn(self.conv(x)), self.bn2(self.other(x))


def share_statistics(m):
    m.bn2.running_mean, m.bn2.running_var = m.bn.running_mean, m.bn.running_var
    m.bn2.train()


@case(
    IMAGE,
    modules=lambda: {"conv": Conv2d(3, 6, 3), "other": Conv2d(3, 6, 3), "bn": BatchNorm2d(6), "bn2": BatchNorm2d(6)},
    prepare=share_statistics,
    conv=(0, ["tensor-mutated", "training-mode"]),
)
def statistics_that_another_norm_trains(self, x):
    return self.bn2(self.other(x)), self.bn(self.conv(x))


@case(IMAGE, modules=pair(), conv=(0, ["module-read"]))
def the_weight_is_read(self, x):
    return self.bn(self.conv(x)), self.conv.weight * 2


@case(IMAGE, modules=pair(), conv=(0, ["module-read"]))
def the_statistics_are_read(self, x):
    return self.bn(self.conv(x)), call(operator.add, self.bn.running_var, x.sum())


@case(IMAGE, modules=pair(), conv=(0, ["module-read"]))
def the_statistics_are_written(self, x):
    call(operator.iadd, self.bn.running_mean, x.sum())
    return self.bn(self.conv(x))


@case(IMAGE, modules=lambda: {"conv": MyConv(3, 6, 3), "bn": BatchNorm2d(6)}, conv=(0, []))
def a_convolution_of_another_type(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=lambda: {"conv": nn.ConvTranspose2d(3, 6, 3), "bn": BatchNorm2d(6)}, conv=(0, []))
def a_transposed_convolution(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=lambda: {"conv": Conv2d(3, 3, 3, padding=1), "bn": BatchNorm2d(3)}, conv=(0, []))
def a_norm_before_a_convolution(self, x):
    return self.conv(self.bn(x))


@case(IMAGE, modules=pair(), conv=(1, []))
def a_functional_convolution(self, x):
    return self.bn(F.conv2d(x, self.conv.weight, stride=2))


@case(
    IMAGE,
    modules=lambda: {"conv": Conv2d(3, 6, 3), "bn": BatchNorm2d(6)},
    prepare=lambda m: nn.init.zeros_(m.bn.weight),
    conv=(1, []),
)
def a_scale_of_zero(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=pair(), prepare=lambda m: m.bn.requires_grad_(False), conv=(1, []))
def a_frozen_norm(self, x):
    return self.bn(self.conv(x))


# ---- Linears --------------------------------------------------------------------------------------------------------------


@case((4, 8), modules=line(), norm=(1, []))
def after_a_linear(self, x):
    return self.bn(self.fc(x))


@case((4, 8), modules=line(bias=False), norm=(1, []))
def after_a_linear_without_bias(self, x):
    return self.bn(self.fc(x))


@case((4, 8), modules=lambda: {"fc": Linear(8, 6), "bn": BatchNorm1d(8)}, norm=(1, []))
def before_a_linear(self, x):
    return self.fc(self.bn(x))


@case((4, 8), modules=lambda: {"fc": Linear(8, 6, bias=False), "bn": BatchNorm1d(8, affine=False)}, norm=(1, []))
def before_a_linear_without_bias(self, x):
    return self.fc(self.bn(x))


@case((4, 8), modules=lambda: {"fc": Linear(8, 6), "bn": BatchNorm1d(6), "fc2": Linear(6, 3)}, norm=(1, []))
def between_two_linears(self, x):
    return self.fc2(self.bn(self.fc(x)))


@case((4, 8), modules=lambda: {"bn": BatchNorm1d(8), "fc": Linear(8, 8), "bn2": BatchNorm1d(8)}, norm=(2, []))
def around_a_linear(self, x):
    return self.bn2(self.fc(self.bn(x)))


@case((4, 8), modules=line(), dtype=torch.float16, norm=(1, []))
def a_linear_in_half_precision(self, x):
    return self.bn(self.fc(x))


@case((4, 8), (2, 8), modules=line(), norm=(1, []))
def a_linear_pair_called_twice(self, x, y):
    return self.bn(self.fc(x)), self.bn(self.fc(y))


@case((4, 8), modules=lambda: {"fc": Linear(8, 6), "fc2": Linear(8, 6), "bn": BatchNorm1d(8)}, norm=(0, ["shared-output"]))
def a_norm_before_two_linears(self, x):
    y = self.bn(x)
    return self.fc(y), self.fc2(y)


@case((4, 8), modules=lambda: {"fc": Linear(8, 6), "bn": BatchNorm1d(8)}, norm=(0, ["input-mutated"]))
def the_norms_input_is_written(self, x):
    y = self.bn(x)
    x.mul_(2)
    return self.fc(y)


@case((4, 8), modules=lambda: {"fc": Linear(8, 6), "bn": BatchNorm1d(8)}, norm=(0, ["shared-output"]))
def the_norms_result_is_written(self, x):
    y = self.bn(x)
    y.mul_(2)
    return self.fc(y)


@case((4, 5, 8), modules=lambda: {"fc": Linear(8, 6), "bn": BatchNorm1d(5)}, norm=(0, ["channel-mismatch"]))
def three_dimensions(self, x):
    return self.bn(self.fc(x))


@case((4, 6, 8), modules=line(), norm=(0, ["not-2d"]))
def three_dimensions_that_fit(self, x):
    return self.bn(self.fc(x))


@case((4, 8, 8), modules=lambda: {"fc": Linear(8, 6), "bn": BatchNorm1d(8)}, norm=(0, ["not-2d"]))
def three_dimensions_before_a_linear(self, x):
    return self.fc(self.bn(x))


@case((4, 8), modules=line(), prepare=lambda m: m.bn.train(), norm=(0, ["training-mode"]))
def a_norm_after_a_linear_in_training(self, x):
    return self.bn(self.fc(x))


@case(
    (4, 8),
    modules=lambda: {"fc": Linear(8, 6), "bn": BatchNorm1d(6, track_running_stats=False)},
    norm=(0, ["no-running-statistics"]),
)
def no_statistics_after_a_linear(self, x):
    return self.bn(self.fc(x))


@case(
    (4, 8),
    modules=lambda: {"fc1": Linear(8, 6), "fc2": Linear(8, 4), "bn1": BatchNorm1d(6), "bn2": BatchNorm1d(4)},
    norm=(2, []),
    merge=(1, []),
)
def normed_branches(self, x):
    return self.bn1(self.fc1(x)) / 3, self.bn2(self.fc2(x)) / 5


@case(
    (4, 8),
    modules=lambda: {"fc1": Linear(8, 6), "bn1": BatchNorm1d(6), "fc2": Linear(8, 6)},
    prepare=lambda m: setattr(m.fc2, "weight", m.fc1.weight),
    norm=(1, []),
    merge=(1, []),
    bias=(2, []),
)
def a_tied_weight_under_all(self, x):
    return self.bn1(self.fc1(x)), self.fc2(x)


@case((4, 8), modules=line(), norm=(0, ["graph-output"]))
def the_linears_result_is_an_output(self, x):
    y = self.fc(x)
    return y, self.bn(y)


@case((4, 8), modules=line(), norm=(0, []))
def a_functional_norm(self, x):
    return F.batch_norm(self.fc(x), self.bn.running_mean, self.bn.running_var, call(torch.neg, self.bn.weight))


@case(
    (3, 8, 8),
    modules=lambda: {"conv": Conv2d(3, 6, (3, 1), padding="same"), "bn": BatchNorm2d(6, eps=1e-12, momentum=None)},
    conv=(1, []),
)
def an_odd_kernel(self, x):
    return self.bn(self.conv(x[None]))


@case(IMAGE, modules=pair(), prepare=lambda m: nn.init.zeros_(m.bn.running_var), conv=(1, []))
def a_variance_of_zero(self, x):
    return self.bn(self.conv(x))


@case(IMAGE, modules=pair(), dtype=torch.float32, prepare=lambda m: m.double().bn.float())
def a_norm_of_another_dtype(self, x):
    return self.conv(x.double())


@case((4, 8), modules=line(), dtype=torch.bfloat16, prepare=lambda m: m.bn.float(), norm=(1, []))
def a_wide_norm_after_a_narrow_linear(self, x):
    return self.bn(self.fc(x))


@case(
    (4, 8),
    modules=lambda: {"fc": Linear(8, 6), "bn": BatchNorm1d(8)},
    dtype=torch.bfloat16,
    prepare=lambda m: m.bn.float(),
    norm=(1, []),
)
def a_wide_norm_before_a_narrow_linear(self, x):
    return self.fc(self.bn(x))
