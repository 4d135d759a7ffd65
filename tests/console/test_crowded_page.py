"""A page with much on it stays quick, and nothing on it keeps anybody out."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

import pytest
from console_crowd import Crowd, crowd, entity, every_section, process, source, verdict
from console_scene import serious_on
from playwright.sync_api import Browser, Page, expect

from twinbus.client.inspection.freshness import FRESH_S

pytestmark = [pytest.mark.console, pytest.mark.timeout(600)]

ENTITIES, PROCESSES, EVENTS_PER_S = 1_000, 200, 100
SLOW_S = 2.0
"""Generous: the machine may have other work. A page that draws everything anew with each event takes ten times that."""
expect.set_options(timeout=40_000)


@pytest.fixture
def console() -> Iterator[Crowd]:
    with crowd(allows_changes=True) as served:
        rows = {f"q-{number}": entity(f"q-{number}") for number in range(ENTITIES)}
        rows["q-7"] = entity("q-7", "failed over", "it refuses <b>sends</b>")
        served.put("verdict", verdict())
        served.put("entities", rows)
        served.put("processes", {str(number): process(number) for number in range(PROCESSES)})
        served.put("fleet", {"verdict": "failed over", "has_board": True, "is_complete": True, "problem": "",
                             "reporting": PROCESSES, "silent": 0, "left_out": 0})  # fmt: skip
        yield served


def entered(browser: Browser, console: Crowd, *, dark: bool = False, width: int = 1440) -> Page:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.goto(console.entrance)
    page.wait_for_selector("#entities tbody tr")
    return page


def test_a_page_answers_while_a_hundred_events_a_second_happen_to_a_large_fleet(
    browser: Browser, console: Crowd
) -> None:
    page = entered(browser, console)
    expect(page.locator("#entities .summary")).to_contain_text("1,000")
    expect(page.locator("#entities tbody tr").first).to_contain_text("q-7")
    is_over = threading.Event()

    def happen() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            console.add_event(f"event {number}")
            time.sleep(1 / EVENTS_PER_S)

    thread = threading.Thread(target=happen)
    thread.start()
    try:
        expect(page.locator("#events")).to_contain_text("event 100")
        slowest_s = 0.0
        for text in ("q-99", "q-5", ""):
            began = time.monotonic()
            page.locator("#entities-find").fill(text)
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            slowest_s = max(slowest_s, time.monotonic() - began)
        page.get_by_role("button", name="Show all 1,000").click()
        expect(page.locator("#entities tbody tr")).to_have_count(ENTITIES)
        assert slowest_s < SLOW_S
        assert page.locator("#events li").count() <= 201, "events are bounded"
    finally:
        is_over.set()
        thread.join()
    page.context.close()


def test_a_row_that_changes_keeps_the_focus(browser: Browser, console: Crowd) -> None:
    page = entered(browser, console)
    link = page.locator("#entities tbody tr", has_text="q-7").first.get_by_role("link")
    link.focus()
    console.put("entities", {"q-7": entity("q-7", "failing", "now it fails")})
    expect(page.locator("#entities")).to_contain_text("now it fails")
    assert page.evaluate("document.activeElement.textContent") == "q-7"
    page.context.close()


def test_the_page_is_used_by_keyboard_alone(browser: Browser, console: Crowd) -> None:
    page = entered(browser, console)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the overview"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#view-messages")).to_be_visible()
    page.context.close()


def test_no_state_is_told_by_colour_alone(browser: Browser, console: Crowd) -> None:
    page = entered(browser, console)
    chips = page.locator(".chip").all_inner_texts()
    assert chips
    assert all(len(text.split()) >= 2 for text in chips), "a mark and a word"
    page.context.close()


@pytest.mark.parametrize(("dark", "width"), [(False, 1440), (True, 1440), (False, 390)])
def test_axe_finds_nothing_serious(browser: Browser, console: Crowd, dark: bool, width: int) -> None:
    page = entered(browser, console, dark=dark, width=width)
    for view in ("#overview", "#messages"):
        page.goto(f"{console.server.address}{view}")
        page.wait_for_timeout(500)
        assert serious_on(page) == []
    page.context.close()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("state", ["failed over", "waiting", "healthy", "unknown"])
def test_axe_finds_nothing_serious_in_any_section_or_question(
    browser: Browser, console: Crowd, dark: bool, state: str
) -> None:
    for name, section in every_section("orders", state).items():
        console.put(name, section)
    page = entered(browser, console, dark=dark)
    expect(page.locator("#quarantine tbody tr")).to_have_count(1)
    assert serious_on(page) == []
    page.get_by_role("button", name="Hold a drill").click()
    assert serious_on(page) == []
    page.get_by_role("button", name="Cancel").click()
    page.context.close()


def test_what_is_too_old_is_marked_and_green_no_more(browser: Browser, console: Crowd) -> None:
    now = time.time()
    console.put("verdict", verdict("healthy", "everything works"))
    console.put("sources", {"the pair": source(now, FRESH_S), "the board": source(now, FRESH_S)})
    page = entered(browser, console)
    pair_age, fleet_age = page.locator("#entities .as-of"), page.locator("#processes .as-of")
    expect(page.locator("#verdict-word")).to_have_text("Healthy")
    expect(pair_age).to_have_text(re.compile(r"^\d+ s ago$"))
    console.put("sources", {"the pair": source(now - 40, FRESH_S, "no answer"), "the board": source(now, FRESH_S)})
    expect(pair_age).to_contain_text("no answer")
    expect(pair_age).to_have_text(re.compile(r"^▲ As of \d\d:\d\d:\d\d, \d+ s ago: no answer$"))
    expect(page.locator("#verdict-word")).to_have_text("Not known now, was healthy")
    assert "good" not in (page.locator("#verdict").get_attribute("class") or "")
    expect(fleet_age).to_have_text(re.compile(r"^\d+ s ago$"))
    assert serious_on(page) == []
    console.put("sources", {"the pair": source(time.time(), FRESH_S)})
    expect(page.locator("#verdict-word")).to_have_text("Healthy")
    page.context.close()


def test_what_is_not_replaced_gets_old_before_the_eyes(browser: Browser, console: Crowd) -> None:
    """Nothing is told to the page: a source that hangs says nothing."""
    console.put("sources", {"the pair": source(time.time(), 3.0)})
    page = entered(browser, console)
    expect(page.locator("#verdict-word")).to_have_text("Not known now, was failed over")
    expect(page.locator("#sides .as-of")).to_contain_text("▲ As of")
    page.context.close()


@pytest.mark.parametrize(
    ("waiting", "at_least", "spooled", "word"),
    [(0, 0, None, "Nothing"), (None, 0, None, "Not known"), (None, 7, None, "7+ messages"), (0, 0, 3, "3 messages")],
)
def test_nothing_waits_only_if_that_is_known_of_backlog_and_spools(
    browser: Browser, console: Crowd, waiting: int | None, at_least: int, spooled: int | None, word: str
) -> None:
    facts = {"waiting": waiting, "waiting_at_least": at_least, "doubt": None, "quarantined": 0}
    console.put("backlog", every_section("x")["backlog"] | facts)
    console.put("processes", {"1": {**process(1), "spooled": spooled}})
    page = entered(browser, console)
    expect(page.locator("#answer-waiting .big")).to_have_text(word)
    page.context.close()


def test_a_source_that_was_never_seen_hides_no_other_that_is_too_old(browser: Browser, console: Crowd) -> None:
    never = {"at": None, "stale_at": None, "problem": "the key may not listen"}
    console.put("sources", {"the pair": source(time.time(), 600.0), "the board": never})
    page = entered(browser, console)
    expect(page.locator("#entities .as-of")).to_have_text("not seen yet: the key may not listen")
    console.put("sources", {"the pair": source(time.time() - 40, FRESH_S), "the board": never})
    expect(page.locator("#entities .as-of")).to_contain_text("▲ As of")
    page.context.close()


def test_nothing_is_wider_than_a_phone(browser: Browser, console: Crowd) -> None:
    page = entered(browser, console, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.context.close()
