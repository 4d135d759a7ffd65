"""Reads the segments of a ledger: every record that is whole, once; and what stands in the way, with file and line.

Nothing is hidden and nothing is guessed: a line that is not exactly what was written is a problem, not a record. Four
bytes of each record are kept in memory, however large it is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from twinbus.ledger.kinds import Kind
from twinbus.ledger.lines import LINE_BYTES_MAX, Flaw, read_line
from twinbus.ledger.reading.segment_files import StoredSegment, segments_and_held
from twinbus.ledger.schema import Record
from twinbus.storage import Location

LINES_NAMED_MAX = 10

Defect = Literal["torn", "corrupt", "newer", "duplicate", "conflict", "unreadable", "rejected"]
"""torn: the last line ends too soon, as after a crash. newer: written by a later twinbus. duplicate: read before.
conflict: another record with this number was read before, and says something else. rejected: the record is there, and
says that an event could not be written down.
"""


@dataclass(slots=True)
class Problem:
    """What is wrong in one file, in one way."""

    file: StoredSegment
    defect: Defect
    text: str
    lines: list[int] = field(default_factory=list)
    """The first of the lines concerned."""
    count: int = 0
    """How many lines are concerned."""

    def __str__(self) -> str:
        at = f":{self.lines[0]}" if self.lines else ""
        more = f" ({self.count} lines)" if self.count > 1 else ""
        return f"{self.file}{at}: {self.defect}{more}: {self.text}"


class RecordNumbers:
    """A set of whole numbers that mostly come in order, each with the checksum of its record: four bytes."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._crcs: list[array[int]] = []

    def add(self, number: int, crc: int = 0) -> bool:
        """Take a number in; False if it was there."""
        firsts, crcs = self._firsts, self._crcs
        if firsts and number == firsts[-1] + len(crcs[-1]):
            crcs[-1].append(crc)
            return True
        at = bisect_right(firsts, number)
        if at and number <= self._last(at - 1):
            return False
        self._insert(at, number, crc)
        return True

    def is_same(self, number: int, crc: int) -> bool:
        """Whether a number that is there has this checksum."""
        at = bisect_right(self._firsts, number) - 1
        return self._crcs[at][number - self._firsts[at]] == crc

    def _last(self, at: int) -> int:
        return self._firsts[at] + len(self._crcs[at]) - 1

    def _insert(self, at: int, number: int, crc: int) -> None:
        firsts, crcs = self._firsts, self._crcs
        touches_before = at > 0 and self._last(at - 1) + 1 == number
        touches_after = at < len(firsts) and firsts[at] - 1 == number
        if touches_before:
            crcs[at - 1].append(crc)
            if touches_after:
                crcs[at - 1].extend(crcs.pop(at))
                del firsts[at]
        elif touches_after:
            firsts[at] = number
            crcs[at].insert(0, crc)
        else:
            firsts.insert(at, number)
            crcs.insert(at, array(_CRC, [crc]))

    @property
    def last(self) -> int:
        """The largest; 0 if there is none."""
        return self._last(-1) if self._firsts else 0

    def count(self) -> int:
        return sum(map(len, self._crcs))

    def ranges(self) -> list[tuple[int, int]]:
        """First and last of every range that is there."""
        return [(first, self._last(at)) for at, first in enumerate(self._firsts)]

    def missing(self) -> list[tuple[int, int]]:
        """First and last of every range that is not there, between 1 and the largest number."""
        ends = [0, *(self._last(at) for at in range(len(self._firsts)))]
        return [(end + 1, first - 1) for end, first in zip(ends, self._firsts, strict=False) if first - end > 1]


@dataclass(slots=True)
class ProcessSeen:
    process: str
    numbers: RecordNumbers = field(default_factory=RecordNumbers)
    host: str = ""
    pid: int = 0
    program: str = ""
    first_ms: int = 0
    last_ms: int = 0
    wait_us: int = 0
    """How long its records waited in memory, at most."""
    sync_us: int = 0
    """How long they waited to be forced to the disk, at most; -1: for ever; 0: it did not say."""
    boot: str = ""
    """Which start of its machine it ran in."""
    closed: bool = False
    gaps: list[Record] = field(default_factory=list)
    not_understood: int = 0
    """Records that are there, but of a newer schema."""
    rejected: int = 0
    """Events that could not be written down; a record each says so."""

    def see(self, record: Record) -> None:
        self.host, self.pid, self.program = record.host, record.pid, record.program
        self.first_ms = min(self.first_ms or record.at_ms, record.at_ms)
        self.last_ms = max(self.last_ms, record.at_ms)
        if record.kind == Kind.OPENED:
            self.wait_us, self.sync_us, self.boot = record.duration_us, record.sync_us, record.boot
        elif record.kind == Kind.CLOSED:
            self.closed = True
        elif record.kind == Kind.GAP:
            self.gaps.append(record)
        elif record.kind == Kind.REJECTED:
            self.rejected += 1


class LedgerReader:
    """One reading of a ledger.

    `problems`, `rejections` and `processes` are complete when `records` has come to its end.
    """

    def __init__(self, directory: Location) -> None:
        """`directory` may be a URL. Raises `StoreError` if there is no such ledger."""
        self.found = segments_and_held(directory)
        self.segments, self.held = self.found.segments, self.found.held
        self.problems: list[Problem] = []
        """What stands in the way of reading."""
        self.rejections: list[Problem] = []
        """Where records say that an event could not be written down: nothing is wrong with the lines themselves."""
        self.processes: dict[str, ProcessSeen] = {}
        self.bytes_read = 0

    @property
    def running(self) -> frozenset[str]:
        """The processes that were running when the reading began."""
        return self.found.running

    def records(self) -> Iterator[Record]:
        """Every record once: segment by segment, those of one process in order, processes one after the other."""
        for path in self.segments:
            yield from self._records_of(path)

    def _records_of(self, path: StoredSegment) -> Iterator[Record]:
        found: dict[str, Problem] = {}
        try:
            with path.open() as file:
                for at, line in enumerate(_lines_of(file), 1):
                    self.bytes_read += len(line)
                    record = self._record_in(line, path, at, found)
                    if record is not None:
                        yield record
        except OSError as error:
            _add(found, path, "unreadable", f"{error.strerror or error}", None)
        self.rejections += [each for each in found.values() if each.defect == "rejected"]
        self.problems += [each for each in found.values() if each.defect != "rejected"]

    def _record_in(self, line: bytes, path: StoredSegment, at: int, found: dict[str, Problem]) -> Record | None:
        """The record in a line, if it is one and new; else the problem is noted."""
        read = read_line(line)
        if isinstance(read, Flaw):
            self._note_flaw(read, line, path, at, found)
            return None
        seen = self._seen(read.process)
        if not seen.numbers.add(read.number, read.crc):
            if seen.numbers.is_same(read.number, read.crc):
                _add(found, path, "duplicate", "read before, in this or another segment", at)
            else:
                _add(found, path, "conflict", conflict_text(read.process, read.number), at)
            return None
        seen.see(read)
        if read.kind == Kind.REJECTED:
            _add(found, path, "rejected", f"an event could not be written down: {read.reason}", at)
        return read

    def _note_flaw(self, flaw: Flaw, line: bytes, path: StoredSegment, at: int, found: dict[str, Problem]) -> None:
        if flaw.trouble == "newer" and flaw.envelope is not None:
            seen = self._seen(flaw.envelope.process)
            seen.not_understood += seen.numbers.add(flaw.envelope.number)
            _add(found, path, "newer", flaw.text, at)
        elif not line.endswith(b"\n") and len(line) <= LINE_BYTES_MAX:
            _add(found, path, "torn", "the last line ends too soon, as after a crash in the middle of writing", at)
        else:
            _add(found, path, "corrupt", flaw.text, at)

    def _seen(self, process: str) -> ProcessSeen:
        seen = self.processes.get(process)
        if seen is None:
            seen = self.processes[process] = ProcessSeen(process)
        return seen


def conflict_text(process: str, number: int) -> str:
    return (
        f"record {number} of process {process} was read before and says something else: one of the two was not written "
        "by that process, or two processes have the same name; the first one counts"
    )


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Lines with their ends; of one that is longer than any record only the beginning."""
    while line := file.readline(LINE_BYTES_MAX + 1):
        yield line
        while len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            line = file.readline(LINE_BYTES_MAX + 1)


def _add(found: dict[str, Problem], path: StoredSegment, defect: Defect, text: str, line: int | None) -> None:
    problem = found.setdefault(defect, Problem(path, defect, text))
    problem.count += 1
    if line is not None and len(problem.lines) < LINES_NAMED_MAX:
        problem.lines.append(line)


_CRC = "I"
