"""The result of an analysis, in numbers and without Spark.

Clocks of different machines disagree if messages arrived before they left. A little is ordinary, and the horizon grows
by that. More than a minute means that a clock is wrong. Then the horizon stays: a day more would hide messages that
others lost. What looks lost is unknown instead until the clock is known: nobody can say which message overtook which.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from twinbus import __version__
from twinbus.cost.bill import Alternative, Bill
from twinbus.ledger.reading.process_end import FOREVER_MS
from twinbus.spark.compaction.coverage import MissingRecords, StoreCoverage
from twinbus.spark.compaction.primaries import split_name
from twinbus.spark.report.service_counts import CountComparison
from twinbus.spark.transforms.selection import ALL, LedgerSelection
from twinbus.spark.transforms.verdict_names import (
    ACCEPTED_CLASSES,
    DUPLICATED,
    IN_DOUBT,
    LOST,
    OTHER_CLASSES,
    SENT_ELSEWHERE,
    UNKNOWN,
)
from twinbus.units import utc_time_ms

Row = dict[str, Any]
CHECKED_CLASSES = (LOST, UNKNOWN, DUPLICATED, IN_DOUBT)
"""Messages that somebody should check: a report names them."""
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
MINOR_SKEW_MS, WRONG_CLOCK_MS = 1_000, 60_000
"""A smaller difference of clocks is ignored; a larger one means that a clock is wrong."""


class AwayMessages(NamedTuple):
    """Messages of an entity that wait in the backlog or in a spool."""

    messages: int
    since_ms: int
    """When the first of them came there."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Which verdict the messages have."""

    entities: dict[str, dict[str, int]]
    """By entity, then by class."""
    overtaken: int
    """Messages that wait although later ones were delivered or came home."""
    named: list[Row]
    """The first of those to check."""
    horizon_min: int
    backwards_ms: int
    """The least by which clocks of different machines disagree."""
    coverage_is_complete: bool
    knows_all_accepted: bool = False
    """Whether every accepted message has a record: only records of namespaces and syphons are missing."""
    is_kept_throughout: bool = False
    """Whether it is about a window in all of which somebody who takes messages kept a ledger."""
    held: int = 0
    """Waiting messages that a syphon holds under lock."""
    held_since_ms: int = 0
    """Since when the first of them is held."""
    unsure: tuple[str, ...] = ()
    """Why the answer is unknown although no record is missing."""
    away: dict[str, AwayMessages] = field(default_factory=dict)
    """By entity; those without any are left out."""

    def count(self, *classes: str) -> int:
        return sum(found.get(each, 0) for found in self.entities.values() for each in classes)

    @property
    def accepted(self) -> int:
        return self.count(*ACCEPTED_CLASSES)

    @property
    def not_named(self) -> int:
        """How many more there are to check."""
        return max(0, self.count(*CHECKED_CLASSES) - len(self.named))

    @property
    def lost_at_least(self) -> int:
        """How many are proven to be lost, whatever records are missing."""
        return self.count(LOST)

    @property
    def lost(self) -> int | None:
        """How many were lost; None: unknown."""
        return self.count(LOST) if self.is_certain else None

    @property
    def is_certain(self) -> bool:
        """Whether missing records would change nothing.

        The last records of a killed namespace or syphon may be missing. They do not matter if all messages come from
        clients whose records are complete, and each message is accounted for without them. So it is if a window has no
        message.
        """
        if self.unsure or self.count(UNKNOWN) or (self._has_messages_of_others and not self.accepted):
            return False
        accounted = (self.accepted or self.is_kept_throughout) and not self._has_messages_of_others
        return self.coverage_is_complete or bool(self.knows_all_accepted and accounted)

    @property
    def _has_messages_of_others(self) -> bool:
        """Whether the primary has messages without a record that they were accepted."""
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
        """What the records show although some are missing."""
        unknown = self.count(UNKNOWN)
        if unknown:
            return f"; {unknown:,} of {self.accepted:,} messages look lost, unless they tell otherwise"
        if self.count(LOST):
            return ""
        return f"; the {self.accepted:,} messages on record are all accounted for" if self.accepted else ""

    @property
    def has_wrong_clock(self) -> bool:
        """Whether clocks disagree by more than any horizon should allow for."""
        return self.backwards_ms > WRONG_CLOCK_MS

    @property
    def _at_least(self) -> str:
        """What is certain although the rest is unknown."""
        return f"at least {self.count(LOST):,} lost; whether more is " if self.count(LOST) else ""

    @property
    def _doubt(self) -> str:
        """Why the answer is unknown although no record is missing."""
        reasons = dict.fromkeys(row["why"] for row in self.named if row["verdict"] == UNKNOWN and row["why"])
        unknown = [f"{self.count(UNKNOWN):,} of {self.accepted:,} messages: {'; '.join(reasons)}"] if reasons else []
        is_unsent = self._has_messages_of_others and not self.accepted
        nobody = ["those who sent the messages keep no ledger"] if is_unsent else []
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
            "away": {entity: each._asdict() for entity, each in self.away.items()},
            "named": self.named,
            "not_named": self.not_named,
            "horizon_min": self.horizon_min,
            "clocks_disagree_ms": max(0, self.backwards_ms),
        }


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a report shows."""

    coverage: StoreCoverage
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
    selection: LedgerSelection = ALL
    """The messages that it is about."""
    made_ms: int = 0
    """When the ledger was read."""
    primaries: tuple[str, ...] = ()
    secondaries: tuple[str, ...] = ()
    """The names that records give the namespaces of the pair."""
    counts: list[CountComparison] = field(default_factory=list)
    """What the service counted, beside what is on record."""
    verdicts_url: str | None = None
    """Where the verdict table is."""

    @property
    def is_empty(self) -> bool:
        return not self.coverage.records

    @property
    def is_lossless(self) -> bool | None:
        """Whether the records prove that nothing is lost, or that something is; None: neither."""
        if self.reconciliation.lost_at_least:
            return False
        return None if self.is_empty or self.reconciliation.lost is None else True

    def as_dict(self) -> Row:
        return {
            "version": __version__,
            "made_at": utc_time_ms(self.made_ms) if self.made_ms else None,
            "pair": {"primary": list(self.primaries), "secondary": list(self.secondaries)},
            "window": self.selection.as_dict(),
            "verdicts_url": self.verdicts_url,
            "coverage": coverage_dict(self.coverage),
            "reconciliation": self.reconciliation.as_dict(),
            "outages": self.outages,
            "availability": self.availability,
            "ordering": {"entities": self.ordering, "sessions_hurt": self.sessions_hurt},
            "flow": {"bucket_ms": self.bucket_ms, "buckets": self.flow},
            "cost": cost_dict(self.bills, self.prices_as_of)
            | {"alternatives": [[asdict(each) for each in of_month] for of_month in self.alternatives]},
            "service_counts": [each.as_dict() for each in self.counts],
        }


def cost_dict(bills: list[Bill], prices_as_of: str) -> Row:
    return {"prices_as_of": prices_as_of, "months": [each.as_dict() for each in bills]}


def coverage_dict(coverage: StoreCoverage) -> Row:
    return {
        "complete": coverage.is_complete,
        "processes": coverage.processes,
        "running": coverage.running,
        "records": coverage.records,
        "first_ms": coverage.first_ms,
        "last_ms": coverage.last_ms,
        "unknown": [
            asdict(each) | {"until_ms": None if each.until_ms >= FOREVER_MS else each.until_ms}
            for each in coverage.missing
        ],
        "unkept": coverage.unkept,
        "clocks": list(coverage.clocks),
        "skipped": [
            {
                "segment": each.segment,
                "defect": each.defect,
                "count": each.count,
                "lines": each.lines,
                "text": each.text,
            }
            for each in coverage.skipped
        ],
    }


def widen_horizon(horizon_min: int, missing_until_ms: int, backwards_ms: int) -> tuple[int, int]:
    """The horizon, and until when records count as missing, if clocks disagree by this much."""
    if backwards_ms <= MINOR_SKEW_MS:
        return horizon_min, missing_until_ms
    if backwards_ms > WRONG_CLOCK_MS:
        return horizon_min, FOREVER_MS
    later_ms = backwards_ms if missing_until_ms else 0
    return horizon_min + -(-backwards_ms // MINUTE_MS), missing_until_ms + later_ms


def with_clock_warning(coverage: StoreCoverage, found: Reconciliation) -> StoreCoverage:
    """The same coverage; if a clock is wrong, records count as missing."""
    if not found.has_wrong_clock:
        return coverage
    text = (
        f"messages arrived {found.backwards_ms / 1000:,.0f} s before they left: a clock is wrong, so it is unknown "
        "which message overtook which"
    )
    wrong = MissingRecords("", "clocks", None, 0, FOREVER_MS, text)
    return replace(coverage, missing=(*coverage.missing, wrong))


def hours_out(month: str, outages: list[Row], last_ms: int) -> float:
    """Hours of `month`, e.g. 2025-03, in which at least one entity was out; an outage without an end lasts until
    `last_ms`.
    """
    begin_ms, end_ms = _month_bounds(month)
    spans = sorted(
        (
            max(row["suspected_ms"], begin_ms),
            min(last_ms if row["recovered_ms"] is None else row["recovered_ms"], end_ms),
        )
        for row in outages
    )
    total_ms, until_ms = 0, begin_ms
    for since_ms, till_ms in spans:
        total_ms += max(0, till_ms - max(since_ms, until_ms))
        until_ms = max(until_ms, till_ms)
    return total_ms / HOUR_MS


def _month_bounds(month: str) -> tuple[int, int]:
    year, number = map(int, month.split("-"))
    begin = datetime(year, number, 1, tzinfo=UTC)
    last_of_all = datetime.max.replace(tzinfo=UTC)
    is_last = (year, number) == (last_of_all.year, last_of_all.month)
    end = last_of_all if is_last else datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return round(begin.timestamp() * 1000), round(end.timestamp() * 1000)
