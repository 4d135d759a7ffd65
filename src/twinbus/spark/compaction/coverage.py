"""Coverage: which records a store has, and which are missing. While records are missing, "nothing lost" is unproven."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from twinbus.ledger.reading.process_end import FOREVER_MS, Ending
from twinbus.ledger.upkeep.expected import ExpectedWriter, absent, why_absent
from twinbus.ledger.upkeep.pruning import PrunedProcess, subtract_spans
from twinbus.ledger.writing.segment import process_of
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.manifest import NumberRange, Process, SkippedLines, find_holes, join_ranges
from twinbus.spark.compaction.primaries import unique_names

WRITE_LATE_MS = 30_000
"""How late the write of a process that runs may be. It waits behind a sync, which takes seconds on a busy disk, and is
tried again every 5 s: half a minute is ordinary. What was accepted in it is on its way in any report.
"""


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """A period in which a process may have recorded more than was read."""

    process: str
    program: str
    records: int | None
    """How many are missing; None: unknown."""
    since_ms: int
    until_ms: int
    reason: str
    hides_accepted: bool = True
    """Whether messages may have been accepted that no other record has; else only later events are missing."""


@dataclass(frozen=True, slots=True)
class StoreCoverage:
    """What was read and what is missing."""

    processes: int
    records: int
    first_ms: int
    last_ms: int
    running: int
    missing: tuple[MissingRecords, ...]
    skipped: tuple[SkippedLines, ...]
    clocks: tuple[str, ...] = ()
    """Clocks that were wrong for a while and were corrected: a line each."""
    unkept: tuple[int, int] | None = None
    """The first time in a window in which nobody who takes messages kept a ledger."""

    @property
    def is_complete(self) -> bool:
        """Whether what was not read did not happen."""
        return not self.missing

    @property
    def knows_all_accepted(self) -> bool:
        """Whether every message that was accepted has a record of it."""
        return not any(each.hides_accepted for each in self.missing)

    @property
    def missing_until_ms(self) -> int:
        """Records may be missing of anything that began before this; 0 if none are missing."""
        return max((each.until_ms for each in self.missing), default=0)


def find_coverage(compacted: CompactedLedger) -> StoreCoverage:
    processes, pruned = compacted.manifest.processes, compacted.pruned
    missing = [each for name, process in processes.items() for each in _of_process(name, process, compacted)]
    missing += [each for name in pruned for each in _of_pruned(name, pruned[name], processes.get(name, Process()))]
    # Lines that could not be read may be about anything, at any time.
    missing += [
        MissingRecords("", each.segment, each.count, 0, FOREVER_MS, f"{each}")
        for each in compacted.manifest.troubles
        if not _is_explained(each, compacted)
    ]
    missing += _of_several_primaries(processes.values())
    nothing = Process()
    silent = sorted(compacted.running - set(processes))
    missing += [_of_stuck(name, nothing, compacted) for name in silent if _is_stuck(name, nothing, compacted)]
    missing += _of_absent_writers(compacted.expected, find_presences(compacted))
    missing += [_of_wrong_clock(name, each) for name, each in processes.items() if _has_wrong_clock(each)]
    in_time = [each for each in processes.values() if not _has_wrong_clock(each)] or list(processes.values())
    return StoreCoverage(
        processes=len(processes),
        records=compacted.manifest.records,
        first_ms=min((each.first_ms for each in in_time if each.first_ms), default=0),
        last_ms=max((each.last_ms for each in in_time), default=0),
        running=len(compacted.running & set(processes)),
        missing=tuple(missing),
        skipped=tuple(compacted.manifest.troubles),
        clocks=tuple(_correction_line(each) for each in processes.values() if each.clock.count),
    )


def ending_of(name: str, process: Process, running: frozenset[str]) -> Ending:
    """How the records of a process end."""
    if process.closed:
        return "closed"
    if name in running:
        return "running"
    return "stopped" if process.end is not None and process.end.is_complete else "killed"


class LedgerPresence(msgspec.Struct):
    """A time in which a process kept its ledger."""

    host: str
    program: str
    first_ms: int
    last_ms: int
    roles: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()

    @property
    def takes_messages(self) -> bool:
        """Whether its records show that it accepts or stores messages; those of an idle syphon show nothing.

        A client that has done nothing yet is there to send; one that has only received is a receiver.
        """
        return "namespace" in self.roles or ("client" in self.roles and self.uses != ("receives",))


def find_presences(compacted: CompactedLedger) -> list[LedgerPresence]:
    return [_presence(name, each, compacted) for name, each in compacted.manifest.processes.items()]


def _presence(name: str, process: Process, compacted: CompactedLedger) -> LedgerPresence:
    """If its clock was set by an hour, which of its hours were true is unknown: it may have been here an hour less."""
    set_ms = max(process.clock.offsets) - min(process.clock.offsets) if process.clock.offsets else 0
    first_ms, last_ms = process.first_ms + set_ms, process.last_ms - set_ms
    ending, mark = ending_of(name, process, compacted.running), compacted.marks.get(name)
    if ending == "running" and mark is not None and not _is_stuck(name, process, compacted):
        last_ms = max(last_ms, compacted.read_ms if mark.is_clear else mark.alive_ms)
    elif ending == "stopped" and process.end is not None:
        last_ms = max(last_ms, min(process.end.until_ms, compacted.read_ms) - set_ms)
    if first_ms > last_ms:
        first_ms, last_ms = process.first_ms, process.first_ms
    roles, uses = tuple(process.roles), tuple(process.uses)
    return LedgerPresence(process.host, process.program, first_ms, last_ms, roles, uses)


def _is_stuck(name: str, process: Process, compacted: CompactedLedger) -> bool:
    """Whether a running process has events that it could not write for a while, perhaps since it began.

    In another container its mark cannot be read; then it may have, if its folder is full.
    """
    mark = compacted.marks.get(name)
    may_wait = name in compacted.in_full_folders if mark is None else not mark.is_clear
    if not may_wait:
        return False
    alive_ms = 0 if mark is None else mark.alive_ms
    return max(alive_ms, process.last_ms) + process.wait_us // 1000 + WRITE_LATE_MS < compacted.read_ms


def _of_stuck(name: str, process: Process, compacted: CompactedLedger) -> MissingRecords:
    text = "it is running and cannot write its last events: is its disk full or hung, or directory_bytes_max reached?"
    if name not in compacted.marks:
        text = (
            "it is running, its liveness mark cannot be read from here, and the segments in its folder take up as much "
            "as they usually may: perhaps it cannot write (twinbus ledger prune makes room)"
        )
    return MissingRecords(
        name, process.program, None, process.last_ms, FOREVER_MS, text, hides_accepted=_accepts(process)
    )


def _accepts(process: Process) -> bool:
    """What is missing may be that a message was accepted, unless the process is known not to be a client."""
    return not process.roles or "client" in process.roles


def _has_wrong_clock(process: Process) -> bool:
    """Whether its clock was never set, or is ahead of this machine's."""
    return bool(process.clock.ahead_ms) or process.clock.is_unset


def _of_wrong_clock(name: str, process: Process) -> MissingRecords:
    ahead_ms = process.clock.ahead_ms
    how = f"is ahead, by {ahead_ms / 1000:,.0f} s at least" if ahead_ms else "was not set when it began"
    text = f"the clock of {process.host} {how}: when its messages were sent, and which overtook which, is unknown"
    # Nor is it known from when they are: a window may have them whatever their times say.
    return MissingRecords(name, process.program, None, 0, FOREVER_MS, text)


def _correction_line(process: Process) -> str:
    clock = process.clock
    side = "ahead" if clock.most_ms > 0 else "behind"
    return (
        f"the clock of {process.host} was wrong by {abs(clock.most_ms) / 1000:,.0f} s ({side}) for {clock.count:,} "
        f"records of {process.program or 'a process'}: they have the time of its other clock"
    )


def _of_process(name: str, process: Process, compacted: CompactedLedger) -> list[MissingRecords]:
    pruned = compacted.pruned.get(name, PrunedProcess())
    # Of pruned records only the times of the first and the last of all are known. So these are bounds: what is missing
    # before a range may be as late as the last, and what is missing after it as early as the first.
    times = pruned.last_ms, pruned.first_ms
    elsewhere = (NumberRange(first, last, *times) for first, last in (*pruned.read, *pruned.unread))
    found = [_of_hole(name, process, hole) for hole in find_holes(join_ranges([*process.ranges, *elsewhere]))]
    if process.not_understood:
        text = "records of a newer schema: read them with a newer twinbus"
        found.append(MissingRecords(name, process.program, process.not_understood, 0, FOREVER_MS, text))
    accepts = _accepts(process)
    if rejected := process.rejected.count:
        # Which messages the events were about is unknown; they had begun when the last event was rejected.
        text = f"events that could not be written down: {process.rejected.reason}"
        times = (process.rejected.first_ms, process.rejected.last_ms + 1)
        found.append(MissingRecords(name, process.program, rejected, *times, text, hides_accepted=accepts))
    if ending_of(name, process, compacted.running) == "killed":
        until_ms, text, records = FOREVER_MS, "it did not close its ledger: its last records may be missing", None
        if process.end is not None:
            until_ms, text, records = process.end.until_ms, process.end.text, process.end.missing or None
        times = (process.last_ms, until_ms)
        found.append(MissingRecords(name, process.program, records, *times, text, hides_accepted=accepts))
    if name in compacted.running and not process.closed and _is_stuck(name, process, compacted):
        found.append(_of_stuck(name, process, compacted))
    return found


def _of_pruned(name: str, pruned: PrunedProcess, process: Process) -> list[MissingRecords]:
    """Records that were pruned, and that this store does not have."""
    gone = subtract_spans([*pruned.read, *pruned.unread], [(each.first, each.last) for each in process.ranges])
    times = (pruned.first_ms, pruned.last_ms + 1)
    return [
        MissingRecords(name, pruned.program, last - first + 1, *times, pruned.why_missing(first))
        for first, last in gone
    ]


def _of_hole(name: str, process: Process, hole: NumberRange) -> MissingRecords:
    reported = [gap for gap in process.gaps if gap.first <= hole.last and gap.last >= hole.first]
    # 0: no record is before it, so it may have begun at any time.
    since_ms = min([hole.first_ms, *(gap.since_ms for gap in reported if gap.since_ms)])
    until_ms = max([hole.last_ms or FOREVER_MS, *(gap.until_ms for gap in reported)])
    reason = "; ".join(dict.fromkeys(gap.reason for gap in reported)) or "nobody knows why: were segments removed?"
    return MissingRecords(name, process.program, hole.size, since_ms, until_ms, reason)


def _is_explained(skipped: SkippedLines, compacted: CompactedLedger) -> bool:
    """Whether the record numbers of its process already show what is missing."""
    if skipped.defect in ("duplicate", "newer"):
        return True  # nothing is missing, or it is counted as not understood
    owner = process_of(skipped.segment)
    process = compacted.manifest.processes.get(owner) if owner is not None else None
    if owner is None or process is None or skipped.defect not in ("torn", "corrupt"):
        return False
    return skipped.defect == "torn" or ending_of(owner, process, compacted.running) != "killed"


def _of_several_primaries(processes: Iterable[Process]) -> list[MissingRecords]:
    """Messages of different primaries may share entity and id: records of one may be about another."""
    primaries = unique_names(name for process in processes for name in process.primaries)
    if len(primaries) <= 1:
        return []
    names = ", ".join(primaries)
    text = f"the ledger tells of several primaries ({names}): give each pair a folder of its own"
    return [MissingRecords("", "all processes", None, 0, FOREVER_MS, text)]


def _of_absent_writers(expected: Iterable[ExpectedWriter], present: Iterable[LedgerPresence]) -> list[MissingRecords]:
    """An expected writer without a record may have done anything in its time."""
    return [
        MissingRecords("", f"{each}", None, each.since_ms, each.until_ms, why_absent(each))
        for each in absent(expected, present)
    ]
