"""Is everything there? Gaps per process, how far the records reach, and what could not be read.

A reconciliation may say *lost* only where the ledger is complete; elsewhere it has to say *unknown*. This is where it
finds out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from twinbus.ledger.events import Record
from twinbus.ledger.reader import LedgerReader, Problem, ProcessSeen

Ending = Literal["closed", "running", "killed"]
"""How the records of a process end. killed: nobody holds a file of it any more, and it never said goodbye."""


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
    running = reader.running
    processes = tuple(_process(seen, _ending(seen, running)) for seen in reader.processes.values())
    records = sum(process.records for process in processes)
    # A line that is being written at this moment is no damage.
    problems = tuple(each for each in reader.problems if not (each.defect == "torn" and each.file in reader.held))
    return Coverage(len(reader.segments), records, processes, (*problems, *reader.rejections))


def _process(seen: ProcessSeen, ending: Ending) -> ProcessCoverage:
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
    )


def _reason(seen: ProcessSeen, first: int, last: int) -> str:
    """What `gap` records say about numbers that are missing."""
    told: list[Record] = [gap for gap in seen.gaps if gap.missing_first <= last and gap.missing_last >= first]
    return "; ".join(dict.fromkeys(gap.reason for gap in told))


def _ending(seen: ProcessSeen, running: set[str]) -> Ending:
    if seen.closed:
        return "closed"
    return "running" if seen.process in running else "killed"
