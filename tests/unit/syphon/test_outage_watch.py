"""The end of an outage is said once, and only when it is proven."""

from __future__ import annotations

from dataclasses import replace

import pytest

from twinbus.syphon.peeking.depth_watch import OUTAGE_QUIET_MS, BacklogSnapshot, OutageWatch
from twinbus.syphon.progress import SyphonCounts

EMPTY = BacklogSnapshot(at=0.0, waiting_messages=0, waiting_at_least=0, unread_queues=0, oldest_age_s=None)
LAST_MS = 100_000


def after_an_outage(watch: OutageWatch | None = None) -> tuple[OutageWatch, SyphonCounts]:
    """A syphon that has brought three messages home."""
    watch = watch or OutageWatch()
    tally = SyphonCounts(received=3, moved=3)
    assert watch.check(LAST_MS - 1, tally, None, is_active=True) is None
    assert watch.check(LAST_MS, tally, None, is_active=True) is None
    return watch, tally


def seen(**changes: object) -> BacklogSnapshot:
    return replace(EMPTY, at=(LAST_MS + OUTAGE_QUIET_MS) / 1000, **changes)  # type: ignore[arg-type]


def test_the_end_is_said_once_an_outage() -> None:
    watch, tally = after_an_outage()
    assert watch.is_open
    now_ms = LAST_MS + OUTAGE_QUIET_MS
    text = watch.check(now_ms, tally, seen(), is_active=False)
    assert text == "the outage is over, the backlog is home: 3 messages came through this syphon"
    assert not watch.is_open
    assert watch.check(now_ms + 1, tally, seen(), is_active=False) is None
    more = replace(tally, received=5, moved=5)
    assert watch.check(now_ms + 2, more, seen(), is_active=False) is None, "the next outage has begun"
    later = replace(EMPTY, at=(now_ms + 2 + OUTAGE_QUIET_MS) / 1000)
    assert "home: 2 messages" in (watch.check(now_ms + 2 + OUTAGE_QUIET_MS, more, later, is_active=False) or "")


@pytest.mark.parametrize(
    "look",
    [
        None,
        replace(seen(), at=(LAST_MS + OUTAGE_QUIET_MS - 1) / 1000),
        seen(waiting_messages=1, waiting_at_least=1),
        seen(waiting_messages=None),
    ],
    ids=["nobody has looked", "too soon", "something waits", "not all could be read"],
)
def test_nothing_is_said_that_is_not_proven(look: BacklogSnapshot | None) -> None:
    watch, tally = after_an_outage()
    assert watch.check(LAST_MS + 2 * OUTAGE_QUIET_MS, tally, look, is_active=False) is None
    assert watch.is_open


def test_nothing_is_said_while_somebody_may_send_to_the_backlog_or_where_there_was_no_outage() -> None:
    watch, tally = after_an_outage()
    assert watch.check(LAST_MS + OUTAGE_QUIET_MS, tally, seen(), is_active=True) is None
    assert OutageWatch().check(LAST_MS, SyphonCounts(), EMPTY, is_active=False) is None


def test_what_is_not_home_is_not_said_to_be() -> None:
    watch, _ = after_an_outage()
    tally = SyphonCounts(received=3, moved=1, refused=1, expired=1)
    text = watch.check(LAST_MS + OUTAGE_QUIET_MS, tally, seen(), is_active=False)
    assert text == "the outage is over, the backlog is empty: 1 message came home, 1 in quarantine, 1 expired"
