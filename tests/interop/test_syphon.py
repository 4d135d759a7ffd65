"""The syphon between two real namespaces, with the official client as a witness."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient
from backlog_messages import backlog_message, unaddressed
from syphon_environment import (
    QUICK,
    WAIT_S,
    backlog,
    dial,
    fill,
    ids_of,
    messages_at,
    running,
    until,
    with_backlog,
)

from twinbus.amqp.message.sections import Header
from twinbus.ledger import Kind, Ledger, LedgerReader
from twinbus.syphon import Alert, Syphon, SyphonOptions, syphon
from twinbus.syphon.peeking.dry_run import run_dry
from twinbus.testing import NamespacePair


@pytest.fixture
def pair(namespace_pair: NamespacePair) -> NamespacePair:
    return with_backlog(namespace_pair)


async def test_a_backlog_comes_home_and_the_syphon_ends(pair: NamespacePair) -> None:
    orders = [backlog_message("orders", f"o{n}", application_properties={"n": n}) for n in range(300)]
    invoices = [backlog_message("invoices", f"i{n}", b"x" * 5_000) for n in range(50)]
    await fill(pair.secondary, 0, [each for two in zip(orders[:50], invoices, strict=True) for each in two])
    await fill(pair.secondary, 1, orders[50:])
    looks: list[int] = []
    options = SyphonOptions(until_empty=True)
    result = await asyncio.wait_for(
        syphon(
            dial(pair.primary),
            dial(pair.secondary),
            "contoso",
            2,
            options,
            on_progress=lambda progress: looks.append(progress.moved),
        ),
        WAIT_S,
    )
    assert (result.moved, result.repeated, result.refused, result.held) == (350, 0, 0, 0)
    assert looks[-1] == 350
    found = await messages_at(pair.primary, "orders", 300)
    assert ids_of(found) == sorted(f"o{n}" for n in range(300))
    assert found[0].application_properties is not None
    assert set(found[0].application_properties) == {b"n"}
    assert len(await messages_at(pair.primary, "invoices", 50)) == 50
    assert await messages_at(pair.secondary, backlog(0), 1) == []


async def test_a_destination_that_is_down_holds_nobody_up_and_nothing_locked(pair: NamespacePair) -> None:
    pair.primary.faults.add("no-send", entities=["orders"])
    await fill(pair.secondary, 0, [backlog_message("orders" if n % 2 else "invoices", f"m{n}") for n in range(100)])
    alerts: list[Alert] = []
    async with running(pair, alerts, backoff_s=(20.0, 20.0)) as pump:
        await until(lambda: pump.current_progress().moved == 50 and pump.current_progress().released == 50)
        assert [(alert.name, alert.subject) for alert in alerts] == [("destination_down", "orders")]
        assert "amqp:internal-error" in alerts[0].text or "internal" in alerts[0].text
        waiting = await messages_at(pair.secondary, backlog(0), 50)
    assert len(waiting) == 50
    assert {message.delivery_count for message in waiting} == {0}


async def test_what_was_passed_over_comes_home_when_its_destination_is_back(pair: NamespacePair) -> None:
    fault = pair.primary.faults.add("refuse", entities=["orders"], condition="com.microsoft:entity-disabled")
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(100)])
    async with running(pair) as pump:
        await until(lambda: pump.current_progress().released >= 100)
        pair.primary.faults.clear(fault)
        await until(lambda: pump.current_progress().moved == 100)
    assert ids_of(await messages_at(pair.primary, "orders", 100)) == sorted(f"m{n}" for n in range(100))


async def test_why_a_destination_is_passed_over_is_in_the_ledger(pair: NamespacePair, tmp_path: Path) -> None:
    pair.primary.faults.add("refuse", entities=["orders"], condition="com.microsoft:server-busy", count=1, on="sends")
    await fill(pair.secondary, 0, [backlog_message("nowhere", "m1"), backlog_message("orders", "m2")])
    ends, options = (dial(pair.primary), dial(pair.secondary)), SyphonOptions(**QUICK)
    with Ledger.at(tmp_path / "ledger") as ledger:
        async with Syphon(*ends, "contoso", 2, options, ledger=ledger) as pump:
            await until(lambda: pump.current_progress().released >= 2)
    records = list(LedgerReader(ledger.directory).records())
    recorded = {(record.kind, record.entity, record.condition) for record in records}
    assert (Kind.DESTINATION_SKIPPED, "nowhere", "amqp:not-found") in recorded
    assert (Kind.THROTTLED, "orders", "com.microsoft:server-busy") in recorded
    assert Kind.REJECTED not in {record.kind for record in records}
    assert {record.namespace for record in records if record.namespace} == {"contoso", "backup"}


async def test_a_queue_that_is_created_later_gets_its_messages(pair: NamespacePair) -> None:
    await fill(pair.secondary, 1, [backlog_message("late", "m1"), backlog_message("orders", "m2")])
    async with running(pair) as pump:
        await until(lambda: pump.current_progress().moved == 1 and pump.current_progress().released >= 1)
        assert "not found" in str(pump.current_progress().destinations)
        pair.primary.create_queue("late")
        await until(lambda: pump.current_progress().moved == 2)
    assert ids_of(await messages_at(pair.primary, "late", 1)) == ["m1"]


@pytest.mark.parametrize("how", ["refuse", "drop"])
async def test_a_primary_that_cannot_be_reached_is_waited_for(pair: NamespacePair, how: str) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(50)])
    pair.primary.faults.add("unreachable", how=how)
    alerts: list[Alert] = []
    async with running(pair, alerts) as pump:
        await until(lambda: pump.current_progress().released >= 50)
        pair.primary.faults.clear()
        await until(lambda: pump.current_progress().moved == 50)
    assert [alert.name for alert in alerts] == ["destination_down", "destination_up"]


async def test_a_silent_primary_is_given_up_in_time(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", "m1")])
    pair.primary.faults.add("unreachable", how="silent")
    async with running(pair, attempt_s=0.5) as pump:
        await until(lambda: pump.current_progress().released >= 1)
        pair.primary.faults.clear()
        await until(lambda: pump.current_progress().moved == 1)


async def test_a_batch_that_is_stored_but_not_answered_comes_again_with_the_same_ids(pair: NamespacePair) -> None:
    pair.primary.faults.add("unanswered", entities=["orders"], count=1)
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(10)])
    async with running(pair, attempt_s=4.0) as pump:
        await until(lambda: pump.current_progress().moved == 10)
        assert pump.current_progress().in_doubt == 10
    found = ids_of(await messages_at(pair.primary, "orders", 20))
    assert found == sorted(f"m{n}" for n in range(10) for _ in range(2))


async def test_a_throttled_destination_is_left_alone_for_a_while(pair: NamespacePair) -> None:
    pair.primary.faults.add("refuse", entities=["orders"], condition="com.microsoft:server-busy", count=1, on="sends")
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(10)])
    began = time.monotonic()
    async with running(pair, busy_s=2.0) as pump:
        await until(lambda: pump.current_progress().released == 10)
        assert pump.current_progress().moved == 0
        await until(lambda: pump.current_progress().moved == 10)
    assert time.monotonic() - began >= 2.0


async def test_an_empty_receive_is_not_an_empty_queue(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", "m1")])
    with ServiceBusClient.from_connection_string(pair.secondary.connection_string) as client:
        receiver = client.get_queue_receiver(backlog(0))
        (held,) = await asyncio.to_thread(receiver.receive_messages, 1, 5)
        options = SyphonOptions(until_empty=True, **QUICK)
        work = asyncio.create_task(syphon(dial(pair.primary), dial(pair.secondary), "contoso", 2, options))
        done, _ = await asyncio.wait({work}, timeout=2.5)
        assert not done, "somebody else has a message under lock"
        await asyncio.to_thread(receiver.abandon_message, held)
        assert (await asyncio.wait_for(work, WAIT_S)).moved == 1
        await asyncio.to_thread(receiver.close)


async def test_two_syphons_share_one_backlog(pair: NamespacePair) -> None:
    other = Syphon(dial(pair.primary), dial(pair.secondary), "contoso", 2, SyphonOptions(prefetch=100))
    async with running(pair, prefetch=100) as one, asyncio.timeout(WAIT_S):
        filled = 0
        async with other:
            while not (one.current_progress().moved and other.current_progress().moved):
                await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(filled, filled + 500)])
                filled += 500
            await until(lambda: one.current_progress().moved + other.current_progress().moved == filled)
    found = await messages_at(pair.primary, "orders", filled)
    assert ids_of(found) == sorted(f"m{n}" for n in range(filled))


async def test_a_secondary_that_restarts_is_taken_up_again(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(400)])
    alerts: list[Alert] = []
    async with running(pair, alerts, rate=80.0) as pump:
        await until(lambda: pump.current_progress().moved > 5)
        await asyncio.to_thread(pair.secondary.restart)
        assert pump.current_progress().moved < 400
        await until(
            lambda: (
                pump.current_progress().held == 0
                and not pump.current_progress().troubles
                and pump.pump.counts.stored >= 400
            )
        )
    found = set(ids_of(await messages_at(pair.primary, "orders", pump.pump.counts.stored)))
    assert found == {f"m{n}" for n in range(400)}
    assert {"queue_down", "queue_up"} <= {alert.name for alert in alerts}


async def test_a_primary_that_restarts_in_the_middle_loses_nothing(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(500)])
    async with running(pair, rate=1_000.0) as pump:
        await until(lambda: pump.current_progress().moved > 50)
        await asyncio.to_thread(pair.primary.restart)
        await until(lambda: pump.current_progress().moved == 500)
    found = ids_of(await messages_at(pair.primary, "orders", 500 + pump.current_progress().in_doubt))
    assert set(found) == {f"m{n}" for n in range(500)}
    assert len(found) - 500 <= pump.current_progress().in_doubt


@pytest.mark.long
async def test_locks_are_renewed_while_a_destination_is_slow(namespace_pair: NamespacePair) -> None:
    primary, secondary = namespace_pair
    primary.create_queue("orders")
    for index in range(2):
        secondary.create_queue(backlog(index), lock_ms=7_000)
    await fill(secondary, 0, [backlog_message("orders", f"m{n}") for n in range(700)])
    primary.faults.add("slow", entities=["orders"], delay=timedelta(seconds=8))
    async with running(namespace_pair, lock_s=7.0, attempt_s=30.0) as pump:
        await until(lambda: pump.current_progress().moved == 700)
        assert pump.current_progress().repeated == 0
        assert pump.pump.counts.locks_renewed >= 700
    primary.faults.clear()
    assert len(await messages_at(primary, "orders", 700)) == 700


async def test_pause_and_resume(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(300)])
    async with running(pair, canary=100) as pump:
        await until(lambda: pump.current_progress().state == "paused after the canary")
        await until(lambda: pump.current_progress().held == 0)
        assert pump.current_progress().moved == 100
        pump.resume()
        await until(lambda: pump.current_progress().moved == 300)
        pump.pause()
        assert pump.current_progress().state == "paused"
        await fill(pair.secondary, 1, [backlog_message("orders", "later")])
        pump.resume()
        await until(lambda: pump.current_progress().moved == 301)


async def test_a_dry_run_shows_what_would_move_where_and_takes_nothing(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}", b"x" * 100) for n in range(300)])
    await fill(
        pair.secondary,
        1,
        [backlog_message("invoices", "i"), backlog_message("orders", "old", header=Header(ttl_ms=1)), unaddressed()],
    )
    options = SyphonOptions(entities=frozenset({"orders"}))
    for _ in range(2):
        found = await run_dry(dial(pair.secondary), "contoso", 2, options)
        assert {path: share.messages for path, share in found.destinations.items()} == {"orders": 300}
        assert found.destinations["orders"].size > 30_000
        assert (found.unwanted.messages, found.malformed.messages, found.expired.messages) == (1, 1, 1)


async def test_about_how_many_are_left_is_counted_with_few_peeks(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(700)])
    await fill(pair.secondary, 1, [backlog_message("orders", f"n{n}") for n in range(3)])
    async with running(pair, canary=1) as pump:
        await until(
            lambda: pump.current_progress().state == "paused after the canary" and pump.current_progress().held == 0
        )
        assert await pump.count() in (702, 703)
        pump.resume()
        await until(lambda: pump.current_progress().moved == 703)
        assert pump.current_progress().left in (0, 1)


async def test_what_is_left_is_counted_again_while_it_works_for_long(
    pair: NamespacePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("twinbus.syphon.syphon")
    monkeypatch.setattr(module, "_COUNT_AFTER_MS", 100)
    async with running(pair, rate=100) as pump:
        async with asyncio.timeout(WAIT_S):
            while await pump.count() is None:
                await asyncio.sleep(0.01)
        assert pump.current_progress().left == 0
        await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(400)])
        await until(lambda: pump.current_progress().moved > 0)
        assert pump.current_progress().left is None, "others have come since it was counted"
        monkeypatch.setattr(module, "_COUNT_EVERY_MS", 100)
        await until(lambda: (pump.current_progress().left or 0) > 100)
        assert (pump.current_progress().seconds_left or 0) > 1


async def test_nobody_says_that_nothing_is_left_while_an_entity_is_down(pair: NamespacePair) -> None:
    async with running(pair) as pump:
        async with asyncio.timeout(WAIT_S):
            while await pump.count() is None:
                await asyncio.sleep(0.01)
        pair.primary.faults.add("no-send", entities=["orders"])
        await fill(pair.secondary, 0, [backlog_message("orders", "m1")])
        await until(lambda: pump.current_progress().released > 0 and pump.current_progress().held == 0)
        assert pump.current_progress().left is None, (
            "it came after the count, was tried in vain and is in the backlog again"
        )


async def test_a_backlog_queue_that_is_missing_is_reported_while_the_others_work(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [backlog_message("orders", "m1")])
    alerts: list[Alert] = []
    options = SyphonOptions(**QUICK)
    async with Syphon(dial(pair.primary), dial(pair.secondary), "contoso", 3, options, on_alert=alerts.append) as pump:
        await until(lambda: pump.current_progress().moved == 1 and bool(pump.current_progress().troubles))
        assert [(alert.name, alert.subject) for alert in alerts] == [("queue_down", backlog(2))]
        pair.secondary.create_queue(backlog(2))
        await until(lambda: not pump.current_progress().troubles)
