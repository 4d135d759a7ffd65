"""What duplicate detection of the primary is good for: pairing looks at it, and copies end at home (P14)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from paired import Heard, PairHarness, wait_until

from twinbus import NamespaceSide

LONG, SHORT = timedelta(hours=4), timedelta(minutes=10)


def made(harness: PairHarness, name: str, window: timedelta | None = None) -> str:
    """A queue of the primary that knows duplicates for so long; None: it does not."""
    path = f"{harness.orders}-{name}"
    detection: dict[str, Any] = {} if window is None else {"duplicate_detection_history_time_window": window}
    harness.primary.admin.create_queue(path, requires_duplicate_detection=window is not None, **detection)
    return path


def told_of(heard: Heard, path: str) -> list[str]:
    return [event.text for event in heard.named("pairing_warning") if path in event.text]


def test_pairing_warns_of_queues_that_do_not_know_duplicates_or_not_for_long(both: PairHarness) -> None:
    off, short, on = made(both, "off"), made(both, "short", SHORT), made(both, "on", LONG)
    client = both.client(entities=(off, short, on))
    heard = Heard(client)
    with client as bus:
        found = {entity.entity: entity.duplicate_detection for entity in bus.status().entities}
        assert found == {off: "off", short: "short", on: "on"}
    (of_off,) = told_of(heard, off)
    assert "has no duplicate detection" in of_off
    (of_short,) = told_of(heard, short)
    assert "knows duplicates for 10 min only" in of_short
    assert "4 h" in of_short
    assert told_of(heard, on) == []


def test_pairing_says_nothing_where_detection_is_as_it_should_be(both: PairHarness) -> None:
    client = both.client(entities=(made(both, "on", LONG),))
    heard = Heard(client)
    with client:
        pass
    assert not [event for event in heard.named("pairing_warning") if "duplicate" in event.text]


def test_pairing_looks_at_topics_too(both: PairHarness) -> None:
    topic = f"{both.orders}-topic"
    both.primary.admin.create_topic(
        topic, requires_duplicate_detection=True, duplicate_detection_history_time_window=LONG
    )
    with both.client(entities=(topic,)) as bus:
        assert [entity.duplicate_detection for entity in bus.status().entities] == ["on"]


@pytest.mark.parametrize("window", [LONG, None], ids=["on", "off"])
def test_the_copy_of_a_message_in_doubt_ends_at_home_where_duplicates_are_known(
    both: PairHarness, window: timedelta | None
) -> None:
    """The primary stored it and did not answer: it goes to the backlog too, and both have the same id."""
    path = made(both, "twice", window)
    with both.bus(attempt_timeout=timedelta(seconds=3), enable_syphon=True) as bus:
        heard = Heard(bus)
        sender = bus.get_queue_sender(path)
        sender.send_messages(ServiceBusMessage("first"))
        fault = both.primary.break_("unanswered", path)
        receipt = sender.send_messages(ServiceBusMessage("doubted"))
        assert (receipt.side, receipt.copies_in_doubt) == (NamespaceSide.BACKLOG, 1)
        both.primary.clear(fault)
        heard.wait_for("recovered")
        assert sender.send_messages(ServiceBusMessage("last")).side is NamespaceSide.PRIMARY
        wait_until(lambda: both.in_backlog() == [])
    found = [(str(message), message.message_id) for message in both.primary.messages(path)]
    copies = [message_id for text, message_id in found if text == "doubted"]
    assert copies == list(receipt.message_ids) * (2 if window is None else 1)
    assert sorted({text for text, _ in found}) == ["doubted", "first", "last"]
