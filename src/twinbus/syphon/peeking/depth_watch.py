"""How much waits in the backlog, found by peeking, and when an outage is over.

While anything waits, or may wait, every backlog queue is peeked again and again, so what a syphon shows is at most 30
seconds old. When all of them were seen empty and nothing has arrived since, there are no peeks: what comes is delivered
to the syphon at once, and then it peeks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinbus.amqp.message import sections
from twinbus.errors import DecodeError
from twinbus.pairing.backlog.queue_depth import Depth, Peeked, measure
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.annotations import enqueued_ms, is_waiting, sequence_of
from twinbus.transport.links.peek import peek

if TYPE_CHECKING:
    from twinbus.syphon.progress import SyphonCounts
    from twinbus.transport.connection import NamespaceConnection

PEEK_EVERY_MS = 25_000
"""From the beginning of a round of peeks to the next: with the time that it takes, less than 30 s."""
MESSAGES_MAX = 50
"""Of one queue and round. Every peeked message is an operation, and a round comes every half minute."""
CHECK_S = 1.0
"""How often it is checked whether a round is due; that costs nothing."""
OUTAGE_QUIET_MS = 60_000
"""Senders ping the primary once a minute, so those that still send to the backlog do so within that time."""


@dataclass(frozen=True, slots=True)
class BacklogSnapshot:
    """What one round of peeks into all backlog queues found."""

    at: float
    """When it began, in seconds since 1970."""
    waiting_messages: int | None
    """Exactly; None: not all could be counted."""
    waiting_at_least: int | None
    """Those that were seen; None: no queue could be read."""
    unread_queues: int
    """Those that could not be read, or that give nothing to a syphon."""
    oldest_age_s: float | None
    """Of the oldest message that was seen."""

    @property
    def is_empty(self) -> bool:
        """Whether it is certain that nothing waits."""
        return self.waiting_messages == 0

    def with_shut(self, shut: int) -> BacklogSnapshot:
        """The same, if it is known by now that `shut` queues give nothing to a syphon."""
        if not shut or self.waiting_messages is None:
            return self
        return replace(self, waiting_messages=None, unread_queues=shut)


def summarize(at: float, depths: Iterable[Depth | None]) -> BacklogSnapshot:
    """All queues together; None stands for one that could not be read."""
    queues = list(depths)
    read = [depth for depth in queues if depth is not None]
    exact = [depth.messages for depth in read if depth.messages is not None]
    oldest = [depth.oldest_ms for depth in read if depth.oldest_ms is not None]
    return BacklogSnapshot(
        at=at,
        waiting_messages=sum(exact) if len(exact) == len(queues) else None,
        waiting_at_least=sum([depth.at_least for depth in read]) if read or not queues else None,
        unread_queues=len(queues) - len(read),
        oldest_age_s=max(0.0, at - min(oldest) / 1000) if oldest else None,
    )


async def take_snapshot(
    connection: NamespaceConnection, paths: Iterable[str], at: float, *, shut: Iterable[str], unseen: int
) -> BacklogSnapshot:
    """Peek into every queue; `unseen` others exist that cannot be read from here.

    Those that are `shut` give nothing to a syphon: what is seen of them is counted, and never as everything.
    Raises `ConnectionFailed` if the connection is lost.
    """
    depths = {path: await _depth(connection, path) for path in paths}
    found = summarize(at, [*depths.values(), *[None] * unseen])
    kept = sum([depths.get(path) is not None for path in shut])
    return replace(found, waiting_messages=None, unread_queues=found.unread_queues + kept) if kept else found


async def _depth(connection: NamespaceConnection, path: str) -> Depth | None:
    flow = measure(MESSAGES_MAX)
    ask = next(flow)
    try:
        while True:
            messages = await peek(connection, path, *ask)
            ask = flow.send([_read_peeked(message) for message in messages])
    except StopIteration as done:
        depth: Depth = done.value
        return depth
    except (ConnectionFailed, DecodeError):
        if not connection.is_open:
            raise
        return None


def _read_peeked(message: bytes) -> Peeked:
    layout = sections.walk(message)
    delivered = sections.read_header(message, layout).delivery_count if layout.header else 0
    return Peeked(sequence_of(message), enqueued_ms(message), is_waiting(message), bool(delivered), len(message))


class BacklogWatch:
    """Keeps the latest snapshot, and takes the next one when it is due."""

    def __init__(
        self,
        take: Callable[[], Awaitable[BacklogSnapshot | None]],
        may_wait: Callable[[], bool],
        clock: Callable[[], int],
    ) -> None:
        """`take` returns None if no snapshot can be taken; `may_wait`: messages are known or likely to wait."""
        self._take = take
        self._may_wait = may_wait
        self._clock = clock
        self._tried_ms: int | None = None
        self.latest: BacklogSnapshot | None = None

    async def run(self) -> None:
        while True:
            if is_due(self.latest, self._tried_ms, self._clock(), may_wait=self._may_wait()):
                await self.refresh()
            await asyncio.sleep(CHECK_S)

    async def refresh(self) -> None:
        """Take a snapshot now. If that fails the one before stays: its time says how old it is."""
        self._tried_ms = self._clock()
        self.latest = await self._take() or self.latest


def is_due(latest: BacklogSnapshot | None, tried_ms: int | None, now_ms: int, *, may_wait: bool) -> bool:
    """Whether to peek now. Once something is known to wait, until a snapshot proves that nothing does."""
    if tried_ms is None:
        return True
    is_wanted = may_wait or latest is None or not latest.is_empty
    return is_wanted and now_ms - tried_ms >= PEEK_EVERY_MS


class OutageWatch:
    """Reports once that an outage is over and the backlog is home; ask it every second or so.

    A syphon cannot know what senders elsewhere intend. So an outage is over when all backlog queues were seen empty
    after nothing had arrived from them for a minute, no known sender uses them, and every destination takes messages.
    """

    def __init__(self) -> None:
        self.is_open = False
        """Whether there is an outage whose end was not reported yet."""
        self._received = 0
        self._active_ms = 0
        self._before = (0, 0, 0)
        """Moved, refused and expired when the last outage was over."""

    def check(
        self, now_ms: int, counts: SyphonCounts, latest: BacklogSnapshot | None, *, is_active: bool
    ) -> str | None:
        """The end of an outage in words, once; None: nothing to report.

        `is_active`: a destination is down, a known sender sends to the backlog, or messages are in flight.
        """
        if is_active or counts.received != self._received:
            self.is_open = True
            self._received, self._active_ms = counts.received, now_ms
            return None
        is_proven = latest is not None and latest.is_empty and latest.at * 1000 >= self._active_ms + OUTAGE_QUIET_MS
        if not self.is_open or not is_proven:
            return None
        self.is_open = False
        totals = (counts.moved, counts.refused, counts.expired)
        moved, refused, expired = [now - then for now, then in zip(totals, self._before, strict=True)]
        self._before = totals
        messages = "1 message" if moved == 1 else f"{moved:,} messages"
        if not refused and not expired:
            return f"the outage is over, the backlog is home: {messages} came through this syphon"
        others = [f"{refused:,} in quarantine"] if refused else []
        others += [f"{expired:,} expired"] if expired else []
        return f"the outage is over, the backlog is empty: {messages} came home, {', '.join(others)}"
