"""Which backlog queue is next (P6).

A sender keeps its choice while that queue is in the rotation; the rotation is shared by all senders of a client, so
whoever meets a queue that fails spares the others. After a time of probation a lost queue may be chosen again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from twinbus.pairing.sending.failure import Failure, FailureKind


@dataclass(frozen=True, slots=True)
class LostQueue:
    lost_at: float
    back_at: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class Silence:
    """Attempts at a queue that all had too little time and no answer, and between which it took nothing."""

    since: float
    """When the first one ended."""
    until: float
    """When the last one that counts ended. Who began earlier met the same moment of silence, and counts for nothing."""
    attempts: int
    had_s: float
    """How much time they had together."""


class Rotation:
    def __init__(self, queues: Iterable[int], probation_s: float) -> None:
        self._queues = tuple(queues)
        self._probation_s = probation_s
        self._lost: dict[int, LostQueue] = {}
        self._silences: dict[int, Silence] = {}

    def use(self, queues: Iterable[int]) -> None:
        """These queues are there; what is known about some of them stays."""
        self._queues = tuple(queues)
        self._lost = {queue: lost for queue, lost in self._lost.items() if queue in self._queues}
        self._silences.clear()

    @property
    def queues(self) -> tuple[int, ...]:
        return self._queues

    @property
    def lost(self) -> dict[int, LostQueue]:
        """Queues that have left the rotation, also those whose probation is over but that nobody tried since."""
        return dict(self._lost)

    def available(self, at: float) -> list[int]:
        return [queue for queue in self._queues if self.is_available(queue, at)]

    def is_available(self, queue: int, at: float) -> bool:
        lost = self._lost.get(queue)
        return queue in self._queues and (lost is None or at >= lost.back_at)

    def pick(
        self,
        current: int | None,
        at: float,
        chance: float,
        *,
        avoid: int | None = None,
        without: Collection[int] = (),
    ) -> int | None:
        """The sender's queue, or another one by chance (from 0 up to 1) if it has none or lost it; None: none is left.

        `avoid` is a queue that is not lost but wanted least: a busy one. `without` are queues that whoever asks has
        tried already, and that are not wanted even if their probation is over.
        """
        unwanted = {avoid, *without}
        if current is not None and current not in unwanted and self.is_available(current, at):
            return current
        choice = [queue for queue in self.available(at) if queue not in unwanted]
        return choice[min(int(chance * len(choice)), len(choice) - 1)] if choice else None

    def lose(self, queue: int, at: float, failure: Failure) -> bool:
        """The queue has failed; whether it was in the rotation until now."""
        was_available = self.is_available(queue, at)
        self._silences.pop(queue, None)
        if queue in self._queues:  # else it is gone since this attempt began
            self._lost[queue] = LostQueue(at, at + self._probation_s, failure)
        return was_available

    def confirm(self, queue: int) -> bool:
        """The queue took something; whether it had been lost."""
        self._silences.pop(queue, None)
        return self._lost.pop(queue, None) is not None

    def silent_for_a_moment(self, queue: int, began_at: float, at: float) -> Silence:
        """An attempt with too little time got no answer; what there is of that in a row."""
        known = self._silences.get(queue)
        if known is None:
            known = Silence(at, at, 1, at - began_at)
        elif began_at >= known.until:
            known = Silence(known.since, at, known.attempts + 1, known.had_s + at - began_at)
        self._silences[queue] = known
        return known

    def forgive_silence(self, since: float) -> list[int]:
        """The whole secondary is silent: queues that were lost since then for giving no answer are back."""
        silent = [
            queue
            for queue, lost in self._lost.items()
            if lost.failure.kind is FailureKind.NO_ANSWER and lost.lost_at >= since
        ]
        for queue in silent:
            del self._lost[queue]
        self._silences.clear()
        return silent

    def why_none(self) -> str:
        """The reasons for which queues are lost, each once."""
        if not self._queues:
            return "there is no backlog queue"
        reasons = dict.fromkeys(str(lost.failure) for lost in self._lost.values())
        return "; ".join(reasons) or "no backlog queue is left to try"


class QueueChoice:
    """The backlog queue that one sender has chosen; None before its first detour."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: int | None = None


class Search:
    """What one batch has met on its way to a backlog queue."""

    __slots__ = ("busy", "doubts", "failed", "unreachable")

    def __init__(self) -> None:
        self.busy: int | None = None
        """It asked to be left alone for ten seconds, so another one is wanted."""
        self.failed: set[int] = set()
        """Not tried again by this batch, however short their probation is: every send has an end."""
        self.unreachable: set[int] = set()
        """No connection could be made or kept for these; that is not their fault, but another one is tried first."""
        self.doubts = 0
        """Attempts that ended without an answer: each may have stored a copy."""
