"""The few things the ledger asks of a disk, in one place so that a test can have a disk that refuses."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from pathlib import Path

from twinbus.own_files import FILE_MODE, make_own_folder

log = logging.getLogger("twinbus.ledger")

SUFFIX = ".jsonl"


class Disk:
    """The real one. Everything may raise `OSError`."""

    def create(self, path: Path) -> int:
        """A new, empty file, locked for as long as somebody has it open; its directories are made as needed."""
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
        if path.exists():  # a rename would replace what somebody has recorded
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
