"""What the viewer's tests look at: two models, each with a version that a run made of the one before."""

import copy
import json
import pathlib
import urllib.error
import urllib.request

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"


def document(name):
    return json.loads((FIXTURES / name / "graph.json").read_text())


class Service:
    def __init__(self, url, token=None):
        self.url, self.token = url, token

    def call(self, method, path, body=None, **headers):
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        headers = {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, None if body is None else json.dumps(body).encode(), headers,
                                         method=method)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer) if answer.status != 204 else None

    def get(self, path):
        return self.call("GET", path)


def resnet():
    """ResNet-50, in which the value between a convolution of layer3 and its BatchNorm has another reader: that fold is
    refused."""
    graph = copy.deepcopy(document("resnet50"))
    conv = next(node for node in graph["nodes"] if node["target"] == "layer3.1.conv2")
    output = graph["nodes"][-1]
    output["args"] = [{"$tuple": [output["args"][0], {"$node": conv["name"]}]}]
    return graph, conv["name"]


def deploy(service, model, graph, passes, who):
    """v1 is the graph, v2 what the passes made of it; champion was v1 and is v2. Gives the run."""
    service.call("PUT", f"/v1/models/{model}/versions/v1", {"graph": graph, "note": "as trained"})
    first = service.get(f"/v1/models/{model}/versions/v1")
    run = service.call("POST", "/v1/optimize", {"graph": first["graph"], "passes": passes})
    service.call("PUT", f"/v1/models/{model}/versions/v2", {"run": run["id"], "note": "merged and fused"})
    service.call("PUT", f"/v1/models/{model}/aliases/champion", {"version": "v1", "who": who}, If_None_Match="*")
    service.call("PUT", f"/v1/models/{model}/aliases/champion",
                 {"version": "v2", "who": who, "why": "the challenger won"}, If_Match="*")
    return run


def fill(service):
    """{model: run}, and the node whose BatchNorm stays."""
    bert = deploy(service, "bert", document("bert-base"), ["MergeLinears", "ChangeTrueDivToMulByInverse", "RemoveNoOps"], "ann")
    graph, conv = resnet()
    resnet50 = deploy(service, "resnet", graph, ["FuseBatchNorm2dInConv2d", "RemoveNoOps"], "ben")
    return {"bert": bert, "resnet": resnet50}, conv


def many_layers(count):
    """A chain of Linears, each divided by 4: two nodes a layer."""
    modules, tensors, last = [{"path": "", "type": "torch.nn.Module"}], [], "x"
    nodes = [{"name": "x", "op": "placeholder", "target": "x", "args": [], "meta": {"shape": [2, 4], "dtype": "float32"}}]
    typed = {"meta": {"shape": [2, 4], "dtype": "float32"}}
    for i in range(count):
        path = f"layers.{i}.fc"
        modules.append({"path": path, "type": "torch.nn.Linear", "config": {"in_features": 4, "out_features": 4, "bias": False},
                        "parameters": {"weight": f"{path}.weight", "bias": None}})
        tensors.append({"name": f"{path}.weight", "dtype": "float32", "shape": [4, 4]})
        nodes.append({"name": f"layers_{i}_fc", "op": "call_module", "target": path, "args": [{"$node": last}], **typed})
        nodes.append({"name": f"truediv_{i}", "op": "call_function", "target": "operator.truediv",
                      "args": [{"$node": f"layers_{i}_fc"}, 4.0], **typed})
        last = f"truediv_{i}"
    nodes.append({"name": "output", "op": "output", "target": "output", "args": [{"$node": last}]})
    return {"format": "foldback.graph/1", "name": "many", "nodes": nodes, "modules": modules, "tensors": tensors}
