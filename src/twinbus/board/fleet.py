"""From reports to a fleet: which process says what, which reports are over, and what is unknown.

The only clock that counts is the secondary's, which marks every report when it is stored. Nobody tells a reader what
time it is there, but a report that was seen has been stored before: so the latest mark, and the time that has passed
here since it was seen, say how late it is there at least. By that a report is proven over. Where this machine's clock
says that even the newest report is old, and nothing proves it, the fleet is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

import msgspec

from twinbus.board.board_peek import BoardLook, PostedReport
from twinbus.board.queue import LIFE_S
from twinbus.board.report import ProcessPhase, ProcessReport, ReportedState, decode_report
from twinbus.board.schedule import CALM_EVERY_S
from twinbus.errors import DecodeError

PROCESSES_MAX = 1_000
"""Instances that a reader remembers. Further ones are counted, and the fleet is not known as a whole."""
LATE_FACTOR, LATE_S = 2.0, 10.0
"""A process is silent if it has let pass twice its time and a little more."""
DOUBT_S = LATE_FACTOR * CALM_EVERY_S + LATE_S
"""If the newest report is older than this by the reader's own clock, it is doubtful that anybody still reports."""
UNREADABLE_MAX = 10_000


class ProcessWord(StrEnum):
    """Whether a process still reports."""

    REPORTING = "reporting"
    SILENT = "silent"
    """Its next report is overdue: it was killed or cut off, or is stuck. What it has is unknown."""
    ENDED = "ended"
    """It said that it ends."""


class FleetVerdict(StrEnum):
    """What the fleet says in all. Words and order as in `twinbus status`."""

    FAILED_OVER = "failed over"
    FAILING = "failing"
    WAITING = "waiting"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"


class EntityInFleet(NamedTuple):
    """One entity, as all processes find it."""

    entity: str
    failed_over: int
    """Processes that have turned its messages to the backlog."""
    suspect: int
    healthy: int
    cannot_receive: int
    cannot_manage: int
    longest_s: float | None
    """For how long it is not healthy, at the process where that is longest."""
    reason: str
    """Of that process."""
    ping_in_s: float | None
    """How long until the next ping of any process; None: none is known, e.g. because the latest reports are older."""

    @property
    def is_healthy(self) -> bool:
        return not (self.failed_over or self.suspect or self.cannot_receive or self.cannot_manage)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetProcess:
    """One process that has reported, and how old that is."""

    report: ProcessReport
    word: ProcessWord
    age_s: float
    """Of the report, at least."""
    sequence: int
    """Of the report, on the board."""

    @property
    def is_calm(self) -> bool:
        return self.report.is_calm

    def as_dict(self) -> dict[str, Any]:
        """Plain values only. Lengths are as of the look, so the age of the report is added."""
        report = self.report
        return {
            "host": report.host,
            "process": report.process,
            "kind": report.kind.value,
            "instance": report.instance,
            "word": self.word.value,
            "phase": report.phase.value,
            "reason": report.reason,
            "report_age_s": self.age_s,
            "report_number": report.number,
            "entities": [
                msgspec.to_builtins(each)
                | {
                    "for_s": None if each.for_s is None else each.for_s + self.age_s,
                    "ping_in_s": _left_s(each.ping_in_s, self.age_s),
                }
                for each in report.entities
            ],
            "entities_left_out": msgspec.to_builtins(report.left_out),
            "held": report.held,
            "spooled": report.spooled,
            "sent_to_backlog": report.sent_to_backlog,
            "secondary_down_for_s": report.secondary_down_for_s,
            "syphon": msgspec.to_builtins(report.syphon),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All processes that report, as of one look at the board."""

    processes: tuple[FleetProcess, ...] = ()
    """Those in trouble first."""
    has_board: bool | None = True
    """False: the secondary has no such queue; None: unknown."""
    problem: str = ""
    """Why the fleet is not known, or not as a whole; empty if it is."""
    left_out: int = 0
    """Instances that were not remembered, because there are too many."""
    unreadable: int = 0
    """Messages on the board that cannot be read: not reports, or reports of a later version."""
    newest_age_s: float | None = None
    """Of the newest report, at least; None: there is none."""

    @property
    def is_complete(self) -> bool:
        """Whether every process that reports is in it."""
        return not self.problem and self.has_board is not None

    @property
    def reporting(self) -> tuple[FleetProcess, ...]:
        """Those whose report holds: anything that others have said may be different by now."""
        return tuple([each for each in self.processes if each.word is ProcessWord.REPORTING])

    @property
    def silent(self) -> tuple[FleetProcess, ...]:
        return tuple([each for each in self.processes if each.word is ProcessWord.SILENT])

    @property
    def verdict(self) -> FleetVerdict:
        """The worst that is known; healthy only if that is known of all."""
        said_now = [each.report for each in self.reporting]
        states = {each.state for report in said_now for each in report.entities}
        states |= {state for report in said_now for state, count in report.left_out.items() if count}
        if ReportedState.FAILED_OVER in states:
            return FleetVerdict.FAILED_OVER
        if ReportedState.SUSPECT in states or any(map(_is_failing, said_now)):
            return FleetVerdict.FAILING
        if not all(report.is_calm for report in said_now):
            return FleetVerdict.WAITING
        if self.has_board is False:
            return FleetVerdict.HEALTHY
        return FleetVerdict.HEALTHY if self.is_complete and not self.silent else FleetVerdict.UNKNOWN

    def entities(self) -> tuple[EntityInFleet, ...]:
        """Every entity that a reporting process names, those in trouble first."""
        found: dict[str, list[tuple[FleetProcess, Any]]] = {}
        for process in self.reporting:
            for each in process.report.entities:
                found.setdefault(each.entity.lower(), []).append((process, each))
        rows = [_entity_in_fleet(sightings) for sightings in found.values()]
        return tuple(sorted(rows, key=lambda row: (row.is_healthy, -row.failed_over, -row.suspect, row.entity)))

    def as_dict(self) -> dict[str, Any]:
        """Plain values only, for JSON."""
        return {
            "verdict": self.verdict.value,
            "has_board": self.has_board,
            "is_complete": self.is_complete,
            "problem": self.problem,
            "processes": [each.as_dict() for each in self.processes],
            "entities": [each._asdict() for each in self.entities()],
            "left_out": self.left_out,
            "unreadable": self.unreadable,
            "newest_age_s": self.newest_age_s,
        }


def _is_failing(report: ProcessReport) -> bool:
    is_cut_off = report.secondary_down_for_s is not None or report.phase is ProcessPhase.FAULTED
    return is_cut_off or any(each.cannot for each in report.entities)


def _entity_in_fleet(sightings: list[tuple[FleetProcess, Any]]) -> EntityInFleet:
    counts = dict.fromkeys(ReportedState, 0)
    longest_s, reason = None, ""
    for process, each in sightings:
        counts[each.state] += 1
        is_down = each.state is not ReportedState.HEALTHY
        for_s = None if each.for_s is None else each.for_s + process.age_s
        if is_down and (longest_s is None or (for_s or 0.0) > longest_s):
            longest_s, reason = for_s or 0.0, each.reason
        elif each.cannot and not reason:
            reason = each.reason
    return EntityInFleet(
        entity=sightings[0][1].entity,
        failed_over=counts[ReportedState.FAILED_OVER],
        suspect=counts[ReportedState.SUSPECT],
        healthy=counts[ReportedState.HEALTHY],
        cannot_receive=sum("receive" in each.cannot for _, each in sightings),
        cannot_manage=sum("manage" in each.cannot for _, each in sightings),
        longest_s=longest_s,
        reason=reason,
        ping_in_s=min(
            filter(None, [_left_s(each.ping_in_s, process.age_s) for process, each in sightings]), default=None
        ),
    )


def _left_s(ping_in_s: float | None, age_s: float) -> float | None:
    """None if it was due since the report: when the next one is, its process has not said yet."""
    return ping_in_s - age_s if ping_in_s is not None and ping_in_s > age_s else None


class _Kept(NamedTuple):
    """The latest report of an instance."""

    report: ProcessReport
    sequence: int
    enqueued_s: float


class FleetMemory:
    """What a reader of the board remembers from look to look. Not for several threads at once.

    `at` is monotonic time here; `wall_s` seconds since 1970 by this machine's clock, which is only ever a reason for
    doubt.
    """

    def __init__(self, most: int = PROCESSES_MAX) -> None:
        self._most = most
        self._kept: dict[str, _Kept] = {}
        """By instance."""
        self._left_out: dict[str, float] = {}
        self._is_overfull = False
        self._unreadable = 0
        self._unreadable_s: float | None = None
        """When the newest of them was stored."""
        self._ahead_s: float | None = None
        """How far the secondary's clock is ahead of ours, at least."""
        self._newest_s: float | None = None
        self._looked_at: float | None = None
        self._arrived_at: float | None = None
        """The newest report came after this time: it was not there when the look before had ended."""
        self.next_sequence: int | None = None
        """Where the next look begins; None: there was none yet."""
        self._is_all = True

    def add(self, found: BoardLook, at: float) -> None:
        """What a look has found, which ended at that time."""
        for post in found.posts:
            self._note_time(post, at)
        if found.posts and self._looked_at is not None:
            self._arrived_at = self._looked_at
        if found.is_all:
            self._looked_at = at
        self._forget_what_is_over(at)
        for post in found.posts:
            self._add(post, at)
        self.next_sequence, self._is_all = found.next_sequence, found.is_all

    def anew(self) -> FleetMemory:
        """One that remembers nothing: the board is gone, and numbers begin anew on the next."""
        return FleetMemory(self._most)

    def fleet(self, at: float, wall_s: float) -> Fleet:
        """The fleet as it is known now."""
        self._forget_what_is_over(at)
        processes = [self._process(kept, at) for kept in self._kept.values()]
        order = {ProcessWord.REPORTING: 0, ProcessWord.SILENT: 1, ProcessWord.ENDED: 2}
        processes.sort(
            key=lambda each: (
                each.is_calm,
                order[each.word],
                each.report.host,
                each.report.process,
                each.report.instance,
            )
        )
        newest_age_s = None if self._newest_s is None else max(0.0, self._now_there(at) - self._newest_s)
        return Fleet(
            processes=tuple(processes),
            problem=self._problem(at, wall_s),
            left_out=len(self._left_out),
            unreadable=self._unreadable,
            newest_age_s=newest_age_s,
        )

    def _problem(self, at: float, wall_s: float) -> str:
        if not self._is_all:
            return "there is more on the board than one look reads"
        if self._left_out:
            more = "more than " if self._is_overfull else ""
            return f"{more}{len(self._left_out):,} more processes report than are remembered"
        if self._unreadable_s is not None:
            return "messages on the board cannot be read: reports of a later version, or somebody else sends to it"
        is_watched = self._arrived_at is not None and at - self._arrived_at <= DOUBT_S
        if self._kept and self._newest_s is not None and wall_s - self._newest_s > DOUBT_S and not is_watched:
            age = round(wall_s - self._newest_s)
            return f"by this machine's clock the newest report is {age:,} s old: nobody reports, or the clocks differ"
        return "" if self._kept else "no process reports on the board"

    def _note_time(self, post: PostedReport, at: float) -> None:
        if post.enqueued_ms is not None:
            enqueued_s = post.enqueued_ms / 1000
            self._ahead_s = enqueued_s - at if self._ahead_s is None else max(self._ahead_s, enqueued_s - at)
            self._newest_s = enqueued_s if self._newest_s is None else max(self._newest_s, enqueued_s)

    def _now_there(self, at: float) -> float:
        """How late it is at the secondary, at least."""
        return at + (self._ahead_s or 0.0)

    def _add(self, post: PostedReport, at: float) -> None:
        if post.enqueued_ms is None or self._now_there(at) - post.enqueued_ms / 1000 >= LIFE_S:
            return
        try:
            report = decode_report(post.body)
        except DecodeError:
            self._unreadable = min(self._unreadable + 1, UNREADABLE_MAX)
            self._unreadable_s = max(self._unreadable_s or 0.0, post.enqueued_ms / 1000)
            return
        kept = self._kept.get(report.instance)
        if kept is not None and report.number <= kept.report.number:
            return  # a repetition, or an old report that somebody posts again
        if kept is None and len(self._kept) >= self._most:
            self._leave_out(report.instance, post.enqueued_ms / 1000)
            return
        self._kept[report.instance] = _Kept(report, post.sequence, post.enqueued_ms / 1000)

    def _leave_out(self, instance: str, enqueued_s: float) -> None:
        if len(self._left_out) < self._most or instance in self._left_out:
            self._left_out[instance] = enqueued_s
        else:
            self._is_overfull = True

    def _forget_what_is_over(self, at: float) -> None:
        oldest = self._now_there(at) - LIFE_S
        self._kept = {instance: kept for instance, kept in self._kept.items() if kept.enqueued_s > oldest}
        self._left_out = {instance: when for instance, when in self._left_out.items() if when > oldest}
        self._is_overfull = self._is_overfull and len(self._left_out) >= self._most
        if self._unreadable_s is not None and self._unreadable_s <= oldest:
            self._unreadable_s = None

    def _process(self, kept: _Kept, at: float) -> FleetProcess:
        age_s = max(0.0, self._now_there(at) - kept.enqueued_s)
        return FleetProcess(
            report=kept.report,
            word=_word(kept.report, age_s),
            age_s=age_s,
            sequence=kept.sequence,
        )


def _word(report: ProcessReport, age_s: float) -> ProcessWord:
    match report.phase:
        case ProcessPhase.CLOSED:
            return ProcessWord.ENDED
        case ProcessPhase.PAIRED | ProcessPhase.FAULTED:
            every_s = min(report.every_s, CALM_EVERY_S)  # nobody may promise so little that it is never missed
            return ProcessWord.SILENT if age_s > LATE_FACTOR * every_s + LATE_S else ProcessWord.REPORTING
        case _:
            assert_never(report.phase)


NO_BOARD = Fleet(has_board=False)
"""The secondary has no such queue: nobody reports anywhere."""
