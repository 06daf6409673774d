"""Ten calls through a client that openapi-generator made. Usage: URL TOKEN DOCUMENT, the package `client` on PYTHONPATH."""

import json
import pathlib
import sys

import client as api
from client.exceptions import NotFoundException

url, token, path = sys.argv[1:]
connection = api.ApiClient(api.Configuration(host=url, access_token=token))
document = json.loads(pathlib.Path(path).read_text())
graphs, undo, runs = api.GraphsApi(connection), api.UndoApi(connection), api.RunsApi(connection)

stored = graphs.put_graph(api.Graph.from_dict(document))
assert stored.nodes == len(document["nodes"]), stored
assert stored.id in [one.id for one in graphs.list_graphs(limit=5).items]
assert len(graphs.list_nodes(stored.id, limit=1000).items) == stored.nodes
passes = [api.PassCompositionInner(name) for name in ("MergeLinears", api.PassStep(name="ChangeTrueDivToMulByInverse"))]
request = api.OptimizeRequest(graph=api.GraphOrId(stored.id), passes=passes)
run = api.OptimizeApi(connection).optimize(request)
assert run.source == stored.id != run.result, run
assert [one.name for one in runs.get_run(run.id).passes] == ["MergeLinears", "ChangeTrueDivToMulByInverse"]
assert graphs.put_graph(graphs.get_graph(run.result)).id == run.result  # nothing of it is lost
assert "def forward" in graphs.get_code(run.result)
assert undo.reverse_run(run.id, reverse_request=api.ReverseRequest()).result == stored.id
assert undo.rollback_run(run.id, rollback_request=api.RollbackRequest(passes=[api.PassUndoneInner("MergeLinears")])).exact
assert api.ModelsApi(connection).put_version("generator", "1", api.VersionRequest(run=run.id)).graph == run.result
assert "MergeLinears" in [one.name for one in api.PassesApi(connection).list_passes().items]
try:
    runs.get_run("run_00000000000000000000000000")
    raise AssertionError("a run that does not exist was found")
except NotFoundException as missing:
    assert json.loads(missing.body)["code"] == "unknown-run", missing.body
print("ten calls")
