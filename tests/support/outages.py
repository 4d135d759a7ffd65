"""Outages of the primary, of every kind, for tests of clients and proxies that send to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusQuotaExceededError
from azure.servicebus.management import EntityStatus
from paired import PairHarness

SILENCE = timedelta(seconds=3)
"""One attempt where silence has to be waited for."""
PATIENCE = timedelta(seconds=20)
"""One attempt where an answer comes, even on a busy machine."""


def kill(harness: PairHarness) -> None:
    harness.primary.kill()


def disable(harness: PairHarness) -> None:
    harness.primary.change_queue(harness.orders, status=EntityStatus.SEND_DISABLED)


def delete(harness: PairHarness) -> None:
    harness.primary.admin.delete_queue(harness.orders)


def fill(harness: PairHarness) -> None:
    harness.primary.change_queue(harness.orders, max_size_in_megabytes=1)
    with harness.primary.sending(harness.orders) as sender:
        for size in (200_000, 20_000, 1_000, 1):
            with suppress(ServiceBusQuotaExceededError):
                while True:
                    sender.send_messages(ServiceBusMessage(b"x" * size))


def unreachable(how: str) -> Callable[[PairHarness], None]:
    def cut_off(harness: PairHarness) -> None:
        harness.primary.break_("unreachable", how=how)

    return cut_off


def fault(name: str) -> Callable[[PairHarness], None]:
    def add(harness: PairHarness) -> None:
        harness.primary.break_(name, harness.orders)

    return add


OUTAGES: dict[str, Callable[[PairHarness], None]] = {
    "killed": kill,
    "refuse": unreachable("refuse"),
    "drop": unreachable("drop"),
    "silent": unreachable("silent"),
    "no-send": fault("no-send"),
    "unanswered": fault("unanswered"),
    "restart": fault("restart"),
    "disabled": disable,
    "full": fill,
    "deleted": delete,
}


def heal(harness: PairHarness) -> None:
    harness.primary.heal()
    if harness.orders not in harness.primary.queue_names(harness.orders):
        harness.primary.admin.create_queue(harness.orders)
    harness.primary.change_queue(harness.orders, status=EntityStatus.ACTIVE, max_size_in_megabytes=1024)


def attempt_for(outage: str) -> timedelta:
    return SILENCE if outage in ("silent", "unanswered") else PATIENCE
