"""Is the ledger complete? Gaps per process, how far the records reach, and what could not be read.

A reconciliation may say *lost* only where the ledger is complete; elsewhere it has to say *unknown*.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from twinbus.ledger.reading.process_end import Ending, LastRecord, ProcessProbe
from twinbus.ledger.reading.reader import LedgerReader, Problem, ProcessSeen
from twinbus.ledger.upkeep.expected import ExpectedWriter, absent, load_expected
from twinbus.ledger.upkeep.pruning import PrunedProcess, load_pruned, subtract_spans
from twinbus.storage import Location

NOTHING = PrunedProcess()


@dataclass(frozen=True, slots=True)
class MissingNumbers:
    """Numbers that no record has."""

    first: int
    last: int
    reason: str
    """As recorded by the process, or when they were pruned; empty if unknown: segments were removed."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class ProcessCoverage:
    process: str
    host: str
    pid: int
    program: str
    first_ms: int
    last_ms: int
    last_number: int
    records: int
    not_understood: int
    rejected: int
    missing: tuple[MissingNumbers, ...]
    ending: Ending
    wait_us: int
    pruned: int = 0
    """Records that were pruned after a report had read them: they are not missing."""
    end: str = ""
    """What is known of the end of a process that did not close its ledger."""

    @property
    def missing_count(self) -> int:
        return sum(gap.count for gap in self.missing)

    @property
    def is_complete(self) -> bool:
        """Nothing is missing up to the last record, and nothing unknown can have followed it."""
        return not (self.missing or self.not_understood or self.rejected) and self.ending != "killed"


@dataclass(frozen=True, slots=True)
class Coverage:
    segments: int
    records: int
    processes: tuple[ProcessCoverage, ...]
    problems: tuple[Problem, ...]
    absent: tuple[ExpectedWriter, ...] = ()
    """Expected writers without a record."""

    @property
    def is_complete(self) -> bool:
        """Whether what is not in the ledger did not happen. A record that is there twice does no harm."""
        harmless = all(problem.defect == "duplicate" for problem in self.problems)
        return harmless and not self.absent and all(process.is_complete for process in self.processes)


def verify(directory: Location) -> Coverage:
    """Read the whole ledger and say what is missing.

    Raises `StoreError` if there is no such ledger, `OptionsError` if its list of expected writers is invalid.
    """
    reader, expected, pruned = LedgerReader(directory), load_expected(directory), load_pruned(directory).processes
    deque(reader.records(), maxlen=0)
    known: list[ProcessSeen | PrunedProcess] = [*reader.processes.values(), *pruned.values()]
    return replace(coverage_of(reader, pruned), absent=tuple(absent(expected, known)))


def coverage_of(reader: LedgerReader, pruned: Mapping[str, PrunedProcess] = MappingProxyType({})) -> Coverage:
    """The coverage of what a reader has read to its end, and of what was pruned."""
    running, probe = reader.found.running, ProcessProbe(reader.found, time.time_ns() // 1_000_000)
    gone = {
        name: ProcessSeen(name, host=each.host, program=each.program, first_ms=each.first_ms, last_ms=each.last_ms)
        for name, each in pruned.items()
        if each.unread and name not in reader.processes
    }
    processes = tuple(
        _process(seen, pruned.get(name, NOTHING), running, probe) for name, seen in (reader.processes | gone).items()
    )
    records = sum(process.records for process in processes)
    # A line that is being written at this moment is not damage.
    problems = tuple(each for each in reader.problems if not (each.defect == "torn" and each.file in reader.held))
    return Coverage(len(reader.segments), records, processes, (*problems, *reader.rejections))


def _process(seen: ProcessSeen, pruned: PrunedProcess, running: frozenset[str], probe: ProcessProbe) -> ProcessCoverage:
    ending, end = _ending(seen, pruned, running, probe)
    there = seen.numbers.ranges()
    missing = subtract_spans([*seen.numbers.missing(), *subtract_spans(pruned.unread, there)], pruned.read)
    return ProcessCoverage(
        process=seen.process,
        host=seen.host,
        pid=seen.pid,
        program=seen.program,
        first_ms=seen.first_ms,
        last_ms=seen.last_ms,
        last_number=seen.numbers.last,
        records=seen.numbers.count(),
        not_understood=seen.not_understood,
        rejected=seen.rejected,
        missing=tuple(MissingNumbers(first, last, _reason(seen, pruned, first, last)) for first, last in missing),
        ending=ending,
        wait_us=seen.wait_us,
        pruned=sum(last - first + 1 for first, last in subtract_spans(pruned.read, there)),
        end=end,
    )


def _reason(seen: ProcessSeen, pruned: PrunedProcess, first: int, last: int) -> str:
    """Why numbers are missing, by `gap` records or by what was pruned."""
    if any(each[0] <= last and each[1] >= first for each in pruned.unread):
        return pruned.why_missing(max(first, pruned.unread[0][0]))
    reported = [gap for gap in seen.gaps if gap.missing_first <= last and gap.missing_last >= first]
    return "; ".join(dict.fromkeys(gap.reason for gap in reported))


def _ending(
    seen: ProcessSeen, pruned: PrunedProcess, running: frozenset[str], probe: ProcessProbe
) -> tuple[Ending, str]:
    if seen.closed or pruned.closed:
        return "closed", ""
    if seen.process in running:
        return "running", ""
    end = probe.end_of(_last(seen, pruned))
    return "stopped" if end.is_complete else "killed", end.text


def _last(seen: ProcessSeen, pruned: PrunedProcess) -> LastRecord:
    number, at_ms = max(seen.numbers.last, pruned.last), max(seen.last_ms, pruned.last_ms)
    promise = (seen.wait_us, seen.sync_us, seen.boot) if seen.wait_us else (pruned.wait_us, pruned.sync_us, pruned.boot)
    return LastRecord(seen.process, seen.host, number, at_ms, *promise)
