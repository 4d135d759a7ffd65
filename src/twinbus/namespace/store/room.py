"""Room on the disk of a store, and the reserve for the time when there is none.

The reserve is a file next to the database that holds nothing but space. When a write finds the disk full the file is
removed, and what it held is enough to go on with what makes room: messages that are completed, a start, a stop. From
then on the store is short of room: it says so, and nobody may store new messages until there is room again and a
reserve can be made anew. If it is our own messages that fill the disk, that is said before the reserve is needed.

Room is also what was deleted inside the database, which never shrinks: new messages go there.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from twinbus.namespace.store.api import RoomChanged
from twinbus.namespace.store.connection import (
    CHECKPOINT_PAGES_MIN,
    PAGE_BYTES,
    Connection,
    checkpoint_pages_for,
    empty_log,
    execute,
    first_value,
    one_line,
)

log = logging.getLogger(__name__)

RESERVE_BYTES_MAX = 8 << 20
"""Twice the payload of one transaction."""
_DISK_PARTS = 8
"""A small disk gives at most such a part of itself."""
_SHORT_LOG_BELOW = 256 << 20
"""With less than that free the log is kept short: copying it into the database must fit into the reserve."""
_NOTHING_FREE = 1 << 20
"""With less than that free, errors of input and output are taken for those of a full disk."""
LOOK_S = 1.0
"""How often to look for room when there is none."""

_FULL, _IO_ERROR, _CANNOT_OPEN = 13, 10, 14
"""SQLite's result codes."""


class DiskFull(Exception):
    """What is to be stored would use up the room that is left for taking messages out."""


def reserve_bytes_for(disk_bytes: int) -> int:
    """How much to keep aside on a disk of that size."""
    return min(RESERVE_BYTES_MAX, disk_bytes // _DISK_PARTS)


def reserve_path(path: Path) -> Path:
    """Where the reserve of a database lies."""
    return path.with_name(path.name + "-reserve")


class Room:
    """The room that one store has. Used by one thread at a time, the one that owns the writing connection."""

    def __init__(self, path: Path, checkpoint_pages: int | None, tell: Callable[[RoomChanged], None]) -> None:
        """`checkpoint_pages`: how long the log may get; None: as it fits the disk, less when that is nearly full."""
        self._folder = path.parent
        self._database = path
        self._reserve = reserve_path(path)
        self._has_fixed_log = checkpoint_pages is not None
        self._tell = tell
        self._has_short_log = False
        self.full: str | None = None
        """Why the disk takes no new messages; None while it does."""

    @property
    def is_short(self) -> bool:
        """Whether the disk is full: then nobody may store new messages."""
        return self.full is not None

    def keep_reserve(self, connection: Connection) -> None:
        """Make the reserve unless it is there; without it the store is short of room."""
        if not self.is_short and not self._reserve_bytes() and not self._make_reserve(connection):
            self._become_short("there is no room for a reserve")
        if not self.is_short:
            self.look_again(connection)

    def use_reserve(self, connection: Connection | None, error: Exception) -> bool:
        """After an error: whether it is worth to try again, because the disk was full and now is less so.

        The log is emptied, too, which gives its space back, if a connection is at hand.
        """
        if not self.is_full(error):
            return False
        freed = self._free_reserve()
        self._become_short(one_line(error))
        if connection is not None:
            self.look_at_log(connection)
            self.empty_log_if_it_fits(connection)
        return freed > 0

    def is_full(self, error: Exception) -> bool:
        """Whether an error says that the disk is full."""
        if isinstance(error, DiskFull) or (
            isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        ):
            return True
        code = int(getattr(error, "sqlite_errorcode", None) or getattr(error, "result", None) or 0) & 0xFF
        return code == _FULL or (code in (_IO_ERROR, _CANNOT_OPEN) and self._free_bytes() < _NOTHING_FREE)

    def has_room_for(self, payload_bytes: int) -> bool:
        """Whether so much can be stored and as much is left as that."""
        return 2 * payload_bytes <= self._free_bytes()

    def admit(self, connection: Connection, payload_bytes: int) -> None:
        """Raise `DiskFull` if so much more would leave too little for those who take messages out.

        Messages that were under way when the disk became full are stored as long as half of the reserve is left.
        """
        if self.is_short and payload_bytes > 0:
            left = self._room_bytes(connection) - payload_bytes
            if 2 * left < self._wanted_bytes():
                raise DiskFull("database or disk is full")

    def empty_log_if_it_fits(self, connection: Connection) -> None:
        """Copy the log into the database; not if that would end in the middle and have used up what is free."""
        with suppress(Exception):  # what comes next will show whether the disk is usable
            grows_by = first_value(connection, "pragma page_count") * PAGE_BYTES - self._database.stat().st_size
            if grows_by <= self._free_bytes():
                empty_log(connection)

    def look_again(self, connection: Connection) -> None:
        """See whether there is room; if there was none and now is, make the reserve anew."""
        if not self.is_short:
            if self._free_bytes() < self._wanted_bytes() and self._room_bytes(connection) < self._wanted_bytes():
                self._become_short("little is left of it")
        elif self._make_reserve(connection):
            self.full = None
            log.warning("the disk of the store %s has room again: messages are taken", self._database)
            self._tell(RoomChanged(None))
        self.look_at_log(connection)

    def look_at_log(self, connection: Connection) -> None:
        """Keep the log short while the disk is nearly full."""
        disk = shutil.disk_usage(self._folder)
        wants_short = disk.free < _SHORT_LOG_BELOW
        if self._has_fixed_log or wants_short == self._has_short_log:
            return
        self._has_short_log = wants_short
        pages = CHECKPOINT_PAGES_MIN if wants_short else checkpoint_pages_for(disk.total)
        execute(connection, f"pragma wal_autocheckpoint = {pages}")

    def _become_short(self, reason: str) -> None:
        if not self.is_short:
            self.full = reason
            log.error(
                "the disk of the store %s is full (%s): no message is taken, those that are there can be received",
                self._database,
                reason,
            )
            self._tell(RoomChanged(reason))

    def _make_reserve(self, connection: Connection) -> bool:
        """Whether there is a reserve and room beside it.

        On a disk that is full of our own database it may be smaller, because what is free there does not grow.
        """
        wanted = self._wanted_bytes()
        if self._room_bytes(connection) < 2 * wanted:
            return False
        if self._reserve_bytes():
            return True
        size = min(wanted, self._free_bytes() // 2)
        if 4 * size < wanted:
            return False
        try:
            handle = os.open(self._reserve, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(handle, 0, size)
            finally:
                os.close(handle)
        except OSError as error:
            log.warning("no reserve can be kept next to the store %s: %s", self._database, error.strerror)
            self._free_reserve()
            return error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # else it is not for want of room
        return True

    def _free_reserve(self) -> int:
        freed = self._reserve_bytes()
        with suppress(OSError):
            self._reserve.unlink()
        return freed

    def _reserve_bytes(self) -> int:
        try:
            return self._reserve.stat().st_blocks * 512
        except OSError:
            return 0

    def _wanted_bytes(self) -> int:
        return reserve_bytes_for(shutil.disk_usage(self._folder).total)

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._folder).free

    def _room_bytes(self, connection: Connection) -> int:
        return self._free_bytes() + self._unused_bytes(connection)

    def _unused_bytes(self, connection: Connection) -> int:
        return int(first_value(connection, "pragma freelist_count")) * PAGE_BYTES
