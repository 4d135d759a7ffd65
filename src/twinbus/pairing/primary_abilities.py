"""What else the primary can or cannot do, beside taking messages: give them out, be managed, be contacted at all (S2).

Known from what receivers and administrative calls of this process find out anyway: nobody asks on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.sending.failure import Failure, FailureKind

Kind = FailureKind

PATHS_MAX = 1_000
"""Entities and subscriptions that are remembered; of more, those that work and were tried first are forgotten."""


class Ability(StrEnum):
    RECEIVE = "receive"
    MANAGE = "manage"


@dataclass(slots=True)
class AbilityRecord:
    """One ability of one entity or subscription."""

    path: str
    ability: Ability
    works: bool
    since: float
    """When it was first found to be so."""
    reason: str = ""
    """Why it does not work; empty if it does."""
    failures: int = 0
    """In all."""


SAYS_NOTHING = frozenset((Kind.BUSY, Kind.REJECTED, Kind.TOO_LARGE, Kind.NOT_ALLOWED, Kind.TIMED_OUT))
"""Somebody answered, and not that it cannot be done: the caller asked for too much, or for a session that is not there.
"""
QUIET_CONDITIONS = frozenset(
    (
        "com.microsoft:message-lock-lost",
        "com.microsoft:session-lock-lost",
        "com.microsoft:session-cannot-be-locked",
        "amqp:link:detach-forced",
    )
)
"""The receiver's own affair, or what a service does to links that were idle for long."""
EVENTS = {
    Ability.RECEIVE: ("receive_failed", "receive_works"),
    Ability.MANAGE: ("manage_failed", "manage_works"),
}


def verdict(ability: Ability, failure: Failure | None) -> bool | None:
    """Whether it works, by one attempt; None: the attempt says nothing."""
    if failure is None:
        return True
    if failure.kind in SAYS_NOTHING or failure.condition in QUIET_CONDITIONS:
        return None
    if ability is Ability.MANAGE and failure.kind is Kind.UNAUTHORISED:
        return None  # most keys may not manage, and need not
    return ability is Ability.MANAGE and failure.kind in (Kind.NOT_FOUND, Kind.DELETED)  # it was answered


def is_out_of_contact(failure: Failure) -> bool:
    """Whether nobody answers at all: not even that something cannot be done."""
    return failure.is_connection and failure.kind in (Kind.UNREACHABLE, Kind.NO_ANSWER)


class Abilities:
    """Times are monotonic seconds. Whoever shares it holds a lock around every change."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, Ability], AbilityRecord] = {}
        self.lost_since: float | None = None
        """Since when the primary cannot be contacted; None: it can, as far as is known."""
        self.lost_reason = ""

    @property
    def records(self) -> Sequence[AbilityRecord]:
        return tuple(self._records.values())

    @property
    def has_contact(self) -> bool:
        return self.lost_since is None

    def works(self, path: str, ability: Ability) -> bool:
        """Whether that is known already, and nothing is to be noted. Any thread may ask."""
        record = self._records.get((path.lower(), ability))
        return record is not None and record.works and self.lost_since is None

    def tried(self, path: str, ability: Ability, at: float, failure: Failure | None) -> list[ReportEvent]:
        """An attempt has ended; returns what is to be reported."""
        events = self.met(at, failure)
        works = verdict(ability, failure)
        if works is None:
            return events
        key = (path.lower(), ability)
        before = self._records.get(key)
        if before is None and failure is not None and failure.kind is Kind.NOT_FOUND:
            return events  # a wrong name is the caller's fault, and not a trouble of the primary
        record = before or AbilityRecord(path, ability, works, at)
        if before is None:
            self._make_room()
            self._records[key] = record
        record.failures += not works
        record.reason = "" if failure is None or works else str(failure)
        has_changed = not works if before is None else record.works != works
        if has_changed:
            record.works, record.since = works, at
            failed, back = EVENTS[ability]
            text = "it works again" if works else record.reason
            events.append(ReportEvent(back if works else failed, text, {"path": path, "side": "primary"}))
        return events

    def met(self, at: float, failure: Failure | None) -> list[ReportEvent]:
        """Somebody has asked the primary for something; None: and was answered."""
        if failure is None or not is_out_of_contact(failure):
            if self.lost_since is None or (failure is not None and failure.is_connection):
                return []
            self.lost_since, self.lost_reason = None, ""
            return [ReportEvent("primary_back", "it can be contacted again", {"side": "primary"})]
        is_new = self.lost_since is None
        self.lost_since = at if self.lost_since is None else self.lost_since
        self.lost_reason = str(failure)
        return [ReportEvent("primary_unreachable", str(failure), {"side": "primary"})] if is_new else []

    def _make_room(self) -> None:
        if len(self._records) >= PATHS_MAX:
            fine = next((key for key, record in self._records.items() if record.works), next(iter(self._records)))
            del self._records[fine]
