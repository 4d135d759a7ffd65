"""One subscription is late: the others get their copies at once, and nothing is lost or held for longer than said."""

from __future__ import annotations

import pytest
from namespace_harness import QUEUE, START_MS, NamespaceHarness, names

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.broker.core.commands import CreateQueue, CreateSubscription, CreateTopic, SendMessages, UpdateQueue
from twinbus.broker.entities.settings import QueueSettings, TopicSettings
from twinbus.broker.faults.catalogue import read_fault
from twinbus.broker.faults.fault_table import FaultTable
from twinbus.broker.message import SCHEDULED_TIME, Arrival, read_arrival
from twinbus.broker.operations import Done
from twinbus.broker.store.api import MessageState

TOPIC = "events"
AUDIT = "events/subscriptions/audit"
BILLING = "events/subscriptions/billing"
DELAY_MS = 60_000
MINUTES_15_MS = 15 * 60_000


def event(
    name: str, *, due_at_ms: int | None = None, ttl_ms: int | None = None, session_id: str | None = None
) -> Arrival:
    payload = sections.encode_message(
        header=None if ttl_ms is None else Header(ttl_ms=ttl_ms),
        annotations=None if due_at_ms is None else {SCHEDULED_TIME: Timestamp(due_at_ms)},
        properties={PropertyField.MESSAGE_ID: name, PropertyField.GROUP_ID: session_id},
        data=b"body",
    )
    return read_arrival(payload, lambda: "unused")


def publish(harness: NamespaceHarness, *arrivals: Arrival, path: str = TOPIC) -> None:
    assert isinstance(harness.ask(SendMessages(path, arrivals)), Done)


def visible(harness: NamespaceHarness, path: str) -> list[str | None]:
    """What could be received."""
    return names([row for row in harness.peek(path=path) if row.state is MessageState.ACTIVE])


@pytest.fixture
def harness() -> NamespaceHarness:
    """A topic with the subscriptions `audit`, which is a minute late, and `billing`."""
    harness = NamespaceHarness()
    harness.ask(CreateTopic(TOPIC, TopicSettings()))
    for name in ("Audit", "billing"):
        harness.ask(CreateSubscription(TOPIC, name, QueueSettings()))
    harness.delays = {AUDIT: DELAY_MS}
    return harness


def test_the_late_subscription_waits_and_the_other_does_not(harness: NamespaceHarness) -> None:
    publish(harness, event("1"), event("2"))
    assert visible(harness, BILLING) == ["1", "2"]
    harness.pass_time(DELAY_MS - 1)
    assert visible(harness, AUDIT) == []
    harness.pass_time(1)
    assert visible(harness, AUDIT) == ["1", "2"]


def test_a_late_copy_survives_a_crash_and_the_end_of_the_fault(harness: NamespaceHarness) -> None:
    publish(harness, event("1"))
    harness.delays = {}
    harness.restart()
    assert [row.state for row in harness.peek(path=AUDIT)] == [MessageState.SCHEDULED]
    publish(harness, event("2"))
    assert visible(harness, AUDIT) == ["2"]
    harness.pass_time(DELAY_MS)
    assert visible(harness, AUDIT) == ["2", "1"]


def test_a_copy_lives_as_long_as_topic_and_message_say_from_when_it_appears(harness: NamespaceHarness) -> None:
    harness.ask(CreateTopic("short", TopicSettings(default_ttl_ms=1_000)))
    harness.ask(CreateSubscription("short", "audit", QueueSettings()))
    harness.delays["short/subscriptions/audit"] = DELAY_MS
    publish(harness, event("1"), event("2", ttl_ms=400), path="short")
    harness.pass_time(DELAY_MS)
    rows = harness.peek(path="short/subscriptions/audit")
    assert {row.message_id: row.expires_at_ms for row in rows} == {
        "1": START_MS + DELAY_MS + 1_000,
        "2": START_MS + DELAY_MS + 400,
    }


def test_a_late_topic_and_a_late_subscription_do_not_add_up(harness: NamespaceHarness) -> None:
    """As long as the longer of the two: never beyond the 15 minutes that one may have."""
    harness.delays = {AUDIT: MINUTES_15_MS, BILLING: 1_000}
    held_back_by_topic = event("1")._replace(due_at_ms=harness.now_ms + MINUTES_15_MS - 1)
    publish(harness, held_back_by_topic)
    harness.pass_time(MINUTES_15_MS - 1)
    assert visible(harness, BILLING) == ["1"]
    assert visible(harness, AUDIT) == []
    harness.pass_time(1)
    assert visible(harness, AUDIT) == ["1"]


def test_a_scheduled_message_is_late_from_its_own_time(harness: NamespaceHarness) -> None:
    publish(harness, event("1", due_at_ms=harness.now_ms + 5_000))
    harness.pass_time(5_000)
    assert visible(harness, BILLING) == ["1"]
    harness.pass_time(DELAY_MS - 1)
    assert visible(harness, AUDIT) == []
    harness.pass_time(1)
    assert visible(harness, AUDIT) == ["1"]


def test_what_is_forwarded_to_the_topic_is_late_too(harness: NamespaceHarness) -> None:
    harness.ask(UpdateQueue(QUEUE, QueueSettings(forward_to=TOPIC)))
    publish(harness, event("1"), path=QUEUE)
    assert visible(harness, BILLING) == ["1"]
    assert visible(harness, AUDIT) == []
    harness.pass_time(DELAY_MS)
    assert visible(harness, AUDIT) == ["1"]


def test_a_late_subscription_that_forwards_does_so_when_the_copy_appears(harness: NamespaceHarness) -> None:
    harness.ask(CreateQueue("archive", QueueSettings()))
    harness.ask(CreateSubscription(TOPIC, "passes-on", QueueSettings(forward_to="archive")))
    harness.delays["events/subscriptions/passes-on"] = DELAY_MS
    publish(harness, event("1"))
    assert visible(harness, "archive") == []
    harness.pass_time(DELAY_MS)
    assert visible(harness, "archive") == ["1"]


def test_a_subscription_with_sessions_can_be_late(harness: NamespaceHarness) -> None:
    path = "events/subscriptions/by-session"
    harness.ask(CreateSubscription(TOPIC, "by-session", QueueSettings(requires_session=True)))
    harness.delays[path] = DELAY_MS
    publish(harness, event("1", session_id="a"))
    assert [row.state for row in harness.peek(path=path)] == [MessageState.SCHEDULED]
    harness.pass_time(DELAY_MS)
    assert [(row.state, row.session_id) for row in harness.peek(path=path)] == [(MessageState.ACTIVE, "a")]


# --- which copies a table of faults holds back ---


def test_a_fault_table_names_the_subscriptions_that_are_late_themselves() -> None:
    table = FaultTable(lambda: 0.5)
    assert table.copy_delays(0) is None
    for values in (
        {"delay_ms": 1_000, "entities": ["Events/Subscriptions/Audit"]},
        {"delay_ms": 2_000, "pattern": "*/audit"},
        {"delay_ms": 9_000, "entities": ["events"]},
    ):
        table.add(read_fault({"fault": "late", "length_ms": 10_000, **values}), 0)
    delay_ms = table.copy_delays(9_999)
    assert delay_ms is not None
    assert delay_ms("events/Subscriptions/audit") == 2_000
    assert delay_ms("events/subscriptions/billing") == 0, "the topic holds it back already"
    assert table.copy_delays(10_000) is None, "they are over"


def test_a_fault_that_covers_the_topic_holds_back_no_copy_again() -> None:
    table = FaultTable(lambda: 0.5)
    table.add(read_fault({"fault": "late", "delay_ms": 5_000, "pattern": "e*"}), 0)
    table.add(read_fault({"fault": "late", "delay_ms": 5_000}), 0)
    delay_ms = table.copy_delays(0)
    assert delay_ms is None or delay_ms(AUDIT) == 0
