"""The end of a ledger, and what is being added to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import nlargest
from io import SEEK_END
from typing import BinaryIO

from twinbus.ledger.lines import LINE_BYTES_MAX, read_line
from twinbus.ledger.reading.segment_files import StoredSegment, find_segments
from twinbus.ledger.schema import Record
from twinbus.storage import Location

BLOCK_BYTES = 64 * 1024
FILE_TIME_STEP_MS = 2_000
"""The time of a file may be that much before its last write: Linux takes it from a clock with steps of up to 10 ms, and
some file systems keep two seconds or a second only.
"""

Wanted = Callable[[Record], bool]


class LedgerTail:
    """Follows a ledger from its last records on. Lines that are not records are skipped: `verify` names them."""

    def __init__(self, directory: Location, wanted: Wanted = lambda _: True) -> None:
        self._directory = directory
        self._wanted = wanted
        self._offsets: dict[StoredSegment, int] = {}

    def last(self, count: int) -> list[Record]:
        """The newest records that are wanted, of all processes, the oldest of them first.

        Segments of this machine that were finished before the oldest of them was written are not opened.
        """
        newest: list[Record] = []
        for segment in sorted(find_segments(self._directory), key=lambda each: each.modified_ms, reverse=True):
            self._offsets[segment] = segment.bytes
            # At a URL it is the time of the copy, by another clock.
            written_by_ms = segment.modified_ms + FILE_TIME_STEP_MS
            is_older = segment.folder.is_local and newest and written_by_ms < newest[-1].at_ms
            if len(newest) < count or not is_older:
                found = {_moment(each): each for each in (*newest, *self._last_of(segment, count))}
                newest = [found[moment] for moment in nlargest(count, found)]
        return newest[::-1]

    def added(self) -> list[Record]:
        """The records that are wanted and were added since the last look, in the order of their time."""
        found: list[Record] = []
        for segment in find_segments(self._directory):
            if segment.bytes > self._offsets.get(segment, 0):
                found += self._added_to(segment)
        return sorted(found, key=_moment)

    def _last_of(self, segment: StoredSegment, count: int) -> list[Record]:
        found: list[Record] = []
        for line in _lines_backwards(segment):
            if len(found) == count:
                break
            self._take(line, found)
        return found

    def _added_to(self, segment: StoredSegment) -> list[Record]:
        """Whole lines only: one that is still being written comes next time."""
        found: list[Record] = []
        with suppress(OSError), segment.open() as file:
            offset = 0 if segment.is_compressed else self._offsets.get(segment, 0)
            start = _start_of_line(file, offset)
            if start < offset and isinstance(read_line(file.read(offset - start)), Record):
                start = offset  # it lacked only its end when it was read
            file.seek(start)
            while line := file.readline(LINE_BYTES_MAX + 1):
                if not line.endswith(b"\n") and len(line) <= LINE_BYTES_MAX:
                    break
                self._offsets[segment] = file.tell()
                self._take(line, found)
            if segment.is_compressed:
                self._offsets[segment] = segment.bytes
        return found

    def _take(self, line: bytes, found: list[Record]) -> None:
        record = read_line(line)
        if isinstance(record, Record) and self._wanted(record):
            found.append(record)


def _start_of_line(file: BinaryIO, offset: int) -> int:
    """Where the line begins that `offset` is in the midst of, and there the file is left; `offset` if it is too far."""
    at, floor = offset, max(0, offset - LINE_BYTES_MAX)
    while at > floor:
        before = max(floor, at - BLOCK_BYTES)
        file.seek(before)
        end = file.read(at - before).rfind(b"\n")
        if end >= 0:
            return file.seek(before + end + 1)
        at = before
    return file.seek(offset if floor else 0)


def _moment(record: Record) -> tuple[int, str, int]:
    return record.at_ms, record.process, record.number


def _lines_backwards(segment: StoredSegment) -> Iterator[bytes]:
    """The lines of a segment from its end on, reading only as much of it as is asked for."""
    rest = b""
    with suppress(OSError), segment.open() as file:
        size = file.seek(0, SEEK_END) if segment.is_compressed else segment.bytes
        while size > 0:
            start = max(0, size - BLOCK_BYTES)
            file.seek(start)
            lines = (file.read(size - start) + rest).split(b"\n")
            rest, size = lines[0][: LINE_BYTES_MAX + 1], start
            yield from reversed(lines[1:])
        yield rest
