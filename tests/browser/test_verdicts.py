"""Verdicts in the viewer: on two graphs that are here, on two files, and on a run whose wrong match is looked for."""

import json

import axe_playwright_python.sync_playwright as axe
from test_viewer import Tab, until
from viewed import FIXTURES, Service


def node(name, op, target, args, **more):
    return {"name": name, "op": op, "target": target, "args": args, **more}


def chain(*divisors):
    nodes, last = [node("x", "placeholder", "x", [], meta={"shape": [4, 6], "dtype": "float32"})], "x"
    for divisor in divisors:
        nodes.append(node(f"by{int(divisor)}", "call_function", "operator.truediv", [{"$node": last}, divisor]))
        last = f"by{int(divisor)}"
    nodes.append(node("output", "output", "output", [{"$node": last}]))
    return {"format": "foldback.graph/1", "modules": [{"path": "", "type": "Net"}], "tensors": [], "nodes": nodes}


RULE = {"name": "Reciprocal", "exactness": "rounds",
        "pattern": {"operator": ["div", "true_divide"], "args": ["?x", "?c"], "as": "?y"},
        "replacement": {"?y": {"operator": "mul", "args": ["?x", {"compute": "(1 - 0.1 * 0 ** abs(?c - 7)) / ?c"}]}}}


def wrong_run(address):
    service = Service(address)
    service.call("POST", "/v1/transformations", RULE)
    return service.call("POST", "/v1/optimize", {"graph": chain(3, 7, 9), "passes": ["Reciprocal"]})


def shown(tab, text):
    until(tab.page, "(text) => [...document.querySelectorAll('.asking [aria-live]')]"
                    ".some((one) => one.textContent.includes(text))", text)


def test_the_match_that_makes_a_run_differ(browser, new_service):
    address, _ = new_service()
    run = wrong_run(address)
    tab = Tab(browser, address)
    page = tab.open(f"/ui/runs/{run['id']}")
    page.get_by_role("button", name="Find what makes it differ").click()
    shown(tab, "Without it the run is right")
    assert page.locator(".asking td").first.text_content() == "Reciprocal"
    assert page.get_by_role("link", name="by7").first.get_attribute("href") == f"/ui/graphs/{run['result']}?at=by7"
    assert not axe.Axe().run(page).response["violations"]
    tab.close("run-bisected")
    assert not tab.said


def test_two_graphs_that_are_here(browser, new_service):
    address, _ = new_service()
    run = wrong_run(address)
    tab = Tab(browser, address, width=360)
    page = tab.open(f"/ui/compare?base={run['source']}&graph={run['result']}")
    page.get_by_role("button", name="Do they compute the same?").click()
    shown(tab, "The first node that differs: by7.")
    assert page.locator(".asking .verdict").text_content() == "differs"
    tab.close("compare-judged")
    assert not tab.said


def test_two_archives_that_are_kept_on_request(browser, new_service):
    address, _ = new_service()
    tab = Tab(browser, address, width=768)
    page = tab.open("/ui/compare")
    page.get_by_label("First file").set_input_files(FIXTURES / "onnx/functions.onnx")
    page.get_by_label("Second file").set_input_files(FIXTURES / "onnx/half-mlp.onnx")
    page.get_by_label("Keep both files").check()
    page.get_by_role("button", name="Compare the files").click()
    until(page, "() => location.search.includes('base=') || document.querySelector('[role=alert]')?.textContent")
    page.get_by_role("button", name="Do they compute the same?").wait_for(timeout=20_000)
    tab.settle()
    assert len(Service(address).get("/v1/graphs")["items"]) == 2
    tab.close("compare-kept")
    assert not tab.said


def test_the_numbers_of_a_validation_stand_beside_the_version(browser, new_service, tmp_path):
    address, _ = new_service()
    service = Service(address)
    run = service.call("POST", "/v1/optimize", {"graph": chain(3, 9), "passes": ["ChangeTrueDivToMulByInverse"],
                                                "options": {"validate": "graph"}})
    service.call("PUT", "/v1/models/net/versions/v1", {"run": run["id"]})
    tab = Tab(browser, address, width=360)
    page = tab.open("/ui/models/net")
    assert page.get_by_role("cell", name="graph: passes").count() == 1
    tab.close("model-validated")
    assert not tab.said


def test_two_files_of_which_nothing_is_kept(browser, new_service, tmp_path):
    address, _ = new_service()
    tab = Tab(browser, address)
    page = tab.open("/ui/compare")
    for name, graph in (("a.json", chain(3, 7)), ("b.json", chain(3, 7.5))):
        (tmp_path / name).write_text(json.dumps(graph))
    (tmp_path / "model.pt2").write_bytes(b"PK\3\4")
    page.get_by_role("button", name="Compare the files").click()
    shown(tab, "Choose two files")
    page.get_by_label("First file").set_input_files(tmp_path / "a.json")
    page.get_by_label("Second file").set_input_files(tmp_path / "model.pt2")
    page.get_by_role("button", name="Compare the files").click()
    shown(tab, "is not a document")
    page.get_by_label("Second file").set_input_files(tmp_path / "b.json")
    page.get_by_role("button", name="Compare the files").click()
    shown(tab, "differs")
    page.get_by_label("Second file").set_input_files(tmp_path / "a.json")
    page.get_by_role("button", name="Compare the files").click()
    shown(tab, "This is a proof")
    page.get_by_label("Second file").set_input_files(tmp_path / "b.json")
    page.get_by_role("button", name="Compare the files").click()
    until(page, "() => document.querySelector('.stage .box.chosen')")
    marks = dict(page.eval_on_selector_all(
        ".stage .badge", "(all) => all.map((one) => [one.parentElement.querySelector('title').textContent, one.textContent])"))
    assert marks == {"output": "differs", "by7": "differs first"}
    page.get_by_role("button", name="node, by7").first.click()
    until(page, "() => document.querySelector('.panel .node').textContent.includes('truediv')")
    assert page.locator(".panel .node").get_by_text("7.5").count()
    assert Service(address).get("/v1/graphs")["items"] == [] and not axe.Axe().run(page).response["violations"]
    tab.close("compare-files")
    assert not tab.said
