"""Is everything there? Gaps per process, how far the records reach, and what could not be read.

A reconciliation may say *lost* only where the ledger is complete; elsewhere it has to say *unknown*. This is where it
finds out.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from twinbus.ledger.endings import Ending, Last, Look
from twinbus.ledger.events import Record
from twinbus.ledger.reader import LedgerReader, Problem, ProcessSeen


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """Numbers that no record has."""

    first: int
    last: int
    reason: str
    """What the process itself wrote about it; empty if it knows nothing of the gap: somebody removed the records."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class ProcessCoverage:
    """How much of what one process recorded is there."""

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
    missing: tuple[MissingRecords, ...]
    ending: Ending
    wait_us: int
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
    """How much of a ledger is there."""

    segments: int
    records: int
    processes: tuple[ProcessCoverage, ...]
    problems: tuple[Problem, ...]

    @property
    def is_complete(self) -> bool:
        """Whether what is not in the ledger did not happen. A record that is there twice does no harm."""
        harmless = all(problem.defect == "duplicate" for problem in self.problems)
        return harmless and all(process.is_complete for process in self.processes)


def verify(directory: Path) -> Coverage:
    """Read the whole ledger and say what is missing. Raises `StoreError` if there is no such directory."""
    reader = LedgerReader(directory)
    deque(reader.records(), maxlen=0)
    return coverage_of(reader)


def coverage_of(reader: LedgerReader) -> Coverage:
    """The coverage of what a reader has read to its end."""
    running, look = reader.running, Look(reader.found, time.time_ns() // 1_000_000)
    processes = tuple(_process(seen, *_ending(seen, running, look)) for seen in reader.processes.values())
    records = sum(process.records for process in processes)
    # A line that is being written at this moment is no damage.
    problems = tuple(each for each in reader.problems if not (each.defect == "torn" and each.file in reader.held))
    return Coverage(len(reader.segments), records, processes, (*problems, *reader.rejections))


def _process(seen: ProcessSeen, ending: Ending, end: str) -> ProcessCoverage:
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
        missing=tuple(
            MissingRecords(first, last, _reason(seen, first, last)) for first, last in seen.numbers.missing()
        ),
        ending=ending,
        wait_us=seen.wait_us,
        end=end,
    )


def _reason(seen: ProcessSeen, first: int, last: int) -> str:
    """What `gap` records say about numbers that are missing."""
    told: list[Record] = [gap for gap in seen.gaps if gap.missing_first <= last and gap.missing_last >= first]
    return "; ".join(dict.fromkeys(gap.reason for gap in told))


def _ending(seen: ProcessSeen, running: set[str], look: Look) -> tuple[Ending, str]:
    if seen.closed:
        return "closed", ""
    if seen.process in running:
        return "running", ""
    end = look.end_of(_last(seen))
    return "stopped" if end.is_complete else "killed", end.text


def _last(seen: ProcessSeen) -> Last:
    return Last(seen.process, seen.host, seen.numbers.last, seen.last_ms, seen.wait_us, seen.sync_us, seen.boot)
