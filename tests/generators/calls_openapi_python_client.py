"""Ten calls through a client that openapi-python-client made. Usage: URL TOKEN DOCUMENT, the package `client` on PYTHONPATH."""

import json
import pathlib
import sys

from client import AuthenticatedClient
from client.api.graphs import get_code, get_graph, list_graphs, list_nodes, put_graph
from client.api.models import put_version
from client.api.optimize import optimize
from client.api.passes import list_passes
from client.api.runs import get_run
from client.api.undo import reverse_run, rollback_run
from client.models import Graph, OptimizeRequest, PassStep, Problem, ReverseRequest, RollbackRequest, VersionRequest

url, token, path = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token)
document = json.loads(pathlib.Path(path).read_text())

stored = put_graph.sync(client=client, body=Graph.from_dict(document))
assert stored.nodes == len(document["nodes"]), stored
assert stored.id in [one.id for one in list_graphs.sync(client=client, limit=5).items]
assert len(list_nodes.sync(stored.id, client=client, limit=1000).items) == stored.nodes
request = OptimizeRequest(graph=stored.id, passes=["MergeLinears", PassStep(name="ChangeTrueDivToMulByInverse")])
run = optimize.sync(client=client, body=request)
assert run.source == stored.id != run.result, run
assert [one.name for one in get_run.sync(run.id, client=client).passes] == ["MergeLinears", "ChangeTrueDivToMulByInverse"]
assert put_graph.sync(client=client, body=get_graph.sync(run.result, client=client)).id == run.result  # nothing of it is lost
assert b"def forward" in get_code.sync_detailed(run.result, client=client).content
assert reverse_run.sync(run.id, client=client, body=ReverseRequest()).result == stored.id
assert rollback_run.sync(run.id, client=client, body=RollbackRequest(passes=["MergeLinears"])).exact
assert put_version.sync("python", "1", client=client, body=VersionRequest(run=run.id)).graph == run.result
assert "MergeLinears" in [one.name for one in list_passes.sync(client=client).items]
missing = get_run.sync("run_00000000000000000000000000", client=client)
assert isinstance(missing, Problem) and missing.code == "unknown-run" and missing.status == 404, missing
print("ten calls")
