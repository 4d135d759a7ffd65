"""An outage as an operator sees it: real namespaces, a real console, a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from backlog_messages import backlog_message, fill
from console_scene import ConsoleProcess, open_page, pair_of_namespaces, run_command, serious_on, start_command
from playwright.sync_api import Browser, Page, expect
from served import Served

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.syphon.pump.dead_letter_reasons import MALFORMED

pytestmark = [pytest.mark.console, pytest.mark.timeout(600)]

BACKLOG = "contoso/x-servicebus-transfer/0"
EVIL = "<img src=x onerror=window.hacked=1>"
expect.set_options(timeout=40_000)


class Scene:
    def __init__(self, primary: Served, secondary: Served, console: ConsoleProcess, folder: Path) -> None:
        self.primary, self.secondary, self.console, self.folder = primary, secondary, console, folder

    def run(self, *arguments: str) -> str:
        """`twinbus` with these arguments, for this pair; what it printed."""
        return run_command(self.primary.connection_string, self.secondary.connection_string, self.folder, *arguments)

    def secondary_waiting(self) -> int:
        queues = self.secondary.admin.list_queues_runtime_properties()
        return sum(queue.active_message_count or 0 for queue in queues)

    def settled_waiting(self, page: Page) -> int:
        """What waits once it has not changed for some seconds: what a syphon held goes back first."""
        before, left = -1, self.secondary_waiting()
        for _ in range(20):
            if left == before:
                return left
            page.wait_for_timeout(3000)
            before, left = left, self.secondary_waiting()
        raise AssertionError("it goes on")

    def quarantine_one(self, description: str) -> None:
        """A message that did not come from a paired client, put aside for that reason."""
        bad = sections.encode_message(properties={PropertyField.MESSAGE_ID: "evil-1"}, data=b"x")
        fill(self.secondary.connection_string, BACKLOG, [bad])
        which = ("--side", "secondary", "--id", "evil-1")
        self.run("message", "dead-letter", BACKLOG, *which, "--why", MALFORMED, "--description", description)

    def backlog_for(self, entity: str) -> None:
        fill(self.secondary.connection_string, BACKLOG, [backlog_message(entity, "odd")])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("console")
    with pair_of_namespaces(folder) as (primary, secondary):
        pair = (primary.connection_string, secondary.connection_string)
        run_command(*pair, folder, "pair")
        with ConsoleProcess(*pair, folder, "--allow-changes") as console:
            yield Scene(primary, secondary, console, folder)


@pytest.fixture
def page(scene: Scene, browser: Browser) -> Iterator[Page]:
    """Every test ends without an error on the page."""
    opened = open_page(browser, scene.console)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda said: errors.append(said.text) if "Content Security" in said.text else None)
    yield opened
    scene.primary.clear()
    assert opened.evaluate("window.hacked") is None
    assert errors == []
    opened.context.close()


def verdict(page: Page, word: str) -> None:
    expect(page.locator("#verdict-word")).to_have_text(word)


def test_a_failover_and_a_drain_are_watched_and_steered(scene: Scene, page: Page) -> None:
    verdict(page, "Healthy")
    expect(page.locator("#answer-todo")).to_contain_text("Nothing")
    fault = scene.primary.break_("no-send", "orders")
    scene.run("send", "orders", "late {n}", "--repeat", "200")
    verdict(page, "Failed over")
    row = page.locator("#entities tr", has_text="orders")
    expect(row).to_contain_text("failed over")
    expect(row).to_contain_text("200")
    expect(page.locator("#answer-waiting .big")).to_have_text("200 messages")
    expect(page.locator("#events")).to_contain_text("orders is failed over")
    scene.primary.clear(fault)
    verdict(page, "Waiting")
    expect(page.locator("#answer-todo")).to_contain_text("twinbus syphon --first 1 --until-empty")
    pair = (scene.primary.connection_string, scene.secondary.connection_string)
    with start_command(*pair, scene.folder, "syphon", "--rate", "5") as syphon:
        card = page.locator("#syphons .cards > div")
        card.get_by_role("button", name="Pause").click()
        expect(card).to_contain_text("paused")
        expect(page.locator("#answer-home .big")).to_have_text("Paused")
        assert scene.settled_waiting(page) > 0, "paused is paused"
        card.get_by_role("button", name="Pace").click()
        page.get_by_label("Messages a second, at most").fill("")
        expect(page.locator("#dialog code")).to_contain_text("twinbus syphon pace")
        page.get_by_role("button", name="Change").click()
        expect(page.locator("#toasts")).to_contain_text("new pace")
        card.get_by_role("button", name="Resume").click()
        expect(page.locator("#answer-waiting .big")).to_have_text("Nothing")
        verdict(page, "Healthy")
        assert syphon.poll() is None
    assert len(scene.primary.messages("orders")) == 200


def test_messages_are_browsed_dead_lettered_resubmitted_and_purged(scene: Scene, page: Page) -> None:
    for number in range(3):
        scene.run("send", "invoices", "an invoice", "--id", f"i-{number}", "--property", f"who={EVIL}")
    page.get_by_role("link", name="Messages").click()
    page.get_by_label("Queue or topic").fill("invoices")
    page.get_by_role("button", name="Look", exact=True).click()
    expect(page.locator("#found")).to_contain_text("3 messages shown")
    page.get_by_label("Message id").fill("i-1")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text("1 message shown")
    page.get_by_role("button", name="Show message").click()
    expect(page.locator("#message")).to_contain_text(EVIL)
    page.get_by_label("Choose message").check()
    page.get_by_role("button", name="Dead-letter 1").click()
    page.get_by_label("Reason", exact=True).last.fill(EVIL)
    page.locator("#dialog").get_by_role("button", name="Dead-letter").click()
    expect(page.locator("#toasts")).to_contain_text("1 dead-lettered")
    page.get_by_label("dead letters").check()
    page.get_by_label("Message id").fill("")
    page.get_by_role("button", name="Look", exact=True).click()
    expect(page.locator("#message-table")).to_contain_text(EVIL)
    page.get_by_label("Choose message").check()
    page.get_by_role("button", name="Resubmit 1").click()
    page.locator("#dialog").get_by_role("button", name="Resubmit").click()
    expect(page.locator("#toasts")).to_contain_text("1 resubmitted")
    page.get_by_label("dead letters").uncheck()
    page.get_by_role("button", name="Look", exact=True).click()
    expect(page.locator("#found")).to_contain_text("3 messages shown")
    page.get_by_role("button", name="Purge all that fit").click()
    remove = page.locator("#dialog").get_by_role("button", name="Remove 3")
    expect(remove).to_be_disabled()
    page.get_by_label("Type 3").fill("3")
    remove.click()
    expect(page.locator("#toasts")).to_contain_text("3 removed")
    assert scene.primary.messages("invoices") == []


def test_the_quarantine_is_looked_at_and_sent_home(scene: Scene, page: Page) -> None:
    scene.quarantine_one(EVIL)
    row = page.locator("#quarantine tbody tr")
    expect(row).to_contain_text("TwinbusMalformed")
    expect(row).to_contain_text("evil-1")
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Send home: 1").click()
    page.locator("#dialog").get_by_role("button", name="Send home").click()
    expect(page.locator("#toasts")).to_contain_text("0 sent home; 1 stayed")
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Throw away: 1").click()
    page.get_by_label("Type 1").fill("1")
    page.locator("#dialog").get_by_role("button", name="Throw away").click()
    expect(page.locator("#quarantine")).to_contain_text("Nothing is in quarantine")


def test_script_in_names_and_reasons_is_shown_as_text(scene: Scene, page: Page) -> None:
    name = "a<script>window.hacked=1</script>b"
    scene.primary.break_("refuse", "orders", condition="amqp:internal-error", text=EVIL, on="sends")
    scene.backlog_for(name)
    expect(page.locator("#entities")).to_contain_text(name)
    expect(page.locator("#entities")).to_contain_text(EVIL)
    expect(page.locator("#events")).to_contain_text(EVIL)
    assert page.locator("#entities script, #entities img, #events img").count() == 0
    scene.run("message", "purge", BACKLOG, "--side", "secondary", "--all", "--yes")


def test_a_fault_is_ordered_and_cleared_on_the_page(scene: Scene, page: Page) -> None:
    page.get_by_role("button", name="Hold a drill").click()
    page.get_by_label("Queue or topic", exact=False).last.fill("invoices")
    page.get_by_role("button", name="Make it fail").click()
    expect(page.locator("#faults")).to_contain_text("invoices")
    page.locator("#faults").get_by_role("button", name="Clear no-send").click()
    expect(page.locator("#faults")).to_contain_text("None is in force")


def test_a_page_says_that_it_is_disconnected_and_comes_back_by_itself(scene: Scene, page: Page) -> None:
    scene.console.kill()
    expect(page.locator("#offline")).to_contain_text("Disconnected since")
    expect(page.locator("#link")).to_contain_text("disconnected")
    assert serious_on(page) == []
    scene.console.start()
    expect(page.locator("#link")).to_contain_text("live")
    expect(page.locator("#offline")).to_be_hidden()
    expect(page.locator("#verdict-word")).not_to_have_text("Looking at both namespaces")


def test_a_page_whose_console_falls_silent_says_so_and_comes_back_by_itself(scene: Scene, page: Page) -> None:
    """Nothing ends such a connection: a tunnel that has lost its other end looks the same."""
    expect(page.locator("#link")).to_contain_text("live")
    scene.console.suspend()
    try:
        expect(page.locator("#offline")).to_contain_text("Disconnected since")
    finally:
        scene.console.resume()
    expect(page.locator("#link")).to_contain_text("live")
    expect(page.locator("#offline")).to_be_hidden()


def test_without_allow_changes_there_are_no_buttons_and_the_server_refuses(scene: Scene, browser: Browser) -> None:
    pair = (scene.primary.connection_string, scene.secondary.connection_string)
    folder = scene.folder / "read-only"
    folder.mkdir()
    with ConsoleProcess(*pair, folder) as console:
        page = open_page(browser, console)
        expect(page.locator("#mode")).to_have_text("only shows")
        expect(page.locator("#faults button")).to_have_count(0)
        status = page.evaluate(
            """async () => {
                 const { proof } = await (await fetch("api/session")).json();
                 const body = JSON.stringify({ action: "fault.add", arguments: { side: "primary", fault: "no-send" } });
                 return (await fetch("api/do", { method: "POST", headers: { "X-Twinbus-Proof": proof }, body })).status;
               }"""
        )
        assert status == 403
        page.context.close()
