"""Finds the segments of a ledger, at any depth below its folder, and which of them are being written to.

All readers use this, so that all commands read the same segments.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from twinbus.errors import StoreError
from twinbus.ledger.options import LedgerOptions
from twinbus.ledger.segment import CROWDED, SUFFIX, process_of

LOOKS_MAX = 20
STORE_FOLDER = "compacted"
"""Default name of the compacted store of a ledger."""
STORE_FILE, STORE_STEPS = "manifest.json", "steps"
"""A file and a folder that every store has: there are no segments below one."""


class FoundSegments(NamedTuple):
    """The segments as they were at one moment."""

    segments: list[Path]
    held: set[Path]
    """Those that a writer on this machine has open."""
    without_locks: set[Path]
    """Those on a file system without locks: unknown whether a writer has them open."""

    @property
    def running(self) -> frozenset[str]:
        """The processes that have a segment open on this machine."""
        return frozenset([name for name in map(process_of, self.held) if name is not None])


def segments_in(directory: Path) -> list[Path]:
    """The segments at any depth, in the order of their names.

    Raises `StoreError` if there is no such directory, or if a folder in it cannot be read: what is in it would be
    missing without a word.
    """
    return sorted(_walk(directory), key=lambda path: (path.name, path))


def _walk(directory: Path) -> Iterator[Path]:
    if not directory.is_dir():
        why = "not a folder" if directory.exists() else "no such folder"
        raise StoreError(f"there is no ledger in {directory}: {why}")
    visited: set[tuple[int, int]] = set()
    for folder, below, files in os.walk(directory, onerror=_refuse, followlinks=True):
        facts = Path(folder).stat()
        if (facts.st_dev, facts.st_ino) in visited or (STORE_FILE in files and STORE_STEPS in below):
            below.clear()  # a link that leads back, or a compacted store
            continue
        visited.add((facts.st_dev, facts.st_ino))
        below.sort()
        for name in files:
            if name.endswith(SUFFIX):
                yield Path(folder, name)


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # moved away meanwhile
        raise StoreError(
            f"{error.filename} cannot be read: {error.strerror}; make it readable, or move it out of the ledger"
        ) from error


def name_in(directory: Path, segment: Path) -> str:
    """A segment's name within its ledger: its path below the folder."""
    return segment.relative_to(directory).as_posix()


def segments_and_held(directory: Path) -> FoundSegments:
    """The segments, and which are open, at one moment.

    A writer begins the next segment before it lets go of the one before. So, if there is nothing new after looking at
    the locks, a process that held nothing had ended, and everything it wrote is there to be read.
    """
    segments = segments_in(directory)
    for _ in range(LOOKS_MAX):
        locks = {path: lock_of(path) for path in segments}
        before, segments = segments, segments_in(directory)
        if segments == before:
            break
    held = {path for path, is_locked in locks.items() if is_locked}
    return FoundSegments(segments, held, {path for path, is_locked in locks.items() if is_locked is None})


def lock_of(path: Path) -> bool | None:
    """Whether a writer on this machine has the segment open; None: the file system has no locks."""
    try:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError:
                return None
    except OSError:
        return False  # moved away, or not readable: reading it says so
    return False


USUAL_MAX: int = next(each.default for each in fields(LedgerOptions) if each.name == "directory_bytes_max")  # type: ignore[assignment]


def crowded(segments: Iterable[Path]) -> list[str]:
    """A line for each folder whose segments have nearly reached the usual limit of a writer, or passed it."""
    used: dict[Path, int] = {}
    for path in segments:
        with suppress(OSError):  # moved away meanwhile
            used[path.parent] = used.get(path.parent, 0) + path.stat().st_size
    return [
        f"the segments in {folder} take up {taken:,} bytes; unless directory_bytes_max says otherwise, writers stop at "
        f"{USUAL_MAX:,}: twinbus ledger prune makes room"
        for folder, taken in used.items()
        if taken >= CROWDED * USUAL_MAX
    ]
