"""When a watch alerts: each kind once when it begins, again if it grows worse, and once when it is over.

Time is an argument. A backlog is stuck if a message has waited in it for long, no client says that its primary is out,
and for a while none of its messages have left: neither are there fewer of them, nor did the first of them change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from twinbus.plain_text import on_one_line
from twinbus.units import report_duration, utc_time_ms

if TYPE_CHECKING:
    from twinbus.spark.jobs.findings import AwayMessages, Findings

AlertKind = Literal["lost", "stuck", "counts", "blind"]
NAMED_MAX = 20


class RoundFacts(NamedTuple):
    """What a round of a watch found."""

    at_ms: int
    lost: int
    unknown: int
    waiting: int
    away: Mapping[str, AwayMessages]
    """By entity: what waits in the backlog or in a spool."""
    out: frozenset[str]
    """Entities whose primary is out, as clients saw it last."""
    doubts: tuple[str, ...] = ()
    """Differences from counts of the service."""
    named: tuple[Mapping[str, Any], ...] = ()
    """The first messages that are lost."""

    @property
    def oldest_ms(self) -> int | None:
        """Since when the message waits that has waited longest in a backlog or a spool."""
        return min((each.since_ms for each in self.away.values()), default=None)


def facts_of(found: Findings, at_ms: int) -> RoundFacts:
    reconciled = found.reconciliation
    return RoundFacts(
        at_ms=at_ms,
        lost=reconciled.lost_at_least,
        unknown=reconciled.count("unknown"),
        waiting=reconciled.count("waiting"),
        away=reconciled.away,
        out=frozenset(row["entity"] for row in found.outages if row["recovered_ms"] is None),
        doubts=tuple(each.doubt for each in found.counts if each.doubt),
        named=tuple(row for row in reconciled.named if row["verdict"] == "lost")[:NAMED_MAX],
    )


class WatchAlert(NamedTuple):
    """What the people on call get."""

    kind: AlertKind
    is_over: bool
    at_ms: int
    text: str
    messages: int = 0
    entity: str | None = None
    named: tuple[Mapping[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "alert": self.kind,
            "state": "over" if self.is_over else "begun",
            "at": utc_time_ms(self.at_ms),
            "entity": self.entity,
            "messages": self.messages,
            "text": on_one_line(self.text),
            "named": [dict(each) for each in self.named],
        }


@dataclass(slots=True)
class _Backlog:
    """What was seen of the backlog of an entity."""

    messages: int
    since_ms: int
    moved_ms: int
    """When messages were last seen to leave it, or to be there for the first time."""


@dataclass(slots=True)
class AlertState:
    """What was alerted, and what is needed to tell whether a backlog moves; as large as there are entities."""

    stuck_after_ms: int
    """A message in the backlog that has waited less is no reason for an alert."""
    quiet_ms: int
    """How long nothing must have left."""
    blind_ms: int
    """How long rounds may fail."""
    lost: int = 0
    backlogs: dict[str, _Backlog] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    doubts: tuple[str, ...] = ()
    seen_ms: int | None = None
    """When a round last succeeded, or the first was tried."""
    is_blind: bool = False

    def after_round(self, facts: RoundFacts) -> list[WatchAlert]:
        """What to alert after a round that succeeded."""
        at_ms = facts.at_ms
        alerts = [*self._sight(at_ms), *self._lost(facts), *self._backlogs(facts)]
        if facts.doubts and facts.doubts != self.doubts:
            alerts.append(WatchAlert("counts", False, at_ms, "; ".join(facts.doubts)))
        elif self.doubts and not facts.doubts:
            alerts.append(WatchAlert("counts", True, at_ms, "the service counts as many as it acknowledged"))
        self.doubts = facts.doubts
        return alerts

    def after_failure(self, at_ms: int, reason: str) -> list[WatchAlert]:
        """What to alert after a round that failed."""
        if self.seen_ms is None:
            self.seen_ms = at_ms
        for_ms = at_ms - self.seen_ms
        if self.is_blind or for_ms < self.blind_ms:
            return []
        self.is_blind = True
        text = f"nothing is known of the last {report_duration(for_ms)}: {reason}"
        return [WatchAlert("blind", False, at_ms, text)]

    def _sight(self, at_ms: int) -> Iterator[WatchAlert]:
        self.seen_ms = at_ms
        if self.is_blind:
            self.is_blind = False
            yield WatchAlert("blind", True, at_ms, "the ledger can be read again")

    def _lost(self, facts: RoundFacts) -> Iterator[WatchAlert]:
        before, self.lost = self.lost, facts.lost
        if facts.lost > before:
            text = f"{facts.lost:,} messages are lost" + (f", {before:,} before" if before else "")
            yield WatchAlert("lost", False, facts.at_ms, text, facts.lost, named=facts.named)
        elif before and not facts.lost:
            text = f"no message is lost any more: {before:,} were found, or are no longer looked at"
            yield WatchAlert("lost", True, facts.at_ms, text)

    def _backlogs(self, facts: RoundFacts) -> Iterator[WatchAlert]:
        for entity, away in facts.away.items():
            seen = self.backlogs.get(entity)
            has_moved = seen is None or away.messages < seen.messages or away.since_ms != seen.since_ms
            # While the primary is out nothing can come home: the time counts from its return.
            moved_ms = facts.at_ms if has_moved or seen is None or entity in facts.out else seen.moved_ms
            self.backlogs[entity] = _Backlog(away.messages, away.since_ms, moved_ms)
        for entity in [each for each in self.backlogs if each not in facts.away]:
            del self.backlogs[entity]
        stuck = {entity for entity in self.backlogs if self._is_stuck(entity, facts)}
        for entity in sorted(stuck - self.stuck):
            away = facts.away[entity]
            text = (
                f"{away.messages:,} messages to {entity} wait in the backlog, the first for "
                f"{report_duration(facts.at_ms - away.since_ms)}; no client says that the primary is out, and for "
                f"{report_duration(facts.at_ms - self.backlogs[entity].moved_ms)} none came home: does a syphon run?"
            )
            yield WatchAlert("stuck", False, facts.at_ms, text, away.messages, entity)
        for entity in sorted(self.stuck - stuck):
            left = facts.away.get(entity)
            why = "its backlog is empty" if left is None else "its backlog moves again, or its primary is out"
            messages = 0 if left is None else left.messages
            yield WatchAlert("stuck", True, facts.at_ms, f"{entity}: {why}", messages, entity)
        self.stuck = stuck

    def _is_stuck(self, entity: str, facts: RoundFacts) -> bool:
        seen = self.backlogs[entity]
        return (
            entity not in facts.out
            and facts.at_ms - seen.since_ms >= self.stuck_after_ms
            and facts.at_ms - seen.moved_ms >= self.quiet_ms
        )
