"""A fault in force: what is wrong at the moment, until when, and what is left of it."""

from __future__ import annotations

from typing import Any

from twinbus.namespace.faults.durations import duration_text
from twinbus.namespace.faults.throttle import Bucket
from twinbus.namespace.faults.troubles import Busy, Refusing, Restarting, Unanswered
from twinbus.namespace.faults.vocabulary import KINDS, RESTART, Fault

NEVER_MS = 2**63


class InForce:
    __slots__ = (
        "_last_due_ms",
        "_later",
        "bucket",
        "covers",
        "fault",
        "id",
        "left",
        "scope",
        "since_ms",
        "touches",
        "trouble",
        "until_ms",
    )

    def __init__(self, fault_id: str, fault: Fault, now_ms: int) -> None:
        self.id = fault_id
        self.fault = fault
        self.scope = fault.scope
        self.covers = fault.scope.matcher().covers
        self.since_ms = now_ms
        self._later = list(fault.phases())
        self._last_due_ms = 0
        self._begin_phase(now_ms)

    def _begin_phase(self, now_ms: int) -> None:
        length_ms, trouble = self._later.pop(0)
        self.trouble = trouble
        self.touches = trouble.touches
        self.until_ms = NEVER_MS if length_ms is None else now_ms + length_ms
        self.left = trouble.count if isinstance(trouble, Refusing | Unanswered) else None
        """How often it may still strike; None: as often as it likes."""
        self.bucket = Bucket(trouble.per_second, now_ms) if isinstance(trouble, Busy) else None

    def turn(self, now_ms: int) -> bool:
        """Go on to the phase of this moment; False if the fault is over."""
        while now_ms >= self.until_ms:
            if not self._later:
                return False
            self._begin_phase(self.until_ms)
        return self.left != 0

    def count_down(self) -> bool:
        """It has struck; True if that was the last time."""
        if self.left is None:
            return False
        self.left -= 1
        return self.left == 0

    def in_turn(self, due_ms: int) -> int:
        """The moment at which something due then may happen: never before what came earlier, so that order is kept."""
        self._last_due_ms = max(self._last_due_ms, due_ms)
        return self._last_due_ms

    def ends_ms(self) -> int | None:
        """When the last phase ends; None: when it is cleared or used up."""
        if self.until_ms == NEVER_MS:
            return None
        return self.until_ms + sum(phase.length_ms or 0 for phase in self._later)

    def to_values(self, now_ms: int) -> dict[str, Any]:
        """Everything about it as plain values; the text is for people."""
        ends_ms = self.ends_ms()
        left_ms = None if ends_ms is None else max(0, ends_ms - now_ms)
        return {
            "id": self.id,
            **self.fault.to_values(),
            "since_ms": self.since_ms,
            "left_ms": left_ms,
            "strikes_left": self.left,
            "text": f"{self.scope}: {self._meaning()}, {self._rest(left_ms)}",
        }

    def _meaning(self) -> str:
        if self.fault.kind != RESTART:
            return KINDS[self.fault.kind].meaning
        return "restarting" if isinstance(self.trouble, Restarting) else "slow after a restart"

    def _rest(self, left_ms: int | None) -> str:
        rest = "until cleared" if left_ms is None else f"{duration_text(left_ms)} left"
        return rest if self.left is None else f"{self.left} times, {rest}"
