"""What several files of cases use."""
import hashlib

from make_cases import Graph

ATEN, SHAPE = "torch.ops.aten.", (2, 4)
FLOATS = ["float64", "float32", "float16", "bfloat16"]


def signature(name):
    """Of a pass in its first version without parameters."""
    return hashlib.sha256(f'{{"params":{{}},"pass":"{name}","version":1}}'.encode()).hexdigest()[:32]


def nested(graph, path, target):
    """A nested program below `path` that calls the module `path`.fc, and owns nothing else."""
    rows = [{"name": "y", "op": "placeholder", "target": "y", "args": []},
            {"name": "fc", "op": "call_module", "target": target, "args": [{"$node": "y"}]},
            {"name": "output", "op": "output", "target": "output", "args": [{"$node": "fc"}]}]
    graph.module(path, "torch.fx.GraphModule", graph={"nodes": rows})


class Formula(Graph):
    """Steps on one value, by operators, functions, methods or ATen's operators."""

    def __init__(self, dtype="float32", shape=SHAPE):
        super().__init__()
        self.shape, self.dtype = shape, dtype
        self.x = self.input(shape=shape, dtype=dtype)

    def step(self, target, *args, shape=None, dtype=None, **kwargs):
        shape, dtype = shape or self.shape, dtype or self.dtype
        if target.startswith("."):
            return self.method(target[1:], *args, shape=shape, dtype=dtype, kwargs=kwargs)
        name = target.split(".")[3] if target.startswith(ATEN) else target.split(".")[-1]
        return self.fn(target, *args, shape=shape, dtype=dtype, name=name, kwargs=kwargs)

    def end(self, y, *others):
        return self.output(self.relu(y), *others)
