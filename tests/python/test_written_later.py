"""What PyTorch keeps for the backward pass must not be written afterwards: it raises then. A module that is trained although it
writes in place must still be trained when it is rewritten: an operator that keeps its input cannot take the place of a formula
that does not.
torch.fx only: torch.export leaves few writes, and the same code looks for them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from foldback.fx import from_document, to_document

FEATURES = 6


class Net(nn.Module):
    """`function` is given something that has a gradient, and that nothing else has kept."""

    def __init__(self, function, frozen=()):
        super().__init__()
        self.function = function
        self.start = nn.Parameter(torch.randn(FEATURES))
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.conv = nn.Conv1d(2, 3, 3)
        self.register_buffer("scale", torch.rand(FEATURES) + 0.5)
        for name in frozen:
            getattr(self, name).weight.requires_grad_(False)

    def forward(self, x):
        return self.function(self, x.contiguous() + self.start)


def input_written(call):
    """The input is written when the call is over."""

    def function(net, x):
        y = call(net, x)
        return y + x.add_(1)

    return function


def result_written(call):
    return lambda net, x: call(net, x).mul_(2)


def layer_norm(net, x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


def softmax(_, x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def log_softmax(_, x):
    shifted = x - x.amax(-1, keepdim=True)
    return shifted - shifted.exp().sum(-1, keepdim=True).log()


def gelu(_, x):
    return 0.5 * x * (1.0 + torch.erf(x * 0.5**0.5))


def silu(_, x):
    return (x * 1.0) / (1 + torch.exp(-x))


def attention(q, k, v, mask=None):
    scores = (q * 0.5) @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, -1) @ v


def heads(net, x):
    """Query, key and value, each [1, 1, 2, FEATURES], of one value each."""
    return [(x * factor)[None, None] for factor in (0.5, 0.25, 2.0)]


def written_query(net, x):
    q, k, v = heads(net, x)
    y = attention(q, k, v)
    return y + q.add_(1)


def written_mask(net, x):
    q, k, v = heads(net, x)
    mask = x[None, None, :, :2].sigmoid() * 0.5
    y = attention(q, k, v, mask)
    return y.sum() + mask.add_(1).sum()


def written_bias(net, x):
    bias = net.start * 2
    z = layer_norm(net, x) * net.scale + bias
    return z + bias.add_(1)


def written_norm(net, x):
    normal = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    y = net.first(normal * net.scale)
    return y + normal.add_(1)


def merged_results(net, x):
    a, b = net.first(x), net.second(x)
    return a * a + b.relu_()


def copy_written(net, x):
    y = x.clone().mul_(net.start)
    return y.sum() + x.add_(1).sum()


RULES = {
    "GeluForRelu": {
        "pattern": {"operator": "relu", "args": ["?x"], "as": "?y"},
        "replacement": {"?y": {"operator": "gelu", "args": ["?x"]}},
        "exactness": "changes",
    },
    "SigmoidForNeg": {
        "pattern": {"operator": "neg", "args": ["?x"], "as": "?y"},
        "replacement": {"?y": {"operator": "sigmoid", "args": ["?x"]}},
        "exactness": "changes",
    },
}


def replacement(name, to):
    return {"name": "ReplaceActivation", "params": {"from": name, "to": to}}


CASES = {
    "gelu": ("FuseActivation", input_written(gelu)),
    "silu": ("FuseActivation", input_written(silu)),
    "layer_norm": ("FuseNorm", input_written(layer_norm)),
    "layer_norm's bias": ("FuseNorm", written_bias),
    "softmax's result": ("FuseNorm", result_written(softmax)),
    "log_softmax's result": ("FuseNorm", result_written(log_softmax)),
    "query": ("FuseAttention", written_query),
    "mask": ({"name": "FuseAttention", "params": {"masked_rows": True}}, written_mask),
    "padding": ("FoldPad", input_written(lambda net, x: net.conv(F.pad(x, (1, 1))).sum(0))),
    "scale": ("FoldScaleIntoLinear", input_written(lambda net, x: net.first(x * net.scale))),
    "norm": ("FoldNormIntoLinear", written_norm),
    "copy": ("RemoveNoOps", copy_written),
    "merged results": ("MergeLinears", merged_results),
    "two linears": ("MergeConsecutiveLinears", input_written(lambda net, x: net.second(net.first(x)))),
    "relu to gelu": (replacement("relu", "gelu"), input_written(lambda _, x: F.relu(x))),
    "gelu to relu": (replacement("gelu", "relu"), result_written(lambda _, x: F.gelu(x))),
    "hardswish to elu": (replacement("hardswish", "elu"), lambda _, x: F.hardswish(x, inplace=True).add_(1)),
    "rule: relu to gelu": ("GeluForRelu", input_written(lambda _, x: torch.relu(x))),
    "rule: neg to sigmoid": ("SigmoidForNeg", result_written(lambda _, x: x.neg())),
}
FROZEN = {"two linears": ["first"]}


def gradient(module, x):
    x = x.clone().requires_grad_()
    module(x).sum().backward()
    return x.grad


@pytest.fixture(scope="module", autouse=True)
def rules(service):
    for name, rule in RULES.items():
        assert service.post("/v1/transformations", {"name": name, **rule}).status == 201


@pytest.mark.parametrize("name", CASES)
def test_it_can_be_trained(service, name):
    step, function = CASES[name]
    torch.manual_seed(0)
    net = Net(function, FROZEN.get(name, [])).eval()
    x = torch.randn(2, FEATURES)
    document = to_document(torch.fx.symbolic_trace(net), x, data=True)
    gradient(from_document(document), x)
    options = {"include": ["graph"], "lint": "each"}
    answer = service.post("/v1/optimize", {"graph": document, "passes": [step], "options": options})
    assert answer.status == 201, answer.body.decode()
    run = answer.json()
    gradient(from_document(run["graph"]), x)
    reasons = {refused["reason"] for refused in run["passes"][0]["refused"]}
    # An RMSNorm of what is centred remains
    assert reasons - {"unknown-layout"} == (set() if name == "layer_norm" else {"mutated"})


# What a rule puts in the place of neg(x), or of sum(x, -1), whose results are not saved; and whether its own is.
ELEMENTWISE = {
    **dict.fromkeys("relu sigmoid tanh exp exp2 expm1 sqrt rsqrt reciprocal tan".split(), True),
    **dict.fromkeys("sin cos log abs gelu silu elu softplus erf square".split(), False),
}
OPERATORS = {name: ("neg", ["?x"], name, ["?x"], saves) for name, saves in ELEMENTWISE.items()}
OPERATORS |= {name: ("neg", ["?x"], name, ["?x", -1], True)
              for name in ["softmax", "log_softmax", "softmin", "cumprod", "logcumsumexp"]}
OPERATORS |= {"pow": ("neg", ["?x"], "pow", ["?x", "?x"], True), "mul": ("neg", ["?x"], "mul", ["?x", "?x"], False)}
OPERATORS |= {
    name: ("sum", ["?x", -1], name, ["?x", *arguments], saves)
    for name, arguments, saves in [
        ("logsumexp", [-1], True), ("amax", [-1], True), ("amin", [-1], True), ("std", [-1], True), ("prod", [-1], True),
        ("norm", [2, -1], True), ("linalg_vector_norm", [2, -1], True), ("mean", [-1], False),
    ]
}


@pytest.mark.parametrize("name", OPERATORS)
def test_what_saves_its_result(service, name):
    replaced, pattern, operator, arguments, saves = OPERATORS[name]
    rule = {
        "name": f"Written{name.title().replace('_', '')}",
        "pattern": {"operator": replaced, "args": pattern, "as": "?y"},
        "replacement": {"?y": {"operator": operator, "args": arguments}},
        "exactness": "changes",
    }
    assert service.post("/v1/transformations", rule).status == 201
    x = torch.rand(2, FEATURES) + 0.5
    document = to_document(torch.fx.symbolic_trace(Net(lambda _, x: getattr(torch, replaced)(x, *pattern[1:]).add_(1))), x,
                           data=True)
    answer = service.post("/v1/optimize", {"graph": document, "passes": [rule["name"]], "options": {"include": ["graph"]}})
    assert answer.status == 201, answer.body.decode()
    run = answer.json()
    assert [refused["reason"] for refused in run["passes"][0]["refused"]] == ["mutated"] * saves, run["passes"]
    for node in document["nodes"] if saves else []:  # as if it had been put there
        if node["target"].rsplit(".")[-1] == replaced:
            values = {"?x": node["args"][0]}
            home = "torch.nn.functional" if hasattr(F,
                                                    operator) else "torch.linalg" if operator.startswith("linalg") else "torch"
            node.update(target=f"{home}.{operator.removeprefix('linalg_')}",
                        args=[values.get(argument, argument) for argument in arguments])
    if saves:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradient(from_document(document), x)
    else:
        gradient(from_document(run["graph"]), x)


COPIES = {
    "to float32": lambda net, x: (x.half(), lambda x: x.float()),
    "to float16": lambda net, x: (x * 1.5, lambda x: x.half()),
    "as another": lambda net, x: (x * 1.5, lambda x: x.type_as(net.scale.half())),
}


@pytest.mark.parametrize("writes", ["input", "copy"])
@pytest.mark.parametrize("name", COPIES)
def test_a_copy_stays_one(service, name, writes):
    """A cast to what a tensor is already gives the tensor itself: what ConvertPrecision makes of one must not be written."""

    def function(net, x):
        x, cast = COPIES[name](net, x)
        y = cast(x)
        (x if writes == "input" else y).add_(1)
        return y * y + x.sin()

    x = torch.randn(2, FEATURES)
    document = to_document(torch.fx.symbolic_trace(Net(function)), x, data=True)
    step = {"name": "ConvertPrecision", "params": {"to": "float16"}}
    answer = service.post("/v1/optimize", {"graph": document, "passes": [step], "options": {"include": ["graph"]}})
    assert answer.status == 201, answer.body.decode()
    result = from_document(answer.json()["graph"])(x)
    assert torch.allclose(result.float(), from_document(document)(x).float(), atol=0.05, rtol=0.02)
