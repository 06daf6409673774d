"""Searching in graphs and in runs, by a part of what a person knows of a node; and all that is known of one node."""

import json
import time

import pytest
from documents import document, every_item, linear, node, ref
from test_http import is_problem
from test_runs import optimize

BERT = json.loads(document("bert-tiny"))


@pytest.fixture(scope="module")
def bert(shared):
    return optimize(shared, BERT, ["MergeLinears", "RemoveNoOps", "FoldNormIntoLinear"])


def names(shared, graph, text):
    return [one["name"] for one in every_item(shared, f"/v1/graphs/{graph}/nodes", [("search", text)], limit=7)]


def found(shared, run, text, **more):
    query = "&".join(f"{key}={value}" for key, value in {"search": text, **more}.items())
    answer = shared.get(f"/v1/runs/{run['id']}/nodes?{query}")
    assert answer.status == 200, answer
    return answer.json()


@pytest.mark.parametrize("text, wanted", [
    ("self_query", lambda one: "self_query" in one["name"]),
    ("SELF_query", lambda one: "self_query" in one["name"]),
    ("call_method", lambda one: one["op"] == "call_method"),
    ("Linear", lambda one: one.get("type", "").endswith("Linear") or "linear" in one["name"]),
    ("layer.1.attention linear", lambda one: one["target"].startswith("encoder.layer.1.attention") and "Linear" in one["type"]),
    ("nothing-is-called-so", lambda one: False),
])
def test_words_are_parts_of_a_node(shared, bert, text, wanted):
    types = {module["path"]: module["type"] for module in BERT["modules"]}
    for one in BERT["nodes"]:
        one["type"] = types.get(one["target"], "") if one["op"] == "call_module" else ""
    assert names(shared, bert["source"], text) == [one["name"] for one in BERT["nodes"] if wanted(one)]


def test_a_module_has_its_functions_too(shared, bert):
    """The product of query and key is in the attention, although its target does not say so."""
    inside = names(shared, bert["source"], "layer.0.attention.self")
    assert any(one["name"] in inside and one["op"] != "call_module" for one in BERT["nodes"])


def test_a_run_has_both_graphs_states_and_refusals(shared, bert):
    changed = found(shared, bert, "changed", limit=1000)
    assert {one["state"] for one in changed["items"]} >= {"added", "changed"} and changed["left_out"] == 0
    merged = found(shared, bert, "layer.1%20added")["items"]
    assert [one["name"] for one in merged] == ["encoder_layer_1_attention_self_query_key_value_merged"]
    refused = found(shared, bert, "refused", limit=1000)["items"]
    told = {name for one in bert["passes"] for refusal in one["refused"] for name in refusal["nodes"]}
    assert {one["name"] for one in refused} == told and told
    for one in refused:
        assert all(set(refusal) == {"pass", "reason", "detail", "nodes"} and one["name"] in refusal["nodes"]
                   for refusal in one["refused"])
    removed = found(shared, bert, "removed", limit=1000)["items"]
    assert all(one["state"] == "removed" for one in removed if "removed" not in one["name"]) and removed
    some = found(shared, bert, "", limit=3)
    assert len(some["items"]) == 3 and some["left_out"] > 50


def test_the_node_of_that_name_comes_first(shared, bert):
    last = BERT["nodes"][-2]["name"]
    assert found(shared, bert, last)["items"][0]["name"] == last
    first = found(shared, bert, "encoder_layer_0_attention_self_query")["items"]
    assert first[0]["name"] == "encoder_layer_0_attention_self_query" and len(first) > 1
    is_problem(shared.get("/v1/runs/run_01M7XTSAAT7GE5FHQDV5WCKM9T/nodes"), 404, "unknown-run")


def test_one_node_whole(shared, bert):
    for one in BERT["nodes"]:
        whole = shared.get(f"/v1/graphs/{bert['source']}/nodes/{one['name']}").json()
        assert whole["node"]["name"] == one["name"] and whole["node"]["args"] == one.get("args", [])
        readers = [other["name"] for other in BERT["nodes"]
                   if f'"$node": "{one["name"]}"' in json.dumps([other.get("args"), other.get("kwargs")])]
        assert sorted(whole["read_by"]) == sorted(readers)
        if one["op"] == "call_module":
            module = next(module for module in BERT["modules"] if module["path"] == one["target"])
            assert whole["module"]["path"] == module["path"] and whole["module"]["type"] == module["type"]
            assert {tensor["name"] for tensor in whole["tensors"]} >= set(filter(None, module.get("parameters", {}).values()))
    is_problem(shared.get(f"/v1/graphs/{bert['source']}/nodes/nobody"), 404, "unknown-node")


def large(layers):
    modules, tensors, nodes, last = [{"path": "", "type": "torch.nn.Module"}], [], [node("x", "placeholder", "x")], "x"
    for i in range(layers):
        module, more = linear(f"layers.{i}.fc")
        modules.append(module)
        tensors += more
        nodes += [node(f"layers_{i}_fc", "call_module", f"layers.{i}.fc", [ref(last)]),
                  node(f"relu_{i}", "call_function", "torch.relu", [ref(f"layers_{i}_fc")])]
        last = f"relu_{i}"
    nodes.append(node("output", "output", "output", [ref(last)]))
    return {"format": "foldback.graph/1", "name": "large", "nodes": nodes, "modules": modules, "tensors": tensors}


@pytest.mark.heavy
def test_a_large_graph_is_searched_whole(shared):
    graph = large(10_000)
    run = optimize(shared, graph, ["RemoveNoOps"])
    begun = time.monotonic()
    answer = shared.get(f"/v1/graphs/{run['source']}/nodes?search=layers.9777").json()
    assert [one["name"] for one in answer["items"]] == ["layers_9777_fc"]
    assert found(shared, run, "777%20linear", limit=5)["items"][0]["name"] == "layers_777_fc"
    print(time.monotonic() - begun)
