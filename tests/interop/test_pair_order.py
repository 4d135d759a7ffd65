"""`order="session"`: what was sent in order is received in order on the primary, whatever happened between."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from backlog_messages import backlog_messages_for, fill
from paired import WAIT_S, Heard, OnLoop, PairHarness, wait_until

from twinbus import PairedServiceBusClient, SendReceipt
from twinbus.errors import BothNamespacesUnavailable
from twinbus.pairing.backlog.ordering import key_of, queue_for
from twinbus.pairing.sending.receipt import NamespaceSide

ORDERED: dict[str, Any] = {"order": "session", "enable_syphon": True}


def message(session_id: str | None, number: int) -> ServiceBusMessage:
    return ServiceBusMessage(str(number), session_id=session_id)


def received(harness: PairHarness, count: int, queue: str | None = None) -> dict[str | None, list[int]]:
    """The numbers of each session as a receiver on the primary gets them."""
    found: dict[str | None, list[int]] = defaultdict(list)
    for each in harness.primary.take(queue or harness.orders, count):
        found[each.session_id].append(int(str(each)))
    return found


def is_clear(bus: PairedServiceBusClient, queue: str) -> bool:
    """Whether sends may go straight to the primary."""
    target: Any = getattr(bus, "_target", bus)
    return bool(target._state.pair.entity(queue).is_plain)


def command_syphon(bus: Any, what: str) -> None:
    """Let the syphon inside a client "pause" or "resume", which is done when this returns."""
    syphon = getattr(bus, "_target", bus)._state.syphon.syphon
    loop = bus._loop.loop if isinstance(bus, OnLoop) else bus._runner._syphon._loop

    async def command() -> None:
        getattr(syphon, what)()

    asyncio.run_coroutine_threadsafe(command(), loop).result(WAIT_S)


def test_every_session_is_received_in_the_order_in_which_it_was_sent(both: PairHarness) -> None:
    with both.bus(**ORDERED) as bus, bus.get_queue_sender(both.orders) as sender:
        heard = Heard(bus)
        wait_until(lambda: is_clear(bus, both.orders))
        sides: list[NamespaceSide] = []

        def send(start: int) -> None:
            for number in range(start, start + 40):
                receipt = sender.send_messages(message("abc"[number % 3] if number % 4 else None, number))
                sides.append(receipt.side)

        send(0)
        fault = both.primary.break_("no-send", both.orders)
        send(40)
        heard.wait_for("failed_over")
        send(80)
        both.primary.clear(fault)
        heard.wait_for("recovered")
        send(120)
        wait_until(lambda: is_clear(bus, both.orders))
        send(160)
    numbers = received(both, 200)
    assert sorted(number for found in numbers.values() for number in found) == list(range(200))
    assert all(found == sorted(found) for found in numbers.values())
    assert set(sides) == {NamespaceSide.PRIMARY, NamespaceSide.BACKLOG}
    assert sides[-1] is NamespaceSide.PRIMARY, "after the backlog is home sends go straight again"


@pytest.mark.long
def test_sends_go_on_into_the_backlog_while_a_large_one_comes_home(both: PairHarness) -> None:
    with both.bus(**ORDERED, backlog_queue_count=1) as bus, bus.get_queue_sender(both.orders) as sender:
        heard = Heard(bus)
        wait_until(lambda: is_clear(bus, both.orders))
        fault = both.primary.break_("no-send", both.orders)
        sender.send_messages(message("a", 0))
        for start in range(1, 5_001, 1_000):
            sender.send_messages([message("a", number) for number in range(start, start + 1_000)])
        order = bus.status().order
        assert order is not None
        assert (order.fences, order.largest[0].session_id) == (1, "a")
        assert 5_000 <= order.messages_left <= 5_001
        command_syphon(bus, "pause")  # or it might have brought everything home before the first of these sends
        both.primary.clear(fault)
        heard.wait_for("recovered")
        receipts: list[SendReceipt] = [sender.send_messages(message("a", 5_001))]
        command_syphon(bus, "resume")
        while receipts[-1].side is NamespaceSide.BACKLOG:
            receipts.append(sender.send_messages(message("a", 5_001 + len(receipts))))
        for _ in range(20):
            receipts.append(sender.send_messages(message("a", 5_001 + len(receipts))))
    assert receipts[0].side is NamespaceSide.BACKLOG, "its predecessors are still there"
    assert {receipt.side for receipt in receipts[-20:]} == {NamespaceSide.PRIMARY}
    assert received(both, 5_001 + len(receipts)) == {"a": list(range(5_001 + len(receipts)))}


def test_somebody_who_never_pauses_is_handed_over_all_the_same(both: PairHarness) -> None:
    with both.bus(**ORDERED) as bus, bus.get_queue_sender(both.orders) as sender:
        wait_until(lambda: is_clear(bus, both.orders))
        sides: list[NamespaceSide] = []
        is_over = threading.Event()

        def send_for_ever() -> None:
            while not is_over.is_set():
                sides.append(sender.send_messages(message("a", len(sides))).side)

        thread = threading.Thread(target=send_for_ever)
        thread.start()
        try:
            wait_until(lambda: len(sides) > 20)
            fault = both.primary.break_("no-send", both.orders)
            wait_until(lambda: NamespaceSide.BACKLOG in sides)
            both.primary.clear(fault)
            wait_until(lambda: is_clear(bus, both.orders) and NamespaceSide.BACKLOG not in sides[-50:])
        finally:
            is_over.set()
            thread.join()
    assert received(both, len(sides)) == {"a": list(range(len(sides)))}


def test_after_a_restart_nothing_overtakes_what_an_earlier_process_left_behind(both: PairHarness) -> None:
    with both.bus(**ORDERED):
        pass  # only to have the queues
    queue = queue_for(key_of(both.orders, None), range(2))
    fill(both.secondary.connection_string, both.backlog(queue), backlog_messages_for(both.orders, 3_000))
    with both.bus(**ORDERED) as bus, bus.get_queue_sender(both.orders) as sender:
        sender.send_messages(message(None, 0))
        wait_until(lambda: is_clear(bus, both.orders), within_s=60)
        assert sender.send_messages(message(None, 1)).side is NamespaceSide.PRIMARY
        texts = [str(each) for each in both.primary.take(both.orders, 3_002)]
    assert texts[-2:] == ["0", "1"]


def test_a_batch_with_several_sessions_is_split_and_the_receipt_shows_where_each_is(both: PairHarness) -> None:
    with both.bus(**ORDERED) as bus, bus.get_queue_sender(both.orders) as sender:
        wait_until(lambda: is_clear(bus, both.orders))
        fault = both.primary.break_("no-send", both.orders)
        first = sender.send_messages(message("a", 0))
        sessions = ["a", "b", "c", "d", "e", "f"]
        receipt = sender.send_messages([message(sessions[number % 6], number) for number in range(1, 61)])
        both.primary.clear(fault)
        assert receipt.side is NamespaceSide.BACKLOG
        assert receipt.is_complete
        assert set(receipt.places) == {both.backlog(0), both.backlog(1)}
        by_session = {
            session: {receipt.places[n - 1] for n in range(1, 61) if sessions[n % 6] == session} for session in sessions
        }
        assert all(len(places) == 1 for places in by_session.values()), "a session has one queue"
        assert by_session["a"] == set(first.places)
        wait_until(lambda: is_clear(bus, both.orders))
    numbers = received(both, 61)
    assert all(found == sorted(found) for found in numbers.values())


def test_a_lost_queue_is_not_replaced_by_another(both: PairHarness) -> None:
    with both.bus(**ORDERED, backlog_queue_count=2) as bus, bus.get_queue_sender(both.orders) as sender:
        wait_until(lambda: is_clear(bus, both.orders))
        both.primary.break_("no-send", both.orders)
        place = sender.send_messages(message("a", 0)).places[0]
        both.secondary.break_("no-send", place)
        with pytest.raises(BothNamespacesUnavailable, match="no other queue keeps the order") as caught:
            sender.send_messages(message("a", 1))
        assert place in caught.value.secondary_reason


def test_without_a_syphon_in_the_same_client_order_is_refused(both: PairHarness) -> None:
    with pytest.raises(ValueError, match="enable_syphon=True"):
        both.client(order="session")
