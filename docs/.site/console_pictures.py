"""Pictures of the console for the documents: two real namespaces, an outage, and a browser. `make pictures` runs it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from backlog_messages import fill  # noqa: E402
from console_scene import ConsoleProcess, browser, open_page, pair_of_namespaces, run_command, start_command  # noqa: E402
from playwright.sync_api import Page, expect  # noqa: E402

from twinbus.amqp.message import sections  # noqa: E402
from twinbus.amqp.message.sections import PropertyField  # noqa: E402

IMAGES = ROOT / "docs" / "images"
QUEUES = ("orders", "invoices", "payments", "audit")
expect.set_options(timeout=60_000)


def keep(page: Page, name: str, *, whole: bool = False) -> None:
    page.wait_for_timeout(1500)
    page.screenshot(path=IMAGES / f"console-{name}.png", full_page=whole)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    with pair_of_namespaces(folder, QUEUES) as (primary, secondary), browser() as opened:
        pair = (primary.connection_string, secondary.connection_string)
        run_command(*pair, folder, "pair")
        with ConsoleProcess(*pair, folder, "--allow-changes") as console:
            page = open_page(opened, console, width=1360, height=900)
            run_command(*pair, folder, "send", "invoices", "invoice {n}", "--repeat", "40", "--id", "i-{n}")
            page.wait_for_timeout(8000)
            fault = primary.break_("no-send", "orders", length_ms=600_000)
            run_command(*pair, folder, "send", "orders", "late {n}", "--repeat", "240")
            expect(page.locator("#verdict-word")).to_have_text("Failed over")
            expect(page.locator("#answer-waiting .big")).to_have_text("240 messages")
            page.wait_for_timeout(12000)
            keep(page, "light")
            phone = open_page(opened, console, width=390, height=844)
            keep(phone, "phone")
            phone.context.close()
            primary.clear(fault)
            bad = sections.encode_message(properties={PropertyField.MESSAGE_ID: "stranger-1"}, data=b"x")
            fill(secondary.connection_string, "contoso/x-servicebus-transfer/0", [bad])
            page.emulate_media(color_scheme="dark")
            with start_command(*pair, folder, "syphon", "--rate", "6"):
                page.wait_for_timeout(14000)
                page.locator("#syphons").get_by_role("button", name="Pause").wait_for()
                keep(page, "dark")
            page.emulate_media(color_scheme="light")
            page.get_by_role("link", name="Messages").click()
            page.get_by_label("Queue or topic").fill("invoices")
            page.get_by_role("button", name="Look", exact=True).click()
            page.get_by_role("button", name="Show message 7").click()
            page.get_by_label("Choose message 7").check()
            expect(page.locator("#message")).to_contain_text("invoice 7")
            keep(page, "messages")


if __name__ == "__main__":
    main()
