"""The status of a client or proxy, and of a syphon, as a report on the board."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from twinbus.board.report import (
    DESTINATIONS_MAX,
    NAME_MAX,
    EntityFinding,
    ProcessKind,
    ProcessPhase,
    ProcessReport,
    ReportedState,
    SyphonFinding,
    listed,
    said,
)
from twinbus.client.reporting.status import AbilityStatus, EntityState, EntityStatus, Phase, Status, SyphonStatus

STATES = {
    EntityState.HEALTHY: ReportedState.HEALTHY,
    EntityState.SUSPECT: ReportedState.SUSPECT,
    EntityState.FAILED_OVER: ReportedState.FAILED_OVER,
}
PHASES = {
    Phase.NEW: ProcessPhase.PAIRED,
    Phase.PAIRED: ProcessPhase.PAIRED,
    Phase.FAULTED: ProcessPhase.FAULTED,
    Phase.CLOSED: ProcessPhase.CLOSED,
}


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports."""

    kind: ProcessKind
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)
    instance: str = field(default_factory=lambda: os.urandom(8).hex())

    def report_of(self, status: Status) -> ProcessReport:
        """How a pair is, as this process sees it. Number and time of the next report are the poster's to say."""
        entities, left_out = listed(list(_findings(status)))
        secondary = status.secondary_status
        return ProcessReport(
            instance=self.instance,
            number=0,
            host=self.host[:NAME_MAX],
            process=self.process,
            kind=self.kind,
            every_s=1.0,
            phase=PHASES[status.phase],
            reason=said(status.fault or ""),
            entities=entities,
            left_out=left_out,
            held=sum([entity.held_now for entity in status.entities]),
            spooled=None if status.spool is None else status.spool.messages,
            sent_to_backlog=status.sent_to_backlog.messages,
            secondary_down_for_s=_since(secondary.unreachable_since, status.at),
            syphon=None if status.syphon is None else syphon_finding(status.syphon, secondary.waiting_messages),
        )

    def report_of_syphon(self, syphon: SyphonStatus, waiting: int | None) -> ProcessReport:
        """The same for a process that is a syphon and nothing else; `waiting`: what its latest look has counted."""
        return ProcessReport(
            instance=self.instance,
            number=0,
            host=self.host[:NAME_MAX],
            process=self.process,
            kind=self.kind,
            every_s=1.0,
            syphon=syphon_finding(syphon, waiting),
        )


def syphon_finding(syphon: SyphonStatus, waiting: int | None) -> SyphonFinding:
    return SyphonFinding(
        state=syphon.state[:40],
        moved=syphon.moved,
        rate=round(max(0.0, syphon.rate), 1),
        left=waiting if syphon.left is None else max(0, syphon.left),
        seconds_left=None if syphon.seconds_left is None else min(max(0.0, syphon.seconds_left), 1e12),
        destinations_down=tuple([path[:NAME_MAX] for path in syphon.destinations_down[:DESTINATIONS_MAX]]),
    )


def _findings(status: Status) -> Iterator[EntityFinding]:
    """Entities that are sent to, then those that are only received from or managed and cannot be."""
    failing: dict[str, list[AbilityStatus]] = {}
    for each in status.abilities:
        if not each.works:
            failing.setdefault(each.path.lower(), []).append(each)
    for entity in status.entities:
        yield _finding(entity, status.at, failing.pop(entity.entity.lower(), []))
    for rest in failing.values():
        yield _finding(EntityStatus(entity=rest[0].path), status.at, rest)


def _finding(entity: EntityStatus, now: datetime, failing: list[AbilityStatus]) -> EntityFinding:
    reason = entity.reason or (failing[0].reason if failing else "")
    since = failing[0].since if failing and entity.since is None else entity.since
    return EntityFinding(
        entity=entity.entity[:NAME_MAX],
        state=STATES[entity.state],
        for_s=_since(since, now),
        reason=said(reason),
        held=entity.held_now,
        ping_in_s=_since(now, entity.next_ping_at),
        cannot=tuple([each.ability.value for each in failing]),
    )


def _since(since: datetime | None, now: datetime | None) -> float | None:
    return None if since is None or now is None else round(max(0.0, (now - since).total_seconds()), 1)
