"""Random models: perceptrons, convolutional networks and attention, with the habits that make rewriting hard: tied weights,
modules called again, writes in place, values read twice, views, divisions by sizes."""

import random

import torch
import torch.fx
import torch.nn.functional as F
from torch import nn


class Chooser:
    """Builds a program node by node, and runs it as it goes: what cannot be computed is not added."""

    def __init__(self, seed, root, inputs):
        self.random, self.root, self.graph = random.Random(seed), root, torch.fx.Graph()
        self.values = {}  # node: its value, for the shapes
        for index, given in enumerate(inputs):
            self.values[self.graph.placeholder(f"x{index}")] = given.clone()

    def pick(self, condition=lambda value: True):
        found = [node for node, value in self.values.items() if isinstance(value, torch.Tensor) and condition(value)]
        return self.random.choice(found[-4:] if self.random.random() < 0.7 else found) if found else None

    def last(self):
        return next(node for node, value in reversed(self.values.items()) if isinstance(value, torch.Tensor))

    def add(self, op, target, args, kwargs=None):
        values = torch.fx.node.map_arg(tuple(args), lambda node: self.values[node])
        function = self.root.get_submodule(target) if op == "call_module" else target
        if op == "call_method":
            function = getattr(values[0], target)
            values = values[1:]
        try:
            with torch.no_grad():
                result = function(*values, **(kwargs or {}))
        except (RuntimeError, ValueError, IndexError):
            return
        is_too_large = result.numel() > 4096 or not result.isfinite().all() or result.abs().max() > 1e6
        if is_too_large and not (op == "call_method" and target.endswith("_")):  # what was written in place has happened
            return
        node = self.graph.create_node(op, target, tuple(args), kwargs or {})
        self.values[node] = result


def modules(choose, dimensions):
    """Children by name; a few weights tied, a few frozen."""
    root, width = nn.Module(), choose.choice([4, 6, 8])
    for index in range(choose.randint(4, 12)):
        bias, out = choose.random() < 0.7, choose.choice([width, width, width, 4, 1])
        if dimensions == 4:
            out = choose.choice([3, 3, 3, 6])
            kinds = [lambda: nn.Conv2d(3, out, 3, padding=1, bias=bias), lambda: nn.BatchNorm2d(out, affine=bias), nn.ReLU]
        else:
            kinds = [lambda: nn.Linear(width, out, bias)] * 3 + [lambda: nn.BatchNorm1d(width, affine=bias)]
        child = choose.choice(kinds + [lambda: nn.ReLU(inplace=choose.random() < 0.3)])()
        parent = root
        if choose.random() < 0.3:
            if "block" not in root._modules:
                root.add_module("block", nn.Module())
            parent = root.block
        parent.add_module(choose.choice(["fc", "layer", "m"]) + str(index), child.eval())
    children = [child for child in root.modules() if getattr(child, "weight", None) is not None]
    for child in children:
        other = choose.choice(children)
        if choose.random() < 0.1 and other.weight.shape == child.weight.shape:
            child.weight = other.weight
        if choose.random() < 0.05:
            child.requires_grad_(False)
        child.train(choose.random() < 0.03)
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            child.running_mean.normal_()
            child.running_var.uniform_(0.5, 2)
    return root, width


def add_norm(chooser, name):
    """Batch normalisation of what was just made, which then is mostly read by nobody else."""
    choose, made = chooser.random, chooser.last()
    value = chooser.values[made]
    if made.target != name or value.dim() not in (2, 4):
        return
    norm = (
        (nn.BatchNorm2d if value.dim() == 4 else nn.BatchNorm1d)(value.shape[1], affine=choose.random() < 0.8).double().eval()
    )
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    path = name.replace(".", "_") + "_norm"
    if path not in chooser.root._modules:
        chooser.root.add_module(path, norm)
    chooser.add("call_module", path, [made])
    if choose.random() < 0.8 and chooser.last() is not made:
        del chooser.values[made]


def add_tail(chooser):
    """Something else than a module."""
    choose, node, other = chooser.random, chooser.pick(), chooser.pick()
    shape = list(chooser.values[node].shape)
    kind = choose.randrange(12)
    if kind < 3:
        divisor = choose.choice([2, 49, 8.0, 3.0, 0.1, 1e3, -7])
        target = choose.choice([torch.div, torch.true_divide, torch.ops.aten.div.Tensor, "div"])
        chooser.add("call_method" if target == "div" else "call_function", target, [node, divisor])
    elif kind < 5:
        chooser.add("call_function", choose.choice([torch.add, torch.mul, torch.sub]), [node, other])
    elif kind == 5:
        chooser.add("call_method", choose.choice(["relu", "tanh", "sigmoid", "contiguous", "clone", "detach"]), [node])
    elif kind == 6:
        chooser.add("call_method", choose.choice(["relu_", "tanh_", "neg_"]), [node])
    elif kind == 7:
        chooser.add(
            "call_method", choose.choice(["view", "reshape"]), [node, *choose.choice([[-1], [shape[0], -1], [-1, shape[-1]]])]
        )
    elif kind == 8 and len(shape) > 1:
        chooser.add("call_method", "transpose", [node, -1, choose.randrange(len(shape))])
    elif kind == 9 and len(shape) > 2:
        chooser.add("call_function", F.softmax, [node], {"dim": -1})
        chooser.add("call_function", torch.matmul, [chooser.pick(), node])
    elif kind == 10:
        chooser.add("call_method", choose.choice(["mul_", "add_"]), [node, choose.choice([2, 0.5])])
    else:
        chooser.add("call_function", torch.cat, [[node, other]], {"dim": -1})


def random_model(seed):
    choose = random.Random(seed)
    torch.manual_seed(seed)
    dimensions = choose.choice([2, 2, 3, 4])
    root, width = modules(choose, dimensions)
    root.double()
    shape = {2: (4, width), 3: (2, 3, width), 4: (2, 3, 5, 5)}[dimensions]
    inputs = [torch.randn(shape).double() for _ in range(choose.randint(1, 2))]
    chooser = Chooser(seed, root, inputs)
    names = [name for name, child in root.named_modules() if name and name != "block"]
    all_names = list(names)
    choose.shuffle(names)
    node = chooser.pick()
    for _ in range(choose.randint(6, 20)):
        if choose.random() < 0.4:
            add_tail(chooser)
            continue
        kind = choose.random()  # a branch more from one value, or a step further
        node = node if kind < 0.55 else chooser.last() if kind < 0.85 else chooser.pick()
        name = names.pop() if names and choose.random() < 0.95 else choose.choice(all_names)
        chooser.add("call_module", name, [node if node in chooser.values else chooser.pick()])
        if choose.random() < 0.3:
            add_norm(chooser, name)
    made = [node for node, value in chooser.values.items() if isinstance(value, torch.Tensor)]
    chooser.graph.output(tuple(choose.sample(made, min(len(made), choose.randint(1, 4)))))
    return torch.fx.GraphModule(root, chooser.graph), inputs
