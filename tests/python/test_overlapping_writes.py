"""Writes in place over elements that the same call reads elsewhere: PyTorch refuses them, or their result depends on its order;
the evaluator refuses them too, and computes those where each element is read where it is written."""

import pytest
import torch
from test_models_evaluate import evaluate

from foldback.fx import to_document

ROWS = torch.tensor([0, 1])
# PyTorch raises for all of these.
REFUSED = {
    "a dimension less": lambda x: x.mul_(x.squeeze()),
    "a dimension more is written": lambda x: x.unsqueeze(0).mul_(x),
    "transposed": lambda x: x.add_(x.transpose(1, 2)),
    "a row": lambda x: x.div_(x[:, 0:1]),
    "one element": lambda x: x.mul_(x[0, 3, 3]),
    "rows shifted": lambda x: x[:, :2].sub_(x[:, 1:3]),
    "three operands": lambda x: x.addcmul_(x, x.squeeze()),
    "by keyword": lambda x: x.add_(other=x.squeeze()),
    "a comparison": lambda x: x.eq_(x.squeeze()),
    "a bound": lambda x: x.clamp_(x.squeeze()),
    "a copy": lambda x: x.copy_(x.transpose(1, 2)),
    "scattered": lambda x: x[0].scatter_(0, torch.zeros(1, 4, dtype=torch.long), x[0, 1:2]),
    "scattered whole": lambda x: x[0].scatter_add_(0, torch.zeros(4, 4, dtype=torch.long), x[0]),
    "rows added": lambda x: x[0].index_add_(0, ROWS, x[0, 2:]),
    "rows put": lambda x: x[0].index_put_((ROWS,), x[0, 1:3]),
    "a slice assigned": lambda x: x[0].__setitem__(slice(0, 2), x[0, 1:3]),
    "a tensor of rows assigned": lambda x: x[0].__setitem__(ROWS, x[0, 2:4]),
    "all rows assigned": lambda x: x[0].__setitem__(torch.arange(4), x[0]),
}
# PyTorch computes these.
COMPUTED = {
    "itself": lambda x: x.mul_(x),
    "detached": lambda x: x.mul_(x.detach()),
    "a view of the same elements": lambda x: x.mul_(x.view(16).view(1, 4, 4)),
    "squeezed and back": lambda x: x.mul_(x.squeeze().unsqueeze(0)),
    "other rows": lambda x: x[:, :2].mul_(x[:, 2:]),
    "three times itself": lambda x: x.addcmul_(x, x),
    "a copy of it": lambda x: x.mul_(x.squeeze().clone()),
    "a slice assigned to itself": lambda x: x.__setitem__(slice(None), x),
    "a row assigned from another": lambda x: x[0].__setitem__(slice(0, 1), x[0, 1:2]),
    "a tensor of rows from others": lambda x: x[0, :2].__setitem__(ROWS, x[0, 2:4]),
    "rows added from others": lambda x: x[0, :2].index_add_(0, ROWS, x[0, 2:]),
    "a mask": lambda x: x.__setitem__(x > 3, x[x > 3]),
    "sorted over itself": lambda x: x.cumsum_(1),
}


class Writes(torch.nn.Module):
    def __init__(self, write):
        super().__init__()
        self.write = write
        self.register_buffer("rows", ROWS)

    def forward(self, x):
        x = x + 0
        self.write(x)
        return x


def run(write, tmp_path):
    x = torch.arange(1.0, 17.0).reshape(1, 4, 4)
    model = Writes(write)
    try:
        expected = model(x)
    except RuntimeError as error:
        expected = error
    document = to_document(torch.fx.symbolic_trace(model), x)
    return expected, evaluate(document, {"x": x}, tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_pytorch_does(name, tmp_path):
    expected, found = run(REFUSED[name], tmp_path)
    assert isinstance(expected, RuntimeError)
    assert isinstance(found, str) and "share memory" in found


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_as_pytorch_does(name, tmp_path):
    expected, found = run(COMPUTED[name], tmp_path)
    assert not isinstance(found, str), found
    assert torch.equal(found[0], expected)


def test_the_order_would_decide(tmp_path):
    """PyTorch computes, and gives neither this nor that."""
    x = torch.arange(1.0, 17.0).reshape(4, 4)

    class Product(torch.nn.Module):
        def forward(self, x):
            x = x + 0
            return x.addmm_(x, x)

    assert not torch.equal(Product()(x), torch.addmm(x, x, x))
    found = evaluate(to_document(torch.fx.symbolic_trace(Product()), x), {"x": x}, tmp_path)
    assert isinstance(found, str) and "share memory" in found
