"""Random numbers are drawn in the order in which a tensor lies in memory: no pass changes that where they are written in
place."""

import pytest
import torch
from torch import nn

import foldback
import foldback.fx

WRITES = ["normal_()", "bernoulli_(0.5)", "uniform_()", "random_(5)", "exponential_()"]
COPIES = ["contiguous()", "clone()", "reshape(3, 4, 16)", "to(torch.float32, copy=True)", "flatten(1).view(3, 4, 16)"]


def call(value, text):
    return eval(f"value.{text}", {"torch": torch, "value": value})


class Copied(nn.Module):
    """A copy of what is transposed is filled."""

    def __init__(self, write, made="contiguous()"):
        super().__init__()
        self.write, self.made = write, made

    def forward(self, x):
        y = call(x.relu().transpose(0, 1).relu(), self.made)
        call(y, self.write)
        return y * 2


class After(nn.Module):
    """Of two Linears that may be merged one's result is filled; it lies in a row, as a slice does not."""

    def __init__(self, write):
        super().__init__()
        self.write, self.a, self.b = write, nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        call(a, self.write)
        return a, b


class Between(After):
    """What both read is filled between them."""

    def forward(self, x):
        x = x * 2
        a = self.a(x)
        call(x, self.write)
        return a, self.b(x)


CASES = [(Copied, write, made) for write in WRITES for made in COPIES]
CASES += [(kind, write) for kind in (After, Between) for write in WRITES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join([case[0].__name__, *case[1:]]))
def test_the_same_numbers_are_drawn(service, case):
    torch.manual_seed(1)
    kind, *arguments = case
    live = torch.fx.symbolic_trace(kind(*arguments).eval())
    x = torch.randn(4, 3, 16)
    for passes in (["RemoveNoOps", "MergeViews", "EliminateCommonSubexpressions"], ["MergeLinears", "FuseBiasInLinear"],
                   ["inference"]):
        document = foldback.fx.to_document(live, x, data=True)
        answer = service.post("/v1/optimize",
                              {"graph": document, "passes": passes, "options": {"include": ["graph"], "lint": "each"}})
        assert answer.status == 201, answer.body.decode()
        result = foldback.fx.from_document(answer.json()["graph"])
        results = []
        for module in (live, result):
            torch.manual_seed(7)
            with torch.no_grad():
                results.append(module(x))
        torch.testing.assert_close(results[1], results[0])
