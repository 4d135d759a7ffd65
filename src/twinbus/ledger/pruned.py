"""What was pruned from a ledger: which records of which process, and whether a report had read them.

Kept in `pruned.json` beside the segments, and on the disk before the first of them is deleted. Without it the numbers
would be missing, and nobody would know why. A segment that is named in it and still there counts as there: whoever was
interrupted in the middle has pruned a part, and begins again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from twinbus.errors import StoreDamaged, StoreError, StoreTooNew
from twinbus.ledger.disk import Disk
from twinbus.own_files import open_own

FILE = "pruned.json"
VERSION = 1
Numbers = tuple[int, int]
"""First and last."""


class PrunedProcess(msgspec.Struct):
    """What was pruned of one process."""

    host: str = ""
    program: str = ""
    first_ms: int = 0
    last_ms: int = 0
    wait_us: int = 0
    sync_us: int = 0
    boot: str = ""
    """These three are what its first record said, if that was among them."""
    closed: bool = False
    """Its last record was among them."""
    read: list[Numbers] = []
    """Numbers of records that a report had read."""
    unread: list[Numbers] = []
    """Numbers of records that none had."""
    pruned_ms: int = 0

    def add(self, more: PrunedProcess) -> None:
        self.host, self.program = more.host or self.host, more.program or self.program
        self.first_ms = min([each for each in (self.first_ms, more.first_ms) if each], default=0)
        self.last_ms = max(self.last_ms, more.last_ms)
        self.wait_us, self.sync_us = self.wait_us or more.wait_us, self.sync_us or more.sync_us
        self.boot = self.boot or more.boot
        self.closed = self.closed or more.closed
        self.read = joined([*self.read, *more.read])
        self.unread = without(joined([*self.unread, *more.unread]), self.read)
        self.pruned_ms = max(self.pruned_ms, more.pruned_ms)

    @property
    def last(self) -> int:
        return max((each[1] for each in (*self.read, *self.unread)), default=0)

    def why_missing(self, number: int) -> str:
        """Why a record is not there that was pruned."""
        day = datetime.fromtimestamp(self.pruned_ms / 1000, UTC).date()
        is_unread = any(first <= number <= last for first, last in self.unread)
        how = "no report had read them" if is_unread else "a report had read them, but into another store"
        return f"pruned on {day}: {how}"


class Pruned(msgspec.Struct):
    """Everything that was pruned from a ledger."""

    version: int = VERSION
    processes: dict[str, PrunedProcess] = {}


def load(directory: Path) -> Pruned:
    """What was pruned; nothing if there is no such note. Raises `StoreError` if it cannot be read."""
    file = directory / FILE
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Pruned)
    except FileNotFoundError:
        return Pruned()
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreDamaged(
            f"{file} is damaged: {error}; without it, what was pruned is missing: restore it, or remove it"
        ) from error
    if found.version > VERSION:
        raise StoreTooNew(f"{file} was written by a newer twinbus")
    return found


def save(directory: Path, pruned: Pruned) -> None:
    """From now on, and after a power cut too, this is what was pruned. Raises `OSError` if it is as before."""
    file = directory / FILE
    fresh = file.with_name(f".{FILE}.new")
    fresh.unlink(missing_ok=True)  # of somebody who was interrupted; or a link, which must not be written through
    with os.fdopen(open_own(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as opened:
        opened.write(msgspec.json.encode(pruned))
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)
    Disk().sync_names(directory)


def joined(ranges: Iterable[Numbers]) -> list[Numbers]:
    """The same numbers in as few ranges as possible, in order."""
    result: list[Numbers] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def without(ranges: Iterable[Numbers], gone: Iterable[Numbers]) -> list[Numbers]:
    """The numbers of the first that are not among the second."""
    left = list(ranges)
    for first, last in gone:
        left = [
            part
            for each in left
            for part in ((each[0], min(each[1], first - 1)), (max(each[0], last + 1), each[1]))
            if part[0] <= part[1]
        ]
    return joined(left)
