"""What tests of undo share: a run and its result, undos of it, and what clients change of a graph."""

from documents import branches, node, ref
from test_http import is_problem
from test_runs import optimize

META = {"shape": [2, 4], "dtype": "float32"}


def optimised(service, graph, passes):
    """The run, and its result as a client has it."""
    run = optimize(service, graph, passes, options={"include": ["graph"]})
    return run, run.pop("graph")


def reverse(service, run, graph=None, passes=None, **more):
    body = {"options": {"include": ["graph"]}, **more}
    if graph is not None:
        body["graph"] = graph
    if passes is not None:
        body["passes"] = passes
    return service.post(f"/v1/runs/{run['id']}/reverse", body)


def reversed_to(service, run, graph=None, passes=None):
    answer = reverse(service, run, graph, passes)
    assert answer.status == 201, answer.body
    return answer.json()


def conflicts(answer):
    problem = is_problem(answer, 409, "conflict")
    assert problem["conflicts"] and all(len(one["detail"]) > 10 for one in problem["conflicts"])
    return sorted((one["code"], one["kind"], one["name"]) for one in problem["conflicts"])


def fresh(service, graph, passes):
    """The id that a fresh run of these passes gives."""
    if passes:
        return optimize(service, graph, passes)["result"]
    return service.post("/v1/graphs", graph).json()["id"]


def find(graph, name):
    return next(one for one in graph["nodes"] if one["name"] == name)


def module(graph, path):
    return next(one for one in graph["modules"] if one["path"] == path)


def tensor(graph, name):
    return next(one for one in graph["tensors"] if one["name"] == name)


def model():
    """Three Linears on one input, and a branch of its own that no pass touches."""
    graph = branches(3)
    graph["nodes"].insert(-1, node("extra", "call_function", "torch.neg", [ref("x")], meta=META))
    return graph


def added(graph):
    output = graph["nodes"][-1]
    graph["nodes"].insert(-1, node("tail", "call_function", "torch.relu", list(output["args"]), meta=META))
    output["args"] = [ref("tail")]


def described(graph):
    graph["name"] = "mine"
    graph["metadata"] = {"who": "me"}


def without_marks(graph):
    for one in graph["nodes"]:
        one["meta"].pop("transformations", None)
