"""/docs in a real browser. Screenshots of what was looked at are left in build/screenshots."""

import pytest
from conftest import SCREENSHOTS

WIDTHS = [360, 768, 1440]  # CSS pixels


@pytest.fixture(params=WIDTHS)
def page(request, browser, url):
    """The page at one width; nothing may be said on the console, such as that the policy forbids something."""
    tab = browser.new_page(viewport={"width": request.param, "height": 800})
    tab.set_default_timeout(120_000)
    said = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(url + "/docs", timeout=120_000)
    yield tab
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=SCREENSHOTS / f"{request.node.name}.png")
    tab.close()
    assert said == []


def width(page):
    return page.viewport_size["width"]


def overflow(page):
    """What is wider than the window, with how much."""
    return page.evaluate(
        """() => [...document.querySelectorAll("main *, nav *, header *")]
            .filter((one) => !one.closest("pre") && one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)
            .map((one) => one.outerHTML.slice(0, 120)).slice(0, 5)"""
    )


def test_nothing_is_wider_than_the_window(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= width(page)
    assert overflow(page) == []
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width(page)
    assert overflow(page) == []


def test_content_comes_first(page):
    assert page.locator("h1").bounding_box()["y"] < 300
    assert page.locator("nav").is_visible() == (width(page) > 960)


def test_menu(page):
    link = page.locator("nav a[href='#optimize']")
    if width(page) <= 960:
        assert not link.is_visible()
        page.locator("label[for=menu]").click()
    assert link.is_visible()
    link.click()
    assert 0 <= page.locator("#optimize").bounding_box()["y"] < 200
    assert page.locator("nav").is_visible() == (width(page) > 960)


def test_few_problems_are_in_sight(page):
    assert page.locator("a[href^='#problem-']:visible").count() < 60
    article = page.locator("#optimize details.problems")
    article.locator("summary").click()
    assert article.locator("a[href^='#problem-']:visible").count() > 0


def test_problems_are_words(page):
    """No code is broken into more than two lines."""
    page.evaluate("location.hash = '#problems'")
    tall = page.evaluate(
        """() => [...document.querySelectorAll("#problems ~ table code")]
            .filter((one) => one.closest("td").matches(":first-child") && one.getClientRects().length > 2)
            .map((one) => one.textContent)"""
    )
    assert tall == []


def test_search(page):
    box = page.locator("#search")
    box.fill("merge  ROLLBACK")
    found = page.locator("main > article:visible").count()
    assert 0 < found < page.locator("main > article").count() / 2
    assert page.locator("#nothing").is_hidden()
    box.fill("no page has qqqq")
    assert page.locator("main > article:visible").count() == 0 and page.locator("#nothing").is_visible()
    box.fill("")
    assert page.locator("main > article:visible").count() == page.locator("main > article").count()
    assert page.locator("#nothing").is_hidden()
