"""Findings of other hosts shorten the interval of a client whose own sends fail, and of no other (X6)."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from functools import partial

import pytest
from azure.servicebus import ServiceBusMessage
from paired import Heard, PairHarness, wait_until

from twinbus import PairedServiceBusClient, ShareFailover
from twinbus.client.reporting.status import EntityState

KEYS = {host: f"a secret that only {host} has" for host in ("us", "a", "b")}
LONG = timedelta(minutes=30)


def share(host: str) -> ShareFailover:
    return ShareFailover(keys=KEYS, host=host)


def state(bus: PairedServiceBusClient, entity: str) -> EntityState | None:
    found = bus.status().entity(entity)
    return None if found is None else found.state


def has_posted(bus: PairedServiceBusClient, times: int = 1) -> bool:
    board = bus.status().board
    return board is not None and board.posts >= times


def test_a_quorum_of_other_hosts_ends_the_interval_and_one_host_does_not(both: PairHarness) -> None:
    ours = both.bus(board=True, share_failover=share("us"), failover_interval=LONG)
    with (
        both.bus(board=True, share_failover=share("a")) as first,
        both.bus(board=True, share_failover=share("b")) as second,
        ours as bus,
        bus.get_queue_sender(both.orders) as sender,
    ):
        heard = Heard(bus)
        sender.send_messages(ServiceBusMessage("healthy"))
        for other in (first, second):
            other.get_queue_sender(both.orders).send_messages(ServiceBusMessage("healthy"))
            wait_until(partial(has_posted, other))
        wait_until(lambda: has_posted(bus))
        first.force_failover(both.orders, stay=True)
        both.primary.break_("no-send", both.orders)
        with pytest.raises(Exception, match="twinbus"):
            sender.send_messages(ServiceBusMessage("fails"))
        assert state(bus, both.orders) is EntityState.SUSPECT
        wait_until(lambda: has_posted(first, 2))
        assert not heard.named("failed_over"), "one host moves nobody"
        second.force_failover(both.orders, stay=True)
        event = heard.wait_for("failed_over")
        assert "failed over elsewhere too: a, b" in event.text
        assert sender.send_messages(ServiceBusMessage("saved")).side.value == "backlog"
        both.primary.clear()


def test_an_entity_that_works_here_stays_whatever_others_say(both: PairHarness) -> None:
    with (
        both.bus(board=True, share_failover=share("a")) as first,
        both.bus(board=True, share_failover=share("b")) as second,
        both.bus(board=True, share_failover=share("us"), failover_interval=LONG) as bus,
        bus.get_queue_sender(both.orders) as sender,
    ):
        sender.send_messages(ServiceBusMessage("healthy"))
        for other in (first, second):
            other.get_queue_sender(both.orders)
            other.force_failover(both.orders, stay=True)
            wait_until(partial(has_posted, other, 2))
        with contextlib.suppress(TimeoutError):
            assert sender.send_messages(ServiceBusMessage("healthy still")).side.value == "primary"
        assert state(bus, both.orders) is EntityState.HEALTHY
