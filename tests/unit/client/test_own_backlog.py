"""What a client knows of the backlog by itself: what it has put there."""

from __future__ import annotations

from datetime import UTC, datetime

from twinbus.client.reporting.own_backlog import OwnBacklog
from twinbus.client.reporting.status import SentToBacklog


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_it_counts_messages_and_bytes_since_the_first() -> None:
    own = OwnBacklog()
    assert own.status() == SentToBacklog()
    own.add([100, 20], 1_000.0)
    own.add([3], 1_060.0)
    assert own.status() == SentToBacklog(messages=3, size_bytes=123, first_at=moment(1_000), last_at=moment(1_060))


def test_a_backlog_that_was_seen_empty_begins_a_new_count() -> None:
    own = OwnBacklog()
    own.add([1], 1_000.0)
    own.seen_empty(999.0)
    own.seen_empty(1_000.0)
    assert own.status().messages == 1, "that look may have come before the message"
    own.seen_empty(1_000.5)
    assert own.status() == SentToBacklog()
    own.add([1], 2_000.0)
    assert own.status().first_at == moment(2_000)
