"""When a syphon looks into the backlog, and what it says of what it found."""

from __future__ import annotations

import pytest

from twinbus.pairing.backlog.queue_depth import Depth
from twinbus.syphon.peeking import depth_watch as backlog_look
from twinbus.syphon.peeking.depth_watch import PEEK_EVERY_MS, BacklogSnapshot, BacklogWatch, is_due, summarize

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS / 1000
EMPTY = summarize(NOW_S, [Depth(), Depth()])
FULL = summarize(NOW_S, [Depth(at_least=3, oldest_ms=NOW_MS - 90_000), Depth()])
UNREAD = summarize(NOW_S, [Depth(), None])


def test_a_look_adds_up_what_it_knows_and_says_what_it_does_not() -> None:
    assert (FULL.waiting_messages, FULL.waiting_at_least, FULL.unread_queues, FULL.oldest_age_s) == (3, 3, 0, 90.0)
    assert (EMPTY.waiting_messages, EMPTY.waiting_at_least, EMPTY.oldest_age_s) == (0, 0, None)
    partly = summarize(NOW_S, [Depth(at_least=1_000, is_exact=False), Depth(at_least=2), None])
    assert (partly.waiting_messages, partly.waiting_at_least, partly.unread_queues) == (None, 1_002, 1)
    blind = summarize(NOW_S, [None, None])
    assert (blind.waiting_messages, blind.waiting_at_least, blind.unread_queues) == (None, None, 2)


def test_only_a_backlog_that_is_known_to_be_empty_is() -> None:
    assert EMPTY.is_empty
    assert not FULL.is_empty
    assert not UNREAD.is_empty
    assert not summarize(NOW_S, [Depth(at_least=0, is_exact=False)]).is_empty


def test_looks_are_less_than_thirty_seconds_apart() -> None:
    assert PEEK_EVERY_MS + 1000 * backlog_look.CHECK_S < 30_000


@pytest.mark.parametrize(
    ("latest", "may_wait", "is_wanted"),
    [
        (EMPTY, False, False),
        (EMPTY, True, True),
        (FULL, False, True),
        (UNREAD, False, True),
        (None, False, True),
    ],
)
def test_it_looks_again_while_anything_waits_or_may(
    latest: BacklogSnapshot | None, may_wait: bool, is_wanted: bool
) -> None:
    assert is_due(latest, None, NOW_MS, may_wait=may_wait), "it has never looked"
    assert not is_due(latest, NOW_MS, NOW_MS + PEEK_EVERY_MS - 1, may_wait=may_wait), "not more often than that"
    assert is_due(latest, NOW_MS, NOW_MS + PEEK_EVERY_MS, may_wait=may_wait) is is_wanted


async def test_a_look_that_fails_leaves_the_one_before() -> None:
    found: list[BacklogSnapshot | None] = [FULL, None]

    async def look() -> BacklogSnapshot | None:
        return found.pop(0)

    watch = BacklogWatch(look, lambda: True, lambda: NOW_MS)
    await watch.refresh()
    await watch.refresh()
    assert watch.latest is FULL
