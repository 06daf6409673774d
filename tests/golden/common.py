"""What several files of cases use."""
import hashlib

FLOATS = ["float64", "float32", "float16", "bfloat16"]


def signature(name):
    """Of a pass in its first version without parameters."""
    return hashlib.sha256(('{"params":{},"pass":"%s","version":1}' % name).encode()).hexdigest()[:32]


def nested(graph, path, target):
    """A nested program below `path` that calls the module `path`.fc, and owns nothing else."""
    rows = [{"name": "y", "op": "placeholder", "target": "y", "args": []},
            {"name": "fc", "op": "call_module", "target": target, "args": [{"$node": "y"}]},
            {"name": "output", "op": "output", "target": "output", "args": [{"$node": "fc"}]}]
    graph.module(path, "torch.fx.GraphModule", graph={"nodes": rows})
