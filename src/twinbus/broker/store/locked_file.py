"""The files of a store: locked while in use, and private.

Next to the database `x` are `x-wal` and `x-shm`, which SQLite creates with the mode of the database, and `x.lock`,
locked with flock while the store is open. The lock is a separate file because closing any other handle of the database
in this process would also release SQLite's locks on it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from twinbus.broker.store.format import check_is_store
from twinbus.errors import StoreInUse
from twinbus.own_files import make_own_folder, open_own, refuse_foreign_link


class LockedFile:
    """The database file of a store, locked until `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def claim(self) -> None:
        """Lock the file, and create it and its directory if they are missing.

        Raises `OSError`, or `StoreError` (in use, damaged, too new, somebody else's link) before the file is touched.
        """
        directory = self.path.parent
        missing = [one for one in (directory, *directory.parents) if not one.exists()]
        make_own_folder(directory)
        for one in missing:
            sync_path(one.parent)
        for suffix in ("", "-wal", "-shm", ".lock"):  # SQLite follows links
            refuse_foreign_link(self.path.with_name(self.path.name + suffix))
        self._lock = open_own(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT)
        try:
            _hold(self._lock, f"the store {self.path}")
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
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class FolderLock:
    """A folder that one process uses at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._lock: int | None = None

    def claim(self) -> None:
        """Raises `StoreInUse` if another process uses the folder, or `OSError`."""
        refuse_foreign_link(self._path)
        self._lock = open_own(self._path, os.O_RDWR | os.O_CREAT)
        try:
            _hold(self._lock, f"the folder {self._path.parent}")
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sync_path(path: Path) -> None:
    """Sync a file, or the names in a directory, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _hold(lock: int, what: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode("ascii", "replace").strip()
        raise StoreInUse(f"{what} is in use by process {holder or 'unknown'}") from None
    os.truncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())
