"""What a drill has to keep to, and whether it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinbus.drill.measures import Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None: no matter how long, as long as it happens at all."""

    failover_s: float | None = None
    gap_s: float | None = None
    recovery_s: float | None = None
    drain_s: float | None = None
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One measure beside its limit."""

    name: str
    value: str
    limit: str
    """Empty: none was set."""
    is_kept: bool
    """Without a limit: whether it happened at all."""

    @property
    def word(self) -> str:
        """What is said of it: *kept* only where there was a limit to keep."""
        return ("kept" if self.limit else "") if self.is_kept else "MISSED"

    def as_dict(self) -> dict[str, Any]:
        kept = self.is_kept if self.limit else None
        return {"name": self.name, "value": self.value, "limit": self.limit, "kept": kept, "passed": self.is_kept}


def judge(measures: Measures, limits: Limits) -> tuple[Finding, ...]:
    """Every measure that can be missed, in the order in which things happen."""
    return (
        _timely("failover", measures.failover_s, limits.failover_s, "never: no send took the detour"),
        _timely("gap", measures.gap_s, limits.gap_s, "unknown: nothing was accepted"),
        _timely("recovery", measures.recovery_s, limits.recovery_s, "never: the primary took no send again"),
        _timely("drain", measures.drain_s, limits.drain_s, _not_drained(measures)),
        _losses(measures, limits.lost),
    )


def passes(findings: Sequence[Finding]) -> bool:
    return all(finding.is_kept for finding in findings)


def seconds_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def _timely(name: str, value_s: float | None, limit_s: float | None, never: str) -> Finding:
    limit = "" if limit_s is None else f"at most {limit_s:g} s"
    if value_s is None:
        return Finding(name, never, limit, is_kept=False)
    return Finding(name, seconds_text(value_s), limit, is_kept=limit_s is None or value_s <= limit_s)


def _not_drained(measures: Measures) -> str:
    return f"not done: {measures.waiting} still in the backlog" if measures.waiting else "not done: not all came home"


def _losses(measures: Measures, most: int) -> Finding:
    limit = f"at most {most}"
    if measures.lost is None:
        return Finding("lost", "unknown: nobody could look", limit, is_kept=False)
    return Finding("lost", str(len(measures.lost)), limit, is_kept=len(measures.lost) <= most)
