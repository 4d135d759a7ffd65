"""What is shown of the backlog is no older than 30 seconds while anything waits, with the rights of each role (X7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from paired import PairHarness, wait_until
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from roles import QUEUE_COUNT, SENDER, SYPHON, Estate, estate

from twinbus import NamespaceSide, PairedServiceBusClient, PairEvent, SendAvailabilityPairedNamespaceOptions
from twinbus.cli.metrics_export import PairNames, families
from twinbus.syphon import Alert, Progress, Syphon, SyphonOptions
from twinbus.syphon.peeking import depth_watch

WAIT_S = 60


@pytest.fixture
def world() -> Iterator[Estate]:
    with estate() as made:
        yield made


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Half a minute is a tenth of a second; every look has a place here."""
    made: list[int] = []
    look = depth_watch.take_snapshot

    async def counted(*arguments: Any, **options: Any) -> Any:
        found = await look(*arguments, **options)
        made.append(len(made))
        return found

    monkeypatch.setattr(depth_watch, "PEEK_EVERY_MS", 100)
    monkeypatch.setattr(depth_watch, "CHECK_S", 0.02)
    monkeypatch.setattr(depth_watch, "OUTAGE_QUIET_MS", 300)
    monkeypatch.setattr(import_module("twinbus.syphon.syphon"), "take_snapshot", counted)
    return made


def to_backlog(world: Estate, *texts: str) -> None:
    """As a paired client would."""
    for text in texts:
        world.fill(0, ServiceBusMessage(text, application_properties={"x-ms-path": "orders"}))


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_true():
            await asyncio.sleep(0.02)


def samples(progress: Progress) -> dict[str, float]:
    text = generate_latest(families(progress, PairNames("contoso", "backup"))).decode()
    return {one.name: one.value for family in text_string_to_metric_families(text) for one in family.samples}


async def test_a_syphon_looks_with_listen_alone_while_anything_waits_and_not_otherwise(
    world: Estate, looks: list[int]
) -> None:
    world.primary.faults.add("no-send", entities=["orders"])
    to_backlog(world, "1", "2")
    primary, secondary = [one.dial(20.0) for one in world.reach(SYPHON)]
    options = SyphonOptions(backoff_s=(0.1, 0.2), attempt_s=20.0)
    told_of: list[Alert] = []
    syphon = Syphon(
        primary, secondary, "contoso", QUEUE_COUNT, options, queues=range(QUEUE_COUNT), on_alert=told_of.append
    )
    async with syphon:
        await until(lambda: (found := syphon.current_progress().backlog) is not None and found.waiting_messages == 2)
        to_backlog(world, "3")
        await until(lambda: (found := syphon.current_progress().backlog) is not None and found.waiting_messages == 3)
        shown = samples(syphon.current_progress())
        assert shown["twinbus_pair_backlog_messages"] == shown["twinbus_pair_backlog_messages_at_least"] == 3
        assert shown["twinbus_pair_backlog_queues_unread"] == 0
        assert 0 <= shown["twinbus_pair_backlog_oldest_age_seconds"] < WAIT_S
        assert shown["twinbus_pair_backlog_looked_timestamp_seconds"] > 0
        world.primary.faults.clear()
        await until(lambda: (found := syphon.current_progress().backlog) is not None and found.waiting_messages == 0)
        shown = samples(syphon.current_progress())
        assert shown["twinbus_pair_backlog_messages"] == 0
        assert "twinbus_pair_backlog_oldest_age_seconds" not in shown
        await until(lambda: [alert.name for alert in told_of][-1:] == ["backlog_home"])
        before = len(looks)
        await asyncio.sleep(1.0)
        assert len(looks) <= before + 1, "nobody looks into an empty backlog, but a last look may be under way"


async def test_what_cannot_be_read_is_unknown_and_not_zero(world: Estate, looks: list[int]) -> None:
    world.secondary.faults.add("no-receive", entities=["contoso/x-servicebus-transfer/1"])
    primary, secondary = [one.dial(20.0) for one in world.reach(SYPHON)]
    options = SyphonOptions(backoff_s=(0.1, 0.2), attempt_s=20.0)
    async with Syphon(primary, secondary, "contoso", QUEUE_COUNT, options, queues=range(QUEUE_COUNT)) as syphon:
        await until(lambda: (found := syphon.current_progress().backlog) is not None and found.unread_queues == 1)
        shown = samples(syphon.current_progress())
        assert "twinbus_pair_backlog_messages" not in shown
        assert (shown["twinbus_pair_backlog_messages_at_least"], shown["twinbus_pair_backlog_queues_unread"]) == (0, 1)
        assert looks


def test_a_sender_shows_what_it_has_put_there_itself(both: PairHarness) -> None:
    with both.bus() as bus:
        assert bus.status().sent_to_backlog.messages == 0
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        for _ in range(2):
            assert sender.send_messages([ServiceBusMessage("x" * 1_000)] * 2).side is NamespaceSide.BACKLOG
        sent = bus.status().sent_to_backlog
        assert sent.messages == 4
        assert 4_000 < sent.size_bytes < 8_000
        assert sent.first_at is not None
        assert sent.last_at is not None
        assert sent.first_at <= sent.last_at
        text = bus.metrics_text()
        assert "twinbus_pair_sent_to_backlog_messages{client=" in text
        assert "this client put 4 messages there" in str(bus.status())


def test_a_client_with_a_syphon_looks_while_it_is_failed_over(both: PairHarness, looks: list[int]) -> None:
    with both.bus(enable_syphon=True) as bus:
        sender = bus.get_queue_sender(both.orders)
        wait_until(lambda: bus.status().secondary_status.waiting_messages == 0)
        bus.force_failover(both.orders, stay=True)
        before = len(looks)
        wait_until(lambda: len(looks) > before + 2)
        sender.send_messages(ServiceBusMessage("42"))
        wait_until(lambda: bus.status().sent_to_backlog.messages == 0)  # a look has seen that it is home
        assert bus.status().secondary_status.waiting_messages == 0


def test_with_the_keys_of_a_sender_the_backlog_is_unknown(world: Estate) -> None:
    primary, secondary = world.reach(SENDER)
    options = SendAvailabilityPairedNamespaceOptions(secondary, backlog_queue_count=QUEUE_COUNT, create_backlog=False)
    with PairedServiceBusClient(primary, options) as bus:
        bus.recheck()
        found = bus.status().secondary_status
        assert found.looked_at is not None
        assert (found.waiting_messages, found.waiting_at_least, found.unread_queues) == (None, None, QUEUE_COUNT)
        assert "twinbus_pair_backlog_messages{" not in bus.metrics_text()


def test_a_client_with_a_syphon_says_once_that_the_outage_is_over(both: PairHarness, looks: list[int]) -> None:
    with both.bus(enable_syphon=True) as bus:
        shown: list[PairEvent] = []
        bus.on("backlog_home", shown.append)
        sender = bus.get_queue_sender(both.orders)
        bus.force_failover(both.orders, stay=True)
        sender.send_messages(ServiceBusMessage("42"))
        wait_until(lambda: bus.status().secondary_status.waiting_messages == 0)
        before = len(looks)
        wait_until(lambda: len(looks) > before + 5)  # longer than it takes to say it, if it could be said
        assert shown == [], "it is empty, and messages may come: the entity is still failed over"
        bus.mark_healthy(both.orders)
        wait_until(lambda: len(shown) == 1)
        assert shown[0].text == "the outage is over, the backlog is home: 1 message came through this syphon"
        assert shown[0].namespace == bus.status().primary
    assert len(shown) == 1
    assert looks
