"""What a ledger says, in numbers: the result of an analysis, without Spark."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from twinbus.cost.alternatives import Alternative
from twinbus.cost.bill import Bill
from twinbus.ledger.endings import FOREVER_MS
from twinbus.spark.compaction.coverage import Coverage, Unknown
from twinbus.spark.compaction.primaries import split_name
from twinbus.spark.transforms.classes import (
    ACCEPTED_CLASSES,
    DUPLICATED,
    IN_DOUBT,
    LOST,
    OTHER_CLASSES,
    SENT_ELSEWHERE,
    UNKNOWN,
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Where the messages are."""

    entities: dict[str, dict[str, int]]
    """By entity, then by class."""
    overtaken: int
    """Messages that wait although later ones have gone on."""
    named: list[Row]
    """The first of those that somebody should look at."""
    horizon_min: int
    backwards_ms: int
    """By how much clocks of different machines disagree, at least."""
    coverage_is_complete: bool
    knows_all_accepted: bool = False
    """Whether at least everything that was accepted is told of: records are missing only of those who kept it."""
    held: int = 0
    """Of those that wait, how many a syphon holds under lock."""
    held_since_ms: int = 0
    """Since when, at the longest."""
    unsure: tuple[str, ...] = ()
    """Why the answer is unknown although no record is missing."""

    def count(self, *classes: str) -> int:
        return sum(found.get(each, 0) for found in self.entities.values() for each in classes)

    @property
    def accepted(self) -> int:
        return self.count(*ACCEPTED_CLASSES)

    @property
    def not_named(self) -> int:
        """How many more there are of those that somebody should look at."""
        return max(0, self.count(*WORTH_A_LOOK) - len(self.named))

    @property
    def lost_at_least(self) -> int:
        """How many are proven to be lost, whatever else is unknown: no record that is missing could tell otherwise."""
        return self.count(LOST)

    @property
    def lost(self) -> int | None:
        """How many were lost; None: unknown, because records are missing."""
        return self.count(LOST) if self.is_certain else None

    @property
    def is_certain(self) -> bool:
        """Whether what is not told of did not happen, or would change nothing.

        A namespace or syphon that was killed may have kept its last records. They do not matter if all messages come
        from clients whose records are complete, and each of them is accounted for without.
        """
        if self.unsure or self.count(UNKNOWN) or (self._is_of_others and not self.accepted):
            return False
        accounted = self.accepted and not self._is_of_others
        return self.coverage_is_complete or bool(self.knows_all_accepted and accounted)

    @property
    def _is_of_others(self) -> bool:
        """Whether the primary has messages that nobody says were accepted."""
        return any(found.get(SENT_ELSEWHERE) for entity, found in self.entities.items() if not split_name(entity)[0])

    @property
    def verdict(self) -> str:
        """In a few words."""
        if not self.is_certain:
            if self.coverage_is_complete:
                return f"{self._at_least}unknown: {self._doubt}"
            text = f"{self._at_least}unknown: records are missing{self._of_those_on_record}"
            return "; ".join([text, *self.unsure])
        if not self.accepted:
            return "nothing was recorded about any message"
        return f"{self.lost:,} lost" if self.lost else "nothing lost"

    @property
    def _of_those_on_record(self) -> str:
        """What can be said of the messages that are told of, though records are missing."""
        unknown = self.count(UNKNOWN)
        if unknown:
            return f"; {unknown:,} of {self.accepted:,} messages look lost, unless they tell otherwise"
        if self.count(LOST):
            return ""
        return f"; the {self.accepted:,} messages that are told of are all accounted for" if self.accepted else ""

    @property
    def _at_least(self) -> str:
        """What is certain although more is unknown."""
        return f"at least {self.count(LOST):,} lost; whether more is " if self.count(LOST) else ""

    @property
    def _doubt(self) -> str:
        """Why nobody knows although no record is missing: the messages concerned are listed elsewhere."""
        reasons = dict.fromkeys(row["why"] for row in self.named if row["verdict"] == UNKNOWN and row["why"])
        unknown = [f"{self.count(UNKNOWN):,} of {self.accepted:,} messages: {'; '.join(reasons)}"] if reasons else []
        nobody = [] if self.accepted else ["those who sent the messages keep no ledger"]
        return "; ".join([*unknown, *self.unsure, *nobody])

    def as_dict(self) -> Row:
        return {
            "verdict": self.verdict,
            "accepted": self.accepted,
            "lost": self.lost,
            "lost_at_least": self.lost_at_least,
            "classes": {each: self.count(each) for each in (*ACCEPTED_CLASSES, *OTHER_CLASSES)},
            "entities": self.entities,
            "overtaken": self.overtaken,
            "held_by_syphon": self.held,
            "held_since_ms": self.held_since_ms or None,
            "named": self.named,
            "not_named": self.not_named,
            "horizon_min": self.horizon_min,
            "clocks_disagree_ms": max(0, self.backwards_ms),
        }


WORTH_A_LOOK = (LOST, UNKNOWN, DUPLICATED, IN_DOUBT)


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a report shows."""

    coverage: Coverage
    reconciliation: Reconciliation
    outages: list[Row]
    availability: list[Row]
    ordering: list[Row]
    sessions_hurt: list[Row]
    flow: list[Row]
    bucket_ms: int
    bills: list[Bill]
    prices_as_of: str
    alternatives: list[list[Alternative]] = field(default_factory=list)
    """For each bill, what else there was to buy."""

    @property
    def is_empty(self) -> bool:
        return not self.coverage.records

    def as_dict(self) -> Row:
        return {
            "coverage": coverage_dict(self.coverage),
            "reconciliation": self.reconciliation.as_dict(),
            "outages": self.outages,
            "availability": self.availability,
            "ordering": {"entities": self.ordering, "sessions_hurt": self.sessions_hurt},
            "flow": {"bucket_ms": self.bucket_ms, "buckets": self.flow},
            "cost": cost_dict(self.bills, self.prices_as_of)
            | {"alternatives": [[asdict(each) for each in of_month] for of_month in self.alternatives]},
        }


def cost_dict(bills: list[Bill], prices_as_of: str) -> Row:
    return {"prices_as_of": prices_as_of, "months": [each.as_dict() for each in bills]}


def coverage_dict(coverage: Coverage) -> Row:
    return {
        "complete": coverage.is_complete,
        "processes": coverage.processes,
        "running": coverage.running,
        "records": coverage.records,
        "first_ms": coverage.first_ms,
        "last_ms": coverage.last_ms,
        "unknown": [_unknown_dict(each) for each in coverage.unknown],
        "clocks": list(coverage.clocks),
        "skipped": [
            {
                "segment": each.segment,
                "defect": each.defect,
                "count": each.count,
                "lines": each.lines,
                "text": each.text,
            }
            for each in coverage.troubles
        ],
    }


def _unknown_dict(unknown: Unknown) -> Row:
    said = asdict(unknown)
    return said | {"until_ms": None if unknown.until_ms >= FOREVER_MS else unknown.until_ms}
