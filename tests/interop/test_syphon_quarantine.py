"""What the syphon puts aside, between two real namespaces: listed, discarded, sent home after all."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from backlog_messages import backlog_message, unaddressed
from syphon_environment import dial, fill, messages_at, running, until, with_backlog

from twinbus.amqp.message.sections import Header
from twinbus.syphon.pump.dead_letter_reasons import EXPIRED, MALFORMED
from twinbus.syphon.quarantine import Quarantine, by_reason
from twinbus.testing import NamespacePair


@pytest.fixture
def pair(namespace_pair: NamespacePair) -> NamespacePair:
    return with_backlog(namespace_pair)


async def test_messages_without_an_address_are_put_aside_listed_and_can_be_discarded(pair: NamespacePair) -> None:
    spy = backlog_message("orders/$management", "spy")
    await fill(pair.secondary, 0, [unaddressed(), backlog_message("orders", "m1"), spy])
    async with running(pair) as pump:
        await until(lambda: pump.current_progress().moved == 1 and pump.current_progress().refused == 2)
    async with Quarantine(dial(pair.secondary), "contoso", 2) as quarantine:
        found = [each async for each in quarantine.list()]
        assert [(each.message_id, each.reason) for each in found] == [("stranger", MALFORMED), ("spy", MALFORMED)]
        assert "x-ms-path" in str(found[0].description)
        for each in found:
            assert await quarantine.show(*each.number) == each
        assert await quarantine.show(0, found[1].sequence + 1) is None
        assert await quarantine.show(7, 1) is None
        again = await quarantine.redrive(dial(pair.primary), lambda each: True)
        assert sorted(again.kept) == sorted(each.number for each in found)
        gone = await quarantine.discard(lambda each: each.message_id == "spy")
        assert gone.done == [found[1].number]
        assert [each.message_id async for each in quarantine.list()] == ["stranger"]


async def test_an_expired_message_can_be_sent_home_all_the_same(pair: NamespacePair) -> None:
    expired = backlog_message("orders", "m1", header=Header(ttl_ms=1))
    await fill(pair.secondary, 0, [expired, backlog_message("orders", "m2", header=Header(ttl_ms=3_600_000))])
    async with running(pair) as pump:
        await until(lambda: pump.current_progress().expired == 1 and pump.current_progress().moved == 1)
    (home,) = await messages_at(pair.primary, "orders", 1)
    assert home.time_to_live is not None
    assert home.time_to_live < timedelta(hours=1)
    async with Quarantine(dial(pair.secondary), "contoso", 2) as quarantine:
        pair.primary.faults.add("refuse", entities=["orders"], condition="amqp:not-allowed", count=1, on="sends")
        first = await quarantine.redrive(dial(pair.primary), by_reason(EXPIRED))
        assert len(first.kept) == 1
        second = await quarantine.redrive(dial(pair.primary), by_reason(EXPIRED))
        assert (len(second.done), second.kept) == (1, {})


async def test_an_entity_that_keeps_a_redrive_waiting_does_so_once(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}", header=Header(ttl_ms=1)) for n in range(5)])
    async with running(pair) as pump:
        await until(lambda: pump.current_progress().expired == 5)
    pair.primary.faults.add("unanswered", entities=["orders"])
    began = time.monotonic()
    async with Quarantine(dial(pair.secondary), "contoso", 2, attempt_s=2.0) as quarantine:
        tried = await quarantine.redrive(dial(pair.primary), by_reason(EXPIRED))
    assert time.monotonic() - began < 9.5
    first, *others = tried.kept.values()
    assert "orders did not answer in time" in first
    assert len(others) == 4
    assert all("was not asked again" in each for each in others)
