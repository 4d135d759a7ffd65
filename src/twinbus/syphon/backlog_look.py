"""Looks into the backlog by peeking, which needs Listen: what a syphon shows of it is at most 30 seconds old (X7).

While anything waits, or may, every backlog queue is looked into again and again. When a look has found all of them
empty and nothing has come since, nobody looks: whatever comes is handed to the syphon at once, and then it looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinbus.amqp import sections
from twinbus.errors import DecodeError
from twinbus.pairing.depth import Depth, Peeked, measure
from twinbus.syphon.letters import enqueued_ms
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.look import is_waiting, peek, sequence_of

if TYPE_CHECKING:
    from twinbus.syphon.line import Line

LOOK_EVERY_MS = 25_000
"""From the beginning of a look to that of the next: with the time that a look takes, less than 30 s."""
MESSAGES_MAX = 50
"""Of one queue and look. Every message that is peeked at is an operation, and a look comes every half minute."""
CHECK_S = 1.0
"""How often it is asked whether a look is due; that costs nothing."""


@dataclass(frozen=True, slots=True)
class BacklogLook:
    """What one look into all backlog queues has found."""

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

    def beside(self, shut: int) -> BacklogLook:
        """The same, where it is known by now that so many queues give nothing to a syphon."""
        if not shut or self.waiting_messages is None:
            return self
        return replace(self, waiting_messages=None, unread_queues=shut)


def summary(at: float, depths: Iterable[Depth | None]) -> BacklogLook:
    """All queues together; None stands for one that could not be read."""
    queues = list(depths)
    read = [depth for depth in queues if depth is not None]
    exact = [depth.messages for depth in read if depth.messages is not None]
    oldest = [depth.oldest_ms for depth in read if depth.oldest_ms is not None]
    return BacklogLook(
        at=at,
        waiting_messages=sum(exact) if len(exact) == len(queues) else None,
        waiting_at_least=sum([depth.at_least for depth in read]) if read or not queues else None,
        unread_queues=len(queues) - len(read),
        oldest_age_s=max(0.0, at - min(oldest) / 1000) if oldest else None,
    )


async def look_into(
    line: Line, paths: Iterable[str], at: float, *, shut: Iterable[str] = (), hidden: int = 0
) -> BacklogLook:
    """Look into every queue; `hidden` are those beside them that nobody here can see into.

    Those that are `shut` give nothing to a syphon: what is seen of them is counted, and nobody says that it is all.
    Raises `LineFailed` if the connection is gone.
    """
    depths = {path: await _depth(line, path) for path in paths}
    seen = summary(at, [*depths.values(), *[None] * hidden])
    kept = sum([depths.get(path) is not None for path in shut])
    return replace(seen, waiting_messages=None, unread_queues=seen.unread_queues + kept) if kept else seen


async def _depth(line: Line, path: str) -> Depth | None:
    flow = measure(MESSAGES_MAX)
    ask = next(flow)
    try:
        while True:
            letters = await peek(line, path, *ask)
            ask = flow.send([_peeked(letter) for letter in letters])
    except StopIteration as done:
        depth: Depth = done.value
        return depth
    except (LineFailed, DecodeError):
        if not line.is_open:
            raise
        return None


def _peeked(letter: bytes) -> Peeked:
    layout = sections.walk(letter)
    delivered = sections.read_header(letter, layout).delivery_count if layout.header else 0
    return Peeked(sequence_of(letter), enqueued_ms(letter), is_waiting(letter), bool(delivered), len(letter))


class BacklogWatch:
    """Keeps the latest look, and makes the next one when it is due."""

    def __init__(
        self,
        look: Callable[[], Awaitable[BacklogLook | None]],
        may_wait: Callable[[], bool],
        clock: Callable[[], int],
    ) -> None:
        """`look` gives None where nobody could look; `may_wait` says that messages are known or likely to wait."""
        self._look = look
        self._may_wait = may_wait
        self._clock = clock
        self._tried_ms: int | None = None
        self.latest: BacklogLook | None = None

    async def run(self) -> None:
        while True:
            if is_due(self.latest, self._tried_ms, self._clock(), may_wait=self._may_wait()):
                await self.look()
            await asyncio.sleep(CHECK_S)

    async def look(self) -> None:
        """Look now. Where nobody can, the look before stays: its time says how old it is."""
        self._tried_ms = self._clock()
        self.latest = await self._look() or self.latest


def is_due(latest: BacklogLook | None, tried_ms: int | None, now_ms: int, *, may_wait: bool) -> bool:
    """Whether to look now. Once something is known to wait, until a look proves that nothing does."""
    if tried_ms is None:
        return True
    is_wanted = may_wait or latest is None or not latest.is_empty
    return is_wanted and now_ms - tried_ms >= LOOK_EVERY_MS
