"""The command line: every verb on a data folder and on a running service, exit statuses, mistakes."""

import hashlib
import json
import pathlib
import re
import socket
import subprocess

import documents
import golden
import pytest
from cli import CommandLine, environment
from conftest import binary
from documents import batch_norm_fold, branches

TOY = documents.FIXTURES / "toy" / "graph.json"
CHANGING = re.compile(r"run_[0-9A-Z]{26}|20\d\d-\d\d-\d\dT[0-9:.]+Z")


@pytest.fixture(params=["data", "server"])
def foldback(request, tmp_path):
    """The same tests on a data folder, and through a service."""
    if request.param == "data":
        return CommandLine(tmp_path, "--data", tmp_path / "store")
    service = request.getfixturevalue("service")
    return CommandLine(tmp_path, "--server", service.url)


@pytest.fixture
def local(tmp_path):
    return CommandLine(tmp_path, "--data", tmp_path / "store")


def optimize(foldback, graph, *passes, output="out.json"):
    words = [word for name in passes for word in ("--pass", name)]
    return foldback("optimize", graph, *words, "-o", output).json()


def identity(path):
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


# ------------------------------------------------------------------------------------------------------- without a store


@pytest.mark.parametrize("name", ["toy", "bert-tiny", "aten-toy"])
def test_graphs_alone(tmp_path, name):
    foldback = CommandLine(tmp_path)
    graph = documents.FIXTURES / name / "graph.json"
    own, structure = documents.ids(name)
    assert foldback("id", graph).out == own + "\n"
    assert foldback("id", "-", input=graph.read_bytes()).out == own + "\n"
    assert foldback("id", graph, "--structure").out == structure + "\n"
    assert foldback("code", graph).out == documents.code(name)
    assert foldback("verify", graph).out.startswith(f"valid: {own}, ")
    assert foldback("verify", graph, "--json").json() == {"valid": True, "id": own}
    assert not list(tmp_path.iterdir())  # no data folder was made


def broken():
    graph = branches(2)
    graph["nodes"][3]["args"][0] = {"$node": "nowhere"}
    graph["nodes"][4]["op"] = "call"
    return graph


def test_verify_lists_everything(tmp_path):
    foldback = CommandLine(tmp_path)
    foldback.put("broken.json", broken())
    shown = foldback("verify", "broken.json")
    assert shown.status == 1 and shown.err == ""
    lines = shown.out.splitlines()
    assert len(lines) == 2 and all(re.fullmatch(r"/nodes/[34]/\S+: [a-z-]+: .+", line) for line in lines), lines
    listed = foldback("verify", "broken.json", "--json")
    answer = json.loads(listed.out)
    assert listed.status == 1 and answer["valid"] is False and answer["total"] == 2
    assert [f"{one['pointer']}: {one['code']}: {one['detail']}" for one in answer["errors"]] == lines


def test_verify_lists_more_than_a_service_would(tmp_path):
    foldback = CommandLine(tmp_path)
    graph = branches(300)
    for one in graph["nodes"]:
        one["op"] = "call"
    foldback.put("broken.json", graph)
    assert len(foldback("verify", "broken.json").out.splitlines()) == len(graph["nodes"])


def test_verify_what_is_no_json(tmp_path):
    foldback = CommandLine(tmp_path)
    shown = foldback("verify", "-", input=b"{\n  nodes")
    assert shown.status == 1 and re.fullmatch(r"\(document\): invalid-json: .*line 2, .*\n", shown.out), shown


@pytest.mark.parametrize("verb", [("id",), ("code",), ("optimize", "--pass", "MergeLinears"), ("reverse",),
                                  ("register", "m:v1")])
def test_a_file_that_is_no_graph(local, verb):
    local.put("broken.json", broken())
    refused = local(*verb, "broken.json") if verb[0] != "optimize" else local("optimize", "broken.json", *verb[1:])
    assert refused.status == 1 and refused.out == ""
    lines = refused.err.splitlines()
    assert lines[0] == "foldback: broken.json is not a valid graph" and len(lines) == 3 and lines[1].startswith("  /nodes/3/")


def test_diff_of_files(local):
    local.put("out.json", TOY.read_bytes().replace(b'"x"', b'"y"'))
    same = local.run("diff", TOY, TOY)
    assert (same.status, same.out, same.err) == (0, "", "")
    local.put("b.json", branches(2))
    local.put("c.json", branches(3))
    shown = local.run("diff", "b.json", "c.json")
    assert shown.status == 0 and shown.out.splitlines()[:2] == ["--- b.json", "+++ c.json"]
    assert "+    fc2 = self.fc2(x);  x = None\n" in shown.out
    answer = local.run("diff", "b.json", "c.json", "--edits").json()
    assert answer == local.run("diff", "b.json", "c.json", "--json").json()
    assert answer["base"] == local.run("id", "b.json").out.strip() and answer["graph"] == local.run("id", "c.json").out.strip()
    assert {"edit": "insert_node", "name": "fc2"} in [
        {"edit": one["edit"], "name": one.get("node", {}).get("name")} for one in answer["edits"]
    ]


def test_diff_where_the_code_is_the_same(local):
    local.put("a.json", branches(2, name="a"))
    local.put("b.json", branches(2, name="b"))
    shown = local.run("diff", "a.json", "b.json")
    assert shown.status == 0 and shown.out == "" and "--edits" in shown.err
    assert [one["edit"] for one in local.run("diff", "a.json", "b.json", "--edits").json()["edits"]] == ["set_graph"]


# ------------------------------------------------------------------------------------------------------------ with a store


def test_there_and_back(foldback):
    run = optimize(foldback, TOY, "MergeLinears", "FuseBiasInLinear")
    assert run["kind"] == "optimize" and [one["name"] for one in run["passes"]] == ["MergeLinears", "FuseBiasInLinear"]
    out = foldback.path("out.json")
    assert identity(out) == run["result"] == foldback("id", "out.json").out.strip() and "graph" not in run

    back = foldback("reverse", "out.json", "-o", "back.json").json()
    assert back["kind"] == "reverse" and back["of_run"] == run["id"] and back["exact"] is True
    assert back["result"] == run["source"] == identity(foldback.path("back.json"))

    part = foldback("reverse", "out.json", "--run", run["id"], "-p", "FuseBiasInLinear", "-o", "part.json").json()
    fresh = optimize(foldback, TOY, "MergeLinears", output="fresh.json")
    assert (part["result"] == fresh["result"] and foldback.path("part.json").read_bytes()
            == foldback.path("fresh.json").read_bytes())
    assert foldback("reverse", run["id"], "-p", "1").json()["result"] == fresh["result"]  # by position, of the run's own result
    assert foldback("rollback", run["id"], "-p", "FuseBiasInLinear", "-o", "rolled.json").json()["result"] == fresh["result"]
    assert foldback("rollback", run["id"]).json()["result"] == run["source"]

    kinds = [one["kind"] for one in foldback("runs").json()["items"]]
    assert kinds == ["rollback", "rollback", "reverse", "optimize", "reverse", "reverse", "optimize"]


@pytest.mark.heavy
def test_both_ways_answer_alike(local, service):
    """A data folder and a service: the same words, the same output but for ids of runs and times."""
    remote = CommandLine(local.folder, "--server", service.url)

    def story(foldback):
        run = optimize(foldback, TOY, "MergeLinears", "FuseBatchNorm2dInConv2d")
        done = [
            foldback("show", run["id"]),
            foldback("reverse", "out.json"),
            foldback("rollback", run["id"], "--pass", "FuseBatchNorm2dInConv2d"),
            foldback("runs", "--kind", "rollback"),
            foldback("graphs", "--name", "toy"),
            foldback("nodes", "out.json", "--pass", "MergeLinears"),
            foldback("show", "out.json"),
            foldback("code", run["id"]),
            foldback("diff", run["id"]),
            foldback("diff", run["source"], run["result"], "--edits"),
            foldback("optimize", TOY, "--pass", "Nonsense"),
            foldback("show", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ]
        return [(one.status, CHANGING.sub("…", one.out), CHANGING.sub("…", one.err)) for one in done]

    ours = story(local)
    assert ours == story(remote)
    assert [status for status, _, _ in ours] == [0, 1] + [0] * 8 + [1, 1]
    assert local("passes").out == remote("passes").out


def test_what_the_store_has_is_a_graph_too(foldback):
    run = optimize(foldback, TOY, "MergeLinears")
    code = foldback("code", "out.json").out
    assert code == foldback("code", run["id"]).out == foldback("code", run["result"]).out != foldback("code", run["source"]).out
    assert foldback("id", run["id"]).out.strip() == run["result"]
    again = foldback("optimize", run["result"], "--pass", "FuseBiasInLinear").json()
    assert again["source"] == run["result"]
    shown = foldback("diff", run["id"])
    assert shown.out.splitlines()[:2] == [f"--- {run['source']}", f"+++ {run['result']}"]
    lineage = foldback("show", run["result"]).json()
    assert [one["id"] for one in lineage["made_by"]["items"]] == [run["id"]]
    assert [one["id"] for one in lineage["used_by"]["items"]] == [again["id"]]


def test_pipes(foldback):
    first = foldback("optimize", "-", "--pass", "MergeLinears", "-o", "-", input=TOY.read_bytes())
    second = foldback("optimize", "-", "-p", "FuseBiasInLinear", "-o", "-", input=first.out.encode())
    assert first.status == second.status == 0 and json.loads(second.out)["format"] == "foldback.graph/1"
    both = optimize(foldback, TOY, "MergeLinears", "FuseBiasInLinear")
    assert both["result"] == "sha256:" + hashlib.sha256(second.out.encode()).hexdigest()


def test_a_pipeline_on_one_folder(local):
    """The second waits for what the first writes, and the first writes when it has let go of the folder."""
    step = f"{binary()} optimize --data d -o - -p"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {step} MergeLinears {TOY} | {step} FuseBiasInLinear - >out.json"],
                          cwd=local.folder, capture_output=True, env=environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(local.run("runs", "--data", "d").json()["items"]) == 2


def test_closed_streams(local):
    """Nothing of what is printed lands in the store's files or sockets."""
    run = optimize(local, TOY, "MergeLinears")
    store = {path: path.read_bytes() for path in local.path("store").rglob("*") if path.is_file()}
    for closed, status in ((">&-", 1), ("<&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 1)):
        done = subprocess.run(["bash", "-c", f"{binary()} show {run['id']} --data store {closed}"], cwd=local.folder,
                              capture_output=True, env=environment())
        assert done.returncode == status, (closed, done)
    assert {path: path.read_bytes() for path in store} == store
    assert local("show", run["id"]).status == 0


def test_a_dry_run_stores_nothing(foldback):
    optimize(foldback, foldback.put("graph.json", branches(2)), "MergeLinears")
    before = foldback("runs").out, foldback("graphs").out
    source = foldback("id", "graph.json").out.strip()
    for graph in (TOY, source):
        run = foldback("optimize", graph, "-p", "FuseBiasInLinear", "--dry-run", "-o", "out.json").json()
        assert run["id"] is None and identity(foldback.path("out.json")) == run["result"] != run["source"]
    assert (foldback("runs").out, foldback("graphs").out) == before


def test_a_dry_run_of_a_file_needs_no_store(local, new_service):
    service = new_service(data=local.path("store"))
    run = local("optimize", TOY, "-p", "MergeLinears", "--dry-run", "-o", "out.json")
    assert run.status == 0 and identity(local.path("out.json")) == run.json()["result"]
    assert documents.counts(service) == (0, 0)
    assert CommandLine(local.folder)("optimize", TOY, "-p", "MergeLinears", "-n").json()["result"] == run.json()["result"]
    assert not local.path(".foldback").exists()


def test_notes_labels_lists(foldback):
    for i in range(5):
        graph = foldback.put(f"{i}.json", branches(i + 2))
        run = foldback("optimize", graph, "-p", "MergeLinears", "--note", f"nota è {i}", "--label", f"n={i}",
                       "--label", "all=a=b")
        assert run.json()["note"] == f"nota è {i}" and run.json()["labels"] == {"n": str(i), "all": "a=b"}
    assert [one["note"] for one in foldback("runs", "--label", "n=3").json()["items"]] == ["nota è 3"]
    few = foldback("runs", "--limit", "3")
    assert [one["note"] for one in few.json()["items"]] == ["nota è 4", "nota è 3", "nota è 2"] and "--limit" in few.err
    everything = foldback("runs", "--limit", "0", "--label", "all")
    assert len(everything.json()["items"]) == 5 and everything.err == ""
    one = foldback("runs", "--source", run.json()["source"], "--pass", "MergeLinears").json()["items"]
    assert [item["id"] for item in one] == [run.json()["id"]]
    assert len(foldback("graphs").json()["items"]) == 10
    nodes = foldback("nodes", "4.json", "--op", "call_module", "--limit", "0").json()["items"]
    assert [node["name"] for node in nodes] == [f"fc{i}" for i in range(6)]


@pytest.mark.heavy
def test_long_lists_are_fetched_page_by_page(local, service):
    remote = CommandLine(local.folder, "--server", service.url)
    graph = remote.put("large.json", branches(1200))
    optimize(remote, graph, "MergeLinears")
    assert len(remote("nodes", graph, "--limit", "0").json()["items"]) == len(branches(1200)["nodes"]) > 1000
    assert len(remote("nodes", graph, "--limit", "1001").json()["items"]) == 1001


def test_passes(foldback, tmp_path):
    names = [one["name"] for one in CommandLine(tmp_path)("passes").json()["items"]]
    assert "MergeLinears" in names
    one = CommandLine(tmp_path)("passes", "MergeLinears").json()
    assert one["name"] == "MergeLinears" and one["reversible"] is True
    preset = CommandLine(tmp_path)("passes", "cleanup").json()
    assert preset["name"] == "cleanup" and "EliminateDeadCode" in preset["passes"] and preset["rounds"] == 4
    wrong = CommandLine(tmp_path)("passes", "mergelinear")
    assert wrong.status == 1 and "did you mean MergeLinears?" in wrong.err
    assert not (tmp_path / ".foldback").exists()


def test_record(foldback):
    graph = branches(2)
    foldback.put("a.json", graph)
    graph["nodes"][-2]["args"][1] = 4
    foldback.put("b.json", graph)
    made = foldback("record", "a.json", "b.json", "--name", "Halve", "--params", '{"by": 2}', "--version", "3",
                    "--changes-computation", "--irreversible", "--label", "k=v").json()
    assert made["kind"] == "external" and made["labels"] == {"k": "v"} and made["preserves_computation"] is False
    assert [(one["name"], one["version"], one["params"], one["reversible"])
            for one in made["passes"]] == [("Halve", 3, {"by": 2}, False)]
    assert foldback("rollback", made["id"]).json()["result"] == made["source"]


@pytest.mark.parametrize(
    "flags, preserves", [([], False), (["--changes-computation"], False), (["--preserves-computation"], True)])
def test_a_record_preserves_the_computation_only_if_it_says_so(foldback, flags, preserves):
    for at, graph in enumerate((branches(1), branches(2))):
        foldback.put(f"{at}.json", graph)
    assert foldback("record", "0.json", "1.json", "--name", "Widen", *flags).json()["preserves_computation"] is preserves
    both = foldback("record", "0.json", "1.json", "--name", "Widen", "--preserves-computation", "--changes-computation")
    assert both.status == 2 and "not both" in both.err


# ---------------------------------------------------------------------------------------------------------------- refusals


def test_irreversible(foldback):
    graph = foldback.put("folds.json", batch_norm_fold())
    run = optimize(foldback, graph, "FuseBatchNorm2dInConv2d")
    refused = foldback("reverse", "out.json", "-o", "back.json")
    assert refused.status == 1 and refused.out == "" and not foldback.path("back.json").exists()
    assert "  passes: FuseBatchNorm2dInConv2d\n" in refused.err and f"foldback rollback {run['id']}" in refused.err
    assert foldback("rollback", run["id"]).json()["result"] == run["source"]


def test_conflicts_are_all_listed(foldback):
    """Two divisions became multiplications, which somebody then changed."""
    graph = branches(1)
    graph["nodes"].insert(-1, documents.node("half", "call_function", "operator.truediv", [documents.ref("truediv"), 2],
                                             meta={"shape": [2, 4], "dtype": "float32"}))
    graph["nodes"][-1]["args"] = [documents.ref("half")]
    foldback.put("graph.json", graph)
    run = optimize(foldback, "graph.json", "ChangeTrueDivToMulByInverse")
    assert run["passes"][0]["applied"] == 2
    changed = json.loads(foldback.path("out.json").read_bytes())
    for one in changed["nodes"]:
        if one["name"] in ("truediv", "half"):
            one["args"][1] = 3.5
    foldback.put("changed.json", changed)
    refused = foldback("reverse", "changed.json", "--run", run["id"])
    lines = refused.err.splitlines()
    assert lines.pop() == "  foldback rollback RUN gives the graph from before the run, without what changed since"
    assert refused.status == 1 and refused.out == "" and len(lines) == 3, refused
    assert {re.match(r"  node (\w+): [a-z-]+: .", line)[1] for line in lines[1:]} == {"truediv", "half"}


def test_reverse_of_a_graph_that_was_changed_elsewhere(foldback):
    run = optimize(foldback, TOY, "MergeLinears")
    changed = json.loads(foldback.path("out.json").read_bytes())
    changed["name"] = "renamed"
    foldback.put("changed.json", changed)
    back = foldback("reverse", "changed.json", "--run", run["id"], "-o", "back.json").json()
    result = json.loads(foldback.path("back.json").read_bytes())
    assert result.pop("name") == "renamed" and back["exact"] is False
    source = json.loads(TOY.read_bytes())
    assert [node["name"] for node in result["nodes"]] == [node["name"] for node in source["nodes"]]


def test_unrelated(foldback):
    run = optimize(foldback, TOY, "MergeLinears")
    foldback.put("other.json", branches(2))
    refused = foldback("reverse", "other.json", "--run", run["id"])
    assert refused.status == 1 and refused.err.startswith("foldback: the graph ")


def test_the_folder_is_held(local, new_service):
    service = new_service(data=local.path("store"))
    for words in (["optimize", TOY, "-p", "MergeLinears"], ["runs"], ["rollback", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"]):
        refused = local(*words)
        assert refused.status == 3 and refused.out == "" and "--server" in refused.err, refused
    assert local("id", TOY).status == 0 and local.run("passes").status == 0  # these need it not
    assert local.run("runs", "--server", service.url).status == 0
    assert local.run("runs", FOLDBACK_SERVER=service.url).status == 0
    assert local("runs", FOLDBACK_SERVER=service.url).status == 3  # --data wins
    service.stop()
    assert local("runs").status == 0


def test_there_is_no_folder(tmp_path):
    foldback = CommandLine(tmp_path)
    for words in (["runs"], ["graphs"], ["show", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"], ["code", "sha256:" + "0" * 64], ["models"]):
        refused = foldback(*words)
        assert refused.status == 1 and "no data folder ./.foldback" in refused.err, refused
    assert not list(tmp_path.iterdir())
    assert foldback("optimize", TOY, "-p", "MergeLinears").status == 0 and (tmp_path / ".foldback").is_dir()
    assert len(foldback("runs").json()["items"]) == 1


def test_no_service_there(tmp_path):
    with socket.socket() as taken:  # bound, not listening: nobody else can be there
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        refused = CommandLine(tmp_path, "--server", url)("runs")
    assert refused.status == 1 and refused.out == "" and refused.err.startswith(f"foldback: cannot reach {url}: ")
    assert len(refused.err.splitlines()) == 1
    for url in ("localhost:8080", "ftp://x", "nonsense"):
        assert CommandLine(tmp_path, "--server", url)("runs").status == 1
    assert not (tmp_path / ".foldback").exists()


def test_something_else_is_there(tmp_path, service):
    other = CommandLine(tmp_path, "--server", service.url + "/elsewhere/")
    assert other("runs").status == 1
    prefixed = CommandLine(tmp_path, "--server", service.url + "//")
    assert prefixed("runs").status == 0


# ------------------------------------------------------------------------------------------------------------------- usage


def test_options_before_the_verb(tmp_path, service):
    foldback = CommandLine(tmp_path)
    run = foldback.run("--data", "d", "optimize", TOY, "-p", "MergeLinears").json()
    for words in (["--data", "d", "runs"], ["--data=d", "--json", "runs"], ["runs", "--data", "d"],
                  ["--json", "--data", "d", "runs"]):
        assert foldback.run(*words).json()["items"][0]["id"] == run["id"], words
    assert foldback.run("--data", "other", "runs", "--data", "d").json()["items"]  # the last one counts, as everywhere
    assert foldback.run("--server", service.url, "runs").json() == {"items": []}
    assert foldback.run("--help", "runs").out == foldback.run("runs", "--help").out == foldback.run("help", "runs").out
    for words, said in (
        (["--limit", "3", "runs"], "--limit is not an option that stands before a verb"),
        (["--data", "d"], "usage: foldback VERB"),
        (["--data"], "usage: foldback VERB"),
        (["--server", service.url, "db", "check"], "db check: there is no option --server"),
        (["--data", "d", "--server", service.url, "runs"], "not both"),
        (["--data", "d", "rnus"], "did you mean runs?"),
        (["help", "rnus"], "did you mean runs?"),
    ):
        wrong = foldback.run(*words)
        assert wrong.status == 2 and wrong.out == "" and said in wrong.err, (words, wrong)


def test_places_in_the_environment(tmp_path, service):
    foldback = CommandLine(tmp_path)
    data, server = {"FOLDBACK_DATA": str(tmp_path / "d")}, {"FOLDBACK_SERVER": service.url}
    run = foldback.run("optimize", TOY, "-p", "MergeLinears", **data).json()
    assert (tmp_path / "d").is_dir() and not (tmp_path / ".foldback").exists()
    assert foldback.run("runs", **data).json()["items"][0]["id"] == run["id"]
    assert foldback.run("--data", "d", "runs", **server).json()["items"][0]["id"] == run["id"]  # options come first
    assert foldback.run("runs", "--server", service.url, **data).json() == {"items": []}
    assert foldback.run("db", "check", **data, **server).json()["runs"] == 1  # it takes no service
    both = foldback.run("runs", **data, **server)
    assert (both.status == 2
            and both.err == "foldback: FOLDBACK_DATA and FOLDBACK_SERVER are both set: say --data DIR or --server URL\n")
    assert foldback.run("runs", FOLDBACK_DATA="", FOLDBACK_SERVER="").status == 1  # there is no ./.foldback
    held = subprocess.Popen([binary(), "serve", "--listen", "127.0.0.1:0", "--access-log", "off"], cwd=tmp_path,
                            stdout=subprocess.PIPE, env=environment(FOLDBACK_DATA="of-a-service"))
    try:
        assert held.stdout.readline().startswith(b"listening on")
        assert (tmp_path / "of-a-service").is_dir()
    finally:
        held.terminate()
        held.wait()
        held.stdout.close()


def test_several_passes_in_one_word(foldback):
    run = foldback("optimize", TOY, "-p", "MergeLinears,FuseBatchNorm2dInConv2d", "--pass=RemoveNoOps").json()
    assert [one["name"] for one in run["passes"]] == ["MergeLinears", "FuseBatchNorm2dInConv2d", "RemoveNoOps"]
    with_params = '{"name": "DeepCopy", "params": {}}'
    assert len(foldback("optimize", TOY, "-p", with_params, "-p", "MergeLinears,").json()["passes"]) == 2
    undone = foldback("rollback", run["id"], "-p", "0,2").json()
    assert [one["name"] for one in undone["passes"]] == ["MergeLinears", "RemoveNoOps"]
    wrong = foldback("optimize", TOY, "-p", "MergeLinears,FuseBatchNorm2dInCnv2d")
    assert wrong.status == 1 and "did you mean FuseBatchNorm2dInConv2d?" in wrong.err
    assert foldback("optimize", TOY, "-p", ",").status == 2


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "usage: foldback VERB"),
        (["optimise", "x"], "did you mean optimize?"),
        (["frobnicate"], "there is no verb frobnicate;"),
        (["mlflow", "sync"], "foldback mlflow is in the Python package: install its wheel with the extra mlflow "
                             "(docs/mlflow.md)"),
        (["hub", "pull"], "foldback hub is in the Python package: install its wheel with the extra hub "
                          "(clients/python/README.md)"),
        (["layout", "from-transformers", "x"], "foldback layout from-transformers is in the Python package"),
        (["adapter", "merge"], "foldback adapter is in the Python package: install its wheel with the extra layouts"),
        (["optimize"], "it needs GRAPH"),
        (["optimize", TOY], "which passes?"),
        (["optimize", TOY, "--pas", "MergeLinears"], "did you mean --pass?"),
        (["serve", "--tls-cert", "c.pem"], "did you mean --tls-certificate?"),
        (["optimize", TOY, "--pass"], "--pass needs a value"),
        (["optimize", TOY, "--pass="], "--pass needs a value"),
        (["optimize", TOY, "-p", "MergeLinears", "-z"], "there is no option -z"),
        (["optimize", TOY, "more", "-p", "MergeLinears"], "too many arguments"),
        (["optimize", TOY, "-p", "MergeLinears", "--label", "x"], "KEY=VALUE"),
        (["optimize", TOY, "-p", "{nonsense"], "--pass {nonsense"),
        (["optimize", TOY, "-p", "MergeLinears", "--dry-run=yes"], "there is no option"),
        (["runs", "--limit", "many"], "--limit many"),
        (["runs", "--data", "d", "--server", "http://x"], "not both"),
        (["diff", TOY], "needs a second graph"),
        (["rollback", TOY], "neither a run"),
        (["rollback", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", "--to", "v1"], "MODEL@ALIAS"),
        (["deploy", "bert", "v1"], "not a MODEL@ALIAS"),
        (["register", "bert", TOY], "not a MODEL:VERSION"),
        (["record", TOY, TOY], "--name"),
        (["record", TOY, TOY, "--name", "P", "--params", "[]"], "a JSON object"),
        (["delete", TOY], "runs stay"),
        (["serve", "--prot", "1"], "there is no option"),
        (["serve", "8080"], "too many arguments"),
    ],
)
def test_wrong_usage(tmp_path, words, said):
    wrong = CommandLine(tmp_path).run(*words)
    assert wrong.status == 2 and wrong.out == "" and said in wrong.err, wrong
    assert not words or len(wrong.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words, said",
    [
        (["id", "missing.json"], "cannot read missing.json: No such file"),
        (["id", "."], ". is a folder"),
        (["optimize", TOY, "-p", "MergeLinear"], "did you mean MergeLinears?"),
        (["optimize", TOY, "-p", "MergeLinears", "--lint", "maybe"], "maybe"),
        (["optimize", TOY, "-p", '{"name": "MergeLinears", "params": {"x": 1}}'], "/passes/0/params"),
        (["optimize", "sha256:" + "0" * 64, "-p", "MergeLinears"], "/graph"),
    ],
)
def test_refused(local, words, said):
    refused = local(*words)
    assert refused.status == 1 and refused.out == "" and said in refused.err, refused


def test_arguments_that_look_like_something_else(local):
    local.put("a@b", TOY.read_bytes())
    local.put("-p", TOY.read_bytes())
    assert local("id", "./a@b").out == local.run("id", "--", "-p").out == documents.ids("toy")[0] + "\n"
    assert local("id", "a@b").status == 1  # an alias, of a store that is not there


def test_not_utf_8(local):
    done = subprocess.run([binary(), "optimize", TOY, "-p", b"\xff", "--data", "d"], cwd=local.folder, capture_output=True)
    assert done.returncode == 2 and b"not UTF-8" in done.stderr


# ------------------------------------------------------------------------------------------------------------------ errors


def test_errors_speak_of_commands(foldback):
    """Of verbs and options, not of routes, headers and parameters."""
    fused = foldback("optimize", TOY, "-p", "FuseBatchNorm2dInConv2d", "-o", "fused.json").json()
    for words, said in (
        (["reverse", "fused.json"], "foldback rollback undoes any of them exactly\n"),
        (["reverse", fused["id"]], f"  foldback rollback {fused['id']} can undo any of them\n"),
        (["optimize", TOY, "-p", "MergeLinear"],
         "foldback pass list lists them\n  at --pass: /passes/0\n  did you mean MergeLinears?\n"),
        (["passes", "MergeLinear"],
         "foldback pass list lists them, and foldback transformation list the rules\n  did you mean MergeLinears?\n"),
        (["optimize", TOY, "-p", "MergeLinear", "--dry-run"], "did you mean MergeLinears?\n"),
        (["runs", "-p", "MergeLinear"], "foldback pass list lists ours\n  at --pass\n  did you mean MergeLinears?\n"),
        (["runs", "--kind", "optimise"], "optimize, external, reverse, rollback\n  at --kind\n"),
        (["record", TOY, "fused.json", "--name", "MergeLinears"], "foldback optimize --pass applies it\n  at --name"),
        (["optimize", TOY, "-p", "MergeLinears", "--weights", "sha256:" + "0" * 64], "foldback upload sends it\n"),
    ):
        refused = foldback(*words)
        assert refused.status == 1 and said in refused.err, (words, refused)
        assert not re.search(r"\b(GET|POST|PUT|ETag|If-Match|Prefer|link|parameter)\b|/v1/", refused.err), (words, refused)


def test_a_dry_run_of_a_rule(local):
    rule = json.dumps(golden.RULES["DoubleTheDoubles"]).encode()
    name = local("transformation", "put", local.put("rule.json", rule)).json()["name"]
    assert local("optimize", TOY, "-p", name, "--dry-run").json()["passes"][0]["name"] == name
    assert local("runs").json()["items"] == []


def test_names_with_typos(foldback):
    run = foldback("optimize", TOY, "-p", "MergeLinears").json()
    foldback("register", "bert:v1", run["id"])
    foldback("register", "bert:v2", run["source"])
    foldback("deploy", "bert@production", "v1")
    typo = run["id"][:-3] + ("Z" if run["id"][-3] != "Z" else "Y") + run["id"][-2:]
    wrong_graph = run["result"][:-1] + ("0" if run["result"][-1] != "0" else "1")
    for words, meant in (
        (["models", "brt"], "bert"),
        (["show", "bort:v1"], "bert"),
        (["show", "bert:v11"], "v1"),
        (["show", "bert@prodcution"], "production"),
        (["history", "bert@produktion"], "production"),
        (["code", "bert@productio"], "production"),
        (["deploy", "bert@production", "v22"], "v2"),
        (["rollback", "brt@production"], "bert"),
        (["show", typo], run["id"]),
        (["rollback", typo], run["id"]),
        (["code", wrong_graph], run["result"]),
    ):
        refused = foldback(*words)
        assert refused.status == 1 and refused.err.endswith(f"  did you mean {meant}?\n"), (words, refused)
    for words in (["models", "resnet"], ["show", "bert@staging"], ["show", "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"]):
        assert "did you mean" not in foldback(*words).err, words  # nothing is like it


def test_no_sentence_for_programs_is_left(tmp_path):
    """Each literal of the service that names a route, and may reach a command, is one that the command line rewords."""
    root = pathlib.Path(__file__).resolve().parents[2]
    rewording = (root / "server" / "cli" / "problem.c").read_text()
    phrases = [phrase.rstrip("*") for phrase in re.findall(r'^    \{"([^"]+)",', rewording, re.M)]
    assert len(phrases) > 10
    calls = re.compile(r"(?:fb_respond_problem|fb_fail|fb_refuse_member|fb_refuse_parameter)\((?:[^;]|;(?= ))*?\);", re.S)
    found = 0
    for path in [*(root / "server").rglob("*.c"), *(root / "core").rglob("*.c")]:
        if path.parent.name == "cli" or path.name in ("uploads.c", "repeated_request.c", "alias_change.c", "guard.c",
                                                      "exchange.c", "probe.c"):
            continue  # what the command line does not use, or always says
        for call in calls.findall(path.read_text()):
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', call))
            if re.search(r"\b(?:GET|POST|PUT|PATCH|DELETE) (?:/|it\b|to\b)|ETag is|\blink of\b|Prefer: ", text):
                found += 1
                assert any(phrase in text for phrase in phrases), (path, text)
    assert found > 5


def test_db_does_not_advise_a_server(local, tmp_path):
    assert local("optimize", TOY, "-p", "MergeLinears").status == 0
    service = subprocess.Popen([binary(), "serve", "--listen", "127.0.0.1:0", "--access-log", "off", "--data",
                                tmp_path / "store"],
                               stdout=subprocess.PIPE, env=environment())
    try:
        assert service.stdout.readline().startswith(b"listening on")
        held = local("db", "check")
        assert (held.status == 3 and "is held by another process of foldback; stop it first" in held.err
                and "--server" not in held.err)
        assert "--server URL" in local("runs").err
    finally:
        service.terminate()
        service.wait()
        service.stdout.close()


# ------------------------------------------------------------------------------------------------------------------ output


def test_a_reader_that_leaves_early(local):
    large = local.put("large.json", branches(3000))
    writer = subprocess.Popen([binary(), "code", large], cwd=local.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=environment())
    writer.stdout.close()
    assert (writer.stderr.read(), writer.wait()) == (b"", 1)
    writer.stderr.close()


def test_a_file_that_cannot_be_written(local):
    """The run is stored by then, and told."""
    refused = local("optimize", TOY, "-p", "MergeLinears", "-o", "no/such/folder")
    assert refused.status == 1 and refused.err.startswith("foldback: cannot write no/such/folder: No such file")
    assert local("runs").json()["items"][0]["id"] == json.loads(refused.out)["id"]


def test_a_full_disk(local):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([binary(), "id", TOY], stdout=full, stderr=subprocess.PIPE, env=environment())
    assert done.returncode == 1 and b"cannot write" in done.stderr
    refused = local("optimize", TOY, "-p", "MergeLinears", "-o", "/dev/full")
    assert refused.status == 1 and refused.err == "foldback: cannot write /dev/full: No space left on device\n"


def test_all_files_of_credentials_at_once(tmp_path):
    """So many that the sandbox is told of each: it starts, and only the database is not there."""
    told = ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE", "PGPASSFILE", "PGSSLROOTCERT")
    options = ["--store", "postgresql://me@127.0.0.1:1/none", "--webhooks", "--webhook-ca-file", tmp_path / "ca"]
    (tmp_path / "ca").touch()
    done = subprocess.run([binary(), "serve", "--listen", "127.0.0.1:0", "--data", tmp_path / "data", *options],
                          env=environment() | {name: str(tmp_path / name) for name in told} | {"HOME": str(tmp_path)},
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 1 and "cannot connect to the database" in done.stderr, done
    assert "Bad address" not in done.stderr


def test_there_is_no_network_without_a_server(local):
    """On a data folder nothing listens and nothing connects."""
    if not pathlib.Path("/usr/bin/strace").exists():
        pytest.skip("no strace")
    trace = local.path("trace")
    done = subprocess.run(
        ["strace", "-f", "-e", "trace=socket,bind,listen,connect", "-o", trace, binary(), "optimize", TOY, "-p", "MergeLinears",
         "--data", "d"], cwd=local.folder, capture_output=True, env=environment(ASAN_OPTIONS="detect_leaks=0"))
    assert done.returncode == 0
    assert not re.search(r"\b(socket|bind|listen|connect)\(", trace.read_text()), trace.read_text()
