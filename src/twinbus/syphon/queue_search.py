"""Which backlog queues of a primary there are: senders elsewhere may use more of them than we were told (P2).

With the right to list, one listing finds all of them. Without it a link is tried to each of the first hundred, which is
as many as a sender can have; no message is taken. Whoever is refused there cannot know what lies behind, so the backlog
may not be called empty then. Nor may it while a queue is there that gives nothing to a syphon: one that demands
sessions, forwards what it gets, or is disabled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinbus.pairing.backlog_queues import backlog_path, index_of
from twinbus.pairing.failure import Failure, FailureKind
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed

if TYPE_CHECKING:
    from twinbus.dial import Dial

QUEUES_MAX = 100
"""As many backlog queues as a sender can have."""
LINKS_AT_ONCE = 20
ABSENT = frozenset((FailureKind.NOT_FOUND, FailureKind.DELETED))
FOR_GOOD = ABSENT | {FailureKind.UNAUTHORISED}
"""What does not pass by itself: somebody has to make a queue, or to give a right."""
SHUT = frozenset((FailureKind.NOT_ALLOWED, FailureKind.DISABLED, FailureKind.REJECTED))
"""The queue is there and gives us nothing, whatever our rights: somebody has to change its settings or its status."""
SAYS_NOTHING = frozenset(
    (
        FailureKind.BUSY,
        FailureKind.INTERNAL,
        FailureKind.NO_ANSWER,
        FailureKind.TIMED_OUT,
        FailureKind.UNREACHABLE,
    )
)
"""Answers that tell neither that a queue is there nor that it is not."""

_NAMED_MAX = 5
"""So many queues that cannot be emptied are named, each with its reason; the others are counted."""

Answers = Mapping[int, Failure | None]
"""By index, what a link to the queue was answered; None: it was opened."""


@dataclass(frozen=True, slots=True)
class BacklogQueues:
    """What one look has found."""

    queue_count: int
    """How many there should be."""
    queues: tuple[int, ...]
    """Those to work with, by index: there and readable, or in a trouble that may pass or be repaired."""
    missing: dict[int, Failure]
    """Those of the first `queue_count` that are not there, or may not be read, and why."""
    refused: dict[int, Failure]
    """Those that may be there and do not let us in, whatever their index."""
    unsure: dict[int, Failure]
    """Those beyond `queue_count` of which nobody could say now whether they are there."""
    shut: dict[int, Failure] = field(default_factory=dict)
    """Those of `queues` that give nothing to a syphon until somebody changes their settings or their status."""
    requests: int = 0
    """What it cost: requests to list queues. Links cost nothing."""

    @property
    def extra(self) -> tuple[int, ...]:
        """Those beyond the count: not sent to from here, and emptied all the same."""
        return tuple([index for index in self.queues if index >= self.queue_count])

    @property
    def passing(self) -> dict[int, Failure]:
        """Those of which somebody can say more in a while: nobody could now, or our credential has no token now."""
        return {**self.unsure, **{index: why for index, why in self.refused.items() if not lasts(why)}}

    @property
    def doubt(self) -> str | None:
        """Why nobody can say that all messages of these queues come home, in one line; None: they do."""
        return "; ".join(self.doubts) or None

    @property
    def doubts(self) -> list[str]:
        """The same, a line each."""
        return doubts({**self.shut, **self.refused, **self.unsure})


def lasts(failure: Failure) -> bool:
    """Whether an answer to a link stays the same until somebody does something: an outage passes by itself."""
    return failure.error is None and failure.kind in FOR_GOOD | SHUT


def doubts(failures: Mapping[int, Failure]) -> list[str]:
    """Why messages may stay in the queues that have answered so, or may not be all; a line each."""
    shut = {index: why for index, why in failures.items() if why.kind in SHUT}
    unseen = {index: why for index, why in failures.items() if index not in shut}
    named = [f"backlog queue {index} {unemptied(why)}" for index, why in sorted(shut.items())]
    lines = named[:_NAMED_MAX]
    if len(named) > _NAMED_MAX:
        lines.append(f"{len(named) - _NAMED_MAX} more backlog queues cannot be emptied either")
    if unseen:
        index, failure = next(iter(unseen.items()))
        others = len(unseen) - 1
        which = f"backlog queue {index}" + (f" and {others} more" if others else "")
        lines.append(f"whether messages lie in {which} cannot be told: {failure}")
    return lines


def unemptied(failure: Failure) -> str:
    """That a queue is shut, why, and what would help."""
    return f"cannot be emptied: {failure}; {remedy(failure)}"


def remedy(failure: Failure) -> str:
    """What opens a queue that is shut."""
    if failure.kind is FailureKind.DISABLED:
        return "set its status to Active"
    if failure.kind is FailureKind.NOT_ALLOWED:
        return "it must neither demand sessions nor forward: make it anew without sessions, or end the forwarding"
    return "compare its settings with those of the other backlog queues"


class QueueSearch:
    """Looks for the backlog queues of a primary, as often as somebody wants to know."""

    def __init__(self, secondary: Dial, primary_name: str, queue_count: int, *, attempt_s: float = 15.0) -> None:
        self._secondary = secondary
        self._primary_name = primary_name
        self.queue_count = queue_count
        self._attempt_s = attempt_s
        self._may_list = True
        self._turn = asyncio.Lock()
        self.latest: BacklogQueues | None = None

    def hidden(self, known: Iterable[str]) -> int:
        """How many queues beside the known ones may be there, by the latest look, and cannot be seen into."""
        if self.latest is None:
            return 0
        unseen = {backlog_path(self._primary_name, index) for index in (*self.latest.refused, *self.latest.unsure)}
        return len(unseen - set(known))

    async def look(self) -> BacklogQueues:
        """Which queues there are now. Raises `LineFailed` if the secondary cannot be reached.

        One look at a time: or what an earlier one has found could pass for the news.
        """
        async with self._turn:
            listed, requests = await self._listed()
            tried = sorted({*range(self.queue_count), *(range(QUEUES_MAX) if listed is None else listed)})
            line = Line(self._secondary, attempt_s=self._attempt_s, clock=lambda: int(time.monotonic() * 1000))
            await line.open()
            try:
                answers = await self._answers(line, tried)
            finally:
                await line.close()
            self.latest = sorted_out(self.queue_count, answers, requests)
            return self.latest

    async def _listed(self) -> tuple[set[int] | None, int]:
        """The indexes of all that are there, and what it cost; None if nobody tells."""
        ask = self._secondary.list_queues
        if ask is None or not self._may_list:
            return None, 0
        try:
            pages = await ask()
        except PermissionError:
            self._may_list = False  # it would be refused every time
            return None, 1
        except OSError:
            return None, 1
        found = {index_of(name, self._primary_name) for page in pages for name in page}
        return {index for index in found if index is not None}, max(1, len(pages))

    async def _answers(self, line: Line, indexes: Iterable[int]) -> dict[int, Failure | None]:
        turn = asyncio.Semaphore(LINKS_AT_ONCE)

        async def answer(index: int) -> Failure | None:
            async with turn:
                return await _answer(line, backlog_path(self._primary_name, index))

        first, *others = indexes
        answers = {first: await answer(first)}  # alone: what all of them need is made by then
        return answers | dict(zip(others, await asyncio.gather(*map(answer, others)), strict=True))


def chosen(queue_count: int, queues: Sequence[int] | None) -> Sequence[int]:
    """The indexes of the queues to work with: all, unless some are named."""
    return range(queue_count) if queues is None else queues


async def _answer(line: Line, path: str) -> Failure | None:
    try:
        await line.try_receiver(path)
    except LineFailed as error:
        if not line.is_open:
            raise
        return error.failure
    return None


def sorted_out(queue_count: int, answers: Answers, requests: int = 0) -> BacklogQueues:
    """What the answers to links say of the queues."""
    failures = {index: why for index, why in sorted(answers.items()) if why is not None}
    unsure = {index: why for index, why in failures.items() if index >= queue_count and why.kind in SAYS_NOTHING}
    closed = {index: why for index, why in failures.items() if why.kind in FOR_GOOD}
    return BacklogQueues(
        queue_count,
        queues=tuple([index for index in sorted(answers) if index not in unsure and index not in closed]),
        missing={index: why for index, why in closed.items() if index < queue_count},
        shut={index: why for index, why in failures.items() if why.kind in SHUT},
        refused={index: why for index, why in closed.items() if why.kind not in ABSENT},
        unsure=unsure,
        requests=requests,
    )
