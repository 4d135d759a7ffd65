"""Duplicate detection, in the machine: accepted twice, stored once, for as long as the window lasts."""

from __future__ import annotations

import pytest
from namespace_harness import START_MS, NamespaceHarness, arrival, names

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
def harness() -> NamespaceHarness:
    return NamespaceHarness(QueueSettings(requires_duplicate_detection=True, duplicate_window_ms=WINDOW_MS))


def test_a_message_that_was_sent_before_is_accepted_and_dropped(harness: NamespaceHarness) -> None:
    assert harness.send("a", "b") == (1, 2)
    assert len(harness.send("b", "c")) == 2
    assert names(harness.peek()) == ["a", "b", "c"]


def test_within_a_batch_the_first_counts(harness: NamespaceHarness) -> None:
    harness.send("a", "a", "b", "a")
    assert names(harness.peek()) == ["a", "b"]


def test_ids_are_remembered_when_the_message_is_long_gone_and_through_a_restart(harness: NamespaceHarness) -> None:
    harness.send(arrival("a", ttl_ms=1_000))
    harness.pass_time(2_000)
    assert harness.peek() == []
    harness.restart()
    harness.send("a")
    assert harness.peek() == []


def test_after_the_window_the_id_may_come_again(harness: NamespaceHarness) -> None:
    harness.send("a")
    harness.pass_time(WINDOW_MS - 1)
    harness.send("a")
    assert names(harness.peek()) == ["a"]
    harness.pass_time(1)
    harness.send("a")
    assert names(harness.peek()) == ["a", "a"]


def test_a_duplicate_of_what_is_not_written_yet_is_found(harness: NamespaceHarness) -> None:
    for origin in ("one", "two"):
        harness.do(SendMessages("orders", (arrival("a"),)), origin)
    harness.commit()
    assert [type(reply) for name, reply in harness.take_named() if name in ("one", "two")] == [Done, Done]
    assert names(harness.peek()) == ["a"]


def test_what_was_not_written_may_be_sent_again(harness: NamespaceHarness) -> None:
    harness.do(SendMessages("orders", (arrival("a"),)))
    harness.restart()
    harness.send("a")
    assert names(harness.peek()) == ["a"]


def test_scheduled_messages_count(harness: NamespaceHarness) -> None:
    harness.send(arrival("a", due_at_ms=START_MS + 1_000))
    harness.send("a", "b")
    harness.pass_time(1_000)
    assert sorted(names(harness.peek()), key=str) == ["a", "b"]


def test_a_duplicate_gets_a_number_that_no_message_ever_has(harness: NamespaceHarness) -> None:
    harness.send("a")
    (number,) = harness.send("a")
    harness.restart()
    assert harness.send("b") > (number,)


def test_a_ping_leaves_no_trace(harness: NamespaceHarness) -> None:
    for _ in range(2):
        harness.send(arrival("ping")._replace(is_ping=True))
    harness.send("ping")
    assert names(harness.peek()) == ["ping"]


def test_sends_keep_their_order_whatever_the_disk_does(harness: NamespaceHarness) -> None:
    """The answer for the second send comes first."""
    held: list[KnownIds] = []
    ask_store = harness.store.request
    harness.store.request = lambda request: (  # type: ignore[method-assign]
        held.append(request) if isinstance(request, KnownIds) else ask_store(request)
    )
    for number, name in enumerate(("first", "second")):
        harness.do(SendMessages("orders", (arrival(name),)), f"origin {number}")
    for request in reversed(held):
        harness.gate.report(IdsRead(request, frozenset(), harness.store.load().last_number), harness.now_ms)
    harness.store.request = ask_store  # type: ignore[method-assign]
    harness.do(Tick())
    harness.commit()
    assert names(harness.peek()) == ["first", "second"]


def test_whether_duplicates_are_detected_is_decided_when_the_queue_is_made(harness: NamespaceHarness) -> None:
    assert "cannot be changed" in str(harness.refusal(UpdateQueue("orders", QueueSettings())))


def test_waiting_sends_are_refused_when_the_queue_goes_or_the_disk_fails(harness: NamespaceHarness) -> None:
    harness.store.request = lambda request: None  # type: ignore[method-assign]
    harness.do(SendMessages("orders", (arrival("a"),)), 1)
    harness.do(DeleteEntity("orders"), 2)
    harness.commit()
    (refusal,) = [reply for name, reply in harness.take_named() if name == 1]
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, EntityNotFound)
    other = NamespaceHarness(QueueSettings(requires_duplicate_detection=True))
    other.store.request = lambda request: None  # type: ignore[method-assign]
    other.do(SendMessages("orders", (arrival("a"),)), 3)
    other.store.fail("disk full")
    (refusal,) = [reply for name, reply in other.take_named() if name == 3]
    assert isinstance(refusal, Refused)
    assert isinstance(refusal.error, StoreUnavailable)


def test_a_topic_detects_duplicates_for_all_its_subscriptions(harness: NamespaceHarness) -> None:
    harness.ask(CreateTopic("events", TopicSettings(requires_duplicate_detection=True)))
    harness.ask(CreateSubscription("events", "s", QueueSettings()))
    for _ in range(2):
        assert isinstance(harness.ask(SendMessages("events", (arrival("a"),))), Done)
    assert names(harness.peek(path="events/subscriptions/s")) == ["a"]


def test_in_a_partitioned_queue_an_id_is_known_with_its_partition() -> None:
    harness = NamespaceHarness(QueueSettings(requires_duplicate_detection=True, partitioned=True))

    def keyed(key: str) -> Arrival:
        return arrival("a")._replace(partition_key=key)

    harness.send(keyed("x"), keyed("y"), keyed("x"))
    assert names(harness.peek()) == ["a", "a"]


def test_a_partition_and_an_id_are_not_taken_for_others_that_are_written_the_same() -> None:
    harness = NamespaceHarness(QueueSettings(requires_duplicate_detection=True, partitioned=True))
    harness.send(arrival("b/c")._replace(partition_key="a"))
    harness.send(arrival("c")._replace(partition_key="a/b"))
    harness.send(arrival("a/b/c"))
    assert names(harness.peek()) == ["b/c", "c", "a/b/c"]


def test_counts_are_right(harness: NamespaceHarness) -> None:
    harness.send("a", "a")
    found = harness.ask(GetEntity("orders"))
    assert isinstance(found, QueueDescription)
    assert found.active == 1
