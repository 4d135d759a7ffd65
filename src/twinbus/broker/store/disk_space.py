"""Free space on the disk of a store, and the reserve for a full disk.

The reserve is an empty file of fixed size next to the database. When a write finds the disk full, the file is removed;
its space is enough for what frees space: completed messages, a start, a stop. From then on the disk counts as full: the
store reports it, and no new messages are stored until there is space for a new reserve. If our own messages fill the
disk, that is reported before the reserve is needed.

Space that was freed inside the database, which never shrinks, counts too: new messages use it.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from twinbus.broker.store.api import DiskSpaceChanged
from twinbus.broker.store.sql_connection import (
    CHECKPOINT_PAGES_MIN,
    PAGE_BYTES,
    SqlConnection,
    checkpoint,
    checkpoint_pages_for,
    execute,
    first_value,
    one_line,
    result_code,
)

log = logging.getLogger("twinbus.namespace")

RESERVE_BYTES_MAX = 8 << 20
"""Twice the payload of one transaction."""
_DISK_PARTS = 8
"""The reserve takes at most such a part of a small disk."""
_SHORT_LOG_BELOW = 256 << 20
"""With less free space the log is kept short: copying it into the database must fit into the reserve."""
_NOTHING_FREE = 1 << 20
"""With less free space, I/O errors count as a full disk."""
CHECK_S = 1.0
"""How often to check for space while the disk is full."""

_FULL, _IO_ERROR, _CANNOT_OPEN = 13, 10, 14
"""SQLite's result codes."""


class DiskFull(Exception):
    """The change would use up the space that is left for removing messages."""


def reserve_bytes_for(disk_bytes: int) -> int:
    """The size of the reserve on a disk of this size."""
    return min(RESERVE_BYTES_MAX, disk_bytes // _DISK_PARTS)


def reserve_path(path: Path) -> Path:
    """The path of the reserve of a database."""
    return path.with_name(path.name + "-reserve")


class DiskSpace:
    """The disk space of one store. Used by one thread at a time, the one that owns the writing connection."""

    def __init__(self, path: Path, checkpoint_pages: int | None, report: Callable[[DiskSpaceChanged], None]) -> None:
        """`checkpoint_pages`: the length of the log; None: by the size of the disk, less if that is nearly full."""
        self._folder = path.parent
        self._database = path
        self._reserve = reserve_path(path)
        self._has_fixed_log = checkpoint_pages is not None
        self._send_report = report
        self._has_short_log = False
        self.full: str | None = None
        """Why no new messages can be stored; None: they can."""

    @property
    def is_full(self) -> bool:
        """Whether the disk is full: then no new messages may be stored."""
        return self.full is not None

    def keep_reserve(self, connection: SqlConnection) -> None:
        """Create the reserve unless it exists; without it the disk counts as full."""
        if not self.is_full and not self._reserve_bytes() and not self._make_reserve(connection):
            self._become_full("there is no space for a reserve")
        if not self.is_full:
            self.refresh(connection)

    def use_reserve(self, connection: SqlConnection | None, error: Exception) -> bool:
        """After an error: free the reserve if the disk was full; returns whether a retry makes sense.

        With a connection the log is truncated too, which frees its space.
        """
        if not self.is_disk_full(error):
            return False
        freed = self._free_reserve()
        self._become_full(one_line(error))
        if connection is not None:
            self.adjust_log(connection)
            self.checkpoint_if_it_fits(connection)
        return freed > 0

    def is_disk_full(self, error: Exception) -> bool:
        """Whether an error means that the disk is full."""
        if isinstance(error, DiskFull) or (
            isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        ):
            return True
        code = result_code(error)
        return code == _FULL or (code in (_IO_ERROR, _CANNOT_OPEN) and self._free_bytes() < _NOTHING_FREE)

    def has_space_for(self, payload_bytes: int) -> bool:
        """Whether twice this much is free."""
        return 2 * payload_bytes <= self._free_bytes()

    def admit(self, connection: SqlConnection, payload_bytes: int) -> None:
        """Raise `DiskFull` if this much more would leave too little space for removing messages.

        Messages that were on their way when the disk became full are stored as long as half of the reserve is left.
        """
        if self.is_full and payload_bytes > 0:
            left = self._usable_bytes(connection) - payload_bytes
            if 2 * left < self._wanted_bytes():
                raise DiskFull("database or disk is full")

    def checkpoint_if_it_fits(self, connection: SqlConnection) -> None:
        """Copy the log into the database, unless the free space would run out on the way."""
        with suppress(Exception):  # the next statement shows whether the disk is usable
            grows_by = first_value(connection, "pragma page_count") * PAGE_BYTES - self._database.stat().st_size
            if grows_by <= self._free_bytes():
                checkpoint(connection)

    def refresh(self, connection: SqlConnection) -> None:
        """Check the free space; if the disk was full and is not any more, create the reserve again."""
        if not self.is_full:
            if self._free_bytes() < self._wanted_bytes() and self._usable_bytes(connection) < self._wanted_bytes():
                self._become_full("little space is left")
        elif self._make_reserve(connection):
            self.full = None
            log.warning("the disk of the store %s has space again: messages are accepted", self._database)
            self._send_report(DiskSpaceChanged(None))
        self.adjust_log(connection)

    def adjust_log(self, connection: SqlConnection) -> None:
        """Keep the log short while the disk is nearly full."""
        disk = shutil.disk_usage(self._folder)
        wants_short = disk.free < _SHORT_LOG_BELOW
        if self._has_fixed_log or wants_short == self._has_short_log:
            return
        self._has_short_log = wants_short
        pages = CHECKPOINT_PAGES_MIN if wants_short else checkpoint_pages_for(disk.total)
        execute(connection, f"pragma wal_autocheckpoint = {pages}")

    def _become_full(self, reason: str) -> None:
        if not self.is_full:
            self.full = reason
            log.error(
                "the disk of the store %s is full (%s): new messages are refused, stored ones can be received",
                self._database,
                reason,
            )
            self._send_report(DiskSpaceChanged(reason))

    def _make_reserve(self, connection: SqlConnection) -> bool:
        """Create the reserve unless it exists; returns whether there is one and space beside it.

        On a disk filled by our own database it may be smaller, because the free space there does not grow.
        """
        wanted = self._wanted_bytes()
        if self._usable_bytes(connection) < 2 * wanted:
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
            log.warning("the reserve of the store %s cannot be created: %s", self._database, error.strerror)
            self._free_reserve()
            return error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # otherwise the reason is another one
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

    def _usable_bytes(self, connection: SqlConnection) -> int:
        return self._free_bytes() + int(first_value(connection, "pragma freelist_count")) * PAGE_BYTES
