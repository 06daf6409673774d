"""Tables that weights compute and that a constant indexes, as models with relative positions have them: FoldConstants leaves
one weight, whose numbers are PyTorch's, computed by the client and by the service alike."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import foldback.export
from foldback.client import Client
from foldback.fx import from_document, to_document

PASSES = ["EvaluateConstants", "FoldConstants"]
PLACES = torch.tensor([3, 0, 0, 4, 2, 2, 1, 3])


class Net(nn.Module):
    def __init__(self, function, persistent=False):
        super().__init__()
        self.function = function
        self.table = nn.Parameter(torch.randn(5, 4))
        self.scale = nn.Parameter(torch.tensor([[[3.0]], [[9.0]]]))
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 2, bias=False)
        self.register_buffer("places", PLACES.clone(), persistent=persistent)
        self.register_buffer("columns", torch.tensor([[1, 3], [0, 1]]), persistent=persistent)

        with torch.no_grad():
            shape = function(self).shape
        self.order = torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1)).expand(shape).contiguous()

    def forward(self, x):  # what gather reads does not show how it lies in memory
        return (x + self.function(self)).gather(0, self.order)


def inner(net):
    return F.linear(net.table, net.inner.weight, net.inner.bias)


def swin_v2(net):
    table = F.linear(F.relu(inner(net), inplace=True), net.outer.weight).view(-1, 2)
    bias = table[net.places.view(-1)].view(2, 4, 2).permute(2, 0, 1).contiguous()
    return 16 * torch.sigmoid(bias).unsqueeze(0)


def deberta(net):
    keys = inner(net).view(5, 2, 3).permute(1, 2, 0)
    keys /= 3.0
    return keys


FUNCTIONS = {
    "rows": lambda net: net.table[net.places],
    "columns": lambda net: net.table[:, net.columns.view(-1)],
    "rows that a table of two dimensions says": lambda net: net.table[net.columns],
    "index_select": lambda net: torch.index_select(net.table, 1, net.columns[0]),
    "from the end": lambda net: net.table[net.places - 5],
    "embedding": lambda net: F.embedding(net.places, net.table),
    "scale of cosine attention": lambda net: torch.clamp(net.scale, max=4.6).exp(),
    "clamp between": lambda net: net.table.clamp(-0.5, 0.5),
    "bounds that cross": lambda net: net.table.clamp(0.5, -0.5),
    "bound by a tensor": lambda net: net.table.clamp(min=net.table[0]),
    "relu of what is computed": lambda net: F.relu(net.table * 2 - 1),
    "swin-v2": swin_v2,
    "deberta": deberta,
}
PARTLY = ("from the end", "index_select")  # of a buffer: integers are not computed that another file may hold otherwise


def documents(net, x):
    program = torch.export.export(net, (x,))
    yield "fx", to_document(torch.fx.symbolic_trace(net), x, data=True)
    yield "aten", foldback.export.from_exported_program(program, data=True)
    yield "core", foldback.export.from_exported_program(program.run_decompositions(), data=True)


def computed(graph):
    return [node["target"] for node in graph["nodes"] if node["op"].startswith("call")]


def stored(client, folder, net, source):
    """The folded weights as the service computes them."""
    save_file({key: value.contiguous() for key, value in net.state_dict().items()}, folder / "net.safetensors")
    bound = client.bind(source, [folder / "net.safetensors"])["id"]
    client.weights(client.optimize(bound, PASSES)["result"], folder / "result.safetensors")
    return load_file(folder / "result.safetensors")


@pytest.mark.parametrize("persistent, dtype", [(False, torch.float32), (True, torch.bfloat16)], ids=["constant", "buffer"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_weight_is_left(service, tmp_path, name, persistent, dtype):
    torch.manual_seed(0)
    net = Net(FUNCTIONS[name], persistent).to(dtype).eval()
    tolerance = {"rtol": 0.04, "atol": 0.04} if dtype == torch.bfloat16 else {"rtol": 2e-6, "atol": 2e-6}
    with torch.no_grad():
        x = torch.zeros_like(FUNCTIONS[name](net))
        expected = net(x)
    for dialect, document in documents(net, x):
        asked = {"graph": document, "passes": PASSES, "options": {"include": ["graph"], "lint": "each"}}
        answer = service.post("/v1/optimize", asked)
        assert answer.status == 201, answer.body.decode()
        run = answer.json()
        if not (persistent and name in PARTLY):
            assert len(computed(run["graph"])) == 2, (dialect, computed(run["graph"]), run["passes"])
        with Client(service.url) as client:
            files = stored(client, tmp_path, net, run["source"])
        with torch.no_grad():
            made = from_document(run["graph"])
            for one in (made, from_document(run["graph"], module=net), from_document(run["graph"], weights=files)):
                torch.testing.assert_close(one(x), expected, **tolerance)
        assert all(torch.equal(files[key], value) for key, value in made.state_dict().items() if key in files), dialect
        rolled_back = service.post(f"/v1/runs/{run['id']}/rollback")
        assert rolled_back.status in (200, 201) and rolled_back.json()["result"] == run["source"]
