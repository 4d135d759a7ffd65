"""The files of a store: locked while in use, and private.

Next to the database `x` are `x-wal` and `x-shm`, which SQLite creates with the mode of the database, and `x.lock`,
locked with flock while the store is open. The lock is a separate file because closing any other handle of the database
in this process would also release SQLite's locks on it.
"""

from __future__ import annotations

import os
from pathlib import Path

from twinbus.broker.store.format import check_is_store
from twinbus.errors import StoreInUse
from twinbus.own_files import make_own_folder, open_own, refuse_foreign_link, try_lock, write_holder


class LockFile:
    """A file that one process holds at a time, with the id of that process in it."""

    def __init__(self, path: Path, what: str) -> None:
        """`what` is in use while it is held."""
        self._path = path
        self._what = what
        self._file: int | None = None

    def claim(self) -> None:
        """Raises `StoreInUse` if another process holds it, or `OSError`."""
        refuse_foreign_link(self._path)
        self._file = open_own(self._path, os.O_RDWR | os.O_CREAT)
        try:
            if not try_lock(self._file):
                holder = os.read(self._file, 32).decode("ascii", "replace").strip()
                raise StoreInUse(f"{self._what} is in use by process {holder or 'unknown'}")
            write_holder(self._file)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Harmless if it is not held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class LockedFile:
    """The database file of a store, locked until `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = LockFile(path.with_name(path.name + ".lock"), f"the store {path}")

    def claim(self) -> None:
        """Lock the file, and create it and its directory if they are missing.

        Raises `OSError`, or `StoreError` (in use, damaged, too new, somebody else's link) before the file is touched.
        """
        directory = self.path.parent
        missing = [one for one in (directory, *directory.parents) if not one.exists()]
        make_own_folder(directory)
        for one in missing:
            sync_path(one.parent)
        for suffix in ("", "-wal", "-shm"):  # SQLite follows links
            refuse_foreign_link(self.path.with_name(self.path.name + suffix))
        self._lock.claim()
        try:
            check_is_store(self.path)
            is_new = not self.path.exists()
            os.close(open_own(self.path, os.O_RDWR | os.O_CREAT))  # SQLite accepts an empty file as a new database
            if is_new:
                sync_path(directory)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock, if it is held."""
        self._lock.release()


def sync_path(path: Path) -> None:
    """Sync a file, or the names in a directory, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
