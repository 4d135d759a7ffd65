"""One chunk: the new part of a segment. It is read, checked line by line, and written as Parquet.

A Spark task runs this; it needs no Spark. Running it twice, or two of them at once, writes the same files with the same
content.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from io import SEEK_END
from typing import Any, BinaryIO
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from twinbus.ledger.kinds import FACTS, Kind
from twinbus.ledger.lines import CRC_MARK, LINE_BYTES_MAX, NUMBER_MAX, Flaw, read_line
from twinbus.ledger.reading.reader import conflict_text
from twinbus.ledger.reading.segment_files import segment_at
from twinbus.ledger.schema import SCHEMA_VERSION
from twinbus.spark.compaction.clocks import AHEAD_MS, FIRST_PLAUSIBLE_MS, clock_offsets, correct_times
from twinbus.spark.compaction.conflicts import SeenChecksums, find_conflicts_in_files
from twinbus.spark.compaction.manifest import (
    ClockCheck,
    NumberRange,
    Process,
    RejectedEvents,
    ReportedGap,
    SkippedLines,
    join_ranges,
)
from twinbus.spark.compaction.primaries import primaries_in, secondaries_in, stores_in
from twinbus.spark.compaction.steps import StepFiles, file_name, parse_lines, to_steps
from twinbus.storage import Folder

BLOCK_BYTES = 16 << 20
LINES_NAMED_MAX = 10
LINE_START = b'{"v":%d,"process":"' % SCHEMA_VERSION
"""How every line of this version begins; any other is parsed with more care."""
LEDGER_KINDS = [str(kind) for kind in (Kind.OPENED, Kind.CLOSED, Kind.GAP, Kind.REJECTED)]
_KINDS = frozenset(map(str, Kind))
_USES = {
    "receives": frozenset(map(str, (Kind.RECEIVED, Kind.DEAD_LETTERED))),
    "sends": frozenset(map(str, (Kind.ACCEPTED, Kind.BACKLOGGED, Kind.SPOOLED, Kind.NOT_SENT))),
}
"""What shows how a client uses its pair."""


class Chunk(msgspec.Struct, frozen=True):
    """What to read: a segment from `start` to `stop`."""

    segment: str
    path: str
    start: int
    stop: int
    first_line: int
    is_growing: bool
    """A process writes to it: a line without an end is not torn, only unfinished."""
    known: dict[str, list[NumberRange]] = {}
    """Numbers that were read from other segments: such records are skipped."""
    beside: list[str] = []
    """Files of the store, below it, that may have these records."""


class ChunkResult(msgspec.Struct):
    """What was read of a chunk."""

    segment: str
    bytes: int = 0
    torn_bytes: int = 0
    """The size of a last line without an end: not part of `bytes`, because its rest may follow."""
    lines: int = 0
    steps: int = 0
    files: list[str] = []
    processes: dict[str, Process] = {}
    troubles: list[SkippedLines] = []


def compact(chunk: Chunk, store: Folder) -> ChunkResult:
    """Write the valid records of the chunk to the store.

    Raises `StoreError` if the store cannot be written: that must not look like a defect of the ledger.
    """
    reader = _ChunkReader(chunk, store)
    writer = StepFiles(store, file_name(chunk.segment, chunk.start))
    try:
        segment = segment_at(chunk.path)
        with segment.open() as file:
            for events in reader.read_tables(file, is_whole=segment.is_compressed):
                writer.write(to_steps(events))
    except OSError as error:
        reader.skip("unreadable", f"{error.strerror or error}", None)
    reader.result.files, reader.result.steps = writer.close(), writer.steps
    return reader.result


class _ChunkReader:
    def __init__(self, chunk: Chunk, store: Folder) -> None:
        self._chunk = chunk
        self._store = store
        self._checksums = SeenChecksums()
        self._now_ms = time.time_ns() // 1_000_000
        self._seen: dict[str, list[NumberRange]] = {name: list(ranges) for name, ranges in chunk.known.items()}
        self._skipped: dict[str, SkippedLines] = {}
        self.result = ChunkResult(chunk.segment)

    def read_tables(self, file: BinaryIO, *, is_whole: bool = False) -> Iterator[Any]:
        """Tables of the records that are valid and new.

        With `is_whole` the file was unpacked: all of it is read, and what counts as read is its size as it is stored.
        """
        self.result.bytes = 0 if is_whole else self._skip_line_end(file)
        stop = self._chunk.stop
        if is_whole:
            stop = file.seek(0, SEEK_END)
            file.seek(0)
        for block in self._blocks(file, stop):
            lines = block.removesuffix(b"\n").split(b"\n")
            table = self._parse(lines)
            if table is not None and (new := self._select_new(table)) is not None:
                yield new
            self.result.lines += len(lines)
            self.result.bytes += len(block)
        if is_whole:
            self.result.bytes, self.result.torn_bytes = self._chunk.stop - self._chunk.start, 0
        self.result.troubles = list(self._skipped.values())

    def _skip_line_end(self, file: BinaryIO) -> int:
        """1 if the first byte only ends a line that was read without it, else 0."""
        start = self._chunk.start
        file.seek(max(0, start - 1))
        is_end = start > 0 and file.read(1) != b"\n" and file.read(1) == b"\n"
        file.seek(start + is_end)
        return int(is_end)

    def _blocks(self, file: BinaryIO, stop: int) -> Iterator[bytes]:
        """The chunk in pieces of whole lines; an unfinished line is left for the next run."""
        left = stop - file.tell()
        rest = b""
        while left > 0 and (data := file.read(min(BLOCK_BYTES, left))):
            left -= len(data)
            whole, end, rest = (rest + data).rpartition(b"\n")
            if end:
                yield whole + end
            elif len(rest) > 2 * LINE_BYTES_MAX:  # no record is that long
                yield rest
                rest = b""
        if rest and not self._chunk.is_growing and not self._is_torn(rest):
            yield rest

    def _is_torn(self, line: bytes) -> bool:
        """Whether the last line is not a record. It does not count as read: where segments are copied while nobody
        holds them, its rest may come later.
        """
        read = read_line(line)
        if not isinstance(read, Flaw) or read.trouble == "newer":
            return False
        self.result.torn_bytes = len(line)
        self.skip("torn", "the last line ends too soon, as after a crash in the middle of writing", 0)
        return True

    def _parse(self, lines: list[bytes]) -> Any:
        """A table of the lines that are records, with a column `line`; None if there is none."""
        good, numbers = [], []
        for at, line in enumerate(lines):
            body, _, crc = line.rpartition(CRC_MARK)
            is_whole = line.startswith(LINE_START) and crc == b"%d}" % crc32(body)
            if is_whole or self._is_record(line, at):
                good.append(line)
                numbers.append(at)
        if not good:
            return None
        try:
            data = b"\n".join(good)
            data.decode()
            table = parse_lines(data).append_column("line", pa.array(numbers))
            return table if _has_valid_numbers(table) else self._parse_carefully(good, numbers)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return self._parse_carefully(good, numbers)

    def _parse_carefully(self, lines: list[bytes], numbers: list[int]) -> Any:
        """The same where a line has a valid checksum and is not a record."""
        kept = [pair for pair in zip(lines, numbers, strict=True) if self._is_record(*pair)]
        tables = list(self._parse_by_halves(kept))
        return pa.concat_tables(tables).combine_chunks() if tables else None

    def _parse_by_halves(self, lines: list[tuple[bytes, int]]) -> Iterator[Any]:
        """Tables of numbered lines. A line that fits no table, e.g. with a number of more than 63 bits, is found by
        halves and skipped.
        """
        if not lines:
            return
        try:
            table = parse_lines(b"\n".join(line for line, _ in lines))
            yield table.append_column("line", pa.array([number for _, number in lines]))
        except pa.ArrowInvalid as error:
            if len(lines) == 1:
                self.skip("corrupt", f"not a record: {error}", lines[0][1])
                return
            middle = len(lines) // 2
            yield from self._parse_by_halves(lines[:middle])
            yield from self._parse_by_halves(lines[middle:])

    def _is_record(self, line: bytes, at: int) -> bool:
        read = read_line(line)
        if not isinstance(read, Flaw):
            return True
        if read.trouble == "newer" and read.envelope is not None:
            self._count_not_understood(read.envelope.process, read.envelope.number)
            self.skip("newer", read.text, at)
        else:
            self.skip("corrupt", read.text, at)
        return False

    def _count_not_understood(self, process: str, number: int) -> None:
        """A record of a newer schema: its number is not missing."""
        if any(each.first <= number <= each.last for each in self._seen.get(process, [])):
            return
        record = NumberRange(number, number, 0, 0)
        self.result.processes.setdefault(process, Process()).add(Process(not_understood=1, ranges=[record]))
        self._seen[process] = join_ranges([*self._seen.get(process, []), record])

    def _select_new(self, table: Any) -> Any:
        """The table without records that were read before; None if all were."""
        process = table["process"].to_numpy()
        if (process == process[0]).all():
            return self._select_new_of(process[0], table)
        parts = [
            part
            for name in dict.fromkeys(process)
            if (part := self._select_new_of(name, table.filter(pa.array(process == name)))) is not None
        ]
        return pa.concat_tables(parts).sort_by("line") if parts else None

    def _select_new_of(self, process: str, table: Any) -> Any:
        number = table["number"].to_numpy()
        keep = np.zeros(len(number), bool)
        keep[np.unique(number, return_index=True)[1]] = True
        for each in self._seen.get(process, []):
            keep &= (number < each.first) | (number > each.last)
        new = table if keep.all() else table.filter(pa.array(keep))
        if not keep.all():
            self._skip_repeats(process, table.filter(pa.array(~keep)), new)
        if new.num_rows == 0:
            return None
        self._checksums.add(process, new)
        new, repair = correct_times(new)
        found = _describe_process(new)
        ahead_ms = max(0, found.last_ms - self._now_ms - AHEAD_MS)
        is_unset = found.first_ms < FIRST_PLAUSIBLE_MS
        found.clock = ClockCheck(*repair, ahead_ms=ahead_ms, is_unset=is_unset, offsets=clock_offsets(new))
        self._seen[process] = join_ranges([*self._seen.get(process, []), *found.ranges])
        self.result.processes.setdefault(process, Process()).add(found)
        return new

    def _skip_repeats(self, process: str, repeats: Any, new: Any) -> None:
        """Skip numbers that were read before: with the same content, or with another."""
        conflicts = self._checksums.find_conflicts(process, repeats, new)
        conflicts |= find_conflicts_in_files(self._store, self._chunk.beside, process, repeats)
        for number, at in zip(repeats["number"].to_pylist(), repeats["line"].to_pylist(), strict=True):
            if number in conflicts:
                self.skip("conflict", conflict_text(process, number), at)
            else:
                self.skip("duplicate", "read before, in this or another segment", at)

    def skip(self, defect: str, text: str, at: int | None) -> None:
        """Count a line that is skipped; `at` is its place in the block."""
        skipped = self._skipped.setdefault(defect, SkippedLines(self._chunk.segment, defect, text, lines=[]))
        skipped.count += 1
        if at is not None and len(skipped.lines) < LINES_NAMED_MAX:
            skipped.lines.append(self._chunk.first_line + self.result.lines + at)
        self.result.troubles = list(self._skipped.values())


def _has_valid_numbers(table: Any) -> bool:
    """Whether every record has a number that a ledger gives."""
    number = table["number"]
    bounds = pc.min_max(number).as_py()
    return not number.null_count and bounds["min"] >= 1 and bounds["max"] <= NUMBER_MAX


def _describe_process(table: Any) -> Process:
    """What the records, all of one process, show about it."""
    at_ms, number = table["at_ms"].to_numpy(), table["number"].to_numpy()
    host, pid, program = (table[name][-1].as_py() for name in ("host", "pid", "program"))
    about_ledger = table.filter(pc.is_in(table["kind"], pa.array(LEDGER_KINDS))).to_pylist()
    opened, gaps, rejected = (
        [each for each in about_ledger if each["kind"] == kind] for kind in (Kind.OPENED, Kind.GAP, Kind.REJECTED)
    )
    return Process(
        host=host or "",
        pid=pid or 0,
        program=program or "",
        first_ms=int(at_ms.min()),
        last_ms=int(at_ms.max()),
        wait_us=max((each["duration_us"] or 0 for each in opened), default=0),
        sync_us=(opened[0]["sync_us"] or 0) if opened else 0,
        boot=(opened[0]["boot"] or "") if opened else "",
        closed=any(each["kind"] == Kind.CLOSED for each in about_ledger),
        rejected=_rejected_events(rejected),
        roles=_roles(table["kind"]),
        uses=_uses(table["kind"]),
        primaries=primaries_in(table),
        stores=stores_in(table),
        secondaries=secondaries_in(table),
        ranges=_ranges(number, at_ms),
        gaps=[_reported_gap(each) for each in gaps],
    )


def _roles(kinds: Any) -> list[str]:
    """The roles that are the only ones to record kinds of these."""
    known = [FACTS[Kind(each)].by for each in pc.unique(kinds).to_pylist() if each in _KINDS]
    return sorted({by[0] for by in known if len(by) == 1} - {"ledger"})


def _uses(kinds: Any) -> list[str]:
    found = set(pc.unique(kinds).to_pylist())
    return [use for use, shown_by in _USES.items() if not found.isdisjoint(shown_by)]


def _reported_gap(record: dict[str, Any]) -> ReportedGap:
    first, last, since_ms, until_ms = (
        record[name] or 0 for name in ("missing_first", "missing_last", "since_ms", "until_ms")
    )
    return ReportedGap(first, last, since_ms, until_ms, record["reason"] or "")


def _rejected_events(records: list[dict[str, Any]]) -> RejectedEvents:
    if not records:
        return RejectedEvents()
    moments = [each["at_ms"] for each in records]
    return RejectedEvents(len(records), min(moments), max(moments), records[0]["reason"] or "")


def _ranges(number: Any, at_ms: Any) -> list[NumberRange]:
    order = np.argsort(number, kind="stable")
    number, at_ms = number[order], at_ms[order]
    breaks = np.flatnonzero(np.diff(number) != 1)
    firsts, lasts = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [len(number) - 1]))
    return [
        NumberRange(int(number[first]), int(number[last]), int(at_ms[first]), int(at_ms[last]))
        for first, last in zip(firsts, lasts, strict=True)
    ]
