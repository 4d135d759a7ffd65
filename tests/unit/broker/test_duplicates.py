"""Duplicate detection, in the machine: accepted twice, stored once, for as long as the window lasts."""

from __future__ import annotations

import pytest
from namespace_bench import START_MS, Bench, arrival, names

from twinbus.broker.core.commands import (
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    GetEntity,
    SendMessages,
    Tick,
    UpdateQueue,
)
from twinbus.broker.core.replies import QueueDescription
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Done, Refused
from twinbus.broker.store.api import IdsRead, KnownIds
from twinbus.errors import EntityNotFound, StoreUnavailable

WINDOW_MS = 20_000


@pytest.fixture
def bench() -> Bench:
    return Bench(QueueSettings(requires_duplicate_detection=True, duplicate_window_ms=WINDOW_MS))


def test_a_message_that_was_sent_before_is_accepted_and_dropped(bench: Bench) -> None:
    assert bench.send("a", "b") == (1, 2)
    assert len(bench.send("b", "c")) == 2
    assert names(bench.peek()) == ["a", "b", "c"]


def test_within_a_batch_the_first_counts(bench: Bench) -> None:
    bench.send("a", "a", "b", "a")
    assert names(bench.peek()) == ["a", "b"]


def test_ids_are_remembered_when_the_message_is_long_gone_and_through_a_restart(bench: Bench) -> None:
    bench.send(arrival("a", ttl_ms=1_000))
    bench.pass_time(2_000)
    assert bench.peek() == []
    bench.restart()
    bench.send("a")
    assert bench.peek() == []


def test_after_the_window_the_id_may_come_again(bench: Bench) -> None:
    bench.send("a")
    bench.pass_time(WINDOW_MS - 1)
    bench.send("a")
    assert names(bench.peek()) == ["a"]
    bench.pass_time(1)
    bench.send("a")
    assert names(bench.peek()) == ["a", "a"]


def test_a_duplicate_of_what_is_not_written_yet_is_found(bench: Bench) -> None:
    for origin in ("one", "two"):
        bench.do(SendMessages("orders", (arrival("a"),)), origin)
    bench.commit()
    assert [type(reply) for name, reply in bench.take_named() if name in ("one", "two")] == [Done, Done]
    assert names(bench.peek()) == ["a"]


def test_what_was_not_written_may_be_sent_again(bench: Bench) -> None:
    bench.do(SendMessages("orders", (arrival("a"),)))
    bench.restart()
    bench.send("a")
    assert names(bench.peek()) == ["a"]


def test_scheduled_messages_count(bench: Bench) -> None:
    bench.send(arrival("a", due_at_ms=START_MS + 1_000))
    bench.send("a", "b")
    bench.pass_time(1_000)
    assert sorted(names(bench.peek()), key=str) == ["a", "b"]


def test_a_duplicate_gets_a_number_that_no_message_ever_has(bench: Bench) -> None:
    bench.send("a")
    (number,) = bench.send("a")
    bench.restart()
    assert bench.send("b") > (number,)


def test_a_ping_leaves_no_trace(bench: Bench) -> None:
    for _ in range(2):
        bench.send(arrival("ping")._replace(is_ping=True))
    bench.send("ping")
    assert names(bench.peek()) == ["ping"]


def test_sends_keep_their_order_whatever_the_disk_does(bench: Bench) -> None:
    """The answer for the second send comes first."""
    held: list[KnownIds] = []
    ask_store = bench.store.request
    bench.store.request = lambda request: held.append(request) if isinstance(request, KnownIds) else ask_store(request)  # type: ignore[method-assign]
    for number, name in enumerate(("first", "second")):
        bench.do(SendMessages("orders", (arrival(name),)), f"origin {number}")
    for request in reversed(held):
        bench.gate.report(IdsRead(request, frozenset(), bench.store.load().last_number), bench.now_ms)
    bench.store.request = ask_store  # type: ignore[method-assign]
    bench.do(Tick())
    bench.commit()
    assert names(bench.peek()) == ["first", "second"]


def test_whether_duplicates_are_detected_is_decided_when_the_queue_is_made(bench: Bench) -> None:
    assert "cannot be changed" in str(bench.refusal(UpdateQueue("orders", QueueSettings())))


def test_who_waits_is_told_when_the_queue_goes_or_the_disk_fails(bench: Bench) -> None:
    bench.store.request = lambda request: None  # type: ignore[method-assign]
    bench.do(SendMessages("orders", (arrival("a"),)), 1)
    bench.do(DeleteEntity("orders"), 2)
    bench.commit()
    (refusal,) = [reply for name, reply in bench.take_named() if name == 1]
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, EntityNotFound)
    other = Bench(QueueSettings(requires_duplicate_detection=True))
    other.store.request = lambda request: None  # type: ignore[method-assign]
    other.do(SendMessages("orders", (arrival("a"),)), 3)
    other.store.fail("disk full")
    (refusal,) = [reply for name, reply in other.take_named() if name == 3]
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, StoreUnavailable)


def test_a_topic_detects_duplicates_for_all_its_subscriptions(bench: Bench) -> None:
    bench.ask(CreateTopic("events", TopicSettings(requires_duplicate_detection=True)))
    bench.ask(CreateSubscription("events", "s", QueueSettings()))
    for _ in range(2):
        assert isinstance(bench.ask(SendMessages("events", (arrival("a"),))), Done)
    assert names(bench.peek(path="events/subscriptions/s")) == ["a"]


def test_in_a_partitioned_queue_an_id_is_known_with_its_partition() -> None:
    bench = Bench(QueueSettings(requires_duplicate_detection=True, partitioned=True))

    def keyed(key: str) -> Arrival:
        return arrival("a")._replace(partition_key=key)

    bench.send(keyed("x"), keyed("y"), keyed("x"))
    assert names(bench.peek()) == ["a", "a"]


def test_a_partition_and_an_id_are_not_taken_for_others_that_are_written_the_same() -> None:
    bench = Bench(QueueSettings(requires_duplicate_detection=True, partitioned=True))
    bench.send(arrival("b/c")._replace(partition_key="a"))
    bench.send(arrival("c")._replace(partition_key="a/b"))
    bench.send(arrival("a/b/c"))
    assert names(bench.peek()) == ["b/c", "c", "a/b/c"]


def test_counts_are_right(bench: Bench) -> None:
    bench.send("a", "a")
    found = bench.ask(GetEntity("orders"))
    assert isinstance(found, QueueDescription)
    assert found.active == 1
