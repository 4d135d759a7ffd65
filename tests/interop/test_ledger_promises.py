"""Every kind of event, provoked by whoever is said to record it, has every field that the reference page promises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus import ServiceBusSender as SdkSender
from azure.servicebus.aio import ServiceBusSender as SdkAioSender
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import EntityStatus
from backlog_messages import backlog_message, put, unaddressed
from cost_scenario import metered
from ledger_disks import RefusingDisk
from paired import WAIT_S, Heard, PairHarness, wait_until
from promises import broken_promises, kinds_by, kinds_in, of_kind, records_of

from twinbus import PairedServiceBusClient, Retry
from twinbus.amqp.message.sections import Header
from twinbus.client.namespace import Namespace
from twinbus.client.sync.sender import PairedServiceBusSender
from twinbus.errors import BothNamespacesUnavailable
from twinbus.ledger import Event, Kind, Ledger, verify
from twinbus.ledger.options import LedgerOptions
from twinbus.syphon import Syphon, SyphonOptions
from twinbus.syphon.quarantine import Quarantine
from twinbus.testing import LocalNamespace, NamespacePair
from twinbus.transport.dial import Dial

LATE_S = 0.5
BACKLOG = "contoso/x-servicebus-transfer/0"


def named(*names: str) -> list[ServiceBusMessage]:
    return [ServiceBusMessage("x" * 10, message_id=name) for name in names]


# --- the paired client ---


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Something that waits, and whose end nobody cares about, on another thread."""

    def do() -> None:
        with suppress(Exception):
            work()

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    yield
    thread.join(WAIT_S)


def send_and_receive(harness: PairHarness, bus: PairedServiceBusClient) -> None:
    with bus.get_queue_sender(harness.orders) as sender, bus.get_queue_receiver(harness.orders) as receiver:
        sender.send_messages(named("first", "second"))
        for settle in (receiver.complete_message, receiver.dead_letter_message):
            settle(receiver.receive_messages(1, max_wait_time=WAIT_S)[0])
        numbers = sender.schedule_messages(named("later"), datetime.now(UTC) + timedelta(hours=1))
        sender.cancel_scheduled_messages(numbers)


def lose_a_backlog_queue(harness: PairHarness, bus: PairedServiceBusClient) -> None:
    for status in (EntityStatus.SEND_DISABLED, EntityStatus.ACTIVE):
        harness.secondary.change_queue(harness.backlog(0), status=status)
        bus.recheck()


def go_through_an_outage(harness: PairHarness, bus: PairedServiceBusClient, heard: Heard) -> None:
    with bus.get_queue_sender(harness.orders) as sender:
        harness.primary.break_("no-send", harness.orders)
        sender.send_messages(named("away"))
        heard.wait_for("ping_failed")
        harness.secondary.break_("unreachable", how="drop")
        with meanwhile(lambda: sender.send_messages(named("away too"))):
            heard.wait_for("secondary_unreachable")
            harness.secondary.clear()
            heard.wait_for("secondary_back")
        harness.secondary.break_("no-send")
        with pytest.raises(BothNamespacesUnavailable):
            sender.send_messages(named("nowhere"))
        harness.secondary.clear()
        harness.primary.clear()
        heard.wait_for("recovered")


def lose_an_answer(harness: PairHarness, bus: PairedServiceBusClient, heard: Heard) -> None:
    harness.primary.break_("unanswered", harness.invoices)
    sender = bus.get_queue_sender(harness.invoices)
    with meanwhile(lambda: sender.send_messages(named("doubtful"))):
        wait_until(lambda: harness.primary.operations(harness.invoices).get("send"))
        harness.primary.break_("unreachable", how="drop")
        heard.wait_for("in_doubt")
        harness.primary.clear()


def ask_by_link(harness: PairHarness, folder: Path) -> None:
    with harness.bus(ledger=folder, probe="link") as bus, bus.get_queue_sender(harness.orders) as sender:
        heard = Heard(bus)
        sender.send_messages(named("third"))
        bus.force_failover(harness.orders)
        wait_until(lambda: bus.status().entities[0].waits_for_message)
        sender.send_messages(named("fourth"))
        heard.wait_for("recovered")


@pytest.mark.long
def test_whatever_a_client_records_has_what_the_page_promises(both: PairHarness, tmp_path: Path) -> None:
    ask_by_link(both, tmp_path)
    wishes: dict[str, Any] = {"failover_interval": timedelta(seconds=1), "hold_sends": True, "retry": Retry(attempts=2)}
    with both.bus(ledger=tmp_path, probe="ping", **wishes) as bus:
        heard = Heard(bus)
        send_and_receive(both, bus)
        lose_a_backlog_queue(both, bus)
        go_through_an_outage(both, bus, heard)
        lose_an_answer(both, bus, heard)
        both.primary.break_("busy", both.orders, per_second=0)
        sender = bus.get_queue_sender(both.orders)
        with meanwhile(lambda: sender.send_messages(named("one too many"))):
            heard.wait_for("busy")
            bus.fault("the scenario ends")
    records = [record for record in records_of(tmp_path) if record.program == "client"]
    assert kinds_in(records) == kinds_by("client")
    assert broken_promises(records) == []


@pytest.mark.long
def test_a_backlog_queue_that_is_busy_is_reported_and_recorded_with_namespace_and_queue(
    both: PairHarness, tmp_path: Path
) -> None:
    with both.bus(ledger=tmp_path) as bus, bus.get_queue_sender(both.orders) as sender:
        heard = Heard(bus)
        bus.force_failover(both.orders, stay=True)
        both.secondary.break_("busy", per_second=0)
        with pytest.raises(BothNamespacesUnavailable):
            sender.send_messages(named("one too many"))
        busy = heard.wait_for("busy")
        assert (busy.entity, busy.namespace) == (both.orders, both.secondary.name)
    found = of_kind(records_of(tmp_path), Kind.THROTTLED)
    assert {(each.namespace, each.entity) for each in found} == {(both.secondary.name, both.orders)}
    assert all(each.queue.startswith(f"{both.name}/x-servicebus-transfer/") for each in found)
    assert all(8_000 < each.until_ms - each.at_ms <= 10_100 for each in found)


@pytest.mark.parametrize("side", ["primary", "backlog"])
def test_what_becomes_of_sends_that_closing_cuts_off_is_in_the_ledger(
    both: PairHarness, tmp_path: Path, side: str
) -> None:
    names = {f"m{number}" for number in range(8)}
    with (
        both.bus(ledger=tmp_path, attempt_timeout=timedelta(seconds=60), backlog_queue_count=4) as bus,
        ExitStack() as sends,
    ):
        senders = {name: bus.get_queue_sender(both.orders) for name in names}
        if side == "backlog":
            bus.force_failover(both.orders, stay=True)
        for name, sender in senders.items():
            sender.send_messages(named(f"before {name}"))
        there = both.primary if side == "primary" else both.secondary
        there.break_("unanswered")
        before = sum(one["operations"] for one in there.readings() if one["kind"] == "send")
        for name, sender in senders.items():
            sends.enter_context(meanwhile(partial(sender.send_messages, named(name))))
        wait_until(lambda: sum(one["operations"] for one in there.readings() if one["kind"] == "send") == before + 8)
        bus.close()
    there.clear()
    records = records_of(tmp_path)
    found = [name for each in of_kind(records, Kind.IN_DOUBT) for name in each.message_ids]
    assert sorted(found) == sorted(names)
    assert verify(tmp_path).is_complete


def dawdle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is cut off in the SDK needs a while to notice, as on a machine that is short of processors."""
    send, send_async = SdkSender.send_messages, SdkAioSender.send_messages

    def late(self: SdkSender, *args: Any, **kwargs: Any) -> None:
        try:
            send(self, *args, **kwargs)
        except Exception:
            sleep(LATE_S)
            raise

    async def late_async(self: SdkAioSender, *args: Any, **kwargs: Any) -> None:
        try:
            await send_async(self, *args, **kwargs)
        except Exception:
            await asyncio.sleep(LATE_S)
            raise

    monkeypatch.setattr(SdkSender, "send_messages", late)
    monkeypatch.setattr(SdkAioSender, "send_messages", late_async)


def dawdle_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for what a thread does next, after it has given its turn to others; a task does that in one go."""
    anew = PairedServiceBusSender._send_anew

    def late(self: PairedServiceBusSender, *args: Any) -> Any:
        sleep(LATE_S)
        return anew(self, *args)

    monkeypatch.setattr(PairedServiceBusSender, "_send_anew", late)


@pytest.mark.parametrize("slow", [dawdle, dawdle_afterwards])
def test_closing_waits_for_the_record_of_a_send_that_is_slow_to_notice_its_end(
    both: PairHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with both.bus(ledger=tmp_path, attempt_timeout=timedelta(seconds=60)) as bus, ExitStack() as sends:
        sender = bus.get_queue_sender(both.orders)
        sender.send_messages(named("before"))
        both.primary.break_("unanswered")
        slow(monkeypatch)
        sends.enter_context(meanwhile(partial(sender.send_messages, named("cut off"))))
        wait_until(lambda: both.primary.operations(both.orders).get("send") == 2)
        bus.close()
    both.primary.clear()
    found = [each.message_ids for each in of_kind(records_of(tmp_path), Kind.IN_DOUBT)]
    assert found == [("cut off",)]


def test_cancelling_what_this_client_has_scheduled_is_recorded_with_ids_and_others_by_number(
    both: PairHarness, tmp_path: Path
) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    with both.bus(ledger=tmp_path / "other") as bus, bus.get_queue_sender(both.orders) as sender:
        strange = sender.schedule_messages(named("of somebody else"), later)
    with both.bus(ledger=tmp_path / "own") as bus, bus.get_queue_sender(both.orders) as sender:
        known = sender.schedule_messages(named("a", "b", "c"), later)
        with bus.get_queue_sender(both.orders) as another:
            another.cancel_scheduled_messages([*strange, known[2], known[0]])
    found = of_kind(records_of(tmp_path / "own"), Kind.CANCELLED)
    assert [(each.message_ids, each.sequence_numbers, each.count) for each in found] == [
        (("c", "a"), (known[2], known[0]), 0),
        ((), tuple(strange), 1),
    ]


# --- the syphon ---

QUICK: dict[str, Any] = {"backoff_s": (0.1, 0.5), "busy_s": 0.5, "attempt_s": 6.0, "lock_s": 5.0}
OLD = Header(ttl_ms=1)


def dials_of(pair: NamespacePair) -> tuple[Dial, Dial]:
    home, backlog = [Namespace.from_connection_string(each.connection_string).dial() for each in pair]
    return home, backlog


async def fill(pair: NamespacePair, *messages: bytes) -> None:
    await put(pair.secondary.connection_string, BACKLOG, messages)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def through_thick_and_thin(pair: NamespacePair, syphon: Syphon) -> None:
    faults, tally = pair.primary.faults, syphon.pump.counts
    await fill(pair, backlog_message("orders", "plain"), backlog_message("orders", "old", header=OLD), unaddressed())
    await until(lambda: tally.moved == 1 and tally.expired == 1 and tally.refused == 1)
    assert await syphon.count() == 0
    syphon.pause()
    syphon.resume()
    for number, condition in enumerate(("com.microsoft:server-busy", "amqp:internal-error"), 2):
        faults.add("refuse", entities=["orders"], condition=condition, count=1, on="sends")
        await fill(pair, backlog_message("orders", condition))
        await until(lambda number=number: tally.moved == number)  # type: ignore[misc]
    faults.add("unanswered", entities=["orders"], count=1)
    await fill(pair, backlog_message("orders", "doubtful"))
    await until(lambda: tally.moved == 4)
    faults.add("slow", entities=["orders"], delay=timedelta(seconds=4))
    await fill(pair, backlog_message("orders", "slow"))
    await until(lambda: tally.locks_renewed and tally.received > tally.stored + tally.released)
    await asyncio.to_thread(pair.secondary.restart)
    await until(lambda: tally.moved == 5)


async def empty_the_quarantine(pair: NamespacePair, ledger: Ledger) -> None:
    home, backlog = dials_of(pair)
    pair.primary.faults.clear()
    async with Quarantine(backlog, "contoso", 1, ledger=ledger) as quarantine:
        await quarantine.redrive(home, lambda found: True)
        await quarantine.discard(lambda found: True)


@pytest.mark.long
async def test_whatever_a_syphon_records_has_what_the_page_promises(
    namespace_pair: NamespacePair, tmp_path: Path
) -> None:
    primary, secondary = namespace_pair
    primary.create_queue("orders")
    secondary.create_queue(BACKLOG, lock_ms=5_000, max_delivery_count=2_147_483_647)
    home, backlog = dials_of(namespace_pair)
    with Ledger.at(tmp_path, "syphon") as ledger:
        async with Syphon(home, backlog, "contoso", 1, SyphonOptions(**QUICK), ledger=ledger) as syphon:
            await through_thick_and_thin(namespace_pair, syphon)
        await empty_the_quarantine(namespace_pair, ledger)
    records = records_of(tmp_path)
    assert kinds_in(records) == kinds_by("syphon")
    assert broken_promises(records) == []


async def test_every_peek_of_a_syphon_and_of_a_quarantine_is_recorded_as_the_meter_counts_it(
    namespace_pair: NamespacePair, tmp_path: Path
) -> None:
    primary, secondary = namespace_pair
    primary.create_queue("orders")
    secondary.create_queue(BACKLOG)
    home, backlog = dials_of(namespace_pair)
    await fill(namespace_pair, unaddressed(), *[backlog_message("orders", f"m{number}") for number in range(20)])
    with Ledger.at(tmp_path, "syphon") as ledger:
        options = SyphonOptions(canary=5, **QUICK)
        async with Syphon(home, backlog, "contoso", 1, options, ledger=ledger) as syphon:
            await until(
                lambda: (
                    syphon.current_progress().state == "paused after the canary" and syphon.current_progress().held == 0
                )
            )
            assert await syphon.count()
            syphon.resume()
            await until(lambda: syphon.pump.counts.moved == 20 and syphon.pump.counts.refused == 1)
        await empty_the_quarantine(namespace_pair, ledger)
    found = of_kind(records_of(tmp_path), Kind.PEEKED)
    counted = metered(secondary)
    assert sum(each.count for each in found) == counted["peek", "operations"] > 2
    assert sum(each.bytes for each in found) == counted["peek", "size"] > 0
    assert {each.queue for each in found} == {BACKLOG}, "never the name of a dead-letter queue"


# --- a namespace ---


def take(receiver: ServiceBusReceiver, settle: str) -> None:
    with receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        getattr(receiver, settle)(message)


def live_through_everything(namespace: LocalNamespace, client: ServiceBusClient) -> None:
    with client.get_queue_sender("orders") as orders:
        orders.send_messages(named("a", "b"))
        orders.send_messages(named("a"))
        orders.cancel_scheduled_messages(orders.schedule_messages(named("c"), datetime.now(UTC) + timedelta(hours=1)))
        orders.send_messages([ServiceBusMessage("x", message_id="short-lived", time_to_live=timedelta(milliseconds=1))])
    with client.get_topic_sender("news") as news:
        news.send_messages(named("d"))
    with client.get_topic_sender("unread") as unread:
        unread.send_messages(named("e"))
    with client.get_queue_sender("passage") as passage:
        passage.send_messages(named("f"))
    take(client.get_queue_receiver("orders"), "complete_message")
    take(client.get_queue_receiver("orders"), "dead_letter_message")
    with client.get_queue_receiver("orders") as idle:
        assert idle.receive_messages(1, max_wait_time=0.1) == []
    namespace.faults.add("busy", entities=["orders"], per_second=0)
    with suppress(ServiceBusError), client.get_queue_sender("orders") as orders:
        orders.send_messages(named("g"))
    namespace.faults.clear()


def test_whatever_a_namespace_records_has_what_the_page_promises(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    namespace = LocalNamespace("contoso", data=tmp_path / "data", ledger=ledger)
    with (
        namespace,
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client,
        Namespace.from_connection_string(namespace.connection_string).admin_client(WAIT_S) as admin,
    ):
        namespace.create_queue("orders", requires_duplicate_detection=True)
        namespace.create_topic("news", "all")
        namespace.create_topic("unread")
        namespace.create_queue("goal")
        namespace.create_queue("passage", forward_to="goal")
        live_through_everything(namespace, client)
        namespace.restart()
        admin.delete_queue("goal")
    records = records_of(ledger)
    assert kinds_in(records) == kinds_by("namespace")
    assert broken_promises(records) == []


# --- the ledger itself ---


def test_whatever_a_ledger_records_of_itself_has_what_the_page_promises(tmp_path: Path) -> None:
    disk = RefusingDisk()
    options = LedgerOptions(directory=tmp_path, memory_bytes_max=100_000)
    with Ledger(options, disk=disk) as ledger:
        ledger.record(Event(Kind.RESUMED, reason=cast("str", 7)))
        assert ledger.flush()
        disk.room = 0
        for _ in range(1_000):
            ledger.record(Event(Kind.RESUMED))
        disk.room = None
        assert ledger.flush()
    records = [record for record in records_of(tmp_path) if record.kind != Kind.RESUMED]
    assert {record.kind for record in records} == kinds_by("ledger")
    assert broken_promises(records) == []
