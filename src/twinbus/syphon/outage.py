"""When an outage is over and the backlog is home: said once, and only when a look proves it.

A syphon cannot know what senders elsewhere intend. So the end is said when all backlog queues were seen empty after
nothing had come from them for a minute, nobody known sends to them, and every destination takes messages. No clock of
its own: time comes in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinbus.syphon.backlog_look import BacklogLook
    from twinbus.syphon.tally import Tally

QUIET_MS = 60_000
"""Senders ping the primary once a minute, so those that still send to the backlog do so within that time."""


class OutageWatch:
    """One for each syphon; ask it every second or so."""

    def __init__(self) -> None:
        self.is_open = False
        """Whether there is an outage whose end was not said yet."""
        self._received = 0
        self._active_ms = 0
        self._before = (0, 0, 0)
        """Moved, refused and expired when the last outage was over."""

    def check(self, now_ms: int, tally: Tally, latest: BacklogLook | None, *, is_active: bool) -> str | None:
        """The end of an outage in words, once; None: there is none to be said.

        `is_active`: a destination is down, or somebody sends to the backlog, or messages are on their way.
        """
        if is_active or tally.received != self._received:
            self.is_open = True
            self._received, self._active_ms = tally.received, now_ms
            return None
        is_proven = latest is not None and latest.is_empty and latest.at * 1000 >= self._active_ms + QUIET_MS
        if not self.is_open or not is_proven:
            return None
        self.is_open = False
        counts = (tally.moved, tally.refused, tally.expired)
        moved, refused, expired = [now - then for now, then in zip(counts, self._before, strict=True)]
        self._before = counts
        return _text(moved, refused, expired)


def _text(moved: int, refused: int, expired: int) -> str:
    if not refused and not expired:
        return f"the outage is over, the backlog is home: {_messages(moved)} came through this syphon"
    others = [f"{refused:,} in quarantine"] if refused else []
    others += [f"{expired:,} expired"] if expired else []
    return f"the outage is over, the backlog is empty: {_messages(moved)} came home, {', '.join(others)}"


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"
