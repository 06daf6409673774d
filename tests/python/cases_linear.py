"""Merging Linears, and moving a bias into the weight."""

import operator

import torch
import torch.nn.functional as F
from case import call, case
from torch import nn
from torch.nn import Linear


class MyLinear(Linear):
    """Looks like a Linear and computes something else."""

    def forward(self, input):
        return super().forward(input) * 2


class Tower(nn.Module):
    def __init__(self, **children):
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)


def two(out1=6, out2=4, features=8, **options):
    return lambda: {"fc1": Linear(features, out1, **options), "fc2": Linear(features, out2, **options)}


def three():
    return {"fc1": Linear(8, 6), "fc2": Linear(8, 4), "fc3": Linear(8, 5)}


# ---- what is merged -------------------------------------------------------------------------------------------------------


@case((2, 8), modules=two(), merge=(1, []), bias=(2, []))
def merged_at_the_root(self, x):
    return self.fc1(x), self.fc2(x)


@case((2, 8), modules=two(), merge=(1, []), dtype=torch.float32)
def merged_in_float32(self, x):
    return self.fc1(x), self.fc2(x)


@case((2, 3, 8), modules=lambda: {"a": Tower(q=Linear(8, 6)), "b": Tower(k=Linear(8, 4))}, merge=(1, []), bias=(2, []))
def merged_across_parents(self, x):
    return self.a.q(x), self.b.k(x)


@case((8,), modules=two(), merge=(1, []), bias=(2, []))
def a_vector_as_input(self, x):
    return self.fc1(x), self.fc2(x)


@case((0, 8), modules=two(), merge=(1, []), bias=(2, []))
def an_empty_batch(self, x):
    return self.fc1(x), self.fc2(x)


@case((2, 8), modules=three, merge=(1, []), bias=(3, []))
def three_of_other_sizes(self, x):
    return self.fc3(x), self.fc1(x), self.fc2(x)


@case((2, 8), modules=two(bias=False), merge=(1, []), bias=(0, []))
def no_bias_anywhere(self, x):
    return self.fc1(x), self.fc2(x)


@case((2, 8), modules=lambda: {"fc1": Linear(8, 6, bias=False), "fc2": Linear(8, 4)}, merge=(1, []), bias=(1, []))
def a_bias_for_one(self, x):
    return self.fc1(x), self.fc2(x)


@case((2, 8), modules=two(), merge=(1, []), bias=(2, []))
def called_with_keywords(self, x):
    return self.fc1(input=x), self.fc2(input=x)


@case((2, 8), modules=two(1, 1), merge=(1, []), bias=(2, []))
def one_output_feature(self, x):
    return self.fc1(x), self.fc2(x)


@case(
    (2, 8), modules=lambda: {"fc1": Linear(8, 6), "fc2": Linear(8, 4), "fc3": Linear(6, 8), "fc4": Linear(4, 8)}, merge=(1, [])
)
def layers_behind_each_other(self, x):
    return self.fc3(self.fc1(x).relu()) + self.fc4(self.fc2(x).tanh())


@case((2, 8), modules=lambda: {f"fc{i}": Linear(8, 8) for i in range(6)}, merge=(3, []), bias=(6, []))
def groups_behind_each_other(self, x):
    x = self.fc0(x) * self.fc1(x)
    x = self.fc2(x) * self.fc3(x)
    return self.fc4(x) - self.fc5(x)


@case((2, 8), modules=lambda: {"0": Linear(8, 6), "fc-1": Linear(8, 4)}, merge=(1, []), bias=(2, []))
def paths_that_are_no_identifiers(self, x):
    return getattr(self, "0")(x), getattr(self, "fc-1")(x)


@case((2, 8), modules=lambda: two()() | {"fc1-fc2-merged": nn.Tanh()}, merge=(1, []))
def the_merged_path_is_taken(self, x):
    return self.fc1(x), self.fc2(x), getattr(self, "fc1-fc2-merged")(x)


@case((2, 8), (2, 8), modules=two(), merge=(1, []))
def the_merged_name_is_taken(self, x, fc1_fc2_merged):
    return self.fc1(x), self.fc2(x) + fc1_fc2_merged.sum()


@case((2, 8), modules=two(), merge=(1, []))
def results_are_read_twice(self, x):
    a, b = self.fc1(x), self.fc2(x)
    return a + 1, a * 2, b, b.sum(), a


@case((2, 8), modules=two(), merge=(0, ["mutated", "mutated"]))
def results_are_written_in_place(self, x):
    a = self.fc1(x)
    a.add_(1)
    b = self.fc2(x)
    a.mul_(2)
    call(operator.setitem, b, (slice(None), 1), 0)
    return a, b


@case((2, 8), modules=two(), merge=(1, []))
def the_input_is_written_after_both(self, x):
    a, b = self.fc1(x), self.fc2(x)
    x.add_(1)
    return a, b, x


@case((2, 8), modules=two(), merge=(1, []))
def the_input_is_written_before_both(self, x):
    x.add_(1)
    return self.fc1(x), self.fc2(x), x


@case((2, 4), modules=two(features=4), merge=(1, []))
def a_view_is_the_input(self, x):
    y = x.t().contiguous().view(2, 4)
    return self.fc1(y), self.fc2(y)


@case(
    (2, 8),
    modules=two(),
    prepare=lambda m: setattr(m.fc2, "weight", nn.Parameter(m.fc2.weight[:, :].clone(), False)),
    merge=(0, ["requires-grad"]),
)
def a_frozen_weight(self, x):
    return self.fc1(x), self.fc2(x)


@case((2, 8), modules=two(), prepare=lambda m: m.requires_grad_(False), merge=(1, []), bias=(2, []))
def all_frozen(self, x):
    return self.fc1(x), self.fc2(x)


@case(
    (2, 8),
    modules=two(),
    prepare=lambda m: m.fc1.bias.requires_grad_(False),
    merge=(0, ["requires-grad"]),
    bias=(1, ["requires-grad"]),
)
def a_frozen_bias(self, x):
    return self.fc1(x), self.fc2(x)


# ---- what is not ----------------------------------------------------------------------------------------------------------


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def the_input_is_written_between(self, x):
    a = self.fc1(x)
    x.add_(1)
    return a, self.fc2(x)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def a_view_of_the_input_is_written(self, x):
    row = x[0]
    a = self.fc1(x)
    row.mul_(3)
    return a, self.fc2(x)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def an_item_of_the_input_is_set(self, x):
    a = self.fc1(x)
    call(operator.setitem, x, (0, 0), 7)
    return a, self.fc2(x)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def the_input_is_added_to(self, x):
    a = self.fc1(x)
    y = call(operator.iadd, x, 1)
    return a, self.fc2(x), y


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def the_input_is_an_out_argument(self, x):
    a = self.fc1(x)
    torch.mul(x, 2, out=x)
    return a, self.fc2(x)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def a_relu_writes_the_input(self, x):
    a = self.fc1(x)
    F.relu(x, inplace=True)
    return a, self.fc2(x)


@case((2, 8), modules=lambda: two()() | {"act": nn.Hardtanh(inplace=True)}, merge=(0, ["input-mutated"]))
def a_module_writes_the_input(self, x):
    a = self.fc1(x)
    self.act(x)
    return a, self.fc2(x)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def the_base_of_a_view_is_written(self, x):
    y = x.view(2, 8)
    a = self.fc1(y)
    x.zero_()
    return a, self.fc2(y)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def a_chunk_of_the_input_is_written(self, x):
    first, second = x.chunk(2)[0], x.t()
    a = self.fc1(x)
    second.copy_(second * 2 + first.sum())
    return a, self.fc2(x)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def detached_data_is_written(self, x):
    a = self.fc1(x)
    x.data.add_(1)
    return a, self.fc2(x)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def an_identity_of_the_input_is_written(self, x):
    y = F.dropout(x, 0.5, False)
    a = self.fc1(x)
    y.neg_()
    return a, self.fc2(x)


@case((8, 8), modules=two(), merge=(0, ["input-mutated"]))
def the_input_is_transposed_in_place(self, x):
    a = self.fc1(x)
    x.t_()
    return a, self.fc2(x)


@case((2, 8), modules=three, merge=(1, ["input-mutated"]))
def two_before_the_write_and_one_after(self, x):
    a, b = self.fc1(x), self.fc2(x)
    x.add_(1)
    return a, b, self.fc3(x)


@case(
    (2, 8),
    modules=lambda: {"fc1": Linear(8, 6), "fc2": MyLinear(8, 4), "fc3": Linear(8, 5)},
    merge=(1, ["unsupported-type"]),
    bias=(2, ["unsupported-type"]),
)
def a_linear_of_another_type(self, x):
    return self.fc1(x), self.fc3(x), self.fc2(x)


@case(
    (2, 8),
    modules=lambda: {"fc1": Linear(8, 6), "fc2": MyLinear(8, 4), "fc3": Linear(8, 5)},
    merge=(1, ["unsupported-type"]),
)
def a_linear_of_another_type_between(self, x):
    return self.fc1(x), self.fc2(x), self.fc3(x)


@case((2, 8), modules=three, merge=(0, ["shared-module", "shared-module"]), bias=(1, []))
def called_twice_on_one_input(self, x):
    return self.fc1(x), self.fc1(x)


@case((2, 8), (3, 8), modules=two(), merge=(0, ["shared-module"]), bias=(2, []))
def called_twice_on_two_inputs(self, x, y):
    return self.fc1(x), self.fc2(x), self.fc1(y)


@case((2, 8), modules=three, merge=(1, ["module-called", "module-read"]), bias=(2, ["module-read"]))
def a_weight_is_read_beside_the_call(self, x):
    return self.fc1(x), F.linear(x, self.fc1.weight), self.fc2(x), self.fc3(x)


@case((2, 8), modules=three, merge=(1, ["module-read"]), bias=(2, ["module-read"]))
def a_bias_is_read_beside_the_call(self, x):
    return self.fc1(x), self.fc1.bias + 1, self.fc2(x), self.fc3(x)


@case((2, 8), modules=three, merge=(1, ["training-mode"]), prepare=lambda m: m.fc2.train())
def one_in_training_mode(self, x):
    return self.fc1(x), self.fc2(x), self.fc3(x)


@case((2, 8), modules=two(), merge=(0, []))
def other_inputs(self, x):
    return self.fc1(x), self.fc2(x + 1)


@case((2, 8), modules=three, merge=(0, []), bias=(1, []))
def a_single_linear(self, x):
    return self.fc1(x)


def tie(m):
    m.fc2.weight = m.fc1.weight


@case((2, 8), modules=two(6, 6), prepare=tie, merge=(1, []), bias=(2, []))
def two_with_one_weight(self, x):
    return self.fc1(x), self.fc2(x)


def tie_to_embedding(m):
    m.fc1.weight = m.words.weight


@case(
    torch.tensor([[1, 2, 3]]),
    modules=lambda: two(10, 4)() | {"words": nn.Embedding(10, 8)},
    prepare=tie_to_embedding,
    merge=(1, []),
    bias=(2, []),
)
def a_weight_tied_to_an_embedding(self, words):
    x = self.words(words)
    return self.fc1(x), self.fc2(x), self.words(words + 1)


def tie_to_attribute(m):
    m.table = m.fc1.weight


@case((2, 8), modules=two(), prepare=tie_to_attribute, bias=(1, ["tensor-mutated"]))
def a_weight_is_written_through_another_name(self, x):
    self.table.add_(1)
    return self.fc1(x), self.fc2(x)


@case((2, 8), modules=two(), prepare=tie_to_attribute)
def a_weight_is_read_through_another_name(self, x):
    return self.fc1(x), self.fc2(x), x @ self.table.t()


# ---- biases ---------------------------------------------------------------------------------------------------------------


@case((2, 8), modules=two(1, 4), bias=(2, []))
def a_bias_of_one(self, x):
    return self.fc1(x), self.fc2(x)


@case((2, 8), modules=three, dtype=torch.float16, bias=(3, []), merge=(1, []))
def half_precision(self, x):
    return self.fc1(x), self.fc2(x), self.fc3(x)


@case((2, 8), modules=three, dtype=torch.bfloat16, bias=(3, []), merge=(1, []))
def brain_precision(self, x):
    return self.fc1(x), self.fc2(x), self.fc3(x)


@case(
    (2, 8),
    modules=lambda: two()() | {"fc4": Linear(8, 5).float()},
    prepare=lambda m: m.fc2.float(),
    merge=(0, []),
    bias=(2, []),
)
def other_dtypes(self, x):
    return self.fc1(x), self.fc2(x.float())


@case((2, 8), modules=two(), bias=(2, []), merge=(0, []))
def a_bias_after_a_write(self, x):
    a = self.fc1(x)
    a.add_(1)
    return self.fc2(torch.cat([a, x], 1)[:, :8]), x.mul_(2)


@case((2, 8), modules=lambda: {"fc1": Linear(8, 8)}, bias=(1, []))
def one_linear_over_and_over(self, x):
    return self.fc1(self.fc1(self.fc1(x)))


@case(
    (2, 8),
    modules=lambda: {"net": nn.Sequential(Linear(8, 6), nn.ReLU(inplace=True), Linear(6, 3), nn.ReLU(inplace=True))},
    bias=(2, []),
)
def a_sequential(self, x):
    return self.net(x)


@case((2, 8), modules=two(), merge=(0, []), bias=(2, []))
def a_functional_linear(self, x):
    return F.linear(x, self.fc1.weight, self.fc1.bias), self.fc2(x)


# ---- what stands between ----------------------------------------------------------------------------------------------------


def autocast(x, module):
    """A switch of mode as torch.export and dynamo record it; it needs a node to find the graph by."""
    enter, leave = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast
    mode = x.tracer.create_proxy("call_function", enter, ("cpu", torch.bfloat16, True, True), {})
    result = module(x)
    x.tracer.create_proxy("call_function", leave, (mode,), {})
    return result


@case((2, 8), modules=two(), dtype=torch.float32, merge=(0, ["mode-switched"]))
def autocast_for_one(self, x):
    return self.fc1(x), autocast(x, self.fc2)


@case((2, 8), modules=two(), dtype=torch.float32, merge=(1, []))
def a_number_and_a_default(self, x, scale=2.0, nothing=None):
    return {"a": self.fc1(x), "b": [self.fc2(x) * scale, (nothing,)]}


@case((2, 8), modules=two(8, 4), merge=(0, ["input-mutated"]))
def a_residual_in_place(self, x):
    y = call(operator.iadd, x, self.fc1(x))
    return self.fc2(x), y


def renormalise(m):
    m.fc1.weight = m.words.weight
    m.words.max_norm = 0.5


@case(
    torch.tensor([[1, 2, 3]]),
    (2, 8),
    modules=lambda: two(10, 4)() | {"words": nn.Embedding(10, 8), "fc3": Linear(8, 3)},
    prepare=renormalise,
    merge=(1, ["tensor-mutated"]),
)
def an_embedding_that_writes_a_tied_weight(self, words, x):
    return self.fc1(x), self.words(words), self.fc2(x), self.fc3(x)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def an_initialiser_writes_the_input(self, x):
    a = self.fc1(x)
    call(nn.init.zeros_, x)
    return a, self.fc2(x)


@case((2, 8), modules=two(), merge=(0, ["input-mutated"]))
def the_input_in_a_tuple_is_written(self, x):
    a = self.fc1(x)
    call(torch._foreach_add_, [x], 1)
    return a, self.fc2(x)
