"""The end of a ledger, and what is being added to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import nlargest
from pathlib import Path
from typing import BinaryIO

from twinbus.ledger.lines import LINE_BYTES_MAX, read_line
from twinbus.ledger.schema import Record
from twinbus.ledger.segment_files import segments_in

BLOCK_BYTES = 64 * 1024

Wanted = Callable[[Record], bool]


class LedgerTail:
    """Follows a ledger from its last records on. Lines that are not records are skipped: `verify` names them."""

    def __init__(self, directory: Path, wanted: Wanted = lambda _: True) -> None:
        self._directory = directory
        self._wanted = wanted
        self._offsets: dict[Path, int] = {}

    def last(self, count: int) -> list[Record]:
        """The newest records that are wanted, of all processes, the oldest of them first.

        Segments that were finished before the oldest of them was written are not opened.
        """
        newest: list[Record] = []
        for path, size, modified_ms in sorted(self._files(), key=lambda file: file[2], reverse=True):
            self._offsets[path] = size
            if len(newest) < count or (newest and modified_ms >= newest[-1].at_ms):
                newest = nlargest(count, [*newest, *self._last_of(path, size, count)], key=_moment)
        return newest[::-1]

    def added(self) -> list[Record]:
        """The records that are wanted and were added since the last look, in the order of their time."""
        found: list[Record] = []
        for path, size, _ in self._files():
            if size > self._offsets.get(path, 0):
                found += self._added_to(path)
        return sorted(found, key=_moment)

    def _files(self) -> Iterator[tuple[Path, int, int]]:
        for path in segments_in(self._directory):
            with suppress(OSError):  # moved away meanwhile
                facts = path.stat()
                yield path, facts.st_size, facts.st_mtime_ns // 1_000_000 + 1

    def _last_of(self, path: Path, size: int, count: int) -> list[Record]:
        found: list[Record] = []
        for line in _lines_backwards(path, size):
            if len(found) == count:
                break
            self._take(line, found)
        return found

    def _added_to(self, path: Path) -> list[Record]:
        """Whole lines only: one that is still being written comes next time."""
        found: list[Record] = []
        with suppress(OSError), path.open("rb") as file:
            offset = self._offsets.get(path, 0)
            start = _start_of_line(file, offset)
            if start < offset and isinstance(read_line(file.read(offset - start)), Record):
                start = offset  # it lacked only its end when it was read
            file.seek(start)
            while line := file.readline(LINE_BYTES_MAX + 1):
                if not line.endswith(b"\n") and len(line) <= LINE_BYTES_MAX:
                    break
                self._offsets[path] = file.tell()
                self._take(line, found)
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


def _lines_backwards(path: Path, size: int) -> Iterator[bytes]:
    """The lines of a file from its end on, reading only as much of it as is asked for."""
    rest = b""
    with suppress(OSError), path.open("rb") as file:
        while size > 0:
            start = max(0, size - BLOCK_BYTES)
            file.seek(start)
            lines = (file.read(size - start) + rest).split(b"\n")
            rest, size = lines[0][: LINE_BYTES_MAX + 1], start
            yield from reversed(lines[1:])
        yield rest
