"""Whatever a namespace, a message or a process says is shown as text, on a page that stays as wide as its window."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from console_crowd import TOKEN, Crowd, crowd, every_section, verdict
from playwright.sync_api import Browser, Page, expect

pytestmark = [pytest.mark.console, pytest.mark.timeout(300)]

EVIL = "</td><img src=x onerror=window.hacked=1><script>window.hacked=1</script>\"'`${window.hacked=1}"
LONG = "x" * 5_000
TURNED = "\u202egpj.exe\u2066\x1b[31m"
WIDTHS = (1920, 1360, 1151, 1024, 700, 390, 320)
expect.set_options(timeout=40_000)


@pytest.fixture
def console() -> Iterator[Crowd]:
    with crowd(allows_changes=True) as served:
        served.put("verdict", verdict())
        yield served


def shown(browser: Browser, console: Crowd, text: str, errors: list[str]) -> Page:
    page = browser.new_context(viewport={"width": 1360, "height": 900}).new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.goto(console.entrance)
    for name, section in every_section(text).items():
        console.put(name, section)
    console.add_event(text)
    expect(page.locator("#processes tbody tr")).to_have_count(1)
    expect(page.locator("#events li")).not_to_have_count(0)
    return page


def test_markup_in_every_place_is_text(browser: Browser, console: Crowd) -> None:
    errors: list[str] = []
    page = shown(browser, console, EVIL, errors)
    for place in ("#entities", "#backlog", "#syphons", "#quarantine", "#processes", "#events", "#faults", "#local"):
        expect(page.locator(place)).to_contain_text("onerror=window.hacked")
    for place in ("#verdict", "#sides", "#answer-todo", "#answer-home"):
        expect(page.locator(place)).to_contain_text("onerror=window.hacked")
    assert page.locator("main img, main script, main iframe").count() == 0
    page.locator("#faults").get_by_role("button", name="Hold a drill").click()
    assert page.locator("#dialog img, #dialog script").count() == 0
    assert page.evaluate("window.hacked") is None
    assert errors == []
    page.context.close()


def test_long_texts_make_no_page_wider_than_its_window(browser: Browser, console: Crowd) -> None:
    page = shown(browser, console, LONG, [])
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for view in ("overview", "messages"):
            page.evaluate(f"location.hash = '{view}'")
            assert "; ".join(page.evaluate(WIDER)) == "", f"at {width}"
    page.context.close()


WIDER = """() => [...document.querySelectorAll("body *")]
  .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1
    && !each.closest(".table, .hidden, .skip, pre, .chip > *"))
  .map((each) => `${each.parentElement.outerHTML.slice(0, 90)} ${each.getBoundingClientRect().right}`).slice(0, 5)"""
"""What sticks out to the right; a wide table and a wide body have a scroll bar of their own."""


def test_letters_that_nobody_sees_or_that_turn_others_around_are_marked(browser: Browser, console: Crowd) -> None:
    page = shown(browser, console, TURNED, [])
    expect(page.locator("#entities td.name")).to_have_text("·gpj.exe··[31m")
    expect(page.locator("#verdict-text")).to_have_text("·gpj.exe··[31m")
    assert not re.search("[\u202e\u2066\x1b]", page.locator("body").inner_text())
    page.context.close()


def test_the_token_leaves_the_address_of_a_page_that_is_open_already(browser: Browser, console: Crowd) -> None:
    asked: list[str] = []
    context = browser.new_context()
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.goto(console.server.address)
    page.goto(console.entrance)  # only what is behind the # changes: nothing is loaded anew
    page.wait_for_selector("#verdict-at time")
    assert TOKEN not in page.url
    page.goto(console.entrance)
    expect(page).not_to_have_url(re.compile(TOKEN))
    expect(page.locator("#link")).to_contain_text("live")
    page.reload()
    page.wait_for_selector("#verdict-at time")
    assert not [url for url in asked if TOKEN in url.partition("#")[0]], "no server has seen it in an address"
    context.close()
