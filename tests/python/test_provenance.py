"""All new nodes of an optimised archive say where they are from, as PyTorch's own passes do: `from_node` has the nodes that
they replace and the pass, and PyTorch's tools follow it. They have the stack trace of those nodes, if all have the same."""

import json
import subprocess
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from archive_models import MODELS

BINARY = Path(__file__).parents[2] / "build/foldback"
READS_SOURCES = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)  # older ones pass over it
HALF = {"name": "ConvertPrecision", "params": {"to": "float16"}}
LISTS: list[list[Any]] = [["inference"], [{"name": "latency", "params": {"tokens": 1}}],
                          ["cleanup", "MergeLinears", "FuseAttention"], [HALF]]
Nodes = dict[str, dict[str, Any]]


def foldback(store: Path, *words: str) -> Any:
    done = subprocess.run([str(BINARY), *words, "--data", str(store)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return json.loads(done.stdout) if "--json" in words else None


def names_of(node: dict[str, Any]) -> set[str]:
    """The node's own name, and that of each of its results."""
    outputs = [one for output in node["outputs"] for one in output.get("as_tensors", [output.get("as_tensor", {})])]
    sizes = [output.get("as_sym_int", {}).get("as_name") for output in node["outputs"]]
    return {name for name in [node.get("name"), *sizes, *(one.get("name") for one in outputs)] if name}


def programs_of(path: Path) -> dict[str, Nodes]:
    """The nodes of the main program, "", and of those within, by name."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if "/models/" in name)
        graphs = [("", json.loads(archive.read(name))["graph_module"]["graph"])]
    found: dict[str, Nodes] = {}
    for place, graph in graphs:
        found[place] = {name: node for node in graph["nodes"] for name in names_of(node)}
        inputs = [given["as_tensor"]["name"] for given in graph["inputs"] if "as_tensor" in given]
        found[place] |= {name: {"target": "input", "metadata": {}} for name in inputs}
        within = [given["arg"]["as_graph"] for node in graph["nodes"] for given in node["inputs"] if "as_graph" in given["arg"]]
        graphs += [(f"{place}.{one['name']}", one["graph"]) for one in within]
    return found


def new_nodes(before: Nodes, after: Nodes) -> Nodes:
    return {name: node for name, node in after.items()
            if node["target"] != "input" and node["target"] != before.get(name, {}).get("target")}


def check_sources(node: dict[str, Any], name: str, before: Nodes, run: Any) -> int:
    """Gives the number of PyTorch's graph."""
    sources = json.loads(node["metadata"]["from_node"])
    assert sources and len({source["graph_id"] for source in sources}) == 1
    origins = []
    for source in sources:
        if source["name"] not in before and not READS_SOURCES:  # a call of several results has no name there
            return int(source["graph_id"])
        origin = before[source["name"]]
        origins.append(origin["metadata"])
        assert source["action"] in ("replace", "create")
        assert source["from_node"] == json.loads(origin["metadata"].get("from_node", "[]"))
    makers = [f"{report['name']} {report['signature']}" for report in run["passes"] if name in report.get("inserted", ())]
    assert {source["pass_name"] for source in sources} == {makers[-1] if makers else "foldback"}
    assert makers or name.endswith("_copy"), f"no pass has made {name}"
    said = [origin for origin in origins if origin]
    for key in ("stack_trace", "torch_fn"):
        texts = {origin.get(key) for origin in said}
        assert node["metadata"].get(key) == (texts.pop() if len(texts) == 1 else None)
    return int(sources[0]["graph_id"])


def check_tools(archive: Path, names: set[str], graph_id: int) -> torch.export.ExportedProgram:
    """Inductor's list of what its nodes were made of, and torch.export.unflatten."""
    from torch._inductor.debug import create_mapping_pre_post_grad_nodes
    from torch.fx.traceback import get_graph_provenance_json

    program = torch.export.load(archive)
    if READS_SOURCES:
        mapping = create_mapping_pre_post_grad_nodes(graph_id, get_graph_provenance_json(program.graph))
        here = {node.name for node in program.graph.nodes if node.op == "call_function"}
        assert names & here == mapping["postToPre"].keys() and names & here
    return program


def unflattens(program: torch.export.ExportedProgram) -> bool:
    try:
        torch.export.unflatten(program)
    except (ValueError, AssertionError, KeyError):
        return False
    return True


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["exported", "decomposed"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_new_node_says_where_it_is_from(tmp_path: Path, name: str, form: str) -> None:
    torch.manual_seed(0)
    model, args, sizes = MODELS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, args, dynamic_shapes=sizes)
        torch.export.save(program if form == "exported" else program.run_decompositions(), tmp_path / "model.pt2")
        before, can_be = programs_of(tmp_path / "model.pt2"), unflattens(torch.export.load(tmp_path / "model.pt2"))
        for index, passes in enumerate(LISTS):
            words = [word for one in passes for word in ("--pass", one if isinstance(one, str) else json.dumps(one))]
            fast = tmp_path / f"{index}.pt2"
            run = foldback(tmp_path / "data", "optimize", str(tmp_path / "model.pt2"), *words, "--json", "-o", str(fast))
            for place, after in programs_of(fast).items():
                new = new_nodes(before[place], after)
                graphs = {check_sources(node, key, before[place], run) for key, node in new.items()}
                assert len(graphs) == bool(new)
                if new and not place:
                    assert unflattens(check_tools(fast, set(new), graphs.pop())) >= can_be


def test_sources_of_sources(tmp_path: Path) -> None:
    """An archive that was optimised twice leads back to the first one."""
    model, args, _ = MODELS["mlp"]()
    torch.export.save(torch.export.export(model, args), tmp_path / "0.pt2")
    for i, (old, new) in enumerate([("relu", "gelu"), ("gelu", "silu")]):
        change = {"name": "ReplaceActivation", "params": {"from": old, "to": new, "parameters": {}}}
        old_file, new_file = (str(tmp_path / f"{number}.pt2") for number in (i, i + 1))
        foldback(tmp_path / str(i), "optimize", old_file, "-p", json.dumps(change), "-o", new_file)
    (node,) = [node for node in programs_of(tmp_path / "2.pt2")[""].values() if "silu" in node["target"]]
    found, targets = json.loads(node["metadata"]["from_node"]), []
    while found:
        targets.append((found[0]["target"], found[0]["pass_name"].split()[0]))
        found = found[0]["from_node"]
    assert targets == [("aten.gelu.default", "ReplaceActivation"), ("aten.relu.default", "ReplaceActivation")]


def test_sources_do_not_multiply(tmp_path: Path) -> None:
    """A node has at most 64 sources in all, the nearest, however often an archive was optimised."""
    model, args, _ = MODELS["mlp"]()
    torch.export.save(torch.export.export(model, args), tmp_path / "0.pt2")

    def count(sources: list[Any]) -> int:
        return sum(1 + count(source["from_node"]) for source in sources)

    counts, last = [], 70
    for i in range(last):
        change = {"name": "ReplaceActivation", "params": {"from": ["relu", "silu"][i % 2], "to": ["silu", "relu"][i % 2]}}
        old_file, new_file = (str(tmp_path / f"{number}.pt2") for number in (i, i + 1))
        foldback(tmp_path / str(i), "optimize", old_file, "-p", json.dumps(change), "-o", new_file)
        (node,) = [node for node in programs_of(Path(new_file))[""].values() if "lu." in node["target"]]
        counts.append(count(json.loads(node["metadata"]["from_node"])))
    assert counts == [*range(1, 65), *[64] * (last - 64)]
