"""One chunk: the part of a segment that is new. Read, checked line by line, written as Parquet.

This is what a Spark task runs; it needs no Spark. Running it again, after a crash or at the same time, gives the same
files with the same content.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from twinbus.ledger.events import SCHEMA_VERSION
from twinbus.ledger.kinds import FACTS, Kind
from twinbus.ledger.lines import CRC_MARK, LINE_BYTES_MAX, NUMBER_MAX, Flaw, read_line
from twinbus.ledger.reader import conflict_text
from twinbus.spark.compaction.clocks import AHEAD_MS, FIRST_PLAUSIBLE_MS, offsets, put_right
from twinbus.spark.compaction.conflicts import Earlier, different_in
from twinbus.spark.compaction.file_names import file_name
from twinbus.spark.compaction.manifest import Clock, Gap, Process, Rejected, Trouble
from twinbus.spark.compaction.number_ranges import Range, joined
from twinbus.spark.compaction.primaries import primaries_in, secondaries_in, stores_in
from twinbus.spark.compaction.step_files import StepFiles
from twinbus.spark.compaction.steps import parsed, steps_of

BLOCK_BYTES = 16 << 20
LINES_NAMED_MAX = 10
OURS = b'{"v":%d,"process":"' % SCHEMA_VERSION
"""How every line of this version begins; any other is looked at with more care."""
ENVELOPE = ("process", "number", "at_ms", "host", "pid", "program")
TOLD = (Kind.OPENED, Kind.CLOSED, Kind.GAP, Kind.REJECTED)
_KINDS = frozenset(map(str, Kind))


class Chunk(msgspec.Struct, frozen=True):
    """What to read: a segment from `start` to `stop`."""

    segment: str
    path: str
    start: int
    stop: int
    first_line: int
    is_growing: bool
    """Somebody writes to it: a line without an end is not torn, only unfinished."""
    known: dict[str, list[Range]] = {}
    """Numbers that have been read from elsewhere: such records are left out."""
    beside: list[str] = []
    """Files of the store that may have what was read of them, below it."""


class Read(msgspec.Struct):
    """What came of a chunk."""

    segment: str
    bytes: int = 0
    torn_bytes: int = 0
    """What a last line that ends too soon takes up: not among `bytes`, for its rest may come."""
    lines: int = 0
    steps: int = 0
    files: list[str] = []
    processes: dict[str, Process] = {}
    troubles: list[Trouble] = []


def compact(chunk: Chunk, store: Path) -> Read:
    """Write what is whole in the chunk into the store, and say what it was and what was not.

    Raises `StoreError` if the store cannot be written: nobody must take that for something that is wrong in the ledger.
    """
    read = _Reading(chunk, store)
    writer = StepFiles(store, file_name(chunk.segment, chunk.start))
    try:
        with Path(chunk.path).open("rb") as file:
            for events in read.tables(file):
                writer.write(steps_of(events))
    except OSError as error:
        read.note("unreadable", f"{error.strerror}", None)
    read.result.files, read.result.steps = writer.close(), writer.steps
    return read.result


class _Reading:
    """A chunk while it is read."""

    def __init__(self, chunk: Chunk, store: Path) -> None:
        self._chunk = chunk
        self._store = store
        self._earlier = Earlier()
        self._now_ms = time.time_ns() // 1_000_000
        self._seen: dict[str, list[Range]] = {name: list(ranges) for name, ranges in chunk.known.items()}
        self._troubles: dict[str, Trouble] = {}
        self.result = Read(chunk.segment)

    def tables(self, file: BinaryIO) -> Iterator[Any]:
        """Tables of the records that are whole and new."""
        self.result.bytes = self._end_of_a_line(file)
        for block in self._blocks(file):
            lines = block.removesuffix(b"\n").split(b"\n")
            table = self._table(lines)
            if table is not None and (new := self._only_new(table)) is not None:
                yield new
            self.result.lines += len(lines)
            self.result.bytes += len(block)
        self.result.troubles = list(self._troubles.values())

    def _end_of_a_line(self, file: BinaryIO) -> int:
        """How many bytes at the start only end a line that was a record without them, and has been read."""
        start = self._chunk.start
        file.seek(max(0, start - 1))
        is_end = start > 0 and file.read(1) != b"\n" and file.read(1) == b"\n"
        file.seek(start + is_end)
        return int(is_end)

    def _blocks(self, file: BinaryIO) -> Iterator[bytes]:
        """The chunk in pieces that end with a line; what is unfinished is left for another time."""
        left = self._chunk.stop - file.tell()
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
        """Whether a last line is no record. It is told, and not counted as read: where segments are copied, and nobody
        holds them, its rest may come later.
        """
        read = read_line(line)
        if not isinstance(read, Flaw) or read.trouble == "newer":
            return False
        self.result.torn_bytes = len(line)
        self.note("torn", "the last line ends too soon, as after a crash in the middle of writing", 0)
        return True

    def _table(self, lines: list[bytes]) -> Any:
        """A table of the lines that are records, with a column `line`; None if there is none."""
        good, numbers = [], []
        for at, line in enumerate(lines):
            body, _, crc = line.rpartition(CRC_MARK)
            is_whole = line.startswith(OURS) and crc == b"%d}" % crc32(body)
            if is_whole or self._is_record(line, at):
                good.append(line)
                numbers.append(at)
        if not good:
            return None
        try:
            data = b"\n".join(good)
            data.decode()
            table = parsed(data).append_column("line", pa.array(numbers))
            return table if _is_possible(table) else self._table_of_the_careful(good, numbers)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return self._table_of_the_careful(good, numbers)

    def _table_of_the_careful(self, lines: list[bytes], numbers: list[int]) -> Any:
        """Somewhere among the lines is one with a good checksum that is no record for all that."""
        kept = [pair for pair in zip(lines, numbers, strict=True) if self._is_record(*pair)]
        tables = list(self._tables_in_halves(kept))
        return pa.concat_tables(tables).combine_chunks() if tables else None

    def _tables_in_halves(self, lines: list[tuple[bytes, int]]) -> Iterator[Any]:
        """Tables of records that have their line's number beside them. Where one cannot be in any, as with a number of
        more than 63 bits, it is looked for by halves, and told.
        """
        if not lines:
            return
        try:
            table = parsed(b"\n".join(line for line, _ in lines))
            yield table.append_column("line", pa.array([number for _, number in lines]))
        except pa.ArrowInvalid as error:
            if len(lines) == 1:
                self.note("corrupt", f"not a record: {error}", lines[0][1])
                return
            middle = len(lines) // 2
            yield from self._tables_in_halves(lines[:middle])
            yield from self._tables_in_halves(lines[middle:])

    def _is_record(self, line: bytes, at: int) -> bool:
        read = read_line(line)
        if not isinstance(read, Flaw):
            return True
        if read.trouble == "newer" and read.envelope is not None:
            self._see_unknown(read.envelope.process, read.envelope.number)
            self.note("newer", read.text, at)
        else:
            self.note("corrupt", read.text, at)
        return False

    def _see_unknown(self, process: str, number: int) -> None:
        """A record that is there but cannot be understood: its number is not missing."""
        if self._is_known(process, number):
            return
        found = self.result.processes.setdefault(process, Process())
        found.add(Process(not_understood=1, ranges=[Range(number, number, 0, 0)]))
        self._seen[process] = joined([*self._seen.get(process, []), Range(number, number, 0, 0)])

    def _is_known(self, process: str, number: int) -> bool:
        return any(each.first <= number <= each.last for each in self._seen.get(process, []))

    def _only_new(self, table: Any) -> Any:
        """The table without records that were read before; what is new is noted."""
        process = table["process"].to_numpy()
        if (process == process[0]).all():
            return self._new_of_one(process[0], table)
        parts = [
            part
            for name in dict.fromkeys(process)
            if (part := self._new_of_one(name, table.filter(pa.array(process == name)))) is not None
        ]
        return pa.concat_tables(parts).sort_by("line") if parts else None

    def _new_of_one(self, process: str, table: Any) -> Any:
        number = table["number"].to_numpy()
        keep = np.zeros(len(number), bool)
        keep[np.unique(number, return_index=True)[1]] = True
        for each in self._seen.get(process, []):
            keep &= (number < each.first) | (number > each.last)
        new = table if keep.all() else table.filter(pa.array(keep))
        if not keep.all():
            self._note_repeats(process, table.filter(pa.array(~keep)), new)
        if new.num_rows == 0:
            return None
        self._earlier.add(process, new)
        new, wrong = put_right(new)
        found = _process_in(new)
        ahead_ms = max(0, found.last_ms - self._now_ms - AHEAD_MS)
        is_unset = found.first_ms < FIRST_PLAUSIBLE_MS
        found.clock = Clock(*wrong, ahead_ms=ahead_ms, is_unset=is_unset, offsets=offsets(new))
        self._seen[process] = joined([*self._seen.get(process, []), *found.ranges])
        self.result.processes.setdefault(process, Process()).add(found)
        return new

    def _note_repeats(self, process: str, repeats: Any, new: Any) -> None:
        """What was read before: the same, or something else."""
        odd = self._earlier.different(process, repeats, new)
        odd |= different_in(self._store, self._chunk.beside, process, repeats)
        for number, at in zip(repeats["number"].to_pylist(), repeats["line"].to_pylist(), strict=True):
            if number in odd:
                self.note("conflict", conflict_text(process, number), at)
            else:
                self.note("duplicate", "read before, in this or another segment", at)

    def note(self, defect: str, text: str, at: int | None) -> None:
        trouble = self._troubles.setdefault(defect, Trouble(self._chunk.segment, defect, text, lines=[]))
        trouble.count += 1
        if at is not None and len(trouble.lines) < LINES_NAMED_MAX:
            trouble.lines.append(self._chunk.first_line + self.result.lines + at)
        self.result.troubles = list(self._troubles.values())


def _is_possible(table: Any) -> bool:
    """Whether every record has a number that a ledger gives; if not, lines are looked at one by one."""
    number = table["number"]
    bounds = pc.min_max(number).as_py()
    return not number.null_count and bounds["min"] >= 1 and bounds["max"] <= NUMBER_MAX


def _process_in(table: Any) -> Process:
    """What the records, all of one process, say about it."""
    at_ms, number = table["at_ms"].to_numpy(), table["number"].to_numpy()
    last = {name: table[name][-1].as_py() for name in ENVELOPE}
    told = table.filter(pc.is_in(table["kind"], pa.array([str(kind) for kind in TOLD]))).to_pylist()
    return Process(
        host=last["host"] or "",
        pid=last["pid"] or 0,
        program=last["program"] or "",
        first_ms=int(at_ms.min()),
        last_ms=int(at_ms.max()),
        wait_us=max((each["duration_us"] or 0 for each in told if each["kind"] == Kind.OPENED), default=0),
        sync_us=next((each["sync_us"] or 0 for each in told if each["kind"] == Kind.OPENED), 0),
        boot=next((each["boot"] or "" for each in told if each["kind"] == Kind.OPENED), ""),
        closed=any(each["kind"] == Kind.CLOSED for each in told),
        rejected=_rejected([each for each in told if each["kind"] == Kind.REJECTED]),
        roles=_roles(table["kind"]),
        primaries=primaries_in(table),
        stores=stores_in(table),
        secondaries=secondaries_in(table),
        ranges=_ranges(number, at_ms),
        gaps=[_gap(each) for each in told if each["kind"] == Kind.GAP],
    )


def _roles(kinds: Any) -> list[str]:
    """Who records such kinds, and nobody else does."""
    known = [FACTS[Kind(each)].by for each in pc.unique(kinds).to_pylist() if each in _KINDS]
    return sorted({by[0] for by in known if len(by) == 1} - {"ledger"})


def _gap(told: dict[str, Any]) -> Gap:
    first, last, since_ms, until_ms = (
        told[name] or 0 for name in ("missing_first", "missing_last", "since_ms", "until_ms")
    )
    return Gap(first, last, since_ms, until_ms, told["reason"] or "")


def _rejected(told: list[dict[str, Any]]) -> Rejected:
    if not told:
        return Rejected()
    moments = [each["at_ms"] for each in told]
    return Rejected(len(told), min(moments), max(moments), told[0]["reason"] or "")


def _ranges(number: Any, at_ms: Any) -> list[Range]:
    order = np.argsort(number, kind="stable")
    number, at_ms = number[order], at_ms[order]
    breaks = np.flatnonzero(np.diff(number) != 1)
    firsts, lasts = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [len(number) - 1]))
    return [
        Range(int(number[first]), int(number[last]), int(at_ms[first]), int(at_ms[last]))
        for first, last in zip(firsts, lasts, strict=True)
    ]
