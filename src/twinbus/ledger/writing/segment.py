"""The files of one process: appended to, never changed, begun anew when one is large or old.

A file gets whole lines only. When the disk takes part of a write and refuses the rest, the file is cut back to what
was whole; only a crash can leave a line that is cut short, and then it is the last of its file.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path

from twinbus.ledger.options import LedgerOptions
from twinbus.own_files import FILE_MODE, make_own_folder
from twinbus.units import MIB, file_time, time_of

log = logging.getLogger("twinbus.ledger")

SUFFIX = ".jsonl"
COMPRESSED = (f"{SUFFIX}.gz", f"{SUFFIX}.zst")
"""Segments that were compressed once they were finished; nothing is added to them."""
CROWDED = 0.8
"""Of the room that the segments of a folder may take up: from then on there are warnings."""
LOOK_AGAIN_BYTES = 4 * MIB
LOOK_AGAIN_NS = 30_000_000_000


class Disk:
    """Files as the system has them; tests replace it. Everything may raise `OSError`."""

    def create(self, path: Path) -> int:
        """A new, empty file, locked while it is open; its directories are made as needed."""
        make_own_folder(path.parent)
        # Locked before it has its name: a reader that looked in between would take its writer for dead, and its look
        # would keep us from the lock.
        fresh = path.with_name(f".{path.name}.new")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            log.warning(
                "%s is on a file system without file locks (%s): until the ledger is closed, no report can tell "
                "whether its process still runs",
                path,
                error.strerror,
            )
        try:
            _give_name(fresh, path)
        except OSError:
            os.close(file)
            raise
        return file

    def write(self, file: int, data: bytes | memoryview) -> int:
        return os.write(file, data)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)
        os.lseek(file, size, os.SEEK_SET)

    def sync(self, file: int) -> None:
        os.fsync(file)

    def sync_ended(self, path: Path) -> None:
        """The same for a file that was closed."""
        _sync(path, os.O_RDONLY)

    def sync_names(self, directory: Path) -> None:
        """New files are still there after a power cut."""
        _sync(directory, os.O_RDONLY | os.O_DIRECTORY)

    def close(self, file: int) -> None:
        os.close(file)

    def used_bytes(self, directory: Path) -> int:
        """What all segments in the directory take up, whoever wrote them."""
        with os.scandir(directory) as entries:
            return sum(_size_of(entry) for entry in entries if entry.name.endswith(SUFFIX))

    def free_bytes(self, directory: Path) -> int:
        return (room := os.statvfs(directory)).f_bavail * room.f_frsize


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _give_name(fresh: Path, path: Path) -> None:
    try:
        if path.exists():  # a rename would replace its records
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        fresh.rename(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0  # moved away meanwhile


class Segments:
    """Appends to the newest segment. Only the thread that writes the ledger uses it."""

    def __init__(self, options: LedgerOptions, process: str, disk: Disk, *, opened_ns: int) -> None:
        self._options = options
        self._process = process
        self._opened_ns = opened_ns
        self._disk = disk
        self._file: int | None = None
        self._size = 0
        self._begun_ns = 0
        self._index = 0
        self._file_index = 0
        self._unsynced = False
        self._names_unsynced = False
        self._ended_unsynced: int | None = None  # the first segment that ended before it was synced
        self._room: int | None = None  # how much may be written before looking again; None: look now
        self._looked_ns = 0
        self._was_warned = False

    def append(self, data: bytes, *, monotonic_ns: int, is_end: bool = False) -> None:
        """All of `data` is in a file, for the system to keep, or `OSError` and none of it is.

        With `is_end` the limits that were set do not count (those of the disk do): the end says what is missing.
        """
        if not is_end:
            self._find_room(len(data), monotonic_ns)
        if self._file is None or self._is_done(len(data), monotonic_ns):
            self._begin(monotonic_ns)
        self._write_all(data)
        self._room = None if self._room is None else self._room - len(data)

    def sync(self) -> None:
        """What was appended survives a power cut, also what is in segments that have ended."""
        if self._names_unsynced:
            self._sync_names()
        if self._ended_unsynced is not None:
            self._sync_ended(self._ended_unsynced)
        if self._unsynced and self._file is not None:
            self._disk.sync(self._file)
            self._unsynced = False

    def _sync_names(self) -> None:
        self._disk.sync_names(self._options.directory)
        self._names_unsynced = False

    def _sync_ended(self, first: int) -> None:
        end = self._index + 1 if self._file is None else self._file_index
        for index in range(first, end):
            with suppress(FileNotFoundError):  # moved away by its owner, or never begun
                self._disk.sync_ended(self._path(index))
            self._ended_unsynced = index + 1
        self._ended_unsynced = None

    def retire(self) -> None:
        """End the segment, if there is one; the next record begins another."""
        if self._file is None:
            return
        try:
            if self._options.sync_interval_s is not None:
                self.sync()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Close the file without a sync, as a forked child does with the file of its parent."""
        file, self._file = self._file, None
        if file is not None:
            if self._unsynced and self._ended_unsynced is None:
                self._ended_unsynced = self._file_index
            with suppress(OSError):  # the system has taken or lost the data by now, there is nothing left to do
                self._disk.close(file)

    def _is_done(self, more: int, monotonic_ns: int) -> bool:
        too_large = self._size + more > self._options.segment_bytes_max
        return too_large or monotonic_ns - self._begun_ns >= self._options.segment_age_max_s * 1e9

    def _begin(self, monotonic_ns: int) -> None:
        """Begin the next segment, then end the one before: a process that runs always holds one."""
        self._index += 1  # also if it fails: a name is tried once
        file = self._disk.create(self._path(self._index))
        self._names_unsynced = True
        try:
            self.retire()
        finally:
            self._file, self._size, self._begun_ns = file, 0, monotonic_ns
            self._file_index, self._unsynced = self._index, False
        if self._options.sync_interval_s is not None:
            self._sync_names()

    def _path(self, index: int) -> Path:
        return self._options.directory / segment_name(self._opened_ns, self._process, index)

    def _write_all(self, data: bytes) -> None:
        assert self._file is not None
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._disk.write(self._file, rest) :]
        except OSError:
            self._cut_back()
            raise
        self._size += len(data)
        self._unsynced = True

    def _cut_back(self) -> None:
        assert self._file is not None
        try:
            self._disk.truncate(self._file, self._size)
        except OSError:
            self.let_go()  # its last line stays torn, so nothing may follow it

    def _find_room(self, wanted: int, monotonic_ns: int) -> None:
        """Raise `OSError` when a limit that was set leaves no room."""
        if self._room is not None and wanted <= self._room and monotonic_ns - self._looked_ns < LOOK_AGAIN_NS:
            return
        self._room = None
        room, limit = self._look()
        if wanted > room:
            raise OSError(errno.ENOSPC, limit)
        self._room, self._looked_ns = min(room, max(LOOK_AGAIN_BYTES, wanted)), monotonic_ns

    def _look(self) -> tuple[int, str]:
        directory = self._options.directory
        make_own_folder(directory)
        room = self._options.directory_bytes_max - self._disk.used_bytes(directory)
        limit = f"the segments have reached directory_bytes_max ({self._options.directory_bytes_max})"
        self._warn_of_crowd(room)
        if self._options.free_bytes_min:
            free = self._disk.free_bytes(directory) - self._options.free_bytes_min
            if free < room:
                room, limit = free, f"less space is free than free_bytes_min ({self._options.free_bytes_min})"
        return room, limit

    def _warn_of_crowd(self, room: int) -> None:
        """Say so once, while there is time to do something about it."""
        most = self._options.directory_bytes_max
        if not self._was_warned and room < most * (1 - CROWDED):
            self._was_warned = True
            text = "the segments in %s take up %s of the %s bytes that they may: twinbus ledger prune makes room"
            log.warning(text, self._options.directory, most - room, most)


def segment_name(opened_ns: int, process: str, index: int) -> str:
    """Names sort by the time at which processes began, and within a process by index, however clocks are set."""
    opened = file_time(time_of(opened_ns // 1_000_000_000 * 1000))
    return f"{opened}-{process}-{index:06}{SUFFIX}"


def process_of(name: str) -> str | None:
    """The process in the name of a segment; None if it is not one of ours."""
    own = name.rpartition("/")[2]
    parts = own[: own.find(SUFFIX)].split("-")
    return parts[1] if len(parts) == 3 and parts[2].isdecimal() else None
