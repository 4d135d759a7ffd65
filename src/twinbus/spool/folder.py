"""The folders of a spool. Every process has one of its own, and all of them are for one pair:

    DIR/pair           the name of the primary
    DIR/lock           held for the moment in which a sub-folder is taken or removed
    DIR/1/             mode 0700
    DIR/1/lock         held, and with the process id in it, while a process uses the sub-folder
    DIR/1/store.sqlite

A sub-folder that nobody holds was left behind: its process was killed, or ended while messages were in it. The next
process takes it over with its messages. Locks are those of `flock`: they end with the process, also after kill -9.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from twinbus.broker.store.locked_file import sync_path
from twinbus.errors import StoreError, StoreInUse
from twinbus.own_files import (
    check_folder,
    make_own_folder,
    open_own,
    read_own,
    refuse_foreign_link,
    try_lock,
    write_holder,
    write_whole,
)

PAIR_FILE, LOCK_FILE, STORE_FILE = "pair", "lock", "store.sqlite"
PATIENCE_S, PAUSE_S = 10.0, 0.01
"""How long to wait for others that take a sub-folder just now."""
FOLDERS_MAX = 10_000


class SpoolFolder:
    """One sub-folder, held until `release` or `remove`."""

    def __init__(self, directory: SpoolDirectory, path: Path, lock: int) -> None:
        self._directory = directory
        self.path = path
        self._lock: int | None = lock
        self._pid = os.getpid()

    @property
    def store(self) -> Path:
        return self.path / STORE_FILE

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever stored in it."""
        return not self.store.exists()

    @property
    def is_ours(self) -> bool:
        """Whether this process took it. A forked child has the files of its parent open, and must not use them."""
        return os.getpid() == self._pid

    def release(self) -> None:
        """Unlock it for other processes, with its messages."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove(self) -> None:
        """Remove it with everything in it: it must not have messages."""
        with self._directory.locked():
            shutil.rmtree(self.path, ignore_errors=True)
            self.release()


class SpoolDirectory:
    """The folder that the processes of one pair share. Raises `StoreError` where it cannot be used."""

    def __init__(self, path: str | Path, primary_name: str) -> None:
        self.path = Path(path)
        self.primary_name = primary_name

    def open(self) -> None:
        """Make it, or check that it is ours and of this pair; nothing is changed if it is not."""
        with self._errors():
            make_own_folder(self.path)
            check_folder(self.path)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise StoreError(f"the spool {self.path} cannot be written: permission denied")
            with self.locked():
                self._check_pair()

    def open_existing(self) -> None:
        """The same for one that has to be there."""
        if not (self.path / PAIR_FILE).is_file():
            raise StoreError(f"{self.path} is not a spool: give the folder that the clients have as spool")
        self.open()

    def _check_pair(self) -> None:
        file = self.path / PAIR_FILE
        if not file.exists():
            refuse_foreign_link(file)
            write_whole(file, self.primary_name + "\n")
            sync_path(self.path)
        try:
            owner = read_own(file).strip()
        except UnicodeDecodeError:
            owner = ""
        if not owner:
            raise StoreError(f"the spool {self.path} is damaged: {file} does not name a pair; write its primary there")
        if owner.casefold() != self.primary_name.casefold():
            raise StoreError(
                f"the spool {self.path} is of another pair: its primary is {owner}, not {self.primary_name}; "
                "each pair needs a folder of its own"
            )

    def take(self, without: set[Path] | None = None) -> SpoolFolder:
        """A sub-folder that nobody holds: one that was left behind, else a new one."""
        with self._errors(), self.locked():
            for path in self._numbered():
                lock = None if path in (without or set()) else self._try_lock(path)
                if lock is not None:
                    return SpoolFolder(self, path, lock)
            taken = {path.name for path in self._numbered()}
            free = next((str(number) for number in range(1, FOLDERS_MAX) if str(number) not in taken), None)
            if free is None:
                raise StoreError(f"the spool {self.path} has {FOLDERS_MAX} folders: remove those that are not needed")
            path = self.path / free
            make_own_folder(path)
            sync_path(self.path)
            lock = self._try_lock(path)
            assert lock is not None, "nobody else takes one meanwhile"
            return SpoolFolder(self, path, lock)

    def take_one(self, path: Path) -> SpoolFolder:
        """This sub-folder. Raises `StoreInUse` if a process uses it."""
        with self._errors(), self.locked():
            if path not in self._numbered():
                raise StoreError(f"{path} is not a folder of a spool: give one that twinbus status --spool shows")
            lock = self._try_lock(path)
            if lock is None:
                raise StoreInUse(f"the spool {path} is in use by process {self._holder(path)}: stop that first")
            return SpoolFolder(self, path, lock)

    def take_left_behind(self, without: set[Path] | None = None) -> SpoolFolder | None:
        """The first sub-folder that somebody has left behind with something in it; None: there is none."""
        with self._errors(), self.locked():
            for path in self._numbered():
                if path in (without or set()):
                    continue
                lock = self._try_lock(path)
                if lock is not None:
                    folder = SpoolFolder(self, path, lock)
                    if not folder.is_new:
                        return folder
                    shutil.rmtree(path, ignore_errors=True)  # its process ended before it stored anything
                    folder.release()
        return None

    def holders(self) -> dict[Path, int | None]:
        """All sub-folders, and the process that holds each; None: nobody does."""
        with self._errors(), self.locked():
            return {path: self._holder(path) for path in self._numbered()}

    def _holder(self, path: Path) -> int | None:
        lock = self._try_lock(path, mark=False)
        if lock is None:
            holder = read_own(path / LOCK_FILE).strip()
            return int(holder) if holder.isdigit() else 0
        os.close(lock)
        return None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else takes or removes a sub-folder meanwhile."""
        lock = open_own(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        try:
            until = time.monotonic() + PATIENCE_S
            while not try_lock(lock):
                if time.monotonic() > until:
                    raise StoreInUse(
                        f"the spool {self.path} is in use: a process has held its file {LOCK_FILE} for too long"
                    )
                time.sleep(PAUSE_S)
            yield
        finally:
            os.close(lock)

    def _numbered(self) -> list[Path]:
        found = [path for path in self.path.iterdir() if path.name.isdigit() and path.is_dir()]
        return sorted(found, key=lambda path: int(path.name))

    def _try_lock(self, path: Path, *, mark: bool = True) -> int | None:
        """The lock of a sub-folder, if nobody holds it."""
        check_folder(path, must_be_ours=True)
        lock = open_own(path / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        if not try_lock(lock):
            os.close(lock)
            return None
        if mark:
            write_holder(lock)
        return lock

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"the spool {self.path} cannot be used: {error.strerror or error}") from None
