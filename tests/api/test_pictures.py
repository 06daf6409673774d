"""GET /v1/graphs/{id}/layout and /v1/runs/{run}/layout: pictures as JSON and SVG."""

import json
import os
import pathlib
import re
import xml.etree.ElementTree as xml

import golden
import pytest
from documents import document, node, ref

SVG = {"Accept": "image/svg+xml"}
NAME = "{http://www.w3.org/2000/svg}"


def stored(service, body):
    answer = service.post("/v1/graphs", body)
    assert answer.status in (200, 201), answer
    return answer.json()["id"]


def boxes(picture, **members):
    return {box["key"]: box for box in picture["boxes"] if all(box.get(name) == value for name, value in members.items())}


@pytest.fixture(scope="module")
def run(shared):
    passes = ["MergeLinears", "ChangeTrueDivToMulByInverse", "RemoveNoOps"]
    return shared.post("/v1/optimize", {"graph": json.loads(document("bert-base")), "passes": passes}).json()


def layout(service, run, query=""):
    answer = service.get(f"/v1/runs/{run['id']}/layout?{query}")
    assert answer.status == 200, answer
    return answer.json()


def test_graph(shared, run):
    picture = shared.get(f"/v1/graphs/{run['source']}/layout").json()
    assert picture["graph"] == run["source"] and "base" not in picture and picture["nodes"] == 464
    assert not any("added" in box for box in picture["boxes"]) and {box["state"] for box in picture["boxes"]} == {"kept"}
    ids = [box["id"] for box in picture["boxes"]]
    assert ids == list(range(1, len(ids) + 1)) and all(box["parent"] < box["id"] for box in picture["boxes"])
    short = shared.get(f"/v1/graphs/{run['source'].removeprefix('sha256:')[:12]}/layout").json()
    assert short == picture


def test_the_same_picture_each_time(shared, run):
    for path in (f"/v1/graphs/{run['source']}/layout?depth=4", f"/v1/runs/{run['id']}/layout?open=encoder.layer.3"):
        for accept in ("application/json", "image/svg+xml"):
            answers = [shared.get(path, headers={"Accept": accept}) for _ in range(2)]
            assert answers[0].body == answers[1].body and answers[0].headers["content-type"] == accept
            assert "accept" in answers[0].headers["vary"].lower()


def test_run_is_the_union_of_its_graphs(shared, run):
    picture = layout(shared, run, "open=encoder.layer.3.attention.self&depth=1")
    assert (picture["base"], picture["graph"], picture["added"], picture["removed"]) == (run["source"], run["result"], 12, 37)
    same = shared.get(
        f"/v1/graphs/{run['result']}/layout?base={run['source']}&open=encoder.layer.3.attention.self&depth=1").json()
    unmarked = [{name: value for name, value in box.items() if name != "refused"} for box in picture["boxes"]]
    assert same["boxes"] == unmarked and same["lines"] == picture["lines"]
    found = boxes(picture)
    merged = found["encoder_layer_3_attention_self_query_key_value_merged"]
    assert merged["state"] == "added" and merged["shape"] == [2, 16, 2304]
    for which in ("query", "key", "value"):
        one = found[f"encoder_layer_3_attention_self_{which}"]
        assert one["state"] == "changed" and one["target"] == "operator.getitem" and one["was"]["op"] == "call_module"
        assert {"from": merged["id"], "to": one["id"], "state": "added"}.items() <= next(
            line.items() for line in picture["lines"] if (line["from"], line["to"]) == (merged["id"], one["id"])
        )
    assert found["encoder_layer_3_attention_self_dropout"]["state"] == "removed"


def test_part_of_a_run(shared, run):
    """The slider: each step adds what its pass did, and all of them are the run."""
    nothing, first, second = (layout(shared, run, f"passes={count}&depth=1") for count in range(3))
    assert (nothing["added"], nothing["removed"],
            nothing["changed"]) == (0, 0, 0) and "graph" not in nothing and nothing["passes"] == 0
    assert (first["added"], first["removed"]) == (12, 0) and first["changed"] == 36 and second["changed"] == 48
    whole = layout(shared, run, "depth=1")
    assert whole == layout(shared, run, "passes=3&depth=1") == layout(shared, run, "passes=99&depth=1")
    undone = shared.post(f"/v1/runs/{run['id']}/rollback").json()
    assert layout(shared, undone)["removed"] == 12
    answer = shared.get(f"/v1/runs/{undone['id']}/layout?passes=0")
    assert answer.status == 422 and answer.json()["parameter"] == "passes"


def test_refused_nodes_are_marked(shared):
    """At the node where it is drawn, else at the closed box that it is in, each refusal once; in the SVG as well."""
    graph = json.loads(document("resnet50"))
    conv = next(one for one in graph["nodes"] if one["target"] == "layer3.1.conv2")
    graph["nodes"][-1]["args"] = [{"$tuple": [graph["nodes"][-1]["args"][0], {"$node": conv["name"]}]}]
    run = shared.post("/v1/optimize", {"graph": graph, "passes": ["RemoveNoOps", "FuseBatchNorm2dInConv2d"]}).json()
    [refusal] = run["passes"][1]["refused"]
    assert "layer3_1_bn2" in refusal["nodes"]
    marked = {key: box["refused"] for key, box in boxes(layout(shared, run, "depth=0")).items() if "refused" in box}
    assert marked == {"layer3": 1}
    opened = {key: box["refused"] for key, box in boxes(layout(shared, run, "depth=0&at=layer3_1_bn2")).items()
              if "refused" in box}
    assert opened == dict.fromkeys(refusal["nodes"], 1)
    # The first pass refused nothing
    assert not any("refused" in box for box in layout(shared, run, "passes=1&at=layer3_1_bn2")["boxes"])
    svg = xml.fromstring(shared.get(f"/v1/runs/{run['id']}/layout?at=layer3_1_bn2", headers=SVG).body)
    assert len(svg.findall(f".//{NAME}g[@class='badge']")) == len(refusal["nodes"])


def test_at_a_node(shared, run):
    picture = shared.get(f"/v1/graphs/{run['source']}/layout?depth=0&at=encoder_layer_9_attention_self_key").json()
    assert "encoder_layer_9_attention_self_key" in boxes(picture, kind="node")
    answer = shared.get(f"/v1/graphs/{run['source']}/layout?at=nobody")
    assert (answer.status, answer.json()["code"], answer.json()["parameter"]) == (404, "unknown-node", "at")


def test_wrong_requests(shared, run):
    unknown = "sha256:" + "0" * 64
    for path, status, code in (
        (f"/v1/graphs/{unknown}/layout", 404, "unknown-graph"),
        (f"/v1/graphs/{run['source']}/layout?base={unknown}", 404, "unknown-graph"),
        ("/v1/runs/run_01M7XTSAAT7GE5FHQDV5WCKM9T/layout", 404, "unknown-run"),
        (f"/v1/graphs/{run['source']}/layout?depth=-1", 422, "bad-parameter"),
        (f"/v1/graphs/{run['source']}/layout?colour=red", 422, "unknown-parameter"),
        (f"/v1/runs/{run['id']}/layout?passes=x", 422, "bad-parameter"),
    ):
        answer = shared.get(path)
        assert (answer.status, answer.json()["code"]) == (status, code), path
    many = shared.get(f"/v1/graphs/{run['source']}/layout?" + "&".join(["open=a"] * 1001))
    assert many.status == 422 and many.json()["parameter"] == "open"


def test_text_of_documents_is_text(shared):
    """Names with markup, and 10,000 characters, are text in the SVG, which has no element but ours and loads nothing."""
    names = ["<script>alert(1)</script>", "</text><image href=x onerror=y>", "]]>&lt;!--", "مرحبا", "q" * 10_000]
    nodes = [node("x", "placeholder", "x"), *(node(f"n{i}", "call_module", name, [ref("x")]) for i, name in enumerate(names))]
    graph = stored(
        shared,
        {
            "format": "foldback.graph/1",
            "name": "<svg onload=alert(1)>",
            "nodes": [*nodes, node("output", "output", "output", [ref("x")])],
            "modules": [{"path": "", "type": "torch.nn.Module"},
                        *({"path": name, "type": "torch.nn.ReLU<b>"} for name in names)],
            "tensors": [],
        },
    )
    answer = shared.get(f"/v1/graphs/{graph}/layout?depth=9", headers=SVG)
    assert answer.status == 200 and "default-src 'none'" in answer.headers["content-security-policy"]
    tree = xml.fromstring(answer.body)
    assert {one.tag.removeprefix(NAME)
            for one in tree.iter()} <= set("svg title style defs marker path rect g text tspan".split())
    assert tree.find(NAME + "title").text == "<svg onload=alert(1)>"
    assert not any(name.startswith("on") or name == "href" for one in tree.iter() for name in one.attrib)
    assert not re.search(rb"url\((?!#end-)|@import|https?://(?!www\.w3\.org/2000/svg)", answer.body)


@pytest.mark.heavy
def test_large_graph(shared):
    """100,000 nodes in 1,000 modules: a picture of few boxes, in which any of them can be opened."""
    nodes = [node("x", "placeholder", "x")]
    for i in range(100_000):
        nodes.append(node(f"n{i}", "call_module", f"block.{i // 100}.part{i % 100}", [ref(f"n{i - 1}" if i else "x")]))
    nodes.append(node("output", "output", "output", [ref("n99999")]))
    modules = [{"path": "", "type": "torch.nn.Module"}] + [{"path": f"block.{i // 100}.part{i % 100}", "type": "torch.nn.ReLU"}
                                                           for i in range(100_000)]
    graph = stored(shared, {"format": "foldback.graph/1", "name": "large", "nodes": nodes, "modules": modules, "tensors": []})
    picture = shared.get(f"/v1/graphs/{graph}/layout").json()
    assert picture["nodes"] == 100_002 and len(picture["boxes"]) <= 500
    seen = shared.get(f"/v1/graphs/{graph}/layout?at=n54321").json()
    assert "n54321" in boxes(seen, kind="node") and len(seen["boxes"]) <= 500


# ---- the pictures of the documentation --------------------------------------------------------------------------------------

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def test_pictures_of_the_documentation(shared):
    """README.md shows what MergeLinears does, docs/undo.md how that is undone; UPDATE=1 draws them anew."""
    before = golden.read("MergeLinears/training-mode")
    run = shared.post("/v1/optimize", {"graph": before, "passes": ["MergeLinears"]}).json()
    undone = shared.post(f"/v1/runs/{run['id']}/reverse").json()
    for name, made, page in (("merge", run, DOCS.parent / "README.md"), ("undo", undone, DOCS / "undo.md")):
        svg = shared.get(f"/v1/runs/{made['id']}/layout", headers=SVG).body
        file = DOCS / "pictures" / f"{name}.svg"
        if os.environ.get("UPDATE"):
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(svg)
        assert file.read_bytes() == svg, f"{file} shows something else now: UPDATE=1 draws it anew"
        assert f"pictures/{name}.svg)" in page.read_text().split("\n## ")[0]


def test_two_graphs_that_are_not_here(shared, service, run):
    """The picture is that of the same graphs when they are stored."""
    a, b = (shared.get(f"/v1/graphs/{run[which]}").json() for which in ("source", "result"))
    drawn = service.post("/v1/picture?open=bert.encoder.layer.3", {"a": a, "b": b})
    assert drawn.status == 200 and service.get("/v1/graphs").json()["items"] == []
    stored_one = shared.get(f"/v1/graphs/{run['result']}/layout?base={run['source']}&open=bert.encoder.layer.3").json()
    assert drawn.json() == {key: value for key, value in stored_one.items() if key not in ("base", "graph")}
    assert shared.post("/v1/picture", {"a": run["source"], "b": run["result"]}).json()["changed"] == stored_one["changed"]
    assert service.request("POST", "/v1/picture", json.dumps({"a": a, "b": b}), headers=SVG).body.startswith(b"<svg")
    for body, query, status, code in (({"a": a}, "", 422, "missing-member"),
                                      ({"a": a, "b": "sha256:" + "0" * 64}, "", 404, "unknown-graph"),
                                      ({"a": a, "b": b}, "?at=nowhere", 404, "unknown-node"),
                                      ({"a": a, "b": {}}, "", 422, None)):
        answer = service.post(f"/v1/picture{query}", body)
        assert answer.status == status and code in (None, answer.json()["code"]), answer
