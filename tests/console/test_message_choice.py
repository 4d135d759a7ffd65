"""What is changed is what was chosen: the exact number, in the place that was looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from console_crowd import Crowd, crowd, verdict
from playwright.sync_api import Browser, Page, Route, expect

pytestmark = [pytest.mark.console, pytest.mark.timeout(300)]

LARGE = ("9223372036854775806", "9223372036854775807")
"""Numbers that JavaScript cannot tell apart once they are numbers of its own."""
expect.set_options(timeout=40_000)


def message(number: str, name: str) -> dict[str, Any]:
    return {"sequence_number": number, "message_id": name, "session_id": None, "enqueued_ms": 1, "size": 1,
            "state": "active", "dead_letter_reason": None}  # fmt: skip


class FakeMessages:
    """Answers the page's questions about messages, and keeps what it asks to be done."""

    def __init__(self, page: Page) -> None:
        self.held: list[Route] = []
        self.done: list[dict[str, Any]] = []
        self.holds = ""
        """The entity whose answers are held back."""
        page.route("**/api/messages?*", self._find)
        page.route("**/api/do", self._do)

    def _find(self, route: Route) -> None:
        (entity,) = parse_qs(urlsplit(route.request.url).query)["entity"]
        if entity == self.holds:
            self.held.append(route)
        else:
            self.answer(route)

    def answer(self, route: Route) -> None:
        asked = parse_qs(urlsplit(route.request.url).query)
        (entity,) = asked["entity"]
        numbers = ("7",) if "from" in asked else LARGE
        found = [message(number, f"{entity}-{number}") for number in numbers]
        route.fulfill(json={"messages": found, "scanned": 2, "next": None if "from" in asked else "3",
                            "sessions_left_out": False})  # fmt: skip

    def _do(self, route: Route) -> None:
        self.done.append(json.loads(route.request.post_data or ""))
        route.fulfill(json={"text": "1 dead-lettered", "is_all": True})


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with crowd(allows_changes=True) as served:
        served.put("verdict", verdict())
        yield from messages_page(browser, served)


def messages_page(browser: Browser, served: Crowd) -> Iterator[Page]:
    opened = browser.new_context().new_page()
    opened.goto(served.entrance)
    expect(opened.locator("#mode")).to_have_text("may change things")
    opened.get_by_role("link", name="Messages").click()
    yield opened
    opened.context.close()


def look(page: Page, entity: str) -> None:
    page.get_by_label("Queue or topic", exact=True).fill(entity)
    page.get_by_role("button", name="Look", exact=True).click()


def dead_letter_chosen(page: Page) -> None:
    page.get_by_role("button", name="Dead-letter 1 chosen").click()
    page.locator("#dialog").get_by_label("Reason").fill("odd")
    page.locator("#dialog").get_by_role("button", name="Dead-letter").click()
    expect(page.locator("#toasts")).to_contain_text("1 dead-lettered")


def test_the_largest_numbers_are_told_apart(page: Page) -> None:
    fake = FakeMessages(page)
    look(page, "orders")
    expect(page.locator("#message-table tbody tr")).to_have_count(2)
    page.get_by_label(f"Choose message {LARGE[1]}").check()
    dead_letter_chosen(page)
    assert fake.done[0]["arguments"]["numbers"] == [LARGE[1]]


def test_an_answer_that_comes_late_mixes_no_messages_of_two_places(page: Page) -> None:
    fake = FakeMessages(page)
    fake.holds = "orders"
    look(page, "orders")
    look(page, "invoices")
    expect(page.locator("#message-table")).to_contain_text("invoices-")
    (late,) = fake.held
    with page.expect_response("**/api/messages?*"):
        fake.answer(late)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    expect(page.locator("#message-table")).not_to_contain_text("orders-")


def test_further_means_the_place_that_is_shown_whatever_the_form_says(page: Page) -> None:
    fake = FakeMessages(page)
    look(page, "orders")
    expect(page.locator("#message-table")).to_contain_text("orders-")
    page.get_by_label("Queue or topic", exact=True).fill("invoices")
    page.get_by_role("button", name="Look further").click()
    expect(page.locator("#message-table")).to_contain_text("orders-7")
    page.get_by_label("Choose message 7", exact=True).check()
    dead_letter_chosen(page)
    assert (fake.done[0]["arguments"]["entity"], fake.done[0]["arguments"]["numbers"]) == ("orders", ["7"])
