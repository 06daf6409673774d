"""/ui in a real browser. Screenshots of what was looked at are left in build/screenshots."""

import base64
import json
import re
import struct
import subprocess
import time
import urllib.request

import axe_playwright_python.sync_playwright as axe
import pytest
from conftest import BINARY, SCREENSHOTS, serve
from viewed import FIXTURES, Service, document, fill, many_layers

WIDTHS = [360, 768, 1440]  # CSS pixels
THEMES = ["light", "dark"]


@pytest.fixture(scope="session")
def filled(url):
    service = Service(url)
    service.runs, service.refused = fill(service)
    return service


def until(page, condition, argument=None):
    """Waits until a function of the page is true. Playwright's own way evaluates text, which the page's policy forbids."""
    for _ in range(600):
        if page.evaluate(condition, argument):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never: {condition}")


class Tab:
    """A page that may say nothing on the console, and may ask nobody but the service."""

    def __init__(self, browser, url, width=1440, theme="light", height=900):
        self.url = url
        self.page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce")
        self.page.set_default_timeout(60_000)
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, path):
        self.page.goto(self.url + path)
        self.page.wait_for_selector("main h1")
        self.settle()
        return self.page

    def settle(self):
        until(self.page, "() => !document.querySelector('main > .waiting, [aria-busy]') && (!document.querySelector('.stage') "
                         "|| document.querySelector('.stage .box'))")

    def close(self, name=None):
        if name:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=SCREENSHOTS / f"{name}.png")
        self.page.close()
        assert self.said == []
        assert all(address.removeprefix("blob:").startswith(self.url + "/") for address in self.asked), self.asked


@pytest.fixture
def tab(browser, filled):
    tab = Tab(browser, filled.url)
    yield tab
    tab.close()


def pages(service):
    """Each page, as its address for what is stored."""
    resnet, bert = service.runs["resnet"], service.runs["bert"]
    return {
        "models": "/ui",
        "model": "/ui/models/resnet",
        "runs": "/ui/runs",
        "run": f"/ui/runs/{resnet['id']}?at={service.refused}",
        "run-bert": f"/ui/runs/{bert['id']}?at=encoder_layer_3_attention_self_query",
        "graphs": "/ui/graphs",
        "graph": f"/ui/graphs/{bert['source']}?at=encoder_layer_9_attention_self_key",
        "compare": "/ui/compare?base=resnet:v1&graph=resnet@champion",
        "jobs": "/ui/jobs",
        "missing": "/ui/runs/run_01M7XTSAAT7GE5FHQDV5WCKM9T",
    }


NAMES = ["models", "model", "runs", "run", "run-bert", "graphs", "graph", "compare", "jobs", "missing"]


def expect_404(tab):
    """Chromium reports a request that is answered 404 by itself."""
    tab.said = [line for line in tab.said if "404" not in line]


AXED = [("light", 360), ("dark", 768), ("light", 1440), ("dark", 1440)]


SEEN = """() => {
    const stage = document.querySelector(".stage").getBoundingClientRect();
    return [...document.querySelectorAll(".stage .box:not(.open) > rect")].some((one) => {
        const box = one.getBoundingClientRect();
        return box.left < stage.right - 8 && box.right > stage.left + 8
            && box.top < stage.bottom - 8 && box.bottom > stage.top + 8;
    });
}"""


@pytest.mark.parametrize("name", NAMES)
def test_page(browser, filled, name):
    """Nothing is wider than the window, axe finds nothing, and nothing is said or asked of others."""
    tab = Tab(browser, filled.url)
    page = tab.open(pages(filled)[name])
    for folded in page.locator("main details:not(.code)").all():
        folded.evaluate("one => { one.open = true; }")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    assert not re.search(r"\b(false|undefined|NaN|null)\b|\[object", page.locator("main").inner_text())
    faults = []
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(50)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if page.locator(".stage").count():
                assert page.evaluate(SEEN), "no box is in sight"
            page.screenshot(path=SCREENSHOTS / f"viewer-{name}-{width}-{theme}.png")
            if (theme, width) in AXED:
                found = axe.Axe().run(page).response["violations"]
                faults += [(theme, width, one["id"],
                            [(node["html"][:200], node["failureSummary"][:300]) for node in one["nodes"][:3]]) for one in found]
    if name == "missing":
        expect_404(tab)
    tab.close()
    assert faults == []


# ---- what a run did ---------------------------------------------------------------------------------------------------------


def box(page, key):
    return page.locator(".stage .box").filter(has=page.locator("title", has_text=re.compile(f"^{re.escape(key)}$"))).last


def test_merges_of_bert(tab, filled):
    """The diff of the BERT run has its 12 merges, and shows where q, k and v went in layer 3."""
    page = tab.open(f"/ui/runs/{filled.runs['bert']['id']}")
    assert page.locator(".changes li.added").count() == 12
    page.fill("#filter", "layer.3.attention")
    assert page.locator(".changes li.added .link").all_inner_texts() == ["query_key_value_merged"]
    page.click(".changes li.added .link")
    tab.settle()
    merged = box(page, "encoder_layer_3_attention_self_query_key_value_merged")
    assert "added" in merged.get_attribute("class") and "chosen" in merged.get_attribute("class")
    number = merged.get_attribute("data-id")
    for which in ("query", "key", "value"):
        one = box(page, f"encoder_layer_3_attention_self_{which}")
        assert "changed" in one.get_attribute("class") and "Linear → getitem" in one.inner_html()
        assert page.locator(f".line.added[data-from='{number}'][data-to='{one.get_attribute('data-id')}']").count() == 1
    page.wait_for_selector(".node .recipe")
    recipe = page.locator(".node .recipe").first.inner_text()
    assert all(f"encoder.layer.3.attention.self.{which}.weight" in recipe for which in ("query", "key", "value"))
    assert "encoder_layer_3" in page.url and "open=" in page.url  # what is selected stands in the address
    page.reload()
    tab.settle()
    assert "chosen" in box(page, "encoder_layer_3_attention_self_query_key_value_merged").get_attribute("class")


def test_slider(tab, filled):
    """Each step shows what the passes before it did."""
    page = tab.open(f"/ui/runs/{filled.runs['bert']['id']}")
    tallies = []
    for step in ("0", "1", "2", "3"):
        page.locator("#step").evaluate("(one, step) => { one.value = step; one.dispatchEvent(new Event('input')); }", step)
        until(page, "step => document.querySelector('#step').value === step && !document.querySelector('[aria-busy]')", step)
        page.wait_for_timeout(100)
        tallies.append(page.locator(".step-said .tally").inner_text())
        assert ("passes=" in page.url) == (step != "3")
    assert tallies == ["+0 −0 ~0", "+12 −0 ~36", "+12 −0 ~48", "+12 −37 ~85"]


def test_refusal_at_its_node(tab, filled):
    page = tab.open(f"/ui/runs/{filled.runs['resnet']['id']}")
    refused = page.locator(".refused")
    assert "an output of the graph" in refused.inner_text()
    refused.get_by_role("button", name="layer3_1_bn2").click()
    tab.settle()
    page.wait_for_selector(".node .refusal")
    assert "an output of the graph" in page.locator(".node .refusal").inner_text()
    assert "refused" in box(page, "layer3_1_bn2").text_content()


def test_code_is_linked_both_ways(tab, filled):
    page = tab.open(f"/ui/graphs/{filled.runs['bert']['source']}")
    page.click(".code summary")
    page.click(".code button[data-name=encoder_layer_5_output_dense]")
    tab.settle()
    assert "chosen" in box(page, "encoder_layer_5_output_dense").get_attribute("class")
    page.fill("#search", "layer_7_attention_self_key")
    page.keyboard.press("Enter")
    until(page, "() => document.querySelector('.code li.chosen')?.innerText.includes('encoder_layer_7_attention_self_key =')")


def test_boxes_open_in_place(tab, filled):
    """An opened box stays where it was on the screen, and what is closed again is as before."""
    page = tab.open(f"/ui/graphs/{filled.runs['bert']['source']}")
    embeddings = box(page, "embeddings")
    before = embeddings.locator("rect").first.bounding_box()
    count = page.locator(".stage .box").count()
    embeddings.click()
    page.wait_for_selector(".stage .box.open")
    tab.settle()
    after = box(page, "embeddings").locator("rect").first.bounding_box()
    assert abs(before["x"] - after["x"]) < 2 and abs(before["y"] - after["y"]) < 2
    assert page.locator(".stage .box").count() > count
    box(page, "embeddings").locator("text").first.click()
    until(page, "count => document.querySelectorAll('.stage .box').length === count", count)


def test_a_name_like_one_that_exists_is_offered(tab, filled):
    page = tab.open("/ui/models/resnett")
    page.get_by_text("Did you mean resnet?").wait_for()
    expect_404(tab)


def test_keyboard_alone(tab, filled):
    """Tab reaches the picture, arrows go from box to box, Enter opens and shows."""
    page = tab.open(f"/ui/graphs/{filled.runs['bert']['source']}")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.stage .box') !== null"):
            break
    name = "document.activeElement.querySelector('title').textContent"
    seen = [page.evaluate(name)]
    for _ in range(12):
        page.keyboard.press("ArrowDown")
        seen.append(page.evaluate(name))
        if seen[-1] == "encoder.layer":
            break
    assert seen[-1] == "encoder.layer" and seen == list(dict.fromkeys(seen))
    page.keyboard.press("Enter")
    page.wait_for_selector(".stage .box.open")
    tab.settle()
    assert (page.evaluate(name) == "encoder.layer"
            and page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true")


# ---- side by side, and as a file


def keys(page, stage):
    return set(page.locator(".stage").nth(stage).locator(".box.node > title").all_text_contents())


def place(page, stage):
    return page.locator(".stage").nth(stage).locator("svg.picture > g").get_attribute("transform")


def check_widths(tab, name):
    """Nothing is wider than the window, a box is in sight, and axe finds nothing, at each width and in each theme."""
    page, faults = tab.page, []
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(50)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(SEEN), f"no box is in sight: {width}, {theme}"
            page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{theme}.png")
            if (theme, width) in AXED:
                found = axe.Axe().run(page).response["violations"]
                faults += [(theme, width, one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
    assert faults == []


def test_side_by_side(tab, filled):
    """Before and after, each without the other's nodes; they move, open and select together, and the address says so."""
    run = filled.runs["bert"]
    attention = "encoder.layer.3.attention.self"
    page = tab.open(f"/ui/runs/{run['id']}?open={attention}")
    page.get_by_role("button", name="Side by side").click()
    assert page.locator(".stage").count() == 2 and page.locator(".caption").all_inner_texts() == ["Before", "After"]
    drawn = filled.get(f"/v1/runs/{run['id']}/layout?open={attention}")["boxes"]
    of_state = {state: {box["key"] for box in drawn if box["kind"] == "node" and box["state"] == state} for state in
                ("added", "removed")}
    assert of_state["added"] and of_state["removed"]
    assert keys(page, 0) - keys(page, 1) == of_state["removed"] and keys(page, 1) - keys(page, 0) == of_state["added"]
    assert page.locator(".stage").nth(0).locator(".box.added").count() == 0
    assert page.locator(".stage").nth(1).locator(".box.removed").count() == 0
    both = sorted(keys(page, 0) & keys(page, 1))[0]
    for stage in (0, 1):
        one = page.locator(".stage").nth(stage)
        one.get_by_role("button", name="Larger").click()
        assert place(page, 0) == place(page, 1)
    page.locator(".stage").nth(0).get_by_role("button", name=f"node, {both},").focus()
    page.keyboard.press("Enter")
    until(page, "() => document.querySelectorAll('.stage .box.chosen').length === 2")
    assert place(page, 0) == place(page, 1)
    before = [page.locator(".stage").nth(stage).locator(".box").count() for stage in (0, 1)]
    page.locator(".stage").nth(1).locator(".box.module[aria-expanded='false']").first.focus()
    page.keyboard.press("Enter")
    for stage in (0, 1):
        until(page, "([stage, was]) => document.querySelectorAll('.stage')[stage].querySelectorAll('.box').length > was",
              [stage, before[stage]])
    assert place(page, 0) == place(page, 1)
    assert page.evaluate("document.activeElement.closest('.stage') === document.querySelectorAll('.stage')[1]")
    assert "sides=1" in page.url
    page.reload()
    tab.settle()
    assert page.locator(".stage").count() == 2
    check_widths(tab, "viewer-sides")
    page.get_by_role("button", name="Side by side").click()
    assert page.locator(".stage").count() == 1 and of_state["removed"] <= keys(page, 0) and "sides" not in page.url


def test_save_the_picture(tab, filled):
    """What is open now, as the service draws it; a PNG is as large as the SVG, twice as fine."""
    page = tab.open(f"/ui/runs/{filled.runs['bert']['id']}?open=encoder.layer.3.attention.self")
    with page.expect_download() as got:
        page.get_by_role("button", name="Save as SVG").click()
    svg = got.value.path().read_text()
    assert got.value.suggested_filename.endswith(".svg") and svg.startswith("<svg")
    assert "encoder_layer_3_attention_self_query" in svg
    width, height = (int(number) for number in re.search(r'width="(\d+)" height="(\d+)"', svg).groups())
    with page.expect_download() as got:
        page.get_by_role("button", name="Save as PNG").click()
    png = got.value.path().read_bytes()
    assert got.value.suggested_filename.endswith(".png") and png.startswith(b"\x89PNG\r\n")
    size = struct.unpack(">II", png[16:24])
    assert abs(size[0] / size[1] - width / height) < 0.01 and size[0] in (2 * width, round(size[0])) and size[0] >= width / 2
    tab.close()


# ---- large graphs


def test_search_and_panel_of_a_large_run(browser, new_service):
    """Over 20,000 nodes: a part of a name, a module, a type and words are found, also when they are typed at once; Enter shows
    a node whose panel is whole."""
    url, _ = new_service()
    service = Service(url)
    run = service.call("POST", "/v1/optimize",
                       {"graph": many_layers(10_200), "passes": ["ChangeTrueDivToMulByInverse", "RemoveNoOps"]})
    tab = Tab(browser, url)
    page = tab.open(f"/ui/runs/{run['id']}")
    for text, name in (("layers.777", "layers_777_fc"), ("layers_777", "layers_777_fc"), ("7077 linear", "layers_7077_fc"),
                       ("truediv_5 changed", "truediv_5"), ("layers_4321_fc", "layers_4321_fc")):
        page.reload()
        page.get_by_label("Find a node").fill(text)  # while the picture loads
        until(page, "name => [...document.querySelectorAll('ul.results .link')].some((one) => one.innerText === name)", name)
    tab.settle()
    page.get_by_label("Find a node").press("Enter")
    page.wait_for_selector("section.node:not([hidden]) .side")
    shown = page.locator("section.node").inner_text()
    assert ("torch.nn.Linear" in shown and "layers.4321.fc.weight" in shown and "truediv_4321" in shown
            and "too large" not in shown)
    page.locator("section.node").get_by_role("button", name="truediv_4321", exact=True).click()
    until(page, "() => document.querySelector('section.node h2')?.innerText.startsWith('truediv_4321')")
    assert "Before" in page.locator("section.node").inner_text() and "After" in page.locator("section.node").inner_text()
    page.get_by_label("Find a node").fill("no node has this")
    page.get_by_text("No node has each of these words").wait_for()
    tab.close("viewer-large")


def test_who_stands_in_the_way(browser, new_service):
    url, _ = new_service()
    service = Service(url)
    run = service.call("POST", "/v1/optimize", {"graph": document("bert-tiny"), "passes": ["inference"]})
    refusal = next(one for each in run["passes"] for one in each["refused"] if one["reason"] == "other-readers")
    tab = Tab(browser, url)
    page = tab.open(f"/ui/runs/{run['id']}?at={refusal['nodes'][0]}")
    page.wait_for_selector(".node .refusal .link")
    named = page.locator(".node .refusal .link").all_inner_texts()
    readers = service.get(f"/v1/graphs/{run['source']}/nodes/{refusal['nodes'][0]}")["read_by"]
    assert named and set(named) <= set(readers) - set(refusal["nodes"][1:])
    page.get_by_label("Find a node").fill("refused")
    page.locator("ul.results .refusal").first.wait_for()
    tab.close()


# ---- acts -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width, theme", [(1440, "light"), (360, "dark")])
def test_roll_back_by_button(browser, new_service, width, theme):
    """The button says what it will do, asks once, and then the alias and its history have changed."""
    url, _ = new_service()
    service = Service(url)
    fill(service)
    tab = Tab(browser, url, width, theme)
    page = tab.open("/ui/models/resnet")
    page.get_by_role("button", name="Roll back to v1…").click()
    dialog = page.get_by_role("dialog")
    assert "champion of resnet is v2 now. It becomes v1" in dialog.inner_text()
    assert service.get("/v1/models/resnet/aliases/champion")["version"] == "v2"
    page.get_by_label("Why").fill("it is <b>slower</b>")
    dialog.locator(".curl summary").click()
    assert "aliases/champion/rollback" in dialog.inner_text() and "If-Match" in dialog.inner_text()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "viewer-dialog.png")
    dialog.get_by_role("button", name="Roll back").click()
    page.get_by_text("champion is v1 again.").wait_for()
    page.wait_for_selector(".timeline .rollback")
    assert ("v2 → v1" in page.locator(".timeline .rollback").inner_text()
            and "it is <b>slower</b>" in page.locator(".timeline .rollback").inner_text())
    alias = service.get("/v1/models/resnet/aliases/champion")
    assert alias["version"] == "v1" and alias["why"] == "it is <b>slower</b>"
    assert [one["action"]
            for one in service.get("/v1/models/resnet/aliases/champion/history")["items"]] == ["rollback", "deploy", "create"]
    assert page.get_by_role("button", name=re.compile("Roll back")).count() == 0  # nothing was deployed before v1
    tab.close("viewer-rolled-back")


def test_what_was_taken_back_is_not_offered(browser, new_service):
    """Somebody else has put v1 back by deploying it: no button brings v2 again, and the page says why."""
    url, _ = new_service()
    service = Service(url)
    fill(service)
    service.call("PUT", "/v1/models/resnet/aliases/champion", {"version": "v1"}, If_Match="*")
    tab = Tab(browser, url)
    page = tab.open("/ui/models/resnet")
    assert page.get_by_role("button", name=re.compile("Roll back")).count() == 0
    assert "champion was taken back from v2" in page.locator("section.alias").inner_text()
    page.get_by_role("button", name="Deploy another version…").click()
    assert page.get_by_role("dialog").locator("option").all_inner_texts() == ["v2 (was taken back)"]
    tab.close()


def test_a_run_of_a_preset(browser, new_service):
    """Its title, its table and its buttons have the preset in the place of its passes; on a phone the button is in sight."""
    url, _ = new_service()
    service = Service(url)
    run = service.call("POST", "/v1/optimize", {"graph": document("bert-tiny"), "passes": ["inference", "MergeLinears"]})
    tab = Tab(browser, url, width=360, height=740)
    page = tab.open(f"/ui/runs/{run['id']}")
    assert page.locator("h1").inner_text() == "Run: inference + MergeLinears"
    before, after = run["nodes"]["before"], run["nodes"]["after"]
    assert f"{before} → {after} (−{before - after}) nodes" in page.locator("main").inner_text()
    button = page.get_by_role("button", name="Undo this run…")
    assert button.bounding_box()["y"] < page.locator(".stage").bounding_box()["y"] and button.bounding_box()["y"] < 300
    page.get_by_text("Passes", exact=True).click()
    told = [one for one in run["passes"] if one["applied"] or one["refused"]]
    assert page.locator("main tbody tr").count() == len(told)
    assert f"{len(run['passes']) - len(told)} passes changed nothing" in page.locator("main").inner_text()
    page.get_by_role("button", name="Undo a part…").click()
    assert page.get_by_role("dialog").locator("option").first.inner_text().startswith("inference (")
    page.get_by_role("dialog").get_by_role("button", name="Take it out").click()
    page.get_by_role("heading", name="Rollback: inference").wait_for()
    assert service.get("/v1/runs")["items"][0]["requested"] == ["inference"]
    tab.open("/ui/runs")
    assert page.locator("thead").is_hidden() and "bert-tiny" in page.locator("tbody tr").first.inner_text()
    tab.close("viewer-preset-360")


def test_take_one_pass_out(browser, new_service):
    url, _ = new_service()
    service = Service(url)
    fill(service)
    tab = Tab(browser, url)
    page = tab.open("/ui/models/bert")
    page.get_by_role("button", name="Take one pass out…").click()
    page.get_by_role("dialog").locator("select").select_option("MergeLinears")
    page.get_by_role("dialog").get_by_role("button", name="Take it out").click()
    page.get_by_text("champion is v2-without-MergeLinears now.").wait_for()
    assert service.get("/v1/models/bert/aliases/champion")["version"] == "v2-without-MergeLinears"
    tab.close()


def test_act_that_fails(browser, new_service):
    """Who comes second is told, and nothing is changed."""
    url, _ = new_service()
    service = Service(url)
    fill(service)
    tab = Tab(browser, url)
    page = tab.open("/ui/models/resnet")
    page.get_by_role("button", name="Roll back to v1…").click()
    service.call("PUT", "/v1/models/resnet/versions/v3", {"graph": document("toy")})
    service.call("PUT", "/v1/models/resnet/aliases/champion", {"version": "v3"}, If_Match="*")
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    page.get_by_role("dialog").get_by_role("alert").locator("strong").wait_for()
    assert service.get("/v1/models/resnet/aliases/champion")["version"] == "v3"
    tab.said = [line for line in tab.said if "412" not in line]
    tab.close()


# ---- jobs and numbers -------------------------------------------------------------------------------------------------------


def test_jobs_live(browser, new_service):
    """A job that is made while the page is open appears, is followed to its end, and says what came of it."""
    url, _ = new_service()
    service = Service(url)
    graphs = [service.call("POST", "/v1/graphs", document(name))["id"] for name in ("bert-base", "toy")]
    tab = Tab(browser, url)
    page = tab.open("/ui/jobs")
    assert "No jobs" in page.locator("main").inner_text()
    later = {"Prefer": "respond-async"}
    run = service.call("POST", "/v1/optimize", {"graph": graphs[0], "passes": ["MergeLinears"]}, **later)["id"]
    rows = page.locator("tbody tr")
    rows.first.get_by_role("link", name="the run").wait_for()
    assert rows.count() == 1 and run[:14] in rows.first.inner_text() and "done" in rows.first.inner_text()
    service.call("POST", f"/v1/graphs/{graphs[1]}/evaluate", {"nobody": 1}, **later)
    why = rows.first.get_by_text("Why?")
    why.wait_for()
    why.click()
    rows.first.locator("div.failed p").wait_for()
    assert "failed" in rows.first.inner_text() and "Unknown member" in rows.first.locator("div.failed").inner_text()
    why.click()
    service.call("POST", "/v1/jobs", {"graphs": [*graphs, "sha256:" + "0" * 64], "passes": ["MergeLinears"]})
    found = rows.first.get_by_text("What it found")
    found.wait_for()
    found.click()
    until(page, "() => document.querySelectorAll('tbody tr:first-child li').length === 3")
    assert rows.first.get_by_role("link").count() == 2 and "no graph" in rows.first.locator("li").last.inner_text()
    tab.said = [line for line in tab.said if "422" not in line and "409" not in line]
    tab.close("viewer-jobs-live")


def long_job(service):
    """Its id; it takes minutes."""
    graph = service.call("POST", "/v1/graphs", document("bert-base"))["id"]
    return service.call("POST", "/v1/jobs",
                        {"graphs": [graph] * 1000, "passes": ["MergeLinears"], "options": {"validate": "rewrites"}})["id"]


def test_cancel_a_job(browser, new_service):
    url, _ = new_service()
    service = Service(url)
    job = long_job(service)
    tab = Tab(browser, url)
    page = tab.open("/ui/jobs")
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    page.locator("tbody .state.cancelled").wait_for()
    assert service.get(f"/v1/jobs/{job}")["state"] == "cancelled"
    tab.close()


def test_leave_a_job_while_its_end_is_read(browser, new_service):
    """Nothing is said on the console when the page goes before the job that has just ended was read."""
    url, _ = new_service()
    job = long_job(service := Service(url))
    tab = Tab(browser, url)
    page = tab.open("/ui/jobs")
    page.route(f"**/v1/jobs/{job}", lambda route: None)  # it is never answered
    with page.expect_request(f"**/v1/jobs/{job}"):
        service.call("DELETE", f"/v1/jobs/{job}")
    page.get_by_role("link", name="Graphs").click()
    page.get_by_role("heading", name="Graphs").wait_for()
    tab.close()


def test_search_after_the_service_did_not_answer(filled, tab):
    """A search that fails says why, and finds again when the service answers again."""
    page = tab.open(f"/ui/graphs/{filled.runs['bert']['source']}")
    page.route("**/v1/graphs/**", lambda route: route.abort())
    page.get_by_label("Find a node").fill("query")
    page.get_by_text("the service does not answer").wait_for()
    page.unroute("**/v1/graphs/**")
    page.get_by_label("Find a node").fill("query ")
    page.locator(".results button").first.wait_for()
    tab.said = [line for line in tab.said if "ERR_FAILED" not in line]


def test_histogram(browser, new_service):
    """What a weight holds is drawn and told: 100 numbers from -1 to 2, a zero and a nan among them."""
    url, _ = new_service()
    service = Service(url)
    numbers = [-1.0, 2.0, 0.0, float("nan"), *([0.5] * 96)]
    tensor = {"name": "weight", "dtype": "float32", "shape": [10, 10],
              "data": base64.b64encode(struct.pack("<100f", *numbers)).decode()}
    nodes = [{"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {}},
             {"name": "w", "op": "get_attr", "target": "weight", "args": [], "kwargs": {}}]
    nodes.append({"name": "output", "op": "output", "target": "output", "args": [{"$node": "w"}], "kwargs": {}})
    modules = [{"path": "", "type": "torch.nn.Module", "parameters": {"weight": "weight"}}]
    graph = service.call("POST", "/v1/graphs", {"format": "foldback.graph/1", "name": "numbers", "nodes": nodes,
                                                "modules": modules, "tensors": [tensor]})["id"]
    tab = Tab(browser, url)
    page = tab.open(f"/ui/graphs/{graph}?at=w")
    page.get_by_role("button", name="Show its values").click()
    picture = page.get_by_role("img", name="Histogram from -1 to 2")
    picture.wait_for()
    heights = [float(bar.get_attribute("height")) for bar in picture.locator("rect").all()]
    assert len(heights) == 4 and max(heights) == 50  # -1, 0, 0.5 and 2
    facts = page.locator(".node .tensors dl").inner_text().replace("\n", " ")
    assert re.search(r"mean 0\.4949\b", facts) and re.search(r"zeros 1\b", facts) and re.search(r"not finite 1\b", facts)
    tab.close("viewer-histogram")


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_onnx(browser, new_service, width):
    """Operators by their names, values as the model calls them, and the program within a Loop."""
    url, _ = new_service()
    data = (FIXTURES / "onnx" / "if-and-loop.onnx").read_bytes()
    request = urllib.request.Request(f"{url}/v1/graphs", data, {"Content-Type": "application/onnx"})
    graph = json.load(urllib.request.urlopen(request))["id"]
    tab = Tab(browser, url, width)
    page = tab.open(f"/ui/graphs/{graph}?at=body")
    page.wait_for_selector("section.node:not([hidden]) .side")
    boxes = page.locator(".stage").inner_text()
    assert "Loop.v16" in boxes and "If.v16" in boxes, boxes
    program = page.locator(".node .program").inner_text()
    assert program.splitlines()[0].startswith("i: ") and "= onnx." in program and "return (" in program, program
    page = tab.open(f"/ui/graphs/{graph}?at=x0")
    page.wait_for_selector("section.node:not([hidden]) .side")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tab.close(f"viewer-onnx-{width}")


# ---- who may what -----------------------------------------------------------------------------------------------------------


def test_tokens(browser, tmp_path):
    """A token is asked for, kept for the tab and sent in a header; one that may read alone is offered no acts."""
    data = tmp_path / "data"
    process, url = serve(data)
    fill(Service(url))
    process.terminate()
    assert process.wait(30) == 0
    tokens = {}
    for scope in ("admin", "read"):
        made = subprocess.run([BINARY, "token", "create", "--data", data, "--scope", scope, "--name", scope],
                              capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        tokens[scope] = re.search(r"fbt_[\w-]+", made.stdout)[0]
    process, url = serve(data)
    try:
        tab = Tab(browser, url)
        page = tab.page
        page.goto(url + "/ui/models/resnet")
        page.get_by_label("Token").fill(tokens["read"])
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("heading", name="champion is v2").wait_for()
        assert page.get_by_role("button", name=re.compile("Roll back|Deploy|Take")).count() == 0
        assert "may read only" in page.locator("main").inner_text()
        held = "sessionStorage.getItem('foldback-token')"
        page.once("dialog", lambda dialog: dialog.dismiss())  # anybody can send such a link
        page.goto(url + f"/ui/models/resnet#token={tokens['admin']}")
        page.get_by_role("heading", name="champion is v2").wait_for()
        assert "token" not in page.url and page.evaluate(held) == tokens["read"]
        page.once("dialog", lambda dialog: dialog.accept())
        page.goto(url + f"/ui/models/resnet#token={tokens['admin']}")
        page.get_by_role("button", name="Roll back to v1…").wait_for()
        assert "token" not in page.url
        assert page.evaluate(held) == tokens["admin"] and page.evaluate("localStorage.length") == 0
        assert not any(secret in address.split("#")[0] for secret in tokens.values() for address in tab.asked)
        tab.said = [line for line in tab.said if "401" not in line]
        tab.close("viewer-tokens")
    finally:
        process.terminate()
        assert process.wait(30) == 0


# ---- odd and empty ----------------------------------------------------------------------------------------------------------


def test_empty_service(browser, new_service):
    """Every list without items has words and a way on."""
    url, _ = new_service()
    tab = Tab(browser, url)
    for path, words in (("/ui", "No models"), ("/ui/runs", "No runs"), ("/ui/graphs", "No graphs"), ("/ui/jobs", "No jobs")):
        page = tab.open(path)
        assert words in page.locator(".empty").inner_text() and "curl" in page.locator(".empty").inner_text()
    tab.close("viewer-empty")


ODD = ["<img src=x onerror=alert(1)>", "</text><script>alert(2)</script>", "مرحبا بالعالم", "q" * 10_000]


def test_text_of_documents_is_text(browser, new_service):
    url, _ = new_service()
    service = Service(url)
    nodes = [{"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {}}]
    nodes += [{"name": f"n{i}", "op": "call_module", "target": name, "args": [{"$node": "x"}], "kwargs": {}}
              for i, name in enumerate(ODD)]
    nodes += [{"name": "output", "op": "output", "target": "output", "args": [{"$node": "x"}], "kwargs": {}}]
    modules = [{"path": "", "type": "torch.nn.Module"}, *({"path": name, "type": "torch.nn.ReLU<i>"} for name in ODD)]
    graph = service.call("POST", "/v1/graphs", {"format": "foldback.graph/1", "name": ODD[0], "nodes": nodes,
                                                "modules": modules, "tensors": []})["id"]
    service.call("PUT", "/v1/models/odd/versions/v1", {"graph": graph, "note": ODD[1]})
    service.call("PUT", "/v1/models/odd/aliases/champion", {"version": "v1", "who": ODD[0], "why": ODD[1]}, If_None_Match="*")
    tab = Tab(browser, url, 768)
    for path in ("/ui", "/ui/models/odd", "/ui/graphs", f"/ui/graphs/{graph}?at=n0", f"/ui/graphs/{graph}?at=n3"):
        page = tab.open(path)
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= 768
        assert page.locator("main img, main script, main i, main b").count() == 0
    tab.close("viewer-odd-names")


def test_large_graph(browser, new_service):
    """100,000 nodes: few boxes, which move without dropping frames, in a page of less than 200 MB."""
    url, _ = new_service()
    service = Service(url)
    nodes = [{"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {}}]
    nodes += [{"name": f"n{i}", "op": "call_module", "target": f"block.{i // 100}.part{i % 100}",
               "args": [{"$node": f"n{i - 1}" if i else "x"}], "kwargs": {}} for i in range(100_000)]
    nodes += [{"name": "output", "op": "output", "target": "output", "args": [{"$node": "n99999"}], "kwargs": {}}]
    modules = [{"path": "", "type": "torch.nn.Module"}] + [{"path": f"block.{i // 100}.part{i % 100}", "type": "torch.nn.ReLU"}
                                                           for i in range(100_000)]
    graph = service.call("POST", "/v1/graphs", {"format": "foldback.graph/1", "name": "large", "nodes": nodes,
                                                "modules": modules, "tensors": []})["id"]
    tab = Tab(browser, url)
    begun = time.monotonic()
    page = tab.open(f"/ui/graphs/{graph}?at=n54321")
    took = time.monotonic() - begun
    assert 0 < page.locator(".stage .box").count() <= 500
    assert page.locator(".stage .box.group.open > .label").all_text_contents() == ["block 540 … 559"]
    frames = page.evaluate(
        """async () => {
            const svg = document.querySelector(".stage svg.picture"), gaps = [];
            let last = await new Promise(requestAnimationFrame);
            for (let i = 0; i < 60; i++) {
                svg.dispatchEvent(new WheelEvent("wheel", {deltaY: i % 2 ? 40 : -35, bubbles: true, cancelable: true}));
                const now = await new Promise(requestAnimationFrame);
                gaps.push(now - last);
                last = now;
            }
            return gaps.sort((a, b) => a - b);
        }"""
    )
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    heap = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}["JSHeapTotalSize"]
    print(f"first picture after {took:.2f} s; median frame {frames[30]:.1f} ms; heap {heap / 2**20:.0f} MB")
    assert heap < 200 * 2**20
    check_widths(tab, "viewer-large")
    page.locator(".stage .box.chosen").focus()  # by keys alone from here
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    until(page, "() => /^n54320/.test(document.querySelector('section.node h2')?.innerText ?? '')")
    tab.close()
