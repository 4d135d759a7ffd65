"""How much of what happened a store knows. Where records are missing, nobody may say that nothing was lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from twinbus.ledger.endings import FOREVER_MS, Ending
from twinbus.ledger.expected import Presence, Writer, absent, why_absent
from twinbus.ledger.pruned import PrunedProcess, without
from twinbus.ledger.segment import process_of
from twinbus.spark.compaction.compaction import Compacted
from twinbus.spark.compaction.manifest import Process, Trouble
from twinbus.spark.compaction.number_ranges import Hole, Range, holes, joined
from twinbus.spark.compaction.primaries import different
from twinbus.spark.compaction.untold import Stretch, untold


@dataclass(frozen=True, slots=True)
class Unknown:
    """A time about which a process may have had more to say than was read."""

    process: str
    program: str
    records: int | None
    """How many are missing; None: nobody knows."""
    since_ms: int
    until_ms: int
    reason: str
    hides_accepted: bool = True
    """Whether messages may have been accepted that nothing else tells of; else only what became of them is missing."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read and what is missing."""

    processes: int
    records: int
    first_ms: int
    last_ms: int
    running: int
    unknown: tuple[Unknown, ...]
    troubles: tuple[Trouble, ...]
    untold: tuple[Stretch, ...] = ()
    """When the primary kept no ledger."""
    clocks: tuple[str, ...] = ()
    """Clocks that were wrong for a while and were put right: a line each."""

    @property
    def is_complete(self) -> bool:
        """Whether what was not read did not happen."""
        return not self.unknown

    @property
    def knows_all_accepted(self) -> bool:
        """Whether every message that was accepted is told of, by those who were told so."""
        return not any(each.hides_accepted for each in self.unknown)

    @property
    def dark_until_ms(self) -> int:
        """Something may be missing about anything that began before this; 0 if nothing is missing."""
        return max((each.until_ms for each in self.unknown), default=0)


def coverage_of(compacted: Compacted) -> Coverage:
    """What a store covers."""
    processes = compacted.manifest.processes
    pruned = compacted.pruned
    unknown = [each for name, process in processes.items() for each in _of_process(name, process, compacted)]
    unknown += [each for name in pruned for each in _of_pruned(name, pruned[name], processes.get(name, Process()))]
    unknown += [_of_trouble(each) for each in compacted.manifest.troubles if not _is_explained(each, compacted)]
    unknown += _of_several_pairs(processes.values())
    unknown += _of_absent(compacted.expected, processes.values())
    unknown += [_of_clock(name, each) for name, each in processes.items() if _is_lost_in_time(each)]
    in_time = [each for each in processes.values() if not _is_lost_in_time(each)] or list(processes.values())
    return Coverage(
        processes=len(processes),
        records=compacted.manifest.records,
        first_ms=min((each.first_ms for each in in_time if each.first_ms), default=0),
        last_ms=max((each.last_ms for each in in_time), default=0),
        running=len(compacted.running & set(processes)),
        unknown=tuple(unknown),
        troubles=tuple(compacted.manifest.troubles),
        untold=untold(processes.values()),
        clocks=tuple(_clock_line(each) for each in processes.values() if each.clock.count),
    )


def _is_lost_in_time(process: Process) -> bool:
    """Whether its clock was never set, or is ahead of that of whoever reads."""
    return bool(process.clock.ahead_ms) or process.clock.is_unset


def _of_clock(name: str, process: Process) -> Unknown:
    ahead_ms = process.clock.ahead_ms
    how = f"is ahead, by {ahead_ms / 1000:,.0f} s at least" if ahead_ms else "was not set when it began"
    text = f"the clock of {process.host} {how}: when its messages were sent, and who has overtaken whom, is unclear"
    until_ms = FOREVER_MS if ahead_ms else process.last_ms + 1
    return Unknown(name, process.program, None, process.first_ms, until_ms, text)


def _clock_line(process: Process) -> str:
    clock = process.clock
    side = "ahead" if clock.most_ms > 0 else "behind"
    return (
        f"the clock of {process.host} was wrong by {abs(clock.most_ms) / 1000:,.0f} s ({side}) for {clock.count:,} "
        f"records of {process.program or 'a process'}: they have the time of its other clock"
    )


def ending_of(name: str, process: Process, running: frozenset[str]) -> Ending:
    """How the records of a process end."""
    if process.closed:
        return "closed"
    if name in running:
        return "running"
    return "stopped" if process.end is not None and process.end.is_complete else "killed"


def _of_process(name: str, process: Process, compacted: Compacted) -> list[Unknown]:
    running, pruned = compacted.running, compacted.pruned.get(name, PrunedProcess())
    elsewhere = (Range(first, last, 0, 0) for first, last in (*pruned.read, *pruned.unread))
    found = [_of_hole(name, process, hole) for hole in holes(joined([*process.ranges, *elsewhere]))]
    if process.not_understood:
        text = "records of a newer schema: read them with a newer twinbus"
        found.append(Unknown(name, process.program, process.not_understood, 0, FOREVER_MS, text))
    if process.rejected.count:
        found.append(_of_rejected(name, process))
    if ending_of(name, process, running) == "killed":
        found.append(_of_end(name, process))
    return found


def _of_end(name: str, process: Process) -> Unknown:
    until_ms, text, missing = FOREVER_MS, "it did not close its ledger: its last records may be missing", None
    if process.end is not None:
        until_ms, text, missing = process.end.until_ms, process.end.text, process.end.missing or None
    accepts = _may_accept(process)
    return Unknown(name, process.program, missing, process.last_ms, until_ms, text, hides_accepted=accepts)


def _of_pruned(name: str, pruned: PrunedProcess, process: Process) -> list[Unknown]:
    """Records that were pruned, and that this store does not have."""
    gone = without([*pruned.read, *pruned.unread], [(each.first, each.last) for each in process.ranges])
    times = (pruned.first_ms, pruned.last_ms + 1)
    return [Unknown(name, pruned.program, last - first + 1, *times, pruned.why_missing(first)) for first, last in gone]


def _may_accept(process: Process) -> bool:
    """Whether what it did not tell may be that a message was accepted: not if it is known to be somebody else."""
    return not process.roles or "client" in process.roles


def _of_rejected(name: str, process: Process) -> Unknown:
    """Nobody knows which messages the events were about; they had begun when the last of them was rejected."""
    rejected = process.rejected
    text = f"events that could not be written down: {rejected.reason}"
    times = (rejected.first_ms, rejected.last_ms + 1)
    return Unknown(name, process.program, rejected.count, *times, text, hides_accepted=_may_accept(process))


def _of_hole(name: str, process: Process, hole: Hole) -> Unknown:
    told = [gap for gap in process.gaps if gap.first <= hole.last and gap.last >= hole.first]
    since_ms = min([hole.after_ms or process.first_ms, *(gap.since_ms for gap in told if gap.since_ms)])
    until_ms = max([hole.before_ms or FOREVER_MS, *(gap.until_ms for gap in told)])
    reason = "; ".join(dict.fromkeys(gap.reason for gap in told)) or "nobody knows why: were segments removed?"
    return Unknown(name, process.program, hole.size, since_ms, until_ms, reason)


def _is_explained(trouble: Trouble, compacted: Compacted) -> bool:
    """Whether the numbers of its process already show what these lines would have said."""
    if trouble.defect in ("duplicate", "newer"):
        return True  # nothing is missing, or it is counted as not understood
    named = process_of(Path(trouble.segment))
    process = compacted.manifest.processes.get(named[0]) if named is not None else None
    if named is None or process is None or trouble.defect not in ("torn", "corrupt"):
        return False
    return trouble.defect == "torn" or ending_of(named[0], process, compacted.running) != "killed"


def _of_several_pairs(processes: Iterable[Process]) -> list[Unknown]:
    """Messages of different primaries may share entity and id: what is known of one may be about another."""
    primaries = different(name for process in processes for name in process.primaries)
    if len(primaries) <= 1:
        return []
    names = ", ".join(primaries)
    text = f"the ledger tells of several primaries ({names}): give each pair a folder of its own"
    return [Unknown("", "all processes", None, 0, FOREVER_MS, text)]


def _of_absent(expected: Iterable[Writer], processes: Iterable[Process]) -> list[Unknown]:
    """Whoever should have written and did not may have done anything in its time."""
    present = (Presence(each.host, each.program, each.first_ms, each.last_ms) for each in processes)
    return [
        Unknown("", f"{each}", None, each.since_ms, each.until_ms, why_absent(each))
        for each in absent(expected, present)
    ]


def _of_trouble(trouble: Trouble) -> Unknown:
    """Lines that could not be read may be about anything, at any time."""
    return Unknown("", trouble.segment, trouble.count, 0, FOREVER_MS, f"{trouble}")
