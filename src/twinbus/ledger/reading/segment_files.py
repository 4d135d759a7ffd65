"""Finds the segments of a ledger, at any depth below its folder, and which of them are being written to.

All readers use this, so that all commands read the same segments, wherever they are: in a folder, or at a URL.
"""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple, cast

from twinbus.errors import StoreError
from twinbus.ledger.options import LedgerOptions
from twinbus.ledger.writing.liveness import LivenessSeen, read_liveness
from twinbus.ledger.writing.segment import COMPRESSED, CROWDED, SUFFIX, process_of
from twinbus.own_files import try_lock
from twinbus.storage import Folder, Location, StoredFile, open_folder

LOOKS_MAX = 20
FULL = 0.99
"""From which share of its limit a folder counts as full: a writer stops before what it would write passes the limit."""
STORE_FOLDER = "compacted"
"""Default name of the compacted store of a ledger."""
STORE_FILE, STORE_STEPS = "manifest.json", "steps"
"""A file and a folder that every store has: there are no segments below one."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment as it was listed."""

    folder: Folder
    name: str
    """Its path below the folder of the ledger."""
    bytes: int = field(default=0, compare=False)
    modified_ms: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return self.folder.where(self.name)

    @property
    def path(self) -> Path:
        """Of one in a folder of this machine; raises `StoreError` for others."""
        return self.folder.path() / self.name

    @property
    def whereabouts(self) -> str:
        """Where other processes find it: its URL, or its path without links."""
        return str(self.path.resolve()) if self.folder.is_local else str(self)

    @property
    def is_compressed(self) -> bool:
        return self.name.endswith(COMPRESSED)

    @property
    def process(self) -> str | None:
        return process_of(self.name)

    def open(self) -> BinaryIO:
        """Its lines, from any place. Raises `OSError`, also while it is read.

        One that is compressed is unpacked first: if that fails, nothing of it was read.
        """
        file = self.folder.open(self.name)
        if not self.is_compressed:
            return file
        with file:
            return _unpack(file, self.name)


def segment_at(whereabouts: str) -> StoredSegment:
    """The segment with these whereabouts."""
    folder, _, name = whereabouts.rpartition("/")
    return StoredSegment(open_folder(folder or "/"), name)


def _unpack(file: BinaryIO, name: str) -> BinaryIO:
    unpacked = tempfile.TemporaryFile(prefix="twinbus-")  # noqa: SIM115  the reader closes it
    try:
        with _unpacker(file, name) as lines:
            shutil.copyfileobj(lines, unpacked, 1 << 20)
    except OSError:
        unpacked.close()
        raise
    except Exception as error:  # each package has errors of its own
        unpacked.close()
        raise OSError(errno.EIO, f"it cannot be unpacked: {error}") from error
    unpacked.seek(0)
    return cast("BinaryIO", unpacked)


def _unpacker(file: BinaryIO, name: str) -> BinaryIO:
    if name.endswith(".gz"):
        return cast("BinaryIO", gzip.GzipFile(fileobj=file))
    return _unpack_zstd(file)


def _unpack_zstd(file: BinaryIO) -> BinaryIO:
    """Raises `OSError` if the package is missing."""
    try:
        import zstandard
    except ImportError as error:
        raise OSError(errno.EIO, "zstd needs the package zstandard: pip install 'twinbus[zstd]'") from error
    return cast("BinaryIO", zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))


class FoundSegments(NamedTuple):
    """The segments as they were at one moment."""

    segments: list[StoredSegment]
    held: set[StoredSegment]
    """Those that a writer on this machine has open."""
    without_locks: set[StoredSegment]
    """Those where there are no file locks, as at any URL: unknown whether a writer has them open."""
    marks: Mapping[str, LivenessSeen] = MappingProxyType({})
    """The liveness marks of those that run, as they were before the segments were listed: what they say was written is
    there. One in another container, or on another machine, has none here."""

    @property
    def running(self) -> frozenset[str]:
        """The processes that have a segment open on this machine."""
        return frozenset([name for name in (each.process for each in self.held) if name is not None])

    @property
    def in_full_folders(self) -> frozenset[str]:
        """Those of them whose folder has reached the usual limit: perhaps they cannot write."""
        folders = crowded_folders(self.segments, FULL)
        names = (each.process for each in self.held if folders and each.path.parent in folders)
        return frozenset([name for name in names if name is not None])


def find_segments(ledger: Location) -> list[StoredSegment]:
    """The segments at any depth, in the order of their own names.

    Raises `StoreError` if there is no such ledger, or if a folder in it cannot be read: what is in it would be missing
    without a word.
    """
    folder = open_folder(ledger)
    _check_is_there(folder)
    files = folder.files(skip=_is_store)
    if not files and not folder.is_local:
        raise StoreError(f"there is no ledger in {folder.url}: nothing is stored there")
    return _segments_of(folder, files)


def _find_own(ledger: Location, process: str) -> list[StoredSegment]:
    """Those that a process has written into the folder itself. Of others only the names are read: there may be many.

    Raises as `find_segments` does.
    """
    folder, mark = open_folder(ledger), f"-{process}-"
    _check_is_there(folder)
    try:
        with os.scandir(folder.path()) as entries:
            names = [each.name for each in entries if mark in each.name]
    except OSError as error:
        raise StoreError(f"{folder.url} cannot be read: {error.strerror}") from error
    return _segments_of(folder, [file for file in map(folder.file, names) if file is not None])


def _check_is_there(folder: Folder) -> None:
    if folder.is_local and not folder.path().is_dir():
        why = "not a folder" if folder.path().exists() else "no such folder"
        raise StoreError(f"there is no ledger in {folder.url}: {why}")


def _segments_of(folder: Folder, files: Iterable[StoredFile]) -> list[StoredSegment]:
    found = [
        StoredSegment(folder, file.name, file.bytes, file.modified_ms)
        for file in files
        if file.name.endswith((SUFFIX, *COMPRESSED))
    ]
    return sorted(found, key=lambda each: (each.name.rpartition("/")[2], each.name))


def _is_store(files: Collection[str], folders: Collection[str]) -> bool:
    return STORE_FILE in files and STORE_STEPS in folders


def segments_in(directory: Path) -> list[Path]:
    """The segments of a ledger on this machine. Raises as `find_segments` does."""
    return [each.path for each in find_segments(directory)]


def segments_and_held(ledger: Location, process: str | None = None) -> FoundSegments:
    """The segments, and which are open, at one moment; of one `process` only, if it is named.

    A writer begins the next segment before it lets go of the one before. So, if there is nothing new after looking at
    the locks, a process that held nothing had ended, and everything it wrote is there to be read.
    """

    def find() -> list[StoredSegment]:
        return find_segments(ledger) if process is None else _find_own(ledger, process)

    segments = find()
    if not open_folder(ledger).is_local:
        return FoundSegments(segments, set(), set(segments))
    for _ in range(LOOKS_MAX):
        locks = {each: lock_of(each.path) for each in segments}
        held = {each for each, is_locked in locks.items() if is_locked}
        marks = dict(_marks(held))
        before, segments = segments, find()
        if segments == before:
            break
    return FoundSegments(segments, held, {each for each, is_locked in locks.items() if is_locked is None}, marks)


def _marks(held: Iterable[StoredSegment]) -> Iterable[tuple[str, LivenessSeen]]:
    for each in held:
        with suppress(OSError):
            if each.process and (mark := read_liveness(each.process, each.path.stat().st_uid)) is not None:
                yield each.process, mark


def lock_of(path: Path) -> bool | None:
    """Whether a writer on this machine has the segment open; None: the file system has no locks."""
    try:
        with path.open("rb") as file:
            try:
                return not try_lock(file.fileno(), is_shared=True)
            except OSError:
                return None
    except OSError:
        return False  # moved away, or not readable: reading it says so


USUAL_MAX: int = next(each.default for each in fields(LedgerOptions) if each.name == "directory_bytes_max")  # type: ignore[assignment]


def crowded(segments: Iterable[StoredSegment]) -> list[str]:
    """A line for each folder whose segments have nearly reached the usual limit of a writer, or passed it."""
    return [
        f"the segments in {folder} take up {taken:,} bytes; unless directory_bytes_max says otherwise, writers stop at "
        f"{USUAL_MAX:,}: twinbus ledger prune makes room"
        for folder, taken in crowded_folders(segments).items()
    ]


def crowded_folders(segments: Iterable[StoredSegment], share: float = CROWDED) -> dict[Path, int]:
    """Folders whose segments take up this share of the usual limit, and how many bytes that is.

    Nobody writes to a URL, so there is no limit.
    """
    used: dict[Path, int] = {}
    for each in segments:
        if each.folder.is_local:
            used[each.path.parent] = used.get(each.path.parent, 0) + each.bytes
    return {folder: taken for folder, taken in used.items() if taken >= share * USUAL_MAX}
